"""What a store in SQLite tells of runs without reading their rows: of one, and of many, the newest first."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from remit.store.base import RunInfo
from remit.store.directory import RunEntry, RunQuery
from remit.store.sqlite.names import sought, sought_all

__all__ = ["info", "runs"]

_COLUMNS = "run_id, remit, status, reason, parent, session, tags, owner, next_seq, created_at, ended_at, erased_at, worker"


def runs(
    connection: sqlite3.Connection, query: RunQuery, count: int, lives: Callable[[str], bool]
) -> Sequence[RunEntry]:
    """The newest `count` runs that fit. `lives` tells of a worker whether it is alive."""
    conditions, values = _conditions(query)
    where = f"where {' and '.join(conditions)}" if conditions else ""
    found = connection.execute(
        f"select {_COLUMNS} from remit_run r {where} order by created_at desc, run_id desc limit ?",  # noqa: S608 - every part is ours, values are bound
        (*values, count),
    )
    return [_entry(row, lives) for row in found]


def _conditions(query: RunQuery) -> tuple[list[str], list[Any]]:
    """What a run must fit, and the values to bind: a line for each thing that can be asked for."""
    reach = "(select created_at, run_id from remit_run where run_id = ?)"
    tagged = "exists(select 1 from json_each(r.tags) where key = ? and value = ?)"
    prefix = query.prefix
    asked: list[tuple[str, Sequence[Any] | None]] = [
        (f"status in ({_marks(query.statuses)})", sorted(query.statuses) or None),
        (f"reason in ({_marks(query.reasons)})", sorted(query.reasons) or None),
        ("remit = ?", _given(query.remit)),
        ("session = ?", _given(query.session)),
        *((tagged, tag) for tag in query.tags.items()),
        ("parent = ?", _given(query.parent)),
        ("parent is null", () if query.roots else None),
        ("substr(run_id, 1, ?) = ?", (len(prefix), prefix) if prefix else None),
        ("created_at >= ?", _given(query.since and query.since.timestamp())),
        ("created_at < ?", _given(query.until and query.until.timestamp())),
        (f"(created_at, run_id) < {reach}", _given(query.before)),
    ]
    conditions = [condition for condition, values in asked if values is not None]
    values = [value for _, values in asked if values is not None for value in values]
    return conditions, sought_all(values)


def _given(value: object) -> tuple[object] | None:
    return None if value is None else (value,)


def _marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


def _entry(row: tuple[Any, ...], lives: Callable[[str], bool]) -> RunEntry:
    (
        run_id,
        remit,
        status,
        reason,
        parent,
        session,
        tags,
        owner,
        rows,
        created,
        ended,
        erased,
        worker,
    ) = row
    return RunEntry(
        run_id=run_id,
        remit=remit,
        status=status,
        reason=reason,
        parent=parent,
        session=session,
        tags=_tags(tags),
        owner=owner,
        rows=rows,
        created_at=_time(created),
        ended_at=None if ended is None else _time(ended),
        erased_at=None if erased is None else _time(erased),
        lost=worker is not None and status != "ended" and not lives(worker),
    )


def _tags(text: Any) -> dict[str, str]:
    """No chain covers this column, and what somebody spoiled does not hide the other runs; and so below."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, TypeError, ValueError):
        return {}


def _time(seconds: Any) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def info(
    connection: sqlite3.Connection, run_id: str, lives: Callable[[str], bool]
) -> RunInfo | None:
    """What is known of one run, without its rows. None where there is none of this id."""
    found = connection.execute(
        "select spec_hash, status, owner, parent, inbox_max > taken, next_seq, erased_at is not null, worker"
        " from remit_run where run_id = ?",
        (sought(run_id),),
    ).fetchone()
    if found is None:
        return None
    *known, unread, rows, erased, worker = found
    lost = worker is not None and not lives(worker)
    return RunInfo(run_id, *known, unread=bool(unread), rows=rows, erased=bool(erased), lost=lost)
