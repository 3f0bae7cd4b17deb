"""Those who wait on an event loop for a thread of the store go on a few in each turn of it.

What each of them does next takes about 0.2 ms: a hundred who shared a transaction, or whose reads ended together,
would hold up everything else that the loop is there for.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, TypeAlias

__all__ = ["Comes", "Settle", "Settling", "settling_of"]

_IN_A_TURN: Final = 3
_FROM_THE_OTHER_END: Final = 10
"""One in so many: whatever goes on, nobody waits for ever."""


class Comes(IntEnum):
    """In which order those are told whose work has ended: who began first is done first, and lets go of what it holds."""

    AT_ONCE = 0
    TAKING_UP = 1
    """It takes a run up."""
    NEW = 2
    """It opens a run."""


Settle: TypeAlias = tuple[Comes, Callable[[], None]]
"""Tells whoever waits."""


class Settling:
    """Whom to tell on one event loop, by the order in which they come."""

    __slots__ = ("_ended", "_goes_on", "_loop", "_told")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._ended = tuple(deque[Callable[[], None]]() for _ in Comes)
        self._goes_on = False
        self._told = 0

    def settle(self, ended: Iterable[Settle]) -> None:
        """Have these told, with one call into the loop. From any thread; where the loop was closed nobody waits."""
        for comes, tell in ended:
            self._ended[comes].append(tell)
        loop = self._loop()
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if not self._goes_on:
            self._some()

    def _some(self) -> None:
        try:
            for _ in range(_IN_A_TURN):
                order = self._ended if self._told % _FROM_THE_OTHER_END else reversed(self._ended)
                these = next((each for each in order if each), None)
                if these is None:
                    break
                self._told += 1
                these.popleft()()
        finally:
            self._goes_on = any(self._ended)
            if self._goes_on:
                asyncio.get_running_loop().call_soon(self._some)


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Settling] = (
    weakref.WeakKeyDictionary()
)


def settling_of(loop: asyncio.AbstractEventLoop) -> Settling:
    """The one of a loop, whichever stores are used on it. Called on that loop."""
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Settling(loop)
    return found
