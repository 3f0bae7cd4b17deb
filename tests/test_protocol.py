"""The judges, rule by rule: small conversations are accepted, and each rule refuses what breaks it."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol_rig import ALL, ANTHROPIC, CHAT, RESPONSES, TALKS, Case, Talk, called_later
from remit import ConfigurationError
from remit.testing import InvalidRequest
from remit.testing.protocol import Refused, dialect_of, judge


def _name(value: object) -> str | None:
    if isinstance(value, Talk):
        return value.wire if value.dialect == "openai" else f"{value.wire}-{value.dialect}"
    return value.name.replace(" ", "-") if isinstance(value, Case) else None


@pytest.mark.parametrize("talk", TALKS, ids=_name)
def test_what_the_provider_accepts_is_accepted(talk: Talk) -> None:
    """P1: the request that continues a conversation passes, as often as it is sent."""
    made, body = talk.judged()
    made.request(body)
    made.request(body)


@pytest.mark.parametrize(("talk", "case"), ALL, ids=_name)
def test_what_breaks_a_rule_is_refused_in_the_providers_words(talk: Talk, case: Case) -> None:
    """P1, T1, T3, T7: by the rule that is broken, with a text that reads back as that rule, and an error body."""
    made, body = talk.judged()
    case.breaks(body)
    with pytest.raises(Refused) as refused:
        made.request(body)
    error = refused.value
    assert error.rule == case.rule
    said = error.body.get("error", error.body)
    assert said["message"] == error.text
    assert error.status == (404 if case.rule == "not_persisted" else 400)
    named = made.wordings.rule_of(error.text)
    assert named is not None
    assert made.wordings.words_of(named) == made.wordings.words_of(case.rule)
    made.request(talk.judged()[1])  # what is refused leaves nothing behind


@pytest.mark.parametrize("wire", ["anthropic", "openai", "openai-chat"])
def test_every_rule_has_a_case_that_breaks_it(wire: str) -> None:
    """P1: no rule is there that nothing shows to work."""
    broken = {case.rule for talk, case in ALL if talk.wire == wire}
    elsewhere = {"version", "sampling"} if wire != "openai" else set[str]()
    assert set(judge(wire).wordings) - elsewhere == broken


def test_headers_are_looked_at_where_they_are_given() -> None:
    """P1: the version of the API is asked for, and a newer one refuses what it dropped."""
    made, body = ANTHROPIC.judged()
    made.request({**body, "temperature": 1}, headers={"anthropic-version": "2023-06-01"})
    with pytest.raises(Refused, match="version"):
        made.request(body, headers={})
    with pytest.raises(Refused, match="temperature"):
        made.request({**body, "temperature": 1}, headers={"anthropic-version": "2026-10-21"})


def test_a_refusal_is_an_invalid_request_that_names_place_and_rule() -> None:
    """P1: tests that know the neutral validator know this one."""
    made, body = ANTHROPIC.judged()
    del body["messages"][2]["content"][1]
    with pytest.raises(InvalidRequest) as refused:
        made.request(body)
    assert refused.value.position == 1
    assert "toolu_2" in str(refused.value)
    assert "unanswered" in str(refused.value)


def test_history_from_before_the_judge_is_taken_on_trust_where_that_is_said() -> None:
    """P1, T7: a block that was never issued is refused; `trust` takes what a body holds for issued."""
    for talk in (ANTHROPIC, RESPONSES):
        fresh = judge(talk.wire)
        with pytest.raises(Refused):
            fresh.request(talk.body)
        fresh.trust(talk.body)
        fresh.request(talk.body)


def test_blocks_may_be_left_out_where_the_provider_allows_it() -> None:
    """P1, T7: thinking on newer models, and reasoning with all that carries the ids of its response."""
    made, body = ANTHROPIC.judged()
    del body["messages"][1]["content"][:2]
    made.request(body)
    made, body = RESPONSES.judged()
    del body["input"][1]
    for item in body["input"]:
        item.pop("id", None)
    made.request(body)


def test_calls_in_consecutive_messages_are_answered_together() -> None:
    """P1: messages of one side are one turn."""
    made, body = ANTHROPIC.judged()
    content = body["messages"][1]["content"]
    body["messages"][1:2] = [
        {"role": "assistant", "content": content[:6]},
        {"role": "assistant", "content": content[6:]},
    ]
    made.request(body)


def test_what_recordings_show_to_be_accepted_is_accepted() -> None:
    """P1: the assistant begins, an id is used again in a later turn, blanks stand beside calls."""
    made, body = ANTHROPIC.judged()
    called_later(body)
    made.request(body)
    made, body = ANTHROPIC.judged()
    body["messages"].insert(0, {"role": "assistant", "content": "Hello."})
    body["messages"][2]["content"][4]["text"] = " "
    made.request({**body, "model": "claude-sonnet-4-5"})
    made, body = RESPONSES.judged()
    search = {
        "type": "tool_search_call",
        "call_id": "call_4",
        "execution": "client",
        "arguments": {},
    }
    found = {"type": "function_call_output", "call_id": "call_4", "output": "One."}
    made.request({**body, "input": [*body["input"], search, found]})


def test_a_paused_turn_is_continued_without_a_word_of_the_user() -> None:
    """P1: the provider's own tool may be open at the end, and only there."""
    made, body = ANTHROPIC.judged()
    del body["messages"][2]
    body["messages"][1]["content"] = body["messages"][1]["content"][:3]
    made.request(body)


def test_a_stream_teaches_as_much_as_a_whole_reply() -> None:
    """P1, T7: the judge reads events, and the bytes of a stream."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"content": []}}]
    for index, block in enumerate(ANTHROPIC.reply["content"]):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
    events.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}})
    made = judge("anthropic")
    made.response(events, ANTHROPIC.first)
    made.request(ANTHROPIC.body)


def test_a_wire_that_is_none_is_told() -> None:
    """P1: a wrong name is the caller's mistake."""
    with pytest.raises(ConfigurationError, match="anthropic"):
        judge("telepathy")


def test_servers_are_known_by_their_host() -> None:
    """P1, T3: what differs between servers hangs on where they are."""
    assert dialect_of("api.openai.com") == "openai"
    assert dialect_of("eu.openai.azure.com") == "azure"
    assert dialect_of("api.mistral.ai") == "mistral"
    assert dialect_of("localhost") == "compatible"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(data=st.data())
@pytest.mark.parametrize("talk", [ANTHROPIC, RESPONSES, CHAT], ids=_name)
def test_whatever_is_sent_is_accepted_or_refused(talk: Talk, data: st.DataObject) -> None:
    """P1: a body with anything anywhere never breaks the judge, so a server behind it always answers."""
    made, body = talk.judged()
    spot: Any = body
    while True:
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        key = data.draw(st.sampled_from(keys))
        inner = spot[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            spot = inner
            continue
        spot[key] = data.draw(_JSON)
        break
    with suppress(Refused):
        made.request(deepcopy(body))


@pytest.mark.parametrize("wire", ["anthropic", "openai", "openai-chat"])
def test_a_body_may_be_given_as_it_is_sent_and_what_is_none_is_wrong_configuration(
    wire: str,
) -> None:
    """Users hold bytes as often as dictionaries."""
    field = "input" if wire == "openai" else "messages"
    body = {"model": "m", "max_tokens": 5, field: [{"role": "user", "content": "hi"}]}
    if wire == "openai":
        del body["max_tokens"]
    for each in (body, json.dumps(body), json.dumps(body).encode()):
        judge(wire).request(each)
    wrong: list[Any] = [None, 3, [], b"{", "\xff", b"\xff", "[" * 100_000]
    for each in wrong:
        with pytest.raises(ConfigurationError):
            judge(wire).request(each)
    for each in [None, 3, [3], object()]:
        with pytest.raises(ConfigurationError):
            judge(wire).response(each)  # pyright: ignore[reportArgumentType] - that is the point
    judge(wire).response(b"\xff")
    judge(wire).response(b'{"content": [], "output": [], "choices": []}')
