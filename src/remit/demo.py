"""A support desk to try remit on: a shop, its tools and a remit, without a key or a network.

    remit demo
    remit run "Where is order 1042?" --remit remit.demo:support

The model is scripted (`models/demo.py`); the tools, the loop and the limits are real. `effect` says what
running a tool twice would do; `Call` is filled in by the loop.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Literal

import remit
from remit import Call, Limits, Remit

__all__ = ["QUESTION", "Shop", "desk", "support"]

QUESTION = "Where is order 1042? If it is late, please tell me why, and refund the shipping."

_DEPOTS = ("Porto", "Vigo", "Bilbao", "Bordeaux", "Lyon", "Basel")
_LOG_HOURS = 720


def _carrier_log(order_id: str) -> str:
    """A month of scans, one an hour, of which a single line says why the parcel is late."""
    lines = [
        f"{1 + hour // 24:02}.11. {hour % 24:02}:00  {order_id}  {_DEPOTS[hour // 120]:<9} scanned, bay {hour % 17}"
        for hour in range(_LOG_HOURS)
    ]
    lines[389] = (
        f"17.11. 05:00  {order_id}  Bordeaux  held: the label was torn, a new one is being printed"
    )
    return "\n".join([*lines, f"{len(lines)} scans, next stop: the customer"])


class Shop:
    """One order in a dictionary, and a carrier that does not answer the first time."""

    def __init__(self) -> None:
        self.orders = {"1042": {"status": "in transit", "promised": "Monday", "due": "Thursday"}}
        self.payments = {"1042": [("goods", "59.00"), ("shipping", "4.90")]}
        self.refunds: dict[str, Decimal] = {}
        """By the key of the call: the same call can never pay twice."""
        self._carrier_answers = False

    @remit.tool(effect="read", resource="order:{order_id}")
    async def get_order_status(self, order_id: str) -> dict[str, str]:
        """Where an order is. Not for payments: use get_payment_history."""
        await asyncio.sleep(0.6)  # the carrier is slow
        if not self._carrier_answers:
            self._carrier_answers = True
            raise ConnectionError("the carrier did not answer")
        return self.orders[order_id]

    @remit.tool(effect="read", resource="order:{order_id}")
    async def get_payment_history(self, order_id: str) -> list[tuple[str, str]]:
        """What was paid for an order, item by item."""
        await asyncio.sleep(0.2)
        return self.payments[order_id]

    @remit.tool(effect="read", resource="order:{order_id}")
    async def get_carrier_log(self, order_id: str) -> str:
        """Every scan of a parcel on its way. It is long."""
        return _carrier_log(order_id)

    @remit.tool(effect="read")
    async def choose_refund_way(self, order_id: str, call: Call) -> str:
        """Ask whoever is at the desk how this customer is to be refunded."""
        return call.ask(Literal["card", "voucher"], f"How is order {order_id} to be refunded?")

    @remit.tool(effect="confirm", resource="order:{order_id}")
    async def refund(
        self, order_id: str, amount: Decimal, way: Literal["card", "voucher"], call: Call
    ) -> dict[str, str]:
        """Refund part of an order. A person approves it first."""
        if order_id not in self.orders:
            raise remit.ToolError(f"there is no order {order_id}")
        self.refunds.setdefault(call.key, amount)
        return {"refunded": str(amount), "by": way}

    @refund.summary
    def _(self, order_id: str, amount: Decimal, way: str) -> str:
        return f"Refund {amount} EUR on order {order_id} by {way}"


def desk(shop: Shop) -> Remit[None]:
    """Who looks after the customers of a shop."""
    return Remit(
        name="support",
        model="demo:support",
        instructions="You help the customers of a small shop.",
        tools=[
            shop.get_order_status,
            shop.get_payment_history,
            shop.get_carrier_log,
            shop.choose_refund_way,
            shop.refund,
        ],
        limits=Limits(steps=12, tokens=60_000, seconds=60, usd=0.25),
    )


support = desk(Shop())
