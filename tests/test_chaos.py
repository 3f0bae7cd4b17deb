"""`chaos`: what calls suffer, what they never suffer, and that a seed is a storm."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import remit.testing
from loop_rig import desk, said, statuses
from remit import Call, ConfigurationError, Tool, tool
from remit.pending import Decision, Pending
from remit.testing import (
    DirectoryConformance,
    JournalConformance,
    JournalRaces,
    KeepingConformance,
    Ledger,
    SessionConformance,
    Suffered,
    chaos,
    run_virtual,
)
from remit.testing.chaos import Fault

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")


def shipping(ledger: Ledger) -> Tool[..., Any]:
    @tool(effect="idempotent", resource="order:{order}")
    async def ship(order: str, call: Call) -> str:
        """Ship."""
        return ledger.done(call.key, f"shipped {order}")

    return ship


def asked(*orders: str) -> list[tuple[str, dict[str, str]]]:
    return [("ship", {"order": order}) for order in orders]


def struck(seed: int, fault: Fault | None, *, often: float = 1.0) -> tuple[list[Suffered], Ledger]:
    ledger = Ledger()
    storm = chaos(shipping(ledger), seed=seed, faults=fault and [fault], often=often)
    run_virtual(desk([asked("1", "2", "3"), "done"], [storm]).run("go", run_id="r"))
    return storm.suffered, ledger


def test_a_seed_is_a_storm() -> None:
    """Q2: the same for the same seed, another for another, each fault among them."""
    first, again, other = struck(1, None, often=0.9), struck(1, None, often=0.9), struck(2, None)
    assert first[0] == again[0]
    assert first[1].calls == again[1].calls
    assert first[0] != other[0]
    seen = {each.fault for seed in range(30) for each in struck(seed, None, often=0.8)[0]}
    assert seen == {None, "duplicated", "delayed", "lost", "reordered"}


def test_a_duplicate_comes_under_the_same_key() -> None:
    """Q2, E1, E2: twice delivered, one effect, and the repr tells what happened."""
    suffered, ledger = struck(0, "duplicated")
    assert [each.fault for each in suffered] == ["duplicated"] * 3
    assert sorted(ledger.calls) == sorted(each.key for each in suffered for _ in range(2))
    assert len(ledger.effects) == 3


def test_a_lost_answer_is_an_unknown_outcome_and_the_repeat_has_its_key() -> None:
    """Q2, E4: it took effect; what the model asks again joins it."""
    ledger = Ledger()
    storm = chaos(shipping(ledger), seed=0, faults=["lost"], often=1)
    remit = desk([asked("1"), "done"], [storm])
    outcome = run_virtual(remit.run("go", run_id="r"))
    assert statuses(outcome) == ["unknown"]
    assert list(ledger.effects.values()) == ["shipped 1"]
    calm = chaos(shipping(ledger), seed=0, often=0)
    again = desk([asked("1"), "done"], [calm])
    outcome = run_virtual(again.run("again", history=outcome.transcript))
    assert said(outcome)[-1] == "shipped 1"
    assert ledger.times(storm.suffered[0].key) == 2
    assert len(ledger.effects) == 1


def test_calls_are_late_and_overtake_each_other() -> None:
    """C5, T1: effects happen in another order, results stand in call order."""
    orders: set[tuple[str, ...]] = set()
    for seed in range(20):
        for fault in ("delayed", "reordered"):
            suffered, ledger = struck(seed, fault)
            assert all(0 < each.seconds <= 20 for each in suffered)
            orders.add(tuple(ledger.effects.values()))
    assert len(orders) >= 4


def test_a_confirm_tool_is_never_delivered_twice() -> None:
    """Q2, E1: not by remit, so not by a storm."""
    ledger = Ledger()

    @tool(effect="confirm")
    async def refund(order: str, call: Call) -> str:
        """Refund."""
        return ledger.done(call.key, "refunded")

    async def approves(pending: Pending) -> Decision:
        del pending
        return Decision(approve=True, by="dana")

    for seed in range(20):
        storm = chaos(refund, seed=seed, often=1)
        remit = desk([[("refund", {"order": str(seed)})], "done"], [storm], confirm=approves)
        run_virtual(remit.run("go", run_id=f"r{seed}"))
        assert storm.suffered[0].fault in {"delayed", "lost", "reordered"}
    assert len(ledger.calls) == 20
    storm = chaos(refund, seed=0, faults=["duplicated"], often=1)
    run_virtual(desk([[("refund", {"order": "1"})], "done"], [storm], confirm=approves).run("go"))
    assert [each.fault for each in storm.suffered] == [None]


def test_a_storm_is_a_list_of_tools_with_the_schemas_they_had() -> None:
    """Q2: and what is no storm is refused."""
    ship = shipping(Ledger())
    storm = chaos([ship], seed=3)
    assert [each.spec for each in storm] == [ship.spec]
    assert (storm[0].effect, len(storm), len(storm[:])) == (ship.effect, 1, 1)
    assert repr(storm) == "<chaos seed=3: nothing yet>"
    with pytest.raises(ConfigurationError, match="'late'"):
        chaos(ship, seed=0, faults=["late"])  # pyright: ignore[reportArgumentType] - what is refused
    with pytest.raises(ConfigurationError, match=r"write \['lost'\]"):
        chaos(ship, seed=0, faults="lost")  # pyright: ignore[reportArgumentType] - what is refused
    with pytest.raises(ConfigurationError, match="between 0 and 1"):
        chaos(ship, seed=0, often=2)


@pytest.mark.parametrize("name", ["check_effects", "storm"])
def test_the_examples_of_the_page_run(name: str) -> None:
    """Q1, Q2: the tool that lies about being idempotent is caught, and the one that does not passes."""
    ended = subprocess.run(
        [sys.executable, ROOT / "examples" / "recipes" / f"{name}.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stderr == ""
    if name == "check_effects":
        lines = ended.stdout.splitlines()
        assert lines[:2] == PAGE[PAGE.index("refund, effect=") :].splitlines()[:2]
        assert lines[2].startswith("refund_by_key, effect='idempotent': ")
        assert lines[2].endswith("checks, nothing found")
    else:
        assert len(ended.stdout.splitlines()) == 20


def test_the_page_names_and_links_what_there_is() -> None:
    """Q1, Q2: every link leads somewhere, every name is public."""
    for link in re.findall(r"\]\(\.\./([^)]+)\)", PAGE):
        assert (ROOT / link).exists(), link
    for name in re.findall(r"`([A-Za-z_]+)(?:\(.*?\))?`", PAGE):
        if re.match(
            r"[A-Z]\w+Conformance|Journal\w+|check_effects|effects_of|crash_points|Ledger", name
        ):
            assert hasattr(remit.testing, name), name


@pytest.mark.parametrize(
    "suite",
    [
        JournalConformance,
        JournalRaces,
        SessionConformance,
        DirectoryConformance,
        KeepingConformance,
    ],
)
def test_the_page_and_the_error_name_what_a_suite_asks_for(suite: type[Any]) -> None:
    """Q1: who derives a suite is told what to give it, by the page and by the first test that misses it."""
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{suite.__name__}`")]
    given = [name for name in vars(suite) if name.startswith(("make_", "pass_"))]
    assert given
    for name in given:
        assert f"{name}(" in row, row
        with pytest.raises(NotImplementedError, match=rf"override {name}\(\)"):
            made = getattr(suite(), name)(*(() if name.startswith("make_") else (None, 1.0)))
            asyncio.run(made)
