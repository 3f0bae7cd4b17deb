"""Our journals keep the contract of `Journal`."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from remit.errors import DecisionError
from remit.store.base import Journal, NewProposal, NewRow, NewRun
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
