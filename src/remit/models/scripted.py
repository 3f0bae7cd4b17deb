"""A model that says what a script says: the model of tests and demonstrations.

It keeps the contract of `Model` as a good provider does - it streams, reports usage, and refuses a
request that providers would refuse (`validator.py`) - and can be told to break it: late, cut, failing.
It is deliberately no simulation of intelligence: a function of the transcript decides what is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from itertools import count
from typing import Literal, TypeAlias, cast

from remit.canonical import encode
from remit.errors import ConfigurationError, ModelRejected
from remit.messages import (
    Block,
    Json,
    Media,
    Message,
    Opaque,
    Reply,
    StopReason,
    Text,
    ToolResult,
    ToolUse,
    Usage,
)
from remit.models.base import (
    BlockDone,
    Chunk,
    ModelProfile,
    ModelRequest,
    Price,
    TextDelta,
    ToolSpec,
)
from remit.models.validator import InvalidRequest, RequestValidator
from remit.transcript import Transcript

__all__ = [
    "Item",
    "Part",
    "Recorded",
    "Says",
    "Script",
    "ScriptedModel",
    "Step",
    "blocks_of",
    "step_of",
    "stop_reason_of",
]

Part: TypeAlias = "str | Block | tuple[str, Json | str]"
"""A text, a block, or a call as `("tool_name", {...})`; arguments may be the raw JSON text."""

Says: TypeAlias = "Part | Sequence[Part] | Message"
"""One turn: its blocks, or the only one. An empty text is a turn without content."""

Item: TypeAlias = "Says | Reply | Step | Exception | Callable[[Transcript], Item]"
"""What answers one request: a turn, a whole reply, a turn with a fault, an error, or a function."""

Script: TypeAlias = "Sequence[Item] | Callable[[Transcript, ModelRequest], Item]"

DEMO_PROFILE = ModelProfile(
    context_window=10_000_000, price=Price(input=Decimal(3), output=Decimal(15))
)
"""3 US dollars for a million tokens of prompt, 15 for a million of output, and a window that no script fills
unless it means to."""

_CHARS_PER_TOKEN = 4
_MEDIA_CHARS = 4_000
_SERVER_TOOL = b'{"type":"server_tool_use"}'
_PIECES = 4  # a text arrives in about so many deltas, however long it is
_SHORTEST_PIECE = 16  # characters


@dataclass(frozen=True, slots=True)
class Step:
    """One turn, and how it arrives."""

    says: Says = ()
    _: KW_ONLY
    stop_reason: StopReason | None = None
    """None: `TOOL_USE` where there is a call, else `END_TURN`. A turn that pauses gets a block of a
    provider's own tool where it has none, since without one no provider continues it."""
    usage: Usage | Literal["estimated"] | None = "estimated"
    """Estimated from the sizes, at four characters a token; None: the provider reports nothing."""
    usd: Decimal | None = None
    """The cost, where the provider itself states it."""
    delay: float = 0.0
    """Seconds before the first chunk."""
    between: float = 0.0
    """Seconds before each block after the first, and before the reply."""
    error: Exception | None = None
    """Raised instead of the reply."""
    cut_after: int | None = None
    """The stream ends without a reply after so many blocks; with `error`, it fails there."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came in."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    instructions: str
    max_output: int
    deadline: float
    """On the event loop's clock, as `at`."""
    at: float
    output_schema: Json | None = None


class ScriptedModel:
    """Answers the n-th request with the n-th item of a list, or with what a function decides.

    A list is used up by whoever asks; for several runs at a time, or a run that is resumed by a new
    model object, give a function of the transcript. Ids of calls are `call_{n}_{i}`: n messages were
    in the request, i is the call's place in the turn; so they are unique in a transcript.

    `latency` is the delay of every request in seconds, or a function of its number, from 0.
    `strict` refuses what providers refuse. `record` keeps every request in `requests`.

    Errors: `ModelRejected` for an invalid request and when the list is used up, besides those of
    the script.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        profile: ModelProfile = DEMO_PROFILE,
        latency: float | Callable[[int], float] = 0.0,
        strict: bool = True,
        record: bool = False,
    ) -> None:
        if isinstance(script, str):
            raise ConfigurationError(f"a script is a list of items: [{script!r}]")
        self._script = script if callable(script) else tuple(script)
        self._name = name
        self._profile = profile
        self._latency = latency
        self._validator = RequestValidator() if strict else None
        self._requests: list[Recorded] | None = [] if record else None
        self._prompt = _Prompt()
        self.asked = 0
        """Requests so far, refused ones included."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    @property
    def requests(self) -> Sequence[Recorded]:
        """Every request so far. Errors: `ConfigurationError` without `record=True`."""
        if self._requests is None:
            raise ConfigurationError("nothing is recorded: give ScriptedModel record=True")
        return self._requests

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        number, self.asked = self.asked, self.asked + 1
        messages = tuple(request.transcript)
        self._accept(request, messages)
        prompt = self._prompt.measure(request, messages)
        step = self._step(number, request)
        message = _message(step, prefix=f"call_{len(messages)}", issuer=self._name)

        pause = step.delay + self._delay(number)
        for block in message.content[: step.cut_after]:
            if pause:
                await asyncio.sleep(pause)
            if isinstance(block, Text):
                for piece in _pieces(block.text):
                    yield TextDelta(piece)
            yield BlockDone(block)
            pause = step.between
        if pause:
            await asyncio.sleep(pause)
        if step.error is not None:
            raise step.error
        if step.cut_after is None:
            yield _reply(step, message, prompt)

    def _accept(self, request: ModelRequest, messages: tuple[Message, ...]) -> None:
        if self._requests is not None:
            self._requests.append(_recorded(request, messages))
        if self._validator is not None:
            try:
                self._validator.check(messages, request.tools)
            except InvalidRequest as fault:
                raise ModelRejected(f"invalid request: {fault}", usage=Usage()) from fault
            if request.output_schema is not None and not self._profile.native_output:
                raise ModelRejected("invalid request: its text follows no schema", usage=Usage())

    def _delay(self, number: int) -> float:
        return self._latency(number) if callable(self._latency) else self._latency

    def _step(self, number: int, request: ModelRequest) -> Step:
        if callable(self._script):
            item = self._script(request.transcript, request)
        elif number < len(self._script):
            item = self._script[number]
        else:
            raise ModelRejected(
                f"the script is over: request {number + 1} of a script of {len(self._script)}",
                usage=Usage(),
            )
        while callable(item):
            item = item(request.transcript)
        return step_of(item)


class _Prompt:
    """The size of prompts: what the last request began with is a cache hit, and not measured again."""

    def __init__(self) -> None:
        self._head: tuple[str, tuple[ToolSpec, ...]] = ("", ())
        self._known: tuple[Message, ...] = ()  # messages that are measured
        self._chars = 0

    def measure(self, request: ModelRequest, messages: tuple[Message, ...]) -> Usage:
        """The prompt's tokens, estimated."""
        head = (request.instructions, request.tools)
        known, cached = len(self._known), self._chars
        if head != self._head or messages[:known] != self._known:
            known = cached = 0
        chars = cached or len(request.instructions) + sum(map(_tool_chars, request.tools))
        for message in messages[known:]:
            chars += sum(map(_chars, message.content))
        self._head, self._known, self._chars = head, messages, chars
        return Usage(input=_tokens(chars - cached), cache_read=_tokens(cached))


def _recorded(request: ModelRequest, messages: tuple[Message, ...]) -> Recorded:
    return Recorded(
        messages=messages,
        tools=request.tools,
        instructions=request.instructions,
        max_output=request.max_output,
        deadline=request.deadline,
        output_schema=request.output_schema,
        at=asyncio.get_running_loop().time(),
    )


def step_of(item: Says | Reply | Step | Exception) -> Step:
    """A turn of a script, and how it arrives."""
    match item:
        case Step():
            return item
        case Reply(message, stop_reason, usage, usd):
            return Step(message, stop_reason=stop_reason, usage=usage, usd=usd)
        case Exception():
            return Step(error=item)
        case _:
            return Step(item)


def blocks_of(says: Says, ids: Iterator[str]) -> tuple[Block, ...]:
    """The blocks of a turn. Its calls take their ids from `ids`, those that have one aside."""
    if isinstance(says, Message):
        return says.content
    return tuple(_block(part, ids) for part in _parts(says))


def stop_reason_of(step: Step, message: Message) -> StopReason:
    """Why a turn ends: as the script says, else by whether there is a call."""
    if step.stop_reason is not None:
        return step.stop_reason
    return StopReason.TOOL_USE if message.tool_uses else StopReason.END_TURN


def _message(step: Step, *, prefix: str, issuer: str) -> Message:
    if isinstance(step.says, Message):
        message = step.says
    else:
        ids = (f"{prefix}_{i}" for i in count())
        message = Message("assistant", blocks_of(step.says, ids))
    if step.stop_reason is StopReason.PAUSE and not _pauses(message):
        message = Message("assistant", (*message.content, Opaque(issuer, _SERVER_TOOL)))
    return message


def _parts(says: Part | Sequence[Part]) -> Sequence[Part]:
    match says:
        case str():
            return (says,) if says else ()
        case Text() | Media() | ToolUse() | ToolResult() | Opaque():
            return (says,)
        case (str(name), str() | Mapping() as arguments) if isinstance(says, tuple):
            return ((name, arguments),)
        case list() | tuple():
            return cast("Sequence[Part]", says)  # what else is a tuple was told apart just above
        case _:
            raise _no_turn(says)


def _block(part: Part, ids: Iterator[str]) -> Block:
    if isinstance(part, str):
        return Text(part)
    match part:
        case (str(name), str(arguments)):
            return ToolUse(next(ids), name, arguments)
        case (str(name), Mapping() as arguments):
            return ToolUse(next(ids), name, encode(dict(arguments)).decode())
        case Text() | Media() | ToolUse() | ToolResult() | Opaque():
            return part
        case _:
            raise _no_turn(part)


def _no_turn(given: object) -> ConfigurationError:
    return ConfigurationError(
        'a turn of a script is a text, a block, a call as ("tool_name", {...}), or a list of these; '
        f"it holds {given!r:.200}"
    )


def _pauses(message: Message) -> bool:
    return any(isinstance(block, Opaque) for block in message.content)


def _reply(step: Step, message: Message, prompt: Usage) -> Reply:
    usage = step.usage
    if usage == "estimated":
        output = _tokens(sum(map(_chars, message.content)))
        usage = Usage(input=prompt.input, cache_read=prompt.cache_read, output=output)
    return Reply(message, stop_reason_of(step, message), usage, step.usd)


def _pieces(text: str) -> Iterator[str]:
    length = max(_SHORTEST_PIECE, -(-len(text) // _PIECES))
    return (text[start : start + length] for start in range(0, len(text), length))


def _tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)


def _chars(block: Block) -> int:
    if isinstance(block, Text):
        return len(block.text)
    if isinstance(block, ToolUse):
        return len(block.name) + len(block.arguments)
    if isinstance(block, ToolResult):
        return sum(map(_chars, block.content))
    return _MEDIA_CHARS if isinstance(block, Media) else len(block.data)


def _tool_chars(tool: ToolSpec) -> int:
    return len(tool.name) + len(tool.description) + len(encode(dict(tool.parameters)))
