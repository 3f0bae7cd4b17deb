"""`remit artifact HANDLE`: a full output that a run keeps outside of its transcript."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

from cyclopts import Parameter

from remit.analysis.cells import visible
from remit.artifacts import Artifact, digest_of
from remit.cli import exits
from remit.cli.documents import VERSION, write_document
from remit.cli.naming import run_named
from remit.cli.options import StoreFlag
from remit.cli.reading import Searchable
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.stores import opened
from remit.cli.streams import complain, own_stdout
from remit.errors import ConfigurationError
from remit.store.directory import RunQuery

__all__ = ["artifact"]

_RANGE: Final = re.compile(r"([0-9]{1,15})?:([0-9]{1,15})?")
_PAGE: Final = 200


def artifact(
    handle: str,
    /,
    *,
    run: Annotated[str | None, Parameter(metavar="RUN")] = None,
    part: Annotated[str | None, Parameter(name="--range", metavar="A:B")] = None,
    grep: Annotated[str | None, Parameter(metavar="REGEX")] = None,
    out: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    json: bool = False,
    store: StoreFlag = None,
) -> int:
    """Print a full output that a run keeps, or write it to a file.

    Args:
        handle: artifact:DIGEST as a result names it; the first 12 digits do.
        run: The run that keeps it; without it the newest that does is looked for.
        part: Only these characters of a text, counted from 0; the second is not in it, and either may be left out.
        grep: Only the lines in which this regular expression is found, each with its number.
        out: Write the bytes to this file, which must not exist.
        json: Print one JSON document: the text, the lines that were looked for, or the bytes as Base64.
    """
    digest = digest_of(handle)
    if digest is None:
        raise ConfigurationError(f"{handle!r} is no handle: artifact: and at least 12 hex digits")
    chosen = None if part is None else _part(part)
    pattern = None if grep is None else _pattern(grep)
    if out is not None and (chosen or pattern or json):
        raise ConfigurationError("--out writes the whole: leave out --range, --grep and --json")
    with own_stdout() as streams, opened(store) as kept:

        async def look(_: Interrupts) -> int:
            found = await _found(kept, digest, run)
            if out is not None:
                _write(found, out)
            elif json:
                write_document(_document(found, chosen, pattern), streams.answer)
            else:
                _print(found, streams.answer, chosen, pattern)
            return exits.OK

        return run_until_done(look)


async def _found(store: Searchable, digest: str, run: str | None) -> Artifact:
    """Errors: `NotFound`; `ConfigurationError` where a run is named that is not the only one."""
    if run is not None:
        entry = await run_named(store, run)
        found = await store.artifact(entry.run_id, digest)
        if found is None:
            raise exits.NotFound(f"run {entry.run_id} keeps nothing as {digest[:12]}")
        return found
    query = RunQuery(roots=True)  # what is kept is kept for a whole tree
    while page := await store.runs(query, count=_PAGE):
        for entry in page:
            found = await store.artifact(entry.run_id, digest)
            if found is not None:
                return found
        query = RunQuery(roots=True, before=page[-1].run_id)
    raise exits.NotFound(f"no run of this store keeps anything as {digest[:12]}")


def _print(
    found: Artifact,
    stream: TextIO,
    part: tuple[int, int | None] | None,
    pattern: re.Pattern[str] | None,
) -> None:
    try:
        text = found.text
    except UnicodeDecodeError:
        _print_binary(found, stream, chosen=part is not None or pattern is not None)
        return
    if part is not None:
        text = text[part[0] : part[1]]
    stream.writelines(
        visible(piece) if stream.isatty() else piece
        for piece in ([text] if pattern is None else _numbered(text, pattern))
    )
    if stream.isatty() and not text.endswith("\n"):
        stream.write("\n")
    stream.flush()


def _document(
    found: Artifact, part: tuple[int, int | None] | None, pattern: re.Pattern[str] | None
) -> dict[str, Any]:
    """Errors: `ConfigurationError` for a part of what is no text."""
    about = {
        "v": VERSION,
        "handle": found.handle,
        "media_type": found.media_type,
        "bytes": len(found.data),
    }
    try:
        text = found.text
    except UnicodeDecodeError:
        if part is not None or pattern is not None:
            raise _no_text(found) from None
        return {**about, "text": None, "base64": b64encode(found.data).decode()}
    if part is not None:
        text = text[part[0] : part[1]]
    if pattern is not None:
        lines = [{"number": number, "text": line} for number, line in _matching(text, pattern)]
        return {**about, "lines": lines}
    return {**about, "text": text, "base64": None}


def _no_text(found: Artifact, where: str = "") -> ConfigurationError:
    about = f"{found.media_type}, {len(found.data):,} bytes"
    return ConfigurationError(
        f"{found.handle[:21]} is no text{where} ({about}): --out FILE writes it"
    )


def _print_binary(found: Artifact, stream: TextIO, *, chosen: bool) -> None:
    if chosen:
        raise _no_text(found)
    if stream.isatty():
        raise _no_text(found, " for a terminal")
    stream.flush()
    stream.buffer.write(found.data)
    stream.buffer.flush()


def _numbered(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    return (f"{number}: {line}\n" for number, line in _matching(text, pattern))


def _matching(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    return (found for found in enumerate(text.splitlines(), 1) if pattern.search(found[1]))


def _write(found: Artifact, path: Path) -> None:
    try:
        with path.open("xb") as file:
            file.write(found.data)
    except FileExistsError:
        raise ConfigurationError(f"--out {path}: it exists; name another file") from None
    except OSError as error:
        raise ConfigurationError(f"--out {path}: {error.strerror or error}") from error
    complain(f"{path}: {found.media_type}, {len(found.data):,} bytes")


def _part(text: str) -> tuple[int, int | None]:
    """Errors: `ConfigurationError`."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"--range {text}: give characters as 0:2000, 2000: or :2000")
    first, last = int(found[1] or 0), None if found[2] is None else int(found[2])
    if last is not None and last < first:
        raise ConfigurationError(f"--range {text}: {last} comes before {first}")
    return first, last


def _pattern(text: str) -> re.Pattern[str]:
    """Errors: `ConfigurationError`."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigurationError(f"--grep {text}: {error}") from None
