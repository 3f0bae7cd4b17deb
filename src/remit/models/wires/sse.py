"""The events in a stream of bytes (`text/event-stream`), however the bytes are cut.

Pure. It knows nothing of what the events mean; the limits keep a server that never ends a line from filling
the memory. Source: WHATWG HTML, section 9.2.6 (parsing an event stream).
"""

from __future__ import annotations

from collections.abc import Iterator
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
        """What has come and does not end in a line end yet."""
        self._scanned = 0
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """The events that are complete with this chunk. Errors: `ModelProtocolError` past the limit."""
        rest = self._rest
        rest += chunk
        if not self._begun:
            if len(rest) < len(_BOM) and _BOM.startswith(rest):
                return
            self._begun = True
            if rest.startswith(_BOM):
                del rest[: len(_BOM)]
        start = 0
        while True:
            end = self._line_end(max(start, self._scanned))
            if end is None:
                break
            line = bytes(rest[start:end])
            # "\r\n" is one end; a "\r" that comes last may be half of one, and waits.
            start = end + (2 if rest.startswith(b"\r\n", end) else 1)
            event = self._line(line)
            if event is not None:
                yield event
        del rest[:start]
        self._scanned = max(len(rest) - 1, 0)
        if len(rest) + self._size > MOST_EVENT_BYTES:
            raise ModelProtocolError(f"an event of the stream is over {MOST_EVENT_BYTES:,} bytes")

    def _line_end(self, start: int) -> int | None:
        rest = self._rest
        newline = rest.find(b"\n", start)
        carriage = rest.find(b"\r", start, None if newline < 0 else newline)
        if carriage >= 0:
            return None if carriage == len(rest) - 1 else carriage
        return None if newline < 0 else newline

    def _line(self, line: bytes) -> ServerEvent | None:
        """Take one line; an empty one ends an event."""
        if not line:
            name, data = self._name, self._data
            self._name, self._data, self._size = "", [], 0
            return ServerEvent(name, b"\n".join(data)) if data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
            if self._size > MOST_EVENT_BYTES:
                raise ModelProtocolError(
                    f"an event of the stream is over {MOST_EVENT_BYTES:,} bytes"
                )
        elif field == b"event":
            self._name = value.decode(errors="replace")
        return None
