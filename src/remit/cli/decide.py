"""`remit approve` and `remit reject`: decide what a run waits for, once, and have it go on.

What is approved is what was shown: the decision names the hash of the arguments that stood there, and counts for
nothing where the call has others by now. Of two who decide one is told that the other was first.
"""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from remit.cli import exits
from remit.cli.cases import Case
from remit.cli.deciding import Act, carry_out, find, find_and_ask
from remit.cli.options import Again, Display, StoreFlag
from remit.cli.prompts import login
from remit.cli.run import refuse_contradictions
from remit.cli.stores import opened
from remit.cli.streams import own_stdout
from remit.cli.targets import AnyRemit
from remit.pending import PendingKind

__all__ = ["approve", "reject"]

_APPROVALS: Final = frozenset[PendingKind]({"approval"})
_ID: Final = Parameter(metavar="ID")
_NAME: Final = Parameter(metavar="NAME")


def approve(
    pending: Annotated[str, _ID],
    /,
    *others: Annotated[str, _ID],
    yes: bool = False,
    reason: Annotated[str, Parameter(metavar="TEXT")] = "",
    by: Annotated[str | None, _NAME] = None,
    no_resume: bool = False,
    again: Again = Again(),
    store: StoreFlag = None,
    json: bool = False,
    display: Display = Display(),
) -> int:
    """Approve calls that wait for it: see exactly what will run, say yes, and have their runs go on.

    Several are shown together and asked about once; each is decided on its own, and exit code 4 says that one could not be.

    Args:
        pending: What is approved, by its id or, on a terminal, the beginning of it: remit approvals lists them.
        others: More of them.
        yes: Do not ask. Ids are written in full then.
        reason: Why, for the record.
        by: Who approves, for the record; without it your login name.
        no_resume: Only approve; remit resume goes on.
        json: Answer with one JSON document: what was decided, what was executed, the outcome.
    """
    named = tuple(dict.fromkeys((pending, *others)))
    refuse_contradictions(display)
    with own_stdout() as streams, opened(store) as kept_in:
        act = Act(
            streams, store, again, display, json=json, resumes=not no_resume, alone=len(named) == 1
        )
        cases = find_and_ask(kept_in, named, act, _APPROVALS, asks=not yes)
        if cases is None:
            return exits.CHECK_FAILED
        who = by or login()

        async def decide(remit: AnyRemit, case: Case) -> None:
            asked = case.pending
            await remit.decide(
                id=asked.id, approve=True, by=who, note=reason, arguments_hash=asked.arguments_hash
            )

        return carry_out(act, kept_in, cases, decide, {"decision": "approved", "by": who})


def reject(
    pending: Annotated[str, _ID],
    /,
    *others: Annotated[str, _ID],
    reason: Annotated[str, Parameter(metavar="TEXT")] = "",
    by: Annotated[str | None, _NAME] = None,
    no_resume: bool = False,
    again: Again = Again(),
    store: StoreFlag = None,
    json: bool = False,
    display: Display = Display(),
) -> int:
    """Refuse calls that wait for approval, and have their runs go on without them; of several, each on its own.

    Args:
        pending: What is refused, by its id or, on a terminal, the beginning of it: remit approvals lists them.
        others: More of them.
        reason: Why, in words for the model.
        by: Who refuses, for the record; without it your login name.
        no_resume: Only refuse; remit resume goes on.
        json: Answer with one JSON document: what was decided, the outcome.
    """
    named = tuple(dict.fromkeys((pending, *others)))
    refuse_contradictions(display)
    with own_stdout() as streams, opened(store) as kept_in:
        act = Act(
            streams, store, again, display, json=json, resumes=not no_resume, alone=len(named) == 1
        )
        cases = find(kept_in, named, act, _APPROVALS)
        who = by or login()

        async def decide(remit: AnyRemit, case: Case) -> None:
            await remit.decide(id=case.pending.id, approve=False, by=who, note=reason)

        return carry_out(act, kept_in, cases, decide, {"decision": "rejected", "by": who})
