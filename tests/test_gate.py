"""The one gate: what stands between a model's call and a body, from every source of tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import remit as rm
from loop_rig import LIMITS, desk, model_of, results, rows, said, statuses, watched
from remit import (
    Allow,
    Confirm,
    Invocation,
    Limits,
    Outcome,
    PolicyRequest,
    Proceed,
    Reason,
    Refuse,
    Remit,
    Tool,
    Veto,
)
from remit.models.scripted import Step
from remit.rows import Started
from remit.testing import run_virtual
from remit.transcript import Transcript

# --- tools from every source (C8, case 65) -------------------------------------------------------


@dataclass
class Body:
    """A tool whose body counts; made in one of several ways."""

    entered: list[object] = field(default_factory=list)
    wrapped: list[str] = field(default_factory=list)
    """Names of the tools whose wrapper was entered."""

    def sync_tool(self, effect: Any) -> Tool[..., Any]:
        @rm.tool(effect=effect, name="act")
        def act(n: int) -> str:
            """Act."""
            self.entered.append(n)
            return "acted"

        return act

    def async_tool(self, effect: Any) -> Tool[..., Any]:
        @rm.tool(effect=effect, name="act")
        async def act(n: int) -> str:
            """Act."""
            self.entered.append(n)
            return "acted"

        return act

    def generator_tool(self, effect: Any) -> Tool[..., Any]:
        @rm.tool(effect=effect, name="act")
        def act(n: int) -> Iterator[str]:
            """Act."""
            self.entered.append(n)
            yield "acted"

        return act

    def async_generator_tool(self, effect: Any) -> Tool[..., Any]:
        @rm.tool(effect=effect, name="act")
        async def act(n: int) -> AsyncIterator[str]:
            """Act."""
            self.entered.append(n)
            yield "acted"

        return act

    def method_tool(self, effect: Any) -> Tool[..., Any]:
        body = self

        class Shop:
            @rm.tool(effect=effect, name="act")
            async def act(self, n: int) -> str:
                """Act."""
                body.entered.append(n)
                return "acted"

        return Shop().act

    def schema_tool(self, effect: Any) -> Tool[..., Any]:
        async def handler(arguments: dict[str, Any]) -> str:
            self.entered.append(arguments["n"])
            return "acted"

        return Tool[..., Any].from_schema(
            name="act",
            description="Act.",
            parameters={
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
                "additionalProperties": False,
            },
            handler=handler,
            effect=effect,
        )

    def wrapped_tool(self, effect: Any) -> Tool[..., Any]:
        return self.in_a_wrapper(self.async_tool(effect))

    def wrapped_sync_tool(self, effect: Any) -> Tool[..., Any]:
        return self.in_a_wrapper(self.sync_tool(effect))

    def in_a_wrapper(self, act: Tool[..., Any]) -> Tool[..., Any]:
        """Renamed, filtered and wrapped."""

        async def wrapper(invocation: Invocation, proceed: Proceed) -> Any:
            self.wrapped.append(invocation.tool)
            return await proceed()

        unnamed = act.renamed("t")
        [made] = rm.prefix("ac", rm.filter(lambda _: True, rm.wrap_tools(wrapper)([unnamed])))
        return made


SOURCES: dict[str, Callable[[Body, Any], Tool[..., Any]]] = {
    "sync": Body.sync_tool,
    "async": Body.async_tool,
    "generator": Body.generator_tool,
    "async generator": Body.async_generator_tool,
    "method": Body.method_tool,
    "own schema": Body.schema_tool,
    "wrapped": Body.wrapped_tool,
    "wrapped, blocking": Body.wrapped_sync_tool,
}
BARRIERS = ["unvalidated", "refused", "over budget", "unapproved", "vetoed", "cancelled"]


async def veto(_: Transcript) -> Veto:
    await asyncio.sleep(0.08)
    return Veto("too large")


def refuse(request: PolicyRequest) -> Refuse | Allow:
    return Refuse("not you") if request.tool == "act" else Allow()


async def behind_a_barrier(tool: Tool[..., Any], barrier: str) -> Outcome[Any]:
    """A run in which a body must not be entered."""
    arguments: Any = "{" if barrier == "unvalidated" else {"n": 1}
    options: dict[str, Any] = {}
    if barrier == "refused":
        options["policy"] = refuse
    elif barrier == "vetoed":
        options["guards"] = (veto,)
    elif barrier == "over budget":
        options["limits"] = Limits(steps=5, tokens=100_000, seconds=60, calls=1)
    elif barrier == "cancelled":
        options["guards"] = (veto,)

    @rm.tool(effect="read", resource=())
    async def first() -> str:
        """Take the only call that the budget has."""
        return "first"

    calls: list[Any] = [("first", {}), ("act", arguments)]
    remit = desk([calls, "done"], [first, tool], **options)
    if barrier != "cancelled":
        return await remit.run("go")
    async with remit.stream("go") as live:
        await asyncio.sleep(0.01)  # the call waits for its guard
        return await live.cancel()


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("source", SOURCES)
def test_no_body_is_entered_behind_a_barrier_whatever_the_source_of_the_tool(
    source: str, barrier: str
) -> None:
    """C8, case 65: every kind of tool, six reasons, and the body counter stays at 0."""

    async def main() -> None:
        body = Body()
        effect = "confirm" if barrier == "unapproved" else "idempotent"
        outcome = await behind_a_barrier(SOURCES[source](body, effect), barrier)
        assert (body.entered, body.wrapped) == ([], [])
        answer = results(outcome)[1]
        assert answer.is_error
        assert answer.status.value == {
            "unvalidated": "error",
            "refused": "refused",
        }.get(barrier, "not_started")

    run_virtual(main())


@pytest.mark.parametrize("source", SOURCES)
def test_a_body_is_entered_once_where_nothing_stands_against_it(source: str) -> None:
    """C8: the counterpart, or the table above would prove nothing."""

    async def main() -> None:
        body = Body()
        outcome = await desk([[("act", {"n": 1})], "."], [SOURCES[source](body, "read")]).run("go")
        assert (body.entered, statuses(outcome)) == ([1], ["ok"])

    run_virtual(main())


@pytest.mark.parametrize("barrier", BARRIERS)
def test_a_child_run_is_not_begun_behind_a_barrier(barrier: str) -> None:
    """C8, case 65: a child loop is a tool like any other, and its model is not asked."""

    async def main() -> None:
        child = desk(["never"], name="child")
        small = Limits(steps=3, tokens=50_000, seconds=30)
        act = child.as_tool("act", "Act.", limits=small)

        async def delegate(arguments: dict[str, Any]) -> str:
            return (await child.run(str(arguments["n"]))).text

        if barrier in {"unapproved", "unvalidated", "over budget", "vetoed", "cancelled"}:
            act = Tool[..., Any].from_schema(
                name="act",
                description="Act.",
                parameters={
                    "type": "object",
                    "properties": {"n": {"type": "integer"}},
                    "required": ["n"],
                },
                handler=delegate,
                effect="confirm" if barrier == "unapproved" else "idempotent",
            )
        await behind_a_barrier(act, barrier)
        assert model_of(child).asked == 0

    run_virtual(main())


# --- policy --------------------------------------------------------------------------------------


def _odd(value: object) -> Any:
    return lambda request: value


def _raising(request: PolicyRequest) -> Allow:
    raise SystemExit(request.tool)


async def _async_refusal(request: PolicyRequest) -> Refuse:
    await asyncio.sleep(0.01)
    return Refuse("slowly")


async def _hanging(request: PolicyRequest) -> Allow:
    await asyncio.Event().wait()
    return Allow()


@pytest.mark.parametrize(
    "policy",
    [
        refuse,
        _raising,
        _async_refusal,
        _hanging,
        _odd(None),
        _odd(True),
        _odd("allow"),
        _odd(Allow),
        _odd(0),
    ],
)
def test_whatever_is_no_allowance_of_the_policy_keeps_the_body_out(policy: Any) -> None:
    """C8: raising, odd values and silence count as no."""

    async def main() -> None:
        body = Body()
        outcome = await desk(
            [[("act", {"n": 1})], "done"], [body.async_tool("read")], policy=policy
        ).run("go")
        assert body.entered == []
        assert statuses(outcome)[0] in {"refused", "not_started"}
        assert outcome.completed

    run_virtual(main())


def test_the_reason_of_a_refusal_is_told_to_the_model() -> None:
    """C8: so that it can do something else."""

    async def main() -> None:
        body = Body()
        remit = desk([[("act", {"n": 1})], "done"], [body.async_tool("read")], policy=refuse)
        assert "not you" in said(await remit.run("go"))[0]

    run_virtual(main())


def test_a_policy_sees_the_call_and_cannot_change_what_runs() -> None:
    """C8: tool, arguments, effect, deps and run; what it gets is its own copy."""
    seen: list[PolicyRequest] = []

    def policy(request: PolicyRequest) -> Allow:
        seen.append(request)
        request.arguments["n"].append(99)
        return Allow()

    got: list[list[int]] = []

    @rm.tool(effect="confirm")
    async def act(n: list[int]) -> str:
        """Act."""
        got.append(n)
        return "acted"

    async def main() -> None:
        remit = desk([[("act", {"n": [1]})], "done"], [act], policy=policy)
        outcome = await remit.run("go", run_id="r", deps="me")
        assert (seen[0].tool, seen[0].effect, seen[0].deps, seen[0].run_id) == (
            "act",
            rm.Effect.CONFIRM,
            "me",
            "r",
        )
        assert outcome.pending[0].arguments == '{"n":[1]}'
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        await remit.resume("r")
        assert got == [[1]]

    run_virtual(main())


def test_allow_does_not_lift_what_the_effect_demands() -> None:
    """C8, E5: only a recorded approval does."""

    async def main() -> None:
        body = Body()
        remit = desk(
            [[("act", {"n": 1})], "done"], [body.async_tool("confirm")], policy=lambda _: Allow()
        )
        outcome = await remit.run("go")
        assert outcome.reason is Reason.WAITING
        assert body.entered == []

    run_virtual(main())


def test_a_policy_may_have_a_person_asked_about_a_read() -> None:
    """C8, E5: `Confirm` with its own words; the body runs once, after the yes."""

    async def main() -> None:
        body = Body()
        remit = desk(
            [[("act", {"n": 1})], "done"],
            [body.async_tool("read")],
            policy=lambda _: Confirm("May it look?"),
        )
        outcome = await remit.run("go")
        assert [pending.summary for pending in outcome.pending] == ["May it look?"]
        assert body.entered == []
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        assert (await remit.resume(outcome.run_id)).completed
        assert body.entered == [1]

    run_virtual(main())


@pytest.mark.parametrize(
    ("stricter", "runs"),
    [
        (lambda _: Confirm("Two people have to agree."), False),
        (lambda _: Refuse("not any more"), False),
        (lambda _: Allow(), True),
    ],
)
def test_policy_is_evaluated_again_before_the_commit(stricter: Any, runs: bool) -> None:
    """E5, C8, case 67: an old yes does not cover what a stricter policy wants now."""

    async def main() -> None:
        body = Body()
        current: list[Any] = [lambda _: Allow()]

        def policy(request: PolicyRequest) -> Any:
            return current[0](request)

        remit = desk(
            [[("act", {"n": 5})], "done"],
            [body.async_tool("confirm")],
            policy=policy,
        )
        outcome = await remit.run("go")
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        current[0] = stricter
        again = await remit.resume(outcome.run_id)
        assert body.entered == ([5] if runs else [])
        if again.reason is Reason.WAITING:
            assert again.pending[0].id != outcome.pending[0].id
            assert again.pending[0].summary == "Two people have to agree."
            await remit.decide(again.pending[0].token, approve=True, by="sam")
            assert (await remit.resume(outcome.run_id)).completed
            assert body.entered == [5]
        else:
            assert statuses(again) == (["ok"] if runs else ["refused"])

    run_virtual(main())


# --- guards (case 33) ----------------------------------------------------------------------------


def test_an_effect_waits_for_its_guard_and_a_veto_keeps_it_out() -> None:
    """C8, case 33: the guard needs 80 ms, the model 10; nothing runs and the run ends as vetoed."""

    async def main() -> None:
        body = Body()
        remit = desk(
            [Step([("act", {"n": 5})], delay=0.01), "never"],
            [body.async_tool("idempotent")],
            guards=(veto,),
        )
        outcome, events = await watched(remit, "go")
        assert outcome.reason is Reason.VETOED
        assert outcome.error == "too large"
        assert body.entered == []
        assert statuses(outcome) == ["not_started"]
        assert "vetoed" in said(outcome)[0]
        settled = next(event for event in events if event.kind == "call_settled")
        assert settled.at == pytest.approx(0.08)
        assert [r for r in await rows(remit, outcome.run_id) if isinstance(r, Started)] == []

    run_virtual(main())


@pytest.mark.parametrize("guard_seconds", [0.0, 0.01, 0.02])
@pytest.mark.parametrize("model_seconds", [0.0, 0.01, 0.02])
def test_a_veto_wins_whichever_comes_first_even_at_the_same_instant(
    guard_seconds: float, model_seconds: float
) -> None:
    """C8, case 33: no gap between a guard that has answered and its answer being heard."""

    async def guard(_: Transcript) -> Veto:
        if guard_seconds:
            await asyncio.sleep(guard_seconds)
        return Veto("no")

    async def main() -> None:
        body = Body()
        remit = desk(
            [Step([("act", {"n": 5})], delay=model_seconds), "never"],
            [body.async_tool("idempotent")],
            guards=(guard,),
        )
        outcome = await remit.run("go")
        assert outcome.reason is Reason.VETOED
        assert body.entered == []

    run_virtual(main())


@pytest.mark.parametrize("turns", range(16))
def test_a_veto_wins_at_whatever_turn_of_the_event_loop_it_falls(turns: int) -> None:
    """C8, case 33: no body, and no start in the journal either."""

    async def guard(transcript: Transcript) -> Veto:
        for _ in range(turns):
            await asyncio.sleep(0)
        return Veto("no")

    async def main() -> None:
        body = Body()
        remit = desk([[("act", {"n": 5})], "no"], [body.async_tool("idempotent")], guards=(guard,))
        outcome = await remit.run("go")
        assert outcome.reason is Reason.VETOED
        assert body.entered == []
        assert not [row for row in await rows(remit, outcome.run_id) if isinstance(row, Started)]

    run_virtual(main())


def test_reads_may_start_beside_a_guard_and_are_stopped_by_its_veto() -> None:
    """C8, case 33: the read began at once, the effect not at all, both are reported."""
    began: list[float] = []

    @rm.tool(effect="read")
    async def look() -> str:
        """Look, for long."""
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(10)
        return "seen"

    async def main() -> None:
        body = Body()
        remit = desk(
            [[("look", {}), ("act", {"n": 1})], "never"],
            [look, body.async_tool("idempotent")],
            guards=(veto,),
        )
        outcome = await remit.run("go")
        assert began == [0.0]
        assert body.entered == []
        assert statuses(outcome) == ["error", "not_started"]
        assert asyncio.get_running_loop().time() < 1

    run_virtual(main())


async def _failing_guard(_: Transcript) -> None:
    raise RuntimeError("the checker is down")


async def _odd_guard(_: Transcript) -> Any:
    return "looks fine"


@pytest.mark.parametrize("guard", [_failing_guard, _odd_guard])
def test_a_guard_that_fails_has_not_passed(guard: Any) -> None:
    """C8, case 33: a check that broke is a veto."""

    async def main() -> None:
        body = Body()
        outcome = await desk(
            [[("act", {"n": 1})], "never"], [body.async_tool("idempotent")], guards=(guard,)
        ).run("go")
        assert outcome.reason is Reason.VETOED
        assert body.entered == []

    run_virtual(main())


def test_a_guard_that_never_answers_is_bounded_by_the_run() -> None:
    """C8, case 33: no effect without it, and no run that hangs."""

    async def hangs(_: Transcript) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        body = Body()
        limits = Limits(steps=5, tokens=100_000, seconds=30)
        outcome = await desk(
            [[("act", {"n": 1})], "never"],
            [body.async_tool("idempotent")],
            guards=(hangs,),
            limits=limits,
        ).run("go")
        assert outcome.reason is Reason.VETOED
        assert body.entered == []
        assert statuses(outcome) == ["not_started"]
        assert asyncio.get_running_loop().time() <= 31

    run_virtual(main())


def test_a_veto_that_comes_after_the_proposal_still_counts() -> None:
    """C8, E5, case 33: a run does not park with a guard unheard, so no yes can get around it."""

    async def main() -> None:
        body = Body()
        remit = desk([[("act", {"n": 1})], "never"], [body.async_tool("confirm")], guards=(veto,))
        outcome = await remit.run("go")
        assert outcome.reason is Reason.VETOED
        assert outcome.pending == ()
        assert body.entered == []

    run_virtual(main())


def test_guards_that_were_cut_off_with_the_process_are_asked_again_on_resume() -> None:
    """C8, case 33: what was detached before its guard answered waits for it afterwards."""
    asked: list[int] = []

    async def guard(transcript: Transcript) -> Veto | None:
        asked.append(len(transcript))
        await asyncio.sleep(1)
        return Veto("no") if len(asked) > 1 else None

    async def main() -> None:
        body = Body()
        remit = desk(
            [[("act", {"n": 1})], "never"], [body.async_tool("idempotent")], guards=(guard,)
        )
        async with remit.stream("go") as live:
            await asyncio.sleep(0.5)
            left = await live.detach()
        assert body.entered == []
        outcome = await remit.resume(left.run_id)
        assert asked == [1, 1]
        assert outcome.reason is Reason.VETOED
        assert body.entered == []

    run_virtual(main())


def test_an_answer_without_calls_counts_only_after_its_guards() -> None:
    """C8, case 33: the final text too."""

    async def main() -> None:
        outcome = await desk(["the secret"], guards=(veto,)).run("go")
        assert outcome.reason is Reason.VETOED

    run_virtual(main())


def test_a_guard_that_passes_lets_the_effect_in() -> None:
    """C8: the counterpart; the effect waited for it."""
    at: list[float] = []

    @rm.tool(effect="idempotent")
    async def act() -> str:
        """Act."""
        at.append(asyncio.get_running_loop().time())
        return "acted"

    async def passes(_: Transcript) -> None:
        await asyncio.sleep(0.08)

    async def main() -> None:
        outcome = await desk([[("act", {})], "done"], [act], guards=(passes,)).run("go")
        assert outcome.completed
        assert at == [pytest.approx(0.08)]

    run_virtual(main())


# --- budget --------------------------------------------------------------------------------------


def test_of_more_calls_than_the_budget_has_the_first_in_call_order_run() -> None:
    """C8, L1: the others are answered "not run"."""

    async def main() -> None:
        body = Body()
        remit = desk(
            [[("act", {"n": n}) for n in range(8)], "enough"],
            [body.sync_tool("read")],
            limits=Limits(steps=5, tokens=100_000, seconds=60, calls=4),
        )
        outcome = await remit.run("go")
        assert sorted(map(int, map(str, body.entered))) == [0, 1, 2, 3]
        assert statuses(outcome) == ["ok"] * 4 + ["not_started"] * 4
        assert outcome.reason is Reason.CALL_BUDGET

    run_virtual(main())


def test_what_a_call_costs_is_reserved_before_its_body_is_entered() -> None:
    """C8, L2: a tool that is too dear is not run, a cheap one beside it is."""

    @rm.tool(effect="idempotent", usd="5")
    async def dear() -> str:
        """Cost much."""
        raise AssertionError("never entered")

    async def main() -> None:
        body = Body()
        limits = Limits(steps=5, tokens=100_000, seconds=60, usd=1)
        remit: Remit[Any] = desk(
            [[("dear", {}), ("act", {"n": 1})], "done"],
            [dear, body.async_tool("read")],
            limits=limits,
        )
        outcome = await remit.run("go")
        assert statuses(outcome)[0] == "not_started"
        assert body.entered == [1]

    run_virtual(main())


def test_a_tool_called_in_a_child_passes_the_same_gate() -> None:
    """C8, case 65: pending inside a child, the body is not entered, and after a no it never is."""

    async def main() -> None:
        body = Body()
        child = desk([[("act", {"n": 1})], "done"], [body.async_tool("confirm")], name="child")
        act = child.as_tool("delegate", "Delegate.", limits=LIMITS)
        parent = desk([[("delegate", {"task": "act"})], "done"], [act])
        outcome = await parent.run("go")
        assert outcome.reason is Reason.WAITING
        assert outcome.pending[0].path == ("desk", "child")
        await asyncio.sleep(2)
        assert body.entered == []
        await parent.decide(outcome.pending[0].token, approve=False, by="dana")
        outcome = await parent.resume(outcome.run_id)
        assert outcome.completed
        assert body.entered == []

    run_virtual(main())
