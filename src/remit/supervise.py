"""Foreign code under supervision: run it, wait for it, give it up.

Tool bodies, model calls, guards, policies and callbacks run in asyncio tasks of their own, outside every
cancel scope of the loop. Such a task is cancelled once, awaited for the grace period, then abandoned,
counted and named. Whoever waits for one waits with `arrived`, which a halt or an instant can end
without touching the task. Above this stand `dispatch.py` and `asking.py`; below it nothing of remit.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
import time
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Literal, TypeAlias

import msgspec

__all__ = [
    "ABANDONED",
    "BLOCKING_SECONDS",
    "Abandoned",
    "Cancel",
    "Ending",
    "Halt",
    "HaltCause",
    "Raised",
    "Returned",
    "Waiter",
    "arrived",
    "as_ending",
    "contained",
    "give_up",
    "leave",
    "outlasted",
    "was_stopped",
]

_CLOCK_GRAIN: Final = 1e-9
"""The event loop calls a timer early by up to this, in seconds."""

BLOCKING_SECONDS: Final = 0.05
"""A coroutine that holds the event loop for longer than this is named in an event."""


class Returned(msgspec.Struct, frozen=True):
    """The code came to its end with a value."""

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """The code raised, whatever it was: SystemExit and cancellations included."""

    error: BaseException


Ending: TypeAlias = Returned | Raised
HaltCause: TypeAlias = Literal["cancelled", "vetoed", "detached"]


def as_ending(end: Any) -> Ending:
    """How a thread ended that tells what it returned or raised as one thing."""
    return Raised(end) if isinstance(end, BaseException) else Returned(end)


class Cancel(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody says who cancels a run."""

    reason: str = ""
    grace: float | None = None
    """Seconds that what is under way has to stop; None: as many as the run gives by itself."""

    @property
    def inside(self) -> Cancel:
        """The same for a run inside of a call, which has half of what the call has."""
        return self if self.grace is None else Cancel(self.reason, self.grace / 2)


_NOTHING_SAID: Final = Cancel()


class Halt:
    """The one way in which a run is told to stop. Set once; the strongest cause stands."""

    __slots__ = ("_above", "_alarm", "_loop", "_watchers", "cause", "said")

    _RANK: Final = {"detached": 0, "vetoed": 1, "cancelled": 2}

    def __init__(self, loop: asyncio.AbstractEventLoop, *, above: Halt | None = None) -> None:
        """`above`: a halt that this one follows, until `close`."""
        self.cause: HaltCause | None = None
        self.said = _NOTHING_SAID
        """By whoever cancelled first, and said anything."""
        self._loop = loop
        self._watchers: dict[Callable[[], None], float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._above = above
        if above is not None:
            above.watch(self._follow)
            self._follow()

    def set(self, cause: HaltCause, said: Cancel = _NOTHING_SAID) -> None:
        """Stop. On the event loop of the run only; from elsewhere `set_threadsafe`."""
        if self.said is _NOTHING_SAID:
            self.said = said
        if self.cause is None or self._RANK[cause] > self._RANK[self.cause]:
            self.cause = cause
        for wake in tuple(self._watchers):
            wake()

    def cancel(self) -> None:
        """Stop, because whoever waits was cancelled."""
        self.set("cancelled")

    def set_threadsafe(self, cause: HaltCause, said: Cancel = _NOTHING_SAID) -> None:
        """Stop, from any thread. A loop that is closed has nothing left to stop."""
        with contextlib.suppress(RuntimeError):  # closed, perhaps at this very moment
            self._loop.call_soon_threadsafe(self.set, cause, said)

    def grace(self, usual: float) -> float:
        """Seconds for which what was cancelled is waited for."""
        return usual if self.said.grace is None else self.said.grace

    def _follow(self) -> None:
        if self._above is not None and self._above.cause is not None:
            self.set(self._above.cause, self._above.said)

    def watch(self, wake: Callable[[], None], until: float = math.inf) -> None:
        """Have `wake` called at a halt, and at `until` on the event loop's clock.

        One timer serves all who watch. It may ring too early and is then set anew: most waits end long
        before their time, and setting a timer for each would cost more than the waits themselves.
        """
        self._watchers[wake] = until
        if until < math.inf and (self._alarm is None or until < self._alarm.when()):
            self._set_alarm(until)

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._watchers.pop(wake, None)

    def close(self) -> None:
        """Nobody watches any more."""
        if self._above is not None:
            self._above.unwatch(self._follow)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._watchers.clear()

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        # A timer that was cancelled stays with the loop until its time, and its context with it: an empty one.
        self._alarm = self._loop.call_at(at, self._ring, context=contextvars.Context())

    def _ring(self) -> None:
        self._alarm = None
        now = self._loop.time() + _CLOCK_GRAIN
        due = [wake for wake, until in self._watchers.items() if until <= now]
        for wake in due:
            del self._watchers[wake]
            wake()
        following = min(self._watchers.values(), default=math.inf)
        if following < math.inf:
            self._set_alarm(following)


class Waiter(asyncio.Future[None]):
    """What a task of ours waits on. A cancellation of that task is a word to the run and ends no wait.

    The run hears of it in the same instant and closes in its own order: the halt or the grace ends what
    was waited for. A cancel that is asked for again and again, as cancel scopes do, wakes nobody.
    """

    __slots__ = (
        "_message",
        "_on_cancel",
        "asked",
    )

    def __init__(
        self,
        on_cancel: Callable[[], None] | None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(loop=loop or asyncio.get_running_loop())
        self.asked = False
        """Whether a cancellation came."""
        self._message: Any | None = None
        """By which scopes know their own; a plain cancellation among several is nobody's, and counts."""
        self._on_cancel = on_cancel

    def cancel(self, msg: Any | None = None) -> bool:
        """Take a cancellation in, also one that comes after the wake and before the task goes on."""
        if msg is None or not self.asked:
            self._message = msg
        self.asked = True
        if self._on_cancel is not None:
            self._on_cancel()
        return True

    def raise_if_asked(self) -> None:
        """Raise the cancellation that was taken in, if there was one."""
        if self.asked:
            raise asyncio.CancelledError(*(() if self._message is None else (self._message,)))

    def wake(self, _: object = None) -> None:
        """End the wait."""
        if not self.done():
            self.set_result(None)


async def arrived(
    future: asyncio.Future[Any], *, until: float | None, halt: Halt | None = None
) -> bool:
    """Wait for `future` until an instant or a halt, and leave it as it is.

    Units: `until` is seconds on the event loop's clock, None for ever.
    Returns whether the future is done. To cancel the task that waits here sets the halt.
    """
    if future.done():
        return True
    loop = asyncio.get_running_loop()
    if (halt is not None and halt.cause is not None) or (
        until is not None and until <= loop.time()
    ):
        return False
    waiter = Waiter(None if halt is None else halt.cancel, loop)
    wake = waiter.wake
    timer = loop.call_at(until, wake) if halt is None and until is not None else None
    future.add_done_callback(wake)
    if halt is not None:
        halt.watch(wake, math.inf if until is None else until)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        if halt is not None:
            halt.unwatch(wake)
        future.remove_done_callback(wake)
    return future.done()


async def outlasted(future: asyncio.Future[Any], *, until: float | None, halt: Halt | None) -> bool:
    """Wait for `future` as `arrived` does, but through a halt: what is bounded ends by itself.

    Returns whether the future is done.
    """
    if not future.done():
        waiter = Waiter(None if halt is None else halt.cancel)
        timer = None if until is None else waiter.get_loop().call_at(until, waiter.wake)
        future.add_done_callback(waiter.wake)
        await waiter
        future.remove_done_callback(waiter.wake)
        if timer is not None:
            timer.cancel()
    return future.done()


def contained(
    code: Callable[[], Any],
    *,
    name: str,
    halt: Halt | None = None,
    context: contextvars.Context | None = None,
    on_blocked: Callable[[float], None] | None = None,
) -> asyncio.Task[Ending]:
    """Run `code` in a task that never raises: its result is how the code ended.

    `code` may return a value or an awaitable; a halt before the first step keeps it from being entered.
    `on_blocked` is told, in seconds, when a single step of it held the event loop for longer than
    `BLOCKING_SECONDS`.
    """
    return asyncio.get_running_loop().create_task(
        _contain(code, halt, on_blocked), name=name, context=context
    )


async def _contain(
    code: Callable[[], Any], halt: Halt | None, on_blocked: Callable[[float], None] | None
) -> Ending:
    if halt is not None and halt.cause is not None:
        return Raised(asyncio.CancelledError())
    try:
        value = code()
        if inspect.isawaitable(value):
            value = await (value if on_blocked is None else _measured(value, on_blocked))
            _ = value.__class__  # whoever reads the ending will look at it, and may not fail there
    except BaseException as error:  # noqa: BLE001 - SystemExit and a cancellation that nobody asked for are this code's error, not the loop's
        return Raised(error)
    return Returned(value)


@types.coroutine
def _measured(
    awaitable: Awaitable[Any], on_blocked: Callable[[float], None]
) -> Generator[Any, Any, Any]:
    """Await, and time each step between two suspensions."""
    steps: Any = awaitable.__await__()
    received: Any = None
    thrown: BaseException | None = None
    while True:
        began = time.perf_counter()
        try:
            if thrown is not None:
                waited_for = _throw(steps, thrown)
            elif received is None:
                waited_for = next(steps)
            else:
                waited_for = steps.send(received)
        except StopIteration as end:
            return end.value
        finally:
            took = time.perf_counter() - began
            if took > BLOCKING_SECONDS:
                on_blocked(took)
            received = thrown = None  # what an error holds that holds this frame no count frees
        try:
            received = yield waited_for
        except BaseException as error:  # noqa: BLE001 - handed on to the code that waits
            thrown = error


def _throw(steps: Any, error: BaseException) -> Any:
    """Raise where the code waits; a plain iterator cannot be told, and ends here."""
    throw = getattr(steps, "throw", None)
    try:
        if throw is None:
            raise error
        return throw(error)
    finally:
        del error  # as above


def was_stopped(ending: Ending, halt: Halt | None) -> bool:
    """Whether it ended by a cancellation that was meant for the run, not born inside (K2).

    Where an event loop is shut down, everything is cancelled at once and what we run may end before we
    come to cancel it.
    """
    halted = halt is not None and halt.cause is not None
    return (
        halted and isinstance(ending, Raised) and isinstance(ending.error, asyncio.CancelledError)
    )


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
    halt: Halt | None,
    on_late: Callable[[Ending], None] | None = None,
) -> Ending | None:
    """Cancel a supervised task once and wait for the grace period.

    Units: `grace` is seconds. `halt` is that of the run that waits: it is set if the task that waits here is
    cancelled, and does not end the grace. Returns how the task ended, or None if it still runs: it is
    then abandoned, and `on_late` is told its end when that comes.
    """
    if not task.done():
        task.cancel()
    until = asyncio.get_running_loop().time() + grace
    return await leave(task, until=until, halt=halt, on_late=on_late)


async def leave(
    task: asyncio.Task[Ending],
    *,
    until: float,
    halt: Halt | None,
    on_late: Callable[[Ending], None] | None = None,
) -> Ending | None:
    """The second half of `give_up`, for a task that has been cancelled: wait, then abandon."""
    await outlasted(task, until=until, halt=halt)
    if task.done():
        return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
    ABANDONED.add(task, on_late)
    return None
