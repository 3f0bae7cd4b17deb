"""Runs that another process left in a store, for commands that look at them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cli_rig import Cli, environment

__all__ = ["PIN", "STORE", "Left", "leave_runs", "look_at"]

STORE = "sqlite:///runs.db"
PIN = "hunter-22"

_APP = '''\
import asyncio, os, sys
from typing import Annotated, Literal

import remit
from remit import Call, Limits, Remit, Secret
from remit.messages import Media
from remit.testing import ScriptedModel


@remit.tool(effect="confirm")
async def pay(amount: int, call: Call) -> str:
    """Pay."""
    return f"paid {amount}"


@remit.tool(effect="read", deterministic=False)
async def look(what: str, pin: Annotated[str, Secret]) -> str:
    """Look."""
    return f"seen {what} with {pin}"


@remit.tool(effect="read")
async def pages() -> str:
    """Many pages."""
    return "".join(f"line {n} of many\\n" for n in range(3_000))


@remit.tool(effect="read")
async def picture() -> Media:
    """A picture."""
    return Media("image/x-unread", bytes(range(256)) * 8)


@remit.tool(effect="idempotent")
async def cancel(order: str) -> str:
    """Cancel."""
    raise ValueError("db down \\x1b[2J")


@remit.tool(effect="idempotent")
async def die() -> str:
    """The process ends in the middle of it."""
    os._exit(0)


@remit.tool(effect="read")
async def choose(call: Call) -> str:
    """Ask."""
    return call.ask(Literal["left", "right"], "Which way?")


LIMITS = Limits(steps=4, tokens=100_000, seconds=60, usd=1)
TOOLS = [pay, look, pages, picture, cancel, die, choose]


def desk(turns, tools=TOOLS, limits=LIMITS, name="desk"):
    model = ScriptedModel(turns)
    return Remit(name=name, model=model, tools=tools, limits=limits, store="sqlite:///runs.db")


def left(outcome):
    with open("tokens.txt", "a") as kept:
        kept.writelines(f"{each.token}\\n" for each in outcome.pending if each.token)


async def all_of_them():
    says = ["I look \\x1b[31mit up.", ("look", {"what": "order 1042", "pin": "PIN"})]
    done = await desk([says, [("pages", {}), ("picture", {})], "All is well."]).run(
        "Where is order 1042?", run_id="done", tags={"team": "ops"}
    )
    assert done.completed, done
    waits = await desk([["I pay. \\u202e", ("cancel", {"order": "7"}), ("pay", {"amount": 7})]]).run(
        "Pay 7 to \\x1b]0;title\\x07 Dana", run_id="waits"
    )
    left(waits)
    left(await desk([("choose", {})]).run("Which way?", run_id="asks"))
    few = Limits(steps=1, tokens=9_000, seconds=9)
    broke = await desk([("cancel", {"order": "1"}), "so far"], limits=few).run("Cancel", run_id="broke")
    assert broke.reason == "step_budget", broke
    inner = desk(["said inside"], tools=[], name="inner")
    outer = desk(
        [("ask", {"task": "think"}), "outside"],
        tools=[inner.as_tool("ask", "Ask.", limits=Limits(steps=2, tokens=9_000, seconds=9))],
    )
    assert (await outer.run("Have somebody think", run_id="tree")).completed


async def main():
    await all_of_them()
    await desk([("die", {})]).run("Die", run_id="died")


asyncio.run(main())
'''.replace("PIN", PIN)


@dataclass(frozen=True)
class Left:
    """A directory with `runs.db`, and what must be in no answer."""

    directory: Path
    tokens: tuple[str, ...]


def leave_runs(directory: Path) -> Left:
    """Have a process run them and die."""
    (directory / "app.py").write_text(_APP, "utf-8")
    ended = subprocess.run(
        [sys.executable, "app.py"],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return Left(directory, tuple((directory / "tokens.txt").read_text().split()))


def look_at(left: Left, cli: Cli) -> Cli:
    """A command line in a copy of that directory, whose store is that of the runs."""
    for path in left.directory.glob("runs.db*"):
        copied = cli.directory / path.name
        if path.is_dir():
            shutil.copytree(path, copied)
        else:
            shutil.copy(path, copied)
    cli.write("remit.toml", f'store = "{STORE}"\n')

    return cli
