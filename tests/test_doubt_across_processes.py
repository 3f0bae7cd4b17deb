"""Doubt that outlives its run and its process: the next run of the conversation, with nothing but the file."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import pytest

import remit
from loop_rig import LIMITS, results, said, statuses
from remit import Call, Outcome, Reason, Remit, Runtime, SqliteStore, Transcript
from remit.errors import JournalError
from remit.pending import TOKENS
from remit.testing import ScriptedModel

T = TypeVar("T")
Slow: TypeAlias = Literal["lands", "dies"]

WARNED = "may already have taken effect"
PATIENCE = 20
"""Seconds after which a test has gone wrong."""


class World:
    """What outlives every process: the file, what the bank saw, and what it says when it is asked."""

    def __init__(self, folder: Path, effect: str, how: str) -> None:
        self.path = folder / "runs.db"
        self.effect = effect
        self.how = how
        self.lands = asyncio.Event()
        """What a body that runs out of time waits for, in the process that there is now."""
        self.entered: list[str] = []
        self.bank: dict[str, str] = {}
        """What landed, by key."""
        self.reconciled: list[str] = []
        self.knows = False
        """The bank has an answer when it is asked."""
        self.closed: list[dict[str, Any]] | None = None
        """The transcript of the last run, for a conversation whose host keeps it."""

    def desk(self, store: SqliteStore, *, slow: Slow | None) -> Remit[Any]:
        """A program that knows nothing but the file. `slow`: what a body comes to that runs out of time."""

        @remit.tool(name="pay", effect=self.effect, timeout=0.3 if slow else 60)  # pyright: ignore[reportArgumentType] - either effect
        async def pay(amount: int, call: Call[Any]) -> str:
            """Pay."""
            self.entered.append(call.key)
            if slow == "dies":
                await asyncio.Event().wait()
            while slow == "lands" and not self.lands.is_set():
                with contextlib.suppress(asyncio.CancelledError):  # whoever gave it up
                    await self.lands.wait()
            self.bank[call.key] = f"paid {amount}"
            return f"paid {amount}"

        if self.effect == "confirm":

            @pay.reconcile
            async def _(key: str) -> str | None:
                self.reconciled.append(key)
                return (
                    f"the bank says: {self.bank.get(key, 'no such payment')}"
                    if self.knows
                    else None
                )

        def says(transcript: Transcript, _: Any) -> Any:
            last = transcript.last
            return "done" if last is not None and last.tool_results else ("pay", {"amount": 5})

        return Remit[Any](
            name="desk",
            model=ScriptedModel(says),
            tools=[pay],
            limits=LIMITS,
            store=store,
            runtime=Runtime(grace=0.01),
        )

    def do(
        self,
        act: Callable[[Remit[Any], SqliteStore], Coroutine[Any, Any, T]],
        *,
        slow: Slow | None = None,
    ) -> T:
        """One act in a process of its own."""
        TOKENS.clear()
        store = SqliteStore(self.path)

        async def main() -> T:
            self.lands = asyncio.Event()
            async with asyncio.timeout(PATIENCE):
                return await act(self.desk(store, slow=slow), store)

        try:
            return asyncio.run(main())
        finally:
            store.close()

    async def ask(self, desk: Remit[Any], run_id: str) -> Outcome[Any]:
        """The next run of the conversation, approved where it waits and nothing is in doubt."""
        if self.how == "session":
            outcome = await desk.run("pay 5", run_id=run_id, session="s")
        else:
            history = None if self.closed is None else Transcript.load(self.closed)
            outcome = await desk.run("pay 5", run_id=run_id, history=history)
        if outcome.pending and WARNED not in outcome.pending[0].summary:
            outcome = await self.decide(desk, outcome)
        self.closed = outcome.transcript.to_json()
        return outcome

    async def decide(
        self, desk: Remit[Any], outcome: Outcome[Any], *, approve: bool = True
    ) -> Outcome[Any]:
        await desk.decide(id=outcome.pending[0].id, approve=approve, by="dana")
        outcome = await desk.resume(outcome.run_id)
        self.closed = outcome.transcript.to_json()
        return outcome

    def again(self, run_id: str = "second") -> Outcome[Any]:
        return self.do(lambda desk, _: self.ask(desk, run_id))

    def decided(self, outcome: Outcome[Any], *, approve: bool) -> Outcome[Any]:
        return self.do(lambda desk, _: self.decide(desk, outcome, approve=approve))

    def left_in_doubt(self, *, lands: bool) -> str:
        """A first run whose call ran out of time; its process lives until it landed, or ends before. The key."""

        async def first(desk: Remit[Any], store: SqliteStore) -> str:
            outcome = await self.ask(desk, "first")
            assert outcome.completed
            assert statuses(outcome) == ["unknown"]
            if lands:
                self.lands.set()
                while not any(post.kind == "late" for post in await store.inbox("first")):
                    pass
            return keys(outcome)[0]

        key = self.do(first, slow="lands" if lands else "dies")
        assert self.entered == [key]
        assert list(self.bank) == ([key] if lands else [])
        return key

    def repeated_late(self, *, found_in: tuple[str, ...], erased: str | None = None) -> None:
        """A second run, whose repeat runs out of time as well and lands after that; `erased` is, before it does."""

        async def second(desk: Remit[Any], store: SqliteStore) -> None:
            outcome = await self.ask(desk, "second")
            if outcome.pending:
                outcome = await self.decide(desk, outcome)
            assert statuses(outcome) == ["unknown", "unknown"]
            assert len(set(keys(outcome))) == 1
            if erased is not None:
                await store.erase(run_id=erased)
            self.lands.set()
            async with asyncio.timeout(PATIENCE / 4):
                for run_id in found_in:
                    while not any(post.kind == "late" for post in await store.inbox(run_id)):
                        pass

        self.do(second, slow="lands")


def keys(outcome: Outcome[Any]) -> list[str]:
    return [result.key or "" for result in results(outcome)]


@pytest.fixture(params=["history", "session"])
def how(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("effect", ["idempotent", "confirm"])
def test_what_landed_late_is_the_result_of_the_repeat_in_the_next_process(
    tmp_path: Path, effect: str, how: str
) -> None:
    """E4, case 31, case 34: nobody is asked, nothing is done again, and one repeat resolves one doubt."""
    world = World(tmp_path, effect, how)
    key = world.left_in_doubt(lands=True)
    outcome = world.again()
    assert outcome.completed
    assert statuses(outcome) == ["unknown", "ok"]
    assert said(outcome)[1] == "paid 5"
    assert keys(outcome) == [key, key]
    assert world.entered == [key]
    assert world.reconciled == []
    third = world.again("third")
    assert statuses(third) == ["unknown", "ok", "ok"]
    assert len(set(keys(third))) == 2, "a later equal call is a new one"


@pytest.mark.parametrize("effect", ["idempotent", "confirm"])
def test_what_a_repeat_came_to_late_is_the_result_of_the_repeat_after_it(
    tmp_path: Path, effect: str, how: str
) -> None:
    """E4, case 31, case 34: it goes by the key of the first call, and is looked for with the run of that one."""
    world = World(tmp_path, effect, how)
    key = world.left_in_doubt(lands=False)
    world.repeated_late(found_in=("second", "first"))
    third = world.again("third")
    assert third.completed
    assert statuses(third) == ["unknown", "unknown", "ok"]
    assert keys(third) == [key, key, key]
    assert world.entered == [key, key]
    assert world.bank == {key: "paid 5"}


@pytest.mark.parametrize("effect", ["idempotent", "confirm"])
def test_a_conversation_goes_on_whose_doubt_is_a_call_of_a_run_that_was_erased(
    tmp_path: Path, effect: str
) -> None:
    """E4, J6: nobody knows any more what came of it; it is done again under its key, or a person decides."""
    world = World(tmp_path, effect, "history")
    key = world.left_in_doubt(lands=False)
    world.repeated_late(found_in=("second",), erased="first")
    third = world.again("third")
    assert keys(third)[:2] == [key, key]
    assert third.reason is (Reason.WAITING if effect == "confirm" else Reason.COMPLETED)
    assert set(world.entered) == {key}


def test_what_cannot_be_kept_when_it_lands_late_is_logged_and_stays_in_doubt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E4: nobody waits for whoever keeps it, so nobody is told by an error; the next process asks again by its key."""
    world = World(tmp_path, "idempotent", "history")
    errors: list[Any] = []

    async def first(desk: Remit[Any], store: SqliteStore) -> None:
        async def full(run_id: str, kind: Any, body: bytes = b"", **_: Any) -> bool:
            tried.set()
            raise JournalError("the disk is full")

        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        tried = asyncio.Event()
        outcome = await world.ask(desk, "first")
        assert statuses(outcome) == ["unknown"]
        monkeypatch.setattr(store, "post", full)
        world.lands.set()
        await tried.wait()
        await asyncio.sleep(0)
        gc.collect()

    world.do(first, slow="lands")
    assert errors == []
    assert "a late outcome was not kept: the disk is full" in caplog.text
    outcome = world.again()
    assert len(set(keys(outcome))) == 1
    assert statuses(outcome) == ["unknown", "ok"]


def test_an_idempotent_repeat_runs_under_the_key_of_the_first_in_the_next_process(
    tmp_path: Path, how: str
) -> None:
    """E4, E2, case 34: the service downstream sees one key."""
    world = World(tmp_path, "idempotent", how)
    key = world.left_in_doubt(lands=False)
    outcome = world.again()
    assert statuses(outcome) == ["unknown", "ok"]
    assert world.entered == [key, key]
    assert list(world.bank) == [key]


def test_of_a_confirmed_call_the_bank_is_asked_in_the_next_process(
    tmp_path: Path, how: str
) -> None:
    """E4, E3: what reconcile answers is the result, and nobody has to decide."""
    world = World(tmp_path, "confirm", how)
    key = world.left_in_doubt(lands=False)
    world.knows = True
    outcome = world.again()
    assert outcome.completed
    assert said(outcome)[1] == "the bank says: no such payment"
    assert keys(outcome) == [key, key]
    assert world.reconciled == [key]
    assert world.entered == [key]


def test_where_the_bank_does_not_know_a_person_is_warned_in_every_process(
    tmp_path: Path, how: str
) -> None:
    """E4, E5, E2: it becomes a proposal that says so, runs once it is approved, under the key of the first."""
    world = World(tmp_path, "confirm", how)
    key = world.left_in_doubt(lands=False)
    outcome = world.again()
    assert outcome.reason is Reason.WAITING
    assert WARNED in outcome.pending[0].summary
    assert world.do(lambda desk, _: desk.resume("second")).pending[0].id == outcome.pending[0].id
    assert world.entered == [key]
    outcome = world.decided(outcome, approve=True)
    assert outcome.completed
    assert statuses(outcome) == ["unknown", "ok"]
    assert keys(outcome) == [key, key]
    assert world.entered == [key, key]
    third = world.again("third")
    assert third.completed, "the doubt is over: it was asked for as usual"
    assert keys(third)[2] != key


def test_a_no_leaves_the_doubt_to_the_next_process(tmp_path: Path, how: str) -> None:
    """E4, E5: whoever refuses the repeat has said nothing of what the first did."""
    world = World(tmp_path, "confirm", how)
    key = world.left_in_doubt(lands=False)
    refused = world.decided(world.again(), approve=False)
    assert statuses(refused) == ["unknown", "refused"]
    third = world.again("third")
    assert third.reason is Reason.WAITING
    assert WARNED in third.pending[0].summary
    assert world.entered == [key]


def test_a_grant_answers_no_doubt_of_another_process(tmp_path: Path, how: str) -> None:
    """E9, E4: what covers every payment of 5 does not cover the one that may be made already."""
    world = World(tmp_path, "confirm", how)
    key = world.left_in_doubt(lands=False)
    world.do(lambda desk, _: desk.grant("pay", arguments={"amount": 5}, expires=3_600, by="dana"))
    outcome = world.again()
    assert outcome.reason is Reason.WAITING
    assert WARNED in outcome.pending[0].summary
    assert world.entered == [key]
