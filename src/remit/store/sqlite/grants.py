"""Standing grants in SQLite, as plain functions of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from remit.store.grants import Grant, arguments_from_json, arguments_to_json
from remit.store.sqlite.names import sought

__all__ = ["add", "of", "revoke"]


def add(connection: sqlite3.Connection, grant: Grant) -> None:
    """Keep a new one."""
    connection.execute(
        "insert into remit_grant values (?, ?, ?, ?, ?, ?, ?, ?, ?, null)",
        (
            grant.id,
            grant.remit,
            grant.tool,
            arguments_to_json(grant.arguments),
            grant.run_id,
            grant.session,
            grant.expires_at.isoformat(),
            grant.by,
            grant.at.isoformat(),
        ),
    )


def of(connection: sqlite3.Connection, remit: str, tool: str | None) -> Sequence[Grant]:
    """Those of a remit that nobody has revoked."""
    found = connection.execute(
        "select grant_id, remit, tool, arguments, run_id, session, expires_at, by, at from remit_grant"
        " where remit = :remit and (:tool is null or tool = :tool) and revoked_at is null order by at, grant_id",
        {"remit": sought(remit), "tool": tool},
    )
    return [
        Grant(
            id=grant_id,
            remit=of_remit,
            tool=of_tool,
            arguments=arguments_from_json(arguments),
            run_id=run_id,
            session=session,
            expires_at=datetime.fromisoformat(expires_at),
            by=by,
            at=datetime.fromisoformat(at),
        )
        for grant_id, of_remit, of_tool, arguments, run_id, session, expires_at, by, at in found
    ]


def revoke(connection: sqlite3.Connection, grant_id: str, at: datetime) -> bool:
    """No call is covered by it any more."""
    done = connection.execute(
        "update remit_grant set revoked_at = ? where grant_id = ? and revoked_at is null",
        (at.isoformat(), sought(grant_id)),
    )
    return done.rowcount == 1
