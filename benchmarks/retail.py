"""Plays the published retail tasks through the loop and compares what is left in the database.

    python benchmarks/retail.py --data DIR --tasks DIR/tasks.json [--faults SEED | --crash SEED]

The model is scripted: it plays the reference actions of each task, asks for several reads at once,
and repeats what failed, timed out or was interrupted. So this measures the loop, not a model. Half
of the tasks are approved by a callback in the process; the others wait, are decided and resumed.
The final database is compared with the one that `retail_reference.py` makes of the same actions.

With `--faults` every task suffers at least one `Fault`, chosen by the seed; how often each happened
is printed, and whether anything took effect twice. Time is virtual, so a stalled tool costs none.

With `--crash` the tasks run on a SQLite store in processes that are killed at random: see `retail_crash.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import retail_crash
import retail_reference as reference
from remit import Decision, Limits, Message, Outcome, Pending, Reason, Remit, Status, Transcript
from remit.testing import ScriptedModel, run_virtual
from retail_desk import EFFECTS, TIMEOUT, Desk, Fault, Trouble, action_id
from retail_domain import REFUSAL, Json, Shop

__all__ = ["Data", "Plan", "Played", "Task", "batches", "main", "plan", "play", "read"]

Action: TypeAlias = tuple[str, Json]
"""A name and its arguments."""

BATCH = 4
"""Reads that the scripted model asks for at once."""
STALL = 1_000.0
"""Seconds that a stalled body would take; its tool is given far less."""
COIN = (True, False)
DONE = "Everything you asked for is done."


@dataclass(frozen=True, slots=True)
class Task:
    """One published task."""

    id: str
    prompt: str
    actions: tuple[Action, ...]
    """The reference actions, in order."""


@dataclass(frozen=True, slots=True)
class Data:
    """The published files, read once."""

    database: str
    """JSON text, so that every task starts from a database of its own."""
    tools: Sequence[Json]
    policy: str
    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class Plan:
    """How one task is approved and continued, and what it is made to suffer."""

    in_process: bool
    """Approvals are given by a callback; else the run waits, is decided and resumed."""
    reopen: bool = False
    """A cancelled run is resumed; else a new run goes on from its transcript."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict[str, Trouble])
    """By `action_id`."""
    thinking: float = 0.0
    """Seconds that each model call takes."""
    cancel_after: float | None = None
    """Seconds after which a task without actions is cancelled: its model is then thinking."""


@dataclass(slots=True)
class Played:
    """What happened to one task."""

    wrong: str = ""
    """Why it does not count as reached; empty where it does."""
    faults: Counter[Fault] = field(default_factory=Counter[Fault])
    callbacks: int = 0
    """Approvals given by a callback."""
    decisions: int = 0
    """Approvals given to a run that waited."""
    effects: int = 0
    """Actions that took effect."""
    twice: int = 0
    """Effects, or attempts at them, beyond what was asked for; bodies without their own approval."""
    repeats: int = 0
    """Keys that came back after they had taken effect, and were answered from the ledger."""
    steps: int = 0
    calls: int = 0
    seconds: float = 0.0
    """Real time in the loop, in the scripted model and in the tools."""


def read(data: Path, tasks: Path) -> Data:
    """Read the published files. Errors: `OSError` where one is absent."""
    return Data(
        database=(data / "db.json").read_text(encoding="utf-8"),
        tools=json.loads((data / "tools.json").read_text(encoding="utf-8")),
        policy=(data / "policy.md").read_text(encoding="utf-8"),
        tasks=[_task(row) for row in json.loads(tasks.read_text(encoding="utf-8"))],
    )


def _task(row: Json) -> Task:
    actions = row["evaluation_criteria"]["actions"]
    return Task(
        id=row["id"],
        prompt=row["user_scenario"]["instructions"]["reason_for_call"],
        actions=tuple((action["name"], action["arguments"]) for action in actions),
    )


def batches(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """The actions of each turn: consecutive reads together, every write alone."""
    batch: list[Action] = []
    for action in actions:
        alone = action[0] in EFFECTS
        if batch and (alone or len(batch) == BATCH):
            yield batch
            batch = []
        if alone:
            yield [action]
        else:
            batch.append(action)
    if batch:
        yield batch


def script(actions: Sequence[Action]) -> Callable[[Transcript, object], str | list[Action]]:
    """The model: a function of the transcript that asks for what has no final answer yet."""

    def reply(transcript: Transcript, _request: object) -> str | list[Action]:
        answers = settled(transcript)
        for batch in batches(actions):
            missing: list[Action] = []
            for action in batch:
                if answers[action_id(*action)]:
                    answers[action_id(*action)] -= 1
                else:
                    missing.append(action)
            if missing:
                return missing
        return DONE

    return reply


def settled(messages: Iterable[Message]) -> Counter[str]:
    """How often each action got a final answer: it was done, or a rule of the shop forbids it."""
    asked: dict[str, str] = {}
    answers: Counter[str] = Counter()
    for message in messages:
        for use in message.tool_uses:
            asked[use.id] = action_id(use.name, use.parsed())
        for result in message.tool_results:
            if result.status is Status.OK or REFUSAL in result.text:
                answers[asked[result.tool_use_id]] += 1
    return answers


def plan(task: Task, seed: int) -> Plan:
    """What this task suffers under this seed, at least one fault."""
    rng = random.Random(f"{seed}:{task.id}")
    in_process, reopen = rng.choice(COIN), rng.choice(COIN)
    if not task.actions:
        return Plan(in_process, reopen, thinking=2.0, cancel_after=1.0)
    reads = [action for action in task.actions if action[0] not in EFFECTS]
    writes = [action for action in task.actions if action[0] in EFFECTS]
    targets = {
        Fault.FAILURE: reads + writes,
        Fault.TIMEOUT: reads,
        Fault.UNKNOWN: writes,
        Fault.ORDER: [
            batch[0]
            for batch in batches(task.actions)
            # a trouble meets the first of equal actions, which must be this one
            if len(batch) > 1 and task.actions.count(batch[0]) == 1
        ],
        Fault.CANCELLATION: reads + writes,
    }
    possible = [fault for fault, actions in targets.items() if actions]
    troubles: dict[str, Trouble] = {}
    for fault in rng.sample(possible, rng.randint(1, min(3, len(possible)))):
        action = action_id(*rng.choice(targets[fault]))
        troubles.setdefault(action, _trouble(fault, stalls_first=rng.choice(COIN)))
    return Plan(in_process, reopen, troubles)


def _trouble(fault: Fault, *, stalls_first: bool) -> Trouble:
    """Who stalls does so before the deed or after it: the loop cannot know which."""
    if fault is Fault.ORDER:
        return Trouble(fault, before=TIMEOUT / 2)
    return Trouble(fault, before=STALL) if stalls_first else Trouble(fault, after=STALL)


async def play(task: Task, data: Data, fate: Plan) -> Played:
    """Play one task through the loop and hold its database against the reference."""
    played = Played()
    desk = Desk(Shop(json.loads(data.database)), fate.troubles)

    async def approve(_pending: Pending) -> Decision:
        played.callbacks += 1
        return Decision(approve=True, by="benchmark")

    support: Remit[None] = Remit(
        name="retail",
        model=ScriptedModel(script(task.actions), latency=fate.thinking),
        instructions=data.policy,
        tools=desk.tools(data.tools),
        limits=Limits(steps=64, tokens=10_000_000, seconds=100_000),
        confirm=approve if fate.in_process else None,
    )
    if fate.cancel_after is not None:
        asyncio.get_running_loop().call_later(fate.cancel_after, desk.interruptible.set)
    began = time.perf_counter()
    outcome = await _started(support, task, desk)
    while outcome.reason in (Reason.WAITING, Reason.CANCELLED):
        if outcome.reason is Reason.WAITING:
            for pending in outcome.pending:
                played.decisions += 1
                await support.decide(pending.token, approve=True, by="benchmark")
            goes_on = support.resume(outcome.run_id)
        else:
            played.faults[Fault.CANCELLATION] += 1
            goes_on = (
                support.resume(outcome.run_id, reopen=True)
                if fate.reopen
                else support.run("Please go on.", history=outcome.transcript)
            )
        outcome = await _continued(goes_on, support, outcome.run_id, desk)
    played.seconds = time.perf_counter() - began
    _judge(task, data, desk, outcome, played)
    return played


async def _started(support: Remit[Any], task: Task, desk: Desk) -> Outcome[str]:
    """Run the task, and cancel it through its handle once the desk says so."""

    async def cancel() -> None:
        await desk.interruptible.wait()
        await live.cancel()

    async with support.stream(task.prompt, run_id=f"task-{task.id}") as live:
        canceller = asyncio.create_task(cancel())
        async for _ in live:
            pass
    canceller.cancel()
    desk.interruptible.clear()
    return live.outcome


async def _continued(
    goes_on: Coroutine[Any, Any, Outcome[str]],
    support: Remit[Any],
    run_id: str,
    desk: Desk,
) -> Outcome[str]:
    """Await what goes on, and cancel it from outside once the desk says so."""
    running = asyncio.create_task(goes_on)
    signal = asyncio.create_task(desk.interruptible.wait())
    await asyncio.wait({running, signal}, return_when=asyncio.FIRST_COMPLETED)
    signal.cancel()
    if not desk.interruptible.is_set():
        return await running
    running.cancel()
    await asyncio.wait({running})
    desk.interruptible.clear()
    return await support.outcome(run_id) if running.cancelled() else running.result()


def _judge(task: Task, data: Data, desk: Desk, outcome: Outcome[str], played: Played) -> None:
    database = json.loads(data.database)
    due = Counter(
        action_id(name, arguments)
        for name, arguments in task.actions
        if reference.apply(database, name, arguments) is None and name in EFFECTS
    )
    unapproved = max(0, desk.confirmed - played.callbacks - played.decisions)
    played.faults += desk.met
    played.effects = desk.effects.applied.total()
    played.twice = (desk.effects.applied - due).total() + desk.doubled + unapproved
    played.repeats = desk.effects.repeats.total()
    played.steps = sum(message.role == "assistant" for message in outcome.transcript)
    played.calls = sum(len(message.tool_uses) for message in outcome.transcript)
    if outcome.reason is not Reason.COMPLETED:
        played.wrong = f"ended with {outcome.reason}: {outcome.error}"
    elif desk.shop.database != database:
        played.wrong = "the databases differ"
    elif played.twice:
        played.wrong = "something took effect twice"


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all tasks; 0 where each reaches the reference state."""
    parser = argparse.ArgumentParser(description="Play the retail tasks through the loop.")
    parser.add_argument("--data", type=Path, required=True, help="db.json, tools.json, policy.md")
    parser.add_argument("--tasks", type=Path, required=True, help="tasks.json")
    fates = parser.add_mutually_exclusive_group()
    fates.add_argument("--faults", type=int, metavar="SEED", help="make every task suffer")
    fates.add_argument("--crash", type=int, metavar="SEED", help="kill the processes of the tasks")
    options = parser.parse_args(arguments)
    seed: int | None = options.faults
    data = read(options.data, options.tasks)
    if options.crash is not None:
        return crash(data, options.crash)
    results = {
        task.id: run_virtual(
            play(task, data, Plan(bool(turn % 2)) if seed is None else plan(task, seed))
        )
        for turn, task in enumerate(data.tasks)
    }
    print("\n".join(report(results, seed)))
    return 1 if any(played.wrong for played in results.values()) else 0


def crash(data: Data, seed: int) -> int:
    """Play all tasks in processes that are killed; 0 where each reaches the reference state all the same."""
    began = time.perf_counter()
    tasks = [
        retail_crash.Task(task.id, task.prompt, task.actions, script(task.actions), bool(turn % 2))
        for turn, task in enumerate(data.tasks)
    ]
    results = retail_crash.play(data.database, data.policy, data.tools, tasks, seed)
    print("\n".join(retail_crash.report(results, seed, time.perf_counter() - began)))
    return 1 if any(crashed.wrong for crashed in results.values()) else 0


def report(results: Mapping[str, Played], seed: int | None) -> Iterator[str]:
    """The lines to print; the last one says how many tasks reach the reference state."""
    played = list(results.values())

    def line(what: str, count: int) -> str:
        return f"  {what:<44}{count:>6}"

    seconds = sum(one.seconds for one in played)
    yield f"{len(played)} tasks with a scripted model, {seconds:.2f} s in loop, model and tools"
    yield line("replies of the model", sum(one.steps for one in played))
    yield line("tool calls", sum(one.calls for one in played))
    yield line("approvals by a callback", sum(one.callbacks for one in played))
    yield line("approvals by waiting, decision and resume", sum(one.decisions for one in played))
    if seed is not None:
        yield f"faults of seed {seed}"
        faults = sum((one.faults for one in played), Counter[Fault]())
        yield from (line(fault.value, faults[fault]) for fault in Fault)
        yield line("tasks that suffered none", sum(not one.faults for one in played))
    yield "effects"
    yield line("actions that took effect", sum(one.effects for one in played))
    yield line("beyond what was asked for, or tried again", sum(one.twice for one in played))
    yield line("repeats answered from the ledger", sum(one.repeats for one in played))
    yield from (f"task {name}: {one.wrong}" for name, one in results.items() if one.wrong)
    reached = sum(not one.wrong for one in played)
    yield f"{reached}/{len(played)} tasks reach the reference state"


if __name__ == "__main__":
    sys.exit(main())
