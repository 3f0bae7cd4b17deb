"""From a state to an `Outcome`: the same for a run that ends now and for one that ended long ago."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from remit.amounts import Spend, Totals
from remit.artifacts import HANDLE_PREFIX
from remit.dispatch.outside import left_open
from remit.dispatch.person import pending_of
from remit.messages import Status, Text
from remit.outcome import Outcome, Reason
from remit.past import goes_on_from, past_of
from remit.pending import Pending
from remit.rows import Row, decode_row
from remit.slots import Slot
from remit.state import RunState, tools_own
from remit.store.base import Journal
from remit.store.filling import fill_all
from remit.store.origin import Origin
from remit.tools import BadArguments
from remit.transcript import Transcript

if TYPE_CHECKING:
    from remit.tools.output import OutputSpec

__all__ = [
    "handed_in",
    "outcome_of",
    "pendings_of",
    "read_on",
    "read_state",
    "stored_outcome",
]


async def read_state(store: Journal, run_id: str, *, before: Transcript | None = None) -> RunState:
    """Rebuild a state from its rows, and those of the runs of its session that it goes on from.

    `before` is what it goes on from, where that is known; it is the state's own from now on.
    Errors: `JournalError`.
    """
    rows = await _read_rows(store, run_id)
    earlier = goes_on_from(rows)
    if earlier is not None and before is None:
        before = (await past_of(store, earlier)).transcript
    return _kept(store, RunState(run_id, rows, before))


async def read_on(store: Journal, state: RunState) -> RunState:
    """The state with the rows that were written since. Errors: `JournalError`; the state is of no use then."""
    for row in await _read_rows(store, state.run_id, state.rows - 1):
        state.apply(row)
    return _kept(store, state)


def _kept(store: Journal, state: RunState) -> RunState:
    """Its transcript, and so that of its outcome, knows where its artifacts are."""
    state.transcript.keep_origin(Origin(store, state.run_id))
    return state


async def _read_rows(store: Journal, run_id: str, after: int = -1) -> Sequence[Row]:
    stored = await store.read(run_id, after)
    return await fill_all(store, run_id, [decode_row(row.kind, row.body) for row in stored])


def outcome_of(
    state: RunState,
    reason: Reason,
    *,
    whose: str | None = None,
    error: str | None = None,
    pending: tuple[Pending, ...] = (),
    spec: OutputSpec | None = None,
    whole: str | None = None,
) -> Outcome[Any]:
    """What a state amounts to. The transcript is a closed copy, valid at once (T2).

    `spec` is what the run was to hand in; None: text. `whole` is what `handed_in` gives, where it was asked.
    """
    handed_in = "" if state.handed_in is None else whole or state.handed_in.text
    output: Any = None
    if reason is Reason.COMPLETED:
        output = (handed_in or state.text) if spec is None else _typed(state, spec)
        if isinstance(output, BadArguments):  # the type is another one than when the run ended
            output, error = None, f"the output of this run is none of output=: {output.message}"
    return Outcome(
        run_id=state.run_id,
        reason=reason,
        whose=whose,
        text=state.text or handed_in,
        output=output,
        transcript=state.transcript.closed(_left_open(state)),
        spend=_spend(state),
        pending=pending,
        error=error,
        steps=state.steps,
        prefix_breaks=state.breaks.copy(),
        session=state.opened.session,
    )


def _typed(state: RunState, spec: OutputSpec) -> Any:
    """The typed output; None where something else ended the run."""
    return None if state.output is None else spec.read(state.output)


async def handed_in(store: Journal, state: RunState) -> str | None:
    """What the call that ended the run came to, whole: of a long result the model was shown an excerpt."""
    came = state.handed_in
    result = None if came is None else came.result
    if came is None or result is None or not result.kept:
        return None
    parts = {at: block for at, block in enumerate(result.content) if isinstance(block, Text)}
    for kept in result.kept:
        if kept.form in ("text", "json"):
            artifact = await store.artifact(state.run_id, kept.artifact.removeprefix(HANDLE_PREFIX))
            if artifact is not None:
                parts[kept.at] = Text(artifact.text)
    return tools_own([parts[at] for at in sorted(parts)], came.words)


async def stored_outcome(
    store: Journal, state: RunState, spec: OutputSpec | None = None
) -> Outcome[Any]:
    """The outcome of a run that nobody executes now: as it ended, or waiting."""
    ended = state.ended
    if ended is not None:
        return outcome_of(
            state,
            Reason(ended.reason),
            whose=ended.whose,
            error=ended.error,
            spec=spec,
            whole=await handed_in(store, state),
        )
    return outcome_of(state, Reason.WAITING, pending=await pendings_of(store, state))


async def pendings_of(store: Journal, state: RunState) -> tuple[Pending, ...]:
    """What an idle run waits for, in call order; for a call that waits for a child, the child's."""
    found: list[Pending] = []
    for call in state.calls:
        if call.settled:
            continue
        if call.awaits is not None:
            found.extend(await pendings_of(store, await read_state(store, call.awaits)))
        elif call.pending is not None:
            found.append(pending_of(state.run_id, state.opened.path, call))
    return tuple(found)


def _left_open(state: RunState) -> Any:
    """The words for slots that a waiting run leaves open: nothing ran, unless it was started."""
    calls = {call.use.id: call for call in state.calls}

    def words(slot: Slot) -> tuple[str, Status]:
        call = calls[slot.use.id]
        asks = left_open(call)
        if asks is not None:
            return asks
        if call.started is None or call.awaits:
            return "Left pending: it waits for a decision and has not run.", Status.NOT_STARTED
        return "Interrupted: it may have taken effect.", Status.UNKNOWN

    return words


def _spend(state: RunState) -> Spend:
    def timed(totals: Totals) -> Totals:
        return msgspec.structs.replace(totals, seconds=state.seconds)

    return Spend(timed(state.own), timed(state.tree), state.overshoot, state.estimated)
