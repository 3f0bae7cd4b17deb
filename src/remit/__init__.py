"""remit: tool loops in production.

A *remit* is what you delegate and the limits you delegate it under: the model proposes, the harness
enforces. Begin with `Remit`, `tool` and `Limits`; an `Outcome` tells how a run ended.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
"""True for type checkers, which know the name; `typing` itself is loaded by whoever needs it."""

if TYPE_CHECKING:
    from remit.amounts import Amount, Spend, Totals
    from remit.artifacts import Artifact
    from remit.errors import (
        ConfigurationError,
        ContextExceeded,
        DecisionError,
        Fenced,
        JournalError,
        ModelError,
        ModelProtocolError,
        ModelRejected,
        ModelUnavailable,
        PutOff,
        RemitError,
        RunBusy,
        SessionBusy,
        ToolError,
        TranscriptError,
        Unfinished,
    )
    from remit.events import Event
    from remit.limits import Limits
    from remit.live import Live
    from remit.messages import (
        Media,
        Message,
        Opaque,
        Reply,
        Status,
        StopReason,
        Text,
        ToolResult,
        ToolUse,
        Usage,
    )
    from remit.models.base import (
        BlockDone,
        Chunk,
        Model,
        ModelProfile,
        ModelRequest,
        Notice,
        Price,
        Settings,
        TextDelta,
        Underway,
    )
    from remit.models.connection import Connection
    from remit.models.names import model
    from remit.models.react import ReActModel
    from remit.models.wrapped import AskModel, wrap_model
    from remit.outcome import Outcome, Reason
    from remit.pending import Allow, Confirm, Decision, Pending, PolicyRequest, Refuse, Veto
    from remit.remit import Remit, Runtime
    from remit.store.grants import Grant
    from remit.store.memory import MemoryStore
    from remit.store.sqlite import SqliteStore
    from remit.tools import Call, Computed, Effect, Secret, Tool, Toolset, tool
    from remit.tools.derived import Invocation, Proceed, filter, prefix, wrap_tools  # noqa: A004 - as it is called everywhere
    from remit.transcript import Transcript

__all__ = [
    "Allow",
    "Amount",
    "Artifact",
    "AskModel",
    "BlockDone",
    "Call",
    "Chunk",
    "Computed",
    "ConfigurationError",
    "Confirm",
    "Connection",
    "ContextExceeded",
    "Decision",
    "DecisionError",
    "Effect",
    "Event",
    "Fenced",
    "Grant",
    "Invocation",
    "JournalError",
    "Limits",
    "Live",
    "Media",
    "MemoryStore",
    "Message",
    "Model",
    "ModelError",
    "ModelProfile",
    "ModelProtocolError",
    "ModelRejected",
    "ModelRequest",
    "ModelUnavailable",
    "Notice",
    "Opaque",
    "Outcome",
    "Pending",
    "PolicyRequest",
    "Price",
    "Proceed",
    "PutOff",
    "ReActModel",
    "Reason",
    "Refuse",
    "Remit",
    "RemitError",
    "Reply",
    "RunBusy",
    "Runtime",
    "Secret",
    "SessionBusy",
    "Settings",
    "Spend",
    "SqliteStore",
    "Status",
    "StopReason",
    "Text",
    "TextDelta",
    "Tool",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "Toolset",
    "Totals",
    "Transcript",
    "TranscriptError",
    "Underway",
    "Unfinished",
    "Usage",
    "Veto",
    "filter",
    "model",
    "prefix",
    "tool",
    "wrap_model",
    "wrap_tools",
]

__version__ = "0.1.0"

_HOMES = {
    "remit.artifacts": "Artifact",
    "remit.amounts": "Amount Spend Totals",
    "remit.limits": "Limits",
    "remit.errors": "ConfigurationError ContextExceeded DecisionError Fenced JournalError ModelError ModelProtocolError ModelRejected ModelUnavailable PutOff RemitError RunBusy SessionBusy ToolError TranscriptError Unfinished",
    "remit.events": "Event",
    "remit.live": "Live",
    "remit.messages": "Media Message Opaque Reply Status StopReason Text ToolResult ToolUse Usage",
    "remit.models.base": "BlockDone Chunk Model ModelProfile ModelRequest Notice Price Settings TextDelta Underway",
    "remit.models.connection": "Connection",
    "remit.models.names": "model",
    "remit.models.react": "ReActModel",
    "remit.models.wrapped": "AskModel wrap_model",
    "remit.outcome": "Outcome Reason",
    "remit.pending": "Allow Confirm Decision Pending PolicyRequest Refuse Veto",
    "remit.remit": "Remit Runtime",
    "remit.store.grants": "Grant",
    "remit.store.memory": "MemoryStore",
    "remit.store.sqlite": "SqliteStore",
    "remit.tools": "Call Computed Effect Secret Tool Toolset tool",
    "remit.tools.derived": "Invocation Proceed filter prefix wrap_tools",
    "remit.transcript": "Transcript",
}
"""Where each name lives. What is imported is loaded when it is first used: `remit --version` and a tab
completion should not wait for a loop that they do not run."""

_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker sees the names above, and no others

    def __getattr__(name: str) -> object:
        """Load a public name on first use (PEP 562)."""
        module = _HOME.get(name)
        if module is None:
            raise AttributeError(f"module 'remit' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(module), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
