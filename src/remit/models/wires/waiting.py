"""When a server wants to be asked again, as its response says it. Pure: a date is read by the server's own clock.

Source: RFC 9110, section 10.2.3 (`retry-after`); `retry-after-ms` and the resets of rate limits as OpenAI sends
them; words as OpenAI and Groq write them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["BUSY", "retry_after"]

BUSY: Final = frozenset({503, 529})
"""Statuses of a server that has no room just now: it has not begun, so that nothing can be billed. What a whole
prompt is estimated at for each of its refusals would end a run for its budget that only had to wait."""

_LONGEST: Final = 10 * 86_400.0
"""In seconds: a longer wait is none that anybody means."""

_SECONDS: Final[Mapping[str, float]] = {
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
}

_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_PART = re.compile(rf"({_NUMBER})(ms|us|µs|[smhd])", re.ASCII)
_WORDS = re.compile(rf"try again in ((?:{_NUMBER}(?:ms|[smhd]) ?)+)", re.ASCII | re.IGNORECASE)


def retry_after(headers: Mapping[str, str], words: str = "") -> float | None:
    """Seconds until another try may help; None where nothing is said.

    `headers` are in lower case, `words` is what the server says of the error: "try again in 1m2.5s".
    """
    in_ms = _number(headers.get("retry-after-ms", ""))
    if in_ms is not None:
        return in_ms / 1_000
    said = headers.get("retry-after", "").strip()
    if said:
        seconds = _number(said)
        return _until(said, headers.get("date", "")) if seconds is None else seconds
    found = _WORDS.search(words)
    if found is not None:
        return _span(found[1].replace(" ", ""))
    resets = [
        reset
        for kind in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{kind}", "").strip() == "0"
        and (reset := _span(headers.get(f"x-ratelimit-reset-{kind}", ""))) is not None
    ]
    return max(resets, default=None)


def _number(text: str) -> float | None:
    text = text.strip()
    return min(float(text), _LONGEST) if re.fullmatch(_NUMBER, text, re.ASCII) else None


def _span(text: str) -> float | None:
    """A span such as `1m2s`, or plain seconds."""
    text = text.strip()
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        return _number(text)
    return min(sum(float(number) * _SECONDS[unit] for number, unit in parts), _LONGEST)


def _until(date: str, now: str) -> float | None:
    try:
        seconds = (parsedate_to_datetime(date) - parsedate_to_datetime(now)).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(seconds, 0.0), _LONGEST)
