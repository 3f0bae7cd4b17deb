"""Test an agent over a real socket, with a provider that is busy, breaks off and asks for two things at once.

    python examples/recipes/play_a_provider.py

`remit.testing.serve` plays a script as a provider writes it, refuses requests that break the protocol, and is
gone afterwards. `MemoryTransport` does the same without a socket, on virtual time.
"""

import asyncio

import remit
from remit import Limits, Remit
from remit.testing.serve import Cut, Refused, serve

LIMITS = Limits(steps=8, tokens=100_000, seconds=60)
PACKED: list[int] = []


@remit.tool(effect="read")
async def look_up(order: int) -> str:
    """Look up one order."""
    return f"order {order} is paid"


@remit.tool(effect="idempotent", resource="parcel:{order}")
async def pack(order: int) -> str:
    """Pack one order."""
    PACKED.append(order)
    return f"order {order} is packed"


SCRIPT = [
    [("look_up", {"order": 7}), ("pack", {"order": 7})],  # two calls in one turn
    Refused("overloaded", retry_after=0.1),  # the provider's own status, body and words
    Cut("It is pack", at="end"),  # the connection breaks before the reply is over
    "It is packed.",
]


async def main() -> None:
    async with serve(SCRIPT, "anthropic") as server:  # or "openai", "openai-chat"
        desk = Remit(name="desk", model=server.model(), tools=[look_up, pack], limits=LIMITS)
        outcome = await desk.run("Pack order 7.")
    print(f"{outcome.reason}: {outcome.text}")
    print(f"{len(server.requests)} requests, {len(server.refusals)} of them broke the protocol")
    print(f"packed: {PACKED}")  # once, whatever was tried again


if __name__ == "__main__":
    asyncio.run(main())
