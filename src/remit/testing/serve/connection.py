"""HTTP/1.1 as far as clients of providers need it: one connection, its requests and its responses.

Its own few lines instead of a server library: faults need every byte in hand. What comes in is bounded, and
what is no request is hung up on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from remit.testing.serve.provider import Received, received
from remit.testing.serve.written import Frame, Written

if TYPE_CHECKING:
    from remit.testing.serve.server import Server

__all__ = ["Connection"]

_MOST_HEAD_BYTES: Final = 64_000
_MOST_BODY_BYTES: Final = 64_000_000
_NO_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_IDLE_SECONDS: Final = 60.0
"""A connection that sends no request for so long is closed."""


class Connection(asyncio.Protocol):
    """One connection: requests one after another, until somebody closes it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._news = asyncio.Event()
        """Something came, or the client is gone."""
        self._gone = asyncio.Event()
        self._room = asyncio.Event()
        """What is sent does not pile up."""
        self._room.set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP and TLS have no other
        self._transport = transport
        self._server.begin(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._news.set()

    def eof_received(self) -> None:
        self._lost()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._lost()

    def _lost(self) -> None:
        self._gone.set()
        self._news.set()
        self._room.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    async def run(self) -> None:
        """Answer until the client or the server has enough."""
        transport = self._transport
        assert transport is not None  # noqa: S101 - it runs from `connection_made` on
        try:
            async with asyncio.timeout(None) as limit:
                while True:
                    limit.reschedule(asyncio.get_running_loop().time() + _IDLE_SECONDS)
                    request = await self._request()
                    if request is None:
                        if self._buffer:
                            transport.write(_NO_REQUEST)
                        return
                    limit.reschedule(None)
                    if not await self._send(transport, self._server.answer(request)):
                        return
        except TimeoutError:
            return
        finally:
            transport.close()

    # Requests

    async def _request(self) -> Received | None:
        """The next request; None where none comes any more, or what comes is none."""
        head = await self._until(b"\r\n\r\n")
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        method, _, rest = first.partition(" ")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = await self._chunked()
        else:
            size = headers.get("content-length", "0")
            body = await self._exactly(int(size)) if size.isdecimal() else None
        return None if body is None else received(method, rest.rpartition(" ")[0], headers, body)

    async def _chunked(self) -> bytes | None:
        body = bytearray()
        while True:
            line = await self._until(b"\r\n")
            try:
                size = int((line or b"").partition(b";")[0], 16)
            except ValueError:
                return None
            chunk = await self._exactly(size + 2)
            if chunk is None or len(body) + size > _MOST_BODY_BYTES:
                return None
            body += chunk[:-2]
            if not size:
                return bytes(body)

    async def _until(self, end: bytes) -> bytes | None:
        """What comes before `end`, which is taken too."""
        while (place := self._buffer.find(end)) < 0:
            junk = self._buffer[:1] and not self._buffer[:1].isalnum()  # TLS, for one
            if junk or len(self._buffer) > _MOST_HEAD_BYTES or not await self._more():
                return None
        found = bytes(self._buffer[:place])
        del self._buffer[: place + len(end)]
        return found

    async def _exactly(self, size: int) -> bytes | None:
        if not 0 <= size <= _MOST_BODY_BYTES:
            return None
        while len(self._buffer) < size:
            if not await self._more():
                return None
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    async def _more(self) -> bool:
        """Wait for further bytes. False: there will be none."""
        if self._gone.is_set():
            return False
        self._news.clear()
        await self._news.wait()
        return True

    # Responses

    async def _send(self, transport: asyncio.Transport, written: Written) -> bool:
        """Send a response. False: the connection is of no more use."""
        chunked = written.streams or written.drops or len(written.frames) > 1
        if not written.raw:
            transport.write(_head(written, chunked=chunked))
        for frame in written.frames:
            if not await self._frame(transport, frame, chunked=chunked and not written.raw):
                self._server.left += 1
                return False
        if written.drops:
            return False  # closing sends what was written, and no end of the body
        if chunked and not written.raw:
            transport.write(b"0\r\n\r\n")
        return not written.raw

    async def _frame(self, transport: asyncio.Transport, frame: Frame, *, chunked: bool) -> bool:
        """Send a piece as often as it says. False: the client is gone."""
        for _ in range(frame.repeat):
            if frame.pause and await self._left_within(frame.pause):
                return False
            if self._gone.is_set():
                return False
            if frame.data:
                data = frame.data
                transport.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
                await self._room.wait()
                await asyncio.sleep(0)  # so that pieces are sent as pieces
        return True

    async def _left_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True


def _head(written: Written, *, chunked: bool) -> bytes:
    headers: Mapping[str, str] = {
        **written.headers,
        **(
            {"transfer-encoding": "chunked"}
            if chunked
            else {"content-length": str(len(written.body))}
        ),
    }
    try:
        phrase = HTTPStatus(written.status).phrase
    except ValueError:
        phrase = "Overloaded"  # 529 is a provider's own
    lines = [f"HTTP/1.1 {written.status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
