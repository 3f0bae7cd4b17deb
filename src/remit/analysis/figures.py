"""Numbers for people: as few characters as say enough, and always with their unit."""

from __future__ import annotations

from decimal import Decimal

__all__ = ["bar", "clock", "count", "dollars", "duration", "percent", "span"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def count(number: int) -> str:
    """`950`, `3.1k`, `60k`, `1.2M`."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size * (0.9995 if unit == "M" else 1):
            scaled = number / size
            text = f"{scaled:.1f}" if scaled < 9.95 else f"{scaled:.0f}"
            return (f"{scaled:.0f}" if number % size == 0 else text) + unit
    return str(number)


def dollars(amount: Decimal, *, like: Decimal | None = None) -> str:
    """`0.014`, `0.25`, `12.50`: two digits that say something, cents at least; without the sign.

    `like` is a larger amount that stands beside it: it is written with no more digits than that needs.
    """
    scale = abs(amount if like is None else like)
    if scale >= 1 or not scale:
        return f"{amount:.2f}"
    digits = min(6, max(2, 1 - scale.adjusted() + (0 if like is None else 1)))
    return f"{amount:.{digits}f}"


def duration(seconds: float) -> str:
    """How long something took: `0.31 s`, `12.0 s`, `1:10`, `1:02:03`."""
    if seconds < 9.995:
        return f"{max(0.0, seconds):.2f} s"
    return f"{seconds:.1f} s" if seconds < 59.95 else clock(seconds)


def clock(seconds: float) -> str:
    """A running clock: `0:14`, `6:02`, `1:02:03`."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def span(seconds: float) -> str:
    """A time to come, roughly: `45 s`, `59 min`, `23 h`, `3 days`."""
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    for unit, size, until in (("min", 60, 90 * 60), ("h", 3_600, 48 * 3_600)):
        if seconds < until:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def bar(fraction: float, width: int, *, drawn: bool) -> str:
    """A gauge of so many cells; `drawn` with block characters, else in ASCII."""
    fraction = min(1.0, max(0.0, fraction))
    if not drawn:
        full = int(fraction * width)
        return "#" * full + "." * (width - full)
    eighths = int(fraction * width * 8)
    full, rest = divmod(eighths, 8)
    body = "█" * full + (_EIGHTHS[rest] if rest else "")
    return body + "·" * (width - len(body))
