"""Ids for a shell that completes a word: of runs, and of what they wait for, the newest first.

A shell asks at every key, so this loads no more than it needs, waits for nobody, makes no store and says nothing of what goes wrong:
then there is nothing to offer. An id that a shell would have to quote is not offered either: whoever wrote it into a
store is to start nothing by a completion.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from remit.cli.locations import location_here
from remit.errors import RemitError

__all__ = ["KINDS", "offered"]

_RUNS: Final = (
    "select run_id, status, remit from remit_run where parent is null and erased_at is null and {}"
    " and substr(run_id, 1, length(:beginning)) = :beginning order by created_at desc limit 50"
)
_PENDINGS: Final = (
    "select pending_id, kind, p.run_id from remit_proposal p join remit_run r on r.run_id = p.run_id"
    " where not used and status <> 'ended' and {} and substr(pending_id, 1, length(:beginning)) = :beginning"
    " order by expires_at desc limit 50"
)
KINDS: Final = {
    "runs": _RUNS.format("true"),
    "open": _RUNS.format("status <> 'ended'"),
    "approvals": _PENDINGS.format("kind = 'approval'"),
    "questions": _PENDINGS.format("kind <> 'approval'"),
}
"""What can be asked for, and how it is found."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.@+ -]")
_BUSY_SECONDS: Final = 0.1


def offered(kind: str, beginning: str = "", store: str = "") -> list[str]:
    """Ids that begin so, each with a tab and what it is; `store` is that of `--store`, empty without one."""
    try:
        path = location_here(store or None).path
        return [] if path is None else list(_found(path, KINDS[kind], beginning))
    except (RemitError, sqlite3.Error, OSError, ValueError, LookupError):
        return []


def _found(path: Path, query: str, beginning: str) -> Iterator[str]:
    """Errors: `sqlite3.Error`, `OSError`."""
    log = path.with_name(f"{path.name}-wal")
    # Without a log nobody writes: then nothing is made beside the file, not even to share it.
    how = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?{how}"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as connection:
        for named, *about in connection.execute(query, {"beginning": beginning}):
            if isinstance(named, str) and _PLAIN.fullmatch(named):
                yield f"{named}\t{_UNUSUAL.sub('?', ' '.join(map(str, about)))[:60]}"
