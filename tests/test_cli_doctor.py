"""`remit doctor`: one line for each check, what to do about it, and never a key."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import trustme

from cli_rig import Cli, Ended, served
from endpoint_rig import PlainCodec, Response, ScriptedTransport
from remit.cli.checkup import Finding, answers
from remit.models.endpoint import Endpoint
from remit.testing import run_virtual
from remit.testing.serve import TEST_KEY, Refused

KEY = "sk-ant-secret-0123456789-wxyz"
MODEL = "anthropic:claude-sonnet-5-5"


def checks(ended: Ended) -> dict[tuple[str, str], str]:
    """The levels of a document, by what they are about and what was looked at."""
    return {(each["about"], each["check"]): each["level"] for each in ended.document["checks"]}


def doctor(cli: Cli, *arguments: str, key: str | None = KEY, **environ: str) -> Ended:
    """Look, with one key in the environment or none."""
    names = ("ANTHROPIC", "OPENAI", "VLLM", "GROQ", "DEEPSEEK", "MISTRAL", "OPENROUTER")
    empty = {f"{name}_API_KEY": "" for name in names} | {f"{name}_BASE_URL": "" for name in names}
    given = {} if key is None else {"ANTHROPIC_API_KEY": key, "VLLM_API_KEY": key}
    return cli("doctor", *arguments, environ={**empty, **given, **environ})


@contextmanager
def listing(models: bytes) -> Generator[str]:
    """A server that knows `/v1/models` and nothing else; its address without `/v1`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/v1/models"
            self.answer(200 if known else 404, models if known else b"{}")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.answer(404, b'{"detail": "Not Found"}')

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


# --- what is there -------------------------------------------------------------------------------


def test_where_nothing_is_set_it_says_what_to_do_and_fails_nothing(cli: Cli) -> None:
    """U6: a command for each thing that is missing."""
    ended = doctor(cli, key=None)
    assert (ended.code, ended.err) == (0, "")
    assert "export ANTHROPIC_API_KEY=..." in ended.out
    assert "remit doctor --model PREFIX:NAME" in ended.out
    assert ended.out.startswith(f"ok    python: {sys.version.split()[0]}, remit ")


def test_of_a_key_its_variable_is_told_and_at_most_four_characters(cli: Cli) -> None:
    """U6: a short one is not shown at all."""
    long, short = doctor(cli), doctor(cli, key="sk-short-12")
    assert "ANTHROPIC_API_KEY, which ends in …wxyz" in long.out
    assert "secret" not in long.out
    assert "ANTHROPIC_API_KEY is set" in short.out
    assert "12" not in short.out.split("ANTHROPIC_API_KEY")[1].splitlines()[0]


def test_settings_that_cannot_be_read_are_a_failure_and_the_rest_is_looked_at(cli: Cli) -> None:
    cli.write("remit.toml", "[run]\nstpes = 3\n")
    ended = doctor(cli, "--model", "demo:support")
    assert ended.code == 1
    assert "fail  config: remit.toml: unknown key run.stpes (did you mean steps?)" in ended.out
    assert "      remit config check\n" in ended.out
    assert "demo:support reach: it is made here: no key, no network" in ended.out


def test_the_model_of_the_settings_is_looked_at_where_none_is_named(cli: Cli) -> None:
    cli.write(
        "remit.toml", f'[run]\nmodel = "{MODEL}"\n[prices]\n"{MODEL}" = {{input=100, output=200}}\n'
    )
    ended = doctor(cli, "--offline")
    assert ended.code == 0
    assert "ok    config: remit.toml" in ended.out
    assert f"ok    {MODEL} price: 100 and 200 USD for a million tokens in and out" in ended.out


# --- a model that is reached ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "name"),
    [("anthropic", MODEL), ("openai-chat", "vllm:qwen3"), ("openai", "openai:gpt-5.6-sol")],
)
def test_a_model_that_answers_is_well(cli: Cli, wire: str, name: str) -> None:
    """U6: its list is asked for, and then one small request with a tool, which the provider finds nothing to fault."""
    with served(["1, 2, 3, 4, 5 and so on, in pieces."], wire) as server:
        ended = doctor(
            cli,
            "--model",
            name,
            "--base-url",
            server.base_url,
            key=TEST_KEY,
            OPENAI_API_KEY=TEST_KEY,
        )
        assert server.refusals == []
        listed, asked = server.requests
    assert (ended.code, ended.err) == (0, "")
    assert f"ok    {name} reach: {server.base_url} answers" in ended.out
    assert f"ok    {name} answer: it answered in " in ended.out
    assert "it streams, and takes tools" in ended.out
    assert (listed.method, asked.method) == ("GET", "POST")
    assert TEST_KEY not in ended.out


def test_json_is_one_document(cli: Cli) -> None:
    with served(["ok"]) as server:
        flags = ("--model", MODEL, "--base-url", server.base_url, "--json")
        ended = doctor(cli, *flags, key=TEST_KEY)
    assert (ended.document["v"], ended.document["ok"]) == (1, True)
    assert ended.out.count("\n") == 1
    wanted = ("key", "reach", "answer", "profile", "price")
    assert [checks(ended)[MODEL, check] for check in wanted] == ["ok"] * 5
    assert set(ended.document["checks"][0]) == {"level", "about", "check", "text", "fix"}


def test_offline_sends_nothing(cli: Cli) -> None:
    """U6: not even the question what models there are."""
    with served(["never"]) as server:
        ended = doctor(
            cli, "--model", MODEL, "--base-url", server.base_url, "--offline", key=TEST_KEY
        )
        assert server.requests == []
    assert ended.code == 0
    assert "not looked for: offline" in ended.out


def test_several_models_are_looked_at_and_one_failure_counts(cli: Cli) -> None:
    ended = doctor(cli, "--model", "demo:support", "--model", "demo:suport", "--json")
    assert ended.code == 1
    assert checks(ended)["demo:support", "reach"] == "ok"
    assert checks(ended)["demo:suport", "name"] == "fail"
    assert ended.document["ok"] is False


# --- what is wrong -------------------------------------------------------------------------------


def test_a_key_that_is_missing_fails_with_the_variable_to_set(cli: Cli) -> None:
    """U6: and what is known of the model is told all the same."""
    ended = doctor(cli, "--model", MODEL, key=None)
    assert ended.code == 1
    assert f"fail  {MODEL} key: " in ended.out
    assert "      export ANTHROPIC_API_KEY=...\n" in ended.out
    assert f"ok    {MODEL} profile: reads 1,000,000 tokens" in ended.out


def test_a_key_that_is_refused_fails_and_is_not_shown(cli: Cli) -> None:
    """U6: in the words of the provider."""
    with served(["never"]) as server:
        ended = doctor(cli, "--model", MODEL, "--base-url", server.base_url, key=KEY)
    assert ended.code == 1
    assert "fail" in ended.out
    assert "401" in ended.out
    assert KEY not in ended.out + ended.err


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://127.0.0.1:1", "nothing listens at 127.0.0.1:1"),
        ("https://no-such-host.invalid", "no-such-host.invalid"),
        ("http://", "is not an address such as"),
    ],
)
def test_a_place_where_nothing_is_fails_with_what_to_do(cli: Cli, address: str, told: str) -> None:
    """U6: a wrong base URL, no network, no address: told before anything is billed."""
    ended = doctor(cli, "--model", MODEL, "--base-url", address)
    assert ended.code in {1, 2}
    assert told in ended.out + ended.err


def test_a_key_that_is_refused_is_told_with_the_variable_to_set(cli: Cli) -> None:
    """U6: the next step is about the key, not about the address."""
    with served(["never"]) as server:
        ended = doctor(cli, "--model", MODEL, "--base-url", server.base_url, key="sk-wrong")
    assert ended.code == 1
    assert "      export ANTHROPIC_API_KEY=...\n" in ended.out
    assert "--base-url URL" not in ended.out


def test_a_certificate_that_does_not_hold_fails_before_the_key_is_sent(cli: Cli) -> None:
    """U6: told with what is wrong with it; the server hears nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with served(["never"], tls=context) as server:
        ended = doctor(cli, "--model", MODEL, "--base-url", server.base_url, key=TEST_KEY)
        assert server.requests == []
    assert ended.code == 1
    assert f"fail  {MODEL} reach: https://127.0.0.1:" in ended.out
    assert "an authority signed its certificate that is not trusted here" in ended.out


def test_a_server_of_another_kind_fails_with_what_it_said(cli: Cli) -> None:
    with served(["ok"], "openai-chat") as server:
        ended = doctor(cli, "--model", MODEL, "--base-url", server.base_url, key=TEST_KEY)
    assert ended.code == 1
    assert f"fail  {MODEL} answer: " in ended.out


def test_a_model_that_is_not_there_fails(cli: Cli) -> None:
    with served(["never"], models=["claude-opus-5-5"]) as server:
        ended = doctor(cli, "--model", MODEL, "--base-url", server.base_url, key=TEST_KEY)
    assert ended.code == 1
    assert f"fail  {MODEL} answer: " in ended.out
    assert "claude-sonnet-5-5" in ended.out


def test_a_server_that_takes_no_tools_is_told_apart(cli: Cli) -> None:
    """U6: refused with tools, answered without: the tools are at fault, and what it said is told."""
    script = [
        Refused("bad_request", "tools need a parser: start with --enable-auto-tool-choice"),
        "ok",
    ]
    with served(script, "openai-chat") as server:
        flags = ("--model", "vllm:qwen3", "--base-url", server.base_url)
        ended = doctor(cli, *flags, "--json", key=TEST_KEY)
    assert ended.code == 1
    assert checks(ended)["vllm:qwen3", "tools"] == "fail"
    assert "--enable-auto-tool-choice" in ended.out


def test_a_price_that_nobody_knows_is_a_warning_with_what_to_write(cli: Cli) -> None:
    ended = doctor(cli, "--model", "vllm:qwen3", "--offline")
    assert ended.code == 0
    assert "warn  vllm:qwen3 price: unknown" in ended.out
    assert '"vllm:qwen3" = { input = 0.5, output = 2 }' in ended.out


@pytest.mark.parametrize(
    ("listed", "fix"),
    [
        (("m-10", "other"), "remit doctor --model plain:m-10"),
        (("m-1;ls",), "remit doctor --model 'plain:m-1;ls'"),
        ((), None),
    ],
)
def test_a_name_that_is_misspelt_is_told_with_one_that_is_there(
    listed: tuple[str, ...], fix: str | None
) -> None:
    """By the list that the endpoint gave, as a command that is safe to copy whatever the list says."""
    refused = Response(b"no such model", status=404)
    model = Endpoint(
        "plain:m-1",
        PlainCodec(),
        ScriptedTransport(refused, refused),
        base_url="http://h",
        model="m-1",
    )

    async def main() -> list[Finding]:
        return [each async for each in answers("plain:m-1", model, listed)]

    [finding] = run_virtual(main())
    assert (finding.level, finding.fix) == ("fail", fix)


def test_an_address_without_its_v1_is_told_with_it(cli: Cli) -> None:
    """U2: the forgotten end of an address is tried, and told as a command where models are listed there."""
    with listing(b'{"data": [{"id": "qwen3"}]}') as address:
        ended = doctor(cli, "--model", "vllm:qwen3", "--base-url", address)
    assert ended.code == 1
    assert f"      remit doctor --model vllm:qwen3 --base-url {address}/v1\n" in ended.out


def test_a_name_that_is_misspelt_is_told_with_one_that_is_listed(cli: Cli) -> None:
    """U2: also offline, by the list of prices."""
    ended = doctor(cli, "--offline", "--model", "anthropic:claude-sonet-5-5")
    assert "did you mean anthropic:claude-sonnet-5-5?" in ended.out
    assert "      remit doctor --model anthropic:claude-sonnet-5-5\n" in ended.out
    known = doctor(cli, "--offline", "--model", MODEL)
    other = doctor(cli, "--offline", "--model", "anthropic:something-else")
    assert "did you mean" not in known.out + other.out
