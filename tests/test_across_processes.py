"""A run that waits in a file, and a program that is another one when it goes on: E5 and case 67, over a restart each time."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

import remit
from loop_rig import LIMITS, said, statuses
from remit import (
    Allow,
    Call,
    ConfigurationError,
    Confirm,
    DecisionError,
    JournalError,
    Outcome,
    PolicyRequest,
    Reason,
    Refuse,
    Remit,
    SqliteStore,
    Transcript,
)
from remit.canonical import arguments_hash
from remit.pending import TOKENS, Policy
from remit.remit import Runtime
from remit.testing import ScriptedModel

T = TypeVar("T")

DAY = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """What outlives every process: the file, and what was paid."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.db"
        self.paid: list[str] = []
        self.today = DAY

    @contextmanager
    def process(self, policy: Policy | None = None, **options: Any) -> Generator[Remit[Any]]:
        """A program that knows nothing but the file."""
        TOKENS.clear()

        @remit.tool(effect="confirm", expires=3_600)
        async def pay(amount: int, call: Call[Any]) -> str:
            """Pay."""
            self.paid.append(f"{call.key} {amount}")
            return f"paid {amount}"

        def says(transcript: Transcript, _: Any) -> Any:
            last = transcript.last
            return "done" if last is not None and last.tool_results else ("pay", {"amount": 5})

        key = options.pop("key", None)
        store = SqliteStore(self.path, key=key)
        given: dict[str, Any] = {"name": "desk", "limits": LIMITS, **options}
        try:
            yield Remit(
                model=ScriptedModel(says),
                tools=[pay],
                policy=policy,
                store=store,
                runtime=Runtime(now=lambda: self.today),
                **given,
            )
        finally:
            store.close()

    def do(self, act: Callable[[Remit[Any]], Coroutine[Any, Any, T]], **options: Any) -> T:
        """One act in a process of its own."""
        with self.process(**options) as desk:
            return asyncio.run(act(desk))

    def begin(self, **options: Any) -> Outcome[Any]:
        outcome = self.do(lambda desk: desk.run("pay 5", run_id="r"), **options)
        assert outcome.reason is Reason.WAITING
        return outcome

    def approve(self, pending_id: str, **options: Any) -> None:
        self.do(lambda desk: desk.decide(id=pending_id, approve=True, by="dana", **options))

    def resume(self, **options: Any) -> Outcome[Any]:
        return self.do(lambda desk: desk.resume("r"), **options)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_yes_from_before_a_stricter_policy_is_not_enough(world: World) -> None:
    """E5, case 67: who may pay 5 today is asked of the policy of today, by a new proposal."""

    def two_people(request: PolicyRequest) -> Allow | Confirm:
        return Confirm("two people, above 3") if request.arguments["amount"] > 3 else Allow()

    first = world.begin().pending[0]
    world.approve(first.id)
    again = world.resume(policy=two_people)
    assert again.reason is Reason.WAITING
    (second,) = again.pending
    assert second.id != first.id
    assert second.summary == "two people, above 3"
    assert world.paid == []
    with pytest.raises(DecisionError, match="decided") as refused:
        world.approve(first.id)
    assert refused.value.why == "used"
    world.approve(second.id)
    assert world.resume(policy=two_people).completed
    assert len(world.paid) == 1


def test_a_policy_that_says_something_else_asks_anew_and_one_that_refuses_refuses(
    world: World,
) -> None:
    """E5, case 67: a yes is to the words that were shown."""
    first = world.begin(policy=lambda _: Confirm("pay it?")).pending[0]
    world.approve(first.id)
    again = world.resume(policy=lambda _: Confirm("pay it, although it is late?"))
    assert [each.summary for each in again.pending] == ["pay it, although it is late?"]
    world.approve(again.pending[0].id)
    outcome = world.resume(policy=lambda _: Refuse("not any more"))
    assert outcome.completed
    assert statuses(outcome) == ["refused"]
    assert world.paid == []


def test_what_has_expired_is_replaced_and_decides_nothing(world: World) -> None:
    """E5, E6: by the time at which it is decided, and by that at which the run goes on."""
    first = world.begin().pending[0]
    world.today += timedelta(hours=2)
    with pytest.raises(DecisionError) as late:
        world.approve(first.id)
    assert late.value.why == "expired"
    (second,) = world.resume().pending
    assert second.id != first.id
    assert second.expires_at == world.today + timedelta(hours=1)
    world.approve(second.id)
    assert world.resume().completed
    assert len(world.paid) == 1


def test_a_decider_who_was_shown_something_else_decides_nothing(world: World) -> None:
    """E5: the hash that is stated is that of the arguments; the proposal stays open."""
    pending = world.begin().pending[0]
    with pytest.raises(DecisionError) as stale:
        world.approve(pending.id, arguments_hash="0" * 64)
    assert stale.value.why == "stale"
    assert pending.arguments_hash is not None
    world.approve(pending.id, arguments_hash=pending.arguments_hash)
    assert said(world.resume()) == ["paid 5"]


def test_an_edit_has_a_key_of_its_own_and_the_model_is_told(world: World) -> None:
    """E5, E2: the host's arguments are another call, in every process."""
    pending = world.begin().pending[0]
    world.approve(pending.id, edit={"amount": 3})
    outcome = world.resume()
    assert "paid 3" in said(outcome)[0]
    assert said(outcome)[0] != "paid 3", "it is told that others than its own arguments ran"
    (paid,) = world.paid
    asked = world.do(lambda desk: desk.outcome("r")).transcript
    assert paid.endswith(" 3")
    assert paid.split()[0] == next(r.key for m in asked for r in m.tool_results)


def above_three(request: PolicyRequest) -> Allow | Confirm:
    return Confirm("two people, above 3") if request.arguments["amount"] > 3 else Allow()


def test_a_call_that_was_edited_and_is_asked_about_again_runs_as_it_was_shown(
    world: World,
) -> None:
    """E5, case 67: the second person is shown the edited arguments, so these run, and the model is told of them."""
    first = world.begin().pending[0]
    world.approve(first.id, edit={"amount": 4})
    (second,) = world.resume(policy=above_three).pending
    assert json.loads(second.arguments) == {"amount": 4}
    assert second.arguments_hash == arguments_hash({"amount": 4})
    world.approve(second.id, arguments_hash=second.arguments_hash)
    outcome = world.resume(policy=above_three)
    (paid,) = world.paid
    assert paid.endswith(" 4")
    assert paid.split(":")[3] == arguments_hash({"amount": 4})[:16]
    assert said(outcome) == ['[dana changed the arguments to {"amount":4}]\npaid 4']


def test_what_was_edited_can_be_edited_again_or_refused(world: World) -> None:
    """E5, E2: the newest arguments of the host's count, each with a key of its own; a no is a no to all of them."""
    first = world.begin(policy=above_three).pending[0]
    world.approve(first.id, edit={"amount": 4})
    second = world.resume(policy=lambda _: Confirm("now two people")).pending[0]
    world.approve(second.id, edit={"amount": 2})
    outcome = world.resume(policy=lambda _: Confirm("now two people"))
    assert said(outcome) == ['[dana changed the arguments to {"amount":2}]\npaid 2']
    (paid,) = world.paid
    assert paid.split(":")[3] == arguments_hash({"amount": 2})[:16]


def test_a_no_to_what_was_edited_and_asked_about_again_is_a_no(world: World) -> None:
    """E5, case 65: whoever is asked last has the last word."""
    world.approve(world.begin().pending[0].id, edit={"amount": 4})
    (second,) = world.resume(policy=above_three).pending
    world.do(lambda desk: desk.decide(id=second.id, approve=False, by="sam"))
    assert said(world.resume(policy=above_three)) == ["Refused by sam."]
    assert world.paid == []


def test_an_edit_covers_no_policy_that_has_changed_since(world: World) -> None:
    """E5, case 67: a policy that words its question by the arguments is the same policy for the edited ones; a
    stricter one is not.
    """

    def worded(request: PolicyRequest) -> Confirm:
        return Confirm(f"pay {request.arguments['amount']}?")

    first = world.begin(policy=worded).pending[0]
    world.approve(first.id, edit={"amount": 4})
    (second,) = world.resume(policy=above_three).pending
    assert second.summary == "two people, above 3"
    assert world.paid == []
    world.approve(second.id, edit={"amount": 5})
    (third,) = world.resume(policy=worded).pending
    assert (third.summary, world.paid) == ("pay 5?", [])
    world.approve(third.id, edit={"amount": 2})
    assert said(world.resume(policy=worded)) == [
        '[dana changed the arguments to {"amount":2}]\npaid 2'
    ]
    assert len(world.paid) == 1


def test_a_token_decides_once_over_all_processes_and_a_new_one_voids_the_last(
    world: World,
) -> None:
    """E5: whoever was handed the old one is told that it is unknown."""
    old = world.begin().pending[0]
    assert old.token is not None
    elsewhere = world.do(lambda desk: desk.outcome("r"))
    assert elsewhere.pending[0].token is None, "it was minted by another process"
    new = world.do(lambda desk: desk.new_token(old.id))
    for token, why in ((old.token, "unknown"), (new, None), (new, "used")):

        async def decide(desk: Remit[Any], token: str | None = token) -> str:
            return await desk.decide(token, approve=True, by="dana")

        if why is None:
            assert world.do(decide) == "r"
            continue
        with pytest.raises(DecisionError) as refused:
            world.do(decide)
        assert refused.value.why == why
    assert world.resume().completed
    assert len(world.paid) == 1


def test_another_remit_and_another_key_get_nothing_of_a_run(world: World) -> None:
    """J2, case 67: stored state has an owner, and a seal where one was asked for."""
    pending = world.begin(key=b"secret").pending[0]
    with pytest.raises(ConfigurationError):
        world.resume(key=b"secret", name="other")
    for key in (b"guessed", None):
        with pytest.raises(JournalError):
            world.resume(key=key)
    world.do(lambda d: d.decide(id=pending.id, approve=True, by="dana"), key=b"secret")
    assert world.resume(key=b"secret").completed
    assert len(world.paid) == 1


def test_no_byte_of_what_is_stored_can_be_changed(world: World) -> None:
    """J2, case 67: whichever row it is, the run is refused and nothing runs."""
    pending = world.begin().pending[0]
    world.approve(pending.id)
    file = sqlite3.connect(world.path, isolation_level=None)
    rows = file.execute("select rowid, body from remit_payload order by rowid").fetchall()
    assert len(rows) >= 3
    for rowid, body in rows:
        changed = body[:-2] + bytes([body[-2] ^ 1]) + body[-1:]
        file.execute("update remit_payload set body = ? where rowid = ?", (changed, rowid))
        with pytest.raises(JournalError):
            world.resume()
        file.execute("update remit_payload set body = ? where rowid = ?", (body, rowid))
    file.close()
    assert world.paid == []
    assert world.resume().completed
    assert len(world.paid) == 1
