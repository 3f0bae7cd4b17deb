"""What people give to reach a model: every wrong thing is wrong configuration, with what to do and no secret in it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

import remit
from remit import ConfigurationError, Connection, ModelProfile
from remit.models.endpoint import Endpoint
from remit.models.opening import check_ready
from remit.models.providers import PROVIDERS


@pytest.fixture(name="environment", autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without the keys and places of whoever runs the tests."""
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.key_variable, raising=False)
        monkeypatch.delenv(provider.url_variable, raising=False)
    return monkeypatch


def made(name: str = "openai-chat:m", **given: Any) -> Endpoint:
    """A model that is reached over a network."""
    options: dict[str, Any] = {"api_key": "k", **given}
    found = remit.model(name, **options)
    assert isinstance(found, Endpoint)
    return found


# Names


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Anthropic:claude", "did you mean anthropic:claude?"),
        (" openai:gpt-6", "did you mean openai:gpt-6?"),
        ("anthropic/claude-sonnet-5-5", "did you mean anthropic:claude-sonnet-5-5?"),
        ("claude-sonnet-5-5", "did you mean anthropic:claude-sonnet-5-5?"),
        ("gpt-6-sol", "did you mean openai:gpt-6-sol?"),
        ("o3-mini", "did you mean openai:o3-mini?"),
        ("llama.cpp:big", "did you mean llamacpp:big?"),
        ("azure-openai:dep", "did you mean azure:dep?"),
        ("vertex:gemini-3", "not connected to gemini yet"),
        (
            "together:qwen",
            "any server that speaks Chat Completions is openai-chat:MODEL with its base_url",
        ),
        ("openai:", "such as openai:MODEL"),
        ("openai: gpt-6", "a space or a line end around the name"),
        ("openai:gpt-6\n", "a space or a line end around the name"),
        ("openai:gpt\u200b-6", "another character that is not seen"),
        ("openai:" + "x" * 5_000, "no model is named so"),
        ("x" * 5_000, "nobody here knows it"),
    ],
)
def test_a_name_that_is_not_quite_one_is_told_with_the_one_that_is_meant(
    name: str, told: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        remit.model(name, api_key="k")
    assert told in str(caught.value)
    assert len(str(caught.value)) < 800


# Addresses


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:8000", "as in http://localhost:8000"),
        ("api.example.com/v1", "as in https://api.example.com/v1"),
        ("unix:///tmp/socket", "only http and https are spoken"),
        ("http://h/v1?api-version=1", "Connection(api_version=...)"),
        ("http://h/v1 ", "the space or the line end around it"),
        ("http://h/v1\n", "the space or the line end around it"),
        ("http://h\\v1", "a backslash"),
        ("http://:8000", "it has no host"),
        ("http://a..b/", "no host is named 'a..b'"),
        ("http://h:0", "port 0"),
        ("http://h:x", "its host or its port is none"),
        (3, "is a text such as"),
        (b"http://h", "is a text such as"),
    ],
)
def test_an_address_that_is_none_is_told_with_what_is_wrong_about_it(url: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        made(base_url=url)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2@h",
        "https://me:hunter2@h:99999",
        "ftp://me:hunter2@h",
        "me:hunter2@h",
        "https://h/v1?key=hunter2",
    ],
)
def test_an_address_that_is_none_is_told_without_its_secrets(url: str) -> None:
    """N1."""
    with pytest.raises(ConfigurationError) as caught:
        made(base_url=url)
    assert "hunter2" not in str(caught.value)


def test_an_address_of_the_environment_is_told_by_its_variable(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("OLLAMA_BASE_URL", "gpu-box:11434")
    with pytest.raises(ConfigurationError, match="in OLLAMA_BASE_URL"):
        made("ollama:m")
    environment.setenv("OLLAMA_BASE_URL", " http://gpu-box:11434/v1\n")
    assert made("ollama:m").base_url == "http://gpu-box:11434/v1"


@pytest.mark.parametrize(
    ("name", "url", "meant"),
    [
        ("openai-chat:m", "http://h/v1/chat/completions", "http://h/v1"),
        ("vllm:m", "http://h/v1/chat/completions/", "http://h/v1"),
        ("openai:m", "http://h/v1/responses", "http://h/v1"),
        ("anthropic:m", "http://h/v1/messages", "http://h/v1"),
        ("openai-chat:m", "http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("openai-chat:m", "http://b\u00fccher.example/v1", "http://b\u00fccher.example/v1"),
    ],
)
def test_the_path_of_requests_may_be_copied_along(name: str, url: str, meant: str) -> None:
    assert made(name, base_url=url).base_url == meant


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("anthropic:claude-sonnet-5-5", "https://api.anthropic.com/v1/"),
        ("openai-chat:gpt-4o", "https://api.openai.com"),
        ("openai:gpt-4o", "https://API.openai.com/v1/"),
    ],
)
def test_the_own_address_of_a_provider_is_its_own_however_it_is_written(
    name: str, url: str
) -> None:
    """L2, T7: price, profile and what was sealed there hold as they do without a base URL."""
    written, usual = made(name, base_url=url), made(name)
    assert written.profile == usual.profile
    assert written.profile.price is not None
    assert vars(written)["_codec"].issuer == vars(usual)["_codec"].issuer


# Keys and headers


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ('"sk-hunter2"', "stands in quotes"),
        ("'sk-hunter2'", "stands in quotes"),
        ("Bearer sk-hunter2", "give the key alone"),
        ("sk-hunter2\u200b", "characters that no key has"),
        (b"sk-hunter2", "is a text"),
        (7, "is a text"),
    ],
)
def test_a_key_that_was_copied_with_something_is_told_so_and_not_shown(key: Any, told: str) -> None:
    """N1."""
    with pytest.raises(ConfigurationError) as caught:
        made(api_key=key)
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_key_of_the_environment_that_is_none_is_told_by_its_variable(
    environment: pytest.MonkeyPatch,
) -> None:
    """Files of variables are read with their quotes by many who start containers."""
    environment.setenv("OPENAI_API_KEY", '"sk-hunter2"')
    model = remit.model("openai:m")
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY stands in quotes"):
        check_ready(model)


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"x-one": 1}, "is a text"),
        ({"x-one": None}, "is a text"),
        ({"x-one": b"hunter2"}, "is a text"),
        ({1: "a"}, "no header is named so"),
        ({"": "a"}, "no header is named so"),
        ({"x one": "a"}, "no header is named so"),
        ({"x-one:": "a"}, "no header is named so"),
        ({"x-one": "hunter2\x7f"}, "not seen"),
        ({"x-one": "hunter2\r\nx: y"}, "line end"),
        ({"Content-Length": "3"}, "set for you"),
        ({"transfer-encoding": "chunked"}, "set for you"),
        ({"host": "elsewhere"}, "set for you"),
        ({"x": "1", "X": "2"}, "given twice"),
        ([("x", "1")], "maps names to texts"),
        ("x: 1", "maps names to texts"),
    ],
)
def test_headers_that_cannot_be_sent_are_wrong_configuration(headers: Any, told: str) -> None:
    """N1: before anything is sent, and without their values."""
    with pytest.raises(ConfigurationError) as caught:
        made(headers=headers)
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


# The rest


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"idle_seconds": 0}, "seconds above zero"),
        ({"idle_seconds": True}, "seconds above zero"),
        ({"idle_seconds": "5"}, "seconds above zero"),
        ({"idle_seconds": float("nan")}, "seconds above zero"),
        ({"connection": "http://proxy:1"}, "remit.Connection"),
        ({"connection": Connection}, "remit.Connection"),
        ({"profile": 3}, "remit.ModelProfile"),
        ({"profile": ModelProfile}, "remit.ModelProfile"),
        ({"price": "3"}, "remit.Price"),
        ({"codec": "anthropic"}, "codec= takes an object"),
        ({"codec": type}, "codec= takes an object"),
    ],
)
def test_what_takes_the_place_of_the_usual_has_its_type(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        made(**given)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"proxy": 3},
        {"proxy": "proxy:3128"},
        {"proxy": "socks5://me:hunter2@p:1"},
        {"proxy": "http://me:hunter2@p:99999"},
        {"proxy": "http://p:x"},
        {"proxy": "http://p p:1"},
        {"proxy": " "},
        {"ca_file": 3},
        {"client_cert": 3},
        {"client_cert": ("one",)},
        {"client_cert": ["one", "two"]},
        {"api_version": 3},
        {"api_version": ""},
        {"api_version": "1\nx: y"},
        {"api_version": "1&x=2"},
    ],
)
def test_a_connection_that_cannot_be_made_is_wrong_configuration(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Connection(**given)
    assert next(iter(given)) in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"context_window": 0},
        {"context_window": "big"},
        {"context_window": 1e6},
        {"max_output": True},
        {"cache_tokens": -1},
        {"reserve_tokens": "x"},
        {"price": 3},
        {"media": ("image/png", 3)},
        {"media": "image/png"},
        {"window": 5},
    ],
)
def test_a_profile_of_what_cannot_be_is_wrong_configuration(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ModelProfile(**given)


def test_settings_and_profiles_can_be_copied_and_pickled() -> None:
    """What people keep in their own configuration goes through copies and processes."""
    for value in (
        remit.Settings(max_output=5),
        ModelProfile(),
        remit.Limits(steps=1, tokens=1, seconds=1),
    ):
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value
        assert dataclasses.asdict(value)
