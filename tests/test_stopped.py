"""A process that is stopped past its lease, and continued once another has finished its run. Real time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

RIG = Path(__file__).with_name("stop_rig.py")


@pytest.mark.skipif(
    not hasattr(signal, "sigtimedwait"), reason="this system has no fork or no sigtimedwait"
)
@pytest.mark.parametrize(
    ("phase", "tool"),
    [
        ("ASKING", None),
        ("BEFORE_THE_BODY", None),
        ("BEFORE_THE_BODY", "write"),
        ("IN_THE_BODY", "write"),
        ("IN_THE_BODY", "pay"),
        ("AFTER_THE_EFFECT", "change"),
        ("AFTER_THE_EFFECT", "pay"),
    ],
)
def test_a_stopped_worker_that_was_taken_over_from_enters_no_body_and_writes_no_row(
    phase: str, tool: str | None, tmp_path: Path
) -> None:
    """J2, J3, E1: it is fenced, whatever it was about, and every effect is there once under its key."""
    played = subprocess.run(
        [sys.executable, RIG, tmp_path, phase, *([] if tool is None else [tool])],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert played.returncode == 0, played.stderr
    found = json.loads(played.stdout)
    before, after = found["before"], found["after"]
    assert (found["first"], found["second"]) == ("journal_failed", "completed")
    assert after["rows"] == before["rows"], "the late writer wrote no row"
    assert after["entered by the first"] == before["entered by the first"], "and entered no body"
    entered, did = Counter(after["entered"]), Counter(after["did"])
    assert len(entered) == len(did) == 9
    assert {key for key, times in entered.items() if times > 1} <= set(
        before["entered by the first"]
    ), "only what the stopped one was at is done again, under its own key"
    payments = [key for key in entered if ":pay:" in key]
    assert [(entered[key], did[key]) for key in payments] == [(1, 1)]
    assert max(epoch for _, _, epoch, _ in after["rows"]) > 1
