"""Models by name: `PREFIX:NAME`, looked up here and made by whoever knows the prefix.

What a prefix stands for is imported when it is named. Connections to providers register here as they
are built; of those that this version does not have it says so, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from remit.errors import ConfigurationError
from remit.models.base import Model

__all__ = ["KNOWN", "model", "named"]


def _demo(name: str) -> Model:
    from remit.models.demo import demo_model

    return demo_model(name)


def _scripted(name: str) -> Model:
    from remit.models.script_file import scripted_file

    return scripted_file(name)


_MAKERS: Final[Mapping[str, Callable[[str], Model]]] = {"demo": _demo, "scripted": _scripted}

KNOWN: Final = ("demo:support", "scripted:FILE.json")
"""What can be named, for people; the words in capitals are theirs to fill in."""

_UNCONNECTED: Final = frozenset(
    {
        "anthropic",
        "azure",
        "bedrock",
        "deepseek",
        "gemini",
        "groq",
        "llamacpp",
        "mistral",
        "ollama",
        "openai",
        "openai-chat",
        "openrouter",
        "vllm",
    }
)
"""Providers and servers that people will name, and that this version cannot reach."""


def model(name: str) -> Model:
    """The model of that name, such as `demo:support` or `scripted:turns.json`.

    Errors: `ConfigurationError` for a name that nobody here knows, with those that come near.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError(f"a model's name is a text such as demo:support, not {name!r}")
    prefix, colon, rest = name.partition(":")
    maker = _MAKERS.get(prefix)
    if maker is not None and colon:
        return maker(rest)
    known = f"it knows {', '.join(KNOWN)}"
    if prefix in _UNCONNECTED and colon:
        raise ConfigurationError(
            f"model {name!r}: this version of remit has no connection to {prefix}; {known}, and "
            "in code it takes any object with a name, a profile and stream(request)"
        )
    if not colon:
        known = f"a name is PREFIX:NAME; {known}"
    raise ConfigurationError(f"model {name!r}: nobody here knows it{_near(name)}; {known}")


def named(model_or_name: Model | str) -> Model:
    """A model as it stands, or the one of that name. Errors: those of `model`."""
    return model(model_or_name) if isinstance(model_or_name, str) else model_or_name


def _near(name: str) -> str:
    """A question that names what comes near, as an end of a sentence; empty where nothing does."""
    from difflib import get_close_matches

    shown = {each: each for each in KNOWN}
    shown |= {prefix: f"{prefix}:" for prefix in _UNCONNECTED}
    shown |= {each.partition(":")[0]: each for each in KNOWN}
    wanted = (name, name.partition(":")[0])
    close = [shown[match] for each in wanted for match in get_close_matches(each, shown, n=2)]
    found = " or ".join(dict.fromkeys(close))
    return f" (did you mean {found}?)" if found else ""
