"""Settings: files and environment, which of them wins, and how a fault in one is told."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from cli_rig import SHOP, Cli, Ended, write_script
from remit.cli.settings import BUILT_IN, read_settings


def steps_of(ended: Ended) -> tuple[object, str]:
    """What the number of steps is set to, and by whom."""
    assert ended.code == 0, ended.err
    setting = ended.document["settings"]["run.steps"]
    return setting["value"], setting["origin"]


def test_what_stands_nearer_wins(cli: Cli) -> None:
    """U5: environment, remit.toml, pyproject.toml, the user's file, what is built in; a flag before all of them."""
    show = ("config", "show", "--json")
    assert steps_of(cli(*show)) == (BUILT_IN["steps"], "built in")
    cli.write("home/.config/remit/config.toml", "[run]\nsteps = 2\n")
    assert steps_of(cli(*show)) == (2, "home/.config/remit/config.toml")
    cli.write("pyproject.toml", "[project]\nname = 'x'\n\n[tool.remit.run]\nsteps = 3\n")
    assert steps_of(cli(*show)) == (3, "pyproject.toml")
    cli.write("remit.toml", "[run]\nsteps = 4\n")
    assert steps_of(cli(*show)) == (4, "remit.toml")
    assert steps_of(cli(*show, environ={"REMIT_RUN_STEPS": "5"})) == (5, "REMIT_RUN_STEPS")

    call = {"calls": [{"tool": "look", "arguments": {"what": "x"}}]}
    model = write_script(cli.directory, [call] * 9)
    cli.write("shop.py", SHOP)
    run = ("run", "hi", "--tools", "shop.py", "--model", model, "--json")
    for flags, environ, expected in (
        (["--steps", "1"], {"REMIT_RUN_STEPS": "3"}, 1),
        ([], {"REMIT_RUN_STEPS": "3"}, 3),
        ([], {}, 4),
    ):
        ended = cli(*run, *flags, environ=environ)
        assert (ended.code, ended.document["steps"]) == (10, expected)


def test_the_nearest_file_upwards_is_read_and_no_other(cli: Cli, tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    cli.write("remit.toml", "[run]\nsteps = 1\nseconds = 9\n")
    cli.write("a/remit.toml", "[run]\nsteps = 2\n")
    cli.write("a/b/pyproject.toml", "[tool.other]\nsteps = 3\n")
    cli.directory = inner
    inner.mkdir(exist_ok=True)
    ended = cli("config", "show", "--json")
    assert steps_of(ended) == (2, str(tmp_path / "a" / "remit.toml"))
    assert ended.document["settings"]["run.seconds"]["origin"] == "built in"


def test_the_user_s_file_is_where_xdg_says(cli: Cli, tmp_path: Path) -> None:
    cli.write("xdg/remit/config.toml", "[run]\nsteps = 7\n")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert steps_of(cli("config", "show", "--json", environ=environ))[0] == 7


def test_what_is_shown_can_be_put_into_a_file(cli: Cli) -> None:
    text = (
        'store = "sqlite:///kept.db"\n\n[run]\nmodel = "demo:support"\ninstructions = "Say \\"hi\\".\\nÄ"\nsteps = 4\ntokens = 5\n'
        'usd = 0.25\ncalls = 6\nseconds = 7.5\n\n[remits.desk]\ntarget = "shop.py:desk"\nsteps = 2\n'
    )
    cli.write("remit.toml", text)
    ended = cli("config", "show")
    assert (ended.code, ended.err) == (0, "")
    assert tomllib.loads(ended.out) == tomllib.loads(text)


def test_origin_says_where_each_value_comes_from(cli: Cli) -> None:
    cli.write("remit.toml", "[run]\nsteps = 4\n")
    lines = cli("config", "show", "--origin", environ={"REMIT_RUN_USD": "0.5"}).out.splitlines()
    assert [line.split("  # ")[1] for line in lines] == [
        "built in",
        "remit.toml",
        "built in",
        "REMIT_RUN_USD",
        "built in",
    ]
    assert tomllib.loads("\n".join(lines))["run"]["steps"] == 4


def test_what_a_file_says_does_not_act_on_the_terminal(cli: Cli) -> None:
    """Not even in the name of a profile; a value stays one that can be put into a file."""
    cli.write(
        "remit.toml",
        '[run]\ninstructions = "\\u001b[2J \\u009b \\u202e \\u007f"\n[remits."x\\u001b\\u202e"]\ntarget = "a"\n',
    )
    shown = cli("config", "show", "--origin").out.splitlines()
    assert shown[1].startswith('run.instructions = "\\u001b[2J \\u009b \\u202e \\u007f"')
    assert shown[-1].startswith('remits.x\\x1b\\u202e.target = "a"')


def test_a_check_says_what_was_read(cli: Cli) -> None:
    assert cli("config", "check").out == "all is well: nothing is set\n"
    cli.write("remit.toml", "[run]\nsteps = 4\n")
    ended = cli("config", "check", environ={"REMIT_RUN_USD": "0.5"})
    assert (ended.code, ended.out) == (0, "all is well: REMIT_RUN_USD, remit.toml\n")


FAULTS = {
    "[run]\nstpes = 3\n": "remit.toml: unknown key run.stpes (did you mean steps?)",
    "[rnu]\nsteps = 3\n": "remit.toml: unknown key rnu (did you mean run?)",
    "qqq = 3\n": "remit.toml: unknown key qqq; known are store, run, remits, prices",
    "[run]\nsteps = 0\n": "remit.toml: run.steps: 0 is not a whole number above zero",
    "[run]\nsteps = -1\n": "-1 is not a whole number above zero",
    "[run]\nsteps = 1.5\n": "1.5 is not a whole number above zero",
    "[run]\nsteps = true\n": "True is not a whole number above zero",
    '[run]\nsteps = "many"\n': "'many' is not a whole number above zero",
    "[run]\nseconds = inf\n": "Infinity is not a number of seconds above zero",
    "[run]\nseconds = nan\n": "NaN is not a number of seconds above zero",
    "[run]\nusd = 0\n": "0 is not an amount of US dollars above zero",
    "[run]\nusd = []\n": "[] is not an amount of US dollars above zero",
    "[run]\nmodel = 3\n": "remit.toml: run.model: 3 is not a name such as demo:support",
    '[run]\ninstructions = "@/etc/hostname"\n': "is not the text itself (@FILE is for the command line",
    '[run]\nmodel = "scripted:a\\u0000"\n': "is not a name such as demo:support",
    '[remits.x]\ntarget = "a\\u0000.py"\n': "remits.x.target: 'a\\x00.py' is no target",
    "run = 3\n": "remit.toml: [run] is a table, not 3",
    "remits = []\n": "remit.toml: [remits] is a table, not []",
    "[remits]\nx = 3\n": "remit.toml: [remits.x] is a table, not 3",
    '[remits.x]\ntarget = "a.py"\nsteps = 0\n': "remit.toml: remits.x.steps: 0 is not",
    '[remits.x]\ntarget = "a.py"\nstep = 1\n': "unknown key remits.x.step (did you mean steps?)",
    "[remits.x]\nsteps = 3\n": "remit.toml: [remits.x] has no target",
    "[remits.x]\ntarget = 3\n": "remit.toml: remits.x.target: 3 is no target",
    "[run\n": "remit.toml: Expected ']' at the end of a table declaration (at line 1, column 5)",
    "[run]\nsteps = 1\nsteps = 2\n": "remit.toml: Cannot overwrite a value (at line 3",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_in_a_file_names_the_file_and_the_key(cli: Cli, text: str) -> None:
    cli.write("remit.toml", text)
    shown, checked = cli("config", "show"), cli("config", "check")
    ran = cli("run", "hi", "--model", "demo:support")
    assert [each.code for each in (shown, checked, ran)] == [2, 1, 2]
    for ended in (shown, checked, ran):
        assert FAULTS[text] in ended.err
        assert (ended.out, ended.err.count("\n")) == ("", 1)


def test_a_file_that_is_no_text_or_cannot_be_read_is_one_line(cli: Cli) -> None:
    (cli.directory / "remit.toml").write_bytes(b"\xff\xfe[run]")
    assert "remit.toml: 'utf-8' codec can't decode" in cli("config", "check").err
    (cli.directory / "remit.toml").unlink()
    cli.write("pyproject.toml", "[tool]\nremit = 3\n# tool.remit\n")
    assert "pyproject.toml: [tool.remit] is a table, not 3" in cli("config", "check").err


def test_a_pyproject_of_others_is_none_of_our_business(cli: Cli) -> None:
    cli.write("pyproject.toml", "this is [ no TOML at all")
    assert cli("config", "check").code == 0


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"REMIT_RUN_STEPS": "nine"}, "REMIT_RUN_STEPS: 'nine' is not a whole number above zero"),
        (
            {"REMIT_RUN_STPES": "9"},
            "REMIT_RUN_STPES, which is no setting (did you mean REMIT_RUN_STEPS?)",
        ),
        ({"REMIT_RUN_SECONDS": "-1"}, "REMIT_RUN_SECONDS: '-1' is not a number of seconds"),
    ],
)
def test_a_fault_in_the_environment_names_the_variable(
    cli: Cli, environ: dict[str, str], told: str
) -> None:
    ended = cli("config", "check", environ=environ)
    assert (ended.code, ended.out) == (1, "")
    assert told in ended.err


def test_an_empty_variable_is_as_good_as_none(cli: Cli) -> None:
    ended = cli("config", "show", "--json", environ={"REMIT_RUN_STEPS": ""})
    assert steps_of(ended) == (BUILT_IN["steps"], "built in")


def test_every_limit_of_the_environment_is_read(tmp_path: Path) -> None:
    values = {"MODEL": "demo:support", "INSTRUCTIONS": "x", "STEPS": "1", "TOKENS": "2"}
    values |= {"USD": "0.3", "CALLS": "4", "SECONDS": "5", "BASE_URL": "https://h.example/v1"}
    environ = {f"REMIT_RUN_{name}": value for name, value in values.items()}
    settings = read_settings(tmp_path, {**environ, "HOME": str(tmp_path)})
    assert {name: str(each.value) for name, each in settings.run.items()} == {
        "model": "demo:support",
        "base_url": "https://h.example/v1",
        "instructions": "x",
        "steps": "1",
        "tokens": "2",
        "usd": "0.3",
        "calls": "4",
        "seconds": "5.0",
    }


# --- profiles ------------------------------------------------------------------------------------


@pytest.fixture
def project(cli: Cli) -> Cli:
    """A project with a profile, called from a directory inside it."""
    cli.write("shop.py", SHOP)
    write_script(cli.directory, [{"calls": [{"tool": "look", "arguments": {"what": "x"}}]}] * 9)
    (cli.directory / "other.json").write_text(json.dumps(["Other."]), "utf-8")
    cli.write("remit.toml", '[remits.support]\ntarget = "shop.py:desk"\nsteps = 2\n')
    return cli


def test_a_profile_is_a_target_with_limits_of_its_own(project: Cli) -> None:
    """The file says 3 steps, its profile 2, a flag 1; the defaults of [run] are for runs put together here."""
    run = ("run", "hi", "--remit", "support", "--json")
    environ = {"REMIT_RUN_STEPS": "1"}
    assert project(*run, environ=environ).document["steps"] == 2
    assert project(*run, "--steps", "1").document["steps"] == 1
    assert (
        project("run", "hi", "--remit", "shop.py", "--json", environ=environ).document["steps"] == 3
    )


def test_paths_of_a_file_begin_where_the_file_is(project: Cli) -> None:
    text = '[run]\nmodel = "scripted:other.json"\n\n[remits.support]\ntarget = "shop.py:desk"\n'
    project.write("remit.toml", text + 'model = "scripted:other.json"\n')
    project.directory /= "inside"
    project.directory.mkdir()
    assert project("run", "hi").out == "Other.\n"
    project.write("script.json", "[]")
    ended = project("run", "hi", "--remit", "support")
    assert (ended.code, ended.out) == (2, "")  # the user's file itself names scripted:script.json
    assert "remit.toml: remits.support: " in ended.err


def test_a_profile_that_is_misspelt_is_told_with_what_comes_near(project: Cli) -> None:
    ended = project("run", "hi", "--remit", "suport")
    assert ended.err == (
        "remit: there is no profile suport (did you mean support?), and as a target: there is no "
        "module suport; a file is named with its .py\n"
    )


def test_instructions_in_a_file_are_the_text_itself(project: Cli) -> None:
    """U3: a cloned directory does not pick a file that is sent to a provider."""
    project.write("secret.txt", "a secret")
    project.write("remit.toml", '[run]\nmodel = "demo:support"\ninstructions = "@secret.txt"\n')
    ended = project("run", "hi")
    assert (ended.code, ended.out, "a secret" in ended.err) == (2, "", False)
    assert "remit.toml: run.instructions: '@secret.txt' is not the text itself" in ended.err


def test_a_profile_is_imported_only_when_it_is_named(project: Cli) -> None:
    """U3: a file of settings in a freshly cloned directory is data."""
    project.write("shop.py", "raise SystemExit('imported')\n")
    project.write(
        "remit.toml", '[run]\nmodel = "scripted:other.json"\n[remits.support]\ntarget = "shop.py"\n'
    )
    assert project("run", "hi").out == "Other.\n"
    assert project("config", "show").code == 0
    assert project("config", "check").code == 0
    assert "shop.py:1: SystemExit: imported" in project("run", "hi", "--remit", "support").err
