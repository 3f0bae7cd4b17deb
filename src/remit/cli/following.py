"""Following runs of a store as they go on, whichever process executes them: rows, told again as events.

A run is read up to where it stands and watched from there. Runs inside of it that begin or go on meanwhile are
followed beside it, each in its own order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from remit.analysis.retold import Retelling
from remit.analysis.story import row_of
from remit.cli.naming import entry_of
from remit.cli.reading import Searchable
from remit.cli.streams import complain
from remit.errors import JournalError
from remit.events import Event
from remit.store.base import RunStatus, StoredRow
from remit.store.directory import RunEntry, RunQuery

__all__ = ["Followed", "Tell", "follow_all", "follow_tree"]

_LOOK_SECONDS: Final = 1.0
"""So often it is looked for runs that are new."""
_LIVE: Final[frozenset[RunStatus]] = frozenset({"ready", "running"})
_GONE: Final = 2
"""So often in a row nobody is found who executes a run; in between another process may take it over."""
_MOST: Final = 200
"""Runs that are followed at the same time."""


class Followed:
    """One run on its way."""

    def __init__(self, entry: RunEntry) -> None:
        self.run_id = entry.run_id
        self.retelling = Retelling(entry.run_id)
        self.next_seq = 0

    async def catch_up(self, store: Searchable, tell: Tell, *, first: int | None) -> None:
        """Read what is there; what stands from `first` on is told as new, nothing where it is None.

        Errors: `JournalError` where its rows cannot be read.
        """
        for stored in await store.read(self.run_id, self.next_seq - 1):
            events = await self._take(store, stored, None)
            tell(self, stored.seq, events, new=first is not None and stored.seq >= first)

    async def watch(self, store: Searchable, tell: Tell) -> None:
        """Tell what is committed from now on, until the run has ended or waits. Errors: `JournalError`."""
        loop = asyncio.get_running_loop()
        async for stored in store.watch(self.run_id, self.next_seq - 1):
            tell(self, stored.seq, await self._take(store, stored, loop.time()), new=True)

    async def _take(
        self, store: Searchable, stored: StoredRow, now: float | None
    ) -> tuple[Event, ...]:
        events = self.retelling.take(await row_of(store, self.run_id, stored), now)
        self.next_seq = stored.seq + 1
        return events


class Tell(Protocol):
    """Takes what a row of a run tells, with its number."""

    def __call__(self, run: Followed, seq: int, events: Sequence[Event], *, new: bool) -> None:
        """What is not `new` came before that which is followed, which may only be understood with it."""
        ...


async def follow_tree(
    store: Searchable, entry: RunEntry, tell: Tell, *, first: int | None
) -> Followed:
    """Follow a run until it has ended, waits or broke off, and the runs inside of it.

    `first` is the number of the first row that is told; None: what is committed from now on.
    Errors: `JournalError` where it cannot be read.
    """
    top = Followed(entry)
    await top.catch_up(store, tell, first=first)
    tasks: set[asyncio.Task[None]] = set()
    watching = asyncio.create_task(top.watch(store, tell))
    looking = asyncio.create_task(_look_inside(store, entry.run_id, tell, tasks))
    try:
        await asyncio.wait({watching, looking}, return_when=asyncio.FIRST_COMPLETED)
        if tasks:
            await asyncio.wait(tasks, timeout=_LOOK_SECONDS)
    finally:
        await _dismissed({watching, looking, *tasks})
    for task in (watching, looking):
        if not task.cancelled():
            task.result()
    return top


async def follow_all(store: Searchable, tell: Tell, *, first: int | None) -> None:
    """Follow every run that is live, and those that begin, until cancelled. `first` is for the former."""
    began = datetime.now(UTC)
    known: dict[str, Followed] = {}
    tasks: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            live = await store.runs(RunQuery(statuses=_LIVE), count=_MOST)
            fresh = await store.runs(RunQuery(since=began), count=_MOST)
            for entry in {each.run_id: each for each in (*live, *fresh)}.values():
                run = known.get(entry.run_id)
                if run is not None and (
                    entry.status not in _LIVE or not tasks[entry.run_id].done()
                ):
                    continue
                from_here = 0 if run is not None or entry.created_at >= began else first
                run = known.setdefault(entry.run_id, Followed(entry))
                follow = _follow(store, run, tell, first=from_here)
                tasks[entry.run_id] = asyncio.create_task(follow)
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await _dismissed(set(tasks.values()))


async def _look_inside(
    store: Searchable, run_id: str, tell: Tell, tasks: set[asyncio.Task[None]]
) -> None:
    """Follow the runs inside of a run as they are there, until whoever executes it is gone."""
    known = {run_id}
    lost = 0
    while lost < _GONE:
        top = await entry_of(store, run_id)
        lost = lost + 1 if top is None or top.lost else 0
        for parent in list(known)[:_MOST]:
            inside = RunQuery(parent=parent, statuses=_LIVE)
            for entry in await store.runs(inside, count=_MOST):
                if entry.run_id not in known:
                    known.add(entry.run_id)
                    tasks.add(asyncio.create_task(_follow(store, Followed(entry), tell, first=0)))
        await asyncio.sleep(_LOOK_SECONDS)


async def _follow(store: Searchable, run: Followed, tell: Tell, *, first: int | None) -> None:
    """One run of several: that it cannot be read does not end the others."""
    try:
        await run.catch_up(store, tell, first=first)
        await run.watch(store, tell)
    except JournalError as error:
        complain(f"run {run.run_id}: {error}")


async def _dismissed(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
