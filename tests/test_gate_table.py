"""The gate, by kind of tool: what stops a call stops it wherever its tool comes from (C8)."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import remit as rm
from loop_rig import LIMITS, desk, statuses
from remit import Allow, Confirm, Limits, Outcome, PolicyRequest, Reason, Refuse, Remit, Tool
from remit.models.scripted import Step
from remit.report import read_state, stored_outcome
from remit.rows import HandedOut, decode_row
from remit.testing import run_virtual

Spy = Callable[[str], str]
"""What a body does: it is counted, and gives its text back."""
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}


def function(spy: Spy, effect: Any) -> Tool[..., Any]:
    @rm.tool(effect=effect, name="it", eager=False)
    async def it(x: str) -> str:
        """Act."""
        return spy(x)

    return it


def early_read(spy: Spy, effect: Any) -> Tool[..., Any]:
    @rm.tool(effect=effect, name="it")
    async def it(x: str) -> str:
        """Act."""
        return spy(x)

    return it


def blocking_function(spy: Spy, effect: Any) -> Tool[..., Any]:
    @rm.tool(effect=effect, name="it")
    def it(x: str) -> str:
        """Act."""
        return spy(x)

    return it


def quick_function(spy: Spy, effect: Any) -> Tool[..., Any]:
    @rm.tool(effect=effect, name="it", deterministic=effect == "read")
    def it(x: str) -> str:
        """Act."""
        return spy(x)

    return it


def generator(spy: Spy, effect: Any) -> Tool[..., Any]:
    @rm.tool(effect=effect, name="it")
    def it(x: str) -> Iterator[str]:
        """Act."""
        yield spy(x)

    return it


def async_generator(spy: Spy, effect: Any) -> Tool[..., Any]:
    @rm.tool(effect=effect, name="it")
    async def it(x: str) -> AsyncIterator[str]:
        """Act."""
        yield spy(x)

    return it


def partial(spy: Spy, effect: Any) -> Tool[..., Any]:
    async def it(x: str, more: str) -> str:
        """Act."""
        return spy(x + more)

    return rm.tool(effect=effect, name="it")(functools.partial(it, more="!"))


def method(spy: Spy, effect: Any) -> Tool[..., Any]:
    class Shop:
        async def it(self, x: str) -> str:
            """Act."""
            return spy(x)

    return rm.tool(effect=effect, name="it")(Shop().it)


def own_schema(spy: Spy, effect: Any) -> Tool[..., Any]:
    async def handler(arguments: dict[str, Any]) -> str:
        return spy(arguments["x"])

    return Tool[..., Any].from_schema(
        name="it", description="Act.", parameters=SCHEMA, handler=handler, effect=effect
    )


def blocking_own_schema(spy: Spy, effect: Any) -> Tool[..., Any]:
    return Tool[..., Any].from_schema(
        name="it",
        description="Act.",
        parameters=SCHEMA,
        handler=lambda arguments: spy(arguments["x"]),
        effect=effect,
    )


def asking(spy: Spy, effect: Any) -> Tool[..., Any]:
    @rm.tool(effect=effect, name="it")
    async def it(x: str, call: rm.Call[Any]) -> str:
        """Act."""
        return spy(x) + str(call.ask(str, "which?"))

    return it


def ending(spy: Spy, effect: Any) -> Tool[..., Any]:
    @rm.tool(effect=effect, name="it", ends_run=True)
    async def it(x: str) -> str:
        """Act."""
        return spy(x)

    return it


def elsewhere(spy: Spy, effect: Any) -> Tool[..., Any]:
    return Tool.elsewhere(name="it", description="Act.", parameters=SCHEMA, effect=effect)


def child(spy: Spy, effect: Any) -> Tool[..., Any]:
    """The child's model is its body, and its one argument is another."""

    def says(transcript: Any, _: Any) -> Step:
        return Step(spy("child"))

    return desk(says, name="inner").as_tool("it", "Act.", limits=LIMITS)


SOURCES: dict[str, Callable[[Spy, Any], Tool[..., Any]]] = {
    "function": function,
    "early read": early_read,
    "blocking function": blocking_function,
    "quick function": quick_function,
    "generator": generator,
    "async generator": async_generator,
    "partial": partial,
    "method": method,
    "own schema": own_schema,
    "blocking, own schema": blocking_own_schema,
    "asking": asking,
    "ending": ending,
    "elsewhere": elsewhere,
    "child": child,
}
"""Where a tool can come from. A new kind of tool is one line here."""


@rm.tool(effect="read")
async def other() -> str:
    """Use up a call."""
    return "other"


@dataclass
class Table:
    """One kind of tool in one place, and how often it got through the gate."""

    source: str
    inside: bool
    """In a run inside another tool's call."""

    def __post_init__(self) -> None:
        self.entered: list[str] = []
        self.store = rm.MemoryStore()

    def spy(self, text: str) -> str:
        self.entered.append(text)
        return text

    def remit(self, effect: str, arguments: dict[str, Any], **options: Any) -> Remit[Any]:
        """A run that calls it; the options are those of the run that does so."""
        tool = SOURCES[self.source](self.spy, effect)
        limits = options.pop("limits", LIMITS)
        before = options.pop("before", ())
        calls = Step(["text", *before, ("it", arguments), "more"], between=1)  # early, where it may
        near = desk(
            [calls, "done"],
            [tool, other],
            store=self.store,
            limits=limits,
            **options,
        )
        if not self.inside:
            return near
        act = near.as_tool("delegate", "Delegate.", limits=limits)
        return desk([[("delegate", {"task": "go"})], "done"], [act], name="above", store=self.store)

    def arguments(self, *, good: bool) -> dict[str, Any]:
        name = "task" if self.source == "child" else "x"
        return {name: "x"} if good else {name: 1, "y": "x"}

    async def passed(self) -> int:
        """How often it was entered, or handed out."""
        handed = [
            row
            for run_id in self.store._runs
            for row in await self.store.read(run_id)
            if isinstance(decode_row(row.kind, row.body), HandedOut)
        ]
        return len(self.entered) + len(handed)

    async def results(self) -> list[str]:
        """The statuses of the run that made the call, in call order."""
        found = [run for run in self.store._runs if "desk" in run or not self.inside]
        (run_id,) = [run for run in found if "inner" not in run]
        return statuses(await stored_outcome(self.store, await read_state(self.store, run_id)))


every_source = pytest.mark.parametrize("source", SOURCES)
every_place = pytest.mark.parametrize("inside", [False, True], ids=["root", "inside"])


@every_source
@every_place
def test_a_call_that_nothing_stands_against_comes_through(source: str, inside: bool) -> None:
    """C8: or the rows below would show nothing."""

    async def main() -> None:
        table = Table(source, inside)
        await table.remit("read", table.arguments(good=True)).run("go", run_id="r")
        assert await table.passed() == 1

    run_virtual(main())


@every_source
@every_place
@pytest.mark.parametrize("effect", ["read", "idempotent", "confirm"])
def test_unvalidated_arguments_stop_it(source: str, inside: bool, effect: str) -> None:
    """C8, C2: one error, and nothing was entered."""

    async def main() -> None:
        table = Table(source, inside)
        remit = table.remit(effect, table.arguments(good=False))
        outcome = await remit.run("go", run_id="r")
        assert outcome.completed
        assert await table.results() == ["error"]
        assert await table.passed() == 0

    run_virtual(main())


@every_source
@every_place
@pytest.mark.parametrize("effect", ["read", "idempotent", "confirm"])
def test_a_policy_that_refuses_stops_it(source: str, inside: bool, effect: str) -> None:
    """C8: one refusal; a policy that fails refuses too."""

    def broken(request: PolicyRequest) -> Any:
        raise RuntimeError

    async def main() -> None:
        for policy in (lambda request: Refuse("no"), broken):
            table = Table(source, inside)
            remit = table.remit(effect, table.arguments(good=True), policy=policy)
            assert (await remit.run("go", run_id="r")).completed
            assert await table.results() == ["refused"]
            assert await table.passed() == 0

    run_virtual(main())


@every_source
@every_place
def test_a_budget_that_is_used_up_stops_it(source: str, inside: bool) -> None:
    """C8, L1: the calls before it, in call order, had what there was."""

    async def main() -> None:
        table = Table(source, inside)
        limits = Limits(steps=5, tokens=100_000, seconds=600, calls=1)
        remit = table.remit(
            "read", table.arguments(good=True), limits=limits, before=[("other", {})]
        )
        await remit.run("go", run_id="r")
        assert await table.results() == ["ok", "not_started"]
        assert await table.passed() == 0

    run_virtual(main())


@every_source
@every_place
@pytest.mark.parametrize("wanted_by", ["effect", "policy"])
@pytest.mark.parametrize("approve", [False, True])
def test_a_call_is_not_entered_without_its_approval(
    source: str, inside: bool, wanted_by: str, approve: bool
) -> None:
    """C8, E5, case 65: not while the answer is awaited, not after a no; after a yes, once."""
    if source == "child" and wanted_by == "effect":
        wanted_by = "policy"  # a child has one effect; what wants the approval is the policy

    def policy(request: PolicyRequest) -> Any:
        return Confirm("look first") if wanted_by == "policy" else Allow()

    async def main() -> None:
        table = Table(source, inside)
        effect = "confirm" if wanted_by == "effect" else "read"
        remit = table.remit(effect, table.arguments(good=True), policy=policy)
        outcome: Outcome[Any] = await remit.run("go", run_id="r")
        assert outcome.reason is Reason.WAITING
        (pending,) = outcome.pending
        assert pending.kind == "approval"
        assert await table.results() == ["not_started"]
        assert (await remit.resume("r")).pending == outcome.pending
        assert await table.passed() == 0
        await remit.decide(pending.token, approve=approve, by="dana")
        await remit.resume("r")
        assert await table.passed() == int(approve)
        if not approve:
            assert await table.results() == ["refused"]

    run_virtual(main())
