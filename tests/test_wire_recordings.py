"""Recorded exchanges through the codecs: what came in is read right, what went out comes out again.

`make test-wire` runs this file on any folder of recordings (`REMIT_WIRE_DIR`, else `../shared/wire`). What a file
is about is told by what stands in it. Differences that are only spelling are listed in `wire_spelling.py`;
everything else must be equal.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from protocol_rig import ANTHROPIC, CHAT, DEEPSEEK, MISTRAL, RESPONSES, STORED, Talk
from recordings_rig import FOLDER, NOT_BUILT, Exchange, faults_of, files, judged, read
from remit import (
    ConfigurationError,
    Message,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    Opaque,
    Reply,
    StopReason,
    ToolResult,
    Transcript,
    TranscriptError,
)
from remit.models.base import ModelRequest
from remit.models.wires import codec as codec_of
from remit.models.wires.chat import ChatCodec
from remit.models.wires.codec import Codec, Decoder, Encoder, Parsed
from remit.models.wires.dialects import COMPATIBLE, DIALECTS
from remit.models.wires.responses import ResponsesCodec
from remit.models.wires.sse import EventReader
from remit.testing.protocol import Refused, judge
from remit.testing.protocol.reading import events_of, mapping, mappings, walk
from wire_spelling import plain, typed

FILES = files() if FOLDER.is_dir() else []
GIVEN = "REMIT_WIRE_DIR" in os.environ
ROOT = Path(__file__).parents[1]

recorded = pytest.mark.skipif(
    not FOLDER.is_dir() and not GIVEN, reason="there are no recorded exchanges at ../shared/wire"
)


def unbuilt(path: Path) -> str:
    """The wires of a file, if none of them is built; told by its exchanges, not by its folder."""
    try:
        wires = {exchange.wire for exchange in read(path)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""  # what cannot be read is told by the test of the folder
    return " and ".join(sorted(wires)) if wires <= NOT_BUILT else ""


def each_file(paths: Sequence[Path] = FILES) -> Any:
    """A test for each file; those of wires that are not built are skipped by name."""
    return pytest.mark.parametrize(
        "path",
        [
            pytest.param(
                path,
                id=f"{path.parent.name}/{path.stem}",
                marks=[pytest.mark.skip(reason=f"the wire {wire} is not built yet")]
                if wire
                else [],
            )
            for path, wire in [(path, unbuilt(path)) for path in paths]
        ],
    )


def exchanges(path: Path) -> list[Exchange]:
    return [exchange for exchange in read(path) if exchange.wire not in NOT_BUILT]


def codec_for(exchange: Exchange) -> Codec:
    """The codec of the server that was talked to."""
    if exchange.wire != "openai-chat":
        return codec_of(exchange.wire)
    host = exchange.request["host"]
    named = (each for name, each in DIALECTS.items() if name in host)
    there = (each for each in DIALECTS.values() if f"//{host}/" in f"{each.base_url}/")
    return ChatCodec(next(there, None) or next(named, DIALECTS[COMPATIBLE]))


# --- the folder ----------------------------------------------------------------------------------


@recorded
def test_the_folder_holds_recordings_of_known_wires_and_nothing_is_passed_over() -> None:
    """P2: a folder that is empty, a file that cannot be read and a wire that nobody knows are told."""
    assert faults_of(FOLDER) == []


def test_a_folder_that_would_pass_in_silence_is_told(tmp_path: Path) -> None:
    """P2: no folder, an empty one, one without recordings, a recording without exchanges, an unknown wire."""

    def faults(**recordings: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, text in recordings.items():
            (folder / name).mkdir()
            if text:
                (folder / name / "one.json").write_text(text)
        return "; ".join(faults_of(folder))

    def exchange(path: str) -> str:
        request = {"method": "POST", "host": "x", "path": path, "body": {}}
        return json.dumps({"exchanges": [{"request": request, "response": {"status": 200}}]})

    assert "is no folder" in faults_of(tmp_path / "nowhere")[0]
    assert "no folder of recordings" in faults()
    assert faults(anthropic="") == "anthropic holds no recordings"
    assert "no exchanges" in faults(anthropic='{"exchanges": []}')
    assert "cannot be read" in faults(anthropic="<html>")
    assert "no known wire" in faults(telepathy=exchange("/v1/telepathy"))
    for path in (
        "/v1/messages",
        "/v1/responses",
        "/chat/completions",
        "/m:generateContent",
        "/converse",
    ):
        assert faults(any=exchange(path)) == ""


# --- responses -----------------------------------------------------------------------------------


def decoded(decoder: Decoder, exchange: Exchange) -> Reply:
    """A recorded response, read as the endpoint reads it."""
    if not exchange.streamed:
        return decoder.whole(exchange.raw)
    replies: list[Reply] = []
    reader = EventReader()
    for event in reader.feed(exchange.raw):
        replies += [chunk for chunk in decoder.feed(event) if isinstance(chunk, Reply)]
        if replies:
            break
    if not replies:
        replies += [chunk for chunk in decoder.end() if isinstance(chunk, Reply)]
    assert len(replies) == 1
    return replies[0]


def in_order(text: str) -> str:
    """A text without what may stand between its parts."""
    return "".join(text.split())


def is_reply(exchange: Exchange) -> bool:
    """A response that is one: not the state of something that is still being done, and no error inside."""
    if not exchange.accepted or not (exchange.asks or exchange.looks):
        return False
    if exchange.streamed and any(
        event.get("error") for event in events_of(exchange.response["sse"])
    ):
        return False
    reply = exchange.reply
    if exchange.wire == "openai-chat":
        choices = mappings(reply.get("choices"))
        # A stream that never says why it ended is cut, whatever came before; whole, some servers leave it empty.
        return bool(choices) and not (exchange.streamed and choices[0]["finish_reason"] is None)
    if exchange.wire == "openai":
        return not reply.get("error") and reply.get("status") in {"completed", "incomplete"}
    return "content" in reply


def arguments(given: Any) -> Any:
    """Arguments, read; those that were cut off as they stand."""
    if not isinstance(given, str):
        return given
    if not given:
        return {}
    try:
        return json.loads(given)
    except ValueError:
        return given


def naive_calls(exchange: Exchange) -> list[tuple[str, str, Any]]:
    """The calls for the client: id, name and arguments."""
    reply = exchange.reply
    match exchange.wire:
        case "anthropic":
            return [
                (block["id"], block["name"], block["input"])
                for block in mappings(reply["content"])
                if block["type"] == "tool_use"
            ]
        case "openai":
            return [
                (item["call_id"], item["name"], arguments(item["arguments"]))
                if item["type"] == "function_call"
                else (item["call_id"], item["name"], {"input": item["input"]})
                for item in mappings(reply["output"])
                if item["type"] in {"function_call", "custom_tool_call"}
            ]
        case _:
            message = mapping(reply["choices"][0].get("message"))
            old = mapping(message.get("function_call"))  # the wire as it was before there were ids
            if old.get("name"):
                return [("", old["name"], arguments(old["arguments"]))]
            calls = mappings(message.get("tool_calls"))
            return [
                (
                    call["id"],
                    call["function"]["name"],
                    arguments(call["function"].get("arguments") or "{}"),
                )
                for call in calls
                if "function" in call
            ]


def naive_text(exchange: Exchange) -> str:
    """What it says to the user, a refusal included."""
    reply = exchange.reply
    match exchange.wire:
        case "anthropic":
            return "".join(
                block["text"] for block in mappings(reply["content"]) if block["type"] == "text"
            )
        case "openai":
            return "".join(
                part.get("text") or part.get("refusal") or ""
                for item in mappings(reply["output"])
                if item["type"] == "message"
                for part in mappings(item["content"])
            )
        case _:
            message = mapping(reply["choices"][0].get("message"))
            content = message.get("content") or message.get("refusal") or ""
            if isinstance(content, str):
                return content
            return "".join(part.get("text", "") for part in mappings(content))


def naive_usage(exchange: Exchange) -> dict[str, int] | None:
    """Tokens in disjoint parts, as the vendor counts them (case 95); None where nothing was counted."""
    reply = exchange.reply
    used = mapping(reply.get("usage") or mapping(reply.get("x_groq")).get("usage"))
    if not used:
        return None
    match exchange.wire:
        case "anthropic":
            others = [
                each for each in mappings(used.get("iterations")) if each["type"] != "message"
            ]
            counted = [used, *others]
            return {
                "input": sum(each["input_tokens"] for each in counted),
                "cache_read": sum(each.get("cache_read_input_tokens") or 0 for each in counted),
                "cache_write": sum(
                    each.get("cache_creation_input_tokens") or 0 for each in counted
                ),
                "output": sum(each["output_tokens"] for each in counted),
            }
        case "openai":
            total, details = used["input_tokens"], mapping(used.get("input_tokens_details"))
            read, written = (
                details.get("cached_tokens") or 0,
                details.get("cache_write_tokens") or 0,
            )
            output = used["output_tokens"]
        case _:
            total, details = used["prompt_tokens"], mapping(used.get("prompt_tokens_details"))
            read = details.get("cached_tokens") or used.get("num_cached_tokens") or 0
            written = details.get("cache_write_tokens") or 0
            output = used["completion_tokens"]
            if "total_tokens" in used:  # some count thoughts in the total alone
                output = max(output, used["total_tokens"] - total)
    written = min(written, total - read)  # one server counts what it wrote as read as well
    return {
        "input": total - read - written,
        "cache_read": read,
        "cache_write": written,
        "output": output,
    }


STOPS: Mapping[str, set[StopReason]] = {
    "end_turn": {StopReason.END_TURN},
    "tool_use": {StopReason.TOOL_USE},
    "tool_calls": {StopReason.TOOL_USE},
    "pause_turn": {StopReason.PAUSE},
    "compaction": {StopReason.PAUSE},
    "max_tokens": {StopReason.LENGTH},
    "length": {StopReason.LENGTH},
    "model_length": {StopReason.LENGTH, StopReason.CONTEXT},
    "content_filter": {StopReason.FILTER},
    "stop_sequence": {StopReason.STOP_SEQUENCE},
    "refusal": {StopReason.REFUSAL},
    "model_context_window_exceeded": {StopReason.CONTEXT},
    "max_output_tokens": {StopReason.LENGTH},
    "completed": {StopReason.END_TURN, StopReason.TOOL_USE, StopReason.REFUSAL, StopReason.PAUSE},
    "function_call": {StopReason.TOOL_USE},
    "": {StopReason.END_TURN, StopReason.TOOL_USE},
    "eos": {StopReason.END_TURN, StopReason.UNKNOWN},
    "stop": {StopReason.END_TURN, StopReason.TOOL_USE, StopReason.REFUSAL},
}


def naive_stop(exchange: Exchange) -> str:
    reply = exchange.reply
    match exchange.wire:
        case "anthropic":
            return reply["stop_reason"]
        case "openai":
            return mapping(reply.get("incomplete_details")).get("reason") or reply["status"]
        case _:
            return reply["choices"][0]["finish_reason"]


def wants_another_client(exchange: Exchange) -> bool:
    """A call for the client of a kind that remit does not run: nothing goes on from it by itself."""
    return exchange.wire == "openai" and any(
        item.get("call_id")
        and item["type"].endswith("_call")
        and item["type"] not in {"function_call", "custom_tool_call"}
        and item.get("execution") != "server"
        for item in mappings(exchange.reply["output"])
    )


@recorded
@each_file()
def test_every_response_is_read_as_a_plain_reading_of_it_says(path: Path) -> None:
    """P2, case 95: calls in order with their ids and arguments, text, usage in disjoint parts, why it ended."""
    for exchange in exchanges(path):
        if not is_reply(exchange):
            continue
        reply = decoded(codec_for(exchange).decoder(), exchange)
        calls = [(use.id, use.name, arguments(use.arguments)) for use in reply.message.tool_uses]
        assert calls == naive_calls(exchange), exchange
        assert in_order(reply.message.text) == in_order(naive_text(exchange)), exchange
        counted = naive_usage(exchange)
        if counted is None:
            assert reply.usage is None, exchange
        else:
            assert reply.usage is not None, exchange
            billed = reply.usage + reply.beside
            assert {name: getattr(billed, name) for name in counted} == counted, exchange
        stops = STOPS.get(naive_stop(exchange), {StopReason.UNKNOWN})
        if wants_another_client(exchange):
            stops = {StopReason.UNKNOWN}
        assert reply.stop_reason in stops, exchange
        if calls and reply.stop_reason is not StopReason.LENGTH:
            assert reply.stop_reason is StopReason.TOOL_USE, exchange


@recorded
@each_file()
def test_a_response_that_is_no_reply_is_never_taken_for_one(path: Path) -> None:
    """P2: an error inside a stream, or work that goes on elsewhere, ends as an error or for a reason of its own."""
    for exchange in exchanges(path):
        if not exchange.accepted or is_reply(exchange) or not (exchange.asks or exchange.looks):
            continue
        if b"failed_generation" in exchange.raw:
            continue  # what the model wrote is told exactly, and may be taken for the reply that it is
        with suppress(ModelError):
            reply = decoded(codec_for(exchange).decoder(), exchange)
            assert reply.stop_reason not in {StopReason.END_TURN, StopReason.TOOL_USE}, exchange


@recorded
@each_file()
def test_a_response_that_was_refused_is_its_typed_error(path: Path) -> None:
    """P2: what another try may help is told from what it will not; the provider's words are kept."""
    for exchange in exchanges(path):
        status = exchange.response["status"]
        if exchange.accepted:
            continue
        headers = {key.lower(): value for key, value in exchange.response["headers"].items()}
        fault = codec_for(exchange).fault(status, headers, exchange.raw)
        transient = status in {408, 409, 425, 429, 498} or status >= 500
        # What the model wrote and the server refused itself is the model's fault, and no refused request.
        of_the_model = any(
            "failed_generation" in each for each in walk(exchange.response.get("body"))
        )
        wrong = ModelProtocolError if of_the_model else ModelRejected
        assert isinstance(fault.error, ModelUnavailable if transient else wrong), exchange
        said = mapping(mapping(exchange.response.get("body")).get("error")).get("message")
        if isinstance(said, str):
            assert said[:60] in str(fault.error), exchange


# --- requests ------------------------------------------------------------------------------------


def is_remits(exchange: Exchange) -> bool:
    """A request of a kind that remit makes: accepted, with a history, and that held here, not by the server."""
    if not exchange.asks or not exchange.accepted or exchange.body.get("conversation"):
        return False
    said = history(exchange.body)
    return isinstance(said, str) or any(
        each.get("content") or "type" in each
        for each in mappings(said)
        if each.get("role") != "system"
    )


def request_of(parsed: Parsed, transcript: Transcript | None = None) -> ModelRequest:
    return ModelRequest(
        parsed.instructions,
        parsed.transcript if transcript is None else transcript,
        parsed.tools,
        parsed.settings,
        parsed.settings.max_output or 8_192,
        0.0,
    )


def written(encoder: Encoder, parsed: Parsed, transcript: Transcript | None = None) -> bytes:
    wired = encoder.encode(request_of(parsed, transcript), stream=parsed.stream)
    assert wired.set_aside == {}
    return wired.body


_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_sound(parsed: Parsed) -> bool:
    """Whether nothing had to be mended but ids that no transcript holds: they are given others (T3)."""
    return all(mended.what.startswith("id ") for mended in parsed.transcript.report)


def with_our_ids(ours: Any, theirs: Any) -> Any:
    """Their body, with our ids for calls whose own no transcript holds: illegal ones, and those used again."""
    ids = iter(call_ids(ours))
    seen: set[str] = set()
    now: dict[str, str] = {}

    def renew(value: Any) -> Any:
        if isinstance(value, list):
            return [renew(each) for each in value]
        if not isinstance(value, dict):
            return value
        if is_call(value):
            key = "call_id" if "call_id" in value else "id"
            own, name = next(ids, ""), value[key]
            held = _LEGAL_ID.fullmatch(name) and name not in seen
            # Longer than forty characters they are not taken everywhere, and get another form (T3).
            now[name] = name if held and (len(name) <= 40 or name == own) else own
            seen.add(name)
            return {**value, key: now[name]}
        for key in ("call_id", "tool_use_id", "tool_call_id"):
            if value.get(key) in now:
                return {**value, key: now[value[key]]}
        return {key: renew(each) for key, each in value.items()}

    key = "messages" if "messages" in theirs else "input"
    return {**theirs, key: renew(theirs[key])}


def is_call(value: Mapping[str, Any]) -> bool:
    kinds = {"tool_use", "function_call", "custom_tool_call"}
    return value.get("type") in kinds or ("function" in value and "id" in value)


def call_ids(body: Any) -> list[str]:
    """The ids of the calls in a body, in order."""
    return [
        str(each.get("call_id") or each.get("id")) for each in walk(history(body)) if is_call(each)
    ]


def history(body: Mapping[str, Any]) -> Any:
    """Where the messages of a body stand."""
    return body["messages"] if "messages" in body else body.get("input", [])


@recorded
@each_file()
def test_every_request_is_read_back_and_comes_out_the_same(path: Path) -> None:
    """P2, T6, T7: as the provider accepted it; where a transcript holds it otherwise, as it is reported."""
    for exchange in exchanges(path):
        if not is_remits(exchange):
            continue
        codec = codec_for(exchange)
        parsed = codec.parse(exchange.body)
        assert parsed.model == exchange.body["model"]
        again = json.loads(written(codec.encoder(parsed.model), parsed))
        if not is_sound(
            parsed
        ):  # what no transcript holds (T6) comes out as the provider takes it as well
            reader = judge(exchange.wire, dialect=exchange.dialect)
            reader.trust(again)
            reader.request(again)
            continue
        wire, theirs = exchange.wire, with_our_ids(again, exchange.body)
        assert plain(wire, again, beside=theirs) == plain(wire, theirs), exchange


@recorded
@each_file()
def test_the_transcript_of_a_request_is_found_by_the_name_of_its_wire(path: Path) -> None:
    """P2: from a whole body, and from its messages alone."""
    for exchange in exchanges(path):
        if not is_remits(exchange):
            continue
        whole = Transcript.parse(exchange.body, wire=exchange.wire)
        assert len(whole) > 0, exchange
        if not exchange.body.get("previous_response_id") and isinstance(
            history(exchange.body), list
        ):
            assert Transcript.parse(history(exchange.body), wire=exchange.wire) == whole, exchange


@recorded
@each_file()
def test_the_judge_accepts_what_was_accepted_and_refuses_what_was_refused_for_its_form(
    path: Path,
) -> None:
    """P1, P2: a refusal that names a rule of conversations is given by the judge too, word for word."""
    for exchange, reader in judged(exchanges(path)):
        if not exchange.asks:
            continue
        if exchange.accepted:
            reader.request(exchange.body)
            continue
        error = mapping(mapping(exchange.response.get("body")).get("error"))
        rule = reader.wordings.rule_of(str(error.get("message")))
        if rule is None or rule in reader.wordings.of_fields:
            continue  # about the model, the server, or a field that the judge may not look at
        with pytest.raises(Refused) as refused:
            reader.request(exchange.body)
        assert refused.value.text == error["message"]
        assert refused.value.status == exchange.response["status"]
        assert refused.value.body["error"] == error


# --- conversations -------------------------------------------------------------------------------


def continuations(path: Path) -> Iterator[tuple[Exchange, Exchange]]:
    """Two exchanges of which the second goes on where the first ended."""
    replies: list[tuple[Exchange, Exchange]] = []
    asked: list[Exchange] = []
    for exchange in exchanges(path):
        if is_remits(exchange):
            asked.append(exchange)
        if asked and is_reply(exchange):
            replies.append((asked[-1], exchange))
    for (before, reply), (after, _) in pairwise(replies):
        if (before.wire, before.request["host"]) != (after.wire, after.request["host"]):
            continue
        yield Exchange(before.file, before.index, before.request, reply.response), after


def goes_on(before: Parsed, reply: Reply, after: Parsed) -> tuple[Message, list[Message]] | None:
    """A reply as the next request holds it, and what that adds behind it.

    None where the recorded client went on from something else: another conversation, or a reply that it wrote
    anew in its own words.
    """
    earlier, later = tuple(before.transcript), tuple(after.transcript)
    known = len(earlier)
    if later[:known] == earlier and len(later) > known:
        echo, added = later[known], later[known + 1 :]
    elif earlier[-1].role == "assistant" and later[: known - 1] == earlier[:-1]:
        # Items of one side are one message when they are read back: the reply stands behind what was there.
        size = len(earlier[-1].content)
        whole, added = later[known - 1], later[known:]
        if whole.content[:size] != earlier[-1].content or len(whole.content) == size:
            return None
        echo = Message("assistant", whole.content[size:])
    else:
        return None
    calls = [(use.name, arguments(use.arguments)) for use in echo.tool_uses]
    given = [(use.name, arguments(use.arguments)) for use in reply.message.tool_uses]
    if echo.role != "assistant" or calls != given:
        return None
    if typed(echo.text).strip() != typed(reply.message.text).strip():
        return None
    return echo, list(added)


def adapted(message: Message, names: Mapping[str, str]) -> Message:
    """A message that was added, with the ids that the calls have here."""
    content = tuple(
        ToolResult(
            names.get(block.tool_use_id, block.tool_use_id),
            block.content,
            block.is_error,
            block.status,
        )
        if isinstance(block, ToolResult)
        else block
        for block in message.content
    )
    return Message(message.role, content)


def continued(codec: Codec, before: Exchange, after: Exchange) -> tuple[Any, Any, Reply] | None:
    """What is sent after a reply, and what was sent then: bodies, plain."""
    first, second = codec.parse(before.body), codec.parse(after.body)
    reply = decoded(codec.decoder(), before)
    found = goes_on(first, reply, second)
    if found is None:
        return None
    echo, added = found
    encoder = codec.encoder(second.model)
    start = written(encoder, first)
    transcript = Transcript(first.transcript)
    more = answers_of_another_client(before, echo)
    said = Message("assistant", (*reply.message.content, *more))
    stored = transcript.add_reply(said)
    theirs = [use.id for use in echo.tool_uses]
    names = dict(zip(theirs, [use.id for use in stored.tool_uses], strict=True))
    whole = Transcript((*transcript, *[adapted(message, names) for message in added]))
    body = written(encoder, second, whole)
    if (first.tools, first.instructions, first.settings) == (
        second.tools,
        second.instructions,
        second.settings,
    ):
        begins(start, body)
    for block in stored.content:  # opaque parts go back byte for byte
        if isinstance(block, Opaque) and b"remit." not in block.data:
            assert block.data.rstrip()[:-1] in body, before  # a cache marker may stand at its end
    seen_by_its_judge(before, json.loads(body))
    ours = renamed(json.loads(body), {own: other for other, own in names.items()})
    sent = with_our_ids(ours, after.body)
    return typed(plain(after.wire, ours, beside=sent)), typed(plain(after.wire, sent)), reply


def seen_by_its_judge(before: Exchange, body: dict[str, Any]) -> None:
    """What goes on from an exchange is accepted by the judge that has seen it. Errors: `Refused`."""
    reader = judge(before.wire, dialect=before.dialect)
    reader.trust(before.body)
    reader.response(before.reply, before.body)
    reader.request(body)


def answers_of_another_client(before: Exchange, echo: Message) -> list[Opaque]:
    """What stands behind a reply and is of neither side: outputs of calls that remit does not run, new tools."""
    if before.wire != "openai":
        return []
    given = {(item["type"], item.get("call_id")) for item in mappings(before.reply["output"])}
    found: list[Opaque] = []
    for block in echo.content:
        item = mapping(json.loads(block.data)) if isinstance(block, Opaque) else {}
        known = (item.get("type"), item.get("call_id")) in given
        kind = str(item.get("type"))
        of_client = kind.endswith("_output") or kind == "additional_tools"
        if isinstance(block, Opaque) and of_client and not known:
            found.append(block)
    return found


def begins(start: bytes, body: bytes) -> None:
    """The messages of one body are a byte prefix of those of the next, cache markers aside (X1)."""

    def unmarked(item: dict[str, Any]) -> dict[str, Any]:
        return {key: each for key, each in item.items() if key != "cache_control"}

    def messages(of: bytes) -> list[str]:
        return [json.dumps(each) for each in history(json.loads(of, object_hook=unmarked))]

    earlier, later = messages(start), messages(body)
    assert later[: len(earlier)] == earlier


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The same with other ids, where a recorded client had given its own."""
    if isinstance(value, dict):
        return {
            key: names.get(each, each)
            if key in {"id", "call_id", "tool_use_id", "tool_call_id"} and isinstance(each, str)
            else renamed(each, names)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    return value


def unlike(ours: Any, theirs: Any, issued: Sequence[Any], way: str = "") -> str | None:
    """The first difference that matters.

    What the recorded client left out of the provider's own reply is none, as long as ours has it exactly as the
    provider gave it (`issued`: every value in the response); nor is what it made of an item of the provider's own,
    or of one that it sent back under its id, if ours is the provider's.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        own = {"message", "function_call", "custom_tool_call", "text", "tool_use"}
        same_item = ours.get("type", 0) == theirs.get("type") and ours.get("type") not in own
        if ours in issued and (same_item or ours.get("id", 0) == theirs.get("id")):
            return None
        for key in sorted({*ours, *theirs}):
            if key not in ours:
                if key == "reasoning" and theirs.get("role") == "assistant":
                    continue
                return f"{way}.{key}: missing, {theirs[key]!r}"
            if key not in theirs:
                if any(isinstance(each, dict) and each.get(key) == ours[key] for each in issued):
                    continue
                return f"{way}.{key}: too much, {ours[key]!r}"
            found = unlike(ours[key], theirs[key], issued, f"{way}.{key}")
            if found:
                return found
        return None
    if isinstance(ours, list) and isinstance(theirs, list):
        left = list(theirs)
        for at, each in enumerate(ours):
            found = unlike(each, left[0], issued, f"{way}[{at}]") if left else f"{way}: too much"
            if found is None:
                left.pop(0)
            elif each not in issued:
                return found
        return f"{way}: missing, {left[0]!r}" if left else None
    if way.endswith(".arguments") and arguments(ours) == arguments(theirs):
        return None
    return None if ours == theirs else f"{way}: {ours!r} instead of {theirs!r}"


def issued_by(exchange: Exchange) -> list[Any]:
    """Every value of a response, as it stands there and as it is spelled when it is sent back."""
    reply = exchange.reply
    found: list[Any] = []
    for each in walk(reply):
        found += [each, *typed([*each.values()])]
        found.append(typed(plain(exchange.wire, {"it": each}).get("it")))
    return found


@recorded
@each_file()
def test_a_conversation_goes_on_as_the_provider_accepted_it(path: Path) -> None:
    """P2, T7, X1: a reply as it was read, and what the next request adds, make that next request."""
    for before, after in continuations(path):
        made = continued(codec_for(after), before, after)
        if made is not None:
            ours, theirs, _ = made
            assert unlike(ours, theirs, issued_by(before)) is None, after


@recorded
@pytest.mark.skipif(GIVEN, reason="how many there are is known of the folder beside this one")
def test_most_recorded_conversations_are_gone_on_with() -> None:
    """P2: those that are not were written anew by the client that was recorded."""
    tried, done = 0, 0
    for path in FILES:
        if not unbuilt(path):
            for before, after in continuations(path):
                tried += 1
                done += continued(codec_for(after), before, after) is not None
    assert done >= 30
    assert tried - done <= 20


@recorded
@each_file()
def test_where_the_server_keeps_the_conversation_only_what_is_new_is_sent(path: Path) -> None:
    """P2, case 61: a chain of responses, each request naming the one before."""
    codec = ResponsesCodec(state="server")
    encoder, transcript, newest = codec.encoder(""), Transcript(), None
    for exchange in exchanges(path):
        if exchange.wire != "openai" or not is_remits(exchange) or not is_reply(exchange):
            continue
        if exchange.body.get("store") is False:
            continue
        parsed = codec.parse(exchange.body)
        previous = exchange.body.get("previous_response_id")
        goes_on = previous is not None and previous == newest
        if goes_on:
            transcript = Transcript((*transcript, new_of(parsed)))
        else:
            encoder, transcript = codec.encoder(parsed.model), parsed.transcript
        extra = dict(parsed.settings.extra)
        extra.pop("previous_response_id", None)
        asked = replace(parsed, settings=replace(parsed.settings, extra=extra))
        wired = encoder.encode(request_of(asked, transcript), stream=parsed.stream)
        if goes_on:
            ours = plain("openai", json.loads(wired.body), beside=exchange.body)
            assert ours == plain("openai", exchange.body), exchange
        reply = decoded(wired.decoder, exchange)
        transcript = Transcript(transcript)
        transcript.add_reply(reply.message)
        newest = exchange.reply["id"]


def new_of(parsed: Parsed) -> Message:
    """What a request adds to what the server has: results, and what the user says."""
    return Message(
        "user",
        tuple(
            block
            for message in parsed.transcript
            if message.role == "user"
            for block in message.content
            if not isinstance(block, Opaque)
        ),
    )


# --- without recordings --------------------------------------------------------------------------

_ENDS: Mapping[str, Any] = {
    "anthropic": {
        "content": [{"type": "text", "text": "Six."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 5},
    },
    "openai": {
        "id": "resp_2",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg_2",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Six.", "annotations": []}],
            }
        ],
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 5},
            "output_tokens": 2,
            "total_tokens": 11,
        },
    },
    "openai-chat": {
        "id": "chatcmpl_2",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Six."},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens": 2,
            "total_tokens": 11,
        },
    },
}
_PLACES = {
    "anthropic": ("api.anthropic.com", "/v1/messages"),
    "openai": ("api.openai.com", "/v1/responses"),
    "openai-chat": ("api.openai.com", "/v1/chat/completions"),
}
_TALKS = [ANTHROPIC, RESPONSES, STORED, CHAT, MISTRAL, DEEPSEEK]


@pytest.mark.parametrize("talk", _TALKS, ids=[f"{each.wire}-{n}" for n, each in enumerate(_TALKS)])
def test_a_small_conversation_passes_all_of_this(talk: Talk, tmp_path: Path) -> None:
    """P2, case 95: the same checks on a conversation written here, wherever this runs."""
    host, path = _PLACES[talk.wire]
    host = {"mistral": "api.mistral.ai", "deepseek": "api.deepseek.com"}.get(talk.dialect, host)

    def exchange(body: Any, reply: Any) -> dict[str, Any]:
        request = {"method": "POST", "host": host, "path": path, "body": body}
        return {"request": request, "response": {"status": 200, "headers": {}, "body": reply}}

    file = tmp_path / talk.wire / "talk.json"
    file.parent.mkdir()
    pair = [exchange(talk.first, talk.reply), exchange(talk.body, _ENDS[talk.wire])]
    file.write_text(json.dumps({"exchanges": pair}))
    for check in (
        test_every_response_is_read_as_a_plain_reading_of_it_says,
        test_every_request_is_read_back_and_comes_out_the_same,
        test_the_transcript_of_a_request_is_found_by_the_name_of_its_wire,
        test_the_judge_accepts_what_was_accepted_and_refuses_what_was_refused_for_its_form,
        test_a_conversation_goes_on_as_the_provider_accepted_it,
        test_where_the_server_keeps_the_conversation_only_what_is_new_is_sent,
    ):
        check(file)
    if talk is not STORED:
        (before, after), *_ = continuations(file)
        assert continued(codec_for(after), before, after) is not None


def test_a_reply_that_was_filtered_whole_is_filtered() -> None:
    """P2: some servers leave the message out; that is the reason, and no broken response."""
    choice = {"index": 0, "finish_reason": "content_filter", "content_filter_results": {}}
    reply = ChatCodec().decoder().whole(json.dumps({"choices": [choice]}).encode())
    assert reply.stop_reason is StopReason.FILTER
    assert reply.message.content == ()


@pytest.mark.parametrize("wire", ["anthropic", "openai", "openai-chat"])
def test_a_history_that_the_assistant_begins_is_read(wire: str) -> None:
    """P2, T6: providers take it; a transcript begins with the user, and says what it did about that."""
    messages = [
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "A potato."},
    ]
    transcript = Transcript.parse(messages, wire=wire)
    assert transcript[0].role == "user"
    assert [message.text for message in transcript][-2:] == ["Hello.", "A potato."]
    with pytest.raises(TranscriptError):
        Transcript.parse("Hello.", wire=wire)
    with pytest.raises(ConfigurationError):
        Transcript.parse(messages, wire="telepathy")


def test_what_a_result_says_beyond_text_outlives_an_id_that_is_given_anew() -> None:
    """P2, T3: the provider takes an id again in a later turn; here it gets another, and its result stays."""
    use = {"type": "tool_use", "id": "a", "name": "search", "input": {}}
    found = {"type": "tool_result", "tool_use_id": "a", "content": "none"}
    tool = [{"type": "tool_reference", "tool_name": "look"}]
    messages = [
        {"role": "user", "content": "Search."},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [found]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{**found, "content": tool}]},
    ]
    parsed = codec_of("anthropic").parse({"model": "m", "max_tokens": 9, "messages": messages})
    again = json.loads(written(codec_of("anthropic").encoder("m"), parsed))["messages"]
    assert again[4]["content"][0]["content"] == tool
    assert again[4]["content"][0]["tool_use_id"] == again[3]["content"][0]["id"] != "a"


def test_an_empty_text_in_a_history_is_nothing() -> None:
    """P2: servers take it from other clients."""
    hello = {"role": "user", "content": "Hello."}
    transcript = Transcript.parse(
        [hello, {"role": "assistant", "content": ""}, hello], wire="openai-chat"
    )
    assert [message.role for message in transcript] == ["user", "user"]
