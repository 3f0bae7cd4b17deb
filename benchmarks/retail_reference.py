"""The second application of a task's actions, written without a look at the first.

Plain functions from (order, user, products, arguments) to changed copies, money as whole cents, a
table from name to function. It shares no code with `retail_domain.py`: what both agree on is then
no accident. Only the seven actions that write are here; every other name leaves the database as it
is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

__all__ = ["WRITES", "apply"]

Row: TypeAlias = dict[str, Any]
Write: TypeAlias = Callable[[Row, Row, Row, Mapping[str, Any]], "str | None"]
"""Changes order and user in place; returns why it cannot, and then what it changed is dropped."""

ADDRESS = ("address1", "address2", "city", "state", "country", "zip")


def cents(dollars: float) -> int:
    return round(dollars * 100)


def dollars(amount: int) -> float:
    return amount / 100


def clone(value: Row) -> Row:
    return json.loads(json.dumps(value))


def pay(user: Row, method: str, amount: int) -> str | None:
    """Take cents from a payment method, or give them back where the amount is negative."""
    wallet = user["payment_methods"]
    if method not in wallet:
        return "unknown payment method"
    if "balance" in wallet[method]:
        rest = cents(wallet[method]["balance"]) - amount
        if rest < 0 < amount:
            return "gift card too small"
        wallet[method]["balance"] = dollars(rest)
    return None


def book(order: Row, kind: str, amount: int, method: str) -> None:
    order["payment_history"].append(
        {"transaction_type": kind, "amount": dollars(amount), "payment_method_id": method}
    )


def pick(order: Row, wanted: Iterable[str]) -> list[int] | None:
    """The positions of the wanted items, each position once; None where one is not there."""
    free = dict(enumerate(item["item_id"] for item in order["items"]))
    positions: list[int] = []
    for item_id in wanted:
        position = next((at for at, held in free.items() if held == item_id), None)
        if position is None:
            return None
        del free[position]
        positions.append(position)
    return positions


def exchange_plan(
    order: Row, products: Row, arguments: Mapping[str, Any]
) -> tuple[list[tuple[int, Row]], int] | str:
    """Which position gets which variant, and what that costs in cents; else why not."""
    old, new = arguments["item_ids"], arguments["new_item_ids"]
    positions = pick(order, old)
    if positions is None:
        return "item not in the order"
    if len(new) != len(old):
        return "lists of different length"
    plan: list[tuple[int, Row]] = []
    cost = 0
    for position, item_id in zip(positions, new, strict=True):
        item = order["items"][position]
        variant = products[item["product_id"]]["variants"].get(item_id)
        if not variant or not variant["available"]:
            return "new item not to be had"
        plan.append((position, variant))
        cost += cents(variant["price"]) - cents(item["price"])
    return plan, cost


def new_user_address(_order: Row, user: Row, _products: Row, arguments: Mapping[str, Any]) -> None:
    user["address"] = {part: arguments[part] for part in ADDRESS}


def new_order_address(
    order: Row, _user: Row, _products: Row, arguments: Mapping[str, Any]
) -> str | None:
    if order["status"] not in ("pending", "pending (item modified)"):
        return "not pending"
    order["address"] = {part: arguments[part] for part in ADDRESS}
    return None


def new_payment(order: Row, user: Row, _products: Row, arguments: Mapping[str, Any]) -> str | None:
    if order["status"] not in ("pending", "pending (item modified)"):
        return "not pending"
    kinds = [entry["transaction_type"] for entry in order["payment_history"]]
    if kinds != ["payment"]:
        return "not exactly one payment"
    first, method = order["payment_history"][0], arguments["payment_method_id"]
    if method == first["payment_method_id"]:
        return "same payment method"
    amount = cents(first["amount"])
    book(order, "payment", amount, method)
    book(order, "refund", amount, first["payment_method_id"])
    return pay(user, method, amount) or pay(user, first["payment_method_id"], -amount)


def new_items(order: Row, user: Row, products: Row, arguments: Mapping[str, Any]) -> str | None:
    if order["status"] != "pending":
        return "not pending"
    planned = exchange_plan(order, products, arguments)
    if isinstance(planned, str):
        return planned
    plan, cost = planned
    for position, variant in plan:
        order["items"][position] |= {
            name: clone(variant)[name] for name in ("item_id", "price", "options")
        }
    method = arguments["payment_method_id"]
    book(order, "payment" if cost > 0 else "refund", abs(cost), method)
    order["status"] = "pending (item modified)"
    return pay(user, method, cost)


def cancelled(order: Row, user: Row, _products: Row, arguments: Mapping[str, Any]) -> str | None:
    if order["status"] != "pending":
        return "not pending"
    if arguments["reason"] not in {"ordered by mistake", "no longer needed"}:
        return "not an accepted reason"
    why = None
    for entry in list(order["payment_history"]):
        amount, method = cents(entry["amount"]), entry["payment_method_id"]
        book(order, "refund", amount, method)
        why = why or pay(user, method, -amount)
    order["status"] = "cancelled"
    order["cancel_reason"] = arguments["reason"]
    return why


def returned(order: Row, user: Row, _products: Row, arguments: Mapping[str, Any]) -> str | None:
    if order["status"] != "delivered":
        return "not delivered"
    method = arguments["payment_method_id"]
    if method not in user["payment_methods"]:
        return "unknown payment method"
    is_original = method == order["payment_history"][0]["payment_method_id"]
    if not is_original and "balance" not in user["payment_methods"][method]:
        return "neither the original payment method nor a gift card"
    if pick(order, arguments["item_ids"]) is None:
        return "item not in the order"
    order["status"] = "return requested"
    order["return_items"] = sorted(arguments["item_ids"])
    order["return_payment_method_id"] = method
    return None


def exchanged(order: Row, user: Row, products: Row, arguments: Mapping[str, Any]) -> str | None:
    if order["status"] != "delivered":
        return "not delivered"
    planned = exchange_plan(order, products, arguments)
    if isinstance(planned, str):
        return planned
    method = arguments["payment_method_id"]
    order["status"] = "exchange requested"
    order["exchange_items"] = sorted(arguments["item_ids"])
    order["exchange_new_items"] = sorted(arguments["new_item_ids"])
    order["exchange_payment_method_id"] = method
    order["exchange_price_difference"] = dollars(planned[1])
    return pay(clone(user), method, planned[1])  # a look at the wallet only; nothing is paid yet


WRITES: Mapping[str, Write] = {
    "cancel_pending_order": cancelled,
    "exchange_delivered_order_items": exchanged,
    "modify_pending_order_address": new_order_address,
    "modify_pending_order_items": new_items,
    "modify_pending_order_payment": new_payment,
    "modify_user_address": new_user_address,
    "return_delivered_order_items": returned,
}


def apply(database: Row, name: str, arguments: Mapping[str, Any]) -> str | None:
    """Carry one action out on the database, whole or not at all; returns why not."""
    write = WRITES.get(name)
    if write is None:
        return None
    orders, users = database["orders"], database["users"]
    order = clone(orders.get(arguments.get("order_id"), {}))
    user = clone(users.get(order.get("user_id") or arguments.get("user_id"), {}))
    if not user:
        return "unknown order or user"
    why = write(order, user, database["products"], arguments)
    if why is None:
        users[user["user_id"]] = user
        if order:
            orders[order["order_id"]] = order
    return why
