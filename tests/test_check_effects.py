"""`check_effects`: tools that do what they say pass, and each kind of lie is found by its own check."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from remit import Call, ConfigurationError, Secret, Tool, ToolError, tool
from remit.testing import EffectCase, FalseEffect, check_effects, effects_of


class Shop:
    """The author's world: what was done, and what the service remembers of keys."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.keys: dict[str, str] = {}
        self.process: set[str] = set()

    def clear(self) -> None:
        self.done.clear()
        self.keys.clear()
        self.process.clear()

    def case(self, **changes: Any) -> EffectCase:
        given: dict[str, Any] = {"world": lambda: self.done, "reset": self.clear, **changes}
        return EffectCase({"order": "1"}, **given)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def rules(made: Tool[..., Any], *cases: EffectCase) -> set[str]:
    """Which checks a tool fails."""
    return {found.rule for found in asyncio.run(effects_of(made, cases)).findings}


def once_under_a_key(shop: Shop, *, resource: str | None = None) -> Tool[..., Any]:
    @tool(effect="idempotent", resource=resource)
    async def cancel(order: str, call: Call) -> str:
        """Cancel an order."""
        await asyncio.sleep(0)
        if call.key not in shop.keys:
            shop.done.append(order)
            shop.keys[call.key] = "cancelled"
        await asyncio.sleep(0)
        return shop.keys[call.key]

    return cancel


def test_a_tool_that_is_what_it_says_passes(shop: Shop) -> None:
    """Q1, E1: again, at once, broken off at each wait, in another process, and under another key."""
    case = shop.case(restart=shop.process.clear, another_key_is_another_effect=True)
    report = check_effects(once_under_a_key(shop, resource="order:{order}"), [case])
    assert report.findings == ()
    assert report.checks >= 12
    assert str(report) == f"cancel, effect='idempotent': {report.checks} checks, nothing found"


def test_a_blocking_tool_is_tried_in_threads(shop: Shop) -> None:
    """E1: and its deps are those of the case."""

    @tool(effect="idempotent")
    def cancel(order: str, call: Call[Shop]) -> str:
        """Cancel an order."""
        if call.deps.keys.setdefault(call.key, order) is order and order not in call.deps.done:
            call.deps.done.append(order)
        return order

    assert rules(cancel, shop.case(deps=shop)) == set()


def test_a_read_that_writes_is_found(shop: Shop) -> None:
    """Q1, E1: also one that writes the first time alone."""

    @tool(effect="read")
    async def look(order: str) -> str:
        """Look."""
        if not shop.done:
            shop.done.append(order)
        return order

    @tool(effect="read")
    async def honest(order: str) -> str:
        """Look."""
        return f"{order} of {len(shop.done)}"

    assert rules(look, shop.case()) == {"once", "again"}
    assert rules(honest, shop.case()) == set()


def test_an_effect_that_happens_again_is_found(shop: Shop) -> None:
    """Q1, E1, E2: with the table that a person reads."""

    @tool(effect="idempotent")
    async def refund(order: str) -> str:
        """Refund."""
        shop.done.append(order)
        return "refunded"

    with pytest.raises(
        FalseEffect, match=r"again +under the same key it took effect once more"
    ) as e:
        check_effects(refund, [shop.case()])
    assert isinstance(e.value, AssertionError)
    assert {found.rule for found in e.value.report.findings} == {"again", "at once"}
    assert rules(refund, shop.case(reset=None)) == {"again"}


def test_two_at_once_that_do_not_see_each_other_are_found(shop: Shop) -> None:
    """Q1, E1, J2: a name in `resource=` holds nobody back in another process."""

    @tool(effect="idempotent", resource="order:{order}")
    async def refund(order: str) -> str:
        """Refund."""
        if order not in shop.done:
            await asyncio.sleep(0)
            shop.done.append(order)
        return "refunded"

    assert rules(refund, shop.case()) == {"at once"}


def test_what_only_this_process_remembers_is_found(shop: Shop) -> None:
    """Q1, E1: a set of keys in memory is gone with the process."""

    @tool(effect="idempotent")
    async def refund(order: str, call: Call) -> str:
        """Refund."""
        if call.key not in shop.process:
            shop.process.add(call.key)
            shop.done.append(order)
        return "refunded"

    assert rules(refund, shop.case(restart=shop.process.clear)) == {"another process"}
    assert rules(refund, shop.case()) == set()


def test_what_breaks_off_halfway_and_is_never_finished_is_found(shop: Shop) -> None:
    """Q1, E1, E3: it remembers the key before it has the effect."""

    @tool(effect="idempotent")
    async def refund(order: str, call: Call) -> str:
        """Refund."""
        if call.key not in shop.keys:
            shop.keys[call.key] = "refunded"
            await asyncio.sleep(0)
            shop.done.append(order)
        return "refunded"

    assert "cut at wait 1" in rules(refund, shop.case())


def test_another_answer_under_the_same_key_is_found(shop: Shop) -> None:
    """E1: the model is told one thing before a crash and another after it."""

    @tool(effect="idempotent")
    async def cancel(order: str) -> str:
        """Cancel."""
        if order in shop.done:
            raise ToolError("it is cancelled already")
        shop.done.append(order)
        return "cancelled"

    report = asyncio.run(effects_of(cancel, [shop.case()]))
    assert {found.rule for found in report.findings} == {"again", "at once"}
    assert "came to cancelled and then to Error: it is cancelled already" in str(report)
    assert {f.rule for f in asyncio.run(effects_of(cancel, [{"order": "2"}])).findings} >= {"again"}


def test_a_key_that_is_not_a_part_of_the_effect_is_found_where_that_matters(shop: Shop) -> None:
    """E2: a second refund is no repeat of the first."""

    @tool(effect="idempotent")
    async def refund(order: str) -> str:
        """Refund."""
        if order not in shop.done:
            shop.done.append(order)
        return "refunded"

    assert rules(refund, shop.case()) == set()
    assert rules(refund, shop.case(another_key_is_another_effect=True)) == {"another key"}


@pytest.mark.parametrize(
    ("answer", "fails"),
    [
        (lambda shop, key: shop.keys.get(key), False),
        (lambda shop, key: None, True),
        (lambda shop, key: "refunded", True),
        (lambda shop, key: next(iter(shop.keys.values()), None), True),
        (lambda shop, key: shop.keys.get(key) and "something else", True),
        (lambda shop, key: shop.done.append("asked") or shop.keys.get(key), True),
    ],
    ids=["honest", "knows nothing", "always the same", "of any key", "another outcome", "acts"],
)
def test_reconcile_tells_what_a_run_came_to_and_nothing_before(
    shop: Shop, answer: Callable[[Shop, str], object], fails: bool
) -> None:
    """Q1, E3: it is asked in doubt, so a wrong answer is an effect lost or a lie to the model."""

    @tool(effect="confirm")
    async def refund(order: str, call: Call) -> str:
        """Refund."""
        shop.done.append(order)
        shop.keys[call.key] = f"refunded {order}"
        return shop.keys[call.key]

    @refund.reconcile
    async def _(key: str) -> object:
        return answer(shop, key)

    assert rules(refund, shop.case()) == ({"reconcile"} if fails else set())


def test_a_case_that_shows_nothing_is_a_finding(shop: Shop) -> None:
    """C2: arguments that do not fit, a tool that fails: nothing was checked."""

    @tool(effect="read")
    async def look(order: str) -> str:
        """Look."""
        raise ToolError("no such order")

    report = asyncio.run(effects_of(look, [shop.case(), {"other": 1}]))
    assert [(found.case, found.rule) for found in report.findings] == [(0, "once"), (1, "once")]
    assert "no such order" in str(report)


def test_what_cannot_be_tried_is_refused(shop: Shop) -> None:
    """Q1: nothing to run, nothing to try, an event loop in the way, a question that nobody answers."""

    @tool(effect="read")
    async def asks(order: str, call: Call) -> str:
        """Ask."""
        return call.ask(str, f"which of {order}?")

    elsewhere = Tool.elsewhere(
        name="x", description="X.", parameters={"type": "object"}, effect="read"
    )
    for made, cases in ((elsewhere, [{}]), (asks, []), (asks, [shop.case()])):
        with pytest.raises(ConfigurationError):
            asyncio.run(effects_of(made, cases))

    async def inside() -> None:
        check_effects(asks, [shop.case()])

    with pytest.raises(ConfigurationError, match="effects_of"):
        asyncio.run(inside())


async def _tomorrow() -> None: ...


@pytest.mark.parametrize(
    ("cases", "says"),
    [
        ({"order": "1"}, "cases is a list"),
        (EffectCase({"order": "1"}), "cases is a list"),
        ("order", "cases is a list"),
        (7, "cases is a list"),
        (["order"], "case 0 has no arguments"),
        ([EffectCase({"order": "1"}, world=_tomorrow)], "world= of case 0 is asynchronous"),
        ([EffectCase({"order": "1"}, world=threading.Lock)], "world= of case 0 gives no snapshot"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_a_case_that_was_written_wrong_is_told_what_to_write(
    shop: Shop, cases: Any, says: str
) -> None:
    """Q1: whoever writes a first check learns the shape from the error, and not from a traceback of remit's insides."""
    with pytest.raises(ConfigurationError, match=says):
        asyncio.run(effects_of(once_under_a_key(shop), cases))


def test_a_plain_function_is_told_that_it_is_no_tool() -> None:
    """Q1: the decorator was forgotten."""
    plain: Any = lambda order: order  # noqa: E731 - a name for what is passed untyped
    with pytest.raises(ConfigurationError, match=r"is no tool: decorate it with @remit\.tool"):
        check_effects(plain, [{"order": "1"}])


def test_a_world_that_nobody_looks_at_counts_for_no_check(shop: Shop) -> None:
    """Q1: a read without a world was only seen to come off, and its report claims no more."""

    @tool(effect="read")
    async def look(order: str) -> str:
        """Look."""
        return order

    assert check_effects(look, [{"order": "1"}]).checks == 2, "it came off, twice"
    assert check_effects(look, [shop.case()]).checks == 4


def test_a_report_shows_no_secret(shop: Shop) -> None:
    """R1: a table in a build log is read by many."""

    @tool(effect="idempotent")
    async def sign_in(order: str, password: Annotated[str, Secret()]) -> str:
        """Sign in."""
        shop.done.append(order)
        return "signed in"

    case = EffectCase({"order": "1", "password": "hunter2"}, world=lambda: shop.done)
    assert "hunter2" not in str(asyncio.run(effects_of(sign_in, [case])))
