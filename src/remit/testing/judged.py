"""A model whose requests are written as a wire would write them, and judged as its provider would.

The answers stay those of the model inside, such as a script; no bytes leave. What the model inside gives as
blocks of its own goes back as blocks of this provider, so that signatures and places are judged too.
Beside it: `serve/`, a provider that is asked over a socket; `protocol/`, the judges.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec

from remit.errors import ModelRejected
from remit.messages import Block, Message, Opaque, Reply, Usage
from remit.models.base import BlockDone, Chunk, Model, ModelProfile, ModelRequest
from remit.models.opening import check_ready, opened
from remit.models.wires import codec
from remit.testing.protocol import Judge, Refused, judge

__all__ = ["JudgedModel", "judged"]

_NAMES: Final = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-5.5", "openai-chat": "gpt-5.5"}
"""What the provider calls the model: the newest, which are the strictest."""

_PAUSED: Final = b'{"type":"server_tool_use"}'
"""What a script stands in for a tool of the provider's; on a wire it has an id, a name and an input."""


def judged(model: Model, wire: str) -> JudgedModel:
    """The same model, whose requests the provider of a wire would have to take.

    Shape: `wire` is `anthropic`, `openai` (Responses) or `openai-chat`.
    Errors: `ConfigurationError` for another wire.
    """
    return JudgedModel(model, wire)


class JudgedModel:
    """See `judged`."""

    def __init__(self, inner: Model, wire: str) -> None:
        self.inner: Final = inner
        """Who answers."""
        self.judge: Final[Judge] = judge(wire)
        """Who reads the requests."""
        self._codec = codec(wire)
        self._model = _NAMES[wire]
        self._pauses = 0

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def profile(self) -> ModelProfile:
        return self.inner.profile

    def check_ready(self) -> None:
        """Whether the model inside can be asked. Errors: `ConfigurationError`."""
        check_ready(self.inner)

    def opened(self) -> AbstractAsyncContextManager[None]:
        """What the model inside keeps open."""
        return opened(self.inner)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Ask once. Errors: `ModelRejected` with the provider's reason, besides those of the model inside."""
        if self not in request.scratch:
            request.scratch[self] = self._codec.encoder(self._model)
        wired = request.scratch[self].encode(request, stream=True)
        body: dict[str, Any] = msgspec.json.decode(wired.body)
        headers = {**self._codec.headers("key"), **wired.headers}
        try:
            self.judge.request(body, headers={name.lower(): headers[name] for name in headers})
        except Refused as refused:
            raise ModelRejected(f"{refused.status} from {self.name}: {refused}") from None
        made: dict[Block, Block] = {}
        async for chunk in self.inner.stream(request):
            if isinstance(chunk, BlockDone):
                yield BlockDone(self._own(chunk.block, made))
            elif isinstance(chunk, Reply):
                content = tuple([self._own(block, made) for block in chunk.message.content])
                message = Message(chunk.message.role, content)
                reply = msgspec.structs.replace(chunk, message=message)
                self._remember(reply, body)
                yield reply
            else:
                yield chunk

    def _own(self, block: Block, made: dict[Block, Block]) -> Block:
        """A block as this provider would have given it: the same each time within a reply."""
        if not isinstance(block, Opaque) or block.issuer != self.inner.name:
            return block
        if block not in made:
            data = block.data
            if data == _PAUSED:
                self._pauses += 1
                data = msgspec.json.encode(_paused(self._pauses))
            made[block] = Opaque(self._codec.issuer, data)
        return made[block]

    def _remember(self, reply: Reply, body: dict[str, Any]) -> None:
        usage = reply.usage or Usage()
        written = self._codec.reply_json(reply.message, stop_reason=reply.stop_reason, usage=usage)
        self.judge.response(msgspec.json.decode(msgspec.json.encode(written)), body)


def _paused(number: int) -> dict[str, Any]:
    used: dict[str, Any] = {"id": f"srvtoolu_{number}", "name": "web_search", "input": {}}
    return {"type": "server_tool_use", **used}
