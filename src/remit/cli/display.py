"""How a run is shown to whoever started it: which display there is, and what each of them does.

`display_mode` decides from the surroundings alone. A display takes the events of a run and asks its person;
what it all means is `RunView`'s, how it looks `layout`'s. The answer goes to standard output, everything else
to standard error or, where a question is asked, to the terminal itself.

terminal   lines above a status that is drawn anew (`terminal.py`)
plain      one line for each thing that happens, no cursor movement: logs, pipes, screen readers
jsonl      events as JSON, a line each, on standard output
quiet      nothing but questions
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TextIO, TypeVar

import msgspec

from remit.analysis.cells import one_line, visible
from remit.analysis.layout import Glyphs, Row, rows_of, status_rows
from remit.analysis.lines import Asked, Closing, Line, Opening, Remark, Waiting, limit_words
from remit.analysis.view import RunView
from remit.cli.documents import outcome_document
from remit.cli.endings import ending
from remit.cli.keyboard import Keyboard, controlling_terminal
from remit.cli.prompts import Asker, Questions
from remit.cli.screen import paint
from remit.cli.streams import Streams
from remit.cli.terminal import StatusRows, Terminal
from remit.events import Event
from remit.limits import Limits
from remit.outcome import Outcome
from remit.pending import Decision, Pending

if TYPE_CHECKING:
    from remit.cli.options import Display as Flags

__all__ = [
    "Display",
    "JsonlDisplay",
    "Mode",
    "PageDisplay",
    "PlainPage",
    "QuietDisplay",
    "TerminalAsker",
    "display_for",
    "display_mode",
]

T = TypeVar("T")

_HEARD_SECONDS = 0.2
"""A question waits so long for the lines that lead up to it; a resumed run has none."""
_HINT = "ctrl-c cancels"
_HINT_AGAIN = "ctrl-c again leaves at once"
_NAME_OFF = frozenset({"", "0", "false", "no"})


class Mode(msgspec.Struct, frozen=True):
    """What kind of display there is, and what it may do."""

    kind: Literal["terminal", "plain", "jsonl", "quiet"]
    colour: bool
    motion: bool
    """Whether anything changes while nothing happens."""


def display_mode(
    env: Mapping[str, str],
    *,
    is_tty: bool,
    color: Literal["auto", "always", "never"] = "auto",
    plain: bool = False,
    quiet: bool = False,
    jsonl: bool = False,
    motion: bool = True,
) -> Mode:
    """The display for these surroundings; `is_tty` is about standard error.

    NO_COLOR is stronger than FORCE_COLOR, a flag than both. A terminal that says it can nothing, or a build
    server, gets plain lines.
    """
    moves = is_tty and env.get("TERM", "dumb") not in {"", "dumb"}
    moves = moves and env.get("CI", "").lower() in _NAME_OFF
    if jsonl or quiet:
        kind = "jsonl" if jsonl else "quiet"
    else:
        kind = "terminal" if moves and not plain else "plain"
    if color != "auto":
        colour = color == "always"
    elif env.get("NO_COLOR"):
        colour = False
    else:
        forced = env.get("FORCE_COLOR", "").lower() not in _NAME_OFF
        colour = forced or (moves and not plain)
    return Mode(kind, colour, motion and kind == "terminal")


def display_for(
    streams: Streams, flags: Flags, *, jsonl: bool = False, env: Mapping[str, str] = os.environ
) -> Display:
    """The display that these flags and surroundings call for."""
    notes = streams.notes
    mode = display_mode(
        env,
        is_tty=notes.isatty(),
        color=flags.color,
        plain=flags.plain,
        quiet=flags.quiet,
        jsonl=jsonl,
        motion=not flags.no_motion,
    )
    glyphs = Glyphs.of(notes.encoding)
    path = controlling_terminal() if streams.own else None
    keyboard = None if path is None else Keyboard(path)
    if mode.kind == "terminal":
        terminal = Terminal(notes, keyboard, glyphs=glyphs, colour=mode.colour, motion=mode.motion)
        asker = None if keyboard is None else terminal
        same = streams.answer.isatty()
        return PageDisplay(terminal, streams.answer, asker, same=same, verbose=flags.verbose)
    asker = None if keyboard is None else TerminalAsker(keyboard, glyphs=glyphs)
    match mode.kind:
        case "plain":
            page = PlainPage(notes, glyphs=glyphs, colour=mode.colour)
            same = notes.isatty() and streams.answer.isatty()
            return PageDisplay(page, streams.answer, asker, same=same, verbose=flags.verbose)
        case "quiet":
            return QuietDisplay(streams.answer, asker)
        case "jsonl":
            return JsonlDisplay(streams.answer, asker)


class Display(Protocol):
    """What a command tells of its run, and asks its person through."""

    @property
    def can_ask(self) -> bool:
        """Whether somebody sits there."""
        ...

    def begin(self, run_id: str, name: str, model: str, limits: Limits) -> None:
        """A run begins."""
        ...

    def hear(self, event: Event) -> None: ...

    async def confirm(self, pending: Pending) -> Decision: ...

    async def answer(self, pending: Pending) -> Any: ...

    async def listen(self, history: Sequence[str]) -> str | None:
        """What the person says next; None where that is nothing more. `history` was said before."""
        ...

    def heard(self) -> None:
        """A signal came, at any moment; whether the event loop gets to hear of it is another thing."""
        ...

    def cancelling(self) -> None:
        """Somebody asked for the end."""
        ...

    def end(
        self, outcome: Outcome[Any], *, answer: str | None, reached_by: str | None = None
    ) -> None:
        """The run has ended. `answer` goes to standard output, unless it stands on the same terminal already.

        `reached_by` is as in `Kept`.
        """
        ...

    def close(self) -> None:
        """Nothing more is shown. May be called twice."""
        ...

    def leave(self) -> None:
        """The process ends at once."""
        ...


class Page(Protocol):
    """Where rows are appended."""

    @property
    def glyphs(self) -> Glyphs: ...

    @property
    def columns(self) -> int | None: ...

    def start(self, status: StatusRows) -> None: ...

    def stop(self) -> None: ...

    def show(self, rows: Sequence[Row]) -> None: ...

    def touch(self) -> None: ...

    def heard(self, notice: str) -> None:
        """Show a notice at once, from a signal handler."""
        ...

    def leave(self) -> None: ...


class PlainPage:
    """Rows as lines of a stream, each as long as it is."""

    columns: int | None = None

    def __init__(self, notes: TextIO, *, glyphs: Glyphs, colour: bool) -> None:
        self.glyphs = glyphs
        self._notes = notes
        self._colour = colour

    def start(self, status: StatusRows) -> None: ...

    def stop(self) -> None: ...

    def touch(self) -> None: ...

    def heard(self, notice: str) -> None:
        """A line past all buffers."""
        with contextlib.suppress(OSError, ValueError):
            os.write(self._notes.fileno(), f"{notice}\n".encode())

    def leave(self) -> None: ...

    def show(self, rows: Sequence[Row]) -> None:
        """Write them. That nobody reads them is no error: what counts is the answer."""
        with contextlib.suppress(OSError, ValueError):
            for row in rows:
                self._notes.write(paint(row, colour=self._colour) + "\n")
            self._notes.flush()


_LEAST_COLUMNS: Final = 20


class TerminalAsker:
    """Asks on the terminal itself, line by line, wherever the streams of the program go."""

    def __init__(self, keyboard: Keyboard, *, glyphs: Glyphs) -> None:
        self.glyphs = glyphs
        self._keyboard = keyboard

    @property
    def columns(self) -> int:
        # A window that is narrower breaks the rows itself: nothing of what is decided is cut off.
        return max(_LEAST_COLUMNS, self._keyboard.size.columns - 1)

    @property
    def height(self) -> int:
        return self._keyboard.size.lines

    def show(self, rows: Sequence[Row]) -> None:
        self._keyboard.write("".join(paint(row, colour=False) + "\n" for row in rows))

    async def key(self, wordings: Sequence[str], keys: str) -> str:
        """One of these keys: the first letter of a line."""
        while True:
            said = await self._keyboard.line(f"{wordings[0]} > ")
            if said is None:
                return ""
            letter = said.strip()[:1].lower()
            if letter and letter in keys:
                return letter

    async def line(self, *, secret: bool = False) -> str | None:
        """A line. A secret is not shown by the terminal either."""
        return await self._keyboard.line("> ", echo=not secret)

    async def said(self, history: Sequence[str]) -> str | None:  # noqa: ARG002 - the terminal edits by itself
        """A line, of their own accord."""
        return await self._keyboard.line("> ")


class _Asking:
    """What all displays have: a view of the run, and whoever is asked."""

    def __init__(self, asker: Asker | None) -> None:
        self._view = RunView()
        self._asker = asker
        self._questions: Questions | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard = asyncio.Event()

    @property
    def can_ask(self) -> bool:
        return self._asker is not None

    def _watch(self, limits: Limits) -> None:
        """A run begins; one display may show several, one after the other."""
        self._loop = asyncio.get_running_loop()
        self._view = RunView(limits)
        if self._asker is not None:
            view = self._view
            self._questions = Questions(
                self._asker, last_words=view.last_words, effect_of=view.effect_of
            )

    def hear(self, event: Event) -> None:
        self._take(event)

    def _take(self, event: Event) -> tuple[Line, ...]:
        lines = self._view.apply(event)
        if event.kind == "pending":
            self._heard.set()
        return lines

    async def confirm(self, pending: Pending) -> Decision:
        """What the person decides. Errors: `PutOff`."""
        return await self._ask(pending, lambda questions: questions.confirm(pending))

    async def listen(self, history: Sequence[str]) -> str | None:
        """What the person says next; None where that is nothing more. `history` was said before."""
        if self._asker is None:
            raise AssertionError("nobody can be asked here")
        return await self._asker.said(history)

    async def answer(self, pending: Pending) -> Any:
        """The value that the person gives. Errors: `PutOff`."""
        return await self._ask(pending, lambda questions: questions.answer(pending))

    def heard(self) -> None: ...

    def cancelling(self) -> None:
        self._view.cancelling = True

    def close(self) -> None: ...

    def leave(self) -> None: ...

    async def _ask(
        self, pending: Pending, question: Callable[[Questions], Coroutine[Any, Any, T]]
    ) -> T:
        loop, questions = self._loop, self._questions
        if loop is None or questions is None:
            raise AssertionError("nobody can be asked here, or nothing has begun")
        if asyncio.get_running_loop() is not loop:
            # A run inside a blocking tool has a loop of its own; the person sits at ours.
            there = asyncio.run_coroutine_threadsafe(self._ask(pending, question), loop)
            return await asyncio.wrap_future(there)
        await self._catch_up(pending, loop)
        self._about_to_ask(pending.id)
        value = await question(questions)
        self._view.decided(pending.id, loop.time())
        return value

    def _about_to_ask(self, pending_id: str) -> None:
        """The question will stand there itself."""

    async def _catch_up(self, pending: Pending, loop: asyncio.AbstractEventLoop) -> None:
        """Show what led up to a question before it is asked."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_SECONDS):
                while pending.id not in self._view.waiting:
                    self._heard.clear()
                    await self._heard.wait()
        self._view.waits(
            Waiting(
                pending_id=pending.id,
                kind=pending.kind,
                run_id=pending.run_id,
                call=None,
                tool=one_line(pending.tool),
                summary=visible(pending.summary),
                since=loop.time(),
            )
        )


class PageDisplay(_Asking):
    """Shows a run on a page: a terminal, or plain lines."""

    def __init__(
        self, page: Page, answers: TextIO, asker: Asker | None, *, same: bool, verbose: bool
    ) -> None:
        """`same`: the page and the answers are on the same terminal; `verbose` shows every detail."""
        super().__init__(asker)
        self._page = page
        self._answers = answers
        self._same = same
        self._verbose = verbose
        self._held: dict[str, Asked] = {}
        """Lines about what is waited for, which are not shown where the question itself will stand."""
        self._run_id = ""
        self._name = ""
        self._limits: Limits | None = None

    def begin(self, run_id: str, name: str, model: str, limits: Limits) -> None:
        """A run begins; that the next one is of the same remit needs no telling."""
        self._watch(limits)
        self._view.columns = self._page.columns
        news = (name, limits) != (self._name, self._limits)
        self._run_id, self._name, self._limits = run_id, name, limits
        self._page.start(self._status)
        if news:
            opening = Opening(
                run_id=visible(run_id),
                name=visible(name),
                model=visible(model),
                limits=limit_words(limits),
            )
            self._show((opening,))

    def hear(self, event: Event) -> None:
        self._view.columns = self._page.columns
        self._show(self._take(event))
        self._page.touch()

    def heard(self) -> None:
        self._page.heard(f"cancelling; {_HINT_AGAIN}")

    def cancelling(self) -> None:
        """Somebody asked for the end."""
        super().cancelling()
        self._page.touch()

    def end(
        self, outcome: Outcome[Any], *, answer: str | None, reached_by: str | None = None
    ) -> None:
        """The answer, then the one line about the end."""
        for pending_id in list(self._held):
            self._tell_held(pending_id)
        self._show(self._view.flush())
        self._page.stop()
        above = self._same and visible(answer or "").strip() == self._view.last_words(self._run_id)
        if answer and not above:
            write_answer(answer, self._answers)
        limits = self._limits
        if limits is None:
            return
        mark, text = ending(
            outcome,
            limits,
            name=self._name,
            shown=self._same,
            left=self._view.left_running,
            reached_by=reached_by,
        )
        self._show((Closing(mark=mark, text=text),))

    def close(self) -> None:
        self._page.stop()

    def leave(self) -> None:
        self._page.leave()

    def _show(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if isinstance(line, Remark) and line.detail and not self._verbose:
                continue
            if isinstance(line, Asked) and self.can_ask:
                self._hold(line)
                continue
            self._page.show(rows_of(line, self._page.glyphs, self._page.columns))

    def _hold(self, line: Asked) -> None:
        """Wait a moment: the person may be asked about it here; somebody else may be, or nobody."""
        self._held[line.pending_id] = line
        asyncio.get_running_loop().call_later(_HEARD_SECONDS, self._tell_held, line.pending_id)

    def _tell_held(self, pending_id: str) -> None:
        line = self._held.pop(pending_id, None)
        if line is not None:
            self._page.show(rows_of(line, self._page.glyphs, self._page.columns))

    def _about_to_ask(self, pending_id: str) -> None:
        self._held.pop(one_line(pending_id), None)

    def _status(self, columns: int, most: int, question: Row) -> list[Row]:
        now = asyncio.get_running_loop().time()
        return status_rows(
            self._view.status(now),
            self._page.glyphs,
            columns,
            most=most,
            question=question,
            hint=_HINT_AGAIN if self._view.cancelling else _HINT,
        )


class QuietDisplay(_Asking):
    """Shows nothing but questions."""

    def __init__(self, answers: TextIO, asker: Asker | None) -> None:
        super().__init__(asker)
        self._answers = answers

    def begin(self, run_id: str, name: str, model: str, limits: Limits) -> None:  # noqa: ARG002 - as every display
        self._watch(limits)

    def end(
        self,
        outcome: Outcome[Any],  # noqa: ARG002 - as every display
        *,
        answer: str | None,
        reached_by: str | None = None,  # noqa: ARG002 - as every display
    ) -> None:
        """The answer alone."""
        if answer:
            write_answer(answer, self._answers)


class JsonlDisplay(_Asking):
    """Writes the events for a program. Errors: `BrokenPipeError` once that has gone."""

    def __init__(self, answers: TextIO, asker: Asker | None) -> None:
        super().__init__(asker)
        self._answers = answers

    def begin(self, run_id: str, name: str, model: str, limits: Limits) -> None:  # noqa: ARG002 - as every display
        self._watch(limits)

    def hear(self, event: Event) -> None:
        super().hear(event)
        self._write(event.to_json())

    def end(
        self,
        outcome: Outcome[Any],
        *,
        answer: str | None,  # noqa: ARG002 - as every display
        reached_by: str | None = None,  # noqa: ARG002 - as every display
    ) -> None:
        """The outcome, which holds the answer."""
        self._write({"kind": "outcome", **outcome_document(outcome)})

    def _write(self, fields: Mapping[str, Any]) -> None:
        # ASCII, so that no terminal obeys what a model wrote.
        line = json.dumps({"v": 1, **fields}, default=str).replace("\x7f", "\\u007f")
        self._answers.write(line + "\n")
        self._answers.flush()


def write_answer(answer: str, stream: TextIO) -> None:
    """The answer as it is; on a terminal nothing in it acts. Errors: `BrokenPipeError`."""
    text = visible(answer) if stream.isatty() else answer
    stream.write(text.removesuffix("\n") + "\n")
    stream.flush()
