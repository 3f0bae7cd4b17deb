"""Effects that were given up and still run, by the key of their call (E4).

A process-wide table, so that the repeat of such a call can join the first instead of running beside it. The
outcome also goes to the store, where later processes find it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Iterable
from typing import Final

import msgspec

from remit.artifacts import HANDLE_PREFIX, Artifact
from remit.errors import JournalError
from remit.log import LOGGER
from remit.rows import Late, encode_row, read_late
from remit.shown import handles_of
from remit.store.base import Journal
from remit.store.filling import fill

__all__ = ["STILL_RUNNING", "LateOutcome", "StillRunning", "known_late"]


class LateOutcome(msgspec.Struct, frozen=True):
    """What came of a call after it was given up."""

    row: Late
    artifacts: tuple[Artifact, ...] = ()
    """What its content refers to and another run does not have."""


class StillRunning:
    """The effects that nobody waits for any more."""

    def __init__(self) -> None:
        self._futures: dict[tuple[int, str], concurrent.futures.Future[LateOutcome | None]] = {}
        self._telling: set[asyncio.Task[None]] = set()

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

    def join(self, key: str, store: Journal) -> asyncio.Future[LateOutcome | None] | None:
        """A future of its outcome on the running loop; None where it is not running here.

        Its result is None where it came to an end and to no outcome.
        """
        future = self._futures.get((id(store), key))
        return None if future is None else asyncio.wrap_future(future)

    def ended(self, outcome: Awaitable[LateOutcome], *, run_id: str, store: Journal) -> None:
        """It has come to its end: tell whoever joined, and leave the outcome in the run's inbox.

        Of a repeat it is left with the run of the first call, too: that is where the next repeat looks.
        """
        task = asyncio.get_running_loop().create_task(self._tell(outcome, run_id, store))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, outcome: Awaitable[LateOutcome], run_id: str, store: Journal) -> None:
        late = await outcome
        self._resolve(late.row.key, store, late)
        body = encode_row(late.row)
        for told in dict.fromkeys((run_id, _run_of(late.row.key))):
            # The first call's run may be gone by now, or in another store: then this one alone has it.
            try:
                await store.post(told, "late", body, artifacts=late.artifacts)
            except JournalError as error:  # the doubt stays, and nobody is here to be told
                LOGGER.warning("run %s: a late outcome was not kept: %s", told, error)

    def asked(self, key: str, store: Journal) -> None:
        """It came to a question that nobody hears any more: whoever repeats the call asks it himself."""
        self._resolve(key, store, None)

    def _resolve(self, key: str, store: Journal, late: LateOutcome | None) -> None:
        future = self._futures.pop((id(store), key), None)
        if future is not None and not future.done():
            future.set_result(late)


async def known_late(store: Journal, key: str) -> LateOutcome | None:
    """The late outcome of an earlier call, if it came in."""
    run_id = _run_of(key)
    for posted in await store.inbox(run_id):
        if posted.kind == "late":
            row = read_late(posted.body)
            if row.key == key:
                row = await fill(store, run_id, row)
                digests = [each.removeprefix(HANDLE_PREFIX) for each in handles_of(row)]
                found = [await store.artifact(run_id, digest) for digest in digests]
                return LateOutcome(row, tuple([each for each in found if each is not None]))
    return None


def _run_of(key: str) -> str:
    """The run of the first call under a key, which begins with its id."""
    return key.rsplit(":", 4)[0]


STILL_RUNNING: Final = StillRunning()
