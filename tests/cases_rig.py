"""Cases of approvals and of late effects, each step of them in a process of its own: a program for tests.

    python cases_rig.py CASE FOLDER

The processes share one SQLite file and a ledger; whatever one knows is gone when it ends. Writes one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import remit
from kill_rig import Files, forked
from remit import Call, Limits, Remit
from remit.store.sqlite import SqliteStore
from remit.testing import ScriptedModel, Step
from remit.transcript import Transcript

RUN = "r"


class Shop:
    """What every process makes anew."""

    def __init__(self, files: Files, turns: Sequence[Any], *tools: Any) -> None:
        def says(transcript: Transcript, _: Any) -> Any:
            return turns[sum(message.role == "assistant" for message in transcript)]

        self.store = SqliteStore(files.runs)
        self.remit = Remit[Any](
            name="shop",
            model=ScriptedModel(says),
            tools=tools,
            limits=Limits(steps=9, tokens=100_000, seconds=600),
            store=self.store,
        )

    async def run(self) -> dict[str, Any]:
        """Start it, or go on with it."""
        outcome = await self.remit.run("go", run_id=RUN)
        results = [r for message in outcome.transcript for r in message.tool_results]
        return {
            "reason": outcome.reason.value,
            "pending": {json.loads(p.arguments)["x"]: p.id for p in outcome.pending},
            "results": [[r.key, r.status.value, r.text] for r in results],
        }

    async def decide(self, pending_id: str, approve: bool) -> str:
        try:
            await self.remit.decide(id=pending_id, approve=approve, by="dana")
        except remit.DecisionError as error:
            return error.why
        return "decided"


class Steps:
    """Does one thing after another, each in a process that knows nothing of the others."""

    def __init__(self, files: Files, shop: Callable[[], Shop]) -> None:
        self.files = files
        self._shop = shop

    def do(self, act: Callable[[Shop], Awaitable[Any]]) -> Any:
        said = self.files.folder / "said"

        async def main() -> None:
            said.write_text(json.dumps(await act(self._shop())), "utf-8")

        process = forked(lambda: asyncio.run(main()))
        assert os.waitpid(process, 0)[1] == 0
        return json.loads(said.read_text("utf-8"))

    def decide(self, pending_id: str, *, approve: bool) -> str:
        return self.do(lambda shop: shop.decide(pending_id, approve))

    def run(self) -> dict[str, Any]:
        return self.do(Shop.run)

    @property
    def done(self) -> dict[str, int]:
        return self.files.counted("done")


def gated(files: Files) -> list[Any]:
    """Tools of every kind that note that their body was entered; those called `gated_` ask first."""

    @remit.tool(effect="confirm", resource=())
    async def gated_async(x: str) -> str:
        """Act."""
        files.note("done", x)
        return f"did {x}"

    @remit.tool(effect="confirm", resource=())
    def gated_sync(x: str) -> str:
        """Act, in a thread."""
        files.note("done", x)
        return f"did {x}"

    @remit.tool(effect="confirm", resource=())
    def gated_generator(x: str) -> Iterator[str]:
        """Act, bit by bit, in a thread."""
        files.note("done", x)
        yield f"did {x}"

    @remit.tool(effect="confirm", resource=())
    async def gated_async_generator(x: str) -> AsyncIterator[str]:
        """Act, bit by bit."""
        files.note("done", x)
        yield f"did {x}"

    @remit.tool(effect="idempotent", resource=())
    async def free(x: str, call: Call[Any]) -> str:
        """Act at once."""
        files.note("done", x)
        return f"did {x}"

    def handle(arguments: dict[str, Any]) -> str:
        files.note("done", arguments["x"])
        return f"did {arguments['x']}"

    schema = remit.Tool.from_schema(
        name="gated_schema",
        description="Act.",
        parameters={
            "type": "object",
            "properties": {"x": {"type": "string"}},
            "required": ["x"],
        },
        handler=handle,
        effect="confirm",
        resource=(),
    )
    return [gated_async, gated_sync, gated_generator, gated_async_generator, free, schema]


def case_63(files: Files) -> dict[str, Any]:
    """Three calls are decided one by one, out of order, and the process ends in between."""
    batch = [("gated_async", {"x": x}) for x in "xyz"]
    steps = Steps(files, lambda: Shop(files, [batch, "done"], *gated(files)))
    pending = steps.run()["pending"]
    said = [steps.decide(pending["z"], approve=True), steps.decide(pending["x"], approve=False)]
    between = steps.run()
    said += [steps.decide(pending["z"], approve=True), steps.decide(pending["y"], approve=True)]
    return {"said": said, "between": between, "end": steps.run(), "done": steps.done}


def case_64(files: Files) -> dict[str, Any]:
    """A batch of two that are free and two that are not, one of them refused."""
    batch = [
        ("free", {"x": "free1"}),
        ("gated_async", {"x": "yes"}),
        ("gated_async", {"x": "no"}),
        ("free", {"x": "free2"}),
    ]
    steps = Steps(files, lambda: Shop(files, [batch, "done"], *gated(files)))
    waits = steps.run()
    first = steps.done
    for x, pending_id in waits["pending"].items():
        steps.decide(pending_id, approve=x == "yes")
    return {"waits": waits, "first": first, "end": steps.run(), "done": steps.done}


def case_65(files: Files, *, approve: bool = False) -> dict[str, Any]:
    """Tools of every kind, and one inside another, wait and are decided."""

    def shop() -> Shop:
        tools = gated(files)
        inner = Remit[Any](
            name="inner",
            model=ScriptedModel(
                lambda transcript, _: (
                    "inner done"
                    if transcript.last is not None and transcript.last.tool_results
                    else [("gated_async", {"x": "inside"})]
                )
            ),
            tools=tools,
            limits=Limits(steps=5, tokens=10_000, seconds=60),
        )
        helper = inner.as_tool("helper", "Help.", limits=Limits(steps=5, tokens=10_000, seconds=60))
        kinds = ("async", "sync", "schema", "generator", "async_generator")
        batch = [(f"gated_{kind}", {"x": kind}) for kind in kinds]
        return Shop(files, [[*batch, ("helper", {"task": "one"})], "done"], *tools, helper)

    steps = Steps(files, shop)
    waits = steps.run()
    again = steps.run()
    meanwhile = steps.done
    for pending_id in waits["pending"].values():
        steps.decide(pending_id, approve=approve)
    return {
        "waits": waits,
        "again": again,
        "meanwhile": meanwhile,
        "end": steps.run(),
        "done": steps.done,
    }


def case_31(files: Files, *, lands: bool = True) -> dict[str, Any]:
    """A call runs out of time; its work lands later, or the process is killed before. The model asks again."""
    told = files.folder / "told"

    def shop(*, again: bool) -> Shop:
        @remit.tool(effect="idempotent", resource=(), timeout=60 if again else 0.5)
        async def add(x: str, call: Call[Any]) -> str:
            """Add."""
            files.note("entered", call.key)
            left, given_up = 0 if again else 80 if lands else 6_000, False
            while left:
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    given_up = True
                left -= given_up
            files.note("done", call.key)
            return f"added {x}"

        turn = ("add", {"x": "a"})
        return Shop(files, [turn, turn if again else Step(turn, delay=60), "done"], add)

    async def first() -> None:
        begun = shop(again=False)
        running = asyncio.create_task(begun.run())
        while not running.done():
            await asyncio.sleep(0.01)
            known = await begun.store.info(RUN)
            posts = [] if known is None else await begun.store.inbox(RUN)
            kinds = [row.kind for row in await begun.store.read(RUN)] if known else []
            if "settled" in kinds and (not lands or any(post.kind == "late" for post in posts)):
                told.write_text("now", "utf-8")

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    process = forked(lambda: asyncio.run(first()))
    while not told.exists():
        assert signal.sigtimedwait({signal.SIGCHLD}, 0.01) is None, "it ended by itself"
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    steps = Steps(files, lambda: shop(again=True))
    return {"end": steps.run(), "done": steps.done, "entered": files.counted("entered")}


CASES: dict[str, Callable[[Files], dict[str, Any]]] = {
    "31": case_31,
    "31, killed before it lands": lambda files: case_31(files, lands=False),
    "63": case_63,
    "64": case_64,
    "65": case_65,
    "65, approved": lambda files: case_65(files, approve=True),
}


def main(case: str, folder: str) -> None:
    sys.stdout.write(json.dumps(CASES[case](Files(Path(folder)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
