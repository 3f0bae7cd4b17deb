"""`remit store`: what is kept is counted, verified, taken back, thinned out and copied."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli_rig import ROOT, Cli
from pty_rig import Person
from remit import Limits, Remit
from remit.models.scripted import ScriptedModel
from remit.store.base import Lease, NewRow, NewRun
from remit.store.sqlite import SqliteStore

STORE = "sqlite:///runs.db"
SECRET = "alice-and-her-diagnosis"


@pytest.fixture
def path(cli: Cli) -> Path:
    return cli.directory / "runs.db"


@pytest.fixture
def kept(path: Path) -> Iterator[SqliteStore]:
    """A store with a run, and a session of two."""
    store = SqliteStore(path)

    async def main() -> None:
        await desk(store).run(f"about {SECRET}", run_id="r-one")
        for n in range(2):
            await desk(store).run(f"hello {n}", run_id=f"s{n}", session="s")

    asyncio.run(main())
    yield store
    store.close()


def desk(store: SqliteStore) -> Remit[Any]:
    limits = Limits(steps=2, tokens=10_000, seconds=60)
    return Remit(name="desk", model=ScriptedModel(["fine"]), limits=limits, store=store)


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_what_is_kept_is_counted(cli: Cli, kept: SqliteStore) -> None:
    """J8: for people and for programs; a file that is not there is not made."""
    told = cli("store", "info", "--store", STORE)
    assert told.code == 0
    assert re.search(r"3 runs: 3 ended; 0 of them erased\n  1 session, \d+ rows", told.out)
    document = cli("store", "info", "--json", "--store", STORE).document
    assert (document["v"], document["schema"], document["keyed"]) == (1, 3, False)
    assert (document["runs"], document["sessions"], document["erased"]) == ({"ended": 3}, 1, 0)
    assert document["oldest"] <= document["newest"]
    for command in (("info",), ("check",), ("backup", "copy.db")):
        assert cli("store", *command, "--store", "sqlite:///none.db").code == 3
        assert cli("store", *command, "--store", "memory:").code == 2
    assert not (cli.directory / "none.db").exists()


def test_a_check_fails_where_anything_is_not_as_it_was_written(
    cli: Cli, kept: SqliteStore, path: Path
) -> None:
    """J8: exit code 1, with run and row in words and as JSON; a wrong key is a wrong call."""
    sound = cli("store", "check", "--store", STORE)
    assert (sound.code, sound.out) == (0, "")
    assert cli("store", "check", "--json", "--store", STORE).document == {"v": 1, "findings": []}
    of_it = "run = (select number from remit_run where run_id = 's1')"
    change(path, f"update remit_payload set body = x'00' where seq = 1 and {of_it}")
    damaged = cli("store", "check", "--store", STORE)
    assert (damaged.code, damaged.out) == (1, "run s1, row 1: what it says is damaged\n")
    document = cli("store", "check", "--json", "--store", STORE).document
    assert [(each["run_id"], each["seq"]) for each in document["findings"]] == [("s1", 1)]
    keyed = cli("store", "check", "--store", STORE, environ={"REMIT_STORE_KEY": "k"})
    assert keyed.code == 2
    kept.close()
    path.write_bytes(b"this is no database, and never was" * 50)
    broken = cli("store", "check", "--store", STORE)
    assert (broken.code, "Traceback" in broken.err) == (1, False)


def test_a_run_is_erased_with_its_id_in_full(cli: Cli, kept: SqliteStore, path: Path) -> None:
    """J6: the bytes are gone; what was erased cannot be meant by the beginning of a name."""
    short = cli("store", "erase", "--run", "r-", "--yes", "--store", STORE)
    assert (short.code, "--run r-one" in short.err) == (2, True)
    assert cli("store", "erase", "--run", "nobody", "--yes", "--store", STORE).code == 3
    erased = cli("store", "erase", "--run", "r-one", "--yes", "--json", "--store", STORE)
    assert erased.code == 0
    assert erased.document == {"v": 1, "runs": 1, "artifacts": 0, "ended": [], "complete": True}
    assert cli("store", "info", "--json", "--store", STORE).document["erased"] == 1
    assert cli("store", "check", "--store", STORE).code == 0
    kept.close()
    left = [each for each in path.parent.rglob("runs.db*") if each.is_file()]
    assert [each for each in left if SECRET.encode() in each.read_bytes()] == []


def test_a_session_is_erased_as_a_whole(cli: Cli, kept: SqliteStore) -> None:
    """J6: a run of it alone is refused; a session that nobody knows is not found."""
    part = cli("store", "erase", "--run", "s0", "--yes", "--store", STORE)
    assert (part.code, "whole session" in part.err) == (2, True)
    assert cli("store", "erase", "--session", "t", "--yes", "--store", STORE).code == 3
    assert cli("store", "erase", "--yes", "--store", STORE).code == 2
    erased = cli("store", "erase", "--session", "s", "--yes", "--store", STORE)
    assert (erased.code, erased.out) == (0, "erased: 2 runs, 0 artifacts\n")


def test_a_run_that_is_executed_is_not_erased(cli: Cli, kept: SqliteStore) -> None:
    """J6: somebody else has it: exit code 4."""

    async def begin() -> None:
        await kept.create(NewRun("live", b"spec", NewRow("opened", b"{}")))
        assert isinstance(await kept.acquire("live", "me"), Lease)

    asyncio.run(begin())
    assert cli("store", "erase", "--run", "live", "--yes", "--store", STORE).code == 4


def test_nobody_erases_by_accident(cli: Cli, kept: SqliteStore) -> None:
    """J6: without --yes a person at a terminal is asked, and elsewhere nothing is done."""
    asked = cli("store", "erase", "--run", "r-one", "--store", STORE)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    command = ("store", "erase", "--run", "r-", "--store", f"sqlite:///{kept.path}")
    for answer, code, said in (("\r", 1, "nothing was erased"), ("y\r", 0, "erased: 1 run")):
        asyncio.run(kept.read("r-one"))
        with Person(*command, cwd=cli.directory) as sees:
            sees.until("[y/N]")
            sees.press(answer)
            sees.until(said)
            assert sees.ends() == code


def test_what_is_old_is_pruned_and_a_dry_run_only_counts(
    cli: Cli, kept: SqliteStore, path: Path
) -> None:
    """J7: by so long ago, or by a date."""
    change(path, "update remit_run set ended_at = ended_at - 8640000 where run_id = 'r-one'")
    would = cli("store", "prune", "--older-than", "90d", "--dry-run", "--json", "--store", STORE)
    assert (would.code, would.document["dry_run"], would.document["runs"]) == (0, True, 1)
    assert cli("store", "info", "--json", "--store", STORE).document["runs"] == {"ended": 3}
    pruned = cli("store", "prune", "--older-than", "90d", "--store", STORE)
    assert (pruned.code, pruned.out.startswith("removed: 1 run, ")) == (0, True)
    none = cli("store", "prune", "--older-than", "2020-01-01", "--store", STORE)
    assert none.out.startswith("removed: 0 runs")
    assert cli("store", "prune", "--older-than", "soon", "--store", STORE).code == 2
    assert cli("store", "prune", "--store", STORE).code == 2


@pytest.mark.usefixtures("kept")
def test_zero_days_are_all_that_ended_and_a_time_to_come_is_refused_by_its_flag(cli: Cli) -> None:
    """`--older-than 0d` is not below zero; the error of a later time names what was typed."""
    would = cli("store", "prune", "--older-than", "0d", "--dry-run", "--json", "--store", STORE)
    assert would.code == 0
    ahead = cli("store", "prune", "--older-than", "2999-01-01", "--dry-run", "--store", STORE)
    assert ahead.code == 2
    assert ahead.err == "remit: --older-than 2999-01-01: that time is still to come\n"


def test_a_backup_is_a_store_that_passes_the_check(cli: Cli, kept: SqliteStore) -> None:
    """J9: it is never written over anything."""
    copied = cli("store", "backup", "copy.db", "--json", "--store", STORE)
    assert (copied.code, copied.document["runs"]) == (0, 3)
    assert cli("store", "check", "--store", "sqlite:///copy.db").code == 0
    again = cli("store", "backup", "copy.db", "--store", STORE)
    assert (again.code, "already" in again.err) == (2, True)
    told = cli("store", "backup", "other.db", "--store", STORE)
    assert told.out.startswith("other.db: 3 runs, ")


def test_the_page_about_keeping_shows_every_command_of_the_store() -> None:
    page = (ROOT / "docs" / "store.md").read_text("utf-8")
    for command in ("info", "check", "erase", "prune", "backup"):
        assert f"$ remit store {command}" in page
