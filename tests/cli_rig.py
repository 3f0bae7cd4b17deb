"""The command line under test: called in this process for tables, as a program for what only a program has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from remit.cli.app import main
from remit.testing.serve import Server, serve

__all__ = ["SHOP", "Cli", "Ended", "program", "served", "write_script"]

ROOT = Path(__file__).resolve().parent.parent

SHOP = '''\
import remit
from remit import Limits, Remit


@remit.tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    print("a tool prints")
    return f"seen: {what}"


@remit.tool(effect="confirm")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


desk = Remit(
    name="desk",
    model="scripted:script.json",
    tools=[look, pay],
    limits=Limits(steps=3, tokens=5_000, seconds=30),
)
'''
"""A file as a user has one."""


@dataclass(frozen=True)
class Ended:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Cli:
    """The command line, in this process and in a directory of its own."""

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.directory = directory
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(
        self, *arguments: str, stdin: bytes | None = None, environ: Mapping[str, str] | None = None
    ) -> Ended:
        with self._monkeypatch.context() as patch, untouched_imports(self.directory):
            for name in [name for name in os.environ if name.startswith("REMIT_")]:
                patch.delenv(name)
            for name, value in {**home_of(self.directory), **(environ or {})}.items():
                patch.setenv(name, value)
            patch.chdir(self.directory)
            piped = self.directory / ".stdin"
            piped.write_bytes(b"" if stdin is None else stdin)
            with piped.open(encoding="utf-8", errors="surrogateescape") as given:
                if stdin is not None:
                    patch.setattr(sys, "stdin", given)
                code = main(arguments)
        said = self._capsys.readouterr()
        return Ended(code, said.out, said.err)

    def write(self, name: str, text: str) -> Path:
        """A file in the directory of the command."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path


def write_script(directory: Path, turns: Sequence[Any], name: str = "script.json") -> str:
    """A script of replies; returns its name as a model."""
    (directory / name).write_text(json.dumps(turns), "utf-8")
    return f"scripted:{name}"


@contextmanager
def served(script: Any, wire: str = "anthropic", **options: Any) -> Generator[Server]:
    """A provider of tests beside the command line, in a thread of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve(script, wire, **options)) as server,
    ):
        yield server


def home_of(directory: Path) -> dict[str, str]:
    """A home without any settings of the person who runs the tests."""
    unset = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    return {"HOME": str(directory / "home"), **dict.fromkeys(unset, "")}


def program(
    *arguments: str,
    cwd: Path,
    stdin: bytes | None = None,
    environ: Mapping[str, str] | None = None,
) -> Ended:
    """The command line as a program, with pipes for all three streams."""
    ended = subprocess.run(
        [sys.executable, "-m", "remit.cli", *arguments],
        cwd=cwd,
        env=environment(cwd, environ),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        check=False,
        timeout=60,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def environment(cwd: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a program of ours is started with."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), **home_of(cwd), **(more or {})}


@contextmanager
def untouched_imports(directory: Path) -> Generator[None]:
    """Forget the modules of a directory afterwards: the next test has files of the same names."""
    path, known = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).is_relative_to(directory):
                del sys.modules[name]
