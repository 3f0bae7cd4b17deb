"""What the next model call may cost: how much to reserve, and how long the reply may be.

Pure arithmetic over what is left (L2). The output cap is lowered to what is affordable, but not below a
floor under which a reply would not be worth asking for.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import NamedTuple

import msgspec

from remit.amounts import EXACT, Amount
from remit.budget import Dimension, Left
from remit.messages import Usage
from remit.models.base import ModelProfile, Price

__all__ = ["CLOSING_OUTPUT", "OUTPUT_FLOOR", "Quote", "cost_of", "quote", "worst_case"]

OUTPUT_FLOOR = 1_024
"""Tokens of output below which a step is not begun, unless the user's own cap is lower."""
CLOSING_OUTPUT = 1_024
"""Tokens of output of the hand-back."""
_MILLION = Decimal(1_000_000)


class Quote(msgspec.Struct, frozen=True):
    """An affordable call."""

    amount: Amount
    """To be reserved."""
    max_output: int
    """Output cap in tokens."""


def quote(
    profile: ModelProfile,
    *,
    prompt: int,
    cap: int,
    floor: int,
    left: Left,
    steps: int,
    echoed: bool,
) -> Quote | Dimension:
    """The largest affordable call with at most `cap` and at least `floor` tokens of output.

    Units: tokens; `prompt` is the estimated prompt, `steps` 1 for a step and 0 for the hand-back.
    `echoed`: the output is paid twice, for it will stand in the prompt of the hand-back (L5).
    Returns the dimension that lacks room where there is no such call.
    """
    if left.steps < steps:
        return "steps"
    affordable = cap
    if profile.reserve_tokens is None:
        affordable = min(affordable, (left.tokens - prompt) // (2 if echoed else 1))
        if affordable < floor:
            return "tokens"
    elif left.tokens < profile.reserve_tokens:
        return "tokens"
    if left.usd is not None:
        affordable = min(affordable, _output_for(left.usd, profile, prompt, cap, echoed))
        if affordable < floor:
            return "usd"
    return Quote(worst_case(profile, prompt=prompt, output=affordable, steps=steps), affordable)


def worst_case(profile: ModelProfile, *, prompt: int, output: int, steps: int) -> Amount:
    """What a call with this prompt and output cap may use at most.

    Nobody knows beforehand what of a prompt is read from a cache and what is written to one, so every token of
    it is taken at the dearest way to bill it.
    """
    tokens = prompt + output if profile.reserve_tokens is None else profile.reserve_tokens
    if profile.reserve_usd is not None:
        usd = profile.reserve_usd
    elif profile.price is not None:
        with localcontext(EXACT):
            rates = _dearest(profile.price, prompt)
            usd = (rates.input * prompt + rates.output * output) / _MILLION
    else:
        usd = Decimal(0)
    return Amount(steps=steps, tokens=tokens, usd=usd)


def cost_of(profile: ModelProfile, usage: Usage, stated: Decimal | None) -> Decimal:
    """What a call did cost: as the provider states it, else by the model's price.

    Without either it is what the model declared as the worst, unless nothing was used at all.
    """
    if stated is not None:
        return stated
    if profile.price is not None:
        return profile.price.cost(usage)
    return (profile.reserve_usd or Decimal(0)) if usage.total else Decimal(0)


class _Rates(NamedTuple):
    """US dollars for a million tokens, at the dearest that they may be billed at."""

    input: Decimal
    output: Decimal


def _dearest(price: Price, prompt: int) -> _Rates:
    """The rates of a request whose prompt has at most so many tokens: of every tier that it may fall into."""
    rates = _worst_of(price)
    for tokens, tier in price.above:
        if prompt > tokens:
            rates = _Rates(*map(max, rates, _worst_of(tier)))
    return rates


def _worst_of(price: Price) -> _Rates:
    """The rates of a price without regard to its tiers."""
    rate = price.input
    for way in (price.cache_write, price.cache_read):
        if way is not None and way > rate:
            rate = way
    return _Rates(rate, price.output)


def _output_for(usd: Decimal, profile: ModelProfile, prompt: int, cap: int, echoed: bool) -> int:
    """Tokens of output that so much pays for beside the prompt; negative where not even that."""
    if profile.reserve_usd is not None:
        return cap if usd >= profile.reserve_usd else -1
    if profile.price is None:
        return cap if usd >= 0 else -1
    with localcontext(EXACT):
        rates = _dearest(profile.price, prompt)
        rest = usd - rates.input * prompt / _MILLION
        if not echoed:
            return _tokens_for(rest, rates.output, cap)
        return _echoed_for(rest, profile.price, rates, prompt, cap)


def _echoed_for(rest: Decimal, price: Price, rates: _Rates, prompt: int, cap: int) -> int:
    """The same where the output will stand in the prompt of the hand-back.

    The hand-back is held back for (L5) as if the output were short. Where a longer one lifts its prompt into a
    dearer tier, all of that prompt costs more, so each tier that can be reached is weighed for itself.
    """
    short = min(cap, CLOSING_OUTPUT)
    held, base = _dearest(price, prompt + short), prompt + short
    edges = [tokens for tokens, _ in price.above if prompt < tokens < prompt + cap]
    best = -1
    for ends in (*edges, prompt + cap):
        reached = _dearest(price, ends)
        jump = (reached.input - held.input) * base + (reached.output - held.output) * short
        room = rest - max(jump, Decimal(0)) / _MILLION
        best = max(best, _tokens_for(room, rates.output + reached.input, min(cap, ends - prompt)))
    return best


def _tokens_for(usd: Decimal, rate: Decimal, cap: int) -> int:
    if usd < 0 or rate == 0:
        return -1 if usd < 0 else cap
    return min(cap, int(usd * _MILLION // rate))
