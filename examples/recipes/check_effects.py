"""Find a tool that says it is idempotent and is not, before a retry in production does.

    python examples/recipes/check_effects.py

`refund` looks whether a refund was made before it makes one, which holds until two deliveries of one call meet, or a
process dies between the two lines. `refund_by_key` leaves that to the bank, under the key of the call.
"""

from __future__ import annotations

import asyncio

import remit
from remit import Call
from remit.testing import EffectCase, FalseEffect, check_effects


class Bank:
    """Something downstream that takes its time."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self._answers: dict[str, str] = {}

    def close_the_day(self) -> None:
        self.paid.clear()
        self._answers.clear()

    async def pay(self, order_id: str, idempotency_key: str = "") -> str:
        if idempotency_key not in self._answers:
            self.paid.append(order_id)
            if idempotency_key:
                self._answers[idempotency_key] = "paid"
        await asyncio.sleep(0)
        return "paid"


BANK = Bank()


@remit.tool(effect="idempotent")
async def refund(order_id: str) -> str:
    """Refund an order."""
    if order_id not in BANK.paid:
        await asyncio.sleep(0)  # whatever else there is to look up
        await BANK.pay(order_id)
    return "paid"


@remit.tool(effect="idempotent")
async def refund_by_key(order_id: str, call: Call) -> str:
    """Refund an order."""
    return await BANK.pay(order_id, idempotency_key=call.key)


CASE = EffectCase({"order_id": "1042"}, world=lambda: BANK.paid, reset=BANK.close_the_day)

if __name__ == "__main__":
    for tool in (refund, refund_by_key):
        try:
            print(check_effects(tool, [CASE]))
        except FalseEffect as false:
            print(false)
