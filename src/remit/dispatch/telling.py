"""Telling the model how a body ended, without holding up the event loop.

What is certainly little work is done where it is asked for; anything else in a worker, and it has to come in
time: a value may hold a gigabyte, or code of its author's that never ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remit.canonical import canonical, decode, parse_json
from remit.dispatch.results import (
    Result,
    Terms,
    is_quick_ending,
    of_ending,
    of_supplied,
    said,
    unknown,
    unread,
)
from remit.log import LOGGER
from remit.messages import Status
from remit.redaction import Redactor, Withheld, closed, redacted
from remit.render import Rendered, error_words, is_quick
from remit.run import Run
from remit.shown import RESULT_TOKENS
from remit.state import CallState
from remit.supervise import Ending, Halt
from remit.tools import Tool

__all__ = ["edited_words", "told", "told_of_lost_run", "told_supplied"]

_SUPPLIED_SECONDS = 60.0
"""What it may take to read a result that was brought."""


async def told(
    run: Run,
    ending: Ending,
    tool: Tool[..., Any],
    *,
    until: float,
    halt: Halt | None,
    carried_out: bool = False,
) -> Result:
    """The result that an end comes to. Units: `until` is on the event loop's clock."""
    made = await _made(
        run,
        lambda terms: of_ending(ending, tool, terms, carried_out=carried_out),
        name=tool.name,
        tool=tool,
        quick=lambda: is_quick_ending(ending),
        until=until,
        halt=halt,
    )
    return unread(tool) if made is None else made


async def told_supplied(
    run: Run,
    value: str,
    name: str,
    tool: Tool[..., Any] | None,
    *,
    is_error: bool,
    halt: Halt | None,
) -> Result:
    """The result of a call that was executed elsewhere; `value` is JSON, `tool` is None where it is gone."""
    made = await _made(
        run,
        lambda terms: of_supplied(decode(value.encode()), terms, is_error=is_error),
        name=name,
        tool=tool,
        quick=lambda: is_quick(value),
        until=run.loop.time() + _SUPPLIED_SECONDS,
        halt=halt,
    )
    return made or said("Error: the result could not be read in time.", Status.ERROR)


async def _made(
    run: Run,
    make: Callable[[Terms], Result],
    *,
    name: str,
    tool: Tool[..., Any] | None,
    quick: Callable[[], bool],
    until: float,
    halt: Halt | None,
) -> Result | None:
    """A result, made here where that is certainly little work; None where it did not come in time.

    With a redactor, which is the host's own code, all of it is done in a worker.
    """
    redact = run.redact
    allowance = run.allowance(RESULT_TOKENS if tool is None else tool.max_result_tokens)
    if redact is None:
        terms = Terms(allowance)
        if quick():
            return make(terms)
        cleaning = None
    else:
        cleaning = _Cleaning(redact)
        terms = Terms(allowance, cleaning)
    made = await run.aside(lambda: make(terms), until=until, halt=halt)
    if cleaning is not None and cleaning.failure is not None:
        run.emit("redact_failed", {"tool": name, "error": cleaning.failure})
    return made


def told_of_lost_run(run: Run, call: CallState, error: BaseException) -> Result:
    """The result of a call whose run inside was begun and cannot be taken up again: what it did stands (E1).

    Why is for the log: it names the run inside by its call's key, which no model sees.
    """
    words = error_words(error)
    LOGGER.warning("run %s: call %s: %s", run.state.run_id, call.use.id, words)
    return unknown("what it began cannot be taken up again now")


def edited_words(call: CallState, tool: Tool[..., Any] | None) -> str:
    """What the model is told where the person who approved changed the arguments (E5); `tool` is None where it is gone."""
    decision, edited = call.decision, call.edited
    if decision is None or not decision.approve or edited is None or edited.edit is None:
        return ""
    edit = edited.edit
    if tool is not None and tool.has_secrets:  # the model wrote no secret of the host's
        edit = canonical(tool.masked(parse_json(edit)))
    return f"[{edited.by} changed the arguments to {edit}]\n"


class _Cleaning:
    """The host's redactor, applied to a result. It fails closed."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self.failure: str | None = None
        """The kind of its error; the words may hold what was to be redacted."""

    def __call__(self, rendered: Rendered) -> Rendered | None:
        made = closed(lambda: redacted(rendered, self._redact))
        if isinstance(made, Withheld):
            self.failure = made.kind
            return None
        return made
