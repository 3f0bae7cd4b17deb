"""The journal in memory: encoded rows in lists, gone with the process.

It keeps bytes, never objects, so that what a run reads back is what was written. Safe over threads:
every method is short and holds one lock. Ended runs are kept up to a number of bytes, oldest dropped
first, artifacts (`shelf.py`) included; live and waiting ones are always kept, and so is what ran inside of them.
The runs of a session go together, when it is the turn of the newest.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, dropwhile, islice

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
    RunRows,
    RunStatus,
    StoredRow,
    Superseded,
    wrong_kind,
)
from remit.store.directory import RunEntry, RunQuery
from remit.store.grants import Grant
from remit.store.keeping import Erased, Pruned
from remit.store.proposals import OpenProposal
from remit.store.recent import forget
from remit.store.records import Record, named, old, others
from remit.store.shelf import Shelf
from remit.store.watching import watched
from remit.store.whole import check_named, check_whole, new_names, since

__all__ = ["KEEP_ENDED_BYTES", "MemoryStore"]

KEEP_ENDED_BYTES = 16_000_000
"""Rows and artifacts of ended runs that are kept, in bytes."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Proposal:
    run_id: str
    new: NewProposal
    token_hash: bytes | None
    used: bool = False


class MemoryStore:
    """A `Journal` for one process."""

    def __init__(
        self,
        *,
        keep_ended_bytes: int = KEEP_ENDED_BYTES,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """`now` is calendar time, aware: by it runs are listed and pruned."""
        self._keep = keep_ended_bytes
        self._now = now
        self._lock = threading.Lock()
        self._runs: dict[str, Record] = {}
        self._proposals: dict[str, _Proposal] = {}
        self._by_token: dict[bytes, str] = {}
        self._born = count()
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
            rows = [StoredRow(0, run.opened.kind, run.opened.body)]
            record = Record(run, root, rows, self._now())
            record.size, record.born = len(run.opened.body), next(self._born)
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
                erased=record.erased_at is not None,
            )

    async def acquire(self, run_id: str, owner: str) -> Lease | Held | Superseded:
        with self._lock:
            record = self._standing(run_id)
            if record.owner is not None:
                return Held(record.owner)
            if record.run.session is not None:
                runs = self._sessions[record.run.session]
                if runs[-1] != run_id:
                    return Superseded(runs[runs.index(run_id) + 1])
            record.owner = owner
            record.epoch += 1
            self._no_longer_ended(run_id)
            stood: RunStatus = "waiting" if record.status == "waiting" else "ready"
            if record.status != "ended":
                record.status = "running"
            return Lease(run_id, record.epoch, len(record.rows), record.taken, record.newest, stood)

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        with self._lock:
            return self._standing(run_id).rows[after + 1 :]

    async def read_back(self, run_id: str, known: Mapping[str, bytes]) -> Sequence[RunRows]:
        found: list[RunRows] = []
        with self._lock:
            record = self._standing(run_id)
            runs = self._sessions.get(record.run.session or "", [run_id])
            for each in reversed(runs[: runs.index(run_id) + 1]):
                record = self._standing(each)
                is_known = known.get(each) == record.head
                found.append(RunRows(each, record.head, () if is_known else tuple(record.rows)))
                if is_known:
                    break
        return found

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
            record.ended_at = self._now() if status == "ended" else None
            lease.next_seq, lease.stood = len(record.rows), "ready"
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
                record.status = lease.stood
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
            if record is None or record.erased_at is not None:
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
            newest = iter(sorted(self._runs.values(), key=lambda it: it.place, reverse=True))
            if query.before is not None:
                newest = islice(
                    dropwhile(lambda it: it.run.run_id != query.before, newest), 1, None
                )
            fitting = (entry for record in newest if query.fits(entry := record.entry))
            return list(islice(fitting, count))

    def watch(self, run_id: str, after: int = -1) -> AsyncIterator[StoredRow]:
        return watched(self, run_id, after)

    async def add_grant(self, grant: Grant) -> None:
        with self._lock:
            self._grants[grant.id] = grant

    async def grants(self, remit: str, tool: str | None = None) -> Sequence[Grant]:
        known = tuple(self._grants.values())
        return [each for each in known if each.remit == remit and tool in (None, each.tool)]

    async def revoke_grant(self, grant_id: str, *, at: datetime) -> bool:
        del at  # nothing is kept of what is revoked
        with self._lock:
            return self._grants.pop(grant_id, None) is not None

    async def erase(self, *, run_id: str | None = None, session: str | None = None) -> Erased:
        check_named(run_id, session)
        with self._lock:
            runs = named(self._runs, run_id=run_id, session=session)
            check_whole([run.kin for run in runs], others(self._runs, runs))
            standing = [run for run in runs if run.erased_at is None]
            ended = tuple([run.run.run_id for run in standing if run.status != "ended"])
            kept = len(self._shelf)
            for run in standing:
                self._bury(run)
            self._rename(runs)
            forget(self)
            return Erased(runs=len(standing), artifacts=kept - len(self._shelf), ended=ended)

    async def prune(self, older_than: timedelta, *, dry_run: bool = False) -> Pruned:
        before = since(older_than, self._now())
        with self._lock:
            going = old(self._runs, before)
            artifacts = self._shelf.only_of({run.root for run in going})
            if not dry_run:
                for run in going:
                    self._drop(run.run.run_id)
                forget(self)
            rows = sum([len(run.rows) for run in going])
            return Pruned(runs=len(going), rows=rows, artifacts=artifacts)

    def _record(self, run_id: str) -> Record:
        record = self._runs.get(run_id)
        if record is None:
            raise JournalError(f"there is no run {run_id!r} in this store")
        return record

    def _standing(self, run_id: str) -> Record:
        record = self._record(run_id)
        if record.erased_at is not None:
            raise JournalError(
                f"run {run_id!r} was erased: what it said is gone, that it was is kept"
            )
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

    def _leave(self, record: Record, kind: PostKind, body: bytes) -> None:
        record.inbox.append(Posted(len(record.inbox) + 1, kind, body))

    def _now_ended(self, run_id: str, record: Record) -> None:
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
        """Forget a run that has ended."""
        dropped = self._runs.pop(run_id)
        self._forget_beside(dropped)
        self._shelf.leave(dropped.root)

    def _bury(self, run: Record) -> None:
        """Leave a tombstone of a run that nobody executes."""
        if run.run.run_id not in self._ended:
            self._shelf.rest(run.root)
        session = run.run.session
        self._forget_beside(run)
        self._revoke(lambda grant: session is not None and grant.session == session)
        run.bury(self._now())
        if all(each.erased_at is not None for each in self._runs.values() if each.root == run.root):
            self._shelf.empty(run.root)

    def _rename(self, runs: Sequence[Record]) -> None:
        """Take away what ids tell of what was asked."""
        names = new_names([run.kin for run in runs])
        for run in runs:
            del self._runs[run.run.run_id]
            run.rename(names)
            self._runs[run.run.run_id] = run

    def _forget_beside(self, run: Record) -> None:
        """What is kept of a run beside its rows: its place, its session, what it proposed and was granted."""
        run_id = run.run.run_id
        self._ended_bytes -= self._ended.pop(run_id, 0)
        if run.run.session is not None:
            self._sessions.pop(run.run.session, None)
        for pending_id in run.proposals:
            proposal = self._proposals.pop(pending_id, None)
            if proposal is not None:
                self._forget_token(proposal)
        self._revoke(lambda grant: grant.run_id == run_id)

    def _revoke(self, goes: Callable[[Grant], bool]) -> None:
        if self._grants:
            self._grants = {id_: grant for id_, grant in self._grants.items() if not goes(grant)}

    def _newest(self, session: str | None) -> Record | None:
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


def _not_next(run: NewRun, newest: Record | None) -> NotNext | None:
    """Why a run is not the next one after this of its session; None where it is."""
    if newest is None:
        return None if run.after is None else NotNext(None)
    last = Predecessor(newest.run.run_id, len(newest.rows))
    found = NotNext(last, newest.status, newest.owner)
    return None if found.is_free and run.after == last else found
