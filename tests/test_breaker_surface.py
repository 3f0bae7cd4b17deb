"""The public surface as a stranger meets it: wrong calls, and what models and tools hand over that is no value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

import remit
from loop_rig import LIMITS, desk, results, runtime, said, statuses
from remit import (
    Call,
    Computed,
    ConfigurationError,
    Confirm,
    Decision,
    Event,
    Limits,
    Media,
    MemoryStore,
    Message,
    ModelProfile,
    ModelUnavailable,
    Opaque,
    Price,
    Reason,
    Refuse,
    Remit,
    Reply,
    Settings,
    StopReason,
    Text,
    Tool,
    ToolResult,
    ToolUse,
    Transcript,
    TranscriptError,
    Usage,
    Veto,
)
from remit.models.base import BlockDone, ModelRequest, TextDelta
from remit.rules import validate
from remit.testing import ScriptedModel, run_virtual, validate_request

ROOT = Path(__file__).resolve().parent.parent


def wrong(**arguments: Any) -> Any:
    """Arguments that the type checker would refuse before they are given."""
    return arguments


ANY: Any = None
"""Stands where the type checker would see the mistake before it is made."""


@remit.tool(effect="read")
async def look(a: int = 0) -> int:
    """Look."""
    return a


@remit.tool(effect="confirm")
async def pay(a: int = 0) -> int:
    """Pay."""
    return a


async def none_of_them() -> None:
    """Takes nothing."""


async def two_of_them(first: object, second: object) -> None:
    """Takes two."""


# Wrong calls


@pytest.mark.parametrize(
    "given",
    [{}, {"steps": 1}, {"steps": 1, "tokens": 1}, {"step": 1, "tokens": 1, "seconds": 1}],
)
def test_limits_that_are_left_out_are_asked_for_with_an_example(given: dict[str, Any]) -> None:
    """L1: nothing is unlimited, and whoever forgets it hears how a limit is written."""
    with pytest.raises(ConfigurationError, match=r"Limits\(steps=12, tokens=60_000, seconds=45\)"):
        Limits(**given)


def test_an_error_inside_a_constructor_is_not_taken_for_a_wrong_call() -> None:
    """L1: only what the call itself lacks is told as such."""

    class Odd(int):
        def __le__(self, other: object) -> bool:
            raise TypeError("from inside")

    with pytest.raises(TypeError, match="from inside"):
        Limits(steps=Odd(1), tokens=1, seconds=1)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("limits", ..., "limits"),
        ("model", ..., "model"),
        ("name", ..., "name"),
        ("tool", [look], "tool"),
        ("limits", {"steps": 1}, r"remit\.Limits"),
        ("name", "", "name="),
        ("name", 3, "name="),
        ("name", "\ud800", "name="),
        ("name", "a\nb", "name="),
        ("model", "nonesuch:claude", "nonesuch"),
        ("model", ScriptedModel, "class ScriptedModel"),
        ("model", None, "model="),
        ("tools", look, r"tools=\[\.\.\.\]"),
        ("tools", lambda: 1, r"tools=\[\.\.\.\]"),
        ("tools", None, "tools="),
        ("deps_type", "Shop", "deps_type="),
        ("policy", 3, "policy="),
        ("policy", none_of_them, "policy="),
        ("policy", two_of_them, "policy="),
        ("policy", [lambda request: request], "policy="),
        ("guards", none_of_them, "guards="),
        ("guards", (none_of_them,), "guards="),
        ("guards", (two_of_them,), "guards="),
        ("guards", ("guard",), "guards="),
        ("confirm", True, "confirm="),
        ("confirm", none_of_them, "confirm="),
        ("notes", lambda: "x", "notes="),
        ("notes", ("x",), "notes="),
        ("notes", (two_of_them,), "notes="),
        ("stop_when", True, "stop_when="),
        ("stop_when", none_of_them, "stop_when="),
        ("stop_when", two_of_them, "stop_when="),
        ("store", "x.db", "did you mean sqlite:///x.db"),
        ("store", None, "store="),
        ("store", MemoryStore, "store="),
        ("instructions", 3, "instructions="),
        ("instructions", two_of_them, "instructions="),
        ("instructions", none_of_them, "async"),
        ("settings", {"max_output": 3}, "settings="),
        ("settings", Settings(tool_choice="nonesuch"), "nonesuch"),
        ("runtime", None, "runtime="),
    ],
)
def test_a_part_that_a_remit_cannot_be_made_of_is_refused_by_name(
    part: str, value: Any, words: str
) -> None:
    """C8: what stands before every call is known to be callable before anything is sent."""
    parts: dict[str, Any] = {"name": "n", "model": ScriptedModel([["hi"]]), "limits": LIMITS}
    parts[part] = value
    with pytest.raises(ConfigurationError, match=words):
        Remit(**{name: given for name, given in parts.items() if given is not ...})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Settings(max_output=0),
        lambda: Settings(max_output=-3),
        lambda: Settings(thinking=cast("int", 1.5)),
        lambda: Settings(**wrong(max_tokens=3)),
        lambda: Price(input=cast("Decimal", 3.0), output=Decimal(1)),
        lambda: Price(input=Decimal("NaN"), output=Decimal(1)),
        lambda: Decision(True, cast("str", 3)),
        lambda: Decision(False, "me", cast("str", 3)),
        lambda: Refuse(ANY),
        lambda: Confirm(ANY),
        lambda: Veto(ANY),
        lambda: Computed(ANY),
    ],
)
def test_a_value_that_says_nothing_usable_is_refused_where_it_is_made(
    make: Callable[[], object],
) -> None:
    """E5, L2: nothing that is recorded, charged or shown is of another type than it says."""
    with pytest.raises(ConfigurationError):
        make()


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "5"},
        {"timeout": None},
        {"timeout": True},
        {"timeout": 10**400},
        {"retries": "2"},
        {"retries": 1.5},
        {"retries": float("inf")},
        {"resource": 3},
        {"resource": [3]},
        {"resource": {"a"}},
        {"max_result_tokens": "900"},
        {"max_result_tokens": 99.5},
        {"tokens": 1.5},
        {"tokens": "1"},
        {"effect": "confirm", "expires": "60"},
        {"effect": "confirm", "expires": 1e300},
        {"name": 3},
        {"description": 3},
        {"effect": "write"},
    ],
)
def test_a_tool_option_of_the_wrong_kind_is_refused_at_the_definition(
    options: dict[str, Any],
) -> None:
    """C1: a tool that could only fail later is no tool."""

    def body() -> None:
        """Do nothing."""

    with pytest.raises(ConfigurationError) as refused:
        remit.tool(**wrong(**{"effect": "read", **options}))(body)
    assert "<" not in str(refused.value), "no repr of remit's own objects"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tool.from_schema(
            name="a", description="b", parameters=ANY, handler=look, effect="read"
        ),
        lambda: Tool.from_schema(
            name="a", description="b", parameters={}, handler=ANY, effect="read"
        ),
        lambda: Tool.from_schema(
            name="a", description=cast("str", 3), parameters={}, handler=look, effect="read"
        ),
        lambda: pay.summary(ANY),
        lambda: pay.reconcile(ANY),
        lambda: desk([["x"]]).as_tool("a", "b", limits=ANY),
    ],
)
def test_what_is_no_function_schema_or_limit_is_refused_at_the_definition(
    make: Callable[[], object],
) -> None:
    """C1: the same for tools that bring their own schema, and for what is added to a tool."""
    with pytest.raises(ConfigurationError):
        make()


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        3,
        [],
        ["a"],
        [Text("a")],
        b"x",
        ("a",),
        {"role": "user"},
        Message("user", (Text("x"),)),
        Text(cast("str", None)),
        Media("image/png", cast("bytes", "x")),
        Media("", b"x"),
        Media("image/png", b""),
        ToolUse("a", "b", "{}"),
        Opaque("a", b"x"),
        (Text("a"), ToolResult("x", (Text("y"),))),
    ],
)
def test_a_prompt_of_another_kind_is_refused_and_no_run_is_opened(prompt: Any) -> None:
    """E8: an id is not spent on a start that was none; T5: nor does a live run take it."""

    async def main() -> None:
        support = desk([["hi"]] * 3)
        with pytest.raises(ConfigurationError, match="prompt"):
            await support.run(prompt, run_id="x")
        assert await support.store.info("x") is None
        async with support.stream("go") as live:
            with pytest.raises(ConfigurationError, match="prompt"):
                live.send(prompt)
        assert live.outcome.completed

    run_virtual(main())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run_id": ""}, "run_id="),
        ({"run_id": 3}, "run_id="),
        ({"run_id": "\ud800"}, "run_id="),
        ({"run_id": "a\nb"}, "run_id="),
        ({"run_id": "a" * 100_000}, "run_id="),
        ({"limits": {}}, "limits="),
        ({"limits": 3}, "limits="),
        ({"model": 3}, "model="),
        ({"model": "gpt"}, "gpt"),
        ({"model": ""}, "PREFIX:NAME"),
        ({"settings": {}}, "settings="),
        ({"settings": Settings(tool_choice="nonesuch")}, "nonesuch"),
        ({"tags": {"a": 3}}, "tags="),
        ({"tags": ["a"]}, "tags="),
        ({"history": []}, "history="),
    ],
)
def test_an_option_of_a_run_is_checked_before_the_run_is_opened(
    options: dict[str, Any], words: str
) -> None:
    """E8: a wrong start leaves nothing behind."""

    async def main() -> None:
        support = desk([["hi"]])
        with pytest.raises(ConfigurationError, match=words):
            await support.run("x", **options)
        assert support.live_runs == ()
        assert (await support.run("x")).completed

    run_virtual(main())


def failing(deps: Any) -> str:
    return deps.name


def numeric(deps: Any) -> str:
    return cast("str", 3)


@pytest.mark.parametrize(("instructions", "words"), [(failing, "deps="), (numeric, "int")])
def test_instructions_that_cannot_be_evaluated_say_what_the_run_lacks(
    instructions: Callable[[Any], str], words: str
) -> None:
    """E8: the deps that a run was not given are asked for by name."""

    async def main() -> None:
        with pytest.raises(ConfigurationError, match=words):
            await desk([["hi"]], instructions=instructions).run("x")

    run_virtual(main())


def test_a_token_that_is_no_text_is_a_wrong_call() -> None:
    """E5: it is not looked up."""

    async def main() -> None:
        with pytest.raises(ConfigurationError, match="token"):
            await desk([["hi"]]).decide(cast("str", 3), approve=True, by="me")

    run_virtual(main())


async def says_true(pending: object) -> Decision:
    return cast("Decision", True)


async def breaks(pending: object) -> Decision:
    raise RuntimeError("boom")


@pytest.mark.parametrize(("confirm", "why"), [(says_true, "bool"), (breaks, "boom")])
def test_a_confirm_callback_that_decides_nothing_leaves_the_call_open_and_is_told(
    confirm: Callable[[object], Awaitable[Decision]], why: str
) -> None:
    """E5: True is no approval; whoever wrote the callback hears of it, not only the one who waits."""

    async def main() -> list[Event]:
        support = desk([[("pay", {})], ["done"]], [pay], confirm=confirm)
        async with support.stream("go") as live:
            events = [event async for event in live]
        assert live.outcome.reason is Reason.WAITING
        return events

    told = [event for event in run_virtual(main()) if event.kind == "confirm_failed"]
    assert len(told) == 1
    assert why in told[0].fields["error"]


# What a model says


class Garbled:
    """Says what it is told to, whatever it is, then one good reply."""

    name = "garbled"
    profile = ModelProfile(price=Price(input=Decimal(3), output=Decimal(15)))

    def __init__(self, chunks: Sequence[Any], *, good_after: int = 100) -> None:
        self.chunks = chunks
        self.good_after = good_after
        self.asked = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:  # noqa: ARG002 - the protocol's
        self.asked += 1
        if self.asked > self.good_after:
            yield reply(Text("fine"))
            return
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def reply(
    *blocks: Any, role: Any = "assistant", stop: Any = StopReason.END_TURN, **rest: Any
) -> Reply:
    return Reply(
        Message(role, blocks), stop, **wrong(**{"usage": Usage(input=10, output=5), **rest})
    )


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


GARBAGE: dict[str, list[Any]] = {
    "a bare text": ["hello", reply(Text("a"))],
    "nothing as a chunk": [None, reply(Text("a"))],
    "a delta without text": [TextDelta(ANY), reply(Text("a"))],
    "a block that is none": [BlockDone(ANY), reply(Text("a"))],
    "the user's reply": [reply(Text("a"), role="user")],
    "a text without text": [reply(Text(ANY))],
    "parsed arguments": [reply(ToolUse("x", "look", cast("str", {})), stop=StopReason.TOOL_USE)],
    "streamed parsed arguments": [BlockDone(ToolUse("x", "look", cast("str", {})))],
    "no id": [reply(ToolUse(ANY, "look", "{}"), stop=StopReason.TOOL_USE)],
    "no name": [reply(ToolUse("x", ANY, "{}"), stop=StopReason.TOOL_USE)],
    "a result": [reply(Text("a"), ToolResult("x", (Text("y"),)))],
    "media": [reply(Media("image/png", b"x"))],
    "an opaque text": [reply(Opaque("m", cast("bytes", "x")))],
    "no message": [Reply(ANY, StopReason.END_TURN)],
    "a list of blocks": [
        Reply(Message("assistant", cast("Any", [Text("a")])), StopReason.END_TURN)
    ],
    "a bare stop reason": [reply(Text("a"), stop="end_turn")],
    "no stop reason": [reply(Text("a"), stop=None)],
    "negative usage": [reply(Text("a"), usage=Usage(input=-10))],
    "broken usage": [reply(Text("a"), usage=Usage(input=cast("int", 1.5)))],
    "no count": [reply(Text("a"), usage=Usage(input=ANY))],
    "usage as a dict": [reply(Text("a"), usage={"input": 3})],
    "usage beyond counting": [reply(Text("a"), usage=Usage(input=10**30))],
    "a float of dollars": [reply(Text("a"), usd=0.5)],
    "negative dollars": [reply(Text("a"), usd=Decimal(-1))],
    "dollars that are none": [reply(Text("a"), usd=Decimal("NaN"))],
    "an error with negative usage": [ModelUnavailable("x", usage=Usage(input=-5))],
    "an error with no usage": [ModelUnavailable("x", usage=cast("Usage", 3))],
    "an error that asks for no time": [ModelUnavailable("x", retry_after=cast("float", "5"))],
    "an error that asks for eternity": [ModelUnavailable("x", retry_after=float("nan"))],
    "an error that cannot be read": [Unspeakable()],
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_what_a_model_garbles_is_the_models_failure_and_never_an_error_inside(kind: str) -> None:
    """C1, L2: it is charged, tried again where that may help, and told as `model_failed`."""

    async def main() -> None:
        model = Garbled(GARBAGE[kind])
        support = Remit(name="n", model=model, limits=LIMITS, tools=[look], runtime=runtime())
        outcome = await support.run("go")
        assert outcome.reason is Reason.MODEL_FAILED, outcome.error
        assert outcome.spend.tree.tokens > 0
        assert len(outcome.transcript) == 1

    run_virtual(main())


def test_a_reply_that_comes_out_right_at_the_second_try_is_taken() -> None:
    """E7: garbage costs an attempt and not the run."""

    async def main() -> None:
        model = Garbled(GARBAGE["a bare text"], good_after=1)
        support = Remit(name="n", model=model, limits=LIMITS, runtime=runtime())
        outcome = await support.run("go")
        assert (outcome.reason, outcome.text) == (Reason.COMPLETED, "fine")

    run_virtual(main())


def test_a_call_without_a_name_is_answered_like_one_of_an_unknown_tool() -> None:
    """C1: it does not end the run, and what is kept of it can be sent."""

    async def main() -> None:
        support = desk([ToolUse("x", "", "{}"), "done"], [look])
        outcome = await support.run("go")
        assert outcome.completed
        assert statuses(outcome) == ["error"]
        assert "no tool" in said(outcome)[0]

    run_virtual(main())


# What a tool returns


class NoClass:
    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - hostile on purpose
        raise RuntimeError("none of your business")


UNSEEN: dict[str, Callable[[], Any]] = {
    "an object that hides its class": NoClass,
    "media of text": lambda: Media("image/png", cast("bytes", "x")),
    "media of nothing": lambda: Media(ANY, ANY),
    "media with a number for a name": lambda: [Media("image/png", b"x", cast("str", 3))],
}


@pytest.mark.parametrize("kind", UNSEEN)
@pytest.mark.parametrize("blocking", [False, True])
def test_a_value_that_cannot_be_looked_at_is_an_error_result(kind: str, blocking: bool) -> None:
    """C1, C4: the run goes on."""

    async def awaited() -> Any:
        return UNSEEN[kind]()

    def blocked() -> Any:
        return UNSEEN[kind]()

    async def main() -> None:
        odd = remit.tool(effect="read", name="odd")(blocked if blocking else awaited)
        outcome = await desk([[("odd", {}), ("look", {"a": 7})], ["done"]], [odd, look]).run("go")
        assert outcome.completed, outcome.error
        assert statuses(outcome) == ["error", "ok"]

    run_virtual(main())


@pytest.mark.parametrize("message", [3, ["half"], NoClass])
def test_whatever_a_tool_reports_as_progress_is_told_as_text(message: Any) -> None:
    """C1: an event stays JSON, and the report does not fail the work."""

    @remit.tool(effect="read")
    async def telling(call: Call) -> int:
        """Tell."""
        call.progress(message)
        return 1

    async def main() -> list[Event]:
        async with desk([[("telling", {})], ["done"]], [telling]).stream("go") as live:
            events = [event async for event in live]
        assert statuses(live.outcome) == ["ok"]
        return events

    told = [event for event in run_virtual(main()) if event.kind == "call_progress"]
    assert [event.fields["message"] for event in told] == [str(message)]


def test_a_guard_whose_answer_cannot_be_looked_at_has_not_passed() -> None:
    """case 33: a check that failed is a veto, however it failed."""

    async def odd(transcript: Transcript) -> Veto | None:
        await asyncio.sleep(0)
        return cast("Veto", NoClass())

    async def main() -> None:
        outcome = await desk([["hi"]], guards=(odd,)).run("go")
        assert outcome.reason is Reason.VETOED

    run_virtual(main())


# Histories


def test_nothing_that_is_blank_or_out_of_place_gets_into_a_history() -> None:
    """T6: a history that passes is one that a provider takes."""
    said = Message("user", (Text("x"),))
    for wrong in (
        Message("user", (Media("image/png", b""),)),
        Message("assistant", (Opaque("m", b""),)),
        Message("assistant", (Media("image/png", b"x"),)),
        Message("assistant", (ToolUse("a", "", "{}"),)),
    ):
        with pytest.raises(TranscriptError):
            validate([said, wrong])
        mended = Transcript.load([said.to_json(), wrong.to_json()])
        assert mended.report
        closed = mended.closed()
        closed.say(Text("go on"))
        validate_request(list(closed))


def test_a_reply_that_holds_media_is_not_appended() -> None:
    """T6: no provider takes it back."""
    transcript = Transcript([Message("user", (Text("x"),))])
    with pytest.raises(TranscriptError):
        transcript.add_reply(Message("assistant", (Media("image/png", b"x"),)))
    assert len(transcript) == 1


def test_the_call_is_typed_by_its_deps_in_a_tool_of_its_own_schema() -> None:
    """C2: the handler gets the arguments as a dict and, since it asks for it, the call."""

    async def handler(arguments: dict[str, Any], call: Call[str]) -> str:
        return f"{call.deps}: {arguments['a']}"

    own = Tool.from_schema(
        name="own",
        description="Own.",
        parameters={"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        handler=handler,
        effect="read",
    )

    async def main() -> None:
        outcome = await desk([[("own", {"a": 1})], ["done"]], [own]).run("go", deps="me")
        assert [result.text for result in results(outcome)] == ["me: 1"]

    run_virtual(main())


def test_the_map_of_the_source_names_every_room() -> None:
    """The table in CONTRIBUTING and the package name the same modules."""
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    named = {line.split("`")[1] for line in lines if line.startswith("| `")}
    there = {
        path.stem
        for path in (ROOT / "src" / "remit").iterdir()
        if path.is_dir() or path.suffix == ".py"
    }
    assert named == there - {"__init__", "__main__", "__pycache__"}
