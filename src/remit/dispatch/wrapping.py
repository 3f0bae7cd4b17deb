"""The way down through a tool's wrappers to its function.

The wrappers run in the task of the body, one inside the other; so does an async function beneath them. A blocking one
is submitted to the run's workers, so that no wrapper puts it on the event loop (C6). Where the call is cut, it gets
the same grace as without wrappers, and is then left to itself in its thread, which is written off and counted.

A `Descent` knows what became of the function, whatever its wrappers make of it: whether it may still take effect is
no matter of opinion (E4). Nothing here decides whether the call may run; `execution.py` makes it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from remit.dispatch.results import as_outcome
from remit.errors import ConfigurationError
from remit.outcome import Outcome, Reason
from remit.supervise import Ending, Raised, Returned, Waiter, as_ending
from remit.tools import Effect
from remit.tools.derived import Invocation, ToolWrapper
from remit.workers import Workers

__all__ = ["Descent"]


class _Waits(BaseException):
    """A run beneath waits for somebody: no result yet, and nothing for a wrapper to see."""

    def __init__(self, outcome: Outcome[object]) -> None:
        super().__init__()
        self.outcome = outcome


class Descent:
    """One entry into a wrapped tool."""

    def __init__(
        self,
        wrappers: Sequence[ToolWrapper],
        *,
        invocation: Callable[[], Invocation],
        code: Callable[[], Callable[[], Any]],
        blocking: bool,
        effect: Effect,
        workers: Workers,
        on_left: Callable[[], None],
        on_late: Callable[[Ending], None],
    ) -> None:
        """`invocation` and `code` make a fresh one each time: nobody sees what another has changed.

        `on_left` is told when a blocking function was left to itself while its wrappers go on or have ended, `on_late`
        how that ended.
        """
        self._wrappers = wrappers
        self._invocation = invocation
        self._code = code
        self._blocking = blocking
        self._effect = effect
        self._workers = workers
        self._on_left = on_left
        self._on_late = on_late
        self._cut = False
        self._over = False
        self._job: asyncio.Future[Any] | None = None
        self._waiter: Waiter | None = None
        self._late: Ending | None = None
        self._dropped = False
        """The newest job was given up before it began."""
        self._left = 0
        """Threads that still run the function and that nobody waits for."""
        self.carried_out = False
        """The function came to its end at least once."""
        self.interrupted = False
        """An entry was cut short or left to itself: it may have taken effect."""

    async def enter(self) -> Any:
        """The body of the call."""
        try:
            return await self._go_down(0)
        except _Waits as waits:
            return waits.outcome

    async def _go_down(self, depth: int) -> Any:
        if depth == len(self._wrappers):
            return await self._run_function()
        entries, under_way = 0, False

        async def proceed() -> Any:
            nonlocal entries, under_way
            if under_way or (self._left and self._effect is not Effect.READ):
                raise ConfigurationError(
                    "what is beneath still runs: await proceed() to its end first"
                )
            if entries and self._effect is Effect.CONFIRM:
                raise ConfigurationError(
                    "a confirm tool runs once for an approval: proceed() was called before"
                )
            entries, under_way = entries + 1, True
            try:
                return await self._go_down(depth + 1)
            finally:
                under_way = False

        return await self._wrappers[depth](self._invocation(), proceed)

    async def _run_function(self) -> Any:
        if self._cut or self._over:
            raise asyncio.CancelledError
        code = self._code()
        task = asyncio.current_task()
        try:
            value = await (self._in_worker(code) if self._blocking else _in_place(code))
        except asyncio.CancelledError:
            # One that the function made itself is its own error (K2), and one before it began cuts nothing.
            cut = task is not None and task.cancelling() > 0
            self.interrupted |= cut and not self._dropped
            raise
        inside = as_outcome(value)
        if inside is not None and inside.reason is Reason.WAITING:
            raise _Waits(inside)
        self.carried_out = True
        return value

    # A blocking function

    async def _in_worker(self, code: Callable[[], Any]) -> Any:
        context = contextvars.copy_context()
        job = self._job = self._workers.submit(lambda: context.run(code))
        waiter = self._waiter = Waiter(self._asked_to_stop)
        job.add_done_callback(waiter.wake)
        await waiter
        self._job = self._waiter = None
        match self._late:
            case Returned(value):
                return value
            case Raised(error):
                raise error
            case None if job.done():
                return job.result()
            case None:
                waiter.raise_if_asked()
                raise asyncio.CancelledError

    def _asked_to_stop(self) -> None:
        """The task of the body is cancelled while the function runs in its thread.

        Where that is the end of the call, the function has the grace, as without wrappers. Where a wrapper has
        had enough of it, the wrapper goes on at once.
        """
        job, waiter = self._job, self._waiter
        if job is None or waiter is None or job.done():
            return
        if not self._cut:
            self._leave()
            waiter.wake()
        elif not self._workers.started(job):
            self.forsake()

    def _leave(self) -> None:
        """Nobody waits for the function any more."""
        job = self._job
        if job is None or job.done():
            return
        self._dropped = self._workers.abandon(job, self._left_ended)
        if self._dropped:
            return
        self._left += 1
        self.interrupted = True
        self._on_left()

    def _left_ended(self, end: Any) -> None:
        self._left -= 1
        self._on_late(as_ending(end))

    # The end of the call

    def cut(self) -> None:
        """The call is about to be cancelled: from here on no function is entered."""
        self._cut = True

    def forsake(self) -> bool:
        """The grace is over and the wrappers still run. Returns whether the function may still take effect.

        They hear how it ended when it has, and their own end is then the late outcome of the call.
        """
        self._cut = True
        job, waiter = self._job, self._waiter
        if job is None or waiter is None or job.done():
            return False
        self._dropped = self._workers.abandon(job, self._arrived_late)
        if self._dropped:
            waiter.wake()
        return not self._dropped

    def _arrived_late(self, end: Any) -> None:
        self._late = as_ending(end)
        if self._waiter is not None:
            self._waiter.wake()

    def close(self) -> None:
        """The wrappers have ended: nothing begins any more, and what one of them left running is let go."""
        self._over = True
        self._leave()


async def _in_place(code: Callable[[], Any]) -> Any:
    value = code()
    return await value if inspect.isawaitable(value) else value
