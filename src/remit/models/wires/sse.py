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
        end = chunk.rfind(b"\n")
        if end < 0:
            rest += chunk
            self._bound(self._size + len(rest))
            return ()
        lines = (bytes(rest) + chunk[:end] if rest else chunk[:end]).split(b"\n")
        rest[:] = chunk[end + 1 :]
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> Iterator[ServerEvent]:
        """One loop for all lines: a stream has tens of thousands, and a call for each would cost more than they do."""
        name, data, size = self._name, self._data, self._size
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
                size += len(line)
            elif line.startswith(b"event:"):
                name = (line[7:] if line.startswith(b" ", 6) else line[6:]).decode(errors="replace")
            elif not line:
                if data:
                    self._bound(size)
                    yield ServerEvent(name, data[0] if len(data) == 1 else b"\n".join(data))
                name, data, size = "", [], 0
            elif line == b"data":
                data.append(b"")
                size += 1
            elif line == b"event":
                name = ""
        self._name, self._data, self._size = name, data, size
        self._bound(size + len(self._rest))

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
            raise ModelProtocolError(f"an event of the stream is over {MOST_EVENT_BYTES:,} bytes")
