"""A run's rows as they come, from whichever process: what `Directory.watch` is, over any journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from remit.errors import JournalError
from remit.store.base import Journal, StoredRow

__all__ = ["watched"]

_SHORTEST_SECONDS: Final = 0.05
_LONGEST_SECONDS: Final = 0.5
"""Between two looks, growing while nothing comes."""
_AT_REST: Final = frozenset({"ended", "waiting"})


async def watched(journal: Journal, run_id: str, after: int = -1) -> AsyncIterator[StoredRow]:
    """The rows behind `after`, until the run has ended or waits. Errors: `JournalError` for an unknown run."""
    pause = _SHORTEST_SECONDS
    while True:
        info = await journal.info(run_id)
        if info is None:
            raise JournalError(f"there is no run {run_id!r} in this store")
        if info.rows > after + 1:
            for row in await journal.read(run_id, after):
                yield row
                after = row.seq
            pause = _SHORTEST_SECONDS
        elif info.status in _AT_REST:
            return
        else:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)
