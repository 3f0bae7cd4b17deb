"""Append-only lines above a status that is drawn anew: the escape sequences of one terminal.

Nothing is placed by row and column of the window: a frame goes up over the rows of the last status, erases
from there, appends, and draws the status again. What was appended is ordinary scrollback. A window that gets
narrower may tear a status row in two where the terminal reflows; then a piece of it stays behind, since what
is not surely ours is never erased.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from remit.analysis.cells import visible
from remit.analysis.layout import Row, Style, plain

__all__ = ["NO_WINDOW", "Cursor", "Screen", "paint", "window_of"]

NO_WINDOW: Final = os.terminal_size((80, 24))
"""What counts where a terminal does not say how large it is."""

_SGR: dict[Style, str] = {
    "bold": "1",
    "dim": "2",
    "good": "32",
    "bad": "31",
    "warn": "33",
}
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_ERASE_BELOW = "\x1b[J"


class Cursor(NamedTuple):
    """Where a person writes: a row of the status, and the cells before it."""

    row: int
    column: int


def window_of(terminal: int) -> os.terminal_size:
    """Columns and rows of a terminal. One that says 0, as many do over a wire, does not know."""
    try:
        size = os.get_terminal_size(terminal)
    except (OSError, ValueError):
        return NO_WINDOW
    return size if size.columns > 0 and size.lines > 0 else NO_WINDOW


def paint(row: Row, *, colour: bool) -> str:
    """A row as a terminal takes it. The only place that writes escapes of style, and no text's own pass it."""
    if not colour:
        return visible(plain(row))
    return "".join(
        f"\x1b[{_SGR[style]}m{visible(text)}\x1b[0m" if style and text else visible(text)
        for text, style in row
    )


class Screen:
    """What was written on a terminal, as far as it matters for what is written next."""

    def __init__(self, write: Callable[[str], None], *, colour: bool) -> None:
        self._write = write
        self._colour = colour
        self._lines: list[str] = []
        """Appended, and not drawn yet."""
        self._status: tuple[tuple[str, ...], Cursor | None] = ((), None)
        self._above = 0
        """Rows of the status above the cursor."""

    def append(self, rows: Iterable[Row]) -> None:
        """Lines for the next frame."""
        self._lines += [paint(row, colour=self._colour) for row in rows]

    def draw(self, status: Sequence[Row], cursor: Cursor | None = None) -> None:
        """One frame, in one write. Writes nothing where nothing changed."""
        painted = tuple(paint(row, colour=self._colour) for row in status)
        if not self._lines and self._status == (painted, cursor):
            return
        parts = [_HIDE] if painted else []
        if self._status[0]:
            parts.append("\r" + (f"\x1b[{self._above}A" if self._above else "") + _ERASE_BELOW)
        parts += [f"{line}\r\n" for line in self._lines]
        self._lines.clear()
        self._status, self._above = (painted, cursor), max(0, len(painted) - 1)
        if painted:
            # Back to its beginning: what is typed meanwhile is echoed there, and wraps no row.
            parts.append("\r\n".join(painted) + "\r")
            if cursor is not None:
                up, self._above = self._above - cursor.row, cursor.row
                parts.append(f"\x1b[{up}A" if up else "")
                parts.append(f"\x1b[{cursor.column}C" if cursor.column else "")
            parts.append(_SHOW)
        self._write("".join(parts))

    def lost(self) -> None:
        """Somebody else wrote on the terminal: what stands there is left alone, and drawn anew below it."""
        if self._status[0]:
            self._status, self._above = ((), None), 0
            self._lines.insert(0, "")
