"""The tools of a request as a wire takes them, and the way back from what a model wrote.

Pure. One `Toolbox` for a tuple of tools and a dialect. A tool that has no form in the dialect is set aside by
name, and the others go out (case 20).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from remit.models.base import ToolSpec
from remit.models.wires.aliases import alias
from remit.models.wires.lowering import CannotLower, Dialect, Lowered, lower

__all__ = ["Toolbox", "WireTool"]


class WireTool(msgspec.Struct, frozen=True):
    """One tool as the wire takes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False
    """Whether the provider may hold the model to `parameters`: they are in a strict grammar."""


class Toolbox:
    """The tools of a request in one dialect."""

    def __init__(self, tools: Sequence[ToolSpec], dialect: Dialect) -> None:
        self._dialect = dialect
        self._own: dict[str, str] = {}
        """Names of the wire to own ones."""
        self._lowered: dict[str, Lowered] = {}
        """Of the tools, by own name, whose arguments are written otherwise on the wire."""
        offered: list[WireTool] = []
        set_aside: dict[str, str] = {}
        for tool in tools:
            try:
                offered.append(self._take(tool))
            except CannotLower as error:
                set_aside[tool.name] = str(error)
        self.offered: tuple[WireTool, ...] = tuple(offered)
        """In the order given."""
        self.set_aside: Mapping[str, str] = set_aside
        """Names of tools that do not go out, to the reason."""

    @property
    def wire_names(self) -> Collection[str]:
        """The names of those that are offered, as they go out."""
        return self._own.keys()

    def _take(self, tool: ToolSpec) -> WireTool:
        name = alias(tool.name, self._dialect.names)
        if name in self._own:
            raise CannotLower(f"on this wire it would have the name of {self._own[name]!r}")
        lowered, strict = self._lower(tool)
        self._own[name] = tool.name
        if not lowered.is_plain:
            self._lowered[tool.name] = lowered
        own_name = "" if name == tool.name else f"(Its own name is {tool.name!r}.)"
        told = [part for part in (tool.description, own_name, lowered.told) if part]
        return WireTool(name, "\n".join(told), lowered.schema, strict)

    def _lower(self, tool: ToolSpec) -> tuple[Lowered, bool]:
        """Strict where the target is and the tool can be: strictness is a matter of each tool (case 20)."""
        if self._dialect.target in ("strict", "anthropic-strict"):
            with suppress(CannotLower):
                return lower(tool.parameters, self._dialect), True
            return lower(
                tool.parameters, msgspec.structs.replace(self._dialect, target="open")
            ), False
        return lower(tool.parameters, self._dialect), False

    def wire_name(self, name: str) -> str:
        """The wire's name for any tool, offered or not: a history names old ones too."""
        return alias(name, self._dialect.names)

    def own_name(self, wire_name: str) -> str:
        """The tool that the model means; a name that is not known stays as it is."""
        return self._own.get(wire_name, wire_name)

    def wire_arguments(self, name: str, arguments: str) -> str:
        """Arguments of a call to this tool, by its own name, with the wire's keys."""
        lowered = self._lowered.get(name)
        return arguments if lowered is None else lowered.to_wire(arguments)

    def own_arguments(self, name: str, arguments: str) -> str:
        """The way back. Text that cannot be read is left as it stands."""
        lowered = self._lowered.get(name)
        return arguments if lowered is None else lowered.from_wire(arguments)
