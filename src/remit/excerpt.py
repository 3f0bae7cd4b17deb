"""A text of which a part is shown: how it is cut, and what is said about the rest.

Pure arithmetic on texts and offsets. An `Excerpt` holds what is shown and where it stood; its `text` says in
words how much that is and names the next step, which works: `read_artifact` with just these numbers gives
just what is missing. Nothing here knows where the whole is kept. Above: `shown`, which cuts results, and
`paging`, which reads on.

The words around a cut are a part of what the journal restores (`Kept.form` names them): to word them anew
is a new form.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, TypeAlias
from unicodedata import combining

import msgspec

from remit.canonical import decode, encode

__all__ = [
    "CHARS_PER_TOKEN",
    "MIN_CHARS",
    "MIN_RESULT_TOKENS",
    "Excerpt",
    "Form",
    "chars_of",
    "fit",
    "handle_in",
    "read_frame",
    "shares",
]

CHARS_PER_TOKEN = 4
"""The estimate by which limits in tokens become limits in characters."""

MIN_RESULT_TOKENS = 50
"""A lower limit counts as this one: there must be room to say what was cut."""

MIN_CHARS = MIN_RESULT_TOKENS * CHARS_PER_TOKEN

Form: TypeAlias = Literal["text", "json", "page"]
"""How the cut is told: a line between head and tail, an object around them, a line behind a page."""

_NEAR = 16
"""Characters by which a cut gives way to a base and its marks; a text may consist of marks alone."""


def chars_of(tokens: int, per_token: float = CHARS_PER_TOKEN) -> int:
    """A limit in tokens as one in characters, at least `MIN_CHARS`."""
    return max(int(tokens * per_token), MIN_CHARS)


class Excerpt(msgspec.Struct, frozen=True, gc=False):
    """A text that begins at `base` in an artifact, of which the head and the tail are shown."""

    head: str
    tail: str
    total: int
    """Characters of the text."""
    form: Form
    handle: str
    """The artifact in which it stands whole."""
    base: int = 0
    """Where the text begins in the artifact, in characters."""
    start: int = 0
    """The same in bytes of UTF-8."""
    of: int = 0
    """Characters of the whole artifact, for a page."""

    @property
    def shown(self) -> int:
        """Characters of the text that are shown."""
        return len(self.head) + len(self.tail)

    @property
    def text(self) -> str:
        """What the model gets: the parts, and the way to what is missing."""
        shown = self.shown
        missing = self.total - shown
        if self.form == "json":
            return _frame(self, shown, missing)
        if self.form == "page":
            return f"{self.head}{_page_end(self, missing)}"
        return f"{self.head}{_marker(self, shown, missing)}{self.tail}"

    def within(self, limit: int) -> Excerpt:
        """The same with less shown, so that `text` has at most `limit` characters.

        Shape: the head is a prefix of this head, the tail a suffix of this tail; two thirds of the room go to
        the head. A `limit` below `MIN_CHARS` leaves too little room for the words alone.
        """
        if len(self.text) <= limit:
            return self
        if self.form == "json":
            head, tail = self._quoted_cut(limit)
        elif self.form == "page":
            head, tail = self._page_cut(limit), len(self.tail)
        else:
            room = max(limit - len(_marker(self, self.total, self.total)), 0)
            head = min(room * 2 // 3, len(self.head))
            tail = len(self.tail) - min(room - room * 2 // 3, len(self.tail))
            head, tail = _whole(self.head, head, -1), _whole(self.tail, tail, +1)
        return msgspec.structs.replace(self, head=self.head[:head], tail=self.tail[tail:])

    def _quoted_cut(self, limit: int) -> tuple[int, int]:
        room = max(limit - len(_frame(_emptied(self), self.total, self.total)), 0)
        begin = room * 2 // 3
        head, tail = self.head, self.tail
        most = range(min(room, len(head)) + 1)
        end = bisect_right(most, begin, key=lambda n: _quoted(head, 0, n)) - 1
        most = range(min(room, len(tail)) + 1)
        left = bisect_right(
            most, room - begin, key=lambda n: _quoted(tail, len(tail) - n, len(tail))
        )
        return _whole(head, end, -1), _whole(tail, len(tail) + 1 - left, +1)

    def _page_cut(self, limit: int) -> int:
        """Where a page ends: a shorter page is a page too. It never ends before it has begun."""
        room = max(limit - len(_page_end(_emptied(self), self.total)), 1)
        end = min(room, len(self.head))
        return _whole(self.head, end, -1) or end


def fit(text: str, limit: int, *, form: Form, handle: str) -> Excerpt | None:
    """What of a text fits into `limit` characters; None where it fits as it stands.

    Shape: no character is split, nor a base parted from its marks; JSON gives JSON,
    `{"truncated": {...}, "head": "...", "tail": "..."}`.
    """
    total = len(text)
    if total <= limit:
        return None
    return Excerpt(text[:limit], text[-limit:], total, form, handle).within(limit)


def shares(sizes: Sequence[int], total: int) -> tuple[int, ...]:
    """Share `total` out among those who want `sizes`: small ones get what they want, large ones the rest alike.

    Shape: one share for each size, none above its size; together they are `total`, unless all get what they
    want. Those that get less than they want differ by one character at most.
    """
    left, waiting = max(total, 0), len(sizes)
    granted = [0] * waiting
    for index in sorted(range(waiting), key=lambda index: sizes[index]):
        granted[index] = min(sizes[index], left // waiting)
        left -= granted[index]
        waiting -= 1
    return tuple(granted)


# --- words ---------------------------------------------------------------------------------------


def _marker(excerpt: Excerpt, shown: int, missing: int) -> str:
    step = _step(excerpt.handle, excerpt.base + len(excerpt.head), missing)
    return f"\n[... {shown} of {excerpt.total} characters shown; more: {step} ...]\n"


def _page_end(page: Excerpt, missing: int) -> str:
    end = page.base + len(page.head)
    shown = f"characters {page.base} to {end} of {page.of}"
    if missing:
        return f"\n[... {shown}; next: {_step(page.handle, end, missing)} ...]"
    return f"\n[... {shown}{': the end' if end == page.of else ''} ...]"


def _step(handle: str, offset: int, length: int) -> str:
    return f'read_artifact(handle="{handle}", offset={offset}, length={length})'


def _frame(excerpt: Excerpt, shown: int, missing: int) -> str:
    truncated = {
        "shown": shown,
        "total": excerpt.total,
        "handle": excerpt.handle,
        "offset": excerpt.base + len(excerpt.head),
        "length": missing,
    }
    return encode({"truncated": truncated, "head": excerpt.head, "tail": excerpt.tail}).decode()


_WHERE = (
    r'read_artifact\(handle="(?P<handle>[^"]*)", offset=(?P<offset>\d+), length=(?P<missing>\d+)\)'
)
_MARKED = re.compile(
    rf"\n\[\.\.\. (?P<shown>\d+) of (?P<total>\d+) characters shown; more: {_WHERE} \.\.\.\]\n"
)
_PAGE_END = re.compile(
    rf"\n\[\.\.\. characters (?P<base>\d+) to (?P<end>\d+) of \d+(?:: the end|; next: {_WHERE})? \.\.\.\]\Z"
)


def handle_in(text: str, handles: Sequence[str]) -> str | None:
    """Which of these artifacts a text is an excerpt of; None where it stands as it is.

    Shape: `handles` are those that its result refers to. A text that only names one is no excerpt of it, nor is
    one that repeats the words of another excerpt: their numbers are about this text, or it is none.
    """
    handle = _framed(text) if text.startswith('{"truncated":') else _marked(text) or _paged(text)
    if handle == _UNNAMED:
        return handles[0] if len(handles) == 1 else None
    return handle if handle in handles else None


_UNNAMED = ""
"""For the last page of an artifact, which names none."""


def _marked(text: str) -> str | None:
    for found in _MARKED.finditer(text):
        shown, missing = int(found["shown"]), int(found["missing"])
        stands_here = found.start() == int(found["offset"]) and shown == len(text) - len(found[0])
        if stands_here and shown + missing == int(found["total"]):
            return found["handle"]
    return None


def _paged(text: str) -> str | None:
    found = _PAGE_END.search(text)
    if found is None or int(found["end"]) - int(found["base"]) != found.start():
        return None
    return found["handle"] or _UNNAMED


def _framed(text: str) -> str | None:
    try:
        framed = decode(text.encode())
        cut, head, tail = framed["truncated"], framed["head"], framed["tail"]
        stands_here = (
            cut["offset"] == len(head)
            and cut["shown"] == len(head) + len(tail)
            and cut["shown"] + cut["length"] == cut["total"]
        )
        return cut["handle"] if stands_here else None
    except (
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ):  # words of a tool that begin like ours
        return None


def read_frame(text: str) -> tuple[str, str]:
    """Head and tail of what an excerpt in the form of JSON says."""
    framed = decode(text.encode())
    return framed["head"], framed["tail"]


def _emptied(excerpt: Excerpt) -> Excerpt:
    """Its words with the largest numbers that they can come to hold, and nothing between them."""
    return msgspec.structs.replace(
        excerpt, head="", tail="", base=excerpt.base + excerpt.total, of=max(excerpt.of, 1)
    )


# --- cutting -------------------------------------------------------------------------------------

_JOINER = "\u200d"
_ESCAPED = ('"', "\\", "\n", "\r", "\t")


def _quoted(text: str, start: int, end: int) -> int:
    """Characters of a piece of JSON text once it is quoted again."""
    return end - start + sum([text.count(char, start, end) for char in _ESCAPED])


def _whole(text: str, at: int, step: int) -> int:
    """The nearest cut at or beyond `at` that leaves a base and its marks together."""
    for place in range(at, at + _NEAR * step, step):
        if not 0 < place < len(text) or not (_joins(text[place]) or text[place - 1] == _JOINER):
            return place
    return at


def _joins(char: str) -> bool:
    return (
        combining(char) > 0 or char in "\u200d\ufe0e\ufe0f" or "\U0001f3fb" <= char <= "\U0001f3ff"
    )
