"""What is said to the model: an argument, standard input, files.

Errors: `ConfigurationError` for what is neither text nor media; nothing is guessed.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from remit.errors import ConfigurationError
from remit.messages import Media, ResultContent, Text

__all__ = [
    "decoded",
    "piped_lines",
    "proper_text",
    "read_bounded",
    "read_content",
    "read_piped",
]

_MAX_BYTES: Final = 32 * 1024 * 1024
"""Of standard input or of one file. Far beyond what any model reads, and kept in memory whole."""

_CHUNK_BYTES: Final = 65_536
"""Of a pipe at a time."""

_AS_MEDIA: Final = ("image/", "audio/", "video/", "application/pdf")
_AS_TEXT: Final = ("image/svg+xml",)


def read_content(
    prompt: str | None, files: Sequence[Path], directory: Path, stdin: TextIO, *, from_stdin: bool
) -> tuple[ResultContent, ...]:
    """The prompt of a run: the argument, what is piped in, and the files, in this order.

    `directory` is where the paths begin: a file of the user's may have gone elsewhere since. `from_stdin`: the argument was `-`, and stdin is read even from a terminal.
    """
    content: list[ResultContent] = []
    if prompt is not None:
        content.append(Text(proper_text(prompt, "the prompt")))
    if from_stdin or _is_fed(stdin):
        piped = read_piped(stdin)
        if piped.strip():
            content.append(Text(piped))
    if not any(isinstance(block, Text) and block.text.strip() for block in content):
        raise ConfigurationError(
            'the prompt is empty: say what is to be done, as in remit run "...", or pipe it in'
        )
    return (*content, *(_attached(path, directory) for path in files))


def read_piped(stdin: TextIO) -> str:
    """Standard input, to its end."""
    return decoded(_bounded(stdin), "standard input")


async def piped_lines(stdin: TextIO) -> AsyncIterator[str]:
    """Every line of standard input that says something, read when it is wanted and not before."""
    descriptor, rest = stdin.fileno(), b""
    while read := await _chunk(descriptor):
        *lines, rest = (rest + read).split(b"\n")
        if len(rest) > _MAX_BYTES:
            raise ConfigurationError(
                f"a line of standard input is longer than {_MAX_BYTES:,} bytes"
            )
        for line in lines:
            if said := decoded(line, "standard input").strip():
                yield said
    if said := decoded(rest, "standard input").strip():
        yield said


async def _chunk(descriptor: int) -> bytes:
    """What can be read; empty at the end. The event loop goes on meanwhile."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:  # a file never keeps anybody waiting
        return os.read(descriptor, _CHUNK_BYTES)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK_BYTES)


def proper_text(text: str, what: str) -> str:
    """A text that can be written down; arguments of a program may be any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{what} is no UTF-8 text") from error
    return text


def _is_fed(stdin: TextIO) -> bool:
    """Whether somebody pipes something in: a terminal is not waited for unasked, nor /dev/null read."""
    try:
        mode = os.fstat(stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _bounded(stdin: TextIO) -> bytes:
    piped = stdin.buffer.read(_MAX_BYTES + 1)
    if len(piped) > _MAX_BYTES:
        raise ConfigurationError(f"standard input is longer than {_MAX_BYTES:,} bytes")
    return piped


def decoded(found: bytes, what: str) -> str:
    """A text from outside. Errors: `ConfigurationError` that begins with `what`."""
    try:
        text = found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{what} is no UTF-8 text (byte {error.start:,}); attach an image or a document with -f"
        ) from error
    if "\0" in text:
        raise ConfigurationError(f"{what} is no text: it holds NUL bytes")
    return text


def read_bounded(path: Path, what: str) -> bytes:
    """A file of the user's, which may be a pipe, or have no end. Errors: `ConfigurationError` that begins with `what`."""
    try:
        with path.open("rb") as file:
            found = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{what}: {error.strerror or error}") from error
    if len(found) > _MAX_BYTES:
        raise ConfigurationError(f"{what}: longer than {_MAX_BYTES:,} bytes")
    return found


def _attached(path: Path, directory: Path) -> ResultContent:
    """A file, as media if its name says so, else as text under its name."""
    found = read_bounded(directory / path, f"-f {path}")
    kind = mimetypes.guess_type(path.name)[0] or ""
    if kind.startswith(_AS_MEDIA) and kind not in _AS_TEXT:
        if not found:
            raise ConfigurationError(f"-f {path}: the file is empty")
        return Media(kind, found, path.name)
    return Text(f"{path.name}:\n\n{decoded(found, f'-f {path}')}")
