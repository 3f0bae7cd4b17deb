"""What the prefixes of models mean: a wire, a place, a key, and what is known of the model.

    anthropic:      Anthropic Messages
    openai:         OpenAI Responses
    openai-chat:    Chat Completions, of OpenAI or of any server that speaks it (`base_url=`)
    the others:     Chat Completions as that server speaks it (`wires/dialects.py`)

Keys and base URLs come from the variables under which people know them, or are given. A key of the environment is
looked up when the model is first asked, so that a module that names models can be imported where no key is. Nothing
is sent here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from remit.errors import ConfigurationError
from remit.models.base import ModelProfile, Price
from remit.models.connection import Connection, host_of, is_local
from remit.models.endpoint import IDLE_SECONDS, Endpoint
from remit.models.given import check_parts, checked_name, checked_url, proper_key
from remit.models.http import AiohttpTransport
from remit.models.prices import Ttl
from remit.models.profiles import profile_of
from remit.models.wires.codec import Codec
from remit.models.wires.dialects import COMPATIBLE, DIALECTS, ChatDialect, compatible_at

__all__ = ["PROVIDERS", "Provider", "connected"]

_PATIENT_IDLE_SECONDS: Final = 300.0
"""A server of one's own may have to load the model and read a long prompt before its first word; OpenAI's models
think for minutes, and without summaries nothing comes meanwhile."""
_PATHS: Final = {"anthropic": "/messages", "openai": "/responses"}
"""How the address of requests ends; elsewhere it is that of Chat Completions."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """What a prefix means."""

    base_url: str
    """Where it is, unless told; empty where it has to be told."""
    url_variable: str
    """The variable that tells where it is."""
    key_variable: str
    """The variable that holds the key."""
    local: bool = False
    """It usually runs on a machine of one's own."""
    dialect: ChatDialect | None = None
    """How it speaks Chat Completions; None where it speaks another wire."""


def _speaking(dialect: ChatDialect) -> Provider:
    return Provider(
        base_url=dialect.base_url,
        url_variable=dialect.url_variable,
        key_variable=dialect.key_variable,
        local=dialect.local,
        dialect=dialect,
    )


PROVIDERS: Final[Mapping[str, Provider]] = {
    "anthropic": Provider(
        base_url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
    ),
    "openai": Provider(
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
    ),
    **{name: _speaking(each) for name, each in DIALECTS.items() if name != COMPATIBLE},
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
    codec: Codec | None = None,
    streams: bool = True,
) -> Endpoint:
    """The model that a provider or server calls by this name.

    Errors: `ConfigurationError` for a URL that is none, a given key that is none and headers that cannot be sent.
    """
    provider = PROVIDERS[prefix]
    model = checked_name(prefix, model)
    check_parts(profile=profile, price=price, codec=codec, connection=connection)
    connection = connection or Connection()
    place = _place(prefix, provider, base_url)
    key = _key(prefix, provider.key_variable, place, api_key)
    # What is known of a model holds where its provider is; at another address it may be another model.
    foreign = None if _is_own(place, provider) else place
    spoken = _codec(prefix, provider, connection, elsewhere=foreign) if codec is None else codec
    # Only one wire is asked to keep what it caches for longer, and that has a price.
    ttl: Ttl | None = getattr(spoken, "cache_ttl", "5m")
    known = profile or profile_of(prefix, model, base_url=foreign, ttl=ttl)
    address, query = _azure(place, model, connection) if prefix == "azure" else (place, "")
    silent = prefix == "openai" and foreign is None
    seconds = _PATIENT_IDLE_SECONDS if provider.local or silent else IDLE_SECONDS
    return Endpoint(
        f"{prefix}:{model}",
        spoken,
        _transport(connection),
        base_url=address,
        model=model,
        key=key,
        profile=known if price is None else replace(known, price=price),
        headers=headers,
        query=query,
        idle_seconds=seconds if idle_seconds is None else idle_seconds,
        streams=streams,
    )


@lru_cache(maxsize=16)
def _shared(connection: Connection) -> AiohttpTransport:
    return AiohttpTransport(connection)


def _transport(connection: Connection) -> AiohttpTransport:
    """All models that are reached in the same way share connections; files may change, so they are read anew."""
    reads = connection.ca_file is not None or connection.client_cert is not None
    return AiohttpTransport(connection) if reads else _shared(connection)


def _codec(
    prefix: str, provider: Provider, connection: Connection, *, elsewhere: str | None
) -> Codec:
    """How the wire is spoken. Errors: `ConfigurationError` for a version that says nothing there."""
    version = connection.api_version
    if version is not None and prefix not in {"anthropic", "azure"}:
        raise ConfigurationError(
            f"Connection(api_version=...) says nothing to {prefix}: there the version stands in the base URL"
        )
    if provider.dialect is not None:
        from remit.models.wires.chat import ChatCodec

        # The prefix of OpenAI's own is also that of any server that speaks it, at another address.
        anybodys = elsewhere if prefix == "openai-chat" else None
        return ChatCodec(provider.dialect if anybodys is None else compatible_at(anybodys))
    # What a server issues goes back to its own place and to no other (T7).
    issuer = prefix if elsewhere is None else f"{prefix}:{host_of(elsewhere)}"
    if prefix == "openai":
        from remit.models.wires.responses import ResponsesCodec

        return ResponsesCodec(key_variable=provider.key_variable, issuer=issuer)
    from remit.models.wires.anthropic import AnthropicCodec

    if version is None:
        return AnthropicCodec(issuer=issuer)
    return AnthropicCodec(version=version, issuer=issuer)


def _place(prefix: str, provider: Provider, base_url: str | None) -> str:
    """Where it is, whether or not the path of its requests was copied along. Errors: `ConfigurationError`."""
    given = _given_place(prefix, provider, base_url)
    path = _PATHS.get(prefix, "/chat/completions")
    return given.rstrip("/").removesuffix(path) if given.rstrip("/").endswith(path) else given


def _given_place(prefix: str, provider: Provider, base_url: str | None) -> str:
    if base_url is not None and base_url != "":
        return checked_url(base_url, f"the base URL of {prefix}")
    told = os.environ.get(provider.url_variable, "").strip()
    if told:
        return checked_url(told, f"the base URL of {prefix} in {provider.url_variable}")
    if not provider.base_url:
        raise ConfigurationError(
            f"{prefix} has no place of its own: give base_url=, or set {provider.url_variable}"
        )
    return provider.base_url


def _is_own(place: str, provider: Provider) -> bool:
    """Whether a place is the provider's own, whatever stands behind its host."""
    said, own = urlsplit(place), urlsplit(provider.base_url)
    return (said.scheme, said.netloc.lower()) == (own.scheme, own.netloc)


def _key(
    prefix: str, variable: str, place: str, api_key: str | None
) -> str | Callable[[], str | None] | None:
    """The key that is given, None for none; else how it is looked up. Errors: `ConfigurationError` for a wrong one."""
    if api_key is None:
        return partial(_key_of_environment, prefix, variable, urlsplit(place).hostname or "")
    return proper_key(api_key, f"api_key= of {prefix}")


def _key_of_environment(prefix: str, variable: str, host: str) -> str | None:
    """The key in that variable, None where none is sent. Errors: `ConfigurationError` where one is missing, or wrong."""
    key = proper_key(os.environ.get(variable, ""), variable)
    if key is None and not is_local(host):
        raise ConfigurationError(
            f"{prefix} at {host} wants a key: set {variable}, or in code give api_key=; for a server that wants none it "
            "is any word, or empty in code"
        )
    return key


def _azure(endpoint: str, model: str, connection: Connection) -> tuple[str, str]:
    """Base URL and query of a deployment: in the current form, or in that with a version of the API."""
    root = endpoint.rstrip("/").removesuffix("/v1").removesuffix("/openai")
    version = connection.api_version
    if version is None:
        return f"{root}/openai/v1", ""
    return f"{root}/openai/deployments/{quote(model, safe='')}", f"?api-version={quote(version)}"
