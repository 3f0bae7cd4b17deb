"""What is allowed: the limits of a run, checked when they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from remit.amounts import EXACT, FREE, Amount, Totals
from remit.errors import ConfigurationError
from remit.explained import explained
from remit.messages import Json

__all__ = ["Limits"]


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
            FREE if self.usd is None else max(FREE, EXACT.subtract(self.usd, before.usd)),
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
