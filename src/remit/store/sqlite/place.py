"""Where a store stands in the file system, and what its surroundings do to it.

What is acknowledged has to be in the file that has the name: after every commit it is looked at whether that is
still so. SQLite itself goes on in a file that was deleted, and a write-ahead log that was deleted under it takes
along what it holds. What this makes is readable by its owner alone: transcripts are private.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import Counter
from pathlib import Path
from typing import Final, TypeAlias

from remit.errors import ConfigurationError, JournalError

__all__ = ["PRIVATE_FILE", "PRIVATE_FOLDER", "Place", "check_file_name", "private_folder"]

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700

_Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

_HINTS: Final = {
    sqlite3.SQLITE_FULL: "make room on the disk; the run can be resumed",
    sqlite3.SQLITE_READONLY: "the file, or the folder that it is in, may not be written by this user",
    sqlite3.SQLITE_CANTOPEN: "the file, or its folder, is gone or may not be opened by this user",
    sqlite3.SQLITE_BUSY: "another process holds it; what locks a store for long is no process of remit's",
    sqlite3.SQLITE_CORRUPT: "restore it from a backup",
    sqlite3.SQLITE_NOTADB: "name another file",
    sqlite3.SQLITE_IOERR: "the disk is full, over a limit, or fails",
}

_lock = threading.Lock()
_opened: dict[_Identity, Counter[int]] = {}
"""Which files are open, and by which process: one that is forked off finds those of its parent here."""


class Place:
    """The file of a store, by whatever name it is called."""

    def __init__(self, path: Path) -> None:
        """Errors: `ConfigurationError` for what can be the name of no file."""
        check_file_name(path)
        # Links are followed once: all names of a file lead to the same folder beside it.
        self.path = Path(os.path.realpath(path))
        self.beside = self.path.with_name(f"{self.path.name}.d")
        """The folder of what belongs to it."""
        self._file_name, self._log_name = str(self.path), f"{self.path}-wal"
        self._made_beside = False
        self._file_is: _Identity | None = None
        self._log_is: _Identity | None = None

    def make(self) -> None:
        """See to it that there is a file, and take it for this process. Errors: `OSError`, `JournalError`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_FILE))
        self._made_beside = not self.beside.is_dir()
        private_folder(self.beside)
        self._take()

    def unmake(self, *folders: Path) -> None:
        """The file is somebody else's: leave no folders of ours beside it, as far as they are empty and new."""
        for folder in (*folders, self.beside) if self._made_beside else ():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def leave(self) -> None:
        """This process has closed it."""
        with _lock:
            users = None if self._file_is is None else _opened.get(self._file_is)
            if users is None or self._file_is is None:
                return
            users[os.getpid()] -= 1
            if not +users:
                del _opened[self._file_is]

    def remember(self) -> None:
        """The log is there: from here on it is this one. Errors: `OSError`."""
        self._log_is = _identity(self._log_name)

    def check(self) -> None:
        """Whether what was just committed is in the file of that name. Errors: `JournalError`."""
        for path, known in ((self._file_name, self._file_is), (self._log_name, self._log_is)):
            try:
                found = _identity(path)
            except OSError as error:
                raise JournalError(
                    f"{path} was deleted or moved while the store was open ({error.strerror}): what is written "
                    "now would be lost. Put it back and start again"
                ) from error
            if found != known:
                raise JournalError(
                    f"{path} was replaced while the store was open: what is written now would be lost"
                )

    def typed(self, error: Exception) -> JournalError:
        """What happened to the store, and what to do about it."""
        if isinstance(error, JournalError):
            return error
        code = getattr(error, "sqlite_errorcode", None)
        hint = _HINTS.get(code & 0xFF) if isinstance(code, int) else None
        told = f"the store {self.path} failed: {error}"
        return JournalError(told if hint is None else f"{told} ({hint})")

    def _take(self) -> None:
        with _lock:
            found = _identity(self._file_name)
            users = _opened.setdefault(found, Counter())
            if any(process != os.getpid() for process in +users):
                raise JournalError(
                    f"the store {self.path} was open when this process was forked off: SQLite's locks do not outlive "
                    "that, and what is written here could be lost. Close it before you fork, or start processes anew "
                    '(multiprocessing: "spawn")'
                )
            users[os.getpid()] += 1
            self._file_is = found


def check_file_name(path: Path) -> None:
    """Errors: `ConfigurationError` for what can be the name of no file."""
    if not path.name or "\0" in str(path):
        raise ConfigurationError(f"{str(path)!r} names no file: give a path such as remit.db")


def private_folder(folder: Path) -> None:
    """Make a folder that its owner alone may look into, if it is not there. Errors: `OSError`."""
    if not folder.is_dir():
        private_folder(folder.parent)  # `mkdir` itself makes the folders above as the umask has it
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)


def _identity(path: str) -> _Identity:
    found = os.stat(path)  # noqa: PTH116 - after every commit; a `Path` makes it twice as slow
    return found.st_dev, found.st_ino
