"""A run as the store in memory keeps it, what is left of it when it is erased, and which of them go together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from remit.store.base import NewRow, NewRun, Posted, RunStatus, StoredRow
from remit.store.directory import RunEntry
from remit.store.whole import Kin, together, unknown

__all__ = ["Record", "named", "old", "others"]


@dataclass(slots=True)
class Record:
    """One run."""

    run: NewRun
    root: str
    """The run at the root of its tree."""
    rows: list[StoredRow]
    created_at: datetime
    inbox: list[Posted] = field(default_factory=list[Posted])
    proposals: list[str] = field(default_factory=list[str])
    """Ids of all that was ever proposed in it."""
    taken: int = 0
    status: RunStatus = "ready"
    reason: str | None = None
    """Why it ended."""
    epoch: int = 0
    owner: str | None = None
    size: int = 0
    born: int = 0
    """Tells it from another one that had its id before."""
    ended_at: datetime | None = None
    erased_at: datetime | None = None

    @property
    def entry(self) -> RunEntry:
        """What the list of runs says of it."""
        return RunEntry(
            run_id=self.run.run_id,
            remit=self.run.remit,
            status=self.status,
            reason=self.reason,
            parent=self.run.parent,
            session=self.run.session,
            tags=self.run.tags,
            owner=self.owner,
            rows=len(self.rows),
            created_at=self.created_at,
            ended_at=self.ended_at,
            erased_at=self.erased_at,
        )

    @property
    def head(self) -> bytes:
        """What no other run has, nor this one with more rows or fewer."""
        return b"%d:%d" % (self.born, len(self.rows))

    @property
    def newest(self) -> int:
        """Id of the newest post."""
        return len(self.inbox)

    @property
    def kin(self) -> Kin:
        return Kin(self.run.run_id, self.run.parent, self.run.session, self.owner)

    @property
    def place(self) -> tuple[datetime, str]:
        """Where it stands in a list of runs."""
        return self.created_at, self.run.run_id

    def bury(self, now: datetime) -> None:
        """Take back what was said. What stays: id and remit, when it was, how many rows it had and of which kinds."""
        if self.status != "ended":
            self.status, self.reason, self.ended_at = "ended", "cancelled", now
        run = self.run
        self.run = NewRun(
            run.run_id, b"", NewRow(run.opened.kind, b""), run.parent, remit=run.remit
        )
        self.rows = [StoredRow(row.seq, row.kind, b"") for row in self.rows]
        self.erased_at, self.size, self.taken = now, 0, 0
        self.inbox.clear()
        self.proposals.clear()

    def rename(self, names: Mapping[str, str]) -> None:
        """Go by another id, inside a run that may go by another one, too."""
        run_id, parent = self.run.run_id, self.run.parent or ""
        self.run = msgspec.structs.replace(
            self.run,
            run_id=names.get(run_id, run_id),
            parent=names.get(parent, self.run.parent),
        )


def named(
    runs: Mapping[str, Record], *, run_id: str | None, session: str | None
) -> Sequence[Record]:
    """A run, or the runs of a session, with all that is inside of them. Errors: `ConfigurationError`."""
    found = {each: runs[each] for each in (run_id,) if each is not None and each in runs}
    of_it = [run for run in runs.values() if session is not None and run.run.session == session]
    if run_id is not None and not found:
        raise unknown("run", run_id)
    if session is not None and not of_it:
        raise unknown("session", session)
    found |= {run.run.run_id: run for run in of_it}
    inside: dict[str, list[Record]] = {}
    for run in runs.values():
        inside.setdefault(run.run.parent or "", []).append(run)
    looked_at = list(found)
    for each in looked_at:  # it grows while it is gone through
        for child in inside.get(each, ()):
            if child.run.run_id not in found:
                found[child.run.run_id] = child
                looked_at.append(child.run.run_id)
    return list(found.values())


def others(runs: Mapping[str, Record], going: Iterable[Record]) -> Sequence[Kin]:
    """The runs of their sessions that are not among these."""
    among = {run.run.run_id for run in going}
    sessions = {run.run.session for run in going} - {None}
    return [
        run.kin
        for run in runs.values()
        if run.run.session in sessions and run.run.run_id not in among
    ]


def old(runs: Mapping[str, Record], until: datetime) -> Sequence[Record]:
    """What ended before a moment and can go: whole trees, and those that a session binds together, together."""
    trees: dict[str, list[Record]] = {}
    for run in runs.values():
        trees.setdefault(run.root, []).append(run)
    ended = {root for root, tree in trees.items() if all(_is_old(run, until) for run in tree)}
    sessions = [(run.run.session, run.root) for run in runs.values()]
    bound = [(session, root) for session, root in sessions if session is not None]
    return [
        run
        for group in together(ended, bound)
        if group <= ended
        for root in group
        for run in trees[root]
    ]


def _is_old(run: Record, until: datetime) -> bool:
    return (
        run.status == "ended"
        and run.owner is None
        and run.ended_at is not None
        and run.ended_at < until
    )
