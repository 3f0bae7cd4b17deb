"""Chat Completions: OpenAI's older wire, and that of every server that calls itself compatible.

    requests.py   a run's requests to bytes          messages.py   one message of them
    decode.py     replies, from a stream or whole    calls.py      calls put together from pieces
    halves.py     characters that were cut in two    extras.py     what has to come back as it came
    faults.py     what errors mean                   usage.py      tokens, in disjoint parts
    parse.py      a body read back

Pure. How servers differ stands in `dialects.py` beside this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remit.messages import Message, Opaque, ToolUse, Usage
from remit.models.wires.chat.decode import ChatDecoder
from remit.models.wires.chat.extras import BESIDE, MESSAGE
from remit.models.wires.chat.faults import refused
from remit.models.wires.chat.parse import parsed
from remit.models.wires.chat.requests import ChatEncoder
from remit.models.wires.chat.usage import usage_json
from remit.models.wires.codec import Fault, Parsed
from remit.models.wires.dialects import DIALECTS, ChatDialect

__all__ = ["ChatCodec"]


class ChatCodec:
    """The wire in one dialect."""

    def __init__(self, dialect: ChatDialect = DIALECTS["openai-chat"]) -> None:
        self.dialect = dialect

    @property
    def wire(self) -> str:
        return "openai-chat"

    @property
    def issuer(self) -> str:
        return self.dialect.name

    @property
    def path(self) -> str:
        return "/chat/completions"

    def headers(self, key: str | None) -> Mapping[str, str]:
        if not key:
            return {}
        header = self.dialect.key_header
        return {header: f"Bearer {key}" if header == "authorization" else key}

    def encoder(self, model: str) -> ChatEncoder:
        return ChatEncoder(self.dialect, model)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        return refused(self.dialect, status, headers, body)

    def parse(self, body: Mapping[str, Any]) -> Parsed:
        return parsed(self.dialect, body)

    def decoder(self) -> ChatDecoder:
        return ChatDecoder(self.dialect)

    def reply_json(self, message: Message, *, stop_reason: str, usage: Usage) -> Mapping[str, Any]:
        return {
            "id": "chatcmpl-remit",
            "object": "chat.completion",
            "created": 0,
            "model": "remit",
            "choices": [
                {
                    "index": 0,
                    "message": _message_json(message, self.issuer),
                    "logprobs": None,
                    "finish_reason": stop_reason,
                }
            ],
            "usage": usage_json(usage),
        }


def _message_json(message: Message, issuer: str) -> dict[str, Any]:
    """The message as the server writes it: ids and names as they stand."""
    said: dict[str, Any] = {"role": "assistant", "content": message.text or None, "refusal": None}
    calls: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ToolUse):
            function = {"name": block.name, "arguments": block.arguments}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, Opaque) and block.issuer == issuer:
            fields = msgspec.json.decode(block.data)
            kind = fields.pop("type", None)
            if kind == MESSAGE:
                said.update(fields)
            elif kind == BESIDE and calls:
                calls[-1].update(fields)
    if calls:
        said["tool_calls"] = calls
    return said
