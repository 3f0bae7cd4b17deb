"""What lets one call in, before its body is entered: filters, the policy, an approval or a standing grant (C8, E5, E9).

A `Clearance` is asked when its call is judged, and again when the call is about to begin: between the two it may
have waited long for another call, a guard or a resource. What let it in may be over by then, taken back, or be
something that the policy sees in another light. A call that is not let in any more goes back to where it was judged.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeAlias

from remit.canonical import canonical
from remit.dispatch.approval import approved, edited_from, propose, wanted_by
from remit.dispatch.results import Result, said
from remit.dispatch.standing import grant_for, record_grant, still_stands
from remit.messages import Status
from remit.pending import Allow, Confirm, Policy, PolicyRequest, Refuse, Verdict
from remit.run import Run
from remit.state import CallState
from remit.store.grants import Grant
from remit.supervise import Ending, Raised, Returned
from remit.tools import Arguments, Tool

__all__ = ["Clearance"]

MAX_PLAIN_CHARS = 1_000
"""Of the arguments that stand in for a summary that failed."""

Ask: TypeAlias = Callable[[Callable[[], Any], str], Awaitable[Ending | None]]
"""Runs code of the host's under supervision, by name; None where it did not come in time."""


class Clearance:
    """What one call with these arguments needs, and what it has of it."""

    __slots__ = (
        "_arguments",
        "_as_edited",
        "_call",
        "_grant",
        "_run",
        "_tool",
        "_verdict",
        "refused",
    )

    def __init__(
        self, run: Run, call: CallState, tool: Tool[..., Any], arguments: Arguments
    ) -> None:
        self._run = run
        self._call = call
        self._tool = tool
        self._arguments = arguments
        self._verdict: Verdict = Allow()
        self._as_edited = False
        """The policy says of what was shown what it said then: an edit of that is approved as edited."""
        self._grant: Grant | None = None
        """The standing grant that covers it."""
        self.refused: Result | None = None
        """What the call comes to where a filter or the policy turned it away."""

    # The host's own rules

    async def judge(self, ask: Ask) -> bool:
        """Ask the filters and the policy. False where one of them did not say in time."""
        return await self._ask_filters(ask) and (
            self.refused is not None or await self._ask_policy(ask)
        )

    async def _ask_filters(self, ask: Ask) -> bool:
        """Whether every filter that let the tool into the list lets it be called (C8)."""
        name = self._tool.name
        for condition in self._tool.conditions:
            ending = await ask(condition, f"filter {name}")
            if ending is None:
                return False
            if not (isinstance(ending, Returned) and ending.value is True):
                self.refused = said(f"Not run: {name} is not available now.", Status.REFUSED)
                break
        return True

    async def _ask_policy(self, ask: Ask) -> bool:
        policy = self._run.config.policy
        if policy is None:
            return True
        verdict = await self._judged(policy, self._arguments, ask)
        if verdict is None:
            return False
        self._verdict = verdict
        if isinstance(verdict, Refuse):
            self.refused = said(f"Refused by policy: {verdict.why}", Status.REFUSED)
            return True
        shown = edited_from(self._call, wanted_by(self._tool, verdict))
        if shown is not None:
            self._as_edited = await self._says_as_before(policy, shown, ask)
        return True

    async def _says_as_before(self, policy: Policy, shown: str, ask: Ask) -> bool:
        """Whether the policy says of what was put up for decision what it said then."""
        prepared, proposal = self._run.prepare(self._call.use, shown), self._call.proposal
        if not isinstance(prepared, tuple) or proposal is None:
            return False
        verdict = await self._judged(policy, prepared[1], ask)
        return verdict is not None and wanted_by(self._tool, verdict) == proposal.wanted_by

    async def _judged(self, policy: Policy, arguments: Arguments, ask: Ask) -> Verdict | None:
        """What the policy says of a call with these arguments; None where it did not say in time."""
        request = PolicyRequest(
            tool=self._tool.name,
            arguments=copy.deepcopy(arguments.given),  # what it changes must not run
            effect=self._tool.effect,
            deps=self._run.deps,
            run_id=self._run.state.run_id,
        )
        match await ask(lambda: policy(request), "policy"):
            case Returned(Allow() | Refuse() | Confirm() as verdict):
                return verdict
            case Returned(other):
                return Refuse(f"it returned {type(other).__name__}, which is no verdict")
            case Raised():
                return Refuse("it could not be evaluated")
            case None:
                return None

    # What stands for a person's yes

    @property
    def lacks(self) -> str | None:
        """What wants an approval that is not there at this moment; None where nothing does."""
        wanted = wanted_by(self._tool, self._verdict)
        if wanted is None:
            return None
        if self._grant is not None and self._grant.expires_at > self._run.clock.utc():
            return None
        if approved(self._call, self._tool, wanted, as_edited=self._as_edited):
            return None
        return wanted

    async def look_for_grant(self) -> None:
        """Find a standing grant that covers the call, where nobody is asked yet. Errors: `JournalError`."""
        self._grant = await grant_for(self._run, self._call, self._tool, self._arguments)

    async def still_holds(self) -> bool:
        """Whether what lets it in is neither over nor taken back: a yes given in time holds, a grant may not.

        Errors: `JournalError`.
        """
        if self.lacks is not None:
            return False
        grant = self._grant
        return grant is None or (await still_stands(self._run, grant) and self.lacks is None)

    @property
    def granted_until(self) -> datetime | None:
        """Where it is a standing grant that lets it in: until when."""
        return None if self._grant is None else self._grant.expires_at

    def record_grant(self) -> None:
        """Write down which grant lets it in, with the row that says that it begins."""
        if self._grant is not None:
            record_grant(self._run, self._call, self._grant)

    # Asking a person

    def is_proposed(self, wanted: str) -> bool:
        """Whether a proposal for just this is open."""
        call = self._call
        return (
            call.proposal is not None
            and call.proposal.wanted_by == wanted
            and call.open_at(self._run.clock.utc())
        )

    async def propose(self, wanted: str, ask: Ask) -> None:
        """Put the call up for decision."""
        summary = await self._summary(ask)
        propose(self._run, self._call, self._tool, self._arguments, wanted=wanted, summary=summary)

    async def _summary(self, ask: Ask) -> str:
        """What the person who decides is shown; it says so where an equal call is in doubt."""
        if isinstance(self._verdict, Confirm):
            text = self._verdict.summary
        else:
            text = await self.in_words(ask)
        if self._call.repeats:
            text += " (An equal call may already have taken effect: its outcome is unknown.)"
        return text

    async def in_words(self, ask: Ask) -> str:
        """The call as its author puts it, or plainly where that fails."""
        # The summary gets arguments of its own: what it changes must not run.
        tool = self._tool
        read = tool.read_arguments(self._call.arguments)
        shown = read if isinstance(read, Arguments) else self._arguments
        ending = await ask(lambda: tool.summarise(tool.shown(shown)), f"summary {tool.name}")
        plain = f"{tool.name}({canonical(tool.masked(self._arguments.given))})"[:MAX_PLAIN_CHARS]
        return ending.value if isinstance(ending, Returned) else plain
