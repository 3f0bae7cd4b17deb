"""remit: tool loops in production.

A *remit* is what you delegate and the limits you delegate it under: the model proposes, the harness
enforces. Begin with `Remit`, `tool` and `Limits`; an `Outcome` tells how a run ended.
"""

import logging

from remit.budget import Amount, Limits, Spend, Totals
from remit.errors import (
    ConfigurationError,
    DecisionError,
    Fenced,
    JournalError,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
    RemitError,
    RunBusy,
    SessionBusy,
    ToolError,
    TranscriptError,
    Unfinished,
)
from remit.events import Event
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
from remit.models.base import Model, ModelProfile, Price, Settings
from remit.outcome import Outcome, Reason
from remit.pending import Allow, Confirm, Decision, Pending, PolicyRequest, Refuse, Veto
from remit.remit import Remit, Runtime
from remit.store.memory import MemoryStore
from remit.tools import Call, Computed, Effect, Tool, Toolset, tool
from remit.transcript import Transcript

__all__ = [
    "Allow",
    "Amount",
    "Call",
    "Computed",
    "ConfigurationError",
    "Confirm",
    "Decision",
    "DecisionError",
    "Effect",
    "Event",
    "Fenced",
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
    "ModelUnavailable",
    "Opaque",
    "Outcome",
    "Pending",
    "PolicyRequest",
    "Price",
    "Reason",
    "Refuse",
    "Remit",
    "RemitError",
    "Reply",
    "RunBusy",
    "Runtime",
    "SessionBusy",
    "Settings",
    "Spend",
    "Status",
    "StopReason",
    "Text",
    "Tool",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "Toolset",
    "Totals",
    "Transcript",
    "TranscriptError",
    "Unfinished",
    "Usage",
    "Veto",
    "tool",
]

logging.getLogger("remit").addHandler(logging.NullHandler())
