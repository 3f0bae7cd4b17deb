"""The simulation: one seed, one run of remit with everything that can go wrong in it, and what must hold.

`simulate(seed)` draws a `Scenario` (a `FaultPlan` of `remit.testing`, and around it limits, a policy, a guard,
people who decide, a child, a crash), plays it on a virtual event loop and checks the invariants below
against three things that do not know each other: what the bodies and the model noticed (`World`), the raw
rows of the journal, and the outcome. It returns how often what occurred; a broken invariant is a
`Violation` that names its seed.

    python tests/simulation.py SEED      replay one seed, and show what happened
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal

import msgspec

from remit import (
    Allow,
    Amount,
    Call,
    ConfigurationError,
    Confirm,
    Decision,
    DecisionError,
    JournalError,
    Limits,
    Live,
    MemoryStore,
    Message,
    Outcome,
    Pending,
    PolicyRequest,
    Reason,
    Refuse,
    Remit,
    Runtime,
    Settings,
    Text,
    Tool,
    ToolResult,
    ToolUse,
    Transcript,
    Veto,
    tool,
)
from remit.artifacts import Artifact
from remit.dispatch.person import pending_of
from remit.late import STILL_RUNNING
from remit.messages import Reply, Usage
from remit.models.base import Chunk, ModelProfile, ModelRequest
from remit.report import read_state, stored_outcome
from remit.store.base import Control, Lease, NewProposal, NewRow, RunStatus
from remit.supervise import ABANDONED
from remit.testing import (
    ScriptedModel,
    SimulatedWorkers,
    VirtualLoop,
    prefix_of,
    validate_request,
)
from remit.testing.faults import (
    LAST,
    FaultPlan,
    ModelFault,
    PlannedCall,
    PlannedTurn,
    ToolFault,
    Unprintable,
    script,
    spoil,
    suffer,
)

__all__ = ["Scenario", "Violation", "simulate"]

GRACE = 0.5
EDITED = 10_000
"""Added to the item of a call whose arguments a person edited."""
CHILD_ITEMS = 1_000
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
SAMPLE_HISTORY = 4
"""Of so many schedules one is continued with its transcript as history."""

Seen = Counter[tuple[str, str]]


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, seed: int, what: str) -> None:
        super().__init__(
            f"seed {seed}: {what}\n"
            f"  replay: REMIT_SEED={seed} python -m pytest tests/test_simulation.py -k replay\n"
            f"  look:   python tests/simulation.py {seed}"
        )
        self.seed = seed
        self.what = what


# --- the surroundings ----------------------------------------------------------------------------


@dataclass(slots=True)
class Entry:
    """A body that was entered."""

    key: str
    tool: str
    item: int
    run_id: str
    at: float
    order: int
    life: int
    """Which process of the story it was."""
    activation: int


class World:
    """What the bodies, the model and the people notice. It knows nothing of remit's records."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.items = {**scenario.plan.calls, **scenario.child.calls}
        self.entries: list[Entry] = []
        self.approvals: Counter[tuple[str, int]] = Counter()
        self.executed: Counter[str] = Counter()
        """What was executed elsewhere, by key: whoever does so knows a call by it."""
        self.entered: Counter[tuple[str, int]] = Counter()
        self.violations: list[str] = []
        self.seen: Seen = Counter()
        self.reported: list[Usage] = []
        self.order = 0
        self.life = 0
        self.activation = 0
        self.dead = False
        self.stop: tuple[str, int, float] | None = None
        """Kind, order and instant of a stop that counts now."""
        self.asking = 0
        self.streaming: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        self.vetoes = 0
        self.looks = 0
        self.child: Remit[World]

    # Time and order

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def calendar(self) -> datetime:
        task = asyncio.current_task()
        if task is not None and task.get_name().startswith(("remit ", "early ", "Task-")):
            self.looks += 1  # what goes wrong in the loop is not the caller's fault
        if self.looks == self.scenario.breaks_at:
            self.looks += 1
            raise RuntimeError("the calendar is torn")
        return self.today

    @property
    def today(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now)

    def tick(self) -> int:
        self.order += 1
        return self.order

    def violate(self, what: str) -> None:
        self.violations.append(what)

    @property
    def phase(self) -> str:
        """Where the run stands, as far as one can see from here."""
        if self.asking:
            return "approval"
        if self.inside:
            name = next(iter(+self.inside), None)
            if name is not None:
                return EFFECTS[name] if name != "delegate" else "child"
        if +self.streaming:
            return "model"
        return "between"

    def stopped(self, kind: str) -> None:
        self.seen["stop in phase", f"{kind} in {self.phase}"] += 1
        self.stop = (kind, self.tick(), self.now)

    def _starts(self, what: str, *, root: bool) -> None:
        """Something begins: after a stop nothing may."""
        if self.stop is None:
            return
        kind, order, instant = self.stop
        # These reach the run a few turns of the event loop later, though in the same instant.
        same_instant = self.now == instant and (kind in ("outside", "by id") or not root)
        if not same_instant:
            self.violate(f"K1: {what} began at {self.now} after {kind} at {instant} ({order})")

    # Bodies

    def enter(self, name: str, item: int, call: Call[World]) -> PlannedCall:
        root = "/" not in call.run_id
        if name not in BLOCKING:  # those begin when their worker does, and tell of it at their end
            self._starts(f"the body of {name} {item}", root=root)
        self.entries.append(
            Entry(
                call.key, name, item, call.run_id, self.now, self.tick(), self.life,
                self.activation,
            )
        )  # fmt: skip
        self.entered[name, item] += 1
        self._check_entry(name, item)
        planned = self.items[item % EDITED]
        where = "child" if not root else "early" if self.streaming["root"] else "turn"
        where = f"{where}, resumed" if self.activation and where == "turn" else where
        self.seen["fault in phase", f"{planned.fault.value} in {where}"] += 1
        self.seen["tool fault", planned.fault.value] += 1
        self.seen["effect", EFFECTS[name]] += 1
        return planned

    def _check_entry(self, name: str, item: int) -> None:
        verdict = self._verdict(item) if self.scenario.policy else Allow()
        if isinstance(verdict, Refuse):
            self.violate(f"C8: {name} {item} ran, which the policy refuses")
        if isinstance(verdict, Confirm) and not self.approvals[name, item]:
            self.violate(f"C8: {name} {item} ran without the approval that the policy wants")
        if EFFECTS[name] == "confirm" and self.entered[name, item] > self.approvals[name, item]:
            self.violate(
                f"E1: {name} {item} was entered {self.entered[name, item]} times on "
                f"{self.approvals[name, item]} approvals"
            )

    def _check_handed_out(self, name: str, item: int) -> None:
        verdict = self._verdict(item) if self.scenario.policy else Allow()
        if isinstance(verdict, Refuse):
            self.violate(f"C8: {name} {item} was handed out, which the policy refuses")
        if isinstance(verdict, Confirm) and not self.approvals[name, item]:
            self.violate(f"C8: {name} {item} was handed out without the approval")

    async def body(self, name: str, item: int, call: Call[World]) -> object:
        if self.dead:
            raise asyncio.CancelledError
        planned = self.enter(name, item, call)
        self.inside[name] += 1
        try:
            value = await suffer(planned)
        except asyncio.CancelledError:
            if planned.fault is not ToolFault.CANCELS_ITSELF:
                cause = "time" if self.stop is None else self.stop[0]
                self.seen["cut in phase", f"{cause} in {EFFECTS[name]}"] += 1
            raise
        finally:
            self.inside[name] -= 1
        return value if isinstance(value, Unprintable) else self._said(name, item)

    def _said(self, name: str, item: int) -> str:
        """Now and then more than a model is shown, or than is rendered on the event loop."""
        chars = {3: 9_000, 11: 70_000}.get(item % 16, 0)
        return f"{name} {item}{self.scenario.verbiage}".ljust(chars, ".")

    def blocking_body(self, name: str, item: int, call: Call[World]) -> object:
        if self.dead:
            raise asyncio.CancelledError
        value = spoil(self.enter(name, item, call))
        return value if isinstance(value, Unprintable) else self._said(name, item)

    async def asking_body(self, name: str, item: int, call: Call[World]) -> object:
        """Does its work, and asks once or twice before it is done."""
        value = await self.body(name, item, call)
        for n in range(1 + item % 2):
            question = f"{name} {item} {n}?"
            got = call.ask(str, question)
            if got != _answer_to(question):
                self.violate(f"E6: {question} was answered {got!r}")
        return value

    # Who is asked

    def _verdict(self, item: int) -> Allow | Refuse | Confirm:
        match item % EDITED % 6:
            case 0:
                return Refuse("not this one")
            case 1:
                return Confirm("look first")
            case _:
                return Allow()

    def policy(self, request: PolicyRequest) -> Allow | Refuse | Confirm:
        verdict = self._verdict(request.arguments["item"])
        if isinstance(verdict, Refuse) and request.arguments["item"] % 12 == 0:
            raise RuntimeError("the policy does not know")
        return verdict

    async def guard(self, _: Transcript) -> Veto | None:
        self.vetoes += 1
        number = self.vetoes
        await asyncio.sleep(self.scenario.guard_seconds)
        return Veto("not like this") if number == self.scenario.guard else None

    async def enough(self, transcript: Transcript) -> bool:
        """The rule that ends a run; it does not know what to make of three results."""
        if transcript.owed:
            self.violate("O3: the rule was asked while results are owed")
        await asyncio.sleep(self.scenario.guard_seconds)
        if _results(transcript) == ENOUGH - 1:
            raise RuntimeError("three?")
        return _results(transcript) >= ENOUGH

    def answer(self, pending: Pending, *, last: bool = False) -> Decision | None:
        """What a person does about a proposal; None is nothing."""
        item: int = json.loads(pending.arguments)["item"]
        planned = self.items[item % EDITED].answer
        planned = "reject" if last and planned == "leave" else planned
        self.seen["answer", planned] += 1
        match planned:
            case "approve":
                self.approvals[pending.tool, item] += 1
                return Decision(True, "dana")
            case "edit" if item < EDITED:
                self.approvals[pending.tool, item + EDITED] += 1
                return Decision(True, "dana", edit={"item": item + EDITED})
            case "leave":
                return None
            case _:
                return Decision(False, "dana", "not now")

    def planned_answer(self, pending: Pending, *, last: bool) -> str:
        """What a person does about a question, or another machine about a call that it was handed."""
        item: int = json.loads(pending.arguments)["item"]
        planned = self.items[item % EDITED].answer
        planned = "reject" if last and planned == "leave" else planned
        self.seen[pending.kind, planned] += 1
        return planned

    async def answer_in_process(self, pending: Pending) -> object:
        self.asking += 1
        try:
            await asyncio.sleep(self.scenario.asks_seconds)
            match self.planned_answer(pending, last=False):
                case "approve":
                    return _answer_to(pending.summary)
                case "reject":
                    raise OSError("nobody is there")
                case "edit":
                    return 7
                case _:
                    await asyncio.get_running_loop().create_future()
                    raise AssertionError("nobody answers")
        finally:
            self.asking -= 1

    async def confirm(self, pending: Pending) -> Decision:
        self.asking += 1
        try:
            await asyncio.sleep(self.scenario.asks_seconds)
            decision = self.answer(pending)
            if decision is None:
                await asyncio.get_running_loop().create_future()
                raise AssertionError("nobody answers")
            return decision
        finally:
            self.asking -= 1


def _results(transcript: Transcript) -> int:
    return sum(len(message.tool_results) for message in transcript)


class Watched:
    """A scripted model that tells the world when it is asked, and what it reported."""

    def __init__(
        self, world: World, plan: FaultPlan, *, root: bool, last: PlannedTurn = LAST
    ) -> None:
        self._world = world
        self._who = "root" if root else "child"
        self.inner = ScriptedModel(
            script(plan.turns, heard=self._hear, last=last), name=self._who, record=True,
            profile=ModelProfile(
                price=_PRICE, max_output=256, context_window=world.scenario.window if root else 200_000,
            ),
        )  # fmt: skip

    def _hear(self, turn: PlannedTurn) -> None:
        self._world.seen["model fault", turn.fault.value] += 1
        if self._who == "root":
            self._world.seen["batch", _shape(turn.calls)] += 1

    @property
    def name(self) -> str:
        return self._who

    @property
    def profile(self) -> ModelProfile:
        return self.inner.profile

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        world = self._world
        if world.dead:
            raise asyncio.CancelledError
        world.tick()
        world._starts(f"a request to the {self._who}'s model", root=self._who == "root")
        world.streaming[self._who] += 1
        inner = self.inner.stream(request)
        try:
            async for chunk in inner:
                if isinstance(chunk, Reply) and chunk.usage is not None:
                    world.reported.append(chunk.usage)
                    if chunk.usage.prompt + request.max_output > self.profile.context_window:
                        world.violate(f"X5: {chunk.usage.prompt} and {request.max_output} tokens")
                yield chunk
        except asyncio.CancelledError:
            cause = "time" if world.stop is None else world.stop[0]
            world.seen["cut in phase", f"{cause} in model"] += 1
            raise
        finally:
            world.streaming[self._who] -= 1
            await inner.aclose()


def _answer_to(question: str) -> str:
    return f"re {question}"


_PRICE = ScriptedModel([]).profile.price


def _shape(calls: Sequence[PlannedCall]) -> str:
    if not calls:
        return "no call"
    effects = {EFFECTS[call.tool] for call in calls}
    if len({call.item for call in calls}) < len(calls):
        return "equal calls"
    if any(call.tool == "delegate" for call in calls):
        return "with a child"
    kind = "mixed" if len(effects) > 1 else effects.pop()
    return f"one {kind}" if len(calls) == 1 else f"many {kind}"


class Disk(MemoryStore):
    """A store that can fail, and that outlives its process."""

    def __init__(self, scenario: Scenario, elisions: Counter[str]) -> None:
        super().__init__()
        self._elisions = elisions
        self._appends = 0
        self._crash_at = scenario.crash_at
        self._fails_at = scenario.fails_at
        self._commits_first = bool(scenario.seed % 2)
        self.crashed = asyncio.Event()
        self.failed = False
        self._estate = self._runs, self._proposals, self._by_token, self._sessions

    async def append(
        self,
        lease: Lease,
        rows: Sequence[NewRow],
        *,
        status: RunStatus = "running",
        reason: str | None = None,
        proposals: Sequence[NewProposal] = (),
        taken: int = 0,
        artifacts: Sequence[Artifact] = (),
    ) -> Control:
        self._appends += 1
        elides = any(row.kind == "elided" for row in rows)
        if self._appends == self._fails_at:
            self.failed = True
            self._elisions["the journal failed"] += elides
            raise JournalError("the disk is full")
        if self._appends == self._crash_at and not self._commits_first:
            self._elisions["lost in a crash"] += elides
            await self._die()
        control = await super().append(
            lease,
            rows,
            status=status,
            reason=reason,
            proposals=proposals,
            taken=taken,
            artifacts=artifacts,
        )
        self._elisions["made"] += elides
        if self._appends == self._crash_at:
            self._elisions["the last thing before a crash"] += elides
            await self._die()
        return control

    async def _die(self) -> None:
        """The process is gone: of what it does from here on nothing is written."""
        self._estate = self._runs, self._proposals, self._by_token, self._sessions
        self._runs, self._proposals, self._by_token, self._sessions = {}, {}, {}, {}
        self.crashed.set()
        await asyncio.get_running_loop().create_future()

    def inherit(self, dead: Disk) -> None:
        """Take over what was committed."""
        self._crash_at = self._fails_at = None
        self._runs, self._proposals, self._by_token, self._sessions = dead._estate
        self._shelf = dead._shelf
        for record in self._runs.values():
            record.owner = None


# --- the tools -----------------------------------------------------------------------------------


@tool(effect="read", timeout=2)
async def look(item: int, call: Call[World]) -> Any:
    """Begins while the reply is still written."""
    return await call.deps.body("look", item, call)


@tool(effect="read", timeout=2, eager=False, resource="shelf:{item}")
async def peek(item: int, call: Call[World]) -> Any:
    """Waits for the whole reply."""
    return await call.deps.body("peek", item, call)


@tool(effect="read", timeout=2)
def scan(item: int, call: Call[World]) -> Any:
    """Blocks."""
    return call.deps.blocking_body("scan", item, call)


@tool(effect="read", timeout=2, deterministic=True)
async def count(item: int, call: Call[World]) -> Any:
    """Shares its execution with equal calls."""
    return await call.deps.body("count", item, call)


@tool(effect="idempotent", timeout=2)
async def put(item: int, call: Call[World]) -> Any:
    """Undeclared writes keep their order."""
    return await call.deps.body("put", item, call)


@tool(effect="idempotent", timeout=2, resource=(), retries=1)
async def send(item: int, call: Call[World]) -> Any:
    """Runs beside everything, and once more if it raised."""
    return await call.deps.body("send", item, call)


@tool(effect="idempotent", timeout=2, resource="file")
def write(item: int, call: Call[World]) -> Any:
    """Blocks, and shares one resource with all its like."""
    return call.deps.blocking_body("write", item, call)


@tool(effect="confirm", timeout=2, resource=(), expires=50)
async def pay(item: int, call: Call[World]) -> Any:
    """Runs once for an approval."""
    return await call.deps.body("pay", item, call)


@tool(effect="confirm", timeout=2, resource="till", expires=50)
async def refund(item: int, call: Call[World]) -> Any:
    """The same, behind what waits for the till."""
    return await call.deps.body("refund", item, call)


@tool(effect="read", timeout=2)
async def form(item: int, call: Call[World]) -> Any:
    """Asks, early too."""
    return await call.deps.asking_body("form", item, call)


@tool(effect="idempotent", timeout=2, resource="till")
async def survey(item: int, call: Call[World]) -> Any:
    """Takes effect and asks, and holds up what is behind it at the till."""
    return await call.deps.asking_body("survey", item, call)


_ITEM = {"type": "object", "properties": {"item": {"type": "integer"}}, "required": ["item"]}
errand = Tool.elsewhere(
    name="errand", description="Done by others.", parameters=_ITEM, effect="idempotent",
    expires=50, resource="shelf:{item}",
)  # fmt: skip
courier = Tool.elsewhere(
    name="courier", description="Done by others, once approved.", parameters=_ITEM,
    effect="confirm", expires=50, resource=(),
)  # fmt: skip
inquiry = Tool.elsewhere(
    name="inquiry", description="Looked up by others.", parameters=_ITEM, effect="read", expires=50
)


@tool(effect="idempotent", timeout=6, resource=())
async def delegate(item: int, call: Call[World]) -> Any:
    """A run inside."""
    await call.deps.body("delegate", item, call)
    return await call.deps.child.run(f"task {item}", deps=call.deps)


@tool(effect="idempotent", timeout=2, resource=(), ends_run=True)
async def finish(item: int, call: Call[World]) -> Any:
    """Ends the run."""
    return await call.deps.body("finish", item, call)


ALL_BUT_FINISH = (
    *(look, peek, scan, count, put, send, write, pay, refund, delegate),
    *(form, survey, errand, courier, inquiry),
)
TOOLS = (*ALL_BUT_FINISH, finish)
CHILD_TOOLS = tuple(each for each in ALL_BUT_FINISH if each is not delegate)
EFFECTS = {each.name: each.effect.value for each in TOOLS} | {"final_answer": "read"}
BLOCKING = frozenset({"scan", "write"})


# --- the scenario --------------------------------------------------------------------------------

Mood = Literal[
    "plain", "troubled", "slow", "stall", "people", "outsiders", "family", "crash", "journal", "bug"
]
MOODS: tuple[Mood, ...] = (
    "plain", "troubled", "troubled", "slow", "slow", "stall",
    "people", "people", "people", "people", "outsiders", "outsiders",
    "family", "family", "family", "crash", "crash", "crash", "crash", "journal", "bug",
)  # fmt: skip
_NAMES: dict[Mood, tuple[str, ...]] = {
    "people": ("pay", "refund", "pay", "pay", "refund", "look", "put", "write"),
    "outsiders": ("form", "survey", "errand", "courier", "inquiry", "refund", "put"),
    "family": ("delegate", "delegate", "look", "put", "pay"),
}
_ALL_NAMES = (*(each.name for each in ALL_BUT_FINISH), "pay", "refund")

Ending = Literal["text", "output", "call", "rule"]
ENDINGS: tuple[Ending, ...] = ("text", "output", "call", "rule")
"""What the root is to end with: an answer, a typed output, a call of `finish`, or a rule about its transcript."""
ENOUGH = 4
"""Results that are enough for the rule."""
_OUTPUTS: tuple[Mapping[str, Any], ...] = ({"value": 7}, {"value": 8}, {"value": "seven"}, {})
_FINISHING_ITEMS = 500


def _with_ending(seed: int, plan: FaultPlan, ending: Ending) -> tuple[FaultPlan, PlannedTurn]:
    """The plan with turns that end the run, rightly or wrongly, and what is said behind it."""
    rng = random.Random(f"ending {seed}")
    turns: list[PlannedTurn] = []
    for item, turn in enumerate(plan.turns, _FINISHING_ITEMS):
        if ending == "output" and rng.random() < 0.4:
            turns.append(replace(turn, output=rng.choice(_OUTPUTS)))
        elif ending == "call" and rng.random() < 0.4:
            fault = rng.choice((ToolFault.NONE, ToolFault.NONE, ToolFault.RAISES, ToolFault.SLOW))
            call = PlannedCall("finish", item, rng.choice((0.0, 0.1, 0.4)), fault)
            calls = list(turn.calls)
            calls.insert(rng.randint(0, len(calls)), call)
            turns.append(replace(turn, calls=tuple(calls)))
        else:
            turns.append(turn)
    handed_in = ending == "output" and rng.random() < 0.7
    last = PlannedTurn(output={"value": 9}) if handed_in else LAST
    return replace(plan, turns=tuple(turns)), last


@dataclass(frozen=True)
class Scenario:
    """Everything about one schedule. Drawn from its seed alone."""

    seed: int
    mood: Mood
    ending: Ending
    last: PlannedTurn
    """What the root's model says when its plan is carried out."""
    plan: FaultPlan
    child: FaultPlan
    limits: Limits
    child_limits: Limits
    in_process: bool
    """Callbacks decide and answer; else the run waits and is resumed."""
    attends_after: float | None
    """Seconds in which outsiders who watch answer what is asked while the run works; None: nobody watches."""
    asks_seconds: float
    policy: bool
    guard: int | None
    """Which of its calls the guard vetoes, 0 for none; None: there is no guard."""
    guard_seconds: float
    hand_back: bool
    show_budget: bool
    says_at: float | None
    crash_at: int | None
    """The append that the process does not survive."""
    fails_at: int | None
    """The append that fails."""
    breaks_at: int | None
    """The look at the calendar that raises: a fault inside the loop."""
    cancels_at: float | None
    """Seconds after each resume at which somebody cancels the run by its id."""
    goes_on: bool
    """A limit is raised, a cancelled run reopened."""
    latencies: tuple[float, ...]
    """Of blocking bodies."""
    window: int
    """Of the root's model, in tokens."""
    verbosity: int
    """How long results are, in words that say nothing."""
    past: int
    """Turns of the conversation that the run goes on from."""

    @property
    def verbiage(self) -> str:
        return " and so on" * self.verbosity

    @property
    def history(self) -> Transcript | None:
        """What was said and done before."""
        if not self.past:
            return None
        transcript = Transcript()
        transcript.say(Text("and before that"))
        for turn in range(self.past):
            use = ToolUse(f"past{turn}", "look", "{}")
            transcript.add_reply(Message("assistant", (use,)))
            transcript.answering().slots[0].settle((Text(f"then{self.verbiage}"),))
            transcript.answering().close()
        transcript.add_reply(Message("assistant", (Text("that was all"),)))
        return transcript

    @classmethod
    def draw(cls, seed: int) -> Scenario:
        rng = random.Random(seed * 2 + 1)
        mood = rng.choice(MOODS)
        trouble = {"troubled": 0.6, "plain": 0.05}.get(mood, 0.2)
        names = _NAMES.get(mood, _ALL_NAMES)
        if mood == "crash":
            names = rng.choice((_ALL_NAMES, _NAMES["family"], *_NAMES.values()))
        stops = 0.7 if mood in _NAMES else 0.35
        plan = FaultPlan.draw(seed, names, trouble=trouble, turns=5, width=5, stops=stops)
        child = FaultPlan.draw(
            seed + 1, tuple(each.name for each in CHILD_TOOLS), trouble=0.4, turns=2,
            width=3, stops=0, first_item=CHILD_ITEMS,
        )  # fmt: skip
        if mood == "stall":
            call = PlannedCall(rng.choice(("look", "count", "put")), 1, 0.1)
            other = replace(call, item=2)
            cycle = [PlannedTurn((call,)), PlannedTurn((other,))][: rng.choice((1, 2))]
            plan = replace(plan, turns=tuple(cycle * 7), stop=None)
        if mood == "bug":
            plan = replace(plan, stop=None)  # one thing at a time: it has to be told what it is
        limits = _limits(rng, mood)
        (ending,) = random.Random(f"ends {seed}").choices(ENDINGS, (8, 1, 1, 1))
        if mood in ("stall", "bug"):
            ending = "text"
        plan, last = _with_ending(seed, plan, ending)
        window, verbosity, past = _window(random.Random(seed * 2 + 7_000_001), mood)
        at_once = past and seed % 3  # the first transaction is then that of an elision
        return cls(
            seed=seed,
            mood=mood,
            ending=ending,
            last=last,
            plan=plan,
            child=child,
            limits=limits,
            child_limits=Limits(
                steps=rng.choice((1, 3)), tokens=rng.choice((2_500, 100_000)), seconds=4,
                calls=rng.choice((None, 1)),
            ),
            in_process=rng.random() < (0.8 if mood == "people" else 0.5),
            attends_after=rng.choice((None, 0.0, 0.05, 0.2, 1.0)),
            asks_seconds=rng.choice((0.0, 0.0, 0.1, 0.1, 0.5, 3.0)),
            policy=mood != "stall" and rng.random() < 0.25,
            guard=rng.choice((0, 0, 1, 2, 3)) if rng.random() < 0.15 else None,
            guard_seconds=rng.choice((0.0, 0.1, 0.3, 0.9)),
            hand_back=rng.random() < 0.7,
            show_budget=rng.random() < 0.3,
            says_at=rng.choice((0.0, 0.1, 0.3, 0.7)) if rng.random() < 0.15 else None,
            crash_at=rng.randint(1, 1 if at_once else 12) if mood == "crash" else None,
            fails_at=rng.randint(1, 1 if at_once else 8) if mood == "journal" else None,
            breaks_at=rng.randint(3, 9) if mood == "bug" else None,
            cancels_at=rng.choice((0.0, 0.1, 0.2, 0.3, 0.4)) if rng.random() < 0.25 else None,
            goes_on=rng.random() < 0.5,
            latencies=tuple(rng.choice((0.0, 0.1, 0.3, 1.0, 4.0, float("inf"))) for _ in range(7)),
            window=window,
            verbosity=verbosity,
            past=past,
        )  # fmt: skip


def _window(rng: random.Random, mood: Mood) -> tuple[int, int, int]:
    """A model's window, the verbosity of tools and the turns gone before; mostly there is room for everything."""
    if rng.random() < (0.3 if mood == "crash" else 0.2):
        return (
            rng.choice((2_500, 3_500, 5_000)),
            rng.choice((100, 150, 250)),
            rng.choice((0, 3, 5, 5)),
        )
    return 200_000, 0, 0


def _limits(rng: random.Random, mood: Mood) -> Limits:
    if mood == "stall":
        return Limits(steps=20, tokens=1_000_000, seconds=100)
    return Limits(
        steps=rng.choice((1, 2, 3, 8, 12, 12)),
        tokens=rng.choice((1_000_000, 1_000_000, 1_000_000, 2_500, 6_000)),
        seconds=rng.choice((0.7, 1.5, 3)) if mood == "slow" else rng.choice((60, 60, 60, 2)),
        usd=rng.choice((None, None, None, Decimal("0.01"), Decimal("0.02"))),
        calls=rng.choice((None, None, None, 2, 5)),
    )


# --- the story -----------------------------------------------------------------------------------


@dataclass
class Story:
    """One scenario as it is played."""

    scenario: Scenario
    world: World = field(init=False)
    store: Disk = field(init=False)
    support: Remit[World, Any] = field(init=False)
    model: Watched = field(init=False)
    live: Live[str] | None = None
    outcome: Outcome[str] | None = None
    lossless: bool = True
    """Nothing that was noted got lost on its way to the journal."""
    said: bool = False
    survived: bool = False
    elisions: Counter[str] = field(default_factory=Counter[str])
    """What became of the transactions that held an elision."""
    attended: set[str] = field(default_factory=set[str])
    """The pendings that somebody has supplied."""

    def __post_init__(self) -> None:
        self.world = World(self.scenario)
        s = self.scenario
        self.model = Watched(self.world, s.plan, root=True, last=s.last)
        self._child_model = Watched(self.world, self.scenario.child, root=False)

    @property
    def run_id(self) -> str:
        return f"r{self.scenario.seed}"

    def build(self, store: Disk) -> None:
        """Make the remits of one process."""
        s, world = self.scenario, self.world
        self.store = store
        runtime = Runtime(
            workers=SimulatedWorkers(lambda n: s.latencies[n % len(s.latencies)], threads=2),
            now=world.calendar,
            grace=GRACE,
        )
        child: Remit[World] = Remit(
            name="child", model=self._child_model, limits=s.child_limits, tools=CHILD_TOOLS,
            settings=_SETTINGS, hand_back=s.hand_back, runtime=runtime,
            policy=world.policy if s.policy else None,
        )  # fmt: skip
        world.child = child
        self.support = Remit(
            name="support", model=self.model, limits=s.limits, tools=TOOLS, settings=_SETTINGS,
            policy=world.policy if s.policy else None,
            guards=() if s.guard is None else (world.guard,),
            confirm=world.confirm if s.in_process else None,
            answer=world.answer_in_process if s.in_process else None,
            hand_back=s.hand_back, show_budget=s.show_budget, store=store, runtime=runtime,
            output=int if s.ending == "output" else str,
            stop_when=world.enough if s.ending == "rule" else None,
        )  # fmt: skip

    # Lives

    async def first_life(self) -> None:
        """From the start to the end of the story, or to the end of the process."""
        self.build(Disk(self.scenario, self.elisions))
        await self._live(self._begin())

    async def second_life(self) -> None:
        """The same story after a crash."""
        world, dead = self.world, self.store
        world.dead, world.stop, world.life = False, None, 1
        world.activation += 1
        world.asking = 0
        world.inside.clear()
        world.streaming.clear()
        self.live = None
        heir = Disk(self.scenario, self.elisions)
        heir.inherit(dead)
        self.lossless = False
        self.build(heir)
        await self._live(self._resume())

    async def _live(self, beginning: Coroutine[Any, Any, Outcome[str]]) -> None:
        story = asyncio.get_running_loop().create_task(self._story(beginning), name="story")
        crash = asyncio.get_running_loop().create_task(self.store.crashed.wait(), name="crash")
        await asyncio.wait((story, crash), return_when=asyncio.FIRST_COMPLETED)
        if self.store.crashed.is_set():
            self.world.seen["stop in phase", f"crash in {self.world.phase}"] += 1
            self.world.dead = True
            return
        self.survived = True
        crash.cancel()
        await story

    async def _story(self, beginning: Coroutine[Any, Any, Outcome[str]]) -> None:
        outcome = await beginning
        for turn in range(6):
            self.outcome = outcome
            self.world.seen["reason", outcome.reason.value] += 1
            await self._check_now()
            if turn == 5 or not await self._act_on(outcome, turn):
                break
            self.world.stop = None
            self.world.activation += 1
            outcome = await self._resume()
        await self._check_end()

    async def _begin(self) -> Outcome[str]:
        stop, loop = self.scenario.plan.stop, asyncio.get_running_loop()
        task = loop.create_task(self._stream(), name="caller")
        timers: list[asyncio.TimerHandle] = []
        helpers: list[asyncio.Task[Any]] = []

        def halt(kind: str) -> None:
            if (
                self.live is None
                or task.done()
                or self.live._task is None
                or self.live._task.done()
            ):
                return
            if kind == "outside":
                self.world.stopped(kind)
                task.cancel()
            else:
                helpers.append(loop.create_task(self._halt(kind), name="halt"))

        if stop is not None:
            timers.append(loop.call_later(stop.at, halt, stop.kind))
        if self.scenario.says_at is not None:
            timers.append(loop.call_later(self.scenario.says_at, self._say))
        try:
            outcome = await task
        except asyncio.CancelledError:
            outcome = await self.support.outcome(self.run_id)
            if outcome.reason is Reason.WAITING and outcome.transcript.owed:
                self.world.violate("K1: cancelled from outside, and not closed")
        for timer in timers:
            timer.cancel()
        for helper in helpers:
            await helper
        return outcome

    async def _stream(self) -> Outcome[str]:
        watching: asyncio.Task[None] | None = None
        try:
            async with self.support.stream(
                "do it", run_id=self.run_id, deps=self.world, history=self.scenario.history
            ) as live:
                self.live = live
                if self.scenario.attends_after is not None:
                    watching = asyncio.get_running_loop().create_task(
                        self._watch(live, self.scenario.attends_after), name="watch"
                    )
        finally:
            if watching is not None:
                watching.cancel()
        return live.outcome

    async def _watch(self, live: Live[str], after: float) -> None:
        """Attend at once to what is told; somebody else may do so again later."""
        async for event in live:
            if event.kind == "pending" and event.fields["wants"] != "approval":
                await asyncio.sleep(after)
                state = await read_state(self.store, event.run_id)
                call = state.waiting_for(event.fields["id"])
                if call is not None:
                    await self._attend(pending_of(event.run_id, event.path, call), last=False)

    async def _attend(self, pending: Pending, *, last: bool) -> bool:
        """Answer a question, or execute a call and bring its result. False where nothing is done."""
        planned = self.world.planned_answer(pending, last=last)
        if planned == "leave":
            return False
        if pending.kind == "input":
            good = _answer_to(pending.summary)
        else:
            good = f"{pending.tool} {json.loads(pending.arguments)['item']}"
            self.world.executed[pending.key or ""] += 1
        if planned == "edit" and pending.kind == "input":
            fits = await self._supplied(pending, 7)
            self.expect(not fits, f"E6: {pending.summary} took a number")
        if planned == "reject":
            done = await self._supplied(pending, "not today", is_error=True)
        else:
            done = await self._supplied(pending, good)
        others = pending.id in self.attended or pending.expires_at <= self.world.today
        self.expect(
            done or others or self.live is not None, f"E6: {pending.summary} could not be supplied"
        )
        self.attended.add(pending.id)
        if planned == "edit":
            self.expect(
                not await self._supplied(pending, good), f"E5: {pending.summary} was supplied twice"
            )
        return True

    async def _supplied(self, pending: Pending, value: object, *, is_error: bool = False) -> bool:
        try:
            await self.support.supply(pending.id, value, is_error=is_error)
        except (ConfigurationError, DecisionError):
            return False
        return True

    async def _halt(self, kind: str) -> None:
        live = self.live
        assert live is not None
        if live._task is None or live._task.done():
            return
        self.world.stopped(kind)
        await (live.cancel() if kind == "cancel" else live.detach())

    def _say(self) -> None:
        live = self.live
        if live is not None and live._task is not None and not live._task.done():
            live.send("and tuesday")
            self.said = True

    async def _resume(self) -> Outcome[str]:
        at, loop = self.scenario.cancels_at, asyncio.get_running_loop()
        helpers: list[asyncio.Task[Any]] = []

        def halt() -> None:
            if self.run_id in self.support.live_runs:
                self.world.stopped("by id")
                helpers.append(loop.create_task(self.support.cancel(self.run_id), name="cancel"))

        timer = None if at is None else loop.call_later(at, halt)
        outcome = await self.support.resume(
            self.run_id, deps=self.world, limits=self._next_limits, reopen=self._reopens
        )
        if timer is not None:
            timer.cancel()
        for helper in helpers:
            outcome = await helper  # it may have come when the run had just come to rest
        return outcome

    _next_limits: Limits | None = None
    _reopens: bool = False

    async def _act_on(self, outcome: Outcome[str], turn: int) -> bool:
        """Do what makes it worth to resume. False where there is nothing."""
        self._next_limits, self._reopens = None, False
        stopped = self.world.stop
        match outcome.reason:
            case Reason.WAITING if stopped is not None and stopped[0] == "detach":
                return True
            case Reason.WAITING:
                return await self._decide(outcome.pending, turn)
            case Reason.JOURNAL_FAILED | Reason.MODEL_FAILED | Reason.INTERNAL_ERROR:
                return turn < 2
            case Reason.CANCELLED:
                self._reopens = self.scenario.goes_on and turn < 2
                return self._reopens
            case Reason.STEP_BUDGET | Reason.DEADLINE | Reason.CALL_BUDGET if turn < 2:
                self._next_limits = Limits(
                    steps=20, tokens=1_000_000, seconds=500, usd=self.scenario.limits.usd and 9
                )
                return self.scenario.goes_on
            case _:
                return False

    async def _decide(self, pendings: Iterable[Pending], turn: int) -> bool:
        rng = random.Random(self.scenario.seed + turn)
        decided = False
        for pending in rng.sample(list(pendings), len(list(pendings))):
            if turn < 3 and rng.random() < 0.3:
                continue  # another time
            if pending.expires_at <= self.world.today:
                decided = True
                continue  # resuming makes a new proposal
            if pending.kind != "approval":
                if await self._attend(pending, last=turn >= 3):
                    decided = True
                else:
                    await asyncio.sleep(20)
                continue
            decision = self.world.answer(pending, last=turn >= 3)
            if decision is None:
                await asyncio.sleep(20)
                continue
            by_token = pending.token is not None and rng.random() < 0.5
            await self.support.decide(
                pending.token if by_token else None, id=None if by_token else pending.id,
                approve=decision.approve, by=decision.by, note=decision.note,
                edit=decision.edit,
            )  # fmt: skip
            decided = True
        return decided or turn < 3

    # What must hold

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.world.violate(what)

    async def _check_now(self) -> None:
        """After each activation."""
        outcome = self.outcome
        assert outcome is not None
        await _settle_down()
        left = [
            task.get_name()
            for task in asyncio.all_tasks()
            if task not in ABANDONED._tasks
            and task not in STILL_RUNNING._telling  # it has the ceiling of its tool
            and task.get_name() not in _OURS
        ]
        self.expect(not left, f"tasks are left alive: {left}")
        self._check_transcript(outcome)
        self.lossless = self.lossless and not self.store.failed
        if outcome.reason is not Reason.JOURNAL_FAILED:
            await self._check_replay(outcome)
            await self._check_results(outcome)
        self._check_limits(outcome)
        self._check_requests()
        if self.live is not None and self.live._run is not None and self.lossless:
            account = self.live._run.means.budget._account
            spent = account.spent
            detached = self.world.stop is not None and self.world.stop[0] == "detach"
            self.expect(
                detached  # a call that stays open keeps what it reserved
                or (account.steps, account.calls, account.tokens, account.usd)
                == (spent.steps, spent.calls, spent.tokens, spent.usd)
                or bool(len(ABANDONED)),
                f"L2: reserved and never settled: {account.steps - spent.steps} steps, "
                f"{account.calls - spent.calls} calls, {account.tokens - spent.tokens} tokens",
            )
            if outcome.reason is not Reason.WAITING:
                live, kept = self.live._run.means.budget.spend, outcome.spend
                self.expect(
                    (live.own.tokens, live.own.calls, live.tree.tokens, live.tree.usd)
                    == (kept.own.tokens, kept.own.calls, kept.tree.tokens, kept.tree.usd)
                    and (live.overshoot, live.estimated) == (kept.overshoot, kept.estimated),
                    f"J4: the account says {live}, the outcome {kept}",
                )
        self.live = None

    def _check_transcript(self, outcome: Outcome[str]) -> None:
        self.expect(not outcome.transcript.owed, "T2: the transcript owes results")
        on = outcome.transcript.copy()
        on.say(Text("go on"))
        try:
            validate_request(list(on))
        except ValueError as error:
            self.world.violate(f"T1: the transcript cannot be sent: {error}")

    async def _check_results(self, outcome: Outcome[str]) -> None:
        """Every turn is within its budget, and whatever it does not show can be read."""
        for message in outcome.transcript:
            shown = [len(result.text) for result in message.tool_results]
            self.expect(max(shown, default=0) <= 8_000, f"X2: a result of {max(shown, default=0)}")
            self.expect(sum(shown) <= 32_000, f"X2: a turn of {sum(shown)} characters")
            for result in message.tool_results:
                cut = "read_artifact(handle=" in result.text
                self.expect(cut == bool(result.artifacts), f"X2: {result.text!r} names nothing")
        for handle in outcome.transcript.artifacts:
            digest = handle.removeprefix("artifact:")
            found = await self.store.artifact(self.run_id, digest)
            self.expect(found is not None, f"X2: {handle} is named and cannot be read")
            self.world.seen["results", "cut"] += 1

    async def _check_replay(self, outcome: Outcome[str]) -> None:
        """What the rows say is what the live run said, and what they took out can be had."""
        state = await read_state(self.store, self.run_id)
        stored = await stored_outcome(self.store, state, self.support._config.output)
        for name in (
            "reason", "whose", "text", "transcript", "spend", "error", "steps", "output",
            "prefix_breaks",
        ):  # fmt: skip
            then, now = getattr(outcome, name), getattr(stored, name)
            if name == "spend":
                then, now = _rounded(then), _rounded(now)
            self.expect(then == now, f"replay: {name} was {then!r}, the rows say {now!r}")
        self.expect(
            [p.id for p in outcome.pending] == [p.id for p in stored.pending],
            "replay: other pendings",
        )

    def _check_limits(self, outcome: Outcome[str]) -> None:
        limits, used, over = (
            self._next_limits or self.limits, outcome.spend.tree, outcome.spend.overshoot,
        )  # fmt: skip
        self.limits = limits
        self.expect(used.steps <= limits.steps, f"L1: {used.steps} steps")
        self.expect(used.tokens <= limits.tokens + over.tokens, f"L1: {used.tokens} tokens")
        if limits.calls is not None:
            self.expect(used.calls <= limits.calls, f"L1: {used.calls} calls")
        if limits.usd is not None:
            self.expect(used.usd <= limits.usd + over.usd, f"L1: {used.usd} US dollars")
        # Only a provider can bill more than was reserved, and only for what the plan says.
        turns = (*self.scenario.plan.turns, *self.scenario.child.turns)
        over_cap = (ModelFault.OVER_CAP, ModelFault.BILLED)
        honest = not any(turn.fault in over_cap for turn in turns)
        self.expect(not honest or over == Amount(), f"L2: {over} beyond what was reserved")
        self.expect(not over.steps and not over.calls, f"L2: {over} beyond what was reserved")
        self.expect(
            used.seconds <= limits.seconds + 3 * GRACE + 0.001,
            f"L4: {used.seconds} active seconds of {limits.seconds}",
        )

    limits: Limits = field(init=False)

    def _check_requests(self) -> None:
        """X1, and no request that a provider refuses."""
        requests = self.model.inner.requests
        broken = 0
        for earlier, later in pairwise(requests):
            if not prefix_of(earlier.messages, later.messages):
                broken += 1
                self.expect(
                    prefix_of(_without_results(earlier.messages), _without_results(later.messages)),
                    f"X1: a request of {len(earlier.messages)} messages is no prefix of the next",
                )
            self.expect(earlier.tools == later.tools, "X1: other tools")
        assert self.outcome is not None
        told = self.outcome.prefix_breaks.get("elision", 0)
        self.expect(broken <= told, f"X1: {broken} breaks of the prefix, and {told} are counted")

    async def _check_end(self) -> None:
        outcome = self.outcome
        assert outcome is not None
        books = {run_id: _Book(self.store, run_id) for run_id in list(self.store._runs)}
        for book in books.values():
            self._check_book(book)
        self._check_bodies(books)
        self._check_spend(books, outcome)
        self._check_output(books[self.run_id], outcome)
        if self.said and outcome.completed:
            told = any("and tuesday" in m.text for m in outcome.transcript)
            self.expect(told or not self.lossless, "T5: what was said got lost")
        if self.scenario.seed % SAMPLE_HISTORY == 0:
            await self._check_going_on(outcome)
        await self._check_nothing_lives()

    def _check_book(self, book: _Book) -> None:
        """One run, by its raw rows."""
        for error in book.errors:
            self.expect("invalid request" not in error, f"T1: {error}")
        for use_id, (_, asked_key, expected) in book.uses.items():
            self.expect(
                asked_key is None or asked_key in expected,
                f"E2: call {use_id} has key {asked_key}, not one of {expected}",
            )
        for use_id, times in book.handed_out.items():
            self.expect(times == 1, f"E6: {book.what[use_id]} was handed out {times} times")
        for use_id, result in book.results.items():
            text = "".join(part["text"] for part in result["content"])
            self.expect("not deterministic" not in text, f"E6: {book.what[use_id]}: {text}")
            handed = use_id in book.handed_out
            self.expect(
                not handed or result["status"] not in ("not_started", "refused"),
                f"E6: {book.what[use_id]} was handed out, and told {result['status']}",
            )
            if result["status"] != "ok":
                continue
            name, arguments = book.what[use_id]
            item = book.edits.get(use_id, arguments).get("item")
            said = f"{name} {item}" in text
            self.expect(
                said or name in ("delegate", "final_answer"),
                f"T1: {name} {item} was answered {text!r}",
            )
        for use_id, key in book.keyed:
            if use_id in book.handed_out:
                name, arguments = book.what[use_id]
                self.world._check_handed_out(name, book.edits.get(use_id, arguments)["item"])
            if EFFECTS[book.what[use_id][0]] == "confirm":
                entered = sum(e.key == key for e in self.world.entries)
                entered += sum(book.handed_out[u] for u, k in book.keyed if k == key)
                approved = sum(book.approved[u] for u, k in book.keyed if k == key)
                self.expect(entered <= approved, f"E1: {key} ran {entered} on {approved} approvals")

    def _check_output(self, book: _Book, outcome: Outcome[Any]) -> None:
        """O1, O2: what the raw rows of the newest turn hold is what the outcome gives, and nothing else is."""
        if not outcome.completed:
            self.expect(outcome.output is None, f"O1: {outcome.output!r} of an unfinished run")
            misfits = outcome.reason is not Reason.INVALID_OUTPUT or book.misfits > 2
            self.expect(misfits, f"O1: {outcome.reason} after {book.misfits} misfits")
            return
        ended = [[u for u in turn if book.ends(u)] for turn in book.turns]
        self.expect(self.said or not any(ended[:-1]), "O2: asked on after a call that ended it")
        last = ended[-1]
        kinds = ["output" if book.what[u][0] == "final_answer" else "call" for u in last]
        self.expect(kinds.count("output") < 2, "O1: two outputs of one turn were accepted")
        value: object = outcome.text
        if book.finished:
            enough = _results(outcome.transcript) >= ENOUGH
            self.expect(enough and not last, "O3: completed by a rule that had not said so")
            self.world.seen["ended by", "rule"] += 1
            return
        if "output" in kinds:
            value = book.what[last[kinds.index("output")]][1]["value"]
        elif self.scenario.ending == "output":
            self.world.violate("O1: completed without its output")
        elif last:
            value = "".join(part["text"] for part in book.results[last[0]]["content"])
        self.expect(outcome.output == value, f"O1: gave {outcome.output!r}, not {value!r}")
        self.world.seen["ended by", kinds[0] if kinds else "text"] += 1

    def _check_bodies(self, books: Mapping[str, _Book]) -> None:
        """What ran is reported as run, and what is reported as not run did not."""
        ran: dict[str, list[Entry]] = {}
        for entry in self.world.entries:
            ran.setdefault(entry.key, []).append(entry)
        for key, entries in ran.items():
            first = entries[0]
            book = books.get(first.run_id)
            if book is None:
                self.world.violate(f"{first.tool} {first.item} ran in a run that nobody knows")
                continue
            calls = [use_id for use_id, known in book.keyed if known == key]
            effect = EFFECTS[first.tool]
            if effect != "read":
                self.expect(bool(calls), f"E2: {first} ran under a key that no row knows")
                started = any(use_id in book.started for use_id in calls)
                self.expect(started, f"E3: {first} ran, and its start is not in the journal")
                self.expect(
                    effect == "idempotent" or len(entries) <= len(calls),
                    f"E1: {key} ran {len(entries)} times for {len(calls)} calls",
                )
            statuses = [book.results[u]["status"] for u in calls if u in book.results]
            told = bool({"ok", "error", "unknown"} & set(statuses))
            open_ = not book.ended and len(statuses) < len(calls)
            unasked = effect == "read" and (
                not calls or bool(book.discarded or book.left or book.broke) or not self.lossless
            )
            self.expect(
                told or open_ or unasked,
                f"{first.tool} {first.item} ran, and the model was told {statuses}",
            )
        for book in books.values():
            for use_id, key in book.keyed:
                status = book.results.get(use_id, {}).get("status")
                if status not in ("not_started", "refused") or key not in ran:
                    continue
                others = [
                    u for u, k in book.keyed
                    if k == key and u != use_id
                    and book.results.get(u, {}).get("status") in ("unknown", "ok", "error")
                ]  # fmt: skip
                read = EFFECTS[book.what[use_id][0]] == "read"
                excused = read and bool(
                    book.discarded or book.left or book.broke or not self.lossless
                )
                self.expect(
                    bool(others) or excused, f"{book.what[use_id]} ran, and was told {status}"
                )

    def _check_spend(self, books: Mapping[str, _Book], outcome: Outcome[str]) -> None:
        """J4: rows, outcome and what the model reported agree."""
        book = books[self.run_id]
        own = (book.steps, book.calls, book.tokens, book.usd)
        kept = outcome.spend.own
        if outcome.reason is Reason.JOURNAL_FAILED:
            return
        self.expect(
            own == (kept.steps, kept.calls, kept.tokens, kept.usd),
            f"J4: the rows come to {own}, the outcome to {kept}",
        )
        tree = outcome.spend.tree
        # What a run inside spent before a detach is told above when it goes on, if it does.
        detached = self.scenario.plan.stop is not None and self.scenario.plan.stop.kind == "detach"
        whole = self.lossless and not detached and not len(ABANDONED)
        if whole and outcome.reason is not Reason.WAITING:
            all_of = [
                sum(getattr(b, name) for b in books.values())
                for name in ("steps", "calls", "tokens", "usd")
            ]
            self.expect(
                all_of == [tree.steps, tree.calls, tree.tokens, tree.usd],
                f"J4: the runs come to {all_of}, the tree to {tree}",
            )
            if not any(b.estimated for b in books.values()):
                reported = sum(u.total for u in self.world.reported)
                billed = sum(b.billed for b in books.values())
                self.expect(
                    reported + billed == sum(b.tokens for b in books.values()),
                    f"J4: reported {reported}, billed {billed}",
                )

    async def _check_going_on(self, outcome: Outcome[str]) -> None:
        self.store._fails_at = self.store._crash_at = None
        model = ScriptedModel(["fine"])
        next_one = Remit(
            name="support", model=model, limits=Limits(steps=2, tokens=10**7, seconds=60),
            tools=TOOLS, store=self.store, runtime=Runtime(now=lambda: EPOCH),
        )  # fmt: skip
        on = await next_one.run("go on", history=outcome.transcript)
        self.expect(on.completed, f"T2: going on ended with {on.reason.value}: {on.error}")
        self.expect(prefix_of(list(outcome.transcript), list(on.transcript)), "X1: another history")
        for pending in outcome.pending:
            if pending.kind != "approval":
                taken = await self._supplied(pending, "re late")
                self.expect(not taken, f"T2: {pending.summary} was answered after the fork")
        self.world.seen["checked", "gone on with"] += 1

    async def _check_nothing_lives(self) -> None:
        await asyncio.sleep(100)  # the stubborn come to their end
        left = [task.get_name() for task in asyncio.all_tasks() if task.get_name() not in _OURS]
        self.expect(not left, f"tasks live for ever: {left}")


def _without_results(messages: Sequence[Message]) -> list[Message]:
    """The messages but for what their results say."""
    return [
        Message(
            message.role,
            tuple(
                msgspec.structs.replace(block, content=(), artifacts=())
                if isinstance(block, ToolResult) else block
                for block in message.content
            ),
        )
        for message in messages
    ]  # fmt: skip


_OURS = frozenset({"story", "crash", "main", "cancel", "watch"})
_SETTINGS = Settings(max_output=256)


async def _settle_down() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def _rounded(spend: Any) -> Any:
    def rounded(totals: Any) -> Any:
        return msgspec.structs.replace(totals, seconds=round(totals.seconds, 5))

    return msgspec.structs.replace(spend, own=rounded(spend.own), tree=rounded(spend.tree))


class _Book:
    """The raw rows of one run, read without any of remit's own readers. Defaults are not written.

    Results are whole here: what was too long to be shown stands in an artifact.
    """

    def __init__(self, store: Disk, run_id: str) -> None:
        self.uses: dict[str, tuple[int, str | None, list[str]]] = {}
        """For each tool use its step, its key, and the keys that it may have."""
        self.what: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.results: dict[str, Mapping[str, Any]] = {}
        self.started: set[str] = set()
        self.handed_out: Counter[str] = Counter()
        """How often each call was given to whoever executes it elsewhere."""
        self.approved: Counter[str] = Counter()
        self.edits: dict[str, Mapping[str, Any]] = {}
        self.edited_keys: dict[str, str] = {}
        self.errors: list[str] = []
        self.turns: list[list[str]] = []
        """The tool uses of each reply."""
        self.finished = False
        """A rule ended it."""
        self.misfits = 0
        """Outputs that did not fit, text included."""
        self.steps = self.calls = self.tokens = self.estimated = self.billed = 0
        self.discarded = 0
        self.ended = False
        self.broke = False
        """The loop broke off in the middle: a read that had just asked is not known to have been entered."""
        self.left = 0
        """How often it was handed over or waited: reads that were cut then are asked anew."""
        self._open: dict[str, Mapping[str, Any]] = {}
        self._counted: set[str] = set()
        """Calls that were counted before their result: entered again, they do not count again."""
        self.usd = Decimal(0)
        self.run_id = run_id
        self._proposals: dict[str, str] = {}
        self._shelf = store._shelf
        for row in store._runs[run_id].rows:
            read = getattr(self, f"_{row.kind}", None)
            if read is not None:
                read(json.loads(row.body))

    @property
    def keyed(self) -> list[tuple[str, str]]:
        """Tool uses and the key that each had in the end."""
        return [
            (use_id, self.edited_keys.get(use_id, key))
            for use_id, (_, key, _) in self.uses.items()
            if key is not None
        ]

    def _replied(self, row: Mapping[str, Any]) -> None:
        tokens = _total(row["usage"])
        self.tokens += tokens
        self.usd += Decimal(row["usd"])
        self.estimated += row["estimated"]
        if row["message"] is None:
            return
        self.steps += not row["closing"]
        self.misfits += "invalid" in row
        self.finished = False
        self.turns.append([])
        counts: Counter[str] = Counter()
        uses = [block for block in row["message"]["content"] if block["type"] == "tool_use"]
        for use, asked in zip(uses, row["asked"], strict=True):
            key, repeats = asked["key"], asked.get("repeats", False)
            try:
                arguments = json.loads(use["arguments"])
            except ValueError:
                arguments = {}
            self.what[use["id"]] = (use["name"], arguments)
            digest = hashlib.sha256(_canonical(arguments)).hexdigest()[:16]
            called = f"{use['name']}:{digest}"
            counts[called] += 1
            self.turns[-1].append(use["id"])
            expected = (
                [
                    k for _, k, _ in self.uses.values()
                    if k is not None and k.rsplit(":", 1)[0].endswith(called)
                ]
                if repeats
                else [f"{self.run_id}:{self.steps}:{called}:{counts[called]}"]
            )  # fmt: skip
            expected += list(self.edited_keys.values()) if repeats else []
            self.uses[use["id"]] = (self.steps, key, expected)

    def ends(self, use_id: str) -> bool:
        """Whether the result of this call ends the run."""
        ended = self.what[use_id][0] in ("finish", "final_answer")
        return ended and self.results.get(use_id, {}).get("status") == "ok"

    def _charged(self, row: Mapping[str, Any]) -> None:
        self.tokens += _total(row["usage"])
        self.billed += _total(row["usage"])
        self.usd += Decimal(row["usd"])
        self.calls += row.get("calls", 0)
        self.discarded += row.get("calls", 0)
        self.estimated += row["estimated"]

    def _settled(self, row: Mapping[str, Any]) -> None:
        content = list(row["content"])
        for kept in row.get("kept", ()):
            whole = self._shelf._places[kept["artifact"].removeprefix("artifact:")].artifact
            content.insert(kept["at"], {"text": whole.data.decode()})
        self.results[row["tool_use_id"]] = {**row, "content": content}
        misfit = self.what[row["tool_use_id"]][0] == "final_answer" and row["status"] == "error"
        self.misfits += misfit
        self._open.pop(row["tool_use_id"], None)
        self._spent(row.get("spent") or {})

    def _spent(self, spent: Mapping[str, Any]) -> None:
        self.calls += spent.get("calls", 0)
        self.tokens += spent.get("tokens", 0)
        self.usd += Decimal(spent.get("usd", 0))

    def _started(self, row: Mapping[str, Any]) -> None:
        self.started.add(row["tool_use_id"])
        self._open[row["tool_use_id"]] = row

    def _turned_back(self, row: Mapping[str, Any]) -> None:
        self.started.discard(row["tool_use_id"])  # no body was entered
        self._open.pop(row["tool_use_id"], None)

    def _proposed(self, row: Mapping[str, Any]) -> None:
        self._proposals[row["pending_id"]] = row["tool_use_id"]

    def _decided(self, row: Mapping[str, Any]) -> None:
        use_id = self._proposals[row["pending_id"]]
        self.approved[use_id] += row["approve"]
        if row["edit"] is not None:
            self.edits[use_id] = json.loads(row["edit"])
        if row["key"] is not None:
            self.edited_keys[use_id] = row["key"]

    def _finished(self, _: Mapping[str, Any]) -> None:
        self.finished = True

    def _said(self, _: Mapping[str, Any]) -> None:
        self.finished = False

    def _parked(self, _: Mapping[str, Any]) -> None:
        self.left += 1

    def _awaits(self, row: Mapping[str, Any]) -> None:
        self._counted.add(row["tool_use_id"])
        self._spent(row.get("spent") or {})

    _questioned = _awaits

    def _handed_out(self, row: Mapping[str, Any]) -> None:
        self.handed_out[row["tool_use_id"]] += 1
        self._spent(row.get("spent") or {})

    def _ended(self, row: Mapping[str, Any]) -> None:
        self.ended = True
        self.broke = self.broke or row["reason"] == "internal_error"

    def _activated(self, _: Mapping[str, Any]) -> None:
        self.ended = False
        for use_id in self._open.keys() - self._counted:
            # Begun and broken off: it counts as one call at its declared price, entered again or not.
            self._counted.add(use_id)
            self._spent({"calls": 1, **self._open[use_id]})

    def _failed(self, row: Mapping[str, Any]) -> None:
        self.errors.append(row["error"])


def _total(usage: Mapping[str, int]) -> int:
    return usage["input"] + usage["cache_read"] + usage["cache_write"] + usage["output"]


def _canonical(arguments: Any) -> bytes:
    return json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()


# --- one seed ------------------------------------------------------------------------------------


def simulate(seed: int, *, loud: bool = False) -> Seen:
    """Play one seed. Errors: `Violation`."""
    scenario = Scenario.draw(seed)
    story = Story(scenario)
    story.limits = scenario.limits
    try:
        ended = _live(story.first_life(), seed, 0.0)
        if not story.survived:
            _live(story.second_life(), seed, ended)
    except Exception as error:
        if loud:
            raise
        raise Violation(seed, f"{type(error).__name__}: {error}") from error
    finally:
        if loud:
            _show(story)
    if story.world.violations:
        raise Violation(seed, "; ".join(dict.fromkeys(story.world.violations)))
    story.world.seen["mood", scenario.mood] += 1
    for what, times in story.elisions.items():
        story.world.seen["elision", what] += times
    return story.world.seen


def _live(life: Coroutine[Any, Any, None], seed: int, start: float) -> float:
    """One process: a loop of its own, whose tasks are gone when it ends. Returns the time of its end."""
    loop = VirtualLoop(start=start, shuffle=random.Random(seed))
    try:
        loop.run_until_complete(loop.create_task(life, name="main"))
        while left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
        return loop.time()
    finally:
        loop.close()


def _show(story: Story) -> None:
    lines = [repr(story.scenario), *map(repr, story.world.entries)]
    store = getattr(story, "store", None)
    for run_id, record in ({} if store is None else store._runs).items():
        rows = (f"  {row.seq} {row.kind} {row.body.decode()[:400]}" for row in record.rows)
        lines += [run_id, *rows]
    if story.outcome is not None:
        lines.append(f"{story.outcome.reason} {story.outcome.error} {story.outcome.spend}")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    for argument in sys.argv[1:]:
        simulate(int(argument), loud=True)
