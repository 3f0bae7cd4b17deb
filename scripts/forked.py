"""Runs of pytest in copies of this process, which has loaded what does not change.

To start an interpreter and to import pytest, hypothesis and pydantic costs more than most tests that notice a
mutant. A copy of a process that has done so begins at once. What is tested is not loaded here: each run imports
it from the folder that it is given.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Generic, TypeVar

__all__ = ["Ended", "pytest_in", "side_by_side", "warm_up"]

T = TypeVar("T")

_LOADED_ONCE = (
    "aiohttp",
    "asyncio",
    "cyclopts",
    "docstring_parser",
    "hypothesis.strategies",
    "jsonschema_rs",
    "msgspec",
    "pydantic",
    "pytest",
)
_POLL_SECONDS = 0.01


def warm_up() -> None:
    """Load what every run needs and no mutant changes."""
    for name in _LOADED_ONCE:
        import_module(name)


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """How one piece of work ended."""

    work: T
    code: int | None
    """Its exit code; None if it ran out of time."""
    output: str
    seconds: float


def side_by_side(
    works: Iterable[T],
    run: Callable[[T], int],
    *,
    folder: Path,
    width: int,
    seconds: Callable[[T], float],
) -> Iterator[Ended[T]]:
    """Run each piece of work in a process of its own, `width` at a time, each for so many seconds at most.

    `run` returns an exit code; what it prints is collected in `folder`. Shape: one `Ended` for each, as they end.
    """
    waiting = iter(works)
    under_way: dict[int, tuple[T, Path, float]] = {}
    more = True
    while more or under_way:
        while more and len(under_way) < width:
            work = next(waiting, None)
            if work is None:
                more = False
                break
            log = folder / f"{time.monotonic_ns()}.log"
            under_way[_fork(work, run, log)] = work, log, time.monotonic()
        yield from _ended(under_way, seconds)
        time.sleep(_POLL_SECONDS)


def _ended(
    under_way: dict[int, tuple[T, Path, float]], seconds: Callable[[T], float]
) -> Iterator[Ended[T]]:
    """Those that have ended, or have run out of time and are ended here."""
    for process, (work, log, began) in list(under_way.items()):
        found, status = os.waitpid(process, os.WNOHANG)
        took = time.monotonic() - began
        late = not found and took > seconds(work)
        if late:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
        if found or late:
            del under_way[process]
            code = None if late else os.waitstatus_to_exitcode(status)
            yield Ended(work, code, log.read_text("utf-8", "replace"), took)
            log.unlink()


def _fork(work: T, run: Callable[[T], int], log: Path) -> int:
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        os.setsid()  # so that whatever it starts can be ended with it
        with log.open("w", encoding="utf-8") as output, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            code = run(work)
            sys.stdout.flush()
            sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the copy may not go on with what the original was about to do
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def pytest_in(folder: Path, arguments: Iterable[str], environment: dict[str, str]) -> int:
    """Run pytest on a copy of the repository, in this very process. Returns its exit code."""
    import pytest

    os.environ.update(environment, PYTHONPATH=str(folder / "src"))
    os.chdir(folder)
    ours = Path(__file__).resolve().parent
    sys.path[:] = [str(folder / "src"), *(path for path in sys.path if Path(path) != ours)]
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(ours)):
            del sys.modules[name]  # the copy has scripts of its own
    return int(pytest.main([*arguments]))
