"""The rows of runs as they are read back, each one verified against the chain that it is a part of.

Plain functions of a connection that only reads. Everything of one reading is of one moment, in one transaction.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

import msgspec

from remit.errors import JournalError
from remit.store.base import RunRows, StoredRow
from remit.store.chain import START, Chain
from remit.store.sqlite.names import sought
from remit.store.sqlite.schema import payload_id

__all__ = ["rows", "rows_back"]

_NEVER_WRITTEN: Final = (TypeError, ValueError, AttributeError, OverflowError, struct.error)
"""What comes of a damaged row whose values are of other kinds than any that was written."""
_BACK_BYTES: Final = 4_000_000
"""Of the rows of a conversation that are read in one turn, one run more or less."""


class _Read(msgspec.Struct, frozen=True):
    """The rows of a run as the file has them, and what they have to come to."""

    run_id: str
    after: int
    before: bytes
    """The link of the row `after`."""
    rows: int
    """How many the run has."""
    head: bytes
    found: Sequence[tuple[Any, ...]] | None
    """None where they are known."""


def rows(
    connection: sqlite3.Connection, chain: Chain, run_id: str, after: int
) -> Sequence[StoredRow]:
    """The rows behind `after`, each one verified. Errors: `JournalError`."""
    with _at_one_moment(connection):
        read = _read(connection, run_id, after)
    return _verified(chain, read)


def rows_back(
    connection: sqlite3.Connection, chain: Chain, run_id: str, known: Mapping[str, bytes]
) -> Sequence[RunRows]:
    """`Journal.read_back`. Errors: `JournalError`."""
    with _at_one_moment(connection):
        read = list(_back(connection, run_id, known))
    return [RunRows(each.run_id, each.head, _verified(chain, each)) for each in read]


def _back(
    connection: sqlite3.Connection, run_id: str, known: Mapping[str, bytes]
) -> Generator[_Read]:
    held = 0
    for each in _session_before(connection, run_id):
        read = _read(connection, each, -1, known.get(each))
        yield read
        if read.found is None:
            return
        held += sum([len(row[-1] or b"") for row in read.found])
        if held >= _BACK_BYTES:
            return


def _session_before(connection: sqlite3.Connection, run_id: str) -> Generator[str]:
    """A run and those of its session before it, newest first."""
    yield run_id
    place = connection.execute(
        "select session, session_at from remit_run where run_id = ?", (run_id,)
    ).fetchone()
    before = connection.execute(
        "select run_id from remit_run where session = ? and session_at < ? order by session_at desc",
        place,
    )
    with contextlib.closing(before):
        for (each,) in before:
            yield each


@contextlib.contextmanager
def _at_one_moment(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("begin")
    try:
        yield
    finally:
        connection.execute("rollback")


def _read(
    connection: sqlite3.Connection, run_id: str, after: int, known: bytes | None = None
) -> _Read:
    """What is behind `after`, unless the head is the known one. Errors: `JournalError`."""
    run = connection.execute(
        "select next_seq, head, erased_at, number from remit_run where run_id = ?",
        (sought(run_id),),
    ).fetchone()
    if run is None:
        raise JournalError(f"there is no run {run_id!r} in this store")
    next_seq, head, erased_at, number = run
    if erased_at is not None:
        raise JournalError(f"run {run_id!r} was erased: what it said is gone, that it was is kept")
    if known is not None and head == known:
        return _Read(run_id, after, START, next_seq, head, None)
    before = START
    if after >= 0:
        link = connection.execute(
            "select link from remit_row where run_id = ? and seq = ?", (run_id, after)
        ).fetchone()
        before = head if link is None else link[0]
    found = connection.execute(
        "select r.seq, r.epoch, r.kind, r.digest, r.link, p.salt, p.body"
        " from remit_row r left join remit_payload p on p.id = ? + r.seq"
        " where r.run_id = ? and r.seq > ? order by r.seq",
        (payload_id(number, 0), run_id, after),
    ).fetchall()
    return _Read(run_id, after, before, next_seq, head, found)


def _verified(chain: Chain, read: _Read) -> Sequence[StoredRow]:
    """The rows, if they are those that were written. Errors: `JournalError`."""
    run_id, head, first = read.run_id, read.before, read.after + 1
    if read.found is None:
        return ()
    rows: list[StoredRow] = []
    try:
        for expected, (seq, epoch, kind, digest, link, salt, body) in enumerate(read.found, first):
            head = chain.link(head, seq=seq, epoch=epoch, kind=kind, digest=digest)
            if seq != expected or head != link:
                raise JournalError(
                    f"the rows of run {run_id!r} were changed: row {expected} is not as written"
                )
            if body is None or chain.digest(salt, body) != digest:
                raise JournalError(f"row {seq} of run {run_id!r} is damaged")
            rows.append(StoredRow(seq, kind, body))
    except _NEVER_WRITTEN:
        raise JournalError(f"row {first + len(rows)} of run {run_id!r} is damaged") from None
    if head != read.head or first + len(rows) < read.rows:
        raise JournalError(f"rows of run {run_id!r} are missing")
    return rows
