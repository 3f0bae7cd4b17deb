"""Tools whose result ends the run: when it ends, with what, and what does not end it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import remit
from loop_rig import (
    LIMITS,
    desk,
    is_sendable,
    model_of,
    results,
    rows,
    said,
    statuses,
    watched,
)
from remit import Decision, Limits, Pending, Reason, Tool, ToolError
from remit.canonical import encode
from remit.rows import Settled
from remit.testing import ScriptedModel, Step, run_virtual


class World:
    """What the bodies did, and how long each takes."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Tool[..., Any]]:
        @remit.tool(effect="idempotent", resource=(), ends_run=True)
        async def hand_over(to: str) -> str:
            """Give the case to a person."""
            await asyncio.sleep(1)
            if to == "nobody":
                raise ToolError("nobody is there")
            self.done.append(f"hand_over {to}")
            return f"{to} has it"

        @remit.tool(effect="confirm", resource=(), ends_run=True)
        async def close_account(number: int) -> dict[str, int]:
            """Close an account."""
            self.done.append(f"close {number}")
            return {"closed": number}

        @remit.tool(effect="confirm", resource=())
        async def pay(amount: int) -> str:
            """Pay."""
            self.done.append(f"pay {amount}")
            return f"paid {amount}"

        @remit.tool(effect="idempotent", resource=())
        async def note(text: str) -> str:
            """Write a note, slowly."""
            await asyncio.sleep(3)
            self.done.append(f"note {text}")
            return f"noted {text}"

        @remit.tool(effect="read")
        async def fail() -> str:
            """Fail."""
            raise RuntimeError("broken")

        @remit.tool(effect="read", ends_run=True)
        async def enough(n: int) -> str:
            """Say that it is enough."""
            return f"enough {n}"

        return [hand_over, close_account, pay, note, fail, enough]


def test_the_run_ends_once_every_sibling_is_settled() -> None:
    """O2, T1, T2: a slow effect beside the call that ends the run takes effect and has its result."""

    async def main() -> None:
        world = World()
        calls = [("note", {"text": "a"}), ("hand_over", {"to": "dana"}), ("note", {"text": "b"})]
        support = desk([calls], world.tools())
        outcome = await support.run("go", run_id="r")
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, "dana has it")
        assert world.done == ["hand_over dana", "note a", "note b"]
        assert said(outcome) == ["noted a", "dana has it", "noted b"]
        assert model_of(support).asked == 1
        assert is_sendable(outcome.transcript)
        ends = {
            row.tool_use_id: row.ends
            for row in await rows(support, "r")
            if isinstance(row, Settled)
        }
        assert list(ends.values()).count("done") == 1

    run_virtual(main())


def test_the_outcome_is_the_same_for_whoever_asks_later_and_the_conversation_goes_on() -> None:
    """O2, J3, T2: a stored run that a tool ended gives its output again, and a history like any other."""

    async def main() -> None:
        world = World()
        support = desk([("hand_over", {"to": "dana"}), "thanks"], world.tools())
        first = await support.run("go", run_id="r")
        for again in (
            await support.outcome("r"),
            await support.resume("r"),
            await support.run("go", run_id="r"),
        ):
            assert (again.reason, again.output, again.text) == (
                first.reason,
                "dana has it",
                "dana has it",
            )
        on = await support.run("and now?", history=first.transcript)
        assert (on.output, on.completed) == ("thanks", True)
        assert world.done == ["hand_over dana"]

    run_virtual(main())


def test_what_the_model_said_last_is_the_text_and_the_result_is_the_output() -> None:
    """O2: `text` are the model's own words where there are any."""

    async def main() -> None:
        said_so = ["I hand this over.", ("hand_over", {"to": "dana"})]
        outcome = await desk([said_so], World().tools()).run("go")
        assert (outcome.text, outcome.output) == ("I hand this over.", "dana has it")

    run_virtual(main())


@pytest.mark.parametrize("arguments", [{"to": "nobody"}, {"to": 3}, '{"to": "da'])
def test_a_call_that_failed_ends_nothing(arguments: Any) -> None:
    """O2, C1: an error, or arguments that do not fit, goes back to the model like any other."""

    async def main() -> None:
        support = desk([("hand_over", arguments), "I could not"], World().tools())
        outcome = await support.run("go")
        assert statuses(outcome) == ["error"]
        assert (outcome.output, outcome.steps) == ("I could not", 2)

    run_virtual(main())


def test_a_sibling_that_failed_does_not_keep_the_run_from_ending() -> None:
    """O2, C1: siblings have their own results, whatever those are."""

    async def main() -> None:
        outcome = await desk([[("fail", {}), ("enough", {"n": 1})]], World().tools()).run("go")
        assert statuses(outcome) == ["error", "ok"]
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, "enough 1")

    run_virtual(main())


def test_of_several_calls_that_end_the_run_the_first_in_call_order_gives_the_output() -> None:
    """O2, T1: all of them run; which came to its end first does not count."""

    async def main() -> None:
        world = World()
        calls = [("hand_over", {"to": "dana"}), ("enough", {"n": 2}), ("hand_over", {"to": "kim"})]
        outcome = await desk([calls], world.tools()).run("go")
        assert (outcome.output, statuses(outcome)) == ("dana has it", ["ok"] * 3)

    run_virtual(main())


@pytest.mark.parametrize("approve", [True, False])
def test_an_effect_that_ends_the_run_does_so_after_its_approval(approve: bool) -> None:
    """O2, E5: what a person has to approve ends nothing before; a refusal is the model's to read."""

    async def main() -> None:
        world = World()
        support = desk([("close_account", {"number": 7}), "left open"], world.tools())
        outcome = await support.run("go")
        assert outcome.reason is Reason.WAITING
        assert outcome.output is None
        await support.decide(outcome.pending[0].token, approve=approve, by="dana")
        outcome = await support.resume(outcome.run_id)
        assert outcome.completed
        assert outcome.output == ('{"closed":7}' if approve else "left open")
        assert world.done == (["close 7"] if approve else [])

    run_virtual(main())


@pytest.mark.parametrize("approve", [True, False])
def test_a_sibling_that_waits_for_a_decision_is_waited_for(approve: bool) -> None:
    """O2, E6: the run completes after the decision, whichever it is; nothing runs twice."""

    async def main() -> None:
        world = World()
        calls = [("pay", {"amount": 5}), ("hand_over", {"to": "dana"})]
        support = desk([calls], world.tools())
        outcome = await support.run("go")
        assert outcome.reason is Reason.WAITING
        assert outcome.output is None
        assert world.done == ["hand_over dana"]
        await support.decide(outcome.pending[0].token, approve=approve, by="dana")
        outcome = await support.resume(outcome.run_id)
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, "dana has it")
        assert statuses(outcome) == ["ok" if approve else "refused", "ok"]
        assert world.done == ["hand_over dana", "pay 5"][: 1 + approve]
        assert model_of(support).asked == 1

    run_virtual(main())


def test_a_limit_that_is_reached_at_the_same_step_is_no_limits_end() -> None:
    """O2, L5: the step that was the last one allowed ended the run itself; no hand-back is made."""

    async def main() -> None:
        limits = Limits(steps=1, tokens=1_000_000, seconds=60, calls=1)
        calls = [("hand_over", {"to": "dana"}), ("note", {"text": "a"})]
        support = desk([calls, "closing words"], World().tools(), limits=limits)
        outcome = await support.run("go")
        assert statuses(outcome) == ["ok", "not_started"]
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, "dana has it")
        assert model_of(support).asked == 1

    run_virtual(main())


def test_what_a_user_says_meanwhile_is_answered_before_the_run_ends() -> None:
    """O2, T5: input behind the results makes the end of the run an answer to it."""

    async def main() -> None:
        support = desk([("hand_over", {"to": "dana"}), "also Tuesday, then"], World().tools())
        async with support.stream("go") as live:
            await asyncio.sleep(0.5)
            live.send("also Tuesday")
        assert live.outcome.completed
        assert live.outcome.output == "also Tuesday, then"
        assert [r.status.value for r in results(live.outcome)] == ["ok"]
        assert model_of(support).asked == 2

    run_virtual(main())


def test_a_read_that_began_early_ends_the_run_like_any_other() -> None:
    """O2, C3: whether a body began before its reply was whole makes no difference to what it means."""

    async def main() -> None:
        step = Step([("enough", {"n": 1}), "so much for that"], between=1.0)
        outcome, events = await watched(desk([step], World().tools()), "go")
        order = [event.kind for event in events]
        assert order.index("call_started") < order.index("replied")
        assert (outcome.output, outcome.text) == ("enough 1", "so much for that")

    run_virtual(main())


def test_a_tool_of_its_own_schema_can_end_the_run_too() -> None:
    """O2: the option is the same for both ways to make a tool."""

    def handler(arguments: dict[str, Any]) -> str:
        return f"bye {arguments['who']}"

    leave = Tool.from_schema(
        name="leave",
        description="Leave.",
        parameters={"properties": {"who": {"type": "string"}}},
        handler=handler,
        effect="read",
        ends_run=True,
    )

    async def main() -> None:
        outcome = await desk([("leave", {"who": "dana"})], [leave]).run("go")
        assert (outcome.completed, outcome.output) == (True, "bye dana")

    run_virtual(main())


def test_a_long_result_is_cut_for_the_model_and_whole_in_the_outcome() -> None:
    """O2, X2: the output is for the caller; whoever asks later, or around, gets all of it too."""
    report = "begin " + "x" * 50_000 + " end"

    @remit.tool(effect="read", ends_run=True)
    async def write_report() -> str:
        """Write the report."""
        return report

    @remit.tool(effect="read", ends_run=True)
    async def list_all() -> list[int]:
        """List everything."""
        return list(range(20_000))

    async def main() -> None:
        for name, whole in (("write_report", report), ("list_all", str([*range(20_000)]))):
            support = desk([(name, {})], [write_report, list_all])
            outcome = await support.run("go", run_id="r")
            assert len(said(outcome)[0]) < 10_000
            assert outcome.output is not None
            assert outcome.output.replace(",", ", ") == whole
            assert outcome.text == outcome.output
            assert (await support.outcome("r")).output == outcome.output

    run_virtual(main())


def test_a_veto_and_a_cancel_win_over_a_call_that_ended_the_run() -> None:
    """O2, K1, case 33: what a guard has not passed completes nothing, nor does what was cancelled."""

    async def no(_: Any) -> remit.Veto:
        await asyncio.sleep(2)
        return remit.Veto("not like this")

    async def main() -> None:
        guarded = desk([("enough", {"n": 1})], World().tools(), guards=(no,))
        outcome = await guarded.run("go")
        assert (outcome.reason, outcome.output) == (Reason.VETOED, None)
        support = desk([[("enough", {"n": 1}), ("note", {"text": "a"})]], World().tools())
        async with support.stream("go") as live:
            await asyncio.sleep(1)
            outcome = await live.cancel()
        assert (outcome.reason, outcome.output) == (Reason.CANCELLED, None)

    run_virtual(main())


def test_a_child_whose_run_a_tool_ended_gives_its_output_to_the_parent() -> None:
    """O2: what a run inside came to is the result of the call around, however the run ended."""

    async def main() -> None:
        child = desk([("hand_over", {"to": "dana"})], World().tools(), name="child")
        ask = child.as_tool("ask", "Ask.", limits=LIMITS)
        outcome = await desk(ScriptedModel([("ask", {"task": "x"}), "done"]), [ask]).run("go")
        assert said(outcome) == ["dana has it"]
        assert outcome.output == "done"

    run_virtual(main())


@pytest.mark.parametrize("long", [0, 3_000, 60_000])
@pytest.mark.parametrize("note", [2, 9_000])
@pytest.mark.parametrize("shape", ["text", "json"])
def test_the_output_of_an_edited_call_is_the_tools_own(long: int, note: int, shape: str) -> None:
    """O2, E5: the model is told what was changed; the caller gets the result without those words, and whole."""

    @remit.tool(effect="confirm", ends_run=True)
    async def close(number: int, note: str = "") -> Any:
        """Close an account."""
        text = f"\nclosed {number}" + "." * long
        return text if shape == "text" else {"log": text}

    async def confirm(_: Pending) -> Decision:
        return Decision(approve=True, by="dana", edit={"number": 2, "note": "n" * note})

    async def main() -> None:
        calls = [("close", {"number": 1}), ("close", {"number": 1})]
        support = desk([calls], [close], confirm=confirm)
        outcome = await support.run("go", run_id="r")
        text = "\nclosed 2" + "." * long
        own = text if shape == "text" else encode({"log": text}).decode()
        assert outcome.output == own
        assert outcome.text == own
        assert "dana changed the arguments" in said(outcome)[0]
        again = await support.outcome("r")
        assert (again.output, again.text) == (own, own)

    run_virtual(main())
