"""`remit store ...`: what is kept of runs is counted, verified, taken back, thinned out and copied."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from cyclopts import Parameter

from remit.analysis.cells import visible
from remit.analysis.times import instant, moment
from remit.cli import exits
from remit.cli.documents import VERSION, write_document
from remit.cli.exits import NotFound
from remit.cli.locations import location_here
from remit.cli.naming import run_named
from remit.cli.options import StoreFlag
from remit.cli.signals import run_until_done
from remit.cli.stores import opened, store_to_read
from remit.cli.streams import Streams, complain, own_stdout
from remit.errors import ConfigurationError
from remit.store.directory import RunQuery
from remit.store.keeping import Erased, Finding, Pruned, Stock
from remit.store.sqlite import SqliteStore

__all__ = ["backup", "check", "erase", "info", "prune"]

T = TypeVar("T")


def info(*, json: bool = False, store: StoreFlag = None) -> int:
    """Count what is kept of runs, and how much room it takes. Nothing is changed.

    Args:
        json: Print one JSON document.
    """
    with own_stdout() as streams:
        kept = store_to_read(location_here(store))
        stock = _done(kept.stock())
        if json:
            _write(streams, {"store": str(kept.path), **msgspec.to_builtins(stock)})
            return exits.OK
        for line in _told(kept.path, stock):
            print(visible(line), file=streams.answer)
    return exits.OK


def check(*, json: bool = False, store: StoreFlag = None) -> int:
    """Verify every row, every chain and every artifact, and the file itself, beside whoever writes. Nothing is changed.

    Exit code 1 where anything is not as it was written.

    Args:
        json: Print one JSON document.
    """
    with own_stdout() as streams:
        found = _done(store_to_read(location_here(store)).check())
        if json:
            _write(streams, {"findings": msgspec.to_builtins(found)})
        for finding in () if json else found:
            print(visible(_line(finding)), file=streams.answer)
        if not found:
            complain("everything is as it was written")
    return exits.CHECK_FAILED if found else exits.OK


def erase(
    *,
    run: Annotated[str | None, Parameter(metavar="RUN")] = None,
    session: Annotated[str | None, Parameter(metavar="NAME")] = None,
    yes: bool = False,
    json: bool = False,
    store: StoreFlag = None,
) -> int:
    """Take back what was said in a run, with the runs inside it, or in all runs of a session.

    The bytes are gone from all files of the store. A tombstone stays, which says that there was a run, and its id stays
    taken. A run that waits or was cut off is ended by it; one that is executed is refused: cancel it first. Copies
    that you made of the store keep what they hold.

    Args:
        run: The id of the run or the beginning of it, @last or @-2.
        session: The name of the session, in full.
        yes: Do not ask. The id of the run is written in full then.
        json: Print one JSON document.
    """
    if run is None and session is None:
        raise ConfigurationError("say what is to be erased: --run RUN or --session NAME")
    with own_stdout() as streams, opened(store) as kept:
        run_id, what = _done(_to_erase(kept, run, session))
        if yes and run_id != run:
            raise ConfigurationError(f"--yes asks nothing, so write the id in full: --run {run_id}")
        if not yes and not _agreed(
            streams, f"Erase what was said in {what}? It cannot be had back."
        ):
            complain("nothing was erased")
            return exits.CHECK_FAILED
        erased = _done(kept.erase(run_id=run_id, session=session))
        if json:
            _write(streams, msgspec.to_builtins(erased))
        else:
            print(visible(_erased(erased)), file=streams.answer)
        if not erased.complete:
            complain(
                "others were at work: old copies of pages may still lie in the files. Once they are done, the "
                f"same again with --run {run_id or 'and the id of one of the runs'}"
            )
            return exits.CONFLICT
    return exits.OK


def prune(
    *,
    older_than: Annotated[str, Parameter(metavar="TIME")],
    dry_run: bool = False,
    json: bool = False,
    store: StoreFlag = None,
) -> int:
    """Remove runs that ended long ago, rows and artifacts and all: whole trees, and sessions by their newest run.

    What waits, was cut off or is executed stays, however old it is. The ids of what goes are free again: keep
    runs for longer than anybody may start the same one again.

    Args:
        older_than: How long ago they must have ended: 90d, 12h, or before 2026-11-30[T12:00].
        dry_run: Only count what would go.
        json: Print one JSON document.
    """
    before = instant(older_than, "--older-than")
    ago = datetime.now(UTC) - before  # read after what it is compared to: 0d is not below zero
    if ago < timedelta(0):
        raise ConfigurationError(f"--older-than {older_than}: that time is still to come")
    with own_stdout() as streams, opened(store) as kept:
        pruned = _done(kept.prune(ago, dry_run=dry_run))
        if json:
            _write(streams, {"dry_run": dry_run, **msgspec.to_builtins(pruned)})
        else:
            print(_pruned(pruned, dry_run=dry_run), file=streams.answer)
    return exits.OK


def backup(
    file: Annotated[Path, Parameter(metavar="FILE")],
    /,
    *,
    json: bool = False,
    store: StoreFlag = None,
) -> int:
    """Copy the store as it is at one moment, beside whoever writes, with the files beside it.

    Args:
        file: Where the copy goes. Nothing may be there yet.
        json: Print one JSON document.
    """
    with own_stdout() as streams:
        copied = _done(store_to_read(location_here(store)).backup(file))
        if json:
            _write(streams, {"file": str(file), **msgspec.to_builtins(copied)})
        else:
            said = f"{file}: {_count(copied.runs, 'run')}, {_size(copied.bytes)}"
            print(visible(said), file=streams.answer)
    return exits.OK


async def _to_erase(
    kept: SqliteStore, run: str | None, session: str | None
) -> tuple[str | None, str]:
    """The id of the run, and all of it in words. Errors: `NotFound`, `ConfigurationError`."""
    run_id, parts = None, list[str]()
    if run is not None:
        entry = await run_named(kept, run)
        run_id = entry.run_id
        parts.append(f"run {run_id} ({entry.remit}, {moment(entry.created_at)})")
    if session is not None:
        found = await kept.runs(RunQuery(session=session), count=1_000)
        if not found:
            raise NotFound(f"there is no session {session!r} in this store")
        many = "1,000 runs or more" if len(found) == 1_000 else _count(len(found), "run")
        parts.append(f"session {session} ({many})")
    return run_id, " and ".join(parts)


def _agreed(streams: Streams, question: str) -> bool:
    """Ask the person at the terminal. Errors: `ConfigurationError` where there is none."""
    if not (streams.own and streams.input.isatty() and streams.notes.isatty()):
        raise ConfigurationError("nobody is here to be asked: say --yes")
    print(visible(f"{question} [y/N] "), end="", file=streams.notes, flush=True)
    return streams.input.readline().strip().lower() in {"y", "yes"}


def _done(work: Coroutine[Any, Any, T]) -> T:
    """Do it, on an event loop; a signal ends it."""
    results: list[T] = []

    async def main(_: object) -> int:
        results.append(await work)
        return exits.OK

    code = run_until_done(main)
    with contextlib.suppress(IndexError):
        return results[0]
    raise SystemExit(code)


def _write(streams: Streams, document: Mapping[str, Any]) -> None:
    write_document({"v": VERSION, **document}, streams.answer)


def _line(finding: Finding) -> str:
    where = "" if finding.run_id is None else f"run {finding.run_id}"
    if finding.seq is not None:
        where += f", row {finding.seq}"
    return f"{where or 'store'}: {finding.what}"


def _told(path: Path, stock: Stock) -> list[str]:
    total = sum(stock.runs.values())
    states = ", ".join(f"{number} {status}" for status, number in sorted(stock.runs.items()))
    lines = [
        f"{path}",
        f"  schema {stock.schema}, chains {'with' if stock.keyed else 'without'} a key",
        f"  {_count(total, 'run')}{f': {states}' if states else ''}; {stock.erased} of them erased",
        f"  {_count(stock.sessions, 'session')}, {_count(stock.rows, 'row')}, {_count(stock.artifacts, 'artifact')}",
        f"  {_size(stock.bytes)}, log {_size(stock.log_bytes)}, files beside it {_size(stock.artifact_file_bytes)}",
    ]
    if stock.oldest is not None and stock.newest is not None:
        lines.append(f"  begun between {moment(stock.oldest)} and {moment(stock.newest)}")
    return lines


def _erased(erased: Erased) -> str:
    said = f"erased: {_count(erased.runs, 'run')}, {_count(erased.artifacts, 'artifact')}"
    return said + (f"; ended by it: {', '.join(erased.ended)}" if erased.ended else "")


def _pruned(pruned: Pruned, *, dry_run: bool) -> str:
    said = ", ".join(
        (
            _count(pruned.runs, "run"),
            _count(pruned.rows, "row"),
            _count(pruned.artifacts, "artifact"),
            _count(pruned.files, "unnamed file"),
        )
    )
    return f"{'would be removed' if dry_run else 'removed'}: {said}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
