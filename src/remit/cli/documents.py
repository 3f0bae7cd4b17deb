"""What scripts read: JSON documents of the command line, each with the version of its shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TextIO

from remit.outcome import Outcome
from remit.pending import Pending

__all__ = ["VERSION", "outcome_document", "write_document"]

VERSION: Final = 1
"""`"v"` of every document; a field that is added does not change it."""


def outcome_document(outcome: Outcome[Any]) -> dict[str, Any]:
    """An outcome. Tokens that decide are not in it, nor is the transcript."""
    return {
        "v": VERSION,
        "run_id": outcome.run_id,
        "reason": outcome.reason.value,
        "completed": outcome.completed,
        "whose": outcome.whose,
        "text": outcome.text,
        "output": _plain(outcome.output),
        "error": outcome.error,
        "steps": outcome.steps,
        "spend": outcome.spend.to_json(),
        "pending": [_pending(each) for each in outcome.pending],
    }


def write_document(document: Mapping[str, Any], stream: TextIO) -> None:
    """One line of JSON for a program; indented for a person on a terminal."""
    indent = 2 if stream.isatty() else None
    print(json.dumps(document, ensure_ascii=False, indent=indent), file=stream)


def _pending(pending: Pending) -> dict[str, Any]:
    return {
        "id": pending.id,
        "kind": pending.kind,
        "run_id": pending.run_id,
        "path": list(pending.path),
        "tool": pending.tool,
        "arguments": pending.arguments,
        "summary": pending.summary,
        "expires_at": pending.expires_at.isoformat(),
    }


def _plain(value: object) -> Any:
    """A typed output in plain JSON types."""
    if isinstance(value, str | None):
        return value
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, serialize_unknown=True)
