"""What the model is told of a call: from how a body ended to content and status. No decisions, no I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, cast

import msgspec

from remit.budget import Dimension
from remit.messages import ResultContent, Status, Text
from remit.outcome import Outcome
from remit.render import render, render_error, render_text
from remit.supervise import Ending, Raised, Returned
from remit.tools import BadArguments, Effect, Tool, near_matches

__all__ = [
    "OUT_OF",
    "Result",
    "as_outcome",
    "carried_out",
    "interrupted",
    "no_call",
    "not_run",
    "of_ending",
    "of_value",
    "said",
    "unknown",
]

OUT_OF: dict[Dimension, str] = {
    "steps": "the step limit of this task is reached",
    "calls": "the limit on tool calls of this task is reached",
    "tokens": "the token limit of this task is reached",
    "usd": "the cost limit of this task is reached",
}
"""Why a call was not run, by what it lacked."""


class Result(msgspec.Struct, frozen=True):
    """A result on its way to its slot."""

    content: tuple[ResultContent, ...]
    status: Status


def said(text: str, status: Status) -> Result:
    """A result in the harness's own words."""
    return Result(render_text(text).content, status)


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


def of_ending(ending: Ending, tool: Tool[..., Any]) -> Result:
    """What a body that ended by itself came to."""
    match ending:
        case Returned(value):
            inside = as_outcome(value)
            return of_value(value, tool) if inside is None else _of_outcome(inside, tool)
        case Raised(asyncio.CancelledError()):
            return said("Error: the tool was cancelled from within.", Status.ERROR)
        case Raised(error):
            rendered = render_error(
                error, hidden=tool.hidden_errors, max_tokens=tool.max_result_tokens
            )
            return Result(rendered.content, Status.ERROR)


def as_outcome(value: object) -> Outcome[object] | None:
    """What a run inside came to, where a body returned just that. Errors: none."""
    # `isinstance` would ask the value itself, which may raise.
    return cast("Outcome[object]", value) if issubclass(type(value), Outcome) else None


def of_value(value: object, tool: Tool[..., Any]) -> Result:
    """What a body returned. A value that cannot be written is an error; the call took place all the same."""
    rendered = render(value, max_tokens=tool.max_result_tokens)
    if not rendered.is_error:
        return Result(rendered.content, Status.OK)
    if tool.effect is Effect.READ:
        return Result(rendered.content, Status.ERROR)
    return carried_out(Result(rendered.content, Status.ERROR))


def carried_out(result: Result) -> Result:
    """The error of a call whose function came to its end all the same."""
    return Result((*result.content, Text(" The call itself was carried out.")), result.status)


def _of_outcome(outcome: Outcome[object], tool: Tool[..., Any]) -> Result:
    """What a run inside came to."""
    if outcome.completed:
        return of_value(outcome.text if outcome.output is None else outcome.output, tool)
    whose = f" of {outcome.whose}" if outcome.whose else ""
    words = f"Error: the task is not done ({outcome.reason.value}{whose})."
    if outcome.text.strip():
        words += f" As far as it came: {outcome.text}"
    return Result(render_text(words, max_tokens=tool.max_result_tokens).content, Status.ERROR)
