"""One execution of foreign code for a call: started, waited for, given up.

A `Body` gets something to call and knows whether it blocks; it does not know what the call is, whether it
may run or what its end means. That is the dispatcher's, which alone makes bodies of tools.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from remit.supervise import (
    Ending,
    Halt,
    Raised,
    Returned,
    arrived,
    as_ending,
    contained,
    give_up,
    outlasted,
    was_stopped,
)
from remit.workers import Workers

__all__ = ["Body", "Cut", "Ended", "run_inline"]

Cut = Literal["time", "halt"]


class Ended(msgspec.Struct, frozen=True):
    """How an execution ended, as far as whoever waited for it can tell."""

    ending: Ending | None
    """None where it still runs: it was abandoned."""
    cut: Cut | None = None
    """What cut it, if it did not end by itself."""
    entered: bool = True
    """False where the function never began."""


class Body:
    """A function that runs, in a task of its own or in a worker thread."""

    __slots__ = (
        "_task",
        "_workers",
        "future",
        "name",
    )

    def __init__(
        self,
        code: Callable[[], Any],
        *,
        blocking: bool,
        name: str,
        context: contextvars.Context,
        workers: Workers,
        on_blocked: Callable[[float], None],
    ) -> None:
        """Start. Errors: `WorkersExhausted` where it blocks and no worker can be had."""
        self.name = name
        self._workers = workers
        self._task: asyncio.Task[Ending] | None = None
        if blocking:
            self.future: asyncio.Future[Any] = workers.submit(lambda: context.run(code))
            """Done when the function has ended."""
        else:
            self.future = self._task = contained(
                code, name=name, context=context, on_blocked=on_blocked
            )

    async def end(
        self,
        *,
        until: float,
        halt: Halt | None,
        grace: float,
        before_cut: Callable[[], None],
        on_late: Callable[[Ending], None],
    ) -> Ended:
        """Wait for the end until an instant or a halt; then cancel once, wait for the grace, abandon.

        Units: `until` is on the event loop's clock, `grace` in seconds, unless whoever halts says another. `before_cut`
        is called before the cancellation; `on_late` is told the end of an abandoned function.
        """
        if await arrived(self.future, until=until, halt=halt):
            ending = self._ending()
            return Ended(ending, "halt" if was_stopped(ending, halt) else None)
        cut: Cut = "time" if halt is None or halt.cause is None else "halt"
        before_cut()
        grace = grace if halt is None else halt.grace(grace)
        if self._task is not None:
            return Ended(await give_up(self._task, grace=grace, halt=halt, on_late=on_late), cut)
        return await self._leave_worker(cut, halt, grace, on_late)

    async def _leave_worker(
        self, cut: Cut, halt: Halt | None, grace: float, on_late: Callable[[Ending], None]
    ) -> Ended:
        """A thread cannot be cancelled: what has not begun is dropped, the rest gets the grace."""
        job = self.future
        if self._workers.started(job):
            until = asyncio.get_running_loop().time() + grace
            await outlasted(job, until=until, halt=halt)
        if job.done():
            return Ended(self._ending(), cut)
        dropped = self._workers.abandon(job, lambda end: on_late(as_ending(end)))
        return Ended(None, cut, entered=not dropped)

    def _ending(self) -> Ending:
        if self._task is not None:
            return (
                Raised(asyncio.CancelledError()) if self._task.cancelled() else self._task.result()
            )
        job = self.future
        if job.cancelled():
            return Raised(asyncio.CancelledError())
        error = job.exception()
        return Raised(error) if error is not None else Returned(job.result())


def run_inline(code: Callable[[], Any]) -> tuple[Ending, float]:
    """Run a function that is known to be quick, here and now. Also says how many seconds it took."""
    began = time.perf_counter()
    try:
        ending: Ending = Returned(code())
    except BaseException as error:  # noqa: BLE001 - a body like any other: whatever it raises is its call's error
        ending = Raised(error)
    return ending, time.perf_counter() - began
