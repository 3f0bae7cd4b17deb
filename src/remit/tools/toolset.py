"""Where tools come from.

A toolset is anything that yields tools: a list, a server, a filter or a prefix around another one.
`resolve` makes of what it yielded the table by which calls are looked up. Not here: choosing among
many tools, which is a catalogue's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from remit.errors import ConfigurationError
from remit.tools.tool import Tool

__all__ = ["StaticTools", "Toolset", "resolve"]


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
    for item in items:
        tool = _checked(item)
        first = table.setdefault(tool.name, tool)
        if first is not tool:
            raise ConfigurationError(
                f"two tools are named {tool.name!r}: {_origin(first)} and {_origin(tool)}; rename one "
                "with @remit.tool(name=...)"
            )
    return table


def _checked(item: object) -> Tool[..., Any]:
    if isinstance(item, Tool):
        tool = cast("Tool[..., Any]", item)
        if tool.needs_instance:
            raise ConfigurationError(
                f"{_origin(tool)} is a method without its instance; pass the one of an object, such "
                f"as shop.{tool.name}"
            )
        return tool
    if callable(item):
        raise ConfigurationError(
            f"{getattr(item, '__qualname__', repr(item))} is a plain function; decorate it with "
            "@remit.tool(effect=...)"
        )
    raise ConfigurationError(f"{item!r} is no tool; tools are made with @remit.tool(effect=...)")


def _origin(tool: Tool[..., Any]) -> str:
    return f"{tool.__module__}.{getattr(tool, '__qualname__', tool.name)}"
