"""Lists of tools made from lists of tools: nested, prefixed, filtered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import remit as rm
from loop_rig import desk, model_of, rows, said, statuses, watched
from remit import (
    ConfigurationError,
    Confirm,
    Decision,
    Limits,
    Pending,
    PolicyRequest,
    Reason,
    Remit,
    Tool,
    tool,
)
from remit.models.scripted import Step
from remit.rows import Proposed
from remit.testing import ScriptedModel, run_virtual


@tool(effect="read")
async def look(n: int = 0) -> str:
    """Looks."""
    return f"saw {n}"


@tool(effect="idempotent", resource="thing:{n}")
async def change(n: int) -> str:
    """Changes."""
    return f"changed {n}"


@tool(effect="confirm")
async def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


@pay.summary
def _(amount: int) -> str:
    return f"Pay {amount}"


def names(tools: Any) -> list[str]:
    return [each.name for each in tools]


# --- nested lists --------------------------------------------------------------------------------


def test_lists_of_tools_may_hold_lists_of_tools() -> None:
    """X1: flattened in the order given, whatever kind of iterable; read back as one tuple."""

    def generated() -> Iterator[Tool[..., Any]]:
        yield change

    remit = desk([], [look, [generated(), ()], rm.prefix("my_", (pay,))])
    assert names(remit.tools) == ["look", "change", "my_pay"]
    assert isinstance(remit.tools, tuple)
    assert names(remit.replace(tools=[[[]]]).tools) == []
    assert names(remit.replace(name="other").tools) == ["look", "change", "my_pay"]
    assert desk([]).tools == ()
    limits = Limits(steps=1, tokens=1, seconds=1)
    assert Remit(name="bare", model=ScriptedModel([]), limits=limits).tools == ()


def test_what_is_no_tool_is_refused_with_what_to_write_instead() -> None:
    def plain() -> None: ...

    endless: list[Any] = [look]
    endless.append([endless])
    wrong: list[tuple[Any, str]] = [
        ([look, [plain]], "@remit.tool"),
        ([{"look": look}], "values"),
        ({"look": look}, "values"),
        ([json], "json is a module"),
        (["look"], "no tool"),
        ("look", "no tool"),
        ([None], "no tool"),
        ([b"look"], "no tool"),
        ([list], "list"),
        (endless, "itself"),
        (look, r"tools=\[...\]"),
        (None, r"tools=\[...\]"),
        ([look, [look.renamed("x"), look.renamed("x")]], "remit.prefix"),
    ]
    for tools, words in wrong:
        with pytest.raises(ConfigurationError, match=words):
            desk([], tools)


def test_a_list_that_fails_while_it_is_read_raises_its_own_error() -> None:
    def broken() -> Iterator[Tool[..., Any]]:
        yield look
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        desk([], [broken()])


# --- prefix --------------------------------------------------------------------------------------


def test_prefixed_tools_are_the_same_under_longer_names() -> None:
    """E2: the name is in the key, the schema and the refusal; what a call touches stays what it is."""

    async def confirm(pending: Pending) -> Decision:
        assert (pending.tool, pending.summary) == ("a_pay", "Pay 3")
        return Decision(approve=True, by="dana")

    async def main() -> None:
        tools = [rm.prefix("a_", [look, pay, change]), rm.prefix("b_", rm.prefix("c-", [look]))]
        calls = [("a_look", {"n": 1}), ("b_c-look", {"n": 2}), ("a_pay", {"amount": 3})]
        remit = desk([[*calls, ("a_look", {"m": 1}), ("look", {})], "done"], tools, confirm=confirm)
        outcome = await remit.run("go", run_id="r")
        assert statuses(outcome) == ["ok", "ok", "ok", "error", "error"]
        assert said(outcome)[:3] == ["saw 1", "saw 2", "paid 3"]
        assert "arguments of a_look" in said(outcome)[3]
        assert "a_look" in said(outcome)[4]  # a near match
        *sent, own = [spec.name for spec in model_of(remit).requests[0].tools]
        assert (sent, own) == (names(remit.tools), "read_artifact")
        message = outcome.transcript[2]
        assert [str(result.key).split(":")[2] for result in message.tool_results[:2]] == [
            "a_look",
            "b_c-look",
        ]
        [prefixed] = rm.prefix("x_", [change])
        assert prefixed.footprint({"n": 1}) == change.footprint({"n": 1})
        assert look.name == "look"

    run_virtual(main())


def test_a_prefix_that_makes_no_name_is_refused() -> None:
    for text in ("a\n", "x" * 126, "\0", " "):
        with pytest.raises(ConfigurationError, match="no name"):
            rm.prefix(text, [look])
    swapped: Any = rm.prefix
    with pytest.raises(ConfigurationError, match="text first"):
        swapped([look], "a_")
    with pytest.raises(ConfigurationError, match="list"):
        rm.prefix("a_", look)  # type: ignore[arg-type]
    assert names(rm.prefix("", [look])) == ["look"]


# --- filter --------------------------------------------------------------------------------------


def test_a_filter_acts_when_the_list_is_made() -> None:
    """W2: and leaves the order as it is."""
    kept = rm.filter(lambda each: each.effect == "read", [pay, look, [change]])
    assert names(kept) == ["look"]
    assert rm.filter(lambda _: False, [pay]) == ()


def test_a_filter_acts_again_when_the_tool_is_called() -> None:
    """W2: the tools array stays what it is, the call is answered, and no body is entered."""
    on = {"look", "change"}

    async def main() -> None:
        entered: list[int] = []

        @tool(effect="idempotent", name="change")
        async def counted(n: int) -> str:
            """Changes."""
            entered.append(n)
            on.discard("change")
            return "changed"

        tools = rm.filter(lambda each: each.name in on, [look, counted, pay])
        changes = [("my_change", {"n": 1})], [("my_change", {"n": 2}), ("my_look", {})]
        remit = desk([*map(list, changes), "done"], rm.prefix("my_", tools))
        outcome = await remit.run("go")
        assert statuses(outcome) == ["ok", "refused", "ok"]
        assert said(outcome)[1] == "Not run: my_change is not available now."
        assert entered == [1]
        sent = [len(request.tools) for request in model_of(remit).requests]
        assert sent == [len(remit.offered)] * 3

    run_virtual(main())


def test_nobody_is_asked_to_approve_what_is_not_available() -> None:
    """W2, C8: not the policy, not a person, and no proposal is made."""
    asked: list[str] = []
    available = [True]

    def policy(request: PolicyRequest) -> Confirm:
        asked.append(request.tool)
        return Confirm("sure?")

    async def confirm(pending: Pending) -> Decision:
        asked.append(pending.tool)
        return Decision(approve=True, by="dana")

    async def main() -> None:
        tools = rm.filter(lambda _: available[0], [pay])
        available[0] = False
        calls = [[("pay", {"amount": 1})], "done"]
        remit = desk(calls, tools, policy=policy, confirm=confirm)
        outcome = await remit.run("go", run_id="r")
        assert (statuses(outcome), asked) == (["refused"], [])
        assert not [row for row in await rows(remit, "r") if isinstance(row, Proposed)]
        assert outcome.spend.own.calls == 0

    run_virtual(main())


def test_a_tool_that_becomes_unavailable_while_it_waits_is_not_run() -> None:
    """W2, E5: the yes was given to a call of a tool that is gone; also where a process asks."""
    available = [True]

    async def main() -> None:
        for in_process in (False, True):
            available[0] = True

            async def confirm(_: Pending) -> Decision:
                available[0] = False
                return Decision(approve=True, by="dana")

            remit = desk(
                [[("pay", {"amount": 1})], "done"],
                rm.filter(lambda _: available[0], [pay]),
                confirm=confirm if in_process else None,
            )
            outcome = await remit.run("go", run_id="r")
            if not in_process:
                assert outcome.reason is Reason.WAITING
                await remit.decide(outcome.pending[0].token, approve=True, by="dana")
                available[0] = False
                outcome = await remit.resume("r")
            assert statuses(outcome) == ["refused"]
            assert "not available" in said(outcome)[0]

    run_virtual(main())


@pytest.mark.parametrize("verdict", [None, 1, "yes", "raise"])
def test_a_predicate_that_fails_in_a_call_counts_as_no(verdict: Any) -> None:
    """W2: in doubt the tool is not available."""
    verdicts: list[Any] = [True, verdict]

    def predicate(_: Tool[..., Any]) -> bool:
        found = verdicts.pop(0)
        if found == "raise":
            raise LookupError("no flags today")
        return found

    async def main() -> None:
        remit = desk([[("change", {"n": 1})], "done"], rm.filter(predicate, [change]))
        outcome = await remit.run("go")
        assert statuses(outcome) == ["refused"]
        assert "flags" not in said(outcome)[0]

    run_virtual(main())


def test_a_read_that_begins_early_is_asked_about_too() -> None:
    """W2, C3: while its reply is still written."""
    entered: list[int] = []
    available = [True]

    @tool(effect="read")
    async def peek() -> str:
        """Peeks."""
        entered.append(1)
        return "peeked"

    async def main() -> None:
        tools = rm.filter(lambda _: available[0], [peek])
        available[0] = False
        script = [Step([("peek", {}), "and so on"], between=1), "done"]
        outcome, _ = await watched(desk(script, tools), "go")
        assert (statuses(outcome), entered) == (["refused"], [])

    run_virtual(main())


def test_every_filter_around_a_tool_must_let_it_through() -> None:
    """W2: each knows the tool by the name that it had where it was filtered."""
    seen: list[str] = []

    def by_name(name: str) -> Any:
        def predicate(each: Tool[..., Any]) -> bool:
            seen.append(each.name)
            return each.name == name

        return predicate

    async def main() -> None:
        tools = rm.filter(
            by_name("my_look"), rm.prefix("my_", rm.filter(by_name("look"), [look, change]))
        )
        assert names(tools) == ["my_look"]
        seen.clear()
        outcome = await desk([[("my_look", {})], "done"], tools).run("go")
        assert statuses(outcome) == ["ok"]
        assert seen == ["look", "my_look"]

    run_virtual(main())


def test_a_predicate_that_is_none_is_refused() -> None:
    async def later(_: Tool[..., Any]) -> bool:
        return True

    wrong: list[Any] = [later, None, "read"]
    for predicate in wrong:
        with pytest.raises(ConfigurationError, match="filter takes"):
            rm.filter(predicate, [look])
    maybe: Any = lambda _: None  # noqa: E731 - as people write them
    with pytest.raises(ConfigurationError, match="True or False"):
        rm.filter(maybe, [look])
    with pytest.raises(ConfigurationError, match="list"):
        rm.filter(lambda _: True, look)  # type: ignore[arg-type]
