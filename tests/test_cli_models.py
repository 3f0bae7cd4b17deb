"""Models on the command line: names, addresses, prices, and what of them a file of a project may say."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from cli_rig import SHOP, Cli, program, served, write_script
from remit import Price
from remit.cli.settings import read_settings
from remit.errors import ConfigurationError
from remit.models.demo import _support
from remit.models.prices import price_of
from remit.testing.serve import TEST_KEY

MODEL = "anthropic:claude-sonnet-5-5"
KEY = {"ANTHROPIC_API_KEY": TEST_KEY, "ANTHROPIC_BASE_URL": ""}


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A directory with a file of tools."""
    cli.write("shop.py", SHOP)
    write_script(cli.directory, ["Hello."])
    return cli


# --- addresses -----------------------------------------------------------------------------------


def test_an_address_is_where_the_model_is_asked(shop: Cli) -> None:
    """By a flag, for a run, a chat and a remit whose model is named anew; and the bill is shown with its end."""
    with served(["One.", "Two.", "Three."]) as server:
        there = ("--model", MODEL, "--base-url", server.base_url)
        first = shop("run", "hi", *there, environ=KEY)
        second = shop("chat", *there, stdin=b"hi\n", environ=KEY)
        third = shop("run", "hi", "--remit", "shop.py:desk", *there, environ=KEY)
        assert server.refusals == []
    assert [ended.code for ended in (first, second, third)] == [0, 0, 0]
    assert (first.out, second.out, third.out) == ("One.\n", "Two.\n", "Three.\n")
    assert " · $0.00" in first.err.splitlines()[-1]


def test_a_limit_in_dollars_holds_by_the_listed_price_and_by_one_s_own(shop: Cli) -> None:
    """L2: a name brings its price along; a table of prices goes before the list; an unknown one is refused."""
    run = ("run", "hi", "--usd", "0.05", "--json", "--base-url")
    with served(["One."] * 2) as server:
        listed = shop(*run, server.base_url, "--model", MODEL, environ=KEY)
        shop.write("remit.toml", f'[prices]\n"{MODEL}" = {{ input = 2000, output = 2000 }}\n')
        dear = shop(*run, server.base_url, "--model", MODEL, environ=KEY)
    assert 0 < Decimal(listed.document["spend"]["tree"]["usd"]) < Decimal("0.01")
    assert (listed.code, dear.document["reason"]) == (0, "cost_budget")
    unknown = shop("run", "hi", "--usd", "1", "--model", "vllm:mine")
    assert (unknown.code, unknown.out) == (2, "")
    assert "price" in unknown.err


def test_the_environment_and_the_user_s_own_file_say_an_address(cli: Cli) -> None:
    with served(["One.", "Two."]) as server:
        environ = {**KEY, "REMIT_RUN_MODEL": MODEL, "REMIT_RUN_BASE_URL": server.base_url}
        assert cli("run", "hi", environ=environ).out == "One.\n"
        own = f'[run]\nmodel = "{MODEL}"\nbase_url = "{server.base_url}"\n'
        cli.write("home/.config/remit/config.toml", own)
        assert cli("run", "hi", environ=KEY).out == "Two.\n"


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/v1",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example/v1",
        "http://localhost:80@evil.example/",
        "http://localhost\\@evil.example",
        "http://10.0.0.1:8000",
        "http://evil/v1",
        "HTTP://127.0.0.1#@evil.example",
    ],
)
@pytest.mark.parametrize("table", ["run", "remits.desk"])
def test_a_file_of_a_project_does_not_say_where_a_key_is_sent(
    shop: Cli, address: str, table: str
) -> None:
    """U3: a cloned directory names this machine or none; nothing is sent and the key stays."""
    target = 'target = "shop.py:desk"\n' if table != "run" else ""
    quoted = json.dumps(address)
    shop.write("remit.toml", f'[{table}]\n{target}model = "{MODEL}"\nbase_url = {quoted}\n')
    ended = shop("run", "hi", environ=KEY)
    assert (ended.code, ended.out) == (2, "")
    assert "base_url" in ended.err
    assert TEST_KEY not in ended.err
    assert shop("config", "check").code == 1


@pytest.mark.parametrize(
    "address", ["http://localhost:8000/v1", "http://127.0.0.1", "http://[::1]:1/"]
)
def test_a_file_of_a_project_may_name_this_machine(cli: Cli, address: str) -> None:
    cli.write("remit.toml", f'[run]\nmodel = "vllm:mine"\nbase_url = "{address}"\n')
    assert cli("config", "check").code == 0


def test_an_address_in_a_file_is_that_of_the_model_beside_it(cli: Cli) -> None:
    """U5: another model that is named nearer is not asked there."""
    cli.write("remit.toml", '[run]\nmodel = "vllm:mine"\nbase_url = "http://127.0.0.1:1/v1"\n')
    ended = cli("doctor", "--offline", "--model", MODEL, environ=KEY)
    assert "(https://api.anthropic.com)" in ended.out
    assert cli("run", "hi", "--model", "demo:support").code == 0
    ended = cli("doctor", "--offline")
    assert "(http://127.0.0.1:1/v1)" in ended.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--model", "vllm:x", "--base-url", "localhost:8000"],
            "--base-url: 'localhost:8000' is not an address",
        ),
        (["--model", "vllm:x", "--base-url", "http://me:pw@host"], "is not an address such as"),
        (
            ["--model", "demo:support", "--base-url", "http://h"],
            "made here and reached over no network",
        ),
        (
            ["--remit", "shop.py", "--base-url", "http://h"],
            "name the one to ask there too, with --model",
        ),
        (["--model", "antropic:claude"], "did you mean anthropic:"),
        (["--model", MODEL], "set ANTHROPIC_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_asked_is_one_clear_line(
    shop: Cli, arguments: list[str], told: str
) -> None:
    environ = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": ""}
    ended = shop("run", "hi", *arguments, environ=environ)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err


# --- prices --------------------------------------------------------------------------------------

PRICES = """
[prices."vllm:mine"]
input = 0.2
output = 0.8
cache_read = 0
above.200_000 = { input = 0.4, output = 1.6 }
"""


def test_a_table_of_prices_is_read_without_rounding_and_can_be_shown(
    cli: Cli, tmp_path: Path
) -> None:
    """L2: with tiers; what `config show` prints can be put into a file."""
    long = Price(input=Decimal("0.4"), output=Decimal("1.6"))
    price = Price(
        input=Decimal("0.2"), output=Decimal("0.8"), cache_read=Decimal(0), above=((200_000, long),)
    )
    cli.write("remit.toml", PRICES)
    settings = read_settings(cli.directory, {"HOME": str(tmp_path)})
    assert settings.prices["vllm:mine"].value == price
    shown = cli("config", "show").out
    cli.write("remit.toml", shown)
    settings = read_settings(cli.directory, {"HOME": str(tmp_path)})
    assert settings.prices["vllm:mine"].value == price


def test_a_file_of_a_project_makes_no_listed_model_cheaper(cli: Cli) -> None:
    """U3, L2: else a cloned directory would weaken the limit in dollars that is typed; the user's own file may."""
    cheap = f'[prices]\n"{MODEL}" = {{ input = 2, output = 10, cache_read = 0 }}\n'
    cli.write("remit.toml", cheap)
    look = ("doctor", "--offline", "--model", MODEL)
    ended = cli(*look, environ=KEY)
    assert ended.code == 1
    assert f"remit.toml: the price of {MODEL} is below the listed one" in ended.out
    ran = cli("run", "hi", "--usd", "1", "--model", MODEL, environ=KEY)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    (cli.directory / "remit.toml").unlink()
    cli.write("home/.config/remit/config.toml", cheap)
    assert cli(*look, environ=KEY).code == 0
    cli.write("remit.toml", '[prices]\n"vllm:mine" = { input = 0, output = 0 }\n')
    assert cli("doctor", "--offline", "--model", "vllm:mine").code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"x:y" = 3', 'prices."x:y"] is a table, not 3'),
        ('"x:y" = { input = 1 }', "has no input or no output"),
        ('"x:y" = { input = -1, output = 1 }', "-1 is no price"),
        ('"x:y" = { input = "free", output = 1 }', "'free' is no price"),
        ('"x:y" = { input = 1, outptu = 1 }', "(did you mean output?)"),
        ('"x:y" = { input = 1, output = inf }', "is no price"),
        (
            '"x:y" = { input = 1, output = 1, above = { x = { input = 1, output = 1 } } }',
            "'x' is no number of tokens",
        ),
        (
            '"x:y" = { input = 1, output = 1, above.9 = { input = 1, output = 1, above.10 = {input = 1, output = 1} } }',
            "a price without tiers",
        ),
    ],
)
def test_a_price_that_is_none_is_one_line_with_the_file_and_the_key(
    cli: Cli, text: str, told: str
) -> None:
    cli.write("remit.toml", f"[prices]\n{text}\n")
    ended = cli("config", "show")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith("remit: remit.toml: ")
    assert told in ended.err


def test_the_nearest_price_of_a_name_counts(tmp_path: Path) -> None:
    own = tmp_path / "home" / ".config" / "remit"
    own.mkdir(parents=True)
    one = '[prices]\n"a:b" = { input = 1, output = 1 }\n"c:d" = { input = 3, output = 3 }\n'
    (own / "config.toml").write_text(one, "utf-8")
    (tmp_path / "remit.toml").write_text('[prices]\n"a:b" = { input = 2, output = 2 }\n', "utf-8")
    prices = read_settings(tmp_path, {"HOME": str(tmp_path / "home")}).prices
    assert {name: each.value.input for name, each in prices.items()} == {"a:b": 2, "c:d": 3}
    (tmp_path / "remit.toml").write_text('[price]\n"a:b" = {}\n', "utf-8")
    with pytest.raises(ConfigurationError, match=r"did you mean prices\?"):
        read_settings(tmp_path, {"HOME": str(tmp_path / "home")})


# --- tools and the demonstration -----------------------------------------------------------------

ODD = """
from remit import Tool


async def read(given: dict) -> str:
    return ""


odd = Tool.from_schema(
    name="read_0123456789abcd",
    description="Reads.",
    parameters={"type": "object", "properties": {"straße": {"type": "string"}}},
    handler=read,
    effect="read",
)
"""


def test_tools_are_shown_as_they_go_out_to_a_provider(shop: Cli) -> None:
    """Without a key, because nothing is sent: names that a wire does not take are those that it does."""
    shop.write("odd.py", ODD)
    flags = ("tools", "odd.py", "--model", "vllm:mine", "--base-url", "http://127.0.0.1:1/v1")
    document = shop(*flags, "--json").document
    [odd] = [tool for tool in document["tools"] if tool["name"] == "read_0123456789abcd"]
    assert odd["shown_as"] != odd["name"]
    assert all(name.isascii() for name in odd["parameters"]["properties"])
    assert odd["set_aside"] is None
    assert f"{odd['name']} as {odd['shown_as']}" in shop(*flags).out
    same = shop("tools", "odd.py", "--json").document["tools"]
    assert all(tool["shown_as"] == tool["name"] for tool in same)


DEEP = """
from remit import Tool

schema = {"type": "string"}
for _ in range(50):
    schema = {"type": "object", "properties": {"in": schema}}


async def read(given: dict) -> str:
    return ""


deep = Tool.from_schema(name="deep", description="Deep.", parameters=schema, handler=read, effect="read")
"""


def test_a_tool_that_does_not_go_out_is_shown_with_the_reason(shop: Cli) -> None:
    """Case 20: what a wire cannot take is set aside by name, and costs no tokens; the others go out."""
    shop.write("deep.py", DEEP)
    flags = ("tools", "deep.py", "--tools", "shop.py:look", "--model", "vllm:mine")
    document = shop(*flags, "--json").document
    deep, look, _ = document["tools"]
    assert "nests deeper" in deep["set_aside"]
    assert look["set_aside"] is None
    assert document["tokens"] < deep["tokens"]
    lines = shop(*flags).out.splitlines()
    assert lines[0].split() == ["not", "offered", "read", "deep"]
    assert lines[1].strip() == deep["set_aside"]


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        ("anthropic", MODEL),
        ("openai", "openai:gpt-6.1-sol"),
        ("openai-chat", "groq:openai/gpt-oss-120b"),
    ],
)
def test_a_real_model_can_look_after_the_desk(wire: str, name: str, tmp_path: Path) -> None:
    """`remit demo --model`: the same desk, over a socket, at the price of its name, without a fault of protocol."""
    keys = {f"{each}_API_KEY": TEST_KEY for each in ("ANTHROPIC", "OPENAI", "GROQ")}
    with served(_support, wire) as server:
        flags = ("--model", name, "--base-url", server.base_url)
        ended = program("demo", *flags, cwd=tmp_path, environ={**keys, "ANTHROPIC_BASE_URL": ""})
        assert server.refusals == []
        assert len(server.requests) == 8
    assert ended.code == 0
    assert ended.out.endswith("I have refunded the shipping, 4.90 EUR.\n")
    assert f"{name} decides what is done, for 0.25 USD at most" in ended.err
    provider, _, model = name.partition(":")
    price = price_of(provider, model)
    assert price is not None
    rates = f"{price.input.normalize():f} and {price.output.normalize():f}"
    assert f" of 0.25 USD, at {rates} USD for a million tokens in and out" in ended.err


def test_the_demo_with_a_model_of_unknown_price_has_no_limit_in_dollars(cli: Cli) -> None:
    with served(["It comes on Thursday."], "openai-chat") as server:
        flags = ("--model", "vllm:mine", "--base-url", server.base_url)
        ended = cli("demo", *flags, environ={"VLLM_API_KEY": TEST_KEY})
    assert (ended.code, ended.out) == (0, "It comes on Thursday.\n")
    assert "at a price that is not known here" in ended.err
    assert cli("demo", "--base-url", "http://127.0.0.1:1").code == 2
