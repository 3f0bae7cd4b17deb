"""Chat Completions: the calls of a stream, the end of a reply, bytes that stay, errors that say what to do.

Streams and bodies are made by hand here; recorded ones are in `test_wire_chat_recorded.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from remit.messages import (
    Reply,
    StopReason,
    ToolUse,
)
from remit.models.base import BlockDone, Chunk, ToolSpec
from remit.models.wires.chat import ChatCodec
from remit.models.wires.chat.decode import ChatDecoder
from remit.models.wires.dialects import DIALECTS
from remit.models.wires.sse import ServerEvent
from remit.models.wires.toolbox import Toolbox

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
    arguments: Any = None, *, name: str | None = None, id: str | None = None, index: Any = None
) -> dict[str, Any]:
    function: dict[str, Any] = {}
    if name is not None:
        function["name"] = name
    if arguments is not None:
        function["arguments"] = arguments
    made: dict[str, Any] = {"function": function}
    if id is not None:
        made["id"] = id
    if index is not None:
        made["index"] = index
    return made


def feed(reader: ChatDecoder, chunks: Iterable[str], *, done: bool = True) -> list[Chunk]:
    given: list[Chunk] = []
    for each in chunks:
        given += reader.feed(ServerEvent("", each.encode()))
    given += reader.feed(ServerEvent("", b"[DONE]")) if done else reader.end()
    return given


def reply_of(
    *chunks: str, reason: str | None = "tool_calls", reader: ChatDecoder | None = None
) -> Reply:
    """The reply of a stream; what was given out before it is what it holds."""
    end = () if reason is None else (chunk(reason=reason),)
    given = feed(reader or decoder(), [*chunks, *end])
    reply = given[-1]
    assert isinstance(reply, Reply)
    assert [each.block for each in given if isinstance(each, BlockDone)] == list(
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
        calls(entry('{"f":1}', name="f", id="p1", index=0)),
        calls(entry('{"f":2}', name="f", id="p2", index=0)),
    )
    assert uses(reply) == [("p1", "f", '{"f":1}'), ("p2", "f", '{"f":2}')]


def test_name_and_first_fragment_may_come_together() -> None:
    """case 15: both with index 0 are one call."""
    reply = reply_of(calls(entry('{"f"', name="f", id="p1", index=0)), calls(entry(":1}", index=0)))
    assert uses(reply) == [("p1", "f", '{"f":1}')]


def test_a_stream_without_any_index_holds_its_one_call() -> None:
    """case 15: no index at all."""
    reply = reply_of(calls(entry("", name="f", id="p1")), calls(entry('{"f"')), calls(entry(":1}")))
    assert uses(reply) == [("p1", "f", '{"f":1}')]


def test_a_name_alone_and_then_arguments_alone_are_one_call() -> None:
    """case 15: a chunk with the name only, then one with arguments only."""
    reply = reply_of(calls(entry(name="f", id="p1", index=0)), calls(entry('{"f":1}', index=0)))
    assert uses(reply) == [("p1", "f", '{"f":1}')]
    without = reply_of(calls(entry(name="f")), calls(entry('{"f":1}')))
    assert uses(without) == [("", "f", '{"f":1}')]


@pytest.mark.parametrize("begun", ["", '{"f":'])
def test_a_fragment_that_could_belong_to_two_open_calls_makes_both_unreadable(begun: str) -> None:
    """case 15: ambiguity is an error result for the calls concerned, never a guess."""
    reply = reply_of(
        calls(entry(begun, name="f", id="p1", index=0)),
        calls(entry(begun, name="g", id="p2", index=1)),
        calls(entry("1}")),
    )
    assert [use.name for use in reply.message.tool_uses] == ["f", "g"]
    assert all(unreadable(use.arguments) for use in reply.message.tool_uses)
    assert reply.stop_reason is StopReason.TOOL_USE
