"""A request body, read back into values.

What remit has no words for comes back as `Opaque` blocks of this issuer and in `Settings.extra`, so that encoding
gives the same request again; cache markers are the encoder's own and are left out. What is in another order than
a transcript holds it (results before the rest of a turn, in call order) is put into it: the provider merges and
matches by id, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from remit.errors import TranscriptError
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult
from remit.models.base import Settings, ToolSpec
from remit.models.wires.anthropic.blocks import (
    NO_OUTPUT,
    RESULT,
    beside,
    fields_of,
    media_of,
    opaque,
    reply_block,
    written,
)
from remit.models.wires.anthropic.foreign import is_list, is_table, tables
from remit.models.wires.codec import Parsed
from remit.transcript import Transcript, validate

__all__ = ["parse"]

_encode = msgspec.json.Encoder().encode

_OWN = frozenset({"model", "messages", "stream", "max_tokens", "system", "tools", "cache_control"})
_TOOL = frozenset({"name", "description", "input_schema"})
_MEDIA = frozenset({"type", "source", "title"})
_RESULT = frozenset({"type", "tool_use_id", "content", "is_error", "toolset_name"})


def parse(body: Mapping[str, Any], issuer: str) -> Parsed:
    """Read a body. Errors: `TranscriptError` for what is no request of this wire."""
    messages = body.get("messages")
    if not is_list(messages):
        raise TranscriptError(
            "this is no request of Anthropic Messages: it has no list of messages"
        )
    reader = _Reader(issuer)
    read = [reader.message(at, entry) for at, entry in enumerate(messages)]
    transcript = _transcript(_merged([message for message in read if message is not None]))
    extra = {name: value for name, value in body.items() if name not in _OWN}
    instructions = _system(body.get("system"), extra)
    return Parsed(
        transcript=transcript,
        instructions=instructions,
        tools=_tools(body.get("tools"), extra),
        settings=_settings(body, extra),
        model=str(body.get("model", "")),
        stream=body.get("stream") is True,
        set_aside=tuple(
            sorted(reader.dropped | ({"cache_control"} if _has_marker(body) else set()))
        ),
    )


def _transcript(messages: list[Message]) -> Transcript:
    try:
        validate(messages)
    except TranscriptError:
        return Transcript.load([message.to_json() for message in messages])
    return Transcript(messages)


# Settings


def _settings(body: Mapping[str, Any], extra: dict[str, Any]) -> Settings:
    """What has a field of its own is taken out of `extra`."""
    max_output = body.get("max_tokens")
    thinking = None
    match extra.get("thinking"):
        case {"type": "enabled", "budget_tokens": int(tokens), **rest} if (
            not rest and type(tokens) is int and tokens > 0
        ):
            thinking = tokens
            del extra["thinking"]
        case _:
            pass
    choice = "auto"
    match extra.get("tool_choice"):
        case {"type": "auto" | "any" | "none" as kind, **rest} if not rest:
            choice = kind
            del extra["tool_choice"]
        case {"type": "tool", "name": str(name), **rest} if not rest:
            choice = name
            del extra["tool_choice"]
        case _:
            pass
    return Settings(
        max_output=max_output if type(max_output) is int and max_output > 0 else None,
        thinking=thinking,
        tool_choice=choice,
        extra=extra,
    )


def _system(given: Any, extra: dict[str, Any]) -> str:
    if isinstance(given, str):
        return given
    if not is_list(given):
        return ""
    texts = [each.get("text") for each in tables(given)]
    text = "\n\n".join([text for text in texts if isinstance(text, str)])
    plain = {"type", "text", "cache_control"}
    if len(given) != 1 or not is_table(given[0]) or set(given[0]) - plain:
        extra["system"] = _unmarked(given)  # several blocks, or with more to say
    return text


def _tools(given: Any, extra: dict[str, Any]) -> tuple[ToolSpec, ...]:
    """Those that any wire has; where one says more, all stand in `extra` as well, in their order."""
    if not is_list(given):
        return ()
    tools: list[ToolSpec] = []
    says_more = False
    for entry in given:
        if not is_table(entry):
            raise TranscriptError("a tool that is no object")
        name, schema = entry.get("name"), entry.get("input_schema")
        if isinstance(name, str) and is_table(schema):
            described = entry.get("description")
            tools.append(ToolSpec(name, described if isinstance(described, str) else "", schema))
            kind: Any = entry.get("type")
            more = {key for key, value in entry.items() if value is not None} - _TOOL
            says_more |= bool(more - {"type", "cache_control"}) or kind not in (None, "custom")
        else:
            says_more = True
    if says_more:
        extra["tools"] = _unmarked(given)
    return tuple(tools)


# Messages


class _Reader:
    """Reads messages for one issuer."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self.dropped: set[str] = set()
        """Names of fields that have no place."""

    def message(self, at: int, entry: Any) -> Message | None:
        """A message; None where nothing is in it."""
        if not is_table(entry):
            raise TranscriptError(f"message {at} is no object")
        role, content = entry.get("role"), entry.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not is_list(content):
            raise TranscriptError(f"message {at} has no content")
        if role == "assistant":
            blocks = [each for block in content for each in self._reply(at, block)]
        elif role == "user" and set(entry) == {"role", "content"}:
            blocks = self._said(at, content)
        elif isinstance(role, str):  # system, or what says more than its content
            blocks = [Opaque(self._issuer, _data(at, _unmarked(entry)))]
        else:
            raise TranscriptError(f"message {at} has no role")
        return (
            Message("assistant" if role == "assistant" else "user", tuple(blocks))
            if blocks
            else None
        )

    def _reply(self, at: int, block: Any) -> Sequence[Block]:
        data = _data(at, _object(at, block))
        fields = fields_of(data)
        own = self._as_it_stands
        return () if fields is None else reply_block(self._issuer, data, fields, own)

    @staticmethod
    def _as_it_stands(name: str, arguments: str) -> tuple[str, str]:
        return name, arguments

    def _said(self, at: int, content: Sequence[Any]) -> list[Block]:
        results: list[ToolResult] = []
        natives: list[Opaque] = []
        blocks: list[Block] = []
        for entry in content:
            block = _object(at, entry)
            if block.get("type") == "tool_result":
                result, more = self._result(at, block)
                results.append(result)
                natives += more
            else:
                blocks += self._part(at, block)
        return [*results, *natives, *blocks]

    def _part(self, at: int, block: Mapping[str, Any]) -> Sequence[Block]:
        data = _data(at, block)
        fields = fields_of(data) or {}
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str):
            return written(self._issuer, text, fields)
        if block.get("type") in ("image", "document"):
            media = media_of(block)
            if media is not None:
                return (media, *beside(self._issuer, fields, _MEDIA))
        return (Opaque(self._issuer, data),)

    def _result(self, at: int, block: Mapping[str, Any]) -> tuple[ToolResult, Sequence[Opaque]]:
        """A result, and what of it is no text and no media."""
        given = block.get("content")
        entries: Sequence[Any]
        entries = [{"type": "text", "text": given}] if isinstance(given, str) else given or []
        if not is_list(entries):
            raise TranscriptError(f"a result in message {at} has no content that can be read")
        parts: list[Text | Media] = []
        native: list[int] = []
        for entry in entries:
            part = _object(at, entry)
            found = self._part(at, part)
            if len(found) == 1 and isinstance(found[0], Text | Media):
                parts.append(found[0])
            elif found:
                native.append(len(parts))
                parts.append(Text(_data(at, part).decode()))
        self.dropped |= block.keys() - _RESULT
        answered = block.get("tool_use_id")
        answered = answered if isinstance(answered, str) else ""
        said: dict[str, Any] = {"type": RESULT, "tool_use_id": answered}
        if native:
            said["parts"] = native
        if not parts:
            parts = [Text(NO_OUTPUT)]
            said["blank"] = True
        result = ToolResult(answered, tuple(parts), block.get("is_error") is True)
        return result, [opaque(self._issuer, said)] if len(said) > 2 else []


def _data(at: int, value: Any) -> bytes:
    """What is kept as it stands. Errors: `TranscriptError` for what is no JSON."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TranscriptError(f"message {at} is no JSON: {error}") from None


def _object(at: int, block: Any) -> Mapping[str, Any]:
    if not is_table(block):
        raise TranscriptError(f"message {at} holds a block that is no object")
    return _without(block, "cache_control")


def _merged(messages: Iterable[Message]) -> list[Message]:
    """The messages with every call answered in the next one, as the provider understands them."""
    made: list[Message] = []
    for message in messages:
        last = made[-1] if made else None
        if last is None or last.role != message.role:
            made.append(message)
        elif last.role == "assistant" and last.tool_uses:
            made[-1] = Message("assistant", last.content + message.content)
        elif last.tool_results and message.tool_results:
            made[-1] = Message("user", _results_first(last.content + message.content))
        else:
            made.append(message)
    return [
        _in_call_order(message, before)
        for before, message in zip([None, *made], made, strict=False)
    ]


def _results_first(content: Sequence[Block]) -> tuple[Block, ...]:
    results = [block for block in content if isinstance(block, ToolResult)]
    return (*results, *[block for block in content if not isinstance(block, ToolResult)])


def _in_call_order(message: Message, before: Message | None) -> Message:
    results = message.tool_results
    if before is None or not results:
        return message
    place = {use.id: at for at, use in enumerate(before.tool_uses)}
    order = sorted(results, key=lambda result: place.get(result.tool_use_id, len(place)))
    if tuple(order) == results:
        return message
    return Message(message.role, (*order, *message.content[len(order) :]))


# Markers


def _without(block: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {key: value for key, value in block.items() if key != name} if name in block else block


def _unmarked(value: Any) -> Any:
    """The same without cache markers, which stand on blocks and on tools."""
    if is_list(value):
        return [_unmarked(each) for each in value]
    if is_table(value):
        kept: dict[str, Any] = {**_without(value, "cache_control")}
        if is_list(kept.get("content")):
            kept["content"] = _unmarked(kept["content"])
        return kept
    return value


def _has_marker(body: Mapping[str, Any]) -> bool:
    """Whether the request says what is to be cached."""
    places = [body, *tables(body.get("system")), *tables(body.get("tools"))]
    for message in tables(body.get("messages")):
        for block in tables(message.get("content")):
            places += [block, *tables(block.get("content"))]
    return any("cache_control" in place for place in places)
