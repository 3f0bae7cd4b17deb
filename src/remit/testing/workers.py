"""The simulated twin of `remit.workers.ThreadWorkers`: the same contract without a thread.

Functions run on the event loop, each at the end of a latency that the test chooses, so that under
virtual time a pool that is full, stuck or late behaves as the real one does and takes no time. What
it does not show is two functions inside their bodies at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from remit.workers import Job, Stage, WorkersExhausted, attempt

__all__ = ["SimulatedWorkers"]

T = TypeVar("T")


def _immediate(_submission: int) -> float:
    return 0.0


class SimulatedWorkers:
    """A bounded pool in the loop's own time."""

    def __init__(
        self,
        latency: Callable[[int], float] = _immediate,
        *,
        threads: int = 32,
        abandoned_cap: int = 64,
    ) -> None:
        self._latency = latency
        """Seconds on the loop's clock from start to effect of the n-th submission, counted from 0;
        `math.inf` is a function that never returns."""
        self._threads = threads
        self._abandoned_cap = abandoned_cap
        self._submissions = 0
        self._queue: deque[tuple[Job, float]] = deque()
        self._busy = 0
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        return self._abandoned

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        if self._abandoned >= self._abandoned_cap:
            raise WorkersExhausted(f"{self._abandoned} abandoned calls still occupy their threads")
        job = Job(fn, asyncio.get_running_loop())
        self._queue.append((job, self._latency(self._submissions)))
        self._submissions += 1
        self._start_next()
        return job

    def started(self, future: asyncio.Future[Any]) -> bool:
        return Job.of(future).stage not in (Stage.QUEUED, Stage.DROPPED)

    def abandon(
        self, future: asyncio.Future[Any], on_late: Callable[[Any], None] | None = None
    ) -> bool:
        job = Job.of(future)
        job.forsake(on_late)
        if job.stage is Stage.QUEUED:
            job.stage = Stage.DROPPED
        elif job.stage is Stage.RUNNING:
            job.stage = Stage.ABANDONED
            self._busy -= 1
            self._abandoned += 1
            self._start_next()
        return job.stage is Stage.DROPPED

    def _start_next(self) -> None:
        while self._queue and self._busy < self._threads:
            job, latency = self._queue.popleft()
            if job.cancelled():
                job.stage = Stage.DROPPED
            if job.stage is Stage.DROPPED:
                continue
            job.stage = Stage.RUNNING
            self._busy += 1
            if latency < math.inf:
                job.get_loop().call_later(latency, self._finish, job)

    def _finish(self, job: Job) -> None:
        value, error = attempt(job.fn)
        if job.stage is Stage.ABANDONED:
            self._abandoned -= 1
        else:
            self._busy -= 1
        job.stage = Stage.DONE
        self._start_next()
        job.deliver(value, error)
