"""The user's turns as items of the input: results as outputs of calls, then what was said.

Nothing in a result is read: it goes out as text, or as the media that it holds.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from remit.artifacts import plain_type
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.wires.responses.items import (
    ANSWERED,
    BESIDE,
    CALL_ID,
    CUSTOM,
    FUNCTION,
    NO_OUTPUT,
    OF,
    OUTPUT,
    PARTS,
    RESULT,
    USER,
    Fields,
    decoded,
    encoded,
    fields_of,
    read,
    rest_of,
    string_of,
)

__all__ = ["data_url", "media_part", "said"]

_NOTHING: Final[Fields] = MappingProxyType({})
_INPUT_PARTS = frozenset({"input_text", "input_image", "input_file", "input_audio"})
"""What stands inside of a message, not beside it."""


class _Answer(msgspec.Struct, frozen=True):
    """What the output of a call has to say beside the output."""

    call_id: str
    kind: str = f"{FUNCTION}_output"
    caller: Any = None


def said(
    issuer: str, message: Message, before: Message | None, *, held: bool, with_caller: bool
) -> Iterator[bytes]:
    """The items of a turn. `before` is the turn before it, whose calls it answers.

    `held`: the server has those calls, under its own ids. `with_caller`: outputs name who called.
    """
    results = message.tool_results
    answers = _answers(issuer, before, held=held) if results and before is not None else {}
    besides = _beside_results(issuer, message) if len(results) < len(message.content) else {}
    for place, result in enumerate(results):
        answer = answers.get(result.tool_use_id) or _Answer(result.tool_use_id)
        beside = besides.get(place, _NOTHING)
        output: dict[str, Any] = {
            "type": answer.kind,
            "call_id": answer.call_id,
            "output": _output(result, beside.get(PARTS)),
        }
        if answer.caller is not None and with_caller:
            output["caller"] = answer.caller
        rest = rest_of(beside)
        if result.text != NO_OUTPUT:
            rest.pop("output", None)
        yield encoded({**output, **rest})
    yield from _spoken(issuer, message.content[len(results) :])


def _answers(issuer: str, before: Message, *, held: bool) -> dict[str, _Answer]:
    """By the id of a call, for those whose output is not a plain one."""
    answers: dict[str, _Answer] = {}
    use: ToolUse | None = None
    for block in before.content:
        if isinstance(block, ToolUse):
            use = block
            continue
        fields = read(block, issuer) if use is not None else None
        if use is not None and fields is not None and fields.get("type") == BESIDE:
            custom = fields.get(OF) == CUSTOM or fields.get(ANSWERED) == f"{CUSTOM}_output"
            call_id = (held and string_of(fields, CALL_ID)) or use.id
            kind = f"{CUSTOM if custom else FUNCTION}_output"
            answers[use.id] = _Answer(call_id, kind, fields.get("caller"))
        use = None
    return answers


def _spoken(issuer: str, content: Sequence[Block]) -> Iterator[bytes]:
    parts: list[Any] = []
    for block in content:
        if isinstance(block, Text):
            parts.append({"type": "input_text", "text": block.text})
        elif isinstance(block, Media):
            parts.append(media_part(block))
        elif isinstance(block, Opaque) and (fields := read(block, issuer)) is not None:
            kind = string_of(fields, "type")
            if kind in _INPUT_PARTS:
                parts.append(msgspec.Raw(block.data))
            elif kind == BESIDE and fields.get(OF) == USER:
                yield from _user(parts, rest_of(fields))
                parts = []
            elif not kind.startswith("remit."):
                yield from _user(parts, _NOTHING)
                parts = []
                yield block.data
    yield from _user(parts, _NOTHING)


def _user(parts: Sequence[Any], rest: Fields) -> Iterator[bytes]:
    """What was said in one go."""
    if not parts:
        return
    only = fields_of(parts[0]) if len(parts) == 1 else None
    plain = only is not None and only["type"] == "input_text"
    yield encoded({"role": "user", "content": only["text"] if only and plain else parts, **rest})


def _beside_results(issuer: str, message: Message) -> dict[int, Fields]:
    """By the place of a result, what of it has no neutral form."""
    found: dict[int, Fields] = {}
    for block in message.content:
        fields = read(block, issuer)
        if fields is not None and fields.get(OF) == OUTPUT:
            place = fields.get(RESULT)
            if isinstance(place, int):
                found[place] = fields
    return found


def _output(result: ToolResult, written: object) -> Any:
    """A text where it is one, else a list of parts. What a tool returned is never read.

    `written` are the places of parts that came in as the wire wrote them.
    """
    content = result.content
    # The wire has no flag for an error, so that the text has to say it.
    flag = "Error: " if result.is_error and not result.text.startswith("Error:") else ""
    if len(content) == 1 and not written and isinstance(content[0], Text):
        return flag + content[0].text
    places = cast("list[object]", written) if isinstance(written, list) else []
    parts = [_output_part(part, as_written=at in places) for at, part in enumerate(content)]
    return [{"type": "input_text", "text": flag.rstrip()}, *parts] if flag else parts


def _output_part(part: Text | Media, *, as_written: bool) -> Any:
    if isinstance(part, Media):
        return media_part(part)
    if as_written:
        try:
            fields = fields_of(decoded(part.text))
        except ValueError:  # a note stands in its place by now
            fields = None
        if fields is not None and string_of(fields, "type") in _INPUT_PARTS:
            return msgspec.Raw(part.text.encode())
    return {"type": "input_text", "text": part.text}


def data_url(media: Media) -> str:
    """Media as a URL that holds them."""
    return f"data:{media.media_type};base64,{base64.b64encode(media.data).decode()}"


def media_part(media: Media) -> dict[str, Any]:
    """An image, or a file of any other kind."""
    kind = plain_type(media.media_type)
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": data_url(media), "detail": "auto"}
    ending = kind.rpartition("/")[2]
    name = media.name or f"file.{ending if ending.isalnum() else 'bin'}"
    return {"type": "input_file", "filename": name, "file_data": data_url(media)}
