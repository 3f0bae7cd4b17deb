"""Effects that were given up and still run, by the key of their call (E4).

A process-wide table, so that the repeat of such a call can join the first instead of running beside it. The
outcome also goes to the store, where later processes find it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterable
from typing import Final

from remit.rows import Late, encode_row, read_late
from remit.store.base import Journal

__all__ = ["STILL_RUNNING", "StillRunning", "known_late"]


class StillRunning:
    """The effects that nobody waits for any more."""

    def __init__(self) -> None:
        self._futures: dict[tuple[int, str], concurrent.futures.Future[Late]] = {}
        self._posting: set[asyncio.Task[None]] = set()

    @property
    def keys(self) -> frozenset[tuple[int, str]]:
        """Each with the identity of its store: two stores may hold runs of the same id."""
        return frozenset(self._futures)

    def forget(self, keys: Iterable[tuple[int, str]]) -> None:
        """Nothing will come of these any more: what ran them is gone."""
        for key in keys:
            self._futures.pop(key, None)

    def add(self, key: str, store: Journal) -> None:
        """The call with this key was abandoned. It holds its store while it runs."""
        self._futures.setdefault((id(store), key), concurrent.futures.Future())

    def join(self, key: str, store: Journal) -> asyncio.Future[Late] | None:
        """A future of its outcome on the running loop; None where it is not running here."""
        future = self._futures.get((id(store), key))
        return None if future is None else asyncio.wrap_future(future)

    def ended(self, late: Late, *, run_id: str, store: Journal) -> None:
        """Its outcome is there: tell whoever joined, and leave it in the run's inbox."""
        future = self._futures.pop((id(store), late.key), None)
        if future is not None and not future.done():
            future.set_result(late)
        task = asyncio.get_running_loop().create_task(_post(store, run_id, late))
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)


async def _post(store: Journal, run_id: str, late: Late) -> None:
    await store.post(run_id, "late", encode_row(late))


async def known_late(store: Journal, key: str) -> Late | None:
    """The late outcome of an earlier call, if it came in. A key begins with its run's id."""
    run_id = key.rsplit(":", 4)[0]
    for posted in await store.inbox(run_id):
        if posted.kind == "late":
            late = read_late(posted.body)
            if late.key == key:
                return late
    return None


STILL_RUNNING: Final = StillRunning()
