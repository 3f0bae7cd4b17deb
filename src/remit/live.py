"""A run as its caller holds it: watch it, say something, cancel it, wait for it.

The loop runs in a task of its own that nobody outside can cancel by accident: a cancellation of whoever
waits becomes a request to the run, which closes its transcript, and is raised again after that (K1).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Generic, Self

from typing_extensions import TypeVar

from remit.activation import Activation
from remit.audience import Audience
from remit.checks import check_content
from remit.errors import ConfigurationError
from remit.events import Event, Listener
from remit.loop import execute
from remit.messages import ResultContent, Text
from remit.outcome import Outcome
from remit.run import Run
from remit.supervise import Waiter

__all__ = ["Live", "content_of", "in_hand", "see_through"]

OutT = TypeVar("OutT", default=str)


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
    """A run in execution. Made by `Remit.stream`; iterate it for events.

    Several readers at a time each get every event. One that leaves off is taken up where it stood by the next.
    """

    def __init__(self) -> None:
        self._audience = Audience()
        self._run: Run | None = None
        self._task: asyncio.Task[Outcome[OutT]] | None = None
        self.owns = False
        """The run was begun here, and is cancelled where the block is left by an exception."""

    def begin(self, run: Run | None, task: asyncio.Task[Outcome[OutT]], *, owns: bool) -> Self:
        """The run is on its way; `run` is None where it has ended before."""
        self._run = run
        self._task = task
        self.owns = owns
        task.add_done_callback(lambda _: self._audience.end())
        return self

    @property
    def hear(self) -> Listener:
        """What takes the events. It knows nothing of this object, which holds the run that holds it.

        It never blocks: a slow reader loses pieces of text, not the run its time.
        """
        return self._audience.hear

    @property
    def dropped(self) -> int:
        """Events that a slow reader will never see."""
        return self._audience.dropped

    @property
    def run_id(self) -> str:
        if self._run is None:
            raise ConfigurationError("the run had ended before: its outcome names it")
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
        if self._run is not None and self.owns:
            self._run.halt.set("cancelled")
        elif self._run is not None:
            self._run.halt.set_threadsafe("cancelled")  # it may be executed in another thread
        return await self.join()

    async def detach(self) -> Outcome[OutT]:
        """Stop executing the run here; it stays resumable. Running calls get the grace.

        Where it was only attached to, it goes on, and this waits for its end.
        """
        if self._run is not None and self.owns:
            self._run.halt.set("detached")
        return await self.join()

    async def join(self) -> Outcome[OutT]:
        """Wait for the end. If whoever waits is cancelled, so is the run, unless it was only attached to."""
        if self._task is None:
            raise ConfigurationError("the run has not begun: enter the `async with` first")
        return await see_through(self._task, self._run if self.owns else None)

    def text(self) -> AsyncIterator[str]:
        """The text of this run's own model, piece by piece, to the end."""
        return _Text(self._audience.read(), None if self._run is None else self.run_id)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._audience.read()


@contextlib.asynccontextmanager
async def in_hand(live: Live[OutT], started: Activation) -> AsyncGenerator[Live[OutT]]:
    """Hold a run while it lasts: leaving waits for its end, leaving by an exception cancels what was begun here."""
    live.begin(started.run or started.followed, started.task, owns=started.run is not None)
    try:
        yield live
    except BaseException:  # a cancellation too: the run is closed, and it is raised again
        if live.owns:
            await live.cancel()
        raise
    await live.join()


class _Text:
    """The text among the events of a reader. No generator: what is left off in a `break` has then ended at once.

    What an attempt that is made again repeats is given once; where it says something else, it begins a new line.
    """

    def __init__(self, events: AsyncIterator[Event], run_id: str | None) -> None:
        self._events = events
        self._run_id = run_id
        self._given = ""
        """What was given of the reply that is being written."""
        self._again: str | None = None
        """What came of an attempt that is made again, as long as it repeats what was given."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            event = await anext(self._events)
            if event.run_id != self._run_id:
                continue
            match event.kind:
                case "text":
                    text = self._news(event.fields["text"])
                    if text:
                        return text
                case "model_retry":
                    self._again = ""
                case "replied":
                    self._given, self._again = "", None
                case _:
                    pass

    def _news(self, text: str) -> str:
        if self._again is None:
            self._given += text
            return text
        self._again += text
        if self._given.startswith(self._again):
            return ""
        given, self._given, self._again = self._given, self._again, None
        if self._given.startswith(given):
            return self._given[len(given) :]
        return "\n" + self._given
