"""The events in a stream of bytes (`text/event-stream`), however the bytes are cut.

Pure. It knows nothing of what the events mean; the limits keep a server that never ends a line from filling
the memory. Source: WHATWG HTML, section 9.2.6 (parsing an event stream).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from remit.errors import ModelProtocolError

__all__ = ["MOST_EVENT_BYTES", "EventReader", "ServerEvent"]

MOST_EVENT_BYTES: Final = 64_000_000
"""One event may not be larger: a provider's longest reply, with media, is far below."""

_BOM = b"\xef\xbb\xbf"


class ServerEvent(msgspec.Struct, frozen=True, gc=False):
    """One event."""

    event: str
    """Its name; empty where the stream names none."""
    data: bytes
    """Its data lines, joined by newlines."""


class EventReader:
    """Bytes in, whole events out. An event that the end of the stream cuts off is dropped."""

    def __init__(self) -> None:
        self._rest = bytearray()
        """What has come of a line that has not ended yet."""
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        """Bytes of the event that is being read."""
        self._head: bytes | None = b""
        """What has come while it may be a byte order mark; None once that is known."""
        self._returned = False
        """Whether the last byte was a carriage return: a line feed behind it ends no other line."""

    def feed(self, chunk: bytes) -> Iterable[ServerEvent]:
        """The events that are complete with this chunk, to be read before the next one is fed.

        Errors: `ModelProtocolError` past the limit, as they are read.
        """
        if self._head is not None:
            chunk = self._begun(chunk)
        if self._returned or b"\r" in chunk:
            chunk = self._with_plain_ends(chunk)
        rest = self._rest
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest += chunk
            self._bound(self._size + len(rest))
            return ()
        lines = bytes(rest) + chunk[:end] if rest else chunk[:end]
        rest[:] = chunk[end:]
        return self._events(lines)

    def _events(self, lines: bytes) -> Iterator[ServerEvent]:
        """The events in whole lines.

        Almost all have a name and one line of data, or that line alone: those are read at a glance, because a
        stream has tens of thousands.
        """
        *blocks, begun = lines.split(b"\n\n")
        whole = not (self._data or self._name)
        for block in blocks:
            if whole:
                head, data = b"", block
                if block.startswith(b"event: "):
                    head, _, data = block.partition(b"\n")
                if data.startswith(b"data: ") and b"\n" not in data:
                    if len(data) > MOST_EVENT_BYTES:
                        raise _too_long()
                    yield ServerEvent(head[7:].decode(errors="replace") if head else "", data[6:])
                    continue
            yield from self._read(block)
            yield from self._read(b"")
            whole = True
        if begun:
            yield from self._read(begun[:-1])
        self._bound(self._size + len(self._rest))

    def _read(self, lines: bytes) -> Iterator[ServerEvent]:
        """Lines by the letter; an empty one ends an event."""
        for line in lines.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                self._data.append(value)
                self._size += len(line)
                self._bound(self._size)
            elif field == b"event":
                self._name = value.decode(errors="replace")
            elif not line:
                name, data = self._name, self._data
                self._name, self._data, self._size = "", [], 0
                if data:
                    yield ServerEvent(name, b"\n".join(data))

    def _begun(self, chunk: bytes) -> bytes:
        """The beginning of a stream, without a byte order mark; nothing while there may be one."""
        head = (self._head or b"") + chunk
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _with_plain_ends(self, chunk: bytes) -> bytes:
        """Line feeds for whatever ends lines here."""
        if self._returned and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._returned = False
        if b"\r" in chunk:
            self._returned = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _bound(self, size: int) -> None:
        if size > MOST_EVENT_BYTES:
            raise _too_long()


def _too_long() -> ModelProtocolError:
    return ModelProtocolError(f"an event of the stream is over {MOST_EVENT_BYTES:,} bytes")
