"""What a `Remit` was made of, checked and resolved: everything about it that the loop reads."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from remit.budget import Limits
from remit.models.base import Model, Settings, ToolSpec
from remit.pending import ConfirmCallback, Guard, Policy
from remit.tools import Tool

__all__ = ["GRACE_SECONDS", "Config", "Instructions", "Note", "call_with"]

GRACE_SECONDS = 0.5
"""How long a body that was cancelled is waited for."""

Instructions: TypeAlias = str | Callable[[], str] | Callable[[Any], str]
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
    policy: Policy | None
    guards: tuple[Guard, ...]
    confirm: ConfirmCallback | None
    notes: tuple[Note, ...]
    show_budget: bool
    hand_back: bool
    grace: float
    now: Callable[[], datetime]
    """Calendar time, aware and in UTC; injected by tests."""


def call_with(given: Callable[..., Any], deps: Any) -> Any:
    """Call a function of the host that takes the deps or nothing."""
    takes_deps = any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in inspect.signature(given).parameters.values()
    )
    return given(deps) if takes_deps else given()
