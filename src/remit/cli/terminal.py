"""A terminal as a page: lines that stay, below them a status of at most five rows, and keys while it asks.

The only page that moves the cursor. It draws at most ten times a second, however fast things happen, and once
a second to let the clock tick; what is printed meanwhile, by a tool or a library, goes through it, so that
nothing is torn. What stands in the status is the business of whoever holds the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Final, TextIO, TypeAlias

from remit.analysis.cells import cells
from remit.analysis.layout import Glyphs, Row, Span, quoted
from remit.cli.editor import Editor
from remit.cli.keyboard import Keyboard, Press
from remit.cli.screen import NO_WINDOW, Cursor, Screen, window_of

__all__ = ["FRAME_SECONDS", "StatusRows", "Terminal"]

FRAME_SECONDS: Final = 0.1
"""The least time between two frames."""
TICK_SECONDS: Final = 1.0
RESIZED_SECONDS: Final = 0.15
"""A window that is being dragged is drawn for when it rests."""
STATUS_ROWS: Final = 5
_PROMPT: Final = "> "

StatusRows: TypeAlias = Callable[[int, int, Row], list[Row]]
"""The status in at most so many columns and rows, with the row of the question that is open, if one is."""


class Terminal:
    """A terminal that a run is shown on, and its person asked on. One event loop uses it, and any thread prints."""

    def __init__(
        self,
        notes: TextIO,
        keyboard: Keyboard | None,
        *,
        glyphs: Glyphs,
        colour: bool,
        motion: bool,
    ) -> None:
        """`keyboard` is None where nobody can be asked; `motion` lets the clock tick."""
        self.glyphs = glyphs
        self._notes = notes
        self._keyboard = keyboard
        self._motion = motion
        self._screen = Screen(self._write, colour=colour)
        self._status: StatusRows | None = None
        """None while no status stands."""
        self._wordings: Sequence[str] = ()
        """The question that is open, where it is for a key."""
        self._editor: Editor | None = None
        self._wanted: asyncio.TimerHandle | None = None
        """The next frame, where something is new."""
        self._drawn_at = 0.0
        self._standing = contextlib.ExitStack()
        """What is given back when the status goes."""

    # The page

    @property
    def columns(self) -> int:
        """Cells of a row: the last column stays free, where terminals differ in when they wrap."""
        return max(1, self._size.columns - 1)

    @property
    def height(self) -> int:
        return self._size.lines

    def start(self, status: StatusRows) -> None:
        """From now on a status stands below what is shown."""
        loop = asyncio.get_running_loop()
        self._status, self._drawn_at = status, loop.time() - FRAME_SECONDS
        stack = self._standing
        stack.enter_context(_printing_to(self.show_printed, loop))
        stack.enter_context(self._window_signals(loop))
        if self._motion:
            stack.enter_context(_ticking(loop, self.touch))
        self.touch()

    def stop(self) -> None:
        """The status goes, what was shown stays."""
        if self._status is None:
            return
        self._status = None
        self._standing.close()
        if self._wanted is not None:
            self._wanted.cancel()
            self._wanted = None
        self._screen.draw(())

    def show(self, rows: Sequence[Row]) -> None:
        """Append rows; they are seen with the next frame, at once where no status stands."""
        self._screen.append(rows)
        self.touch()

    def show_printed(self, line: str) -> None:
        """Append a line that somebody printed."""
        self.show(quoted(line, self.glyphs, self.columns))

    def touch(self) -> None:
        """Something is new: draw, as soon as the last frame is old enough."""
        if self._status is None and self._editor is None and not self._wordings:
            self._screen.draw(())
        elif self._wanted is None:
            loop = asyncio.get_running_loop()
            at = max(loop.time(), self._drawn_at + FRAME_SECONDS)
            self._wanted = loop.call_at(at, self._draw)

    def heard(self, notice: str) -> None:
        """Write over the row of the cursor, which the next frame draws anew."""
        with contextlib.suppress(OSError):
            os.write(self._notes.fileno(), f"\r\x1b[K{notice[: self.columns]}".encode())

    def leave(self) -> None:
        """The process ends without another word: put the terminal in order."""
        if self._keyboard is not None:
            self._keyboard.restore()
        with contextlib.suppress(OSError):
            os.write(self._notes.fileno(), b"\r\n\x1b[J\x1b[?25h")

    # Asking

    async def key(self, wordings: Sequence[str], keys: str) -> str:
        """One of these keys, by a single press. What was pasted, or typed before, is none."""
        self._wordings = wordings
        async with self._presses() as presses:
            while True:
                press = await presses.get()
                if press.name in {"escape", "end of input"}:
                    return ""
                said = press.text.lower()
                if press.name == "text" and len(said) == 1 and said in keys:
                    return said

    async def line(self, *, secret: bool = False) -> str | None:
        """A line that the person writes in the status; None where they turned back."""
        said = await self._written(Editor(secret=secret), turns_back=True)
        if said is not None:
            shown = "*" * len(said) if secret else said
            self.show(quoted(_PROMPT + shown, self.glyphs, self.columns))
        return said

    async def said(self, history: Sequence[str]) -> str | None:
        """What the person says of their own accord; escape throws it away."""
        said = await self._written(Editor(history), turns_back=False)
        if said is not None:
            self.show(quoted(_PROMPT + said, self.glyphs, self.columns))
        return said

    async def _written(self, editor: Editor, *, turns_back: bool) -> str | None:
        """A line, key by key; None at the end of input, and at escape where that turns back."""
        self._editor = editor
        async with self._presses() as presses:
            while True:
                press = await presses.get()
                match press.name:
                    case "enter":
                        return editor.text
                    case "end of input" if not editor.text:
                        return None
                    case "escape" if turns_back:
                        return None
                    case "escape":
                        editor.take(Press("cut to end"))
                        editor.take(Press("cut to home"))
                    case _:
                        editor.take(press)
                self.touch()

    @contextlib.asynccontextmanager
    async def _presses(self) -> AsyncGenerator[asyncio.Queue[Press]]:
        """Keys, from when the question is to be seen: what was pressed before is thrown away."""
        if self._keyboard is None:
            raise AssertionError("nobody can be asked here")
        try:
            async with self._keyboard.presses() as presses:
                self._draw()
                yield presses
        finally:
            self._wordings, self._editor = (), None
            self.touch()

    # Drawing

    @property
    def _size(self) -> os.terminal_size:
        with contextlib.suppress(OSError, ValueError):  # it may be closed
            return window_of(self._notes.fileno())
        return NO_WINDOW

    def _draw(self) -> None:
        if self._wanted is not None:
            self._wanted.cancel()
            self._wanted = None
        self._drawn_at = asyncio.get_running_loop().time()
        columns, most = self.columns, max(1, min(STATUS_ROWS, self.height - 1))
        question, cursor_at = self._question_row(columns)
        if self._status is None:
            rows = [question] if question else []
        else:
            rows = self._status(columns, most, question)
        cursor = None
        if cursor_at is not None and question in rows:
            cursor = Cursor(rows.index(question), cursor_at)
        self._screen.draw(rows, cursor)

    def _question_row(self, columns: int) -> tuple[Row, int | None]:
        """The row of the open question, and where the person writes in it."""
        if self._wordings:
            fits = (each for each in self._wordings if cells(each) <= columns - 2)
            words = next(fits, self._wordings[-1])
            return (self.glyphs.sign("waiting"), Span(f" {words}", "bold")), None
        if self._editor is None:
            return (), None
        text, before = self._editor.shown(max(1, columns - len(_PROMPT) - 1))
        return (Span(_PROMPT, "bold"), Span(text)), len(_PROMPT) + before

    def _write(self, text: str) -> None:
        # A window that was closed takes nothing away from the run.
        with contextlib.suppress(OSError, ValueError):
            self._notes.write(text)
            self._notes.flush()

    # What happens to the window

    @contextlib.contextmanager
    def _window_signals(self, loop: asyncio.AbstractEventLoop) -> Generator[None]:
        """A window that changes its size, and a process that was stopped and goes on."""
        handlers: dict[int, Callable[[], None]] = {}
        if threading.current_thread() is threading.main_thread() and sys.platform != "win32":
            handlers = {signal.SIGWINCH: self._resized, signal.SIGCONT: self._continued}
        with contextlib.suppress(NotImplementedError):  # a loop without signals
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            with contextlib.suppress(NotImplementedError):
                for number in handlers:
                    loop.remove_signal_handler(number)

    def _resized(self) -> None:
        if self._wanted is not None:
            self._wanted.cancel()
        loop = asyncio.get_running_loop()
        self._wanted = loop.call_later(RESIZED_SECONDS, self._draw)

    def _continued(self) -> None:
        self._screen.lost()
        if self._keyboard is not None:
            self._keyboard.again()
        self.touch()


@contextlib.contextmanager
def _ticking(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> Generator[None]:
    """Do it once a second."""

    def tick() -> None:
        nonlocal handle
        handle = loop.call_later(TICK_SECONDS, tick)
        act()

    handle = loop.call_later(TICK_SECONDS, tick)
    try:
        yield
    finally:
        handle.cancel()


class _Printed(io.TextIOBase):
    """Stands in for stdout and stderr while a status stands: whole lines are passed on, from any thread."""

    def __init__(self, instead: TextIO, take: Callable[[str], None]) -> None:
        self._instead = instead
        self._take = take
        self._lock = threading.Lock()
        self._line = ""

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - a property says the same
        return self._instead.encoding

    def fileno(self) -> int:
        return self._instead.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._lock:
            *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._take(line)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            line, self._line = self._line, ""
        if line:
            self._take(line)


@contextlib.contextmanager
def _printing_to(show: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Whatever is printed is shown as lines."""

    def take(line: str) -> None:
        with contextlib.suppress(RuntimeError):  # a thread that outlives the loop
            loop.call_soon_threadsafe(show, line)

    before = sys.stdout, sys.stderr
    printed = _Printed(sys.stdout, take), _Printed(sys.stderr, take)
    sys.stdout, sys.stderr = printed
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in printed:
            stream.flush()
