"""Writes as OpenAI's Responses API does.

Source: recorded exchanges; nothing is shared with the codec, which is judged by what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from remit.messages import Block, Opaque, StopReason, Text, ToolUse, Usage
from remit.testing.serve.openai import bearer, openai_error
from remit.testing.serve.turn import (
    NO_ID,
    ErrorKind,
    Segment,
    Turn,
    fragments,
    json_bytes,
    made_id,
    pieces,
)

__all__ = ["ResponsesWire"]

_INCOMPLETE: Final = {
    StopReason.LENGTH: "max_output_tokens",
    StopReason.FILTER: "content_filter",
    StopReason.UNKNOWN: "a_reason_of_next_year",
}
_CREATED = 1_767_225_600  # the same in every run
_PADDING = "RvoJ43TaUvnC"  # it hides how long a piece is, and means nothing
_Status = Literal["in_progress", "completed", "incomplete", "failed"]


class ResponsesWire:
    """See `Wire`."""

    name = "openai"
    base_path = "/v1"
    path = "/v1/responses"
    ping = b": keep-alive\n\n"
    paused = None

    def call_id(self, reply: int, call: int) -> str:
        return made_id("call_", reply, call, length=24)

    def key(self, headers: Mapping[str, str]) -> str | None:
        return bearer(headers)

    def segments(self, body: Mapping[str, Any]) -> list[Segment]:
        given = body.get("input", ())
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        parts = [*body.get("tools", ()), body.get("instructions"), *items]
        return [Segment(json_bytes(part)) for part in parts]

    def refused(self, kind: ErrorKind, text: str | None = None) -> tuple[int, dict[str, Any]]:
        return openai_error(kind, text)

    def error_event(self, kind: ErrorKind, text: str | None = None) -> bytes:
        _, body = openai_error(kind, text)
        error = body["error"]
        value = {
            "type": "error",
            "code": error["code"] or error["type"],
            "message": error["message"],
            "param": error["param"],
            "sequence_number": 99,
        }
        return b"event: error\ndata: %b\n\n" % json_bytes(value)

    def whole(self, turn: Turn) -> dict[str, Any]:
        output = [_item(turn, place, block) for place, block in enumerate(turn.blocks)]
        return _response(turn, _status(turn), output)

    def events(self, turn: Turn) -> tuple[list[bytes], list[list[bytes]], list[bytes]]:
        events = _Events()
        begun = _response(turn, "in_progress", [])
        opening = [
            events.write("response.created", response=begun),
            events.write("response.in_progress", response=begun),
        ]
        blocks = [_item_events(events, turn, n, block) for n, block in enumerate(turn.blocks)]
        status = _status(turn)
        closing = [events.write(f"response.{status}", response=self.whole(turn))]
        return opening, blocks, closing


class _Events:
    """Numbers the events of a stream."""

    def __init__(self) -> None:
        self._next = 0

    def write(self, kind: str, **fields: Any) -> bytes:
        value = {"type": kind, **fields, "sequence_number": self._next}
        self._next += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), json_bytes(value))


def _status(turn: Turn) -> _Status:
    if turn.stop_reason is StopReason.CONTEXT:
        return "failed"
    return "incomplete" if turn.stop_reason in _INCOMPLETE else "completed"


def _response(turn: Turn, status: _Status, output: list[Any]) -> dict[str, Any]:
    asked, over = turn.asked, status != "in_progress"
    error = None
    if status == "failed":
        _, body = openai_error("context", None)
        error = {"code": body["error"]["code"], "message": body["error"]["message"]}
    reason = _INCOMPLETE.get(turn.stop_reason) if over else None
    return {
        "id": turn.id("resp_", length=48),
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "background": False,
        "completed_at": _CREATED + 1 if status == "completed" else None,
        "error": error,
        "frequency_penalty": 0.0,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": turn.model,
        "moderation": None,
        "output": output,
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": asked.get("previous_response_id"),
        "prompt_cache_key": asked.get("prompt_cache_key"),
        "prompt_cache_retention": "24h",
        "reasoning": {"effort": "medium", "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": asked.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": asked.get("tool_choice", "auto"),
        "tools": list(asked.get("tools", ())),
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(turn.usage) if over and turn.usage is not None else None,
        "user": None,
        "metadata": {},
    }


def _item(turn: Turn, place: int, block: Block) -> Any:
    match block:
        case Text(text):
            part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": []}
            part["text"] = text
            if turn.stop_reason is StopReason.REFUSAL:
                part = {"type": "refusal", "refusal": text}
            return {**_message(turn, place), "status": _item_status(turn, place), "content": [part]}
        case ToolUse(_, _, arguments):
            status = _item_status(turn, place)
            return {**_call(turn, place, block), "status": status, "arguments": arguments}
        case Opaque(_, data):
            return msgspec.Raw(data)
        case _:
            raise TypeError(f"no reply holds a {type(block).__name__}")


def _item_status(turn: Turn, place: int) -> str:
    last = place == len(turn.blocks) - 1
    return "incomplete" if last and turn.stop_reason is StopReason.LENGTH else "completed"


def _message(turn: Turn, place: int) -> dict[str, Any]:
    last = place == len(turn.blocks) - 1
    return {
        "id": turn.id("msg_", place, length=48),
        "type": "message",
        "phase": "final_answer" if last else "commentary",
        "role": "assistant",
    }


def _call(turn: Turn, place: int, use: ToolUse) -> dict[str, Any]:
    return {
        "id": turn.id("fc_", place, length=48),
        "type": "function_call",
        **({} if use.id == NO_ID else {"call_id": use.id}),
        "name": use.name,
    }


def _item_events(events: _Events, turn: Turn, place: int, block: Block) -> list[bytes]:
    item = _item(turn, place, block)
    where: dict[str, Any] = {"output_index": place}
    begun: dict[str, Any]
    match block:
        case Text(text):
            begun = {**_message(turn, place), "status": "in_progress", "content": []}
            middle = ("text", text, item["content"][0])
        case ToolUse(_, _, arguments):
            begun = {**_call(turn, place, block), "status": "in_progress", "arguments": ""}
            middle = ("arguments", arguments, None)
        case _:
            begun = _begun(msgspec.json.decode(item, type=dict[str, Any]))
            middle = ("", "", None)
    written = [events.write("response.output_item.added", item=begun, **where)]
    kind, text, part = middle
    if kind:
        where["item_id"] = begun["id"]
    if kind == "text" and part is not None:
        written += _part_events(events, where, part, text)
    elif kind == "arguments":
        name = "response.function_call_arguments"
        for piece in fragments(text):
            written.append(
                events.write(f"{name}.delta", delta=piece, **where, obfuscation=_PADDING)
            )
        if block is not turn.cut:
            written.append(events.write(f"{name}.done", arguments=text, **where))
    where.pop("item_id", None)
    written.append(events.write("response.output_item.done", item=item, **where))
    return written


def _part_events(
    events: _Events, where: Mapping[str, Any], part: dict[str, Any], text: str
) -> list[bytes]:
    """A part of a message in pieces: its text, or what it says instead."""
    refuses = part["type"] == "refusal"
    field = "refusal" if refuses else "text"
    name = "response.refusal" if refuses else "response.output_text"
    place = {**where, "content_index": 0}
    odds: dict[str, Any] = {} if refuses else {"logprobs": []}
    deltas = [
        events.write(f"{name}.delta", delta=piece, **place, **odds, obfuscation=_PADDING)
        for piece in pieces(text)
    ]
    return [
        events.write("response.content_part.added", part={**part, field: ""}, **place),
        *deltas,
        events.write(f"{name}.done", **{field: text}, **place, **odds),
        events.write("response.content_part.done", part=part, **place),
    ]


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    """An item of the provider's own as it stands in the first event: what is encrypted is not whole there."""
    whole = item.get("encrypted_content")
    return {**item, "encrypted_content": whole[:-4]} if isinstance(whole, str) else item


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
