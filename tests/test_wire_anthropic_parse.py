"""Bodies of the Anthropic wire, read back and written again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anthropic_rig import (
    FILES,
    LOOK,
    WIRE,
    call,
    reply,
    request,
    sent,
)
from remit.errors import TranscriptError
from remit.testing.protocol import judge
from remit.transcript import Stub


def test_a_body_says_which_of_its_fields_have_no_place() -> None:
    """T6: what is left out of a history from outside is named."""
    marked = {"cache_control": {"type": "ephemeral"}}
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x", **marked}]},
            {"role": "assistant", "content": [call("a")]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "news": 1}]},
        ],
    }
    parsed = WIRE.parse(body)
    assert parsed.set_aside == ("cache_control", "news")
    again = sent(request(parsed.transcript, settings=parsed.settings))["messages"]
    assert again[0]["content"] == [{"type": "text", "text": "x"}]
    assert again[2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


def test_what_is_split_or_out_of_order_is_read_as_the_provider_reads_it() -> None:
    """T1, T6: turns are merged, results are matched by id, and an own part of one stays with it."""
    tool = {"type": "tool_reference", "tool_name": "look"}
    results = [
        {"type": "tool_result", "tool_use_id": "b", "content": [tool]},
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": [tool, {"type": "text", "text": "x"}],
        },
    ]
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [call("a")]},
            {"role": "assistant", "content": [call("b")]},
            {"role": "user", "content": [results[0], {"type": "text", "text": "and"}]},
            {"role": "user", "content": [results[1]]},
        ],
    }
    parsed = WIRE.parse(body)
    assert parsed.transcript.report == ()
    again = sent(request(parsed.transcript))["messages"]
    assert [use["id"] for use in again[1]["content"]] == ["a", "b"]
    assert again[2]["content"] == [results[1], results[0], {"type": "text", "text": "and"}]


@pytest.mark.parametrize("value", [object(), "\ud800", {"a": object()}])
def test_what_is_no_json_is_no_request(value: object) -> None:
    """T6: whoever hands it in is told where it stands."""
    for content in ([{"type": "x", "of": value}], [{"type": "text", "text": "x", "of": value}]):
        for role in ("user", "assistant", "system"):
            body = {
                "messages": [{"role": "user", "content": "x"}, {"role": role, "content": content}]
            }
            with pytest.raises(TranscriptError, match="message 1"):
                WIRE.parse(body)


def test_a_note_in_place_of_an_own_part_of_a_result_is_text() -> None:
    """X5: what was elided does not come back by another door."""
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [call("a")]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [{"type": "tool_reference", "tool_name": "look"}],
                    }
                ],
            },
        ],
    }
    transcript = WIRE.parse(body).transcript
    transcript.elide([Stub("a", 0, "It is kept.", "artifact:x", 9)])
    found = sent(request(transcript))["messages"][2]["content"]
    assert found == [{"type": "tool_result", "tool_use_id": "a", "content": "It is kept."}]


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
    said = item.get("content")
    if ("role" in item or item.get("type") == "tool_result") and isinstance(said, str):
        item["content"] = [{"type": "text", "text": said}]
    if item.get("type") == "tool_result" and said == []:
        del item["content"]
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


# Any request


WORDS = st.text("ab \n", min_size=1, max_size=5).filter(lambda text: not text.isspace())
TEXT = WORDS.map(lambda text: {"type": "text", "text": text})
CITED = TEXT.map(lambda block: block | {"citations": [{"type": "page_location", "at": 1.50}]})
PICTURE = st.just(
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVA="}}
)
PAGE = st.builds(
    lambda name, more: {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": name},
        "title": name,
        **more,
    },
    WORDS,
    st.sampled_from([{}, {"context": "why", "citations": {"enabled": True}}]),
)
LINK = st.just({"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}})
PARTS = st.one_of(TEXT, CITED, PICTURE, PAGE, LINK)
IN_RESULTS = st.one_of(PARTS, st.just({"type": "tool_reference", "tool_name": "look"}))
CONTENT = st.one_of(WORDS, st.lists(IN_RESULTS, max_size=3), st.none())


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A request that the provider would take."""
    messages: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 4))):
        messages.append(
            {
                "role": "user",
                "content": draw(st.one_of(WORDS, st.lists(PARTS, min_size=1, max_size=3))),
            }
        )
        if turn and draw(st.booleans()):
            messages.append({"role": "system", "content": [draw(TEXT)]})
        calls = [
            {"type": "tool_use", "id": f"t{turn}_{n}", "name": "look", "input": {"at": n}}
            | draw(
                st.sampled_from(
                    [{}, {"caller": {"type": "code_execution_20260120", "tool_id": "s"}}]
                )
            )
            for n in range(draw(st.integers(0, 3)))
        ]
        thought = {"type": "thinking", "thinking": "hm", "signature": f"c2ln{turn}"}
        content = [*draw(st.sampled_from([[], [thought]])), draw(st.one_of(TEXT, CITED)), *calls]
        messages.append({"role": "assistant", "content": content})
        if calls:
            results = [
                {"type": "tool_result", "tool_use_id": each["id"]}
                | ({} if (given := draw(CONTENT)) is None else {"content": given})
                | draw(st.sampled_from([{}, {"is_error": True}, {"is_error": False}]))
                for each in calls
            ]
            messages.append(
                {"role": "user", "content": [*results, *draw(st.lists(PARTS, max_size=2))]}
            )
        else:
            messages.append({"role": "user", "content": "on"})
    tool = {"name": "look", "description": "Look.", "input_schema": LOOK.parameters}
    search = {"type": "web_search_20250305", "name": "web_search"}
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": draw(st.integers(2_000, 9_000)),
        "messages": messages,
        "tools": draw(st.permutations([tool, *draw(st.sampled_from([[], [search]]))])),
        **draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "system": st.one_of(WORDS, st.lists(TEXT, min_size=1, max_size=2)),
                    "thinking": st.sampled_from(
                        [{"type": "enabled", "budget_tokens": 1_024}, {"type": "adaptive"}]
                    ),
                    "tool_choice": st.sampled_from(
                        [
                            {"type": "auto"},
                            {"type": "none"},
                            {"type": "auto", "disable_parallel_tool_use": True},
                        ]
                    ),
                    "stream": st.booleans(),
                    "metadata": st.just({"user_id": "u"}),
                },
            )
        ),
    }


@given(bodies())
def test_any_request_that_is_taken_comes_out_as_it_went_in(body: dict[str, Any]) -> None:
    """T6, T7, T1: read back and written again, it says the same, and the provider still takes it."""
    strict = judge("anthropic")
    strict.trust(body)
    strict.request(body)
    parsed = WIRE.parse(body)
    assert parsed.transcript.report == ()
    made = request(
        parsed.transcript,
        instructions=parsed.instructions,
        tools=parsed.tools,
        settings=parsed.settings,
        max_output=body["max_tokens"],
    )
    again = json.loads(WIRE.encoder(parsed.model).encode(made, stream=parsed.stream).body)
    strict.request(again)
    assert plain(again) == plain(body)
