"""What another process leaves is heard while a run is busy, on virtual time: a store in memory plays the file."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from loop_rig import LIMITS, desk, is_sendable, said, statuses
from remit import (
    Call,
    ConfigurationError,
    Decision,
    Limits,
    MemoryStore,
    Outcome,
    Pending,
    PutOff,
    Reason,
    tool,
)
from remit.canonical import encode
from remit.errors import JournalError
from remit.hearing import _EARS, LOOK_SECONDS
from remit.models.scripted import ScriptedModel
from remit.posts import write_decision
from remit.rows import Proposed, decode_row
from remit.store.base import Held, Lease, StoredRow, Superseded
from remit.testing import VirtualLoop, run_virtual

AN_HOUR = 3_600.0


class Common(MemoryStore):
    """A store that others write to as well: asked for it, it tells what they left."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[float] = []
        self.fails = 0

    async def unread(self) -> Mapping[str, int]:
        self.looks.append(asyncio.get_running_loop().time())
        if self.fails:
            self.fails -= 1
            raise JournalError("the disk is slow")
        return {
            run_id: record.newest
            for run_id, record in self._runs.items()
            if record.owner is not None and record.newest > record.taken
        }


@tool(effect="read")
async def look(seconds: float) -> str:
    """Look for so long."""
    await asyncio.sleep(seconds)
    return "seen"


@tool(effect="read", timeout=4 * AN_HOUR)
async def watch() -> str:
    """Look for as long as it takes."""
    await asyncio.sleep(2 * AN_HOUR)
    return "seen"


@tool(effect="confirm")
async def pay(amount: int, call: Call) -> str:
    """Pay."""
    return f"paid {amount}"


def decoded(row: StoredRow) -> object:
    return decode_row(row.kind, row.body)


async def after(seconds: float, act: Coroutine[Any, Any, object]) -> None:
    await asyncio.sleep(seconds)
    await act


async def while_it_runs(
    running: Coroutine[Any, Any, Outcome[Any]], *acts: Coroutine[Any, Any, None]
) -> tuple[Outcome[Any], float]:
    """The outcome of a run during which others act, and when it came."""
    task = asyncio.ensure_future(running)
    async with asyncio.TaskGroup() as group:
        for act in acts:
            group.create_task(act)
        outcome = await task
        return outcome, asyncio.get_running_loop().time()


def test_a_cancel_from_another_process_ends_a_long_tool_within_a_second() -> None:
    """K1: nothing is written meanwhile, and it is heard all the same; the transcript is closed."""

    async def main() -> None:
        store = Common()
        remit = desk([[("watch", {})], "done"], [watch], store=store)
        running = remit.run("go", run_id="r")
        outcome, ended = await while_it_runs(running, after(100.2, store.post("r", "cancel")))
        assert outcome.reason is Reason.CANCELLED
        assert ended < 101.2
        assert statuses(outcome) == ["error"]
        assert is_sendable(outcome.transcript)

    run_virtual(main())


@tool(effect="idempotent")
async def stubborn(seconds: float) -> str:
    """Takes so long to stop."""
    try:
        await asyncio.sleep(AN_HOUR)
    except asyncio.CancelledError:
        await asyncio.sleep(seconds)
    return "stopped in order"


@pytest.mark.parametrize(
    ("grace", "status", "seconds"),
    [(None, "unknown", 0.5), (10.0, "ok", 5.0), (0.0, "unknown", 0.0), (1, "unknown", 1.0)],
)
@pytest.mark.parametrize("elsewhere", [True, False])
def test_whoever_cancels_says_why_and_how_long_tools_have_to_stop(
    elsewhere: bool, grace: float | None, status: str, seconds: float
) -> None:
    """K1: from whichever process; the words are the end's, and stand in the journal."""

    async def main() -> None:
        store = Common()
        there = desk([[("stubborn", {"seconds": 5})], "done"], [stubborn], store=store)
        here = desk(["never asked"], store=Window(store)) if elsewhere else there

        async def cancel() -> None:
            await here.cancel("r", reason="the customer hung up", grace=grace)

        outcome, ended = await while_it_runs(there.run("go", run_id="r"), after(10, cancel()))
        assert (outcome.reason, outcome.error) == (Reason.CANCELLED, "the customer hung up")
        assert statuses(outcome) == [status]
        heard = 0.51 if elsewhere else 0.0
        assert 10 + seconds <= ended <= 10.01 + seconds + heard
        stored = await here.outcome("r")
        assert stored.error == "the customer hung up"

    run_virtual(main())


@pytest.mark.parametrize(("grace", "status"), [(12.0, "ok"), (8.0, "unknown")])
def test_a_run_inside_has_half_of_what_whoever_cancels_gives(grace: float, status: str) -> None:
    """K3: so that it is closed before the call around it is given up."""

    async def main() -> None:
        store = Common()
        inner = desk([[("stubborn", {"seconds": 5})], "done"], [stubborn], name="inner")
        task = inner.as_tool("task", "Do it.", limits=LIMITS)
        outer = desk([[("task", {"task": "go"})], "done"], [task], store=store)
        cancel = outer.cancel("r", reason="why", grace=grace)
        outcome, _ = await while_it_runs(outer.run("go", run_id="r"), after(10, cancel))
        assert (outcome.reason, outcome.error) == (Reason.CANCELLED, "why")
        [child] = set(store._runs) - {"r"}
        inside = await outer.outcome(child)
        assert (inside.reason, inside.error) == (Reason.CANCELLED, "why")
        assert statuses(inside) == [status]

    run_virtual(main())


@pytest.mark.parametrize(
    "wrong",
    [{"grace": -1}, {"grace": float("nan")}, {"grace": "5"}, {"grace": True}, {"reason": 5}],
)
def test_what_is_said_with_a_cancel_is_checked_before_anything_is_cancelled(wrong: Any) -> None:
    """K1: a wrong call cancels nothing."""

    async def main() -> None:
        store = Common()
        remit = desk([[("pay", {"amount": 7})], "done"], [pay], store=store)
        await remit.run("go", run_id="r")
        with pytest.raises(ConfigurationError):
            await remit.cancel("r", **wrong)
        assert (await remit.outcome("r")).reason is Reason.WAITING

    run_virtual(main())


def test_a_cancel_whose_words_cannot_be_read_counts_all_the_same() -> None:
    """K1: a requested cancel always wins."""

    async def main() -> None:
        store = Common()
        remit = desk([[("watch", {})], "done"], [watch], store=store)
        posted = store.post("r", "cancel", b'{"grace":"long"}')
        outcome, _ = await while_it_runs(remit.run("go", run_id="r"), after(10, posted))
        assert (outcome.reason, outcome.error) == (Reason.CANCELLED, None)

    run_virtual(main())


def test_a_cancel_from_another_process_ends_a_long_model_call_within_a_second() -> None:
    """K1: the same where the model takes its time."""

    async def main() -> None:
        store = Common()
        remit = desk(ScriptedModel(["done"], latency=AN_HOUR / 2), store=store)
        running = remit.run("go", run_id="r")
        outcome, ended = await while_it_runs(running, after(7.3, store.post("r", "cancel")))
        assert (outcome.reason, outcome.steps) == (Reason.CANCELLED, 0)
        assert ended < 8.4

    run_virtual(main())


def test_what_was_said_in_another_process_is_answered_before_the_run_ends() -> None:
    """T5: it arrives while the reply that would be the last is written."""

    async def main() -> None:
        store = Common()
        remit = desk(ScriptedModel(["done", "Tuesday too"], latency=10), store=store)
        words = encode([{"type": "text", "text": "also Tuesday"}])
        running = remit.run("go", run_id="r")
        outcome, _ = await while_it_runs(running, after(5, store.post("r", "input", words)))
        assert (outcome.reason, outcome.text) == (Reason.COMPLETED, "Tuesday too")
        assert [message.text for message in outcome.transcript] == [
            "go",
            "done",
            "also Tuesday",
            "Tuesday too",
        ]
        info = await store.info("r")
        assert info is not None
        assert not info.unread

    run_virtual(main())


def test_who_is_asked_in_process_is_asked_no_longer_once_it_is_decided_elsewhere() -> None:
    """E5, E6: the first decision counts, at once, and the callback is told to leave off."""

    async def main() -> None:
        store = Common()
        left: list[str] = []

        async def confirm(pending: Pending) -> Decision:
            async def elsewhere() -> None:
                await asyncio.sleep(60)
                decision = write_decision(Decision(approve=True, by="dana"))
                await store.decide(
                    pending_id=pending.id, decision=decision, now=remit.runtime.now()
                )

            task = asyncio.ensure_future(elsewhere())
            try:
                await asyncio.sleep(2 * AN_HOUR)
            except asyncio.CancelledError:
                left.append(pending.tool)
                raise
            await task
            raise PutOff

        remit = desk([[("pay", {"amount": 7})], "done"], [pay], store=store, confirm=confirm)
        outcome = await remit.run("go", run_id="r")
        assert (outcome.reason, said(outcome)) == (Reason.COMPLETED, ["paid 7"])
        assert left == ["pay"]
        assert asyncio.get_running_loop().time() < 62

    run_virtual(main())


def test_a_call_that_is_decided_elsewhere_does_not_wait_for_its_siblings() -> None:
    """E6, T1: what it waits for is known elsewhere at once, it begins at once, and results stand in call order."""

    async def main() -> None:
        store = Common()
        entered: list[tuple[float, str]] = []

        @tool(effect="confirm", resource="till", name="charge")
        async def charge(amount: int) -> str:
            """Charge."""
            entered.append((asyncio.get_running_loop().time(), f"charge {amount}"))
            await asyncio.sleep(5)
            return f"charged {amount}"

        async def decide(n: int, *, approve: bool = True) -> None:
            open_ = {each.pending_id: each for each in await store.open_proposals(count=9)}
            shown = {
                each.pending_id: each.arguments
                for each in map(decoded, await store.read("r"))
                if isinstance(each, Proposed)
            }
            [wanted] = [each for each in open_ if shown[each] == f'{{"amount":{n}}}']
            decision = write_decision(Decision(approve=approve, by="dana", note="no"))
            await store.decide(pending_id=wanted, decision=decision, now=remit.runtime.now())

        calls: list[Any] = [("charge", {"amount": n}) for n in (1, 2, 3)]
        script = [[calls[0], ("look", {"seconds": 50}), *calls[1:]], "done"]
        remit = desk(script, [look, charge], store=store)
        running = remit.run("go", run_id="r")
        outcome, ended = await while_it_runs(
            running,
            after(10.2, decide(2)),
            after(20.2, decide(3, approve=False)),
            after(30.2, decide(1)),
        )
        assert said(outcome) == ["charged 1", "seen", "charged 2", "Refused by dana. no"]
        assert [what for _, what in entered] == ["charge 1", "charge 2"], (
            "in call order, on one till"
        )
        assert 30.2 < entered[0][0] < 31.3
        assert 35.2 < entered[1][0] < 36.3
        assert ended == 50
        assert outcome.reason is Reason.COMPLETED

    run_virtual(main())


def test_a_cancel_ends_calls_that_joined_later_too() -> None:
    """K1, E6: whatever was decided meanwhile, nothing begins after it."""

    async def main() -> None:
        store = Common()
        remit = desk(
            [[("pay", {"amount": 7}), ("look", {"seconds": 50})], "done"], [look, pay], store=store
        )

        async def decide() -> None:
            [open_] = await store.open_proposals(count=9)
            decision = write_decision(Decision(approve=True, by="dana"))
            await store.post("r", "cancel")
            await store.decide(
                pending_id=open_.pending_id, decision=decision, now=remit.runtime.now()
            )

        outcome, ended = await while_it_runs(remit.run("go", run_id="r"), after(10.2, decide()))
        assert outcome.reason is Reason.CANCELLED
        assert statuses(outcome) == ["not_started", "error"]
        assert ended < 11.3

    run_virtual(main())


def test_nobody_is_asked_what_was_decided_before() -> None:
    """E6: a decision that is known already is not asked for again."""

    async def main() -> None:
        store = Common()
        asked: list[str] = []

        async def confirm(pending: Pending) -> Decision:
            asked.append(pending.tool)
            raise PutOff

        script = [[("pay", {"amount": 7})], "done"]
        first = await desk(script, [pay], store=store).run("go", run_id="r")
        assert first.reason is Reason.WAITING
        again = desk(script[1:], [pay], store=store, confirm=confirm)
        await again.decide(id=first.pending[0].id, approve=True, by="dana")
        outcome = await again.resume("r")
        assert (outcome.reason, said(outcome)) == (Reason.COMPLETED, ["paid 7"])
        assert asked == []

    run_virtual(main())


def test_cancelling_a_run_that_another_process_executes_waits_for_its_end() -> None:
    """K1, J2: who cancels it writes nothing into it; who executes it closes it, and both see the same end."""

    async def main() -> None:
        store = Common()
        there = desk([[("watch", {})], "done"], [watch], store=store)
        here = desk(["never asked"], [watch], store=Window(store))
        running = there.run("go", run_id="r")
        outcomes: list[Outcome[Any]] = []

        async def cancel() -> None:
            outcomes.append(await here.cancel("r"))

        outcome, ended = await while_it_runs(running, after(10, cancel()))
        assert [each.reason for each in outcomes] == [Reason.CANCELLED] == [outcome.reason]
        assert outcomes[0].transcript.to_json() == outcome.transcript.to_json()
        assert ended < 12
        assert [posted.kind for posted in await store.inbox("r")] == ["cancel"], "it is told once"
        with pytest.raises(ConfigurationError):
            await here.cancel("unknown")

    run_virtual(main())


def test_a_run_whose_process_dies_over_a_cancel_is_closed_by_who_cancels() -> None:
    """K1, J2: a lease that is given back, or runs out, is taken over, and the run is ended there."""

    async def main() -> None:
        store = Common()
        first = await desk([[("pay", {"amount": 7})], "done"], [pay], store=store).run(
            "go", run_id="r"
        )
        assert first.reason is Reason.WAITING
        lease = await store.acquire("r", "a process that hangs")
        assert isinstance(lease, Lease)
        here = desk(["never asked"], [pay], store=store)
        cancelling = asyncio.ensure_future(here.cancel("r"))
        await asyncio.sleep(20)
        assert not cancelling.done()
        await store.release(lease)
        outcome = await cancelling
        assert (outcome.reason, outcome.steps) == (Reason.CANCELLED, 1)
        assert asyncio.get_running_loop().time() < 22
        reopened = await here.resume("r", reopen=True)
        assert reopened.reason is Reason.COMPLETED, "the cancel that was posted has had its end"

    run_virtual(main())


class Between(Common):
    """A store in which something happens between the look at a run and the lease."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Coroutine[Any, Any, object] | None = None

    async def acquire(self, run_id: str, owner: str) -> Lease | Held | Superseded:
        between, self.between = self.between, None
        if between is not None:
            await between
        return await super().acquire(run_id, owner)


@pytest.mark.parametrize("act", ["cancel", "resume"])
def test_what_ended_while_it_was_looked_at_stays_as_it_ended(act: str) -> None:
    """J3, K1: between the look and the lease another process came to the end; nothing is written behind it."""

    async def main() -> None:
        store = Between()
        script = [[("pay", {"amount": 7})], "done"]
        first = await desk(script, [pay], store=store).run("go", run_id="r")
        assert first.reason is Reason.WAITING
        here = desk(script[1:], [pay], store=store)
        there = desk(script[1:], [pay], store=Window(store))
        await here.decide(id=first.pending[0].id, approve=True, by="dana")
        store.between = there.resume("r")
        outcome = await (here.cancel("r") if act == "cancel" else here.resume("r"))
        assert (outcome.reason, outcome.text) == (Reason.COMPLETED, "done")
        kinds = [row.kind for row in await store.read("r")]
        assert (kinds.count("ended"), kinds[-1]) == (1, "ended")

    run_virtual(main())


def test_a_cancel_that_came_too_late_does_not_end_the_run_when_it_is_resumed() -> None:
    """K1, J3: whoever gives it new limits after that wants it to go on."""

    async def main() -> None:
        store = Common()
        short = Limits(steps=1, tokens=LIMITS.tokens, seconds=60)
        script = [[("look", {"seconds": 1})], "as far as it went", "done"]
        remit = desk(script, [look], store=store)
        first = await remit.run("go", run_id="r", limits=short)
        assert first.reason is Reason.STEP_BUDGET
        await store.post("r", "cancel")
        second = await remit.resume("r", limits=LIMITS)
        assert second.reason is Reason.COMPLETED

    run_virtual(main())


def test_one_look_serves_all_runs_and_there_is_none_without_a_run() -> None:
    """J1: it costs one query each half a second, and nothing outlives the last run."""

    async def main() -> None:
        store = Common()
        remit = desk(lambda *_: "done", store=store).replace(
            model=ScriptedModel(lambda *_: "done", latency=10.2)
        )
        await asyncio.gather(*(remit.run("go") for _ in range(20)))
        assert store.looks == [n * LOOK_SECONDS for n in range(1, 21)]
        assert _EARS == {}
        await asyncio.sleep(60)
        assert len(store.looks) == 20
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())


def test_a_store_that_cannot_be_asked_once_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """K1: a look that fails costs its time and nothing else."""

    async def main() -> None:
        store = Common()
        store.fails = 3
        remit = desk([[("watch", {})], "done"], [watch], store=store)
        running = remit.run("go", run_id="r")
        outcome, ended = await while_it_runs(running, after(0.1, store.post("r", "cancel")))
        assert outcome.reason is Reason.CANCELLED
        assert 2 <= ended < 3
        assert len(store.looks) == 4
        assert len(caplog.records) == 1, "told once"

    run_virtual(main())


def test_a_store_of_this_process_alone_is_not_asked() -> None:
    """J1: nothing ticks where nobody else can write; a run that hangs is found out by `Deadlock`."""

    async def main() -> None:
        remit = desk([[("look", {"seconds": 5})], "done"], [look], store=MemoryStore())
        await remit.run("go")
        assert _EARS == {}

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
        assert not loop._scheduled or all(timer.cancelled() for timer in loop._scheduled)
    finally:
        loop.close()
    gc.collect()


class Window:
    """The same store as another process sees it: it is not the same object, so nothing is attached to."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
