"""A stock room in one file: two tools, a remit, a run.

    python examples/stock.py

The same tools on the command line, with a script of replies in place of a model:

    remit run "Do we have enough lamps?" --tools examples/stock.py --model scripted:examples/stock.json
"""

from __future__ import annotations

from pathlib import Path

import remit
from remit import Call, Limits, Remit

SHELVES = {"lamps": 3, "chairs": 40}
ORDERS: dict[str, tuple[str, int]] = {}
"""By the key of the call: however often a call is run, it orders once."""


@remit.tool(effect="read")
def count(item: str) -> int:
    """How many pieces of an item are in stock."""
    if item not in SHELVES:
        raise remit.ToolError(f"we keep no {item}; we keep {', '.join(SHELVES)}")
    return SHELVES[item]


@remit.tool(effect="idempotent", resource="item:{item}")
def order(item: str, pieces: int, call: Call) -> str:
    """Order more pieces of an item."""
    ORDERS[call.key] = (item, pieces)
    return f"{pieces} {item} are on their way"


def main() -> None:
    """One question, one run."""
    keeper = Remit(
        name="keeper",
        model=f"scripted:{Path(__file__).with_suffix('.json')}",
        instructions="You keep the stock of a furniture shop. Below ten pieces, order twenty.",
        tools=[count, order],
        limits=Limits(steps=6, tokens=20_000, seconds=30),
    )
    outcome = keeper.run_sync("Do we have enough lamps?")
    spent = outcome.spend.tree
    print(outcome.text)
    print(f"{outcome.reason}: {spent.steps} steps, {spent.calls} calls, {spent.tokens} tokens")


if __name__ == "__main__":
    main()
