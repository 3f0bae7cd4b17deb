"""One approval, delivered to two processes: real processes, a real file, one effect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = '''
import asyncio, sys
import remit
from remit import Call, Limits, Remit
from remit.testing import ScriptedModel


@remit.tool(effect="confirm")
async def pay(amount: int, call: Call) -> str:
    """Pay."""
    with open("ledger.txt", "a") as ledger:
        ledger.write(f"{call.key} {amount}\\n")
    return "paid"


def says(transcript, request):
    return "all done" if transcript.last.tool_results else ("pay", {"amount": 7})


desk = Remit(
    name="desk",
    model=ScriptedModel(says),
    tools=[pay],
    limits=Limits(steps=5, tokens=10_000, seconds=60),
    store="sqlite:///runs.db",
)


async def main(act, *given):
    if act == "run":
        outcome = await desk.run("pay 7", run_id="a")
        return f"{outcome.reason} {outcome.pending[0].id if outcome.pending else outcome.text}"
    if act == "decide":
        try:
            return await desk.decide(id=given[0], approve=True, by="dana")
        except remit.DecisionError as error:
            return error.why
    try:
        return (await desk.resume("a")).reason
    except remit.RunBusy:
        return "busy"


print(asyncio.run(main(*sys.argv[1:])))
'''


def processes(folder: Path, count: int, *arguments: str) -> list[str]:
    """What so many processes at once print, sorted."""
    begun = [
        subprocess.Popen(
            [sys.executable, "app.py", *arguments], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    said = [process.communicate(timeout=60)[0].strip() for process in begun]
    assert [process.returncode for process in begun] == [0] * count
    return sorted(said)


def test_an_approval_that_two_processes_deliver_takes_effect_once(tmp_path: Path) -> None:
    """E1, E5, J2, E8: one of them decides, one of them executes, and everybody sees the same end."""
    (tmp_path / "app.py").write_text(APP, "utf-8")
    [first, second] = processes(tmp_path, 2, "run")
    assert first == second, "started twice at once, it waits once"
    reason, pending_id = first.split()
    assert reason == "waiting"
    assert processes(tmp_path, 3, "decide", pending_id) == ["a", "used", "used"]
    ends = processes(tmp_path, 3, "resume")
    assert set(ends) <= {"busy", "completed"}
    assert "completed" in ends
    assert processes(tmp_path, 2, "run") == ["completed all done"] * 2
    [line] = (tmp_path / "ledger.txt").read_text("utf-8").splitlines()
    assert line.startswith("a:1:pay:")
    assert line.endswith(" 7")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_of_two_processes_that_act_within_five_milliseconds_one_does_it_and_both_know(
    tmp_path: Path,
) -> None:
    """E8, E5, J2, J3: they start one run, decide its pending and resume it, each time at one instant."""
    rounds = 8
    rig = Path(__file__).with_name("race_rig.py")
    played = subprocess.run(
        [sys.executable, rig, tmp_path, str(rounds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert played.returncode == 0, played.stderr
    found = json.loads(played.stdout)
    close = {"start": 0, "decide": 0, "resume": 0}
    for each in found["played"]:
        one, other = each["said"]
        close[each["act"]] += each["apart"] < 0.005
        match each["act"]:
            case "start":
                assert one == other
                assert one.split()[0] == "waiting"
                assert len(one.split()) == 2, "one pending"
            case "decide":
                assert [one, other] == ["decided", "used"]
            case _:
                assert one in ("busy", "completed")
                assert other == "completed"
    assert min(close.values()) > 0, "some of them within 5 ms"
    assert len(found["paid"]) == rounds
    assert set(found["paid"].values()) == {1}


WORKER = '''
import asyncio, sys
from pathlib import Path
import remit
from remit import Call, Limits, Remit
from remit.testing import ScriptedModel


@remit.tool(effect="read")
async def look(call: Call) -> str:
    """Look: the first time for very long."""
    if Path("looked").exists():
        return "seen"
    Path("looked").write_text("")
    call.progress("looking")
    await asyncio.sleep(60)


desk = Remit(
    name="desk",
    model=ScriptedModel(lambda t, _: "all done" if t.last.tool_results else ("look", {})),
    tools=[look],
    limits=Limits(steps=5, tokens=10_000, seconds=60),
    store="sqlite:///runs.db",
)


async def drained():
    async with desk.stream("look", run_id="a") as live:
        async for event in live:
            if event.kind == "call_progress":  # `call_started` is told before the body is entered
                outcome = await live.detach()
    print(outcome.reason, flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # it is alive as long as its run is gone on with elsewhere


async def resumed():
    print((await desk.resume("a")).text)


asyncio.run(drained() if sys.argv[1] == "drained" else resumed())
'''


def test_a_worker_that_is_drained_hands_its_run_over_at_once(tmp_path: Path) -> None:
    """K1, J2: detached, the lease is given back while the process lives on; another one takes the run up at once."""
    (tmp_path / "app.py").write_text(WORKER, "utf-8")
    with subprocess.Popen(
        [sys.executable, "app.py", "drained"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "waiting\n"
        assert processes(tmp_path, 1, "resumed") == ["all done"]
        assert worker.poll() is None
        worker.communicate("\n", timeout=60)
    assert worker.returncode == 0
