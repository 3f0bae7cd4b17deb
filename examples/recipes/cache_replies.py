"""Answer equal requests from a cache, across runs, instead of asking the model again.

    python examples/recipes/cache_replies.py

Such a cache is yours to bound and to expire. An answer from it reports that it used nothing, and so costs nothing;
what it asks for still goes through the gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

import remit
from remit import AskModel, Chunk, Limits, ModelRequest, Remit, Reply, ToolResult, Usage
from remit.canonical import canonical
from remit.testing import ScriptedModel

REPLIES: dict[str, Reply] = {}


def asked(request: ModelRequest) -> str:
    """What the model sees: the keys of calls are not sent, and differ from run to run."""
    sent = [
        msgspec.structs.replace(block, key=None) if isinstance(block, ToolResult) else block
        for message in request.transcript
        for block in message.content
    ]
    return canonical([request.instructions, [block.to_json() for block in sent]])


@remit.wrap_model
async def cached(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
    """Ask once for every history."""
    key = asked(request)
    if key in REPLIES:
        yield msgspec.structs.replace(REPLIES[key], usage=Usage(), usd=None)
        return
    async for chunk in ask(request):
        if isinstance(chunk, Reply):
            REPLIES[key] = chunk
        yield chunk


if __name__ == "__main__":
    model = cached(ScriptedModel(["It stands at 42."]))
    desk = Remit(name="desk", model=model, limits=Limits(steps=3, tokens=5_000, seconds=10))
    for number in range(2):
        print(asyncio.run(desk.run("What is ACME at?", run_id=f"r-{number}")))
