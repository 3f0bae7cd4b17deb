"""Calls through the loop: arguments, isolation, order, resources, and what the model is told."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest

import remit as rm
from loop_rig import (
    LIMITS,
    desk,
    everything_stored,
    is_sendable,
    model_of,
    results,
    rows,
    said,
    statuses,
    watched,
)
from remit import Call, Limits, Reason, Remit, Status, Tool, ToolError
from remit.canonical import encode
from remit.models.scripted import ScriptedModel, Step
from remit.rows import Started
from remit.testing import run_virtual

PATIENCE = 10.0  # seconds of real time, never used up by a test that passes


# --- order (T1, case 07) -------------------------------------------------------------------------


@rm.tool(effect="read")
async def echo(i: int) -> int:
    """Give the number back; a smaller one takes longer."""
    await asyncio.sleep(0.05 - i * 0.01)
    return i


async def one_run_of_five_echoes() -> tuple[bytes, list[str]]:
    remit = desk([[("echo", {"i": i}) for i in range(5)], "done"], [echo])
    outcome, events = await watched(remit, "go", run_id="same")
    assert said(outcome) == ["0", "1", "2", "3", "4"]
    sent = model_of(remit).requests[1].messages
    finished = [event.fields["id"] for event in events if event.kind == "call_settled"]
    return encode([message.to_json() for message in sent]), finished


def test_results_stand_in_call_order_and_the_request_is_the_same_in_twenty_runs() -> None:
    """T1, case 07: completion order shows in the events, never on the wire."""
    runs = [run_virtual(one_run_of_five_echoes()) for _ in range(20)]
    assert len({sent for sent, _ in runs}) == 1
    assert runs[0][1] == [f"call_1_{i}" for i in (4, 3, 2, 1, 0)]


def test_blocking_and_async_calls_of_one_turn_are_answered_in_call_order() -> None:
    """T1: whatever kind of function answers first."""

    @rm.tool(effect="read")
    def blocking(i: int) -> int:
        """Block."""
        return i

    async def main() -> None:
        remit = desk(
            [[("echo", {"i": 0}), ("blocking", {"i": 1}), ("nope", {}), ("echo", {"i": 3})], "."],
            [echo, blocking],
        )
        outcome = await remit.run("go")
        assert [result.tool_use_id for result in results(outcome)] == [
            f"call_1_{i}" for i in range(4)
        ]
        assert statuses(outcome) == ["ok", "ok", "error", "ok"]

    run_virtual(main())


# --- arguments (C2, cases 11 and 14) -------------------------------------------------------------

PURGED: list[object] = []


@rm.tool(effect="idempotent", resource=())
async def purge(where: str | None) -> str:
    """Delete what matches."""
    PURGED.append(where)
    return "purged"


@pytest.mark.parametrize(
    "text",
    [
        '{"where": "id=',
        "null",
        "[1]",
        "7",
        '"where"',
        "",
        '{"where": "a", "where": "b"}',
        '{"where": null, "force": true}',
        '{"where": 7}',
        '{"where": NaN}',
        '{"where": null} and more',
        "x" * 2_000_000,
        '{"where": "' + "y" * 2_000_000,
        '{"' + "z" * 2_000_000 + '": null}',
    ],
)
def test_arguments_that_do_not_fit_run_nothing_and_leave_the_siblings_alone(text: str) -> None:
    """C2, C1, case 11: that call alone gets an error, with the schema, bounded."""

    async def main() -> None:
        PURGED.clear()
        remit = desk(
            [[("echo", {"i": 0}), ("purge", text), ("echo", {"i": 2})], "done"], [echo, purge]
        )
        outcome = await remit.run("go")
        assert outcome.completed
        assert statuses(outcome) == ["ok", "error", "ok"]
        answer = said(outcome)[1]
        assert answer.startswith("Error: ")
        assert '"where"' in answer.split("JSON Schema")[1]
        assert len(answer) < 2_000
        assert PURGED == []

    run_virtual(main())


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ({"tags": '["a"]'}, ("tags", ["a"])),
        ({"comment": "[draft] {x}"}, ("comment", "[draft] {x}")),
        ({"comment": '["a"]'}, ("comment", '["a"]')),
        ({"comment": "7"}, ("comment", "7")),
        ({"count": "7"}, ("count", 7)),
        ({"count": "7 boxes"}, None),
        ({"count": "7.5"}, None),
        ({"count": "07"}, None),
        ({"amount": "12.30"}, ("amount", Decimal("12.30"))),
    ],
)
def test_text_is_read_as_json_only_where_the_schema_wants_no_string(
    arguments: Mapping[str, Any], seen: tuple[str, object] | None
) -> None:
    """C2, case 14: a coercion parses whole and then validates; strings stay untouched."""
    got: dict[str, object] = {}

    @rm.tool(effect="read")
    async def note(
        tags: list[str] | None = None,
        comment: str = "",
        count: int = 0,
        amount: Decimal = Decimal(0),
    ) -> str:
        """Take a note."""
        got.update(tags=tags, comment=comment, count=count, amount=amount)
        return "noted"

    async def main() -> None:
        outcome = await desk([[("note", dict(arguments))], "done"], [note]).run("go")
        if seen is None:
            assert (statuses(outcome), got) == (["error"], {})
        else:
            assert statuses(outcome) == ["ok"]
            assert got[seen[0]] == seen[1]
            assert type(got[seen[0]]) is type(seen[1])

    run_virtual(main())


@pytest.mark.parametrize(("name", "runs"), [("ping", True), ("echo", False)])
def test_no_text_at_all_means_no_arguments_only_where_none_are_required(
    name: str, runs: bool
) -> None:
    """C2, case 14: '' is {} for a tool that requires nothing."""

    @rm.tool(effect="read")
    async def ping() -> str:
        """Answer."""
        return "pong"

    async def main() -> None:
        outcome = await desk([[(name, "")], "done"], [ping, echo]).run("go")
        assert (statuses(outcome) == ["ok"]) is runs

    run_virtual(main())


def test_digits_of_a_decimal_reach_the_body_and_the_approval_as_the_model_wrote_them() -> None:
    """C2: 0.10 is not 0.1000000000000000055."""
    seen: list[Decimal] = []

    @rm.tool(effect="confirm")
    async def pay(amount: Decimal) -> str:
        """Pay."""
        seen.append(amount)
        return "paid"

    async def main() -> None:
        amount = "123456789012345678.10"
        remit = desk([[("pay", f'{{"amount": {amount}}}')], "done"], [pay])
        outcome = await remit.run("go")
        assert "123456789012345678.1" in outcome.pending[0].arguments
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        await remit.resume(outcome.run_id)
        assert seen == [Decimal(amount)]

    run_virtual(main())


# --- isolation (C1, case 24) ---------------------------------------------------------------------


class Hostile:
    """Its text cannot be had, and neither can that of its error."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _raise(error: BaseException) -> Any:
    raise error


@rm.tool(effect="read")
async def ok() -> str:
    """Work."""
    await asyncio.sleep(0.005)
    return "fine"


WRITTEN: list[str] = []


@rm.tool(effect="idempotent")
async def slow_write(call: Call[Any]) -> str:
    """Write, slowly."""
    await asyncio.sleep(0.2)
    WRITTEN.append(call.key)
    return "written"


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such row"),
        ToolError("not today"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        StopIteration(1),
        MemoryError(),
        RecursionError(),
        BaseException("base"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failing_call_leaves_its_siblings_and_the_run_alone(
    error: BaseException, blocking: bool
) -> None:
    """C1, case 24: whatever it raises is that call's error result, and the siblings keep theirs."""

    async def boom_async() -> str:
        """Fail."""
        await asyncio.sleep(0.01)
        raise error

    def boom_blocking() -> str:
        """Fail."""
        raise error

    boom: Tool[..., Any] = rm.tool(effect="read", name="boom")(
        boom_blocking if blocking else boom_async
    )

    async def main() -> None:
        WRITTEN.clear()
        remit = desk(
            [[("ok", {}), ("boom", {}), ("slow_write", {})], "done"], [ok, boom, slow_write]
        )
        outcome = await remit.run("go")
        assert outcome.reason is Reason.COMPLETED
        assert statuses(outcome) == ["ok", "error", "ok"]
        assert [result.is_error for result in results(outcome)] == [False, True, False]
        assert said(outcome)[1].startswith("Error")
        assert len(WRITTEN) == 1
        assert len(model_of(remit).requests[1].messages[-1].tool_results) == 3

    run_virtual(main())


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize(
    "value", [object(), {1, object()}, Hostile(), float, iter([]), {"a": {"b": object()}}]
)
def test_a_result_that_cannot_be_written_is_an_error_that_says_what_took_place(
    value: object, effect: Any
) -> None:
    """C1, C4: the model learns that an effect was carried out although its result is lost."""

    async def act() -> object:
        """Act."""
        return value

    tool = rm.tool(effect=effect)(act)

    async def main() -> None:
        outcome = await desk([[("act", {}), ("ok", {})], "done"], [tool, ok]).run("go")
        assert outcome.completed
        if statuses(outcome)[0] != "ok":  # whatever can be written is no error
            assert ("carried out" in said(outcome)[0]) is (effect == "idempotent")
        assert is_sendable(outcome.transcript)
        assert statuses(outcome)[1] == "ok"

    run_virtual(main())


def test_an_effect_whose_result_is_a_bare_object_says_that_it_was_carried_out() -> None:
    """C1: not every odd value happens to be writable; this one is not."""

    @rm.tool(effect="idempotent")
    async def act() -> object:
        """Act."""
        return object()

    async def main() -> None:
        outcome = await desk([[("act", {})], "done"], [act]).run("go")
        assert statuses(outcome) == ["error"]
        assert "carried out" in said(outcome)[0]

    run_virtual(main())


@pytest.mark.parametrize(
    ("name", "near"),
    [("get_ordr", "get_order"), ("GET_ORDER", "get_order"), ("zzz", None), ("q" * 500_000, None)],
)
def test_an_unknown_tool_is_answered_with_names_that_look_like_it(
    name: str, near: str | None
) -> None:
    """C1: near matches where there are any, and no more text than that."""

    @rm.tool(effect="read")
    async def get_order() -> str:
        """Look."""
        return "found"

    async def main() -> None:
        model = ScriptedModel([[(name, {}), ("get_order", {})], "done"], strict=False)
        outcome = await desk(model, [get_order]).run("go")
        assert outcome.completed
        assert statuses(outcome) == ["error", "ok"]
        text = said(outcome)[0]
        assert len(text) < 400
        assert (near is None) or (f"Did you mean {near}" in text)
        assert (near is not None) or ("Did you mean" not in text)

    run_virtual(main())


@pytest.mark.parametrize(
    ("value", "text"), [("", "(no output)"), (None, "null"), ([], "[]"), ({}, "{}"), ("x", "x")]
)
def test_no_two_kinds_of_nothing_look_alike(value: object, text: str) -> None:
    """C4: a `str` is sent as it stands, anything else as JSON, and nothing is ever blank."""

    @rm.tool(effect="read")
    async def give() -> object:
        """Give."""
        return value

    async def main() -> None:
        outcome = await desk([[("give", {})], "done"], [give]).run("go")
        if value == "":
            assert said(outcome)[0].strip()
            assert said(outcome)[0] not in {"null", "[]", "{}"}
        else:
            assert said(outcome) == [text]

    run_virtual(main())


@pytest.mark.parametrize("text", ["a\x00b", "half \ud83d pair", '{"role":"system"}', "\x1b[2J"])
def test_a_result_is_opaque_and_well_formed(text: str) -> None:
    """C4: what could break a request is replaced; what merely looks like one stays text."""

    @rm.tool(effect="read")
    async def give() -> str:
        """Give."""
        return text

    async def main() -> None:
        outcome = await desk([[("give", {})], "done"], [give]).run("go")
        assert outcome.completed
        said(outcome)[0].encode()
        assert "\x00" not in said(outcome)[0]

    run_virtual(main())


@pytest.mark.parametrize("stop", ["length", "refusal", "filter", "stop_sequence", "unknown"])
def test_a_reply_that_did_not_end_well_runs_none_of_its_calls(stop: str) -> None:
    """C3: its complete calls are answered "not run", reads that began early included."""
    ran: list[str] = []

    @rm.tool(effect="idempotent")
    async def write(call: Call[Any]) -> str:
        """Write."""
        ran.append(call.key)
        return "written"

    async def main() -> None:
        reason = rm.StopReason(stop)
        remit = desk([Step([("write", {}), ("ok", {})], stop_reason=reason), "done"], [write, ok])
        outcome = await remit.run("go")
        assert ran == []
        assert statuses(outcome) == ["not_started", "not_started"]
        assert all(text.startswith("Not run: ") for text in said(outcome))
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_a_call_that_the_output_limit_cut_is_dropped_and_the_second_cut_ends_the_run() -> None:
    """C3: a half-written call is never completed for the model."""

    async def main() -> None:
        cut = Step([("ok", {}), ("ok", '{"a')], stop_reason=rm.StopReason.LENGTH)
        remit = desk([cut, cut, "never"], [ok])
        outcome = await remit.run("go")
        assert outcome.reason is Reason.OUTPUT_TRUNCATED
        assert statuses(outcome) == ["not_started", "not_started"]
        assert model_of(remit).asked == 2

    run_virtual(main())


# --- resources (C5) ------------------------------------------------------------------------------


class Log:
    """When which call began and ended."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, float]] = []

    def __call__(self, what: str) -> None:
        self.entries.append((what, round(asyncio.get_running_loop().time(), 6)))

    def order(self) -> list[str]:
        return [what for what, _ in self.entries]


def traced(log: Log) -> list[Tool[..., Any]]:
    async def work(kind: str, seconds: float, who: str) -> str:
        log(f"+{who}")
        await asyncio.sleep(seconds)
        log(f"-{who}")
        return kind

    @rm.tool(effect="idempotent", resource="order:{order}")
    async def write(order: str, who: str, seconds: float = 0.1) -> str:
        """Write."""
        return await work("w", seconds, who)

    @rm.tool(effect="read", resource="order:{order}")
    async def read(order: str, who: str, seconds: float = 0.1) -> str:
        """Read."""
        return await work("r", seconds, who)

    @rm.tool(effect="idempotent")
    async def undeclared(who: str, seconds: float = 0.1) -> str:
        """Write something."""
        return await work("u", seconds, who)

    @rm.tool(effect="read")
    async def look(who: str, seconds: float = 0.1) -> str:
        """Look."""
        return await work("l", seconds, who)

    return [write, read, undeclared, look]


def test_calls_on_one_resource_run_in_call_order_if_either_writes() -> None:
    """C5: write, read, read, write on order 1; order 2 does not wait."""

    async def main() -> None:
        log = Log()
        remit = desk(
            [
                [
                    ("write", {"order": "1", "who": "a", "seconds": 0.3}),
                    ("read", {"order": "1", "who": "b", "seconds": 0.2}),
                    ("read", {"order": "1", "who": "c", "seconds": 0.1}),
                    ("write", {"order": "1", "who": "d", "seconds": 0.1}),
                    ("write", {"order": "2", "who": "e", "seconds": 0.1}),
                ],
                "done",
            ],
            traced(log),
        )
        await remit.run("go")
        assert log.order() == ["+a", "+e", "-e", "-a", "+b", "+c", "-c", "-b", "+d", "-d"]

    run_virtual(main())


def test_undeclared_writes_are_ordered_among_themselves_and_undeclared_reads_never_wait() -> None:
    """C5: nobody knows what an undeclared write touches."""

    async def main() -> None:
        log = Log()
        remit = desk(
            [
                [
                    ("undeclared", {"who": "a", "seconds": 0.3}),
                    ("look", {"who": "x"}),
                    ("undeclared", {"who": "b"}),
                    ("write", {"order": "1", "who": "w"}),
                ],
                "done",
            ],
            traced(log),
        )
        await remit.run("go")
        begun = {what: at for what, at in log.entries if what.startswith("+")}
        assert begun == {"+a": 0.0, "+x": 0.0, "+w": 0.0, "+b": 0.3}

    run_virtual(main())


def test_two_runs_exclude_each_other_on_one_resource() -> None:
    """C5: across runs of a process a resource is a mutual exclusion; reads share it."""

    async def main() -> None:
        log = Log()

        def one(kind: str, who: str) -> Remit[Any]:
            return desk([[(kind, {"order": "9", "who": who})], "done"], traced(log), name=who)

        await asyncio.gather(one("write", "a").run("go"), one("write", "b").run("go"))
        assert log.order() == ["+a", "-a", "+b", "-b"]
        log.entries.clear()
        await asyncio.gather(one("read", "a").run("go"), one("read", "b").run("go"))
        assert log.order() == ["+a", "+b", "-a", "-b"]

    run_virtual(main())


def test_a_child_may_take_what_its_parent_call_holds() -> None:
    """C5: re-entrant down the path from parent call to child, and still shut to others."""

    async def main() -> None:
        log = Log()
        child = desk(
            [[("write", {"order": "1", "who": "child"})], "done"], traced(log), name="child"
        )

        @rm.tool(effect="idempotent", resource="order:1")
        async def delegate() -> str:
            """Delegate."""
            log("+parent")
            outcome = await child.run("do it")
            log("-parent")
            return outcome.text

        other = desk([[("write", {"order": "1", "who": "other"})], "done"], traced(log), name="o")
        parent = desk([[("delegate", {})], "done"], [delegate])
        first, _ = await asyncio.gather(parent.run("go"), other.run("go"))
        assert statuses(first) == ["ok"]
        assert log.order() == ["+parent", "+child", "-child", "-parent", "+other", "-other"]

    run_virtual(main())


def test_the_clock_of_a_call_runs_while_it_waits_for_its_resource() -> None:
    """C7, case 43: what waits too long is not entered, and says that it was not."""

    async def main() -> None:
        log = Log()

        @rm.tool(effect="idempotent", resource="order:1", timeout=0.05)
        async def hasty() -> str:
            """Write soon."""
            log("+hasty")
            return "w"

        remit = desk(
            [[("write", {"order": "1", "who": "a", "seconds": 1}), ("hasty", {})], "done"],
            [*traced(log), hasty],
        )
        outcome = await remit.run("go")
        assert "+hasty" not in log.order()
        assert statuses(outcome) == ["ok", "not_started"]

    run_virtual(main())


# --- blocking functions (C6, case 26) ------------------------------------------------------------

CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


def test_blocking_tools_of_a_turn_run_side_by_side_while_the_loop_goes_on() -> None:
    """C6, case 26: four meet at a barrier, the event loop releases them, each sees the caller."""
    barrier, released = threading.Barrier(5), threading.Event()
    seen: list[str] = []

    @rm.tool(effect="read")
    def block(i: int) -> int:
        """Block until all are here and the loop says so."""
        barrier.wait(PATIENCE)
        assert released.wait(PATIENCE)
        seen.append(CALLER.get())
        return i

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            CALLER.set("dana")
            model = ScriptedModel([[("block", {"i": i}) for i in range(4)], "done"])
            remit: Remit[Any] = Remit(name="threads", model=model, tools=[block], limits=LIMITS)
            task = asyncio.create_task(remit.run("go"))
            await asyncio.to_thread(barrier.wait, PATIENCE)
            released.set()  # only a loop that goes on can say so
            outcome = await task
            assert said(outcome) == ["0", "1", "2", "3"]
            assert seen == ["dana"] * 4

    asyncio.run(main())


# --- how often a body runs: memo, retries, computed values, the cap ------------------------------


def test_equal_deterministic_calls_share_one_execution_in_flight_and_later() -> None:
    """C1, C5: memoised for the run; a failure is not remembered, another run starts anew."""
    entered: list[int] = []

    @rm.tool(effect="read", deterministic=True)
    async def square(n: int) -> int:
        """Square."""
        entered.append(n)
        await asyncio.sleep(0.01)
        return n * n

    async def main() -> None:
        remit = desk(
            [
                [("square", {"n": 3}), ("square", '{"n": 3.0}'), ("square", {"n": 4})],
                [("square", {"n": 3})],
                "done",
                [("square", {"n": 3})],
                "done",
            ],
            [square],
        )
        outcome = await remit.run("go")
        assert said(outcome) == ["9", "9", "16", "9"]
        assert sorted(entered) == [3, 4]
        assert outcome.spend.own.calls == 2
        await remit.run("again")
        assert sorted(entered) == [3, 3, 4]

    run_virtual(main())


def test_equal_deterministic_calls_that_begin_while_the_reply_streams_share_one_execution() -> None:
    """C1, C5: the first has no row yet, and counts all the same."""
    entered: list[int] = []

    @rm.tool(effect="read", deterministic=True)
    async def square(n: int) -> int:
        """Square."""
        entered.append(n)
        await asyncio.sleep(0.15)
        return n * n

    async def main() -> None:
        turn = Step([("square", {"n": 3})] * 3, between=0.1)
        outcome = await desk([turn, "done"], [square]).run("go")
        assert said(outcome) == ["9", "9", "9"]
        assert entered == [3]
        assert outcome.spend.own.calls == 1

    run_virtual(main())


def test_a_deterministic_call_that_failed_is_executed_again() -> None:
    """C1: only a good result is worth remembering."""
    entered: list[int] = []

    @rm.tool(effect="read", deterministic=True)
    async def flaky(n: int) -> int:
        """Fail once."""
        entered.append(n)
        if len(entered) == 1:
            raise RuntimeError("not yet")
        return n

    async def main() -> None:
        outcome = await desk([[("flaky", {"n": 1})], [("flaky", {"n": 1})], "."], [flaky]).run("go")
        assert statuses(outcome) == ["error", "ok"]

    run_virtual(main())


def test_what_the_host_computes_is_hidden_from_the_model_and_journaled_unless_secret() -> None:
    """C8, E2: the model cannot see or set it, and it does not change the key of the call."""
    got: list[tuple[str, str, str]] = []

    @rm.tool(effect="idempotent")
    async def book(
        what: str,
        today: Annotated[str, rm.Computed(lambda: "2026-01-01")],
        api_key: Annotated[str, rm.Computed(lambda: "sk-very-secret", secret=True)],
        call: Call[Any],
    ) -> str:
        """Book."""
        got.append((what, today, api_key))
        return call.key

    async def main() -> None:
        remit = desk(
            [[("book", {"what": "a"}), ("book", {"what": "a", "today": "1999-01-01"})], "done"],
            [book],
        )
        outcome = await remit.run("go")
        assert set(book.parameters["properties"]) == {"what"}
        assert got == [("a", "2026-01-01", "sk-very-secret")]
        assert statuses(outcome) == ["ok", "error"]
        started = [row for row in await rows(remit, outcome.run_id) if isinstance(row, Started)]
        assert [dict(row.computed) for row in started] == [{"today": "2026-01-01"}]
        assert isinstance(remit.store, rm.MemoryStore)
        assert b"very-secret" not in await everything_stored(remit.store, outcome.run_id)
        assert said(outcome)[0].split(":")[2] == "book"

    run_virtual(main())


def test_a_computed_value_that_fails_keeps_the_body_out() -> None:
    """C1, C8: the call gets an error result and the siblings theirs."""
    entered: list[str] = []

    def broken() -> str:
        raise RuntimeError("no clock")

    @rm.tool(effect="idempotent")
    async def book(today: Annotated[str, rm.Computed(broken)]) -> str:
        """Book."""
        entered.append(today)
        return "booked"

    async def main() -> None:
        outcome = await desk([[("book", {}), ("ok", {})], "done"], [book, ok]).run("go")
        assert statuses(outcome) == ["error", "ok"]
        assert entered == []

    run_virtual(main())


def test_a_retry_gets_the_arguments_as_they_were_and_the_same_key() -> None:
    """C1, E2: a body that changes what it got does not spoil its own second attempt."""
    seen: list[tuple[dict[str, Any], str]] = []

    async def handler(arguments: dict[str, Any], call: Call[Any]) -> str:
        seen.append((copy.deepcopy(arguments), call.key))
        arguments.pop("items").clear()
        if len(seen) < 3:
            raise RuntimeError("again")
        return "done"

    tool = Tool[..., Any].from_schema(
        name="load",
        description="Load.",
        parameters={
            "type": "object",
            "properties": {"items": {"type": "array", "items": {"type": "integer"}}},
            "required": ["items"],
        },
        handler=handler,
        effect="idempotent",
        retries=2,
    )

    async def main() -> None:
        outcome = await desk([[("load", {"items": [1, 2]})], "done"], [tool]).run("go")
        assert statuses(outcome) == ["ok"]
        assert [arguments for arguments, _ in seen] == [{"items": [1, 2]}] * 3
        assert len({key for _, key in seen}) == 1
        assert outcome.spend.own.calls == 1

    run_virtual(main())


def test_a_tool_error_is_said_on_purpose_and_never_retried() -> None:
    """C1: its text reaches the model."""
    entered: list[int] = []

    @rm.tool(effect="read", retries=3)
    async def fail() -> str:
        """Fail."""
        entered.append(1)
        raise ToolError("the carrier is closed on Sundays")

    async def main() -> None:
        outcome = await desk([[("fail", {})], "done"], [fail]).run("go")
        assert entered == [1]
        assert "closed on Sundays" in said(outcome)[0]

    run_virtual(main())


def test_hidden_errors_tell_the_model_that_and_not_why() -> None:
    """C1: `errors="hidden"`."""

    @rm.tool(effect="read", errors="hidden")
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("password=hunter2")

    async def main() -> None:
        remit = desk([[("fail", {})], "done"], [fail])
        outcome = await remit.run("go")
        assert statuses(outcome) == ["error"]
        assert "hunter2" not in str(outcome.transcript.to_json())

    run_virtual(main())


def test_a_turn_runs_at_most_128_calls_and_answers_the_others() -> None:
    """C8, T1: of 130 calls the first 128 run, the last two are answered "not run"."""
    entered: list[int] = []

    @rm.tool(effect="read")
    async def tick(n: int) -> int:
        """Tick."""
        entered.append(n)
        return n

    async def main() -> None:
        outcome = await desk([[("tick", {"n": n}) for n in range(130)], "."], [tick]).run("go")
        assert sorted(entered) == list(range(128))
        assert statuses(outcome) == ["ok"] * 128 + ["not_started"] * 2
        assert "128" in said(outcome)[-1]

    run_virtual(main())


@pytest.mark.parametrize("kind", ["sync generator", "async generator"])
def test_a_generator_is_a_tool_like_any_other(kind: str) -> None:
    """C1, C4: what it yields is collected; an error half-way is the call's error."""

    def sync_pages(stop: bool = False) -> Iterator[int]:
        """Pages."""
        yield 1
        if stop:
            raise RuntimeError("no more")
        yield 2

    async def async_pages(stop: bool = False) -> Any:
        """Pages."""
        yield 1
        if stop:
            raise RuntimeError("no more")
        yield 2

    body: Any = sync_pages if kind == "sync generator" else async_pages
    pages = rm.tool(effect="read", name="pages")(body)

    async def main() -> None:
        outcome = await desk([[("pages", {}), ("pages", {"stop": True})], "."], [pages]).run("go")
        assert statuses(outcome) == ["ok", "error"]
        assert "1" in said(outcome)[0]
        assert "2" in said(outcome)[0]

    run_virtual(main())


# --- wrong use is told before anything is sent ---------------------------------------------------


def test_wrong_use_is_refused_before_anything_is_sent() -> None:
    """C1: your mistake is an exception, the model's is a result."""

    async def plain() -> str:
        """Plain."""
        return "x"

    async def main() -> None:
        model = ScriptedModel(["never"])
        with pytest.raises(rm.ConfigurationError, match="effect"):
            rm.tool(plain)
        with pytest.raises(rm.ConfigurationError, match="ok"):
            desk(model, [ok, rm.tool(effect="read", name="ok")(plain)])
        with pytest.raises(rm.ConfigurationError, match="plain function"):
            desk(model, [plain])  # type: ignore[list-item]
        with pytest.raises(rm.ConfigurationError, match="limits"):
            desk(model, limits=None)
        with pytest.raises(rm.ConfigurationError, match="name"):
            desk(model, name="")
        for broken in ({"steps": 0}, {"tokens": -1}, {"seconds": float("nan")}, {"usd": 0}):
            with pytest.raises(rm.ConfigurationError):
                Limits(**{"steps": 1, "tokens": 1, "seconds": 1, **broken})  # type: ignore[arg-type]
        with pytest.raises(rm.ConfigurationError):
            Tool[..., Any].from_schema(
                name="x",
                description="X.",
                parameters={"type": "object", "properties": {"a": {"type": "nonsense"}}},
                handler=plain,
                effect="read",
            )
        remit = desk(model, [ok])
        for prompt in ("", "  \n", ()):
            with pytest.raises(rm.ConfigurationError, match="prompt"):
                await remit.run(prompt)
        with pytest.raises(rm.ConfigurationError, match="history"):
            await remit.run("go", history=[{"role": "user"}])  # type: ignore[arg-type]
        with pytest.raises(rm.ConfigurationError, match="run_id"):
            await remit.run("go", run_id="")
        with pytest.raises(rm.ConfigurationError, match="no run"):
            await remit.resume("unknown")
        no_tool: Any = object()
        with pytest.raises(rm.ConfigurationError, match="no tool"):
            desk(model, [no_tool])
        assert model.asked == 0

    run_virtual(main())


def test_a_status_outlives_the_run_in_its_transcript() -> None:
    """C1: status and key are kept with the result, for whoever reads the outcome."""

    async def main() -> None:
        outcome = await desk([[("ok", {}), ("nope", {})], "done"], [ok]).run("go", run_id="r1")
        first, second = results(outcome)
        assert (first.status, second.status) == (Status.OK, Status.ERROR)
        assert first.key is not None
        assert first.key.startswith("r1:1:ok:")
        assert second.key is None

    run_virtual(main())


def test_a_deadline_of_the_calendar_reaches_the_tools() -> None:
    """C7: never past the run's deadline."""

    @rm.tool(effect="read")
    async def forever() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    async def main() -> None:
        from loop_rig import EPOCH

        limits = Limits(
            steps=9, tokens=10_000, seconds=3_600, deadline=EPOCH + timedelta(seconds=5)
        )
        outcome = await desk(
            [[("forever", {})], "done"], [forever], limits=limits, hand_back=False
        ).run("go")
        assert outcome.reason is Reason.DEADLINE
        assert statuses(outcome) == ["error"]
        assert asyncio.get_running_loop().time() <= 5.5

    run_virtual(main())
