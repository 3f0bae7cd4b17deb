"""What came from an endpoint with a good status, told apart: a stream, a whole reply, or no reply at all.

It goes by what the body begins with and not by what the header calls it: servers and proxies label streams as
text, replies as streams, and pages as anything. Pure; `endpoint.py` feeds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from remit.errors import ModelError, ModelProtocolError, ModelRejected
from remit.messages import Reply, Text, Usage
from remit.models.base import BlockDone, Chunk, TextDelta, Underway
from remit.models.transport import HttpResponse
from remit.models.wires.codec import Decoder
from remit.models.wires.sse import EventReader, ServerEvent

__all__ = ["Received", "chunks_of"]

MOST_WHOLE_BYTES: Final = 64_000_000
"""A reply that comes whole may not be larger; with media the longest is far below."""
MOST_STREAM_BYTES: Final = 512_000_000
"""A stream may not be larger, all its events and their frames together."""

_BOM: Final = b"\xef\xbb\xbf"
_GZIP: Final = b"\x1f\x8b"
_FIELDS: Final = b"deir:"
"""How the lines of a stream of events begin: `data`, `event`, `id`, `retry`, and a comment."""


class Received:
    """One response. Bytes in, chunks out."""

    __slots__ = (
        "_decoder",
        "_events",
        "_head",
        "_host",
        "_is_usage_told",
        "_labelled",
        "_size",
        "_unshown",
        "_whole",
        "complete",
    )

    def __init__(self, decoder: Decoder, response: HttpResponse, host: str) -> None:
        self._decoder = decoder
        self._host = host
        self._labelled = "event-stream" in response.headers.get("content-type", "").lower()
        self._head = b""
        """What has come while it is not known what it is."""
        self._events: EventReader | None = None
        self._whole: bytearray | None = None
        self._size = 0
        self._unshown = 0
        """What the decoder had seen and nobody was shown, when it was last told."""
        self._is_usage_told = False
        self.complete = False
        """Whether the reply has come."""

    @property
    def content(self) -> int:
        """How much of what counts has come: content of a stream, bytes of a whole reply."""
        return self._decoder.content + (0 if self._whole is None else len(self._whole))

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """What is complete with these bytes. Errors: `ModelError`."""
        self._size += len(data)
        if self._events is None and self._whole is None:
            data = self._begun(data)
        if self._events is not None:
            if self._size > MOST_STREAM_BYTES:
                raise ModelProtocolError(f"a stream is over {MOST_STREAM_BYTES:,} bytes")
            yield from self._said(self._events.feed(data))
        elif self._whole is not None:
            if self._size > MOST_WHOLE_BYTES:
                raise ModelProtocolError(f"a reply is over {MOST_WHOLE_BYTES:,} bytes")
            self._whole += data

    def _said(self, events: Iterable[ServerEvent]) -> Iterator[Chunk]:
        """What events come to, up to the reply: what stands behind it is of no interest."""
        feed = self._decoder.feed
        try:
            for event in events:
                for chunk in feed(event):
                    if isinstance(chunk, Reply):
                        self.complete = True
                    yield chunk
                if self.complete:
                    return
        except ModelError:
            yield from self._news()
            raise
        yield from self._news()

    def end(self) -> Iterator[Chunk]:
        """The body is over. Errors: `ModelError`."""
        if self._events is not None:
            yield from self._decoder.end()
        elif self._whole is not None:
            yield from chunks_of(self._decoder.whole(bytes(self._whole)))
        else:
            raise ModelProtocolError(
                f"the answer of {self._host} is empty: check the base URL, and the log of the server if it is yours"
            )

    def _news(self) -> Iterator[Underway]:
        """What has come since the last time that is neither shown nor complete."""
        decoder = self._decoder
        unshown, self._unshown = decoder.unshown - self._unshown, decoder.unshown
        usage = None if self._is_usage_told else decoder.usage
        if usage is not None:
            self._is_usage_told = True
        if unshown or usage is not None:
            yield Underway(unshown, usage)

    def _begun(self, data: bytes) -> bytes:
        """Tell apart what comes, as soon as it can be; all of it that is known, or nothing yet."""
        self._head += data
        start = self._head.removeprefix(_BOM).lstrip()
        if not start or _BOM.startswith(self._head):
            return b""
        data, self._head = self._head, b""
        if start.startswith((b"{", b"[")):
            self._whole = bytearray()
            return start
        if start.startswith(b"<"):
            raise ModelRejected(
                f"{self._host} answered with a web page: it is a site and no model, or a proxy on the way that wants "
                "something of you; check the base URL and the proxy",
                usage=Usage(),
            )
        if start.startswith(_GZIP):
            raise ModelProtocolError(
                f"what {self._host} answered is compressed and does not say so: a proxy on the way is at fault"
            )
        if not self._labelled and start[0] not in _FIELDS:
            raise ModelProtocolError(
                f"what {self._host} answered is neither JSON nor a stream of events: {_shown(start)}; check the "
                "base URL"
            )
        self._events = EventReader()
        return data


def chunks_of(reply: Reply) -> Iterator[Chunk]:
    """A whole reply as a stream would have given it."""
    for block in reply.message.content:
        if isinstance(block, Text) and block.text:
            yield TextDelta(block.text)
        yield BlockDone(block)
    yield reply


def _shown(data: bytes) -> str:
    """The beginning of bytes that nobody expected, for people."""
    return repr(data[:60].decode("ascii", "replace").replace("\ufffd", "?"))
