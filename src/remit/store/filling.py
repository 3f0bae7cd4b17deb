"""Rows as they were applied: what they keep elsewhere is put back from the artifacts of their run.

Of an artifact only the block is made that its row shows, where the store reads it: a run may have kept more than
can be held at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from remit.artifacts import HANDLE_PREFIX, Artifact
from remit.errors import JournalError
from remit.messages import ResultContent
from remit.rows import Row, filled, kept_by
from remit.shown import Kept, restored_block
from remit.store.base import Journal

__all__ = ["fill", "fill_all"]

RowT = TypeVar("RowT", bound=Row)

_IN_A_TURN: Final = 500
"""Artifacts that are asked for at once: others read from the store as well."""


async def fill(store: Journal, run_id: str, row: RowT) -> RowT:
    """A row that was read. Errors: `JournalError` where an artifact is gone."""
    kept = kept_by(row)
    return filled(row, (await _blocks(store, run_id, kept)).__getitem__) if kept else row


async def fill_all(store: Journal, run_id: str, rows: Sequence[Row]) -> Sequence[Row]:
    """Rows that were read, in order; what they name is fetched in few turns. Errors: as `fill`."""
    kept = {at: kept for at, row in enumerate(rows) if (kept := kept_by(row))}
    if not kept:
        return rows
    wanted = [each for of_row in kept.values() for each in of_row]
    block_of = (await _blocks(store, run_id, wanted)).__getitem__
    made = list(rows)
    for at in kept:
        made[at] = filled(made[at], block_of)
    return made


async def _blocks(
    store: Journal, run_id: str, kept: Iterable[Kept]
) -> Mapping[Kept, ResultContent]:
    """What was shown of each of these."""
    wanted: dict[str, list[Kept]] = {}
    for each in kept:
        wanted.setdefault(each.artifact.removeprefix(HANDLE_PREFIX), []).append(each)
    blocks: dict[Kept, ResultContent] = {}

    def take(artifact: Artifact) -> None:
        for each in wanted[artifact.digest]:
            blocks[each] = restored_block(each, artifact)

    digests = list(wanted)
    for first in range(0, len(digests), _IN_A_TURN):
        asked = digests[first : first + _IN_A_TURN]
        taken = await store.artifacts(run_id, asked, take)
        if taken < len(asked):
            raise JournalError(
                f"run {run_id!r} names {HANDLE_PREFIX}{asked[taken]}, which its store does not hold"
            )
    return blocks
