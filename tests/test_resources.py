"""Mutual exclusion by name: who may hold what at the same time, and who is next."""

import asyncio
import gc
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.resources import PROCESS, Claim, Path, Resources
from remit.testing.loop import run_virtual

PATIENCE = 10.0  # seconds until a thread that was not woken fails its test


def write(table: Resources, *names: str, path: Path | None = None) -> Claim:
    return table.request(names, exclusive=True, path=path or Path())


def read(table: Resources, *names: str, path: Path | None = None) -> Claim:
    return table.request(names, exclusive=False, path=path or Path())


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on virtual time, where a claim that is never granted is a `Deadlock`."""
    run_virtual(main)


async def granted(claim: Claim) -> Claim:
    if claim.future is not None:
        await claim.future
    assert claim.granted
    return claim


# --- exclusion ----------------------------------------------------------------------------------


def test_reads_hold_a_name_together_and_a_write_holds_it_alone() -> None:
    """C5: across batches, children and runs of a process a resource is a mutual exclusion."""

    async def main() -> None:
        table = Resources()
        first, second = read(table, "a"), read(table, "a")
        writer = write(table, "a")
        assert (first.granted, second.granted, writer.granted) == (True, True, False)
        first.release()
        assert not writer.granted
        second.release()
        await granted(writer)
        assert not read(table, "a").granted

    run(main())


def test_claims_on_different_names_do_not_meet() -> None:
    """C5: only the same resource excludes."""
    table = Resources()
    assert write(table, "a").granted
    assert write(table, "b").granted


def test_claims_are_granted_in_the_order_of_their_requests() -> None:
    """C5: first come first served, so that a stream of reads does not starve a write."""

    async def main() -> None:
        table = Resources()
        reading = read(table, "a")
        writer = write(table, "a")
        late_read, late_write = read(table, "a"), write(table, "a")
        assert not late_read.granted
        reading.release()
        await granted(writer)
        assert not late_read.granted
        writer.release()
        await granted(late_read)
        assert not late_write.granted
        late_read.release()
        await granted(late_write)

    run(main())


def test_a_release_grants_all_reads_up_to_the_next_write() -> None:
    """C5: reads that wait side by side go on side by side."""

    async def main() -> None:
        table = Resources()
        writer = write(table, "a")
        waiting = [read(table, "a"), read(table, "a"), write(table, "a"), read(table, "a")]
        writer.release()
        assert [claim.granted for claim in waiting] == [True, True, False, False]

    run(main())


def test_several_names_are_granted_together_or_not_at_all() -> None:
    """C5: who waits for one name holds none of the others, so opposite orders cannot block."""

    async def main() -> None:
        table = Resources()
        on_b = write(table, "b")
        both = write(table, "a", "b")
        assert not both.granted
        assert both.names == ("a", "b")
        on_b.release()
        await granted(both)
        reverse = write(table, "b", "a")
        both.release()
        await granted(reverse)

    run(main())


def test_a_claim_on_several_names_is_not_overtaken_on_the_one_that_is_free() -> None:
    """C5: fair on each of its names."""

    async def main() -> None:
        table = Resources()
        on_b = write(table, "b")
        both = write(table, "a", "b")
        on_a = write(table, "a")
        assert not on_a.granted
        on_b.release()
        await granted(both)
        assert not on_a.granted
        both.release()
        await granted(on_a)

    run(main())


def test_a_claim_on_nothing_is_granted_without_the_table() -> None:
    """C5: calls that touch nothing shared never meet."""
    table = Resources()
    claim = write(table)
    assert claim.granted
    assert table.names_in_use == frozenset()
    claim.release()


# --- re-entrance --------------------------------------------------------------------------------


def test_a_child_may_use_what_its_ancestors_hold() -> None:
    """C5: re-entrant down the path from parent call to child, however deep."""
    table = Resources()
    parent = Path()
    write(table, "a", path=parent)
    assert write(table, "a", path=Path(Path(parent))).granted


def test_children_of_one_parent_exclude_each_other() -> None:
    """C5: only the path from parent to child is exempt."""

    async def main() -> None:
        table = Resources()
        parent = Path()
        write(table, "a", path=parent)
        first = write(table, "a", path=Path(parent))
        second = write(table, "a", path=Path(parent))
        assert first.granted
        assert not second.granted
        first.release()
        await granted(second)

    run(main())


def test_a_parent_does_not_use_what_its_child_holds() -> None:
    """C5: the exemption goes down the path, not up."""

    async def main() -> None:
        table = Resources()
        parent = Path()
        child = write(table, "a", path=Path(parent))
        above = write(table, "a", path=parent)
        assert not above.granted
        child.release()
        await granted(above)

    run(main())


def test_a_child_is_not_queued_behind_a_stranger_that_waits_for_its_parent() -> None:
    """C5: else the child waits for the stranger, the stranger for the parent, the parent for it."""

    async def main() -> None:
        table = Resources()
        parent = Path()
        held = read(table, "a", path=parent)
        stranger = write(table, "a")
        assert not stranger.granted
        assert read(table, "a", path=Path(parent)).granted
        child = write(table, "a", path=Path(parent))
        assert not child.granted  # only for its sibling, which reads
        held.release()

    run(main())


def test_a_child_is_not_queued_on_another_name_of_that_stranger_either() -> None:
    """C5: the stranger waits for both of its names at once, so it may stand on a free one."""

    async def main() -> None:
        table = Resources()
        parent = Path()
        write(table, "a", path=parent)
        stranger = write(table, "a", "b")
        assert not stranger.granted
        assert write(table, "b", path=Path(parent)).granted

    run(main())


def test_a_path_that_holds_nothing_any_more_queues_like_everybody() -> None:
    """C5: only who holds something may pass those who wait."""

    async def main() -> None:
        table = Resources()
        parent = Path()
        write(table, "b", path=parent).release()
        reading = read(table, "a")
        writer = write(table, "a")
        below = read(table, "a", path=Path(parent))
        assert not below.granted
        reading.release()
        await granted(writer)
        writer.release()
        await granted(below)

    run(main())


def test_a_stranger_stays_out_while_a_child_outlives_its_parents_claim() -> None:
    """C5: each claim holds for itself."""

    async def main() -> None:
        table = Resources()
        parent = Path()
        above = write(table, "a", path=parent)
        below = write(table, "a", path=Path(parent))
        stranger = read(table, "a")
        above.release()
        assert not stranger.granted
        below.release()
        await granted(stranger)

    run(main())


# --- withdrawal ---------------------------------------------------------------------------------


def test_a_withdrawn_claim_lets_those_behind_it_pass() -> None:
    """C5, C7: who gives up waiting stands in nobody's way."""

    async def main() -> None:
        table = Resources()
        reading = read(table, "a")
        writer = write(table, "a")
        behind = read(table, "a")
        writer.release()
        await granted(behind)
        reading.release()
        assert not writer.granted

    run(main())


def test_a_cancelled_waiter_is_removed_without_being_told() -> None:
    """C5, K1: a cancelled task leaves its place at once, holder or not."""

    async def main() -> None:
        table = Resources()
        reading = read(table, "a")
        waiting = asyncio.create_task(granted(write(table, "a")))
        await asyncio.sleep(0)
        behind = read(table, "a")
        waiting.cancel()
        await granted(behind)
        behind.release()
        reading.release()
        assert table.names_in_use == frozenset()

    run(main())


def test_a_waiter_that_was_cancelled_just_now_is_skipped() -> None:
    """C5: the release may come before the loop has told the table of the cancellation."""

    async def main() -> None:
        table = Resources()
        holder = write(table, "a")
        gone, next_one = write(table, "a"), write(table, "a")
        assert gone.future is not None
        gone.future.cancel()
        holder.release()
        assert not gone.granted
        await granted(next_one)

    run(main())


def test_a_release_counts_once() -> None:
    """C5: a second release does not give away what somebody else holds by then."""

    async def main() -> None:
        table = Resources()
        first = write(table, "a")
        second, third = write(table, "a"), write(table, "a")
        first.release()
        first.release()
        await granted(second)
        assert not third.granted

    run(main())


def test_a_name_that_nobody_holds_or_wants_leaves_the_table() -> None:
    """C5: a process that runs for a year names a million orders."""

    async def main() -> None:
        table = Resources()
        claims = [write(table, "a", "b"), read(table, "b"), write(table, "c"), read(table, "a")]
        assert table.names_in_use == {"a", "b", "c"}
        for claim in reversed(claims):
            claim.release()
        assert table.names_in_use == frozenset()

    run(main())


def test_a_release_inside_the_table_is_carried_out_when_the_table_is_left() -> None:
    """C5: the garbage collector may run a finalizer that releases, in the midst of a request."""

    async def main() -> None:
        table = Resources()
        holder = write(table, "a")
        waiter = write(table, "a")
        with table._lock:
            holder.release()
            assert not waiter.granted
        assert write(table, "b").granted
        await granted(waiter)

    run(main())


def test_a_claim_that_would_wait_without_a_loop_is_refused_and_leaves_nothing() -> None:
    """C5: there would be nobody to wake."""
    table = Resources()
    holder = write(table, "a")
    with pytest.raises(RuntimeError):
        write(table, "a")
    holder.release()
    assert table.names_in_use == frozenset()


# --- loops in several threads -------------------------------------------------------------------


def test_runs_in_different_threads_exclude_each_other() -> None:
    """C5: `run_sync` from several threads shares the table of the process."""
    table = Resources()
    inside = 0
    most = 0

    async def one() -> None:
        nonlocal inside, most
        for _ in range(20):
            claim = await granted(write(table, "a"))
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            claim.release()

    async def four() -> None:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(one())

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(asyncio.run, four()) for _ in range(4)]:
            done.result(PATIENCE)
    assert most == 1
    assert table.names_in_use == frozenset()


def test_a_waiter_is_woken_in_its_own_loop_by_a_release_in_another_thread() -> None:
    """C5: the loops of a process share one table and no thread."""
    table = Resources()
    holder = write(table, "a")
    queued = threading.Event()
    woken_in: list[int] = []

    async def wait() -> None:
        claim = write(table, "a")
        queued.set()
        async with asyncio.timeout(PATIENCE):
            await granted(claim)
        woken_in.append(threading.get_ident())
        claim.release()

    other = threading.Thread(target=lambda: asyncio.run(wait()))
    other.start()
    assert queued.wait(PATIENCE)
    holder.release()
    other.join(PATIENCE)
    assert woken_in == [other.ident]
    assert table.names_in_use == frozenset()


def test_a_loop_that_was_closed_with_a_waiter_does_not_block_those_behind() -> None:
    """C5: its claim is granted to nobody and passed on."""
    table = Resources()
    holder = write(table, "a")

    async def leave_behind() -> Claim:
        return write(table, "a")

    loop = asyncio.new_event_loop()
    dead = loop.run_until_complete(leave_behind())
    loop.close()

    async def main() -> None:
        behind = write(table, "a")
        holder.release()
        await granted(behind)
        behind.release()

    run(main())
    assert not dead.granted
    assert table.names_in_use == frozenset()


def test_a_task_that_died_with_its_loop_gives_back_what_it_held() -> None:
    """C5: a coroutine that is collected releases in its `finally`, without a loop."""
    table = Resources()

    async def hold() -> None:
        claim = write(table, "a")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            claim.release()

    coroutine = hold()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_step(coroutine))
    loop.close()
    assert table.names_in_use == {"a"}
    del coroutine
    gc.collect()
    assert table.names_in_use == frozenset()


async def _step(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run to the first await, outside any task."""
    coroutine.send(None)


def test_the_process_has_one_table() -> None:
    """C5: runs that know nothing of each other meet in it."""
    claim = write(PROCESS, "test_the_process_has_one_table")
    assert claim.granted
    claim.release()


# --- every history ------------------------------------------------------------------------------

requests = st.tuples(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True).map(
        lambda names: tuple(sorted(names))
    ),
    st.booleans(),
)
Step = tuple[str, tuple[tuple[str, ...], bool], int]
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(st.sampled_from(["request", "release", "cancel"]), requests, st.integers(0, 9)),
    max_size=40,
)


def collide(a: Claim, b: Claim) -> bool:
    return (a.exclusive or b.exclusive) and not set(a.names).isdisjoint(b.names)


@given(steps)
def test_every_history_grants_what_a_plain_queue_grants(history: list[Step]) -> None:
    """C5: whoever collides with nobody before it is granted, and nobody else is."""

    async def main() -> None:
        table = Resources()
        queue: list[Claim] = []  # in order of request, holders and waiters
        for act, (names, exclusive), pick in history:
            if act == "request":
                queue.append(table.request(names, exclusive=exclusive, path=Path()))
            elif queue:
                claim = queue.pop(pick % len(queue))
                if act == "cancel" and claim.future is not None and not claim.granted:
                    claim.future.cancel()
                    await asyncio.sleep(0)
                else:
                    claim.release()
            assert [claim.granted for claim in queue] == [
                not any(collide(earlier, claim) for earlier in queue[:place])
                for place, claim in enumerate(queue)
            ]
        await _empty(table, queue)

    run(main())


@given(steps, st.lists(st.integers(0, 9), min_size=40, max_size=40))
def test_every_history_with_children_excludes_strangers_and_comes_to_an_end(
    history: list[Step], parents: list[int]
) -> None:
    """C5: holders that collide are on one path, and no claim waits for nobody."""

    async def main() -> None:
        table = Resources()
        queue: list[Claim] = []
        for (act, (names, exclusive), pick), parent in zip(history, parents, strict=False):
            if act == "request":
                holders = [claim for claim in queue if claim.granted]
                above = holders[parent % len(holders)].path if holders and parent > 3 else None
                queue.append(table.request(names, exclusive=exclusive, path=Path(above)))
            elif queue:
                queue.pop(pick % len(queue)).release()
            _assert_sound(queue)
        await _empty(table, queue)

    run(main())


def _assert_sound(queue: list[Claim]) -> None:
    for place, claim in enumerate(queue):
        against = [other for other in queue if other is not claim and collide(claim, other)]
        strangers = [
            other for other in against if other.granted and not claim.path.within(other.path)
        ]
        if claim.granted:
            assert all(other.path.within(claim.path) for other in strangers)
        elif claim.nested:
            assert strangers
        else:
            assert strangers or any(other in queue[:place] for other in against)


async def _empty(table: Resources, queue: list[Claim]) -> None:
    """Release whoever holds until all have held: nobody is forgotten, nothing is left."""
    while queue:
        holders = [claim for claim in queue if claim.granted]
        assert holders
        for claim in holders:
            claim.release()
        queue = [claim for claim in queue if claim not in holders]
    assert table.names_in_use == frozenset()
