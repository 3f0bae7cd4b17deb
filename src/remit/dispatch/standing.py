"""Standing grants at the gate: whether somebody has approved in advance what a call is about to do (C8, E5).

A grant stands where an approval would: it lifts `effect="confirm"` and a policy's `Confirm`. A policy that refuses
has refused before anybody comes here. What was put before a person stays with people, and so does a call that may
have taken effect already: nobody who gave a grant had that in mind.
"""

from __future__ import annotations

from remit.rows import Granted
from remit.run import Run
from remit.state import CallState
from remit.store.grants import Grants
from remit.tools import Arguments, Tool

__all__ = ["granted"]


async def granted(run: Run, call: CallState, tool: Tool[..., object], arguments: Arguments) -> bool:
    """Whether a grant that counts now covers the call; the journal says which. Errors: `JournalError`."""
    store = run.record.store
    doubtful = call.repeats or call.started is not None
    if doubtful or call.proposal is not None or not isinstance(store, Grants):
        return False
    now, run_id = run.clock.utc(), run.state.run_id
    for grant in await store.grants(run.config.name, tool.name):
        if grant.expires_at > now and grant.covers(
            arguments.given, run_id=run_id, session=run.state.opened.session
        ):
            run.record.write(Granted(call.use.id, grant.id, grant.by))
            run.emit(
                "granted",
                {
                    "grant": grant.id,
                    "by": grant.by,
                    "call": call.use.id,
                    "tool": tool.name,
                    "key": call.key,
                },
            )
            return True
    return False
