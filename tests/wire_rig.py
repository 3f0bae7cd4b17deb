"""What the tests over wires share: a remit whose model speaks to a provider of tests, in memory or over a socket."""

from __future__ import annotations

import asyncio
import json
import os
import re
import selectors
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

import remit as rm
from loop_rig import LIMITS, is_sendable, runtime, watched
from remit import Event, Outcome, Remit
from remit.models.base import Model
from remit.testing import run_virtual
from remit.testing.serve import MemoryTransport, Play, ScriptedProvider, Server, serve
from remit.tools import Tools

T = TypeVar("T")

WIRES = ("anthropic", "openai", "openai-chat")
SECONDS = 60
"""What a test over sockets may take, on a busy machine."""

on_every_wire = pytest.mark.parametrize("wire", WIRES)
both_ways = pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "wire"
RECORDED = Path(os.environ.get("REMIT_WIRE_DIR") or _SHARED)
"""Recorded exchanges, where they are."""


def remit_of(model: Model, tools: Tools = (), **options: Any) -> Remit[Any]:
    given: dict[str, Any] = {"name": "desk", "model": model, "limits": LIMITS, "tools": tools}
    return Remit(**(given | options))


class Played:
    """What became of a run on virtual time, and what its provider saw."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self.outcome: Outcome[Any]
        self.events: list[Event] = []

    @property
    def provider(self) -> ScriptedProvider:
        return self.transport.provider

    def told(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


def play(
    script: Play,
    wire: str,
    tools: Tools = (),
    *,
    prompt: str = "Where is order 7?",
    provider: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> Played:
    """Run on virtual time against a provider in memory. Nothing was broken on the way, whatever came of it."""
    played = Played(MemoryTransport(ScriptedProvider(script, wire, **(provider or {}))))
    desk = remit_of(played.transport.model(**(model or {})), tools, runtime=runtime(), **options)

    async def main() -> None:
        played.outcome, played.events = await watched(desk, prompt)

    run_virtual(main)
    check(played.outcome, played.provider)
    assert not played.transport.open, "a response is still being read"
    return played


def check(outcome: Outcome[Any], provider: ScriptedProvider) -> None:
    """The transcript is whole, and the provider had nothing to complain of."""
    assert provider.refusals == []
    assert is_sendable(outcome.transcript)


def over_a_socket(
    script: Play, wire: str, main: Callable[[Server], Awaitable[T]], **options: Any
) -> T:
    """Serve a script on a socket, in real time, bounded."""

    async def bounded() -> T:
        async with asyncio.timeout(SECONDS), serve(script, wire, **options) as server:
            return await main(server)

    return asyncio.run(bounded())


SPEED = 20


class _Hurry(selectors.DefaultSelector):
    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else timeout / self._speed)


class _HurriedLoop(asyncio.SelectorEventLoop):
    """The real clock, but faster: waits between attempts pass, sockets are what they are."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        super().__init__(_Hurry(speed))

    def time(self) -> float:
        return time.monotonic() * self._speed


def hurried(main: Callable[[], Awaitable[T]], *, speed: float = SPEED) -> T:
    """Run it, bounded. TLS is given its own time: `speed=1`."""

    async def bounded() -> T:
        async with asyncio.timeout(SECONDS * speed):
            return await main()

    with asyncio.Runner(loop_factory=partial(_HurriedLoop, speed)) as runner:
        return runner.run(bounded())


def messages_of(body: bytes) -> list[Any]:
    """The conversation of a request."""
    told = json.loads(body)
    return told["input"] if "input" in told else told["messages"]


def sent_of(body: bytes) -> list[bytes]:
    """The conversation of a request, byte for byte, without cache markers."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    told = msgspec.json.decode(
        fields.get("input", fields.get("messages", b"")), type=list[msgspec.Raw]
    )
    return [_MARK.sub(b"", bytes(each)) for each in told]


_MARK = re.compile(rb',?"cache_control":\{[^}]*\}')


@rm.tool(effect="read")
async def look_up(order: int) -> str:
    """Look up one order."""
    return f"order {order} is packed"
