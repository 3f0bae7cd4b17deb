"""Forgetting, in SQLite: what `Keeping` says, as functions of a connection of their own.

A run that is to go is first marked as erased, in one transaction with everything that names it: from then on nobody
takes it up, reads it or posts to it. What it said is then swept away in small transactions, so that those who
write wait for none of them long. A process that dies in between leaves a tombstone with something under it, which
`check` names and the next erasure or pruning sweeps.

With `secure_delete` SQLite overwrites what is deleted, and yet not every byte: where it has moved cells from one page
to the next, their old place may lie unused and unchanged (measured: in two of three stores of mixed writes). So an
erasure ends with VACUUM, which writes the file anew, and truncates the log, which holds older copies of pages. While
the file is written anew nobody else writes: where it is large and others are at work this is left for later, and said.
A file beside the database is removed inside the transaction that removes its name: whoever keeps the same bytes
at this very moment looks for the file in a transaction too, and writes it again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

import msgspec

from remit.canonical import json_text
from remit.store.keeping import Erased, Pruned
from remit.store.sqlite.files import Files
from remit.store.sqlite.names import sought
from remit.store.sqlite.schema import payload_id
from remit.store.whole import Kin, check_whole, new_names, together, unknown

__all__ = ["erase", "prunable", "prune"]

_SWEEP_ROWS: Final = 500
_SWEEP_BYTES: Final = 4_000_000
"""What one transaction deletes at most, one payload more or less."""
_PRUNE_RUNS: Final = 100
"""Runs that are marked in one transaction."""
_GARBAGE_SECONDS: Final = 86_400.0
"""A file is written before the row that names it: one this old, and unnamed, waits for none."""
_REWRITE_BYTES: Final = 128_000_000
"""A file of up to this size is written anew beside others who write: measured, 0.5 s for 100 MB, and they wait five."""
_CHECKPOINT_SECONDS: Final = 5.0
_TURN_SECONDS: Final = 0.05


class _Run(msgspec.Struct, frozen=True):
    """A run that is to go."""

    kin: Kin
    number: int
    root: str
    ended: bool
    erased: bool
    ended_at: float
    rows: int


Lives = Callable[[str], bool]
"""Tells of a worker whether it is alive."""

_COLUMNS = "r.run_id, r.parent, r.session, r.owner, r.worker, r.number, r.root, r.status, r.erased_at, r.ended_at, r.next_seq"
_NAMED = (
    "named(run_id) as (select run_id from remit_run where run_id = :run_id"
    " union select run_id from remit_run where session = :session"
    " union select r.run_id from remit_run r join named n on r.parent = n.run_id)"
)
"""A run, or the runs of a session, with all that is inside of them."""


def erase(
    connection: sqlite3.Connection,
    files: Files,
    lives: Lives,
    *,
    run_id: str | None,
    session: str | None,
    now: float,
) -> Erased:
    """`Keeping.erase`. Errors: `ConfigurationError`, `RunBusy`, `sqlite3.Error`, `OSError`."""
    with _transaction(connection):
        runs = _named(connection, lives, run_id=run_id, session=session)
        check_whole([run.kin for run in runs], _others(connection, lives, runs))
        standing = [run for run in runs if not run.erased]
        _mark(connection, standing, now)
        connection.executemany(
            "delete from remit_grant where session = ?", {(run.kin.session,) for run in standing}
        )
    artifacts = _sweep(connection, files)
    with _transaction(connection):
        _rename_children(connection, runs)
    return Erased(
        runs=len(standing),
        artifacts=artifacts,
        ended=tuple([run.kin.run_id for run in standing if not run.ended]),
        complete=_rewrite(connection, lives) and _truncate_log(connection),
    )


def prune(
    connection: sqlite3.Connection, files: Files, lives: Lives, *, before: datetime, now: float
) -> Pruned:
    """`Keeping.prune`, of what ended before a moment. Errors: `sqlite3.Error`, `OSError`."""
    until = before.timestamp()
    runs = rows = 0
    trees = iter(_old(connection, until))
    while batch := list(islice(trees, _PRUNE_RUNS)):
        with _transaction(connection):
            going: list[_Run] = []
            for roots in batch:
                # Looked at again: one may have been taken up since, or its session have gone on.
                going += _prunable(connection, lives, roots, until)
            _mark(connection, [run for run in going if not run.erased], now)
        _sweep_payloads(connection, [run.number for run in going])
        with _transaction(connection):
            for table in ("row", "run"):
                connection.executemany(
                    f"delete from remit_{table} where run_id = ?",  # noqa: S608 - tables are ours
                    [(run.kin.run_id,) for run in going],
                )
        runs, rows = runs + len(going), rows + sum(run.rows for run in going)
    pruned = Pruned(
        runs=runs,
        rows=rows,
        artifacts=_sweep(connection, files),
        files=_tidy(connection, files, now),
    )
    _truncate_log(connection)
    return pruned


def prunable(
    connection: sqlite3.Connection, files: Files, lives: Lives, *, before: datetime, now: float
) -> Pruned:
    """What `prune` would remove. Nothing is changed."""
    until = before.timestamp()
    connection.execute("begin")
    try:
        going = [
            run
            for roots in _old(connection, until)
            for run in _prunable(connection, lives, roots, until)
        ]
        roots = {run.root for run in going}
        held = connection.execute("select digest, root from remit_holding").fetchall()
        kept = {digest for digest, root in held if root not in roots}
        artifacts = {digest for digest, _ in held} - kept | set(_orphans(connection))
        return Pruned(
            runs=len(going),
            rows=sum(run.rows for run in going),
            artifacts=len(artifacts),
            files=sum(1 for each in files.all() if _is_garbage(connection, files, each, now)),
        )
    finally:
        connection.execute("rollback")


# Which runs


def _named(
    connection: sqlite3.Connection, lives: Lives, *, run_id: str | None, session: str | None
) -> Sequence[_Run]:
    """What is named, with all runs inside. Errors: `ConfigurationError`."""
    for column, name in (("run_id", run_id), ("session", session)):
        known = connection.execute(
            f"select 1 from remit_run where {column} = ? limit 1",  # noqa: S608 - columns are ours
            (sought(name),),
        )
        if name is not None and known.fetchone() is None:
            raise unknown("run" if column == "run_id" else "session", name)
    found = connection.execute(
        f"with recursive {_NAMED} select {_COLUMNS} from remit_run r join named using(run_id)",  # noqa: S608 - all of it is ours
        {"run_id": run_id, "session": session},
    )
    return [_run(lives, row) for row in found.fetchall()]


def _others(connection: sqlite3.Connection, lives: Lives, runs: Iterable[_Run]) -> Sequence[Kin]:
    """The runs of their sessions that are not among these."""
    together = {run.kin.run_id for run in runs}
    sessions = {run.kin.session for run in runs} - {None}
    return [
        run.kin
        for session in sessions
        for run in _where(connection, lives, "r.session = ?", session)
        if run.kin.run_id not in together
    ]


def _old(connection: sqlite3.Connection, until: float) -> Iterable[frozenset[str]]:
    """The roots of the trees that ended before a moment; those that one session binds together, together."""
    found = connection.execute(
        "select root from remit_run group by root"
        " having min(status = 'ended') and max(coalesce(ended_at, created_at)) < ?",
        (until,),
    )
    old = {root for (root,) in found}
    bound = connection.execute(
        "select session, root from remit_run where session in ("
        "  select session from remit_run where session is not null"
        "  group by session having count(distinct root) > 1) group by session, root"
    ).fetchall()
    return [group for group in together(old, bound) if group <= old]


def _prunable(
    connection: sqlite3.Connection, lives: Lives, roots: frozenset[str], until: float
) -> Sequence[_Run]:
    """The runs of these trees, if all of them can go; else none."""
    runs = [run for root in roots for run in _where(connection, lives, "r.root = ?", root)]
    if all(run.ended and run.ended_at < until and run.kin.owner is None for run in runs):
        return [] if _others(connection, lives, runs) else runs
    return []


def _where(
    connection: sqlite3.Connection, lives: Lives, condition: str, value: object
) -> Sequence[_Run]:
    found = connection.execute(
        f"select {_COLUMNS} from remit_run r where {condition}",  # noqa: S608 - conditions are ours
        (value,),
    )
    return [_run(lives, row) for row in found.fetchall()]


def _run(lives: Lives, row: tuple[Any, ...]) -> _Run:
    run_id, parent, session, owner, worker, number, root, status, erased_at, ended_at, rows = row
    alive = worker is not None and lives(worker)
    return _Run(
        Kin(run_id, parent, session, (owner or worker) if alive else None),
        number,
        root,
        ended=status == "ended",
        erased=erased_at is not None,
        ended_at=ended_at or 0.0,
        rows=rows,
    )


# What goes


def _mark(connection: sqlite3.Connection, runs: Sequence[_Run], now: float) -> None:
    """Make tombstones of runs, and take away everything beside their payloads that tells what they were about."""
    for run in runs:
        named = (run.kin.run_id,)
        connection.execute(
            "update remit_run set status = 'ended', erased_at = ?, ended_at = coalesce(ended_at, ?),"
            " reason = case status when 'ended' then reason else 'cancelled' end, spec_hash = x'',"
            " tags = '{}', session = null, session_at = null, owner = null, worker = null,"
            " taken = inbox_max where run_id = ?",
            (now, now, *named),
        )
        connection.execute("delete from remit_post where run_id = ?", named)
        connection.execute("delete from remit_proposal where run_id = ?", named)
        connection.execute("delete from remit_grant where run_id = ?", named)
    # In one go: the table has no index by roots.
    connection.execute(
        "delete from remit_holding where root in (select value from json_each(?)) and not exists ("
        " select 1 from remit_run r where r.root = remit_holding.root and r.erased_at is null)",
        (json_text(sorted({run.root for run in runs})),),
    )


def _rename_children(connection: sqlite3.Connection, runs: Sequence[_Run]) -> None:
    """Take away what ids tell of what was asked."""
    changes = [(new, old) for old, new in new_names([run.kin for run in runs]).items()]
    for table in ("run", "row"):
        connection.executemany(
            f"update remit_{table} set run_id = ? where run_id = ?",  # noqa: S608 - tables are ours
            changes,
        )
    connection.executemany("update remit_run set parent = ? where parent = ?", changes)


def _sweep(connection: sqlite3.Connection, files: Files) -> int:
    """Delete what no standing run says any more. Gives how many artifacts that were."""
    buried = connection.execute(
        "select number from remit_run where erased_at is not null and exists ("
        " select 1 from remit_payload where id between number << 32 and (number + 1 << 32) - 1)"
    ).fetchall()
    _sweep_payloads(connection, [number for (number,) in buried])
    swept = 0
    orphans = iter(_orphans(connection))
    while (digest := next(orphans, None)) is not None:
        size = 0
        with _transaction(connection):
            while digest is not None and size < _SWEEP_BYTES:
                for gone, in_file in connection.execute(
                    "delete from remit_artifact where digest = :digest and not exists ("
                    " select 1 from remit_holding where digest = :digest) returning size, data is null",
                    {"digest": digest},
                ).fetchall():
                    size, swept = size + gone, swept + 1
                    if in_file:
                        files.remove(digest)
                digest = next(orphans, None) if size < _SWEEP_BYTES else None
    return swept


def _sweep_payloads(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    for number in numbers:
        more = True
        while more:
            with _transaction(connection):
                found = connection.execute(
                    "select id, length(body) from remit_payload where id >= ? and id < ? limit ?",
                    (payload_id(number, 0), payload_id(number + 1, 0), _SWEEP_ROWS),
                ).fetchall()
                size, going = 0, list[tuple[int]]()
                for at, length in found:
                    if size >= _SWEEP_BYTES:
                        break
                    size += length
                    going.append((at,))
                connection.executemany("delete from remit_payload where id = ?", going)
            more = bool(going)


def _orphans(connection: sqlite3.Connection) -> Sequence[str]:
    """Artifacts that nobody holds."""
    found = connection.execute(
        "select digest from remit_artifact a where not exists ("
        " select 1 from remit_holding h where h.digest = a.digest)"
    )
    return [digest for (digest,) in found.fetchall()]


def _tidy(connection: sqlite3.Connection, files: Files, now: float) -> int:
    """Remove files that nobody came to name."""
    removed = 0
    for digest in files.all():
        with _transaction(connection):
            if _is_garbage(connection, files, digest, now):
                files.remove(digest)
                removed += 1
    return removed + files.remove_parts(now - _GARBAGE_SECONDS)


def _is_garbage(connection: sqlite3.Connection, files: Files, digest: str, now: float) -> bool:
    known = connection.execute("select 1 from remit_artifact where digest = ?", (digest,))
    return known.fetchone() is None and files.written_at(digest) < now - _GARBAGE_SECONDS


def _rewrite(connection: sqlite3.Connection, lives: Lives) -> bool:
    """Write the file anew, so that no page holds what was moved away from it. False where that has to wait."""
    ((size,),) = connection.execute(
        "select page_count * page_size from pragma_page_count, pragma_page_size"
    ).fetchall()
    holders = connection.execute(
        "select distinct worker from remit_run where worker is not null"
    ).fetchall()
    if size > _REWRITE_BYTES and any(lives(worker) for (worker,) in holders):
        return False
    try:
        connection.execute("vacuum")
    except sqlite3.OperationalError:
        # Others write without a pause, or there is no room for a second file.
        return False
    return True


def _truncate_log(connection: sqlite3.Connection) -> bool:
    """Have nothing older left in the log. False where somebody reads in it for too long.

    It is asked for briefly and again: while it waits for those who read, nobody writes.
    """
    (before,) = connection.execute("pragma busy_timeout").fetchone()
    connection.execute("pragma busy_timeout = 100")
    try:
        until = time.monotonic() + _CHECKPOINT_SECONDS
        while True:
            (busy, _, _) = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
            if not busy or time.monotonic() >= until:
                return not busy
            time.sleep(_TURN_SECONDS)  # in a thread of the store's
    finally:
        connection.execute(f"pragma busy_timeout = {before}")


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:  # taken back and raised again
        if connection.in_transaction:
            connection.execute("rollback")
        raise
