"""Chat Completions: the calls of a stream, the end of a reply, bytes that stay, errors that say what to do.

Streams and bodies are made by hand here; recorded ones are in `test_wire_chat_recorded.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit as rm
from endpoint_rig import Response, ScriptedTransport
from loop_rig import LIMITS, runtime
from remit.errors import (
    ContextExceeded,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
)
from remit.messages import Message, Opaque, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import BlockDone, Chunk, TextDelta, ToolSpec
from remit.models.endpoint import Endpoint
from remit.models.wires.chat import ChatCodec
from remit.models.wires.chat.decode import ChatDecoder
from remit.models.wires.dialects import DIALECTS
from remit.models.wires.sse import ServerEvent
from remit.models.wires.toolbox import Toolbox
from remit.testing import run_virtual

# --- what the tests share -----------------------------------------------------------------------

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def codec(dialect: str = "openai-chat") -> ChatCodec:
    return ChatCodec(DIALECTS[dialect])


def decoder(dialect: str = "openai-chat", tools: Sequence[str] = ()) -> ChatDecoder:
    specs = [ToolSpec(name, "", OBJECT) for name in tools]
    return ChatDecoder(DIALECTS[dialect], Toolbox(specs, DIALECTS[dialect].tools))


def chunk(delta: Mapping[str, Any] | None = None, reason: str | None = None, **root: Any) -> str:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return json.dumps({"choices": [choice], **root})


def calls(*entries: Mapping[str, Any]) -> str:
    return chunk({"tool_calls": list(entries)})


def entry(
    arguments: Any = None, *, name: str | None = None, own: str | None = None, index: Any = None
) -> dict[str, Any]:
    function: dict[str, Any] = {}
    if name is not None:
        function["name"] = name
    if arguments is not None:
        function["arguments"] = arguments
    made: dict[str, Any] = {"function": function}
    if own is not None:
        made["id"] = own
    if index is not None:
        made["index"] = index
    return made


def feed(reader: ChatDecoder, chunks: Iterable[str], *, done: bool = True) -> list[Chunk]:
    came: list[Chunk] = []
    for each in chunks:
        came += reader.feed(ServerEvent("", each.encode()))
    came += reader.feed(ServerEvent("", b"[DONE]")) if done else reader.end()
    return came


def reply_of(
    *chunks: str, reason: str | None = "tool_calls", reader: ChatDecoder | None = None
) -> Reply:
    """The reply of a stream; what was given out before it is what it holds."""
    end = () if reason is None else (chunk(reason=reason),)
    came = feed(reader or decoder(), [*chunks, *end])
    reply = came[-1]
    assert isinstance(reply, Reply)
    assert [each.block for each in came if isinstance(each, BlockDone)] == list(
        reply.message.content
    )
    return reply


def uses(reply: Reply) -> list[tuple[str, str, str]]:
    return [(use.id, use.name, use.arguments) for use in reply.message.tool_uses]


def unreadable(text: str) -> bool:
    try:
        ToolUse("a", "b", text).parsed()
    except ValueError:
        return True
    return False


# --- calls of a stream (case 15) ----------------------------------------------------------------


def test_a_new_id_at_the_same_index_starts_a_new_call() -> None:
    """case 15: index 0 with p1, then index 0 with p2, is two calls."""
    reply = reply_of(
        calls(entry('{"f":1}', name="f", own="p1", index=0)),
        calls(entry('{"f":2}', name="f", own="p2", index=0)),
    )
    assert uses(reply) == [("p1", "f", '{"f":1}'), ("p2", "f", '{"f":2}')]


def test_name_and_first_fragment_may_come_together() -> None:
    """case 15: both with index 0 are one call."""
    reply = reply_of(
        calls(entry('{"f"', name="f", own="p1", index=0)), calls(entry(":1}", index=0))
    )
    assert uses(reply) == [("p1", "f", '{"f":1}')]


def test_a_stream_without_any_index_holds_its_one_call() -> None:
    """case 15: no index at all."""
    reply = reply_of(
        calls(entry("", name="f", own="p1")), calls(entry('{"f"')), calls(entry(":1}"))
    )
    assert uses(reply) == [("p1", "f", '{"f":1}')]


def test_a_name_alone_and_then_arguments_alone_are_one_call() -> None:
    """case 15: a chunk with the name only, then one with arguments only."""
    reply = reply_of(calls(entry(name="f", own="p1", index=0)), calls(entry('{"f":1}', index=0)))
    assert uses(reply) == [("p1", "f", '{"f":1}')]
    without = reply_of(calls(entry(name="f")), calls(entry('{"f":1}')))
    assert uses(without) == [("", "f", '{"f":1}')]


@pytest.mark.parametrize("begun", ["", '{"f":'])
def test_a_fragment_that_could_belong_to_two_open_calls_makes_both_unreadable(begun: str) -> None:
    """case 15: ambiguity is an error result for the calls concerned, never a guess."""
    reply = reply_of(
        calls(entry(begun, name="f", own="p1", index=0)),
        calls(entry(begun, name="g", own="p2", index=1)),
        calls(entry("1}")),
    )
    assert [use.name for use in reply.message.tool_uses] == ["f", "g"]
    assert all(unreadable(use.arguments) for use in reply.message.tool_uses)
    assert reply.stop_reason is StopReason.TOOL_USE


def test_a_fragment_belongs_to_the_one_call_that_is_open() -> None:
    """case 15: nothing can follow a whole object, so that no guess is made."""
    reply = reply_of(
        calls(entry('{"f":1}', name="f", own="p1")),
        calls(entry('{"f":', name="g", own="p2")),
        calls(entry("2}")),
    )
    assert uses(reply) == [("p1", "f", '{"f":1}'), ("p2", "g", '{"f":2}')]


def test_whole_calls_of_one_chunk_are_as_many_calls_without_index_and_id() -> None:
    """case 15, case 08: an entry of a list is one call, whatever it lacks."""
    oslo, cairo = '{"city":"Oslo"}', '{"city":"Cairo"}'
    reply = reply_of(calls(entry(oslo, name="temp"), entry(cairo, name="temp")))
    assert uses(reply) == [("", "temp", oslo), ("", "temp", cairo)]
    reply = reply_of(calls(entry(oslo, name="temp")), calls(entry(cairo, name="temp")))
    assert uses(reply) == [("", "temp", oslo), ("", "temp", cairo)]
    reply = reply_of(calls(entry("", name="a"), entry("", name="b")))
    assert uses(reply) == [("", "a", ""), ("", "b", "")]


@pytest.mark.parametrize("own", ["", "temp", "null"])
def test_constant_ids_are_told_apart_by_their_index(own: str) -> None:
    """case 08, case 15: two calls of one function under one id."""
    oslo, cairo = '{"city":"Oslo"}', '{"city":"Cairo"}'
    reply = reply_of(
        calls(entry(oslo[:4], name="temp", own=own, index=0)),
        calls(entry(cairo[:4], name="temp", own=own, index=1)),
        calls(entry(oslo[4:], index=0)),
        calls(entry(cairo[4:], index=1)),
    )
    assert [use.arguments for use in reply.message.tool_uses] == [oslo, cairo]


def test_a_server_that_sends_id_and_name_again_adds_to_its_call() -> None:
    """case 15: with each piece, and with one index for all calls."""
    reply = reply_of(
        calls(entry('{"f"', name="f", own="p1", index=0)),
        calls(entry(":1", name="f", own="p1", index=0)),
        calls(entry('{"g"', name="g", own="p2", index=0)),
        calls(entry("}", name="f", own="p1", index=0)),
        calls(entry(":2}", name="g", own="p2", index=0)),
    )
    assert uses(reply) == [("p1", "f", '{"f":1}'), ("p2", "g", '{"g":2}')]


@pytest.mark.parametrize(
    ("tools", "expected"),
    [(["to"], "to"), (["toto"], "toto"), ([], "to"), (["other"], "to")],
)
def test_a_name_that_comes_twice_is_the_tool_that_there_is(tools: list[str], expected: str) -> None:
    """case 15: `to` and `to` is a repetition or the two halves of `toto`."""
    reader = decoder(tools=tools)
    reply = reply_of(
        calls(entry(name="to", own="p1", index=0)),
        calls(entry(name="to", index=0)),
        calls(entry("{}", index=0)),
        reader=reader,
    )
    assert uses(reply) == [("p1", expected, "{}")]


def test_a_name_that_can_be_two_tools_does_not_run() -> None:
    """case 15: `to` twice where both `to` and `toto` are offered."""
    reply = reply_of(
        calls(entry(name="to", own="p1", index=0)),
        calls(entry(name="to", index=0)),
        calls(entry("{}", index=0)),
        reader=decoder(tools=["to", "toto"]),
    )
    assert unreadable(reply.message.tool_uses[0].arguments)


def test_a_call_with_two_names_does_not_run() -> None:
    """case 15: another name behind the first arguments."""
    reply = reply_of(
        calls(entry('{"f":', name="f", own="p1", index=0)), calls(entry("1}", name="g", index=0))
    )
    assert [use.name for use in reply.message.tool_uses] == ["f"]
    assert unreadable(reply.message.tool_uses[0].arguments)


def test_a_name_within_an_open_call_that_has_no_id_is_no_guess() -> None:
    """case 15: half a name, or a second call? Neither runs."""
    reply = reply_of(calls(entry(name="get_")), calls(entry("{}", name="rain")))
    assert all(unreadable(use.arguments) for use in reply.message.tool_uses)


def test_nothing_nameless_is_kept() -> None:
    """case 15: arguments of nobody fail the attempt; an entry that says nothing is no call."""
    with pytest.raises(ModelProtocolError, match="without a name"):
        reply_of(calls(entry('{"f":1}', own="p1", index=0)))
    with pytest.raises(ModelProtocolError, match="without a name"):
        reply_of(calls(entry('{"f":1}')))
    reply = reply_of(calls(entry("{}", name="f", own="p1", index=0), entry("", index=1)))
    assert [use.name for use in reply.message.tool_uses] == ["f"]


def test_an_id_that_comes_after_the_name_is_that_of_the_call() -> None:
    """case 15: index and name first, then the id with the first arguments."""
    reply = reply_of(
        calls(entry(name="f", index=0)),
        calls(entry('{"f"', own="p1", index=0)),
        calls(entry(":1}", index=0)),
    )
    assert uses(reply) == [("p1", "f", '{"f":1}')]


def test_a_call_that_was_given_out_cannot_be_added_to() -> None:
    """case 15, C3: what a read may have begun on stands; a contradiction fails the attempt."""
    reader = decoder()
    came = list(
        reader.feed(ServerEvent("", calls(entry("{}", name="f", own="p1", index=0)).encode()))
    )
    assert [each.block for each in came if isinstance(each, BlockDone)] == [
        ToolUse("p1", "f", "{}")
    ]
    assert reader.feed(ServerEvent("", calls(entry(" \n", index=0)).encode())) == []
    with pytest.raises(ModelProtocolError, match="complete"):
        reader.feed(ServerEvent("", calls(entry('{"g":1}', index=0)).encode()))


def test_a_call_is_given_out_with_its_last_brace() -> None:
    """C3: the next call has not begun, and the reply has no finish reason yet."""
    reader = decoder()
    pieces = ['{"a":', '"}\\"', '{"', ',"b":[{}]', "}"]
    seen = [
        reader.feed(ServerEvent("", calls(entry(piece, index=0, **head)).encode()))
        for piece, head in zip(pieces, [{"own": "p1", "name": "f"}, {}, {}, {}, {}], strict=True)
    ]
    assert [len(each) for each in seen] == [0, 0, 0, 0, 1]
    assert seen[-1] == [BlockDone(ToolUse("p1", "f", "".join(pieces)))]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\{}[]é\n', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('k"}{', max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(st.text("abc", min_size=1, max_size=3), _VALUES, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)


@st.composite
def _split(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def _streams(draw: st.DrawFn) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Calls, and chunks that bring them in pieces, in any order that keeps each call's own."""
    same_index = draw(st.booleans())
    again = same_index or draw(st.booleans())
    queues: list[list[dict[str, Any]]] = []
    made: list[tuple[str, str, str]] = []
    for index in range(draw(st.integers(1, 4))):
        own, name = f"p{index}", draw(st.sampled_from(["get_rain", "toto", "f"]))
        arguments = draw(_ARGUMENTS)
        made.append((own, name, arguments))
        at = 0 if same_index else index
        queue: list[dict[str, Any]] = []
        if not again:
            queue = [entry(name=piece, index=at) for piece in draw(_split(name))]
            queue[0]["id"] = own
            queue += [entry(piece, index=at) for piece in draw(_split(arguments))]
        else:
            queue = [
                entry(piece, name=name, own=own, index=at) for piece in draw(_split(arguments))
            ]
        queues.append(queue)
    order: list[str] = []
    chunks: list[str] = []
    while any(queues):
        index = draw(st.sampled_from([n for n, queue in enumerate(queues) if queue]))
        if f"p{index}" not in order:
            order.append(f"p{index}")
        count = draw(st.integers(1, 2))
        chunks.append(calls(*queues[index][:count]))
        del queues[index][:count]
    return sorted(made, key=lambda each: order.index(each[0])), chunks


@given(_streams())
def test_calls_come_together_however_their_pieces_are_interleaved(
    stream: tuple[list[tuple[str, str, str]], list[str]],
) -> None:
    """case 15: any split of names and arguments, any interleaving, ids again or not, one index or many."""
    made, chunks = stream
    assert uses(reply_of(*chunks, reader=decoder(tools=["get_rain", "toto", "f"]))) == made


def test_every_entry_of_a_whole_message_is_a_call() -> None:
    """case 15, case 08: with one index and one id, or with neither, for all of them."""
    heads: list[dict[str, Any]] = [{}, {"index": 0}, {"index": 0, "own": "same"}]
    for head in heads:
        entries = [entry(f'{{"n":{n}}}', name="f", **head) for n in range(3)]
        body = {"choices": [{"message": {"tool_calls": entries}, "finish_reason": "stop"}]}
        reply = decoder().whole(json.dumps(body).encode())
        assert [use.arguments for use in reply.message.tool_uses] == [
            '{"n":0}',
            '{"n":1}',
            '{"n":2}',
        ]
        assert uses(reply_of(json.dumps(body), reason=None)) == uses(reply)


def test_a_message_behind_its_own_pieces_says_nothing_new() -> None:
    """C3: some servers end a stream with all of it once more."""
    whole = {"choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}]}
    reply = reply_of(
        chunk({"content": "a"}), chunk({"content": "b"}), json.dumps(whole), reason=None
    )
    assert reply.message.text == "ab"
    assert reply_of(json.dumps(whole), reason=None).message.text == "ab"


# --- the end of a reply -------------------------------------------------------------------------

_CALL = calls(entry("{}", name="f", own="p1", index=0))


@pytest.mark.parametrize(
    ("reason", "with_call", "with_text"),
    [
        ("stop", StopReason.TOOL_USE, StopReason.END_TURN),
        ("", StopReason.TOOL_USE, StopReason.END_TURN),
        ("tool_calls", StopReason.TOOL_USE, None),
        ("function_call", StopReason.TOOL_USE, None),
        ("length", StopReason.LENGTH, StopReason.LENGTH),
        ("model_length", StopReason.LENGTH, StopReason.LENGTH),
        ("content_filter", StopReason.FILTER, StopReason.FILTER),
        ("something_new", StopReason.UNKNOWN, StopReason.UNKNOWN),
    ],
)
def test_calls_count_unless_the_reply_was_cut(
    reason: str, with_call: StopReason, with_text: StopReason | None
) -> None:
    """C3, case 80: the presence of calls decides; length, filter and a word that nobody knows outrank it."""
    assert reply_of(_CALL, reason=reason).stop_reason is with_call
    text = chunk({"content": "hi"})
    if with_text is None:
        with pytest.raises(ModelProtocolError, match="no call"):
            reply_of(text, reason=reason)
    else:
        assert reply_of(text, reason=reason).stop_reason is with_text


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_a_reply_that_the_server_gave_up_is_tried_again(reason: str) -> None:
    """case 80: Mistral's `error`, vLLM's `abort`, DeepSeek's want of machines."""
    with pytest.raises(ModelUnavailable, match=reason):
        reply_of(_CALL, reason=reason)


def test_a_malformed_call_is_no_empty_answer() -> None:
    """case 80: as Gemini's compatible endpoint reports it, with a 200 and no content."""
    with pytest.raises(ModelProtocolError, match="MALFORMED_FUNCTION_CALL"):
        reply_of(chunk({"content": ""}), reason="function_call_filter: MALFORMED_FUNCTION_CALL")


def test_a_refusal_outranks_calls() -> None:
    """case 80: its words are what the reply says."""
    reply = reply_of(chunk({"refusal": "I'm "}), chunk({"refusal": "sorry."}), _CALL, reason="stop")
    assert reply.stop_reason is StopReason.REFUSAL
    assert reply.message.text == "I'm sorry."


def test_a_call_that_the_limit_cut_off_is_the_last_block() -> None:
    """C3, case 12: complete blocks stand before it, and what belongs to the message too."""
    reply = reply_of(
        chunk({"content": "So.", "reasoning_content": "hm"}),
        calls(entry("{}", name="f", own="p1", index=0)),
        calls(entry('{"hosts": ["a1"', name="g", own="p2", index=1)),
        reason="length",
        reader=decoder("deepseek"),
    )
    assert reply.stop_reason is StopReason.LENGTH
    kinds = [type(block).__name__ for block in reply.message.content]
    assert kinds == ["Text", "ToolUse", "Opaque", "ToolUse"]
    assert reply.message.tool_uses[-1].arguments == '{"hosts": ["a1"'


def test_a_finish_reason_is_the_end_where_done_is_missing() -> None:
    """C3: the model said that it is done; without either the attempt has failed, with what was reported."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    came = feed(
        decoder(), [chunk({"content": "hi"}), chunk(reason="stop", usage=usage)], done=False
    )
    assert came[-1] == Reply(
        Message("assistant", (Text("hi"),)), StopReason.END_TURN, Usage(input=3, output=2)
    )
    for done in (True, False):
        with pytest.raises(ModelProtocolError) as caught:
            feed(decoder(), [chunk({"content": "hi"}, usage=usage)], done=done)
        assert caught.value.usage == Usage(input=3, output=2)
    with pytest.raises(ModelProtocolError):
        feed(decoder(), [chunk({"content": "hi"}, reason="")], done=False)


def test_text_comes_as_it_is_written_and_once_as_a_block() -> None:
    """C3: deltas, then the block before the first call."""
    came = feed(
        decoder(), [chunk({"content": "a"}), chunk({"content": "b"}), _CALL, chunk(reason="stop")]
    )
    assert came[:-1] == [
        TextDelta("a"),
        TextDelta("b"),
        BlockDone(Text("ab")),
        BlockDone(ToolUse("p1", "f", "{}")),
    ]


@given(st.text('a\\"\U0001f600\u00e9\U0001d11e', min_size=1, max_size=8), st.data())
def test_a_character_that_is_cut_in_two_is_one_again(text: str, data: st.DataObject) -> None:
    """C3, C2: servers that count as JavaScript does cut between halves; no delta holds half a character."""
    units = text.encode("utf-16-le")
    halves = [
        units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)
    ]
    cuts = sorted({0, len(halves), *data.draw(st.lists(st.integers(0, len(halves)), max_size=9))})
    pieces = ["".join(halves[a:b]) for a, b in pairwise(cuts)]
    arguments = ['{"x":"', *pieces, '"}']
    if '"' in text or "\\" in text:
        arguments = ["{}"]
    heads = [{"name": "f", "own": "p1"}, *[{}] * len(arguments)]
    said = [
        *[chunk({"content": piece, "reasoning_content": piece}) for piece in pieces],
        *[
            calls(entry(piece, index=0, **head))
            for piece, head in zip(arguments, heads, strict=False)
        ],
        chunk(reason="tool_calls"),
    ]
    came = feed(decoder("deepseek"), said)
    assert "".join(each.text for each in came if isinstance(each, TextDelta)) == text
    reply = came[-1]
    assert isinstance(reply, Reply)
    assert reply.message.text == (text if text.strip() else "")
    assert "".join(arguments).encode("utf-16-le", "surrogatepass").decode("utf-16-le") == (
        reply.message.tool_uses[0].arguments
    )
    opaque = reply.message.content[-1]
    assert isinstance(opaque, Opaque)
    assert json.loads(opaque.data)["reasoning_content"] == text


def test_half_a_character_alone_is_replaced() -> None:
    """C3: at the end, or where another one follows."""
    for pieces, expected in (
        (["a\ud83d"], "a\ufffd"),
        (["\ud83d", "b"], "\ufffdb"),
        (["\ude00"], "\ufffd"),
    ):
        said = [json.dumps({"choices": [{"index": 0, "delta": {"content": p}}]}) for p in pieces]
        assert reply_of(*said, reason="stop").message.text == expected
        whole = {"choices": [{"message": {"content": "".join(pieces)}, "finish_reason": "stop"}]}
        assert decoder().whole(json.dumps(whole).encode()).message.text == expected


def test_only_what_says_something_counts_as_content() -> None:
    """case 80: idle time is measured on content; pings and usage are none."""
    reader = decoder()
    seen: list[int] = []
    for data in (
        chunk(),
        "{}",
        chunk({"role": "assistant", "content": ""}),
        chunk(usage={"prompt_tokens": 1}),
    ):
        reader.feed(ServerEvent("", data.encode()))
        seen.append(reader.content)
    reader.feed(ServerEvent("ping", b"not json"))
    assert seen == [0, 0, 0, 0]
    for count, delta in enumerate(
        ({"content": "a"}, {"reasoning": "hm"}, {"reasoning_content": "hm"}), 1
    ):
        reader.feed(ServerEvent("", chunk(delta).encode()))
        assert reader.content == count


def test_an_error_within_a_stream_is_what_it_says() -> None:
    """C1: the same meaning as with a status of its own, and what was used is charged."""
    usage = {"prompt_tokens": 43, "completion_tokens": 10}
    cases: list[tuple[dict[str, Any], type[ModelError]]] = [
        ({"error": {"code": 400, "message": "Token limit reached"}}, ModelRejected),
        ({"error": {"code": 429, "message": "slow down"}}, ModelUnavailable),
        ({"error": {"message": "Rate limit reached"}}, ModelUnavailable),
        ({"error": "overloaded"}, ModelUnavailable),
        (
            {"object": "error", "message": "maximum context length is 10 tokens", "code": 400},
            ContextExceeded,
        ),
        ({"error": {"type": "invalid_request_error", "message": "no"}}, ModelRejected),
        ({"choices": [{"index": 0, "error": {"code": 502, "message": "gone"}}]}, ModelUnavailable),
        ({"x_groq": {"error": "internal server error"}}, ModelUnavailable),
    ]
    for body, kind in cases:
        with pytest.raises(kind) as caught:
            feed(
                decoder("openrouter"),
                [chunk({"content": "a"}), json.dumps({**body, "usage": usage})],
            )
        assert type(caught.value) is kind
        assert caught.value.usage == Usage(input=43, output=10)
        with pytest.raises(kind):
            decoder().whole(json.dumps(body).encode())


def test_what_groq_could_not_read_is_taken_where_it_is_exactly_calls() -> None:
    """case 80: as the model wrote it, by status or in a stream; anything else is tried again, with the text."""
    written = '{"name": "f", "arguments": {\n  "x": 1.0}}'
    error = {
        "error": {"message": "Failed", "code": "tool_use_failed", "failed_generation": written}
    }
    expected = [("", "f", '{\n  "x": 1.0}')]
    fault = codec("groq").fault(400, {}, json.dumps(error).encode())
    assert fault.reply is not None
    assert uses(decoder("groq").whole(fault.reply)) == expected
    came = decoder("groq").feed(ServerEvent("error", json.dumps(error).encode()))
    assert isinstance(came[-1], Reply)
    assert uses(came[-1]) == expected
    for bad in ("<function=f>{}</function>", '{"name": "f"', '{"name": ""}', "[]", '["f"]', "7"):
        error["error"]["failed_generation"] = bad
        fault = codec("groq").fault(400, {}, json.dumps(error).encode())
        assert (fault.reply, type(fault.error)) == (None, ModelProtocolError)
        assert bad in str(fault.error)
        with pytest.raises(ModelProtocolError):
            decoder("groq").feed(ServerEvent("error", json.dumps(error).encode()))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"prompt_tokens": 2613, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2560}}, Usage(53, 2560, 0, 5, 0)),
        ({"prompt_tokens": 2613, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 2560, "cache_write_tokens": 50}}, Usage(3, 2560, 50, 0, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}, Usage(10, 0, 0, 9, 7)),
        ({"prompt_cache_hit_tokens": 512, "prompt_cache_miss_tokens": 51, "prompt_tokens": 563, "completion_tokens": 1}, Usage(51, 512, 0, 1, 0)),
        ({"prompt_cache_hit_tokens": 512, "prompt_cache_miss_tokens": 51, "completion_tokens": 1}, Usage(51, 512, 0, 1, 0)),
        ({"prompt_tokens": 77, "completion_tokens": 12, "num_cached_tokens": 76}, Usage(1, 76, 0, 12, 0)),
        ({"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}, Usage(35, 0, 0, 74, 62)),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(0, 5, 0, 1, 0)),
        ({"prompt_tokens": True, "completion_tokens": "4"}, None),
        ({"prompt_tokens": -1}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)  # fmt: skip
def test_usage_comes_in_disjoint_parts(said: Any, expected: Usage | None) -> None:
    """case 95: cached tokens are told as part of the prompt or beside it, reasoning as part of the output or not."""
    reply = reply_of(chunk({"content": "a"}), chunk(reason="stop", usage=said), reason=None)
    assert reply.usage == expected


def test_usage_is_taken_and_not_added() -> None:
    """case 95: servers that report it with every chunk report the sum so far; Groq has it in a place of its own."""
    one = {"prompt_tokens": 5, "completion_tokens": 1}
    reply = reply_of(
        chunk({"content": "a"}, usage=one),
        chunk(reason="stop", usage=one),
        json.dumps({"choices": [], "usage": one}),
        reason=None,
    )
    assert reply.usage == Usage(input=5, output=1)
    groq = reply_of(
        chunk({"content": "a"}), chunk(reason="stop", x_groq={"usage": one}), reason=None
    )
    assert groq.usage == Usage(input=5, output=1)


def test_openrouter_says_what_a_reply_costs() -> None:
    """case 95: in US dollars, unless the bill goes elsewhere; other servers' `cost` is not believed."""
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "cost": 0.01058775}
    last = chunk({"content": "a"}, "stop", usage=usage)
    assert str(reply_of(last, reason=None, reader=decoder("openrouter")).usd) == "0.01058775"
    assert reply_of(last, reason=None).usd is None
    own = chunk({"content": "a"}, "stop", usage={**usage, "is_byok": True})
    assert reply_of(own, reason=None, reader=decoder("openrouter")).usd is None


# --- in a run -----------------------------------------------------------------------------------

_STREAM = {"content-type": "text/event-stream"}
_JSON = {"content-type": "application/json"}


def streamed(*chunks: str) -> Response:
    lines = [f"data: {each}\n\n" for each in (*chunks, "[DONE]")]
    return Response("".join(lines).encode(), headers=_STREAM)


def run_of(dialect: str, *responses: Response) -> tuple[rm.Outcome[Any], list[str], list[Any]]:
    """What becomes of a run against these responses; which hosts were rebooted, and what was sent."""
    rebooted: list[str] = []

    @rm.tool(effect="idempotent", resource=())
    async def reboot(host: str) -> str:
        """Reboot a host."""
        rebooted.append(host)
        return f"{host} is up"

    transport = ScriptedTransport(*responses)
    model = Endpoint("x:m", codec(dialect), transport, base_url="http://x/v1", model="m")
    remit: rm.Remit[Any] = rm.Remit(
        name="desk", model=model, tools=[reboot], limits=LIMITS, runtime=runtime()
    )
    return run_virtual(remit.run("hi")), rebooted, transport.bodies


_DONE = streamed(chunk({"content": "Done."}), chunk(reason="stop"))


def test_calls_that_cannot_be_told_apart_are_answered_and_do_not_run() -> None:
    """case 15, C2: two open calls and a piece of nobody: an error for both, and the run goes on."""
    outcome, rebooted, bodies = run_of(
        "compatible",
        streamed(
            calls(entry('{"host":', name="reboot", own="p1", index=0)),
            calls(entry('{"host":', name="reboot", own="p2", index=1)),
            calls(entry('"a1"}')),
            chunk(reason="tool_calls"),
        ),
        _DONE,
    )
    assert outcome.reason is rm.Reason.COMPLETED
    assert rebooted == []
    answers = [message for message in bodies[1]["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in answers] == ["p1", "p2"]
    assert all(message["content"].startswith("Error") for message in answers)
    called = [call["function"]["arguments"] for call in bodies[1]["messages"][-3]["tool_calls"]]
    assert all("could belong to any of 2 calls" in arguments for arguments in called)


def test_a_call_that_groq_refused_is_answered_by_the_loop() -> None:
    """case 80, C1: the model reads what is wrong with it, and nobody asks the same again."""
    error = {
        "message": "Failed to call a function",
        "code": "tool_use_failed",
        "failed_generation": '{"name": "reboot", "arguments": {"hots": "a1"}}',
    }
    refused = Response(json.dumps({"error": error}).encode(), status=400, headers=_JSON)
    right = calls(entry('{"host":"a1"}', name="reboot", own="p1", index=0))
    outcome, rebooted, bodies = run_of(
        "groq", refused, streamed(right, chunk(reason="tool_calls")), _DONE
    )
    assert outcome.reason is rm.Reason.COMPLETED
    assert rebooted == ["a1"]
    assert len(bodies) == 3
    called, answer = bodies[1]["messages"][-2:]
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"hots": "a1"}
    assert answer["content"].startswith("Error")
    assert "hots" in answer["content"]


def test_a_field_that_a_server_refuses_costs_one_request() -> None:
    """case 60: the request goes out again without it, and so does every one that follows."""
    error = {"error": {"message": "Unrecognized request argument supplied: stream_options"}}
    refused = Response(json.dumps(error).encode(), status=400, headers=_JSON)
    right = calls(entry('{"host":"a1"}', name="reboot", own="p1", index=0))
    outcome, rebooted, bodies = run_of(
        "compatible", refused, streamed(right, chunk(reason="tool_calls")), _DONE
    )
    assert outcome.reason is rm.Reason.COMPLETED
    assert rebooted == ["a1"]
    assert ["stream_options" in body for body in bodies] == [True, False, False]
