"""Acting on kept runs from the command line: real processes over one file, and tables in this one."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli_rig import ROOT, Cli, Ended, environment, program, write_script
from pty_rig import Person
from remit.analysis.cells import cells
from remit.cli import exits
from remit.cli.own_key import is_sealed, sealed

DESK = '''
import asyncio
from pathlib import Path

import remit
from remit import Call, Limits, Remit, Tool
from remit.testing import ScriptedModel

HERE = Path(__file__).parent


@remit.tool(effect="confirm")
async def pay(amount: int, call: Call) -> dict:
    """Pay."""
    with open(HERE / "ledger.txt", "a") as ledger:
        ledger.write(f"{call.key} {amount}\\n")
    return {"ok": True}


@remit.tool(effect="read")
def pick(call: Call) -> str:
    """Pick a size."""
    return f"size {call.ask(int, 'Which size?')}"


@remit.tool(effect="read")
async def hang() -> str:
    """Hang."""
    print("the tool hangs", flush=True)
    await asyncio.sleep(50)
    return "never"


@remit.tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


@remit.tool(effect="read")
async def watch() -> str:
    """Look until something is paid."""
    print("the tool hangs", flush=True)
    while not (HERE / "ledger.txt").exists():
        await asyncio.sleep(0.05)
    return "paid"


weigh = Tool.elsewhere(
    name="weigh", description="Weigh it.", effect="read", parameters={"type": "object"}
)


def says(transcript, request):
    words = transcript[0].text.split()
    turns = sum(message.role == "assistant" for message in transcript)
    if words == ["both"] and not turns:
        return [("pay", {"amount": 7}), ("watch", {})]
    if words == ["both"]:
        return "all done"
    if turns < len(words):
        amount = {"amount": 7} if words[turns] == "pay" else {}
        return [f"I {words[turns]}.", (words[turns], amount)]
    return "all done" + "".join(
        f" {message.text}" for message in transcript[1:] if message.role == "user" and message.text
    )


desk = Remit(
    name="desk",
    model=ScriptedModel(says),
    tools=[pay, pick, hang, look, watch, weigh],
    limits=Limits(steps=5, tokens=50_000, seconds=60),
    redact=lambda text: text.replace("4111", "[card]"),
)
boss = Remit(
    name="boss",
    model=ScriptedModel(
        lambda t, _: "it is paid" if t.last.tool_results else ("delegate", {"task": "pay"})
    ),
    tools=[
        desk.as_tool(
            "delegate", "Delegate.", limits=Limits(steps=4, tokens=20_000, seconds=30)
        )
    ],
    limits=Limits(steps=5, tokens=50_000, seconds=60),
)
'''
TOOLS = """
import remit

@remit.tool(effect="confirm")
async def pay(amount: int) -> str:
    'Pay.'
    return "paid"
"""
DESK_FLAGS = ("--remit", "desk.py:desk", "--quiet")


@pytest.fixture
def desk(cli: Cli) -> Cli:
    cli.write("desk.py", DESK)
    return cli


def waiting(cli: Cli, prompt: str = "pay", run_id: str = "r1", *flags: str) -> dict[str, Any]:
    """A run that waits, and what it waits for."""
    ended = cli("run", prompt, *DESK_FLAGS, "--run-id", run_id, "--json", *flags)
    assert ended.code == exits.OF_REASON["waiting"]
    (pending,) = ended.document["pending"]
    return pending


def ledger(directory: Path) -> list[str]:
    path = directory / "ledger.txt"
    return path.read_text("utf-8").splitlines() if path.exists() else []


def results(path: Path) -> str:
    """Every byte that the store of a home holds, as text."""
    with closing(sqlite3.connect(path / "home/.local/state/remit/remit.db")) as store:
        rows = store.execute("select body from remit_payload union all select body from remit_post")
        return "\n".join(body.decode(errors="replace") for (body,) in rows)


# --- deciding ------------------------------------------------------------------------------------


def test_what_is_approved_is_shown_whole_runs_once_and_its_run_goes_on(desk: Cli) -> None:
    """E5, E6: another process, which is told nothing but the id."""
    pending = waiting(desk)
    elsewhere = desk.directory / "elsewhere"
    elsewhere.mkdir()
    ended = program(
        "approve",
        pending["id"],
        "--yes",
        "--by",
        "dana",
        cwd=elsewhere,
        environ={"HOME": str(desk.directory / "home")},
    )
    assert (ended.code, ended.out) == (0, "all done\n")
    for shown in (
        "pay(amount=7)",
        '"amount": 7',
        "effect confirm",
        "run r1",
        "call r1:1:pay:",
        "expires ",
        "asked ",
        "the model's words:",
        "I pay.",
        "approved by dana",
        "executed once: call r1:1:pay:",
        '{"ok":true}',
    ):
        assert shown in ended.err
    (line,) = ledger(desk.directory)
    assert line.startswith("r1:1:pay:")
    again = desk("approve", pending["id"], "--yes")
    assert (again.code, again.out) == (exits.CONFLICT, "")
    assert len(ledger(desk.directory)) == 1
    assert "dana" in results(desk.directory)


def test_a_store_that_came_with_a_project_starts_no_program(desk: Cli) -> None:
    """U8: what a stranger recorded in it is not loaded; what this user recorded there is."""
    desk.write("remit.toml", 'store = "sqlite:///kept.db"\n')
    pending = waiting(desk)
    stranger = {"HOME": str(desk.directory / "another home")}
    loaded = desk.write("desk.py", DESK + "\nopen(HERE / 'loaded', 'w').close()\n").with_name(
        "loaded"
    )
    for command in (("resume", "r1"), ("approve", pending["id"], "--yes")):
        ended = desk(*command, environ=stranger)
        assert (ended.code, ended.out) == (exits.USAGE, "")
        assert "--remit" in ended.err
        assert "remit.toml" in ended.err
    assert not loaded.exists()
    assert ledger(desk.directory) == []
    named = desk("resume", "r1", "--remit", "desk.py:desk", environ=stranger)
    assert named.code == exits.OF_REASON["waiting"]
    chosen = desk("resume", "r1", "--store", "sqlite:///kept.db", environ=stranger)
    assert chosen.code == exits.OF_REASON["waiting"]
    approved = desk("approve", pending["id"], "--yes", "--by", "dana")
    assert (approved.code, approved.out) == (0, "all done\n")
    assert len(ledger(desk.directory)) == 1


def test_a_record_that_was_changed_is_not_the_users_any_more(desk: Cli) -> None:
    """U8: the seal is over all that is loaded, and there is none without a key."""
    sealing = {"XDG_STATE_HOME": str(desk.directory / "state")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sealing.items():
            patch.setenv(name, value)
        seal = sealed("shop.py")
        assert is_sealed("shop.py", seal)
        assert not is_sealed("shop.py ", seal)
        assert not is_sealed("shop.py", "")
        assert not is_sealed("shop.py", "\N{SNOWMAN}")
        assert sealed("shop.py") == seal
        key = desk.directory / "state" / "remit" / "key"
        assert key.stat().st_mode & 0o077 == 0
        key.unlink()
        assert not is_sealed("shop.py", seal), "the key is another one"
        assert [each.name for each in key.parent.iterdir()] == []


def test_of_two_people_who_approve_at_once_one_is_told_that_the_other_was_first(desk: Cli) -> None:
    """E1, E5: one decision, one effect, whichever process executes it."""
    pending = waiting(desk)
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "remit.cli", "approve", pending["id"], "--yes", "--json"],
            cwd=desk.directory,
            env=environment(desk.directory),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(3)
    ]
    said = [process.communicate(timeout=60)[0] for process in begun]
    codes = sorted(process.returncode for process in begun)
    assert codes == [0, exits.CONFLICT, exits.CONFLICT]
    (document,) = [json.loads(each) for each in said if each]
    assert (document["v"], document["decision"]) == (1, "approved")
    assert document["result"] == {"status": "ok", "is_error": False, "text": '{"ok":true}'}
    assert document["outcome"]["reason"] == "completed"
    assert len(ledger(desk.directory)) == 1


def test_a_person_says_yes_by_a_word_and_anything_else_is_no(desk: Cli) -> None:
    """E5: asked on the terminal, by the beginning of the id; nothing is decided by a stray key."""
    pending = waiting(desk)
    for word, code in (("", exits.CHECK_FAILED), ("p", exits.CHECK_FAILED), ("pay", exits.OK)):
        with Person("approve", pending["id"][:8], "--no-resume", cwd=desk.directory) as sees:
            sees.until("or the word pay:")
            assert '"amount": 7' in sees.text
            sees.press(f"{word}\r")
            assert sees.ends() == code
    assert ledger(desk.directory) == []
    ended = desk("resume", "r1", "--quiet")
    assert (ended.code, ended.out) == (0, "all done\n")
    assert len(ledger(desk.directory)) == 1


class Unsized(Person):
    """On a terminal that does not know how large it is, as over many a wire."""

    def _size(self, columns: int, rows: int) -> None:
        super()._size(0 * columns, 0 * rows)


@pytest.mark.parametrize("window", [Person, Unsized])
def test_several_are_asked_about_once_and_shown_whole_on_every_terminal(
    desk: Cli, window: type[Person]
) -> None:
    """E5: nothing is approved unseen, although the terminal says that it has no columns."""
    ids = [waiting(desk, "pay", f"r{n}")["id"] for n in (1, 2)]
    for word, code in (("pay", exits.CHECK_FAILED), ("y", exits.OK)):
        asked = ("approve", *(each[:8] for each in ids), "--no-resume")
        with window(*asked, cwd=desk.directory) as sees:
            sees.until("approve all 2, each once? type y:")
            assert sees.text.count('"amount": 7') == 2
            assert all(each in sees.text for each in ids)
            sees.press(f"{word}\r")
            assert sees.ends() == code
    assert desk("approvals", "--json").document["approvals"] == []


def test_nothing_that_is_decided_is_cut_off_by_a_window_that_is_too_narrow(desk: Cli) -> None:
    """E5: such a window breaks the rows itself."""
    pending = waiting(desk)
    with Person("approve", pending["id"], cwd=desk.directory, columns=6) as sees:
        sees.until(lambda: b"the word pay:" in sees.written)
        assert b'"amount": 7' in sees.written
        sees.press("\r")
        assert sees.ends() == exits.CHECK_FAILED


def test_nobody_is_asked_where_nobody_sits_and_no_beginning_of_an_id_decides(desk: Cli) -> None:
    """E5: what decides without a question names exactly one thing."""
    pending = waiting(desk)
    for arguments in ((pending["id"],), (pending["id"][:8], "--yes")):
        ended = desk("approve", *arguments)
        assert (ended.code, ended.out) == (exits.USAGE, "")
    assert desk("reject", pending["id"][:8]).code == exits.USAGE
    assert desk("approve", "nonesuch", "--yes").code == exits.NOT_FOUND
    assert ledger(desk.directory) == []
    assert len(desk("approvals", "--json").document["approvals"]) == 1


def test_who_rejects_gives_the_model_a_reason(desk: Cli) -> None:
    """E5: the call is not executed, and the run goes on."""
    pending = waiting(desk)
    ended = desk(
        "reject", pending["id"], "--reason", "too much", "--by", "dana", "--json", "--quiet"
    )
    document = ended.document
    assert (ended.code, document["decision"], document["by"]) == (0, "rejected", "dana")
    assert document["result"]["status"] == "refused"
    assert "Refused by dana. too much" in document["result"]["text"]
    assert ledger(desk.directory) == []


def test_no_resume_decides_alone_and_loads_no_code(desk: Cli) -> None:
    """E5, E6: what was decided waits for whoever goes on."""
    pending = waiting(desk)
    desk.write("desk.py", "raise SystemExit(1)\n")
    refused = desk("approve", pending["id"], "--yes")
    assert refused.code == exits.USAGE
    assert len(desk("approvals", "--json").document["approvals"]) == 1, "nothing was decided"
    assert desk("approve", pending["id"], "--yes", "--no-resume", "--quiet").code == 0
    desk.write("desk.py", DESK)
    assert ledger(desk.directory) == []
    ended = desk("resume", "@last", "--quiet")
    assert (ended.code, ended.out) == (0, "all done\n")
    assert len(ledger(desk.directory)) == 1
    assert desk("approve", pending["id"], "--yes", "--no-resume").code == exits.CONFLICT


def test_a_run_that_code_started_goes_on_with_the_remit_that_is_named(desk: Cli) -> None:
    """J3: a run without a recorded target is told apart from one whose target is gone."""
    script = (
        "import asyncio, desk\n"
        "kept = desk.desk.replace(store='sqlite:///own.db')\n"
        "print(asyncio.run(kept.run('pay', run_id='r1')).pending[0].id)\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", script],
        cwd=desk.directory,
        env=environment(desk.directory),
        capture_output=True,
        text=True,
        check=True,
    )
    acting = ("approve", made.stdout.strip(), "--yes", "--store", "sqlite:///own.db", "--quiet")
    ended = desk(*acting)
    assert ended.code == exits.USAGE
    assert "--remit FILE.py:NAME" in ended.err
    wrong = desk(*acting, "--tools", "desk.py", "--model", "demo:support")
    assert (wrong.code, ledger(desk.directory)) == (exits.USAGE, [])
    assert "belongs to remit 'desk'" in wrong.err
    assert desk(*acting, "--remit", "desk.py:desk").out == "all done\n"
    assert len(ledger(desk.directory)) == 1


# --- supplying -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "stdin", "result"),
    [
        (("42",), None, "size 42"),
        (("-",), b"42\n", "size 42"),
        (("@answer.txt",), None, "size 41"),
        (("nobody knows", "--error"), None, "nobody knows"),
    ],
)
def test_a_question_is_answered_from_another_process(
    desk: Cli, arguments: tuple[str, ...], stdin: bytes | None, result: str
) -> None:
    """E6: by its schema, from an argument, a file or standard input; or that nobody will."""
    desk.write("answer.txt", "41")
    pending = waiting(desk, "pick")
    ended = desk("supply", pending["id"], *arguments, "--by", "dana", "--json", stdin=stdin)
    document = ended.document
    assert (ended.code, document["decision"], document["by"]) == (0, "supplied", "dana")
    assert result in document["result"]["text"]


def test_an_answer_that_does_not_fit_uses_nothing_up(desk: Cli) -> None:
    """E6: the question stays open, and what is of another kind is pointed at its own command."""
    pending = waiting(desk, "pick")
    ended = desk("supply", pending["id"], "large")
    assert ended.code == exits.USAGE
    assert "Which size?" in ended.err
    wrong = desk("approve", pending["id"], "--yes")
    assert wrong.code == exits.USAGE
    assert f"remit supply {pending['id']}" in wrong.err
    assert desk("supply", pending["id"], "42", "--no-resume", "--quiet").code == 0
    assert desk("supply", pending["id"], "42", "--no-resume").code == exits.CONFLICT
    assert desk("resume", "r1", "--quiet").out == "all done\n"


def test_a_result_from_elsewhere_is_redacted_before_it_is_recorded(desk: Cli) -> None:
    """E6: by the remit of its run, also where the run does not go on at once."""
    pending = waiting(desk, "weigh")
    assert desk("supply", pending["id"], '{"card": "4111"}', "--no-resume", "--quiet").code == 0
    ended = desk("resume", "r1", "--quiet")
    assert ended.code == 0
    assert "4111" not in results(desk.directory)
    assert "[card]" in results(desk.directory)


# --- going on ------------------------------------------------------------------------------------


def test_a_run_that_met_a_limit_goes_on_with_more(desk: Cli) -> None:
    """J3: +N adds to what it may use, N is the new total; its place is where it was started, not where it goes on."""
    first = desk("run", "look look look", *DESK_FLAGS[:2], "--run-id", "r1", "--steps", "1")
    assert first.code == exits.OF_REASON["step_budget"]
    assert "resume with more: remit resume r1 --steps 2" in first.err
    same = desk("resume", "r1", "--json")
    assert (same.code, same.document["steps"]) == (10, 1)
    second = desk("resume", "r1", "--steps", "+1", "--json")
    assert (second.code, second.document["steps"]) == (10, 2)
    (desk.directory / "elsewhere").mkdir()
    third = program(
        "resume",
        "@last",
        "--steps",
        "9",
        "--tokens",
        "+1000",
        "--seconds",
        "+5",
        "--jsonl",
        cwd=desk.directory / "elsewhere",
        environ={"HOME": str(desk.directory / "home")},
    )
    lines = [json.loads(line) for line in third.out.splitlines()]
    assert lines[0]["limits"]["steps"] == 9
    assert lines[0]["limits"]["tokens"] == 51_000
    assert lines[0]["limits"]["seconds"] == 65
    assert (third.code, lines[-1]["reason"], lines[-1]["steps"]) == (0, "completed", 3)
    for wrong in (("--steps", "+x"), ("--usd", "+0.1"), ("--calls", "+1")):
        assert desk("resume", "r1", *wrong).code == exits.USAGE
    assert desk("resume", "nonesuch").code == exits.NOT_FOUND


def test_new_limits_that_leave_no_room_change_nothing(desk: Cli) -> None:
    """J3: and `--exit-zero` is about the end, `--usd` and `--calls` about limits that are new."""
    desk("run", "look look", *DESK_FLAGS, "--run-id", "r1", "--steps", "1")
    assert desk("resume", "r1", "--steps", "1", "--exit-zero", "--quiet").code == 0
    limits = ("--steps", "9", "--usd", "1", "--calls", "9")
    ended = desk("resume", "r1", *limits, "--jsonl")
    first = json.loads(ended.out.splitlines()[0])
    assert (first["limits"]["usd"], first["limits"]["calls"]) == ("1", 9)
    assert ended.code == 0


def test_a_run_put_together_from_flags_goes_on_with_the_same(desk: Cli) -> None:
    """J3: tools, model and the schema of the output are found again from anywhere; flags are stronger."""
    desk.write("answer.json", '{"type": "object", "properties": {"ok": {"type": "boolean"}}}')
    desk.write(
        "script.json", json.dumps([{"calls": [{"tool": "pay", "arguments": {"amount": 3}}]}])
    )
    flags = ("--tools", "desk.py:pay", "--model", "scripted:script.json", "--output", "answer.json")
    first = desk("run", "hi", *flags, "--run-id", "r1", "--json", "--tag", "a=b")
    (pending,) = first.document["pending"]
    (desk.directory / "elsewhere").mkdir()
    desk.write(
        "elsewhere/script.json",
        json.dumps(["no", {"calls": [{"tool": "final_answer", "arguments": {"ok": True}}]}]),
    )
    ended = program(
        "approve",
        pending["id"],
        "--yes",
        "--quiet",
        "--model",
        "scripted:script.json",
        cwd=desk.directory / "elsewhere",
        environ={"HOME": str(desk.directory / "home")},
    )
    assert (ended.code, ended.out) == (0, '{"ok":true}\n')
    assert len(ledger(desk.directory)) == 1
    for tag in ("a", "=b", "remit.target=x"):
        assert desk("run", "hi", *flags, "--tag", tag).code == exits.USAGE


def test_a_run_elsewhere_is_left_to_whoever_has_it(desk: Cli) -> None:
    """J2: nobody else goes on with it."""
    with hanging(desk.directory) as process:
        assert desk("resume", "h1", "--quiet").code == exits.CONFLICT
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == exits.INTERRUPTED


def test_an_approval_is_heard_by_the_process_that_executes_the_run(desk: Cli) -> None:
    """E6, J2: while another call of the turn hangs, which ends only once the approved one has taken effect."""
    with hanging(desk.directory, "both") as process:
        while not (listed := desk("approvals", "--json").document["approvals"]):
            assert process.poll() is None, "reads begin before their reply is whole"
        ended = desk("approve", listed[0]["id"], "--yes")
        assert (ended.code, ended.out) == (0, "")
        assert "which goes on with it" in ended.err
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "all done\n")
    assert len(ledger(desk.directory)) == 1


def test_what_a_run_inside_waits_for_goes_on_from_the_outermost(desk: Cli) -> None:
    """E6, L3: the child is approved, its parent is resumed."""
    ended = desk("run", "go", "--remit", "desk.py:boss", "--run-id", "b1", "--json", "--quiet")
    (pending,) = ended.document["pending"]
    assert pending["run_id"] != "b1"
    assert pending["path"] == ["boss", "desk"]
    ended = desk("approve", pending["id"], "--yes", "--json")
    assert "boss > desk" in ended.err
    document = ended.document
    assert (document["resume"], document["run_id"]) == ("b1", pending["run_id"])
    assert (document["outcome"]["run_id"], document["outcome"]["text"]) == ("b1", "it is paid")
    assert document["result"]["status"] == "ok"
    assert len(ledger(desk.directory)) == 1


# --- steering ------------------------------------------------------------------------------------


@contextmanager
def hanging(directory: Path, prompt: str = "hang") -> Generator[subprocess.Popen[str]]:
    """A process that executes the run h1, whose tool hangs."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "remit.cli",
            "run",
            prompt,
            "--remit",
            "desk.py:desk",
            "--run-id",
            "h1",
        ],
        cwd=directory,
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        while "the tool hangs" not in process.stderr.readline():
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_run_is_cancelled_from_another_process_while_its_tool_hangs(desk: Cli) -> None:
    """K1: within seconds, closed by the process that has it, and both tell the same end."""
    with hanging(desk.directory) as process:
        began = time.monotonic()
        ended = desk("cancel", "h1", "--json", "--reason", "not today", "--grace", "0.1")
        assert time.monotonic() - began < 20, "the tool would have hung for 50 s"
        assert ended.document["runs"] == [
            {"run_id": "h1", "reason": "cancelled", "cancelled": True, "error": "not today"}
        ]
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (exits.INTERRUPTED, "I hang.\n")
        assert "remit resume h1 --reopen" in err
    assert "cancelled (not today)" in desk("show", "h1").out
    again = desk("resume", "h1", "--quiet")
    assert again.code == exits.INTERRUPTED
    reopened = desk("resume", "h1", "--reopen", "--quiet")
    assert (reopened.code, reopened.out) == (0, "all done\n")


def test_a_killed_run_is_cancelled_by_whoever_says_so(desk: Cli) -> None:
    """K1, J2: a dead process has nothing to close; several runs are named at once, and one that ended stays so."""
    with hanging(desk.directory) as process:
        process.kill()
        process.wait(60)
        desk("run", "look", *DESK_FLAGS, "--run-id", "done")
        waiting(desk, "pay", "r1")
        ended = desk("cancel", "h1", "r1", "done")
    assert (ended.code, ended.out) == (0, "h1 cancelled\nr1 cancelled\ndone completed\n")
    assert "run done had ended" in ended.err
    assert desk("approvals").out == "Nothing is waited for.\n"
    assert desk("cancel", "nonesuch").code == exits.NOT_FOUND


def test_of_several_runs_one_that_cannot_be_cancelled_keeps_no_other_from_it(desk: Cli) -> None:
    """K1: each on its own, and the exit code tells; a name that means nothing cancels none."""
    waiting(desk, "pay", "r1")
    waiting(desk, "pay", "r2")
    assert desk("cancel", "r1", "r3").code == exits.NOT_FOUND
    assert desk("cancel", "r1", "--grace", "-1").code == exits.USAGE
    assert len(desk("approvals", "--json").document["approvals"]) == 2
    desk("store", "erase", "--run", "r2", "--yes")
    ended = desk("cancel", "r2", "r1", "r1", "--json")
    assert (ended.code, [each["run_id"] for each in ended.document["runs"]]) == (4, ["r1"])
    assert "r2" in ended.err
    assert desk("cancel", "r2").code == exits.USAGE


def test_several_are_shown_together_and_each_is_decided_on_its_own(desk: Cli) -> None:
    """E5, E6: what was decided meanwhile keeps no other from it; the exit code and the document tell."""
    first, second, third = (waiting(desk, "pay", f"r{n}") for n in (1, 2, 3))
    ids = [each["id"] for each in (first, second, third)]
    desk("reject", ids[1], "--no-resume")
    assert desk("approve", *ids, "nonesuch", "--yes").code == exits.NOT_FOUND
    assert ledger(desk.directory) == []
    ended = desk("approve", *ids, ids[0], "--yes", "--json", "--reason", "both are fine")
    assert ended.code == exits.CONFLICT
    decided = ended.document["decisions"]
    assert [each["id"] for each in decided] == [ids[0], ids[2]]
    assert [each["outcome"]["reason"] for each in decided] == ["completed", "completed"]
    assert [each["result"]["status"] for each in decided] == ["ok", "ok"]
    assert [(each["id"], each["why"]) for each in ended.document["failed"]] == [(ids[1], "used")]
    assert len(ledger(desk.directory)) == 2
    for each in (first, third):
        assert each["run_id"] in ended.err, "all of them are shown"


def test_of_several_that_are_refused_each_run_goes_on(desk: Cli) -> None:
    """E5: and one id that can be decided no more is an error of its own, as alone."""
    ids = [waiting(desk, "pay", f"r{n}")["id"] for n in (1, 2)]
    ended = desk("reject", *ids, "--reason", "no", "--quiet")
    assert (ended.code, ended.out) == (0, "all done\nall done\n")
    assert desk("reject", ids[0]).code == exits.CONFLICT
    ended = desk("reject", *ids, "--json")
    assert (ended.code, ended.document["decisions"]) == (exits.CONFLICT, [])


def test_a_call_that_was_not_run_is_not_told_as_executed(desk: Cli) -> None:
    """E5: its tool has other parameters by now, and nobody entered its body."""
    desk.write("tools.py", TOOLS)
    write_script(desk.directory, [{"calls": [{"tool": "pay", "arguments": {"amount": 7}}]}, "ok"])
    flags = ("--tools", "tools.py", "--model", "scripted:script.json", "--quiet")
    ended = desk("run", "pay", *flags, "--run-id", "r1", "--json")
    (pending,) = ended.document["pending"]
    desk.write("tools.py", TOOLS.replace("amount: int", "amount: int, currency: str"))
    ended = desk("approve", pending["id"], "--yes")
    assert "not executed: call r1:1:pay:" in ended.err
    assert "changed pay" in ended.err


def test_the_list_of_what_is_waited_for_fits_its_terminal(desk: Cli) -> None:
    """E6: a row for each, however narrow; the id stands first and whole."""
    pending = waiting(desk)
    with Person("approvals", cwd=desk.directory, columns=40) as sees:
        assert sees.ends() == 0
    rows = [row for row in sees.scrollback if row]
    assert len(rows) == 2
    assert all(cells(row) < 40 for row in rows)
    assert rows[1].startswith(pending["id"])


def test_people_who_type_inbox_get_their_inbox(desk: Cli) -> None:
    """An alias for what is typed from habit."""
    waiting(desk)
    assert desk("inbox", "--json").document == desk("approvals", "--json").document


def test_what_is_said_to_a_run_is_heard_when_it_goes_on(desk: Cli) -> None:
    """T5: behind the results; one that has ended hears nobody."""
    pending = waiting(desk)
    ended = desk("send", "r1", "and Tuesday ")
    assert ended.code == 0
    assert "remit resume r1" in ended.err
    assert desk("send", "r1", "-", "--json", stdin=b"or not").document["executed"] is False
    answer = desk("approve", pending["id"], "--yes", "--quiet").out
    assert answer == "all done and Tuesday or not\n"
    assert desk("send", "r1", "too late").code == exits.CONFLICT
    assert desk("send", "r1", " ").code == exits.USAGE


# --- lists ---------------------------------------------------------------------------------------


def test_everything_that_is_waited_for_is_listed_and_no_token_is(desk: Cli) -> None:
    """E5, E6: over all runs, the longest first; in no form does it hold what decides."""
    pendings = [waiting(desk, prompt, prompt) for prompt in ("pay", "pick", "weigh")]
    listed = desk("approvals", "--json")
    document = listed.document
    assert document["v"] == 1
    assert [each["id"] for each in document["approvals"]] == [each["id"] for each in pendings]
    assert [each["kind"] for each in document["approvals"]] == ["approval", "input", "result"]
    assert [each["expired"] for each in document["approvals"]] == [False] * 3
    assert "token" not in listed.out
    table = desk("approvals").out.splitlines()
    assert table[0].split() == [
        "ID",
        "KIND",
        "TOOL",
        "EFFECT",
        "ASKED",
        "EXPIRES",
        "RUN",
        "SUMMARY",
    ]
    assert len(table) == 4


def test_commands_that_act_make_no_store_where_there_is_none(desk: Cli) -> None:
    assert desk("approvals", "--json").document == {"v": 1, "approvals": []}
    for command in (
        ("approve", "x", "--yes"),
        ("reject", "x"),
        ("supply", "x", "1"),
        ("resume", "x"),
        ("cancel", "x"),
        ("send", "x", "hi"),
    ):
        assert desk(*command).code == exits.NOT_FOUND, command
    assert not (desk.directory / "home").exists()


def test_a_run_is_worth_more_than_its_record_where_nobody_chose_a_place(desk: Cli) -> None:
    """X2: the usual place cannot be had: it is told, and the run goes on; a chosen one that cannot is an error."""
    desk.write("home", "a file where a home should be")
    ended = desk("run", "look", *DESK_FLAGS)
    assert (ended.code, ended.out) == (0, "all done\n")
    assert "the run is not kept" in ended.err


# --- conversations -------------------------------------------------------------------------------


def test_a_session_is_gone_on_with_by_the_next_command(desk: Cli) -> None:
    """E4: from another process, in a chat as in single prompts; who finds it busy is told what holds it."""
    talk = ("--remit", "desk.py:desk", "--session", "s", "--quiet")
    pending = waiting(desk, "pay")
    assert desk("run", "look", *talk).out == "all done\n"
    assert program("run", "more", *talk, cwd=desk.directory).out == "all done more\n"
    chat = desk("chat", *talk, "--session-wait", "5", stdin=b"even more\n/undo\n/show\n")
    assert (chat.code, chat.out) == (0, "all done more even more\n")
    assert "nothing is taken back" in chat.err
    held = waiting(desk, "pay", "r2", "--session", "t")
    busy = desk("run", "look", *talk[:2], "--session", "t", "--session-wait", "0.1")
    assert (busy.code, busy.out) == (exits.CONFLICT, "")
    assert held["id"] in busy.err
    assert "remit cancel r2" in busy.err
    assert "session_wait=" not in busy.err
    assert pending["id"] not in busy.err
    assert desk("resume", "session:s", "--quiet").code == 0


# --- flags ---------------------------------------------------------------------------------------


def test_where_a_run_is_kept_and_what_it_is_marked_with(desk: Cli) -> None:
    """J1: a flag wins over the place that a file names; memory keeps nothing."""
    desk.write("remit.toml", 'store = "sqlite:///theirs.db"\n')
    for command, stdin in ((("run", "look"), None), (("chat",), b"look\n")):
        desk(*command, *DESK_FLAGS, "--tag", "team=a", "--tag", "n=1", stdin=stdin)
        desk(*command, *DESK_FLAGS, "--store", "sqlite:///mine.db", stdin=stdin)
        desk(*command, *DESK_FLAGS, "--store", "memory:", stdin=stdin)
    for name, tagged in (("theirs.db", 2), ("mine.db", 0)):
        with closing(sqlite3.connect(desk.directory / name)) as store:
            kept = [json.loads(tags) for (tags,) in store.execute("select tags from remit_run")]
        assert len(kept) == 2
        assert sum((each.get("team"), each.get("n")) == ("a", "1") for each in kept) == tagged
        (remit,) = {json.loads(each["remit.target"])["remit"] for each in kept}
        assert remit == f"{desk.directory / 'desk.py'}:desk"


@pytest.mark.parametrize("command", ["approve", "reject", "supply", "resume"])
def test_every_way_to_decide_takes_the_same_flags(desk: Cli, command: str) -> None:
    """J3: with what the run goes on, in which store it is, and how it is shown."""
    prompt = "pick" if command == "supply" else "pay"
    at = ("--store", "sqlite:///mine.db")
    arguments = {"approve": ("--yes",), "supply": ("42",)}.get(command, ())
    desk.write("other.py", DESK.replace("all done", "all well"))
    desk.write("decide.py", DECIDE)

    def said(*flags: str) -> Ended:
        pending = waiting(desk, prompt, f"r{len(runs)}", *at)
        runs.append(pending["run_id"])
        named = pending["run_id"] if command == "resume" else pending["id"]
        confirmed = ("--confirm", "decide.py:yes") if command == "resume" else ()
        return desk(command, named, *arguments, *at, *confirmed, *flags)

    runs: list[str] = []
    shown = said("--plain", "--verbose", "--no-motion", "--color", "never")
    assert (shown.code, shown.out) == (0, "all done\n")
    assert "completed" in shown.err
    assert "\x1b" not in shown.err
    assert "\x1b" in said("--color", "always").err
    assert said("--quiet").err == ""
    assert said("--remit", "other.py:desk", "--quiet").out == "all well\n"
    assert said("--remit", "other.py:desk", "--tools", "desk.py").code == exits.USAGE
    assert said("--tools", "desk.py", "--model", "demo:support").code == exits.USAGE, (
        "another remit's"
    )
    assert said("--base-url", "http://localhost:1/v1").code == exits.USAGE, (
        "no model is named with it"
    )
    if command != "resume":
        pending = waiting(desk, prompt, "alone", *at)
        flags = ("--no-resume", "--quiet", "--confirm", "none")
        assert desk(command, pending["id"], *arguments, *at, *flags).code == 0
        assert desk("send", "alone", "hello", *at).code == 0
        assert desk("cancel", "alone", *at).out == "alone cancelled\n"
    listed = desk("approvals", *at, "--json").document["approvals"]
    assert {each["run_id"] for each in listed} <= set(runs)


DECIDE = """
from remit import Decision


async def yes(pending):
    return Decision(approve=True, by="decide.py")
"""


# --- the page ------------------------------------------------------------------------------------


def test_the_page_about_it_can_be_followed_line_by_line(cli: Cli) -> None:
    """E6: with the id of what is open where the page has one of its own."""
    page = (ROOT / "docs" / "approvals.md").read_text("utf-8")
    [code, *_] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [script] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    cli.write("shop.py", code)
    cli.write("shop.json", script)
    [first, given, steering] = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    ends = [follow(cli, line) for line in first.splitlines()]
    assert [ended.code for ended in ends] == [14, 0, 0]
    assert "Refund 4.20 on order 1042" in ends[-1].err
    assert ends[-1].out == "The shipping of order 1042 is refunded.\n"
    follow(cli, first.splitlines()[0].replace("late", "other"))
    supplied, rejected = given.splitlines()
    assert follow(cli, supplied).code == exits.USAGE, "it is an approval"
    assert follow(cli, rejected).code == 0
    sent, resumed, cancelled = steering.splitlines()
    assert [follow(cli, line).code for line in (sent, resumed, cancelled)] == [4, 0, 0]


def follow(cli: Cli, line: str) -> Ended:
    """A line of the page, with the id of what is open, and without a person who is asked."""
    _, program_name, *arguments = shlex.split(line)
    assert program_name == "remit"
    if "3c9e41d0" in arguments:
        (known,) = cli("approvals", "--json").document["approvals"]
        arguments[arguments.index("3c9e41d0")] = known["id"]
    if arguments[0] == "approve":
        arguments.append("--yes")
    return cli(*arguments)
