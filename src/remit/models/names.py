"""Models by name: `PREFIX:NAME`, looked up here and made by whoever knows the prefix.

What a prefix stands for is imported when it is named: `providers.py` knows the providers and servers, and
brings a transport along. Of those that this version does not reach it says so, before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from remit.errors import ConfigurationError
from remit.models.base import Model, ModelProfile, Price
from remit.models.connection import Connection
from remit.models.wires.codec import Codec

__all__ = ["KNOWN", "model", "named"]


def _demo(name: str) -> Model:
    from remit.models.demo import demo_model

    return demo_model(name)


def _scripted(name: str) -> Model:
    from remit.models.script_file import scripted_file

    return scripted_file(name)


_MADE_HERE: Final[Mapping[str, Callable[[str], Model]]] = {"demo": _demo, "scripted": _scripted}

PROVIDERS: Final = (
    "anthropic",
    "openai",
    "openai-chat",
    "azure",
    "deepseek",
    "groq",
    "llamacpp",
    "mistral",
    "ollama",
    "openrouter",
    "vllm",
)
"""What is reached over a network. What each means stands in `providers.py`."""

KNOWN: Final = ("demo:support", "scripted:FILE.json", *[f"{prefix}:MODEL" for prefix in PROVIDERS])
"""What can be named, for people; the words in capitals are theirs to fill in."""

_UNCONNECTED: Final = frozenset({"bedrock", "gemini"})
"""Providers that people will name, and that this version cannot reach."""
_MOST_SHOWN: Final = 100
"""Characters of a name that nobody knows."""
_ALSO_CALLED: Final = {
    "aws": "bedrock",
    "azure-openai": "azure",
    "azure_openai": "azure",
    "claude": "anthropic",
    "google": "gemini",
    "gpt": "openai",
    "llama.cpp": "llamacpp",
    "vertex": "gemini",
}
"""Other words for what is known here."""
_MADE_BY: Final = {
    "claude": "anthropic",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
}
"""Who is asked for models of that name, where people leave the prefix out."""


def model(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    idle_seconds: float | None = None,
    connection: Connection | None = None,
    profile: ModelProfile | None = None,
    price: Price | None = None,
    codec: Codec | None = None,
    streams: bool = True,
) -> Model:
    """The model of that name, such as `anthropic:claude-sonnet-5-5` or `ollama:llama3.3`.

    `base_url` is where its server is, if not where the prefix says; `api_key` is used instead of the one in the
    environment, and empty where none is to be sent; `headers` go with every request; `idle_seconds` is how long
    a stream may go without content; `connection` groups proxy, certificates and the version of the API;
    `profile` and `price` take the place of what is known of the model; `codec` speaks the wire in another way than
    the usual one, such as `AnthropicCodec(cache_ttl="1h")`; `streams=False` asks for replies whole.
    Nothing is sent here.
    Errors: `ConfigurationError` for a name that nobody knows, with those that come near. A key that is missing is told when
    a run begins, with the variable that should hold it.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError(f"a model's name is a text such as demo:support, not {name!r}")
    prefix, colon, rest = name.partition(":")
    if colon and prefix in _MADE_HERE:
        given = (base_url, api_key, headers, idle_seconds, connection, profile, price, codec)
        if any(each is not None for each in given) or not streams:
            raise ConfigurationError(
                f"model {name!r} is made here and reached over no network: base_url, api_key and the rest say "
                "nothing to it"
            )
        return _MADE_HERE[prefix](rest)
    if colon and prefix in PROVIDERS:
        from remit.models.providers import connected

        return connected(
            prefix,
            rest,
            base_url=base_url,
            api_key=api_key,
            headers=headers,
            idle_seconds=idle_seconds,
            connection=connection,
            profile=profile,
            price=price,
            codec=codec,
            streams=streams,
        )
    raise _unknown(name)


def _unknown(name: str) -> ConfigurationError:
    """That nobody knows a name, with what may be meant."""
    prefix, colon, _ = name.partition(":")
    shown = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}..."
    known = f"it knows {', '.join(KNOWN)}; any server that speaks Chat Completions is openai-chat:MODEL with its base_url"
    prefix = _ALSO_CALLED.get(prefix.strip().lower(), prefix)
    if colon and prefix in _UNCONNECTED:
        return ConfigurationError(
            f"model {shown!r}: this version of remit is not connected to {prefix} yet; {known}, and "
            "in code it takes any object with a name, a profile and stream(request)"
        )
    if not colon:
        known = f"a name is PREFIX:NAME; {known}"
    return ConfigurationError(f"model {shown!r}: nobody here knows it{_near(name)}; {known}")


def named(model_or_name: Model | str) -> Model:
    """A model as it stands, or the one of that name. Errors: those of `model`."""
    return model(model_or_name) if isinstance(model_or_name, str) else model_or_name


def _near(name: str) -> str:
    """A question that names what comes near, as an end of a sentence; empty where nothing does."""
    from difflib import get_close_matches

    said = name.strip()
    head, colon, rest = said.partition(":" if ":" in said else "/")
    family = re.match(r"[a-z]\d|[a-z]+", said.lower())
    maker = None if colon or family is None else _MADE_BY.get(family[0])
    same = _ALSO_CALLED.get(head.lower(), head.lower())
    if maker or (same in PROVIDERS and rest):
        meant = f"{maker}:{said}" if maker else f"{same}:{rest}"
        return f" (did you mean {meant[:_MOST_SHOWN]}?)"
    shown = {prefix: f"{prefix}:" for prefix in (*PROVIDERS, *_UNCONNECTED)}
    for each in (each for each in KNOWN if not each.endswith(":MODEL")):
        shown |= {each: each, each.partition(":")[0]: each}
    wanted = (said.lower(), head.lower())
    close = [shown[match] for each in wanted for match in get_close_matches(each, shown, n=2)]
    found = " or ".join(dict.fromkeys(close))
    return f" (did you mean {found}?)" if found else ""
