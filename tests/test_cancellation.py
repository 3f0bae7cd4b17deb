"""Cancelling at every point: nothing starts afterwards, nothing finished is lost, the rest can go on.

The points are counted, not chosen: a run without a fault schedules so many callbacks on the event loop, and
each test cancels right before each of them. `World` is what lies outside of remit: it knows which bodies
were entered, what they returned and what took effect.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from effort import one_in
from loop_rig import is_sendable, results, runtime
from remit import (
    Allow,
    Call,
    Computed,
    ConfigurationError,
    Decision,
    Limits,
    MemoryStore,
    Outcome,
    Pending,
    PolicyRequest,
    Reason,
    Remit,
    Text,
    Transcript,
    Veto,
    tool,
)
from remit.models.base import ModelRequest
from remit.models.scripted import Item, ScriptedModel, Step
from remit.pending import TOKENS
from remit.resources import PROCESS
from remit.supervise import ABANDONED
from remit.testing import VirtualLoop
from remit.testing.crash import CrashStore

RUN = "run-1"


class StoppingLoop(VirtualLoop):
    """Counts the callbacks that are scheduled, and calls `interrupt` right before chosen ones."""

    eager = False
    """Begin tasks at once."""

    def __init__(self) -> None:
        super().__init__()
        if self.eager and sys.version_info >= (3, 12):
            self.set_task_factory(asyncio.eager_task_factory)
        self.interrupt: Callable[[], None] | None = None
        self.points: frozenset[int] = frozenset()
        self.scheduled = 0
        self.complaints: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, about: self.complaints.append(about))

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        if self.interrupt is not None:
            if self.scheduled in self.points:
                super().call_soon(self.interrupt)
            self.scheduled += 1
        return super().call_soon(callback, *args, context=context)


@dataclass
class World:
    """What is outside of remit, and outlives every run."""

    stopped: bool = False
    """A cancel was asked for."""
    began_too_late: list[str] = field(default_factory=list[str])
    returned: list[str] = field(default_factory=list[str])
    """What bodies returned: each value is unique."""
    effects: Counter[str] = field(default_factory=Counter[str])
    proposed: set[str] = field(default_factory=set[str])
    values: int = 0

    def begin(self, what: str) -> None:
        if self.stopped:
            self.began_too_late.append(what)

    def value(self, what: str) -> str:
        self.values += 1
        self.returned.append(f"{what} #{self.values}")
        return self.returned[-1]


def traveller(world: World, store: MemoryStore | CrashStore) -> Remit[None]:
    """Three steps with everything in them that waits for something."""

    @tool(effect="read")
    async def look(n: int, today: Annotated[str, Computed(lambda: "monday")]) -> str:
        """Look at something."""
        world.begin(f"look {n}")
        await asyncio.sleep(0.03 * n)
        return world.value(f"look {n} on {today}")

    @tool(effect="read")
    def scan() -> str:
        """Look at everything."""
        return world.value("scan")

    @tool(effect="idempotent", resource="shelf:{what}")
    async def book(what: str, call: Call) -> str:
        """Book something."""
        world.begin(f"book {what}")
        await asyncio.sleep(0.02)
        world.effects[call.key] += 1
        await asyncio.sleep(0.02)
        return world.value(f"book {what}")

    @tool(effect="confirm")
    async def refund(amount: int, call: Call) -> str:
        """Pay back."""
        world.begin("refund")
        await asyncio.sleep(0.02)
        world.effects[call.key] += 1
        await asyncio.sleep(0.02)
        return world.value("refund")

    @refund.summary
    def _(amount: int) -> str:
        return f"Pay back {amount}"

    async def policy(request: PolicyRequest) -> Allow:
        world.begin("policy")
        await asyncio.sleep(0.005)
        return Allow()

    async def guard(transcript: Transcript) -> Veto | None:
        world.begin("guard")
        await asyncio.sleep(0.03)
        return None

    async def note() -> str:
        world.begin("note")
        await asyncio.sleep(0.01)
        return "It is monday."

    async def confirm(pending: Pending) -> Decision:
        world.begin("confirm")
        world.proposed.add(pending.id)
        await asyncio.sleep(0.1)
        return Decision(approve=True, by="dana")

    def script(transcript: Transcript, request: ModelRequest) -> Item:
        world.begin("model")
        turns = sum(bool(message.tool_uses) for message in transcript)
        says: list[Any] = [
            [
                "Looking.",
                ("look", {"n": 1}),
                ("look", {"n": 3}),
                ("scan", {}),
                ("book", {"what": "a"}),
            ],
            [("refund", {"amount": 5}), ("look", {"n": 2}), ("book", {"what": "b"})],
            ["All is done."],
        ][min(turns, 2)]
        return Step(says, delay=0.05, between=0.02)

    return Remit(
        name="traveller",
        model=ScriptedModel(script, strict=True),
        tools=[look, scan, book, refund],
        limits=Limits(steps=10, tokens=1_000_000, seconds=60),
        policy=policy,
        guards=(guard,),
        notes=(note,),
        confirm=confirm,
        store=store,
        runtime=runtime(),
    )


@dataclass
class Cancelled:
    """A run that was cancelled at a point, and what is left of it."""

    world: World
    store: MemoryStore
    outcome: Outcome[Any] | None
    """What the store says of it; None where it was never begun."""
    scheduled: int
    """How many callbacks there were."""


def on_a_loop(
    main: Callable[[StoppingLoop], Coroutine[Any, Any, Any]],
    shutting_down: Callable[[StoppingLoop], object] = lambda _: None,
) -> StoppingLoop:
    """Run to the end and through the shutdown of the loop; nothing may be complained of."""
    loop = StoppingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop))
        shutting_down(loop)
    assert loop.complaints == []
    return loop


def has_ended(store: MemoryStore) -> bool:
    """Whether the end is in the journal: then a cancel comes too late."""
    record = store._runs.get(RUN)
    return record is not None and record.status == "ended"


async def left(remit: Remit[Any]) -> Outcome[Any] | None:
    try:
        return await remit.outcome(RUN)
    except ConfigurationError:
        return None


def cancel_from_outside(points: Iterable[int], latency: float = 0.0) -> Cancelled:
    """`run` in a task that is cancelled at these points."""
    world, inner = World(), MemoryStore()
    found: list[Outcome[Any] | None] = []

    async def main(loop: StoppingLoop) -> None:
        remit = traveller(world, CrashStore(latency=latency, inner=inner) if latency else inner)

        async def user() -> Outcome[str]:
            return await remit.run("go", run_id=RUN)

        task = asyncio.create_task(user())

        def interrupt() -> None:
            world.stopped = world.stopped or not has_ended(inner)
            task.cancel()

        loop.points, loop.interrupt = frozenset(points), interrupt
        await asyncio.wait([task])
        loop.interrupt = None
        found.append(await left(remit))
        if world.stopped:
            assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert remit.live_runs == ()

    return Cancelled(world, inner, found[0] if (loop := on_a_loop(main)) else None, loop.scheduled)


def cancel_live(points: Iterable[int], latency: float = 0.0) -> Cancelled:
    """`live.cancel()` at these points, each in a task of its own."""
    world, inner = World(), MemoryStore()
    found: list[Outcome[Any] | None] = []

    async def main(loop: StoppingLoop) -> None:
        remit = traveller(world, CrashStore(latency=latency, inner=inner) if latency else inner)
        ends: list[asyncio.Task[Outcome[Any]]] = []
        async with remit.stream("go", run_id=RUN) as live:

            def interrupt() -> None:
                world.stopped = world.stopped or not has_ended(inner)
                asks = live.cancel()
                asks.send(None)  # in this very turn of the loop, as where a task that runs calls it
                asks.close()
                ends.append(asyncio.create_task(live.cancel()))

            loop.points, loop.interrupt = frozenset(points), interrupt
            await live.join()
            loop.interrupt = None
        for end in ends:
            assert await end == live.outcome
        found.append(await left(remit))
        assert found[0] == live.outcome
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert remit.live_runs == ()

    return Cancelled(world, inner, found[0] if (loop := on_a_loop(main)) else None, loop.scheduled)


def shut_down(points: Iterable[int]) -> Cancelled:
    """The main task returns at the first of these points: `asyncio` cancels every task there is, remit's
    own too. At later points every task is cancelled again.
    """
    world, inner = World(), MemoryStore()

    async def main(loop: StoppingLoop) -> None:
        remit = traveller(world, inner)
        this, enough = asyncio.current_task(), asyncio.Event()

        async def user() -> Outcome[str]:
            return await remit.run("go", run_id=RUN)

        task = asyncio.create_task(user(), name="user")

        def interrupt() -> None:
            if enough.is_set():
                world.stopped = world.stopped or not has_ended(inner)
                for each in asyncio.all_tasks(loop) - {this}:
                    each.cancel()
            enough.set()

        def over(_: object) -> None:
            loop.interrupt = None
            enough.set()

        task.add_done_callback(over)
        loop.points, loop.interrupt = frozenset(points), interrupt
        await enough.wait()

    def shutting_down(loop: StoppingLoop) -> None:
        world.stopped = world.stopped or not has_ended(inner)

    loop = on_a_loop(main, shutting_down)
    found: list[Outcome[Any] | None] = []

    async def look(_: StoppingLoop) -> None:
        remit = traveller(world, inner)
        assert remit.live_runs == ()
        found.append(await left(remit))

    on_a_loop(look)
    return Cancelled(world, inner, found[0], loop.scheduled)


def check(cancelled: Cancelled) -> None:
    """What must hold wherever the cancel came."""
    world, outcome = cancelled.world, cancelled.outcome
    assert world.began_too_late == []
    if outcome is None:
        assert world.returned == []
        return
    assert outcome.reason is (Reason.CANCELLED if world.stopped else Reason.COMPLETED)
    kept = [result.text for result in results(outcome) if result.status == "ok"]
    assert sorted(kept) == sorted(world.returned)
    goes_on = outcome.transcript.copy()
    goes_on.say(Text("and then?"))
    assert is_sendable(goes_on)
    assert PROCESS.names_in_use == frozenset()
    assert ABANDONED.names == ()
    assert not [token for pending, token in TOKENS.items() if pending in world.proposed]

    world.stopped = False
    again: list[Outcome[Any]] = []

    async def reopen(_: StoppingLoop) -> None:
        again.append(await traveller(world, cancelled.store).resume(RUN, reopen=True))

    on_a_loop(reopen)
    assert again[0].completed
    assert all(times == 1 for times in world.effects.values())


def sweep(cancel: Callable[[list[int]], Cancelled], *further: Callable[[int], int]) -> None:
    """Cancel at each point of a run, or at each n-th and again n - 1 times `further` callbacks later."""
    undisturbed = cancel([])
    check(undisturbed)
    assert len(undisturbed.world.returned) == 7
    assert undisturbed.scheduled > 100
    for point in one_in(4, range(0, undisturbed.scheduled, 1 + len(further))):
        points = [point]
        for later in further:
            points.append(points[-1] + later(point))
        try:
            check(cancel(points))
        except BaseException as error:
            error.add_note(f"cancelled at {points} of {undisturbed.scheduled}")
            raise


def test_a_cancel_from_outside_wins_at_every_point_and_loses_nothing() -> None:
    """K1, T2, case 40: the task that awaits `run` is cancelled before each callback of the event loop."""
    sweep(cancel_from_outside)


def test_a_cancel_in_hand_wins_at_every_point_and_loses_nothing() -> None:
    """K1, T2, case 40: the same by `live.cancel()`, which returns the outcome."""
    sweep(cancel_live)


def test_an_event_loop_that_is_shut_down_at_any_point_leaves_a_closed_run() -> None:
    """K1, T2: `asyncio.run` ends and cancels every task, the run's own and its bodies' too."""
    sweep(shut_down)


def test_a_run_whose_task_is_taken_before_its_first_step_is_closed() -> None:
    """K1, T2: the program exits, and the event loop with it, right before the run was to begin."""
    world, store = World(), MemoryStore()
    found: list[Outcome[Any] | None] = []

    async def main(_: StoppingLoop) -> None:
        task = asyncio.create_task(traveller(world, store).run("go", run_id=RUN))
        await asyncio.sleep(0)
        assert not task.done()
        raise SystemExit

    async def look(_: StoppingLoop) -> None:
        remit = traveller(world, store)
        found.append(await left(remit))
        assert remit.live_runs == ()

    world.stopped = True
    with pytest.raises(SystemExit):
        on_a_loop(main)
    on_a_loop(look)
    assert found[0] is not None
    check(Cancelled(world, store, found[0], 0))


@pytest.mark.parametrize("cancel", [cancel_from_outside, cancel_live, shut_down])
def test_a_cancel_that_is_asked_for_twice_and_three_times_is_one_cancel(
    cancel: Callable[[list[int]], Cancelled],
) -> None:
    """K1, T2: the second and third come while the run is closing."""
    sweep(cancel, lambda point: 1 + point % 5, lambda point: 1 + point % 3)


@pytest.mark.parametrize("cancel", [cancel_from_outside, cancel_live])
def test_a_cancel_while_the_store_writes_waits_for_the_store(
    cancel: Callable[..., Cancelled],
) -> None:
    """K1, T2, E3: with a store that takes its time, no row is lost and none is written twice."""
    undisturbed = cancel([], 0.001)
    check(undisturbed)
    for point in one_in(
        4, range(2, undisturbed.scheduled, 2)
    ):  # before, the run is not in the store yet
        cancelled = cancel([point], 0.001)
        if cancelled.outcome is not None and cancelled.outcome.completed:
            assert point > undisturbed.scheduled - 15  # the end was being written
            cancelled.world.stopped = False
        check(cancelled)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
@pytest.mark.parametrize("cancel", [cancel_from_outside, cancel_live, shut_down])
def test_a_cancel_wins_at_every_point_where_tasks_begin_at_once(
    cancel: Callable[[list[int]], Cancelled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """K1, T2: the same under `asyncio.eager_task_factory`."""
    monkeypatch.setattr(StoppingLoop, "eager", True)
    sweep(cancel)
