"""What a provider is to say: one turn of a script, with ids and counts, before a wire writes it down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from remit.messages import Block, Media, Opaque, StopReason, Text, ToolResult, ToolUse, Usage

__all__ = [
    "CHARS_PER_TOKEN",
    "NO_ID",
    "ErrorKind",
    "Ids",
    "Segment",
    "Turn",
    "Wire",
    "fragments",
    "json_bytes",
    "made_id",
    "output_tokens",
    "pieces",
]

CHARS_PER_TOKEN = 4

NO_ID = "\0"
"""As the id of a call: the provider leaves the field out."""

Ids: TypeAlias = Callable[[int, int], str | None]
"""The id of the i-th call of the n-th reply, both counted from 0; None leaves the field out."""

ErrorKind: TypeAlias = Literal[
    "bad_request",
    "key",
    "permission",
    "path",
    "model",
    "context",
    "too_large",
    "quota",
    "rate_limit",
    "server",
    "overloaded",
]
"""What a provider refuses a request for, in no provider's words."""


class Turn(msgspec.Struct, frozen=True):
    """One reply, complete."""

    number: int
    """Of the reply, from 0."""
    asked: Mapping[str, Any]
    """The body of the request."""
    blocks: tuple[Block, ...]
    stop_reason: StopReason
    usage: Usage | None
    """None: nothing is reported."""
    usd: str | None = None
    """What it cost, where the provider says so itself."""

    @property
    def model(self) -> str:
        return str(self.asked.get("model", ""))

    @property
    def cut(self) -> ToolUse | None:
        """The call in whose middle the reply broke off."""
        if self.stop_reason is not StopReason.LENGTH or not self.blocks:
            return None
        last = self.blocks[-1]
        return last if isinstance(last, ToolUse) and not is_object(last.arguments) else None

    def id(self, prefix: str, *parts: object, length: int = 24) -> str:
        """An id of this reply, the same in every run of the same script."""
        return made_id(prefix, self.number, *parts, length=length)


class Segment(msgspec.Struct, frozen=True):
    """A part of a prompt: a tool, a system text, a block of a message."""

    data: bytes
    """What counts for the cache."""
    mark: bool = False
    """The client wants the prompt cached up to here."""


class Wire(Protocol):
    """How one provider writes. Nothing here uses the codecs: what judges them was written on its own."""

    @property
    def name(self) -> str:
        """As in `remit.models.wires.WIRES`."""
        ...

    @property
    def path(self) -> str:
        """Where requests go."""
        ...

    @property
    def base_path(self) -> str:
        """What base URLs end in, as people write them."""
        ...

    def call_id(self, reply: int, call: int) -> str:
        """An id as this provider makes them up."""
        ...

    @property
    def ping(self) -> bytes:
        """What keeps a stream open and says nothing."""
        ...

    @property
    def paused(self) -> bytes | None:
        """The block that a paused turn holds; None where this provider never pauses."""
        ...

    def key(self, headers: Mapping[str, str]) -> str | None:
        """The key of a request."""
        ...

    def segments(self, body: Mapping[str, Any]) -> list[Segment]:
        """The prompt, in the order in which it is cached."""
        ...

    def refused(self, kind: ErrorKind, text: str | None = None) -> tuple[int, dict[str, Any]]:
        """Status and body of an error; without a text the usual one."""
        ...

    def error_event(self, kind: ErrorKind, text: str | None = None) -> bytes:
        """An error in the middle of a stream."""
        ...

    def whole(self, turn: Turn) -> dict[str, Any]:
        """The reply as one JSON value."""
        ...

    def events(self, turn: Turn) -> tuple[list[bytes], list[list[bytes]], list[bytes]]:
        """The reply as a stream: what opens it, the events of each block, what closes it."""
        ...


def is_object(text: str) -> bool:
    """Whether the arguments of a call are a whole JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return False


def output_tokens(blocks: Sequence[Block]) -> int:
    """The tokens of a reply, estimated."""
    return -(-sum(map(_chars, blocks)) // CHARS_PER_TOKEN)


def _chars(block: Block) -> int:
    match block:
        case Text(text):
            return len(text)
        case ToolUse(_, name, arguments):
            return len(name) + len(arguments)
        case Opaque(_, data) | Media(_, data):
            return len(data)
        case ToolResult():
            return 0  # no reply holds one


def made_id(prefix: str, *parts: object, length: int) -> str:
    """The prefix, and letters that depend on everything given."""
    seed = "/".join([prefix, *map(str, parts)])
    return prefix + hashlib.sha256(seed.encode()).hexdigest()[:length]


def pieces(text: str, most: int = 5) -> list[str]:
    """A text as it comes: in a few pieces."""
    length = max(1, -(-len(text) // most))
    return [text[start : start + length] for start in range(0, len(text), length)]


def fragments(arguments: str) -> list[str]:
    """The text of a call as it comes: first nothing, then in pieces."""
    return ["", *pieces(arguments)]


def json_bytes(value: Any) -> bytes:
    """JSON as it is sent."""
    return msgspec.json.encode(value)
