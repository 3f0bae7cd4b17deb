"""What happens in a run, told as it happens: read-only values for whoever watches.

An event never decides anything and is never the only trace of a failure. `kind` is a stable string;
`fields` are JSON. No event holds a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["Event", "EventKind", "Listener"]

EventKind: TypeAlias = Literal[
    "run_started",
    "surroundings_changed",
    "text",
    "replied",
    "charged",
    "prefix_break",
    "cache_missed",
    "note_failed",
    "stop_when_failed",
    "model_retry",
    "model_notice",
    "call_started",
    "call_progress",
    "call_retry",
    "call_settled",
    "call_blocked",
    "call_abandoned",
    "output_invalid",
    "redact_failed",
    "read_discarded",
    "late_outcome",
    "pending",
    "granted",
    "supplied",
    "confirm_failed",
    "answer_failed",
    "overshoot",
    "run_ended",
]


class Event(msgspec.Struct, frozen=True):
    """One thing that happened."""

    kind: EventKind
    run_id: str
    path: tuple[str, ...]
    """Names of the remits from the root to the one it happened in."""
    at: float
    """Seconds on the event loop's clock."""
    fields: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "run_id": self.run_id,
            "path": list(self.path),
            "at": self.at,
            **self.fields,
        }


Listener: TypeAlias = Callable[[Event], None]
