"""Points in time for people: how they are written, and how they are read.

They are written in UTC and to the second, as JSON has them, beside how long ago that was: the same run is looked at
from several machines. What is written so can be read again; a time without a zone is the reader's own.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from remit.analysis.figures import span
from remit.errors import ConfigurationError

__all__ = ["ago", "instant", "moment"]

_AGO: Final = re.compile(r"([0-9]{1,9})(s|m|h|d|w)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_ZONE: Final = " UTC"


def moment(at: datetime) -> str:
    """`2026-12-01 03:29:25 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}{_ZONE}"


def ago(at: datetime, now: datetime) -> str:
    """`4 min ago`."""
    return f"{span((now - at).total_seconds())} ago"


def instant(text: str, flag: str, now: datetime | None = None) -> datetime:
    """A time as people write it: so long ago, or a date. Errors: `ConfigurationError`, by the flag that it was given to."""
    found = _AGO.fullmatch(text)
    try:
        if found is not None:
            passed = timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
            return (datetime.now(UTC) if now is None else now) - passed
        ours = text.removesuffix(_ZONE)
        at: Any = datetime.fromisoformat(ours)
        return at.replace(tzinfo=UTC) if ours != text and at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise ConfigurationError(
            f"{flag} {text}: a time is 90m, 12h or 2d for so long ago, or a date such as 2026-11-30"
        ) from None
