"""What the command line costs to start, in ratios to `python -c pass` of the same run.

    python benchmarks/cli.py [--rounds 9]

Prints figures and judges nothing. Each is the fastest of several rounds, all of them taken in turns, because
machines drift.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
REMIT = (sys.executable, "-m", "remit.cli")


def commands(directory: Path) -> dict[str, Sequence[str]]:
    """What is measured, by name."""
    (directory / "script.json").write_text(json.dumps(["Hello."]), "utf-8")
    run = (*REMIT, "run", "hi", "--model", "scripted:script.json", "--plain")
    return {
        "python -c pass": (sys.executable, "-c", "pass"),
        "remit --version": (*REMIT, "--version"),
        "remit completion bash": (*REMIT, "completion", "bash"),
        "remit config show": (*REMIT, "config", "show"),
        "remit --help": (*REMIT, "--help"),
        "remit run --stpes": (*REMIT, "run", "--stpes"),
        "remit tools": (*REMIT, "tools", "remit.demo"),
        "remit run, first line": run,
        "remit run, to its end": run,
    }


def seconds(command: Sequence[str], directory: Path, *, first_line: bool) -> float:
    """How long it takes until its first line on stderr, or until it has ended."""
    began = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - our own interpreter and our own command line
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if first_line else subprocess.DEVNULL,
    ) as process:
        if process.stderr is not None:
            process.stderr.readline()
            taken = time.perf_counter() - began
            process.stderr.read()
            return taken
        process.wait()
    return time.perf_counter() - began


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as place:
        measured = commands(Path(place))
        best = dict.fromkeys(measured, float("inf"))
        for _ in range(rounds):
            for name, command in measured.items():
                taken = seconds(command, Path(place), first_line="first line" in name)
                best[name] = min(best[name], taken)
    floor = best["python -c pass"]
    print(f"{'command':<24} {'ms':>6} {'ratio':>6}")
    for name, taken in best.items():
        print(f"{name:<24} {taken * 1000:>6.0f} {taken / floor:>6.1f}")


if __name__ == "__main__":
    main()
