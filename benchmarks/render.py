"""What a large result costs: CPU in copies of it, the event loop's longest stall, memory in sizes of it.

    python benchmarks/render.py [--megabytes 10]

Prints figures and judges nothing. CPU is that of the thread which renders, without hashing; a copy is one of the
same text, made in the same run. The stall is the longest time for which the event loop of a real run did not
come round, with the real thread pool; the last line says what of it is the machine's. Memory is counted beside the
value that the tool returned.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import remit
from remit import Limits, Remit
from remit.excerpt import chars_of
from remit.render import render
from remit.shown import RESULT_TOKENS, Allowance, fitted
from remit.testing import ScriptedModel

AMPLE = Limits(steps=1_000, tokens=10**12, seconds=86_400)
ALLOWANCE = Allowance(chars_of(RESULT_TOKENS), lambda _: False)


def values(size: int) -> dict[str, Callable[[], Any]]:
    """Values whose text has about so many bytes."""
    line = "2026-08-01 12:00:00 INFO order 1042 is in transit; expected Thursday\n"
    wide = "2026-08-01 12:00:00 INFO Bestellung f\u00fcr Z\u00fcrich; \u914d\u9001\u4e2d\n"
    row = {"id": 1042, "name": "order 1042", "total": 12.5, "tags": ["late", "paid"]}
    count = size // len(json.dumps(row, separators=(",", ":")))
    return {
        "ASCII text": lambda: line * (size // len(line)),
        "wide text": lambda: wide * (size // len(wide.encode())),
        "one line": lambda: "x" * size,
        "JSON value": lambda: [dict(row) for _ in range(count)],
        "bytes": lambda: b"\xff" * size,
    }


def cpu(work: Callable[[], object]) -> float:
    """Seconds of CPU of this thread, the median of some runs. What they make is kept: new memory is a part of it."""
    made: list[object] = []
    taken: list[float] = []
    for _ in range(9):
        began = time.thread_time()
        made.append(work())
        taken.append(time.thread_time() - began)
    return statistics.median(taken)


def copies(value: Any) -> tuple[float, float]:
    """CPU of rendering and fitting without hashing, in copies of the text; and of one copy, in seconds."""
    made = fitted(render(value), ALLOWANCE)
    data = made.artifacts[0].data
    text = value if isinstance(value, str) else data
    copy = cpu(lambda: text.encode() if isinstance(text, str) else bytes(bytearray(text)))
    hashed = cpu(lambda: hashlib.sha256(data).hexdigest())
    return (cpu(lambda: fitted(render(value), ALLOWANCE)) - hashed) / copy, copy


class Ticker:
    """Goes round with the event loop and notes the longest round."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.perf_counter()
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._last)
        self._last = time.perf_counter()
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> float:
        self._handle.cancel()
        return self.longest


async def run_with(value: Any, *, seconds: float = 0.0) -> float:
    """A run with this result after so many seconds; the longest stall of its event loop, in seconds."""
    left: list[Any] = [value]
    del value  # from here on it is the run's

    @remit.tool(effect="read", eager=False)
    async def fetch() -> Any:
        """Fetches it."""
        await asyncio.sleep(seconds)
        return left.pop()

    worker = Remit(
        name="bench", model=ScriptedModel([("fetch", {}), "done"]), tools=[fetch], limits=AMPLE
    )
    ticker = Ticker()
    outcome = await worker.run("go")
    outcome.raise_for_reason()
    return ticker.stop()


def stall(make: Callable[[], Any], seconds: float = 0.0) -> float:
    """The least of several runs: what else the machine does comes on top of the others."""
    return min(asyncio.run(run_with(make(), seconds=seconds)) for _ in range(15))


def peak(make: Callable[[], Any], size: int) -> float:
    """What a run takes at most beside the value itself, which it is given, in sizes of the text."""
    asyncio.run(run_with("warm"))
    value = make()
    gc.collect()
    tracemalloc.start()
    asyncio.run(run_with(value))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=10)
    size = parser.parse_args().megabytes * 1_000_000
    print(
        f"a result of {size / 1e6:.0f} MB   CPU beyond hashing      loop stall   memory beside it"
    )
    for name, make in values(size).items():
        ratio, copy = copies(make())
        print(
            f"{name:16} {ratio:8.1f} copies of {copy * 1e3:4.1f} ms {stall(make) * 1e3:9.1f} ms "
            f"{peak(make, size):11.1f} times its size"
        )
    waits = stall(lambda: "small", 0.03) * 1e3
    print(f"a small one that takes 30 ms to come {waits:12.1f} ms")


if __name__ == "__main__":
    main()
