"""The contract of `Directory`, one test for each sentence of it.

class TestMyStore(DirectoryConformance):
    def make_store(self) -> Store:
        return MyStore(...)
"""

# ruff: noqa: S101 - this is a test suite that happens to be shipped

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from remit.errors import JournalError
from remit.store.base import Journal, Lease, NewRow, NewRun, StoredRow
from remit.store.directory import Directory, RunEntry, RunQuery

__all__ = ["DirectoryConformance", "Listing"]

T = TypeVar("T")


class Listing(Journal, Directory, Protocol):
    """What is tested here."""


class DirectoryConformance:
    """Derive from it, override `make_store` and `pass_time`, and name the class so that pytest finds it."""

    def make_store(self) -> Listing:
        """An empty store."""
        raise NotImplementedError("override make_store(): it gives an empty store of yours")

    async def pass_time(self, store: Listing, seconds: float) -> None:
        """Have so many seconds pass by the calendar of the store, or everything in it be that much older.

        Fewer than none: the calendar is set back.
        """
        raise NotImplementedError("override pass_time(): it moves the calendar of the store on")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """How a test is run. Override with `run_virtual` for a store without threads."""
        return asyncio.run(main)

    def test_a_store_without_runs_lists_none(self) -> None:
        async def main() -> None:
            assert await self.make_store().runs(RunQuery(), count=10) == []

        self.run(main())

    def test_runs_are_listed_the_newest_first_and_no_more_than_asked_for(self) -> None:
        async def main() -> None:
            store = self.make_store()
            for name in "abcd":
                await _create(store, name)
            assert await _listed(store) == list("dcba")
            assert await _listed(store, count=2) == list("dc")
            assert await _listed(store, count=2, before="c") == list("ba")
            assert await _listed(store, before="a") == []
            assert await _listed(store, before="unknown") == []

        self.run(main())

    def test_a_calendar_that_is_set_back_lists_a_run_where_its_time_is(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _create(store, "a")
            await self.pass_time(store, 1)  # a calendar of a test may stand still by itself
            await _create(store, "b")
            await self.pass_time(store, -3_600)
            await _create(store, "c")
            assert await _listed(store) == list("bac")
            assert await _listed(store, count=1, before="b") == ["a"]
            assert await _listed(store, before="a") == ["c"]
            (b, _, c) = await store.runs(RunQuery(), count=9)
            assert await _listed(store, since=b.created_at) == ["b"]
            assert c.created_at < b.created_at

        self.run(main())

    def test_a_name_that_no_store_can_hold_is_the_name_of_nothing(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _create(store, "r", remit="desk", session="s", tags={"k": "v"})
            for half in ("\ud800", "r\udc00"):
                queries: list[dict[str, Any]] = [
                    {"remit": half},
                    {"session": half},
                    {"parent": half},
                    {"prefix": half},
                    {"before": half},
                    {"tags": {"k": half}},
                    {"tags": {half: "v"}},
                    {"reasons": frozenset({half})},
                ]
                for query in queries:
                    assert await _listed(store, **query) == [], query
                try:
                    came = str([row async for row in store.watch(half)])
                except JournalError as error:
                    came = str(error)
                assert "there is no run" in came

        self.run(main())

    def test_an_entry_says_what_is_known_of_a_run(self) -> None:
        async def main() -> None:
            store = self.make_store()
            begun = datetime.now(UTC) - timedelta(seconds=1)
            await _create(store, "r", remit="desk", session="s", tags={"team": "a", "x": ""})
            await _create(store, "child", parent="r")
            entry = await _entry(store, "r")
            assert begun < entry.created_at < datetime.now(UTC) + timedelta(seconds=1)
            assert entry == RunEntry(
                run_id="r",
                remit="desk",
                status="ready",
                reason=None,
                parent=None,
                session="s",
                tags={"team": "a", "x": ""},
                owner=None,
                rows=1,
                created_at=entry.created_at,
                ended_at=None,
                erased_at=None,
            )
            lease = await _lease(store, "r")
            assert (await _entry(store, "r")).owner == "me"
            await store.append(lease, [NewRow("x", b"{}")], status="ended", reason="deadline")
            await store.release(lease)
            ended = await _entry(store, "r")
            assert (ended.status, ended.reason, ended.rows) == ("ended", "deadline", 2)
            assert ended.ended_at is not None
            assert ended.ended_at >= ended.created_at
            assert (await _entry(store, "child")).parent == "r"

        self.run(main())

    def test_a_run_that_goes_on_has_no_reason_any_more(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _create(store, "r")
            lease = await _lease(store, "r")
            await store.append(lease, [NewRow("x", b"{}")], status="ended", reason="deadline")
            await store.append(lease, [NewRow("x", b"{}")])
            entry = await _entry(store, "r")
            assert (entry.status, entry.reason, entry.ended_at) == ("running", None, None)

        self.run(main())

    def test_a_query_takes_only_what_fits_all_of_it(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _create(store, "a1", remit="desk", session="s", tags={"k": "1"})
            await _create(store, "a2", remit="desk", tags={"k": "2", "l": "%_"})
            await _create(store, "b1", remit="shop", parent="a1")
            lease = await _lease(store, "a2")
            await store.append(lease, [NewRow("x", b"{}")], status="ended", reason="completed")
            await store.release(lease)

            async def found(**query: Any) -> list[str]:
                return await _listed(store, **query)

            assert await found(remit="desk") == ["a2", "a1"]
            assert await found(remit="desk", session="s") == ["a1"]
            assert await found(session="t") == []
            assert await found(tags={"k": "1"}) == ["a1"]
            assert await found(tags={"k": "2", "l": "%_"}) == ["a2"]
            assert await found(tags={"k": "2", "l": "%"}) == []
            assert await found(tags={"m": ""}) == []
            assert await found(roots=True) == ["a2", "a1"]
            assert await found(parent="a1") == ["b1"]
            assert await found(prefix="a") == ["a2", "a1"]
            assert await found(prefix="A") == []
            assert await found(prefix="%") == []
            assert await found(statuses=frozenset({"ended"})) == ["a2"]
            assert await found(statuses=frozenset({"ended", "ready"})) == ["b1", "a2", "a1"]
            assert await found(reasons=frozenset({"completed"})) == ["a2"]
            assert await found(reasons=frozenset({"deadline"})) == []
            middle = (await _entry(store, "a2")).created_at
            assert "a2" in await found(since=middle)
            assert "a2" not in await found(until=middle)
            assert await found(since=datetime.now(UTC) + timedelta(hours=1)) == []

        self.run(main())

    def test_a_hostile_name_is_only_a_name(self) -> None:
        async def main() -> None:
            store = self.make_store()
            name = "'; drop table remit_run; --\n\N{SNOWMAN}\""
            await _create(store, name, remit=name, session=name, tags={name: name})
            entry = await _entry(store, name)
            assert (entry.remit, entry.session, entry.tags) == (name, name, {name: name})
            assert await _listed(store, remit=name, session=name, tags={name: name}) == [name]

        self.run(main())

    def test_watching_gives_every_row_in_order_and_ends_with_the_run(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _create(store, "r")

            async def watch() -> list[StoredRow]:
                return [row async for row in store.watch("r")]

            watching = asyncio.ensure_future(watch())
            lease = await _lease(store, "r")
            for number in range(5):
                await store.append(lease, [NewRow("x", b"%d" % number), NewRow("y", b"")])
                await asyncio.sleep(0)
            assert not watching.done()
            await store.append(lease, [NewRow("end", b"")], status="ended", reason="completed")
            await store.release(lease)
            seen = await asyncio.wait_for(watching, 20)
            assert seen == await store.read("r")
            assert [row async for row in store.watch("r", 9)] == seen[10:]

        self.run(main())

    def test_watching_ends_where_the_run_waits(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _create(store, "r")
            lease = await _lease(store, "r")
            await store.append(lease, [NewRow("x", b"")], status="waiting")
            assert [row.seq async for row in store.watch("r")] == [0, 1]

        self.run(main())

    def test_an_unknown_run_cannot_be_watched(self) -> None:
        async def main() -> None:
            store = self.make_store()
            try:
                rows = [row async for row in store.watch("r")]
            except JournalError:
                return
            raise AssertionError(rows)

        self.run(main())


async def _create(
    store: Listing,
    run_id: str,
    *,
    remit: str = "",
    session: str | None = None,
    parent: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    assert await store.create(
        NewRun(
            run_id,
            b"spec",
            NewRow("opened", b"{}"),
            parent,
            remit=remit,
            session=session,
            tags=tags or {},
        )
    )


async def _lease(store: Listing, run_id: str) -> Lease:
    lease = await store.acquire(run_id, "me")
    assert isinstance(lease, Lease)
    return lease


async def _entry(store: Listing, run_id: str) -> RunEntry:
    entries = await store.runs(RunQuery(prefix=run_id), count=100)
    return next(entry for entry in entries if entry.run_id == run_id)


async def _listed(store: Listing, *, count: int = 100, **query: Any) -> list[str]:
    return [entry.run_id for entry in await store.runs(RunQuery(**query), count=count)]
