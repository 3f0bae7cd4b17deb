"""Recorded streams, cut at every byte and with bits turned over: a typed end or a whole reply, never anything else.

In memory and on virtual time, through a whole endpoint; what is random is fixed by its seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit as rm
from effort import one_in
from remit import Reply
from remit.models.base import BlockDone, Chunk, Model, ModelRequest, Settings
from remit.models.endpoint import Endpoint
from remit.models.transport import HttpRequest
from remit.models.wires import codec
from remit.testing import run_virtual
from remit.testing.serve import MemoryTransport, ScriptedProvider
from remit.transcript import Transcript
from wire_rig import RECORDED, on_every_wire

FOLDERS = {
    "anthropic": "anthropic",
    "openai": "openai-responses",
    "openai-chat": "openai-chat",
    "openai-compat": "openai-compat",
}


class Canned:
    """A transport that gives one body, whatever is asked."""

    def __init__(self, *, content_type: str = "text/event-stream") -> None:
        self.pieces: tuple[bytes, ...] = ()
        self.status = 200
        self.headers: Mapping[str, str] = {"content-type": content_type}

    @contextlib.asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[Canned]:
        del request
        yield self

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        yield

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


def request() -> ModelRequest:
    return ModelRequest(
        instructions="",
        transcript=Transcript([rm.Message("user", (rm.Text("Hi."),))]),
        tools=(),
        settings=Settings(),
        max_output=1_000,
        deadline=asyncio.get_running_loop().time() + 1_000,
    )


async def ask(model: Model) -> list[Chunk] | rm.ModelError:
    """What one request gives: chunks that keep the contract, or a typed error."""
    chunks: list[Chunk] = []
    failed: rm.ModelError | None = None
    try:
        async for chunk in model.stream(request()):
            chunks.append(chunk)
    except rm.ModelError as error:
        failed = error
    if failed is not None:
        assert str(failed)
        assert not any(isinstance(chunk, Reply) for chunk in chunks), "an error after the reply"
        return failed
    assert isinstance(chunks[-1], Reply)
    blocks = tuple(chunk.block for chunk in chunks if isinstance(chunk, BlockDone))
    assert blocks == chunks[-1].message.content
    return chunks


def endpoint(wire: str, transport: Any) -> Endpoint:
    wire = "openai-chat" if wire == "openai-compat" else wire
    return Endpoint(
        f"{wire}:m", codec(wire), transport, base_url="http://provider.test/v1", model="m"
    )


def fed(
    wire: str, bodies: Iterator[tuple[bytes, ...]], *, content_type: str = "text/event-stream"
) -> list[Any]:
    """What becomes of each body."""
    transport = Canned(content_type=content_type)
    model = endpoint(wire, transport)

    async def main() -> list[Any]:
        found: list[Any] = []
        for pieces in bodies:
            transport.pieces = pieces
            found.append(await ask(model))
        return found

    return run_virtual(main)


@cache
def recorded(wire: str, kind: str) -> list[tuple[str, bytes]]:
    """Recorded answers: streams (`sse`) or whole ones (`body`), each with the name of its file."""
    found: list[tuple[str, bytes]] = []
    for file in sorted((RECORDED / FOLDERS[wire]).glob("*.json")):
        for number, exchange in enumerate(json.loads(file.read_text())["exchanges"]):
            answer = exchange["response"]
            if answer["status"] == 200 and answer.get(kind):
                told = answer[kind]
                data = told.encode() if isinstance(told, str) else json.dumps(told).encode()
                found.append((f"{file.stem}-{number}", data))
    return found


def played(wire: str) -> bytes:
    """A stream of our own, for where there are no recordings."""
    calls = [("look_up", {"order": n, "note": "größer → 好"}) for n in range(2)]
    provider = ScriptedProvider([["Let me see.", *calls]], wire)
    transport = MemoryTransport(provider)
    seen: list[bytes] = []

    class Tee(MemoryTransport):
        @contextlib.asynccontextmanager
        async def send(self, request: HttpRequest) -> AsyncGenerator[Any]:
            async with transport.send(request) as response:
                data = b"".join([chunk async for chunk in response.chunks()])
                seen.append(data)
                canned = Canned()
                canned.pieces = (data,)
                yield canned

    async def main() -> None:
        await ask(Tee(provider).model())

    run_virtual(main)
    return seen[0]


def streams(wire: str) -> list[tuple[str, bytes]]:
    ours = [] if wire == "openai-compat" else [("played", played(wire))]
    return [*ours, *(recorded(wire, "sse") if RECORDED.is_dir() else ())]


def cuts_of(name: str, data: bytes) -> list[int]:
    """Where a stream is cut; the last is its end."""
    if name == "played" or len(data) < 3_500:
        return [*one_in(8, range(len(data))), len(data)]
    rng, cuts, start = random.Random(41), {len(data)}, 0
    while (end := data.find(b"\n\n", start)) >= 0:
        cuts |= {end - 1, end, end + 1, end + 2, rng.randrange(start, end + 1)}
        start = end + 2
    return [*one_in(8, sorted(cuts)[:: max(1, len(cuts) // 600)]), len(data)]


@pytest.mark.parametrize("wire", FOLDERS)
def test_a_stream_that_ends_at_any_byte_is_no_reply_until_it_said_so(wire: str) -> None:
    """case 15: before the terminal event every cut is a failed attempt; nothing that was cut passes for whole.

    Ours is cut at every byte. A cut inside of an event is a cut before it, since an event that is not whole is
    dropped: long recordings are cut at the end of every event, around it and somewhere inside.
    """
    for name, data in streams(wire):
        cuts = cuts_of(name, data)
        results = fed(wire, ((data[:cut],) for cut in cuts))
        whole = results[-1]
        if isinstance(whole, rm.ModelError):
            continue  # it ends in an error, and what came before may have been a reply of its own
        passed = [
            cut
            for cut, each in zip(cuts, results, strict=True)
            if not isinstance(each, rm.ModelError)
        ]
        for cut in passed:
            reply = results[cuts.index(cut)][-1]
            assert reply.message == whole[-1].message, f"{name} cut at {cut} of {len(data)}"
            assert reply.stop_reason == whole[-1].stop_reason, f"{name} cut at {cut} of {len(data)}"


@pytest.mark.parametrize("wire", FOLDERS)
def test_bytes_that_are_turned_over_end_typed(wire: str) -> None:
    """case 15: whatever a byte becomes, there is a reply that keeps the contract, or a `ModelError`.

    Of ours every byte is turned over, of recordings some.
    """
    rng = random.Random(42)
    for name, data in streams(wire):
        most = len(data) if name == "played" else 250
        places = one_in(8, rng.sample(range(len(data)), min(len(data), most)))
        spoilt = (
            (data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :],)
            for place in places
        )
        fed(wire, spoilt)
        fed(wire, ((data[:place] + data[place + rng.randrange(200) :],) for place in places[:60]))


@pytest.mark.parametrize("wire", FOLDERS)
def test_a_whole_reply_that_is_cut_or_spoilt_ends_typed(wire: str) -> None:
    """case 15: the same for replies that come in one piece; a cut one is never taken for whole."""
    if not RECORDED.is_dir():
        pytest.skip(f"there are no recordings at {RECORDED}")
    rng = random.Random(43)
    for name, data in recorded(wire, "body"):
        cuts = one_in(8, rng.sample(range(len(data)), min(len(data), 120)))
        results = fed(wire, ((data[:cut],) for cut in cuts), content_type="application/json")
        assert all(isinstance(each, rm.ModelError) for each in results), name
        spoilt = (
            (data[:cut] + bytes([data[cut] ^ (1 << rng.randrange(8))]) + data[cut + 1 :],)
            for cut in cuts
        )
        fed(wire, spoilt, content_type="application/json")


@on_every_wire
def test_a_stream_is_the_same_however_it_is_cut_into_pieces(wire: str) -> None:
    """case 15: bytes come as they like; letters of several bytes are cut too."""
    data = played(wire)
    (whole,) = fed(wire, iter([(data,)]))
    rng = random.Random(44)
    for size in (1, 2, 3, 7, 64):
        pieces = tuple(data[start : start + size] for start in range(0, len(data), size))
        (found,) = fed(wire, iter([pieces]))
        assert found[-1] == whole[-1]
    for _ in range(20):
        places = sorted(rng.sample(range(1, len(data)), 30))
        pieces = tuple(data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True))
        (found,) = fed(wire, iter([pieces]))
        assert found[-1] == whole[-1]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["message", "content", "choices", "output", "type"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "message",
                    "content",
                    "choices",
                    "output",
                    "delta",
                    "index",
                    "usage",
                    "item",
                    "error",
                    "text",
                    "name",
                    "id",
                    "arguments",
                    "tool_calls",
                    "function",
                    "finish_reason",
                    "stop_reason",
                    "response",
                    "status",
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@on_every_wire
@given(values=st.lists(JSON, max_size=6), streamed=st.booleans())
def test_json_of_any_shape_ends_typed(wire: str, values: list[Any], streamed: bool) -> None:
    """case 15: a server that answers JSON which nobody expected cannot raise anything but a `ModelError`."""
    if streamed:
        lines = [b"data: %b\n\n" % json.dumps(value).encode() for value in values]
        fed(wire, iter([(b"".join(lines),)]))
    else:
        fed(
            wire,
            iter([(json.dumps(values[0] if values else None).encode(),)]),
            content_type="application/json",
        )


@on_every_wire
@given(
    data=st.binary(max_size=200),
    status=st.sampled_from([200, 400, 401, 404, 413, 429, 500, 529, 599]),
)
def test_bytes_of_any_kind_under_any_status_end_typed(wire: str, data: bytes, status: int) -> None:
    """case 15: errors too are read with care: their bodies come from anybody."""
    transport = Canned(content_type="application/json")
    transport.status, transport.pieces = status, (data,)
    found = run_virtual(lambda: ask(endpoint(wire, transport)))
    assert isinstance(found, rm.ModelError)


@on_every_wire
@given(
    value=JSON, status=st.sampled_from([400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503, 529])
)
def test_error_bodies_of_any_shape_end_typed(wire: str, value: Any, status: int) -> None:
    """case 15: the same for JSON that only looks like an error."""
    transport = Canned(content_type="application/json")
    transport.headers = {"content-type": "application/json", "retry-after": str(value)[:40]}
    transport.status, transport.pieces = status, (json.dumps({"error": value}).encode(),)
    found = run_virtual(lambda: ask(endpoint(wire, transport)))
    assert isinstance(found, rm.ModelError)
    if isinstance(found, rm.ModelUnavailable) and found.retry_after is not None:
        assert 0 <= found.retry_after < float("inf")
