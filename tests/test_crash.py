"""Crash at every boundary of the journal, resume in a fresh remit, compare with the run without a crash."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import remit
from crash_rig import (
    LIMITS,
    SHAPES,
    Before,
    Outside,
    Shape,
    World,
    assert_spend_is_the_sum_of_the_rows,
    is_payment,
    judge,
    now,
    pay,
    resumed,
    script,
    state_of,
    untimed,
    without_crash,
)
from effort import one_in
from remit import Call, Outcome, Reason, Remit, activation
from remit.canonical import encode
from remit.messages import Status
from remit.pending import TOKENS
from remit.remit import Runtime
from remit.resources import PROCESS
from remit.store.base import Journal
from remit.testing import ScriptedModel, SimulatedWorkers, run_virtual
from remit.testing.crash import CrashPoint, CrashStore, _crashes, crash_points


def points(name: str, latency: float) -> Iterator[tuple[Shape, World, CrashPoint]]:
    shape = SHAPES[name]
    reference = without_crash(shape, latency)
    assert reference.outcome.reason is shape.ends
    for point in crash_points(lambda store: shape.play(store, store.ledger), latency=latency):
        yield shape, reference, point


every_shape = pytest.mark.parametrize("name", SHAPES)


@pytest.mark.parametrize("latency", [0.0, 0.3])
@every_shape
def test_after_a_crash_anywhere_the_world_and_the_run_come_out_as_without_it(
    name: str, latency: float
) -> None:
    """E3, E1, E2, E7, T2, L3, J3, case 34: wherever a crash hits, the rest of the run makes up for it."""
    for shape, reference, point in one_in(4, [*points(name, latency)]):
        before = Before.read(point)
        judge(shape, reference, point, before, resumed(shape, point))


@pytest.mark.parametrize(
    "name",
    [
        *("confirm by decision", "child", "computed", "hand-back"),
        *("questions by supply", "handed out after approval"),
    ],
)
def test_a_second_crash_while_the_first_is_made_up_for_changes_nothing(name: str) -> None:
    """E3, E1, J3: a run may die again and again, and comes out the same."""
    shape = SHAPES[name]
    reference = without_crash(shape)
    firsts = sum(1 for _ in points(name, 0.0))
    for first in one_in(3, range(1, firsts, 4)):
        for second in itertools.count(step=3):
            store = CrashStore(first)
            assert _crashes(lambda store: shape.play(store, store.ledger), store)
            store.ledger.closed = False
            again = CrashStore(second, inner=store.inner, ledger=store.ledger)
            if not _crashes(lambda store: shape.play(store, store.ledger), again):
                break
            again.ledger.closed = False
            runs = tuple(dict.fromkeys((*store.opened, *again.opened)))
            point = CrashPoint(second, again.boundaries[-1], store.inner, runs, store.ledger)
            before = Before.read(point)
            world = resumed(shape, point)
            where = f"{first}, then {second}: {point.what}"
            assert world.outcome.reason is shape.ends, where
            assert_spend_is_the_sum_of_the_rows(world, where)
            for key, times in Counter(world.ledger.calls).items():
                assert times == 1 or not is_payment(key), (where, key)
            unknown = [
                r.key
                for r in itertools.chain(*world.results.values())
                if r.status is Status.UNKNOWN
            ]
            assert all(key is not None and is_payment(key) for key in unknown), where
            if not unknown and not any(map(is_payment, before.started)):
                assert list(world.outcome.transcript) == list(reference.outcome.transcript), where
                assert untimed(world.outcome) == untimed(reference.outcome), where
                assert set(world.ledger.effects) == set(reference.ledger.effects), where


def test_what_a_crashed_run_waits_for_is_what_it_waited_for_before() -> None:
    """E6, case 30: a pending that was durable keeps its id; nobody is asked twice, nothing handed out twice."""
    kept = 0
    for name in ("questions by supply", "handed out", "handed out after approval"):
        shape = SHAPES[name]

        async def begin(store: CrashStore, shape: Shape = shape) -> None:
            await shape.build(store, store.ledger).run(
                "go", run_id="r", deps=Outside(store.ledger, store)
            )

        for point in crash_points(begin):
            state = run_virtual(state_of(point.store, "r")) if point.runs else None
            before = [c.pending for c in state.calls if c.pending is not None] if state else []

            async def resume(point: CrashPoint = point, shape: Shape = shape) -> Outcome[str]:
                root = shape.build(point.store, point.ledger)
                return await root.run("go", run_id="r", deps=Outside(point.ledger, point.store))

            outcome = run_virtual(resume())
            assert outcome.reason is Reason.WAITING, point.what
            after = {pending.id for pending in outcome.pending}
            assert {pending.pending_id for pending in before} <= after, point.what
            kept += len(before)
    assert kept > 10


def test_a_crash_leaves_nothing_but_what_was_committed() -> None:
    """E3: the helper itself: no `finally` has a say, no lock, token or live run is left over."""
    tokens, live = set(TOKENS), set(activation._LIVE)

    async def scenario(store: CrashStore) -> None:
        @remit.tool(effect="idempotent", resource="thing")
        async def stubborn(call: Call) -> str:
            """Tell the world about the end, whatever ends it."""
            try:
                await asyncio.sleep(1)
            finally:
                store.ledger.done(call.key)
            return "done"

        runner = Remit[Any](
            name="r",
            model=ScriptedModel(script([("stubborn", {}), ("pay", {"x": "a"})], "done")),
            limits=LIMITS,
            tools=[stubborn, pay],
            store=store,
            runtime=Runtime(workers=SimulatedWorkers(), now=now),
        )
        outcome = await runner.run("go", run_id="r")
        await runner.decide(outcome.pending[0].token, approve=False, by="dana")
        await runner.resume("r")

    seen = list(crash_points(scenario))
    assert [point.index for point in seen] == list(range(len(seen)))
    assert (seen[0].what, seen[0].runs) == ("before create", ())
    assert (seen[1].what, seen[1].runs) == ("after create", ("r",))
    entered = [point for point in seen if "started" in point.what]
    assert entered
    assert all(point.ledger.calls == [] for point in entered)
    assert PROCESS.names_in_use == frozenset()
    assert set(TOKENS) == tokens
    assert set(activation._LIVE) == live


def test_input_that_was_posted_is_heard_exactly_once_wherever_a_crash_hits() -> None:
    """T5, J3: what the store took in is neither lost with a process nor heard twice."""
    said = encode([{"type": "text", "text": "also Tuesday"}])

    def desk(store: Journal) -> Remit[Any]:
        return Remit[Any](
            name="r",
            model=ScriptedModel(script([("note", {}), ("pay_it", {})], "done", "done")),
            limits=LIMITS,
            tools=[note, pay_it],
            store=store,
            runtime=Runtime(workers=SimulatedWorkers(), now=now),
        )

    async def finish(runner: Remit[Any]) -> Outcome[str]:
        outcome = await runner.run("go", run_id="r")
        if outcome.reason is Reason.WAITING:
            await runner.decide(id=outcome.pending[0].id, approve=True, by="dana")
            outcome = await runner.resume("r")
        return outcome

    async def scenario(store: CrashStore) -> None:
        runner = desk(store)
        started = asyncio.create_task(finish(runner))
        await asyncio.sleep(2)  # the note is being taken
        await store.post("r", "input", said)
        await started

    heard: list[str] = []
    for point in crash_points(scenario, latency=0.1):
        outcome = run_virtual(finish(desk(point.store)))
        times = sum(message.text.count("also Tuesday") for message in outcome.transcript)
        posted = any(post.kind == "input" for post in run_virtual(point.store.inbox("r")))
        assert outcome.reason is Reason.COMPLETED, point.what
        assert times == posted, (point.what, times)
        heard.append(point.what)
    assert any("post" in what for what in heard)


@remit.tool(effect="idempotent", resource=())
async def note() -> str:
    """Take a note, which takes a while."""
    await asyncio.sleep(3)
    return "noted"


@remit.tool(effect="confirm", resource=())
async def pay_it() -> str:
    """Pay."""
    return "paid"
