"""Log every call and every request, and nothing that is secret.

    python examples/recipes/log_calls.py

A wrapper sees what happens; a logger of your own takes it down. `invocation.preview` is one line, bounded, with
parameters that are marked `Secret` masked.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any

import remit
from remit import AskModel, Chunk, Invocation, Limits, ModelRequest, Proceed, Remit, Reply, Secret
from remit.testing import ScriptedModel

LOG = logging.getLogger("desk")


@remit.wrap_tools
async def logged(invocation: Invocation, proceed: Proceed) -> Any:
    """A line before the call, and one behind it."""
    LOG.info("%s %s key=%s", invocation.tool, invocation.preview, invocation.call.key)
    try:
        return await proceed()
    except Exception as error:
        LOG.warning("%s failed: %s", invocation.tool, type(error).__name__)
        raise


@remit.wrap_model
async def measured(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
    """A line for every reply."""
    async for chunk in ask(request):
        if isinstance(chunk, Reply) and chunk.usage is not None:
            LOG.info("reply %s, %s tokens", chunk.stop_reason, chunk.usage.total)
        yield chunk


@remit.tool(effect="read")
async def sign_in(user: str, password: Annotated[str, Secret]) -> str:
    """Sign a user in."""
    return f"{user} is signed in with {len(password)} characters"


MODEL = ScriptedModel([[("sign_in", {"user": "ada", "password": "hunter2"})], "You are in."])
LIMITS = Limits(steps=3, tokens=5_000, seconds=10)

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level="INFO")
    desk = Remit(name="desk", model=measured(MODEL), limits=LIMITS, tools=logged([sign_in]))
    print(asyncio.run(desk.run("Let me in.", run_id="r-1")))
