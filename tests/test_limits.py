"""Limits in the loop: what ends a run, what is kept for handing back, who may spend what.

The accounts themselves are tested in `test_budget`; here they are met by runs, on virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import pytest

import remit as rm
from loop_rig import EPOCH, desk, is_sendable, model_of, said, statuses, watched
from remit import (
    Call,
    ConfigurationError,
    Limits,
    Message,
    ModelProfile,
    ModelUnavailable,
    Outcome,
    Price,
    Reason,
    Remit,
    Text,
    Totals,
    Transcript,
    Usage,
)
from remit.models.base import ModelRequest, Settings
from remit.models.scripted import Item, ScriptedModel, Step
from remit.occupancy import fixed_tokens
from remit.testing import prefix_of, run_virtual
from remit.tools import Tool

PLENTY = 20_000_000
CLOSING = "No more tools will be run."
FREE = ModelProfile(price=Price(input=Decimal(0), output=Decimal(0)))


def limits(
    *,
    steps: int = 100,
    tokens: int = PLENTY,
    seconds: float = 1_000,
    usd: Decimal | None = None,
    calls: int | None = None,
) -> Limits:
    return Limits(steps=steps, tokens=tokens, seconds=seconds, usd=usd, calls=calls)


@rm.tool(effect="read")
async def look(at: int) -> str:
    """See what is there."""
    return f"saw {at}"


@rm.tool(effect="idempotent")
async def note(text: str) -> str:
    """Keep a note."""
    return f"kept {text}"


def steps_taken(transcript: Transcript) -> int:
    return sum(bool(message.tool_uses) for message in transcript)


def note_taker(wants: int, **step: Any) -> Callable[[Transcript, ModelRequest], Item]:
    """A model that takes the notes n1, n2 ... and answers; asked to hand back, it hands back."""

    def script(transcript: Transcript, _: ModelRequest) -> Item:
        last = transcript.last
        if last is not None and CLOSING in last.text:
            return Step("as far as I came", **step)
        n = sum(text.startswith("kept") for text in said(transcript)) + 1
        return Step("all done" if n > wants else ("note", {"text": f"n{n}"}), **step)

    return script


def closings(model: ScriptedModel) -> int:
    """How many requests were hand-backs."""
    return sum(CLOSING in request.messages[-1].text for request in model.requests)


def reported(outcome: Outcome[Any]) -> tuple[int, int, Decimal]:
    return outcome.spend.own.steps, outcome.spend.own.tokens, outcome.spend.own.usd


# --- each limit ends in an outcome, and new totals go on (L1, case 35) ---------------------------


def in_usage(tokens: int) -> dict[str, Any]:
    return {"usage": Usage(input=tokens)}


@pytest.mark.parametrize(
    ("given", "more", "reason", "options"),
    [
        pytest.param(limits(steps=3), limits(steps=6), Reason.STEP_BUDGET, {}, id="steps"),
        pytest.param(limits(calls=3), limits(calls=5), Reason.CALL_BUDGET, {}, id="calls"),
        pytest.param(
            limits(tokens=8_700),
            limits(tokens=60_000),
            Reason.TOKEN_BUDGET,
            in_usage(1_000),
            id="tokens",
        ),
        pytest.param(
            limits(usd=Decimal("0.11")),
            limits(usd=Decimal(2)),
            Reason.COST_BUDGET,
            {"usd": Decimal("0.03")},
            id="money",
        ),
        pytest.param(
            limits(seconds=5.5), limits(seconds=60), Reason.DEADLINE, {"delay": 1.0}, id="time"
        ),
        pytest.param(
            limits(steps=3, calls=3),
            limits(steps=6, calls=5),
            Reason.STEP_BUDGET,
            {},
            id="two at once",
        ),
    ],
)
def test_at_any_limit_the_work_is_in_hand_and_new_totals_go_on_to_the_answer(
    given: Limits, more: Limits, reason: Reason, options: dict[str, Any]
) -> None:
    """L1, L5, case 35: three notes of five, a text, a reason, an owner; then the rest, none twice."""

    async def main() -> None:
        remit = desk(note_taker(5, **options), [note], limits=given)
        first = await remit.run("Take five notes.", run_id="notes")
        assert (first.reason, first.whose) == (reason, "desk")
        assert said(first)[:3] == ["kept n1", "kept n2", "kept n3"]
        assert first.text == "as far as I came"
        assert first.output is None
        assert is_sendable(first.transcript)
        assert closings(model_of(remit)) == 1

        # Without more room there is nothing to go on with.
        assert await remit.resume("notes") == first
        assert await remit.run("Take five notes.", run_id="notes") == first

        second = await remit.resume("notes", limits=more)
        assert second.completed
        assert second.text == "all done"
        kept = [text for text in said(second) if text.startswith("kept")]
        assert kept == [f"kept n{n}" for n in (1, 2, 3, 4, 5)]
        assert prefix_of(tuple(first.transcript), tuple(second.transcript))
        assert second.steps > first.steps
        assert second.spend.own.tokens > first.spend.own.tokens

    run_virtual(main())


def test_a_limit_of_three_steps_runs_three_steps_with_their_calls() -> None:
    """L5, case 35: the hand-back comes on top and is no step."""

    async def main() -> None:
        remit = desk(note_taker(5), [note], limits=limits(steps=3))
        outcome = await remit.run("Take five notes.")
        assert said(outcome) == ["kept n1", "kept n2", "kept n3"]
        assert (outcome.steps, outcome.spend.own.steps) == (3, 3)
        assert model_of(remit).asked == 4

    run_virtual(main())


def test_a_deadline_in_the_calendar_ends_the_run_and_a_later_one_goes_on() -> None:
    """L1, L4: an instant ends it, whatever seconds are left."""

    async def main() -> None:
        def until(seconds: float) -> Limits:
            deadline = EPOCH + timedelta(seconds=seconds)
            return Limits(steps=100, tokens=PLENTY, seconds=20, deadline=deadline)

        remit = desk(note_taker(5, delay=1.0), [note], limits=until(5.5))
        first = await remit.run("Take five notes.", run_id="notes")
        assert (first.reason, first.whose) == (Reason.DEADLINE, "desk")
        assert first.text == "as far as I came"
        assert asyncio.get_running_loop().time() <= 5.5
        second = await remit.resume("notes", limits=until(60))
        assert second.completed
        assert said(second) == [f"kept n{n}" for n in (1, 2, 3, 4, 5)]

    run_virtual(main())


def test_of_eight_calls_with_four_left_the_first_four_run() -> None:
    """L1: bodies are counted in call order; the others are answered, and the limit ends the run."""

    async def main() -> None:
        script: list[Item] = [[("look", {"at": i}) for i in range(8)], "handed back"]
        outcome = await desk(script, [look], limits=limits(calls=4)).run("Look.")
        assert statuses(outcome) == ["ok"] * 4 + ["not_started"] * 4
        assert "limit on tool calls" in said(outcome)[4]
        assert (outcome.reason, outcome.text) == (Reason.CALL_BUDGET, "handed back")
        assert outcome.spend.own.calls == 4

    run_virtual(main())


@pytest.mark.parametrize(
    ("until", "price", "reason"),
    [
        (limits(calls=2), Decimal(0), Reason.CALL_BUDGET),
        (limits(usd=Decimal("1.25")), Decimal("0.5"), Reason.COST_BUDGET),
    ],
)
def test_a_read_that_could_begin_early_leaves_the_calls_before_it_what_they_need(
    until: Limits, price: Decimal, reason: Reason
) -> None:
    """L1: the first calls in call order run, however long the reply is still being written."""

    @rm.tool(effect="idempotent", usd=price)
    async def keep(at: int) -> str:
        """Keep."""
        return f"kept {at}"

    @rm.tool(effect="read", usd=price)
    async def glance(at: int) -> str:
        """Look."""
        return f"saw {at}"

    async def main() -> None:
        asked = [
            ("keep", {"at": 0}),
            ("glance", {"at": 1}),
            ("keep", {"at": 2}),
            ("glance", {"at": 3}),
        ]
        script: list[Item] = [Step(asked, between=0.1), "handed back"]
        outcome = await desk(script, [keep, glance], limits=until).run("Go.")
        assert statuses(outcome) == ["ok", "ok", "not_started", "not_started"]
        assert outcome.reason is reason

    run_virtual(main())


def test_a_turn_runs_at_most_128_calls() -> None:
    """L1: the rest of an overlong turn is answered, and the run goes on."""

    async def main() -> None:
        script: list[Item] = [[("look", {"at": i}) for i in range(130)], "done"]
        outcome = await desk(script, [look]).run("Look.")
        assert statuses(outcome) == ["ok"] * 128 + ["not_started"] * 2
        assert outcome.completed

    run_virtual(main())


def test_calls_that_are_used_up_do_not_end_a_run_that_needs_no_more() -> None:
    """L1: each limit is independent; no call was denied, so none ends the run."""

    async def main() -> None:
        remit = desk([("look", {"at": 1}), "done"], [look], limits=limits(calls=1))
        assert (await remit.run("Look.")).completed

    run_virtual(main())


def test_every_token_of_every_prompt_counts_cached_or_not() -> None:
    """L1: `tokens` is prompt and output of all calls together."""

    async def main() -> None:
        usage = Usage(input=1, cache_read=20, cache_write=300, output=4_000, reasoning=50)
        remit = desk([Step(("look", {"at": 1}), usage=usage), Step("done", usage=usage)], [look])
        outcome = await remit.run("Look.")
        assert outcome.spend.own.tokens == 2 * 4_321
        assert outcome.spend.own.usage == usage + usage

    run_virtual(main())


# --- reservations (L2, case 37) ------------------------------------------------------------------

UNPRICED = ModelProfile(reserve_usd=Decimal("0.35"))


def test_a_ceiling_is_held_by_reservation_and_what_was_spent_counts_on() -> None:
    """L2, case 37: of 1.00, calls at 0.30 that reserve 0.35 run three times; the fourth is not sent."""

    async def main() -> None:
        model = ScriptedModel(note_taker(9, usd=Decimal("0.30")), profile=UNPRICED, record=True)
        ceiling = limits(usd=Decimal("1.00"))
        remit = desk(model, [note], limits=ceiling, hand_back=False)
        outcome = await remit.run("Take notes.", run_id="notes")
        assert model.asked == 3
        assert (outcome.reason, outcome.whose) == (Reason.COST_BUDGET, "desk")
        assert outcome.spend.tree.usd == Decimal("0.90")
        stored = await remit.outcome("notes")
        assert stored.spend == outcome.spend  # enforcement and report read one ledger

        raised = await remit.resume("notes", limits=limits(usd=Decimal("1.26")))
        assert model.asked == 4
        assert raised.spend.tree.usd == Decimal("1.20")
        assert raised.reason is Reason.COST_BUDGET

    run_virtual(main())


def test_with_the_hand_back_the_ceiling_holds_as_well() -> None:
    """L2, L5, case 37: what the closing call may cost is kept from the start."""

    async def main() -> None:
        model = ScriptedModel(note_taker(9, usd=Decimal("0.30")), profile=UNPRICED, record=True)
        remit = desk(model, [note], limits=limits(usd=Decimal("1.00")))
        outcome = await remit.run("Take notes.")
        assert (model.asked, closings(model)) == (3, 1)
        assert outcome.spend.tree.usd == Decimal("0.90")
        assert outcome.text == "as far as I came"

    run_virtual(main())


def test_the_output_cap_is_lowered_to_what_is_affordable() -> None:
    """L2: a reply is asked for as long as it can be paid for, and no longer."""

    async def main() -> None:
        remit = desk(["short", "unused"], limits=limits(tokens=6_000), hand_back=False)
        assert (await remit.run("Go.")).completed
        [request] = model_of(remit).requests
        assert 5_900 < request.max_output < 6_000

    run_virtual(main())


@pytest.mark.parametrize(
    ("output", "cap", "asked"),
    [(1_024, None, 1), (1_023, None, 0), (300, 300, 1), (299, 300, 0)],
)
def test_a_step_below_the_floor_is_not_begun(output: int, cap: int | None, asked: int) -> None:
    """L2: the floor is 1,024 tokens of output, or the user's own cap where that is lower."""

    async def main() -> None:
        prompt = Transcript([Message("user", (Text("Go."),))]).tokens
        remit = desk(
            ["done"],
            limits=limits(tokens=prompt + output),
            settings=Settings(max_output=cap),
            hand_back=False,
        )
        outcome = await remit.run("Go.")
        assert model_of(remit).asked == asked
        if not asked:
            assert outcome.reason is Reason.TOKEN_BUDGET
            assert outcome.spend.own == Totals()

    run_virtual(main())


def test_a_model_whose_cap_is_not_enforced_declares_what_it_may_use() -> None:
    """L2: its reservation is what it declares, not what is asked for."""

    async def main() -> None:
        profile = ModelProfile(reserve_tokens=40_000)
        model = ScriptedModel(note_taker(9, **in_usage(30_000)), profile=profile, record=True)
        remit = desk(model, [note], limits=limits(tokens=100_000), hand_back=False)
        outcome = await remit.run("Take notes.")
        assert model.asked == 3  # 60,000 and 40,000 fit, 90,000 and 40,000 do not
        assert outcome.reason is Reason.TOKEN_BUDGET

    run_virtual(main())


def test_what_a_provider_reports_beyond_its_cap_is_charged_shown_and_stops_the_run() -> None:
    """L2: nothing was to be done about it before; afterwards nothing more is begun."""

    async def main() -> None:
        script = [Step(("look", {"at": 1}), usage=Usage(input=10, output=50_000)), "not asked for"]
        remit = desk(script, [look], limits=limits(tokens=12_000), hand_back=False)
        outcome, events = await watched(remit, "Look.")
        assert outcome.reason is Reason.TOKEN_BUDGET
        assert outcome.spend.own.tokens == 50_010
        overshoot = outcome.spend.overshoot.tokens
        prompt = fixed_tokens("", [tool.spec for tool in remit.offered]) + 10
        assert 50_010 - 8_192 - prompt < overshoot <= 50_010 - 8_192
        told = [event.fields["tokens"] for event in events if event.kind == "overshoot"]
        assert told == [overshoot]
        assert model_of(remit).asked == 1

    run_virtual(main())


def test_an_attempt_without_a_report_is_estimated_and_marked() -> None:
    """L2: a failure whose bill nobody knows costs what it may have cost."""

    async def main() -> None:
        def script(_: Transcript, request: ModelRequest) -> Item:
            del request
            if model.asked == 1:
                return Step("lost words", error=ModelUnavailable("gone"))
            return Step("done", usage=None)

        model = ScriptedModel(script)
        outcome = await desk(model).run("x" * 4_000)
        assert outcome.completed
        assert outcome.spend.estimated == 2
        assert outcome.spend.own.tokens > 2_000
        assert outcome.spend.own.usd > Decimal("0.006")

    run_virtual(main())


def test_a_failed_attempt_that_was_not_billed_costs_nothing() -> None:
    """L2: a reported zero is a report."""

    async def main() -> None:
        script: list[Item] = [
            ModelUnavailable("busy", usage=Usage()),
            Step("done", usage=Usage(5, 0, 0, 1)),
        ]
        outcome = await desk(script).run("Go.")
        assert outcome.spend.own.tokens == 6
        assert outcome.spend.estimated == 0

    run_virtual(main())


def test_a_limit_in_dollars_on_a_model_of_unknown_price_is_refused_before_anything_is_sent() -> (
    None
):
    """L2: a limit that nobody can hold is no limit, the parent's included."""

    async def main() -> None:
        unknown = ScriptedModel(["never"], profile=ModelProfile())
        with pytest.raises(ConfigurationError, match="price"):
            await desk(unknown, limits=limits(usd=Decimal(1))).run("Go.")
        child = Remit(name="helper", model=unknown, limits=limits())
        parent = desk(
            [("help", {"task": "x"}), "done"],
            [child.as_tool("help", "Helps.", limits=limits())],
            limits=limits(usd=Decimal(1)),
        )
        outcome = await parent.run("Go.")
        assert statuses(outcome) == ["error"]
        assert unknown.asked == 0

    run_virtual(main())


def test_a_model_that_costs_nothing_under_a_spent_ceiling_ends_the_run_and_does_not_spin() -> None:
    """L2: an account over its limit refuses everything, what is free included."""

    async def main() -> None:
        @rm.tool(effect="read")
        async def dear(call: Call[Any]) -> str:
            """Costs more than there is."""
            call.charge(usd=2)
            return "paid"

        model = ScriptedModel([("dear", {}), "not asked for", "nor this"], profile=FREE)
        asked = count()

        def enough() -> None:
            if next(asked) > 20:
                running.cancel()

        remit = desk(model, [dear], limits=limits(usd=Decimal(1)), notes=(enough,))
        running = asyncio.ensure_future(remit.run("Go."))
        outcome = await running
        assert (outcome.reason, outcome.whose) == (Reason.COST_BUDGET, "desk")
        assert outcome.spend.own.usd == 2

    run_virtual(main())


def test_a_prompt_that_cannot_be_paid_for_is_not_sent_where_output_is_free() -> None:
    """L2: the price of the prompt counts on its own."""

    async def main() -> None:
        profile = ModelProfile(price=Price(input=Decimal(1_000), output=Decimal(0)))
        model = ScriptedModel(["never"], profile=profile)
        outcome = await desk(model, limits=limits(usd=Decimal("0.5"))).run("x" * 40_000)
        assert outcome.reason is Reason.COST_BUDGET
        assert model.asked == 0

    run_virtual(main())


# --- tools spend too (L2) ------------------------------------------------------------------------


def test_a_tool_reserves_its_price_and_is_not_run_where_that_is_not_left() -> None:
    """L2: of three calls at 0.40 under 1.00 two run; the third says why not."""

    async def main() -> None:
        @rm.tool(effect="read", usd="0.40", tokens=100)
        async def buy(what: int) -> str:
            """Buy a datum."""
            return f"datum {what}"

        model = ScriptedModel(
            [[("buy", {"what": i}) for i in range(3)], "handed back"], profile=FREE
        )
        outcome = await desk(model, [buy], limits=limits(usd=Decimal(1))).run("Buy.")
        assert said(outcome)[:2] == ["datum 0", "datum 1"]
        assert statuses(outcome)[2] == "not_started"
        assert "cost limit" in said(outcome)[2]
        assert (outcome.reason, outcome.text) == (Reason.COST_BUDGET, "handed back")
        assert outcome.spend.own.usd == Decimal("0.80")
        assert outcome.spend.own.tokens == outcome.spend.own.usage.total + 200

    run_virtual(main())


def test_what_a_call_charges_replaces_what_was_reserved_for_it() -> None:
    """L2: charges of one call add up, and stand in the place of the tool's price."""

    async def main() -> None:
        @rm.tool(effect="read", usd="0.40", tokens=100)
        async def buy(call: Call[Any]) -> str:
            """Buy a datum, cheaply."""
            call.charge(usd="0.01", tokens=3)
            call.charge(usd="0.02", tokens=4)
            return "datum"

        model = ScriptedModel([("buy", {}), "done"], profile=FREE)
        outcome = await desk(model, [buy], limits=limits(usd=Decimal(1))).run("Buy.")
        assert outcome.spend.own.usd == Decimal("0.03")
        assert outcome.spend.own.tokens == outcome.spend.own.usage.total + 7
        assert outcome.spend.overshoot.usd == 0

    run_virtual(main())


def test_what_a_tool_charges_beyond_its_price_is_shown_as_overshoot() -> None:
    """L2: nothing was reserved for it, so it counts as overshoot."""

    async def main() -> None:
        @rm.tool(effect="read", usd="0.10")
        async def buy(call: Call[Any]) -> str:
            """Buy a datum, dearly."""
            call.charge(usd="0.25")
            return "datum"

        model = ScriptedModel([("buy", {}), "done"], profile=FREE)
        outcome = await desk(model, [buy], limits=limits(usd=Decimal(1))).run("Buy.")
        assert outcome.completed
        assert outcome.spend.overshoot.usd == Decimal("0.15")

    run_virtual(main())


# --- time (L4, case 38) --------------------------------------------------------------------------


def test_one_deadline_covers_model_and_tools_and_leaves_time_to_wrap_up() -> None:
    """L4, L5, case 38: of 1.0 s, tools of 0.3 s and a model of 0.1 s; wrap-up by 0.8, end by 1.05."""

    async def main() -> None:
        @rm.tool(effect="read")
        async def dig(at: int) -> str:
            """Dig for a while."""
            await asyncio.sleep(0.3)
            return f"dug {at}"

        def script(transcript: Transcript, _: ModelRequest) -> Item:
            last = transcript.last
            if last is not None and CLOSING in last.text:
                return "one hole"
            return [("dig", {"at": steps_taken(transcript)})]

        model = ScriptedModel(script, latency=0.1, record=True)
        remit = desk(model, [dig], limits=limits(seconds=1.0))
        outcome = await remit.run("Dig.")
        wrap_up = [r.at for r in model.requests if CLOSING in r.messages[-1].text]
        assert len(wrap_up) == 1
        assert wrap_up[0] <= 0.8
        assert asyncio.get_running_loop().time() <= 1.05
        assert (outcome.reason, outcome.whose) == (Reason.DEADLINE, "desk")
        assert outcome.text == "one hole"
        assert said(outcome)[0] == "dug 0"

    run_virtual(main())


def test_a_hung_tool_uses_no_more_than_what_is_left() -> None:
    """L4, C7, case 38: it is cut in time for the hand-back, and its siblings keep their results."""

    async def main() -> None:
        @rm.tool(effect="read")
        async def hang() -> str:
            """Never comes back."""
            await asyncio.get_running_loop().create_future()
            return "never"

        model = ScriptedModel([[("look", {"at": 1}), ("hang", {})], "handed back"], latency=0.1)
        outcome = await desk(model, [look, hang], limits=limits(seconds=1.0)).run("Go.")
        assert said(outcome)[0] == "saw 1"
        assert statuses(outcome) == ["ok", "error"]
        assert (outcome.reason, outcome.text) == (Reason.DEADLINE, "handed back")
        assert asyncio.get_running_loop().time() <= 1.0

    run_virtual(main())


def test_waiting_for_a_resource_counts_against_the_deadline() -> None:
    """L4, case 38: the time to queue counts."""

    async def main() -> None:
        @rm.tool(effect="idempotent", resource="desk")
        async def use(n: int) -> str:
            """Use the one desk."""
            await asyncio.sleep(0.6)
            return f"used {n}"

        model = ScriptedModel([[("use", {"n": i}) for i in range(3)], "handed back"])
        outcome = await desk(model, [use], limits=limits(seconds=1.0)).run("Go.")
        assert statuses(outcome) == ["ok", "unknown", "not_started"]
        assert outcome.reason is Reason.DEADLINE
        assert asyncio.get_running_loop().time() <= 1.0

    run_virtual(main())


def test_a_model_that_takes_too_long_is_cut_and_the_run_ends_in_time() -> None:
    """L4: the deadline reaches the model call; what it had said by then is kept and charged."""

    async def main() -> None:
        script = [("look", {"at": 1}), Step(["thinking aloud", "and on"], between=50.0)]
        model = ScriptedModel([*script, "handed back"], record=True)
        outcome = await desk(model, [look], limits=limits(seconds=10.0)).run("Go.")
        assert outcome.reason is Reason.DEADLINE
        assert [r.deadline for r in model.requests] == [9.5, 9.5, 10.0]
        assert outcome.text == "handed back"
        assert "thinking aloud" in [message.text for message in outcome.transcript]
        assert outcome.spend.estimated == 1
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_a_hand_back_that_does_not_come_in_time_is_cut_at_the_deadline() -> None:
    """L4, L5: the closing call has until the end and no longer; the reason stays the limit's."""

    async def main() -> None:
        model = ScriptedModel([("look", {"at": 1}), Step("too late", delay=99.0)])
        outcome = await desk(model, [look], limits=limits(steps=1, seconds=10)).run("Go.")
        assert outcome.reason is Reason.STEP_BUDGET
        assert outcome.text == ""
        assert asyncio.get_running_loop().time() == 10.0

    run_virtual(main())


def test_a_run_of_which_nothing_is_left_to_wait_for_is_not_begun() -> None:
    """L4: a deadline in the past ends the run before anything is sent."""

    async def main() -> None:
        past = Limits(steps=1, tokens=PLENTY, seconds=10, deadline=EPOCH - timedelta(seconds=1))
        remit = desk(["never"], limits=past)
        outcome = await remit.run("Go.")
        assert outcome.reason is Reason.DEADLINE
        assert model_of(remit).asked == 0

    run_virtual(main())


def test_seconds_stand_still_while_somebody_decides_and_a_deadline_does_not() -> None:
    """L4: a day of waiting costs no active time, but it may cost the deadline."""

    async def decided_after(wait: float, deadline: float | None) -> Outcome[Any]:
        @rm.tool(effect="confirm", expires=1_000_000)
        async def pay(amount: int) -> str:
            """Pay."""
            return f"paid {amount}"

        ends = None if deadline is None else EPOCH + timedelta(seconds=deadline)
        within = Limits(steps=9, tokens=PLENTY, seconds=30, deadline=ends)
        model = ScriptedModel([("pay", {"amount": 5}), "done"], latency=1.0)
        remit = desk(model, [pay], limits=within)
        waiting = await remit.run("Pay.", run_id="pay")
        assert waiting.reason is Reason.WAITING
        await asyncio.sleep(wait)
        await remit.decide(waiting.pending[0].token, approve=True, by="dana")
        return await remit.resume("pay")

    outcome = run_virtual(decided_after(86_400, None))
    assert outcome.completed
    assert outcome.spend.own.seconds == pytest.approx(2.0)
    late = run_virtual(decided_after(86_400, 3_600))
    assert late.reason is Reason.DEADLINE
    assert statuses(late) == ["not_started"]


def test_the_clock_of_the_run_stands_while_the_callback_decides() -> None:
    """L4: a person at a terminal may take longer than the run may."""

    async def main() -> None:
        @rm.tool(effect="confirm", expires=1_000_000)
        async def pay(amount: int) -> str:
            """Pay."""
            return f"paid {amount}"

        async def confirm(_: rm.Pending) -> rm.Decision:
            await asyncio.sleep(500)
            return rm.Decision(True, "dana")

        model = ScriptedModel([("pay", {"amount": 5}), "done"], latency=1.0)
        remit = desk(model, [pay], limits=limits(seconds=30), confirm=confirm)
        outcome = await remit.run("Pay.")
        assert outcome.completed
        assert said(outcome) == ["paid 5"]
        assert outcome.spend.own.seconds == pytest.approx(2.0)

    run_virtual(main())


# --- the hand-back (L5) --------------------------------------------------------------------------


def test_calls_of_the_hand_back_are_answered_and_not_run() -> None:
    """L5: the closing call is for words."""

    async def main() -> None:
        script: list[Item] = [
            ("note", {"text": "n1"}),
            ["nearly done", ("note", {"text": "n2"}), ("note", {"text": "n3"})],
            "not asked for",
        ]
        remit = desk(script, [note], limits=limits(steps=1))
        outcome = await remit.run("Take notes.")
        assert statuses(outcome) == ["ok", "not_started", "not_started"]
        assert said(outcome)[1] == "Not run: the limit was reached and no more tools run."
        assert outcome.text == "nearly done"
        assert outcome.spend.own.calls == 1
        assert model_of(remit).asked == 2
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_without_a_hand_back_the_run_ends_where_it_stands() -> None:
    """L5: `hand_back=False` switches it off, and nothing is kept for it."""

    async def main() -> None:
        remit = desk(note_taker(5), [note], limits=limits(steps=3), hand_back=False)
        outcome = await remit.run("Take notes.")
        assert (outcome.reason, outcome.text) == (Reason.STEP_BUDGET, "")
        assert said(outcome) == ["kept n1", "kept n2", "kept n3"]
        assert model_of(remit).asked == 3

    run_virtual(main())


def test_a_limit_reached_exactly_when_the_model_finishes_is_no_end() -> None:
    """L5: three steps were allowed and three were needed."""

    async def main() -> None:
        remit = desk(note_taker(2), [note], limits=limits(steps=3, calls=2))
        outcome = await remit.run("Take two notes.")
        assert outcome.completed
        assert outcome.text == "all done"
        assert closings(model_of(remit)) == 0

    run_virtual(main())


def test_a_hand_back_that_fails_leaves_the_reason_and_the_work() -> None:
    """L5: the reason stays the limit's, also where the model cannot be asked any more."""

    async def main() -> None:
        script: list[Item] = [("note", {"text": "n1"}), rm.ModelRejected("no", usage=Usage())]
        outcome = await desk(script, [note], limits=limits(steps=1)).run("Take notes.")
        assert (outcome.reason, outcome.whose) == (Reason.STEP_BUDGET, "desk")
        assert said(outcome) == ["kept n1"]
        assert outcome.error is None

    run_virtual(main())


def test_a_long_reply_leaves_room_for_the_hand_back_it_makes_longer() -> None:
    """L5: a step is begun only if it and the hand-back both fit, however long the reply becomes."""

    async def main() -> None:
        def script(transcript: Transcript, request: ModelRequest) -> Item:
            last = transcript.last
            if last is not None and CLOSING in last.text:
                return "handed back"
            words = "w" * (4 * request.max_output - 40)
            return [words, ("look", {"at": steps_taken(transcript)})]

        for tokens in range(5_000, 60_000, 5_000):
            model = ScriptedModel(script, record=True)
            outcome = await desk(model, [look], limits=limits(tokens=tokens)).run("Go.")
            assert outcome.reason is Reason.TOKEN_BUDGET
            assert outcome.text == "handed back", tokens
            assert outcome.spend.own.tokens <= tokens

    run_virtual(main())


def test_new_limits_without_room_for_a_step_bring_no_second_hand_back() -> None:
    """L5: at most one hand-back for the work that was done."""

    async def main() -> None:
        remit = desk(note_taker(9, **in_usage(1_000)), [note], limits=limits(tokens=14_000))
        first = await remit.run("Take notes.", run_id="notes")
        asked = model_of(remit).asked
        again = await remit.resume("notes", limits=limits(tokens=14_010))
        assert model_of(remit).asked == asked
        assert (again.reason, again.text) == (first.reason, first.text)

    run_virtual(main())


# --- the tree (L3, case 68) ----------------------------------------------------------------------


def helper(
    name: str,
    script: Callable[[Transcript, ModelRequest], Item] | Sequence[Item],
    tools: Iterable[Tool[..., Any]] = (),
    *,
    profile: ModelProfile | None = None,
    **options: Any,
) -> Remit[Any]:
    model = ScriptedModel(script, profile=profile or FREE, record=True)
    return desk(model, tools, name=name, **{"limits": limits(), **options})


UNIT = ModelProfile(
    price=Price(input=Decimal(0), output=Decimal(0)), max_output=10, reserve_tokens=10
)
"""A model of which each call uses ten tokens and says so before."""


def tens(script: Callable[[Transcript], Any]) -> Callable[[Transcript, ModelRequest], Item]:
    return lambda transcript, _: Step(script(transcript), usage=Usage(input=10))


def test_children_draw_together_on_what_their_root_has_left() -> None:
    """L3, case 68: of 100 with 40 spent, three children that ask for 60 each get 60 together."""

    async def main() -> None:
        busy = helper(
            "busy",
            tens(lambda transcript: ("look", {"at": steps_taken(transcript)})),
            [look],
            profile=UNIT,
            hand_back=False,
        )
        delegate = busy.as_tool("busy", "Works.", limits=limits(tokens=60))

        def script(transcript: Transcript) -> Any:
            done = steps_taken(transcript)
            if done < 3:
                return ("look", {"at": done})
            return [("busy", {"task": f"part {i}"}) for i in range(3)]

        root = helper(
            "root",
            tens(script),
            [look, delegate],
            profile=UNIT,
            limits=limits(tokens=100),
            hand_back=False,
        )
        outcome = await root.run("Go.")
        assert (outcome.reason, outcome.whose) == (Reason.TOKEN_BUDGET, "root")
        assert outcome.spend.own.tokens == 40
        assert outcome.spend.tree.tokens == 100
        assert all("token_budget of root" in text for text in said(outcome)[3:])

    run_virtual(main())


def test_a_recursion_of_helpers_stops_at_the_root() -> None:
    """L3, case 68: three levels deep, the reason is the root's, and no loop of instant failures."""

    async def main() -> None:
        def digs(transcript: Transcript) -> Any:
            return ("deeper", {"task": f"level {steps_taken(transcript)}"})

        third = helper(
            "third",
            tens(lambda transcript: ("look", {"at": steps_taken(transcript)})),
            [look],
            profile=UNIT,
        )
        own = limits(tokens=60)
        second = helper(
            "second", tens(digs), [third.as_tool("deeper", "Digs.", limits=own)], profile=UNIT
        )
        root = helper(
            "root",
            tens(digs),
            [second.as_tool("deeper", "Digs.", limits=limits(tokens=90))],
            profile=UNIT,
            limits=limits(tokens=100),
        )
        outcome = await root.run("Go.")
        assert (outcome.reason, outcome.whose) == (Reason.TOKEN_BUDGET, "root")
        assert outcome.spend.tree.tokens <= 100
        asked = sum(model_of(each).asked for each in (root, second, third))
        assert asked * 10 == outcome.spend.tree.tokens

    run_virtual(main())


def test_children_cannot_draw_what_is_kept_for_the_hand_back_of_their_parent() -> None:
    """L3, L5: however greedy the child, its parent hands back."""

    async def main() -> None:
        greedy = helper(
            "greedy",
            tens(lambda transcript: ("look", {"at": steps_taken(transcript)})),
            [look],
            profile=UNIT,
        )
        script = [
            Step(("greedy", {"task": "all of it"}), usage=Usage(input=10)),
            Step("handed back", usage=Usage(input=10)),
        ]
        root = helper(
            "root",
            script,
            [greedy.as_tool("greedy", "Takes.", limits=limits())],
            profile=UNIT,
            limits=limits(tokens=100),
        )
        outcome = await root.run("Go.")
        assert (outcome.reason, outcome.whose) == (Reason.TOKEN_BUDGET, "root")
        assert outcome.text == "handed back"
        assert outcome.spend.tree.tokens <= 100

    run_virtual(main())


def test_the_limits_of_a_child_are_a_ceiling_and_named_as_its_own() -> None:
    """L3: where the child's own limit is the one met, the child is named, and the parent goes on."""

    async def main() -> None:
        busy = helper("busy", note_taker(9), [note])
        root = helper(
            "root",
            [("busy", {"task": "notes"}), "done"],
            [busy.as_tool("busy", "Works.", limits=limits(steps=2))],
        )
        outcome = await root.run("Go.")
        assert outcome.completed
        assert said(outcome) == [
            "Error: the task is not done (step_budget of busy). As far as it came: as far as I came"
        ]
        assert outcome.spend.own.steps == 2
        assert outcome.spend.tree.steps == 4

    run_virtual(main())


def test_a_run_inside_a_tool_body_is_a_child_of_that_call() -> None:
    """L3: `run` and `stream` find the call around them: its account, its deadline, its end."""

    async def main() -> None:
        slow = helper("slow", note_taker(9, delay=1.0), [note])
        brief = helper("brief", note_taker(9), [note])

        @rm.tool(effect="idempotent", timeout=5)
        async def by_run() -> str:
            """Ask the slow one."""
            outcome = await slow.run("Take notes.")
            return f"{outcome.reason} of {outcome.whose}"

        @rm.tool(effect="idempotent")
        async def by_stream() -> str:
            """Ask the brief one, and watch."""
            async with brief.stream("Take notes.", limits=limits(steps=2)) as live:
                pass
            return f"{live.outcome.reason} of {live.outcome.whose}"

        root = helper("root", [("by_run", {}), ("by_stream", {}), "done"], [by_run, by_stream])
        outcome = await root.run("Go.")
        assert said(outcome) == ["deadline of root", "step_budget of brief"]
        asked = [request.at for request in model_of(slow).requests]
        assert asked == [0.0, 1.0, 2.0]  # two steps, and the hand-back, 2 s before its end at 4.5
        assert outcome.spend.tree.steps == outcome.spend.own.steps + 2 + 2

    run_virtual(main())


def test_a_detached_run_is_outside() -> None:
    """L3: a declared exception: neither the account nor the clock of the call around it."""

    async def main() -> None:
        inner = helper("inner", [Step("done at length", delay=20.0, usage=Usage(input=9_000))])

        @rm.tool(effect="idempotent", timeout=60)
        async def leave() -> str:
            """Let the inner one do it by itself."""
            return (await inner.run("Go.", detached=True)).text

        root = helper("root", [("leave", {}), "done"], [leave], limits=limits(tokens=30_000))
        outcome = await root.run("Go.")
        assert said(outcome) == ["done at length"]
        assert outcome.spend.tree == outcome.spend.own

    run_virtual(main())


def test_a_share_set_aside_is_the_childs_own_whatever_its_siblings_do() -> None:
    """L3: `reserve=True` keeps the child's whole share from the moment the call begins."""

    async def main() -> None:
        slow = helper("slow", tens_after(3), [note], profile=UNIT, hand_back=False)
        greedy = helper(
            "greedy",
            tens(lambda transcript: ("look", {"at": steps_taken(transcript)})),
            [look],
            profile=UNIT,
            hand_back=False,
        )

        async def run(*, reserve: bool) -> Outcome[Any]:
            tools = [
                slow.as_tool("slow", "Slow.", limits=limits(steps=9, tokens=40), reserve=reserve),
                greedy.as_tool("greedy", "Greedy.", limits=limits()),
            ]
            turn = [("slow", {"task": "a"}), ("greedy", {"task": "b"})]
            script = tens(lambda _: turn)
            options: dict[str, Any] = {"limits": limits(tokens=100), "hand_back": False}
            root = helper("root", script, tools, profile=UNIT, **options)
            return await root.run("Go.")

        without, kept = await run(reserve=False), await run(reserve=True)
        assert "token_budget of root" in said(without)[0]
        assert said(kept)[0] == "all done"
        assert "token_budget of root" in said(kept)[1]
        assert kept.spend.tree.tokens == 100

    run_virtual(main())


def tens_after(wants: int) -> Callable[[Transcript, ModelRequest], Item]:
    return note_taker(wants, delay=1.0, usage=Usage(input=10))


def test_what_is_left_of_a_share_flows_back_when_its_run_ends() -> None:
    """L3, case 68: unused reservation is not lost to the tree."""

    async def main() -> None:
        modest = helper("modest", tens(lambda _: "done"), profile=UNIT, hand_back=False)
        share = limits(steps=2, tokens=60)
        script = [Step(("modest", {"task": f"part {i}"}), usage=Usage(input=10)) for i in range(3)]
        root = helper(
            "root",
            [*script, Step("all parts", usage=Usage(input=10))],
            [modest.as_tool("modest", "Modest.", limits=share, reserve=True)],
            profile=UNIT,
            limits=limits(steps=20, tokens=110),
            hand_back=False,
        )
        outcome = await root.run("Go.")
        assert said(outcome) == ["done"] * 3
        assert outcome.completed
        assert outcome.spend.tree.tokens == 70

    run_virtual(main())


def test_a_share_that_cannot_be_had_is_an_error_that_names_the_limit() -> None:
    """L3: nothing is begun on a share that is not there; the caller of the tool may do otherwise."""

    async def main() -> None:
        modest = helper("modest", tens(lambda _: "done"), profile=UNIT, hand_back=False)
        root = helper(
            "root",
            [
                Step(("modest", {"task": "x"}), usage=Usage(input=10)),
                Step("without it", usage=Usage(input=10)),
            ],
            [modest.as_tool("modest", "Modest.", limits=limits(steps=2, tokens=500), reserve=True)],
            profile=UNIT,
            limits=limits(steps=20, tokens=110),
            hand_back=False,
        )
        outcome = await root.run("Go.")
        assert said(outcome) == ["Error: the task is not done (token_budget of root)."]
        assert statuses(outcome) == ["error"]
        assert model_of(modest).asked == 0
        assert outcome.text == "without it"
        assert outcome.completed

    run_virtual(main())


# --- what the model is told (L6) -----------------------------------------------------------------


def marks(model: ScriptedModel) -> list[tuple[int, str]]:
    """Before which request what was told of the budget."""
    told: list[tuple[int, str]] = []
    for number, request in enumerate(model.requests, 1):
        text = request.messages[-1].text
        if "Left of your budget" in text:
            told.append((number, text[text.index("Left of your budget") :]))
    return told


def test_the_budget_is_told_at_a_half_a_quarter_and_a_tenth() -> None:
    """L6: three notes over a run, each once, and none where nobody asked for them."""

    async def main() -> None:
        remit = desk(note_taker(30), [note], limits=limits(steps=20), show_budget=True)
        await remit.run("Take notes.")
        told = marks(model_of(remit))
        assert [number for number, _ in told] == [11, 16, 19]
        assert "10 of 20 steps" in told[0][1]
        silent = desk(note_taker(30), [note], limits=limits(steps=20))
        await silent.run("Take notes.")
        assert marks(model_of(silent)) == []

    run_virtual(main())


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (limits(seconds=100), {"delay": 8.0}, "44.0 of 100.0 seconds"),
        (limits(tokens=200_000), in_usage(10_000), "100,000 of 200,000 tokens"),
        (limits(calls=4), {}, "2 of 4 tool calls"),
        (limits(usd=Decimal(1)), {"usd": Decimal("0.30")}, "0.40 of 1 US dollars"),
    ],
)
def test_every_limit_counts_for_the_marks(
    given: Limits, options: dict[str, Any], words: str
) -> None:
    """L6: clock, tokens, calls and money alike; the scarcest decides when."""

    async def main() -> None:
        remit = desk(note_taker(30, **options), [note], limits=given, show_budget=True)
        await remit.run("Take notes.")
        assert words in marks(model_of(remit))[0][1]

    run_virtual(main())


def test_marks_that_are_passed_at_once_are_told_as_the_lowest() -> None:
    """L6: what is no longer true is not told."""

    async def main() -> None:
        script: list[Item] = [
            Step(("look", {"at": 1}), usage=Usage(input=92_000)),
            Step("done", usage=Usage(input=1)),
        ]
        given = limits(tokens=100_000)
        remit = desk(script, [look], limits=given, show_budget=True, hand_back=False)
        await remit.run("Look.")
        assert len(marks(model_of(remit))) <= 1

    run_virtual(main())


def test_new_totals_are_told_anew() -> None:
    """L6: after a resume with more room the marks are those of the new totals."""

    async def main() -> None:
        remit = desk(note_taker(30), [note], limits=limits(steps=4), show_budget=True)
        await remit.run("Take notes.", run_id="notes")
        before = len(marks(model_of(remit)))
        await remit.resume("notes", limits=limits(steps=20))
        after = marks(model_of(remit))[before:]
        assert [text.split()[4] for _, text in after] == ["10", "5", "2"]

    run_virtual(main())


# --- one ledger (L2, L3, J4) ---------------------------------------------------------------------


def test_the_spend_of_a_tree_is_the_sum_of_what_its_models_reported() -> None:
    """J4, L3: each token once, in own and in tree, over failures, hand-backs and children."""

    async def main() -> None:
        bills: list[Usage] = []

        def billed(says: Any, n: int, **step: Any) -> Step:
            usage = Usage(input=n, cache_read=2 * n, output=n // 2, reasoning=n // 4)
            bills.append(usage)
            return Step(says, usage=usage, **step)

        child = helper(
            "child",
            lambda transcript, _: billed(
                ("look", {"at": 1}) if not steps_taken(transcript) else "child done", 40
            ),
            [look],
        )

        def script(transcript: Transcript, request: ModelRequest) -> Item:
            del request
            number = model_of(root).asked
            if number == 1:
                bills.append(Usage(input=7))
                return ModelUnavailable("busy", usage=Usage(input=7))
            done = steps_taken(transcript)
            if done < 2:
                return billed([("child", {"task": f"{done}"}), ("look", {"at": done})], 100)
            return billed("handed back", 10)

        root = helper(
            "root",
            script,
            [child.as_tool("child", "Helps.", limits=limits()), look],
            limits=limits(steps=6),
        )
        outcome = await root.run("Go.", run_id="sum")
        total = sum(bills, Usage())
        assert outcome.spend.tree.usage == total
        assert outcome.spend.tree.tokens == total.total
        assert outcome.spend.own.usage == Usage(input=7) + sum(
            (usage for usage in bills if usage.input in (10, 100)), Usage()
        )
        assert outcome.spend.tree.calls == 2 * 3
        assert outcome.spend.estimated == 0
        assert (await root.outcome("sum")).spend == outcome.spend

    run_virtual(main())


def test_the_live_account_and_the_rows_agree_to_the_token() -> None:
    """J4, L2: what is enforced and what is reported are the same numbers, whatever was billed."""

    async def main() -> None:
        @rm.tool(effect="read", usd="0.05", tokens=11)
        async def buy(what: int, call: Call[Any]) -> str:
            """Buy a datum."""
            if what == 2:
                call.charge(usd="0.25", tokens=40)
            await asyncio.sleep(0.1)
            return "datum"

        child = helper("child", [Step("child done", usage=Usage(3))])
        script: list[Item] = [
            Step([("buy", {"what": 1}), "lost"], between=1.0, error=ModelUnavailable("cut")),
            Step(
                [("buy", {"what": 2}), ("child", {"task": "x"})],
                usage=Usage(input=10, output=90_000),
            ),
            Step("done", usage=Usage(input=5)),
        ]
        root = helper("root", script, [buy, child.as_tool("child", "Helps.", limits=limits())])
        async with root.stream("Go.") as live:
            async for _ in live:
                pass
            run = live._run  # what is enforced is nowhere shown
        reported = live.outcome.spend
        assert live.outcome.completed
        assert run is not None
        enforced = run.means.budget.spend
        for name in ("steps", "calls", "tokens", "usd", "usage"):
            for of in ("own", "tree"):
                pair = [getattr(getattr(spend, of), name) for spend in (enforced, reported)]
                assert pair[0] == pair[1], (of, name)
        assert enforced.overshoot == reported.overshoot
        assert enforced.estimated == reported.estimated
        assert reported.own.calls == 3  # the discarded read was entered too (C3)

    run_virtual(main())
