"""What a run waits for, as whoever decides it has to see it: found by its id, read from the rows of its run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from remit.activation import outermost
from remit.analysis.cells import one_line, visible
from remit.analysis.figures import span
from remit.analysis.layout import Glyphs, Row, headed, noted, quoted
from remit.analysis.times import ago, moment
from remit.cli.exits import NotFound
from remit.dispatch.person import pending_of
from remit.errors import ConfigurationError, DecisionError, JournalError
from remit.pending import Pending
from remit.report import read_state
from remit.rows import Settled, Started, decode_row
from remit.state import CallState, RunState
from remit.store.base import Journal
from remit.store.proposals import OpenProposal, Proposals

__all__ = [
    "Asking",
    "Came",
    "Case",
    "came_of",
    "case_document",
    "case_named",
    "open_cases",
    "rows_of_case",
]

_CANDIDATES: Final = 10
"""So many are listed of those that the beginning of an id may mean."""


class Asking(Journal, Proposals, Protocol):
    """A store that can be asked what is open."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is waited for, and what surrounds it."""

    pending: Pending
    call: str
    """The id of the call in its transcript."""
    key: str | None
    """Under which it is executed, once; of an approval that changes the arguments, another one."""
    effect: str
    """What running it twice would do."""
    asked_at: datetime | None
    last_words: str
    """What the model said last."""
    root: str
    """The run to resume: the outermost around it."""

    @property
    def expired(self) -> bool:
        """Nobody can decide it any more: resumed, its run asks anew, or goes on without."""
        return self.pending.expires_at <= datetime.now(UTC)


async def case_named(store: Asking, named: str, *, whole: bool) -> Case:
    """What an id means, or the beginning of one where `whole` is not asked for.

    Errors: `NotFound`; `DecisionError` for what is open no more; `ConfigurationError` where several fit.
    """
    if not named:
        raise ConfigurationError("name what is decided by its id: remit approvals lists them")
    found = await store.open_proposals(prefix=named, count=_CANDIDATES + 1)
    exact = [each for each in found if each.pending_id == named]
    if not exact and whole and found:
        raise ConfigurationError(
            f"{named} is only the beginning of an id; where nobody is asked it is written in full: "
            f"{_listed(found)}"
        )
    fitting = exact or found
    if len(fitting) > 1:
        raise ConfigurationError(f"{named} may be any of {_listed(fitting)}: write more of it")
    if not fitting:
        if await store.proposal(named) is not None:
            raise DecisionError(
                "used", f"{named} is open no more: it was decided or withdrawn, or its run ended"
            )
        raise NotFound(f"nothing that is waited for is named {named!r}: remit approvals lists it")
    case = await _case(store, fitting[0], await read_state(store, fitting[0].run_id))
    if case is None:
        raise DecisionError(
            "stale", f"{fitting[0].pending_id}: the call that asked has gone on without it"
        )
    return case


async def open_cases(store: Asking, *, count: int) -> list[Case]:
    """Everything that is waited for, over all runs; the longest first."""
    states: dict[str, RunState | None] = {}
    cases: list[Case] = []
    for proposal in await store.open_proposals(count=count):
        if proposal.run_id not in states:
            states[proposal.run_id] = await _readable(store, proposal.run_id)
        state = states[proposal.run_id]
        case = None if state is None else await _case(store, proposal, state)
        if case is not None:
            cases.append(case)
    return sorted(
        cases, key=lambda case: (case.asked_at or case.pending.expires_at, case.pending.id)
    )


class Came(msgspec.Struct, frozen=True):
    """What became of a call."""

    result: Settled | None
    """None as long as it has none."""
    begun: bool
    """Its body was entered, or about to be."""


async def came_of(store: Journal, case: Case) -> Came:
    """What became of the call that asked. Errors: `JournalError`."""
    result: Settled | None = None
    begun = False
    for stored in await store.read(case.pending.run_id):
        if stored.kind in {Settled.kind, Started.kind}:
            row = decode_row(stored.kind, stored.body)
            if isinstance(row, Settled) and row.tool_use_id == case.call:
                result = row
            begun = begun or (isinstance(row, Started) and row.tool_use_id == case.call)
    return Came(result, begun)


def rows_of_case(case: Case, glyphs: Glyphs, columns: int | None) -> list[Row]:
    """All that a person has to know before deciding: exactly what will run, and who says what."""
    pending = case.pending
    now = datetime.now(UTC)
    effect = [f"effect {case.effect}"] if case.effect else []
    facts = [" > ".join(one_line(name) for name in pending.path), *effect, one_line(pending.id)]
    rows = headed("waiting", _WHAT[pending.kind], f" {glyphs.dot} ".join(facts), glyphs, columns)
    rows += _quoted(pending.summary, glyphs, columns)
    arguments = msgspec.json.format(pending.arguments, indent=2)
    call = pending.arguments if arguments.count("\n") < 2 else arguments
    rows += _quoted(f"{pending.tool}  {call}", glyphs, columns)
    told = [f"run {one_line(pending.run_id)}"]
    if case.key is not None:
        told.append(f"call {one_line(case.key)}")
    if case.asked_at is not None:
        told.append(f"asked {moment(case.asked_at)}, {ago(case.asked_at, now)}")
    left = (pending.expires_at - now).total_seconds()
    told.append(
        f"expires {moment(pending.expires_at)}"
        + (f", in {span(left)}" if left > 0 else ": its time is over")
    )
    for fact in told:
        rows += noted(fact, glyphs, columns)
    if case.last_words:
        rows += noted("the model's words:", glyphs, columns)
        rows += _quoted(case.last_words, glyphs, columns)
    return rows


def case_document(case: Case) -> dict[str, Any]:
    """A case, for programs. The token that decides is not in it."""
    pending = case.pending
    return {
        "id": pending.id,
        "kind": pending.kind,
        "run_id": pending.run_id,
        "resume": case.root,
        "path": list(pending.path),
        "tool": pending.tool,
        "effect": case.effect or None,
        "key": case.key,
        "summary": pending.summary,
        "arguments": pending.arguments,
        "arguments_hash": pending.arguments_hash,
        "schema": pending.schema,
        "asked_at": None if case.asked_at is None else case.asked_at.isoformat(),
        "expires_at": pending.expires_at.isoformat(),
        "expired": case.expired,
    }


_WHAT: Final = {
    "approval": "needs your decision",
    "input": "asks you",
    "result": "waits for its result",
}


async def _case(store: Asking, proposal: OpenProposal, state: RunState) -> Case | None:
    """None where the rows of the run say that it is not waited for any more."""
    call = state.waiting_for(proposal.pending_id)
    if call is None:
        return None
    return Case(
        pending=pending_of(state.run_id, state.opened.path, call),
        call=call.use.id,
        key=call.key,
        effect=call.effect,
        asked_at=_asked_at(call),
        last_words=_last_words(state),
        root=await outermost(store, state.run_id),
    )


async def _readable(store: Journal, run_id: str) -> RunState | None:
    """None for what was erased or is damaged: the list of the others is worth more than an error."""
    try:
        return await read_state(store, run_id)
    except JournalError:
        return None


def _asked_at(call: CallState) -> datetime | None:
    at = None if call.pending is None else call.pending.at
    return datetime.fromisoformat(at) if at else None


def _last_words(state: RunState) -> str:
    for message in reversed(tuple(state.transcript)):
        if message.role == "assistant" and message.text.strip():
            return message.text.strip()
    return ""


def _quoted(text: str, glyphs: Glyphs, columns: int | None) -> list[Row]:
    return quoted(visible(text), glyphs, columns)


def _listed(found: Sequence[OpenProposal]) -> str:
    shown = ", ".join(each.pending_id for each in found[:_CANDIDATES])
    return shown + (" and others" if len(found) > _CANDIDATES else "")
