"""Whether a store still says what was written to it: every run's chain, every artifact, and the file itself.

It only reads, on a connection of its own, beside whoever writes: one short transaction for each run, so that the log
is not held back. What is found is told as values, and nothing that stands in the file is taken for granted. That
it cannot be looked at now, because somebody holds the whole file, is an error and no finding: it says nothing of
what is written. What an erasure or a pruning has not come to yet is one only if nobody is at it.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

from remit.canonical import parse_json
from remit.errors import ConfigurationError, JournalError
from remit.store.chain import START, Chain
from remit.store.keeping import Finding, Stock
from remit.store.sqlite.files import Files
from remit.store.sqlite.schema import VERSION, check

__all__ = ["findings", "reading", "stock"]

_BUSY_SECONDS: Final = 15.0
"""How long one that is held is waited for. Longer than writers wait: under load, the last one out writes its log back."""
_MOST_OF_THE_FILE: Final = 20
"""Complaints of SQLite about the file itself that are told."""
_DAMAGE: Final = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged file raises: the binding cannot even read out SQLite's complaint where that quotes broken text."""
_HELD: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
"""What a sound file raises that others hold: whoever closes it last, or finds it as a killed process left it."""
_UNWRITABLE: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
"""What a file raises beside which nothing may be written, such as the log that it is shared by."""
_OF_RUNS: Final = ("row", "post", "proposal")
"""Tables whose rows belong to a run."""


def _text(data: bytes) -> str:
    """Text as it stands in the file, which may be damaged."""
    return data.decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that changes nothing. Errors: `JournalError` where there is no store, or somebody holds it."""
    connection = _open(path, "mode=ro")
    try:
        connection.execute("select 1 from sqlite_schema limit 1").fetchone()
    except sqlite3.OperationalError as error:
        if _code(error) in _HELD:
            connection.close()
            raise _held(error) from error
        # Where nothing can be written beside it SQLite cannot share it; if it has no log, nobody is at it either.
        # One that is merely held is never opened so: what is written meanwhile would be read in halves.
        if _code(error) in _UNWRITABLE and not _size(path.with_name(f"{path.name}-wal")):
            connection.close()
            connection = _open(path, "immutable=1")
    except _DAMAGE:
        pass  # whoever asked for it tells what it is
    try:
        yield connection
    finally:
        connection.close()


def _open(path: Path, how: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?{how}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
        )
    except sqlite3.Error as error:
        raise JournalError(f"the store {path} cannot be opened: {error}") from error
    connection.text_factory = _text
    return connection


def _code(error: Exception) -> int | None:
    """SQLite's own code for it, without what is added for special cases."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def _held(error: Exception) -> JournalError:
    return JournalError(
        f"the store cannot be looked at now: {error}. Somebody holds the whole of it for a moment: try again"
    )


def _told(error: Exception) -> str:
    """What damage says of itself. Errors: `JournalError` for what is none: the file is only held."""
    if _code(error) in _HELD:
        raise _held(error) from error
    return str(error)


def stock(path: Path, files: Files) -> Stock:
    """What a store holds. Errors: `JournalError`."""
    with reading(path) as connection:
        try:
            schema = _current(connection)
            runs = dict(
                connection.execute("select status, count(*) from remit_run group by status")
            )
            key, erased, sessions, rows, artifacts, oldest, newest = connection.execute(
                "select (select value from remit_meta where name = 'chain'), count(erased_at),"
                " count(distinct session), coalesce(sum(next_seq), 0),"
                " (select count(*) from remit_artifact), min(created_at), max(created_at) from remit_run"
            ).fetchone()
        except _DAMAGE as error:
            raise JournalError(f"the store cannot be read: {_told(error)}") from error
    return Stock(
        schema=schema,
        keyed=bool(key),
        runs=runs,
        erased=erased,
        sessions=sessions,
        rows=rows,
        artifacts=artifacts,
        bytes=_size(path),
        log_bytes=_size(path.with_name(f"{path.name}-wal")),
        artifact_file_bytes=sum(_size(files.path(digest)) for digest in files.all()),
        oldest=None if oldest is None else datetime.fromtimestamp(oldest, UTC),
        newest=None if newest is None else datetime.fromtimestamp(newest, UTC),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _current(connection: sqlite3.Connection) -> int:
    """The schema version. Errors: `JournalError` for one that this code does not read."""
    version = check(connection)
    if version != VERSION:
        raise JournalError(
            f"the store has schema version {version}: any command that writes to it brings it to {VERSION}"
        )
    return version


def findings(
    path: Path, chain: Chain, files: Files, pause: Callable[[], None]
) -> Iterator[Finding]:
    """All that is wrong. What is on its way out is looked at again after a `pause`, while there is less of it each time.

    Errors: `JournalError` for what is no store; `ConfigurationError` for another key.
    """
    with reading(path) as connection:
        try:
            _current(connection)
        except _DAMAGE as error:
            yield Finding(what=f"the file cannot be read: {_told(error)}")
            return
        for look in (
            lambda: _file(connection),
            lambda: _key(connection, chain),
            lambda: _runs(connection, chain),
            lambda: _strays(connection),
            lambda: _artifacts(connection, files),
            lambda: _remnants(connection, pause),
        ):
            yield from _surely(look)


def _surely(look: Callable[[], Iterator[Finding]], run_id: str | None = None) -> Iterator[Finding]:
    """What one look finds; that it cannot be had is a finding, too."""
    try:
        yield from look()
    except _DAMAGE as error:
        yield Finding(what=f"cannot be read: {_told(error)}", run_id=run_id)


def _file(connection: sqlite3.Connection) -> Iterator[Finding]:
    for (said,) in connection.execute(f"pragma integrity_check({_MOST_OF_THE_FILE})"):
        if said != "ok":
            yield Finding(what=f"the file is damaged: {said}")


def _key(connection: sqlite3.Connection, chain: Chain) -> Iterator[Finding]:
    found = connection.execute("select value from remit_meta where name = 'chain'").fetchone()
    if found is None:
        yield Finding(what="it is not written down whether the store has a key")
    elif found[0] != chain.mark:
        raise ConfigurationError(
            "the store was made with another key, or with none: set REMIT_STORE_KEY as it was then"
        )


# Runs


def _runs(connection: sqlite3.Connection, chain: Chain) -> Iterator[Finding]:
    found = connection.execute("select run_id from remit_run order by run_id")
    for (run_id,) in found.fetchall():
        yield from _surely(lambda run_id=run_id: _run(connection, chain, run_id), run_id)


def _run(connection: sqlite3.Connection, chain: Chain, run_id: str) -> Iterator[Finding]:
    connection.execute("begin")
    try:
        run = connection.execute(
            "select number, next_seq, head, erased_at, parent, remit, session, tags, status, reason"
            " from remit_run where run_id = ?",
            (run_id,),
        ).fetchone()
        if run is None:
            return  # it was pruned a moment ago
        number, next_seq, newest, erased_at, parent, *about = run
        head, seq = START, -1
        told: dict[str, Any] = {}
        for expected, row in enumerate(
            connection.execute(
                "select r.seq, r.epoch, r.kind, r.digest, r.link, p.salt, p.body"
                " from remit_row r left join remit_payload p on p.id = (? << 32) + r.seq"
                " where r.run_id = ? order by r.seq",
                (number, run_id),
            )
        ):
            seq, _, kind, digest, link, salt, body = row
            what = _link(chain, head, expected, row)
            if what is None and erased_at is None:
                what = _payload(chain, digest, salt, body)
            if what is not None:
                yield Finding(what=what, run_id=run_id, seq=expected)
            if not (isinstance(seq, int) and isinstance(link, bytes)) or seq != expected:
                return  # where one row is missing, all behind it would be told as changed
            head = link
            if what is None and body is not None and kind in {"opened", "ended"}:
                told[kind] = body
        if seq + 1 != next_seq or head != newest:
            yield Finding(what="rows at its end are missing, or its head is changed", run_id=run_id)
        if parent is not None and not _is_there(connection, parent):
            yield Finding(what=f"the run around it, {parent!r}, is not there", run_id=run_id)
        for what in () if erased_at is not None else _about(about, told):
            yield Finding(what=what, run_id=run_id)
    finally:
        connection.execute("rollback")


def _link(chain: Chain, head: bytes, expected: int, row: tuple[Any, ...]) -> str | None:
    seq, epoch, kind, digest, link, _, _ = row
    sound = (
        isinstance(seq, int)
        and isinstance(epoch, int)
        and isinstance(kind, str)
        and isinstance(digest, bytes)
    )
    if sound and seq != expected:
        return "the row is missing"
    if (
        not sound
        or epoch < 0
        or chain.link(head, seq=seq, epoch=epoch, kind=kind, digest=digest) != link
    ):
        return "the row is not as it was written"
    return None


def _payload(chain: Chain, digest: bytes, salt: Any, body: Any) -> str | None:
    if body is None:
        return "what it says is missing"
    if not (isinstance(salt, bytes) and isinstance(body, bytes)):
        return "what it says is damaged"
    return None if chain.digest(salt, body) == digest else "what it says is damaged"


def _is_there(connection: sqlite3.Connection, run_id: str) -> bool:
    found = connection.execute("select 1 from remit_run where run_id = ?", (run_id,))
    return found.fetchone() is not None


def _about(about: list[Any], told: dict[str, bytes]) -> Iterator[str]:
    """What the list of runs says of it, held against what its rows say: no chain stands over the list."""
    remit, session, tags, status, reason = about
    opened = _parsed(told.get("opened"))
    if "remit" in opened:
        said: tuple[Any, ...] = (opened["remit"], opened.get("session"), opened.get("tags") or {})
        if said != (remit, session, _parsed(tags)):
            yield "its remit, session or tags are not those of its first row"
    ended = _parsed(told.get("ended"))
    if status == "ended" and "reason" in ended and ended["reason"] != reason:
        yield f"it is listed as ended by {reason!r}, and its last row says {ended['reason']!r}"


def _parsed(text: Any) -> dict[str, Any]:
    try:
        value = parse_json(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, TypeError, AttributeError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _strays(connection: sqlite3.Connection) -> Iterator[Finding]:
    """What belongs to no run."""
    for table in _OF_RUNS:
        found = connection.execute(
            f"select distinct run_id from remit_{table} t where not exists ("  # noqa: S608 - tables are ours
            " select 1 from remit_run r where r.run_id = t.run_id)"
        )
        for (run_id,) in found.fetchall():
            yield Finding(what=f"a {table} is here of a run that is not", run_id=run_id)
    found = connection.execute(
        "select u.run_id, p.seq from remit_payload p left join remit_run u on u.number = p.run where not exists ("
        " select 1 from remit_row r where r.run_id = u.run_id and r.seq = p.seq)"
    )
    for run_id, seq in found.fetchall():
        if run_id is None:
            yield Finding(what="a payload is here of a run that is not")
        else:
            what = "what it says is here, and the row is missing"
            yield Finding(what=what, run_id=run_id, seq=seq)


# What was to go


def _remnants(connection: sqlite3.Connection, pause: Callable[[], None]) -> Iterator[Finding]:
    """What an erasure or a pruning left that died over it; one that is at work has swept more in a pause."""
    found = _unswept(connection)
    before = len(found) + 1
    while 0 < len(found) < before:
        before = len(found)
        pause()
        still = set(_unswept(connection))
        found = [each for each in found if each in still]
    yield from found


def _unswept(connection: sqlite3.Connection) -> list[Finding]:
    payloads = connection.execute(
        "select u.run_id, p.seq from remit_run u join remit_payload p"
        " on p.id between u.number << 32 and (u.number + 1 << 32) - 1"
        " where u.erased_at is not null order by u.run_id, p.seq"
    ).fetchall()
    artifacts = connection.execute(
        "select digest from remit_artifact a where not exists ("
        " select 1 from remit_holding h where h.digest = a.digest) order by digest"
    ).fetchall()
    said = "it was erased, and what it said is still here: erase or prune again"
    unheld = "artifact {} is kept for nobody: erase or prune again"
    return [
        *(Finding(what=said, run_id=run_id, seq=seq) for run_id, seq in payloads),
        *(Finding(what=unheld.format(digest[:12])) for (digest,) in artifacts),
    ]


# Artifacts


def _artifacts(connection: sqlite3.Connection, files: Files) -> Iterator[Finding]:
    found = connection.execute(
        "select a.digest, (select h.root from remit_holding h where h.digest = a.digest limit 1)"
        " from remit_artifact a order by a.digest"
    )
    for digest, root in found.fetchall():
        yield from _surely(
            lambda digest=digest, root=root: _artifact(connection, files, digest, root)
        )
    found = connection.execute(
        "select h.root, h.digest from remit_holding h where not exists ("
        " select 1 from remit_artifact a where a.digest = h.digest)"
    )
    for root, digest in found.fetchall():
        yield Finding(what=f"artifact {digest[:12]} is missing", run_id=root)


def _artifact(
    connection: sqlite3.Connection, files: Files, digest: str, root: str | None
) -> Iterator[Finding]:
    row = _kept(connection, digest)
    if row is None:
        return  # it was erased a moment ago
    size, data = row
    if data is None:
        try:
            data = _in_file(connection, files, digest)
        except JournalError as error:
            yield Finding(what=str(error), run_id=root)
            return
        if data is None:
            return
    if (
        not isinstance(data, bytes)
        or len(data) != size
        or hashlib.sha256(data).hexdigest() != digest
    ):
        yield Finding(what=f"artifact {digest[:12]} is damaged", run_id=root)


def _in_file(connection: sqlite3.Connection, files: Files, digest: str) -> bytes | None:
    """What the file of an artifact holds; None for one that goes: its file does, before its name is gone for others.

    Errors: `JournalError` where it cannot be read.
    """
    try:
        return files.read(digest)
    except JournalError:
        held = connection.execute("select 1 from remit_holding where digest = ?", (digest,))
        if held.fetchone() is None:
            return None
    return files.read(digest)  # somebody may just have kept the same bytes again


def _kept(connection: sqlite3.Connection, digest: str) -> tuple[Any, Any] | None:
    return connection.execute(
        "select size, data from remit_artifact where digest = ?", (digest,)
    ).fetchone()
