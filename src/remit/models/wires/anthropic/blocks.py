"""Blocks of content, there and back.

What remit has words for becomes `Text`, `ToolUse`, `ToolResult` or `Media`. What a block says beyond that is
kept in an `Opaque` behind it, `{"type": "remit.beside", ...}`, and merged into it when it goes out again; any
other block is an `Opaque` itself, byte for byte. What a reply says as a whole is kept behind its last block,
`{"type": "remit.message", ...}`. Two more stand in turns of the user that were parsed from a
request: `{"type": "remit.result", ...}`, which says what of a result was no text and no media, and whole
messages of another role than user and assistant.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from remit.messages import Block, Media, Opaque, Text, ToolUse
from remit.models.wires.anthropic.foreign import is_table

__all__ = [
    "BESIDE",
    "BINDING",
    "MESSAGE",
    "NO_OUTPUT",
    "RESULT",
    "Fields",
    "beside",
    "fields_of",
    "is_object",
    "kind_of",
    "media_block",
    "media_of",
    "object_of",
    "opaque",
    "read",
    "reply_block",
    "text_of",
    "written",
]

Fields: TypeAlias = "dict[str, msgspec.Raw]"

BESIDE: Final = "remit.beside"
MESSAGE: Final = "remit.message"
RESULT: Final = "remit.result"
BINDING: Final = frozenset({"thinking", "redacted_thinking"})
"""Blocks that the provider checks against everything that stands before them."""

NO_OUTPUT: Final = "(no output)"
"""Stands for a result without content, which a transcript does not hold."""

_AS_WRITTEN = "arguments_as_written"

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"
_PLAIN = "text/plain"

_TEXT = frozenset({"type", "text"})
_CALL = frozenset({"type", "id", "name", "input"})
_NOTHING: tuple[bytes, ...] = (b"null", b"[]")
_DIRECT = {"type": "direct"}
"""The caller of a call that the model itself made, which is so without a word."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode

Own: TypeAlias = "Callable[[str, str], tuple[str, str]]"
"""From a name and arguments as the model gave them to the tool's own."""


def fields_of(data: bytes | msgspec.Raw) -> Fields | None:
    """The fields of a JSON object, each as it is written; None for anything else."""
    try:
        return _fields.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def text_of(fields: Mapping[str, msgspec.Raw], name: str) -> str | None:
    """A field that is a string; None where it is none."""
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return _string.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read(raw: msgspec.Raw | None) -> Any:
    """A field, whatever it is; None where it is absent or cannot be read."""
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def kind_of(data: bytes) -> tuple[str, Fields] | None:
    """The type of a block and its fields; the type of a whole message is its role. None for no block.

    Whoever made it: what would not be JSON in a request must not go out.
    """
    fields = fields_of(data)
    if fields is None:
        return None
    kind = text_of(fields, "type") or text_of(fields, "role")
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return None if kind is None else (kind, fields)


def opaque(issuer: str, fields: Mapping[str, Any]) -> Opaque:
    """A block of the provider's, made of these fields."""
    return Opaque(issuer, _encode(fields))


def beside(issuer: str, fields: Fields, known: frozenset[str]) -> tuple[Opaque, ...]:
    """What a block says beyond what is known; nothing where it says nothing more."""
    extra = {
        name: raw
        for name, raw in fields.items()
        if name not in known
        and name != "cache_control"
        and bytes(raw).strip() not in _NOTHING
        and not (name == "caller" and read(raw) == _DIRECT)
    }
    return (opaque(issuer, {"type": BESIDE, **extra}),) if extra else ()


def reply_block(issuer: str, data: bytes, fields: Fields, own: Own) -> tuple[Block, ...]:
    """A block of the assistant's turn, with what stands beside it. Blank text is nothing."""
    kind = text_of(fields, "type")
    if kind == "text" and (text := text_of(fields, "text")) is not None:
        return written(issuer, text, fields)
    if kind == "tool_use" and "input" in fields:
        name = text_of(fields, "name") or ""
        arguments = bytes(fields["input"]).decode().strip()
        use = ToolUse(text_of(fields, "id") or "", *own(name, arguments))
        return (use, *beside(issuer, fields, _CALL))
    return (Opaque(issuer, data),)


def written(issuer: str, text: str, fields: Fields) -> tuple[Block, ...]:
    """A block of text, with what stands beside it."""
    return (Text(text), *beside(issuer, fields, _TEXT)) if text.strip() else ()


def is_object(text: str) -> bool:
    """Whether the text is a JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False


def object_of(arguments: str) -> bytes:
    """Arguments as the object that the wire wants: as they stand where they are one.

    What the model wrote is not mended: a text that is no object goes back inside of one.
    """
    return arguments.encode() if is_object(arguments) else _encode({_AS_WRITTEN: arguments})


def media_block(media: Media) -> dict[str, Any]:
    """An image or a document; for anything else a text that says what it was."""
    if media.media_type in _IMAGES:
        return {"type": "image", "source": _base64(media)}
    title = {} if media.name is None else {"title": media.name}
    if media.media_type == _PDF:
        return {"type": "document", "source": _base64(media), **title}
    if media.media_type == _PLAIN:
        text = media.data.decode(errors="replace")
        source = {"type": "text", "media_type": _PLAIN, "data": text}
        return {"type": "document", "source": source, **title}
    named = "" if media.name is None else f" {media.name!r}"
    text = f"[{media.media_type}{named}, {len(media.data):,} bytes: it cannot be shown here]"
    return {"type": "text", "text": text}


def _base64(media: Media) -> dict[str, Any]:
    text = base64.b64encode(media.data).decode()
    return {"type": "base64", "media_type": media.media_type, "data": text}


def media_of(block: Mapping[str, Any]) -> Media | None:
    """The way back; None for a block that would not come out the same."""
    source, name = block.get("source"), block.get("title")
    if not is_table(source):
        return None
    media_type, data = source.get("media_type"), source.get("data")
    if not isinstance(media_type, str) or not isinstance(data, str):
        return None
    try:
        content = data.encode() if source.get("type") == "text" else base64.b64decode(data)
    except (binascii.Error, ValueError):
        return None
    media = Media(media_type, content, name if isinstance(name, str) else None)
    made = media_block(media)
    return media if content and all(block.get(key) == made[key] for key in made) else None
