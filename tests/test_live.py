"""A run in the hands of its caller: events, text, input, cancel, detach, and the ways to leave the block."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from loop_rig import desk, is_sendable, model_of, results, said, statuses
from remit import (
    ConfigurationError,
    Decision,
    Event,
    Limits,
    Live,
    ModelUnavailable,
    Pending,
    Reason,
    Remit,
    Text,
    tool,
)
from remit.audience import QUEUE_EVENTS, Audience
from remit.models.scripted import ScriptedModel, Step
from remit.supervise import ABANDONED
from remit.testing import run_virtual
from remit.testing.crash import CrashStore


@tool(effect="read", eager=False)
async def look(seconds: float = 1) -> str:
    """Looks around for a while."""
    await asyncio.sleep(seconds)
    return "seen"


@tool(effect="confirm")
async def pay() -> str:
    """Pays."""
    return "paid"


def said_by_user(remit: Remit[Any], request: int) -> list[str]:
    """The plain texts of the user in a request, in order."""
    return [
        block.text
        for message in model_of(remit).requests[request].messages
        if message.role == "user"
        for block in message.content
        if isinstance(block, Text)
    ]


def test_the_events_of_a_run_come_in_order_and_end_with_it() -> None:
    """K1: iteration ends by itself, and the outcome is there then and not before."""

    async def main() -> None:
        remit = desk([["One moment.", ("look", {})], "done"], [look])
        async with remit.stream("go", run_id="r") as live:
            assert live.run_id == "r"
            with pytest.raises(ConfigurationError, match="not ended"):
                _ = live.outcome
            kinds = [event.kind async for event in live]
            assert [event async for event in live] == []
        assert kinds == [
            "run_started",
            "text",
            "replied",
            "call_started",
            "call_settled",
            "text",
            "replied",
            "run_ended",
        ]
        assert live.outcome.completed
        assert live.outcome == await remit.outcome("r")

    run_virtual(main())


def test_text_is_that_of_the_runs_own_model() -> None:
    """K1: the words of a run inside are not mixed in."""

    async def main() -> None:
        child = desk([["Child speaks."]], name="child")
        parent = desk(
            [["Parent asks. ", ("ask", {"task": "go"})], "Parent answers."],
            [child.as_tool("ask", "Ask it.", limits=child.limits)],
            name="parent",
        )
        async with parent.stream("go") as live:
            pieces = [piece async for piece in live.text()]
        assert "".join(pieces) == "Parent asks. Parent answers."

    run_virtual(main())


@pytest.mark.parametrize(
    ("again", "read"),
    [
        ("The order is late.", "The order is late."),
        ("The", "The order"),
        ("Order 1042 is late.", "The order\nOrder 1042 is late."),
        ("The old one.", "The order\nThe old one."),
    ],
)
def test_text_that_an_attempt_repeats_is_given_once(again: str, read: str) -> None:
    """E7: the reader sees no word twice; where the model says something else, it begins a new line."""

    async def main() -> None:
        broken = Step("The order", error=ModelUnavailable("dropped"))
        script = [broken, Step([again, ("look", {})]), "That is all."]
        async with desk(script, [look]).stream("go") as live:
            pieces = [piece async for piece in live.text()]
        assert "".join(pieces) == read + "That is all."
        assert live.outcome.transcript[1].text == again

    run_virtual(main())


def test_what_is_sent_while_tools_run_stands_behind_their_results() -> None:
    """T5: in the order in which it was said, and what is said to a final answer keeps the run going."""

    async def main() -> None:
        remit = desk(
            [[("look", {})], Step("All done.", delay=1), "And tuesday too."],
            [look],
        )
        async with remit.stream("go") as live:
            await asyncio.sleep(0.5)
            live.send("also monday")
            live.send(Text("and in euros"))
            await asyncio.sleep(1)  # the model is answering
            live.send("tuesday too")
        last = model_of(remit).requests[1].messages[-1]
        assert [type(block).__name__ for block in last.content] == ["ToolResult", "Text", "Text"]
        assert said_by_user(remit, 1) == ["go", "also monday", "and in euros"]
        assert said_by_user(remit, 2)[-1] == "tuesday too"
        assert live.outcome.completed
        assert live.outcome.text == "And tuesday too."

    run_virtual(main())


def test_nothing_can_be_sent_to_a_run_that_has_ended_or_waits() -> None:
    """T5, case 72: it is refused with what to do instead, never taken and lost."""

    async def main() -> None:
        remit = desk(["done"])
        async with remit.stream("go") as live:
            await live.join()
            with pytest.raises(ConfigurationError, match="ended"):
                live.send("more")
        with pytest.raises(ConfigurationError, match="ended"):
            live.send("more")
        with pytest.raises(ConfigurationError, match="empty"):
            live.send("  ")
        waits = desk([[("pay", {})], "done"], [pay])
        async with waits.stream("go") as live:
            await live.join()
            with pytest.raises(ConfigurationError):
                live.send("more")
        assert live.outcome.reason is Reason.WAITING
        assert model_of(remit).asked == 1

    run_virtual(main())


@pytest.mark.parametrize("how", ["cancel", "detach", "wait"])
def test_what_was_sent_and_not_heard_is_heard_when_the_run_goes_on(how: str) -> None:
    """T5, J3: words that were taken are not lost by a cancel, a detach or a pause for a decision."""

    async def main() -> None:
        remit = desk([[("look", {}), ("pay", {})], "done"], [look, pay])
        async with remit.stream("go") as live:
            await asyncio.sleep(0.5)
            live.send("in euros")
            if how == "cancel":
                await live.cancel()
            elif how == "detach":
                await live.detach()
        outcome = live.outcome
        assert is_sendable([*outcome.transcript])
        if how != "cancel":
            [pending] = outcome.pending or (await remit.resume(outcome.run_id)).pending
            await remit.decide(pending.token, approve=True, by="dana")
        outcome = await remit.resume(outcome.run_id, reopen=True)
        assert outcome.completed
        assert said_by_user(remit, -1)[-1] == "in euros"
        assert said_by_user(remit, -1).count("in euros") == 1

    run_virtual(main())


def test_what_is_sent_while_a_pause_is_being_written_is_heard_after_it() -> None:
    """T5, J3: the store takes a second to park the run; words of that second are not lost."""

    async def main() -> None:
        store = CrashStore(latency=1)
        remit = desk([[("pay", {})], "done"], [pay], store=store)
        async with remit.stream("go") as live:
            while "waiting" not in store.commits[-1].what:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.25)
            live.send("in euros")
        [pending] = live.outcome.pending
        await remit.decide(pending.token, approve=True, by="dana")
        assert (await remit.resume(live.outcome.run_id)).completed
        assert said_by_user(remit, -1) == ["go", "in euros"]

    run_virtual(main())


def test_a_reader_that_never_reads_costs_the_run_no_time_and_bounded_memory() -> None:
    """V2: the queue is bounded; text goes first, and how much went is told."""

    @tool(effect="read", eager=False)
    async def chatty() -> str:
        """Reports its progress all the time."""
        return "done"

    async def main() -> None:
        turns = QUEUE_EVENTS
        script = [[f"Turn {n}.", ("chatty", {"n": n})] for n in range(turns)]
        remit = desk(
            [*script, "done"],
            [tool(effect="read", eager=False, name="chatty", description="Chats.")(numbered)],
            limits=Limits(steps=turns + 1, tokens=10**9, seconds=60),
        )
        async with remit.stream("go") as live:
            await live.join()
            events = [event async for event in live]
        assert live.outcome.completed
        assert live.outcome.spend.own.seconds == 0
        assert len(events) == QUEUE_EVENTS
        assert live.dropped > turns
        assert "text" not in {event.kind for event in events[:-5]}
        assert events[-1].kind == "run_ended"

    async def numbered(n: int) -> str:
        return str(n)

    del chatty
    run_virtual(main())


def test_a_slow_reader_gets_text_in_fewer_pieces_and_loses_none() -> None:
    """V2: pieces that pile up are put together."""

    async def main() -> None:
        words = "word " * 400
        async with desk([[words]]).stream("go") as live:
            await live.join()
            pieces = [event for event in [e async for e in live] if event.kind == "text"]
        assert [piece.fields["text"] for piece in pieces] == [words]
        assert live.dropped == 0

    run_virtual(main())


def test_a_reader_may_leave_off_in_the_middle() -> None:
    """K1: leaving the block waits for the end, read or not."""

    async def main() -> None:
        remit = desk([["One moment.", ("look", {})], "done"], [look])
        async with remit.stream("go") as live:
            async for event in live:
                if event.kind == "replied":
                    break
        assert live.outcome.completed

    run_virtual(main())


def test_readers_at_the_same_time_each_get_every_event_and_come_to_an_end() -> None:
    """V2: text for one and the rest for another; neither takes anything from the other."""

    async def main() -> None:
        async def read(live: Live[str]) -> list[Event]:
            return [event async for event in live]

        async def text(live: Live[str]) -> str:
            return "".join([piece async for piece in live.text()])

        remit = desk([["One moment.", ("look", {})], "done"], [look])
        async with remit.stream("go") as live:
            first, second, words = await asyncio.gather(read(live), read(live), text(live))
        assert first == second
        assert [event.kind for event in first][-1] == "run_ended"
        assert len(first) == 8
        assert words == "One moment.done"
        assert live.dropped == 0

    run_virtual(main())


def test_a_reader_that_leaves_off_is_followed_by_one_that_goes_on_where_it_stood() -> None:
    """V2: nothing is lost in between, and nothing told twice, also of what came meanwhile."""

    async def main() -> None:
        remit = desk([["One moment.", ("look", {})], "done"], [look])
        async with remit.stream("go") as live:
            kinds: list[str] = []
            async for event in live:
                kinds.append(event.kind)
                if event.kind == "replied":
                    break
            await asyncio.sleep(0.5)
            words = ""
            async for piece in live.text():
                words += piece
                break
            kinds += [event.kind async for event in live]
        assert words == "done"
        assert kinds[:3] == ["run_started", "text", "replied"]
        assert kinds[3:] == ["replied", "run_ended"]

    run_virtual(main())


def test_a_reader_that_joins_another_hears_all_that_the_other_was_told() -> None:
    """V2: also at the very end; the other is not kept waiting."""

    async def main() -> None:
        remit = desk([[("look", {})], [("look", {})], "done"], [look])
        async with remit.stream("go") as live:
            early, told = aiter(live), list[str]()
            while not told or told[-1] != "call_settled":
                told.append((await anext(early)).kind)
            late = [event.kind async for event in live]
            told += [event.kind async for event in early]
            assert late == told
            assert (told[0], told[-1]) == ("run_started", "run_ended")
            assert [event.kind async for event in live] == told  # `early` is still there
            del early
            assert [event.kind async for event in live] == []

    run_virtual(main())


def test_a_reader_that_waits_can_be_cancelled_and_loses_nothing() -> None:
    """V2: a timeout around one event is no end of the reading."""

    async def main() -> None:
        remit = desk([[("look", {"seconds": 10})], "done"], [look])
        async with remit.stream("go") as live:
            reader, kinds = aiter(live), list[str]()
            while True:
                try:
                    async with asyncio.timeout(1):
                        kinds.append((await anext(reader)).kind)
                except TimeoutError:
                    kinds.append("...")
                except StopAsyncIteration:
                    break
        assert [kind for kind in kinds if kind != "..."][-3:] == ["text", "replied", "run_ended"]
        assert kinds.count("...") > 5
        assert kinds.count("call_settled") == 1

    run_virtual(main())


def told(kind: Any, number: int, text: str = "") -> Event:
    return Event(kind, "r", ("desk",), float(number), {"text": text})


def test_a_slow_reader_loses_nothing_to_a_fast_one() -> None:
    """V2: each has a queue of its own; text that piles up is put together for whoever is behind."""

    async def main() -> None:
        audience = Audience()
        slow, fast = audience.read(), audience.read()
        words = [f"word{n} " for n in range(3 * QUEUE_EVENTS)]
        quick = ""
        for n, word in enumerate(words):
            audience.hear(told("text", n, word))
            quick += (await anext(fast)).fields["text"]
        audience.hear(told("replied", len(words)))
        audience.end()
        texts = [event async for event in slow]
        assert [event.kind for event in texts] == ["text", "replied"]
        assert texts[0].fields["text"] == quick == "".join(words)
        assert texts[0].at == len(words) - 1
        assert audience.dropped == 0

    run_virtual(main())


def test_what_a_reader_loses_is_counted_once_and_text_goes_first() -> None:
    """V2: for each reader that lags; what was read by another is no loss of that one."""

    async def main() -> None:
        audience = Audience()
        slow, fast = audience.read(), audience.read()
        more = 50
        for n in range(QUEUE_EVENTS + more):
            audience.hear(told("text" if n % 2 else "replied", n))
            await anext(fast)
        audience.end()
        kept = [event async for event in slow]
        assert len(kept) == QUEUE_EVENTS
        assert audience.dropped == more
        assert sum(event.kind == "replied" for event in kept) == (QUEUE_EVENTS + more) // 2
        assert [event.at for event in kept] == sorted(event.at for event in kept)

    run_virtual(main())


def test_text_that_piles_up_is_put_together_once() -> None:
    """V2: when it is read; a copy of all that came before for each piece would hold up the run."""

    async def main() -> None:
        audience = Audience()
        reader = audience.read()
        pieces = [f"piece {n} " for n in range(5_000)]
        for n, piece in enumerate(pieces):
            audience.hear(told("text", n, piece))
        [kept] = audience._unread._kept
        assert kept.pieces is not None
        assert all(ours is theirs for ours, theirs in zip(kept.pieces, pieces, strict=True))
        assert (await anext(reader)).fields["text"] == "".join(pieces)

    run_virtual(main())


def test_a_reader_that_left_off_keeps_nothing_alive() -> None:
    """V2: no queue is filled for whoever has gone."""

    async def main() -> None:
        audience = Audience()
        for _ in range(3):
            audience.hear(told("replied", 1))
            async for _event in audience.read():
                break
        assert len(audience._readers) == 0

    run_virtual(main())


def test_whoever_attaches_hears_what_happens_from_then_on_and_may_cancel() -> None:
    """V2, E8, K1: leaving the block is no cancel of a run that somebody else began; asking for one is."""

    async def main() -> None:
        remit = desk([[("look", {"seconds": 10})], "never"], [look])
        async with remit.stream("go", run_id="r") as live:
            await asyncio.sleep(1)
            with contextlib.suppress(LookupError):
                async with remit.stream("go", run_id="r") as other:
                    assert other.run_id == "r"
                    raise LookupError
            assert remit.live_runs == ("r",)
            async with remit.stream("go", run_id="r") as other:
                other.send("and tuesday")
                await asyncio.sleep(1)
                outcome = await other.cancel()
                kinds = [event.kind async for event in other]
            assert outcome.reason is Reason.CANCELLED
            assert kinds == ["call_settled", "run_ended"]
        assert live.outcome == outcome
        assert [event.kind async for event in live].count("run_ended") == 1

    run_virtual(main())


@pytest.mark.parametrize(
    "error", [ValueError("mine"), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_leaving_the_block_by_an_exception_cancels_the_run(error: BaseException) -> None:
    """K1: it is closed before the exception goes on, which stays the one that was raised."""

    async def main() -> None:
        remit = desk([[("look", {"seconds": 100})], "never"], [look])
        caught: BaseException | None = None
        try:
            async with remit.stream("go", run_id="r"):
                await asyncio.sleep(1)
                raise error
        except BaseException as raised:
            caught = raised
        assert caught is error
        outcome = await remit.outcome("r")
        assert outcome.reason is Reason.CANCELLED
        assert statuses(outcome) == ["error"]
        assert remit.live_runs == ()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())


def test_a_cancel_outside_the_block_closes_the_run_and_is_raised() -> None:
    """K1: also while the block waits for the end of the run."""

    async def main() -> None:
        remit = desk([[("look", {"seconds": 100})], "never"], [look])

        async def user() -> None:
            async with remit.stream("go", run_id="r"):
                pass

        task = asyncio.create_task(user())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await remit.outcome("r")).reason is Reason.CANCELLED

    run_virtual(main())


def test_cancel_returns_the_outcome_every_time() -> None:
    """K1: twice, after the end, and at once with a detach, which a cancel outdoes."""

    async def main() -> None:
        remit = desk([[("look", {"seconds": 100})], "never"], [look])
        async with remit.stream("go") as live:
            await asyncio.sleep(1)
            left = asyncio.create_task(live.detach())
            await asyncio.sleep(0)
            first, second = await asyncio.gather(live.cancel(), live.cancel())
        assert first is second is live.outcome is await left
        assert first.reason is Reason.CANCELLED
        assert await live.cancel() is first

    run_virtual(main())


def test_a_detached_run_goes_on_where_it_stood() -> None:
    """K1, J3: what had ended is kept, what had not runs then, and the lease is free."""

    async def main() -> None:
        entered: list[float] = []

        @tool(effect="idempotent", resource=())
        async def slow() -> str:
            """Takes its time."""
            entered.append(asyncio.get_running_loop().time())
            await asyncio.sleep(5)
            return "slowly"

        remit = desk([[("look", {}), ("slow", {})], "done"], [look, slow])
        async with remit.stream("go") as live:
            await asyncio.sleep(2)
            outcome = await live.detach()
        assert outcome.reason is Reason.WAITING
        assert outcome.pending == ()
        assert [result.status for result in results(outcome)] == ["ok", "unknown"]
        assert remit.live_runs == ()
        outcome = await remit.resume(outcome.run_id)
        assert outcome.completed
        assert said(outcome) == ["seen", "slowly"]
        assert entered == [0, 2]
        assert model_of(remit).asked == 2

    run_virtual(main())


def test_a_call_that_ends_in_the_grace_of_a_detach_is_kept() -> None:
    """K1: running calls get the grace, and what they come to is recorded."""

    async def main() -> None:
        @tool(effect="idempotent")
        async def slow() -> str:
            """Finishes what it has begun."""
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(100)
            await asyncio.sleep(0.4)
            return "finished"

        remit = desk([[("slow", {})], "done"], [slow])
        async with remit.stream("go") as live:
            await asyncio.sleep(1)
            outcome = await live.detach()
        assert said(outcome) == ["finished"]
        assert ABANDONED.names == ()
        assert (await remit.resume(outcome.run_id)).completed

    run_virtual(main())


def test_a_read_that_began_early_survives_a_detach_in_mid_stream() -> None:
    """K1, C3: the reply was cut, and what had been read for it was not in vain."""

    @tool(effect="read")
    async def peek() -> str:
        """Looks at once."""
        return "peeked"

    async def main() -> None:
        remit = desk([Step([("peek", {}), "and on and on"], between=10), "done"], [peek])
        async with remit.stream("go") as live:
            await asyncio.sleep(5)
            outcome = await live.detach()
        assert said(outcome) == ["peeked"]
        assert (await remit.resume(outcome.run_id)).completed

    run_virtual(main())


def test_whoever_attaches_sees_the_end_and_cannot_cancel_by_leaving() -> None:
    """K1, E8: the run belongs to whoever started it."""

    async def main() -> None:
        remit = desk([[("look", {"seconds": 10})], "done"], [look])
        async with remit.stream("go", run_id="r") as live:
            await asyncio.sleep(1)
            attached = asyncio.create_task(remit.run("go", run_id="r"))
            follower = asyncio.create_task(remit.outcome("r"))
            await asyncio.sleep(1)
            attached.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attached
        assert live.outcome.completed
        assert await follower == live.outcome
        assert model_of(remit).asked == 2

    run_virtual(main())


def test_a_confirm_callback_is_asked_while_events_flow() -> None:
    """L4: a terminal that reads events and decides does not block itself."""

    async def main() -> None:
        told = asyncio.Event()

        async def confirm(pending: Pending) -> Decision:
            await told.wait()
            return Decision(approve=True, by="dana")

        remit = desk([[("pay", {})], "done"], [pay], confirm=confirm)
        async with remit.stream("go") as live:
            async for event in live:
                if event.kind == "pending":
                    told.set()
        assert live.outcome.completed
        assert said(live.outcome) == ["paid"]

    run_virtual(main())


def test_a_run_that_cannot_begin_raises_before_the_block() -> None:
    """L1: nothing was sent, so there is no outcome and no run."""

    async def main() -> None:
        model = ScriptedModel(["done"])
        remit = desk(model)
        with pytest.raises(ConfigurationError):
            async with remit.stream(" "):
                raise AssertionError("entered")
        assert model.asked == 0
        unbegun: Live[str] = Live()
        with pytest.raises(ConfigurationError):
            await unbegun.join()
        with pytest.raises(ConfigurationError):
            _ = unbegun.outcome

    run_virtual(main())


def test_a_run_that_is_resumed_is_in_your_hands_as_one_that_is_started() -> None:
    """K1, J3: its events are told, it can be spoken to, and leaving the block by an exception cancels it."""

    async def main() -> None:
        remit = desk([[("look", {})], "done"], [look])
        async with remit.stream("go", run_id="r") as live:
            await live.detach()
        async with remit.resuming("r") as again:
            again.send("Tuesday too")
            kinds = [event.kind async for event in again]
        assert again.outcome.text == "done"
        assert any("Tuesday too" in message.text for message in again.outcome.transcript)
        assert kinds[0] == "run_started"
        assert kinds[-1] == "run_ended"
        async with remit.resuming("r") as over:
            assert [event async for event in over] == []
        assert over.outcome == again.outcome

    run_virtual(main())
