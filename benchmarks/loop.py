"""What the loop itself costs, in ratios to a hand-written asyncio loop of the same run.

    python benchmarks/loop.py [--steps 1000]

Prints figures and judges nothing. CPU is this process's; every comparison with the floor is made in the same
run, in turns, because machines drift.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator

import remit
from remit import Limits, Message, ModelProfile, Remit, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import BlockDone, Chunk, ModelRequest

RESULT = "x" * 200
USAGE = Usage(input=100, output=20)
AMPLE = Limits(steps=1_000_000, tokens=10**12, seconds=86_400)


class Looper:
    """A model that asks for one call a step, with arguments that vary, and then stops."""

    name = "looper"
    profile = ModelProfile()

    def __init__(self, steps: int, latency: float = 0.0, width: int = 1) -> None:
        self.steps = steps
        self.latency = latency
        self.width = width
        self.marks: dict[int, float] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if self.latency:
            await asyncio.sleep(self.latency)
        step = len(request.transcript) // 2
        self.marks[step] = time.process_time()
        if step >= self.steps:
            yield Reply(Message("assistant", (Text("done"),)), StopReason.END_TURN, USAGE)
            return
        uses = tuple(
            ToolUse(f"call_{step}_{n}", "look", f'{{"n": {step}, "of": "part {n}"}}')
            for n in range(self.width)
        )
        for use in uses:
            yield BlockDone(use)
        yield Reply(Message("assistant", uses), StopReason.TOOL_USE, USAGE)


@remit.tool(effect="read")
async def look(n: int, of: str) -> str:
    """Look something up."""
    del n, of
    return RESULT


@remit.tool(effect="read", name="look")
async def slow_look(n: int, of: str) -> str:
    """Look something up, which takes 100 ms."""
    del n, of
    await asyncio.sleep(0.1)
    return RESULT


async def floor(steps: int) -> float:
    """Seconds of CPU per step of the least that any loop must do: stream, decode, run a task, encode."""

    async def body(n: int, of: str) -> str:
        del n, of
        return RESULT

    async def model(step: int) -> AsyncIterator[dict[str, str]]:
        yield {"id": f"call_{step}", "name": "look", "arguments": f'{{"n": {step}, "of": "a"}}'}

    rows: list[bytes] = []
    began = time.process_time()
    for step in range(steps):
        async for call in model(step):
            rows.append(json.dumps({"role": "assistant", "content": [call]}).encode())
            result = await asyncio.create_task(body(**json.loads(call["arguments"])))
            said = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
            rows.append(json.dumps({"role": "user", "content": [said]}).encode())
    return (time.process_time() - began) / steps


async def steps_cost(steps: int) -> tuple[float, float, float]:
    """Seconds of CPU per step: over all steps, around step 10, and around the last one."""
    model = Looper(steps)
    outcome = await Remit(name="bench", model=model, tools=[look], limits=AMPLE).run("go")
    outcome.raise_for_reason()
    marks, around = model.marks, min(100, steps // 4)
    return (
        (marks[steps] - marks[5]) / (steps - 5),
        (marks[5 + around] - marks[5]) / around,
        (marks[steps] - marks[steps - around]) / around,
    )


async def parallel_overhead(width: int) -> float:
    """Seconds of wall time beyond the 100 ms that one of the tools takes."""
    model = Looper(1, width=width)
    bench = Remit(name="bench", model=model, tools=[slow_look], limits=AMPLE)
    began = time.perf_counter()
    outcome = await bench.run("go")
    took = time.perf_counter() - began
    outcome.raise_for_reason()
    return took - 0.1


async def concurrent_runs(runs: int) -> float:
    """Runs of 10 steps each that one second of CPU serves, with 50 ms of model latency."""
    model = Looper(10, latency=0.05)
    bench = Remit(name="bench", model=model, tools=[look], limits=AMPLE)
    began = time.process_time()
    outcomes = await asyncio.gather(*(bench.run(f"go {n}") for n in range(runs)))
    for outcome in outcomes:
        outcome.raise_for_reason()
    return runs / (time.process_time() - began)


async def memory_of_waiting(runs: int) -> float:
    """Bytes that a run holds, beyond its transcript and rows, while its model is awaited."""
    model = Looper(1, latency=30)
    bench = Remit(name="bench", model=model, tools=[look], limits=AMPLE)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tasks = [asyncio.create_task(bench.run(f"go {n}")) for n in range(runs)]
    await asyncio.sleep(1)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return (after - before) / runs


def import_cost() -> tuple[float, float]:
    """Seconds of CPU of `import remit` once it is compiled, and of a bare interpreter."""
    with tempfile.TemporaryDirectory() as cache:
        # As in an installed package: byte code is written at the first import and read ever after.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def cpu(code: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)  # noqa: S603 - our own two words
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        cpu("import remit; remit.Remit, remit.tool, remit.Limits")
        bare = statistics.median(cpu("pass") for _ in range(9))
        return statistics.median(
            cpu("import remit; remit.Remit, remit.tool, remit.Limits") for _ in range(9)
        ) - bare, bare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=1_000)
    steps = parser.parse_args().steps
    floors: list[float] = []
    costs: list[tuple[float, float, float]] = []
    for _ in range(5):
        floors.append(asyncio.run(floor(steps)))
        costs.append(asyncio.run(steps_cost(steps)))
    least = statistics.median(floors)
    every, first, last = (statistics.median(cost[n] for cost in costs) for n in range(3))
    print(f"floor, hand-written asyncio    {least * 1e6:8.1f} us of CPU per step")
    print(
        f"remit, one call a step         {every * 1e6:8.1f} us, {every / least:.1f} times the floor"
    )
    print(f"  step {steps} to step 10        {last / first:8.2f} times")
    print(
        f"100 parallel tools of 100 ms   {asyncio.run(parallel_overhead(100)) * 1e3:8.1f} ms over 100 ms"
    )
    print(
        f"200 runs of 10 steps, 50 ms    {asyncio.run(concurrent_runs(200)):8.0f} runs per CPU-second"
    )
    print(f"memory of a waiting run        {asyncio.run(memory_of_waiting(200)) / 1e3:8.1f} kB")
    imported, bare = import_cost()
    print(
        f"import remit                   {imported * 1e3:8.1f} ms of CPU; a bare Python {bare * 1e3:.1f}"
    )


if __name__ == "__main__":
    main()
