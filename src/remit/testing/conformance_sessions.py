"""What the contract of `Journal` says of sessions, one test for each sentence of it.

An implementer runs it by deriving a class in a test module; pytest collects the rest:

    class TestSessionsOfMyStore(SessionConformance):
        def make_journal(self) -> Journal:
            return MyStore(...)
"""

# ruff: noqa: S101 - this is a test suite that happens to be shipped

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from remit.artifacts import Artifact
from remit.errors import JournalError
from remit.store.base import (
    Held,
    Journal,
    Lease,
    NewRow,
    NewRun,
    NotNext,
    Predecessor,
    RunStatus,
    Superseded,
)

__all__ = ["SessionConformance"]

T = TypeVar("T")


class SessionConformance:
    """Derive from it, override `make_journal`, and name the class so that pytest finds it."""

    def make_journal(self) -> Journal:
        """An empty journal."""
        raise NotImplementedError("override make_journal(): it gives an empty journal of yours")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """How a test is run. Override with `run_virtual` for a journal without threads."""
        return asyncio.run(main)

    def test_a_run_follows_the_newest_of_its_session_once_that_has_ended(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            assert await journal.create(_new("a")) is True
            await _end(journal, "a")
            assert await journal.create(_new("b", Predecessor("a", 2))) is True
            await _end(journal, "b")
            assert await journal.create(_new("c", Predecessor("b", 2))) is True

        self.run(main())

    def test_a_run_that_follows_another_than_the_newest_is_told_which_that_is(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("a"))
            await _end(journal, "a")
            newest = NotNext(Predecessor("a", 2))
            assert await journal.create(_new("b")) == newest
            assert await journal.create(_new("b", Predecessor("x", 2))) == newest
            assert newest.is_free
            await journal.create(_new("b", Predecessor("a", 2)))
            await _end(journal, "b")
            again = await journal.create(_new("c", Predecessor("a", 2)))
            assert again == NotNext(Predecessor("b", 2))

        self.run(main())

    def test_a_run_that_follows_one_of_a_session_without_runs_is_told_so(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(NewRun("a", b"", NewRow("opened", b"{}")))
            assert await journal.create(_new("b", Predecessor("a", 1))) == NotNext(None)
            assert await journal.create(_new("b")) is True

        self.run(main())

    def test_a_run_that_was_taken_up_again_is_another_than_was_read(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("a"))
            await _end(journal, "a")
            await _end(journal, "a")
            found = await journal.create(_new("b", Predecessor("a", 2)))
            assert found == NotNext(Predecessor("a", 3))
            assert await journal.create(_new("b", Predecessor("a", 3))) is True

        self.run(main())

    def test_a_run_that_has_not_ended_is_not_followed(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("a"))
            statuses: tuple[RunStatus, ...] = ("ready", "running", "waiting")
            for number, status in enumerate(statuses):
                lease = await _lease(journal, "a")
                if number:
                    await journal.append(lease, [NewRow("said", b"{}")], status=status)
                await journal.release(lease)
                last = Predecessor("a", number + 1)
                found = await journal.create(_new("b", last))
                kept: RunStatus = "waiting" if status == "waiting" else "ready"
                assert found == NotNext(last, kept)
                assert not NotNext(last, kept).is_free
            assert await journal.info("b") is None

        self.run(main())

    def test_a_run_whose_lease_is_held_is_not_followed_though_it_has_ended(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("a"))
            await _end(journal, "a")
            lease = await _lease(journal, "a")
            last = Predecessor("a", 2)
            found = await journal.create(_new("b", last))
            assert found == NotNext(last, "ended", "one")
            assert not NotNext(last, "ended", "one").is_free
            await journal.release(lease)
            assert await journal.create(_new("b", last)) is True

        self.run(main())

    def test_an_id_that_exists_is_said_to_whatever_the_session_is_at(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("a"))
            assert await journal.create(_new("a")) is False
            await _end(journal, "a")
            await journal.create(_new("b", Predecessor("a", 2)))
            assert await journal.create(_new("a", Predecessor("x", 9))) is False

        self.run(main())

    def test_a_run_that_is_not_next_leaves_nothing_behind(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("a"))
            artifact = Artifact.of(b"theirs", "text/plain")
            row = NewRow("opened", b"{}")
            await journal.create(NewRun("b", b"", row, session="s", artifacts=(artifact,)))
            assert await journal.info("b") is None
            digest = artifact.handle.partition(":")[2]
            assert await journal.artifact("a", digest) is None
            await _end(journal, "a")
            assert await journal.create(_new("c", Predecessor("a", 2))) is True

        self.run(main())

    def test_of_many_that_would_be_next_at_once_one_is(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("a"))
            await _end(journal, "a")
            last = Predecessor("a", 2)
            found = await asyncio.gather(*[journal.create(_new(f"b{n}", last)) for n in range(9)])
            assert [each for each in found if each is True] == [True]
            created = [n for n in range(9) if await journal.info(f"b{n}") is not None]
            assert [found[n] for n in created] == [True]

        self.run(main())

    def test_sessions_know_nothing_of_one_another(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            assert await journal.create(_new("a")) is True
            assert await journal.create(_new("b", session="t")) is True
            assert await journal.create(NewRun("c", b"", NewRow("opened", b"{}"))) is True

        self.run(main())

    def test_a_run_that_was_followed_is_not_acquired_any_more(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            for name, last in (("a", None), ("b", "a"), ("c", "b")):
                await journal.create(_new(name, Predecessor(last, 2) if last else None))
                await _end(journal, name)
            assert await journal.acquire("a", "one") == Superseded("b")
            assert await journal.acquire("b", "one") == Superseded("c")
            info = await journal.info("a")
            assert info is not None
            assert (info.status, info.owner) == ("ended", None)
            lease = await _lease(journal, "c")
            assert await journal.acquire("c", "two") == Held("one")
            await journal.release(lease)

        self.run(main())

    def test_what_the_newest_run_may_read_the_next_may_read_and_nobody_else(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            artifact = Artifact.of(b"a long result", "text/plain")
            digest = artifact.handle.partition(":")[2]
            await journal.create(_new("a"))
            lease = await _lease(journal, "a")
            await journal.append(lease, [NewRow("x", b"{}")], status="ended", artifacts=[artifact])
            await journal.release(lease)
            await journal.create(_new("b", Predecessor("a", 2)))
            await journal.create(_new("t", session="t"))
            inside = NewRun("i", b"", NewRow("opened", b"{}"), "b", session="i")
            await journal.create(inside)
            assert await journal.artifact("b", digest) == artifact
            assert await journal.artifact("i", digest) == artifact, "it is inside of b"
            assert await journal.artifact("t", digest) is None

        self.run(main())

    def test_what_a_run_inside_another_may_read_the_next_may_not_unless_it_is_brought(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            kept = [Artifact.of(text, "text/plain") for text in (b"around", b"in the session")]
            digests = [each.handle.partition(":")[2] for each in kept]
            row = NewRow("opened", b"{}")
            await journal.create(NewRun("around", b"", row, artifacts=tuple(kept)))
            await journal.create(NewRun("a", b"", row, "around", session="s"))
            await _end(journal, "a")
            last = Predecessor("a", 2)
            brought = (digests[1],)
            await journal.create(NewRun("b", b"", row, session="s", after=last, brought=brought))
            found = [await journal.artifact("b", digest) for digest in digests]
            assert found == [None, kept[1]]

        self.run(main())

    def test_a_conversation_is_read_back_run_by_run_up_to_what_is_known_of_it(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            last = None
            for run_id in "abcd":
                await journal.create(_new(run_id, last))
                await _end(journal, run_id)
                last = Predecessor(run_id, 2)
            other = NewRun("other", b"", NewRow("opened", b"{}"))
            await journal.create(other)

            async def read(run_id: str, known: Mapping[str, bytes]) -> list[tuple[str, int]]:
                return [
                    (each.run_id, len(each.rows)) for each in await journal.read_back(run_id, known)
                ]

            found = await journal.read_back("c", {})
            assert [each.run_id for each in found] == ["c", "b", "a"]
            for each in found:
                assert list(each.rows) == list(await journal.read(each.run_id))
            heads = {each.run_id: each.head for each in found}
            assert len(set(heads.values())) == 3
            assert await read("d", heads) == [("d", 2), ("c", 0)]
            assert await read("c", heads) == [("c", 0)]
            assert await read("d", {"b": heads["b"]}) == [("d", 2), ("c", 2), ("b", 0)]
            # What is known of another run, or of this one as it never was, is not known of it.
            wrong = {"c": heads["b"], "b": b"", "other": heads["a"]}
            assert await read("c", wrong) == [("c", 2), ("b", 2), ("a", 2)]
            assert await read("other", wrong) == [("other", 1)]

        self.run(main())

    def test_every_row_that_is_written_gives_a_run_another_head(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            await journal.create(_new("a"))
            lease = await _lease(journal, "a")
            heads: set[bytes] = set()
            for written in range(4):
                (found,) = await journal.read_back("a", {})
                assert len(found.rows) == 1 + written
                assert found.head not in heads
                heads.add(found.head)
                await journal.append(lease, [NewRow("said", b"{}")])

        self.run(main())

    def test_of_an_unknown_run_nothing_is_read_back(self) -> None:
        async def main() -> None:
            journal = self.make_journal()
            try:
                await journal.read_back("nobody", {"nobody": b"x"})
            except JournalError:
                return
            raise AssertionError("it was read")

        self.run(main())


def _new(run_id: str, after: Predecessor | None = None, session: str = "s") -> NewRun:
    return NewRun(run_id, b"spec", NewRow("opened", b"{}"), session=session, after=after)


async def _lease(journal: Journal, run_id: str) -> Lease:
    lease = await journal.acquire(run_id, "one")
    assert isinstance(lease, Lease), lease
    return lease


async def _end(journal: Journal, run_id: str) -> None:
    """Take a run up, write one row and end it."""
    lease = await _lease(journal, run_id)
    await journal.append(lease, [NewRow("ended", b"{}")], status="ended")
    await journal.release(lease)
