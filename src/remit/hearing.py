"""What another process leaves for a run is heard while the run is busy: a long tool, a long reply.

A run learns of posts with every append. Between two of them, which may be minutes, somebody has to look: here, one
timer for each event loop and store, with one cheap query for all runs that are executed there. A cancel then counts
at once (K1) and whoever is asked in process about what was decided elsewhere is asked no longer (E6); everything
else is heard at the run's next turn. A store that only this process writes to needs none of it: what is posted there
is posted by those who have the run at hand.
"""

from __future__ import annotations

import asyncio
from typing import Final

from remit.errors import JournalError
from remit.log import LOGGER
from remit.run import Run
from remit.store.base import Shared

__all__ = ["LOOK_SECONDS", "attend", "leave"]

LOOK_SECONDS: Final = 0.5
"""Between two looks at what was left for the runs that are executed here."""


def attend(run: Run) -> None:
    """Have a run hear what other processes leave for it, until `leave`."""
    store = run.record.store
    if isinstance(store, Shared):
        place = (run.loop, id(store))
        ear = _EARS.get(place)
        if ear is None:
            ear = _EARS[place] = _Ear(store, run.loop)
        ear.attend(run)


def leave(run: Run) -> None:
    """It is over, or waits."""
    ear = _EARS.get((run.loop, id(run.record.store)))
    if ear is not None:
        ear.leave(run)


class _Ear:
    """Listens for all runs that one event loop executes on one store. Lives as long as one of them does."""

    def __init__(self, store: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._runs: dict[str, Run] = {}
        self._looking: asyncio.Task[None] | None = None
        self._deaf = False
        """The last look failed: it was told, and is not told again before one succeeds."""
        self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def attend(self, run: Run) -> None:
        self._runs[run.state.run_id] = run

    def leave(self, run: Run) -> None:
        self._runs.pop(run.state.run_id, None)
        if not self._runs:
            self._timer.cancel()
            if self._looking is not None:
                self._looking.cancel()
            _EARS.pop((self._loop, id(self._store)), None)

    def _look(self) -> None:
        self._looking = self._loop.create_task(self._hear(), name="remit hearing")
        self._looking.add_done_callback(self._looked)

    def _looked(self, _: object) -> None:
        self._looking = None
        if self._runs:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    async def _hear(self) -> None:
        try:
            for run_id, newest in (await self._store.unread()).items():
                run = self._runs.get(run_id)
                if run is not None and run.record.is_news(newest):
                    await run.overhear()
            self._deaf = False
        except JournalError as error:
            # The next look may do better; a run whose store is gone finds out by itself.
            if not self._deaf:
                LOGGER.warning("what other processes leave for runs cannot be heard: %s", error)
            self._deaf = True


_EARS: Final[dict[tuple[asyncio.AbstractEventLoop, int], _Ear]] = {}
"""Who listens, by event loop and store."""
