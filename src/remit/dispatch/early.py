"""Reads that begin while their reply is still written (C3). They belong to one attempt and go with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    """The calls of one attempt as they come in, and the reads that did not wait for its end."""

    def __init__(self, run: Run, *, allowed: bool) -> None:
        self._run = run
        self._allowed = allowed
        self._halt: Halt | None = None
        self._intents = Intents(run)
        self._asked: list[Asked] = []
        self._begun: dict[str, tuple[Passage, asyncio.Task[None]]] = {}
        self._open = 0

    def intend(self, uses: Sequence[ToolUse]) -> tuple[Asked, ...]:
        """The intents of all calls of the reply so far, in call order."""
        for use in uses[len(self._asked) :]:
            self._asked.append(self._intents.add(use))
        return tuple(self._asked)

    def consider(self, uses: Sequence[ToolUse]) -> None:
        """The newest call of the reply is complete: begin it, if nothing stands against it."""
        run, index = self._run, len(uses) - 1
        tool = run.config.tools.get(uses[index].name)
        if (
            not self._allowed
            or tool is None
            or tool.effect is not Effect.READ
            or not tool.eager
            or index >= MAX_CALLS
            or run.guards.open
        ):
            return
        fresh = run.state.transcript.fresh_ids(uses)
        asked = self.intend(fresh)
        if asked[index].key is None or schedule([each.footprint for each in asked])[index]:
            return
        self._begin(fresh[index], asked[index], index)

    def hand_over(self) -> None:
        """The reply counts: its calls adopt what was begun for them."""
        self._run.early.update({key: passage for key, (passage, _) in self._begun.items()})
        self._begun = {}

    async def discard(self) -> None:
        """The reply does not count: stop its reads, and count those that were entered."""
        if self._halt is None or not self._begun:
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

    def _begin(self, use: ToolUse, asked: Asked, index: int) -> None:
        if self._halt is None:
            self._halt = Halt(self._run.loop, above=self._run.halt)
        passage = Passage(self._run, CallState(Slot(use, index), asked), halt=self._halt)
        task = self._run.loop.create_task(passage.begin_early(), name=f"early {use.name}")
        self._open += 1
        task.add_done_callback(self._one_is_over)
        self._begun[use.id] = (passage, task)

    def _one_is_over(self, _: object) -> None:
        self._open -= 1
        if self._open == 0 and self._halt is not None:
            self._halt.unlink()
