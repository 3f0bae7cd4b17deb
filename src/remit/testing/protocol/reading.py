"""Ways to look into a body that nobody has checked yet, and responses put together from their streams.

Naive on purpose, and independent of the codecs: it reads a stream to its end and keeps everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from remit.errors import ConfigurationError

__all__ = [
    "Body",
    "Events",
    "assembled",
    "body_of",
    "events_of",
    "kind_of",
    "mapping",
    "mappings",
    "names",
    "same",
    "text",
    "walk",
]

Body: TypeAlias = Mapping[str, Any]
Events: TypeAlias = Sequence[Body]


def mapping(value: object) -> Body:
    """The value, if it is a JSON object; else an empty one."""
    return cast("Body", value) if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Body]:
    """The objects in a JSON array; none if it is no array."""
    if not isinstance(value, list | tuple):
        return []
    return [mapping(each) for each in cast("Sequence[object]", value)]


def text(value: object) -> str:
    """The value, if it is a string; else an empty one."""
    return value if isinstance(value, str) else ""


def walk(value: object) -> Iterator[Body]:
    """Every JSON object in a value, outer ones first."""
    if isinstance(value, Mapping):
        yield cast("Body", value)
        for each in cast("Body", value).values():
            yield from walk(each)
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[object]", value):
            yield from walk(each)


def same(value: object) -> str:
    """A text that is equal for equal JSON values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def kind_of(value: object) -> str:
    """What a JSON value is, as providers' sentences say it."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def body_of(given: object) -> Body:
    """A request body, or the JSON that it is sent as. Errors: `ConfigurationError` for what is neither."""
    body = given
    if isinstance(given, str | bytes):
        try:
            body = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"a body is a JSON object; this is no JSON: {error}") from None
    if not isinstance(body, Mapping):
        raise ConfigurationError(f"a body is a JSON object, not of the type {type(body).__name__}")
    return cast("Body", body)


def events_of(stream: str | bytes) -> list[Body]:
    """The JSON data of the events in an event stream, in order; `[DONE]` and comments are left out."""
    whole = stream.decode() if isinstance(stream, bytes) else stream
    found: list[Body] = []
    for part in whole.replace("\r\n", "\n").split("\n\n"):
        lines = [
            line[5:].removeprefix(" ") for line in part.split("\n") if line.startswith("data:")
        ]
        data = "\n".join(lines)
        if data and data != "[DONE]":
            found.append(mapping(json.loads(data)))
    return found


def assembled(events: Iterable[Body]) -> dict[str, Any]:
    """The response that a stream of events adds up to, as it would have come in one piece."""
    given = list(events)
    if any(event.get("type") == "message_start" for event in given):
        return _message(given)
    if any("choices" in event for event in given):
        return _completion(given)
    return _response(given)


def _message(events: Events) -> dict[str, Any]:
    """Anthropic: blocks by index; usage is cumulative."""
    made: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for event in events:
        index = event.get("index", 0)
        match event.get("type"):
            case "message_start":
                made = dict(event["message"])
            case "content_block_start":
                blocks[index] = dict(event["content_block"])
                inputs[index] = ""
            case "content_block_delta":
                inputs[index] += _delta(blocks[index], event["delta"])
            case "message_delta":
                made.update(event.get("delta", {}))
                made["usage"] = {**made.get("usage", {}), **event.get("usage", {})}
            case _:
                pass
    for index, given in inputs.items():
        if given:
            blocks[index]["input"] = json.loads(given)
    made["content"] = [blocks[index] for index in sorted(blocks)]
    return made


def _delta(block: dict[str, Any], delta: Body) -> str:
    """Add a piece to its block; a piece of a call's input is given back."""
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]  # replaces, is not appended
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case "compaction_delta":
            block["content"] = (block.get("content") or "") + delta["content"]
        case "input_json_delta":
            return delta["partial_json"]
        case _:
            pass
    return ""


def _response(events: Events) -> dict[str, Any]:
    """Responses: the terminal event holds the whole; items come from `output_item.done`."""
    made: dict[str, Any] = {}
    items: dict[int, Any] = {}
    for event in events:
        if event.get("type") == "response.output_item.done":
            items[event["output_index"]] = event["item"]
        if "response" in event:
            made = dict(event["response"])
    if items:
        made["output"] = [items[index] for index in sorted(items)]
    return made


def _completion(events: Events) -> dict[str, Any]:
    """Chat Completions: texts are joined, calls by index."""
    made: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    finish: str | None = None
    for event in events:
        told = {key: value for key, value in event.items() if value is not None}
        made.update({key: value for key, value in told.items() if key != "choices"})
        for choice in mappings(event.get("choices")):
            if choice.get("index", 0) == 0:  # one of several answers is read
                finish = choice.get("finish_reason") or finish
                _said(message, calls, mapping(choice.get("delta")))
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    made["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    return made


def _said(message: dict[str, Any], calls: dict[int, dict[str, Any]], delta: Body) -> None:
    """Add a piece to the message and its calls."""
    for key, value in delta.items():
        if key == "tool_calls":
            for call in mappings(value):
                _call(calls, call)
        elif key == "content":
            message[key] = _joined(message[key], value) if value else message[key]
        elif isinstance(value, str) and key != "role":
            message[key] = (message.get(key) or "") + value
        elif value is not None and value != []:
            message[key] = value


def _joined(before: Any, more: Any) -> Any:
    """Content and a piece of it: texts, or lists of parts."""
    if isinstance(more, str) and not isinstance(before, list):
        return (before or "") + more
    parts: list[Any] = []
    for each in cast("tuple[Any, Any]", (before or [], more)):
        parts += each if isinstance(each, list) else [{"type": "text", "text": each}]
    return parts


def _call(calls: dict[int, dict[str, Any]], delta: Body) -> None:
    index = delta.get("index", len(calls))
    given = mapping(delta.get("function"))
    call = calls.setdefault(index, {"id": "", "type": "function", "function": {"arguments": ""}})
    call["id"] = delta.get("id") or call["id"]
    if given.get("name"):
        call["function"]["name"] = given["name"]
    call["function"]["arguments"] += given.get("arguments") or ""
    call.update({k: v for k, v in delta.items() if k not in {"index", "id", "function", "type"}})
