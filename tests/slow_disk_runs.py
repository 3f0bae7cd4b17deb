"""Runs over a store whose disk is slow to flush; `test_slow_disk.py` has this executed under `slow_disk`.

    python slow_disk_runs.py FILE

Writes what was seen as JSON. While the runs go on, a task of the same event loop takes the time between its turns, and
the selector of the loop takes what each turn has of its thread.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import selectors
import sys
import time
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from typing import Any

import remit
from remit import Limits, Remit, Transcript
from remit.models.base import ModelRequest
from remit.models.scripted import ScriptedModel
from remit.store.sqlite import SqliteStore
from slow_disk import flushes

RUNS = 100
STEPS = 2
PAID = asyncio.Event()
"""A body was entered."""


@remit.tool(effect="idempotent")
async def pay(amount: int) -> str:
    """Pay."""
    PAID.set()
    return f"paid {amount}"


@dataclass
class Seen:
    """What was seen of some runs."""

    flushes: int
    held: int
    """Flushes of the event loop's own thread."""
    seconds: float
    waited: float
    """The longest that one turn of the loop waited for anything but a processor, in seconds."""
    usual: float
    """What nine of ten gaps between the turns of a task are below, in seconds."""
    busiest: float
    """The most that one turn of the loop took of its thread, in seconds of CPU: what others do here is not in it."""


class Turns(selectors.DefaultSelector):
    """A selector that takes what the loop's thread does from each wait to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.busiest = self.waited = 0.0
        self._queued = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._began: tuple[float, float, float] | None = None

    def select(self, timeout: float | None = None) -> Any:
        if self._began is not None:
            took, busy, queued = (
                now - then for now, then in zip(self._now(), self._began, strict=True)
            )
            self.busiest = max(self.busiest, busy)
            self.waited = max(self.waited, took - busy - queued)
        found = super().select(timeout)
        self._began = self._now()
        return found

    def _now(self) -> tuple[float, float, float]:
        """Time, CPU of the thread, and how long it waited for a processor that others had."""
        _, queued, _ = os.pread(self._queued, 100, 0).split()
        return time.perf_counter(), time.thread_time(), int(queued) / 1e9

    def close(self) -> None:
        super().close()
        os.close(self._queued)


class Beat:
    """Takes the time between the turns of an event loop."""

    def __init__(self, turns: Turns) -> None:
        self._gaps: list[float] = []
        self._turns = turns

    async def beat(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self._gaps.append(time.perf_counter() - began - 0.001)

    async def during(self, work: Awaitable[object]) -> Seen:
        """What is seen while this goes on."""
        await asyncio.sleep(0)  # what this turn did before is not a part of it
        all_before, held_before = flushes()
        began, task = time.perf_counter(), asyncio.create_task(self.beat())
        self._turns.busiest = self._turns.waited = 0.0
        await work
        seconds = time.perf_counter() - began
        task.cancel()
        all_, held = flushes()
        gaps = sorted(self._gaps)
        usual = gaps[len(gaps) * 9 // 10]
        turns = self._turns
        return Seen(
            all_ - all_before, held - held_before, seconds, turns.waited, usual, turns.busiest
        )


def says(transcript: Transcript, request: ModelRequest) -> Any:
    """Pay twice, each time after the answer to what was asked before, and stop."""
    del request
    step = len(transcript) // 2
    return ("pay", {"amount": step}) if step < STEPS else "done"


async def many(desk: Remit[None]) -> None:
    """Runs at the same time."""
    outcomes = await asyncio.gather(*(desk.run(f"go {n}", run_id=f"r{n}") for n in range(RUNS)))
    for outcome in outcomes:
        outcome.raise_for_reason()


async def cancelled(desk: Remit[None]) -> float:
    """Cancel a run while its result is being written; seconds from there until it has ended."""
    PAID.clear()
    task = asyncio.create_task(desk.run("go", run_id="cancelled"))
    await PAID.wait()
    await asyncio.sleep(0.02)
    began = time.perf_counter()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return time.perf_counter() - began
    raise RuntimeError("the run was not cancelled")


async def main(path: str, turns: Turns) -> None:
    store = SqliteStore(path)
    desk = Remit(
        name="desk",
        model=ScriptedModel(says),
        tools=[pay],
        limits=Limits(steps=9, tokens=10**6, seconds=600),
        store=store,
    )
    one = await Beat(turns).during(desk.run("go", run_id="one"))
    gc.collect()
    gc.freeze()  # a collection of all that was imported takes 25 ms of whatever turn it falls into
    hundred = await Beat(turns).during(many(desk))
    took = await cancelled(desk)
    store.close()
    seen = {"one": asdict(one), "hundred": asdict(hundred), "cancelled": took}
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    TURNS = Turns()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(TURNS)) as runner:
        runner.run(main(sys.argv[1], TURNS))
