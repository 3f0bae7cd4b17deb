"""Stores by name: `memory:`, or `sqlite:///` and a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remit.errors import ConfigurationError

if TYPE_CHECKING:
    from remit.store.base import Journal

__all__ = ["KNOWN", "file_named", "store_named"]

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
    path = file_named(store)
    if path is None:
        from remit.store.memory import MemoryStore

        return MemoryStore()
    from remit.store.sqlite import SqliteStore

    return SqliteStore(path)


def file_named(name: str) -> str | None:
    """The path of the file that a name stands for; None for the memory. Nothing is opened.

    Errors: `ConfigurationError` for a name that stands for no store.
    """
    if name == "memory:":
        return None
    path = name.removeprefix(_SQLITE)
    if path == name or not path or "\0" in path:
        near = (
            f"; did you mean {_SQLITE}{name}?" if name.endswith(".db") and ":" not in name else ""
        )
        raise ConfigurationError(f"store {name!r}: a store is named as {' or '.join(KNOWN)}{near}")
    return path
