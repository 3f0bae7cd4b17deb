"""Run an agent while its calls are doubled, late, overtaken and unanswered, and look at what it did to the world.

    python examples/recipes/storm.py

The same seed is the same storm. Time is virtual: timeouts of a minute pass at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import remit
from remit import Call, Limits, Remit, Transcript
from remit.testing import ScriptedModel, chaos, run_virtual

SHIPPED: dict[str, str] = {}
ORDERS = ("1042", "1043")


@remit.tool(effect="idempotent", resource="order:{order_id}")
async def ship(order_id: str, call: Call) -> str:
    """Ship an order."""
    SHIPPED.setdefault(call.key, order_id)
    return f"{order_id} is shipped"


def unanswered(transcript: Transcript) -> Any:
    """Asks again where no answer came: such a repeat has the key of the first call."""
    said = [result.text for message in transcript for result in message.tool_results]
    left = [order_id for order_id in ORDERS if f"{order_id} is shipped" not in said]
    return [("ship", {"order_id": order_id}) for order_id in left] or "Both are on their way."


if __name__ == "__main__":
    for seed in range(20):
        SHIPPED.clear()
        storm = chaos(ship, seed=seed)
        desk = Remit(
            name="desk",
            model=ScriptedModel([unanswered] * 10),
            limits=Limits(steps=10, tokens=100_000, seconds=3_600),
            tools=[storm],
        )
        outcome = run_virtual(desk.run("Ship both orders."))
        if Counter(SHIPPED.values()) != Counter(ORDERS):
            raise AssertionError(storm)
        print(f"{outcome.reason}: {storm}")
