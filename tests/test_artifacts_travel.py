"""What a history names is copied into the store that the run goes on in: handles outlive the store they came from."""

from __future__ import annotations

import asyncio
import copy
import itertools
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import ConfigurationError, Limits, MemoryStore, Outcome, Remit, Transcript, tool
from remit.artifacts import HANDLE_PREFIX
from remit.models.scripted import ScriptedModel
from remit.store import origin
from remit.store.base import Journal
from remit.store.sqlite import SqliteStore
from remit.store.sqlite.files import INLINE_BYTES

LARGE = "".join(f"line {number}\n" for number in range(20_000))
HUGE = "x" * (INLINE_BYTES + 1)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[str], Journal]]:
    """Makes stores of either kind; what is made is closed."""
    stores: list[SqliteStore] = []
    numbers = itertools.count()

    def make(kind: str) -> Journal:
        if kind == "memory":
            return MemoryStore()
        stores.append(SqliteStore(tmp_path / f"{next(numbers)}" / "runs.db"))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def desk(store: Journal, says: str = LARGE, *, asks: bool = True) -> Remit[Any]:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return says

    return Remit(
        name="desk",
        model=ScriptedModel([("look", {}), "so be it"] if asks else ["so be it"] * 9),
        limits=Limits(steps=5, tokens=10_000_000, seconds=60),
        tools=[look],
        store=store,
    )


def handle_of(outcome: Outcome[Any]) -> str:
    (handle,) = outcome.transcript.artifacts
    return handle


KINDS = ["memory", "sqlite"]


@pytest.mark.parametrize("says", [LARGE, HUGE], ids=["a row", "a file"])
@pytest.mark.parametrize("there", KINDS)
@pytest.mark.parametrize("here", KINDS)
def test_handles_of_a_history_resolve_when_the_store_they_came_from_is_gone(
    made: Callable[[str], Journal], here: str, there: str, says: str
) -> None:
    """X2: in every direction, rows and files, and in the run after the next too."""

    async def main() -> None:
        first = made(here)
        outcome = await desk(first, says).run("look", run_id="one")
        handle = handle_of(outcome)
        second = made(there)
        gone_on = desk(second, asks=False)
        following = await gone_on.run("go on", history=outcome.transcript, run_id="two")
        del outcome
        if isinstance(first, SqliteStore):
            first.close()
            for file in sorted(first.path.parent.rglob("*"), reverse=True):
                file.unlink() if file.is_file() else file.rmdir()
        del first
        assert (await gone_on.artifact(handle, run_id="two")).text == says
        third = desk(made(here), asks=False)
        await third.run("and on", history=following.transcript, run_id="three")
        assert (await third.artifact(handle, run_id="three")).text == says

    asyncio.run(main())


@pytest.mark.parametrize("cut", ["view", "before", "copy", "closed"])
def test_a_part_of_a_history_still_knows_where_its_artifacts_are(
    made: Callable[[str], Journal], cut: str
) -> None:
    """X2: however the caller cuts the transcript of an outcome."""

    async def main() -> None:
        outcome = await desk(made("memory")).run("look", run_id="one")
        handle, whole = handle_of(outcome), outcome.transcript
        parts = {
            "view": whole.view(4),
            "before": whole.before(2),
            "copy": whole.copy(),
            "closed": whole.closed(),
        }
        other = desk(made("sqlite"), asks=False)
        await other.run("go on", history=parts[cut], run_id="two")
        assert (await other.artifact(handle, run_id="two")).text == LARGE

    asyncio.run(main())


def test_a_resumed_or_stored_outcome_knows_it_too(made: Callable[[str], Journal]) -> None:
    """X2, J3: asked for in another process, long after the run."""

    async def main() -> None:
        store = made("sqlite")
        handle = handle_of(await desk(store).run("look", run_id="one"))
        assert isinstance(store, SqliteStore)
        store.close()
        outcome = await desk(SqliteStore(store.path)).outcome("one")
        other = desk(made("memory"), asks=False)
        await other.run("go on", history=outcome.transcript, run_id="two")
        assert (await other.artifact(handle, run_id="two")).text == LARGE
        assert isinstance(outcome.transcript.origin, origin.Origin)
        assert isinstance(outcome.transcript.origin.store, SqliteStore)
        outcome.transcript.origin.store.close()

    asyncio.run(main())


def test_what_leaves_the_process_says_nothing_of_its_store(made: Callable[[str], Journal]) -> None:
    """X2, V3: as JSON, pickled or copied; a store holds threads and locks."""

    async def main() -> None:
        outcome = await desk(made("sqlite")).run("look", run_id="one")
        whole = outcome.transcript
        assert whole.origin is not None
        loaded = Transcript.load(whole.to_json())
        for left in (loaded, pickle.loads(pickle.dumps(whole)), copy.deepcopy(whole)):
            assert left == whole
            assert left.origin is None
            assert len(left.closed()) == len(whole)
        assert "runs.db" not in repr(whole)
        other = desk(made("memory"), asks=False)
        await other.run("go on", history=loaded, run_id="two")
        with pytest.raises(ConfigurationError, match="has no artifact"):
            await other.artifact(handle_of(outcome), run_id="two")

    asyncio.run(main())


def test_a_history_from_the_same_file_is_not_read_again(tmp_path: Path) -> None:
    """X2, J1: two openings of one file are one store, however its path is spelled."""

    class Watched(SqliteStore):
        fetched = 0

        async def artifact(self, run_id: str, digest: str) -> Any:
            self.fetched += 1
            return await super().artifact(run_id, digest)

    async def main() -> None:
        (tmp_path / "sub").mkdir()
        one, two = Watched(tmp_path / "a.db"), Watched(tmp_path / "sub" / ".." / "a.db")
        outcome = await desk(one).run("look", run_id="one")
        before = one.fetched
        other = desk(two, asks=False)
        await other.run("go on", history=outcome.transcript, run_id="two")
        assert (one.fetched, two.fetched) == (before, 0)
        assert (await other.artifact(handle_of(outcome), run_id="two")).text == LARGE
        one.close()
        two.close()

    asyncio.run(main())


def test_what_is_copied_is_bounded_and_the_newest_comes_first(
    made: Callable[[str], Journal],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """X2: a run may not begin with gigabytes, and an operator is told what stayed behind."""

    async def main() -> None:
        store = made("memory")
        one = await desk(store, LARGE).run("look", run_id="one")
        two = await desk(store, LARGE[::-1]).run("look again", history=one.transcript, run_id="two")
        old, new = two.transcript.artifacts
        monkeypatch.setattr(origin, "MOST_COPIED_BYTES", len(LARGE) + 1)
        other = desk(made("sqlite"), asks=False)
        with caplog.at_level(logging.WARNING, "remit"):
            await other.run("go on", history=two.transcript, run_id="three")
        assert (await other.artifact(new, run_id="three")).text == LARGE[::-1]
        with pytest.raises(ConfigurationError):
            await other.artifact(old, run_id="three")
        assert f"{old.removeprefix(HANDLE_PREFIX)[:12]} is left out" in caplog.text

    asyncio.run(main())


def test_a_store_that_fails_is_no_reason_not_to_go_on(
    made: Callable[[str], Journal], caplog: pytest.LogCaptureFixture
) -> None:
    """X2: what was said is in the transcript; what it names is lost, and a log record says so."""

    async def main() -> None:
        store = made("sqlite")
        assert isinstance(store, SqliteStore)
        outcome = await desk(store, HUGE).run("look", run_id="one")
        for file in (store.path.parent / f"{store.path.name}.d" / "artifacts").rglob("*"):
            if file.is_file():
                file.write_bytes(b"damaged")
        other = desk(made("memory"), asks=False)
        with caplog.at_level(logging.WARNING, "remit"):
            assert (await other.run("go on", history=outcome.transcript)).completed
        assert "damaged" in caplog.text

    asyncio.run(main())
