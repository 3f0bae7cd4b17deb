"""Where a command finds runs, and how it names one."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli_rig import Cli
from remit.cli import exits
from remit.cli.exits import NotFound
from remit.cli.locations import location_of
from remit.cli.naming import run_named
from remit.cli.settings import Settings, read_settings
from remit.cli.stores import store_to_read, store_to_write
from remit.errors import ConfigurationError
from remit.store.base import RunInfo, StoredRow
from remit.store.directory import RunEntry, RunQuery


def settings_of(directory: Path, environ: Mapping[str, str] | None = None) -> Settings:
    return read_settings(directory, {"HOME": str(directory / "home"), **(environ or {})})


# --- where runs are kept -------------------------------------------------------------------------


def test_what_stands_nearer_says_where_runs_are_kept(tmp_path: Path) -> None:
    """U5: the flag, the environment, remit.toml, pyproject.toml, the user's file, the user's state."""
    project, own = tmp_path / "project", tmp_path / "home" / ".config" / "remit"
    below = project / "src"
    below.mkdir(parents=True)
    own.mkdir(parents=True)

    def found(flag: str | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
        settings = read_settings(below, {"HOME": str(tmp_path / "home"), **(environ or {})})
        return location_of(flag, settings).path

    assert found() == tmp_path / "home" / ".local" / "state" / "remit" / "remit.db"
    assert found(environ={"XDG_STATE_HOME": "/st"}) == Path("/st/remit/remit.db")
    assert found(environ={"XDG_STATE_HOME": "no/place"}) == found()
    (own / "config.toml").write_text('store = "sqlite:////own.db"')
    assert found() == Path("/own.db")
    (project / "pyproject.toml").write_text('[tool.remit]\nstore = "sqlite:///py.db"')
    assert found() == project / "py.db"
    (project / "remit.toml").write_text('store = "sqlite:///data/toml.db"')
    assert found() == project / "data" / "toml.db"
    assert found(environ={"REMIT_STORE": "sqlite:///env.db"}) == Path("env.db")
    assert found(environ={"REMIT_STORE": ""}) == project / "data" / "toml.db"
    assert found("sqlite:///flag.db", {"REMIT_STORE": "sqlite:///env.db"}) == Path("flag.db")
    assert found("memory:") is None


def test_where_the_store_is_and_who_says_so_is_shown(cli: Cli) -> None:
    """U5: `config show --origin` prints the store too."""
    cli.write("remit.toml", 'store = "sqlite:///runs.db"\n')
    ended = cli("config", "show", "--origin")
    assert 'store = "sqlite:///runs.db"' in ended.out.splitlines()[0]
    assert ended.out.splitlines()[0].endswith("# remit.toml")
    ended = cli("config", "show", "--json", environ={"REMIT_STORE": "sqlite:///e.db"})
    assert ended.document["settings"]["store"] == {
        "value": "sqlite:///e.db",
        "origin": "REMIT_STORE",
    }


@pytest.mark.parametrize("name", ['"remit.db"', "3", '"sqlite:///"', '"postgres://x"'])
def test_a_file_that_names_no_store_is_refused_with_its_key(cli: Cli, name: str) -> None:
    """U2: an error names file and key."""
    cli.write("remit.toml", f"store = {name}\n")
    ended = cli("config", "check")
    assert ended.code == 1
    assert "remit.toml: store:" in ended.err


def test_the_users_own_store_is_made_for_nobody_else_to_read(tmp_path: Path) -> None:
    """A store holds what people said: its folder and its file are the user's alone."""
    place = location_of(None, settings_of(tmp_path))
    assert place.path is not None
    store_to_write(place)
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.path.parent.stat().st_mode) == 0o700


def test_where_the_users_own_store_cannot_be_made_the_flag_is_named(tmp_path: Path) -> None:
    """U2: an error says what to do."""
    (tmp_path / "home").write_text("a file")
    with pytest.raises(ConfigurationError, match="--store sqlite:///FILE"):
        store_to_write(location_of(None, settings_of(tmp_path)))


def test_who_only_reads_makes_no_file(tmp_path: Path) -> None:
    """U7: a command that only reads leaves nothing behind."""
    place = location_of(None, settings_of(tmp_path))
    with pytest.raises(NotFound, match="nothing was run yet"):
        store_to_read(place)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="memory: keeps nothing"):
        store_to_read(location_of("memory:", settings_of(tmp_path)))


# --- which run is meant --------------------------------------------------------------------------


class Listed:
    """Runs of a store, newest first."""

    def __init__(self, *runs: str | tuple[str, str]) -> None:
        """Each is an id, with its parent where there is one."""
        began = datetime(2026, 1, 1, tzinfo=UTC)
        self._entries = [
            RunEntry(
                run_id=run if isinstance(run, str) else run[0],
                remit="desk",
                status="ended",
                reason="completed",
                parent=None if isinstance(run, str) else run[1],
                session=f"s{at % 2}",
                tags={},
                owner=None,
                rows=1,
                created_at=began - timedelta(seconds=at),
                ended_at=began,
                erased_at=None,
            )
            for at, run in enumerate(runs)
        ]

    async def info(self, run_id: str) -> RunInfo | None:
        for entry in self._entries:
            if entry.run_id == run_id:
                return RunInfo(run_id, b"", "ended", None, entry.parent, unread=False, rows=1)
        return None

    async def runs(self, query: RunQuery, *, count: int) -> Sequence[RunEntry]:
        ids = [entry.run_id for entry in self._entries]
        behind = 0 if query.before is None else ids.index(query.before) + 1
        return [
            entry
            for entry in self._entries[behind:]
            if entry.run_id.startswith(query.prefix)
            and (not query.roots or entry.parent is None)
            and query.parent in (None, entry.parent)
            and query.session in (None, entry.session)
        ][:count]

    async def watch(self, run_id: str, after: int = -1) -> AsyncIterator[StoredRow]:
        raise AssertionError((run_id, after))
        yield


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("7f3a", "7f3a"),
        ("7f3", "7f3a"),
        ("@last", "7f3a"),
        ("@-1", "7f3a"),
        ("@-2", "8b"),
        ("session:s1", "7f3a:1:research:aa:1"),
        ("session:x", "session:x"),
        ("7f3a:1", "7f3a:1:research:aa:1"),
        ("long", "long"),
        ("@home", "@home"),
    ],
)
def test_a_run_is_named_by_id_prefix_place_or_session(name: str, meant: str) -> None:
    """U7: an id wins over a prefix, and a root over what runs inside of it."""
    child = ("7f3a:1:research:aa:1", "7f3a")
    many = [(f"long{n}", "long") for n in range(250)]
    store = Listed("7f3a", child, "8b", "session:x", *many, "long", "@home")
    assert asyncio.run(run_named(store, name)).run_id == meant


@pytest.mark.parametrize("name", ["7f", "session", "@-9", "session:none", "no"])
def test_what_names_no_run_or_several_is_no_guess(name: str) -> None:
    """U7: an ambiguous prefix lists the candidates; what is not there is not found."""
    store = Listed("7f3a", "7f21", "session1", "session2")
    with pytest.raises((NotFound, ConfigurationError)) as raised:
        asyncio.run(run_named(store, name))
    ambiguous = {"7f": "7f3a, 7f21", "session": "session1, session2"}
    if name in ambiguous:
        assert isinstance(raised.value, ConfigurationError)
        assert ambiguous[name] in str(raised.value)
    else:
        assert isinstance(raised.value, NotFound)


@pytest.mark.parametrize("name", ["", "@", "@-0", "@first", "@--1"])
def test_what_is_no_name_of_a_run_is_refused(name: str) -> None:
    """U7: the ways to name a run are told."""
    with pytest.raises(ConfigurationError, match="session:NAME"):
        asyncio.run(run_named(Listed("7f3a"), name))


@pytest.fixture
def homeless(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A user whom the system gives no home, as in many a container."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)

    def nowhere(_: type[Path]) -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(Path, "home", classmethod(nowhere))
    return cli


def test_without_a_home_a_place_that_is_named_is_enough(homeless: Cli) -> None:
    """U7: who has no home names a place; everything else needs none."""
    homeless.write("script.json", '["hello"]')
    named = ("--store", "sqlite:///here.db")
    bare = {"HOME": ""}
    ended = homeless("run", "hi", "--model", "scripted:script.json", *named, environ=bare)
    assert (ended.code, ended.out) == (0, "hello\n")
    listed = homeless("runs", "--json", *named, environ=bare)
    assert len(listed.document["runs"]) == 1
    without = homeless("runs", environ=bare)
    assert without.code == exits.USAGE
    assert "--store" in without.err
    assert homeless("config", "show", environ=bare).code == 0
    installed = homeless("completion", "bash", "--install", environ=bare)
    assert (installed.code, installed.out) == (exits.USAGE, "")


def test_one_tag_has_one_value_wherever_it_is_given(cli: Cli) -> None:
    """U7: a run is not started under the last of two."""
    cli.write("script.json", '["hello"]')
    for tags in (("a=1", "a=2"), ("a",), ("=1",), ("remit.target=x",)):
        flags = [part for tag in tags for part in ("--tag", tag)]
        ended = cli("run", "hi", "--model", "scripted:script.json", *flags)
        assert (ended.code, ended.out) == (exits.USAGE, "")
