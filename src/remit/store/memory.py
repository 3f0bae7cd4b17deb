"""The journal in memory: encoded rows in lists, gone with the process.

It keeps bytes, never objects, so that what a run reads back is what was written. Safe over threads:
every method is short and holds one lock. Ended runs are kept up to a number of bytes, oldest dropped
first, artifacts (`shelf.py`) included; live and waiting ones are always kept, and so is what ran inside of them.
The runs of a session go together, when it is the turn of the newest.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import dropwhile, islice

from remit.artifacts import Artifact
from remit.canonical import encode
from remit.errors import DecisionError, Fenced, JournalError
from remit.pending import PendingKind
from remit.store.base import (
    Control,
    Held,
    Lease,
    NewProposal,
    NewRow,
    NewRun,
    NotNext,
    Posted,
    PostKind,
    Predecessor,
    ProposalInfo,
    RunInfo,
    RunStatus,
    StoredRow,
    Superseded,
    wrong_kind,
)
from remit.store.directory import RunEntry, RunQuery
from remit.store.grants import Grant
from remit.store.proposals import OpenProposal
from remit.store.shelf import Shelf
from remit.store.watching import watched

__all__ = ["KEEP_ENDED_BYTES", "MemoryStore"]

KEEP_ENDED_BYTES = 16_000_000
"""Rows and artifacts of ended runs that are kept, in bytes."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Record:
    run: NewRun
    root: str
    """The run at the root of its tree."""
    rows: list[StoredRow]
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
    created_at: datetime = field(default_factory=_now)
    ended_at: datetime | None = None

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
            erased_at=None,
        )

    @property
    def newest(self) -> int:
        """Id of the newest post."""
        return len(self.inbox)


@dataclass(slots=True)
class _Proposal:
    run_id: str
    new: NewProposal
    token_hash: bytes | None
    used: bool = False


class MemoryStore:
    """A `Journal` for one process."""

    def __init__(self, *, keep_ended_bytes: int = KEEP_ENDED_BYTES) -> None:
        self._keep = keep_ended_bytes
        self._lock = threading.Lock()
        self._runs: dict[str, _Record] = {}
        self._proposals: dict[str, _Proposal] = {}
        self._by_token: dict[bytes, str] = {}
        self._sessions: dict[str, list[str]] = {}
        """The runs of each, in their order."""
        self._ended: dict[str, int] = {}
        """Bytes of each ended run, oldest first."""
        self._ended_bytes = 0
        """Of their rows."""
        self._shelf = Shelf()
        self._grants: dict[str, Grant] = {}

    async def create(self, run: NewRun) -> bool | NotNext:
        with self._lock:
            if run.run_id in self._runs:
                return False
            newest = self._newest(run.session)
            refused = _not_next(run, newest)
            if refused is not None:
                return refused
            above = self._runs.get(run.parent or "")
            if above is None and newest is not None and newest.run.parent is None:
                above = newest  # a conversation shares its artifacts
            root = run.run_id if above is None else above.root
            if run.session is not None:
                self._sessions.setdefault(run.session, []).append(run.run_id)
            record = _Record(run, root, [StoredRow(0, run.opened.kind, run.opened.body)])
            record.size = len(run.opened.body)
            self._runs[run.run_id] = record
            self._shelf.enter(root)
            self._shelf.put(root, run.artifacts)
            self._shelf.share(root, run.brought)
            return True

    async def info(self, run_id: str) -> RunInfo | None:
        with self._lock:
            record = self._runs.get(run_id)
            if record is None:
                return None
            return RunInfo(
                run_id,
                record.run.spec_hash,
                record.status,
                record.owner,
                record.run.parent,
                unread=record.newest > record.taken,
                rows=len(record.rows),
            )

    async def acquire(self, run_id: str, owner: str) -> Lease | Held | Superseded:
        with self._lock:
            record = self._record(run_id)
            if record.owner is not None:
                return Held(record.owner)
            if record.run.session is not None:
                runs = self._sessions[record.run.session]
                if runs[-1] != run_id:
                    return Superseded(runs[runs.index(run_id) + 1])
            record.owner = owner
            record.epoch += 1
            self._no_longer_ended(run_id)
            if record.status != "ended":
                record.status = "running"
            return Lease(run_id, record.epoch, len(record.rows), record.taken, record.newest)

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        with self._lock:
            return self._record(run_id).rows[after + 1 :]

    async def append(
        self,
        lease: Lease,
        rows: Sequence[NewRow],
        *,
        status: RunStatus = "running",
        reason: str | None = None,
        proposals: Sequence[NewProposal] = (),
        taken: int = 0,
        artifacts: Sequence[Artifact] = (),
    ) -> Control:
        with self._lock:
            record = self._record(lease.run_id)
            if record.epoch != lease.epoch or record.owner is None:
                raise Fenced(f"run {lease.run_id!r} has another writer")
            for row in rows:
                record.rows.append(StoredRow(len(record.rows), row.kind, row.body))
                record.size += len(row.body)
            for proposal in proposals:
                self._propose(lease.run_id, proposal)
            self._shelf.put(record.root, artifacts)
            record.taken = max(record.taken, taken)
            if status == "waiting" and record.newest > record.taken:
                status = "running"
            record.status = status
            record.reason = reason
            record.ended_at = _now() if status == "ended" else None
            lease.next_seq = len(record.rows)
            return Control(record.newest, status)

    def holds(self, lease: Lease) -> bool:
        record = self._runs.get(lease.run_id)
        return record is not None and record.epoch == lease.epoch and record.owner is not None

    async def release(self, lease: Lease) -> None:
        with self._lock:
            record = self._runs.get(lease.run_id)
            if record is None or record.epoch != lease.epoch or record.owner is None:
                return
            record.owner = None
            if record.status == "running":
                record.status = "ready"
            elif record.status == "ended":
                self._now_ended(lease.run_id, record)

    async def post(
        self,
        run_id: str,
        kind: PostKind,
        body: bytes = b"",
        *,
        artifacts: Sequence[Artifact] = (),
    ) -> bool:
        with self._lock:
            record = self._runs.get(run_id)
            if record is None:
                return False
            self._shelf.put(record.root, artifacts)
            self._leave(record, kind, body)
            return True

    async def inbox(self, run_id: str, after: int = 0) -> Sequence[Posted]:
        with self._lock:
            record = self._runs.get(run_id)
            return [] if record is None else record.inbox[after:]

    async def artifact(self, run_id: str, digest: str) -> Artifact | None:
        with self._lock:
            record = self._runs.get(run_id)
            return None if record is None else self._shelf.find(record.root, digest)

    async def artifacts(
        self, run_id: str, digests: Sequence[str], take: Callable[[Artifact], object]
    ) -> int:
        for taken, digest in enumerate(digests):
            artifact = await self.artifact(run_id, digest)
            if artifact is None:
                return taken
            take(artifact)
        return len(digests)

    async def decide(
        self,
        *,
        token_hash: bytes | None = None,
        pending_id: str | None = None,
        arguments_hash: str | None = None,
        kind: PendingKind = "approval",
        decision: bytes,
        now: datetime,
    ) -> str:
        with self._lock:
            if token_hash is not None:
                pending_id = self._by_token.get(token_hash)
            proposal = self._open(pending_id, kind)
            if proposal.new.expires_at <= now:
                raise DecisionError(
                    "expired", "its time is over: resume the run, which goes on from there"
                )
            if arguments_hash is not None and arguments_hash != proposal.new.arguments_hash:
                raise DecisionError("stale", "other arguments were shown than the call now has")
            self._use_up(proposal)
            body = encode({"pending_id": proposal.new.pending_id}) + b"\n" + decision
            post: PostKind = "decision" if kind == "approval" else "supply"
            self._leave(self._record(proposal.run_id), post, body)
            return proposal.run_id

    async def proposal(self, pending_id: str) -> ProposalInfo | None:
        with self._lock:
            known = self._proposals.get(pending_id)
            return None if known is None else ProposalInfo(known.run_id, known.new.kind)

    async def open_proposals(self, *, prefix: str = "", count: int) -> Sequence[OpenProposal]:
        with self._lock:
            found = [
                OpenProposal(
                    pending_id,
                    known.run_id,
                    known.new.kind,
                    known.new.arguments_hash,
                    known.new.expires_at,
                )
                for pending_id, known in sorted(self._proposals.items())
                if pending_id.startswith(prefix)
                and not known.used
                and self._record(known.run_id).status != "ended"
            ]
            return found[:count]

    async def renew(self, pending_id: str, token_hash: bytes) -> None:
        with self._lock:
            proposal = self._open(pending_id, "approval")
            self._forget_token(proposal)
            proposal.token_hash = token_hash
            self._by_token[token_hash] = pending_id

    async def withdraw(self, pending_id: str) -> bool:
        with self._lock:
            proposal = self._proposals.get(pending_id)
            if proposal is None or proposal.used:
                return False
            self._use_up(proposal)
            body = encode({"pending_id": pending_id})
            self._leave(self._record(proposal.run_id), "withdraw", body)
            return True

    async def runs(self, query: RunQuery, *, count: int) -> Sequence[RunEntry]:
        with self._lock:
            newest = reversed(self._runs.values())
            if query.before is not None:
                newest = islice(
                    dropwhile(lambda it: it.run.run_id != query.before, newest), 1, None
                )
            fitting = (entry for record in newest if query.fits(entry := record.entry))
            return list(islice(fitting, count))

    def watch(self, run_id: str, after: int = -1) -> AsyncIterator[StoredRow]:
        return watched(self, run_id, after)

    async def add_grant(self, grant: Grant) -> None:
        self._grants[grant.id] = grant

    async def grants(self, remit: str, tool: str | None = None) -> Sequence[Grant]:
        known = tuple(self._grants.values())
        return [each for each in known if each.remit == remit and tool in (None, each.tool)]

    async def revoke_grant(self, grant_id: str, *, at: datetime) -> bool:
        del at  # nothing is kept of what is revoked
        return self._grants.pop(grant_id, None) is not None

    def _record(self, run_id: str) -> _Record:
        record = self._runs.get(run_id)
        if record is None:
            raise JournalError(f"there is no run {run_id!r} in this store")
        return record

    def _propose(self, run_id: str, proposal: NewProposal) -> None:
        self._proposals[proposal.pending_id] = _Proposal(run_id, proposal, proposal.token_hash)
        if proposal.token_hash is not None:
            self._by_token[proposal.token_hash] = proposal.pending_id
        self._runs[run_id].proposals.append(proposal.pending_id)

    def _open(self, pending_id: str | None, kind: PendingKind) -> _Proposal:
        proposal = None if pending_id is None else self._proposals.get(pending_id)
        if proposal is None:
            raise DecisionError("unknown", "no proposal is known by this token or id")
        if proposal.new.kind != kind:
            raise wrong_kind(proposal.new.kind)
        if proposal.used:
            raise DecisionError("used", "the proposal has been decided or withdrawn")
        if self._record(proposal.run_id).status == "ended":
            # It ended without a word to this proposal: the process died before it was withdrawn.
            raise DecisionError("stale", "the run that asked has ended")
        return proposal

    def _use_up(self, proposal: _Proposal) -> None:
        proposal.used = True

    def _forget_token(self, proposal: _Proposal) -> None:
        if proposal.token_hash is not None:
            self._by_token.pop(proposal.token_hash, None)

    def _leave(self, record: _Record, kind: PostKind, body: bytes) -> None:
        record.inbox.append(Posted(len(record.inbox) + 1, kind, body))

    def _now_ended(self, run_id: str, record: _Record) -> None:
        self._ended[run_id] = record.size
        self._ended_bytes += record.size
        self._shelf.rest(record.root)
        while self._ended_bytes + self._shelf.idle_bytes > self._keep and len(self._ended) > 1:
            together = next(self._droppable(run_id), None)
            if together is None:
                return
            for each in together:
                self._drop(each)

    def _droppable(self, newest: str) -> Iterator[Sequence[str]]:
        """The runs that can go, oldest first; those of a session together, or the rest could not be read."""
        kept = self._runs[newest].run.session
        for run_id in self._ended:
            session = self._runs[run_id].run.session
            together = (run_id,) if session is None else tuple(self._sessions[session])
            if run_id != together[-1] or run_id == newest or (session and session == kept):
                continue
            if all(each in self._ended and not self._is_needed(each) for each in together):
                yield together

    def _drop(self, run_id: str) -> None:
        self._ended_bytes -= self._ended.pop(run_id)
        dropped = self._runs.pop(run_id)
        if dropped.run.session is not None:
            self._sessions.pop(dropped.run.session, None)
        self._shelf.leave(dropped.root)
        for pending_id in dropped.proposals:
            proposal = self._proposals.pop(pending_id, None)
            if proposal is not None:
                self._forget_token(proposal)

    def _newest(self, session: str | None) -> _Record | None:
        runs = () if session is None else self._sessions.get(session, ())
        return self._runs[runs[-1]] if runs else None

    def _is_needed(self, run_id: str) -> bool:
        """The run around goes on yet: entered again, its call must find what ran inside (E1)."""
        parent = self._runs[run_id].run.parent
        while parent is not None and (around := self._runs.get(parent)) is not None:
            if parent not in self._ended:
                return True
            parent = around.run.parent
        return False

    def _no_longer_ended(self, run_id: str) -> None:
        size = self._ended.pop(run_id, None)
        if size is not None:
            self._ended_bytes -= size
            self._shelf.wake(self._runs[run_id].root)


def _not_next(run: NewRun, newest: _Record | None) -> NotNext | None:
    """Why a run is not the next one after this of its session; None where it is."""
    if newest is None:
        return None if run.after is None else NotNext(None)
    last = Predecessor(newest.run.run_id, len(newest.rows))
    found = NotNext(last, newest.status, newest.owner)
    return None if found.is_free and run.after == last else found
