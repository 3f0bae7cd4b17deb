"""Where runs are kept, for a command: found by flag, environment and files, opened to write or only to read.

    --store           wins
    REMIT_STORE       then the environment
    store = "..."     then remit.toml, [tool.remit] of pyproject.toml, the user's own file; a path in a file
                      begins where the file stands
    built in          a file among what programs keep of the user

A command that writes makes the file. One that only reads never does: there, no file means that nothing was run.
"""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from remit.cli.exits import NotFound
from remit.cli.settings import Setting, Settings
from remit.errors import ConfigurationError
from remit.store.names import file_named
from remit.store.sqlite import SqliteStore
from remit.store.sqlite.place import PRIVATE_FILE, private_folder

__all__ = [
    "BUILT_IN_PLACE",
    "Place",
    "no_store",
    "place_of",
    "project_of",
    "reached_by",
    "store_to_read",
    "store_to_write",
]

BUILT_IN_PLACE: Final = "built in"
"""The origin of a place that nobody chose."""


class Place(msgspec.Struct, frozen=True):
    """Where runs are kept."""

    path: Path | None
    """The file; None for the memory, which keeps nothing once the command has ended."""
    origin: str
    """Who says so: `--store`, a variable, a file as the user would name it, or `built in`."""

    @property
    def exists(self) -> bool:
        """Whether anything was ever kept there."""
        try:
            return self.path is not None and self.path.stat().st_size > 0
        except OSError:
            return False

    @property
    def is_empty(self) -> bool:
        """Whether it is a file that is not there yet."""
        return self.path is not None and not self.exists

    def __str__(self) -> str:
        return "memory:" if self.path is None else str(self.path)


def place_of(flag: str | None, settings: Settings) -> Place:
    """Where a command keeps runs, or finds them. Errors: `ConfigurationError` for a name that stands for no store."""
    setting = settings.store if flag is None else Setting(flag, "--store")
    if setting is None:
        raise ConfigurationError(
            "there is no home in which to keep runs: name a place, such as --store sqlite:///remit.db"
        )
    named = file_named(setting.value)
    if named is None:
        return Place(None, setting.origin)
    return Place(Path(named) if setting.base is None else setting.base / named, setting.origin)


def store_to_write(place: Place) -> SqliteStore:
    """The store of a place, made where it is not there. Errors: `ConfigurationError`."""
    if place.path is None:
        raise ConfigurationError(
            f"{place.origin}: memory: keeps nothing once the command has ended; name a file, "
            "such as sqlite:///remit.db"
        )
    if place.origin == BUILT_IN_PLACE:
        _make_private(place.path)
    return SqliteStore(place.path)


def store_to_read(place: Place) -> SqliteStore:
    """The store of a place, which is not made. Errors: `NotFound`, `ConfigurationError`."""
    if place.is_empty:
        raise NotFound(no_store(place))
    return store_to_write(place)


def no_store(place: Place) -> str:
    """That nothing is kept there, in words."""
    return f"there is no store at {place}: nothing was run yet, or it is kept elsewhere (--store)"


def project_of(settings: Settings) -> str | None:
    """The file of a project that says where runs are kept; None where the user says it."""
    store = settings.store
    return store.origin if store is not None and store.of_project else None


def reached_by(flag: str | None) -> str:
    """What another command is given, behind its words, to find the store of a command with this `--store`."""
    return "" if flag is None else f" --store {quote(flag)}"


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
