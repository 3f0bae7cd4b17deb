"""Effects: keys, doubt, late outcomes, repeats, and starting twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import remit as rm
from loop_rig import desk, everything_stored, model_of, results, rows, said, statuses, watched
from remit import Call, Outcome, Reason, Tool
from remit.canonical import arguments_hash, call_key
from remit.late import STILL_RUNNING
from remit.models.scripted import ScriptedModel
from remit.rows import Late, Replied, Started
from remit.store.base import NewRow
from remit.testing import run_virtual

ROOT = Path(__file__).resolve().parent.parent


class World:
    """A world that notes what was done to it, by tools that take their time."""

    def __init__(self, seconds: float = 0.0, *, stubborn: bool = False) -> None:
        self.seconds = seconds
        self.stubborn = stubborn
        """Whether a body goes on after its cancellation."""
        self.entered: list[str] = []
        self.done: list[str] = []

    async def act(self, key: str) -> None:
        self.entered.append(key)
        loop = asyncio.get_running_loop()
        until = loop.time() + self.seconds
        while loop.time() < until:
            try:
                await asyncio.sleep(until - loop.time())
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise
        self.done.append(key)

    def book(self, *, timeout: float = 60, retries: int = 0) -> Tool[..., Any]:
        @rm.tool(effect="idempotent", timeout=timeout, retries=retries, name="book")
        async def book(what: str, call: Call[Any]) -> str:
            """Book."""
            await self.act(call.key)
            return f"booked {what}"

        return book

    def pay(self, *, timeout: float = 60) -> Tool[..., Any]:
        @rm.tool(effect="confirm", timeout=timeout, name="pay", resource=())
        async def pay(what: str, call: Call[Any]) -> str:
            """Pay."""
            await self.act(call.key)
            return f"paid {what}"

        return pay

    def look(self, *, timeout: float = 60) -> Tool[..., Any]:
        @rm.tool(effect="read", timeout=timeout, name="look")
        async def look(what: str, call: Call[Any]) -> str:
            """Look."""
            await self.act(call.key)
            return f"saw {what}"

        return look


@rm.tool(effect="read")
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


BOOK_A = ("book", {"what": "a"})
PAY_A = ("pay", {"what": "a"})


def keys_of(outcome: Outcome[Any]) -> list[str | None]:
    return [result.key for result in results(outcome)]


# --- E2, case 34: keys ---------------------------------------------------------------------------


def test_a_retry_has_the_key_of_its_call_and_every_new_call_another() -> None:
    """E2, E1, case 34: retried twice; asked again on purpose; twice in one turn."""

    async def main() -> None:
        seen: list[str] = []

        @rm.tool(effect="idempotent", retries=2)
        async def book(what: str, call: Call[Any]) -> str:
            """Book."""
            seen.append(call.key)
            if len(seen) < 3:
                raise RuntimeError("the line is busy")
            return "booked"

        remit = desk([[BOOK_A, BOOK_A], [BOOK_A], "done", [BOOK_A], "done"], [book])
        outcome = await remit.run("go", run_id="r")
        digest = arguments_hash({"what": "a"})
        assert seen[:3] == [call_key("r", 1, "book", digest, 1)] * 3
        assert seen[3:] == [
            call_key("r", 1, "book", digest, 2),
            call_key("r", 2, "book", digest, 1),
        ]
        assert keys_of(outcome) == seen[2:]
        again = await remit.run("go", history=outcome.transcript, run_id="s")
        assert seen[5] == call_key("s", 1, "book", digest, 1)
        assert len(set(keys_of(again))) == 4

    run_virtual(main())


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ('{"what": "a", "n": 1}', '{ "n":1.0, "what":"\\u0061" }', True),
        ('{"what": "a", "n": 1}', '{"what": "a"}', False),
        ('{"what": "a", "n": 7}', '{"what": "a", "n": "7"}', True),
        ('{"what": "1"}', '{"what": "01"}', False),
        (
            '{"what": "a", "n": 123456789012345678}',
            '{"what": "a", "n": 123456789012345679}',
            False,
        ),
    ],
)
def test_equal_arguments_have_equal_hashes_however_they_are_written(
    one: str, other: str, equal: bool
) -> None:
    """E2: canonical, after coercion, as given: a default left out is another call."""

    @rm.tool(effect="idempotent")
    async def book(what: str, n: int = 1) -> str:
        """Book."""
        return "booked"

    async def main() -> None:
        outcome = await desk([[("book", one), ("book", other)], "done"], [book]).run("go")
        first, second = [str(key).split(":") for key in keys_of(outcome)]
        assert (first[3] == second[3]) is equal
        assert (first[4], second[4]) == ("1", "2" if equal else "1")

    run_virtual(main())


def test_the_model_neither_sees_nor_sets_the_key() -> None:
    """E2: it is no parameter and stands in no request."""

    async def main() -> None:
        world = World()
        remit = desk(
            [[BOOK_A, ("book", {"what": "a", "call": {"key": "mine"}})], "done"], [world.book()]
        )
        outcome = await remit.run("go", run_id="the-run")
        assert statuses(outcome) == ["ok", "error"]
        assert len(world.entered) == 1
        for request in model_of(remit).requests:
            shown = [
                "".join(getattr(part, "text", "") for part in result.content)
                for message in request.messages
                for result in message.tool_results
            ]
            assert not [text for text in shown if "the-run" in text]
            assert "key" not in str([tool.parameters for tool in request.tools])

    run_virtual(main())


_PRINT_KEYS = """
import asyncio, remit
from remit.models.scripted import ScriptedModel

@remit.tool(effect="idempotent")
async def book(items: list[str], n: int, call: remit.Call) -> str:
    "Book."
    return call.key

async def main():
    model = ScriptedModel([[("book", {"n": 2, "items": ["x", "y"]})] * 2, "done"])
    limits = remit.Limits(steps=3, tokens=10_000, seconds=10)
    outcome = await remit.Remit(name="d", model=model, tools=[book], limits=limits).run("go", run_id="r")
    print(*[result.key for message in outcome.transcript for result in message.tool_results])

asyncio.run(main())
"""


def test_keys_are_the_same_in_every_process() -> None:
    """E2: nothing of Python's salted `hash()` is in them."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", _PRINT_KEYS],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(printed) == 1
    assert next(iter(printed)).startswith("r:1:book:")


# --- E4: doubt, late outcomes, repeats -----------------------------------------------------------


def test_a_timeout_of_an_effect_is_unknown_and_of_a_read_an_error() -> None:
    """E4, C1: the truth about what may have happened."""

    async def main() -> None:
        world = World(10)
        calls = [BOOK_A, ("look", {"what": "a"})]
        outcome = await desk(
            [calls, "done"], [world.book(timeout=0.05), world.look(timeout=0.05)]
        ).run("go")
        assert statuses(outcome) == ["unknown", "error"]
        assert "may have taken effect" in said(outcome)[0]
        assert "may have taken effect" not in said(outcome)[1]
        assert all(result.is_error for result in results(outcome))

    run_virtual(main())


def test_the_late_outcome_is_recorded_and_given_to_the_repeat_instead_of_a_second_effect() -> None:
    """E4, T4, case 31: timeout at 50 ms, done at 2 s; the equal call of a later step gets what is recorded."""

    async def main() -> None:
        world = World(2, stubborn=True)
        remit = desk(
            [[BOOK_A], [("wait", {"seconds": 5})], [BOOK_A], [BOOK_A], "done"],
            [world.book(timeout=0.05), wait],
        )
        outcome, events = await watched(remit, "go", run_id="r")
        assert statuses(outcome)[:3] == ["unknown", "ok", "ok"]
        assert said(outcome)[2] == "booked a"
        assert keys_of(outcome)[0] == keys_of(outcome)[2]
        assert "late_outcome" in [event.kind for event in events]
        late = [row for row in await rows(remit, "r") if isinstance(row, Late)]
        assert [row.key for row in late] == [keys_of(outcome)[0]]
        # One repeat resolves one doubt: the third call is new, and entered.
        assert keys_of(outcome)[3] not in keys_of(outcome)[:3]
        assert len(world.entered) == 2

    run_virtual(main())


def test_a_repeat_joins_the_first_while_that_still_runs() -> None:
    """E4: nothing is entered beside it."""

    async def main() -> None:
        world = World(2, stubborn=True)
        remit = desk([[BOOK_A], [BOOK_A], "done"], [world.book(timeout=1)])
        outcome = await remit.run("go")
        assert statuses(outcome) == ["unknown", "ok"]
        assert said(outcome)[1] == "booked a"
        assert len(world.entered) == len(world.done) == 1

    run_virtual(main())


def test_a_repeat_that_is_itself_too_early_stays_unknown_and_the_next_one_joins_again() -> None:
    """E4: the doubt is not resolved by waiting in vain."""

    async def main() -> None:
        world = World(3, stubborn=True)
        remit = desk([[BOOK_A], [BOOK_A], [BOOK_A], "done"], [world.book(timeout=1)])
        outcome = await remit.run("go")
        assert statuses(outcome) == ["unknown", "unknown", "ok"]
        assert len(set(keys_of(outcome))) == 1
        assert len(world.entered) == 1

    run_virtual(main())


def test_a_repeat_runs_under_the_same_key_where_nobody_knows_the_outcome() -> None:
    """E4, E1: the first was cancelled and is gone, so the idempotent call may run again."""

    async def main() -> None:
        world = World(2)
        remit = desk([[BOOK_A], [BOOK_A], [BOOK_A], "done"], [world.book(timeout=1)])
        outcome = await remit.run("go")
        assert statuses(outcome) == ["unknown"] * 3
        assert len(world.entered) == 3
        assert len(set(world.entered)) == 1

    run_virtual(main())


def test_a_repeat_that_gets_its_outcome_ends_the_doubt() -> None:
    """E4: one repeat resolves one doubt; of two equal calls in a turn one is the repeat."""

    async def main() -> None:
        world = World(2)
        book = world.book(timeout=1)

        def quicker(_: Any) -> Any:
            world.seconds = 0
            return [BOOK_A, BOOK_A]

        remit = desk([[BOOK_A], quicker, [BOOK_A], "done"], [book])
        outcome = await remit.run("go")
        keys = keys_of(outcome)
        assert statuses(outcome) == ["unknown", "ok", "ok", "ok"]
        assert keys[1] == keys[0]
        assert len({keys[0], keys[2], keys[3]}) == 3

    run_virtual(main())


def test_doubt_belongs_to_the_conversation_and_goes_from_run_to_run() -> None:
    """E4: by `history=`, through JSON as well; the late outcome is found in the store."""

    async def main() -> None:
        world = World(2, stubborn=True)
        model = ScriptedModel([[BOOK_A], "done", [BOOK_A], "done", [BOOK_A], "done"], record=True)
        remit = desk(model, [world.book(timeout=0.05)])
        first = await remit.run("go")
        await asyncio.sleep(5)
        assert isinstance(remit.store, rm.MemoryStore)
        assert b"booked a" in await everything_stored(remit.store, first.run_id)
        history = rm.Transcript.load(first.transcript.to_json())
        second = await remit.run("again", history=history)
        assert statuses(second) == ["unknown", "ok"]
        assert len(set(keys_of(second))) == 1
        assert len(world.entered) == 1
        world.seconds = 0
        third = await remit.run("and again", history=second.transcript)
        assert len(set(keys_of(third))) == 2
        assert len(world.entered) == 2

    run_virtual(main())


def test_reads_and_other_arguments_are_new_calls() -> None:
    """E4: only the equal call of an effect repeats."""

    async def main() -> None:
        world = World(2)
        calls = [BOOK_A, ("look", {"what": "a"})]
        other = [("book", {"what": "b"}), ("look", {"what": "a"})]
        remit = desk([calls, other, "done"], [world.book(timeout=0.05), world.look(timeout=0.05)])
        outcome = await remit.run("go")
        assert len(set(keys_of(outcome))) == 4
        asked = [row for row in await rows(remit, outcome.run_id) if isinstance(row, Replied)]
        assert not any(each.repeats for row in asked for each in row.asked)

    run_virtual(main())


@pytest.mark.parametrize("known", [True, False])
def test_the_repeat_of_a_confirmed_call_asks_reconcile_and_else_a_person_who_is_warned(
    known: bool,
) -> None:
    """E4, E1: at most once per approval; the summary says that an equal call may have acted."""
    asked: list[str] = []

    async def main() -> None:
        world = World(2)
        pay = world.pay(timeout=0.05)

        @pay.reconcile
        async def _(key: str) -> str | None:
            asked.append(key)
            return "paid, the bank says" if known else None

        remit = desk([[PAY_A], [PAY_A], "done"], [pay])
        first = await remit.run("go")
        await remit.decide(first.pending[0].token, approve=True, by="dana")
        outcome = await remit.resume(first.run_id)
        assert asked == [keys_of(outcome)[0]]
        if known:
            assert outcome.completed
            assert statuses(outcome) == ["unknown", "ok"]
            assert said(outcome)[1] == "paid, the bank says"
            assert len(world.entered) == 1
            return
        assert outcome.reason is Reason.WAITING
        assert "may already have taken effect" in outcome.pending[0].summary
        assert "may already" not in first.pending[0].summary
        assert len(world.entered) == 1
        world.seconds = 0
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        outcome = await remit.resume(first.run_id)
        assert statuses(outcome) == ["unknown", "ok"]
        assert len(set(world.entered)) == 1

    run_virtual(main())


def test_a_fork_withdraws_a_repeat_that_waits_although_its_key_is_of_an_earlier_run() -> None:
    """E4, T2: what is left pending is found where it waits, not where its key was made."""

    async def main() -> None:
        world = World(2)
        model = ScriptedModel([[PAY_A], "unknown", [PAY_A], "forked", "original"])
        remit = desk(model, [world.pay(timeout=0.05)])
        first = await remit.run("go")
        await remit.decide(first.pending[0].token, approve=True, by="dana")
        first = await remit.resume(first.run_id)
        waiting = await remit.run("again", history=first.transcript)
        assert waiting.reason is Reason.WAITING
        assert statuses(waiting) == ["unknown", "not_started"]
        await remit.run("never mind", history=waiting.transcript)
        with pytest.raises(rm.DecisionError):
            await remit.decide(waiting.pending[0].token, approve=True, by="dana")
        original = await remit.resume(waiting.run_id)
        assert statuses(original) == ["unknown", "refused"]
        assert keys_of(original)[0] == keys_of(original)[1]

    run_virtual(main())


def test_a_refused_repeat_leaves_the_doubt_as_it_was() -> None:
    """E4, E5: a no tells nothing about what the first call did."""

    async def main() -> None:
        world = World(2)
        remit = desk([[PAY_A], [PAY_A], [PAY_A], "done"], [world.pay(timeout=0.05)])
        outcome = await remit.run("go")
        for approve in (True, False):
            await remit.decide(outcome.pending[0].token, approve=approve, by="dana")
            outcome = await remit.resume(outcome.run_id)
        assert statuses(outcome)[:2] == ["unknown", "refused"]
        assert "may already have taken effect" in outcome.pending[0].summary

    run_virtual(main())


@pytest.mark.parametrize("fails", ["raising", "odd", "hanging"])
def test_a_reconcile_that_fails_knows_nothing(fails: str) -> None:
    """E4: the repeat becomes a proposal; the run goes on."""

    async def main() -> None:
        world = World(2)
        pay = world.pay(timeout=1)

        @pay.reconcile
        async def _(key: str) -> object:
            if fails == "raising":
                raise SystemExit(key)
            if fails == "hanging":
                await asyncio.Event().wait()
            return None

        remit = desk([[PAY_A], [PAY_A], "done"], [pay])
        outcome = await remit.run("go")
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        outcome = await remit.resume(outcome.run_id)
        assert outcome.reason is Reason.WAITING
        assert len(world.entered) == 1

    run_virtual(main())


def test_what_was_given_up_is_forgotten_once_its_outcome_is_there() -> None:
    """E4: the table of what still runs does not grow."""

    async def main() -> None:
        world = World(2, stubborn=True)
        before = STILL_RUNNING.keys
        await desk([[BOOK_A], "done"], [world.book(timeout=0.05)]).run("go")
        assert len(STILL_RUNNING.keys - before) == 1
        await asyncio.sleep(5)
        assert STILL_RUNNING.keys == before

    run_virtual(main())


# --- E3, E7: the order of record and effect ------------------------------------------------------


class Watching(rm.MemoryStore):
    """A store that notes what it has committed when a body asks."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[str] = []

    async def append(self, lease: Any, rows: Any, **options: Any) -> Any:
        given: list[NewRow] = list(rows)
        control = await super().append(lease, given, **options)
        self.committed += [row.kind for row in given]
        return control


def test_no_effect_is_entered_before_its_start_is_durable_and_no_model_before_the_outcome() -> None:
    """E3: asked, started, committed, entered; settled, committed, asked again."""

    async def main() -> None:
        store = Watching()
        seen: list[list[str]] = []

        @rm.tool(effect="idempotent", resource=())
        async def act(n: int) -> str:
            """Act."""
            seen.append(list(store.committed))
            return "acted"

        def second(_: Any) -> Any:
            seen.append(list(store.committed))
            return "done"

        remit = desk([[("act", {"n": 1}), ("act", {"n": 2})], second], [act], store=store)
        await remit.run("go")
        assert seen[0].count("started") == seen[1].count("started") == 2
        assert "replied" in seen[0]
        assert seen[2].count("settled") == 2

    run_virtual(main())


def test_a_step_whose_model_call_failed_is_tried_again_without_running_a_finished_call() -> None:
    """E7: the retried request is the same, and so is the world."""

    async def main() -> None:
        world = World()
        model = ScriptedModel(
            [[BOOK_A], rm.ModelUnavailable("busy"), rm.ModelUnavailable("busy"), "done"],
            record=True,
        )
        outcome = await desk(model, [world.book()]).run("go")
        assert outcome.completed
        assert len(world.entered) == 1
        assert (
            model.requests[1].messages == model.requests[2].messages == model.requests[3].messages
        )

    run_virtual(main())


def test_a_run_whose_model_failed_for_good_goes_on_without_running_a_finished_call() -> None:
    """E7, J3: resume asks the model again, and only that."""

    async def main() -> None:
        world = World()
        remit = desk([[BOOK_A], rm.ModelRejected("wrong key"), "done"], [world.book()])
        outcome = await remit.run("go")
        assert outcome.reason is Reason.MODEL_FAILED
        outcome = await remit.resume(outcome.run_id)
        assert outcome.completed
        assert len(world.entered) == 1

    run_virtual(main())


def test_what_was_started_when_the_run_was_handed_over_runs_again_under_its_key() -> None:
    """E1, E3, case 34: detached in the middle; idempotent goes again, finished calls do not."""

    async def main() -> None:
        world, quick = World(5), World()
        remit = desk([[("look", {"what": "a"}), BOOK_A], "done"], [quick.look(), world.book()])
        async with remit.stream("go") as live:
            await asyncio.sleep(1)
            left = await live.detach()
        assert left.reason is Reason.WAITING
        world.seconds = 0
        outcome = await remit.resume(left.run_id)
        assert statuses(outcome) == ["ok", "ok"]
        assert len(world.entered) == 2
        assert len(set(world.entered)) == 1
        assert len(quick.done) == 1

    run_virtual(main())


def test_a_confirmed_call_in_doubt_is_not_entered_again() -> None:
    """E1, E3: reconcile is asked, and without an answer the model is told "outcome unknown"."""

    async def main() -> None:
        world = World(5)
        remit = desk([[PAY_A], "done"], [world.pay()])
        outcome = await remit.run("go", run_id="r")
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        async with remit.stream("go", run_id="r") as live:
            await asyncio.sleep(1)
            await live.detach()
        outcome = await remit.resume("r")
        assert statuses(outcome) == ["unknown"]
        assert len(world.entered) == 1

    run_virtual(main())


# --- E8: starting twice --------------------------------------------------------------------------


def test_starting_twice_attaches_to_the_live_run_and_returns_the_stored_outcome() -> None:
    """E8: one run, one effect, one outcome, however often it is started."""

    async def main() -> None:
        world = World(1)
        remit = desk([[BOOK_A], "done"], [world.book()])
        first, second, third = await asyncio.gather(
            *(remit.run("go", run_id="r") for _ in range(3))
        )
        assert first.transcript == second.transcript == third.transcript
        fourth = await remit.run("go", run_id="r")
        assert fourth.transcript == first.transcript
        assert (fourth.reason, fourth.text, fourth.spend) == (first.reason, "done", first.spend)
        assert (len(world.entered), model_of(remit).asked) == (1, 2)

    run_virtual(main())


def test_starting_again_resumes_a_run_that_nobody_executes() -> None:
    """E8: waiting and decided, or handed over."""

    async def main() -> None:
        world = World()
        remit = desk([[PAY_A], "done"], [world.pay()])
        waiting = await remit.run("go", run_id="r")
        assert (await remit.run("go", run_id="r")).pending == waiting.pending
        await remit.decide(waiting.pending[0].token, approve=True, by="dana")
        assert (await remit.run("go", run_id="r")).completed
        assert len(world.entered) == 1

    run_virtual(main())


def test_an_id_stands_for_one_prompt_and_one_remit() -> None:
    """E8: anything else under it is refused before anything is sent, live or ended."""

    async def main() -> None:
        world = World(1)
        store = rm.MemoryStore()
        remit = desk([[BOOK_A], "done"], [world.book()], store=store)
        other = desk(["never"], store=store, name="other")
        live = asyncio.create_task(remit.run("go", run_id="r"))
        await asyncio.sleep(0.5)
        for _ in range(2):
            with pytest.raises(rm.ConfigurationError):
                await remit.run("stop", run_id="r")
            with pytest.raises(rm.ConfigurationError):
                await other.run("go", run_id="r")
            with pytest.raises(rm.ConfigurationError):
                await other.resume("r")
            await live
        assert model_of(other).asked == 0
        started = [row for row in await rows(remit, "r") if isinstance(row, Started)]
        assert len(started) == 1

    run_virtual(main())
