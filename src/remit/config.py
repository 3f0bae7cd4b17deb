"""What a `Remit` was made of, checked and resolved: everything about it that the loop reads."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from remit.limits import Limits
from remit.models.base import Model, Settings, ToolSpec
from remit.pending import AnswerCallback, ConfirmCallback, Guard, Policy
from remit.redaction import Redactor
from remit.tools import Tool
from remit.transcript import Transcript

if TYPE_CHECKING:
    from remit.tools.output import OutputSpec  # behind it is pydantic, which is slow to import

__all__ = [
    "GRACE_SECONDS",
    "Config",
    "Instructions",
    "Note",
    "StopWhen",
    "call_with",
    "shown_tools",
]

GRACE_SECONDS = 0.5
"""How long a body that was cancelled is waited for."""

Instructions: TypeAlias = str | Callable[[], str] | Callable[[Any], str]
StopWhen: TypeAlias = Callable[[Transcript], bool | Awaitable[bool]]
Note: TypeAlias = (
    Callable[[], str | Awaitable[str | None] | None]
    | Callable[[Any], str | Awaitable[str | None] | None]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One remit, resolved."""

    name: str
    model: Model
    tools: Mapping[str, Tool[..., Any]]
    specs: tuple[ToolSpec, ...]
    """As the model sees them, in a fixed order: the tools array never changes in a run (X1)."""
    instructions: Instructions
    limits: Limits
    settings: Settings
    output: OutputSpec | None
    """What a run hands in; None: text."""
    policy: Policy | None
    guards: tuple[Guard, ...]
    confirm: ConfirmCallback | None
    answer: AnswerCallback | None
    redact: Redactor | None
    notes: tuple[Note, ...]
    stop_when: StopWhen | None
    show_budget: bool
    hand_back: bool
    grace: float
    now: Callable[[], datetime]
    """Calendar time, aware and in UTC; injected by tests."""

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """What the final text has to fit, where it is the model that holds it to a schema."""
        native = self.output is not None and self.output.tool.name not in self.tools
        return self.output.schema if self.output is not None and native else None

    @property
    def described(self) -> tuple[ToolSpec, ...]:
        """What every request describes to the model, for estimates: the tools, and the schema of its text."""
        schema = self.output_schema
        return self.specs if schema is None else (*self.specs, ToolSpec("output", "", schema))

    def asking(self, model: Model, settings: Settings) -> Config:
        """The same with another model or other settings, for one run."""
        tools = self.tools
        if self.output is not None:
            own = {name: tool for name, tool in tools.items() if tool is not self.output.tool}
            tools = shown_tools(own, self.output, model)
        return replace(
            self,
            model=model,
            settings=settings,
            tools=tools,
            specs=tuple(tool.spec for tool in tools.values()),
        )


def shown_tools(
    tools: Mapping[str, Tool[..., Any]], output: OutputSpec | None, model: Model
) -> Mapping[str, Tool[..., Any]]:
    """The tools that a model is shown: the one that takes the output too, unless its own text does."""
    if output is None or model.profile.native_output:
        return tools
    return {**tools, output.tool.name: output.tool}


def call_with(given: Callable[..., Any], deps: Any) -> Any:
    """Call a function of the host that takes the deps or nothing."""
    takes_deps = any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in inspect.signature(given).parameters.values()
    )
    return given(deps) if takes_deps else given()
