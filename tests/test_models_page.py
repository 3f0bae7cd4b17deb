"""The page about models: its code runs, and its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import remit
from remit import Connection, Limits, Remit
from remit.models.endpoint import IDLE_SECONDS
from remit.models.http_faults import CONNECT_SECONDS
from remit.models.names import KNOWN
from remit.models.providers import PROVIDERS
from remit.models.retry import MODEL_RETRIES

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "models.md").read_text("utf-8")
CODE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        monkeypatch.setenv(provider.key_variable, "sk-test")
        monkeypatch.delenv(provider.url_variable, raising=False)
    made: dict[str, Any] = {}
    exec(compile(CODE, "docs/models.md", "exec"), made)
    assert made["other"].model.name == "openai:gpt-6-sol"
    canned = Remit(
        name="desk", model=made["canned"], limits=Limits(steps=2, tokens=90_000, seconds=9)
    )
    assert canned.run_sync("Hi").text == "Hello."


def test_the_page_names_every_prefix_and_every_part_of_a_connection() -> None:
    for name in KNOWN:
        assert f"`{name.partition(':')[0]}:" in PAGE, name
    for part in Connection.__dataclass_fields__:
        assert f"| `{part}` |" in PAGE, part
    for name in ("anthropic", "openai"):
        provider = PROVIDERS[name]
        for word in (provider.base_url, provider.url_variable, provider.key_variable):
            assert word in PAGE, word


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"default is {IDLE_SECONDS:g}, and 300 for" in PAGE
    own = {name for name, each in PROVIDERS.items() if each.local}
    assert own == {"ollama", "vllm", "llamacpp"}
    assert f"within {CONNECT_SECONDS:g} s" in PAGE
    assert MODEL_RETRIES == 4
    assert "Four further attempts" in PAGE


def test_the_links_of_the_page_lead_somewhere() -> None:
    docs = Path(__file__).resolve().parent.parent / "docs"
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (docs / link).exists(), link


def test_every_name_that_the_page_uses_is_offered() -> None:
    names = set(re.findall(r"\bremit\.(\w+)", CODE)) - {"models"}
    names |= {
        name.strip()
        for line in re.findall(r"^from remit import (.+)$", CODE, re.MULTILINE)
        for name in line.split(",")
    }
    assert [name for name in sorted(names) if not hasattr(remit, name)] == []
