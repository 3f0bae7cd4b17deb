"""What `remit doctor` looks at: one check, one finding, and what to do where it is none that one wants.

Everything that is found comes as a `Finding`; nothing is raised. Of a key the name of its variable is told and at
most its last four characters. Only `examined` sends anything, and only its last request is billed.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec

from remit import __version__
from remit.analysis.cells import visible
from remit.cli.assemble import model_of
from remit.cli.settings import Setting, Settings
from remit.errors import ConfigurationError, ModelError, ModelRejected
from remit.messages import Message, Reply, Text, Usage
from remit.models.base import Model, ModelProfile, ModelRequest, TextDelta, ToolSpec
from remit.models.base import Settings as Asking
from remit.models.names import PROVIDERS
from remit.models.opening import check_ready, opened
from remit.models.prices import near_name
from remit.transcript import Transcript

if TYPE_CHECKING:
    from remit.models.endpoint import Endpoint
    from remit.models.providers import Provider

__all__ = ["Finding", "answers", "environment", "examined", "keys"]

Level: TypeAlias = Literal["ok", "warn", "fail"]

_REACH_SECONDS: Final = 15.0
_ANSWER_SECONDS: Final = 60.0
_OUTPUT: Final = 16
"""Tokens of output that are asked for: OpenAI takes no smaller cap."""
_SHOWN_OF_A_KEY: Final = 4
_SECRET_CHARS: Final = 20
"""A shorter key is shown without its end."""
_TOOL: Final = ToolSpec(
    "note", "Not to be called.", {"type": "object", "properties": {"text": {"type": "string"}}}
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check came to."""

    level: Level
    about: str
    """`python`, `config`, `keys`, or the name of a model."""
    check: str
    """What was looked at, in a word that is stable: `version`, `key`, `reach` ..."""
    text: str
    fix: str | None = None
    """A command, or what to write where."""


def environment(settings: Settings) -> Iterator[Finding]:
    """The interpreter, and where settings come from."""
    versions = f"{platform.python_version()}, remit {__version__}"
    yield Finding(level="ok", about="python", check="version", text=versions)
    sources = sorted({setting.origin for _, setting in settings.items()} - {"built in"})
    text = ", ".join(sources) or "nothing is set; what is built in holds"
    yield Finding(level="ok", about="config", check="files", text=text)


def keys() -> Iterator[Finding]:
    """Keys of providers that the environment holds."""
    from remit.models.providers import PROVIDERS as PLACES

    told = False
    for variable in dict.fromkeys([place.key_variable for place in PLACES.values()]):
        if _key(variable):
            told = True
            yield _of("keys", "key", "ok", _key_words(variable))
    if not told:
        text = "no key of a provider is set; a server of your own may need none"
        yield _of("keys", "key", "warn", text, "export ANTHROPIC_API_KEY=...")


async def examined(
    name: str, run: Mapping[str, Setting], settings: Settings, *, offline: bool
) -> AsyncIterator[Finding]:
    """One model: its name, its key, whether it is there, whether it answers, and what is known of it."""
    provider = _provider(name)
    variable = "" if provider is None else provider.key_variable
    try:
        model = model_of(run, settings.prices)
    except ConfigurationError as error:
        yield _of(name, "name", "fail", str(error))
        return
    try:
        check_ready(model)
    except ConfigurationError as error:
        yield _of(name, "key", "fail", str(error), f"export {variable}=...")
        for finding in _known(name, model.profile):
            yield finding
        return
    if _key(variable):
        yield _of(name, "key", "ok", _key_words(variable))
    if provider is None:
        yield _of(name, "reach", "ok", "it is made here: no key, no network")
    elif offline:
        yield _of(name, "reach", "ok", f"not looked for: offline ({_place(model)})")
    else:
        place = f"{_place(model).rstrip('/')}/v1"
        deeper = model_of({**run, "base_url": Setting(place, "--base-url")}, settings.prices)
        async for finding in _asked(name, model, deeper):
            yield finding
    for finding in _known(name, model.profile):
        yield finding


# --- keys ----------------------------------------------------------------------------------------


def _provider(name: str) -> Provider | None:
    """What is known of the provider of that model; None for a model that is made here."""
    prefix = name.partition(":")[0]
    if prefix not in PROVIDERS:
        return None
    from remit.models.providers import PROVIDERS as PLACES

    return PLACES[prefix]


def _key(variable: str) -> str:
    return os.environ.get(variable, "").strip()


def _key_words(variable: str) -> str:
    key = _key(variable)
    end = f", which ends in …{key[-_SHOWN_OF_A_KEY:]}" if len(key) >= _SECRET_CHARS else " is set"
    return f"{variable}{end}"


# --- a model that is reached over a network ------------------------------------------------------


def _place(model: Model) -> str:
    return getattr(model, "base_url", "")


async def _asked(name: str, given: Model, deeper: Model) -> AsyncIterator[Finding]:
    """Whether it is there and answers. What is billed comes last, and only where the rest is well.

    `deeper` is the same at an address that ends in `/v1`.
    """
    model = cast("Endpoint", given)  # of a provider nothing else is made
    async with model.opened():
        listed: tuple[str, ...] = ()
        try:
            listed = await model.models(deadline=_in(_REACH_SECONDS))
        except ModelError as error:
            yield _of(
                name,
                "reach",
                "fail",
                f"{model.base_url}: {error}",
                _key_fix(name, error) or _reach_fix(name),
            )
            return
        count = f", and lists {len(listed):,} models" if listed else ""
        yield _of(name, "reach", "ok", f"{model.base_url} answers{count}")
        async for finding in answers(name, model, listed):
            if finding.level == "fail" and not listed:
                fix = await _deeper(name, deeper)
                yield finding if fix is None else msgspec.structs.replace(finding, fix=fix)
            else:
                yield finding


async def answers(name: str, model: Endpoint, listed: Sequence[str]) -> AsyncIterator[Finding]:
    """Whether it answers one small request; `listed` are names that it says it knows."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        reply, pieces = await _ask(model, (_TOOL,))
    except ModelError as error:
        yield await _unanswered(name, model, listed, error)
        return
    usage = reply.usage or Usage()
    price = model.profile.price
    cost = "" if price is None else f", ${price.cost(usage).normalize():f}"
    told = f"it answered in {loop.time() - began:.1f} s, for {usage.prompt} tokens in and {usage.output} out{cost}"
    streams = "it streams" if pieces > 1 else "it came in one piece"
    yield _of(name, "answer", "ok", f"{told}; {streams}, and takes tools")
    if reply.usage is None:
        yield _of(
            name,
            "usage",
            "warn",
            "it does not say what a request used: what counts is an estimate",
        )


async def _unanswered(
    name: str, model: Endpoint, listed: Sequence[str], error: ModelError
) -> Finding:
    """Why it did not answer: whether the tools were too much, or the name is not known there."""
    if isinstance(error, ModelRejected):
        try:
            await _ask(model, ())
        except ModelError:
            pass
        else:
            return _of(name, "tools", "fail", f"it answers, but not with tools: {error}")
    near = _near(name.partition(":")[2], listed)
    prefix = name.partition(":")[0]
    # The list is the server's: what is meant to be copied into a shell is quoted.
    fix = (
        f"remit doctor --model {shlex.quote(f'{prefix}:{near}')}" if near else _key_fix(name, error)
    )
    return _of(name, "answer", "fail", str(error), fix)


async def _deeper(name: str, model: Model) -> str | None:
    """The command with an address one step deeper, where models are listed there: `/v1` is often forgotten."""
    try:
        async with opened(model):
            listed = await cast("Endpoint", model).models(deadline=_in(_REACH_SECONDS))
    except ModelError:
        return None
    fix = f"remit doctor --model {shlex.quote(name)} --base-url {shlex.quote(_place(model))}"
    return fix if listed else None


async def _ask(model: Endpoint, tools: tuple[ToolSpec, ...]) -> tuple[Reply, int]:
    """One request of the smallest kind, and in how many pieces its text came. Errors: `ModelError`."""
    request = ModelRequest(
        "",
        Transcript([Message("user", (Text("Count from 1 to 5."),))]),
        tools,
        Asking(max_output=_OUTPUT),
        _OUTPUT,
        _in(_ANSWER_SECONDS),
    )
    pieces, reply = 0, None
    async for chunk in model.stream(request):
        pieces += isinstance(chunk, TextDelta)
        if isinstance(chunk, Reply):
            reply = chunk
    if reply is None:
        raise ModelRejected("it answered without a reply")
    return reply, pieces


def _in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


def _key_fix(name: str, error: ModelError) -> str | None:
    """What to do about an error whose text says that it is about the key."""
    provider = _provider(name)
    if provider is None or provider.key_variable not in str(error):
        return None
    return f"export {provider.key_variable}=..."


def _reach_fix(name: str) -> str:
    return f"remit doctor --model {shlex.quote(name)} --base-url URL"


def _near(model: str, listed: Sequence[str]) -> str | None:
    from difflib import get_close_matches

    if model in listed:
        return None
    return next(iter(get_close_matches(model, listed, n=1)), None)


# --- what is known by name -----------------------------------------------------------------------


def _known(name: str, profile: ModelProfile) -> Iterator[Finding]:
    """What remit goes by for this model."""
    window = f"reads {profile.context_window:,} tokens and writes {profile.max_output:,}"
    provider = _provider(name)
    if provider is not None and provider.local:
        window += " (assumed: a server of your own reads what it was started with)"
    cache = (
        f"caches from {profile.cache_tokens:,} tokens for {profile.cache_seconds:g} s"
        if profile.cache_tokens is not None
        else "no cache is counted on"
    )
    media = "results may hold " + ", ".join(profile.media) if profile.media else "text results only"
    schema = "holds a typed answer to its schema" if profile.native_output else ""
    text = "; ".join(filter(None, (window, cache, media, schema)))
    yield _of(name, "profile", "ok", text)
    price = profile.price
    if price is None:
        text = "unknown: costs are not counted, and a limit in US dollars is refused"
        fix = f'in remit.toml, under [prices]: "{name}" = {{ input = 0.5, output = 2 }}'
        prefix, _, model = name.partition(":")
        near = near_name(prefix, model)
        if near is not None:
            text += f"; did you mean {prefix}:{near}?"
            fix = f"remit doctor --model {prefix}:{near}"
        yield _of(name, "price", "warn", text, fix)
        return
    tiers = "".join(
        f"; above {tokens:,} tokens {tier.input} and {tier.output}" for tokens, tier in price.above
    )
    rates = f"{price.input} and {price.output} USD for a million tokens in and out{tiers}"
    yield _of(name, "price", "ok", rates)


def _of(name: str, check: str, level: Level, text: str, fix: str | None = None) -> Finding:
    return Finding(level=level, about=name, check=check, text=visible(text), fix=fix)
