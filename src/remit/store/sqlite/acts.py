"""What a store does inside of a transaction, as plain functions of a connection.

Each is one piece of work of the writer: it does all of what it says or raises. The chain is continued by whoever
holds the lease, before the transaction; it goes in behind the very head that it was made on, or not at all.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from remit.artifacts import Artifact
from remit.canonical import encode, json_text
from remit.errors import DecisionError, Fenced, JournalError
from remit.pending import PendingKind
from remit.store.base import (
    Control,
    Held,
    Lease,
    NewProposal,
    NewRow,
    NewRun,
    NotNext,
    PostKind,
    Predecessor,
    RunStatus,
    Superseded,
    wrong_kind,
)
from remit.store.chain import SEED_BYTES, START, Chain, salt_of
from remit.store.sqlite.files import INLINE_BYTES
from remit.store.sqlite.names import sought
from remit.store.sqlite.schema import payload_id

__all__ = [
    "OwnLease",
    "Written",
    "acquire",
    "append",
    "create",
    "decide",
    "post",
    "release",
    "renew",
    "withdraw",
    "written_by",
]


class OwnLease(Lease):
    """A lease as this store gives it: the rows that it will write can be made ready without asking the file."""

    number: int = 0
    """Of the run."""
    head: bytes = START
    """The newest link."""
    seed: bytes = b""
    """Of its salts. It is drawn in the writer's thread: to ask the system for chance gives up the interpreter, which
    may be had back 5 ms later where others are at work."""

    def wrote(self, written: Written, found_at: float) -> None:
        """An append was acknowledged."""
        self.next_seq, self.head, self.found_at = written.next_seq, written.head, found_at
        self.stood = "ready"


class Written(msgspec.Struct, frozen=True, gc=False):
    """Rows that are ready to be written behind the head of a lease, and nowhere else."""

    lease: OwnLease
    links: Sequence[tuple[str, int, int, str, bytes, bytes]]
    payloads: Sequence[tuple[int, bytes, bytes]]
    head: bytes
    """Of the chain behind them."""
    next_seq: int


def written_by(chain: Chain, lease: OwnLease, rows: Sequence[NewRow]) -> Written:
    """Continue the chain of a run by these rows."""
    links: list[tuple[str, int, int, str, bytes, bytes]] = []
    payloads: list[tuple[int, bytes, bytes]] = []
    head, seq = lease.head, lease.next_seq
    for row in rows:
        salt = salt_of(lease.seed, seq)
        digest = chain.digest(salt, row.body)
        head = chain.link(head, seq=seq, epoch=lease.epoch, kind=row.kind, digest=digest)
        links.append((lease.run_id, seq, lease.epoch, row.kind, digest, head))
        payloads.append((payload_id(lease.number, seq), salt, row.body))
        seq += 1
    return Written(lease, links, payloads, head, seq)


def create(
    connection: sqlite3.Connection,
    chain: Chain,
    run: NewRun,
    lives: Callable[[str], bool],
) -> bool | NotNext:
    """Open a run. False where the id exists. `lives` tells of a worker whether it is alive."""
    known = connection.execute("select 1 from remit_run where run_id = ?", (run.run_id,))
    if known.fetchone() is not None:
        return False
    root, place, shared = run.run_id, None, None
    if run.session is not None:
        newest = _newest(connection, run.session, lives)
        if newest.found.newest != run.after or not newest.found.is_free:
            return newest.found
        root, place, shared = newest.root or root, newest.place + 1, newest.root
    above = connection.execute("select root from remit_run where run_id = ?", (run.parent,))
    (root,) = above.fetchone() or (root,)
    (number,) = connection.execute("select coalesce(max(number), 0) + 1 from remit_run").fetchone()
    lease = OwnLease(run.run_id, 0, 0, 0, 0, number=number, seed=os.urandom(SEED_BYTES))
    written = written_by(chain, lease, (run.opened,))
    _write(connection, written)
    connection.execute(
        "insert into remit_run(run_id, number, spec_hash, parent, root, status, epoch, next_seq, head, inbox_max,"
        " taken, created_at, remit, session, session_at, tags)"
        " values (?, ?, ?, ?, ?, 'ready', 0, 1, ?, 0, 0, ?, ?, ?, ?, ?)",
        (
            run.run_id,
            number,
            run.spec_hash,
            run.parent,
            root,
            written.head,
            _now(),
            run.remit,
            run.session,
            place,
            json_text(dict(run.tags)),
        ),
    )
    _put(connection, root, run.artifacts)
    if root != shared:  # or what the conversation names is held already
        connection.executemany(
            "insert or ignore into remit_holding(root, digest) select ?, digest from remit_artifact where digest = ?",
            [(root, digest) for digest in run.brought],
        )
    return True


def acquire(
    connection: sqlite3.Connection,
    run_id: str,
    owner: str,
    worker: str,
    lives: Callable[[str], bool],
) -> Lease | Held | Superseded:
    """Become the writer of a run. `lives` tells of a worker whether it is alive."""
    found = _run(
        connection,
        run_id,
        "status, owner, worker, epoch, next_seq, taken, inbox_max, session, session_at, erased_at, number, head",
    )
    (
        status,
        held_by,
        holder,
        epoch,
        next_seq,
        taken,
        inbox_max,
        session,
        place,
        erased,
        number,
        head,
    ) = found
    if erased is not None:
        raise JournalError(f"run {run_id!r} was erased: there is nothing to go on from")
    if holder is not None and lives(holder):
        return Held(held_by)
    if session is not None and status == "ended":
        newer = connection.execute(
            "select run_id from remit_run where session = ? and session_at > ?"
            " order by session_at limit 1",
            (session, place),
        ).fetchone()
        if newer is not None:
            return Superseded(*newer)
    connection.execute(
        "update remit_run set owner = ?, worker = ?, epoch = ?, status = ? where run_id = ?",
        (owner, worker, epoch + 1, status if status == "ended" else "running", run_id),
    )
    stood: RunStatus = "waiting" if status == "waiting" else "ready"
    return OwnLease(
        run_id,
        epoch + 1,
        next_seq,
        taken,
        inbox_max,
        stood,
        found_at=time.monotonic(),
        number=number,
        head=head,
        seed=os.urandom(SEED_BYTES),
    )


def append(
    connection: sqlite3.Connection,
    written: Written,
    worker: str,
    *,
    status: RunStatus,
    reason: str | None,
    proposals: Sequence[NewProposal],
    taken: int,
    artifacts: Sequence[Artifact],
) -> tuple[Control, float]:
    """Write rows and what goes with them. Errors: `Fenced`.

    Gives when the lease was found to be the run's, too.
    """
    lease = written.lease
    found = connection.execute(
        "select root, inbox_max, taken from remit_run"
        " where run_id = ? and epoch = ? and next_seq = ? and worker = ? and head = ?",
        (lease.run_id, lease.epoch, lease.next_seq, worker, lease.head),
    ).fetchone()
    if found is None:
        raise Fenced(f"run {lease.run_id!r} has another writer")
    root, inbox_max, taken_before = found
    taken = max(taken, taken_before)
    if status == "waiting" and inbox_max > taken:
        status = "running"  # it has not heard everything
    connection.execute(
        "update remit_run set head = ?, next_seq = ?, status = ?, reason = ?, taken = ?, ended_at = ?"
        " where run_id = ?",
        (
            written.head,
            written.next_seq,
            status,
            reason,
            taken,
            _now() if status == "ended" else None,
            lease.run_id,
        ),
    )
    if artifacts:
        _put(connection, root, artifacts)
    _write(connection, written)
    for p in proposals:
        connection.execute(
            "insert into remit_proposal values (?, ?, ?, ?, ?, ?, 0)",
            (
                p.pending_id,
                lease.run_id,
                p.kind,
                p.token_hash,
                p.arguments_hash,
                p.expires_at.isoformat(),
            ),
        )
    return Control(inbox_max, status), time.monotonic()


def release(connection: sqlite3.Connection, lease: Lease, worker: str) -> None:
    """Give a lease back, if it is still one."""
    connection.execute(
        "update remit_run set owner = null, worker = null, status = case"
        " when status = 'running' and next_seq = ? then ? when status = 'running' then 'ready' else status end"
        " where run_id = ? and epoch = ? and worker = ?",
        (lease.next_seq, lease.stood, lease.run_id, lease.epoch, worker),
    )


def post(
    connection: sqlite3.Connection,
    run_id: str,
    kind: PostKind,
    body: bytes,
    artifacts: Sequence[Artifact] = (),
) -> bool:
    """Leave something for a run. False where there is no such run."""
    found = connection.execute(
        "update remit_run set inbox_max = inbox_max + 1 where run_id = ? and erased_at is null returning inbox_max, root",
        (sought(run_id),),
    ).fetchall()
    for number, root in found:
        _put(connection, root, artifacts)
        connection.execute(
            "insert into remit_post values (?, ?, ?, ?)", (run_id, number, kind, body)
        )
    return bool(found)


def decide(
    connection: sqlite3.Connection,
    *,
    token_hash: bytes | None,
    pending_id: str | None,
    arguments_hash: str | None,
    kind: PendingKind,
    decision: bytes,
    now: datetime,
) -> str:
    """Use a proposal up and leave its decision for the run. Errors: `DecisionError`."""
    if token_hash is not None:
        named = connection.execute(
            "select pending_id from remit_proposal where token_hash = ?", (token_hash,)
        ).fetchone()
        pending_id = None if named is None else named[0]
    found = _open(connection, pending_id, kind)
    if found.expires_at <= now:
        raise DecisionError("expired", "its time is over: resume the run, which goes on from there")
    if arguments_hash is not None and arguments_hash != found.arguments_hash:
        raise DecisionError("stale", "other arguments were shown than the call now has")
    _use_up(connection, found.pending_id)
    body = encode({"pending_id": found.pending_id}) + b"\n" + decision
    post(connection, found.run_id, "decision" if kind == "approval" else "supply", body)
    return found.run_id


def renew(connection: sqlite3.Connection, pending_id: str, token_hash: bytes) -> None:
    """Replace the token of an open approval. Errors: `DecisionError`."""
    _open(connection, pending_id, "approval")
    connection.execute(
        "update remit_proposal set token_hash = ? where pending_id = ?", (token_hash, pending_id)
    )


def withdraw(connection: sqlite3.Connection, pending_id: str) -> bool:
    """Close a proposal without a decision. False where it was not open."""
    found = connection.execute(
        "update remit_proposal set used = 1 where pending_id = ? and not used returning run_id",
        (sought(pending_id),),
    ).fetchall()
    for (run_id,) in found:
        post(connection, run_id, "withdraw", encode({"pending_id": pending_id}))
    return bool(found)


class _Newest(msgspec.Struct, frozen=True):
    """The newest run of a session."""

    found: NotNext
    """What there is to say to whoever takes it for another."""
    place: int = -1
    """Its place in the session; -1 where there is none."""
    root: str | None = None
    """Of the tree whose artifacts the next run shares; None where it is inside another's."""


def _newest(connection: sqlite3.Connection, session: str, lives: Callable[[str], bool]) -> _Newest:
    found = connection.execute(
        "select run_id, next_seq, status, owner, worker, session_at, root, parent"
        " from remit_run where session = ? order by session_at desc limit 1",
        (session,),
    ).fetchone()
    if found is None:
        return _Newest(NotNext(None))
    run_id, rows, status, owner, worker, place, root, parent = found
    if worker is None or not lives(worker):
        owner = None
    newest = NotNext(Predecessor(run_id, rows), status, owner)
    return _Newest(newest, place, root if parent is None else None)


class _Open(msgspec.Struct, frozen=True):
    """A proposal that can be decided."""

    pending_id: str
    run_id: str
    arguments_hash: str
    expires_at: datetime


def _open(connection: sqlite3.Connection, pending_id: str | None, kind: PendingKind) -> _Open:
    found = connection.execute(
        "select p.run_id, p.kind, p.arguments_hash, p.expires_at, p.used, r.status"
        " from remit_proposal p join remit_run r using(run_id) where pending_id = ?",
        (sought(pending_id),),
    ).fetchone()
    if pending_id is None or found is None:
        raise DecisionError("unknown", "no proposal is known by this token or id")
    run_id, proposed, arguments_hash, expires_at, used, status = found
    if proposed != kind:
        raise wrong_kind(proposed)
    if used:
        raise DecisionError("used", "the proposal has been decided or withdrawn")
    if status == "ended":
        # It ended without a word to this proposal: the process died before it was withdrawn.
        raise DecisionError("stale", "the run that asked has ended")
    return _Open(pending_id, run_id, arguments_hash, datetime.fromisoformat(expires_at))


def _now() -> float:
    """In whole microseconds, as a `datetime` holds it: what was read is what can be asked for."""
    return round(time.time(), 6)


def _use_up(connection: sqlite3.Connection, pending_id: str) -> None:
    connection.execute("update remit_proposal set used = 1 where pending_id = ?", (pending_id,))


def _run(connection: sqlite3.Connection, run_id: str, columns: str) -> tuple[Any, ...]:
    found = connection.execute(
        f"select {columns} from remit_run where run_id = ?",  # noqa: S608 - columns are ours
        (sought(run_id),),
    ).fetchone()
    if found is None:
        raise JournalError(f"there is no run {run_id!r} in this store")
    return found


def _write(connection: sqlite3.Connection, written: Written) -> None:
    connection.executemany("insert into remit_row values (?, ?, ?, ?, ?, ?)", written.links)
    connection.executemany(
        "insert into remit_payload(id, salt, body) values (?, ?, ?)", written.payloads
    )


def _put(connection: sqlite3.Connection, root: str, artifacts: Sequence[Artifact]) -> None:
    for artifact in artifacts:
        data = artifact.data if len(artifact.data) <= INLINE_BYTES else None
        connection.execute(
            "insert or ignore into remit_artifact values (?, ?, ?, ?)",
            (artifact.digest, artifact.media_type, len(artifact.data), data),
        )
        connection.execute(
            "insert or ignore into remit_holding(root, digest) values (?, ?)",
            (root, artifact.digest),
        )
