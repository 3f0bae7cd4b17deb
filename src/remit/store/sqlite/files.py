"""Artifacts that are too large for a row: files beside the database, named by their content.

A file is whole before the row that names it is written: a crash leaves a file that nobody names, never a name
without a file.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from remit.artifacts import Artifact
from remit.errors import JournalError
from remit.store.sqlite.place import PRIVATE_FILE, private_folder

__all__ = ["INLINE_BYTES", "Files", "folder_of"]

_DIGITS: Final = 64
INLINE_BYTES: Final = 1_000_000
"""Up to so many bytes an artifact is a row in the transaction of what names it."""


class Files:
    """The folder of large artifacts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def write(self, artifact: Artifact) -> None:
        """Keep it, durably. Errors: `OSError`."""
        path = self.path(artifact.digest)
        if path.exists():
            return
        private_folder(path.parent)
        made = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        try:
            with open(made, "xb", opener=_private) as file:
                file.write(artifact.data)
                file.flush()
                os.fsync(file.fileno())
            made.replace(path)
        except BaseException:  # cleaned up and raised again
            made.unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def read(self, digest: str) -> bytes:
        """Its data. Errors: `JournalError` where the file is gone or is another."""
        try:
            data = self.path(digest).read_bytes()
        except OSError as error:
            raise JournalError(f"artifact {digest[:12]} cannot be read: {error}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise JournalError(f"the file of artifact {digest[:12]} is damaged")
        return data

    def all(self) -> Iterator[str]:
        """The digests of those that are there."""
        for path in self._folder.glob("??/*"):
            if len(path.name) == _DIGITS:
                yield path.name

    def written_at(self, digest: str) -> float:
        """Seconds since 1970; infinite where it is not there."""
        try:
            return self.path(digest).stat().st_mtime
        except OSError:
            return float("inf")

    def copy(self, digest: str, to: Files) -> bool:
        """Keep one elsewhere, too. False where it is not there. Errors: `OSError`."""
        path = to.path(digest)
        private_folder(path.parent)
        try:
            shutil.copyfile(self.path(digest), path)
            path.chmod(PRIVATE_FILE)
        except FileNotFoundError:
            return False
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        return True

    def remove(self, digest: str) -> None:
        """Take it away, durably, if it is there. Errors: `OSError`."""
        path = self.path(digest)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            _sync(path.parent)

    def remove_parts(self, before: float) -> int:
        """Take away what was begun before a moment and never finished. Gives how many. Errors: `OSError`."""
        old = [each for each in self._folder.glob("??/*.part") if each.stat().st_mtime < before]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)


def folder_of(database: Path) -> Path:
    """What is kept beside a database."""
    return database.with_name(f"{database.name}.d")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


def _sync(folder: Path) -> None:
    """Make a new name in a folder durable, where the system knows how."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
