"""What a model said, checked against the types of the protocol.

A model is foreign code: what it yields is looked at before anything is built on it, so that its mistake ends as
`ModelProtocolError` and not as an error inside the loop. Whether the reply makes sense is for the loop to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from remit.errors import ModelProtocolError
from remit.messages import Block, Message, Opaque, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import Underway

__all__ = ["checked_block", "checked_reply", "checked_underway", "is_price", "is_usage"]


def checked_block(block: Any) -> Block:
    """A block of an assistant's turn. Errors: `ModelProtocolError`."""
    match block:
        case Text(str()) | ToolUse(str(), str(), str()) | Opaque(str(), bytes()):
            return block
        case _:
            raise ModelProtocolError(f"it said a {type(block).__name__} that no reply can hold")


def checked_reply(reply: Reply, seen: Sequence[Block] = ()) -> Reply:
    """A reply whose every part is what its type says; `seen` are blocks that were checked before.

    Errors: `ModelProtocolError`.
    """
    usage = reply.usage if is_usage(reply.usage) else None
    match reply:
        case Reply(Message("assistant", tuple(content)), StopReason()):
            for index, block in enumerate(content):
                if index >= len(seen) or block is not seen[index]:
                    checked_block(block)
        case _:
            raise ModelProtocolError(
                "the reply is no message of the assistant with a StopReason", usage=usage
            )
    if (reply.usage is not None and usage is None) or not (
        is_usage(reply.beside) and isinstance(reply.beside_estimated, bool)  # pyright: ignore[reportUnnecessaryIsInstance] - a model's own code
    ):
        raise ModelProtocolError("the reply's usage is no count of tokens")
    if reply.usd is not None and not is_price(reply.usd):
        raise ModelProtocolError("the reply's usd is no amount of US dollars", usage=usage)
    return reply


def checked_underway(underway: Underway) -> Underway:
    """What is said of a reply before its end. Errors: `ModelProtocolError`."""
    chars, usage = underway.chars, underway.usage
    if type(chars) is not int or chars < 0 or not (usage is None or is_usage(usage)):
        raise ModelProtocolError("what it says of a reply under way is no count")
    return underway


def is_usage(value: Any) -> bool:
    """Whether it is a count of tokens that can be charged."""
    if not isinstance(value, Usage):
        return False
    for count in (
        value.input,
        value.cache_read,
        value.cache_write,
        value.output,
        value.reasoning,
    ):
        if type(count) is not int or not 0 <= count <= _MOST_TOKENS:
            return False
    return True


_MOST_TOKENS = 2**63 - 1  # what a database can hold


def is_price(value: Any) -> bool:
    """Whether it is an amount of US dollars that can be charged."""
    return isinstance(value, Decimal) and value.is_finite() and value >= 0
