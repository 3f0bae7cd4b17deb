"""What may be spent and what was: limits, the tree of live accounts, reservations.

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
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any, Final, Literal, TypeAlias

import msgspec

from remit.errors import ConfigurationError
from remit.explained import explained
from remit.messages import Json, Usage, Value

__all__ = [
    "EXACT",
    "NOTHING",
    "NO_USAGE",
    "ZERO",
    "Amount",
    "Bill",
    "Budget",
    "Dimension",
    "Exhausted",
    "Left",
    "Limits",
    "Reservation",
    "Spend",
    "Tally",
    "Totals",
]

Dimension: TypeAlias = Literal["steps", "calls", "tokens", "usd"]

NO_USAGE: Final = Usage()

EXACT: Final = Context(prec=1000)
"""Sums of any doubles keep all their digits, whatever decimal context the caller has set."""
_FREE: Final = Decimal(0)
_BOUNDLESS: Final = Decimal("Infinity")


@explained("Limits(steps=12, tokens=60_000, seconds=45): unlimited is not on offer")
@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Limits:
    """What a run may use. Each limit is independent; the first one met ends the run.

    Errors: `ConfigurationError` for a value that is no limit; the text says what to change.
    """

    steps: int
    """Model replies, each together with the calls it asks for."""
    tokens: int
    """Every prompt token of every model call, cached or not, plus every output token."""
    seconds: float
    """Active time; it stops while a run waits for a decision."""
    usd: Decimal | None
    """US dollars, exact; a float counts as the digits it prints. None: no limit."""
    calls: int | None
    """Tool bodies entered. None: no limit."""
    deadline: datetime | None
    """A calendar instant, kept in UTC; it never stops. None: no limit."""

    def __init__(
        self,
        *,
        steps: int,
        tokens: int,
        seconds: float,
        usd: Decimal | float | int | None = None,
        calls: int | None = None,
        deadline: datetime | None = None,
    ) -> None:
        # Written out because what is accepted is wider than what is kept.
        keep = object.__setattr__
        keep(self, "steps", _whole("steps", steps))
        keep(self, "tokens", _whole("tokens", tokens))
        keep(self, "seconds", _duration(seconds))
        keep(self, "usd", None if usd is None else _money(usd))
        keep(self, "calls", None if calls is None else _whole("calls", calls))
        keep(self, "deadline", None if deadline is None else _instant(deadline))

    def narrowed(self, other: Limits) -> Limits:
        """The lower of both, limit by limit."""
        return Limits(
            steps=min(self.steps, other.steps),
            tokens=min(self.tokens, other.tokens),
            seconds=min(self.seconds, other.seconds),
            usd=min((x for x in (self.usd, other.usd) if x is not None), default=None),
            calls=min((x for x in (self.calls, other.calls) if x is not None), default=None),
            deadline=min(
                (x for x in (self.deadline, other.deadline) if x is not None), default=None
            ),
        )

    def share(self, spent: Totals | None = None) -> Amount:
        """What to set aside for an account of these limits that has `spent` so much before.

        A limit that is None sets nothing aside; such an account draws on its parent call by call.
        """
        before = Totals() if spent is None else spent
        return Amount(
            max(0, self.steps - before.steps),
            0 if self.calls is None else max(0, self.calls - before.calls),
            max(0, self.tokens - before.tokens),
            _FREE if self.usd is None else max(_FREE, EXACT.subtract(self.usd, before.usd)),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "usd": None if self.usd is None else str(self.usd),
            "calls": self.calls,
            "deadline": None if self.deadline is None else self.deadline.isoformat(),
        }

    @classmethod
    def from_json(cls, value: Json) -> Limits:
        """Read them back.

        Errors: `KeyError`, `ValueError`, `ArithmeticError`, `ConfigurationError`.
        """
        usd, deadline = value["usd"], value["deadline"]
        return cls(
            steps=value["steps"],
            tokens=value["tokens"],
            seconds=float(value["seconds"]),  # a lossless reader hands out a Decimal
            usd=None if usd is None else Decimal(usd),
            calls=value["calls"],
            deadline=None if deadline is None else datetime.fromisoformat(deadline),
        )


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ConfigurationError(
            f"Limits({name}={value!r}): give a whole number of {name} above zero"
        )
    return value


def _duration(value: object) -> float:
    if not isinstance(value, bool) and isinstance(value, int | float):
        try:
            seconds = float(value)
        except OverflowError:  # an int that no double can hold
            seconds = math.inf
        if 0 < seconds < math.inf:
            return seconds
    raise ConfigurationError(
        f"Limits(seconds={value!r}): give a finite number of seconds above zero, such as 45"
    )


def _money(value: object) -> Decimal:
    if not isinstance(value, bool) and isinstance(value, Decimal | int | float):
        usd = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
        if usd.is_finite() and usd > 0:
            return usd
    raise ConfigurationError(
        f"Limits(usd={value!r}): give a finite amount of US dollars above zero, such as 0.25, "
        "or leave it out for no limit"
    )


def _instant(value: object) -> datetime:
    if isinstance(value, datetime) and value.utcoffset() is not None:
        try:
            return value.astimezone(UTC)
        except OverflowError:  # it lies in the calendar of its own zone only
            pass
    raise ConfigurationError(
        f"Limits(deadline={value!r}): give a datetime that knows its time zone, "
        "such as datetime.now(UTC) + timedelta(hours=1)"
    )


class Amount(Value, frozen=True, gc=False):
    """So much of everything that is counted; never negative.

    Errors: `ValueError` for a negative part, and so for taking more away than there is.
    """

    steps: int = 0
    calls: int = 0
    tokens: int = 0
    usd: Decimal = _FREE

    def __post_init__(self) -> None:
        if (
            self.steps < 0
            or self.calls < 0
            or self.tokens < 0
            or not self.usd.is_finite()
            or self.usd < 0
        ):
            raise ValueError(f"an amount is finite and not negative: {self!r}")

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.steps + other.steps,
            self.calls + other.calls,
            self.tokens + other.tokens,
            EXACT.add(self.usd, other.usd),
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.steps - other.steps,
            self.calls - other.calls,
            self.tokens - other.tokens,
            EXACT.subtract(self.usd, other.usd),
        )

    def beyond(self, other: Amount) -> Amount:
        """What of this is not covered by `other`, part by part."""
        return Amount(
            max(0, self.steps - other.steps),
            max(0, self.calls - other.calls),
            max(0, self.tokens - other.tokens),
            max(_FREE, EXACT.subtract(self.usd, other.usd)),
        )

    def within(self, other: Amount) -> Amount:
        """What of this is covered by `other`, part by part."""
        return Amount(
            min(self.steps, other.steps),
            min(self.calls, other.calls),
            min(self.tokens, other.tokens),
            min(self.usd, other.usd),
        )


ZERO: Final = Amount()


class Totals(Value, frozen=True, gc=False):
    """What was spent, and the tokens of it as the providers counted them."""

    steps: int = 0
    calls: int = 0
    tokens: int = 0
    """What counts against `Limits.tokens`: the usage, estimates and what tools have charged."""
    usd: Decimal = _FREE
    seconds: float = 0.0
    """Active time."""
    usage: Usage = NO_USAGE

    @property
    def amount(self) -> Amount:
        """What of it is limited."""
        return Amount(self.steps, self.calls, self.tokens, self.usd)

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.steps + other.steps,
            self.calls + other.calls,
            self.tokens + other.tokens,
            EXACT.add(self.usd, other.usd),
            self.seconds + other.seconds,
            self.usage + other.usage,
        )


class Bill(Value, frozen=True):
    """What runs came to, as it is carried to the accounts above them."""

    spent: Totals = Totals()
    overshoot: Amount = ZERO
    """What of it was charged beyond its reservation."""
    estimated: int = 0
    """How many of the charges are estimates."""

    def __add__(self, other: Bill) -> Bill:
        return Bill(
            self.spent + other.spent,
            self.overshoot + other.overshoot,
            self.estimated + other.estimated,
        )

    def beyond(self, known: Bill) -> Bill:
        """What of this is not covered by `known`, part by part; time is not counted here."""
        mine, theirs = self.spent.usage, known.spent.usage
        amount = self.spent.amount.beyond(known.spent.amount)
        usage = Usage(
            max(0, mine.input - theirs.input),
            max(0, mine.cache_read - theirs.cache_read),
            max(0, mine.cache_write - theirs.cache_write),
            max(0, mine.output - theirs.output),
            max(0, mine.reasoning - theirs.reasoning),
        )
        return Bill(
            Totals(amount.steps, amount.calls, amount.tokens, amount.usd, usage=usage),
            self.overshoot.beyond(known.overshoot),
            max(0, self.estimated - known.estimated),
        )


NOTHING: Final = Bill()


class Spend(Value, frozen=True):
    """What an account has used so far, as it stood when it was asked for."""

    own: Totals = Totals()
    """Spent at this account itself."""
    tree: Totals = Totals()
    """Own, and that of all accounts below; `seconds` equals `own.seconds`: children run inside."""
    overshoot: Amount = ZERO
    """What of `tree` was charged beyond its reservation."""
    estimated: int = 0
    """How many charges of `tree` are estimates, because nothing was reported."""


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
        "chain",
        "closed",
        "closing_room",
        "estimated",
        "held",
        "limits",
        "name",
        "outer",
        "overshoot",
        "own",
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
        self.usd = _FREE
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
        # The accounts that a reservation here needs room at, outermost first: up to the root, or
        # to the nearest account that lives on a share.
        self.chain: Final[tuple[_Account, ...]] = (
            (self,) if outer is None or self.sponsor is not None else (*outer.chain, self)
        )
        self.measure()

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
            usd=_FREE if self.shares_usd else amount.usd,
        )

    def take(self, amount: Amount) -> None:
        """Take what `lack` has found room for."""
        steps, calls, tokens, usd = amount.steps, amount.calls, amount.tokens, amount.usd
        for account in self.chain:
            account.steps += steps
            account.calls += calls
            account.tokens += tokens
            if usd:
                account.usd = EXACT.add(account.usd, usd)
        edge = self.chain[0]
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
        self.tree.touched += len(self.chain)
        steps = actual.steps - freed.steps
        calls = actual.calls - freed.calls
        tokens = actual.tokens - freed.tokens
        usd = EXACT.subtract(actual.usd, freed.usd)
        for account in self.chain:
            account.steps += steps
            account.calls += calls
            account.tokens += tokens
            if usd:
                account.usd = EXACT.add(account.usd, usd)
        edge = self.chain[0]
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
            None if self.usd.is_infinite() else max(_FREE, self.usd),
        )


class Tally:
    """Running totals in plain numbers: adding values up would allocate each time."""

    __slots__ = (
        "cache_read",
        "cache_write",
        "calls",
        "input",
        "output",
        "reasoning",
        "steps",
        "tokens",
        "usd",
    )

    def __init__(self) -> None:
        self.steps = 0
        self.calls = 0
        self.tokens = 0
        self.usd = _FREE
        self.input = 0
        self.cache_read = 0
        self.cache_write = 0
        self.output = 0
        self.reasoning = 0

    @classmethod
    def of(cls, totals: Totals) -> Tally:
        """Begin with what was counted before; time is not counted here."""
        tally = cls()
        tally.add(totals.amount, totals.usage)
        return tally

    def add(self, actual: Amount, usage: Usage) -> None:
        """Count something in."""
        self.steps += actual.steps
        self.calls += actual.calls
        self.tokens += actual.tokens
        if actual.usd:
            self.usd = EXACT.add(self.usd, actual.usd)
        if usage is not NO_USAGE:
            self.input += usage.input
            self.cache_read += usage.cache_read
            self.cache_write += usage.cache_write
            self.output += usage.output
            self.reasoning += usage.reasoning

    def totals(self, seconds: float = 0.0) -> Totals:
        """The sums as they stand, with this active time."""
        return Totals(
            self.steps,
            self.calls,
            self.tokens,
            self.usd,
            seconds,
            Usage(self.input, self.cache_read, self.cache_write, self.output, self.reasoning),
        )
