"""Recorded conversations are accepted as they were, and refused for the provider's reason once they are broken.

Every way to break a conversation states the rule that has to notice it. It is tried on every recorded request
that has a place for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from recordings_rig import Exchange, files, judged, read
from remit.testing.protocol import Judge, Refused

SHARED = Path(__file__).parents[2] / "shared" / "wire"

Body = dict[str, Any]
Breaks = Callable[[Body], bool]
"""Breaks a body in place; False where it has no place for that."""


class Mutation(NamedTuple):
    """One way to break a request of a wire, and the rule that refuses it, by server where that differs."""

    wire: str
    rule: str
    breaks: Breaks
    elsewhere: dict[str, str]

    @property
    def name(self) -> str:
        return self.breaks.__name__

    def rule_at(self, dialect: str) -> str:
        """Empty where a server does not mind."""
        return self.elsewhere.get(dialect, self.rule)


MUTATIONS: list[Mutation] = []


def mutation(wire: str, rule: str, **elsewhere: str) -> Callable[[Breaks], Breaks]:
    def add(breaks: Breaks) -> Breaks:
        MUTATIONS.append(Mutation(wire, rule, breaks, elsewhere))
        return breaks

    return add


OPENAI_ALONE = {"mistral": "", "deepseek": "", "compatible": ""}
"""What only OpenAI's own endpoint looks at."""


# --- Anthropic -----------------------------------------------------------------------------------


def blocks(body: Body, *kinds: str) -> Iterator[tuple[list[Any], int]]:
    """Where blocks of these kinds stand: the content, and the place in it."""
    for message in body["messages"]:
        if isinstance(message["content"], list):
            for index, block in enumerate(message["content"]):
                if block["type"] in kinds:
                    yield message["content"], index


def block(body: Body, *kinds: str) -> tuple[list[Any], int] | None:
    return next(blocks(body, *kinds), None)


def called(body: Body) -> tuple[list[Any], list[Any]] | None:
    """The content of the last turn that calls, and that of its results."""
    for before, after in reversed(list(zip(body["messages"], body["messages"][1:], strict=False))):
        content = before["content"]
        if isinstance(content, list) and any(each["type"] == "tool_use" for each in content):
            return content, after["content"]
    return None


def first_of(content: list[Any], kind: str) -> int:
    return next(index for index, each in enumerate(content) if each["type"] == kind)


@mutation("anthropic", "unanswered")
def drop_a_result(body: Body) -> bool:
    found = called(body)
    if found is None or len(found[1]) < 2:
        return False
    del found[1][first_of(found[1], "tool_result")]
    return True


@mutation("anthropic", "unanswered")
def drop_the_message_with_the_results(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    body["messages"] = [each for each in body["messages"] if each["content"] is not found[1]]
    return True


@mutation("anthropic", "orphan_result")
def drop_a_call(body: Body) -> bool:
    found = called(body)
    if found is None or len(found[0]) < 2:
        return False
    del found[0][first_of(found[0], "tool_use")]
    return True


@mutation("anthropic", "answered_twice")
def duplicate_a_result(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    at = first_of(found[1], "tool_result")
    found[1].insert(at, deepcopy(found[1][at]))
    return True


@mutation("anthropic", "id_twice")
def duplicate_a_call(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    found[0].append(deepcopy(found[0][first_of(found[0], "tool_use")]))
    return True


@mutation("anthropic", "unanswered")
def give_a_result_another_id(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    found[1][first_of(found[1], "tool_result")]["tool_use_id"] = "toolu_other"
    return True


@mutation("anthropic", "unanswered")
def give_a_call_another_id(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    found[0][first_of(found[0], "tool_use")]["id"] = "toolu_other"
    return True


@mutation("anthropic", "id")
def give_a_call_an_id_of_another_provider(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    use = found[0][first_of(found[0], "tool_use")]
    for each in found[1]:
        if each.get("tool_use_id") == use["id"]:
            each["tool_use_id"] = "resp_1:call_0"
    use["id"] = "resp_1:call_0"
    return True


@mutation("anthropic", "orphan_result")
def swap_the_call_and_its_results(body: Body) -> bool:
    messages = body["messages"]
    if called(body) is None or len(messages) != 3:
        return False
    messages[1], messages[2] = messages[2], messages[1]
    return True


@mutation("anthropic", "result_place")
def put_a_word_before_the_results(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    found[1].insert(0, {"type": "text", "text": "Here they are."})
    return True


@mutation("anthropic", "unanswered")
def put_a_turn_before_the_results(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    at = next(n for n, each in enumerate(body["messages"]) if each["content"] is found[1])
    turn = [{"role": "user", "content": "Wait."}, {"role": "assistant", "content": "I do."}]
    body["messages"][at:at] = turn
    return True


@mutation("anthropic", "wrong_place")
def let_the_assistant_answer_itself(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    found[0].append(found[1].pop(first_of(found[1], "tool_result")))
    return True


@mutation("anthropic", "blank")
def blank_a_text(body: Body) -> bool:
    found = block(body, "text")
    if found is None:
        return False
    found[0][found[1]]["text"] = ""
    return True


@mutation("anthropic", "whitespace")
def leave_only_blanks_of_a_text(body: Body) -> bool:
    found = block(body, "text")
    if found is None:
        return False
    found[0][found[1]]["text"] = " \n\t"
    return True


@mutation("anthropic", "empty_message")
def empty_a_message(body: Body) -> bool:
    body["messages"][0]["content"] = []
    return True


@mutation("anthropic", "signature")
def sign_a_thought_anew(body: Body) -> bool:
    found = block(body, "thinking")
    if found is None:
        return False
    thought = found[0][found[1]]
    thought["signature"] = thought["signature"][:-4] + "AAA="
    return True


@mutation("anthropic", "opaque_modified")
def rewrite_a_thought(body: Body) -> bool:
    found = block(body, "thinking")
    if found is None:
        return False
    found[0][found[1]]["thinking"] += "."
    return True


@mutation("anthropic", "opaque_moved")
def move_a_thought_to_the_end(body: Body) -> bool:
    found = block(body, "thinking")
    if found is None or len(found[0]) < 2:
        return False
    found[0].append(found[0].pop(found[1]))
    return True


@mutation("anthropic", "opaque_moved")
def duplicate_a_thought(body: Body) -> bool:
    found = block(body, "thinking")
    if found is None:
        return False
    found[0].insert(found[1], deepcopy(found[0][found[1]]))
    return True


@mutation("anthropic", "thinking_missing")
def leave_out_a_thought_on_an_older_model(body: Body) -> bool:
    found = called(body)
    if found is None or "sonnet-4-0" not in body["model"] or found[0][0]["type"] != "thinking":
        return False
    del found[0][0]
    return True


@mutation("anthropic", "cache_place")
def mark_a_thought(body: Body) -> bool:
    found = block(body, "thinking")
    if found is None:
        return False
    found[0][found[1]]["cache_control"] = {"type": "ephemeral"}
    return True


@mutation("anthropic", "cache_count")
def set_five_markers(body: Body) -> bool:
    text = {"type": "text", "text": "Hm.", "cache_control": {"type": "ephemeral"}}
    body["messages"] = [{"role": "user", "content": [deepcopy(text) for _ in range(5)]}]
    return True


@mutation("anthropic", "server_orphan")
def drop_what_the_provider_asked_its_own_tool(body: Body) -> bool:
    served = [content[at]["tool_use_id"] for content, at in results_of_the_provider(body)]
    for content, at in blocks(body, "server_tool_use", "mcp_tool_use"):
        if content[at]["id"] in served:
            del content[at]
            return True
    return False


@mutation("anthropic", "server_orphan")
def move_what_the_provider_found_to_the_front(body: Body) -> bool:
    for content, at in results_of_the_provider(body):
        content.insert(0, content.pop(at))
        return True
    return False


def results_of_the_provider(body: Body) -> Iterator[tuple[list[Any], int]]:
    kinds = {
        content[at]["type"]
        for content, at in blocks(body, *ALL_KINDS)
        if content[at]["type"] != "tool_result"
    }
    yield from blocks(body, *kinds)


ALL_KINDS = (
    "web_search_tool_result",
    "tool_search_tool_result",
    "mcp_tool_result",
    "bash_code_execution_tool_result",
)


@mutation("anthropic", "server_unanswered")
def leave_what_the_provider_asked_open(body: Body) -> bool:
    if body["messages"][-1]["role"] != "user" or called(body) is not None:
        return False
    for content, at in results_of_the_provider(body):
        del content[at]
        return True
    return False


@mutation("anthropic", "encrypted")
def rewrite_what_the_provider_found(body: Body) -> bool:
    for content, at in blocks(body, "web_search_tool_result"):
        for each in content[at]["content"]:
            each["encrypted_content"] = each["encrypted_content"][:-2] + "=="
            return True
    return False


@mutation("anthropic", "call_input")
def give_arguments_as_text(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    found[0][first_of(found[0], "tool_use")]["input"] = "{}"
    return True


@mutation("anthropic", "call_name")
def give_a_call_an_illegal_name(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    found[0][first_of(found[0], "tool_use")]["name"] = "functions.look"
    return True


@mutation("anthropic", "role")
def give_the_results_a_role_of_another_provider(body: Body) -> bool:
    body["messages"][-1]["role"] = "tool"
    return True


@mutation("anthropic", "missing_field")
def leave_out_the_cap(body: Body) -> bool:
    del body["max_tokens"]
    return True


@mutation("anthropic", "unknown_field")
def tell_the_provider_our_status(body: Body) -> bool:
    found = called(body)
    if found is None:
        return False
    found[1][first_of(found[1], "tool_result")]["status"] = "ok"
    return True


@mutation("anthropic", "tool_choice")
def force_a_tool_that_is_not_there(body: Body) -> bool:
    if not body.get("tools") or "thinking" in body:
        return False
    body["tool_choice"] = {"type": "tool", "name": "nobody"}
    return True


@mutation("anthropic", "tool_twice")
def offer_a_tool_twice(body: Body) -> bool:
    if not body.get("tools"):
        return False
    body["tools"].append(deepcopy(body["tools"][0]))
    return True


@mutation("anthropic", "tool_schema")
def offer_a_tool_without_an_object(body: Body) -> bool:
    tool = next((tool for tool in body.get("tools", ()) if "input_schema" in tool), None)
    if tool is None:
        return False
    tool["input_schema"] = {"type": "array"}
    return True


# --- Responses -----------------------------------------------------------------------------------


def items(body: Body, *kinds: str) -> list[int]:
    """Where items of these kinds stand."""
    found = body["input"] if isinstance(body["input"], list) else []
    return [at for at, item in enumerate(found) if item.get("type", "message") in kinds]


def drops(*kinds: str) -> Breaks:
    def drop(body: Body) -> bool:
        found = items(body, *kinds)
        if not found:
            return False
        del body["input"][found[0]]
        return bool(body["input"])

    return drop


@mutation("openai", "unanswered")
def drop_an_output(body: Body) -> bool:
    return drops("function_call_output")(body)


@mutation("openai", "orphan_result")
def drop_what_an_output_answers(body: Body) -> bool:
    found = items(body, "function_call")
    if not found or (found[0] and body["input"][found[0] - 1].get("type") == "reasoning"):
        return False
    del body["input"][found[0]]
    return True


@mutation("openai", "id_twice")
def send_an_output_twice(body: Body) -> bool:
    found = items(body, "function_call_output")
    if not found:
        return False
    body["input"].append(deepcopy(body["input"][found[0]]))
    return True


@mutation("openai", "id_twice")
def send_an_item_twice(body: Body) -> bool:
    found = [at for at in items(body, "message", "function_call") if body["input"][at].get("id")]
    if not found:
        return False
    body["input"].append(deepcopy(body["input"][found[0]]))
    return True


@mutation("openai", "id_twice")
def reuse_the_id_of_a_call(body: Body) -> bool:
    """A server that counts from zero in every response, replayed as it came."""
    calls, outputs = items(body, "function_call"), items(body, "function_call_output")
    if len(calls) < 2:
        return False
    for at in (*calls, *outputs):
        body["input"][at]["call_id"] = "call_0"
    return True


@mutation("openai", "orphan_result")
def give_an_output_another_id(body: Body) -> bool:
    found = items(body, "function_call_output")
    if not found:
        return False
    body["input"][found[0]]["call_id"] = "call_other"
    return True


@mutation("openai", "orphan_result")
def swap_a_call_and_its_output(body: Body) -> bool:
    found = items(body, "function_call")
    if not found or items(body, "reasoning"):
        return False
    at = found[0]
    answer = next(
        n
        for n in items(body, "function_call_output")
        if body["input"][n]["call_id"] == body["input"][at]["call_id"]
    )
    body["input"][at], body["input"][answer] = body["input"][answer], body["input"][at]
    return True


@mutation("openai", "empty_id", deepseek="unanswered")
def blank_the_id_of_a_call(body: Body) -> bool:
    found = items(body, "function_call", "function_call_output")
    if not found:
        return False
    body["input"][found[0]]["call_id"] = ""
    return True


@mutation("openai", "follower")
def drop_what_followed_the_reasoning(body: Body) -> bool:
    found = items(body, "reasoning")
    if not found:
        return False
    follower = body["input"].pop(found[0] + 1)
    answers = [at for at, each in enumerate(body["input"]) if "output" in each]
    for at in answers:
        if body["input"][at]["call_id"] == follower.get("call_id"):
            del body["input"][at]
            break
    return True


@mutation("openai", "follower")
def rewrite_what_followed_the_reasoning(body: Body) -> bool:
    found = items(body, "reasoning")
    if not found:
        return False
    body["input"].insert(found[0] + 1, {"role": "assistant", "content": "The answer is 42"})
    return True


@mutation("openai", "follower")
def move_the_reasoning_to_the_end(body: Body) -> bool:
    found = items(body, "reasoning")
    if not found:
        return False
    body["input"].append(body["input"].pop(found[0]))
    return True


@mutation("openai", "required_reasoning")
def drop_the_reasoning(body: Body) -> bool:
    return drops("reasoning")(body)


@mutation("openai", "encrypted")
def seal_the_reasoning_anew(body: Body) -> bool:
    found = items(body, "reasoning", "compaction")
    if not found:
        return False
    item = body["input"][found[0]]
    item["encrypted_content"] = item["encrypted_content"][:-4] + "AAA="
    return True


@mutation("openai", "id_twice")
def duplicate_the_reasoning(body: Body) -> bool:
    found = items(body, "reasoning")
    if not found:
        return False
    body["input"][found[0] + 2 : found[0] + 2] = deepcopy(body["input"][found[0] : found[0] + 1])
    return True


@mutation("openai", "previous", compatible="previous")
def continue_a_response_that_nobody_gave(body: Body) -> bool:
    body["previous_response_id"] = "resp_other"
    return True


@mutation("openai", "type")
def give_arguments_as_an_object(body: Body) -> bool:
    found = items(body, "function_call")
    if not found:
        return False
    body["input"][found[0]]["arguments"] = {}
    return True


@mutation("openai", "value")
def give_an_output_as_a_tool_message(body: Body) -> bool:
    found = items(body, "function_call_output")
    if not found:
        return False
    body["input"][found[0]] = {"role": "tool", "content": "1"}
    return True


@mutation("openai", "unknown_field", **OPENAI_ALONE)
def flag_an_output_as_an_error(body: Body) -> bool:
    found = items(body, "function_call_output")
    if not found:
        return False
    body["input"][found[0]]["is_error"] = True
    return True


@mutation("openai", "id", **OPENAI_ALONE)
def lengthen_the_id_of_a_call(body: Body) -> bool:
    found = items(body, "function_call", "function_call_output")
    if not found:
        return False
    body["input"][found[0]]["call_id"] = "call_" + "0" * 60
    return True


@mutation("openai", "tool_schema")
def offer_a_function_without_an_object(body: Body) -> bool:
    tool = next((tool for tool in body.get("tools", ()) if tool["type"] == "function"), None)
    if tool is None:
        return False
    tool["parameters"] = {"type": "array"}
    return True


# --- Chat Completions ----------------------------------------------------------------------------


def said(body: Body, role: str) -> list[int]:
    return [at for at, each in enumerate(body["messages"]) if each["role"] == role]


def asking(body: Body) -> Body | None:
    """The first message with calls."""
    return next((each for each in body["messages"] if each.get("tool_calls")), None)


@mutation("openai-chat", "unanswered", mistral="count")
def drop_a_tool_message(body: Body) -> bool:
    found = said(body, "tool")
    if not found:
        return False
    del body["messages"][found[-1]]
    return True


@mutation("openai-chat", "orphan_result")
def drop_the_message_with_the_calls(body: Body) -> bool:
    message = asking(body)
    if message is None:
        return False
    body["messages"].remove(message)
    return True


@mutation("openai-chat", "answered_twice")
def send_a_tool_message_twice(body: Body) -> bool:
    found = said(body, "tool")
    if not found:
        return False
    body["messages"].insert(found[0], deepcopy(body["messages"][found[0]]))
    return True


@mutation("openai-chat", "other_result")
def give_a_tool_message_another_id(body: Body) -> bool:
    found = said(body, "tool")
    if not found:
        return False
    body["messages"][found[0]]["tool_call_id"] = "call_other"
    return True


@mutation("openai-chat", "other_result", mistral="nine")
def give_a_tool_call_another_id(body: Body) -> bool:
    message = asking(body)
    if message is None:
        return False
    message["tool_calls"][0]["id"] = "call_other"
    return True


@mutation("openai-chat", "unanswered", mistral="count")
def put_a_word_before_a_tool_message(body: Body) -> bool:
    found = said(body, "tool")
    if not found:
        return False
    body["messages"].insert(found[-1], {"role": "user", "content": "Wait."})
    return True


@mutation("openai-chat", "orphan_result")
def swap_the_calls_and_a_tool_message(body: Body) -> bool:
    message, messages = asking(body), body["messages"]
    if message is None:
        return False
    at = messages.index(message)
    messages[at], messages[at + 1] = messages[at + 1], messages[at]
    return True


@mutation("openai-chat", "empty_calls", mistral="orphan_result")
def empty_the_calls(body: Body) -> bool:
    message = asking(body)
    if message is None:
        return False
    message["tool_calls"] = []
    return True


@mutation("openai-chat", "id_twice")
def call_twice_under_one_id(body: Body) -> bool:
    message = asking(body)
    if message is None:
        return False
    message["tool_calls"].append(deepcopy(message["tool_calls"][0]))
    return True


@mutation("openai-chat", "missing_field")
def leave_out_the_id_of_a_tool_message(body: Body) -> bool:
    found = said(body, "tool")
    if not found:
        return False
    del body["messages"][found[0]]["tool_call_id"]
    return True


@mutation("openai-chat", "missing_field")
def leave_out_the_id_of_a_tool_call(body: Body) -> bool:
    message = asking(body)
    if message is None:
        return False
    del message["tool_calls"][0]["id"]
    return True


@mutation("openai-chat", "tool_image")
def put_a_picture_into_a_tool_message(body: Body) -> bool:
    found = said(body, "tool")
    if not found:
        return False
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    body["messages"][found[0]]["content"] = [picture]
    return True


@mutation("openai-chat", "blank")
def blank_what_the_user_says(body: Body) -> bool:
    found = said(body, "user")
    body["messages"][found[0]]["content"] = None
    return True


@mutation("openai-chat", "type", mistral="")
def give_the_arguments_of_a_call_as_an_object(body: Body) -> bool:
    message = asking(body)
    if message is None:
        return False
    message["tool_calls"][0]["function"]["arguments"] = {}
    return True


@mutation("openai-chat", "id", **OPENAI_ALONE)
def lengthen_the_id_of_a_tool_call(body: Body) -> bool:
    message = asking(body)
    if message is None:
        return False
    body["messages"][body["messages"].index(message) + 1]["tool_call_id"] = "c" * 41
    message["tool_calls"][0]["id"] = "c" * 41
    return True


@mutation("openai-chat", "unknown_part", **OPENAI_ALONE)
def send_reasoning_that_is_not_taken_back(body: Body) -> bool:
    message = asking(body)
    if message is None:
        return False
    message["reasoning_content"] = "Hm."
    return True


@mutation("openai-chat", "", deepseek="reasoning_missing")
def leave_out_the_reasoning_beside_calls(body: Body) -> bool:
    message = asking(body)
    if message is None or not message.get("reasoning_content"):
        return False
    del message["reasoning_content"]
    return True


@mutation("openai-chat", "", deepseek="reasoning_modified")
def rewrite_the_reasoning_beside_calls(body: Body) -> bool:
    message = asking(body)
    if message is None or not message.get("reasoning_content"):
        return False
    message["reasoning_content"] += "."
    return True


@mutation("openai-chat", "role")
def give_a_message_a_role_of_another_provider(body: Body) -> bool:
    body["messages"][-1]["role"] = "model"
    return True


@mutation("openai-chat", "tool_name")
def offer_a_tool_with_an_illegal_name(body: Body) -> bool:
    if not body.get("tools"):
        return False
    body["tools"][0]["function"]["name"] = "functions.look"
    return True


@mutation("openai-chat", "tool_schema")
def offer_a_tool_whose_root_is_no_object(body: Body) -> bool:
    if not body.get("tools"):
        return False
    body["tools"][0]["function"]["parameters"] = {"type": "array"}
    return True


@mutation("openai-chat", "tool_choice")
def force_a_function_that_is_not_there(body: Body) -> bool:
    if not body.get("tools"):
        return False
    body["tool_choice"] = {"type": "function", "function": {"name": "nobody"}}
    return True


# --- all of them ---------------------------------------------------------------------------------

KEPT: list[tuple[Exchange, Judge, Body]] = [
    (exchange, judge, exchange.body)
    for path in files(SHARED)
    for exchange, judge in judged(read(path))
    if exchange.asks and exchange.accepted
]
"""Every recorded request that was accepted, with a judge that has seen its whole conversation."""


def broken() -> Iterator[tuple[Exchange, Judge, Mutation, Body]]:
    for exchange, judge, body in KEPT:
        for each in MUTATIONS:
            made = deepcopy(body)
            if each.wire == exchange.wire and each.rule_at(exchange.dialect) and each.breaks(made):
                yield exchange, judge, each, made


BROKEN = list(broken())

recorded = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the recorded exchanges are not at ../shared/wire"
)


@recorded
def test_every_request_that_was_accepted_is_accepted() -> None:
    """P1: unbroken, by the judge of its server."""
    for _, judge, body in KEPT:
        judge.request(body)
    assert len(KEPT) > 100


@recorded
@pytest.mark.parametrize("each", MUTATIONS, ids=[f"{each.wire}-{each.name}" for each in MUTATIONS])
def test_a_broken_conversation_is_refused_for_the_providers_reason(each: Mutation) -> None:
    """P1: wherever the recordings have a place for this way to break one."""
    tried = [(exchange, judge, body) for exchange, judge, which, body in BROKEN if which is each]
    assert tried
    for exchange, judge, body in tried:
        with pytest.raises(Refused) as refused:
            judge.request(body)
        assert refused.value.rule == each.rule_at(exchange.dialect), exchange


@recorded
def test_there_are_at_least_sixty_ways_and_every_kind_of_them() -> None:
    """P1: dropped, duplicated, swapped, given other ids, blanked, signed anew, moved, over three wires."""
    assert len(MUTATIONS) >= 60
    assert {each.wire for each in MUTATIONS} == {"anthropic", "openai", "openai-chat"}
    assert len(BROKEN) > 600
