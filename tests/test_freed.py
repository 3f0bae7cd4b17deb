"""What stays of a run in memory once it is over or waits: nothing but its rows, and that at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import remit
from remit import Call, Limits, MemoryStore, Reason, Remit, ToolError, Veto
from remit.budget import Budget
from remit.current import Frame
from remit.dispatch.execution import Execution
from remit.dispatch.gate import Passage
from remit.errors import JournalError, ModelRejected
from remit.models.base import Chunk, ModelProfile, ModelRequest, TextDelta
from remit.models.scripted import ScriptedModel
from remit.record import Record
from remit.run import Run
from remit.state import CallState, RunState
from remit.store.base import Control, Journal, Lease, NewRow
from remit.store.sqlite import SqliteStore
from remit.transcript import Transcript

KINDS = (Run, RunState, CallState, Record, Passage, Execution, Frame, Budget, Transcript)
LIMITS = Limits(steps=6, tokens=100_000, seconds=60)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "memory":
        yield MemoryStore()
    else:
        made = SqliteStore(tmp_path / "runs.db")
        yield made
        made.close()


@remit.tool(effect="read")
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


@remit.tool(effect="idempotent", resource="shelf")
async def put(n: int) -> str:
    """Put."""
    return f"put {n}"


@remit.tool(effect="read")
def count(n: int) -> int:
    """Count, in a thread."""
    return n


@remit.tool(effect="read")
async def fail(n: int) -> str:
    """Fail."""
    raise ToolError(f"no {n}")


@remit.tool(effect="read")
async def crash(n: int) -> str:
    """Crash."""
    raise ValueError(n)


@remit.tool(effect="read", timeout=0.01)
async def stay(n: int) -> str:
    """Take too long."""
    await asyncio.sleep(60 + n)
    return ""


@remit.tool(effect="read")
async def hang(n: int) -> str:
    """Take long."""
    await asyncio.sleep(60 + n)
    return ""


@remit.tool(effect="confirm")
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@remit.tool(effect="read")
async def ask(n: int, call: Call) -> str:
    """Ask."""
    return call.ask(str, f"which {n}?")


@remit.tool(effect="read")
async def delegate(n: int) -> str:
    """Have another run do it."""
    inner = Remit(name="inner", model=ScriptedModel(["done"]), limits=LIMITS)
    return (await inner.run(f"do {n}")).text


TOOLS = [look, put, count, fail, crash, stay, hang, pay, ask, delegate]


def desk(store: Journal, *turns: Any, **options: Any) -> Remit[Any]:
    return Remit(
        name="desk", model=ScriptedModel(turns), tools=TOOLS, limits=LIMITS, store=store, **options
    )


async def over(remit_: Remit[Any], reason: Reason) -> None:
    """One run, with nothing kept of it here."""
    outcome = await remit_.run("go", run_id="r")
    assert outcome.reason is reason
    assert outcome.transcript.owed == ()


async def ends(store: Journal) -> None:
    calls = [(name, {"n": 1}) for name in ("look", "put", "count", "fail", "crash", "stay")]
    await over(desk(store, calls, ("look", {"n": 2}), "done"), Reason.COMPLETED)


async def has_runs_inside(store: Journal) -> None:
    await over(desk(store, ("delegate", {"n": 1}), "done"), Reason.COMPLETED)


async def waits(store: Journal) -> None:
    await over(desk(store, [("look", {"n": 1}), ("pay", {"n": 1})]), Reason.WAITING)


async def asks(store: Journal) -> None:
    await over(desk(store, ("ask", {"n": 1})), Reason.WAITING)


async def waits_and_goes_on(store: Journal) -> None:
    waiting = desk(store, ("pay", {"n": 1}))
    (pending,) = (await waiting.run("go", run_id="r")).pending
    await waiting.decide(id=pending.id, approve=True, by="dana")
    resumed = await waiting.replace(model=ScriptedModel(["done"])).resume("r")
    assert resumed.reason is Reason.COMPLETED


async def is_cancelled(store: Journal) -> None:
    begun = asyncio.Event()

    @remit.tool(effect="read")
    async def linger() -> str:
        """Take long, and say when it begins."""
        begun.set()
        await asyncio.sleep(60)
        return ""

    remit_ = desk(store, ("linger", {})).replace(tools=[linger])
    running = asyncio.ensure_future(remit_.run("go", run_id="r"))
    await asyncio.wait_for(begun.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def is_detached(store: Journal) -> None:
    async with desk(store, ("hang", {"n": 1})).stream("go", run_id="r") as live:
        async for event in live:
            if event.kind == "call_started":
                break
        assert (await live.detach()).reason is Reason.WAITING


async def is_streamed(store: Journal) -> None:
    async with desk(store, ("look", {"n": 1}), "done").stream("go", run_id="r") as live:
        kinds = [event.kind async for event in live]
    assert kinds[-1] == "run_ended"
    assert live.outcome.reason is Reason.COMPLETED


class Refusing:
    """A model that refuses everything, with an error of its own each time."""

    name = "refusing"
    profile = ModelProfile(context_window=100_000)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield TextDelta("well")
        raise ModelRejected(f"no: {len(request.transcript)}")


async def fails(store: Journal) -> None:
    await over(desk(store).replace(model=Refusing()), Reason.MODEL_FAILED)


async def is_vetoed(store: Journal) -> None:
    async def guard(_: Transcript) -> Veto:
        return Veto("no")

    await over(desk(store, ("look", {"n": 1}), guards=(guard,)), Reason.VETOED)


async def is_guarded(store: Journal) -> None:
    async def guard(_: Transcript) -> None:
        await asyncio.sleep(0)

    await over(desk(store, ("pay", {"n": 1}), guards=(guard,)), Reason.WAITING)


async def meets_its_limit(store: Journal) -> None:
    turns = [("look", {"n": n}) for n in range(6)]
    await over(desk(store, *turns, "so far"), Reason.STEP_BUDGET)


async def loses_its_journal(store: Journal) -> None:
    del store
    await over(desk(Full(), ("put", {"n": 1}), "done"), Reason.JOURNAL_FAILED)


class Full(MemoryStore):
    """A store that has no room for what follows the first reply."""

    async def append(self, lease: Lease, rows: Sequence[NewRow], **more: Any) -> Control:
        if any(row.kind == "started" for row in rows):
            raise JournalError("there is no room")
        return await super().append(lease, rows, **more)


Kind: TypeAlias = Callable[[Journal], Any]


@pytest.mark.parametrize(
    "kind",
    [
        ends,
        has_runs_inside,
        waits,
        asks,
        waits_and_goes_on,
        is_cancelled,
        is_detached,
        is_streamed,
        fails,
        is_vetoed,
        is_guarded,
        meets_its_limit,
        loses_its_journal,
    ],
    ids=lambda kind: kind.__name__,
)
def test_what_is_over_is_freed_by_counting_references(store: Journal, kind: Kind) -> None:
    """J11, E6: however a run ends, or where it waits: the moment it does nothing of it is left for the collector."""

    async def main() -> None:
        gc.collect()
        gc.freeze()  # what there was before is not among the objects from now on
        gc.disable()
        try:
            await kind(store)
            await asyncio.sleep(0)  # callbacks of what has just ended
            left = [type(each).__name__ for each in gc.get_objects() if isinstance(each, KINDS)]
            assert not left, left
        finally:
            gc.enable()
            gc.unfreeze()

    asyncio.run(main())
