"""The call that is being executed here: how a run inside a tool body finds its parent.

A context variable, set by the dispatcher in the context of the body (and of its thread) and nowhere
else. `run` and `stream` look at it and become children of that call: its account, its deadline, its
cancellation (L3, K3).
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal

from remit.amounts import EXACT, NOTHING, Amount, Bill, Totals
from remit.budget import Budget, Exhausted
from remit.events import Listener
from remit.limits import Limits
from remit.pending import AnswerCallback, ConfirmCallback
from remit.redaction import Redactor
from remit.resources import Path
from remit.store.base import Journal
from remit.supervise import Cancel, Halt, HaltCause

__all__ = ["CURRENT", "Frame"]


@dataclass(slots=True, kw_only=True)
class Frame:
    """One call in execution, as the runs inside it see it."""

    key: str
    caller: str
    """Names this call and no other; a repeat has the key of the call that it repeats."""
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
    answer: AnswerCallback | None
    redact: Redactor | None
    recorded: Bill
    """What the journal of this call's run already says was spent inside."""
    begun: bool = False
    """It is an effect that was begun before: what its runs inside did stands, and they are taken up again."""
    lost: bool = False
    """A run inside of what was begun before could not be taken up again."""
    over: bool = False
    """The call has its result: nothing may start inside it any more."""
    detaching: bool = False
    """The run around is being detached: a cancellation of its bodies means just that."""
    halts: list[Halt] = field(default_factory=list[Halt])
    """How to stop the runs inside."""
    charged: tuple[Decimal, int] | None = None
    """US dollars and tokens that the body booked itself; None where it booked nothing."""
    _accounts: dict[str, Budget] = field(default_factory=dict[str, Budget])
    """The newest account of each run inside."""
    _numbered: dict[str, int] = field(default_factory=dict[str, int])
    _claimed: set[str] = field(default_factory=set[str])
    """Ids of the runs inside that the body has asked for."""
    _unclaimed: Bill = field(init=False)
    """What is recorded and no run inside has been found to have spent yet."""
    _elsewhere: Bill = NOTHING
    """What runs of other calls had spent before they went on inside this one."""

    def __post_init__(self) -> None:
        self._unclaimed = self.recorded

    def child_id(self, name: str, digest: str) -> str:
        """The id of the next run inside this call that asks `name` for this: the same after a crash."""
        stem = f"{self.key}/{name}.{digest[:8]}"
        count = self._numbered[stem] = self._numbered.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}.{count}"

    def count_anew(self) -> None:
        """The body is entered again: it asks for the same runs inside."""
        self._numbered.clear()

    def claim(self, run_id: str) -> None:
        """The body asks for this run inside."""
        self._claimed.add(run_id)

    def has_claimed(self, run_id: str) -> bool:
        """Whether the body has asked for a run inside."""
        return run_id in self._claimed

    def adopt(
        self,
        run_id: str,
        name: str,
        limits: Limits,
        own: Totals,
        bill: Bill,
        *,
        ours: bool,
        reserve: bool = False,
    ) -> Budget | Exhausted:
        """Open the account of a run inside, which may have spent before.

        What it spent and no journal above knows (a crash came between) is charged above it now, unless the
        run is another call's (not `ours`) and was charged there. `reserve` sets the whole share of the account
        aside; where that cannot be had nothing is opened.
        """
        earlier = self._accounts.get(run_id)
        known = self._unclaimed if earlier is None else earlier.bill
        new = bill.beyond(known) if ours else NOTHING
        # What is charged below comes out of the share, so that must be there too.
        aside = self.budget.reserve(limits.share(bill.beyond(new).spent)) if reserve else None
        if isinstance(aside, Exhausted):
            return aside
        account = Budget(name, limits, parent=self.budget, aside=aside)
        if earlier is None:
            self._unclaimed = known.beyond(bill)
            self._elsewhere += NOTHING if ours else bill.beyond(known)
        if new != NOTHING:
            account.recall(new)
        account.restore(own, bill.spent, overshoot=bill.overshoot, estimated=bill.estimated)
        self._accounts[run_id] = account
        return account

    def charge(self, usd: Decimal, tokens: int) -> None:
        """Book what the body spent itself."""
        if self.over:
            self.budget.charge(Amount(usd=usd, tokens=tokens))
            return
        before = self.charged or (Decimal(0), 0)
        self.charged = (EXACT.add(before[0], usd), before[1] + tokens)

    @property
    def inside(self) -> Bill | None:
        """What the runs inside came to and the journal does not know yet; None where there were none."""
        if not self._accounts:
            return None
        bills = (account.bill for account in self._accounts.values())
        return sum(bills, NOTHING).beyond(self.recorded + self._elsewhere)

    def halt(self, cause: HaltCause | None, said: Cancel) -> None:
        """Stop every run inside: those of a detached run are detached too, so that they stay resumable."""
        self.detaching = cause == "detached"
        for halt in self.halts:
            halt.set_threadsafe("detached" if self.detaching else "cancelled", said.inside)


CURRENT: ContextVar[Frame | None] = ContextVar("remit.current", default=None)
"""None outside every tool body."""
