"""What scripts read: JSON documents of the command line, each with the version of its shape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from remit.analysis.cells import visible
from remit.canonical import encode

if TYPE_CHECKING:
    from remit.outcome import Outcome
    from remit.pending import Pending
    from remit.remit import Remit

__all__ = ["VERSION", "answer_of", "harmless", "outcome_document", "write_document"]

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


def answer_of(outcome: Outcome[Any], remit: Remit[Any, Any]) -> str:
    """The answer: what the model said last, or what it handed in, as JSON, where a remit asks for a type."""
    typed = remit.output is not None and remit.output is not str
    if outcome.completed and typed:
        return encode(_plain(outcome.output)).decode()
    return outcome.text


def write_document(document: Mapping[str, Any], stream: TextIO) -> None:
    """One line of JSON for a program; indented for a person on a terminal.

    What is piped may yet be shown by a terminal, a page at a time or out of a log: it obeys nothing either way.
    """
    text = encode(document).decode()
    text = harmless(msgspec.json.format(text, indent=2) if stream.isatty() else text)
    try:
        text.encode(stream.encoding or "utf-8")
    except (
        UnicodeEncodeError
    ):  # what a stream writes in place of a letter that it has not is no JSON
        text = _UNUSUAL.sub(_escaped, text)
    stream.write(text + "\n")
    stream.flush()  # the process may be left at any moment, with what its buffers hold


_UNUSUAL: Final = re.compile(r"[^\x20-\x7e\n]")


def harmless(text: str) -> str:
    """The same JSON, with everything escaped that would act on a terminal, or hide there."""
    if visible(text) == text:
        return text
    shown = _UNUSUAL.sub(lambda it: it[0] if visible(it[0]) == it[0] else _escaped(it), text)
    return shown if visible(shown) == shown else _UNUSUAL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """A character as a string of JSON spells it; nowhere else does JSON have one that needs it."""
    return "\\u007f" if found[0] == "\x7f" else json.dumps(found[0])[1:-1]


def _pending(pending: Pending) -> dict[str, Any]:
    return {
        "id": pending.id,
        "kind": pending.kind,
        "run_id": pending.run_id,
        "path": list(pending.path),
        "tool": pending.tool,
        "arguments": pending.arguments,
        "summary": pending.summary,
        "schema": pending.schema,
        "key": pending.key,
        "expires_at": pending.expires_at.isoformat(),
    }


def _plain(value: object) -> Any:
    """A typed output in plain JSON types; numbers keep their digits."""
    try:
        encode(value)
    except (TypeError, ValueError):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="strings")
    return value
