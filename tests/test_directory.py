"""Our stores tell what runs there are."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from calendar_rig import Calendar, pass_in_file
from remit import Limits, Remit, tool
from remit.store.directory import RunQuery
from remit.store.memory import MemoryStore
from remit.store.sqlite import SqliteStore
from remit.testing import CrashStore, DirectoryConformance, ScriptedModel, run_virtual
from remit.testing.conformance_directory import Listing

T = TypeVar("T")


class TestMemoryStore(DirectoryConformance):
    def make_store(self) -> Listing:
        self._now = Calendar()
        return MemoryStore(now=self._now)

    async def pass_time(self, store: Listing, seconds: float) -> None:
        del store
        self._now.move(seconds)

    def test_a_calendar_that_is_set_back_lists_a_run_where_its_time_is(self) -> None:
        """J5: the list is in the order of the times that it tells, in every store."""
        super().test_a_calendar_that_is_set_back_lists_a_run_where_its_time_is()


class TestCrashStoreThatDoesNotCrash(TestMemoryStore):
    def make_store(self) -> Listing:
        self._now = Calendar()
        return CrashStore(inner=MemoryStore(now=self._now))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_virtual(main)


class TestMemoryStoreWhoseCalendarStandsStill(TestMemoryStore):
    """The calendar of a store of somebody else may move where `pass_time` moves it, and nowhere else."""

    def make_store(self) -> Listing:
        self._at = datetime.now(UTC)
        return MemoryStore(now=lambda: self._at)

    async def pass_time(self, store: Listing, seconds: float) -> None:
        del store
        self._at += timedelta(seconds=seconds)


class TestSqliteStore(DirectoryConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self._store = SqliteStore(tmp_path / "runs.db")
        yield
        self._store.close()

    def make_store(self) -> Listing:
        return self._store

    async def pass_time(self, store: Listing, seconds: float) -> None:
        del store
        await pass_in_file(self._store, seconds)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_run_is_listed_under_what_it_was_started_with(kind: str, tmp_path: Path) -> None:
    """J5: a run that ends or waits is found by its remit, its tags and how it ended."""

    @tool(effect="confirm")
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "runs.db")
    desk = Remit(
        name="desk",
        model=ScriptedModel(["done", ("pay", {"amount": 7})]),
        tools=[pay],
        limits=Limits(steps=5, tokens=10_000, seconds=60),
        store=store,
    )

    async def main() -> None:
        done = await desk.run("one", tags={"team": "a"})
        waiting = await desk.run("two", tags={"team": "b"})
        [second, first] = await store.runs(RunQuery(remit="desk"), count=10)
        assert (first.run_id, first.status, first.reason) == (done.run_id, "ended", "completed")
        assert (second.run_id, second.status, second.reason) == (waiting.run_id, "waiting", None)
        assert await store.runs(RunQuery(tags={"team": "b"}), count=10) == [second]
        assert await store.runs(RunQuery(remit="shop"), count=10) == []
        await desk.cancel(waiting.run_id)
        [ended] = await store.runs(RunQuery(reasons=frozenset({"cancelled"})), count=10)
        assert ended.run_id == waiting.run_id

    asyncio.run(main())
    if isinstance(store, SqliteStore):
        store.close()
