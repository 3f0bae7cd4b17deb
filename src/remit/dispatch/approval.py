"""Approvals: what asks for one, whether the one given still covers the call, and asking a person (E5)."""

from __future__ import annotations

import contextlib
import secrets
from datetime import datetime
from typing import Any

from remit.canonical import arguments_hash, canonical
from remit.errors import DecisionError
from remit.log import LOGGER
from remit.pending import TOKENS, Confirm, Decision, Pending, Verdict, mint_token, token_hash
from remit.render import error_words
from remit.rows import Proposed
from remit.run import Run, write_decision
from remit.state import CallState
from remit.store.base import NewProposal
from remit.supervise import Ending, Raised, Returned, arrived, contained, give_up
from remit.tools import Arguments, Effect, Tool

__all__ = ["approved", "ask_person", "pending_of", "propose", "wanted_by"]

_BY_EFFECT = "effect"


def wanted_by(tool: Tool[..., Any], verdict: Verdict) -> str | None:
    """What asks for an approval: the policy in its words, the tool's effect, or nothing."""
    if isinstance(verdict, Confirm):
        return f"policy:{verdict.summary}"
    return _BY_EFFECT if tool.effect is Effect.CONFIRM else None


def approved(call: CallState, wanted: str) -> bool:
    """Whether the call has an approval that covers what is wanted now.

    A policy that has come to want one, or words it differently, is stricter than what was approved. What
    the person edited is approved as edited.
    """
    decision, proposal = call.decision, call.proposal
    if decision is None or proposal is None or not decision.approve:
        return False
    if wanted in (_BY_EFFECT, proposal.wanted_by):
        return True
    return decision.edit is not None and proposal.wanted_by != _BY_EFFECT


def propose(
    run: Run,
    call: CallState,
    tool: Tool[..., Any],
    arguments: Arguments,
    *,
    wanted: str,
    summary: str,
) -> None:
    """Put the call up for decision. It becomes decidable with the next commit."""
    pending_id = secrets.token_hex(10)  # runs of the same id in two stores share nothing
    token = TOKENS[pending_id] = mint_token()
    expires_at = run.clock.utc(after=tool.expires)
    shown = canonical(tool.masked(arguments.given))
    run.record.write(
        Proposed(call.use.id, pending_id, summary, shown, expires_at.isoformat(), wanted)
    )
    run.record.propose(
        NewProposal(pending_id, token_hash(token), arguments_hash(arguments.given), expires_at)
    )
    run.emit("pending", {"id": pending_id, "tool": tool.name, "summary": summary})


def pending_of(run_id: str, path: tuple[str, ...], call: CallState) -> Pending:
    """The pending that an open proposal stands for, with its token if this process minted it."""
    proposal = call.proposal
    if proposal is None:
        raise ValueError("only a call with a proposal is pending")
    return Pending(
        id=proposal.pending_id,
        kind="approval",
        run_id=run_id,
        path=path,
        tool=call.use.name,
        arguments=proposal.arguments,
        summary=proposal.summary,
        token=TOKENS.get(proposal.pending_id),
        expires_at=datetime.fromisoformat(proposal.expires_at),
    )


async def ask_person(run: Run, call: CallState) -> bool:
    """Ask the `confirm` callback about an open proposal and record what it decides.

    The clock of the run stands still meanwhile (L4). Returns whether there is a decision now; without
    one the proposal stays open.
    Errors: `JournalError`.
    """
    ask = run.confirm
    if ask is None:
        return False
    call.ask_again = False
    await run.record.commit()
    pending = pending_of(run.state.run_id, run.state.opened.path, call)
    expires = run.loop.time() + (pending.expires_at - run.clock.utc()).total_seconds()
    task = contained(lambda: ask(pending), name=f"confirm {pending.tool}", halt=run.halt)
    run.clock.pause()
    try:
        until = min(expires, run.clock.calendar_end)
        came = await arrived(task, until=until, halt=run.halt)
    finally:
        run.clock.unpause()
    ending = task.result() if came else await give_up(task, grace=run.grace, halt=run.halt)
    if not came or not isinstance(ending, Returned) or not isinstance(ending.value, Decision):
        call.unanswered = True
        if came:
            _tell_of(run, pending, ending)
        return False
    # Somebody else may have been first: what they decided lies in the inbox.
    with contextlib.suppress(DecisionError):
        await run.record.store.decide(
            pending_id=pending.id, decision=write_decision(ending.value), now=run.clock.utc()
        )
    TOKENS.pop(pending.id, None)
    await run.hear(poll=True)
    return call.decision is not None or call.withdrawn


def _tell_of(run: Run, pending: Pending, ending: Ending | None) -> None:
    """The callback decided nothing: the proposal stays open, and whoever wrote the callback hears why."""
    match ending:
        case Raised(error):
            why = error_words(error)
        case Returned(value):
            why = f"it returned {type(value).__name__}, not a Decision(approve, by)"
        case None:
            why = "it did not end"
    LOGGER.warning("run %s: the confirm callback decided nothing", run.state.run_id)
    run.emit("confirm_failed", {"id": pending.id, "tool": pending.tool, "error": why})
