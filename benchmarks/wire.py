"""What a step costs over the wire, beside a floor of raw sockets in the same run.

    python benchmarks/wire.py [--steps 1000] [--wire anthropic] [--only steps]

A server in a process of its own answers on the loopback with one call a step. The floor is a client that is
written by hand on a protocol of asyncio: it appends to its history, encodes new messages only, and reads the same
answers. Prints figures and judges nothing. CPU is this process's; what is compared is measured in turns,
because machines drift.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import aiohttp

import remit
from remit import Limits, Message, ModelProfile, Reason, Remit, Reply, StopReason, ToolUse, Usage
from remit.models.base import BlockDone, Chunk, ModelRequest
from remit.models.connection import Connection
from remit.models.endpoint import Endpoint
from remit.models.http import AiohttpTransport
from remit.models.transport import HttpRequest
from remit.models.wires import codec

AMPLE: Final = Limits(steps=1_000_000, tokens=10**12, seconds=86_400)
PROFILE: Final = ModelProfile(context_window=10**9, max_output=4_096)
US: Final = 1e6


# The server: bytes in, the same bytes out but for a number. Nothing of it is measured.


def _events(*events: tuple[str, dict[str, Any]]) -> bytes:
    return b"".join(
        (f"event: {name}\n" if name else "").encode()
        + b"data: "
        + json.dumps(data).encode()
        + b"\n\n"
        for name, data in events
    )


def _anthropic(number: int) -> tuple[bytes, bytes]:
    """A reply of one call, as far as the call is complete, and the rest."""
    usage = {"input_tokens": 100, "output_tokens": 20}
    arguments = json.dumps({"n": number, "of": "a part"})
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    call: dict[str, Any] = {
        "type": "tool_use",
        "id": f"toolu_{number:020}",
        "name": "look",
        "input": {},
    }

    def part(at: int) -> tuple[str, dict[str, Any]]:
        delta = {"type": "input_json_delta", "partial_json": arguments[at : at + 10]}
        return "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}

    begun: dict[str, Any] = {"type": "content_block_start", "index": 0, "content_block": call}
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    return _events(
        ("message_start", {"type": "message_start", "message": message}),
        ("content_block_start", begun),
        *[part(at) for at in range(0, len(arguments), 10)],
        ("content_block_stop", {"type": "content_block_stop", "index": 0}),
    ), _events(
        ("message_delta", {"type": "message_delta", "delta": ended, "usage": usage}),
        ("message_stop", {"type": "message_stop"}),
    )


def _responses(number: int) -> tuple[bytes, bytes]:
    arguments = json.dumps({"n": number, "of": "a part"})
    item = {"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number:020}"}
    item |= {"name": "look", "arguments": "", "status": "in_progress"}
    whole = {**item, "arguments": arguments, "status": "completed"}
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "status": "in_progress",
        "output": [],
    }
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120}
    done = {**response, "status": "completed", "output": [whole], "usage": usage}
    kind = "response.function_call_arguments"

    def event(kind: str, **fields: Any) -> tuple[str, dict[str, Any]]:
        return kind, {"type": kind, **fields}

    return _events(
        event("response.created", response=response),
        event("response.output_item.added", output_index=0, item=item),
        *[
            event(
                f"{kind}.delta", item_id=item["id"], output_index=0, delta=arguments[at : at + 10]
            )
            for at in range(0, len(arguments), 10)
        ],
        event(f"{kind}.done", item_id=item["id"], output_index=0, arguments=arguments),
        event("response.output_item.done", output_index=0, item=whole),
    ), _events(event("response.completed", response=done))


def _chat(number: int) -> tuple[bytes, bytes]:
    arguments = json.dumps({"n": number, "of": "a part"})

    def chunk(delta: dict[str, Any], reason: str | None = None) -> tuple[str, dict[str, Any]]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return "", {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}

    def part(text: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}

    function = {"name": "look", "arguments": ""}
    call = {"index": 0, "id": f"call_{number:020}", "type": "function", "function": function}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return _events(
        chunk({"role": "assistant", "content": None, "tool_calls": [call]}),
        *[chunk(part(arguments[at : at + 10])) for at in range(0, len(arguments), 10)],
    ), _events(
        chunk({}, "tool_calls"), ("", {"id": "c", "choices": [], "usage": usage})
    ) + b"data: [DONE]\n\n"


WIRES: Final[dict[str, tuple[Callable[[int], tuple[bytes, bytes]], str]]] = {
    "anthropic": (_anthropic, "toolu_"),
    "openai": (_responses, "call_"),
    "openai-chat": (_chat, "call_"),
}


class Answering(asyncio.Protocol):
    """One connection. `/slow` answers after 50 ms; `/eager` with 100 ms between the call and the end."""

    count = 0

    def __init__(self, reply: Callable[[int], tuple[bytes, bytes]]) -> None:
        self._reply = reply
        self._rest = bytearray()
        self._due = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= self._due:
            if not self._due:
                end = self._rest.find(b"\r\n\r\n")
                if end < 0:
                    return
                head = bytes(self._rest[:end]).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                self._due = end + 4 + length
                self._path = head.split(b" ", 2)[1]
                continue
            del self._rest[: self._due]
            self._due = 0
            loop = asyncio.get_running_loop()
            if self._path.startswith(b"/slow"):
                loop.call_later(0.05, self._answer)
            elif self._path.startswith(b"/eager"):
                self._begin(loop)
            else:
                self._answer()

    def _answer(self) -> None:
        Answering.count += 1
        body = b"".join(self._reply(Answering.count))
        self._transport.write(_head(len(body)) + body)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        # The number is the instant of its own sending: both clocks are the machine's.
        first, rest = self._reply(time.monotonic_ns())
        self._transport.write(_head(len(first) + len(rest)) + first)
        loop.call_later(0.1, self._transport.write, rest)


def _head(length: int) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"content-length: %d\r\n\r\n" % length
    )


async def serve(wire: str) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(WIRES[wire][0]), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the benchmark is over
    server.close()


@contextmanager
def serving(wire: str) -> Generator[int]:
    """A server in a process of its own; its port."""
    command = [sys.executable, __file__, "--serve", "--wire", wire]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - this very file
        assert process.stdout is not None  # noqa: S101 - for the type checker
        assert process.stdin is not None  # noqa: S101 - for the type checker
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


# What is measured


class Bench:
    """One wire against one server."""

    def __init__(self, wire: str, port: int) -> None:
        self.wire = wire
        self.port = port
        self.marks: list[float] = []
        """CPU seconds at each call."""

    def tool(self, chars: int) -> Any:
        result, marks = "x" * chars, self.marks

        @remit.tool(effect="read", max_result_tokens=max(2_000, chars))
        async def look(n: int, of: str) -> str:
            """Look something up."""
            del n, of
            marks.append(time.process_time())
            return result

        return look

    def model(self, path: str = "", transport: Any = None) -> Endpoint:
        return Endpoint(
            "bench:m",
            codec(self.wire),
            transport or AiohttpTransport(Connection(proxy="")),
            base_url=f"http://127.0.0.1:{self.port}{path}",
            model="m",
            profile=PROFILE,
            key="sk-no-key",
        )

    async def run(self, model: Any, steps: int, tools: list[Any]) -> list[float]:
        """CPU seconds at each call of one run."""
        self.marks.clear()
        limits = Limits(steps=steps, tokens=10**12, seconds=86_400)
        bench = Remit(name="bench", model=model, tools=tools, limits=limits, hand_back=False)
        outcome = await bench.run("go")
        if outcome.reason is not Reason.STEP_BUDGET:
            raise SystemExit(f"a run ended as {outcome.reason}: {outcome.error}")
        return list(self.marks)

    async def floor(self, steps: int, chars: int) -> list[float]:
        """The least that a client can do."""
        floor = Floor(self.wire, "x" * chars)
        await asyncio.get_running_loop().create_connection(lambda: floor, "127.0.0.1", self.port)
        try:
            return await floor.run(steps)
        finally:
            floor.close()

    async def bare(self, bodies: list[bytes]) -> float:
        """CPU seconds of one bare request of aiohttp, for bodies as they are sent."""
        headers = {"content-type": "application/json", "authorization": "Bearer sk-no-key"}
        url = f"http://127.0.0.1:{self.port}/v1/messages"
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            began = time.process_time()
            for body in bodies:
                async with session.post(url, data=body, headers=headers) as response:
                    await response.read()
            return (time.process_time() - began) / len(bodies)


class Floor(asyncio.Protocol):
    """A loop of tool calls by hand: one connection, one buffer of history, one future."""

    def __init__(self, wire: str, result: str) -> None:
        self._name = WIRES[wire][1].encode()
        self._result = result
        self._came = bytearray()
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._came += data
        if not self._size:
            end = self._came.find(b"\r\n\r\n")
            if end < 0:
                return
            length = self._came.find(b"content-length: ")
            self._size = end + 4 + int(self._came[length + 16 : self._came.find(b"\r\n", length)])
        if len(self._came) >= self._size:
            self._waiter.set_result(bytes(self._came[: self._size]))
            self._came.clear()
            self._size = 0

    async def run(self, steps: int) -> list[float]:
        marks: list[float] = []
        loop = asyncio.get_running_loop()

        async def look(n: int, of: str) -> str:
            del n, of
            marks.append(time.process_time())
            return self._result

        head = b'{"model":"m","max_tokens":4096,"stream":true,"tools":[],"messages":['
        history = bytearray(b'{"role":"user","content":"go"}')
        for _ in range(steps):
            self._waiter: asyncio.Future[bytes] = loop.create_future()
            body = b"".join((head, history, b"]}"))
            self._transport.write(
                b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n" % len(body)
            )
            self._transport.write(body)
            call, text = self._read(await self._waiter)
            arguments = json.loads(text)
            said = await loop.create_task(look(**arguments))
            use = {"type": "tool_use", "id": call, "name": "look", "input": arguments}
            result = {"type": "tool_result", "tool_use_id": call, "content": said}
            for role, block in (("assistant", use), ("user", result)):
                history += b"," + json.dumps({"role": role, "content": [block]}).encode()
        return marks

    def _read(self, answer: bytes) -> tuple[str, str]:
        arguments = ""
        call = ""
        for line in answer.split(b"\n"):
            if not line.startswith(b"data: {"):
                continue
            event: dict[str, Any] = json.loads(line[6:])
            at = line.find(self._name)
            if at >= 0 and not call:
                call = line[at : at + len(self._name) + 20].decode()
            arguments += _delta(event)
        return call, arguments


def _delta(event: dict[str, Any]) -> str:
    """A piece of arguments, on any of the wires."""
    if event.get("choices"):
        calls: list[Any] = event["choices"][0]["delta"].get("tool_calls", [])
        return "".join([each["function"]["arguments"] for each in calls])
    if event.get("type") == "content_block_delta":
        return event["delta"]["partial_json"]
    if event.get("type") == "response.function_call_arguments.delta":
        return event["delta"]
    return ""


class Recording:
    """A transport that keeps the bodies that pass."""

    def __init__(self) -> None:
        self.inner = AiohttpTransport(Connection(proxy=""))
        self.bodies: list[bytes] = []

    def send(self, request: HttpRequest) -> Any:
        self.bodies.append(request.body)
        return self.inner.send(request)

    def opened(self) -> Any:
        return self.inner.opened()


class InProcess:
    """A model without a wire."""

    name = "looper"
    profile = PROFILE

    def __init__(self) -> None:
        self.number = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        del request
        self.number += 1
        arguments = f'{{"n": {self.number}, "of": "a part"}}'
        use = ToolUse(f"call_{self.number:020}", "look", arguments)
        yield BlockDone(use)
        usage = Usage(input=100, output=20)
        yield Reply(Message("assistant", (use,)), StopReason.TOOL_USE, usage)


def per_step(marks: list[float], first: int = 5, last: int | None = None) -> float:
    """CPU seconds per step between two of them."""
    part = marks[first:last]
    return (part[-1] - part[0]) / (len(part) - 1)


def _line(what: str, value: str) -> None:
    print(f"{what:<44} {value}")


async def steps_of(bench: Bench, steps: int, rounds: int) -> None:
    """A step over HTTP, beside a step in process with one bare request, and beside the floor."""
    wired: list[float] = []
    inside: list[float] = []
    bare: list[float] = []
    least: list[float] = []
    tool = bench.tool(200)
    recording = Recording()
    await bench.run(bench.model(transport=recording), steps, [tool])
    for _ in range(rounds):
        least.append(per_step(await bench.floor(steps, 200)))
        wired.append(per_step(await bench.run(bench.model(), steps, [tool])))
        inside.append(per_step(await bench.run(InProcess(), steps, [tool])))
        bare.append(await bench.bare(recording.bodies))
    http, own, request, floor = (statistics.median(each) for each in (wired, inside, bare, least))
    _line(f"a step over HTTP, {steps} steps, 200 characters", f"{http * US:8.1f} us of CPU")
    _line("  a step in process", f"{own * US:8.1f} us")
    _line("  a bare request of aiohttp", f"{request * US:8.1f} us")
    _line("  to the sum of both", f"{http / (own + request):8.2f} times")
    _line("  the floor of raw sockets", f"{floor * US:8.1f} us")
    _line("  to the floor", f"{http / floor:8.2f} times")


async def growth_of(bench: Bench, steps: int, rounds: int) -> None:
    """The last steps of a long run to its first ones."""
    ratios: list[float] = []
    for _ in range(rounds):
        marks = await bench.run(bench.model(), steps, [bench.tool(200)])
        ratios.append(per_step(marks, steps - 20) / per_step(marks, 2, 22))
    _line(f"step {steps} to step 10", f"{statistics.median(ratios):8.2f} times")


async def large_results(bench: Bench, rounds: int) -> None:
    wired: list[float] = []
    least: list[float] = []
    tool = bench.tool(20_000)
    for _ in range(rounds):
        least.append(per_step(await bench.floor(200, 20_000), 180))
        wired.append(per_step(await bench.run(bench.model(), 200, [tool]), 180))
    http, floor = statistics.median(wired), statistics.median(least)
    _line("20,000 characters, step 200", f"{http * US:8.1f} us; the floor {floor * US:.1f} us")
    _line("  to the floor", f"{http / floor:8.2f} times")


async def many_runs(bench: Bench, rounds: int) -> None:
    rates: list[float] = []
    limits = Limits(steps=10, tokens=10**12, seconds=600)
    support = Remit(
        name="bench",
        model=bench.model("/slow"),
        tools=[bench.tool(200)],
        limits=limits,
        hand_back=False,
    )
    for _ in range(rounds):
        began = time.process_time()
        async with support:
            await asyncio.gather(*(support.run(f"go {n}") for n in range(200)))
        rates.append(200 / (time.process_time() - began))
    _line("200 runs of 10 steps, 50 ms", f"{statistics.median(rates):8.0f} runs per CPU-second")


async def many_tools(bench: Bench) -> None:
    async def other(n: int, of: str) -> str:
        """Look something else up, somewhere else, in another way."""
        return f"{n}{of}"

    tools = [bench.tool(200)]
    tools += [remit.tool(effect="read", name=f"other_{n}")(other) for n in range(1_999)]
    marks = await bench.run(bench.model(), 40, tools)
    _line("2,000 tools, a step after the first", f"{per_step(marks, 1) * US:8.1f} us of CPU")


async def eager(bench: Bench, rounds: int) -> None:
    late: list[float] = []

    @remit.tool(effect="read")
    async def look(n: int, of: str) -> str:
        """Look something up."""
        del of
        late.append((time.monotonic_ns() - n) / 1e6)
        return "seen"

    limits = Limits(steps=rounds * 4, tokens=10**12, seconds=600)
    model = bench.model("/eager")
    bench_remit = Remit(name="bench", model=model, tools=[look], limits=limits, hand_back=False)
    await bench_remit.run("go")
    _line(
        "an eager read begins after its last byte",
        f"{statistics.median(late[1:]):8.2f} ms; at most {max(late[1:]):.2f} ms",
    )


async def measure(wire: str, steps: int, rounds: int, only: str | None) -> None:
    with serving(wire) as port:
        bench = Bench(wire, port)
        print(f"{wire}")
        parts: dict[str, Callable[[], Any]] = {
            "steps": lambda: steps_of(bench, 200, rounds),
            "growth": lambda: growth_of(bench, steps, max(1, rounds // 2)),
            "large": lambda: large_results(bench, max(1, rounds // 2)),
            "runs": lambda: many_runs(bench, max(1, rounds // 2)),
            "tools": lambda: many_tools(bench),
            "eager": lambda: eager(bench, rounds),
        }
        for name, part in parts.items():
            if only in {None, name}:
                await part()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--wire", choices=list(WIRES))
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["steps", "growth", "large", "runs", "tools", "eager"])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.wire))
        return
    for wire in [given.wire] if given.wire else WIRES:
        asyncio.run(measure(wire, given.steps, given.rounds, given.only))


if __name__ == "__main__":
    main()
