"""Threads for blocking functions, so that no `def` tool runs on the event loop.

Not `ThreadPoolExecutor`: its threads are joined at interpreter exit, and a stuck one occupies its
place for ever. Here threads are daemons, and work that nobody waits for any more is *abandoned*: its
thread is written off and replaced, counted while it is still busy, and beyond a cap nothing new is
begun.

Above it the dispatcher copies context variables, waits no longer than a call's ceiling, and abandons.
`ThreadWorkers` is the real one; `remit.testing.workers.SimulatedWorkers` is its twin in virtual time.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeVar

__all__ = ["Job", "Stage", "ThreadWorkers", "Workers", "WorkersExhausted", "attempt"]

T = TypeVar("T")


class WorkersExhausted(RuntimeError):
    """No worker can be had. The function was not started and never will be."""


class Workers(Protocol):
    """Where blocking functions run."""

    @property
    def abandoned(self) -> int:
        """How many workers are still busy with abandoned work."""
        ...

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Queue `fn`, first come first served, and come back at once.

        Shape: a future of the running loop. Whatever `fn` raises, `SystemExit` included, is its
        exception; what a future cannot carry comes as the cause of a `RuntimeError`. To cancel the
        future of a function that has not started drops it; one that has started goes on.
        Errors: `WorkersExhausted`.
        """
        ...

    def started(self, future: asyncio.Future[Any]) -> bool:
        """Whether a worker has entered the function."""
        ...

    def abandon(
        self, future: asyncio.Future[Any], on_late: Callable[[Any], None] | None = None
    ) -> bool:
        """Wait no longer for a submitted function.

        Shape: True if it had not started and never will. False if it may still take effect: its
        worker is written off and replaced, the future is never resolved, and `on_late` gets what
        the function returned or raised, on the future's loop, if that loop lives to see it. A
        function whose outcome was already delivered is left as it is.
        """
        ...


class Stage(Enum):
    """How far a job has come."""

    QUEUED = auto()
    DROPPED = auto()
    RUNNING = auto()
    ABANDONED = auto()
    """Running, and nobody waits for it."""
    DONE = auto()


class Job(asyncio.Future[Any]):
    """A submitted function and the future of its outcome, in one object.

    Shared by the implementations of `Workers`, which alone look inside.
    """

    def __init__(self, fn: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.fn = fn
        self.stage = Stage.QUEUED
        self.on_late: Callable[[Any], None] | None = None
        self._forsaken = False

    @classmethod
    def of(cls, future: asyncio.Future[Any]) -> Job:
        """The job behind a future that `submit` gave. Errors: `TypeError` for any other future."""
        if not isinstance(future, cls):
            raise TypeError(f"{future!r} does not come from submit")
        return future

    def forsake(self, on_late: Callable[[Any], None] | None) -> None:
        """On the loop: nobody waits; an outcome yet to be delivered is late."""
        self._forsaken = True
        self.on_late = on_late

    def deliver(self, value: Any, error: BaseException | None) -> None:
        """On the loop: hand the outcome to whoever waits, or to `on_late`."""
        if self._forsaken:
            if self.on_late is not None:
                self.on_late(value if error is None else error)
        elif self.done():  # cancelled by a waiter that did not abandon it
            return
        elif error is None:
            self.set_result(value)
        elif isinstance(error, StopIteration | asyncio.CancelledError):
            # No future carries the first; the second would pass for the waiter's own cancellation.
            wrapped = RuntimeError(f"the function raised {type(error).__name__}")
            wrapped.__cause__ = error
            self.set_exception(wrapped)
        else:
            self.set_exception(error)


def attempt(fn: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Run `fn`: what it returned and None, or None and what it raised."""
    try:
        return fn(), None
    except BaseException as error:  # noqa: BLE001  # a thread's edge: it is the call's, not ours
        return None, error


class ThreadWorkers:
    """A bounded pool of daemon threads that starts empty and shrinks when idle.

    One pool may serve event loops in several threads. At most `threads` of its threads serve calls
    that somebody waits for; up to about `abandoned_cap` more are written off and still busy.
    """

    def __init__(
        self,
        threads: int = 32,
        abandoned_cap: int = 64,
        name: str = "remit",
        *,
        idle_seconds: float = 30.0,
    ) -> None:
        self._threads = threads
        self._abandoned_cap = abandoned_cap
        self._name = name
        self._idle_seconds = idle_seconds
        self.begin_empty()
        _POOLS.add(self)

    def begin_empty(self) -> None:
        """Have no thread and no work: as it is made, and in a process that was forked off, where none of its threads is."""
        self._queue: queue.SimpleQueue[Job] = queue.SimpleQueue()
        # Re-entrant: the garbage collector may run a finalizer in here that abandons a job.
        self._lock = threading.RLock()
        self._members = 0  # threads of the pool, idle ones too, written-off ones not
        self._busy = 0  # members inside a function
        self._queued = 0  # jobs without a member, dropped ones not counted
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        return self._abandoned

    @property
    def members(self) -> int:
        """How many threads the pool has now, idle ones included, written-off ones not."""
        return self._members

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        job = Job(fn, asyncio.get_running_loop())
        with self._lock:
            if self._abandoned >= self._abandoned_cap:
                raise WorkersExhausted(
                    f"{self._abandoned} abandoned calls still occupy their threads"
                )
            self._queued += 1
            self._grow()
            if not self._members:
                self._queued -= 1
                raise WorkersExhausted("the system gives no thread")
        self._queue.put(job)  # outside the lock, which the thread that wakes up wants at once
        return job

    def started(self, future: asyncio.Future[Any]) -> bool:
        return Job.of(future).stage not in (Stage.QUEUED, Stage.DROPPED)

    def abandon(
        self, future: asyncio.Future[Any], on_late: Callable[[Any], None] | None = None
    ) -> bool:
        job = Job.of(future)
        job.forsake(on_late)
        with self._lock:
            if job.stage is Stage.QUEUED:
                self._drop(job)
            elif job.stage is Stage.RUNNING:
                job.stage = Stage.ABANDONED
                self._busy -= 1
                self._members -= 1
                self._abandoned += 1
                self._grow()
            return job.stage is Stage.DROPPED

    def _drop(self, job: Job) -> None:
        job.stage = Stage.DROPPED
        self._queued -= 1
        del job.fn  # it stays in the queue until a thread comes by; what it holds does not

    def _grow(self) -> None:
        """Add a thread if there is work for one more than there are."""
        if self._members >= self._threads or self._busy + self._queued <= self._members:
            return
        with suppress(RuntimeError):  # the system gives no more: those there are must do
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            self._members += 1

    def _serve(self) -> None:
        serving = True
        while serving:
            try:
                job = self._queue.get(timeout=self._idle_seconds)
            except queue.Empty:
                serving = not self._retire()
            else:
                serving = self._carry_out(job)
                del job  # an idle thread keeps nothing alive

    def _retire(self) -> bool:
        with self._lock:
            if self._queued:
                return False
            self._members -= 1
            return True

    def _carry_out(self, job: Job) -> bool:
        """Run one job; whether this thread still belongs to the pool afterwards."""
        with self._lock:
            if job.stage is Stage.QUEUED and job.cancelled():
                self._drop(job)
            if job.stage is Stage.DROPPED:
                return True
            job.stage = Stage.RUNNING
            self._queued -= 1
            self._busy += 1
        fn = job.fn
        del job.fn
        value, error = attempt(fn)
        with self._lock:
            belongs = self._close(job)
        with suppress(RuntimeError):  # the loop was closed: there is nobody to tell
            job.get_loop().call_soon_threadsafe(job.deliver, value, error)
        return belongs

    def _close(self, job: Job) -> bool:
        was, job.stage = job.stage, Stage.DONE
        if was is not Stage.ABANDONED:
            self._busy -= 1
            return True
        self._abandoned -= 1
        if self._members >= self._threads:
            return False
        self._members += 1  # no replacement was needed so far
        return True


_POOLS: Final[weakref.WeakSet[ThreadWorkers]] = weakref.WeakSet()


def _in_child() -> None:
    """A process that was forked off has the counts of its parent, and none of the threads that they count."""
    for pool in tuple(_POOLS):
        pool.begin_empty()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
