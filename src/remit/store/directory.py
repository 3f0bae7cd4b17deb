"""Finding runs: what a store can tell of many of them without reading their rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from remit.store.base import RunStatus, StoredRow

__all__ = ["Directory", "RunEntry", "RunQuery"]


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One run in a list."""

    run_id: str
    remit: str
    """The name of the remit it belongs to."""
    status: RunStatus
    reason: str | None
    """Why it ended; None where it has not."""
    parent: str | None
    """The run around."""
    session: str | None
    tags: Mapping[str, str]
    owner: str | None
    """Who holds the lease."""
    rows: int
    created_at: datetime
    ended_at: datetime | None
    erased_at: datetime | None
    """When what it said was erased; None where it is still there."""
    lost: bool = False
    """Whoever holds the lease is gone without a word: what it was doing broke off, and it can be resumed."""


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs: all that fit everything that is given."""

    statuses: frozenset[RunStatus] = frozenset()
    """Empty: any."""
    reasons: frozenset[str] = frozenset()
    """Empty: any."""
    remit: str | None = None
    session: str | None = None
    tags: Mapping[str, str] = {}
    """Each tag with exactly this value."""
    parent: str | None = None
    """The runs inside this one."""
    roots: bool = False
    """Only runs that are inside no other."""
    prefix: str = ""
    """What the id begins with."""
    since: datetime | None = None
    until: datetime | None = None
    """Created in this time; `until` is not in it."""
    before: str | None = None
    """Only what stands behind the run of this id in the list: where the next page begins. Nothing, where there is
    no such run."""

    def fits(self, entry: RunEntry) -> bool:
        """Whether a run is one of these, `before` aside."""
        return (
            (not self.statuses or entry.status in self.statuses)
            and (not self.reasons or entry.reason in self.reasons)
            and (self.remit is None or entry.remit == self.remit)
            and (self.session is None or entry.session == self.session)
            and self.tags.items() <= entry.tags.items()
            and (self.parent is None or entry.parent == self.parent)
            and not (self.roots and entry.parent is not None)
            and entry.run_id.startswith(self.prefix)
            and (self.since is None or entry.created_at >= self.since)
            and (self.until is None or entry.created_at < self.until)
        )


@runtime_checkable
class Directory(Protocol):
    """What runs there are."""

    async def runs(self, query: RunQuery, *, count: int) -> Sequence[RunEntry]:
        """The newest `count` runs that fit, newest first.

        That is by `created_at`, whichever way the clock was set in between, and by id where that is the same.
        """
        ...

    def watch(self, run_id: str, after: int = -1) -> AsyncIterator[StoredRow]:
        """The rows behind `after` as they are committed, by whichever process; it ends when the run has ended or waits.

        Errors: `JournalError` for an unknown run.
        """
        ...
