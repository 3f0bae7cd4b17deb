"""The wire of Anthropic Messages: requests, replies, errors, and bodies read back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import (
    ConfigurationError,
    ContextExceeded,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    TranscriptError,
)
from remit.messages import (
    Media,
    Message,
    Opaque,
    Reply,
    StopReason,
    Text,
    ToolResult,
    ToolUse,
    Usage,
)
from remit.models.base import BlockDone, Chunk, ModelRequest, Settings, TextDelta, ToolSpec
from remit.models.checked import checked_reply, is_usage
from remit.models.wires import codec as codec_of
from remit.models.wires.anthropic import AnthropicCodec
from remit.models.wires.anthropic.decoding import AnthropicDecoder
from remit.models.wires.anthropic.encoding import AnthropicEncoder
from remit.models.wires.sse import EventReader
from remit.transcript import Stub, Transcript, validate

RECORDED = Path(__file__).resolve().parents[2] / "shared" / "wire" / "anthropic"
FILES = sorted(RECORDED.glob("*.json"))

LOOK = ToolSpec("look", "Look at it.", {"type": "object", "properties": {"at": {"type": "string"}}})
WIRE = AnthropicCodec()
UNMARKED = AnthropicCodec(cache_ttl=None)
THINKING = b'{"type":"thinking","thinking":"hm","signature":"c2ln"}'


def request(
    transcript: Transcript,
    *,
    instructions: str = "Help.",
    tools: tuple[ToolSpec, ...] = (LOOK,),
    settings: Settings | None = None,
    max_output: int = 4_096,
    output_schema: Mapping[str, Any] | None = None,
) -> ModelRequest:
    return ModelRequest(
        instructions,
        transcript,
        tools,
        settings or Settings(),
        max_output,
        0.0,
        output_schema,
    )


def sent(made: ModelRequest, encoder: AnthropicEncoder | None = None) -> Any:
    """The body of a request, read."""
    encoder = encoder or UNMARKED.encoder("claude-x")
    return json.loads(encoder.encode(made, stream=True).body)


def opaque(**block: Any) -> Opaque:
    return Opaque("anthropic", json.dumps(block).encode())


def user(*content: Any) -> Message:
    return Message("user", tuple(Text(each) if isinstance(each, str) else each for each in content))


def model(*content: Any) -> Message:
    return Message(
        "assistant", tuple(Text(each) if isinstance(each, str) else each for each in content)
    )


def answer(to: str, text: str = "seen", *, is_error: bool = False) -> ToolResult:
    return ToolResult(to, (Text(text),), is_error)


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def begin(**usage: int) -> bytes:
    return event("message_start", message={"type": "message", "usage": usage})


def block(index: int, start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> bytes:
    written = [event("content_block_start", index=index, content_block=start)]
    written += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join([*written, event("content_block_stop", index=index)])


def finish(stop_reason: str | None, **usage: int) -> bytes:
    delta = {"stop_reason": stop_reason}
    return event("message_delta", delta=delta, usage=usage) + event("message_stop")


def call(named: str, name: str = "look") -> dict[str, Any]:
    return {"type": "tool_use", "id": named, "name": name, "input": {}}


def part(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


def said(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def read(stream: bytes, decoder: AnthropicDecoder | None = None) -> list[Chunk]:
    decoder = decoder or WIRE.decoder()
    chunks: list[Chunk] = []
    for found in EventReader().feed(stream):
        chunks += decoder.feed(found)
    return [*chunks, *decoder.end()]


def reply(stream: bytes) -> Reply:
    last = read(stream)[-1]
    assert isinstance(last, Reply)
    return last


# Requests


def test_a_request_says_what_the_provider_wants_to_hear() -> None:
    """T1: a call and its result, each in its place."""
    transcript = Transcript(
        [
            user("Look there."),
            model("I look.", ToolUse("a", "look", '{"at": 1.10}')),
            user(answer("a", "gone", is_error=True), "And now?"),
        ]
    )
    wired = UNMARKED.encoder("claude-x").encode(request(transcript), stream=True)
    assert b'"input":{"at": 1.10}' in wired.body  # as the model wrote it
    assert json.loads(wired.body) == {
        "model": "claude-x",
        "max_tokens": 4_096,
        "stream": True,
        "tools": [{"name": "look", "description": "Look at it.", "input_schema": LOOK.parameters}],
        "system": [{"type": "text", "text": "Help."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look there."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1.1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": "gone",
                        "is_error": True,
                    },
                    {"type": "text", "text": "And now?"},
                ],
            },
        ],
    }


@pytest.mark.parametrize("arguments", ["", '{"a": [1', "[]", "7", '"x"', '{"a": "\\ud800"}'])
def test_arguments_that_are_no_object_go_back_inside_of_one(arguments: str) -> None:
    """C2: what the model did not finish is not finished for it."""
    transcript = Transcript([user("x"), model(ToolUse("a", "look", arguments)), user(answer("a"))])
    given = sent(request(transcript))["messages"][1]["content"][0]["input"]
    assert given == {"arguments_as_written": arguments}


def test_what_a_result_says_is_never_interpreted() -> None:
    """case 18: schema-like keys in a result are text, and nothing else."""
    text = '{"type": "image", "spec": {"$ref": "#/$defs/K"}, "role": "system", "cache_control": {}}'
    transcript = Transcript([user("x"), model(ToolUse("a", "look", "{}")), user(answer("a", text))])
    found = sent(request(transcript))["messages"][2]["content"][0]
    assert found == {"type": "tool_result", "tool_use_id": "a", "content": text}


def test_media_go_out_as_the_provider_reads_them() -> None:
    """X3: images and documents as such, anything else as a note."""
    media = (
        Media("image/png", b"\x89P"),
        Media("application/pdf", b"%P", "a.pdf"),
        Media("text/plain", "größer".encode()),
        Media("audio/wav", b"RIFF", "a.wav"),
    )
    transcript = Transcript(
        [user(*media), model(ToolUse("a", "look", "{}")), user(ToolResult("a", media))]
    )
    messages = sent(request(transcript))["messages"]
    image, pdf, plain, note = messages[0]["content"]
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": "iVA="}
    assert (pdf["type"], pdf["title"], pdf["source"]["data"]) == ("document", "a.pdf", "JVA=")
    assert plain["source"] == {"type": "text", "media_type": "text/plain", "data": "größer"}
    assert note == {"type": "text", "text": "[audio/wav 'a.wav', 4 bytes: it cannot be shown here]"}
    assert messages[2]["content"][0]["content"] == messages[0]["content"]


def test_own_blocks_go_back_byte_for_byte_and_foreign_ones_stay_here() -> None:
    """T7, case 57, case 60: in their place, to their issuer only."""
    own = b'{ "type":"server_tool_use" ,"id":"s","input":{"x":1.0e0}}'
    transcript = Transcript(
        [
            user("x"),
            model(
                Opaque("anthropic", THINKING),
                ToolUse("a", "look", "{}"),
                Opaque("openai", b'{"type":"reasoning"}'),
                Opaque("anthropic", own),
                ToolUse("b", "look", "{}"),
            ),
            user(answer("a"), answer("b")),
            model(Opaque("openai", b'{"type":"reasoning"}')),
            user("y"),
        ]
    )
    body = UNMARKED.encoder("m").encode(request(transcript), stream=False).body
    assert b"[" + THINKING + b',{"type":"tool_use"' in body
    assert b"," + own + b"," in body
    assert b"reasoning" not in body
    assert [message["role"] for message in json.loads(body)["messages"]] == [
        "user",
        "assistant",
        "user",
        "user",
    ]


@pytest.mark.parametrize("data", [b"\xff", b"no json", b"[]", b"{}", b'{"type":"x","a":"\xff"}'])
def test_an_own_block_that_is_no_block_does_not_break_the_request(data: bytes) -> None:
    """T7: what is no JSON in a history cannot go out as a part of JSON."""
    transcript = Transcript([user("x"), model("y", Opaque("anthropic", data)), user("z")])
    assert sent(request(transcript))["messages"][1]["content"] == [{"type": "text", "text": "y"}]


def test_what_stands_beside_a_block_goes_back_into_it() -> None:
    """T7: a caller, a toolset and citations belong to their block."""
    caller = {"type": "code_execution_20260120", "tool_id": "srv"}
    transcript = Transcript(
        [
            user("x"),
            model(
                "cited",
                opaque(type="remit.beside", citations=[{"n": 1}]),
                ToolUse("a", "click", "{}"),
                opaque(type="remit.beside", caller=caller, toolset_name="browser"),
                Opaque("openai", b'{"type":"remit.beside","id":"msg_1"}'),
            ),
            user(answer("a")),
        ]
    )
    _, turn, results = sent(request(transcript))["messages"]
    assert turn["content"][0] == {"type": "text", "text": "cited", "citations": [{"n": 1}]}
    assert turn["content"][1]["caller"] == caller
    assert results["content"][0]["toolset_name"] == "browser"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(), {}),
        (Settings(tool_choice="none"), {"tool_choice": {"type": "none"}}),
        (Settings(tool_choice="any"), {"tool_choice": {"type": "any"}}),
        (Settings(tool_choice="look"), {"tool_choice": {"type": "tool", "name": "look"}}),
        (Settings(thinking=2_000), {"thinking": {"type": "enabled", "budget_tokens": 2_000}}),
        (Settings(thinking=9_000), {"thinking": {"type": "enabled", "budget_tokens": 4_095}}),
        (Settings(thinking=9_000, tool_choice="any"), {"tool_choice": {"type": "any"}}),
        (Settings(extra={"max_tokens": 7, "top_k": 1}), {"max_tokens": 7, "top_k": 1}),
        (
            Settings(extra={"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ),
    ],
)
def test_settings_become_fields_of_the_request(
    settings: Settings, expected: dict[str, Any]
) -> None:
    body = sent(request(Transcript([user("x")]), settings=settings))
    for known in ("model", "messages", "system", "tools", "stream"):
        body.pop(known)
    assert body == {"max_tokens": 4_096} | expected


def test_a_choice_without_tools_is_not_sent() -> None:
    made = request(Transcript([user("x")]), tools=(), settings=Settings(tool_choice="any"))
    assert "tool_choice" not in sent(made)
    assert "tools" not in sent(made)


def test_tools_of_the_provider_stand_behind_own_ones_and_a_name_is_said_once() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    more = {"name": "look", "input_schema": LOOK.parameters, "strict": True}
    made = request(Transcript([user("x")]), settings=Settings(extra={"tools": [search]}))
    assert [tool["name"] for tool in sent(made)["tools"]] == ["look", "web_search"]
    made = request(Transcript([user("x")]), settings=Settings(extra={"tools": [search, more]}))
    assert sent(made)["tools"] == [search, more]


def test_a_schema_of_the_output_goes_out_beside_the_effort() -> None:
    """O1: the wire holds a final text to its schema."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    made = request(
        Transcript([user("x")]),
        settings=Settings(extra={"output_config": {"effort": "low"}}),
        output_schema=schema,
    )
    assert sent(made)["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": schema},
    }


@pytest.mark.parametrize("name", ["messages", "stream"])
def test_what_the_reply_depends_on_cannot_be_replaced(name: str) -> None:
    made = request(Transcript([user("x")]), settings=Settings(extra={name: []}))
    with pytest.raises(ConfigurationError, match=name):
        WIRE.encoder("m").encode(made, stream=True)


def test_the_key_and_the_version_are_in_the_headers() -> None:
    assert AnthropicCodec().headers("k") == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    newer = AnthropicCodec(version="2026-10-21", betas=("a", "b"))
    assert newer.headers("k") == {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "a,b",
        "authorization": "Bearer k",
    }
    assert newer.headers(None).keys() == {"anthropic-version", "anthropic-beta"}


# Replies


def test_a_stream_becomes_text_blocks_and_one_reply() -> None:
    """case 15: each block under its own index, in the order in which they began."""
    stream = (
        begin(input_tokens=9, output_tokens=1)
        + event("ping")
        + block(0, {"type": "text", "text": ""}, said("Hel"), said(""), said("lo"))
        + block(1, call("a"), part(""), part('{"at": '), part("1.10}"))
        + block(2, call("b"))
        + finish("tool_use", output_tokens=30)
    )
    chunks = read(stream)
    expected = (Text("Hello"), ToolUse("a", "look", '{"at": 1.10}'), ToolUse("b", "look", "{}"))
    assert chunks == [
        TextDelta("Hel"),
        TextDelta("lo"),
        *map(BlockDone, expected),
        Reply(model(*expected), StopReason.TOOL_USE, Usage(input=9, output=30)),
    ]


def test_blocks_that_are_written_at_once_are_kept_apart() -> None:
    """case 15: fragments go to their index; a new beginning under an index ends what was there."""
    start = "content_block_start"
    delta = "content_block_delta"
    stream = (
        begin()
        + event(start, index=0, content_block=call("a"))
        + event(start, index=1, content_block=call("b"))
        + event(delta, index=1, delta=part('{"at":2}'))
        + event(delta, index=0, delta=part('{"at":1}'))
        + event("content_block_stop", index=1)
        + event(start, index=0, content_block=call("c"))
        + event(delta, index=0, delta=part('{"at":3}'))
        + event("content_block_stop", index=0)
        + finish("tool_use")
    )
    uses = [chunk.block for chunk in read(stream) if isinstance(chunk, BlockDone)]
    assert [(use.id, use.arguments) for use in uses if isinstance(use, ToolUse)] == [
        ("a", '{"at":1}'),
        ("b", '{"at":2}'),
        ("c", '{"at":3}'),
    ]


def test_a_fragment_that_belongs_to_no_block_is_an_error() -> None:
    """case 15: nothing is guessed; without an index there is nothing to guess with one open block."""
    start, delta = "content_block_start", "content_block_delta"
    one = event(start, content_block=call("a")) + event(delta, delta=part('{"at":1}'))
    closed = event("content_block_stop") + finish("tool_use")
    assert reply(begin() + one + closed).message.tool_uses[0].arguments == '{"at":1}'
    with pytest.raises(ModelProtocolError, match="no open block"):
        read(begin() + event(start, content_block=call("b")) + one)
    with pytest.raises(ModelProtocolError, match="no open block"):
        read(begin() + event(delta, index=3, delta=part("{}")))


def test_a_signature_replaces_what_was_there() -> None:
    """T7: it comes whole; two of them glued together would be none."""
    stream = (
        begin()
        + block(
            0,
            {"type": "thinking", "thinking": "", "signature": "old"},
            {"type": "thinking_delta", "thinking": "a"},
            {"type": "thinking_delta", "thinking": "b"},
            {"type": "signature_delta", "signature": "one"},
            {"type": "signature_delta", "signature": "two"},
        )
        + finish("end_turn")
    )
    (found,) = reply(stream).message.content
    assert isinstance(found, Opaque)
    assert json.loads(found.data) == {"type": "thinking", "thinking": "ab", "signature": "two"}


def test_usage_is_taken_and_not_added() -> None:
    """case 95: what a stream reports is cumulative, and its parts are disjoint."""
    stream = (
        begin(
            input_tokens=3,
            cache_read_input_tokens=2560,
            cache_creation_input_tokens=50,
            output_tokens=1,
        )
        + event("message_delta", delta={}, usage={"output_tokens": 7})
        + event(
            "message_delta",
            delta={"stop_reason": "end_turn"},
            usage={"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
        )
        + event("message_stop")
    )
    usage = reply(stream).usage
    assert usage is not None
    assert usage == Usage(input=3, cache_read=2560, cache_write=50, output=9, reasoning=4)
    assert usage.prompt == 2613


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", StopReason.END_TURN),
        ("tool_use", StopReason.TOOL_USE),
        ("pause_turn", StopReason.PAUSE),
        ("compaction", StopReason.PAUSE),
        ("max_tokens", StopReason.LENGTH),
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("refusal", StopReason.REFUSAL),
        ("model_context_window_exceeded", StopReason.CONTEXT),
        ("xyz", StopReason.UNKNOWN),
        (None, StopReason.UNKNOWN),
    ],
)
def test_every_stop_reason_is_known_and_any_other_is_unknown(
    word: str | None, reason: StopReason
) -> None:
    """case 79: also with a call in the reply, which outranks none of them."""
    assert reply(begin() + block(0, call("a"), part("{}")) + finish(word)).stop_reason is reason
    whole = {"type": "message", "content": [call("a")], "stop_reason": word}
    assert WIRE.decoder().whole(json.dumps(whole).encode()).stop_reason is reason


def test_a_call_in_whose_middle_the_reply_broke_off_is_the_last_and_not_complete() -> None:
    """C3, case 12: no block of it is told as complete, and its text is as far as it came."""
    caller = {"type": "code_execution_20260120", "tool_id": "srv"}
    stream = (
        begin()
        + block(0, {"type": "text", "text": ""}, said("so"))
        + block(1, {**call("a"), "caller": caller}, part('{"hosts": ["a1","a2"'))
        + finish("max_tokens")
    )
    *before, last = read(stream)
    assert before == [TextDelta("so"), BlockDone(Text("so"))]
    assert isinstance(last, Reply)
    assert last.message.content[-1] == ToolUse("a", "look", '{"hosts": ["a1","a2"')


def test_a_stream_without_its_end_is_a_failed_attempt_that_knows_what_it_cost() -> None:
    stream = begin(input_tokens=9, output_tokens=1) + block(
        0, {"type": "text", "text": ""}, said("x" * 400)
    )
    with pytest.raises(ModelProtocolError, match="broke off") as failed:
        read(stream)
    assert failed.value.usage == Usage(input=9, output=100)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", ModelUnavailable),
        ("rate_limit_error", ModelUnavailable),
        ("api_error", ModelUnavailable),
        ("never_heard_of", ModelUnavailable),
        ("invalid_request_error", ModelRejected),
        ("billing_error", ModelRejected),
        ("request_too_large", ContextExceeded),
    ],
)
def test_an_error_inside_of_a_reply_means_what_it_would_have_meant_before(
    kind: str, error: type[Exception]
) -> None:
    told = {"type": kind, "message": "So it is."}
    with pytest.raises(error, match="So it is") as failed:
        read(begin(input_tokens=9) + event("error", error=told))
    assert type(failed.value) is error
    assert getattr(failed.value, "usage", None) == Usage(input=9)
    with pytest.raises(error, match="So it is"):
        WIRE.decoder().whole(json.dumps({"type": "error", "error": told}).encode())


def test_what_is_not_known_is_kept_or_skipped() -> None:
    stream = (
        begin()
        + event("news", what=1)
        + block(0, {"type": "dream", "of": [1.50]}, {"type": "dream_delta", "of": 2})
        + finish("end_turn")
    )
    assert reply(stream).message.content == (opaque(type="dream", of=[1.5]),)


# Errors


def faulted(status: int, kind: str = "x", message: str = "m", **headers: str) -> Any:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return WIRE.fault(status, given, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "kind", "message", "error"),
    [
        (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextExceeded),
        (413, "request_too_large", "Request exceeds the maximum size", ContextExceeded),
        (401, "authentication_error", "invalid x-api-key", ModelRejected),
        (402, "billing_error", "Pay.", ModelRejected),
        (400, "invalid_request_error", "Your credit balance is too low", ModelRejected),
        (404, "not_found_error", "model: nope", ModelRejected),
        (302, "", "", ModelRejected),
        (408, "timeout_error", "slow", ModelUnavailable),
        (409, "conflict_error", "busy", ModelUnavailable),
        (429, "rate_limit_error", "Too many", ModelUnavailable),
        (500, "api_error", "oops", ModelUnavailable),
        (529, "overloaded_error", "Overloaded", ModelUnavailable),
    ],
)
def test_a_status_is_an_error_of_ours(
    status: int, kind: str, message: str, error: type[Exception]
) -> None:
    fault = faulted(status, kind, message)
    assert type(fault.error) is error
    assert message in str(fault.error)
    assert fault.repair is None
    assert type(WIRE.fault(status, {}, b"<html>").error) in (error, ModelRejected)


def test_money_that_has_run_out_is_not_asked_for_again() -> None:
    """A 429 is retried, but not for a spend limit, whatever the headers say."""
    body = {
        "type": "error",
        "error": {
            "type": "rate_limit_error",
            "message": "No more.",
            "details": {"error_code": "enforced_spend_limit_reached"},
        },
    }
    found = WIRE.fault(429, {"x-should-retry": "true"}, json.dumps(body).encode())
    assert type(found.error) is ModelRejected


def test_the_provider_knows_best_whether_to_retry() -> None:
    assert type(faulted(400, x_should_retry="true").error) is ModelUnavailable
    assert type(faulted(529, x_should_retry="false").error) is ModelRejected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after_ms": "1500", "retry_after": "7"}, 1.5),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        (
            {
                "retry_after": "Wed, 21 Oct 2026 07:28:00 GMT",
                "date": "Wed, 21 Oct 2026 07:27:30 GMT",
            },
            30.0,
        ),
        (
            {
                "retry_after": "Wed, 21 Oct 2026 07:28:00 GMT",
                "date": "Wed, 21 Oct 2026 07:29:30 GMT",
            },
            0.0,
        ),
    ],
)
def test_how_long_to_wait_is_in_seconds_and_needs_no_clock(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert faulted(429, **headers).error.retry_after == seconds


def test_an_error_says_what_to_do_and_stays_short() -> None:
    told = faulted(401, "authentication_error", "invalid x-api-key", request_id="req_1").error
    assert str(told) == (
        "401 authentication_error: invalid x-api-key - set ANTHROPIC_API_KEY, or pass api_key= "
        "(request req_1)"
    )
    assert len(str(faulted(400, "x\n" * 9_000, "\x1b[31m" * 9_000).error)) < 2_000
    assert "\x1b" not in str(faulted(400, "x", "\x1b[31m").error)


# Repairs


def test_refused_thinking_is_left_out_once_and_the_next_body_differs() -> None:
    """case 60: a repair that would send the same again does not happen."""
    refused = faulted(400, "invalid_request_error", "Invalid `signature` in `thinking` block")
    assert refused.repair == "opaque"
    transcript = Transcript([user("x"), model(Opaque("anthropic", THINKING), "y"), user("z")])
    encoder = UNMARKED.encoder("m")
    assert not encoder.repair("opaque")  # nothing went out yet
    first = encoder.encode(request(transcript), stream=True)
    assert first.cut_back is None
    assert THINKING in first.body
    assert encoder.repair("opaque")
    second = encoder.encode(request(transcript), stream=True)
    assert THINKING not in second.body
    assert second.cut_back is not None
    assert not encoder.repair("opaque")
    assert encoder.encode(request(transcript), stream=True).cut_back is None
    transcript.add_reply(model(Opaque("anthropic", THINKING), "new"))
    transcript.say(Text("more"))
    assert THINKING in encoder.encode(request(transcript), stream=True).body  # what is new may bind


def test_thinking_is_switched_off_where_the_last_turn_has_none() -> None:
    """case 60: a turn without thinking cannot be gone on from with it."""
    said = "Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    assert faulted(400, "invalid_request_error", f"messages.1: {said}").repair == "thinking"
    made = request(Transcript([user("x")]), settings=Settings(thinking=2_000))
    encoder = UNMARKED.encoder("m")
    assert "thinking" in sent(made, encoder)
    assert encoder.repair("thinking")
    assert "thinking" not in sent(made, encoder)
    assert not encoder.repair("thinking")
    assert not encoder.repair("whatever")


def test_thinking_that_was_said_in_view_of_what_is_gone_is_left_out() -> None:
    """X5: a break takes the binding blocks behind it along, and those that come later stay."""
    transcript = Transcript([user("x")])
    for step in range(3):
        transcript.add_reply(
            model(Opaque("anthropic", THINKING), ToolUse(f"call{step}", "look", "{}"))
        )
        with transcript.answering() as answering:
            answering.slots[0].settle((Text("long " * 99),))
    encoder = UNMARKED.encoder("m")
    assert encoder.encode(request(transcript), stream=True).body.count(THINKING) == 3
    transcript.elide([Stub("call0", 0, "gone", "artifact:x", 495)])
    wired = encoder.encode(request(transcript), stream=True)
    assert wired.body.count(THINKING) == 1  # before the result that was changed
    assert wired.cut_back is not None
    transcript.add_reply(model(Opaque("anthropic", THINKING), "done"))
    transcript.say(Text("more"))
    again = encoder.encode(request(transcript), stream=True)
    assert again.body.count(THINKING) == 2
    assert again.cut_back is None
    assert again.body == UNMARKED.encoder("m").encode(request(transcript), stream=True).body


# The prompt cache


class Cache:
    """The provider's prompt cache: four markers, and a look back of 20 blocks from each."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def ask(self, body: Any) -> tuple[int, int]:
        """How many blocks were found, and how many there were. What is marked is written."""
        blocks: list[tuple[str, bool]] = []
        for place, entries in [("tools", body.get("tools", [])), ("system", body["system"])]:
            blocks += [self._block(place, entry) for entry in entries]
        for message in body["messages"]:
            blocks += [self._block(message["role"], entry) for entry in message["content"]]
        prefixes: list[str] = []
        digest = hashlib.sha256()
        for text, _ in blocks:
            digest.update(text.encode())
            prefixes.append(digest.hexdigest())
        marked = [at for at, (_, is_marked) in enumerate(blocks) if is_marked]
        assert len(marked) <= 4
        found = 0
        for at in marked:
            looked = [
                back for back in range(at, max(at - 21, -1), -1) if prefixes[back] in self._known
            ]
            found = max([found, *[back + 1 for back in looked[:1]]])
        self._known |= {prefixes[at] for at in marked}
        return found, len(blocks)

    @staticmethod
    def _block(place: str, entry: dict[str, Any]) -> tuple[str, bool]:
        is_marked = entry.pop("cache_control", None) is not None
        assert not (is_marked and entry.get("type") in ("thinking", "redacted_thinking"))
        assert not (is_marked and entry.get("type") == "text" and not entry["text"].strip())
        return json.dumps([place, entry]), is_marked


class Talk:
    """A run against that cache."""

    def __init__(self) -> None:
        self.transcript = Transcript([user("begin")])
        self.encoder = WIRE.encoder("m")
        self.cache = Cache()
        self.had = 0
        """Blocks of the last request."""
        self.n = 0

    def ask(self) -> int:
        """Send the next request; returns by how many blocks it misses what the last one had."""
        made = request(self.transcript)
        body = json.loads(self.encoder.encode(made, stream=True).body)
        found, total = self.cache.ask(body)
        missed, self.had = self.had - found, total
        self.transcript.mark_sent()
        return missed

    def calls(self, count: int, *more: Any) -> None:
        uses = [ToolUse(f"u{self.n + at}", "look", "{}") for at in range(count)]
        self.n += count
        self.transcript.add_reply(model(Opaque("anthropic", THINKING), *more, *uses))
        with self.transcript.answering() as answering:
            for slot in answering.slots:
                slot.settle((Text(f"result of {slot.use.id}"),))


@given(st.lists(st.integers(1, 60), min_size=30, max_size=30))
def test_every_request_finds_all_that_the_one_before_had(counts: list[int]) -> None:
    """X4: with any number of parallel calls, although the look-back is 20 blocks."""
    talk = Talk()
    talk.ask()
    for count in counts:
        talk.calls(count)
        assert talk.ask() == 0


SEARCHED = '{"type":"web_search_tool_result","tool_use_id":"s","content":[%d]}'


@given(
    st.lists(st.sampled_from(["calls", "note", "queued", "pause", "resume", "silent"]), max_size=30)
)
def test_notes_pauses_and_a_resume_miss_nothing(course: list[str]) -> None:
    """X4: the markers follow from the transcript alone, so a new encoder sets the same ones."""
    talk = Talk()
    talk.ask()
    for step, what in enumerate(course):
        match what:
            case "calls":
                talk.calls(40, "some text")
            case "note":
                talk.calls(2)
                talk.transcript.say(Text("a note"))
            case "queued":
                talk.calls(30)
                for at in range(15):
                    talk.transcript.say(Text(f"also {at}"))
            case "pause":
                served = [
                    Opaque("anthropic", (SEARCHED % (step * 99 + at)).encode()) for at in range(30)
                ]
                talk.transcript.add_reply(model(*served))
            case "silent":  # a reply without content is not recorded; a note follows
                talk.transcript.say(Text("go on"))
            case _:
                talk.calls(25)
                talk.encoder = WIRE.encoder("m")
        assert talk.ask() == 0


def test_an_elision_misses_once() -> None:
    """X4, X5: what was changed is written anew, and the tools and the system text are found."""
    talk = Talk()
    talk.ask()
    for _ in range(5):
        talk.calls(30)
        assert talk.ask() == 0
    talk.transcript.elide([Stub("u0", 0, "gone", "artifact:x", 12)])
    talk.calls(30)
    before = talk.had
    assert talk.ask() == before - 2
    for _ in range(3):
        talk.calls(30)
        assert talk.ask() == 0


def test_a_marker_changes_nothing_else() -> None:
    """X1, X4: without the markers the bytes are those of a wire that sets none."""
    talk = Talk()
    for _ in range(4):
        talk.calls(3)
    made = request(talk.transcript)
    marked = WIRE.encoder("m").encode(made, stream=True).body
    bare = UNMARKED.encoder("m").encode(made, stream=True).body
    mark = b',"cache_control":{"type":"ephemeral"}'
    assert marked.count(mark) == 3
    assert marked.replace(mark, b"") == bare
    longer = AnthropicCodec(cache_ttl="1h").encoder("m").encode(made, stream=True).body
    assert longer == marked.replace(mark, b',"cache_control":{"type":"ephemeral","ttl":"1h"}')


def test_whoever_sets_markers_of_his_own_gets_no_others() -> None:
    """X4: no more than four of them are taken, and top-level ones move by themselves."""
    own = {"cache_control": {"type": "ephemeral"}}
    made = request(Transcript([user("x")]), settings=Settings(extra=own))
    body = sent(made, WIRE.encoder("m"))
    assert body.pop("cache_control") == own["cache_control"]
    assert "cache_control" not in json.dumps(body)
    system = [{"type": "text", "text": str(at), **own} for at in range(4)]
    made = request(Transcript([user("x")]), settings=Settings(extra={"system": system}))
    assert json.dumps(sent(made, WIRE.encoder("m"))).count("cache_control") == 4


def test_without_a_system_text_the_last_tool_is_marked() -> None:
    """X4: tools come first in what is cached."""
    body = sent(request(Transcript([user("x")]), instructions=""), WIRE.encoder("m"))
    assert "system" not in body
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral"}


# Bytes


def messages_of(body: bytes) -> bytes:
    """The messages of a body as they are written, without their end."""
    return body[body.index(b'"messages":[') : -2]


BLOCKS = st.one_of(
    st.text(min_size=1).map(Text),
    st.just(Opaque("anthropic", THINKING)),
    st.just(Opaque("openai", b'{"type":"reasoning"}')),
    st.just(opaque(type="remit.beside", citations=[1])),
    st.builds(Opaque, st.just("anthropic"), st.binary(max_size=9)),
)
USES = st.builds(
    ToolUse,
    st.just("x"),
    st.sampled_from(["look", "files.read", "größe"]),
    st.sampled_from(["{}", '{"at": 1}', "", "[1"]),
)


@given(
    st.lists(st.tuples(st.lists(st.one_of(BLOCKS, USES), max_size=5), st.booleans()), max_size=6)
)
def test_the_messages_of_a_request_begin_with_those_of_the_one_before(
    course: list[tuple[list[Any], bool]],
) -> None:
    """X1, J1: byte for byte, cache markers aside, and each is encoded once."""
    transcript = Transcript([user("begin")])
    encoder = UNMARKED.encoder("m")
    counted: list[int] = []
    pieces = encoder._pieces
    write = pieces._encode
    pieces._encode = lambda index, message: counted.append(index) or write(index, message)
    before = messages_of(encoder.encode(request(transcript), stream=True).body)
    for blocks, speaks in course:
        transcript.mark_sent()
        try:
            transcript.add_reply(model(*blocks))
        except TranscriptError:
            continue  # nothing in it
        if transcript.owed:
            with transcript.answering():
                pass
        if speaks or transcript.last is None or transcript.last.role == "assistant":
            transcript.say(Text("on"))
        made = encoder.encode(request(transcript), stream=True).body
        json.loads(made)
        assert messages_of(made).startswith(before)
        assert made == UNMARKED.encoder("m").encode(request(transcript), stream=True).body
        before = messages_of(made)
    assert counted == list(range(len(transcript)))


_SCRIPT = """
import sys
from remit.messages import Message, Text, ToolResult, ToolUse
from remit.models.base import ModelRequest, Settings, ToolSpec
from remit.models.wires.anthropic import AnthropicCodec
from remit.transcript import Transcript

tools = tuple(ToolSpec(f"größe.{n}", "d", {"type": "object", "properties": {}}) for n in range(9))
uses = tuple(ToolUse(f"c{n}", f"größe.{n}", "{}") for n in range(9))
results = tuple(ToolResult(f"c{n}", (Text(str(n)),)) for n in range(9))
transcript = Transcript([Message("user", (Text("x"),)), Message("assistant", uses), Message("user", results)])
made = ModelRequest("Help.", transcript, tools, Settings(extra={"b": 1, "a": 2}), 9, 0.0)
sys.stdout.buffer.write(AnthropicCodec().encoder("m").encode(made, stream=True).body)
"""


def test_the_bytes_do_not_depend_on_the_process() -> None:
    """X1, case 76: equal in processes with different hash seeds."""
    made = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in range(5)
    }
    assert len(made) == 1


# Whatever comes


def survives(stream: bytes) -> None:
    """It ends in a reply or in an error of the model."""
    decoder = WIRE.decoder()
    assert decoder.usage is None
    try:
        chunks = read(stream, decoder)
    except ModelError:
        assert decoder.usage is None or is_usage(decoder.usage)
        return
    assert isinstance(chunks[-1], Reply)
    checked_reply(chunks[-1])
    told = [chunk.block for chunk in chunks if isinstance(chunk, BlockDone)]
    assert list(chunks[-1].message.content[: len(told)]) == told


STREAMS = [
    exchange["response"]["sse"].encode()
    for file in FILES
    for exchange in json.loads(file.read_text())["exchanges"]
    if "sse" in exchange["response"]
] or [begin() + block(0, call("a"), part('{"at":1}')) + finish("tool_use")]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_that_is_cut_anywhere_is_a_failed_attempt(stream: bytes) -> None:
    """C3: only what has its end is a reply."""
    whole = stream.rstrip()
    for end in range(len(whole)):
        with pytest.raises(ModelError):
            read(whole[:end])


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_with_any_byte_flipped_has_a_typed_end(stream: bytes) -> None:
    for at in range(len(stream)):
        for bit in (0x01, 0x20, 0x80):
            survives(stream[:at] + bytes([stream[at] ^ bit]) + stream[at + 1 :])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    [
        "index",
        "delta",
        "content_block",
        "message",
        "usage",
        "error",
        "text",
        "input",
        "name",
        "id",
        "content",
        "stop_reason",
        "citations",
        "iterations",
        "output_tokens",
        "details",
    ]
)
KINDS = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "text",
        "tool_use",
        "text_delta",
        "input_json_delta",
        "thinking",
        "signature_delta",
        "citations_delta",
        "compaction_delta",
        "message",
    ]
)
SHAPES = st.recursive(
    JSON,
    lambda inner: st.builds(
        lambda kind, fields: {"type": kind} | fields,
        KINDS,
        st.dictionaries(FIELDS, inner, max_size=4),
    ),
    max_leaves=6,
)


@given(st.lists(SHAPES, max_size=8))
def test_any_events_have_a_typed_end(events: list[Any]) -> None:
    lines = [f"data: {json.dumps(each)}\n\n".encode() for each in events]
    survives(b"".join(lines))
    survives(begin() + b"".join(lines) + finish("tool_use"))


@given(st.one_of(st.binary(), SHAPES.map(lambda shape: json.dumps(shape).encode())))
def test_any_body_has_a_typed_end(body: bytes) -> None:
    with contextlib.suppress(ModelError):
        checked_reply(WIRE.decoder().whole(body))
    survives(body)
    for status in (200, 400, 429, 500):
        assert isinstance(WIRE.fault(status, {}, body).error, ModelError)


@given(SHAPES)
def test_any_body_is_read_back_or_refused(shape: Any) -> None:
    """T6: what is no request of this wire is a `TranscriptError`."""
    for body in (
        shape,
        {"messages": shape},
        {"messages": [shape]},
        {"messages": [{"role": "user", "content": [shape]}], "tools": shape, "system": shape},
    ):
        if isinstance(body, dict):
            try:
                parsed = WIRE.parse(body)
            except TranscriptError:
                continue
            validate(parsed.transcript)


# Recorded traffic

recorded = pytest.mark.skipif(not FILES, reason="recorded traffic is not there")


def plain(body: Mapping[str, Any]) -> Any:
    """A request in one of the ways of saying it."""
    made = json.loads(json.dumps(body), object_hook=_plain)
    if made.get("tool_choice") == {"type": "auto"}:
        del made["tool_choice"]
    if made.get("stream") is False:
        del made["stream"]
    if isinstance(made.get("system"), str):
        made["system"] = [{"type": "text", "text": made["system"]}]
    return made


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    item.pop("cache_control", None)
    if ("role" in item or item.get("type") == "tool_result") and isinstance(item["content"], str):
        item["content"] = [{"type": "text", "text": item["content"]}]
    if item.get("is_error") is False:
        del item["is_error"]
    if item.get("description") == "":
        del item["description"]
    return item


@recorded
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_requests_come_out_as_they_went_in(file: Path) -> None:
    """T6, T7: what was read back goes out again and says the same."""
    for exchange in json.loads(file.read_text())["exchanges"]:
        body = exchange["request"]["body"]
        parsed = WIRE.parse(body)
        assert parsed.transcript.report == ()
        assert parsed.settings.max_output is not None
        made = request(
            parsed.transcript,
            instructions=parsed.instructions,
            tools=parsed.tools,
            settings=parsed.settings,
            max_output=parsed.settings.max_output,
        )
        wired = WIRE.encoder(parsed.model).encode(made, stream=parsed.stream)
        assert plain(json.loads(wired.body)) == plain(body)


@recorded
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_responses_are_read_and_can_be_written_again(file: Path) -> None:
    """T7: whatever the provider said is in the reply, and goes back as it was."""
    for exchange in json.loads(file.read_text())["exchanges"]:
        response = exchange["response"]
        if response["status"] != 200:
            body = json.dumps(response["body"]).encode()
            found = WIRE.fault(response["status"], response["headers"], body)
            assert response["body"]["error"]["message"] in str(found.error)
        elif "sse" in response:
            assert reply(response["sse"].encode()).usage is not None
        else:
            body = response["body"]
            found = WIRE.decoder().whole(json.dumps(body).encode())
            assert found.usage is not None
            written = WIRE.reply_json(
                found.message, stop_reason=found.stop_reason, usage=found.usage
            )
            assert written["stop_reason"] == body["stop_reason"]
            assert without_defaults(written["content"]) == without_defaults(body["content"])


def without_defaults(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    unsaid: list[Any] = [None, {"type": "direct"}]
    return [{k: v for k, v in each.items() if v not in unsaid} for each in content]


def test_the_wire_is_found_by_its_name() -> None:
    assert isinstance(codec_of("anthropic"), AnthropicCodec)
