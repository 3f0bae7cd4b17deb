"""An endpoint that speaks Anthropic Messages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from remit.errors import ConfigurationError
from remit.messages import Message, Opaque, Text, ToolUse, Usage
from remit.models.wires.anthropic.blocks import BESIDE, MESSAGE, kind_of, object_of
from remit.models.wires.anthropic.counting import STOP_REASONS
from remit.models.wires.anthropic.decoding import AnthropicDecoder
from remit.models.wires.anthropic.encoding import AnthropicEncoder
from remit.models.wires.anthropic.faults import fault
from remit.models.wires.anthropic.parsing import parse
from remit.models.wires.codec import Fault, Parsed

__all__ = ["AnthropicCodec"]

_FIRST_WITH_BEARER = "2026-10-21"
"""From this version on the official clients send the key as a bearer token."""

_WORDS: Final = {str(reason): word for word, reason in STOP_REASONS.items()} | {
    "pause": "pause_turn"  # which a compaction is to us as well
}


class AnthropicCodec:
    """Anthropic Messages, for one endpoint."""

    def __init__(
        self,
        *,
        version: str = "2023-06-01",
        betas: Sequence[str] = (),
        issuer: str = "anthropic",
        cache_ttl: Literal["5m", "1h"] | None = "5m",
    ) -> None:
        """`version` and `betas` are those of the API; `cache_ttl` is how long the prompt cache keeps what is
        written to it, None to set no markers.

        Errors: `ConfigurationError` for another time than those two.
        """
        if cache_ttl not in ("5m", "1h", None):
            raise ConfigurationError(f'cache_ttl={cache_ttl!r}: give "5m", "1h" or None')
        self.issuer: Final = issuer
        self._version = version
        self._betas = tuple(betas)
        self.cache_ttl: Final[Literal["5m", "1h"] | None] = cache_ttl

    @property
    def wire(self) -> str:
        return "anthropic"

    @property
    def path(self) -> str:
        return "/v1/messages"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """What every request carries: the version of the API, its betas, the key."""
        made = {"anthropic-version": self._version}
        if self._betas:
            made["anthropic-beta"] = ",".join(self._betas)
        if key is not None and self._version >= _FIRST_WITH_BEARER:
            made["authorization"] = f"Bearer {key}"
        elif key is not None:
            made["x-api-key"] = key
        return made

    def encoder(self, model: str) -> AnthropicEncoder:
        """For one run with the model of this name."""
        return AnthropicEncoder(model, self.issuer, self.cache_ttl)

    def decoder(self) -> AnthropicDecoder:
        """Reads a reply whose request is not known."""
        return AnthropicDecoder(self.issuer)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """What a response with another status than 200 means."""
        return fault(status, headers, body)

    def parse(self, body: Mapping[str, Any]) -> Parsed:
        """Read a request body back. Errors: `TranscriptError` for what is no request of this wire."""
        return parse(body, self.issuer)

    def reply_json(self, message: Message, *, stop_reason: str, usage: Usage) -> Mapping[str, Any]:
        """A reply as the provider would write it; `stop_reason` in its words or in ours."""
        content: list[dict[str, Any]] = []
        whole: dict[str, Any] = {}
        for block in message.content:
            if isinstance(block, Text):
                content.append({"type": "text", "text": block.text})
            elif isinstance(block, ToolUse):
                given = msgspec.json.decode(object_of(block.arguments))
                call = {"type": "tool_use", "id": block.id, "name": block.name, "input": given}
                content.append(call)
            elif isinstance(block, Opaque) and block.issuer == self.issuer:
                found = kind_of(block.data)
                if found is None:
                    continue
                said = msgspec.json.decode(block.data)
                more = {name: said[name] for name in said if name != "type"}
                if found[0] == MESSAGE:
                    whole = more
                elif found[0] != BESIDE:
                    content.append(said)
                elif content:
                    content[-1] |= more
        digest = hashlib.sha256(msgspec.json.encode([content, stop_reason]))
        return {
            "id": f"msg_{digest.hexdigest()[:24]}",
            "type": "message",
            "role": "assistant",
            "model": "",
            "content": content,
            "stop_reason": _WORDS.get(stop_reason, stop_reason),
            "stop_sequence": None,
            **whole,
            "usage": {
                "input_tokens": usage.input,
                "cache_creation_input_tokens": usage.cache_write,
                "cache_read_input_tokens": usage.cache_read,
                "output_tokens": usage.output,
                "output_tokens_details": {"thinking_tokens": usage.reasoning},
            },
        }
