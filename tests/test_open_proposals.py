"""What is asked of people is found over all runs of a store, in memory and in a file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from remit.store.base import Lease, NewProposal, NewRow, NewRun
from remit.store.memory import MemoryStore
from remit.store.proposals import OpenProposal
from remit.store.sqlite import SqliteStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryStore | SqliteStore]:
    if request.param == "memory":
        yield MemoryStore()
        return
    opened = SqliteStore(tmp_path / "runs.db")
    yield opened
    opened.close()


def test_what_is_open_is_found_by_the_beginning_of_its_id_and_nothing_else_is(
    store: MemoryStore | SqliteStore,
) -> None:
    """E5: neither what was decided or withdrawn, nor what a run left behind that has ended; expired ones are."""

    async def main() -> None:
        leases: dict[str, Lease] = {}
        for run_id in ("a", "b"):
            await store.create(NewRun(run_id, b"", NewRow("opened", b"{}")))
            lease = await store.acquire(run_id, "me")
            assert isinstance(lease, Lease)
            leases[run_id] = lease
        later = NOW + timedelta(hours=1)
        asked = [
            NewProposal("3c9e", b"t1", "h1", later),
            NewProposal("3c%_", None, "h2", NOW, "input"),
            NewProposal("used", b"t3", "h3", later),
            NewProposal("gone", b"t4", "h4", later),
            NewProposal("3d", None, "h5", later, "result"),
        ]
        await store.append(leases["a"], (), proposals=asked)
        await store.append(leases["b"], (), proposals=[NewProposal("3e", b"t6", "h6", later)])
        await store.decide(pending_id="used", decision=b"{}", now=NOW)
        await store.withdraw("gone")
        first, second, third = (
            OpenProposal("3c%_", "a", "input", "h2", NOW),
            OpenProposal("3c9e", "a", "approval", "h1", later),
            OpenProposal("3d", "a", "result", "h5", later),
        )
        fourth = OpenProposal("3e", "b", "approval", "h6", later)
        assert await store.open_proposals(count=9) == [first, second, third, fourth]
        assert await store.open_proposals(count=2) == [first, second]
        assert await store.open_proposals(prefix="3c", count=9) == [first, second]
        assert await store.open_proposals(prefix="3c%", count=9) == [first]
        assert await store.open_proposals(prefix="3c9e", count=9) == [second]
        assert await store.open_proposals(prefix="3c9e0", count=9) == []
        await store.append(leases["b"], (), status="ended")
        assert await store.open_proposals(prefix="3e", count=9) == []

    asyncio.run(main())
