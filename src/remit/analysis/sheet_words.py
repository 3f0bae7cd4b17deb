"""The parts of a sheet in words, whoever lays them out: rows of a terminal (`sheet_layout`), Markdown (`sheet_markdown`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from remit.analysis.cells import one_line
from remit.analysis.figures import clock, count, dollars, duration, percent
from remit.analysis.lines import Mark
from remit.analysis.sheet import (
    ArtifactSheet,
    AsideSheet,
    CallSheet,
    ChildSheet,
    GrantSheet,
    PendingSheet,
    RunSheet,
    StepSheet,
)
from remit.analysis.times import ago, moment
from remit.messages import Usage
from remit.preview import preview

__all__ = [
    "ACTS",
    "MARKS",
    "STATUS",
    "aside_words",
    "budget_words",
    "call_facts",
    "child_mark",
    "child_words",
    "decided",
    "granted",
    "size_words",
    "step_words",
    "tags_of",
    "wanted",
    "when",
]

MARKS: Final[dict[str, Mark]] = {
    "ok": "ok",
    "error": "failed",
    "refused": "failed",
    "waiting": "waiting",
    "open": "running",
}
STATUS: Final = {
    "refused": "refused: ",
    "not_started": "not run: ",
    "unknown": "outcome unknown: ",
    "in_doubt": "in doubt: it was started, and no outcome is recorded",
    "open": "no result yet",
    "waiting": "waits",
}
ACTS: Final = {
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


def when(sheet: RunSheet, now: datetime) -> str:
    """When it began and ended, and who holds it."""
    began = f"began {moment(sheet.created_at)}, {ago(sheet.created_at, now)}"
    if sheet.ended_at is not None:
        return f"{began}; ended {moment(sheet.ended_at)}, {ago(sheet.ended_at, now)}"
    if sheet.owner is not None:
        gone = ", which is gone" if sheet.lost else ""
        return f"{began}; held by {one_line(sheet.owner)}{gone}"
    return began


def budget_words(sheet: RunSheet) -> list[str]:
    """What was used of what may be; nothing where no row tells."""
    limits, spent = sheet.limits, sheet.spent_tree
    if limits is None or spent is None:
        return []
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
    parts.append(usage_words(spent.usage))
    return parts


def aside_words(aside: AsideSheet, *, whole: bool) -> tuple[str, str]:
    """What it is, and what it says."""
    text = aside.text
    if aside.what == "resumed":
        with contextlib.suppress(ValueError):
            text = moment(datetime.fromisoformat(text))
    return _ASIDES[aside.what], one_line(text if whole else preview(text))


def step_words(step: StepSheet) -> tuple[str, list[str]]:
    """What a reply is called, and what it took."""
    label = "hand-back" if step.closing else "reply" if step.step is None else f"step {step.step}"
    facts = [usage_words(step.usage), f"${dollars(step.usd)}" if step.usd else ""]
    facts.append(f"model {duration(step.seconds)}")
    if step.calls_seconds is not None:
        facts.append(f"calls {duration(step.calls_seconds)}")
    facts += ["estimated"] if step.estimated else []
    facts += [] if step.whole else ["cut short"]
    if step.stop_reason not in {"tool_use", "end_turn"}:
        facts.append(step.stop_reason)
    return label, [fact for fact in facts if fact]


def call_facts(call: CallSheet, *, whole: bool) -> Iterator[str]:
    """What matters of a call beside what it was and came to."""
    if call.is_effect or whole:
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
        yield f"kept as {handle if whole else handle[:21]}"
    if whole:
        yield f"id {call.id}"


def size_words(artifact: ArtifactSheet) -> str:
    """How much of an artifact the model was shown, or what it is."""
    if artifact.chars is None:
        return artifact.media_type or ""
    return f"shown {count(artifact.shown or 0)} of {count(artifact.chars)} characters"


def granted(grant: GrantSheet) -> str:
    return f"allowed by a standing grant of {one_line(grant.by)} [{grant.id}]"


def tags_of(sheet: RunSheet) -> list[tuple[str, str]]:
    """Those that somebody chose."""
    return sorted(tag for tag in sheet.tags.items() if not tag[0].startswith(_OUR_TAGS))


def usage_words(usage: Usage) -> str:
    parts = [f"{count(usage.input + usage.cache_write)} fresh"]
    if usage.cache_read:
        parts.append(
            f"{count(usage.cache_read)} cached ({percent(usage.cache_read, usage.prompt)})"
        )
    return ", ".join([*parts, f"{count(usage.output)} out"])


def wanted(pending: PendingSheet) -> str:
    kinds = {"approval": "a decision on", "input": "an answer to", "result": "the result of"}
    return f"{kinds[pending.kind]} {one_line(pending.tool)}"


def decided(call: CallSheet) -> str:
    decision = call.decision
    if decision is None:
        return ""
    said = "approved" if decision.approve else "rejected"
    note = f": {one_line(decision.note)}" if decision.note else ""
    edit = f"; with other arguments: {one_line(decision.edit)}" if decision.edit else ""
    return f"{said} by {one_line(decision.by)}{note}{edit}"


def child_mark(child: ChildSheet) -> Mark:
    if child.status == "ended":
        return "ok" if child.reason == "completed" else "failed"
    return "waiting" if child.status == "waiting" else "running"


def child_words(child: ChildSheet) -> str:
    spent = child.spent
    used = ""
    if spent is not None:
        steps = f"{spent.steps} step{'' if spent.steps == 1 else 's'}"
        used = f"  {steps}, {count(spent.tokens)} tokens" + (
            f", ${dollars(spent.usd)}" if spent.usd else ""
        )
    return f"{one_line(child.remit)}  {child.reason or child.status}{used}  run {one_line(child.run_id)}"
