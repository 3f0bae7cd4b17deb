"""A token is told to whoever asks for the pending, and to nobody and nothing else: everything is searched, in bytes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import pytest

from remit import Call, Computed, DecisionError, Limits, Outcome, Reason, Remit, Runtime, tool
from remit.models.scripted import ScriptedModel
from remit.pending import TOKENS, Decision, Pending
from remit.store.sqlite import SqliteStore
from remit.store.sqlite.files import INLINE_BYTES

SRC = Path(__file__).resolve().parent.parent / "src"
LIMITS = Limits(steps=9, tokens=10_000_000, seconds=600)


class Deps:
    """What belongs to the caller."""

    def __init__(self) -> None:
        self.password = "a-password-of-the-callers"

    def __repr__(self) -> str:
        return f"<deps {self.password}>"


class Heard(logging.Handler):
    """Everything that is logged, by whomever, at any level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.text.append(f"{self.format(record)} {record.__dict__!r}")


class World:
    """A few runs that wait for approvals, and all that they left."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteStore(folder / "runs.db")
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.tokens: set[str] = set()
        self.left: list[str] = []
        """Events, errors, reprs and requests."""

    def desk(self, *script: Any, **options: Any) -> Remit[Any]:
        @tool(effect="confirm", expires=3600)
        async def pay(
            n: int, key: Annotated[str, Computed(secret_of, secret=True)], call: Call[Deps]
        ) -> str:
            """Pay."""
            call.logger.info("paying")
            return "paid " + "x" * (INLINE_BYTES if n == 2 else 1)

        model = ScriptedModel(list(script), record=True)
        given: dict[str, Any] = {"name": "desk", "tools": [pay], **options}
        runtime = Runtime(now=lambda: self.now)
        made = Remit(model=model, limits=LIMITS, store=self.store, runtime=runtime, **given)
        self.models = [*getattr(self, "models", ()), model]
        return made

    def saw(self, outcome: Outcome[Any]) -> str:
        """Take the token from an outcome."""
        self.left += [repr(outcome), str(outcome), repr(outcome.transcript)]
        self.left += [json.dumps(outcome.transcript.to_json())]
        self.left += [repr(each) for each in outcome.pending]
        self.tokens |= set(TOKENS.values())
        assert outcome.reason is Reason.WAITING, outcome.error
        token = outcome.pending[0].token
        assert token is not None
        return token

    async def run(self, desk: Remit[Any], run_id: str) -> str:
        async with desk.stream("go", run_id=run_id, deps=Deps()) as live:
            async for event in live:
                self.left += [json.dumps(event.to_json()), repr(event)]
            self.left.append(repr(live))
        self.left += [repr(desk), repr(desk.store)]
        return self.saw(live.outcome)

    async def refused(self, desk: Remit[Any], token: str, why: str) -> None:
        with pytest.raises(DecisionError) as raised:
            await desk.decide(token, approve=True, by="dana")
        assert raised.value.why == why
        self.left += [str(raised.value), repr(raised.value), repr(raised.value.args)]


def secret_of(call: Call[Deps]) -> str:
    return call.deps.password


async def happens(world: World) -> None:
    # Decided by token, after a new one was minted; the old one and a used one are refused.
    desk = world.desk(("pay", {"n": 1}), "done")
    first = await world.run(desk, "one")
    (pending,) = (await desk.outcome("one")).pending
    second = await desk.new_token(pending.id)
    world.tokens |= {first, second}
    await world.refused(desk, first, "unknown")
    await desk.decide(second, approve=True, by="dana")
    await world.refused(desk, second, "used")
    assert (await desk.resume("one", deps=Deps())).completed
    # Expired, and replaced by a new one.
    desk = world.desk(("pay", {"n": 2}), "done")
    expired = await world.run(desk, "two")
    world.now += timedelta(hours=2)
    await world.refused(desk, expired, "expired")
    renewed = world.saw(await desk.resume("two", deps=Deps()))
    assert renewed != expired
    await desk.decide(renewed, approve=True, by="dana")
    assert (await desk.resume("two", deps=Deps())).completed
    # Of a run inside another.
    inner = world.desk(("pay", {"n": 3}), "done", name="inner")
    outer = world.desk(
        ("ask", {"task": "pay"}),
        "done",
        name="outer",
        tools=[inner.as_tool("ask", "Ask.", limits=LIMITS)],
    )
    token = await world.run(outer, "three")
    await outer.decide(token, approve=False, by="dana", note="no")
    assert (await outer.resume("three", deps=Deps())).completed

    # By a callback, and one that is left waiting.
    async def approves(pending: Pending) -> Decision:
        world.tokens |= {pending.token or ""}
        world.left.append(repr(pending))
        return Decision(approve=True, by="dana")

    desk = world.desk(("pay", {"n": 4}), "done", confirm=approves)
    assert (await desk.run("go", run_id="four", deps=Deps())).completed
    world.tokens.add(await world.run(world.desk(("pay", {"n": 5}), "done"), "five"))


def forms(secret: str) -> set[bytes]:
    """How a text may stand somewhere."""
    raw = secret.encode()
    made = {raw, raw.hex().encode(), quote(secret, safe="").encode()}
    made |= {base64.b64encode(raw).rstrip(b"="), base64.urlsafe_b64encode(raw).rstrip(b"=")}
    made |= {raw[: len(raw) // 2], raw[len(raw) // 2 :]}  # halves give it away, too
    with contextlib.suppress(ValueError):  # only a token is one
        made.add(base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4)))
    return made


def shown(path: Path) -> str:
    """What the command line tells of these runs."""
    told: list[str] = []
    for command in (["runs"], ["show", "one"], ["show", "five"], ["tail", "one"]):
        form = "--jsonl" if command[0] == "tail" else "--json"
        ended = subprocess.run(
            [sys.executable, "-m", "remit", *command, "--store", f"sqlite:///{path}", form],
            env={**os.environ, "PYTHONPATH": str(SRC)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode in {0, 3, 4, 5}, ended.stderr
        assert ended.stdout, command
        told += [ended.stdout, ended.stderr]
    return "".join(told)


def test_no_token_and_nothing_of_deps_is_anywhere(tmp_path: Path) -> None:
    """E5, R1: rows, log, artifacts, events, requests, log records, reprs, errors and --json, in every spelling."""
    heard, root = Heard(), logging.getLogger()
    level = root.level
    root.addHandler(heard)
    root.setLevel(logging.DEBUG)
    world = World(tmp_path)
    try:
        asyncio.run(happens(world), debug=False)
        while_open = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
        told = shown(world.store.path)
    finally:
        root.removeHandler(heard)
        root.setLevel(level)
        world.store.close()
    world.tokens.discard("")
    assert len(world.tokens) >= 7
    assert all(len(token) >= 32 for token in world.tokens)
    assert any(len(data) > INLINE_BYTES for data in while_open.values()), (
        "there is a large artifact"
    )
    assert any(each.name.endswith("-wal") for each in while_open)
    places = {str(each): data for each, data in while_open.items()}
    places |= {
        f"{each} closed": each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()
    }
    places["events, errors and reprs"] = "\n".join(world.left).encode()
    places["log records"] = "\n".join(heard.text).encode()
    places["the command line"] = told.encode()
    places["requests"] = "\n".join(
        [
            f"{request!r} {json.dumps([each.to_json() for each in request.messages])}"
            for model in world.models
            for request in model.requests
        ]
    ).encode()
    assert all(len(data) > 100 for name, data in places.items() if "/" not in name), (
        "nothing is idle"
    )
    for secret in (*world.tokens, Deps().password):
        for form in forms(secret):
            assert [name for name, data in places.items() if form in data] == []
