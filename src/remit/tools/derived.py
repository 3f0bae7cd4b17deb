"""Copies of tools that differ in one thing: wrapped, under another name, available under a condition.

A copy keeps everything else: schema, effect, limits, summary, reconcile function, resources. What is made
here stands *inside* the gate (C8): a wrapper is entered where the function would have been, after validation,
policy, approval, budget and record, and can only do less than that. The way down through wrappers is
`dispatch/wrapping.py`'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from remit.errors import ConfigurationError
from remit.tools.call import Call
from remit.tools.functions import is_async, unwrapped
from remit.tools.options import Effect
from remit.tools.tool import Tool
from remit.tools.toolset import Tools, flattened

__all__ = ["Invocation", "Proceed", "ToolWrapper", "filter", "prefix", "wrap_tools"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One entry of a call, as a wrapper sees it."""

    tool: str
    """Its name, as the model knows it."""
    effect: Effect
    arguments: dict[str, Any] = field(repr=False)
    """A copy of what the model gave, secrets included. To change it changes nothing for the function."""
    preview: str
    """The same for logs: one line of at most 200 characters, with secrets masked."""
    call: Call[Any]


Proceed: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs what is beneath, and gives what it returned; blocking functions run in a worker."""

ToolWrapper: TypeAlias = Callable[[Invocation, Proceed], Awaitable[Any]]


def wrap_tools(fn: ToolWrapper) -> Callable[[Tools], tuple[Tool[..., Any], ...]]:
    """Decorate an async function that stands between the gate and the functions of tools.

        @remit.wrap_tools
        async def logged(invocation: Invocation, proceed: Proceed) -> Any:
            print(invocation.tool, invocation.preview)
            return await proceed()

        tools = logged([look_up, cancel])

    What it returns is the result, and what it raises the error, of the call; without `proceed()` the function
    is not run. Of `outer(inner(tools))` the outer one is entered first. A `read` or `idempotent` function may be run
    again, under the same key, once it has ended; that of a `confirm` tool runs once.
    Errors: `ConfigurationError` for what is no `async def`, and for a tool that is executed elsewhere: nothing here
    can stand around it.
    """
    if not callable(fn) or not is_async(fn) or inspect.isasyncgenfunction(unwrapped(fn)):
        raise ConfigurationError(
            f"wrap_tools decorates an `async def` of (invocation, proceed); "
            f"{getattr(fn, '__qualname__', repr(fn))} is none"
        )

    def wrapped(tools: Tools) -> tuple[Tool[..., Any], ...]:
        return tuple(tool.wrapped(fn) for tool in flattened(tools))

    return wrapped


def prefix(text: str, tools: Tools) -> tuple[Tool[..., Any], ...]:
    """The tools under longer names, so that two sets of them can stand side by side.

    Errors: `ConfigurationError` for a name that no model takes: letters, digits, `_` and `-`, 64 at most.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError('prefix takes the text first: remit.prefix("shop_", tools)')
    return tuple(tool.renamed(f"{text}{tool.name}") for tool in flattened(tools))


def filter(  # noqa: A001 - what it is called everywhere
    predicate: Callable[[Tool[..., Any]], bool], tools: Tools
) -> tuple[Tool[..., Any], ...]:
    """The tools for which the predicate is True: now, and again whenever one is called.

    A call of a tool for which it is not True any more is answered "not available", before anybody is asked to approve
    it. The predicate is a quick `def`; in a call one that raises, or returns no bool, counts as False.
    Errors: `ConfigurationError` for a predicate that is none; what it raises here is raised.
    """
    if not callable(predicate) or is_async(predicate):
        raise ConfigurationError(
            "filter takes a `def` of one tool that returns True or False first: "
            "remit.filter(lambda tool: ..., tools)"
        )
    return tuple(
        tool.available_if(partial(predicate, tool))
        for tool in flattened(tools)
        if _checked(predicate(tool), tool)
    )


def _checked(verdict: object, tool: Tool[..., Any]) -> bool:
    if not isinstance(verdict, bool):
        raise ConfigurationError(
            f"the predicate of a filter returned {type(verdict).__name__} for tool {tool.name!r}: it "
            "returns True or False"
        )
    return verdict
