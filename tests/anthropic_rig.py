"""What the tests of the Anthropic wire share: short ways to write messages, requests and streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remit.messages import Message, Opaque, Reply, Text, ToolResult
from remit.models.base import Chunk, ModelRequest, Settings, ToolSpec
from remit.models.wires.anthropic import AnthropicCodec
from remit.models.wires.anthropic.decoding import AnthropicDecoder
from remit.models.wires.anthropic.encoding import AnthropicEncoder
from remit.models.wires.sse import EventReader
from remit.transcript import Transcript

RECORDED = Path(__file__).resolve().parents[2] / "shared" / "wire" / "anthropic"
FILES = sorted(RECORDED.glob("*.json"))

LOOK = ToolSpec("look", "Look at it.", {"type": "object", "properties": {"at": {"type": "string"}}})
WIRE = AnthropicCodec()
UNMARKED = AnthropicCodec(cache_ttl=None)
THINKING = b'{"type":"thinking","thinking":"hm","signature":"c2ln"}'


def request(
    transcript: Transcript,
    *,
    instructions: str = "Help.",
    tools: tuple[ToolSpec, ...] = (LOOK,),
    settings: Settings | None = None,
    max_output: int = 4_096,
    output_schema: Mapping[str, Any] | None = None,
) -> ModelRequest:
    return ModelRequest(
        instructions,
        transcript,
        tools,
        settings or Settings(),
        max_output,
        0.0,
        output_schema,
    )


def sent(made: ModelRequest, encoder: AnthropicEncoder | None = None) -> Any:
    """The body of a request, read."""
    encoder = encoder or UNMARKED.encoder("claude-x")
    return json.loads(encoder.encode(made, stream=True).body)


def opaque(**block: Any) -> Opaque:
    return Opaque("anthropic", json.dumps(block, separators=(",", ":")).encode())


def user(*content: Any) -> Message:
    return Message("user", tuple(Text(each) if isinstance(each, str) else each for each in content))


def model(*content: Any) -> Message:
    return Message(
        "assistant", tuple(Text(each) if isinstance(each, str) else each for each in content)
    )


def answer(to: str, text: str = "seen", *, is_error: bool = False) -> ToolResult:
    return ToolResult(to, (Text(text),), is_error)


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def begin(**usage: int) -> bytes:
    return event("message_start", message={"type": "message", "usage": usage})


def block(index: int, start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> bytes:
    written = [event("content_block_start", index=index, content_block=start)]
    written += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join([*written, event("content_block_stop", index=index)])


def finish(stop_reason: str | None, **usage: int) -> bytes:
    delta = {"stop_reason": stop_reason}
    return event("message_delta", delta=delta, usage=usage) + event("message_stop")


def call(named: str, name: str = "look") -> dict[str, Any]:
    return {"type": "tool_use", "id": named, "name": name, "input": {}}


def part(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


def said(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def read(stream: bytes, decoder: AnthropicDecoder | None = None) -> list[Chunk]:
    decoder = decoder or WIRE.decoder()
    chunks: list[Chunk] = []
    for found in EventReader().feed(stream):
        chunks += decoder.feed(found)
    return [*chunks, *decoder.end()]


def reply(stream: bytes) -> Reply:
    last = read(stream)[-1]
    assert isinstance(last, Reply)
    return last
