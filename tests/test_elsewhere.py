"""Tools that are executed elsewhere: handed out once, after the whole gate, and brought back by `supply`."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

import remit as rm
from loop_rig import (
    LIMITS,
    desk,
    is_sendable,
    model_of,
    results,
    rows,
    said,
    statuses,
    virtual_now,
    watched,
)
from remit import (
    ConfigurationError,
    Decision,
    DecisionError,
    Limits,
    Outcome,
    Pending,
    Reason,
    Refuse,
    Tool,
    Transcript,
)
from remit.models.scripted import Step
from remit.rows import HandedOut, Supplied
from remit.supervise import ABANDONED
from remit.testing import SimulatedWorkers, run_virtual
from remit.testing.crash import CrashStore

PARAMETERS = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "grams": {"type": "number"}},
    "required": ["to"],
}


def ship(effect: Any = "idempotent", **options: Any) -> Tool[..., Any]:
    """A tool that a machine in the warehouse executes."""
    return Tool.elsewhere(
        name="ship", description="Ship.", parameters=PARAMETERS, effect=effect, **options
    )


def shipments(*to: str) -> list[tuple[str, Any]]:
    return [("ship", {"to": each}) for each in to]


def for_(outcome: Outcome[Any], to: str) -> Pending:
    (found,) = [each for each in outcome.pending if f'"to":"{to}"' in each.arguments]
    return found


@rm.tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


# --- handing out ---------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "idempotent", "confirm"])
def test_a_call_is_handed_out_with_its_exact_arguments_and_its_key(effect: str) -> None:
    """E6, E2: canonical, so that whoever executes it and whoever checks it see one text."""

    async def main() -> None:
        remit = desk([[("ship", '{ "grams": 1.50, "to": "x" }')], "done"], [ship(effect)])
        outcome, events = await watched(remit, "go", run_id="r")
        if effect == "confirm":
            await remit.decide(outcome.pending[0].token, approve=True, by="dana")
            outcome = await remit.resume("r")
        assert outcome.reason is Reason.WAITING
        (pending,) = outcome.pending
        assert (pending.kind, pending.tool, pending.token) == ("result", "ship", None)
        assert pending.arguments == '{"grams":1.5,"to":"x"}'
        digest = hashlib.sha256(pending.arguments.encode()).hexdigest()[:16]
        assert pending.key == f"r:1:ship:{digest}:1"
        assert pending.summary == 'ship(grams=1.5, to="x")'
        assert pending.schema is None
        told = [event.fields["wants"] for event in events if event.kind == "pending"]
        assert told == (["approval"] if effect == "confirm" else ["result"])
        assert outcome.spend.own.calls == 1
        await remit.supply(pending.id, {"parcel": 7}, by="warehouse")
        outcome = await remit.resume("r")
        assert outcome.completed
        assert (said(outcome), statuses(outcome)) == (['{"parcel":7}'], ["ok"])
        assert results(outcome)[0].key == pending.key
        assert outcome.spend.own.calls == 1
        assert model_of(remit).asked == 2

    run_virtual(main())


def test_whoever_executes_it_is_shown_the_summary_of_its_author() -> None:
    """E6: the same words as for an approval."""
    tool = ship()

    @tool.summary
    def _(to: str) -> str:
        return f"Ship to {to}"

    async def main() -> None:
        outcome = await desk([shipments("Oslo"), "done"], [tool]).run("go")
        assert outcome.pending[0].summary == "Ship to Oslo"

    run_virtual(main())


@pytest.mark.parametrize(
    ("value", "is_error", "text", "status"),
    [
        ("as it stands", False, "as it stands", "ok"),
        ({"n": Decimal("0.10"), "a": [None, True]}, False, '{"n":0.10,"a":[null,true]}', "ok"),
        ([], False, "[]", "ok"),
        (None, False, "null", "ok"),
        ("", False, None, "ok"),
        ("out of paper", True, "Error: out of paper", "error"),
        ({"code": 5}, True, '{"code":5}', "error"),
    ],
)
def test_what_is_supplied_becomes_the_result_like_any_value(
    value: Any, is_error: bool, text: str | None, status: str
) -> None:
    """C4: told apart, well-formed and never blank."""

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship()])
        outcome = await remit.run("go")
        await remit.supply(outcome.pending[0].id, value, is_error=is_error)
        outcome = await remit.resume(outcome.run_id)
        assert statuses(outcome) == [status]
        assert said(outcome)[0].strip()
        assert text is None or said(outcome) == [text]
        assert results(outcome)[0].is_error == is_error

    run_virtual(main())


def test_what_is_supplied_passes_the_output_budget() -> None:
    """C4: and is cut like any other."""

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship(max_result_tokens=50)])
        outcome = await remit.run("go")
        await remit.supply(outcome.pending[0].id, "begin " + "x" * 100_000 + " end")
        (text,) = said(await remit.resume(outcome.run_id))
        assert len(text) < 1_000
        assert text.startswith("begin")

    run_virtual(main())


def test_what_is_supplied_is_redacted_like_what_tools_return() -> None:
    """R2: errors too; and where that fails nothing of it is shown."""

    def redact(text: str) -> str:
        if "poison" in text:
            raise ValueError(text)
        return text.replace("hunter2", "***")

    async def main() -> None:
        remit = desk([shipments("x", "y", "z"), "done"], [ship()], redact=redact)
        outcome = await remit.run("go")
        await remit.supply(for_(outcome, "x").id, {"pin": "hunter2"})
        await remit.supply(for_(outcome, "y").id, "no hunter2", is_error=True)
        await remit.supply(for_(outcome, "z").id, "poison hunter2")
        posted = await remit.store.inbox(outcome.run_id)
        assert not [each for each in posted if b"hunter2" in each.body]
        outcome = await remit.resume(outcome.run_id)
        kept = [row for row in await remit.store.read(outcome.run_id) if b"hunter2" in row.body]
        assert kept == []
        assert said(outcome)[:2] == ['{"pin":"***"}', "Error: no ***"]
        assert "withheld" in said(outcome)[2]
        assert statuses(outcome) == ["ok", "error", "error"]

    run_virtual(main())


def test_what_is_supplied_to_a_run_inside_keeps_to_the_redaction_of_that_run() -> None:
    """R2: who brings it holds the outer remit, which need not know what the inner one hides."""
    seen: list[str] = []

    def ending(transcript: Transcript) -> str:
        seen.extend(result.text for result in transcript[-1].tool_results)
        return "child done"

    async def main() -> None:
        child = desk(
            [shipments("x"), ending],
            [ship()],
            name="child",
            redact=lambda text: text.replace("hunter2", "***"),
        )
        act = child.as_tool("delegate", "Delegate.", limits=LIMITS)
        parent = desk([[("delegate", {"task": "go"})], "done"], [act])
        outcome = await parent.run("go")
        await parent.supply(outcome.pending[0].id, "pin hunter2")
        assert (await parent.resume(outcome.run_id)).completed
        assert seen == ["pin ***"]

    run_virtual(main())


def test_a_large_result_is_read_and_told_off_the_event_loop() -> None:
    """C6: by whoever supplies it, and by the run that takes it in."""

    class Counted(SimulatedWorkers):
        submitted = 0

        def submit(self, fn: Any) -> Any:
            self.submitted += 1
            return super().submit(fn)

    async def main() -> None:
        workers = Counted()
        runtime = rm.Runtime(workers=workers, now=virtual_now)
        remit = desk([shipments("x", "y"), "done"], [ship()], runtime=runtime)
        outcome = await remit.run("go")
        await remit.supply(for_(outcome, "x").id, "small")
        assert workers.submitted == 0
        await remit.supply(for_(outcome, "y").id, ["large"] * 100_000)
        assert workers.submitted == 1
        outcome = await remit.resume(outcome.run_id)
        assert workers.submitted == 2
        assert statuses(outcome) == ["ok", "ok"]
        with pytest.raises(DecisionError):
            await remit.supply("gone", "small")

    run_virtual(main())


def test_what_somebody_else_brought_is_redacted_when_it_becomes_a_result() -> None:
    """R2: by a remit that redacts nothing, in another process perhaps."""

    async def main() -> None:
        remit = desk(
            [shipments("x"), "done"], [ship()], redact=lambda text: text.replace("hunter2", "***")
        )
        outcome = await remit.run("go")
        await remit.replace(redact=None).supply(outcome.pending[0].id, {"pin": "hunter2"})
        assert said(await remit.resume(outcome.run_id)) == ['{"pin":"***"}']

    run_virtual(main())


@pytest.mark.parametrize("wrong", [b"x", object(), float("inf"), {1: 2}, {"x": {1, 2}}])
def test_what_is_no_json_is_refused_and_nothing_is_used_up(wrong: Any) -> None:
    """E6: an image or an object of Python's has no place in a journal."""

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship()])
        outcome = await remit.run("go")
        with pytest.raises(ConfigurationError, match="no JSON"):
            await remit.supply(outcome.pending[0].id, wrong)
        assert list(await remit.store.inbox(outcome.run_id)) == []
        await remit.supply(outcome.pending[0].id, "ok")
        assert (await remit.resume(outcome.run_id)).completed

    run_virtual(main())


def test_a_result_is_supplied_once() -> None:
    """T4, E5: the second finds nothing open, before the run has heard of the first and after."""

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship()])
        outcome = await remit.run("go")
        pending = outcome.pending[0]
        with pytest.raises(DecisionError):
            await remit.decide(id=pending.id, approve=True, by="dana")
        await remit.supply(pending.id, "first")
        with pytest.raises(DecisionError) as caught:
            await remit.supply(pending.id, "second")
        assert caught.value.why == "used"
        assert said(await remit.resume(outcome.run_id)) == ["first"]
        with pytest.raises(DecisionError) as caught:
            await remit.supply(pending.id, "third")
        assert caught.value.why == "used"
        kept = [row for row in await rows(remit, outcome.run_id) if isinstance(row, Supplied)]
        assert len(kept) == 1

    run_virtual(main())


def test_a_tool_that_is_elsewhere_has_nothing_to_call_here() -> None:
    """C8: and says so; its arguments are shown and checked as any tool's."""
    tool = ship()
    assert tool.is_elsewhere
    assert tool.spec.parameters["additionalProperties"] is False
    with pytest.raises(ConfigurationError, match="executed elsewhere"):
        tool(to="x")


@pytest.mark.parametrize(
    "options",
    [
        {"effect": None},
        {"effect": "write"},
        {"name": "no\nname"},
        {"parameters": {"type": "array"}},
        {"parameters": {"$ref": "http://elsewhere.example"}},
        {"expires": 0},
        {"usd": -1},
        {"resource": "{nobody}"},
    ],
)
def test_a_wrong_definition_is_refused_where_it_is_made(options: dict[str, Any]) -> None:
    """C1: as for every tool."""
    given: dict[str, Any] = {
        "name": "ship",
        "description": "Ship.",
        "parameters": PARAMETERS,
        "effect": "read",
        **options,
    }
    with pytest.raises(ConfigurationError):
        Tool.elsewhere(**given)


def test_a_call_that_was_approved_before_the_callback_was_asked_stays_out_until_it_comes_back() -> (
    None
):
    """E5, E6, E3: a decision that lay in the inbox leaves nothing to ask, and the call that is out waits."""
    ship = Tool.elsewhere(
        name="ship", description="Ships.", parameters={"type": "object"}, effect="confirm"
    )

    async def confirm(pending: Pending) -> Decision:
        raise AssertionError("it was decided")

    async def main() -> None:
        remit = desk([[("ship", {})], "done"], [ship])
        [asked] = (await remit.run("go", run_id="r")).pending
        await remit.decide(id=asked.id, approve=True, by="dana")
        outcome = await remit.replace(confirm=confirm).resume("r")
        assert outcome.reason is Reason.WAITING
        [out] = outcome.pending
        assert out.kind == "result"
        await remit.supply(out.id, "shipped")
        assert said(await remit.resume("r")) == ["shipped"]

    run_virtual(main())


def test_an_edited_and_approved_call_is_handed_out_as_edited() -> None:
    """E5, E2: the edited arguments, under a key of their own, and the model is told."""

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship("confirm")])
        outcome = await remit.run("go", run_id="r")
        first = outcome.pending[0]
        edit = {"to": "y"}
        await remit.decide(first.token, approve=True, by="dana", edit=edit)
        outcome = await remit.resume("r")
        (pending,) = outcome.pending
        assert pending.arguments == '{"to":"y"}'
        digest = hashlib.sha256(b'{"to":"y"}').hexdigest()[:16]
        assert pending.key == f"r:1:ship:{digest}:1"
        await remit.supply(pending.id, "shipped")
        outcome = await remit.resume("r")
        assert said(outcome) == ['[dana changed the arguments to {"to":"y"}]\nshipped']
        assert results(outcome)[0].key == pending.key

    run_virtual(main())


def test_it_can_be_renamed_and_filtered_but_nothing_here_stands_around_it() -> None:
    """C8: a wrapper that is never entered would only seem to guard something."""
    open_ = [True]

    @rm.wrap_tools
    async def around(invocation: rm.Invocation, proceed: rm.Proceed) -> Any:
        return await proceed()

    with pytest.raises(ConfigurationError, match="executed elsewhere"):
        around([look, ship()])

    async def main() -> None:
        tools = rm.prefix("dock_", rm.filter(lambda tool: open_[0], [ship()]))
        remit = desk([("dock_ship", {"to": "x"}), ("dock_ship", {"to": "y"}), "done"], tools)
        outcome = await remit.run("go")
        assert outcome.pending[0].tool == "dock_ship"
        open_[0] = False
        await remit.supply(outcome.pending[0].id, "shipped")
        outcome = await remit.resume(outcome.run_id)
        assert statuses(outcome) == ["ok", "refused"]

    run_virtual(main())


# --- while it is out -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations("xyz")))
def test_results_reach_the_calls_that_they_were_made_for_in_whatever_order(
    order: Sequence[str],
) -> None:
    """E6, T1, case 63: one by one, over resumes."""

    async def main() -> None:
        remit = desk([[*shipments("x", "y", "z"), ("look", {"what": "a"})], "done"], [ship(), look])
        outcome = await remit.run("go")
        pendings = {to: for_(outcome, to) for to in order}
        assert [p.id for p in outcome.pending] == [pendings[to].id for to in "xyz"]
        for to in order:
            await remit.supply(pendings[to].id, f"for {to}")
            outcome = await remit.resume(outcome.run_id)
        assert outcome.completed
        assert said(outcome) == ["for x", "for y", "for z", "saw a"]
        handed = [row for row in await rows(remit, outcome.run_id) if isinstance(row, HandedOut)]
        assert len(handed) == 3
        assert model_of(remit).asked == 2

    run_virtual(main())


def test_calls_behind_one_that_is_out_wait_for_it_and_others_do_not() -> None:
    """E6, C5: on its resource, in order."""
    log: list[str] = []

    @rm.tool(effect="idempotent", resource="to:{to}")
    async def write(to: str) -> str:
        """Write."""
        log.append(to)
        return f"wrote {to}"

    async def main() -> None:
        tool = ship(resource="to:{to}")
        calls = [*shipments("x"), ("write", {"to": "x"}), ("write", {"to": "y"})]
        remit = desk([calls, "done"], [tool, write])
        outcome = await remit.run("go")
        assert log == ["y"]
        await remit.supply(outcome.pending[0].id, "shipped")
        outcome = await remit.resume(outcome.run_id)
        assert log == ["y", "x"]
        assert said(outcome) == ["shipped", "wrote x", "wrote y"]

    run_virtual(main())


def test_it_is_handed_out_when_what_holds_its_resource_in_this_process_is_done() -> None:
    """C5: it waits for its turn like a body."""
    log: list[str] = []

    @rm.tool(effect="idempotent", resource="dock")
    async def load() -> str:
        """Load."""
        await asyncio.sleep(10)
        log.append("loaded")
        return "loaded"

    async def main() -> None:
        loading = desk([[("load", {})], "done"], [load], name="other")
        remit = desk([shipments("x"), "done"], [ship(resource="dock")])
        other = asyncio.ensure_future(loading.run("go"))
        await asyncio.sleep(1)
        async with remit.stream("go") as live:
            async for event in live:
                if event.kind == "pending":
                    log.append("handed out")
        await other
        assert log == ["loaded", "handed out"]

    run_virtual(main())


def test_the_view_of_a_call_that_is_out_says_so() -> None:
    """T2: it may have taken effect, and nobody is told that it did not run."""

    async def main() -> None:
        for effect in ("read", "idempotent"):
            outcome = await desk([shipments("x"), "done"], [ship(effect)]).run("go")
            assert statuses(outcome) == ["unknown"]
            assert said(outcome)[0].startswith("Left pending: it was handed out")
            assert ("may have taken effect" in said(outcome)[0]) == (effect != "read")
            assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_an_undecided_run_gives_the_same_outcome() -> None:
    """E6, J3: nothing is handed out again."""

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship()])
        outcome = await remit.run("go")
        for _ in range(3):
            assert await remit.resume(outcome.run_id) == outcome
        assert model_of(remit).asked == 1

    run_virtual(main())


def test_inside_a_child_the_root_waits_and_is_resumed() -> None:
    """E6, L3: whoever supplies it is told which run to resume."""

    async def main() -> None:
        child = desk([shipments("x"), "child done"], [ship()], name="child")
        act = child.as_tool("delegate", "Delegate.", limits=LIMITS)
        parent = desk([[("delegate", {"task": "go"})], "done"], [act])
        outcome = await parent.run("go", run_id="r")
        (pending,) = outcome.pending
        assert (pending.kind, pending.path) == ("result", ("desk", "child"))
        assert await parent.supply(pending.id, "shipped") == "r"
        outcome = await parent.resume("r")
        assert said(outcome) == ["child done"]
        assert outcome.spend.tree.calls == 2

    run_virtual(main())


@pytest.mark.parametrize("expires", [None, 60])
@pytest.mark.parametrize("to", ["x", "xy", "xyz"])
def test_results_that_come_while_the_run_still_works_are_taken_in_without_a_pause(
    to: str, expires: float | None
) -> None:
    """E6: also where their time is over when the run comes to look, each once and for its own call."""

    @rm.tool(effect="read", timeout=200)
    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(100)
        return "slept"

    async def main() -> None:
        calls = [*shipments(*to), ("slow", {})]
        remit = desk([calls, "done"], [ship(expires=expires), slow])
        async with remit.stream("go") as live:
            async for event in live:
                if event.kind == "pending":
                    await remit.supply(event.fields["id"], event.fields["summary"])
        assert live.outcome.completed
        assert said(live.outcome) == [*(f'ship(to="{each}")' for each in to), "slept"]
        handed = [r for r in await rows(remit, live.outcome.run_id) if isinstance(r, HandedOut)]
        assert len(handed) == len(to)

    run_virtual(main())


# --- the ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "status"), [("read", "error"), ("idempotent", "unknown"), ("confirm", "unknown")]
)
@pytest.mark.parametrize("how", ["cancelled", "expired", "forked"])
def test_a_call_that_is_out_when_nobody_waits_any_more_is_told_truly(
    effect: str, status: str, how: str
) -> None:
    """E4, E6, K1, case 31: never as not started; the result that comes too late is refused."""

    async def main() -> None:
        tool, store = ship(effect, expires=60), rm.MemoryStore()
        remit = desk([shipments("x"), "done"], [tool], store=store)
        outcome = await remit.run("go")
        if effect == "confirm":
            await remit.decide(outcome.pending[0].token, approve=True, by="dana")
            outcome = await remit.resume(outcome.run_id)
        pending = outcome.pending[0]
        match how:
            case "cancelled":
                closed = await remit.cancel(outcome.run_id)
                assert "it was handed out, and the run was stopped" in said(closed)[0]
            case "expired":
                await asyncio.sleep(61)
                closed = await remit.resume(outcome.run_id)
                assert closed.completed
                assert "nobody answered in time" in said(closed)[0]
            case _:
                on = await desk(["fine"], [tool], store=store).run("x", history=outcome.transcript)
                assert on.completed
                closed = await remit.resume(outcome.run_id)
                assert "the conversation went on without it" in said(closed)[0]
        assert statuses(closed) == [status]
        assert ("may have taken effect" in said(closed)[0]) == (effect != "read")
        with pytest.raises(DecisionError) as caught:
            await remit.supply(pending.id, "late")
        assert caught.value.why in ("used", "expired", "stale")
        kept = [row for row in await rows(remit, outcome.run_id) if isinstance(row, HandedOut)]
        assert len(kept) == 1

    run_virtual(main())


def test_a_result_that_came_in_before_a_cancel_is_not_thrown_away() -> None:
    """K1, T4: what is known is told, also where nothing goes on."""

    async def main() -> None:
        remit = desk([shipments("x", "y"), "done"], [ship()])
        outcome = await remit.run("go")
        await remit.supply(for_(outcome, "x").id, "shipped")
        outcome = await remit.cancel(outcome.run_id)
        assert outcome.reason is Reason.CANCELLED
        assert statuses(outcome) == ["ok", "unknown"]
        assert said(outcome)[0] == "shipped"

    run_virtual(main())


def test_a_result_that_was_taken_in_just_before_its_time_was_over_counts() -> None:
    """E6: what the store took from somebody is never given up as missed."""

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship(expires=60)])
        outcome = await remit.run("go")
        await asyncio.sleep(59)
        await remit.supply(outcome.pending[0].id, "shipped")
        await asyncio.sleep(100)
        assert said(await remit.resume(outcome.run_id)) == ["shipped"]

    run_virtual(main())


def test_the_next_equal_call_of_the_conversation_is_handed_out_under_the_same_key() -> None:
    """E4: whoever executes it knows it by its key, and does it once."""

    async def main() -> None:
        store = rm.MemoryStore()
        remit = desk([shipments("x"), "done"], [ship()], store=store)
        outcome = await remit.run("go")
        key = outcome.pending[0].key
        cancelled = await remit.cancel(outcome.run_id)
        again = desk([shipments("x"), "done"], [ship()], store=store)
        outcome = await again.run("once more", history=cancelled.transcript)
        assert outcome.pending[0].key == key
        fork = await desk(["fine"], [ship()], store=store).run("x", history=outcome.transcript)
        assert fork.completed
        with pytest.raises(DecisionError):
            await again.supply(outcome.pending[0].id, "late")

    run_virtual(main())


def test_an_equal_confirmed_call_is_approved_again_with_a_word_of_warning() -> None:
    """E4, E5: the doubt about the first is shown to whoever approves the second."""

    async def main() -> None:
        store = rm.MemoryStore()
        remit = desk([shipments("x"), "done"], [ship("confirm")], store=store)
        outcome = await remit.run("go")
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        outcome = await remit.resume(outcome.run_id)
        assert outcome.pending[0].kind == "result"
        cancelled = await remit.cancel(outcome.run_id)
        again = desk([shipments("x"), "done"], [ship("confirm")], store=store)
        outcome = await again.run("once more", history=cancelled.transcript)
        assert outcome.pending[0].kind == "approval"
        assert "may already have taken effect" in outcome.pending[0].summary

    run_virtual(main())


def test_a_result_is_still_the_result_when_its_tool_has_become_another() -> None:
    """E6, T4: a deployment in between takes no result away, and runs nothing instead."""
    entered: list[str] = []

    @rm.tool(effect="idempotent", name="ship")
    async def shipped_here(to: str) -> str:
        """Ship."""
        entered.append(to)
        return "here"

    async def main() -> None:
        for tools in ([shipped_here], []):
            store = rm.MemoryStore()
            remit = desk([shipments("x"), "done"], [ship()], store=store)
            outcome = await remit.run("go", run_id="r")
            await remit.supply(outcome.pending[0].id, "shipped there")
            deployed = desk(["done"], tools, store=store)
            assert said(await deployed.resume("r")) == ["shipped there"]
        assert entered == []

    run_virtual(main())


# --- the gate and the budget ---------------------------------------------------------------------


def test_handing_out_counts_as_a_call_and_costs_what_it_declares() -> None:
    """L1, L2: of three, the first two in call order."""

    async def main() -> None:
        limits = Limits(steps=5, tokens=100_000, seconds=60, calls=2, usd=Decimal(5))
        remit = desk([shipments("x", "y", "z"), "done"], [ship(usd=2, tokens=10)], limits=limits)
        outcome = await remit.run("go")
        assert len(outcome.pending) == 2
        assert statuses(outcome)[2] == "not_started"
        assert outcome.spend.own.calls == 2
        assert Decimal(4) <= outcome.spend.own.usd < Decimal(5)
        for pending in outcome.pending:
            await remit.supply(pending.id, "shipped")
        outcome = await remit.resume(outcome.run_id)
        assert statuses(outcome) == ["ok", "ok", "not_started"]
        assert outcome.reason is Reason.CALL_BUDGET
        assert outcome.spend.own.calls == 2

    run_virtual(main())


def test_waiting_for_a_result_costs_no_active_time() -> None:
    """L4: neither a day nor the ceiling of the call."""

    async def main() -> None:
        limits = Limits(steps=5, tokens=100_000, seconds=60)
        remit = desk([shipments("x"), "done"], [ship(timeout=5)], limits=limits)
        outcome = await remit.run("go")
        await asyncio.sleep(80_000)
        await remit.supply(outcome.pending[0].id, "shipped")
        outcome = await remit.resume(outcome.run_id)
        assert outcome.completed
        assert outcome.spend.own.seconds < 1

    run_virtual(main())


def test_a_policy_is_asked_before_a_call_is_handed_out() -> None:
    """C8: and what it refuses nobody sees."""

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship()], policy=lambda request: Refuse("no"))
        outcome, events = await watched(remit, "go")
        assert statuses(outcome) == ["refused"]
        assert not [event for event in events if event.kind == "pending"]

    run_virtual(main())


def test_a_vetoed_turn_hands_nothing_out() -> None:
    """C8, case 33: effects wait for the guards."""

    async def guard(transcript: Any) -> rm.Veto:
        await asyncio.sleep(1)
        return rm.Veto("not like this")

    async def main() -> None:
        remit = desk([shipments("x"), "done"], [ship()], guards=(guard,))
        outcome, events = await watched(remit, "go")
        assert outcome.reason is Reason.VETOED
        assert statuses(outcome) == ["not_started"]
        assert not [event for event in events if event.kind == "pending"]

    run_virtual(main())


def test_a_read_is_not_handed_out_before_its_reply_is_whole() -> None:
    """C3: what has left the process cannot be discarded."""

    async def main() -> None:
        said_before = ["text", *shipments("x"), "more"]
        step = Step(said_before, between=1, error=rm.ModelUnavailable("busy"))
        outcome, events = await watched(desk([step, "done"], [ship("read")]), "go")
        assert outcome.completed
        assert not [event for event in events if event.kind == "pending"]
        assert outcome.spend.own.calls == 0

    run_virtual(main())


def test_after_a_cancel_nothing_is_told_as_handed_out() -> None:
    """K1: the row may be written already; then the call is unknown, and nobody was given it by an event."""

    async def main() -> None:
        store = CrashStore(latency=0.5)
        remit = desk([shipments("x"), "done"], [ship()], store=store)
        events: list[str] = []
        async with remit.stream("go", run_id="r") as live:

            async def hear() -> None:
                async for event in live:
                    events.append(event.kind)

            hearing = asyncio.ensure_future(hear())
            await asyncio.sleep(0.2)  # the transaction that hands it out is under way
            assert not any("handed_out" in commit.what for commit in store.commits)
            outcome = await live.cancel()
            await hearing
        assert any("handed_out" in commit.what for commit in store.commits)
        assert outcome.reason is Reason.CANCELLED
        assert statuses(outcome) == ["unknown"]
        assert "pending" not in events
        assert not ABANDONED.names

    run_virtual(main())
