"""Messages as they were encoded when they first went out, and request bodies made of them (J1, X1).

One `Pieces` belongs to one run. A message is encoded when it is first seen and never again; a body is one copy
of what is there, whatever the length of the history. What was sent changes in one way only, an elision, and
then everything from the first changed message on is encoded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from remit.messages import Message
from remit.transcript import Transcript

__all__ = ["Piece", "Pieces"]


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One message of a transcript on the wire."""

    data: bytes
    """One JSON value or several, joined by commas; empty where nothing of the message goes out."""
    mark: int | None = None
    """Where in `data` a cache marker may be set; None where it may not."""


class Pieces:
    """The encoded messages of one transcript, in order."""

    def __init__(self, encode: Callable[[int, Message], Piece]) -> None:
        """`encode` is given the index of a message and the message; its result depends on nothing else."""
        self._encode = encode
        self._buffer = bytearray()
        """All pieces, joined by commas."""
        self._messages: list[Message] = []
        self._ends: list[int] = []
        """Where the piece of each message ends in the buffer."""
        self._marks: list[int | None] = []
        self._of: Transcript | None = None
        self._breaks = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def size(self) -> int:
        """Bytes of all pieces with their commas."""
        return len(self._buffer)

    def take(self, transcript: Transcript) -> int:
        """Encode what is new. Returns how many leading messages stand as they did."""
        kept = self._unchanged(transcript)
        self.forget(kept)
        messages, buffer = transcript[kept:], self._buffer
        for index, message in enumerate(messages, kept):
            piece = self._encode(index, message)
            if piece.data and buffer:
                buffer += b","
            start = len(buffer)
            buffer += piece.data
            self._messages.append(message)
            self._ends.append(start + len(piece.data))
            self._marks.append(None if piece.mark is None else start + piece.mark)
        self._of, self._breaks = transcript, len(transcript.breaks)
        return kept

    def forget(self, kept: int) -> None:
        """Drop all but so many leading messages: they will be encoded anew."""
        if kept < len(self._messages):
            del self._buffer[self._ends[kept - 1] if kept else 0 :]
            del self._messages[kept:], self._ends[kept:], self._marks[kept:]

    def mark_of(self, index: int) -> int | None:
        """Where in the whole a cache marker of the message with this index may be set."""
        return self._marks[index]

    def end_of(self, index: int) -> int:
        """Where in the whole the message with this index ends."""
        return self._ends[index]

    def joined(
        self,
        head: bytes,
        tail: bytes,
        *,
        first: int = 0,
        inserts: Sequence[tuple[int, bytes]] = (),
    ) -> bytes:
        """A body: head, the messages from index `first` on, tail. One copy.

        `inserts` are bytes to be set in at places as `mark_of` gives them, in ascending order.
        """
        start = self._ends[first - 1] if first else 0
        if first and start < len(self._buffer) and start:
            start += 1  # the comma that joined it to what came before
        with memoryview(self._buffer) as whole:
            parts: list[bytes | memoryview] = [head]
            for at, what in inserts:
                parts += (whole[start:at], what)
                start = at
            parts += (whole[start:], tail)
            body = b"".join(parts)
            for part in parts[1::2]:  # views, each between two that are bytes
                cast("memoryview", part).release()
        return body

    def _unchanged(self, transcript: Transcript) -> int:
        """How many leading messages are those that were encoded."""
        known = self._messages
        if transcript is self._of and len(transcript.breaks) == self._breaks:
            last = len(known) - 1
            # Only the newest can have been added to, while no request had gone out with it.
            same = last < 0 or transcript[last] is known[last]
            return last + 1 if same else last
        for index, (old, new) in enumerate(zip(known, transcript, strict=False)):
            if old is not new and old != new:
                return index
        return min(len(known), len(transcript))
