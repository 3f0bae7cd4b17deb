"""The transcript through the loop: ids, late outcomes, what is said meanwhile, what waits, what is opaque."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import remit as rm
from loop_rig import desk, is_sendable, model_of, results, said, statuses, watched
from remit import (
    Call,
    DecisionError,
    Message,
    Opaque,
    Reason,
    Text,
    ToolResult,
    ToolUse,
    Transcript,
)
from remit.canonical import encode
from remit.models.scripted import ScriptedModel
from remit.testing import prefix_of, run_virtual


@rm.tool(effect="read")
async def look(n: int) -> int:
    """Look."""
    return n


def uses_of(transcript: Transcript) -> list[ToolUse]:
    return [use for message in transcript for use in message.tool_uses]


# --- T3: ids -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "a", "a"],
        ["", "", ""],
        ["call_1", "call_1", "call_2"],
        ["with space", "ü", "x" * 65],
        ["call_3", "", "call_3"],
    ],
)
def test_bad_ids_are_renamed_over_turns_and_runs_without_touching_what_was_sent(
    ids: list[str],
) -> None:
    """T3: duplicate, empty, constant and illegal ids, two turns in each of two runs."""

    def turn() -> Message:
        return Message(
            "assistant", tuple(ToolUse(id_, "look", f'{{"n": {n}}}') for n, id_ in enumerate(ids))
        )

    async def conversation() -> tuple[bytes, ScriptedModel]:
        model = ScriptedModel([turn(), turn(), "done", turn(), "done"], record=True)
        remit = desk(model, [look])
        first = await remit.run("go", run_id="r1")
        second = await remit.run("and", history=first.transcript, run_id="r2")
        used = [use.id for use in uses_of(second.transcript)]
        assert len(set(used)) == len(used) == 9
        assert [result.tool_use_id for result in results(second)] == used
        assert said(second) == ["0", "1", "2"] * 3
        return encode(second.transcript.to_json()), model

    async def main() -> None:
        sent, model = await conversation()
        assert sent == (await conversation())[0]
        for earlier, later in zip(model.requests, model.requests[1:], strict=False):
            assert prefix_of(earlier.messages, later.messages)

    run_virtual(main())


def test_a_streamed_read_belongs_to_the_call_that_was_renamed() -> None:
    """T3: reads that begin early are found again under the id that the transcript gave."""

    async def main() -> None:
        turn = Message(
            "assistant",
            (ToolUse("x", "look", '{"n": 1}'), ToolUse("x", "look", '{"n": 2}')),
        )
        outcome = await desk([turn, turn, "done"], [look]).run("go")
        assert said(outcome) == ["1", "2", "1", "2"]
        assert outcome.spend.own.calls == 4

    run_virtual(main())


# --- T4: the first result stands -----------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_a_late_outcome_is_an_event_and_never_sent(effect: Any) -> None:
    """T4: the first final result stands, the later one is told to whoever watches."""

    async def slow() -> str:
        """Swallow the cancellation, and answer after all."""
        try:
            await asyncio.sleep(0.12)
        except asyncio.CancelledError:
            await asyncio.sleep(2)
        return "late answer"

    tool = rm.tool(effect=effect, timeout=0.05, name="slow")(slow)

    @rm.tool(effect="read")
    async def wait() -> str:
        """Give it time."""
        await asyncio.sleep(5)
        return "waited"

    async def main() -> None:
        remit = desk([[("slow", {})], [("wait", {})], "done"], [tool, wait])
        outcome, events = await watched(remit, "go")
        assert outcome.completed
        assert "late answer" not in str(outcome.transcript.to_json())
        assert statuses(outcome)[0] == ("error" if effect == "read" else "unknown")
        assert "late_outcome" in [event.kind for event in events]

    run_virtual(main())


# --- T5: input that arrives meanwhile ------------------------------------------------------------


def test_what_is_said_while_tools_run_is_queued_behind_their_results() -> None:
    """T5: one user turn: the results first, then what was said, in its order."""

    @rm.tool(effect="read")
    async def slow() -> str:
        """Work."""
        await asyncio.sleep(1)
        return "worked"

    async def main() -> None:
        remit = desk([[("slow", {})], "done"], [slow])
        async with remit.stream("go") as live:
            await asyncio.sleep(0.5)
            live.send("also Tuesday")
            live.send("and Wednesday")
        turn = model_of(remit).requests[1].messages[-1]
        assert isinstance(turn.content[0], ToolResult)
        assert turn.text == "also Tuesdayand Wednesday"
        assert is_sendable(live.outcome.transcript)

    run_virtual(main())


def test_what_is_said_during_the_last_answer_is_answered_too() -> None:
    """T5: the run does not end over a question that it has not seen."""

    async def main() -> None:
        model = ScriptedModel(["first", "second"], latency=1.0, record=True)
        async with desk(model).stream("go") as live:
            await asyncio.sleep(0.5)
            live.send("one more thing")
        assert live.outcome.text == "second"
        assert model.requests[1].messages[-1].text == "one more thing"
        with pytest.raises(rm.ConfigurationError):
            live.send("too late")
        with pytest.raises(rm.ConfigurationError):
            live.send("  ")

    run_virtual(main())


# --- T2: a waiting run, its view, and a fork -----------------------------------------------------

PAID: list[str] = []


@rm.tool(effect="confirm")
async def pay(amount: int, call: Call[Any]) -> str:
    """Pay."""
    PAID.append(call.key)
    return f"paid {amount}"


def test_the_view_of_a_waiting_run_is_closed_and_the_true_result_takes_its_place() -> None:
    """T2, E6: the model has not seen the view; after the decision there is only the true result."""

    async def main() -> None:
        PAID.clear()
        remit = desk([[("look", {"n": 1}), ("pay", {"amount": 5})], "done"], [look, pay])
        outcome = await remit.run("go")
        assert statuses(outcome) == ["ok", "not_started"]
        assert "pending" in said(outcome)[1]
        assert not outcome.transcript.owed
        assert is_sendable(outcome.transcript)
        assert model_of(remit).asked == 1
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        after = await remit.resume(outcome.run_id)
        assert said(after) == ["1", "paid 5"]
        assert "pending" not in str(after.transcript.to_json())
        assert "pending" not in str([m.to_json() for m in model_of(remit).requests[1].messages])

    run_virtual(main())


def test_going_on_from_the_view_is_a_fork_that_withdraws_what_was_pending() -> None:
    """T2: the model is told, the pending cannot be decided any more, the original can go on."""

    async def main() -> None:
        PAID.clear()
        model = ScriptedModel([[("pay", {"amount": 5})], "forked", "original"], record=True)
        remit = desk(model, [pay])
        waiting = await remit.run("go")
        forked = await remit.run("never mind", history=waiting.transcript)
        assert forked.completed
        sent = model.requests[1].messages
        assert "Left pending" in str(sent[2].to_json())
        for how in ({"token": waiting.pending[0].token}, {"id": waiting.pending[0].id}):
            with pytest.raises(DecisionError) as caught:
                await remit.decide(**how, approve=True, by="dana")  # type: ignore[arg-type]
            assert caught.value.why == "used"
        original = await remit.resume(waiting.run_id)
        assert original.completed
        assert statuses(original) == ["refused"]
        assert PAID == []

    run_virtual(main())


def test_a_fork_withdraws_what_is_pending_inside_a_child() -> None:
    """T2: down the tree, or a late yes would act for a conversation that went on without it."""

    async def main() -> None:
        PAID.clear()
        child = desk([[("pay", {"amount": 5})], "child done"], [pay], name="child")
        small = rm.Limits(steps=5, tokens=100_000, seconds=30)
        parent = desk(
            [[("delegate", {"task": "pay"})], "forked", "original"],
            [child.as_tool("delegate", "Delegate.", limits=small)],
        )
        waiting = await parent.run("go")
        assert waiting.pending[0].path == ("desk", "child")
        await parent.run("never mind", history=waiting.transcript)
        with pytest.raises(DecisionError):
            await parent.decide(waiting.pending[0].token, approve=True, by="dana")
        original = await parent.resume(waiting.run_id)
        assert original.completed
        assert PAID == []

    run_virtual(main())


@pytest.mark.parametrize(
    "reason", ["completed", "cancelled", "steps", "vetoed", "model", "waiting"]
)
def test_every_way_out_leaves_a_history_that_can_be_continued_at_once(reason: str) -> None:
    """T2: by `run(history=)` with a new user turn."""

    async def veto(_: Transcript) -> rm.Veto:
        await asyncio.sleep(0.1)
        return rm.Veto("no")

    @rm.tool(effect="idempotent")
    async def slow() -> str:
        """Work."""
        await asyncio.sleep(1)
        return "worked"

    async def main() -> None:
        calls = [("look", {"n": 1}), ("slow", {})]
        calls += [("pay", {"amount": 1})] if reason == "waiting" else []
        options: dict[str, Any] = {"guards": (veto,)} if reason == "vetoed" else {}
        if reason == "steps":
            options |= {
                "limits": rm.Limits(steps=1, tokens=100_000, seconds=60),
                "hand_back": False,
            }
        second = rm.ModelRejected("no") if reason == "model" else "done"
        remit = desk([calls, second], [look, slow, pay], **options)
        async with remit.stream("go") as live:
            if reason == "cancelled":
                await asyncio.sleep(0.5)
                await live.cancel()
        outcome = live.outcome
        assert (
            outcome.reason
            is {
                "completed": Reason.COMPLETED,
                "cancelled": Reason.CANCELLED,
                "steps": Reason.STEP_BUDGET,
                "vetoed": Reason.VETOED,
                "model": Reason.MODEL_FAILED,
                "waiting": Reason.WAITING,
            }[reason]
        )
        assert not outcome.transcript.owed
        assert is_sendable(outcome.transcript)
        again = await desk(["hello again"], [look, slow, pay]).run(
            "and?", history=outcome.transcript
        )
        assert again.text == "hello again"

    run_virtual(main())


# --- T6 and T7 -----------------------------------------------------------------------------------


def test_a_history_from_outside_is_mended_with_a_report_and_then_runs() -> None:
    """T6: an unanswered call, a stray result and a used id; the model is told the truth."""
    broken = [
        Message("user", (Text("hi"),)),
        Message("assistant", (ToolUse("a", "look", "{}"), ToolUse("a", "look", "{}"))),
        Message("user", (ToolResult("zzz", (Text("stray"),)), Text("go on"))),
    ]

    async def main() -> None:
        history = Transcript.load([message.to_json() for message in broken])
        assert len(history.report) >= 3
        outcome = await desk(["fine"], [look]).run("now", history=history)
        assert outcome.completed
        assert [result.status.value for result in results(outcome)] == ["unknown", "unknown"]
        with pytest.raises(rm.TranscriptError):
            Transcript(broken)
        with pytest.raises(rm.TranscriptError):
            Transcript.load([{"role": "nobody"}])

    run_virtual(main())


def test_opaque_blocks_go_back_unchanged_and_in_place() -> None:
    """T7: byte for byte, through journal, resume and the next run of the conversation."""
    thinking = Opaque("scripted", b'{"type":"thinking","signature":"\\u0000\xff"}')
    turn = Message(
        "assistant",
        (
            thinking,
            Text("let me see"),
            ToolUse("a", "look", '{"n": 1}'),
            ToolUse("b", "pay", '{"amount":1}'),
        ),
    )

    async def main() -> None:
        model = ScriptedModel([turn, "done", "more"], record=True)
        remit = desk(model, [look, pay])
        waiting = await remit.run("go")
        await remit.decide(waiting.pending[0].token, approve=True, by="dana")
        outcome = await remit.resume(waiting.run_id)
        await remit.run("and", history=Transcript.load(outcome.transcript.to_json()))
        for request in model.requests[1:]:
            assert request.messages[1].content[0] == thinking
            assert request.messages[1] == turn

    run_virtual(main())
