"""Chat Completions: requests as bytes, how servers differ, repairs, errors, and bodies read back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
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
    Block,
    Media,
    Message,
    Opaque,
    StopReason,
    Text,
    ToolResult,
    ToolUse,
    Usage,
)
from remit.models.base import ModelRequest, Settings, ToolSpec
from remit.models.profiles import profile_of
from remit.models.wires.chat import ChatCodec
from remit.models.wires.chat.faults import LEFT_OUT
from remit.models.wires.chat.messages import MessageWriter
from remit.models.wires.codec import Encoder, Wired
from remit.models.wires.dialects import DIALECTS, compatible_at
from remit.models.wires.sse import ServerEvent
from remit.testing.protocol import ChatJudge
from remit.transcript import Stub, Transcript

ROOT = Path(__file__).resolve().parent.parent
OBJECT: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOLS = (ToolSpec("f", "does f", OBJECT), ToolSpec("files/read.me", "reads", OBJECT))
JUDGES = {"openai-chat": "openai", "azure": "azure", "mistral": "mistral", "deepseek": "deepseek"}


def codec(dialect: str = "openai-chat", **other: Any) -> ChatCodec:
    return ChatCodec(msgspec.structs.replace(DIALECTS[dialect], **other))


def said(*content: Block, role: str = "user") -> Message:
    return Message("assistant" if role == "assistant" else "user", content)


def asked(
    transcript: Transcript,
    *,
    tools: Sequence[ToolSpec] = TOOLS,
    settings: Settings | None = None,
    instructions: str = "Be brief.",
    output_schema: Mapping[str, Any] | None = None,
) -> ModelRequest:
    return ModelRequest(
        instructions=instructions,
        transcript=transcript,
        tools=tuple(tools) if not isinstance(tools, tuple) else tools,
        settings=settings or Settings(),
        max_output=100,
        deadline=1.0,
        output_schema=output_schema,
    )


def body_of(wired: Wired) -> dict[str, Any]:
    return json.loads(wired.body)


def messages_of(
    transcript: Transcript, dialect: str = "openai-chat", encoder: Encoder | None = None
) -> list[dict[str, Any]]:
    """The messages behind the instructions."""
    encoder = encoder or codec(dialect).encoder("m")
    body = body_of(encoder.encode(asked(transcript), stream=True))
    ChatJudge(dialect=JUDGES.get(dialect, "")).request(body)
    return body["messages"][1:]


def sent(wired: Wired) -> bytes:
    """The bytes of the messages, without the bracket that ends them and without cache markers."""
    start = wired.body.index(b'"messages":[') + len(b'"messages":[')
    end = wired.body.index(b'],"tools":')
    return wired.body[start:end].replace(b',"cache_control":{"type":"ephemeral"}', b"")


def turn(
    *calls: ToolUse, results: Sequence[Sequence[Text | Media]] = (), **kind: Any
) -> list[Message]:
    """A reply with calls, and their results."""
    shown = results or [(Text("fine"),)] * len(calls)
    answers = [
        ToolResult(use.id, tuple(content), **kind)
        for use, content in zip(calls, shown, strict=True)
    ]
    return [said(*calls, role="assistant"), said(*answers)]


HI = said(Text("hi"))
PIXEL = Media("image/png", b"\x89PNG", "dot.png")

# --- bytes --------------------------------------------------------------------------------------

_TEXTS = (
    st.text(min_size=1, max_size=8)
    .map(lambda text: f"t{text}".replace("\0", ""))
    .filter(lambda text: text.encode("utf-8", "replace").decode() == text)
)


@st.composite
def _histories(
    draw: st.DrawFn, issuer: str, names: Sequence[str] = ("f", "files/read.me", "gone")
) -> list[Message]:
    """Messages as a run writes them: a user's turn, replies with calls and what is opaque, results."""
    made = [said(Text(draw(_TEXTS)))]
    count = 0
    for _ in range(draw(st.integers(0, 4))):
        blocks: list[Block] = [Text(draw(_TEXTS))] if draw(st.booleans()) else []
        uses: list[ToolUse] = []
        for _ in range(draw(st.integers(0, 3))):
            count += 1
            name = draw(st.sampled_from(names))
            arguments = draw(st.sampled_from(["{}", '{"x": 1.0}', "", '{"x":', "[1]"]))
            uses.append(ToolUse(f"call_{count}{'x' * draw(st.integers(0, 50))}", name, arguments))
        blocks += uses
        if draw(st.booleans()) or not blocks:
            field = next(iter(DIALECTS[issuer].reasoning), "name")
            data = json.dumps({"type": "remit.message", field: "hm"}).encode()
            blocks.append(Opaque(draw(st.sampled_from([issuer, "other"])), data))
        made.append(said(*blocks, role="assistant"))
        results: list[Block] = [
            ToolResult(
                use.id,
                draw(
                    st.sampled_from(
                        [(Text("r"),), (Text("r"), Text("s")), (PIXEL,), (Text("r"), PIXEL)]
                    )
                ),
                draw(st.booleans()),
            )
            for use in uses
        ]
        if not uses or draw(st.booleans()):
            results.append(Text(draw(_TEXTS)))
        made.append(said(*results))
    return made


@pytest.mark.parametrize("dialect", list(DIALECTS))
@given(data=st.data())
def test_what_was_sent_is_the_beginning_of_what_is_sent(dialect: str, data: st.DataObject) -> None:
    """X1, case 53: byte for byte, in every dialect, after a restart too; and the server takes each request."""
    history = data.draw(_histories(dialect))
    encoder = codec(dialect).encoder("anthropic/claude" if dialect == "openrouter" else "m")
    judge = ChatJudge(dialect=JUDGES.get(dialect, ""))
    before, tools = b"", b""
    for end in range(1, len(history) + 1, 2):
        wired = encoder.encode(asked(Transcript(history[:end])), stream=True)
        assert sent(wired).startswith(before)
        before = sent(wired)
        anew = codec(dialect).encoder("anthropic/claude" if dialect == "openrouter" else "m")
        assert sent(anew.encode(asked(Transcript(history[:end])), stream=True)) == before
        block = wired.body[wired.body.index(b'],"tools":') :]
        assert not tools or block == tools
        tools = block
        body = body_of(wired)
        judge.trust(body)
        judge.request(body)


class _Counted(MessageWriter):
    """Counts what it writes."""

    written = 0

    def piece(self, message: Message, before: Message | None, *, broken: bool, marked: bool) -> Any:
        type(self).written += 1
        return super().piece(message, before, broken=broken, marked=marked)


def test_each_message_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """J1, X1: a step costs its new messages, however long the history."""
    monkeypatch.setattr("remit.models.wires.chat.requests.MessageWriter", _Counted)
    _Counted.written = 0
    encoder = codec().encoder("m")
    history = [HI]
    for step in range(20):
        history += turn(ToolUse(f"c{step}", "f", "{}"))
        encoder.encode(asked(Transcript(history)), stream=True)
    assert _Counted.written == len(history)


_PROBE = """
from remit.messages import *
from remit.models.base import *
from remit.models.wires.chat import ChatCodec
from remit.models.wires.dialects import DIALECTS, compatible_at
from remit.transcript import Transcript
import sys
tools = tuple(ToolSpec(f"files/{n} ä", "d", {"type": "object", "properties": {"größe": {"type": "integer"}}}) for n in range(5))
history = [Message("user", (Text("hi"),)),
    Message("assistant", (ToolUse("c" * 60, "files/1 ä", '{"größe": 1}'), ToolUse("d", "f", "{}"))),
    Message("user", (ToolResult("c" * 60, (Text("1"),)), ToolResult("d", (Text("2"),))))]
for name, dialect in DIALECTS.items():
    request = ModelRequest("i", Transcript(history), tools, Settings(extra={"seed": 1, "user": "u"}), 9, 1.0)
    sys.stdout.buffer.write(ChatCodec(dialect).encoder("m").encode(request, stream=True).body)
"""


def test_bytes_do_not_depend_on_the_process() -> None:
    """X1, case 53: equal over five processes with hash seeds of their own."""
    bodies = {
        subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(5)
    }
    assert len(bodies) == 1
    assert all(bodies)


def test_an_elision_is_followed_from_the_changed_message_on() -> None:
    """X1, X5: what stands before it stays, and the rest is what a fresh encoder writes."""
    history = [
        HI,
        *turn(ToolUse("a", "f", "{}"), results=[(Text("x" * 400),)]),
        *turn(ToolUse("b", "f", "{}")),
    ]
    transcript = Transcript(history)
    encoder = codec().encoder("m")
    first = encoder.encode(asked(transcript), stream=True)
    transcript.elide([Stub("a", 0, "gone", "handle", 400)])
    second = encoder.encode(asked(transcript), stream=True)
    assert second.body == codec().encoder("m").encode(asked(transcript), stream=True).body
    before = first.body.index(b"x" * 400)
    assert first.body[:before] == second.body[:before]


def test_what_binds_to_a_changed_prefix_is_left_out_and_the_rest_is_kept() -> None:
    """X5, T7: OpenRouter's details hold signatures over what stood before them; a plain field binds to nothing."""
    details = (
        b'{"type":"remit.message","reasoning_details":[{"type":"reasoning.encrypted","data":"s"}]}'
    )
    kept = b'{"type":"remit.message","reasoning_content":"hm"}'
    uses = [ToolUse(name, "f", "{}") for name in "abc"]
    history = [HI]
    for use in uses:
        reply, results = turn(use)
        blocks = (*reply.content, Opaque("compatible", details), Opaque("compatible", kept))
        history += [said(*blocks, role="assistant"), results]
    transcript = Transcript(history)
    transcript.elide([Stub("a", 0, "gone", "handle", 4)])
    replies = [
        message
        for message in messages_of(transcript, "compatible")
        if message["role"] == "assistant"
    ]
    assert ["reasoning_details" in message for message in replies] == [True, False, False]
    assert all(message["reasoning_content"] == "hm" for message in replies)
    encoder = codec("compatible").encoder("m")
    told = [encoder.encode(asked(transcript), stream=True).cut_back for _ in range(2)]
    assert told == ["reasoning that belongs to a history which has changed since", None]
    transcript.add_reply(said(Text("more"), Opaque("compatible", details), role="assistant"))
    transcript.say(Text("go on"))
    assert "reasoning_details" in messages_of(transcript, "compatible")[-2]


# --- what goes out ------------------------------------------------------------------------------


def test_parallel_results_follow_their_turn_in_call_order() -> None:
    """case 76, case 57: one message with the calls, then one for each result."""
    uses = [ToolUse(name, "f", "{}") for name in ("a", "b")]
    messages = messages_of(Transcript([HI, *turn(*uses, results=[(Text("1"),), (Text("2"),)])]))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["a", "b"]
    assert [(m["tool_call_id"], m["content"]) for m in messages[2:]] == [("a", "1"), ("b", "2")]


def test_ids_are_as_the_server_wants_them_and_pairs_stay_pairs() -> None:
    """case 08, case 09, T3: nine letters and digits for Mistral, forty characters for OpenAI, none at all."""
    long = "x" * 60
    history = [
        HI,
        *turn(ToolUse("call_1", "f", "{}"), ToolUse(long, "f", "{}")),
        *turn(ToolUse("KikbB849t", "f", "{}")),
    ]
    for dialect, longest in (("mistral", 9), ("openai-chat", 40)):
        messages = messages_of(Transcript(history), dialect)
        called = [call["id"] for m in messages for call in m.get("tool_calls", ())]
        assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == called
        assert len(set(called)) == 3
        assert all(len(own) <= longest and own.isascii() for own in called)
        assert called[-1] == "KikbB849t"
    encoder = codec("compatible", ids=None).encoder("m")
    body = body_of(encoder.encode(asked(Transcript(history)), stream=True))
    ChatJudge(dialect="idless").request(body)
    assert "id" not in body["messages"][2]["tool_calls"][0]


def test_ids_that_a_gateway_gives_again_and_again_stay_apart() -> None:
    """case 09, X1: three turns, each with c0; the third request begins with the bytes of the second."""
    transcript, wire = Transcript([HI]), codec("compatible")
    encoder = wire.encoder("m")
    bodies: list[Wired] = []
    for turn_ in range(3):
        bodies.append(encoder.encode(asked(transcript), stream=True))
        chunk = {"choices": [{"index": 0, "message": {"tool_calls": [{"id": "c0", "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]}  # fmt: skip
        reply = wire.decoder().whole(json.dumps(chunk).encode())
        transcript.add_reply(reply.message)
        with transcript.answering() as answering:
            answering.slots[0].settle((Text(str(turn_)),))
    bodies.append(encoder.encode(asked(transcript), stream=True))
    assert sent(bodies[3]).startswith(sent(bodies[2]))
    messages = body_of(bodies[3])["messages"]
    called = [call["id"] for m in messages for call in m.get("tool_calls", ())]
    assert len(set(called)) == 3
    results = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    assert [results[own] for own in called] == ["0", "1", "2"]


def test_calls_without_ids_keep_their_answers() -> None:
    """case 08: two calls of one function without an id; the answer that comes first is not swapped."""
    for own in ("", "temp"):
        body = {"choices": [{"message": {"tool_calls": [
            {"id": own, "function": {"name": "temp", "arguments": '{"city":"Oslo"}'}},
            {"id": own, "function": {"name": "temp", "arguments": '{"city":"Cairo"}'}},
        ]}, "finish_reason": "stop"}]}  # fmt: skip
        transcript = Transcript([HI])
        transcript.add_reply(codec("compatible").decoder().whole(json.dumps(body).encode()).message)
        with transcript.answering() as answering:
            answering.slots[1].settle((Text("31"),))
            answering.slots[0].settle((Text("3"),))
        messages = messages_of(transcript, "compatible")
        calls = messages[1]["tool_calls"]
        results = {m["tool_call_id"]: m["content"] for m in messages[2:]}
        assert [results[call["id"]] for call in calls] == ["3", "31"]


def test_nothing_in_a_result_is_read_by_anybody() -> None:
    """case 18: schema-like keys, roles and markers stay within a text."""
    text = json.dumps({"spec": {"$ref": "#/$defs/K"}, "role": "system", "cache_control": {}})
    history = Transcript([HI, *turn(ToolUse("a", "f", "{}"), results=[(Text(text),)])])
    for dialect in DIALECTS:
        content = messages_of(history, dialect)[2]["content"]
        assert content == text


def test_names_and_keys_are_legal_there_and_ones_own_here() -> None:
    """case 21, case 22: a name with a slash and a key with an umlaut, in calls of the past and in those that come."""
    tools = (
        ToolSpec(
            "files/read", "", {"type": "object", "properties": {"größe": {"type": "integer"}}}
        ),
    )
    history = [HI, *turn(ToolUse("a", "files/read", '{"größe": 1}'))]
    wired = codec().encoder("m").encode(asked(Transcript(history), tools=tools), stream=True)
    body = body_of(wired)
    offered = body["tools"][0]["function"]["name"]
    call = body["messages"][2]["tool_calls"][0]["function"]
    assert call["name"] == offered != "files/read"
    said_ = {"index": 0, "id": "x", "function": call}
    chunk = {
        "choices": [{"index": 0, "delta": {"tool_calls": [said_]}, "finish_reason": "tool_calls"}]
    }
    wired.decoder.feed(ServerEvent("", json.dumps(chunk).encode()))
    reply = wired.decoder.end()[-1]
    assert getattr(reply, "message").tool_uses == (ToolUse("x", "files/read", '{"größe": 1}'),)  # noqa: B009 - the last chunk is a reply


def test_what_a_result_shows_beside_text_follows_it() -> None:
    """X3: results take text only, so pictures stand in a message of the user behind all of them."""
    uses = [ToolUse("a", "f", "{}"), ToolUse("b", "f", "{}")]
    reply, results = turn(*uses, results=[(Text("look"), PIXEL), (Text("plain"),)])
    history = Transcript([HI, reply, said(*results.content, Text("and?"))])
    messages = messages_of(history)
    assert [message["role"] for message in messages[2:]] == ["tool", "tool", "user"]
    parts = messages[4]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text"]
    assert parts[1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert messages[2]["content"][0]["text"] == "look"
    blind = messages_of(history, "deepseek")
    assert "takes none" in blind[4]["content"]


def test_the_assistant_says_a_word_where_a_user_may_not_follow_results() -> None:
    """T5: Mistral refuses a user's message straight behind results."""
    reply, results = turn(ToolUse("a", "f", "{}"))
    messages = messages_of(Transcript([HI, reply, said(*results.content, Text("and?"))]), "mistral")
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    foreign = said(Opaque("other", b'{"type":"thinking"}'), role="assistant")
    messages = messages_of(Transcript([HI, reply, results, foreign, said(Text("and?"))]), "mistral")
    assert [message["role"] for message in messages[2:]] == ["tool", "assistant", "user"]


def test_failures_are_said_in_words() -> None:
    """C1: the wire has no flag; a text that says so already is not doubled."""
    for text, expected in (("no such file", "Error: no such file"), ("Error: no", "Error: no")):
        uses = turn(ToolUse("a", "f", "{}"), results=[(Text(text),)], is_error=True)
        assert messages_of(Transcript([HI, *uses]))[2]["content"] == expected


def test_arguments_that_nobody_can_read_go_back_in_a_form_that_the_server_can() -> None:
    """case 15, C2: servers that read old arguments refuse those that are no object; OpenAI takes the text."""
    for text, expected in (
        ('{"x":', {"unreadable": '{"x":'}),
        ("", {}),
        ('{"x": 1.0}', {"x": 1.0}),
    ):
        history = Transcript([HI, *turn(ToolUse("a", "f", text))])
        call = messages_of(history, "vllm")[1]["tool_calls"][0]
        assert json.loads(call["function"]["arguments"]) == expected
        assert messages_of(history)[1]["tool_calls"][0]["function"]["arguments"] == text


def test_opaque_blocks_go_to_their_issuer_as_they_came() -> None:
    """T7: to no other server, and byte for byte."""
    reasoning = '"so \\u00e9\\n"'
    body = '{"choices":[{"message":{"content":null,"reasoning_content":%s,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}'  # fmt: skip
    reply = codec("deepseek").decoder().whole((body % reasoning).encode())
    results = said(ToolResult("a", (Text("1"),)))
    history = Transcript([HI, reply.message, results])
    wired = codec("deepseek").encoder("m").encode(asked(history), stream=True)
    assert f'"reasoning_content":{reasoning}'.encode() in wired.body
    for dialect in set(DIALECTS) - {"deepseek"}:
        assert "reasoning_content" not in messages_of(history, dialect)[1]


def test_what_one_compatible_server_issued_goes_to_no_other() -> None:
    """T7: they are told apart by their place, and neither is OpenAI."""
    body = {
        "choices": [
            {"message": {"content": "a", "reasoning_content": "hm"}, "finish_reason": "stop"}
        ]
    }
    one, other = (ChatCodec(compatible_at(f"https://{host}/v1")) for host in ("a.x:8443", "b.x"))
    reply = one.decoder().whole(json.dumps(body).encode())
    request = asked(Transcript([HI, reply.message, said(Text("go on"))]))
    for wire, there in ((one, True), (other, False), (codec("compatible"), False)):
        wired = wire.encoder("m").encode(request, stream=True)
        assert (b"reasoning_content" in wired.body) is there
    assert (one.issuer, other.issuer) == ("compatible:a.x:8443", "compatible:b.x")
    assert str(other.fault(401, {}, b"").error).startswith("401 from b.x - set OPENAI_API_KEY")


def test_a_signature_goes_back_on_its_own_call() -> None:
    """T7, case 57: Gemini's compatible endpoint signs calls and messages."""
    signed = {"google": {"thought_signature": "c2ln"}}
    first = {
        "index": 0,
        "id": "a",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": signed,
    }
    second = {"index": 1, "id": "b", "function": {"name": "f", "arguments": "{}"}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [first, second], "extra_content": signed}, "finish_reason": "tool_calls"}]}  # fmt: skip
    decoder = codec("compatible").decoder()
    decoder.feed(ServerEvent("", json.dumps(chunk).encode()))
    reply = decoder.end()[-1]
    message: Message = getattr(reply, "message")  # noqa: B009 - the last chunk is a reply
    results = said(*[ToolResult(own, (Text("1"),)) for own in "ab"])
    encoder = codec("compatible").encoder("m")
    body = body_of(encoder.encode(asked(Transcript([HI, message, results])), stream=True))
    sent_ = body["messages"][2]
    assert [call.get("extra_content") for call in sent_["tool_calls"]] == [signed, None]
    assert sent_["extra_content"] == signed


def test_reasoning_that_a_stream_brings_in_pieces_is_one_again() -> None:
    """T7: texts are joined; details of one index are one detail, with its signature."""
    pieces = [
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "We ", "index": 0, "format": None}
            ]
        },
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "need", "index": 0, "signature": "s"}
            ]
        },
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "e", "index": 1}]},
        {"content": "hi"},
    ]
    decoder = codec("openrouter").decoder()
    for delta in pieces:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        decoder.feed(ServerEvent("", json.dumps(chunk).encode()))
    decoder.feed(ServerEvent("", b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'))
    message: Message = getattr(decoder.end()[-1], "message")  # noqa: B009 - the last chunk is a reply
    block = message.content[-1]
    assert isinstance(block, Opaque)
    assert json.loads(block.data)["reasoning_details"] == [
        {"type": "reasoning.text", "text": "We need", "index": 0, "format": None, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "e", "index": 1},
    ]


def test_mistrals_thinking_is_a_part_of_the_content_and_goes_back_as_one() -> None:
    """T7: parts of the content that are no text."""
    decoder = codec("mistral").decoder()
    for text in ("Let ", "me see."):
        part = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
        chunk = {"choices": [{"index": 0, "delta": {"content": [part]}, "finish_reason": None}]}
        decoder.feed(ServerEvent("", json.dumps(chunk).encode()))
    last = {"choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "4"}]}, "finish_reason": "stop"}]}  # fmt: skip
    decoder.feed(ServerEvent("", json.dumps(last).encode()))
    message: Message = getattr(decoder.end()[-1], "message")  # noqa: B009 - the last chunk is a reply
    assert message.text == "4"
    messages = messages_of(Transcript([HI, message, said(Text("and?"))]), "mistral")
    assert messages[1]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]},
        {"type": "text", "text": "4"},
    ]


def test_a_part_of_a_reply_says_nothing_of_ours() -> None:
    """T7: a server cannot write what only we write, and parts that no server takes back are left out."""
    parts = [
        {"type": "remit.message", "role": "system"},
        {"type": ["thinking"]},
        {"type": "text", "text": "hi"},
        {"type": "audio"},
    ]
    body = {"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}
    for dialect in DIALECTS:
        reply = codec(dialect).decoder().whole(json.dumps(body).encode())
        assert reply.message.content == (Text("hi"),)


def test_settings_are_said_in_the_words_of_the_server() -> None:
    """C1: cap, choice, thinking, schema and extra fields; extra comes last and wins."""
    settings = Settings(
        thinking=4_000, tool_choice="files/read.me", extra={"seed": 7, "top_p": 0.5}
    )
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}  # fmt: skip
    request = asked(Transcript([HI]), settings=settings, output_schema=schema)
    body = body_of(codec().encoder("m").encode(request, stream=True))
    ChatJudge(dialect="openai").request(body)
    assert (body["max_completion_tokens"], body["reasoning_effort"], body["seed"]) == (
        100,
        "medium",
        7,
    )
    assert body["tool_choice"]["function"]["name"] == body["tools"][1]["function"]["name"]
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    plain = body_of(codec("mistral").encoder("m").encode(asked(Transcript([HI])), stream=False))
    assert set(plain) == {"model", "messages", "tools", "max_tokens"}
    router = body_of(codec("openrouter").encoder("m").encode(request, stream=True))
    assert router["reasoning"] == {"max_tokens": 4_000}
    none = asked(
        Transcript([HI]), settings=Settings(tool_choice="none", extra={"max_completion_tokens": 5})
    )
    body = body_of(codec().encoder("m").encode(none, stream=False))
    assert (body["tool_choice"], body["max_completion_tokens"]) == ("none", 5)
    with pytest.raises(ConfigurationError, match="messages"):
        bad = asked(Transcript([HI]), settings=Settings(extra={"messages": []}))
        codec().encoder("m").encode(bad, stream=True)


def test_the_cache_key_is_that_of_the_conversation() -> None:
    """X4: the same in all its requests, another one for another beginning."""
    encoder = codec().encoder("m")
    history = [HI]
    keys: set[str] = set()
    for step in range(3):
        history += turn(ToolUse(f"c{step}", "f", "{}"))
        keys.add(
            body_of(encoder.encode(asked(Transcript(history)), stream=True))["prompt_cache_key"]
        )
    other = codec().encoder("m").encode(asked(Transcript([said(Text("ho"))])), stream=True)
    assert len(keys) == 1
    assert body_of(other)["prompt_cache_key"] not in keys


def test_markers_stand_where_the_last_request_had_one_and_at_the_end() -> None:
    """X4: what was written is found exactly, however many calls a turn had."""
    encoder = codec("openrouter").encoder("anthropic/claude-sonnet")
    history = [HI]
    marked: list[list[int]] = []
    for step in range(3):
        request = asked(Transcript(history))
        first, again = (encoder.encode(request, stream=True) for _ in range(2))
        assert first.body == again.body
        body = body_of(first)
        marked.append(
            [at for at, m in enumerate(body["messages"]) if "cache_control" in json.dumps(m)]
        )
        history += turn(*[ToolUse(f"c{step}_{n}", "f", "{}") for n in range(30)])
    assert marked == [[0, 1], [0, 1, 32], [0, 32, 63]]
    plain = (
        codec("openrouter").encoder("openai/gpt").encode(asked(Transcript(history)), stream=True)
    )
    assert b"cache_control" not in plain.body


def test_a_key_goes_into_the_header_that_the_server_reads() -> None:
    """C1: as a bearer token, or in a header of its own."""
    assert codec().headers("k") == {"authorization": "Bearer k"}
    assert codec("azure").headers("k") == {"api-key": "k"}
    assert codec("ollama").headers(None) == {}


# --- repairs (case 60) --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "status", "error", "gone", "instead"),
    [
        ("openai-chat", 400, {"message": "Unsupported parameter: 'max_completion_tokens' is not supported with this model. Use 'max_tokens' instead.", "param": "max_completion_tokens", "code": "unsupported_parameter"}, "max_completion_tokens", "max_tokens"),
        ("vllm", 400, {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "param": "max_tokens", "code": "unsupported_parameter"}, "max_tokens", "max_completion_tokens"),
        ("compatible", 400, {"message": "Unrecognized request argument supplied: stream_options"}, "stream_options", None),
        ("compatible", 422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted", "input": {"include_usage": True}}]}, "stream_options", None),
        ("openai-chat", 400, {"message": "response_format: this type is unavailable now"}, "response_format", None),
        ("groq", 400, {"message": "`reasoning_effort` is not supported with this model"}, "reasoning_effort", None),
        ("openai-chat", 400, {"message": "Unrecognized request argument supplied: prompt_cache_key"}, "prompt_cache_key", None),
        ("compatible", 400, {"message": "parallel_tool_calls is not supported"}, "parallel_tool_calls", None),
    ],
)  # fmt: skip
def test_a_refused_field_is_left_out_for_the_rest_of_the_run(
    dialect: str, status: int, error: dict[str, Any], gone: str, instead: str | None
) -> None:
    """case 60: the next body differs, or there is none; and people are told."""
    wire = codec(dialect)
    encoder = wire.encoder("m")
    settings = Settings(thinking=100, extra={"parallel_tool_calls": True})
    request = asked(Transcript([HI]), settings=settings, output_schema=OBJECT)
    first = encoder.encode(request, stream=True)
    assert gone in body_of(first)
    body = error if "detail" in error else {"error": error}
    fault = wire.fault(status, {}, json.dumps(body).encode())
    repair = f"field:{gone}"
    assert fault.repair == repair
    assert encoder.repair(repair)
    second = encoder.encode(request, stream=True)
    assert gone not in body_of(second)
    assert second.cut_back is not None
    assert gone in second.cut_back
    if instead is not None:
        assert body_of(second)[instead] == 100
    assert not encoder.repair(repair)
    assert encoder.encode(request, stream=True).cut_back is None
    if instead is not None:
        assert not encoder.repair(f"field:{instead}")  # a request without a cap would have no bound


def test_opaque_blocks_that_are_refused_stay_out() -> None:
    """case 60: the strip is seen in the bytes, and what holds nothing opaque is no repair."""
    kept = Opaque("deepseek", b'{"type":"remit.message","reasoning_content":"hm"}')
    history = [HI, said(Text("a"), kept, role="assistant"), said(Text("b"))]
    wire = codec("deepseek")
    refused = b'{"error":{"message":"Please remove the reasoning_content from your message"}}'
    fault = wire.fault(400, {}, refused)
    assert fault.repair == "opaque"
    encoder = wire.encoder("m")
    first = encoder.encode(asked(Transcript(history)), stream=True)
    assert encoder.repair("opaque")
    second = encoder.encode(asked(Transcript(history)), stream=True)
    assert b"reasoning_content" in first.body
    assert b"reasoning_content" not in second.body
    assert not encoder.repair("opaque")
    bare = wire.encoder("m")
    bare.encode(asked(Transcript([HI])), stream=True)
    assert not bare.repair("opaque")
    assert not bare.repair("something")
    assert not bare.repair("field:messages")


def test_reasoning_that_is_missing_is_said_to_be_blank() -> None:
    """case 60: DeepSeek wants the field beside every call, also beside those of another model."""
    wire = codec("deepseek")
    text = "Missing `reasoning_content` field in the assistant message at message index 1."
    fault = wire.fault(400, {}, json.dumps({"error": {"message": text}}).encode())
    assert fault.repair == "reasoning"
    encoder = wire.encoder("m")
    request = asked(Transcript([HI, *turn(ToolUse("a", "f", "{}"))]))
    encoder.encode(request, stream=True)
    assert encoder.repair("reasoning")
    assert body_of(encoder.encode(request, stream=True))["messages"][2]["reasoning_content"] == ""
    assert not encoder.repair("reasoning")


def test_calls_that_nobody_signed_say_so_where_a_signature_is_wanted() -> None:
    """case 60, T7: Gemini wants one on the first call of a turn; signatures of its own stay as they are."""
    wire = codec("compatible")
    text = "Function call is missing a thought_signature in functionCall parts."
    fault = wire.fault(400, {}, json.dumps([{"error": {"message": text}}]).encode())
    assert fault.repair == "signature"
    own = {"google": {"thought_signature": "c2ln"}}
    kept = Opaque("compatible", json.dumps({"type": "remit.beside", "extra_content": own}).encode())
    history = [HI, *turn(ToolUse("a", "f", "{}"), ToolUse("b", "f", "{}"))]
    history.append(said(ToolUse("c", "f", "{}"), kept, role="assistant"))
    history.append(said(ToolResult("c", (Text("1"),))))
    encoder = wire.encoder("m")
    encoder.encode(asked(Transcript(history)), stream=True)
    assert encoder.repair("signature")
    body = body_of(encoder.encode(asked(Transcript(history)), stream=True))
    sent_ = [
        call.get("extra_content") for m in body["messages"] for call in m.get("tool_calls", ())
    ]
    none = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert sent_ == [none, None, own]
    assert not encoder.repair("signature")
    corrupted = b'[{"error":{"message":"Corrupted thought signature."}}]'
    assert wire.fault(400, {}, corrupted).repair == "opaque"


def test_the_rules_of_mistrals_models_hold_wherever_they_are_served() -> None:
    """case 60, case 08: vLLM says them in the words of Mistral."""
    wire = codec("vllm")
    reply, results = turn(ToolUse("call_1", "f", "{}"))
    request = asked(Transcript([HI, reply, said(*results.content, Text("and?"))]))
    encoder = wire.encoder("m")
    encoder.encode(request, stream=True)
    for text in (
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
        "Unexpected role 'user' after role 'tool'",
    ):
        fault = wire.fault(400, {}, json.dumps({"object": "error", "message": text}).encode())
        assert encoder.repair(fault.repair or "")
        assert not encoder.repair(fault.repair or "")
    ChatJudge(dialect="mistral").request(body_of(encoder.encode(request, stream=True)))


def test_ids_that_are_refused_stay_out() -> None:
    """case 08, case 60: a server that knows no ids says so."""
    wire = codec("compatible")
    text = "Invalid JSON payload received. Unknown name \"id\" at 'messages[1].tool_calls[0]'"
    fault = wire.fault(400, {}, json.dumps([{"error": {"message": text}}]).encode())
    assert fault.repair == "ids"
    encoder = wire.encoder("m")
    request = asked(Transcript([HI, *turn(ToolUse("a", "f", "{}"))]))
    encoder.encode(request, stream=True)
    assert encoder.repair("ids")
    ChatJudge(dialect="idless").request(body_of(encoder.encode(request, stream=True)))
    assert not encoder.repair("ids")


# --- errors -------------------------------------------------------------------------------------

_LONG = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens.",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Please reduce the length of the messages or completion.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Invalid request: Your request exceeded model token limit: 262144",
    "Request too large for gpt-4o in organization org on tokens per min (TPM): Limit 30000, Requested 40000.",
    "Trying to keep the first 9000 tokens when context the overflows.",
    "invalid params, context window exceeds limit",
    "'max_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 2000",
]


@pytest.mark.parametrize("text", _LONG)
def test_a_prompt_that_is_too_long_is_known_in_every_spelling(text: str) -> None:
    """X5: under whatever status it comes."""
    for status in (400, 413, 429, 500):
        body = json.dumps({"error": {"message": text, "code": status}}).encode()
        assert type(codec().fault(status, {}, body).error) is ContextExceeded
    behind = {
        "error": {"message": "Provider returned error", "metadata": {"raw": f"{'x' * 900} {text}"}}
    }
    error = codec("openrouter").fault(400, {}, json.dumps(behind).encode()).error
    assert type(error) is ContextExceeded
    assert len(str(error)) < 600
    coded = b'{"error":{"message":"no","code":"context_length_exceeded"}}'
    assert type(codec().fault(400, {}, coded).error) is ContextExceeded


@pytest.mark.parametrize(
    ("dialect", "status", "body", "kind", "words"),
    [
        ("openai-chat", 401, {"error": {"message": "Incorrect API key provided: sk-abcd********wxyz.", "code": "invalid_api_key"}}, ModelRejected, ["401", "OpenAI", "OPENAI_API_KEY"]),
        ("groq", 401, {"error": {"message": "Invalid API Key"}}, ModelRejected, ["GROQ_API_KEY"]),
        ("deepseek", 402, {"error": {"message": "Insufficient Balance"}}, ModelRejected, ["no credit"]),
        ("openai-chat", 403, {"error": {"message": "Country not supported"}}, ModelRejected, ["may not use"]),
        ("openai-chat", 404, {"error": {"message": "The model `gpt-9` does not exist", "code": "model_not_found"}}, ModelRejected, ["check the name of the model"]),
        ("ollama", 404, {"error": {"message": 'model "x" not found, try pulling it first'}}, ModelRejected, ["ollama pull"]),
        ("vllm", 404, {"detail": "Not Found"}, ModelRejected, ["base URL", "/v1"]),
        ("ollama", 404, "404 page not found", ModelRejected, ["base URL", "/v1"]),
        ("openai-chat", 405, {"detail": "Method Not Allowed"}, ModelRejected, ["base URL"]),
        ("compatible", 403, "<html><head><title>Blocked by proxy</title></head></html>", ModelRejected, ["Blocked by proxy"]),
        ("compatible", 400, "<html>", ModelRejected, ["page for people"]),
        ("compatible", 502, "<html><h1>Bad Gateway</h1>", ModelUnavailable, ["Bad Gateway"]),
        ("openai-chat", 429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, ModelRejected, ["over its quota"]),
        ("openrouter", 429, {"error": {"message": "Rate limit exceeded: free-models-per-day. Add 10 credits"}}, ModelRejected, ["quota"]),
        ("openai-chat", 429, {"error": {"message": "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000"}}, ModelUnavailable, ["Rate limit"]),
        ("vllm", 400, {"object": "error", "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'}, ModelRejected, ["--enable-auto-tool-choice --tool-call-parser"]),
        ("llamacpp", 500, {"error": {"message": "tools param requires --jinja flag"}}, ModelRejected, ["llama-server --jinja"]),
        ("ollama", 400, {"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}}, ModelRejected, ["ReActModel", "ollama show"]),
        ("openrouter", 404, {"error": {"message": "No endpoints found that support tool use"}}, ModelRejected, ["ReActModel"]),
        ("mistral", 422, {"object": "error", "message": {"detail": [{"loc": ["body", "messages", 0], "msg": "bad", "input": "SECRET"}]}}, ModelRejected, ["messages.0: bad"]),
        ("groq", 429, {"error": {"message": "Rate limit reached on tokens per day (TPD): Limit 100000. Upgrade at https://console.groq.com/settings/billing", "code": "rate_limit_exceeded"}}, ModelUnavailable, ["Rate limit"]),
        ("openai-chat", 500, {}, ModelUnavailable, ["500"]),
        ("openai-chat", 503, "", ModelUnavailable, ["503"]),
        ("openai-chat", 408, {}, ModelUnavailable, ["408"]),
        ("openai-chat", 409, {}, ModelUnavailable, ["409"]),
        ("groq", 498, {}, ModelUnavailable, ["498"]),
        ("openai-chat", 529, {}, ModelUnavailable, ["529"]),
        ("openai-chat", 307, "", ModelRejected, ["redirects"]),
        ("openai-chat", 418, "[]", ModelRejected, ["418"]),
    ],
)  # fmt: skip
def test_an_error_says_what_to_do(
    dialect: str, status: int, body: Any, kind: type[ModelError], words: list[str]
) -> None:
    """E7: retried where that may help and not where it cannot; no key and nothing of the request is told."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = codec(dialect).fault(status, {}, data).error
    assert type(error) is kind
    assert [word for word in words if word not in str(error)] == []
    assert not any(secret in str(error) for secret in ("sk-abcd", "wxyz", "SECRET"))
    assert len(str(error)) < 1_000


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after": "7"}, "", 7.0),
        ({"retry-after": "1.5", "retry-after-ms": "250"}, "", 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, "", 10.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({}, "Please try again in 1m2.5s.", 62.5),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "Please try again in 6h3m12s.", 21_792.0),
        ({}, "Please try again later.", None),
        ({"retry-after": "9" * 400}, "", None),
        ({"retry-after": "999999999"}, "", 864_000.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2s"}, "", 62.0),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "1m2s"}, "", None),
    ],
)  # fmt: skip
def test_the_server_says_when_to_try_again(
    headers: dict[str, str], text: str, seconds: float | None
) -> None:
    """E7: in a header, by its own clock, or in words."""
    error = codec().fault(429, headers, json.dumps({"error": {"message": text}}).encode()).error
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == pytest.approx(seconds)


def test_a_header_that_says_whether_to_try_again_is_obeyed() -> None:
    """E7: as OpenAI's own clients do."""
    for status, may, kind in ((500, "false", ModelRejected), (400, "true", ModelUnavailable)):
        fault = codec().fault(status, {"x-should-retry": may}, b"{}")
        assert type(fault.error) is kind


# --- bodies read back ---------------------------------------------------------------------------


def test_what_has_no_words_here_goes_back_as_it_came() -> None:
    """T7, T6: a system message in the middle, an image by its address, fields of a message, fields of the root."""
    body: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "One."},
            {"role": "system", "content": "Two."},
            {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
            {"role": "assistant", "content": "Well.", "name": "bot", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}, "index": 1},
            ]},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
            {"role": "developer", "content": "Three."},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}]},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "name": "Ann", "content": "bye"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": OBJECT, "strict": True}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_completion_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    parsed = codec().parse(body)
    assert parsed.instructions == "One."
    assert parsed.settings.tool_choice == "any"
    assert parsed.settings.max_output == 5
    assert [tool.name for tool in parsed.tools] == ["f"]
    request = ModelRequest(
        parsed.instructions, parsed.transcript, parsed.tools, parsed.settings, 5, 1.0
    )
    made = body_of(codec().encoder(parsed.model).encode(request, stream=parsed.stream))
    made.pop("prompt_cache_key")
    body["messages"][4:6] = [
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]
    assert made == body


@pytest.mark.parametrize("dialect", list(DIALECTS))
@given(data=st.data())
def test_what_goes_out_reads_back_and_goes_out_the_same(dialect: str, data: st.DataObject) -> None:
    """T6, T7: any history, in every dialect; names that are legal on the wire."""
    history = data.draw(_histories(dialect, ("f", "gone")))
    wire = codec(dialect)
    body = body_of(
        wire.encoder("m").encode(asked(Transcript(history), tools=TOOLS[:1]), stream=True)
    )
    parsed = wire.parse(body)
    request = ModelRequest(
        parsed.instructions, parsed.transcript, parsed.tools, parsed.settings, 100, 1.0
    )
    assert body_of(wire.encoder(parsed.model).encode(request, stream=parsed.stream)) == body


def test_what_is_no_json_is_no_body() -> None:
    """T6: such as an object of a library among the messages."""
    for content in ([{"type": "image_url", "image_url": object()}], [{"type": "x", "y": "\ud800"}]):
        with pytest.raises(TranscriptError, match="no JSON"):
            codec().parse({"messages": [{"role": "user", "content": content}]})


def test_calls_of_another_kind_go_back_whole() -> None:
    """T7, T6: custom tools, and functions as they were before there were tools; their results with them."""
    custom: dict[str, Any] = {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [custom]},
        {"role": "tool", "tool_call_id": "a", "content": "x.py"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "bye"},
    ]
    parsed = codec().parse({"model": "m", "messages": messages})
    request = asked(parsed.transcript, instructions="")
    assert body_of(codec().encoder("m").encode(request, stream=False))["messages"] == messages
    other = body_of(codec("azure").encoder("m").encode(request, stream=False))["messages"]
    assert [message["role"] for message in other] == ["user", "assistant", "user"]


def test_the_pairs_of_a_body_are_paired_by_id_and_ids_become_legal() -> None:
    """T6, case 09: ids that were used before, and such as no history holds."""
    own = "functions.f:0"
    turn_ = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": own, "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": own, "content": ""},
    ]  # fmt: skip
    parsed = codec().parse({"messages": [{"role": "user", "content": "hi"}, *turn_, *turn_]})
    ids = [use.id for message in parsed.transcript for use in message.tool_uses]
    assert len(set(ids)) == 2
    assert [r.tool_use_id for m in parsed.transcript for r in m.tool_results] == ids


_CALLING: dict[str, Any] = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}  # fmt: skip
_ASKING: dict[str, Any] = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([_ASKING, _CALLING], "did not have response messages: a"),
        ([_ASKING, _CALLING, _ASKING], "did not have response messages: a"),
        ([_ASKING, {"role": "tool", "tool_call_id": "a", "content": "1"}], "preceeding message"),
        ([_ASKING, _CALLING, {"role": "tool", "tool_call_id": "b", "content": "1"}], "preceeding"),
        ([_ASKING, {"role": "assistant", "tool_calls": []}], "says nothing"),
        ([_ASKING, {"role": "robot", "content": "x"}], "robot"),
        ([_ASKING, {"role": "assistant", "content": None}], "says nothing"),
        (["hi"], "no object"),
        ("hi", "list of messages"),
        ([{"role": "user", "content": 7}], "neither text nor a list"),
        ([{"role": "user", "content": ["hi"]}], "no object"),
    ],
)
def test_a_body_that_a_server_would_refuse_is_refused_here(messages: Any, words: str) -> None:
    """T6: with the server's own words, where there are any."""
    with pytest.raises(TranscriptError, match=words):
        codec().parse({"messages": messages})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "id", "function", "name", "arguments", "type", "text", "tool_call_id", "image_url", "url"]),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@example([{"content": True}], None, None)
@example([{"content": "?", "tool_calls": 1}], None, None)
@example([{"content": "?", "tool_calls": 1, "function_call": {}}], None, None)
@given(st.lists(_JSON, max_size=4), _JSON, _JSON)
def test_no_body_breaks_the_reader(messages: list[Any], tools: Any, choice: Any) -> None:
    """T6: a transcript, or a `TranscriptError`."""
    for role in ("user", "assistant", "tool", "system"):
        given_: list[Any] = [
            {**each, "role": role} if isinstance(each, dict) else each for each in messages
        ]
        body = {"messages": given_, "tools": tools, "tool_choice": choice, "max_tokens": tools}
        try:
            parsed = codec().parse(body)
        except TranscriptError:
            continue
        assert isinstance(parsed.transcript, Transcript)


def test_a_reply_as_the_server_writes_it_reads_back() -> None:
    """T7: text, calls and what belongs to them."""
    message = said(
        Text("So."),
        ToolUse("a", "f", '{"x": 1.0}'),
        Opaque("compatible", b'{"type":"remit.beside","extra_content":{"s":1}}'),
        ToolUse("b", "f", "{}"),
        Opaque("compatible", b'{"type":"remit.message","reasoning_content":"hm"}'),
        role="assistant",
    )
    wire, usage = codec("compatible"), Usage(1, 2, 3, 4, 1)
    body = wire.reply_json(message, stop_reason="tool_calls", usage=usage)
    reply = wire.decoder().whole(json.dumps(body, separators=(",", ":")).encode())
    assert (reply.message, reply.stop_reason, reply.usage) == (message, StopReason.TOOL_USE, usage)


# --- hostile bytes ------------------------------------------------------------------------------

_PARTS = st.sampled_from(
    [b'{"choices":[{"index":0,"delta":{', b'"content":', b'"tool_calls":[{"index":0,"id":"a",', b'"function":{"name":"f","arguments":"', b"}}]}", b'"finish_reason":"stop"', b"[DONE]", b"null", b'"x"', b"[" * 2000, b'{"error":', b'{"usage":', b"<html>", b"\xff", b'"\\ud800"', b"1e999", b"{}", b","]
)  # fmt: skip


@given(
    st.lists(_PARTS | st.binary(max_size=8), max_size=8).map(b"".join),
    st.sampled_from(list(DIALECTS)),
)
def test_whatever_bytes_come_end_as_a_typed_error(data: bytes, dialect: str) -> None:
    """C1: in a stream, whole, and as an error; never another exception."""
    wire = codec(dialect)
    for attempt in (
        lambda: wire.decoder().feed(ServerEvent("", data)),
        lambda: wire.decoder().whole(data),
    ):
        with contextlib.suppress(ModelError):
            attempt()
    for status in (200, 302, 400, 404, 422, 429, 500, 600):
        fault = wire.fault(status, {"retry-after": "x", "date": "y"}, data)
        assert isinstance(fault.error, ModelError)
        if fault.reply is not None:
            wire.decoder().whole(fault.reply)


@given(_JSON, _JSON)
def test_whatever_json_comes_ends_as_a_typed_error(value: Any, other: Any) -> None:
    """C1: the right words in the wrong places."""
    delta = {
        "content": value,
        "tool_calls": other,
        "reasoning_details": value,
        "function_call": other,
    }
    bodies: list[Any] = [
        value,
        {"error": value, "usage": other},
        {"choices": value},
        {"choices": [value]},
        {"choices": [{"index": value, "delta": other, "finish_reason": value}]},
        *[{"choices": [{"index": 0, "delta": {key: delta[key]}, "message": None}], "usage": other} for key in delta],
        {"choices": [{"delta": {"tool_calls": [{"index": value, "id": other, "function": {"name": value, "arguments": other}, "extra_content": value}]}, "finish_reason": "stop"}]},
    ]  # fmt: skip
    for body in bodies:
        data = json.dumps(body).encode()
        decoder = codec("compatible").decoder()
        with contextlib.suppress(ModelError):
            decoder.feed(ServerEvent("", data))
            decoder.feed(ServerEvent("", data))
            decoder.end()
        with contextlib.suppress(ModelError):
            codec("compatible").decoder().whole(data)
        assert isinstance(codec().fault(400, {}, data).error, ModelError)


def test_a_page_instead_of_an_answer_says_where_to_look() -> None:
    """C1: a proxy's page, with a 200."""
    with pytest.raises(ModelProtocolError, match=r"HTML page.*base URL"):
        codec().decoder().whole(b"<!doctype html><title>Login</title>")


# --- the page -----------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "dialects.md").read_text("utf-8")


def test_the_page_tells_what_the_dialects_are() -> None:
    """C1: one row for each, in order, with what it says of itself."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("| `")
    ]
    told = [row for row in rows if row[0] in DIALECTS]
    assert told == [
        [
            each.name,
            each.title,
            each.base_url or "-",
            each.url_variable,
            each.key_variable,
            each.cap,
            each.thinking or "-",
            "yes" if each.native_output else "-",
        ]
        for each in DIALECTS.values()
    ]


def test_only_servers_that_hold_an_answer_to_a_schema_are_asked_to() -> None:
    """C1: what is known of a model says so only where its server does."""
    for name, dialect in DIALECTS.items():
        assert profile_of(name, "gpt-5.2").native_output is dialect.native_output


def test_the_page_names_the_servers_that_differ() -> None:
    """C1: what a sentence of it says of servers by name is what their profiles say."""
    parts = {each.name for each in DIALECTS.values() if each.text_parts}
    assert parts == {"openai-chat", "azure", "openrouter", "mistral"}
    assert {n for n, each in DIALECTS.items() if not each.reads_arguments} == {
        "openai-chat",
        "azure",
    }
    assert {n for n, each in DIALECTS.items() if not each.user_after_results} == {"mistral"}
    inlined = {n for n, each in DIALECTS.items() if each.tools.target == "inlined"}
    assert inlined == {"ollama", "deepseek", "openrouter", "compatible"}
    reasoning = {name for each in DIALECTS.values() for name in (*each.reasoning, *each.of_calls)}
    assert [
        name for name in sorted(reasoning - {"thought_signature"}) if f"`{name}`" not in PAGE
    ] == []
    assert [field for field in LEFT_OUT if f"`{field}`" not in PAGE] == []
