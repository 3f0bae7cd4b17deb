"""The transport: requests over aiohttp, one session for each event loop that asks.

It knows nothing of models. It follows no redirect, keeps no cookie and sends nothing twice: what is worth
another try is for the loop to say, so every failure becomes a typed error that says whether anything was sent
and what people can do. A body goes to the socket as it stands.

Loaded when a model is first named, never by `import remit`: aiohttp is slow to import.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

from remit.errors import ConfigurationError
from remit.models.connection import Connection, host_of
from remit.models.http_faults import CONNECT_SECONDS, broken_off, no_answer
from remit.models.transport import HttpRequest

__all__ = ["AiohttpTransport"]

_DRAIN_SECONDS: Final = 0.25
"""How long the end of a body is waited for once its reply is complete, so that the connection can be kept."""
_DRAIN_BYTES: Final = 1_000_000
_KEPT_SECONDS: Final = 30.0
"""How long an unused connection is kept: providers close theirs after about a minute, and a request on one that
is just being closed would be lost."""
_SMALL_BODY: Final = 16_384
"""Bytes up to which a body is joined to its head: one packet is worth a copy of so little."""
_SLICE: Final = 262_144
"""Bytes of a larger body that are handed to the socket at a time."""

_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)


@dataclass(slots=True)
class _Open:
    """The session of one event loop."""

    session: aiohttp.ClientSession
    users: int = 0


class _Sessions:
    """One session for each event loop, for as long as somebody there uses it."""

    def __init__(self, tls: ssl.SSLContext | bool) -> None:
        self._tls = tls
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = WeakKeyDictionary()

    def enter(self, loop: asyncio.AbstractEventLoop) -> _Open:
        entry = self._open.get(loop)
        if entry is None:
            entry = self._open[loop] = _Open(self._session())
        entry.users += 1
        return entry

    async def leave(self, loop: asyncio.AbstractEventLoop, entry: _Open) -> None:
        entry.users -= 1
        if entry.users == 0:
            del self._open[loop]  # whoever comes while this one closes opens another
            await entry.session.close()

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # how many requests there are is for the runs to say
                ssl=self._tls,
                keepalive_timeout=_KEPT_SECONDS,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_TIMEOUT,
            raise_for_status=False,
            trust_env=False,  # it would look into the environment in a thread, for every request
        )


class AiohttpTransport:
    """Sends requests over aiohttp. One may serve many models, threads and event loops at a time."""

    def __init__(self, connection: Connection | None = None) -> None:
        """Errors: `ConfigurationError` for certificates that cannot be read."""
        self._connection = connection or Connection()
        self._sessions = _Sessions(_tls(self._connection))
        self._routes: dict[str, tuple[URL, URL | None]] = {}
        """URLs that were asked for, read once, each with the proxy on its way."""

    def __repr__(self) -> str:
        return f"AiohttpTransport({self._connection!r})"

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Keep connections open while the block lasts. The last of an event loop to leave closes them."""
        loop = asyncio.get_running_loop()
        entry = self._sessions.enter(loop)
        try:
            yield
        finally:
            await self._sessions.leave(loop, entry)

    def send(self, request: HttpRequest) -> _Exchange:
        """Send it, and hand out the response. Errors, as the block is entered: those of `Transport`."""
        route = self._routes.get(request.url)
        if route is None:
            route = self._routes[request.url] = self._route(request.url)
        return _Exchange(self._sessions, request, *route)

    def _route(self, url: str) -> tuple[URL, URL | None]:
        """A URL, and the proxy on its way."""
        target, proxy = URL(url), self._connection.proxy
        if proxy is None:
            proxy = _environment_proxy(target)
        return target, URL(proxy) if proxy else None


class _Exchange:
    """One request, and the response while its block lasts."""

    __slots__ = ("_entry", "_loop", "_proxy", "_request", "_response", "_sessions", "_target")

    def __init__(
        self, sessions: _Sessions, request: HttpRequest, target: URL, proxy: URL | None
    ) -> None:
        self._sessions = sessions
        self._request = request
        self._target = target
        self._proxy = proxy

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return _Headers(self._response.headers)

    async def __aenter__(self) -> Self:
        request = self._request
        self._loop = asyncio.get_running_loop()
        self._entry = self._sessions.enter(self._loop)
        try:
            self._response = await self._entry.session.request(
                request.method,
                self._target,
                data=_Body(request.body) if request.body else None,
                headers=request.headers,
                allow_redirects=False,
                proxy=self._proxy,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            fault = no_answer(error, host_of(request.url))
        except BaseException:
            await self._sessions.leave(self._loop, self._entry)
            raise
        else:
            return self
        await self._sessions.leave(self._loop, self._entry)
        # Raised out here, so that it does not hold aiohttp's error, in which the headers are: the key.
        raise fault

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        content = self._response.content
        try:
            if kind is None and not content.is_eof():
                await _drain(content)
        finally:
            self._response.close()  # without effect where the end has come: the connection is kept then
            await self._sessions.leave(self._loop, self._entry)

    def chunks(self) -> _Chunks:
        return _Chunks(self._response.content, self._request.url)


class _Chunks:
    """A body as it comes. No generator: a stream has hundreds of chunks."""

    __slots__ = ("_content", "_url")

    def __init__(self, content: aiohttp.StreamReader, url: str) -> None:
        self._content = content
        self._url = url

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._content.readany()
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            fault = broken_off(error, host_of(self._url))
        else:
            if chunk:
                return chunk
            raise StopAsyncIteration
        raise fault


class _Headers(Mapping[str, str]):
    """Headers by names in lower case, without a copy."""

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given  # aiohttp's own, which tells no case apart

    def __getitem__(self, name: str) -> str:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.lower() for name in self._given))

    def __len__(self) -> int:
        return len({name.lower() for name in self._given})


class _Body(Payload):
    """A body that goes to the socket as it stands.

    aiohttp's own joins head and body, a copy of every byte, and warns of large ones.
    """

    _autoclose = True
    _headers = CIMultiDict({"Content-Type": "application/json"})

    def __init__(self, value: bytes) -> None:
        # Not the one of `Payload`: it builds headers of its own for every body.
        self._value = value
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(
        self,
        writer: AbstractStreamWriter,
        content_length: int | None,  # noqa: ARG002 - that of the body, always
    ) -> None:
        body = self._value
        if len(body) <= _SMALL_BODY:
            await writer.write(body)
            return
        writer.send_headers()
        whole = memoryview(body)
        for start in range(0, len(body), _SLICE):
            await writer.write(whole[start : start + _SLICE])


async def _drain(content: aiohttp.StreamReader) -> None:
    """Read on to the end of a body of which nothing is wanted any more, if it comes soon."""
    left = _DRAIN_BYTES
    with suppress(TimeoutError, aiohttp.ClientError, OSError, ValueError, RuntimeError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while left > 0 and (chunk := await content.readany()):
                left -= len(chunk)


def _environment_proxy(url: URL) -> str | None:
    """What the environment says about the way to a URL."""
    proxies = urllib.request.getproxies_environment()
    bypass: Callable[..., bool] = vars(urllib.request)[
        "proxy_bypass_environment"
    ]  # its stubs forget it
    if not proxies or bypass(f"{url.host}:{url.port}", proxies):
        return None
    for name in (url.scheme, "all"):
        proxy = proxies.get(name)
        if proxy and "://" not in proxy:
            proxy = f"http://{proxy}"
        if proxy and proxy.lower().startswith(("http://", "https://")):
            return proxy
    return None


def _tls(connection: Connection) -> ssl.SSLContext | bool:
    """What is trusted; True for what the system trusts. Errors: `ConfigurationError`."""
    if connection.ca_file is None and connection.client_cert is None:
        return True
    try:
        context = ssl.create_default_context(cafile=connection.ca_file)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            f"Connection(ca_file={connection.ca_file!r}): this is no PEM file of certificates: {error}"
        ) from None
    cert = connection.client_cert
    if cert is not None:
        chain = (cert, None) if isinstance(cert, str) else cert
        try:
            context.load_cert_chain(
                *chain, password=""
            )  # a locked key is an error, not a question at the terminal
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"Connection(client_cert={cert!r}): give PEM files of a certificate and its key, "
                f"the key not locked by a password: {error}"
            ) from None
    return context
