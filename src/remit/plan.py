"""What a run does next. Pure: it reads the state and what there is room for, and decides.

It awaits nothing and reads no clock but the one handed in, so that it can be tested by enumeration.
`loop.py` carries the moves out. Every rule about when a run goes on and why it ends stands here, in the
order in which it counts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from remit.elide import Elision
from remit.messages import StopReason
from remit.outcome import Reason
from remit.rows import Noted
from remit.schedule import Footprint, shares
from remit.stall import END_AT, TELL_AT
from remit.state import CallState, Limit, RunState

__all__ = ["Answer", "Ask", "Check", "Elide", "Leave", "Move", "Room", "Stop", "Wait", "plan"]

CUTS_ALLOWED = 1
"""Replies cut by length in a row before the run ends (C3)."""
EMPTIES_ALLOWED = 2
"""Empty replies in a row before the run ends."""
INVALIDS_ALLOWED = 2
"""Outputs that do not fit, in a row, before the run ends."""


class Room(msgspec.Struct, frozen=True):
    """What surrounds the state at this instant: everything that `plan` may know beside it."""

    now: datetime = datetime.min.replace(tzinfo=UTC)
    """Calendar time. It is read while calls are open, and nothing can expire between turns."""
    limit: Limit | None = None
    """What keeps a further step, and the hand-back after it, from being begun."""
    closing: bool = True
    """Whether the hand-back itself is wanted and still fits."""
    elision: Elision | None = None
    """What can make room in the model's window, where the prompt has come near it."""
    full: str | None = None
    """What fills the model's window, in words, where no request fits it any more."""
    cancelled: bool = False
    why: str = ""
    """As whoever cancelled it said."""
    detached: bool = False
    queued: bool = False
    """Input waits for its place behind the results (T5)."""
    marks: tuple[Noted, ...] = ()
    """Notes on budget and clock that are due (L6)."""
    unchecked: bool = False
    """The host has a rule for when the run is done, and was not asked about the newest answered turn."""


class Ask(msgspec.Struct, frozen=True):
    """Call the model, after these notes."""

    notes: tuple[Noted, ...] = ()
    closing: Limit | None = None
    """The hand-back, and the limit that makes it necessary."""


class Elide(msgspec.Struct, frozen=True):
    """Make room in the model's window, before anything is said for the next step."""

    elision: Elision


class Answer(msgspec.Struct, frozen=True):
    """Bring these calls of the open turn to their results."""

    calls: tuple[CallState, ...]


class Check(msgspec.Struct, frozen=True):
    """Ask the host whether the run is done."""


class Wait(msgspec.Struct, frozen=True):
    """Nothing can be done until somebody decides."""

    calls: tuple[CallState, ...]


class Stop(msgspec.Struct, frozen=True):
    """The run is over."""

    reason: Reason
    whose: str | None = None
    error: str | None = None


class Leave(msgspec.Struct, frozen=True):
    """Hand the run over as it is: it stays resumable."""


Move: TypeAlias = Ask | Elide | Answer | Check | Wait | Stop | Leave


def plan(state: RunState, room: Room) -> Move:
    """The next move. The order of the rules is the order of the promises."""
    if room.cancelled:
        return Stop(Reason.CANCELLED, error=room.why or None)
    if state.vetoed is not None:
        return Stop(Reason.VETOED, error=state.vetoed)
    if room.detached:
        return Leave()
    if state.calls:
        return _turn(state, room)
    if state.done and not room.queued:
        return Stop(Reason.COMPLETED)
    if state.limit is not None:
        return Stop(state.limit.reason, state.limit.whose)
    if state.failure is not None:
        return Stop(Reason.MODEL_FAILED, error=state.failure)
    if room.unchecked and not room.queued:
        return Check()
    return _after_reply(state, room) or _begin(state, room)


def _turn(state: RunState, room: Room) -> Move:
    """Calls are owed: those that can move do; where none can, the run waits."""
    ready = ready_calls(state, room.now)
    return Answer(ready) if ready else Wait(tuple(c for c in state.calls if not c.settled))


def ready_calls(state: RunState, now: datetime) -> tuple[CallState, ...]:
    """The open calls that something can be done for, in call order.

    A call that waits holds up the later ones that share a declared resource with it, and no others (E6).
    """
    ready: list[CallState] = []
    held_up: list[Footprint] = []
    for call in state.calls:
        if call.settled:
            continue
        if call.waits(now) or any(shares(call.footprint, other) for other in held_up):
            held_up.append(call.footprint)
        else:
            ready.append(call)
    return tuple(ready)


def _after_reply(state: RunState, room: Room) -> Stop | None:
    """What the newest reply itself says about going on."""
    reply = state.reply
    if reply is None or not reply.whole or reply.closing:
        return None  # a hand-back is no answer: with new limits the work goes on after it
    if state.final and not room.queued:
        return Stop(Reason.COMPLETED)
    match reply.stop_reason:
        case StopReason.REFUSAL | StopReason.FILTER:
            return Stop(Reason.REFUSED)
        case StopReason.CONTEXT if state.overflowed and room.elision is None:
            return Stop(Reason.CONTEXT_FULL, error=room.full)
        case StopReason.UNKNOWN if state.empties == 0 or state.empties > EMPTIES_ALLOWED:
            return Stop(Reason.UNKNOWN_STOP)
        case _ if state.cuts > CUTS_ALLOWED:
            return Stop(Reason.OUTPUT_TRUNCATED)
        case _ if state.empties > EMPTIES_ALLOWED:
            return Stop(Reason.EMPTY_REPLY)
        case _ if state.invalids > INVALIDS_ALLOWED:
            return Stop(Reason.INVALID_OUTPUT, error=state.misfit)
        case _ if state.stall.repetitions >= END_AT:
            return Stop(Reason.STALLED)
        case _:
            return None


def _begin(state: RunState, room: Room) -> Move:
    """Begin a step, or the hand-back, or end at the limit."""
    # First of all: room is what a limit, and a hand-back, may lack.
    if room.elision is not None and not state.paused:
        return Elide(room.elision)
    limit = state.denied or room.limit
    if limit is None:
        if room.full is not None:
            return Stop(Reason.CONTEXT_FULL, error=room.full)
        return Ask() if state.paused else Ask((*_notes(state, room), *room.marks))
    # Once, and not again before something was done after it.
    if room.closing and state.reply is not None and not state.reply.closing and not state.paused:
        return Ask((_closing_note(limit),), closing=limit)
    return Stop(limit.reason, limit.whose)


def _notes(state: RunState, room: Room) -> tuple[Noted, ...]:
    """What the harness tells the model before this step, in a fixed order."""
    notes: list[Noted] = []
    if state.untold is not None:
        notes.append(Noted(state.untold, _UNTOLD.get(state.untold) or state.misfit or _CONTINUE))
    if state.stall.repetitions >= TELL_AT and not state.stall.told:
        notes.append(Noted("stall", _STALL))
    last = state.transcript.last
    answered_last = last is not None and last.role == "assistant"
    if answered_last and not notes and not room.queued:
        notes.append(Noted("continue", _CONTINUE))
    return tuple(notes)


def _closing_note(limit: Limit) -> Noted:
    return Noted(f"closing:{limit}", _CLOSING.format(_LIMIT_WORDS[limit.reason]))


_UNTOLD = {
    "cut": "Your reply was cut off by the output limit, and none of its tool calls ran. "
    "Go on in smaller parts.",
    "context": "Your reply was cut off because the context was full, and none of its tool calls ran. "
    "Old results were elided to make room: go on.",
    "empty": "Your reply was empty. Call a tool or answer in text.",
}
_STALL = (
    "You have now made the same calls with the same results three times. "
    "Repeating them again will end the run: do something else, or answer with what you have."
)
_CONTINUE = "Go on with the task."
_CLOSING = (
    "{} No more tools will be run. Answer now, with what you have; say what is done and what is "
    "still open."
)
_LIMIT_WORDS = {
    Reason.STEP_BUDGET: "The step limit of this task is reached.",
    Reason.TOKEN_BUDGET: "The token limit of this task is reached.",
    Reason.COST_BUDGET: "The cost limit of this task is reached.",
    Reason.CALL_BUDGET: "The limit on tool calls of this task is reached.",
    Reason.DEADLINE: "The time for this task is nearly over.",
}
