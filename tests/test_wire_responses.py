"""The wire of OpenAI Responses: requests, replies, errors, and bodies read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recordings_rig import FOLDER, Exchange, files, read
from remit.messages import Message, Opaque, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import BlockDone, TextDelta
from remit.models.checked import checked_reply
from remit.models.providers import connected
from responses_rig import WIRE, request, streamed

OURS = frozenset({"store", "include", "prompt_cache_key", "max_output_tokens", "stream"})
"""What the codec says in every request, whatever it was read from."""

EXCHANGES = [
    exchange
    for path in files()
    for exchange in read(path)
    if "/responses" in exchange.request["path"]
]
ASKED = [exchange for exchange in EXCHANGES if exchange.asks]

needs_recordings = pytest.mark.skipif(not EXCHANGES, reason=f"there are no recordings in {FOLDER}")


def decoded(exchange: Exchange) -> Reply:
    """The reply of a recorded exchange."""
    if not exchange.streamed:
        return WIRE.decoder().whole(exchange.raw)
    chunks = streamed(exchange.raw)
    assert isinstance(chunks[-1], Reply)
    return chunks[-1]


# --- recordings ------------------------------------------------------------------------------------


def plain(items: Any) -> list[dict[str, Any]]:
    """Items of an input without what may be left out, and with ids of calls by their order."""
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    calls: dict[str, str] = {}
    made: list[dict[str, Any]] = []
    for item in items:
        fields = {k: v for k, v in item.items() if (k, v) != ("type", "message")}
        if item.get("type") in {"function_call", "function_call_output"}:
            fields["call_id"] = calls.setdefault(item["call_id"], f"call {len(calls)}")
        made.append(fields)
    return made


@needs_recordings
@pytest.mark.parametrize("exchange", ASKED, ids=str)
def test_a_recorded_request_goes_out_as_the_provider_took_it(exchange: Exchange) -> None:
    """T7: what was read back is written again with the same meaning, opaque items included."""
    read_back = WIRE.parse(exchange.body)
    made = request(
        read_back.transcript,
        instructions=read_back.instructions,
        tools=read_back.tools,
        settings=read_back.settings,
    )
    wired = WIRE.encoder(read_back.model).encode(made, stream=read_back.stream)
    again = json.loads(wired.body)
    assert plain(again.pop("input")) == plain(exchange.body["input"])
    said = {name: value for name, value in exchange.body.items() if name != "input"}
    assert {k: v for k, v in again.items() if k in said or k not in OURS} == said
    assert not wired.set_aside


@needs_recordings
@pytest.mark.parametrize(
    "exchange",
    [
        each
        for each in EXCHANGES
        if each.accepted and each.reply.get("status") not in {"queued", "in_progress"}
    ],
    ids=str,
)
def test_a_recorded_response_is_read(exchange: Exchange) -> None:
    """T1: calls, texts and what is opaque come in the order of the provider's items."""
    reply = checked_reply(decoded(exchange))
    output = exchange.reply["output"]
    calls = [item for item in output if item["type"] == "function_call"]
    assert [(use.id, use.name, use.arguments) for use in reply.message.tool_uses] == [
        (call["call_id"], call["name"], call["arguments"]) for call in calls
    ]
    texts = [
        part["text"] for item in output if item["type"] == "message" for part in item["content"]
    ]
    assert [block.text for block in reply.message.content if isinstance(block, Text)] == texts
    sealed = [item["encrypted_content"] for item in output if "encrypted_content" in item]
    kept = [json.loads(b.data) for b in reply.message.content if isinstance(b, Opaque)]
    assert [each["encrypted_content"] for each in kept if "encrypted_content" in each] == sealed
    assert reply.usage is not None
    assert reply.usage.total == exchange.reply["usage"]["total_tokens"]


@needs_recordings
def test_the_blocks_of_a_stream_come_as_they_are_done() -> None:
    """T1: each block once, before the reply that holds it; text as it comes."""
    for exchange in EXCHANGES:
        if not exchange.streamed:
            continue
        chunks = streamed(exchange.raw)
        reply = chunks[-1]
        assert isinstance(reply, Reply)
        done = tuple(chunk.block for chunk in chunks if isinstance(chunk, BlockDone))
        assert done == reply.message.content
        shown = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))
        assert shown == reply.message.text


def test_a_reply_that_is_written_reads_back_the_same() -> None:
    """T7: a provider of tests says what the real one would."""
    message = Message("assistant", (Text("First."), ToolUse("call_a", "look", '{"at":"x"}')))
    usage = Usage(input=3, cache_read=5, cache_write=2, output=7, reasoning=4)
    first = WIRE.reply_json(message, stop_reason="tool_use", usage=usage)
    reply = WIRE.decoder().whole(json.dumps(first).encode())
    assert reply.message.tool_uses == message.tool_uses
    assert reply.message.text == message.text
    assert (reply.stop_reason, reply.usage) == (StopReason.TOOL_USE, usage)
    again = WIRE.reply_json(reply.message, stop_reason="tool_use", usage=usage)
    assert WIRE.decoder().whole(json.dumps(again).encode()) == reply


def test_a_reply_is_written_whole_and_its_ids_are_its_own() -> None:
    """T7: reasoning that nothing followed is in it, and what is said twice has two ids."""
    sealed = b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}'
    message = Message("assistant", (Text("Hm."), Opaque("openai", sealed)))
    ids: set[str] = set()
    for prompt in (1, 2):
        whole = WIRE.reply_json(message, stop_reason="length", usage=Usage(input=prompt))
        assert [item["type"] for item in whole["output"]] == ["message", "reasoning"]
        ids |= {whole["id"], whole["output"][0]["id"]}
        reply = WIRE.decoder().whole(json.dumps(whole).encode())
        assert reply.stop_reason is StopReason.LENGTH
    assert len(ids) == 4


def test_what_one_server_issued_goes_to_no_other() -> None:
    """T7, case 60: servers of one wire are told apart by their place."""
    tagged = [
        connected("openai", "m", base_url=url, api_key="k")._codec.issuer
        for url in (None, "https://api.openai.com/v1/", "https://a.x:8443/v1", "http://b.x/v1")
    ]
    assert tagged == ["openai", "openai", "openai:a.x:8443", "openai:b.x"]


def test_openais_models_may_think_in_silence_for_minutes() -> None:
    """E7: without summaries nothing comes between two items; another server's stream is as any other's."""
    assert connected("openai", "m", api_key="k")._idle == 300
    assert connected("openai", "m", api_key="k", base_url="https://a.x/v1")._idle == 60
    assert connected("openai", "m", api_key="k", idle_seconds=5)._idle == 5
