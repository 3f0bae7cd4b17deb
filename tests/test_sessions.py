"""Conversations that a store keeps: one run at a time, each going on from the one before it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit as remit_package
from loop_rig import LIMITS, desk, model_of, results, rows
from remit import (
    Call,
    ConfigurationError,
    JournalError,
    Limits,
    Media,
    Message,
    Outcome,
    Reason,
    Remit,
    RunBusy,
    SessionBusy,
    Text,
    ToolUse,
    Transcript,
    tool,
)
from remit.analysis.story import read_story
from remit.messages import Status
from remit.models.scripted import DEMO_PROFILE, ScriptedModel, Step
from remit.rows import Opened
from remit.state import RunState
from remit.store.base import Journal, NewRun, NotNext, RunRows
from remit.store.memory import MemoryStore
from remit.store.recent import forget
from remit.store.sqlite import SqliteStore
from remit.testing import CrashStore, SessionConformance, crash_points, prefix_of, run_virtual

T = TypeVar("T")

HERE = str(Path(remit_package.__file__).parent.parent)
"""Where the package is that is tested here."""
TIGHT = Limits(steps=1, tokens=20_000_000, seconds=3_600)


@dataclass
class Place:
    """A store, and the event loop on which it is used."""

    store: Journal
    run: Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield Place(MemoryStore(), run_virtual)
        return
    store = SqliteStore(tmp_path / "runs.db")
    yield Place(store, asyncio.run)
    store.close()


@tool(effect="read")
async def look(x: str) -> str:
    """Looks."""
    await asyncio.sleep(0)
    return f"saw {x}"


@tool(effect="confirm")
async def pay(x: str) -> str:
    """Pays."""
    return f"paid {x}"


@tool(effect="read")
async def dump() -> str:
    """Returns more than a result shows."""
    return "line of the dump\n" * 5_000


def echo(transcript: Transcript, _: Any) -> Any:
    """Looks once at what was said last, then says so."""
    last = transcript[-1]
    return f"done with {last.tool_results[0].text}" if last.tool_results else call(last.text)


def call(x: str) -> Any:
    return ("look", {"x": x})


def clerk(store: Journal, script: Any = echo, **options: Any) -> Remit[Any]:
    return desk(script, options.pop("tools", [look, pay, dump]), store=store, **options)


def asked(transcript: Transcript) -> list[str]:
    """What the user said, in order."""
    return [
        message.text
        for message in transcript
        if message.role == "user" and not message.tool_results
    ]


def is_serial(transcript: Transcript) -> bool:
    """Every prompt is followed by its own turn of the script, and nothing else stands between."""
    turns = [transcript[at : at + 4] for at in range(0, len(transcript), 4)]
    return all(
        len(turn) == 4
        and turn[1].tool_uses[0].parsed() == {"x": turn[0].text}
        and turn[2].tool_results[0].text == f"saw {turn[0].text}"
        and turn[3].text == f"done with saw {turn[0].text}"
        for turn in turns
    )


class TestSessionsInMemory(SessionConformance):
    """case 28: one run at a time, as the store keeps it."""

    def make_journal(self) -> Journal:
        return MemoryStore()


class TestSessionsOverTime(SessionConformance):
    """case 28: the same where every transaction takes its time."""

    def make_journal(self) -> Journal:
        return CrashStore(latency=0.1)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_virtual(main)


class TestSessionsInFiles(SessionConformance):
    """case 28: the same in SQLite."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self._path, self._stores = tmp_path, list[SqliteStore]()
        yield
        for store in self._stores:
            store.close()

    def make_journal(self) -> Journal:
        store = SqliteStore(self._path / f"{len(self._stores)}.db")
        self._stores.append(store)
        return store


def test_the_stores_keep_one_run_at_a_time(tmp_path: Path) -> None:
    """case 28: what the shared suite says, under the promise that rests on it."""
    files = TestSessionsInFiles()
    files._path, files._stores = tmp_path, []
    for suite in (TestSessionsInMemory(), files):
        suite.test_a_run_that_has_not_ended_is_not_followed()
        suite.test_a_run_whose_lease_is_held_is_not_followed_though_it_has_ended()
        suite.test_a_run_that_was_taken_up_again_is_another_than_was_read()
        suite.test_a_run_that_was_followed_is_not_acquired_any_more()
        suite.test_of_many_that_would_be_next_at_once_one_is()
    for store in files._stores:
        store.close()


# --- one conversation ----------------------------------------------------------------------------


def test_a_run_goes_on_from_the_newest_run_of_its_session(place: Place) -> None:
    """case 28, X1: what was sent for the one is the beginning of what is sent for the next; others know nothing of it."""

    async def main() -> None:
        remit = clerk(place.store)
        first = await remit.run("a", session="s")
        second = await remit.run("b", session="s")
        other = await remit.run("c", session="t")
        third = await remit.run("d", session="s")
        assert asked(third.transcript) == ["a", "b", "d"]
        assert (asked(other.transcript), other.session) == (["c"], "t")
        assert third.transcript[: len(second.transcript)] == second.transcript[:]
        assert second.transcript[: len(first.transcript)] == first.transcript[:]
        assert is_serial(third.transcript)
        requests = [r.messages for r in model_of(remit).requests if r.messages[0].text == "a"]
        assert len(requests) == 6
        for one, next_one in pairwise(requests):
            assert prefix_of(one, next_one)
        assert await remit.outcome(third.run_id) == third
        assert await remit.resume(second.run_id) == second

    place.run(main())


def test_a_conversation_is_stored_once(place: Place) -> None:
    """J1: the bytes of a run do not grow with what was said before it."""

    async def main() -> None:
        remit = clerk(place.store)
        outcomes = [await remit.run("the same " * 200, session="s") for _ in range(12)]
        stored = [await place.store.read(outcome.run_id) for outcome in outcomes]
        sizes = [sum(len(row.body) for row in each) for each in stored]
        assert len(outcomes[-1].transcript) == 48
        assert max(sizes[1:]) - min(sizes[1:]) < 200, sizes
        assert sizes[-1] - sizes[0] < 200, "and the first has nothing before it"

    place.run(main())


def test_a_long_conversation_is_read_at_the_cost_of_what_it_holds() -> None:
    """J1: every run of a session is read once, however many follow on one another."""

    class Counting(MemoryStore):
        reads = 0

        async def read(self, run_id: str, after: int = -1) -> Any:
            self.reads += 1
            return await super().read(run_id, after)

        async def read_back(self, run_id: str, known: Any) -> Any:
            found = await super().read_back(run_id, known)
            self.reads += sum(bool(run.rows) for run in found)
            return found

    async def main() -> None:
        store = Counting()
        remit = clerk(store, lambda _t, _r: "yes")
        outcome = await remit.run("0", session="s")
        for n in range(1, 400):
            store.reads = 0
            outcome = await remit.run(str(n), session="s")
            assert store.reads == 2, "the run before it, and its own first row"
        assert asked(outcome.transcript) == [str(n) for n in range(400)]
        store.reads = 0
        forget(store)
        assert await remit.outcome(outcome.run_id) == outcome
        assert store.reads == 400

    run_virtual(main())


def test_ids_are_unique_over_all_runs_of_a_session(place: Place) -> None:
    """T3: a model that begins to count anew with every run is renamed, the same way after a restart."""

    def says(transcript: Transcript, _: Any) -> Any:
        if transcript[-1].tool_results:
            return "done"
        return Message("assistant", (ToolUse("call_0", "look", '{"x":"a"}'),))

    async def main() -> None:
        remit = clerk(place.store, says)
        [*_, outcome] = [await remit.run("go", session="s") for _ in range(3)]
        ids = [result.tool_use_id for result in results(outcome)]
        assert len(set(ids)) == 3
        assert ids[0] == "call_0"
        assert await remit.outcome(outcome.run_id) == outcome

    place.run(main())


def test_a_doubt_of_an_earlier_run_is_resolved_by_the_repeat_in_a_later_one(place: Place) -> None:
    """E4: the next equal call of the conversation runs under the key of the one whose outcome is unknown."""
    keys: list[str] = []

    @tool(effect="idempotent", resource=(), timeout=0.1)
    async def ship(call: Call[Any]) -> str:
        """Ships."""
        keys.append(call.key)
        if len(keys) == 1:
            raise TimeoutError
        return "shipped"

    def says(transcript: Transcript, _: Any) -> Any:
        return "done" if transcript[-1].tool_results else ("ship", {})

    async def slow(call: Call[Any]) -> None:
        await asyncio.sleep(10)

    @tool(effect="idempotent", resource=(), timeout=0.1, name="ship")
    async def hang(call: Call[Any]) -> str:
        """Ships."""
        keys.append(call.key)
        await slow(call)
        return "shipped"

    async def main() -> None:
        first = await clerk(place.store, says, tools=[hang]).run("go", session="s")
        assert results(first)[0].status is Status.UNKNOWN
        keys.append("between")
        again = await clerk(place.store, says, tools=[ship]).run("again", session="s")
        third = await clerk(place.store, says, tools=[ship]).run("more", session="s")
        assert results(again)[-1].status is Status.OK
        assert results(third)[-1].status is Status.OK
        before, _, repeat, new = keys
        assert before == repeat != new
        assert not again.transcript.doubts

    place.run(main())


def test_what_was_too_long_to_show_can_be_read_in_every_later_run(place: Place) -> None:
    """X2: a handle is good for the whole conversation, and for nobody else."""

    def says(transcript: Transcript, _: Any) -> Any:
        last = transcript[-1]
        if last.tool_results:
            return "done"
        if last.text == "dump":
            return ("dump", {})
        handle = results(transcript)[0].artifacts[0]
        return ("read_artifact", {"handle": handle, "offset": 70_000, "length": 100})

    async def main() -> None:
        remit = clerk(place.store, says)
        await remit.run("dump", session="s")
        await remit.run("page", session="s")
        third = await remit.run("page", session="s")
        assert [result.status for result in results(third)] == [Status.OK] * 3
        handle = results(third)[0].artifacts[0]
        whole = await remit.artifact(handle, run_id=third.run_id)
        assert len(whole.data) == 85_000
        other = await remit.run("x", session="t", model=ScriptedModel(["hello"]))
        with pytest.raises(ConfigurationError):
            await remit.artifact(handle, run_id=other.run_id)

    place.run(main())


def test_what_the_next_model_does_not_read_is_put_into_words_once(place: Place) -> None:
    """X3: pictures give way to notes where a model goes on that does not read them, and stay notes in the session."""

    @tool(effect="read")
    async def picture() -> Media:
        """Draws."""
        return Media("image/png", b"\x89PNG" + bytes(500))

    def says(transcript: Transcript, _: Any) -> Any:
        return "done" if results(transcript) else ("picture", {})

    async def main() -> None:
        seeing, blind = [
            ScriptedModel(says, profile=replace(DEMO_PROFILE, media=media))
            for media in (("image/png",), ())
        ]
        remit = clerk(place.store, tools=[picture])
        first = await remit.run("draw", session="s", model=seeing)
        assert isinstance(results(first)[0].content[-1], Media)
        firsts: list[Opened] = []
        for _ in range(2):
            outcome = await remit.run("and?", session="s", model=blind)
            assert not [b for r in results(outcome) for b in r.content if isinstance(b, Media)]
            opened = (await rows(remit, outcome.run_id))[0]
            assert isinstance(opened, Opened)
            firsts.append(opened)
            assert await remit.outcome(outcome.run_id) == outcome
        assert [(bool(each.history), bool(each.after)) for each in firsts] == [
            (True, False),
            (False, True),
        ]

    place.run(main())


def test_a_conversation_goes_from_one_remit_to_another(place: Place) -> None:
    """case 28: a session is the store's, and no remit's own."""

    async def main() -> None:
        await clerk(place.store).run("a", session="s")
        other = clerk(place.store, name="specialist")
        outcome = await other.run("b", session="s", run_id="theirs")
        assert asked(outcome.transcript) == ["a", "b"]
        with pytest.raises(ConfigurationError, match="specialist"):
            await clerk(place.store).resume("theirs")

    place.run(main())


def test_rows_of_a_session_say_nothing_without_those_before_them(place: Place) -> None:
    """J1, J2: a run whose beginning is not at hand is never read as one that begins there."""

    async def main() -> None:
        remit = clerk(place.store)
        await remit.run("a", session="s", run_id="one")
        second = await remit.run("b", session="s", run_id="two")
        with pytest.raises(JournalError, match="'one'"):
            RunState("two", await rows(remit, "two"))
        state = RunState("two", await rows(remit, "two"), (await remit.outcome("one")).transcript)
        assert state.transcript == second.transcript

    place.run(main())


def test_a_run_of_a_session_is_told_by_its_own_rows(place: Place) -> None:
    """J1: whoever looks at one run of many reads that one, though it made room among the results of earlier ones."""

    @tool(effect="read")
    async def fetch(x: str) -> str:
        """Fetches much."""
        return f"{x} " * 4_000

    def says(transcript: Transcript, _: Any) -> Any:
        last = transcript[-1]
        return "done" if last.tool_results else ("fetch", {"x": last.text})

    async def main() -> None:
        narrow = replace(DEMO_PROFILE, context_window=14_000, max_output=1_000)
        remit = clerk(place.store, ScriptedModel(says, profile=narrow), tools=[fetch])
        outcomes = [await remit.run(f"p{n}", session="s") for n in range(12)]
        assert sum(outcome.prefix_breaks.get("elision", 0) for outcome in outcomes[1:])
        for n, outcome in enumerate(outcomes):
            assert await remit.outcome(outcome.run_id) == outcome
            for whole in (True, False):
                story = await read_story(place.store, outcome.run_id, whole=whole)
                assert [len(step.calls) for step in story.steps] == [1, 0]
                assert story.state.text == "done"
                assert story.state.opened.prompt == (Text(f"p{n}"),)

    place.run(main())


# --- one writer ----------------------------------------------------------------------------------


def test_a_session_that_a_run_is_at_refuses_another_and_names_it(place: Place) -> None:
    """case 28: nothing of the second run is stored, and nothing of it is sent."""

    async def main() -> None:
        remit = clerk(place.store)
        async with remit.stream("a", session="s", run_id="one") as live:
            with pytest.raises(SessionBusy, match=r"'one'.*session_wait") as caught:
                await remit.run("b", session="s", run_id="two")
            assert await remit.run("c", session="t")
        assert (caught.value.session, caught.value.run_id) == ("s", "one")
        assert caught.value.status == "running"
        assert caught.value.owner is not None
        assert await place.store.info("two") is None
        assert live.outcome.reason is Reason.COMPLETED
        after = await remit.run("b", session="s", run_id="two")
        assert asked(after.transcript) == ["a", "b"]

    place.run(main())


def test_a_waiting_run_holds_its_session_and_the_refusal_says_what_it_waits_for(
    place: Place,
) -> None:
    """case 28, E6: whoever is refused knows what to decide; then the session goes on from the true result."""

    def says(transcript: Transcript, _: Any) -> Any:
        return "done" if transcript[-1].tool_results else ("pay", {"x": "a"})

    async def main() -> None:
        remit = clerk(place.store, says)
        waiting = await remit.run("pay", session="s", run_id="one")
        [pending] = waiting.pending
        with pytest.raises(SessionBusy, match=pending.id) as caught:
            await remit.run("b", session="s")
        assert (caught.value.status, caught.value.pendings) == ("waiting", (pending.id,))
        await remit.decide(pending.token, approve=True, by="dana")
        await remit.resume("one")
        outcome = await remit.run("b", session="s", model=ScriptedModel(["ok"]))
        assert [result.text for result in results(outcome)] == ["paid a"]

    place.run(main())


def test_a_run_that_was_broken_off_holds_its_session_until_it_is_resumed_or_cancelled(
    place: Place,
) -> None:
    """case 28, J3: nothing goes on from half a turn."""

    async def main() -> None:
        remit = clerk(place.store, tools=[look])
        async with remit.stream("a", session="s", run_id="one") as live:
            await live.detach()
        with pytest.raises(SessionBusy, match="resume it, or cancel it") as caught:
            await remit.run("b", session="s")
        assert (caught.value.status, caught.value.owner) == ("broken_off", None)
        await remit.cancel("one")
        outcome = await remit.run("b", session="s")
        assert asked(outcome.transcript) == ["a", "b"]

    place.run(main())


def test_who_waits_for_a_session_gets_it_when_it_is_free() -> None:
    """case 28: the second run goes on from the first, whenever that ends."""

    async def main() -> None:
        remit = clerk(MemoryStore(), ScriptedModel(echo, record=True, latency=20))
        async with asyncio.TaskGroup() as group:
            first = group.create_task(remit.run("a", session="s"))
            await asyncio.sleep(1)
            second = group.create_task(remit.run("b", session="s", session_wait=60))
        assert asked(first.result().transcript) == ["a"]
        assert asked(second.result().transcript) == ["a", "b"]
        assert is_serial(second.result().transcript)
        assert asyncio.get_running_loop().time() < 82, "it noticed soon after the end"

    run_virtual(main())


def test_who_waits_for_a_session_waits_no_longer_than_was_said() -> None:
    """case 28: the wait is counted from the start, however often somebody else was first."""

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        remit = clerk(MemoryStore(), ScriptedModel(echo, latency=1_000))
        holder = asyncio.create_task(remit.run("a", session="s"))
        await asyncio.sleep(1)
        for wait in (0, 0.5, 7.25):
            begun = clock()
            with pytest.raises(SessionBusy):
                await remit.run("b", session="s", session_wait=wait)
            assert clock() - begun == pytest.approx(wait)
        holder.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holder
        begun = clock()
        await remit.run("b", session="s", session_wait=50, model=ScriptedModel(echo))
        assert clock() - begun < 1

    run_virtual(main())


@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 2)), min_size=2, max_size=8),
    st.booleans(),
)
def test_however_many_run_at_once_the_history_is_that_of_one_after_the_other(
    plans: list[tuple[float, float]], waits: bool
) -> None:
    """case 28, T1: of any number of concurrent runs each is whole in the transcript, or refused and not there at all."""

    async def main() -> None:
        remit = clerk(CrashStore(latency=0.01))

        async def one(n: int) -> Outcome[Any] | None:
            delay, latency = plans[n]
            await asyncio.sleep(delay)
            model = ScriptedModel(echo, latency=latency)
            try:
                return await remit.run(
                    f"p{n}", session="s", session_wait=600 if waits else None, model=model
                )
            except SessionBusy:
                return None

        outcomes = await asyncio.gather(*[one(n) for n in range(len(plans))])
        done = [outcome for outcome in outcomes if outcome is not None]
        last = max(done, key=lambda outcome: len(outcome.transcript))
        assert is_serial(last.transcript)
        prompts = [f"p{n}" for n, outcome in enumerate(outcomes) if outcome is not None]
        assert sorted(asked(last.transcript)) == sorted(prompts)
        assert len(done) == len(plans) or not waits
        for outcome in done:
            assert outcome.transcript[:] == last.transcript[: len(outcome.transcript)]

    run_virtual(main())


ACTS = ("run", "cancelled", "detached", "limited", "more", "more", "reopen", "cancel", "again")


@given(
    st.lists(
        st.tuples(st.sampled_from(ACTS), st.floats(0, 9), st.floats(0, 2)), min_size=4, max_size=16
    )
)
def test_whatever_many_do_to_a_session_it_has_one_history(
    plan: list[tuple[str, float, float]],
) -> None:
    """case 28, T1, T2: cancelled, detached, cut by a limit, taken up again or refused, no run is followed by two."""

    async def main() -> None:
        store = CrashStore(latency=0.01)
        begun: list[str] = []
        told: list[Outcome[Any]] = []

        async def act(n: int, what: str, delay: float, seconds: float) -> None:
            await asyncio.sleep(delay)
            remit = clerk(store, ScriptedModel(echo, latency=seconds / 3))
            target = begun[n % len(begun)] if begun else "none"
            try:
                match what:
                    case "more":
                        told.append(await remit.resume(target, limits=LIMITS))
                    case "reopen":
                        told.append(await remit.resume(target, reopen=True))
                    case "cancel":
                        told.append(await remit.cancel(target))
                    case "again":
                        told.append(await remit.run(f"p{target}", session="s", run_id=target))
                    case _:
                        limits = TIGHT if what == "limited" else None
                        async with remit.stream(
                            f"p{n}", session="s", session_wait=seconds, run_id=str(n), limits=limits
                        ) as live:
                            begun.append(str(n))
                            await asyncio.sleep(seconds / 2)
                            if what == "cancelled":
                                await live.cancel()
                            elif what == "detached":
                                await live.detach()
                        told.append(live.outcome)
            except (SessionBusy, RunBusy, ConfigurationError):
                pass

        acts = [("limited", 0.0, 1.0), ("cancelled", 2.0, 1.0), *plan]
        await asyncio.gather(*[act(n, *each) for n, each in enumerate(acts)])
        remit = clerk(store)
        for run_id in begun:
            await remit.cancel(run_id)  # what was detached is closed, too
        whole = await remit.run("the last", session="s", run_id="last")
        followed: dict[str, str] = {}
        for run_id in (*begun, "last"):
            opened = (await rows(remit, run_id))[0]
            assert isinstance(opened, Opened)
            transcript = (await remit.outcome(run_id)).transcript
            assert transcript[:] == whole.transcript[: len(transcript)]
            assert opened.after not in followed, "nobody else goes on from there"
            followed[str(opened.after)] = run_id
        for outcome in told:  # a run that waits shows what no model has seen
            said = outcome.transcript[:]
            assert outcome.reason is Reason.WAITING or said == whole.transcript[: len(said)]
        assert len(followed) == len(begun) + 1, "and each of them is in it"

    run_virtual(main())


# --- starting again ------------------------------------------------------------------------------


def test_the_same_start_again_is_the_same_run_however_far_the_session_has_gone(
    place: Place,
) -> None:
    """E8: an id finds its run before anybody asks whether the session is free."""

    async def main() -> None:
        remit = clerk(place.store)
        first = await remit.run("a", session="s", run_id="one")
        await remit.run("b", session="s", run_id="two")
        assert await remit.run("a", session="s", run_id="one") == first
        async with remit.stream("c", session="s", run_id="three") as live:
            assert await remit.run("a", session="s", run_id="one") == first
            attached = await remit.run("c", session="s", run_id="three")
        assert attached == live.outcome
        assert asked(attached.transcript) == ["a", "b", "c"]

    place.run(main())


@pytest.mark.parametrize(("first", "second"), [("s", "t"), ("s", None), (None, "s")])
def test_an_id_of_one_session_is_refused_in_another(
    place: Place, first: str | None, second: str | None
) -> None:
    """E8: the session is a part of what was asked for."""

    async def main() -> None:
        remit = clerk(place.store)
        await remit.run("a", session=first, run_id="one")
        with pytest.raises(ConfigurationError, match="session"):
            await remit.run("a", session=second, run_id="one")

    place.run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"session": "s", "history": Transcript()},
        {"session": ""},
        {"session": 7},
        {"session_wait": 3},
        {"session": "s", "session_wait": -1},
        {"session": "s", "session_wait": float("nan")},
        {"session": "s", "session_wait": float("inf")},
        {"session": "s", "session_wait": 10**400},
        {"session": "s", "session_wait": True},
    ],
    ids=lambda wrong: str(wrong)[:60],
)
def test_a_wrong_session_is_refused_before_anything_is_stored(wrong: dict[str, Any]) -> None:
    """case 28: `history` with `session` is no conversation, and a wait has an end."""

    async def main() -> None:
        remit = clerk(MemoryStore())
        with pytest.raises(ConfigurationError, match="session"):
            await remit.run("a", run_id="one", **wrong)
        assert await remit.store.info("one") is None

    run_virtual(main())


class Stale(MemoryStore):
    """Gives of every run what it had when it was created, under a head that never changes."""

    async def read_back(self, run_id: str, known: Mapping[str, bytes]) -> Sequence[RunRows]:
        del known
        return [RunRows(run_id, b"same", (await self.read(run_id))[:1])]


class Forgetting(MemoryStore):
    """Says of every session that it has no run, whoever asks."""

    async def create(self, run: NewRun) -> bool | NotNext:
        found = await super().create(run)
        return found if isinstance(found, bool) else NotNext(None)


class Emptied(MemoryStore):
    """Gives of every run no rows, though nobody knows it."""

    async def read_back(self, run_id: str, known: Mapping[str, bytes]) -> Sequence[RunRows]:
        return [RunRows(run.run_id, run.head, ()) for run in await super().read_back(run_id, known)]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Stale, r"'s' cannot be gone on from: .* 'a' with 2 rows, gives 'a' with 1 rows to read"),
        (Forgetting, r"'s' cannot be gone on from: .* is none, gives none to read"),
        (Emptied, "'a' cannot be read back: it has no rows"),
    ],
)
def test_a_store_that_contradicts_itself_is_told_of_and_not_asked_for_ever(
    kind: type[MemoryStore], says: str
) -> None:
    """case 28: a damaged store, or one that was written wrong, holds up no event loop."""

    async def main() -> None:
        remit = clerk(kind())
        await remit.run("a", session="s", run_id="a")
        rows = len(await remit.store.read("a"))
        with pytest.raises(JournalError, match=says.replace("2 rows", f"{rows} rows")):
            await remit.run("b", session="s", run_id="b")
        assert await remit.store.info("b") is None

    run_virtual(main())


# --- no forks ------------------------------------------------------------------------------------


def test_a_run_that_the_session_has_gone_on_from_stays_as_it_ended(place: Place) -> None:
    """case 28, J3: to reopen it would leave the session with two histories."""

    async def main() -> None:
        remit = clerk(place.store)
        limited = await remit.run("a", session="s", limits=TIGHT, run_id="limited")
        assert limited.reason is Reason.STEP_BUDGET
        async with remit.stream("b", session="s", run_id="cancelled") as live:
            await live.cancel()
        await remit.run("c", session="s", run_id="newest")
        before = [len(await rows(remit, name)) for name in ("limited", "cancelled")]
        with pytest.raises(ConfigurationError, match="'cancelled'"):
            await remit.resume("limited", limits=LIMITS)
        with pytest.raises(ConfigurationError, match="new run of the session"):
            await remit.resume("cancelled", reopen=True)
        assert await remit.resume("limited") == limited
        assert (await remit.resume("cancelled")).reason is Reason.CANCELLED
        assert [len(await rows(remit, name)) for name in ("limited", "cancelled")] == before
        info = await place.store.info("limited")
        assert info is not None
        assert info.owner is None

    place.run(main())


def test_a_failed_run_that_the_session_has_gone_on_from_gives_its_stored_outcome(
    place: Place,
) -> None:
    """J3, E8: what a resume would take up by itself is left alone once somebody went on."""

    async def main() -> None:
        broken = clerk(place.store, [Step(error=ValueError("no"))])
        failed = await broken.run("a", session="s", run_id="one")
        assert failed.reason in {Reason.MODEL_FAILED, Reason.INTERNAL_ERROR}
        remit = clerk(place.store)
        await remit.run("b", session="s")
        assert await remit.resume("one") == failed
        assert await remit.run("a", session="s", run_id="one") == failed

    place.run(main())


def test_the_newest_run_can_be_taken_up_again_and_holds_the_session_meanwhile(
    place: Place,
) -> None:
    """case 28, L1: new totals let it go on, and the next run goes on from where it then ends."""
    at_it, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="read", eager=False)
    async def hold() -> str:
        """Waits."""
        at_it.set()
        await go_on.wait()
        return "held"

    def says(transcript: Transcript, _: Any) -> Any:
        calls = len(results(transcript))
        return [("look", {"x": "a"}), ("hold", {}), "done"][min(calls, 2)]

    async def main() -> None:
        remit = clerk(place.store, says, tools=[look, hold], hand_back=False)
        await remit.run("a", session="s", limits=TIGHT, run_id="one")
        resumed = asyncio.create_task(remit.resume("one", limits=LIMITS))
        await at_it.wait()
        with pytest.raises(SessionBusy) as caught:
            await remit.run("b", session="s")
        assert (caught.value.run_id, caught.value.status) == ("one", "running")
        go_on.set()
        outcome = await resumed
        after = await remit.run("c", session="s")
        assert after.transcript[: len(outcome.transcript)] == outcome.transcript[:]
        assert asked(after.transcript) == ["a", "c"]

    place.run(main())


# --- inside a call -------------------------------------------------------------------------------


def test_a_run_inside_a_call_may_have_a_session_but_not_that_of_a_run_around(place: Place) -> None:
    """case 28, K3: what would wait for itself is refused at once, however long it was to wait."""
    told: list[str] = []

    async def main() -> None:
        inner = clerk(place.store, lambda _t, _r: "yes")

        @tool(effect="read", eager=False, timeout=50)
        async def ask(session: str) -> str:
            """Asks another."""
            try:
                outcome = await inner.run("hello", session=session, session_wait=40)
            except ConfigurationError as error:
                told.append(str(error))
                return "refused"
            return f"{len(outcome.transcript)} messages"

        def says(transcript: Transcript, _: Any) -> Any:
            if transcript[-1].tool_results:
                return "done"
            return [("ask", {"session": "outer"}), ("ask", {"session": "inner"})]

        outer = clerk(place.store, says, tools=[ask])
        began = asyncio.get_running_loop().time()
        for n in (1, 2):
            outcome = await outer.run("go", session="outer")
            assert [result.text for result in results(outcome)[-2:]] == [
                "refused",
                f"{2 * n} messages",
            ]
        assert len(told) == 2
        assert "wait for itself" in told[0]
        assert asyncio.get_running_loop().time() - began < 30

    place.run(main())


def test_what_a_run_inside_a_call_kept_can_be_read_in_the_next_of_its_session(place: Place) -> None:
    """X2: a session goes from call to call, and its handles with it."""

    def pages(transcript: Transcript, _: Any) -> Any:
        if transcript[-1].tool_results:
            return "done"
        if not results(transcript):
            return ("dump", {})
        handle = results(transcript)[0].artifacts[0]
        return ("read_artifact", {"handle": handle, "offset": 70_000, "length": 100})

    async def main() -> None:
        inner = clerk(place.store, pages)
        seen: list[Outcome[Any]] = []

        @tool(effect="read", eager=False)
        async def ask() -> str:
            """Asks another."""
            seen.append(await inner.run("go", session="inner"))
            return "asked"

        def says(transcript: Transcript, _: Any) -> Any:
            return "done" if transcript[-1].tool_results else ("ask", {})

        outer = clerk(place.store, says, tools=[ask])
        await outer.run("go")
        await outer.run("go")
        seen.append(await inner.run("go", session="inner"))
        statuses = [[result.status for result in results(each)] for each in seen]
        assert statuses == [[Status.OK] * n for n in (1, 2, 3)]

    place.run(main())


def test_who_holds_what_of_a_conversation_is_stored_once(tmp_path: Path) -> None:
    """J1: the artifacts of a session are not entered anew for every run of it."""

    def says(transcript: Transcript, _: Any) -> Any:
        return "done" if transcript[-1].tool_results else ("dump_of", {"n": len(transcript)})

    @tool(effect="read")
    async def dump_of(n: int) -> str:
        """Returns more than a result shows."""
        return f"line {n} of the dump\n" * 5_000

    async def main(store: SqliteStore) -> None:
        remit = clerk(store, says, tools=[dump_of])
        for _ in range(6):
            await remit.run("go", session="s")

    store = SqliteStore(tmp_path / "runs.db")
    asyncio.run(main(store))
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        (held,) = connection.execute("select count(*) from remit_holding").fetchone()
    assert held == 6


# --- what is kept --------------------------------------------------------------------------------


def test_the_runs_of_a_session_are_dropped_together() -> None:
    """J1: in memory a conversation is forgotten as a whole, oldest first, never the beginning of one that is kept."""

    async def main() -> None:
        store = MemoryStore(keep_ended_bytes=60_000)
        remit = clerk(store, lambda _t, _r: "yes")
        for n in range(3):
            await remit.run("old " * 1_000, session="old", run_id=f"old{n}")
        seen: list[int] = []
        for n in range(12):
            await remit.run("new " * 1_000, session="new", run_id=f"new{n}")
            seen.append(sum([await store.info(f"old{m}") is not None for m in range(3)]))
        assert sorted(set(seen)) == [0, 3], "all or none"
        newest = await remit.outcome("new11")
        assert len(asked(newest.transcript)) == 12, "what goes on is kept, however long"
        await remit.run("other " * 10_000)
        again = await remit.run("new", session="new")
        assert asked(again.transcript) == ["new"], "and once forgotten it begins anew"

    run_virtual(main())


# --- crashes -------------------------------------------------------------------------------------


def test_a_crash_at_any_point_leaves_a_session_that_goes_on() -> None:
    """case 28, E8, T2: after every commit of a run, whoever starts it again and then the next ends with both in order."""

    async def scenario(store: CrashStore) -> None:
        remit = clerk(store)
        await remit.run("a", session="s", run_id="one")
        await remit.run("b", session="s", run_id="two")

    points = 0
    for point in crash_points(scenario):
        points += 1

        async def goes_on(store: MemoryStore = point.store) -> None:
            remit = clerk(store)
            await remit.run("a", session="s", run_id="one")
            await remit.run("b", session="s", run_id="two")
            last = await remit.run("c", session="s")
            assert asked(last.transcript) == ["a", "b", "c"]
            assert is_serial(last.transcript)

        run_virtual(goes_on())
    assert points > 8


def test_a_crash_while_one_waits_for_the_other_leaves_both_in_some_order() -> None:
    """case 28, E8, T1: whoever starts both again gets both, each whole, with nothing of either run twice."""

    async def both(remit: Remit[Any]) -> list[Outcome[Any]]:
        return await asyncio.gather(
            *[remit.run(each, session="s", session_wait=600, run_id=each) for each in "ab"]
        )

    async def scenario(store: CrashStore) -> None:
        await both(clerk(store, ScriptedModel(echo, latency=1)))

    points = 0
    for point in crash_points(scenario, latency=0.01):
        points += 1

        async def goes_on(store: MemoryStore = point.store) -> None:
            outcomes = await both(clerk(store))
            longest = max([outcome.transcript for outcome in outcomes], key=len)
            assert is_serial(longest)
            assert sorted(asked(longest)) == ["a", "b"]

        run_virtual(goes_on())
    assert points > 12


def test_a_run_that_is_cancelled_before_its_first_step_frees_its_session() -> None:
    """K1, case 28: whoever gives up while a run is created leaves nothing behind that holds the session."""

    class Slow(MemoryStore):
        async def acquire(self, run_id: str, owner: str) -> Any:
            await asyncio.sleep(0.1)
            return await super().acquire(run_id, owner)

        async def read(self, run_id: str, after: int = -1) -> Any:
            await asyncio.sleep(0.1)
            return await super().read(run_id, after)

        async def read_back(self, run_id: str, known: Any) -> Any:
            await asyncio.sleep(0.1)
            return await super().read_back(run_id, known)

    async def main() -> None:
        ends: set[tuple[str, ...]] = set()
        for turns in range(12):
            remit = clerk(Slow())
            await remit.run("a", session="s")
            task = asyncio.create_task(remit.run("b", session="s"))
            await asyncio.sleep(0.05 * turns)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            after = await remit.run("c", session="s")
            ends.add(tuple(asked(after.transcript)))
        assert ends == {("a", "c"), ("a", "b", "c")}

    run_virtual(main())


# --- processes -----------------------------------------------------------------------------------

APP = '''
import asyncio, os, sys, time
from remit import Limits, Remit, SessionBusy, tool
from remit.testing import ScriptedModel

@tool(effect="idempotent", resource=())
async def look(x: str) -> str:
    """Looks."""
    if x == sys.argv[-1]:
        os._exit(9)
    await asyncio.sleep(0.05)
    return f"saw {x}"

def echo(transcript, request):
    last = transcript[-1]
    return f"done with {last.tool_results[0].text}" if last.tool_results else ("look", {"x": last.text})

desk = Remit(
    name="desk",
    model=ScriptedModel(echo),
    tools=[look],
    limits=Limits(steps=5, tokens=100_000, seconds=60),
    store="sqlite:///runs.db",
)

async def main(prompts, at, wait, *deadly):
    time.sleep(max(0, float(at) - time.time()))
    for prompt in prompts.split(","):
        try:
            outcome = await desk.run(prompt, session="s1", session_wait=float(wait))
        except SessionBusy as busy:
            print("busy", busy.run_id)
        else:
            print(outcome.reason, outcome.run_id)

asyncio.run(main(*sys.argv[1:]))
'''


def at_once(folder: Path, *prompts: str, wait: int) -> tuple[list[list[str]], Transcript]:
    """What so many processes say that begin within milliseconds, and the conversation that comes of it."""
    (folder / "app.py").write_text(APP, "utf-8")
    at = time.time() + 2
    begun = [
        subprocess.Popen(
            [sys.executable, "app.py", each, str(at + 0.002 * n), str(wait)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": HERE},
            stdout=subprocess.PIPE,
            text=True,
        )
        for n, each in enumerate(prompts)
    ]
    told = [
        line.split()
        for process in begun
        for line in process.communicate(timeout=120)[0].splitlines()
    ]
    assert [process.returncode for process in begun] == [0] * len(begun)
    done = [run_id for reason, run_id in told if reason == "completed"]
    assert all(run_id in done for reason, run_id in told if reason == "busy")
    store = SqliteStore(folder / "runs.db")

    async def longest() -> Transcript:
        remit = clerk(store)
        return max([(await remit.outcome(run_id)).transcript for run_id in done], key=len)

    try:
        return told, asyncio.run(longest())
    finally:
        store.close()


@pytest.mark.parametrize("wait", [0, 30])
def test_two_processes_on_one_session_are_one_after_the_other_or_one_is_refused(
    tmp_path: Path, wait: int
) -> None:
    """case 28: started within five milliseconds of each other, on one file, with one call each."""
    told, transcript = at_once(tmp_path, "a", "b", wait=wait)
    assert is_serial(transcript)
    reasons = sorted(reason for reason, _ in told)
    if wait or reasons[0] == "completed":
        assert reasons == ["completed", "completed"]
        assert asked(transcript) in (["a", "b"], ["b", "a"])
    else:
        assert reasons == ["busy", "completed"]
        assert asked(transcript) in (["a"], ["b"])


def test_processes_that_take_turns_on_a_session_lose_nothing(tmp_path: Path) -> None:
    """case 28: of three that have four things to say each, every one is heard, and each in its own order."""
    said = [[f"{name}{n}" for n in range(4)] for name in "abc"]
    told, transcript = at_once(tmp_path, *[",".join(each) for each in said], wait=100)
    assert [reason for reason, _ in told] == ["completed"] * 12
    assert is_serial(transcript)
    prompts = asked(transcript)
    assert [[each for each in prompts if each[0] == name] for name in "abc"] == said


def test_a_session_whose_process_died_is_free_once_its_run_was_resumed(tmp_path: Path) -> None:
    """case 28, J2: others know at once that nobody executes it, and what to do."""
    (tmp_path / "app.py").write_text(APP, "utf-8")
    died = subprocess.run(
        [sys.executable, "app.py", "a", "0", "0", "a"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": HERE},
        check=False,
        timeout=60,
    )
    assert died.returncode == 9

    @tool(effect="idempotent", resource=(), name="look")
    async def look_again(x: str) -> str:
        """Looks."""
        return f"saw {x}"

    async def main() -> None:
        remit = clerk(store, tools=[look_again])
        with pytest.raises(SessionBusy) as caught:
            await remit.run("b", session="s1")
        assert caught.value.status == "broken_off"
        assert (await remit.resume(caught.value.run_id)).completed
        outcome = await remit.run("b", session="s1")
        assert is_serial(outcome.transcript)
        assert asked(outcome.transcript) == ["a", "b"]

    store = SqliteStore(tmp_path / "runs.db")
    try:
        asyncio.run(main())
    finally:
        store.close()
