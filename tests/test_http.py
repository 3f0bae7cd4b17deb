"""The transport over real sockets on the loopback, against a small server of our own."""

from __future__ import annotations

import asyncio
import datetime as dt
import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

import remit
from endpoint_rig import HELLO, PlainCodec, request
from remit import (
    ConfigurationError,
    Limits,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    Reason,
    Remit,
    Reply,
    Usage,
)
from remit.models import http
from remit.models.connection import Connection
from remit.models.endpoint import Endpoint
from remit.models.http import AiohttpTransport
from remit.models.opening import check_ready
from remit.models.transport import HttpRequest

SECONDS = 20.0
"""What no test may take: these are real sockets."""
LIMITS = Limits(steps=5, tokens=50_000, seconds=SECONDS)

Handler = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request as the server sees it, and the pen to answer with."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.line = ""
        self.headers: dict[str, str] = {}
        self.raw = b""
        self.body = b""

    async def read(self) -> bool:
        try:
            self.raw = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        self.line, *lines = self.raw.decode().rstrip().split("\r\n")
        self.headers = {k.lower(): v.strip() for k, _, v in (each.partition(":") for each in lines)}
        self.body = await self.reader.readexactly(int(self.headers.get("content-length", "0")))
        return True

    def say(self, body: bytes = HELLO, status: str = "200 OK", **headers: str) -> None:
        headers = {"content_type": "text/event-stream", **headers}
        if "transfer_encoding" not in headers:
            headers.setdefault("content_length", str(len(body)))
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        head = "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""])
        self.writer.write(head.encode() + body)

    def chunk(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


class Server:
    """A server on the loopback, and what it has seen."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.seen: list[Exchange] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(
        self, handler: Handler, tls: ssl.SSLContext | None = None
    ) -> AsyncGenerator[Server]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                while await (exchange := Exchange(reader, writer)).read():
                    self.seen.append(exchange)
                    await handler(exchange)
                    await writer.drain()
            except ConnectionError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


async def hello(exchange: Exchange) -> None:
    exchange.say()


def says(body: bytes = HELLO, status: str = "200 OK", **headers: str) -> Handler:
    async def handler(exchange: Exchange) -> None:
        exchange.say(body, status, **headers)

    return handler


def model_at(url: str, connection: Connection | None = None, **options: Any) -> Endpoint:
    transport = AiohttpTransport(connection or Connection(proxy=""))
    return Endpoint("plain:m", PlainCodec(), transport, base_url=url, model="m", **options)


async def reply_of(model: Endpoint) -> Reply:
    *_, last = [chunk async for chunk in model.stream(request())]
    assert isinstance(last, Reply)
    return last


async def failure_of(model: Endpoint) -> ModelError:
    async with asyncio.timeout(SECONDS):
        with pytest.raises(ModelError) as caught:
            await reply_of(model)
    return caught.value


def ask(handler: Handler, **options: Any) -> Reply:
    async def main() -> Reply:
        async with asyncio.timeout(SECONDS), Server().serving(handler) as server:
            return await reply_of(model_at(server.url, **options))

    return asyncio.run(main())


def fail(handler: Handler, **options: Any) -> ModelError:
    async def main() -> ModelError:
        async with Server().serving(handler) as server:
            return await failure_of(model_at(server.url, **options))

    return asyncio.run(main())


# What is sent


@pytest.mark.parametrize("size", [10, 20_000, 3_000_000])
def test_a_body_goes_out_as_it_stands_with_its_length(size: int) -> None:
    """J1: one body, not chunked, no byte changed; large ones too."""
    body = bytes(range(256)) * (size // 256 + 1)

    async def main() -> Exchange:
        async with asyncio.timeout(SECONDS), Server().serving(hello) as server:
            sent = HttpRequest("POST", f"{server.url}/v1/say?x=1", {"x-one": "1"}, body)
            async with AiohttpTransport(Connection(proxy="")).send(sent) as response:
                assert response.status == 200
                assert response.headers["content-type"] == "text/event-stream"
                assert set(response.headers) == {"content-type", "content-length"}
                assert b"".join([chunk async for chunk in response.chunks()]) == HELLO
            return server.seen[0]

    seen = asyncio.run(main())
    assert seen.line == "POST /v1/say?x=1 HTTP/1.1"
    assert seen.body == body
    assert seen.headers["content-length"] == str(len(body))
    assert "transfer-encoding" not in seen.headers
    assert seen.headers["x-one"] == "1"


def test_a_request_without_a_body_can_be_sent() -> None:
    async def main() -> bytes:
        async with asyncio.timeout(SECONDS), Server().serving(says(b"[]")) as server:
            sent = HttpRequest("GET", f"{server.url}/models", {}, b"")
            async with AiohttpTransport(Connection(proxy="")).send(sent) as response:
                return b"".join([chunk async for chunk in response.chunks()])

    assert asyncio.run(main()) == b"[]"


# Connections


def test_requests_of_a_block_share_a_connection_and_the_block_closes_it() -> None:
    """N3: and without one, each request closes its own."""

    async def main() -> list[int]:
        async with asyncio.timeout(SECONDS), Server().serving(hello) as server:
            model = model_at(server.url)
            async with model.opened():
                for _ in range(3):
                    await reply_of(model)
            counts = [server.connections]
            for _ in range(2):  # without it, each request opens what it needs and closes it
                await reply_of(model)
            return [*counts, server.connections]

    assert asyncio.run(main()) == [1, 3]


def test_a_stream_whose_end_comes_a_little_later_keeps_its_connection() -> None:
    """Frameworks send the end of a chunked body in a packet of its own."""

    async def late(exchange: Exchange) -> None:
        exchange.say(b"", transfer_encoding="chunked")
        exchange.chunk(HELLO)
        await exchange.writer.drain()
        await asyncio.sleep(0)
        exchange.writer.write(b"0\r\n\r\n")

    async def never(exchange: Exchange) -> None:
        exchange.say(b"", transfer_encoding="chunked")
        exchange.chunk(HELLO)

    async def main(handler: Handler) -> int:
        async with asyncio.timeout(SECONDS), Server().serving(handler) as server:
            model = model_at(server.url)
            async with model.opened():
                for _ in range(2):
                    await reply_of(model)
            return server.connections

    assert asyncio.run(main(late)) == 1
    assert asyncio.run(main(never)) == 2


def test_what_comes_unasked_is_no_answer_to_the_next_request() -> None:
    """N2: a server that says something on a connection at rest is asked on another."""

    async def chatty(exchange: Exchange) -> None:
        exchange.say()
        await exchange.writer.drain()
        if not said.is_set():
            exchange.say(b"slow down", "408 Request Timeout")
        said.set()

    said = asyncio.Event()

    async def main() -> tuple[str, int]:
        async with asyncio.timeout(SECONDS), Server().serving(chatty) as server:
            model = model_at(server.url)
            async with model.opened():
                await reply_of(model)
                await said.wait()
                for _ in range(20):
                    await asyncio.sleep(0)
                return (await reply_of(model)).message.text, server.connections

    assert asyncio.run(main()) == ("Hello.", 2)


def test_models_by_name_share_connections() -> None:
    """N3: two remits, and a model that is named for one run, use one connection."""

    async def main() -> int:
        async with asyncio.timeout(SECONDS), Server().serving(says(b"no", "400 No")) as server:
            url = f"{server.url}/v1"
            models = [remit.model("openai-chat:m", base_url=url, connection=OWN) for _ in range(3)]
            async with desk(models[0]):  # pyright: ignore[reportArgumentType] - an endpoint
                for model in models:
                    with pytest.raises(ModelRejected):
                        async for _ in model.stream(request()):
                            pass
            return server.connections

    assert asyncio.run(main()) == 1


OWN = Connection(proxy="")


def test_two_hundred_requests_run_at_once() -> None:
    async def main() -> int:
        waiting = 0
        all_here = asyncio.Event()

        async def barrier(exchange: Exchange) -> None:
            nonlocal waiting
            waiting += 1
            if waiting == 200:
                all_here.set()
            await all_here.wait()
            exchange.say()

        async with asyncio.timeout(SECONDS), Server().serving(barrier) as server:
            model = model_at(server.url)
            async with model.opened():
                await asyncio.gather(*(reply_of(model) for _ in range(200)))
            return server.connections

    assert asyncio.run(main()) == 200


def test_no_cookie_is_kept_and_no_redirect_followed() -> None:
    async def main() -> list[Exchange]:
        async def handler(exchange: Exchange) -> None:
            exchange.say(set_cookie="a=b; Path=/")

        async with asyncio.timeout(SECONDS), Server().serving(handler) as server:
            model = model_at(server.url)
            async with model.opened():
                await reply_of(model)
                await reply_of(model)
            return server.seen

    assert ["cookie" in each.headers for each in asyncio.run(main())] == [False, False]
    failure = fail(says(b"", "307 Temporary Redirect", location="http://127.0.0.1:9/x"))
    assert isinstance(failure, ModelRejected)
    assert "127.0.0.1:9/x" in str(failure)


class ThreadedServer:
    """A server in a thread and loop of its own, for clients whose loops come and go."""

    def __init__(self) -> None:
        self.server = Server()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._main()))

    async def _main(self) -> None:
        async with self.server.serving(hello):
            self._ready.set()
            await self._end.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    def __enter__(self) -> Server:
        self._thread.start()
        assert self._ready.wait(SECONDS)
        return self.server

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(SECONDS)
        self._loop.close()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the keys of whoever runs the tests."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "VLLM_API_KEY", "VLLM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(name="threaded")
def _threaded() -> Iterator[Server]:
    with ThreadedServer() as server:
        yield server


def desk(model: Endpoint) -> Remit[Any]:
    return Remit(name="desk", model=model, limits=LIMITS)


def test_one_model_serves_run_sync_twice_loops_inside_loops_and_threads(threaded: Server) -> None:
    """N3: sessions belong to the running event loop, and go with it."""
    support = desk(model_at(threaded.url))
    assert support.run_sync("one").text == support.run_sync("two").text == "Hello."

    async def notebook() -> str:
        async with support:
            inner = await asyncio.to_thread(support.run_sync, "from a thread")
            return (await support.run("here")).text + inner.text + support.run_sync("in here").text

    assert asyncio.run(notebook()) == "Hello." * 3
    ends: list[str] = []
    threads = [
        threading.Thread(target=lambda: ends.append(support.run_sync("hi").text)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert ends == ["Hello."] * 3


def test_a_run_keeps_its_connection_and_leaves_none_behind(threaded: Server) -> None:
    support = desk(model_at(threaded.url))

    async def main() -> list[int]:
        async with support:
            await support.run("one")
            await support.run("two")
        inside = threaded.connections
        await support.run("three")
        return [inside, threaded.connections]

    assert asyncio.run(main()) == [1, 2]


def test_a_cancel_closes_the_connection_at_once() -> None:
    """K1, K3: the provider sees that nobody listens any more."""

    async def main() -> bytes:
        gone: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def handler(exchange: Exchange) -> None:
            exchange.say(b"", transfer_encoding="chunked")
            exchange.chunk(b'data: {"text": "Hel"}\n\n')
            await exchange.writer.drain()
            gone.set_result(await exchange.reader.read())

        async with asyncio.timeout(SECONDS), Server().serving(handler) as server:
            model = model_at(server.url)
            async with model.opened():
                begun = asyncio.Event()

                async def read() -> None:
                    async for _ in model.stream(request()):
                        begun.set()

                task = asyncio.create_task(read())
                await begun.wait()
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                async with asyncio.timeout(5):
                    return await gone

    assert asyncio.run(main()) == b""


# What comes


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_answer_is_read(encoding: str) -> None:
    body = gzip.compress(HELLO, mtime=0) if encoding == "gzip" else zlib.compress(HELLO)
    assert ask(says(body, content_encoding=encoding)).message.text == "Hello."


@pytest.mark.parametrize(
    ("body", "headers", "error", "told"),
    [
        (HELLO, {"content_encoding": "gzip"}, ModelUnavailable, "content-encoding"),
        (gzip.compress(HELLO, mtime=0)[:20], {"content_encoding": "gzip"}, ModelError, ""),
        (gzip.compress(HELLO, mtime=0), {}, ModelProtocolError, "compressed"),
        (HELLO[:20], {"content_length": "500"}, ModelUnavailable, "broke off"),
        (b"zz\r\n", {"transfer_encoding": "chunked"}, ModelProtocolError, "no HTTP"),
        (b"<html>Log in", {"content_type": "text/html"}, ModelRejected, "a web page"),
        (b"", {}, ModelProtocolError, "is empty"),
    ],
)
def test_bodies_that_lie_are_typed_errors(
    body: bytes, headers: dict[str, str], error: type[ModelError], told: str
) -> None:
    """N2: about their length, their form or their compression."""

    async def handler(exchange: Exchange) -> None:
        exchange.say(body, **headers)
        exchange.writer.close()

    failure = fail(handler)
    assert isinstance(failure, error)
    assert told in str(failure)
    assert failure.usage in {None, Usage()}


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"\0" * 1_000,
        b"220 smtp.example.com ESMTP\r\n",
    ],
)
def test_whatever_answers_that_speaks_no_http_is_a_typed_error(raw: bytes) -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.writer.write(raw)
        exchange.writer.close()

    failure = fail(handler)
    assert isinstance(failure, ModelProtocolError)
    assert "check the base URL" in str(failure)


def test_a_connection_that_is_dropped_without_a_word_may_be_tried_again() -> None:
    async def drop(exchange: Exchange) -> None:
        exchange.writer.close()

    async def reset(exchange: Exchange) -> None:
        linger = b"\1\0\0\0\0\0\0\0"
        sock = exchange.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        exchange.writer.close()

    for handler in (drop, reset):
        failure = fail(handler)
        assert isinstance(failure, ModelUnavailable)
        assert failure.usage is None  # it was sent, and may have been billed


def test_an_errors_head_is_read_by_names_in_lower_case() -> None:
    async def handler(exchange: Exchange) -> None:
        exchange.say(b"slow down", "429 Too Many Requests", Retry_After="7")

    failure = fail(handler)
    assert isinstance(failure, ModelUnavailable)
    assert failure.retry_after == 7


# Where nothing answers


def test_where_nothing_listens_it_is_told_and_nothing_is_billed() -> None:
    """N2: a server that is not there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        failure = asyncio.run(failure_of(model_at(f"http://127.0.0.1:{port}")))
    assert isinstance(failure, ModelUnavailable)
    assert failure.usage == Usage()
    assert f"nothing listens at 127.0.0.1:{port}" in str(failure)


def test_a_name_that_nobody_knows_is_told_and_nothing_is_billed() -> None:
    failure = asyncio.run(failure_of(model_at("http://nonesuch.invalid")))
    assert isinstance(failure, ModelUnavailable)
    assert failure.usage == Usage()
    assert "nonesuch.invalid cannot be looked up" in str(failure)


def test_a_host_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    short = http.aiohttp.ClientTimeout(total=None, connect=0.2)
    monkeypatch.setattr(http, "_TIMEOUT", short)
    with socket.socket() as full:  # whose backlog is used up
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(8)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(address)
            failure = asyncio.run(failure_of(model_at(f"http://127.0.0.1:{address[1]}")))
        finally:
            for each in waiting:
                each.close()
    assert isinstance(failure, ModelUnavailable)
    assert failure.usage == Usage()
    assert "no connection" in str(failure)


def test_a_run_without_a_network_ends_as_model_failed_with_what_to_do() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        limits = Limits(steps=5, tokens=50_000, seconds=1)
        support = Remit(name="desk", model=model_at(f"http://127.0.0.1:{port}"), limits=limits)
        outcome = support.run_sync("Hi")
    assert outcome.reason is Reason.MODEL_FAILED
    assert "whether the server is running" in (outcome.error or "")
    assert outcome.transcript[-1].text == "Hi"
    assert outcome.spend.tree.tokens == 0


# TLS


@pytest.fixture(name="authority", scope="module")
def _authority() -> trustme.CA:
    return trustme.CA()


def serving_tls(cert: trustme.LeafCert, *, asks: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert.configure_cert(context)
    if asks is not None:
        asks.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def ask_tls(tls: ssl.SSLContext, connection: Connection, host: str = "127.0.0.1") -> Any:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # the server's side of a failed handshake
        async with asyncio.timeout(SECONDS), Server().serving(hello, tls) as server:
            model = model_at(f"https://{host}:{server.port}", connection)
            try:
                return await reply_of(model)
            except ModelError as error:
                return error

    return asyncio.run(main())


def saved(tmp_path: Path, authority: trustme.CA) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def test_a_certificate_of_an_authority_that_is_named_is_trusted(
    tmp_path: Path, authority: trustme.CA
) -> None:
    tls = serving_tls(authority.issue_cert("127.0.0.1"))
    reply = ask_tls(tls, Connection(proxy="", ca_file=saved(tmp_path, authority)))
    assert isinstance(reply, Reply)


def test_a_certificate_that_does_not_hold_is_rejected_with_what_to_do(
    tmp_path: Path, authority: trustme.CA
) -> None:
    """N2: and no request is sent."""
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    expired = authority.issue_cert("127.0.0.1", not_before=past, not_after=past.replace(year=2021))
    cases = [
        (expired, True, "has expired"),
        (authority.issue_cert("other.example"), True, "made out for another name"),
        (authority.issue_cert("127.0.0.1"), False, "Connection(ca_file=...)"),
    ]
    for cert, trusted, told in cases:
        ca_file = saved(tmp_path, authority) if trusted else None
        failure = ask_tls(serving_tls(cert), Connection(proxy="", ca_file=ca_file))
        assert isinstance(failure, ModelRejected), failure
        assert told in str(failure)
        assert failure.usage == Usage()


def test_a_server_that_asks_for_a_certificate_is_shown_ours(
    tmp_path: Path, authority: trustme.CA
) -> None:
    tls = serving_tls(authority.issue_cert("127.0.0.1"), asks=authority)
    ca_file = saved(tmp_path, authority)
    own = tmp_path / "own.pem"
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(own)
    shown = Connection(proxy="", ca_file=ca_file, client_cert=str(own))
    assert isinstance(ask_tls(tls, shown), Reply)
    failure = ask_tls(tls, Connection(proxy="", ca_file=ca_file))
    assert isinstance(failure, ModelError)


def test_https_where_http_is_spoken_and_the_other_way_round_are_told(
    authority: trustme.CA,
) -> None:
    async def bad_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main() -> tuple[ModelError, ModelError]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        tls = serving_tls(authority.issue_cert("127.0.0.1"))
        plain = await asyncio.start_server(bad_request, "127.0.0.1", 0)
        port = plain.sockets[0].getsockname()[1]
        async with plain, Server().serving(hello, tls) as secret:
            return (
                await failure_of(model_at(f"https://127.0.0.1:{port}")),
                await failure_of(model_at(f"http://127.0.0.1:{secret.port}")),
            )

    https, http_ = asyncio.run(main())
    assert isinstance(https, ModelRejected)
    assert "http://" in str(https)
    assert isinstance(http_, ModelUnavailable | ModelProtocolError)


@pytest.mark.parametrize("part", ["ca_file", "client_cert"])
def test_files_that_hold_no_certificates_are_wrong_configuration(tmp_path: Path, part: str) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    with pytest.raises(ConfigurationError, match=part):
        Connection(**{part: str(tmp_path / "nonesuch.pem")})
    with pytest.raises(ConfigurationError, match=part):
        AiohttpTransport(Connection(**{part: str(junk)}))


# Proxies


def through(proxy: str | None, monkeypatch: pytest.MonkeyPatch, **env: str) -> Exchange | None:
    """What a proxy sees of a request to a host that only it could reach."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)

    async def main() -> Exchange | None:
        async with asyncio.timeout(SECONDS), Server().serving(hello) as server:
            place = f"127.0.0.1:{server.port}"
            for name, value in env.items():
                monkeypatch.setenv(name, value.format(place))
            connection = Connection(proxy=None if proxy is None else proxy.format(place))
            try:
                await reply_of(model_at("http://model.invalid/v1", connection))
            except ModelUnavailable:
                return None
            return server.seen[0]

    return asyncio.run(main())


def test_a_proxy_is_taken_as_given_or_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = through("http://me:secret@{}", monkeypatch)
    assert seen is not None
    assert seen.line == "POST http://model.invalid/v1/say HTTP/1.1"
    assert seen.headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"
    assert through(None, monkeypatch, http_proxy="http://{}") is not None
    assert through(None, monkeypatch, http_proxy="{}") is not None
    assert through(None, monkeypatch, all_proxy="http://{}") is not None
    assert through(None, monkeypatch, https_proxy="http://{}") is None
    assert through(None, monkeypatch, http_proxy="http://{}", no_proxy="model.invalid") is None
    assert through("", monkeypatch, http_proxy="http://{}") is None


def test_no_proxy_of_the_environment_stands_before_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N3: a server of one's own is reached, whatever is set for the world outside."""
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def main() -> None:
        async with asyncio.timeout(SECONDS), Server().serving(hello) as server:
            for host in ("127.0.0.1", "localhost"):
                await reply_of(model_at(f"http://{host}:{server.port}/v1", Connection()))
            assert len(server.seen) == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    "proxy",
    ["socks5://me:secret@127.0.0.1:9", "ftp://h", "foo:bar", "http://[::", "http://h:99999"],
)
def test_a_proxy_of_the_environment_that_is_none_is_told_and_not_gone_around(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """N1, N3: what it should have kept in does not go out, and the text says what to change."""
    monkeypatch.setenv("http_proxy", proxy)
    failure = asyncio.run(failure_of(model_at("http://192.0.2.1:9/v1", Connection())))
    assert isinstance(failure, ModelRejected)
    assert "HTTP_PROXY" in str(failure)
    assert "NO_PROXY" in str(failure)
    assert "secret" not in str(failure)
    assert failure.usage == Usage()


def test_of_two_proxies_the_one_that_is_spoken_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    assert through(None, monkeypatch, all_proxy="http://{}") is not None
    monkeypatch.setenv("http_proxy", "  ")
    assert through(None, monkeypatch, all_proxy=" http://{} ") is not None


def test_what_a_proxy_refuses_is_told() -> None:
    async def main(status: str) -> ModelError:
        async with Server().serving(says(b"", status)) as server:
            connection = Connection(proxy=f"http://me:secret@127.0.0.1:{server.port}")
            return await failure_of(model_at("https://model.invalid", connection))

    asks = asyncio.run(main("407 Proxy Authentication Required"))
    assert isinstance(asks, ModelRejected)
    assert "name and a password" in str(asks)
    down = asyncio.run(main("503 Service Unavailable"))
    assert isinstance(down, ModelUnavailable)
    assert down.usage == asks.usage == Usage()
    assert "secret" not in str((asks, down))


def test_a_proxy_that_is_none_is_wrong_configuration_and_a_password_is_not_shown() -> None:
    for proxy in ("socks5://h:1", "h:1", "http://"):
        with pytest.raises(ConfigurationError):
            Connection(proxy=proxy)
    assert "secret" not in repr(AiohttpTransport(Connection(proxy="http://me:secret@h:1")))


def test_an_unreachable_proxy_is_told_as_such() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{unused.getsockname()[1]}"
        failure = asyncio.run(failure_of(model_at("http://h.invalid", Connection(proxy=proxy))))
    assert isinstance(failure, ModelUnavailable)
    assert "the proxy" in str(failure)
    assert failure.usage == Usage()


def test_no_error_holds_the_error_of_the_client_in_which_the_key_is() -> None:
    """N1: a key stands in no error, nor in what hangs on one."""

    async def handler(exchange: Exchange) -> None:
        exchange.writer.write(b"nonsense\r\n\r\n")
        exchange.writer.close()

    failure = fail(handler, key="sk-very-secret")
    assert failure.__cause__ is None
    assert failure.__context__ is None


# By name


@pytest.mark.parametrize(
    ("name", "base", "path", "header"),
    [
        ("anthropic:m", "", "/v1/messages", "x-api-key: sk-1"),
        ("anthropic:m", "/v1/", "/v1/messages", "x-api-key: sk-1"),
        ("openai:m", "/v1", "/v1/responses", "authorization: Bearer sk-1"),
        ("openai-chat:m", "/v1", "/v1/chat/completions", "authorization: Bearer sk-1"),
        ("ollama:m:7b", "/v1", "/v1/chat/completions", "authorization: Bearer sk-1"),
        ("azure:my dep", "", "/openai/v1/chat/completions", "api-key: sk-1"),
        ("azure:m", "/openai/v1", "/openai/v1/chat/completions", "api-key: sk-1"),
    ],
)
def test_a_name_and_a_base_url_lead_to_a_request(
    name: str, base: str, path: str, header: str
) -> None:
    async def main() -> tuple[ModelError, Exchange]:
        async with Server().serving(says(b"no", "400 Bad Request")) as server:
            connection = Connection(proxy="")
            url = f"{server.url}{base}"
            model = remit.model(name, base_url=url, api_key="sk-1", connection=connection)
            with pytest.raises(ModelError) as caught:
                async for _ in model.stream(request()):
                    pass
            return caught.value, server.seen[0]

    failure, seen = asyncio.run(main())
    assert isinstance(failure, ModelRejected)
    assert seen.line == f"POST {path} HTTP/1.1"
    key, _, value = header.partition(": ")
    assert seen.headers[key] == value
    assert {"authorization", "x-api-key", "api-key"} & seen.headers.keys() == {key}


def test_versions_of_an_api_stand_where_the_provider_reads_them() -> None:
    async def main(name: str, version: str) -> Exchange:
        async with Server().serving(says(b"no", "400 Bad Request")) as server:
            connection = Connection(proxy="", api_version=version)
            model = remit.model(name, base_url=server.url, api_key="sk-1", connection=connection)
            with pytest.raises(ModelError):
                async for _ in model.stream(request()):
                    pass
            return server.seen[0]

    anthropic = asyncio.run(main("anthropic:m", "2026-10-21"))
    assert anthropic.headers["anthropic-version"] == "2026-10-21"
    assert anthropic.headers["authorization"] == "Bearer sk-1"
    azure = asyncio.run(main("azure:my dep", "2024-10-21"))
    path = "/openai/deployments/my%20dep/chat/completions?api-version=2024-10-21"
    assert azure.line == f"POST {path} HTTP/1.1"
    with pytest.raises(ConfigurationError, match="api_version"):
        remit.model("groq:m", api_key="k", connection=Connection(api_version="1"))


def test_keys_and_places_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Exchange:
        async with Server().serving(says(b"no", "400 Bad Request")) as server:
            monkeypatch.setenv("OPENAI_API_KEY", " sk-env\n")
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            model = remit.model("openai:m")
            with pytest.raises(ModelError):
                async for _ in model.stream(request()):
                    pass
            return server.seen[0]

    assert asyncio.run(main()).headers["authorization"] == "Bearer sk-env"


def test_an_empty_key_is_a_server_that_wants_none() -> None:
    assert remit.model("openai-chat:m", base_url="https://h.example/v1", api_key="")
    assert remit.model("openai-chat:m", base_url="http://gpu-box:8000/v1")
    assert remit.model("vllm:m")
    wanting = remit.model("openai-chat:m", base_url="https://h.example/v1")
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        check_ready(wanting)


def test_a_line_end_in_a_header_is_not_sent() -> None:
    """N1: no header can be smuggled into another."""

    async def main() -> None:
        async with Server().serving(hello) as server:
            bad = {"x-one": "1\r\nx-two: 2"}
            with pytest.raises(ModelRejected, match="line end"):
                async with AiohttpTransport(Connection(proxy="")).send(
                    HttpRequest("POST", server.url, bad, b"")
                ):
                    pass

    asyncio.run(main())
