"""A store as one process has it open: a writer thread, a few readers, a name under which it is known to be alive."""

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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from remit.errors import JournalError, RemitError
from remit.store.base import Lease
from remit.store.chain import Chain
from remit.store.sqlite import acts
from remit.store.sqlite.liveness import Presence, clear_away, is_gone
from remit.store.sqlite.place import Place
from remit.store.sqlite.schema import check, migrate
from remit.store.sqlite.settling import Comes, settling_of
from remit.store.sqlite.writer import Writer, ended

__all__ = ["Opening"]

T = TypeVar("T")

_BEATS: Final = 5
"""Heartbeats in the time of a lease."""
_BUSY_SECONDS: Final = 5.0
"""How long another process's transaction is waited for."""
_TURN_SECONDS: Final = 0.01
_READERS: Final = 4
_READER_KIB: Final = 512
"""Pages that each of them keeps in memory: what is read is rarely read again."""


class Opening:
    """What a process has open of a store: its writer, its readers, its presence."""

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
                read = self._typed(lambda: self._reading(act))
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
            with contextlib.closing(_connect(self._place.path)) as connection:
                connection.execute("pragma synchronous = full")
                connection.execute("pragma secure_delete = on")
                return act(connection, lambda worker: self.lives(connection, worker))

        return await self.aside(lambda: self._typed(work))

    def _reading(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Read something on the connection of this thread. Errors: of any type."""
        connection = cast("sqlite3.Connection | None", getattr(self._local, "connection", None))
        if connection is None:
            connection = self._local.connection = _connect(self._place.path)
            connection.execute("pragma query_only = on")
            connection.execute(f"pragma cache_size = -{_READER_KIB}")
            self._connections.append(connection)
        return act(connection)

    def _typed(self, work: Callable[[], T]) -> T:
        """Do what looks into the file. Errors: `RemitError`, of which `JournalError` is what the file itself makes."""
        try:
            return work()
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


def _check_key(connection: sqlite3.Connection, chain: Chain) -> None:
    """A store is written with one key from its first row on. Errors: `JournalError`."""
    found = connection.execute("select value from remit_meta where name = 'chain'").fetchone()
    if found is None:
        connection.execute("insert into remit_meta values ('chain', ?)", (chain.mark,))
    elif found[0] != chain.mark:
        raise JournalError(
            "the store was made with another key, or with none: set REMIT_STORE_KEY as it was then"
        )
