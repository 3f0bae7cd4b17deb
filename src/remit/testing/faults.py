"""What goes wrong in one run, fixed by a seed: a plan of turns, of the bodies they call, and of a stop.

A `FaultPlan` is a value. It says what the model replies and how the reply is spoilt, how long each body takes
(and so who finishes first) and what it does instead of its work, when somebody cancels, and what a person who
is asked decides. `script` turns it into the script of a `ScriptedModel`, `suffer` is what a body calls. It
knows no tool and runs nothing: who wires it to tools of their own and runs it on `run_virtual` gets the same
run for the same seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from remit.canonical import encode
from remit.errors import ModelRejected, ModelUnavailable, ToolError
from remit.messages import Json, StopReason, ToolUse, Usage
from remit.models.base import ModelRequest
from remit.models.scripted import Part, Step
from remit.transcript import Transcript

__all__ = [
    "LAST",
    "Answer",
    "FaultPlan",
    "ModelFault",
    "PlannedCall",
    "PlannedStop",
    "PlannedTurn",
    "ToolFault",
    "Unprintable",
    "script",
    "spoil",
    "step_of",
    "suffer",
]


class ToolFault(StrEnum):
    """What a body does instead of its work."""

    NONE = "none"
    RAISES = "raises"
    REFUSES = "refuses"
    """A `ToolError`: on purpose, for the model to read."""
    EXITS = "exits"
    """`SystemExit`, as a library that thinks it is a program."""
    CANCELS_ITSELF = "cancels itself"
    UNPRINTABLE = "unprintable"
    """It returns something that no result can hold."""
    SLOW = "slow"
    """It takes longer than its ceiling."""
    STUBBORN = "stubborn"
    """It is slow and swallows every cancellation."""
    STUCK = "stuck"
    """It never returns, but lets itself be cancelled."""


class ModelFault(StrEnum):
    """How a reply is spoilt."""

    NONE = "none"
    UNAVAILABLE = "unavailable"
    BILLED = "billed"
    """Unavailable, but more is billed for the attempt than was asked for."""
    CUT_STREAM = "cut stream"
    REJECTED = "rejected"
    SLOW = "slow"
    LENGTH = "length"
    """Cut by the output cap, in the middle of the arguments of its last call."""
    REFUSAL = "refusal"
    FILTER = "filter"
    CONTEXT = "context"
    PAUSE = "pause"
    STOP_SEQUENCE = "stop sequence"
    UNKNOWN_STOP = "unknown stop"
    MISLABELLED = "mislabelled"
    """`END_TURN`, though there are calls."""
    EMPTY = "empty"
    BAD_ARGUMENTS = "bad arguments"
    UNKNOWN_TOOL = "unknown tool"
    SAME_IDS = "same ids"
    NO_IDS = "no ids"
    UNREPORTED = "unreported"
    """No usage is reported."""
    OVER_CAP = "over cap"
    """More output is reported than was allowed."""


Answer: TypeAlias = Literal["approve", "reject", "edit", "leave"]
"""What a person does about a proposal; `leave` is not to answer."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a turn."""

    tool: str
    item: int
    """The argument `item`, by which the body finds its plan; two calls with one item are equal calls."""
    seconds: float
    """How long the body takes, or until it goes wrong."""
    fault: ToolFault = ToolFault.NONE
    answer: Answer = "approve"
    """What is decided where the call needs a decision."""


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """One reply of the model."""

    calls: tuple[PlannedCall, ...] = ()
    text: str = ""
    fault: ModelFault = ModelFault.NONE
    delay: float = 0.0
    """Seconds before the first block."""
    between: float = 0.0
    """Seconds before each further block."""
    output: Json | None = None
    """Arguments of a call of `final_answer` behind the others; None: it is not called."""


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """Somebody stops the run."""

    kind: Literal["cancel", "outside", "detach"]
    """By its handle; by cancelling the task that waits for it; to go on elsewhere."""
    at: float
    """Seconds after the start."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One run, and everything that goes wrong in it."""

    seed: int
    turns: tuple[PlannedTurn, ...]
    stop: PlannedStop | None = None

    @property
    def calls(self) -> Mapping[int, PlannedCall]:
        """The planned calls, by item."""
        return {call.item: call for turn in self.turns for call in turn.calls}

    @classmethod
    def draw(
        cls,
        seed: int,
        tools: Sequence[str],
        *,
        turns: int = 4,
        width: int = 4,
        trouble: float = 0.3,
        stops: float = 0.35,
        first_item: int = 1,
    ) -> FaultPlan:
        """The plan of a seed: at most `turns` replies with at most `width` calls each.

        `trouble` is the chance of a fault for each body and each reply, `stops` that of a stop. A tool that
        is named more than once in `tools` is called more often.
        """
        rng = random.Random(seed)  # noqa: S311 - a plan of faults is no secret
        items = iter(range(first_item, first_item + turns * width * 2))
        drawn: list[PlannedTurn] = []
        for _ in range(rng.randint(1, turns)):
            drawn.extend(_draw_turn(rng, tools, width, trouble, items))
        stop = None
        if rng.random() < stops:
            stop = PlannedStop(rng.choice(_STOPS), rng.choice(_INSTANTS))
        return cls(seed, tuple(drawn), stop)


_STOPS: Final = ("cancel", "cancel", "outside", "detach")
_INSTANTS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.6, 1.9, 2.3, 2.8, 3.5)
"""Few and round, so that things fall on the same instant."""
_SECONDS: Final = (0.0, 0.0, 0.1, 0.1, 0.2, 0.3, 0.5)
_TOOL_FAULTS: Final = tuple(ToolFault)[1:]
_MODEL_FAULTS: Final = tuple(ModelFault)[1:]
_ANSWERS: Final[tuple[Answer, ...]] = ("approve", "approve", "approve", "reject", "edit", "leave")
_SLOW_SECONDS: Final = 7.0
_REPEATED: Final = frozenset(
    {ModelFault.UNAVAILABLE, ModelFault.LENGTH, ModelFault.EMPTY, ModelFault.CUT_STREAM}
)
"""Faults that mean something else when they come several times in a row."""


def _draw_turn(
    rng: random.Random, tools: Sequence[str], width: int, trouble: float, items: Iterator[int]
) -> list[PlannedTurn]:
    calls = [_draw_call(rng, tools, trouble, items) for _ in range(rng.randint(0, width))]
    if calls and rng.random() < 0.1:
        calls.append(calls[0])  # asked twice, on purpose
    fault = rng.choice(_MODEL_FAULTS) if rng.random() < trouble else ModelFault.NONE
    turn = PlannedTurn(
        calls=tuple(calls),
        text="" if calls and rng.random() < 0.5 else "so be it",
        fault=fault,
        delay=rng.choice(_SECONDS),
        between=rng.choice(_SECONDS),
    )
    times = rng.choice((1, 1, 2, 3, 5)) if fault in _REPEATED else 1
    return [turn] * times


def _draw_call(
    rng: random.Random, tools: Sequence[str], trouble: float, items: Iterator[int]
) -> PlannedCall:
    fault = rng.choice(_TOOL_FAULTS) if rng.random() < trouble else ToolFault.NONE
    return PlannedCall(
        rng.choice(tools), next(items), rng.choice(_SECONDS), fault, rng.choice(_ANSWERS)
    )


# Carrying it out

LAST: Final = PlannedTurn(text="that is all")
"""What a script ends with."""


def script(
    turns: Sequence[PlannedTurn],
    *,
    heard: Callable[[PlannedTurn], None] | None = None,
    last: PlannedTurn = LAST,
) -> Callable[[Transcript, ModelRequest], Step]:
    """The script of a `ScriptedModel`: one turn for each request, then `last`, a plain answer, for ever.

    `heard` is told of each turn as it is given.
    """
    rest = iter(turns)

    def say(_transcript: Transcript, _request: ModelRequest) -> Step:
        turn = next(rest, last)
        if heard is not None:
            heard(turn)
        return step_of(turn)

    return say


_STOP_REASONS: Final = {
    ModelFault.LENGTH: StopReason.LENGTH,
    ModelFault.REFUSAL: StopReason.REFUSAL,
    ModelFault.FILTER: StopReason.FILTER,
    ModelFault.CONTEXT: StopReason.CONTEXT,
    ModelFault.PAUSE: StopReason.PAUSE,
    ModelFault.STOP_SEQUENCE: StopReason.STOP_SEQUENCE,
    ModelFault.UNKNOWN_STOP: StopReason.UNKNOWN,
    ModelFault.MISLABELLED: StopReason.END_TURN,
}


def step_of(turn: PlannedTurn) -> Step:
    """The reply of a turn, spoilt as planned."""
    fault = turn.fault
    match fault:
        case ModelFault.UNAVAILABLE:
            return Step(_parts(turn), error=ModelUnavailable("busy"), delay=turn.delay)
        case ModelFault.BILLED:
            usage = Usage(input=10, output=20_000)
            return Step(error=ModelUnavailable("busy", usage=usage), delay=turn.delay)
        case ModelFault.REJECTED:
            return Step(error=ModelRejected("no such model"), delay=turn.delay)
        case ModelFault.CUT_STREAM:
            parts = _parts(turn)
            cut = max(1, len(parts) - 1)
            return Step(parts, delay=turn.delay, between=turn.between, cut_after=cut)
        case ModelFault.EMPTY:
            return Step("", delay=turn.delay)
        case _:
            return Step(
                _parts(turn),
                stop_reason=_STOP_REASONS.get(fault),
                usage=_usage(fault),
                delay=turn.delay + (_SLOW_SECONDS if fault is ModelFault.SLOW else 0.0),
                between=turn.between,
            )


def _usage(fault: ModelFault) -> Usage | Literal["estimated"] | None:
    if fault is ModelFault.UNREPORTED:
        return None
    return Usage(input=10, output=20_000) if fault is ModelFault.OVER_CAP else "estimated"


def _parts(turn: PlannedTurn) -> list[Part]:
    parts: list[Part] = [turn.text] if turn.text else []
    last = len(turn.calls) - 1
    for index, call in enumerate(turn.calls):
        name, arguments = call.tool, _arguments(call)
        if index == 0 and turn.fault is ModelFault.UNKNOWN_TOOL:
            name += "_of_another_name"
        if index == 0 and turn.fault is ModelFault.BAD_ARGUMENTS:
            arguments = {"item": "many", "more": None}
        if index == last and turn.fault is ModelFault.LENGTH:
            parts.append((name, encode(arguments).decode()[:-2]))
        elif turn.fault in (ModelFault.SAME_IDS, ModelFault.NO_IDS):
            use_id = "same" if turn.fault is ModelFault.SAME_IDS else ""
            parts.append(ToolUse(use_id, name, encode(arguments).decode()))
        else:
            parts.append((name, arguments))
    if turn.output is not None and turn.fault is not ModelFault.LENGTH:
        parts.append(("final_answer", turn.output))
    return parts or ["so be it"]


def _arguments(call: PlannedCall) -> Json:
    return {"item": call.item}


class Unprintable:
    """A value that no result can hold."""

    def __repr__(self) -> str:
        raise RuntimeError("this cannot be shown")


async def suffer(call: PlannedCall) -> Unprintable | None:
    """What the body of a planned call does before it has a value: take its time, and go wrong as planned."""
    match call.fault:
        case ToolFault.STUCK:
            await asyncio.get_running_loop().create_future()
        case ToolFault.STUBBORN:
            await _endure(_SLOW_SECONDS)
        case ToolFault.SLOW:
            await asyncio.sleep(_SLOW_SECONDS)
        case _:
            if call.seconds:
                await asyncio.sleep(call.seconds)
    return spoil(call)


def spoil(call: PlannedCall) -> Unprintable | None:
    """The same for a blocking body, whose time is the worker's: only go wrong."""
    match call.fault:
        case ToolFault.RAISES:
            raise RuntimeError("it broke")
        case ToolFault.REFUSES:
            raise ToolError("not like this")
        case ToolFault.EXITS:
            raise SystemExit(3)
        case ToolFault.CANCELS_ITSELF:
            raise asyncio.CancelledError
        case ToolFault.UNPRINTABLE:
            return Unprintable()
        case _:
            return None


async def _endure(seconds: float) -> None:
    """Sleep, whatever anybody wants."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while (left := ends - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
