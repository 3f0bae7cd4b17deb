"""What a call asks of outsiders beside an approval: an answer to its body, or to be executed elsewhere.

Both are rows with a pending, made durable before anybody is told; what comes back is a row too. Here are the
words of a call that is left with one of them open. Approvals are `approval.py`'s, asking somebody in process
`person.py`'s.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

from remit.amounts import NOTHING, Totals
from remit.budget import Reservation
from remit.canonical import arguments_hash, canonical
from remit.clock import later
from remit.dispatch.execution import Execution
from remit.dispatch.person import tell_pending
from remit.dispatch.results import Result, said, unknown
from remit.dispatch.telling import told_supplied
from remit.messages import Status
from remit.preview import masking
from remit.rows import HandedOut, Questioned
from remit.run import Run
from remit.state import CallState
from remit.store.base import NewProposal
from remit.supervise import Halt
from remit.tools import Arguments, Tool
from remit.tools.question import Interruption

__all__ = [
    "come_back",
    "cut_off",
    "hand_out",
    "left_open",
    "missed",
    "put_question",
]


def put_question(  # noqa: PLR0917 - what the call is, and how its body ended
    run: Run,
    call: CallState,
    tool: Tool[..., Any],
    arguments: Arguments,
    asked: Interruption,
    execution: Execution,
) -> None:
    """Write down that the body asked, and what it cost. It can be answered from the next commit on."""
    try:
        now = run.clock.utc()
        spent, inside = execution.bill()
    finally:
        execution.refund()
    text = asked.question.text
    shown = masking(text, tool.secrets(arguments.given)) if tool.has_secrets else text
    row = Questioned(
        call.use.id,
        secrets.token_hex(10),
        asked.question.schema,
        text,
        canonical(tool.masked(arguments.given)),
        later(now, tool.expires).isoformat(),
        spent or Totals(),
        inside or NOTHING,
        execution.overshoot,
        asked.place,
        asked.refused,
        "" if shown == text else shown,
        now.isoformat(),
    )
    run.record.write(row)
    # An answer that the asking tool itself did not take: whoever gave it is not asked again at once.
    call.unanswered = bool(asked.refused)
    call.ask_again = run.answer is not None and not call.unanswered
    _propose(run, call, row, tool, arguments)
    if asked.refused:
        fields = {"id": row.pending_id, "tool": call.use.name, "error": asked.refused}
        run.emit("answer_failed", fields)


async def hand_out(
    run: Run,
    call: CallState,
    tool: Tool[..., Any],
    arguments: Arguments,
    *,
    summary: str,
    now: datetime,
    reserved: Reservation,
) -> None:
    """Give the call to whoever executes it elsewhere. Durable before anybody is told. Errors: `JournalError`."""
    spent = Totals(calls=1, tokens=tool.tokens, usd=tool.usd)
    shown = canonical(arguments.given)
    row = HandedOut(
        call.use.id,
        secrets.token_hex(10),
        summary,
        shown,
        later(now, tool.expires).isoformat(),
        spent,
        now.isoformat(),
    )
    reserved.settle(spent.amount)
    run.record.write(row)
    _propose(run, call, row, tool, arguments)
    await run.record.commit(wave=True)


async def come_back(
    run: Run, call: CallState, tool: Tool[..., Any] | None, *, halt: Halt | None
) -> Result | None:
    """What became of a call that was handed out; None while nobody knows. `tool` is None where it is gone."""
    supplied = call.supplied
    if supplied is None:
        return _lost(call, "the conversation went on without it") if call.withdrawn else None
    return await told_supplied(
        run, supplied.value, call.use.name, tool, is_error=supplied.is_error, halt=halt
    )


def missed(call: CallState) -> Result:
    """Nobody came back in time."""
    return _lost(call, "nobody answered in time")


def left_open(call: CallState) -> tuple[str, Status] | None:
    """What a view says of a call that waits for an outsider; None where it is left in another way."""
    if call.handed_out is not None:
        doubt = " and may have taken effect" if call.footprint.writes else ""
        return (
            f"Left pending: it was handed out{doubt}; its result is not here yet.",
            Status.UNKNOWN,
        )
    if call.question is None:
        return None
    if call.footprint.writes:
        return (
            "Left pending: it waits for an answer; what it did before may have taken effect.",
            Status.UNKNOWN,
        )
    return "Left pending: it waits for an answer.", Status.NOT_STARTED


async def cut_off(run: Run, call: CallState) -> Result | None:
    """What becomes of a call that waits for an outsider when its run stops; None where it does not wait for one."""
    if call.handed_out is not None:
        tool = run.config.tools.get(call.use.name)
        return await come_back(run, call, tool, halt=None) or _lost(call, "the run was stopped")
    if call.footprint.writes:
        return None
    if call.question is not None:
        return said("Error: it waited for an answer when the run was stopped.", Status.ERROR)
    if call.answers:
        return said("Error: it had its answer when the run was stopped.", Status.ERROR)
    return None


def _lost(call: CallState, why: str) -> Result:
    if call.footprint.writes:
        return unknown(f"it was handed out, and {why}")
    return said(f"Error: it was handed out, and {why}.", Status.ERROR)


def _propose(
    run: Run,
    call: CallState,
    row: Questioned | HandedOut,
    tool: Tool[..., Any],
    arguments: Arguments,
) -> None:
    shown, expires_at = arguments_hash(arguments.given), datetime.fromisoformat(row.expires_at)

    def told() -> None:
        # After a cancel nothing begins, elsewhere neither (K1).
        if run.halt.cause is None or run.halt.cause == "detached":
            tell_pending(run, call, tool, arguments)

    run.record.propose(NewProposal(row.pending_id, None, shown, expires_at, row.wants), told=told)
