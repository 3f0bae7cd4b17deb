"""Artifacts that are too large for a row: files beside the database, named by their content.

A file is whole before the row that names it is written: a crash leaves a file that nobody names, never a name
without a file.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Final

from remit.artifacts import Artifact
from remit.errors import JournalError

__all__ = ["INLINE_BYTES", "Files"]

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
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        try:
            with made.open("xb") as file:
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


def _sync(folder: Path) -> None:
    """Make a new name in a folder durable, where the system knows how."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
