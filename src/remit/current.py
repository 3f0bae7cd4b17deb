"""The call that is being executed here: how a run inside a tool body finds its parent.

A context variable, set by the dispatcher in the context of the body (and of its thread) and nowhere
else. `run` and `stream` look at it and become children of that call: its account, its deadline, its
cancellation (L3, K3).
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal

from remit.budget import ZERO, Amount, Budget, Exhausted, Limits, Totals
from remit.events import Listener
from remit.messages import Usage
from remit.pending import ConfirmCallback
from remit.resources import Path
from remit.store.base import Journal
from remit.supervise import Halt, HaltCause

__all__ = ["CURRENT", "Frame"]


@dataclass(slots=True, kw_only=True)
class Frame:
    """One call in execution, as the runs inside it see it."""

    key: str
    run_id: str
    names: tuple[str, ...]
    """Names of the remits from the root down to the run of this call."""
    budget: Budget
    """The account of the run of this call."""
    store: Journal
    until: float
    """When the call is cut, on the event loop's clock."""
    whose_time: str
    """The account whose clock that is."""
    settle_seconds: float
    """How long before `until` a run inside should be over, so that it ends by itself."""
    path: Path
    listeners: tuple[Listener, ...]
    confirm: ConfirmCallback | None
    recorded: Totals
    """What the journal of this call's run already says was spent inside."""
    over: bool = False
    """The call has its result: nothing may start inside it any more."""
    detaching: bool = False
    """The run around is being detached: a cancellation of its bodies means just that."""
    halts: list[Halt] = field(default_factory=list[Halt])
    """How to stop the runs inside."""
    charged: tuple[Decimal, int] | None = None
    """US dollars and tokens that the body booked itself; None where it booked nothing."""
    _accounts: list[Budget] = field(default_factory=list[Budget])
    _numbered: dict[str, int] = field(default_factory=dict[str, int])
    _unclaimed: Totals | None = None

    def child_id(self, name: str, digest: str) -> str:
        """The id of the next run inside this call that asks `name` for this: the same after a crash."""
        stem = f"{self.key}/{name}.{digest[:8]}"
        count = self._numbered[stem] = self._numbered.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}.{count}"

    def adopt(
        self,
        name: str,
        limits: Limits,
        own: Totals,
        tree: Totals,
        *,
        estimated: int,
        reserve: bool = False,
    ) -> Budget | Exhausted:
        """Open the account of a run inside, which may have spent before.

        What it spent and no journal above knows (a crash came between) is charged above it now.
        `reserve` sets the whole share of the account aside; where that cannot be had nothing is opened.
        """
        known = self.recorded if self._unclaimed is None else self._unclaimed
        new = _beyond(tree, known)
        # What is charged below comes out of the share, so that must be there too.
        aside = self.budget.reserve(limits.share(_beyond(tree, new))) if reserve else None
        if isinstance(aside, Exhausted):
            return aside
        account = Budget(name, limits, parent=self.budget, aside=aside)
        self._unclaimed = _beyond(known, tree)
        if new != Totals():
            account.recall(new.amount, new.usage)
        account.restore(own, tree, estimated=estimated)
        self._accounts.append(account)
        return account

    def charge(self, usd: Decimal, tokens: int) -> None:
        """Book what the body spent itself."""
        if self.over:
            self.budget.charge(Amount(usd=usd, tokens=tokens))
            return
        before = self.charged or (Decimal(0), 0)
        self.charged = (before[0] + usd, before[1] + tokens)

    @property
    def spent_inside(self) -> Totals | None:
        """What the runs inside spent and the journal does not know yet; None where there were none."""
        if not self._accounts:
            return None
        total = Totals()
        for account in self._accounts:
            total += account.spend.tree
        return _beyond(total, self.recorded)

    @property
    def overshoot_inside(self) -> Amount:
        """What of it was beyond what was reserved."""
        return sum((account.spend.overshoot for account in self._accounts), ZERO)

    def halt(self, cause: HaltCause | None) -> None:
        """Stop every run inside: those of a detached run are detached too, so that they stay resumable."""
        self.detaching = cause == "detached"
        for halt in self.halts:
            halt.set_threadsafe("detached" if self.detaching else "cancelled")


def _beyond(totals: Totals, known: Totals) -> Totals:
    """What of `totals` is not covered by `known`, part by part; time is not counted here."""
    mine, theirs = totals.usage, known.usage
    return Totals(
        steps=max(0, totals.steps - known.steps),
        calls=max(0, totals.calls - known.calls),
        tokens=max(0, totals.tokens - known.tokens),
        usd=max(Decimal(0), totals.usd - known.usd),
        usage=Usage(
            max(0, mine.input - theirs.input),
            max(0, mine.cache_read - theirs.cache_read),
            max(0, mine.cache_write - theirs.cache_write),
            max(0, mine.output - theirs.output),
            max(0, mine.reasoning - theirs.reasoning),
        ),
    )


CURRENT: ContextVar[Frame | None] = ContextVar("remit.current", default=None)
"""None outside every tool body."""
