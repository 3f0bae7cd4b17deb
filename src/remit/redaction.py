"""What tools return and raise, as the host wants it seen: its `redact=` is applied to every text of it.

Before anything is cut, kept as an artifact, recorded, told or sent. It fails closed: where the host's function fails,
nothing of the result goes any further. Texts are redacted wherever they stand, in bytes and in media that hold UTF-8
too; a picture is none. The handles of what was taken out of a text are left alone, or they would lead nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from remit.artifacts import Artifact
from remit.messages import Media, ResultContent, Text
from remit.render import Rendered, render_text

__all__ = ["Redactor", "both", "redacted"]

Redactor: TypeAlias = Callable[[str], str]
"""From a text to the text that may be seen. Called from worker threads, several at a time."""


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


class _Redaction:
    """One result on its way through."""

    def __init__(self, redact: Redactor, found: tuple[Artifact, ...]) -> None:
        self._redact = redact
        self.found = [self._artifact(each) for each in found]
        pairs = zip(found, self.found, strict=True)
        self._handles = {old.handle: new.handle for old, new in pairs}
        self._split = re.compile("(" + "|".join(self._handles) + ")")

    def block(self, block: ResultContent) -> tuple[ResultContent, ...]:
        if isinstance(block, Media):
            name = None if block.name is None else self._text(block.name)
            data = self._bytes(block.data)
            if not data:
                return (Text(f"({block.media_type}, 0 bytes)"),)
            return (Media(block.media_type, data, name),)
        text = block.text
        if self._handles:
            parts = self._split.split(text)
            text = "".join([self._handles.get(part) or self._text(part) for part in parts])
        else:
            text = self._text(text)
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
        return self._text(text).encode(errors="replace")

    def _text(self, text: str) -> str:
        if not text:
            return text
        made = self._redact(text)
        if not isinstance(made, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the host's own code
            raise TypeError(f"redact= returned {type(made).__name__}, not a text")
        return made
