"""The messages of a body as turns: what one side says until the other does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from remit.testing.protocol.reading import Body, mappings

__all__ = ["THINKING", "Place", "Turn", "blocks_of", "turns_of", "version_of"]

THINKING: Final = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class Place:
    """A block of a request and where it stands."""

    at: int
    n: int
    block: Body

    @property
    def kind(self) -> str:
        return str(self.block.get("type"))


@dataclass(slots=True)
class Turn:
    """Consecutive messages of one side."""

    role: str
    places: list[Place] = field(default_factory=list[Place])

    def of(self, *kinds: str) -> list[Place]:
        return [place for place in self.places if place.kind in kinds]


def turns_of(messages: Sequence[Body]) -> list[Turn]:
    turns: list[Turn] = []
    for at, message in enumerate(messages):
        role = str(message["role"])
        if role == "system":
            continue
        if not turns or turns[-1].role != role:
            turns.append(Turn(role))
        turns[-1].places += [Place(at, n, block) for n, block in enumerate(blocks_of(message))]
    return turns


def blocks_of(message: Body) -> list[Body]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else mappings(content)


_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")


def version_of(body: Body) -> tuple[int, int]:
    """Of the model; the newest for a name that says none."""
    found = _VERSION.search(str(body["model"]))
    return (int(found[1]), int(found[2] or 0)) if found else (99, 0)
