"""Foreign code under supervision: run it, wait for it, give it up.

Tool bodies, model calls, guards, policies and callbacks run in asyncio tasks of their own, outside every
cancel scope of the loop. Such a task is cancelled once, awaited for the grace period, then abandoned,
counted and named. Whoever waits for one waits with `arrived`, which a halt or an instant can end
without touching the task. Above this stand `dispatch.py` and `asking.py`; below it nothing of remit.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
import types
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

__all__ = [
    "ABANDONED",
    "BLOCKING_SECONDS",
    "Abandoned",
    "Ending",
    "Halt",
    "Raised",
    "Returned",
    "arrived",
    "contained",
    "give_up",
]

BLOCKING_SECONDS: Final = 0.05
"""A coroutine that holds the event loop for longer than this is named in an event."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The code came to its end with a value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The code raised, whatever it was: SystemExit and cancellations included."""

    error: BaseException


Ending: TypeAlias = Returned | Raised
HaltCause: TypeAlias = Literal["cancelled", "vetoed", "detached"]


class Halt:
    """The one way in which a run is told to stop. Set once; the strongest cause stands."""

    __slots__ = ("_above", "_loop", "_watchers", "cause")

    _RANK: Final = {"detached": 0, "vetoed": 1, "cancelled": 2}

    def __init__(self, loop: asyncio.AbstractEventLoop, *, above: Halt | None = None) -> None:
        """`above`: a halt that this one follows, until `unlink`."""
        self.cause: HaltCause | None = None
        self._loop = loop
        self._watchers: set[Callable[[], None]] = set()
        self._above = above
        if above is not None:
            above.watch(self._follow)
            self._follow()

    def set(self, cause: HaltCause) -> None:
        """Stop. On the event loop of the run only; from elsewhere `set_threadsafe`."""
        if self.cause is None or self._RANK[cause] > self._RANK[self.cause]:
            self.cause = cause
        for wake in tuple(self._watchers):
            wake()

    def set_threadsafe(self, cause: HaltCause) -> None:
        """Stop, from any thread. A loop that is closed has nothing left to stop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.set, cause)

    def unlink(self) -> None:
        """Follow nobody any more."""
        if self._above is not None:
            self._above.unwatch(self._follow)

    def _follow(self) -> None:
        if self._above is not None and self._above.cause is not None:
            self.set(self._above.cause)

    def watch(self, wake: Callable[[], None]) -> None:
        self._watchers.add(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._watchers.discard(wake)


async def arrived(
    future: asyncio.Future[Any], *, until: float | None, halt: Halt | None = None
) -> bool:
    """Wait for `future` until an instant or a halt, and leave it as it is.

    Units: `until` is seconds on the event loop's clock, None for ever.
    Returns whether the future is done.
    """
    if future.done():
        return True
    loop = asyncio.get_running_loop()
    if (halt is not None and halt.cause is not None) or (
        until is not None and until <= loop.time()
    ):
        return False
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = None if until is None else loop.call_at(until, wake)
    future.add_done_callback(wake)
    if halt is not None:
        halt.watch(wake)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        future.remove_done_callback(wake)
        if halt is not None:
            halt.unwatch(wake)
    return future.done()


def contained(
    code: Callable[[], Any],
    *,
    name: str,
    context: contextvars.Context | None = None,
    on_blocked: Callable[[float], None] | None = None,
) -> asyncio.Task[Ending]:
    """Run `code` in a task that never raises: its result is how the code ended.

    `code` may return a value or an awaitable. `on_blocked` is told, in seconds, when a single step of it
    held the event loop for longer than `BLOCKING_SECONDS`.
    """
    return asyncio.get_running_loop().create_task(
        _contain(code, on_blocked), name=name, context=context
    )


async def _contain(code: Callable[[], Any], on_blocked: Callable[[float], None] | None) -> Ending:
    try:
        value = code()
        if inspect.isawaitable(value):
            value = await (value if on_blocked is None else _measured(value, on_blocked))
    except BaseException as error:  # noqa: BLE001 - SystemExit and a cancellation that nobody asked for are this code's error, not the loop's
        return Raised(error)
    return Returned(value)


@types.coroutine
def _measured(
    awaitable: Awaitable[Any], on_blocked: Callable[[float], None]
) -> Generator[Any, Any, Any]:
    """Await, and time each step between two suspensions."""
    steps = awaitable.__await__()
    send: Callable[[], Any] = lambda: next(steps)  # noqa: E731 - replaced at every turn
    while True:
        began = time.perf_counter()
        try:
            waited_for = send()
        except StopIteration as end:
            return end.value
        finally:
            took = time.perf_counter() - began
            if took > BLOCKING_SECONDS:
                on_blocked(took)
        try:
            received = yield waited_for
        except BaseException as error:  # noqa: BLE001 - handed on to the code that waits
            send = _thrower(steps, error)
        else:
            send = _sender(steps, received)


def _sender(steps: Any, value: Any) -> Callable[[], Any]:
    return (lambda: next(steps)) if value is None else (lambda: steps.send(value))


def _thrower(steps: Any, error: BaseException) -> Callable[[], Any]:
    throw = getattr(steps, "throw", None)

    def act() -> Any:
        if throw is None:
            raise error
        return throw(error)

    return act


class Abandoned:
    """The tasks that were given up and still run, by name. Kept alive so that their end is noticed."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Ending], Callable[[Ending], None] | None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(task.get_name() for task in self._tasks)

    def add(self, task: asyncio.Task[Ending], on_late: Callable[[Ending], None] | None) -> None:
        self._tasks[task] = on_late
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Ending]) -> None:
        on_late = self._tasks.pop(task, None)
        if on_late is not None and not task.cancelled():
            on_late(task.result())


ABANDONED: Final = Abandoned()
"""What this process has given up and what still runs."""


async def give_up(
    task: asyncio.Task[Ending],
    *,
    grace: float,
    on_late: Callable[[Ending], None] | None = None,
) -> Ending | None:
    """Cancel a supervised task once and wait for the grace period.

    Units: `grace` is seconds. Returns how it ended, or None if it still runs: it is then abandoned, and
    `on_late` is told its end when that comes.
    """
    if not task.done():
        task.cancel()
        await arrived(task, until=asyncio.get_running_loop().time() + grace)
    if task.done():
        return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
    ABANDONED.add(task, on_late)
    return None
