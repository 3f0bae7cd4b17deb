"""A copy of a store that is in use: one moment of it, with the files beside it.

SQLite's own way to copy, page by page, on a connection that keeps looking at one moment: nobody who writes waits, and
nothing begins anew when somebody does. The copy has its name once it is whole.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from remit.errors import ConfigurationError, JournalError
from remit.store.keeping import Copied
from remit.store.sqlite.checking import reading
from remit.store.sqlite.files import Files, folder_of
from remit.store.sqlite.place import check_file_name
from remit.store.sqlite.schema import check

__all__ = ["copy"]

_STEP_PAGES: Final = 1_000


def copy(path: Path, files: Files, to: Path) -> Copied:
    """Copy a store. Errors: `ConfigurationError` where something is there already; `JournalError`."""
    check_file_name(to)
    made = to.with_name(f"{to.name}.part")
    beside = folder_of(to)
    for each in (to, made, beside):
        if each.exists():
            raise ConfigurationError(f"{each} is there already: a backup goes where nothing is")
    if not to.parent.is_dir():
        raise ConfigurationError(f"{to.parent} is no folder")
    try:
        with reading(path) as source:
            check(source)
            copied = _copy(source, files, made, Files(beside / "artifacts"))
        made.replace(to)
    except BaseException as error:  # cleaned up and raised again
        for each in (made, made.with_name(f"{made.name}-wal"), made.with_name(f"{made.name}-shm")):
            each.unlink(missing_ok=True)
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, (sqlite3.Error, OSError)):
            raise JournalError(f"the store could not be copied: {error}") from error
        raise
    return copied


def _copy(source: sqlite3.Connection, files: Files, made: Path, beside: Files) -> Copied:
    source.execute("begin")
    # A first read fixes the moment. While it is held, commits of others do not set the copy back.
    (runs,) = source.execute("select count(*) from remit_run").fetchone()
    with contextlib.closing(sqlite3.connect(made, isolation_level=None)) as target:
        made.chmod(0o600)
        source.backup(target, pages=_STEP_PAGES)
    named = source.execute("select digest, size from remit_artifact where data is null").fetchall()
    source.execute("rollback")
    size = made.stat().st_size
    for digest, length in named:
        if not files.copy(digest, beside):
            raise JournalError(
                f"artifact {digest[:12]} is missing: it was erased a moment ago, and then another try comes "
                "through; or the store is damaged (remit store check)"
            )
        size += length
    return Copied(runs=runs, artifact_files=len(named), bytes=size)
