"""Histories that other libraries made: what their users hold in their hands is read as what it would be sent as."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from remit import Transcript, TranscriptError


class Function(BaseModel):
    """As the OpenAI SDK has it."""

    name: str
    arguments: str


class ToolCall(BaseModel):
    """As the OpenAI SDK has it."""

    id: str
    type: Literal["function"]
    function: Function


class ChatMessage(BaseModel):
    """As the OpenAI SDK has it: `messages.append(response.choices[0].message)`."""

    role: Literal["assistant"]
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None


class TextBlock(BaseModel):
    """As the Anthropic SDK has it."""

    type: Literal["text"]
    text: str
    citations: list[Any] | None = None


class ToolUseBlock(BaseModel):
    """As the Anthropic SDK has it: `{"role": "assistant", "content": response.content}`."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, object]


class FunctionCall(BaseModel):
    """As the OpenAI SDK has it: `input += response.output`."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None


def called(history: Transcript) -> list[tuple[str, dict[str, object]]]:
    return [(use.name, use.parsed()) for message in history for use in message.tool_uses]


def test_messages_of_the_openai_sdk_are_read_as_they_stand() -> None:
    call = ToolCall(
        id="c1", type="function", function=Function(name="look", arguments='{"a":null}')
    )
    history = Transcript.parse(
        [
            {"role": "user", "content": "hi"},
            ChatMessage(role="assistant", content=None, tool_calls=[call]),
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        ],
        wire="openai-chat",
    )
    assert called(history) == [("look", {"a": None})]
    assert history[2].tool_results[0].text == "seen"


def test_content_of_the_anthropic_sdk_is_read_as_it_stands() -> None:
    content = [
        TextBlock(type="text", text="I look.", citations=None),
        ToolUseBlock(type="tool_use", id="t1", name="look", input={"a": None, "b": (1, 2)}),
    ]
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [TextBlock(type="text", text="seen")],
    }
    history = Transcript.parse(
        {
            "messages": (
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": content},
                {"role": "user", "content": (result,)},
            )
        },
        wire="anthropic",
    )
    assert called(history) == [("look", {"a": None, "b": [1, 2]})]
    assert history[2].tool_results[0].text == "seen"


def test_output_of_the_openai_sdk_is_read_as_it_stands() -> None:
    history = Transcript.parse(
        (
            {"role": "user", "content": "hi"},
            FunctionCall(
                type="function_call", call_id="c1", name="look", arguments="{}", id="fc_1"
            ),
            {"type": "function_call_output", "call_id": "c1", "output": "seen"},
        ),
        wire="openai",
    )
    assert called(history) == [("look", {})]
    assert history[2].tool_results[0].text == "seen"


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def once() -> Iterator[Any]:
    yield {"role": "user", "content": "hi"}


@pytest.mark.parametrize("wire", ["anthropic", "openai", "openai-chat"])
@pytest.mark.parametrize(
    "messages",
    [
        None,
        3,
        "hi",
        b"[]",
        once(),
        [None],
        [3],
        [[]],
        [{}],
        [SimpleNamespace(role="user", content="hi")],
        [BaseModel],
        [{"role": "user", "content": SimpleNamespace()}],
        [{"role": "assistant", "content": [SimpleNamespace(type="text")]}],
        [{"role": "user", "content": b"bytes"}],
        [{"role": "user", "content": {1: 2}}],
        [{"role": "user", "content": nested(100_000)}],
    ],
)
def test_what_no_request_holds_is_refused_with_a_reason(wire: str, messages: Any) -> None:
    with pytest.raises(TranscriptError):
        Transcript.parse(messages, wire=wire)
