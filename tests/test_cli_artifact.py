"""`remit artifact`: full outputs that runs keep, printed, searched and written."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli_rig import Cli, program
from pty_rig import Person
from reading_rig import Left, leave_runs, look_at


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return leave_runs(tmp_path_factory.mktemp("left"))


@pytest.fixture
def kept(left: Left, cli: Cli) -> Cli:
    return look_at(left, cli)


TEXT = "".join(f"line {n} of many\n" for n in range(3_000))
BYTES = bytes(range(256)) * 8
PAGES = f"artifact:{hashlib.sha256(TEXT.encode()).hexdigest()}"
PICTURE = f"artifact:{hashlib.sha256(BYTES).hexdigest()}"


def test_a_text_is_printed_whole_by_its_handle_or_the_beginning_of_it(kept: Cli) -> None:
    """U7: the run is found where none is named; 12 digits do."""
    for handle in (PAGES, PAGES[9:], PAGES[9:21], PAGES[:21]):
        ended = kept("artifact", handle)
        assert (ended.code, ended.out, ended.err) == (0, TEXT, "")
    assert kept("artifact", PAGES, "--run", "done").out == TEXT
    assert kept("artifact", PAGES, "--run", "do").out == TEXT


def test_show_names_what_artifact_prints(kept: Cli) -> None:
    """U7: every handle that a run shows resolves."""
    artifacts = kept("show", "done", "--json").document["artifacts"]
    assert {each["handle"] for each in artifacts} == {PAGES, PICTURE}
    ended = kept("show", "done", "--only", "artifacts")
    assert PAGES in ended.out
    assert PICTURE in ended.out


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--range", "0:6"], "line 0"),
        (["--range", f"{len(TEXT) - 5}:"], "many\n"),
        (["--range", ":4"], "line"),
        (["--range", "9999999:"], ""),
        (["--grep", "line 2999"], "3000: line 2999 of many\n"),
        (["--grep", "^line 1[01] "], "11: line 10 of many\n12: line 11 of many\n"),
        (["--grep", "nothing"], ""),
    ],
)
def test_a_part_of_a_text_is_printed(kept: Cli, flags: Sequence[str], expected: str) -> None:
    """U7: characters, or the lines that fit."""
    ended = kept("artifact", PAGES, *flags)
    assert (ended.code, ended.out) == (0, expected)


def test_a_program_is_told_the_text_the_lines_or_the_bytes(kept: Cli) -> None:
    """U7: as one document, whatever it is."""
    whole = kept("artifact", PAGES, "--json").document
    assert (whole["text"], whole["base64"], whole["bytes"]) == (TEXT, None, len(TEXT))
    assert whole["handle"].startswith("artifact:")
    assert kept("artifact", PAGES, "--json", "--range", "0:6").document["text"] == "line 0"
    lines = kept("artifact", PAGES, "--json", "--grep", "^line 10 ").document["lines"]
    assert lines == [{"number": 11, "text": "line 10 of many"}]
    picture = kept("artifact", PICTURE, "--json").document
    assert (picture["text"], b64decode(picture["base64"])) == (None, BYTES)
    for flags in (("--grep", "x"), ("--range", "0:1"), ("--out", "x.bin")):
        assert kept("artifact", PICTURE, "--json", *flags).code == 2


def test_bytes_are_written_to_a_file_as_they_are(kept: Cli) -> None:
    """U7: and never over one that is there."""
    ended = kept("artifact", PICTURE, "--out", "picture.bin")
    assert (ended.code, ended.out) == (0, "")
    assert (kept.directory / "picture.bin").read_bytes() == BYTES
    again = kept("artifact", PICTURE, "--out", "picture.bin")
    assert (again.code, "it exists" in again.err) == (2, True)


def test_bytes_go_through_a_pipe_and_not_to_a_terminal(left: Left, tmp_path: Path) -> None:
    """U7: a terminal would obey them."""
    flags = ("artifact", PICTURE, "--store", f"sqlite:///{left.directory / 'runs.db'}")
    piped = tmp_path / "piped"
    with piped.open("wb") as stream, Person(*flags, cwd=tmp_path, stdout=stream.fileno()) as person:
        assert person.ends() == 0
    assert piped.read_bytes() == BYTES
    with Person(*flags, cwd=tmp_path) as person:
        assert person.ends() == 2
        assert "no text for a terminal" in person.written.decode()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["artifact:abc"], 2, "at least 12 hex digits"),
        (["artifact:" + "0" * 64], 3, "no run of this store keeps"),
        ([PAGES, "--run", "waits"], 3, "run waits keeps nothing"),
        ([PAGES, "--run", "nobody"], 3, "nobody"),
        ([PAGES, "--range", "5"], 2, "0:2000"),
        ([PAGES, "--range", "5:2"], 2, "2 comes before 5"),
        ([PAGES, "--grep", "("], 2, "--grep"),
        ([PICTURE, "--grep", "a"], 2, "no text"),
        ([PAGES, "--grep", "a", "--out", "x"], 2, "leave out"),
        ([PAGES, "--out", "no/where"], 2, "no/where"),
    ],
)
def test_what_cannot_be_printed_says_why(
    kept: Cli, arguments: Sequence[str], code: int, says: str
) -> None:
    """U2, U7: one line."""
    ended = kept("artifact", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_long_text_goes_through_a_pipe_and_nothing_beside_it(left: Left, tmp_path: Path) -> None:
    """U1: the answer alone."""
    store = f"sqlite:///{left.directory / 'runs.db'}"
    assert program("artifact", PAGES, "--store", store, cwd=tmp_path).out == TEXT
