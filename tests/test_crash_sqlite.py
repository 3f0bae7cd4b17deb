"""Processes that end at every boundary of a run on a SQLite file, and others that go on with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crash_rig import SHAPES
from effort import QUICK, THOROUGH

RIG = Path(__file__).with_name("sqlite_crash_rig.py")
PLAYED_WHOLE = {
    *(
        "confirm in the middle",
        "parallel effects",
        "serial by resource",
        "eager reads",
        "doubt",
        "retries",
    ),
    *("confirm by callback", "confirm by decision", "questions by supply", "handed out"),
    *("child", "tree of depth three", "child that waits", "mixed"),
}
"""The shapes of which every boundary is played unless tests are to be quick; of the others every fourth, and all in CI."""


class Warm:
    """The rig, begun once: what it plays is forked off it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, RIG],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def boundaries(
        self, name: str, folder: Path, *, every: int = 1, offset: int = 0, by: int = 0
    ) -> list[dict[str, Any]]:
        """Die at each boundary of a shape and have another process go on. Errors: what differs then."""
        told, answers = self._process.stdin, self._process.stdout
        assert told is not None
        assert answers is not None
        told.write(f"{json.dumps([name, str(folder), every, offset, by])}\n")
        told.flush()
        status = answers.readline().strip()
        assert status == "0", f"{status}: {(folder / 'wrong').read_text('utf-8')}"
        return [json.loads(line) for line in (folder / "played").read_text("utf-8").splitlines()]

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def rig() -> Iterator[Warm]:
    warm = Warm()
    yield warm
    warm.close()


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@forks
@pytest.mark.parametrize("name", SHAPES)
def test_a_process_that_ends_anywhere_leaves_a_file_on_which_another_comes_to_the_same_end(
    name: str, rig: Warm, tmp_path: Path
) -> None:
    """E1, E2, E3, E6, J2, J3, T2, L3, case 30, case 34: the same effects, keys, words and spend."""
    whole = THOROUGH or (name in PLAYED_WHOLE and not QUICK)
    every = 1 if whole else 8 if QUICK else 4
    offset = 0 if whole else (sorted(SHAPES).index(name) + sys.version_info.minor) % every
    passed = [each["at"] for each in rig.boundaries(name, tmp_path, every=every, offset=offset)]
    assert passed, "nobody died"
    if whole:
        assert passed[:2] == ["before create", "after create"]
        entered = {what.split(" the effect ")[1] for what in passed if " the effect " in what}
        assert all(
            f"{side} the effect {key}" in passed for key in entered for side in ("before", "after")
        )


@forks
def test_a_killed_batch_goes_on_behind_what_was_done_and_does_not_pay_again(
    rig: Warm, tmp_path: Path
) -> None:
    """Case 30, E1, E3, case 34: w1 is done, w2 pays and is killed inside, w3 is behind it; kill -9 at every point."""
    played = rig.boundaries("confirm in the middle", tmp_path, by=signal.SIGKILL)
    assert len(played) >= 12
    inside = 0
    for each in played:
        (w1, *first), (w2, *payment), (w3, *last) = each["results"]
        assert len({w1, w2, w3}) == 3, "three calls, three keys"
        assert first == ["ok", "changed k a"], each
        assert last == ["ok", "changed k b"], each
        assert each["calls"].get(w2, 0) <= 1, each
        if each["at"] == f"after the effect {w2}":
            inside += 1
            assert payment[0] == "unknown"
            assert "Outcome unknown" in payment[1]
            assert each["calls"] == {w1: 1, w2: 1, w3: 1}
        elif payment[0] == "ok":
            assert each["calls"][w2] == 1
        if "the effect" not in each["at"] and "settled" not in each["at"]:
            assert each["calls"][w1] == each["calls"][w3] == 1
    assert inside == 1
