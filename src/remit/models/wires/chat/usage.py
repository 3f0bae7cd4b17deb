"""What a reply used, in disjoint parts (case 95), from the many fields that servers have for it.

`prompt_tokens` includes what came from a cache, `completion_tokens` includes reasoning. DeepSeek also tells hits
and misses apart, Mistral calls hits `num_cached_tokens`, and Gemini's compatible endpoint leaves its reasoning
out of everything but the total.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, cast

from remit.messages import Usage

__all__ = ["cost_of", "usage_json", "usage_of"]

_MOST: Final = 2**63 - 1


def usage_of(value: Any) -> Usage | None:
    """The usage that an object of a response tells; None where it is none."""
    if not isinstance(value, dict):
        return None
    table = cast("dict[str, Any]", value)
    prompt, completion = _count(table, "prompt_tokens"), _count(table, "completion_tokens")
    hit, miss = _count(table, "prompt_cache_hit_tokens"), _count(table, "prompt_cache_miss_tokens")
    if prompt is None and hit is not None and miss is not None:
        prompt = hit + miss
    if not prompt and not completion:
        return None  # zeros too: what a server fills in that does not count
    prompt, completion = prompt or 0, completion or 0
    details = _table(table, "prompt_tokens_details")
    reads = (_count(details, "cached_tokens"), hit, _count(table, "num_cached_tokens"))
    read = min(next((each for each in reads if each is not None), 0), prompt)
    write = min(_count(details, "cache_write_tokens") or 0, prompt - read)
    reasoning = _count(_table(table, "completion_tokens_details"), "reasoning_tokens") or 0
    hidden = max((_count(table, "total_tokens") or 0) - prompt - completion, 0)
    output = completion + hidden
    return Usage(prompt - read - write, read, write, output, min(reasoning + hidden, output))


def cost_of(value: Any) -> Decimal | None:
    """What a server says that the reply cost; None where somebody else is billed or it says nothing."""
    if not isinstance(value, dict):
        return None
    table = cast("dict[str, Any]", value)
    cost = table.get("cost")
    if type(cost) not in {int, float} or table.get("is_byok") is True:
        return None
    usd = Decimal(repr(cost))
    return usd if usd.is_finite() and usd >= 0 else None


def usage_json(usage: Usage) -> dict[str, Any]:
    """The same as OpenAI writes it."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _count(value: Mapping[str, Any], key: str) -> int | None:
    found = value.get(key)
    return found if type(found) is int and 0 <= found <= _MOST else None
