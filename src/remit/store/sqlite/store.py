"""A store in a SQLite file: what was acknowledged survives a kill and a power cut.

One writer thread with group commit (`writer.py`) does everything that changes something; reads go on beside it
on connections of their own. WAL with `synchronous = full`: measured, a commit costs one flush to the disk, and a
hundred runs share it. The binding is the standard library's: the driver is lost in the noise of that flush.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from remit.artifacts import Artifact
from remit.errors import Fenced, JournalError
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
    ProposalInfo,
    RunInfo,
    RunRows,
    RunStatus,
    StoredRow,
    Superseded,
)
from remit.store.chain import Chain
from remit.store.directory import RunEntry, RunQuery
from remit.store.grants import Grant
from remit.store.keeping import Copied, Erased, Finding, Pruned, Stock
from remit.store.proposals import OpenProposal
from remit.store.recent import forget
from remit.store.sqlite import acts, checking, copying, directory, grants, held, keeping, reading
from remit.store.sqlite.files import INLINE_BYTES, Files
from remit.store.sqlite.names import sought_all
from remit.store.sqlite.opening import Opening
from remit.store.sqlite.place import Place
from remit.store.sqlite.settling import Comes
from remit.store.sqlite.writer import ended
from remit.store.watching import watched
from remit.store.whole import check_named, since

__all__ = ["LEASE_SECONDS", "SqliteStore"]

T = TypeVar("T")

LEASE_SECONDS: Final = 10.0
_SWEPT_SECONDS: Final = 0.5
"""In this time whoever erases or prunes has swept something more."""


class SqliteStore:
    """A `Journal` for the processes of one machine. Opened with its first use."""

    def __init__(
        self,
        path: str | Path,
        *,
        key: bytes | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """`key` makes the chain over the rows an HMAC; the environment's `REMIT_STORE_KEY` where it is None.

        Units: a worker that is not heard of for `lease_seconds` may be taken over from. On one machine a dead
        process is known at once; this is for those that hang.
        """
        self._path = Path(path)
        self._place = Place(self._path)
        self._lease_seconds = lease_seconds
        self._chain = Chain(_key_from_environment() if key is None else key)
        self._files = Files(self._place.beside / "artifacts")
        self._lock = threading.Lock()
        self._opening: Opening | None = None

    def __repr__(self) -> str:
        return f"<SqliteStore {self._path}>"

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    # Runs

    async def create(self, run: NewRun) -> bool | NotNext:
        opening = self._open()
        return await self._keeping(
            run.artifacts,
            lambda c: acts.create(c, self._chain, run, lambda w: opening.lives(c, w)),
            Comes.NEW,
        )

    async def info(self, run_id: str) -> RunInfo | None:
        opening = self._open()
        return await self._read(lambda c: directory.info(c, run_id, lambda w: opening.lives(c, w)))

    async def acquire(self, run_id: str, owner: str) -> Lease | Held | Superseded:
        opening = self._open()
        return await self._do(
            lambda c: acts.acquire(c, run_id, owner, opening.worker, lambda w: opening.lives(c, w)),
            Comes.TAKING_UP,
        )

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        return await self._read(lambda c: reading.rows(c, self._chain, run_id, after))

    async def read_back(self, run_id: str, known: Mapping[str, bytes]) -> Sequence[RunRows]:
        return await self._read(lambda c: reading.rows_back(c, self._chain, run_id, known))

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
        if not isinstance(lease, acts.OwnLease):
            raise Fenced(f"run {lease.run_id!r} was not acquired of this store")
        worker = self._open().worker
        written = acts.written_by(self._chain, lease, rows)
        control, found_at = await self._keeping(
            artifacts,
            lambda c: acts.append(
                c,
                written,
                worker,
                status=status,
                reason=reason,
                proposals=proposals,
                taken=taken,
                artifacts=artifacts,
            ),
        )
        lease.wrote(written, found_at)
        return control

    def holds(self, lease: Lease) -> bool:
        opening = self._opening
        # A worker that falls silent and is heard again may have been taken for dead in between: what it held
        # before counts again once a transaction has found it.
        return opening is not None and opening.is_heard and lease.found_at >= opening.heard_from

    async def release(self, lease: Lease) -> None:
        opening = self._open()
        try:
            await self._do(lambda c: acts.release(c, lease, opening.worker))
        except JournalError:
            opening.unreleased.append(lease)

    # Outsiders

    async def post(
        self,
        run_id: str,
        kind: PostKind,
        body: bytes = b"",
        *,
        artifacts: Sequence[Artifact] = (),
    ) -> bool:
        return await self._keeping(artifacts, lambda c: acts.post(c, run_id, kind, body, artifacts))

    async def inbox(self, run_id: str, after: int = 0) -> Sequence[Posted]:
        found = await self._all(
            "select id, kind, body from remit_post where run_id = ? and id > ? order by id",
            run_id,
            after,
        )
        return [Posted(number, kind, body) for number, kind, body in found]

    async def unread(self) -> Mapping[str, int]:
        found = await self._all(
            "select run_id, inbox_max from remit_run where worker = ? and inbox_max > taken",
            self._open().worker,
        )
        return dict(found)

    async def artifact(self, run_id: str, digest: str) -> Artifact | None:
        return await self._read(lambda c: held.artifact(c, self._files, run_id, digest))

    async def artifacts(
        self, run_id: str, digests: Sequence[str], take: Callable[[Artifact], object]
    ) -> int:
        return await self._read(lambda c: held.artifacts(c, self._files, run_id, digests, take))

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
        return await self._do(
            lambda c: acts.decide(
                c,
                token_hash=token_hash,
                pending_id=pending_id,
                arguments_hash=arguments_hash,
                kind=kind,
                decision=decision,
                now=now,
            )
        )

    async def proposal(self, pending_id: str) -> ProposalInfo | None:
        found = await self._one(
            "select run_id, kind from remit_proposal where pending_id = ?", pending_id
        )
        return None if found is None else ProposalInfo(*found)

    async def open_proposals(self, *, prefix: str = "", count: int) -> Sequence[OpenProposal]:
        found = await self._all(
            "select p.pending_id, p.run_id, p.kind, p.arguments_hash, p.expires_at"
            " from remit_proposal p join remit_run r using(run_id)"
            " where p.pending_id >= ? and substr(p.pending_id, 1, ?) = ? and not p.used"
            " and r.status != 'ended' order by p.pending_id limit ?",
            prefix,
            len(prefix),
            prefix,
            count,
        )
        return [
            OpenProposal(pending_id, run_id, kind, shown, datetime.fromisoformat(until))
            for pending_id, run_id, kind, shown, until in found
        ]

    async def renew(self, pending_id: str, token_hash: bytes) -> None:
        await self._do(lambda c: acts.renew(c, pending_id, token_hash))

    async def withdraw(self, pending_id: str) -> bool:
        return await self._do(lambda c: acts.withdraw(c, pending_id))

    # Finding

    async def runs(self, query: RunQuery, *, count: int) -> Sequence[RunEntry]:
        opening = self._open()
        return await self._read(
            lambda c: directory.runs(c, query, count, lambda worker: opening.lives(c, worker))
        )

    def watch(self, run_id: str, after: int = -1) -> AsyncIterator[StoredRow]:
        return watched(self, run_id, after)

    async def add_grant(self, grant: Grant) -> None:
        await self._do(lambda c: grants.add(c, grant))

    async def grants(self, remit: str, tool: str | None = None) -> Sequence[Grant]:
        return await self._read(lambda c: grants.of(c, remit, tool))

    async def revoke_grant(self, grant_id: str, *, at: datetime) -> bool:
        return await self._do(lambda c: grants.revoke(c, grant_id, at))

    # Keeping

    async def erase(self, *, run_id: str | None = None, session: str | None = None) -> Erased:
        check_named(run_id, session)
        try:
            return await self._open().apart(
                lambda c, lives: keeping.erase(
                    c, self._files, lives, run_id=run_id, session=session, now=time.time()
                )
            )
        finally:
            forget(self)

    async def prune(self, older_than: timedelta, *, dry_run: bool = False) -> Pruned:
        before = since(older_than, datetime.now(UTC))
        act = keeping.prunable if dry_run else keeping.prune
        try:
            return await self._open().apart(
                lambda c, lives: act(c, self._files, lives, before=before, now=time.time())
            )
        finally:
            forget(self)

    async def stock(self) -> Stock:
        """What is here, in numbers. It only reads, as `check` does. Errors: `JournalError`."""
        return await asyncio.to_thread(lambda: checking.stock(self._path, self._files))

    async def check(self) -> Sequence[Finding]:
        """Read everything, and tell what is not as it was written: chains, artifacts, and the file itself.

        Changes nothing, and takes no part in the store: it works on one that cannot be written, too.
        Errors: `JournalError` for what is no store of this version; `ConfigurationError` for another key.
        """
        return await asyncio.to_thread(
            lambda: list(
                checking.findings(
                    self._path, self._chain, self._files, lambda: time.sleep(_SWEPT_SECONDS)
                )
            )
        )

    async def backup(self, to: Path) -> Copied:
        """Copy the store as it is at one moment, beside whoever writes, with the files beside it.

        Errors: `ConfigurationError` where something is there already; `JournalError`, and then nothing is there.
        """
        return await asyncio.to_thread(lambda: copying.copy(self._path, self._files, to))

    # Opening

    @property
    def commits(self) -> int:
        """Transactions that this opening has written so far, group commits counted once."""
        opening = self._opening
        return 0 if opening is None else opening.writer.commits

    def close(self) -> None:
        """Finish what is under way and close the file; the next use opens it again. Blocks for a moment."""
        with self._lock:
            opening, self._opening = self._opening, None
        if opening is not None:
            opening.close()

    def _open(self) -> Opening:
        """The opening of this process. Errors: `JournalError`."""
        opening = self._opening
        if opening is not None and opening.process == os.getpid():
            return opening
        with self._lock:
            opening = self._opening
            # A process that was forked off has no writer thread and may not use our connections.
            if opening is None or opening.process != os.getpid():
                opening = self._opening = Opening(
                    Place(self._place.path), self._chain, self._lease_seconds
                )
            return opening

    async def _do(self, act: Callable[[sqlite3.Connection], T], comes: Comes = Comes.AT_ONCE) -> T:
        return await ended(self._open().writer.submit(act, comes))

    async def _read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        return await self._open().read(act)

    async def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        return await self._read(lambda c: c.execute(query, sought_all(values)).fetchone())

    async def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._read(lambda c: c.execute(query, sought_all(values)).fetchall())

    def _keeping(
        self,
        artifacts: Sequence[Artifact],
        act: Callable[[sqlite3.Connection], T],
        comes: Comes = Comes.AT_ONCE,
    ) -> Coroutine[Any, Any, T]:
        """Do what names these artifacts, with what is too large for a row written before."""
        large = [each for each in artifacts if len(each.data) > INLINE_BYTES]
        if large:
            return self._beside(large, act, comes)
        return ended(self._open().writer.submit(act, comes))

    async def _beside(
        self, large: Sequence[Artifact], act: Callable[[sqlite3.Connection], T], comes: Comes
    ) -> T:
        opening = self._open()
        for artifact in large:
            try:
                await opening.aside(lambda artifact=artifact: self._files.write(artifact))
            except OSError as error:
                raise JournalError(f"an artifact could not be written: {error}") from error

        def still_there(connection: sqlite3.Connection) -> T:
            for artifact in large:  # whoever had the same bytes may have erased them meanwhile
                self._files.write(artifact)
            return act(connection)

        return await self._do(still_there, comes)


def _key_from_environment() -> bytes | None:
    key = os.environ.get("REMIT_STORE_KEY", "")
    return key.encode() or None
