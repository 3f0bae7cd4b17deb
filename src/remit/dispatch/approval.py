"""Approvals: what asks for one, and whether the one given still covers the call (E5)."""

from __future__ import annotations

import secrets
from typing import Any

from remit.canonical import arguments_hash, canonical
from remit.dispatch.person import tell_pending
from remit.pending import Confirm, Verdict, keep_token, mint_token, token_hash
from remit.rows import Proposed
from remit.run import Run
from remit.state import CallState
from remit.store.base import NewProposal
from remit.tools import Arguments, Effect, Tool

__all__ = ["approved", "edited_from", "propose", "wanted_by"]

_BY_EFFECT = "effect"


def wanted_by(tool: Tool[..., Any], verdict: Verdict) -> str | None:
    """What asks for an approval: the policy in its words, the tool's effect, or nothing."""
    if isinstance(verdict, Confirm):
        return f"policy:{verdict.summary}"
    return _BY_EFFECT if tool.effect is Effect.CONFIRM else None


def approved(call: CallState, tool: Tool[..., Any], wanted: str, *, as_edited: bool) -> bool:
    """Whether the call has an approval that covers what is wanted now.

    A policy that has come to want one, or words it differently, is stricter than what was approved, and a tool with
    another schema or effect is another tool. What the person edited is approved as edited where the words differ
    only because of that: `as_edited` says that of what was shown, the policy says what it said (`edited_from`).
    """
    decision, proposal = call.decision, call.proposal
    if decision is None or proposal is None or not decision.approve:
        return False
    if proposal.tool not in ("", tool.fingerprint):
        return False
    if wanted in (_BY_EFFECT, proposal.wanted_by):
        return True
    return as_edited and edited_from(call, wanted) is not None


def edited_from(call: CallState, wanted: str | None) -> str | None:
    """The arguments that were shown to whoever edited them and approved what the policy wants in other words now.

    None where nothing hangs on them.
    """
    decision, proposal = call.decision, call.proposal
    if decision is None or decision.edit is None or proposal is None or not decision.approve:
        return None
    others = wanted is not None and wanted not in (_BY_EFFECT, proposal.wanted_by)
    return call.proposed if others and proposal.wanted_by != _BY_EFFECT else None


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
    token = keep_token(pending_id, mint_token())
    expires_at = run.clock.utc(after=tool.expires)
    shown, binds = canonical(tool.masked(arguments.given)), arguments_hash(arguments.given)
    until, masks = expires_at.isoformat(), binds if tool.has_secrets else ""
    run.record.write(
        Proposed(
            call.use.id,
            pending_id,
            summary,
            shown,
            until,
            wanted,
            binds=masks,
            at=run.clock.utc().isoformat(),
            tool=tool.fingerprint,
        )
    )
    run.record.propose(NewProposal(pending_id, token_hash(token), binds, expires_at))
    tell_pending(run, call, tool, arguments)
