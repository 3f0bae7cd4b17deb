"""The second opinion: every rule has a request that breaks it alone."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.messages import Block, Media, Message, Opaque, Status, Text, ToolResult, ToolUse
from remit.models.base import ToolSpec
from remit.testing import InvalidRequest, RequestValidator, prefix_of, validate_request
from remit.transcript import Transcript

HELLO = Text("hello")
PNG = Media("image/png", b"\x89PNG")
THINKING = Opaque("anthropic", b'{"type":"thinking"}')


def user(*content: Block) -> Message:
    return Message("user", content)


def model(*content: Block) -> Message:
    return Message("assistant", content)


def use(use_id: str, name: str = "search", arguments: str = "{}") -> ToolUse:
    return ToolUse(use_id, name, arguments)


def result(use_id: str, *content: Text | Media) -> ToolResult:
    return ToolResult(use_id, content or (Text("found"),))


def spec(name: str = "search", **root: str) -> ToolSpec:
    return ToolSpec(name, "Search.", root or {"type": "object"})


VALID: dict[str, list[Message]] = {
    "a question": [user(HELLO)],
    "text and image": [user(HELLO, PNG)],
    "a conversation": [user(HELLO), model(HELLO), user(HELLO)],
    "queued input in a message of its own": [user(HELLO), user(HELLO)],
    "one call": [user(HELLO), model(use("a")), user(result("a"))],
    "two calls": [user(HELLO), model(use("a"), use("b")), user(result("a"), result("b"))],
    "a call with words": [user(HELLO), model(THINKING, HELLO, use("a")), user(result("a"), HELLO)],
    "an image as result": [user(HELLO), model(use("a")), user(result("a", PNG))],
    "unreadable arguments": [user(HELLO), model(use("a", "search", '{"q":')), user(result("a"))],
    "a failed call": [
        user(HELLO),
        model(use("a")),
        user(ToolResult("a", (Text("Error"),), is_error=True, status=Status.UNKNOWN)),
    ],
    "a paused turn": [user(HELLO), model(HELLO, THINKING)],
    "a paused turn that went on": [user(HELLO), model(THINKING), model(HELLO), user(HELLO)],
    "letters of the world": [user(Text("grüße, 你好 🎉"))],
}

INVALID: dict[str, tuple[str, int, list[Message]]] = {
    "no messages": ("no_messages", 0, []),
    "the model speaks first": ("first_role", 0, [model(HELLO), user(HELLO)]),
    "a finished turn at the end": ("role_order", 1, [user(HELLO), model(HELLO)]),
    "two finished turns in a row": (
        "role_order",
        1,
        [user(HELLO), model(HELLO), model(HELLO), user(HELLO)],
    ),
    "a message without content": ("empty_message", 0, [user()]),
    "an empty text": ("blank", 0, [user(Text(""))]),
    "a blank text": ("blank", 0, [user(Text(" \n"))]),
    "a blank text beside another": ("blank", 1, [user(HELLO), model(Text(" "), use("a"))]),
    "an empty image": ("blank", 0, [user(Media("image/png", b""))]),
    "an empty opaque block": ("blank", 1, [user(HELLO), model(Opaque("anthropic", b""))]),
    "a call of no tool": ("blank", 1, [user(HELLO), model(use("a", ""))]),
    "an empty result": ("blank", 2, [user(HELLO), model(use("a")), user(ToolResult("a", ()))]),
    "a blank result": ("blank", 2, [user(HELLO), model(use("a")), user(result("a", Text("")))]),
    "a call of the user": ("wrong_place", 0, [user(use("a"))]),
    "an empty opaque block of the user": ("blank", 0, [user(Opaque("anthropic", b""))]),
    "a result of the model": ("wrong_place", 1, [user(HELLO), model(result("a"))]),
    "an image of the model": ("wrong_place", 1, [user(HELLO), model(PNG)]),
    "a call that is open": ("unanswered", 1, [user(HELLO), model(use("a"))]),
    "a call in a paused turn": ("unanswered", 1, [user(HELLO), model(THINKING, use("a"))]),
    "a call that is passed over": ("unanswered", 2, [user(HELLO), model(use("a")), user(HELLO)]),
    "a call that the model passes over": (
        "unanswered",
        2,
        [user(HELLO), model(use("a")), model(HELLO), user(HELLO)],
    ),
    "one of two calls answered": (
        "unanswered",
        2,
        [user(HELLO), model(use("a"), use("b")), user(result("b"))],
    ),
    "a result one message too late": (
        "unanswered",
        2,
        [user(HELLO), model(use("a")), user(HELLO), user(result("a"))],
    ),
    "results in two messages": (
        "unanswered",
        2,
        [user(HELLO), model(use("a"), use("b")), user(result("a")), user(result("b"))],
    ),
    "a result of nothing": ("orphan_result", 0, [user(result("a"))]),
    "a result too many": (
        "orphan_result",
        2,
        [user(HELLO), model(use("a")), user(result("a"), result("b"))],
    ),
    "a result of an older call": (
        "orphan_result",
        4,
        [user(HELLO), model(use("a")), user(result("a")), model(use("b")), user(result("a"))],
    ),
    "two results for one call": (
        "answered_twice",
        2,
        [user(HELLO), model(use("a")), user(result("a"), result("a"))],
    ),
    "results in order of completion": (
        "result_order",
        2,
        [user(HELLO), model(use("a"), use("b")), user(result("b"), result("a"))],
    ),
    "words before the results": (
        "result_place",
        2,
        [user(HELLO), model(use("a")), user(HELLO, result("a"))],
    ),
    "an id twice in a turn": ("id_twice", 1, [user(HELLO), model(use("a"), use("a"))]),
    "an id twice in a conversation": (
        "id_twice",
        3,
        [user(HELLO), model(use("a")), user(result("a")), model(use("a")), user(result("a"))],
    ),
    "no id": ("id", 1, [user(HELLO), model(use(""))]),
    "an id with a colon": ("id", 1, [user(HELLO), model(use("search:0"))]),
    "an id with a newline": ("id", 1, [user(HELLO), model(use("a\n"))]),
    "an id of 65 characters": ("id", 1, [user(HELLO), model(use("a" * 65))]),
    "half a character": ("surrogate", 0, [user(Text("\ud83d"))]),
    "half a character in a result": (
        "surrogate",
        2,
        [user(HELLO), model(use("a")), user(result("a", Text("grüße \udc00")))],
    ),
    "half a character in arguments": (
        "surrogate",
        1,
        [user(HELLO), model(use("a", arguments='{"q":"\ud83d"}'))],
    ),
    "a NUL": ("nul", 0, [user(Text("a\0b"))]),
    "a NUL in a tool's name": ("nul", 1, [user(HELLO), model(use("a", "sea\0rch"))]),
}


@pytest.mark.parametrize("messages", VALID.values(), ids=VALID.keys())
def test_what_providers_take_is_taken(messages: list[Message]) -> None:
    """T1: what is whole is not refused by mistake."""
    validate_request(messages, (spec(), spec("other")))


@pytest.mark.parametrize(("rule", "position", "messages"), INVALID.values(), ids=INVALID.keys())
def test_what_providers_refuse_is_refused_by_name(
    rule: str, position: int, messages: list[Message]
) -> None:
    """T1, T3, C4: every broken request names its rule and its place."""
    with pytest.raises(InvalidRequest) as caught:
        validate_request(messages)
    assert (caught.value.rule, caught.value.position) == (rule, position)


@pytest.mark.parametrize(
    ("rule", "tools"),
    [
        ("tool_twice", [spec(), spec()]),
        ("tool_name", [spec("")]),
        ("tool_name", [spec("shop\nsearch")]),
        ("tool_name", [spec("a" * 129)]),
        ("tool_schema", [spec(type="array")]),
    ],
)
def test_tools_that_no_provider_takes_are_refused(rule: str, tools: list[ToolSpec]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_request([user(HELLO)], tools)
    assert (caught.value.rule, caught.value.position) == (rule, None)


EXCHANGES = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def conversation(exchanges: Sequence[int]) -> list[Message]:
    """A valid one: for each number, a turn with so many calls, and what answers it."""
    messages = [user(HELLO)]
    for turn, calls in enumerate(exchanges):
        ids = [f"call_{turn}_{i}" for i in range(calls)]
        messages.append(model(HELLO, *map(use, ids)))
        messages.append(user(*map(result, ids)) if ids else user(HELLO))
    return messages


@given(EXCHANGES)
def test_it_agrees_with_the_transcript_on_what_is_whole(exchanges: list[int]) -> None:
    """T1: two validators, written apart, take the same histories."""
    messages = conversation(exchanges)
    Transcript(messages)
    validate_request(messages)


@given(EXCHANGES, st.data())
def test_a_conversation_with_a_message_missing_or_moved_is_refused(
    exchanges: list[int], data: st.DataObject
) -> None:
    """T1: no single message with calls or results can go, and no two can change places."""
    messages = conversation([*exchanges, 2])
    answered = [i for i, message in enumerate(messages) if message.tool_uses]
    place = data.draw(st.sampled_from(answered))
    broken = list(messages)
    match data.draw(st.sampled_from(["no call", "no results", "swapped", "reversed"])):
        case "no call":
            del broken[place]
        case "no results":
            del broken[place + 1]
        case "swapped":
            broken[place : place + 2] = reversed(broken[place : place + 2])
        case _:
            broken[-1] = user(*reversed(broken[-1].content))
    with pytest.raises(InvalidRequest):
        validate_request(broken)


@given(EXCHANGES, st.data())
def test_a_validator_that_remembers_says_the_same_as_a_fresh_one(
    exchanges: list[int], data: st.DataObject
) -> None:
    """T1: what was passed before changes no verdict, whatever comes in between."""
    whole = conversation(exchanges)
    valid = [whole[:length] for length in range(1, len(whole) + 1, 2)]
    requests = st.sampled_from([*valid, whole[:2], [*whole, *whole], [*whole, user(result("x"))]])
    remembering = RequestValidator()
    for messages in data.draw(st.lists(requests, max_size=8)):
        assert verdict(remembering, messages) == verdict(RequestValidator(), messages)


def verdict(validator: RequestValidator, messages: list[Message]) -> str | None:
    try:
        validator.check(messages)
    except InvalidRequest as fault:
        return str(fault)
    return None


def test_a_validator_looks_at_a_message_once() -> None:
    """J1: counted work - each request costs its new messages."""
    looked: list[str] = []

    class Watched(str):
        __slots__ = ()

        def isascii(self) -> bool:
            looked.append(str(self))
            return super().isascii()

    messages = [user(Text(Watched("q")))]
    validator = RequestValidator()
    for turn in range(5):
        validator.check(messages)
        messages += [model(use(f"call_{turn}")), user(result(f"call_{turn}", Text(Watched(turn))))]
    assert looked == ["q", "0", "1", "2", "3"]


@given(EXCHANGES, st.integers(1, 13))
def test_a_history_that_only_grows_is_a_prefix(exchanges: list[int], length: int) -> None:
    """X1: equal messages are a prefix, whether or not they are the same objects."""
    later = conversation(exchanges)
    assert prefix_of(later[:length], later)
    assert prefix_of(conversation(exchanges)[:length], later)


def test_an_edited_or_shortened_history_is_no_prefix() -> None:
    """X1: one byte is enough."""
    messages = conversation([1, 0])
    assert not prefix_of(messages, messages[:-1])
    for place, message in enumerate(messages):
        edited = [*messages]
        edited[place] = replace(message, content=(*message.content, Text(".")))
        assert not prefix_of(messages, edited)
