"""Runs as a list: one line for each, with what it is doing, waits for or ended for, and what it used.

`listed` reads one run of a store, `table_rows` makes a table that fits its window. What cannot be read, because it
was erased or damaged, is a line too: it never stands in the way of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import msgspec

from remit.analysis.cells import cells, clip, one_line
from remit.analysis.figures import clock, count, dollars, percent, span
from remit.analysis.layout import Glyphs, Row, Span, fitted
from remit.analysis.lines import Mark
from remit.analysis.sheet import PendingSheet, SpentSheet, pending_of_story
from remit.analysis.story import Story, read_story, words_of
from remit.analysis.times import ago
from remit.errors import JournalError
from remit.limits import Limits
from remit.preview import preview
from remit.store.base import Journal
from remit.store.directory import RunEntry

__all__ = [
    "Listed",
    "listed",
    "shortest",
    "table_rows",
    "to_document",
    "total_usd",
    "waits_for",
]

_LEAST_ID: Final = 8
"""Characters of an id that are shown at least."""
_DROPPED: Final = ("CACHED", "TIME", "TOKENS", "USD", "REMIT", "STEPS", "STARTED")
"""Columns that go where the window is too narrow for all, in this order."""
_LEAST_PROMPT: Final = 12
"""Cells for the beginning of the prompt, before another column goes."""
_PROMPT_CELLS: Final = 60
_RIGHT: Final = frozenset({"STEPS", "TOKENS", "CACHED", "USD", "TIME"})
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "approval": ("decision", "decisions"),
    "input": ("answer", "answers"),
    "result": ("result", "results"),
}


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the list."""

    entry: RunEntry
    whose: str | None = None
    """Whose limit ended it."""
    limits: Limits | None = None
    spent: SpentSheet | None = None
    """With what runs inside."""
    prompt: str = ""
    """Its beginning, on one line."""
    doing: tuple[str, ...] = ()
    """Tools that are at work."""
    pending: tuple[PendingSheet, ...] = ()
    unreadable: str | None = None
    """Why there is no more than the entry; None where there is."""


async def listed(store: Journal, entry: RunEntry) -> Listed:
    """What is told of one run."""
    if entry.erased_at is not None:
        return Listed(entry=entry)
    try:
        story = await read_story(store, entry.run_id, whole=False)
        pending = await pending_of_story(store, story) if entry.status == "waiting" else ()
    except JournalError as error:
        return Listed(entry=entry, unreadable=str(error))
    return _listed(entry, story, pending)


def _listed(entry: RunEntry, story: Story, pending: tuple[PendingSheet, ...]) -> Listed:
    state = story.state
    flights = (
        [] if entry.lost else [call.use.name for call in story.calls() if call.state.under_way]
    )
    return Listed(
        entry=entry,
        whose=None if state.ended is None else state.ended.whose,
        limits=state.limits,
        spent=SpentSheet.of(state.tree, state.seconds),
        prompt=preview(words_of(state.opened.prompt)),
        doing=tuple(flights) if entry.status == "running" else (),
        pending=pending,
    )


def to_document(run: Listed) -> dict[str, Any]:
    """One run in plain JSON types."""
    about: dict[str, Any] = msgspec.to_builtins(run.entry)
    rest: dict[str, Any] = msgspec.to_builtins(run)
    del rest["entry"]
    return about | rest


def shortest(ids: Sequence[str]) -> int:
    """How many characters of each tell these ids apart."""
    ordered = sorted(set(ids))
    shared = [_shared(a, b) for a, b in pairwise(ordered)]
    return max(_LEAST_ID, max(shared, default=0) + 1)


def _shared(a: str, b: str) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


# --- the table -----------------------------------------------------------------------------------


def table_rows(
    runs: Sequence[Listed], *, now: datetime, glyphs: Glyphs, columns: int | None
) -> list[Row]:
    """The runs as a table, its head first; as wide as it likes where there are no `columns`."""
    length = shortest([run.entry.run_id for run in runs])
    lines = [_cells_of(run, length, now, glyphs) for run in runs]
    heads = list(lines[0]) if lines else []
    widths = {head: max(cells(head), *(cells(line[head].text) for line in lines)) for head in heads}
    widths["PROMPT"] = min(widths.get("PROMPT", 0), _PROMPT_CELLS)
    if columns is not None:
        widths = _narrowed(widths, columns)
    table: list[dict[str, Span]] = [{head: Span(head, "dim") for head in heads}, *lines]
    rows = [_row(line, widths, glyphs) for line in table]
    return rows if columns is None else [fitted(row, columns, glyphs) for row in rows]


def _narrowed(widths: dict[str, int], columns: int) -> dict[str, int]:
    """Columns that fit: the less important ones go first, the prompt takes what is left."""
    kept = dict(widths)
    for head in _DROPPED:
        if _total(kept) - kept["PROMPT"] + min(kept["PROMPT"], _LEAST_PROMPT) <= columns:
            break
        kept.pop(head, None)
    kept["PROMPT"] = max(0, min(kept["PROMPT"], columns - _total(kept) + kept["PROMPT"]))
    return kept


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _row(line: Mapping[str, Span], widths: Mapping[str, int], glyphs: Glyphs) -> Row:
    spans: list[Span] = []
    for head, width in widths.items():
        span = line[head]
        text = clip(span.text, width, ellipsis=glyphs.ellipsis)
        pad = " " * (width - cells(text))
        text = pad + text if head in _RIGHT else text + pad
        spans.append(Span(text + "  ", span.style))
    return tuple(spans)


def _cells_of(run: Listed, length: int, now: datetime, glyphs: Glyphs) -> dict[str, Span]:
    """One run by the heads of the table."""
    entry, spent, limits = run.entry, run.spent, run.limits
    mark = _mark(entry)
    sign = glyphs.sign(mark)
    numbers = {"STEPS": "", "TOKENS": "", "CACHED": "", "USD": "", "TIME": ""}
    if spent is not None and limits is not None:
        usage = spent.usage
        numbers = {
            "STEPS": f"{spent.steps}/{limits.steps}",
            "TOKENS": count(spent.tokens),
            "CACHED": percent(usage.cache_read, usage.prompt) if usage.prompt else "",
            "USD": dollars(spent.usd) if spent.usd else "",
            "TIME": clock(spent.seconds),
        }
    return {
        "RUN": Span(glyphs.carried(one_line(entry.run_id[:length])), "bold"),
        "STATE": Span(f"{sign.text} {entry.status}", sign.style),
        "REASON": Span(glyphs.carried(_why(run, now))),
        "REMIT": Span(glyphs.carried(one_line(entry.remit))),
        **{head: Span(text) for head, text in numbers.items()},
        "STARTED": Span(ago(entry.created_at, now), "dim"),
        "PROMPT": Span(glyphs.carried(_prompt(run))),
    }


def _prompt(run: Listed) -> str:
    if run.entry.erased_at is not None:
        return "(erased)"
    return "(unreadable: remit show tells why)" if run.unreadable is not None else run.prompt


def _mark(entry: RunEntry) -> Mark:
    if entry.lost:
        return "unknown"
    match entry.status:
        case "waiting":
            return "waiting"
        case "running":
            return "running"
        case "ended":
            return "ok" if entry.reason == "completed" else "failed"
        case _:
            return "unknown"


def _why(run: Listed, now: datetime) -> str:
    """What it waits for and how long it can be given, what it does, or why it ended."""
    entry = run.entry
    if entry.lost:
        return "broke off, can be resumed"
    match entry.status:
        case "waiting":
            return waits_for(run.pending, now)
        case "running":
            return one_line(", ".join(dict.fromkeys(run.doing)))
        case "ended":
            others = run.whose not in {None, entry.remit}
            return (
                f"{entry.reason or ''} ({one_line(run.whose or '')})"
                if others
                else entry.reason or ""
            )
        case _:
            return "can be resumed"


def waits_for(pending: Sequence[PendingSheet], now: datetime) -> str:
    """`1 decision, 56 min`: what is waited for, and when the first of it expires."""
    if not pending:
        return ""
    parts: list[str] = []
    for kind, (one, many) in _KINDS.items():
        number = sum(each.kind == kind for each in pending)
        if number:
            parts.append(f"{number} {one if number == 1 else many}")
    left = (min(each.expires_at for each in pending) - now).total_seconds()
    return f"{', '.join(parts)}, {span(left) if left > 0 else 'expired'}"


def total_usd(runs: Sequence[Listed]) -> Decimal:
    """What they cost together."""
    return sum((run.spent.usd for run in runs if run.spent is not None), Decimal(0))
