"""The order inside a batch: which calls wait for which, and that no other does."""

from hypothesis import given
from hypothesis import strategies as st

from remit.schedule import Footprint, schedule, shares

footprints = st.builds(
    Footprint,
    writes=st.booleans(),
    resources=st.none() | st.lists(st.sampled_from("abcd"), max_size=3).map(tuple),
)
batches = st.lists(footprints, max_size=20)


def write(*names: str) -> Footprint:
    return Footprint(writes=True, resources=names)


def read(*names: str) -> Footprint:
    return Footprint(writes=False, resources=names)


UNDECLARED_WRITE = Footprint(writes=True, resources=None)
UNDECLARED_READ = Footprint(writes=False, resources=None)


def collide(a: Footprint, b: Footprint) -> bool:
    """The promise, in its own words."""
    undeclared_writes = a.writes and b.writes and a.resources is None and b.resources is None
    return undeclared_writes or shares(a, b)


def all_predecessors(order: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    """Those named and those behind them."""
    behind: list[set[int]] = []
    for before in order:
        behind.append(set(before).union(*(behind[earlier] for earlier in before)))
    return behind


def test_a_write_between_reads_of_one_resource_keeps_call_order() -> None:
    """C5: reads go together, a write goes alone, and all of it in call order."""
    batch = [read("a"), read("a"), write("a"), read("a"), read("a"), write("a")]
    assert schedule(batch) == ((), (), (0, 1), (2,), (2,), (3, 4))


def test_calls_on_different_resources_do_not_wait_for_each_other() -> None:
    """C5: two orders may be cancelled side by side."""
    assert schedule([write("order:1"), write("order:2"), read("order:3")]) == ((), (), ())


def test_a_call_that_names_two_resources_waits_for_both_of_their_writers() -> None:
    """C5: a transfer waits for whatever touches either account."""
    assert schedule([write("a"), write("b"), write("a", "b")]) == ((), (), (0, 1))


def test_undeclared_writes_are_ordered_among_themselves_only() -> None:
    """C5: nobody knows what they write, so they keep call order, and hold up nobody else."""
    batch = [UNDECLARED_WRITE, write("a"), UNDECLARED_WRITE, read("a"), UNDECLARED_WRITE]
    assert schedule(batch) == ((), (), (0,), (1,), (2,))


def test_a_call_that_touches_nothing_shared_never_waits() -> None:
    """C5: `resource=()` says so, for a write as well."""
    assert schedule([write(), write(), UNDECLARED_WRITE, write()]) == ((), (), (), ())


@given(batches)
def test_undeclared_reads_wait_for_nobody_and_nobody_waits_for_them(
    batch: list[Footprint],
) -> None:
    """C5: reads without a resource never wait."""
    order = schedule(batch)
    for index, call in enumerate(batch):
        if call == UNDECLARED_READ:
            assert order[index] == ()
            assert all(index not in before for before in order)


@given(batches)
def test_exactly_those_that_collide_are_ordered(batch: list[Footprint]) -> None:
    """C5: every colliding pair runs in call order, and nobody waits for one it does not touch."""
    order = schedule(batch)
    behind = all_predecessors(order)
    for later, call in enumerate(batch):
        assert all(collide(batch[earlier], call) for earlier in order[later])
        assert {i for i in range(later) if collide(batch[i], call)} <= behind[later]


@given(batches, st.integers(0, 20))
def test_what_comes_later_changes_nothing_for_what_came_before(
    batch: list[Footprint], length: int
) -> None:
    """C5: the schedule of a batch that is still arriving may be acted upon."""
    assert schedule(batch[:length]) == schedule(batch)[:length]


@given(st.lists(footprints, max_size=128))
def test_the_schedule_is_linear_in_the_names_of_the_batch(batch: list[Footprint]) -> None:
    """C5: only the nearest predecessors are named, each once and in ascending order."""
    order = schedule(batch)
    names = sum(1 if call.resources is None else len(call.resources) for call in batch)
    assert sum(map(len, order)) <= 2 * names
    assert all(list(before) == sorted(set(before)) for before in order)


def test_the_names_of_a_footprint_are_sorted_and_named_once() -> None:
    """C5: several resources are taken in sorted order, whatever the order of their templates."""
    assert write("b", "a", "b").resources == ("a", "b")
    assert write("b", "a") == write("a", "b")


@given(footprints, footprints)
def test_only_declared_names_that_one_of_them_writes_are_shared(a: Footprint, b: Footprint) -> None:
    """E6: a call stays behind a waiting one only where both say that they touch the same thing."""
    common = set(a.resources or ()) & set(b.resources or ())
    assert shares(a, b) == shares(b, a) == (bool(common) and (a.writes or b.writes))
