"""Blocking functions off the event loop: real threads, held at barriers, and their simulated twin.

No test sleeps. `PATIENCE` bounds every wait and is never used up by a test that passes. A pool with
`idle_seconds=0` has threads that end when there is nothing to do, which can be waited for.
"""

import asyncio
import contextvars
import functools
import math
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.testing.loop import run_virtual
from remit.testing.workers import SimulatedWorkers
from remit.workers import ThreadWorkers, Workers, WorkersExhausted

PATIENCE = 10.0  # seconds


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await main

    asyncio.run(bounded())


class Stuck:
    """A function that does not return before it is told to."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.gate = threading.Event()

    def __call__(self) -> str:
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        return "late"


@contextmanager
def stuck(count: int) -> Generator[list[Stuck], None, None]:
    """Stuck functions that a failing test does not leave behind."""
    functions = [Stuck() for _ in range(count)]
    try:
        yield functions
    finally:
        for function in functions:
            function.gate.set()


async def until_entered(*functions: Stuck) -> None:
    for function in functions:
        assert await asyncio.to_thread(function.entered.wait, PATIENCE)


def pool_threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def let_end(name: str) -> None:
    for thread in pool_threads(name):
        thread.join(PATIENCE)
    assert pool_threads(name) == []


# --- real threads -------------------------------------------------------------------------------


def test_four_blocking_functions_are_inside_their_bodies_at_the_same_time() -> None:
    """C6, case 26: a barrier of four opens only if all four run at once, and off the loop."""

    async def main() -> None:
        workers = ThreadWorkers(4)
        barrier = threading.Barrier(4)

        def meet() -> int:
            barrier.wait(PATIENCE)
            return threading.get_ident()

        threads = await asyncio.gather(*(workers.submit(meet) for _ in range(4)))
        assert len(set(threads)) == 4
        assert threading.get_ident() not in threads

    run(main())


def test_the_loop_goes_on_while_a_function_blocks() -> None:
    """C6, case 26: the loop itself lets the function go on, so it was not held up by it."""

    async def main() -> None:
        workers = ThreadWorkers(1)
        with stuck(1) as [function]:
            future = workers.submit(function)
            asyncio.get_running_loop().call_soon(function.gate.set)
            assert await future == "late"

    run(main())


def test_a_copied_context_is_visible_in_the_thread() -> None:
    """C6, case 26: the caller copies its context variables; the pool carries them over."""

    async def main() -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
        variable.set("the caller's")
        context = contextvars.copy_context()
        workers = ThreadWorkers(1)
        assert await workers.submit(functools.partial(context.run, variable.get)) == "the caller's"

    run(main())


def test_functions_start_in_the_order_of_their_submission() -> None:
    """C6: one thread, first come first served."""

    async def main() -> None:
        workers = ThreadWorkers(1)
        order: list[int] = []
        await asyncio.gather(*(workers.submit(lambda n=n: order.append(n)) for n in range(50)))
        assert order == list(range(50))

    run(main())


def test_an_idle_thread_is_used_again() -> None:
    """C6: the pool grows with the work that is there at once, not with the work there was."""

    async def main() -> None:
        workers = ThreadWorkers(8)
        used = {await workers.submit(threading.get_ident) for _ in range(20)}
        assert len(used) == workers.members == 1

    run(main())


def test_the_pool_never_exceeds_its_bound() -> None:
    """C6: the fifth function waits until one of four has ended."""

    async def main() -> None:
        workers = ThreadWorkers(4)
        with stuck(5) as functions:
            futures = [workers.submit(function) for function in functions]
            await until_entered(*functions[:4])
            assert [workers.started(future) for future in futures] == [True] * 4 + [False]
            assert workers.members == 4
            functions[0].gate.set()
            await until_entered(functions[4])
            assert workers.started(futures[4])

    run(main())


def test_idle_threads_end() -> None:
    """C6: a pool that was busy once costs nothing for ever."""
    name = "idle threads end"
    workers = ThreadWorkers(2, name=name, idle_seconds=0.0)

    async def main() -> None:
        assert await workers.submit(lambda: "done") == "done"

    run(main())
    let_end(name)
    assert workers.members == 0
    run(main())


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_function_raises_is_its_outcome(error: BaseException) -> None:
    """C1: neither the thread nor the loop ends by it."""

    async def main() -> None:
        workers = ThreadWorkers(1)

        def fail() -> None:
            raise error

        future = workers.submit(fail)
        await asyncio.wait([future])
        assert future.exception() is error
        assert await workers.submit(lambda: "next") == "next"
        assert workers.members == 1

    run(main())


@pytest.mark.parametrize("error", [StopIteration(7), asyncio.CancelledError()])
def test_what_a_future_cannot_carry_comes_as_a_cause(error: BaseException) -> None:
    """C1, K2: a cancellation born in a thread is not taken for the waiter's own."""

    async def main() -> None:
        workers = ThreadWorkers(1)

        def fail() -> None:
            raise error

        with pytest.raises(RuntimeError) as caught:
            await workers.submit(fail)
        assert caught.value.__cause__ is error

    run(main())


def test_functions_that_never_return_do_not_starve_the_next_one() -> None:
    """C6, case 39: two run and are written off, one was queued and never runs, the fourth runs."""

    async def main() -> None:
        workers = ThreadWorkers(2)
        with stuck(3) as functions:
            futures = [workers.submit(function) for function in functions]
            await until_entered(*functions[:2])
            assert workers.abandon(futures[2])
            assert not workers.abandon(futures[0])
            assert not workers.abandon(futures[1])
            assert workers.abandoned == 2
            assert await workers.submit(lambda: "quick") == "quick"

            late: asyncio.Queue[None] = asyncio.Queue()
            for future, function in zip(futures[:2], functions, strict=False):
                workers.abandon(future, lambda _outcome: late.put_nowait(None))
                function.gate.set()
                await late.get()
            assert workers.abandoned == 0
            assert not functions[2].entered.is_set()
            assert await workers.submit(lambda: "again") == "again"
            assert workers.members <= 2

    run(main())


def test_work_that_is_queued_behind_an_abandoned_function_gets_its_replacement() -> None:
    """C6, case 39: nothing has to be submitted for the queue to move on."""

    async def main() -> None:
        workers = ThreadWorkers(1)
        with stuck(1) as [function]:
            blocking = workers.submit(function)
            await until_entered(function)
            behind = workers.submit(lambda: "behind")
            assert not workers.started(behind)
            workers.abandon(blocking)
            assert await behind == "behind"

    run(main())


def test_a_late_outcome_is_told_on_the_loop() -> None:
    """E4, case 39: what an abandoned function returned or raised after all is not lost."""

    async def main() -> None:
        workers = ThreadWorkers(2)
        late: asyncio.Queue[tuple[Any, int]] = asyncio.Queue()

        def hear(outcome: Any) -> None:
            late.put_nowait((outcome, threading.get_ident()))

        with stuck(2) as [returns, fails]:

            def fail() -> None:
                fails()
                raise ValueError("late")

            futures = [workers.submit(returns), workers.submit(fail)]
            await until_entered(returns, fails)
            for future in futures:
                assert not workers.abandon(future, hear)
            returns.gate.set()
            assert await late.get() == ("late", threading.get_ident())
            fails.gate.set()
            outcome, _ = await late.get()
            assert isinstance(outcome, ValueError)
            assert [future.done() for future in futures] == [False, False]

    run(main())


def test_an_outcome_that_was_on_its_way_is_late_as_well() -> None:
    """E4: between the end of the function and the loop's next turn the waiter may give up."""

    async def main() -> None:
        name = "on its way"
        workers = ThreadWorkers(1, name=name, idle_seconds=0.0)
        late: list[str] = []
        future = workers.submit(lambda: "on its way")
        let_end(name)  # while the loop stands still
        assert not future.done()
        assert not workers.abandon(future, late.append)
        assert workers.abandoned == 0
        await workers.submit(lambda: None)
        assert late == ["on its way"]

    run(main())


def test_to_abandon_what_has_been_delivered_changes_nothing() -> None:
    """E4: a result that arrived is a result."""

    async def main() -> None:
        workers = ThreadWorkers(1)
        late: list[str] = []
        future = workers.submit(lambda: "in time")
        assert await future == "in time"
        assert not workers.abandon(future, late.append)
        assert (workers.abandoned, late) == (0, [])

    run(main())


def test_to_cancel_the_future_of_a_queued_function_drops_it() -> None:
    """K1, C6: whoever waited for it is gone, so it never starts."""

    async def main() -> None:
        workers = ThreadWorkers(1)
        with stuck(2) as [running, queued]:
            first = workers.submit(running)
            await until_entered(running)
            future = workers.submit(queued)
            future.cancel()
            running.gate.set()
            await first
            assert await workers.submit(lambda: "next") == "next"
            assert not queued.entered.is_set()
            assert not workers.started(future)
            assert workers.abandon(future)

    run(main())


def test_too_much_abandoned_work_refuses_the_next_function() -> None:
    """C6, case 39: abandoned work is capped, and what is refused was not started."""

    async def main() -> None:
        workers = ThreadWorkers(2, abandoned_cap=2)
        with stuck(2) as functions:
            futures = [workers.submit(function) for function in functions]
            await until_entered(*functions)
            late = asyncio.Event()
            workers.abandon(futures[0], lambda _outcome: late.set())
            assert await workers.submit(lambda: "below the cap") == "below the cap"
            workers.abandon(futures[1])
            with pytest.raises(WorkersExhausted):
                workers.submit(lambda: "never")
            functions[0].gate.set()
            await late.wait()
            assert await workers.submit(lambda: "room again") == "room again"

    run(main())


def test_a_written_off_thread_ends_when_it_was_replaced() -> None:
    """C6: the replacement is one for one."""
    name = "written off"
    workers = ThreadWorkers(1, name=name, idle_seconds=0.0)

    async def main() -> None:
        with stuck(1) as [function]:
            future = workers.submit(function)
            await until_entered(function)
            workers.abandon(future)
            await workers.submit(lambda: None)

    run(main())
    let_end(name)
    assert (workers.members, workers.abandoned) == (0, 0)


def test_work_that_ends_after_its_loop_was_closed_is_counted_off() -> None:
    """C6: there is nobody to tell, and the thread serves the next loop."""
    name = "survives its loop"
    workers = ThreadWorkers(1, name=name, idle_seconds=0.0)

    async def leave(function: Stuck) -> None:
        future = workers.submit(function)
        await until_entered(function)
        workers.abandon(future)

    with stuck(1) as [function]:
        run(leave(function))
        assert workers.abandoned == 1
    let_end(name)
    assert workers.abandoned == 0

    async def use() -> None:
        assert await workers.submit(lambda: "used by another loop") == "used by another loop"

    run(use())


def test_a_pool_serves_loops_in_several_threads() -> None:
    """C6: each future belongs to the loop that asked."""
    workers = ThreadWorkers(2)
    results: list[int] = []

    async def ask(first: int) -> None:
        for n in range(first, first + 50):
            results.append(await workers.submit(lambda n=n: n))

    askers = [threading.Thread(target=lambda n=n: run(ask(n))) for n in (0, 50, 100)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(PATIENCE)
    assert sorted(results) == list(range(150))
    assert workers.members <= 2


class Held:
    """A function that returns itself."""

    def __call__(self) -> "Held":
        return self


def test_an_idle_pool_keeps_nothing_alive() -> None:
    """C6: a result lives as long as its future is wanted, though the thread stays."""

    async def main() -> None:
        workers = ThreadWorkers(1)
        gone = threading.Event()
        held = Held()
        weakref.finalize(held, gone.set)
        await workers.submit(held)
        del held
        await asyncio.sleep(0)  # the loop's own handle ends with its turn
        assert gone.wait(PATIENCE)

    run(main())


def test_a_dropped_function_is_let_go_at_once() -> None:
    """C6, case 39: behind stuck threads the queue may be long, and holds nothing."""

    async def main() -> None:
        workers = ThreadWorkers(1)
        gone = threading.Event()
        held = Held()
        weakref.finalize(held, gone.set)
        with stuck(1) as [function]:
            workers.submit(function)
            await until_entered(function)
            workers.abandon(workers.submit(held))
            del held
            assert gone.is_set()

    run(main())


def test_a_foreign_future_is_refused() -> None:
    """C6: the pool knows its own work only."""

    async def main() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(TypeError):
            ThreadWorkers().abandon(future)

    run(main())


def test_a_stuck_thread_does_not_hold_up_the_end_of_the_process() -> None:
    """C6, case 39: a process whose thread never returns ends, and `abandon` is not needed for it."""
    script = """
        import asyncio, threading
        from remit.workers import ThreadWorkers

        async def main():
            workers = ThreadWorkers(1)
            entered = threading.Event()
            workers.submit(lambda: (entered.set(), threading.Event().wait()))
            assert entered.wait(10)

        asyncio.run(main())
        print("the end")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_was_forked_off_has_threads_of_its_own() -> None:
    """C6: the threads that the pool had stay with the parent; a blocking function waits for none of them."""
    script = """
        import asyncio, os
        from remit.workers import ThreadWorkers

        workers = ThreadWorkers(1)

        async def carried_out():
            async with asyncio.timeout(10):
                return await workers.submit(os.getpid)

        assert asyncio.run(carried_out()) == os.getpid()
        assert workers.members == 1, "it is idle"
        child = os.fork()
        assert asyncio.run(carried_out()) == os.getpid()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            print("the end")
    """
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(script)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")


# --- the simulated twin -------------------------------------------------------------------------


async def _at(future: asyncio.Future[Any]) -> float:
    await future
    return asyncio.get_running_loop().time()


def test_the_twin_runs_functions_side_by_side_in_virtual_time() -> None:
    """C6, case 26: four that take 200 ms each end after 200 ms on four threads, 400 ms on two."""

    async def ends(threads: int) -> list[float]:
        workers = SimulatedWorkers(lambda _n: 0.2, threads=threads)
        return await asyncio.gather(*(_at(workers.submit(int)) for _ in range(4)))

    assert run_virtual(ends(4)) == [0.2] * 4
    assert run_virtual(ends(2)) == [0.2, 0.2, 0.4, 0.4]


def test_the_twin_is_not_starved_by_functions_that_never_return() -> None:
    """C6, case 39: the same story as with threads, an infinite latency for each stuck function."""

    async def main() -> None:
        workers = SimulatedWorkers(lambda n: math.inf if n < 3 else 0.01, threads=2)
        futures = [workers.submit(int) for _ in range(3)]
        await asyncio.wait(futures, timeout=0.05)
        assert [workers.abandon(future) for future in reversed(futures)] == [True, False, False]
        assert workers.abandoned == 2
        assert await _at(workers.submit(int)) == pytest.approx(0.06)

    run_virtual(main())


def test_the_twin_tells_of_an_effect_that_lands_late() -> None:
    """E4, case 39: an abandoned function takes effect at its own time."""

    async def main() -> None:
        workers = SimulatedWorkers(lambda _n: 2.0)
        late: asyncio.Queue[str] = asyncio.Queue()
        future = workers.submit(lambda: "late")
        await asyncio.sleep(1.0)
        assert not workers.abandon(future, late.put_nowait)
        assert workers.abandoned == 1
        assert await late.get() == "late"
        assert (asyncio.get_running_loop().time(), workers.abandoned) == (2.0, 0)

    run_virtual(main())


def test_the_twin_has_the_cap_of_the_real_one() -> None:
    """C6: what is refused was not started."""

    async def main() -> None:
        workers = SimulatedWorkers(lambda _n: math.inf, abandoned_cap=1)
        workers.abandon(workers.submit(int))
        with pytest.raises(WorkersExhausted):
            workers.submit(int)

    run_virtual(main())


Act = tuple[str, int]
acts: st.SearchStrategy[list[Act]] = st.lists(
    st.tuples(st.sampled_from(["submit", "submit", "abandon"]), st.integers(0, 9)), max_size=12
)


@dataclass(frozen=True)
class Sight:
    """What a caller sees after one act."""

    came_back: object
    started: list[bool]
    abandoned: int


def act_on(
    workers: Workers, act: Act, futures: list[asyncio.Future[Any]], function: Stuck
) -> object:
    name, pick = act
    if name == "submit":
        try:
            futures.append(workers.submit(function))
        except WorkersExhausted:
            return "exhausted"
    elif futures:
        return workers.abandon(futures[pick % len(futures)])
    return None


@given(acts, st.integers(1, 3), st.integers(1, 4))
def test_the_twin_and_the_real_one_tell_the_same_story(
    history: list[Act], threads: int, cap: int
) -> None:
    """C6: whatever is submitted and abandoned among functions that never return."""

    async def main(functions: list[Stuck]) -> None:
        twin = SimulatedWorkers(lambda _n: math.inf, threads=threads, abandoned_cap=cap)
        real = ThreadWorkers(threads, cap)
        futures: dict[Workers, list[asyncio.Future[Any]]] = {twin: [], real: []}
        submitted: list[Stuck] = []
        for act, function in zip(history, functions, strict=True):
            sights: list[Sight] = []
            for workers in (twin, real):
                came_back = act_on(workers, act, futures[workers], function)
                if workers is twin and len(futures[twin]) > len(submitted):
                    submitted.append(function)
                for entered, future in zip(submitted, futures[twin], strict=True):
                    if workers is real and twin.started(future):
                        assert entered.entered.wait(PATIENCE)
                started = [workers.started(future) for future in futures[workers]]
                sights.append(Sight(came_back, started, workers.abandoned))
            assert sights[0] == sights[1]

    with stuck(len(history)) as functions:
        run(main(functions))
