"""The endpoint: its headers, its encoder, what its errors mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remit.errors import ConfigurationError
from remit.messages import Message, Usage
from remit.models.wires.codec import Decoder, Encoder, Fault, Parsed
from remit.models.wires.responses.decoding import ResponsesDecoder
from remit.models.wires.responses.encoding import ResponsesEncoder
from remit.models.wires.responses.faults import fault_of
from remit.models.wires.responses.parsing import parsed
from remit.models.wires.responses.replying import response_json
from remit.models.wires.responses.turns import ItemIds

__all__ = ["ResponsesCodec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesCodec:
    """OpenAI Responses, or a server that speaks it."""

    issuer: str = "openai"
    """Tags what only this endpoint can read: its reasoning goes back to it and to no other (T7)."""
    state: Literal["none", "server"] = "none"
    """`none`: every request holds the whole conversation, and nothing is kept there. `server`: the server keeps
    the conversation, and requests hold what is new (case 61). Never left to what the server does by itself."""
    item_ids: ItemIds = "given"
    """Which ids of items go out (case 59): those that the server gave; `none` for a server that looks them up
    and has kept nothing; `all` for one that wants an id on every item. A server that refuses the one is asked
    once more in the other way, so this only spares it that."""
    key_variable: str | None = "OPENAI_API_KEY"
    """The environment variable that holds the key, for what people are told when it is refused; None: there is none."""

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for another word."""
        if self.state not in {"none", "server"}:
            raise ConfigurationError(f"state={self.state!r}: there are 'none' and 'server'")
        if self.item_ids not in {"given", "none", "all"}:
            raise ConfigurationError(
                f"item_ids={self.item_ids!r}: there are 'given', 'none' and 'all'"
            )

    @property
    def wire(self) -> str:
        return "openai"

    @property
    def path(self) -> str:
        return "/responses"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """What every request carries."""
        return {} if key is None else {"authorization": f"Bearer {key}"}

    def encoder(self, model: str) -> Encoder:
        """For one run with the model of this name."""
        keeps = self.state == "server"
        return ResponsesEncoder(model, self.issuer, self.item_ids, keeps=keeps)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """What a response with another status than 200 means. Errors: none, whatever comes."""
        return fault_of(status, headers, body, key_variable=self.key_variable)

    def parse(self, body: Mapping[str, Any]) -> Parsed:
        """Read a request body back. Errors: `TranscriptError`."""
        return parsed(self.issuer, body)

    def decoder(self) -> Decoder:
        """Reads a reply whose request is not known."""
        return ResponsesDecoder(self.issuer, lambda name, arguments: (name, arguments))

    def reply_json(self, message: Message, *, stop_reason: str, usage: Usage) -> Mapping[str, Any]:
        """A reply as this provider would write it."""
        return response_json(self.issuer, message, stop_reason=stop_reason, usage=usage)
