"""What the server has already, where it keeps the conversation (`ResponsesCodec(state="server")`).

Behind a reply that the server keeps stands its id. A request goes on from the newest of them: it names the
response and holds what came after it, so that a request that is sent again holds the same once more. Where the
server does not know the response any more, the whole history goes out once, and the reply to that is the next
to go on from.

A response is gone on from only where the server has seen what the history holds now: it stands where it stood
when it came, and nothing before it was changed since.
"""

from __future__ import annotations

import msgspec

from remit.messages import Message, Opaque
from remit.models.wires.responses.items import WHOLE, decoded, encoded, fields_of, string_of
from remit.transcript import Transcript

__all__ = ["Held", "Kept", "held_block"]


class Held(msgspec.Struct, frozen=True):
    """A response that the server keeps."""

    index: int
    """Of the message that it is."""
    response_id: str


def held_block(issuer: str, response_id: str, messages: int) -> Opaque:
    """What stands behind a reply that the server keeps. `messages` came before it."""
    return Opaque(
        issuer, encoded({"type": WHOLE, "response_id": response_id, "messages": messages})
    )


class Kept:
    """The responses of one conversation that the server keeps, as far as they can be gone on from."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._first = 0
        """Index of the first message whose response may still be there."""

    def newest(self, transcript: Transcript) -> Held | None:
        """The response to go on from."""
        for index in range(len(transcript) - 1, self._first - 1, -1):
            response_id = self._response_of(index, transcript[index])
            if response_id and not any(
                change.first < index < change.end for change in transcript.breaks
            ):
                return Held(index, response_id)
        self._first = len(transcript)
        return None

    def forget(self, messages: int) -> None:
        """The server has forgotten what came in so many leading messages."""
        self._first = messages

    def _response_of(self, index: int, message: Message) -> str:
        last = message.content[-1]
        if not (isinstance(last, Opaque) and last.issuer == self._issuer):
            return ""
        try:
            fields = fields_of(decoded(last.data))
        except ValueError:
            return ""
        if fields is None or fields.get("type") != WHOLE or fields.get("messages") != index:
            return ""
        return string_of(fields, "response_id")
