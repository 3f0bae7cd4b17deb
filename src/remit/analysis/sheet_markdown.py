"""A sheet as a Markdown document, to be kept or sent: the same that `sheet_layout` shows on a terminal.

Whatever somebody said, chose or named stands in code spans and fenced blocks that are longer than every run of backticks in it, with
what a terminal would obey written out: no link, image, heading or mention comes of it, wherever the document is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from remit.analysis.cells import one_line, visible
from remit.analysis.lines import Mark, call_words
from remit.analysis.sheet import CallSheet, Only, PendingSheet, RunSheet, StepSheet
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
from remit.preview import preview

__all__ = ["markdown_of"]

_SIGNS: Final[dict[Mark, str]] = {
    "ok": "✓",
    "failed": "✕",
    "running": "…",
    "waiting": "⏸",
    "unknown": "?",
}
_TICKS: Final = re.compile(r"`+")
_SHORT_CHARS: Final = 2_000
"""Of a text that is not shown whole."""


def markdown_of(
    sheet: RunSheet,
    why: tuple[Mark, str],
    *,
    now: datetime,
    only: Only | None,
    part: bool,
    full: bool,
    reached_by: str,
) -> str:
    """The document. `why`, `only`, `part`, `full` and `reached_by` are those of `sheet_layout.Page`."""
    return "\n".join(
        _Document(sheet, now, full=full, reached_by=reached_by).lines(why, only, part=part)
    )


class _Document:
    def __init__(self, sheet: RunSheet, now: datetime, *, full: bool, reached_by: str) -> None:
        self._sheet = sheet
        self._now = now
        self._full = full
        self._reached_by = reached_by

    def lines(self, why: tuple[Mark, str], only: Only | None, *, part: bool) -> Iterator[str]:
        sheet = self._sheet
        yield from self._head(why)
        if sheet.erased_at is not None or sheet.unreadable is not None:
            return
        if not part:
            yield from self._prompt()
        yield from self._steps()
        if not part:
            yield from self._pending()
        if only in {None, "children", "budget"} and (not part or only is not None):
            yield from self._children()
        if only in {None, "artifacts"} and (not part or only is not None):
            yield from self._artifacts()
        if not part and sheet.in_doubt:
            yield from ("", "## Effects that may have come about", "")
            yield from (f"- {_code(call.tool)} {_code(call.key or '')}" for call in sheet.in_doubt)

    def _head(self, why: tuple[Mark, str]) -> Iterator[str]:
        sheet = self._sheet
        mark, words = why
        yield from (f"# Run {_code(sheet.run_id)}", "")
        yield f"{_SIGNS[mark]} {_code(words)}"
        yield from ("", f"- remit {_code(' / '.join(sheet.path) or sheet.remit)}")
        if sheet.parent:
            yield f"- in run {_code(sheet.parent)}"
        if sheet.session:
            yield f"- session {_code(sheet.session)}"
        for name, value in tags_of(sheet):
            yield f"- tag {_code(f'{name}={value}')}"
        yield f"- {_code(when(sheet, self._now))}"
        used = budget_words(sheet)
        if used:
            yield f"- used {_code(' · '.join(used))}"

    def _prompt(self) -> Iterator[str]:
        yield from ("", "## Prompt", "")
        if self._sheet.history:
            yield from (f"Goes on from {self._sheet.history} messages.", "")
        yield from self._block(self._sheet.prompt)

    def _steps(self) -> Iterator[str]:
        asides = list(self._sheet.asides)
        for at, step in enumerate((*self._sheet.steps, None)):
            while asides and asides[0].after <= at:
                aside = asides.pop(0)
                if aside.what != "ended" or asides:
                    what, text = aside_words(aside, whole=self._full)
                    yield from ("", f"*{what}* {_code(text)}")
            if step is not None:
                yield from self._step(step)

    def _step(self, step: StepSheet) -> Iterator[str]:
        label, facts = step_words(step)
        yield from ("", f"## {label.capitalize()}", "", _code(" · ".join(facts)))
        if step.text.strip():
            yield ""
            yield from self._block(step.text.strip())
        if step.invalid is not None:
            yield from ("", f"✕ no output of this run: {_code(preview(step.invalid))}")
        if step.calls:
            yield ""
        for call in step.calls:
            yield from self._call(call)

    def _call(self, call: CallSheet) -> Iterator[str]:
        sign = _SIGNS[MARKS.get(call.status, "unknown")]
        words = STATUS.get(call.status, "")
        arguments = "" if self._full else call_words(call.arguments)
        said = "" if self._full else preview(call.result or "")
        yield f"- {sign} {' '.join(map(_code, filter(None, (call.tool, arguments, words + said))))}"
        facts = list(call_facts(call, whole=self._full))
        facts += [decided(call)] if call.decision is not None else []
        facts += [granted(call.grant)] if call.grant is not None else []
        yield from (f"  - {_code(fact)}" for fact in facts)
        if self._full:
            yield from ("", "  Arguments:", "")
            yield from self._block(call.arguments, lead="  ")
            if call.result is not None:
                yield from ("", "  Result:", "")
                yield from self._block(call.result, lead="  ")
            yield ""

    def _pending(self) -> Iterator[str]:
        if self._sheet.pending:
            yield from ("", "## Waits for", "")
        for pending in self._sheet.pending:
            yield from self._waits(pending)

    def _waits(self, pending: PendingSheet) -> Iterator[str]:
        yield f"- ⏸ {_code(wanted(pending))} {_code(pending.summary)}"
        yield f"  - {_code(f'{pending.tool} {pending.arguments}')}"
        yield f"  - {_code(ACTS[pending.kind].format(f'{pending.id}{self._reached_by}'))}"

    def _children(self) -> Iterator[str]:
        if self._sheet.children:
            yield from ("", "## Runs inside", "")
        for child in self._sheet.children:
            yield f"- {_SIGNS[child_mark(child)]} {_code(child_words(child))}"

    def _artifacts(self) -> Iterator[str]:
        if self._sheet.artifacts:
            yield from ("", "## Kept outside of the transcript", "")
        for each in self._sheet.artifacts:
            yield f"- {_code(each.handle)} {_code(each.tool)} {_code(size_words(each))}"

    def _block(self, text: str, *, lead: str = "") -> Iterator[str]:
        """A text in a fence of its own, or the beginning of it."""
        shown = visible(text if self._full else text[:_SHORT_CHARS])
        fence = "`" * max(3, 1 + _longest(shown))
        yield f"{lead}{fence}text"
        yield from (f"{lead}{line}" for line in shown.split("\n"))
        yield f"{lead}{fence}"
        if not self._full and len(text) > _SHORT_CHARS:
            yield from ("", f"{lead}({len(text):,} characters in all: `--full`)")


def _code(text: str) -> str:
    """A text in a line, as a code span."""
    shown = one_line(text) or " "
    ticks = "`" * (1 + _longest(shown))
    pad = " " if len(ticks) > 1 or shown[0] == "`" or shown[-1] == "`" else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def _longest(text: str) -> int:
    """The longest run of backticks."""
    return max(map(len, _TICKS.findall(text)), default=0)
