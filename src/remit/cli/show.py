"""`remit show RUN`: what a run was asked, what it did, what it used, what it waits for and why it ended."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from remit.analysis.lines import Mark
from remit.analysis.listing import waits_for
from remit.analysis.sheet import (
    ChildSheet,
    Only,
    RunSheet,
    child_of,
    narrowed,
    pending_of_story,
    sheet_of,
    to_document,
)
from remit.analysis.sheet_layout import Page
from remit.analysis.sheet_markdown import markdown_of
from remit.analysis.story import Story, read_story
from remit.analysis.times import moment
from remit.cli import exits
from remit.cli.documents import VERSION, write_document
from remit.cli.endings import ending
from remit.cli.locations import reach_of
from remit.cli.naming import run_named
from remit.cli.options import StoreFlag
from remit.cli.reading import Printer, Searchable
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.stores import opened
from remit.cli.streams import Streams, complain, own_stdout
from remit.errors import ConfigurationError, JournalError
from remit.report import stored_outcome
from remit.store.directory import RunEntry, RunQuery

__all__ = ["show"]

_STEPS: Final = re.compile(r"([0-9]{1,6})(?:(\.\.)([0-9]{1,6})?)?")
_LAST: Final = 1_000_000
_CHILDREN: Final = 100


def show(
    run: str,
    /,
    *,
    step: Annotated[str | None, Parameter(metavar="N[..M]")] = None,
    call: Annotated[str | None, Parameter(metavar="ID")] = None,
    only: Only | None = None,
    full: bool = False,
    markdown: bool = False,
    json: bool = False,
    store: StoreFlag = None,
) -> int:
    """Show a run: its words, its calls with effects and keys, its budget, what it waits for and why it ended.

    Args:
        run: The run: its id or the beginning of it, @last, @-2 or session:NAME.
        step: Only these steps, with everything about them.
        call: Only the call with this id or key, with everything about it.
        only: A part: failed calls, all calls, the model's text, effects, artifacts, budget or children.
        full: Texts, arguments and results whole.
        markdown: Print a Markdown document, to be kept or sent; what was said stands in it as text.
        json: Print one JSON document.
    """
    if json and markdown:
        raise ConfigurationError("--json and --markdown contradict each other: leave one out")
    chosen = None if step is None else _steps(step)
    with own_stdout() as streams, opened(store) as kept:

        async def look(_: Interrupts) -> int:
            entry = await run_named(kept, run)
            sheet, story = await _sheet(kept, entry)
            why = await _why(kept, sheet, story, reach_of(store))
            part = narrowed(sheet, steps=chosen, call=call, only=only)
            if call is not None and not part.steps and sheet.unreadable is None:
                raise exits.NotFound(f"run {entry.run_id} has no call with the id or key {call!r}")
            if json:
                write_document({"v": VERSION, **to_document(part)}, streams.answer)
            else:
                whole = full or step is not None or call is not None
                write = _write_markdown if markdown else _print
                write(part, why, streams, _Wanted(only, whole, reach_of(store)))
            if sheet.unreadable is not None:
                complain(sheet.unreadable)
                return exits.CHECK_FAILED
            return exits.OK

        return run_until_done(look)


class _Wanted(msgspec.Struct, frozen=True):
    """What of a run is to be shown, and how."""

    only: Only | None
    full: bool
    reached_by: str
    """The flag that leads to its store, for the commands that are named."""


def _print(sheet: RunSheet, why: tuple[Mark, str], streams: Streams, wanted: _Wanted) -> None:
    printer = Printer(streams.answer)
    page = Page(
        sheet,
        glyphs=printer.glyphs,
        columns=printer.columns,
        now=datetime.now(UTC),
        full=wanted.full,
        reached_by=wanted.reached_by,
    )
    printer.show(page.rows(wanted.only, why, part=wanted.only is not None))


def _write_markdown(
    sheet: RunSheet, why: tuple[Mark, str], streams: Streams, wanted: _Wanted
) -> None:
    document = markdown_of(
        sheet,
        why,
        now=datetime.now(UTC),
        only=wanted.only,
        part=wanted.only is not None,
        full=wanted.full,
        reached_by=wanted.reached_by,
    )
    print(document, file=streams.answer, flush=True)


async def _sheet(store: Searchable, entry: RunEntry) -> tuple[RunSheet, Story | None]:
    """A run, as much of it as can be read."""
    if entry.erased_at is not None:
        return sheet_of(entry, None), None
    children = await _children(store, entry)
    try:
        story = await read_story(store, entry.run_id, whole=True)
        pending = await pending_of_story(store, story) if entry.status == "waiting" else ()
    except JournalError as error:
        return sheet_of(entry, None, unreadable=str(error), children=children), None
    return sheet_of(entry, story, pending=pending, children=children), story


async def _children(store: Searchable, entry: RunEntry) -> list[ChildSheet]:
    """The runs inside, oldest first."""
    found: list[ChildSheet] = []
    for child in reversed(await store.runs(RunQuery(parent=entry.run_id), count=_CHILDREN)):
        try:
            story = await read_story(store, child.run_id, whole=False)
        except JournalError:
            story = None
        found.append(child_of(child, story))
    return found


async def _why(
    store: Searchable, sheet: RunSheet, story: Story | None, reached_by: str
) -> tuple[Mark, str]:
    """How the run stands, in words."""
    again = f"it can be resumed: remit resume {sheet.run_id}{reached_by}"
    if sheet.erased_at is not None:
        at = moment(sheet.erased_at)
        return "unknown", f"{sheet.reason or sheet.status}; what it said was erased on {at}"
    if story is None or sheet.limits is None:
        return (
            "failed",
            f"{sheet.reason or sheet.status}; its rows cannot be read: {sheet.unreadable}",
        )
    if sheet.lost:
        return "unknown", f"it broke off: whoever executed it is gone; {again}"
    match sheet.status:
        case "ended":
            outcome = await stored_outcome(store, story.state)
            return ending(
                outcome, sheet.limits, name=sheet.remit, shown=True, left=[], reached_by=reached_by
            )
        case "waiting":
            waits = waits_for(sheet.pending, datetime.now(UTC))
            return "waiting", f"waits for {waits}" if waits else "waits"
        case "running":
            flights = [call.use.name for call in story.calls() if call.state.under_way]
            return "running", f"runs: {', '.join(flights) or 'the model is asked'}"
        case _:
            return "unknown", f"nobody executes it: {again}"


def _steps(text: str) -> tuple[int, int]:
    """`3`, `3..5`, `3..`. Errors: `ConfigurationError`."""
    found = _STEPS.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"--step {text}: steps are 3, 3..5 or 3..")
    first = int(found[1])
    last = first if found[2] is None else int(found[3] or _LAST)
    if last < first:
        raise ConfigurationError(f"--step {text}: {last} comes before {first}")
    return first, last
