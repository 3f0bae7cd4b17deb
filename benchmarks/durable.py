"""What durability costs: runs over a store in a SQLite file, in ratios to a floor of bare `sqlite3`.

    python benchmarks/durable.py [--rounds 9] [--only step|many|waiting|resume|turns]

Prints figures and judges nothing. CPU is this process's with all its threads, the user's and the system's; what is
compared is measured in turns, because machines drift, and medians of the turns are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sqlite3
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import remit
from remit import (
    Limits,
    Message,
    ModelProfile,
    Outcome,
    Reason,
    Remit,
    Reply,
    StopReason,
    Text,
    ToolUse,
    Usage,
)
from remit.models.base import BlockDone, Chunk, ModelRequest
from remit.report import read_state
from remit.store.sqlite import SqliteStore
from remit.tools.options import EffectName
from slow_disk import compiler, slow_disk

AMPLE: Final = Limits(steps=1_000_000, tokens=10**12, seconds=86_400)
USAGE: Final = Usage(input=100, output=20)
RESULT: Final = "".join(random.Random(7).choices(string.ascii_letters + " \n", k=20_000))
US: Final = 1e6
MS: Final = 1e3
MB: Final = 1e6


class Looper:
    """A model that asks for one call a step, with arguments that vary, and then stops."""

    name = "looper"
    profile = ModelProfile(context_window=10**9)

    def __init__(self, steps: int) -> None:
        self._steps = steps

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        step = len(request.transcript) // 2
        if step >= self._steps:
            yield Reply(Message("assistant", (Text("done"),)), StopReason.END_TURN, USAGE)
            return
        use = ToolUse(f"call_{step}", "look", f'{{"n": {step}, "of": "part {step}"}}')
        yield BlockDone(use)
        yield Reply(Message("assistant", (use,)), StopReason.TOOL_USE, USAGE)


def bench(
    steps: int, effect: EffectName, store: SqliteStore, size: int = len(RESULT)
) -> Remit[None]:
    """A remit of so many steps whose results have `size` characters, each a little different."""

    @remit.tool(effect=effect)
    async def look(n: int, of: str) -> str:
        """Look something up."""
        del of
        return f"{n:06d}{RESULT[6:size]}"

    return Remit(name="bench", model=Looper(steps), tools=[look], limits=AMPLE, store=store)


@contextmanager
def new_store() -> Generator[tuple[SqliteStore, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        store = SqliteStore(path)
        try:
            yield store, path
        finally:
            store.close()


def bare(path: Path) -> sqlite3.Connection:
    """A connection as the store has it, and one table."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("create table event(id integer primary key, body blob not null)")
    return connection


def insert_and_commit(connection: sqlite3.Connection, body: bytes) -> None:
    connection.execute("begin immediate")
    connection.execute("insert into event(body) values (?)", (body,))
    connection.execute("commit")


# --- one step ------------------------------------------------------------------------------------


class Cost:
    """Rounds of a step and of its floor, in seconds of CPU."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.floors: list[float] = []
        self.commits = 0.0
        self.growth = 0.0
        """Bytes on disk for each byte of new content."""

    @property
    def ratio(self) -> float:
        return statistics.median(
            step / floor for step, floor in zip(self.steps, self.floors, strict=True)
        )


def floor_of_a_step(bodies: Sequence[bytes], steps: int) -> float:
    """Seconds of CPU in which bare `sqlite3` inserts these and commits each."""
    with tempfile.TemporaryDirectory() as folder:
        connection = bare(Path(folder) / "floor.db")
        began = time.process_time()
        for _ in range(steps):
            for body in bodies:
                insert_and_commit(connection, body)
        took = time.process_time() - began
        connection.close()
    return took / steps


async def step(cost: Cost, steps: int, effect: EffectName) -> None:
    with new_store() as (store, path):
        await bench(3, effect, store).run("warm up")
        commits = store.commits
        began = time.process_time()
        outcome = await bench(steps, effect, store).run("go", run_id="r")
        cost.steps.append((time.process_time() - began) / steps)
        outcome.raise_for_reason()
        cost.commits = (store.commits - commits) / steps
        rows = await store.read("r")
        store.close()
        cost.growth = path.stat().st_size / (steps * len(RESULT))
    written = sum(len(row.body) for row in rows) // steps
    texts = [b"r" * (written // 2)] if effect != "read" else []
    texts.append(RESULT.encode() + b"r" * (written - sum(map(len, texts))))
    cost.floors.append(floor_of_a_step(texts, steps))


def report_steps(rounds: int) -> None:
    for effect in ("read", "idempotent"):
        cost = Cost()
        for _ in range(rounds):
            asyncio.run(step(cost, 300, effect))
        print(
            f"durable step, {effect:10s} 20 kB  {statistics.median(cost.steps) * US:8.0f} us of CPU, "
            f"{cost.ratio:.2f} times bare insert-and-commit ({statistics.median(cost.floors) * US:.0f} us)"
        )
        print(
            f"  commits and bytes            {cost.commits:8.2f} commits a step; "
            f"{cost.growth:.2f} bytes on disk for a byte of results"
        )


# --- many runs -----------------------------------------------------------------------------------


async def many(runs: int, steps: int, size: int) -> tuple[float, float, float]:
    """Rows a second of runs at the same time, rows in a commit, commits a second."""
    with new_store() as (store, _):
        bench_ = bench(steps, "idempotent", store, size)
        await bench_.run("warm up")
        commits, began = store.commits, time.perf_counter()
        outcomes = await asyncio.gather(
            *(bench_.run(f"go {n}", run_id=f"r{n}") for n in range(runs))
        )
        took = time.perf_counter() - began
        for outcome in outcomes:
            outcome.raise_for_reason()
        rows = sum([len(await store.read(f"r{n}")) for n in range(runs)])
        commits = store.commits - commits
        return rows / took, rows / commits, commits / took


def one_by_one(rows: int, size: int) -> float:
    """Rows a second with a commit for each, by bare `sqlite3`."""
    with tempfile.TemporaryDirectory() as folder:
        connection = bare(Path(folder) / "floor.db")
        began = time.perf_counter()
        for number in range(rows):  # of three rows of a step one has the result
            insert_and_commit(connection, RESULT[: 400 if number % 3 else size].encode())
        took = time.perf_counter() - began
        connection.close()
    return rows / took


def report_many(disk: str) -> None:
    for size in (400, len(RESULT)):
        singles: list[float] = []
        groups: list[tuple[float, float, float]] = []
        for _ in range(3):
            singles.append(one_by_one(300, size))
            groups.append(asyncio.run(many(100, 5, size)))
        each, (rows, grouped, commits) = statistics.median(singles), sorted(groups)[1]
        print(
            f"100 runs, {size / 1e3:4.1f} kB, {disk:10s}  {rows:8.0f} rows a second, {rows / each:.1f} times a commit "
            f"for each ({each:.0f}); {grouped:.0f} rows a commit, {commits:.0f} commits a second"
        )


def report_many_on_a_slow_disk(seconds: float) -> None:
    if compiler() is None:
        print("no C compiler here: the disk is as it is")
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(  # noqa: S603 - this file
            [sys.executable, __file__, "--only", "many", "--disk", f"{seconds * MS:g} ms more"],
            env=slow_disk(Path(folder), seconds),
            check=True,
        )


# --- waiting runs --------------------------------------------------------------------------------


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def waiting(runs: int, at_once: int) -> tuple[float, int]:
    """Bytes beyond the process before its first run, and tasks beyond this one, with so many runs that wait."""

    @remit.tool(effect="confirm")
    async def look(n: int, of: str) -> str:
        """Look something up, if that is allowed."""
        return f"{n} {of}"

    with new_store() as (store, _):
        desk = Remit(name="desk", model=Looper(1), tools=[look], limits=AMPLE, store=store)
        begun: list[Coroutine[Any, Any, Outcome[Any]]] = []
        outcomes: list[Outcome[Any]] = []
        await store.info("nobody")
        gc.collect()
        before = resident()
        for first in range(0, runs, at_once):
            begun = [desk.run(f"go {n}") for n in range(first, first + at_once)]
            outcomes = await asyncio.gather(*begun)
            if any(outcome.reason is not Reason.WAITING for outcome in outcomes):
                raise RuntimeError("a run does not wait")
        begun.clear()
        outcomes.clear()
        await asyncio.sleep(
            0
        )  # what woke this task up holds the tasks of the runs for as long as its turn lasts
        gc.collect()
        return resident() - before, len(asyncio.all_tasks()) - 1


def report_waiting() -> None:
    for at_once in (1, 50, 1_000):  # how many are at work together before they wait
        code = f"import asyncio, durable; print(*asyncio.run(durable.waiting(1_000, {at_once})))"
        ran = subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "-c", code],
            cwd=Path(__file__).parent,
            capture_output=True,
            check=True,
            text=True,
        )
        more, tasks = ran.stdout.split()
        print(
            f"1,000 runs wait, {at_once:5} at once   {float(more) / MB:8.1f} MB beyond an idle process, {tasks} tasks"
        )


# --- resuming ------------------------------------------------------------------------------------


def timed(act: Callable[[], Any]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def read_plainly(path: Path) -> None:
    """Everything that a resume needs, by bare `sqlite3`."""
    connection = sqlite3.connect(path)
    connection.execute(
        "select r.seq, r.epoch, r.kind, r.digest, r.link, p.salt, p.body from remit_row r"
        " join remit_run u using(run_id) join remit_payload p on p.id = (u.number << 32) + r.seq"
        " where r.run_id = 'r' order by r.seq"
    ).fetchall()
    connection.execute(
        "select a.digest, a.media_type, a.data from remit_holding h join remit_artifact a using(digest)"
        " where h.root = 'r'"
    ).fetchall()
    connection.close()


async def report_resume(rounds: int) -> None:
    with new_store() as (store, path):
        (await bench(200, "idempotent", store).run("go", run_id="r")).raise_for_reason()
        times: dict[str, list[float]] = {"plain": [], "read": [], "replay": []}
        for _ in range(rounds):
            times["plain"].append(timed(lambda: read_plainly(path)))
            began = time.process_time()
            rows = await store.read("r")
            times["read"].append(time.process_time() - began)
            began = time.process_time()
            await read_state(store, "r")
            times["replay"].append(time.process_time() - began)
            del rows
        plain, read, replay = (statistics.median(times[name]) * MS for name in times)
        print(
            f"resume of 200 steps of 20 kB   {replay:8.1f} ms of CPU, {replay / plain:.2f} times reading rows and "
            f"artifacts plainly ({plain:.1f} ms); rows verified {read:.1f} ms"
        )


# --- turns of a session --------------------------------------------------------------------------


async def turn(talk: Remit[None]) -> float:
    """Seconds of CPU that one turn takes."""
    began = time.process_time()
    (await talk.run("and now?", session="s")).raise_for_reason()
    return time.process_time() - began


class Talker(Looper):
    """A model that asks for one call in each turn, and then answers."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        last = request.transcript.last
        if last is not None and last.tool_results:
            yield Reply(Message("assistant", (Text("done"),)), StopReason.END_TURN, USAGE)
            return
        use = ToolUse(f"call_{len(request.transcript)}", "look", '{"n": 1, "of": "all"}')
        yield Reply(Message("assistant", (use,)), StopReason.TOOL_USE, USAGE)


async def report_turns(turns: int, rounds: int) -> None:
    with new_store() as (store, path):
        talk = bench(0, "read", store, 2_000).replace(model=Talker(0))
        early = [await turn(talk) for _ in range(10 + rounds)][10:]
        for _ in range(turns - 10 - 2 * rounds):
            await turn(talk)
        late = [await turn(talk) for _ in range(rounds)]
        store.close()
        cold: list[float] = []
        for _ in range(3):
            again = SqliteStore(path)  # as another process has it, which has read nothing
            cold.append(await turn(talk.replace(store=again)))
            again.close()
        first, last = statistics.median(early) * MS, statistics.median(late) * MS
        print(
            f"turn {turns:,} of a session        {last:8.1f} ms of CPU, {last / first:.2f} times turn 10; "
            f"in a process that has read nothing {statistics.median(cold) * MS:.1f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=("step", "many", "waiting", "resume", "turns"))
    parser.add_argument("--disk", default="this disk", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only in (None, "step"):
        report_steps(given.rounds)
    if given.only in (None, "many"):
        report_many(given.disk)
    if given.only is None:
        report_many_on_a_slow_disk(0.004)
    if given.only in (None, "waiting"):
        report_waiting()
    if given.only in (None, "resume"):
        asyncio.run(report_resume(3 * given.rounds))
    if given.only in (None, "turns"):
        asyncio.run(report_turns(1_000, given.rounds))


if __name__ == "__main__":
    main()
