"""The protocol of a model: one streamed call.

A model turns a `ModelRequest` into a stream of `Chunk`s that ends in exactly one `Reply`. It keeps no
history, runs no tool, retries nothing and knows no budget: that is the loop's. Beside it stands
`scripted.py`, the model of tests and demonstrations; codecs and transports for real providers
implement the same protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from remit.amounts import EXACT
from remit.artifacts import plain_type
from remit.errors import ConfigurationError
from remit.explained import explained
from remit.messages import Block, Reply, Usage
from remit.transcript import Transcript

__all__ = [
    "CUT_BACK",
    "BlockDone",
    "Chunk",
    "Model",
    "ModelProfile",
    "ModelRequest",
    "Notice",
    "Price",
    "Settings",
    "TextDelta",
    "ToolSpec",
    "Underway",
]

_MILLION = Decimal(1_000_000)


class TextDelta(msgspec.Struct, frozen=True):
    """A piece of text of the block that is being written."""

    text: str


class BlockDone(msgspec.Struct, frozen=True):
    """A block that is complete. Blocks come in the order in which the reply holds them."""

    block: Block


class Notice(msgspec.Struct, frozen=True):
    """Something that people should know of this request. It is told as an event and changes nothing."""

    what: str
    """A stable word, such as `tool_set_aside`."""
    text: str
    """A sentence for people."""


class Underway(msgspec.Struct, frozen=True):
    """What of a reply has come that is neither shown nor complete. It bills a reply that never ends, and is nothing
    else: whoever reads a stream may pass it over.
    """

    chars: int = 0
    """Characters since the last chunk of this kind: thinking, arguments of calls."""
    usage: Usage | None = None
    """What the provider has reported until now, where it was not told before."""


CUT_BACK: Final = "cut_back"
"""`Notice.what` where a wire left something out that it had sent before, so that a cached prefix is lost."""

Chunk: TypeAlias = TextDelta | BlockDone | Notice | Underway | Reply


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema 2020-12, root `type: object`."""


@explained("Settings(max_output=..., thinking=..., tool_choice=..., extra={...})")
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the model is asked."""

    max_output: int | None = None
    """Output cap in tokens; None is 8,192 or the model's own, if lower."""
    thinking: int | None = None
    """Tokens of thinking, where the model has it."""
    tool_choice: Literal["auto", "any", "none"] | str = "auto"
    """For the first step only; a tool's name forces that tool."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Handed to the provider as it stands."""

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for a cap that is none."""
        for name, tokens in (("max_output", self.max_output), ("thinking", self.thinking)):
            if tokens is not None and (type(tokens) is not int or tokens <= 0):
                raise ConfigurationError(
                    f"Settings({name}={tokens!r}): give a whole number of tokens above zero"
                )


@explained('Price(input=Decimal("3"), output=Decimal("15"))')
@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    """None: as input."""
    cache_write: Decimal | None = None
    """None: as input."""
    above: tuple[tuple[int, Price], ...] = ()
    """Tiers, the lowest first: a prompt of more than so many tokens is billed at that price, all of it and its
    output too."""

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for what is no price."""
        for price in (self.input, self.output, self.cache_read, self.cache_write):
            if price is not None and not (
                isinstance(price, Decimal)  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
                and price.is_finite()
                and price >= 0
            ):
                raise ConfigurationError(
                    f'{price!r} is no price: give US dollars for a million tokens, as Decimal("3")'
                )
        if self.above:
            _check_tiers(self.above)

    def at(self, prompt: int) -> Price:
        """The price of a request with so many tokens of prompt."""
        found = self
        for tokens, price in self.above:
            if prompt > tokens:
                found = price
        return found

    def cost(self, usage: Usage) -> Decimal:
        """What the usage of one request costs, in US dollars."""
        price = self.at(usage.prompt) if self.above else self
        read = price.input if price.cache_read is None else price.cache_read
        write = price.input if price.cache_write is None else price.cache_write
        with localcontext(EXACT):  # whatever decimal context the caller, or a tool, has set
            return (
                price.input * usage.input
                + read * usage.cache_read
                + write * usage.cache_write
                + price.output * usage.output
            ) / _MILLION


def _check_tiers(tiers: tuple[object, ...]) -> None:
    """Errors: `ConfigurationError` for what are no tiers."""
    last = 0
    for tier in tiers if isinstance(tiers, tuple) else (None,):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        match tier:
            case (int(tokens), Price(above=())) if tokens > last:
                last = tokens
            case _:
                raise ConfigurationError(
                    f"above={tiers!r}: give pairs of tokens of prompt and a price without tiers, "
                    "the lowest first, such as ((200_000, Price(...)),)"
                )


_NEEDED: Final = ("context_window", "max_output")


@explained("ModelProfile(context_window=..., max_output=..., price=..., media=...)")
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What the loop must know of a model to hold limits over it."""

    context_window: int = 200_000
    """Tokens of prompt and output together."""
    max_output: int = 8_192
    """The model's own output cap, in tokens."""
    native_output: bool = False
    """It holds its final text to the schema of a request (`ModelRequest.output_schema`)."""
    price: Price | None = None
    """None: unknown, and a usd limit is refused at the start."""
    reserve_tokens: int | None = None
    """What one call may use in the worst case, declared by a model whose output cap is not enforced."""
    reserve_usd: Decimal | None = None
    """The same in US dollars; also the way to put a price on calls that are not billed by token."""
    cache_tokens: int | None = None
    """The shortest prompt whose beginning is cached, in tokens; None: no cache is expected to be there."""
    cache_seconds: float = 300.0
    """How long a cached beginning lasts after it was last used."""
    media: tuple[str, ...] = ()
    """What the endpoint reads in results of tools, such as `image/png` or `image/*`. Anything else is told
    to the model as a note with a handle (X3)."""

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for what is no number of tokens, no price and no pattern of media."""
        for name in ("context_window", "max_output", "reserve_tokens", "cache_tokens"):
            tokens: object = getattr(self, name)
            least = 1 if name in _NEEDED else 0
            optional = tokens is None and name not in _NEEDED
            if not optional and (type(tokens) is not int or tokens < least):
                raise ConfigurationError(
                    f"ModelProfile({name}={tokens!r}): give a whole number of tokens"
                )
        if not isinstance(self.price, Price | None):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ConfigurationError(
                f"ModelProfile(price={self.price!r}): give a remit.Price, for a million tokens"
            )
        media: object = self.media
        if type(media) is not tuple or not all(
            isinstance(each, str) and "/" in each  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            for each in self.media
        ):
            raise ConfigurationError(
                f'media={media!r}: give media types or patterns, such as ("image/*",)'
            )

    def reads(self, media_type: str) -> bool:
        """Whether the endpoint reads this media type in results of tools."""
        if not self.media:
            return False
        kind = plain_type(media_type)
        return any(fnmatchcase(kind, pattern.lower()) for pattern in self.media)


class ModelRequest(msgspec.Struct, frozen=True):
    """One request, complete."""

    instructions: str
    transcript: Transcript
    """Valid and without owed tool uses; read-only for the model."""
    tools: tuple[ToolSpec, ...]
    settings: Settings
    max_output: int
    """Output cap of this request in tokens, after the budget."""
    deadline: float
    """On the event loop's clock."""
    output_schema: Mapping[str, Any] | None = None
    """What a final text has to fit, root `type: object`; only where the profile says `native_output`."""
    scratch: dict[object, Any] = {}
    """What models keep from one request of a run to the next, each under a key of its own. Never stored."""


class Model(Protocol):
    """One streamed call to a model.

    It may also offer `opened()`, an async context manager that keeps connections open, and `check_ready()`, which raises
    `ConfigurationError` where something is missing that every request needs (`opening.py`).
    """

    @property
    def name(self) -> str:
        """Stable and printable, such as `anthropic:claude-sonnet-5-5`."""
        ...

    @property
    def profile(self) -> ModelProfile: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Ask once.

        Shape: any number of deltas and complete blocks, then exactly one `Reply` whose content is
        the complete blocks in order.
        Errors: `ModelUnavailable`, `ModelRejected`, `ModelProtocolError`; a stream that ends without
        a `Reply` is a failed attempt. Cancellation passes through.
        """
        ...
