"""What models cost: the list prices that `genai-prices` keeps, as `Price`.

They are those that were in the installed version of that library: nothing is fetched, ever. A newer version
knows newer prices; a price of your own goes to `remit.model(..., price=...)`, or for the command line into
`[prices]` of remit.toml. A model whose price nobody knows has none, and a limit in US dollars on it is refused
at the start (L2) rather than held by a guess.

The library is loaded when a price is first asked for, which takes a tenth of a second; not by `import remit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from remit.models.base import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

__all__ = ["OWN", "Listing", "Ttl", "listing_of", "near_name", "price_of"]

Ttl: TypeAlias = Literal["5m", "1h"]
"""How long what is written to the cache is to last, where the provider sells more than one way."""

_SOLD_BY: Final[Mapping[str, str]] = {
    "bedrock": "aws",
    "gemini": "google",
    "openai-chat": "openai",
    "xai": "x-ai",
}
"""Names of remit's that the library has other names for."""
OWN: Final = frozenset({"llamacpp", "ollama", "vllm"})
"""Servers that people run themselves: nobody lists a price."""
_ANYBODYS: Final = frozenset({"openai-chat"})
"""Spoken by all kinds of servers: at a foreign address nothing is known but what the address says."""


class Listing(NamedTuple):
    """What is listed of a model."""

    price: Price | None
    """None where it is not billed by tokens of prompt and output alone, or not at all."""
    context_window: int | None
    """In tokens; None where it is not listed."""


def price_of(
    provider: str,
    model: str,
    *,
    base_url: str | None = None,
    ttl: Ttl = "5m",
    at: datetime | None = None,
) -> Price | None:
    """The list price of a model; None where it is not known.

    `provider` is the prefix of a name, such as `anthropic`; `base_url` where the model is reached, if that is
    not the provider's own address. Prices have dates: `at` is now where it is not given. Where one depends on
    the hour, as DeepSeek's do, it is the dearest of that day: a run may last into the dear hours, and a
    reservation has to hold (L2).
    """
    listing = listing_of(provider, model, base_url=base_url, ttl=ttl, at=at)
    return None if listing is None else listing.price


def listing_of(
    provider: str,
    model: str,
    *,
    base_url: str | None = None,
    ttl: Ttl = "5m",
    at: datetime | None = None,
) -> Listing | None:
    """The same with what else is listed; None for a model that is not."""
    found = None if provider in OWN else _find(provider, model, base_url)
    if found is None:
        return None
    day = datetime.now(UTC) if at is None else at
    prices = [_read(each, ttl) for each in _in_force(found, day)]
    known = [price for price in prices if price is not None]
    price = _dearest(known) if known and len(known) == len(prices) else None
    return Listing(price, found.context_window)


def near_name(provider: str, model: str) -> str | None:
    """A listed model of that provider whose name comes near; None where none does, or that one is listed."""
    if provider in OWN or listing_of(provider, model) is not None:
        return None
    from difflib import get_close_matches

    from genai_prices.data import providers

    sold_by = _SOLD_BY.get(provider, provider)
    names = [each.id for known in providers if known.id == sold_by for each in known.models]
    return next(iter(get_close_matches(model.lower(), names, n=1, cutoff=0.8)), None)


def _find(provider: str, model: str, base_url: str | None) -> ModelInfo | None:
    from genai_prices import Usage, calc_price

    if base_url is not None:
        with suppress(LookupError):
            return calc_price(Usage(), model, provider_api_url=base_url).model
        if provider in _ANYBODYS:
            return None
    with suppress(LookupError):
        return calc_price(Usage(), model, provider_id=_SOLD_BY.get(provider, provider)).model
    return None


def _in_force(model: ModelInfo, day: datetime) -> list[ModelPrice]:
    """The prices that hold at some time of that day."""
    if not isinstance(model.prices, list):
        return [model.prices]
    hours = {time(0)}
    for conditional in model.prices:
        for name in ("start_time", "end_time"):
            hour = getattr(conditional.constraint, name, None)
            if isinstance(hour, time):
                hours.add(hour.replace(tzinfo=None))
    date = day.astimezone(UTC).date()
    found: list[ModelPrice] = []
    for hour in sorted(hours):
        price = model.get_prices(datetime.combine(date, hour, UTC))
        if price not in found:
            found.append(price)
    return found


def _read(listed: ModelPrice, ttl: Ttl) -> Price | None:
    """As a `Price`; None where a request costs more than its tokens, or they have no price."""
    if listed.input_mtok is None or listed.output_mtok is None or listed.requests_kcount:
        return None
    kinds = (
        listed.input_mtok,
        listed.output_mtok,
        listed.output_reasoning_mtok,
        listed.cache_read_mtok,
        listed.cache_write_mtok,
        listed.cache_write_1h_mtok,
    )
    tiers = sorted({start for kind in kinds for start in _starts(kind)})
    base, *above = [_at([_above(kind, start) for kind in kinds], ttl) for start in (-1, *tiers)]
    if not above:
        return base
    return Price(
        input=base.input,
        output=base.output,
        cache_read=base.cache_read,
        cache_write=base.cache_write,
        above=tuple(zip(tiers, above, strict=True)),
    )


def _at(rates: list[Decimal | None], ttl: Ttl) -> Price:
    """The price that these rates make, in the order of `_read`."""
    fresh, output, reasoning, read, write, write_1h = rates
    fresh, output = fresh or Decimal(0), output or Decimal(0)
    if ttl == "1h" and write is not None:
        # Where the longer one is not listed: twice the input, which is what Anthropic lists everywhere (2026-11).
        write = write_1h or 2 * fresh
    # Reasoning is a part of the output and is not told apart in a price.
    return Price(
        input=fresh, output=max(output, reasoning or output), cache_read=read, cache_write=write
    )


def _starts(kind: Decimal | TieredPrices | None) -> Iterable[int]:
    return [tier.start for tier in getattr(kind, "tiers", ())]


def _above(kind: Decimal | TieredPrices | None, start: int) -> Decimal | None:
    """The rate for prompts of more than so many tokens."""
    if kind is None or isinstance(kind, Decimal):
        return kind
    return next((tier.price for tier in reversed(kind.tiers) if tier.start <= start), kind.base)


def _dearest(prices: list[Price]) -> Price:
    """Of each rate the highest."""
    first, *others = prices
    if not others:
        return first
    starts = sorted({start for price in prices for start, _ in price.above})
    base, *above = [_highest([price.at(start + 1) for price in prices]) for start in (-1, *starts)]
    return Price(
        input=base.input,
        output=base.output,
        cache_read=base.cache_read,
        cache_write=base.cache_write,
        above=tuple(zip(starts, above, strict=True)),
    )


def _highest(prices: list[Price]) -> Price:
    return Price(
        input=max(price.input for price in prices),
        output=max(price.output for price in prices),
        cache_read=_most([(price.cache_read, price.input) for price in prices]),
        cache_write=_most([(price.cache_write, price.input) for price in prices]),
    )


def _most(rates: list[tuple[Decimal | None, Decimal]]) -> Decimal | None:
    """None where none is told apart from the input."""
    if all(rate is None for rate, _ in rates):
        return None
    return max(fresh if rate is None else rate for rate, fresh in rates)
