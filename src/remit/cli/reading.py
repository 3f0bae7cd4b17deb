"""What commands share that look at runs and change none: what they ask a store, and where rows are printed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Protocol, TextIO

from remit.analysis.layout import Glyphs, Row
from remit.cli.display import display_mode
from remit.cli.screen import NO_WINDOW, paint, window_of
from remit.store.base import Journal
from remit.store.directory import Directory

__all__ = ["Printer", "Searchable"]


class Searchable(Journal, Directory, Protocol):
    """A store whose runs can be listed and read."""


class Printer:
    """Rows as an answer on stdout: within the terminal, or as long as they are where it is none."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.glyphs = Glyphs.of(stream.encoding)
        self._colour = display_mode(os.environ, is_tty=stream.isatty()).colour
        self.columns = _columns(stream)

    def show(self, rows: Iterable[Row]) -> None:
        """Write them. Errors: `OSError`."""
        for row in rows:
            self._stream.write(paint(row, colour=self._colour).rstrip() + "\n")
        self._stream.flush()


def _columns(stream: TextIO) -> int | None:
    if not stream.isatty():
        return None
    with contextlib.suppress(OSError, ValueError):
        # The last column stays free, where terminals differ in when they wrap.
        return max(1, window_of(stream.fileno()).columns - 1)
    return NO_WINDOW.columns - 1
