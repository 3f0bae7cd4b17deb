"""`remit show`: a run that another process made, told to people and to programs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from markdown_it import MarkdownIt  # rich brings it
from msgspec.structs import replace

from cli_rig import Cli
from pty_rig import Person
from reading_rig import PIN, Left, leave_runs, look_at
from remit.analysis.cells import cells, one_line, visible
from remit.analysis.sheet import sheet_of
from remit.analysis.sheet_markdown import markdown_of
from remit.cli import exits
from remit.store.directory import RunEntry


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return leave_runs(tmp_path_factory.mktemp("left"))


@pytest.fixture
def shown(left: Left, cli: Cli) -> Cli:
    return look_at(left, cli)


def test_a_run_is_shown_with_what_it_said_did_used_and_why_it_ended(shown: Cli) -> None:
    """U7: words, calls, budget and the end, from rows alone."""
    ended = shown("show", "done")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "run done  desk · team=ops"
    assert lines[2].startswith("✓ completed · 3 steps")
    assert "steps 3/4" in lines[3]
    assert "  │ Where is order 1042?" in lines
    assert '  ✓ look  pin=***, what="order 1042"  seen order 1042 with ***' in lines
    assert any("kept as artifact:" in line for line in lines)
    assert "  │ All is well." in lines


def test_a_run_that_waits_says_for_what_until_when_and_how_it_goes_on(shown: Cli) -> None:
    """U7: what a person can do, by id; there is no token to give away."""
    ended = shown("show", "waits")
    lines = ended.out.splitlines()
    assert lines[2] == "⏸ waits for 1 decision, 24 h"
    (pending,) = shown("show", "waits", "--json").document["pending"]
    assert f"    remit approve {pending['id']}, or remit reject {pending['id']}" in lines
    assert pending["tool"] == "pay"
    assert "token" not in pending
    (asked,) = shown("show", "asks", "--json").document["pending"]
    assert (asked["kind"], asked["summary"]) == ("input", "Which way?")
    assert asked["schema"]["enum"] == ["left", "right"]


def test_a_limit_that_ended_a_run_is_told_in_words(shown: Cli) -> None:
    """U7: whose limit, how much of it, and what would help."""
    ended = shown("show", "broke")
    assert "✕ task uncompleted: step_budget (yours: 1 steps" in ended.out
    document = shown("show", "broke", "--json").document
    assert (document["reason"], document["whose"]) == ("step_budget", "desk")
    assert [step["step"] for step in document["steps"]] == [1, None]
    assert document["steps"][1]["closing"]


def test_an_effect_whose_process_died_in_it_is_in_doubt(shown: Cli) -> None:
    """U7: that it was started is told, and that nothing says how it ended."""
    document = shown("show", "died", "--json").document
    (call,) = document["steps"][0]["calls"]
    assert (call["effect"], call["result"]) == ("idempotent", None)
    assert call["status"] == "in_doubt"
    assert document["lost"]
    ended = shown("show", "died")
    assert ended.out.splitlines()[2].startswith("? it broke off")
    assert "? effects that may have come about: die (died:1:die:" in ended.out
    assert call["key"].startswith("died:1:die:")


def test_runs_inside_are_shown_with_the_call_that_they_run_in(shown: Cli) -> None:
    """U7: a child names its parent, and a call its child."""
    document = shown("show", "tree", "--json").document
    (child,) = document["children"]
    (call,) = document["steps"][0]["calls"]
    assert (child["remit"], child["reason"], child["call"]) == ("inner", "completed", call["id"])
    assert call["children"] == [child["run_id"]]
    inside = shown("show", child["run_id"], "--json").document
    assert (inside["parent"], inside["path"]) == ("tree", ["desk", "inner"])
    assert "✓ inner  completed" in shown("show", "tree", "--only", "children").out


def test_no_secret_and_no_token_is_in_any_answer(left: Left, shown: Cli) -> None:
    """U7, R1: arguments marked as secret are masked where people look, results that spell one too."""
    assert left.tokens
    for run in ("done", "waits", "asks"):
        for flags in ([], ["--full"], ["--json"], ["--full", "--only", "calls"]):
            ended = shown("show", run, *flags)
            assert ended.code == 0
            for secret in (PIN, *left.tokens):
                assert secret not in ended.out + ended.err
        assert PIN not in shown("tail", run).out + shown("tail", run, "--jsonl").out
    assert PIN not in shown("runs").out + shown("runs", "--json").out


def test_what_a_model_or_a_tool_wrote_stays_text(shown: Cli) -> None:
    """U7: no escape reaches a terminal, and nothing passes for a line of ours."""
    for flags in ([], ["--full"], ["--only", "failed"]):
        out = shown("show", "waits", *flags).out
        assert "\x1b" not in out
        assert "\u202e" not in out
    assert "\\x1b]0;title\\x07" in shown("show", "waits").out


@pytest.mark.parametrize("run", ["done", "waits", "asks", "broke", "died", "tree"])
@pytest.mark.parametrize("flags", [[], ["--full"], ["--only", "failed"], ["--only", "artifacts"]])
def test_a_markdown_document_has_no_markup_but_ours(
    left: Left, shown: Cli, run: str, flags: Sequence[str]
) -> None:
    """U7, R1: what was said is text in it, whatever it says; nothing is a link, and no secret is told."""
    out = shown("show", run, "--markdown", *flags).out
    assert visible(out) == out
    assert out.startswith(f"# Run `{run}`\n")
    assert not any(secret in out for secret in (PIN, *left.tokens))
    tokens = [
        each for token in MarkdownIt().parse(out) for each in (token, *(token.children or ()))
    ]
    kinds = {token.type.removesuffix("_open").removesuffix("_close") for token in tokens}
    assert kinds <= {
        "heading",
        "paragraph",
        "inline",
        "text",
        "code_inline",
        "fence",
        "bullet_list",
        "list_item",
        "em",
        "softbreak",
    }
    assert shown("show", run, "--markdown", "--json").code == exits.USAGE


def test_nothing_that_was_said_ends_its_block_or_its_span() -> None:
    """U7: a fence is longer than every run of backticks in it, and so is what is around a span."""
    said = "```\n# mine\n````\n![x](http://x)\n\n<b>\r\n~~~"
    now = datetime(2026, 12, 1, tzinfo=UTC)
    entry = RunEntry(
        run_id="`r``",
        remit="`",
        status="ended",
        reason="completed",
        parent=None,
        session="[a](b)",
        tags={"`x": "@you"},
        owner=None,
        rows=1,
        created_at=now,
        ended_at=now,
        erased_at=None,
    )
    sheet = replace(sheet_of(entry, None), prompt=said)
    document = markdown_of(
        sheet, ("ok", said), now=now, only=None, part=False, full=True, reached_by=""
    )
    tokens = MarkdownIt().parse(document)
    assert [token.content for token in tokens if token.type == "fence"] == [visible(said) + "\n"]
    spans = [each for token in tokens for each in token.children or ()]
    assert {each.type for each in spans} <= {"text", "code_inline", "softbreak"}
    assert one_line(said) in [each.content for each in spans]


@pytest.mark.parametrize(
    ("flags", "calls", "texts"),
    [
        (["--only", "failed"], ["cancel"], 1),
        (["--only", "effects"], ["cancel", "pay"], 1),
        (["--only", "text"], [], 1),
        (["--step", "1"], ["cancel", "pay"], 1),
        (["--step", "2.."], [], 0),
        (["--only", "artifacts"], [], 0),
    ],
)
def test_a_part_of_a_run_is_shown(
    shown: Cli, flags: Sequence[str], calls: Sequence[str], texts: int
) -> None:
    """U7: steps, failed calls, effects; the same part as text and as JSON."""
    document = shown("show", "waits", "--json", *flags).document
    assert [call["tool"] for step in document["steps"] for call in step["calls"]] == list(calls)
    assert len([step for step in document["steps"] if step["text"]]) == texts
    assert shown("show", "waits", *flags).code == 0


def test_a_call_is_found_by_its_id_or_its_key(shown: Cli) -> None:
    """U7: and is shown whole, with its arguments, its key and its result."""
    (call,) = [
        call
        for step in shown("show", "done", "--json").document["steps"]
        for call in step["calls"]
        if call["tool"] == "pages"
    ]
    for name in (call["id"], call["key"]):
        ended = shown("show", "done", "--call", name)
        assert f"key {call['key']}" in ended.out
        assert "line 0 of many" in ended.out
        assert "All is well." not in ended.out
    assert shown("show", "done", "--call", "nothing").code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["no-such-run"], 3, "remit runs lists them"),
        (["@-99"], 3, "@-99"),
        (["session:none"], 3, "session:none"),
        (["done", "--step", "5..2"], 2, "comes before"),
        (["done", "--step", "x"], 2, "3..5"),
        (["done", "--only", "nothing"], 2, "only"),
        (["done", "--store", "runs.db"], 2, "did you mean sqlite:///runs.db?"),
        (["done", "--store", "sqlite:///other.db"], 3, "there is no store at other.db"),
        (["done", "--store", "sqlite:///remit.toml"], 2, "not a database"),
    ],
)
def test_what_is_not_there_and_what_is_wrong_have_codes_of_their_own(
    shown: Cli, arguments: Sequence[str], code: int, says: str
) -> None:
    """U2, U7: 3 for what is not there, 2 for what is wrong, in one line; a look makes no file."""
    ended = shown("show", *arguments)
    assert ended.code == code
    assert says in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not (shown.directory / "other.db").exists()


def test_a_damaged_run_is_shown_as_far_as_it_goes(shown: Cli) -> None:
    """U7, J2: what it is stands there, and why there is no more; the exit code says so."""
    with closing(sqlite3.connect(shown.directory / "runs.db")) as connection, connection:
        connection.execute(
            "update remit_payload set body = x'7b7d' where seq = 2"
            " and run = (select number from remit_run where run_id = 'done')"
        )
    ended = shown("show", "done")
    assert ended.code == 1
    assert ended.out.startswith("run done  desk")
    assert "damaged" in ended.err
    document = shown("show", "done", "--json").document
    assert "damaged" in document["unreadable"]
    assert document["steps"] == []


def test_a_run_fits_the_terminal(left: Left, tmp_path: Path) -> None:
    """U7: no row is wider than the window."""
    store = f"sqlite:///{left.directory / 'runs.db'}"
    with Person("show", "waits", "--store", store, columns=60, rows=60, cwd=tmp_path) as person:
        assert person.ends() == 0
        lines = re.sub(r"\x1b\[\d*m", "", person.written.decode()).splitlines()
    assert max(cells(line) for line in lines) < 60
