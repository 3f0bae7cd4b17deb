"""The transport: requests over aiohttp, one pool of connections for each event loop that asks.

It knows nothing of models. It follows no redirect, keeps no cookie and sends nothing twice: what is worth
another try is for the loop to say, so every failure becomes a typed error that says whether anything was sent
and what people can do (`http_faults.py`).

Of aiohttp it takes what is hard - connections, TLS, proxies, the pool, the parser - and leaves out its session: a
request of a session builds objects for cookies, redirects and tracing, and writes a body in a task of its own
after a copy of it. That is a third of what a request costs here (measured 2026-11, aiohttp 3.14). Here head
and body go to the socket in one call, and a large body as it stands.

Loaded when a model is first named, never by `import remit`: aiohttp is slow to import.
"""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
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
_SMALL_BODY: Final = 131_072
"""Bytes up to which a body is joined to its head: to copy so little costs less than to call the system twice."""
_MOST_LINE: Final = 65_536
"""Bytes of a header; some proxies put a whole policy into one."""

_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
_FAILURES: Final = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)
"""What aiohttp raises; a timeout of a connection is an OSError."""


class _Route:
    """The way to one URL, on one event loop."""

    __slots__ = ("head", "wanted")

    def __init__(self, url: str, connection: Connection, tls: ssl.SSLContext | bool) -> None:
        target, proxy = URL(url), connection.proxy
        if proxy is None:
            proxy = _environment_proxy(target)
        self.wanted = aiohttp.ClientRequest(
            "POST",
            target,
            loop=asyncio.get_running_loop(),
            ssl=tls,
            proxy=URL(proxy) if proxy else None,
        )
        """Tells the pool which connection is wanted. It is never sent itself."""
        path = str(target) if proxy and target.scheme == "http" else target.raw_path_qs
        self.head = f" {path} HTTP/1.1\r\nhost: {target.host_port_subcomponent}\r\n"
        """Of every request that goes this way, behind its method."""


class _Pool:
    """The connections of one event loop, for as long as somebody there uses them."""

    __slots__ = ("connector", "routes", "users")

    def __init__(self) -> None:
        self.connector = aiohttp.TCPConnector(
            limit=0,  # how many requests there are is for the runs to say
            keepalive_timeout=_KEPT_SECONDS,
        )
        self.routes: dict[str, _Route] = {}
        self.users = 0


class AiohttpTransport:
    """Sends requests over aiohttp. One may serve many models, threads and event loops at a time."""

    def __init__(self, connection: Connection | None = None) -> None:
        """Errors: `ConfigurationError` for certificates that cannot be read."""
        self._connection = connection or Connection()
        self._tls = _tls(self._connection)
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"AiohttpTransport({self._connection!r})"

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Keep connections open while the block lasts. The last of an event loop to leave closes them."""
        pool = self.enter()
        try:
            yield
        finally:
            await self.leave(pool)

    def send(self, request: HttpRequest) -> _Exchange:
        """Send it, and hand out the response. Errors, as the block is entered: those of `Transport`."""
        return _Exchange(self, request)

    def enter(self) -> _Pool:
        """The pool of the running event loop; `leave` gives it back."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = _Pool()
        pool.users += 1
        return pool

    async def leave(self, pool: _Pool) -> None:
        pool.users -= 1
        if pool.users == 0:
            del self._pools[asyncio.get_running_loop()]  # who comes while it closes opens another
            await pool.connector.close()

    def route(self, pool: _Pool, url: str) -> _Route:
        """The way to a URL. Errors: `ValueError` for what is none."""
        route = pool.routes.get(url)
        if route is None:
            route = pool.routes[url] = _Route(url, self._connection, self._tls)
        return route


class _Exchange:
    """One request, and the response while its block lasts."""

    __slots__ = ("_connection", "_content", "_pool", "_request", "_transport", "headers", "status")

    def __init__(self, transport: AiohttpTransport, request: HttpRequest) -> None:
        self._transport = transport
        self._request = request

    async def __aenter__(self) -> Self:
        request = self._request
        self._pool = pool = self._transport.enter()
        connection: aiohttp.connector.Connection | None = None
        try:
            route = self._transport.route(pool, request.url)
            connection = await pool.connector.connect(route.wanted, [], _TIMEOUT)
            protocol = connection.protocol
            assert protocol is not None  # noqa: S101 - of a connection that was just handed out
            _write(protocol, request, route)
            await self._begin(protocol)
        except _FAILURES as error:
            fault = no_answer(error, host_of(request.url), sent=connection is not None)
        except BaseException:
            await self._give_up(connection)
            raise
        else:
            self._connection = connection
            return self
        await self._give_up(connection)
        # Raised out here, so that it does not hold aiohttp's error, in which headers may be: the key.
        raise fault

    async def _begin(self, protocol: ResponseHandler) -> None:
        """Wait for the head of the response."""
        while True:
            message, content = await protocol.read()
            if not 100 <= message.code < 200:
                break
        self.status = message.code
        self.headers: Mapping[str, str] = _Headers(message.headers)
        self._content = content

    async def _give_up(self, connection: aiohttp.connector.Connection | None) -> None:
        if connection is not None:
            connection.close()
        await self._transport.leave(self._pool)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        content, connection = self._content, self._connection
        try:
            if kind is None and not content.is_eof():
                await _drain(content)
        finally:
            if content.is_eof() and content.exception() is None:
                connection.release()
            else:
                connection.close()
            await self._transport.leave(self._pool)

    def chunks(self) -> _Chunks:
        return _Chunks(self._content, self._request.url)


def _write(protocol: ResponseHandler, request: HttpRequest, route: _Route) -> None:
    """Hand a request to the socket, and have its response read. Errors: `OSError`, `ValueError`."""
    protocol.set_response_params(
        read_until_eof=True, max_line_size=_MOST_LINE, max_field_size=_MOST_LINE
    )
    headers = "".join([f"{name}: {value}\r\n" for name, value in request.headers.items()])
    count = len(request.headers)
    if headers.count("\n") != count or headers.count("\r") != count:
        raise ValueError("a header holds a line end")
    proxy = route.wanted.headers.get("Proxy-Authorization")
    if proxy is not None:
        headers += f"proxy-authorization: {proxy}\r\n"
    body = request.body
    head = f"{request.method}{route.head}{headers}content-length: {len(body)}\r\n\r\n".encode()
    transport = protocol.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the connection was closed")
    if len(body) <= _SMALL_BODY:
        transport.write(head + body)
    else:
        transport.write(head)
        transport.write(body)


class _Chunks:
    """A body as it comes. No generator: a stream has hundreds of chunks."""

    __slots__ = ("_content", "_url")

    def __init__(self, content: aiohttp.StreamReader, url: str) -> None:
        self._content = content
        self._url = url

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._content.readany()
        except (*_FAILURES, RuntimeError) as error:
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
