"""Writes as OpenAI's Chat Completions API does, and the servers that speak it too.

Source: recorded exchanges; nothing is shared with the codec, which is judged by what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from remit.messages import Opaque, StopReason, Text, ToolUse, Usage
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

__all__ = ["ChatWire"]

_FINISH_REASONS: Final = {
    StopReason.END_TURN: "stop",
    StopReason.TOOL_USE: "tool_calls",
    StopReason.LENGTH: "length",
    StopReason.REFUSAL: "stop",
    StopReason.FILTER: "content_filter",
    StopReason.PAUSE: "pause",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.CONTEXT: "model_length",
    StopReason.UNKNOWN: "a_reason_of_next_year",
}
_CREATED = 1_767_225_600  # the same in every run
_PADDED = {"obfuscation": "q5eRzP"}  # it hides how long a piece is, and means nothing


class ChatWire:
    """See `Wire`. `dialect` names the server that speaks it."""

    name = "openai-chat"
    ping = b": keep-alive\n\n"
    paused = None

    def __init__(self, dialect: str) -> None:
        self.base_path = "/openai/v1" if dialect == "azure" else "/v1"
        self.path = f"{self.base_path}/chat/completions"
        self._short_ids = dialect == "mistral"
        self._always_counts = dialect == "mistral"
        """Usage stands in the last chunk of every stream, whether it was asked for or not."""

    def call_id(self, reply: int, call: int) -> str:
        if self._short_ids:
            return made_id("", "call", reply, call, length=9)
        return made_id("call_", reply, call, length=24)

    def key(self, headers: Mapping[str, str]) -> str | None:
        return bearer(headers)

    def segments(self, body: Mapping[str, Any]) -> list[Segment]:
        parts = [*body.get("tools", ()), *body.get("messages", ())]
        return [Segment(json_bytes(part)) for part in parts]

    def refused(self, kind: ErrorKind, text: str | None = None) -> tuple[int, dict[str, Any]]:
        return openai_error(kind, text)

    def error_event(self, kind: ErrorKind, text: str | None = None) -> bytes:
        _, body = openai_error(kind, text)
        return _event(body)

    def whole(self, turn: Turn) -> dict[str, Any]:
        text, refusal = _texts(turn)
        calls = [_call(block) for block in turn.blocks if isinstance(block, ToolUse)]
        message = {
            "role": "assistant",
            "content": text or None,
            **({"tool_calls": calls} if calls else {}),
            "refusal": refusal,
            **_extras(turn),
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _FINISH_REASONS[turn.stop_reason],
        }
        usage = None if turn.usage is None else _usage(turn)
        return {**_head(turn, "chat.completion"), "choices": [choice], "usage": usage}

    def events(self, turn: Turn) -> tuple[list[bytes], list[list[bytes]], list[bytes]]:
        head = _head(turn, "chat.completion.chunk")
        options: Mapping[str, Any] = turn.asked.get("stream_options") or {}
        counts = bool(options.get("include_usage"))

        def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            uncounted = {"usage": None} if counts else {}
            return _event({**head, "choices": [choice], **uncounted, **_PADDED, **more})

        calls = 0
        blocks: list[list[bytes]] = []
        for block in turn.blocks:
            if isinstance(block, ToolUse):
                blocks.append([chunk({"tool_calls": [each]}) for each in _pieces(calls, block)])
                calls += 1
            else:
                blocks.append([chunk(delta) for delta in _deltas(turn, block)])
        finish = _FINISH_REASONS[turn.stop_reason]
        usage = {} if turn.usage is None else {"usage": _usage(turn)}
        closing = [chunk({}, finish, **(usage if self._always_counts else {}))]
        if usage and counts and not self._always_counts:
            closing.append(_event({**head, "choices": [], **usage}))
        closing.append(b"data: [DONE]\n\n")
        first = {"role": "assistant", "content": None if calls else "", "refusal": None}
        return [chunk(first)], blocks, closing


def _head(turn: Turn, kind: str) -> dict[str, Any]:
    return {
        "id": turn.id("chatcmpl-", length=29),
        "object": kind,
        "created": _CREATED,
        "model": turn.model,
        "service_tier": "default",
        "system_fingerprint": "fp_07871e2ad8",
    }


def _texts(turn: Turn) -> tuple[str, str | None]:
    text = "".join([block.text for block in turn.blocks if isinstance(block, Text)])
    return ("", text) if turn.stop_reason is StopReason.REFUSAL else (text, None)


def _extras(turn: Turn) -> dict[str, Any]:
    """What a server adds to a message: the fields of its own blocks."""
    found: dict[str, Any] = {}
    for block in turn.blocks:
        if isinstance(block, Opaque):
            found |= _fields(block)
    return found


def _fields(block: Opaque) -> dict[str, Any]:
    fields = msgspec.json.decode(block.data, type=dict[str, Any])
    return {name: value for name, value in fields.items() if name != "type"}


def _call(use: ToolUse) -> dict[str, Any]:
    return {
        **({} if use.id == NO_ID else {"id": use.id}),
        "type": "function",
        "function": {"name": use.name, "arguments": use.arguments},
    }


def _pieces(index: int, use: ToolUse) -> list[dict[str, Any]]:
    """A call in deltas: the first names it, the rest only continue."""
    first, *rest = fragments(use.arguments)
    begun = {"index": index, **_call(use)}
    begun["function"] = {"name": use.name, "arguments": first}
    return [begun, *({"index": index, "function": {"arguments": piece}} for piece in rest)]


def _deltas(turn: Turn, block: object) -> list[dict[str, Any]]:
    if isinstance(block, Text):
        name = "refusal" if turn.stop_reason is StopReason.REFUSAL else "content"
        return [{name: piece} for piece in pieces(block.text)]
    if isinstance(block, Opaque):
        return [_fields(block)]
    raise TypeError(f"no reply holds a {type(block).__name__}")


def _usage(turn: Turn) -> dict[str, Any]:
    usage = turn.usage or Usage()
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
        **({} if turn.usd is None else {"cost": float(turn.usd)}),
    }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json_bytes(value)
