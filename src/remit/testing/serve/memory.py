"""A provider in the place of a transport: the same responses without a socket, so that virtual time works.

An hour of pings passes in a millisecond, and a stream can be cut at each of its bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import urlsplit

from remit.errors import ModelUnavailable
from remit.models.base import Model, ModelProfile
from remit.models.endpoint import IDLE_SECONDS, Endpoint
from remit.models.transport import HttpRequest
from remit.models.wires import codec
from remit.models.wires.codec import Codec
from remit.testing.serve.provider import TEST_KEY, ScriptedProvider, received
from remit.testing.serve.written import Written

__all__ = ["MemoryTransport"]


class MemoryTransport:
    """See `remit.models.transport.Transport`."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.provider = provider
        self.open = 0
        """Responses that are being read."""

    def model(
        self,
        name: str = "test-model",
        *,
        key: str = TEST_KEY,
        streams: bool = True,
        idle_seconds: float = IDLE_SECONDS,
        profile: ModelProfile | None = None,
        speaks: Codec | None = None,
    ) -> Model:
        """A model that asks the provider, under that name; `speaks` where the wire's own codec is not meant."""
        wire = self.provider.wire.name
        return Endpoint(
            f"{wire}:{name}",
            speaks or codec(wire),
            self,
            base_url=f"http://provider.test{self.provider.wire.base_path}",
            model=name,
            key=key,
            profile=profile,
            idle_seconds=idle_seconds,
            streams=streams,
        )

    @contextlib.asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[_Response]:
        parts = urlsplit(request.url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        headers = {name.lower(): value for name, value in request.headers.items()}
        written = self.provider.answer(received(request.method, path, headers, request.body))
        if written.raw:
            raise ModelUnavailable("the connection closed before an answer came")
        self.open += 1
        try:
            yield _Response(written)
        finally:
            self.open -= 1

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        yield


class _Response:
    """See `remit.models.transport.HttpResponse`."""

    def __init__(self, written: Written) -> None:
        self._written = written

    @property
    def status(self) -> int:
        return self._written.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._written.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        unpack = _unpacked if self.headers.get("content-encoding") == "gzip" else _as_it_is
        for frame in self._written.frames:
            for _ in range(frame.repeat):
                if frame.pause == math.inf:
                    await asyncio.get_running_loop().create_future()
                await asyncio.sleep(frame.pause)
                if frame.data:
                    yield unpack(frame.data)
        if self._written.drops:
            raise ModelUnavailable("the connection broke in the middle of an answer")


def _as_it_is(data: bytes) -> bytes:
    return data


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompress(data, wbits=31)
    except zlib.error as error:
        raise ModelUnavailable(
            f"the answer says that it is compressed, and is not: {error}"
        ) from None
