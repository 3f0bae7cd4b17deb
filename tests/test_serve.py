"""The provider of tests, asked by a plain client: what it writes, refuses, counts and spoils.

Real sockets of this machine and the real clock; every wait is bounded. What remit makes of it is in
`test_wire_faults.py` and `test_wire_runs.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from remit import ConfigurationError, ModelUnavailable, StopReason, Usage
from remit.messages import Message, Opaque, Text, ToolUse
from remit.models.wires.sse import EventReader
from remit.testing import Step
from remit.testing.serve import (
    HTML_PAGE,
    Answer,
    Cut,
    Doubled,
    Dripped,
    Fails,
    Garbled,
    Gzipped,
    Mislabelled,
    Play,
    Raw,
    Refused,
    ScriptedProvider,
    Server,
    Stalled,
    Whole,
    serve,
)

T = TypeVar("T")

WIRES = ("anthropic", "openai", "openai-chat")
RECORDED = Path(os.environ.get("REMIT_WIRE_DIR") or Path(__file__).parents[2] / "shared" / "wire")
SECONDS = 30

TOOL = {
    "anthropic": {"name": "look", "description": "Look.", "input_schema": {"type": "object"}},
    "openai": {
        "type": "function",
        "name": "look",
        "parameters": {"type": "object"},
        "strict": False,
    },
    "openai-chat": {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object"}},
    },
}


def body(
    wire: str, text: str = "Where is it?", *, stream: bool = True, **more: Any
) -> dict[str, Any]:
    """A legal request."""
    asked: dict[str, Any] = {"model": "test-model", "stream": stream, "tools": [TOOL[wire]]}
    if wire == "openai":
        asked["input"] = [{"role": "user", "content": text}]
    else:
        asked["messages"] = [{"role": "user", "content": text}]
    if wire == "anthropic":
        asked["max_tokens"] = 1_000
    if wire == "openai-chat" and stream:
        asked["stream_options"] = {"include_usage": True}
    return asked | more


class Client:
    """A client that knows HTTP and nothing of models."""

    def __init__(self, server: Server, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session

    async def ask(
        self, asked: dict[str, Any] | bytes, *, path: str | None = None, key: str = "test-key"
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        headers = {"authorization": f"Bearer {key}", "anthropic-version": "2023-06-01"}
        headers["content-type"] = "application/json"
        url = self.server.url + (path or self.server.provider.wire.path)
        data = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        async with self._session.post(url, data=data, headers=headers) as answer:
            found = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, found, await answer.read()


def talk(script: Play, wire: str, main: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    """Serve a script and do something with it, bounded."""

    async def bounded() -> T:
        async with (
            asyncio.timeout(SECONDS),
            serve(script, wire, **options) as server,
            aiohttp.ClientSession() as session,
        ):
            return await main(Client(server, session))

    return asyncio.run(bounded())


def one(
    script: Play, wire: str, *, stream: bool = True, **options: Any
) -> tuple[int, dict[str, str], bytes]:
    """The answer to one request."""
    return talk(script, wire, lambda client: client.ask(body(wire, stream=stream)), **options)


def events(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, those that are JSON."""
    return [
        json.loads(event.data) for event in EventReader().feed(stream) if event.data != b"[DONE]"
    ]


# What is written


@pytest.mark.parametrize("wire", WIRES)
def test_every_event_has_the_fields_that_recorded_events_of_its_kind_have_in_common(
    wire: str,
) -> None:
    """S1: a server of tests that writes less than the real one would hide what a client relies on."""
    folder = {"openai": "openai-responses"}.get(wire, wire)
    if not RECORDED.is_dir():
        pytest.skip(f"there are no recordings at {RECORDED}")
    recorded: dict[str, set[str]] = {}
    for file in sorted((RECORDED / folder).glob("*.json")):
        for exchange in json.loads(file.read_text())["exchanges"]:
            sse = exchange["response"].get("sse")
            for event in [] if sse is None else events(sse.encode()):
                _common(recorded, event)
    assert recorded
    script = [Step(["Here.", ("look", {"at": "it"}), ("look", {"at": "him"})])]
    _, _, stream = one(script, wire)
    for event in events(stream):
        for kind, fields in _shapes(event):
            lacking = recorded.get(kind, set()) - fields
            assert not lacking, f"{kind} lacks {lacking}"


def _common(recorded: dict[str, set[str]], event: dict[str, Any]) -> None:
    for kind, fields in _shapes(event):
        recorded[kind] = recorded[kind] & fields if kind in recorded else fields


def _shapes(event: dict[str, Any]) -> list[tuple[str, set[str]]]:
    """The parts of an event that have a shape of their own, and their fields."""
    kind = str(event.get("type", "chunk"))
    if kind == "chunk" and not event.get("choices"):
        kind = "chunk with usage"
    found = [(kind, set(event))]
    for name in ("delta", "content_block", "item", "part", "message", "response", "usage"):
        part = event.get(name)
        if isinstance(part, dict):
            found.append((f"{kind}.{name}.{part.get('type', '')}", set(part)))
    for choice in event.get("choices", ()):
        found.append((f"{kind}.choice", set(choice)))
        for call in choice["delta"].get("tool_calls", ()):
            found.append((f"{kind}.call.{'id' in call}", set(call)))
    return found


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_and_a_whole_reply_say_the_same(wire: str) -> None:
    """S1: one turn, written both ways, holds the same calls with the same arguments."""
    script = [Step(["Here.", ("look", {"at": ["ä", "\n", '"']})])]
    _, headers, stream = one(script, wire)
    assert headers["content-type"].startswith("text/event-stream")
    _, headers, whole = one(script, wire, stream=False)
    assert headers["content-type"] == "application/json"
    assert (
        _arguments(wire, stream)
        == _arguments_whole(wire, json.loads(whole))
        == {"at": ["ä", "\n", '"']}
    )


def _arguments(wire: str, stream: bytes) -> Any:
    text = ""
    for event in events(stream):
        if wire == "anthropic":
            text += event.get("delta", {}).get("partial_json", "")
        elif wire == "openai":
            text += event["delta"] if event["type"].endswith("arguments.delta") else ""
        else:
            for choice in event["choices"]:
                for call in choice["delta"].get("tool_calls", ()):
                    text += call["function"]["arguments"]
    return json.loads(text)


def _arguments_whole(wire: str, reply: dict[str, Any]) -> Any:
    if wire == "anthropic":
        return reply["content"][-1]["input"]
    if wire == "openai":
        return json.loads(reply["output"][-1]["arguments"])
    return json.loads(reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])


@pytest.mark.parametrize(
    ("wire", "reason", "told"),
    [
        ("anthropic", StopReason.LENGTH, "max_tokens"),
        ("anthropic", StopReason.REFUSAL, "refusal"),
        ("anthropic", StopReason.PAUSE, "pause_turn"),
        ("anthropic", StopReason.CONTEXT, "model_context_window_exceeded"),
        ("openai", StopReason.LENGTH, "max_output_tokens"),
        ("openai", StopReason.FILTER, "content_filter"),
        ("openai", StopReason.REFUSAL, "response.refusal.delta"),
        ("openai", StopReason.CONTEXT, "context_length_exceeded"),
        ("openai-chat", StopReason.LENGTH, '"finish_reason":"length"'),
        ("openai-chat", StopReason.FILTER, '"finish_reason":"content_filter"'),
        ("openai-chat", StopReason.REFUSAL, '"refusal":"'),
    ],
)
def test_a_turn_ends_in_the_words_of_its_provider(wire: str, reason: StopReason, told: str) -> None:
    """S1: stop reasons as each provider spells them."""
    _, _, stream = one([Step("I will not go on.", stop_reason=reason)], wire)
    assert told in stream.decode()


def test_a_provider_that_never_pauses_cannot_be_told_to() -> None:
    """S1: a script that says what a wire cannot say is the author's error."""
    with pytest.raises(ConfigurationError):
        _asked_in_memory([Step("x", stop_reason=StopReason.PAUSE)], "openai")


def _asked_in_memory(script: Play, wire: str) -> bytes:
    from remit.testing.serve import Received, ScriptedProvider

    provider = ScriptedProvider(script, wire)
    headers = {"authorization": "Bearer test-key", "anthropic-version": "2023-06-01"}
    asked = json.dumps(body(wire)).encode()
    return provider.answer(Received("POST", provider.wire.path, headers, asked, 0.0)).body


@pytest.mark.parametrize("wire", WIRES)
def test_ids_are_those_of_the_script_or_made_up_the_same_in_every_run(wire: str) -> None:
    """case 08: no id at all, one id for all, and ids of its own are what providers really send."""
    calls = [("look", {}), ToolUse("mine", "look", "{}")]
    first, second = (one([calls], wire)[2] for _ in range(2))
    assert first == second
    assert b'"mine"' in first
    without = one([calls], wire, ids=lambda reply, call: None)[2]
    assert without.count(b'"mine"') == first.count(b'"mine"')
    constant = one([[("look", {}), ("look", {})]], wire, ids=lambda reply, call: "same")[2]
    assert constant.count(b'"same"') >= 2


def test_blocks_of_the_providers_own_are_written_as_they_stand() -> None:
    """S1: thinking comes in pieces and its signature whole; an encrypted item is whole only when it is done."""
    thinking = Opaque("anthropic", b'{"type":"thinking","thinking":"Hm, so.","signature":"c2ln"}')
    _, _, stream = one([Message("assistant", (thinking, Text("Yes.")))], "anthropic")
    deltas = [event["delta"] for event in events(stream) if event["type"] == "content_block_delta"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == "Hm, so."
    assert [delta["signature"] for delta in deltas if "signature" in delta] == ["c2ln"]

    item = Opaque(
        "openai", b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAABq"}'
    )
    _, _, stream = one([Message("assistant", (item, Text("Yes.")))], "openai")
    told = [
        event["item"]
        for event in events(stream)
        if event["type"].startswith("response.output_item")
    ]
    begun, done = [each["encrypted_content"] for each in told if each["type"] == "reasoning"]
    assert begun != done == "gAAAAABq"


# What is refused


@pytest.mark.parametrize("wire", WIRES)
def test_a_wrong_key_path_model_or_body_is_refused_in_the_providers_words(wire: str) -> None:
    """S1: status and body as the real provider has them, and nothing of the script is used up."""

    async def main(client: Client) -> None:
        status, _, told = await client.ask(body(wire), key="another")
        assert (status, "key" in json.loads(told)["error"]["message"]) == (401, True)
        status, _, _ = await client.ask(body(wire), path="/v1/nothing")
        assert status == 404
        status, _, told = await client.ask(body(wire, model="no-such-model"))
        assert (status, "no-such-model" in told.decode()) == (404, True)
        assert list(client.server.refusals) == []
        status, _, _ = await client.ask(b"{")
        assert status == 400
        assert len(client.server.refusals) == 1
        status, _, _ = await client.ask(body(wire))
        assert status == 200
        assert len(client.server.requests) == 5

    talk(["Here."], wire, main, models=["test-model"])


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_that_breaks_the_protocol_is_refused_and_noted(wire: str) -> None:
    """S1, T1: the server judges what it is sent; an unanswered call is refused as the provider does."""
    call = {
        "anthropic": {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}],
        },
        "openai": {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        "openai-chat": {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look", "arguments": "{}"},
                }
            ],
        },
    }[wire]
    field = "input" if wire == "openai" else "messages"

    async def main(client: Client) -> None:
        asked = body(wire)
        asked[field] = [*asked[field], call, {"role": "user", "content": "And?"}]
        status, _, told = await client.ask(asked)
        assert status == 400
        assert any(word in told.decode() for word in ("tool_use", "tool_calls", "No tool output"))
        assert len(client.server.refusals) == 1

    talk(["Here."], wire, main)


@pytest.mark.parametrize("wire", WIRES)
def test_a_script_that_is_over_refuses(wire: str) -> None:
    """S1: a request too many is an error that says so, not an empty answer."""

    async def main(client: Client) -> None:
        await client.ask(body(wire))
        status, _, told = await client.ask(body(wire))
        assert (status, "the script is over" in told.decode()) == (400, True)

    talk(["Here."], wire, main)


def test_a_wire_that_nobody_writes_and_a_text_as_script_are_refused() -> None:
    """S1: wrong calls are told before anything listens."""
    with pytest.raises(ConfigurationError, match="no wire is called"):
        talk([], "gopher", lambda client: client.ask({}))
    with pytest.raises(ConfigurationError, match="a list of items"):
        talk("Hello", "openai", lambda client: client.ask({}))


def test_an_error_in_a_function_of_the_script_is_raised_when_the_block_is_left() -> None:
    """S1: an assertion in a script fails the test that it stands in; the client is told of an error."""

    def say(transcript: Any, request: Any) -> Any:
        raise AssertionError(f"not {transcript[0].text}")

    async def main(client: Client) -> None:
        status, _, _ = await client.ask(body("openai"))
        assert status == 500

    with pytest.raises(AssertionError, match="not Where is it"):
        talk(say, "openai", main)


# What is counted


LONG = "x" * 8_000


def usage_of(wire: str, told: bytes) -> Usage:
    """What a whole reply reports, in disjoint parts."""
    counted = json.loads(told)["usage"]
    if wire == "anthropic":
        return Usage(
            counted["input_tokens"],
            counted["cache_read_input_tokens"],
            counted["cache_creation_input_tokens"],
        )
    whole = counted["input_tokens" if wire == "openai" else "prompt_tokens"]
    name = "input_tokens_details" if wire == "openai" else "prompt_tokens_details"
    read = counted[name]["cached_tokens"]
    return Usage(whole - read, read)


@pytest.mark.parametrize("wire", ["openai", "openai-chat"])
def test_a_beginning_that_was_seen_before_is_counted_as_cached_in_steps(wire: str) -> None:
    """S1, X4: OpenAI counts cached tokens inside of the prompt, in steps of 128, from 1,024 on."""

    async def main(client: Client) -> list[Usage]:
        told = [
            await client.ask(body(wire, text, stream=False))
            for text in (LONG, LONG, "y" + LONG, "short")
        ]
        return [usage_of(wire, each) for _, _, each in told]

    first, again, other, short = talk(["Yes."] * 4, wire, main)
    assert first.cache_read == other.cache_read == short.cache_read == 0
    assert again.cache_read >= 1_920
    assert again.cache_read % 128 == 0
    assert again.prompt == first.prompt


def test_only_what_is_marked_is_cached_and_a_mark_looks_back_twenty_blocks() -> None:
    """S1, X4: Anthropic reads from the last mark that it can see, and reports reads and writes beside the input."""
    mark = {"type": "ephemeral"}
    start = {"type": "text", "text": LONG, "cache_control": mark}

    def turn(blocks: int) -> list[dict[str, Any]]:
        rest: list[dict[str, Any]] = [{"type": "text", "text": f"part {n}"} for n in range(blocks)]
        rest[-1] = rest[-1] | {"cache_control": mark}
        first = {name: value for name, value in start.items() if name != "cache_control"}
        return [{"role": "user", "content": [first, *rest]}]

    async def main(client: Client) -> list[Usage]:
        asked = [
            body("anthropic", stream=False, messages=[{"role": "user", "content": [start]}]),
            body("anthropic", stream=False, messages=turn(19)),
            body("anthropic", stream=False, messages=turn(39 + 20)),
        ]
        return [
            usage_of("anthropic", told) for _, _, told in [await client.ask(each) for each in asked]
        ]

    first, near, far = talk(["Yes."] * 3, "anthropic", main)
    assert first.cache_write > 2_000
    assert near.cache_read == first.cache_write
    assert far.cache_read == 0
    assert far.cache_write > near.cache_read


@pytest.mark.parametrize("wire", WIRES)
def test_usage_is_what_the_script_says_or_nothing(wire: str) -> None:
    """S1, case 95: each vendor counts in its own way; what is cached is a part of the prompt for one, not for another."""
    usage = Usage(input=3, cache_read=2_560, cache_write=50, output=7, reasoning=2)
    told = json.loads(one([Step("Yes.", usage=usage)], wire, stream=False)[2])["usage"]
    expected = {
        "anthropic": ("input_tokens", 3),
        "openai": ("input_tokens", 2_613),
        "openai-chat": ("prompt_tokens", 2_613),
    }
    name, number = expected[wire]
    assert told[name] == number
    stream = one([Step("Yes.", usage=None)], wire)[2]
    assert b'"input_tokens"' not in stream
    assert b'"prompt_tokens"' not in stream


# Conversations that the server keeps


def test_a_stored_response_is_gone_on_from_and_a_forgotten_one_refused() -> None:
    """case 61: with `previous_response_id` only what is new is sent; the whole is judged."""

    async def main(client: Client) -> None:
        _, _, told = await client.ask(body("openai", stream=False))
        reply = json.loads(told)
        result = {
            "type": "function_call_output",
            "call_id": reply["output"][0]["call_id"],
            "output": "here",
        }
        asked = body("openai", stream=False, previous_response_id=reply["id"], input=[result])
        status, _, told = await client.ask(asked)
        assert status == 200, told
        client.server.provider.forget()
        status, _, told = await client.ask(asked)
        assert status == 400
        assert "not found" in told.decode()

    talk([("look", {}), "Here.", "Never."], "openai", main)


def test_what_is_not_to_be_stored_is_not() -> None:
    """case 59: without `store` the server knows no ids afterwards."""

    async def main(client: Client) -> int:
        _, _, told = await client.ask(body("openai", stream=False, store=False))
        asked = body("openai", stream=False, previous_response_id=json.loads(told)["id"])
        return (await client.ask(asked))[0]

    assert talk(["Yes.", "Never."], "openai", main) == 400


# What goes wrong


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        ("rate_limit", {429}),
        ("quota", {402, 429}),
        ("overloaded", {503, 529}),
        ("server", {500}),
        ("permission", {403}),
        ("context", {400}),
        ("too_large", {413}),
    ],
)
def test_a_refusal_has_the_status_and_the_form_of_its_provider(
    wire: str, kind: Any, statuses: set[int]
) -> None:
    """S1: errors as each provider writes them; the wait stands in a header."""
    status, headers, told = one([Refused(kind, retry_after=1.5)], wire)
    assert status in statuses
    assert headers["retry-after"] == "1.5"
    assert json.loads(told)["error"]["message"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("at", [0, 1, 70, "head", "end"])
def test_a_reply_that_is_cut_breaks_where_it_says(wire: str, at: Any) -> None:
    """S1: the bytes up to there, and then no end of the body."""

    async def main(client: Client) -> bytes:
        headers = {"authorization": "Bearer test-key", "anthropic-version": "2023-06-01"}
        url = client.server.url + client.server.provider.wire.path
        got = b""
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                async with session.post(url, json=body(wire), headers=headers) as answer:
                    async for piece in answer.content.iter_any():
                        got += piece
        return got

    got = talk([Cut("Here I am.", at=at)], wire, main)
    if isinstance(at, int):
        assert len(got) == at
    elif at == "head":
        assert got == b""
    else:
        assert b"I am" in got or b"m." in got
        assert not any(
            word in got for word in (b"message_stop", b"response.completed", b"[DONE]", b'"stop"')
        )


def test_a_clean_cut_ends_the_body_as_http_wants_it() -> None:
    """S1: nobody but the reader of the stream can notice."""
    status, _, stream = one([Cut("Here.", clean=True)], "anthropic")
    assert status == 200
    assert b"message_stop" not in stream
    assert b"content_block_stop" in stream


def test_pieces_doubles_garbage_labels_and_packing_arrive_as_told() -> None:
    """S1: each fault does what its name says, and they can be put into one another."""
    plain = one(["Here."], "anthropic")[2]
    assert one([Dripped("Here.", bytes=3)], "anthropic")[2] == plain
    doubled = one([Doubled("Here.")], "anthropic")[2]
    assert len(doubled) == 2 * len(plain)
    garbled = one([Garbled("Here.", b"???", at=5)], "anthropic")[2]
    assert garbled == plain[:5] + b"???" + plain[5:]
    labelled = one([Mislabelled(Dripped("Here."), "text/plain")], "anthropic")
    assert labelled[1]["content-type"] == "text/plain"
    assert labelled[2] == plain
    assert one([Gzipped("Here.")], "anthropic")[2] == plain  # the client unpacks it
    whole = one([Whole("Here.")], "anthropic")
    assert json.loads(whole[2])["content"] == [{"type": "text", "text": "Here."}]
    failed = one([Fails("Here.", "overloaded")], "anthropic")[2]
    assert events(failed)[-1]["error"]["type"] == "overloaded_error"
    page = one([Answer(status=502)], "anthropic")
    assert (page[0], page[2]) == (502, HTML_PAGE)
    for fault in (Raw(), Gzipped("Here.", lies=True)):
        with pytest.raises(aiohttp.ClientError):
            one([fault], "anthropic")


def test_a_step_that_is_cut_or_fails_does_so_behind_its_blocks() -> None:
    """S1: `Step` means the same here as for `ScriptedModel`."""
    with pytest.raises(aiohttp.ClientPayloadError):
        one([Step(["One.", "Two."], cut_after=1)], "anthropic")
    late = one([Step(["One.", "Two."], cut_after=1, error=ModelUnavailable("busy"))], "anthropic")[
        2
    ]
    assert events(late)[-1]["error"]["message"] == "busy"
    status, headers, _ = one([Step(error=ModelUnavailable("busy", retry_after=3))], "anthropic")
    assert (status, headers["retry-after"]) == (529, "3")


def test_a_stalled_stream_says_nothing_but_pings_and_ends_with_the_server() -> None:
    """S1: what hangs is ended when the block is left, and a client that goes is noticed."""

    async def main(client: Client) -> None:
        headers = {"authorization": "Bearer test-key", "anthropic-version": "2023-06-01"}
        url = client.server.url + client.server.provider.wire.path
        session = aiohttp.ClientSession()
        answer = await session.post(url, json=body("anthropic"), headers=headers)
        got = b""
        while got.count(b"event: ping") < 4:
            got += await answer.content.readany()
        assert b"Here" not in got
        assert client.server.left == 0
        answer.close()
        await session.close()
        async with asyncio.timeout(SECONDS):
            while not client.server.left:  # noqa: ASYNC110 - the server tells nobody, it counts
                await asyncio.sleep(0.001)

    talk([Stalled("Here.", every=0.01)], "anthropic", main)

    async def hang(client: Client) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.ask(body("anthropic"))

    talk([Stalled("Here.", pings=0)], "anthropic", hang)


def test_it_listens_on_this_machine_alone_and_is_gone_afterwards() -> None:
    """S1: a server of tests is nobody else's business."""

    async def main() -> None:
        async with serve(["Yes."]) as server:
            host, port = server.url.removeprefix("http://").split(":")
            assert host == "127.0.0.1"
            reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection(host, int(port))

    asyncio.run(main())


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\r\n\r\n",
        b"GET",
        b"\x16\x03\x01\x02\x00\x01",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_request_is_hung_up_on(junk: bytes) -> None:
    """S1: nothing that comes in makes the server fail or wait for ever."""

    async def main(client: Client) -> None:
        host, port = client.server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(junk)
        writer.write_eof()
        await reader.read()
        writer.close()
        status, _, _ = await client.ask(body("openai"))
        assert status == 200

    talk(["Yes."], "openai", main)


@pytest.mark.parametrize(
    "given", [{"script": 3}, {"script": None}, {"script": "ok"}, {"models": "m"}, {"key": 3}]
)
def test_a_provider_of_what_is_no_script_is_wrong_configuration(given: dict[str, Any]) -> None:
    options: dict[str, Any] = {"script": ["ok"], **given}
    with pytest.raises(ConfigurationError):
        ScriptedProvider(options.pop("script"), "openai", **options)


def test_a_fault_that_there_is_not_is_wrong_configuration() -> None:
    kind: Any = "nope"
    with pytest.raises(ConfigurationError, match="overloaded"):
        Refused(kind)
    with pytest.raises(ConfigurationError, match="bytes"):
        Raw(kind)
