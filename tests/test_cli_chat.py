"""`remit chat`: several prompts, one conversation, piped in or at a terminal."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from cli_rig import SHOP, Cli, program, write_script
from pty_rig import Person
from remit.cli import exits

LOOK = {"text": "I look.", "calls": [{"tool": "look", "arguments": {"what": "x"}}]}
PAY = {"text": "I pay.", "calls": [{"tool": "pay", "arguments": {"amount": 3}}]}

DECIDE = """
from remit import Decision


async def yes(pending):
    return Decision(approve=True, by="a test")
"""

COUNT = """\
from remit import Limits, Remit
from remit.testing import ScriptedModel


def said(transcript, request):
    prompts = [message.text for message in transcript if message.role == "user"]
    return f"{request.instructions}{' + '.join(prompts)}"


memory = Remit(
    name="memory", model=ScriptedModel(said), limits=Limits(steps=3, tokens=50_000, seconds=30)
)
"""
"""A remit whose model repeats everything that was ever said to it."""


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A directory with a file of tools, a script, and a model that remembers."""
    cli.write("shop.py", SHOP)
    cli.write("count.py", COUNT)
    cli.write("decide.py", DECIDE)
    write_script(cli.directory, ["One.", LOOK, "Two.", "Three."])
    return cli


MEMORY = ("chat", "--remit", "count.py")
SHOPPING = ("chat", "--tools", "shop.py", "--model", "scripted:script.json")


# --- piped in ------------------------------------------------------------------------------------


def test_each_line_is_a_prompt_of_one_conversation(shop: Cli) -> None:
    ended = shop(*MEMORY, stdin=b"a\n\n  \nb\r\nc")
    assert (ended.code, ended.out) == (0, "a\na + b\na + b + c\n")


def test_a_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT, "utf-8")
    ended = program(*MEMORY, cwd=tmp_path, stdin=b"a\nb\n")
    assert (ended.code, ended.out) == (0, "a\na + b\n")


def test_nothing_said_is_nothing_run(shop: Cli, tmp_path: Path) -> None:
    assert (shop(*MEMORY, stdin=b"").code, program(*MEMORY, cwd=tmp_path).code) == (0, 0)


def test_what_is_asked_beside_is_answered_on_stderr(shop: Cli) -> None:
    ended = shop(*SHOPPING, stdin=b"a\nb\n/cost\n/tools\n/show\n/undo\n/show\n/help\n/quit\nc\n")
    assert (ended.code, ended.out) == (0, "One.\nTwo.\n")
    assert "2 prompts, 3 steps, 1 calls" in ended.err
    assert "look" in ended.err
    shown, again = ended.err.split("Taken back: b")
    for line in ("you: b", "  look {", "  ok: seen: x", "model: Two."):
        assert line in shown
        assert line not in again
    assert "What its calls have done stays done." in again
    assert "model: One." in again
    assert "/undo    take the last prompt and its answer back" in again


def test_what_is_taken_back_is_forgotten_and_stays_paid_for(shop: Cli) -> None:
    ended = shop(*MEMORY, stdin=b"/undo\na\nb\n/undo\nc\n/cost\n")
    assert ended.out == "a\na + b\na + c\n"
    assert "Nothing has been said yet." in ended.err
    assert "2 prompts, 3 steps" in ended.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"/cots", "/cots is nothing that can be asked: did you mean /cost?"),
        (b"/xyzzy now", "/xyzzy is nothing that can be asked: /help lists what there is"),
        (b"\xff\xfe", "standard input is no UTF-8 text"),
        (b"a\x00b", "standard input is no text"),
    ],
)
def test_a_line_that_cannot_be_said_ends_a_chat_that_nobody_sits_at(
    shop: Cli, line: bytes, told: str
) -> None:
    ended = shop(*MEMORY, stdin=b"a\n" + line + b"\nb\n")
    assert (ended.code, ended.out) == (2, "a\n")
    assert ended.err.splitlines()[-1].startswith(f"remit: {told}")


def test_the_first_prompt_that_is_not_completed_ends_a_chat_that_nobody_sits_at(shop: Cli) -> None:
    write_script(shop.directory, ["One.", PAY, "Never."])
    ended = shop(*SHOPPING, stdin=b"a\nb\nc\n")
    assert (ended.code, ended.out) == (exits.OF_REASON["waiting"], "One.\nI pay.\n")
    assert "It is kept: remit approve " in ended.err


def test_approvals_are_decided_in_a_chat_too(shop: Cli) -> None:
    write_script(shop.directory, [PAY, "Paid."])
    ended = shop(*SHOPPING, "--confirm", "decide.py:yes", stdin=b"a\n")
    assert (ended.code, ended.out) == (0, "Paid.\n")


def test_the_limits_are_those_of_each_prompt(shop: Cli) -> None:
    write_script(shop.directory, [LOOK, "One.", LOOK, "Two."])
    enough = ("--steps", "2", "--tokens", "5000", "--usd", "0.1", "--calls", "1", "--seconds", "9")
    assert shop(*SHOPPING, *enough, stdin=b"a\nb\n").out == "One.\nTwo.\n"
    for flag, value, reason in (
        ("--steps", "1", "step_budget"),
        ("--tokens", "1100", "token_budget"),
        ("--usd", "0.0001", "cost_budget"),
    ):
        assert shop(*SHOPPING, flag, value, stdin=b"a\n").code == exits.OF_REASON[reason]
    write_script(shop.directory, [{"text": "Slow.", "delay": 30}])
    assert shop(*SHOPPING, "--seconds", "0.05", stdin=b"a\n").code == exits.OF_REASON["deadline"]
    write_script(shop.directory, [{"calls": LOOK["calls"] * 2}])
    assert shop(*SHOPPING, "--calls", "1", stdin=b"a\n").code == exits.OF_REASON["call_budget"]


def test_a_chat_is_put_together_as_a_run_is(shop: Cli) -> None:
    text = COUNT.replace('name="memory",', 'name="memory", instructions="Mine. ",')
    shop.write("count.py", text)
    assert shop(*MEMORY, stdin=b"a\n").out == "Mine. a\n"
    assert shop(*SHOPPING, "--instructions", "Be brief.", stdin=b"a\n").out == "One.\n"
    for wrong, told in (
        (["--remit", "count.py", "--tools", "shop.py"], "--tools and --remit"),
        (["--model", "nonesuch"], "nobody here knows it"),
        (["--quiet", "--verbose"], "contradict"),
        (["--json"], "Unknown option: --json"),
        (["--remit", "coutn.py"], "did you mean count.py?"),
    ):
        ended = shop("chat", *wrong, stdin=b"a\n")
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert told in ended.err


def test_a_chat_is_shown_as_its_flags_say(shop: Cli) -> None:
    assert shop(*MEMORY, "--quiet", stdin=b"a\n").err == ""
    assert "completed" in shop(*MEMORY, "--plain", "--verbose", "--no-motion", stdin=b"a\n").err
    assert "\x1b[" in shop(*MEMORY, "--color", "always", stdin=b"a\n").err
    assert "\x1b[" not in shop(*MEMORY, stdin=b"a\n").err


# --- at a terminal -------------------------------------------------------------------------------


def at_a_terminal(directory: Path, *arguments: str, turns: list[Any], **options: Any) -> Person:
    """Somebody who chats."""
    (directory / "shop.py").write_text(SHOP, "utf-8")
    model = write_script(directory, turns)
    return Person(
        "chat", "--tools", "shop.py", "--model", model, *arguments, cwd=directory, **options
    )


def ready(sees: Person) -> bool:
    """A prompt is waited for, and nothing else stands in its row."""
    return sees.window[sees.screen.cursor.y] == ">" and not sees.echoes


def say(sees: Person, line: str) -> None:
    """Wait for the prompt, then type."""
    sees.until(lambda: ready(sees))
    sees.press(line)


def test_a_person_chats_looks_and_leaves(tmp_path: Path) -> None:
    """Escape throws a line away, an arrow brings one back, Ctrl-C throws away, Ctrl-D ends it."""
    with at_a_terminal(tmp_path, turns=["One.", "Two.", "Three."]) as sees:
        say(sees, "first\r")
        sees.until("1 One.")
        say(sees, "nonsense\x1b")
        say(sees, "/cost\r")
        sees.until("1 prompts, 1 steps")
        say(sees, "/cots\r")
        sees.until("did you mean /cost?")
        say(sees, "half a li\x03")
        sees.until("Ctrl-D or /quit ends the chat.")
        say(sees, "\x1b[A")
        sees.until(lambda: sees.window[sees.screen.cursor.y] == "> first")
        sees.press(" again\r")
        sees.until("1 Two.")
        say(sees, "/show\r")
        sees.until("model: Two.")
        say(sees, "\x04")
        assert sees.ends() == 0
    assert sees.sees("you: first again")
    assert not sees.sees("you: nonsense")


def test_ctrl_c_at_the_prompt_ends_nothing_however_often_it_is_pressed(tmp_path: Path) -> None:
    """D4: nothing is under way there, so a second one means no impatience."""
    with at_a_terminal(tmp_path, turns=["One."]) as sees:
        for times in range(1, 5):
            say(sees, "\x03")
            sees.until(lambda n=times: sees.text.count("Ctrl-D or /quit ends the chat.") == n)
        say(sees, "first\r")
        sees.until("1 One.")
        say(sees, "\x04")
        assert sees.ends() == 0


def test_ctrl_c_cancels_what_runs_and_keeps_the_chat(tmp_path: Path) -> None:
    """D4: what was done stays in the conversation, and the next prompt goes on from it."""
    turns = [{**LOOK, "text": "I look."}, {"text": "Never.", "delay": 60}, "Back."]
    with at_a_terminal(tmp_path, turns=turns) as sees:
        say(sees, "first\r")
        sees.until("seen: x")
        sees.until("asking the model")
        sees.press("\x03")
        sees.until("cancelled")
        say(sees, "/show\r")
        sees.until("  ok: seen: x")
        say(sees, "/quit\r")
        assert sees.ends() == 0


def test_a_person_is_asked_in_a_chat(tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, turns=[PAY, "Paid."]) as sees:
        say(sees, "pay\r")
        sees.until("[a]pprove")
        sees.press("a")
        sees.until("Paid.")
        say(sees, "\x04")
        assert sees.ends() == 0
    assert sees.sees("paid 3")


def test_a_chat_without_a_status_asks_line_by_line(tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, "--plain", turns=["One.", "Two."]) as sees:
        sees.until(lambda: sees.window[sees.screen.cursor.y] == ">")
        sees.press("first\r")
        sees.until("1 One.")
        sees.until(lambda: sees.window[sees.screen.cursor.y] == ">")
        sees.press("\x04")
        assert sees.ends() == 0


def test_sigterm_ends_a_chat(tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, turns=["One."]) as sees:
        sees.until(lambda: ready(sees))
        sees.signal(signal.SIGTERM)
        assert sees.ends() == exits.TERMINATED
