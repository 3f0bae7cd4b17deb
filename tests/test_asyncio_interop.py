"""remit inside other people's asyncio: timeouts, groups, foreign scopes, threads, loops of its own.

Most of it is on virtual time. Where a thread or an anyio scope takes part, which virtual time cannot see,
time is real and every wait is bounded by `PATIENCE`, which a test that passes never uses up.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loop_rig import desk, model_of, said, statuses
from remit import Allow, Call, ConfigurationError, Outcome, Reason, Remit, Runtime, tool
from remit.models.scripted import ScriptedModel
from remit.resources import PROCESS
from remit.supervise import ABANDONED
from remit.testing import SimulatedWorkers, run_virtual
from remit.workers import ThreadWorkers

PATIENCE = 20.0  # seconds
SHORT = 0.02
"""Grace and deadlines in real time, in seconds."""

eagerly = pytest.mark.parametrize(
    "eager",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                sys.version_info < (3, 12), reason="eager tasks came with Python 3.12"
            ),
        ),
    ],
)


@tool(effect="read")
async def look() -> str:
    """Looks for a second."""
    await asyncio.sleep(1)
    return "seen"


@tool(effect="idempotent", resource="shelf")
async def hang(call: Call[Callable[[], object] | None]) -> str:
    """Does not end. Says that it has begun, if somebody wants to know."""
    if call.deps is not None:
        call.deps()
    await asyncio.Event().wait()
    return "unreachable"


@tool(effect="idempotent", resource="shelf")
async def cling(call: Call[Callable[[], object] | None]) -> str:
    """Swallows one cancellation, and ends when the second comes. Says that it has begun."""
    if call.deps is not None:
        call.deps()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()
    return "unreachable"


def hanging(**options: Any) -> Remit[Any]:
    return desk([[("hang", {}), ("look", {})], "never"], [hang, look], **options)


async def clean() -> None:
    """Nothing of a run is left: no task, no lock, no cancellation that the caller has yet to answer."""
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert asyncio.all_tasks() == {task}
    assert PROCESS.names_in_use == frozenset()
    await asyncio.sleep(0)  # a cancellation that lingers would be raised here


async def closed(remit: Remit[Any], run_id: str = "r") -> Outcome[Any]:
    outcome = await remit.outcome(run_id)
    assert outcome.reason is Reason.CANCELLED
    assert remit.live_runs == ()
    return outcome


# asyncio's own


@eagerly
def test_a_timeout_around_a_run_raises_timeout_error_after_the_run_is_closed(eager: bool) -> None:
    """K1, T2: and the count of cancellations is clean, so that the next timeout works as well."""

    async def main() -> None:
        for turn in range(3):
            remit = hanging()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await remit.run("go", run_id="r")
            assert asyncio.get_running_loop().time() == (turn + 1) * 2
            outcome = await closed(remit)
            assert statuses(outcome) == ["unknown", "ok"]
            await clean()

    run_virtual(main(), eager=eager)


@eagerly
def test_wait_for_raises_timeout_error_after_the_run_is_closed(eager: bool) -> None:
    """K1: `asyncio.wait_for` has a task of its own before 3.12, and none since."""

    async def main() -> None:
        remit = hanging()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(remit.run("go", run_id="r"), 2)
        await closed(remit)
        await clean()

    run_virtual(main(), eager=eager)


@eagerly
def test_the_outer_of_two_timeouts_is_the_one_that_is_told(eager: bool) -> None:
    """K1: both expire while the run is closing; each scope answers for its own cancellation."""

    async def main() -> None:
        remit = desk([[("cling", {})], "never"], [cling])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.2):
                async with asyncio.timeout(2):
                    await remit.run("go", run_id="r")
        assert asyncio.get_running_loop().time() == 2.5
        await closed(remit)
        for name in ABANDONED.names:
            assert name.startswith("cling ")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            await asyncio.wait([task])
        await clean()

    run_virtual(main(), eager=eager)


@eagerly
def test_a_failing_sibling_in_a_task_group_cancels_the_run_and_is_what_is_raised(
    eager: bool,
) -> None:
    """K1, T2: structured concurrency sees a task that ends cancelled, closed before the group ends."""

    async def main() -> None:
        remit = hanging()

        async def fail() -> None:
            await asyncio.sleep(2)
            raise ValueError("mine")

        async def user() -> None:  # before 3.13 a group leaves its own cancellation on the count
            async with asyncio.TaskGroup() as group:
                group.create_task(remit.run("go", run_id="r"))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.create_task(user())
        assert [str(error) for error in caught.value.exceptions] == ["mine"]
        assert statuses(await closed(remit)) == ["unknown", "ok"]
        await clean()

    run_virtual(main(), eager=eager)


@eagerly
def test_runs_in_a_gather_are_independent_and_all_are_cancelled_with_it(eager: bool) -> None:
    """K1: three runs at once, first to their ends and then cancelled together."""

    async def main() -> None:
        remits = [desk([[("look", {})], f"done {n}"], [look]) for n in range(3)]
        outcomes = await asyncio.gather(*(remit.run("go") for remit in remits))
        assert [outcome.text for outcome in outcomes] == ["done 0", "done 1", "done 2"]
        assert asyncio.get_running_loop().time() == 1
        remits = [hanging() for _ in range(3)]
        runs = [asyncio.create_task(remit.run("go", run_id="r")) for remit in remits]
        together = asyncio.gather(*runs)
        await asyncio.sleep(2)
        together.cancel()
        with pytest.raises(asyncio.CancelledError):
            await together
        await asyncio.wait(runs)  # a gather does not wait for the second error
        for remit in remits:
            await closed(remit)
        await clean()

    run_virtual(main(), eager=eager)


@eagerly
def test_a_shielded_run_goes_on_when_whoever_waits_is_cancelled(eager: bool) -> None:
    """K1: `asyncio.shield` means what it says."""

    async def main() -> None:
        remit = desk([[("look", {})], "done"], [look])
        run = asyncio.ensure_future(remit.run("go"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.shield(run)
        assert (await run).completed
        await clean()

    run_virtual(main(), eager=eager)


@eagerly
def test_a_task_that_is_cancelled_before_its_first_step_begins_no_run(eager: bool) -> None:
    """K1: nothing is sent, nothing is stored; an eager task has had its first step, and is closed."""

    async def main() -> None:
        remit = hanging()
        task = asyncio.create_task(remit.run("go", run_id="r"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if eager:  # it was on its way before `create_task` returned
            await closed(remit)
        else:
            with pytest.raises(ConfigurationError):
                await remit.outcome("r")
        assert model_of(remit).asked == eager
        await clean()

    run_virtual(main(), eager=eager)


@eagerly
def test_a_run_in_a_task_that_was_cancelled_before_is_not_disturbed(eager: bool) -> None:
    """K1: in a `finally`, with a cancellation already on the count, a run does its work."""

    async def main() -> None:
        remit = desk([[("look", {})], "done"], [look])
        outcomes: list[Outcome[Any]] = []

        async def user() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                outcomes.append(await remit.run("tidy up"))

        task = asyncio.create_task(user())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert outcomes[0].completed
        await clean()

    run_virtual(main(), eager=eager)


@eagerly
def test_what_a_run_does_is_the_same_where_tasks_begin_at_once(eager: bool) -> None:
    """T1, C5: three steps with parallel calls and a child, event for event."""

    async def main() -> None:
        child = desk([[("look", {})], "child is done"], [look], name="child")
        remit = desk(
            [[("look", {}), ("ask", {"task": "go"})], [("look", {})], "done"],
            [look, child.as_tool("ask", "Ask it.", limits=child.limits)],
        )
        async with remit.stream("go") as live:
            settled = [event.fields["tool"] async for event in live if event.kind == "call_settled"]
        assert said(live.outcome) == ["seen", "child is done", "seen"]
        assert sorted(settled) == ["ask", "look", "look", "look"]
        assert asyncio.get_running_loop().time() == 2
        await clean()

    run_virtual(main(), eager=eager)


def test_a_task_without_a_supervisor_is_left_nowhere() -> None:
    """K1, C6: with everything in it that makes tasks, a run leaves none when it completes."""

    async def main() -> None:
        async def guard(transcript: Any) -> None:
            await asyncio.sleep(0.1)

        @tool(effect="read")
        def blocking() -> str:
            """Blocks."""
            return "done"

        remit = desk(
            [[("look", {}), ("blocking", {})], "done"],
            [look, blocking],
            guards=(guard,),
            policy=lambda request: asyncio.sleep(0, Allow()),
            notes=(lambda: "note",),
            runtime=Runtime(workers=SimulatedWorkers(), grace=0.5),
        )
        assert (await remit.run("go")).completed
        await clean()

    run_virtual(main())


# anyio: its scopes cancel again and again until they are left


@contextlib.contextmanager
def bounded() -> Generator[None]:
    """Fail, rather than hang, on a platform that can interrupt the main thread."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def give_up(*_: object) -> None:
        raise AssertionError(f"not over after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_real_time(main: Callable[[], Awaitable[None]]) -> None:
    with bounded():
        anyio.run(main)


def brisk(*tools: Any, **options: Any) -> Remit[Any]:
    names = [(each.name, {}) for each in tools]
    return desk([names, "never"], tools, runtime=Runtime(grace=SHORT), **options)


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_anyio_deadline_raises_timeout_error_after_the_run_is_closed(stubborn: bool) -> None:
    """K1, T2: `fail_after`, with a tool that ends when it is cancelled and with one that does not."""

    async def main() -> None:
        remit = brisk(cling if stubborn else hang)
        with pytest.raises(TimeoutError):
            with anyio.fail_after(PATIENCE) as scope:
                await remit.run("go", run_id="r", deps=partial(expire, scope))
        assert statuses(await closed(remit)) == ["unknown"]
        assert len(ABANDONED) == stubborn
        await end_abandoned()
        await clean()

    in_real_time(main)


def expire(scope: anyio.CancelScope) -> None:
    """Have the deadline of a scope pass soon, now that what it is to hit is there."""
    scope.deadline = anyio.current_time() + SHORT


async def end_abandoned() -> None:
    """Cancel for a second time what clings to the first."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
        await asyncio.wait([task])
    assert ABANDONED.names == ()


def test_a_cancelled_anyio_task_group_closes_its_runs_before_it_is_left() -> None:
    """K1, K3: several runs in one group, and a child among them."""

    async def main() -> None:
        child = brisk(hang, name="child")
        parent = desk(
            [[("ask", {"task": "go"})], "never"],
            [child.as_tool("ask", "Ask it.", limits=child.limits)],
            runtime=Runtime(grace=SHORT),
        )
        other = brisk(look)
        async with anyio.create_task_group() as group:
            group.start_soon(run_as_r, parent)
            group.start_soon(run_as_r, other)
            while len(parent.live_runs) < 2:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert statuses(await closed(parent)) == ["unknown"]
        await closed(other)
        await clean()

    in_real_time(main)


async def run_as_r(remit: Remit[Any]) -> None:
    await remit.run("go", run_id="r")


def test_move_on_after_skips_the_run_and_goes_on() -> None:
    """K1: the scope catches its own cancellation, and nothing else is disturbed afterwards."""

    async def main() -> None:
        remit = brisk(hang)
        with anyio.move_on_after(SHORT) as scope:
            await remit.run("go", run_id="r")
        assert scope.cancelled_caught
        await closed(remit)
        with anyio.fail_after(PATIENCE):
            assert (await desk(["done"]).run("go")).completed
        await clean()

    in_real_time(main)


def test_a_scope_that_cancels_without_end_does_not_wake_the_waiting_task_each_time() -> None:
    """K1: in the grace of a stubborn tool the event loop turns, but remit's tasks sleep."""
    steps = 0

    async def main() -> None:
        nonlocal steps
        remit = brisk(cling)

        async def watched() -> None:
            nonlocal steps
            running = remit.run("go", run_id="r", deps=partial(expire, scope)).__await__()
            received: Any = None
            with contextlib.suppress(StopIteration):
                while True:
                    waited_for = running.send(received)
                    steps += 1
                    received = await Relay(waited_for)

        with anyio.move_on_after(PATIENCE) as scope:
            await watched()
        await closed(remit)
        assert steps < 10
        await end_abandoned()

    in_real_time(main)


class Relay:
    """Hands a future on to the event loop as it is."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def __await__(self) -> Any:
        return (yield self._future)


def test_an_anyio_scope_inside_a_tool_is_the_tools_own_affair() -> None:
    """K2, case 02: a deadline in the body becomes the error of its call."""

    @tool(effect="read")
    async def impatient() -> str:
        """Waits with a deadline of its own."""
        with anyio.fail_after(0):
            await anyio.sleep(PATIENCE)
        return "unreachable"

    @tool(effect="read")
    async def grouped() -> str:
        """Works in a group that it cancels itself."""
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, PATIENCE)
            group.cancel_scope.cancel()
        return "fine"

    async def main() -> None:
        remit = desk(
            [[("impatient", {}), ("grouped", {})], "done"],
            [impatient, grouped],
            runtime=Runtime(grace=SHORT),
        )
        outcome = await remit.run("go")
        assert outcome.completed
        assert statuses(outcome) == ["error", "ok"]
        await clean()

    in_real_time(main)


# Signals


def test_an_interrupt_closes_the_run_before_the_program_ends() -> None:
    """K1, case 40: one Ctrl-C; `asyncio.run` turns it into a cancellation of the main task."""
    remit = brisk(hang)

    async def main() -> None:
        interrupt = partial(signal.raise_signal, signal.SIGINT)
        soon = partial(asyncio.get_running_loop().call_later, SHORT, interrupt)
        await remit.run("go", run_id="r", deps=soon)

    with bounded(), pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    outcome = asyncio.run(closed(remit))
    assert statuses(outcome) == ["unknown"]
    assert model_of(remit).asked == 1


def test_two_interrupts_do_not_tear_the_transcript() -> None:
    """K1, T2: the second Ctrl-C leaves the loop at once, and its shutdown still closes the run."""
    remit = brisk(hang)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def twice() -> None:
            signal.raise_signal(signal.SIGINT)
            loop.call_soon(signal.raise_signal, signal.SIGINT)

        await remit.run("go", run_id="r", deps=partial(loop.call_later, SHORT, twice))

    with bounded(), pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert statuses(asyncio.run(closed(remit))) == ["unknown"]


# Without a loop, in another's loop, in threads


def test_run_sync_works_again_and_again() -> None:
    """L3, K1: each call has an event loop of its own, and one remit serves them all."""
    remit = desk(ScriptedModel(lambda t, _: [("quick", {})] if len(t) == 1 else "done"), [quick])
    for _ in range(3):
        assert remit.run_sync("go").completed
    assert remit.live_runs == ()


@tool(effect="read")
async def quick() -> str:
    """Answers at once."""
    return "quick"


def test_run_sync_inside_a_running_loop_uses_a_thread_of_its_own() -> None:
    """C6: as in a notebook; the outcome and the error of a wrong call come back alike."""
    remit = desk([[("quick", {})], "done"], [quick])
    threads: list[threading.Thread] = []

    @tool(effect="read")
    async def where() -> str:
        """Says where it is."""
        threads.append(threading.current_thread())
        return "here"

    async def main() -> None:
        assert remit.run_sync("go").completed
        with pytest.raises(ConfigurationError):
            remit.run_sync("  ")
        assert desk([[("where", {})], "done"], [where]).run_sync("go").completed
        assert threads[0] is not threading.current_thread()
        await clean()

    with bounded():
        asyncio.run(main())


def test_run_sync_from_three_threads_at_once() -> None:
    """C6, L3: all three are inside their tools at one time; nothing is mixed up."""
    meeting = threading.Barrier(3, timeout=PATIENCE)
    workers = ThreadWorkers(idle_seconds=0.01)

    @tool(effect="read")
    def meet(name: str) -> str:
        """Waits for the others."""
        meeting.wait()
        return name

    outcomes: dict[str, Outcome[Any]] = {}
    shared = desk(
        ScriptedModel(
            lambda t, _: (
                [("meet", {"name": next(iter(t)).text})] if len(t) == 1 else next(iter(t)).text
            ),
            strict=False,
        ),
        [meet],
        runtime=Runtime(workers=workers),
    )

    def user(name: str) -> None:
        outcomes[name] = shared.run_sync(name)

    threads = [threading.Thread(target=user, args=(name,), daemon=True) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert {name: outcome.text for name, outcome in outcomes.items()} == {
        name: name for name in "abc"
    }
    assert {name: said(outcome) for name, outcome in outcomes.items()} == {
        name: [name] for name in "abc"
    }
    assert shared.live_runs == ()


def test_a_run_is_cancelled_from_another_loop_in_another_thread() -> None:
    """K1: by its id; the one who cancels waits for the closed run, the one who runs it gets the same."""
    began = threading.Event()

    @tool(effect="read")
    async def hangs() -> str:
        """Does not end."""
        began.set()
        await asyncio.Event().wait()
        return "unreachable"

    remit = brisk(hangs)
    outcomes: list[Outcome[Any]] = []

    def user() -> None:
        outcomes.append(remit.run_sync("go", run_id="r"))

    thread = threading.Thread(target=user, daemon=True)
    thread.start()
    assert began.wait(PATIENCE)
    with bounded():
        outcome = asyncio.run(remit.cancel("r"))
    thread.join(PATIENCE)
    assert outcome.reason is Reason.CANCELLED
    assert outcomes == [outcome]
    assert remit.live_runs == ()


# Context


def test_context_variables_reach_tools_threads_and_children() -> None:
    """case 26: what the caller has set is seen everywhere, and what a body sets stays in its call."""
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    seen: dict[str, str] = {}

    def note(where: str) -> str:
        seen[where] = tenant.get()
        tenant.set(f"changed by {where}")
        return where

    @tool(effect="read")
    async def in_task() -> str:
        """In a task."""
        return note("task")

    @tool(effect="read")
    def in_thread() -> str:
        """In a thread."""
        return note("thread")

    @tool(effect="read")
    def in_sync_child() -> str:
        """In a child in a thread."""
        return (
            desk([[("in_leaf", {})], "done"], [in_leaf], name="leaf", runtime=Runtime())
            .run_sync("go")
            .reason.value
        )

    @tool(effect="read")
    async def in_leaf() -> str:
        """In the child of a thread."""
        return note("child in a thread")

    async def main() -> None:
        tenant.set("acme")

        async def guard(transcript: Any) -> None:
            note("guard")

        def policy(request: Any) -> Any:
            note("policy")
            return Allow()

        child = desk([[("in_task", {})], "done"], [in_task], name="child")
        remit = desk(
            [
                [("in_thread", {}), ("in_sync_child", {}), ("ask", {"task": "go"})],
                "done",
            ],
            [in_thread, in_sync_child, child.as_tool("ask", "Ask it.", limits=child.limits)],
            guards=(guard,),
            policy=policy,
            instructions=lambda: tenant.get(),  # noqa: PLW0108 - a builtin has no signature to read
            runtime=Runtime(),
        )
        outcome = await remit.run("go")
        assert outcome.completed
        assert said(outcome) == ["thread", "completed", "done"]

    with bounded():
        asyncio.run(main())
    assert set(seen) == {"task", "thread", "child in a thread", "guard", "policy"}
    assert {where: value for where, value in seen.items() if value != "acme"} == {}


def test_events_of_a_child_in_a_thread_reach_whoever_watches_the_parent() -> None:
    """K3: on the loop of the watcher, which they wake."""

    @tool(effect="read")
    def delegate() -> str:
        """Delegates from a thread."""
        child = desk(["Child speaks."], name="child", runtime=Runtime())
        return child.run_sync("go").text

    async def main() -> None:
        parent = desk([[("delegate", {})], "done"], [delegate], runtime=Runtime())
        async with parent.stream("go") as live:
            events = [event async for event in live]
        inside = [event.kind for event in events if event.path == ("desk", "child")]
        assert inside == ["run_started", "text", "replied", "run_ended"]

    with bounded():
        asyncio.run(main())
