"""How long what was said is kept: erased when a person asks for it, pruned when it is old.

To erase is to take back what was said and to keep that something was said: the run stays as a tombstone, with the
chain over its rows, which still verifies. To prune is to forget whole runs, rows and all.

Every store of remit keeps to `Keeping`; `whole.py` beside this says what goes together. Copying and checking are no part
of it: of a store in memory there is nothing to copy, and nobody else could have changed it, so it has no chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from remit.store.base import RunStatus

__all__ = [
    "Copied",
    "Erased",
    "Finding",
    "Keeping",
    "Pruned",
    "Stock",
]


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure took back."""

    runs: int
    """Runs of which a tombstone is left; those that were one before do not count."""
    artifacts: int
    """Artifacts that nobody else held."""
    ended: tuple[str, ...] = ()
    """Ids of those that had not ended, and will not go on."""
    complete: bool = True
    """False: nobody is told anything of it any more, but old copies of pages may still lie in the files, because
    others were at work. Erase again when they are not, and they go."""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What a pruning removed, or would remove."""

    runs: int = 0
    rows: int = 0
    artifacts: int = 0
    files: int = 0
    """Files beside the database that no run ever came to name."""


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds."""

    runs: int
    artifact_files: int
    bytes: int
    """Of the database and the files."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a store that is not as it was written."""

    what: str
    """In words."""
    run_id: str | None = None
    seq: int | None = None
    """The row of that run."""


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds, in numbers."""

    schema: int
    keyed: bool
    """Whether its chains are made with a key."""
    runs: Mapping[RunStatus, int]
    """By how they stand; tombstones are among those that ended."""
    erased: int
    """Tombstones."""
    sessions: int
    rows: int
    artifacts: int
    bytes: int
    """Of the database, and so below of what is beside it."""
    log_bytes: int
    artifact_file_bytes: int
    oldest: datetime | None
    newest: datetime | None
    """When the first and the last run that are here were created."""


class Keeping(Protocol):
    """A store that can forget."""

    async def erase(self, *, run_id: str | None = None, session: str | None = None) -> Erased:
        """Take back what was said in a run and the runs inside it, in all runs of a session, or in both together.

        A run that waits or was interrupted is ended by it: whoever asks for more than the end asks for the end.
        The id of a run stays taken; the name of a session, tags and whatever was digested of arguments goes.
        Errors: `ConfigurationError` for what is unknown or is only a part of something; `RunBusy` where a
        worker that is alive has a run; `JournalError`. Nothing is changed then.
        """
        ...

    async def prune(self, older_than: timedelta, *, dry_run: bool = False) -> Pruned:
        """Remove what ended longer ago than that: whole trees, and a session with all of its runs.

        Nothing that has not ended is ever removed. With `dry_run` nothing is: it is counted.
        Errors: `ConfigurationError`, `JournalError`.
        """
        ...
