"""Foreign code that does not end when it should: every kind of it, and what bounds it.

`STUBBORN` are the ways not to end, `PLACES` the places where remit runs code that is not its own. Each way is
tried in each place; whatever happens, the run ends by its deadline and the grace, or by a cancel and the grace.
"""

from __future__ import annotations

import asyncio
import gc
import math
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest

from loop_rig import (
    desk,
    is_sendable,
    results,
    said,
    statuses,
    virtual_now,
    watched,
)
from remit import (
    Allow,
    Call,
    Computed,
    ConfigurationError,
    Decision,
    Limits,
    Live,
    Outcome,
    Pending,
    PolicyRequest,
    Reason,
    Remit,
    Runtime,
    Status,
    Text,
    Transcript,
    Veto,
    tool,
)
from remit.models.base import BlockDone, Chunk, ModelRequest, TextDelta
from remit.models.scripted import ScriptedModel
from remit.resources import PROCESS
from remit.supervise import ABANDONED, Halt, Waiter, arrived, contained, give_up
from remit.testing import SimulatedWorkers, run_virtual
from remit.tools import Tool
from remit.workers import ThreadWorkers

GRACE = 0.5
TEN_SECONDS = timedelta(seconds=10)
AT_LAST = 40.0
"""When stubborn code ends, so that no test leaves a task behind."""


async def never() -> None:
    """Wait for what does not come; a cancellation ends it."""
    await asyncio.Event().wait()


async def swallow() -> None:
    """Swallow every cancellation, and end late."""
    loop = asyncio.get_running_loop()
    end = loop.time() + AT_LAST
    while loop.time() < end:
        try:
            await asyncio.sleep(end - loop.time())
        except asyncio.CancelledError:
            continue


async def shielded() -> None:
    """Hand the work to a task that is shielded, and wait for that whatever comes."""
    inner = asyncio.ensure_future(asyncio.sleep(AT_LAST))
    while not inner.done():
        try:
            await asyncio.shield(inner)
        except asyncio.CancelledError:
            continue


STUBBORN: dict[str, Callable[[], Awaitable[None]]] = {
    "never": never,
    "swallow": swallow,
    "shielded": shielded,
}

Way = Callable[[], Awaitable[None]]


@tool(effect="read")
async def quick() -> str:
    """Answers at once."""
    return "quick"


def in_tool(way: Way, effect: Literal["read", "idempotent"] = "read") -> dict[str, Any]:
    async def stuck() -> str:
        """Hangs."""
        await way()
        return "late"

    return {
        "script": [[("stuck", {}), ("quick", {})], "done"],
        "tools": [tool(effect=effect)(stuck), quick],
    }


def in_computed(way: Way) -> dict[str, Any]:
    async def value() -> str:
        await way()
        return "late"

    @tool(effect="read")
    async def dated(today: Annotated[str, Computed(value)]) -> str:
        """Wants a value of the host."""
        return today

    return {"script": [[("dated", {}), ("quick", {})], "done"], "tools": [dated, quick]}


def in_policy(way: Way) -> dict[str, Any]:
    async def policy(request: PolicyRequest) -> Allow:
        if request.tool == "act":
            await way()
        return Allow()

    @tool(effect="idempotent")
    async def act() -> str:
        """Has an effect."""
        raise AssertionError("entered without a verdict")

    return {
        "script": [[("act", {}), ("quick", {})], "done"],
        "tools": [act, quick],
        "policy": policy,
    }


def in_guard(way: Way) -> dict[str, Any]:
    async def guard(transcript: Transcript) -> Veto | None:
        await way()
        return None

    @tool(effect="idempotent")
    async def act() -> str:
        """Has an effect."""
        raise AssertionError("entered before the guard")

    return {
        "script": [[("act", {}), ("quick", {})], "done"],
        "tools": [act, quick],
        "guards": (guard, guard, guard),
    }


def in_note(way: Way) -> dict[str, Any]:
    async def note() -> str:
        await way()
        return "late"

    return {"script": [[("quick", {})], "done"], "tools": [quick], "notes": (note, note)}


def in_confirm(way: Way) -> dict[str, Any]:
    async def confirm(pending: Pending) -> Decision:
        await way()
        return Decision(approve=True, by="dana")

    @tool(effect="confirm")
    async def pay() -> str:
        """Pays."""
        raise AssertionError("entered without a decision")

    return {
        "script": [[("pay", {}), ("quick", {})], "done"],
        "tools": [pay, quick],
        "confirm": confirm,
    }


def in_model(way: Way) -> dict[str, Any]:
    return {"script": HangingModel(way, after=0), "tools": [quick]}


def in_model_midway(way: Way) -> dict[str, Any]:
    return {"script": HangingModel(way, after=1), "tools": [quick]}


class HangingModel(ScriptedModel):
    """Says a block or none, and then hangs; only in its first answer."""

    def __init__(self, way: Way, *, after: int) -> None:
        super().__init__([["Half an answer."], "And the rest.", "Once more."], record=True)
        self._way = way
        self._after = after

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        first = self.asked == 0
        blocks = 0
        async for chunk in super().stream(request):
            if first and blocks == self._after and not isinstance(chunk, TextDelta):
                await self._way()
            yield chunk
            blocks += isinstance(chunk, BlockDone)


PLACES: dict[str, Callable[[Way], dict[str, Any]]] = {
    "a tool": in_tool,
    "an effect": lambda way: in_tool(way, "idempotent"),
    "a computed value": in_computed,
    "the policy": in_policy,
    "guards": in_guard,
    "notes": in_note,
    "a confirm callback": in_confirm,
    "the model": in_model,
    "the model in mid-stream": in_model_midway,
}

everywhere = pytest.mark.parametrize("place", PLACES)
every_way = pytest.mark.parametrize("way", STUBBORN)


def made(place: str, way: str, **options: Any) -> Remit[Any]:
    given = PLACES[place](STUBBORN[way])
    return desk(given.pop("script"), **given, **options)


async def until_all_is_over() -> None:
    """Let what was abandoned come to its end, and see that it is forgotten then."""
    for _ in range(20):
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=AT_LAST)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert ABANDONED.names == ()
    assert PROCESS.names_in_use == frozenset()


@everywhere
@every_way
def test_a_cancel_ends_the_run_by_the_grace_wherever_it_hangs(place: str, way: str) -> None:
    """K1, case 40: no code of others can keep a run from ending, nor make it ask the model again."""

    async def main() -> None:
        remit = made(place, way)
        loop = asyncio.get_running_loop()
        async with remit.stream("go") as live:
            await asyncio.sleep(1)
            outcome = await live.cancel()
        assert loop.time() <= 1 + GRACE + 1e-6
        assert outcome.reason is Reason.CANCELLED
        assert is_sendable_after(outcome)
        asked = remit.model.asked  # type: ignore[attr-defined]
        assert asked <= 1
        survivors = ABANDONED.names
        assert bool(survivors) == (way != "never"), survivors
        assert all(named(place) in name for name in survivors), survivors
        await until_all_is_over()
        assert remit.model.asked == asked  # type: ignore[attr-defined]

    run_virtual(main())


@everywhere
@every_way
def test_a_deadline_ends_the_run_by_the_grace_wherever_it_hangs(place: str, way: str) -> None:
    """L4, K3, case 38, case 40: the calendar counts while anything hangs, a person who decides included."""

    async def main() -> None:
        deadline = Limits(
            steps=9, tokens=1_000_000, seconds=30, deadline=virtual_now() + TEN_SECONDS
        )
        remit = made(place, way, limits=deadline)
        loop = asyncio.get_running_loop()
        outcome = await remit.run("go")
        assert loop.time() <= 10 + GRACE + 1e-6
        assert outcome.reason in (Reason.DEADLINE, Reason.VETOED, Reason.COMPLETED)
        assert (outcome.reason is Reason.VETOED) == (place == "guards")
        assert is_sendable_after(outcome)
        await until_all_is_over()

    run_virtual(main())


@everywhere
@every_way
def test_a_detached_run_is_left_by_the_grace_and_can_be_taken_up(place: str, way: str) -> None:
    """K1: nothing is settled for good that could still come to its end."""

    async def main() -> None:
        remit = made(place, way)
        loop = asyncio.get_running_loop()
        async with remit.stream("go") as live:
            await asyncio.sleep(1)
            outcome = await live.detach()
        assert loop.time() <= 1 + GRACE + 1e-6
        assert outcome.reason is Reason.WAITING
        assert is_sendable_after(outcome)
        kept = said(await remit.outcome(outcome.run_id))
        assert not any("Error" in text or "Refused" in text for text in kept)
        assert (await remit.cancel(outcome.run_id)).reason is Reason.CANCELLED
        await until_all_is_over()

    run_virtual(main())


def is_sendable_after(outcome: Outcome[Any]) -> bool:
    goes_on = outcome.transcript.copy()
    goes_on.say(Text("go on"))
    return is_sendable(goes_on)


def named(place: str) -> str:
    return {
        "a tool": "stuck",
        "an effect": "stuck",
        "a computed value": "computed dated",
        "the policy": "policy",
        "guards": "guard",
        "notes": "note",
        "a confirm callback": "confirm pay",
        "the model": "model scripted",
        "the model in mid-stream": "model scripted",
    }[place]


@pytest.mark.parametrize("place", [place for place in PLACES if place != "a confirm callback"])
@every_way
def test_active_seconds_end_the_run_by_the_grace_wherever_it_hangs(place: str, way: str) -> None:
    """L4, case 38: the same for `seconds`, which stand still only while a person is asked."""

    async def main() -> None:
        remit = made(place, way, limits=Limits(steps=9, tokens=1_000_000, seconds=10))
        outcome = await remit.run("go")
        assert asyncio.get_running_loop().time() <= 10 + GRACE + 1e-6
        assert outcome.reason in (Reason.DEADLINE, Reason.VETOED, Reason.COMPLETED)
        assert is_sendable_after(outcome)
        await until_all_is_over()

    run_virtual(main())


# Born inside, or meant for the run (K2)


async def cancels_inside() -> str:
    inner = asyncio.create_task(asyncio.sleep(math.inf))
    await asyncio.sleep(1)
    inner.cancel()
    await inner
    return "unreachable"


async def raises_it() -> str:
    await asyncio.sleep(1)
    raise asyncio.CancelledError


async def cancels_itself() -> str:
    await asyncio.sleep(1)
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)
    return "unreachable"


async def in_a_timeout() -> str:
    async with asyncio.timeout(1) as scope:
        scope.reschedule(asyncio.get_running_loop().time() + 1)
        await asyncio.sleep(2)
    return "unreachable"


async def in_a_group() -> str:
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(asyncio.sleep(math.inf))
        await asyncio.sleep(1)
        sleeper.cancel()
        await sleeper
    return "unreachable"


BORN_INSIDE = [cancels_inside, raises_it, cancels_itself, in_a_timeout, in_a_group]


@pytest.mark.parametrize("body", BORN_INSIDE)
def test_a_cancellation_born_in_a_tool_is_the_error_of_its_call_alone(
    body: Callable[[], Awaitable[str]],
) -> None:
    """K2, case 02: the loop goes on, its sibling keeps its result, and the task of the caller is clean."""

    @tool(effect="read")
    async def inner() -> str:
        """Cancels from within."""
        return await body()

    async def main() -> None:
        remit = desk([[("inner", {}), ("quick", {})], "done"], [inner, quick])
        outcome = await remit.run("go")
        assert outcome.completed
        assert statuses(outcome) == ["error", "ok"]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert len(asyncio.all_tasks()) == 1

    run_virtual(main())


@pytest.mark.parametrize("body", BORN_INSIDE)
def test_a_cancel_at_the_instant_of_an_inner_one_still_wins(
    body: Callable[[], Awaitable[str]],
) -> None:
    """K1, K2, case 02: who cancelled whom first makes no difference to the run."""

    @tool(effect="read")
    async def inner() -> str:
        """Cancels from within."""
        return await body()

    async def main() -> None:
        remit = desk([[("inner", {}), ("quick", {})], "done"], [inner, quick])
        task = asyncio.create_task(remit.run("go", run_id="r"))
        asyncio.get_running_loop().call_at(1, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        outcome = await remit.outcome("r")
        assert outcome.reason is Reason.CANCELLED
        assert [result.status for result in results(outcome)] == [Status.ERROR, Status.OK]
        assert remit.model.asked == 1  # type: ignore[attr-defined]

    run_virtual(main())


def test_a_cancellation_that_a_model_raises_is_a_failed_model_and_no_cancel() -> None:
    """K2: only what is aimed at the run cancels it."""

    class Broken(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
            async for _ in super().stream(request):
                raise asyncio.CancelledError
            yield TextDelta("")

    async def main() -> None:
        outcome = await desk(Broken(["hello"], record=True)).run("go")
        assert outcome.reason is Reason.MODEL_FAILED

    run_virtual(main())


# Swallowed, and what becomes of it


def test_what_a_tool_returns_in_the_grace_is_its_result_and_the_run_ends_all_the_same() -> None:
    """K1, case 40: 'ok' after a cancellation is kept, and nobody is asked again."""

    @tool(effect="idempotent")
    async def stubborn() -> str:
        """Returns whatever comes."""
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
        return "ok"

    async def main() -> None:
        remit = desk([[("stubborn", {}), ("quick", {})], "done"], [stubborn, quick])
        task = asyncio.create_task(remit.run("go", run_id="r"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() < 1.1
        outcome = await remit.outcome("r")
        assert outcome.reason is Reason.CANCELLED
        assert said(outcome) == ["ok", "quick"]
        assert remit.model.asked == 1  # type: ignore[attr-defined]

    run_virtual(main())


def test_a_body_is_cancelled_once_then_abandoned_named_and_counted() -> None:
    """K1, case 40, E4: the survivor is told by name, its doubt is told to the model, its end is heard."""
    cancels: list[float] = []

    @tool(effect="idempotent", timeout=2)
    async def stubborn(call: Call) -> str:
        """Ignores whoever cancels it."""
        loop = asyncio.get_running_loop()
        while loop.time() < 5:
            try:
                await asyncio.sleep(5 - loop.time())
            except asyncio.CancelledError:
                cancels.append(loop.time())
        return "late"

    async def main() -> None:
        remit = desk([[("stubborn", {})], "done"], [stubborn])
        outcome, events = await watched(remit, "go")
        assert cancels == [2.0]
        assert outcome.completed
        assert asyncio.get_running_loop().time() == 2 + GRACE
        assert statuses(outcome) == ["unknown"]
        key = results(outcome)[0].key
        [abandoned] = [event for event in events if event.kind == "call_abandoned"]
        assert abandoned.fields == {"id": "call_1_0", "tool": "stubborn", "key": key}
        assert ABANDONED.names == (f"stubborn {key}",)
        assert len(ABANDONED) == 1
        await until_all_is_over()
        assert [posted.kind for posted in await remit.store.inbox(outcome.run_id)] == ["late"]

    run_virtual(main())


def test_a_stream_that_swallows_its_cancellation_is_heard_no_more() -> None:
    """K1: what an abandoned model still says is no event, begins no read, and its stream is closed."""
    closed: list[float] = []

    class Deaf(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
            try:
                async for chunk in super().stream(request):
                    await swallow()
                    yield chunk
            finally:
                closed.append(asyncio.get_running_loop().time())

    async def main() -> None:
        remit = desk(Deaf([["Hello.", ("quick", {})]], record=True), [quick])
        async with remit.stream("go") as live:
            await asyncio.sleep(1)
            outcome = await live.cancel()
            await until_all_is_over()
            events = [event.kind async for event in live]
        assert events == ["run_started", "replied", "run_ended"]
        assert outcome.spend.estimated == 1
        assert closed == [AT_LAST]

    run_virtual(main())


def test_a_stream_that_ends_in_the_grace_is_kept_whole() -> None:
    """K1, C3: a reply that was finished before the run had to be over is not thrown away."""

    class Hearty(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
            async for chunk in super().stream(request):
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.01)
                yield chunk

    async def main() -> None:
        remit = desk(Hearty([[("quick", {})]], record=True), [quick])
        async with remit.stream("go") as live:
            await asyncio.sleep(1.5)
            outcome = await live.cancel()
        assert [message.role for message in outcome.transcript] == ["user", "assistant", "user"]
        assert outcome.spend.estimated == 0
        assert statuses(outcome) in (["not_started"], ["ok"])

    run_virtual(main())


# Ceilings (C7)


def test_a_call_waits_for_a_lock_on_its_own_time() -> None:
    """C7, case 43: B and C end at their ceilings, A at the default one, and D gets the lock then."""

    def holder(name: str, way: Way | None, **options: Any) -> Tool[..., Any]:
        async def body() -> str:
            if way is not None:
                await way()
            return name

        return tool(effect="idempotent", resource="shell", name=name, description=name, **options)(
            body
        )

    async def main() -> None:
        tools = [
            holder("a", never),
            holder("b", None, timeout=0.1),
            holder("c", None, timeout=0.1),
            holder("d", None),
        ]
        remit = desk([[("a", {}), ("b", {}), ("c", {})], [("d", {})], "done"], tools)
        outcome, events = await watched(remit, "go")
        ended = {event.fields["tool"]: event.at for event in events if event.kind == "call_settled"}
        assert ended["b"] <= 0.15
        assert ended["c"] <= 0.15
        assert 60 <= ended["a"] <= 60 + GRACE
        assert statuses(outcome) == ["unknown", "not_started", "not_started", "ok"]

    run_virtual(main())


def test_a_lock_that_another_run_holds_is_waited_for_on_the_calls_own_time() -> None:
    """C7, case 43: the same between two runs of a process, and the lock comes back after a cancel."""

    @tool(effect="idempotent", resource="shell")
    async def hold() -> str:
        """Holds the shell."""
        await never()
        return "unreachable"

    @tool(effect="idempotent", resource="shell", timeout=2)
    async def want() -> str:
        """Wants the shell."""
        return "had it"

    async def main() -> None:
        first = desk([[("hold", {})], "done"], [hold])
        second = desk([[("want", {})], [("want", {})], "done"], [want])
        async with first.stream("go") as live:
            await asyncio.sleep(1)
            waiting = asyncio.create_task(second.run("go"))
            await asyncio.sleep(2.5)
            await live.cancel()
        outcome = await waiting
        assert statuses(outcome) == ["not_started", "ok"]
        assert PROCESS.names_in_use == frozenset()

    run_virtual(main())


@pytest.mark.parametrize("timeout", [1, 100])
def test_a_call_that_waits_for_a_worker_is_cut_at_its_ceiling_or_at_the_runs(
    timeout: float,
) -> None:
    """C7, case 39: the time in the queue of the pool counts, and a function that never began did nothing."""
    entered: list[int] = []

    @tool(effect="idempotent", resource=(), timeout=timeout)
    def block(n: int) -> int:
        """Blocks."""
        entered.append(n)
        return n

    async def main() -> None:
        workers = SimulatedWorkers(lambda n: math.inf if n == 0 else 0, threads=1)
        remit = desk(
            [[("block", {"n": 1}), ("block", {"n": 2})], "done"],
            [block],
            limits=Limits(steps=9, tokens=1_000_000, seconds=20),
            runtime=Runtime(workers=workers, now=virtual_now, grace=GRACE),
        )
        outcome = await remit.run("go")
        end = min(timeout, 19)
        assert asyncio.get_running_loop().time() <= end + GRACE + 1e-6
        assert entered in ([], [2])
        assert statuses(outcome)[0] == "unknown"
        assert (statuses(outcome)[1] == "ok") == (entered == [2])

    run_virtual(main())


def test_tools_are_cut_where_the_time_for_the_closing_call_begins() -> None:
    """L5, C7, case 38: a hung tool leaves what is kept, and the closing call is over in time."""

    async def main() -> None:
        remit = desk(
            ScriptedModel([[("stuck", {}), ("quick", {})], "So far."], record=True, latency=0.1),
            [*in_tool(never)["tools"]],
            limits=Limits(steps=9, tokens=1_000_000, seconds=10),
        )
        outcome, events = await watched(remit, "go")
        settled = {
            event.fields["tool"]: event.at for event in events if event.kind == "call_settled"
        }
        assert settled["stuck"] == pytest.approx(9.5)
        assert outcome.reason is Reason.DEADLINE
        assert outcome.text == "So far."
        assert asyncio.get_running_loop().time() == pytest.approx(9.6)

    run_virtual(main())


# Threads: real ones


def test_stuck_threads_are_given_up_counted_and_starve_nobody() -> None:
    """case 39, C6, C7: three tools that never return on a pool of two, and a quick one after them."""
    gate = threading.Event()

    @tool(effect="read", timeout=0.05)
    def stuck(n: int) -> str:
        """Never returns."""
        gate.wait(30)
        return "late"

    @tool(effect="read")
    def prompt() -> str:
        """Returns."""
        return "prompt"

    async def main() -> None:
        workers = ThreadWorkers(threads=2, idle_seconds=0.01)
        remit = desk(
            [[("stuck", {"n": n}) for n in range(3)], [("prompt", {})], "done"],
            [stuck, prompt],
            runtime=Runtime(workers=workers, grace=0.02),
        )
        try:
            async with asyncio.timeout(10):
                outcome, events = await watched(remit, "go")
            assert outcome.completed
            assert statuses(outcome)[3] == "ok"
            assert "ok" not in statuses(outcome)[:3]
            abandoned = [event for event in events if event.kind == "call_abandoned"]
            assert len(abandoned) == workers.abandoned == 2
        finally:
            gate.set()
        while workers.abandoned:  # noqa: ASYNC110 - a thread sets it, and cannot wake us
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_cancel_does_not_wait_for_a_stuck_thread() -> None:
    """K1, case 39, case 40: a thread cannot be cancelled; it gets the grace and is given up."""
    gate, entered = threading.Event(), threading.Event()

    @tool(effect="idempotent")
    def stuck() -> str:
        """Never returns."""
        entered.set()
        gate.wait(30)
        return "late"

    async def main() -> None:
        workers = ThreadWorkers(idle_seconds=0.01)
        remit = desk(
            [[("stuck", {})], "done"], [stuck], runtime=Runtime(workers=workers, grace=0.02)
        )
        try:
            async with asyncio.timeout(10), remit.stream("go") as live:
                while not entered.is_set():  # noqa: ASYNC110 - a thread sets it, and cannot wake us
                    await asyncio.sleep(0)
                outcome = await live.cancel()
            assert outcome.reason is Reason.CANCELLED
            assert statuses(outcome) == ["unknown"]
            assert workers.abandoned == 1
        finally:
            gate.set()
        while workers.abandoned:  # noqa: ASYNC110 - a thread sets it, and cannot wake us
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_blocked_event_loop_is_named() -> None:
    """C6: an `async def` that blocks is measured, by remit and not by its neighbours' complaints."""

    @tool(effect="read")
    async def blocking() -> str:
        """Holds the loop up."""
        threading.Event().wait(0.06)
        return "done"

    async def main() -> None:
        _, events = await watched(desk([[("blocking", {})], "done"], [blocking]), "go")
        [blocked] = [event for event in events if event.kind == "call_blocked"]
        assert blocked.fields["tool"] == "blocking"
        assert blocked.fields["seconds"] >= 0.05

    run_virtual(main())


# A person decides (L4)


def test_the_clock_stands_still_while_a_person_decides_and_the_calendar_does_not() -> None:
    """L4: ten seconds of thought cost no active second; with a deadline at five the call is not run."""

    def remit(**limits: Any) -> Remit[Any]:
        async def confirm(pending: Pending) -> Decision:
            await asyncio.sleep(10)
            return Decision(approve=True, by="dana")

        @tool(effect="confirm")
        async def pay() -> str:
            """Pays."""
            await asyncio.sleep(1)
            return "paid"

        return desk(
            [[("pay", {})], "done"],
            [pay],
            confirm=confirm,
            limits=Limits(steps=9, tokens=1_000_000, seconds=4, **limits),
        )

    async def main() -> None:
        outcome = await remit().run("go")
        assert outcome.completed
        assert said(outcome) == ["paid"]
        assert outcome.spend.own.seconds == pytest.approx(1)
        began = asyncio.get_running_loop().time()
        late = await remit(deadline=virtual_now() + timedelta(seconds=5)).run("go")
        assert late.reason is Reason.DEADLINE
        assert statuses(late) == ["not_started"]
        assert asyncio.get_running_loop().time() - began <= 5 + GRACE

    run_virtual(main())


# The whole tree (K3)


def family(leaf: Way) -> tuple[Remit[Any], Remit[Any], Remit[Any]]:
    """Parent, child and grandchild; the last one's tool does what `leaf` does."""

    @tool(effect="idempotent")
    async def work() -> str:
        """Works."""
        await leaf()
        return "worked"

    def asks(name: str, **arguments: Any) -> ScriptedModel:
        return ScriptedModel(lambda t, _: [(name, arguments)] if len(t) == 1 else "That is all.")

    grandchild = desk(asks("work"), [work], name="grandchild")
    child = desk(
        asks("ask_grandchild", task="go"),
        [grandchild.as_tool("ask_grandchild", "Ask it.", limits=grandchild.limits)],
        name="child",
    )
    parent = desk(
        asks("ask_child", task="go"),
        [child.as_tool("ask_child", "Ask it.", limits=child.limits)],
        name="parent",
    )
    return parent, child, grandchild


def asked(*remits: Remit[Any]) -> int:
    return sum(remit.model.asked for remit in remits)  # type: ignore[attr-defined]


@every_way
@pytest.mark.parametrize("how", ["outside", "by id"])
def test_a_cancelled_parent_has_closed_its_children_and_theirs_by_the_time_it_ends(
    way: str, how: str
) -> None:
    """K3, K1, case 69: within the grace of the parent, however stubborn the last tool is."""

    async def main() -> None:
        remits = parent, *_ = family(STUBBORN[way])
        lives: list[Live[str]] = []

        async def user() -> None:
            async with parent.stream("go", run_id="r") as live:
                lives.append(live)

        task = asyncio.create_task(user())
        await asyncio.sleep(1)
        ids = parent.live_runs
        assert len(ids) == 3
        if how == "outside":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            outcome = await parent.cancel("r")
            await task
            assert outcome == lives[0].outcome
        assert parent.live_runs == ()
        assert asyncio.get_running_loop().time() <= 1 + GRACE
        events = [event async for event in lives[0]]
        ended = [event.path[-1] for event in events if event.kind == "run_ended"]
        assert ended == ["grandchild", "child", "parent"]
        given_up = [event.fields["tool"] for event in events if event.kind == "call_abandoned"]
        assert given_up == ([] if way == "never" else ["work"])
        for run_id in ids:
            outcome = await parent.outcome(run_id)
            assert outcome.reason is Reason.CANCELLED
            assert is_sendable_after(outcome)
            assert statuses(outcome) == ["unknown"]
        assert len(ABANDONED) == (way != "never")
        await until_all_is_over()
        assert asked(*remits) == 3

    run_virtual(main())


@every_way
def test_the_parents_deadline_reaches_the_children_before_the_parent(way: str) -> None:
    """K3, L4, case 69: each ends by itself, from the inside out, and knows whose clock it was."""

    async def main() -> None:
        remits = parent, *_ = family(STUBBORN[way])
        limits = Limits(steps=9, tokens=1_000_000, seconds=20)
        outcome, events = await watched(parent, "go", limits=limits)
        assert asyncio.get_running_loop().time() <= 20
        assert is_sendable_after(outcome)
        ended = [event for event in events if event.kind == "run_ended"]
        assert [event.path[-1] for event in ended] == ["grandchild", "child", "parent"]
        assert (ended[0].fields["reason"], ended[0].fields["whose"]) == ("deadline", "parent")
        assert parent.live_runs == ()
        count = asked(*remits)
        await until_all_is_over()
        assert asked(*remits) == count

    run_virtual(main())


@every_way
def test_a_child_that_is_cut_with_its_call_is_closed_before_the_call_is_given_up(way: str) -> None:
    """K3, C7: a ceiling of one second on the call around, whatever the child is at."""

    async def main() -> None:
        _, child, _ = family(STUBBORN[way])

        @tool(effect="read", timeout=1)
        async def delegate() -> str:
            """Delegates."""
            return (await child.run("go")).reason.value

        parent = desk([[("delegate", {})], "done"], [delegate], name="parent")
        outcome, events = await watched(parent, "go")
        assert outcome.completed
        assert asyncio.get_running_loop().time() <= 1 + GRACE
        assert not [
            event
            for event in events
            if event.fields.get("tool") == "delegate" and event.kind == "call_abandoned"
        ]
        assert parent.live_runs == ()
        await until_all_is_over()

    run_virtual(main())


def test_a_detached_parent_leaves_its_children_resumable() -> None:
    """K1, E1: a worker that is drained does not cancel what its runs have delegated."""

    async def main() -> None:
        release = asyncio.Event()

        async def leaf() -> None:
            await release.wait()

        @tool(effect="read")
        async def work() -> str:
            """Works."""
            await leaf()
            return "worked"

        child = desk([[("work", {})], "child is done"], [work], name="child")
        parent = desk(
            [[("ask", {"task": "go"})], "done"],
            [child.as_tool("ask", "Ask it.", limits=child.limits)],
            name="parent",
        )
        async with parent.stream("go", run_id="r") as live:
            await asyncio.sleep(1)
            [child_id] = [run_id for run_id in parent.live_runs if run_id != "r"]
            left = await live.detach()
        assert left.reason is Reason.WAITING
        assert (await parent.outcome(child_id)).reason is Reason.WAITING
        release.set()
        outcome = await parent.resume("r")
        assert outcome.completed
        assert said(outcome) == ["child is done"]
        assert said(await parent.outcome(child_id)) == ["worked"]

    run_virtual(main())


def test_a_child_in_a_thread_is_cancelled_with_the_tree() -> None:
    """K3, case 69: `run_sync` inside a blocking tool has an event loop of its own, and hears all the same."""
    working = threading.Event()

    @tool(effect="read")
    async def work() -> str:
        """Works."""
        working.set()
        await never()
        return "unreachable"

    child = desk(
        ScriptedModel([[("work", {})], "unreachable"]), [work], name="child", runtime=Runtime()
    )
    ended: list[Outcome[Any]] = []

    @tool(effect="read")
    def delegate() -> str:
        """Delegates."""
        ended.append(child.run_sync("go"))
        return ended[0].reason.value

    async def main() -> None:
        parent = desk([[("delegate", {})], "done"], [delegate], name="parent", runtime=Runtime())
        async with asyncio.timeout(10), parent.stream("go") as live:
            while not working.is_set():  # noqa: ASYNC110 - a thread sets it, and cannot wake us
                await asyncio.sleep(0)
            outcome = await live.cancel()
        assert outcome.reason is Reason.CANCELLED
        assert said(outcome) == ["cancelled"]
        assert ended[0].reason is Reason.CANCELLED
        assert is_sendable_after(ended[0])
        assert parent.live_runs == ()

    asyncio.run(main())


# What has ended cannot act (case 72)


def test_nothing_can_be_started_inside_a_call_that_has_ended() -> None:
    """case 72, K3: a task that a tool left behind cannot wake the tree up again."""
    refused: list[BaseException] = []
    left_behind: list[asyncio.Task[None]] = []

    async def main() -> None:
        child = desk(["never"], name="child")

        @tool(effect="read")
        async def leaves() -> str:
            """Leaves a task behind."""

            async def later() -> None:
                await asyncio.sleep(5)
                for attempt in (child.run, lambda prompt: child.resume("r")):
                    try:
                        await attempt("wake up")
                    except BaseException as error:
                        refused.append(error)
                try:
                    async with child.stream("wake up"):
                        pass
                except BaseException as error:
                    refused.append(error)

            left_behind.append(asyncio.create_task(later()))
            return "left"

        parent = desk([[("leaves", {})], "done"], [leaves], name="parent")
        outcome = await parent.run("go", run_id="r")
        assert outcome.completed
        await left_behind[0]
        assert [type(error) for error in refused] == [ConfigurationError] * 3
        assert asked(child) == 0
        assert parent.live_runs == ()

    run_virtual(main())


def test_an_exhausted_child_cannot_be_woken_and_its_sender_is_told() -> None:
    """case 72: mail to an ended run is refused, nobody lives, and an unknown id is a clear error."""

    async def main() -> None:
        streams: list[Any] = []
        child = desk(
            ScriptedModel(lambda t, r: [("quick", {})]),
            [quick],
            name="child",
            limits=Limits(steps=1, tokens=100_000, seconds=60),
            hand_back=False,
        )

        @tool(effect="read")
        async def delegate() -> str:
            """Delegates."""
            async with child.stream("go") as live:
                streams.append(live)
            return live.outcome.reason.value

        parent = desk([[("delegate", {})], "done"], [delegate], name="parent")
        outcome = await parent.run("go", run_id="r")
        assert said(outcome) == ["step_budget"]
        count = asked(child)
        with pytest.raises(ConfigurationError, match="ended"):
            streams[0].send("please go on")
        assert await streams[0].cancel() == streams[0].outcome
        assert asked(child) == count
        assert parent.live_runs == child.live_runs == ()
        with pytest.raises(ConfigurationError, match="no run"):
            await parent.cancel("unknown")
        with pytest.raises(ConfigurationError, match="no run"):
            await parent.resume("unknown")
        again = await parent.cancel("r")
        assert again == outcome

    run_virtual(main())


# The parts


def test_the_survivors_of_a_tree_are_gone_from_memory_when_they_end() -> None:
    """K1: what was given up is kept alive until it ends, and not longer."""

    async def main() -> None:
        task = contained(swallow, name="stubborn")
        await asyncio.sleep(0)
        assert await give_up(task, grace=1, halt=None) is None
        del task
        gc.collect()
        assert ABANDONED.names == ("stubborn",)
        await until_all_is_over()

    run_virtual(main())


def test_a_waiter_takes_a_cancellation_for_a_word() -> None:
    """K1: the halt is set in the very instant, the wait ends by the halt, and no count is lost."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        halt = Halt(loop)
        task = asyncio.create_task(arrived(loop.create_future(), until=None, halt=halt))
        await asyncio.sleep(1)
        task.cancel()
        assert halt.cause == "cancelled"
        assert await task is False
        assert task.cancelling() == 1
        waiter = Waiter(None)
        waiter.wake()
        assert waiter.cancel()
        assert waiter.asked
        halt.close()

    run_virtual(main())
