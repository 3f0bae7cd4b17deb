"""A store in surroundings that are against it: a typed error or `journal_failed`, what to do, and nothing half there."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from remit import Limits, Outcome, Reason, Remit, tool
from remit.artifacts import Artifact
from remit.errors import Fenced, JournalError
from remit.models.scripted import ScriptedModel
from remit.store.base import Held, Lease, NewRow, NewRun, StoredRow
from remit.store.sqlite import SqliteStore
from remit.store.sqlite.files import INLINE_BYTES
from remit.store.sqlite.opening import _into_wal

SRC = Path(__file__).resolve().parent.parent / "src"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def opened() -> Iterator[Callable[..., SqliteStore]]:
    """Opens a file as another process would."""
    stores: list[SqliteStore] = []

    def opens(path: Path, **options: Any) -> SqliteStore:
        stores.append(SqliteStore(path, **options))
        return stores[-1]

    yield opens
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


def while_it_runs(store: SqliteStore, happens: Callable[[], object]) -> Outcome[Any]:
    """A run in the middle of which something happens to the file."""

    @tool(effect="read")
    async def look(n: int) -> str:
        """Look."""
        if n == 1:
            happens()
        return "seen" * 1_000

    desk = Remit(
        name="desk",
        model=ScriptedModel([("look", {"n": n}) for n in range(3)] + ["done"]),
        tools=[look],
        limits=Limits(steps=9, tokens=1_000_000, seconds=60),
        store=store,
    )
    return asyncio.run(desk.run("go", run_id="x"))


def in_a_process(code: str) -> str:
    """What a script prints. As root it may become nobody, whom permissions bind."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# --- the file goes away --------------------------------------------------------------------------


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    shutil.copy(path, other)
    other.replace(path)


def delete_the_log(path: Path) -> None:
    path.with_name("runs.db-wal").unlink()


def remove_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    "happens", [delete, move, replace, delete_the_log, remove_the_folder], ids=lambda f: f.__name__
)
def test_what_is_not_in_the_file_of_that_name_is_not_acknowledged(
    path: Path, opened: Callable[..., SqliteStore], happens: Callable[[Path], None]
) -> None:
    """Q3, J2: SQLite goes on writing where nobody will ever read; the run ends and says why."""
    store = opened(path)
    outcome = while_it_runs(store, lambda: happens(path))
    assert outcome.reason is Reason.JOURNAL_FAILED
    assert "while the store was open" in (outcome.error or "")
    gone = happens not in (replace, delete_the_log)
    assert path.exists() is not gone, "no empty file takes its place"
    for _ in range(2):
        with pytest.raises(JournalError, match="while the store was open"):
            asyncio.run(begun(store, "y"))
    assert path.exists() is not gone


def test_what_was_acknowledged_before_is_whole_where_the_file_went(
    path: Path, opened: Callable[..., SqliteStore]
) -> None:
    """Q3, J2, J3: put back, the run goes on from its last good row."""
    store = opened(path)
    assert while_it_runs(store, lambda: move(path)).reason is Reason.JOURNAL_FAILED
    store.close()
    for left in path.parent.glob("runs.db-*"):
        left.rename(left.with_name(left.name.replace("runs", "elsewhere")))
    move_back = path.with_name("elsewhere.db")
    move_back.rename(path)
    for left in path.parent.glob("elsewhere.db-*"):
        left.rename(left.with_name(left.name.replace("elsewhere", "runs")))
    again = opened(path)
    rows = asyncio.run(again.read("x"))
    assert [row.seq for row in rows] == list(range(len(rows)))
    assert rows[0].kind == "opened"


# --- no room, no right ---------------------------------------------------------------------------


def test_a_full_disk_ends_the_run_and_with_room_it_goes_on(tmp_path: Path) -> None:
    """Q3, J2, J3: the limit is the kernel's; no finished call is repeated."""
    told = in_a_process(f"""
        import asyncio, resource
        from remit import Limits, Remit, tool
        from remit.models.scripted import ScriptedModel
        from remit.store.sqlite import SqliteStore

        store = SqliteStore("{tmp_path}/runs.db")
        FREE = resource.getrlimit(resource.RLIMIT_FSIZE)
        done = []

        @tool(effect="idempotent")
        async def work(n: int) -> str:
            '''Work.'''
            done.append(n)
            if n == 1 and len(done) == 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, FREE[1]))
            return str(n) * 300_000

        def desk(script):
            return Remit(name="desk", model=ScriptedModel(script), tools=[work],
                         limits=Limits(steps=9, tokens=10_000_000, seconds=60),
                         store=store)

        calls = [("work", {{"n": n}}) for n in range(3)]
        first = asyncio.run(desk([*calls, "done"]).run("go", run_id="x"))
        print(first.reason, first.error)
        resource.setrlimit(resource.RLIMIT_FSIZE, FREE)
        second = asyncio.run(desk([calls[2], "done"]).resume("x"))
        print(second.reason, done)
        """)
    first, second = told.splitlines()
    assert first.startswith("journal_failed the store ")
    assert "disk" in first
    assert second in ("completed [0, 1, 2]", "completed [0, 1, 1, 2]")


def test_who_may_not_write_is_told_so(tmp_path: Path) -> None:
    """Q3: a file, and a folder, that may only be read; nothing is left in either."""
    folder = Path(tempfile.mkdtemp(prefix="remit-readonly-"))
    try:
        for name in ("file", "folder"):
            store = SqliteStore(folder / name / "runs.db")
            asyncio.run(begun(store, rows=1))
            store.close()
        folder.chmod(0o755)
        for each in folder.rglob("*"):
            each.chmod(0o777 if each.is_dir() else 0o666)
        (folder / "file" / "runs.db").chmod(0o444)
        shutil.rmtree(folder / "folder" / "runs.db.d")
        (folder / "folder").chmod(0o555)
        before = sorted(str(each) for each in (folder / "folder").rglob("*"))
        told = in_a_process(f"""
            import asyncio, os
            from remit.errors import JournalError
            from remit.store.base import NewRow, NewRun
            from remit.store.sqlite import SqliteStore

            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            for name in ("file", "folder"):
                store = SqliteStore({str(folder)!r} + "/" + name + "/runs.db")
                try:
                    asyncio.run(store.create(NewRun("y", b"spec", NewRow("opened", b"x"))))
                except JournalError as error:
                    print(error)
                store.close()
            """)
        file, shut = told.splitlines()
        assert "may not be written by this user" in file
        assert "cannot be opened" in shut
        assert "Permission denied" in shut
        assert sorted(str(each) for each in (folder / "folder").rglob("*")) == before
    finally:
        (folder / "folder").chmod(0o755)
        shutil.rmtree(folder)


def test_what_is_made_is_its_owners_alone(
    tmp_path: Path, opened: Callable[..., SqliteStore]
) -> None:
    """Q3: transcripts are private, whatever the umask lets others do; in a folder that was missing, too."""
    before = os.umask(0)
    try:
        path = tmp_path / "not" / "there" / "runs.db"
        store = opened(path)
        large = Artifact.of(b"l" * (INLINE_BYTES + 1), "text/plain")

        async def main() -> None:
            lease = await begun(store)
            await store.append(lease, [NewRow("said", b"x")], artifacts=[large])

        asyncio.run(main())
    finally:
        os.umask(before)
    files = [path, path.with_name("runs.db-wal"), path.with_name("runs.db-shm")]
    files += [each for each in path.with_name("runs.db.d").rglob("*") if each.is_file()]
    assert any(each.name == large.digest for each in files)
    for each in files:
        if each.suffix != ".lock":  # it says nothing, and stands in a folder that is closed
            assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
    for folder in (path.with_name("runs.db.d"), *path.with_name("runs.db.d").rglob("*")):
        if folder.is_dir():
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


# --- damage --------------------------------------------------------------------------------------


def test_a_flipped_byte_is_found_out_or_changes_nothing(
    path: Path, tmp_path: Path, opened: Callable[..., SqliteStore]
) -> None:
    """Q3, J2: anywhere in the file; what is read is what was written, or a typed error."""
    store = opened(path)
    asyncio.run(begun(store, rows=30))
    written = asyncio.run(store.read("r"))
    store.close()
    whole, draw, refused = path.read_bytes(), random.Random(7), 0
    used = [at for at in range(len(whole)) if whole[at]]
    for number in range(60):
        damaged = bytearray(whole)
        damaged[draw.choice(used)] ^= 1 << draw.randrange(8)
        copy = tmp_path / f"{number}.db"
        copy.write_bytes(damaged)
        after = opened(copy)
        try:
            assert asyncio.run(after.read("r")) == written
        except JournalError:
            refused += 1
        after.close()
    assert 3 < refused < 60


def test_a_store_of_another_key_is_refused_while_the_first_goes_on(
    path: Path, opened: Callable[..., SqliteStore]
) -> None:
    """Q3, J2: two processes, two keys."""
    one = opened(path, key=b"one")
    lease = asyncio.run(begun(one))
    with pytest.raises(JournalError, match="REMIT_STORE_KEY"):
        asyncio.run(begun(opened(path, key=b"two"), "s"))
    asyncio.run(one.append(lease, [NewRow("said", b"on")]))
    assert len(asyncio.run(one.read("r"))) == 2


def test_a_file_of_somebody_else_ends_no_run_and_begins_none(tmp_path: Path) -> None:
    """Q3: before anything is sent; the file stays as it is."""
    foreign = tmp_path / "theirs.db"
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("create table theirs(x)")
    connection.close()
    before = foreign.read_bytes()
    model = ScriptedModel(["never"], record=True)
    limits = Limits(steps=1, tokens=10_000, seconds=9)
    desk = Remit(name="desk", model=model, limits=limits, store=f"sqlite:///{foreign}")
    with pytest.raises(JournalError, match="no store of remit's: name another file"):
        asyncio.run(desk.run("go"))
    assert model.requests == []
    assert foreign.read_bytes() == before
    assert isinstance(desk.store, SqliteStore)
    desk.store.close()
    with pytest.raises(JournalError, match="no store of remit's"):
        asyncio.run(SqliteStore(foreign).backup(foreign.with_name("copy.db")))
    assert [each.name for each in foreign.parent.iterdir()] == [foreign.name]


# --- locks, logs and clocks ----------------------------------------------------------------------


def test_a_lock_that_lasts_ends_the_run_as_journal_failed(
    path: Path, opened: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q3: and when it is gone the run goes on."""
    monkeypatch.setattr("remit.store.sqlite.opening._BUSY_SECONDS", 0.05)
    locks = sqlite3.connect(path, isolation_level=None)
    store = opened(path)
    outcome = while_it_runs(store, lambda: locks.execute("begin immediate"))
    assert outcome.reason is Reason.JOURNAL_FAILED
    assert "locked" in (outcome.error or "")
    assert "another process holds it" in (outcome.error or "")
    locks.execute("rollback")
    locks.close()
    rows = asyncio.run(store.read("x"))
    assert rows[-1].kind != "ended"
    assert isinstance(asyncio.run(store.acquire("x", "again")), Lease)


def test_a_file_system_without_a_log_is_refused_with_the_cause(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q3, J2: without one a commit would not be what this store says of it."""
    monkeypatch.setattr("remit.store.sqlite.opening._BUSY_SECONDS", 0.0)
    connection = sqlite3.connect(f"file:{path}?vfs=unix-none", uri=True)
    with pytest.raises(JournalError, match="Put the store on a disk of this machine"):
        _into_wal(connection)
    connection.close()


@pytest.mark.parametrize("hours", [1, -1])
def test_when_a_clock_steps_two_may_believe_and_one_can_write(
    path: Path, opened: Callable[..., SqliteStore], hours: int
) -> None:
    """Q3, J2: a heartbeat that seems an hour old, or of an hour to come, lets a run be taken; the epoch fences."""

    async def main() -> None:
        one, two = opened(path), opened(path)
        lease = await begun(one, rows=1)
        await begun(two, "of two")
        with (
            closing(sqlite3.connect(path)) as connection,
            connection,
        ):  # what a clock that stepped would show
            connection.execute("update remit_worker set beat_at = beat_at - ?", (hours * 3600,))
        connection.close()
        taken = await two.acquire("r", "two")
        assert isinstance(taken, Lease)
        with pytest.raises(Fenced):
            await one.append(lease, [NewRow("late", b"")])
        await two.append(taken, [NewRow("said", b"two")])
        rows = await two.read("r")
        assert [row.body for row in rows] == [b"{}", b"row 0", b"two"]

    asyncio.run(main())


# --- names and processes -------------------------------------------------------------------------


def test_all_names_of_a_file_are_one_store(
    path: Path, tmp_path: Path, opened: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q3, J2: through links, by relative paths, and after the folder was changed: who is alive is alive."""
    link, folder = tmp_path / "link.db", tmp_path / "folder"
    link.symlink_to(path)
    folder.symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    relative = opened(Path("runs.db"))
    monkeypatch.chdir("/")
    large = Artifact.of(b"l" * (INLINE_BYTES + 1), "text/plain")

    async def main() -> None:
        lease = await begun(relative)
        await relative.append(lease, [NewRow("said", b"x")], artifacts=[large])
        names = (
            path,
            link,
            folder / "runs.db",
            tmp_path / "folder" / ".." / tmp_path.name / "link.db",
        )
        for name in names:
            other = opened(name)
            assert await other.acquire("r", "two") == Held("one"), name
            assert await other.artifact("r", large.digest) == large, name

    asyncio.run(main())
    assert not link.with_name("link.db.d").exists()


def test_a_process_that_is_forked_off_may_not_go_on_with_an_open_store(path: Path) -> None:
    """Q3, J2: SQLite loses what such a process commits; one that was closed before may be used."""
    told = in_a_process(f"""
        import asyncio, os
        from remit.errors import JournalError
        from remit.store.base import NewRow, NewRun
        from remit.store.sqlite import SqliteStore

        store = SqliteStore({str(path)!r})

        def makes(run_id, store):
            try:
                asyncio.run(store.create(NewRun(run_id, b"spec", NewRow("opened", b"x"))))
            except JournalError as error:
                print(error, flush=True)

        def forked(work):
            process = os.fork()
            if not process:
                work()
                os._exit(0)
            os.waitpid(process, 0)

        makes("parent", store)
        forked(lambda: makes("child", store))
        forked(lambda: makes("child", SqliteStore({str(path)!r})))
        store.close()
        forked(lambda: makes("after", SqliteStore({str(path)!r})))
        for run_id in ("parent", "child", "after"):
            print(run_id, asyncio.run(store.info(run_id)) is not None)
        """)
    *refused, parent, child, after = told.splitlines()
    assert len(refused) == 2
    assert all("Close it before you fork" in line for line in refused)
    assert (parent, child, after) == ("parent True", "child False", "after True")


def test_rows_of_a_file_that_was_closed_and_deleted_are_gone_and_a_new_store_is_empty(
    path: Path, opened: Callable[..., SqliteStore]
) -> None:
    """Q3: what nobody had open is a matter of its owner's: the next use begins a new store."""
    store = opened(path)
    asyncio.run(begun(store))
    store.close()
    path.unlink()
    assert asyncio.run(store.info("r")) is None
    asyncio.run(begun(store))
    assert asyncio.run(store.read("r")) == [StoredRow(0, "opened", b"{}")]
