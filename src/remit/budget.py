"""The tree of live accounts, and reservations on them.

`Limits` is what is allowed, `Budget` the account it is allowed on, `Spend` what was used. Spend is
reserved before it is made and settled after: a `Reservation` takes its amount at every account from
this one to the root, all or nothing, so the sum over a tree never passes its root. Only a charge
above its reservation can, and that is recorded as overshoot.

No clock and no I/O: `seconds` and `deadline` are carried here and kept by the loop, which writes
the active time of a run into `Budget.seconds`. Nothing here decides what a call may cost; it counts.
Below are errors and messages; above are `plan`, `dispatch` and the loop. Accounts of one tree may
be used from several threads: one lock for each tree guards them all.
"""

from __future__ import annotations

import math
import threading
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import msgspec

from remit.amounts import EXACT, FREE, NO_USAGE, ZERO, Amount, Bill, Spend, Tally, Totals
from remit.limits import Limits
from remit.messages import Usage

__all__ = ["Budget", "Dimension", "Exhausted", "Left", "Reservation"]

Dimension: TypeAlias = Literal["steps", "calls", "tokens", "usd"]

_BOUNDLESS: Final = Decimal("Infinity")


class Left(msgspec.Struct, frozen=True):
    """What a new reservation could still get. None: no limit. Never negative."""

    steps: int
    calls: int | None
    tokens: int
    usd: Decimal | None


class Exhausted(msgspec.Struct, frozen=True):
    """A refusal: nothing was reserved."""

    dimension: Dimension
    """The first that lacks, in the order steps, calls, tokens, usd."""
    whose: str
    """The account that lacks it; where several do, the outermost one."""
    wanted: Amount
    left: Left
    """What that account itself had to give."""


class Reservation:
    """An amount taken and not yet spent. It is settled or refunded, exactly once.

    Errors: `RuntimeError` for the second time, which is a bug of the caller.
    """

    __slots__ = ("_account", "_open", "amount")

    def __init__(self, account: _Account, amount: Amount) -> None:
        self._account = account
        self._open = True
        self.amount: Final = amount

    def settle(self, actual: Amount, usage: Usage = NO_USAGE, *, estimated: bool = False) -> Amount:
        """Charge what it came to, free the rest, and return what went beyond the reservation.

        The whole of `actual` is charged, even where that passes a limit.
        """
        amount = self.amount
        over = ZERO
        if (
            actual.tokens > amount.tokens
            or actual.usd > amount.usd
            or actual.calls > amount.calls
            or actual.steps > amount.steps
        ):
            over = actual.beyond(amount)
        with self._account.tree.lock:
            self._end()
            self._account.charge(actual, amount, usage, over, estimated)
        return over

    def refund(self) -> None:
        """Give everything back; nothing was spent."""
        with self._account.tree.lock:
            self._end()
            self._account.move(ZERO, self.amount)

    def become_share(self, parent: _Account) -> Amount:
        """Set the amount aside for a child of `parent`, whose account settles it from now on."""
        if self._account is not parent:
            raise ValueError("a share is reserved at the parent of the account that lives on it")
        with parent.tree.lock:
            self._end()
        return self.amount

    def _end(self) -> None:
        if not self._open:
            raise RuntimeError("a reservation is settled or refunded once")
        self._open = False


class Budget:
    """A live account in a tree of accounts.

    `parent`: what this account spends is spent by all accounts above it too, and needs their room.
    `aside`: a reservation at `parent` that this account lives on. Its share is kept whatever others
    do, so what it covers needs no room above; `close` gives back what is left. A limit that is None
    has no share: there the account draws on its parent call by call.
    """

    __slots__ = ("_account", "parent", "seconds")

    def __init__(
        self,
        name: str,
        limits: Limits,
        *,
        parent: Budget | None = None,
        aside: Reservation | None = None,
    ) -> None:
        above = None if parent is None else parent._account  # noqa: SLF001 - its own class
        if aside is not None and above is None:
            raise ValueError("a share is set aside from a parent: give the parent too")
        self.parent: Final = parent
        self.seconds = 0.0
        """Active time so far; the loop keeps it."""
        self._account = _Account(name, limits, above, aside)

    @property
    def name(self) -> str:
        """What `Exhausted.whose` calls it."""
        return self._account.name

    @property
    def limits(self) -> Limits:
        """What this account allows; its ancestors may allow less."""
        return self._account.limits

    @property
    def root(self) -> Budget:
        """The outermost account; itself where it has no parent."""
        account = self
        while account.parent is not None:
            account = account.parent
        return account

    @property
    def accounts_locked(self) -> int:
        """How many accounts of the tree were touched so far, by all reservations and charges."""
        return self._account.tree.touched

    @property
    def spend(self) -> Spend:
        """What was used until now."""
        account = self._account
        with account.tree.lock:
            return Spend(
                account.own.totals(self.seconds),
                account.spent.totals(self.seconds),
                account.overshoot,
                account.estimated,
            )

    def reserve(self, amount: Amount, *, held: bool = False) -> Reservation | Exhausted:
        """Take `amount` here and at every account up to the root, or nothing anywhere.

        An account that is over a limit refuses, whatever is asked for: overshoot stops a run.
        `held` lets it draw on this account's own `hold` (the closing call), never on an ancestor's.
        Errors: `RuntimeError` where the share it lives on was closed.
        """
        account = self._account
        with account.tree.lock:
            lack = account.lack(amount, held)
            if lack is not None:
                return lack
            account.take(amount)
        return Reservation(account, amount)

    @property
    def held(self) -> Amount:
        """What is kept for the closing call."""
        return self._account.held

    def hold(self, amount: Amount) -> None:
        """Keep `amount` of this account for its closing call, in place of what was kept before.

        Neither steps of this account nor children can draw it. It may be more than is left; then
        nothing but the closing call can start.
        """
        with self._account.tree.lock:
            self._account.keep(amount)

    def left(self, *, held: bool = False) -> Left:
        """What a new reservation could get through the whole path; `held` as in `reserve`."""
        with self._account.tree.lock:
            return self._account.least(held).to_left()

    def charge(self, actual: Amount, usage: Usage = NO_USAGE, *, estimated: bool = False) -> None:
        """Charge what nobody has reserved. It counts as overshoot, and may pass a limit."""
        with self._account.tree.lock:
            self._account.charge(actual, ZERO, usage, actual, estimated)

    def recall(self, bill: Bill) -> None:
        """Charge what was spent here before, and reserved then. It may pass a limit."""
        spent = bill.spent
        with self._account.tree.lock:
            self._account.charge(
                spent.amount, ZERO, spent.usage, bill.overshoot, estimated=bill.estimated
            )

    @property
    def bill(self) -> Bill:
        """What was used until now, here and below; time is not counted here."""
        account = self._account
        with account.tree.lock:
            return Bill(account.spent.totals(), account.overshoot, account.estimated)

    def restore(
        self, own: Totals, tree: Totals, *, overshoot: Amount = ZERO, estimated: int = 0
    ) -> None:
        """Set what was spent before, on replay. Its ancestors restore theirs from their own record.

        What is reserved now stays reserved. A share set aside is for what comes after: see
        `Limits.share`.
        """
        self.seconds = own.seconds
        with self._account.tree.lock:
            self._account.restore(own, tree)
            self._account.overshoot = overshoot
            self._account.estimated = estimated

    def close(self) -> None:
        """Give back what is left of the share set aside for this account, if there is one.

        What is still reserved below stays covered until it is settled. Closing again does nothing.
        """
        with self._account.tree.lock:
            self._account.close()


class _Account:
    """The books behind a `Budget`. All methods but `__init__` run under the lock of the tree.

    *Taken* (`steps`, `calls`, `tokens`, `usd`) is what is spent, reserved or set aside, here and
    below; `spent` is what was charged, here and below; `own`, what was charged here.
    """

    __slots__ = (
        "calls",
        "closed",
        "closing_room",
        "estimated",
        "held",
        "limits",
        "name",
        "outer",
        "overshoot",
        "own",
        "path",
        "rest",
        "restored",
        "room",
        "share",
        "shares_calls",
        "shares_usd",
        "spent",
        "sponsor",
        "steps",
        "tokens",
        "tree",
        "usd",
    )

    def __init__(
        self, name: str, limits: Limits, outer: _Account | None, aside: Reservation | None
    ) -> None:
        self.name: Final = name
        self.limits: Final = limits
        self.outer: Final = outer
        self.tree: Final[_Tree] = _Tree() if outer is None else outer.tree
        self.steps = 0
        self.calls = 0
        self.tokens = 0
        self.usd = FREE
        self.own = Tally()
        self.spent = Tally()
        self.overshoot = ZERO
        self.estimated = 0
        self.held = ZERO
        self.restored = ZERO
        # The share this account lives on: by whom it was set aside, how much it was, and what of
        # it is unspent. `sponsor` is None for an account that draws on its parent call by call.
        self.sponsor: _Account | None = None
        self.share = self.rest = ZERO
        self.shares_calls: Final = limits.calls is not None
        self.shares_usd: Final = limits.usd is not None
        self.closed = False
        if outer is not None and aside is not None:
            self.sponsor = outer
            self.share = self.rest = aside.become_share(outer)
        # The accounts above at which a reservation here needs room, outermost first: from the root, or from
        # the nearest account that lives on a share.
        self.path: Final[tuple[_Account, ...]] = (
            () if outer is None or self.sponsor is not None else outer.chain
        )
        self.measure()

    @property
    def chain(self) -> tuple[_Account, ...]:
        """Those, and this one. Not kept: what holds itself no count frees."""
        return (*self.path, self)

    def measure(self) -> None:
        """Work out how far what is taken may go: for everything, and for the closing call."""
        limits = self.limits
        steps, tokens = limits.steps, limits.tokens
        calls = math.inf if limits.calls is None else limits.calls
        usd = _BOUNDLESS if limits.usd is None else limits.usd
        if self.sponsor is not None:
            covered = self.share + self.restored
            steps, tokens = min(steps, covered.steps), min(tokens, covered.tokens)
            calls = min(calls, covered.calls) if self.shares_calls else calls
            usd = min(usd, covered.usd) if self.shares_usd else usd
        self.closing_room = _Room(steps, calls, tokens, usd)
        self.keep(self.held)

    def keep(self, held: Amount) -> None:
        """Keep this much from everything but the closing call."""
        self.held, room = held, self.closing_room
        self.room = _Room(
            room.steps - held.steps,
            room.calls - held.calls,
            room.tokens - held.tokens,
            EXACT.subtract(room.usd, held.usd) if held.usd else room.usd,
        )

    def lack(self, amount: Amount, held: bool) -> Exhausted | None:
        """Who lacks the room for `amount`: the outermost one, or None."""
        chain = self.chain
        edge = chain[0]
        if edge.sponsor is not None:
            outermost = edge.lack_above(edge.sponsor, amount)
            if outermost is not None:
                return outermost
        self.tree.touched += len(chain)
        steps, calls, tokens, usd = amount.steps, amount.calls, amount.tokens, amount.usd
        for account in chain:
            room = account.closing_room if held and account is self else account.room
            if account.steps + steps > room.steps:
                lacking: Dimension = "steps"
            elif account.calls + calls > room.calls:
                lacking = "calls"
            elif account.tokens + tokens > room.tokens:
                lacking = "tokens"
            elif (EXACT.add(account.usd, usd) if usd else account.usd) > room.usd:
                lacking = "usd"
            else:
                continue
            return Exhausted(lacking, account.name, amount, account.remaining(room).to_left())
        return None

    def lack_above(self, sponsor: _Account, amount: Amount) -> Exhausted | None:
        if self.closed:
            raise RuntimeError(f"the share of account {self.name!r} was closed")
        passing = self.passing(amount)
        # What the share covers is this account's own: nothing that happens above can refuse it.
        return None if passing == ZERO else sponsor.lack(passing, held=False)

    def passing(self, amount: Amount) -> Amount:
        """What of `amount` this account has no share for, and draws on its parent."""
        return Amount(
            calls=0 if self.shares_calls else amount.calls,
            usd=FREE if self.shares_usd else amount.usd,
        )

    def take(self, amount: Amount) -> None:
        """Take what `lack` has found room for."""
        steps, calls, tokens, usd = amount.steps, amount.calls, amount.tokens, amount.usd
        chain = self.chain
        for account in chain:
            account.steps += steps
            account.calls += calls
            account.tokens += tokens
            if usd:
                account.usd = EXACT.add(account.usd, usd)
        edge = chain[0]
        if edge.sponsor is not None:
            edge.sponsor.take(edge.passing(amount))

    def charge(
        self, actual: Amount, freed: Amount, usage: Usage, over: Amount, estimated: int
    ) -> None:
        """Charge `actual`, for which `freed` was taken before, and record it on the whole path."""
        self.own.add(actual, usage)
        self.move(actual, freed)
        account: _Account | None = self
        while account is not None:
            account.spent.add(actual, usage)
            if over is not ZERO:
                account.overshoot += over
            account.estimated += estimated
            account = account.outer

    def move(self, actual: Amount, freed: Amount) -> None:
        """Have `actual` taken in place of `freed`, here and above."""
        chain = self.chain
        self.tree.touched += len(chain)
        steps = actual.steps - freed.steps
        calls = actual.calls - freed.calls
        tokens = actual.tokens - freed.tokens
        usd = EXACT.subtract(actual.usd, freed.usd)
        for account in chain:
            account.steps += steps
            account.calls += calls
            account.tokens += tokens
            if usd:
                account.usd = EXACT.add(account.usd, usd)
        edge = chain[0]
        if edge.sponsor is not None:
            # An open share shrinks by what is spent; a closed one covers only what is still freed.
            drawn = edge.rest.within(freed if edge.closed else actual)
            edge.rest -= drawn
            edge.sponsor.move(actual, drawn + edge.passing(freed))

    def close(self) -> None:
        if self.sponsor is None or self.closed:
            return
        self.closed = True
        spent = self.spent
        reserved = Amount(
            self.steps - spent.steps,
            self.calls - spent.calls,
            self.tokens - spent.tokens,
            EXACT.subtract(self.usd, spent.usd),
        )
        unused = self.rest.beyond(reserved)
        self.rest -= unused
        self.sponsor.move(ZERO, unused)

    def restore(self, own: Totals, tree: Totals) -> None:
        before = self.spent
        self.steps += tree.steps - before.steps
        self.calls += tree.calls - before.calls
        self.tokens += tree.tokens - before.tokens
        self.usd = EXACT.add(self.usd, EXACT.subtract(tree.usd, before.usd))
        self.own = Tally.of(own)
        self.spent = Tally.of(tree)
        self.restored = Amount(tree.steps, tree.calls, tree.tokens, tree.usd)
        self.measure()

    def remaining(self, room: _Room) -> _Room:
        """What of `room` is not taken; below zero after an overshoot."""
        return _Room(
            room.steps - self.steps,
            room.calls - self.calls,
            room.tokens - self.tokens,
            EXACT.subtract(room.usd, self.usd),
        )

    def least(self, held: bool) -> _Room:
        """What is not taken, at the account of the path that has least of it."""
        least = self.remaining(self.closing_room if held else self.room)
        if self.outer is None:
            return least
        above = self.outer.least(held=False)
        apart = self.sponsor is not None
        return _Room(
            least.steps if apart else min(least.steps, above.steps),
            least.calls if apart and self.shares_calls else min(least.calls, above.calls),
            least.tokens if apart else min(least.tokens, above.tokens),
            least.usd if apart and self.shares_usd else min(least.usd, above.usd),
        )


class _Tree:
    """What all accounts of one tree share."""

    __slots__ = ("lock", "touched")

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self.touched = 0


class _Room(msgspec.Struct, frozen=True, gc=False):
    """Whole numbers, and infinity for no limit, so that the hot path compares and never asks."""

    steps: int
    calls: float
    tokens: int
    usd: Decimal

    def to_left(self) -> Left:
        return Left(
            max(0, self.steps),
            None if self.calls == math.inf else max(0, int(self.calls)),
            max(0, self.tokens),
            None if self.usd.is_infinite() else max(FREE, self.usd),
        )
