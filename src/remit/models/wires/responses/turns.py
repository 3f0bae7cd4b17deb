"""The assistant's turns as items of the input: texts, calls and opaque items, in the order in which they came.

Two rules of the provider are kept here. A reasoning item goes out only where the item that followed it does;
where one is left out, the items behind it go out without their ids, which would ask for it. And a call that only
a client of the provider's own kind could have answered goes out only with its answer.

Reasoning is not bound to the conversation before it, so that an elision leaves it where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from remit.messages import Block, Message, Opaque, Text, ToolUse
from remit.models.wires.responses.items import (
    BESIDE,
    CONTENT,
    CUSTOM,
    ELSEWHERE,
    FUNCTION,
    MESSAGE,
    OF,
    Fields,
    encoded,
    fields_of,
    input_text,
    read,
    rest_of,
    string_of,
)
from remit.models.wires.toolbox import Toolbox

__all__ = ["ItemIds", "Turn", "Way", "asks_client", "is_strippable"]

ItemIds: TypeAlias = Literal["given", "none", "all"]
"""Which ids of items go out: those that the server gave, none, or one for every item of the assistant's."""

_PREFIXES: Final[Mapping[str, str]] = {
    MESSAGE: "msg_",
    FUNCTION: "fc_",
    CUSTOM: "ctc_",
    "reasoning": "rs_",
}
_ID_DIGITS: Final = 32

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
_NAMED_BY_ID = frozenset({"item_reference", "mcp_approval_request"})
"""Items whose id is what they say."""
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


def is_strippable(fields: Fields) -> bool:
    """Whether the item holds what only its provider can read, and might refuse."""
    kind = string_of(fields, "type")
    return bool(kind) and kind not in _STANDS and not kind.startswith("remit.")


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


class Turn:
    """A message of the assistant."""

    def __init__(
        self, way: Way, toolbox: Toolbox, index: int, message: Message, *, issued: str = ""
    ) -> None:
        """`issued` is a text from which ids follow in a reply that is just given: all of it goes out then."""
        self._way = way
        self._toolbox = toolbox
        self._seed = issued or str(index)
        self._issued = bool(issued)
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
            case Opaque():
                fields = read(block, self._way.issuer)
                if fields is None:
                    return  # another provider's, or no item
                kind = string_of(fields, "type")
                if kind.startswith("remit."):
                    if kind == BESIDE:
                        self._merge(fields)
                    return
                item = _Item(kind)
                item.fields, item.data = fields, block.data
            case _:
                return
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
            if item.fields is not None and not self._issued:
                kept = not (self._bare and is_strippable(item.fields))
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
        rest = rest_of(item.beside)
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
        rest = self._with_id(rest_of(item.beside), MESSAGE, place, ids)
        if "id" not in rest:
            rest.pop("status", None)  # it belongs to an item that the server knows
        if item.beside is not None and item.beside.get(CONTENT) == "text":
            said = {"role": "assistant", "content": "".join(item.texts), **rest}
            return encoded({"type": MESSAGE, **said} if "id" in rest else said)
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
        if item.kind in _NAMED_BY_ID:
            return item.data
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
        digest = hashlib.sha256(f"{self._seed}:{place}".encode()).hexdigest()
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


def _call_of(fields: Fields) -> str:
    return (
        string_of(fields, "approval_request_id")
        or string_of(fields, "call_id")
        or string_of(fields, "id")
    )
