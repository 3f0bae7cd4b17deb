"""What a cache should have held and did not: a prefix that was sent before, found again or not (X4). Pure.

Every request of a run begins with the one before it, so what a provider caches of one is there to be read by
the next. Where less was read, that is a miss, and it has a cause: something of ours that changed what was sent,
time, or the provider.

Nothing is claimed that is not known: of the first request of an activation, of a reply without reported usage,
of a prompt below what is cached at all (`ModelProfile.cache_tokens`) no miss is told.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from remit.messages import Usage
from remit.models.base import ModelProfile

__all__ = ["Miss", "Sent", "missed"]


class Sent(msgspec.Struct, frozen=True):
    """A request, as far as it matters to the cache of the next one."""

    at: float
    """When it was made, on the event loop's clock."""
    usage: Usage
    """What was reported of it."""
    breaks: Mapping[str, int]
    """How often before it what had been sent was changed, by cause."""
    form: tuple[object, ...]
    """What stands in front of the messages, or is read with them, and may differ from one to the next: the
    choice of tool, the schema of the answer."""
    cut_back: bool = False
    """The wire left something out of it that the one before still had."""


class Miss(msgspec.Struct, frozen=True):
    """A prefix that should have been read from the cache."""

    cause: str
    """`elision`, `media`: what had been sent was changed (X1); `cut_back`: by the wire; `request`: it was asked in
    another form; `expired`: it came later than the cache lasts; `provider`: nothing here explains it."""
    expected: int
    """Tokens that could have been read."""
    cached: int
    """Tokens that were."""


def missed(before: Sent, now: Sent, profile: ModelProfile) -> Miss | None:
    """What `now` did not find of `before`; None where all is well or nothing can be said."""
    least = profile.cache_tokens
    expected, cached = min(before.usage.prompt, now.usage.prompt), now.usage.cache_read
    # Providers count in blocks and leave the last ones out, so a little less is no miss.
    if least is None or expected < least or expected - cached < least:
        return None
    return Miss(_cause(before, now, profile.cache_seconds), expected, cached)


def _cause(before: Sent, now: Sent, lasts: float) -> str:
    for cause, times in now.breaks.items():
        if times != before.breaks.get(cause, 0):
            return cause
    if now.cut_back:
        return "cut_back"
    if now.form != before.form:
        return "request"
    return "expired" if now.at - before.at > lasts else "provider"
