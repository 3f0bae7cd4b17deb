"""Replies of OpenAI Responses: streams, stop reasons, usage, errors inside, and whatever else may come."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordings_rig import files, read
from remit.errors import (
    ContextExceeded,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
)
from remit.messages import Opaque, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import BlockDone, TextDelta
from remit.models.checked import checked_reply, is_usage
from remit.models.wires.sse import EventReader, ServerEvent
from responses_rig import (
    WIRE,
    Item,
    call,
    events_of,
    reasoning,
    reply_of,
    response,
    sse,
    streamed,
    text,
)

RECORDED = [
    exchange.raw
    for path in files()
    for exchange in read(path)
    if "/responses" in exchange.request["path"] and exchange.accepted
]


def said(whole: Mapping[str, Any]) -> Reply:
    """The same reply from a stream and whole."""
    reply = WIRE.decoder().whole(json.dumps(whole).encode())
    assert reply_of(streamed(sse(events_of(whole)))) == reply
    return checked_reply(reply)


def failed(whole: Mapping[str, Any]) -> ModelError:
    """The same error from a stream and whole."""
    with pytest.raises(ModelError) as caught:
        WIRE.decoder().whole(json.dumps(whole).encode())
    with pytest.raises(type(caught.value)):
        streamed(sse(events_of(whole)))
    return caught.value


def refusal(n: int) -> Item:
    return text(n, "") | {"content": [{"type": "refusal", "refusal": "I will not."}]}


def computer(n: int) -> Item:
    return {"type": "computer_call", "id": f"cu_{n}", "call_id": f"cc_{n}", "action": {}}


# --- how a response ends -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "ending", "stop_reason"),
    [
        ([text(1, "Done.")], {}, StopReason.END_TURN),
        ([], {}, StopReason.END_TURN),
        ([reasoning(1), call(1)], {}, StopReason.TOOL_USE),
        ([call(1), text(2, "And so.")], {}, StopReason.TOOL_USE),
        ([refusal(1)], {}, StopReason.REFUSAL),
        ([call(1), refusal(2)], {}, StopReason.REFUSAL),
        ([computer(1)], {}, StopReason.UNKNOWN),
        ([text(1, "Do")], {"reason": "max_output_tokens"}, StopReason.LENGTH),
        ([call(1)], {"reason": "max_output_tokens"}, StopReason.LENGTH),
        ([call(1)], {"reason": "content_filter"}, StopReason.FILTER),
        ([text(1, "Do")], {"reason": "max_messages"}, StopReason.UNKNOWN),
        ([text(1, "Do")], {"reason": "steered"}, StopReason.UNKNOWN),
        ([text(1, "Do")], {"reason": "xyz"}, StopReason.UNKNOWN),
        ([text(1, "Do")], {"reason": None}, StopReason.UNKNOWN),
    ],
)
def test_how_a_response_ended_is_told_in_our_words(
    output: list[Item], ending: dict[str, Any], stop_reason: StopReason
) -> None:
    """case 79, case 80: there is no status for calls; length, filter and refusal outrank them; what is not known
    is no success.
    """
    more: dict[str, Any] = {"status": "incomplete", "incomplete_details": ending} if ending else {}
    assert said(response(*output, **more)).stop_reason is stop_reason


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "server_error", "message": "Sorry."}, ModelUnavailable),
        ({"code": "rate_limit_exceeded", "message": "Slow."}, ModelUnavailable),
        ({"code": "slow_down", "message": "Slow."}, ModelUnavailable),
        ({"code": "vector_store_timeout", "message": "Late."}, ModelUnavailable),
        ({"code": "invalid_prompt", "message": "No."}, ModelRejected),
        ({"code": "misalignment_policy_violation", "message": "No."}, ModelRejected),
        ({"code": "image_too_large", "message": "No."}, ModelRejected),
        ({"code": "invalid_base64_image", "message": "No."}, ModelRejected),
        ({"code": "insufficient_quota", "message": "Pay."}, ModelRejected),
        ({"code": "context_length_exceeded", "message": "Long."}, ContextExceeded),
        ({"code": "something_new", "message": "?"}, ModelUnavailable),
        (None, ModelUnavailable),
    ],
)
def test_a_response_that_failed_is_an_error_of_its_kind(error: Any, kind: type[ModelError]) -> None:
    """E7: what may pass is tried again, what will not is not; it is billed as it was reported."""
    failure = failed(response(text(1, "Do"), status="failed", error=error))
    assert type(failure) is kind
    assert failure.usage == Usage(input=40, cache_read=60, output=10, reasoning=4)


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled", "xyz"])
def test_a_response_that_is_not_there_is_no_reply(status: str) -> None:
    """case 79: work in the background is not waited for, and nobody mistakes it for an answer."""
    with pytest.raises(ModelError) as caught:
        WIRE.decoder().whole(json.dumps(response(status=status)).encode())
    with pytest.raises(ModelError):
        streamed(sse(events_of(response(status=status))))
    failure = caught.value
    assert ("background" in str(failure)) is (status in {"queued", "in_progress"})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Slow."}, ModelUnavailable),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "No."}},
            ModelRejected,
        ),
        ({"type": "error", "error": {"code": "insufficient_quota"}}, ModelRejected),
        ({"error": {"message": "overloaded", "code": 502}}, ModelUnavailable),
        ({"type": "error"}, ModelUnavailable),
        ({"type": "response.error", "code": "server_error"}, ModelUnavailable),
    ],
)
def test_an_error_in_a_stream_is_one(error: dict[str, Any], kind: type[ModelError]) -> None:
    """E7: the status was a good one, and then it failed all the same."""
    begun = sse(events_of(response(text(1, "Do")))[:3])
    with pytest.raises(kind):
        streamed(begun + b"data: " + json.dumps(error).encode() + b"\n\n")


def test_a_stream_without_its_end_is_a_failed_attempt() -> None:
    """E7: however it was cut, between two events too; `[DONE]` is no end of this wire."""
    whole = events_of(response(reasoning(1), text(2, "Done."), call(3)))
    for count in range(len(whole)):
        for rest in (b"", b"data: [DONE]\n\n"):
            with pytest.raises(ModelProtocolError, match="ended before"):
                streamed(sse(whole[:count]) + rest)


def test_nothing_is_read_behind_the_end() -> None:
    decoder = WIRE.decoder()
    data = sse(events_of(response(text(1, "Done."))))
    assert streamed(data + data, decoder) == streamed(data)


# --- calls -------------------------------------------------------------------------------------------


def test_a_call_is_told_when_its_own_item_is_done() -> None:
    """C5: an early read need not wait for the rest of the reply."""
    decoder = WIRE.decoder()
    told: list[tuple[str, str]] = []
    for event in events_of(response(call(1), text(2, "Meanwhile"), call(3))):
        for chunk in decoder.feed(ServerEvent("", json.dumps(event).encode())):
            if isinstance(chunk, BlockDone) and isinstance(chunk.block, ToolUse):
                told.append((chunk.block.id, event["type"]))
    assert told == [
        ("call_x1", "response.output_item.done"),
        ("call_x3", "response.output_item.done"),
    ]


@pytest.mark.parametrize("known", ["id", "index"])
def test_calls_that_come_at_once_are_put_together_each_by_its_own(known: str) -> None:
    """case 15: pieces belong to the item that they name; what names none of two belongs to none."""
    first, second = call(1, '{"at":"a"}'), call(2, '{"at":"b"}')
    events: list[dict[str, Any]] = []
    for index, item in enumerate((first, second)):
        events.append(
            {
                "type": "response.output_item.added",
                "output_index": index,
                "item": {**item, "arguments": ""},
            }
        )
    for piece in ('{"at":', '"'):
        for index, item in enumerate((first, second)):
            place = {"item_id": item["id"]} if known == "id" else {"output_index": index}
            events.append(
                {"type": "response.function_call_arguments.delta", "delta": piece, **place}
            )
    stray = {"type": "response.function_call_arguments.delta", "delta": "?"}
    cut = response(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    ended = [*events, stray, {"type": "response.incomplete", "response": cut}]
    reply = reply_of(streamed(sse(ended)))
    assert reply.message.tool_uses == (ToolUse("call_x2", "look", '{"at":"'),)
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in ((1, second), (0, first))
    ]
    end = {"type": "response.completed", "response": response(first, second)}
    reply = reply_of(streamed(sse([*events, stray, *done, end])))
    assert [use.arguments for use in reply.message.tool_uses] == ['{"at":"a"}', '{"at":"b"}']


def test_items_keep_the_servers_order_whichever_is_done_first() -> None:
    """T1, case 76: the history has the order of the output."""
    items = [reasoning(0), call(1), text(2, "So."), call(3)]
    events = events_of(response(*items))
    added = [each for each in events if each["type"] == "response.output_item.added"]
    done = [each for each in events if each["type"] == "response.output_item.done"]
    chunks = streamed(sse([*added, *reversed(done), events[-1]]))
    reply = reply_of(chunks)
    assert reply == said(response(*items))
    assert tuple(c.block for c in chunks if isinstance(c, BlockDone)) == reply.message.content


def test_one_item_told_twice_is_one_and_two_under_one_id_are_an_error() -> None:
    """case 15: a new id is a new call, the same one again is the same, and there is no guessing."""
    events = events_of(response(call(1)))
    done = next(e for e in events if e["type"] == "response.output_item.done")
    twice = [*events[:-1], done, events[-1]]
    assert len(reply_of(streamed(sse(twice))).message.tool_uses) == 1
    other = {**done, "item": call(1, '{"at":"b"}')}
    with pytest.raises(ModelProtocolError):
        streamed(sse([*events[:-1], other, events[-1]]))
    same_place = {**done, "item": call(2)}
    reply = reply_of(streamed(sse([*events[:-1], same_place, events[-1]])))
    assert [use.id for use in reply.message.tool_uses] == ["call_x1", "call_x2"]


def test_servers_that_name_no_item_and_tell_only_the_end_are_read() -> None:
    """case 15: without ids or places calls are told apart by what they are called by, else by their order."""
    bare = [{k: v for k, v in call(n).items() if k != "id"} for n in (1, 2)]
    whole = response(*bare)
    only_end = [{"type": "response.completed", "response": whole}]
    assert reply_of(streamed(sse(only_end))) == said(whole)
    nameless = [{k: v for k, v in item.items() if k != "call_id"} for item in bare]
    assert [use.id for use in said(response(*nameless)).message.tool_uses] == ["", ""]  # case 08


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_call_without_a_name_is_a_failed_attempt(name: Any) -> None:
    """case 15: nothing nameless is kept."""
    assert isinstance(failed(response(call(1, name=name))), ModelProtocolError)


def test_arguments_that_are_no_text_are_kept_as_they_are_written() -> None:
    """C2: some servers write the object itself."""
    raw = json.dumps(response(call(1))).replace('"{}"', '{"n": 1.50, "big": 12345678901234567890}')
    (use,) = WIRE.decoder().whole(raw.encode()).message.tool_uses
    assert use.arguments == '{"n": 1.50, "big": 12345678901234567890}'


@pytest.mark.parametrize("arguments", ['{"hosts": ["a1","a2"', '{"hosts": []}'])
def test_a_call_that_length_cut_is_the_last_block_and_never_made_whole(arguments: str) -> None:
    """case 12, C3: with the text as far as it came, whether the server tells the item or not."""
    cut: dict[str, Any] = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    told = said(response(text(1, "On it."), call(2, arguments, status="incomplete"), **cut))
    events = events_of(response(text(1, "On it."), call(2, arguments), **cut))
    untold = [
        e for e in events if (e["type"], e.get("output_index")) != ("response.output_item.done", 1)
    ]
    untold[-1]["response"] = response(text(1, "On it."), **cut)
    for reply in (told, reply_of(streamed(sse(untold)))):
        assert reply.stop_reason is StopReason.LENGTH
        assert reply.message.content[-1] == ToolUse("call_x2", "look", arguments)
        assert reply.message.content[0] == Text("On it.")


def test_nothing_begins_with_a_call_that_length_cut() -> None:
    """case 12, C5: it is told at the end only; of several that were cut at once the last is kept."""
    cut: dict[str, Any] = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    calls = [call(n, '{"at":"a"}', status="incomplete") for n in (2, 3)]
    events = events_of(response(call(1), *calls, **cut))
    chunks = streamed(sse(events))
    assert reply_of(chunks) == said(response(call(1), *calls, **cut))
    assert [use.id for use in reply_of(chunks).message.tool_uses] == ["call_x1", "call_x3"]
    decoder = WIRE.decoder()
    early = [c for e in events[:-1] for c in decoder.feed(ServerEvent("", json.dumps(e).encode()))]
    assert [
        c.block.id for c in early if isinstance(c, BlockDone) and isinstance(c.block, ToolUse)
    ] == ["call_x1"]


def test_a_complete_response_with_a_call_that_is_not_is_a_failed_attempt() -> None:
    """case 12: the one thing says that it may run, the other that it must not."""
    assert isinstance(failed(response(call(1, "{", status="incomplete"))), ModelProtocolError)


def test_a_custom_call_is_a_call_with_its_text() -> None:
    """T1: a tool of the same name answers it."""
    item = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c1",
        "name": "run",
        "input": 'a"b',
    }
    (use,) = said(response(item)).message.tool_uses
    assert (use.name, use.parsed()) == ("run", {"input": 'a"b'})


def test_text_that_was_cut_is_kept_as_far_as_it_came() -> None:
    """C3: the item is open when the response ends."""
    events = events_of(response(text(1, "Half of it")))[:-2]
    cut = response(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    reply = reply_of(streamed(sse([*events, {"type": "response.incomplete", "response": cut}])))
    assert (reply.message.content, reply.stop_reason) == ((Text("Half of it"),), StopReason.LENGTH)


def test_items_of_the_providers_own_tools_are_kept_byte_for_byte() -> None:
    """T7: known or not, with every blank in them."""
    raw = '{"type":"web_search_call","id":"ws_1", "action" : {"q":"\\u00e9"},"n":1.50}'
    body = json.dumps(response()).replace('"output": []', f'"output": [{raw}]')
    assert WIRE.decoder().whole(body.encode()).message.content == (Opaque("openai", raw.encode()),)


# --- what is counted ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (
            {
                "input_tokens": 2613,
                "input_tokens_details": {"cached_tokens": 2560},
                "output_tokens": 9,
            },
            Usage(input=53, cache_read=2560, output=9),
        ),
        (
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input=10, cache_read=60, cache_write=30, output=20, reasoning=5),
        ),
        (
            {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(cache_read=10, output=2, reasoning=2),
        ),
        ({"input_tokens": -5, "output_tokens": 3}, Usage(output=3)),
        ({"input_tokens": 10**30, "output_tokens": 3}, Usage(input=2**53, output=3)),
        ({"input_tokens": 5, "input_tokens_details": None, "output_tokens": True}, Usage(input=5)),
        ({"input_tokens": "5"}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_usage_is_counted_in_disjoint_parts(usage: Any, counted: Usage | None) -> None:
    """case 95: cached and written tokens are part of the input here; nonsense is never negative."""
    reply = said(response(text(1, "Done."), usage=usage))
    assert reply.usage == counted
    assert reply.usage is None or is_usage(reply.usage)


def test_idle_time_is_measured_on_content() -> None:
    """E7: pings and states are none; text, arguments, reasoning and items are."""
    decoder = WIRE.decoder()
    idle = [
        {"type": "response.created", "response": {}},
        {"type": "response.in_progress", "response": {}},
        {"type": "response.queued", "response": {}},
        {"type": "keepalive"},
        {"type": "response.output_text.delta", "delta": ""},
    ]
    for event in idle:
        decoder.feed(ServerEvent("", json.dumps(event).encode()))
    assert decoder.content == 0
    counted = [
        {"type": "response.reasoning_summary_text.delta", "delta": "Hm"},
        {"type": "response.output_text.delta", "delta": "Hm"},
        {"type": "response.output_item.added", "item": {"type": "message"}},
        {"type": "response.mcp_call_arguments.delta", "delta": "{"},
        {"type": "response.web_search_call.searching"},
    ]
    for n, event in enumerate(counted, 1):
        decoder.feed(ServerEvent("", json.dumps(event).encode()))
        assert decoder.content == n


# --- whatever comes ----------------------------------------------------------------------------------


def survives(data: bytes) -> None:
    """It ends in a reply or in a `ModelError`."""
    with contextlib.suppress(ModelError):
        for chunk in streamed(data):
            if isinstance(chunk, Reply):
                checked_reply(chunk)
    with contextlib.suppress(ModelError):
        checked_reply(WIRE.decoder().whole(data))


STREAM = sse(events_of(response(reasoning(1), text(2, "Hé"), call(3, '{"at":"x"}'))))


def test_a_stream_that_is_cut_at_any_byte_is_a_failed_attempt() -> None:
    """E7: never a reply, never another exception."""
    end = STREAM.rindex(b"event: ")
    for at in range(len(STREAM)):
        if at <= end or STREAM[at - 2 : at] != b"\n\n":
            with pytest.raises(ModelProtocolError):
                streamed(STREAM[:at])


def test_a_stream_with_any_bit_flipped_ends_in_its_types() -> None:
    """C1: a typed end, whatever comes."""
    for at in range(len(STREAM)):
        for mask in (0x01, 0x20, 0x80):
            survives(STREAM[:at] + bytes([STREAM[at] ^ mask]) + STREAM[at + 1 :])


@pytest.mark.skipif(not RECORDED, reason="there are no recordings")
def test_recorded_responses_that_are_cut_and_flipped_end_in_their_types() -> None:
    """C1: the same of what a provider really sent; every 7th byte, which differs from file to file."""
    for n, data in enumerate(RECORDED):
        for at in range(n % 7, min(len(data), 20_000), 97):
            survives(data[:at])
            survives(data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :])


@given(st.binary(max_size=200))
def test_any_bytes_end_in_their_types(data: bytes) -> None:
    """C1: a page, a picture, half a body."""
    survives(data)
    survives(b"data: " + data + b"\n\n")
    survives(b'data: {"type":"response.completed","response":' + data + b"}\n\n")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_FIELD = st.sampled_from(
    ["type", "delta", "item", "response", "output_index", "item_id", "error", "status", "output"]
)
_KINDS = st.sampled_from(
    [event["type"] for event in events_of(response(reasoning(1), text(2, "a"), call(3)))]
)


@given(st.lists(st.tuples(_KINDS, st.dictionaries(_FIELD, _JSON, max_size=4)), max_size=5))
def test_events_with_any_fields_end_in_their_types(
    events: list[tuple[str, dict[str, Any]]],
) -> None:
    """C1: fields of other types than they should be are an error of the provider's, not ours."""
    data = b"".join(
        b"data: " + json.dumps({**fields, "type": kind}).encode() + b"\n\n"
        for kind, fields in events
    )
    survives(data)


@given(
    st.sampled_from(["message", "function_call", "reasoning", "custom_tool_call", "x"]),
    _JSON,
    _JSON,
)
def test_items_with_any_fields_end_in_their_types(kind: str, one: Any, other: Any) -> None:
    """C1: the same of what stands in an item."""
    for name in ("id", "call_id", "name", "arguments", "input", "content", "status", "phase"):
        item = {"type": kind, "name": "look", "arguments": "{}", "content": [one], name: other}
        survives(json.dumps(response(item)).encode())


def test_half_a_character_is_replaced_and_does_not_end_the_reply() -> None:
    """C2: servers cut texts anywhere; a text that only speaks of escapes stays."""
    for written, read_as in (
        ("\\ud83d", "\N{REPLACEMENT CHARACTER}"),
        ("\\ude00 x", "\N{REPLACEMENT CHARACTER} x"),
        ("\\ud83d\\ude00", "\N{GRINNING FACE}"),
        ("\\\\ud83d", "\\ud83d"),
    ):
        data = sse(events_of(response(text(1, "?!")))).replace(b'"?!"', f'"{written}"'.encode())
        reply = reply_of(streamed(data))
        assert reply.message.text == read_as
    alone = STREAM.replace(b'"sealed 1"', b'"sealed \\ud800"')
    assert b"ufffd" in next(
        b.data for b in reply_of(streamed(alone)).message.content if isinstance(b, Opaque)
    )


def test_deep_nests_are_an_error_of_the_providers() -> None:
    """C1: no exception of another kind."""
    for deep in (b"[" * 100_000, b'{"a":' * 100_000):
        survives(deep)
        survives(b'data: {"type":"response.completed","response":' + deep + b"\n\n")


def test_what_is_not_known_is_passed_over() -> None:
    """case 79: events, fields and parts that come later in the life of an API."""
    events = events_of(response(text(1, "Done.", novel=1) | {"phase": "final_answer"}))
    novel = [{"type": "response.novel", "x": 1}, {"type": "response.audio.delta", "delta": "UklG"}]
    reply = reply_of(streamed(sse([*events[:3], *novel, *events[3:]])))
    assert reply.message.text == "Done."
    shown = [c for c in streamed(sse([*novel, *events])) if isinstance(c, TextDelta)]
    assert "".join(chunk.text for chunk in shown) == "Done."
    assert [*EventReader().feed(b": ping\n\n")] == []
