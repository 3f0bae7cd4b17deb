"""Artifacts as runs get at them: a row of the file, or the file beside it where they are large."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence

from remit.artifacts import Artifact
from remit.canonical import json_text
from remit.store.sqlite.files import Files
from remit.store.sqlite.names import sought_all

__all__ = ["artifact", "artifacts"]


def artifact(
    connection: sqlite3.Connection, files: Files, run_id: str, digest: str
) -> Artifact | None:
    """The artifact of this digest, or of one that begins so, if a tree of runs holds it; None where none does, or two."""
    whole = len(digest) == 64
    if not whole and len(digest) < 12:
        return None
    found = connection.execute(
        "select a.digest, a.media_type, a.data from remit_run r"
        " join remit_holding h on h.root = r.root join remit_artifact a using(digest)"
        " where r.run_id = ? and h.digest >= ? and h.digest <= ? limit 2",
        sought_all((run_id, digest, digest + ("" if whole else "g"))),
    ).fetchall()
    if len(found) != 1:
        return None
    ((named, media_type, data),) = found
    return _kept(files, named, media_type, data)


def artifacts(
    connection: sqlite3.Connection,
    files: Files,
    run_id: str,
    digests: Sequence[str],
    take: Callable[[Artifact], object],
) -> int:
    """Give these artifacts one by one, up to the first that is not held. Returns how many were given."""
    taken = 0
    # One statement, in the order in which they were asked for: the first that is another one shows what is not there.
    rows = connection.execute(
        "select a.digest, a.media_type, a.data from json_each(?) d cross join remit_run r"
        " cross join remit_holding h on h.root = r.root and h.digest = d.value"
        " cross join remit_artifact a on a.digest = h.digest where r.run_id = ?",
        sought_all((json_text(list(digests)), run_id)),
    )
    with contextlib.closing(rows):
        for named, media_type, data in rows:
            if named != digests[taken]:
                break
            take(_kept(files, named, media_type, data))
            taken += 1
    return taken


def _kept(files: Files, digest: str, media_type: str, data: bytes | None) -> Artifact:
    """An artifact as its row has it, or the file beside."""
    return Artifact(f"artifact:{digest}", media_type, files.read(digest) if data is None else data)
