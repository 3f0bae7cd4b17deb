"""A provider without sockets: a request in, a response out.

It looks at a request as the real one does - path, key, body - and refuses it in the provider's words, else plays
the next item of its script. `server.py` puts it behind a socket, `memory.py` in the place of one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from remit.errors import (
    ConfigurationError,
    ContextExceeded,
    ModelProtocolError,
    ModelUnavailable,
)
from remit.messages import Block, Message, Opaque, Reply, StopReason, Usage
from remit.models.base import ModelRequest
from remit.models.scripted import Item, Says, Step, blocks_of, step_of, stop_reason_of
from remit.models.wires import parse
from remit.testing.protocol import Refused as Refusal
from remit.testing.protocol import judge
from remit.testing.serve.anthropic import AnthropicWire
from remit.testing.serve.cache import SHORTEST, AutomaticCache, MarkedCache
from remit.testing.serve.chat import ChatWire
from remit.testing.serve.faults import Answer, Cut, Fails, Raw, Refused, Spoils
from remit.testing.serve.responses import ResponsesWire
from remit.testing.serve.turn import (
    NO_ID,
    ErrorKind,
    Ids,
    Turn,
    Wire,
    json_bytes,
    output_tokens,
)
from remit.testing.serve.written import EVENT_STREAM, JSON, Frame, Written, in_frames
from remit.transcript import Transcript

__all__ = ["TEST_KEY", "Act", "Play", "Received", "ScriptedProvider"]

TEST_KEY: Final = "test-key"
"""The key that a provider of tests takes, if no other is named."""

Act: TypeAlias = "Item | Spoils | Refused | Answer | Raw | Callable[[Transcript], Act]"
"""What answers one request: an item as `ScriptedModel` has them, or a fault."""

Play: TypeAlias = "Sequence[Act] | Callable[[Transcript, ModelRequest], Act]"
"""A script: the n-th item answers the n-th request that is accepted, or a function decides."""

_BESIDE: Final = b'{"type":"remit.beside"'
_MESSAGE: Final = b'{"type":"remit.message"'

_WIRES: Final[Mapping[str, Callable[[str], Wire]]] = {
    "anthropic": lambda _dialect: AnthropicWire(),
    "openai": lambda _dialect: ResponsesWire(),
    "openai-chat": ChatWire,
}


class Received(msgspec.Struct, frozen=True):
    """A request as it came."""

    method: str
    path: str
    """With the query, if there was one."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    at: float
    """On the event loop's clock."""

    @property
    def json(self) -> dict[str, Any]:
        """The body. Errors: `ValueError` where it is no JSON object."""
        value = msgspec.json.decode(self.body)
        if not isinstance(value, dict):
            raise ValueError("the body is no object")
        return cast("dict[str, Any]", value)


class _NotPlayed(Exception):
    """A request is refused, whatever the script says."""

    def __init__(self, written: Written) -> None:
        super().__init__(written.status)
        self.written = written


class ScriptedProvider:
    """Plays a script on a wire.

    `key` is what a request has to carry. `models` are those that there are; None: all. `ids` names the calls for
    which the script has no id. `cache_tokens` is the shortest beginning of a prompt that is cached. Without
    `strict`, bodies are not judged. `dialect` is the server that speaks a wire of OpenAI's, such as `mistral`.
    """

    def __init__(
        self,
        script: Play,
        wire: str = "anthropic",
        *,
        key: str = TEST_KEY,
        models: Sequence[str] | None = None,
        ids: Ids | None = None,
        cache_tokens: int = SHORTEST,
        strict: bool = True,
        dialect: str = "openai",
    ) -> None:
        """Errors: `ConfigurationError` for a wire that nobody here writes, and for a script that is a text."""
        if wire not in _WIRES:
            raise ConfigurationError(f"no wire is called {wire!r}: there are {', '.join(_WIRES)}")
        if isinstance(script, str):
            raise ConfigurationError(f"a script is a list of items: [{script!r}]")
        if not (callable(script) or isinstance(script, Iterable)):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ConfigurationError(f"a script is a list of items, or a function, not {script!r}")
        if isinstance(models, str):
            raise ConfigurationError(f"models= is a list of names: [{models!r}]")
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ConfigurationError("key= is a text")
        self.wire = _WIRES[wire](dialect)
        self.dialect = dialect
        self._script = script if callable(script) else tuple(script)
        self._key = key
        self._models = models
        self._ids = ids
        marked = wire == "anthropic"
        self._cache = (MarkedCache if marked else AutomaticCache)(shortest=cache_tokens)
        self._judge = judge(wire, dialect=dialect) if strict else None
        self._stored: dict[str, list[Any]] = {}
        """The whole input and output up to each response that is stored."""
        self._played = 0
        self.requests: list[Received] = []
        """Every request so far, refused ones included."""
        self.refusals: list[str] = []
        """Why bodies were refused; empty as long as the client keeps to the protocol."""

    def forget(self) -> None:
        """Lose every stored response, as a server does after its time."""
        self._stored.clear()

    def answer(self, request: Received) -> Written:
        """The response. Errors: those of a function of the script."""
        self.requests.append(request)
        try:
            body = self._accepted(request)
            act = self._next(body)
        except _NotPlayed as refused:
            return refused.written
        return self._written(act, body)

    # What is refused

    def _accepted(self, request: Received) -> dict[str, Any]:
        """The body of a request that a provider takes."""
        if request.path.partition("?")[0] != self.wire.path:
            raise self._no("path")
        if request.method != "POST":
            raise self._no("bad_request", f"Method {request.method} is not allowed")
        if self.wire.key(request.headers) != self._key:
            raise self._no("key")
        try:
            body = request.json
        except ValueError as error:
            raise self._broken(f"the body is no JSON object: {error}") from None
        if self._models is not None and body.get("model") not in self._models:
            raise self._no("model")
        self._joined(body)  # what it refers to is there
        if self._judge is not None:
            try:
                self._judge.request(body, headers=request.headers)
            except Refusal as refusal:
                self.refusals.append(str(refusal))
                frames = (Frame(json_bytes(refusal.body)),)
                raise _NotPlayed(Written(refusal.status, frames=frames)) from None
        return body

    def _no(self, kind: ErrorKind, text: str | None = None) -> _NotPlayed:
        return _NotPlayed(self._refused(Refused(kind, text)))

    def _broken(self, text: str) -> _NotPlayed:
        """The client has broken the protocol."""
        self.refusals.append(text)
        return self._no("bad_request", text)

    def _joined(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body with what the server has stored of the conversation in front."""
        before = body.get("previous_response_id")
        if before is None or self.wire.name != "openai":
            return body
        if before not in self._stored:
            raise self._forgotten(str(before))
        return {**body, "input": [*self._stored[before], *_items(body)]}

    def _forgotten(self, response: str) -> _NotPlayed:
        text = f"Previous response with id '{response}' not found."
        status, body = self.wire.refused("bad_request", text)
        body["error"] |= {"code": "previous_response_not_found", "param": "previous_response_id"}
        return _NotPlayed(Written(status, frames=(Frame(json_bytes(body)),)))

    # What is said

    def _next(self, body: dict[str, Any]) -> Act:
        number, self._played = self._played, self._played + 1
        if callable(self._script):
            asked = self._request(body)
            act: Act = self._script(asked.transcript, asked)
        elif number < len(self._script):
            act = self._script[number]
        else:
            text = f"the script is over: request {number + 1} of a script of {len(self._script)}"
            raise self._broken(text)
        return self._called(act, body)

    def _called(self, act: Act, body: dict[str, Any]) -> Act:
        """What a function of the script decides."""
        while callable(act):
            act = act(self._request(body).transcript)
        return act

    def _request(self, body: dict[str, Any]) -> ModelRequest:
        """The request as a script of a model sees it."""
        parsed = parse(self._joined(body), self.wire.name)
        return ModelRequest(
            instructions=parsed.instructions,
            transcript=parsed.transcript,
            tools=parsed.tools,
            settings=parsed.settings,
            max_output=parsed.settings.max_output or 0,
            deadline=math.inf,
        )

    def _written(self, act: Act, body: dict[str, Any]) -> Written:
        layers: list[Spoils] = []
        while isinstance(act, Spoils):
            layers.append(act)
            act = self._called(act.says, body)
        turn: Turn | None = None
        match act:
            case Refused():
                written = self._refused(act)
            case Answer():
                headers = {"content-type": act.content_type, **act.headers}
                written = Written(act.status, headers, (Frame(act.body),))
            case Raw(data):
                written = Written(frames=(Frame(data),), raw=True)
            case Step(error=Exception() as error, cut_after=None):
                written = self._refused(_refusal_of(error))
            case Exception():
                written = self._refused(_refusal_of(act))
            case _:
                step = step_of(cast("Says | Reply | Step", act))
                turn = self._turn(step, body)
                written = self._reply(step, turn)
                self._remember(turn)
        for fault in reversed(layers):
            written = fault.spoil(written, self.wire, turn)
        return written

    def _turn(self, step: Step, body: dict[str, Any]) -> Turn:
        number = self._played - 1
        said = blocks_of(step.says, self._call_ids(number))
        message = Message(
            "assistant", tuple([block for block in said if not self._is_beside(block)])
        )
        reason = stop_reason_of(step, message)
        if reason is StopReason.PAUSE and not any(isinstance(b, Opaque) for b in message.content):
            if self.wire.paused is None:
                raise ConfigurationError(f"no turn pauses on the wire {self.wire.name!r}")
            paused = Opaque(self.wire.name, self.wire.paused)
            message = Message("assistant", (*message.content, paused))
        usage = step.usage
        prompt = self._cache.count(self.wire.segments(self._joined(body)))
        if usage == "estimated":
            usage = prompt + Usage(output=output_tokens(message.content))
        usd = None if step.usd is None else str(step.usd)
        return Turn(number, body, message.content, reason, usage, usd)

    def _is_beside(self, block: Block) -> bool:
        """Whether it is what a codec has put beside a block: in a script that is made of a history there are such.

        Chat Completions has fields of a message there, which are said again.
        """
        if not isinstance(block, Opaque):
            return False
        kinds = (_BESIDE,) if self.wire.name == "openai-chat" else (_BESIDE, _MESSAGE)
        return block.data.startswith(kinds)

    def _call_ids(self, number: int) -> Iterator[str]:
        place = 0
        while True:
            if self._ids is None:
                yield self.wire.call_id(number, place)
            else:
                named = self._ids(number, place)
                yield NO_ID if named is None else named
            place += 1

    def _reply(self, step: Step, turn: Turn) -> Written:
        if not turn.asked.get("stream"):
            pause = step.delay + step.between * len(turn.blocks)
            frames = (Frame(json_bytes(self.wire.whole(turn)), pause),)
            if step.cut_after is not None:
                return Cut().spoil(Written(frames=frames), self.wire, turn)
            return Written(frames=frames)
        opening, blocks, closing = self.wire.events(turn)
        kept = blocks[: step.cut_after]
        frames = in_frames(opening, kept, closing, delay=step.delay, between=step.between)
        written = Written(headers={"content-type": EVENT_STREAM}, frames=frames)
        if step.cut_after is None:
            return written
        if step.error is None:
            return Cut().spoil(written, self.wire, turn)
        refusal = _refusal_of(step.error)
        return Fails((), refusal.kind, refusal.text).spoil(written, self.wire, turn)

    def _remember(self, turn: Turn) -> None:
        """The judge knows what was issued; a server with a memory keeps what the client lets it."""
        whole: dict[str, Any] = msgspec.json.decode(json_bytes(self.wire.whole(turn)))
        if self._judge is not None:
            self._judge.response(whole, turn.asked)
        if self.wire.name == "openai" and turn.asked.get("store", True):
            self._stored[whole["id"]] = [
                *_items(self._joined(turn.asked)),
                *whole["output"],
            ]

    def _refused(self, refused: Refused) -> Written:
        status, body = self.wire.refused(refused.kind, refused.text)
        headers = {"content-type": JSON, **refused.headers}
        if refused.retry_after is not None:
            headers["retry-after"] = f"{refused.retry_after:g}"
        return Written(status, headers, (Frame(json_bytes(body)),))


def _items(body: Mapping[str, Any]) -> list[Any]:
    given = body.get("input", ())
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _refusal_of(error: Exception) -> Refused:
    """How an error of a script looks on a wire."""
    match error:
        case ContextExceeded():
            return Refused("context")
        case ModelUnavailable():
            return Refused("overloaded", str(error), retry_after=error.retry_after)
        case ModelProtocolError():
            return Refused("server", str(error))
        case _:
            return Refused("bad_request", str(error))


def received(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Received:
    """A request that comes now."""
    now = asyncio.get_running_loop().time()
    return Received(method, path, headers, body, now)
