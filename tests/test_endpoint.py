"""An endpoint: what lies between a codec and a transport. Without sockets, on virtual time."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import remit
from endpoint_rig import (
    DONE,
    HELLO,
    STREAM,
    PlainCodec,
    Response,
    ScriptedTransport,
    request,
    sse,
)
from loop_rig import LIMITS, runtime, watched
from remit import (
    ConfigurationError,
    Limits,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    Notice,
    Reason,
    Remit,
    Reply,
    Text,
    TextDelta,
    Usage,
)
from remit.models import received
from remit.models.base import BlockDone, Chunk, ModelRequest, Underway
from remit.models.endpoint import Endpoint
from remit.models.patience import AFTER_DEADLINE_SECONDS
from remit.models.wires.codec import Wired
from remit.testing import ModelConformance, run_virtual

KEY = "sk-very-secret-0123456789"


def endpoint(
    *responses: Response | Exception, codec: PlainCodec | None = None, **options: Any
) -> tuple[Endpoint, ScriptedTransport]:
    transport = ScriptedTransport(*responses)
    given: dict[str, Any] = {"base_url": "https://api.example.com", "model": "m-1", **options}
    return Endpoint("plain:m-1", codec or PlainCodec(), transport, **given), transport


async def chunks_of(model: Endpoint, asked: ModelRequest | None = None) -> list[Chunk]:
    return [chunk async for chunk in model.stream(asked or request())]


def ask(*responses: Response | Exception, **options: Any) -> list[Chunk]:
    return run_virtual(chunks_of(endpoint(*responses, **options)[0]))


def fail(*responses: Response | Exception, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(*responses, **options)
    return caught.value


# What comes


def test_what_is_not_shown_is_told_once_and_what_was_reported_too() -> None:
    """J4: it bills a reply that never ends, whichever way it ends."""
    thought = sse({"usage": [70, 1]}, {"thought": "x" * 40})
    for last in (sse({"error": "gone"}), ModelUnavailable("gone"), 1e6):
        seen: list[Chunk] = []

        async def main(last: Any = last, seen: list[Chunk] = seen) -> None:
            pieces = (thought, sse({"text": "Hm."}), sse({"thought": "y" * 8}), last)
            async for chunk in endpoint(Response(pieces))[0].stream(request()):
                seen.append(chunk)

        with pytest.raises(ModelError):
            run_virtual(main())
        said = [chunk for chunk in seen if isinstance(chunk, Underway)]
        assert said == [Underway(40, Usage(input=70, output=1)), Underway(8)]


def test_a_stream_is_told_as_it_comes_and_ends_in_one_reply() -> None:
    chunks = ask(Response(sse({"text": "One."}, {"text": "Two."}, *DONE)))
    assert [type(chunk) for chunk in chunks[:-1]] == [TextDelta, BlockDone] * 2
    assert isinstance(chunks[-1], Reply)
    assert chunks[-1].usage == Usage(input=10, output=5)


def test_a_whole_reply_is_told_as_a_stream_would_have_been() -> None:
    body = json.dumps({"events": [{"text": "Hello."}, *DONE]}).encode()
    for headers in ({"content-type": "application/json"}, {}, STREAM):
        chunks = ask(Response((body[:5], body[5:]), headers=headers))
        assert chunks[:2] == [TextDelta("Hello."), BlockDone(Text("Hello."))]
        assert isinstance(chunks[2], Reply)


@pytest.mark.parametrize(
    "label", ["text/event-stream", "text/plain", "application/json", "", "text/html; charset=x"]
)
@pytest.mark.parametrize("body", [HELLO, b"\xef\xbb\xbf" + HELLO, b": hi\n\n" + HELLO])
def test_a_stream_is_known_by_what_it_begins_with_however_it_is_labelled_and_cut(
    label: str, body: bytes
) -> None:
    for pieces in ((body,), tuple(body[i : i + 1] for i in range(len(body)))):
        assert isinstance(ask(Response(pieces, headers={"content-type": label}))[-1], Reply)


@pytest.mark.parametrize(
    ("body", "error", "told"),
    [
        (b"<!doctype html><title>Log in</title>", ModelRejected, "a web page"),
        (b"\n\n  <html>", ModelRejected, "check the base URL and the proxy"),
        (b"", ModelProtocolError, "is empty"),
        (b" \n ", ModelProtocolError, "is empty"),
        (b"Welcome to nginx", ModelProtocolError, "'Welcome to nginx'"),
        (b"\x1f\x8b\x08\x00junk", ModelProtocolError, "is compressed"),
        (b"\x00\x01junk", ModelProtocolError, "neither JSON nor a stream"),
        (b"{nonsense", ModelProtocolError, "cannot be read"),
        (b"[1, 2]", ModelProtocolError, "cannot be read"),
    ],
)
def test_what_is_no_model_is_told_with_what_to_do(
    body: bytes, error: type[ModelError], told: str
) -> None:
    """N2: pages, nothing at all, and what nobody expected."""
    failure = fail(Response(body, headers={"content-type": "text/html"}))
    assert type(failure) is error
    assert told in str(failure)


def test_a_stream_that_ends_early_is_a_failed_attempt_with_what_was_reported() -> None:
    """N2, J4: the tokens that were reported are charged."""
    cut = sse({"usage": [7, 3]}, {"text": "Hal"})
    assert fail(Response(cut)).usage == Usage(input=7, output=3)
    assert fail(Response(sse({"text": "Hal"}))).usage is None
    broken = fail(Response((cut, ModelUnavailable("the connection broke off"))))
    assert broken.usage == Usage(input=7, output=3)
    assert isinstance(broken, ModelUnavailable)


def test_an_empty_piece_is_no_end_of_a_body() -> None:
    """N2: a client of another make may hand one out."""
    assert isinstance(ask(Response((b"", HELLO[:9], b"", HELLO[9:])))[-1], Reply)


def test_what_a_wire_cannot_say_is_refused_and_nothing_is_charged() -> None:
    """N2, L2: nothing was sent."""

    class Unable(PlainCodec):
        def encoder(self, model: str) -> Any:
            encoder = super().encoder(model)

            def encode(request: ModelRequest, *, stream: bool) -> Wired:
                raise ConfigurationError("this wire has no word for it")

            encoder.encode = encode
            return encoder

    model, transport = endpoint(codec=Unable())

    async def main() -> None:
        outcome = await Remit(name="r", model=model, limits=LIMITS, runtime=runtime()).run("go")
        assert outcome.reason is Reason.MODEL_FAILED
        assert "no word for it" in (outcome.error or "")
        assert outcome.spend.tree.tokens == 0

    run_virtual(main())
    assert not transport.requests


def test_an_error_of_the_transport_keeps_what_it_says_of_usage() -> None:
    assert fail(ModelUnavailable("nothing listens", usage=Usage())).usage == Usage()
    assert fail(ModelUnavailable("broke off")).usage is None


def test_nothing_behind_the_reply_is_read_or_told() -> None:
    model, transport = endpoint(Response((HELLO + sse({"text": "more"}), 1e9, b"data: never\n\n")))
    chunks = run_virtual(chunks_of(model))
    assert isinstance(chunks[-1], Reply)
    assert transport.responses[0].left == "end"  # pyright: ignore[reportAttributeAccessIssue] - a response was scripted
    assert transport.responses[0].read == 1  # pyright: ignore[reportAttributeAccessIssue] - see above


def test_a_body_without_end_is_left_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "MOST_WHOLE_BYTES", 1_000)
    monkeypatch.setattr(received, "MOST_STREAM_BYTES", 1_000)
    whole = Response((b"{", *[b" " * 100] * 100), headers={})
    stream = Response((b": begun\n\n", *[b": ping\n\n" * 10] * 100))
    assert "over 1,000 bytes" in str(fail(whole))
    assert "over 1,000 bytes" in str(fail(stream))
    assert max(whole.read, stream.read) < 20


def test_an_error_is_read_up_to_a_bound_and_as_far_as_it_came() -> None:
    long = Response((b"no", *[b"o" * 100_000] * 100), status=400)
    assert isinstance(fail(long), ModelRejected)
    assert long.read < 6
    broken = Response((b"half an err", ModelUnavailable("broke off")), status=400)
    assert str(fail(broken)) == "api.example.com: 400: half an err"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_and_told(status: int) -> None:
    """N1: the key would go along."""
    place = {"location": "https://elsewhere.example/v2?key=1"}
    model, transport = endpoint(Response(b"", status=status, headers=place))
    with pytest.raises(ModelRejected) as caught:
        run_virtual(chunks_of(model))
    assert "(https://elsewhere.example/v2)" in str(caught.value)
    assert "base URL" in str(caught.value)
    assert len(transport.requests) == 1


# Repairs


def test_a_refused_request_is_sent_again_without_what_it_was_refused_for() -> None:
    """case 60: once the body differs, and people are told."""
    refused = Response(b"bad block", status=400, headers={"repair": "opaque"})
    model, transport = endpoint(refused, Response())
    chunks = run_virtual(chunks_of(model))
    assert [body["without"] for body in transport.bodies] == [[], ["opaque"]]
    assert [chunk for chunk in chunks if isinstance(chunk, Notice)] == [
        Notice("cut_back", "opaque is left out")
    ]
    assert isinstance(chunks[-1], Reply)


def test_a_repair_that_changes_nothing_is_not_sent() -> None:
    """case 60: a refused request is not sent twice as it stands."""
    for what in ("nothing", "opaque"):
        refused = Response(b"bad", status=400, headers={"repair": what})
        model, transport = endpoint(refused, refused, refused)
        with pytest.raises(ModelRejected):
            run_virtual(chunks_of(model))
        bodies = [each.body for each in transport.requests]
        assert len(bodies) == len(set(bodies)) == (1 if what == "nothing" else 2)


def test_repairs_of_one_request_are_bounded() -> None:
    refused = [Response(b"bad", status=400, headers={"repair": f"part {n}"}) for n in range(9)]
    model, transport = endpoint(*refused)
    with pytest.raises(ModelRejected):
        run_virtual(chunks_of(model))
    assert len(transport.requests) == 3


# Waiting


def test_pings_and_comments_do_not_keep_a_stream_alive() -> None:
    """N2: idle time is measured on content, not on bytes."""
    pings: list[bytes | float] = [sse({"text": "Hi"})]
    for _ in range(100):
        pings += [10.0, b": ping\n\n" + sse({"ping": 1})]
    response = Response(pings)
    model, _ = endpoint(response, idle_seconds=60)

    async def main() -> float:
        with pytest.raises(ModelUnavailable, match=r"no content came .* for 60 seconds"):
            await chunks_of(model)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 60
    assert response.left == "ModelUnavailable"


def test_content_keeps_a_stream_alive_however_long_it_takes() -> None:
    """N2: in time, each piece of it."""
    slow: list[bytes | float] = []
    for n in range(20):
        slow += [59.0, sse({"text": f"part {n}"})]
    assert isinstance(ask(Response([*slow, sse(*DONE)], delay=0.5), idle_seconds=60)[-1], Reply)


def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    failure = fail(Response(delay=61), idle_seconds=60)
    assert "no content came from api.example.com" in str(failure)
    assert failure.usage is None  # it may have been billed


def test_a_whole_reply_is_waited_for_until_the_deadline() -> None:
    body = json.dumps({"events": [{"text": "Hello."}, *DONE]}).encode()
    assert isinstance(ask(Response((300.0, body), headers={}), streams=False)[-1], Reply)

    async def main() -> float:
        model, _ = endpoint(Response((900.0, body), headers={}), streams=False)
        with pytest.raises(ModelUnavailable, match="deadline"):
            await chunks_of(model, request(deadline=600))
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 600 + AFTER_DEADLINE_SECONDS


def test_a_slow_reader_is_no_idle_provider() -> None:
    model, _ = endpoint(Response((sse({"text": "a"}), sse({"text": "b"}, *DONE))), idle_seconds=5)

    async def main() -> list[Chunk]:
        chunks: list[Chunk] = []
        async for chunk in model.stream(request()):
            chunks.append(chunk)
            await asyncio.sleep(60)
        return chunks

    assert isinstance(run_virtual(main())[-1], Reply)


def test_a_cancel_closes_the_stream_at_once_and_is_nobody_elses() -> None:
    """K1: it passes through, and the connection is left in the same instant."""
    for response in (Response(delay=1e6), Response((sse({"text": "a"}), 1e6))):
        model, transport = endpoint(response, idle_seconds=1e5)

        async def main(model: Endpoint = model) -> float:
            task = asyncio.create_task(chunks_of(model))
            await asyncio.sleep(7)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            return asyncio.get_running_loop().time()

        assert run_virtual(main()) == 7
        assert response.left in {"CancelledError", ""}
        assert len(transport.requests) == 1


def test_a_cancel_in_the_instant_of_an_idle_timeout_is_still_a_cancel() -> None:
    """K1: the timer takes back its own cancellation and nobody else's."""
    model, _ = endpoint(Response(delay=1e6), idle_seconds=60)

    async def main() -> None:
        task = asyncio.create_task(chunks_of(model))
        asyncio.get_running_loop().call_at(60, task.cancel)
        await asyncio.wait([task])
        assert task.cancelled()

    run_virtual(main())


def refusal(*body: bytes | float, delay: float = 0.0) -> Response:
    """A refusal that asks for a repair."""
    return Response(body, status=400, headers={"repair": "opaque"}, delay=delay)


def test_a_repaired_request_has_its_own_time() -> None:
    """case 60, N2: what a refusal took, and that it never came to its end, is none of the next request's time."""
    slow = Response(delay=50)
    assert isinstance(ask(refusal(b"no", delay=50), slow, idle_seconds=60)[-1], Reply)
    assert isinstance(ask(refusal(b"no", 1e6), slow, idle_seconds=60)[-1], Reply)
    failure = fail(refusal(b"no", 1e6), Response(delay=1e6), idle_seconds=60)
    assert "for 60 seconds" in str(failure)


def test_a_cancel_behind_a_refusal_that_hung_is_still_a_cancel() -> None:
    """K1, case 60: the timer that ended the reading of the refusal has nothing to do with it."""
    model, _ = endpoint(refusal(b"no", 1e6), Response(delay=1e6), idle_seconds=60)

    async def main() -> float:
        task = asyncio.create_task(chunks_of(model))
        asyncio.get_running_loop().call_at(70, task.cancel)
        await asyncio.wait([task])
        assert task.cancelled()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 70


def test_a_stream_that_is_left_early_is_closed() -> None:
    response = Response((sse({"text": "a"}), 1e6))
    model, _ = endpoint(response)

    async def main() -> None:
        stream = model.stream(request())
        await anext(stream)
        await stream.aclose()

    run_virtual(main())
    assert response.left == "GeneratorExit"


def test_no_timer_is_left_behind() -> None:
    async def main() -> int:
        await chunks_of(endpoint(Response())[0], request(deadline=1e6))
        return sum(not each.cancelled() for each in asyncio.get_running_loop()._scheduled)  # pyright: ignore[reportAttributeAccessIssue] - asyncio's own heap

    assert run_virtual(main()) == 0


# What goes out


def test_a_request_carries_key_and_headers_and_says_nothing_of_them() -> None:
    """N1: a key stands in no name, no repr and no error."""
    codec = PlainCodec(body_headers={"X-Beta": "b"})
    echo = Response(f"wrong key {KEY} in {{}}".encode(), status=401)
    model, transport = endpoint(
        echo, codec=codec, key=KEY, headers={"x-beta": "a", "X-Team": "other-secret-1"}
    )
    with pytest.raises(ModelRejected) as caught:
        run_virtual(chunks_of(model))
    sent = transport.requests[0]
    assert (sent.method, sent.url) == ("POST", "https://api.example.com/v1/say")
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["x-beta"] == "a, b"
    assert sent.headers["content-type"] == "application/json"
    assert str(caught.value) == "api.example.com: 401: wrong key [withheld] in {}"
    for shown in (repr(sent), repr(vars(model)["_known"])):  # what traces of errors show
        assert "x-beta" in shown
        assert KEY not in shown
        assert "other-secret-1" not in shown
    assert repr(model) == "<plain:m-1 at api.example.com>"
    for text in (repr(caught.value), repr(model), model.name):
        assert KEY not in text
        assert "other-secret-1" not in text


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\0b"])
def test_a_header_that_would_be_two_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        endpoint(headers={"x-one": value})
    assert "x-one" in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        endpoint(key=f"{KEY}\n")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, "60"])
def test_an_idle_time_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(ConfigurationError):
        endpoint(idle_seconds=seconds)


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://h", "https://h/v1/say"),
        ("https://h/", "https://h/v1/say"),
        ("https://h/v1", "https://h/v1/say"),
        ("https://h/v1/", "https://h/v1/say"),
        ("https://h/proxy/v1", "https://h/proxy/v1/say"),
        ("https://h/proxy", "https://h/proxy/v1/say"),
    ],
)
def test_a_base_url_may_end_as_the_path_begins(base_url: str, url: str) -> None:
    model, transport = endpoint(Response(), base_url=base_url)
    run_virtual(chunks_of(model))
    assert transport.requests[0].url == url


def listed(*responses: Response | Exception, **options: Any) -> tuple[str, ...]:
    """What `models` says, asked within two seconds."""
    model, _ = endpoint(*responses, **options)

    async def main() -> tuple[str, ...]:
        return await model.models(deadline=asyncio.get_running_loop().time() + 2)

    return run_virtual(main())


def test_models_are_listed_where_the_endpoint_says_them() -> None:
    body = (
        b'{"object": "list", "data": [{"id": "m-1", "x": [1]}, {"id": "m-2"}], "has_more": false}'
    )
    assert listed(Response((body[:9], body[9:]))) == ("m-1", "m-2")


@pytest.mark.parametrize(
    "response",
    [
        Response(b"not found", status=404),
        Response(b"<html>"),
        Response(b"\xff\xfe"),
        Response(b'{"data": [3]}'),
        Response(b'{"data": {"id": "m"}}'),
        Response(b"[]"),
        Response(b""),
        Response(b'{"error": "busy"}', status=503),
    ],
)
def test_what_is_no_list_of_models_names_none(response: Response) -> None:
    """Many servers have no such list: that they answer is enough."""
    assert listed(response) == ()


def test_a_list_of_models_that_is_refused_or_does_not_come_is_an_error_without_the_key() -> None:
    with pytest.raises(ModelError) as refused:
        listed(Response(f"no: {KEY}".encode(), status=401), key=KEY)
    assert KEY not in str(refused.value)
    with pytest.raises(ModelUnavailable):
        listed(Response((b"{", 1e9, b"}")))
    with pytest.raises(ModelUnavailable, match="nothing listens"):
        listed(ModelUnavailable("nothing listens", usage=Usage()))


def test_tools_that_are_set_aside_are_told_once_in_a_run() -> None:
    codec = PlainCodec(set_aside={"look": "its schema has no form here"})
    model, _ = endpoint(Response(), Response(), Response(), codec=codec)

    async def main() -> Sequence[int]:
        first, other = request(), request()
        counts: list[int] = []
        for asked in (first, msgspec.structs.replace(first, max_output=7), other):
            chunks = await chunks_of(model, asked)
            counts.append(sum(isinstance(chunk, Notice) for chunk in chunks))
        return counts

    assert run_virtual(main()) == [1, 0, 1]
    assert codec.encoders == 2  # one for each run


class TestEndpoint(ModelConformance):
    def make_model(self) -> Endpoint:
        pieces = (0.5, sse({"text": "It is"}, {"use": ["c1", "get_order_status", "{}"]}), 0.5)
        done = sse({"usage": [10, 5]}, {"stop": "tool_use"})
        return endpoint(*[Response((*pieces, done)) for _ in range(9)])[0]

    def run(self, main: Any) -> Any:
        return run_virtual(main)


# In a run


@remit.tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"seen: {what}"


USE = sse({"use": ["c1", "look", '{"what": "x"}']}, {"usage": [10, 5]}, {"stop": "tool_use"})


def desk(model: Any, **options: Any) -> Remit[Any]:
    given: dict[str, Any] = {"limits": LIMITS, "runtime": runtime(), **options}
    return Remit(name="desk", model=model, tools=[look], **given)


def test_a_dropped_connection_is_tried_again_and_no_call_runs_twice() -> None:
    """E7: a step whose model call failed is made again; what has run has run."""
    ran: list[str] = []

    @remit.tool(effect="idempotent", resource=(), name="look")
    async def counted(what: str) -> str:
        """Look."""
        ran.append(what)
        return "seen"

    dropped = Response((sse({"text": "Hel"}), ModelUnavailable("the connection broke off")))
    model, transport = endpoint(Response(USE), dropped, Response())

    async def main() -> Any:
        return await watched(desk(model, limits=LIMITS).replace(tools=[counted]), "Go")

    outcome, events = run_virtual(main())
    assert outcome.completed
    assert outcome.text == "Hello."
    assert ran == ["x"]
    assert len(transport.requests) == 3
    assert transport.requests[1].body == transport.requests[2].body
    assert [event.kind for event in events].count("model_retry") == 1


def test_a_key_stands_in_no_event_and_no_record() -> None:
    """N1: also where a server repeats it."""
    refused = Response(f"unknown key {KEY}".encode(), status=401)
    model, _ = endpoint(refused, key=KEY)
    support = desk(model)

    async def main() -> Any:
        return await watched(support, "Go")

    outcome, events = run_virtual(main())
    assert outcome.reason is Reason.MODEL_FAILED
    assert "[withheld]" in (outcome.error or "")
    assert KEY not in repr((outcome, [event.to_json() for event in events], support))


def test_a_deadline_in_mid_stream_keeps_what_was_complete() -> None:
    """C3: the loop cuts at the deadline, and the endpoint's own does not come first."""
    stuck = Response((sse({"text": "As far as this."}), 1e6))
    model, _ = endpoint(stuck, idle_seconds=1e5)
    limits = Limits(steps=5, tokens=100_000, seconds=30)
    outcome = run_virtual(desk(model, limits=limits, hand_back=False).run("Go"))
    assert outcome.reason is Reason.DEADLINE
    assert "As far as this." in outcome.transcript[-1].text
    assert stuck.left == "CancelledError"


# Opening


def test_a_run_opens_its_model_and_a_block_opens_it_once() -> None:
    """N3: a run inside of a block shares with it."""
    model, transport = endpoint(Response(), Response(), Response())

    async def main() -> list[tuple[int, int]]:
        support = desk(model)
        seen: list[tuple[int, int]] = []
        await support.run("one")
        seen.append((transport.openings, transport.users))
        async with support as entered, support:
            assert entered is support
            await support.run("two")
            seen.append((transport.openings, transport.users))
        seen.append((transport.openings, transport.users))
        return seen

    assert run_virtual(main()) == [(1, 0), (4, 2), (4, 0)]


def test_a_wrapper_opens_what_is_beneath_it() -> None:
    @remit.wrap_model
    async def plain(asked: ModelRequest, ask: remit.AskModel) -> AsyncGenerator[Chunk]:
        async for chunk in ask(asked):
            yield chunk

    model, transport = endpoint(Response())
    assert run_virtual(desk(plain(model)).run("one")).completed
    assert (transport.openings, transport.users) == (1, 0)


def test_a_model_that_cannot_be_opened_or_closed_is_asked_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stiff(Endpoint):
        @asynccontextmanager
        async def opened(self) -> AsyncGenerator[None]:
            if self.codec_name == "opening":
                raise OSError("no more files")
            yield
            raise OSError("no more files")

        codec_name = "opening"

    for when in ("opening", "closing"):
        model = Stiff(
            "plain:m",
            PlainCodec(),
            ScriptedTransport(Response()),
            base_url="https://h",
            model="m",
        )
        model.codec_name = when
        assert run_virtual(desk(model).run("one")).completed
    assert len(caplog.records) == 2
