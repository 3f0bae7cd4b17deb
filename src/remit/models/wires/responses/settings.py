"""How a model is asked, in the fields of this wire: tools and their choice, effort, the form of an answer.

Effort follows from `Settings.thinking`, since this wire counts no tokens of thinking: up to 2,048 low, up to
8,192 medium, above high. `Settings.extra` is merged last: it replaces what is here field by field, but `include`
and `tools` are joined, and the fields of `text` and `reasoning` are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from remit.errors import ConfigurationError
from remit.models.base import Settings
from remit.models.wires.lowering import CannotLower, Dialect, lower
from remit.models.wires.responses.items import fields_of, string_of
from remit.models.wires.toolbox import Toolbox

__all__ = [
    "LEAST_OUTPUT",
    "TOOLS",
    "Answer",
    "answer_of",
    "check_extra",
    "choice_of",
    "merged",
    "reasoning_of",
    "reasons",
    "tool_items",
    "tools_with",
]

TOOLS: Final = Dialect()
_ANSWER: Final = Dialect(target="strict", keys=None)
_LOOSE_ANSWER: Final = Dialect(keys=None)

LEAST_OUTPUT: Final = 16
"""Tokens. A lower cap is refused, which would end a run that has a few tokens left as one that failed."""

_EFFORTS: Final = ((2_048, "low"), (8_192, "medium"))
_MOST_EFFORT: Final = "high"

_MERGED: Final = frozenset({"text", "reasoning"})
_NEVER_REASONS: Final = ("gpt-3.5", "gpt-4", "chatgpt-")
"""How the names of OpenAI's models begin that refuse every word about reasoning. Those of others are asked."""
_OURS: Final = frozenset({"input", "stream", "model"})
"""What `Settings.extra` may not replace."""


def tool_items(toolbox: Toolbox) -> list[dict[str, Any]]:
    """The tools as this wire has them: flat, and strict only where that is said."""
    return [
        {
            "type": "function",
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "parameters": tool.parameters,
            "strict": False,  # left out, it would mean: strict if that is possible
        }
        for tool in toolbox.offered
    ]


def tools_with(toolbox: Toolbox, given: Sequence[Any]) -> list[Any]:
    """The tools with those of `Settings.extra`, which come first: the provider's own, and entries of ours.

    An entry with a name of ours and without parameters says more of that tool; with parameters it takes its place.
    """
    ours = {item["name"]: item for item in tool_items(toolbox)}
    made: list[Any] = []
    for entry in given:
        fields = fields_of(entry) or {}
        known = ours.pop(string_of(fields, "name"), None) if "name" in fields else None
        made.append(entry if known is None or "parameters" in fields else {**known, **fields})
    return [*made, *ours.values()]


def choice_of(choice: str, toolbox: Toolbox) -> Any:
    """How the choice of a tool is said."""
    match choice:
        case "auto" | "none":
            return choice
        case "any":
            return "required"
        case name:
            return {"type": "function", "name": toolbox.wire_name(name)}


def reasons(model: str) -> bool:
    """Whether a model may be told of reasoning."""
    return not model.startswith(_NEVER_REASONS)


def reasoning_of(thinking: int) -> dict[str, Any]:
    """How much is thought, for so many tokens of it."""
    return {"effort": next((word for most, word in _EFFORTS if thinking <= most), _MOST_EFFORT)}


class Answer(msgspec.Struct, frozen=True):
    """How the final text has to be."""

    form: dict[str, Any]
    """The field `text` of a request."""
    own: Callable[[str], str] | None = None
    """What the model wrote, as the schema has it; None where that is the same."""


def answer_of(schema: Mapping[str, Any]) -> Answer | None:
    """The form of an answer; None where this wire cannot say it, and only the loop checks it."""
    for dialect, strict in ((_ANSWER, True), (_LOOSE_ANSWER, False)):
        try:
            lowered = lower(schema, dialect)
        except CannotLower:
            continue
        form = {"type": "json_schema", "name": "answer", "schema": lowered.schema, "strict": strict}
        return Answer({"format": form}, None if lowered.is_plain else lowered.from_wire)
    return None


def merged(ours: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request with those of `Settings.extra`."""
    fields = dict(ours)
    for name, given in extra.items():
        fields[name] = _merged(name, fields.get(name), given)
    return fields


def _merged(name: str, ours: Any, given: Any) -> Any:
    if name == "include" and isinstance(given, list | tuple):
        return list(dict.fromkeys([*(ours or ()), *cast("list[Any]", given)]))
    if name in _MERGED:
        before, after = fields_of(ours), fields_of(given)
        if before is not None and after is not None:
            return {**before, **after}
    return given


def check_extra(settings: Settings, *, keeps: bool) -> None:
    """Refuse what would make requests that are not what they say. `keeps`: the server keeps the conversation.

    Work in the background is not refused: where it streams, its events come as any others.
    Errors: `ConfigurationError`.
    """
    extra = settings.extra
    refused = sorted(_OURS & extra.keys())
    if refused:
        named = ", ".join(refused)
        raise ConfigurationError(f"Settings(extra=...) cannot hold {named}: remit writes that")
    if extra.get("conversation") is not None:
        raise ConfigurationError(
            "Settings(extra=...) cannot hold conversation: every request holds the history, which the "
            'conversation would get once more; ResponsesCodec(state="server") sends only what is new'
        )
    if keeps and extra.get("store") is False:
        raise ConfigurationError(
            'Settings(extra={"store": False}) and ResponsesCodec(state="server") exclude each other'
        )
