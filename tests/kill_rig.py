"""Workers on one SQLite file that are killed at random instants: a program for tests. Real time, real signals.

    python kill_rig.py FOLDER KILLS LEAST SEED

Workers bring runs of several steps to their end: parallel effects, a payment that is approved, effects in a row on
one resource, a child. Each says in shared memory what it is about, its `Phase`; the killer either waits for a phase
that it has hit too seldom, or for a random while, and sends SIGKILL. Others go on with the run. It ends once KILLS
were sent, LEAST of them in each phase, and every run has ended, and writes one JSON object of figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

import remit
from remit import Call, Limits, Outcome, Reason, Remit
from remit.messages import Status, ToolResult, Usage
from remit.report import read_state
from remit.rows import decode_row
from remit.state import RunState
from remit.store.base import Control, Journal, Lease, NewRow
from remit.store.directory import RunQuery
from remit.store.memory import MemoryStore
from remit.store.sqlite import SqliteStore
from remit.testing import ScriptedModel, Step, run_virtual
from remit.transcript import Transcript

__all__ = ["Board", "Desk", "Files", "Phase", "Told", "forked"]

SLOW = 0.004
"""Seconds that the model, the inside of a body and the answer of a store take: what passes there can be hit."""
WORKERS = 2
WRITES = ("write", "change", "pay")
"""The tools with an effect of their own."""
MOST_KILLS = 9
"""Of one run, so that it comes to its end."""
LONGEST = 0.25
"""Seconds after which a worker that is killed at random is killed at the latest."""
LEFT_FOR_DEAD = 60.0


class Phase(IntEnum):
    """What a worker is about."""

    ELSEWHERE = 0
    """Opening, resuming, deciding, following, ending."""
    ASKING = 1
    """The model is asked."""
    COMMITTING_THE_REPLY = 2
    """The reply and its intents are being made durable."""
    BEFORE_THE_BODY = 3
    """A start is durable, and its body is not entered yet."""
    IN_THE_BODY = 4
    """A body is entered, and nothing has taken effect."""
    AFTER_THE_EFFECT = 5
    """Something took effect, and nobody was told of its outcome."""
    COMMITTING_THE_OUTCOME = 6
    """Outcomes are being made durable."""


SIX = [phase for phase in Phase if phase]


class Board:
    """What every worker is about, in memory that they share with the killer and that outlives them."""

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, 2 * slots)

    def tell(self, slot: int, phase: Phase) -> None:
        self._memory[2 * slot] = phase
        self._memory[2 * slot + 1] = (self._memory[2 * slot + 1] + 1) % 256

    def phase(self, slot: int) -> Phase:
        return Phase(self._memory[2 * slot])


@dataclass
class Files:
    """What the processes share."""

    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / "runs.db"

    @property
    def ledger(self) -> Path:
        """The downstream service: a line for each body that is entered, and for each effect."""
        return self.folder / "ledger"

    def note(self, what: str, key: str) -> None:
        with self.ledger.open("ab", buffering=0) as file:
            file.write(f"{what} {key}\n".encode())

    def counted(self, what: str) -> Counter[str]:
        if not self.ledger.exists():
            return Counter()
        lines = (line.split(" ", 1) for line in self.ledger.read_text("utf-8").splitlines())
        return Counter(key for said, key in lines if said == what)


class Told:
    """A store whose worker says what it commits, and which takes a while to answer."""

    def __init__(self, inner: Journal, tell: Callable[[Phase], None], turns: int) -> None:
        """`turns`: how many times `SLOW` an answer takes that lets bodies be entered."""
        self.inner = inner
        self._tell = tell
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def append(self, lease: Lease, rows: Sequence[NewRow], **named: Any) -> Control:
        kinds = {row.kind for row in rows}
        if "settled" in kinds:
            self._tell(Phase.COMMITTING_THE_OUTCOME)
        elif "replied" in kinds:
            self._tell(Phase.COMMITTING_THE_REPLY)
        control = await self.inner.append(lease, rows, **named)
        if "started" in kinds:
            self._tell(Phase.BEFORE_THE_BODY)
            for _ in range(self._turns):
                await asyncio.sleep(SLOW)
        else:
            self._tell(Phase.ELSEWHERE)
        return control


class Desk:
    """The remit of every worker."""

    def __init__(
        self,
        store: Journal,
        *,
        note: Callable[[str, str], None],
        tell: Callable[[Phase], None],
        turns: int = 1,
    ) -> None:
        """`note` is the ledger: what happened, and under which key. `turns` as in `Told`."""
        self._note = note
        self._tell = tell
        self.store = cast("Journal", Told(store, tell, turns))
        tools = self._tools()
        child = self._remit(
            "child", [[("write", {"x": "c"}), ("write", {"x": "d"})], "well"], tools
        )
        self.root = self._remit(
            "root",
            [
                [("write", {"x": "a"}), ("look", {"x": "a"}), ("write", {"x": "b"})],
                [("write", {"x": "a"}), ("pay", {"x": "a"}), ("change", {"x": "a"})],
                [("change", {"x": "b"}), ("change", {"x": "c"}), ("helper", {"task": "one"})],
                "done",
            ],
            [*tools, child.as_tool("helper", "Help.", limits=self._limits)],
        )

    _limits = Limits(steps=10, tokens=1_000_000, seconds=600)

    def _remit(self, name: str, turns: Sequence[Any], tools: Sequence[Any]) -> Remit[Any]:
        def says(transcript: Transcript, _: Any) -> Step:
            self._tell(Phase.ASKING)
            said = turns[sum(message.role == "assistant" for message in transcript)]
            return Step(said, usage=Usage(input=100, output=10), delay=SLOW)

        return Remit[Any](
            name=name,
            model=ScriptedModel(says),
            tools=tools,
            limits=self._limits,
            store=self.store,
        )

    async def _serve(self, key: str, answer: str) -> str:
        self._tell(Phase.IN_THE_BODY)
        self._note("entered", key)
        await asyncio.sleep(SLOW)
        self._note("did", key)
        self._tell(Phase.AFTER_THE_EFFECT)
        await asyncio.sleep(SLOW)
        return answer

    def _tools(self) -> list[Any]:
        @remit.tool(effect="read")
        async def look(x: str) -> str:
            """Look."""
            return f"saw {x}"

        @remit.tool(effect="idempotent", resource=())
        async def write(x: str, call: Call[Any]) -> str:
            """Write."""
            return await self._serve(call.key, f"wrote {x}")

        @remit.tool(effect="idempotent", resource="thing")
        async def change(x: str, call: Call[Any]) -> str:
            """Change the one thing there is."""
            return await self._serve(call.key, f"changed {x}")

        @remit.tool(effect="confirm", resource="thing")
        async def pay(x: str, call: Call[Any]) -> str:
            """Pay."""
            return await self._serve(call.key, f"paid {x}")

        return [look, write, change, pay]

    async def finish(self, run_id: str) -> Outcome[Any]:
        """Start a run or go on with it, and do all there is to do until it has ended."""
        while True:
            outcome = await self.root.run(f"do {run_id}", run_id=run_id)
            if outcome.reason is not Reason.WAITING:
                return outcome
            for pending in outcome.pending:
                with contextlib.suppress(remit.DecisionError):  # another worker was quicker
                    await self.root.decide(id=pending.id, approve=True, by="dana")


def forked(act: Callable[[], object]) -> int:
    """Begin something in a process of its own, which ends without any farewell. Gives its id."""
    process = os.fork()
    if process:
        return process
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        act()
    except BaseException:  # it ends here, and its status tells
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


@dataclass
class Known:
    """What the journal and the ledger said of a run after a kill."""

    settled: set[str] = field(default_factory=set[str])
    in_doubt: set[str] = field(default_factory=set[str])
    entered: Counter[str] = field(default_factory=Counter[str])
    """How often each body had been entered by then."""
    shared: bool = False
    """Another worker was at the run too, and may have gone on by then."""


@dataclass
class Worker:
    """One that lives."""

    run_id: str
    process: int
    aim: Phase | None
    """Where it is killed; None for a random instant."""
    at: float
    """When it is killed; infinite for one that is spared, the first instant for one that is aimed at."""


@dataclass
class Killer:
    """Begins workers, kills them, and looks at what they leave behind."""

    files: Files
    kills: int
    least: int
    rng: random.Random
    board: Board = field(default_factory=lambda: Board(WORKERS))
    workers: dict[int, Worker] = field(default_factory=dict[int, Worker])
    runs: list[str] = field(default_factory=list[str])
    open: set[str] = field(default_factory=set[str])
    hit: Counter[Phase] = field(default_factory=Counter[Phase])
    killed: Counter[str] = field(default_factory=Counter[str])
    known: list[Known] = field(default_factory=list[Known])

    @property
    def _goes_on(self) -> bool:
        return self.hit.total() < self.kills or any(self.hit[phase] < self.least for phase in SIX)

    def play(self) -> None:
        """Until everything has ended."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        until = time.monotonic() + LEFT_FOR_DEAD * 4
        while self._goes_on or self.open or self.workers:
            for slot in range(WORKERS):
                if slot in self.workers:
                    self._look_at(slot)
                else:
                    self._begin(slot)
            signal.sigtimedwait({signal.SIGCHLD}, 0.0002)
            assert time.monotonic() < until, f"it comes to no end: {self.hit}"

    def _begin(self, slot: int) -> None:
        free = sorted(self.open - {worker.run_id for worker in self.workers.values()})
        if self.open and self.rng.random() < 0.1:
            free = sorted(self.open)  # two of them at one run
        if not free and not self._goes_on:
            return
        if not free:
            run_id = f"run{len(self.runs)}"
            self.runs.append(run_id)
            self.open.add(run_id)
            free = [run_id]
        run_id = free[0]
        aim, at = None, time.monotonic()
        if not self._goes_on or self.killed[run_id] >= MOST_KILLS:
            at = float("inf")
        elif self.rng.random() < 0.6:
            aim = min(SIX, key=lambda phase: (self.hit[phase], self.rng.random()))
            at += self.rng.uniform(0, LONGEST / 4)
        else:
            at += self.rng.uniform(0, LONGEST)
        self.board.tell(slot, Phase.ELSEWHERE)
        process = forked(lambda: asyncio.run(self._work(slot, run_id)))
        self.workers[slot] = Worker(run_id, process, aim, at)

    async def _work(self, slot: int, run_id: str) -> None:
        desk = Desk(
            SqliteStore(self.files.runs),
            note=self.files.note,
            tell=lambda phase: self.board.tell(slot, phase),
        )
        outcome = await desk.finish(run_id)
        assert outcome.reason is Reason.COMPLETED, (run_id, outcome.reason, outcome.error)

    def _look_at(self, slot: int) -> None:
        worker = self.workers[slot]
        ended, status = os.waitpid(worker.process, os.WNOHANG)
        if ended:
            assert status == 0, f"a worker of {worker.run_id} failed"
            self.open.discard(worker.run_id)
            del self.workers[slot]
        elif time.monotonic() >= worker.at and worker.aim in (None, self.board.phase(slot)):
            os.kill(worker.process, signal.SIGKILL)
            _, status = os.waitpid(worker.process, 0)
            del self.workers[slot]
            if os.WIFSIGNALED(status):
                self.hit[self.board.phase(slot)] += 1
                self.killed[worker.run_id] += 1
                known = self._what_is_known(worker.run_id)
                known.shared = any(each.run_id == worker.run_id for each in self.workers.values())
                self.known.append(known)
            else:  # it came to its end in that very moment
                self.open.discard(worker.run_id)

    def _what_is_known(self, run_id: str) -> Known:
        """The journal first, then the ledger: whoever is at it by now has begun with what is settled."""
        known = Known()
        for state in states_in(self.files.runs, run_id):
            settled, in_doubt = calls_of(state)
            known.settled |= settled
            known.in_doubt |= in_doubt
        known.entered = self.files.counted("entered")
        return known

    # At the end

    def judge(self) -> dict[str, Any]:
        """Hold everything against runs that nobody killed. Gives the figures."""
        entered, did = self.files.counted("entered"), self.files.counted("did")
        repeated = [
            key
            for known in self.known
            for key in known.settled
            if entered[key] != known.entered[key]
        ]
        doubts = {key for known in self.known for key in known.in_doubt}
        again = {
            key
            for known in self.known
            for key in known.in_doubt
            if tool_of(key) != "pay" and not known.shared
        }
        left = [
            key
            for known in self.known
            for key in known.in_doubt & again
            if not known.shared and entered[key] <= known.entered[key]
        ]
        assert not left, f"in doubt, and not tried again under its own key: {left}"
        expected: set[str] = set()
        for run_id in self.runs:
            expected |= self._judge_run(run_id, doubts)
        rows = asyncio.run(self._read_chains())
        never = {key for key in doubts if tool_of(key) == "pay" and not entered[key]}
        assert set(entered) | never == expected, "a call has the key that it has without a kill"
        assert set(did) | {key for key in doubts if tool_of(key) == "pay"} >= expected
        assert not repeated, repeated
        twice = [key for key, times in entered.items() if tool_of(key) == "pay" and times > 1]
        assert not twice, twice
        return {
            "kills": self.hit.total(),
            "phases": {phase.name: self.hit[phase] for phase in Phase},
            "runs": len(self.runs),
            "rows of whole chains": rows,
            "kills of one run": max(self.killed.values()),
            "finished calls seen": len({key for known in self.known for key in known.settled}),
            "finished calls repeated": len(repeated),
            "calls in doubt": len(doubts),
            "tried again under their own key": len(again),
            "payments in doubt": sum(tool_of(key) == "pay" for key in doubts),
            "payments entered twice": len(twice),
        }

    async def _read_chains(self) -> int:
        """Every row of every run, each link of the chain verified. Nobody is forked off any more."""
        store = SqliteStore(self.files.runs)
        found = await store.runs(RunQuery(), count=10_000)
        rows = [await store.read(run.run_id) for run in found]
        store.close()
        return sum(map(len, rows))

    def _judge_run(self, run_id: str, doubts: set[str]) -> set[str]:
        """One run and its child. Gives the keys of its calls that enter bodies."""
        states = {state.run_id: state for state in states_in(self.files.runs, run_id)}
        reference = run_virtual(without_a_kill(run_id))
        assert set(states) == set(reference), "ids of children derive from the calls around them"
        keys: set[str] = set()
        for each, expected in reference.items():
            found = results_of(states[each])
            for one, other in zip(found, results_of(expected), strict=True):
                assert one.key == other.key
                assert one.key is not None
                if tool_of(one.key) in WRITES:
                    keys.add(one.key)
                if one.status is Status.UNKNOWN:
                    assert tool_of(one.key) == "pay"
                    assert one.key in doubts, "only what a kill left open is unknown"
                else:
                    assert (one.content, one.status) == (other.content, other.status)
            state = states[each]
            assert (state.text, state.steps) == (expected.text, expected.steps)
            assert state.tree.tokens == expected.tree.tokens, "what was spent before a kill counts"
        return keys


def states_in(runs: Path, root: str) -> list[RunState]:
    """The runs of a tree, read without the store: a process that forks has none open."""
    if not runs.exists():
        return []
    with closing(sqlite3.connect(runs)) as connection:
        try:
            found = connection.execute(
                "select run_id, r.kind, p.body from remit_run u join remit_row r using(run_id)"
                " join remit_payload p on p.id = (u.number << 32) + r.seq"
                " where u.root = ? order by u.run_id, r.seq",
                (root,),
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return []  # the first worker died before it made the tables
    rows: dict[str, list[Any]] = {}
    for run_id, kind, body in found:
        rows.setdefault(run_id, []).append(decode_row(kind, body))
    return [RunState(run_id, theirs) for run_id, theirs in rows.items()]


def tool_of(key: str) -> str:
    return key.split(":")[-3]


def calls_of(state: RunState) -> tuple[set[str], set[str]]:
    """The keys of the calls that are settled, and of the effects that are in doubt."""
    settled = {result.key for result in results_of(state) if result.key is not None}
    in_doubt: set[str] = set()
    for call in state.calls:
        if call.key is not None and call.settled:
            settled.add(call.key)
        elif call.key is not None and call.started is not None and tool_of(call.key) in WRITES:
            in_doubt.add(call.key)
    return settled, in_doubt


def results_of(state: RunState) -> list[ToolResult]:
    return [result for message in state.transcript for result in message.tool_results]


async def without_a_kill(run_id: str) -> dict[str, RunState]:
    """The same run and its child, in memory and at peace."""
    store = MemoryStore()
    await Desk(store, note=lambda what, key: None, tell=lambda phase: None).finish(run_id)
    runs = await store.runs(RunQuery(), count=9)
    return {run.run_id: await read_state(store, run.run_id) for run in runs}


def main(folder: str, kills: str, least: str, seed: str) -> None:
    killer = Killer(Files(Path(folder)), int(kills), int(least), random.Random(seed))
    began = time.monotonic()
    killer.play()
    figures = killer.judge()
    figures["seconds"] = round(time.monotonic() - began, 1)
    sys.stdout.write(f"{json.dumps(figures)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
