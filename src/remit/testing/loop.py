"""Virtual time: an asyncio event loop whose clock jumps to the next timer when nothing is ready.

A two-hour deadline passes in a microsecond, and tests run the cancellation semantics of production
because everything but the clock is asyncio's own. It is deliberately no simulation of the outer
world: the loop never looks at sockets, and nothing from another thread can wake it; the thread pool
has a simulated twin instead. What would hang for ever on a real loop raises `Deadlock` here.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import selectors
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Never, TypeVar

__all__ = ["Deadlock", "VirtualLoop", "run_virtual"]

T = TypeVar("T")


class Deadlock(AssertionError):
    """Nothing is ready and no timer will fire: the tasks that are left would wait for ever."""

    def __init__(self, tasks: set[asyncio.Task[Any]]) -> None:
        waiting = "; ".join(sorted(map(_where, tasks))) or "none"
        super().__init__(
            "nothing is ready and no timer will fire, so virtual time cannot go on"
            f" (threads and sockets cannot wake this loop); tasks that wait: {waiting}"
        )


def _where(task: asyncio.Task[Any]) -> str:
    """The task and the line where its coroutine waits."""
    frames = task.get_stack()
    if not frames:
        return task.get_name()
    code = frames[-1].f_code
    return f"{task.get_name()} in {code.co_qualname} ({code.co_filename}:{frames[-1].f_lineno})"


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time.

    Units: seconds; `time()` begins at `start` and moves only when nothing is ready, to exactly the
    instant of the next timer. With `shuffle`, timers due at one instant fire in an order that its
    seed fixes; without, in the order that asyncio gives them.
    """

    _scheduled: list[asyncio.TimerHandle]  # asyncio's own heap of timers

    def __init__(self, *, start: float = 0.0, shuffle: random.Random | None = None) -> None:
        self._now = start
        self._random = shuffle
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: object, func: object, *args: object) -> Never:
        """Refused, so that `asyncio.to_thread` fails at once instead of as a `Deadlock`."""
        del executor, args
        raise RuntimeError(f"no thread can wake a virtual loop, so none is given {func!r}")

    def jump(self) -> None:
        """Go to the next timer. Errors: `Deadlock` where there is none."""
        if not self._scheduled or self._scheduled[0].when() == math.inf:
            raise Deadlock(asyncio.all_tasks(self))
        if self._random is not None:
            self._random.shuffle(self._scheduled)
            heapq.heapify(self._scheduled)  # equal instants now leave the heap in another order
        self._now = max(self._now, self._scheduled[0].when())


class _Jump(selectors.SelectSelector):
    """Where asyncio would wait for a file or a timer, the clock moves. Never polls."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._loop.jump()
        return []


def run_virtual(
    main: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]],
    *,
    eager: bool = False,
    start: float = 0.0,
    shuffle: random.Random | None = None,
) -> T:
    """Run `main` to its end on a new `VirtualLoop`, as `asyncio.run` would.

    `eager` begins tasks at once (`asyncio.eager_task_factory`); without effect on Python 3.11.
    Errors: `Deadlock`, and whatever `main` raises.
    """
    coroutine = main() if callable(main) else main
    with asyncio.Runner(loop_factory=partial(VirtualLoop, start=start, shuffle=shuffle)) as runner:
        if eager and sys.version_info >= (3, 12):
            runner.get_loop().set_task_factory(asyncio.eager_task_factory)
        return runner.run(coroutine)
