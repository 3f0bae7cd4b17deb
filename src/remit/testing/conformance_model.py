"""The contract of `Model`, one test for each sentence of it.

An implementer runs it by deriving a class in a test module; pytest collects the rest:

    class TestMyModel(ModelConformance):
        def make_model(self) -> Model:
            return MyModel(...)

It checks the stream, not the wire: that a codec reads its provider rightly is tested on recordings.
"""

# ruff: noqa: S101 - this is a test suite that happens to be shipped

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, TypeVar
from unittest import SkipTest

from remit.messages import Message, Reply, StopReason, Text
from remit.models.base import BlockDone, Chunk, Model, ModelRequest, Settings, TextDelta, ToolSpec
from remit.transcript import Transcript

__all__ = ["ModelConformance"]

T = TypeVar("T")


class ModelConformance:
    """Derive from it, override `make_model`, and name the class so that pytest finds it."""

    def make_model(self) -> Model:
        """A model that is ready to be asked a few times, without a real provider behind it."""
        raise NotImplementedError("override make_model(): it gives a model of yours")

    def make_request(self) -> ModelRequest:
        """What is asked. Override where the model under test expects something else."""
        schema = {"type": "object", "properties": {"order_id": {"type": "string"}}}
        return ModelRequest(
            instructions="Answer shortly.",
            transcript=Transcript([Message("user", (Text("Where is order 1042?"),))]),
            tools=(ToolSpec("get_order_status", "Status of one order.", schema),),
            settings=Settings(),
            max_output=1_024,
            deadline=math.inf,
        )

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """How a test is run. Override with `run_virtual` for a model without sockets."""
        return asyncio.run(main)

    def chunks(self) -> list[Chunk]:
        """All that one request gives."""
        return self.run(_chunks(self.make_model(), self.make_request()))

    def reply(self) -> Reply:
        """The reply to one request."""
        return _reply(self.chunks())

    def test_the_model_has_a_printable_name_and_a_usable_profile(self) -> None:
        model = self.make_model()
        assert model.name, "an empty name"
        assert model.name.isprintable(), f"{model.name!r} cannot be printed"
        assert model.profile.context_window > 0
        assert model.profile.max_output > 0

    def test_a_stream_ends_in_exactly_one_reply(self) -> None:
        chunks = self.chunks()
        places = [place for place, chunk in enumerate(chunks) if isinstance(chunk, Reply)]
        assert places == [len(chunks) - 1], f"replies at {places} of {len(chunks)} chunks"

    def test_the_complete_blocks_are_the_content_of_the_reply_in_order(self) -> None:
        chunks = self.chunks()
        blocks = tuple(chunk.block for chunk in chunks if isinstance(chunk, BlockDone))
        assert blocks == _reply(chunks).message.content

    def test_text_deltas_spell_the_text_blocks_that_they_precede(self) -> None:
        pieces = ""
        for chunk in self.chunks():
            if isinstance(chunk, TextDelta):
                pieces += chunk.text
            elif isinstance(chunk, BlockDone):
                if isinstance(chunk.block, Text):
                    assert pieces in {"", chunk.block.text}
                else:
                    assert not pieces, f"{pieces!r} belongs to no text block"
                pieces = ""
        assert not pieces, f"{pieces!r} belongs to no text block"

    def test_the_reply_is_the_assistants_and_holds_no_result(self) -> None:
        message = self.reply().message
        assert message.role == "assistant"
        assert not message.tool_results

    def test_the_stop_reason_is_tool_use_only_where_there_is_a_call(self) -> None:
        reply = self.reply()
        assert reply.message.tool_uses or reply.stop_reason is not StopReason.TOOL_USE

    def test_usage_is_made_of_disjoint_counts_and_reasoning_is_a_part_of_output(self) -> None:
        usage = self.reply().usage
        if usage is None:
            return  # the provider reports nothing, and the reply says so
        assert min(usage.to_json().values()) >= 0
        assert usage.reasoning <= usage.output
        assert usage.total == usage.prompt + usage.output

    def test_the_cost_is_not_negative_where_the_provider_states_it(self) -> None:
        usd = self.reply().usd
        assert usd is None or usd >= 0

    def test_a_request_is_not_changed(self) -> None:
        request = self.make_request()
        before = _told(request)
        self.run(_chunks(self.make_model(), request))
        assert _told(request) == before

    def test_two_streams_at_once_do_not_mix(self) -> None:
        async def main() -> list[list[Chunk]]:
            model = self.make_model()
            return await asyncio.gather(*(_chunks(model, self.make_request()) for _ in range(2)))

        for chunks in self.run(main()):
            blocks = tuple(chunk.block for chunk in chunks if isinstance(chunk, BlockDone))
            assert blocks == _reply(chunks).message.content

    def test_a_stream_can_be_left_early(self) -> None:
        async def main() -> None:
            model = self.make_model()
            stream = model.stream(self.make_request())
            await anext(stream)
            await _leave(stream)
            _reply(await _chunks(model, self.make_request()))  # and the model can be asked again

        self.run(main())

    def test_a_cancellation_before_the_first_chunk_passes_through(self) -> None:
        self._cancel_after(chunks=0)

    def test_a_cancellation_in_the_middle_of_a_stream_passes_through(self) -> None:
        self._cancel_after(chunks=1)

    def _cancel_after(self, *, chunks: int) -> None:
        async def main() -> bool:
            reached = asyncio.Event()
            task = asyncio.create_task(self._read(reached, chunks))
            await reached.wait()
            if not task.cancel():  # it read on to the end, without waiting once
                await task
                return False
            await asyncio.wait([task])
            assert task.cancelled(), "the model swallowed a cancellation"
            return True

        if not self.run(main()):
            raise SkipTest("the model never waits there, so nothing can be cancelled")

    async def _read(self, reached: asyncio.Event, chunks: int) -> None:
        stream = self.make_model().stream(self.make_request())
        try:
            for _ in range(chunks):
                await anext(stream)
        finally:
            reached.set()
        async for _ in stream:
            pass


async def _chunks(model: Model, request: ModelRequest) -> list[Chunk]:
    return [chunk async for chunk in model.stream(request)]


def _told(request: ModelRequest) -> str:
    """The whole content of a request, down into its schemas."""
    return repr((request.transcript.to_json(), request.tools, request.settings))


def _reply(chunks: list[Chunk]) -> Reply:
    assert chunks, "a stream without chunks"
    last = chunks[-1]
    assert isinstance(last, Reply), f"the stream ends in {last!r}"
    return last


async def _leave(stream: AsyncIterator[Chunk]) -> None:
    """Close the stream as the loop does; an iterator that is no generator has nothing to close."""
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()
