"""Completion scripts: static files that say what the command line is."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from cli_rig import SHOP, Cli, environment, program, write_script
from completions import SCRIPTS, generated
from remit.cli.scripts import NAMES, script
from remit.store.base import NewRow, NewRun
from remit.store.sqlite import SqliteStore

Shell = Literal["bash", "zsh", "fish"]
SHELLS: list[Shell] = ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_what_the_command_line_says_of_itself(shell: Shell) -> None:
    """Where it is not, `make completions` writes it anew."""
    assert script(shell) == generated(shell)


def test_every_script_is_one_of_ours() -> None:
    there = {path.name for path in SCRIPTS.iterdir()} - {"__init__.py", "__pycache__"}
    assert there == set(NAMES.values())


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_accepted_by_its_shell(shell: Shell) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    checked = subprocess.run(
        [shell, "-n", SCRIPTS / NAMES[shell]], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


COMPLETE = """
source {script}
COMP_WORDS=({words}); COMP_CWORD={at}; COMPREPLY=(); _remit; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["remit", "dem"], {"demo"}),
        (["remit", "config", ""], {"show", "check"}),
        (["remit", "run", "--ste"], {"--steps"}),
        (["remit", "run", "--color", ""], {"auto", "always", "never"}),
        (["remit", "completion", "f"], {"fish"}),
    ],
)
def test_bash_completes_commands_flags_and_choices(words: list[str], offered: set[str]) -> None:
    line = " ".join(repr(word) for word in words)
    asked = COMPLETE.format(script=SCRIPTS / NAMES["bash"], words=line, at=len(words) - 1)
    completed = subprocess.run(
        ["bash", "--norc", "-c", asked], capture_output=True, text=True, check=True
    )
    assert set(completed.stdout.split()) == offered


@pytest.fixture
def remit(cli: Cli) -> Path:
    """A program of that name beside a store with a run that waits and one that ended."""
    cli.write("shop.py", SHOP)
    write_script(cli.directory, [{"calls": [{"tool": "pay", "arguments": {"amount": 7}}]}])
    cli("run", "pay", "--remit", "shop.py", "--run-id", "waits", "--quiet")
    write_script(cli.directory, ["done"])
    for run_id in ("ended", "$(touch owned)", "a b", "-x"):
        cli("run", "look", "--remit", "shop.py", f"--run-id={run_id}", "--quiet")
    path = cli.write("bin/remit", f'#!/bin/sh\nexec {sys.executable} -m remit.cli "$@"\n')
    path.chmod(0o700)
    return path


def completed(remit: Path, shell: str, *words: str) -> list[str]:
    """What a shell offers for the last word."""
    script = SCRIPTS / NAMES[shell]
    line = " ".join(words)
    asked = {
        "bash": COMPLETE.format(
            script=script, words=" ".join(repr(word) for word in words), at=len(words) - 1
        ).replace("_remit;", f"COMP_LINE={line!r}; _remit;"),
        "fish": f"source {script}; complete -C {line!r}",
    }[shell]
    options = {"bash": ["--norc"], "fish": ["--no-config"]}[shell]
    home = remit.parent.parent
    environ = environment(home, {"PATH": f"{remit.parent}:{os.environ['PATH']}"})
    ended = subprocess.run(
        [shell, *options, "-c", asked],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env=environ,
    )
    assert ended.stderr == ""
    return [each.partition("\t")[0] for each in ended.stdout.splitlines() if each]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_ids_of_runs_and_of_what_they_wait_for_are_completed(
    remit: Path, cli: Cli, shell: str
) -> None:
    """U7: the newest first, of the store that the command would look into; what would be quoted is left out."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    [pending] = [each["id"] for each in cli("approvals", "--json").document["approvals"]]

    def offered(*words: str) -> list[str]:
        return completed(remit, shell, "remit", *words)

    assert offered("show", "") == ["ended", "waits"]
    assert offered("resume", "e") == ["ended"]
    assert offered("cancel", "") == ["waits"]
    assert offered("send", "w") == ["waits"]
    assert offered("cancel", "waits", "w") == ["waits"]
    assert offered("approve", "") == offered("reject", pending[:4]) == [pending]
    assert pending not in offered("supply", "")
    assert offered("runs", "--cursor", "") == ["ended", "waits"]
    assert offered("store", "erase", "--run", "w") == ["waits"]
    assert "waits" not in offered("send", "waits", "")
    assert "waits" not in offered("show", "--store", "sqlite:///none.db", "")
    assert not (cli.directory / "none.db").exists()
    assert not (cli.directory / "owned").exists()


def test_what_goes_wrong_while_ids_are_looked_for_offers_nothing(cli: Cli) -> None:
    """U7: a completion is quiet, waits for nobody and makes nothing."""
    cli.write("broken.db", "no database")
    cli.write("empty.db", "")
    for kind, store in (
        ("runs", ""),
        ("runs", "sqlite:///none.db"),
        ("approvals", "sqlite:///broken.db"),
        ("open", "sqlite:///empty.db"),
        ("runs", "memory:"),
        ("runs", "nonsense"),
        ("nonsense", ""),
        ("runs", "sqlite:///."),
    ):
        ended = program("completion", "--ids", kind, "", store, cwd=cli.directory)
        assert (ended.code, ended.out, ended.err) == (0, "", "")
    cli.write("remit.toml", "store = 5")
    assert program("completion", "--ids", "runs", cwd=cli.directory).err == ""
    assert {path.name for path in cli.directory.iterdir()} == {
        "broken.db",
        "empty.db",
        "remit.toml",
    }


@pytest.mark.parametrize("written", [True, False])
def test_a_completion_looks_beside_whoever_writes_and_leaves_nothing(
    remit: Path, cli: Cli, written: bool
) -> None:
    """U7: of a store that nobody has open it makes no log and no shared memory."""
    path = next((cli.directory / "home").rglob("remit.db"))
    store = SqliteStore(path)
    if written:
        opened = NewRun("fresh", b"x", NewRow("opened", b"{}"), remit="desk")
        asyncio.run(store.create(opened))
    before = {each.name for each in path.parent.iterdir()}
    ended = program("completion", "--ids", "runs", cwd=cli.directory)
    assert ended.out.splitlines()[0] == ("fresh\tready desk" if written else "ended\tended desk")
    assert {each.name for each in path.parent.iterdir()} == before
    store.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed(shell: Shell, tmp_path: Path) -> None:
    assert program("completion", shell, cwd=tmp_path).out == script(shell)


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", "home/.local/share/bash-completion/completions/remit"),
        ("zsh", "home/.zfunc/_remit"),
        ("fish", "home/.config/fish/completions/remit.fish"),
    ],
)
def test_install_writes_a_script_where_its_shell_looks(cli: Cli, shell: str, place: str) -> None:
    ended = cli("completion", shell, "--install", environ={"ZDOTDIR": ""})
    written = cli.directory / place
    assert (ended.code, ended.out.strip()) == (0, str(written))
    assert written.read_text("utf-8") == script(shell)
    assert ("fpath" in ended.err) == (shell == "zsh")


def test_install_where_nothing_can_be_written_is_one_line(cli: Cli) -> None:
    cli.write("home", "a file where a directory should be")
    ended = cli("completion", "fish", "--install")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_an_unknown_shell_is_told_with_those_that_are_known(cli: Cli) -> None:
    ended = cli("completion", "tcsh")
    assert ended.code == 2
    assert all(shell in ended.err for shell in SHELLS)
