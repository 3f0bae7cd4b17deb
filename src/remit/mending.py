"""Histories from outside, made valid: every change is the least that will do, and is reported (T6).

Results are given back to their calls by id, what is missing is answered "outcome unknown", what belongs to no
call is removed. Nothing is guessed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from remit.errors import TranscriptError
from remit.messages import Block, Media, Message, Status, Text, ToolResult, ToolUse
from remit.rules import HOLDS, fresh_ids, is_blank, presentable, replied, well_formed

__all__ = ["Mended", "Mender", "read_message"]


@dataclass(frozen=True, slots=True)
class Mended:
    """Something that `Transcript.load` had to put right."""

    position: int
    """Index of the message in what was loaded."""
    what: str
    """What was found and what was done, as a sentence for people."""


def read_message(position: int, entry: object) -> Message:
    try:
        message = Message.from_json(entry)  # pyright: ignore[reportArgumentType] - what is no mapping raises
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise TranscriptError(f"message {position} cannot be read: {why}") from error
    for block in message.content:
        if isinstance(block, ToolResult):
            optional = [
                block.key,
                *[part.name for part in block.content if isinstance(part, Media)],
            ]
        else:
            optional = [block.name] if isinstance(block, Media) else []
        if not all(map(_is_optional_string, optional)):
            raise TranscriptError(f"message {position} cannot be read: a name or key is no string")
    return message


def _is_optional_string(value: object) -> bool:
    return value is None or isinstance(value, str)


class Mender:
    """Turns any messages into valid ones, and says of each change what it was."""

    def __init__(self) -> None:
        self.report: list[Mended] = []
        self._results: dict[tuple[int, int], ToolResult] = {}
        """Results by the message and the index of the tool use that they answer."""

    def mend(self, given: Sequence[Message]) -> list[Message]:
        self._pair(given)
        made: list[Message] = []
        taken: set[str] = set()
        due: tuple[ToolResult, ...] = ()  # results that must stand first in the next message
        for position, message in enumerate(given):
            blocks = self._content(position, message)
            if message.role == "user":
                if due or blocks:
                    made.append(Message("user", (*due, *blocks)))
                    due = ()
                else:
                    self._note(position, "the message was empty: removed")
                continue
            if not blocks:
                self._note(position, "the message was empty: removed")
                continue
            if due:
                made.append(Message("user", due))
            if not made:
                self._note(position, "the conversation began with the assistant: user turn added")
                made.append(Message("user", (Text("(The beginning is not in this history.)"),)))
            uses = self._uses(position, blocks, taken)
            fresh = iter(uses)
            content = [next(fresh) if isinstance(block, ToolUse) else block for block in blocks]
            made.append(Message("assistant", tuple(content)))
            answered = any((position, index) in self._results for index in range(len(uses)))
            may_owe = position == len(given) - 1 and not answered
            due = () if may_owe else self._answers(position, uses)
        if due:
            made.append(Message("user", due))
        return made

    def _note(self, position: int, what: str) -> None:
        self.report.append(Mended(position, what))

    def _pair(self, given: Sequence[Message]) -> None:
        """Give each result to the nearest call of its id before it; note those it cannot place.

        Nearer is safer where an id was used again: a result is given to no call that it could not
        have come from, and a second result for the same call never to an older one.
        """
        calls: dict[str, deque[tuple[int, int]]] = {}  # open calls of the newest turn using the id
        for position, message in enumerate(given):
            if message.role == "assistant":
                turn: dict[str, deque[tuple[int, int]]] = {}
                for index, use in enumerate(message.tool_uses):
                    turn.setdefault(use.id, deque()).append((position, index))
                calls |= turn
            newest = -1
            for at, block in enumerate(message.content):
                if not isinstance(block, ToolResult):
                    continue
                name = repr(block.tool_use_id[:64])
                waiting = calls.get(block.tool_use_id)
                if waiting is None:
                    self._note(position, f"result {name} belongs to no call before it: removed")
                elif not waiting:
                    self._note(position, f"result {name} was there already: removed")
                else:
                    call, index = waiting.popleft()
                    self._results[call, index] = block
                    if message.role == "assistant" or position != call + 1:
                        self._note(position, f"result {name} stood apart from its call: moved")
                    elif index < newest or not all(
                        isinstance(before, ToolResult) for before in message.content[:at]
                    ):
                        self._note(position, f"result {name} was out of order: moved")
                    newest = max(newest, index)

    def _content(self, position: int, message: Message) -> list[Block]:
        """What is left of a message beside its results."""
        kept: list[Block] = []
        for block in message.content:
            if isinstance(block, ToolResult):
                continue
            if not isinstance(block, HOLDS[message.role]):
                self._note(position, f"{type(block).__name__} in a {message.role} turn: removed")
            elif is_blank(block):
                self._note(position, f"a blank {type(block).__name__.lower()}: removed")
            elif isinstance(block, ToolUse):
                kept.append(block)
            else:
                kept.append(replied(block))
                if kept[-1] is not block:
                    self._note(position, "ill-formed text: replaced")
        return kept

    def _uses(self, position: int, blocks: Iterable[Block], taken: set[str]) -> tuple[ToolUse, ...]:
        """The calls of a turn under legal and unique ids, which are then taken."""
        uses = [block for block in blocks if isinstance(block, ToolUse)]
        fresh = fresh_ids(uses, taken)
        for old, new in zip(uses, fresh, strict=True):
            if old.id != new.id:
                self._note(position, f"id {old.id[:64]!r} is illegal or used: now {new.id!r}")
            if (old.name, old.arguments) != (new.name, new.arguments):
                self._note(position, f"no name or ill-formed text in call {new.id!r}: replaced")
        taken.update(use.id for use in fresh)
        return fresh

    def _answers(self, position: int, uses: tuple[ToolUse, ...]) -> tuple[ToolResult, ...]:
        return tuple([self._answered(position, index, use) for index, use in enumerate(uses)])

    def _answered(self, position: int, index: int, use: ToolUse) -> ToolResult:
        found = self._results.get((position, index))
        if found is None:
            self._note(position, f"call {use.id!r} had no result: answered as unknown")
            text = "Outcome unknown: no result in this history; it may have taken effect."
            return ToolResult(use.id, (Text(text),), True, Status.UNKNOWN)
        content = presentable(found.content)
        if not content:
            content = (Text("(no output)"),)
        key = None if found.key is None else well_formed(found.key)
        if content != found.content or key != found.key:
            self._note(position, f"blank or ill-formed text in the result of {use.id!r}: replaced")
        return msgspec.structs.replace(found, tool_use_id=use.id, content=content, key=key)
