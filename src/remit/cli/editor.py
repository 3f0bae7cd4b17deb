"""One line that a person writes: what each key makes of it. A value with a cursor, and no terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from remit.analysis.cells import cells, visible
from remit.cli.keyboard import Press

__all__ = ["Editor"]

_LINE_END = "⏎"
"""Shown for a line end in what was pasted."""


def _without_word(text: str, at: int) -> tuple[str, int]:
    kept = text[:at].rstrip()
    kept = kept[: kept.rfind(" ") + 1]
    return kept + text[at:], len(kept)


_EDITS: Mapping[str, Callable[[str, int], tuple[str, int]]] = {
    "backspace": lambda text, at: (text[: max(0, at - 1)] + text[at:], max(0, at - 1)),
    "delete": lambda text, at: (text[:at] + text[at + 1 :], at),
    "cut to home": lambda text, at: (text[at:], 0),
    "cut to end": lambda text, at: (text[:at], at),
    "cut word": _without_word,
    "left": lambda text, at: (text, max(0, at - 1)),
    "right": lambda text, at: (text, min(len(text), at + 1)),
    "home": lambda text, _: (text, 0),
    "end": lambda text, _: (text, len(text)),
}
"""What keys make of a text and the place of the cursor in it."""


class Editor:
    """A line under way. `history` is what was said before, oldest first."""

    def __init__(self, history: Sequence[str] = (), *, secret: bool = False) -> None:
        self._texts = [*history, ""]
        self._place = len(self._texts) - 1
        self._at = 0
        self._secret = secret

    @property
    def text(self) -> str:
        return self._texts[self._place]

    @text.setter
    def text(self, text: str) -> None:
        self._texts[self._place] = text

    def take(self, press: Press) -> None:
        """What a key does; keys that end the line are whoever asks' business."""
        match press.name:
            case "text" | "paste":
                said = press.text.replace("\r\n", "\n").replace("\r", "\n")
                self.text = self.text[: self._at] + said + self.text[self._at :]
                self._at += len(said)
            case "up" | "down":
                step = -1 if press.name == "up" else 1
                self._place = min(len(self._texts) - 1, max(0, self._place + step))
                self._at = len(self.text)
            case name if edit := _EDITS.get(name):
                self.text, self._at = edit(self.text, self._at)
            case _:
                pass

    def shown(self, columns: int) -> tuple[str, int]:
        """The part of the line around the cursor that fits, and how many cells stand before the cursor."""
        before, after = self._seen(self.text[: self._at]), self._seen(self.text[self._at :])
        while cells(before) >= columns and before:
            before = before[1:]
        while cells(before) + cells(after) > columns and after:
            after = after[:-1]
        return before + after, cells(before)

    def _seen(self, text: str) -> str:
        return "*" * len(text) if self._secret else visible(text.replace("\n", _LINE_END))
