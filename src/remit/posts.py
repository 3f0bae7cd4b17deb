"""What outsiders leave for a run, as bytes in its inbox: decisions, answers and results, and that it is to end.

The store puts a line of its own before what is about a pending, with that pending.
"""

from __future__ import annotations

import msgspec

from remit.canonical import decode, encode
from remit.errors import JournalError
from remit.pending import Decision
from remit.rows import Supplied
from remit.supervise import Cancel

__all__ = [
    "pending_id_of",
    "read_cancel",
    "read_decision",
    "read_supply",
    "write_cancel",
    "write_decision",
    "write_supply",
]


def write_decision(decision: Decision) -> bytes:
    """The bytes of a decision in the store."""
    return encode(
        {
            "approve": decision.approve,
            "by": decision.by,
            "note": decision.note,
            "edit": None if decision.edit is None else dict(decision.edit),
        }
    )


def write_supply(value: str, *, is_error: bool, by: str) -> bytes:
    """The bytes of what is supplied, in the store; `value` is JSON."""
    return encode({"value": value, "is_error": is_error, "by": by})


def write_cancel(cancel: Cancel) -> bytes:
    """The bytes of a cancel in the store: none where nothing is said with it."""
    return encode(msgspec.to_builtins(cancel)) if cancel != Cancel() else b""


def read_cancel(body: bytes) -> Cancel:
    """What was said with a cancel. It counts, whatever that was: words that cannot be read are none."""
    try:
        return msgspec.json.decode(body, type=Cancel) if body else Cancel()
    except (msgspec.DecodeError, UnicodeError):
        return Cancel()


def pending_id_of(body: bytes) -> str:
    """What a post is about that decides, supplies or withdraws. Errors: `JournalError`."""
    head, _, _ = body.partition(b"\n")
    try:
        return decode(head)["pending_id"]
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"a post cannot be read: {error}") from error


def read_supply(body: bytes) -> Supplied:
    """What was supplied, as it was posted. Errors: `JournalError`."""
    head, _, tail = body.partition(b"\n")
    try:
        return Supplied(decode(head)["pending_id"], **decode(tail))
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"what was supplied cannot be read: {error}") from error


def read_decision(body: bytes) -> tuple[str, Decision]:
    """A posted decision and the pending it is for. Errors: `JournalError`."""
    head, _, tail = body.partition(b"\n")
    try:
        value = decode(tail)
        return decode(head)["pending_id"], Decision(
            value["approve"], value["by"], value["note"], value["edit"]
        )
    except (KeyError, ValueError) as error:
        raise JournalError(f"a decision cannot be read: {error}") from error
