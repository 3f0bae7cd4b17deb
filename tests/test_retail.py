"""The retail benchmark: both applications of its rules agree, and its tasks reach their state.

The rules are tested on a small shop made here. The published data is read from `../shared/retail`
and those tests are skipped where it is absent.
"""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import retail
import retail_reference as reference
from remit.testing import run_virtual
from retail_desk import Effects, Fault
from retail_domain import Json, Refused, Shop

DATA = Path(__file__).parents[2] / "shared" / "retail"
published = pytest.mark.skipif(
    not (DATA / "db.json").exists(), reason="the retail data is not at ../shared/retail"
)

MUGS = {"mug-red": 9.1, "mug-blue": 12.35, "mug-green": 7.2, "mug-sold-out": 8.0}
LAMPS = {"lamp-small": 40.05, "lamp-large": 59.99}
ADDRESS = {
    "address1": "1 Mill Lane",
    "address2": "",
    "city": "Salem",
    "state": "OR",
    "country": "USA",
    "zip": "97301",
}


def product(product_id: str, prices: dict[str, float]) -> Json:
    return {
        "name": product_id.title(),
        "product_id": product_id,
        "variants": {
            item_id: {
                "item_id": item_id,
                "options": {"kind": item_id},
                "available": not item_id.endswith("sold-out"),
                "price": price,
            }
            for item_id, price in prices.items()
        },
    }


def order(order_id: str, user_id: str, status: str, items: list[str], *paid: float | str) -> Json:
    amount, method = paid
    prices = MUGS | LAMPS
    return {
        "order_id": order_id,
        "user_id": user_id,
        "address": dict(ADDRESS),
        "items": [
            {
                "name": item_id,
                "product_id": "mug" if item_id in MUGS else "lamp",
                "item_id": item_id,
                "price": prices[item_id],
                "options": {"kind": item_id},
            }
            for item_id in items
        ],
        "status": status,
        "fulfillments": [],
        "payment_history": [
            {"transaction_type": "payment", "amount": amount, "payment_method_id": method}
        ],
    }


def user(user_id: str, balance: float) -> Json:
    return {
        "user_id": user_id,
        "name": {"first_name": user_id.title(), "last_name": "Reed"},
        "address": dict(ADDRESS),
        "email": f"{user_id}@example.com",
        "payment_methods": {
            "gift_card_1": {"source": "gift_card", "id": "gift_card_1", "balance": balance},
            "paypal_1": {"source": "paypal", "id": "paypal_1"},
            "credit_card_1": {"source": "credit_card", "id": "credit_card_1"},
        },
        "orders": [],
    }


def small_shop() -> Json:
    return {
        "products": {"mug": product("mug", MUGS), "lamp": product("lamp", LAMPS)},
        "users": {"ann": user("ann", 5.5), "ben": user("ben", 300.0)},
        "orders": {
            row["order_id"]: row
            for row in (
                order("#1", "ann", "pending", ["mug-red", "mug-red"], 18.2, "paypal_1"),
                order("#2", "ann", "pending", ["lamp-small", "mug-blue"], 52.4, "gift_card_1"),
                order("#3", "ben", "delivered", ["lamp-large", "mug-red"], 69.09, "paypal_1"),
                order("#4", "ben", "pending", ["lamp-small"], 40.05, "credit_card_1"),
                order("#5", "ann", "delivered", ["mug-green"], 7.2, "gift_card_1"),
                order("#6", "ben", "processed", ["mug-blue"], 12.35, "paypal_1"),
            )
        },
    }


def refusal(shop: Shop, name: str, arguments: Json) -> str | None:
    """Carry an action out; the reason where the shop refused it."""
    try:
        shop.actions[name](**arguments)
    except Refused as refused:
        return str(refused)
    return None


orders = st.sampled_from(["#1", "#2", "#3", "#4", "#5", "#6", "#7"])
items = st.lists(st.sampled_from([*MUGS, *LAMPS, "no-item"]), max_size=3)
methods = st.sampled_from(["gift_card_1", "paypal_1", "credit_card_1", "paypal_2"])
swaps = {"order_id": orders, "item_ids": items, "new_item_ids": items, "payment_method_id": methods}
reasons = st.sampled_from(["no longer needed", "ordered by mistake", "a whim"])
addresses = {name: st.sampled_from([text, "elsewhere"]) for name, text in ADDRESS.items()}
ARGUMENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "cancel_pending_order": {"order_id": orders, "reason": reasons},
    "exchange_delivered_order_items": swaps,
    "modify_pending_order_address": {"order_id": orders, **addresses},
    "modify_pending_order_items": swaps,
    "modify_pending_order_payment": {"order_id": orders, "payment_method_id": methods},
    "modify_user_address": {"user_id": st.sampled_from(["ann", "ben", "cy"]), **addresses},
    "return_delivered_order_items": {
        "order_id": orders,
        "item_ids": items,
        "payment_method_id": methods,
    },
}
actions = st.one_of(
    [
        st.tuples(st.just(name), st.fixed_dictionaries(arguments))
        for name, arguments in ARGUMENTS.items()
    ]
)


@given(st.lists(actions, max_size=12))
def test_two_independent_applications_of_any_actions_end_in_the_same_database(
    played: list[tuple[str, Json]],
) -> None:
    """Both refuse the same actions, and a refused one changes nothing."""
    shop, other = Shop(small_shop()), small_shop()
    for name, arguments in played:
        before = copy.deepcopy(shop.database)
        refused = refusal(shop, name, arguments) is not None
        assert refused == (reference.apply(other, name, arguments) is not None)
        assert shop.database == other
        if refused:
            assert shop.database == before


def test_a_cancelled_order_refunds_a_gift_card_at_once() -> None:
    """The policy of the domain."""
    shop = Shop(small_shop())
    shop.cancel_pending_order("#2", "no longer needed")
    assert shop.database["users"]["ann"]["payment_methods"]["gift_card_1"]["balance"] == 57.9
    assert [entry["amount"] for entry in shop.database["orders"]["#2"]["payment_history"]] == [
        52.4,
        52.4,
    ]


def test_items_of_a_pending_order_change_once_and_the_difference_is_paid() -> None:
    """The policy of the domain: two equal items may become two different ones."""
    shop = Shop(small_shop())
    shown = shop.modify_pending_order_items(
        "#1", ["mug-red", "mug-red"], ["mug-blue", "mug-green"], "paypal_1"
    )
    assert [item["item_id"] for item in shown["items"]] == ["mug-blue", "mug-green"]
    assert shown["payment_history"][-1] == {
        "transaction_type": "payment",
        "amount": 1.35,
        "payment_method_id": "paypal_1",
    }
    with pytest.raises(Refused, match="not pending"):
        shop.modify_pending_order_items("#1", ["mug-blue"], ["mug-red"], "paypal_1")
    with pytest.raises(Refused, match="not pending"):
        shop.cancel_pending_order("#1", "no longer needed")
    shop.modify_pending_order_address("#1", **ADDRESS)


def test_a_gift_card_that_is_too_small_pays_nothing() -> None:
    """The policy of the domain."""
    shop = Shop(small_shop())
    with pytest.raises(Refused, match="does not cover"):
        shop.modify_pending_order_payment("#1", "gift_card_1")
    assert shop.database == small_shop()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 2", "4.0"),
        ("155.33 - 147.05 + 268.77 - 235.13", "41.92"),
        ("-(1 + 2) * 3 / 4", "-2.25"),
        ("  7", "7.0"),
    ],
)
def test_arithmetic_is_worked_out(expression: str, value: str) -> None:
    """Source: what the published tool returns, two decimals as text."""
    assert Shop(small_shop()).calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "2 **", "2 ** 9", "7 // 2", "1 / 0", "__import__('os')", "(1", "1" * 201, "1(2)", "()"],
)
def test_what_is_no_plain_arithmetic_is_refused(expression: str) -> None:
    """Nothing is evaluated but numbers and four operators."""
    with pytest.raises(Refused):
        Shop(small_shop()).calculate(expression)


def test_users_are_found_whatever_the_case_of_their_name() -> None:
    """The policy of the domain: by email, or by name and zip code."""
    shop = Shop(small_shop())
    assert shop.find_user_id_by_email("ANN@example.com") == "ann"
    assert shop.find_user_id_by_name_zip("BEN", "reed", "97301") == "ben"
    with pytest.raises(Refused, match="no user"):
        shop.find_user_id_by_name_zip("ben", "reed", "97302")


def test_what_a_read_returns_is_a_copy() -> None:
    """Nobody changes the shop by changing an answer."""
    shop = Shop(small_shop())
    shop.get_order_details("#1")["status"] = "cancelled"
    assert shop.get_order_details("#1")["status"] == "pending"
    assert shop.get_item_details("mug-red")["price"] == 9.1
    assert shop.list_all_product_types() == {"Lamp": "lamp", "Mug": "mug"}


def test_a_key_that_comes_again_gets_what_was_done_and_does_nothing() -> None:
    """E4: what a service that honours idempotency keys owes remit."""
    effects, done = Effects(), list[str]()
    for _ in range(2):
        assert effects.apply("key", "cancel #1", lambda: done.append("cancel #1")) is None
    assert done == ["cancel #1"]
    assert (effects.applied.total(), effects.repeats.total()) == (1, 1)


def test_a_second_attempt_under_a_key_of_its_own_is_seen_even_where_the_shop_refuses_it() -> None:
    """E1: the benchmark must not owe its good result to the rules of the shop."""
    shop, effects = Shop(small_shop()), Effects()

    def cancel() -> object:
        return shop.cancel_pending_order("#1", "no longer needed")

    effects.apply("a key", "cancel #1", cancel)
    with pytest.raises(Refused):
        effects.apply("another key", "cancel #1", cancel)
    assert effects.applied["cancel #1"] == 2


TASK = retail.Task(
    id="made here",
    prompt="Please put my orders right.",
    actions=(
        ("find_user_id_by_email", {"email": "nobody@example.com"}),
        ("get_user_details", {"user_id": "ann"}),
        ("get_order_details", {"order_id": "#1"}),
        ("get_order_details", {"order_id": "#2"}),
        ("get_order_details", {"order_id": "#1"}),
        ("modify_user_address", {"user_id": "ann", **ADDRESS, "city": "Bend"}),
        ("modify_pending_order_address", {"order_id": "#1", **ADDRESS, "city": "Bend"}),
        ("cancel_pending_order", {"order_id": "#2", "reason": "no longer needed"}),
        ("modify_pending_order_payment", {"order_id": "#1", "payment_method_id": "gift_card_1"}),
        ("modify_pending_order_payment", {"order_id": "#1", "payment_method_id": "paypal_1"}),
        (
            "return_delivered_order_items",
            {"order_id": "#5", "item_ids": ["mug-green"], "payment_method_id": "gift_card_1"},
        ),
    ),
)
"""Two actions are refused by the shop: there is no such user, and the order is paid so already."""


def made_here(*tasks: retail.Task) -> retail.Data:
    """The small shop in the form of the published files."""
    arguments = {name: arguments for task in tasks for name, arguments in task.actions}
    return retail.Data(
        database=json.dumps(small_shop()),
        policy="Be kind.",
        tasks=tasks,
        tools=[
            {
                "name": name,
                "description": f"{name}, as published.",
                "input_schema": {
                    "type": "object",
                    "properties": {
                        key: {"type": "array", "items": {"type": "string"}}
                        if isinstance(value, list)
                        else {"type": "string"}
                        for key, value in given.items()
                    },
                    "required": list(given),
                },
            }
            for name, given in arguments.items()
        ],
    )


@pytest.mark.parametrize("in_process", [True, False])
def test_a_task_reaches_the_reference_state_whether_it_waits_or_is_approved_at_once(
    in_process: bool,
) -> None:
    """E6: the same effects, decided by a callback or by waiting, decision and resume."""
    played = run_virtual(retail.play(TASK, made_here(TASK), retail.Plan(in_process)))
    assert played.wrong == ""
    assert (played.callbacks, played.decisions) == ((4, 0) if in_process else (0, 4))
    assert (played.effects, played.twice, played.repeats) == (5, 0, 0)


def test_whatever_a_task_suffers_it_reaches_the_reference_state_and_nothing_happens_twice() -> None:
    """E1, E4, K1, T1: failures, timeouts, doubts, disorder and cancellations of 60 seeds."""
    data, suffered = made_here(TASK), Counter[Fault]()
    for seed in range(60):
        played = run_virtual(retail.play(TASK, data, retail.plan(TASK, seed)))
        assert (seed, played.wrong, played.twice, played.effects) == (seed, "", 0, 5)
        assert played.faults
        suffered += played.faults
    assert min(suffered[fault] for fault in Fault) >= 5


def test_a_task_without_actions_is_cancelled_while_its_model_thinks_and_then_goes_on() -> None:
    """K1: a cancellation in mid-reply leaves a transcript that can be continued."""
    task = retail.Task("idle", "Thank you!", ())
    for seed in range(4):
        played = run_virtual(retail.play(task, made_here(task), retail.plan(task, seed)))
        assert (played.wrong, played.faults[Fault.CANCELLATION]) == ("", 1)


def test_a_plan_is_the_same_every_time() -> None:
    """A seed that fails can be played again."""
    assert retail.plan(TASK, 7) == retail.plan(TASK, 7)
    assert len({repr(retail.plan(TASK, seed)) for seed in range(20)}) > 10


@published
def test_both_applications_agree_on_the_published_actions_played_one_task_after_another() -> None:
    """Real input: some are refused by the rules, more of them once earlier tasks were played."""
    text = (DATA / "db.json").read_text(encoding="utf-8")
    shop, other = Shop(json.loads(text)), json.loads(text)
    refusals = 0
    for task in retail.read(DATA, DATA / "tasks.json").tasks:
        for name, arguments in task.actions:
            refused = refusal(shop, name, arguments) is not None
            why = reference.apply(other, name, arguments)
            if name in reference.WRITES:
                assert (task.id, name, refused) == (task.id, name, why is not None)
                refusals += refused
    assert shop.database == other
    assert refusals


@published
def test_the_shop_offers_exactly_the_published_tools() -> None:
    """Real input: the names of the published tools."""
    tools = json.loads((DATA / "tools.json").read_text(encoding="utf-8"))
    assert set(Shop(small_shop()).actions) == {tool["name"] for tool in tools}
    assert set(reference.WRITES) == {tool["name"] for tool in tools if tool["kind"] == "write"}


@published
@pytest.mark.parametrize("faults", [[], ["--faults", "3"]])
def test_the_benchmark_says_last_how_many_tasks_reach_the_reference_state(
    faults: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real input: every sixth published task, with and without faults."""
    tasks = tmp_path / "tasks.json"
    rows = json.loads((DATA / "tasks.json").read_text(encoding="utf-8"))[::6]
    tasks.write_text(json.dumps(rows), encoding="utf-8")
    assert retail.main(["--data", str(DATA), "--tasks", str(tasks), *faults]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{len(rows)}/{len(rows)} tasks reach the reference state"
    assert ("faults of seed 3" in lines) == bool(faults)


@published
@pytest.mark.skipif(
    not hasattr(signal, "sigtimedwait"), reason="this system has no fork or no sigtimedwait"
)
@pytest.mark.parametrize("seed", [1])
def test_tasks_whose_processes_are_killed_reach_the_reference_state(
    seed: int, tmp_path: Path
) -> None:
    """J3, E1, E3, E4, E6: some of the published tasks on a SQLite store, each worker killed at a random instant."""
    tasks = tmp_path / "tasks.json"
    rows = json.loads((DATA / "tasks.json").read_text(encoding="utf-8"))[::6]
    tasks.write_text(json.dumps(rows), encoding="utf-8")
    program = Path(retail.__file__)
    given = ["--data", DATA, "--tasks", tasks, "--crash", str(seed)]
    played = subprocess.run(
        [sys.executable, program, *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    *lines, last = played.stdout.splitlines()
    assert last == f"{len(rows)}/{len(rows)} tasks reach the reference state"
    [kills] = [int(line.split()[-1]) for line in lines if line.startswith("  kills")]
    assert kills
