"""The events in a stream of bytes, however they are cut and whatever ends the lines."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import ModelProtocolError
from remit.models.wires import sse
from remit.models.wires.sse import EventReader, ServerEvent

Told = list[tuple[str, bytes]]


def read(*chunks: bytes) -> Told:
    reader = EventReader()
    return [(event.event, event.data) for chunk in chunks for event in reader.feed(chunk)]


def plainly(stream: bytes) -> Told:
    """The same by the letter of the standard, line by line, from the whole."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: Told = []
    name, data = "", list[bytes]()
    for line in text.split(b"\n")[:-1]:
        if not line:
            if data:
                events.append((name, b"\n".join(data)))
            name, data = "", []
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode(errors="replace")
    return events


LINES = st.one_of(
    st.sampled_from(
        [b"", b"", b"data", b"data:", b"data: x", b"data:  y", b"event", b"event: e", b"event:f"]
    ),
    st.sampled_from([b": ping", b"id: 3", b"retry: 9", b" data: z", b"datax: q", b"data : q"]),
    st.binary(max_size=6).filter(lambda line: not set(line) & {10, 13}).map(b"data: ".__add__),
)
ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])
STREAMS = st.builds(
    lambda bom, lines, rest: bom + b"".join(a + b for a, b in lines) + rest,
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb"]),
    st.lists(st.tuples(LINES, ENDS), max_size=12),
    st.sampled_from([b"", b"data: cut", b"\xef\xbb\xbf"]),
)


@given(STREAMS, st.data())
def test_events_are_those_of_the_standard_wherever_the_stream_is_cut(
    stream: bytes, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    edges = [0, *places, len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert read(*chunks) == plainly(stream)
    assert read(*[stream[at : at + 1] for at in range(len(stream))]) == plainly(stream)


def test_an_event_that_the_end_cuts_off_is_dropped() -> None:
    assert read(b"data: whole\n\ndata: cut\n") == [("", b"whole")]


def test_an_event_comes_with_its_last_byte_and_not_with_the_next_one() -> None:
    reader = EventReader()
    assert list(reader.feed(b"event: e\ndata: 1\n")) == []
    assert list(reader.feed(b"\n")) == [ServerEvent("e", b"1")]
    assert list(reader.feed(b"data: 2\r\r")) == [ServerEvent("", b"2")]
    assert list(reader.feed(b"\ndata: 3\n\n")) == [ServerEvent("", b"3")]


@pytest.mark.parametrize(
    "chunk", [b"data: xxxxxxxxxx", b"data: xxx\n", b"xxxxxxxxxxxxxxxx", b"data\n"]
)
def test_an_event_without_end_is_left_at_a_bound(
    chunk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "MOST_EVENT_BYTES", 1_000)
    reader = EventReader()
    with pytest.raises(ModelProtocolError, match="over 1,000 bytes"):
        for _ in range(2_000):
            list(reader.feed(chunk))


def test_many_events_are_no_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_EVENT_BYTES", 1_000)
    assert len(read(*[b"data: 0123456789\n\n" * 50] * 20)) == 1_000
