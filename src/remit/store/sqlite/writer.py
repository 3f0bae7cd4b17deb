"""The one thread that writes: what comes in while a transaction is under way shares the next one.

Group commit is what makes durability cheap: a commit costs one flush to the disk, whoever shares it. Each piece
of work that shares one stands behind a savepoint, so that one which is refused, or which says what no store can
hold, takes nobody along. What befalls the file itself befalls all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from remit.errors import JournalError, RemitError
from remit.store.sqlite.place import Place
from remit.store.sqlite.settling import Comes, Settle, Settling, settling_of

__all__ = ["End", "Work", "Writer", "ended"]

T = TypeVar("T")

_MOST_WORKS: Final = 512
"""Pieces of work in one transaction."""
_OF_THE_WORK: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""Of SQLite's errors, those that say something of the values, not of the file."""


class End(asyncio.Future[T]):
    """How a piece of work ends. It cannot be called off: a transaction that is under way ends as it ends.

    A task that is cancelled while it waits for this learns of it when the work has ended, not before.
    """

    def cancel(self, msg: object = None) -> bool:
        """False: nothing was called off. The task that waits is told later."""
        del msg
        return False


async def ended(end: asyncio.Future[T]) -> T:
    """Wait for an `End`: the work is durable, or it is not, when this returns.

    A cancellation is asked for again, so that it comes at the next wait of whoever is cancelled.
    """
    try:
        return await end
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
            task.cancel(*error.args)
    return end.result()


class Work(Generic[T]):
    """Something to be done in a transaction, and whoever waits for it."""

    __slots__ = ("_act", "_error", "_future", "_result", "comes", "settling")

    def __init__(self, act: Callable[[sqlite3.Connection], T], comes: Comes) -> None:
        self._act = act
        self.comes = comes
        loop = asyncio.get_running_loop()
        self.settling = settling_of(loop)
        self._future: End[T] = End(loop=loop)
        self._result: Any = None
        self._error: Exception | None = None

    @property
    def future(self) -> End[T]:
        return self._future

    def do(self, connection: sqlite3.Connection, place: Place) -> bool:
        """Do it. False where it failed by itself, and then nothing of it may stay.

        Errors: `sqlite3.Error`, where it is the file that failed.
        """
        self._result = self._error = None
        try:
            self._result = self._act(connection)
        except RemitError as error:
            self._error = error
        except Exception as error:  # of any type, where the file is damaged
            if isinstance(error, sqlite3.Error) and not isinstance(error, _OF_THE_WORK):
                raise
            self._error = place.typed(error)
        return self._error is None

    def fail(self, error: Exception) -> None:
        """It did not become durable."""
        self._error = error

    def settle(self) -> None:
        """Tell whoever waits; on their event loop."""
        if self._error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(self._error)


class Writer:
    """The thread and its queue."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        place: Place,
        *,
        every: float,
        beat: Callable[[sqlite3.Connection], Callable[[], None]],
    ) -> None:
        """`place` is looked at after each commit: what is not in the file of that name is not acknowledged.

        `beat` is done in every transaction, and in one of its own `every` so many seconds.

        What it returns is called when it is durable.
        """
        self._connect = connect
        self._place = place
        self._every = every
        self._beat = beat
        self._queue: queue.SimpleQueue[Work[Any] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        """Nothing is queued behind the end, where nobody would settle it."""
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="remit store", daemon=True)
        self.failure: JournalError | None = None
        """Why nothing is written any more."""
        self.commits = 0
        """Transactions so far that did more than say that this worker is alive."""

    def start(self) -> None:
        self._thread.start()

    def submit(
        self, act: Callable[[sqlite3.Connection], T], comes: Comes = Comes.AT_ONCE
    ) -> End[T]:
        """Have something done. It ends once it is durable, or refused. Errors: `JournalError` once it is stopped."""
        work = Work(act, comes)
        with self._gate:
            if self._stopped:
                raise JournalError("the store was closed at this very moment")
            self._queue.put(work)
        return work.future

    def stop(self) -> None:
        """Finish what is queued and end the thread. Blocks."""
        with self._gate:
            self._stopped = True
            self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001 - a damaged file makes any error, and whoever waits must hear of it
            self.failure = self._place.typed(error)
        try:
            self._serve(connection)
        finally:
            if connection is not None:
                connection.close()

    def _serve(self, connection: sqlite3.Connection | None) -> None:
        more = True
        while more:
            works, more = self._next()
            if connection is None or self.failure is not None:
                failure = self.failure or JournalError("the store is closed")
                for work in works:
                    work.fail(failure)
            elif works:
                self._transact(connection, works)
            elif more:
                self._keep_alive(connection)
            _tell(works)

    def _next(self) -> tuple[list[Work[Any]], bool]:
        """What is queued, and whether more may come. Empty where it is time for a beat."""
        works: list[Work[Any]] = []
        try:
            work = self._queue.get(timeout=self._every)
        except queue.Empty:
            return works, True
        while work is not None:
            works.append(work)
            if len(works) >= _MOST_WORKS or self._queue.empty():
                return works, True
            work = self._queue.get_nowait()  # nobody else takes from it
        return works, False

    def _transact(self, connection: sqlite3.Connection, works: list[Work[Any]]) -> None:
        try:
            connection.execute("begin immediate")
            beaten = self._beat(
                connection
            )  # first: a lease that is found now is found by one who is alive
            if len(works) > 1:
                _each_behind_a_savepoint(connection, self._place, works)
            elif not works[0].do(connection, self._place):
                connection.execute("rollback")
                return
            connection.execute("commit")
            self._look()
            beaten()
            self.commits += 1
        except Exception as error:  # noqa: BLE001 - as above
            _roll_back(connection)
            typed = self._place.typed(error)
            for work in works:
                work.fail(typed)

    def _keep_alive(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("begin immediate")
            beaten = self._beat(connection)
            connection.execute("commit")
            self._look()
            beaten()
        except Exception:  # noqa: BLE001 - as above
            _roll_back(connection)  # the lease runs out by itself if this goes on

    def _look(self) -> None:
        """Errors: `JournalError`, for good, where the file is no longer the one of that name."""
        try:
            self._place.check()
        except JournalError as error:
            self.failure = error
            raise


def _each_behind_a_savepoint(
    connection: sqlite3.Connection, place: Place, works: list[Work[Any]]
) -> None:
    for work in works:
        connection.execute("savepoint work")
        if not work.do(connection, place):
            connection.execute("rollback to work")
        connection.execute("release work")


def _roll_back(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):  # what failed is told already
        if connection.in_transaction:
            connection.execute("rollback")


def _tell(works: list[Work[Any]]) -> None:
    """Settle the futures, with one call into each event loop."""
    by_loop: dict[Settling, list[Settle]] = {}
    for work in works:
        by_loop.setdefault(work.settling, []).append((work.comes, work.settle))
    for settling, theirs in by_loop.items():
        settling.settle(theirs)
