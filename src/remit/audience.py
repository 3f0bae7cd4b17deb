"""Whoever reads the events of a run while it goes on: each at its own pace, none of them holding it up.

Telling never waits. A reader that lags gets text in fewer, longer pieces; one that lags far loses the oldest text
first, then the oldest event, and the loss is counted. Above stands `live.py`; below it only the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import AsyncIterator

import msgspec

from remit.events import Event

__all__ = ["QUEUE_EVENTS", "Audience"]

QUEUE_EVENTS = 1_000
"""Events kept for a reader that lags; beyond them the oldest are dropped and counted, text first."""


class _Kept:
    """An event that waits for its reader; pieces of one text are kept as they came, and joined when they are read."""

    __slots__ = ("event", "number", "pieces")

    def __init__(self, event: Event, number: int) -> None:
        self.event = event
        self.number = number
        """Of the event, or of the newest piece."""
        self.pieces: list[str] | None = [event.fields["text"]] if event.kind == "text" else None

    def whole(self) -> Event:
        if self.pieces is None or len(self.pieces) == 1:
            return self.event
        return msgspec.structs.replace(self.event, fields={"text": "".join(self.pieces)})


class _Queue:
    """The events for one reader, bounded."""

    def __init__(self, kept: deque[_Kept] | None = None) -> None:
        self._kept: deque[_Kept] = deque() if kept is None else kept

    def copy(self) -> _Queue:
        """The same events for somebody else, who reads them at another pace."""
        fresh: deque[_Kept] = deque()
        for kept in self._kept:
            other = _Kept(kept.event, kept.number)
            other.pieces = None if kept.pieces is None else list(kept.pieces)
            fresh.append(other)
        return _Queue(fresh)

    def put(self, event: Event, number: int) -> bool:
        """Take an event in. Returns whether another one was dropped for it."""
        last = self._kept[-1] if self._kept else None
        if (
            event.kind == "text"
            and last is not None
            and last.pieces is not None
            and last.event.run_id == event.run_id
        ):
            last.pieces.append(event.fields["text"])
            last.event, last.number = event, number
            return False
        dropped = len(self._kept) >= QUEUE_EVENTS
        if dropped:
            self._drop_one()
        self._kept.append(_Kept(event, number))
        return dropped

    def _drop_one(self) -> None:
        oldest = next((i for i, kept in enumerate(self._kept) if kept.pieces is not None), 0)
        del self._kept[oldest]

    def take(self) -> _Kept | None:
        """The oldest event."""
        return self._kept.popleft() if self._kept else None

    def forget(self, number: int) -> None:
        """What is no newer than this has been read."""
        while self._kept and self._kept[0].number <= number:
            self._kept.popleft()


class Audience:
    """The readers of one run."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._count = 0
        self._unread = _Queue()
        """What nobody has read yet: where a reader begins who is alone."""
        self._shared = _Queue()
        """What those who read now were told since the first of them began: where one begins who joins them."""
        self._readers: weakref.WeakSet[_Reader] = weakref.WeakSet()
        """Those who read now. Whoever leaves off, in a `break`, is not kept."""
        self.dropped = 0
        """Events that a reader who lags will never see."""
        self.over = False
        """Nothing more is told."""

    def hear(self, event: Event) -> None:
        """Take an event, from whichever thread. Never blocks."""
        if asyncio.get_running_loop() is self._loop:
            self._take(event)
            return
        # It is of a run inside that has a thread and a loop of its own, and may outlive ours.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, event)

    def end(self) -> None:
        """Readers that have read everything are done."""
        self.over = True
        self._wake.set()

    def read(self) -> AsyncIterator[Event]:
        """A reader that goes on where the last one left off, or hears all that is told to those who read now."""
        if not len(self._readers):
            self._shared = self._unread.copy()
        reader = _Reader(self, self._shared.copy())
        self._readers.add(reader)
        return reader

    def _take(self, event: Event) -> None:
        self._count += 1
        readers = tuple(self._readers)
        lost = self._unread.put(event, self._count)
        self._shared.put(event, self._count)
        for reader in readers:
            self.dropped += reader.queue.put(event, self._count)
        if lost and not readers:
            self.dropped += 1
        self._wake.set()

    async def next_for(self, reader: _Reader) -> Event:
        """The next event of a reader. Errors: `StopAsyncIteration` at the end."""
        while True:
            kept = reader.queue.take()
            if kept is not None:
                self._unread.forget(kept.number)
                return kept.whole()
            if self.over:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()


class _Reader:
    """One who reads."""

    def __init__(self, audience: Audience, queue: _Queue) -> None:
        self._audience = audience
        self.queue = queue

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> Event:
        return await self._audience.next_for(self)
