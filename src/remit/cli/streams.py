"""Who may write where: stdout carries the answer and nothing else.

Tools print, libraries print, programs that a tool starts print. While a command works, their stdout is
our stderr; the real one is handed to the few functions that write the answer.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, TextIO

from remit.analysis.cells import visible

__all__ = ["Streams", "complain", "flush_stdout", "own_stdout", "retire_stdout", "tolerant"]

_STDOUT: Final = 1


@dataclass(frozen=True, slots=True)
class Streams:
    """Where a command reads and writes."""

    answer: TextIO
    """The stdout that the command was started with."""
    notes: TextIO
    """stderr: progress, questions, notices."""
    input: TextIO
    """stdin."""
    own: bool
    """They are the process's own. Where somebody stands between, nobody is asked on its terminal."""


@contextlib.contextmanager
def own_stdout() -> Generator[Streams]:
    """Keep stdout for the answer: whatever else is printed, in this process or below, goes to stderr."""
    if _descriptor(sys.stdout) == _STDOUT and _descriptor(sys.stderr) is not None:
        with _moved_descriptor() as answer:
            yield Streams(answer, sys.stderr, sys.stdin, own=True)
        return
    answer = sys.stdout  # somebody stands between: a test, a notebook
    with contextlib.redirect_stdout(sys.stderr):
        yield Streams(answer, sys.stderr, sys.stdin, own=False)


@contextlib.contextmanager
def _moved_descriptor() -> Generator[TextIO]:
    streams = sys.stdout, sys.stderr
    sys.stdout.flush()
    saved = os.dup(_STDOUT)
    os.dup2(sys.stderr.fileno(), _STDOUT)
    try:
        with open(
            saved, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False
        ) as answer:
            yield answer
    finally:
        sys.stdout, sys.stderr = streams  # a file of the user's may have put others in their place
        flush_stdout()
        os.dup2(saved, _STDOUT)
        os.close(saved)


def retire_stdout() -> None:
    """The answer is written: what threads of a tool, or functions for the exit, still say goes to stderr."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(sys.stderr.fileno(), _STDOUT)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # it is in memory, or closed
        return None


def flush_stdout() -> None:
    """Write out what is left, if a tool has not closed it. Errors: `OSError` where it cannot be written."""
    with contextlib.suppress(ValueError):
        sys.stdout.flush()


def tolerant() -> None:
    """Have streams that are there and take every text.

    A process may be started without them, and `print` to a missing stderr would land on stdout. Half a
    surrogate pair from a model, or an accent in a C locale, is written as an escape; bytes that are no
    text are read, to be refused where they are used.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - it lives as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace" if mode == "w" else "surrogateescape")


def complain(text: str) -> None:
    """One notice of ours on stderr. Where it cannot be written the exit code says it alone."""
    with contextlib.suppress(OSError, ValueError):
        print(f"remit: {visible(text)}", file=sys.stderr, flush=True)
