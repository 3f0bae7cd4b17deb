"""Models by name, and scripts of replies from files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import remit
from remit import (
    AskModel,
    Chunk,
    ConfigurationError,
    Limits,
    MemoryStore,
    Model,
    ModelRequest,
    Reason,
    Remit,
)
from remit.models.names import KNOWN
from remit.models.opening import check_ready
from remit.models.providers import PROVIDERS
from remit.testing import ScriptedModel, judged

LIMITS = Limits(steps=5, tokens=50_000, seconds=30)


@remit.tool(effect="read")
def look(what: str, sure: bool = False) -> str:
    """Look."""
    return f"{what} {sure}"


@remit.tool(effect="confirm", expires=3600)
def send(to: str) -> str:
    """Send it."""
    return f"sent to {to}"


def scripted(directory: Path, turns: Any) -> str:
    path = directory / "turns.json"
    path.write_text(turns if isinstance(turns, str) else json.dumps(turns), "utf-8")
    return f"scripted:{path}"


def desk(model: str) -> Remit:
    return Remit(name="desk", model=model, tools=[look], limits=LIMITS)


def test_a_remit_takes_the_name_of_a_model_and_holds_the_model(tmp_path: Path) -> None:
    name = scripted(tmp_path, ["Hello."])
    named = desk(name)
    assert remit.model(name).name == name
    assert not isinstance(named.model, str)
    assert named.run_sync("hi").text == "Hello."
    assert desk("demo:support").run_sync("hi", model=name).text == "Hello."
    assert desk("demo:support").replace(model=name).run_sync("hi").text == "Hello."


def test_a_script_says_texts_and_calls_with_what_they_cost(tmp_path: Path) -> None:
    turns = [
        {"text": "I look.", "calls": [{"tool": "look", "arguments": {"what": "x", "sure": True}}]},
        {"text": "Seen.", "usage": {"input": 7, "output": 3, "cache_read": 2}},
    ]
    outcome = desk(scripted(tmp_path, turns)).run_sync("hi")
    assert outcome.completed
    assert [use.name for use in outcome.transcript[1].tool_uses] == ["look"]
    assert outcome.transcript[2].tool_results[0].text == "x True"
    assert outcome.spend.own.usage.cache_read >= 2


def test_arguments_of_a_script_reach_the_loop_as_they_stand_in_the_file(tmp_path: Path) -> None:
    """A script can say what a model should not: two names that are equal, a list for an object."""
    turns = (
        '[{"calls": [{"tool": "look", "arguments": {"what": "a", "what": "b"}},'
        ' {"tool": "look", "arguments": [1.50]}, {"tool": "look"}]}, "Done."]'
    )
    outcome = desk(scripted(tmp_path, turns)).run_sync("hi")
    uses, results = outcome.transcript[1].tool_uses, outcome.transcript[2].tool_results
    assert [use.arguments for use in uses] == ['{"what": "a", "what": "b"}', "[1.50]", "{}"]
    assert all(result.is_error for result in results)


def test_a_script_goes_on_where_the_transcript_stands(tmp_path: Path) -> None:
    """Not where this process stands: the next turn of a conversation may be another process."""
    name = scripted(tmp_path, ["One.", "Two."])
    first = desk(name).run_sync("hi")
    second = desk(name).run_sync("and?", history=first.transcript)
    assert (first.text, second.text) == ("One.", "Two.")
    third = desk(name).run_sync("and?", history=second.transcript)
    assert third.reason is Reason.MODEL_FAILED
    assert "the script is over: 2 turns" in (third.error or "")


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([], "the list holds no turn"),
        ("", "Input data was truncated"),
        ("[{", "Input data was truncated"),
        ("{}", "Expected `array`, got `object`"),
        ([3], "Expected `str | object`, got `int` - at `$[0]`"),
        ([{"txt": "x"}], "unknown field `txt` - at `$[0]`"),
        ([{"text": 3}], "Expected `str`, got `int` - at `$[0].text`"),
        ([{"calls": [{"arguments": {}}]}], "missing required field `tool`"),
        ([{"stop_reason": "tired"}], "Invalid enum value 'tired'"),
        ([{"usage": {"input": -1}}], "Expected `int` >= 0"),
        ([{"usage": {"inptu": 1}}], "unknown field `inptu`"),
        ([{"delay": -1}], "Expected `float` >= 0"),
    ],
)
def test_a_file_that_is_no_script_is_told_where_it_is_wrong(
    tmp_path: Path, turns: Any, told: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        remit.model(scripted(tmp_path, turns))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("demo:suport", "demo:support"),
        ("dmo:support", "did you mean demo:support"),
        ("gemini:g", "this version of remit is not connected to gemini yet;"),
        ("opnai:gpt", "did you mean openai:"),
        ("demo", "a name is PREFIX:NAME"),
        ("", "a name is PREFIX:NAME"),
        (":", "nobody here knows it"),
        ("scripted:", "needs a file"),
        ("scripted:/nonesuch/turns.json", "No such file"),
        ("quite:unknown", "it knows demo:support, scripted:FILE.json"),
    ],
)
def test_a_name_that_nobody_knows_is_told_with_those_that_are_known(name: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        remit.model(name)
    assert told in str(caught.value)


def test_every_name_that_is_offered_is_known(tmp_path: Path) -> None:
    path = scripted(tmp_path, ["Hello."]).removeprefix("scripted:")
    for name in KNOWN:
        key = None if name in KNOWN[:2] else "sk-test"
        place = "https://me.openai.azure.com" if name.startswith("azure:") else None
        made = remit.model(name.replace("FILE.json", path), api_key=key, base_url=place)
        assert made.name.partition(":")[0] == name.partition(":")[0]


# Providers


@pytest.fixture(name="environment", autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without the keys and places of whoever runs the tests."""
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.key_variable, raising=False)
        monkeypatch.delenv(provider.url_variable, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic:claude-sonnet-5-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-6", "OPENAI_API_KEY"),
        ("openai-chat:gpt-6", "OPENAI_API_KEY"),
        ("groq:llama", "GROQ_API_KEY"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY"),
        ("openrouter:a/b", "OPENROUTER_API_KEY"),
        ("mistral:large", "MISTRAL_API_KEY"),
    ],
)
def test_a_missing_key_is_told_by_the_variable_that_should_hold_it(
    name: str, variable: str
) -> None:
    made = desk(name)
    for start in (made.run_sync, desk("demo:support").replace(model=name).run_sync):
        with pytest.raises(ConfigurationError, match=variable):
            start("hi")
    with pytest.raises(ConfigurationError, match=variable):
        desk("demo:support").run_sync("hi", model=name)


@pytest.mark.parametrize("value", ["", "  \n", "sk-\u00fc", "a\nb"])
def test_a_module_that_names_models_can_be_imported_where_no_key_is(
    environment: pytest.MonkeyPatch, value: str
) -> None:
    """N5: CI and tests have no keys: they define remits, look at them, and put other models in."""
    environment.setenv("ANTHROPIC_API_KEY", value)
    made = desk("anthropic:claude-sonnet-5-5")
    assert "look" in [tool.name for tool in made.offered]
    assert "claude-sonnet-5-5 at api.anthropic.com" in repr(made.model)
    tested = made.replace(model=ScriptedModel(["Hello."]))
    assert tested.run_sync("hi").text == "Hello."
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY") as caught:
        made.run_sync("hi")
    assert not value.strip() or value not in str(caught.value)


async def _entered(made: Remit) -> None:
    async with made:
        pytest.fail("it has no key")


def _around(model: Model) -> list[Model]:
    @remit.wrap_model
    async def logged(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for chunk in ask(request):
            yield chunk

    return [model, logged(model), remit.ReActModel(model), judged(model, "anthropic")]


def test_a_missing_key_is_told_before_a_run_and_leaves_nothing_behind() -> None:
    """N5: whatever stands around the model; and what waits goes on waiting."""
    for model in _around(remit.model("anthropic:claude-sonnet-5-5")):
        store = MemoryStore()
        made = Remit(name="desk", model=model, tools=[look], limits=LIMITS, store=store)
        with pytest.raises(ConfigurationError, match="set ANTHROPIC_API_KEY"):
            made.run_sync("hi", run_id="one")
        assert asyncio.run(store.info("one")) is None
        with pytest.raises(ConfigurationError, match="set ANTHROPIC_API_KEY"):
            asyncio.run(_entered(made))


def test_a_run_that_waits_is_not_touched_where_the_key_is_missing() -> None:
    """N5: what is decided stays decided, and is gone on from once the key is there."""
    store = MemoryStore()
    script = ScriptedModel([("send", {"to": "dana"}), "Sent."])
    waiting = Remit(name="desk", model=script, tools=[send], limits=LIMITS, store=store)
    outcome = waiting.run_sync("hi", run_id="one")
    pending = outcome.pending[0]
    assert pending.token is not None
    keyless = waiting.replace(model="anthropic:claude-sonnet-5-5")
    asyncio.run(keyless.decide(pending.token, approve=True, by="dana"))
    before = asyncio.run(store.info("one"))
    with pytest.raises(ConfigurationError, match="set ANTHROPIC_API_KEY"):
        asyncio.run(keyless.resume("one"))
    assert asyncio.run(store.info("one")) == before
    assert asyncio.run(waiting.resume("one")).text == "Sent."
    # What has ended needs no model to be looked at.
    assert asyncio.run(keyless.resume("one")).text == "Sent."


def test_a_key_is_found_once_it_is_there(environment: pytest.MonkeyPatch) -> None:
    """A notebook: the first run says what is missing, and the second has it."""
    made = remit.model("anthropic:claude-sonnet-5-5")
    with pytest.raises(ConfigurationError):
        check_ready(made)
    environment.setenv("ANTHROPIC_API_KEY", "sk-now")
    check_ready(made)


def test_a_model_that_a_wrapper_brings_along_fails_the_run_with_the_same_words() -> None:
    """Nobody could ask it before: the run ends with what is to be done, and nothing is billed."""
    second = remit.model("anthropic:claude-sonnet-5-5")

    @remit.wrap_model
    async def other(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for chunk in second.stream(request):
            yield chunk

    outcome = desk("demo:support").run_sync("hi", model=other(ScriptedModel(["Hello."])))
    assert outcome.reason is Reason.MODEL_FAILED
    assert "set ANTHROPIC_API_KEY" in (outcome.error or "")
    assert outcome.spend.tree.tokens == 0


@pytest.mark.parametrize(
    "url",
    [
        "api.example.com",
        "ftp://h",
        "https://",
        "https://h:99999",
        "https://h:x/v1",
        "https://me:secret@h/v1",
        "https://h/v1?x=1",
        "https://h/v 1",
        "http://[::1",
    ],
)
def test_a_base_url_that_is_none_is_wrong_configuration(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        remit.model("openai-chat:m", base_url=url, api_key="k")
    assert "base URL" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["schl\u00fcssel", "a\nb", "two\twords"])
def test_a_key_that_cannot_be_one_is_told_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        remit.model("anthropic:m", api_key=key)
    assert key not in str(caught.value)


def test_azure_has_no_place_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="AZURE_OPENAI_ENDPOINT"):
        remit.model("azure:gpt", api_key="k")


def test_what_is_made_here_takes_no_address() -> None:
    cases: list[dict[str, Any]] = [{"base_url": "http://h"}, {"api_key": "k"}, {"streams": False}]
    for options in cases:
        with pytest.raises(ConfigurationError, match="over no network"):
            remit.model("demo:support", **options)


@pytest.mark.parametrize("name", ["anthropic:", "openai:\n"])
def test_a_prefix_alone_names_no_model(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name the model"):
        remit.model(name, api_key="k")
