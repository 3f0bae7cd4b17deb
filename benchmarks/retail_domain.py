"""The rules of a retail shop over an in-memory database.

Synchronous, without tools, models or a clock: every action either happens whole or raises
`Refused`. The data (tau2-bench, retail) is not part of this repository. Which rules hold follows
from its policy text and from how its tools are described; the wording of the errors is our own.

Above it: `retail_desk.py` makes tools of it, `retail.py` plays tasks through the loop. Beside it:
`retail_reference.py`, a second application of the same rules that shares nothing with this one.
"""

from __future__ import annotations

import ast
import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from remit import ToolError

__all__ = ["REFUSAL", "Json", "Refused", "Shop"]

Json: TypeAlias = dict[str, Any]

REFUSAL = "the shop refused: "
"""How the text of every refusal begins."""

LONGEST_EXPRESSION = 200
"""Characters that `calculate` reads."""


class Refused(ToolError):
    """A rule of the shop forbids it; nothing was changed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{REFUSAL}{why}")


class Shop:
    """The rules of the shop over one database, which it changes in place.

    Shape: `database` holds `users`, `orders` and `products`, each by id. What is returned is a
    copy. Units: amounts are dollars, rounded to cents after every sum.
    """

    def __init__(self, database: Json) -> None:
        self.database = database
        self._product_of = {
            item_id: product_id
            for product_id, product in database["products"].items()
            for item_id in product["variants"]
        }
        self.actions: Mapping[str, Callable[..., object]] = {
            action.__name__: action
            for action in (
                self.calculate,
                self.cancel_pending_order,
                self.exchange_delivered_order_items,
                self.find_user_id_by_email,
                self.find_user_id_by_name_zip,
                self.get_item_details,
                self.get_order_details,
                self.get_product_details,
                self.get_user_details,
                self.list_all_product_types,
                self.modify_pending_order_address,
                self.modify_pending_order_items,
                self.modify_pending_order_payment,
                self.modify_user_address,
                self.return_delivered_order_items,
                self.transfer_to_human_agents,
            )
        }
        """What can be done, by the published name; each takes its arguments by name."""

    def calculate(self, expression: str) -> str:
        """The value of an arithmetic expression, to two decimals."""
        if len(expression) > LONGEST_EXPRESSION or set(expression) - set("0123456789+-*/(). "):
            raise Refused("an expression holds numbers, + - * /, parentheses and spaces only")
        try:
            value = _value_of(ast.parse(expression.strip(), mode="eval").body)
        except SyntaxError:
            raise Refused(f"{expression!r} is no arithmetic expression") from None
        except ZeroDivisionError:
            raise Refused("division by zero") from None
        if not math.isfinite(value):
            raise Refused("the value is too large")
        return str(round(value, 2))

    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the customer over. Changes nothing in the database."""
        return f"A human agent takes over with: {summary}"

    def find_user_id_by_email(self, email: str) -> str:
        """The id of the user with this address, whatever its case."""
        return self._find_user(lambda user: user["email"].lower() == email.lower())

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """The id of the user of this name, whatever its case, and exactly this zip code."""

        def matches(user: Json) -> bool:
            name = user["name"]
            return (
                name["first_name"].lower() == first_name.lower()
                and name["last_name"].lower() == last_name.lower()
                and user["address"]["zip"] == zip
            )

        return self._find_user(matches)

    def get_user_details(self, user_id: str) -> Json:
        return copy.deepcopy(self._user(user_id))

    def get_order_details(self, order_id: str) -> Json:
        return copy.deepcopy(self._order(order_id))

    def get_product_details(self, product_id: str) -> Json:
        product = self.database["products"].get(product_id)
        if product is None:
            raise Refused(f"there is no product {product_id}")
        return copy.deepcopy(product)

    def get_item_details(self, item_id: str) -> Json:
        return copy.deepcopy(self._variant(self._product_of.get(item_id, ""), item_id))

    def list_all_product_types(self) -> dict[str, str]:
        """Product ids by name, names in alphabetical order."""
        products = self.database["products"].values()
        return dict(sorted((product["name"], product["product_id"]) for product in products))

    def modify_user_address(self, user_id: str, **address: str) -> Json:
        user = self._user(user_id)
        user["address"] = address
        return copy.deepcopy(user)

    def modify_pending_order_address(self, order_id: str, **address: str) -> Json:
        """Allowed also after the items of the order were modified."""
        order = self._open_order(order_id)
        order["address"] = address
        return copy.deepcopy(order)

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Json:
        """Pay the whole order with another method, and refund the first one."""
        order = self._open_order(order_id)
        history = order["payment_history"]
        if len(history) != 1 or history[0]["transaction_type"] != "payment":
            raise Refused(f"order {order_id} needs exactly one payment to change it")
        old_id, amount = history[0]["payment_method_id"], history[0]["amount"]
        if old_id == payment_method_id:
            raise Refused(f"order {order_id} is paid with {payment_method_id} already")
        new = self._payment_method(order, payment_method_id)
        old = self._payment_method(order, old_id)
        _require_balance(new, amount)
        history += [_entry("payment", amount, new), _entry("refund", amount, old)]
        _credit(new, -amount)
        _credit(old, amount)
        return copy.deepcopy(order)

    def modify_pending_order_items(
        self,
        order_id: str,
        item_ids: Sequence[str],
        new_item_ids: Sequence[str],
        payment_method_id: str,
    ) -> Json:
        """Put other variants in the place of items; possible once per order."""
        order = self._order_in(order_id, "pending")
        swaps = self._swaps(order, item_ids, new_item_ids)
        difference = _difference(swaps)
        method = self._payment_method(order, payment_method_id)
        _require_balance(method, difference)
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(_entry(kind, abs(difference), method))
        _credit(method, -difference)
        for item, variant in swaps:
            item.update(
                item_id=variant["item_id"],
                price=variant["price"],
                options=copy.deepcopy(variant["options"]),
            )
        order["status"] = "pending (item modified)"
        return copy.deepcopy(order)

    def cancel_pending_order(self, order_id: str, reason: str) -> Json:
        """Cancel it and refund every payment, to a gift card at once."""
        order = self._order_in(order_id, "pending")
        if reason not in ("no longer needed", "ordered by mistake"):
            raise Refused(f"{reason!r} is no accepted reason")
        methods = [
            (payment["amount"], self._payment_method(order, payment["payment_method_id"]))
            for payment in order["payment_history"]
        ]
        for amount, method in methods:
            order["payment_history"].append(_entry("refund", amount, method))
            _credit(method, amount)
        order.update(status="cancelled", cancel_reason=reason)
        return copy.deepcopy(order)

    def return_delivered_order_items(
        self, order_id: str, item_ids: Sequence[str], payment_method_id: str
    ) -> Json:
        """Ask for items to be taken back, refunded as they were paid or to a gift card."""
        order = self._order_in(order_id, "delivered")
        method = self._payment_method(order, payment_method_id)
        paid_with = order["payment_history"][0]["payment_method_id"]
        if method["source"] != "gift_card" and payment_method_id != paid_with:
            raise Refused(f"the refund goes to {paid_with} or to a gift card")
        _require_items(order, item_ids)
        order.update(
            status="return requested",
            return_items=sorted(item_ids),
            return_payment_method_id=payment_method_id,
        )
        return copy.deepcopy(order)

    def exchange_delivered_order_items(
        self,
        order_id: str,
        item_ids: Sequence[str],
        new_item_ids: Sequence[str],
        payment_method_id: str,
    ) -> Json:
        """Ask for an exchange; money and items move only when the parcel is back."""
        order = self._order_in(order_id, "delivered")
        difference = _difference(self._swaps(order, item_ids, new_item_ids))
        _require_balance(self._payment_method(order, payment_method_id), difference)
        order.update(
            status="exchange requested",
            exchange_items=sorted(item_ids),
            exchange_new_items=sorted(new_item_ids),
            exchange_payment_method_id=payment_method_id,
            exchange_price_difference=difference,
        )
        return copy.deepcopy(order)

    def _find_user(self, matches: Callable[[Json], bool]) -> str:
        for user_id, user in self.database["users"].items():
            if matches(user):
                return user_id
        raise Refused("no user fits")

    def _user(self, user_id: str) -> Json:
        user = self.database["users"].get(user_id)
        if user is None:
            raise Refused(f"there is no user {user_id}")
        return user

    def _order(self, order_id: str) -> Json:
        order = self.database["orders"].get(order_id)
        if order is None:
            raise Refused(f"there is no order {order_id}; an order id begins with '#'")
        return order

    def _order_in(self, order_id: str, status: str) -> Json:
        order = self._order(order_id)
        if order["status"] != status:
            raise Refused(f"order {order_id} is {order['status']}, not {status}")
        return order

    def _open_order(self, order_id: str) -> Json:
        """A pending order, its items modified or not."""
        order = self._order(order_id)
        if not order["status"].startswith("pending"):
            raise Refused(f"order {order_id} is {order['status']}, not pending")
        return order

    def _variant(self, product_id: str, item_id: str) -> Json:
        product = self.database["products"].get(product_id)
        if product is None or item_id not in product["variants"]:
            raise Refused(f"there is no such item {item_id}")
        return product["variants"][item_id]

    def _payment_method(self, order: Json, payment_method_id: str) -> Json:
        method = self._user(order["user_id"])["payment_methods"].get(payment_method_id)
        if method is None:
            raise Refused(f"user {order['user_id']} has no payment method {payment_method_id}")
        return method

    def _swaps(
        self, order: Json, item_ids: Sequence[str], new_item_ids: Sequence[str]
    ) -> list[tuple[Json, Json]]:
        """Each item of the order with the variant to take its place; checked, nothing changed."""
        _require_items(order, item_ids)
        if len(item_ids) != len(new_item_ids):
            raise Refused("each item needs exactly one new item")
        left = list(order["items"])
        swaps: list[tuple[Json, Json]] = []
        for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
            item = left.pop([item["item_id"] for item in left].index(item_id))
            variant = self._variant(item["product_id"], new_item_id)
            if not variant["available"]:
                raise Refused(f"item {new_item_id} is not available")
            swaps.append((item, variant))
        return swaps


def _value_of(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value_of(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value_of(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value_of(left) + _value_of(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value_of(left) - _value_of(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value_of(left) * _value_of(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _value_of(left) / _value_of(right)
        case _:
            raise Refused("only + - * / are calculated")


def _require_items(order: Json, item_ids: Sequence[str]) -> None:
    held = Counter(item["item_id"] for item in order["items"])
    if missing := Counter(item_ids) - held:
        raise Refused(f"order {order['order_id']} does not hold {', '.join(missing.elements())}")


def _require_balance(method: Json, amount: float) -> None:
    if method["source"] == "gift_card" and method["balance"] < amount:
        raise Refused(f"{method['id']} does not cover {amount:.2f}")


def _difference(swaps: Sequence[tuple[Json, Json]]) -> float:
    """What the new items cost beyond the old ones, in dollars; negative where they cost less."""
    return round(sum(variant["price"] - item["price"] for item, variant in swaps), 2)


def _credit(method: Json, amount: float) -> None:
    """Move money on a gift card; other methods settle elsewhere."""
    if method["source"] == "gift_card":
        method["balance"] = round(method["balance"] + amount, 2)


def _entry(kind: Literal["payment", "refund"], amount: float, method: Json) -> Json:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": method["id"]}
