"""Virtual time: two hours pass at once, and what would hang says so."""

import asyncio
import math
import random
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.testing import Deadlock, VirtualLoop, run_virtual


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_clock_jumps_to_the_instant_of_the_next_timer() -> None:
    async def main() -> list[float]:
        seen = [now()]
        for seconds in (7_200, 0.1, 100_000):  # the last is longer than asyncio waits in one go
            await asyncio.sleep(seconds)
            seen.append(now())
        return seen

    assert run_virtual(main) == [0.0, 7_200, 7_200.1, 107_200.1]


def test_the_clock_stands_still_while_something_is_ready() -> None:
    async def main() -> float:
        later = asyncio.create_task(asyncio.sleep(5))
        for _ in range(100):
            await asyncio.sleep(0)
        later.cancel()
        return now()

    assert run_virtual(main) == 0.0


def test_the_clock_begins_where_it_is_told() -> None:
    async def main() -> tuple[float, float]:
        begun = now()
        await asyncio.sleep(2)
        return begun, now()

    assert run_virtual(main(), start=1_000.5) == (1_000.5, 1_002.5)


@given(st.lists(st.floats(0, 1e6), max_size=8), st.floats(0, 1e6))
def test_every_timer_fires_at_its_own_instant(delays: list[float], start: float) -> None:
    async def sleeper(seconds: float) -> tuple[float, float]:
        due = now() + seconds
        await asyncio.sleep(seconds)
        return due, now()

    async def main() -> list[tuple[float, float]]:
        return await asyncio.gather(*map(sleeper, delays))

    for due, fired in run_virtual(main, start=start):
        assert fired == pytest.approx(due, rel=0, abs=1.1e-9)  # asyncio's own resolution


def test_a_timeout_cancels_as_it_does_in_production() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3_600):
                await asyncio.Event().wait()
        return now()

    assert run_virtual(main) == 3_600


def test_waiting_for_nothing_is_a_deadlock_that_names_the_tasks() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(stuck(), name="the stuck one")

    with pytest.raises(Deadlock, match=r"the stuck one in .*stuck .*test_virtual_loop\.py:\d+"):
        run_virtual(main)


def test_waiting_for_ever_is_a_deadlock_too() -> None:
    async def main() -> None:
        async with asyncio.timeout_at(math.inf):
            await asyncio.sleep(math.inf)

    with pytest.raises(Deadlock):
        run_virtual(main)


def test_a_deadlock_still_runs_the_cleanup_of_the_tasks() -> None:
    cleaned: list[str] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("main")

    with pytest.raises(Deadlock):
        run_virtual(main)
    assert cleaned == ["main"]


def test_tasks_that_are_left_are_cancelled_at_the_end() -> None:
    ended: list[str] = []

    async def leftover() -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            await asyncio.sleep(1)  # cleaning up may take its time
            ended.append("cancelled")
            raise

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(leftover())
        await asyncio.sleep(0)
        return task

    assert run_virtual(main).cancelled()
    assert ended == ["cancelled"]


def test_what_main_raises_comes_out() -> None:
    async def main() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_virtual(main)


def completion_order(shuffle: random.Random | None) -> list[int]:
    order: list[int] = []

    async def sleeper(i: int) -> None:
        await asyncio.sleep(1)
        order.append(i)

    async def main() -> None:
        await asyncio.gather(*map(sleeper, range(4)))

    run_virtual(main, shuffle=shuffle)
    return order


def test_a_seed_fixes_the_order_of_timers_that_are_due_together() -> None:
    assert completion_order(None) == completion_order(None)
    for seed in range(20):
        assert completion_order(random.Random(seed)) == completion_order(random.Random(seed))


def test_every_order_of_timers_that_are_due_together_is_reached() -> None:
    orders = {tuple(completion_order(random.Random(seed))) for seed in range(400)}
    assert len(orders) == 24


def test_shuffling_keeps_the_order_of_different_instants() -> None:
    async def main() -> list[float]:
        fired: list[float] = []

        async def sleeper(seconds: float) -> None:
            await asyncio.sleep(seconds)
            fired.append(seconds)

        await asyncio.gather(*map(sleeper, (3, 1, 2, 2, 1, 3)))
        return fired

    for seed in range(20):
        assert run_virtual(main, shuffle=random.Random(seed)) == [1, 1, 2, 2, 3, 3]


def test_eager_tasks_begin_at_once_where_python_has_them() -> None:
    async def main() -> bool:
        begun: list[bool] = []

        async def child() -> None:
            begun.append(True)

        task = asyncio.create_task(child())
        at_once = bool(begun)
        await task
        return at_once

    assert run_virtual(main, eager=True) is (sys.version_info >= (3, 12))
    assert run_virtual(main) is False


def test_a_thread_is_refused_at_once() -> None:
    async def main() -> None:
        await asyncio.to_thread(threading.get_ident)

    with pytest.raises(RuntimeError, match="no thread can wake a virtual loop"):
        run_virtual(main)


def test_a_call_from_the_outside_is_run_like_any_other() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called = asyncio.Event()
        for _ in range(10_000):  # more than the loop's own pipe can hold, which nobody reads
            loop.call_soon_threadsafe(called.set)
        await called.wait()

    run_virtual(main)


def test_no_loop_is_left_behind() -> None:
    async def main() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first, second = run_virtual(main), run_virtual(main)
    assert isinstance(first, VirtualLoop)
    assert first is not second
    assert first.is_closed()
