"""Our journals keep the contract of `Journal`."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from remit.artifacts import Artifact
from remit.errors import DecisionError
from remit.store.base import Journal, Lease, NewProposal, NewRow, NewRun
from remit.store.memory import MemoryStore
from remit.testing import CrashStore, JournalConformance, run_virtual

T = TypeVar("T")


class TestMemoryStore(JournalConformance):
    def make_journal(self) -> Journal:
        return MemoryStore()


class TestCrashStoreThatDoesNotCrash(JournalConformance):
    """The wrapper changes nothing but the time it takes, so that every race gets its turn."""

    def make_journal(self) -> Journal:
        return CrashStore(latency=0.1)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_virtual(main)


class TestMemoryStoreAsTheLoopNeedsIt:
    """What the shared suite says, under the promises that rest on it."""

    def test_a_second_writer_and_a_stale_one_are_kept_out(self) -> None:
        """J3: of two writers one holds the run; a lease that was lost writes nothing any more."""
        suite = TestMemoryStore()
        suite.test_one_owner_holds_a_run_until_it_is_released()
        suite.test_a_lease_that_was_given_back_is_fenced_and_writes_nothing()
        suite.test_a_lease_that_another_took_over_is_fenced_and_writes_nothing()
        suite.test_a_stale_lease_gives_nothing_back_and_raises_nothing()

    def test_a_decision_is_used_once_and_never_missed(self) -> None:
        """E5, E6: a token decides once, for what was shown, in time; no run goes to sleep on it."""
        suite = TestMemoryStore()
        suite.test_a_decision_by_token_or_by_id_lands_in_the_inbox_once()
        suite.test_an_expired_proposal_is_not_decided()
        suite.test_a_decision_about_other_arguments_than_were_shown_is_stale_and_uses_nothing_up()
        suite.test_a_renewed_proposal_forgets_its_last_token()
        suite.test_a_run_cannot_go_to_wait_past_something_it_has_not_read()

    def test_an_approval_is_not_supplied_and_nothing_else_is_approved(self) -> None:
        """E5, E6: the three kinds are told apart by the store, not by whoever calls it."""
        suite = TestMemoryStore()
        suite.test_a_proposal_of_another_kind_is_unknown_and_stays_open()
        suite.test_an_answer_or_a_result_is_named_by_its_id_and_posted_as_supplied()
        suite.test_what_expired_ended_or_was_withdrawn_is_not_supplied()

    def test_starting_twice_under_one_id_opens_one_run(self) -> None:
        """E8: the second `create` says that the run is there and leaves it as it is."""
        TestMemoryStore().test_a_second_create_changes_nothing_and_says_so()

    def test_ended_runs_are_dropped_oldest_first_and_their_proposals_with_them(self) -> None:
        """J1: what is kept of ended runs is bounded in bytes; live and waiting ones are always kept."""

        async def main() -> None:
            store = MemoryStore(keep_ended_bytes=1_000)
            expires = datetime(2027, 1, 1, tzinfo=UTC)
            for n in range(5):
                run = NewRun(f"r{n}", b"", NewRow("opened", bytes(400)))
                await store.create(run)
                lease = await store.acquire(run.run_id, "me")
                proposal = NewProposal(f"p{n}", f"t{n}".encode(), "", expires)
                status = "waiting" if n == 0 else "ended"
                await store.append(lease, (), status=status, proposals=[proposal])  # pyright: ignore[reportArgumentType] - nobody else holds it
                await store.release(lease)  # pyright: ignore[reportArgumentType] - the same
            kept = [n for n in range(5) if await store.info(f"r{n}") is not None]
            assert kept == [0, 3, 4]
            moment = datetime(2026, 1, 1, tzinfo=UTC)
            assert await store.decide(pending_id="p0", decision=b"{}", now=moment)
            for n, why in ((1, "unknown"), (2, "unknown"), (3, "stale"), (4, "stale")):
                with pytest.raises(DecisionError) as refused:
                    await store.decide(pending_id=f"p{n}", decision=b"{}", now=moment)
                assert refused.value.why == why

        run_virtual(main())

    def test_a_handle_is_good_in_its_own_tree_and_where_its_history_goes(self) -> None:
        """X2: nothing of another run, or of another conversation, is read by its handle."""
        suite = TestMemoryStore()
        suite.test_the_runs_of_one_tree_read_each_others_artifacts_and_no_others()
        suite.test_a_run_reads_what_its_history_brought_and_keeps_it_for_those_after()
        suite.test_an_artifact_is_found_by_the_first_of_its_digits_if_only_one_has_them()

    def test_an_artifact_comes_with_its_row_or_not_at_all(self) -> None:
        """X2, J3: no row names what a crash has lost."""
        suite = TestMemoryStore()
        suite.test_an_artifact_is_there_with_the_rows_it_came_with()
        suite.test_a_fenced_append_keeps_no_artifact()

    def test_an_artifact_is_kept_as_long_as_a_run_that_may_read_it(self) -> None:
        """J1, X2: artifacts of ended runs count as their rows do, each once, whoever holds them."""

        async def end(store: MemoryStore, run_id: str, *artifacts: Artifact, **run: Any) -> None:
            new = NewRun(run_id, b"", NewRow("opened", bytes(10)), **run)
            await store.create(new)
            lease = await store.acquire(run_id, "me")
            assert isinstance(lease, Lease)
            await store.append(lease, (), status="ended", artifacts=artifacts)
            await store.release(lease)
            await store.release(lease)  # nobody minds

        async def main() -> None:
            store = MemoryStore(keep_ended_bytes=1_000)
            first, second, third = (
                Artifact.of(letter * 400, "text/plain") for letter in (b"1", b"2", b"3")
            )
            await end(store, "a", first)
            await end(store, "b", first, second, brought=(first.digest,))
            assert await store.info("a") is not None, "what both hold counts once"
            await end(store, "c", third, brought=(second.digest,))
            assert await store.info("a") is None
            assert await store.info("b") is None
            assert await store.artifact("c", second.digest) == second
            assert len(store._shelf) == 2, "nobody may read the first any more"
            lease = await store.acquire("c", "me")
            assert isinstance(lease, Lease)
            await end(store, "d", Artifact.of(bytes(900), "text/plain"))
            assert await store.info("c") is not None, "it goes on, and what it holds does not count"
            assert store._shelf.idle_bytes == 900
            await store.append(lease, (), status="ended")
            await store.release(lease)
            assert await store.info("d") is None
            assert store._shelf.idle_bytes == 800

        run_virtual(main())

    def test_what_a_child_kept_is_there_as_long_as_its_parent(self) -> None:
        """X2, J1: the tree holds it, not the run."""

        async def main() -> None:
            store = MemoryStore(keep_ended_bytes=500)
            artifact = Artifact.of(bytes(100), "text/plain")
            leases: dict[str, Lease] = {}
            for run_id, parent in (("parent", None), ("child", "parent")):
                await store.create(NewRun(run_id, b"", NewRow("opened", bytes(50)), parent))
                lease = await store.acquire(run_id, "me")
                assert isinstance(lease, Lease)
                leases[run_id] = lease
            await store.append(leases["child"], (), status="ended", artifacts=[artifact])
            await store.release(leases["child"])
            await store.append(leases["parent"], (), status="ended")
            await store.release(leases["parent"])
            for n, size in ((1, 350), (2, 400)):
                await store.create(NewRun(f"r{n}", b"", NewRow("opened", bytes(size))))
                lease = await store.acquire(f"r{n}", "me")
                assert isinstance(lease, Lease)
                await store.append(lease, (), status="ended")
                await store.release(lease)
                if n == 1:
                    assert await store.info("child") is None
                    assert await store.artifact("parent", artifact.digest) == artifact
            assert await store.info("parent") is None
            assert len(store._shelf) == 0
            assert store._shelf.idle_bytes == 0

        run_virtual(main())
