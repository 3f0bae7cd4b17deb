"""The retail tasks on a SQLite store, in processes that are killed at random instants and replaced.

    Ledger   the shop's own record, in a file: what a key did, once, whoever comes with it
    Branch   the tools of one worker, over a shop that is rebuilt from the ledger
    Killer   begins workers, sends SIGKILL, begins others until every task has ended

`retail.py --crash SEED` plays them. Everything is real but the model: the file, the time, the kills. The seed fixes
when workers are killed; what they are about at that instant is left to the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import remit
import retail_reference as reference
from remit import Decision, Limits, Pending, Reason, Remit
from remit.store.sqlite import SqliteStore
from remit.testing import ScriptedModel
from retail_desk import EFFECTS, Desk, Effects, action_id
from retail_domain import Json, Shop

__all__ = ["Crashed", "play", "report"]

WORKERS = 2
PAUSE = 0.002
"""Seconds that the model thinks, and that a tool takes on either side of its deed."""
SOONEST, LATEST = 0.015, 0.07
"""Seconds after which a worker is killed."""
MOST_KILLS = 5
"""Of one task, so that it comes to its end."""
POLL = 0.001


@dataclass(slots=True)
class Crashed:
    """What happened to one task."""

    wrong: str = ""
    """Why it does not count as reached; empty where it does."""
    kills: int = 0
    inside: int = 0
    """Kills of a worker that the ledger had last heard of from inside a body, or of its effect."""
    approvals: int = 0
    effects: int = 0
    twice: int = 0
    """Effects beyond what was asked for, attempts at them under another key, bodies entered without an approval or
    once more after their effect."""
    repeats: int = 0
    """Keys that came back after they had taken effect, and were answered from the ledger."""


class Ledger(Effects):
    """The record of the shop: every line is durable for the processes of this machine once it is written."""

    def __init__(self, path: Path, shop: Shop) -> None:
        super().__init__()
        self._path = path
        for what, key, action in lines(path):
            if what == "did":
                name, arguments = action.split(" ", 1)
                outcome = shop.actions[name](**json.loads(arguments))
                super().apply(key, action, lambda outcome=outcome: outcome)

    def note(self, what: str, key: str, action: str = "") -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps([what, key, action]).encode() + b"\n")

    def apply(self, key: str, action: str, change: Callable[[], object]) -> object:
        if key in self.outcomes:
            self.note("repeat", key)
            return super().apply(key, action, change)
        if action in self.applied:
            self.note("again", key, action)
        outcome = super().apply(key, action, change)
        self.note("did", key, action)
        return outcome

    def outcome(self, key: str) -> object | None:
        if key in self.outcomes:
            self.note("repeat", key)
        return super().outcome(key)


def lines(path: Path) -> list[tuple[str, str, str]]:
    """What a ledger says, in order."""
    if not path.exists():
        return []
    return [tuple(json.loads(line)) for line in path.read_text("utf-8").splitlines()]


class Branch(Desk):
    """The tools of one worker."""

    def __init__(self, database: Json, ledger: Path) -> None:
        super().__init__(Shop(database), {})
        self.ledger = Ledger(ledger, self.shop)
        self.effects = self.ledger

    async def _serve(self, name: str, arguments: Json, key: str) -> object:
        if name in EFFECTS:
            self.ledger.note("entered", key, name)
        await asyncio.sleep(PAUSE)
        try:
            return await super()._serve(name, arguments, key)
        finally:
            await asyncio.sleep(PAUSE)


@dataclass
class Task:
    """One task, as the workers are given it."""

    id: str
    prompt: str
    actions: Sequence[tuple[str, Json]]
    script: Callable[..., Any]
    in_process: bool
    """Approvals are given by a callback; else the run waits, is decided and resumed."""


@dataclass
class Killer:
    """Begins the workers and ends them."""

    database: Json
    policy: str
    tools: Sequence[Json]
    tasks: Sequence[Task]
    folder: Path
    rng: random.Random
    results: dict[str, Crashed] = field(default_factory=dict[str, Crashed])

    def play(self) -> None:
        """Until every task has ended, or failed."""
        self._support(Branch(self.database, self.folder / "nothing"), self.tasks[0])  # imports all
        waiting = list(reversed(self.tasks))
        working: dict[int, tuple[Task, float]] = {}
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        try:
            while waiting or working:
                while waiting and len(working) < WORKERS:
                    task = waiting.pop()
                    working[self._begin(task)] = task, time.monotonic() + self._patience(task)
                signal.sigtimedwait({signal.SIGCHLD}, POLL)
                for process, (task, until) in list(working.items()):
                    status = self._status(process, until)
                    if status is not None:
                        del working[process]
                        if self._is_left_over(task, status):
                            waiting.append(task)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _patience(self, task: Task) -> float:
        kills = self.results.setdefault(task.id, Crashed()).kills
        return self.rng.uniform(SOONEST, LATEST) if kills < MOST_KILLS else float("inf")

    def _status(self, process: int, until: float) -> int | None:
        """How a worker ended; None while it lives. Its time is over at `until`."""
        ended, status = os.waitpid(process, os.WNOHANG)
        if not ended and time.monotonic() >= until:
            os.kill(process, signal.SIGKILL)
            ended, status = os.waitpid(process, 0)
        return status if ended else None

    def _is_left_over(self, task: Task, status: int) -> bool:
        """Note how a worker ended. Whether another is needed."""
        result = self.results[task.id]
        if not os.WIFSIGNALED(status):
            result.wrong = "a worker failed" if status else ""
            return False
        result.kills += 1
        result.inside += self._was_inside(task)
        return True

    def _was_inside(self, task: Task) -> bool:
        """Whether the newest line of the ledger is of a body or of its effect."""
        return any(what in ("entered", "did") for what, _, _ in lines(self._ledger(task))[-1:])

    def _begin(self, task: Task) -> int:
        """Fork a worker off. This process has no thread, and never opens the store."""
        process = os.fork()
        if process:
            return process
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            asyncio.run(self._work(task))
        except BaseException:  # noqa: BLE001 - it ends here, and its status tells
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _ledger(self, task: Task) -> Path:
        return self.folder / f"ledger-{task.id}"

    def _support(self, desk: Branch, task: Task) -> Remit[None]:
        async def approve(pending: Pending) -> Decision:
            desk.ledger.note("approved", pending.id)
            return Decision(approve=True, by="benchmark")

        return Remit(
            name="retail",
            model=ScriptedModel(task.script, latency=PAUSE),
            instructions=self.policy,
            tools=desk.tools(self.tools),
            limits=Limits(steps=64, tokens=10_000_000, seconds=100_000),
            confirm=approve if task.in_process else None,
            store=SqliteStore(self.folder / "runs.db"),
        )

    async def _work(self, task: Task) -> None:
        desk = Branch(self.database, self._ledger(task))
        support = self._support(desk, task)
        outcome = await support.run(task.prompt, run_id=f"task-{task.id}")
        while outcome.reason is Reason.WAITING:
            for pending in outcome.pending:
                desk.ledger.note("approved", pending.id)
                with contextlib.suppress(remit.DecisionError):  # before the last kill
                    await support.decide(id=pending.id, approve=True, by="benchmark")
            outcome = await support.resume(outcome.run_id)
        outcome.raise_for_reason()

    def judge(self) -> None:
        """Hold every ledger, and the shop that it makes, against the reference."""
        for task in self.tasks:
            result = self.results[task.id]
            if not result.wrong:
                result.wrong = self._fault(task, result)

    def _fault(self, task: Task, result: Crashed) -> str:
        database = copy.deepcopy(self.database)
        due = Counter(
            action_id(name, arguments)
            for name, arguments in task.actions
            if reference.apply(database, name, arguments) is None and name in EFFECTS
        )
        said = lines(self._ledger(task))
        shop = Shop(copy.deepcopy(self.database))
        Ledger(self._ledger(task), shop)
        did = Counter(action for what, _, action in said if what == "did")
        counts = Counter(what for what, _, _ in said)
        paid = sum(what == "entered" and EFFECTS[name] == "confirm" for what, _, name in said)
        result.effects, result.repeats = did.total(), counts["repeat"]
        result.approvals = counts["approved"]
        result.twice = (did - due).total() + counts["again"] + entered_after(said)
        result.twice += max(0, paid - counts["approved"])
        if shop.database != database:
            return "the databases differ"
        return "something took effect twice" if result.twice else ""


def entered_after(said: Sequence[tuple[str, str, str]]) -> int:
    """Bodies that need an approval and were entered under a key that had taken effect."""
    done: set[str] = set()
    count = 0
    for what, key, name in said:
        if what == "did":
            done.add(key)
        elif what == "entered" and EFFECTS[name] == "confirm":
            count += key in done
    return count


def play(
    database: str, policy: str, tools: Sequence[Json], tasks: Sequence[Task], seed: int
) -> Mapping[str, Crashed]:
    """Play all tasks to their end, through every kill. Errors: `OSError` on a system that cannot fork."""
    with tempfile.TemporaryDirectory(prefix="retail-") as folder:
        killer = Killer(
            json.loads(database), policy, tools, tasks, Path(folder), random.Random(seed)
        )
        killer.play()
        killer.judge()
        return killer.results


def report(results: Mapping[str, Crashed], seed: int, seconds: float) -> Iterator[str]:
    """The lines to print; the last one says how many tasks reach the reference state."""
    all_ = list(results.values())

    def line(what: str, count: int) -> str:
        return f"  {what:<44}{count:>6}"

    yield f"{len(all_)} tasks on a SQLite store, workers killed by seed {seed}, {seconds:.1f} s"
    yield line("kills", sum(one.kills for one in all_))
    yield line("of them in a body or just behind its effect", sum(one.inside for one in all_))
    yield line("tasks that were killed at least once", sum(one.kills > 0 for one in all_))
    yield line("approvals given", sum(one.approvals for one in all_))
    yield "effects"
    yield line("actions that took effect", sum(one.effects for one in all_))
    yield line("beyond what was asked for, or tried again", sum(one.twice for one in all_))
    yield line("repeats answered from the ledger", sum(one.repeats for one in all_))
    yield from (f"task {name}: {one.wrong}" for name, one in results.items() if one.wrong)
    reached = sum(not one.wrong for one in all_)
    yield f"{reached}/{len(all_)} tasks reach the reference state"
