"""The tools of a request as a wire takes them, and the way back from what a model wrote.

Pure. One `Toolbox` for a tuple of tools and a dialect. A tool that has no form in the dialect is set aside by
name, and the others go out (case 20).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from remit.models.base import ToolSpec
from remit.models.wires.aliases import Keys, alias
from remit.models.wires.lowering import CannotLower, Dialect, lower

__all__ = ["Toolbox", "WireTool"]


class WireTool(msgspec.Struct, frozen=True):
    """One tool as the wire takes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Toolbox:
    """The tools of a request in one dialect."""

    def __init__(self, tools: Sequence[ToolSpec], dialect: Dialect) -> None:
        offered: list[WireTool] = []
        set_aside: dict[str, str] = {}
        self._rule = dialect.names
        self._own: dict[str, str] = {}
        self._keys: dict[str, Keys] = {}
        for tool in tools:
            name = alias(tool.name, dialect.names)
            if name in self._own:
                set_aside[tool.name] = f"on this wire it would be called as {self._own[name]!r} is"
                continue
            try:
                lowered = lower(tool.parameters, dialect)
            except CannotLower as error:
                set_aside[tool.name] = str(error)
                continue
            description = "\n".join((tool.description, *lowered.moved)).strip()
            offered.append(WireTool(name, description, lowered.schema))
            self._own[name] = tool.name
            if lowered.keys:
                self._keys[tool.name] = lowered.keys
        self.offered: tuple[WireTool, ...] = tuple(offered)
        """In the order given."""
        self.set_aside: Mapping[str, str] = set_aside
        """Names of tools that do not go out, to the reason."""

    @property
    def wire_names(self) -> Collection[str]:
        """The names of those that are offered, as they go out."""
        return self._own.keys()

    def wire_name(self, name: str) -> str:
        """The wire's name for any tool, offered or not: a history names old ones too."""
        return alias(name, self._rule)

    def own_name(self, wire_name: str) -> str:
        """The tool that the model means; a name that is not known stays as it is."""
        return self._own.get(wire_name, wire_name)

    def wire_arguments(self, name: str, arguments: str) -> str:
        """Arguments of a call to this tool, by its own name, with the wire's keys."""
        keys = self._keys.get(name)
        return arguments if keys is None else keys.to_wire(arguments)

    def own_arguments(self, name: str, arguments: str) -> str:
        """The way back. Text that cannot be read is left as it stands."""
        keys = self._keys.get(name)
        return arguments if keys is None else keys.from_wire(arguments)
