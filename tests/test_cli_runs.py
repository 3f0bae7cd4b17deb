"""`remit runs`: what runs there are, found and listed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli_rig import Cli
from pty_rig import Person
from reading_rig import Left, leave_runs, look_at
from remit.analysis.cells import cells
from remit.analysis.listing import shortest
from remit.cli.runs import instant
from remit.errors import ConfigurationError


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return leave_runs(tmp_path_factory.mktemp("left"))


@pytest.fixture
def listed(left: Left, cli: Cli) -> Cli:
    return look_at(left, cli)


ROOTS = ["died", "tree", "broke", "asks", "waits", "done"]
OF_DONE = "run = (select number from remit_run where run_id = 'done')"


def ids(cli: Cli, *flags: str) -> list[str]:
    ended = cli("runs", "--json", *flags)
    assert ended.code == 0, ended.err
    return [run["run_id"] for run in ended.document["runs"]]


def test_runs_are_listed_newest_first_with_what_they_used(listed: Cli) -> None:
    """U7: state, reason, steps of allowed, tokens, and the beginning of the prompt."""
    ended = listed("runs")
    head, *rows = ended.out.splitlines()
    assert head.split() == [
        *("RUN", "STATE", "REASON", "REMIT", "STEPS", "TOKENS", "CACHED", "USD", "TIME"),
        *("STARTED", "PROMPT"),
    ]
    assert [row.split()[0] for row in rows] == ROOTS
    by_id = dict(zip(ROOTS, rows, strict=True))
    assert re.match(r"waits +⏸ waiting +1 decision, 24 h +desk +1/4 ", by_id["waits"])
    assert re.match(r"asks +⏸ waiting +1 answer, 24 h +desk ", by_id["asks"])
    assert re.match(r"broke +✕ ended +step_budget +desk +1/1 ", by_id["broke"])
    assert re.match(r"done +✓ ended +completed +desk +3/4 ", by_id["done"])
    assert re.match(r"died +\? running +broke off, can be resumed +desk ", by_id["died"])
    assert by_id["done"].endswith("Where is order 1042?")
    assert "\x1b" not in ended.out
    assert ended.err.startswith("remit: 6 runs · $")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--state", "waiting"], ["asks", "waits"]),
        (["--state", "waiting", "--state", "ended"], ["tree", "broke", "asks", "waits", "done"]),
        (["--reason", "step_budget"], ["broke"]),
        (["--reason", "completed"], ["tree", "done"]),
        (["--remit", "desk"], ROOTS),
        (["--remit", "inner"], []),
        (["--tag", "team=ops"], ["done"]),
        (["--tag", "team=other"], []),
        (["--session", "none"], []),
        (["--since", "1h"], ROOTS),
        (["--until", "1h"], []),
        (["--since", "2999-01-01"], []),
        (["--limit", "2"], ["died", "tree"]),
        (["--limit", "2", "--cursor", "tree"], ["broke", "asks"]),
    ],
)
def test_runs_are_found(listed: Cli, flags: Sequence[str], expected: Sequence[str]) -> None:
    """U7: by state, reason, remit, tag, session and time; page by page."""
    assert ids(listed, *flags) == list(expected)
    assert listed("ls", *flags).code == 0


def test_pages_follow_each_other_until_there_is_none(listed: Cli) -> None:
    """U7: the cursor of a page begins the next."""
    found: list[str] = []
    flags: list[str] = []
    for _ in range(len(ROOTS)):
        document = listed("runs", "--json", "--limit", "4", *flags).document
        found += [run["run_id"] for run in document["runs"]]
        if document["next"] is None:
            break
        flags = ["--cursor", document["next"]]
    assert found == ROOTS


def test_a_page_behind_a_run_that_is_gone_is_no_empty_list(listed: Cli) -> None:
    """U7: what is named is not there."""
    ended = listed("runs", "--cursor", "gone")
    assert (ended.code, ended.out) == (3, "")


def test_runs_inside_of_others_are_listed_where_they_are_asked_for(listed: Cli) -> None:
    """U7: roots by default."""
    runs = listed("runs", "--json", "--all").document["runs"]
    assert [run["parent"] for run in runs if run["remit"] == "inner"] == ["tree"]
    assert len(runs) == len(ROOTS) + 1


def test_what_waits_is_told_to_programs_without_a_token(left: Left, listed: Cli) -> None:
    """U7: by id, with what it binds and until when."""
    ended = listed("runs", "--state", "waiting", "--json")
    assert ended.document["v"] == 1
    pending = {run["run_id"]: run["pending"] for run in ended.document["runs"]}
    assert [each["tool"] for each in pending["waits"]] == ["pay"]
    assert datetime.fromisoformat(pending["waits"][0]["expires_at"]) > datetime.now(UTC)
    assert not any(token in ended.out for token in left.tokens)


def test_a_damaged_or_an_erased_run_does_not_stop_the_list(listed: Cli) -> None:
    """U7, J2: each is a line that says so."""
    with closing(sqlite3.connect(listed.directory / "runs.db")) as connection, connection:
        connection.execute(f"update remit_payload set body = x'7b7d' where {OF_DONE}")
        connection.execute("update remit_run set erased_at = 1e9 where run_id = 'broke'")
    rows = {row.split()[0]: row for row in listed("runs").out.splitlines()}
    assert rows["done"].endswith("(unreadable: remit show tells why)")
    assert rows["broke"].endswith("(erased)")
    assert list(rows)[1:] == ROOTS
    runs = {run["run_id"]: run for run in listed("runs", "--json").document["runs"]}
    assert runs["done"]["unreadable"]
    assert runs["broke"]["erased_at"] == "2001-09-09T01:46:40Z"


@pytest.mark.parametrize(
    "spoiled",
    [
        f"update remit_payload set body = '{{}}' where {OF_DONE}",
        f"update remit_payload set salt = 3 where {OF_DONE}",
        "update remit_row set kind = x'00' where run_id = 'done'",
        "update remit_row set epoch = 'x' where run_id = 'done'",
        "update remit_row set digest = 'x' where run_id = 'done'",
        f"delete from remit_payload where seq = 3 and {OF_DONE}",
        "update remit_run set created_at = 'x', tags = '[1' where run_id = 'done'",
        "update remit_run set created_at = 1e300, ended_at = -1e300 where run_id = 'done'",
        "update remit_run set head = 7, next_seq = 99 where run_id = 'done'",
    ],
)
def test_whatever_somebody_spoiled_the_other_runs_are_listed(listed: Cli, spoiled: str) -> None:
    """U7, J2: values of any kind, in any place."""
    with closing(sqlite3.connect(listed.directory / "runs.db")) as connection, connection:
        connection.execute(spoiled)
    for flags in ([], ["--json"]):
        ended = listed("runs", *flags)
        assert ended.code == 0, ended.err
        assert all(run in ended.out for run in ROOTS)
    for run, codes in (("done", {0, 1}), ("waits", {0})):
        ended = listed("show", run)
        assert ended.code in codes, ended.err
        assert "Traceback" not in ended.err


def test_where_nothing_was_run_nothing_is_listed_and_nothing_made(cli: Cli) -> None:
    """U7: an empty list is an answer, and a look leaves no file behind."""
    ended = cli("runs", "--json")
    assert (ended.code, ended.document) == (0, {"v": 1, "runs": [], "next": None})
    assert "nothing was run yet" in ended.err
    assert cli("runs").out == ""
    assert cli("show", "@last").code == 3
    assert cli("tail", "@last").code == 3
    assert cli("artifact", "artifact:123456789abc").code == 3
    assert list(cli.directory.rglob("*.db*")) == []


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_list_fits_the_terminal(left: Left, tmp_path: Path, columns: int) -> None:
    """U7: less important columns go first, and the run is always named."""
    store = f"sqlite:///{left.directory / 'runs.db'}"
    with Person("runs", "--store", store, columns=columns, cwd=tmp_path) as person:
        assert person.ends() == 0
        lines = re.sub(r"\x1b\[\d*m", "", person.written.decode()).splitlines()
    table = [line for line in lines if not line.startswith("remit:")]
    assert max(cells(line) for line in table[:7]) < columns
    assert [line.split()[0] for line in table[1:7]] == ROOTS


@pytest.mark.parametrize(
    "flags",
    [
        ["--limit", "0"],
        ["--since", "yesterday"],
        ["--since", "999999999w"],
        ["--tag", "team"],
        ["--tag", "a=1", "--tag", "a=2"],
        ["--reason", "complete"],
        ["--state", "dead"],
    ],
)
def test_a_wrong_filter_is_refused_in_one_line(listed: Cli, flags: Sequence[str]) -> None:
    """U2: with what comes near."""
    ended = listed("runs", *flags)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert ended.out == ""


def test_a_time_is_so_long_ago_or_a_date() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert instant("2d", "--since", now) == now - timedelta(days=2)
    assert instant("90m", "--since", now) == now - timedelta(minutes=90)
    assert instant("2026-11-30T12:00+02:00", "--since") == datetime(2026, 11, 30, 10, tzinfo=UTC)
    with pytest.raises(ConfigurationError, match="--until"):
        instant("2x", "--until")


def test_an_id_is_shown_as_far_as_it_tells_runs_apart() -> None:
    assert shortest([]) == 8
    assert shortest(["01a22ee4-3c79-7c8c", "01a22ee4-3c80-7c8c"]) == len("01a22ee4-3c8")
    assert shortest(["a", "a"]) == 8


def test_a_list_for_programs_is_one_line_of_json(listed: Cli) -> None:
    out = listed("runs", "--json").out
    assert len(out.splitlines()) == 1
    assert json.loads(out)["runs"][0]["spent"]["usd"]
