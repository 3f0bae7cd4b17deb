"""Standing grants: what a person approves in advance, and nothing beyond it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit
from loop_rig import desk, rows, said, statuses, watched
from remit import (
    Allow,
    Call,
    Confirm,
    MemoryStore,
    PolicyRequest,
    Reason,
    Refuse,
    SqliteStore,
    Transcript,
)
from remit.errors import ConfigurationError
from remit.rows import Granted
from remit.store.base import Journal
from remit.store.grants import Grant, Matches, arguments_from_json, arguments_to_json
from remit.testing import run_virtual
from remit.workers import ThreadWorkers

ANY = re.compile(".*", re.DOTALL)


@remit.tool(effect="confirm")
async def refund(order: str, amount: Decimal, call: Call[list[str]], note: str = "") -> str:
    """Refund a part of an order."""
    call.deps.append(call.key)
    return f"refunded {amount} on {order}"


@remit.tool(effect="idempotent")
async def tag(order: str, call: Call[list[str]]) -> str:
    """Tag an order."""
    call.deps.append(call.key)
    return f"tagged {order}"


def calls(*turns: Any) -> Callable[[Transcript, Any], Any]:
    """A model that asks for these, however often it is run, and is done with their results."""

    def says(transcript: Transcript, _: Any) -> Any:
        last = transcript.last
        return "done" if last is not None and last.tool_results else list(turns)

    return says


ASKED = calls(("refund", {"order": "1042", "amount": "4.20"}))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "memory":
        yield MemoryStore()
        return
    file = SqliteStore(tmp_path / "runs.db")
    yield file
    file.close()


def played(store: Journal, main: Callable[[], Any]) -> Any:
    """On virtual time where the store has no threads."""
    return run_virtual(main()) if isinstance(store, MemoryStore) else asyncio.run(main())


def test_a_grant_lets_run_what_it_describes_and_the_journal_says_which(store: Journal) -> None:
    """E9, C8: nobody is asked, the effect happens once, and who allowed it is on record."""

    async def main() -> None:
        support, deps = desk(ASKED, [refund], store=store), list[str]()
        given = await support.grant(
            "refund", arguments={"order": "1042", "amount": ANY}, expires=60, by="dana"
        )
        outcome, events = await watched(support, "go", deps=deps, run_id="r")
        assert outcome.reason is Reason.COMPLETED
        assert said(outcome) == ["refunded 4.20 on 1042"]
        assert len(deps) == 1
        [row] = [row for row in await rows(support, "r") if isinstance(row, Granted)]
        assert (row.grant_id, row.by) == (given.id, "dana")
        [told] = [event for event in events if event.kind == "granted"]
        assert (told.fields["grant"], told.fields["by"]) == (given.id, "dana")
        assert not [event for event in events if event.kind == "pending"]
        assert await support.grants() == (given,)

    played(store, main)


@pytest.mark.parametrize(
    "described",
    [
        {"order": "1043", "amount": ANY},
        {"order": "104", "amount": ANY},
        {"order": re.compile("104"), "amount": ANY},
        {"order": re.compile("1042"), "amount": "4.2"},
        {"order": ANY, "amount": 4.3},
        {"order": ANY, "amount": re.compile(r"[0-3]\.\d\d")},
        {"order": ANY, "amount": ANY, "note": "hello"},
    ],
)
def test_what_a_grant_does_not_describe_waits_for_a_person(
    store: Journal, described: dict[str, Any]
) -> None:
    """E9: a plain value is exact, a pattern fits the whole text, an argument that is named is there."""

    async def main() -> None:
        support, deps = desk(ASKED, [refund], store=store), list[str]()
        await support.grant("refund", arguments=described, expires=60, by="dana")
        outcome = await support.run("go", deps=deps)
        assert outcome.reason is Reason.WAITING
        assert deps == []

    played(store, main)


def test_an_argument_that_a_grant_does_not_name_is_not_granted() -> None:
    """E9: what the model adds to a call was on nobody's mind."""

    async def main() -> None:
        asked = calls(("refund", {"order": "1042", "amount": "4.20", "note": "to my account"}))
        support, deps = desk(asked, [refund]), list[str]()
        await support.grant("refund", arguments={"order": ANY, "amount": ANY}, expires=60, by="d")
        assert (await support.run("go", deps=deps)).reason is Reason.WAITING
        await support.grant(
            "refund", arguments={"order": ANY, "amount": ANY, "note": ANY}, expires=60, by="d"
        )
        assert (await support.run("again", deps=deps)).reason is Reason.COMPLETED
        assert len(deps) == 1

    run_virtual(main())


def test_a_policy_that_refuses_beats_a_grant_and_one_that_asks_is_answered_by_it(
    store: Journal,
) -> None:
    """E9: deny beats grant; a grant stands where an approval would."""

    async def main() -> None:
        def judge(request: PolicyRequest) -> Allow | Refuse | Confirm:
            order = request.arguments["order"]
            return Refuse("closed") if order == "1" else Confirm(f"really {order}?")

        asked = calls(("tag", {"order": "1"}), ("tag", {"order": "2"}))
        support, deps = desk(asked, [tag], store=store, policy=judge), list[str]()
        await support.grant(tag, arguments={"order": ANY}, expires=60, by="dana")
        outcome = await support.run("go", deps=deps)
        assert outcome.reason is Reason.COMPLETED
        assert statuses(outcome) == ["refused", "ok"]
        assert [key.split(":")[2] for key in deps] == ["tag"]

    played(store, main)


def test_a_grant_that_is_over_or_revoked_covers_nothing() -> None:
    """E9: it counts at the moment at which the call is judged."""

    async def main() -> None:
        support, deps = desk(ASKED, [refund]), list[str]()
        described = {"order": "1042", "amount": ANY}
        short = await support.grant("refund", arguments=described, expires=5, by="dana")
        await asyncio.sleep(5)
        assert await support.grants() == ()
        assert (await support.run("one", deps=deps)).reason is Reason.WAITING
        long = await support.grant("refund", arguments=described, expires=500, by="dana")
        assert await support.revoke(long.id)
        assert not await support.revoke(long.id)
        assert await support.revoke(short.id)
        assert not await support.revoke("unknown")
        assert (await support.run("two", deps=deps)).reason is Reason.WAITING
        assert deps == []

    run_virtual(main())


def test_a_grant_holds_in_its_run_its_session_and_for_its_remit_alone(store: Journal) -> None:
    """E9: the scope is what was said, and the name of the remit always."""

    async def main() -> None:
        support, deps = desk(ASKED, [refund], store=store), list[str]()
        described = {"order": "1042", "amount": ANY}
        await support.grant("refund", arguments=described, expires=60, by="d", run_id="this")
        await support.grant("refund", arguments=described, expires=60, by="d", session="mine")
        assert (await support.run("go", run_id="this", deps=deps)).completed
        assert (await support.run("go", session="mine", deps=deps)).completed
        assert len(deps) == 2
        others: tuple[dict[str, Any], ...] = ({"run_id": "that"}, {"session": "yours"}, {})
        for options in others:
            assert (await support.run("go", deps=deps, **options)).reason is Reason.WAITING
        other = support.replace(name="other")
        assert (await other.run("go", session="mine-too", deps=deps)).reason is Reason.WAITING
        assert await other.grants() == ()
        assert len(deps) == 2

    played(store, main)


def test_what_was_put_before_a_person_stays_with_people() -> None:
    """E9: a grant that comes later answers no question that is open, and overrules no decision."""

    async def main() -> None:
        asked = calls(
            ("refund", {"order": "1", "amount": "4.20"}),
            ("refund", {"order": "2", "amount": "4.20"}),
        )
        support, deps = desk(asked, [refund]), list[str]()
        waiting = await support.run("go", run_id="r", deps=deps)
        first, second = waiting.pending
        await support.grant("refund", arguments={"order": ANY, "amount": ANY}, expires=60, by="d")
        assert (await support.resume("r", deps=deps)).reason is Reason.WAITING
        await support.decide(first.token, approve=True, by="erin")
        still = await support.resume("r", deps=deps)
        assert [each.id for each in still.pending] == [second.id]
        await support.decide(second.token, approve=False, by="erin")
        outcome = await support.resume("r", deps=deps)
        assert statuses(outcome) == ["ok", "refused"]
        assert len(deps) == 1

    run_virtual(main())


def test_a_question_whose_time_is_over_is_put_before_a_person_again() -> None:
    """E9: the person who did not answer in time did not say yes; nor did the grant that came later."""

    async def main() -> None:
        support, deps = desk(ASKED, [refund]), list[str]()
        waiting = await support.run("go", run_id="r", deps=deps)
        described = {"order": ANY, "amount": ANY}
        await support.grant("refund", arguments=described, expires=1e6, by="d")
        await asyncio.sleep(25 * 3_600)
        again = await support.resume("r", deps=deps)
        assert again.reason is Reason.WAITING
        assert again.pending[0].id != waiting.pending[0].id
        assert deps == []

    run_virtual(main())


def test_a_call_that_may_have_taken_effect_already_is_covered_by_no_grant() -> None:
    """E9, E4: whoever gave the grant did not know that it would be the second time."""

    @remit.tool(effect="confirm", timeout=1)
    async def pay(amount: int, call: Call[list[str]]) -> str:
        """Pay."""
        call.deps.append(call.key)
        await asyncio.sleep(5)
        return "paid"

    async def main() -> None:
        pays = [("pay", {"amount": 7})]
        support, deps = desk([pays, pays, "done"], [pay]), list[str]()
        await support.grant("pay", arguments={"amount": 7}, expires=600, by="dana")
        outcome = await support.run("go", deps=deps)
        assert outcome.reason is Reason.WAITING
        assert len(deps) == 1
        assert "may already have taken effect" in outcome.pending[0].summary

    run_virtual(main())


def test_a_run_that_broke_off_asks_again_whether_the_grant_still_counts(tmp_path: Path) -> None:
    """E9, case 67: a grant that was revoked between a crash and the resume covers nothing any more."""

    async def main() -> None:
        file = SqliteStore(tmp_path / "runs.db")
        support, deps = desk(ASKED, [refund], store=file), list[str]()
        given = await support.grant(
            "refund", arguments={"order": ANY, "amount": ANY}, expires=600, by="dana"
        )

        async def veto(_: object) -> None:
            await broken.wait()

        def judge(_: object) -> Allow:
            judged.set()
            return Allow()

        broken, judged = asyncio.Event(), asyncio.Event()
        guarded = support.replace(guards=(veto,), policy=judge)
        async with guarded.stream("go", run_id="r", deps=deps) as live:
            await judged.wait()
            await live.detach()
        assert deps == []
        await support.revoke(given.id)
        assert (await support.resume("r", deps=deps)).reason is Reason.WAITING
        assert deps == []
        file.close()

    asyncio.run(main())


@remit.tool(effect="idempotent", resource="till")
async def count(call: Call[list[str]]) -> str:
    """Count the till, for a while."""
    call.deps.append("counting")
    await asyncio.sleep(40)
    return "counted"


@remit.tool(effect="confirm", resource="till", timeout=600)
async def pay(amount: int, call: Call[list[str]]) -> str:
    """Pay out of the till."""
    call.deps.append("paid")
    return f"paid {amount}"


BEHIND = calls(("count", {}), ("pay", {"amount": 5}))
"""A payment that stays behind another call for 40 seconds."""


def test_a_grant_that_is_over_before_the_call_begins_does_not_let_it_begin() -> None:
    """E9, E5: behind a sibling a grant of 10 s is none after 40 s; a person is asked, as if there had been none."""

    async def main() -> None:
        support, deps = desk(BEHIND, [count, pay]), list[str]()
        await support.grant("pay", arguments={"amount": 5}, expires=10, by="dana")
        outcome, events = await watched(support, "go", run_id="r", deps=deps)
        assert outcome.reason is Reason.WAITING
        assert deps == ["counting"]
        assert not [event for event in events if event.kind == "granted"]
        assert not [row for row in await rows(support, "r") if isinstance(row, Granted)]
        await support.decide(outcome.pending[0].token, approve=True, by="erin")
        outcome = await support.resume("r", deps=deps)
        assert statuses(outcome) == ["ok", "ok"]
        assert deps == ["counting", "paid"]

    run_virtual(main())


def test_a_grant_that_another_process_revokes_meanwhile_does_not_let_the_call_begin(
    tmp_path: Path,
) -> None:
    """E9, E5: whoever takes a grant back while the call waits for its turn has it put before a person."""

    async def main() -> None:
        file, elsewhere = SqliteStore(tmp_path / "runs.db"), SqliteStore(tmp_path / "runs.db")
        counting, counted = asyncio.Event(), asyncio.Event()

        @remit.tool(name="count", effect="idempotent", resource="till")
        async def slowly() -> str:
            """Count the till."""
            counting.set()
            await counted.wait()
            return "counted"

        support, deps = desk(BEHIND, [slowly, pay], store=file), list[str]()
        given = await support.grant("pay", arguments={"amount": 5}, expires=600, by="dana")
        run = asyncio.create_task(support.run("go", run_id="r", deps=deps))
        await counting.wait()
        assert await support.replace(store=elsewhere).revoke(given.id)
        counted.set()
        outcome = await run
        assert outcome.reason is Reason.WAITING
        assert statuses(outcome) == ["ok", "not_started"]
        assert deps == []
        file.close()
        elsewhere.close()

    asyncio.run(main())


class RevokedInTime(MemoryStore):
    """Revokes every grant in the very transaction that makes a start durable."""

    async def append(self, lease: Any, rows: Any, **options: Any) -> Any:
        control = await super().append(lease, rows, **options)
        if any(row.kind == "started" for row in rows):
            for grant in await self.grants("desk"):
                await self.revoke_grant(grant.id, at=datetime.now(UTC))
        return control


def test_a_grant_that_is_revoked_while_the_start_is_made_durable_enters_no_body() -> None:
    """E9, E3: the start is taken back, nothing is in doubt, and a person is asked."""

    async def main() -> None:
        store = RevokedInTime()
        support, deps = desk(ASKED, [refund], store=store), list[str]()
        described = {"order": "1042", "amount": ANY}
        await support.grant("refund", arguments=described, expires=60, by="dana")
        outcome = await support.run("go", run_id="r", deps=deps)
        assert outcome.reason is Reason.WAITING
        assert statuses(outcome) == ["not_started"]
        kinds = [row.kind for row in await rows(support, "r")]
        assert kinds.index("started") < kinds.index("turned_back") < kinds.index("proposed")
        assert outcome.spend.tree.calls == 0
        await support.decide(outcome.pending[0].token, approve=True, by="erin")
        outcome = await support.resume("r", deps=deps)
        assert statuses(outcome) == ["ok"]
        assert len(deps) == 1
        assert outcome.spend.tree.calls == 1

    run_virtual(main())


def test_a_grant_that_is_over_when_a_thread_is_free_enters_no_body() -> None:
    """E9, C6: a function that waits for a thread waits like any other."""

    @remit.tool(name="count", effect="read")
    def hold(call: Call[list[str]]) -> str:
        """Hold the only thread."""
        call.deps.append("holding")
        held.wait(5)
        return "held"

    @remit.tool(name="pay", effect="confirm")
    def pay_in_thread(amount: int, call: Call[list[str]]) -> str:
        """Pay."""
        call.deps.append("paid")
        return "paid"

    held = threading.Event()

    async def main() -> None:
        workers = ThreadWorkers(1)
        runtime = remit.Runtime(workers=workers)
        support = desk(BEHIND, [hold, pay_in_thread], runtime=runtime)
        deps = list[str]()
        await support.grant("pay", arguments={"amount": 5}, expires=0.5, by="dana")
        run = asyncio.create_task(support.run("go", run_id="r", deps=deps))
        await asyncio.sleep(1)
        held.set()
        outcome = await run
        assert outcome.reason is Reason.WAITING
        assert deps == ["holding"]
        assert statuses(outcome) == ["ok", "not_started"]

    asyncio.run(main())


def test_a_grant_that_is_over_when_its_wrappers_let_the_call_through_enters_no_body() -> None:
    """E9, W1: a wrapper that holds a call back for longer than the grant has it put before a person."""

    async def hold_back(invocation: Any, proceed: Callable[[], Any]) -> Any:
        await asyncio.sleep(40)
        return await proceed()

    async def main() -> None:
        wrapped = remit.wrap_tools(hold_back)([pay])
        support, deps = desk(calls(("pay", {"amount": 5})), wrapped), list[str]()
        await support.grant("pay", arguments={"amount": 5}, expires=10, by="dana")
        outcome = await support.run("go", run_id="r", deps=deps)
        assert outcome.reason is Reason.WAITING
        assert deps == []
        assert outcome.spend.tree.calls == 0
        await support.decide(outcome.pending[0].token, approve=True, by="erin")
        assert statuses(await support.resume("r", deps=deps)) == ["ok"]
        assert deps == ["paid"]

    run_virtual(main())


def test_a_call_whose_grant_is_over_is_decided_in_process_where_somebody_is_there() -> None:
    """E9, E5: as if there had been no grant, so the callback is asked, once."""
    asked: list[str] = []

    async def decides(pending: remit.Pending) -> remit.Decision:
        asked.append(pending.tool)
        return remit.Decision(approve=True, by="erin")

    async def main() -> None:
        support, deps = desk(BEHIND, [count, pay], confirm=decides), list[str]()
        await support.grant("pay", arguments={"amount": 5}, expires=10, by="dana")
        outcome = await support.run("go", run_id="r", deps=deps)
        assert statuses(outcome) == ["ok", "ok"]
        assert deps == ["counting", "paid"]
        assert asked == ["pay"]

    run_virtual(main())


def test_a_call_that_a_detach_kept_from_its_body_is_not_in_doubt() -> None:
    """K1, E3: its start is on record and its body was not entered, so it runs when the run is taken up, once."""

    async def main() -> None:
        support, deps = desk(ASKED, [refund]), list[str]()
        described = {"order": "1042", "amount": ANY}
        await support.grant("refund", arguments=described, expires=60, by="dana")
        async with support.stream("go", run_id="r", deps=deps) as live:
            async for event in live:
                if event.kind == "granted":
                    break
            await live.detach()
        assert deps == []
        assert "started" in [row.kind for row in await rows(support, "r")]
        outcome = await support.resume("r", deps=deps)
        assert statuses(outcome) == ["ok"]
        assert len(deps) == 1
        assert outcome.spend.tree.calls == 1

    run_virtual(main())


def test_a_call_is_not_handed_out_under_a_grant_that_is_over() -> None:
    """E9: whoever executes it elsewhere would believe that somebody had allowed it."""
    elsewhere = remit.Tool.elsewhere(
        name="pay",
        description="Pay.",
        parameters={
            "type": "object",
            "properties": {"amount": {"type": "integer"}},
            "required": ["amount"],
            "additionalProperties": False,
        },
        effect="confirm",
        resource="till",
        timeout=600,
    )

    async def main(expires: float) -> list[str]:
        support, deps = desk(BEHIND, [count, elsewhere]), list[str]()
        await support.grant("pay", arguments={"amount": 5}, expires=expires, by="dana")
        outcome = await support.run("go", run_id="r", deps=deps)
        assert outcome.reason is Reason.WAITING
        granted = [row.kind for row in await rows(support, "r") if isinstance(row, Granted)]
        return [each.kind for each in outcome.pending] + granted

    assert run_virtual(main(10)) == ["approval"]
    assert run_virtual(main(100)) == ["result", "granted"]


def test_another_grant_takes_the_place_of_one_that_is_over() -> None:
    """E9: what counts is what stands when the call begins, and the journal names that."""

    async def main() -> None:
        support, deps = desk(BEHIND, [count, pay]), list[str]()
        await support.grant("pay", arguments={"amount": 5}, expires=10, by="dana")
        long = await support.grant("pay", arguments={"amount": ANY}, expires=100, by="erin")
        outcome = await support.run("go", run_id="r", deps=deps)
        assert statuses(outcome) == ["ok", "ok"]
        [row] = [row for row in await rows(support, "r") if isinstance(row, Granted)]
        assert (row.grant_id, row.by) == (long.id, "erin")

    run_virtual(main())


def test_the_policy_is_asked_again_about_a_call_that_waited_for_another() -> None:
    """E5, case 67: what a sibling did meanwhile is part of what the policy judges, and a stricter answer counts."""

    async def main(said_now: Allow | Refuse | Confirm) -> tuple[list[str], Any]:
        deps, asked = list[str](), list[str]()

        def judge(request: PolicyRequest) -> Allow | Refuse | Confirm:
            asked.append(request.tool)
            done = request.tool == "tag" and "counting" in deps
            return said_now if done else Allow()

        @remit.tool(name="tag", effect="idempotent", resource="till")
        async def tag_till(call: Call[list[str]]) -> str:
            """Tag the till."""
            call.deps.append("tagged")
            return "tagged"

        model = calls(("count", {}), ("tag", {}))
        support = desk(model, [count, tag_till], policy=judge)
        outcome = await support.run("go", run_id="r", deps=deps)
        assert asked[:3] == ["count", "tag", "tag"]
        return deps, outcome

    deps, outcome = run_virtual(main(Refuse("enough")))
    assert deps == ["counting"]
    assert statuses(outcome) == ["ok", "refused"]
    deps, outcome = run_virtual(main(Confirm("again?")))
    assert deps == ["counting"]
    assert outcome.reason is Reason.WAITING
    deps, outcome = run_virtual(main(Allow()))
    assert deps == ["counting", "tagged"]


class Counting(MemoryStore):
    """Counts how often somebody looks for grants."""

    looked = 0

    async def grants(self, remit: str, tool: str | None = None) -> Sequence[Grant]:
        self.looked += 1
        return await super().grants(remit, tool)


def test_nobody_is_asked_again_about_a_call_that_waited_for_nothing() -> None:
    """E5, E9: one answer for each time that a call is judged, and no look at grants where no yes is wanted."""

    async def main(tool: str, arguments: dict[str, Any], expected: list[str]) -> int:
        asked, store, deps = list[str](), Counting(), list[str]()

        def judge(request: PolicyRequest) -> Allow:
            asked.append(request.tool)
            return Allow()

        support = desk(calls((tool, arguments)), [count, pay, tag], policy=judge, store=store)
        await support.grant("pay", arguments={"amount": 5}, expires=10, by="dana")
        store.looked = 0
        outcome = await support.run("go", run_id="r", deps=deps)
        if outcome.pending:
            await support.decide(outcome.pending[0].token, approve=True, by="erin")
            outcome = await support.resume("r", deps=deps)
        assert statuses(outcome) == ["ok"]
        assert len(deps) == 1
        assert asked == expected
        return store.looked

    assert run_virtual(main("tag", {"order": "1"}, ["tag"])) == 0
    assert run_virtual(main("pay", {"amount": 5}, ["pay"])) > 0, "under the grant"
    assert run_virtual(main("pay", {"amount": 6}, ["pay", "pay"])) > 0, (
        "before and after the decision"
    )


def test_a_run_inside_that_was_granted_and_waits_goes_on_under_the_grant() -> None:
    """E9, E1: the call around was let in before; how it stands is known, so nobody is asked about it anew."""

    async def main() -> None:
        inner = desk(ASKED, [refund], name="inner")
        limits = remit.Limits(steps=5, tokens=100_000, seconds=600)
        helper = inner.as_tool("helper", "Help.", limits=limits)
        support = desk(
            calls(("helper", {"task": "t"})), [helper], policy=lambda request: Confirm("help?")
        )
        deps = list[str]()
        await support.grant("helper", arguments={"task": ANY}, expires=600, by="dana")
        waiting = await support.run("go", run_id="r", deps=deps)
        [inside] = waiting.pending
        assert inside.tool == "refund"
        await support.decide(inside.token, approve=True, by="erin")
        outcome = await support.resume("r", deps=deps)
        assert outcome.completed
        assert len(deps) == 1

    run_virtual(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"tool": "unknown"},
        {"arguments": {"order": "1"}},
        {"arguments": {"order": "1", "amount": ANY, "colour": "red"}},
        {"arguments": {"order": re.compile(b"1"), "amount": ANY}},
        {"arguments": {"order": re.compile("\ud800"), "amount": ANY}},
        {"arguments": {"order": object(), "amount": ANY}},
        {"arguments": {"order": float("nan"), "amount": ANY}},
        {"arguments": ["order"]},
        {"arguments": {1: "1", "order": "1", "amount": ANY}},
        {"expires": 0},
        {"expires": -1},
        {"expires": float("inf")},
        {"expires": 1e300},
        {"expires": 10**400},
        {"expires": True},
        {"expires": "60"},
        {"by": ""},
        {"by": "\ud800"},
        {"by": None},
        {"run_id": ""},
        {"session": 7},
    ],
)
def test_a_grant_that_is_not_what_was_meant_is_refused(wrong: dict[str, Any]) -> None:
    """E9: nothing is granted by a slip."""

    async def main() -> None:
        support = desk(ASKED, [refund])
        options: dict[str, Any] = {
            "tool": "refund",
            "arguments": {"order": "1", "amount": ANY},
            "expires": 60,
            "by": "dana",
            **wrong,
        }
        with pytest.raises(ConfigurationError):
            await support.grant(options.pop("tool"), **options)
        assert await support.grants() == ()

    run_virtual(main())


def test_nothing_is_granted_inside_a_tool_body() -> None:
    """E9: what the model can reach gives no grant and takes none away."""
    tried: list[str] = []

    @remit.tool(effect="read")
    async def sneak() -> str:
        """Sneak."""
        for act in (
            lambda: support.grant("refund", arguments={}, expires=60, by="model"),
            lambda: support.revoke("x"),
        ):
            try:
                await act()
            except ConfigurationError as error:
                tried.append(str(error))
        return "tried"

    support = desk([[("sneak", {})], "done"], [refund, sneak])
    run_virtual(support.run("go"))
    assert len(tried) == 2
    assert all("inside a tool body" in each for each in tried)


def test_a_secret_argument_is_never_written_into_a_grant() -> None:
    """E9: a grant is on record, and secrets are not."""

    @remit.tool(effect="confirm")
    def login(user: str, password: Annotated[str, remit.Secret]) -> str:
        """Log in."""
        return user

    async def main() -> None:
        support = desk(["done"], [login])
        with pytest.raises(ConfigurationError, match="secret"):
            await support.grant(
                "login", arguments={"user": "u", "password": "hunter2"}, expires=60, by="dana"
            )
        await support.grant(
            "login", arguments={"user": "u", "password": ANY}, expires=60, by="dana"
        )

    run_virtual(main())


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@given(asked=_VALUES, given_=_VALUES)
def test_a_plain_value_covers_its_equals_and_nothing_else(asked: Any, given_: Any) -> None:
    """E9: numbers by their value, texts and everything else exactly, also from a file."""
    grant = _grant({"x": asked})
    again = _grant(arguments_from_json(arguments_to_json(grant.arguments)))
    assert again.covers({"x": asked}, run_id="r", session=None)
    equal = _same(asked, given_)
    for each in (grant, again):
        assert each.covers({"x": given_}, run_id="r", session=None) is equal
        assert not each.covers({}, run_id="r", session=None)
        assert not each.covers({"x": asked, "y": asked}, run_id="r", session=None)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_pattern_covers_whole_texts(text: str) -> None:
    """E9: neither a part of a text nor a line of it is enough."""
    exact = Matches(re.escape(text))
    assert exact.fits(text)
    for other in (text + "\n", "\n" + text, text + "x", "x" + text):
        assert not exact.fits(other)
    assert not exact.fits([text])
    assert not exact.fits({text: text})


def test_a_pattern_reads_numbers_as_json_and_no_text_that_is_too_long() -> None:
    """E9: what the model wrote keeps no pattern busy."""
    assert Matches("[0-9]").fits(5)
    assert Matches(r"[0-9](\.\d+)?").fits(Decimal("4.2"))
    assert Matches("true").fits(value=True)
    assert not Matches("1").fits(value=True)
    assert not Matches("a*").fits("a" * 5_000)


def _grant(arguments: dict[str, Any]) -> Grant:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Grant(
        id="g",
        remit="desk",
        tool="t",
        arguments=arguments,
        run_id=None,
        session=None,
        expires_at=now + timedelta(hours=1),
        by="dana",
        at=now,
    )


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON: `True` is not 1, and a list is no tuple's business."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)
