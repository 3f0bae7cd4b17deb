"""What the server has already, where it keeps the conversation (`ResponsesCodec(state="server")`).

Behind a reply that the server keeps stands its id, and a digest of what it was a reply to. A request goes on from
the newest of them: it names the response and holds what came after it, so that a request that is sent again holds
the same once more. Where the server does not know the response any more, the whole history goes out once, and the
reply to that is the next to go on from.

A response is gone on from only where the history before it is still what it was a reply to: the server would go
on from what it has, and not from what was elided, cut away or edited here.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from remit.messages import Message, Opaque
from remit.models.wires.responses.items import (
    WHOLE,
    Fields,
    encoded,
    read,
    string_of,
)
from remit.transcript import Transcript

__all__ = ["Held", "Kept", "held_block"]

_DIGITS: Final = 16


class Held(msgspec.Struct, frozen=True):
    """A response that the server keeps."""

    index: int
    """Of the message that it is."""
    response_id: str


def held_block(issuer: str, response_id: str, behind: str) -> Opaque:
    """What stands behind a reply that the server keeps. `behind` is the digest of what it answers."""
    return Opaque(issuer, encoded({"type": WHOLE, "response_id": response_id, "behind": behind}))


class Kept:
    """The responses of one conversation that the server keeps, as far as they can be gone on from."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._first = 0
        """Index of the first message whose response may still be there."""
        self._behind = [b""]
        """Digests of the history before each message, and of all of it."""
        self._of: tuple[Transcript | None, int] = (None, 0)
        self._last: Message | None = None

    def newest(self, transcript: Transcript) -> Held | None:
        """The response to go on from."""
        self._follow(transcript)
        for index in range(len(transcript) - 1, self._first - 1, -1):
            fields = self._said_behind(transcript[index])
            if fields is not None and fields.get("behind") == self.digest(index):
                response_id = string_of(fields, "response_id")
                if response_id:
                    return Held(index, response_id)
        self._first = len(transcript)
        return None

    def forget(self, messages: int) -> None:
        """The server has forgotten what came in so many leading messages."""
        self._first = messages

    def digest(self, messages: int) -> str:
        """Of so many leading messages of the transcript that was asked about last."""
        return self._behind[messages].hex()[:_DIGITS]

    def _follow(self, transcript: Transcript) -> None:
        """Take what is new; all of it where something was changed."""
        of = (transcript, len(transcript.breaks))
        if self._of[0] is not transcript or self._of[1] != of[1]:
            self._of, self._behind = of, [b""]
        known = len(self._behind) - 1
        if known and transcript[known - 1] is not self._last:
            self._behind.pop()  # the newest was added to, which nobody has seen
        for message in transcript[len(self._behind) - 1 :]:
            digest = hashlib.sha256(self._behind[-1])
            digest.update(encoded(message))
            self._behind.append(digest.digest())
            self._last = message

    def _said_behind(self, message: Message) -> Fields | None:
        fields = read(message.content[-1], self._issuer)
        return fields if fields is not None and fields.get("type") == WHOLE else None
