"""Resuming and starting again are idempotent, and a journal that fails is never written past."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

import remit
from remit import Call, Limits, Outcome, Reason, Remit
from remit.artifacts import Artifact
from remit.canonical import encode
from remit.errors import ConfigurationError, Fenced, JournalError, ModelRejected, RunBusy
from remit.messages import StopReason, Usage
from remit.pending import Veto
from remit.remit import Runtime
from remit.rows import Vetoed, encode_row
from remit.store.base import (
    Control,
    Journal,
    Lease,
    NewProposal,
    NewRow,
    RunStatus,
    StoredRow,
)
from remit.store.memory import MemoryStore
from remit.testing import ScriptedModel, SimulatedWorkers, Step, run_virtual
from remit.transcript import Transcript

START = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = Limits(steps=20, tokens=10_000_000, seconds=3_600)
MORE = Limits(steps=40, tokens=20_000_000, seconds=7_200)


def now() -> datetime:
    return START + timedelta(seconds=asyncio.get_running_loop().time())


@remit.tool(effect="read")
async def look(x: str) -> str:
    """Look."""
    await asyncio.sleep(1)
    return f"saw {x}"


@remit.tool(effect="idempotent", resource=())
async def write(x: str, call: Call[list[str]]) -> str:
    """Write."""
    call.deps.append(call.key)
    await asyncio.sleep(1)
    return f"wrote {x}"


@remit.tool(effect="confirm", resource=())
async def pay(x: str, call: Call[list[str]]) -> str:
    """Pay."""
    call.deps.append(call.key)
    return f"paid {x}"


def script(*turns: Any) -> Callable[[Transcript, Any], Any]:
    def says(transcript: Transcript, _: Any) -> Any:
        turn = turns[sum(message.role == "assistant" for message in transcript)]
        return turn if isinstance(turn, Step | Exception) else Step(turn, usage=Usage(10), delay=1)

    return says


def make(store: Journal, *turns: Any, limits: Limits = LIMITS, **more: Any) -> Remit[Any]:
    options: dict[str, Any] = {
        "name": "r",
        "runtime": Runtime(workers=SimulatedWorkers(), now=now, grace=0.5),
        "tools": [look, write, pay],
    }
    return Remit[Any](
        **{**options, **more}, model=ScriptedModel(script(*turns)), limits=limits, store=store
    )


async def rows(store: Journal, run_id: str = "x") -> list[str]:
    return [row.kind for row in await store.read(run_id)]


async def unchanged(remit: Remit[Any], first: Outcome[str]) -> None:
    """Resume, start again and ask for the outcome: the same each time, and nothing is written."""
    before = await rows(remit.store)
    for _ in range(2):
        assert await remit.resume("x", deps=[]) == first
        assert await remit.run("go", run_id="x", deps=[]) == first
        assert await remit.outcome("x") == first
    assert await rows(remit.store) == before
    info = await remit.store.info("x")
    assert info is not None
    assert info.owner is None


# --- the table of J3 -----------------------------------------------------------------------------

ENDS: dict[Reason, tuple[Any, ...]] = {
    Reason.COMPLETED: ([("write", {"x": "a"})], "done"),
    Reason.REFUSED: (Step("no", stop_reason=StopReason.REFUSAL),),
    Reason.CONTEXT_FULL: (Step("full", stop_reason=StopReason.CONTEXT),),
    Reason.UNKNOWN_STOP: (Step("what", stop_reason=StopReason.UNKNOWN),),
    Reason.STALLED: tuple([("look", {"x": "a"})] for _ in range(6)),
    Reason.OUTPUT_TRUNCATED: tuple(Step("cut", stop_reason=StopReason.LENGTH) for _ in range(2)),
}


@pytest.mark.parametrize("reason", ENDS, ids=str)
def test_an_ended_run_gives_its_stored_outcome_and_writes_nothing(reason: Reason) -> None:
    """J3, E8: what has ended for good is read back as it ended, however often it is asked for."""

    async def main() -> None:
        runner = make(MemoryStore(), *ENDS[reason])
        first = await runner.run("go", run_id="x", deps=[])
        assert first.reason is reason
        await unchanged(runner, first)

    run_virtual(main())


def test_a_vetoed_run_stays_vetoed() -> None:
    """J3, case 33: no resume and no second start lifts a veto."""

    async def veto(_: Transcript) -> Veto:
        return Veto("no")

    async def main() -> None:
        runner = make(MemoryStore(), [("write", {"x": "a"})], "done", guards=(veto,))
        first = await runner.run("go", run_id="x", deps=[])
        assert first.reason is Reason.VETOED
        await unchanged(runner, first)

    run_virtual(main())


def test_a_veto_that_was_recorded_before_a_crash_still_ends_the_run() -> None:
    """J3, case 33: a crash between a veto and the end does not lose the veto."""

    async def main() -> None:
        store, deps = MemoryStore(), list[str]()
        await make(store, Step("", delay=99)).store.create(await opened(store, "x"))
        lease = await store.acquire("x", "dead")
        assert isinstance(lease, Lease)
        await store.append(lease, [NewRow("vetoed", encode_row(Vetoed("no")))])
        await store.release(lease)
        outcome = await make(store, [("write", {"x": "a"})], "done").resume("x", deps=deps)
        assert outcome.reason is Reason.VETOED
        assert deps == []

    run_virtual(main())


async def opened(store: MemoryStore, run_id: str) -> Any:
    """A run as it is opened, taken from a store of its own."""
    caught: list[Any] = []

    class Catch(MemoryStore):
        async def create(self, run: Any) -> Any:
            caught.append(run)
            return await super().create(run)

    await make(Catch(), "done").run("go", run_id=run_id)
    return caught[0]


def limited(store: Journal) -> Remit[Any]:
    turns = ([("write", {"x": "a"})], "closing", [("write", {"x": "b"})], "done")
    return make(store, *turns, limits=Limits(steps=1, tokens=10_000_000, seconds=3_600))


def test_a_run_at_its_limit_stays_there_without_new_totals() -> None:
    """J3, L1: resuming needs totals that leave room; others change nothing."""

    async def main() -> None:
        runner, deps = limited(MemoryStore()), list[str]()
        first = await runner.run("go", run_id="x", deps=deps)
        assert (first.reason, first.text) == (Reason.STEP_BUDGET, "closing")
        await unchanged(runner, first)
        before = await rows(runner.store)
        for tight in (
            Limits(steps=1, tokens=10_000_000, seconds=3_600),
            Limits(steps=9, tokens=first.spend.tree.tokens, seconds=3_600),
            Limits(steps=9, tokens=10_000_000, seconds=first.spend.tree.seconds),
            Limits(steps=9, tokens=10_000_000, seconds=3_600, calls=1),
            Limits(steps=9, tokens=10_000_000, seconds=3_600, deadline=START),
        ):
            assert await runner.resume("x", deps=deps, limits=tight) == first
        assert await rows(runner.store) == before

    run_virtual(main())


def test_a_run_at_its_limit_goes_on_with_new_totals_and_repeats_nothing() -> None:
    """J3, L1, case 35: the finished call is not run again, and the steps count on."""

    async def main() -> None:
        runner, deps = limited(MemoryStore()), list[str]()
        first = await runner.run("go", run_id="x", deps=deps)
        assert first.reason is Reason.STEP_BUDGET
        second = await runner.resume("x", deps=deps, limits=MORE)
        assert (second.reason, second.text) == (Reason.COMPLETED, "done")
        assert [key.split(":")[1] for key in deps] == ["1", "2"]
        assert second.steps == 3
        assert second.spend.tree.tokens == 4 * 10
        await unchanged(runner, second)

    run_virtual(main())


def test_a_run_whose_model_failed_goes_on_from_its_last_good_row() -> None:
    """J3, E7: the step is asked for again, the finished call is not."""

    async def main() -> None:
        store, deps = MemoryStore(), list[str]()
        failing = make(store, [("write", {"x": "a"})], ModelRejected("no", usage=Usage()))
        first = await failing.run("go", run_id="x", deps=deps)
        assert first.reason is Reason.MODEL_FAILED
        again = await failing.resume("x", deps=deps)
        assert again.reason is Reason.MODEL_FAILED
        second = await make(store, [], "done").resume("x", deps=deps)
        assert (second.reason, second.text) == (Reason.COMPLETED, "done")
        assert len(deps) == 1

    run_virtual(main())


def test_a_run_that_ended_in_an_internal_error_goes_on() -> None:
    """J3, T2: a bug of ours ends in an outcome, from which the run can be taken up again."""

    async def main() -> None:
        store, deps, broken = MemoryStore(), list[str](), [True]

        def clock() -> datetime:
            if broken[0] and asyncio.get_running_loop().time() > 1.5:
                raise RuntimeError("the clock is broken")
            return now()

        runtime = Runtime(workers=SimulatedWorkers(), now=clock)
        runner = make(store, [("write", {"x": "a"})], "done", runtime=runtime)
        first = await runner.run("go", run_id="x", deps=deps)
        assert first.reason is Reason.INTERNAL_ERROR
        broken[0] = False
        second = await runner.resume("x", deps=deps)
        assert second.reason is Reason.COMPLETED
        assert len(set(deps)) == 1

    run_virtual(main())


def test_a_cancelled_run_is_taken_up_only_where_it_is_reopened() -> None:
    """J3, K1: a cancel stands until somebody says otherwise, and then stands no longer."""

    async def main() -> None:
        runner, deps = make(MemoryStore(), [("look", {"x": "a"})], "done"), list[str]()
        async with runner.stream("go", run_id="x", deps=deps) as live:
            await asyncio.sleep(1.5)
            first = await live.cancel()
        assert first.reason is Reason.CANCELLED
        await unchanged(runner, first)
        before = await rows(runner.store)
        assert await runner.resume("x", deps=deps, limits=MORE) == first
        assert await rows(runner.store) == before
        second = await runner.resume("x", deps=deps, reopen=True)
        assert second.reason is Reason.COMPLETED
        await unchanged(runner, second)

    run_virtual(main())


def test_a_waiting_run_that_nobody_decided_stays_as_it_is() -> None:
    """J3, E6: asked again it says the same, and writes nothing."""

    async def main() -> None:
        runner = make(MemoryStore(), [("pay", {"x": "a"}), ("write", {"x": "b"})], "done")
        first = await runner.run("go", run_id="x", deps=[])
        assert (first.reason, len(first.pending)) == (Reason.WAITING, 1)
        await unchanged(runner, first)

    run_virtual(main())


def test_a_run_that_waits_for_its_child_stays_as_it_is_until_the_child_is_decided() -> None:
    """J3, E6: the same holds for a tree, and the decision deep down wakes the root."""

    async def main() -> None:
        store, deps = MemoryStore(), list[str]()
        child = make(store, [("pay", {"x": "a"})], "child", name="child")
        runner = make(
            store,
            [("helper", {"task": "do"})],
            "done",
            tools=[child.as_tool("helper", "Help.", limits=LIMITS)],
        )
        first = await runner.run("go", run_id="x", deps=deps)
        assert (first.reason, len(first.pending)) == (Reason.WAITING, 1)
        inside = await rows(store, first.pending[0].run_id)
        await unchanged(runner, first)
        assert await rows(store, first.pending[0].run_id) == inside
        await runner.decide(first.pending[0].token, approve=True, by="dana")
        second = await runner.resume("x", deps=deps)
        assert second.reason is Reason.COMPLETED
        assert len(deps) == 1
        assert second.spend.tree.steps == 4

    run_virtual(main())


def test_a_run_that_another_process_executes_is_busy() -> None:
    """J3: a live run elsewhere is not touched, whoever asks."""

    async def main() -> None:
        store = MemoryStore()
        await store.create(await opened(store, "x"))
        lease = await store.acquire("x", "another process")
        runner = make(store, "done")
        for asked in (runner.resume("x"), runner.outcome("x")):
            with pytest.raises(RunBusy):
                await asked
        assert await rows(store) == ["opened"]
        assert isinstance(lease, Lease)
        await store.release(lease)
        assert (await runner.resume("x")).reason is Reason.COMPLETED

    run_virtual(main())


def test_a_waiting_run_that_another_process_has_taken_up_is_busy() -> None:
    """J3: it waits no more, whatever its rows say yet; what a process leaves behind as it was, waits again."""

    async def main() -> None:
        runner = make(MemoryStore(), [("pay", {"x": "a"})], "done")
        assert (await runner.run("go", run_id="x", deps=[])).reason is Reason.WAITING
        lease = await runner.store.acquire("x", "another process")
        assert isinstance(lease, Lease)
        with pytest.raises(RunBusy):
            await runner.resume("x")
        await runner.store.release(lease)
        info = await runner.store.info("x")
        assert info is not None
        assert info.status == "waiting"
        assert (await runner.resume("x")).reason is Reason.WAITING

    run_virtual(main())


def test_an_unknown_run_or_another_remits_is_a_wrong_call() -> None:
    """J3, E8: a run belongs to the remit that it was asked of."""

    async def main() -> None:
        runner = make(MemoryStore(), "done")
        with pytest.raises(ConfigurationError):
            await runner.resume("x")
        with pytest.raises(ConfigurationError):
            await runner.outcome("x")
        await runner.run("go", run_id="x")
        other = make(runner.store, "done", name="other")
        for attempt in (other.resume("x"), other.run("go", run_id="x")):
            with pytest.raises(ConfigurationError):
                await attempt

    run_virtual(main())


# --- starting again (E8) -------------------------------------------------------------------------


def test_starting_a_run_again_that_another_process_executes_waits_for_its_end() -> None:
    """E8, J3: nothing is begun twice; where that process lets go, whoever waits goes on with it."""

    async def main() -> None:
        store = MemoryStore()
        await store.create(await opened(store, "x"))
        lease = await store.acquire("x", "another process")
        assert isinstance(lease, Lease)
        runner = make(store, "done")
        waits, gives_up = (asyncio.create_task(runner.run("go", run_id="x")) for _ in range(2))
        await asyncio.sleep(100)
        assert not waits.done()
        assert await rows(store) == ["opened"]
        gives_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gives_up
        await store.release(lease)
        assert (await waits).reason is Reason.COMPLETED
        assert (await runner.run("go", run_id="x")).steps == 1

    run_virtual(main())


def test_starting_a_live_run_again_attaches_to_it() -> None:
    """E8: however many start it at once, it runs once and all get the same outcome."""

    async def main() -> None:
        runner, deps = make(MemoryStore(), [("write", {"x": "a"})], "done"), list[str]()

        async def late(seconds: float) -> Outcome[str]:
            await asyncio.sleep(seconds)
            return await runner.run("go", run_id="x", deps=deps)

        outcomes = await asyncio.gather(*(late(n / 2) for n in range(5)))
        assert all(outcome == outcomes[0] for outcome in outcomes)
        assert outcomes[0].reason is Reason.COMPLETED
        assert len(deps) == 1
        assert (await rows(runner.store)).count("opened") == 1
        assert "activated" not in await rows(runner.store)

    run_virtual(main())


def test_whoever_attached_can_leave_without_harm_to_the_run() -> None:
    """E8, K1: the cancellation of a second caller is not aimed at the run."""

    async def main() -> None:
        runner, deps = make(MemoryStore(), [("write", {"x": "a"})], "done"), list[str]()
        first = asyncio.create_task(runner.run("go", run_id="x", deps=deps))
        await asyncio.sleep(0.5)
        second = asyncio.create_task(runner.run("go", run_id="x", deps=deps))
        await asyncio.sleep(0.5)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert (await first).reason is Reason.COMPLETED

    run_virtual(main())


def test_the_same_id_for_another_prompt_is_refused_and_changes_nothing() -> None:
    """E8: an id stands for one prompt, while the run lives and after it has ended."""

    async def main() -> None:
        runner = make(MemoryStore(), [("look", {"x": "a"})], "done")
        live = asyncio.create_task(runner.run("go", run_id="x"))
        await asyncio.sleep(0.5)
        with pytest.raises(ConfigurationError):
            await runner.run("something else", run_id="x")
        outcome = await live
        with pytest.raises(ConfigurationError):
            await runner.run("something else", run_id="x")
        await unchanged(runner, outcome)

    run_virtual(main())


def test_starting_a_dead_run_again_resumes_it() -> None:
    """E8, E3: what the dead process finished is not repeated."""

    async def main() -> None:
        runner, deps = (
            make(MemoryStore(), [("write", {"x": "a"})], [("look", {"x": "b"})], "done"),
            [],
        )
        async with runner.stream("go", run_id="x", deps=deps) as live:
            await asyncio.sleep(3.5)
            await live.detach()
        outcome = await runner.run("go", run_id="x", deps=deps)
        assert outcome.reason is Reason.COMPLETED
        assert len(deps) == 1
        assert (await rows(runner.store)).count("activated") == 1

    run_virtual(main())


# --- what outsiders left -------------------------------------------------------------------------


def test_what_was_posted_is_heard_before_the_model_is_asked_and_only_once() -> None:
    """J3, K1, T5: a post waits for the next writer, and the one after that does not hear it again."""

    async def main() -> None:
        store = MemoryStore()
        await store.create(await opened(store, "x"))
        said = encode([{"type": "text", "text": "also Tuesday"}])
        await store.post("x", "input", said)
        failing = make(store, [("look", {"x": "a"})], ModelRejected("no", usage=Usage()))
        first = await failing.resume("x", deps=[])
        assert first.reason is Reason.MODEL_FAILED
        second = await make(store, [], "done").resume("x", deps=[])
        assert second.reason is Reason.COMPLETED
        told = [(message.role, message.text) for message in second.transcript]
        assert sum(text.count("also Tuesday") for _, text in told) == 1
        roles = [role for role, _ in told]
        before = told[: roles.index("assistant")]
        assert any("also Tuesday" in text for _, text in before)

    run_virtual(main())


def test_a_cancel_that_was_posted_while_nobody_ran_it_wins_and_is_heard_once() -> None:
    """K1, J3: no model call starts after it; reopened, the run is not cancelled by it again."""

    async def main() -> None:
        store = MemoryStore()
        await store.create(await opened(store, "x"))
        await store.post("x", "cancel")
        runner = make(store, "done")
        first = await runner.resume("x")
        assert (first.reason, first.steps) == (Reason.CANCELLED, 0)
        second = await runner.resume("x", reopen=True)
        assert second.reason is Reason.COMPLETED

    run_virtual(main())


# --- a journal that fails ------------------------------------------------------------------------


class Failing(MemoryStore):
    """Fails the n-th append, and every one after it until it is mended."""

    def __init__(self, at: int, error: Exception) -> None:
        super().__init__()
        self.at = at
        self.error = error
        self.appends = 0
        self.once = False

    async def append(
        self,
        lease: Lease,
        rows: Sequence[NewRow],
        *,
        status: RunStatus = "running",
        reason: str | None = None,
        proposals: Sequence[NewProposal] = (),
        taken: int = 0,
        artifacts: Sequence[Artifact] = (),
    ) -> Control:
        self.appends += 1
        fails = self.appends == self.at if self.once else self.appends >= self.at
        await asyncio.sleep(0.1)
        if fails:
            raise self.error
        return await super().append(
            lease,
            rows,
            status=status,
            reason=reason,
            proposals=proposals,
            taken=taken,
            artifacts=artifacts,
        )


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_failing_journal_ends_the_run_at_its_last_good_row(at: int, *, once: bool) -> None:
    """J3, E3: no row follows a lost one, no body is entered whose start was lost, and it goes on."""

    async def main() -> None:
        store, deps = Failing(at, JournalError("the disk is full")), list[str]()
        store.once = once
        turns = ([("write", {"x": "a"}), ("write", {"x": "b"}), ("look", {"x": "c"})],)
        runner = make(store, *turns, [("write", {"x": "a"})], "done")
        first = await runner.run("go", run_id="x", deps=deps)
        assert first.reason is Reason.JOURNAL_FAILED
        assert "disk is full" in (first.error or "")
        assert not first.transcript.owed
        started = (await rows(store)).count("started")
        assert len(deps) == started, "every body that was entered has its start in the journal"
        assert "ended" not in await rows(store)
        store.at = 1_000
        second = await runner.resume("x", deps=deps)
        assert second.reason is Reason.COMPLETED
        assert len(set(deps)) == 3
        kinds = await rows(store)
        assert (kinds.count("replied"), kinds.count("settled")) == (3, 4)

    run_virtual(main())


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_writer_that_was_fenced_stops_without_another_word(at: int) -> None:
    """J3, E3: it enters no further body and writes no row, not even its end."""

    async def main() -> None:
        store, deps = Failing(at, Fenced("another writer")), list[str]()
        store.once = True
        turns = ([("write", {"x": "a"}), ("write", {"x": "b"})], [("write", {"x": "c"})], "done")
        first = await make(store, *turns).run("go", run_id="x", deps=deps)
        assert first.reason is Reason.JOURNAL_FAILED
        assert store.appends == at
        assert len(deps) == (await rows(store)).count("started")

    run_virtual(main())


def test_whatever_breaks_in_a_store_no_row_follows_the_lost_ones() -> None:
    """J3, T2: an error that a store should not raise is an error inside remit, and as harmless."""

    async def main() -> None:
        store, deps = Failing(2, OSError("what is this")), list[str]()
        store.once = True
        runner = make(store, [("write", {"x": "a"}), ("look", {"x": "b"})], "done")
        first = await runner.run("go", run_id="x", deps=deps)
        assert first.reason is Reason.INTERNAL_ERROR
        assert "ended" not in await rows(store)
        store.at = 1_000
        second = await runner.resume("x", deps=deps)
        assert second.reason is Reason.COMPLETED
        assert len(set(deps)) == 1

    run_virtual(main())


# --- computed values -----------------------------------------------------------------------------


@dataclass
class Asked:
    """How often the host was asked."""

    times: list[str] = field(default_factory=list[str])

    def value(self) -> str:
        self.times.append("asked")
        return f"value {len(self.times)}"


def test_what_the_host_computed_is_computed_once_for_a_call() -> None:
    """E2, E3: a resumed call gets the journaled value, and nobody is asked for another."""
    asked, seen = Asked(), list[str]()

    @remit.tool(effect="idempotent", resource=())
    async def stamp(x: str, at: Annotated[str, remit.Computed(asked.value)]) -> str:
        """Stamp."""
        seen.append(at)
        await asyncio.sleep(5)
        return "stamped"

    async def main() -> None:
        runner = make(MemoryStore(), [("stamp", {"x": "a"})], "done", tools=[stamp])
        async with runner.stream("go", run_id="x") as live:
            await asyncio.sleep(2)
            await live.detach()
        assert (await runner.resume("x")).reason is Reason.COMPLETED

    run_virtual(main())
    assert seen == ["value 1", "value 1"]
    assert asked.times == ["asked"]


class Beside(MemoryStore):
    """Between a read of the rows and what its reader makes of them, something else happens."""

    meanwhile: Callable[[], Any] | None = None

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        found = await super().read(run_id, after)
        then, self.meanwhile = self.meanwhile, None
        if then is not None:
            await then()
        return found


def test_rows_that_another_went_on_from_meanwhile_are_not_the_last_word() -> None:
    """J3: whoever resumes beside another that ends the run is told that end, not what was waited for before."""

    async def main() -> None:
        store, deps = Beside(), list[str]()
        runner = make(store, [("pay", {"x": "a"})], "done")
        waiting = await runner.run("go", run_id="x", deps=deps)
        other = make(store, [("pay", {"x": "a"})], "done")

        async def decided() -> None:
            await other.decide(id=waiting.pending[0].id, approve=True, by="dana")
            assert (await other.resume("x", deps=deps)).completed

        store.meanwhile = decided
        outcome = await runner.resume("x", deps=deps)
        assert (outcome.reason, outcome.text) == (Reason.COMPLETED, "done")
        assert deps == [key for key in deps if key.startswith("x:1:pay:")]
        assert len(deps) == 1

    run_virtual(main())
