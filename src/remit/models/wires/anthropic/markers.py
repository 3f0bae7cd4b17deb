"""Where in a request the prompt cache is told to look and to write (X4).

The provider looks for what is cached at a marker and at most 20 blocks before it, and takes four markers. A turn
of many parallel calls is longer than that, so a marker at the end alone would find nothing. Hence one more at the
place where the last request ended: what was written there is found without looking back, however much has come
since. It follows from the transcript alone: a request ends where the reply to it begins.

    tools and system        what is the same in all runs
    before the last reply   where the last request ended: the hit
    before the last turn    where a request ended to which no reply was recorded
    the last turn           what the next request will find
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from remit.messages import Message

__all__ = ["MOST_MARKERS", "marked", "marker"]

MOST_MARKERS: Final = 4
"""In one request. Source: the provider's guide to prompt caching."""


def marker(ttl: Literal["5m", "1h"]) -> bytes:
    """What is set into a block, before its last brace."""
    lasts = b"" if ttl == "5m" else b',"ttl":"1h"'  # five minutes is what it means without a word
    return b',"cache_control":{"type":"ephemeral"' + lasts + b"}"


def marked(messages: Sequence[Message], most: int) -> list[int]:
    """The indexes of the messages whose end is marked, ascending; at most so many.

    Shape: only what came after the last reply is looked at, so that it costs the same at every step.
    """
    last = len(messages) - 1
    reply = last
    while reply >= 0 and messages[reply].role != "assistant":
        reply -= 1
    by_need = [last, reply - 1]
    if last - 1 > reply:
        by_need.append(last - 1)
    return sorted({at for at in by_need[: max(most, 0)] if at >= 0})
