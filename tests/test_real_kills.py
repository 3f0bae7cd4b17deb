"""Real kills of real processes on a real file. Real time: nothing here waits for a certain length of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from effort import QUICK, THOROUGH

RIG = Path(__file__).with_name("kill_rig.py")
KILLS, LEAST = (200, 20) if THOROUGH else (30, 2) if QUICK else (60, 5)
"""How many workers are killed, and how many of them in each phase at least."""


@pytest.mark.skipif(
    not hasattr(signal, "sigtimedwait"), reason="this system has no fork or no sigtimedwait"
)
def test_workers_that_are_killed_in_every_phase_repeat_nothing_and_lose_nothing(
    tmp_path: Path,
) -> None:
    """E1, E2, E3, J2, J3, case 30, case 34: no finished call again, doubts under their key, no payment twice."""
    played = subprocess.run(
        [sys.executable, RIG, tmp_path, str(KILLS), str(LEAST), "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert played.returncode == 0, played.stderr
    print(played.stdout)  # noqa: T201 - the histogram, which pytest shows with -rP
    figures = json.loads(played.stdout)
    phases: dict[str, int] = figures["phases"]
    assert figures["kills"] >= KILLS
    assert sum(phases.values()) == figures["kills"]
    assert len(phases) == 7
    assert min(hit for phase, hit in phases.items() if phase != "ELSEWHERE") >= LEAST
    assert figures["finished calls seen"] > KILLS / 4
    assert figures["finished calls repeated"] == figures["payments entered twice"] == 0
    assert figures["tried again under their own key"] > KILLS / 6
