"""Chat Completions: recorded streams, cut and flipped at every byte.

What the recordings say is held against the codec in `test_wire_recordings.py`; here is what becomes of them on a
bad line. The folder is `REMIT_WIRE_DIR`, or `../shared/wire` beside the repository.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from remit.errors import ModelError
from remit.messages import Reply
from remit.models.base import BlockDone, Chunk
from remit.models.wires.chat import ChatCodec
from remit.models.wires.dialects import DIALECTS
from remit.models.wires.sse import EventReader, ServerEvent

FOLDER = Path(os.environ.get("REMIT_WIRE_DIR") or Path(__file__).parents[2] / "shared" / "wire")


def recorded() -> Iterator[tuple[str, bytes]]:
    """Recorded streams of this wire, by name."""
    for folder in ("openai-chat", "openai-compat", "mistral"):
        for path in sorted((FOLDER / folder).glob("*.json")):
            for number, exchange in enumerate(json.loads(path.read_text())["exchanges"]):
                if "sse" in exchange["response"]:
                    yield f"{path.stem}-{number}", exchange["response"]["sse"].encode()


STREAMS = dict(recorded())

each_stream = pytest.mark.parametrize(
    "name",
    list(STREAMS)
    or [pytest.param("", marks=pytest.mark.skip(reason="there are no recordings here"))],
)


def read(events: Iterable[ServerEvent]) -> list[Chunk]:
    """What a stream gives, read to its reply or its end. Errors: `ModelError`."""
    decoder = ChatCodec(DIALECTS["compatible"]).decoder()
    chunks: list[Chunk] = []
    for event in events:
        chunks += decoder.feed(event)
        if chunks and isinstance(chunks[-1], Reply):
            return chunks
    return [*chunks, *decoder.end()]


def attempt(events: Iterable[ServerEvent]) -> Reply | None:
    """The reply; None for an attempt that failed with a typed error."""
    try:
        chunks = read(events)
    except ModelError:
        return None
    reply = chunks[-1]
    assert isinstance(reply, Reply)
    given = [chunk.block for chunk in chunks if isinstance(chunk, BlockDone)]
    assert given == list(reply.message.content)
    return reply


@each_stream
def test_a_stream_that_is_cut_at_any_byte_is_whole_or_a_failed_attempt(name: str) -> None:
    """C3: what passes for a reply is the whole reply; only its usage may be missing."""
    data = STREAMS[name]
    whole = attempt(EventReader().feed(data))
    reader = EventReader()
    events: list[ServerEvent] = []
    for end in range(1, len(data) + 1):
        came = list(reader.feed(data[end - 1 : end]))
        if not came:
            continue  # the same events as with one byte less
        events += came
        reply = attempt(events)
        if reply is not None:
            assert whole is None or reply.message == whole.message
            assert whole is None or reply.stop_reason is whole.stop_reason
            assert b'"finish_reason":"' in data[:end]


@each_stream
def test_a_stream_with_any_byte_flipped_is_a_reply_or_a_failed_attempt(name: str) -> None:
    """C3: never another exception, whatever the bytes."""
    data = bytearray(STREAMS[name])
    step = max(len(data) // 2_000, 1)
    for at in range(0, len(data), step):
        for bit in (0x01, 0x20, 0x80):
            data[at] ^= bit
            attempt(EventReader().feed(bytes(data)))
            data[at] ^= bit
