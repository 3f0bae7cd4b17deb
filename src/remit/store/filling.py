"""Rows as they were applied: what they keep elsewhere is put back from the artifacts of their run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from remit.artifacts import HANDLE_PREFIX, Artifact
from remit.errors import JournalError
from remit.rows import Row, filled, handles_in
from remit.store.base import Journal

__all__ = ["artifacts_of", "fill"]

RowT = TypeVar("RowT", bound=Row)


async def fill(store: Journal, run_id: str, row: RowT) -> RowT:
    """A row that was read. Errors: `JournalError` where an artifact is gone."""
    found = await artifacts_of(store, run_id, handles_in(row))
    return filled(row, found.__getitem__) if found else row


async def artifacts_of(store: Journal, run_id: str, handles: Iterable[str]) -> dict[str, Artifact]:
    """The artifacts of a run, by handle. Errors: `JournalError` where one is gone."""
    found: dict[str, Artifact] = {}
    for handle in handles:
        if handle not in found:
            artifact = await store.artifact(run_id, handle.removeprefix(HANDLE_PREFIX))
            if artifact is None:
                raise JournalError(f"run {run_id!r} names {handle}, which its store does not hold")
            found[handle] = artifact
    return found
