"""What goes wrong between a provider and its client. An item of a script may be one of these.

    Refused      the provider's own error, in its words
    Answer       any response over HTTP: a proxy's page, JSON of another API
    Raw          bytes on the connection that need not be HTTP at all
    Cut          a reply that breaks off
    Stalled      a reply that keeps the connection open and says nothing more
    Fails        a reply that turns into an error event
    Garbled      a reply with foreign bytes in it
    Doubled      a stream that says every event twice
    Dripped      a reply in small pieces
    Mislabelled  a reply under another content type
    Gzipped      a reply that says it is compressed, truly or not
    Whole        a reply as one JSON value, though a stream was asked for

Those from `Cut` on spoil an item, and can be put into one another: `Cut(Dripped("Hello"), at=40)`.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args, runtime_checkable

from remit.errors import ConfigurationError
from remit.testing.serve.turn import ErrorKind, Turn, Wire, json_bytes
from remit.testing.serve.written import JSON, Frame, Written

if TYPE_CHECKING:
    from remit.testing.serve.provider import Act

__all__ = [
    "HTML_PAGE",
    "Answer",
    "Cut",
    "Doubled",
    "Dripped",
    "Fails",
    "Garbled",
    "Gzipped",
    "Mislabelled",
    "Raw",
    "Refused",
    "Spoils",
    "Stalled",
    "Whole",
]

HTML_PAGE: Final = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>"
    b"<body><h1>Bad Gateway</h1><p>The proxy got no answer.</p></body></html>\n"
)


@runtime_checkable
class Spoils(Protocol):
    """A fault of a reply: what was written becomes something else."""

    @property
    def says(self) -> Act:
        """The reply as it would have been."""
        ...

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        """`turn` is None where what is spoilt is no turn but another answer."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider refuses the request: status, body and words are its own."""

    kind: ErrorKind
    text: str | None = None
    """None: its usual one."""
    _: KW_ONLY
    retry_after: float | None = None
    """Seconds, as the header says."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for a kind that there is not."""
        if self.kind not in get_args(ErrorKind):
            raise ConfigurationError(
                f"Refused({self.kind!r}): there are {', '.join(get_args(ErrorKind))}"
            )


@dataclass(frozen=True, slots=True)
class Answer:
    """Any response."""

    body: bytes = HTML_PAGE
    status: int = 200
    content_type: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes on the connection, head and all, which is closed after them."""

    data: bytes = b"SSH-2.0-OpenSSH_9.6\r\n"

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for what are no bytes."""
        if not isinstance(self.data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ConfigurationError("Raw(data): give bytes, as they stand on the connection")


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks."""

    says: Act = ()
    _: KW_ONLY
    at: int | Literal["head", "end"] = "end"
    """After so many bytes of the body, before the head, or after the last content and before what says that it was
    the last."""
    clean: bool = False
    """The body ends as HTTP wants it: nobody but the reader of the stream can notice."""

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        del wire, turn
        if self.at == "head":
            return Written(raw=True, drops=True)
        if self.at != "end":
            frames = tuple(_first(written.frames, self.at))
        elif written.streams:
            frames = tuple([frame for frame in written.frames if not frame.closing])
        else:
            frames = tuple(_first(written.frames, len(written.body) - 1))
        return _changed(written, frames, drops=not self.clean)


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing more comes, but pings."""

    says: Act = ()
    _: KW_ONLY
    after: int = 2
    """So many events come first."""
    pings: int = 1_000_000
    """So many pings, and then silence."""
    every: float = 5.0
    """Seconds between pings."""

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        del turn
        frames = written.frames[: self.after]
        if written.streams and self.pings:
            # One frame that the sender repeats: a million pings need no memory.
            frames += (Frame(wire.ping, self.every, repeat=self.pings),)
        return _changed(written, (*frames, Frame(b"", math.inf)), drops=True)


@dataclass(frozen=True, slots=True)
class Fails:
    """A stream turns into an error event."""

    says: Act = ()
    kind: ErrorKind = "overloaded"
    text: str | None = None
    _: KW_ONLY
    after: int | None = None
    """So many events come first; None: all content."""

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        del turn
        frames = tuple([frame for frame in written.frames if not frame.closing])
        failure = Frame(wire.error_event(self.kind, self.text), closing=True)
        return _changed(written, (*frames[: self.after], failure))


@dataclass(frozen=True, slots=True)
class Garbled:
    """Foreign bytes in a body."""

    says: Act = ()
    data: bytes = b"\x00\xff\xfe{]garbage\n\ndata: {]\n\n"
    _: KW_ONLY
    at: int = 0
    """After so many bytes."""

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        del wire, turn
        body = written.body
        parts = (body[: self.at], self.data, body[self.at :])
        frames = [Frame(part) for part in parts if part]
        return _changed(written, tuple(frames))


@dataclass(frozen=True, slots=True)
class Doubled:
    """Every event comes twice."""

    says: Act = ()

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        del wire, turn
        return _changed(written, tuple([each for each in written.frames for _ in range(2)]))


@dataclass(frozen=True, slots=True)
class Dripped:
    """Small pieces."""

    says: Act = ()
    _: KW_ONLY
    bytes: int = 1
    """In each piece."""
    seconds: float = 0.0
    """Between pieces."""

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        del wire, turn
        return _changed(written, tuple(self._drops(written.frames)))

    def _drops(self, frames: tuple[Frame, ...]) -> Iterator[Frame]:
        for frame in frames:
            pause = frame.pause
            for start in range(0, len(frame.data), self.bytes):
                piece = frame.data[start : start + self.bytes]
                yield Frame(piece, pause + self.seconds, frame.closing)
                pause = 0.0


@dataclass(frozen=True, slots=True)
class Mislabelled:
    """Another content type."""

    says: Act = ()
    content_type: str = "text/plain; charset=utf-8"

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        del wire, turn
        return _headed(written, {"content-type": self.content_type})


@dataclass(frozen=True, slots=True)
class Gzipped:
    """It says that it is compressed."""

    says: Act = ()
    _: KW_ONLY
    lies: bool = False
    """And it is not."""

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        del wire, turn
        headed = _headed(written, {"content-encoding": "gzip"})
        packed = written.body if self.lies else gzip.compress(written.body, mtime=0)
        return _changed(headed, (Frame(packed),))


@dataclass(frozen=True, slots=True)
class Whole:
    """One JSON value, though a stream was asked for."""

    says: Act = ()

    def spoil(self, written: Written, wire: Wire, turn: Turn | None) -> Written:
        if turn is None:
            return written
        headed = _headed(written, {"content-type": JSON})
        return _changed(headed, (Frame(json_bytes(wire.whole(turn))),))


def _first(frames: tuple[Frame, ...], size: int) -> Iterator[Frame]:
    """The frames of so many bytes."""
    for frame in frames:
        if size <= 0:
            return
        yield Frame(frame.data[:size], frame.pause, frame.closing)
        size -= len(frame.data)


def _changed(written: Written, frames: tuple[Frame, ...], *, drops: bool = False) -> Written:
    drops = drops or written.drops
    return Written(written.status, written.headers, frames, drops, written.raw)


def _headed(written: Written, headers: Mapping[str, str]) -> Written:
    headers = {**written.headers, **headers}
    return Written(written.status, headers, written.frames, written.drops, written.raw)
