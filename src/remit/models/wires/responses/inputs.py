"""One message as items of the input: what a `Piece` is made of.

    the user's        its results as outputs of calls, then what was said
    the assistant's   texts, calls and opaque items in the order in which they came

Two rules of the provider are kept here. A reasoning item goes out only where the item that followed it does;
where one is left out, the items behind it go out without their ids, which would ask for it. And a call
that only a client of the provider's own kind could have answered goes out only with its answer.

Reasoning is not bound to the conversation before it, so that an elision leaves it where it is.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from remit.artifacts import plain_type
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.wires.pieces import Piece
from remit.models.wires.responses.items import (
    ANSWERED,
    BESIDE,
    CALL_ID,
    CONTENT,
    CUSTOM,
    ELSEWHERE,
    FUNCTION,
    MESSAGE,
    OF,
    PART,
    Fields,
    decoded,
    encoded,
    fields_of,
    input_text,
    string_of,
)
from remit.models.wires.toolbox import Toolbox

__all__ = ["ItemIds", "Way", "data_url", "media_part", "pieced", "stripped"]

ItemIds: TypeAlias = Literal["given", "none", "all"]
"""Which ids of items go out: those that the server gave, none, or one for every item of the assistant's."""

_PREFIXES: Final[Mapping[str, str]] = {
    MESSAGE: "msg_",
    FUNCTION: "fc_",
    CUSTOM: "ctc_",
    "reasoning": "rs_",
}
_ID_DIGITS: Final = 32

_INPUT_PARTS = frozenset({"input_text", "input_image", "input_file", "input_audio"})
"""What stands inside of a message, not beside it."""

_ANSWERS = frozenset(
    {
        "computer_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
        "tool_search_output",
        "mcp_approval_response",
    }
)
_ASKS_CLIENT = frozenset(
    {"computer_call", "local_shell_call", "apply_patch_call", "mcp_approval_request"}
)
_STANDS = frozenset({"additional_tools", "tool_search_call", "tool_search_output", "message"})
"""Opaque items of the assistant's side that hold nothing a provider could refuse to decrypt."""


class Way(msgspec.Struct, frozen=True):
    """How messages go out."""

    issuer: str
    item_ids: ItemIds = "given"
    bare: int = 0
    """In how many leading messages nothing goes out that only the provider can read."""


def asks_client(fields: Fields) -> bool:
    """Whether the item waits for an answer of the client, and not of remit."""
    kind = string_of(fields, "type")
    if kind == "tool_search_call":
        return fields.get("execution") == "client"
    if kind == "shell_call":
        environment = fields_of(fields.get("environment"))
        return environment is None or environment.get("type") == "local"
    return kind in _ASKS_CLIENT


def stripped(block: Block, issuer: str) -> bool:
    """Whether the block does not go out any more once its message is bare."""
    if not isinstance(block, Opaque) or block.issuer != issuer:
        return False
    fields = _read(block)
    return fields is not None and _is_strippable(fields)


def _is_strippable(fields: Fields) -> bool:
    kind = string_of(fields, "type")
    return not (kind in _STANDS or kind.startswith("remit.") or not kind)


def _read(block: Opaque) -> Fields | None:
    """The fields of an item. None for what is no item: whoever made it, it must not go out."""
    try:
        return fields_of(decoded(block.data))
    except ValueError:
        return None


def pieced(
    way: Way,
    toolbox: Toolbox,
    index: int,
    message: Message,
    before: Message | None,
    *,
    held: bool = False,
) -> Piece:
    """The items of a message. `before` is the message before it, whose calls it answers.

    `held`: the server has those calls, under its own ids.
    """
    if message.role == "assistant":
        items = _Turn(way, toolbox, index, message).items()
    else:
        items = _said(way, message, _answers(way, index, before, held=held))
    return Piece(b",".join(items))


# The user's side


class _Answer(msgspec.Struct, frozen=True):
    """What the output of a call has to say beside the output."""

    call_id: str
    kind: str = f"{FUNCTION}_output"
    caller: Any = None


def _answers(way: Way, index: int, before: Message | None, *, held: bool) -> dict[str, _Answer]:
    """By the id of a call, for those whose output is not a plain one."""
    answers: dict[str, _Answer] = {}
    use: ToolUse | None = None
    for block in () if before is None else before.content:
        if isinstance(block, ToolUse):
            use = block
        elif use is not None and isinstance(block, Opaque) and block.issuer == way.issuer:
            fields = _read(block)
            if fields is None or fields.get("type") != BESIDE:
                continue
            custom = fields.get(OF) == CUSTOM or fields.get(ANSWERED) == f"{CUSTOM}_output"
            caller = fields.get("caller") if index > way.bare else None
            call_id = (held and string_of(fields, CALL_ID)) or use.id
            if custom or caller is not None or call_id != use.id:
                kind = f"{CUSTOM if custom else FUNCTION}_output"
                answers[use.id] = _Answer(call_id, kind, caller)
            use = None
    return answers


def _said(way: Way, message: Message, answers: Mapping[str, _Answer]) -> Iterator[bytes]:
    results = message.tool_results
    written = _written_parts(way, message)
    for place, result in enumerate(results):
        answer = answers.get(result.tool_use_id) or _Answer(result.tool_use_id)
        output: dict[str, Any] = {
            "type": answer.kind,
            "call_id": answer.call_id,
            "output": _output(result, written.get(place, frozenset())),
        }
        if answer.caller is not None:
            output["caller"] = answer.caller
        yield encoded(output)
    parts: list[Any] = []
    for block in message.content[len(results) :]:
        match block:
            case Text(text):
                parts.append({"type": "input_text", "text": text})
            case Media():
                parts.append(media_part(block))
            case Opaque(issuer) if issuer == way.issuer:
                fields = _read(block)
                kind = "" if fields is None else string_of(fields, "type")
                if fields is None or kind.startswith("remit."):
                    continue
                if kind in _INPUT_PARTS:
                    parts.append(msgspec.Raw(block.data))
                else:
                    yield from _user(parts)
                    parts = []
                    yield block.data
            case _:
                pass  # another provider's
    yield from _user(parts)


def _user(parts: Sequence[Any]) -> Iterator[bytes]:
    """What was said in one go."""
    if not parts:
        return
    only = fields_of(parts[0]) if len(parts) == 1 else None
    plain = only is not None and only["type"] == "input_text"
    yield encoded({"role": "user", "content": only["text"] if only and plain else parts})


def _written_parts(way: Way, message: Message) -> dict[int, frozenset[int]]:
    """By the place of a result, which of its texts are parts as the wire wrote them."""
    found: dict[int, frozenset[int]] = {}
    for block in message.content:
        if isinstance(block, Opaque) and block.issuer == way.issuer:
            fields = _read(block)
            if fields is not None and fields.get("type") == PART:
                place, at = fields.get("result"), fields.get("part")
                if isinstance(place, int) and isinstance(at, int):
                    found[place] = found.get(place, frozenset()) | {at}
    return found


def _output(result: ToolResult, written: frozenset[int]) -> Any:
    """A text where it is one, else a list of parts. What a tool returned is never read."""
    content = result.content
    # The wire has no flag for an error, so that the text has to say it.
    flag = "Error: " if result.is_error and not result.text.startswith("Error:") else ""
    if len(content) == 1 and not written and isinstance(content[0], Text):
        return flag + content[0].text
    parts = [_output_part(part, as_written=at in written) for at, part in enumerate(content)]
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


# The assistant's side


class _Item:
    """One item of a turn before it is written."""

    __slots__ = ("beside", "data", "fields", "kind", "texts", "use")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.use: ToolUse | None = None
        self.beside: Fields | None = None
        self.fields: Fields | None = None
        """Of an opaque item."""
        self.data = b""


class _Turn:
    """A message of the assistant."""

    def __init__(self, way: Way, toolbox: Toolbox, index: int, message: Message) -> None:
        self._way = way
        self._toolbox = toolbox
        self._index = index
        self._bare = index < way.bare
        self._found: list[_Item] = []
        for block in message.content:
            self._take(block)

    def items(self) -> Iterator[bytes]:
        """The items that go out, in order."""
        alone = self._bare
        """Whether the reasoning that the server has for the next item does not go out."""
        for place, (item, kept) in enumerate(zip(self._found, self._going_out(), strict=True)):
            if item.kind == "reasoning":
                alone = not kept
            if kept:
                ids = self._way.item_ids
                yield self._written(item, place, "none" if alone and ids == "given" else ids)

    def _take(self, block: Block) -> None:
        match block:
            case Text(text):
                item = _Item(MESSAGE)
                item.texts.append(text)
            case ToolUse():
                item = _Item(FUNCTION)
                item.use = block
            case Opaque(issuer, data) if issuer == self._way.issuer:
                fields = _read(block)
                kind = "" if fields is None else string_of(fields, "type")
                if fields is None or kind.startswith("remit."):
                    if fields is not None and kind == BESIDE:
                        self._merge(fields)
                    return
                item = _Item(kind)
                item.fields, item.data = fields, data
            case _:
                return  # another provider's
        self._found.append(item)

    def _merge(self, fields: Fields) -> None:
        """Put what stands beside a block to the item before it; to nothing where that is another."""
        last = self._found[-1] if self._found else None
        of = string_of(fields, OF)
        if last is None or last.beside is not None:
            return
        if of == MESSAGE and last.texts:
            count = max(sum(1 for part in _shape(fields) if _text_name(part)), 1)
            first = len(self._found) - 1
            while (
                len(self._found) - first < count
                and first > 0
                and self._found[first - 1].texts
                and self._found[first - 1].beside is None
            ):
                first -= 1
            last.texts = [text for item in self._found[first:] for text in item.texts]
            self._found[first:] = [last]
            last.beside = fields
        elif last.use is not None and of in {FUNCTION, CUSTOM, ELSEWHERE}:
            last.kind, last.beside = of, fields

    def _going_out(self) -> list[bool]:
        answered = {
            _call_of(item.fields)
            for item in self._found
            if item.fields is not None and item.kind in _ANSWERS
        }
        goes_out: list[bool] = []
        next_goes = False  # nothing follows the last item
        for item in reversed(self._found):
            kept = item.kind != ELSEWHERE
            if item.fields is not None:
                kept = not (self._bare and _is_strippable(item.fields))
                if asks_client(item.fields):
                    kept = kept and _call_of(item.fields) in answered
                elif item.kind == "reasoning":
                    kept = kept and next_goes and self._readable(item.fields)
            goes_out.append(kept)
            next_goes = kept
        goes_out.reverse()
        return goes_out

    def _readable(self, fields: Fields) -> bool:
        """Whether reasoning can be found by its id, or holds all that it is."""
        return self._way.item_ids == "given" or bool(fields.get("encrypted_content"))

    def _written(self, item: _Item, place: int, ids: ItemIds) -> bytes:
        if item.fields is not None:
            return self._opaque(item, place)
        if item.use is None:
            return self._message(item, place, ids)
        rest = _rest(item.beside)
        if self._bare:
            rest.pop("caller", None)  # a program that is not there any more
        use = item.use
        name = self._toolbox.wire_name(use.name)
        call: dict[str, Any] = {"type": item.kind, "call_id": use.id, "name": name}
        if item.kind == CUSTOM:
            call["input"] = input_text(use.arguments)
        else:
            call["arguments"] = self._toolbox.wire_arguments(use.name, use.arguments)
        return encoded({**call, **self._with_id(rest, item.kind, place, ids)})

    def _message(self, item: _Item, place: int, ids: ItemIds) -> bytes:
        if item.beside is None and ids != "all":
            return encoded({"role": "assistant", "content": "".join(item.texts)})
        rest = self._with_id(_rest(item.beside), MESSAGE, place, ids)
        if "id" not in rest:
            rest.pop("status", None)  # it belongs to an item that the server knows
        left = iter(item.texts)
        content: list[Any] = []
        for part in _shape(item.beside):
            name = _text_name(part)
            text = next(left, None) if name else None
            if name is None:
                content.append(part)
            elif text is not None:
                content.append({**part, name: text})
        content += [{"type": "output_text", "annotations": [], "text": text} for text in left]
        return encoded({"type": MESSAGE, "role": "assistant", "content": content, **rest})

    def _opaque(self, item: _Item, place: int) -> bytes:
        """An item of the provider's: byte for byte, but for an id that this endpoint does not take."""
        fields = item.fields or {}
        ids = self._way.item_ids
        if (ids == "none" and "id" in fields) or (ids == "all" and not fields.get("id")):
            raw = msgspec.json.decode(item.data, type=dict[str, msgspec.Raw])
            raw.pop("id", None)
            if ids == "all" and item.kind in _PREFIXES:
                raw["id"] = msgspec.Raw(encoded(self._minted(item.kind, place)))
            return encoded(raw)
        return item.data

    def _with_id(self, rest: dict[str, Any], kind: str, place: int, ids: ItemIds) -> dict[str, Any]:
        if ids == "none":
            rest.pop("id", None)
        elif ids == "all" and not rest.get("id"):
            rest["id"] = self._minted(kind, place)
        return rest

    def _minted(self, kind: str, place: int) -> str:
        digest = hashlib.sha256(f"{self._index}:{place}".encode()).hexdigest()
        return _PREFIXES[kind] + digest[:_ID_DIGITS]


_PLAIN_SHAPE: Final[list[Any]] = [{"type": "output_text", "annotations": []}]


def _shape(fields: Fields | None) -> list[Any]:
    """The parts of a message, without their texts."""
    shape = None if fields is None else fields.get(CONTENT)
    return cast("list[Any]", shape) if isinstance(shape, list) else _PLAIN_SHAPE


def _text_name(part: object) -> str | None:
    """The field that holds the text of a part; None where it holds none."""
    fields = fields_of(part)
    if fields is None:
        return None
    return {"output_text": "text", "refusal": "refusal"}.get(string_of(fields, "type"))


def _rest(fields: Fields | None) -> dict[str, Any]:
    if fields is None:
        return {}
    return {
        name: value
        for name, value in fields.items()
        if name != "type" and not name.startswith("remit.")
    }


def _call_of(fields: Fields) -> str:
    return (
        string_of(fields, "approval_request_id")
        or string_of(fields, "call_id")
        or string_of(fields, "id")
    )
