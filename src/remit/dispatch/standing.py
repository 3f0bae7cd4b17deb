"""Standing grants at the gate: whether somebody has approved in advance what a call is about to do (C8, E5).

A grant stands where an approval would: it lifts `effect="confirm"` and a policy's `Confirm`. A policy that refuses
has refused before anybody comes here. What was put before a person stays with people, and so does a call that may
have taken effect already: nobody who gave a grant had that in mind.
"""

from __future__ import annotations

from remit.rows import Granted
from remit.run import Run
from remit.state import CallState
from remit.store.grants import Grant, Grants
from remit.tools import Arguments, Tool

__all__ = ["grant_for", "record_grant", "still_stands"]


async def grant_for(
    run: Run, call: CallState, tool: Tool[..., object], arguments: Arguments
) -> Grant | None:
    """A grant that counts now and covers the call. Errors: `JournalError`."""
    store = run.record.store
    # A call whose run inside waited for somebody was begun, and how it stands is known: that is no doubt.
    doubtful = call.repeats or (call.started is not None and (call.child is None or call.under_way))
    if doubtful or call.proposal is not None or not isinstance(store, Grants):
        return None
    now, run_id = run.clock.utc(), run.state.run_id
    for grant in await store.grants(run.config.name, tool.name):
        if grant.expires_at > now and grant.covers(
            arguments.given, run_id=run_id, session=run.state.opened.session
        ):
            return grant
    return None


async def still_stands(run: Run, grant: Grant) -> bool:
    """Whether nobody has revoked it, in whichever process. Errors: `JournalError`."""
    store = run.record.store
    standing = await store.grants(grant.remit, grant.tool) if isinstance(store, Grants) else ()
    return any(each.id == grant.id for each in standing)


def record_grant(run: Run, call: CallState, grant: Grant) -> None:
    """Write and tell which grant lets the call run."""
    run.record.write(Granted(call.use.id, grant.id, grant.by))
    run.emit(
        "granted",
        {
            "grant": grant.id,
            "by": grant.by,
            "call": call.use.id,
            "tool": call.use.name,
            "key": call.key,
        },
    )
