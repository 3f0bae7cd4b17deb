"""What the prefixes of models mean: a wire, a place, a key, and what is known of the model.

    anthropic:      Anthropic Messages
    openai:         OpenAI Responses
    openai-chat:    Chat Completions, of OpenAI or of any server that speaks it (`base_url=`)
    the others:     Chat Completions as that server speaks it (`wires/dialects.py`)

Keys and base URLs come from the variables under which people know them, or are given. Nothing is sent here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from remit.errors import ConfigurationError
from remit.models.base import ModelProfile, Price
from remit.models.connection import Connection, is_local
from remit.models.endpoint import IDLE_SECONDS, Endpoint
from remit.models.http import AiohttpTransport
from remit.models.profiles import profile_of
from remit.models.wires import codec
from remit.models.wires.codec import Codec
from remit.models.wires.dialects import COMPATIBLE, DIALECTS, ChatDialect

__all__ = ["PROVIDERS", "Provider", "connected"]

_LOCAL_IDLE_SECONDS: Final = 300.0
"""A server of one's own may have to load the model and read a long prompt before its first word."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """What a prefix means."""

    wire: str
    base_url: str = ""
    """Where it is, unless told; empty where it has to be told."""
    url_variable: str
    """The variable that tells where it is."""
    key_variable: str
    """The variable that holds the key."""
    idle_seconds: float = IDLE_SECONDS


def _chat(dialect: ChatDialect) -> Provider:
    """A server that speaks Chat Completions."""
    return Provider(
        wire="openai-chat",
        base_url=dialect.base_url,
        url_variable=dialect.url_variable,
        key_variable=dialect.key_variable,
        idle_seconds=_LOCAL_IDLE_SECONDS if dialect.local else IDLE_SECONDS,
    )


PROVIDERS: Final[Mapping[str, Provider]] = {
    "anthropic": Provider(
        wire="anthropic",
        base_url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
    ),
    "openai": Provider(
        wire="openai",
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
    ),
    **{name: _chat(dialect) for name, dialect in DIALECTS.items() if name != COMPATIBLE},
}


def connected(
    prefix: str,
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    idle_seconds: float | None = None,
    connection: Connection | None = None,
    profile: ModelProfile | None = None,
    price: Price | None = None,
    streams: bool = True,
) -> Endpoint:
    """The model that a provider or server calls by this name.

    Errors: `ConfigurationError` for a URL that is none, a key that is missing and headers that cannot be sent.
    """
    provider, connection = PROVIDERS[prefix], connection or Connection()
    if not model or not model.isprintable():
        raise ConfigurationError(
            f"model {prefix}:{model!r}: name the model, such as {prefix}:MODEL"
        )
    place = address = _place(prefix, provider, base_url)
    key = _key(prefix, provider, place, api_key)
    own, query = dict(headers or {}), ""
    if prefix == "azure":
        # There the version of the API stands in the URL.
        place, query = _azure(place, model, connection.api_version)
    elif connection.api_version is not None:
        if prefix != "anthropic":
            raise ConfigurationError(
                f"Connection(api_version=...) says nothing to {prefix}: its base URL names the version"
            )
        own = {"anthropic-version": connection.api_version, **own}
    # What is known of a model holds where its provider is; at another address it may be another model.
    foreign = address if address != provider.base_url else None
    known = profile or profile_of(prefix, model, base_url=foreign)
    return Endpoint(
        f"{prefix}:{model}",
        _codec(prefix, provider, foreign=foreign is not None),
        AiohttpTransport(connection),
        base_url=place,
        model=model,
        key=key,
        profile=known if price is None else replace(known, price=price),
        headers=own,
        query=query,
        idle_seconds=provider.idle_seconds if idle_seconds is None else idle_seconds,
        streams=streams,
    )


def _codec(prefix: str, provider: Provider, *, foreign: bool) -> Codec:
    """How it is spoken to. What is reached as `openai-chat:` at another address is a server that nobody knows."""
    if prefix not in DIALECTS:
        return codec(provider.wire)
    from remit.models.wires.chat import (
        ChatCodec,
    )  # as `WIRES`: only wires that are used are imported

    return ChatCodec(DIALECTS[COMPATIBLE if prefix == "openai-chat" and foreign else prefix])


def _place(prefix: str, provider: Provider, base_url: str | None) -> str:
    """Where it is. Errors: `ConfigurationError`."""
    given = base_url or os.environ.get(provider.url_variable) or provider.base_url
    if not given:
        raise ConfigurationError(
            f"{prefix} has no place of its own: give base_url=, or set {provider.url_variable}"
        )
    try:
        parts = urlsplit(given)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        good = False
    else:
        good = good and not (parts.query or parts.fragment or any(each.isspace() for each in given))
        if good and parts.username is not None:
            raise ConfigurationError(
                "a base URL holds no name and no password: give api_key= or headers="
            )
    if not good:
        raise ConfigurationError(
            f"the base URL of {prefix} is no http://HOST or https://HOST with a path: {given[:200]!r}"
        )
    return given


def _key(prefix: str, provider: Provider, place: str, api_key: str | None) -> str | None:
    """The key, None where none is sent. Errors: `ConfigurationError` where one is missing."""
    if api_key is not None and not isinstance(api_key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError("api_key= is a text")
    key = os.environ.get(provider.key_variable, "") if api_key is None else api_key
    key = key.strip()
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"the key of {prefix} holds characters that no key has: was something else copied along?"
        )
    host = urlsplit(place).hostname or ""
    if not key and api_key is None and not is_local(host):
        raise ConfigurationError(
            f"{prefix} at {host} wants a key: set {provider.key_variable}, or give api_key=, which may be empty "
            "for a server that wants none"
        )
    return key or None


def _azure(endpoint: str, model: str, version: str | None) -> tuple[str, str]:
    """Base URL and query of a deployment: the current form, and the one with a version of the API."""
    endpoint = endpoint.rstrip("/")
    if version is not None:
        root = endpoint.removesuffix("/v1").removesuffix("/openai")
        return (
            f"{root}/openai/deployments/{quote(model, safe='')}",
            f"?api-version={quote(version)}",
        )
    if not endpoint.endswith("/v1"):
        endpoint = f"{endpoint.removesuffix('/openai')}/openai/v1"
    return endpoint, ""
