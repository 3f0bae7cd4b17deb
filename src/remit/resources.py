"""Mutual exclusion by name, across batches, children and parallel runs of one process.

A claim takes all of its names at once, when each of them is free to it; nobody holds one name while
waiting for another, so two claims cannot block each other whatever the order of their names. Claims
that meet on a name are granted in the order of their requests, reads together, writes alone.

Re-entrant down the call path: a child ignores what its own ancestors hold. A claim below a path
that holds something also ignores who waits: a waiter may wait for that very ancestor. What remains
is two parents whose children want each other's names; no order of names can exclude that, and the
ceiling that every call has ends it.

Not a scheduler: the order inside a batch is `schedule`'s. Not a lock between processes. Above it the
dispatcher claims before a body begins and releases when it has ended. Event loops in several
threads may share one table.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator

__all__ = ["PROCESS", "Claim", "Path", "Resources"]


class Path:
    """The identity of one call in a tree of calls; `parent` is the call it was made in."""

    __slots__ = ("holding", "parent")

    def __init__(self, parent: Path | None = None) -> None:
        self.parent = parent
        self.holding = 0
        """How many claims this call holds; kept by `Resources`."""

    @property
    def encumbered(self) -> bool:
        """Whether this call or one above it holds a claim."""
        return any(node.holding for node in self._upwards())

    def within(self, other: Path) -> bool:
        """Whether `other` is this call or one above it."""
        return any(node is other for node in self._upwards())

    def _upwards(self) -> Iterator[Path]:
        node: Path | None = self
        while node is not None:
            yield node
            node = node.parent


class Claim:
    """One request for some names: waiting, granted, then released."""

    __slots__ = (
        "exclusive",
        "future",
        "granted",
        "names",
        "nested",
        "path",
        "resources",
        "waiting",
    )

    def __init__(
        self, resources: Resources, names: tuple[str, ...], exclusive: bool, path: Path
    ) -> None:
        self.resources = resources
        self.names = names
        self.exclusive = exclusive
        self.path = path
        self.granted = False
        """Whether the names are held now."""
        self.waiting = False
        self.nested = False
        """Whether an ancestor held something at the time of the request."""
        self.future: asyncio.Future[None] | None = None
        """Done when granted; None if that was at once. Cancelling it withdraws the claim."""

    def release(self) -> None:
        """Give the names back, or withdraw from waiting. Once is enough, more does no harm.

        Never blocks, so it may be called from any thread, and from a finalizer that the garbage
        collector runs while this very thread is inside the table.
        """
        if self.names:
            self.resources.leave(self)

    def let_go_if_cancelled(self, future: asyncio.Future[None]) -> None:
        if future.cancelled():
            self.release()


class _Name:
    """One row of the table; it exists while somebody holds the name or waits for it."""

    __slots__ = ("holders", "waiters", "writers")

    def __init__(self) -> None:
        self.holders: dict[Claim, None] = {}
        self.waiters: dict[Claim, None] = {}
        self.writers = 0
        """How many of the holders are exclusive: more than one only down a path."""

    def held_against(self, claim: Claim) -> bool:
        """Whether somebody who is no ancestor holds the name in a way that excludes `claim`."""
        if not (claim.exclusive or self.writers):
            return False  # reads do not exclude each other, however many there are
        return any(
            (claim.exclusive or holder.exclusive) and not claim.path.within(holder.path)
            for holder in self.holders
        )

    def queued_against(self, claim: Claim) -> bool:
        """Whether somebody came earlier, waits, and would be overtaken."""
        for waiter in self.waiters:
            if waiter is claim:
                return False
            if claim.exclusive or waiter.exclusive:
                return True
        return False


class Resources:
    """A table of named locks: shared for reads, exclusive for writes, first come first served."""

    def __init__(self) -> None:
        self._names: dict[str, _Name] = {}
        self._lock = threading.Lock()
        self._leaving: deque[Claim] = deque()

    @property
    def names_in_use(self) -> frozenset[str]:
        """The names that somebody holds or waits for."""
        return frozenset(tuple(self._names))

    def request(self, names: tuple[str, ...], *, exclusive: bool, path: Path) -> Claim:
        """Claim `names`, all or none, and come back at once.

        Shape: names without repetition; none at all is granted without looking at the table.
        Errors: `RuntimeError` if the claim would have to wait and no event loop is running.
        """
        claim = Claim(self, names, exclusive, path)
        if not names:
            claim.granted = True
            return claim
        try:
            with self._lock:
                claim.nested = path.encumbered
                if self._is_free(claim):
                    self._hold(claim)
                else:
                    self._enqueue(claim)
        finally:
            self._settle_leaving()
        return claim

    def leave(self, claim: Claim) -> None:
        """Take `claim` out of the table and grant what it stood in the way of."""
        self._leaving.append(claim)
        self._settle_leaving()

    def _settle_leaving(self) -> None:
        # Whoever finds the table busy leaves the work to the one inside, who looks here again
        # after stepping out: nobody waits, and nothing is left over.
        while self._leaving and self._lock.acquire(blocking=False):
            try:
                while self._leaving:
                    self._remove(self._leaving.popleft())
            finally:
                self._lock.release()

    def _is_free(self, claim: Claim) -> bool:
        for name in claim.names:
            row = self._names.get(name)
            if row is None:
                continue
            if row.held_against(claim) or (not claim.nested and row.queued_against(claim)):
                return False
        return True

    def _row(self, name: str) -> _Name:
        row = self._names.get(name)
        if row is None:
            row = self._names[name] = _Name()
        return row

    def _hold(self, claim: Claim) -> None:
        for name in claim.names:
            row = self._row(name)
            if claim.waiting:
                del row.waiters[claim]
            row.holders[claim] = None
            row.writers += claim.exclusive
        claim.waiting = False
        claim.granted = True
        claim.path.holding += 1

    def _enqueue(self, claim: Claim) -> None:
        claim.future = asyncio.get_running_loop().create_future()
        claim.future.add_done_callback(claim.let_go_if_cancelled)
        claim.waiting = True
        for name in claim.names:
            self._row(name).waiters[claim] = None

    def _remove(self, claim: Claim) -> None:
        if claim.granted:
            claim.granted = False
            claim.path.holding -= 1
            for name in claim.names:
                row = self._names[name]
                del row.holders[claim]
                row.writers -= claim.exclusive
        elif claim.waiting:
            claim.waiting = False
            for name in claim.names:
                del self._names[name].waiters[claim]
        else:
            return
        for name in claim.names:
            row = self._names[name]
            if row.waiters:
                self._grant_waiters(row)
            if not row.holders and not row.waiters:
                del self._names[name]

    def _grant_waiters(self, row: _Name) -> None:
        shut = False
        for claim in tuple(row.waiters):
            if shut and not claim.nested:
                continue
            if self._is_free(claim):
                self._hold(claim)
                if not _wake(claim):
                    self._leaving.append(claim)
            shut = shut or claim.exclusive  # granted or not, those behind it must let it pass


def _wake(claim: Claim) -> bool:
    """Tell a waiter that it is granted; False if nobody is there to hear it."""
    future = claim.future
    if future is None or future.cancelled():
        return False
    loop = future.get_loop()
    try:
        if loop is _running_loop():
            future.set_result(None)
        else:
            loop.call_soon_threadsafe(_resolve, future)
    except RuntimeError:  # That loop was closed with its waiters.
        return False
    return True


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


PROCESS = Resources()
"""The table of this process."""
