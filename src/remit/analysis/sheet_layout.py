"""A sheet as rows: what it was asked, why it ended, what it used, then step by step.

Somebody's words always stand behind a gutter, and everything is made harmless on its way into a row, so that
nothing a model or a tool wrote looks like a line of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from remit.analysis.cells import clip, one_line, visible
from remit.analysis.figures import span
from remit.analysis.layout import Glyphs, Row, Span, fitted, noted, quoted, rows_of
from remit.analysis.lines import Called, Closing, Mark, call_words
from remit.analysis.sheet import (
    AsideSheet,
    CallSheet,
    Only,
    PendingSheet,
    RunSheet,
    StepSheet,
)
from remit.analysis.sheet_words import (
    ACTS,
    MARKS,
    STATUS,
    aside_words,
    budget_words,
    call_facts,
    child_mark,
    child_words,
    decided,
    granted,
    size_words,
    step_words,
    tags_of,
    wanted,
    when,
)
from remit.analysis.times import ago
from remit.preview import preview

__all__ = ["Page"]

_SHORT_ROWS: Final = 6
"""Rows of a text that are shown where not everything is."""
_PROMPT_ROWS: Final = 10
_SHORT_CHARS: Final = 4_000
_LINE_CELLS: Final = 1_000
"""Of a line of such a text, where a window does not break it."""


class Page:
    """What a sheet says, row by row."""

    def __init__(
        self,
        sheet: RunSheet,
        *,
        glyphs: Glyphs,
        columns: int | None,
        now: datetime,
        full: bool = False,
        reached_by: str = "",
    ) -> None:
        """`full` shows texts, arguments and results whole; `reached_by` is what other commands are given beside ids."""
        self._sheet = sheet
        self._glyphs = glyphs
        self._columns = columns
        self._now = now
        self._full = full
        self._reached_by = reached_by

    def rows(self, only: Only | None, why: tuple[Mark, str], *, part: bool) -> Iterator[Row]:
        """All of it, or the part that is asked for. `why` says how the run stands, in words."""
        sheet = self._sheet
        yield from self._head(why)
        if sheet.erased_at is not None or sheet.unreadable is not None:
            return
        match only:
            case "artifacts":
                yield from self._artifacts()
            case "children":
                yield from self._children()
            case "budget":
                yield from self._budget()
                yield from self._billed()
            case _:
                if not part:
                    yield from self._prompt()
                yield from self._steps()
                if not part:
                    yield from self._rest()

    # Who, when, why

    def _head(self, why: tuple[Mark, str]) -> Iterator[Row]:
        sheet = self._sheet
        facts = [" / ".join(sheet.path) or sheet.remit]
        facts += [f"in {sheet.parent}"] if sheet.parent else []
        facts += [f"session {sheet.session}"] if sheet.session else []
        facts += [f"{name}={value}" for name, value in tags_of(sheet)]
        shown = f" {self._glyphs.dot} ".join(self._safe(fact) for fact in facts)
        yield self._fit((Span(f"run {self._safe(sheet.run_id)}", "bold"), Span(f"  {shown}")))
        yield from self._noted(when(self._sheet, self._now))
        mark, words = why
        yield from self._told(mark, words)
        if sheet.spent_tree is not None:
            yield from self._budget()

    def _budget(self) -> Iterator[Row]:
        """What was used of what may be."""
        parts = budget_words(self._sheet)
        if parts:
            yield from self._noted(f"used {f' {self._glyphs.dot} '.join(parts)}")

    # What was said and done

    def _prompt(self) -> Iterator[Row]:
        sheet = self._sheet
        if sheet.history:
            yield from self._noted(f"goes on from {sheet.history} messages")
        yield ()
        yield from self._quoted(sheet.prompt, most=_PROMPT_ROWS)

    def _steps(self) -> Iterator[Row]:
        asides = list(self._sheet.asides)
        for at, step in enumerate(self._sheet.steps):
            yield from self._asides(asides, at)
            yield ()
            yield from self._step(step)
        yield from self._asides(asides, len(self._sheet.steps))

    def _asides(self, asides: list[AsideSheet], at: int) -> Iterator[Row]:
        while asides and asides[0].after <= at:
            aside = asides.pop(0)
            if aside.what == "ended" and not asides:
                return  # the head has told it
            what, text = aside_words(aside, whole=self._full)
            yield from self._noted(f"{what}: {text}")

    def _step(self, step: StepSheet) -> Iterator[Row]:
        label, facts = step_words(step)
        beside = f" {self._glyphs.dot} ".join(facts)
        yield self._fit((Span(label, "bold"), Span(f"  {beside}", "dim")))
        if step.text.strip():
            yield from self._quoted(step.text.strip(), most=_SHORT_ROWS)
        if step.invalid is not None:
            yield from self._told("failed", f"no output of this run: {preview(step.invalid)}")
        for call in step.calls:
            yield from self._call(call)

    def _call(self, call: CallSheet) -> Iterator[Row]:
        words = STATUS.get(call.status, "")
        result = preview(call.result or "")
        line = Called(
            mark=MARKS.get(call.status, "unknown"),
            tool=one_line(call.tool),
            arguments="" if self._full else call_words(call.arguments),
            seconds=None,
            preview="" if self._full and call.result is not None else f"{words}{result}",
        )
        yield from rows_of(line, self._glyphs, self._columns)
        facts = list(call_facts(call, whole=self._full))
        if facts:
            yield from self._under(f" {self._glyphs.dot} ".join(facts))
        if call.decision is not None:
            yield from self._under(decided(call))
        if call.grant is not None:
            yield from self._under(granted(call.grant))
        if self._full:
            yield from self._quoted(call.arguments)
            if call.result is not None:
                yield from self._under(f"{words}result".replace(": ", "; "))
                yield from self._quoted(call.result)

    # The rest

    def _rest(self) -> Iterator[Row]:
        sheet = self._sheet
        if sheet.pending:
            yield ()
            for pending in sheet.pending:
                yield from self._pending(pending)
        if sheet.children:
            yield ()
            yield from self._children()
        effects = any(call.is_effect for step in sheet.steps for call in step.calls)
        if sheet.in_doubt or effects:
            yield ()
        if sheet.in_doubt:
            names = ", ".join(f"{one_line(call.tool)} ({call.key})" for call in sheet.in_doubt)
            yield from self._told("unknown", f"effects that may have come about: {names}")
        elif effects:
            yield from self._noted("effects: none without an outcome")

    def _pending(self, pending: PendingSheet) -> Iterator[Row]:
        left = (pending.expires_at - self._now).total_seconds()
        until = f"open for {span(left)}" if left > 0 else "expired: resume the run for a new one"
        where = "" if pending.run_id == self._sheet.run_id else f" in run {pending.run_id}"
        since = "" if pending.asked_at is None else f", asked {ago(pending.asked_at, self._now)}"
        yield from self._told(
            "waiting", f"waits for {wanted(pending)}{where}  [{pending.id}]  {until}{since}"
        )
        yield from self._quoted(pending.summary)
        yield from self._quoted(f"{pending.tool} {pending.arguments}")
        yield from self._under(
            ACTS[pending.kind].format(f"{one_line(pending.id)}{self._reached_by}")
        )

    def _children(self) -> Iterator[Row]:
        children = self._sheet.children
        if not children:
            yield from self._noted("no runs inside")
        for child in children:
            yield from self._told(child_mark(child), child_words(child))

    def _artifacts(self) -> Iterator[Row]:
        artifacts = self._sheet.artifacts
        if not artifacts:
            yield from self._noted("nothing is kept outside of the transcript")
        for each in artifacts:
            handle = self._safe(each.handle)
            yield self._fit(
                (Span(handle), Span(f"  {self._safe(each.tool)}  {size_words(each)}", "dim"))
            )

    def _billed(self) -> Iterator[Row]:
        """Step by step what was billed."""
        for step in self._sheet.steps:
            yield from self._step(step)
        for child in self._sheet.children:
            yield from self._told(child_mark(child), child_words(child))

    # Small parts

    def _safe(self, text: str) -> str:
        return self._glyphs.carried(one_line(text))

    def _fit(self, row: Row) -> Row:
        return row if self._columns is None else fitted(row, self._columns, self._glyphs)

    def _noted(self, text: str) -> list[Row]:
        return noted(text, self._glyphs, self._columns)

    def _under(self, text: str) -> list[Row]:
        rows = noted(text, self._glyphs, None if self._columns is None else self._columns - 2)
        return [(Span("  "), *row) for row in rows]

    def _told(self, mark: Mark, text: str) -> Iterator[Row]:
        yield from rows_of(Closing(mark=mark, text=text), self._glyphs, self._columns)

    def _quoted(self, text: str, *, most: int | None = None) -> list[Row]:
        if most is None or self._full:
            return quoted(text, self._glyphs, self._columns)
        lines = text[:_SHORT_CHARS].split("\n")
        shown = "\n".join(clip(visible(line), _LINE_CELLS) for line in lines[:most])
        rows = quoted(shown, self._glyphs, self._columns)
        if len(rows) <= most and len(lines) <= most and len(text) <= _SHORT_CHARS:
            return rows
        return [*rows[: most - 1], *self._noted(f"{len(text):,} characters in all: --full")]
