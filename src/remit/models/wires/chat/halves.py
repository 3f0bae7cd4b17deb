"""Halves of characters. A server that cuts a text by UTF-16, as JavaScript counts it, may cut a character in two.

Each half then comes as an escape of its own, `\\ud83d` in one chunk and `\\ude00` in the next, and no reader of JSON
takes it. Here a half becomes a stand-in of the private use area, so that the chunk can be read; when the text is
put together, two halves side by side become their character and one alone the replacement character.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["joined", "open_end", "standing_in"]

_BASE: Final = 0x10_0000
"""A half is as far from its stand-in."""

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair: one character
    rb"|\\u(?P<half>[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)
_HALVES = re.compile("[\U0010d800-\U0010dfff]+")
_FIRST_HALF = re.compile("[\U0010d800-\U0010dbff]\\Z")


def standing_in(data: bytes) -> bytes:
    """JSON in which each half that stands alone is a character of its own."""

    def written(match: re.Match[bytes]) -> bytes:
        half = match["half"]
        return match[0] if half is None else chr(_BASE + int(half, 16)).encode()

    return _ESCAPES.sub(written, data)


def joined(text: str) -> str:
    """The text with characters for the stand-ins."""
    return text if text.isascii() else _HALVES.sub(_characters, text)


def open_end(text: str) -> int:
    """How many characters of the text are whole: the last one may wait for its other half."""
    return len(text) - 1 if _FIRST_HALF.search(text) else len(text)


def _characters(match: re.Match[str]) -> str:
    units = b"".join([(ord(each) - _BASE).to_bytes(2, "little") for each in match[0]])
    return units.decode("utf-16-le", "replace")
