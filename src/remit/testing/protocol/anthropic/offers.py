"""Tools, settings and cache markers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from remit.testing.protocol.anthropic.wordings import MORE
from remit.testing.protocol.base import Refuse
from remit.testing.protocol.reading import Body, mapping, mappings, names, text
from remit.testing.protocol.schemas import strict_faults_of_anthropic

__all__ = ["Offers"]

_TOOL_FIELDS = names(
    "name description input_schema strict cache_control defer_loading allowed_callers input_examples"
    " eager_input_streaming type"
)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


class Offers:
    """What a body offers the model, and how it is asked."""

    def __init__(self, refuse: Refuse) -> None:
        self.refuse = refuse

    def check(self, body: Body) -> None:
        """Errors: `Refused`."""
        self._tools(body)
        self._settings(body)
        self._cache(body)

    def _tools(self, body: Body) -> None:
        known: set[str] = set()
        for at, tool in enumerate(mappings(body.get("tools"))):
            name = text(tool.get("name"))
            if name:
                if name in known:
                    self.refuse("tool_twice")
                known.add(name)
            if tool.get("type", "custom") == "custom":
                self._tool(at, tool)
        choice = mapping(body.get("tool_choice"))
        if choice and not body.get("tools") and not body.get("mcp_servers"):
            self.refuse("tool_choice_alone")
        if choice.get("type") == "tool" and text(choice.get("name")) not in known:
            self.refuse("tool_choice", name=choice.get("name"))
        kinds = {"auto", "any", "tool", "none"}
        if "tool_choice" in body and text(choice.get("type")) not in kinds:
            self.refuse("type", where="tool_choice", wanted="'auto', 'any', 'tool' or 'none'")

    def _tool(self, at: int, tool: Body) -> None:
        for name in tool:
            if name not in _TOOL_FIELDS:
                self.refuse("unknown_field", where=f"tools.{at}.custom.{name}")
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.refuse("tool_name", at=at)
        if "input_schema" not in tool:
            self.refuse("missing_field", where=f"tools.{at}.custom.input_schema")
        schema = mapping(tool["input_schema"])
        if schema.get("type") != "object":
            self.refuse("tool_schema", at=at)
        if any(key in schema for key in ("oneOf", "anyOf", "allOf")):
            self.refuse("tool_root", at=at)
        if any(not _KEY.fullmatch(key) for key in mapping(schema.get("properties"))):
            self.refuse("tool_keys", at=at)
        why = strict_faults_of_anthropic(schema) if tool.get("strict") else None
        if why is not None:
            self.refuse("tool_strict", at=at, why=why)

    def _settings(self, body: Body) -> None:
        thinking = mapping(body.get("thinking"))
        if thinking.get("type") != "enabled":
            return
        budget = thinking.get("budget_tokens")
        if type(budget) is not int or budget < 1_024:
            where = "thinking.enabled.budget_tokens"
            self.refuse("type", where=where, wanted="greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            self.refuse("thinking_budget", more=MORE)
        if body.get("temperature", 1) != 1:
            self.refuse("thinking_temperature", more=MORE)
        if text(mapping(body.get("tool_choice")).get("type")) in {"any", "tool"}:
            self.refuse("thinking_forced")

    def _cache(self, body: Body) -> None:
        count, short = 0, False
        for where, block in _cacheable(body):
            control = block.get("cache_control")
            if control is None:
                continue
            count += 1
            control = mapping(control)
            if control.get("type") != "ephemeral":
                self.refuse("cache_form", where=where, part="type", wanted="'ephemeral'")
            life = text(control.get("ttl", "5m"))
            if life not in {"5m", "1h"}:
                self.refuse("cache_form", where=where, part="ttl", wanted="'5m' or '1h'")
            if life == "1h" and short:
                self.refuse("cache_order", where=where)
            short = short or life == "5m"
        if count > 4:
            self.refuse("cache_count", count=count)


def _cacheable(body: Body) -> Iterator[tuple[str, Body]]:
    """Everything that may carry a cache marker, in the order of the prefix."""
    for at, tool in enumerate(mappings(body.get("tools"))):
        yield f"tools.{at}", tool
    for at, block in enumerate(mappings(body.get("system"))):
        yield f"system.{at}", block
    for at, message in enumerate(mappings(body.get("messages"))):
        for n, block in enumerate(mappings(message.get("content"))):
            for m, part in enumerate(mappings(block.get("content"))):
                yield f"messages.{at}.content.{n}.content.{m}", part
            yield f"messages.{at}.content.{n}", block
    yield "body", {"cache_control": body.get("cache_control")}
