"""A function around a model: what passes through it, what it may not, and who pays."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
import pytest

from loop_rig import desk, model_of, watched
from remit import (
    AskModel,
    Chunk,
    ConfigurationError,
    Limits,
    Message,
    Model,
    ModelProfile,
    ModelRejected,
    ModelRequest,
    ModelUnavailable,
    Reason,
    Reply,
    Settings,
    StopReason,
    Text,
    TextDelta,
    Transcript,
    Usage,
    tool,
    wrap_model,
)
from remit.models.scripted import ScriptedModel, Step
from remit.testing import ModelConformance, run_virtual

T = TypeVar("T")


@tool(effect="read", eager=False)
async def look() -> str:
    """Looks."""
    return "seen"


@wrap_model
async def plain(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
    """Hands everything on."""
    async for chunk in ask(request):
        yield chunk


@wrap_model
async def twice(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
    """Asks for two opinions and gives the second."""
    async for _ in ask(request):
        pass
    async for chunk in ask(request):
        yield chunk


@wrap_model
async def patient(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
    """Asks again by itself where the first attempt fails."""
    try:
        async for chunk in ask(request):
            yield chunk
    except ModelUnavailable:
        async for chunk in ask(request):
            yield chunk


def reply(text: str, usage: Usage | None = None, usd: Decimal | None = None) -> Reply:
    message = Message("assistant", (Text(text),))
    return Reply(message, StopReason.END_TURN, usage, usd)


def request(max_output: int = 100, deadline: float = 10) -> ModelRequest:
    return ModelRequest(
        instructions="",
        transcript=Transcript([Message("user", (Text("go"),))]),
        tools=(),
        settings=Settings(),
        max_output=max_output,
        deadline=deadline,
    )


class TestWrapped(ModelConformance):
    """A wrapper that changes nothing keeps the contract of a model."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_virtual(main)

    def make_model(self) -> Model:
        step = Step(["Let me see. " * 9, ("get", {"q": "x"}), "!"], delay=1, between=1)
        return plain(plain(ScriptedModel([step] * 3)))


def test_a_wrapped_model_has_the_name_and_the_profile_of_the_model() -> None:
    profile = ModelProfile(context_window=1_234)
    wrapped = plain(ScriptedModel([], name="mine", profile=profile))
    assert (wrapped.name, wrapped.profile) == ("mine", profile)
    assert "plain" in repr(wrapped)


def test_what_a_model_streams_comes_through_piece_by_piece() -> None:
    """K1: the same events at the same instants, with and without a wrapper."""

    async def main() -> None:
        script = [Step(["word " * 40, ("look", {})], delay=1, between=2), "done"]
        bare = await watched(desk(script, [look]), "go", run_id="r")
        began = asyncio.get_running_loop().time()
        model = plain(ScriptedModel(script))
        wrapped = await watched(desk([], [look], model=model), "go", run_id="r")
        told = [(e.kind, e.at, e.fields) for e in bare[1]]
        assert told == [(e.kind, e.at - began, e.fields) for e in wrapped[1]]
        assert bare[0] == wrapped[0]

    run_virtual(main())


def test_wrappers_are_asked_from_the_outside_in_and_again_for_every_attempt() -> None:
    """W1, E7: a retried attempt passes through all of them again."""
    heard: list[str] = []

    def telling(name: str) -> Any:
        async def tell(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
            heard.append(f"{name} asks")
            async for chunk in ask(request):
                yield chunk
            heard.append(f"{name} heard")

        return wrap_model(tell)

    async def main() -> None:
        model = ScriptedModel([Step(error=ModelUnavailable("busy", usage=Usage())), "done"])
        outcome = await desk([], model=telling("outer")(telling("inner")(model))).run("go")
        assert outcome.completed
        asks = ["outer asks", "inner asks"]
        assert heard == [*asks, *asks, "inner heard", "outer heard"]

    run_virtual(main())


def test_a_wrapper_may_change_what_is_asked_and_what_is_said() -> None:
    """W1: the request that it asks with, and the chunks that it hands on."""

    @wrap_model
    async def loud(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        said = msgspec.structs.replace(request, instructions="SHOUT")
        async for chunk in ask(said):
            yield TextDelta(chunk.text.upper()) if isinstance(chunk, TextDelta) else chunk

    async def main() -> None:
        model = ScriptedModel(["quietly"], record=True)
        async with desk([], model=loud(model)).stream("go") as live:
            pieces = [piece async for piece in live.text()]
        assert "".join(pieces) == "QUIETLY"
        assert live.outcome.text == "quietly"  # the reply is what counts
        assert model.requests[0].instructions == "SHOUT"

    run_virtual(main())


def test_a_wrapper_cannot_ask_for_more_output_or_time_than_it_was_granted() -> None:
    """L2: less is its own business."""

    def asking(**changed: Any) -> Any:
        async def change(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
            async for chunk in ask(msgspec.structs.replace(request, **changed)):
                yield chunk

        return wrap_model(change)

    async def main() -> None:
        model = ScriptedModel(["done"] * 2, record=True)
        for wrapped in (
            asking(max_output=10**9, deadline=10**9),
            asking(max_output=10, deadline=3),
        ):
            async for _ in wrapped(model).stream(request(max_output=100, deadline=10)):
                pass
        granted = [(each.max_output, each.deadline) for each in model.requests]
        assert granted == [(100, 10), (10, 3)]

    run_virtual(main())


def test_what_the_model_beneath_reported_is_charged_however_often_it_was_asked() -> None:
    """L2, J4: a second opinion is billed with the first, and stops a run like any other spending."""

    async def main() -> None:
        usage = Usage(input=70, cache_read=20, output=10)
        model = ScriptedModel([reply("first", usage), reply("second", usage)])
        outcome = await desk([], model=twice(model)).run("go")
        assert outcome.text == "second"
        assert outcome.spend.own.usage == Usage(input=140, cache_read=40, output=20)
        assert outcome.spend.own.tokens == 200
        priced = [reply("first", usage, Decimal("0.25")), reply("second", usage, Decimal("0.5"))]
        outcome = await desk([], model=twice(ScriptedModel(priced))).run("go")
        assert outcome.spend.own.usd == Decimal("0.75")
        model = ScriptedModel(lambda *_: Step([("look", {})], usage=Usage(input=4_000)))
        limits = Limits(steps=10, tokens=10_000, seconds=60)
        outcome = await desk([], [look], model=twice(model), limits=limits).run("go")
        assert outcome.reason is Reason.TOKEN_BUDGET
        assert (model.asked, outcome.spend.own.tokens) == (2, 8_000)  # one more would have fitted

    run_virtual(main())


@pytest.mark.parametrize(
    ("reported", "charged"),
    [
        (Usage(input=30, output=5), Usage(input=130, output=15)),
        (Usage(), Usage(input=100, output=10)),
    ],
)
def test_a_failed_attempt_that_a_wrapper_repeats_is_charged(
    reported: Usage, charged: Usage
) -> None:
    """L2: as it was reported; nothing where nothing was billed."""

    async def main() -> None:
        script = [
            Step(error=ModelUnavailable("busy", usage=reported)),
            reply("done", Usage(input=100, output=10)),
        ]
        outcome = await desk([], model=patient(ScriptedModel(script))).run("go")
        assert outcome.completed
        assert outcome.spend.own.usage == charged

    run_virtual(main())


def test_an_attempt_beneath_that_nobody_reported_is_charged_by_estimate() -> None:
    """L2: what was broken off, and what the provider does not count, costs no less than it looks."""

    @wrap_model
    async def fickle(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for _ in ask(request):
            break
        async for chunk in ask(request):
            yield chunk

    async def main() -> None:
        usage = Usage(input=100, output=10)
        prompt = "word " * 400
        model = ScriptedModel(["word " * 80, reply("done", usage)])
        outcome = await desk([], model=fickle(model)).run(prompt)
        assert outcome.spend.estimated
        assert outcome.spend.own.usage.input > 500
        assert 10 < outcome.spend.own.usage.output <= 110
        silent = [Step("done", usage=None)] * 2
        once = await desk(silent).run(prompt)
        both = await desk([], model=twice(ScriptedModel(silent))).run(prompt)
        assert both.spend.own.tokens > 1.9 * once.spend.own.tokens
        through = await desk([], model=plain(ScriptedModel(silent))).run(prompt)
        assert through.spend == once.spend
        assert through.spend.estimated

    run_virtual(main())


def test_an_answer_from_a_cache_costs_what_it_says_and_asks_nobody() -> None:
    """L2: nothing, where nothing is reported as used."""

    @wrap_model
    async def cached(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        yield reply("from the cache", Usage())

    async def main() -> None:
        model = ScriptedModel([])
        outcome = await desk([], model=cached(model)).run("go")
        assert (outcome.text, outcome.spend.own.tokens, model.asked) == ("from the cache", 0, 0)
        assert outcome.steps == 1

    run_virtual(main())


def test_a_wrapper_that_claims_less_than_was_used_is_corrected() -> None:
    """L2: an account that a wrapper could talk down would be no limit."""

    @wrap_model
    async def thrifty(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for chunk in ask(request):
            if isinstance(chunk, Reply):
                yield msgspec.structs.replace(chunk, usage=Usage(output=9_999), usd=Decimal(0))
            else:
                yield chunk

    async def main() -> None:
        used = reply("done", Usage(input=100, output=10), Decimal(3))
        outcome = await desk([], model=thrifty(ScriptedModel([used]))).run("go")
        assert outcome.spend.own.usage == Usage(input=100, output=9_999)
        assert outcome.spend.own.usd == 3

    run_virtual(main())


def test_a_refusal_without_asking_costs_nothing_and_is_tried_again() -> None:
    """E7, L2: a limit of rate may send the loop away for a while, as a provider would."""
    refusals = [ModelUnavailable("too fast", retry_after=60), ModelRejected("never")]

    @wrap_model
    async def strict(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        raise refusals.pop(0)
        yield  # an async generator

    async def main() -> None:
        model = ScriptedModel([])
        outcome, events = await watched(desk([], model=strict(model)), "go")
        assert outcome.reason is Reason.MODEL_FAILED
        assert outcome.spend.own.tokens == 0
        assert [e.fields["after"] for e in events if e.kind == "model_retry"] == [60]
        assert model.asked == 0

    run_virtual(main())


def test_a_wrapper_that_fails_or_talks_nonsense_is_a_model_that_does() -> None:
    """C1: the run ends in an outcome that says so."""

    @wrap_model
    async def broken(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        raise LookupError("my own bug")
        yield

    @wrap_model
    async def nonsense(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for chunk in ask(request):
            if isinstance(chunk, Reply):
                yield msgspec.structs.replace(chunk, usage="lots", usd="free")
        yield reply("twice")

    @wrap_model
    async def silent(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for chunk in ask(request):
            if not isinstance(chunk, Reply):
                yield chunk

    async def main() -> None:
        for wrapper, words in ((broken, "my own bug"), (nonsense, "usage"), (silent, "reply")):
            outcome = await desk([], model=wrapper(ScriptedModel(["done"] * 9))).run("go")
            assert outcome.completed is False
            assert outcome.reason is Reason.MODEL_FAILED
            assert outcome.error is not None
            assert words in outcome.error

    run_virtual(main())


def test_a_cancel_reaches_the_model_beneath_and_everything_is_closed() -> None:
    """K1: the innermost stream hears it first, and no stream stays open."""
    heard: list[str] = []

    class Slow:
        name = "slow"
        profile = ModelProfile()

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk]:  # noqa: ARG002 - the protocol's name
            try:
                yield TextDelta("once upon a time")
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                heard.append("model cancelled")
                raise
            finally:
                heard.append("model closed")

    @wrap_model
    async def careful(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        try:
            async for chunk in ask(request):
                yield chunk
        finally:
            heard.append("wrapper closed")

    async def main() -> None:
        remit = desk([], model=careful(Slow()))
        async with remit.stream("go") as live:
            await asyncio.sleep(1)
            outcome = await live.cancel()
        assert outcome.reason is Reason.CANCELLED
        assert heard == ["model cancelled", "model closed", "wrapper closed"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())


def test_a_stream_that_a_wrapper_leaves_open_is_closed_with_it() -> None:
    """K1: also where the wrapper itself is left in the middle, from the outside in."""
    closed: list[str] = []

    class Open:
        name = "open"
        profile = ModelProfile()

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk]:  # noqa: ARG002 - the protocol's name
            try:
                yield TextDelta("a")
                yield TextDelta("b")
            finally:
                closed.append("model")

    @wrap_model
    async def hasty(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        try:
            async for _ in ask(request):
                break
            yield TextDelta("c")
            yield reply("enough")
        finally:
            closed.append("wrapper")

    async def main() -> None:
        chunks = [chunk async for chunk in hasty(Open()).stream(request())]
        assert len(chunks) == 2
        assert closed == ["wrapper", "model"]
        stream = hasty(Open()).stream(request())
        await anext(stream)
        assert isinstance(stream, AsyncGenerator)
        await stream.aclose()
        assert closed == ["wrapper", "model"] * 2

    run_virtual(main())


def test_a_stream_that_a_task_of_the_wrappers_still_reads_does_no_harm() -> None:
    """K1: the quicker of two answers counts; the other is the wrapper's own to clear up."""

    async def first(stream: AsyncIterator[Chunk]) -> list[Chunk]:
        return [chunk async for chunk in stream]

    @wrap_model
    async def race(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        tasks = [asyncio.create_task(first(ask(request))) for _ in range(2)]
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        for chunk in done.pop().result():
            yield chunk

    async def main() -> None:
        model = ScriptedModel(["quick", "slow"], latency=lambda number: 1 + number * 10)
        outcome = await desk([], model=race(model)).run("go")
        assert (outcome.text, outcome.completed) == ("quick", True)
        assert outcome.spend.own.usage.input > 2  # the loser's prompt is paid for

    run_virtual(main())


def test_what_is_no_wrapper_is_refused_where_it_is_decorated() -> None:
    async def coroutine(request: ModelRequest, ask: AskModel) -> None: ...
    def function(request: ModelRequest, ask: AskModel) -> None: ...

    wrong: list[Any] = [coroutine, function, "text", None, lambda request, ask: ask(request)]
    for each in wrong:
        with pytest.raises(ConfigurationError, match="async generator"):
            wrap_model(each)


def test_partials_and_objects_wrap_too() -> None:
    """A limiter keeps its state in an object, and settings in a partial."""

    class Counting:
        asked = 0

        async def __call__(self, request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
            self.asked += 1
            async for chunk in ask(request):
                yield chunk

    async def named(name: str, request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for chunk in ask(msgspec.structs.replace(request, instructions=name)):
            yield chunk

    async def main() -> None:
        counting, model = Counting(), ScriptedModel(["done"], record=True)
        wrapped = wrap_model(counting)(wrap_model(functools.partial(named, "x"))(model))
        assert (await desk([], model=wrapped).run("go")).completed
        assert counting.asked == 1
        assert model.requests[0].instructions == "x"

    run_virtual(main())


def test_a_model_replaced_for_one_run_may_be_wrapped() -> None:
    async def main() -> None:
        remit = desk(["never"])
        outcome = await remit.run("go", model=plain(ScriptedModel(["wrapped"])))
        assert outcome.text == "wrapped"
        assert model_of(remit).asked == 0
        assert (await remit.replace(model=plain(ScriptedModel(["again"]))).run("go")).completed

    run_virtual(main())
