"""Runs told again from their rows: any part of them, in any order, on any window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reading_rig import PIN, leave_runs
from remit.analysis.cells import cells
from remit.analysis.layout import Glyphs, plain
from remit.analysis.listing import listed, table_rows
from remit.analysis.retold import Retelling
from remit.analysis.sheet import Only, narrowed, pending_of_story, sheet_of, to_document
from remit.analysis.sheet_layout import Page
from remit.analysis.story import read_story, row_of
from remit.analysis.view import RunView
from remit.artifacts import Artifact
from remit.canonical import encode
from remit.errors import JournalError
from remit.store.base import Journal, RunStatus, StoredRow
from remit.store.directory import RunEntry, RunQuery
from remit.store.sqlite import SqliteStore

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
RUNS = ("done", "waits", "asks", "broke", "tree", "died")


class Rows:
    """A journal that holds just these rows of one run."""

    def __init__(self, rows: Sequence[StoredRow]) -> None:
        self._rows = rows

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        if run_id not in RUNS:
            raise JournalError(f"there is no run {run_id!r} in this store")
        return [row for row in self._rows if row.seq > after]

    async def artifact(self, run_id: str, digest: str) -> Artifact | None:
        """It is gone."""
        del run_id, digest

    async def artifacts(
        self, run_id: str, digests: Sequence[str], take: Callable[[Artifact], object]
    ) -> int:
        """The same."""
        del run_id, digests, take
        return 0

    @property
    def journal(self) -> Journal:
        return cast("Journal", self)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[StoredRow]]:
    """The rows of the runs that a process has left."""
    directory = leave_runs(tmp_path_factory.mktemp("left")).directory
    return asyncio.run(_read(directory))


async def _read(directory: Path) -> dict[str, list[StoredRow]]:
    store = SqliteStore(directory / "runs.db")
    try:
        entries = await store.runs(RunQuery(roots=True), count=20)
        assert {entry.run_id for entry in entries} == set(RUNS)
        return {entry.run_id: list(await store.read(entry.run_id)) for entry in entries}
    finally:
        store.close()


def entry_of(run_id: str, status: RunStatus) -> RunEntry:
    return RunEntry(
        run_id=run_id,
        remit="desk",
        status=status,
        reason="completed" if status == "ended" else None,
        parent=None,
        session="s\x1b[2J",
        tags={"a": "\u202e"},
        owner=None if status == "ended" else "process 1",
        rows=1,
        created_at=NOW - timedelta(hours=3),
        ended_at=NOW if status == "ended" else None,
        erased_at=None,
        lost=False,
    )


@given(
    run_id=st.sampled_from(RUNS),
    status=st.sampled_from(["ready", "running", "waiting", "ended"]),
    part=st.floats(0, 1),
    columns=st.one_of(st.none(), st.integers(12, 140)),
    full=st.booleans(),
    only=st.sampled_from([None, "failed", "calls", "text", "effects", "artifacts", "budget"]),
)
def test_a_run_can_be_shown_after_any_of_its_rows(
    rows: dict[str, list[StoredRow]],
    run_id: str,
    status: RunStatus,
    part: float,
    columns: int | None,
    full: bool,
    only: Only | None,
) -> None:
    """U7: as text within the window and as JSON; nothing acts on the terminal, no secret is told."""
    some = rows[run_id][: 1 + int(part * (len(rows[run_id]) - 1))]
    journal, entry, glyphs = Rows(some).journal, entry_of(run_id, status), Glyphs.of("utf-8")

    async def read() -> None:
        story = await read_story(journal, run_id, whole=True)
        sheet = sheet_of(entry, story, pending=await pending_of_story(journal, story))
        shown = narrowed(sheet, only=only)
        page = Page(shown, glyphs=glyphs, columns=columns, now=NOW, full=full)
        texts = [plain(row) for row in page.rows(only, ("ok", "why"), part=only is not None)]
        told = await listed(journal, entry)
        texts += [plain(row) for row in table_rows([told], now=NOW, glyphs=glyphs, columns=columns)]
        assert all(text.isprintable() for text in texts)
        if columns is not None:
            assert all(cells(text) <= columns for text in texts)
        assert PIN not in "\n".join(texts) + encode(to_document(sheet)).decode()

    asyncio.run(read())


@given(run_id=st.sampled_from(RUNS), order=st.randoms(use_true_random=False), whole=st.booleans())
def test_rows_that_nobody_wrote_so_are_refused_and_break_nothing(
    rows: dict[str, list[StoredRow]], run_id: str, order: Random, whole: bool
) -> None:
    """U7, J2: rows of any runs in any order are told, or refused as unreadable."""
    mixed = [row for each in rows.values() for row in each]
    order.shuffle(mixed)
    forged = [
        StoredRow(at, row.kind, row.body) for at, row in enumerate([*rows[run_id][:1], *mixed])
    ]
    journal = Rows(forged).journal

    async def read() -> None:
        try:
            story = await read_story(journal, run_id, whole=whole)
            sheet_of(
                entry_of(run_id, "ended"), story, pending=await pending_of_story(journal, story)
            )
        except JournalError:
            pass
        assert (await listed(journal, entry_of(run_id, "waiting"))).entry.run_id == run_id

    asyncio.run(read())


@pytest.mark.parametrize("run_id", RUNS)
def test_events_told_again_fold_into_the_same_spend(
    rows: dict[str, list[StoredRow]], run_id: str
) -> None:
    """U7, J4: a view of them counts what the state counts, each token once."""
    retelling, view, journal = Retelling(run_id), RunView(), Rows(rows[run_id]).journal

    async def tell() -> None:
        for stored in rows[run_id]:
            for event in retelling.take(await row_of(journal, run_id, stored)):
                view.apply(event)
                assert encode(event.to_json())

    asyncio.run(tell())
    state = retelling.story.state
    assert (view.tokens, view.usd, view.steps) == (
        state.own.usage.total,
        state.own.usd,
        state.steps,
    )
