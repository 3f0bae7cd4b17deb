"""What a store keeps when many want it at once: a suite like `JournalConformance`, for its races.

    class TestMyRaces(JournalRaces):
        def make_journals(self) -> Sequence[Journal]:
            return [MyStore(place), MyStore(place)]

Several journals over one place play several processes.
"""

# ruff: noqa: S101 - this is a test suite that happens to be shipped

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from remit.errors import DecisionError, Fenced
from remit.store.base import Control, Journal, Lease, NewProposal, NewRow, NewRun

__all__ = ["JournalRaces"]

T = TypeVar("T")

_RUNS = 12
_WRITERS = 4
_TURNS = 25
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


class JournalRaces:
    """Derive from it, override `make_journals`, and name the class so that pytest finds it."""

    def make_journals(self) -> Sequence[Journal]:
        """One or more journals over the same empty place."""
        raise NotImplementedError(
            "override make_journals(): it gives journals of yours over one empty place"
        )

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """How a test is run. Override with `run_virtual` for a journal without threads."""
        return asyncio.run(main)

    def test_of_many_who_acquire_at_once_one_has_the_lease(self) -> None:
        async def main() -> None:
            journals = self.make_journals()
            for number in range(_RUNS):
                await journals[0].create(_new(f"r{number}"))
                asked = [j.acquire(f"r{number}", f"w{at}") for j in journals for at in range(8)]
                found = await asyncio.gather(*asked)
                assert sum(isinstance(each, Lease) for each in found) == 1

        self.run(main())

    def test_of_many_who_create_one_run_at_once_one_does(self) -> None:
        async def main() -> None:
            journals = self.make_journals()
            made = await asyncio.gather(*(j.create(_new("r")) for j in journals for _ in range(8)))
            assert sum(each is True for each in made) == 1
            assert len(await journals[0].read("r")) == 1

        self.run(main())

    def test_under_steals_no_row_is_lost_and_no_refused_row_is_kept(self) -> None:
        """Many writers write many runs and give each other's leases away; the stale ones try, too."""

        async def main() -> None:
            journals = self.make_journals()
            runs = [f"r{number}" for number in range(_RUNS)]
            for run_id in runs:
                await journals[0].create(_new(run_id))
            kept: dict[str, list[tuple[int, bytes]]] = {run_id: [] for run_id in runs}
            refused: list[bytes] = []

            async def writes(writer: int) -> None:
                draw, stale = random.Random(writer), list[Lease]()  # noqa: S311 - a race, no secret
                journal = journals[writer % len(journals)]
                for turn in range(_TURNS):
                    run_id = draw.choice(runs)
                    lease = await journal.acquire(run_id, f"w{writer}")
                    if not isinstance(lease, Lease):
                        continue
                    for part in range(draw.randrange(1, 4)):
                        body = b"%d %d %d" % (writer, turn, part)
                        first = lease.next_seq
                        await journal.append(lease, [NewRow("said", body), NewRow("said", body)])
                        kept[run_id] += [(first, body), (first + 1, body)]
                    await journal.release(lease)
                    stale.append(lease)
                    body = b"stale %d %d" % (writer, turn)
                    try:
                        await journal.append(draw.choice(stale), [NewRow("late", body)])
                    except Fenced:
                        refused.append(body)

            await asyncio.gather(*(writes(number) for number in range(_WRITERS)))
            assert refused
            for run_id in runs:
                rows = await journals[-1].read(run_id)
                assert [row.seq for row in rows] == list(range(len(rows)))
                assert [(row.seq, row.body) for row in rows[1:]] == sorted(kept[run_id])

        self.run(main())

    def test_no_run_goes_to_wait_past_a_decision(self) -> None:
        async def main() -> None:
            journals = self.make_journals()
            for number in range(_RUNS):
                run_id, pending_id = f"r{number}", f"p{number}"
                await journals[0].create(_new(run_id))
                lease = await journals[0].acquire(run_id, "one")
                assert isinstance(lease, Lease)
                proposal = NewProposal(pending_id, None, "ab" * 32, _NOW + timedelta(hours=1))
                await journals[0].append(lease, [NewRow("asked", b"")], proposals=[proposal])
                decide = journals[-1].decide(pending_id=pending_id, decision=b"yes", now=_NOW)
                wait = journals[0].append(lease, [NewRow("waits", b"")], status="waiting")
                order = [decide, wait] if number % 2 else [wait, decide]
                ends = await asyncio.gather(*order)
                (control,) = (each for each in ends if isinstance(each, Control))
                assert control.status == ("running" if control.inbox_max else "waiting")
                info = await journals[0].info(run_id)
                assert info is not None
                assert info.unread
                assert info.status == control.status

        self.run(main())

    def test_of_many_who_decide_at_once_one_does(self) -> None:
        async def main() -> None:
            journals = self.make_journals()
            await journals[0].create(_new("r"))
            lease = await journals[0].acquire("r", "one")
            assert isinstance(lease, Lease)
            proposal = NewProposal("p", None, "ab" * 32, _NOW + timedelta(hours=1))
            await journals[0].append(
                lease, [NewRow("asked", b"")], status="waiting", proposals=[proposal]
            )
            ends = await asyncio.gather(
                *(
                    j.decide(pending_id="p", decision=b"%d" % n, now=_NOW)
                    for n in range(8)
                    for j in journals
                ),
                return_exceptions=True,
            )
            assert [end for end in ends if not isinstance(end, DecisionError)] == ["r"]
            assert len(await journals[0].inbox("r")) == 1

        self.run(main())


def _new(run_id: str) -> NewRun:
    return NewRun(run_id, b"spec", NewRow("opened", b"{}"))
