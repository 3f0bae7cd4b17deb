"""`remit run`: what is said to the model, who is asked, what comes out where, and with which exit code."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_rig import SHOP, Cli, environment, program, write_script
from pty_rig import Person
from remit import Reason
from remit.analysis.cells import visible
from remit.cli import exits
from remit.cli.documents import write_document

CALL = {"calls": [{"tool": "look", "arguments": {"what": "x"}}]}
PAY = {"text": "I pay.", "calls": [{"tool": "pay", "arguments": {"amount": 3}}]}

ECHO = """\
import remit
from remit import Limits, Media, Remit, Text
from remit.testing import ScriptedModel


def said(transcript):
    told = [
        block.text if isinstance(block, Text) else f"{block.media_type} {block.name} {len(block.data)}"
        for block in transcript[0].content
    ]
    return " | ".join(told)


MODEL = ScriptedModel(lambda transcript, request: f"{request.instructions}{said(transcript)}")
echo = Remit(name="echo", model=MODEL, limits=Limits(steps=2, tokens=900_000, seconds=30))
"""
"""A remit whose model repeats what it was told."""


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A directory with a file of tools, a script in which nothing is called, and an echo."""
    cli.write("shop.py", SHOP)
    cli.write("echo.py", ECHO)
    write_script(cli.directory, ["Hello."])
    return cli


SCRIPT = ("--model", "scripted:script.json")


# --- what is said --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["review"], None, "review"),
        (["review"], b"diff --git\n", "review | diff --git\n"),
        ([], b"piped", "piped"),
        (["-"], b"piped", "piped"),
        (["review"], b"", "review"),
        (["review"], b" \n", "review"),
        (["\N{SNOWMAN}"], b"\xef\xbb\xbf\xc3\xa4", "\N{SNOWMAN} | ä"),
        (["--", "--not-a-flag"], None, "--not-a-flag"),
        (["--", "-"], None, "-"),
        (["-5"], None, "-5"),
    ],
)
def test_the_prompt_is_the_argument_and_what_is_piped_in(
    shop: Cli, arguments: list[str], stdin: bytes | None, told: str
) -> None:
    ended = shop("run", "--remit", "echo.py", *arguments, stdin=stdin)
    assert (ended.code, ended.out) == (0, told.removesuffix("\n") + "\n")


def test_files_are_attached_as_text_or_as_media(shop: Cli) -> None:
    shop.write("notes.txt", "Bring lamps.")
    shop.write("view.svg", "<svg/>")
    shop.write("data", "no suffix")
    (shop.directory / "photo.png").write_bytes(b"\x89PNG\x00\xff")
    files = ("notes.txt", "view.svg", "data", "photo.png")
    flags = [flag for name in files for flag in ("-f", name)]
    ended = shop("run", "--remit", "echo.py", "look", *flags, "--file", "photo.png")
    assert ended.out == (
        "look | notes.txt:\n\nBring lamps. | view.svg:\n\n<svg/> | data:\n\nno suffix | "
        "image/png photo.png 6 | image/png photo.png 6\n"
    )


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        ([], None, "the prompt is empty"),
        ([""], None, "the prompt is empty"),
        (["  \n"], None, "the prompt is empty"),
        ([], b"", "the prompt is empty"),
        (["-"], b" \n", "the prompt is empty"),
        ([], b"\x89PNG\r\n\x1a\n\x00\xff", "standard input is no UTF-8 text (byte 0)"),
        (["x"], b"abc\xff", "standard input is no UTF-8 text (byte 3)"),
        (["x"], b"a\x00b", "standard input is no text: it holds NUL bytes"),
        (["\udcff\udcfe"], None, "the prompt is no UTF-8 text"),
        (["x", "-f", "nothing.txt"], None, "-f nothing.txt: No such file or directory"),
        (["x", "-f", "."], None, "-f .: Is a directory"),
        (["x", "-f", "blob.bin"], None, "-f blob.bin is no UTF-8 text"),
        (["x", "-f", "empty.png"], None, "-f empty.png: the file is empty"),
        (["x", "-f", "/dev/zero"], None, "-f /dev/zero: longer than"),
        (["x", "-f"], None, "requires an argument"),
        (
            ["two", "words"],
            None,
            "unexpected argument 'words': a prompt of several words is one argument",
        ),
        (["x", "--run-id", "a\nb"], None, "run_id="),
        (["x", "--run-id", "\udcff"], None, "--run-id is no UTF-8 text"),
    ],
)
def test_a_prompt_that_cannot_be_said_is_one_clear_line(
    shop: Cli, arguments: list[str], stdin: bytes | None, told: str
) -> None:
    (shop.directory / "blob.bin").write_bytes(b"\x00\xff")
    (shop.directory / "empty.png").write_bytes(b"")
    ended = shop("run", "--remit", "echo.py", *arguments, stdin=stdin)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err


def test_what_is_piped_in_without_end_is_refused(tmp_path: Path) -> None:
    write_script(tmp_path, ["Hello."])
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        ended = subprocess.run(
            [sys.executable, "-m", "remit.cli", "run", *SCRIPT],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=endless.stdout,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        endless.kill()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "standard input is longer than" in ended.stderr


# --- who is asked --------------------------------------------------------------------------------


def test_instructions_are_a_text_or_a_file(shop: Cli) -> None:
    shop.write("turns.json", '["Hello."]')
    shop.write("asked.py", "from echo import MODEL\n")
    shop.write("role.txt", "From a file. ")
    shop.write("ask.py", ECHO.replace('name="echo"', 'name="echo", instructions="My own. "'))
    assert shop("run", "hi", "--remit", "ask.py").out == "My own. hi\n"
    shop.write("remit.toml", '[remits.p]\ntarget = "ask.py"\ninstructions = "The profile\'s. "\n')
    assert shop("run", "hi", "--remit", "p").out == "The profile's. hi\n"
    for text in ("Be brief.", "@role.txt"):
        assert shop("run", "hi", *SCRIPT, "--instructions", text).code == 0
    (shop.directory / "odd.txt").write_bytes(b"\xff")
    for text, told in (("@nothing.txt", "No such file"), ("@odd.txt", "no UTF-8 text")):
        ended = shop("run", "hi", *SCRIPT, "--instructions", text)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert told in ended.err


def test_a_remit_keeps_what_no_flag_changes(shop: Cli) -> None:
    write_script(shop.directory, [CALL] * 9, "other.json")
    ended = shop("run", "hi", "--remit", "shop.py", "--model", "scripted:other.json", "--json")
    assert (ended.code, ended.document["steps"]) == (exits.OF_REASON["step_budget"], 3)
    ended = shop(
        "run", "hi", "--remit", "shop.py", "--model", "scripted:other.json", "--calls", "2"
    )
    assert ended.code == exits.OF_REASON["call_budget"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "no model is named: give --model, such as anthropic:claude-sonnet-5-5"),
        (["--model", "demo:suport"], "demo:support"),
        (["--model", "scripted:nothing.json"], "scripted:nothing.json: No such file"),
        (["--model", "scripted:odd.json"], "Expected `str | object`, got `int` - at `$[0]`"),
        (["--model", "scripted:typo.json"], "unknown field `txt`"),
        (["--model", "scripted:empty.json"], "the list holds no turn"),
        (
            ["--model", "anthropic:claude"],
            "anthropic at api.anthropic.com wants a key: set ANTHROPIC_API_KEY",
        ),
        (["--model", "antropic:claude"], "did you mean anthropic:?"),
        (["--model", "script:x"], "did you mean scripted:FILE.json?"),
        (["--model", "gpt-5"], "a name is PREFIX:NAME"),
        (["--model"], "--model requires an argument"),
        (["--stpes", "3"], "Unknown option: --stpes. Did you mean --steps?"),
        (["--steps", "abc"], 'Invalid value for --steps: unable to convert "abc" into int.'),
        (["--steps", "0"], "--steps: 0 is not a whole number above zero"),
        (["--tokens=-3"], "--tokens: -3 is not a whole number above zero"),
        (["--calls", "0"], "--calls: 0 is not a whole number above zero"),
        (["--seconds", "nan"], "--seconds: nan is not a number of seconds above zero"),
        (["--seconds", "inf"], "--seconds: inf is not a number of seconds above zero"),
        (["--usd", "-1"], "--usd: -1 is not an amount of US dollars above zero"),
        (["--usd", "lots"], "--usd"),
        (["--color", "red"], 'Choose from: "auto", "always", "never"'),
        (["--steps", "1", "--steps", "2"], "--steps specified multiple times"),
        (["--json", "--jsonl"], "--json and --jsonl contradict each other"),
        (["--quiet", "--verbose"], "--quiet and --verbose contradict each other"),
        (
            ["--remit", "shop.py", "--tools", "shop.py"],
            "--tools and --remit: a remit brings its own",
        ),
        (
            ["--remit", "shop.py", "--instructions", "x"],
            "--instructions and --remit: a remit brings its own",
        ),
        (
            ["--remit", "shop.py", "--output", "x.json"],
            "--output and --remit: a remit brings its own",
        ),
        ([*SCRIPT, "--confirm", "ask"], "--confirm ask: there is no terminal to ask on"),
        ([*SCRIPT, "--confirm", "shop.py"], "shop.py: name the function too, as in shop.py:decide"),
        ([*SCRIPT, "--confirm", "shop.py:desk"], "shop.py:desk is no function but a Remit"),
        ([*SCRIPT, "--confirm", "shop.py:nothing"], "shop.py holds no nothing"),
        ([*SCRIPT, "--confirm", "shop.py:nobody"], "confirm="),
    ],
)
def test_a_wrong_call_is_one_clear_line(shop: Cli, flags: list[str], told: str) -> None:
    """U2: and nothing is sent."""
    shop.write("shop.py", SHOP + "def nobody(): ...\n")
    shop.write("odd.json", "[3]")
    shop.write("typo.json", '[{"txt": "Hello."}]')
    shop.write("empty.json", "[]")
    ended = shop("run", "hi", *flags)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err


def test_a_command_that_is_misspelt_is_told_with_what_comes_near(cli: Cli) -> None:
    assert cli("rnu").err.startswith('remit: Unknown command "rnu". Did you mean "run"?')
    assert cli("config", "shwo").err.startswith(
        'remit: Unknown command "shwo". Did you mean "show"?'
    )


def test_a_remit_that_needs_deps_is_not_begun(shop: Cli) -> None:
    shop.write("shop.py", SHOP.replace('name="desk",', 'name="desk", deps_type=int,'))
    ended = shop("run", "hi", "--remit", "shop.py")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "deps" in ended.err


# --- approvals -----------------------------------------------------------------------------------

DECIDE = """
from remit import Decision


async def yes(pending):
    return Decision(approve=True, by="a test")


async def no(pending):
    return Decision(approve=False, by="a test", note="too much")
"""


@pytest.mark.parametrize(
    ("confirm", "code", "result"),
    [("decide.py:yes", 0, "paid 3"), ("decide.py:no", 0, "too much"), ("none", 14, None)],
)
def test_approvals_are_decided_by_whoever_is_named(
    shop: Cli, confirm: str, code: int, result: str | None
) -> None:
    shop.write("decide.py", DECIDE)
    shop.write(
        "shop.py",
        SHOP.replace('model="scripted:script.json"', "model=MODEL").replace(
            "desk = ",
            "from remit.testing import ScriptedModel\n\n\ndef last(t):\n"
            "    return t[-1].tool_results[0].text\n\n\n"
            'MODEL = ScriptedModel([[("pay", {"amount": 3})], last])\ndesk = ',
        ),
    )
    ended = shop("run", "hi", "--remit", "shop.py", "--confirm", confirm)
    assert ended.code == code
    if result is not None:
        assert result in ended.out


def test_a_run_that_waits_says_what_can_be_done_and_nothing_that_cannot(shop: Cli) -> None:
    write_script(shop.directory, [PAY])
    ended = shop("run", "hi", "--remit", "shop.py", "--store", "memory:")
    assert (ended.code, ended.out) == (exits.OF_REASON["waiting"], "I pay.\n")
    assert "kept in memory" in ended.err
    assert "remit approve" not in ended.err
    kept = shop("run", "hi", "--remit", "shop.py", "--json")
    (pending,) = kept.document["pending"]
    assert kept.err.endswith(f" It is kept: remit approve {pending['id']} (or remit reject)\n")
    elsewhere = shop("run", "hi", "--remit", "shop.py", "--store", "sqlite:///my runs.db")
    path = shop.directory / "my runs.db"
    assert elsewhere.err.endswith(f"(or remit reject) --store 'sqlite:///{path}'\n")


QUESTIONS = """
import remit
from remit import Call, Tool


@remit.tool(effect="read")
def pick(call: Call) -> str:
    \"\"\"Pick a size.\"\"\"
    return f"size {call.ask(int, 'Which size?')}"


weigh = Tool.elsewhere(
    name="weigh", description="Weigh it.", effect="read", parameters={"type": "object"}
)
"""


@pytest.mark.parametrize(
    ("tool", "kind", "told"),
    [
        (
            "pick",
            "input",
            "it waits for an answer to pick. It was kept in memory and ends with this ",
        ),
        ("weigh", "result", "only code can supply a result"),
    ],
)
def test_questions_and_results_are_waited_for_too(
    shop: Cli, tool: str, kind: str, told: str
) -> None:
    shop.write("ask.py", QUESTIONS)
    write_script(shop.directory, [{"calls": [{"tool": tool}]}, "Done."])
    asking = ("run", "hi", *SCRIPT, "--tools", "ask.py", "--json")
    assert told in shop(*asking, "--store", "memory:").err
    ended = shop(*asking)
    (pending,) = ended.document["pending"]
    assert (ended.code, pending["kind"], pending["tool"]) == (14, kind, tool)
    assert (pending["schema"] is None) == (kind != "input")
    assert f"remit supply {pending['id']} VALUE" in ended.err


def test_a_person_answers_what_a_tool_asks(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(QUESTIONS, "utf-8")
    write_script(tmp_path, [{"calls": [{"tool": "pick"}]}, "Picked."])
    with Person("run", "hi", *SCRIPT, "--tools", "ask.py", cwd=tmp_path) as sees:
        sees.until("Which size?")
        sees.until(lambda: sees.window[sees.screen.cursor.y].startswith(">"))
        sees.press("many\r")
        sees.until("that does not do")
        sees.until(lambda: sees.window[sees.screen.cursor.y].strip() == ">")
        sees.press("42\r")
        assert sees.ends() == 0
    assert sees.sees("size 42")
    assert sees.sees("Picked.")


def test_a_remit_s_own_confirm_stands(shop: Cli) -> None:
    shop.write("decide.py", DECIDE)
    text = SHOP.replace('name="desk",', 'name="desk",\n    confirm=yes,')
    shop.write("shop.py", "from decide import yes\n" + text)
    write_script(shop.directory, [PAY, "Paid."])
    assert shop("run", "hi", "--remit", "shop.py").code == 0
    assert shop("run", "hi", "--remit", "shop.py", "--confirm", "none").code == 14


# --- what comes out ------------------------------------------------------------------------------


def test_the_answer_alone_is_on_stdout(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    write_script(tmp_path, [{**CALL, "text": "I look."}, "Two\nlines.\n"])
    ended = program("run", "hi", "--remit", "shop.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "Two\nlines.\n")
    assert "I look." in ended.err
    assert "a tool prints" in ended.err


def test_quiet_leaves_nothing_but_the_answer_and_errors(shop: Cli) -> None:
    write_script(shop.directory, [{"text": "I think."}])
    ended = shop("run", "hi", *SCRIPT, "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "I think.\n", "")
    write_script(shop.directory, [{"text": "I refuse.", "stop_reason": "refusal"}])
    ended = shop("run", "hi", *SCRIPT, "--quiet")
    assert (ended.code, ended.out) == (exits.OF_REASON["refused"], "I refuse.\n")
    assert (ended.err[:23], ended.err.count("\n")) == ("remit: task uncompleted", 1)


def test_a_file_of_the_user_s_may_do_as_it_likes_with_its_surroundings(tmp_path: Path) -> None:
    """U1: it goes elsewhere, and closes what it takes for the answer's stream."""
    (tmp_path / "notes.txt").write_text("Bring lamps.", "utf-8")
    (tmp_path / "echo.py").write_text(
        f"import os, sys\nos.chdir('/')\nsys.stdout.close()\nsys.argv.clear()\n{ECHO}", "utf-8"
    )
    ended = program("run", "hi", "--remit", "echo.py", "-f", "notes.txt", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "hi | notes.txt:\n\nBring lamps.\n")
    assert "Traceback" not in ended.err


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    write_script(tmp_path, ["Hello."])
    ended = shell("remit run hi --model scripted:script.json -f <(yes); echo $?", tmp_path)
    assert ended.stdout == "2\n"
    assert "longer than" in ended.stderr


def test_jsonl_is_a_line_for_each_event_and_the_outcome_last(shop: Cli) -> None:
    write_script(shop.directory, [CALL, "Done."])
    ended = shop("run", "hi", "--remit", "shop.py", "--jsonl", "--run-id", "r-1")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert {line["v"] for line in lines} == {1}
    kinds = [line["kind"] for line in lines]
    assert (kinds[0], kinds[-2:]) == ("run_started", ["run_ended", "outcome"])
    assert {"call_started", "call_settled", "replied"} < set(kinds)
    assert {line["run_id"] for line in lines} == {"r-1"}
    assert (lines[-1]["reason"], lines[-1]["text"]) == ("completed", "Done.")


def test_what_is_shown_is_what_the_flags_say(shop: Cli) -> None:
    """U1: and the answer is on stdout whatever is shown on stderr."""
    write_script(shop.directory, [CALL, "Done."])
    command = ("run", "hi", "--remit", "shop.py")
    plain = shop(*command)
    assert "completed" in plain.err
    assert "\x1b" not in plain.err
    for flags, environ in (
        (["--color", "always"], {"NO_COLOR": "1"}),
        ([], {"FORCE_COLOR": "1"}),
    ):
        assert "\x1b[" in shop(*command, *flags, environ=environ).err
    for flags, environ in (
        (["--color", "never"], {"FORCE_COLOR": "1"}),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}),
        (["--plain", "--no-motion"], {"TERM": "xterm"}),
        (["--verbose"], {}),
    ):
        ended = shop(*command, *flags, environ=environ)
        assert ("completed" in ended.err, "\x1b" in ended.err) == (True, False)
        assert ended.out == plain.out
    quiet = shop(*command, "--quiet")
    assert (quiet.out, quiet.err.replace("a tool prints\n", "")) == (plain.out, "")


def test_json_is_one_document(shop: Cli) -> None:
    write_script(shop.directory, [CALL, {"text": "Done.", "usage": {"input": 7}}])
    ended = shop("run", "hi", "--remit", "shop.py", "--json", "--run-id", "r-1")
    document = ended.document
    assert ended.code == 0
    assert (document["v"], document["run_id"], document["reason"]) == (1, "r-1", "completed")
    assert (document["completed"], document["whose"], document["error"]) == (True, None, None)
    assert document["text"] == document["output"]
    assert document["spend"]["tree"]["calls"] == 1
    assert document["pending"] == []


POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}


def hand_in(**arguments: Any) -> dict[str, Any]:
    return {"text": "There.", "calls": [{"tool": "final_answer", "arguments": arguments}]}


@pytest.mark.parametrize(
    ("schema", "handed", "answer"),
    [
        (POINT, {"x": 1.25}, '{"x":1.25}'),
        ({"type": "string"}, {"value": "ä"}, '"ä"'),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, {"value": ["b"]}, '["b"]'),
    ],
)
def test_with_a_schema_the_answer_is_json(
    shop: Cli, schema: Any, handed: dict[str, Any], answer: str
) -> None:
    shop.write("answer.json", json.dumps(schema))
    write_script(shop.directory, [hand_in(**handed)])
    ended = shop("run", "hi", *SCRIPT, "--output", "answer.json")
    assert (ended.code, ended.out) == (0, f"{answer}\n")
    document = shop("run", "hi", *SCRIPT, "--output", "answer.json", "--json").document
    assert document["output"] == json.loads(answer)


def test_an_answer_that_never_fits_ends_with_an_exit_code_of_its_own(shop: Cli) -> None:
    shop.write("answer.json", json.dumps(POINT))
    write_script(shop.directory, [hand_in(x="one"), hand_in(y=1), "It is 1.", "It is 1."])
    ended = shop("run", "hi", *SCRIPT, "--output", "answer.json")
    assert (ended.code, ended.out) == (exits.OF_REASON["invalid_output"], "It is 1.\n")


def test_the_typed_output_of_a_remit_is_json_too(shop: Cli) -> None:
    text = SHOP.replace("import remit\n", "import dataclasses\n\nimport remit\n", 1).replace(
        "desk = ", "@dataclasses.dataclass\nclass Point:\n    x: float\n\n\ndesk = "
    )
    shop.write("shop.py", text.replace('name="desk",', 'name="desk", output=Point,'))
    write_script(shop.directory, [hand_in(x=1.5)])
    assert shop("run", "hi", "--remit", "shop.py").out == '{"x":1.5}\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "--output answer.json: No such file"),
        ("{", "--output answer.json: no JSON"),
        ("[]", "--output answer.json: a JSON Schema is an object here"),
        ('{"type": "nonsense"}', "output= is no JSON Schema that can be used here"),
    ],
)
def test_a_schema_that_cannot_be_used_is_one_clear_line(
    shop: Cli, text: str | None, told: str
) -> None:
    if text is not None:
        shop.write("answer.json", text)
    ended = shop("run", "hi", *SCRIPT, "--output", "answer.json")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err


def test_a_waiting_run_tells_what_it_waits_for_and_no_token(shop: Cli) -> None:
    write_script(shop.directory, [PAY])
    ended = shop("run", "hi", "--remit", "shop.py", "--json")
    (pending,) = ended.document["pending"]
    assert (pending["kind"], pending["tool"]) == ("approval", "pay")
    assert json.loads(pending["arguments"]) == {"amount": 3}
    assert "token" not in pending


def test_the_same_run_id_is_the_same_run_and_another_prompt_is_refused(tmp_path: Path) -> None:
    """E8: in one process, as in several."""
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    write_script(tmp_path, ["Hello."])
    script = (
        "from remit.cli.app import main\n"
        "run = ('--remit', 'shop.py', '--run-id', 'r-1', '--quiet')\n"
        "print([main(['run', prompt, *run]) for prompt in ('hi', 'hi', 'ho')])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.stdout == "Hello.\nHello.\n[0, 0, 2]\n"


def test_an_answer_that_no_encoding_can_hold_is_written_with_escapes(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO, "utf-8")
    environ = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ended = program(
        "run", "--remit", "echo.py", cwd=tmp_path, environ=environ, stdin="ä \N{SNOWMAN}".encode()
    )
    assert (ended.code, ended.out) == (0, "\\xe4 \\u2603\n")


# --- the end -------------------------------------------------------------------------------------


def test_every_reason_has_an_exit_code_and_the_help_lists_it(cli: Cli) -> None:
    """U4: one of its own."""
    assert set(exits.OF_REASON) == set(Reason)
    codes = [code for code in exits.OF_REASON.values() if 10 <= code < exits.BUG]
    assert len(codes) == len(set(codes))
    assert not {exits.OK, exits.CHECK_FAILED, exits.USAGE, exits.CONFLICT} & set(codes)
    for arguments in (["--help"], ["run", "--help"]):
        page = cli(*arguments).out
        assert [
            f"{code} {name}"
            for name, code in exits.OF_REASON.items()
            if code in codes and f"{code} {name}" not in page
        ] == []


LIMITED = ("--remit", "shop.py")
MANY = [CALL] * 9


@pytest.mark.parametrize(
    ("turns", "flags", "reason"),
    [
        (["Hello."], [], Reason.COMPLETED),
        (MANY, ["--steps", "2"], Reason.STEP_BUDGET),
        (MANY, ["--tokens", "1300"], Reason.TOKEN_BUDGET),
        (MANY, ["--usd", "0.001"], Reason.COST_BUDGET),
        (MANY, ["--calls", "1"], Reason.CALL_BUDGET),
        ([{"text": "Slow.", "delay": 30}], ["--seconds", "0.05"], Reason.DEADLINE),
        ([PAY], ["--confirm", "none"], Reason.WAITING),
        ([{"text": "No.", "stop_reason": "refusal"}], [], Reason.REFUSED),
        ([{"text": "Cut", "stop_reason": "length"}] * 2, [], Reason.OUTPUT_TRUNCATED),
        ([{"text": "Full", "stop_reason": "context"}], [], Reason.CONTEXT_FULL),
        (MANY, ["--steps", "9", "--tokens", "20000"], Reason.STALLED),
        ([CALL], [], Reason.MODEL_FAILED),
        ([""] * 3, [], Reason.EMPTY_REPLY),
        ([{"text": "Odd", "stop_reason": "unknown"}], [], Reason.UNKNOWN_STOP),
    ],
)
def test_the_exit_code_says_why_a_run_ended(
    shop: Cli, turns: list[Any], flags: list[str], reason: Reason
) -> None:
    """U4: and --exit-zero is for scripts that read the document."""
    write_script(shop.directory, turns)
    ended = shop("run", "hi", *LIMITED, "--json", *flags)
    assert ended.document["reason"] == reason
    assert ended.code == exits.OF_REASON[reason]
    assert shop("run", "hi", *LIMITED, "--json", *flags, "--exit-zero").code == 0


def test_a_veto_has_an_exit_code(shop: Cli) -> None:
    guard = "async def guard(transcript):\n    return remit.Veto('no')\n\n\ndesk = "
    text = SHOP.replace("desk = ", guard).replace('name="desk",', 'name="desk", guards=(guard,),')
    shop.write("shop.py", text)
    assert shop("run", "hi", *LIMITED).code == exits.OF_REASON[Reason.VETOED]


def test_exit_zero_is_about_the_end_of_a_run_and_not_about_a_wrong_call(shop: Cli) -> None:
    assert shop("run", "hi", "--exit-zero", "--model", "nonesuch").code == 2


def test_a_run_that_somebody_else_has_is_a_conflict(
    shop: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(
        "shop.py",
        SHOP
        + "\nfrom remit import MemoryStore, RunBusy\n\n\nclass Busy(MemoryStore):\n"
        + "    async def create(self, *args, **kwargs):\n        raise RunBusy('r-1', 'process 7')\n\n\n"
        + "desk = desk.replace(store=Busy())\n",
    )
    ended = shop("run", "hi", *LIMITED, "--run-id", "r-1")
    assert (ended.code, ended.out) == (exits.CONFLICT, "")
    assert "process 7" in ended.err
    assert "remit tail r-1" in ended.err


def test_a_bug_of_ours_is_told_as_one(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that breaks its word before the run begins stands for it."""
    cli.write(
        "shop.py",
        SHOP.replace("scripted:script.json", "demo:support")
        + "\nfrom remit import MemoryStore\n\n\nclass Odd(MemoryStore):\n"
        + "    async def create(self, *args, **kwargs):\n        raise LookupError('odd')\n\n\n"
        + "desk = desk.replace(store=Odd())\n",
    )
    ended = cli("run", "hi", *LIMITED)
    assert (ended.code, ended.out) == (exits.BUG, "")
    assert "Traceback" in ended.err
    assert ended.err.endswith("this is a bug in remit; please report it with the lines above\n")


# --- pipes ---------------------------------------------------------------------------------------


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line of shell in which `remit` is this program; prints the codes of its pipe."""
    return subprocess.run(
        ["bash", "-c", f"remit() {{ '{sys.executable}' -m remit.cli \"$@\"; }}; {line}"],
        cwd=cwd,
        env=environment(cwd),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    write_script(tmp_path, ["x" * 200_000])
    codes = '; echo "${PIPESTATUS[@]}"'
    for command, code in (
        ("run hi --model scripted:script.json", exits.PIPE_CLOSED),
        ("run hi --model scripted:script.json --json", exits.PIPE_CLOSED),
        ("--version", 0),
    ):
        ended = shell(f"remit {command} | head -c 0{codes}", tmp_path)
        assert ended.stdout.split() == [str(code), "0"]
        assert "Traceback" not in ended.stderr
        assert "BrokenPipe" not in ended.stderr


@pytest.mark.parametrize("arguments", [["run", "--help"], ["runs", "--json"], ["store", "--help"]])
def test_nobody_who_reads_is_the_same_end_for_every_command(
    tmp_path: Path, arguments: list[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as answer:
        ended = subprocess.run(
            [sys.executable, "-m", "remit.cli", *arguments],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert ended.returncode == exits.PIPE_CLOSED
    assert b"Traceback" not in ended.stderr


def test_streams_that_are_not_there_are_missed_by_nobody(tmp_path: Path) -> None:
    write_script(tmp_path, ["Hello."])
    run = "remit run hi --model scripted:script.json"
    assert shell(f"{run} 2>&-", tmp_path).stdout == "Hello.\n"
    assert shell(f"{run} <&-", tmp_path).stdout == "Hello.\n"
    for command in (run, "remit --version", "remit config show"):
        ended = shell(f"{command} >&-; echo $?", tmp_path)
        assert (ended.stdout, "Traceback" in ended.stderr) == ("0\n", False)
    assert shell("remit run 2>&-; echo $?", tmp_path).stdout == "2\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_an_answer_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    write_script(tmp_path, ["Hello."])
    for command in ("run hi --quiet --model scripted:script.json", "config show", "--version"):
        ended = shell(f"remit {command} >/dev/full; echo $?", tmp_path)
        assert ended.stdout == f"{exits.UNWRITTEN}\n"
        assert "No space left" in ended.stderr
        assert ended.stderr.count("\n") == 1


def test_a_directory_that_is_gone_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    ended = shell("cd gone; rmdir ../gone; remit run hi --model demo:support; echo $?", tmp_path)
    assert ended.stdout == "2\n"
    assert ended.stderr.splitlines()[-1].startswith("remit: the working directory cannot be read")


def test_a_loop_of_the_shell_runs_once_for_each_line(tmp_path: Path) -> None:
    """The list is read by the loop; each run is given what is its own."""
    write_script(tmp_path, ["Hello."])
    line = 'while read -r p; do remit run "$p" --model scripted:script.json </dev/null; done'
    ended = shell(f"printf 'a\\nb\\n' | {line}", tmp_path)
    assert ended.stdout == "Hello.\nHello.\n"


# --- documents -----------------------------------------------------------------------------------

NASTY = "\x1b]52;c;aGk=\x07 \x9b2J \u202e \x7f \U000e0041 \N{SNOWMAN} ä " + "o" + "\u0301" * 40


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_document_is_json_whatever_can_be_written(tmp_path: Path, encoding: str) -> None:
    """What a stream writes in place of a letter that it has not would be none."""
    write_script(tmp_path, [NASTY])
    environ = {**environment(tmp_path), "PYTHONIOENCODING": encoding}
    ended = subprocess.run(
        [sys.executable, "-m", "remit.cli", "run", "hi", *SCRIPT, "--json"],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ended.stdout.decode(encoding))["text"] == NASTY


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_document_does_not_act_on_a_terminal_that_shows_it(is_terminal: bool) -> None:
    """U6: nor where it was piped, into a pager or a log; it is the same document all the same."""

    class Window(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    window = Window()
    write_document({"v": 1, "text": NASTY}, window)
    shown = window.getvalue()
    assert json.loads(shown)["text"] == NASTY
    assert visible(shown) == shown


def test_a_document_is_complete_although_the_process_is_left(tmp_path: Path) -> None:
    """A thread that does not end is left with the process, and what was written is not lost."""
    (tmp_path / "stuck.py").write_text(
        "import remit, sys, threading\n\n\n@remit.tool(effect='read')\ndef stick() -> str:\n"
        "    'Stick.'\n    print('stuck', file=sys.stderr, flush=True)\n"
        "    threading.Event().wait(60)\n    return ''\n",
        "utf-8",
    )
    write_script(tmp_path, [{"calls": [{"tool": "stick"}]}])
    with subprocess.Popen(
        [sys.executable, "-m", "remit.cli", "run", "x", *SCRIPT, "--tools", "stuck.py", "--json"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "stuck" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        document = json.loads(process.stdout.read())
        process.stderr.read()
    assert (process.returncode, document["reason"]) == (130, "cancelled")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(("arguments", "code"), [(["nope"], 2), (["run", "x", *SCRIPT], 0)])
def test_notices_that_cannot_be_written_do_not_change_the_exit_code(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    """U4: a full disk under a log of ours is no reason of a run."""
    write_script(tmp_path, ["Done."])
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "remit.cli", *arguments],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
            timeout=60,
        )
    assert ended.returncode == code
