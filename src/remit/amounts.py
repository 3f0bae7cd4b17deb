"""What was used, as values: amounts, totals, bills. Sums are exact, whatever the caller's decimal context.

Above: `limits`, which says what is allowed, and `budget`, which counts it on accounts.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Final

from remit.messages import Usage, Value

__all__ = [
    "EXACT",
    "FREE",
    "NOTHING",
    "NO_USAGE",
    "ZERO",
    "Amount",
    "Bill",
    "Spend",
    "Tally",
    "Totals",
]

NO_USAGE: Final = Usage()

EXACT: Final = Context(prec=1000)
"""Sums of any doubles keep all their digits, whatever decimal context the caller has set."""
FREE: Final = Decimal(0)


class Amount(Value, frozen=True, gc=False):
    """So much of everything that is counted; never negative.

    Errors: `ValueError` for a negative part, and so for taking more away than there is.
    """

    steps: int = 0
    calls: int = 0
    tokens: int = 0
    usd: Decimal = FREE

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
            max(FREE, EXACT.subtract(self.usd, other.usd)),
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
    usd: Decimal = FREE
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


class Bill(Value, frozen=True, gc=False):
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
        self.usd = FREE
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

    def add(self, actual: Amount | Totals, usage: Usage) -> None:
        """Count something in. Errors: as `count`."""
        self.count(actual.steps, actual.calls, actual.tokens, actual.usd, usage)

    def count(self, steps: int, calls: int, tokens: int, usd: Decimal, usage: Usage) -> None:
        """The same part by part. Errors: `ValueError`, as of an `Amount`."""
        if steps < 0 or calls < 0 or tokens < 0:
            raise ValueError("what is counted is not negative")
        self.steps += steps
        self.calls += calls
        self.tokens += tokens
        if usd:
            if not usd.is_finite() or usd < 0:
                raise ValueError("what is counted is finite and not negative")
            self.usd = EXACT.add(self.usd, usd)
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
