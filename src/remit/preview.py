"""One line for people: what a call was asked with and what it came to, as events tell it.

Bounded, and without anything that a terminal or a log would obey: the text comes from a model or from a tool's
source, and may be hostile. What the model is sent is not cut here: that is `render.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from remit.messages import ResultContent, Text

__all__ = ["MASK", "PREVIEW_CHARS", "masking", "preview", "preview_of"]

MASK = "***"
"""What is shown in place of a secret."""
PREVIEW_CHARS = 200
"""How long a preview is at most, in characters."""

_LOOKED_AT = 4 * PREVIEW_CHARS
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_VISIBLE = re.compile(r"\S")


def preview(text: str, *, hide: Sequence[str] = ()) -> str:
    """The beginning of a text as one line: printable characters only, runs of white space as one blank.

    `hide` are texts that are masked in it.
    """
    found = _VISIBLE.search(text)
    if found is None:
        return ""
    begin = found.start()
    head = text[begin : begin + _LOOKED_AT]
    if hide:
        # Far enough, so that none is cut at the end and its beginning shown.
        beyond = begin + _LOOKED_AT + max(map(len, hide))
        head = masking(text[begin:beyond], hide)[:_LOOKED_AT]
    line = " ".join(head.split()) if head.isprintable() else _printable(head)
    if len(line) <= PREVIEW_CHARS and begin + _LOOKED_AT >= len(text):
        return line
    return f"{line[: PREVIEW_CHARS - 1].rstrip()}\u2026"


def _printable(text: str) -> str:
    """Without escape sequences, controls and characters that turn or hide others."""
    plain = _ESCAPES.sub("", text)
    shown = "".join(c for c in plain if c.isprintable() or c.isspace())
    return " ".join(shown.split())


def masking(text: str, hide: Sequence[str]) -> str:
    """The text with these texts masked, the longest first."""
    for each in sorted(hide, key=len, reverse=True):
        text = text.replace(each, MASK)
    return text


def preview_of(content: Sequence[ResultContent], *, hide: Sequence[str] = ()) -> str:
    """The same of a result; media as their type and size."""
    parts: list[str] = []
    for block in content:
        if isinstance(block, Text):
            parts.append(block.text)
            if len(block.text) > _LOOKED_AT:
                break
        else:
            parts.append(f" [{block.media_type}, {len(block.data):,} bytes] ")
    return preview("".join(parts), hide=hide)
