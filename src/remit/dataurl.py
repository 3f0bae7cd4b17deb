"""Media that travel inside of text: `data:image/png;base64,...` is found and taken out (X3).

As text such a picture costs tens of thousands of tokens and nobody sees it. Found are URLs as tools write
them: also escaped in JSON (`\\/`), percent-encoded, or wrapped into lines. Runs of up to 100 characters stay:
an icon in a style sheet is no picture.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator

__all__ = ["MAX_RUN_CHARS", "has_media", "without_media"]

MAX_RUN_CHARS = 100
"""Base64 of a data URL that may stay where it is."""

_MARK_TEXT = ";base64,"
_MARK = re.compile(_MARK_TEXT, re.IGNORECASE | re.ASCII)
_FEW = 200
_STEP_CHARS = 500_000
_BEGIN = re.compile(r"data:(?P<type>[^;,\s\"'<>()]{0,120})(?:;[^;,]*)*\Z", re.IGNORECASE)
_NEXT = "data:"
_BEGIN_CHARS = 200
"""Of a data URL before its mark: type and parameters."""
_PIECE = re.compile(r"[A-Za-z0-9+/_=-]*")
_ESCAPED = re.compile(r"\\{1,8}/|(?:\\{1,8}u00|%)(?:2[BbFf]|3[Dd])")
_NEWLINE = re.compile(r"(?:%0[Dd])?%0[Aa]|(?:\\{1,8}r)?\\{1,8}n|\r?\n[ \t]*")
_LINE_CHARS = range(60, 101, 4)
"""How long a line of wrapped base64 is: 64 and 76 are customary."""
_PLAIN = {"b": "+", "f": "/", "/": "/", "d": "="}
"""What is escaped, by the last character of what stands for it."""
_STANDARD = str.maketrans("-_", "+/", "=")


def has_media(text: str) -> bool:
    """Whether there may be a data URL in it. Cheap, and right wherever it says no."""
    at = -1
    # From semicolon to semicolon is many times faster than any search, as long as there are few.
    for _ in range(_FEW):
        at = text.find(";", at + 1)
        if at < 0 or text[at : at + len(_MARK_TEXT)].lower() == _MARK_TEXT:
            return at >= 0
    return any(_marks(text, at))


def _marks(text: str, start: int = 0) -> Iterator[re.Match[str]]:
    """Every mark, looked for in steps: one search would hold up every thread."""
    for at in range(start, len(text), _STEP_CHARS):
        # Two steps overlap by less than a mark, so that each is found in just one of them.
        yield from _MARK.finditer(text, at, at + _STEP_CHARS + len(_MARK_TEXT) - 1)


def without_media(text: str, note: Callable[[bytes, str], str]) -> str:
    """The text with what `note` says in the place of every data URL.

    `note` gets the data and the media type. Linear in the text.
    """
    if not has_media(text):
        return text
    parts: list[str] = []
    done = 0
    for mark in _marks(text):
        if mark.start() < done:
            continue  # inside of what was taken out
        since = max(done, mark.start() - _BEGIN_CHARS)
        since = max(
            since, text.rfind(",", since, mark.start()) + 1
        )  # there is none in what begins a URL
        begin = _BEGIN.search(text, since, mark.start())
        if begin is None:
            continue
        end, run = _run(text, mark.end())
        if len(run) > MAX_RUN_CHARS:
            media_type = (begin["type"] or "text/plain").replace("\\", "")
            parts += [text[done : begin.start()], note(_decoded(run), media_type)]
            done = end
    parts.append(text[done:])
    return "".join(parts)


def _run(text: str, start: int) -> tuple[int, str]:
    """Where the base64 that begins here ends, and its characters without what escapes them."""
    pieces: list[str] = []
    at = line = start
    width = 0
    while True:
        piece = _PIECE.match(text, at)
        if piece is not None and piece.end() > at:
            at = piece.end()
            if text.startswith(_NEXT, at - len(_NEXT) + 1):  # the next URL follows without a gap
                at -= len(_NEXT) - 1
            pieces.append(text[piece.start() : at])
        if (escaped := _ESCAPED.match(text, at)) is not None:
            pieces.append(_PLAIN[escaped[0][-1].lower()])
            at = escaped.end()
            continue
        newline = _NEWLINE.match(text, at)
        width = width or at - line
        # Wrapped lines are all of one width; a shorter one is the last, and what follows is text.
        if newline is None or at - line != width or width not in _LINE_CHARS:
            return at, "".join(pieces)
        at = line = newline.end()


def _decoded(run: str) -> bytes:
    digits = run.translate(_STANDARD)
    if len(digits) % 4 == 1:  # it was cut in the middle of a byte
        digits = digits[:-1]
    return base64.b64decode(digits + "=" * (-len(digits) % 4))
