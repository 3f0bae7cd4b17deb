"""Whatever comes from the other side of the Anthropic wire, it has a typed end."""

from __future__ import annotations

import contextlib
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anthropic_rig import (
    FILES,
    WIRE,
    begin,
    block,
    call,
    finish,
    part,
    read,
    reply,
    request,
    user,
)
from remit.errors import (
    ConfigurationError,
    ModelError,
    ModelUnavailable,
    TranscriptError,
)
from remit.messages import Message, Reply, Text
from remit.models.base import BlockDone
from remit.models.checked import checked_reply, is_usage
from remit.transcript import Transcript, validate

# Whatever comes


def survives(stream: bytes) -> None:
    """It ends in a reply or in an error of the model."""
    decoder = WIRE.decoder()
    assert decoder.usage is None
    try:
        chunks = read(stream, decoder)
    except ModelError:
        assert decoder.usage is None or is_usage(decoder.usage)
        return
    assert isinstance(chunks[-1], Reply)
    checked_reply(chunks[-1])
    told = [chunk.block for chunk in chunks if isinstance(chunk, BlockDone)]
    assert list(chunks[-1].message.content[: len(told)]) == told


STREAMS = [
    exchange["response"]["sse"].encode()
    for file in FILES
    for exchange in json.loads(file.read_text())["exchanges"]
    if "sse" in exchange["response"]
] or [begin() + block(0, call("a"), part('{"at":1}')) + finish("tool_use")]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_that_is_cut_anywhere_is_a_failed_attempt(stream: bytes) -> None:
    """C3: only what has its end is a reply."""
    whole = stream.rstrip()
    for end in range(len(whole)):
        with pytest.raises(ModelError):
            read(whole[:end])


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_with_any_byte_flipped_has_a_typed_end(stream: bytes) -> None:
    for at in range(len(stream)):
        for bit in (0x01, 0x20, 0x80):
            survives(stream[:at] + bytes([stream[at] ^ bit]) + stream[at + 1 :])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    [
        "index",
        "delta",
        "content_block",
        "message",
        "usage",
        "error",
        "text",
        "input",
        "name",
        "id",
        "content",
        "stop_reason",
        "citations",
        "iterations",
        "output_tokens",
        "details",
    ]
)
KINDS = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "text",
        "tool_use",
        "text_delta",
        "input_json_delta",
        "thinking",
        "signature_delta",
        "citations_delta",
        "compaction_delta",
        "message",
    ]
)
SHAPES = st.recursive(
    JSON,
    lambda inner: st.builds(
        lambda kind, fields: {"type": kind} | fields,
        KINDS,
        st.dictionaries(FIELDS, inner, max_size=4),
    ),
    max_leaves=6,
)


@given(st.lists(SHAPES, max_size=8))
def test_any_events_have_a_typed_end(events: list[Any]) -> None:
    lines = [f"data: {json.dumps(each)}\n\n".encode() for each in events]
    survives(b"".join(lines))
    survives(begin() + b"".join(lines) + finish("tool_use"))


@given(st.one_of(st.binary(), SHAPES.map(lambda shape: json.dumps(shape).encode())))
def test_any_body_has_a_typed_end(body: bytes) -> None:
    with contextlib.suppress(ModelError):
        checked_reply(WIRE.decoder().whole(body))
    survives(body)
    for status in (200, 400, 429, 500):
        assert isinstance(WIRE.fault(status, {}, body).error, ModelError)


@given(st.text(), st.text(), st.sampled_from(["Wed, 21 Oct 2026 07:28:00 GMT", "1e9", "-0", "inf"]))
def test_any_headers_say_how_long_to_wait_or_nothing(one: str, two: str, known: str) -> None:
    for after, date in ((one, two), (known, one), (one, known)):
        headers = {"retry-after": after, "retry-after-ms": two, "date": date, "request-id": one}
        error = WIRE.fault(429, headers, b"").error
        assert isinstance(error, ModelUnavailable)
        assert error.retry_after is None or 0 <= error.retry_after < float("inf")


@pytest.mark.parametrize("opening", [b"[", b'{"content":[', b'{"error":{"details":'])
def test_what_is_nested_too_deeply_has_a_typed_end(opening: bytes) -> None:
    body = opening * 100_000
    for deep in (
        body,
        b'{"content":[' + body,
        b'{"usage":' + body,
        b'{"type":"error","error":' + body,
    ):
        with pytest.raises(ModelError):
            WIRE.decoder().whole(deep)
        assert isinstance(WIRE.fault(400, {}, deep).error, ModelError)
        survives(b"data: " + deep + b"\n\n")


@given(SHAPES)
def test_any_body_is_read_back_or_refused(shape: Any) -> None:
    """T6: what is no request of this wire is a `TranscriptError`."""
    for body in (
        shape,
        {"messages": shape},
        {"messages": [shape]},
        {"messages": [{"role": "user", "content": [shape]}], "tools": shape, "system": shape},
    ):
        if isinstance(body, dict):
            try:
                parsed = WIRE.parse(body)
            except TranscriptError:
                continue
            validate(parsed.transcript)


# Recorded exchanges, spoilt in their structure

EXCHANGES = [each for file in FILES for each in json.loads(file.read_text())["exchanges"]]
ODD: list[Any] = [None, True, 0, -1, 1.5, 10**30, "", "x", "tool_use", "\0", [], {}, [1], [[]]]
BLOCKS: list[Any] = [
    {"type": "text"},
    {"type": 5},
    {"type": "remit.result", "tool_use_id": "a", "parts": [0]},
]
NAMES = ["type", "role", "content", "index", "delta", "text", "input", "container", "usage", "name"]


def spoilt(value: Any, chance: Random, share: float) -> Any:
    """The same JSON with some of it replaced, dropped, doubled, moved."""
    if chance.random() < share:
        return chance.choice([*ODD, *BLOCKS])
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if chance.random() > share / 2}
        if chance.random() < share:
            kept[chance.choice(NAMES)] = chance.choice([*ODD, *BLOCKS])
        return {name: spoilt(each, chance, share) for name, each in kept.items()}
    if isinstance(value, list):
        items = [spoilt(each, chance, share) for each in value if chance.random() > share / 2]
        if items and chance.random() < share:
            items.insert(chance.randrange(len(items)), chance.choice(items))
        return items
    return value


def goes_on(message: Message) -> None:
    """A reply can be stored, answered and sent back."""
    transcript = Transcript([user("x")])
    try:
        transcript.add_reply(message)
    except TranscriptError:
        return  # nothing was said
    if transcript.owed:
        with transcript.answering():
            pass
    else:
        transcript.say(Text("on"))
    json.loads(WIRE.encoder("m").encode(request(transcript), stream=True).body)


@pytest.mark.skipif(not FILES, reason="recorded traffic is not there")
@pytest.mark.parametrize("seed", range(4))
def test_spoilt_exchanges_have_a_typed_end_and_what_was_read_can_be_sent(seed: int) -> None:
    chance = Random(seed)
    for _ in range(150):
        exchange = chance.choice(EXCHANGES)
        share = chance.choice([0.01, 0.03, 0.1])
        response = exchange["response"]
        is_stream = "sse" in response
        if is_stream:
            lines = [line[6:] for line in response["sse"].split("\n") if line.startswith("data: ")]
            events = [spoilt(json.loads(line), chance, share) for line in lines]
            body = b"".join([f"data: {json.dumps(each)}\n\n".encode() for each in events])
        else:
            body = json.dumps(spoilt(response["body"], chance, share)).encode()
        with contextlib.suppress(ModelError):
            made = reply(body) if is_stream else WIRE.decoder().whole(body)
            goes_on(checked_reply(made).message)
        assert isinstance(WIRE.fault(400, {}, body).error, ModelError)
        asked = spoilt(exchange["request"]["body"], chance, share / 3)
        if not isinstance(asked, dict):
            continue
        with contextlib.suppress(TranscriptError, ConfigurationError):
            parsed = WIRE.parse(asked)
            validate(parsed.transcript)
            again = request(
                parsed.transcript,
                instructions=parsed.instructions,
                tools=parsed.tools,
                settings=parsed.settings,
            )
            json.loads(WIRE.encoder("m").encode(again, stream=True).body)
