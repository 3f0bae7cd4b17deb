"""A model around a model: logging, caching, a limit of rate, a second opinion, in one function.

A wrapper is an async generator of chunks. It asks the model beneath once, several times or not at all, and
what it yields is what the loop hears; attempts that the loop makes again pass through it again. Beside it stands
`tools/derived.py`, the same for tools.

It is no way around a limit (L2). It may not ask for more output or more time than the loop has granted, and
what was reported to it is billed: its reply says at least as much as the replies beneath it did. A wrapper
that answers by itself, as a cache does, reports what it likes, or nothing used.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

from remit.amounts import EXACT
from remit.errors import ConfigurationError, ModelError
from remit.messages import Reply, Usage
from remit.models.base import Chunk, Model, ModelProfile, ModelRequest
from remit.models.checked import is_price, is_usage
from remit.models.opening import check_ready, opened
from remit.models.seen import Seen

__all__ = ["AskModel", "ModelWrapper", "WrappedModel", "wrap_model"]

AskModel: TypeAlias = Callable[[ModelRequest], AsyncIterator[Chunk]]
"""Asks the model beneath. Each stream is closed with the wrapper, read to its end or not."""

ModelWrapper: TypeAlias = Callable[[ModelRequest, AskModel], AsyncIterator[Chunk]]

_CHARS_PER_TOKEN = 4


def wrap_model(fn: ModelWrapper) -> Callable[[Model], Model]:
    """Decorate an async generator function that stands between the loop and a model.

        @remit.wrap_model
        async def logged(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
            async for chunk in ask(request):
                yield chunk

        model = logged(model)

    Of `outer(inner(model))` the outer one is asked first. Name and profile are those of the model.
    Errors: `ConfigurationError` for what is no async generator function.
    """
    if not _generates(fn):
        raise ConfigurationError(
            f"wrap_model decorates an async generator function of (request, ask): `async def` and "
            f"`yield`; {getattr(fn, '__qualname__', repr(fn))} is none"
        )

    def wrapped(model: Model) -> Model:
        return WrappedModel(fn, model)

    return wrapped


def _generates(fn: object) -> bool:
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    return inspect.isasyncgenfunction(inner) or inspect.isasyncgenfunction(
        getattr(inner, "__call__", None)  # noqa: B004 - asked what it is, not whether it is there
    )


class WrappedModel:
    """A model, and a function around it."""

    def __init__(self, fn: ModelWrapper, beneath: Model) -> None:
        self._fn = fn
        self.beneath = beneath

    def __repr__(self) -> str:
        return f"<{getattr(self._fn, '__name__', 'wrapper')} around {self.beneath!r}>"

    @property
    def name(self) -> str:
        return self.beneath.name

    @property
    def profile(self) -> ModelProfile:
        return self.beneath.profile

    def check_ready(self) -> None:
        """Whether the model beneath can be asked. Errors: `ConfigurationError`."""
        check_ready(self.beneath)

    def opened(self) -> AbstractAsyncContextManager[None]:
        """What the model beneath keeps open."""
        return opened(self.beneath)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        bill = _Bill()
        asked: list[AsyncIterator[Chunk]] = []

        def ask(wanted: ModelRequest) -> AsyncIterator[Chunk]:
            stream = _asked(self.beneath, _within(request, wanted), bill)
            asked.append(stream)
            return stream

        chunks = self._fn(request, ask)
        try:
            async for chunk in chunks:
                yield bill.in_full(chunk) if isinstance(chunk, Reply) else chunk
        except ModelError as error:
            bill.charge(error)
            raise
        finally:
            await _close([chunks, *reversed(asked)])


def _within(granted: ModelRequest, wanted: ModelRequest) -> ModelRequest:
    """What a wrapper asks for, in the bounds of what it was granted."""
    if wanted.max_output <= granted.max_output and wanted.deadline <= granted.deadline:
        return wanted
    return msgspec.structs.replace(
        wanted,
        max_output=min(wanted.max_output, granted.max_output),
        deadline=min(wanted.deadline, granted.deadline),
    )


async def _asked(model: Model, request: ModelRequest, bill: _Bill) -> AsyncGenerator[Chunk, None]:
    """Ask the model beneath, and keep account of what it reports."""
    entry = bill.open(request)
    stream = model.stream(request)
    try:
        async for chunk in stream:
            if isinstance(chunk, Reply):
                entry.reported, entry.usd = chunk.usage, chunk.usd
            else:
                entry.seen.take(chunk)
            yield chunk
    except ModelError as error:
        entry.reported = error.usage
        raise
    finally:
        await _close([stream])


async def _close(streams: Sequence[AsyncIterator[Chunk]]) -> None:
    """Close them in this order, every one."""
    for stream in streams:
        if isinstance(stream, AsyncGenerator):
            # One that a task of the wrapper's own still reads cannot be closed from here, nor is it ours to.
            with contextlib.suppress(RuntimeError):
                await stream.aclose()


@dataclass(slots=True)
class _Entry:
    """What one request beneath came to."""

    request: ModelRequest
    reported: Usage | None = None
    usd: Decimal | None = None
    """As the provider states it."""
    seen: Seen = field(default_factory=Seen)
    """What came before its end."""

    @property
    def is_reported(self) -> bool:
        return is_usage(self.reported)

    @property
    def usage(self) -> Usage:
        """As reported, or an estimate."""
        if self.reported is not None and self.is_reported:
            return self.reported
        prompt = self.request.transcript.tokens + len(self.request.instructions) // _CHARS_PER_TOKEN
        return self.seen.estimate(prompt)


class _Bill:
    """What the requests beneath one request came to, together."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def open(self, request: ModelRequest) -> _Entry:
        entry = _Entry(request)
        self._entries.append(entry)
        return entry

    def in_full(self, reply: Reply) -> Reply:
        """The reply, with no less usage and cost than was reported beneath it."""
        if not self._entries or not _is_sound(reply):
            return reply  # nothing was asked, or the loop will refuse it
        usage = self._entries[-1].reported if reply.usage is None else reply.usage
        # Where nobody counted the newest request, the loop estimates that one.
        counted = self._entries if usage is not None else self._entries[:-1]
        missing = _lacking(usage or Usage(), sum((each.usage for each in counted), Usage()))
        beside, usd = _larger(reply.beside, missing), self._usd(reply.usd)
        if (usage, beside, usd) == (reply.usage, reply.beside, reply.usd):
            return reply
        guessed = reply.beside_estimated or any(not each.is_reported for each in counted)
        return msgspec.structs.replace(
            reply, usage=usage, beside=beside, beside_estimated=guessed, usd=usd
        )

    def charge(self, error: ModelError) -> None:
        """The same for a failure. A wrapper that never asked was billed nothing."""
        said = error.usage if is_usage(error.usage) else None
        if said is not None or len(self._entries) != 1 or self._entries[0].is_reported:
            least = sum((entry.usage for entry in self._entries), Usage())
            error.usage = _larger(said or Usage(), least)

    def _usd(self, said: Decimal | None) -> Decimal | None:
        stated = [entry.usd for entry in self._entries if is_price(entry.usd)]
        if said is None and len(stated) < len(self._entries):
            return None  # it follows from the usage
        least = functools.reduce(EXACT.add, filter(None, stated), Decimal(0))
        return least if said is None else max(said, least)


def _is_sound(reply: Reply) -> bool:
    return (
        (reply.usage is None or is_usage(reply.usage))
        and is_usage(reply.beside)
        and (reply.usd is None or is_price(reply.usd))
    )


def _lacking(said: Usage, due: Usage) -> Usage:
    """How much more of each count was due."""
    return Usage(
        input=max(0, due.input - said.input),
        cache_read=max(0, due.cache_read - said.cache_read),
        cache_write=max(0, due.cache_write - said.cache_write),
        output=max(0, due.output - said.output),
        reasoning=max(0, due.reasoning - said.reasoning),
    )


def _larger(one: Usage, other: Usage) -> Usage:
    """The larger of each count."""
    return Usage(
        input=max(one.input, other.input),
        cache_read=max(one.cache_read, other.cache_read),
        cache_write=max(one.cache_write, other.cache_write),
        output=max(one.output, other.output),
        reasoning=max(one.reasoning, other.reasoning),
    )
