"""The providers' prompt caches, simulated: which beginning of a prompt was seen before, and how it is counted.

A beginning is known by a hash that runs over its parts. One server has one cache; nothing in it expires.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from remit.messages import Usage
from remit.testing.serve.turn import CHARS_PER_TOKEN, Segment

__all__ = ["AutomaticCache", "MarkedCache", "PromptCache"]

SHORTEST: Final = 1024
"""Tokens; below that nothing is cached."""


class PromptCache:
    """What both kinds share. `count` is asked once for a request that is accepted."""

    def __init__(self, *, shortest: int = SHORTEST) -> None:
        """`shortest`: no beginning with fewer tokens is cached."""
        self._shortest = shortest
        self._known: set[bytes] = set()

    def count(self, segments: Sequence[Segment]) -> Usage:
        """The prompt's tokens in disjoint parts; remembers the prompt."""
        raise NotImplementedError


class AutomaticCache(PromptCache):
    """OpenAI's: every beginning is remembered, and hits are counted in steps."""

    _STEP: Final = 128

    def count(self, segments: Sequence[Segment]) -> Usage:
        sizes, hashes = _beginnings(segments)
        total = sizes[-1] if sizes else 0
        hits = [n for n, each in enumerate(hashes) if each in self._known]
        read = sizes[hits[-1]] if hits else 0
        if self._shortest >= self._STEP:
            read -= read % self._STEP
        if read < self._shortest:
            read = 0
        self._known.update(hashes)
        return Usage(input=total - read, cache_read=read)


class MarkedCache(PromptCache):
    """Anthropic's: only what is marked is remembered, and a mark looks back over so many blocks."""

    _LOOK_BACK: Final = 20

    def count(self, segments: Sequence[Segment]) -> Usage:
        sizes, hashes = _beginnings(segments)
        total = sizes[-1] if sizes else 0
        marks = [n for n, each in enumerate(segments) if each.mark and sizes[n] >= self._shortest]
        read = max((sizes[n] for mark in marks for n in self._hits(hashes, mark)), default=0)
        written = max((sizes[mark] for mark in marks), default=read) - read
        self._known.update([hashes[mark] for mark in marks])
        return Usage(input=total - read - written, cache_read=read, cache_write=written)

    def _hits(self, hashes: Sequence[bytes], mark: int) -> list[int]:
        first = max(0, mark - self._LOOK_BACK + 1)
        return [n for n in range(first, mark + 1) if hashes[n] in self._known]


def _beginnings(segments: Sequence[Segment]) -> tuple[list[int], list[bytes]]:
    """For each part: the tokens up to its end, and what the beginning up to there is known by."""
    sizes: list[int] = []
    hashes: list[bytes] = []
    running, chars = hashlib.sha256(), 0
    for segment in segments:
        running.update(len(segment.data).to_bytes(8, "big") + segment.data)
        chars += len(segment.data)
        sizes.append(-(-chars // CHARS_PER_TOKEN))
        hashes.append(running.digest())
    return sizes, hashes
