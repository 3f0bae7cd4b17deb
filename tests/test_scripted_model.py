"""The model of tests: what a script may say, how it arrives, and that it keeps the contract."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from decimal import Decimal
from typing import Any, TypeVar
from unittest import SkipTest

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import remit as rm
from remit.errors import ConfigurationError, ModelRejected, ModelUnavailable
from remit.messages import Message, Opaque, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import (
    BlockDone,
    Chunk,
    Model,
    ModelProfile,
    ModelRequest,
    Settings,
    TextDelta,
    ToolSpec,
)
from remit.models.scripted import Item, Script
from remit.testing import ModelConformance, ScriptedModel, Step, run_virtual
from remit.transcript import Transcript

T = TypeVar("T")

SEARCH = ToolSpec("search", "Search.", {"type": "object", "properties": {"q": {"type": "string"}}})


def asked(text: str = "hello") -> Transcript:
    transcript = Transcript()
    transcript.say(Text(text))
    return transcript


def request(transcript: Transcript | None = None) -> ModelRequest:
    return ModelRequest(
        "Be short.", transcript or asked(), (SEARCH,), Settings(), 1_024, deadline=math.inf
    )


def ask(model: Model, transcript: Transcript | None = None) -> list[Chunk]:
    async def main() -> list[Chunk]:
        return [chunk async for chunk in model.stream(request(transcript))]

    return run_virtual(main)


def reply(model: Model, transcript: Transcript | None = None) -> Reply:
    last = ask(model, transcript)[-1]
    assert isinstance(last, Reply)
    return last


def said(item: Item) -> Reply:
    return reply(ScriptedModel([item]))


def answer(transcript: Transcript, content: str = "found") -> None:
    """Answer all that is owed, as a loop does."""
    with transcript.answering() as answering:
        for slot in answering.slots:
            slot.settle((Text(content),))


# --- what a script may say -----------------------------------------------------------------------


def test_a_text_is_a_final_turn() -> None:
    assert said("done") == Reply(
        Message("assistant", (Text("done"),)), StopReason.END_TURN, said("done").usage
    )


@pytest.mark.parametrize(
    "item",
    [
        ("search", {"q": "x"}),
        [("search", {"q": "x"})],
        ("search", '{"q":"x"}'),
        ToolUse("call_1_0", "search", '{"q":"x"}'),
        (ToolUse("call_1_0", "search", '{"q":"x"}'),),
        Message("assistant", (ToolUse("call_1_0", "search", '{"q":"x"}'),)),
        Step(("search", {"q": "x"})),
        lambda _: ("search", {"q": "x"}),
    ],
)
def test_a_call_may_be_written_in_many_ways(item: Item) -> None:
    made = said(item)
    assert made.message.content == (ToolUse("call_1_0", "search", '{"q":"x"}'),)
    assert made.stop_reason is StopReason.TOOL_USE


def test_texts_and_calls_stand_in_the_order_of_the_script() -> None:
    made = said(["first", ("search", {}), ToolUse("mine", "search", "{}"), ("search", "{"), "last"])
    assert made.message.content == (
        Text("first"),
        ToolUse("call_1_0", "search", "{}"),
        ToolUse("mine", "search", "{}"),
        ToolUse("call_1_1", "search", "{"),
        Text("last"),
    )
    assert made.stop_reason is StopReason.TOOL_USE


def test_numbers_in_arguments_keep_their_digits() -> None:
    (use,) = said(("refund", {"amount": Decimal("5.00")})).message.tool_uses
    assert use.arguments == '{"amount":5.00}'


def test_two_texts_are_no_call() -> None:
    assert said(["search", "me"]).message.content == (Text("search"), Text("me"))


@pytest.mark.parametrize("item", ["", [], Step()])
def test_an_empty_turn_has_no_content_at_all(item: Item) -> None:
    made = said(item)
    assert made.message.content == ()
    assert made.stop_reason is StopReason.END_TURN


def test_a_reply_is_given_as_it_stands() -> None:
    whole = Reply(
        Message("assistant", (Text("no"),)), StopReason.REFUSAL, Usage(1, 2, 3, 4), Decimal("0.1")
    )
    assert said(whole) == whole
    assert said(replace(whole, usage=None)).usage is None


def test_a_step_says_why_it_stopped_and_what_it_cost() -> None:
    made = said(Step("cut", stop_reason=StopReason.LENGTH, usage=Usage(output=9), usd=Decimal(1)))
    assert made.stop_reason is StopReason.LENGTH
    assert made.usage == Usage(output=9)
    assert made.usd == 1


def test_a_paused_turn_can_be_continued() -> None:
    """T1: a provider continues only a turn with a block of its own tool, so it gets one."""
    model = ScriptedModel([Step("let me see", stop_reason=StopReason.PAUSE), "done"])
    transcript = asked()
    paused = reply(model, transcript)
    assert [type(block) for block in paused.message.content] == [Text, Opaque]
    transcript.add_reply(paused.message)
    assert reply(model, transcript).message.text == "done"


def test_an_error_is_raised() -> None:
    model = ScriptedModel([ModelUnavailable("later", retry_after=3), "done"])
    with pytest.raises(ModelUnavailable, match="later"):
        ask(model)
    assert reply(model).message.text == "done"


def test_an_item_may_be_a_function_of_the_transcript() -> None:
    def echo(transcript: Transcript) -> Item:
        return lambda _: transcript.messages[-1].text.upper()

    assert reply(ScriptedModel([echo]), asked("quiet")).message.text == "QUIET"


def test_a_whole_script_may_be_a_function() -> None:
    def script(transcript: Transcript, request: ModelRequest) -> Item:
        return f"{len(transcript)} messages, {len(request.tools)} tool"

    model = ScriptedModel(script)
    assert [reply(model).message.text for _ in range(3)] == ["1 messages, 1 tool"] * 3


def test_a_list_is_used_up_by_whoever_asks() -> None:
    model = ScriptedModel(["one", "two"])
    assert [reply(model, asked(text)).message.text for text in "ab"] == ["one", "two"]
    with pytest.raises(ModelRejected, match="the script is over: request 3 of a script of 2"):
        ask(model)
    assert model.asked == 3


def test_a_script_that_is_one_text_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        ScriptedModel("done")


def test_a_script_that_is_changed_later_stays_what_it_was() -> None:
    script: list[Item] = ["one"]
    model = ScriptedModel(script)
    script[0] = "two"
    assert reply(model).message.text == "one"


@given(st.lists(st.integers(1, 3), max_size=6))
def test_ids_are_unique_in_a_transcript_and_the_same_every_time(batches: list[int]) -> None:
    """T3: a resumed run with a new model object meets no id again."""

    def play(models: Callable[[Item], Model]) -> Transcript:
        transcript = asked()
        for calls in batches:
            made = reply(models([("search", {})] * calls), transcript).message
            assert transcript.add_reply(made) is made, "an id had to be renamed"
            answer(transcript)
        return transcript

    script = iter(batches)
    lasting = ScriptedModel(lambda _transcript, _request: [("search", {})] * next(script))
    assert play(lambda item: ScriptedModel([item])) == play(lambda _: lasting)


# --- how it arrives ------------------------------------------------------------------------------


@given(st.text(min_size=1))
def test_a_text_arrives_in_pieces_that_spell_it(text: str) -> None:
    chunks = ask(ScriptedModel([text]))
    pieces = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]
    assert "".join(pieces) == text
    assert 1 <= len(pieces) <= 4
    assert chunks[len(pieces)] == BlockDone(Text(text))


def arrivals(model: Model) -> list[tuple[float, str]]:
    """When each chunk came, and its kind; the error or the end, too."""

    async def main() -> list[tuple[float, str]]:
        time = asyncio.get_running_loop().time
        seen: list[tuple[float, str]] = []
        try:
            async for chunk in model.stream(request()):
                seen.append((time(), type(chunk).__name__))
        except ModelUnavailable as error:
            seen.append((time(), type(error).__name__))
        return seen

    return run_virtual(main)


def test_a_step_arrives_when_it_says() -> None:
    step = Step([("search", {}), ("search", {"q": "y"})], delay=10, between=2)
    assert arrivals(ScriptedModel([step], latency=1)) == [
        (11, "BlockDone"),
        (13, "BlockDone"),
        (15, "Reply"),
    ]


def test_latency_may_depend_on_the_number_of_the_request() -> None:
    model = ScriptedModel([[("search", {})]] * 3, latency=lambda number: 10.0 * number)
    assert [arrivals(model)[-1][0] for _ in range(3)] == [0, 10, 20]


@pytest.mark.parametrize(
    ("step", "kinds"),
    [
        (Step(cut_after=0), []),
        (Step([("search", {}), "b"], cut_after=0), []),
        (Step([("search", {}), "b"], cut_after=1), ["BlockDone"]),
        (Step([("search", {})], cut_after=9), ["BlockDone"]),
        (Step([("search", {})], error=ModelUnavailable("lost")), ["BlockDone", "ModelUnavailable"]),
        (Step(["a", "b"], cut_after=0, error=ModelUnavailable("lost")), ["ModelUnavailable"]),
    ],
)
def test_a_stream_may_be_cut_or_fail_after_some_blocks(step: Step, kinds: list[str]) -> None:
    assert [kind for _, kind in arrivals(ScriptedModel([step]))] == kinds


def test_an_error_comes_when_its_block_would_have_come() -> None:
    step = Step(["a", "b"], delay=5, between=1, cut_after=0, error=ModelUnavailable("lost"))
    assert arrivals(ScriptedModel([step])) == [(5, "ModelUnavailable")]


def test_a_cancellation_passes_through() -> None:
    """K1: the model swallows none."""

    async def main() -> float:
        stream = ScriptedModel([Step("late", delay=100)]).stream(request())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await anext(stream)
        return asyncio.get_running_loop().time()

    assert run_virtual(main) == 7


# --- what it refuses, counts and records ---------------------------------------------------------


def owing() -> Transcript:
    transcript = asked()
    transcript.add_reply(Message("assistant", (ToolUse("a", "search", "{}"),)))
    return transcript


def test_a_request_that_providers_refuse_is_rejected_before_the_script_is_asked() -> None:
    """T1: a loop that asks with a call open does not get away with it."""
    model = ScriptedModel([lambda _: pytest.fail("asked in spite of it")])
    with pytest.raises(ModelRejected, match="unanswered") as caught:
        ask(model, owing())
    assert caught.value.usage == Usage()
    assert reply(ScriptedModel(["done"], strict=False), owing()).message.text == "done"


def test_prompts_are_counted_once_and_what_was_sent_before_is_a_cache_hit() -> None:
    """The parts are disjoint, and the whole prompt is in every report."""
    model = ScriptedModel([[("search", {"q": "x" * 400})], "y" * 40])
    transcript = asked("z" * 4_000)
    first = reply(model, transcript)
    transcript.add_reply(first.message)
    answer(transcript, "r" * 80)
    second = reply(model, transcript)
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.input == pytest.approx(1_000, abs=40)
    assert first.usage.cache_read == 0
    assert first.usage.output == pytest.approx(100, abs=5)
    assert second.usage.cache_read == first.usage.prompt
    assert second.usage.input == pytest.approx(120, abs=6)
    assert second.usage.output == 10


def test_another_conversation_is_no_cache_hit() -> None:
    model = ScriptedModel(["one", "two"])
    usages = [reply(model, asked(text * 100)).usage for text in ("ab", "cd")]
    assert usages[0] == usages[1]
    assert usages[1] is not None
    assert usages[1].cache_read == 0


def test_the_default_price_is_3_and_15_dollars_a_million() -> None:
    price = ScriptedModel([]).profile.price
    assert price is not None
    assert price.cost(Usage(input=1_000_000)) == 3
    assert price.cost(Usage(cache_read=1_000_000)) == 3
    assert price.cost(Usage(output=1_000_000)) == 15


def test_requests_are_recorded_on_demand() -> None:
    model = ScriptedModel([Step("one", delay=5), "two"], record=True)

    async def main() -> None:
        for _ in range(2):
            async for _ in model.stream(request()):
                pass

    run_virtual(main)
    assert [recorded.at for recorded in model.requests] == [0, 5]
    (first, _) = model.requests
    assert first.messages == tuple(asked())
    assert (first.tools, first.instructions, first.max_output) == ((SEARCH,), "Be short.", 1_024)
    assert first.deadline == math.inf


def test_asking_for_a_record_that_was_not_made_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="record=True"):
        _ = ScriptedModel([]).requests


# --- the conformance suite -----------------------------------------------------------------------


class Virtual(ModelConformance):
    """The suite in virtual time, as for every model without sockets."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_virtual(main)


class TestScriptedModelInTime(Virtual):
    """Ours passes through the same suite as everyone's."""

    def make_model(self) -> Model:
        step = Step(["Let me see. " * 9, ("search", {"q": "x"}), "!"], delay=1, between=1)
        return ScriptedModel([step] * 3)


class TestScriptedModelAtOnce(Virtual):
    """The same without a moment's delay, and on a function."""

    def make_model(self) -> Model:
        return ScriptedModel(lambda _transcript, _request: [("search", {"q": "x"}), "done"])


class TestPausedReply(Virtual):
    """With an opaque block and nothing reported."""

    def make_model(self) -> Model:
        step = Step("so far", stop_reason=StopReason.PAUSE, usage=None, between=1)
        return ScriptedModel([step] * 3)


class Broken:
    """A model that streams what it is given, right or wrong."""

    name = "broken"
    profile = ModelProfile()

    def __init__(self, *chunks: Chunk) -> None:
        self.chunks = chunks

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:  # noqa: ARG002 - Model's
        for chunk in self.chunks:
            await asyncio.sleep(1)
            yield chunk


class Stubborn(Broken):
    """It takes a cancellation for the end of the stream."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:  # noqa: ARG002 - Model's
        for chunk in self.chunks:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                return
            yield chunk


class Meddling(Broken):
    """It writes into the transcript that it may only read."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        request.transcript.say(Text("and be quick"))
        async for chunk in super().stream(request):
            yield chunk


class Forgetful(Broken):
    """It keeps the answer in the object, so that two streams share it."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:  # noqa: ARG002 - Model's
        self.blocks = [chunk for chunk in self.chunks if isinstance(chunk, BlockDone)]
        await asyncio.sleep(1)
        while self.blocks:
            yield self.blocks.pop()
        yield self.chunks[-1]


DONE = Text("done")
END = Reply(Message("assistant", (DONE,)), StopReason.END_TURN, Usage(input=1, output=1))
GOOD: list[Chunk] = [TextDelta("do"), TextDelta("ne"), BlockDone(DONE), END]


def unnamed() -> Model:
    model = Broken(*GOOD)
    model.name = ""
    return model


FAULTS: dict[str, tuple[Callable[[], Model], str]] = {
    "no name": (unnamed, "test_the_model_has_a_printable_name_and_a_usable_profile"),
    "no reply": (
        lambda: Broken(*GOOD[:-1]),
        "test_a_stream_ends_in_exactly_one_reply",
    ),
    "two replies": (lambda: Broken(*GOOD, END), "test_a_stream_ends_in_exactly_one_reply"),
    "a chunk after the reply": (
        lambda: Broken(*GOOD, TextDelta("!")),
        "test_a_stream_ends_in_exactly_one_reply",
    ),
    "a block missing": (
        lambda: Broken(TextDelta("done"), END),
        "test_the_complete_blocks_are_the_content_of_the_reply_in_order",
    ),
    "a delta of another text": (
        lambda: Broken(TextDelta("not "), *GOOD),
        "test_text_deltas_spell_the_text_blocks_that_they_precede",
    ),
    "a delta too late": (
        lambda: Broken(BlockDone(DONE), TextDelta("done"), END),
        "test_text_deltas_spell_the_text_blocks_that_they_precede",
    ),
    "a reply of the user": (
        lambda: Broken(BlockDone(DONE), replace(END, message=Message("user", (DONE,)))),
        "test_the_reply_is_the_assistants_and_holds_no_result",
    ),
    "a tool turn without a call": (
        lambda: Broken(BlockDone(DONE), replace(END, stop_reason=StopReason.TOOL_USE)),
        "test_the_stop_reason_is_tool_use_only_where_there_is_a_call",
    ),
    "negative usage": (
        lambda: Broken(BlockDone(DONE), replace(END, usage=Usage(input=-1))),
        "test_usage_is_made_of_disjoint_counts_and_reasoning_is_a_part_of_output",
    ),
    "reasoning beside the output": (
        lambda: Broken(BlockDone(DONE), replace(END, usage=Usage(output=1, reasoning=2))),
        "test_usage_is_made_of_disjoint_counts_and_reasoning_is_a_part_of_output",
    ),
    "a negative cost": (
        lambda: Broken(BlockDone(DONE), replace(END, usd=Decimal(-1))),
        "test_the_cost_is_not_negative_where_the_provider_states_it",
    ),
    "a changed request": (lambda: Meddling(*GOOD), "test_a_request_is_not_changed"),
    "a stream that is shared": (
        lambda: Forgetful(*GOOD),
        "test_two_streams_at_once_do_not_mix",
    ),
    "a cancellation swallowed at once": (
        lambda: Stubborn(*GOOD),
        "test_a_cancellation_before_the_first_chunk_passes_through",
    ),
    "a cancellation swallowed later": (
        lambda: Stubborn(*GOOD),
        "test_a_cancellation_in_the_middle_of_a_stream_passes_through",
    ),
}


def suite(make_model: Callable[[], Model]) -> ModelConformance:
    made = Virtual()
    made.make_model = make_model
    return made


@pytest.mark.parametrize(("make_model", "test"), FAULTS.values(), ids=FAULTS.keys())
def test_the_suite_catches(make_model: Callable[[], Model], test: str) -> None:
    getattr(suite(lambda: Broken(*GOOD)), test)()
    with pytest.raises(AssertionError):
        getattr(suite(make_model), test)()


def test_the_suite_says_where_there_is_nothing_to_cancel() -> None:
    at_once = suite(lambda: ScriptedModel(["done"]))
    with pytest.raises(SkipTest):
        at_once.test_a_cancellation_before_the_first_chunk_passes_through()


def test_a_model_that_fails_fails_the_suite_with_its_own_error() -> None:
    failing = suite(lambda: ScriptedModel([ModelUnavailable("down")]))
    with pytest.raises(ModelUnavailable):
        failing.test_a_cancellation_in_the_middle_of_a_stream_passes_through()


def test_the_suite_must_be_told_what_to_test() -> None:
    with pytest.raises(NotImplementedError):
        ModelConformance().chunks()


def test_a_script_type_is_what_the_model_takes() -> None:
    """Typing only: the alias is public for those who build scripts."""
    script: Script = ["one", Step("two"), [("search", {})]]
    assert ScriptedModel(script).name == "scripted"


@pytest.mark.parametrize(
    "item", [3, None, b"x", {"text": "x"}, [3], [None], ("look", None), [("look", {}, 1)], [["x"]]]
)
def test_what_is_no_turn_of_a_script_is_told_with_what_one_is(item: Any) -> None:
    """The author of a test reads it, so it says what to write."""

    async def main() -> None:
        model = ScriptedModel([item])
        desk = rm.Remit(name="d", model=model, limits=rm.Limits(steps=1, tokens=9_000, seconds=9))
        outcome = await desk.run("hi")
        assert outcome.reason is rm.Reason.MODEL_FAILED
        assert 'a call as ("tool_name", {...})' in (outcome.error or "")

    run_virtual(main())
