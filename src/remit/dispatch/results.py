"""What the model is told of a call: from how a body ended to content and status. No decisions, no I/O.

Whatever becomes a result passes through here, and so through one output budget (`shown`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, cast

import msgspec

from remit.artifacts import Artifact
from remit.budget import Dimension
from remit.errors import ToolError
from remit.excerpt import Excerpt, chars_of
from remit.messages import Status, Text
from remit.outcome import Outcome
from remit.paging import READ_ARTIFACT
from remit.redaction import WITHHELD
from remit.render import Rendered, is_quick, render, render_error, render_text
from remit.shown import RESULT_TOKENS, Allowance, Fitted, Keeps, Shown, fitted, of_page, prefixed
from remit.supervise import Ending, Raised, Returned
from remit.tools import BadArguments, Effect, Tool, near_matches

__all__ = [
    "OUT_OF",
    "Result",
    "Terms",
    "as_outcome",
    "as_shown",
    "interrupted",
    "is_quick_ending",
    "no_call",
    "not_run",
    "of_ending",
    "of_supplied",
    "said",
    "unknown",
    "unread",
]

OUT_OF: dict[Dimension, str] = {
    "steps": "the step limit of this task is reached",
    "calls": "the limit on tool calls of this task is reached",
    "tokens": "the token limit of this task is reached",
    "usd": "the cost limit of this task is reached",
}
"""Why a call was not run, by what it lacked."""


_OURS = Allowance(chars_of(RESULT_TOKENS), lambda _: False)
"""What words of the harness may take."""


class Result(msgspec.Struct, frozen=True, gc=False):
    """A result on its way to its slot, within its budget."""

    shown: Shown
    status: Status
    artifacts: tuple[Artifact, ...] = ()
    """What has to be stored with it."""

    def behind(self, words: str, chars: int) -> Result:
        """The same after words of ours, within so many characters."""
        return _result(prefixed(Fitted(self.shown, self.artifacts), words, chars), self.status)


def _result(fitted: Fitted, status: Status) -> Result:
    return Result(fitted.shown, status, fitted.artifacts)


def as_shown(row: Keeps, status: Status, artifacts: tuple[Artifact, ...] = ()) -> Result:
    """The result of an equal call, as it was shown then."""
    return Result(Shown(row.content, row.kept, row.artifacts), status, artifacts)


def said(text: str, status: Status) -> Result:
    """A result in the harness's own words."""
    return _result(fitted(render_text(text), _OURS), status)


def not_run(why: str) -> Result:
    return said(f"Not run: {why}.", Status.NOT_STARTED)


def unknown(why: str) -> Result:
    """The truth about an effect that nobody knows the end of (E4)."""
    return said(f"Outcome unknown: {why}. It may have taken effect.", Status.UNKNOWN)


def interrupted(tool: Tool[..., Any], why: str) -> Result:
    """A body was cut. Only an effect leaves a doubt."""
    if tool.effect is Effect.READ:
        return said(f"Error: {why}.", Status.ERROR)
    return unknown(why)


def no_call(name: str, bad: BadArguments | None, known: Collection[str]) -> Result:
    """Why a tool use is no call: bad arguments, or a tool that does not exist."""
    if bad is not None:
        return said(f"Error: {bad.message}", Status.ERROR)
    near = near_matches(name, known)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return said(f"Error: there is no tool {name[:100]!r}.{hint}", Status.ERROR)


def unread(tool: Tool[..., Any]) -> Result:
    """What the body came to could not be written down in time."""
    text = "Error: the tool returned something that could not be read in time."
    return said(text if tool.effect is Effect.READ else text + _CARRIED_OUT, Status.ERROR)


def is_quick_ending(ending: Ending) -> bool:
    """Whether to tell how a body ended is certainly little work."""
    if isinstance(ending, Raised):
        return is_quick(ending.error)
    inside = as_outcome(ending.value)
    if type(ending.value) is Excerpt:
        return True
    return is_quick(ending.value) if inside is None else is_quick([inside.output, inside.text])


class Terms(msgspec.Struct, frozen=True, gc=False):
    """On what terms something becomes a result."""

    allowance: Allowance
    clean: Callable[[Rendered], Rendered | None] = lambda rendered: rendered
    """What may be seen of it; None where that could not be found out."""


def of_ending(
    ending: Ending, tool: Tool[..., Any], terms: Terms, *, carried_out: bool = False
) -> Result:
    """What a body that ended by itself came to; `carried_out`: its function did its work, whatever came after."""
    match ending:
        case Returned(value):
            inside = as_outcome(value)
            if inside is None:
                return _of_value(value, tool, terms)
            return _of_outcome(inside, tool, terms)
        case Raised(asyncio.CancelledError()):
            rendered = render_text("Error: the tool was cancelled from within.")
        case Raised(error):
            rendered = render_error(error, hidden=tool.hidden_errors)
    return _failed(rendered, terms, carried_out=carried_out)


def of_supplied(value: object, terms: Terms, *, is_error: bool) -> Result:
    """What somebody brought for a call that was executed elsewhere; `value` is JSON."""
    words = is_error and isinstance(value, str)
    rendered = render_error(ToolError(value)) if words else render(value)
    if is_error:
        return _failed(rendered, terms, carried_out=False)
    clean = terms.clean(rendered)
    if clean is None:
        return _withheld(carried_out=False)
    return _result(fitted(clean, terms.allowance), Status.OK)


def as_outcome(value: object) -> Outcome[object] | None:
    """What a run inside came to, where a body returned just that. Errors: none."""
    # `isinstance` would ask the value itself, which may raise.
    return cast("Outcome[object]", value) if issubclass(type(value), Outcome) else None


_CARRIED_OUT = " The call itself was carried out."


def _of_value(value: object, tool: Tool[..., Any], terms: Terms) -> Result:
    """What a body returned. A value that cannot be written is an error; the call took place all the same."""
    if type(value) is Excerpt and tool.name == READ_ARTIFACT:
        return _of_page(value, terms)
    effect = tool.effect is not Effect.READ
    rendered = render(value)
    if rendered.is_error:
        return _failed(rendered, terms, carried_out=effect)
    clean = terms.clean(rendered)
    if clean is None:
        return _withheld(carried_out=effect)
    return _result(fitted(clean, terms.allowance), Status.OK)


def _of_page(page: Excerpt, terms: Terms) -> Result:
    """A page of what was kept; it may have been kept before anything was to be hidden."""
    page = page.within(terms.allowance.chars)
    clean = terms.clean(Rendered((Text(page.head),)))
    if clean is None:
        return _withheld(carried_out=False)
    seen = "".join(block.text for block in clean.content if isinstance(block, Text))
    if seen == page.head:
        return Result(of_page(page, terms.allowance.chars), Status.OK)
    way_on = page.text[len(page.head) :]
    text = seen[: max(terms.allowance.chars - len(way_on), 0)] + way_on
    return Result(Shown((Text(text),), artifacts=(page.handle,)), Status.OK)


def _failed(rendered: Rendered, terms: Terms, *, carried_out: bool) -> Result:
    """An error, and whether the function did its work all the same."""
    clean = terms.clean(rendered)
    if clean is None:
        return _withheld(carried_out=carried_out)
    if carried_out:
        content = (*clean.content, Text(_CARRIED_OUT))
        clean = Rendered(content, is_error=True, found=clean.found)
    return _result(fitted(clean, terms.allowance), Status.ERROR)


def _withheld(*, carried_out: bool) -> Result:
    """Nothing of it is shown: whether it may be could not be found out."""
    text = f"Error: {WITHHELD}"
    return said(text + _CARRIED_OUT if carried_out else text, Status.ERROR)


def _of_outcome(outcome: Outcome[object], tool: Tool[..., Any], terms: Terms) -> Result:
    """What a run inside came to. What it kept and speaks of can be read here, and later on."""
    if outcome.completed:
        result = _of_value(outcome.text if outcome.output is None else outcome.output, tool, terms)
    else:
        whose = f" of {outcome.whose}" if outcome.whose else ""
        words = f"Error: the task is not done ({outcome.reason.value}{whose})."
        if outcome.text.strip():
            words += f" As far as it came: {outcome.text}"
        result = _failed(render_text(words), terms, carried_out=False)
    told = outcome.text + "".join(b.text for b in result.shown.content if isinstance(b, Text))
    named = [handle for handle in outcome.transcript.artifacts if handle in told]
    if not named:
        return result
    shown = msgspec.structs.replace(
        result.shown, artifacts=tuple(dict.fromkeys([*result.shown.artifacts, *named]))
    )
    return msgspec.structs.replace(result, shown=shown)
