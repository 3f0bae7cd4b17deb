"""Targets: from what a user names to tools, remits and functions, and how the user's own faults are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli_rig import SHOP, Cli, program, write_script


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A directory with a file of tools and a script in it."""
    cli.write("shop.py", SHOP)
    write_script(cli.directory, ["Hello."])
    return cli


def shown(cli: Cli, *arguments: str) -> list[str]:
    """The names of the tools that a target gives, without those that remit adds."""
    ended = cli("tools", *arguments, "--json")
    assert ended.code == 0, ended.err
    return [tool["name"] for tool in ended.document["tools"] if tool["name"] != "read_artifact"]


# --- what is found -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["shop.py", "./shop.py", "shop", "shop.py:desk", "shop:desk"])
def test_a_file_and_a_module_give_the_same_tools(shop: Cli, target: str) -> None:
    assert shown(shop, target) == ["look", "pay"]


def test_tools_come_in_the_order_of_their_definition(cli: Cli) -> None:
    names = ["zebra", "ant", "mule"]
    tools = "\n".join(
        f'@remit.tool(effect="read")\ndef {name}() -> str:\n    "A {name}."\n    return ""'
        for name in names
    )
    cli.write("zoo.py", f"import remit\n{tools}\nagain = zebra\n")
    assert shown(cli, "zoo.py") == names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("look", ["look"]),
        ("BOTH", ["pay", "look"]),
        ("NESTED", ["look", "pay"]),
        ("house.rooms", ["look"]),
    ],
)
def test_a_name_is_a_tool_a_list_or_what_holds_one(
    shop: Cli, name: str, expected: list[str]
) -> None:
    more = "class house:\n    rooms = (look,)\n\n"
    shop.write("shop.py", SHOP + more + "BOTH = [pay, look]\nNESTED = [look, [pay]]\n")
    assert shown(shop, f"shop.py:{name}") == expected


def test_several_targets_are_put_together_and_one_tool_counts_once(shop: Cli) -> None:
    more = 'import remit\n\n@remit.tool(effect="read")\ndef more() -> str:\n    "More."\n    return ""\n'
    shop.write("more.py", more)
    assert shown(shop, "--tools", "shop.py:pay", "--tools", "more.py", "--tools", "shop:pay") == [
        "pay",
        "more",
    ]


def test_two_tools_of_one_name_are_refused(shop: Cli) -> None:
    shop.write("other.py", SHOP)
    ended = shop("tools", "--tools", "shop.py", "--tools", "other.py")
    assert (ended.code, ended.out) == (2, "")
    assert "two tools are named 'look'" in ended.err


def test_a_file_finds_its_neighbours_and_may_be_named_as_a_module_of_python(cli: Cli) -> None:
    cli.write("lib/helpers.py", "WHAT = 'helped'\n")
    tool = '@remit.tool(effect="read")\ndef ask() -> str:\n    "Ask."\n    return helpers.WHAT\n'
    cli.write("lib/queue.py", f"import helpers\nimport remit\n{tool}")
    import queue

    assert shown(cli, "lib/queue.py") == ["ask"]
    assert sys.modules["queue"] is queue


def test_a_file_of_a_package_is_imported_as_part_of_it(cli: Cli) -> None:
    cli.write("market/__init__.py", "")
    cli.write("market/prices.py", "PRICE = 3\n")
    tool = '@remit.tool(effect="read")\ndef price() -> int:\n    "A price."\n    return PRICE\n'
    cli.write("market/desk.py", f"import remit\nfrom .prices import PRICE\n{tool}")
    assert shown(cli, "market/desk.py") == ["price"]
    assert shown(cli, "market.desk") == ["price"]


def test_a_module_lists_what_it_offers(shop: Cli) -> None:
    shop.write("shop.py", SHOP + '__all__ = ["pay"]\n')
    assert shown(shop, "shop.py") == ["pay"]


# --- what is told --------------------------------------------------------------------------------

TOOL = (
    'import remit\n\n@remit.tool(effect="read")\ndef look() -> str:\n    "Look."\n    return ""\n'
)

FAULTS = {
    "a name that is not there": (
        "import remit\n\n\ndef helper() -> object:\n    return missing\n\n\nhelper()\n",
        "bad.py:5: NameError: name 'missing' is not defined\n    return missing",
    ),
    "a syntax error": ("import remit\n\ndef broken(:\n    pass\n", "bad.py:3: SyntaxError: "),
    "an indentation error": ("def f():\nreturn 1\n", "bad.py:2: IndentationError: "),
    "a module that is not installed": (
        "\nimport nonesuch_at_all\n",
        "bad.py:2: ModuleNotFoundError: No module named 'nonesuch_at_all'",
    ),
    "an exception of its own": (
        "class Odd(Exception):\n    pass\n\n\nraise Odd('no database')\n",
        "bad.py:5: Odd: no database\n    raise Odd('no database')",
    ),
    "an exit": ("import sys\n\nsys.exit(3)\n", "bad.py:3: SystemExit: 3 (it ends the program"),
    "an exit deep down": ("raise SystemExit\n", "bad.py:1: SystemExit"),
    "an exception without words": ("assert 1 == 2\n", "bad.py:1: AssertionError"),
    "an exception that cannot be told": (
        "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise Odd\n",
        "bad.py:5: ",
    ),
    "a tool without an effect": (
        'import remit\n\n\n@remit.tool()\ndef look() -> str:\n    "Look."\n    return ""\n',
        "bad.py:4: tool 'look' needs an effect",
    ),
    "a remit without a model": (
        "from remit import Limits, Remit\n\nx = Remit(name='x', limits=Limits(steps=1, tokens=1, seconds=1))\n",
        "bad.py:3: Remit(...): missing",
    ),
    "a list of names that is none": (
        "__all__ = 5\n",
        "bad: TypeError: 'int' object is not iterable",
    ),
    "no tool": ("import remit\n\nx = 3\n", "bad.py holds no tool"),
    "an empty file": ("", "bad.py holds no tool"),
    "plain functions only": (
        "def look(): ...\ndef cancel(): ...\n",
        "bad.py holds no tool, only plain functions (look, cancel): decorate them with @remit.tool",
    ),
    "a remit where tools are meant": (
        TOOL.replace("look() ->", "_look() ->")
        + "from remit import Limits, Remit\nx = Remit(name='x', model='demo:support', "
        "limits=Limits(steps=1, tokens=1, seconds=1))\n",
        "bad.py holds no tool; it holds a remit: name it with --remit bad.py",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_user_s_file_is_told_by_the_user_s_own_line(cli: Cli, fault: str) -> None:
    """U2: and without a stack of ours."""
    text, told = FAULTS[fault]
    cli.write("bad.py", text)
    ended = cli("run", "hi", "--model", "demo:support", "--tools", "bad.py")
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert ended.err.startswith("remit: ")
    assert "Traceback" not in ended.err
    assert "site-packages" not in ended.err
    assert "cli/targets.py" not in ended.err


def test_a_fault_in_a_neighbour_is_told_where_it_is(cli: Cli) -> None:
    cli.write("db.py", "def connect():\n    return 1 / 0\n\n\nconnect()\n")
    cli.write("bad.py", "import json\n\nimport db\n")
    ended = cli("tools", "bad.py")
    assert ended.err == "remit: db.py:2: ZeroDivisionError: division by zero\n    return 1 / 0\n"


def test_a_fault_inside_a_library_is_told_where_the_user_called_it(cli: Cli) -> None:
    """U2: not where the library raised."""
    cli.write("bad.py", "import json\n\nCONFIG = json.loads('{')\n")
    ended = cli("tools", "bad.py")
    assert ended.err.startswith("remit: bad.py:3: JSONDecodeError: ")
    assert ended.err.endswith("\n    CONFIG = json.loads('{')\n")


def test_a_file_that_failed_can_be_named_again(cli: Cli) -> None:
    cli.write("shop.py", "raise ValueError\n")
    assert cli("tools", "shop.py").code == 2
    cli.write("shop.py", SHOP)
    write_script(cli.directory, ["Hello."])
    assert shown(cli, "shop.py:look") == ["look"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("shpo.py", "there is no file shpo.py (did you mean shop.py?)"),
        ("nowhere/shop.py", "there is no file nowhere/shop.py"),
        ("shpo", "there is no module shpo (did you mean shop?)"),
        ("shop.nested", "there is no module shop.nested"),
        ("quite.unknown", "there is no module quite.unknown; a file is named with its .py"),
        ("shop.py:lok", "shop.py holds no lok (did you mean look?)"),
        ("shop.py:desk.nothing", "shop.py holds no desk.nothing"),
        ("shop.py:zzz", "shop.py holds no zzz; its tools are look, pay"),
        ("shop.py:remit", "shop.py:remit is neither a tool nor a list of tools"),
        ("shop.py:plain", "shop.py:plain is a plain function: decorate it with @remit.tool"),
        ("shop.py:desk", "shop.py:desk is a remit: name it with --remit"),
        ("shop.py:", "'shop.py:' is no target: write FILE.py, FILE.py:NAME, MODULE or MODULE:NAME"),
        (":look", "':look' is no target"),
        ("", "'' is no target"),
        (".", "is neither a file with its .py nor a module"),
        ("shop-room", "'shop-room' is neither a file with its .py nor a module"),
        ("./notes.txt", "./notes.txt is no Python file"),
        ("./", "there is no file ./"),
        ("~nobody-at-all/shop.py", "~nobody-at-all/shop.py: Could not determine home directory."),
    ],
)
def test_a_target_that_leads_nowhere_is_one_clear_line(shop: Cli, target: str, told: str) -> None:
    shop.write("shop.py", SHOP + "def plain(): ...\n")
    shop.write("notes.txt", "no Python")
    ended = shop("run", "hi", "--model", "demo:support", "--tools", target)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err


@pytest.mark.parametrize(
    ("text", "target", "told"),
    [
        (SHOP, "shop.py:dsk", "shop.py holds no dsk (did you mean desk?)"),
        (SHOP, "shop.py:look", "shop.py:look is no remit but a Tool"),
        (
            SHOP + "second = desk.replace(name='second')\n",
            "shop.py",
            "shop.py holds 2 remits: name one, as in shop.py:desk or shop.py:second",
        ),
        (TOOL, "shop.py", "shop.py holds no remit: shop.py:NAME = Remit(...)"),
    ],
)
def test_a_remit_that_cannot_be_told_is_one_clear_line(
    shop: Cli, text: str, target: str, told: str
) -> None:
    shop.write("shop.py", text)
    ended = shop("run", "hi", "--remit", target)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err


def test_one_remit_under_two_names_is_one(shop: Cli) -> None:
    shop.write("shop.py", SHOP + "alias = desk\n")
    assert shop("run", "hi", "--remit", "shop.py").out == "Hello.\n"


def test_a_lazy_module_is_asked_and_its_faults_are_the_user_s(shop: Cli) -> None:
    lazy = "import shop\n\n__all__ = ['look', 3]\n\ndef __getattr__(name):\n"
    shop.write("lazy.py", f"{lazy}    return getattr(shop, name)\n")
    assert shown(shop, "lazy.py") == ["look"]
    shop.write("lazy.py", f"{lazy}    raise RuntimeError(name)\n")
    for target in ("lazy.py", "lazy.py:look"):
        ended = shop("tools", target)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == "remit: lazy.py:6: RuntimeError: look\n    raise RuntimeError(name)\n"


def test_what_stands_in_for_something_else_is_not_asked_what_it_is(cli: Cli) -> None:
    """U2: such a value of the user's file runs code when it is asked for its class."""
    cli.write(
        "shop.py",
        "class Later:\n    @property\n    def __class__(self):\n        raise RuntimeError\n\n\n"
        f"later = Later()\n{SHOP}",
    )
    write_script(cli.directory, ["Hello."])
    (cli.directory / "a.b.py").write_bytes((cli.directory / "shop.py").read_bytes())
    for target in ("shop.py", "shop.py:look", "shop.py:desk", "a.b.py"):
        assert cli("tools", target).code == 0
    assert cli("tools", "shop.py:later").err == (
        "remit: shop.py:later is neither a tool nor a list of tools\n"
    )


# --- prints --------------------------------------------------------------------------------------


def test_what_a_file_prints_and_starts_does_not_reach_the_answer(tmp_path: Path) -> None:
    """U1: a child process of the user's file inherits our stderr as its stdout."""
    chatter = (
        "import os, subprocess, sys\nprint('a print')\nos.write(1, b'a write\\n')\n"
        "subprocess.run([sys.executable, '-c', 'print(\"a child\")'], check=True)\n"
    )
    (tmp_path / "shop.py").write_text(chatter + SHOP, "utf-8")
    write_script(tmp_path, [{"calls": [{"tool": "look", "arguments": {"what": "x"}}]}, "Done."])
    ended = program("run", "hi", "--remit", "shop.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "Done.\n")
    for said in ("a print", "a write", "a child", "a tool prints"):
        assert said in ended.err.splitlines()


def test_what_a_file_leaves_behind_does_not_reach_the_answer(tmp_path: Path) -> None:
    """U1: neither what it does at the exit, nor that it puts other streams in the place of ours."""
    leftover = (
        "import atexit, sys\natexit.register(lambda: print('at the exit'))\n"
        "sys.stdout = sys.stderr = None\n"
    )
    (tmp_path / "shop.py").write_text(leftover + SHOP, "utf-8")
    write_script(tmp_path, ["Done."])
    ended = program("run", "hi", "--remit", "shop.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "Done.\n")
    assert ended.err.endswith("at the exit\n")
