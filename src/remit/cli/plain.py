"""The plainest display: one line for each thing that happens, for people and for logs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from remit.budget import Limits
from remit.cli.streams import Streams, harmless
from remit.events import Event
from remit.outcome import Outcome
from remit.pending import Decision, Pending

__all__ = ["PlainDisplay"]


class PlainDisplay:
    """Writes lines to stderr and asks there."""

    def __init__(self, streams: Streams, *, quiet: bool) -> None:
        self._streams = streams
        self._quiet = quiet
        self._text = ""

    @property
    def can_ask(self) -> bool:
        """Whether somebody sits there."""
        return self._streams.input.isatty() and self._streams.notes.isatty()

    def begin(self, run_id: str, name: str, model: str, limits: Limits) -> None:
        self._say(
            f"run {run_id} · {name} · {model} · {limits.steps} steps, {limits.tokens:,} tokens"
        )

    def hear(self, event: Event) -> None:
        if event.kind == "text":
            self._text += event.fields["text"]
            return
        if self._text:
            self._say(self._text)
            self._text = ""
        if event.kind in ("call_started", "call_settled"):
            status = event.fields.get("status", "begins")
            self._say(f"{event.fields['tool']}: {status}")

    async def confirm(self, pending: Pending) -> Decision:
        question = f"{harmless(pending.summary)}? [y/N] "
        answer = await _ask(question, self._streams)
        return Decision(approve=answer.strip().lower() in {"y", "yes"}, by="you")

    def end(self, outcome: Outcome[Any]) -> None:
        spent = outcome.spend.tree
        self._say(f"{outcome.reason} · {outcome.steps} steps · {spent.tokens:,} tokens")

    def close(self) -> None:
        self._streams.notes.flush()

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(harmless(text), file=self._streams.notes)


async def _ask(question: str, streams: Streams) -> str:
    """Read a line without holding up the loop; a thread that dies with the program waits for it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        print(question, end="", file=streams.notes, flush=True)
        line = streams.input.readline()
        loop.call_soon_threadsafe(answer.set_result, line)

    threading.Thread(target=read, daemon=True).start()
    return await answer
