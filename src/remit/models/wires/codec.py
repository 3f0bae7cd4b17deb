"""What every wire can do: requests to bytes, replies and streams back to values, bodies back to transcripts.

Pure: no I/O, no clock, no chance; equal inputs give equal bytes. A codec is made once for an endpoint and
shared by all runs; an `Encoder` belongs to one run and keeps what was encoded; a `Decoder` reads one reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from remit.errors import ModelError
from remit.messages import Message, Reply, Usage
from remit.models.base import Chunk, ModelRequest, Settings, ToolSpec
from remit.models.wires.sse import ServerEvent
from remit.transcript import Transcript

__all__ = ["Codec", "Decoder", "Encoder", "Fault", "Parsed", "Wired"]


class Fault(msgspec.Struct, frozen=True):
    """What a response that is no reply means."""

    error: ModelError
    repair: str | None = None
    """What `Encoder.repair` may try, such as `opaque`; None where only another request would help."""
    reply: bytes | None = None
    """A reply that the server had and refused itself, as a body for `Decoder.whole`: it is taken instead of
    the error (a call that does not fit its schema is answered by the loop, which says why)."""


class Decoder(Protocol):
    """Reads one reply, from a stream or whole."""

    content: int
    """Pieces of content so far: text, thinking, arguments, blocks. A ping or a comment is none; idle time is
    measured on this."""
    unshown: int
    """Characters so far of what is not shown as text: thinking, arguments of calls. A reply that never ends is
    billed by what was seen of it."""

    @property
    def usage(self) -> Usage | None:
        """What was reported so far; None where nothing was. It bills a stream that breaks off."""
        ...

    def feed(self, event: ServerEvent) -> Sequence[Chunk]:
        """Take one event of a stream.

        Shape: text as it comes, each block when it is complete, and one `Reply` at the terminal event, after
        which nothing is fed.
        Errors: `ModelError` for what the provider forbids or reports; never anything else, whatever comes.
        """
        ...

    def end(self) -> Sequence[Chunk]:
        """The stream is over. Errors: `ModelProtocolError` where it had no terminal event."""
        ...

    def whole(self, body: bytes) -> Reply:
        """Read a response that was not streamed. Errors: as `feed`."""
        ...


class Wired(msgspec.Struct, frozen=True):
    """A request as it goes out."""

    body: bytes
    headers: Mapping[str, str]
    """Those that follow from the body; not the key, nor what the endpoint always sends."""
    decoder: Decoder
    """Reads the reply to this request."""
    set_aside: Mapping[str, str] = MappingProxyType({})
    """Tools that this wire cannot take, and why; by name. The others are in the body."""
    cut_back: str | None = None
    """What was left out on purpose since the last request, in words: opaque blocks, a server's state."""


class Encoder(Protocol):
    """The requests of one run, one after another."""

    def encode(self, request: ModelRequest, *, stream: bool) -> Wired:
        """The body of a request.

        Shape: its messages begin with those of the request before, byte for byte, cache markers aside, as long
        as the transcript only grew (X1). Every message is encoded once (J1).
        """
        ...

    def repair(self, what: str) -> bool:
        """The last body was refused for this. True where the next one will differ in a way that may help."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A request body, read back into values."""

    transcript: Transcript
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    settings: Settings = field(default_factory=Settings)
    """What is no field of ours stands in `extra`, so that encoding gives it back."""
    model: str = ""
    stream: bool = False
    set_aside: tuple[str, ...] = ()
    """Fields that were read but have no place here, by name."""


class Codec(Protocol):
    """One wire, for one endpoint."""

    @property
    def wire(self) -> str:
        """The name in `WIRES`."""
        ...

    @property
    def issuer(self) -> str:
        """Tags the `Opaque` blocks of this endpoint: only they go back to it (T7)."""
        ...

    @property
    def path(self) -> str:
        """Joined to the base URL, such as `/v1/messages`."""
        ...

    def headers(self, key: str | None) -> Mapping[str, str]:
        """What every request to this endpoint carries: the key, the version of the API."""
        ...

    def encoder(self, model: str) -> Encoder:
        """For one run with the model of this name, as the provider calls it."""
        ...

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """What a response with another status than 200 means; header names are in lower case.

        `ModelRejected` where the same request will fail again, `ContextExceeded` where the prompt was too long,
        `ModelUnavailable` where another try may help. The text says what to do. Errors: none, whatever comes.
        """
        ...

    def parse(self, body: Mapping[str, Any]) -> Parsed:
        """Read a request body back. Errors: `TranscriptError` for what is no request of this wire."""
        ...

    def decoder(self) -> Decoder:
        """Reads a reply whose request is not known: names and ids stay as they stand."""
        ...

    def reply_json(self, message: Message, *, stop_reason: str, usage: Usage) -> Mapping[str, Any]:
        """A reply as this provider would write it. For servers of tests, and for round trips."""
        ...
