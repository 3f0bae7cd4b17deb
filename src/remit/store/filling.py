"""Rows as they were applied: what they keep elsewhere is put back from the artifacts of their run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from remit.artifacts import HANDLE_PREFIX, Artifact
from remit.errors import JournalError
from remit.rows import Row, filled, handles_in
from remit.store.base import Journal

__all__ = ["fill", "fill_all"]

RowT = TypeVar("RowT", bound=Row)

_AHEAD: Final = 500
"""Artifacts that are asked for at once; the store says how many of them it can give."""


async def fill(store: Journal, run_id: str, row: RowT) -> RowT:
    """A row that was read. Errors: `JournalError` where an artifact is gone."""
    handles = handles_in(row)
    return (
        filled(row, (await _found(store, run_id, handles, handles)).__getitem__) if handles else row
    )


async def fill_all(store: Journal, run_id: str, rows: Sequence[Row]) -> Sequence[Row]:
    """Rows that were read, in order; what they name is fetched in few turns. Errors: as `fill`."""
    ahead = [handle for row in rows for handle in handles_in(row)]
    if not ahead:
        return rows
    found: dict[str, Artifact] = {}
    made: list[Row] = []
    at = 0
    for row in rows:
        handles = handles_in(row)
        if handles:
            if not found.keys() >= set(handles):  # what was fetched before is let go of
                found = await _found(store, run_id, handles, ahead[at : at + _AHEAD])
            at += len(handles)
            row = filled(row, found.__getitem__)  # noqa: PLW2901 - the same row
        made.append(row)
    return made


async def _found(
    store: Journal, run_id: str, needed: Iterable[str], ahead: Iterable[str]
) -> dict[str, Artifact]:
    """What is needed and stands first of what is ahead, and more of that, by handle."""
    found: dict[str, Artifact] = {}
    digests = [handle.removeprefix(HANDLE_PREFIX) for handle in dict.fromkeys(ahead)]
    while not found.keys() >= set(needed):
        more = await store.artifacts(run_id, digests[len(found) :])
        if not more:
            raise JournalError(
                f"run {run_id!r} names {HANDLE_PREFIX}{digests[len(found)]}, which its store does not hold"
            )
        found |= {each.handle: each for each in more}
    return found
