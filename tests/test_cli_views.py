"""The commands that show something: `remit tools`, `remit demo`, `--help`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import remit
from cli_rig import ROOT, SHOP, Cli, environment, home_of, program, write_script
from remit import demo
from remit.testing import run_virtual


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A directory with a file of tools."""
    cli.write("shop.py", SHOP)
    write_script(cli.directory, ["Hello."])
    return cli


# --- tools ---------------------------------------------------------------------------------------


def test_tools_are_shown_as_the_model_would_see_them(shop: Cli) -> None:
    document = shop("tools", "shop.py", "--json").document
    assert document["v"] == 1
    look, pay, own = document["tools"]
    assert (own["name"], own["effect"]) == ("read_artifact", "read")
    assert (look["name"], look["effect"], look["description"]) == (
        "look",
        "read",
        "Look something up.",
    )
    assert (pay["name"], pay["effect"]) == ("pay", "confirm")
    assert look["parameters"]["properties"] == {"what": {"type": "string"}}
    assert document["tokens"] >= look["tokens"] + pay["tokens"] + own["tokens"] > 0

    lines = shop("tools", "shop.py").out.splitlines()
    assert lines[0].split() == [str(look["tokens"]), "tokens", "read", "look"]
    assert lines[1].strip() == "Look something up."
    assert json.loads(lines[2]) == look["parameters"]
    assert lines[-1].startswith(f"{document['tokens']:>6,} tokens in all, estimated")


def test_a_model_says_what_part_of_its_window_the_tools_take(shop: Cli) -> None:
    last = shop("tools", "--tools", "shop.py:look", "--model", "demo:support").out.splitlines()[-1]
    assert last.endswith("of the 200,000 that demo:support reads at once")
    assert (
        shop("tools", "shop.py:desk")
        .out.splitlines()[-1]
        .endswith("scripted:script.json reads at once")
    )
    assert shop("tools", "shop.py:look").out.splitlines()[-1].endswith("estimated")


def test_a_profile_and_a_remit_can_be_shown(shop: Cli) -> None:
    shop.write("remit.toml", '[remits.desk]\ntarget = "shop.py:desk"\n')
    assert (
        shop("tools", "desk").out == shop("tools", "shop.py").out == shop("tools", "shop:desk").out
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name what holds the tools: remit tools FILE.py"),
        (["shop.py", "--tools", "shop.py"], "--tools and shop.py: a remit brings its own tools"),
        (["shop.py:look", "--model", "nonesuch:x"], "model 'nonesuch:x': nobody here knows it"),
        (["shpo.py"], "there is no file shpo.py (did you mean shop.py?)"),
    ],
)
def test_tools_that_cannot_be_shown_are_one_clear_line(
    shop: Cli, arguments: list[str], told: str
) -> None:
    ended = shop("tools", *arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err


# --- demo ----------------------------------------------------------------------------------------


def test_the_demo_runs_to_its_end_where_nobody_sits(tmp_path: Path) -> None:
    ended = program("demo", cwd=tmp_path)
    assert ended.code == 0
    assert ended.out.startswith("Order 1042 is in transit.")
    assert "I have refunded the shipping" in ended.out
    for told in ("carrier did not answer", "the demo approves it", "completed", "scripted"):
        assert told in ended.err


def test_the_demo_is_shown_as_its_flags_say(cli: Cli) -> None:
    loud = cli("demo", "--plain", "--verbose", "--no-motion", "--color", "always")
    assert (loud.code, "\x1b[" in loud.err) == (0, True)
    quiet = cli("demo", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, loud.out, "")
    assert cli("demo", "--quiet", "--verbose").code == 2


def test_the_demo_reads_a_long_result_in_pages_and_asks_a_question(cli: Cli) -> None:
    """X2: what the answer rests on stands in the part of the log that no result showed."""
    ended = cli("demo", "--plain")
    cut = next(line for line in ended.err.splitlines() if "get_carrier_log" in line)
    assert "label was torn" not in cut
    assert [name in ended.err for name in ("search=held", "offset=", "the demo says card")] == [
        True
    ] * 3
    assert "its label was torn" in ended.out


def test_the_desk_can_be_run_and_looked_at_by_name(cli: Cli) -> None:
    names = [tool.name for tool in demo.support.offered]
    document = cli("tools", "remit.demo", "--json").document
    assert [tool["name"] for tool in document["tools"]] == names
    ended = cli("run", demo.QUESTION, "--remit", "remit.demo:support", "--steps", "1", "--json")
    assert ended.document["reason"] == remit.Reason.STEP_BUDGET


def test_a_refund_is_paid_once_for_each_key() -> None:
    shop = demo.Shop()

    async def yes(pending: remit.Pending) -> remit.Decision:
        return remit.Decision(approve=True, by="a test")

    async def card(pending: remit.Pending) -> str:
        return "card"

    desk = demo.desk(shop).replace(confirm=yes, answer=card)

    async def main() -> None:
        first = await desk.run(demo.QUESTION, run_id="r-1")
        assert first.completed
        assert (await desk.run(demo.QUESTION, run_id="r-1")).text == first.text
        assert [str(amount) for amount in shop.refunds.values()] == ["4.90"]

    run_virtual(main())


def test_the_demo_asks_again_for_every_question() -> None:
    """Its model counts from what was said last, so that a chat can go on."""
    desk = demo.desk(demo.Shop())

    async def main() -> None:
        first = await desk.run(demo.QUESTION)
        again = await desk.run(demo.QUESTION, history=first.transcript)
        assert again.reason is first.reason is remit.Reason.WAITING

    run_virtual(main())


def test_the_example_runs_as_a_program_and_on_the_command_line(tmp_path: Path) -> None:
    script = [sys.executable, ROOT / "examples" / "stock.py"]
    ended = subprocess.run(
        script, env=environment(tmp_path), capture_output=True, text=True, check=True, timeout=60
    )
    answer, account = ended.stdout.splitlines()
    assert account.startswith("completed: 3 steps, 2 calls")
    ran = program(
        "run",
        "Do we have enough lamps?",
        "--tools",
        "examples/stock.py",
        "--model",
        "scripted:examples/stock.json",
        cwd=ROOT,
        environ=home_of(tmp_path),
    )
    assert (ran.code, ran.out) == (0, f"{answer}\n")


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["-h"],
        ["run", "--help"],
        ["tools", "-h"],
        ["config"],
        ["config", "show", "-h"],
    ],
)
def test_help_is_on_stdout_and_no_wider_than_the_terminal(cli: Cli, arguments: list[str]) -> None:
    for columns in (60, 80, 200):
        ended = cli(*arguments, environ={"COLUMNS": str(columns)})
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith("Usage: remit")
        body = ended.out.partition("Exit codes:")[0].splitlines()
        assert [line for line in body if len(line) > min(columns, 100)] == []


def test_help_says_what_a_run_may_use_where_nobody_says_otherwise(cli: Cli) -> None:
    page = " ".join(cli("run", "--help").out.split())
    assert "Built in: 12 steps, 100,000 tokens, 300 seconds, no limit to the rest" in page


def test_asking_for_help_in_the_midst_of_a_command_runs_nothing(shop: Cli) -> None:
    ended = shop("run", "hi", "--remit", "shop.py", "--help")
    assert (ended.code, "Hello." in ended.out) == (0, False)
