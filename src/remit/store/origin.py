"""Where the artifacts of a transcript are kept, so that another store can have copies of them.

A transcript that comes with an outcome knows its origin; one that was loaded knows none, and its handles are good
only where its artifacts already are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from remit.artifacts import Artifact
from remit.errors import JournalError
from remit.log import LOGGER
from remit.store.base import Journal

__all__ = ["MOST_COPIED_BYTES", "Origin"]

MOST_COPIED_BYTES: Final = 64_000_000
"""What a run takes over from another store, in bytes; the newest come first."""


class Origin(msgspec.Struct, frozen=True):
    """A run and its store."""

    store: Journal
    run_id: str

    def is_in(self, store: Journal) -> bool:
        """Whether what is kept here is kept there: it is the same store, or the same file."""
        if self.store is store:
            return True
        place = _file_of(self.store)
        return place is not None and place == _file_of(store)

    async def fetch(self, digests: Sequence[str]) -> list[Artifact]:
        """What is kept under these digests, in their order, oldest first.

        Shape: without those that are gone, and without the oldest beyond `MOST_COPIED_BYTES`; a log record tells of
        what is left out. A store that fails is no reason not to go on from what was said.
        """
        found, room = list[Artifact](), MOST_COPIED_BYTES
        for digest in reversed(digests):
            try:
                artifact = await self.store.artifact(self.run_id, digest)
            except JournalError as error:
                LOGGER.warning("artifact %s of the history cannot be read: %s", digest[:12], error)
                continue
            if artifact is None:
                continue
            if len(artifact.data) > room:
                LOGGER.warning("the history names more than is copied: %s is left out", digest[:12])
                continue
            room -= len(artifact.data)
            found.append(artifact)
        return found[::-1]


def _file_of(store: Journal) -> Path | None:
    path = getattr(store, "path", None)
    return path.resolve() if isinstance(path, Path) else None
