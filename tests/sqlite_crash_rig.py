"""Processes that end in the middle of a run on a SQLite file, and others that go on: a program for tests.

    python sqlite_crash_rig.py

It reads lines of JSON: `[SHAPE, FOLDER, EVERY, OFFSET, SIGNAL]`. It plays a shape of `crash_rig` in a process of its
own that ends at a boundary, before or after a commit or around an effect: by `os._exit`, or by a SIGNAL that it sends to
itself. No `finally`, no `atexit` and no thread has any say then. Another process resumes on the same file, brings the
run to its end and holds it against the run without a crash. Every EVERY-th boundary is played, from OFFSET on; each is
a line of JSON in FOLDER/played, with what came of it. What is wrong stands in FOLDER/wrong. Each line is answered with
the exit status of the process that saw to it, which knows nothing of those of other lines.

Time is virtual and the files are real: the event loop of the run stands still while the store commits on another. The
processes are forked off a warm one, which never opens the store and has no thread.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Never, cast

from crash_rig import SHAPES, Before, Shape, World, judge, without_crash
from remit.store.memory import MemoryStore
from remit.store.sqlite import SqliteStore
from remit.testing import run_virtual
from remit.testing.crash import CrashPoint, CrashStore, Ledger

__all__ = ["AtOnce", "DyingStore", "FileLedger", "in_a_process"]

SECONDS = 300
"""No process lives longer."""
DIED = 77
"""The exit status of a process that came to its boundary."""


class AtOnce:
    """A store whose answers are there at once, as an event loop on virtual time wants them.

    Whatever is asked is done on an event loop of its own, and the caller's stands still meanwhile.
    """

    def __init__(self, inner: SqliteStore) -> None:
        self._inner = inner
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(act):
            return act

        async def asked(*arguments: Any, **named: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(act(*arguments, **named), self._loop).result()

        return asked


class Places:
    """The boundaries that a process passes; at one of them it ends."""

    def __init__(self, at: int, told: Path, by: int) -> None:
        self._at = at
        self._signal = by
        self._told = told
        self._passed = -1

    def __call__(self, what: str) -> None:
        self._passed += 1
        if self._passed == self._at:
            self._told.write_text(what, "utf-8")
            if self._signal:
                os.kill(os.getpid(), self._signal)
            os._exit(DIED)


class DyingStore(CrashStore):
    """A `CrashStore` at whose boundary the process ends."""

    def __init__(self, inner: AtOnce, ledger: Ledger, passes: Callable[[str], None]) -> None:
        super().__init__(inner=cast("MemoryStore", inner), ledger=ledger)  # it answers as one does
        self._passes = passes

    async def _boundary(self, what: str) -> None:
        self._passes(what)


class FileLedger(Ledger):
    """The downstream service is a file, one line for each call that reached it."""

    def __init__(self, path: Path, passes: Callable[[str], None]) -> None:
        super().__init__()
        self._path = path
        self._passes = passes
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                key, value = json.loads(line)
                super().done(key, value)

    def done(self, key: str, value: Any = None) -> Any:
        self._passes(f"before the effect {key}")
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps([key, value]).encode() + b"\n")
        first = super().done(key, value)
        self._passes(f"after the effect {key}")
        return first


def in_a_process(act: Callable[[], object]) -> int:
    """Do something in a process of its own, which ends without any farewell. Gives its exit status."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    signal.alarm(SECONDS)
    try:
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _nowhere(_what: str) -> None:
    """Nothing ends here."""


class Crash:
    """One shape, one boundary, one file."""

    def __init__(self, shape: Shape, reference: World, folder: Path, at: int, by: int) -> None:
        self._signal = by
        self._shape = shape
        self._reference = reference
        self._folder = folder
        self._at = at
        folder.mkdir()

    def play(self) -> dict[str, Any] | None:
        """Die and go on. Gives what came of it; None where the run ended before it came to the boundary."""
        told = self._folder / "died at"
        died = in_a_process(lambda: self._run(Places(self._at, told, self._signal)))
        if died not in (0, -self._signal or DIED):
            raise AssertionError(f"boundary {self._at} of the first process: it ended with {died}")
        self._what = told.read_text("utf-8") if died else "the end"
        if in_a_process(self._resume):
            raise AssertionError(f"boundary {self._at}: {self._what}")
        came = json.loads((self._folder / "came of it").read_text("utf-8"))
        return {"at": self._what, **came} if died else None

    def _run(self, passes: Callable[[str], None]) -> None:
        ledger = FileLedger(self._folder / "ledger", passes)
        store = DyingStore(AtOnce(SqliteStore(self._folder / "runs.db")), ledger, passes)
        run_virtual(self._shape.play(store, ledger))

    def _resume(self) -> Never:
        ledger = FileLedger(self._folder / "ledger", _nowhere)
        inner = AtOnce(SqliteStore(self._folder / "runs.db"))
        store = DyingStore(inner, ledger, _nowhere)
        standing = cast("MemoryStore", inner)
        there = run_virtual(_there(inner, self._reference.runs))
        point = CrashPoint(self._at, self._what, standing, there, ledger)
        before = Before.read(point)

        async def main() -> World:
            outcome = await self._shape.play(store, ledger)
            runs = tuple(dict.fromkeys((*there, *store.opened)))
            return await World(outcome, standing, ledger, runs).read()

        world = run_virtual(main())
        judge(self._shape, self._reference, point, before, world)
        results = [[r.key, r.status.value, r.text] for r in world.results["r"]]
        came = {"calls": Counter(ledger.calls), "results": results}
        (self._folder / "came of it").write_text(json.dumps(came), "utf-8")
        os._exit(0)


async def _there(store: AtOnce, runs: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the runs that are in the store."""
    return tuple([run_id for run_id in runs if await store.info(run_id) is not None])


def see_to(name: str, folder: Path, every: int, offset: int, by: int) -> None:
    with (folder / "wrong").open("wb") as wrong:
        os.dup2(wrong.fileno(), 2)
    shape = replace(SHAPES[name], wire="anthropic")
    reference = without_crash(shape)
    with (folder / "played").open("w", encoding="utf-8") as played:
        for at in itertools.count(offset, every):
            came = Crash(shape, reference, folder / str(at), at, by).play()
            if came is None:
                return
            played.write(f"{json.dumps(came)}\n")
            played.flush()  # or whoever is forked off writes it too


def main() -> None:
    for line in sys.stdin:
        name, folder, *numbers = json.loads(line)
        status = in_a_process(lambda: see_to(name, Path(folder), *numbers))  # noqa: B023 - it runs now
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
