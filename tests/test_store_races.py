"""Stores when many want them at once, and when the answer to a commit is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from loop_rig import statuses
from remit import Call, Limits, MemoryStore, Outcome, Reason, Remit, Tool, tool
from remit.errors import JournalError
from remit.models.scripted import ScriptedModel
from remit.pending import Decision, Pending
from remit.store.base import Control, Journal
from remit.store.sqlite import SqliteStore
from remit.testing import JournalRaces, Ledger, run_virtual

T = TypeVar("T")


class TestMemoryRaces(JournalRaces):
    """J2, E5: one writer, one decision, nothing lost."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_virtual(main)

    def make_journals(self) -> Sequence[Journal]:
        return [MemoryStore()]


class TestSqliteRaces(JournalRaces):
    """J2, E5: the same between two openings of one file, as two processes have them."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self._path, self._stores = tmp_path / "runs.db", list[SqliteStore]()
        yield
        for store in self._stores:
            store.close()

    def make_journals(self) -> Sequence[Journal]:
        self._stores = [SqliteStore(self._path), SqliteStore(self._path)]
        return self._stores


class LosesAnAnswer(MemoryStore):
    """Its n-th append is committed and tells nobody."""

    lost_at = -1
    appended = 0

    async def append(self, *args: Any, **options: Any) -> Control:
        control = await super().append(*args, **options)
        return told(self, control)


class LosesAnAnswerOfAFile(SqliteStore):
    """The same for SQLite."""

    lost_at = -1
    appended = 0

    async def append(self, *args: Any, **options: Any) -> Control:
        control = await super().append(*args, **options)
        return told(self, control)


def told(store: LosesAnAnswer | LosesAnAnswerOfAFile, control: Control) -> Control:
    store.appended += 1
    if store.appended - 1 == store.lost_at:
        raise JournalError("the connection broke: whether it was committed nobody knows")
    return control


def working(ledger: Ledger) -> list[Tool[..., Any]]:
    @tool(effect="idempotent")
    async def work(n: int, call: Call) -> str:
        """Work."""
        return ledger.done(call.key, f"worked {n}")

    @tool(effect="confirm")
    async def pay(n: int, call: Call) -> str:
        """Pay."""
        return ledger.done(call.key, f"paid {n}")

    @pay.reconcile
    async def _(key: str) -> str | None:
        return ledger.effects.get(key)

    return [work, pay]


async def approves(pending: Pending) -> Decision:
    del pending
    return Decision(approve=True, by="dana")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_commit_whose_answer_is_lost_is_found_out_by_reading_and_never_repeated(
    kind: str, tmp_path: Path
) -> None:
    """J2, J3, E1, E3: at every append of a run; it ends `journal_failed`, and resumed it comes to the same."""
    script: list[Any] = [("work", {"n": 1}), [("work", {"n": 2}), ("pay", {"n": 3})], "done"]

    def desk(store: Journal, ledger: Ledger, steps: int = 0) -> Remit[Any]:
        return Remit(
            name="desk",
            model=ScriptedModel(script[steps:]),
            tools=working(ledger),
            limits=Limits(steps=9, tokens=1_000_000, seconds=60),
            store=store,
            confirm=approves,
        )

    async def replies(store: Journal) -> int:
        return sum(row.kind == "replied" for row in await store.read("x"))

    async def lost(at: int) -> bool:
        """Whether there is an append number `at`."""
        ledger = Ledger()
        store = LosesAnAnswer() if kind == "memory" else LosesAnAnswerOfAFile(tmp_path / f"{at}.db")
        store.lost_at = at
        try:
            outcome: Outcome[Any] = await desk(store, ledger).run("go", run_id="x")
            if store.appended <= at:
                assert outcome.completed
                return False
            written = await store.read("x")
            # The last append of all is its end: whoever reads finds that the run had ended.
            assert outcome.reason is Reason.JOURNAL_FAILED or written[-1].kind == "ended"
            again = await desk(store, ledger, await replies(store)).resume("x")
            assert again.completed, (at, again.reason, again.error)
            rows = await store.read("x")
            assert [row.seq for row in rows] == list(range(len(rows)))
            assert rows[: len(written)] == written
            done = sorted(ledger.effects.values())
            paid = [key for key in ledger.calls if ":pay:" in key]
            assert len(paid) <= 1, "what was approved once is entered once"
            # Its start was written and nobody told: whoever resumes cannot know that it was not entered (E3).
            in_doubt = "unknown" in statuses(again)
            assert done == ([] if in_doubt else ["paid 3"]) + ["worked 1", "worked 2"]
            return True
        finally:
            if isinstance(store, SqliteStore):
                store.close()

    async def main() -> None:
        at = 0
        while await lost(at):
            at += 1
        assert at >= 5

    asyncio.run(main())
