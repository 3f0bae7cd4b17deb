"""The calendar of stores under test: it can be moved on, and set back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from remit.store.sqlite import SqliteStore

__all__ = ["Calendar", "pass_in_file"]


class Calendar:
    """The time of day, as far from the real one as it was moved."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def move(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)


async def pass_in_file(store: SqliteStore, seconds: float) -> None:
    """Make everything in a store in a file so much older."""
    await store._do(
        lambda c: c.execute(
            "update remit_run set created_at = created_at - ?, ended_at = ended_at - ?,"
            " erased_at = erased_at - ?",
            (seconds, seconds, seconds),
        )
    )
