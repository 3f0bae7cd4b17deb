"""What the tests of endpoints share: the plainest wire there can be, and a transport that follows a script."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from remit import (
    ContextExceeded,
    Message,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    Reply,
    StopReason,
    Text,
    ToolUse,
    Transcript,
    Usage,
)
from remit.models.base import BlockDone, Chunk, ModelRequest, Settings, TextDelta, ToolSpec
from remit.models.transport import HttpRequest
from remit.models.wires.codec import Fault, Parsed, Wired
from remit.models.wires.sse import ServerEvent


class PlainDecoder:
    """Events are `{"text": ...}`, `{"thought": ...}`, `{"use": [id, name, arguments]}`, `{"usage": [input, output]}`, `{"stop": ...}`."""

    def __init__(self) -> None:
        self.content = self.unshown = 0
        self.usage: Usage | None = None
        self.blocks: list[Text | ToolUse] = []

    def feed(self, event: ServerEvent) -> Sequence[Chunk]:
        try:
            said = msgspec.json.decode(event.data, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ModelProtocolError(f"an event cannot be read: {error}") from None
        if "text" in said:
            self.content += 1
            self.blocks.append(Text(said["text"]))
            return (TextDelta(said["text"]), BlockDone(self.blocks[-1]))
        if "thought" in said:
            self.content += 1
            self.unshown += len(said["thought"])
            return ()
        if "use" in said:
            self.content += 1
            self.blocks.append(ToolUse(*said["use"]))
            return (BlockDone(self.blocks[-1]),)
        if "usage" in said:
            self.usage = Usage(input=said["usage"][0], output=said["usage"][1])
        if "error" in said:
            raise ModelUnavailable(said["error"])
        if "stop" in said:
            stop = StopReason(said["stop"])
            return (Reply(Message("assistant", tuple(self.blocks)), stop, self.usage),)
        return ()

    def end(self) -> Sequence[Chunk]:
        raise ModelProtocolError("the stream has no end")

    def whole(self, body: bytes) -> Reply:
        try:
            events = msgspec.json.decode(body, type=dict[str, Any])["events"]
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError) as error:
            raise ModelProtocolError(f"the body cannot be read: {error!r}") from None
        for event in events:
            for chunk in self.feed(ServerEvent("", json.dumps(event).encode())):
                if isinstance(chunk, Reply):
                    return chunk
        raise ModelProtocolError("the body has no end")


class PlainEncoder:
    def __init__(self, codec: PlainCodec, model: str) -> None:
        self.codec = codec
        self.model = model
        self.left_out: list[str] = []
        self.cut_back: str | None = None

    def encode(self, request: ModelRequest, *, stream: bool) -> Wired:
        body = {
            "model": self.model,
            "messages": request.transcript.to_json(),
            "stream": stream,
            "without": self.left_out,
        }
        cut_back, self.cut_back = self.cut_back, None
        return Wired(
            json.dumps(body).encode(),
            self.codec.body_headers,
            PlainDecoder(),
            set_aside=self.codec.set_aside,
            cut_back=cut_back,
        )

    def repair(self, what: str) -> bool:
        if what == "nothing":
            return True  # and yet the next body will be the same
        if what in self.left_out:
            return False
        self.left_out.append(what)
        self.cut_back = f"{what} is left out"
        return True


@dataclass
class PlainCodec:
    wire: str = "plain"
    issuer: str = "plain"
    path: str = "/v1/say"
    set_aside: Mapping[str, str] = field(default_factory=dict[str, str])
    body_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    encoders: int = 0

    def headers(self, key: str | None) -> Mapping[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def encoder(self, model: str) -> PlainEncoder:
        self.encoders += 1
        return PlainEncoder(self, model)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        text = f"{status}: {body.decode(errors='replace')}"
        error: ModelError
        if status >= 500 or status == 429:
            after = headers.get("retry-after")
            error = ModelUnavailable(
                text, retry_after=None if after is None else float(after), usage=Usage()
            )
        elif status == 413:
            error = ContextExceeded(text, usage=Usage())
        else:
            error = ModelRejected(text, usage=Usage())
        return Fault(error, headers.get("repair"))

    def parse(self, body: Mapping[str, Any]) -> Parsed:
        raise NotImplementedError

    def decoder(self) -> PlainDecoder:
        return PlainDecoder()

    def reply_json(self, message: Message, *, stop_reason: str, usage: Usage) -> Mapping[str, Any]:
        raise NotImplementedError


def sse(*events: Any) -> bytes:
    """Events as they come over a wire; a text is a line as it stands."""
    return b"".join(
        f"{each}\n\n".encode()
        if isinstance(each, str)
        else b"data: " + json.dumps(each).encode() + b"\n\n"
        for each in events
    )


DONE = ({"usage": [10, 5]}, {"stop": "end_turn"})
HELLO = sse({"text": "Hello."}, *DONE)
STREAM = {"content-type": "text/event-stream"}


@dataclass
class Response:
    """What answers a request: pieces of a body, with seconds between them and errors among them."""

    body: Sequence[bytes | float | Exception] | bytes = HELLO
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: STREAM)
    delay: float = 0.0
    """Seconds before the head."""
    left: str = ""
    """How its block was left: `end`, or the name of what went through it."""
    read: int = 0
    """Pieces that were taken."""

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in (self.body,) if isinstance(self.body, bytes) else self.body:
            self.read += 1
            if isinstance(piece, float | int):
                await asyncio.sleep(piece)
            elif isinstance(piece, Exception):
                raise piece
            else:
                yield piece


class ScriptedTransport:
    """Answers the n-th request with the n-th response, or error."""

    def __init__(self, *responses: Response | Exception) -> None:
        self.responses = list(responses)
        self.requests: list[HttpRequest] = []
        self.users = 0
        self.openings = 0

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[Response]:
        self.requests.append(request)
        response = self.responses[len(self.requests) - 1]
        if isinstance(response, Exception):
            raise response
        if response.delay:
            await asyncio.sleep(response.delay)
        try:
            yield response
        except BaseException as error:
            response.left = type(error).__name__
            raise
        response.left = "end"

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        self.users += 1
        self.openings += 1
        try:
            yield
        finally:
            self.users -= 1

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.body) for request in self.requests]


def request(text: str = "Hi", *, deadline: float = math.inf) -> ModelRequest:
    return ModelRequest(
        instructions="",
        transcript=Transcript([Message("user", (Text(text),))]),
        tools=(ToolSpec("look", "Look.", {"type": "object"}),),
        settings=Settings(),
        max_output=100,
        deadline=deadline,
    )
