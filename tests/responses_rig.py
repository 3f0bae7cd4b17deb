"""What the tests of OpenAI Responses share: requests, replies, and a provider that keeps what it is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from remit.errors import ModelUnavailable
from remit.messages import Reply
from remit.models.base import Chunk, ModelRequest, Settings, ToolSpec
from remit.models.transport import HttpRequest
from remit.models.wires.codec import Decoder, Encoder
from remit.models.wires.responses import ResponsesCodec
from remit.models.wires.sse import EventReader
from remit.testing import Refused, judge
from remit.transcript import Transcript

WIRE = ResponsesCodec()
LOOK = ToolSpec("look", "Look at it.", {"type": "object", "properties": {"at": {"type": "string"}}})

Item = dict[str, Any]


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
        instructions, transcript, tools, settings or Settings(), max_output, 0.0, output_schema
    )


def body_of(made: ModelRequest, encoder: Encoder | None = None) -> dict[str, Any]:
    """The body of a request, read."""
    encoder = encoder or WIRE.encoder("gpt-x")
    return json.loads(encoder.encode(made, stream=True).body)


def streamed(data: bytes, decoder: Decoder | None = None) -> list[Chunk]:
    decoder = decoder or WIRE.decoder()
    chunks: list[Chunk] = []
    for event in EventReader().feed(data):
        chunks += decoder.feed(event)
    return [*chunks, *decoder.end()]


def reply_of(chunks: Sequence[Chunk]) -> Reply:
    assert isinstance(chunks[-1], Reply)
    return chunks[-1]


# --- what a provider says ----------------------------------------------------------------------------


def text(n: int, words: str, **more: Any) -> Item:
    part = {"type": "output_text", "text": words, "annotations": [], "logprobs": []}
    fields = {"id": f"msg_{n}", "status": "completed", "role": "assistant", "content": [part]}
    return {"type": "message", **fields, **more}


def call(n: int, arguments: str = "{}", **more: Any) -> Item:
    fields = {"id": f"fc_{n}", "call_id": f"call_x{n}", "name": "look", "arguments": arguments}
    return {"type": "function_call", **fields, "status": "completed", **more}


def reasoning(n: int) -> Item:
    return {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": f"sealed {n}"}


def response(*output: Item, n: int = 1, status: str = "completed", **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 110,
    }
    made = {"id": f"resp_{n}", "object": "response", "status": status, "output": list(output)}
    return {**made, "error": None, "incomplete_details": None, "usage": usage, **more}


def events_of(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events that stream a response, as the provider sends them."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index, "item_id": item.get("id")}
        opened = {**item, "status": "in_progress"}
        if "arguments" in item:
            opened["arguments"] = ""
        if "content" in item:
            opened["content"] = []
        events.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        for piece in _pieces(item.get("arguments", "")):
            events.append({"type": "response.function_call_arguments.delta", **at, "delta": piece})
        for part in item.get("content", ()):
            name = "refusal" if part["type"] == "refusal" else "text"
            kind = "refusal" if name == "refusal" else "output_text"
            for piece in _pieces(part[name]):
                events.append({"type": f"response.{kind}.delta", **at, "delta": piece})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{whole['status']}", "response": dict(whole)})
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


def _pieces(words: str) -> list[str]:
    return [words[at : at + 4] for at in range(0, len(words), 4)]


def sse(events: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


# --- a provider that keeps what it is sent ------------------------------------------------------------


class Provider:
    """Answers with one output after another, refuses what the provider refuses, and counts what it is sent.

    A fault stands in the list where it happens: `lost` keeps the response and loses the connection, `forgets`
    forgets every response before it answers.
    """

    def __init__(
        self, *outputs: list[Item] | str, refuses: Callable[[Any], Any] | None = None
    ) -> None:
        self.judge = judge("openai")
        self.bodies: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self._outputs = list(outputs)
        self._refuses = refuses
        self._issued: list[dict[str, Any]] = []

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[_Answer]:
        body = json.loads(request.body)
        self.bodies.append(body)
        yield self._answer(body)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        yield

    def _answer(self, body: dict[str, Any]) -> _Answer:
        step = self._outputs[0]
        if step == "forgets":
            self._outputs.pop(0)
            step = self._outputs[0]
            self.judge = judge("openai")
            for whole in self._issued:  # what it sealed it can still read
                self.judge.response({**whole, "store": False})
        refused = self._refuses(body) if self._refuses else None
        if refused is not None:
            self.refusals.append(refused["error"]["message"])
            return _Answer(400, json.dumps(refused).encode())
        try:
            self.judge.request(body)
        except Refused as error:
            self.refusals.append(error.text)
            return _Answer(error.status, json.dumps(error.body).encode())
        self._outputs.pop(0)
        lost = step == "lost"
        output = self._outputs[0] if lost else step
        assert isinstance(output, list)
        # What was lost is answered with other words when it is asked for again.
        whole = response(*[_again(item, lost=lost) for item in output], n=len(self._issued) + 1)
        self._issued.append(whole)
        self.judge.response(whole, body)
        data = sse(events_of(whole))
        return _Answer(200, data[: len(data) // 2] if lost else data, lost=lost)

    def inputs(self) -> Iterator[list[str]]:
        """What each request held, by type and by what was called."""
        for body in self.bodies:
            yield [
                str(item.get("call_id") or item.get("type", item.get("role")))
                for item in body["input"]
            ]


def _again(item: Item, *, lost: bool) -> Item:
    if not lost:
        return item
    return {**item, "id": f"{item['id']}_lost"} | (
        {"call_id": f"{item['call_id']}_lost"} if "call_id" in item else {}
    )


class _Answer:
    def __init__(self, status: int, body: bytes, *, lost: bool = False) -> None:
        self.status = status
        self._body = body
        self._lost = lost

    @property
    def headers(self) -> Mapping[str, str]:
        return {"content-type": "text/event-stream" if self.status == 200 else "application/json"}

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body
        if self._lost:
            raise ModelUnavailable("the connection was lost")
