"""`remit chat`: several prompts, one conversation.

Each prompt is a run of its own, under the limits of one; what was said before is its history. On a terminal
Ctrl-C cancels the run and keeps the chat, and Ctrl-D ends it. Piped in, each line is a prompt.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from cyclopts import Parameter

from remit.amounts import Totals
from remit.analysis.cells import clip, one_line, visible
from remit.cli import exits
from remit.cli.assemble import remit_for
from remit.cli.content import piped_lines, proper_text
from remit.cli.display import Display as Shown
from remit.cli.display import display_for
from remit.cli.kept import Kept, kept
from remit.cli.options import Display, Limit, SessionFlag, SessionWait, StoreFlag, Who
from remit.cli.recorded import tags_of
from remit.cli.run import code_of, confirming, refuse_contradictions, waiting_advice, watched
from remit.cli.settings import here, read_settings
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.streams import Streams, complain, own_stdout
from remit.cli.tools import table
from remit.errors import ConfigurationError, SessionBusy
from remit.messages import Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.outcome import Outcome, Reason
from remit.transcript import Transcript

__all__ = ["chat"]

_RESULT_CHARS: Final = 300
"""Of a result /show shows so much."""


def chat(
    *,
    who: Who = Who(),
    session: SessionFlag = None,
    session_wait: SessionWait = None,
    tag: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE")] = (),
    store: StoreFlag = None,
    limit: Limit = Limit(),
    display: Display = Display(),
) -> int:
    """Talk: several prompts, one conversation. The limits are those of each prompt.

    /help lists what else can be asked; Ctrl-C cancels what runs, Ctrl-D ends the chat. Piped in, each line
    is a prompt, and the first that is not completed ends the chat with its exit code.

    Args:
        tag: Mark the run of each prompt, for remit runs --tag. Repeat it for more.
    """
    refuse_contradictions(display)
    with own_stdout() as streams:
        directory = here()
        settings = read_settings(directory, os.environ)
        remit = remit_for(who, limit, settings, directory)
        tags = tags_of(tag, who, directory, None)
        if session is not None:
            proper_text(session, "--session")
        shown = display_for(streams, display)
        remit = confirming(remit, who.confirm, shown, directory)
        with kept(remit, store, settings) as where:
            talk = _Chat(where, shown, streams, tags, session, session_wait).talk
            return run_until_done(talk)


@dataclass(frozen=True, slots=True)
class _Turn:
    """One prompt and what became of it."""

    said: str
    outcome: Outcome[Any]


@dataclass(slots=True)
class _Chat:
    """A conversation under way."""

    where: Kept
    shown: Shown
    streams: Streams
    tags: Mapping[str, str]
    session: str | None
    """Where the store keeps the conversation; without one it lasts as long as the chat."""
    session_wait: float | None
    turns: list[_Turn] = field(default_factory=list[_Turn])
    """What the next prompt goes on from; /undo takes the last one away."""
    spent: Totals = field(default_factory=Totals)
    """By all runs: what was taken back was paid for too."""

    async def talk(self, interrupts: Interrupts) -> int:
        """The whole of it. Returns the exit code."""
        person = self.streams.input.isatty() and self.shown.can_ask
        prompts = self._typed(interrupts) if person else piped_lines(self.streams.input)
        async for said in prompts:
            if said.split() == ["/quit"]:
                break
            code = exits.OK
            try:
                if said.startswith("/"):
                    self._view(said)
                else:
                    code = await self._run(proper_text(said, "the prompt"), interrupts)
            except (ConfigurationError, SessionBusy) as error:
                if not person:
                    raise
                complain(str(error))
            if code == exits.TERMINATED or (code and not person):
                return code
            interrupts.code = None
        return exits.OK

    async def _typed(self, interrupts: Interrupts) -> AsyncIterator[str]:
        """What a person types, until Ctrl-D; Ctrl-C throws the line away."""
        while True:
            line = asyncio.ensure_future(self.shown.listen([turn.said for turn in self.turns]))

            def stop(_: int, line: asyncio.Future[Any] = line) -> None:
                line.cancel()

            with interrupts.stopping(stop, leaves=False):
                try:
                    said = await line
                except asyncio.CancelledError:
                    if interrupts.code != exits.INTERRUPTED:
                        raise
                    interrupts.code = None
                    self._tell("Ctrl-D or /quit ends the chat.")
                    continue
            if said is None:
                return
            if said.strip():
                yield said

    async def _run(self, said: str, interrupts: Interrupts) -> int:
        gone_on_from = self.turns[-1].outcome.transcript if self.turns else None
        running = self.where.remit.stream(
            (Text(said),),
            history=gone_on_from if self.session is None else None,
            session=self.session,
            session_wait=self.session_wait,
            tags=self.tags,
        )
        outcome = await watched(running, self.where, self.shown, interrupts)
        self.turns.append(_Turn(said, outcome))
        self.spent += outcome.spend.tree
        if outcome.reason is Reason.WAITING:
            complain(waiting_advice(outcome, self.where))
        return code_of(outcome, interrupts)

    # What can be asked beside

    def _view(self, said: str) -> None:
        command = said.split(maxsplit=1)[0]
        views: Mapping[str, Callable[[], Iterator[str]]] = {
            "/cost": self._cost,
            "/tools": lambda: table(self.where.remit),
            "/show": self._show,
            "/undo": self._undo,
            "/help": _help,
        }
        if command in views:
            for line in views[command]():
                self._tell(line)
            return
        from difflib import get_close_matches

        close = get_close_matches(command, [*views, "/quit"], n=1)
        hint = f"did you mean {close[0]}?" if close else "/help lists what there is;"
        raise ConfigurationError(
            f"{command} is nothing that can be asked: {hint} a space before it makes it a prompt"
        )

    def _cost(self) -> Iterator[str]:
        spent, usage = self.spent, self.spent.usage
        yield f"{len(self.turns)} prompts, {spent.steps} steps, {spent.calls} calls"
        yield f"{spent.tokens:,} tokens: {usage.prompt:,} read, {usage.cache_read:,} of them cached, {usage.output:,} written"
        yield f"{spent.usd:.4f} USD, {spent.seconds:.1f} s"

    def _show(self) -> Iterator[str]:
        transcript = self.turns[-1].outcome.transcript if self.turns else Transcript()
        for message in transcript:
            yield from _said(message)

    def _undo(self) -> Iterator[str]:
        if self.session is not None:
            yield "What was said in a session is kept: nothing is taken back."
            return
        if not self.turns:
            yield "Nothing has been said yet."
            return
        turn = self.turns.pop()
        yield f"Taken back: {clip(one_line(turn.said), 60)}"
        if turn.outcome.spend.tree.calls:
            yield "What its calls have done stays done."

    def _tell(self, line: str) -> None:
        print(visible(line), file=self.streams.notes)


def _help() -> Iterator[str]:
    yield "/cost    what this chat has used"
    yield "/tools   what the model sees of your tools"
    yield "/show    the conversation as the model knows it"
    yield "/undo    take the last prompt and its answer back, without --session; what its calls have done stays done"
    yield "/quit    end the chat, as Ctrl-D does"
    yield "Ctrl-C   cancel what runs, or throw the line away"


def _said(message: Message) -> Iterator[str]:
    """A message, for a person."""
    who = "model" if message.role == "assistant" else "note" if message.tool_results else "you"
    for block in message.content:
        match block:
            case Text(text):
                yield f"{who}: {text}"
            case ToolUse(_, name, arguments):
                yield f"  {name} {clip(one_line(arguments), _RESULT_CHARS)}"
            case ToolResult():
                yield f"  {block.status.value}: {clip(one_line(block.text), _RESULT_CHARS)}"
            case Media(media_type, found):
                yield f"{who}: [{media_type}, {len(found):,} bytes]"
            case Opaque():
                pass  # the provider's own; nobody else can read it
