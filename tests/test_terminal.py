"""The command line as a person uses it: whole sessions on a pseudo-terminal.

Programs of our own, real signals, real keys; an emulator keeps the screen. What is waited for is what is to be
seen, never a time.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli_rig import environment
from pty_rig import Person
from test_cells import NASTY, acts

SCENES = '''\
import asyncio
import os
import sys
import threading
from typing import Annotated, Literal

from pydantic import Field

import remit
from remit import Limits, Remit
from remit.models.scripted import ScriptedModel, Step

LIMITS = Limits(steps=8, tokens=50_000, seconds=60, usd=1)
MORE = threading.Event()


def scene(name, script, *tools, **options):
    return Remit(name=name, model=ScriptedModel(script), tools=tools, limits=LIMITS, **options)


@remit.tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    print("a tool prints", what)
    return f"seen: {what}"


@remit.tool(effect="read")
async def fail(what: str) -> str:
    """Fail."""
    raise ValueError(f"no {what}")


@remit.tool(effect="confirm")
async def pay(amount: int, note: str = "") -> str:
    """Pay."""
    return f"paid {amount}"


@pay.summary
def _(amount: int, note: str) -> str:
    return f"Pay {amount}"


@remit.tool(effect="read")
async def forever() -> str:
    """Never come back."""
    await asyncio.Event().wait()
    return ""


@remit.tool(effect="idempotent")
def stuck() -> str:
    """Block a thread, whatever is asked of it."""
    MORE.wait()
    return ""


@remit.tool(effect="read")
async def deaf() -> str:
    """Swallow every cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@remit.tool(effect="read")
async def hog() -> str:
    """Hold the event loop itself."""
    os.write(2, b"hogged")
    MORE.wait()
    return ""


@remit.tool(effect="read")
async def order(what: str, call: remit.Call) -> str:
    """Ask what is needed."""
    size = call.ask(Literal["small", "large"], f"Which size of {what}?")
    count = call.ask(Annotated[int, Field(ge=1, le=9)], "How many?")
    return f"{count} {size}"


LONG = "The quick brown fox jumps over the lazy dog and 日本語 too. " * 4

story = scene(
    "story",
    [
        ["I look at both.", ("look", {"what": "x"}), ("fail", {"what": "y"})],
        [LONG, ("pay", {"amount": 4})],
        "Done: paid.",
    ],
    look,
    fail,
    pay,
)
payment = scene("payment", [[("pay", {"amount": 4})], "The end."], pay)
two = scene("two", [[("pay", {"amount": 1}), ("pay", {"amount": 2})], "The end."], pay)
hidden = scene("hidden", [[("pay", {"amount": 4, "note": "x" * 3_000 + " to mallory"})], "End."], pay)
asks = scene("asks", [["I ask.", ("order", {"what": "lamps"})], "Ordered."], order)
waits = scene("waits", [["I wait.", ("forever", {})], "Never."], forever)
blocked = scene("blocked", [[("stuck", {})], "Never."], stuck)
swallows = scene("swallows", [[("deaf", {})], "Never."], deaf)
hogs = scene("hogs", [[("hog", {})], "Never."], hog)
slow = scene("slow", [Step("Here it is.", delay=30.0)])
hostile = scene("hostile", [[sys.argv[-1], ("look", {"what": sys.argv[-1]})], sys.argv[-1]], look)
'''


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    (tmp_path / "scenes.py").write_text(SCENES, "utf-8")
    return tmp_path


def person(scenes: Path, name: str, *flags: str, **options: object) -> Person:
    """Somebody who runs a scene."""
    arguments = ("run", *flags, "--remit", f"scenes.py:{name}", "go")
    return Person(*arguments, cwd=scenes, **options)  # pyright: ignore[reportArgumentType] - passed through


def rows_of(text: str) -> list[str]:
    return [row for row in text.split("\n") if row]


def assert_no_status_is_left(sees: Person) -> None:
    """It is gone at the end, and never was scrollback."""
    left = [row for row in sees.scrollback if row.startswith(("─", "step ", "waiting for you"))]
    assert left == []
    assert not sees.sees("ctrl-c cancels")


def test_a_whole_story_on_a_terminal(scenes: Path) -> None:
    """D2, D3: streamed text, parallel calls, a failure, an approval by a key, the end; all of it once."""
    with person(scenes, "story", columns=80, rows=24) as sees:
        sees.until("[a]pprove  [r]eject with reason")
        assert sees.window[-2:] != ["", ""] or sees.sees("waiting for you")
        sees.press("a")
        assert sees.ends() == 0
    rows = rows_of(sees.text)
    assert re.fullmatch(r"run \S+ · story · scripted · 8 steps, 50k tok,", rows[0])
    for expected in (
        r"1 I look at both\.",
        r"  ✓ look  what=x +0\.\d\d s  seen: x",
        r"  ✕ fail  what=y +0\.\d\d s  .*ValueError: no.*",
        r"  │ a tool prints x",
        r"2 The quick brown fox jumps over the lazy dog and 日本語 too\. The quick brown",
        r"⏸ needs your decision",
        r"  story · effect confirm · expires in 24 h · [0-9a-f]+",
        r"  │ Pay 4",
        r'  │ pay  \{"amount":4\}',
        r"  approved by \S+",
        r"  ✓ pay  amount=4 +0\.\d\d s  paid 4",
        r"3 Done: paid\.",
        r"✓ completed · 3 steps · .*",
    ):
        matches = [row for row in rows if re.fullmatch(expected, row)]
        assert len(matches) == 1, (expected, "\n".join(rows))
    words = " ".join(
        row.removeprefix("2 ").removeprefix("│ ") for row in rows if row[:2] in {"2 ", "│ "}
    )
    assert words.count("lazy dog") >= 4
    assert_no_status_is_left(sees)


def test_the_status_stands_below_and_says_what_it_waits_for(scenes: Path) -> None:
    """D2: five rows at most, all of them at the end."""
    with person(scenes, "waits", columns=80, rows=24) as sees:
        sees.until(lambda: re.search(r"^forever 0:0[1-9]", sees.text, re.MULTILINE))
        rows = rows_of("\n".join(sees.window))
        assert rows[-3] == "─" * 72
        assert re.fullmatch(r"step 1/8 .* tokens .*/50k .* \$0\.00/1\.00 .* \d+/60 s .*", rows[-2])
        assert re.fullmatch(r"forever 0:0\d .*ctrl-c cancels", rows[-1])
        assert rows[-4] == "1 I wait."
        sees.press("\x03")
        assert sees.ends() == 130


@pytest.mark.parametrize(("columns", "rows"), [(30, 8), (20, 6), (40, 3), (100, 2)])
def test_a_small_window_is_never_overflowed(scenes: Path, columns: int, rows: int) -> None:
    """D2: the status leaves room, no row wraps by itself, and the question can be answered."""
    with person(scenes, "story", columns=columns, rows=rows) as sees:
        sees.until(lambda: re.search(r"⏸ \[a\]", sees.text))
        assert len(rows_of("\n".join(sees.window))) <= rows
        assert max(len(row) for row in sees.window) < columns
        sees.press("a")
        assert sees.ends() == 0
    assert sees.sees("approved by")
    assert not any("[a]" in row for row in sees.scrollback)


def test_a_window_that_changes_is_drawn_anew_and_loses_nothing(scenes: Path) -> None:
    """D2: narrower, lower, and wide again, while a question is open."""
    with person(scenes, "story", columns=90, rows=24) as sees:
        sees.until("[a]pprove  [r]eject with reason")
        sees.resize(32, 10)
        sees.until("[a]ppr [r]ej [d]et [l]ater")
        assert max(len(row) for row in sees.window[-4:]) <= 31
        sees.resize(90, 24)
        sees.until(
            lambda: (
                sees.window[-24:] and "[a]pprove  [r]eject with reason" in "\n".join(sees.window)
            )
        )
        sees.press("a")
        assert sees.ends() == 0
    text = sees.text
    assert text.count("2 The quick brown") == 1
    assert text.count("needs your decision") == 1
    assert text.count("completed ·") == 1
    assert_no_status_is_left(sees)


def test_two_questions_are_asked_one_after_the_other(scenes: Path) -> None:
    """D3: a key decides one question, and only the one that is to be seen."""
    with person(scenes, "two") as sees:
        sees.until("Pay 1")
        sees.until("2 questions")
        sees.press("a")
        sees.until("approved by")
        sees.until("Pay 2")
        sees.until("[a]pprove  [r]eject")
        sees.press("r")
        sees.until("reason, told to the model")
        sees.press("not todxy\x7f\x7fay\r")
        assert sees.ends() == 0
    assert sees.sees("  ✓ pay  amount=1")
    assert re.search(r"  rejected by \S+: not today", sees.text)
    assert re.search(r"  ✕ pay .*refused: ", sees.text)


def test_a_tool_asks_and_is_answered_on_the_terminal(scenes: Path) -> None:
    """D3: by choice, by number; an answer that does not fit is asked for again."""
    with person(scenes, "asks") as sees:
        sees.until("order asks you")
        sees.until("  1) small, 2) large:")
        sees.until(lambda: ">" in sees.window)
        sees.press("2\r")
        sees.until("How many?")
        sees.until(lambda: ">" in sees.window)
        sees.press("12\r")
        sees.until("that does not do:")
        sees.until(lambda: sees.text.count("  a whole number from 1 to 9:") == 2)
        sees.until(lambda: ">" in sees.window)
        sees.press("3x\x7f\r")
        assert sees.ends() == 0
    assert sees.text.count("Which size of lamps?") == 1
    assert re.search(r"  ✓ order  what=lamps +0\.\d\d s  3 large", sees.text)
    assert sees.sees("2 Ordered.")


def test_an_answer_can_be_left_for_later(scenes: Path) -> None:
    """D3: the run waits, and its end says for what."""
    with person(scenes, "asks", columns=160) as sees:
        sees.until("  1) small, 2) large:")
        sees.until(lambda: ">" in sees.window)
        sees.press("\x1b")
        assert sees.ends() == 14
    assert sees.sees("left for later")
    assert sees.sees("waiting: an answer to order [")
    assert not sees.sees("not answered")


def test_what_was_typed_before_a_question_stood_there_decides_nothing(scenes: Path) -> None:
    """D3: impatient keys are thrown away; so is what was pasted."""
    with person(scenes, "payment") as sees:
        sees.press("aaaa\na")
        sees.until("[a]pprove  [r]eject")
        sees.press("\x1b[200~a\x1b[201~")
        sees.press("aa\x1b")  # escape leaves it for later
        assert sees.ends() == 14
    assert sees.sees("left for later")
    assert not sees.sees("approved")


def test_what_does_not_fit_is_shown_before_it_is_approved(scenes: Path) -> None:
    """D3: the first press shows the rest, the second one approves."""
    with person(scenes, "hidden") as sees:
        sees.until("more rows of arguments")
        sees.until("[a]pprove  [r]eject")
        assert not sees.sees("mallory")
        sees.press("a")
        sees.until("press again")
        assert sees.sees("mallory")
        sees.press("a")
        assert sees.ends() == 0


def test_a_piped_prompt_is_no_answer_and_the_terminal_is_asked(scenes: Path) -> None:
    """D3: standard input is a pipe full of yes, standard output a pipe too."""
    with person(scenes, "payment", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sees:
        stdin, stdout = sees.process.stdin, sees.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"a\ny\nyes\n" * 100)
        stdin.close()
        sees.until("[a]pprove  [r]eject")
        sees.press("a")
        assert sees.ends() == 0
        assert stdout.read() == b"The end.\n"
    assert sees.sees("✓ completed")


@pytest.mark.parametrize("flag", ["--plain", "--quiet", "--jsonl"])
def test_every_display_asks_on_the_terminal(scenes: Path, flag: str) -> None:
    """D3: without a moving cursor a question is answered by a line."""
    with person(scenes, "payment", flag, stdout=subprocess.PIPE) as sees:
        sees.until("[l]ater >")
        sees.press("what\n")
        sees.until(lambda: sees.text.count("[l]ater >") == 2)
        sees.press("approve\n")
        stdout = sees.process.stdout
        assert stdout is not None
        answer = stdout.read().decode()
        assert sees.ends() == 0
    assert "approved by" in sees.text
    assert "\x1b" not in sees.written.decode()
    if flag == "--jsonl":
        lines = [json.loads(line) for line in answer.splitlines()]
        assert lines[-1]["kind"] == "outcome"
    else:
        assert answer == "The end.\n"


def test_nobody_is_asked_without_a_terminal(scenes: Path) -> None:
    """D3: the run waits, and says so; what is piped in decides nothing."""
    ended = subprocess.run(
        [sys.executable, "-m", "remit.cli", "run", "--remit", "scenes.py:payment", "go"],
        cwd=scenes,
        input=b"a\na\ny\n",
        capture_output=True,
        env=environment(scenes),
        start_new_session=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 14
    assert ended.stdout == b""
    assert b"needs your decision" in ended.stderr


@pytest.mark.parametrize(("redirected", "asked"), [("</dev/null 2>log", False), ("2>log", True)])
def test_a_script_at_a_terminal_is_asked_nothing(
    scenes: Path, redirected: str, asked: bool
) -> None:
    """D3: with both its input and its messages elsewhere, nobody waits for a question."""
    command = f"{sys.executable} -m remit.cli run --remit scenes.py:payment go {redirected}"
    with Person("-c", command, program=("/bin/sh",), cwd=scenes) as sees:
        if asked:
            sees.until("[l]ater >")
            sees.press("l\n")
        assert sees.ends() == 14
    assert sees.sees("needs your decision") == asked


# --- colours -------------------------------------------------------------------------------------

STYLES = re.compile(rb"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(
    ("flags", "env", "coloured"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        (("--color", "never"), {}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--plain",), {"FORCE_COLOR": "1"}, True),
        ((), {"TERM": "dumb"}, False),
        ((), {"CI": "1"}, False),
    ],
)
def test_colours_are_left_out_where_they_are_not_wanted(
    scenes: Path, flags: tuple[str, ...], env: dict[str, str], coloured: bool
) -> None:
    with person(scenes, "hostile", *flags, env=env) as sees:
        sees.ends()
    assert (STYLES.search(sees.written) is not None) == coloured


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"CI": "1"}, {"TERM": ""}])
def test_no_cursor_is_moved_where_none_can_be(scenes: Path, env: dict[str, str]) -> None:
    with person(scenes, "hostile", env=env) as sees:
        assert sees.ends() == 0
    assert b"\x1b" not in sees.written
    assert sees.sees("✓ completed")


def test_signs_are_ascii_where_the_terminal_is(scenes: Path) -> None:
    with person(scenes, "hostile", env={"PYTHONIOENCODING": "ascii"}) as sees:
        assert sees.ends() == 0
    assert sees.written.isascii()
    assert sees.sees("+ completed")


@pytest.mark.parametrize(
    "text", [text for text in NASTY if "\0" not in text and "\ud800" not in text]
)
def test_no_text_of_a_model_reaches_the_terminal_as_anything_else(scenes: Path, text: str) -> None:
    """D1: of all that a terminal is written, only our own sequences act; the rest is on the screen."""
    arguments = ("run", "--remit", "scenes.py:hostile", f"go {text}")
    with Person(*arguments, cwd=scenes) as sees:
        assert sees.ends() == 0
    ours = re.compile(r"\x1b\[[0-9]*[ACJKm]|\x1b\[\?25[lh]|[\r\n]")
    assert acts(ours.sub("", sees.written.decode())) == []
    assert sees.screen.title == ""


# --- signals -------------------------------------------------------------------------------------


def test_ctrl_c_once_cancels_and_says_how_it_ended(scenes: Path) -> None:
    """D2, D4: the run is closed in order; the shell's own number for SIGINT is the exit code."""
    with person(scenes, "waits") as sees:
        sees.until("forever 0:0")
        sees.press("\x03")
        assert sees.ends() == 130
    assert re.search(r"✕ task uncompleted: cancelled · 1 step · ", sees.text)
    assert not sees.sees("Traceback")
    assert_no_status_is_left(sees)


def test_ctrl_c_once_names_what_did_not_stop(scenes: Path) -> None:
    """D4: after the grace the program ends, although a thread and a task go on."""
    for scene, tool in (("blocked", "stuck"), ("swallows", "deaf")):
        with person(scenes, scene, columns=200) as sees:
            sees.until(f"{tool} 0:0")
            sees.press("\x03")
            assert sees.ends() == 130
        assert sees.sees(f"  ? {tool} did not stop and was left: it may still take effect")
        assert sees.sees(f"still running: {tool} (may yet take effect)")


def test_ctrl_c_twice_leaves_at_once_although_the_event_loop_is_stuck(scenes: Path) -> None:
    """D4: nothing in the process has to work for that; the terminal is put in order."""
    with person(scenes, "hogs") as sees:
        sees.until(lambda: b"hogged" in sees.written)
        sees.press("\x03")
        sees.until("ctrl-c again leaves at once")
        sees.press("\x03")
        assert sees.ends() == 130
    assert not sees.sees("Traceback")
    assert sees.written.endswith(b"\x1b[?25h")


def test_ctrl_c_twice_while_a_model_is_asked(scenes: Path) -> None:
    """D4: the first one is enough, the second one does no harm."""
    with person(scenes, "slow") as sees:
        sees.until("asking the model")
        sees.press("\x03\x03")
        assert sees.ends() == 130


def test_ctrl_c_at_a_question_cancels_the_run_and_frees_the_keyboard(scenes: Path) -> None:
    """D3, D4: nothing was decided, and the terminal echoes again."""
    with person(scenes, "payment") as sees:
        sees.until("[a]pprove  [r]eject")
        assert not sees.echoes
        sees.press("\x03")
        assert sees.ends() == 130
        assert sees.echoes
    assert sees.sees("not asked any more")
    assert sees.sees("task uncompleted: cancelled")


def test_sigterm_is_a_ctrl_c_of_the_system(scenes: Path) -> None:
    """D4: the same order, and another exit code."""
    with person(scenes, "waits") as sees:
        sees.until("forever 0:0")
        sees.signal(signal.SIGTERM)
        assert sees.ends() == 143
    assert sees.sees("task uncompleted: cancelled")


def test_a_program_that_was_stopped_goes_on_with_its_question(scenes: Path) -> None:
    """Ctrl-Z and `fg`: the question stands there again, and a key answers it."""
    with person(scenes, "payment") as sees:
        sees.until("[a]pprove  [r]eject")
        sees.signal(signal.SIGSTOP)
        sees.cooked()  # as a shell does meanwhile
        sees.signal(signal.SIGCONT)
        sees.until(lambda: not sees.echoes)
        sees.press("a")
        assert sees.ends() == 0
    assert sees.sees("approved by")


# --- pipes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--jsonl",)])
def test_a_reader_that_goes_away_ends_the_program_quietly(
    scenes: Path, flags: tuple[str, ...]
) -> None:
    """As programs in a pipe do: no traceback, and the number of SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    with person(scenes, "hostile", *flags, stdout=writer) as sees:
        os.close(writer)
        assert sees.ends() == 141
    assert not sees.sees("Traceback")
    assert not sees.sees("BrokenPipe")


def test_the_answer_is_alone_on_standard_output(scenes: Path) -> None:
    """What tools print goes to the terminal, through the display."""
    with person(scenes, "hostile", stdout=subprocess.PIPE) as sees:
        stdout = sees.process.stdout
        assert stdout is not None
        assert stdout.read() == b"go\n"
        assert sees.ends() == 0
    assert sees.sees("  │ a tool prints go")


def test_keys_that_nobody_waits_for_tear_nothing(scenes: Path) -> None:
    """D2: the terminal echoes them itself, somewhere in the status, until the next frame."""
    with person(scenes, "waits", columns=60) as sees:
        sees.until("forever 0:0")
        sees.press("impatient")
        sees.until(lambda: b"impatient" in sees.written)
        sees.until(lambda: not sees.sees("impatient"))
        sees.press("\x03")
        assert sees.ends() == 130
    assert_no_status_is_left(sees)


def test_the_demonstration_is_played_to_its_end(tmp_path: Path) -> None:
    with Person("demo", cwd=tmp_path, columns=140) as sees:
        sees.until("asks you")
        sees.until(lambda: ">" in sees.window)
        sees.press("voucher\r")
        sees.until("[a]pprove  [r]eject")
        sees.press("r")
        sees.until("reason, told to the model")
        sees.press("no refunds today\r")
        assert sees.ends() == 0
    assert sees.sees("A refund of the shipping was not approved.")
