"""A provider behind a socket of this machine.

It listens on 127.0.0.1 alone, on a port that the system picks, and is gone when the block that opened it is left,
whatever is under way. How HTTP is spoken is `connection.py`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

from remit.errors import ConfigurationError
from remit.testing.serve.cache import SHORTEST
from remit.testing.serve.connection import Connection
from remit.testing.serve.provider import TEST_KEY, Play, Received, ScriptedProvider
from remit.testing.serve.turn import Ids
from remit.testing.serve.written import Frame, Written

if TYPE_CHECKING:
    from remit.models.base import Model, ModelProfile

__all__ = ["Server", "serve"]

_HOST: Final = "127.0.0.1"


@contextlib.asynccontextmanager
async def serve(
    script: Play,
    wire: str = "anthropic",
    *,
    key: str = TEST_KEY,
    models: Sequence[str] | None = None,
    ids: Ids | None = None,
    cache_tokens: int = SHORTEST,
    strict: bool = True,
    dialect: str = "openai",
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Server]:
    """Play a script as a provider, on a socket, while the block lasts.

        async with serve([("look_up", {"order": 7}), "It is on its way."], "openai") as server:
            outcome = await Remit(name="desk", model=server.model(), tools=[look_up], limits=limits).run("?")
        assert server.refusals == []

    `wire` is one of `remit.models.wires.WIRES`; a script is as `ScriptedModel` has it, with the faults of
    `remit.testing.serve` as further items; the rest is as for `ScriptedProvider`.
    Errors: `ConfigurationError` for a wire that nobody here writes; what a function of the script raised, when the
    block is left.
    """
    provider = ScriptedProvider(
        script,
        wire,
        key=key,
        models=models,
        ids=ids,
        cache_tokens=cache_tokens,
        strict=strict,
        dialect=dialect,
    )
    server = Server(provider, key)
    async with server.listening(tls):
        yield server
    for error in server.errors:
        raise error


class Server:
    """What `serve` gives: where it listens, and what it heard."""

    def __init__(self, provider: ScriptedProvider, key: str) -> None:
        self.provider = provider
        self._key = key
        self._url = ""
        self._connections: set[asyncio.Task[None]] = set()
        self.connections = 0
        """How many were opened so far."""
        self.left = 0
        """How many responses the client did not wait for."""
        self.errors: list[Exception] = []
        """What functions of the script raised; the client was told of an error of the server's."""

    def answer(self, request: Received) -> Written:
        """The response. Errors: none."""
        try:
            return self.provider.answer(request)
        except Exception as error:  # noqa: BLE001 - an author's function: its error is for the author, not lost in a task
            self.errors.append(error)
            return Written(500, frames=(Frame(b'{"error":{"message":"the script has failed"}}'),))

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return self._url

    @property
    def base_url(self) -> str:
        """As the model's endpoint wants it."""
        return self._url + self.provider.wire.base_path

    @property
    def requests(self) -> Sequence[Received]:
        """Every request so far, refused ones included."""
        return self.provider.requests

    @property
    def refusals(self) -> Sequence[str]:
        """Why bodies were refused; empty as long as the client keeps to the protocol."""
        return self.provider.refusals

    def model(
        self,
        name: str = "test-model",
        *,
        key: str | None = None,
        streams: bool = True,
        idle_seconds: float | None = None,
        profile: ModelProfile | None = None,
    ) -> Model:
        """A model that asks this server, under that name of the provider's; the rest is as for `remit.model`.

        No proxy of the environment stands between.
        """
        from remit.models.connection import Connection as Way
        from remit.models.names import model

        wire, dialect = self.provider.wire.name, self.provider.dialect
        return model(
            f"{wire if dialect == 'openai' else dialect}:{name}",
            base_url=self.base_url,
            api_key=self._key if key is None else key,
            streams=streams,
            idle_seconds=idle_seconds,
            connection=Way(proxy=""),
            profile=profile,
        )

    @contextlib.asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None) -> AsyncGenerator[None]:
        """Listen while the block lasts. Errors: `ConfigurationError` where it already does."""
        if self._url:
            raise ConfigurationError("a server listens once")
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), _HOST, 0, ssl=tls
        )
        port = server.sockets[0].getsockname()[1]
        self._url = f"{'https' if tls else 'http'}://{_HOST}:{port}"
        try:
            yield
        finally:
            server.close()
            tasks = tuple(self._connections)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, connection: Connection) -> None:
        """A client has come."""
        self.connections += 1
        task = asyncio.get_running_loop().create_task(connection.run())
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
