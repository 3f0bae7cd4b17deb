"""What is kept of runs, and for how long: erased, pruned, checked, copied."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from remit import Call, Limits, Remit, tool
from remit.artifacts import Artifact
from remit.errors import ConfigurationError, DecisionError, JournalError, RunBusy
from remit.models.scripted import ScriptedModel
from remit.store.base import Lease, NewRow, NewRun, RunStatus
from remit.store.directory import RunQuery
from remit.store.keeping import Finding, Keeping, Pruned
from remit.store.sqlite import SqliteStore, checking, keeping
from remit.store.sqlite.files import INLINE_BYTES
from remit.store.sqlite.schema import _STEPS, APPLICATION_ID

T = TypeVar("T")

SECRET = "alice-and-her-diagnosis"
LIMITS = Limits(steps=5, tokens=100_000, seconds=60)
DAY = timedelta(days=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "runs.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., SqliteStore]]:
    """Opens the store once more, as another process would."""
    stores: list[SqliteStore] = []

    def again(**options: Any) -> SqliteStore:
        stores.append(SqliteStore(path, **options))
        return stores[-1]

    yield again
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[..., SqliteStore]) -> SqliteStore:
    return opened()


def test_a_store_in_a_file_can_forget(store: SqliteStore) -> None:
    """J6, J7: it keeps the protocol, for type checkers at least."""
    forgetful: Keeping = store
    assert repr(forgetful)


def lines_of(path: Path) -> list[str]:
    """Where the secret still stands, over all files of the store."""
    needles = (SECRET.encode(), hashlib.sha256(SECRET.encode()).hexdigest()[:16].encode())
    return [
        f"{each.name}: {needle.decode()}"
        for each in path.parent.rglob("*")
        if each.is_file()
        for needle in needles
        if needle in each.read_bytes()
    ]


async def begin(store: SqliteStore, run_id: str, body: bytes = b"{}", **more: Any) -> Lease:
    assert await store.create(NewRun(run_id, b"spec", NewRow("opened", body), **more)) is True
    lease = await store.acquire(run_id, "me")
    assert isinstance(lease, Lease)
    return lease


async def end(
    store: SqliteStore,
    run_id: str,
    body: bytes = b"{}",
    *,
    status: RunStatus = "ended",
    artifacts: tuple[Artifact, ...] = (),
    **more: Any,
) -> None:
    lease = await begin(store, run_id, body, **more)
    reason = "completed" if status == "ended" else None
    row = NewRow("ended", b'{"reason":"completed"}')
    await store.append(lease, [row], status=status, reason=reason, artifacts=artifacts)
    await store.release(lease)


async def listed(store: SqliteStore) -> list[str]:
    return [entry.run_id for entry in await store.runs(RunQuery(), count=100)]


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount


async def age(store: SqliteStore, days: float) -> None:
    """Let time pass over everything that is there."""
    seconds = days * DAY.total_seconds()
    await store._do(
        lambda c: c.execute(
            "update remit_run set created_at = created_at - ?, ended_at = ended_at - ?",
            (seconds, seconds),
        )
    )


# Erasing


@tool(effect="read")
async def look_up(name: str, call: Call) -> str:
    """Look somebody up."""
    inner = Remit(
        name="inner",
        model=ScriptedModel([f"found {name}"]),
        limits=LIMITS,
    )
    outcome = await inner.run(f"search {name}")
    return f"{outcome.text} " + name * 3_000


@tool(effect="confirm")
async def treat(name: str) -> str:
    """Treat."""
    return f"treated {name}"


def clinic(store: SqliteStore, *turns: Any) -> Remit[Any]:
    return Remit(
        name="clinic",
        model=ScriptedModel(list(turns)),
        tools=[look_up, treat],
        limits=LIMITS,
        store=store,
    )


def test_nothing_that_was_said_in_an_erased_run_is_in_any_file(
    store: SqliteStore, path: Path
) -> None:
    """J6: prompt, arguments, results, the words of a run inside, artifacts, tags, proposals: all bytes are gone."""

    async def main() -> None:
        await clinic(store, "fine").run("How is bob?", run_id="other")
        asked = clinic(store, ("look_up", {"name": SECRET}), ("treat", {"name": SECRET}), "done")
        outcome = await asked.run(f"Treat {SECRET}", run_id="r", tags={"who": SECRET})
        await store.post("r", "input", SECRET.encode())
        assert [each.tool for each in outcome.pending] == ["treat"]
        assert len(await listed(store)) == 3
        await store._read(lambda c: c.execute("pragma wal_checkpoint(passive)"))
        erased = await store.erase(run_id="r")
        assert (erased.runs, erased.ended, erased.complete) == (2, ("r",), True)
        assert erased.artifacts >= 1
        assert await store.check() == []
        assert (await clinic(store).outcome("other")).text == "fine"

    asyncio.run(main())
    store.close()
    assert lines_of(path) == []


def test_bytes_that_sqlite_has_moved_about_are_gone_too(store: SqliteStore, path: Path) -> None:
    """J6: pages that were split hold nothing of what was moved away from them."""
    chance = random.Random(2)
    secret, harmless = SECRET.encode(), b"x" * len(SECRET)

    async def main() -> None:
        leases = {f"r{n}": await begin(store, f"r{n}") for n in range(12)}
        for _ in range(300):
            run_id = chance.choice(list(leases))
            said = secret if int(run_id[1:]) % 3 == 0 else harmless
            if chance.random() < 0.4:
                await store.post(run_id, "input", said * chance.randint(1, 40))
            else:
                rows = [NewRow("said", said * chance.choice([1, 10, 17, 60])) for _ in range(3)]
                await store.append(leases[run_id], rows)
        for run_id, lease in leases.items():
            await store.append(lease, (), status="ended", reason="completed")
            await store.release(lease)
            if int(run_id[1:]) % 3 == 0:
                assert (await store.erase(run_id=run_id)).complete
        assert await store.check() == []
        assert len(await store.read("r1")) > 1

    asyncio.run(main())
    store.close()
    assert lines_of(path) == []


def test_a_tombstone_says_that_something_was_and_lets_nobody_go_on(store: SqliteStore) -> None:
    """J6, E8: an erased run cannot be read, resumed, cancelled, told anything or started again; its chain verifies."""

    async def main() -> None:
        await clinic(store, "fine").run("hello", run_id="r")
        rows = await store.info("r")
        await store.erase(run_id="r")
        (entry,) = await store.runs(RunQuery(), count=10)
        assert (entry.run_id, entry.status, entry.reason) == ("r", "ended", "completed")
        assert entry.erased_at is not None
        assert (entry.tags, entry.session) == ({}, None)
        info = await store.info("r")
        assert info is not None
        assert rows is not None
        assert (info.rows, info.erased) == (rows.rows, True)
        remit = clinic(store, "again")
        for attempt in (
            remit.run("hello", run_id="r"),
            remit.resume("r"),
            remit.outcome("r"),
            remit.cancel("r"),
        ):
            with pytest.raises(ConfigurationError, match="erased"):
                await attempt
        for attempt in (store.read("r"), store.acquire("r", "me")):
            with pytest.raises(JournalError, match="erased"):
                await attempt
        assert not await store.post("r", "input", b"late")
        assert await store.check() == []
        assert (await store.erase(run_id="r")).runs == 0, "once more changes nothing"
        await store._do(lambda c: c.execute("update remit_row set epoch = 9 where seq = 1"))
        assert [(each.run_id, each.seq) for each in await store.check()] == [("r", 1)]

    asyncio.run(main())


def test_a_run_that_is_executed_is_not_erased(
    opened: Callable[..., SqliteStore], store: SqliteStore
) -> None:
    """J6, J2: who erases does not take a run away from the worker that has it; afterwards it is fenced."""
    other = opened()

    async def main() -> None:
        lease = await begin(store, "r", SECRET.encode())
        for each in (store, other):
            with pytest.raises(RunBusy):
                await each.erase(run_id="r")
        assert await store.read("r")
        await store.release(lease)
        erased = await other.erase(run_id="r")
        assert erased.ended == ("r",)

    asyncio.run(main())


def test_a_run_that_waits_is_ended_by_its_erasure(store: SqliteStore) -> None:
    """J6, E5: nobody approves any more what was erased."""

    async def main() -> None:
        remit = clinic(store, ("treat", {"name": SECRET}))
        outcome = await remit.run("go", run_id="r")
        (pending,) = outcome.pending
        assert (await store.erase(run_id="r")).ended == ("r",)
        with pytest.raises(DecisionError) as refused:
            await remit.decide(id=pending.id, approve=True, by="dana")
        assert refused.value.why == "unknown"
        (entry,) = await store.runs(RunQuery(), count=1)
        assert (entry.status, entry.reason) == ("ended", "cancelled")

    asyncio.run(main())


def test_an_erased_session_is_gone_with_its_name_and_begins_anew(
    store: SqliteStore, path: Path
) -> None:
    """J6: the name of a session may be somebody's, too; whoever uses it again finds an empty conversation."""

    async def main() -> None:
        for n in range(3):
            await clinic(store, "yes").run(f"{SECRET} {n}", run_id=f"s{n}", session=SECRET)
        await clinic(store, "hi").run("hello", run_id="t0", session="other")
        assert (await store.erase(session=SECRET)).runs == 3
        assert await store.runs(RunQuery(session=SECRET), count=10) == []
        outcome = await clinic(store, "hi").run("hello", session="s")
        assert len(outcome.transcript) == 2
        assert len((await clinic(store, "hi").run("more", session="other")).transcript) == 4
        assert await store.check() == []

    asyncio.run(main())
    store.close()
    assert lines_of(path) == []


def test_what_was_granted_to_a_session_goes_with_it(store: SqliteStore, path: Path) -> None:
    """J6, E5: arguments of a standing grant are somebody's words; pruning takes no grant of a session away."""

    async def main() -> None:
        remit = clinic(store, "fine")
        for session in ("s", "old"):
            await clinic(store, "fine").run("hello", session=session)
            await remit.grant(
                "treat", arguments={"name": SECRET}, session=session, expires=3_600, by="dana"
            )
        await store.erase(session="s")
        assert [each.session for each in await remit.grants()] == ["old"]
        await age(store, 10)
        assert (await store.prune(DAY)).runs == 2
        assert [each.session for each in await remit.grants()] == ["old"]
        await clinic(store, "fine").run("hello", session="old")
        await store.erase(session="old")
        assert list(await remit.grants()) == []

    asyncio.run(main())
    store.close()
    assert lines_of(path) == []


def test_what_another_run_holds_too_stays(store: SqliteStore, path: Path) -> None:
    """J6, X2: an artifact goes, as a row or as a file, with the last of those that hold it."""
    small, large = (Artifact.of(SECRET.encode() * n, "text/plain") for n in (100, 100_000))
    assert len(large.data) > INLINE_BYTES

    async def main() -> None:
        await end(store, "one", artifacts=(small, large))
        await end(store, "two", brought=(small.digest, large.digest))
        assert (await store.erase(run_id="one")).artifacts == 0
        assert await store.artifact("two", large.digest) == large
        assert await store.artifact("one", small.digest) is None
        assert (await store.erase(run_id="two")).artifacts == 2
        await end(store, "three", artifacts=(large,))
        assert await store.artifact("three", large.digest) == large
        assert (await store.erase(run_id="three")).artifacts == 1

    asyncio.run(main())
    store.close()
    assert lines_of(path) == []


def test_a_file_that_is_erased_while_somebody_keeps_the_same_bytes_is_written_again(
    store: SqliteStore,
) -> None:
    """J6, X2: between the file and the row that names it somebody else may remove the file."""
    large = Artifact.of(bytes(INLINE_BYTES + 1), "text/plain")

    async def main() -> None:
        lease = await begin(store, "r")
        opening = store._open()
        reached, go_on = threading.Event(), threading.Event()

        def hold(_: sqlite3.Connection) -> None:
            reached.set()
            go_on.wait(10)

        holding = asyncio.ensure_future(opening.do(hold))
        assert await asyncio.to_thread(reached.wait, 10)
        appending = asyncio.ensure_future(
            store.append(lease, [NewRow("said", b"{}")], artifacts=[large])
        )
        async with asyncio.timeout(10):
            while store._files.written_at(large.digest) == float("inf"):  # noqa: ASYNC110 - a file tells nobody that it is there
                await asyncio.sleep(0)
        store._files.remove(large.digest)
        go_on.set()
        await asyncio.gather(holding, appending)
        assert await store.artifact("r", large.digest) == large

    asyncio.run(main())


def test_an_erasure_that_was_cut_off_is_found_and_finished(store: SqliteStore) -> None:
    """J6: a tombstone with something under it is named by the check, and swept by whoever erases or prunes next."""

    async def main() -> None:
        await end(store, "r", SECRET.encode())
        await end(store, "other")
        await store._do(
            lambda c: c.execute("update remit_run set erased_at = 1 where run_id = 'r'")
        )
        assert {(each.run_id, each.seq) for each in await store.check()} == {("r", 0), ("r", 1)}
        await store.erase(run_id="other")
        assert await store.check() == []

    asyncio.run(main())


def test_an_erasure_that_is_at_work_is_not_told_as_cut_off(store: SqliteStore, path: Path) -> None:
    """J6, J8: what it has not swept yet is on its way out; what nobody sweeps is told, and nothing else."""
    kept = Artifact.of(b"kept", "text/plain")

    async def main() -> None:
        await end(store, "r", SECRET.encode(), artifacts=(kept,))
        await store._do(
            lambda c: c.execute("update remit_run set erased_at = 1 where run_id = 'r'")
        )
        await store._do(lambda c: c.execute("delete from remit_holding"))

    asyncio.run(main())
    sweeps = [
        "delete from remit_payload where run = 1 and seq = 0",
        "delete from remit_artifact",
        "delete from remit_payload",
    ]
    for swept, left in ((sweeps[:1], [1, None]), (sweeps[1:], [])):
        going = iter(swept)

        def pause(going: Iterator[str] = going) -> None:
            for statement in islice(going, 1):
                asyncio.run(store._do(lambda c, it=statement: c.execute(it)))

        found = list(checking.findings(path, store._chain, store._files, pause))
        assert [each.seq for each in found] == left
        assert all("erase or prune again" in each.what for each in found)


def test_a_file_that_goes_before_its_name_is_not_told_as_lost(
    store: SqliteStore, path: Path
) -> None:
    """J6, J8: it is removed inside the transaction that removes its name; one that somebody holds is."""
    large = Artifact.of(bytes(INLINE_BYTES + 1), "text/plain")
    asyncio.run(end(store, "r", artifacts=(large,)))
    store._files.remove(large.digest)
    [lost] = asyncio.run(store.check())
    assert (lost.run_id, "cannot be read" in lost.what) == ("r", True)
    with closing(sqlite3.connect(path, isolation_level=None)) as sweeping:
        sweeping.execute("delete from remit_holding")
        sweeping.execute("begin immediate")
        sweeping.execute("delete from remit_artifact")

        def pause() -> None:
            sweeping.execute("commit")

        assert list(checking.findings(path, store._chain, store._files, pause)) == []


DYING = """
import os, sqlite3, sys, time
from pathlib import Path
from remit.store.sqlite import keeping
from remit.store.sqlite.files import Files

path, left = Path(sys.argv[1]), [int(sys.argv[2])]

def traced(statement):
    left[0] -= statement == "commit"
    if left[0] < 0:
        os._exit(9)

connection = sqlite3.connect(path, isolation_level=None)
connection.execute("pragma secure_delete = on")
connection.set_trace_callback(traced)
files = Files(path.with_name(path.name + ".d") / "artifacts")
keeping.erase(connection, files, lambda _: False, run_id="r", session=None, now=time.time())
"""
"""Erases, and dies before its n-th commit."""


def test_an_erasure_that_dies_anywhere_is_finished_by_the_next_one(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J6: whatever a crash leaves can be erased again, and then nothing is left."""
    large = Artifact.of(SECRET.encode() * 100_000, "text/plain")
    died = 0
    while True:
        store = opened()

        async def build(store: SqliteStore) -> None:
            asked = clinic(store, ("look_up", {"name": SECRET}), "done")
            await asked.run(SECRET, run_id="r", tags={"who": SECRET})
            assert await store.post("r", "input", SECRET.encode(), artifacts=[large])

        async def finish(store: SqliteStore) -> None:
            await store.erase(run_id="r")
            assert await store.check() == []

        asyncio.run(build(store))
        store.close()
        assert lines_of(path)
        ended = subprocess.run(
            [sys.executable, "-c", DYING, path, str(died)], check=False, timeout=60
        ).returncode
        asyncio.run(finish(store))
        store.close()
        assert lines_of(path) == [], died
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        if ended == 0:
            break
        assert ended == 9
        died += 1
    assert died >= 4, "marking, payloads, artifacts, names"


# Pruning


def test_files_that_nobody_came_to_name_are_removed_once_they_are_old(store: SqliteStore) -> None:
    """J7: what a crash left between a file and its row."""
    large = Artifact.of(bytes(INLINE_BYTES + 1), "text/plain")

    async def main() -> None:
        await end(store, "r")
        store._files.write(large)
        assert (await store.prune(365 * DAY)).files == 0
        old = time.time() - 2 * DAY.total_seconds()
        os.utime(store._files.path(large.digest), (old, old))
        assert (await store.prune(365 * DAY, dry_run=True)).files == 1
        assert (await store.prune(365 * DAY)).files == 1
        assert list(store._files.all()) == []
        with pytest.raises(ConfigurationError):
            await store.prune(-DAY)

    asyncio.run(main())


def test_others_write_while_a_store_is_pruned(
    opened: Callable[..., SqliteStore], store: SqliteStore, path: Path
) -> None:
    """J7: a large run is swept in many small transactions, between which others have their turn."""
    other = opened()
    told: list[str] = []

    def prune() -> Pruned:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.set_trace_callback(told.append)
            now = datetime.now(UTC)
            return keeping.prune(
                connection,
                store._files,
                lambda _: False,
                before=now - DAY,
                now=now.timestamp(),
            )

    async def main() -> None:
        lease = await begin(store, "large")
        for _ in range(40):
            await store.append(lease, [NewRow("said", bytes(200_000)) for _ in range(5)])
        await store.append(lease, (), status="ended", reason="completed")
        await store.release(lease)
        await age(store, 10)
        writing = await begin(other, "live")
        pruning = asyncio.ensure_future(asyncio.to_thread(prune))
        while not pruning.done():
            await other.append(writing, [NewRow("said", b"{}")])
        assert (await pruning).rows == 201

    asyncio.run(main())
    assert told.count("commit") > 10, "40 MB, 4 at once"


# Checking


def kept_store(path: Path) -> tuple[SqliteStore, Artifact, Artifact]:
    """A store with a run, an artifact as a row and one as a file."""
    small = Artifact.of(b"small" * 100, "text/plain")
    large = Artifact.of(b"large" * 300_000, "text/plain")
    store = SqliteStore(path)

    async def main() -> None:
        await end(store, "r", b'{"words":"said"}' * 100, artifacts=(small, large))
        await end(store, "inside", parent="r")

    asyncio.run(main())
    store.close()
    return store, small, large


def found_by(store: SqliteStore) -> list[Finding]:
    return list(asyncio.run(store.check()))


@pytest.mark.parametrize("byte", [0, 7, 100, 1_599])
@pytest.mark.parametrize(
    ("table", "column"),
    [("payload", "body"), ("payload", "salt"), ("row", "digest"), ("row", "link")],
)
def test_one_flipped_byte_of_a_row_is_found(path: Path, table: str, column: str, byte: int) -> None:
    """J8: wherever it is, run and row are named."""
    store, _, _ = kept_store(path)
    assert found_by(store) == []
    with closing(sqlite3.connect(path)) as connection, connection:
        where = "where seq = 0 and " + ("run_id = 'r'" if table == "row" else "run = 1")
        ((was,),) = connection.execute(f"select {column} from remit_{table} {where}").fetchall()
        now = bytearray(was)
        now[byte % len(now)] ^= 0x04
        connection.execute(f"update remit_{table} set {column} = ? {where}", (bytes(now),))
    assert ("r", 0) in {(each.run_id, each.seq) for each in found_by(store)}


@pytest.mark.parametrize(
    ("damage", "run_id", "word"),
    [
        (
            "update remit_row set kind = 'other' where run_id = 'r' and seq = 1",
            "r",
            "not as it was",
        ),
        ("update remit_row set epoch = 'x' where run_id = 'r' and seq = 1", "r", "not as it was"),
        ("update remit_row set epoch = -1 where run_id = 'r' and seq = 1", "r", "not as it was"),
        ("delete from remit_row where run_id = 'r' and seq = 0", "r", "missing"),
        ("delete from remit_row where run_id = 'r' and seq = 1", "r", "end"),
        ("delete from remit_payload where run = 1 and seq = 1", "r", "missing"),
        ("update remit_run set head = x'00' where run_id = 'r'", "r", "head"),
        ("update remit_run set next_seq = 9 where run_id = 'r'", "r", "end"),
        ("update remit_run set reason = 'deadline' where run_id = 'r'", "r", "deadline"),
        ("update remit_run set erased_at = 1 where run_id = 'r'", "r", "still here"),
        ("delete from remit_run where run_id = 'r'", "r", "not"),
        ("update remit_artifact set data = x'00' where data is not null", "r", "damaged"),
        ("update remit_artifact set size = 1 where data is null", "r", "damaged"),
        ("delete from remit_artifact where data is not null", "r", "missing"),
        ("delete from remit_holding", None, "nobody"),
        ("insert into remit_post values ('x', 1, 'input', x'00')", "x", "not"),
    ],
)
def test_every_damage_is_told_by_its_place(
    path: Path, damage: str, run_id: str | None, word: str
) -> None:
    """J8: rows, payloads, heads, artifacts, what belongs to nobody."""
    store, _, _ = kept_store(path)
    change(path, damage)
    found = found_by(store)
    assert any(each.run_id == run_id and word in each.what for each in found), found


def test_a_list_that_says_something_else_than_the_rows_is_found(
    store: SqliteStore, path: Path
) -> None:
    """J8: no chain stands over remit, session and tags; the first row says them, too."""
    asyncio.run(clinic(store, "fine").run("hello", run_id="r", tags={"k": "v"}))
    store.close()
    assert found_by(store) == []
    for damage in ("remit = 'other'", "tags = '{}'", "tags = 'no json'", "session = 'x'"):
        was = "remit = 'clinic', tags = '{\"k\":\"v\"}', session = null"
        change(path, f"update remit_run set {damage}")
        assert [each.run_id for each in found_by(store)] == ["r"], damage
        change(path, f"update remit_run set {was}")
    assert found_by(store) == []


def test_a_file_beside_the_database_is_checked(path: Path) -> None:
    """J8, X2: damaged or missing, it is named with the run that holds it."""
    store, _, large = kept_store(path)
    file = store._files.path(large.digest)
    data = bytearray(file.read_bytes())
    data[1_000_000] ^= 1
    file.write_bytes(data)
    assert [(each.run_id, "damaged" in each.what) for each in found_by(store)] == [("r", True)]
    file.unlink()
    assert [each.run_id for each in found_by(store)] == ["r"]


def test_any_byte_of_the_file_may_be_damaged_and_the_check_ends_with_words(path: Path) -> None:
    """J8: findings or a typed error, whatever is broken, and a byte of what was said is never missed."""
    store, _, _ = kept_store(path)
    sound = path.read_bytes()
    chance = random.Random(5)
    said = sound.index(b'{"words":"said"}')
    places = [said + 5, said + 600, *(chance.randrange(len(sound)) for _ in range(60)), 1, 20, 101]
    for place in places:
        damaged = bytearray(sound)
        damaged[place] ^= 0x20
        path.write_bytes(damaged)
        try:
            found = found_by(store)
        except (JournalError, ConfigurationError):
            continue
        assert found or not said <= place < said + 700, place
    schema = bytearray(sound)
    schema[sound.index(b"remit_run_parent")] = 0xF7
    for broken in (bytes(schema), sound[: len(sound) // 2]):
        path.write_bytes(broken)
        assert found_by(store)
        with pytest.raises(JournalError):
            asyncio.run(store.stock())
    path.write_bytes(b"no database at all" * 100)
    assert found_by(store)
    path.unlink()
    with pytest.raises(JournalError):
        found_by(store)


def test_a_store_that_cannot_be_written_beside_is_checked(path: Path) -> None:
    """J8: a copy on a medium that is only read; SQLite cannot make its shared memory there."""
    store, _, _ = kept_store(path)
    path.with_name(f"{path.name}-shm").mkdir()
    assert found_by(store) == []
    path.unlink()
    with pytest.raises(JournalError):
        found_by(store)


def test_the_check_knows_the_key_and_needs_nobody_to_stop(
    opened: Callable[..., SqliteStore], path: Path
) -> None:
    """J8, J2: it reads beside a writer, changes nothing, and does not verify with another key."""
    store = opened(key=b"key")

    async def main() -> None:
        lease = await begin(store, "r")
        assert await store.check() == []
        await store.append(lease, [NewRow("said", b"{}")])
        assert await store.check() == []
        with pytest.raises(ConfigurationError, match="REMIT_STORE_KEY"):
            await SqliteStore(path).check()

    asyncio.run(main())


def test_a_store_that_somebody_holds_is_not_told_as_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J8: the last one out writes the log back and holds the file meanwhile; nothing was looked at then, nor found."""
    monkeypatch.setattr("remit.store.sqlite.checking._BUSY_SECONDS", 0.05)
    store, _, _ = kept_store(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("pragma locking_mode = exclusive")
        for logged in (True, False):
            holder.execute("insert or replace into remit_worker values ('w', '', 0)")
            if not logged:
                holder.execute("pragma wal_checkpoint(truncate)")
            assert (path.with_name(f"{path.name}-wal").stat().st_size > 0) == logged
            for look in (store.check, store.stock):
                with pytest.raises(JournalError, match="try again"):
                    asyncio.run(look())
    assert found_by(store) == []


# Copying


def test_a_backup_is_one_moment_of_a_store_in_use(
    opened: Callable[..., SqliteStore], store: SqliteStore, tmp_path: Path
) -> None:
    """J9: beside a writer, whole, with the files, and it passes the check."""
    other = opened()
    large = Artifact.of(bytes(INLINE_BYTES + 1), "text/plain")
    copy = SqliteStore(tmp_path / "copy.db")

    async def main() -> None:
        await end(store, "r", artifacts=(large,))
        lease = await begin(store, "live")
        for _ in range(20):
            await store.append(lease, [NewRow("said", bytes(100_000)) for _ in range(5)])
        copying = asyncio.ensure_future(other.backup(copy.path))
        while not copying.done():
            await store.append(lease, [NewRow("said", bytes(10))])
        copied = await copying
        assert (copied.runs, copied.artifact_files) == (2, 1)
        assert await copy.check() == []
        assert await copy.artifact("r", large.digest) == large
        info = await copy.info("live")
        assert info is not None
        assert 101 <= info.rows <= lease.next_seq
        with pytest.raises(ConfigurationError, match="already"):
            await store.backup(copy.path)

    asyncio.run(main())
    copy.close()


def test_a_backup_that_fails_leaves_nothing(store: SqliteStore, tmp_path: Path) -> None:
    """J9: no half of a copy is taken for one."""
    large = Artifact.of(bytes(INLINE_BYTES + 1), "text/plain")
    to = tmp_path / "backups"
    to.mkdir()

    async def main() -> None:
        await end(store, "r", artifacts=(large,))
        store._files.path(large.digest).unlink()
        with pytest.raises(JournalError, match="missing"):
            await store.backup(to / "copy.db")
        with pytest.raises(ConfigurationError):
            await store.backup(to / "nowhere" / "copy.db")
        assert list(to.iterdir()) == []

    asyncio.run(main())


# Migrating


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_older_version_is_opened_listed_and_gone_on_with(
    path: Path, version: int
) -> None:
    """J2, J5: its runs have their remit, tags and reason, what they said and kept, and one of them is resumed."""
    made = SqliteStore(path.with_name("made.db"))
    first = clinic(made, ("treat", {"name": "bob"}))
    asyncio.run(first.run("go", run_id="waits", tags={"who": "bob"}))
    asyncio.run(clinic(made, "fine").run("hello", run_id="done"))
    small, said = Artifact.of(b"kept", "text/plain"), b'{"remit":"clinic"}'
    asyncio.run(end(made, "holds", said, artifacts=(small,), remit="clinic"))
    asyncio.run(end(made, "gone", said, remit="clinic"))
    if version == 2:  # the first knew of no tombstones
        asyncio.run(made.erase(run_id="gone"))
    made.close()
    old = "run_id, spec_hash, parent, root, status, owner, worker, epoch, next_seq, head, inbox_max, taken, created_at, ended_at"
    if version == 2:
        old += ", remit, session, session_at, tags, reason, erased_at"
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in (each for step in _STEPS[:version] for each in step):
            connection.execute(statement)
        connection.execute("attach ? as made", (str(made.path),))
        connection.execute(f"insert into remit_run({old}) select {old} from made.remit_run")
        for table in ("row", "post", "proposal", "artifact", "meta"):
            connection.execute(f"insert into remit_{table} select * from made.remit_{table}")
        connection.execute("insert into remit_holding select root, digest from made.remit_holding")
        connection.execute(
            "insert into remit_payload select u.run_id, p.seq, p.salt, p.body"
            " from made.remit_payload p join made.remit_run u on u.number = p.run"
        )
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {version}")
    store = SqliteStore(path)

    async def main() -> None:
        with pytest.raises(JournalError, match=f"version {version}"):
            await store.check()
        runs = {each.run_id: each for each in await store.runs(RunQuery(), count=9)}
        done, waits = runs["done"], runs["waits"]
        assert (done.remit, done.reason, done.tags) == ("clinic", "completed", {})
        assert (waits.remit, waits.reason, waits.tags) == ("clinic", None, {"who": "bob"})
        remit = clinic(store, "all done")
        (pending,) = (await remit.outcome("waits")).pending
        await remit.decide(id=pending.id, approve=True, by="dana")
        assert (await remit.resume("waits")).text == "all done"
        assert await store.artifact("holds", small.digest) == small
        assert await store.artifact("done", small.digest) is None
        assert [row.body for row in await store.read("holds", -1)][:1] == [said]
        assert await store.check() == []
        await store.erase(run_id="holds")
        assert await store.check() == []

    asyncio.run(main())
    store.close()
