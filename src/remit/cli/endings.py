"""The line at the end of a run: why it ended, what it used, and what can be done about it that really works."""

from __future__ import annotations

from typing import Any

from remit.analysis.cells import one_line, visible
from remit.analysis.figures import count, dollars, duration, percent
from remit.analysis.lines import Mark
from remit.analysis.times import moment
from remit.limits import Limits
from remit.outcome import Outcome, Reason

__all__ = ["ending"]

_FLAGS = {
    Reason.STEP_BUDGET: "--steps",
    Reason.TOKEN_BUDGET: "--tokens",
    Reason.COST_BUDGET: "--usd",
    Reason.CALL_BUDGET: "--calls",
    Reason.DEADLINE: "--seconds",
}
_AGAIN = {
    Reason.CANCELLED: "what is done is kept, go on",
    Reason.MODEL_FAILED: "try again",
    Reason.JOURNAL_FAILED: "try again",
    Reason.INTERNAL_ERROR: "try again",
}
"""What has ended for no limit and can be gone on with."""
_REOPEN = {Reason.CANCELLED: " --reopen"}
_OPEN = 3
"""So many open questions are named."""


def ending(
    outcome: Outcome[Any],
    limits: Limits,
    *,
    name: str,
    shown: bool,
    left: list[str],
    reached_by: str | None = None,
) -> tuple[Mark, str]:
    """The mark and the words of the end.

    `name` is that of the remit, `shown` whether its answer stands above, `left` are tools that still run.
    `reached_by` is what `remit resume` is given beside the run to go on with it; None where no command can.
    """
    completed = outcome.completed
    mark: Mark = "ok" if completed else "waiting" if outcome.reason is Reason.WAITING else "failed"
    parts = ["completed" if completed else _uncompleted(outcome, limits, name)]
    parts += _spent(outcome)
    if left:
        parts.append(f"still running: {', '.join(left)} (may yet take effect)")
    if not completed and outcome.text.strip():
        parts.append("answer so far above" if shown else "answer so far on stdout")
    parts += _advice(outcome, limits, name, reached_by)
    return mark, " · ".join(one_line(part) for part in parts)


def _uncompleted(outcome: Outcome[Any], limits: Limits, name: str) -> str:
    reason, spent = outcome.reason, outcome.spend.tree
    if reason is Reason.WAITING:
        return f"waiting: {_open(outcome)}"
    facts: list[str] = []
    if reason in _FLAGS:
        allowed, used = {
            Reason.STEP_BUDGET: (f"{limits.steps} steps", f"{spent.steps}"),
            Reason.TOKEN_BUDGET: (f"{count(limits.tokens)} tokens", count(spent.tokens)),
            Reason.COST_BUDGET: (
                f"${dollars(limits.usd or spent.usd)}",
                f"${dollars(spent.usd, like=limits.usd)}",
            ),
            Reason.CALL_BUDGET: (f"{limits.calls} calls", f"{spent.calls}"),
            Reason.DEADLINE: (_time(limits), duration(spent.seconds)),
        }[reason]
        ours = outcome.whose in {None, name}
        whose = f"yours: {allowed}" if ours else f"of {outcome.whose}"
        facts.append(f"{whose}; this run used {used}")
    elif outcome.error:
        facts.append(outcome.error)
    return f"task uncompleted: {reason}" + (f" ({visible('; '.join(facts))})" if facts else "")


def _time(limits: Limits) -> str:
    calendar = limits.deadline
    end = "" if calendar is None else f", at latest {moment(calendar)}"
    return f"{limits.seconds:g} s{end}"


def _open(outcome: Outcome[Any]) -> str:
    """What is waited for."""
    kinds = {"approval": "a decision on", "input": "an answer to", "result": "the result of"}
    named = [f"{kinds[each.kind]} {each.tool} [{each.id}]" for each in outcome.pending[:_OPEN]]
    more = len(outcome.pending) - _OPEN
    return ", ".join([*named, f"{more} more"] if more > 0 else named)


def _spent(outcome: Outcome[Any]) -> list[str]:
    spent = outcome.spend.tree
    usage = spent.usage
    prompts = usage.input + usage.cache_read + usage.cache_write
    cached = f" ({percent(usage.cache_read, prompts)} cached)" if usage.cache_read else ""
    steps = f"{spent.steps} step{'' if spent.steps == 1 else 's'}"
    money = [f"${dollars(spent.usd)}"] if spent.usd else []
    return [steps, f"{count(spent.tokens)} tokens{cached}", *money, duration(spent.seconds)]


def _advice(outcome: Outcome[Any], limits: Limits, name: str, reached_by: str | None) -> list[str]:
    """What a person can do now. Only what exists."""
    flag = _FLAGS.get(outcome.reason)
    resume = None if reached_by is None else f"remit resume {outcome.run_id}{reached_by}"
    if flag is None and resume is not None:
        again = _AGAIN.get(outcome.reason)
        return [] if again is None else [f"{again}: {resume}{_REOPEN.get(outcome.reason, '')}"]
    if flag is None or outcome.whose not in {None, name}:
        return []
    spent = outcome.spend.tree
    match outcome.reason:
        case Reason.STEP_BUDGET:
            more = f"{2 * limits.steps}"
        case Reason.TOKEN_BUDGET:
            more = f"{2 * limits.tokens}"
        case Reason.COST_BUDGET:
            more = dollars(2 * (limits.usd or spent.usd))
        case Reason.CALL_BUDGET:
            more = f"{2 * (limits.calls or spent.calls)}"
        case _:
            if limits.deadline is not None and spent.seconds < limits.seconds / 2:
                return []  # the calendar's, which no flag moves
            more = f"{2 * limits.seconds:g}"
    if resume is not None:
        return [f"resume with more: {resume} {flag} {more}"]
    return [f"with more it gets further: {flag} {more}"]
