"""`remit tail`: a run followed from another process, while it goes on and afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli_rig import Cli, environment
from reading_rig import Left, leave_runs, look_at


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return leave_runs(tmp_path_factory.mktemp("left"))


@pytest.fixture
def told(left: Left, cli: Cli) -> Cli:
    return look_at(left, cli)


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_run_that_is_over_is_told_from_its_start(told: Cli) -> None:
    """U7: in the lines of `remit run --plain`, and then why nothing more comes."""
    ended = told("tail", "done")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "run done · desk · 4 steps, 100k tok, $1.00, 60 s"
    assert lines[1] == "1 I look \\x1b[31mit up."
    assert lines[2] == '  ✓ look  pin=***, what="order 1042"  seen order 1042 with ***'
    assert lines[-1].startswith("✓ completed · 3 steps")
    assert told("logs", "done").out == ended.out


def test_a_run_that_waits_is_told_until_there_and_who_is_asked(left: Left, told: Cli) -> None:
    """U7: by the id of what it waits for; no token is told."""
    ended = told("tail", "waits")
    assert "⏸ needs your decision  pay  amount=7" in ended.out
    assert ended.out.splitlines()[-1].startswith("⏸ waits for 1 decision, 24 h: ")
    both = ended.out + told("tail", "waits", "--jsonl").out
    assert not any(token in both for token in left.tokens)
    assert "\x1b" not in both


def test_a_run_that_broke_off_is_told_as_far_as_it_came(told: Cli) -> None:
    """U7: and that nobody executes it."""
    lines = told("tail", "died").out.splitlines()
    assert lines[1] == "1 calls die"
    assert lines[-1].startswith("? it broke off")


def test_programs_get_events_with_the_number_of_their_row(told: Cli) -> None:
    """U7: the kinds of `docs/events.md`, and a number with which to go on."""
    heard = events(told("tail", "done", "--jsonl").out)
    assert [each["kind"] for each in heard] == [
        "run_started",
        "replied",
        "call_settled",
        "replied",
        "call_settled",
        "call_settled",
        "replied",
        "run_ended",
    ]
    assert [each["seq"] for each in heard] == sorted(each["seq"] for each in heard)
    assert {each["run_id"] for each in heard} == {"done"}
    assert {each["v"] for each in heard} == {1}
    middle = heard[4]["seq"]
    rest = events(told("tail", "done", "--jsonl", "--from", str(middle)).out)
    assert rest == heard[4:]
    assert told("tail", "done", "--jsonl", "--from", "now").out == ""


def test_who_begins_later_is_told_the_same_of_what_is_left(told: Cli) -> None:
    """U7: steps have their numbers and calls their arguments, although nobody was told of what came before."""
    opening, *lines = told("tail", "done").out.splitlines()
    seqs = {each["seq"] for each in events(told("tail", "done", "--jsonl").out)}
    lengths: list[int] = []
    for seq in sorted(seqs):
        first, *rest = told("tail", "done", "--from", str(seq)).out.splitlines()
        assert first == opening
        assert rest == lines[-len(rest) :]
        lengths.append(len(rest))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == len(lines)


def test_who_asks_for_everything_is_told_what_was_billed(told: Cli) -> None:
    """U7: the details of `remit run --verbose`, as far as rows tell them."""
    assert "billed: " in told("tail", "done", "--verbose").out
    assert "billed: " not in told("tail", "done").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["done", "--all"], 2),
        (["done", "--from", "x"], 2),
        (["done", "--from", "-1"], 2),
        (["nobody"], 3),
    ],
)
def test_what_cannot_be_followed_is_said(told: Cli, arguments: list[str], code: int) -> None:
    """U2: in one line."""
    ended = told("tail", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert len(ended.err.splitlines()) == 1


# --- while it goes on ----------------------------------------------------------------------------

APP = '''\
import asyncio, sys

import remit
from remit import Limits, Remit
from remit.testing import ScriptedModel


async def told(line):
    """Go on when the test says so."""
    print(line, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


@remit.tool(effect="idempotent")
async def wait_here(name: str) -> str:
    """Wait."""
    await told(name)
    return f"went on from {name}"


LIMITS = Limits(steps=5, tokens=100_000, seconds=600)
inner = Remit(name="inner", model=ScriptedModel(["inside", ("wait_here", {"name": "two"}), "out"][1:]),
              tools=[wait_here], limits=LIMITS)
ask = inner.as_tool("ask", "Ask.", limits=Limits(steps=3, tokens=50_000, seconds=500))
model = ScriptedModel([("wait_here", {"name": "one"}), ("ask", {"task": "go in"}), "over"])
desk = Remit(name="desk", model=model, tools=[wait_here, ask], limits=LIMITS, store="sqlite:///runs.db")
print("ready", flush=True)
asyncio.run(desk.run("Go on", run_id="live"))
'''


@contextmanager
def spawned(*arguments: str, cwd: Path) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(cwd, {"PYTHONUNBUFFERED": "1"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it has ended"
    return line.rstrip("\n")


def until(process: subprocess.Popen[str], text: str) -> str:
    """The next line that holds it."""
    while text not in (line := line_of(process)):
        pass
    return line


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


TAIL = ("-m", "remit.cli", "tail", "--store", "sqlite:///runs.db")


def test_a_live_run_is_followed_with_what_runs_inside_until_it_ends(tmp_path: Path) -> None:
    """U7: what another process commits is told while it is at work, its children behind their names."""
    (tmp_path / "app.py").write_text(APP, "utf-8")
    with spawned("app.py", cwd=tmp_path) as app:
        until(app, "one")
        with spawned(*TAIL, "live", cwd=tmp_path) as tail:
            assert line_of(tail).startswith("run live · desk")
            assert line_of(tail) == "1 calls wait_here"
            go_on(app)
            until(app, "two")  # the child is at work
            assert "went on from one" in until(tail, "wait_here")
            assert until(tail, "inner").strip() == "inner 1 calls wait_here"
            go_on(app)
            assert until(tail, "went on from two").strip().startswith("inner")
            assert until(tail, "over") == "3 over"
            assert until(tail, "completed").startswith("✓ completed · ")
            assert tail.wait(60) == 0
        assert app.wait(60) == 0


def test_a_run_whose_process_dies_is_followed_no_longer(tmp_path: Path) -> None:
    """U7, J2: that it broke off is told, whoever looks on when it does."""
    (tmp_path / "app.py").write_text(APP, "utf-8")
    with spawned("app.py", cwd=tmp_path) as app:
        until(app, "one")
        with spawned(*TAIL, "live", cwd=tmp_path) as tail:
            until(tail, "calls wait_here")
            app.kill()
            assert until(tail, "broke off").startswith("? it broke off")
            assert tail.wait(60) == 0


def test_every_live_run_is_followed_until_somebody_leaves(tmp_path: Path) -> None:
    """U7: runs that begin later too, each line with its run; Ctrl-C leaves without a word."""
    (tmp_path / "app.py").write_text(APP, "utf-8")
    with spawned("app.py", cwd=tmp_path) as app:
        until(app, "one")
        with spawned(*TAIL, "--all", "--from", "start", cwd=tmp_path) as tail:
            assert until(tail, "run live").startswith("live  run live · desk")
            go_on(app)
            assert until(tail, "went on from one").startswith("live  ")
            until(app, "two")
            go_on(app)
            # Each run is told in its own order.
            missing = {"live  ✓ completed", "went on from two", "inner · 3 steps"}
            while missing:
                line = line_of(tail)
                missing = {text for text in missing if text not in line}
            assert app.wait(60) == 0
            os.kill(tail.pid, signal.SIGINT)
            assert tail.wait(60) == 130
            assert tail.stderr is not None
            assert tail.stderr.read() == ""
