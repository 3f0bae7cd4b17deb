"""What the next model call may cost: how much to reserve, and how long the reply may be.

Pure arithmetic over what is left (L2). The output cap is lowered to what is affordable, but not below a
floor under which a reply would not be worth asking for.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import msgspec

from remit.budget import EXACT, Amount, Dimension, Left
from remit.messages import Usage
from remit.models.base import ModelProfile

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
    """What a call with this prompt and output cap may use at most."""
    tokens = prompt + output if profile.reserve_tokens is None else profile.reserve_tokens
    if profile.reserve_usd is not None:
        usd = profile.reserve_usd
    elif profile.price is not None:
        with localcontext(EXACT):
            usd = _prompt_cost(profile, prompt) + profile.price.output * output / _MILLION
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


def _output_for(usd: Decimal, profile: ModelProfile, prompt: int, cap: int, echoed: bool) -> int:
    """Tokens of output that so much pays for beside the prompt; negative where not even that."""
    if profile.reserve_usd is not None:
        return cap if usd >= profile.reserve_usd else -1
    with localcontext(EXACT):
        rest = usd - _prompt_cost(profile, prompt)
        price = Decimal(0) if profile.price is None else profile.price.output
        price += _prompt_rate(profile) if echoed else 0
        if rest < 0 or price == 0:
            return -1 if rest < 0 else cap
        return min(cap, int(rest * _MILLION // price))


def _prompt_cost(profile: ModelProfile, prompt: int) -> Decimal:
    return _prompt_rate(profile) * prompt / _MILLION


def _prompt_rate(profile: ModelProfile) -> Decimal:
    """US dollars for a million prompt tokens, at the dearest rate they may be billed at."""
    price = profile.price
    if price is None:
        return Decimal(0)
    return price.input if price.cache_write is None else max(price.input, price.cache_write)
