"""A response before it is sent: a status, headers and the pieces of a body, each with the pause before it.

A value, so that a fault is a function from one to another (`faults.py`) and both ways of sending it, over a
socket and in memory, need know nothing of faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

__all__ = ["EVENT_STREAM", "JSON", "Frame", "Written", "in_frames"]

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"


class Frame(msgspec.Struct, frozen=True):
    """A piece that is sent at once: an event of a stream, or a body."""

    data: bytes
    pause: float = 0.0
    """Seconds before it; infinite where nothing more comes."""
    closing: bool = False
    """It says that the reply is over, or how it ended."""
    repeat: int = 1
    """It is sent so many times, with its pause before each."""


class Written(msgspec.Struct, frozen=True):
    """A response."""

    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({"content-type": JSON})
    """Names in lower case. How long the body is, the sender says."""
    frames: tuple[Frame, ...] = ()
    drops: bool = False
    """The connection breaks after the last frame, in the middle of the body."""
    raw: bool = False
    """The frames are the response as it stands, head and all; there is no status and no header."""

    @property
    def streams(self) -> bool:
        """Whether it is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join([frame.data for frame in self.frames])


def in_frames(
    opening: Sequence[bytes],
    blocks: Iterable[Sequence[bytes]],
    closing: Sequence[bytes],
    *,
    delay: float,
    between: float,
) -> tuple[Frame, ...]:
    """The events of a reply with their pauses.

    Units: `delay` is seconds before the first, `between` before each block but the first, and before what closes
    the reply.
    """
    frames: list[Frame] = []
    pause = delay

    def add(events: Sequence[bytes], *, closing: bool = False) -> None:
        nonlocal pause
        for event in events:
            frames.append(Frame(event, pause, closing))
            pause = 0.0

    add(opening)
    for number, events in enumerate(blocks):
        pause += between if number else 0.0
        add(events)
    pause += between
    add(closing, closing=True)
    return tuple(frames)
