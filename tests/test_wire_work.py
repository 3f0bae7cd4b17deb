"""Counted work: what a request costs, in calls and copies. Exact, so that whatever grows with the history is seen."""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

import remit
from remit import Limits, Message, Reason, Remit, Text, ToolResult, ToolUse, Transcript
from remit.models import http
from remit.models.base import ModelProfile, ModelRequest, Settings, ToolSpec
from remit.models.connection import Connection
from remit.models.transport import HttpRequest
from remit.models.wires import WIRES, codec
from remit.models.wires.pieces import Pieces
from remit.testing import run_virtual
from remit.testing.serve import MemoryTransport, ScriptedProvider

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def said(steps: int, result: str = "seen") -> list[Message]:
    """A conversation of so many steps, one call each."""
    messages = [Message("user", (Text("Go."),))]
    for n in range(steps):
        messages += [
            Message("assistant", (ToolUse(f"call_{n}", "look", f'{{"n": {n}}}'),)),
            Message("user", (ToolResult(f"call_{n}", (Text(result),)),)),
        ]
    return messages


def asking(transcript: Transcript, tools: tuple[ToolSpec, ...]) -> ModelRequest:
    return ModelRequest(
        instructions="Be brief.",
        transcript=transcript,
        tools=tools,
        settings=SETTINGS,
        max_output=1_000,
        deadline=math.inf,
    )


SETTINGS = Settings()
LOOK = (ToolSpec("look", "Look.", SCHEMA),)
MANY = (*LOOK, *[ToolSpec(f"other_{n}", "Look elsewhere.", SCHEMA) for n in range(2_000)])


def calls_of(work: Callable[[], object]) -> int:
    """How many calls it makes, of functions of ours and of C."""
    count = 0

    def seen(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def per_step(wire: str, steps: Sequence[int], tools: tuple[ToolSpec, ...]) -> list[int]:
    """Calls that the request behind each of these steps takes, of one run that grows."""
    encoder = codec(wire).encoder("m")
    messages = said(max(steps))
    counts: list[int] = []
    for step in range(max(steps) + 1):
        request = asking(Transcript(messages[: 1 + 2 * step]), tools)
        work = calls_of(lambda request=request: encoder.encode(request, stream=True))
        if step in steps:
            counts.append(work)
    return counts


@pytest.mark.parametrize("wire", WIRES)
def test_a_message_is_encoded_once_in_a_run(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """J1: encoder calls per step equal new messages, over a whole run of the loop."""
    encoded: list[int] = []
    take = Pieces.take

    def counted(self: Pieces, transcript: Transcript) -> int:
        kept = take(self, transcript)
        encoded.append(len(self) - kept)
        return kept

    monkeypatch.setattr(Pieces, "take", counted)

    @remit.tool(effect="read")
    async def look(n: int) -> str:
        """Look."""
        return f"seen {n}"

    provider = ScriptedProvider([("look", {"n": n}) for n in range(30)] + ["Done."], wire)
    profile = ModelProfile(context_window=10**9)
    support = Remit(
        name="desk",
        model=MemoryTransport(provider).model(profile=profile),
        tools=[look],
        limits=Limits(steps=40, tokens=10**9, seconds=3_600),
    )
    outcome = run_virtual(support.run("Go."))
    assert outcome.reason is Reason.COMPLETED
    assert encoded == [1] + [2] * 30


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_costs_as_many_calls_at_step_400_as_at_step_40(wire: str) -> None:
    """J1: nothing walks the history."""
    early, late = per_step(wire, (40, 400), LOOK)
    assert late <= early + 12, (early, late)


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_with_2000_tools_costs_as_many_calls_as_with_one(wire: str) -> None:
    """J1: tools are encoded once for a run, whatever their number."""
    one, many = per_step(wire, (3,), LOOK), per_step(wire, (3,), MANY)
    assert many[0] <= one[0] + 12, (one, many)


def grown(work: Callable[[], object]) -> int:
    """Bytes by which memory grows at most while it lasts."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_is_one_copy_of_what_was_encoded(wire: str) -> None:
    """J1: body copies are one."""
    encoder = codec(wire).encoder("m")
    messages = said(200, "x" * 20_000)
    encoder.encode(asking(Transcript(messages), LOOK), stream=True)
    size = 0

    def work() -> None:
        nonlocal size
        size = len(encoder.encode(asking(Transcript(messages), LOOK), stream=True).body)

    growth = grown(work)
    assert size > 4_000_000
    assert size <= growth < 1.1 * size


class Socket:
    """What stands in for a connection: it takes what it is given, and looks at nothing."""

    def __init__(self) -> None:
        self.written: list[object] = []
        self.transport = self

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        self.written.append(data)

    def set_response_params(self, **given: object) -> None:
        pass


def test_a_large_body_goes_to_the_socket_as_it_stands() -> None:
    """J1: no copy of it on the way; a small one goes in one call with its head."""

    async def main() -> None:
        transport = http.AiohttpTransport(Connection(proxy=""))
        async with transport.opened():
            pool = transport.enter()
            route = transport.route(pool, "http://h.example/v1/x")
            for size, calls in ((4_000_000, 2), (10_000, 1)):
                body = bytes(size)
                request = HttpRequest("POST", "http://h.example/v1/x", {"a": "b"}, body)
                socket: Any = Socket()
                growth = grown(lambda s=socket, r=request: http._write(s, r, route))
                assert len(socket.written) == calls
                if calls == 2:
                    assert socket.written[1] is body
                    assert growth < 20_000
                else:
                    assert socket.written[0].endswith(body)
            await transport.leave(pool)

    import asyncio

    asyncio.run(main())
