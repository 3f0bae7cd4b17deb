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
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection as _Connection
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from remit.errors import ConfigurationError, ModelRejected
from remit.messages import Usage
from remit.models.connection import Connection, check_proxy, host_of, is_loopback
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
    """The way to one URL, on one event loop, and the connections there that nobody uses just now."""

    __slots__ = ("_head", "_headers", "_idle", "_line", "wanted")

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
        """Tells aiohttp which connection is wanted. It is never sent itself."""
        path = str(target) if proxy and target.scheme == "http" else target.raw_path_qs
        self._line = f" {path} HTTP/1.1\r\nhost: {target.host_port_subcomponent}\r\n"
        self._headers: Mapping[str, str] | None = None
        self._head = ""
        """What was made of those headers: an endpoint sends the same ones all the time."""
        self._idle: deque[tuple[_Connection, float]] = deque()
        """With the instant since when, the newest last."""

    def take(self, now: float) -> _Connection | None:
        """A connection that stands and was used lately."""
        while self._idle:
            connection, since = self._idle.pop()
            protocol = connection.protocol
            # One on which something came unasked is no good: it would be taken for the next answer.
            good = protocol is not None and protocol.is_connected() and not protocol.should_close
            if good and now - since < _KEPT_SECONDS:
                return connection
            connection.close()
        return None

    def keep(self, connection: _Connection, now: float) -> None:
        """Keep it for the next request, and give up those that were kept too long."""
        self._idle.append((connection, now))
        while now - self._idle[0][1] >= _KEPT_SECONDS:
            self._idle.popleft()[0].close()

    def release(self) -> None:
        """Give all of them back to the pool, which is about to close them."""
        while self._idle:
            self._idle.pop()[0].release()

    def head(self, method: str, headers: Mapping[str, str]) -> str:
        """What stands before the body but its length. Errors: `ValueError` for a header that would be two."""
        if headers != self._headers:
            count = len(headers)
            lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            if lines.count("\n") != count or lines.count("\r") != count:
                raise ValueError("a header holds a line end")
            self._headers, self._head = dict(headers), lines
        proxy = self.wanted.headers.get("Proxy-Authorization")
        told = "" if proxy is None else f"proxy-authorization: {proxy}\r\n"
        return f"{method}{self._line}{self._head}{told}"


class _Pool:
    """The connections of one event loop, for as long as somebody there uses them."""

    __slots__ = ("connector", "loop", "routes", "users")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.connector = aiohttp.TCPConnector(
            limit=0,  # how many requests there are is for the runs to say
        )
        self.routes: dict[str, _Route] = {}
        self.users = 0


class AiohttpTransport:
    """Sends requests over aiohttp. One may serve many models, threads and event loops at a time."""

    def __init__(self, connection: Connection | None = None) -> None:
        """Errors: `ConfigurationError` for certificates that cannot be read."""
        self._connection = connection or Connection()
        self._tls = _tls(self._connection)
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

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
            for other in [each for each in list(self._pools) if each.is_closed()]:
                self._pools.pop(other, None)  # it was closed over its users
            pool = self._pools[loop] = _Pool(loop)
        pool.users += 1
        return pool

    async def leave(self, pool: _Pool) -> None:
        pool.users -= 1
        if pool.users == 0:
            self._pools.pop(pool.loop, None)  # who comes while it closes opens another
            for route in pool.routes.values():
                route.release()
            await pool.connector.close()

    def route(self, pool: _Pool, url: str) -> _Route:
        """The way to a URL. Errors: `ValueError` for what is none."""
        route = pool.routes.get(url)
        if route is None:
            route = pool.routes[url] = _Route(url, self._connection, self._tls)
        return route


class _Exchange:
    """One request, and the response while its block lasts."""

    __slots__ = (
        "_connection",
        "_content",
        "_message",
        "_pool",
        "_request",
        "_route",
        "_transport",
        "status",
    )

    def __init__(self, transport: AiohttpTransport, request: HttpRequest) -> None:
        self._transport = transport
        self._request = request

    @property
    def headers(self) -> Mapping[str, str]:
        return _Headers(self._message.headers)

    async def __aenter__(self) -> Self:
        request = self._request
        self._pool = pool = self._transport.enter()
        connection: _Connection | None = None
        try:
            self._route = route = self._transport.route(pool, request.url)
            connection = route.take(pool.loop.time())
            if connection is None:
                connection = await pool.connector.connect(route.wanted, [], _TIMEOUT)
            protocol = connection.protocol
            assert protocol is not None  # noqa: S101 - of a connection that stands
            _write(protocol, request, route)
            while True:
                message, self._content = await protocol.read()
                if not 100 <= message.code < 200:
                    break
        except _FAILURES as error:
            fault = no_answer(error, host_of(request.url), sent=connection is not None)
        except BaseException:  # a cancellation too: cleaned up and raised again
            await self._give_up(connection)
            raise
        else:
            self._connection, self._message, self.status = connection, message, message.code
            return self
        await self._give_up(connection)
        # Raised out here, so that it does not hold aiohttp's error, in which headers may be: the key.
        raise fault

    async def _give_up(self, connection: _Connection | None) -> None:
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
            protocol = connection.protocol
            if protocol is None or protocol.should_close or content.exception() is not None:
                connection.close()
            else:
                self._route.keep(connection, self._pool.loop.time())
            if self._pool.users > 1:
                self._pool.users -= 1
            else:
                await self._transport.leave(self._pool)

    def chunks(self) -> _Chunks:
        return _Chunks(self._content, self._request.url)


def _write(protocol: ResponseHandler, request: HttpRequest, route: _Route) -> None:
    """Hand a request to the socket, and have its response read. Errors: `OSError`, `ValueError`."""
    body = request.body
    head = f"{route.head(request.method, request.headers)}content-length: {len(body)}\r\n\r\n"
    protocol.set_response_params(
        read_until_eof=True, max_line_size=_MOST_LINE, max_field_size=_MOST_LINE
    )
    transport = protocol.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the connection was closed")
    if len(body) <= _SMALL_BODY:
        transport.write(head.encode() + body)
    else:
        transport.write(head.encode())
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
    """What the environment says about the way to a URL; no proxy leads back to this machine.

    Errors: `ModelRejected` for a proxy that is none, or of a kind that is not spoken: to go around it would be worse.
    """
    if is_loopback(url.host or ""):
        return None
    proxies = urllib.request.getproxies_environment()
    bypass: Callable[..., bool] = vars(urllib.request)[
        "proxy_bypass_environment"
    ]  # its stubs forget it
    if not proxies or bypass(f"{url.host}:{url.port}", proxies):
        return None
    found = [(name, proxies.get(name, "").strip()) for name in (url.scheme, "all")]
    given = [
        (name, proxy if "://" in proxy else f"http://{proxy}") for name, proxy in found if proxy
    ]
    for name, proxy in given:
        try:
            check_proxy(proxy, f"{name.upper()}_PROXY, the proxy on the way to {url.host}")
        except ConfigurationError as error:
            if (name, proxy) == given[-1]:
                raise ModelRejected(
                    f'{error}; or go without one, by NO_PROXY or Connection(proxy="")',
                    usage=Usage(),
                ) from None
        else:
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
