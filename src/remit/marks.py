"""The note that tells the model what is left of its budget, at 50, 25 and 10 percent (L6). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from remit.amounts import Totals
from remit.limits import Limits
from remit.rows import Noted

__all__ = ["MARKS", "budget_note"]

MARKS = (50, 25, 10)
"""Percent left at which the model is told."""


def budget_note(
    limits: Limits, used: Totals, *, seconds_left: float, told: Mapping[str, str]
) -> tuple[Noted, ...]:
    """The note that is due, if a mark was passed since the last one.

    Shape: empty or one note; where several marks were passed at once, the lowest is told.
    """
    rows = [
        ("steps", Decimal(limits.steps - used.steps), Decimal(limits.steps)),
        ("tokens", Decimal(limits.tokens - used.tokens), Decimal(limits.tokens)),
        ("seconds", Decimal(str(round(seconds_left, 1))), Decimal(str(limits.seconds))),
    ]
    if limits.calls is not None:
        rows.append(("tool calls", Decimal(limits.calls - used.calls), Decimal(limits.calls)))
    if limits.usd is not None:
        usd = Decimal(str(limits.usd))
        rows.append(("US dollars", usd - used.usd, usd))
    least = min(left / whole for _, left, whole in rows)
    passed = [mark for mark in MARKS if least * 100 <= mark]
    if not passed or any(f"budget:{mark}" in told for mark in MARKS if mark <= passed[-1]):
        return ()
    left = ", ".join(
        f"{max(left, Decimal(0)):,f} of {whole:,f} {unit}" for unit, left, whole in rows
    )
    return (Noted(f"budget:{passed[-1]}", f"Left of your budget: {left}."),)
