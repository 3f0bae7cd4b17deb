"""The contract of `Journal`, one test for each sentence of it.

An implementer runs it by deriving a class in a test module; pytest collects the rest:

    class TestMyStore(JournalConformance):
        def make_journal(self) -> Journal:
            return MyStore(...)

It checks what one process can see. That two processes cannot both hold a lease, and that a committed row
outlives a kill, is for tests with processes.
"""

# ruff: noqa: S101 - this is a test suite that happens to be shipped

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from remit.artifacts import Artifact
from remit.errors import DecisionError, Fenced, JournalError
from remit.pending import PendingKind
from remit.store.base import (
    Held,
    Journal,
    Lease,
    NewProposal,
    NewRow,
    NewRun,
    ProposalInfo,
    RunInfo,
    RunStatus,
    Shared,
    StoredRow,
)

__all__ = ["JournalConformance"]

T = TypeVar("T")

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_LATER = _NOW + timedelta(hours=1)
_SHOWN = "ab" * 32
"""The hash of the arguments that are shown."""
_KINDS: tuple[PendingKind, ...] = ("approval", "input", "result")
_SUPPLIED = _KINDS[1:]


class JournalConformance:
    """Derive from it, override `make_journal`, and name the class so that pytest finds it."""

    def make_journal(self) -> Journal:
        """An empty journal."""
        raise NotImplementedError("override make_journal(): it gives an empty journal of yours")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """How a test is run. Override with `run_virtual` for a journal without threads."""
        return asyncio.run(main)

    # Opening

    def test_a_created_run_has_its_first_row_and_is_ready(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            assert await journal.create(_new("r", parent="above"))
            assert await journal.read("r") == [StoredRow(0, "opened", b"{}")]
            assert await _info(journal) == RunInfo(
                "r", b"spec", "ready", None, "above", unread=False, rows=1
            )

        self.run(main())

    def test_a_second_create_changes_nothing_and_says_so(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            again = NewRun("r", b"other spec", NewRow("opened", b"other"))
            assert not await journal.create(again)
            assert await journal.read("r") == [StoredRow(0, "opened", b"{}")]
            assert (await _info(journal)).spec_hash == b"spec"

        self.run(main())

    def test_what_is_unknown_has_no_info_no_rows_no_lease_and_takes_no_post(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            assert await journal.info("r") is None
            assert not await journal.post("r", "cancel")
            assert list(await journal.inbox("r")) == []
            await _refused(journal.read("r"), JournalError)
            await _refused(journal.acquire("r", "one"), JournalError)

        self.run(main())

    def test_a_name_that_no_store_can_hold_is_the_name_of_nothing(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            for half in ("\ud800", "r\udc00"):
                assert await journal.info(half) is None
                assert not await journal.post(half, "input", b"x")
                assert list(await journal.inbox(half)) == []
                assert await journal.artifact(half, "0" * 64) is None
                assert await journal.artifact("r", half * 20) is None
                assert await journal.proposal(half) is None
                assert not await journal.withdraw(half)
                for attempt in (journal.read(half), journal.acquire(half, "me")):
                    refused = await _refused(attempt, JournalError)
                    assert "there is no run" in str(refused)
                for attempt in (_decide(journal, pending_id=half), journal.renew(half, b"token")):
                    refused = await _refused(attempt, DecisionError)
                    assert isinstance(refused, DecisionError)
                    assert refused.why == "unknown"

        self.run(main())

    # Leases

    def test_a_run_that_waits_waits_again_when_its_lease_is_given_back_with_nothing_written(
        self,
    ) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal)
            await journal.append(lease, _rows("x"), status="waiting")
            await journal.release(lease)
            for _ in range(2):
                lease = await _lease(journal)
                assert (await _info(journal)).status == "running"
                await journal.release(lease)
                assert (await _info(journal)).status == "waiting"
            lease = await _lease(journal)
            await journal.append(lease, _rows("x"))
            await journal.release(lease)
            assert (await _info(journal)).status == "ready"

        self.run(main())

    def test_one_owner_holds_a_run_until_it_is_released(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal, "one")
            assert lease.next_seq == 1
            assert await journal.acquire("r", "two") == Held("one")
            assert (await _info(journal)).owner == "one"
            await journal.release(lease)
            assert (await _info(journal)).owner is None
            await _lease(journal, "two")

        self.run(main())

    def test_every_lease_has_a_higher_epoch(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            epochs: list[int] = []
            for owner in ("one", "one", "two"):
                lease = await _lease(journal, owner)
                epochs.append(lease.epoch)
                await journal.release(lease)
            assert epochs == sorted(set(epochs))

        self.run(main())

    def test_a_lease_that_was_given_back_is_fenced_and_writes_nothing(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            stale = await _lease(journal, "one")
            await journal.release(stale)
            await _refused(journal.append(stale, _rows("x"), status="ended"), Fenced)
            assert len(await journal.read("r")) == 1
            assert (await _info(journal)).status != "ended"

        self.run(main())

    def test_a_lease_that_another_took_over_is_fenced_and_writes_nothing(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            await journal.post("r", "cancel")
            stale = await _lease(journal, "one")
            await journal.release(stale)
            lease = await _lease(journal, "two")
            proposal = _proposal("p")
            late = journal.append(stale, _rows("x"), status="ended", proposals=[proposal], taken=1)
            await _refused(late, Fenced)
            assert stale.next_seq == 1
            assert await _info(journal) == RunInfo(
                "r", b"spec", "running", "two", None, unread=True, rows=1
            )
            await _undecidable(journal, "unknown", pending_id="p")
            await journal.append(lease, _rows("y"))
            assert [row.kind for row in await journal.read("r")] == ["opened", "y"]

        self.run(main())

    def test_a_stale_lease_gives_nothing_back_and_raises_nothing(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            stale = await _lease(journal, "one")
            await journal.release(stale)
            lease = await _lease(journal, "two")
            await journal.release(stale)
            assert (await _info(journal)).owner == "two"
            await journal.append(lease, _rows("y"))

        self.run(main())

    def test_a_released_run_is_ready_unless_it_waits_or_has_ended(self) -> None:
        async def main() -> None:
            expected: dict[RunStatus, RunStatus] = {
                "running": "ready",
                "waiting": "waiting",
                "ended": "ended",
            }
            for given, left in expected.items():
                journal = self.make_journal()
                await journal.create(_new("r"))
                lease = await _lease(journal)
                await journal.append(lease, _rows("x"), status=given)
                assert (await _info(journal)).status == given
                await journal.release(lease)
                assert (await _info(journal)).status == left

        self.run(main())

    # Rows

    def test_rows_are_numbered_without_gaps_over_appends_and_leases(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            for batch in (("a", "b"), (), ("c",)):
                lease = await _lease(journal)
                await journal.append(lease, _rows(*batch))
                assert lease.next_seq == len(await journal.read("r"))
                await journal.release(lease)
            rows = await journal.read("r")
            assert [row.seq for row in rows] == [0, 1, 2, 3]
            assert [row.kind for row in rows] == ["opened", "a", "b", "c"]

        self.run(main())

    def test_read_gives_what_is_behind_a_row(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            await journal.append(await _lease(journal), _rows("a", "b"))
            for after in range(-1, 4):
                seqs = [row.seq for row in await journal.read("r", after)]
                assert seqs == list(range(after + 1, 3))

        self.run(main())

    def test_what_is_stored_is_bytes_and_no_later_change_reaches_it(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            body = bytes(range(256))
            rows = [NewRow("x", body)]
            await journal.append(await _lease(journal), rows)
            rows.append(NewRow("y", b""))
            found = list(await journal.read("r"))
            assert found[1:] == [StoredRow(1, "x", body)]
            found.clear()
            assert len(await journal.read("r")) == 2

        self.run(main())

    def test_runs_do_not_mix(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            await journal.create(_new("other"))
            await journal.append(await _lease(journal), _rows("a"), status="ended")
            await journal.post("r", "cancel")
            assert len(await journal.read("other")) == 1
            assert await _info(journal, "other") == RunInfo(
                "other", b"spec", "ready", None, None, unread=False, rows=1
            )

        self.run(main())

    def test_concurrent_appends_of_many_runs_lose_nothing(self) -> None:
        async def main() -> None:
            journal = self.make_journal()

            async def write(run_id: str) -> None:
                await journal.create(_new(run_id))
                lease = await _lease(journal, run_id=run_id)
                for n in range(10):
                    await journal.append(lease, _rows(f"{run_id}-{n}"))

            await asyncio.gather(*(write(f"r{n}") for n in range(10)))
            for n in range(10):
                kinds = [row.kind for row in await journal.read(f"r{n}")]
                assert kinds == ["opened", *(f"r{n}-{k}" for k in range(10))]

        self.run(main())

    # Artifacts

    def test_an_artifact_is_there_with_the_rows_it_came_with(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal)
            one, other = _artifact("one"), _artifact("other")
            await journal.append(lease, _rows("a"), artifacts=[one])
            await journal.append(lease, _rows("b"), artifacts=[one, other])
            assert await journal.artifact("r", one.digest) == one
            assert await journal.artifact("r", other.digest) == other
            assert await journal.artifact("r", _artifact("third").digest) is None
            assert await journal.artifact("unknown", one.digest) is None

        self.run(main())

    def test_many_artifacts_are_given_in_order_up_to_the_first_that_is_not_there(self) -> None:
        async def main() -> None:
            journal = self.make_journal()

            async def taken(run_id: str, digests: Sequence[str]) -> list[Artifact]:
                found: list[Artifact] = []
                assert await journal.artifacts(run_id, digests, found.append) == len(found)
                return found

            for run_id in ("r", "stranger"):
                await journal.create(_new(run_id))
            kept = [Artifact.of(bytes([n]) * 900_000, "text/plain") for n in range(12)]
            await journal.append(await _lease(journal), [], artifacts=kept)
            digests = [each.digest for each in kept]
            assert await taken("r", digests) == kept
            gone = _artifact("gone").digest
            some = [digests[3], digests[1], gone, digests[2]]
            assert await taken("r", some) == [kept[3], kept[1]]
            assert not await taken("r", [gone, digests[0]])
            assert not await taken("stranger", digests)
            assert not await taken("unknown", digests)
            assert not await taken("r", [])

        self.run(main())

    def test_a_fenced_append_keeps_no_artifact(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal)
            await journal.release(lease)
            artifact = _artifact("one")
            await _refused(journal.append(lease, _rows("a"), artifacts=[artifact]), Fenced)
            assert await journal.artifact("r", artifact.digest) is None

        self.run(main())

    def test_an_artifact_is_found_by_the_first_of_its_digits_if_only_one_has_them(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            artifact = _artifact("one")
            alike = [
                Artifact("artifact:" + "ab" * 10 + digit * 44, "text/plain", digit.encode())
                for digit in "12"
            ]
            await journal.append(await _lease(journal), [], artifacts=[artifact, *alike])
            for digits in (12, 20, 63):
                assert await journal.artifact("r", artifact.digest[:digits]) == artifact
            for digits in (0, 1, 11):
                assert await journal.artifact("r", artifact.digest[:digits]) is None
            assert await journal.artifact("r", alike[0].digest[:20]) is None
            assert await journal.artifact("r", alike[0].digest[:21]) == alike[0]

        self.run(main())

    def test_the_runs_of_one_tree_read_each_others_artifacts_and_no_others(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            runs = {"root": None, "child": "root", "sibling": "root", "inner": "child"}
            kept: dict[str, Artifact] = {}
            for run_id, parent in {**runs, "stranger": None, "guest": "stranger"}.items():
                await journal.create(_new(run_id, parent))
                kept[run_id] = _artifact(run_id)
                lease = await _lease(journal, run_id=run_id)
                await journal.append(lease, [], artifacts=[kept[run_id]])
            for run_id in kept:
                for owner, artifact in kept.items():
                    found = await journal.artifact(run_id, artifact.digest)
                    assert found == (artifact if (run_id in runs) == (owner in runs) else None)

        self.run(main())

    def test_a_run_reads_what_its_history_brought_and_keeps_it_for_those_after(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            old, other, new = _artifact("old"), _artifact("other"), _artifact("new")
            await journal.create(_new("first"))
            lease = await _lease(journal, run_id="first")
            await journal.append(lease, [], artifacts=[old, other])
            unknown = _artifact("unknown").digest
            brought = (old.digest, unknown)
            second = NewRun(
                "second", b"spec", NewRow("opened", b"{}"), artifacts=(new,), brought=brought
            )
            assert await journal.create(second)
            assert await journal.artifact("second", old.digest) == old
            assert await journal.artifact("second", new.digest) == new
            assert await journal.artifact("second", other.digest) is None
            assert await journal.artifact("second", unknown) is None
            assert await journal.artifact("first", new.digest) is None
            third = NewRun("second", b"spec", NewRow("opened", b"{}"), brought=(other.digest,))
            assert not await journal.create(third)
            assert await journal.artifact("second", other.digest) is None

        self.run(main())

    def test_what_is_posted_may_bring_artifacts_along(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            artifact = _artifact("late")
            assert await journal.post("r", "late", b"{}", artifacts=[artifact])
            assert await journal.artifact("r", artifact.digest) == artifact
            assert not await journal.post("unknown", "late", b"{}", artifacts=[artifact])

        self.run(main())

    # Posts

    def test_posts_are_numbered_from_one_and_come_in_order(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            assert await journal.post("r", "input", b"one")
            assert await journal.post("r", "cancel")
            posts = await journal.inbox("r")
            assert [(p.id, p.kind, p.body) for p in posts] == [
                (1, "input", b"one"),
                (2, "cancel", b""),
            ]
            assert [p.id for p in await journal.inbox("r", 1)] == [2]
            assert list(await journal.inbox("r", 2)) == []

        self.run(main())

    def test_every_append_tells_of_the_newest_post(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal)
            assert (await journal.append(lease, _rows("a"))).inbox_max == 0
            await journal.post("r", "input", b"one")
            await journal.post("r", "input", b"two")
            control = await journal.append(lease, _rows("b"), taken=1)
            assert (control.inbox_max, control.status) == (2, "running")

        self.run(main())

    def test_a_post_is_unread_until_an_append_takes_it(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            await journal.post("r", "input", b"one")
            lease = await _lease(journal)
            await journal.append(lease, _rows("a"))
            assert (await _info(journal)).unread
            await journal.append(lease, _rows("b"), taken=1)
            assert not (await _info(journal)).unread
            await journal.append(lease, _rows("c"))  # what was taken stays taken
            assert not (await _info(journal)).unread

        self.run(main())

    def test_a_store_that_is_shared_tells_what_was_posted_for_the_runs_that_are_held(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            if not isinstance(journal, Shared):
                return  # nobody else writes to it
            for run_id in ("held", "silent", "given back", "nobody's"):
                await journal.create(_new(run_id))
            lease = await _lease(journal, run_id="held")
            await _lease(journal, run_id="silent")
            await journal.release(await _lease(journal, run_id="given back"))
            for run_id in ("held", "given back", "nobody's", "held"):
                await journal.post(run_id, "cancel")
            assert await journal.unread() == {"held": 2}
            await journal.append(lease, _rows("said"), taken=2)
            assert await journal.unread() == {}

        self.run(main())

    def test_a_lease_knows_what_was_posted_and_what_was_taken_before_it(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal)
            assert (lease.taken, lease.inbox_max) == (0, 0)
            await journal.post("r", "input", b"one")
            await journal.append(lease, _rows("a"), taken=1)
            await journal.post("r", "input", b"two")
            await journal.release(lease)
            lease = await _lease(journal)
            assert (lease.taken, lease.inbox_max) == (1, 2)

        self.run(main())

    def test_a_run_cannot_go_to_wait_past_something_it_has_not_read(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal)
            await journal.append(lease, _rows("a"), proposals=[_proposal("p")])
            await _decide(journal, pending_id="p")
            control = await journal.append(lease, _rows("parked"), status="waiting")
            assert (control.status, control.inbox_max) == ("running", 1)
            assert (await _info(journal)).status == "running"
            assert len(await journal.read("r")) == 3, "the rows are written all the same"
            control = await journal.append(lease, _rows("parked"), status="waiting", taken=1)
            assert control.status == "waiting"
            assert (await _info(journal)).status == "waiting"

        self.run(main())

    def test_a_decision_and_a_run_that_goes_to_wait_never_miss_each_other(self) -> None:
        async def main() -> None:
            for _ in range(20):
                journal = self.make_journal()
                await journal.create(_new("r"))
                lease = await _lease(journal)
                await journal.append(lease, _rows("a"), proposals=[_proposal("p")])
                control, _ = await asyncio.gather(
                    journal.append(lease, _rows("parked"), status="waiting"),
                    _decide(journal, pending_id="p"),
                )
                info = await _info(journal)
                assert info.status == control.status
                assert info.unread, "whoever resumes finds the decision"

        self.run(main())

    def test_a_fresh_lease_can_be_relied_on(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal)
            assert journal.holds(lease)
            await journal.append(lease, _rows("a"))
            assert journal.holds(lease)

        self.run(main())

    # Decisions

    def test_a_decision_by_token_or_by_id_lands_in_the_inbox_once(self) -> None:
        async def main() -> None:
            for token_hash, pending_id in ((b"token p", None), (None, "p")):
                journal = self.make_journal()
                await _propose(journal, "p")
                run_id = await _decide(journal, token_hash=token_hash, pending_id=pending_id)
                assert run_id == "r"
                (post,) = await journal.inbox("r")
                assert post.kind == "decision"
                assert post.body.endswith(b"\n{}")
                assert b'"p"' in post.body.partition(b"\n")[0]
                await _undecidable(journal, "used", token_hash=b"token p")
                await _undecidable(journal, "used", pending_id="p")
                assert len(await journal.inbox("r")) == 1

        self.run(main())

    def test_an_answer_or_a_result_is_named_by_its_id_and_posted_as_supplied(self) -> None:
        async def main() -> None:
            for kind in _SUPPLIED:
                journal = self.make_journal()
                await _propose(journal, "p", kind)
                assert await _decide(journal, pending_id="p", kind=kind) == "r"
                (post,) = await journal.inbox("r")
                assert post.kind == "supply"
                assert post.body.endswith(b"\n{}")
                assert b'"p"' in post.body.partition(b"\n")[0]
                await _undecidable(journal, "used", pending_id="p", kind=kind)
                assert len(await journal.inbox("r")) == 1

        self.run(main())

    def test_a_proposal_of_another_kind_is_unknown_and_stays_open(self) -> None:
        async def main() -> None:
            for proposed in _KINDS:
                journal = self.make_journal()
                await _propose(journal, "p", proposed)
                for kind in _KINDS:
                    if kind != proposed:
                        await _undecidable(journal, "unknown", pending_id="p", kind=kind)
                if proposed == "approval":
                    await _undecidable(journal, "unknown", token_hash=b"token p", kind="input")
                else:
                    await _refused(journal.renew("p", b"fresh"), DecisionError)
                    await _undecidable(journal, "unknown", token_hash=b"fresh")
                assert list(await journal.inbox("r")) == []
                await _decide(journal, pending_id="p", kind=proposed)

        self.run(main())

    def test_what_expired_ended_or_was_withdrawn_is_not_supplied(self) -> None:
        async def main() -> None:
            for kind in _SUPPLIED:
                journal = self.make_journal()
                lease = await _propose(journal, "p", kind)
                await _undecidable(journal, "expired", pending_id="p", kind=kind, now=_LATER)
                await journal.append(
                    lease, _rows("x"), proposals=[_proposal("q", kind), _proposal("s", kind)]
                )
                assert await journal.withdraw("q")
                await _undecidable(journal, "used", pending_id="q", kind=kind)
                await journal.append(lease, _rows("ended"), status="ended")
                await _undecidable(journal, "stale", pending_id="s", kind=kind)

        self.run(main())

    def test_a_proposal_is_known_by_run_and_kind_open_or_not(self) -> None:
        async def main() -> None:
            for kind in _KINDS:
                journal = self.make_journal()
                assert await journal.proposal("p") is None
                await _propose(journal, "p", kind)
                assert await journal.proposal("p") == ProposalInfo("r", kind)
                await _decide(journal, pending_id="p", kind=kind)
                assert await journal.proposal("p") == ProposalInfo("r", kind)
                assert await journal.proposal("q") is None

        self.run(main())

    def test_what_was_never_proposed_is_unknown(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await _propose(journal, "p")
            await _undecidable(journal, "unknown", token_hash=b"guessed")
            await _undecidable(journal, "unknown", pending_id="q")
            assert list(await journal.inbox("r")) == []

        self.run(main())

    def test_an_expired_proposal_is_not_decided(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await _propose(journal, "p")
            await _undecidable(journal, "expired", pending_id="p", now=_LATER)
            assert list(await journal.inbox("r")) == []
            await _decide(journal, pending_id="p", now=_LATER - timedelta(seconds=1))

        self.run(main())

    def test_a_decision_about_other_arguments_than_were_shown_is_stale_and_uses_nothing_up(
        self,
    ) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await _propose(journal, "p")
            await _undecidable(journal, "stale", pending_id="p", arguments_hash="cd" * 32)
            assert list(await journal.inbox("r")) == []
            assert await _decide(journal, pending_id="p", arguments_hash=_SHOWN) == "r"

        self.run(main())

    def test_of_many_decisions_at_once_one_wins(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await _propose(journal, "p")
            ends = await asyncio.gather(
                *(_decide(journal, token_hash=b"token p") for _ in range(10)),
                return_exceptions=True,
            )
            lost = [end.why for end in ends if isinstance(end, DecisionError)]
            assert ends.count("r") == 1
            assert lost == ["used"] * 9
            assert len(await journal.inbox("r")) == 1

        self.run(main())

    def test_a_renewed_proposal_forgets_its_last_token(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await _propose(journal, "p")
            await journal.renew("p", b"fresh")
            await _undecidable(journal, "unknown", token_hash=b"token p")
            assert await _decide(journal, token_hash=b"fresh") == "r"
            await _refused(journal.renew("p", b"fresher"), DecisionError)
            await _refused(journal.renew("q", b"fresher"), DecisionError)

        self.run(main())

    def test_a_withdrawn_proposal_is_told_to_its_run_once_and_cannot_be_decided(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await _propose(journal, "p")
            assert await journal.withdraw("p")
            assert not await journal.withdraw("p")
            assert not await journal.withdraw("q")
            await _undecidable(journal, "used", token_hash=b"token p")
            (post,) = await journal.inbox("r")
            assert post.kind == "withdraw"
            assert b'"p"' in post.body

        self.run(main())

    def test_nothing_is_decided_for_a_run_that_has_ended(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("r"))
            lease = await _lease(journal)
            await journal.append(lease, _rows("proposed"), proposals=[_proposal("p")])
            await journal.append(lease, _rows("ended"), status="ended")
            await _undecidable(journal, "stale", token_hash=b"token p")
            await _refused(journal.renew("p", b"fresh"), DecisionError)

        self.run(main())

    def test_a_decided_proposal_cannot_be_withdrawn(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await _propose(journal, "p")
            await _decide(journal, pending_id="p")
            assert not await journal.withdraw("p")
            assert len(await journal.inbox("r")) == 1

        self.run(main())


def _new(run_id: str, parent: str | None = None) -> NewRun:
    return NewRun(run_id, b"spec", NewRow("opened", b"{}"), parent)


def _rows(*kinds: str) -> list[NewRow]:
    return [NewRow(kind, kind.encode()) for kind in kinds]


def _artifact(text: str) -> Artifact:
    return Artifact.of(text.encode(), "text/plain")


def _proposal(pending_id: str, kind: PendingKind = "approval") -> NewProposal:
    token = f"token {pending_id}".encode() if kind == "approval" else None
    return NewProposal(pending_id, token, _SHOWN, _LATER, kind)


async def _info(journal: Journal, run_id: str = "r") -> RunInfo:
    info = await journal.info(run_id)
    assert info is not None
    return info


async def _lease(journal: Journal, owner: str = "one", *, run_id: str = "r") -> Lease:
    lease = await journal.acquire(run_id, owner)
    assert isinstance(lease, Lease), lease
    return lease


async def _propose(journal: Journal, pending_id: str, kind: PendingKind = "approval") -> Lease:
    await journal.create(_new("r"))
    lease = await _lease(journal)
    await journal.append(lease, _rows("proposed"), proposals=[_proposal(pending_id, kind)])
    return lease


async def _decide(
    journal: Journal,
    *,
    token_hash: bytes | None = None,
    pending_id: str | None = None,
    arguments_hash: str | None = None,
    kind: PendingKind = "approval",
    now: datetime = _NOW,
) -> str:
    return await journal.decide(
        token_hash=token_hash,
        pending_id=pending_id,
        arguments_hash=arguments_hash,
        kind=kind,
        decision=b"{}",
        now=now,
    )


async def _undecidable(
    journal: Journal,
    why: str,
    *,
    token_hash: bytes | None = None,
    pending_id: str | None = None,
    arguments_hash: str | None = None,
    kind: PendingKind = "approval",
    now: datetime = _NOW,
) -> None:
    try:
        await _decide(
            journal,
            token_hash=token_hash,
            pending_id=pending_id,
            arguments_hash=arguments_hash,
            kind=kind,
            now=now,
        )
    except DecisionError as error:
        found: str | None = error.why
    else:
        found = None
    assert found == why, f"{found or 'decided'}, and should be {why}"


async def _refused(attempt: Awaitable[object], expected: type[Exception]) -> Exception:
    try:
        await attempt
    except expected as error:
        return error
    raise AssertionError(f"it came through, and should raise {expected.__name__}")
