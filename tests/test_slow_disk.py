"""A disk that takes its time: what waits for it is the run, never the event loop, and nothing is lost.

Real time, a real process and a real file: each flush takes a fifth of a second longer (`slow_disk`).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.store.base import StoredRow
from remit.store.sqlite import SqliteStore
from slow_disk import compiler, slow_disk
from slow_disk_runs import RUNS, STEPS

FLUSH_SECONDS = 0.2
HERE = Path(__file__).parent
LOOP_SECONDS = 0.005
"""The event loop is held no longer."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What the runs saw, and the file that they left."""
    if not sys.platform.startswith("linux"):
        pytest.skip("a library is put before the C library in the way of Linux")
    if compiler() is None:
        if os.environ.get("CI"):
            pytest.fail("there is no C compiler: .ci/run installs one")
        pytest.skip("there is no C compiler here: install gcc")
    folder = tmp_path_factory.mktemp("slow_disk")
    environment = slow_disk(folder, FLUSH_SECONDS)
    environment["PYTHONPATH"] = os.pathsep.join(
        str(HERE.parent / name) for name in ("src", "benchmarks")
    )
    ran = subprocess.run(
        [sys.executable, HERE / "slow_disk_runs.py", folder / "runs.db"],
        env=environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "runs.db", json.loads(ran.stdout)


@pytest.mark.parametrize("runs", ["one", "hundred"])
def test_a_slow_flush_holds_up_no_event_loop(seen: tuple[Path, dict[str, Any]], runs: str) -> None:
    """J1: the thread of the loop flushes nothing and waits for no flush.

    That it flushes nothing is counted. What each turn takes of its thread is measured, and what it waits for, beside
    whatever else this machine does: of ten turns of the loop nine come in time, and none waits as long as a flush
    takes. A loop that flushed would have few turns and be late in most of them.
    """
    found = seen[1][runs]
    assert found["flushes"] > 2 * STEPS, "it was the disk that was slow"
    assert found["seconds"] > 2 * STEPS * FLUSH_SECONDS
    assert found["held"] == 0
    assert found["busiest"] < LOOP_SECONDS, "a hundred who were told at once go on in many turns"
    assert found["usual"] < LOOP_SECONDS
    assert found["waited"] < FLUSH_SECONDS / 4


def test_runs_on_a_slow_disk_share_its_flushes(seen: tuple[Path, dict[str, Any]]) -> None:
    """J1: a hundred runs take about as long as one, and not a hundred times as long."""
    one, hundred = seen[1]["one"], seen[1]["hundred"]
    assert hundred["flushes"] < 6 * one["flushes"]
    assert hundred["seconds"] < 6 * one["seconds"]


def test_a_run_that_is_cancelled_waits_for_its_flush(seen: tuple[Path, dict[str, Any]]) -> None:
    """J1, K1: whoever is cancelled while a transaction is under way knows what was written, and writes the end."""
    path, found = seen
    assert found["cancelled"] > FLUSH_SECONDS
    rows = _rows(path, "cancelled")
    assert [row.kind for row in rows] == ["opened", "replied", "started", "settled", "ended"]
    assert json.loads(rows[-1].body)["reason"] == "cancelled"


def test_nothing_is_lost_on_a_slow_disk(seen: tuple[Path, dict[str, Any]]) -> None:
    """J1, J2: another process reads every row of every run, and the chains are whole."""
    steps = ["replied", "started", "settled"] * STEPS
    for number in range(RUNS):
        kinds = [row.kind for row in _rows(seen[0], f"r{number}")]
        assert kinds == ["opened", *steps, "replied", "ended"]


def _rows(path: Path, run_id: str) -> list[StoredRow]:
    store = SqliteStore(path)
    try:
        return list(asyncio.run(store.read(run_id)))
    finally:
        store.close()
