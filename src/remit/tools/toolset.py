"""Where tools come from.

A toolset is anything that yields tools: a list, a server, a filter or a prefix around another one.
`resolve` makes of what it yielded the table by which calls are looked up. Not here: choosing among
many tools, which is a catalogue's work.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from remit.errors import ConfigurationError
from remit.tools.tool import Tool

__all__ = ["StaticTools", "Tools", "Toolset", "flattened", "resolve"]

Tools: TypeAlias = "Iterable[Tool[..., Any] | Tools]"
"""Tools, and lists of tools, and so on."""


class Toolset(Protocol):
    """Anything that yields tools."""

    async def tools(self) -> Sequence[Tool[..., Any]]:
        """The tools as they are now, in a stable order."""
        ...


@dataclass(frozen=True, slots=True)
class StaticTools:
    """Tools that are known from the start."""

    items: tuple[Tool[..., Any], ...]

    async def tools(self) -> Sequence[Tool[..., Any]]:
        return self.items


def resolve(items: Iterable[object]) -> dict[str, Tool[..., Any]]:
    """The tools by name, in the order given.

    Errors: `ConfigurationError` for two tools of one name and for what is no tool.
    """
    table: dict[str, Tool[..., Any]] = {}
    for tool in flattened(items):
        if tool.needs_instance:
            raise ConfigurationError(
                f"{_origin(tool)} is a method without its instance; pass the one of an object, such "
                f"as shop.{tool.name}"
            )
        first = table.setdefault(tool.name, tool)
        if first is not tool:
            raise ConfigurationError(
                f"two tools are named {tool.name!r}: {_origin(first)} and {_origin(tool)}; rename one "
                "with @remit.tool(name=...), or many with remit.prefix(...)"
            )
    return table


def flattened(items: Iterable[object]) -> Iterator[Tool[..., Any]]:
    """The tools of a list that may hold lists, in the order given.

    Errors: `ConfigurationError` for what is no list of tools, and for a list that holds itself.
    """
    if isinstance(items, Tool) or not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError(
            "tools come in a list; for a single tool write [that_tool], such as tools=[...]"
        )
    yield from _flattened(items, ())


def _flattened(item: object, around: tuple[object, ...]) -> Iterator[Tool[..., Any]]:
    if isinstance(item, Tool):
        yield cast("Tool[..., Any]", item)
        return
    if any(item is each for each in around):
        raise ConfigurationError("a list of tools holds itself")
    if not isinstance(item, Iterable) or isinstance(item, str | bytes | Mapping | type):
        raise ConfigurationError(_no_tool(cast("object", item)))
    for each in cast("Iterable[object]", item):
        yield from _flattened(each, (*around, cast("object", item)))


def _no_tool(item: object) -> str:
    """What is wrong with it, and what to write."""
    if isinstance(item, Mapping):
        return "a mapping is no list of tools: pass its values, tools=[*these.values()]"
    if isinstance(item, types.ModuleType):
        return f"{item.__name__} is a module: pass the tools in it, such as {item.__name__}.look_up"
    if callable(item):
        name = getattr(item, "__qualname__", repr(item))
        return f"{name} is a plain function; decorate it with @remit.tool(effect=...)"
    return f"{item!r} is no tool; tools are made with @remit.tool(effect=...)"


def _origin(tool: Tool[..., Any]) -> str:
    return f"{tool.__module__}.{getattr(tool, '__qualname__', tool.name)}"
