"""Where runs are kept, for a command: found by flag, environment and files. Nothing is opened here (`stores.py` does).

    --store           wins
    REMIT_STORE       then the environment
    store = "..."     then remit.toml, [tool.remit] of pyproject.toml, the user's own file; a path in a file
                      begins where the file stands
    built in          a file among what programs keep of the user

It loads nothing that takes time: a shell that completes a word asks here, too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

from remit.cli.settings import Setting, Settings, here, read_settings
from remit.errors import ConfigurationError
from remit.store.names import file_named

__all__ = [
    "BUILT_IN_ORIGIN",
    "Location",
    "location_here",
    "location_of",
    "no_store",
    "project_of",
    "reach_of",
]

BUILT_IN_ORIGIN: Final = "built in"
"""The origin of a location that nobody chose."""


@dataclass(frozen=True, slots=True)
class Location:
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


def location_of(flag: str | None, settings: Settings) -> Location:
    """Where a command keeps runs, or finds them. Errors: `ConfigurationError` for a name that stands for no store."""
    setting = settings.store if flag is None else Setting(flag, "--store")
    if setting is None:
        raise ConfigurationError(
            "there is no home in which to keep runs: name a place, such as --store sqlite:///remit.db"
        )
    named = file_named(setting.value)
    if named is None:
        return Location(None, setting.origin)
    return Location(Path(named) if setting.base is None else setting.base / named, setting.origin)


def location_here(flag: str | None) -> Location:
    """The same for a command that is called here. Errors: `ConfigurationError`."""
    return location_of(flag, read_settings(here(), os.environ))


def no_store(location: Location) -> str:
    """That nothing is kept there, in words."""
    return (
        f"there is no store at {location}: nothing was run yet, or it is kept elsewhere (--store)"
    )


def project_of(settings: Settings) -> str | None:
    """The file of a project that says where runs are kept; None where the user says it."""
    store = settings.store
    return store.origin if store is not None and store.of_project else None


def reach_of(flag: str | None) -> str:
    """What another command is given, behind its words, to find the store of a command with this `--store`."""
    return "" if flag is None else f" --store {quote(flag)}"
