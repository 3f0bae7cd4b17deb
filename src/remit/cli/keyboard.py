"""The keys that a person presses on the controlling terminal, without a thread and only while asked.

Standard input is not it: a prompt or a file may come from there, and neither decides anything. A question
opens the terminal, throws away what was typed before it stood there, reads within the event loop, and puts
the terminal back as it was, however it ends.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Final, NamedTuple

from remit.cli.screen import NO_WINDOW, window_of

__all__ = ["Keyboard", "Press", "Presses", "controlling_terminal"]

_READ_BYTES: Final = 4_096
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PASTE = re.compile(r"\x1b\[200~(.*?)\x1b\[201~", re.DOTALL)
_PASTE_BEGINS: Final = "\x1b[200~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;]*|O)\Z")

_NAMES: Final[dict[str, str]] = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x01": "home",
    "\x02": "left",
    "\x04": "end of input",
    "\x05": "end",
    "\x06": "right",
    "\x0b": "cut to end",
    "\x0e": "down",
    "\x10": "up",
    "\x15": "cut to home",
    "\x17": "cut word",
    "\x1b": "escape",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[3~": "delete",
    "\x1b[4~": "end",
}


class Press(NamedTuple):
    """One thing that a person did: `text` typed, `paste`, or a key by its name."""

    name: str
    text: str = ""
    """What was typed at once: more than one character came from no single key."""


class Presses:
    """Bytes of a terminal as presses."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        """A sequence that has not come in whole."""

    def __call__(self, read: bytes) -> list[Press]:
        """What these bytes complete, in their order. Sequences that mean nothing here are dropped."""
        text, self._rest = self._rest + self._decoder.decode(read), ""
        presses: list[Press] = []
        while text:
            if paste := _PASTE.match(text):
                presses.append(Press("paste", paste[1]))
                text = text[paste.end() :]
            elif text.startswith(_PASTE_BEGINS) or _UNFINISHED.match(text):
                self._rest, text = text, ""
            elif sequence := _SEQUENCE.match(text):
                if sequence[0] in _NAMES:
                    presses.append(Press(_NAMES[sequence[0]]))
                text = text[sequence.end() :]
            elif text[0] in _NAMES:
                presses.append(Press(_NAMES[text[0]]))
                text = text[1:]
            else:
                end = next((i for i, c in enumerate(text) if c in _NAMES), len(text))
                typed = "".join(c for c in text[:end] if c.isprintable())
                presses += [Press("text", typed)] if typed else []
                text = text[end:]
        return presses


def controlling_terminal() -> str | None:
    """The path of the terminal that this process may ask on; None where it has none.

    A process in the background would be stopped by the attempt, so it has none. Nor has one whose input and
    messages both go elsewhere: a script started it, and nobody waits for a question.
    """
    if sys.platform == "win32" or not (os.isatty(0) or os.isatty(2)):
        return None
    for path in (*_terminals_of_streams(), "/dev/tty"):
        with contextlib.suppress(OSError), _opened(path, os.O_RDWR) as terminal:
            if os.tcgetpgrp(terminal) == os.getpgrp():
                return path
    return None


def _terminals_of_streams() -> list[str]:
    """Their own names: some systems cannot wait for `/dev/tty`."""
    paths: list[str] = []
    for descriptor in (2, 0, 1):
        with contextlib.suppress(OSError):
            paths.append(os.ttyname(descriptor))
    return paths


class Keyboard:
    """A terminal that is asked on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._again: Callable[[], None] | None = None
        self._restore: Callable[[], None] | None = None

    @property
    def size(self) -> os.terminal_size:
        """Columns and rows."""
        with contextlib.suppress(OSError), _opened(self._path, os.O_RDONLY) as terminal:
            return window_of(terminal)
        return NO_WINDOW

    def write(self, text: str) -> None:
        """Show something beside whatever else the program writes to."""
        with _opened(self._path, os.O_WRONLY) as terminal:
            os.write(terminal, text.encode(errors="backslashreplace"))

    @contextlib.asynccontextmanager
    async def presses(self) -> AsyncGenerator[asyncio.Queue[Press]]:
        """Every key as it is pressed; the terminal itself shows none of them."""
        import termios
        import tty

        with _opened(self._path, os.O_RDONLY | os.O_NONBLOCK) as terminal:
            before = termios.tcgetattr(terminal)

            def each_key() -> None:
                tty.setcbreak(terminal, termios.TCSAFLUSH)

            def as_before() -> None:
                termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
                self.write(_PASTE_OFF)

            each_key()
            self.write(_PASTE_ON)
            self._again, self._restore = each_key, as_before
            try:
                with _read(terminal, Presses()) as queue:
                    yield queue
            finally:
                self._again = self._restore = None
                as_before()

    async def line(self, question: str, *, echo: bool = True) -> str | None:
        """A line, edited as the terminal itself lets one edit; None where the person ended the input."""
        import termios

        with _opened(self._path, os.O_RDONLY | os.O_NONBLOCK) as terminal:
            before = termios.tcgetattr(terminal)
            now = list(before)
            now[3] = before[3] | termios.ICANON
            now[3] = now[3] | termios.ECHO if echo else now[3] & ~termios.ECHO
            termios.tcsetattr(terminal, termios.TCSAFLUSH, now)
            self._restore = lambda: termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
            try:
                with _read(terminal, _whole) as queue:
                    self.write(question)
                    press = await queue.get()
            finally:
                self._restore()
                self._restore = None
                if not echo:
                    self.write("\n")
        return None if press.name == "end of input" else press.text

    def again(self) -> None:
        """The process was stopped and goes on: the terminal was set otherwise meanwhile."""
        if self._again is not None:
            self._again()

    def restore(self) -> None:
        """The process is about to be left: put the terminal back as it was."""
        if self._restore is not None:
            self._restore()


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Generator[int]:
    descriptor = os.open(path, flags | os.O_NOCTTY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _whole(read: bytes) -> list[Press]:
    return [Press("text", read.decode(errors="replace").rstrip("\r\n"))]


@contextlib.contextmanager
def _read(terminal: int, parse: Callable[[bytes], list[Press]]) -> Generator[asyncio.Queue[Press]]:
    """What comes from a terminal, read when it is there and not a moment longer than wanted."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Press] = asyncio.Queue()

    def ready() -> None:
        try:
            read = os.read(terminal, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # it was hung up
            read = b""
        if not read:
            loop.remove_reader(terminal)
        for press in parse(read) if read else [Press("end of input")]:
            queue.put_nowait(press)

    loop.add_reader(terminal, ready)
    try:
        yield queue
    finally:
        loop.remove_reader(terminal)
