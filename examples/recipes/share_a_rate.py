"""One limit of rate for all runs of a process: first come, first served.

    python examples/recipes/share_a_rate.py

The limiter is one object around one model, whoever asks it. Whoever is cancelled, or runs out of time, while it waits
leaves the line and uses nothing up: waiting counts against the run's own seconds, as everything does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import remit
from remit import AskModel, Chunk, Limits, ModelRequest, Remit
from remit.testing import ScriptedModel


class Rate:
    """Begins at most one request in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._line = asyncio.Lock()  # it wakes those who wait in the order in which they came
        self._next = 0.0

    async def __call__(self, request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        loop = asyncio.get_running_loop()
        async with self._line:
            await asyncio.sleep(self._next - loop.time())
            self._next = loop.time() + self._seconds
        async for chunk in ask(request):  # outside of the line: requests may overlap
            yield chunk


async def main() -> None:
    """Five runs, and a rate for all of them together."""
    model = remit.wrap_model(Rate(seconds=0.1))(ScriptedModel(["Done."] * 5))
    limits = Limits(steps=2, tokens=10_000, seconds=10)
    desk = Remit(name="desk", model=model, limits=limits)
    began = asyncio.get_running_loop().time()

    async def run(number: int) -> None:
        outcome = await desk.run(f"Task {number}.")
        seconds = asyncio.get_running_loop().time() - began
        print(f"task {number}: {outcome.reason} after {seconds:.1f} s")

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(run(number))


if __name__ == "__main__":
    asyncio.run(main())
