"""What is known of models by their names: windows, caps, caches, media. Facts as data, each with its source.

What a provider publishes of a family stands here, the newest reading of it; prices and most windows come from
`prices.py`. A name that nobody knows gets what is safe: a window that is rather too small makes room early,
one that is too large is told by the provider and makes room then. Whoever knows better says so, with
`remit.model(..., profile=...)` and `dataclasses.replace`.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from remit.models.base import ModelProfile
from remit.models.prices import OWN, Ttl, listing_of

__all__ = ["OWN", "profile_of"]

_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Anthropic's vision page and OpenAI's images page name the same four (both read 2026-11)."""
_DOCUMENTS: Final = (*_PICTURES, "application/pdf")
_SECONDS: Final = {"5m": 300.0, "1h": 3_600.0}


class _Family(NamedTuple):
    """Models whose names fit a pattern. Of several that fit the first one counts."""

    names: str
    window: int
    """Tokens of prompt and output together."""
    output: int
    """The largest output, in tokens."""
    cache: int | None
    """The shortest prompt that is cached, in tokens; None: none is."""
    structured: bool = True
    """It holds a final text to a schema beside tools."""
    media: tuple[str, ...] = _DOCUMENTS
    """What it reads in results; on Chat Completions, in the user's message that the codec puts behind them."""


_CLAUDE: Final = (
    # Windows and outputs: Anthropic's models overview; caches: its page on prompt caching; structured outputs:
    # its page of that name. Read 2026-11. Generations after 5 of which a page is silent have the safe value.
    _Family("claude-3-5-haiku*", 200_000, 8_192, 2_048, False),
    _Family("claude-3-5-*", 200_000, 8_192, 1_024, False),
    _Family("claude-3-7-*", 200_000, 64_000, 1_024, False),
    _Family("claude-3-haiku*", 200_000, 4_096, 2_048, False, _PICTURES),
    _Family("claude-3-*", 200_000, 4_096, 1_024, False, _PICTURES),
    _Family("claude-opus-4-1*", 200_000, 32_000, 1_024),
    _Family("claude-opus-4-5*", 200_000, 64_000, 4_096),
    _Family("claude-opus-4-6*", 1_000_000, 128_000, 4_096),
    _Family("claude-opus-4-7*", 1_000_000, 128_000, 2_048),
    _Family("claude-opus-4-8*", 1_000_000, 128_000, 1_024),
    _Family("claude-opus-4*", 200_000, 32_000, 1_024, False),
    _Family("claude-sonnet-4-5*", 200_000, 64_000, 1_024),
    _Family("claude-sonnet-4-6*", 1_000_000, 128_000, 1_024),
    _Family("claude-sonnet-4*", 200_000, 64_000, 1_024, False),
    _Family("claude-haiku-4-5*", 200_000, 64_000, 4_096),
    _Family("claude-opus-5", 1_000_000, 128_000, 512),
    _Family("claude-fable-5", 1_000_000, 128_000, 512),
    _Family("claude-mythos-5", 1_000_000, 128_000, 512),
    _Family("claude-haiku-5*", 1_000_000, 64_000, 4_096),
    _Family("claude-*-5*", 1_000_000, 128_000, 1_024),
    _Family("*", 200_000, 32_000, 4_096),
)
_GPT: Final = (
    # OpenAI's model pages; caches: its guide to prompt caching, "gpt-4o and newer". Read 2026-11.
    _Family("gpt-3.5*", 16_385, 4_096, None, False, ()),
    _Family("gpt-4-turbo*", 128_000, 4_096, None, False),
    _Family("gpt-4-*", 8_192, 4_096, None, False, ()),
    _Family("gpt-4", 8_192, 4_096, None, False, ()),
    _Family("gpt-4o*", 128_000, 16_384, 1_024),
    _Family("gpt-4.1*", 1_000_000, 32_768, 1_024),
    _Family("gpt-oss*", 131_072, 32_768, None, False, ()),
    _Family("o1-mini*", 128_000, 65_536, 1_024, False, ()),
    _Family("o1-preview*", 128_000, 32_768, 1_024, False, ()),
    _Family("o3-mini*", 200_000, 100_000, 1_024, media=()),
    _Family("o[134]*", 200_000, 100_000, 1_024),
    _Family("gpt-5*-chat*", 128_000, 16_384, 1_024),
    _Family("gpt-5*", 400_000, 128_000, 1_024),
    _Family("gpt-6*", 1_050_000, 128_000, 1_024),
    _Family("*", 128_000, 16_384, 1_024),
)
_LONG_CACHES: Final = ("gpt-5.6*", "gpt-6*")
"""From GPT-5.6 on OpenAI keeps a written prefix for 30 minutes; before, for 5 to 10 of inactivity."""

_OWN_WINDOW: Final = 32_768
"""Of a server that people run themselves: its window is the one that it was started with."""
_ELSEWHERE: Final = ModelProfile(context_window=128_000, max_output=8_192)
"""Of another server that speaks Chat Completions only its listing is known. Its cache, where it has one, is kept
as it can be and nothing is to be expected of it; beside tools many take no schema for the final text; whether a
model sees pictures is not known by its name, and one that does not refuses the request."""


def profile_of(
    provider: str, model: str, *, base_url: str | None = None, ttl: Ttl | None = "5m"
) -> ModelProfile:
    """What is known of a model: `provider` is the prefix of its name, such as `anthropic`.

    `base_url` is where it is reached, if that is not the provider's own address. `ttl`: how long what is written
    to the cache is asked to last, which has a price; None where nothing is asked to be written.
    """
    name = model.lower().rpartition("/")[2]
    listing = listing_of(provider, model, base_url=base_url, ttl=ttl or "5m")
    profile = _by_name(provider, name, foreign=base_url is not None, ttl=ttl or "5m")
    if ttl is None:
        profile = replace(profile, cache_tokens=None)
    if listing is None:
        return profile
    return replace(
        profile,
        price=listing.price,
        context_window=listing.context_window or profile.context_window,
        max_output=min(profile.max_output, listing.context_window or profile.max_output),
    )


def _by_name(provider: str, name: str, *, foreign: bool, ttl: Ttl) -> ModelProfile:
    match provider:
        case "anthropic":
            family = _family(_CLAUDE, name.replace(".", "-"))
            return _profile(family, family.media, _SECONDS[ttl])
        case "openai":
            family = _family(_GPT, name)
            return _profile(family, family.media, _seconds(name))
        case "openai-chat" if not foreign:
            family = _family(_GPT, name)
            return _profile(family, family.media, _seconds(name))
        case "azure":
            family = _family(_GPT, name)
            media = tuple([kind for kind in family.media if kind in _PICTURES])
            return _profile(family, media, _seconds(name))
        case _:
            return replace(
                _ELSEWHERE,
                context_window=_OWN_WINDOW if provider in OWN else _ELSEWHERE.context_window,
            )


def _family(families: tuple[_Family, ...], name: str) -> _Family:
    return next(each for each in families if fnmatchcase(name, each.names))


def _seconds(name: str) -> float:
    """How long OpenAI keeps a prefix."""
    return 1_800.0 if any(fnmatchcase(name, each) for each in _LONG_CACHES) else 300.0


def _profile(family: _Family, media: tuple[str, ...], seconds: float) -> ModelProfile:
    return ModelProfile(
        context_window=family.window,
        max_output=family.output,
        native_output=family.structured,
        cache_tokens=family.cache,
        cache_seconds=seconds,
        media=media,
    )
