"""The host's own rule for when a run is done: when it is asked, what it sees, and what its answers do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import remit
from loop_rig import desk, is_sendable, model_of, results, rows, said, statuses, watched
from remit import Limits, MemoryStore, Reason, Transcript, Veto
from remit.rows import Finished
from remit.testing import ScriptedModel, run_virtual


@remit.tool(effect="read")
async def look(x: str) -> str:
    """Look."""
    return f"saw {x}"


@remit.tool(effect="idempotent", resource=())
async def note(x: str) -> str:
    """Write a note, slowly."""
    await asyncio.sleep(3)
    return f"noted {x}"


@remit.tool(effect="confirm", resource=())
async def pay(x: str) -> str:
    """Pay."""
    return f"paid {x}"


TOOLS = [look, note, pay]
LOOKS = [("look", {"x": str(n)}) for n in range(6)]


def seen(n: int) -> Callable[[Transcript], bool]:
    """A rule: so many results are enough."""

    def enough(transcript: Transcript) -> bool:
        return len(results(transcript)) >= n

    return enough


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_yes_ends_the_run_as_completed_after_the_turn(kind: str) -> None:
    """O3, T2: the output is what the model said last, and the work so far is all there."""

    async def later(transcript: Transcript) -> bool:
        await asyncio.sleep(1)
        return seen(2)(transcript)

    async def main() -> None:
        script = [["I look.", LOOKS[0]], [LOOKS[1], ("note", {"x": "a"})], LOOKS[2]]
        rule: Any = later if kind == "async" else seen(2)
        support = desk(script, TOOLS, stop_when=rule)
        outcome = await support.run("go", run_id="r")
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, "I look.")
        assert (outcome.text, outcome.error) == ("I look.", None)
        assert said(outcome) == ["saw 0", "saw 1", "noted a"]
        assert model_of(support).asked == 2
        assert is_sendable(outcome.transcript)
        assert [r.by for r in await rows(support, "r") if isinstance(r, Finished)] == ["stop_when"]

    run_virtual(main())


def test_it_is_asked_once_for_each_answered_turn_and_sees_the_whole_of_it() -> None:
    """O3, E6: never while a call is owed, a decision is waited for or an answer is given."""
    shown: list[list[str]] = []

    def rule(transcript: Transcript) -> bool:
        assert not transcript.owed
        shown.append([result.status.value for result in results(transcript)])
        return False

    async def main() -> None:
        support = desk([LOOKS[0], [("pay", {"x": "a"}), LOOKS[1]], "done"], TOOLS, stop_when=rule)
        outcome = await support.run("go")
        assert outcome.reason is Reason.WAITING
        assert shown == [["ok"]]
        await support.decide(outcome.pending[0].token, approve=True, by="dana")
        outcome = await support.resume(outcome.run_id)
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, "done")
        assert shown == [["ok"], ["ok", "ok", "ok"]]

    run_virtual(main())


def test_what_it_does_to_its_transcript_changes_no_history() -> None:
    """O3, X1: it gets a copy of its own."""

    def rule(transcript: Transcript) -> bool:
        transcript.say(remit.Text("stop at once"))
        return False

    async def main() -> None:
        outcome = await desk([LOOKS[0], "done"], TOOLS, stop_when=rule).run("go")
        assert all("stop at once" not in message.text for message in outcome.transcript)

    run_virtual(main())


def test_the_limit_that_is_reached_with_a_yes_is_no_limits_end() -> None:
    """O3, L5: the rule is heard before the hand-back and before the stall."""

    async def main() -> None:
        limits = Limits(steps=1, tokens=1_000_000, seconds=60)
        for hand_back in (True, False):
            support = desk(
                [LOOKS[0], "closing"], TOOLS, stop_when=seen(1), limits=limits, hand_back=hand_back
            )
            outcome = await support.run("go")
            assert outcome.reason is Reason.COMPLETED
            assert model_of(support).asked == 1
        outcome = await desk([LOOKS[0]] * 6, TOOLS, stop_when=seen(6)).run("go")
        assert outcome.reason is Reason.COMPLETED

    run_virtual(main())


def fails(_: Transcript) -> bool:
    raise KeyError("order")


async def exits(_: Transcript) -> bool:
    raise SystemExit(3)


def says_yes_in_words(_: Transcript) -> Any:
    return "yes"


@pytest.mark.parametrize(
    ("rule", "why"),
    [(fails, "KeyError"), (exits, "SystemExit"), (says_yes_in_words, "returned str")],
)
def test_a_rule_that_fails_is_told_and_counts_as_a_no(rule: Any, why: str) -> None:
    """O3, C1: the limits of the run still hold, and the run is not ended by a fault."""

    async def main() -> None:
        outcome, events = await watched(desk([LOOKS[0], "done"], TOOLS, stop_when=rule), "go")
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, "done")
        assert [why in e.fields["error"] for e in events if e.kind == "stop_when_failed"] == [True]

    run_virtual(main())


def test_a_rule_that_does_not_answer_is_left_at_the_end_of_the_time() -> None:
    """O3, L4: it holds the run up no longer than the run may last."""

    async def never(_: Transcript) -> bool:
        await asyncio.get_running_loop().create_future()
        return True

    async def main() -> None:
        limits = Limits(steps=9, tokens=1_000_000, seconds=10)
        support = desk([LOOKS[0]], TOOLS, stop_when=never, limits=limits)
        outcome, events = await watched(support, "go")
        assert outcome.reason is Reason.DEADLINE
        assert outcome.spend.own.seconds <= 11
        errors = [e.fields["error"] for e in events if e.kind == "stop_when_failed"]
        assert errors == ["it did not answer in time"]

    run_virtual(main())


def test_a_cancel_ends_a_rule_that_thinks() -> None:
    """O3, K1: nothing of the host's is waited for beyond the grace."""

    async def slow(_: Transcript) -> bool:
        await asyncio.sleep(100)
        return True

    async def main() -> None:
        support = desk([LOOKS[0]], TOOLS, stop_when=slow)
        async with support.stream("go") as live:
            await asyncio.sleep(1)
            outcome = await live.cancel()
        assert outcome.reason is Reason.CANCELLED
        assert asyncio.get_running_loop().time() < 3

    run_virtual(main())


def test_a_guard_is_heard_before_the_rule_is_asked() -> None:
    """O3, case 33: what a guard vetoed is not completed by a rule."""
    asked: list[int] = []

    async def no(_: Transcript) -> Veto:
        await asyncio.sleep(5)
        return Veto("not like this")

    def rule(_: Transcript) -> bool:
        asked.append(1)
        return True

    async def main() -> None:
        outcome = await desk([LOOKS[0]], TOOLS, stop_when=rule, guards=(no,)).run("go")
        assert (outcome.reason, asked) == (Reason.VETOED, [])

    run_virtual(main())


def test_what_is_said_while_the_rule_thinks_is_answered_first() -> None:
    """O3, T5: a yes about a transcript that lacks the newest words ends nothing."""

    async def slow(transcript: Transcript) -> bool:
        await asyncio.sleep(2)
        return seen(1)(transcript)

    async def main() -> None:
        support = desk([LOOKS[0], "also Tuesday"], TOOLS, stop_when=slow)
        async with support.stream("go") as live:
            await asyncio.sleep(1)
            live.send("also Tuesday?")
        assert live.outcome.output == "also Tuesday"
        assert statuses(live.outcome) == ["ok"]

    run_virtual(main())


def test_a_finished_run_is_resumed_to_the_outcome_that_it_had() -> None:
    """O3, J3: nobody is asked again, neither the rule nor the model."""
    asked: list[int] = []

    def rule(transcript: Transcript) -> bool:
        asked.append(len(transcript))
        return True

    async def main() -> None:
        store = MemoryStore()
        first = await desk([["so", LOOKS[0]]], TOOLS, stop_when=rule, store=store).run(
            "go", run_id="r"
        )
        fresh = desk([], TOOLS, stop_when=rule, store=store)
        for again in (await fresh.resume("r"), await fresh.outcome("r")):
            assert (again.reason, again.output) == (first.reason, "so")
        assert len(asked) == 1

    run_virtual(main())


def test_a_rule_that_ends_a_typed_run_leaves_it_without_output() -> None:
    """O3, O1: what the model said is no value of the type; it is in `text`."""

    async def main() -> None:
        support = desk([["so", LOOKS[0]]], TOOLS, stop_when=seen(1), output=int)
        outcome = await support.run("go")
        assert (outcome.reason, outcome.output, outcome.text) == (Reason.COMPLETED, None, "so")

    run_virtual(main())


def test_the_conversation_goes_on_from_a_run_that_a_rule_ended() -> None:
    """O3, T2: its transcript ends with results, and is a history like any other."""

    async def main() -> None:
        support = desk(ScriptedModel([LOOKS[0], "fine"]), TOOLS, stop_when=seen(1))
        first = await support.run("go")
        second = await support.run("and now?", history=first.transcript)
        assert second.output == "fine"

    run_virtual(main())
