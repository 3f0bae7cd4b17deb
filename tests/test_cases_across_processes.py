"""Cases of approvals and of late effects whose every step is a process of its own, on one SQLite file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RIG = Path(__file__).with_name("cases_rig.py")
pytestmark = pytest.mark.skipif(
    not hasattr(signal, "sigtimedwait"), reason="this system has no fork or no sigtimedwait"
)


KINDS = {"async", "sync", "schema", "generator", "async_generator", "inside"}


def played(case: str, folder: Path) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, RIG, case, folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def statuses(end: dict[str, Any]) -> list[str]:
    return [status for _, status, _ in end["results"]]


def test_an_outcome_that_came_late_is_there_for_the_process_that_goes_on(tmp_path: Path) -> None:
    """Case 31, E4: kill -9 after it landed; the equal call gets what is recorded and nothing is done twice."""
    found = played("31", tmp_path)
    (first, unknown, text), (second, ok, answer) = found["end"]["results"]
    assert (unknown, ok) == ("unknown", "ok")
    assert "Outcome unknown" in text
    assert answer == "added a"
    assert first == second
    assert found["entered"] == found["done"] == {first: 1}


def test_an_effect_that_died_with_its_process_is_asked_for_again_under_its_key(
    tmp_path: Path,
) -> None:
    """Case 31, case 34, E4: kill -9 before it landed; the equal call is its repeat, and downstream sees one key."""
    found = played("31, killed before it lands", tmp_path)
    (first, _, _), (second, _, answer) = found["end"]["results"]
    assert statuses(found["end"]) == ["unknown", "ok"]
    assert answer == "added a"
    assert first == second
    assert (found["entered"], found["done"]) == ({first: 2}, {first: 1})


def test_decisions_reach_their_calls_over_processes_in_any_order(tmp_path: Path) -> None:
    """Case 63, E6: z yes and x no, then another process, then y yes: each once, nobody is asked again."""
    found = played("63", tmp_path)
    assert found["said"] == ["decided", "decided", "used", "decided"]
    assert list(found["between"]["pending"]) == ["y"]
    assert statuses(found["end"]) == ["refused", "ok", "ok"]
    assert [text for _, _, text in found["end"]["results"]][1:] == ["did y", "did z"]
    assert found["done"] == {"y": 1, "z": 1}
    assert found["end"]["reason"] == "completed"


def test_a_mixed_batch_ends_whole_in_another_process(tmp_path: Path) -> None:
    """Case 64, E6, T1: what is free ran at once and once, one is approved, one refused, all in call order."""
    found = played("64", tmp_path)
    assert found["first"] == {"free1": 1, "free2": 1}
    assert statuses(found["waits"]) == ["ok", "not_started", "not_started", "ok"]
    assert statuses(found["end"]) == ["ok", "ok", "refused", "ok"]
    assert found["done"] == {"free1": 1, "free2": 1, "yes": 1}


def test_no_kind_of_tool_is_entered_without_a_yes_in_whichever_process(tmp_path: Path) -> None:
    """Case 65, C8, E1: async, in a thread, by schema, a generator of either kind, inside a child: none while it waits,
    none after a no.
    """
    found = played("65", tmp_path)
    assert set(found["waits"]["pending"]) == KINDS
    assert found["again"] == found["waits"], "nobody is asked twice"
    assert found["meanwhile"] == found["done"] == {}
    assert statuses(found["end"])[:5] == ["refused"] * 5
    assert found["end"]["reason"] == "completed"


def test_every_kind_of_tool_is_entered_once_for_its_yes_in_whichever_process(
    tmp_path: Path,
) -> None:
    """Case 65, C8, E1: those that are approved run, a generator to its end, and each of them once."""
    found = played("65, approved", tmp_path)
    assert set(found["waits"]["pending"]) == KINDS
    assert found["meanwhile"] == {}
    assert statuses(found["end"]) == ["ok"] * 6
    assert found["done"] == dict.fromkeys(KINDS, 1)
