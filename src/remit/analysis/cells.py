"""Text as a terminal shows it: made harmless, measured in cells, cut and wrapped.

What a model or a tool wrote is text and stays text. `visible` writes out as an escape whatever would act on a
terminal, reorder what stands beside it, or not be seen at all; everything that is displayed passes through
it. Widths are never underestimated: where terminals disagree about a character the wider answer counts, so
that a row which is to fit does fit.
"""

from __future__ import annotations

import unicodedata
from itertools import groupby

__all__ = ["cells", "clip", "cut", "one_line", "visible", "wrap"]

_TAB = "    "
_STACK = 8
"""Marks that may stand on one character; more of them would paint over their neighbours."""
_JOINERS = frozenset({0x200C, 0x200D})
"""They join emoji and the letters of some scripts, and order nothing."""
_PREPENDED = frozenset(
    {*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}
)
"""Signs that stand before a number: formally format characters, but they are seen."""
_EMOJI_STYLE = 0xFE0F
_WIDENED = frozenset(
    {*range(0x2630, 0x2638), *range(0x268A, 0x2690), *range(0x4DC0, 0x4E00)}
    | {*range(0x1D300, 0x1D357), *range(0x1D360, 0x1D377), *range(0x1F1E6, 0x1F200)}
)
"""Signs that newer tables than some Python's call wide, and the letters that flags are made of."""
_UNSEEN = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0}
    | set(range(0x180B, 0x1810))
    | set(range(0xFE00, 0xFE0F))
    | set(range(0xE0000, 0xE1000))
)
"""Letters and marks that no terminal shows: text could be hidden in them."""


def _escaped(code: int) -> str:
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_seen(code: int) -> bool:
    """Whether a character does nothing but stand in its place."""
    if code in _UNSEEN:
        return False
    category = unicodedata.category(chr(code))
    if category == "Cf":
        return code in _JOINERS or code in _PREPENDED
    if category == "Cn":  # newer than this Python's tables, or none at all
        return 0x10000 <= code < 0x40000 and code & 0xFFFE != 0xFFFE
    return category not in {"Cc", "Cs", "Zl", "Zp"}


class _Shown(dict[int, str]):
    """What is shown for each character; worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = chr(code) if _is_seen(code) else _escaped(code)
        return shown


class _Widths(dict[str, int]):
    """The cells of each character."""

    def __missing__(self, character: str) -> int:
        width = self[character] = _width(character)
        return width


def _width(character: str) -> int:
    category = unicodedata.category(character)
    if ord(character) == _EMOJI_STYLE:
        return 1  # it may widen a narrow sign
    if category in {"Mn", "Me"} or ord(character) in _JOINERS:
        return 0
    if category == "Cn" or ord(character) in _WIDENED:
        return 2
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


_SHOWN = _Shown({ord("\n"): "\n", ord("\t"): _TAB})
_WIDTHS = _Widths()


def visible(text: str) -> str:
    """The text, with everything that would act or hide written out; line ends stay.

    A carriage return before a line end is a part of it. Doing it twice changes nothing.
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").translate(_SHOWN)
    return text if text.isascii() else _unstacked(text)


def _unstacked(text: str) -> str:
    """Of a pile of marks only so many."""
    parts: list[str] = []
    for is_mark, run in groupby(text, key=lambda character: _WIDTHS[character] == 0):
        piece = "".join(run)
        if is_mark and len(piece) > _STACK:
            piece = piece[:_STACK] + "".join(_escaped(ord(mark)) for mark in piece[_STACK:])
        parts.append(piece)
    return "".join(parts)


def one_line(text: str) -> str:
    """The same on one line: whatever separates words is a space."""
    return " ".join(visible(text).split())


def cells(text: str) -> int:
    """How many cells a visible text takes, or more; never fewer."""
    return len(text) if text.isascii() else sum(map(_WIDTHS.__getitem__, text))


def _end(text: str, width: int, start: int = 0) -> int:
    """Where the piece that fits ends: with the last character whose cells fit, and the marks on it."""
    if text.isascii():
        return min(start + width, len(text))
    for index in range(start, len(text)):
        width -= _WIDTHS[text[index]]
        if width < 0:
            return index
    return len(text)


def cut(text: str, width: int, *, ellipsis: str = "…") -> str:
    """The beginning of a text and an ellipsis: at most so many cells."""
    room = width - cells(ellipsis)
    if room < 0:
        return text[: _end(text, max(0, width))]
    return text[: _end(text, room)].rstrip() + ellipsis


def clip(text: str, width: int, *, ellipsis: str = "…") -> str:
    """The text, or its beginning and an ellipsis: at most so many cells."""
    return text if _end(text, width) == len(text) else cut(text, width, ellipsis=ellipsis)


def wrap(text: str, width: int) -> list[str]:
    """One line of text as rows of at most so many cells; broken at spaces, and in words that are longer.

    Shape: at least one row, and of at least two cells. Spaces at a break are dropped, those at the beginning
    stay.
    """
    rows: list[str] = []
    start, width = 0, max(2, width)
    while (end := _end(text, width, start)) < len(text):
        space = text.rfind(" ", start, end + 1)
        if space > start and not text[start:space].isspace():
            end = space
        rows.append(text[start:end].rstrip())
        start = end
        while start < len(text) and text[start] == " ":
            start += 1
    if start < len(text) or not rows:
        rows.append(text[start:])
    return rows
