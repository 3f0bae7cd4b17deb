"""What was seen of a reply until now: it bills one that never ends. Pure counting.

Who asks a model is told the usage with the reply, or with the error in its place. Where neither comes, because a
stream broke off, was cancelled or met the deadline, the output is estimated from its characters: those that were
shown, and those of thinking and of calls, which nobody is shown (`Underway`).
"""

from __future__ import annotations

import msgspec

from remit.messages import Block, ToolUse, Usage
from remit.models.base import BlockDone, Chunk, TextDelta, Underway

__all__ = ["Seen"]

_CHARS_PER_TOKEN = 4


class Seen:
    """The chunks of one request, as far as they cost something."""

    __slots__ = ("_called", "_shown", "_unshown", "_usage")

    def __init__(self) -> None:
        self._shown = self._unshown = 0
        self._called = 0
        """Characters of the arguments of complete calls: some models tell them no earlier."""
        self._usage: Usage | None = None

    def show(self, text: str) -> None:
        """Text has come."""
        self._shown += len(text)

    def complete(self, block: Block) -> None:
        """A block has come to its end."""
        if isinstance(block, ToolUse):
            self._called += len(block.arguments)

    def learn(self, underway: Underway) -> None:
        """Something has come that is not shown."""
        self._unshown += underway.chars
        self._usage = underway.usage or self._usage

    def take(self, chunk: Chunk) -> None:
        """Any chunk."""
        match chunk:
            case TextDelta(text):
                self.show(text)
            case BlockDone(block):
                self.complete(block)
            case Underway():
                self.learn(chunk)
            case _:
                pass

    def estimate(self, prompt: int) -> Usage:
        """What it used, at least as far as was reported. Units: tokens; `prompt` is estimated too."""
        output = (self._shown + max(self._unshown, self._called)) // _CHARS_PER_TOKEN
        if self._usage is None or not self._usage.prompt:
            return Usage(input=prompt, output=output)
        return msgspec.structs.replace(self._usage, output=max(self._usage.output, output))
