"""What crashes: shapes of runs over a ledger, the same played without a crash, and what must be equal after one.

A shape is a batch, or several: tools over a ledger that plays the downstream service, a script, and
perhaps somebody who approves. The script is a function of the transcript, so that a new model object
goes on where the dead one stood.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import remit
from remit import Call, Limits, Outcome, Reason, Remit
from remit.errors import ModelUnavailable
from remit.messages import Status, ToolResult, Usage
from remit.pending import Decision, Pending
from remit.remit import Runtime
from remit.rows import (
    Activated,
    Awaits,
    Charged,
    HandedOut,
    Questioned,
    Replied,
    Settled,
    Started,
    decode_row,
)
from remit.state import RunState
from remit.store.base import Journal
from remit.testing import ScriptedModel, SimulatedWorkers, Step, run_virtual
from remit.testing.crash import CrashPoint, CrashStore, Ledger
from remit.testing.judged import judged
from remit.transcript import Transcript

START = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = Limits(steps=30, tokens=10_000_000, seconds=3_600)
CHILD = Limits(steps=10, tokens=1_000_000, seconds=600)
Turn = Any


def now() -> datetime:
    return START + timedelta(seconds=asyncio.get_running_loop().time())


def script(*turns: Turn, flaky: bool = False) -> Callable[[Transcript, Any], Step]:
    """The n-th reply of a conversation, whoever is asked; every one bills the same."""
    failures = [ModelUnavailable("busy", usage=Usage(input=7))] if flaky else []

    def says(transcript: Transcript, _: Any) -> Step:
        if failures:
            return Step(error=failures.pop())
        silent = sum(message.text.count("reply was empty") for message in transcript)
        said = turns[silent + sum(message.role == "assistant" for message in transcript)]
        usage = Usage(input=100, output=10)
        return said if isinstance(said, Step) else Step(said, usage=usage, delay=1, between=0.5)

    return says


@dataclass
class Outside:
    """What the bodies reach: the deps of every run."""

    ledger: Ledger
    store: Journal
    failed: set[str] = field(default_factory=set[str])
    """Keys of calls that have failed once in this process."""

    async def enter(self, call: Call[Any]) -> None:
        """E3: whoever is in the body of an effect finds its own start among the committed rows."""
        run_id = call.key.rsplit(":", 4)[0]
        state = await state_of(getattr(self.store, "inner", self.store), run_id)
        started = [c for c in state.calls if c.key == call.key and c.started is not None]
        if not started:
            EARLY.append(call.key)

    async def done(self, call: Call[Any], x: str, value: str) -> str:
        """One effect downstream, after a while that `x` decides."""
        await self.enter(call)
        await asyncio.sleep(seconds(x))
        return self.ledger.done(call.key, value)


def seconds(x: str) -> float:
    return {"a": 3.0, "b": 1.0, "c": 2.0}.get(x, 1.0)


EARLY: list[str] = []
"""Keys of effects whose body was entered before their start was durable."""

VALUES = itertools.count()
"""What the host computes is another value every time it is asked."""


@remit.tool(effect="read")
async def look(x: str) -> str:
    """Look."""
    await asyncio.sleep(seconds(x))
    return f"saw {x}"


@remit.tool(effect="read", resource="thing:{x}")
async def peek(x: str) -> str:
    """Look at one thing."""
    await asyncio.sleep(1)
    return f"peeked {x}"


@remit.tool(effect="read", deterministic=True)
async def double(x: str) -> str:
    """Compute."""
    return x + x


@remit.tool(effect="idempotent", resource=())
async def write(x: str, call: Call[Outside]) -> str:
    """Write."""
    return await call.deps.done(call, x, f"wrote {x}")


@remit.tool(effect="idempotent")
async def store_it(x: str, call: Call[Outside]) -> str:
    """Write somewhere, without saying where."""
    return await call.deps.done(call, x, f"stored {x}")


@remit.tool(effect="idempotent", resource="thing:{x}")
async def change(x: str, how: str, call: Call[Outside]) -> str:
    """Change one thing."""
    return await call.deps.done(call, how, f"changed {x} {how}")


@remit.tool(effect="idempotent", resource=(), retries=2)
async def shaky(x: str, call: Call[Outside]) -> str:
    """Fail once in every process, then write."""
    await call.deps.enter(call)
    if call.key not in call.deps.failed:
        call.deps.failed.add(call.key)
        raise ConnectionError("try again")
    return await call.deps.done(call, x, f"wrote {x}")


@remit.tool(effect="idempotent", resource=())
async def stamp(
    x: str, at: Annotated[str, remit.Computed(lambda: f"t{next(VALUES)}")], call: Call[Outside]
) -> str:
    """Write with a value of the host's."""
    first = await call.deps.done(call, x, at)
    return f"stamped {x}" if first == at else f"{x} had another stamp"


@remit.tool(effect="idempotent", resource=(), timeout=2)
async def slow(x: str, call: Call[Outside]) -> str:
    """Take effect, and not come back in time."""
    await call.deps.done(call, "b", f"wrote {x}")
    await asyncio.sleep(60)
    return "never"


@remit.tool(effect="confirm", resource=())
async def pay(x: str, call: Call[Outside]) -> str:
    """Pay."""
    return await call.deps.done(call, x, f"paid {x}")


@remit.tool(effect="confirm", resource="thing:{x}")
async def charge(x: str, call: Call[Outside]) -> str:
    """Pay, with one thing in hand."""
    return await call.deps.done(call, "b", f"charged {x}")


@remit.tool(effect="idempotent", resource=(), ends_run=True)
async def finish(x: str, call: Call[Outside]) -> str:
    """Write, and be done."""
    return await call.deps.done(call, x, f"finished {x}")


@remit.tool(effect="read")
async def choose(x: str, call: Call[Outside]) -> str:
    """Look, and ask which of it."""
    await asyncio.sleep(seconds(x))
    return f"chose {call.ask(str, f'which {x}?')} and {call.ask(str, 'sure?')}"


@remit.tool(effect="idempotent", resource="thing:{x}")
async def fill(x: str, call: Call[Outside]) -> str:
    """Take effect, and ask before going on."""
    await call.deps.done(call, x, "begun")
    return f"filled {x} with {call.ask(str, f'with what, {x}?')}"


SHIP: dict[str, Any] = {
    "description": "Ship.",
    "parameters": {
        "type": "object",
        "properties": {"x": {"type": "string"}},
        "required": ["x"],
    },
}
ship = remit.Tool.elsewhere(name="ship", effect="idempotent", **SHIP)
gated_ship = remit.Tool.elsewhere(name="gated_ship", effect="confirm", **SHIP)
track = remit.Tool.elsewhere(name="track", effect="read", **SHIP)

TOOLS = (
    *(look, peek, double, write, store_it, change, shaky, stamp, slow, charge, finish),
    *(choose, fill, ship, gated_ship, track),
)


@remit.wrap_tools
async def twice_around(invocation: remit.Invocation, proceed: remit.Proceed) -> Any:
    """Takes its time before and after."""
    await asyncio.sleep(0.25)
    result = await proceed()
    await asyncio.sleep(0.25)
    return result


def accountable(ledger: Ledger) -> Any:
    """A payment whose provider can be asked what became of it."""

    @remit.tool(effect="confirm", resource=(), name="pay")
    async def accounted(x: str, call: Call[Outside]) -> str:
        """Pay."""
        return await call.deps.done(call, x, f"paid {x}")

    @accounted.reconcile
    def _(key: str) -> str | None:
        return ledger.effects.get(key)

    return accounted


@dataclass(frozen=True)
class Shape:
    """What a run does."""

    turns: Sequence[Turn]
    children: Sequence[Sequence[Turn]] = ()
    """The scripts of the children: the first is the root's, called `helper`; each has the next below."""
    width: int = 0
    """More children of the root beside the first, with the same script."""
    approves: str | None = None
    """Who approves and answers: a `callback`, or nobody in the process, and then it is decided and resumed."""
    reconciles: bool = False
    limits: Limits = LIMITS
    output: Any = None
    """What the root is to hand in."""
    stops: str | None = None
    """The root is done when a result says this."""
    flaky: bool = False
    """The root's first request in every process fails, and is billed."""
    ends: Reason = Reason.COMPLETED
    wrapped: bool = False
    """Every tool stands under two wrappers."""
    wire: str | None = None
    """Whose judge reads every request, if anybody's."""

    def build(self, store: Journal, ledger: Ledger) -> Remit[Any]:
        below: list[Any] = []
        for depth in range(len(self.children) - 1, -1, -1):
            child = self._remit(f"child{depth}", self.children[depth], store, ledger, below)
            below = [child.as_tool("helper", "Do it.", limits=CHILD)]
        return self._remit("root", self.turns, store, ledger, below, limits=self.limits)

    def _remit(
        self,
        name: str,
        turns: Sequence[Turn],
        store: Journal,
        ledger: Ledger,
        more: list[Any],
        limits: Limits = CHILD,
    ) -> Remit[Any]:
        model = ScriptedModel(script(*turns, flaky=self.flaky and name == "root"))
        return Remit[Any](
            name=name,
            model=model if self.wire is None else judged(model, self.wire),
            limits=limits,
            tools=self._wrapped([*TOOLS, accountable(ledger) if self.reconciles else pay, *more]),
            store=store,
            output=self.output if name == "root" else None,
            stop_when=self._is_done if self.stops and name == "root" else None,
            confirm=approve if self.approves == "callback" and name == "root" else None,
            answer=answer if self.approves == "callback" and name == "root" else None,
            runtime=Runtime(workers=SimulatedWorkers(), now=now, grace=0.5),
        )

    def _is_done(self, transcript: Transcript) -> bool:
        return any(r.text == self.stops for message in transcript for r in message.tool_results)

    def _wrapped(self, tools: list[Any]) -> Any:
        if not self.wrapped:
            return tools
        here = [tool for tool in tools if not tool.is_elsewhere]
        return [*twice_around(twice_around(here)), *(tool for tool in tools if tool.is_elsewhere)]

    async def play(self, store: Journal, ledger: Ledger) -> Outcome[Any]:
        """Start it, or go on, and do all there is to do until it has ended."""
        root = self.build(store, ledger)
        deps = Outside(ledger, store)
        outcome = await root.run("go", run_id="r", deps=deps)
        for _ in range(10):
            if outcome.reason is not Reason.WAITING:
                break
            for pending in outcome.pending:
                await attend_to(root, pending, ledger)
            outcome = await root.resume("r", deps=deps)
        return outcome


async def attend_to(root: Remit[Any], pending: Pending, ledger: Ledger) -> None:
    """What people and other machines do about a pending; the latter know a call by its key."""
    match pending.kind:
        case "approval":
            await root.decide(approve=True, by="dana", id=pending.id)
        case "input":
            await root.supply(pending.id, await answer(pending), by="dana")
        case "result":
            assert pending.key is not None
            did = ledger.done(pending.key, f"done {pending.arguments}")
            await root.supply(pending.id, did, by="warehouse")


async def answer(pending: Pending) -> str:
    await asyncio.sleep(5)
    return f"the answer to {pending.summary}"


async def approve(pending: Pending) -> Decision:
    await asyncio.sleep(5)
    return Decision(approve=True, by="dana")


def call(tool: str, x: str, **more: str) -> Turn:
    return (tool, {"x": x, **more})


def helper(task: str) -> Turn:
    return ("helper", {"task": task})


SHAPES: dict[str, Shape] = {
    "parallel reads": Shape([[call("look", "a"), call("look", "b"), call("look", "c")], "done"]),
    "parallel effects": Shape(
        [[call("write", "a"), call("write", "b"), call("write", "c"), call("write", "b")], "done"]
    ),
    "serial by resource": Shape(
        [
            [
                call("change", "k", how="a"),
                call("peek", "k"),
                call("change", "k", how="b"),
                call("change", "m", how="c"),
            ],
            "done",
        ]
    ),
    "serial and undeclared": Shape([[call("store_it", "a"), call("store_it", "b")], "done"]),
    "confirm by callback": Shape(
        [[call("write", "a"), call("pay", "b"), call("look", "c")], [call("pay", "c")], "done"],
        approves="callback",
    ),
    "confirm by decision": Shape(
        [
            [call("write", "a"), call("pay", "b"), call("pay", "c"), call("look", "c")],
            [call("write", "b")],
            "done",
        ]
    ),
    "confirm with reconcile": Shape(
        [[call("write", "a"), call("pay", "b")], "done"], approves="callback", reconciles=True
    ),
    "confirm in the middle": Shape(
        [[call("change", "k", how="a"), call("charge", "k"), call("change", "k", how="b")], "done"],
        approves="callback",
    ),
    "eager reads": Shape(
        [["let me see", call("look", "a"), call("write", "b"), call("look", "c")], "done"]
    ),
    "retries": Shape([[call("shaky", "a"), call("shaky", "b")], "done"]),
    "computed": Shape([[call("stamp", "a"), call("stamp", "b")], [call("stamp", "a")], "done"]),
    "deterministic": Shape(
        [
            [call("double", "x"), call("double", "x"), call("write", "b")],
            [call("double", "x")],
            "ok",
        ]
    ),
    "doubt": Shape([[call("slow", "a"), call("write", "b")], [call("look", "a")], "done"]),
    "wrapped": Shape(
        [
            [call("look", "a"), call("write", "b"), call("pay", "c"), call("shaky", "a")],
            [call("write", "b"), helper("one")],
            "done",
        ],
        children=[[[call("write", "a"), call("pay", "b")], "child done"]],
        wrapped=True,
    ),
    "child": Shape(
        [[helper("one"), call("write", "a")], [helper("two")], "done"],
        children=[[[call("write", "a"), call("look", "b")], [call("write", "b")], "child done"]],
    ),
    "tree": Shape(
        [[helper("one"), helper("two")], "done"],
        children=[
            [[call("write", "a"), helper("three")], "middle done"],
            [[call("write", "c")], [call("look", "b")], "leaf done"],
        ],
    ),
    "tree of depth three": Shape(
        [[helper("one"), call("write", "b")], "done"],
        children=[
            [[call("write", "a"), helper("two")], "upper done"],
            [[helper("three"), call("look", "a")], "middle done"],
            [[call("write", "c"), call("store_it", "b")], [call("look", "b")], "leaf done"],
        ],
    ),
    "child that waits": Shape(
        [[call("write", "b"), helper("one")], "done"],
        children=[[[call("pay", "a")], "child done"]],
    ),
    "deep child that waits": Shape(
        [[helper("one")], "done"],
        children=[[[helper("two")], "middle"], [[call("pay", "a"), call("write", "b")], "leaf"]],
    ),
    "questions by supply": Shape(
        [
            [call("choose", "a"), call("fill", "b"), call("write", "c"), call("fill", "b")],
            [call("choose", "a")],
            "done",
        ]
    ),
    "questions by callback": Shape(
        [[call("choose", "a"), call("fill", "b"), call("fill", "c")], "done"],
        approves="callback",
    ),
    "question of an early read": Shape(
        [["let me see", call("choose", "b"), call("write", "a"), call("choose", "c")], "done"]
    ),
    "child that asks": Shape(
        [[call("write", "b"), helper("one")], "done"],
        children=[[[call("fill", "a"), call("write", "c")], "child done"]],
    ),
    "handed out": Shape(
        [
            [call("ship", "a"), call("ship", "b"), call("write", "c"), call("track", "a")],
            [call("ship", "a")],
            "done",
        ]
    ),
    "handed out after approval": Shape(
        [[call("gated_ship", "a"), call("gated_ship", "b"), call("look", "c")], "done"]
    ),
    "child that hands out": Shape(
        [[helper("one"), call("write", "a")], "done"],
        children=[[[call("ship", "a"), call("gated_ship", "b")], "child done"]],
    ),
    "stalling": Shape([*[[call("look", "b")]] * 6, "never"], ends=Reason.STALLED),
    "told at the third time": Shape([*[[call("write", "b")]] * 4, [call("look", "a")], "done"]),
    "hand-back": Shape(
        [[call("write", "a")], "closing words"],
        limits=Limits(steps=1, tokens=10_000_000, seconds=3_600),
        ends=Reason.STEP_BUDGET,
    ),
    "call budget": Shape(
        [[call("write", "a"), call("write", "b"), call("write", "c")], "closing words"],
        limits=Limits(steps=9, tokens=10_000_000, seconds=3_600, calls=2),
        ends=Reason.CALL_BUDGET,
    ),
    "model that fails": Shape([[call("write", "a")], [call("write", "b")], "done"], flaky=True),
    "ended by a call": Shape(
        [[call("write", "a"), call("finish", "b"), call("look", "c")], "never"]
    ),
    "ended by a call beside one that waits": Shape(
        [[call("finish", "a"), call("pay", "b"), call("finish", "c")], "never"]
    ),
    "ended by a rule": Shape(
        [[call("write", "a")], [call("look", "a"), call("pay", "b"), call("write", "c")], "never"],
        stops="saw a",
    ),
    "typed output": Shape(
        [[call("write", "a"), ("final_answer", {"value": 7}), call("look", "c")], "never"],
        output=int,
    ),
    "typed output at the third attempt": Shape(
        [
            [call("write", "a")],
            "seven",
            ("final_answer", {"value": "seven"}),
            [("final_answer", {"value": 7}), call("pay", "b"), call("write", "c")],
            "never",
        ],
        output=int,
    ),
    "typed output in vain": Shape(
        [[call("write", "a")], "seven", ("final_answer", {}), "seven", "never"],
        output=int,
        ends=Reason.INVALID_OUTPUT,
    ),
    "cut and empty replies": Shape(
        [
            Step([call("write", "a")], stop_reason=remit.StopReason.LENGTH, usage=Usage(100)),
            Step("", usage=Usage(100)),
            Step("", usage=Usage(100)),
            [call("write", "a")],
            "done",
        ]
    ),
    "mixed": Shape(
        [
            [
                call("look", "a"),
                call("write", "a"),
                call("pay", "b"),
                helper("one"),
                ("look", '{"y": 1}'),
                ("nothing", {}),
                call("change", "k", how="a"),
                call("change", "k", how="b"),
                call("shaky", "a"),
                call("double", "x"),
            ],
            [call("write", "a"), call("pay", "c")],
            "done",
        ],
        approves="callback",
        children=[[[call("write", "c")], "child done"]],
    ),
}


async def state_of(store: Journal, run_id: str) -> RunState:
    rows = await store.read(run_id)
    return RunState(run_id, [decode_row(row.kind, row.body) for row in rows])


@dataclass
class World:
    """What is there at the end, as far as it is comparable."""

    outcome: Outcome[Any]
    store: Journal
    ledger: Ledger
    runs: tuple[str, ...]
    states: dict[str, RunState] = field(default_factory=dict[str, RunState])

    async def read(self) -> World:
        for run_id in self.runs:
            self.states[run_id] = await state_of(self.store, run_id)
        return self

    @property
    def results(self) -> dict[str, list[ToolResult]]:
        """The results of each run, keys included."""
        return {
            run_id: [r for message in state.transcript for r in message.tool_results]
            for run_id, state in self.states.items()
        }


def without_crash(shape: Shape, latency: float = 0.0) -> World:
    store = CrashStore(latency=latency)

    async def main() -> World:
        outcome = await shape.play(store, store.ledger)
        return await World(outcome, store.inner, store.ledger, store.opened).read()

    return run_virtual(main())


def resumed(shape: Shape, point: CrashPoint) -> World:
    """Go on over what the crash left, in a fresh remit."""
    again = CrashStore(inner=point.store, ledger=point.ledger)

    async def main() -> World:
        outcome = await shape.play(again, point.ledger)
        runs = tuple(dict.fromkeys((*point.runs, *again.opened)))
        return await World(outcome, point.store, point.ledger, runs).read()

    return run_virtual(main())


@dataclass
class Before:
    """What the journal said at the crash, by key."""

    settled: set[str] = field(default_factory=set[str])
    started: set[str] = field(default_factory=set[str])
    """Started and not settled: in doubt."""
    calls: Counter[str] = field(default_factory=Counter[str])
    """How often the ledger was called under each key."""
    effects: set[str] = field(default_factory=set[str])
    """What had taken effect."""

    @classmethod
    def read(cls, point: CrashPoint) -> Before:
        async def main() -> Before:
            before = cls(calls=Counter(point.ledger.calls), effects=set(point.ledger.effects))
            for run_id in point.runs:
                state = await state_of(point.store, run_id)
                for each in state.calls:
                    if each.key is not None and each.settled:
                        before.settled.add(each.key)
                    elif each.key is not None and each.started is not None:
                        before.started.add(each.key)
                results = (r for message in state.transcript for r in message.tool_results)
                before.settled.update(r.key for r in results if r.key is not None)
            return before

        return run_virtual(main())


def is_payment(key: str) -> bool:
    return ":pay:" in key or ":charge:" in key


def judge(shape: Shape, reference: World, point: CrashPoint, before: Before, world: World) -> None:
    """Hold what became of a run that was gone on with against the run without a crash.

    `before` and `point.ledger` tell what there was at the crash; the ledger is the same as that of `world`.
    """
    where = f"{point.index}: {point.what}"
    lost = {
        key
        for key in before.started
        if is_payment(key) and not (shape.reconciles and key in before.effects)
    }

    # Effects: the same, under the same keys; nothing that was finished is done again.
    expected = {key for key in reference.ledger.effects if key not in lost - before.effects}
    assert set(world.ledger.effects) == expected, where
    for key, times in Counter(world.ledger.calls).items():
        if key in before.settled:
            assert times == before.calls[key], (where, key)
        if is_payment(key):
            assert times == 1, (where, key)

    handed = run_virtual(handed_out(world))
    assert handed == run_virtual(handed_out(reference)), where

    # The run: the same words, keys and statuses; only a lost payment has another result.
    assert world.outcome.reason is shape.ends, where
    assert world.outcome.output == reference.outcome.output or (lost and shape.output is None)
    assert set(world.states) == set(reference.states), where
    for run_id, expected_results in reference.results.items():
        found = world.results[run_id]
        assert [r.key for r in found] == [r.key for r in expected_results], where
        for one, other in zip(found, expected_results, strict=True):
            if one.key in lost:
                assert one.status is Status.UNKNOWN, where
                assert "Outcome unknown" in one.text, where
            elif one.key is not None and ":helper:" in one.key and lost:
                pass  # a child's own words follow from what it was told
            else:
                assert one == other, where
    if not lost:
        assert list(world.outcome.transcript) == list(reference.outcome.transcript), where

    # The account: the rows of the whole tree, each once.
    assert_spend_is_the_sum_of_the_rows(world, where)
    assert world.outcome.steps == reference.outcome.steps, where
    if not shape.flaky and not any(
        map(is_payment, before.started)
    ):  # one that is not entered again is not counted
        assert untimed(world.outcome) == untimed(reference.outcome), where
    state, expected_state = world.states["r"], reference.states["r"]
    assert state.told == expected_state.told, where
    assert state.stall.repetitions == expected_state.stall.repetitions, where
    assert state.text == expected_state.text, where
    assert EARLY == [], where


async def handed_out(world: World) -> Counter[tuple[str, str]]:
    """How often each call was given to whoever executes it elsewhere, by run and tool use."""
    found: Counter[tuple[str, str]] = Counter()
    for run_id in world.runs:
        for stored in await world.store.read(run_id):
            row = decode_row(stored.kind, stored.body)
            if isinstance(row, HandedOut):
                found[run_id, row.tool_use_id] += 1
    return found


def untimed(outcome: Outcome[Any]) -> dict[str, Any]:
    spend = outcome.spend.to_json()
    for part in ("own", "tree"):
        del spend[part]["seconds"]
    return spend


def assert_spend_is_the_sum_of_the_rows(world: World, where: str) -> None:
    """What the root says its tree spent, against every row of every run."""

    async def main() -> tuple[int, int, int]:
        tokens = steps = calls = 0
        for run_id in world.runs:
            begun: set[str] = set()
            counted: set[str] = set()
            for stored in await world.store.read(run_id):
                row = decode_row(stored.kind, stored.body)
                if isinstance(row, Started):
                    begun.add(row.tool_use_id)
                elif isinstance(row, Activated):  # what was begun before the crash is one call each
                    calls += len(begun - counted)
                    counted |= begun
                if isinstance(row, Settled):
                    begun.discard(row.tool_use_id)
                elif isinstance(row, Awaits | Questioned):
                    counted.add(row.tool_use_id)
                if isinstance(row, Replied):
                    tokens += row.usage.total
                    steps += 1 if row.message is not None and not row.closing else 0
                elif isinstance(row, Charged):
                    tokens, calls = tokens + row.usage.total, calls + row.calls
                elif (
                    isinstance(row, Settled | Awaits | Questioned | HandedOut)
                    and row.spent is not None
                ):
                    tokens, calls = tokens + row.spent.tokens, calls + row.spent.calls
        return tokens, steps, calls

    tree = world.outcome.spend.tree
    assert (tree.tokens, tree.steps, tree.calls) == run_virtual(main()), where
