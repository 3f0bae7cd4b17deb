"""How a response ended, what it used, and errors inside of it."""

from __future__ import annotations

from typing import Final

from remit.errors import ModelError
from remit.messages import StopReason, Usage
from remit.models.wires.responses.faults import Complaint, complaint_of, error_for
from remit.models.wires.responses.items import Fields, fields_of, string_of

__all__ = ["INCOMPLETE", "error_of", "usage_of"]

INCOMPLETE: Final = {
    "max_output_tokens": StopReason.LENGTH,
    "content_filter": StopReason.FILTER,
}
"""Reasons of a response that is not complete; every other one is unknown (`max_messages`, `steered`)."""


def usage_of(value: object) -> Usage | None:
    """Tokens in disjoint parts; None where nothing is reported.

    The provider counts what was read from the cache and written to it as input, reasoning as output.
    """
    fields = fields_of(value)
    if fields is None or not any(
        type(fields.get(name)) is int for name in ("input_tokens", "output_tokens")
    ):
        return None
    prompt, output = _count(fields, "input_tokens"), _count(fields, "output_tokens")
    if not prompt and not output:
        return None  # what a server fills in that does not count
    details = fields_of(fields.get("input_tokens_details")) or {}
    read = min(_count(details, "cached_tokens"), prompt)
    write = min(_count(details, "cache_write_tokens"), prompt - read)
    thought = fields_of(fields.get("output_tokens_details")) or {}
    return Usage(
        input=prompt - read - write,
        cache_read=read,
        cache_write=write,
        output=output,
        reasoning=min(_count(thought, "reasoning_tokens"), output),
    )


_MOST_TOKENS: Final = 2**53


def _count(fields: Fields, name: str) -> int:
    """A count of tokens; what is none is 0."""
    value = fields.get(name)
    return min(max(value, 0), _MOST_TOKENS) if type(value) is int else 0


def error_of(value: object, usage: Usage | None) -> ModelError:
    """An error that came inside of a response or of a stream, after the status was a good one."""
    fields = fields_of(value) or {}
    nested = fields_of(fields.get("error"))
    complaint = complaint_of(nested or fields)
    if not complaint.message and not complaint.code:
        complaint = Complaint("it does not say why", "", string_of(fields, "type"), "")
    error = error_for(complaint)
    error.usage = usage
    return error
