"""The store in a SQLite file: the contract of every store, and what a file is for."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from remit import Limits, Reason, Remit, RunBusy, tool
from remit.artifacts import Artifact
from remit.errors import ConfigurationError, DecisionError, Fenced, JournalError
from remit.models.scripted import ScriptedModel
from remit.store.base import Held, Journal, Lease, NewRow, NewRun
from remit.store.chain import START, Chain
from remit.store.directory import RunQuery
from remit.store.names import store_named
from remit.store.sqlite import SqliteStore
from remit.store.sqlite.files import INLINE_BYTES
from remit.store.sqlite.schema import _STEPS, APPLICATION_ID, VERSION, check, migrate
from remit.testing import JournalConformance


class TestSqliteStore(JournalConformance):
    """J1, J2, E5: SQLite passes through the same suite as the memory store."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self._path, self._stores = tmp_path, list[SqliteStore]()
        yield
        for store in self._stores:
            store.close()

    def make_journal(self) -> Journal:
        store = SqliteStore(self._path / f"{len(self._stores)}.db")
        self._stores.append(store)
        return store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., SqliteStore]]:
    """Opens the store once more, as another process would."""
    stores: list[SqliteStore] = []

    def again(**options: object) -> SqliteStore:
        stores.append(SqliteStore(path, **options))  # pyright: ignore[reportArgumentType] - as given
        return stores[-1]

    yield again
    for store in stores:
        store.close()


async def begun(store: SqliteStore, run_id: str = "r", rows: int = 0) -> Lease:
    """A run that this store writes, with so many rows behind the first."""
    await store.create(NewRun(run_id, b"spec", NewRow("opened", b"{}")))
    lease = await store.acquire(run_id, "one")
    assert isinstance(lease, Lease), lease
    for number in range(rows):
        await store.append(lease, [NewRow("said", b"row %d" % number)])
    return lease


# --- what a file is for --------------------------------------------------------------------------


def test_rows_are_there_when_the_file_is_opened_again(opened: Callable[..., SqliteStore]) -> None:
    """J1, J2: and in the event loop of whoever opens it."""
    first = opened()
    asyncio.run(begun(first, rows=3))
    kept = asyncio.run(first.read("r"))
    first.close()
    assert asyncio.run(opened().read("r")) == kept
    assert [row.seq for row in kept] == [0, 1, 2, 3]
    assert asyncio.run(first.read("r")) == kept, "a store that was closed opens itself again"


def test_a_run_goes_on_in_another_process(path: Path) -> None:
    """J3, E8: the outcome is stored; asked for again, nothing is done again."""
    done: list[int] = []

    @tool(effect="read")
    def look(n: int) -> int:
        """Look."""
        done.append(n)
        return n

    def desk() -> Remit[None]:
        return Remit(
            name="desk",
            model=ScriptedModel([("look", {"n": 1}), "done"]),
            tools=[look],
            limits=Limits(steps=5, tokens=10_000, seconds=60),
            store=f"sqlite:///{path}",
        )

    first = desk()
    assert asyncio.run(first.run("go", run_id="x")).text == "done"
    again = asyncio.run(desk().run("go", run_id="x"))
    assert again.text == "done"
    assert again.completed
    assert done == [1]


def test_the_outcome_of_a_run_says_that_another_process_executes_it(
    opened: Callable[..., SqliteStore],
) -> None:
    """J3: it neither has ended nor waits; of a process that is gone without a word nothing runs."""
    there, here = opened(), opened()
    desk = Remit(
        name="desk",
        model=ScriptedModel([("look", {}), "done"]),
        tools=[tool(effect="confirm", name="look")(_look)],
        limits=Limits(steps=5, tokens=10_000, seconds=60),
        store=here,
    )

    async def main() -> None:
        assert (await desk.run("go", run_id="r")).reason is Reason.WAITING
        assert isinstance(await there.acquire("r", "somebody"), Lease)
        with pytest.raises(RunBusy, match="somebody"):
            await desk.outcome("r")
        there.close()
        assert (await desk.outcome("r")).reason is Reason.WAITING

    asyncio.run(main())


def _look() -> str:
    """Look."""
    return "seen"


def test_a_store_is_named_by_its_path(tmp_path: Path) -> None:
    """U3: a name that stands for no store is refused before anything is sent."""
    assert repr(store_named("sqlite:///runs.db")) == "<SqliteStore runs.db>"
    assert repr(store_named(f"sqlite:///{tmp_path}/a.db")) == f"<SqliteStore {tmp_path}/a.db>"
    for name in ("runs.db", "sqlite:", "sqlite:///", "postgres://x", ""):
        with pytest.raises(ConfigurationError, match="sqlite:///FILE"):
            store_named(name)


# --- the chain -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        "update remit_payload set body = cast('row X' as blob) where seq = 2",
        "update remit_row set kind = 'done' where seq = 2",
        "update remit_row set epoch = 7 where seq = 2",
        "update remit_row set digest = zeroblob(32) where seq = 2",
        "delete from remit_row where seq = 2",
        "delete from remit_row where seq = 3",
        "delete from remit_payload where seq = 1",
        "update remit_payload set id = id + 100 where seq < 3; update remit_payload set id = id + 103 - 2 * seq where seq > 100",
        "update remit_run set head = zeroblob(32)",
        "update remit_run set next_seq = next_seq + 1",
    ],
)
def test_damage_is_found_out(opened: Callable[..., SqliteStore], path: Path, damage: str) -> None:
    """J2: whatever was changed, dropped or swapped, the run is not gone on with."""
    store = opened()
    asyncio.run(begun(store, rows=3))
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(damage)
    connection.close()
    with pytest.raises(JournalError):
        asyncio.run(opened().read("r"))


def test_rows_from_the_middle_on_are_verified_too(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J2: who reads only what is new reads no forged row."""
    store = opened()
    asyncio.run(begun(store, rows=3))
    assert [row.seq for row in asyncio.run(store.read("r", 1))] == [2, 3]
    assert asyncio.run(store.read("r", 3)) == []
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update remit_payload set body = cast('x' as blob) where seq = 3")
    connection.close()
    with pytest.raises(JournalError, match="row 3"):
        asyncio.run(opened().read("r", 1))


def test_without_the_key_nobody_continues_a_chain(opened: Callable[..., SqliteStore]) -> None:
    """J2: it is an HMAC then, and another key, or none, is refused at the door."""
    store = opened(key=b"secret")
    asyncio.run(begun(store, rows=1))
    store.close()
    for key in (b"other", None):
        with pytest.raises(JournalError, match="REMIT_STORE_KEY"):
            asyncio.run(opened(key=key).read("r"))
    assert len(asyncio.run(opened(key=b"secret").read("r"))) == 2


def test_links_depend_on_everything_that_they_stand_for() -> None:
    """J2: order, epoch, kind, payload, salt and key."""
    chain = Chain()
    digest = chain.digest(b"salt", b"payload")
    plain = chain.link(START, seq=1, epoch=1, kind="said", digest=digest)
    others = {
        chain.link(plain, seq=1, epoch=1, kind="said", digest=digest),
        chain.link(START, seq=2, epoch=1, kind="said", digest=digest),
        chain.link(START, seq=1, epoch=2, kind="said", digest=digest),
        chain.link(START, seq=1, epoch=1, kind="sai", digest=b"d" + digest),
        chain.link(START, seq=1, epoch=1, kind="said", digest=chain.digest(b"salz", b"payload")),
        Chain(b"key").link(START, seq=1, epoch=1, kind="said", digest=digest),
    }
    assert len(others | {plain}) == 7


# --- one writer ----------------------------------------------------------------------------------


def test_a_run_that_another_worker_writes_is_held(opened: Callable[..., SqliteStore]) -> None:
    """J2: also for one that opens the same file in the same process."""

    async def main() -> None:
        mine, other = opened(), opened()
        lease = await begun(mine)
        assert await other.acquire("r", "two") == Held("one")
        await mine.release(lease)
        assert isinstance(await other.acquire("r", "two"), Lease)

    asyncio.run(main())


def test_a_worker_that_hangs_is_taken_over_from_and_fenced(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J2: its lease passes on its own clock before anybody may take it, and its epoch is no longer the run's."""

    async def main() -> None:
        hangs, other = opened(), opened()
        lease = await begun(hangs, rows=1)
        hangs._open().writer.stop()  # as a process that is stopped: no heartbeat goes out
        assert hangs.holds(lease)
        hangs._open()._beat_at -= 8.1  # what its own clock will show
        assert not hangs.holds(lease)
        assert await other.acquire("r", "two") == Held("one"), "others give it the whole lease"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update remit_worker set beat_at = beat_at - 11")
        connection.close()
        taken = await other.acquire("r", "two")
        assert isinstance(taken, Lease)
        assert taken.epoch == lease.epoch + 1
        hangs.close()
        with pytest.raises(Fenced):
            await hangs.append(lease, [NewRow("late", b"")])
        await other.append(taken, [NewRow("said", b"on")])
        assert [row.kind for row in await other.read("r")] == ["opened", "said", "said"]

    asyncio.run(main())


def test_a_worker_that_is_heard_again_relies_on_no_lease_from_before_its_silence(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J2: a heartbeat says that it lives, not that its runs were left to it; a transaction of the run does."""

    async def main() -> None:
        stopped, other = opened(), opened()
        lost = await begun(stopped, rows=1)
        kept = await begun(stopped, "kept")
        stopped._open()._beat_at -= 11
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update remit_worker set beat_at = beat_at - 11")
        connection.close()
        assert isinstance(await other.acquire("r", "two"), Lease)
        await stopped.post("kept", "input")  # a heartbeat goes out with it
        assert not stopped.holds(lost)
        assert not stopped.holds(kept), "it cannot know yet"
        await stopped.append(kept, [NewRow("said", b"on")])
        assert stopped.holds(kept)
        assert not stopped.holds(lost)

    asyncio.run(main())


def test_a_step_of_the_calendar_makes_nobody_look_dead(
    opened: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """J2: leases are on a clock that nobody sets."""

    async def main() -> None:
        mine, other = opened(), opened()
        lease = await begun(mine)
        later = time.time() + 3_600
        monkeypatch.setattr(time, "time", lambda: later)
        assert await other.acquire("r", "two") == Held("one")
        assert mine.holds(lease)

    asyncio.run(main())


def test_a_heartbeat_from_before_the_machine_was_started_anew_is_that_of_a_dead_worker(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J2, J3: the monotonic clock may have begun again behind it."""

    async def main() -> None:
        dead, other = opened(), opened()
        await begun(dead)
        dead._open().writer.stop()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update remit_worker set beat_at = beat_at + 100000")
        connection.close()
        assert isinstance(await other.acquire("r", "two"), Lease)

    asyncio.run(main())


def test_what_dead_workers_leave_behind_is_cleared_away_by_the_next_that_opens_the_store(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J2: a store on which processes are killed all day does not fill with their locks; who lives keeps its own."""
    code = f"""
        import asyncio, os
        from remit.store.base import NewRow, NewRun
        from remit.store.sqlite import SqliteStore

        async def main():
            store = SqliteStore({str(path)!r})
            await store.create(NewRun("r", b"spec", NewRow("opened", b"{{}}")))
            await store.acquire("r", "killed")
            os._exit(0)

        asyncio.run(main())
    """

    def workers() -> tuple[int, int]:
        with closing(sqlite3.connect(path)) as connection, connection:
            [(rows,)] = connection.execute("select count(*) from remit_worker")
        connection.close()
        return rows, len(list((path.parent / f"{path.name}.d" / "workers").iterdir()))

    async def main() -> None:
        lives = opened()
        lease = await begun(lives, "mine")
        for _ in range(2):
            died = [sys.executable, "-c", textwrap.dedent(code)]
            await asyncio.to_thread(subprocess.run, died, check=True)
        assert workers() == (2, 2), "the living one, and the newest of the dead"
        last = opened()
        assert isinstance(await last.acquire("r", "two"), Lease)
        assert await last.acquire("mine", "two") == Held("one")
        assert lives.holds(lease)
        assert workers() == (2, 2), "two that live"

    asyncio.run(main())


def test_a_process_that_was_killed_is_taken_over_from_at_once(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J2, J3: its lock is gone with it; nobody waits for the lease to pass."""
    code = f"""
        import asyncio
        from remit.store.base import NewRow, NewRun
        from remit.store.sqlite import SqliteStore

        async def main():
            store = SqliteStore({str(path)!r})
            await store.create(NewRun("r", b"spec", NewRow("opened", b"{{}}")))
            lease = await store.acquire("r", "killed")
            await store.append(lease, [NewRow("said", b"so far")])
            print("ready", flush=True)
            await asyncio.sleep(60)

        asyncio.run(main())
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        store = opened()
        assert asyncio.run(store.acquire("r", "two")) == Held("killed")
        process.kill()
        process.wait()
        began = time.monotonic()
        lease = asyncio.run(store.acquire("r", "two"))
        assert isinstance(lease, Lease)
        assert (lease.epoch, lease.next_seq) == (2, 2)
        assert time.monotonic() - began < 5
        assert [row.body for row in asyncio.run(store.read("r"))] == [b"{}", b"so far"]
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


# --- transactions --------------------------------------------------------------------------------


def test_what_is_written_at_the_same_time_shares_a_transaction(
    opened: Callable[..., SqliteStore],
) -> None:
    """J1: and one that is refused takes nobody along."""

    async def main() -> None:
        store = opened()
        leases = [await begun(store, f"r{n}") for n in range(100)]
        before = store._open().writer.commits
        lost = msgspec.structs.replace(leases[0], epoch=99)
        ends = await asyncio.gather(
            *(store.append(lease, [NewRow("said", b"x")]) for lease in leases[:50]),
            store.append(lost, [NewRow("late", b"")]),  # where others are queued around it
            *(store.append(lease, [NewRow("said", b"x")]) for lease in leases[50:]),
            return_exceptions=True,
        )
        assert [type(end) for end in ends if isinstance(end, Exception)] == [Fenced]
        assert store._open().writer.commits - before <= 10
        for lease in leases:
            assert len(await store.read(lease.run_id)) == 2

    asyncio.run(main())


def test_a_cancelled_append_ends_as_it_ends_and_then_is_cancelled(
    opened: Callable[..., SqliteStore],
) -> None:
    """K1, J2: whoever is cancelled knows what was written, and hears of the cancellation at the next wait."""

    async def main() -> None:
        store = opened()
        lease = await begun(store)
        after: list[int] = []

        async def writes() -> None:
            await store.append(lease, [NewRow("said", b"x")])
            after.append(lease.next_seq)
            await asyncio.sleep(0)
            after.append(-1)

        task = asyncio.create_task(writes())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert after == [2]
        assert len(await store.read("r")) == 2

    asyncio.run(main())


def test_a_full_disk_is_a_typed_error_and_nothing_is_half_there(
    opened: Callable[..., SqliteStore],
) -> None:
    """J2: the rows of one append are there or they are not."""

    async def main() -> None:
        store = opened()
        lease = await begun(store, rows=1)

        def fill(connection: sqlite3.Connection) -> None:
            (pages,) = connection.execute("pragma page_count").fetchone()
            connection.execute(f"pragma max_page_count = {pages + 20}")

        await store._do(fill)
        with pytest.raises(JournalError, match="full"):
            await store.append(lease, [NewRow("said", b"x"), NewRow("said", b"y" * 1_000_000)])
        assert [row.body for row in await store.read("r")] == [b"{}", b"row 0"]
        assert (await store.append(lease, [NewRow("said", b"small")])).status == "running"

    asyncio.run(main())


# --- files that are no store ---------------------------------------------------------------------


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    """J2: another program's database, another kind of file, a folder, a newer store."""
    foreign, text, newer = tmp_path / "foreign.db", tmp_path / "text.db", tmp_path / "newer.db"
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("create table theirs(x)")
    connection.close()
    text.write_text("not a database at all, but long enough to be taken for one " * 20)
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("pragma application_id = 1919249780")
        connection.execute("pragma user_version = 99")
    connection.close()
    for path, words in ((foreign, "no store"), (text, "not a database"), (newer, "version 99")):
        before = path.read_bytes()
        store = SqliteStore(path)
        try:
            for _ in range(2):
                with pytest.raises(JournalError, match=words):
                    asyncio.run(store.read("r"))
        finally:
            store.close()
        assert path.read_bytes() == before
    folder = SqliteStore(tmp_path)
    with pytest.raises(JournalError):
        asyncio.run(folder.read("r"))
    folder.close()


def test_a_database_that_another_process_locks_is_a_typed_error(
    opened: Callable[..., SqliteStore], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J2: it is waited for, and not for ever; afterwards everything goes on."""
    monkeypatch.setattr("remit.store.sqlite.opening._BUSY_SECONDS", 0.05)
    store = opened()
    lease = asyncio.run(begun(store))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, connection:
        connection.execute("begin immediate")
        with pytest.raises(JournalError, match="locked"):
            asyncio.run(store.append(lease, [NewRow("said", b"x")]))
        connection.execute("rollback")
    connection.close()
    asyncio.run(store.append(lease, [NewRow("said", b"y")]))
    assert [row.body for row in asyncio.run(store.read("r"))] == [b"{}", b"y"]


def test_what_a_call_came_to_late_is_kept_by_a_process_that_opened_the_file_before_it_was_migrated(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J2, E4: it leaves no row of its own, and its statements name no columns; the run goes on with it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        for statement in (each for step in _STEPS[:2] for each in step):
            older.execute(statement)
        older.execute(f"pragma application_id = {APPLICATION_ID}")
        older.execute("pragma user_version = 2")
        store = opened()
        asyncio.run(begun(store))
        late = Artifact.of(b"what it came to", "text/plain")
        older.execute(
            "insert or ignore into remit_artifact values (?, ?, ?, ?)",
            (late.digest, late.media_type, len(late.data), late.data),
        )
        older.execute("insert or ignore into remit_holding values (?, ?)", ("r", late.digest))
    assert asyncio.run(store.artifact("r", late.digest)) == late
    assert [each for each in asyncio.run(store.check()) if "artifact" in each.what] == []


def test_a_damaged_run_of_the_first_version_keeps_no_other_from_being_migrated(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J2: what cannot be read of it is left out of the list, and it is refused itself."""
    bodies = {
        "whole": b'{"remit":"clinic"}',
        "cut": b'{"remit":"cli',
        "strange": b"\xff\x00",
        "gone": None,
    }
    with closing(sqlite3.connect(path)) as older, older:
        for statement in _STEPS[0]:
            older.execute(statement)
        for run_id, body in bodies.items():
            older.execute(
                "insert into remit_run values (?, x'', null, ?, 'ended', null, null, 1, 1, x'', 0, 0, 1.0, 2.0)",
                (run_id, run_id),
            )
            older.execute("insert into remit_row values (?, 0, 1, 'ended', x'', x'')", (run_id,))
            if body is not None:
                older.execute("insert into remit_payload values (?, 0, x'', ?)", (run_id, body))
        older.execute(f"pragma application_id = {APPLICATION_ID}")
        older.execute("pragma user_version = 1")
    store = opened()
    listed = asyncio.run(store.runs(RunQuery(), count=9))
    assert {each.run_id: each.remit for each in listed} == {
        "whole": "clinic",
        "cut": "",
        "strange": "",
        "gone": "",
    }
    with pytest.raises(JournalError):
        asyncio.run(store.read("cut"))


# --- artifacts -----------------------------------------------------------------------------------


def test_large_artifacts_are_files_and_small_ones_are_rows(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """X2, J1: either is there with the row that names it, also when the file is opened again."""
    small = Artifact.of(b"s" * 1_000, "text/plain")
    large = Artifact.of(b"l" * (INLINE_BYTES + 1), "text/plain")

    async def main() -> None:
        store = opened()
        lease = await begun(store)
        await store.append(lease, [NewRow("said", b"x")], artifacts=[small, large])
        again = opened()
        assert await again.artifact("r", small.digest) == small
        assert await again.artifact("r", large.digest[:12]) == large
        assert await again.artifact("r", large.digest[:11]) is None

    asyncio.run(main())
    [file] = (path.with_name("runs.db.d") / "artifacts").rglob(large.digest)
    assert path.stat().st_size < INLINE_BYTES
    file.write_bytes(b"other")
    with pytest.raises(JournalError, match="damaged"):
        asyncio.run(opened().artifact("r", large.digest))
    file.unlink()
    with pytest.raises(JournalError, match="cannot be read"):
        asyncio.run(opened().artifact("r", large.digest))


@pytest.mark.parametrize("statement", range(1, 5))
def test_a_file_that_another_process_makes_a_store_meanwhile_is_taken_for_none_of_somebody_elses(
    path: Path, statement: int
) -> None:
    """J2: it is looked at once, not piece by piece while it changes."""
    ours = sqlite3.connect(path)
    theirs = sqlite3.connect(path, timeout=0, isolation_level=None)  # ours waits for it meanwhile
    seen = 0

    def before_each(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen == statement:
            theirs.execute("begin immediate")
            migrate(theirs)
            theirs.execute("commit")

    ours.set_trace_callback(before_each)
    try:
        assert check(ours) in {0, VERSION}
    finally:
        ours.close()
        theirs.close()


def test_work_that_comes_at_the_very_moment_of_a_close_is_refused_and_not_forgotten(
    opened: Callable[..., SqliteStore],
) -> None:
    """J2: nobody waits for ever for what no thread will do."""
    store = opened()

    async def main() -> None:
        await store.info("r")
        opening = store._open()
        last = opening.writer.submit(lambda _: "done")
        store.close()
        assert await last == "done", "what was queued before is finished"
        with pytest.raises(JournalError):
            opening.writer.submit(lambda _: "never")

    asyncio.run(main())


def test_what_no_store_can_hold_fails_alone_and_takes_none_of_those_along_who_share_its_transaction(
    opened: Callable[..., SqliteStore],
) -> None:
    """J2, E5: an id out of a stranger's request, such as half of a surrogate pair, ends no run of others."""
    entered, held = threading.Event(), threading.Event()
    store = opened()

    async def main() -> list[object]:
        lease = await begun(store)

        def hold(_: sqlite3.Connection) -> None:
            entered.set()
            assert held.wait(30)

        first = store._open().writer.submit(hold)
        await asyncio.to_thread(entered.wait, 30)
        works = [
            store.decide(pending_id="\ud800", decision=b"", now=datetime.now(UTC)),
            store.append(lease, [NewRow("said", b"kept")]),
            store.post("r", "input", cast("bytes", object())),
            store.post("r", "input", b"heard"),
            store.renew(cast("str", 2**70), b""),
            store.create(NewRun("\ud800", b"", NewRow("opened", b""))),
        ]
        tasks = [asyncio.ensure_future(work) for work in works]
        await asyncio.sleep(0)
        held.set()
        await first
        return await asyncio.gather(*tasks, return_exceptions=True)

    before = store.commits
    ends = asyncio.run(main())
    assert [type(end).__name__ for end in ends] == [
        "DecisionError", "Control", "JournalError", "bool", "JournalError", "JournalError"
    ]  # fmt: skip
    assert store.commits - before == 4, "they shared one"
    assert [row.body for row in asyncio.run(store.read("r"))][1:] == [b"kept"]
    assert [each.body for each in asyncio.run(store.inbox("r"))] == [b"heard"]


def test_texts_that_are_none_are_unknown_tokens_and_typed_errors(
    opened: Callable[..., SqliteStore],
) -> None:
    """E5, J2: half of a surrogate pair, as JSON can bring it, is a token like any other that nobody minted."""
    store = opened()
    desk = Remit(
        name="desk",
        model=ScriptedModel(["done"]),
        limits=Limits(steps=1, tokens=10_000, seconds=60),
        store=store,
    )
    with pytest.raises(DecisionError, match="no proposal"):
        asyncio.run(desk.decide("\ud800", approve=True, by="dana"))
    for named in ({"run_id": "\ud800"}, {"session": "\ud800"}):
        with pytest.raises(ConfigurationError, match="there is no"):
            asyncio.run(store.erase(**named))
    with pytest.raises(ConfigurationError, match="tags="):
        asyncio.run(desk.run("go", tags={"team": "\ud800"}))


@pytest.mark.parametrize("name", ["/", "a\0b.db"])
def test_a_path_that_names_no_file_is_refused_where_it_is_given(name: str) -> None:
    """J2: as a wrong call, not as an error of the library's own."""
    with pytest.raises(ConfigurationError, match="names no file"):
        SqliteStore(name)


@pytest.mark.parametrize("name", ["", ".", "/", "a\0b.db"])
def test_a_backup_to_what_names_no_file_is_refused(
    opened: Callable[..., SqliteStore], name: str
) -> None:
    """J2: and nothing is made."""
    store = opened()
    asyncio.run(begun(store))
    with pytest.raises(ConfigurationError, match=r"names no file|is there already"):
        asyncio.run(store.backup(Path(name)))


def test_who_is_under_way_is_told_before_those_who_have_yet_to_begin(
    opened: Callable[..., SqliteStore],
) -> None:
    """J11, J1: of many that begin at once the first are done, and let go of what they hold, before the last begin; and
    those that begin are not kept waiting by what is under way.
    """
    store = opened()

    async def main() -> None:
        lease = await begun(store)
        order: list[str] = []
        entered, held = threading.Event(), threading.Event()

        def hold(_: sqlite3.Connection) -> None:
            entered.set()
            assert held.wait(30)

        async def told(name: str, work: Coroutine[Any, Any, object]) -> None:
            await work
            order.append(name)

        first = store._open().writer.submit(hold)
        await asyncio.to_thread(entered.wait, 30)
        begins = [
            told("new", store.create(NewRun(f"r{n}", b"", NewRow("opened", b""))))
            for n in range(30)
        ]
        posts = [told("old", store.post("r", "input", b"x")) for _ in range(30)]
        appends = [told("old", store.append(lease, [NewRow("said", b"x")]))]
        tasks = [asyncio.ensure_future(each) for each in (*begins, *posts, *appends)]
        await asyncio.sleep(0)
        held.set()
        await first
        await asyncio.gather(*tasks)
        last = max(at for at, name in enumerate(order) if name == "old")
        assert 1 <= order[:last].count("new") <= 5, order
        assert len(order) == 61

    asyncio.run(main())
