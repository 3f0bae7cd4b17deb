"""The contract of `Keeping`, one test for each sentence of it.

class TestMyStore(KeepingConformance):
    def make_store(self) -> Forgetful:
        return MyStore(...)

    async def pass_time(self, store: Forgetful, seconds: float) -> None:
        my_clock.advance(seconds)
"""

# ruff: noqa: S101 - this is a test suite that happens to be shipped

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from remit.artifacts import Artifact
from remit.errors import (
    ConfigurationError,
    DecisionError,
    Fenced,
    JournalError,
    RemitError,
    RunBusy,
)
from remit.store.base import Journal, Lease, NewProposal, NewRow, NewRun, Predecessor, RunStatus
from remit.store.directory import Directory, RunEntry, RunQuery
from remit.store.grants import Grant, Grants
from remit.store.keeping import Keeping
from remit.store.proposals import Proposals

__all__ = ["Forgetful", "KeepingConformance"]

T = TypeVar("T")

_DAY = 86_400.0
_LATER = datetime(2100, 1, 1, tzinfo=UTC)


class Forgetful(Journal, Directory, Grants, Proposals, Keeping, Protocol):
    """What is tested here."""


class KeepingConformance:
    """Derive from it, override `make_store` and `pass_time`, and name the class so that pytest finds it."""

    def make_store(self) -> Forgetful:
        """An empty store."""
        raise NotImplementedError("override make_store(): it gives an empty store of yours")

    async def pass_time(self, store: Forgetful, seconds: float) -> None:
        """Have so many seconds pass by the calendar of the store, or everything in it be that much older."""
        raise NotImplementedError("override pass_time(): it moves the calendar of the store on")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """How a test is run. Override with `run_virtual` for a store without threads."""
        return asyncio.run(main)

    # Erasing

    def test_a_tombstone_says_that_something_was_and_no_more(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r", tags={"who": "somebody"}, session="s", remit="desk")
            before = await _entry(store, "r")
            erased = await store.erase(session="s")
            assert (erased.runs, erased.ended, erased.complete) == (1, (), True)
            entry = await _entry(store, "r")
            assert (entry.run_id, entry.remit, entry.status) == ("r", "desk", "ended")
            assert (entry.reason, entry.rows) == ("completed", before.rows)
            assert (entry.created_at, entry.ended_at) == (before.created_at, before.ended_at)
            assert (entry.tags, entry.session, entry.owner) == ({}, None, None)
            assert entry.erased_at is not None
            info = await store.info("r")
            assert info is not None
            assert (info.erased, info.rows, info.spec_hash) == (True, before.rows, b"")
            assert not info.unread

        self.run(main())

    def test_nobody_goes_on_from_a_tombstone(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r")
            assert await store.post("r", "input", b"unheard")
            await store.erase(run_id="r")
            for attempt in (store.read("r"), store.acquire("r", "me"), _watched(store, "r")):
                await _refused(attempt, JournalError)
            assert not await store.post("r", "input", b"late")
            assert list(await store.inbox("r")) == []
            assert await _create(store, "r") is False, "the id stays taken"

        self.run(main())

    def test_erasing_again_changes_nothing(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r")
            await store.erase(run_id="r")
            before = await _entry(store, "r")
            again = await store.erase(run_id="r")
            assert (again.runs, again.artifacts, again.ended) == (0, 0, ())
            assert await _entry(store, "r") == before

        self.run(main())

    def test_a_run_that_somebody_executes_is_refused_and_left_as_it_was(self) -> None:
        async def main() -> None:
            store = self.make_store()
            lease = await _begin(store, "r")
            await _refused(store.erase(run_id="r"), RunBusy)
            await store.append(lease, [NewRow("x", b"more")])
            assert [row.body for row in await store.read("r")] == [b"{}", b"more"]
            await store.release(lease)
            assert (await store.erase(run_id="r")).ended == ("r",)
            await _refused(store.append(lease, [NewRow("x", b"late")]), Fenced)

        self.run(main())

    def test_a_run_that_waits_is_ended_and_its_proposals_are_unknown(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r", status="waiting", proposals=(_proposal("p"),))
            assert (await store.erase(run_id="r")).ended == ("r",)
            entry = await _entry(store, "r")
            assert (entry.status, entry.reason) == ("ended", "cancelled")
            assert entry.ended_at is not None
            now = datetime.now(UTC)
            for attempt in (
                store.decide(pending_id="p", decision=b"{}", now=now),
                store.decide(token_hash=b"token p", decision=b"{}", now=now),
                store.renew("p", b"another"),
            ):
                refused = await _refused(attempt, DecisionError)
                assert isinstance(refused, DecisionError)
                assert refused.why == "unknown"
            assert await store.proposal("p") is None
            assert not await store.withdraw("p")
            assert list(await store.open_proposals(count=9)) == []

        self.run(main())

    def test_a_run_inside_another_goes_with_it_and_not_alone(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r")
            await _end(store, "r:key/inner.0a1b", parent="r")
            await _end(store, "r:key/inner.0a1b:key/x.2c", parent="r:key/inner.0a1b")
            await _end(store, "other")
            refused = await _refused(store.erase(run_id="r:key/inner.0a1b"), ConfigurationError)
            assert "'r'" in str(refused)
            assert not [each for each in await _entries(store) if each.erased_at]
            assert (await store.erase(run_id="r")).runs == 3
            entries = {each.run_id: each for each in await _entries(store)}
            standing = [each.run_id for each in entries.values() if each.erased_at is None]
            assert standing == ["other"]
            assert not [name for name in entries if "inner" in name or "x.2c" in name], (
                "ids of runs inside are made of digests of what was asked"
            )
            (child,) = [each for each in entries.values() if each.parent == "r"]
            (grandchild,) = [each for each in entries.values() if each.parent == child.run_id]
            assert grandchild.rows == 2

        self.run(main())

    def test_a_session_goes_whole_and_its_name_is_free(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "s0", session="s")
            await _end(store, "s1", session="s", after=Predecessor("s0", 2))
            await _end(store, "t0", session="t")
            for run_id in ("s0", "s1"):
                refused = await _refused(store.erase(run_id=run_id), ConfigurationError)
                assert "whole session" in str(refused)
            assert (await store.erase(session="s")).runs == 2
            assert list(await store.runs(RunQuery(session="s"), count=9)) == []
            assert await _create(store, "new", session="s") is True
            follows = await _create(store, "t1", session="t", after=Predecessor("t0", 2))
            assert follows is True

        self.run(main())

    def test_a_run_and_a_session_that_bind_each_other_are_erased_together(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "s0", session="s")
            await _end(store, "tree")
            await _end(store, "tree/in", parent="tree", session="s", after=Predecessor("s0", 2))
            for part in ({"run_id": "tree"}, {"session": "s"}, {"run_id": "s0"}):
                await _refused(store.erase(**part), ConfigurationError)
            assert not [each for each in await _entries(store) if each.erased_at]
            assert (await store.erase(run_id="tree", session="s")).runs == 3

        self.run(main())

    def test_what_is_unknown_or_not_named_is_refused(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r", session="s")
            nobody: list[dict[str, str]] = [{"run_id": "nobody"}, {"session": "nobody"}, {}]
            for wrong in (*nobody, {"run_id": "nobody", "session": "s"}):
                await _refused(store.erase(**wrong), ConfigurationError)
            assert (await _entry(store, "r")).erased_at is None

        self.run(main())

    def test_an_artifact_goes_with_the_last_run_that_holds_it(self) -> None:
        async def main() -> None:
            store = self.make_store()
            small, large = (Artifact.of(b"x" * n, "text/plain") for n in (100, 1_200_000))
            await _end(store, "one", artifacts=(small, large))
            await _end(store, "two", brought=(small.digest, large.digest))
            assert (await store.erase(run_id="one")).artifacts == 0
            assert await store.artifact("two", large.digest) == large
            assert await store.artifact("one", small.digest) is None
            assert (await store.erase(run_id="two")).artifacts == 2
            await _end(store, "three", artifacts=(large,))
            assert await store.artifact("three", large.digest) == large
            assert await store.artifact("three", small.digest) is None

        self.run(main())

    def test_grants_of_a_run_and_of_a_session_go_with_it(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r")
            await _end(store, "s0", session="s")
            for name, scope in (
                ("of r", {"run_id": "r"}),
                ("of s", {"session": "s"}),
                ("of t", {"session": "t"}),
                ("of all", {}),
            ):
                await store.add_grant(_grant(name, **scope))
            await store.erase(run_id="r")
            assert [each.id for each in await store.grants("desk")] == ["of s", "of t", "of all"]
            await store.erase(session="s")
            assert [each.id for each in await store.grants("desk")] == ["of t", "of all"]

        self.run(main())

    # Pruning

    def test_what_ended_long_ago_is_pruned_in_whole_trees(self) -> None:
        async def main() -> None:
            store = self.make_store()
            kept, gone = (Artifact.of(data, "text/plain") for data in (b"kept", b"gone"))
            await _end(store, "old", artifacts=(kept, gone), proposals=(_proposal("p"),))
            await _end(store, "old/in", parent="old")
            await self.pass_time(store, 10 * _DAY)
            await _end(store, "new", brought=(kept.digest,))
            would = await store.prune(_days(5), dry_run=True)
            assert await _listed(store) == ["new", "old", "old/in"]
            pruned = await store.prune(_days(5))
            assert pruned == would
            assert (pruned.runs, pruned.rows, pruned.artifacts) == (2, 4, 1)
            assert await _listed(store) == ["new"]
            assert await store.info("old") is None
            assert await store.proposal("p") is None
            assert await store.artifact("new", kept.digest) == kept
            assert (await store.prune(_days(5))).runs == 0

        self.run(main())

    def test_the_id_of_what_was_pruned_is_free(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r", session="s")
            await store.add_grant(_grant("of r", run_id="r"))
            await store.add_grant(_grant("of s", session="s"))
            await self.pass_time(store, 10 * _DAY)
            assert (await store.prune(_days(5))).runs == 1
            assert await _create(store, "r", session="s") is True
            assert len(await store.read("r")) == 1
            assert [each.id for each in await store.grants("desk")] == ["of s"], (
                "what was granted for one run is not granted for the next of its id"
            )

        self.run(main())

    def test_nothing_that_has_not_ended_is_pruned_nor_what_is_inside_of_it(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "waits", status="waiting")
            await _end(store, "waits/in", parent="waits")
            await store.release(await _begin(store, "broken off"))
            await _begin(store, "live")
            await _end(store, "ended")
            again = await store.acquire("ended", "me")
            assert isinstance(again, Lease)
            before = await _listed(store)
            await self.pass_time(store, 1_000 * _DAY)
            assert (await store.prune(_days(1))).runs == 0
            assert await _listed(store) == before
            await store.release(again)
            assert (await store.prune(_days(1))).runs == 1

        self.run(main())

    def test_a_session_is_pruned_by_its_newest_run(self) -> None:
        async def main() -> None:
            store = self.make_store()
            after = None
            for n in range(2):
                await _end(store, f"s{n}", session="s", after=after)
                after = Predecessor(f"s{n}", 2)
                await self.pass_time(store, 10 * _DAY)
            await _end(store, "s2", session="s", after=after)
            assert (await store.prune(_days(5))).runs == 0
            await self.pass_time(store, 10 * _DAY)
            assert (await store.prune(_days(5))).runs == 3
            assert await _create(store, "s3", session="s") is True

        self.run(main())

    def test_trees_that_a_session_binds_together_are_pruned_together(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "s0", session="s")
            await _end(store, "tree")
            await _end(store, "tree/in", parent="tree", session="s", after=Predecessor("s0", 2))
            await self.pass_time(store, 10 * _DAY)
            await _end(store, "s1", session="s", after=Predecessor("tree/in", 2))
            assert (await store.prune(_days(5))).runs == 0
            await self.pass_time(store, 10 * _DAY)
            assert (await store.prune(_days(5))).runs == 4

        self.run(main())

    def test_tombstones_are_pruned_as_runs_are(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r", status="waiting")
            await _end(store, "r/in", parent="r")
            await store.erase(run_id="r")
            assert (await store.prune(_days(5))).runs == 0
            await self.pass_time(store, 10 * _DAY)
            assert (await store.prune(_days(5))).runs == 2
            assert await _create(store, "r") is True

        self.run(main())

    def test_no_time_at_all_is_everything_that_ended_and_less_is_refused(self) -> None:
        async def main() -> None:
            store = self.make_store()
            await _end(store, "r")
            await _refused(store.prune(_days(-1)), ConfigurationError)
            assert (await store.prune(timedelta.max)).runs == 0
            await self.pass_time(store, 1)
            assert (await store.prune(timedelta())).runs == 1

        self.run(main())


def _days(number: float) -> timedelta:
    return timedelta(days=number)


def _proposal(name: str) -> NewProposal:
    return NewProposal(name, f"token {name}".encode(), "hash", _LATER)


def _grant(name: str, *, run_id: str | None = None, session: str | None = None) -> Grant:
    return Grant(
        id=name,
        remit="desk",
        tool="pay",
        arguments={"amount": 7},
        run_id=run_id,
        session=session,
        expires_at=_LATER,
        by="dana",
        at=datetime.now(UTC),
    )


async def _create(store: Forgetful, run_id: str, **more: Any) -> object:
    return await store.create(NewRun(run_id, b"spec", NewRow("opened", b"{}"), **more))


async def _begin(store: Forgetful, run_id: str, **more: Any) -> Lease:
    assert await _create(store, run_id, **more) is True
    lease = await store.acquire(run_id, "me")
    assert isinstance(lease, Lease)
    return lease


async def _end(
    store: Forgetful,
    run_id: str,
    *,
    status: RunStatus = "ended",
    artifacts: tuple[Artifact, ...] = (),
    proposals: tuple[NewProposal, ...] = (),
    **more: Any,
) -> None:
    """A run of two rows."""
    lease = await _begin(store, run_id, **more)
    await store.append(
        lease,
        [NewRow("x", b"said")],
        status=status,
        reason="completed" if status == "ended" else None,
        artifacts=artifacts,
        proposals=proposals,
    )
    await store.release(lease)


async def _entries(store: Forgetful) -> list[RunEntry]:
    return list(await store.runs(RunQuery(), count=100))


async def _entry(store: Forgetful, run_id: str) -> RunEntry:
    return next(entry for entry in await _entries(store) if entry.run_id == run_id)


async def _listed(store: Forgetful) -> list[str]:
    return sorted([entry.run_id for entry in await _entries(store)])


async def _watched(store: Forgetful, run_id: str) -> list[Any]:
    return [row async for row in store.watch(run_id)]


async def _refused(attempt: Coroutine[Any, Any, Any], kind: type[RemitError]) -> RemitError:
    """The error that an attempt ends in."""
    try:
        came = await attempt
    except kind as error:
        return error
    raise AssertionError(f"it was not refused: {came!r}")
