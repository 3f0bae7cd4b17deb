"""The wire of Anthropic Messages: requests, replies, errors, and bodies read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anthropic_rig import (
    LOOK,
    THINKING,
    UNMARKED,
    WIRE,
    answer,
    begin,
    block,
    call,
    event,
    finish,
    model,
    opaque,
    part,
    read,
    reply,
    request,
    said,
    sent,
    user,
)
from remit.errors import (
    ConfigurationError,
    ContextExceeded,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
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
from remit.models.base import BlockDone, Notice, Settings, TextDelta
from remit.models.wires import codec as codec_of
from remit.models.wires.anthropic import AnthropicCodec
from remit.testing.protocol import judge
from remit.transcript import Stub, Transcript

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


@pytest.mark.parametrize("value", ["\ud800", object()])
def test_what_cannot_be_sent_is_told_before_anything_is(value: object) -> None:
    """A setting that is no JSON is the caller's mistake."""
    for extra in ({"metadata": value}, {"tools": [{"name": value}]}, {"system": value}):
        made = request(Transcript([user("x")]), settings=Settings(extra=extra))
        with pytest.raises(ConfigurationError, match="cannot be sent"):
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


@pytest.mark.parametrize(
    ("word", "reason"),
    [("xyz", StopReason.UNKNOWN), (None, StopReason.UNKNOWN), ("refusal", StopReason.REFUSAL)],
)
def test_an_empty_reply_keeps_its_reason(word: str | None, reason: StopReason) -> None:
    """case 80: nothing that ended abnormally looks like an answer; a refusal says why."""
    details = {"category": "cyber", "explanation": "No."}
    delta = {"stop_reason": word, "stop_details": details}
    chunks = read(begin() + event("message_delta", delta=delta) + event("message_stop"))
    assert chunks[-1] == Reply(model(), reason)
    told = [Notice("refusal", "cyber: No.")] if reason is StopReason.REFUSAL else []
    assert chunks[:-1] == told


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
    (kept,) = reply(stream).message.content
    assert kept == Opaque("anthropic", b'{"type": "dream", "of": [1.5]}')  # as it was written


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


def test_a_model_that_takes_no_number_decides_itself_how_long_it_thinks() -> None:
    """case 60: newer models refuse a budget of thinking, and say what they take."""
    told = (
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
        '"output_config.effort" to control thinking behavior.'
    )
    assert faulted(400, "invalid_request_error", told).repair == "adaptive"
    made = request(Transcript([user("x")]), settings=Settings(thinking=2_000))
    encoder = UNMARKED.encoder("m")
    assert sent(made, encoder)["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
    assert encoder.repair("adaptive")
    assert sent(made, encoder)["thinking"] == {"type": "adaptive"}
    assert not encoder.repair("adaptive")


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


def test_a_container_is_gone_on_with_until_it_is_gone() -> None:
    """T7: where the provider's code ran is a part of what it said, and comes back with the next request."""
    stream = (
        event("message_start", message={"usage": {}, "container": {"id": "c1", "expires_at": "?"}})
        + block(0, {**call("a"), "caller": {"type": "code_execution_20260120", "tool_id": "s"}})
        + finish("tool_use")
    )
    *before, last = read(stream)
    assert isinstance(last, Reply)
    assert before == [BlockDone(each) for each in last.message.content]
    body = {"content": [call("a")], "container": {"id": "c1"}, "stop_reason": "tool_use"}
    whole = WIRE.decoder().whole(json.dumps(body).encode())
    assert whole.message.content[1:] == (opaque(type="remit.message", container={"id": "c1"}),)
    transcript = Transcript([user("x")])
    transcript.add_reply(last.message)
    with transcript.answering() as answering:
        answering.slots[0].settle((Text("seen"),))
    encoder = UNMARKED.encoder("m")
    found = sent(request(transcript), encoder)
    assert found["container"] == "c1"
    assert found["messages"][1]["content"][0]["caller"]["tool_id"] == "s"
    assert len(found["messages"][1]["content"]) == 1
    refused = faulted(400, "invalid_request_error", "container: c1 has expired")
    assert refused.repair == "container"
    assert encoder.repair("container")
    assert "container" not in sent(request(transcript), encoder)
    assert not encoder.repair("container")


def test_white_space_at_the_end_of_a_paused_turn_is_left_out_where_it_is_refused() -> None:
    """case 79: a paused turn goes back unchanged, unless the provider does not take its own words."""
    transcript = Transcript([user("x"), model(opaque(type="server_tool_use", id="s"), "So: \n")])
    encoder = UNMARKED.encoder("m")
    assert sent(request(transcript), encoder)["messages"][1]["content"][1]["text"] == "So: \n"
    told = "messages: final assistant content cannot end with trailing whitespace"
    assert faulted(400, "invalid_request_error", told).repair == "whitespace"
    assert encoder.repair("whitespace")
    assert sent(request(transcript), encoder)["messages"][1]["content"][1]["text"] == "So:"
    assert not encoder.repair("whitespace")


SERVED = opaque(type="server_tool_use", id="s", name="web_search", input={})
FOUND = opaque(type="web_search_tool_result", tool_use_id="s", content=[])
THOUGHT = Opaque("anthropic", THINKING)


@pytest.mark.parametrize(
    ("replies", "kept"),
    [
        ([model("so", SERVED)], [["text"]]),
        ([model("so", SERVED, FOUND)], [["text", "server_tool_use", "web_search_tool_result"]]),
        ([model("so", SERVED), model(FOUND)], [["text", "server_tool_use"], [FOUND]]),
        ([model("so", SERVED), model("cut")], [["text"], ["text"]]),
        ([model("so", THOUGHT, THOUGHT)], [["text"]]),
        ([model("so", THOUGHT), model("on")], [["text", "thinking"], ["text"]]),
        ([model(THOUGHT)], []),
        ([model(SERVED)], []),
        ([model(THOUGHT, SERVED)], []),
    ],
)
@pytest.mark.parametrize("most", [0, 1, 2])
def test_nothing_is_left_open_in_a_turn_that_is_over(
    most: int, replies: list[Message], kept: list[list[Any]]
) -> None:
    """T2: a reply that was cut, or given up in its middle, can be gone on from at once."""
    transcript = Transcript([user("x")])
    encoder = UNMARKED.encoder("claude-x")
    for at, each in enumerate(replies):
        transcript.add_reply(each)
        if at >= most:
            continue  # it came to an end before it was sent
        paused = sent(request(transcript), encoder)["messages"][-1]
        assert len(paused["content"]) == len(each.content)  # it goes back as it is
    transcript.say(Text("go on"))
    body = sent(request(transcript), encoder)
    assert body == sent(request(transcript))
    turns = [message["content"] for message in body["messages"][1:-1]]
    assert [[block["type"] for block in turn] for turn in turns] == [
        [each if isinstance(each, str) else json.loads(each.data)["type"] for each in turn]
        for turn in kept
    ]
    strict = judge("anthropic")
    strict.trust(body)
    strict.request(body)


def test_the_calls_of_one_reply_stay_together_whatever_came_back_first() -> None:
    """case 57, case 76, T1: one turn of calls, one of results in call order, the same bytes after a reload."""
    transcript = Transcript([user("x")])
    transcript.add_reply(model(THOUGHT, *[ToolUse(name, "look", "{}") for name in "abc"]))
    with transcript.answering() as answering:
        for at in (2, 0, 1):
            answering.slots[at].settle((Text(f"result {at}"),))
    body = UNMARKED.encoder("m").encode(request(transcript), stream=True).body
    turns = [message["content"] for message in json.loads(body)["messages"]]
    assert [each["type"] for each in turns[1]] == ["thinking", *["tool_use"] * 3]
    assert [each["tool_use_id"] for each in turns[2]] == ["a", "b", "c"]
    again = Transcript.load(json.loads(json.dumps(transcript.to_json())))
    assert UNMARKED.encoder("m").encode(request(again), stream=True).body == body


def test_a_call_of_the_providers_own_may_be_answered_after_ours() -> None:
    """T7: beside a call of ours it is still open, and its result comes with the next reply."""
    transcript = Transcript(
        [user("x"), model(SERVED, ToolUse("a", "look", "{}")), user(answer("a"))]
    )
    turn = sent(request(transcript))["messages"][1]["content"]
    assert [block["type"] for block in turn] == ["server_tool_use", "tool_use"]


def test_the_wire_is_found_by_its_name() -> None:
    assert isinstance(codec_of("anthropic"), AnthropicCodec)
