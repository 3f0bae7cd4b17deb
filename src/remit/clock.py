"""The clock of one activation of a run: active seconds, calendar, and the parent's clock (L4).

Everything becomes one absolute instant on the event loop's clock, `ends_at`. What is kept for the
hand-back comes off it: tools and the model calls of steps are cut at `tools_until` (L5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from remit.current import Frame
from remit.errors import ConfigurationError
from remit.limits import Limits

__all__ = ["LAST_INSTANT", "RunClock", "later", "median", "utc"]

LAST_INSTANT: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The last whole second of the calendar: what is later cannot be reckoned with, and counts as then."""

_KEPT_SHARE = 0.05
"""The least part of `seconds`, or of what the calendar leaves of them, that is kept for the hand-back."""
_KEPT_LATENCIES = 2
"""Median model latencies that are kept for it."""


def utc(now: datetime) -> datetime:
    """What the host's calendar says, in UTC. Errors: `ConfigurationError` where that is no instant."""
    if not isinstance(now, datetime) or now.utcoffset() is None:  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError(
            f"Runtime(now=) gave {now!r}, which is no instant: give an aware datetime, such as datetime.now(UTC)"
        )
    try:
        instant = now.astimezone(UTC)
    except OverflowError:
        instant = LAST_INSTANT
    if instant >= LAST_INSTANT:
        raise ConfigurationError(f"Runtime(now=) gave {now!r}, which is beyond the calendar")
    return instant


def later(now: datetime, seconds: float) -> datetime:
    """So many seconds later, at most at the last instant."""
    try:
        return min(now + timedelta(seconds=seconds), LAST_INSTANT)
    except OverflowError:
        return LAST_INSTANT


def median(latencies: Sequence[float]) -> float:
    """What a model call may be expected to take, from sorted latencies; 0 where there are none yet."""
    return latencies[len(latencies) // 2] if latencies else 0.0


class RunClock:
    """Active seconds of one run, and when they are over."""

    __slots__ = (
        "_began",
        "_calendar_end",
        "_frame",
        "_hand_back",
        "_least_kept",
        "_limit",
        "_name",
        "_pauses",
        "_pausing_since",
        "now",
        "time",
    )

    def __init__(
        self,
        name: str,
        limits: Limits,
        *,
        before: float,
        hand_back: bool,
        frame: Frame | None,
        time: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self.time = time
        self.now = now
        self._name = name
        self._limit = limits.seconds
        self._hand_back = hand_back
        self._frame = frame
        self._began = time() - before
        """When it would have begun, had it been active ever since; a pause moves it."""
        self._pauses = 0
        self._pausing_since = 0.0
        self._calendar_end = (
            float("inf")
            if limits.deadline is None
            else time() + (limits.deadline - now()).total_seconds()
        )
        # Of an hour inside a call of a minute, a share of the hour would leave nothing to work in.
        self._least_kept = _KEPT_SHARE * min(self._limit, max(0, self.calendar_end - time()))

    @property
    def seconds(self) -> float:
        """Active seconds over all activations, as rows hold them: waiting for a decision does not count."""
        return round(self._active, 6)

    @property
    def _active(self) -> float:
        return (self._pausing_since if self._pauses else self.time()) - self._began

    @property
    def calendar_end(self) -> float:
        """What not even a pause can move: the deadline, and the parent's clock."""
        if self._frame is None:
            return self._calendar_end
        return min(self._calendar_end, self._frame.until - self._frame.settle_seconds)

    def end(self) -> tuple[float, str]:
        """When the run is over, and whose clock says so."""
        own = self._began + self._limit
        if self._pauses:
            own += self.time() - self._pausing_since
        if self._frame is not None and self.calendar_end < min(own, self._calendar_end):
            return self.calendar_end, self._frame.whose_time
        return min(own, self._calendar_end), self._name

    @property
    def ends_at(self) -> float:
        return self.end()[0]

    def kept(self, latencies: Sequence[float]) -> float:
        """Seconds kept for the hand-back, from the sorted latencies of the model so far."""
        if not self._hand_back:
            return 0.0
        return max(_KEPT_LATENCIES * median(latencies), self._least_kept)

    def pause(self) -> None:
        """Somebody is asked: active time stands still."""
        if self._pauses == 0:
            self._pausing_since = self.time()
        self._pauses += 1

    def unpause(self) -> None:
        """Somebody answered."""
        self._pauses -= 1
        if self._pauses == 0:
            self._began += self.time() - self._pausing_since

    def utc(self, *, after: float = 0.0) -> datetime:
        """Calendar time, `after` seconds from now."""
        return later(self.now(), after) if after else self.now()
