"""How long an answer is waited for: one timer for a stream, however many chunks it has.

It ends the wait of the task that reads the stream as `asyncio.timeout` would, by a cancellation that it takes
back. It never touches a task that is busy with what has come: a slow reader is no idle provider.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from remit.errors import ModelUnavailable

__all__ = ["Patience"]

T = TypeVar("T")

AFTER_DEADLINE_SECONDS: Final = 0.05
"""The loop cuts a request at its deadline itself, and keeps what was complete by then. The deadline here is for
those who ask a model without a loop, and must not come first."""


class Patience:
    """Ends a wait where no content comes for `idle` seconds, or where the deadline has passed."""

    __slots__ = (
        "_cancels",
        "_content",
        "_due",
        "_idle",
        "_last",
        "_loop",
        "_over",
        "_task",
        "_timer",
        "_whom",
    )

    def __init__(self, whom: str, *, idle: float, deadline: float) -> None:
        """`whom` names who is waited for, to people.

        Units: `idle` is seconds, infinite for any length of time; `deadline` is on the event loop's clock.
        """
        self._whom = whom
        self._loop = asyncio.get_running_loop()
        self._idle = idle
        self._due = deadline + AFTER_DEADLINE_SECONDS
        self._last = self._loop.time()
        self._content = 0
        self._task: asyncio.Task[Any] | None = None
        """Who waits now."""
        self._cancels = 0
        self._over: str | None = None
        """Why the wait was ended, in words."""
        self._timer: asyncio.TimerHandle | None = None
        self._set()

    def begin(self) -> None:
        """Another request goes out: what the one before it took is none of its time."""
        self._last = self._loop.time()
        self._content = 0
        if self._over is not None:
            self._over = None
            self._set()

    def heard(self, content: int) -> None:
        """So many pieces of content have come in all: nothing but content keeps a wait going."""
        if content != self._content:
            self._content = content
            self._last = self._loop.time()

    async def bear(self, awaitable: Awaitable[T]) -> T:
        """Wait for it. Errors: `ModelUnavailable` where it takes too long."""
        self._task = task = asyncio.current_task(self._loop)
        self._cancels = 0 if task is None else task.cancelling()
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._over is None or task is None or task.uncancel() > self._cancels:
                raise  # somebody else's, or that too
        finally:
            self._task = None
        raise ModelUnavailable(self._over)

    def close(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        at = min(self._last + self._idle, self._due)
        self._timer = self._loop.call_at(at, self._ring) if at < math.inf else None

    def _ring(self) -> None:
        now = self._loop.time()
        if self._task is None:
            self._last = now  # it is busy with what has come
            self._timer = self._loop.call_later(min(self._idle, 1.0), self._ring)
        elif now >= self._due:
            self._end(f"{self._whom} had not answered in full when the deadline passed")
        elif now >= self._last + self._idle:
            self._end(f"no content came from {self._whom} for {self._idle:g} seconds")
        else:
            self._set()

    def _end(self, why: str) -> None:
        self._over = why
        if self._task is not None:
            self._task.cancel()
