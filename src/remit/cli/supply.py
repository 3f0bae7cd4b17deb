"""`remit supply`: answer what a tool asks, or bring the result of a call that is executed elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from remit.canonical import parse_json
from remit.cli.cases import Case
from remit.cli.content import decoded, proper_text, read_bounded, read_piped
from remit.cli.deciding import Act, carry_out, find
from remit.cli.forms import Misfit, checked, read
from remit.cli.options import STDIN, Again, Display, StoreFlag
from remit.cli.prompts import login
from remit.cli.run import refuse_contradictions
from remit.cli.settings import here
from remit.cli.stores import opened
from remit.cli.streams import Streams, own_stdout
from remit.cli.targets import AnyRemit
from remit.errors import ConfigurationError
from remit.pending import Pending, PendingKind

__all__ = ["supply"]

_SUPPLIED: Final = frozenset[PendingKind]({"input", "result"})


def supply(
    pending: Annotated[str, Parameter(metavar="ID")],
    value: Annotated[str, Parameter(metavar="VALUE|@FILE|-")],
    /,
    *,
    error: bool = False,
    by: Annotated[str | None, Parameter(metavar="NAME")] = None,
    no_resume: bool = False,
    again: Again = Again(),
    store: StoreFlag = None,
    json: bool = False,
    display: Display = Display(),
) -> int:
    """Give a run what it waits for: the answer to a question, or the result of a call made elsewhere.

    Args:
        pending: What it is for, by its id or, on a terminal, the beginning of it: remit approvals lists them.
        value: The value: text where text is asked for, else JSON; @FILE or - reads it. A result that is no JSON is a text.
        error: The value says why there is none: the call failed, or nobody will answer.
        by: Who supplies it, for the record; without it your login name.
        no_resume: Only supply it; remit resume goes on.
        json: Answer with one JSON document: what was supplied, the outcome.
    """
    refuse_contradictions(display)
    with own_stdout() as streams, opened(store) as kept_in:
        act = Act(streams, store, again, display, json=json, resumes=not no_resume)
        text = _given(value, here(), streams)
        [case] = find(kept_in, [pending], act, _SUPPLIED)
        who, asked = by or login(), case.pending
        given = text if error else _read(asked, text)

        async def hand_in(remit: AnyRemit, _: Case) -> None:
            await remit.supply(asked.id, given, is_error=error, by=who)

        said = {"decision": "supplied", "by": who}
        # A result from elsewhere is redacted as the code of its run says.
        return carry_out(act, kept_in, [case], hand_in, said, needs_code=asked.kind == "result")


def _given(value: str, directory: Path, streams: Streams) -> str:
    """What the argument says, or names. Errors: `ConfigurationError`."""
    if value == STDIN:
        return read_piped(streams.input)
    if value.startswith("@"):
        return decoded(read_bounded(directory / value[1:], value), value)
    return proper_text(value, "the value")


def _read(asked: Pending, text: str) -> Any:
    """The value that a text stands for. Errors: `ConfigurationError`."""
    if asked.kind == "result":
        try:
            return parse_json(text)
        except ValueError:
            return text
    schema = asked.schema or {}
    try:
        return checked(schema, read(schema, text))
    except Misfit as misfit:
        raise ConfigurationError(
            f"{asked.tool} asks: {asked.summary} That does not do: {misfit}"
        ) from misfit
