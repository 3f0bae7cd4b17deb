"""Code as users write it, read by a strict type checker and never run: `test_typing.py` has it checked.

Where a line is wrong, its comment names the rule that must catch it; a comment that is not needed is itself
an error, so that a wrong use which passes is found.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, assert_type

from pydantic import BaseModel

import remit
from remit import Call, Event, Limits, Live, Outcome, Pending, Reason, Remit, Tool, Transcript
from remit.testing import ScriptedModel

LIMITS = Limits(steps=3, tokens=1_000, seconds=5)
MODEL = ScriptedModel(["fine"])


class Shop:
    """What the bodies reach."""

    async def find(self, order_id: str) -> dict[str, str]:
        return {"id": order_id}


@dataclass(frozen=True)
class Clock:
    hour: int


# --- tools ---------------------------------------------------------------------------------------


@remit.tool(effect="read")
async def status(order_id: str, call: Call[Shop]) -> dict[str, str]:
    """Status of one order."""
    assert_type(call.deps, Shop)
    assert_type(call.key, str)
    return await call.deps.find(order_id)


@remit.tool(effect="confirm", expires=3600)
def refund(order_id: str, amount: Decimal, why: Literal["late", "broken"] = "late") -> str:
    """Refund part of an order."""
    return f"{order_id} {amount} {why}"


@refund.summary
def _(order_id: str, amount: Decimal) -> str:
    return f"Refund {amount} on order {order_id}"


@refund.reconcile
async def _(key: str) -> str | None:
    return key or None


@remit.tool(effect="read")
def choose(order_id: str, call: Call[Shop]) -> str:
    """Choose a parcel."""
    assert_type(call.ask(int, "which?"), int)
    assert_type(call.ask(Clock), Clock)
    assert_type(call.ask(list[int], "which of them?"), list[int])
    assert_type(call.ask(Literal["red", "blue"], "which colour?"), Literal["red", "blue"])
    assert_type(call.ask(int | None, "how many?"), int | None)
    assert_type(call.ask({"type": "integer"}, "how many?"), Any)
    call.ask(3, "how many?")  # pyright: ignore[reportCallIssue, reportArgumentType] - no type and no schema
    call.ask(int, 3)  # pyright: ignore[reportCallIssue, reportArgumentType] - a question is text
    wrong: str = call.ask(int)  # pyright: ignore[reportAssignmentType] - the answer is a number
    return wrong + order_id


ship = Tool.elsewhere(
    name="ship", description="Ships.", parameters={"type": "object"}, effect="confirm", expires=60
)


async def what_is_waited_for_is_supplied(pending: Pending) -> None:
    assert_type(ship, Tool[..., Any])
    assert_type(pending.kind, Literal["approval", "input", "result"])
    assert_type(await plain.supply(pending.id, {"any": "value"}, is_error=False, by="dana"), str)
    await plain.supply(pending)  # pyright: ignore[reportCallIssue] - by its id, with a value
    Tool.elsewhere(name="x", description="x", parameters={}, handler=handler)  # pyright: ignore[reportCallIssue] - there is none


class Desk:
    """Tools may be methods."""

    @remit.tool(effect="idempotent", resource="desk:{number}")
    def tidy(self, number: int) -> bool:
        """Tidy one desk."""
        return number > 0


def handler(arguments: dict[str, Any], call: Call[Shop]) -> str:
    return str(arguments) + call.run_id


own = Tool.from_schema(
    name="own",
    description="Brings its schema.",
    parameters={"type": "object"},
    handler=handler,
    effect="read",
)


def tools_stay_functions() -> None:
    assert_type(refund("1", Decimal(1)), str)
    assert_type(Desk().tidy(3), bool)
    tidies: Callable[[int], bool] = Desk().tidy
    assert_type(tidies(3), bool)
    refunds: Tool[..., str] = refund
    refunds.summarise({})
    refund(1, Decimal(1))  # pyright: ignore[reportArgumentType] - an order id is text
    refund("1")  # pyright: ignore[reportCallIssue] - the amount is missing
    refund("1", Decimal(1), "lost")  # pyright: ignore[reportArgumentType] - no such reason
    Desk().tidy("3")  # pyright: ignore[reportArgumentType] - the number of a desk is a number
    remit.tool(effect="write")  # pyright: ignore[reportArgumentType] - no such effect
    remit.tool(effect="read", timeout="10")  # pyright: ignore[reportArgumentType] - seconds are a number


# --- deps ----------------------------------------------------------------------------------------

plain = Remit(name="plain", model=MODEL, limits=LIMITS, tools=[status, refund, Desk().tidy, own])
shop = Remit(name="shop", model=MODEL, limits=LIMITS, tools=[status], deps_type=Shop)
by_hand: Remit[Shop] = Remit(name="shop", model=MODEL, limits=LIMITS)


async def deps_are_typed(desk: Shop) -> None:
    assert_type(plain, Remit[Any, str])
    assert_type(shop, Remit[Shop, str])
    await plain.run("hello")
    await plain.run("hello", deps=3)
    await shop.run("hello", deps=desk)
    await by_hand.resume("r", deps=desk)
    await shop.run("hello", deps=Clock(3))  # pyright: ignore[reportArgumentType] - another's deps
    await by_hand.run("hello", deps="desk")  # pyright: ignore[reportArgumentType] - no deps at all
    await shop.resume("r", deps=Clock(3))  # pyright: ignore[reportArgumentType] - another's deps


# --- outcomes ------------------------------------------------------------------------------------


async def without_a_type_the_output_is_text() -> str | None:
    outcome = await plain.run("hello")
    assert_type(outcome, Outcome[str])
    assert_type(outcome.output, str | None)
    assert_type(outcome.reason, Reason)
    assert_type(outcome.transcript, Transcript)
    assert_type(plain.run_sync("hello").raise_for_reason(), Outcome[str])
    assert_type(await plain.outcome(outcome.run_id), Outcome[str])
    assert_type(await plain.cancel(outcome.run_id), Outcome[str])
    outcome.text = "more"  # pyright: ignore[reportAttributeAccessIssue] - an outcome is frozen
    return outcome.output


class Verdict(BaseModel):
    ok: bool


judge = Remit(name="judge", model=MODEL, limits=LIMITS, output=Verdict, deps_type=Shop)
clock = Remit(name="clock", model=MODEL, limits=LIMITS, output=Clock)
many = Remit(name="many", model=MODEL, limits=LIMITS, output=list[Verdict])
choice = Remit(name="choice", model=MODEL, limits=LIMITS, output=Literal["yes", "no"])
either = Remit(name="either", model=MODEL, limits=LIMITS, output=Verdict | Clock)
declared: Remit[Shop, Verdict] = judge
wider: Remit[Shop, BaseModel] = judge


async def with_a_type_the_output_is_of_it(desk: Shop) -> bool:
    assert_type(judge, Remit[Shop, Verdict])
    outcome = await judge.run("hello", deps=desk)
    assert_type(outcome, Outcome[Verdict])
    assert_type(outcome.output, Verdict | None)
    assert_type((await clock.run("hello")).output, Clock | None)
    assert_type((await many.run("hello")).output, list[Verdict] | None)
    assert_type((await choice.run("hello")).output, Literal["yes", "no"] | None)
    assert_type((await either.run("hello")).output, Verdict | Clock | None)
    assert_type(await judge.resume("r", deps=desk), Outcome[Verdict])
    assert_type(await judge.outcome("r"), Outcome[Verdict])
    assert_type(await judge.cancel("r"), Outcome[Verdict])
    assert_type(judge.run_sync("hello", deps=desk), Outcome[Verdict])
    assert_type(outcome.raise_for_reason(), Outcome[Verdict])
    async with judge.stream("hello", deps=desk) as live:
        assert_type(live, Live[Verdict])
    assert_type(live.outcome.output, Verdict | None)
    assert_type(judge.as_tool("judge", "Judge.", limits=LIMITS), Tool[..., Any])
    return outcome.output is not None and outcome.output.ok


async def an_output_is_looked_at_before_it_is_used(desk: Shop) -> None:
    outcome = await judge.run("hello", deps=desk)
    assert outcome.output.ok  # pyright: ignore[reportOptionalMemberAccess] - the run may not have completed
    if outcome.output is not None:
        count: int = outcome.output  # pyright: ignore[reportAssignmentType] - a verdict is no number
        assert count
    text: Remit[Shop, str] = judge  # pyright: ignore[reportAssignmentType] - it hands in a verdict
    Remit(name="x", model=MODEL, limits=LIMITS, output=Verdict(ok=True))  # pyright: ignore[reportArgumentType] - no type
    judge.replace(output=Clock)  # pyright: ignore[reportCallIssue] - types stay
    assert_type(judge.replace(name="other"), Remit[Shop, Verdict])
    assert_type(text, Remit[Shop, str])


async def a_stream_has_the_same_type() -> None:
    async with plain.stream("hello") as live:
        assert_type(live, Live[str])
        async for event in live:
            assert_type(event, Event)
        async for piece in live.text():
            assert_type(piece, str)
        live.send("also tuesday")
        live.send(3)  # pyright: ignore[reportArgumentType] - nothing that can be said
    assert_type(live.outcome, Outcome[str])


def bare_names_mean_text(outcome: Outcome, live: Live, support: Remit) -> None:
    assert_type(outcome, Outcome[str])
    assert_type(live, Live[str])
    assert_type(support, Remit[Any, str])


# --- copies and parts ----------------------------------------------------------------------------


def a_copy_keeps_its_types() -> None:
    assert_type(shop.replace(name="other", policy=None, show_budget=True), Remit[Shop, str])
    shop.replace(name=3)  # pyright: ignore[reportArgumentType] - a name is text
    shop.replace(nome="other")  # pyright: ignore[reportCallIssue] - no such part
    shop.replace(deps_type=Clock)  # pyright: ignore[reportCallIssue] - types stay


def a_remit_is_a_tool_of_another() -> None:
    child = shop.as_tool("ask_the_shop", "Ask the shop.", limits=LIMITS)
    assert_type(child, Tool[..., Any])
    Remit(name="boss", model=MODEL, limits=LIMITS, tools=[child])
    shop.as_tool("ask", "Ask.")  # pyright: ignore[reportCallIssue] - a child has limits of its own


def what_must_be_given_is_asked_for() -> None:
    Remit(name="x", model=MODEL)  # pyright: ignore[reportCallIssue] - there is no default for limits
    Limits(steps=3)  # pyright: ignore[reportCallIssue] - nor for tokens and seconds
    Remit(name="x", model=MODEL, limits=LIMITS, tools=[len])  # pyright: ignore[reportArgumentType] - a plain function
    Remit(name="x", model=len, limits=LIMITS)  # pyright: ignore[reportArgumentType] - a model is an object or a name
    shop.name = "other"  # pyright: ignore[reportAttributeAccessIssue] - a remit is frozen


# --- functions of the host -----------------------------------------------------------------------


async def look_first(request: remit.PolicyRequest) -> remit.Allow | remit.Confirm:
    return remit.Confirm("look first") if request.tool == "refund" else remit.Allow()


async def no_cards(transcript: Transcript) -> remit.Veto | None:
    return remit.Veto("a card number") if len(transcript) > 3 else None


def long_enough(transcript: Transcript) -> bool:
    return len(transcript) > 20


async def shop_is_closed(transcript: Transcript) -> bool:
    return long_enough(transcript)


def todays(deps: Shop) -> str:
    return f"today, for {deps}"


hosted = Remit(
    name="hosted",
    model=MODEL,
    limits=LIMITS,
    deps_type=Shop,
    instructions=todays,
    policy=look_first,
    guards=(no_cards,),
    notes=(todays, lambda: "a note"),
    stop_when=long_enough,
)


async def answers(pending: Pending) -> object:
    return pending.summary


def wrong_functions() -> None:
    def three() -> int:
        return 3

    unfit: Callable[[], Coroutine[Any, Any, int]] = deps_count
    hosted.replace(policy=three)  # pyright: ignore[reportArgumentType] - it is asked about a call
    hosted.replace(stop_when=shop_is_closed)
    hosted.replace(stop_when=three)  # pyright: ignore[reportArgumentType] - it is asked about a transcript
    hosted.replace(answer=answers)
    hosted.replace(answer=three)  # pyright: ignore[reportArgumentType] - it is asked about a pending
    hosted.replace(guards=(three,))  # pyright: ignore[reportArgumentType] - nor is this a guard
    hosted.replace(instructions=unfit)  # pyright: ignore[reportArgumentType] - text is wanted


async def deps_count() -> int:
    return 1
