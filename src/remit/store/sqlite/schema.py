"""The tables of a store in SQLite, and how an older file comes to have them.

`remit_row` holds what the chain is made over and is only ever added to; `remit_payload` holds what the rows say,
and can be erased. A migration is a list of statements that leads from one version to the next; they run in one
transaction, and a file of a newer version than this code knows is refused.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from remit.errors import JournalError

__all__ = ["APPLICATION_ID", "VERSION", "check", "migrate", "payload_id"]

APPLICATION_ID: Final = 0x72656D74  # "remt"
"""Marks the file as a store of remit, also for `file` and the like."""

_FIRST: Final = (
    """
    create table remit_meta(
        name text primary key,
        value text not null
    ) without rowid
    """,
    """
    create table remit_worker(
        worker text primary key,  -- new for each opening of a store
        about text not null,      -- for people: process, host
        beat_at real not null     -- seconds on the monotonic clock, which the processes of a machine share
    ) without rowid
    """,
    """
    create table remit_run(
        run_id text primary key,
        spec_hash blob not null,
        parent text,
        root text not null,       -- of its tree; artifacts belong to trees
        status text not null,     -- ready running waiting ended
        owner text,
        worker text,
        epoch integer not null,
        next_seq integer not null,
        head blob not null,
        inbox_max integer not null,
        taken integer not null,
        created_at real not null,
        ended_at real
    ) without rowid
    """,
    "create index remit_run_parent on remit_run(parent) where parent is not null",
    "create index remit_run_root on remit_run(root)",
    """
    create table remit_row(
        run_id text not null,
        seq integer not null,
        epoch integer not null,
        kind text not null,
        digest blob not null,
        link blob not null,
        primary key(run_id, seq)
    ) without rowid
    """,
    """
    create table remit_payload(
        run_id text not null,
        seq integer not null,
        salt blob not null,
        body blob not null,
        unique(run_id, seq)
    )
    """,
    """
    create table remit_post(
        run_id text not null,
        id integer not null,
        kind text not null,
        body blob not null,
        primary key(run_id, id)
    ) without rowid
    """,
    """
    create table remit_proposal(
        pending_id text primary key,
        run_id text not null,
        kind text not null,
        token_hash blob unique,
        arguments_hash text not null,
        expires_at text not null,
        used integer not null
    ) without rowid
    """,
    "create index remit_proposal_run on remit_proposal(run_id)",
    """
    create table remit_artifact(
        digest text primary key,  -- hex SHA-256 of the data
        media_type text not null,
        size integer not null,
        data blob                 -- null: a file beside the database
    )
    """,
    """
    create table remit_holding(
        root text not null,
        digest text not null,
        primary key(root, digest)
    ) without rowid
    """,
    "create index remit_holding_digest on remit_holding(digest)",
)

_SECOND: Final = (
    "alter table remit_run add column remit text not null default ''",
    "alter table remit_run add column session text",
    "alter table remit_run add column session_at integer",  # its place among the runs of the session, from 0
    "alter table remit_run add column tags text not null default '{}'",
    "alter table remit_run add column reason text",  # why it ended
    "alter table remit_run add column erased_at real",
    """
    update remit_run set (remit, tags) = (
        select coalesce(json_extract(said, '$.remit'), ''), coalesce(json_extract(said, '$.tags'), '{}')
        from (select cast(body as text) as said from remit_payload p where p.run_id = remit_run.run_id and p.seq = 0)
    ) where exists (
        select 1 from remit_payload p
        where p.run_id = remit_run.run_id and p.seq = 0 and json_valid(cast(p.body as text))
    )
    """,  # one that is damaged is nobody's but its own run's
    """
    update remit_run set reason = (
        select iif(json_valid(said), json_extract(said, '$.reason'), null) from (
            select cast(p.body as text) as said from remit_row r join remit_payload p using(run_id, seq)
            where r.run_id = remit_run.run_id and r.kind = 'ended' order by r.seq desc limit 1
        )
    ) where status = 'ended'
    """,
    "create index remit_run_created on remit_run(created_at)",
    "create index remit_run_worker on remit_run(worker) where worker is not null",
    "create unique index remit_run_session on remit_run(session, session_at) where session is not null",
    """
    create table remit_grant(
        grant_id text primary key,
        remit text not null,
        tool text not null,
        arguments text not null,  -- JSON: what each argument must be
        run_id text,              -- null: any
        session text,             -- null: any
        expires_at text not null,
        by text not null,
        at text not null,
        revoked_at text
    ) without rowid
    """,
    "create index remit_grant_tool on remit_grant(remit, tool)",
)

_THIRD: Final = (
    # A payload is found by one number, and an artifact's holders in the tree of their keys: what has no index
    # beside it costs an append a page less.
    "alter table remit_run add column number integer",  # no other run's; those that are pruned give theirs back
    """
    update remit_run set number = ordered.place from (
        select run_id, row_number() over (order by created_at, run_id) as place from remit_run
    ) as ordered where ordered.run_id = remit_run.run_id
    """,
    "create unique index remit_run_number on remit_run(number)",
    "alter table remit_payload rename to remit_payload_2",
    """
    create table remit_payload(
        id integer primary key,   -- number of the run << 32 | seq
        salt blob not null,
        body blob not null,
        run integer as (id >> 32) virtual,
        seq integer as (id & 4294967295) virtual
    )
    """,
    """
    insert into remit_payload(id, salt, body)
        select r.number << 32 | p.seq, p.salt, p.body from remit_payload_2 p join remit_run r using(run_id)
        order by 1
    """,
    "drop table remit_payload_2",
    "alter table remit_holding rename to remit_holding_2",
    """
    create table remit_holding(
        root text not null,       -- first, as it was: a process that has the file open since before names no columns
        digest text not null,
        primary key(digest, root)
    ) without rowid
    """,
    "insert into remit_holding(digest, root) select digest, root from remit_holding_2 order by 1, 2",
    "drop table remit_holding_2",
)

_STEPS: Final[tuple[tuple[str, ...], ...]] = (_FIRST, _SECOND, _THIRD)
"""What leads from version 0 to 1, from 1 to 2, and so on."""

VERSION: Final = len(_STEPS)


def payload_id(number: int, seq: int) -> int:
    """Where the payload of a row stands: those of a run in their order, and beside each other."""
    return number << 32 | seq


def check(connection: sqlite3.Connection) -> int:
    """The schema version of a file; nothing is changed.

    Errors: `JournalError` for a file that is another program's or newer than this code.
    """
    # One statement, and so one view of the file: others may be making it a store at this very moment.
    found, application, has_tables = connection.execute(
        "select user_version, application_id, exists (select 1 from sqlite_schema)"
        " from pragma_user_version, pragma_application_id"
    ).fetchone()
    if application not in (0, APPLICATION_ID) or (not application and has_tables):
        raise JournalError("the file is a database, but no store of remit's: name another file")
    if found > VERSION:
        raise JournalError(
            f"the store has schema version {found}, and this remit knows {VERSION}: use a newer remit"
        )
    return found


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a file to `VERSION`, inside of a transaction of the caller's. Errors: as `check`."""
    found = check(connection)
    if found == VERSION:
        return
    for step in _STEPS[found:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.execute(f"pragma user_version = {VERSION}")
