"""Reads that begin while their reply is still written (C3). They belong to one attempt and go with it."""

from __future__ import annotations

import asyncio
from decimal import Decimal

from remit.dispatch.gate import MAX_CALLS, Passage
from remit.messages import ToolUse, Usage
from remit.rows import Asked, Charged
from remit.run import Intents, Run
from remit.schedule import schedule
from remit.state import CallState
from remit.supervise import Halt
from remit.tools import Effect
from remit.transcript import Slot

__all__ = ["EarlyReads"]


class EarlyReads:
    """The reads of one attempt that did not wait for its end."""

    def __init__(self, run: Run, *, allowed: bool) -> None:
        self._run = run
        self._allowed = allowed
        self._halt = Halt(run.loop, above=run.halt)
        self._intents = Intents(run)
        self._asked: list[Asked] = []
        self._begun: dict[str, tuple[Passage, asyncio.Task[None]]] = {}
        self._open = 0

    def consider(self, use: ToolUse) -> None:
        """The next call of the reply is complete: begin it, if nothing stands against it."""
        asked = self._intents.add(use)
        index = len(self._asked)
        self._asked.append(asked)
        if not self._may_begin(use, asked, index):
            return
        call = CallState(Slot(use, index), asked)
        passage = Passage(self._run, call, halt=self._halt)
        task = self._run.loop.create_task(passage.begin_early(), name=f"early {use.name}")
        task.add_done_callback(self._one_is_over)
        self._open += 1
        self._begun[use.id] = (passage, task)

    def hand_over(self) -> None:
        """The reply counts: its calls adopt what was begun for them."""
        self._run.early.update({key: passage for key, (passage, _) in self._begun.items()})
        self._begun = {}

    async def discard(self) -> None:
        """The reply does not count: stop its reads, and count those that were entered."""
        if not self._begun:
            return
        self._halt.set("cancelled")
        entered = 0
        for passage, task in self._begun.values():
            await task
            entered += passage.bill_discarded()
        self._begun = {}
        if entered:
            self._run.record.write(Charged(Usage(), Decimal(0), estimated=False, calls=entered))
            self._run.emit("read_discarded", {"count": entered})

    def _one_is_over(self, _: object) -> None:
        self._open -= 1
        if not self._open:
            self._halt.unlink()

    def _may_begin(self, use: ToolUse, asked: Asked, index: int) -> bool:
        run = self._run
        prepared = run.prepare(use, use.arguments)
        if not self._allowed or not isinstance(prepared, tuple) or index >= MAX_CALLS:
            return False
        tool = prepared[0]
        return (
            tool.effect is Effect.READ
            and tool.eager
            and not run.guards.open
            and schedule([each.footprint for each in self._asked])[index] == ()
            and asked.key is not None
        )
