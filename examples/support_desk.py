"""A support desk in one file: parallel calls, a failure, an approval, and an account at the end.

    python examples/support_desk.py

No key and no network: the model is scripted, it plays a fixed part. The loop, the tools, the
database and the limits are real. On a terminal you are asked whether the refund may be paid.
"""

from __future__ import annotations

import asyncio
import sqlite3
from decimal import Decimal
from typing import Any

import remit
from remit import Call, ToolError

QUESTION = "Where is order 1042? If it is late, please refund the shipping."

SHOP = """
create table orders (id text primary key, status text, promised text, expected text);
create table payments (order_id text, what text, amount text);
create table refunds (key text primary key, order_id text, amount text);
insert into orders values ('1042', 'in transit', 'Monday', 'Thursday');
insert into payments values ('1042', 'goods', '59.00'), ('1042', 'shipping', '4.90');
"""


class Shop:
    """A small shop: a database made here, and a carrier that does not always answer."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.executescript(SHOP)
        self.carrier_is_down = True

    def rows(self, query: str, *values: str) -> list[dict[str, Any]]:
        cursor = self.database.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


@remit.tool(effect="read", resource="order:{order_id}")
async def get_order_status(order_id: str, call: Call[Shop]) -> dict[str, Any]:
    """Where an order is. Not for payments: use get_payment_history."""
    await asyncio.sleep(0.6)  # the carrier is slow
    if call.deps.carrier_is_down:
        call.deps.carrier_is_down = False
        raise ToolError("the carrier did not answer; try again")
    return call.deps.rows("select * from orders where id = ?", order_id)[0]


@remit.tool(effect="read", resource="order:{order_id}")
async def get_payment_history(order_id: str, call: Call[Shop]) -> list[dict[str, Any]]:
    """What was paid for an order, item by item."""
    await asyncio.sleep(0.2)
    return call.deps.rows("select what, amount from payments where order_id = ?", order_id)


@remit.tool(effect="confirm", resource="order:{order_id}")
async def refund(order_id: str, amount: Decimal, call: Call[Shop]) -> dict[str, str]:
    """Refund part of an order. A person approves it first."""
    shop = call.deps
    with shop.database:  # the key makes a second arrival harmless
        shop.database.execute(
            "insert into refunds values (?, ?, ?) on conflict do nothing",
            (call.key, order_id, str(amount)),
        )
    return {"refunded": str(amount)}


@refund.summary
def _(order_id: str, amount: Decimal) -> str:
    return f"Refund {amount} EUR on order {order_id}"
