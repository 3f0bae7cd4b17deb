"""Answer equal calls of a read from a cache, across runs, instead of entering its function again.

    python examples/recipes/cache_reads.py

Within one run `@remit.tool(deterministic=True)` does that. A cache across runs is yours to bound and to expire. A call
that is answered from it is not counted and costs no price; an effect is never answered from one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import remit
from remit import Effect, Invocation, Limits, Proceed, Remit
from remit.canonical import canonical
from remit.testing import ScriptedModel

RESULTS: dict[str, Any] = {}


@remit.wrap_tools
async def cached(invocation: Invocation, proceed: Proceed) -> Any:
    """Enter the function of a read once for the same arguments."""
    if invocation.effect is not Effect.READ:
        return await proceed()
    key = f"{invocation.tool} {canonical(invocation.arguments)}"
    if key not in RESULTS:
        RESULTS[key] = await proceed()
    return RESULTS[key]


@remit.tool(effect="read", usd="0.01")
async def quote(symbol: str) -> str:
    """What a share costs. A query costs a cent."""
    print(f"asking the exchange about {symbol}")
    return f"{symbol}: 42.00"


if __name__ == "__main__":
    model = ScriptedModel([[("quote", {"symbol": "ACME"})], "It stands at 42."] * 2)
    limits = Limits(steps=3, tokens=5_000, seconds=10)
    desk = Remit(name="desk", model=model, limits=limits, tools=cached([quote]))
    for number in range(2):
        print(asyncio.run(desk.run("What is ACME at?", run_id=f"r-{number}")))
