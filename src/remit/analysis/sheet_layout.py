"""A sheet as rows: what it was asked, why it ended, what it used, then step by step.

Somebody's words always stand behind a gutter, and everything is made harmless on its way into a row, so that
nothing a model or a tool wrote looks like a line of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from remit.analysis.cells import clip, one_line, visible
from remit.analysis.figures import clock, count, dollars, duration, percent, span
from remit.analysis.layout import Glyphs, Row, Span, fitted, noted, quoted, rows_of
from remit.analysis.lines import Called, Closing, Mark, call_words
from remit.analysis.sheet import (
    AsideSheet,
    CallSheet,
    ChildSheet,
    Only,
    PendingSheet,
    RunSheet,
    StepSheet,
)
from remit.messages import Usage
from remit.preview import preview

__all__ = ["Page"]

_MARKS: Final[dict[str, Mark]] = {
    "ok": "ok",
    "error": "failed",
    "refused": "failed",
    "waiting": "waiting",
    "open": "running",
}
_WORDS: Final = {
    "refused": "refused: ",
    "not_started": "not run: ",
    "unknown": "outcome unknown: ",
    "in_doubt": "in doubt: it was started, and no outcome is recorded",
    "open": "no result yet",
    "waiting": "waits",
}
_ACTS: Final = {
    "approval": "remit approve {0}, or remit reject {0}",
    "input": "remit supply {0} VALUE",
    "result": "remit supply {0} VALUE",
}
_ASIDES: Final = {
    "note": "told the model",
    "said": "said meanwhile",
    "break": "what was sent before was changed",
    "failed": "the model failed",
    "vetoed": "vetoed",
    "finished": "ended by",
    "billed": "billed",
    "late": "came too late",
    "resumed": "resumed",
    "ended": "ended",
}
_OUR_TAGS: Final = "remit."
"""Tags that begin so are none of people's."""
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
        facts += [f"{name}={value}" for name, value in _tags(sheet)]
        shown = f" {self._glyphs.dot} ".join(self._safe(fact) for fact in facts)
        yield self._fit((Span(f"run {self._safe(sheet.run_id)}", "bold"), Span(f"  {shown}")))
        yield from self._noted(self._when())
        mark, words = why
        yield from self._told(mark, words)
        if sheet.spent_tree is not None:
            yield from self._budget()

    def _when(self) -> str:
        sheet = self._sheet
        began = f"began {_time(sheet.created_at)}, {self._ago(sheet.created_at)}"
        if sheet.ended_at is not None:
            return f"{began}; ended {_time(sheet.ended_at)}, {self._ago(sheet.ended_at)}"
        if sheet.owner is not None:
            gone = ", which is gone" if sheet.lost else ""
            return f"{began}; held by {one_line(sheet.owner)}{gone}"
        return began

    def _ago(self, at: datetime) -> str:
        return f"{span((self._now - at).total_seconds())} ago"

    def _budget(self) -> Iterator[Row]:
        """What was used of what may be."""
        limits, spent = self._sheet.limits, self._sheet.spent_tree
        if limits is None or spent is None:
            return
        parts = [
            f"steps {spent.steps}/{limits.steps}",
            f"tokens {count(spent.tokens)}/{count(limits.tokens)}",
        ]
        if limits.usd is not None:
            parts.append(f"${dollars(spent.usd, like=limits.usd)}/{dollars(limits.usd)}")
        elif spent.usd:
            parts.append(f"${dollars(spent.usd)}")
        allowed = f"{limits.seconds:.3g} s" if limits.seconds < 100 else clock(limits.seconds)
        parts.append(f"{duration(spent.seconds)} of {allowed}")
        calls = "" if limits.calls is None else f"/{limits.calls}"
        parts.append(f"{spent.calls}{calls} call{'' if spent.calls == 1 else 's'}")
        parts.append(_usage_words(spent.usage))
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
            text = aside.text if self._full else preview(aside.text)
            yield from self._noted(f"{_ASIDES[aside.what]}: {one_line(text)}")

    def _step(self, step: StepSheet) -> Iterator[Row]:
        label = (
            "hand-back" if step.closing else "reply" if step.step is None else f"step {step.step}"
        )
        facts = [_usage_words(step.usage), f"${dollars(step.usd)}" if step.usd else ""]
        facts.append(f"model {duration(step.seconds)}")
        if step.calls_seconds is not None:
            facts.append(f"calls {duration(step.calls_seconds)}")
        facts += ["estimated"] if step.estimated else []
        facts += [] if step.whole else ["cut short"]
        if step.stop_reason not in {"tool_use", "end_turn"}:
            facts.append(step.stop_reason)
        beside = f" {self._glyphs.dot} ".join(filter(None, facts))
        yield self._fit((Span(label, "bold"), Span(f"  {beside}", "dim")))
        if step.text.strip():
            yield from self._quoted(step.text.strip(), most=_SHORT_ROWS)
        if step.invalid is not None:
            yield from self._told("failed", f"no output of this run: {preview(step.invalid)}")
        for call in step.calls:
            yield from self._call(call)

    def _call(self, call: CallSheet) -> Iterator[Row]:
        words = _WORDS.get(call.status, "")
        result = preview(call.result or "")
        line = Called(
            mark=_MARKS.get(call.status, "unknown"),
            tool=one_line(call.tool),
            arguments="" if self._full else call_words(call.arguments),
            seconds=None,
            preview="" if self._full and call.result is not None else f"{words}{result}",
        )
        yield from rows_of(line, self._glyphs, self._columns)
        facts = list(self._facts(call))
        if facts:
            yield from self._under(f" {self._glyphs.dot} ".join(facts))
        if call.decision is not None:
            yield from self._under(_decided(call))
        if call.grant is not None:
            by = one_line(call.grant.by)
            yield from self._under(f"allowed by a standing grant of {by} [{call.grant.id}]")
        if self._full:
            yield from self._quoted(call.arguments)
            if call.result is not None:
                yield from self._under(f"{words}result".replace(": ", "; "))
                yield from self._quoted(call.result)

    def _facts(self, call: CallSheet) -> Iterator[str]:
        """What matters of a call beside what it was and came to."""
        if call.is_effect or self._full:
            yield call.effect or "no call came about"
            if call.key is not None:
                yield f"key {call.key}"
        if call.repeats:
            yield "carries on an earlier, equal call"
        if call.pending is not None:
            yield f"waits: {call.pending}"
        for child in call.children:
            yield f"in run {child}"
        for handle in call.artifacts:
            yield f"kept as {handle if self._full else handle[:21]}"
        if self._full:
            yield f"id {call.id}"

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
        since = "" if pending.asked_at is None else f", asked {self._ago(pending.asked_at)}"
        yield from self._told(
            "waiting", f"waits for {_wanted(pending)}{where}  [{pending.id}]  {until}{since}"
        )
        yield from self._quoted(pending.summary)
        yield from self._quoted(f"{pending.tool} {pending.arguments}")
        yield from self._under(
            _ACTS[pending.kind].format(f"{one_line(pending.id)}{self._reached_by}")
        )

    def _children(self) -> Iterator[Row]:
        children = self._sheet.children
        if not children:
            yield from self._noted("no runs inside")
        for child in children:
            yield from self._told(_child_mark(child), _child_words(child))

    def _artifacts(self) -> Iterator[Row]:
        artifacts = self._sheet.artifacts
        if not artifacts:
            yield from self._noted("nothing is kept outside of the transcript")
        for each in artifacts:
            size = each.media_type or ""
            if each.chars is not None:
                size = f"shown {count(each.shown or 0)} of {count(each.chars)} characters"
            handle = self._safe(each.handle)
            yield self._fit((Span(handle), Span(f"  {self._safe(each.tool)}  {size}", "dim")))

    def _billed(self) -> Iterator[Row]:
        """Step by step what was billed."""
        for step in self._sheet.steps:
            yield from self._step(step)
        for child in self._sheet.children:
            yield from self._told(_child_mark(child), _child_words(child))

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


def _tags(sheet: RunSheet) -> list[tuple[str, str]]:
    """Those that somebody chose."""
    return sorted(tag for tag in sheet.tags.items() if not tag[0].startswith(_OUR_TAGS))


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _usage_words(usage: Usage) -> str:
    parts = [f"{count(usage.input + usage.cache_write)} fresh"]
    if usage.cache_read:
        parts.append(
            f"{count(usage.cache_read)} cached ({percent(usage.cache_read, usage.prompt)})"
        )
    return ", ".join([*parts, f"{count(usage.output)} out"])


def _wanted(pending: PendingSheet) -> str:
    kinds = {"approval": "a decision on", "input": "an answer to", "result": "the result of"}
    return f"{kinds[pending.kind]} {one_line(pending.tool)}"


def _decided(call: CallSheet) -> str:
    decision = call.decision
    if decision is None:
        return ""
    said = "approved" if decision.approve else "rejected"
    note = f": {one_line(decision.note)}" if decision.note else ""
    edit = f"; with other arguments: {one_line(decision.edit)}" if decision.edit else ""
    return f"{said} by {one_line(decision.by)}{note}{edit}"


def _child_mark(child: ChildSheet) -> Mark:
    if child.status == "ended":
        return "ok" if child.reason == "completed" else "failed"
    return "waiting" if child.status == "waiting" else "running"


def _child_words(child: ChildSheet) -> str:
    spent = child.spent
    used = ""
    if spent is not None:
        steps = f"{spent.steps} step{'' if spent.steps == 1 else 's'}"
        used = f"  {steps}, {count(spent.tokens)} tokens" + (
            f", ${dollars(spent.usd)}" if spent.usd else ""
        )
    return f"{one_line(child.remit)}  {child.reason or child.status}{used}  run {one_line(child.run_id)}"
