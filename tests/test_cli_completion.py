"""Completion scripts: static files that say what the command line is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from cli_rig import Cli, program
from completions import SCRIPTS, generated
from remit.cli.scripts import NAMES, script

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
