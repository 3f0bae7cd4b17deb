"""The page about looking at runs: its program runs, and its commands print what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli_rig import ROOT, Cli, environment
from remit.analysis.listing import Listed
from remit.analysis.sheet import RunSheet
from remit.store.directory import RunEntry

PAGE = ROOT / "docs" / "runs.md"
TEXT = PAGE.read_text("utf-8")
STORE = {"REMIT_STORE": "sqlite:///remit.db"}


def commands() -> list[tuple[str, str]]:
    """Every command of the page, and what stands below it."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output.strip("\n")))
    return found


def settled(text: str) -> str:
    """What is another at each run in a form of its own: times, random ids, and how they are laid out."""
    for pattern, stands in (
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
        (r"\d+ (s|min) ago", "AGO"),
        (r"\d+\.\d+ s\b", "TOOK"),
        (r"\b[0-9a-f]{20}\b", "ID"),
        (r"held by .*, which is gone", "held by OWNER, which is gone"),
        (r" +", " "),
    ):
        text = re.sub(pattern, stands, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the program of the page has run."""
    directory = tmp_path_factory.mktemp("desk")
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (directory / "desk.py").write_text(code, "utf-8")
    ended = subprocess.run(
        [sys.executable, "desk.py"],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (1, "")  # the machine failed, as it says
    return directory


@pytest.mark.parametrize(("command", "output"), commands())
def test_a_command_of_the_page_prints_what_stands_there(
    desk: Path, cli: Cli, command: str, output: str
) -> None:
    """U7: the page shows real output."""
    cli.directory = desk
    ended = cli(*shlex.split(command)[1:], environ=STORE)
    assert ended.code == 0, ended.err
    assert settled(output) == settled(ended.out + ended.err)


def test_the_page_names_every_field_for_programs() -> None:
    fields = {*RunEntry.__struct_fields__, *Listed.__struct_fields__} - {"entry"}
    rows = TEXT.partition("| `runs` |")[2].partition("\n")[0]
    assert set(re.findall(r"`(\w+)`", rows)) == fields
    shown = set(RunSheet.__struct_fields__)
    assert {name for name in shown if f"`{name}`" not in TEXT} == set()


def test_the_links_of_the_page_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (PAGE.parent / link).exists(), link
