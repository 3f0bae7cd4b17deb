"""A worker that is stopped past its lease, taken over from, and continued: a program for tests. Real time.

    python stop_rig.py FOLDER PHASE [TOOL]

The worker is stopped (SIGSTOP) in a phase of its step; with TOOL, where the ledger last told of this tool. Another
waits for its lease to pass, takes the run over and finishes it; then the first is continued (SIGCONT). Writes one
JSON object: what was there before it was continued, what there was after it had ended, and how it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from kill_rig import LEFT_FOR_DEAD, Board, Desk, Files, Phase, calls_of, forked, states_in, tool_of
from remit.store.sqlite import SqliteStore

LEASE_SECONDS = 1.5
TURNS = 200
"""So that the worker, once it is continued, is still between the start and its body when its heartbeat goes out."""
FIRST, SECOND = range(2)


class Stop:
    """The two workers of one run, and what they leave behind."""

    def __init__(self, folder: Path, phase: Phase, tool: str | None) -> None:
        self._tool = tool
        self._files = Files(folder)
        self._phase = phase
        self._board = Board(2)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})

    def play(self) -> dict[str, Any]:
        first = forked(lambda: asyncio.run(self._work(FIRST)))
        self._stop(first)
        second = forked(lambda: asyncio.run(self._work(SECOND)))
        self._await(second)
        before = self._seen(first)
        os.kill(first, signal.SIGCONT)
        self._await(first)
        return {
            "before": before,
            "after": self._seen(first),
            "first": (self._files.folder / f"ended {FIRST}").read_text("utf-8"),
            "second": (self._files.folder / f"ended {SECOND}").read_text("utf-8"),
        }

    async def _work(self, slot: int) -> None:
        desk = Desk(
            SqliteStore(self._files.runs, lease_seconds=LEASE_SECONDS),
            note=lambda what, key: self._files.note(f"{os.getpid()}-{what}", key),
            tell=lambda phase: self._board.tell(slot, phase),
            turns=TURNS if slot == FIRST and self._phase is Phase.BEFORE_THE_BODY else 1,
        )
        outcome = await desk.finish("run")
        reason = outcome.reason.value
        (self._files.folder / f"ended {slot}").write_text(reason, "utf-8")

    def _stop(self, process: int) -> None:
        """Stop it in the phase, and outside of a transaction: a lock on the file would outlast its lease."""
        until = time.monotonic() + LEFT_FOR_DEAD
        while True:
            if self._is_there():
                os.kill(process, signal.SIGSTOP)
                os.waitpid(process, os.WUNTRACED)
                if self._is_there() and self._is_free() and self._has_entered(process):
                    return
                os.kill(process, signal.SIGCONT)
            signal.sigtimedwait({signal.SIGCHLD}, 0.0002)
            assert time.monotonic() < until

    def _is_there(self) -> bool:
        if self._board.phase(FIRST) is not self._phase:
            return False
        if self._tool is None:
            return True
        ledger = self._files.ledger
        lines = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
        return any(tool_of(line) == self._tool for line in lines[-1:])

    def _is_free(self) -> bool:
        with closing(sqlite3.connect(self._files.runs, timeout=0, isolation_level=None)) as file:
            try:
                file.execute("begin immediate")
            except sqlite3.OperationalError:
                return False
        return True

    def _has_entered(self, process: int) -> bool:
        """Whether it is in every body that it began: none is between the look at its lease and its first line."""
        if self._phase in {Phase.ASKING, Phase.BEFORE_THE_BODY}:
            return True
        entered = self._files.counted(f"{process}-entered")
        begun = [calls_of(state)[1] for state in states_in(self._files.runs, "run")]
        return all(entered[key] for keys in begun for key in keys)

    def _await(self, process: int) -> None:
        _, status = os.waitpid(process, 0)
        assert status == 0

    def _seen(self, first: int) -> dict[str, Any]:
        """The rows and the ledger as they are now."""
        with closing(sqlite3.connect(self._files.runs)) as file:
            rows = file.execute(
                "select run_id, seq, epoch, hex(link) from remit_row order by 1, 2"
            ).fetchall()
        lines = [line.split(" ", 1) for line in self._files.ledger.read_text("utf-8").splitlines()]
        said = [(line[0].split("-"), line[1]) for line in lines]
        return {
            "rows": rows,
            "entered by the first": [
                key for (who, what), key in said if (who, what) == (str(first), "entered")
            ],
            "entered": [key for (_, what), key in said if what == "entered"],
            "did": [key for (_, what), key in said if what == "did"],
        }


def main(folder: str, phase: str, tool: str | None = None) -> None:
    sys.stdout.write(json.dumps(Stop(Path(folder), Phase[phase], tool).play()))


if __name__ == "__main__":
    main(*sys.argv[1:])
