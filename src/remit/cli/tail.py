"""`remit tail RUN`: what a run does, as it does it, whichever process executes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, TextIO

from cyclopts import Parameter

from remit.analysis.cells import one_line, visible
from remit.analysis.layout import Row, Span, rows_of
from remit.analysis.lines import Closing, Line, Mark, Opening, Remark, limit_words
from remit.analysis.listing import waits_for
from remit.analysis.sheet import pending_of_story
from remit.analysis.story import Story
from remit.analysis.view import RunView
from remit.cli import exits
from remit.cli.endings import ending
from remit.cli.following import Followed, follow_all, follow_tree
from remit.cli.locations import reach_of
from remit.cli.naming import entry_of, run_named
from remit.cli.options import StoreFlag
from remit.cli.reading import Printer, Searchable
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.stores import opened
from remit.cli.streams import Streams, complain, own_stdout
from remit.errors import ConfigurationError, JournalError
from remit.events import Event
from remit.report import stored_outcome

__all__ = ["tail"]

_ID_CELLS = 18
"""Of an id of ours so much tells runs of one second apart."""


def tail(
    run: str | None = None,
    /,
    *,
    every: Annotated[bool, Parameter(name="--all")] = False,
    begin: Annotated[str | None, Parameter(name="--from", metavar="start|now|SEQ")] = None,
    jsonl: bool = False,
    verbose: bool = False,
    store: StoreFlag = None,
) -> int:
    """Follow a run until it has ended or waits: a line for each thing that happens, as remit run --plain shows them.

    Args:
        run: The run: its id or the beginning of it, @last, @-2 or session:NAME.
        every: Every run that is live, and those that begin, until you leave with Ctrl-C.
        begin: Where to begin: at its start (so it is for one run), now (for --all), or with row SEQ.
        jsonl: One JSON line for each event; seq is the number of its row, with which --from goes on.
        verbose: What each reply was billed too, and every other event.
    """
    if (run is None) is not every:
        raise ConfigurationError("name one run, such as remit tail @last, or give --all")
    first = _first(begin, every=every)
    with own_stdout() as streams, opened(store) as kept:

        async def follow(_: Interrupts) -> int:
            if run is None:
                told = (
                    _Jsonl(streams.answer)
                    if jsonl
                    else _Lines(streams, verbose=verbose, named=True)
                )
                await follow_all(kept, told.tell, first=first)
                return exits.OK
            entry = await run_named(kept, run)
            told = _Jsonl(streams.answer) if jsonl else _Lines(streams, verbose=verbose)
            try:
                followed = await follow_tree(kept, entry, told.tell, first=first)
                mark, words = await _stands(kept, followed.retelling.story, reach_of(store))
            except JournalError as error:
                complain(str(error))
                return exits.CHECK_FAILED
            told.end(mark, words)
            return exits.OK

        return run_until_done(follow)


def _first(begin: str | None, *, every: bool) -> int | None:
    """The first row that is told; None: none of those that are there. Errors: `ConfigurationError`."""
    match begin:
        case None:
            return None if every else 0
        case "start":
            return 0
        case "now":
            return None
        case _ if begin.isascii() and begin.isdecimal() and len(begin) < 10:
            return int(begin)
        case _:
            raise ConfigurationError(f"--from {begin}: give start, now, or the number of a row")


async def _stands(store: Searchable, story: Story, reached_by: str) -> tuple[Mark, str]:
    """Why nothing more is told, in words."""
    entry = await entry_of(store, story.run_id)
    if story.state.ended is not None:
        outcome = await stored_outcome(store, story.state)
        limits, name = story.state.limits, story.state.opened.remit
        return ending(outcome, limits, name=name, shown=True, left=[], reached_by=reached_by)
    pending = await pending_of_story(store, story)
    if pending:
        ids = ", ".join(one_line(each.id) for each in pending)
        return "waiting", f"waits for {waits_for(pending, datetime.now(UTC))}: {ids}"
    if entry is not None and entry.lost:
        return (
            "unknown",
            f"it broke off: whoever executed it is gone; remit resume {story.run_id}{reached_by}",
        )
    return "unknown", f"nothing more is told: it is {'gone' if entry is None else entry.status}"


class _Jsonl:
    """Events for a program."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers

    def tell(self, run: Followed, seq: int, events: Sequence[Event], *, new: bool) -> None:
        """Write them. Errors: `BrokenPipeError` once that has gone."""
        del run
        for event in events if new else ():
            # ASCII, so that no terminal obeys what a model wrote.
            line = json.dumps({"v": 1, "seq": seq, **event.to_json()}, default=str)
            self._answers.write(line.replace("\x7f", "\\u007f") + "\n")
        self._answers.flush()

    def end(self, mark: Mark, words: str) -> None:
        """The last event has told it."""


class _Lines:
    """Lines for people."""

    def __init__(self, streams: Streams, *, verbose: bool, named: bool = False) -> None:
        """`named` puts the run before each of its lines: there are several."""
        self._printer = Printer(streams.answer)
        self._verbose = verbose
        self._named = named
        self._views: dict[str, RunView] = {}
        self._opened: set[str] = set()

    def tell(self, run: Followed, seq: int, events: Sequence[Event], *, new: bool) -> None:
        """Print what they come to. Errors: `BrokenPipeError` once nobody reads it."""
        del seq
        root = run.run_id if self._named else next(iter(self._views), run.run_id)
        for event in events:
            lines = self._views.setdefault(root, RunView()).apply(event)
            if not new:
                continue
            if root not in self._opened:
                self._opened.add(root)
                self._show(root, _opening(run.retelling.story))
            for line in lines:
                if self._verbose or not (isinstance(line, Remark) and line.detail):
                    self._show(root, line)
            if self._named and event.kind == "run_ended":
                self._show(root, _ended(event))

    def end(self, mark: Mark, words: str) -> None:
        self._printer.show(rows_of(Closing(mark=mark, text=words), self._printer.glyphs, None))

    def _show(self, run_id: str, line: Line) -> None:
        glyphs = self._printer.glyphs
        rows: list[Row] = list(rows_of(line, glyphs, None))
        if self._named:
            name = glyphs.carried(one_line(run_id))[:_ID_CELLS]
            rows = [(Span(f"{name}  ", "dim"), *row) for row in rows]
        self._printer.show(rows)


def _opening(story: Story) -> Opening:
    state = story.state
    return Opening(
        run_id=visible(story.run_id),
        name=visible(state.opened.remit),
        model="",
        limits=limit_words(state.limits),
    )


def _ended(event: Event) -> Closing:
    reason = str(event.fields.get("reason"))
    marks: dict[str, Mark] = {"completed": "ok", "waiting": "waiting"}
    return Closing(mark=marks.get(reason, "failed"), text=reason)
