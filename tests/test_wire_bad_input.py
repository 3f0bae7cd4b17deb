"""What people get wrong, and what answers instead of a provider: a typed end, the transcript whole, what to do.

Real sockets of this machine and the real clock, in a hurry (`hurried`): nothing here waits as long as it says.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme

import remit as rm
from loop_rig import is_sendable, said, watched
from remit import Outcome, Reason
from remit.models.connection import Connection
from remit.models.names import model as named
from remit.models.wires.responses.faults import fault_of
from remit.testing import Step
from remit.testing.serve import (
    HTML_PAGE,
    Answer,
    Cut,
    Dripped,
    Garbled,
    Gzipped,
    Play,
    Raw,
    Refused,
    Server,
    Stalled,
    serve,
)
from wire_rig import SPEED, hurried, look_up, on_every_wire, over_a_socket, remit_of


def asked(model: rm.Model, tools: Any = ()) -> Outcome[Any]:
    """A run that fails; its transcript is whole whatever came."""
    outcome = hurried(lambda: remit_of(model, tools).run("Where is order 7?"))
    assert is_sendable(outcome.transcript)
    assert outcome.reason is Reason.MODEL_FAILED, outcome
    assert outcome.error
    assert "test-key" not in outcome.error
    return outcome


def met(
    script: Play,
    wire: str,
    change: Callable[[Server], rm.Model] | None = None,
    speed: float = SPEED,
    heard: list[rm.Event] | None = None,
    **options: Any,
) -> tuple[Outcome[Any], Server]:
    """A run against a server that is not what it should be."""

    async def main() -> tuple[Outcome[Any], Server]:
        async with serve(script, wire, **options) as server:
            model = server.model() if change is None else change(server)
            outcome, events = await watched(remit_of(model, [look_up]), "Where is order 7?")
            if heard is not None:
                heard.extend(events)
            return outcome, server

    outcome, server = hurried(main, speed=speed)
    assert is_sendable(outcome.transcript)
    return outcome, server


def closed_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


# What people get wrong


@on_every_wire
def test_a_wrong_key_is_named_as_such_and_not_tried_again(wire: str) -> None:
    """E7: 401 once; the text says where the key comes from and never what it is."""
    outcome, server = met(["Never."], wire, lambda server: server.model(key="sk-wrong-key-1234567"))
    assert outcome.reason is Reason.MODEL_FAILED
    assert len(server.requests) == 1
    assert outcome.error
    assert "API_KEY" in outcome.error
    assert "sk-wrong-key-1234567" not in outcome.error


@on_every_wire
def test_a_model_that_is_not_there_is_named(wire: str) -> None:
    """E7: 404 once, with the name that was asked for."""
    outcome, server = met(["Never."], wire, models=["another-model"])
    assert outcome.reason is Reason.MODEL_FAILED
    assert len(server.requests) == 1
    assert "model" in (outcome.error or "")


@on_every_wire
def test_a_wrong_base_url_is_named(wire: str) -> None:
    """E7: a path that is none of the API's; the base URL is what has to be looked at."""
    outcome, server = met(
        ["Never."],
        wire,
        lambda server: named(f"{wire}:m", base_url=f"{server.url}/nowhere", api_key="test-key"),
    )
    assert outcome.reason is Reason.MODEL_FAILED
    assert len(server.requests) == 1
    assert "base URL" in (outcome.error or "")


@on_every_wire
def test_nobody_listens(wire: str) -> None:
    """E7: a refused connection is tried again, bounded, and costs nothing."""
    url = f"http://127.0.0.1:{closed_port()}"
    outcome = asked(named(f"{wire}:m", base_url=url, api_key="test-key"))
    assert "nothing listens" in (outcome.error or "")
    assert outcome.spend.own.tokens == 0


def test_a_host_that_nobody_knows() -> None:
    """E7: no network, or a slip in the name."""
    outcome = asked(named("openai-chat:m", base_url="http://no-such-host.invalid/v1", api_key="k"))
    assert "no-such-host.invalid" in (outcome.error or "")


def test_https_to_a_server_that_speaks_http_and_the_other_way_round() -> None:
    """E7: which of the two it should be is said."""
    outcome, _ = met(
        ["Never."],
        "openai-chat",
        lambda server: named(
            "openai-chat:m", base_url=server.base_url.replace("http:", "https:"), api_key="k"
        ),
        speed=1,
    )
    assert outcome.reason is Reason.MODEL_FAILED
    assert "http://" in (outcome.error or "")
    authority = trustme.CA()
    outcome, _ = met(
        ["Never."],
        "openai-chat",
        lambda server: named(
            "openai-chat:m", base_url=server.base_url.replace("https:", "http:"), api_key="k"
        ),
        tls=_context(authority),
    )
    assert outcome.reason is Reason.MODEL_FAILED
    assert outcome.error


# Certificates


def _context(authority: trustme.CA, host: str = "127.0.0.1", **dates: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host, **dates).configure_cert(context)
    return context


@pytest.mark.parametrize(
    ("host", "dates", "trusted", "told"),
    [
        (
            "127.0.0.1",
            {"not_after": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)},
            True,
            "expired",
        ),
        ("127.0.0.1", {}, False, "trusted"),
        ("elsewhere.test", {}, True, "another name"),
    ],
    ids=["expired", "unknown authority", "another name"],
)
def test_a_certificate_that_does_not_hold_ends_at_once(
    tmp_path: Any, host: str, dates: dict[str, Any], trusted: bool, told: str
) -> None:
    """E7: no second try, nothing was sent, and the text says what is wrong with it."""
    authority = trustme.CA()
    known = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(known)
    connection = Connection(ca_file=str(known) if trusted else None)
    events: list[rm.Event] = []
    outcome, server = met(
        ["Never."],
        "anthropic",
        lambda server: named(
            "anthropic:m", base_url=server.url, api_key="test-key", connection=connection
        ),
        tls=_context(authority, host, **dates),
        speed=1,
        heard=events,
    )
    assert outcome.reason is Reason.MODEL_FAILED
    assert list(server.requests) == []
    assert told in (outcome.error or "")
    assert outcome.spend.own.tokens == 0
    assert [event.kind for event in events if event.kind == "model_retry"] == []


def test_a_certificate_that_is_trusted_by_name_holds(tmp_path: Any) -> None:
    """E7: the same server with its authority named is one like any other."""
    authority = trustme.CA()
    known = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(known)
    outcome, server = met(
        [("look_up", {"order": 7}), "Done."],
        "anthropic",
        lambda server: named(
            "anthropic:m",
            base_url=server.url,
            api_key="test-key",
            connection=Connection(ca_file=str(known)),
        ),
        tls=_context(authority),
        speed=1,
    )
    assert outcome.reason is Reason.COMPLETED
    assert list(server.refusals) == []


# What answers instead


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(HTML_PAGE), "base URL"),
        (Answer(HTML_PAGE, 502), ""),
        (Raw(), "HTTP"),
        (Raw(b""), ""),
        (Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"), ""),
        (Raw(b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 4\r\n\r\nabcd"), ""),
        (Raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"), ""),
        (Raw(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000 + b"\r\n"), ""),
        (Raw(b"HTTP/9.9 999 \xff\r\n\r\n"), ""),
        (Raw(b"+OK POP3 server ready\r\n"), "HTTP"),
        (Answer(b'{"jsonrpc":"2.0","id":null,"result":{}}', 200, "application/json"), ""),
        (Answer(b'{"detail":"Not Found"}', 404, "application/json"), "404"),
        (Answer(b'{"message":"Forbidden"}', 403, "application/json"), "403"),
        (Answer(b"", 301, "text/html", {"location": "https://elsewhere.test/"}), ""),
        (Answer(b"moved", 308, "text/html", {"location": "/v2"}), ""),
        (Gzipped("Never.", lies=True), "compressed"),
    ],
)
@on_every_wire
def test_something_else_answers(wire: str, answer: Any, told: str) -> None:
    """E7: a page, a banner, another API, broken HTTP: typed, bounded, with what to look at."""
    outcome, server = met(lambda transcript, request: answer, wire)
    assert outcome.reason is Reason.MODEL_FAILED
    assert 1 <= len(server.requests) <= 5
    assert told in (outcome.error or "")


def test_a_redirect_does_not_take_the_key_elsewhere() -> None:
    """E7: it is not followed; whoever answers there never sees the key."""

    async def main() -> None:
        async with serve(["Never."], "openai-chat") as other:
            to = {"location": f"{other.base_url}/chat/completions"}
            script = lambda transcript, request: Answer(b"", 307, "text/plain", to)  # noqa: E731 - a script
            async with serve(script, "openai-chat") as server:
                outcome = await remit_of(server.model()).run("Hello?")
            assert outcome.reason is Reason.MODEL_FAILED
            assert other.connections == 0

    hurried(main)


# Faults of a stream, over sockets


@on_every_wire
@pytest.mark.parametrize(
    "spoil",
    [
        lambda says: Cut(says, at="head"),
        lambda says: Cut(says, at=400),
        lambda says: Cut(says, at="end"),
        lambda says: Cut(says, at="end", clean=True),
        lambda says: Refused("overloaded"),
        lambda says: Refused("rate_limit", retry_after=3),
        lambda says: Garbled(says, b"data: {]\n\n"),
        lambda says: Stalled(says, pings=0),
        lambda says: Stalled(says, every=5.0),
    ],
    ids=["head", "middle", "end", "clean end", "overloaded", "busy", "garbage", "silence", "pings"],
)
def test_a_fault_over_a_socket_is_the_fault_in_memory(wire: str, spoil: Any) -> None:
    """E7: one more attempt, and nothing runs twice."""
    acted: list[int] = []

    @rm.tool(effect="idempotent", resource=())
    async def act(number: int) -> str:
        """Act."""
        acted.append(number)
        return f"acted {number}"

    async def main() -> None:
        turn = ["Now.", ("act", {"number": 2})]
        async with serve([("act", {"number": 1}), spoil(turn), turn, "Done."], wire) as server:
            desk = remit_of(
                server.model(idle_seconds=10),
                [act],
                limits=rm.Limits(steps=9, tokens=10**7, seconds=36_000),
            )
            outcome = await desk.run("Go.")
            assert outcome.reason is Reason.COMPLETED, outcome.error
            assert said(outcome) == ["acted 1", "acted 2"]
            assert len(server.requests) == 4
            assert list(server.refusals) == []

    hurried(main)
    assert acted == [1, 2]


@on_every_wire
def test_a_stream_in_single_bytes_over_a_socket_is_the_same(wire: str) -> None:
    """case 15: however the bytes are cut, letters of several bytes included."""

    async def main(server: Server) -> None:
        outcome = await remit_of(server.model(), [look_up]).run("Where is order 7?")
        assert outcome.reason is Reason.COMPLETED
        assert outcome.text == "Größe: 7 µm → 好"

    script = [Dripped(("look_up", {"order": 7})), Dripped("Größe: 7 µm → 好")]
    over_a_socket(script, wire, main)


@on_every_wire
def test_a_client_that_is_closed_leaves_no_connection_behind(wire: str) -> None:
    """K1: after `async with remit` nothing of the transport is open; the warnings of asyncio are errors here."""

    async def main(server: Server) -> None:
        desk = remit_of(server.model(), [look_up])
        async with desk:
            await desk.run("Where is order 7?")
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        await reader.read()

    over_a_socket([("look_up", {"order": 7}), "Done."], wire, main)


def test_events_name_no_key() -> None:
    """E5: neither events nor the record hold what a request was signed with."""

    async def main(server: Server) -> None:
        desk = remit_of(server.model(key="sk-secret-of-mine-42"), [look_up])
        async with desk.stream("Hello?") as live:
            events = [event async for event in live]
        told = json.dumps([event.to_json() for event in events])
        assert "sk-secret-of-mine-42" not in told + repr(live.outcome) + str(live.outcome.error)

    over_a_socket([Step("Never.")], "openai-chat", main)


def raw(status: str, body: bytes, head: str = "") -> Raw:
    """A response of somebody else's."""
    lines = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{head}connection: close\r\n\r\n"
    return Raw(lines.encode() + body)


@on_every_wire
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (raw("200 OK", b"{}"), "check the base URL"),
        (raw("200 OK", b""), "check the base URL"),
        (raw("503 Unavailable", b""), ""),
        (raw("500 Internal", b"<html><title>nginx</title></html>"), ""),
        (raw("404 Not Found", b""), "base URL"),
        (
            raw("429 Too Many", b'{"error": {"message": "slow"}}', "retry-after: 9000\r\n"),
            "would have to wait 9,000 s",
        ),
    ],
)
def test_every_failure_says_where_and_what_is_next(wire: str, answer: Raw, told: str) -> None:
    """E7: whoever reads the reason of a run knows which server said so, and why it was not asked again."""
    outcome, server = met([answer] * 5, wire)
    assert outcome.reason is Reason.MODEL_FAILED
    assert told in (outcome.error or "")
    assert server.url.removeprefix("http://") in (outcome.error or "")


def test_the_faults_that_fastapi_lists_are_told() -> None:
    body = b'{"detail": [{"loc": ["body", "input"], "msg": "Field required"}, {"loc": 3, "msg": "odd"}, 4]}'
    error = fault_of(422, {}, body, key_variable=None).error
    assert "input: Field required; odd" in str(error)
