"""Processes that do the same to one run at the same instant, round after round: a program for tests. Real time.

    python race_rig.py FOLDER ROUNDS

In each round pairs of processes start one run, decide its one pending and resume it, each pair at an instant that
both wait for. Writes one JSON list: for each round and act what both say and how far apart they were.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import remit
from kill_rig import Files, forked
from remit import Call, Limits, Remit
from remit.store.sqlite import SqliteStore
from remit.testing import ScriptedModel, Step
from remit.transcript import Transcript

AHEAD = 0.02
"""Seconds between the last of a pair being ready and the instant."""


class Start:
    """An instant that two processes wait for, in memory that they share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 64)

    def together(self, slot: int) -> float:
        """Be ready, wait for the other, and for the instant. Gives when it was let go."""
        at = 8 * slot
        self._memory[at : at + 8] = struct.pack("d", time.monotonic())
        while 0.0 in (ready := struct.unpack("2d", self._memory[:16])):
            os.sched_yield()
        while (now := time.monotonic()) < max(ready) + AHEAD:
            os.sched_yield()
        return now


def desk(files: Files) -> Remit[Any]:
    @remit.tool(effect="confirm")
    async def pay(amount: int, call: Call[Any]) -> str:
        """Pay."""
        files.note("paid", call.key)
        return "paid"

    def says(transcript: Transcript, _: Any) -> Step:
        done = any(message.tool_results for message in transcript)
        return Step("all done") if done else Step([("pay", {"amount": 7})])

    return Remit[Any](
        name="desk",
        model=ScriptedModel(says),
        tools=[pay],
        limits=Limits(steps=5, tokens=10_000, seconds=60),
        store=SqliteStore(files.runs),
    )


async def start(runner: Remit[Any], run_id: str) -> str:
    outcome = await runner.run("pay 7", run_id=run_id)
    return f"{outcome.reason.value} {' '.join(pending.id for pending in outcome.pending)}"


async def decide(runner: Remit[Any], run_id: str) -> str:
    [pending] = (await runner.outcome(run_id)).pending
    try:
        await runner.decide(id=pending.id, approve=True, by=str(os.getpid()))
    except remit.DecisionError as error:
        return error.why
    return "decided"


async def resume(runner: Remit[Any], run_id: str) -> str:
    try:
        return (await runner.resume(run_id)).reason.value
    except remit.RunBusy:
        return "busy"


ACTS: dict[str, Callable[[Remit[Any], str], Awaitable[str]]] = {
    "start": start,
    "decide": decide,
    "resume": resume,
}


def pair(files: Files, run_id: str, act: str) -> dict[str, Any]:
    """Two processes do something at once."""
    instant = Start()
    said = [files.folder / f"{act} {slot}" for slot in range(2)]

    async def main(slot: int) -> None:
        runner = desk(files)
        await runner.store.info(run_id)  # it is open before the instant
        let_go = instant.together(slot)
        told = await ACTS[act](runner, run_id)
        said[slot].write_text(json.dumps([let_go, told]), "utf-8")

    begun = [forked(lambda slot=slot: asyncio.run(main(slot))) for slot in range(2)]
    for process in begun:
        assert os.waitpid(process, 0)[1] == 0
    (first, one), (second, other) = (json.loads(path.read_text("utf-8")) for path in said)
    return {"act": act, "run": run_id, "said": sorted((one, other)), "apart": abs(first - second)}


def main(folder: str, rounds: str) -> None:
    files = Files(Path(folder))
    played = [pair(files, f"r{n}", act) for n in range(int(rounds)) for act in ACTS]
    sys.stdout.write(json.dumps({"played": played, "paid": files.counted("paid")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
