"""A model that is reached over a wire: a codec and a transport, put together.

The codec knows what is written and read, the transport how bytes travel; here is what lies between. A request
is encoded and sent; a request that was refused for what can be left out is sent once more without it, if that
makes a difference (case 60). What comes is told apart by `received.py`. Trying again is the loop's business: an
attempt ends in a typed error that says what was used up and what people can do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final

import msgspec

from remit import __version__
from remit.errors import ConfigurationError, ModelError, ModelRejected, ModelUnavailable
from remit.messages import Message, Text, Usage
from remit.models.base import (
    CUT_BACK,
    Chunk,
    ModelProfile,
    ModelRequest,
    Notice,
    Settings,
    ToolSpec,
)
from remit.models.connection import host_of
from remit.models.given import checked_headers
from remit.models.patience import Patience
from remit.models.received import Received, chunks_of
from remit.models.transport import HttpRequest, HttpResponse, Transport
from remit.models.wires.codec import Codec, Encoder, Fault, Wired
from remit.transcript import Transcript

__all__ = ["IDLE_SECONDS", "Endpoint"]

IDLE_SECONDS: Final = 60.0
"""How long a stream may go without content, where nobody says otherwise."""
_REPAIRS: Final = 2
"""How often a refused request is sent again with something left out."""
_MOST_FAULT: Final = 256_000
"""Bytes of an error that are read; the rest would say nothing new."""
_MODELS: Final = "/models"
_MOST_LIST: Final = 8_000_000
"""Bytes of a list of models that are read."""
_SHORTEST_SECRET: Final = 6
"""A shorter value of a header is no secret, and would be found everywhere."""
_ALWAYS: Final = {
    "content-type": "application/json",
    "accept-encoding": "identity",  # a reply is small, and who compresses a stream holds it back
    "accept": "text/event-stream, application/json",
    "user-agent": f"remit/{__version__}",
}


class Endpoint:
    """One model of one provider or server. It may be shared by runs, threads and event loops."""

    def __init__(
        self,
        name: str,
        codec: Codec,
        transport: Transport,
        *,
        base_url: str,
        model: str,
        key: str | Callable[[], str | None] | None = None,
        profile: ModelProfile | None = None,
        headers: Mapping[str, str] | None = None,
        query: str = "",
        idle_seconds: float = IDLE_SECONDS,
        streams: bool = True,
    ) -> None:
        """`model` is its name as the provider calls it; `headers` go with every request and win over others. A `key` that
        is a function is asked for it once, when it is first needed.

        Units: `idle_seconds` is how long a stream may go without content.
        Errors: `ConfigurationError` for headers that cannot be sent, and a time that is none.
        """
        if type(idle_seconds) not in {int, float} or not 0 < idle_seconds <= math.inf:
            raise ConfigurationError(f"idle_seconds={idle_seconds!r}: give seconds above zero")
        self.name = name
        self._codec = codec
        self._transport = transport
        self._model = model
        self._base_url = base_url
        self._query = query
        self.profile = profile or ModelProfile()
        self._url = joined(base_url, codec.path) + query
        self._host = host_of(base_url)
        self._key = key
        self._own = checked_headers({} if headers is None else headers)
        self._known: _Sender | None = None
        """As whom requests are sent, once that has been looked up."""
        if not callable(key):
            self.check_ready()
        self._idle = idle_seconds if streams else math.inf
        self._streams = streams

    def __repr__(self) -> str:
        return f"<{self.name} at {self._host}>"

    @property
    def base_url(self) -> str:
        """Where it is."""
        return self._base_url

    def check_ready(self) -> None:
        """Look up the key, if that has not been done. Nothing is sent. Errors: `ConfigurationError` where it is missing."""
        self._sender()

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Keep connections while the block lasts, on the running event loop."""
        return self._transport.opened()

    def written_tools(
        self, tools: Sequence[ToolSpec]
    ) -> tuple[tuple[ToolSpec, ...], Mapping[str, str]]:
        """The tools as they go out, in their order, and the names of those that do not, with the reason.

        Nothing is sent.
        """
        said = Transcript([Message("user", (Text("?"),))])
        request = ModelRequest("", said, tuple(tools), Settings(), 1, 0.0)
        wired = self._codec.encoder(self._model).encode(request, stream=False)
        return self._codec.parse(msgspec.json.decode(wired.body)).tools, wired.set_aside

    async def models(self, *, deadline: float) -> tuple[str, ...]:
        """Names of the models that are there; empty where the endpoint does not say. Nothing is billed.

        Units: `deadline` is on the event loop's clock.
        Errors: `ModelError` where it cannot be reached or does not take the key.
        """
        path = _MODELS if self._codec.wire != "anthropic" else f"/v1{_MODELS}?limit=1000"
        request = HttpRequest(
            "GET", joined(self._base_url, path) + self._query, self._asking().headers, b""
        )
        patience = Patience(self._host, idle=math.inf, deadline=deadline)
        try:
            async with _Sent(self._transport, request, patience) as response:
                body = b"".join(
                    [data async for data in _bounded(response, patience, most=_MOST_LIST)]
                )
            if response.status in {401, 403}:
                raise self._codec.fault(response.status, response.headers, body).error
        except ModelError as error:
            self._withhold(error)
            raise
        finally:
            patience.close()
        return _names(body) if response.status == 200 else ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Ask once. Errors: `ModelError`, with what was used up as far as that is known."""
        talk = self._talk(request)
        wired = self._encoded(talk, request)
        patience = Patience(self._host, idle=self._idle, deadline=request.deadline)
        try:
            for repairs in range(_REPAIRS + 1):
                for notice in talk.notices(wired):
                    yield notice
                patience.begin()
                async with _Sent(self._transport, self._written(wired), patience) as response:
                    if 200 <= response.status < 300:
                        received = Received(wired.decoder, response, self._host)
                        chunks = response.chunks()
                        try:
                            while (data := await patience.bear(anext(chunks, None))) is not None:
                                for chunk in received.feed(data):
                                    yield chunk
                                if received.complete:
                                    return
                                patience.heard(received.content)
                        finally:
                            await _leave(chunks)
                        rest = received.end()
                    else:
                        rest = _read(wired, await self._fault(response, patience))
                if not isinstance(rest, Fault):
                    for chunk in rest:
                        yield chunk
                    return
                wired = self._repaired(talk, request, wired, rest, more=repairs < _REPAIRS)
        except ModelError as error:
            self._finish(error, wired)
            raise
        finally:
            patience.close()

    def _sender(self) -> _Sender:
        """As whom requests are sent. Errors: `ConfigurationError` where the key is missing, or cannot be sent."""
        if self._known is None:
            key = self._key() if callable(self._key) else self._key
            spoken = checked_headers(self._codec.headers(key))
            headers = {**_ALWAYS, **spoken, **self._own}
            secrets = [each for each in (key, *self._own.values()) if each]
            long = [each for each in secrets if len(each) >= _SHORTEST_SECRET]
            # The longest first: one may be a part of another.
            self._known = _Sender(headers, tuple(sorted(long, key=len, reverse=True)))
        return self._known

    def _asking(self) -> _Sender:
        """The same, for who did not check before. Errors: `ModelRejected`."""
        try:
            return self._sender()
        except ConfigurationError as error:
            raise ModelRejected(str(error), usage=Usage()) from None

    def _talk(self, request: ModelRequest) -> _Talk:
        talk = request.scratch.get(self)
        if talk is None:
            talk = request.scratch[self] = _Talk(self._codec.encoder(self._model))
        return talk

    def _encoded(self, talk: _Talk, request: ModelRequest) -> Wired:
        """The request for the wire. Errors: `ModelRejected` for what this wire cannot say."""
        try:
            return talk.encoder.encode(request, stream=self._streams)
        except ConfigurationError as error:
            raise ModelRejected(str(error), usage=Usage()) from error

    def _written(self, wired: Wired) -> HttpRequest:
        headers = self._asking().headers
        if wired.headers:
            headers = dict(headers)
            for name, value in wired.headers.items():
                said = headers.get(name.lower())
                # As HTTP reads a header that is given twice.
                headers[name.lower()] = value if said in {None, value} else f"{said}, {value}"
        return HttpRequest("POST", self._url, headers, wired.body)

    async def _fault(self, response: HttpResponse, patience: Patience) -> Fault:
        """What a response that is no reply means."""
        if 300 <= response.status < 400:
            return Fault(_redirected(response, self._host))
        body = bytearray()
        with contextlib.suppress(ModelUnavailable):  # what came of the error is enough
            async for data in _bounded(response, patience):
                body += data
        return self._codec.fault(response.status, response.headers, bytes(body))

    def _repaired(
        self, talk: _Talk, request: ModelRequest, refused: Wired, fault: Fault, *, more: bool
    ) -> Wired:
        """The request again, without what it was refused for. Errors: the refusal, where that is no help."""
        if more and fault.repair is not None and talk.encoder.repair(fault.repair):
            again = self._encoded(talk, request)
            if again.body != refused.body:
                return again
        raise fault.error

    def _finish(self, error: ModelError, wired: Wired) -> None:
        """An error as it may leave: with what was reported, and without what is secret."""
        if error.usage is None:
            error.usage = wired.decoder.usage
        self._withhold(error)

    def _withhold(self, error: ModelError) -> None:
        """The text of an error says where it comes from, and holds nothing that is secret."""
        text = str(error)
        if self._host not in text:
            text = f"{self._host}: {text}"
        for secret in () if self._known is None else self._known.secrets:
            text = text.replace(secret, "[withheld]")
        error.args = (text, *error.args[1:])


class _Sender(msgspec.Struct, frozen=True):
    """As whom requests are sent."""

    headers: Mapping[str, str]
    """Those of every request, by names in lower case."""
    secrets: tuple[str, ...]
    """What no text may hold."""

    def __repr__(self) -> str:
        """Without what is secret: what traces of errors show of a frame is shown in this form."""
        return f"_Sender(headers: {', '.join(self.headers)})"


class _Talk:
    """What is kept from one request of a run to the next."""

    __slots__ = ("_told", "encoder")

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._told: set[str] = set()
        """Tools of which it was told that they are set aside."""

    def notices(self, wired: Wired) -> Sequence[Notice]:
        """What people should know of a request; of a tool that is set aside, once for a run."""
        if not wired.set_aside and wired.cut_back is None:
            return ()
        news = {name: why for name, why in wired.set_aside.items() if name not in self._told}
        self._told.update(news)
        told = [
            Notice("tool_set_aside", f"the tool {name!r} is not offered: {why}")
            for name, why in news.items()
        ]
        return told if wired.cut_back is None else [*told, Notice(CUT_BACK, wired.cut_back)]


class _Sent:
    """A request on its way, and its response while the block lasts; its head is waited for with patience."""

    __slots__ = ("_exchange", "_patience")

    def __init__(self, transport: Transport, request: HttpRequest, patience: Patience) -> None:
        self._exchange = transport.send(request)
        self._patience = patience

    async def __aenter__(self) -> HttpResponse:
        return await self._patience.bear(self._exchange.__aenter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._exchange.__aexit__(kind, error, trace)


def _read(wired: Wired, fault: Fault) -> Iterator[Chunk] | Fault:
    """The reply that a refusal holds, if it holds one; else the refusal."""
    return fault if fault.reply is None else chunks_of(wired.decoder.whole(fault.reply))


async def _leave(chunks: AsyncIterator[bytes]) -> None:
    """Nothing more of a body is wanted."""
    leave = getattr(chunks, "aclose", None)
    if leave is not None:
        await leave()


async def _bounded(
    response: HttpResponse, patience: Patience, *, most: int = _MOST_FAULT
) -> AsyncGenerator[bytes, None]:
    """The beginning of a body."""
    left = most
    chunks = response.chunks()
    while left > 0 and (data := await patience.bear(anext(chunks, b""))):
        yield data[:left]
        left -= len(data)


def _redirected(response: HttpResponse, host: str) -> ModelRejected:
    """A redirect is not followed: the key would go wherever it says."""
    place = response.headers.get("location", "").partition("?")[0][:200]
    return ModelRejected(
        f"{host} answered {response.status} and sends elsewhere{f' ({place})' if place else ''}: no redirect is "
        "followed, because the key would go along; give that address as base URL if it is the right one",
        usage=Usage(),
    )


def joined(base_url: str, path: str) -> str:
    """A base URL and the path of a wire, which may begin as the base URL ends (`/v1`)."""
    base = base_url.rstrip("/")
    first = path.lstrip("/").partition("/")[0]
    if base.endswith(f"/{first}"):
        base = base.removesuffix(f"/{first}")
    return f"{base}/{path.lstrip('/')}"


def _names(body: bytes) -> tuple[str, ...]:
    """Names of models in a list, as Anthropic and OpenAI and their like write it; what is no list names none."""
    try:
        listed = msgspec.json.decode(body, type=_Listed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    return tuple([each.id for each in listed.data])


class _ListedModel(msgspec.Struct, frozen=True):
    id: str


class _Listed(msgspec.Struct, frozen=True):
    data: tuple[_ListedModel, ...] = ()
