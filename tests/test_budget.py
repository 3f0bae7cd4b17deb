"""Budgets: what may be spent, counted in a tree of accounts. No loop, no clock."""

import copy
import decimal
import math
import pickle
import threading
from dataclasses import FrozenInstanceError, dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from remit.amounts import ZERO, Amount, Spend, Totals
from remit.budget import Budget, Exhausted, Left, Reservation
from remit.canonical import decode, encode
from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.messages import Usage

HUGE = 10**9
WIDE = Limits(steps=HUGE, tokens=HUGE, seconds=60)


def tokens(limit: int) -> Limits:
    return Limits(steps=HUGE, tokens=limit, seconds=60)


def granted(answer: Reservation | Exhausted) -> Reservation:
    assert isinstance(answer, Reservation), answer
    return answer


def refused(answer: Reservation | Exhausted) -> Exhausted:
    assert isinstance(answer, Exhausted)
    return answer


def spend(budget: Budget, amount: Amount) -> None:
    granted(budget.reserve(amount)).settle(amount)


# --- limits ------------------------------------------------------------------------------------

VALID: dict[str, Any] = {"steps": 1, "tokens": 1, "seconds": 1}


@pytest.mark.parametrize("name", ["steps", "tokens", "calls", "seconds", "usd"])
@pytest.mark.parametrize(
    "value",
    [0, -1, -0.5, True, float("nan"), float("inf"), Decimal("sNaN"), Decimal("Infinity"), "5", [5]],
)
def test_a_limit_that_is_no_limit_is_refused_by_name(name: str, value: Any) -> None:
    """L1: zero, negative, NaN, infinite and what is no number; the text names what to change."""
    with pytest.raises(ConfigurationError, match=name):
        Limits(**(VALID | {name: value}))


@pytest.mark.parametrize("name", ["steps", "tokens", "calls"])
def test_a_count_is_a_whole_number(name: str) -> None:
    """L1: 2.0 steps are a mistake, not 2 steps."""
    fraction: dict[str, Any] = {name: 2.0}
    with pytest.raises(ConfigurationError, match=name):
        Limits(**(VALID | fraction))


def test_seconds_that_no_float_can_hold_are_refused() -> None:
    """L1: they are infinite for every clock."""
    with pytest.raises(ConfigurationError, match="seconds"):
        Limits(steps=1, tokens=1, seconds=10**400)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2030, 1, 1),
        "2030-01-01T00:00:00Z",
        1893456000,
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    ],
)
def test_a_deadline_is_an_instant_or_refused(value: Any) -> None:
    """L1: a naive datetime is no instant, and which one it means is not guessed."""
    with pytest.raises(ConfigurationError, match="deadline"):
        Limits(steps=1, tokens=1, seconds=1, deadline=value)


@pytest.mark.parametrize("missing", ["steps", "tokens", "seconds"])
def test_the_three_limits_that_bound_a_run_have_no_default(missing: str) -> None:
    """L1: nothing is unlimited by default."""
    with pytest.raises(ConfigurationError, match=missing):
        Limits(**{name: value for name, value in VALID.items() if name != missing})


def test_a_float_of_dollars_is_the_amount_that_it_prints() -> None:
    """L1: 0.1 is ten cents, not 0.1000000000000000055."""
    assert Limits(steps=1, tokens=1, seconds=1, usd=0.1).usd == Decimal("0.1")


def test_limits_are_frozen_and_change_by_copy() -> None:
    """L1: who was handed limits cannot raise them."""
    limits = Limits(steps=1, tokens=2, seconds=3, usd=4, calls=5)
    with pytest.raises(FrozenInstanceError):
        limits.steps = 2  # pyright: ignore[reportAttributeAccessIssue] - it is frozen
    assert copy.deepcopy(limits) == pickle.loads(pickle.dumps(limits)) == limits


counts = st.integers(1, 10**12)
dollars = st.decimals("0.000001", "1000000", places=6)
limits_of_all_kinds = st.builds(
    Limits,
    steps=counts,
    tokens=counts,
    seconds=st.floats(min_value=0, max_value=1e9, exclude_min=True),
    usd=st.none() | dollars | st.floats(1e-300, 1e300) | counts,
    calls=st.none() | counts,
    deadline=st.none() | st.datetimes(timezones=st.just(UTC)),
)


@given(limits_of_all_kinds)
def test_limits_survive_the_journal(limits: Limits) -> None:
    """L1: what was allowed is still allowed after a restart, to the last digit."""
    assert Limits.from_json(decode(encode(limits.to_json()))) == limits


def test_a_deadline_is_kept_in_utc() -> None:
    """L4: the journal holds UTC, whatever zone the caller lives in."""
    deadline = datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    limits = Limits(steps=1, tokens=1, seconds=1, deadline=deadline)
    assert limits.to_json()["deadline"] == "2030-01-01T00:00:00+00:00"


@given(limits_of_all_kinds, limits_of_all_kinds, limits_of_all_kinds)
def test_narrowing_only_ever_lowers(first: Limits, second: Limits, third: Limits) -> None:
    """L1: the order of narrowing does not matter, and nothing gets wider by it."""
    both = first.narrowed(second)
    assert both == second.narrowed(first)
    assert both.narrowed(third) == first.narrowed(second.narrowed(third))
    assert both.narrowed(first) == both
    assert both.steps <= first.steps
    assert both.usd is not None or first.usd is second.usd is None


# --- amounts and totals ------------------------------------------------------------------------

amounts = st.builds(
    Amount,
    steps=st.integers(0, 9),
    calls=st.integers(0, 9),
    tokens=st.integers(0, 99),
    usd=st.decimals(0, 9, places=2),
)
usages = st.builds(Usage, *[st.integers(0, 10**6)] * 5)
totals = st.builds(
    Totals,
    *[st.integers(0, 10**12)] * 3,
    usd=dollars,
    seconds=st.floats(0, 1e9),
    usage=usages,
)


@given(amounts, amounts)
def test_an_amount_splits_into_what_is_covered_and_what_is_beyond(
    first: Amount, second: Amount
) -> None:
    """L2: what was spent is the part that was reserved and the overshoot, and nothing else."""
    assert first.within(second) + first.beyond(second) == first
    assert first + second - second == first


@pytest.mark.parametrize(
    "parts", [{"steps": -1}, {"tokens": -1}, {"usd": Decimal(-1)}, {"usd": Decimal("NaN")}]
)
def test_an_amount_is_never_negative(parts: Any) -> None:
    """L2: nobody earns budget by reserving."""
    with pytest.raises(ValueError, match="not negative"):
        Amount(**parts)


def test_taking_away_more_than_there_is_is_an_error() -> None:
    """L2: no sum goes silently below zero."""
    with pytest.raises(ValueError, match="not negative"):
        _ = Amount(tokens=1) - Amount(tokens=2)


@given(totals, totals, amounts, st.integers(0, 9))
def test_what_was_spent_survives_the_journal(
    own: Totals, below: Totals, overshoot: Amount, estimated: int
) -> None:
    """J4: a restart neither forgets nor repeats a token or a cent."""
    spent = Spend(own, own + below, overshoot, estimated)
    assert Spend.from_json(decode(encode(spent.to_json()))) == spent


def test_money_is_exact_whatever_the_callers_decimal_context() -> None:
    """L2: three digits of precision in the caller's thread are not three digits of a bill."""
    root = Budget("root", Limits(steps=1, tokens=1, seconds=1, usd=2_000))
    cost = Amount(usd=Decimal("0.000001"))
    with decimal.localcontext(prec=3):
        root.charge(Amount(usd=Decimal("1234.5678")))
        for _ in range(100):
            spend(root, cost)
        assert root.spend.tree.usd == Decimal("1234.567900")
        assert root.left().usd == Decimal("765.432100")


# --- reserve and settle ------------------------------------------------------------------------


def test_the_cost_ceiling_refuses_the_call_that_might_pass_it() -> None:
    """L2, case 37: ceiling 1.00, 0.35 reserved, 0.30 spent: three calls, the fourth is not begun."""
    worst, cost = Amount(steps=1, usd=Decimal("0.35")), Amount(steps=1, usd=Decimal("0.30"))
    limits = Limits(steps=9, tokens=9, seconds=9, usd=1.00)
    before = Budget("support", limits)
    for _ in range(2):
        granted(before.reserve(worst)).settle(cost)

    after = Budget("support", limits)  # the process was killed, and this is the next one
    after.restore(before.spend.own, before.spend.tree)
    granted(after.reserve(worst)).settle(cost)
    refusal = refused(after.reserve(worst))

    assert (refusal.dimension, refusal.whose) == ("usd", "support")
    assert refusal.wanted == worst
    assert refusal.left == Left(6, None, 9, Decimal("0.10"))
    assert after.spend.tree.usd == Decimal("0.90")
    granted(after.reserve(Amount(steps=1)))  # a cheaper one still is


@pytest.mark.parametrize("dimension", ["steps", "calls", "tokens", "usd"])
def test_every_limit_holds_by_itself(dimension: str) -> None:
    """L1: three of it fit, not four, and the refusal says which limit it was."""
    wide: dict[str, Any] = {"steps": 9, "calls": 9, "tokens": 9, "seconds": 9, "usd": 9}
    narrow: dict[str, Any] = {dimension: 3}
    budget = Budget("b", Limits(**(wide | narrow)))
    part: dict[str, Any] = {dimension: Decimal(1) if dimension == "usd" else 1}
    one = Amount(**part)
    for _ in range(3):
        spend(budget, one)
    assert refused(budget.reserve(one)).dimension == dimension
    granted(budget.reserve(ZERO))


def test_several_lacks_are_named_in_a_fixed_order() -> None:
    """L1: two limits hit together give one reason, and always the same."""
    budget = Budget("b", Limits(steps=1, tokens=1, seconds=1, usd=1, calls=1))
    for wanted, dimension in [
        (Amount(2, 2, 2, Decimal(2)), "steps"),
        (Amount(1, 2, 2, Decimal(2)), "calls"),
        (Amount(1, 1, 2, Decimal(2)), "tokens"),
        (Amount(1, 1, 1, Decimal(2)), "usd"),
    ]:
        assert refused(budget.reserve(wanted)).dimension == dimension


def test_what_is_reserved_is_not_there_for_others() -> None:
    """L2: the room is taken before the money is spent, not after."""
    budget = Budget("b", tokens(100))
    first = granted(budget.reserve(Amount(tokens=60)))
    assert refused(budget.reserve(Amount(tokens=60))).left.tokens == 40
    first.settle(Amount(tokens=10))
    granted(budget.reserve(Amount(tokens=60)))


def test_a_refund_gives_everything_back() -> None:
    """L2: what was not spent is not charged, at no account."""
    root = Budget("root", tokens(100))
    child = Budget("child", tokens(100), parent=root)
    granted(child.reserve(Amount(1, 1, 100))).refund()
    assert root.left() == child.left() == Left(HUGE, None, 100, None)
    assert root.spend == child.spend == Spend()


def test_overshoot_is_charged_shown_and_stops_the_run() -> None:
    """L2: a provider that passes its cap is paid; then even a call that costs nothing is refused."""
    root = Budget("root", tokens(100))
    child = Budget("child", tokens(100), parent=root)
    over = granted(child.reserve(Amount(tokens=90))).settle(Amount(tokens=120, usd=Decimal(1)))
    assert over == Amount(tokens=30, usd=Decimal(1))
    for account in (root, child):
        assert account.spend.tree.tokens == 120
        assert account.spend.overshoot == over
        assert account.left().tokens == 0
    assert refused(child.reserve(Amount(calls=1))).whose == "root"
    assert refused(child.reserve(ZERO)) == Exhausted("tokens", "root", ZERO, root.left())


def test_a_settlement_within_its_reservation_overshoots_nothing() -> None:
    """L2: the common case returns the one constant."""
    budget = Budget("b", WIDE)
    amount = Amount(1, 1, 1, Decimal(1))
    assert granted(budget.reserve(amount)).settle(amount) is ZERO


def test_estimates_are_counted_as_such() -> None:
    """L2: an attempt without a report is charged by estimate and marked, up to the root."""
    root = Budget("root", WIDE)
    child = Budget("child", WIDE, parent=root)
    granted(child.reserve(Amount(tokens=9))).settle(Amount(tokens=5), estimated=True)
    child.charge(Amount(tokens=1), estimated=True)
    granted(child.reserve(Amount(tokens=9))).settle(Amount(tokens=5))
    assert root.spend.estimated == child.spend.estimated == 2


def test_a_charge_without_reservation_is_overshoot() -> None:
    """L2: what a tool spends beyond what it declared is paid and visible."""
    budget = Budget("b", tokens(10))
    budget.charge(Amount(tokens=15), Usage(input=15))
    assert budget.spend == Spend(
        own=Totals(tokens=15, usage=Usage(input=15)),
        tree=Totals(tokens=15, usage=Usage(input=15)),
        overshoot=Amount(tokens=15),
    )


@pytest.mark.parametrize("first", ["settle", "refund"])
@pytest.mark.parametrize("second", ["settle", "refund"])
def test_a_reservation_ends_once(first: str, second: str) -> None:
    """L2: paying twice, or paying and taking back, is a bug that is heard."""
    budget = Budget("b", WIDE)
    reservation = granted(budget.reserve(Amount(tokens=5)))
    end = {"settle": lambda: reservation.settle(Amount(tokens=3)), "refund": reservation.refund}
    end[first]()
    before = budget.spend
    with pytest.raises(RuntimeError, match="once"):
        end[second]()
    assert budget.spend == before


# --- the tree ----------------------------------------------------------------------------------


def test_parallel_children_never_outspend_their_parent_together() -> None:
    """L3, case 68: root 100, 40 spent, three children ask for 60 each; what is unused flows back."""
    root = Budget("root", tokens(100))
    spend(root, Amount(tokens=40))
    children = [Budget(f"child {n}", tokens(60), parent=root) for n in range(3)]
    answers = [child.reserve(Amount(tokens=60)) for child in children]

    first, *others = answers
    assert [(refused(other).whose, refused(other).dimension) for other in others] == [
        ("root", "tokens")
    ] * 2
    granted(first).settle(Amount(tokens=25))
    granted(children[1].reserve(Amount(tokens=35))).settle(Amount(tokens=35))
    assert root.spend.tree.tokens == 100
    assert root.spend.own.tokens == 40
    assert [child.spend.tree.tokens for child in children] == [25, 35, 0]


def test_a_recursion_of_children_stops_at_the_root() -> None:
    """L3, case 68: at every depth the reason is the root's, not that of each child in turn."""
    root = Budget("root", tokens(100))
    path = [root]
    for depth in range(3):
        path.append(Budget(f"depth {depth}", tokens(100), parent=path[-1]))
        spend(path[-1], Amount(tokens=33))
    assert [refused(account.reserve(Amount(tokens=2))).whose for account in path] == ["root"] * 4
    assert path[-1].root is root


def test_the_outermost_of_several_empty_accounts_is_named() -> None:
    """L3: who raises the limit that is named gets further."""
    root = Budget("root", tokens(300))
    middle = Budget("middle", tokens(200), parent=root)
    leaf = Budget("leaf", tokens(100), parent=middle)
    assert refused(leaf.reserve(Amount(tokens=150))).whose == "leaf"
    assert refused(leaf.reserve(Amount(tokens=250))).whose == "middle"
    assert refused(leaf.reserve(Amount(tokens=350))).whose == "root"
    middle.charge(Amount(tokens=200))
    leaf.charge(Amount(tokens=100))
    assert refused(leaf.reserve(Amount(tokens=1))).whose == "root"


def test_a_refusal_takes_nothing_anywhere() -> None:
    """L2: all or nothing along the path."""
    root = Budget("root", tokens(100))
    child = Budget("child", tokens(10), parent=root)
    refused(child.reserve(Amount(tokens=11)))
    assert root.left().tokens == 100


def test_a_childs_limits_are_a_ceiling_and_no_promise() -> None:
    """L3: what is left is the least along the path."""
    root = Budget("root", Limits(steps=5, tokens=100, seconds=9, usd=1))
    child = Budget("child", Limits(steps=9, tokens=50, seconds=9, calls=4), parent=root)
    assert child.left() == Left(steps=5, calls=4, tokens=50, usd=Decimal(1))


def test_own_and_tree_are_told_apart() -> None:
    """J4: each token once; the parent's own are not the child's."""
    root = Budget("root", WIDE)
    child = Budget("child", WIDE, parent=root)
    for account, n in ((root, 1), (child, 2)):
        amount = Amount(steps=1, tokens=n)
        granted(account.reserve(amount)).settle(amount, Usage(n, n, n, n, n))
    child.seconds = 2.5
    assert root.spend.own == Totals(steps=1, tokens=1, usage=Usage(1, 1, 1, 1, 1))
    assert root.spend.tree == Totals(steps=2, tokens=3, usage=Usage(3, 3, 3, 3, 3))
    assert child.spend.own == child.spend.tree == Totals(1, 0, 2, Decimal(0), 2.5, Usage(*[2] * 5))


def test_a_reservation_locks_each_account_of_its_path_once() -> None:
    """L2: the work is the depth, not the size of the tree."""
    path = [Budget("root", WIDE)]
    for _ in range(4):
        path.append(Budget("child", WIDE, parent=path[-1]))
        Budget("sibling", WIDE, parent=path[0])
    steps = [path[-1].accounts_locked]
    reservation = granted(path[-1].reserve(Amount(tokens=1)))
    steps.append(path[0].accounts_locked)
    reservation.settle(Amount(tokens=1))
    steps.append(path[0].accounts_locked)
    assert [after - before for before, after in pairwise(steps)] == [5, 5]


def test_children_in_threads_share_one_limit() -> None:
    """L3: children run in loops of their own, and the root still counts each of their tokens."""
    root = Budget("root", tokens(1_000))
    start = threading.Barrier(8)

    def work(child: Budget) -> None:
        start.wait(timeout=30)
        while isinstance(answer := child.reserve(Amount(steps=1, tokens=3)), Reservation):
            answer.settle(Amount(steps=1, tokens=1))

    children = [Budget(f"child {n}", WIDE, parent=root) for n in range(8)]
    threads = [threading.Thread(target=work, args=(child,)) for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert 1_000 - 3 * 8 < root.spend.tree.tokens <= 1_000
    assert root.spend.tree.tokens == sum(child.spend.own.tokens for child in children)
    assert root.left().tokens == 1_000 - root.spend.tree.tokens


# --- the hand-back reserve ---------------------------------------------------------------------


def test_only_the_closing_call_draws_the_hand_back_reserve() -> None:
    """L5: neither steps nor children get at what is kept for the last word."""
    root = Budget("root", tokens(100))
    child = Budget("child", tokens(100), parent=root)
    root.hold(Amount(tokens=30))
    assert (root.left().tokens, root.left(held=True).tokens, child.left().tokens) == (70, 100, 70)
    refused(root.reserve(Amount(tokens=71)))
    assert refused(child.reserve(Amount(tokens=71))).whose == "root"
    spend(child, Amount(tokens=70))
    granted(root.reserve(Amount(tokens=30), held=True)).settle(Amount(tokens=30))
    assert root.spend.tree.tokens == 100


def test_the_closing_call_of_a_child_draws_no_reserve_but_its_own() -> None:
    """L5: a child's last word is not paid out of its parent's."""
    root = Budget("root", tokens(100))
    child = Budget("child", tokens(50), parent=root)
    root.hold(Amount(tokens=80))
    child.hold(Amount(tokens=10))
    assert (child.left().tokens, child.left(held=True).tokens) == (20, 20)
    assert refused(child.reserve(Amount(tokens=21), held=True)).whose == "root"
    spend(child, Amount(tokens=20))


def test_a_reserve_larger_than_what_is_left_lets_nothing_else_start() -> None:
    """L5: a step is begun only if it and the hand-back both fit."""
    root = Budget("root", tokens(100))
    spend(root, Amount(tokens=80))
    root.hold(Amount(tokens=30))
    assert root.left().tokens == 0
    refused(root.reserve(Amount(calls=1)))
    granted(root.reserve(Amount(tokens=20), held=True))


@pytest.mark.parametrize("dimension", ["steps", "calls", "tokens", "usd"])
def test_every_dimension_can_be_kept(dimension: str) -> None:
    """L5: also dollars, steps and calls are there for the last word, and for nothing else."""
    budget = Budget("b", Limits(steps=1, tokens=1, seconds=1, usd=1, calls=1))
    part: dict[str, Any] = {dimension: Decimal(1) if dimension == "usd" else 1}
    budget.hold(Amount(**part))
    assert refused(budget.reserve(Amount(**part))).dimension == dimension
    granted(budget.reserve(Amount(**part), held=True))


def test_a_new_reserve_takes_the_place_of_the_old() -> None:
    """L5: reserves do not add up from step to step."""
    root = Budget("root", tokens(100))
    for kept in (10, 40, 20):
        root.hold(Amount(tokens=kept))
    assert root.left().tokens == 80


# --- at the end of it, and restored ------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "dimension"),
    [
        (Amount(steps=3), "steps"),
        (Amount(tokens=30), "tokens"),
        (Amount(usd=Decimal(3)), "usd"),
        (Amount(steps=3, tokens=30, usd=Decimal(3)), "steps"),
        (Amount(calls=3), None),
        (Amount(2, 3, 29, Decimal("2.99")), None),
    ],
)
def test_the_least_step_is_refused_when_nothing_is_left_for_it(
    spent: Amount, dimension: str | None
) -> None:
    """L1: looked at before every step; a run without calls left can still answer."""
    budget = Budget("b", Limits(steps=3, tokens=30, seconds=9, usd=3, calls=3))
    spend(budget, spent)
    answer = budget.reserve(Amount(steps=1, tokens=1, usd=Decimal("0.01")))
    assert (answer.dimension if isinstance(answer, Exhausted) else None) == dimension


def test_new_totals_let_a_run_go_on() -> None:
    """L1: resume states totals, not additions; what was spent stays spent."""
    before = Budget("b", Limits(steps=3, tokens=100, seconds=9))
    spend(before, Amount(steps=3))
    refused(before.reserve(Amount(steps=1)))
    budget = Budget("b", Limits(steps=5, tokens=100, seconds=9))
    budget.restore(before.spend.own, before.spend.tree)
    assert budget.limits.steps == 5
    spend(budget, Amount(steps=2))
    assert refused(budget.reserve(Amount(steps=1))).left.steps == 0


def test_restoring_keeps_the_hand_back_reserve() -> None:
    """L5: the last word is paid for whatever was spent before."""
    budget = Budget("b", tokens(200))
    budget.hold(Amount(tokens=30))
    budget.restore(Totals(tokens=50), Totals(tokens=50))
    assert budget.left().tokens == 120


def test_a_replayed_tree_stands_where_it_stood() -> None:
    """J4: each account is restored from its own record, and nothing is counted twice."""
    root = Budget("root", tokens(100))
    child = Budget("child", tokens(50), parent=root)
    spend(root, Amount(steps=1, tokens=10))
    granted(child.reserve(Amount(tokens=10))).settle(Amount(tokens=20), estimated=True)
    root.seconds = child.seconds = 1.5

    again = Budget("root", tokens(100))
    below = Budget("child", tokens(50), parent=again)
    for account, was in ((again, root.spend), (below, child.spend)):
        account.restore(was.own, was.tree, overshoot=was.overshoot, estimated=was.estimated)
    assert (again.spend, below.spend) == (root.spend, child.spend)
    assert (again.left(), below.left()) == (root.left(), child.left())


def test_restoring_replaces_what_was_counted_and_keeps_what_is_reserved() -> None:
    """J4: restoring twice is restoring once."""
    budget = Budget("b", tokens(100))
    reservation = granted(budget.reserve(Amount(tokens=10)))
    for _ in range(2):
        budget.restore(Totals(tokens=30), Totals(tokens=40))
    assert budget.left().tokens == 50
    reservation.settle(Amount(tokens=5))
    assert budget.spend.tree.tokens == 45
    assert budget.left().tokens == 55


# --- shares ------------------------------------------------------------------------------------


def test_a_share_is_kept_whatever_its_siblings_do() -> None:
    """L3: reserve=True sets a share aside; what it left unused flows back at the end."""
    root = Budget("root", tokens(100))
    limits = Limits(steps=5, tokens=60, seconds=9)
    child = Budget("child", limits, parent=root, aside=granted(root.reserve(limits.share())))
    assert root.left().tokens == 40
    assert refused(root.reserve(Amount(tokens=41))).whose == "root"
    spend(root, Amount(tokens=40))
    root.hold(Amount(tokens=10))
    spend(child, Amount(tokens=25))  # its own, though the root has nothing to give
    assert root.spend.tree.tokens == 65
    root.hold(ZERO)
    child.close()
    child.close()
    assert root.left().tokens == 35


def test_a_share_is_a_ceiling_too() -> None:
    """L3: a child cannot draw more than its limits, nor more than was set aside."""
    root = Budget("root", tokens(100))
    share = granted(root.reserve(Amount(steps=HUGE, tokens=20)))
    child = Budget("child", tokens(60), parent=root, aside=share)
    assert child.left().tokens == 20
    assert refused(child.reserve(Amount(tokens=21))).whose == "child"


def test_what_has_no_share_is_drawn_from_the_parent_call_by_call() -> None:
    """L3: a child without a limit on dollars and calls is still under its parent's."""
    root = Budget("root", Limits(steps=9, tokens=100, seconds=9, usd=1, calls=2))
    limits = Limits(steps=5, tokens=60, seconds=9)
    child = Budget("child", limits, parent=root, aside=granted(root.reserve(limits.share())))
    leaf = Budget("leaf", WIDE, parent=child)
    assert leaf.left() == Left(5, 2, 60, Decimal(1))
    one = Amount(calls=1, tokens=1, usd=Decimal("0.4"))
    spend(leaf, one)
    reservation = granted(leaf.reserve(one))
    assert root.left() == Left(4, 0, 40, Decimal("0.2"))
    assert refused(leaf.reserve(Amount(calls=1))).whose == "root"
    assert refused(leaf.reserve(Amount(usd=Decimal(1)))).dimension == "usd"
    reservation.refund()
    child.close()
    assert root.left() == Left(9, 1, 99, Decimal("0.6"))


def test_spend_beyond_a_share_is_charged_to_the_parent() -> None:
    """L2: overshoot is paid by someone."""
    root = Budget("root", tokens(100))
    limits = Limits(steps=5, tokens=60, seconds=9)
    child = Budget("child", limits, parent=root, aside=granted(root.reserve(limits.share())))
    granted(child.reserve(Amount(tokens=60))).settle(Amount(tokens=75))
    assert root.left().tokens == 25
    child.close()
    assert root.left().tokens == 25
    assert root.spend.overshoot == child.spend.overshoot == Amount(tokens=15)


def test_a_late_settlement_is_covered_by_a_closed_share() -> None:
    """L3: what an abandoned call still holds is not given away, and comes back when it ends."""
    root = Budget("root", tokens(100))
    limits = Limits(steps=5, tokens=60, seconds=9)
    child = Budget("child", limits, parent=root, aside=granted(root.reserve(limits.share())))
    late = [granted(child.reserve(Amount(tokens=20))) for _ in range(2)]
    child.close()
    assert root.left().tokens == 60
    late[0].settle(Amount(tokens=5))
    late[1].refund()
    assert root.left().tokens == 95
    with pytest.raises(RuntimeError, match="child"):
        child.reserve(Amount(tokens=1))


def test_a_resumed_child_sets_aside_only_what_it_may_still_spend() -> None:
    """L3: what it spent before is in its parent's record already."""
    limits = Limits(steps=5, tokens=60, seconds=9, usd=1, calls=3)
    spent = Totals(steps=1, calls=1, tokens=40, usd=Decimal("0.25"))
    root = Budget("root", tokens(100))
    root.restore(Totals(), spent)
    share = limits.share(spent)
    assert share == Amount(4, 2, 20, Decimal("0.75"))
    child = Budget("child", limits, parent=root, aside=granted(root.reserve(share)))
    child.restore(spent, spent)
    assert child.left() == Left(4, 2, 20, Decimal("0.75"))
    assert root.left().tokens == 40


def test_a_share_is_an_open_reservation_at_the_parent() -> None:
    """L3: one reservation carries one child, under the account that it was taken from."""
    root, other = Budget("root", WIDE), Budget("other", WIDE)
    share = granted(root.reserve(tokens(10).share()))
    with pytest.raises(ValueError, match="parent"):
        Budget("child", tokens(10), aside=share)
    with pytest.raises(ValueError, match="parent"):
        Budget("child", tokens(10), parent=other, aside=share)
    Budget("child", tokens(10), parent=root, aside=share)
    for taken_again in (share.refund, lambda: Budget("b", WIDE, parent=root, aside=share)):
        with pytest.raises(RuntimeError, match="once"):
            taken_again()


def test_closing_an_account_without_a_share_changes_nothing() -> None:
    """L3: the loop closes every child alike."""
    root = Budget("root", tokens(100))
    child = Budget("child", tokens(50), parent=root)
    child.close()
    spend(child, Amount(tokens=50))


# --- any tree, any order -----------------------------------------------------------------------

Parts = tuple[int, float, int, Decimal]
"""Steps, calls, tokens, usd."""


def parts(value: Amount | Totals) -> Parts:
    return (value.steps, value.calls, value.tokens, value.usd)


def parts_left(left: Left) -> Parts:
    calls = math.inf if left.calls is None else left.calls
    return (left.steps, calls, left.tokens, Decimal("inf") if left.usd is None else left.usd)


@dataclass(eq=False)
class Node:
    """An account and what a clerk with pencil and paper knows of it."""

    budget: Budget
    parent: "Node | None" = None
    share: Amount | None = None
    held: Amount = ZERO
    closed: bool = False
    children: list["Node"] = field(default_factory=list["Node"])
    charged: list[Amount] = field(default_factory=list[Amount])
    open: list[Reservation] = field(default_factory=list[Reservation])

    def subtree(self) -> list["Node"]:
        return [self, *(node for child in self.children for node in child.subtree())]

    def alive(self) -> bool:
        """Whether it may still reserve: no share on its path is closed."""
        return not self.closed and (self.parent is None or self.parent.alive())

    def spent(self) -> Amount:
        return sum((amount for node in self.subtree() for amount in node.charged), ZERO)

    def taken(self) -> Amount:
        mine = [*self.charged, *(reservation.amount for reservation in self.open)]
        return sum((*mine, *(child.burden() for child in self.children)), ZERO)

    def above(self, amount: Amount, covered: Amount) -> Amount:
        """`covered` where this account has a share, and `amount` where it has none."""
        limits = self.budget.limits
        return Amount(
            covered.steps,
            amount.calls if limits.calls is None else covered.calls,
            covered.tokens,
            amount.usd if limits.usd is None else covered.usd,
        )

    def burden(self) -> Amount:
        """What this account takes of its parent's room."""
        if self.share is None or self.closed:
            return self.taken()
        return self.above(self.taken(), self.share + self.spent().beyond(self.share))

    def ceiling(self) -> Parts:
        limits = self.budget.limits
        calls = math.inf if limits.calls is None else limits.calls
        return (limits.steps, calls, limits.tokens, limits.usd or Decimal("inf"))

    def whose(self, amount: Amount, closing: bool) -> str | None:
        """The outermost account that has no room for `amount`."""
        wanted = self.taken() + amount + (ZERO if closing else self.held)
        full = any(x > most for x, most in zip(parts(wanted), self.ceiling(), strict=True))
        if self.share is not None:
            amount = self.above(amount, ZERO)
        outer = None
        if self.parent is not None and (self.share is None or amount != ZERO):
            outer = self.parent.whose(amount, closing=False)
        return outer or (self.budget.name if full else None)


def limits_up_to(most: int) -> st.SearchStrategy[Limits]:
    """Small enough to be met, with cents and all."""
    some = st.integers(1, most)
    return st.builds(
        Limits,
        steps=some,
        tokens=some,
        seconds=st.just(60),
        usd=st.none() | st.decimals("0.01", most, places=2),
        calls=st.none() | some,
    )


few = st.integers(0, 4)
small_amounts = st.builds(Amount, few, few, few, st.decimals(0, 4, places=2))
picks = st.integers(0, 10**6)


class AnyTree(RuleBasedStateMachine):
    """Accounts open, reserve, settle, overshoot, hold and close in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Node(Budget("root", WIDE))

    @initialize(limits=limits_up_to(60))
    def begin(self, limits: Limits) -> None:
        self.root = Node(Budget("root", limits))

    def nodes(self) -> list[Node]:
        return self.root.subtree()

    def living(self) -> list[Node]:
        return [node for node in self.nodes() if node.alive()]

    def reservations(self) -> list[tuple[Node, Reservation]]:
        return [(node, reservation) for node in self.nodes() for reservation in node.open]

    @rule(pick=picks, limits=limits_up_to(15), apart=st.booleans())
    def open_a_child(self, pick: int, limits: Limits, apart: bool) -> None:
        living = self.living()
        parent = living[pick % len(living)]
        name = f"{parent.budget.name}.{len(parent.children)}"
        share = None
        reservation = None
        if apart:
            share = limits.share()
            answer = parent.budget.reserve(share)
            if isinstance(answer, Exhausted):
                return
            reservation = answer
        child = Budget(name, limits, parent=parent.budget, aside=reservation)
        parent.children.append(Node(child, parent, share))

    @rule(pick=picks, amount=small_amounts, closing=st.booleans())
    def reserve(self, pick: int, amount: Amount, closing: bool) -> None:
        living = self.living()
        node = living[pick % len(living)]
        left = parts_left(node.budget.left(held=closing))
        expected = node.whose(amount, closing)
        answer = node.budget.reserve(amount, held=closing)
        if isinstance(answer, Exhausted):
            assert answer.whose == expected
            return
        assert expected is None
        assert all(x <= most for x, most in zip(parts(amount), left, strict=True))
        node.open.append(answer)

    @precondition(lambda self: self.reservations())
    @rule(pick=picks, actual=small_amounts, honest=st.booleans(), usage=usages)
    def settle(self, pick: int, actual: Amount, honest: bool, usage: Usage) -> None:
        reservations = self.reservations()
        node, reservation = reservations[pick % len(reservations)]
        paid = actual.within(reservation.amount) if honest else actual
        over = reservation.settle(paid, usage)
        assert over == paid.beyond(reservation.amount)
        node.open.remove(reservation)
        node.charged.append(paid)

    @precondition(lambda self: self.reservations())
    @rule(pick=picks)
    def refund(self, pick: int) -> None:
        reservations = self.reservations()
        node, reservation = reservations[pick % len(reservations)]
        reservation.refund()
        node.open.remove(reservation)

    @rule(pick=picks, amount=small_amounts)
    def charge(self, pick: int, amount: Amount) -> None:
        nodes = self.nodes()
        node = nodes[pick % len(nodes)]
        node.budget.charge(amount)
        node.charged.append(amount)

    @rule(pick=picks, amount=small_amounts)
    def hold(self, pick: int, amount: Amount) -> None:
        nodes = self.nodes()
        node = nodes[pick % len(nodes)]
        node.budget.hold(amount)
        node.held = amount

    @rule(pick=picks)
    def close(self, pick: int) -> None:
        nodes = self.nodes()
        node = nodes[pick % len(nodes)]
        if node.share is not None:
            # What is reserved beyond an overdrawn share is nobody's; a test of its own says so.
            assume(node.budget.spend.overshoot == ZERO)
            node.closed = True
        node.budget.close()

    @invariant()
    def the_books_agree(self) -> None:
        for node in self.nodes():
            spent = node.budget.spend
            assert parts(spent.own) == parts(sum(node.charged, ZERO))
            assert parts(spent.tree) == parts(node.spent())
            account = node.budget._account
            taken = (account.steps, account.calls, account.tokens, account.usd)
            assert taken == parts(node.taken())

    @invariant()
    def only_overshoot_passes_a_limit(self) -> None:
        for node in self.nodes():
            within = node.taken().beyond(node.budget.spend.overshoot)
            assert all(x <= most for x, most in zip(parts(within), node.ceiling(), strict=True))

    @invariant()
    def usage_adds_up(self) -> None:
        for node in self.nodes():
            own = [below.budget.spend.own.usage for below in node.subtree()]
            assert node.budget.spend.tree.usage == sum(own, Usage())

    def teardown(self) -> None:
        for node, reservation in self.reservations():
            reservation.refund()
            node.open.remove(reservation)
        for node in self.nodes():
            node.budget.close()
            node.closed = True
        self.the_books_agree()
        assert self.root.taken() == self.root.spent()


def test_a_tree_of_accounts_is_the_sum_of_its_leaves() -> None:
    """L2, L3, J4: in any tree, in any order: the sum is exact, and only overshoot passes a limit."""
    run_state_machine_as_test(AnyTree)
