"""Wrappers and lists of tools as users write them, read by a strict type checker and never run.

Where a line is wrong, its comment names the rule that must catch it; `test_typing.py` has it checked.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, assert_type

import remit
from remit import (
    AskModel,
    Chunk,
    Effect,
    Invocation,
    Limits,
    Model,
    ModelRequest,
    Proceed,
    Remit,
    Reply,
    TextDelta,
    Tool,
)
from remit.testing import ScriptedModel

LIMITS = Limits(steps=3, tokens=1_000, seconds=5)


@remit.tool(effect="read")
def look(order_id: str) -> str:
    """Look at an order."""
    return order_id


@remit.tool(effect="confirm")
async def pay(amount: int) -> bool:
    """Pay."""
    return amount > 0


# --- models --------------------------------------------------------------------------------------


@remit.wrap_model
async def logged(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
    assert_type(request.max_output, int)
    async for chunk in ask(request):
        if isinstance(chunk, TextDelta):
            assert_type(chunk.text, str)
        yield chunk


@remit.wrap_model
async def as_a_generator(request: ModelRequest, ask: AskModel) -> AsyncGenerator[Chunk]:
    async for chunk in ask(request):
        yield chunk


class Limiter:
    """State of a wrapper lives in an object."""

    async def __call__(self, request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for chunk in ask(request):
            yield chunk


async def named(name: str, request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
    async for chunk in ask(request):
        yield TextDelta(name) if isinstance(chunk, TextDelta) else chunk


model = logged(as_a_generator(ScriptedModel(["fine"])))
assert_type(model, Model)
limited = remit.wrap_model(Limiter())(model)
assert_type(remit.wrap_model(functools.partial(named, "x"))(limited), Model)


@remit.wrap_model  # pyright: ignore[reportArgumentType]
async def no_generator(request: ModelRequest, ask: AskModel) -> Reply | None:
    return None


@remit.wrap_model  # pyright: ignore[reportArgumentType]
async def says_nothing_of_the_kind(request: ModelRequest, ask: AskModel) -> AsyncIterator[int]:
    yield 1


logged(look)  # pyright: ignore[reportArgumentType]


# --- tools ---------------------------------------------------------------------------------------


@remit.wrap_tools
async def timed(invocation: Invocation, proceed: Proceed) -> Any:
    assert_type(invocation.tool, str)
    assert_type(invocation.effect, Effect)
    assert_type(invocation.call.key, str)
    invocation.tool = "other"  # pyright: ignore[reportAttributeAccessIssue]
    return await proceed()


@remit.wrap_tools
async def typed_by_itself(invocation: Invocation, proceed: Proceed) -> str:
    return str(await proceed())


@remit.wrap_tools  # pyright: ignore[reportArgumentType]
def not_async(invocation: Invocation, proceed: Proceed) -> str:
    return invocation.tool


@remit.wrap_tools  # pyright: ignore[reportArgumentType]
async def wants_more(invocation: Invocation, proceed: Proceed, more: int) -> Any:
    return await proceed()


tools = timed(typed_by_itself([look, [pay]]))
assert_type(tools, tuple[Tool[..., Any], ...])
timed(look)  # pyright: ignore[reportArgumentType]


def is_read(tool: Tool[..., Any]) -> bool:
    return tool.effect is Effect.READ


assert_type(remit.filter(is_read, tools), tuple[Tool[..., Any], ...])
remit.filter(tools, is_read)  # pyright: ignore[reportArgumentType]


remit.filter(lambda tool: tool.name == "look", tools)
remit.prefix([look], "a_")  # pyright: ignore[reportArgumentType]

desk = Remit(
    name="desk",
    model=model,
    limits=LIMITS,
    tools=[look, remit.prefix("my_", [look, pay]), [[remit.filter(is_read, tools)]]],
)
assert_type(desk.tools, tuple[Tool[..., Any], ...])
desk.replace(tools=[look, tools])
Remit(name="desk", model=model, limits=LIMITS, tools=["look"])  # pyright: ignore[reportArgumentType]
