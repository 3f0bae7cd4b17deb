"""Our stores forget what they are asked to forget, and the one in memory grows no more than that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from calendar_rig import Calendar, pass_in_file
from remit.artifacts import Artifact
from remit.store.base import Lease, NewRow, NewRun
from remit.store.memory import MemoryStore
from remit.store.sqlite import SqliteStore
from remit.testing import KeepingConformance
from remit.testing.conformance_keeping import Forgetful


class TestMemoryStore(KeepingConformance):
    def make_store(self) -> Forgetful:
        self._now = Calendar()
        return MemoryStore(now=self._now)

    async def pass_time(self, store: Forgetful, seconds: float) -> None:
        del store
        self._now.move(seconds)


class InFile(KeepingConformance):
    """A store in a file, of which every row and artifact is as it was written when a test is done with it."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self._store = SqliteStore(tmp_path / "runs.db")
        yield
        assert asyncio.run(self._store.check()) == []
        self._store.close()

    def make_store(self) -> Forgetful:
        return self._store

    async def pass_time(self, store: Forgetful, seconds: float) -> None:
        del store
        await pass_in_file(self._store, seconds)


class TestSqliteStore(InFile):
    """What the shared suite says; of these sentences it is promised."""

    def test_a_session_goes_whole_and_its_name_is_free(self) -> None:
        """J6: one of a session that has more is refused, with what would go with it."""
        super().test_a_session_goes_whole_and_its_name_is_free()

    def test_nothing_that_has_not_ended_is_pruned_nor_what_is_inside_of_it(self) -> None:
        """J7: waiting, interrupted and executed runs stay, whatever their age, and so does what is inside of them."""
        super().test_nothing_that_has_not_ended_is_pruned_nor_what_is_inside_of_it()

    def test_a_session_is_pruned_by_its_newest_run(self) -> None:
        """J7: a conversation that still goes on keeps its beginning."""
        super().test_a_session_is_pruned_by_its_newest_run()

    def test_trees_that_a_session_binds_together_are_pruned_together(self) -> None:
        """J7: a run of a session inside of another's tree goes with both of them, or stays."""
        super().test_trees_that_a_session_binds_together_are_pruned_together()


def test_what_was_granted_for_a_run_in_memory_ends_with_it() -> None:
    """J7, E9: the id of what was pruned is free, and nothing was granted for whoever takes it next."""
    TestMemoryStore().test_the_id_of_what_was_pruned_is_free()


def test_what_was_erased_or_pruned_in_memory_takes_none() -> None:
    """J6, J7: rows, posts, proposals, grants and artifacts are let go of, and the count of bytes knows it."""
    now = Calendar()
    store = MemoryStore(now=now, keep_ended_bytes=10_000)

    async def end(run_id: str, data: bytes) -> None:
        artifact = Artifact.of(data, "text/plain")
        opened = NewRow("opened", data)
        assert await store.create(NewRun(run_id, b"", opened, artifacts=(artifact,))) is True
        lease = await store.acquire(run_id, "me")
        assert isinstance(lease, Lease)
        await store.append(lease, [NewRow("x", data)], status="ended", reason="completed")
        await store.release(lease)

    async def main() -> None:
        for run_id in ("a", "b"):
            await end(run_id, run_id.encode() * 1_000)
        await store.erase(run_id="a")
        assert "aaaa" not in repr(store._runs)
        assert "bbbb" in repr(store._runs)
        now.move(10)
        await store.prune(timedelta(seconds=5))
        assert (store._ended_bytes, store._shelf.idle_bytes, len(store._shelf)) == (0, 0, 0)
        assert not store._runs
        # What is kept of those that ended is reckoned anew from here: three fit, and a fourth takes the oldest's room.
        for run_id in ("c", "d", "e", "f"):
            await end(run_id, run_id.encode() * 1_000)
        assert await store.info("c") is None
        assert await store.info("d") is not None

    asyncio.run(main())
