"""Requests of OpenAI Responses: the items, the settings, what stays the same, errors, and bodies read back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import (
    ConfigurationError,
    ContextExceeded,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    TranscriptError,
)
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse, Usage
from remit.models.base import Settings, ToolSpec
from remit.models.wires import codec as codec_of
from remit.models.wires.responses import ResponsesCodec
from remit.models.wires.waiting import BUSY
from remit.testing import judge
from remit.transcript import Stub, Transcript
from responses_rig import LOOK, WIRE, Item, body_of, call, reasoning, request, response, text

PNG = Media("image/png", b"\x89PNG")


def transcript_of(*content: Block | str) -> Transcript:
    """One question and one turn of the assistant's, with its calls answered."""
    transcript = Transcript([Message("user", (Text("Go."),))])
    blocks = tuple(Text(each) if isinstance(each, str) else each for each in content)
    transcript.add_reply(Message("assistant", blocks))
    if transcript.owed:
        transcript.answering().close()
    return transcript


def items_of(*content: Block | str, codec: ResponsesCodec = WIRE) -> list[Item]:
    """The items of such a turn, and of its results."""
    made = request(transcript_of(*content))
    return body_of(made, codec.encoder("m"))["input"][1:]


def own(item: Item, issuer: str = "openai") -> Opaque:
    return Opaque(issuer, json.dumps(item).encode())


def output_of(*content: Text | Media, is_error: bool = False) -> Any:
    transcript = Transcript([Message("user", (Text("Go."),))])
    transcript.add_reply(Message("assistant", (ToolUse("c1", "look", "{}"),)))
    with transcript.answering() as answering:
        answering.slots[0].settle(content, is_error=is_error)
    return body_of(request(transcript))["input"][-1]["output"]


# --- what is said of a request -------------------------------------------------------------------------


def test_a_request_says_what_is_never_left_to_the_server() -> None:
    """case 59, X1: nothing is stored, reasoning comes sealed, and strict is said for every tool."""
    body = body_of(request(Transcript([Message("user", (Text("Hi"),))]), max_output=77))
    key = body.pop("prompt_cache_key")
    assert body == {
        "model": "gpt-x",
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Help.",
        "tools": [
            {
                "type": "function",
                "name": "look",
                "description": "Look at it.",
                "parameters": LOOK.parameters,
                "strict": False,
            }
        ],
        "tool_choice": "auto",
        "input": [{"role": "user", "content": "Hi"}],
        "max_output_tokens": 77,
    }
    assert key.startswith("remit-")


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        (Settings(tool_choice="any"), "tool_choice", "required"),
        (Settings(tool_choice="none"), "tool_choice", "none"),
        (Settings(tool_choice="look"), "tool_choice", {"type": "function", "name": "look"}),
        (Settings(thinking=2_048), "reasoning", {"effort": "low"}),
        (Settings(thinking=8_192), "reasoning", {"effort": "medium"}),
        (Settings(thinking=8_193), "reasoning", {"effort": "high"}),
        (
            Settings(thinking=1, extra={"reasoning": {"summary": "auto"}}),
            "reasoning",
            {"effort": "low", "summary": "auto"},
        ),
        (
            Settings(extra={"include": ["web_search_call.results"]}),
            "include",
            ["reasoning.encrypted_content", "web_search_call.results"],
        ),
        (Settings(extra={"service_tier": "flex"}), "service_tier", "flex"),
        (Settings(extra={"max_output_tokens": 5}), "max_output_tokens", 5),
    ],
)
def test_settings_are_said_in_the_words_of_the_wire(
    settings: Settings, field: str, value: Any
) -> None:
    made = request(Transcript([Message("user", (Text("Hi"),))]), settings=settings)
    data = WIRE.encoder("m").encode(made, stream=True).body
    pairs: list[tuple[str, Any]] = json.loads(data, object_pairs_hook=lambda pairs: pairs)
    assert [name for name, _ in pairs].count(field) == 1
    assert json.loads(data)[field] == value


def test_tools_of_the_provider_go_out_beside_ours_and_entries_say_more_of_ours() -> None:
    """X1, case 20: in the order of the settings, each tool once."""
    tools = (LOOK, ToolSpec("find", "Find.", {"type": "object"}))
    transcript = Transcript([Message("user", (Text("Hi"),))])
    searched = {"type": "web_search"}
    (plain, find) = body_of(request(transcript, tools=tools))["tools"]
    for extra, said in (
        ([searched], [searched, plain, find]),
        (
            [{"name": "find", "defer_loading": True}, searched],
            [{**find, "defer_loading": True}, searched, plain],
        ),
        ([{**plain, "description": "x"}], [{**plain, "description": "x"}, find]),
        (None, [plain, find]),
        ([], [plain, find]),
    ):
        settings = Settings(extra={"tools": extra})
        body = body_of(request(transcript, tools=tools, settings=settings))
        assert body["tools"] == said
        judge("openai").request(body)
    alone = request(transcript, tools=(), settings=Settings(extra={"tools": [searched]}))
    assert body_of(alone)["tools"] == [searched]


@pytest.mark.parametrize(
    ("codec", "extra"),
    [
        (WIRE, {"input": []}),
        (WIRE, {"stream": False}),
        (WIRE, {"model": "x"}),
        (WIRE, {"conversation": "conv_1"}),
        (ResponsesCodec(state="server"), {"store": False}),
    ],
)
def test_what_would_make_another_request_of_it_is_refused_before_it_is_sent(
    codec: ResponsesCodec, extra: dict[str, Any]
) -> None:
    """case 59: a conversation that the server keeps besides would get every item again and again."""
    made = request(Transcript([Message("user", (Text("Hi"),))]), settings=Settings(extra=extra))
    with pytest.raises(ConfigurationError):
        codec.encoder("m").encode(made, stream=True)


def test_a_cap_that_the_provider_would_refuse_is_the_lowest_that_it_takes() -> None:
    """L2: a run with a few tokens left gets its last words."""
    transcript = Transcript([Message("user", (Text("Hi"),))])
    assert body_of(request(transcript, max_output=3))["max_output_tokens"] == 16


def test_models_that_never_reason_are_not_told_of_it() -> None:
    """E7: they refuse the very word."""
    made = request(Transcript([Message("user", (Text("Hi"),))]), settings=Settings(thinking=1_000))
    said = {"include", "reasoning"}
    assert said <= body_of(made).keys()
    assert said.isdisjoint(body_of(made, WIRE.encoder("gpt-4.1-nano")).keys())


@pytest.mark.parametrize("extra", [{"metadata": object()}, {"user": "\ud800"}])
def test_what_json_cannot_say_is_refused_before_it_is_sent(extra: dict[str, Any]) -> None:
    made = request(Transcript([Message("user", (Text("Hi"),))]), settings=Settings(extra=extra))
    with pytest.raises(ConfigurationError):
        WIRE.encoder("m").encode(made, stream=True)


def test_a_codec_of_another_mode_is_refused() -> None:
    for wrong in ({"state": "client"}, {"item_ids": "some"}):
        with pytest.raises(ConfigurationError):
            ResponsesCodec(**wrong)  # pyright: ignore[reportArgumentType] - wrong on purpose
    assert isinstance(codec_of("openai"), ResponsesCodec)


def test_a_typed_answer_is_asked_for_in_the_strict_grammar() -> None:
    """case 17: every object closed, every member there; beside what was said of the text."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    made = request(
        Transcript([Message("user", (Text("Hi"),))]),
        output_schema=schema,
        settings=Settings(extra={"text": {"verbosity": "low"}}),
    )
    body = body_of(made)
    assert body["text"]["verbosity"] == "low"
    form = body["text"]["format"]
    assert (form["type"], form["strict"]) == ("json_schema", True)
    assert form["schema"]["required"] == ["n"]
    judge("openai").request(body)


def test_what_a_strict_answer_had_to_say_of_what_is_optional_is_taken_out_again() -> None:
    """case 17: the grammar wants every member; the schema has no place for a null."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "why": {"type": "string"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    made = request(Transcript([Message("user", (Text("Hi"),))]), output_schema=schema)
    wired = WIRE.encoder("m").encode(made, stream=True)
    form = json.loads(wired.body)["text"]["format"]
    assert (form["strict"], sorted(form["schema"]["required"])) == (True, ["n", "why"])
    judge("openai").request(json.loads(wired.body))
    answer = response(text(1, '{"n": 1, "why": null}'))
    reply = wired.decoder.whole(json.dumps(answer).encode())
    assert json.loads(reply.message.text) == {"n": 1}
    free = request(made.transcript, output_schema={"type": "object", "additionalProperties": {}})
    assert body_of(free)["text"]["format"]["strict"] is False


def test_requests_of_one_conversation_have_one_cache_key_and_others_have_another() -> None:
    """X4: it is stable over steps and processes, and nothing can be read from it."""
    transcript = transcript_of(ToolUse("c1", "look", "{}"))
    first = Transcript([transcript[0]])
    key = body_of(request(first))["prompt_cache_key"]
    assert body_of(request(transcript))["prompt_cache_key"] == key
    others = [
        request(Transcript([Message("user", (Text("Other."),))])),
        request(first, instructions="Help me."),
        request(first, tools=()),
    ]
    assert len({key, *[body_of(each)["prompt_cache_key"] for each in others]}) == 4
    assert not any(word in key for word in ("Go", "Help", "look"))


# --- what is said in it --------------------------------------------------------------------------------


def test_what_a_user_says_goes_out_as_it_is() -> None:
    message = Message("user", (Text("See"), PNG, Media("application/pdf", b"%PDF", "a.pdf")))
    (item,) = body_of(request(Transcript([message])))["input"]
    assert item["content"] == [
        {"type": "input_text", "text": "See"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "auto"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": "data:application/pdf;base64,JVBERg==",
        },
    ]


def test_a_result_is_a_text_where_it_is_one_and_parts_where_it_holds_media() -> None:
    """X3: media go out as media; an error says so once, since the wire has no flag for it."""
    assert output_of(Text("3")) == "3"
    assert output_of(Text("Error: no"), is_error=True) == "Error: no"
    assert output_of(Text("Interrupted."), is_error=True) == "Error: Interrupted."
    assert output_of(PNG, is_error=True)[0] == {"type": "input_text", "text": "Error:"}
    parts = output_of(Text("See"), PNG, Media("audio/x-wav", b"RIFF"))
    assert [part["type"] for part in parts] == ["input_text", "input_image", "input_file"]
    assert parts[2]["filename"] == "file.bin"


@pytest.mark.parametrize(
    "result",
    [
        '{"spec": {"$ref": "#/$defs/K"}, "role": "system", "cache_control": {}}',
        '[{"type": "input_image", "image_url": "https://x"}]',
        '{"type": "input_image", "image_url": "https://x"}',
        '{"type": "remit.part", "result": 0, "part": 0}',
    ],
)
def test_nothing_in_a_result_is_read(result: str) -> None:
    """case 18: it is text, and the model gets it as it was."""
    assert output_of(Text(result)) == result
    assert output_of(Text(result), PNG)[0] == {"type": "input_text", "text": result}


def test_the_order_of_the_server_stays_and_every_call_keeps_what_is_its_own() -> None:
    """T7, case 57, case 76: calls of one reply, text between and behind them, each with its fields."""
    output = [
        reasoning(1),
        call(1, namespace="files", caller={"type": "program", "caller_id": "p1"}),
        text(2, "Between.", phase="commentary"),
        call(3),
        text(4, "Behind."),
    ]
    transcript = Transcript([Message("user", (Text("Go."),))])
    reply = WIRE.decoder().whole(json.dumps(response(*output)).encode())
    transcript.add_reply(reply.message)
    with transcript.answering() as answering:
        for slot in reversed(answering.slots):
            slot.settle((Text(slot.use.id),))
    stored = Transcript.load(transcript.to_json())
    items = body_of(request(stored))["input"]
    for item in output:
        for part in item.get("content", ()):
            del part["logprobs"]
    assert items[1:6] == output
    assert items[6:] == [
        {
            "type": "function_call_output",
            "call_id": "call_x1",
            "output": "call_x1",
            "caller": {"type": "program", "caller_id": "p1"},
        },
        {"type": "function_call_output", "call_id": "call_x3", "output": "call_x3"},
    ]
    assert b'"sealed 1"' in WIRE.encoder("m").encode(request(stored), stream=True).body


def test_a_custom_call_goes_back_as_one_and_so_does_its_output() -> None:
    """T1: the server pairs them by their kind too."""
    item = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "c1",
        "name": "run",
        "input": "ls",
    }
    reply = WIRE.decoder().whole(json.dumps(response(item)).encode())
    assert [each["type"] for each in items_of(*reply.message.content)] == [
        "custom_tool_call",
        "custom_tool_call_output",
    ]
    assert items_of(*reply.message.content)[0] == item


def test_another_issuers_blocks_stay_here() -> None:
    """T7, case 60: they are kept, and not sent."""
    foreign = own(reasoning(1), "azure")
    assert items_of(foreign, "Hm.", own({"type": "remit.beside", "id": "x"}, "azure")) == [
        {"role": "assistant", "content": "Hm."}
    ]
    there = items_of(foreign, "Hm.", codec=ResponsesCodec(issuer="azure"))
    assert [item.get("type") for item in there] == ["reasoning", None]


def test_reasoning_goes_out_only_with_what_followed_it() -> None:
    """T7: the server refuses it alone; where it is left out, no id asks for it."""
    message = text(2, "Hm.")
    kept = (
        WIRE.decoder().whole(json.dumps(response(reasoning(1), message)).encode()).message.content
    )
    assert [item.get("id") for item in items_of(*kept)] == ["rs_1", "msg_2"]
    alone = items_of(*kept, own(reasoning(3)))
    assert [item.get("id") for item in alone] == ["rs_1", "msg_2"]
    behind = WIRE.decoder().whole(json.dumps(response(message, call(4))).encode()).message.content
    refused = own({"type": "computer_call", "call_id": "c"})
    items = items_of(*kept, own(reasoning(3)), refused, *behind[2:])
    assert [item.get("id") for item in items] == ["rs_1", "msg_2", None, None]
    torn = items_of(own(reasoning(1)), own({"type": "computer_call", "call_id": "c"}), "Hm.")
    assert torn == [{"role": "assistant", "content": "Hm."}]


def test_calls_that_nobody_here_can_answer_stay_here_and_answered_ones_go_out() -> None:
    """T1: an open call makes the server refuse everything that comes later."""
    asks = {"type": "tool_search_call", "call_id": "t1", "execution": "client", "arguments": {}}
    answer = {"type": "tool_search_output", "call_id": "t1", "execution": "client", "tools": []}
    hosted = {**asks, "call_id": None, "execution": "server"}
    assert items_of("Hm.", own(asks)) == [{"role": "assistant", "content": "Hm."}]
    assert items_of(own(asks), own(answer)) == [asks, answer]
    assert items_of(own(hosted)) == [hosted]


def test_a_reply_that_said_nothing_goes_back_as_it_was() -> None:
    """T7: reasoning in front of it would be alone without it."""
    output = [reasoning(1), text(2, "")]
    reply = WIRE.decoder().whole(json.dumps(response(*output)).encode())
    assert reply.message.text == ""
    assert items_of(*reply.message.content) == output


def test_a_message_of_several_parts_comes_back_as_one() -> None:
    """T7: its texts are ours, its citations and a part that is not known stay beside them."""
    message = text(1, "One.") | {
        "content": [
            {"type": "output_text", "text": "One.", "annotations": [{"type": "url_citation"}]},
            {"type": "novel", "x": 1},
            {"type": "output_text", "text": "Two.", "annotations": []},
            {"type": "refusal", "refusal": "No."},
        ]
    }
    reply = WIRE.decoder().whole(json.dumps(response(message)).encode())
    assert [b.text for b in reply.message.content if isinstance(b, Text)] == ["One.", "Two.", "No."]
    assert items_of(*reply.message.content) == [message]


@given(
    st.lists(
        st.one_of(
            st.builds(
                Text, st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
            ),
            st.builds(Opaque, st.just("openai"), st.binary(min_size=1, max_size=30)),
            st.builds(
                own,
                st.dictionaries(
                    st.sampled_from(
                        [
                            "type",
                            "remit.of",
                            "remit.content",
                            "id",
                            "call_id",
                            "execution",
                            "content",
                        ]
                    ),
                    st.one_of(
                        st.sampled_from(
                            [
                                "remit.beside",
                                "message",
                                "function_call",
                                "reasoning",
                                "computer_call",
                            ]
                        ),
                        st.none(),
                        st.lists(st.just({"type": "output_text"})),
                    ),
                ),
            ),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["given", "none", "all"]),
)
def test_blocks_that_others_made_never_make_a_body_that_is_none(
    blocks: list[Block], item_ids: Any
) -> None:
    """T7: what is no item does not go out, whoever made it."""
    if all(isinstance(block, Text) and block.text.isspace() for block in blocks):
        return
    items = items_of(*blocks, codec=ResponsesCodec(item_ids=item_ids))
    assert all(isinstance(item, dict) for item in items)


# --- what stays the same -------------------------------------------------------------------------------


def pieces_of(body: bytes) -> bytes:
    """The items as bytes."""
    start = body.index(b'"input":[') + len(b'"input":[')
    return body[start : body.rindex(b"],", 0, body.rindex(b'"max_output_tokens"'))]


_TURNS = st.lists(
    st.lists(st.sampled_from(["reason", "call", "text", "search", "cut"]), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)


@given(_TURNS, st.sampled_from(["given", "none", "all"]))
def test_a_request_begins_with_the_one_before_it_and_is_taken(
    turns: list[list[str]], item_ids: Any
) -> None:
    """X1, J1, case 09: byte for byte, whatever the replies hold; and the provider takes every one."""
    codec = ResponsesCodec(item_ids=item_ids)
    encoder, provider = codec.encoder("m"), judge("openai")
    transcript = Transcript([Message("user", (Text("Go."),))])
    before = b""
    for n, turn in enumerate(turns):
        wired = encoder.encode(request(transcript), stream=True)
        assert pieces_of(wired.body).startswith(before)
        before = pieces_of(wired.body)
        again = codec.encoder("m").encode(
            request(Transcript.load(transcript.to_json())), stream=True
        )
        assert again.body == wired.body
        provider.request(json.loads(wired.body))
        whole = response(*[_item(kind, n * 10 + k) for k, kind in enumerate(turn)], n=n)
        provider.response(whole, json.loads(wired.body))
        transcript.mark_sent()
        reply = wired.decoder.whole(json.dumps(whole).encode())
        transcript.add_reply(reply.message)
        if transcript.owed:
            transcript.answering().close()
        transcript.say(Text("Go on."))
    provider.request(json.loads(encoder.encode(request(transcript), stream=True).body))


def _item(kind: str, n: int) -> Item:
    match kind:
        case "reason":
            return reasoning(n)
        case "call":
            return call(n, call_id=f"call_{n % 3}" if n % 2 else f"call_x{n}")
        case "search":
            return {"type": "web_search_call", "id": f"ws_{n}", "status": "completed"}
        case "cut":
            return text(n, " ")
        case _:
            return text(n, f"Text {n}.")


def test_every_message_is_encoded_once() -> None:
    """J1: by count."""
    encoded: list[int] = []
    encoder: Any = WIRE.encoder("m")
    inner = encoder._pieces._encode
    encoder._pieces._encode = lambda index, message: encoded.append(index) or inner(index, message)
    transcript = Transcript([Message("user", (Text("Go."),))])
    for n in range(20):
        encoder.encode(request(transcript), stream=True)
        transcript.mark_sent()
        transcript.add_reply(Message("assistant", (ToolUse(f"c{n}", "look", "{}"),)))
        transcript.answering().close()
    assert encoded == list(range(39))


def test_an_elided_result_changes_what_comes_after_it_and_nothing_else() -> None:
    """X5: reasoning is not bound to what stands before it, and stays."""
    transcript = Transcript([Message("user", (Text("Go."),))])
    encoder = WIRE.encoder("m")
    for n in (1, 2):
        reply = WIRE.decoder().whole(json.dumps(response(reasoning(n), call(n))).encode())
        transcript.add_reply(reply.message)
        transcript.answering().close()
    before = body_of(request(transcript), encoder)["input"]
    transcript.elide([Stub("call_x1", 0, "(elsewhere)", "h", 9)])
    after = body_of(request(transcript), encoder)["input"]
    changed = [n for n, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert changed == [3]
    assert after[3]["output"] == "Error: (elsewhere)"


_SCRIPT = """
import sys
sys.path[:0] = {path!r}
from responses_rig import *
from remit.messages import *
from remit.models.base import ToolSpec
tools = tuple(ToolSpec(n, n, {{"type": "object", "properties": {{k: {{}} for k in n}}}}) for n in ("größe", "a.b", "xyz"))
t = Transcript([Message("user", (Text("Go."),))])
whole = response(reasoning(1), call(2), text(3, "Hm.", phase="x"))
t.add_reply(WIRE.decoder().whole(json.dumps(whole).encode()).message)
t.answering().close()
sys.stdout.buffer.write(ResponsesCodec(item_ids="all").encoder("m").encode(request(t, tools=tools), stream=True).body)
"""


def test_a_body_is_the_same_whatever_the_hash_seed() -> None:
    """case 53: five processes, one body."""
    script = _SCRIPT.format(path=sys.path)
    bodies = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(5)
    }
    assert len(bodies) == 1


def test_names_that_the_wire_does_not_take_go_out_as_others_and_come_back() -> None:
    """T3: also of a call in the history whose tool is gone."""
    tool = ToolSpec("files/read.all", "Read.", {"type": "object"})
    transcript = transcript_of(ToolUse("c1", "files/read.all", "{}"), ToolUse("c2", "gone/x", "{}"))
    made = request(transcript, tools=(tool,), settings=Settings(tool_choice="files/read.all"))
    wired = WIRE.encoder("m").encode(made, stream=True)
    body = json.loads(wired.body)
    name = body["tools"][0]["name"]
    assert body["tool_choice"]["name"] == body["input"][1]["name"] == name != "files/read.all"
    judge("openai").request(body)
    reply = wired.decoder.whole(json.dumps(response(call(9, name=name))).encode())
    assert reply.message.tool_uses[0].name == "files/read.all"


# --- errors ------------------------------------------------------------------------------------------


def complaint(message: str = "No.", **fields: Any) -> bytes:
    error = {"message": message, "type": None, "code": None, "param": None, **fields}
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind", "repair", "told"),
    [
        (
            401,
            complaint("Incorrect API key provided"),
            ModelRejected,
            None,
            "set MY_KEY or pass api_key=",
        ),
        (403, complaint(), ModelRejected, None, "this region"),
        (404, complaint("", code="model_not_found"), ModelRejected, None, "check its name"),
        (404, b"<html>", ModelRejected, None, "check the base URL"),
        (405, b"", ModelRejected, None, "check the base URL"),
        (402, complaint(), ModelRejected, None, "no retry helps"),
        (429, complaint(code="rate_limit_exceeded"), ModelUnavailable, None, "rate_limit_exceeded"),
        (429, complaint(code="slow_down"), ModelUnavailable, None, "slow_down"),
        (429, complaint(code="credit_balance_exhausted"), ModelRejected, None, "no retry helps"),
        (429, complaint(code="organization_spend_limit_exceeded"), ModelRejected, None, "no retry"),
        (429, complaint(code="project_spend_limit_exceeded"), ModelRejected, None, "no retry"),
        (429, complaint(code="organization_usage_limit_exceeded"), ModelRejected, None, "no retry"),
        (429, complaint(type="insufficient_quota"), ModelRejected, None, "no retry helps"),
        (429, complaint("Request too large for gpt-x"), ContextExceeded, None, "too long"),
        (400, complaint(code="context_length_exceeded"), ContextExceeded, None, "too long"),
        (400, complaint("This model's maximum context length is 9"), ContextExceeded, None, "too"),
        (413, b"", ContextExceeded, None, "too long"),
        (400, complaint(code="invalid_encrypted_content"), ModelRejected, "opaque", "refused"),
        (
            400,
            complaint("was provided without its required following item."),
            ModelRejected,
            "opaque",
            "",
        ),
        (
            400,
            complaint("without its required 'reasoning' item: 'rs_1'"),
            ModelRejected,
            "opaque",
            "",
        ),
        (400, complaint(code="previous_response_not_found"), ModelRejected, "state", ""),
        (404, complaint(param="previous_response_id"), ModelRejected, "state", ""),
        (404, complaint("Item with id 'rs_1' not found."), ModelRejected, "ids", ""),
        (400, complaint("Unknown parameter", param="input[1].id"), ModelRejected, "ids", ""),
        (
            400,
            complaint("Missing required parameter", param="input[1].id"),
            ModelRejected,
            "ids_wanted",
            "",
        ),
        (
            400,
            complaint("No tool output found for tool call call-a."),
            ModelRejected,
            None,
            "call-a",
        ),
        (422, b'{"detail":"no"}', ModelRejected, None, "no"),
        (408, b"", ModelUnavailable, None, "408"),
        (409, b"", ModelUnavailable, None, "409"),
        (425, b"", ModelUnavailable, None, "425"),
        (498, b"", ModelUnavailable, None, "498"),
        (500, b"oops", ModelUnavailable, None, "oops"),
        (503, b"\xff\xfe", ModelUnavailable, None, "503"),
        (529, b'{"error":"overloaded"}', ModelUnavailable, None, "overloaded"),
        (501, b"", ModelRejected, None, "501"),
        (418, b"[1]", ModelRejected, None, "418"),
    ],
)
def test_an_error_says_what_it_means_and_what_to_do(
    status: int, body: bytes, kind: type[ModelError], repair: str | None, told: str
) -> None:
    """E7, case 60: what may pass is tried again; money and refusals are not; what can be left out is said."""
    fault = ResponsesCodec(key_variable="MY_KEY").fault(status, {}, body)
    assert (type(fault.error), fault.repair) == (kind, repair)
    assert told in str(fault.error)
    may_be_billed = status >= 500 and kind is ModelUnavailable and status not in BUSY
    assert fault.error.usage == (None if may_be_billed else Usage())


def test_a_provider_that_says_whether_to_try_again_is_heard() -> None:
    """E7: but not against a limit of money."""
    never, always = {"x-should-retry": "false"}, {"x-should-retry": "true"}
    assert isinstance(WIRE.fault(503, never, b"").error, ModelRejected)
    assert isinstance(WIRE.fault(400, always, b"").error, ModelUnavailable)
    spent = WIRE.fault(429, always, complaint(code="insufficient_quota"))
    assert isinstance(spent.error, ModelRejected)


def test_when_to_come_back_is_read_from_headers_and_words() -> None:
    """E7: `waiting.py` reads every form; a limit of rate brings it along."""
    slow = complaint("Rate limit reached. Please try again in 1m2s.", code="rate_limit_exceeded")
    for headers, body, seconds in (
        ({"retry-after-ms": "1500"}, b"", 1.5),
        ({}, slow, 62.0),
        ({}, b"", None),
    ):
        error = WIRE.fault(429, headers, body).error
        assert isinstance(error, ModelUnavailable)
        assert error.retry_after == seconds


@given(
    st.integers(100, 599), st.dictionaries(st.text(max_size=9), st.text(max_size=9)), st.binary()
)
def test_whatever_an_endpoint_answers_is_a_fault(
    status: int, headers: dict[str, str], body: bytes
) -> None:
    """C1: errors of errors are none."""
    assert isinstance(WIRE.fault(status, headers, body).error, ModelError)
    long = WIRE.fault(status, headers, b'{"error":{"message":"' + b"x" * 9_000 + b'"}}')
    assert len(str(long.error)) < 1_000


# --- bodies read back --------------------------------------------------------------------------------


def test_a_string_is_what_a_user_says() -> None:
    read = WIRE.parse({"model": "m", "input": "Hi", "instructions": "Be.", "stream": True})
    assert list(read.transcript) == [Message("user", (Text("Hi"),))]
    assert (read.model, read.instructions, read.stream) == ("m", "Be.", True)


def test_media_that_stand_in_a_body_are_media_again() -> None:
    """X3: what travels as a URL that holds it."""
    message = Message("user", (Text("See"), PNG, Media("application/pdf", b"%PDF", "a.pdf")))
    body = body_of(request(Transcript([message])))
    assert list(WIRE.parse(body).transcript) == [message]


def test_what_a_request_said_is_read_back_as_it_was_asked() -> None:
    settings = Settings(max_output=77, tool_choice="look", extra={"service_tier": "flex"})
    made = request(Transcript([Message("user", (Text("Hi"),))]), settings=settings, max_output=77)
    read = WIRE.parse(body_of(made))
    assert read.tools == (LOOK,)
    assert (read.settings.max_output, read.settings.tool_choice) == (77, "look")
    assert read.settings.extra["service_tier"] == "flex"


def test_a_body_that_goes_on_from_a_response_is_read_without_what_the_server_has() -> None:
    """case 61: its outputs answer calls that are known by their ids alone, and nothing else goes out."""
    body = {
        "previous_response_id": "resp_1",
        "input": [
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call_output", "call_id": "b", "output": "2"},
            {"role": "user", "content": "And?"},
        ],
    }
    read = WIRE.parse(body)
    assert [r.text for m in read.transcript for r in m.tool_results] == ["1", "2"]
    again = body_of(request(read.transcript, settings=read.settings))
    assert again["input"] == body["input"]
    assert again["previous_response_id"] == "resp_1"


@pytest.mark.parametrize(
    "items",
    [
        [{"role": "user", "content": "Hi", "id": "msg_1", "status": "completed"}],
        [{"role": "developer", "content": "Be."}, {"role": "user", "content": "Hi"}],
        [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}],
        [{"role": "assistant", "content": "I began."}, {"role": "user", "content": "Hi"}],
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo", "phase": "x"}],
        [{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": "msg_1"}],
        [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "look", "arguments": ""},
            {"type": "function_call_output", "call_id": "a", "output": "", "status": "completed"},
            {
                "type": "function_call_output",
                "call_id": "b",
                "output": [
                    {"type": "input_file", "file_id": "file_1"},
                    {"type": "input_text", "text": "x"},
                ],
            },
            {"role": "system", "content": "Now."},
            {"role": "user", "content": "And?"},
        ],
        [
            {"role": "user", "content": "Hi"},
            {"type": "custom_tool_call", "call_id": "a", "name": "run", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "x"},
        ],
    ],
)
def test_what_has_no_neutral_form_goes_out_as_it_came(items: list[Item]) -> None:
    """T7: spelled the same, each in its place."""
    assert body_of(request(WIRE.parse({"input": items}).transcript))["input"] == items


def test_outputs_in_another_order_are_put_to_their_calls() -> None:
    """T1: the wire leaves it free, the history does not; what stands beside a result stays with it."""
    calls = [
        {"type": "function_call", "call_id": n, "name": "look", "arguments": "{}"} for n in "ab"
    ]
    part = {"type": "input_file", "file_id": "file_1"}
    outputs = [
        {"type": "function_call_output", "call_id": "b", "output": [part]},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
    ]
    read = WIRE.parse({"input": [{"role": "user", "content": "Hi"}, *calls, *outputs]})
    assert read.transcript.report == ()
    items = body_of(request(read.transcript))["input"]
    assert items[3:] == outputs[::-1]


@pytest.mark.parametrize(
    "body",
    [
        {"input": [{"type": "function_call", "call_id": "a"}]},
        {},
        {"input": 7},
        {"input": ["x"]},
        {"input": [{}]},
        {"input": [{"role": "pope"}]},
    ],
)
def test_what_is_no_request_of_this_wire_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(TranscriptError):
        WIRE.parse(body)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "content", "text", "call_id", "output", "name", "image_url"]
            ),
            inner
            | st.sampled_from(["message", "user", "assistant", "function_call", "input_text"]),
            max_size=5,
        )
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(
        st.sampled_from(["model", "tools", "tool_choice", "stream", "instructions", "text"]),
        _VALUES,
    ),
    _VALUES | st.lists(_VALUES),
)
def test_any_body_is_read_or_refused(rest: dict[str, Any], items: Any) -> None:
    """T6: whatever stands in it."""
    with contextlib.suppress(TranscriptError):
        WIRE.parse({**rest, "input": items})


def test_a_result_that_comes_late_is_put_to_its_call() -> None:
    """T6: as any history from outside."""
    body = {
        "input": [
            {"role": "user", "content": "Go."},
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {"role": "user", "content": "Well?"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
        ]
    }
    read = WIRE.parse(body)
    (result,) = [r for m in read.transcript for r in m.tool_results]
    assert result == ToolResult("a", (Text("1"),))
    assert read.transcript[2].text == "Well?"
