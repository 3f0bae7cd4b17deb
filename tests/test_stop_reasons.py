"""Why a reply stopped, and what comes of it: rows of `plan` met by a whole loop, and its retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

import remit as rm
from loop_rig import LIMITS, desk, is_sendable, model_of, results, rows, said, statuses, watched
from remit import (
    Limits,
    Message,
    ModelProfile,
    ModelRejected,
    ModelUnavailable,
    Opaque,
    Reason,
    Remit,
    Reply,
    StopReason,
    Text,
    ToolUse,
    Usage,
)
from remit.models.base import BlockDone, Chunk, ModelRequest, TextDelta
from remit.models.scripted import Item, Recorded, ScriptedModel, Step
from remit.rows import Charged
from remit.testing import prefix_of, run_virtual


def stopped(says: Any, stop_reason: StopReason, **fields: Any) -> Step:
    return Step(says, stop_reason=stop_reason, **fields)


def texts(request: Recorded) -> str:
    """What the newest turn of the user says."""
    return request.messages[-1].text


class Ledger:
    """What the tools of one test did."""

    def __init__(self) -> None:
        self.looked: list[int] = []
        self.wrote: list[str] = []
        self.cancelled = 0

        @rm.tool(effect="read")
        async def look(at: int) -> str:
            """See what is there; further away takes longer."""
            self.looked.append(at)
            try:
                await asyncio.sleep(at)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return f"saw {at}"

        @rm.tool(effect="idempotent")
        async def write(text: str) -> str:
            """Keep a text."""
            self.wrote.append(text)
            return f"kept {text}"

        self.tools = [look, write]


LOOK = ("look", {"at": 1})
WRITE = ("write", {"text": "x"})


# --- cut by length (C3) --------------------------------------------------------------------------


def test_a_reply_cut_by_length_runs_nothing_keeps_its_complete_calls_and_is_told() -> None:
    """C3: complete blocks are answered, the cut one is dropped, and the next reply may do better."""

    async def main() -> None:
        ledger = Ledger()
        cut = ToolUse("c9", "write", '{"text": "hal')
        script: list[Item] = [
            stopped(["Writing.", WRITE, cut], StopReason.LENGTH),
            WRITE,
            "done",
        ]
        remit = desk(script, ledger.tools)
        outcome = await remit.run("Write.")
        assert outcome.completed
        assert ledger.wrote == ["x"]
        assert said(outcome) == ["Not run: the reply was cut by the output limit.", "kept x"]
        assert statuses(outcome) == ["not_started", "ok"]
        assert "cut off by the output limit" in texts(model_of(remit).requests[1])
        first = model_of(remit).requests[1].messages[1]
        assert [use.arguments for use in first.tool_uses] == ['{"text":"x"}']

    run_virtual(main())


def test_arguments_that_the_model_did_not_finish_are_not_run_though_a_repair_would_parse() -> None:
    """C3, case 12: a list that broke off is no list; the same list, closed by the model, runs."""

    async def main() -> None:
        rebooted: list[list[str]] = []

        @rm.tool(effect="idempotent")
        async def reboot(hosts: list[str]) -> str:
            """Reboot hosts."""
            rebooted.append(hosts)
            return "rebooted"

        script: list[Item] = [
            stopped([ToolUse("c1", "reboot", '{"hosts": ["a1","a2"')], StopReason.LENGTH),
            ("reboot", '{"hosts": ["a1","a2"]}'),
            "done",
        ]
        outcome = await desk(script, [reboot]).run("Reboot.")
        assert outcome.completed
        assert rebooted == [["a1", "a2"]]
        assert said(outcome) == ["rebooted"]

    run_virtual(main())


def test_the_second_cut_in_a_row_ends_the_run() -> None:
    """C3: one cut is told, the next ends as `output_truncated` with all that was said."""

    async def main() -> None:
        cut = stopped("So far", StopReason.LENGTH)
        outcome = await desk([cut, stopped("and further", StopReason.LENGTH), "unused"]).run("Go.")
        assert outcome.reason is Reason.OUTPUT_TRUNCATED
        assert outcome.text == "and further"
        assert outcome.output is None

    run_virtual(main())


def test_cuts_with_a_whole_reply_between_them_are_not_in_a_row() -> None:
    """C3: what counts is two in a row."""

    async def main() -> None:
        ledger = Ledger()
        cut = stopped("So far", StopReason.LENGTH)
        outcome = await desk([cut, WRITE, cut, "done"], ledger.tools).run("Go.")
        assert outcome.completed

    run_virtual(main())


# --- refused, filtered, out of context, unknown (C3) ---------------------------------------------


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [
        (StopReason.REFUSAL, Reason.REFUSED),
        (StopReason.FILTER, Reason.REFUSED),
        (StopReason.CONTEXT, Reason.CONTEXT_FULL),
        (StopReason.UNKNOWN, Reason.UNKNOWN_STOP),
    ],
)
def test_a_reply_that_ends_badly_ends_the_run_by_name_and_runs_none_of_its_calls(
    stop_reason: StopReason, reason: Reason
) -> None:
    """C3: its complete calls are answered, a cut one is dropped, and nothing is called success."""

    async def main() -> None:
        ledger = Ledger()
        cut = ToolUse("c9", "write", '{"te')
        remit = desk([stopped(["Hm.", WRITE, cut], stop_reason), "unused"], ledger.tools)
        outcome = await remit.run("Write.")
        assert outcome.reason is reason
        assert (outcome.whose, outcome.output) == (None, None)
        assert ledger.wrote == []
        assert statuses(outcome) == ["not_started"]
        assert model_of(remit).asked == 1
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_a_stop_sequence_is_an_answer() -> None:
    """C3: the model said what it was asked to stop at; calls before it are not run."""

    async def main() -> None:
        assert (await desk([stopped("done", StopReason.STOP_SEQUENCE)]).run("Go.")).completed
        ledger = Ledger()
        script: list[Item] = [stopped(["x", WRITE], StopReason.STOP_SEQUENCE), "done"]
        outcome = await desk(script, ledger.tools).run("Go.")
        assert outcome.completed
        assert ledger.wrote == []

    run_virtual(main())


# --- paused turns (case 79) ----------------------------------------------------------------------

SERVER_CALL = Opaque("maker", b'{"type":"server_tool_use"}')


def test_a_paused_turn_goes_back_as_it_is_until_it_is_finished() -> None:
    """C3, case 79: a pause is no end: three steps, nothing put behind it, the final text reached."""

    async def main() -> None:
        ledger = Ledger()
        served = Opaque("maker", b'{"type":"server_tool_result"}')
        script: list[Item] = [
            stopped([SERVER_CALL], StopReason.PAUSE),
            [served, WRITE],
            "done",
        ]
        noon = iter(["It is noon.", "It is one.", "It is two."])
        limits = Limits(steps=4, tokens=20_000_000, seconds=60)
        remit = desk(
            script, ledger.tools, limits=limits, show_budget=True, notes=(lambda: next(noon),)
        )
        outcome = await remit.run("Go.")
        assert (outcome.reason, outcome.steps, outcome.text) == (Reason.COMPLETED, 3, "done")
        resent = model_of(remit).requests[1].messages
        assert resent[-1] == Message("assistant", (SERVER_CALL,))
        assert ledger.wrote == ["x"]

    run_virtual(main())


def test_endless_pauses_stop_at_the_step_limit() -> None:
    """C3, L1, case 79: pauses are steps, and end by that limit."""

    async def main() -> None:
        model = ScriptedModel(lambda _t, _r: stopped([SERVER_CALL], StopReason.PAUSE))
        limits = Limits(steps=5, tokens=20_000_000, seconds=60)
        outcome = await desk(model, limits=limits).run("Go.")
        assert (outcome.reason, outcome.steps) == (Reason.STEP_BUDGET, 5)
        assert model.asked == 5

    run_virtual(main())


def test_what_is_said_during_a_pause_waits_for_its_end() -> None:
    """T5: input does not break into a turn that the provider has not finished."""

    async def main() -> None:
        script: list[Item] = [
            stopped([SERVER_CALL], StopReason.PAUSE, delay=1.0),
            Step("half", delay=1.0),
            "the rest",
        ]
        remit = desk(script)
        async with remit.stream("Go.") as live:
            await asyncio.sleep(0.5)
            live.send("also Tuesday")
        assert live.outcome.completed
        assert live.outcome.text == "the rest"
        requests = model_of(remit).requests
        assert requests[1].messages[-1].role == "assistant"
        assert texts(requests[2]) == "also Tuesday"

    run_virtual(main())


# --- replies that say nothing (case 80) ----------------------------------------------------------


@pytest.mark.parametrize("stop_reason", [StopReason.END_TURN, StopReason.UNKNOWN])
def test_an_empty_reply_is_told_and_asked_for_again(stop_reason: StopReason) -> None:
    """C3, case 80: empty twice, then good is success, with both retries in the record."""

    async def main() -> None:
        empty = stopped((), stop_reason)
        remit = desk([empty, stopped("  ", stop_reason), "done"])
        outcome = await remit.run("Go.", run_id="empty")
        assert (outcome.reason, outcome.text) == (Reason.COMPLETED, "done")
        assert [texts(r).count("Your reply was empty") for r in model_of(remit).requests] == [
            0,
            1,
            1,
        ]
        kinds = [row.kind for row in await rows(remit, "empty")]
        assert kinds.count("replied") == 3

    run_virtual(main())


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [
        (StopReason.END_TURN, Reason.EMPTY_REPLY),
        (StopReason.STOP_SEQUENCE, Reason.EMPTY_REPLY),
        (StopReason.UNKNOWN, Reason.UNKNOWN_STOP),
    ],
)
def test_the_third_empty_reply_in_a_row_ends_the_run_by_name(
    stop_reason: StopReason, reason: Reason
) -> None:
    """C3, case 80: an end of its own for nothing said, never success."""

    async def main() -> None:
        remit = desk([stopped((), stop_reason)] * 9)
        outcome = await remit.run("Go.")
        assert (outcome.reason, outcome.output) == (reason, None)
        assert model_of(remit).asked == 3
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_a_reply_of_thinking_alone_is_empty() -> None:
    """C3: a provider's own block is kept, but it answers nobody."""

    async def main() -> None:
        thinking = Opaque("maker", b'{"type":"thinking"}')
        outcome = await desk([stopped([thinking], StopReason.END_TURN), "done"]).run("Go.")
        assert outcome.completed
        assert outcome.text == "done"
        assert any(thinking in message.content for message in outcome.transcript)

    run_virtual(main())


# --- attempts that fail (E7) ---------------------------------------------------------------------


def test_a_failed_model_call_is_tried_again_and_finished_calls_stay_finished() -> None:
    """E7: four failures in a row, and each tool ran once."""

    async def main() -> None:
        ledger = Ledger()
        busy = [ModelUnavailable("busy", usage=Usage()) for _ in range(4)]
        remit = desk([[LOOK, WRITE], *busy, "done"], ledger.tools)
        outcome, events = await watched(remit, "Go.")
        assert outcome.completed
        assert (ledger.looked, ledger.wrote) == ([1], ["x"])
        waits = [event.fields["after"] for event in events if event.kind == "model_retry"]
        assert len(waits) == 4
        for wait, plain in zip(waits, (0.5, 1, 2, 4), strict=True):
            assert 0.75 * plain <= wait < 1.25 * plain
        sent = [request.messages for request in model_of(remit).requests[1:]]
        assert all(each == sent[0] for each in sent)

    run_virtual(main())


def test_after_the_last_retry_the_run_ends_and_a_resume_goes_on_from_there() -> None:
    """E7, J3: five attempts and no more; what was done is kept, and is not done again."""

    async def main() -> None:
        ledger = Ledger()
        script: list[Item] = [WRITE, *[ModelUnavailable("busy", usage=Usage())] * 5, "done"]
        remit = desk(script, ledger.tools)
        outcome = await remit.run("Go.", run_id="busy")
        assert outcome.reason is Reason.MODEL_FAILED
        assert outcome.error == "ModelUnavailable: busy"
        assert said(outcome) == ["kept x"]
        assert model_of(remit).asked == 6
        again = await remit.resume("busy")
        assert again.completed
        assert ledger.wrote == ["x"]

    run_virtual(main())


@pytest.mark.parametrize("error", [ModelRejected("wrong key"), ValueError("a bug of the model")])
def test_what_will_fail_again_is_not_tried_again(error: Exception) -> None:
    """E7: a rejection, or an error that nobody declared, ends the run at once."""

    async def main() -> None:
        remit = desk([error, "unused"])
        outcome = await remit.run("Go.")
        assert outcome.reason is Reason.MODEL_FAILED
        assert outcome.error == f"{type(error).__name__}: {error}"
        assert model_of(remit).asked == 1

    run_virtual(main())


def test_the_provider_says_how_long_to_wait() -> None:
    """E7: `retry_after` is the least."""

    async def main() -> None:
        remit = desk([ModelUnavailable("busy", retry_after=17.0, usage=Usage()), "done"])
        assert (await remit.run("Go.")).completed
        assert [request.at for request in model_of(remit).requests] == [0.0, 17.0]

    run_virtual(main())


def test_a_retry_that_could_not_be_in_time_is_not_waited_for() -> None:
    """L4, E7: beyond the deadline nobody waits; the failure is the reason, at once."""

    async def main() -> None:
        limits = Limits(steps=9, tokens=20_000_000, seconds=10)
        for retry_after in (
            3_600.0,
            9.7,
        ):  # the second leaves time for no step, only for a hand-back
            busy = ModelUnavailable("busy", retry_after=retry_after, usage=Usage())
            remit = desk([busy, "unused"], limits=limits)
            began = asyncio.get_running_loop().time()
            outcome = await remit.run("Go.")
            assert outcome.reason is Reason.MODEL_FAILED
            assert asyncio.get_running_loop().time() == began
            assert model_of(remit).asked == 1

    run_virtual(main())


class Broken:
    """A model that breaks its contract as it is told to, once; then it answers."""

    name = "broken"
    profile = ModelProfile()

    def __init__(self, *streams: Sequence[Chunk]) -> None:
        self._streams = list(streams)
        self.asked = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        del request
        self.asked += 1
        chunks = self._streams.pop(0) if self._streams else WHOLE
        for chunk in chunks:
            await asyncio.sleep(0.1)
            yield chunk


def reply(*content: Any, stop_reason: StopReason = StopReason.END_TURN) -> Reply:
    return Reply(Message("assistant", content), stop_reason, Usage(input=10, output=1))


WHOLE = (TextDelta("done"), BlockDone(Text("done")), reply(Text("done")))
USE = ToolUse("c1", "look", '{"at":1}')
OTHER = ToolUse("c1", "look", '{"at":2}')


@pytest.mark.parametrize(
    ("stream", "billed"),
    [
        pytest.param((), None, id="no chunk at all"),
        pytest.param((TextDelta("ha"),), None, id="no reply"),
        pytest.param((*WHOLE, TextDelta("more")), 11, id="on after the reply"),
        pytest.param((*WHOLE, WHOLE[-1]), 11, id="two replies"),
        pytest.param((reply(Text("x"), stop_reason=StopReason.TOOL_USE),), 11, id="no tool"),
        pytest.param(
            (BlockDone(USE), reply(OTHER, stop_reason=StopReason.TOOL_USE)), 11, id="another call"
        ),
        pytest.param((BlockDone(USE), reply(Text("x"))), 11, id="a call that is gone"),
    ],
)
def test_a_stream_that_breaks_the_contract_is_a_failed_attempt(
    stream: Sequence[Chunk], billed: int | None
) -> None:
    """E7, C3: it is charged, runs nothing that counts, and the step is tried again."""

    async def main() -> None:
        ledger = Ledger()
        model = Broken(stream)
        remit = Remit(name="desk", model=model, tools=ledger.tools, limits=LIMITS)
        outcome, events = await watched(remit, "Go.")
        assert outcome.completed
        assert outcome.text == "done"
        assert results(outcome) == []
        assert model.asked == 2
        retries = [event.fields["error"] for event in events if event.kind == "model_retry"]
        assert len(retries) == 1
        assert outcome.spend.estimated == (billed is None)
        if billed is not None:
            assert outcome.spend.own.tokens == billed + 11

    run_virtual(main())


# --- reads that begin early (C3) -----------------------------------------------------------------


def test_reads_begin_before_the_reply_is_whole_and_stand_in_their_place() -> None:
    """C3, T1: a read overlaps with the stream; the effect waits; results are in call order."""

    async def main() -> None:
        ledger = Ledger()
        script: list[Item] = [
            Step([("look", {"at": 3}), WRITE, ("look", {"at": 1})], between=2.0),
            "done",
        ]
        remit = desk(script, ledger.tools)
        outcome, events = await watched(remit, "Go.")
        started = [
            (event.fields["tool"], event.at) for event in events if event.kind == "call_started"
        ]
        assert started == [("look", 0.0), ("look", 4.0), ("write", 6.0)]
        assert said(outcome) == ["saw 3", "kept x", "saw 1"]
        assert outcome.spend.own.calls == 3

    run_virtual(main())


def test_a_tool_that_is_not_eager_waits_for_the_reply() -> None:
    """C3: an author may switch it off."""

    async def main() -> None:
        began: list[float] = []

        @rm.tool(effect="read", eager=False)
        async def look() -> str:
            """See."""
            began.append(asyncio.get_running_loop().time())
            return "saw"

        outcome = await desk([Step([("look", {}), "x"], between=2.0), "done"], [look]).run("Go.")
        assert said(outcome) == ["saw"]
        assert began == [4.0]

    run_virtual(main())


@pytest.mark.parametrize(
    "discarded",
    [
        pytest.param(lambda says: Step(says, between=2.0, cut_after=2), id="a dropped stream"),
        pytest.param(
            lambda says: Step(says, between=2.0, error=ModelUnavailable("gone")), id="a failure"
        ),
        pytest.param(lambda says: stopped(says, StopReason.LENGTH, between=2.0), id="a cut"),
    ],
)
def test_the_reads_of_a_reply_that_does_not_count_are_discarded_and_counted(
    discarded: Callable[[Any], Step],
) -> None:
    """C3: they are stopped, their results go nowhere, and what they cost is in the spend."""

    async def main() -> None:
        ledger = Ledger()
        script: list[Item] = [discarded([("look", {"at": 1}), ("look", {"at": 50})]), "done"]
        remit = desk(script, ledger.tools)
        async with remit.stream("Go.", run_id="lost") as live:
            events = [event async for event in live]
        outcome = live.outcome
        assert outcome.completed
        assert ledger.looked == [1, 50]
        assert ledger.cancelled == 1
        assert "saw 1" not in said(outcome)
        assert outcome.spend.own.calls == 2
        counts = [event.fields["count"] for event in events if event.kind == "read_discarded"]
        assert counts == [2]
        charged = [row for row in await rows(remit, "lost") if isinstance(row, Charged)]
        assert [row.calls for row in charged if row.calls] == [2]

    run_virtual(main())


def test_what_a_discarded_read_cost_is_charged() -> None:
    """C3, L2: money and tokens that its tool declares, and what runs inside it spent."""

    async def main() -> None:
        inner = desk([Step("inside", usage=Usage(input=70))], name="inner")

        @rm.tool(effect="read", usd="0.05", tokens=9)
        async def buy() -> str:
            """Buy a datum, with help."""
            return (await inner.run("Help.")).text

        script: list[Item] = [
            Step([("buy", {}), "x"], between=2.0, error=ModelUnavailable("gone", usage=Usage())),
            Step("done", usage=Usage(input=10)),
        ]
        outcome = await desk(script, [buy]).run("Go.")
        assert outcome.spend.own.tokens == 10 + 9
        assert outcome.spend.tree.tokens == 10 + 9 + 70
        assert outcome.spend.own.usd == Decimal("0.05003")

    run_virtual(main())


def test_on_a_cancel_in_mid_stream_complete_blocks_are_kept_with_the_reads_they_began() -> None:
    """C3, K1: a finished early read keeps its result, everything else says that it did not run."""

    async def main() -> None:
        ledger = Ledger()
        remit = desk([Step(["Let me see.", LOOK, WRITE, "more"], between=2.0)], ledger.tools)
        async with remit.stream("Go.") as live:
            await asyncio.sleep(5.0)
            outcome = await live.cancel()
        assert outcome.reason is Reason.CANCELLED
        assert said(outcome) == ["saw 1", "Not run: the reply was cut."]
        assert outcome.transcript[1].text == "Let me see."
        assert ledger.wrote == []
        assert is_sendable(outcome.transcript)

    run_virtual(main())


# --- notes of the host, and input (X1, T5) -------------------------------------------------------


def test_a_note_of_the_host_is_appended_when_it_changed_and_only_then() -> None:
    """X1: asked before each step; the same text is not said twice, and nothing sent is edited."""

    async def main() -> None:
        ledger = Ledger()
        weather = iter(["sun", "sun", None, "rain", "sun"])
        given: list[str] = []

        def note_weather() -> str | None:
            return next(weather)

        async def note_deps(deps: str) -> str:
            given.append(deps)
            return f"You serve {deps}."

        script: list[Item] = [*[("write", {"text": text}) for text in "abcd"], "done"]
        remit = desk(script, ledger.tools, notes=(note_weather, note_deps))
        outcome = await remit.run("Go.", deps="dana")
        assert outcome.completed
        requests = model_of(remit).requests
        assert [texts(request) for request in requests] == [
            "Go.sunYou serve dana.",
            "",
            "",
            "rain",
            "sun",
        ]
        assert given == ["dana"] * 5
        for earlier, later in pairwise(requests):
            assert prefix_of(earlier.messages, later.messages)
            assert earlier.tools == later.tools

    run_virtual(main())


def test_a_note_that_fails_is_left_out_and_told() -> None:
    """X1: the host's own trouble is an event, not the model's and not the run's."""

    async def main() -> None:
        def bad() -> str:
            raise RuntimeError("no barometer")

        outcome, events = await watched(desk(["done"], notes=(bad,)), "Go.")
        assert outcome.completed
        errors = [event.fields["error"] for event in events if event.kind == "note_failed"]
        assert errors == ["RuntimeError: no barometer"]

    run_virtual(main())


def test_input_that_arrives_while_tools_run_stands_behind_their_results() -> None:
    """T5: queued in the order of its arrival, in the turn that answers the calls."""

    async def main() -> None:
        ledger = Ledger()
        remit = desk([[LOOK, ("look", {"at": 2})], "done"], ledger.tools)
        async with remit.stream("Go.") as live:
            await asyncio.sleep(0.5)
            live.send("also Tuesday")
            live.send("and Friday")
        turn = model_of(remit).requests[1].messages[-1]
        assert [result.text for result in turn.tool_results] == ["saw 1", "saw 2"]
        assert [type(block).__name__ for block in turn.content] == ["ToolResult"] * 2 + ["Text"] * 2
        assert turn.text == "also Tuesdayand Friday"
        assert live.outcome.completed

    run_virtual(main())


def test_input_that_arrives_with_the_answer_is_answered_too() -> None:
    """T5: the run does not complete over what it has not read; at a limit the hand-back reads it."""

    async def main() -> None:
        for steps, reason in ((9, Reason.COMPLETED), (1, Reason.STEP_BUDGET)):
            remit = desk(
                [Step("done", delay=1.0), "Tuesday it is"],
                limits=Limits(steps=steps, tokens=20_000_000, seconds=60),
            )
            async with remit.stream("Go.") as live:
                await asyncio.sleep(0.5)
                live.send("also Tuesday")
            assert live.outcome.reason is reason
            assert live.outcome.text == "Tuesday it is"
            assert "also Tuesday" in texts(model_of(remit).requests[1])

    run_virtual(main())
