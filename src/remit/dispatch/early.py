"""Reads that begin while their reply is still written (C3). They belong to one attempt and go with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from remit.amounts import NOTHING, ZERO, Amount, Totals
from remit.dispatch.gate import MAX_CALLS, Passage, price_of
from remit.messages import ToolUse, Usage
from remit.rows import Asked, Charged
from remit.run import Intents, Run
from remit.schedule import schedule
from remit.slots import Slot
from remit.state import CallState
from remit.supervise import Halt
from remit.tools import Effect

__all__ = ["EarlyReads"]


class EarlyReads:
    """The calls of one attempt as they come in, and the reads that did not wait for its end."""

    __slots__ = (
        "_allowed",
        "_asked",
        "_begun",
        "_halt",
        "_intents",
        "_open",
        "_run",
    )

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
        """The newest call of the reply is complete: begin it, if nothing stands against it.

        That is at the next turn of the event loop: where the reply ends at once, nothing is gained by haste.
        """
        if self._allowed:
            self._run.loop.call_soon(self._begin_newest, tuple(uses))

    def _begin_newest(self, uses: Sequence[ToolUse]) -> None:
        run, index = self._run, len(uses) - 1
        tool = run.config.tools.get(uses[index].name)
        if (
            not self._allowed
            or tool is None
            or tool.effect is not Effect.READ
            or not tool.eager
            or tool.computed  # journaled with the intent, which is not there yet
            or index >= MAX_CALLS
            or run.guards.open
        ):
            return
        fresh = run.state.transcript.fresh_ids(uses)
        asked = self.intend(fresh)
        if asked[index].key is None or schedule([each.footprint for each in asked])[index]:
            return
        if index and not run.means.has_room_for(self._claims(fresh)):
            return  # the calls before it have the first claim (L1)
        self._begin(fresh[index], asked[index], index)

    def _claims(self, uses: Sequence[ToolUse]) -> Amount:
        """What the newest call and those before it that have not begun may take together."""
        claims = ZERO
        for use, asked in zip(uses, self._asked, strict=True):
            tool = self._run.config.tools.get(use.name)
            if asked.key is not None and tool is not None and use.id not in self._begun:
                claims += price_of(tool)
        return claims

    def complete(self) -> None:
        """The reply is whole: from here on its calls go the common way."""
        self._allowed = False

    def hand_over(self) -> None:
        """The reply counts: its calls adopt what was begun for them."""
        self._allowed = False
        self._run.early.update({key: passage for key, (passage, _) in self._begun.items()})
        self._begun = {}

    async def discard(self) -> None:
        """The reply does not count: stop its reads, and count those that were entered."""
        self._allowed = False
        if not self._begun:
            return
        if self._halt is not None:
            self._halt.set("cancelled")
        spent, children, overshoot = Totals(), NOTHING, ZERO
        entered: list[str] = []
        for passage, task in self._begun.values():
            await task
            own, inside = passage.bill_discarded()
            if passage.entered:
                entered.append(passage.call.use.id)
            spent += own or Totals()
            children += inside or NOTHING
            overshoot += passage.overshoot
        self._begun = {}
        if spent.calls:
            self._run.write_charged(
                Charged(
                    Usage(),
                    spent.usd,
                    estimated=False,
                    calls=spent.calls,
                    tokens=spent.tokens,
                    children=None if children == NOTHING else children,
                    overshoot=overshoot,
                )
            )
            self._run.emit("read_discarded", {"count": spent.calls, "ids": entered})

    def _begin(self, use: ToolUse, asked: Asked, index: int) -> None:
        if not self._allowed or self._run.halt.cause is not None:
            return
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
            self._halt.close()
            self._halt = None  # a read that begins later gets one that still hears
