"""A run as its caller holds it: watch it, say something, cancel it, wait for it.

The loop runs in a task of its own that nobody outside can cancel by accident: a cancellation of whoever
waits becomes a request to the run, which closes its transcript, and is raised again after that (K1).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, Self

from typing_extensions import TypeVar

from remit.checks import check_content
from remit.errors import ConfigurationError
from remit.events import Event
from remit.loop import execute
from remit.messages import ResultContent, Text
from remit.outcome import Outcome
from remit.run import Run
from remit.supervise import Waiter

__all__ = ["QUEUE_EVENTS", "Live", "content_of", "see_through"]

OutT = TypeVar("OutT", default=str)

QUEUE_EVENTS = 1_000
"""Events kept for a slow reader; beyond them the oldest are dropped and counted, text first."""


def content_of(said: str | ResultContent | tuple[ResultContent, ...]) -> tuple[ResultContent, ...]:
    """A prompt as content. Errors: `ConfigurationError` for what is none, and where nothing is said."""
    content = (
        (Text(said),) if isinstance(said, str) else said if isinstance(said, tuple) else (said,)
    )
    check_content(content)
    if not any(not isinstance(block, Text) or block.text.strip() for block in content):
        raise ConfigurationError("the prompt is empty: say what is to be done")
    return content


async def see_through(task: asyncio.Task[Outcome[OutT]], run: Run | None) -> Outcome[OutT]:
    """Wait for a run; if whoever waits is cancelled, cancel the run, let it close, and raise.

    `run` is None for one who only attached: that one's cancellation is no business of the run.
    """
    if run is None:
        return await asyncio.shield(task)
    waiter = Waiter(run.abort)  # bounded by the run's grace, however often it is cancelled
    task.add_done_callback(waiter.wake)
    await waiter
    if task.cancelled() and run.state.ended is None:
        # The event loop is shut down, and took the task before its first step.
        run.abort()
        await execute(run)
    waiter.raise_if_asked()
    return task.result()


class Live(Generic[OutT]):
    """A run in execution. Made by `Remit.stream`; iterate it for events."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.dropped = 0
        """Events that a slow reader will never see."""
        self._run: Run | None = None
        self._task: asyncio.Task[Outcome[OutT]] | None = None

    def begin(self, run: Run | None, task: asyncio.Task[Outcome[OutT]]) -> Self:
        """The run is on its way; `run` is None where it is executed elsewhere or has ended."""
        self._run = run
        self._task = task
        task.add_done_callback(lambda _: self._wake.set())
        return self

    def hear(self, event: Event) -> None:
        """Take an event. Never blocks: a slow reader loses pieces of text, not the run its time."""
        if asyncio.get_running_loop() is self._loop:
            self._take(event)
            return
        # It is of a run inside that has a thread and a loop of its own, and may outlive ours.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        if event.kind == "text" and self._events and self._events[-1].kind == "text":
            last = self._events[-1]
            if last.run_id == event.run_id:
                text = last.fields["text"] + event.fields["text"]
                self._events[-1] = Event("text", event.run_id, event.path, event.at, {"text": text})
                return
        if len(self._events) >= QUEUE_EVENTS:
            self._drop_one()
        self._events.append(event)
        self._wake.set()

    def _drop_one(self) -> None:
        """Make room: the oldest piece of text goes, or the oldest event where there is none."""
        self.dropped += 1
        for index, event in enumerate(self._events):
            if event.kind == "text":
                del self._events[index]
                return
        self._events.popleft()

    @property
    def run_id(self) -> str:
        if self._run is None:
            raise ConfigurationError("the run has ended or is executed elsewhere")
        return self._run.state.run_id

    @property
    def outcome(self) -> Outcome[OutT]:
        """How it ended. Errors: `ConfigurationError` while it runs."""
        if self._task is None or not self._task.done():
            raise ConfigurationError("the run has not ended yet: leave the `async with` first")
        return self._task.result()

    def send(self, said: str | ResultContent | tuple[ResultContent, ...]) -> None:
        """Say something to the run; it takes its place behind the results of the calls under way (T5).

        Errors: `ConfigurationError` once the run has ended or waits for somebody.
        """
        content = content_of(said)
        if self._run is None or self._run.over:
            raise ConfigurationError(
                "the run has ended: start another with its transcript as history"
            )
        self._run.queue.append(content)

    async def cancel(self) -> Outcome[OutT]:
        """Cancel the run and wait until it is closed."""
        if self._run is not None:
            self._run.halt.set("cancelled")
        return await self.join()

    async def detach(self) -> Outcome[OutT]:
        """Stop executing the run here; it stays resumable. Running calls get the grace."""
        if self._run is not None:
            self._run.halt.set("detached")
        return await self.join()

    async def join(self) -> Outcome[OutT]:
        """Wait for the end. If whoever waits is cancelled, so is the run."""
        if self._task is None:
            raise ConfigurationError("the run has not begun: enter the `async with` first")
        return await see_through(self._task, self._run)

    async def text(self) -> AsyncIterator[str]:
        """The text of this run's own model, piece by piece, to the end."""
        async for event in self:
            if event.kind == "text" and (self._run is None or event.run_id == self.run_id):
                yield event.fields["text"]

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Event]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self._task is not None and self._task.done():
                if not self._events:
                    return
                continue
            self._wake.clear()
            await self._wake.wait()
