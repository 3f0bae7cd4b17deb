"""Whether a worker of this store is alive: by its heartbeat, and at once where its process is gone.

A worker is one opening of a store by one process. It holds a lock on a file of its own for as long as it lives,
which the system releases when the process dies, however it dies. Liveness only decides when a run may be taken
over; that a stale writer writes nothing is kept by the epoch of its lease. Heartbeats are on the monotonic clock: no
step of the calendar's makes anybody look dead. One from before the machine was started anew may lie ahead of it, and
is that of a dead process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from remit.store.sqlite.place import private_folder

try:
    import fcntl
except ImportError:  # a system without such locks: the heartbeat alone decides
    fcntl = None

__all__ = ["Presence", "clear_away", "is_gone"]


class Presence:
    """The lock of a worker."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._path = _path(folder, worker)
        self._file: IO[bytes] | None = None

    def enter(self) -> None:
        """Take the lock. Errors: `OSError`."""
        private_folder(self._path.parent)
        self._file = self._path.open("ab")
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        """Give it back."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None


def is_gone(folder: Path, worker: str) -> bool:
    """Whether nobody holds the lock of this worker any more. False where that cannot be told."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(_path(folder, worker), os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return True


def clear_away(folder: Path, workers: Iterable[str]) -> None:
    """Remove the files of workers that are known to be gone."""
    for worker in workers:
        with contextlib.suppress(OSError):  # it is in nobody's way
            _path(folder, worker).unlink(missing_ok=True)


def _path(folder: Path, worker: str) -> Path:
    return folder / f"{worker}.lock"
