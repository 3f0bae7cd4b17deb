"""What tools return and raise, as the host wants it seen: its `redact=` is applied to every text of it.

Before anything is cut, kept as an artifact, recorded, told or sent. It fails closed: where the host's function fails,
nothing of the result goes any further. Texts are redacted wherever they stand, in bytes and in media that hold UTF-8
too; a picture is none. What is spelled with escapes, as in JSON, is redacted as it reads, too: a secret of two lines
is one there as well. The handles of what was taken out of a text are left alone, or they would lead nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

import msgspec

from remit.artifacts import Artifact
from remit.canonical import decode, encode, json_text, well_formed
from remit.messages import Media, ResultContent, Text
from remit.render import Rendered, render_text

__all__ = [
    "WITHHELD",
    "Redactor",
    "Withheld",
    "both",
    "closed",
    "redacted",
    "redacted_json",
    "redacted_text",
]

T = TypeVar("T")

Redactor: TypeAlias = Callable[[str], str]
"""From a text to the text that may be seen. Called from worker threads, several at a time."""

WITHHELD: Final = "the result is withheld, because its redaction failed."
"""What is said instead of it."""

_MAX_LAYERS = 3
"""JSON in a string of JSON in a string of JSON."""
_PIECE = re.compile(r'(?:[^"\\]++|\\.)++', re.DOTALL)
"""What stands between two quotes, escaped ones aside: a string, or what is between two strings."""
_ESCAPE = re.compile(r"""(?:\\u[0-9A-Fa-f]{4})+|\\x[0-9A-Fa-f]{2}|\\["'\\/bfnrt]""")
"""As JSON has them, and as Python quotes in the words of an exception."""


def both(inner: Redactor | None, outer: Redactor | None) -> Redactor | None:
    """One after the other: a run inside a call keeps what the runs around it keep."""
    if inner is None or outer is None or inner == outer:
        return inner or outer
    return lambda text: outer(inner(text))


def redacted(rendered: Rendered, redact: Redactor) -> Rendered:
    """The result with every text of it redacted, well-formed as before.

    Errors: whatever the host's function raises, `TypeError` where it gives no text.
    """
    work = _Redaction(redact, rendered.found)
    content = [made for block in rendered.content for made in work.block(block)]
    return msgspec.structs.replace(rendered, content=tuple(content), found=tuple(work.found))


def redacted_text(text: str, redact: Redactor) -> str:
    """A text, redacted as it reads. Errors: as `redacted`."""
    return _Redaction(redact).text(text)


class Withheld(msgspec.Struct, frozen=True):
    """What a redactor that failed leaves: nothing is to be shown."""

    kind: str
    """The kind of its error; the words may hold what was to be redacted."""


def closed(work: Callable[[], T]) -> T | Withheld:
    """What work with a redactor comes to. It fails closed: whatever the host's code raises, nothing is shown."""
    try:
        return work()
    except KeyboardInterrupt:  # the user's
        raise
    except BaseException as error:  # noqa: BLE001 - the host's own code, entered here for all of remit
        return Withheld(type(error).__name__)


def redacted_json(text: str, redact: Redactor) -> str:
    """A JSON text, redacted, as a JSON text: a string, if what is left is none. Errors: as `redacted`."""
    made = _Redaction(redact).text(text)
    try:
        return text if made == text else encode(decode(made.encode())).decode()
    except (ValueError, RecursionError):
        return json_text(well_formed(made))


class _Redaction:
    """One result on its way through."""

    def __init__(self, redact: Redactor, found: tuple[Artifact, ...] = ()) -> None:
        self._redact = redact
        self.found = [self._artifact(each) for each in found]
        pairs = zip(found, self.found, strict=True)
        self._handles = {old.handle: new.handle for old, new in pairs}
        self._split = re.compile("(" + "|".join(self._handles) + ")")

    def block(self, block: ResultContent) -> tuple[ResultContent, ...]:
        if isinstance(block, Media):
            name = None if block.name is None else self.text(block.name)
            data = self._bytes(block.data)
            if not data:
                return (Text(f"({block.media_type}, 0 bytes)"),)
            return (Media(block.media_type, data, name),)
        text = block.text
        if self._handles:
            parts = self._split.split(text)
            text = "".join([self._handles.get(part) or self.text(part) for part in parts])
        else:
            text = self.text(text)
        if text == block.text:
            return (block,)
        again = render_text(text)  # what is left may be blank
        self.found += again.found
        return again.content

    def _artifact(self, artifact: Artifact) -> Artifact:
        data = self._bytes(artifact.data)
        return artifact if data == artifact.data else Artifact.of(data, artifact.media_type)

    def _bytes(self, data: bytes) -> bytes:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        return self.text(text).encode(errors="replace")

    def text(self, text: str, layers: int = _MAX_LAYERS) -> str:
        """A text, redacted as it stands and as it reads."""
        made = self._redacted(text)
        if not layers or "\\" not in made:
            return made
        made = _PIECE.sub(lambda found: self._spelled(found[0], layers - 1), made)
        # What goes over a quote, as Python spells it, is in no single piece.
        return self._spelled(made, 0) if '"' in made else made

    def _spelled(self, piece: str, layers: int) -> str:
        """A piece with escapes: as it is, unless what it reads as holds more to be redacted than how it is spelled."""
        reads = _unescaped(piece) if "\\" in piece else piece
        if reads == piece:
            return piece
        made = self.text(reads, layers)
        if made == reads or made == _unescaped(self._redacted(piece)):
            return piece
        return json_text(made)[1:-1]

    def _redacted(self, text: str) -> str:
        if not text:
            return text
        made = self._redact(text)
        if not isinstance(made, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the host's own code
            raise TypeError(f"redact= returned {type(made).__name__}, not a text")
        return made


def _unescaped(text: str) -> str:
    """What it reads as. What is no escape stays as it is."""
    return _ESCAPE.sub(_read, text)


def _read(escape: re.Match[str]) -> str:
    spelled = escape[0]
    if spelled == "\\'":
        return "'"
    if spelled.startswith("\\x"):
        spelled = f"\\u00{spelled[2:]}"
    return json.loads(f'"{spelled}"')
