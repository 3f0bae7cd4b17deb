"""What outsiders leave for a run, as bytes in its inbox: decisions, answers and results.

The store puts a line of its own before each, with the pending that it is about.
"""

from __future__ import annotations

from remit.canonical import decode, encode
from remit.errors import JournalError
from remit.pending import Decision
from remit.rows import Supplied

__all__ = ["pending_id_of", "read_decision", "read_supply", "write_decision", "write_supply"]


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
