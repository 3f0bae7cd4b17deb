"""Tools and system text as they go out: the same bytes in all requests of a run, and one cache marker behind both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from remit.errors import ConfigurationError
from remit.models.wires.anthropic.foreign import encoded, is_list, tables
from remit.models.wires.toolbox import Toolbox, WireTool

__all__ = ["Prefix"]


class Prefix(msgspec.Struct, frozen=True):
    """Encoded once, for as long as nothing of it changes."""

    data: bytes
    """Fields of the body, each behind a comma."""
    markers: int
    """How many cache markers are in it."""

    @staticmethod
    def of(
        instructions: str, toolbox: Toolbox, extra: Mapping[str, Any], marker: bytes | None
    ) -> Prefix:
        """Encode them. `extra` may bring tools of the provider, and a system text in parts.

        Errors: `ConfigurationError` for tools that are no list, and for what is no JSON.
        """
        tools: list[Any] = [_tool(tool) for tool in toolbox.offered]
        if "tools" in extra:
            tools = _with_more(tools, extra["tools"])
        system: Any = [{"type": "text", "text": instructions}] if instructions.strip() else []
        system = extra.get("system", system)
        markers = len(
            [each for each in tables([*tools, *tables(system)]) if "cache_control" in each]
        )
        data = b""
        for name, value in (("tools", tools), ("system", system)):
            if value:
                data += b',"%s":%s' % (name.encode(), encoded(value, f"what stands in {name!r}"))
        last = tables(system or tools)[-1:]
        takes_one = bool(last and last[0]) and "defer_loading" not in last[0]
        # Where others have set markers they know why.
        if marker is not None and not markers and takes_one and data.endswith(b"}]"):
            data, markers = data[:-2] + marker + b"}]", 1
        return Prefix(data, markers)


def _tool(tool: WireTool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": tool.parameters}


def _with_more(own: list[Any], more: Any) -> list[Any]:
    """Tools of ours and those of `Settings.extra`: the provider's own, or ours with more to say of them."""
    if not is_list(more):
        raise ConfigurationError("Settings(extra={'tools': ...}): give a list of tools")
    named = [entry.get("name") for entry in tables(more)]
    said = {name for name in named if isinstance(name, str)}
    return [tool for tool in own if tool["name"] not in said] + list(more)
