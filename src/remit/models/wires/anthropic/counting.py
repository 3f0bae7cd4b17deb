"""What a reply used and why it ended, in remit's words.

Usage comes in disjoint parts here: `input_tokens` leaves out what was read from the cache and what was written
to it. In a stream it is cumulative, so what comes later takes the place of what came before (case 95).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from remit.messages import StopReason, Usage
from remit.models.wires.anthropic.foreign import is_list, is_table, tables

__all__ = ["STOP_REASONS", "Counted", "stop_reason_of"]

STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "end_turn": StopReason.END_TURN,
    "tool_use": StopReason.TOOL_USE,
    "pause_turn": StopReason.PAUSE,
    "compaction": StopReason.PAUSE,  # the summary goes back as it is, and the turn goes on
    "max_tokens": StopReason.LENGTH,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "refusal": StopReason.REFUSAL,
    "model_context_window_exceeded": StopReason.CONTEXT,
}
"""The provider's complete list."""

_MOST_TOKENS = 2**63 - 1


def stop_reason_of(given: Any) -> StopReason:
    """What the provider's word means; anything that is not in the list is unknown."""
    return (
        STOP_REASONS.get(given, StopReason.UNKNOWN)
        if isinstance(given, str)
        else StopReason.UNKNOWN
    )


class _Counts(msgspec.Struct):
    """Usage as it stands on the wire. Whatever is no count is as if it were not there."""

    type: Any = None
    input_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    output_tokens: Any = None
    output_tokens_details: Any = None
    iterations: Any = None


class Counted:
    """Usage as far as it was reported."""

    def __init__(self) -> None:
        self._reported: Usage | None = None
        self.beside = Usage()
        """What other requests used that the provider made for this reply: compactions, advisors. They are not
        part of what it reports for the reply itself."""

    @property
    def reported(self) -> Usage | None:
        """Of the reply itself; None while nothing was reported, or zeros alone: a server that does not count."""
        found = self._reported
        return None if found is None or not found.total else found

    def take(self, usage: Any) -> None:
        """Take a report: what it names replaces what was known."""
        try:
            counts = msgspec.convert(usage, _Counts)
        except msgspec.ValidationError:
            return
        known = self._reported or Usage()
        details = counts.output_tokens_details
        thinking: Any = details.get("thinking_tokens") if is_table(details) else None
        told = (
            (counts.input_tokens, known.input),
            (counts.cache_read_input_tokens, known.cache_read),
            (counts.cache_creation_input_tokens, known.cache_write),
            (counts.output_tokens, known.output),
            (thinking, known.reasoning),
        )
        # A count of tokens, or what was known where it is none.
        found = Usage(
            *[
                value if type(value) is int and 0 <= value <= _MOST_TOKENS else before
                for value, before in told
            ]
        )
        if found != Usage() or counts.output_tokens is not None:
            self._reported = found
        if is_list(counts.iterations):
            self.beside = _of_others(counts.iterations)


def _of_others(iterations: Sequence[Any]) -> Usage:
    """What those iterations used that are no part of the reply's own count."""
    total = Usage()
    for iteration in tables(iterations):
        if iteration.get("type") not in (None, "message"):
            own = Counted()
            own.take(iteration)
            total += own.reported or Usage()
    return total
