"""The store of a command, opened: to write, or only to read.

A command that writes makes the file. One that only reads never does: there, no file means that nothing was run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from remit.cli.exits import NotFound
from remit.cli.locations import BUILT_IN_ORIGIN, Location, location_here, no_store
from remit.errors import ConfigurationError
from remit.store.sqlite import SqliteStore
from remit.store.sqlite.place import PRIVATE_FILE, private_folder

__all__ = ["opened", "store_to_read", "store_to_write"]


@contextlib.contextmanager
def opened(flag: str | None) -> Generator[SqliteStore]:
    """The store that a command works on, which is not made, and closed in the end; `flag` is `--store`.

    Errors: `NotFound`, `ConfigurationError`.
    """
    store = store_to_read(location_here(flag))
    try:
        yield store
    finally:
        store.close()


def store_to_write(location: Location) -> SqliteStore:
    """The store of a location, made where it is not there. Errors: `ConfigurationError`."""
    path = _path(location)
    if location.origin == BUILT_IN_ORIGIN:
        _make_private(path)
    return SqliteStore(path)


def store_to_read(location: Location) -> SqliteStore:
    """The store of a location, which is not made. Errors: `NotFound`, `ConfigurationError`."""
    if location.is_empty:
        raise NotFound(no_store(location))
    return SqliteStore(_path(location))


def _path(location: Location) -> Path:
    """Errors: `ConfigurationError` where there is none."""
    if location.path is None:
        raise ConfigurationError(
            f"{location.origin}: memory: keeps nothing once the command has ended; name a file, "
            "such as sqlite:///remit.db"
        )
    return location.path


def _make_private(path: Path) -> None:
    """Make the user's own file, for nobody else to read. Errors: `ConfigurationError`."""
    try:
        private_folder(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {error.strerror or error}; say where runs are to be kept: "
            "--store sqlite:///FILE.db"
        ) from error
