"""Conversations that this process has read lately, so that whoever goes on from one does not read all of it again.

What is kept of a run is its closed transcript, beside the head of the rows that it was made of. It counts only where
the store says in the same breath that this is the head still: what was erased, written to or put in its place since
is read, or missed, as if nothing were kept here. Bounded in number and in bytes, for each store.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from remit.store.base import Journal
from remit.transcript import Transcript

__all__ = ["MOST_BYTES", "MOST_CONVERSATIONS", "Known", "Recent", "forget", "recent_of"]

MOST_CONVERSATIONS: Final = 64
MOST_BYTES: Final = 32_000_000


class Known(msgspec.Struct, frozen=True):
    """What was said up to the end of a run."""

    run_id: str
    head: bytes
    """Of its rows, when they were read."""
    rows: int
    """How many these are."""
    transcript: Transcript
    """Closed, and changed by nobody: whoever goes on from it takes a copy. It knows no store, which would keep that alive."""
    media: tuple[int, ...]
    """Those of its messages with results that some model does not read."""
    size: int
    """About so many bytes."""


class Recent:
    """The conversations of one store, those used last at the end. Safe over threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._lock = threading.Lock()
        self._size = 0
        self._forgotten = 0

    @property
    def forgotten(self) -> int:
        """How often everything was forgotten: what was read before that is not kept after it."""
        return self._forgotten

    @property
    def known(self) -> Mapping[str, Known]:
        """By run, as it is now."""
        with self._lock:
            return dict(self._known)

    def keep(self, known: Known, *, instead_of: str, forgotten: int) -> None:
        """Keep one, in place of the run that it goes on from; what was not used for longest gives way.

        `forgotten` is as it was before the reading began: what was erased meanwhile does not come back.
        """
        with self._lock:
            if forgotten != self._forgotten:
                return
            self._drop(instead_of)
            self._drop(known.run_id)
            if known.size > MOST_BYTES:
                return
            self._known[known.run_id] = known
            self._size += known.size
            while self._size > MOST_BYTES or len(self._known) > MOST_CONVERSATIONS:
                self._drop(next(iter(self._known)))

    def used(self, run_id: str) -> None:
        """One was gone on from."""
        with self._lock:
            if run_id in self._known:
                self._known.move_to_end(run_id)

    def forget(self) -> None:
        """Keep nothing of what was read."""
        with self._lock:
            self._known.clear()
            self._size = 0
            self._forgotten += 1

    def _drop(self, run_id: str) -> None:
        dropped = self._known.pop(run_id, None)
        if dropped is not None:
            self._size -= dropped.size


_RECENT: Final[WeakKeyDictionary[Journal, Recent]] = WeakKeyDictionary()
_LOCK: Final = threading.Lock()


def recent_of(store: Journal) -> Recent:
    """What is kept of a store's conversations."""
    with _LOCK:
        try:
            return _RECENT.setdefault(store, Recent())
        except TypeError:  # a store that cannot be a key: nothing is kept of it
            return Recent()


def forget(store: Journal) -> None:
    """What was said in this store is to be gone from memory, too."""
    with _LOCK:
        recent = _RECENT.get(store)
    if recent is not None:
        recent.forget()
