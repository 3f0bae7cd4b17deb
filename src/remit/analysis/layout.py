"""Rows of cells out of what a view says.

A row is spans of text, each with a style that a display may paint or leave out: no state is told by it alone.
Given `columns` no row is wider; without, a line of the view is one row, however long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from remit.analysis.cells import cells, clip, cut, visible, wrap
from remit.analysis.figures import bar, duration
from remit.analysis.lines import (
    Asked,
    Called,
    Closing,
    Gauge,
    Line,
    Mark,
    Opening,
    Remark,
    Status,
    Words,
)

__all__ = [
    "Glyphs",
    "Row",
    "Span",
    "Style",
    "fitted",
    "noted",
    "plain",
    "quoted",
    "rows_of",
    "status_rows",
]

Style: TypeAlias = Literal["", "bold", "dim", "good", "bad", "warn"]


class Span(NamedTuple):
    """A piece of a row."""

    text: str
    style: Style = ""


Row: TypeAlias = tuple[Span, ...]


_STYLES: Mapping[Mark, Style] = {
    "ok": "good",
    "failed": "bad",
    "running": "",
    "waiting": "warn",
    "unknown": "warn",
}


class Glyphs(msgspec.Struct, frozen=True):
    """The signs of a display."""

    encoding: str
    """What texts are written in; characters beyond it are written out as escapes."""
    ok: str
    failed: str
    running: str
    waiting: str
    unknown: str
    gutter: str
    """Stands before every row of a model's words but the first."""
    ellipsis: str
    rule: str
    dot: str
    """Between two things on a row."""
    drawn: bool
    """Whether gauges are drawn with block characters."""

    @classmethod
    def of(cls, encoding: str | None) -> Glyphs:
        """The best signs that this encoding can carry."""
        encoding = encoding or "ascii"
        signs = "✓✕…⏸?│…─·"
        try:
            f"{signs}█▌".encode(encoding)
        except (UnicodeError, LookupError):
            return cls("ascii", "+", "x", "...", "||", "?", "|", "...", "-", "-", drawn=False)
        return cls(encoding, *signs, drawn=True)

    def sign(self, mark: Mark) -> Span:
        """The sign of a state."""
        return Span(getattr(self, mark), _STYLES[mark])

    def carried(self, text: str) -> str:
        """A text as this encoding can write it, made harmless once more."""
        shown = visible(text)
        if shown.isascii():
            return shown
        return shown.encode(self.encoding, "backslashreplace").decode(self.encoding)


_MARGIN = "  "
"""Before the lines that are about calls."""
_DURATION_CELLS = 7
_NARROW = 60
"""Columns below which a result has no place beside its call."""
_ARGUMENT_CELLS = 120
_RESULT_CELLS = 200
"""Where rows are as long as they like, a call is still told in a sentence."""
_WAITS: Mapping[str, str] = {
    "approval": "needs your decision",
    "input": "needs your answer",
    "result": "waits for a result from elsewhere",
}


def plain(row: Row) -> str:
    """The text of a row."""
    return "".join(span.text for span in row).rstrip()


def fitted(row: Row, columns: int, glyphs: Glyphs) -> Row:
    """The row, cut where it would be wider than so many cells."""
    if _width(row) <= columns:
        return row
    kept: list[Span] = []
    room = columns
    for span in row:
        width = cells(span.text)
        if width > room - cells(glyphs.ellipsis):
            return (*kept, Span(cut(span.text, room, ellipsis=glyphs.ellipsis), span.style))
        kept.append(span)
        room -= width
    return tuple(kept)


def rows_of(line: Line, glyphs: Glyphs, columns: int | None) -> list[Row]:
    """A line of the view as rows."""
    lead = Span(glyphs.carried(line.lead), "dim")
    if columns is not None:
        lead = Span(clip(lead.text, columns // 3, ellipsis=glyphs.ellipsis), "dim")
    match line:
        case Words():
            rows = _words(lead, line, glyphs, columns)
        case Called():
            rows = _called(lead, line, glyphs, columns)
        case Remark():
            head = (lead, Span(_MARGIN), glyphs.sign(line.mark), Span(" "))
            rows = _wrapped(head, line.text, glyphs, columns, style="dim" if line.detail else "")
        case Closing():
            rows = _wrapped((glyphs.sign(line.mark), Span(" ")), line.text, glyphs, columns)
        case Asked():
            rows = _asked(lead, line, glyphs, columns)
        case Opening():
            said = [f"run {line.run_id}", line.name, line.model, line.limits]
            facts = f" {glyphs.dot} ".join(filter(None, said))
            rows = _wrapped((lead,), facts, glyphs, columns, style="bold")
        case _:
            raise TypeError(f"no layout for {type(line).__name__}")
    return rows if columns is None else [fitted(row, columns, glyphs) for row in rows]


def quoted(text: str, glyphs: Glyphs, columns: int | None) -> list[Row]:
    """Somebody's text behind a gutter, so that it is not taken for anybody else's."""
    gutter = Span(f"{_MARGIN}{glyphs.gutter} ", "dim")
    rows: list[Row] = []
    for line in text.split("\n"):
        shown = glyphs.carried(line)
        parts = [shown] if columns is None else wrap(shown, columns - _width((gutter,)))
        rows += [(gutter, Span(part)) for part in parts]
    return rows if columns is None else [fitted(row, columns, glyphs) for row in rows]


def headed(mark: Mark, text: str, facts: str, glyphs: Glyphs, columns: int | None) -> list[Row]:
    """A heading at the margin, where nobody's text but ours begins; the facts beside it if there is room."""
    heading: Row = (glyphs.sign(mark), Span(f" {text}", "bold"))
    beside = Span(f"  {glyphs.carried(facts)}", "dim")
    if columns is None or _width((*heading, beside)) <= columns:
        return [(*heading, beside)]
    return [fitted(heading, columns, glyphs), *noted(facts, glyphs, columns)]


def noted(text: str, glyphs: Glyphs, columns: int | None) -> list[Row]:
    """A word of our own beside what others say."""
    rows = _wrapped((Span(_MARGIN),), text, glyphs, columns, style="dim")
    return rows if columns is None else [fitted(row, columns, glyphs) for row in rows]


def _width(row: Sequence[Span]) -> int:
    return sum(cells(span.text) for span in row)


def _wrapped(
    head: Row, text: str, glyphs: Glyphs, columns: int | None, *, style: Style = ""
) -> list[Row]:
    """A text behind its head; rows after the first stand under it."""
    text = glyphs.carried(text)
    if columns is None:
        return [(*head, Span(text, style))]
    first, *others = wrap(text, columns - _width(head))
    under = Span(" " * min(_width(head), max(0, columns - 8)))
    return [(*head, Span(first, style)), *((under, Span(row, style)) for row in others)]


def _words(lead: Span, line: Words, glyphs: Glyphs, columns: int | None) -> list[Row]:
    label = Span(f"{line.label or glyphs.gutter} ", "bold" if line.label else "dim")
    text = glyphs.carried(line.text)
    style: Style = "dim" if line.quiet else ""
    if columns is None:
        return [(lead, label, Span(text, style))]
    room = columns - _width((lead, label))
    first, *others = wrap(text, room)
    gutter = Span(f"{glyphs.gutter} ", "dim")
    return [
        (lead, label, Span(first, style)),
        *((lead, gutter, Span(row, style)) for row in others),
    ]


def _called(lead: Span, line: Called, glyphs: Glyphs, columns: int | None) -> list[Row]:
    sign = glyphs.sign(line.mark)
    took = "" if line.seconds is None else duration(line.seconds)
    tool, arguments, preview = map(glyphs.carried, (line.tool, line.arguments, line.preview))
    style = "" if line.mark == "ok" else _STYLES[line.mark]
    head = (lead, Span(_MARGIN), sign, Span(f" {tool}"))
    if columns is None:
        parts = [
            clip(arguments, _ARGUMENT_CELLS, ellipsis=glyphs.ellipsis),
            took,
            clip(preview, _RESULT_CELLS, ellipsis=glyphs.ellipsis),
        ]
        return [(*head, Span("".join(f"  {part}" for part in parts if part), style))]
    wide = columns >= _NARROW
    left = columns * 11 // 20 if wide and preview else columns - _DURATION_CELLS - 2
    row = fitted((*head, *([Span(f"  {arguments}", "dim")] if arguments else [])), left, glyphs)
    pad = Span(" " * (left - _width(row)))
    row = (*row, pad, Span(f"  {took:>{_DURATION_CELLS}}", "dim"))
    if wide:
        return [(*row, Span(f"  {preview}", style))]
    if line.mark == "ok" or not preview:
        return [row]
    return [row, (lead, Span(_MARGIN * 2), Span(preview, style))]


def _asked(lead: Span, line: Asked, glyphs: Glyphs, columns: int | None) -> list[Row]:
    what = _WAITS.get(line.kind, "waits")
    about = line.summary.split("\n")
    if columns is None:
        arguments = clip(line.arguments, _ARGUMENT_CELLS, ellipsis=glyphs.ellipsis)
        told = "  ".join(part for part in (line.tool, arguments, " ".join(about)) if part)
        text = Span(glyphs.carried(f" {what}  {told}  [{line.pending_id}]"))
        return [(lead, glyphs.sign("waiting"), text)]
    rows: list[Row] = [
        (
            lead,
            glyphs.sign("waiting"),
            Span(f" {what}", "bold"),
            Span(glyphs.carried(f"  [{line.pending_id}]"), "dim"),
        )
    ]
    for text in [*about, f"{line.tool}  {line.arguments}"]:
        if text.strip():
            rows += _wrapped((lead, Span(_MARGIN * 2)), text, glyphs, columns)
    return rows


# --- the status ----------------------------------------------------------------------------------

_BARS = (10, 6, 0)
"""Cells of a gauge's bar, the widest that fits first."""


def status_rows(
    status: Status, glyphs: Glyphs, columns: int, *, most: int, question: Row = (), hint: str = ""
) -> list[Row]:
    """The status in at most so many rows; the less important ones go first."""
    rows: dict[str, Row] = {}
    if status.unfinished is not None:
        lead = Span(glyphs.carried(status.unfinished.lead), "dim")
        rows["unfinished"] = _words(lead, status.unfinished, glyphs, None)[0]
    rows["rule"] = (Span(glyphs.rule * min(columns, 72), "dim"),)
    if question:
        rows["question"] = question
    if status.gauges:
        rows["gauges"] = _gauges(status.gauges, glyphs, columns)
    doing = f" {glyphs.dot} ".join(
        glyphs.carried(part) for part in (status.waiting, status.doing, status.spent) if part
    )
    rows["doing"] = _both_ends(doing, hint, columns)
    for name in ("rule", "unfinished", "gauges", "doing"):
        if len(rows) > most:
            rows.pop(name, None)
    return [fitted(row, columns, glyphs) for row in rows.values()][: max(0, most)]


def _both_ends(left: str, right: str, columns: int) -> Row:
    room = columns - cells(left) - cells(right)
    if room < 2:
        return (Span(left),)
    return (Span(left), Span(" " * room), Span(right, "dim"))


def _gauges(gauges: Sequence[Gauge], glyphs: Glyphs, columns: int) -> Row:
    """Side by side, with the widest bars that fit; where nothing fits, figures alone."""
    for width in _BARS:
        row = _between([_gauge(gauge, glyphs, width) for gauge in gauges], "   " if width else "  ")
        if _width(row) <= columns:
            return row
    return _between([(Span(f"{gauge.used}/{gauge.allowed}"),) for gauge in gauges], " ")


def _gauge(gauge: Gauge, glyphs: Glyphs, width: int) -> Row:
    match gauge.name:
        case "$":
            text = f"${gauge.used}/{gauge.allowed}"
        case "s":
            text = f"{gauge.used}/{gauge.allowed} s"
        case name:
            text = f"{name} {gauge.used}/{gauge.allowed}"
    if not width:
        return (Span(text),)
    style: Style = "warn" if gauge.fraction >= 0.9 else "dim"
    return (Span(f"{text} "), Span(bar(gauge.fraction, width, drawn=glyphs.drawn), style))


def _between(parts: Sequence[Row], gap: str) -> Row:
    row: list[Span] = []
    for part in parts:
        row += [Span(gap), *part] if row else part
    return tuple(row)
