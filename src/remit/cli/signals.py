"""Ctrl-C and SIGTERM: once to end in order, twice to leave.

The first one asks whatever is under way to stop and lets it close. A second one within two seconds leaves the
process where it stands, although threads, or the event loop itself, are stuck: what the journal holds is safe.
The handlers are Python's own and not the event loop's, which would wait for a loop that may be blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any, Final

__all__ = ["AGAIN_SECONDS", "Interrupts", "run_until_done"]

AGAIN_SECONDS: Final = 2.0
"""A second signal within this time leaves at once."""
_LEFT_SECONDS: Final = 1.0
"""What is still there after the end of a command has so long to go before it is left."""
_CODES: Final[dict[int, int]] = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes, as shells count: 128 and the number of the signal."""


class Interrupts:
    """What this process is asked from outside, and what is done about it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stop: Callable[[int], None] = self.end
        self._leaves = True
        """Whether a second signal leaves at once."""
        self._main: asyncio.Task[int] | None = None
        self._asked_at = -AGAIN_SECONDS
        self.heard: Callable[[], None] = lambda: None
        """Tells at once that a signal came and what a second one does, although the event loop may be blocked."""
        self.leave: Callable[[], None] = lambda: None
        """Puts the terminal in order before the process is left at once. Both are possible at any moment."""
        self.code: int | None = None
        """The exit code that the last signal asks for; None where none came."""

    def start(self, main: Callable[[Interrupts], Coroutine[Any, Any, int]]) -> asyncio.Task[int]:
        """The command, as the task that a signal ends where nothing else is to be stopped."""
        self._main = self._loop.create_task(main(self))
        return self._main

    @contextlib.contextmanager
    def stopping(self, stop: Callable[[int], None], *, leaves: bool = True) -> Generator[None]:
        """While this lasts a signal calls `stop` with its exit code, on the event loop, and ends nothing itself.

        `leaves` is False where there is nothing to wait for, so that no second Ctrl-C means impatience.
        """
        before = self._stop, self._leaves
        self._stop, self._leaves = stop, leaves
        try:
            yield
        finally:
            self._stop, self._leaves = before

    def end(self, _: int) -> None:
        """End the command."""
        if self._main is not None:
            self._main.cancel()

    def handle(self, number: int, _: FrameType | None = None) -> None:
        """A signal came: in the main thread, whatever that was doing."""
        now, code = time.monotonic(), _CODES[number]
        if now - self._asked_at < AGAIN_SECONDS and self._leaves:
            self.leave()
            os._exit(code)
        self._asked_at = now if self._leaves else -AGAIN_SECONDS
        if self._leaves:
            self.heard()
        self._loop.call_soon_threadsafe(self._hear, code)

    def _hear(self, code: int) -> None:
        self.code = code
        self._stop(code)


def run_until_done(main: Callable[[Interrupts], Coroutine[Any, Any, int]]) -> int:
    """Run a command on an event loop of its own, and return its exit code.

    As `asyncio.run`, except for signals, and that it does not wait for what was given up: a task that swallows
    its cancellation is left after a moment. Threads that would hold up the exit of a process that was told to
    end are left with the process itself.
    """
    loop = asyncio.new_event_loop()
    interrupts = Interrupts(loop)
    ours = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, interrupts.handle) for number in _CODES if ours}
    try:
        try:
            code = _code_of(loop, interrupts, main)
        finally:
            gone = _dismiss(loop)
        if not gone or (interrupts.code is not None and _threads_left()):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _code_of(
    loop: asyncio.AbstractEventLoop,
    interrupts: Interrupts,
    main: Callable[[Interrupts], Coroutine[Any, Any, int]],
) -> int:
    try:
        return loop.run_until_complete(interrupts.start(main))
    except asyncio.CancelledError:
        if interrupts.code is None:
            raise
        return interrupts.code


def _dismiss(loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel what is left on the loop and close it. False where something does not go."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _, left = loop.run_until_complete(asyncio.wait(left, timeout=_LEFT_SECONDS))
    if left:
        return False
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    return True


def _threads_left() -> bool:
    """Whether threads run that Python waits for before it ends."""
    return any(
        not thread.daemon
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
    )
