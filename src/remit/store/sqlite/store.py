"""A store in a SQLite file: what was acknowledged survives a kill and a power cut.

One writer thread with group commit (`writer.py`) does everything that changes something; reads go on beside it
on connections of their own. WAL with `synchronous = full`: measured, a commit costs one flush to the disk, and a
hundred runs share it. The binding is the standard library's: the driver is lost in the noise of that flush.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from remit.artifacts import Artifact
from remit.canonical import json_text
from remit.errors import Fenced, JournalError, RemitError
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
from remit.store.sqlite import acts, checking, copying, directory, grants, keeping, reading
from remit.store.sqlite.files import INLINE_BYTES, Files
from remit.store.sqlite.liveness import Presence, clear_away, is_gone
from remit.store.sqlite.names import sought, sought_all
from remit.store.sqlite.place import Place
from remit.store.sqlite.schema import check, migrate
from remit.store.sqlite.settling import Comes, settling_of
from remit.store.sqlite.writer import Writer, ended
from remit.store.watching import watched
from remit.store.whole import check_named, since

__all__ = ["LEASE_SECONDS", "SqliteStore"]

T = TypeVar("T")

LEASE_SECONDS: Final = 10.0
_BEATS: Final = 5
"""Heartbeats in the time of a lease."""
_BUSY_SECONDS: Final = 5.0
"""How long another process's transaction is waited for."""
_TURN_SECONDS: Final = 0.01
_SWEPT_SECONDS: Final = 0.5
"""In this time whoever erases or prunes has swept something more."""
_READERS: Final = 4
_READER_KIB: Final = 512
"""Pages that each of them keeps in memory: what is read is rarely read again."""


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
        self._opening: _Opening | None = None

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
        return await self._read(lambda c: _info(c, run_id, lambda w: opening.lives(c, w)))

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
        return await self._read(lambda c: _artifact(c, self._files, run_id, digest))

    async def artifacts(
        self, run_id: str, digests: Sequence[str], take: Callable[[Artifact], object]
    ) -> int:
        return await self._read(lambda c: _artifacts(c, self._files, run_id, digests, take))

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

    def _open(self) -> _Opening:
        """The opening of this process. Errors: `JournalError`."""
        opening = self._opening
        if opening is not None and opening.process == os.getpid():
            return opening
        with self._lock:
            opening = self._opening
            # A process that was forked off has no writer thread and may not use our connections.
            if opening is None or opening.process != os.getpid():
                opening = self._opening = _Opening(
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


class _Opening:
    """What a process has open of a store."""

    def __init__(self, place: Place, chain: Chain, lease_seconds: float) -> None:
        self.process = os.getpid()
        self._lease_seconds = lease_seconds
        self._beat_seconds = lease_seconds / _BEATS
        self.worker = secrets.token_hex(8)
        self._place = place
        self._locks = self._place.beside / "workers"
        self._chain = chain
        self._about = f"process {self.process} on {socket.gethostname()}"
        self._presence = Presence(self._locks, self.worker)
        self._beat_at = 0.0
        self.heard_from = 0.0
        """Since when nobody can have taken this worker for dead: the beginning of an unbroken row of heartbeats."""
        self.unreleased: deque[Lease] = deque()
        """Leases that could not be given back when that was asked: this worker lives, so none runs out by itself."""
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="remit store reader")
        self.writer = Writer(
            self._connect_writer, self._place, every=self._beat_seconds, beat=self._beat
        )
        try:
            self._place.make()
            self._presence.enter()
        except OSError as error:
            self._place.leave()
            raise JournalError(f"the store {place.path} cannot be opened: {error}") from error
        self.writer.start()
        atexit.register(self.close)

    @property
    def is_heard(self) -> bool:
        """Whether no other worker can have taken this one for dead by now: one heartbeat earlier than that."""
        return time.monotonic() < self._silent_at

    @property
    def _silent_at(self) -> float:
        return self._beat_at + self._lease_seconds - self._beat_seconds

    def close(self) -> None:
        atexit.unregister(self.close)
        if self.process != os.getpid():
            return  # a copy of the process that opened it
        self.writer.stop()
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()
        self._presence.leave()
        self._place.leave()

    def lives(self, connection: sqlite3.Connection, worker: str) -> bool:
        """Whether a worker is alive, this one or another."""
        if worker == self.worker:
            return True
        found = connection.execute(
            "select beat_at from remit_worker where worker = ?", (worker,)
        ).fetchone()
        if found is None or not 0 <= time.monotonic() - found[0] <= self._lease_seconds:
            return False
        return not is_gone(self._locks, worker)

    def _forget_the_dead(self, connection: sqlite3.Connection) -> list[str]:
        """Strike the workers off whose process is gone: no opening takes their name again."""
        found = connection.execute("select worker from remit_worker").fetchall()
        dead = [worker for (worker,) in found if is_gone(self._locks, worker)]
        connection.executemany(
            "delete from remit_worker where worker = ?", [(worker,) for worker in dead]
        )
        return dead

    async def do(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Write something, in a transaction. Errors: those of the act, `JournalError`."""
        return await ended(self.writer.submit(act))

    async def read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Read something, beside the writer. Errors: `JournalError`."""
        if not self._beat_at:  # there is something to read once the writer has made the tables
            await self.do(_nothing)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        settling = settling_of(loop)

        def work() -> None:
            try:
                read = self._reading(act)
            except Exception as error:  # noqa: BLE001 - it is whoever reads who hears of it
                settling.settle([(Comes.AT_ONCE, partial(_raise, future, error))])
            else:
                settling.settle([(Comes.AT_ONCE, partial(_give, future, read))])

        self._pool.submit(work)
        return await future

    async def aside(self, work: Callable[[], T]) -> T:
        """Do something slow off the event loop."""
        return await asyncio.wrap_future(self._pool.submit(work))

    async def apart(self, act: Callable[[sqlite3.Connection, Callable[[str], bool]], T]) -> T:
        """Do something long on a connection of its own, in transactions of its own.

        It is told which workers are alive. Errors: those of the act, `JournalError`.
        """
        await self.do(_nothing)  # the writer makes the tables

        def work() -> T:
            try:
                with contextlib.closing(_connect(self._place.path)) as connection:
                    connection.execute("pragma synchronous = full")
                    connection.execute("pragma secure_delete = on")
                    return act(connection, lambda worker: self.lives(connection, worker))
            except RemitError:
                raise
            except Exception as error:  # as in `_reading`
                raise self._place.typed(error) from error

        return await self.aside(work)

    def _reading(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = cast("sqlite3.Connection | None", getattr(self._local, "connection", None))
            if connection is None:
                connection = self._local.connection = _connect(self._place.path)
                connection.execute("pragma query_only = on")
                connection.execute(f"pragma cache_size = -{_READER_KIB}")
                self._connections.append(connection)
            return act(connection)
        except RemitError:
            raise
        except Exception as error:  # what a damaged file holds may be of any type
            raise self._place.typed(error) from error

    def _connect_writer(self) -> sqlite3.Connection:
        connection = _connect(self._place.path)
        try:
            self._check_whose(connection)
            _into_wal(connection)
            connection.execute("pragma synchronous = full")
            # Nothing that was deleted or moved stays readable in the file: what is erased then is gone.
            connection.execute("pragma secure_delete = on")
            connection.execute("begin immediate")
            migrate(connection)
            _check_key(connection, self._chain)
            dead = self._forget_the_dead(connection)
            beaten = self._beat(connection)
            connection.execute("commit")
            self._place.remember()
            beaten()
            clear_away(self._locks, dead)
        except BaseException:  # cleaned up and raised again
            connection.close()
            raise
        return connection

    def _check_whose(self, connection: sqlite3.Connection) -> None:
        """Before anything is changed in a file that may be somebody else's. Errors: as `check`."""
        try:
            check(connection)
        except (JournalError, sqlite3.DatabaseError) as error:
            if not isinstance(error, sqlite3.OperationalError):  # else it is only held
                self._presence.leave()
                self._place.unmake(self._locks)
            raise

    def _beat(self, connection: sqlite3.Connection) -> Callable[[], None]:
        """Say that this worker is alive, if it was not said a moment ago."""
        now = time.monotonic()
        back = len(self.unreleased)
        for at in range(back):
            acts.release(connection, self.unreleased[at], self.worker)
        if not back and self._beat_at and now - self._beat_at < self._beat_seconds / 2:
            return _nothing  # it was said a moment ago
        connection.execute(
            "insert into remit_worker values (?, ?, ?)"
            " on conflict(worker) do update set beat_at = excluded.beat_at",
            (self.worker, self._about, now),
        )

        def beaten() -> None:
            if now >= self._silent_at:
                self.heard_from = now
            self._beat_at = now
            for _ in range(back):
                self.unreleased.popleft()

        return beaten


def _give(future: asyncio.Future[T], result: T) -> None:
    if not future.done():  # whoever reads was cancelled; and so below
        future.set_result(result)


def _raise(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _nothing(_: object = None) -> None:
    """There is nothing to do."""


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",  # what was deleted is not made again, empty
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    connection.execute("pragma foreign_keys = on")
    return connection


def _into_wal(connection: sqlite3.Connection) -> None:
    """Have the file keep a write-ahead log. Of processes that open a new file at once, each waits its turn.

    SQLite itself does not wait here, whatever its timeout says. Errors: `sqlite3.OperationalError`; `JournalError`
    where the file system has none, as networked ones do not: commits would not be what they are said to be.
    """
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
        else:
            if mode == "wal":
                return
            if time.monotonic() >= until:
                raise JournalError(
                    f"there can be no write-ahead log here (the journal stays in mode {mode!r}): the file system does "
                    "not share memory among processes. Put the store on a disk of this machine"
                )
        time.sleep(_TURN_SECONDS)  # in the writer's thread


def _key_from_environment() -> bytes | None:
    key = os.environ.get("REMIT_STORE_KEY", "")
    return key.encode() or None


def _check_key(connection: sqlite3.Connection, chain: Chain) -> None:
    """A store is written with one key from its first row on. Errors: `JournalError`."""
    found = connection.execute("select value from remit_meta where name = 'chain'").fetchone()
    if found is None:
        connection.execute("insert into remit_meta values ('chain', ?)", (chain.mark,))
    elif found[0] != chain.mark:
        raise JournalError(
            "the store was made with another key, or with none: set REMIT_STORE_KEY as it was then"
        )


def _info(
    connection: sqlite3.Connection, run_id: str, lives: Callable[[str], bool]
) -> RunInfo | None:
    found = connection.execute(
        "select spec_hash, status, owner, parent, inbox_max > taken, next_seq, erased_at is not null, worker"
        " from remit_run where run_id = ?",
        (sought(run_id),),
    ).fetchone()
    if found is None:
        return None
    *known, unread, rows, erased, worker = found
    lost = worker is not None and not lives(worker)
    return RunInfo(run_id, *known, unread=bool(unread), rows=rows, erased=bool(erased), lost=lost)


def _artifact(
    connection: sqlite3.Connection, files: Files, run_id: str, digest: str
) -> Artifact | None:
    whole = len(digest) == 64
    if not whole and len(digest) < 12:
        return None
    found = connection.execute(
        "select a.digest, a.media_type, a.data from remit_run r"
        " join remit_holding h on h.root = r.root join remit_artifact a using(digest)"
        " where r.run_id = ? and h.digest >= ? and h.digest <= ? limit 2",
        sought_all((run_id, digest, digest + ("" if whole else "g"))),
    ).fetchall()
    if len(found) != 1:
        return None
    ((named, media_type, data),) = found
    return _kept(files, named, media_type, data)


def _artifacts(
    connection: sqlite3.Connection,
    files: Files,
    run_id: str,
    digests: Sequence[str],
    take: Callable[[Artifact], object],
) -> int:
    taken = 0
    # One statement, in the order in which they were asked for: the first that is another one shows what is not there.
    rows = connection.execute(
        "select a.digest, a.media_type, a.data from json_each(?) d cross join remit_run r"
        " cross join remit_holding h on h.root = r.root and h.digest = d.value"
        " cross join remit_artifact a on a.digest = h.digest where r.run_id = ?",
        sought_all((json_text(list(digests)), run_id)),
    )
    with contextlib.closing(rows):
        for named, media_type, data in rows:
            if named != digests[taken]:
                break
            take(_kept(files, named, media_type, data))
            taken += 1
    return taken


def _kept(files: Files, digest: str, media_type: str, data: bytes | None) -> Artifact:
    """An artifact as its row has it, or the file beside."""
    return Artifact(f"artifact:{digest}", media_type, files.read(digest) if data is None else data)
