"""What is said: messages, their blocks, what came back and what it used.

Values only: frozen, without a clock, a provider or I/O. The words are provider-neutral; a codec
translates them at the edge. `to_json` of each value is the form of the journal and of
`Transcript.to_json`; `block_from_json` and `Message.from_json` read it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias, cast

import msgspec

from remit.canonical import parse_json

__all__ = [
    "Block",
    "Json",
    "Media",
    "Message",
    "Opaque",
    "Reply",
    "ResultContent",
    "Role",
    "Status",
    "StopReason",
    "Text",
    "ToolResult",
    "ToolUse",
    "Usage",
    "Value",
    "block_from_json",
]

Json: TypeAlias = "Mapping[str, Any]"
Role: TypeAlias = Literal["user", "assistant"]


class Value(msgspec.Struct, frozen=True):
    """What the values of the record have in common: encoded and read back by their types."""

    def to_json(self) -> dict[str, Any]:
        """The value in plain JSON types: dict, list, str, numbers, bool and None."""
        return _plain(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Read it back from what `to_json` gave. Errors: `ValueError`."""
        return _converted(value, cls)


class StopReason(StrEnum):
    """Why the model stopped, in remit's words. Only `TOOL_USE` lets calls run."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    LENGTH = "length"
    REFUSAL = "refusal"
    FILTER = "filter"
    PAUSE = "pause"
    STOP_SEQUENCE = "stop_sequence"
    CONTEXT = "context"
    UNKNOWN = "unknown"


class Status(StrEnum):
    """What happened to a call, as far as is known. Kept with the result, not sent to the model."""

    OK = "ok"
    ERROR = "error"
    REFUSED = "refused"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"
    """It may have taken effect: nobody here knows."""


class Text(Value, frozen=True, gc=False, tag_field="type", tag="text"):
    """Plain text."""

    text: str


class Media(Value, frozen=True, gc=False, tag_field="type", tag="media"):
    """An image, a sound or a document, whole and in memory."""

    media_type: str
    """IANA media type, such as `image/png`."""
    data: bytes
    name: str | None = None

    @property
    def is_well_typed(self) -> bool:
        """Whether its parts are what their types say: media come from the code of others."""
        return (
            isinstance(self.media_type, str)  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            and isinstance(self.data, bytes)  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            and isinstance(self.name, str | None)  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        )


class ToolUse(Value, frozen=True, gc=False, tag_field="type", tag="tool_use"):
    """A call that the model asks for."""

    id: str
    name: str
    arguments: str
    """The JSON text as the model gave it; nothing is repaired."""

    def parsed(self) -> Any:
        """The arguments, read losslessly. Errors: `ValueError` where the text is no JSON."""
        return parse_json(self.arguments)


ResultContent: TypeAlias = Text | Media


class ToolResult(Value, frozen=True, gc=False, tag_field="type", tag="tool_result"):
    """What became of a call."""

    tool_use_id: str
    content: tuple[ResultContent, ...]
    is_error: bool = False
    status: Status = Status.OK
    key: str | None = None
    """The key of the call, if it got one. Kept for doubts; never sent."""
    artifacts: tuple[str, ...] = ()
    """Handles of what the content shows in part or only names. Kept for whoever goes on; never sent."""

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join([block.text for block in self.content if isinstance(block, Text)])


class Opaque(Value, frozen=True, gc=False, tag_field="type", tag="opaque"):
    """A provider's own block, kept byte for byte and sent back to its issuer only.

    In a user's turn it stands behind the results, and only where a history was parsed from a request body:
    there it is what the wire can say and remit has no words for.
    """

    issuer: str
    """Who can read it, such as `anthropic`."""
    data: bytes
    """The block as the provider encoded it."""


Block: TypeAlias = Text | Media | ToolUse | ToolResult | Opaque


def _plain(value: Any) -> Any:
    """The same with lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: _plain(item) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    return value


def block_from_json(value: Json) -> Block:
    """Read one block. Errors: `ValueError` for what is no block."""
    return _converted(value, Block)


def _converted(value: object, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


class Message(Value, frozen=True, gc=False):
    """One turn of one side."""

    role: Role
    content: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join([block.text for block in self.content if isinstance(block, Text)])

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        return tuple([block for block in self.content if isinstance(block, ToolUse)])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple([block for block in self.content if isinstance(block, ToolResult)])


class Usage(Value, frozen=True, gc=False):
    """Tokens as the provider counted them, in disjoint parts; reasoning is a part of output."""

    input: int = 0
    """Fresh prompt tokens: neither read from a cache nor written to one."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All prompt tokens, cached or not."""
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        """What counts against `Limits.tokens`: every prompt token and every output token."""
        return self.input + self.cache_read + self.cache_write + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


class Reply(Value, frozen=True):
    """One whole reply of a model."""

    message: Message
    stop_reason: StopReason
    usage: Usage | None = None
    """None where the provider reported nothing; the loop then charges an estimate and marks it."""
    usd: Decimal | None = None
    """The cost where the provider itself states it, of what is `beside` too; else it follows from the price."""
    beside: Usage = Usage()
    """What other requests used that were made for this reply: attempts that came to nothing, second opinions."""
    beside_estimated: bool = False
    """Nobody reported a part of that; it was estimated."""
