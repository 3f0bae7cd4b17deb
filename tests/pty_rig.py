"""A person at a terminal, for tests: a program on a pseudo-terminal, and a screen that obeys what it writes.

Nothing here sleeps: a test waits until something is to be seen, and for a bounded time.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

__all__ = ["Person"]

ROOT = Path(__file__).resolve().parent.parent
_TAKE_THE_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(2), os.O_RDWR))  # the first of a session becomes its terminal
os.execv(sys.argv[1], sys.argv[1:])
"""
PATIENCE = 60.0
"""Seconds until something that never comes is given up; the machine may be busy."""


class Person:
    """Someone who started `remit ARGUMENTS` on a terminal, sees its screen and presses keys.

    `stdin` and `stdout` are pipes where they are named, else the terminal, as standard error always is.
    """

    def __init__(
        self,
        *arguments: str,
        columns: int = 100,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "remit.cli"),
        cwd: Path | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        """Everything that came out of the terminal, as it came."""
        self._ours, theirs = pty.openpty()
        self._size(columns, rows)
        surroundings = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "src"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "HOME": "/nonexistent" if cwd is None else str(cwd / "home"),
            **(env or {}),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_THE_TERMINAL, *program, *arguments],
            stdin=theirs if stdin is None else stdin,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            env=surroundings,
            cwd=cwd,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        os.close(self._ours)

    # What is seen

    @property
    def window(self) -> list[str]:
        """The rows of the window, without blanks at their ends."""
        return [row.rstrip() for row in self.screen.display]

    @property
    def scrollback(self) -> list[str]:
        """Everything from the beginning: what left the window at its top, then the window."""
        gone = [
            "".join(line[x].data for x in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        ]
        return [*gone, *self.window]

    @property
    def text(self) -> str:
        return "\n".join(self.scrollback)

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed by itself: not while a key is waited for."""
        flags: int = termios.tcgetattr(self._ours)[3]
        return bool(flags & termios.ECHO)

    def sees(self, text: str) -> bool:
        return text in self.text

    # What is done

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def cooked(self) -> None:
        """Set the terminal as a shell does for itself."""
        state = termios.tcgetattr(self._ours)
        state[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self._ours, termios.TCSANOW, state)

    def resize(self, columns: int, rows: int) -> None:
        """Pull at the window. Rows are cut off, as by terminals that do not reflow; the cursor stays in sight."""
        screen = self.screen
        up = max(0, screen.cursor.y - (rows - 1))
        lines = {y - up: line for y, line in screen.buffer.items() if up <= y < up + rows}
        screen.history.top.extend(screen.buffer[y] for y in range(up))
        screen.buffer.clear()
        screen.buffer.update(lines)
        for line in lines.values():
            for x in [x for x in line if x >= columns]:
                del line[x]
        screen.cursor.y -= up
        screen.cursor.x = min(screen.cursor.x, columns - 1)
        screen.lines, screen.columns = rows, columns
        self._size(columns, rows)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    # Waiting

    def until(self, what: str | Callable[[], Any]) -> None:
        """Wait until a text is to be seen, or a condition holds."""
        met = (lambda: self.sees(what)) if isinstance(what, str) else what
        end = time.monotonic() + PATIENCE
        while not met():
            if not self._take(end):
                raise AssertionError(f"never seen: {what!r}\n" + self.text)

    def ends(self) -> int:
        """Wait for the end of the program. Returns its exit code."""
        end = time.monotonic() + PATIENCE
        while self._take(end):
            pass
        return self.process.wait(PATIENCE)

    def _take(self, end: float) -> bool:
        """Read once. False where nothing comes any more, or nothing in time."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        try:
            read = os.read(self._ours, 65_536)
        except OSError:  # the program has closed the terminal
            return False
        self.written += read
        self._stream.feed(read)
        return bool(read)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
