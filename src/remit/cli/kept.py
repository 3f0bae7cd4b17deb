"""Where the runs of a command are kept, and how a later command finds them there.

A remit that brings a store keeps its runs there, until a flag says otherwise. All others keep them where commands
look for runs (`stores.py`), so that what waits, or was cut off, can be gone on with after the command has ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from shlex import quote

from remit.cli.locations import BUILT_IN_ORIGIN, location_of
from remit.cli.settings import Settings
from remit.cli.stores import store_to_write
from remit.cli.streams import complain
from remit.cli.targets import AnyRemit
from remit.errors import ConfigurationError
from remit.store.base import Journal
from remit.store.memory import MemoryStore
from remit.store.sqlite import SqliteStore

__all__ = ["Kept", "kept"]


@dataclass(frozen=True, slots=True)
class Kept:
    """A remit with the store of its runs."""

    remit: AnyRemit
    reached_by: str | None
    """What a command is given, behind its words, to find the runs there; None where no command can."""


@contextlib.contextmanager
def kept(remit: AnyRemit, flag: str | None, settings: Settings) -> Generator[Kept]:
    """The remit with its store, which is closed in the end. Errors: `ConfigurationError`."""
    if flag is None and type(remit.store) is not MemoryStore:
        yield Kept(remit, _reached_by(remit.store, settings))
        return
    store = _store(flag, settings)
    if store is None:
        yield Kept(remit.replace(store="memory:"), None)
        return
    try:
        yield Kept(remit.replace(store=store), _reached_by(store, settings))
    finally:
        store.close()


def _store(flag: str | None, settings: Settings) -> SqliteStore | None:
    """The file of the runs; None where they stay in memory. Errors: `ConfigurationError`.

    Where nobody chose a place, and the usual one cannot be had, a run is worth more than its record.
    """
    named = settings.store
    chosen = flag is not None or (named is not None and named.origin != BUILT_IN_ORIGIN)
    try:
        location = location_of(flag, settings)
        return None if location.path is None else store_to_write(location)
    except ConfigurationError as error:
        if chosen:
            raise
        complain(f"the run is not kept: {error}")
        return None


def _reached_by(store: Journal, settings: Settings) -> str | None:
    if not isinstance(store, SqliteStore):
        return None
    path = store.path.absolute()
    looked_at = None if settings.store is None else location_of(None, settings).path
    if looked_at is not None and looked_at.absolute() == path:
        return ""
    return f" --store {quote(f'sqlite:///{path}')}"
