"""The recipes run, do what they say, are short and are linked."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import remit
from loop_rig import desk
from remit import Limits, Outcome, Reason
from remit.testing import ScriptedModel, run_virtual

ROOT = Path(__file__).resolve().parent.parent
RECIPES = sorted((ROOT / "examples" / "recipes").glob("*.py"))
PAGE = (ROOT / "docs" / "recipes.md").read_text("utf-8")
MAX_LINES = 66


def output_of(name: str) -> str:
    ended = subprocess.run(
        [sys.executable, ROOT / "examples" / "recipes" / name],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stderr == ""
    return ended.stdout


def module_of(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, ROOT / "examples" / "recipes" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_a_recipe_fits_on_a_page_and_is_linked(recipe: Path) -> None:
    assert len(recipe.read_text("utf-8").splitlines()) <= MAX_LINES
    assert f"(../examples/recipes/{recipe.name})" in PAGE
    assert f"python examples/recipes/{recipe.name}" in recipe.read_text("utf-8")


def test_the_page_links_nothing_that_is_not_there() -> None:
    for link in re.findall(r"\]\(\.\./([^)]+)\)", PAGE):
        assert (ROOT / link).exists(), link


def test_every_name_that_the_page_uses_is_offered() -> None:
    names = set(re.findall(r"\bremit\.(\w+)", PAGE))
    assert [name for name in sorted(names) if not hasattr(remit, name)] == []


def test_what_is_logged_holds_no_secret() -> None:
    """R1, W1: calls and replies, each in a line."""
    lines = output_of("log_calls.py").splitlines()
    assert [line for line in lines if line.startswith("INFO")] == [
        "INFO reply tool_use, " + lines[0].rpartition(", ")[2],
        'INFO sign_in {"user":"ada","password":"***"} key=' + lines[1].rpartition("key=")[2],
        "INFO reply end_turn, " + lines[2].rpartition(", ")[2],
    ]
    assert "hunter2" not in "".join(lines)
    assert lines[-2].startswith("completed")


def test_a_cached_reply_costs_nothing() -> None:
    """L2, W1: the second run is the first one over again."""
    first, text, again, same = output_of("cache_replies.py").splitlines()
    assert text == same == "It stands at 42."
    assert "0 tokens, 0 USD" not in first
    assert "0 tokens, 0 USD" in again


def test_a_cached_read_is_no_call() -> None:
    """L1, W1: its function is entered once."""
    lines = output_of("cache_reads.py").splitlines()
    assert lines.count("asking the exchange about ACME") == 1
    assert ["1 calls" in lines[1], "0 calls" in lines[3]] == [True, True]


def test_a_model_that_only_writes_text_has_tools() -> None:
    """N4: two actions in one reply, told in their order."""
    assert output_of("plain_text_model.py").splitlines() == [
        "Observation act_1 (price):",
        "| 39",
        "Observation act_2 (price):",
        "| 240",
        "",
        "The lamp and the desk are 279 together.",
    ]


def test_what_is_redacted_reaches_nobody() -> None:
    """R1, R2: neither the model nor the person who approves."""
    output = output_of("redact_results.py")
    assert not re.search(r"4111|example\.com|4711", output)
    assert output.count("[mail]") == 2
    assert 'charge(number=7, code="***")' in output


def test_a_decision_counts_once_in_the_handlers() -> None:
    """E5: the second click is told so."""
    lines = output_of("approve_in_a_handler.py").splitlines()
    assert lines[0].startswith("202 refund(")
    assert lines[1:] == [
        "{'status': 200, 'text': 'It is refunded.'}",
        "{'status': 409, 'why': 'used'}",
    ]


def test_a_provider_that_fails_is_played_over_a_socket() -> None:
    """S1, E7: the run completes, and what was done before the faults is done once."""
    assert output_of("play_a_provider.py").splitlines() == [
        "completed: It is packed.",
        "4 requests, 0 of them broke the protocol",
        "packed: [7]",
    ]


def test_the_rate_is_shared_by_all_runs() -> None:
    """W1: one request in a tenth of a second."""
    lines = output_of("share_a_rate.py").splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"task {n}" for n in range(5)]
    assert float(lines[-1].split()[-2]) >= 0.4


def limited(seconds: float, latency: float = 0.0) -> Any:
    rate = module_of("share_a_rate").Rate(seconds)
    model = ScriptedModel(lambda *_: "Done.", latency=latency, record=True)
    return model, desk([], model=remit.wrap_model(rate)(model))


def test_the_rate_is_first_come_first_served() -> None:
    """W1: whoever comes later begins later; the requests themselves may overlap."""

    async def main() -> None:
        model, support = limited(2.0, latency=9.0)
        order: list[int] = []

        async def run(number: int) -> None:
            await asyncio.sleep(number / 100)
            await support.run(f"Task {number}.")
            order.append(number)

        await asyncio.gather(*(run(number) for number in range(20)))
        assert order == list(range(20))
        began = [request.at for request in model.requests]
        assert [round(later - sooner, 3) for sooner, later in itertools.pairwise(began)] == [
            2.0
        ] * 19

    run_virtual(main())


def test_who_leaves_the_line_uses_nothing_up() -> None:
    """K1, L4, W1: a cancel and a deadline end the wait at once, and whoever is next comes sooner."""

    async def main() -> None:
        model, support = limited(10.0)
        brief = Limits(steps=2, tokens=100_000, seconds=15)
        first = asyncio.create_task(support.run("First."))
        await asyncio.sleep(0.1)
        cancelled = asyncio.create_task(support.run("Cancelled.", run_id="c"))
        await asyncio.sleep(0.1)
        late = asyncio.create_task(support.run("Late."))
        await asyncio.sleep(0.1)
        hurried = asyncio.create_task(support.run("Hurried.", limits=brief))
        await asyncio.sleep(1)
        cancelled.cancel()
        outcomes: list[Outcome[str]] = [await first, await late, await hurried]
        assert [outcome.reason for outcome in outcomes] == [
            Reason.COMPLETED,
            Reason.COMPLETED,
            Reason.DEADLINE,
        ]
        assert (await support.outcome("c")).reason is Reason.CANCELLED
        assert [round(request.at) for request in model.requests] == [0, 10]
        assert (await support.run("Next.")).completed
        assert [round(request.at) for request in model.requests] == [0, 10, 20]

    run_virtual(main())
