"""Writes as Anthropic's Messages API does.

Source: recorded exchanges and the documented events; nothing is shared with the codec, which is judged by what
stands here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from remit.messages import Block, Opaque, StopReason, Text, ToolUse, Usage
from remit.testing.serve.turn import (
    NO_ID,
    ErrorKind,
    Segment,
    Turn,
    fragments,
    is_object,
    json_bytes,
    made_id,
    pieces,
)

__all__ = ["AnthropicWire"]

_STOP_REASONS: Final = {
    StopReason.END_TURN: "end_turn",
    StopReason.TOOL_USE: "tool_use",
    StopReason.LENGTH: "max_tokens",
    StopReason.REFUSAL: "refusal",
    StopReason.FILTER: "refusal",
    StopReason.PAUSE: "pause_turn",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.CONTEXT: "model_context_window_exceeded",
    StopReason.UNKNOWN: "a_reason_of_next_year",
}

_ERRORS: Final[Mapping[ErrorKind, tuple[int, str, str]]] = {
    "bad_request": (400, "invalid_request_error", "messages: Field required"),
    "key": (401, "authentication_error", "invalid x-api-key"),
    "permission": (
        403,
        "permission_error",
        "Your API key does not have permission to use the specified resource.",
    ),
    "path": (404, "not_found_error", "Not found"),
    "model": (404, "not_found_error", "model: no-such-model"),
    "context": (
        400,
        "invalid_request_error",
        "prompt is too long: 201240 tokens > 200000 maximum",
    ),
    "too_large": (413, "request_too_large", "Request exceeds the maximum size"),
    "quota": (
        402,
        "billing_error",
        (
            "Your credit balance is too low to access the Anthropic API."
            " Please go to Plans & Billing to upgrade or purchase credits."
        ),
    ),
    "rate_limit": (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 50 requests per minute.",
    ),
    "server": (500, "api_error", "Internal server error"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
}


class AnthropicWire:
    """See `Wire`."""

    name = "anthropic"
    base_path = ""
    path = "/v1/messages"
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    paused = b'{"type":"server_tool_use","id":"srvtoolu_01paused","name":"web_search","input":{"query":"x"}}'

    def call_id(self, reply: int, call: int) -> str:
        return made_id("toolu_01", reply, call, length=22)

    def key(self, headers: Mapping[str, str]) -> str | None:
        bearer = headers.get("authorization", "")
        return headers.get("x-api-key") or bearer.removeprefix("Bearer ") or None

    def segments(self, body: Mapping[str, Any]) -> list[Segment]:
        """Tools, system, messages; tool choice and thinking count for the messages alone."""
        found = [_segment(tool) for tool in body.get("tools", ())]
        system = body.get("system", ())
        found += [_segment(text) for text in ([system] if isinstance(system, str) else system)]
        found.append(Segment(json_bytes([body.get("tool_choice"), body.get("thinking")])))
        for message in body.get("messages", ()):
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            found += [_segment(block, message["role"]) for block in blocks]
        if body.get("cache_control") and found:  # of the request: it goes with the last block
            found[-1] = Segment(found[-1].data, mark=True)
        return found

    def refused(self, kind: ErrorKind, text: str | None = None) -> tuple[int, dict[str, Any]]:
        status, name, usual = _ERRORS[kind]
        error = {"type": name, "message": text or usual}
        return status, {"type": "error", "error": error, "request_id": "req_011CTest"}

    def error_event(self, kind: ErrorKind, text: str | None = None) -> bytes:
        _, body = self.refused(kind, text)
        return _event({"type": "error", "error": body["error"]})

    def whole(self, turn: Turn) -> dict[str, Any]:
        ended = _ended(turn)
        return {
            **_head(turn),
            "content": [_content(block) for block in turn.blocks],
            "stop_reason": ended["stop_reason"],
            "stop_sequence": ended["stop_sequence"],
            "stop_details": ended["stop_details"],
            **({} if turn.usage is None else {"usage": _usage(turn.usage)}),
        }

    def events(self, turn: Turn) -> tuple[list[bytes], list[list[bytes]], list[bytes]]:
        message: dict[str, Any] = {
            **_head(turn),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
        }
        counted: dict[str, Any] = {"output_tokens": 0}
        if turn.usage is not None:
            counted = _usage(turn.usage)
            message["usage"] = {**counted, "output_tokens": 1}
        opening = [_event({"type": "message_start", "message": message}), self.ping]
        blocks = [list(_block_events(index, block)) for index, block in enumerate(turn.blocks)]
        closing = [
            _event({"type": "message_delta", "delta": _ended(turn), "usage": counted}),
            _event({"type": "message_stop"}),
        ]
        if turn.usage is None:
            closing[0] = _event({"type": "message_delta", "delta": _ended(turn)})
        return opening, blocks, closing


def _segment(part: Any, role: str = "") -> Segment:
    if not isinstance(part, dict):
        return Segment(json_bytes([role, part]))
    block = dict(cast("dict[str, Any]", part))
    mark = block.pop("cache_control", None) is not None
    return Segment(json_bytes([role, block]), mark)


def _head(turn: Turn) -> dict[str, Any]:
    return {
        "model": turn.model,
        "id": turn.id("msg_01", length=22),
        "type": "message",
        "role": "assistant",
    }


def _ended(turn: Turn) -> dict[str, Any]:
    refused = turn.stop_reason in (StopReason.REFUSAL, StopReason.FILTER)
    details = {"type": "refusal", "category": "cyber", "explanation": "This is not answered."}
    stops: list[str] = list(turn.asked.get("stop_sequences", ())) or ["STOP"]
    return {
        "stop_reason": _STOP_REASONS[turn.stop_reason],
        "stop_sequence": stops[0] if turn.stop_reason is StopReason.STOP_SEQUENCE else None,
        "stop_details": details if refused else None,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }


def _content(block: Block) -> Any:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolUse(id, _, arguments):
            given = msgspec.Raw(arguments.encode() if is_object(arguments) else b"{}")
            return {
                "type": "tool_use",
                **({} if id == NO_ID else {"id": id}),
                "name": block.name,
                "input": given,
                "caller": {"type": "direct"},
            }
        case Opaque(_, data):
            return msgspec.Raw(data)
        case _:
            raise TypeError(f"no reply holds a {type(block).__name__}")


def _block_events(index: int, block: Block) -> Iterator[bytes]:
    match block:
        case Text(text):
            begun: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
        case ToolUse(_, _, arguments):
            begun = {**_content(block), "input": {}}
            deltas = [_json_delta(piece) for piece in fragments(arguments)]
        case _:
            begun, deltas = _opaque_begun(msgspec.json.decode(_content(block)))
    yield _event({"type": "content_block_start", "index": index, "content_block": begun})
    for delta in deltas:
        yield _event({"type": "content_block_delta", "index": index, "delta": delta})
    yield _event({"type": "content_block_stop", "index": index})


def _opaque_begun(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Thinking and calls of the provider's own tools come in pieces; everything else comes whole."""
    if block.get("type") == "thinking":
        thinking, signature = block.get("thinking", ""), block.get("signature", "")
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(thinking)]
        deltas.append({"type": "signature_delta", "signature": signature})
        return {**block, "thinking": "", "signature": ""}, deltas
    if block.get("type") in ("server_tool_use", "mcp_tool_use"):
        given = json_bytes(block.get("input", {})).decode()
        return {**block, "input": {}}, [_json_delta(piece) for piece in fragments(given)]
    return block, []


def _json_delta(piece: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": piece}


def _event(value: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), json_bytes(value))
