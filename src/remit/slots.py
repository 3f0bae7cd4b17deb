"""The places of the results of one turn: one `Slot` for each tool use, whatever becomes of it.

However the block that answers a turn ends, `Answering` settles what is open with the truth and appends all
results, in call order. The promise is kept here, by the shape of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeAlias

import msgspec

from remit.errors import TranscriptError
from remit.messages import Message, ResultContent, Status, Text, ToolResult, ToolUse
from remit.rules import presentable

__all__ = ["Answering", "Slot", "Words", "as_settled", "slots_for", "truth"]


class Slot:
    """The place of one result: it knows its tool use, and the first result wins (T4)."""

    __slots__ = ("_result", "_started", "index", "key", "use")

    def __init__(self, use: ToolUse, index: int) -> None:
        self.use: Final = use
        """The tool use that is answered here."""
        self.index: Final = index
        """Position in call order, from 0."""
        self.key: str | None = None
        """The key of the call once it has one. It goes into the result, whoever settles it."""
        self._started = False
        self._result: ToolResult | None = None

    @property
    def result(self) -> ToolResult | None:
        """What became of the call; None while the slot is open."""
        return self._result

    @property
    def started(self) -> bool:
        """A body was entered: without a result the call may have taken effect."""
        return self._started

    def begin(self) -> None:
        """Say that a body is about to be entered."""
        self._started = True

    def turn_back(self) -> None:
        """Say that it was not entered after all."""
        self._started = False

    def settle(
        self,
        content: tuple[ResultContent, ...],
        *,
        is_error: bool = False,
        status: Status = Status.OK,
        key: str | None = None,
        artifacts: tuple[str, ...] = (),
    ) -> bool:
        """Write the result, under the slot's own id.

        Shape: True if this is the result; False, with nothing changed, if there was one already.
        Errors: `TranscriptError` where nothing but blank text is left of the content.
        """
        if self._result is not None:
            return False
        shown = presentable(content)
        if not shown:
            raise TranscriptError(f"the result of {self.use.name!r} is blank: say so in words")
        self._result = ToolResult(
            self.use.id, shown, is_error, status, self.key if key is None else key, artifacts
        )
        return True

    def shorten(self, content: tuple[ResultContent, ...], artifacts: tuple[str, ...]) -> None:
        """Show less of the result that is here: the turn is not closed yet, so no model has seen it.

        Errors: `TranscriptError` where there is no result, or nothing is left of it.
        """
        shown = presentable(content)
        if self._result is None or not shown:
            raise TranscriptError(f"the result of {self.use.name!r} cannot be shown shorter")
        self._result = msgspec.structs.replace(self._result, content=shown, artifacts=artifacts)

    def __repr__(self) -> str:
        state = "started" if self._started else "open"
        return (
            f"<Slot {self.index} {self.use.id}: {self._result.status if self._result else state}>"
        )


Words: TypeAlias = Callable[[Slot], tuple[str, Status]]
"""What an open slot is settled with: the text for the model, and what it means."""


def truth(slot: Slot) -> tuple[str, Status]:
    if slot.started:
        return "Interrupted: it may have taken effect.", Status.UNKNOWN
    return "Not started: the run stopped before this call.", Status.NOT_STARTED


def as_settled(slot: Slot, words: Words) -> ToolResult:
    if slot.result is not None:
        return slot.result
    text, status = words(slot)
    shown = presentable((Text(text),))
    if not shown:
        raise TranscriptError(f"the words for {slot.use.name!r} are blank")
    return ToolResult(slot.use.id, shown, status is not Status.OK, status, slot.key)


def slots_for(uses: tuple[ToolUse, ...]) -> tuple[Slot, ...]:
    return tuple([Slot(use, index) for index, use in enumerate(uses)])


class Answering:
    """The slots of one turn, open until `close`; as a context manager it closes on every exit."""

    __slots__ = ("__weakref__", "_answered", "_append", "slots")

    def __init__(
        self, slots: tuple[Slot, ...], append: Callable[[tuple[ToolResult, ...]], Message]
    ) -> None:
        self.slots: Final = slots
        """One slot per tool use, in call order."""
        self._append = append
        self._answered: Message | None = None

    @property
    def is_open(self) -> bool:
        """Whether a slot has no result yet."""
        return None in [slot.result for slot in self.slots]

    @property
    def open(self) -> tuple[Slot, ...]:
        """The slots without a result, in call order."""
        return tuple([slot for slot in self.slots if slot.result is None])

    def close(self) -> Message:
        """Settle what is open with the truth and append all results, in call order, as one message.

        Shape: the message as appended; closing again returns it and changes nothing.
        """
        if self._answered is None:
            for slot in self.slots:
                if slot.result is None:
                    text, status = truth(slot)
                    slot.settle((Text(text),), is_error=True, status=status)
            results = [slot.result for slot in self.slots if slot.result is not None]
            self._answered = self._append(tuple(results))
        return self._answered

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
