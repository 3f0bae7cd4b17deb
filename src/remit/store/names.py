"""Stores by name: `memory:`, or `sqlite:///` and a path."""

from __future__ import annotations

from typing import Final

from remit.errors import ConfigurationError
from remit.store.base import Journal

__all__ = ["KNOWN", "store_named"]

KNOWN: Final = ("sqlite:///FILE.db", "memory:")
"""What can be named, for people; the words in capitals are theirs to fill in."""

_SQLITE: Final = "sqlite:///"


def store_named(store: Journal | str) -> Journal:
    """A store as it stands, or the one of that name: `sqlite:///remit.db` beside the program that runs,
    `sqlite:////var/lib/remit.db` at an absolute path. A file is made with the first use.

    Errors: `ConfigurationError` for a name that stands for no store.
    """
    if not isinstance(store, str):
        return store
    if store == "memory:":
        from remit.store.memory import MemoryStore

        return MemoryStore()
    path = store.removeprefix(_SQLITE)
    if path == store or not path:
        near = (
            f"; did you mean {_SQLITE}{store}?"
            if store.endswith(".db") and ":" not in store
            else ""
        )
        raise ConfigurationError(f"store {store!r}: a store is named as {' or '.join(KNOWN)}{near}")
    from remit.store.sqlite import SqliteStore

    return SqliteStore(path)
