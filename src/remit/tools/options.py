"""What an author declares of a tool, checked before any run: its effect, its ceilings, its name."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Literal, TypeAlias, cast

from remit.errors import ConfigurationError
from remit.excerpt import MIN_RESULT_TOKENS
from remit.tools.resource_names import templates

__all__ = [
    "EFFECT_MISSING",
    "Effect",
    "EffectName",
    "Options",
    "check_description",
    "check_function",
    "check_tool_name",
    "name_of",
    "read_options",
]

DEFAULT_EXPIRES = 86_400.0
"""Seconds for which an approval is waited for: a day."""
_CENTURY = 36_525 * 86_400.0
"""Seconds; the calendar ends not far beyond."""
_MAX_NAME_CHARS = 128

EFFECT_MISSING = (
    "{} needs an effect: what would running it twice do? Write @remit.tool(effect=...) with\n"
    '  "read"        it changes nothing, and may run again freely\n'
    '  "idempotent"  running it again with the same call.key does nothing more than running it once\n'
    '  "confirm"     running it twice does harm: it runs once, after somebody has approved the call'
)


class Effect(StrEnum):
    """What running a tool twice would do."""

    READ = "read"
    """Nothing: it may run again freely."""
    IDEMPOTENT = "idempotent"
    """Nothing more than running it once, as long as the key is the same."""
    CONFIRM = "confirm"
    """Harm: it runs once, after a recorded approval."""


EffectName: TypeAlias = Effect | Literal["read", "idempotent", "confirm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an author declares, checked; the fields are documented on `Tool`."""

    effect: Effect
    timeout: float
    retries: int
    resource: tuple[str, ...] | None
    deterministic: bool
    polling: bool
    eager: bool
    ends_run: bool
    max_result_tokens: int
    usd: Decimal
    tokens: int
    expires: float
    hidden_errors: bool
    elsewhere: bool = False


def read_options(
    name: str,
    *,
    effect: EffectName | None,
    timeout: float,
    retries: int,
    resource: str | Sequence[str] | None,
    deterministic: bool,
    polling: bool,
    eager: bool,
    ends_run: bool,
    max_result_tokens: int,
    usd: Decimal | float | str,
    tokens: int,
    expires: float | None,
    errors: Literal["shown", "hidden"],
    elsewhere: bool = False,
) -> Options:
    """Read the options. Errors: `ConfigurationError` for the first that cannot be."""
    if effect is None:
        raise ConfigurationError(EFFECT_MISSING.format(f"tool {name!r}"))

    def refuse_unless(good: bool, text: str) -> None:
        if not good:
            raise ConfigurationError(f"tool {name!r}: {text}")

    refuse_unless(
        effect in tuple(Effect),
        f"effect={effect!r} is none of " + ", ".join(repr(each.value) for each in Effect),
    )
    kind = Effect(effect)
    refuse_unless(_is_duration(timeout), f"timeout={timeout!r} is no positive number of seconds")
    refuse_unless(_is_count(retries), f"retries={retries!r} is no whole number from 0 on")
    refuse_unless(
        retries == 0 or kind is not Effect.CONFIRM,
        'retries are for effect="read" and "idempotent"; a "confirm" tool runs once per approval',
    )
    refuse_unless(
        not deterministic or kind is Effect.READ, 'deterministic=True is for effect="read" only'
    )
    refuse_unless(
        _is_count(max_result_tokens) and max_result_tokens >= MIN_RESULT_TOKENS,
        f"max_result_tokens={max_result_tokens!r} shows nothing useful; give at least "
        f"{MIN_RESULT_TOKENS}",
    )
    refuse_unless(_is_count(tokens), f"tokens={tokens!r} is no whole number from 0 on")
    refuse_unless(
        expires is None or elsewhere or kind is Effect.CONFIRM,
        'expires is for effect="confirm": nothing else waits for an approval',
    )
    lifetime = DEFAULT_EXPIRES if expires is None else expires
    refuse_unless(
        _is_duration(lifetime),
        f"expires={expires!r} is no positive number of seconds, at most a century",
    )
    refuse_unless(
        errors in ("shown", "hidden"), f'errors={errors!r} is neither "shown" nor "hidden"'
    )
    try:
        price = Decimal(str(usd))
    except InvalidOperation:
        price = Decimal("NaN")
    refuse_unless(price.is_finite() and price >= 0, f"usd={usd} is no amount of US dollars")
    return Options(
        effect=kind,
        timeout=float(timeout),
        retries=retries,
        resource=templates(name, resource),
        deterministic=deterministic,
        polling=polling,
        eager=eager,
        ends_run=ends_run,
        max_result_tokens=max_result_tokens,
        usd=price,
        tokens=tokens,
        expires=float(lifetime),
        hidden_errors=errors == "hidden",
        elsewhere=elsewhere,
    )


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_duration(value: object) -> bool:
    """Whether it is a number of seconds that the clock and the calendar can hold."""
    return type(value) in (int, float) and 0 < cast("float", value) <= _CENTURY


def name_of(function: Callable[..., Any]) -> str:
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not hasattr(inner, "__name__"):
        raise ConfigurationError(
            f"{function!r} has no name of its own; write @remit.tool(name=...)"
        )
    return inner.__name__


def check_tool_name(name: object) -> None:
    """What a wire has no letters for gets an alias there; what people cannot read is refused here."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _MAX_NAME_CHARS
        or not name.isprintable()
        or name != name.strip()
        or name == "<lambda>"
    ):
        suggestion = re.sub(r"[^A-Za-z0-9_-]+", "_", str(name)).strip("_")[:64] or "my_tool"
        raise ConfigurationError(
            f"{name!r} is no name for a tool: it is 1 to {_MAX_NAME_CHARS} characters of one printable line. "
            f"Write name={suggestion!r}"
        )


def check_description(name: str, description: object) -> None:
    if not isinstance(description, str | None):
        raise ConfigurationError(f"tool {name!r}: description={description!r} is no text")


def check_function(what: str, function: object) -> None:
    if not callable(function):
        raise ConfigurationError(f"{what} is {function!r}: it takes a function")
