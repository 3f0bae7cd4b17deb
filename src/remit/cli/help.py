"""Help pages: two columns, plain text, as wide as the terminal and no wider than can be read."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

__all__ = ["Pages"]

_WIDEST: Final = 100
_LABELS: Final = 26
"""Columns for names; a longer one has a line of its own."""


class Pages:
    """Writes usage, description and one panel after the other."""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        del options
        _write(console, [f"Usage: {_plain(usage)}"])

    def render_description(
        self, console: Console, options: ConsoleOptions, description: Any
    ) -> None:
        paragraphs = _plain(description).split("\n\n")
        for paragraph in filter(None, paragraphs):
            _write(console, ["", *textwrap.wrap(paragraph, _width(options))])

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        if not panel.entries:
            return
        width = _width(options)
        _write(console, ["", f"{panel.title}:"])
        if said := _plain(panel.description):
            _write(console, textwrap.wrap(said, width, initial_indent="  ", subsequent_indent="  "))
        for entry in panel.entries:
            _write(console, _rows(entry, width))


def _rows(entry: HelpEntry, width: int) -> Iterator[str]:
    labels = "  " + ", ".join(entry.display_labels_with_metavar)
    said = _plain(entry.description)
    if entry.choices:
        said = f"{said} One of {', '.join(entry.choices)}."
    lines = textwrap.wrap(said, width - _LABELS) or [""]
    if len(labels) > _LABELS - 2:
        yield labels
        labels = ""
    yield f"{labels:<{_LABELS}}{lines[0]}".rstrip()
    for line in lines[1:]:
        yield " " * _LABELS + line


def _width(options: ConsoleOptions) -> int:
    return max(40, min(options.max_width, _WIDEST))


def _plain(text: Any) -> str:
    """The characters of what cyclopts has prepared for a console."""
    prepared = getattr(text, "primary_renderable", text)
    return str(getattr(prepared, "plain", prepared) or "").strip()


def _write(console: Console, lines: Iterator[str] | list[str]) -> None:
    # Not by the console itself: where nobody reads it any more, that ends the process with a code of its own.
    console.file.writelines(f"{line}\n" for line in lines)
