"""What is said: messages, their blocks, what came back and what it used.

Values only: frozen, without a clock, a provider or I/O. The words are provider-neutral; a codec
translates them at the edge. `to_json` of each value is the form of the journal and of
`Transcript.to_json`; `block_from_json` and `Message.from_json` read it back.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, TypeAlias

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
    "block_from_json",
]

Json: TypeAlias = "Mapping[str, Any]"
Role: TypeAlias = Literal["user", "assistant"]


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


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str

    def to_json(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class Media:
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

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "media",
            "media_type": self.media_type,
            "data": base64.b64encode(self.data).decode("ascii"),
            "name": self.name,
        }


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that the model asks for."""

    id: str
    name: str
    arguments: str
    """The JSON text as the model gave it; nothing is repaired."""

    def parsed(self) -> Any:
        """The arguments, read losslessly. Errors: `ValueError` where the text is no JSON."""
        return parse_json(self.arguments)

    def to_json(self) -> dict[str, Any]:
        return {"type": "tool_use", "id": self.id, "name": self.name, "arguments": self.arguments}


ResultContent: TypeAlias = Text | Media


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What became of a call."""

    tool_use_id: str
    content: tuple[ResultContent, ...]
    is_error: bool = False
    status: Status = Status.OK
    key: str | None = None
    """The key of the call, if it got one. Kept for doubts; never sent."""

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "tool_result",
            "tool_use_id": self.tool_use_id,
            "content": [block.to_json() for block in self.content],
            "is_error": self.is_error,
            "status": self.status.value,
            "key": self.key,
        }


@dataclass(frozen=True, slots=True)
class Opaque:
    """A provider's own block, kept byte for byte and sent back to its issuer only."""

    issuer: str
    """Who can read it, such as `anthropic`."""
    data: bytes
    """The block as the provider encoded it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "opaque",
            "issuer": self.issuer,
            "data": base64.b64encode(self.data).decode("ascii"),
        }


Block: TypeAlias = Text | Media | ToolUse | ToolResult | Opaque


def block_from_json(value: Json) -> Block:
    """Read one block. Errors: `KeyError`, `TypeError` or `ValueError` for what is no block."""
    match value["type"]:
        case "text":
            return Text(_string(value["text"]))
        case "media":
            return Media(
                _string(value["media_type"]),
                base64.b64decode(value["data"], validate=True),
                value.get("name"),
            )
        case "tool_use":
            return ToolUse(
                _string(value["id"]), _string(value["name"]), _string(value["arguments"])
            )
        case "tool_result":
            return ToolResult(
                _string(value["tool_use_id"]),
                tuple(_result_content(part) for part in value["content"]),
                bool(value.get("is_error", False)),
                Status(value.get("status", "ok")),
                value.get("key"),
            )
        case "opaque":
            return Opaque(_string(value["issuer"]), base64.b64decode(value["data"], validate=True))
        case other:
            raise ValueError(f"unknown block type {other!r}")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {type(value).__name__}")
    return value


def _result_content(value: Json) -> ResultContent:
    block = block_from_json(value)
    if not isinstance(block, Text | Media):
        raise ValueError(f"a result holds text and media, not {type(block).__name__}")
    return block


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of one side."""

    role: Role
    content: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolUse))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolResult))

    def to_json(self) -> dict[str, Any]:
        return {"role": self.role, "content": [block.to_json() for block in self.content]}

    @classmethod
    def from_json(cls, value: Json) -> Message:
        """Read one message. Errors: `KeyError`, `TypeError` or `ValueError`."""
        role = value["role"]
        if role not in ("user", "assistant"):
            raise ValueError(f"unknown role {role!r}")
        return cls(role, tuple(block_from_json(block) for block in value["content"]))


@dataclass(frozen=True, slots=True)
class Usage:
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

    def to_json(self) -> dict[str, int]:
        return {
            "input": self.input,
            "cache_read": self.cache_read,
            "cache_write": self.cache_write,
            "output": self.output,
            "reasoning": self.reasoning,
        }


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole reply of a model."""

    message: Message
    stop_reason: StopReason
    usage: Usage | None = None
    """None where the provider reported nothing; the loop then charges an estimate and marks it."""
    usd: Decimal | None = None
    """The cost where the provider itself states it; else it follows from the model's price."""
