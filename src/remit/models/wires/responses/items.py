"""Items of a reply as blocks, and what stands beside a block.

A `message` becomes `Text`, a call `ToolUse`; any other item is an `Opaque`, byte for byte. What a message or a
call says beyond text, name and arguments stands in an `Opaque` behind it:

    {"type": "remit.beside", "remit.of": "message", "remit.content": [...], "id": ..., "phase": ...}
    {"type": "remit.beside", "remit.of": "function_call", "id": ..., "namespace": ..., "caller": ...}

`remit.content` says how the texts before it make up the content of their message, where that is more than one
plain text. A call that only the server has is `"remit.of": "elsewhere"`. Behind the last block of a reply that
the server keeps stands `{"type": "remit.message", "response_id": ...}`. In turns of the user that were parsed, the
same stands behind what was said (`"user"`) and behind the results (`"output"`, with the place of its result).

Text that came in a custom call is no JSON; such a call is a `ToolUse` whose arguments are `{"input": text}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import msgspec

from remit.errors import ModelProtocolError
from remit.messages import Block, Opaque, Text, ToolUse
from remit.transcript import is_blank

__all__ = [
    "ANSWERED",
    "BESIDE",
    "CALL_ID",
    "CONTENT",
    "CUSTOM",
    "ELSEWHERE",
    "FUNCTION",
    "MESSAGE",
    "NO_OUTPUT",
    "OF",
    "OUTPUT",
    "PARTS",
    "RESULT",
    "START",
    "USER",
    "WHOLE",
    "Fields",
    "Own",
    "beside",
    "blocks_of",
    "decoded",
    "encoded",
    "fields_of",
    "input_text",
    "parts_of",
    "read",
    "rest_of",
    "string_of",
    "well_formed",
]

Fields: TypeAlias = "Mapping[str, Any]"
Own: TypeAlias = "Callable[[str, str], tuple[str, str]]"
"""From a name and arguments as the model gave them to the tool's own."""

BESIDE: Final = "remit.beside"
WHOLE: Final = "remit.message"
START: Final = "remit.start"
"""Stands in the user's turn where a history begins with the assistant."""
OF: Final = "remit.of"
CONTENT: Final = "remit.content"
RESULT: Final = "remit.result"
"""Which result of its message is meant, by its place."""
PARTS: Final = "remit.parts"
"""Which texts of a result are parts as the wire wrote them, by their places."""
CALL_ID: Final = "remit.call_id"
"""The id under which the provider keeps a call, where it keeps the conversation."""

MESSAGE: Final = "message"
FUNCTION: Final = "function_call"
CUSTOM: Final = "custom_tool_call"
ELSEWHERE: Final = "elsewhere"
OUTPUT: Final = "output"
USER: Final = "user"
NO_OUTPUT: Final = "(no output)"
"""Stands for an output without content, which a transcript does not hold."""
ANSWERED: Final = "remit.answered"
"""The type of the output that answers a call of which only that is known."""

_SAID = {
    MESSAGE: frozenset({"type", "role", "content"}),
    FUNCTION: frozenset({"type", "call_id", "name", "arguments"}),
    CUSTOM: frozenset({"type", "call_id", "name", "input"}),
}
"""What of an item its blocks hold."""
_PLAIN_CONTENT: Final[list[Any]] = [{"type": "output_text", "annotations": []}]
_TEXTS = {"output_text": "text", "refusal": "refusal"}
"""The parts of a message that hold text, and where."""
_NOT_KEPT = frozenset({"logprobs"})
_NOTHING_MORE: Fields = MappingProxyType({})

_encoder = msgspec.json.Encoder()
encoded = _encoder.encode


_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""Pairs of halves, a half alone, and any other escape."""


def well_formed(data: bytes) -> bytes:
    """JSON in which halves of a character that stand alone are replaced, as in any text of a transcript.

    Servers that cut a text in the middle of a character write them, and no request could hold them.
    """
    return _ESCAPES.sub(lambda found: rb"\ufffd" if found[1] else found[0], data)


def decoded(data: bytes | msgspec.Raw | str) -> Any:
    """A JSON value. Errors: `ValueError`, whatever is wrong with it."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def fields_of(value: object) -> Fields | None:
    """An object of JSON; None for anything else."""
    return cast("Fields", value) if isinstance(value, dict) else None


def string_of(fields: Fields, name: str) -> str:
    """A field that is a text; empty where it is none."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def read(block: Block, issuer: str) -> Fields | None:
    """The fields of an opaque block of this issuer.

    None for another's, and for what is no item: whoever made it, it must not go out.
    """
    if not isinstance(block, Opaque) or block.issuer != issuer:
        return None
    try:
        return fields_of(decoded(block.data))
    except ValueError:
        return None


def rest_of(fields: Fields | None) -> dict[str, Any]:
    """What stands beside a block, as fields of its item."""
    return {
        name: value
        for name, value in (fields or {}).items()
        if name != "type" and not name.startswith("remit.")
    }


def parts_of(content: object) -> list[Fields]:
    """The objects of a list; nothing of what is no list."""
    if not isinstance(content, list):
        return []
    found = [fields_of(part) for part in cast("list[object]", content)]
    return [part for part in found if part is not None]


def beside(
    issuer: str, of: str, fields: Fields, more: Fields = _NOTHING_MORE
) -> tuple[Opaque, ...]:
    """What an item says beyond its blocks; nothing where it says nothing more."""
    said = _SAID[of]
    rest = {name: value for name, value in fields.items() if name not in said and value is not None}
    if not rest and not more and of != CUSTOM:
        return ()
    return (Opaque(issuer, encoded({"type": BESIDE, OF: of, **more, **rest})),)


def blocks_of(
    issuer: str, raw: bytes, fields: Fields, own: Own, *, keep_call_id: bool
) -> tuple[Block, ...]:
    """An item of a reply as blocks. `raw` is the item as it came, `fields` the same, read.

    `keep_call_id`: the provider's own id of a call stands beside it, for a server that keeps the conversation.
    Errors: `ModelProtocolError` for a call without a name.
    """
    match fields.get("type"):
        case "message":
            return _message(issuer, raw, fields)
        case "function_call" | "custom_tool_call" as kind:
            return _call(issuer, kind, raw, fields, own, keep_call_id=keep_call_id)
        case _:
            return (Opaque(issuer, raw),)


def _message(issuer: str, raw: bytes, fields: Fields) -> tuple[Block, ...]:
    content: Any = fields.get("content")
    if isinstance(content, str):
        if is_blank(Text(content)):
            return (Opaque(issuer, raw),)
        return (Text(content), *beside(issuer, MESSAGE, fields, {CONTENT: "text"}))
    texts: list[Block] = []
    shape: list[Any] = []
    for part in cast("Sequence[object]", content) if isinstance(content, list) else ():
        kept = fields_of(part)
        name = None if kept is None else _TEXTS.get(string_of(kept, "type"))
        if kept is None or name is None:
            shape.append(part)
            continue
        text = Text(string_of(kept, name))
        if not is_blank(text):
            texts.append(text)
            shape.append({k: v for k, v in kept.items() if k != name and k not in _NOT_KEPT})
    if not texts:
        return (Opaque(issuer, raw),)  # what stands before it may need it there
    if shape == _PLAIN_CONTENT:
        return (*texts, *beside(issuer, MESSAGE, fields))
    return (*texts, *beside(issuer, MESSAGE, fields, {CONTENT: shape}))


def _call(
    issuer: str, kind: str, raw: bytes, fields: Fields, own: Own, *, keep_call_id: bool
) -> tuple[Block, ...]:
    name, call_id = string_of(fields, "name"), string_of(fields, "call_id")
    if not name:
        raise ModelProtocolError("the reply holds a call without a name")
    if kind == CUSTOM:
        arguments = encoded({"input": string_of(fields, "input")}).decode()
    else:
        given = fields.get("arguments")
        # A text by the reference; some servers write the object itself.
        arguments = given if isinstance(given, str) else _as_written(raw, given)
    use = ToolUse(call_id, *own(name, arguments))
    more = {CALL_ID: call_id} if keep_call_id and call_id else _NOTHING_MORE
    return (use, *beside(issuer, kind, fields, more))


class _Written(msgspec.Struct):
    arguments: msgspec.Raw


def _as_written(raw: bytes, given: object) -> str:
    """Arguments that are no text, as they stand in the item."""
    if given is None:
        return ""
    return bytes(msgspec.json.decode(raw, type=_Written).arguments).decode()


def input_text(arguments: str) -> str:
    """The text of a custom call, from the arguments of its `ToolUse`."""
    try:
        fields = fields_of(decoded(arguments))
    except ValueError:
        return arguments
    text = None if fields is None else fields.get("input")
    return text if isinstance(text, str) else arguments
