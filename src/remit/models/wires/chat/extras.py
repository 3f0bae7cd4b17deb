"""What a server says beyond text and calls, kept so that it can go back as it came (T7).

Three forms of opaque block, by the `type` of their JSON:

    remit.message   fields of the whole message, such as `reasoning_content`
    remit.beside    fields of the call that stands before it, such as `extra_content`
    anything else   a part of the message's content, such as Mistral's `thinking`

A stream brings them in pieces: texts are joined, lists of details by their index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from remit.messages import Opaque
from remit.models.wires.dialects import ChatDialect

if TYPE_CHECKING:
    from remit.models.wires.chat.decode import MessagePiece

__all__ = ["BESIDE", "MESSAGE", "Extras", "beside", "whole_message"]

MESSAGE: Final = "remit.message"
BESIDE: Final = "remit.beside"

_JOINED: Final = frozenset({"text", "summary", "data", "thinking"})
"""Fields of a detail that come in pieces; of any other the last one counts."""


def beside(dialect: ChatDialect, fields: Mapping[str, msgspec.Raw]) -> Opaque:
    """What belongs to the call before it."""
    return Opaque(dialect.name, msgspec.json.encode({"type": BESIDE, **fields}))


def whole_message(dialect: ChatDialect, fields: Mapping[str, Any]) -> Opaque:
    """What belongs to the whole message."""
    return Opaque(dialect.name, msgspec.json.encode({"type": MESSAGE, **fields}))


class Extras:
    """The fields of one message that have to come back."""

    def __init__(self, dialect: ChatDialect) -> None:
        self._dialect = dialect
        self._once: dict[str, msgspec.Raw] = {}
        """As they came, where they came in one piece: byte for byte."""
        self._pieces: dict[str, list[Any]] = {}
        """Where they came in more."""
        self._parts: list[dict[str, Any]] = []
        """Parts of the content that are no text."""

    def take(self, piece: MessagePiece) -> int:
        """Keep what a piece of the message brings. Returns how much of it there was.

        Errors: `msgspec.DecodeError` for what is no JSON.
        """
        found = 0
        for name in _FIELDS:
            raw: msgspec.Raw = getattr(piece, name)
            if not len(raw) or bytes(raw) == b"null":
                continue
            found += 1
            if name not in self._dialect.reasoning:
                continue
            if name in self._pieces:
                self._pieces[name].append(msgspec.json.decode(raw))
            elif name in self._once:
                self._pieces[name] = [
                    msgspec.json.decode(self._once.pop(name)),
                    msgspec.json.decode(raw),
                ]
            else:
                self._once[name] = msgspec.Raw(bytes(raw))
        return found

    def text_of(self, content: Any) -> Iterator[str]:
        """The texts of a message's content; parts of another kind are kept."""
        if isinstance(content, str):
            yield content
            return
        for part in cast("list[Any]", content) if isinstance(content, list) else ():
            if not isinstance(part, dict):
                continue
            table = cast("dict[str, Any]", part)
            text = table.get("text")
            if table.get("type") == "text" and isinstance(text, str):
                yield text
            elif table.get("type") in self._dialect.parts:
                self._parts.append(table)

    def blocks(self) -> Iterator[Opaque]:
        """What there is, as opaque blocks."""
        for part in _parts_together(self._parts):
            yield Opaque(self._dialect.name, msgspec.json.encode(part))
        fields: dict[str, Any] = {**self._once}
        for name, pieces in self._pieces.items():
            fields[name] = _together(pieces)
        if fields:
            yield whole_message(self._dialect, {k: fields[k] for k in _FIELDS if k in fields})


_FIELDS: Final = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "extra_content",
    "thought_signature",
)


def _together(pieces: list[Any]) -> Any:
    """One value of the pieces in which a stream brought it: texts and lists are joined, else the last counts."""
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    if all(isinstance(piece, list) for piece in pieces):
        return _joined([part for piece in pieces for part in piece])
    return pieces[-1]


def _parts_together(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts of the content; pieces of one kind that follow each other are one part (Mistral's `thinking`)."""
    made: list[dict[str, Any]] = []
    for kind, pieces in groupby(parts, key=lambda part: str(part["type"])):
        together = list(pieces)
        lists = [part.get(kind) for part in together]
        if all(isinstance(each, list) for each in lists):
            held = [piece for each in lists for piece in cast("list[Any]", each)]
            made.append({**together[0], kind: _joined(held)})
        else:
            made += together
    return made


def _joined(parts: list[Any]) -> list[Any]:
    """Parts of a list that belong together, by their index and type, as one each."""
    made: list[Any] = []
    at: dict[tuple[str, str], int] = {}
    texts: dict[tuple[int, str], list[str]] = {}
    for part in parts:
        if not isinstance(part, dict):
            made.append(part)
            continue
        table = cast("dict[str, Any]", part)
        where = at.setdefault((repr(table.get("index")), repr(table.get("type"))), len(made))
        if where == len(made):
            made.append({})
        for name, value in table.items():
            if name in _JOINED and isinstance(value, str):
                texts.setdefault((where, name), []).append(value)
            if value is not None or name not in made[where]:
                made[where][name] = value
    for (where, name), pieces in texts.items():
        made[where][name] = "".join(pieces)
    return made
