"""A run that is taken up by a newer program: what changed is told, and what would do harm is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from typing_extensions import TypedDict

import remit
from loop_rig import desk, results, rows, said, statuses, watched
from remit import Call, ConfigurationError, Limits, MemoryStore, Reason, Remit, Status, Transcript
from remit.models.base import ModelProfile
from remit.models.scripted import ScriptedModel
from remit.rows import Activated
from remit.testing import CrashStore, crash_points, run_virtual
from remit.testing.crash import CrashPoint, Scenario
from remit.tools import Tool


def pay(effect: str = "confirm", **options: Any) -> Tool[..., Any]:
    @remit.tool(name="pay", effect=effect, **options)  # pyright: ignore[reportArgumentType] - any effect
    async def body(amount: int, call: Call[Any]) -> str:
        """Pay."""
        call.deps.done(call.key)
        return f"paid {amount}"

    return body


@remit.tool(name="pay", effect="confirm")
async def pay_in(amount: int, call: Call[Any], currency: str = "EUR") -> str:
    """Pay, in another schema."""
    call.deps.done(call.key)
    return f"paid {amount} {currency}"


@remit.tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


class Deps:
    """A world that counts."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def done(self, key: str) -> None:
        self.keys.append(key)


def says(transcript: Transcript, _: Any) -> Any:
    last = transcript.last
    return "done" if last is not None and last.tool_results else ("pay", {"amount": 7})


def of(store: Any, *tools: Any, name: str = "scripted") -> Remit[Any]:
    return desk(ScriptedModel(says, name=name), list(tools), store=store)


def test_what_changed_is_recorded_and_told_once() -> None:
    """J10, J3: other tools and another model are no reason to stop, and no secret."""

    async def main() -> None:
        store, deps = MemoryStore(), Deps()
        waiting = await of(store, pay(), look).run("go", run_id="r", deps=deps)
        await of(store, pay()).decide(waiting.pending[0].token, approve=True, by="dana")

        @remit.tool(effect="read")
        async def new() -> str:
            """New."""
            return "new"

        events: list[Any] = []
        resumed = of(store, pay(), new, name="newer")
        async with resumed.stream("go", run_id="r", deps=deps) as live:
            events = [event async for event in live]
        assert live.outcome.completed
        [told] = [event for event in events if event.kind == "surroundings_changed"]
        expected = {
            "model": ["scripted", "newer"],
            "added": ["new"],
            "removed": ["look"],
            "changed": [],
        }
        assert told.to_json().items() >= expected.items()
        [row] = [row for row in await rows(resumed, "r") if isinstance(row, Activated)]
        assert {what: list(names) for what, names in row.changed.items()} == expected
        assert len(deps.keys) == 1

    run_virtual(main())


class First(TypedDict):
    """What was to be handed in."""

    total: int


class Second(TypedDict):
    """What is to be handed in now."""

    total: str


@pytest.mark.parametrize("native", [True, False])
def test_another_type_of_the_output_is_told_like_a_tool_that_changed(native: bool) -> None:
    """J10: what the run is to hand in is one of its surroundings, whether a tool takes it or the text is held to it."""

    async def resumed(now: Any) -> tuple[list[Any], list[Any]]:
        store, deps = MemoryStore(), Deps()
        profile = ModelProfile(native_output=native)

        def desk_for(output: Any) -> Remit[Any]:
            model = ScriptedModel(ends, profile=profile)
            return desk(model, [pay()], store=store, output=output)

        waiting = await desk_for(First).run("go", run_id="r", deps=deps)
        support = desk_for(now)
        await support.decide(waiting.pending[0].token, approve=True, by="dana")
        async with support.stream("go", run_id="r", deps=deps) as live:
            events = [event async for event in live]
        told = [event.fields["changed"] for event in events if event.kind == "surroundings_changed"]
        kept = [row.changed for row in await rows(support, "r") if isinstance(row, Activated)]
        return told, [row for row in kept if row]

    def ends(transcript: Transcript, request: Any) -> Any:
        last = transcript.last
        return "done" if last is not None and last.tool_results else ("pay", {"amount": 7})

    told, kept = run_virtual(resumed(Second))
    named = "(output)" if native else told[0][0]
    assert [list(each) for each in told] == [[named]]
    assert named not in ("pay", "")
    assert [list(each["changed"]) for each in kept] == [[named]]
    assert run_virtual(resumed(First)) == ([], [])


def test_nothing_is_told_where_nothing_changed() -> None:
    """J10: the same tools made anew are the same, and what was told once is not told again."""

    async def main() -> None:
        store, deps = MemoryStore(), Deps()
        asked: Callable[..., Any] = of(store, pay(), look).run
        waiting = await asked("go", run_id="r", deps=deps)
        await of(store, pay(), look).decide(waiting.pending[0].token, approve=True, by="dana")
        outcome, events = await watched(of(store, pay(), look), "go", run_id="r", deps=deps)
        assert outcome.completed
        assert not [event for event in events if event.kind == "surroundings_changed"]

    run_virtual(main())


def test_an_approval_of_a_tool_that_has_another_schema_now_is_asked_for_again() -> None:
    """J10, E5, case 67: a person said yes to a call of another tool."""

    async def main() -> None:
        store, deps = MemoryStore(), Deps()
        waiting = await of(store, pay()).run("go", run_id="r", deps=deps)
        await of(store, pay()).decide(waiting.pending[0].token, approve=True, by="dana")
        again = await of(store, pay_in).resume("r", deps=deps)
        assert again.reason is Reason.WAITING
        assert again.pending[0].id != waiting.pending[0].id
        assert deps.keys == []
        await of(store, pay_in).decide(again.pending[0].token, approve=True, by="dana")
        outcome = await of(store, pay_in).resume("r", deps=deps)
        assert said(outcome) == ["paid 7 EUR"]
        assert len(deps.keys) == 1

    run_virtual(main())


@pytest.mark.parametrize("effect", ["idempotent", "read"])
def test_a_call_is_not_carried_out_as_less_than_it_was_asked_as(effect: str) -> None:
    """J10, E1: what waits for a yes does not run without one because its tool was loosened meanwhile."""

    async def main() -> None:
        store, deps = MemoryStore(), Deps()
        first = of(store, pay())
        waiting = await first.run("go", run_id="r", deps=deps)
        before = await rows(first, "r")
        await first.decide(waiting.pending[0].token, approve=True, by="dana")
        with pytest.raises(ConfigurationError, match="cancel"):
            await of(store, pay(effect)).resume("r", deps=deps)
        assert deps.keys == []
        assert await rows(first, "r") == before
        info = await store.info("r")
        assert info is not None
        assert info.status == "waiting"
        assert (await first.resume("r", deps=deps)).completed, "the lease was given back"
        assert len(deps.keys) == 1

    run_virtual(main())


def test_a_stricter_effect_is_asked_for() -> None:
    """J10, E5: what was asked as harmless and is not any more waits for a person."""

    async def main() -> None:
        store, deps = MemoryStore(), Deps()
        held = of(store, pay("idempotent")).replace(policy=lambda _: remit.Confirm("sure?"))
        waiting = await held.run("go", run_id="r", deps=deps)
        await held.decide(waiting.pending[0].token, approve=True, by="dana")
        again = await of(store, pay()).resume("r", deps=deps)
        assert again.reason is Reason.WAITING
        assert deps.keys == []

    run_virtual(main())


def test_a_call_that_never_began_is_answered_where_its_tool_is_gone() -> None:
    """J10, C1: the model is told that there is no such tool, and the run goes on."""

    async def main() -> None:
        store, deps = MemoryStore(), Deps()
        waiting = await of(store, pay()).run("go", run_id="r", deps=deps)
        await of(store, pay()).decide(waiting.pending[0].token, approve=True, by="dana")
        outcome = await of(store, look).resume("r", deps=deps)
        assert outcome.completed
        assert statuses(outcome) == ["error"]
        assert deps.keys == []

    run_virtual(main())


def in_doubt(scenario: Scenario) -> Sequence[CrashPoint]:
    """The crashes of a scenario that leave a call begun, of which nobody knows what came of it."""
    found = [
        point
        for point in crash_points(scenario)
        if "started" in point.what and point.what.startswith("after")
    ]
    assert found
    return found


def test_a_call_in_doubt_wants_its_tool_back_or_the_end_of_its_run() -> None:
    """J10, E3: nobody may say "unknown tool" of what may have taken effect."""

    async def scenario(store: CrashStore) -> None:
        made = of(store, pay("idempotent"))
        await made.run("go", run_id="r", deps=store.ledger)

    for point in in_doubt(scenario):

        async def main(store: MemoryStore = point.store, ledger: Any = point.ledger) -> None:
            with pytest.raises(ConfigurationError, match="may have taken effect"):
                await of(store, look).resume("r", deps=ledger)
            ended = await of(store, look).cancel("r")
            assert ended.reason is Reason.CANCELLED
            assert statuses(ended) == ["unknown"]

        run_virtual(main())


async def yes(pending: remit.Pending) -> remit.Decision:
    return remit.Decision(approve=True, by="dana")


@remit.tool(name="pay", effect="confirm")
async def pay_words(amount: str, call: Call[Any]) -> str:
    """Pay, where the amount is a text."""
    call.deps.done(call.key)
    return f"paid {amount}"


@pytest.mark.parametrize("effect", ["idempotent", "confirm"])
def test_a_call_in_doubt_whose_arguments_do_not_fit_any_more_is_not_told_as_not_run(
    effect: str,
) -> None:
    """J10, E3: "the arguments do not fit" would have the model ask again for what may be done."""

    async def scenario(store: CrashStore) -> None:
        made = of(store, pay(effect)).replace(confirm=yes)
        await made.run("go", run_id="r", deps=store.ledger)

    for point in in_doubt(scenario):

        async def main(store: MemoryStore = point.store, ledger: Any = point.ledger) -> None:
            with pytest.raises(ConfigurationError, match="do not fit"):
                await of(store, pay_words).replace(confirm=yes).resume("r", deps=ledger)
            before = len(ledger.calls)
            ended = await of(store, pay_words).cancel("r")
            assert statuses(ended) == ["unknown"]
            assert len(ledger.calls) == before

        run_virtual(main())


def helper(name: str = "inner", *tools: Any) -> Tool[..., Any]:
    """A child loop that pays once, or uses the first of other tools."""
    used = tools[0].name if tools else "pay"

    def asks(transcript: Transcript, _: Any) -> Any:
        last = transcript.last
        return "done" if last is not None and last.tool_results else (used, {"amount": 7})

    inner = desk(ScriptedModel(asks), tools or [pay("idempotent")], name=name)
    return inner.as_tool("helper", "Help.", limits=Limits(steps=5, tokens=10_000, seconds=60))


@remit.tool(name="helper", effect="idempotent")
async def helper_function(task: str, call: Call[Any]) -> str:
    """Help."""
    call.deps.done(call.key)
    return task


@remit.tool(name="transfer", effect="idempotent")
async def transfer(amount: int, call: Call[Any]) -> str:
    """Pay, under another name."""
    call.deps.done(call.key)
    return f"transferred {amount}"


def helped(store: Any, tool: Tool[..., Any], times: int = 1) -> Remit[Any]:
    def asks(transcript: Transcript, _: Any) -> Any:
        turns = sum(message.role == "assistant" for message in transcript)
        return ("helper", {"task": "pay"}) if turns < times else "done"

    return desk(ScriptedModel(asks), [tool], store=store)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (helper, lambda: helper_function),
        (lambda: helper_function, helper),
        (helper, lambda: helper("other")),
    ],
    ids=["a function now", "a run now", "a run of another remit now"],
)
def test_a_child_in_doubt_is_not_exchanged_for_something_else(
    before: Callable[[], Tool[..., Any]], now: Callable[[], Tool[..., Any]]
) -> None:
    """J10, E1: what the child did would be done again under other keys."""

    async def scenario(store: CrashStore) -> None:
        await helped(store, before()).run("go", run_id="r", deps=store.ledger)

    refused = 0
    for point in crash_points(scenario):

        async def main(store: MemoryStore = point.store, ledger: Any = point.ledger) -> None:
            nonlocal refused
            try:
                await helped(store, now()).run("go", run_id="r", deps=ledger)
            except ConfigurationError:
                refused += 1
                assert (await helped(store, before()).resume("r", deps=ledger)).completed
            assert len(ledger.effects) == 1

        run_virtual(main())
    assert refused


def test_what_a_child_cannot_go_on_with_is_refused_and_unknown_to_whoever_asks_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """J10, E4: the root is refused; once it is ended the call is in doubt, so that asking again begins nothing."""

    async def scenario(store: CrashStore) -> None:
        await helped(store, helper(), times=3).run("go", run_id="r", deps=store.ledger)

    async def lost(store: MemoryStore, ledger: Any) -> None:
        other = helped(store, helper("inner", transfer), times=3)
        before = await rows(other, "r")
        with pytest.raises(ConfigurationError, match=r"there is no 'pay' now.*cancel"):
            await other.resume("r", deps=ledger)
        assert await rows(other, "r") == before, (
            "whoever resumes hears of it, and nothing is changed"
        )
        ended = await other.cancel("r")
        assert statuses(ended) == ["unknown"]
        outcome = await other.run("again", history=ended.transcript, deps=ledger)
        assert outcome.completed
        assert statuses(outcome) == ["unknown"] * 3
        assert len({result.key for result in results(outcome)}) == 1
        assert not any("r:1:helper" in text for text in said(outcome)), "no model sees a key"
        assert not [key for key in ledger.effects if "transfer" in key]

    point = next(
        point
        for point in crash_points(scenario)
        if point.what == "after append running: replied started"
        and any("inner" in run_id for run_id in point.runs)
    )
    run_virtual(lost(point.store, point.ledger))
    assert "there is no 'pay' now" in caplog.text


def around(store: Any, name: str, *tools: Any, times: int = 1) -> Remit[Any]:
    """A remit with an ordinary tool whose body runs a remit of this name, which pays once."""
    used = tools[0].name if tools else "pay"

    def asks(transcript: Transcript, _: Any) -> Any:
        last = transcript.last
        return "done" if last is not None and last.tool_results else (used, {"amount": 7})

    inner = desk(ScriptedModel(asks), tools or [pay("idempotent")], name=name)

    @remit.tool(name="helper", effect="idempotent")
    async def body(task: str, call: Call[Any]) -> str:
        """Help."""
        outcome = await inner.run(task, deps=call.deps)
        return outcome.raise_for_reason().text

    return helped(store, body, times)


@pytest.mark.parametrize(
    ("name", "tools"),
    [("other", ()), ("inner", (transfer,))],
    ids=["another remit now", "without its tool now"],
)
def test_a_run_inside_an_ordinary_body_is_not_exchanged_for_something_else(
    name: str, tools: tuple[Any, ...]
) -> None:
    """J10, E1, E4: what it began is unknown, also when the model asks again, and nothing is done under another key."""

    async def scenario(store: CrashStore) -> None:
        await around(store, "inner", times=3).run("go", run_id="r", deps=store.ledger)

    lost = 0
    for point in crash_points(scenario):

        async def main(store: MemoryStore = point.store, ledger: Any = point.ledger) -> None:
            nonlocal lost
            done = len(ledger.effects)
            outcome = await around(store, name, *tools, times=3).run("go", run_id="r", deps=ledger)
            assert outcome.completed
            assert len(ledger.effects) <= 3
            unknown = {each.key for each in results(outcome) if each.status is Status.UNKNOWN}
            if unknown:
                lost += 1
                assert len(unknown) == 1
                assert len(ledger.effects) == done
                assert statuses(outcome)[-1] == "unknown", (
                    "it stays so, however often it is asked for"
                )

        run_virtual(main())
    assert lost


def test_a_run_inside_an_ordinary_body_is_taken_up_where_nothing_changed() -> None:
    """J10, E1: the same body with the same remit finds its run, at every point, and nothing is done twice."""

    async def scenario(store: CrashStore) -> None:
        await around(store, "inner").run("go", run_id="r", deps=store.ledger)

    for point in crash_points(scenario):

        async def main(store: MemoryStore = point.store, ledger: Any = point.ledger) -> None:
            outcome = await around(store, "inner").run("go", run_id="r", deps=ledger)
            assert statuses(outcome) == ["ok"]
            assert len(ledger.effects) == 1

        run_virtual(main())


def test_a_body_that_is_retried_asks_for_the_same_runs_inside() -> None:
    """E1, E2: a retry is no new call, nor are the calls of the runs inside."""

    async def main() -> None:
        deps, tries = Deps(), list[int]()
        inner = desk(ScriptedModel(says), [pay("idempotent")], name="inner")

        @remit.tool(name="helper", effect="idempotent", retries=2)
        async def body(task: str, call: Call[Any]) -> str:
            """Help."""
            outcome = await inner.run(task, deps=call.deps)
            tries.append(1)
            if len(tries) < 3:
                raise OSError("the line is down")
            return outcome.text

        outcome = await helped(MemoryStore(), body).run("go", deps=deps)
        assert statuses(outcome) == ["ok"]
        assert len(tries) == 3
        assert len(deps.keys) == 1
        assert outcome.spend.tree.calls == 2

    run_virtual(main())


def test_very_many_tools_are_told_as_one() -> None:
    """J10, J1: the first row of a run does not grow with a catalogue."""

    async def main() -> None:
        async def body(arguments: dict[str, Any]) -> str:
            return "x"

        def many(count: int) -> list[Tool[..., Any]]:
            schema = {"type": "object", "properties": {}}
            return [
                Tool.from_schema(
                    name=f"t{n}", description="T.", parameters=schema, handler=body, effect="read"
                )
                for n in range(count)
            ]

        store, deps = MemoryStore(), Deps()
        waiting = await of(store, pay(), *many(500)).run("go", run_id="r", deps=deps)
        assert len((await store.read("r"))[0].body) < 2_000
        await of(store, pay()).decide(waiting.pending[0].token, approve=True, by="dana")
        outcome, events = await watched(of(store, pay(), *many(501)), "go", run_id="r", deps=deps)
        assert outcome.completed
        [told] = [event for event in events if event.kind == "surroundings_changed"]
        assert told.fields["changed"] == ["*"]

    run_virtual(main())
