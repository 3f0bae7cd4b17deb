"""Questions of a tool's body: who answers, what the body gets, and what the run does meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import permutations
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel

import remit as rm
from loop_rig import (
    EPOCH,
    LIMITS,
    desk,
    is_sendable,
    model_of,
    rows,
    said,
    statuses,
    watched,
)
from remit import (
    Allow,
    Call,
    ConfigurationError,
    Confirm,
    Decision,
    DecisionError,
    Limits,
    Outcome,
    Pending,
    PolicyRequest,
    PutOff,
    Reason,
    Refuse,
    Remit,
    Tool,
)
from remit.models.scripted import Step
from remit.rows import Questioned, Started, Supplied
from remit.supervise import ABANDONED
from remit.testing import run_virtual
from remit.tools.question import MAX_QUESTIONS


class Anything:
    """A value of no kind that JSON knows; its name is the same in every process."""

    def __repr__(self) -> str:
        return "anything"


ANYTHING = Anything()


@dataclass
class Address:
    street: str
    number: int


class Parcel(BaseModel):
    to: Address
    grams: Decimal


class Form:
    """A tool that asks, and a record of every entry of its body."""

    def __init__(self, *asked: tuple[Any, str], effect: Any = "read", **options: Any) -> None:
        self.asked = asked or ((str, "which?"),)
        self.entered: list[str] = []
        self.answers: list[Any] = []
        self.keys: list[str] = []
        self.effect = effect
        self.options = options

    def body(self, what: str, call: Call[Any]) -> str:
        self.entered.append(what)
        self.keys.append(call.key)
        answers = [call.ask(schema, question) for schema, question in self.asked]
        self.answers += answers
        return f"{what}: {', '.join(map(repr, answers))}"

    def tool(self, *, blocking: bool = False) -> Tool[..., Any]:
        async def form(what: str, call: Call[Any]) -> str:
            """Fill in a form."""
            return self.body(what, call)

        def blocking_form(what: str, call: Call[Any]) -> str:
            """Fill in a form."""
            return self.body(what, call)

        made = rm.tool(effect=self.effect, name="form", **self.options)
        return made(blocking_form if blocking else form)


def fill(*what: str) -> list[tuple[str, Any]]:
    return [("form", {"what": each}) for each in what]


def questions(outcome: Outcome[Any]) -> list[str]:
    return [pending.summary for pending in outcome.pending]


def why(caught: pytest.ExceptionInfo[DecisionError]) -> str:
    return caught.value.why


@rm.tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


# --- what is asked and what the body gets --------------------------------------------------------


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(
    ("schema", "supplied", "got"),
    [
        (str, "ü", "ü"),
        (int, 3, 3),
        (bool, False, False),
        (float, 2, 2.0),
        (Decimal, Decimal("0.10000000000000000001"), Decimal("0.10000000000000000001")),
        (date, "2026-05-04", date(2026, 5, 4)),
        (Literal["red", "blue"], "blue", "blue"),
        (int | None, None, None),
        (list[int], (1, 2), [1, 2]),
        (Address, {"street": "Elm", "number": 5}, Address("Elm", 5)),
        (
            Parcel,
            {"to": {"street": "Elm", "number": 5}, "grams": Decimal("1.50")},
            Parcel(to=Address("Elm", 5), grams=Decimal("1.50")),
        ),
        ({"type": "integer", "minimum": 2}, 2, 2),
        ({"type": "object", "properties": {"n": {"type": "number"}}}, {"n": 1.5}, {"n": 1.5}),
        ({}, ["x", None], ["x", None]),
    ],
    ids=str,
)
def test_a_body_gets_the_answer_in_the_type_that_it_asked_for(
    schema: Any, supplied: Any, got: Any, blocking: bool
) -> None:
    """E6, C1: types and JSON Schemas, in `async def` and in `def`."""

    async def main() -> None:
        form = Form((schema, "which?"))
        remit = desk([fill("a"), "done"], [form.tool(blocking=blocking)])
        outcome = await remit.run("go")
        assert outcome.reason is Reason.WAITING
        (pending,) = outcome.pending
        assert (pending.kind, pending.summary, pending.tool) == ("input", "which?", "form")
        assert (pending.arguments, pending.token, pending.key) == ('{"what":"a"}', None, None)
        assert pending.schema is not None
        assert await remit.supply(pending.id, supplied) == outcome.run_id
        outcome = await remit.resume(outcome.run_id)
        assert outcome.completed
        assert form.answers == [got]
        assert type(form.answers[0]) is type(got)
        assert said(outcome) == [f"a: {got!r}"]
        assert model_of(remit).asked == 2

    run_virtual(main())


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("blocking", [False, True])
def test_answers_come_back_in_the_order_of_asking_to_a_body_that_begins_again(
    effect: str, blocking: bool
) -> None:
    """E6, E2: from the top, under the same key, and it counts as one call."""

    async def main() -> None:
        form = Form((int, "one?"), (str, "two?"), (bool, "three?"), effect=effect, usd=1)
        limits = Limits(steps=5, tokens=100_000, seconds=60, calls=1, usd=Decimal("1.1"))
        remit = desk([fill("a"), "done"], [form.tool(blocking=blocking)], limits=limits)
        outcome = await remit.run("go")
        for n, (question, answer) in enumerate([("one?", 1), ("two?", "x"), ("three?", True)], 1):
            assert questions(outcome) == [question]
            assert len(form.entered) == n
            assert outcome.spend.own.calls == 1
            await remit.supply(outcome.pending[0].id, answer)
            outcome = await remit.resume(outcome.run_id)
        assert outcome.completed
        assert said(outcome) == ["a: 1, 'x', True"]
        assert len(set(form.keys)) == 1
        assert outcome.spend.own.calls == 1
        assert Decimal(1) < outcome.spend.own.usd < Decimal("1.1")

    run_virtual(main())


def test_every_entry_of_an_effect_that_asks_is_durable_before_it() -> None:
    """E3: the start is written again, and what the host computed stays what it was."""
    drawn: list[int] = []

    def draw() -> int:
        drawn.append(len(drawn))
        return drawn[-1]

    got: list[tuple[int, str]] = []

    @rm.tool(effect="idempotent")
    async def form(n: Annotated[int, rm.Computed(draw)], call: Call[Any]) -> str:
        """Fill in a form."""
        got.append((n, call.ask(str, "which?")))
        return "filled in"

    async def main() -> None:
        remit = desk([[("form", {})], "done"], [form])
        outcome = await remit.run("go")
        await remit.supply(outcome.pending[0].id, "this")
        assert (await remit.resume(outcome.run_id)).completed
        assert (drawn, got) == ([0], [(0, "this")])
        kept = [type(row) for row in await rows(remit, outcome.run_id)]
        assert kept.count(Started) == 2
        assert kept.index(Started) < kept.index(Questioned) < kept.index(Supplied)

    run_virtual(main())


def test_another_question_in_the_place_of_one_that_was_answered_is_told_as_an_error() -> None:
    """E6: who asks by the clock or by chance gets no answer that was given to something else."""
    asked = iter(["a number?", "a colour?"])

    @rm.tool(effect="read")
    async def fickle(call: Call[Any]) -> str:
        """Ask something."""
        return str(call.ask(str, next(asked)))

    async def main() -> None:
        remit = desk([[("fickle", {}), ("look", {"what": "x"})], "done"], [fickle, look])
        outcome = await remit.run("go")
        await remit.supply(outcome.pending[0].id, "3")
        outcome = await remit.resume(outcome.run_id)
        assert outcome.completed
        assert statuses(outcome) == ["error", "ok"]
        assert "not deterministic" in said(outcome)[0]

    run_virtual(main())


def test_a_body_that_swallows_its_question_has_its_say_and_leaves_nothing_open() -> None:
    """E6, C1: the value that it returns is the result; what it raises instead is its error."""

    @rm.tool(effect="read", eager=False)
    async def swallow(how: str, call: Call[Any]) -> str:
        """Ask and not listen."""
        try:
            return str(call.ask(str, "one?"))
        except BaseException as error:
            if how == "raise":
                raise RuntimeError("no") from error
            with contextlib.suppress(BaseException):
                call.ask(str, "two?")
            return "never mind"

    async def main() -> None:
        calls = [("swallow", {"how": "return"}), ("swallow", {"how": "raise"})]
        outcome = await (remit := desk([calls, "done"], [swallow])).run("go")
        assert outcome.completed
        assert statuses(outcome) == ["ok", "error"]
        assert said(outcome)[0] == "never mind"
        assert not [r for r in await rows(remit, outcome.run_id) if isinstance(r, Questioned)]

    run_virtual(main())


@pytest.mark.parametrize("how", ["gather", "group", "nested"])
def test_tasks_of_a_body_may_ask_and_are_answered_in_the_order_of_asking(how: str) -> None:
    """E6, K2: a task group wraps what ends it, and it is a question all the same."""

    @rm.tool(effect="read", eager=False)
    async def both(call: Call[Any]) -> str:
        """Ask from two tasks."""

        async def one(question: str, after: float) -> str:
            await asyncio.sleep(after)
            return str(call.ask(str, question))

        if how == "gather":
            return "+".join(await asyncio.gather(one("second?", 2), one("first?", 1)))
        async with asyncio.TaskGroup() as group:
            if how == "group":
                asked = [group.create_task(one("second?", 2)), group.create_task(one("first?", 1))]
            else:
                async with asyncio.TaskGroup() as inner:
                    asked = [
                        inner.create_task(one("second?", 2)),
                        inner.create_task(one("first?", 1)),
                    ]
        return "+".join(task.result() for task in asked)

    async def main() -> None:
        outcome = await (remit := desk([[("both", {})], "done"], [both])).run("go")
        for question, answer in (("first?", "1"), ("second?", "2")):
            assert questions(outcome) == [question]
            await remit.supply(outcome.pending[0].id, answer)
            outcome = await remit.resume(outcome.run_id)
        assert said(outcome) == ["2+1"]
        await asyncio.sleep(5)

    run_virtual(main())


def test_a_failure_beside_a_question_is_the_failure_of_the_call() -> None:
    """C1: nobody is asked on behalf of work that went wrong."""

    @rm.tool(effect="read", eager=False)
    async def torn(call: Call[Any]) -> str:
        """Fail and ask."""

        async def fail() -> None:
            raise OSError("broken")

        async def inquire() -> None:
            call.ask(str, "which?")

        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(inquire())
        return "never"

    async def main() -> None:
        outcome = await desk([[("torn", {})], "done"], [torn]).run("go")
        assert outcome.completed
        assert statuses(outcome) == ["error"]
        assert "broken" in said(outcome)[0]

    run_virtual(main())


@pytest.mark.parametrize(
    ("schema", "question"),
    [
        ({"type": "no such type"}, "which?"),
        ({"$ref": "http://elsewhere.example/schema"}, "which?"),
        ({"minimum": ANYTHING}, "which?"),
        (ANYTHING, "which?"),
        (lambda: 1, "which?"),
        (int, 7),
    ],
)
def test_what_is_no_question_is_the_error_of_whoever_asks(schema: Any, question: Any) -> None:
    """C1: told as the call's error, and nobody waits."""

    async def main() -> None:
        form = Form((schema, question))
        outcome = await desk([fill("a"), "done"], [form.tool()]).run("go")
        assert outcome.completed
        assert statuses(outcome) == ["error"]

    run_virtual(main())


def test_a_question_without_words_names_its_tool() -> None:
    """E6: whoever is asked is shown something."""

    async def main() -> None:
        form = Form((bool, ""))
        assert questions(await desk([fill("a"), "done"], [form.tool()]).run("go")) == [
            "form asks for input"
        ]

    run_virtual(main())


def test_one_call_asks_no_more_than_a_hundred_questions() -> None:
    """L1: each answer enters the body again, so that an endless interview would never end."""
    form = Form(*[(int, f"{n}?") for n in range(MAX_QUESTIONS + 1)])

    async def answer(pending: Pending) -> int:
        return 1

    async def main() -> None:
        outcome = await desk([fill("a"), "done"], [form.tool()], answer=answer).run("go")
        assert outcome.completed
        assert statuses(outcome) == ["error"]
        assert f"at most {MAX_QUESTIONS}" in said(outcome)[0]
        assert len(form.entered) == MAX_QUESTIONS + 1

    run_virtual(main())


@pytest.mark.parametrize("blocking", [False, True])
def test_a_question_is_asked_from_a_real_thread_and_a_real_event_loop(blocking: bool) -> None:
    """C6, E6: nothing of it is the simulation's."""

    async def main() -> None:
        form = Form((int, "how many?"), (str, "which?"), effect="idempotent")
        remit = desk([fill("a", "b"), "done"], [form.tool(blocking=blocking)], runtime=rm.Runtime())
        outcome = await remit.run("go")
        for answers in ((1, 2), ("x", "y")):
            for pending, answer in zip(outcome.pending, answers, strict=True):
                await remit.supply(pending.id, answer)
            outcome = await remit.resume(outcome.run_id)
        assert said(outcome) == ["a: 1, 'x'", "b: 2, 'y'"]

    asyncio.run(main())


# --- where it may not be asked -------------------------------------------------------------------


def test_the_body_of_a_confirmed_call_cannot_ask_and_is_told_where_to() -> None:
    """E1: it runs once, so that no answer can enter it again."""

    async def main() -> None:
        form = Form(effect="confirm")
        remit = desk([fill("a"), "done"], [form.tool()])
        outcome = await remit.run("go")
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        outcome = await remit.resume(outcome.run_id)
        assert outcome.completed
        assert statuses(outcome) == ["error"]
        assert "Ask in a read tool before it" in said(outcome)[0]
        assert form.entered == ["a"]

    run_virtual(main())


def test_what_the_host_computes_is_not_asked_for() -> None:
    """C1: a value of the host's has no person behind it."""

    @rm.tool(effect="read")
    async def stamp(at: Annotated[str, rm.Computed(lambda call: call.ask(str, "when?"))]) -> str:
        """Stamp."""
        return at

    async def main() -> None:
        outcome = await desk([[("stamp", {})], "done"], [stamp]).run("go")
        assert statuses(outcome) == ["error"]

    run_virtual(main())


def test_nobody_is_asked_by_a_call_that_has_ended() -> None:
    """T4: its result stands."""
    kept: list[Call[Any]] = []

    @rm.tool(effect="read")
    async def keep(call: Call[Any]) -> str:
        """Keep the call."""
        kept.append(call)
        return "kept"

    async def main() -> None:
        assert (await desk([[("keep", {})], "done"], [keep]).run("go")).completed
        with pytest.raises(ConfigurationError, match="has ended"):
            kept[0].ask(str, "hello?")

    run_virtual(main())


def test_a_question_asked_through_the_call_of_another_body_is_an_error_of_the_asking_one() -> None:
    """C1, C8: only its own body can make a call wait."""

    @rm.tool(effect="read", eager=False)
    async def inner(call: Call[Call[Any]]) -> str:
        """Ask through somebody else."""
        return str(call.deps.ask(str, "which?"))

    child = desk([[("inner", {})], "child done"], [inner], name="child")

    @rm.tool(effect="read", eager=False)
    async def outer(call: Call[Any]) -> str:
        """Lend the call."""
        outcome = await child.run("go", deps=call)
        return said(outcome)[0]

    async def main() -> None:
        outcome = await desk([[("outer", {})], "done"], [outer]).run("go")
        assert outcome.completed
        assert "outside of its own call" in said(outcome)[0]

    run_virtual(main())


# --- who supplies, and what ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        (int, "3"),
        (int, 3.5),
        (int, True),
        (Literal["red", "blue"], "green"),
        (Address, {"street": "Elm"}),
        (Address, {"street": "Elm", "number": 5, "floor": 2}),
        (Parcel, {"to": {"street": "Elm", "number": "5"}, "grams": 1}),
        ({"type": "array", "items": {"type": "integer"}}, [1, "x"]),
        (str, b"bytes"),
        ({}, ANYTHING),
        ({}, math.nan),
        ({}, {1: "x"}),
        ({}, "\ud800"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_before_anything_is_recorded(schema: Any, wrong: Any) -> None:
    """E6: the error says what is wrong, and the question stays open."""

    async def main() -> None:
        form = Form((schema, "which?"))
        remit = desk([fill("a"), "done"], [form.tool()])
        outcome = await remit.run("go")
        with pytest.raises(ConfigurationError, match="what is supplied"):
            await remit.supply(outcome.pending[0].id, wrong)
        assert list(await remit.store.inbox(outcome.run_id)) == []
        again = await remit.resume(outcome.run_id)
        assert again.pending == outcome.pending
        assert len(form.entered) == 1

    run_virtual(main())


def test_the_error_names_the_place_and_repeats_no_value() -> None:
    """E6: an answer may be a secret."""

    async def main() -> None:
        form = Form((Parcel, "which?"))
        remit = desk([fill("a"), "done"], [form.tool()])
        outcome = await remit.run("go")
        with pytest.raises(ConfigurationError) as caught:
            wrong = {"to": {"street": "Elm", "number": "hunter2"}, "grams": 1}
            await remit.supply(outcome.pending[0].id, wrong)
        assert "to.number" in str(caught.value)
        assert "hunter2" not in str(caught.value)

    run_virtual(main())


def test_an_answer_is_given_once_and_only_to_what_is_asked() -> None:
    """E5, E6: unknown, used, and of another kind."""

    async def main() -> None:
        form = Form()
        pay = Form(effect="confirm")
        tools = [form.tool(), rm.tool(effect="confirm", name="pay")(pay.body)]
        remit = desk([[*fill("a"), ("pay", {"what": "b"})], "done"], tools)
        outcome = await remit.run("go")
        asked, gated = outcome.pending
        assert (asked.kind, gated.kind) == ("input", "approval")
        for attempt, expected in (
            (remit.supply("guessed", "x"), "unknown"),
            (remit.supply(gated.id, "x"), "unknown"),
            (remit.decide(id=asked.id, approve=True, by="dana"), "unknown"),
            (remit.new_token(asked.id), "unknown"),
        ):
            with pytest.raises(DecisionError) as caught:
                await attempt
            assert why(caught) == expected
        assert list(await remit.store.inbox(outcome.run_id)) == []
        await remit.supply(asked.id, "x", by="sam")
        for value in ("x", "y"):
            with pytest.raises(DecisionError) as caught:
                await remit.supply(asked.id, value)
            assert why(caught) == "used"
        outcome = await remit.resume(outcome.run_id)
        assert outcome.pending == (gated,)
        await remit.decide(gated.token, approve=False, by="dana")
        outcome = await remit.resume(outcome.run_id)
        assert statuses(outcome) == ["ok", "refused"]
        given = [r for r in await rows(remit, outcome.run_id) if isinstance(r, Supplied)]
        assert [(row.value, row.by) for row in given] == [('"x"', "sam")]
        with pytest.raises(DecisionError):
            await remit.supply(asked.id, "x")

    run_virtual(main())


def test_the_wrong_way_is_told_the_right_one() -> None:
    """E5: the error says which method it takes."""

    async def main() -> None:
        form = Form()
        remit = desk([fill("a"), "done"], [form.tool()])
        outcome = await remit.run("go")
        with pytest.raises(DecisionError, match=r"supply\("):
            await remit.decide(id=outcome.pending[0].id, approve=True, by="dana")
        other = desk([[("pay", {"what": "b"})]], [rm.tool(effect="confirm", name="pay")(form.body)])
        gated = await other.run("go")
        with pytest.raises(DecisionError, match=r"decide\("):
            await other.supply(gated.pending[0].id, True)
        for by in ("", None):
            with pytest.raises(ConfigurationError):
                await remit.supply(outcome.pending[0].id, "x", by=by)  # type: ignore[arg-type]

    run_virtual(main())


@pytest.mark.parametrize("where", ["async", "thread", "child"])
def test_nothing_is_supplied_inside_a_tool_body(where: str) -> None:
    """E5: what a model can reach answers nothing, in a child neither."""
    raised: list[str] = []

    async def main() -> None:
        form = Form()
        waiting = await (remit := desk([fill("a"), "done"], [form.tool()])).run("go")

        async def attempt() -> str:
            try:
                await remit.supply(waiting.pending[0].id, "sly")
            except ConfigurationError as error:
                raised.append(str(error))
            return "tried"

        @rm.tool(effect="read", name="sly")
        async def sly() -> str:
            """Answer yourself."""
            return await attempt()

        @rm.tool(effect="read", name="sly")
        def blocking_sly() -> str:
            """Answer yourself."""
            with contextlib.suppress(StopIteration):
                attempt().send(None)
            return "tried"

        tool = blocking_sly if where == "thread" else sly
        other = desk([[("sly", {})], "done"], [tool], name="other")
        if where == "child":
            act = other.as_tool("delegate", "Delegate.", limits=LIMITS)
            other = desk([[("delegate", {"task": "go"})], "done"], [act], name="above")
        assert (await other.run("go")).completed
        assert raised == ["nothing is supplied inside a tool body"]
        assert (await remit.resume(waiting.run_id)).pending == waiting.pending

    run_virtual(main())


def test_who_will_not_answer_says_so_and_the_tool_hears_it() -> None:
    """E6: the refusal is an error that the author may handle; its text is a text."""
    heard: list[str] = []

    @rm.tool(effect="read")
    async def insist(call: Call[Any]) -> str:
        """Ask twice."""
        try:
            return str(call.ask(int, "how many?"))
        except rm.ToolError as error:
            heard.append(str(error))
        return str(call.ask(int, "at least roughly?"))

    async def main() -> None:
        remit = desk([[("insist", {})], "done"], [insist])
        outcome = await remit.run("go")
        with pytest.raises(ConfigurationError):
            await remit.supply(outcome.pending[0].id, 5, is_error=True)
        await remit.supply(outcome.pending[0].id, "none of your business", is_error=True)
        outcome = await remit.resume(outcome.run_id)
        assert questions(outcome) == ["at least roughly?"]
        await remit.supply(outcome.pending[0].id, "no", is_error=True)
        outcome = await remit.resume(outcome.run_id)
        assert set(heard) == {"none of your business"}
        assert (statuses(outcome), said(outcome)) == (["error"], ["Error: no"])

    run_virtual(main())


def test_an_answer_that_the_type_itself_refuses_is_asked_for_anew_with_the_reason() -> None:
    """E6: a rule that no schema holds is checked in the body, and costs nobody the run."""

    def even(n: int) -> int:
        if n % 2:
            raise ValueError("it is odd")
        return n

    async def main() -> None:
        form = Form((str, "name?"), (Annotated[int, AfterValidator(even)], "how many?"))
        remit = desk([fill("a"), "done"], [form.tool()])
        outcome = await remit.run("go")
        await remit.supply(outcome.pending[0].id, "ann")
        outcome = await remit.resume(outcome.run_id)
        (odd,) = outcome.pending
        await remit.supply(odd.id, 3)
        async with remit.stream("go", run_id=outcome.run_id) as live:
            events = [event async for event in live]
        outcome = live.outcome
        (again,) = outcome.pending
        assert again.id != odd.id
        assert again.summary.startswith("how many? (The last answer did not do: ")
        assert "it is odd" in again.summary
        assert [e.fields["id"] for e in events if e.kind == "answer_failed"] == [again.id]
        await remit.supply(again.id, 4)
        outcome = await remit.resume(outcome.run_id)
        assert said(outcome) == ["a: 'ann', 4"]

    run_virtual(main())


def test_an_answer_that_the_type_refuses_is_repeated_to_nobody() -> None:
    """E6, R1: it may be a secret; whoever is asked next, the events and the question in the journal say why only."""

    def long_enough(word: str) -> str:
        if len(word) < 12:
            raise ValueError("it is too short")
        return word

    async def main() -> None:
        form = Form((Annotated[str, AfterValidator(long_enough)], "password?"))
        remit = desk([fill("a"), "done"], [form.tool()])
        [pending] = (await remit.run("go", run_id="r")).pending
        await remit.supply(pending.id, "hunter2")
        outcome, events = await watched(remit, "go", run_id="r")
        [again] = outcome.pending
        assert "it is too short" in again.summary
        assert "hunter2" not in again.summary
        assert "hunter2" not in str([event.to_json() for event in events])
        asked = [row for row in await rows(remit, "r") if isinstance(row, Questioned)]
        assert len(asked) == 2
        assert "hunter2" not in repr(asked)

    run_virtual(main())


@pytest.mark.parametrize("in_process", [False, True])
def test_a_body_that_changed_its_arguments_and_asked_gets_them_again_as_they_were(
    in_process: bool,
) -> None:
    """E6, E5: what was approved and asked for is what it is entered with, in the same activation too."""
    entered: list[list[str]] = []

    @rm.tool(effect="idempotent")
    async def send(to: list[str], call: Call[Any]) -> str:
        """Send."""
        entered.append(list(to))
        to.append("everybody")
        return str(call.ask(str, "what?"))

    async def confirm(_: Pending) -> Decision:
        return Decision(approve=True, by="dana", edit={"to": ["bo"]})

    async def answer(_: Pending) -> str:
        return "hello"

    async def main() -> None:
        remit = desk(
            [[("send", {"to": ["ann"]})], "done"],
            [send],
            policy=lambda _: Confirm("Sure?"),
            confirm=confirm,
            answer=answer if in_process else None,
        )
        outcome = await remit.run("go", run_id="r")
        if not in_process:
            await remit.supply(outcome.pending[0].id, "hello")
            outcome = await remit.resume("r")
        assert entered == [["bo"], ["bo"]]
        assert statuses(outcome) == ["ok"]

    run_virtual(main())


def test_an_expired_question_is_asked_anew_when_the_run_is_resumed() -> None:
    """E6: nobody waits for ever on a question that nobody can answer any more."""

    async def main() -> None:
        form = Form()
        remit = desk([fill("a"), "done"], [form.tool()])
        first = await remit.run("go")
        assert (first.pending[0].expires_at - EPOCH).total_seconds() == 86_400
        await asyncio.sleep(86_401)
        with pytest.raises(DecisionError) as caught:
            await remit.supply(first.pending[0].id, "late")
        assert why(caught) == "expired"
        second = await remit.resume(first.run_id)
        assert second.reason is Reason.WAITING
        assert second.pending[0].id != first.pending[0].id
        assert questions(second) == questions(first)
        await remit.supply(second.pending[0].id, "in time")
        assert said(await remit.resume(first.run_id)) == ["a: 'in time'"]

    run_virtual(main())


def test_a_policy_that_has_become_stricter_also_holds_for_a_call_that_has_its_answer() -> None:
    """E5, C8, case 67: it is asked before every entry of the body."""
    verdict: list[Any] = [Allow()]

    def policy(request: PolicyRequest) -> Any:
        return verdict[-1]

    async def main() -> None:
        for effect, expected in (("read", "refused"), ("idempotent", "unknown")):
            verdict[:] = [Allow()]
            form = Form(effect=effect)
            remit = desk([fill("a"), "done"], [form.tool()], policy=policy)
            outcome = await remit.run("go")
            await remit.supply(outcome.pending[0].id, "x")
            verdict.append(Confirm("look first"))
            outcome = await remit.resume(outcome.run_id)
            assert [p.kind for p in outcome.pending] == ["approval"]
            assert len(form.entered) == 1
            verdict.append(Refuse("no more"))
            await remit.decide(outcome.pending[0].token, approve=True, by="dana")
            outcome = await remit.resume(outcome.run_id)
            assert statuses(outcome) == [expected]
            assert len(form.entered) == 1

    run_virtual(main())


def test_an_approved_and_edited_call_asks_with_the_arguments_that_were_approved() -> None:
    """E5, E6: over all entries of the body, under the new key; the model is told."""

    async def main() -> None:
        form = Form((int, "one?"), (int, "two?"), effect="idempotent")
        policy = lambda request: Confirm("look first")  # noqa: E731 - one line says it
        remit = desk([fill("a"), "done"], [form.tool()], policy=policy)
        outcome = await remit.run("go")
        edit = {"what": "b"}
        await remit.decide(outcome.pending[0].token, approve=True, by="dana", edit=edit)
        for n in (1, 2):
            outcome = await remit.resume(outcome.run_id)
            assert outcome.pending[0].arguments == '{"what":"b"}'
            await remit.supply(outcome.pending[0].id, n)
        outcome = await remit.resume(outcome.run_id)
        assert form.entered == ["b"] * 3
        assert len(set(form.keys)) == 1
        assert said(outcome) == ['[dana changed the arguments to {"what":"b"}]\nb: 1, 2']

    run_virtual(main())


# --- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations("xyz")))
@pytest.mark.parametrize("resumed_between", [False, True])
def test_answers_reach_the_calls_that_asked_in_whatever_order_they_come(
    order: Sequence[str], resumed_between: bool
) -> None:
    """E6, case 63: three calls that ask at once, answered one by one."""

    async def main() -> None:
        form = Form((str, "which?"), effect="idempotent", resource=())
        remit = desk([fill("x", "y", "z"), "done"], [form.tool()])
        outcome = await remit.run("go")
        pendings = dict(zip("xyz", outcome.pending, strict=True))
        assert [p.arguments for p in outcome.pending] == [f'{{"what":"{w}"}}' for w in "xyz"]
        for number, what in enumerate(order):
            await remit.supply(pendings[what].id, f"for {what}")
            if resumed_between or number == 2:
                outcome = await remit.resume(outcome.run_id)
                if number < 2:
                    left = [pendings[w] for w in "xyz" if w not in order[: number + 1]]
                    assert outcome.pending == tuple(left)
                    assert model_of(remit).asked == 1
        assert said(outcome) == [f"{what}: 'for {what}'" for what in "xyz"]
        assert sorted(form.entered) == sorted("xyz" * 2)
        assert model_of(remit).asked == 2

    run_virtual(main())


def test_siblings_of_a_question_run_at_once_and_once() -> None:
    """E6, T1, case 64: a free one, one that asks, one to approve, one that fails."""
    seen: list[str] = []

    @rm.tool(effect="idempotent", resource=())
    async def free(what: str) -> str:
        """Act."""
        seen.append(what)
        if what == "broken":
            raise OSError(what)
        return f"free {what}"

    async def main() -> None:
        form = Form()
        pay = rm.tool(effect="confirm", name="pay")(paying)
        calls = [
            ("free", {"what": "a"}),
            *fill("q"),
            ("pay", {"what": "p"}),
            ("free", {"what": "broken"}),
        ]
        remit = desk([calls, "done"], [free, form.tool(), pay])
        outcome = await remit.run("go")
        assert seen == ["a", "broken"]
        assert statuses(outcome) == ["ok", "not_started", "not_started", "error"]
        assert said(outcome)[1] == "Left pending: it waits for an answer."
        assert is_sendable(outcome.transcript)
        assert [p.kind for p in outcome.pending] == ["input", "approval"]
        await remit.decide(outcome.pending[1].token, approve=False, by="dana")
        await remit.supply(outcome.pending[0].id, "x")
        outcome = await remit.resume(outcome.run_id)
        assert seen == ["a", "broken"]
        assert statuses(outcome) == ["ok", "ok", "refused", "error"]
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_calls_behind_a_question_on_its_resource_run_after_the_answer_in_order() -> None:
    """E6, C5: those on another resource, and undeclared ones, run at once."""
    log: list[str] = []

    @rm.tool(effect="idempotent", resource="order:{order}")
    async def asks(order: str, call: Call[Any]) -> str:
        """Write."""
        log.append("asks")
        return str(call.ask(str, "which?"))

    @rm.tool(effect="idempotent", resource="order:{order}")
    async def write(order: str, who: str) -> str:
        """Write."""
        log.append(who)
        return who

    @rm.tool(effect="read", resource="order:{order}")
    async def read(order: str, who: str) -> str:
        """Read."""
        log.append(who)
        return who

    @rm.tool(effect="idempotent")
    async def undeclared() -> str:
        """Write."""
        log.append("undeclared")
        return "undeclared"

    async def main() -> None:
        calls = [
            ("read", {"order": "1", "who": "before"}),
            ("asks", {"order": "1"}),
            ("write", {"order": "1", "who": "first"}),
            ("read", {"order": "1", "who": "second"}),
            ("write", {"order": "2", "who": "other"}),
            ("undeclared", {}),
        ]
        remit = desk([calls, "done"], [asks, write, read, undeclared])
        outcome = await remit.run("go")
        assert sorted(log) == ["asks", "before", "other", "undeclared"]
        await remit.supply(outcome.pending[0].id, "this")
        outcome = await remit.resume(outcome.run_id)
        assert log[4:] == ["asks", "first", "second"]
        assert statuses(outcome) == ["ok"] * 6

    run_virtual(main())


def test_an_undecided_run_gives_the_same_outcome_and_does_not_ask_the_model() -> None:
    """E6, J3: resumed as often as you like, the body is entered no more."""

    async def main() -> None:
        form = Form()
        remit = desk([fill("x"), "done"], [form.tool()])
        outcome = await remit.run("go")
        for _ in range(3):
            again = await remit.resume(outcome.run_id)
            assert again == outcome
        assert (model_of(remit).asked, len(form.entered)) == (1, 1)

    run_virtual(main())


# --- with everything else that a call may be -----------------------------------------------------


def test_the_ceiling_of_a_call_counts_anew_after_an_answer() -> None:
    """C7: neither the time before the question nor that of the person is taken from what comes after."""

    @rm.tool(effect="read", timeout=5)
    async def slow(call: Call[Any]) -> str:
        """Take four seconds before and after each question."""
        remaining = []
        for n in range(3):
            await asyncio.sleep(1.2)
            remaining.append(call.remaining)
            call.ask(str, f"{n}?")
        return "done in time"

    async def answer(pending: Pending) -> str:
        await asyncio.sleep(1_000)
        return "x"

    async def main() -> None:
        remit = desk([[("slow", {})], "done"], [slow])
        outcome = await remit.run("go")
        for _ in range(3):
            await asyncio.sleep(1_000)
            await remit.supply(outcome.pending[0].id, "x")
            outcome = await remit.resume(outcome.run_id)
        assert said(outcome) == ["done in time"]
        remit = desk([[("slow", {})], "done"], [slow], answer=answer)
        assert said(await remit.run("go")) == ["done in time"]

    run_virtual(main())


def test_a_question_is_no_failure_that_is_tried_again() -> None:
    """C1: `retries` are for what went wrong; each attempt gets the same answers."""
    entered: list[str] = []

    @rm.tool(effect="idempotent", retries=2)
    async def shaky(call: Call[Any]) -> str:
        """Ask, then fail at first."""
        entered.append(call.key)
        answer = call.ask(str, "which?")
        if entered.count(call.key) < 4:
            raise OSError("again")
        return f"{answer} {call.ask(str, 'sure?')}"

    async def main() -> None:
        remit = desk([[("shaky", {})], "done"], [shaky])
        outcome = await remit.run("go")
        assert (questions(outcome), len(entered)) == (["which?"], 1)
        await remit.supply(outcome.pending[0].id, "this")
        outcome = await remit.resume(outcome.run_id)
        assert (questions(outcome), len(entered)) == (["sure?"], 4)
        await remit.supply(outcome.pending[0].id, "yes")
        outcome = await remit.resume(outcome.run_id)
        assert (said(outcome), len(entered)) == (["this yes"], 5)
        assert outcome.spend.own.calls == 1

    run_virtual(main())


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_a_read_that_began_early_asks_when_its_reply_is_whole(delay: float) -> None:
    """C3, E6: whether its body ended before the reply or after it."""

    @rm.tool(effect="read")
    async def early(call: Call[Any]) -> str:
        """Ask at once, or after a while."""
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(delay)
        return str(call.ask(str, "which?"))

    began: list[float] = []

    async def main() -> None:
        script = [Step(["text", ("early", {}), ("look", {"what": "x"})], between=0.5), "done"]
        remit = desk(script, [early, look])
        outcome, events = await watched(remit, "go", run_id="r")
        assert began == [0.5]
        assert questions(outcome) == ["which?"]
        assert outcome.spend.own.calls == 2
        told = [event.kind for event in events]
        assert told.index("replied") < told.index("pending")
        await remit.supply(outcome.pending[0].id, "this")
        outcome = await remit.resume("r")
        assert said(outcome) == ["this", "saw x"]
        assert outcome.spend.own.calls == 2

    run_virtual(main())


@pytest.mark.parametrize("cut", ["fails", "refused", "length"])
def test_a_read_of_a_reply_that_comes_to_nothing_asks_nobody(cut: str) -> None:
    """C3: it is discarded with its reply, and counted."""

    async def main() -> None:
        form = Form()
        broken: dict[str, Any] = {
            "fails": {"error": rm.ModelUnavailable("busy")},
            "refused": {"stop_reason": rm.StopReason.REFUSAL},
            "length": {"stop_reason": rm.StopReason.LENGTH},
        }[cut]
        script = [Step(["text", *fill("a"), "more"], between=0.5, **broken), "done"]
        outcome, events = await watched(desk(script, [form.tool()]), "go")
        assert outcome.reason is not Reason.WAITING
        assert not [event for event in events if event.kind == "pending"]
        assert form.entered == ["a"]
        assert outcome.spend.own.calls == 1

    run_virtual(main())


def test_a_deterministic_tool_that_asks_is_remembered_for_nobody() -> None:
    """C8, E6: what people answered is no function of the arguments."""

    async def main() -> None:
        form = Form(deterministic=True)
        remit = desk([fill("a", "a"), fill("a"), "done"], [form.tool()])
        outcome = await remit.run("go")
        assert len(outcome.pending) == 2
        for n, pending in enumerate(outcome.pending):
            await remit.supply(pending.id, f"answer {n}")
        outcome = await remit.resume(outcome.run_id)
        assert said(outcome)[:2] == ["a: 'answer 0'", "a: 'answer 1'"]
        assert len(outcome.pending) == 1
        await remit.supply(outcome.pending[0].id, "another")
        outcome = await remit.resume(outcome.run_id)
        assert said(outcome)[2] == "a: 'another'"

    run_virtual(main())


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_a_question_passes_through_wrappers_which_may_ask_themselves(
    effect: str, blocking: bool
) -> None:
    """E6, C8: in the order of asking, whoever asks; what wrappers do about failures is not done about it."""
    seen: list[str] = []

    @rm.wrap_tools
    async def careful(invocation: rm.Invocation, proceed: rm.Proceed) -> Any:
        if not invocation.call.ask(bool, "shall I?"):
            return "it shall not be"
        try:
            return f"[{await proceed()}]"
        except Exception as error:
            seen.append(repr(error))
            raise

    async def main() -> None:
        for yes in (True, False):
            form = Form((str, "which?"), effect=effect)
            remit = desk([fill("a"), "done"], careful([form.tool(blocking=blocking)]))
            outcome = await remit.run("go")
            assert (questions(outcome), form.entered) == (["shall I?"], [])
            assert outcome.spend.own.calls == 0
            await remit.supply(outcome.pending[0].id, yes)
            outcome = await remit.resume(outcome.run_id)
            if yes:
                assert questions(outcome) == ["which?"]
                assert outcome.spend.own.calls == 1
                await remit.supply(outcome.pending[0].id, "this")
                outcome = await remit.resume(outcome.run_id)
            assert said(outcome) == ["[a: 'this']" if yes else "it shall not be"]
            assert len(form.entered) == 2 * yes
            assert outcome.spend.own.calls == yes
            assert seen == []

    run_virtual(main())


@pytest.mark.parametrize("depth", [1, 2])
def test_a_question_inside_a_child_makes_its_parents_wait(depth: int) -> None:
    """E6, L3: the root is resumed, and no model is asked again meanwhile."""

    async def main() -> None:
        form = Form((int, "how many?"), (int, "really?"), effect="idempotent")
        inner = desk([fill("a"), "inner done"], [form.tool()], name="inner")
        top, models = inner, [model_of(inner)]
        for n in range(depth):
            act = top.as_tool("delegate", "Delegate.", limits=LIMITS)
            top = desk([[("delegate", {"task": "ask"})], f"done {n}"], [act], name=f"above{n}")
            models.append(model_of(top))
        outcome = await top.run("go", run_id="r")
        for answer in (1, 2):
            (pending,) = outcome.pending
            assert pending.path[-1] == "inner"
            assert pending.run_id != "r"
            assert [model.asked for model in models] == [1] * (depth + 1)
            assert await top.supply(pending.id, answer) == "r"
            outcome = await top.resume("r")
        assert outcome.completed
        assert said(outcome) == ["inner done" if depth == 1 else "done 0"]
        assert form.answers == [1, 2]
        assert outcome.spend.tree.calls == 1 + depth

    run_virtual(main())


def test_a_call_that_has_run_a_child_and_then_asks_finds_the_child_as_it_ended() -> None:
    """E1, L3: what ran inside does not run again, and is billed once."""
    child = desk(["child done"], name="child")

    @rm.tool(effect="idempotent")
    async def both(call: Call[Any]) -> str:
        """Delegate, then ask."""
        text = (await child.run("go")).text
        return f"{text}, {call.ask(str, 'and?')}"

    async def main() -> None:
        remit = desk([[("both", {})], "done"], [both])
        outcome = await remit.run("go")
        waiting = outcome.spend
        await remit.supply(outcome.pending[0].id, "yes")
        outcome = await remit.resume(outcome.run_id)
        assert said(outcome) == ["child done, yes"]
        assert model_of(child).asked == 1
        inside = outcome.spend.tree.tokens - outcome.spend.own.tokens
        assert inside == waiting.tree.tokens - waiting.own.tokens > 0

    run_virtual(main())


def test_a_call_that_was_given_up_and_then_asks_leaves_its_repeat_to_ask() -> None:
    """E4: a question that nobody hears is no outcome; the repeat runs under the same key."""
    entered: list[str] = []

    @rm.tool(effect="idempotent", timeout=5)
    async def stubborn(call: Call[Any]) -> str:
        """Swallow the cancellation, at first, and ask when it is too late."""
        entered.append(call.key)
        if len(entered) == 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(100)
            await asyncio.sleep(3)
        return str(call.ask(str, "which?"))

    async def main() -> None:
        remit = desk([[("stubborn", {})], [("stubborn", {})], "done"], [stubborn])
        outcome, events = await watched(remit, "go", run_id="r")
        assert not ABANDONED.names
        assert [event.kind for event in events].count("call_abandoned") == 1
        assert statuses(outcome) == ["unknown", "unknown"]
        (pending,) = outcome.pending
        await remit.supply(pending.id, "this")
        outcome = await remit.resume("r")
        assert (said(outcome)[1], statuses(outcome)) == ("this", ["unknown", "ok"])
        assert len(entered) == 3
        assert len(set(entered)) == 1

    run_virtual(main())


# --- the ends of a run ---------------------------------------------------------------------------


@pytest.mark.parametrize(("effect", "status"), [("read", "error"), ("idempotent", "unknown")])
def test_a_cancelled_run_closes_its_questions(effect: str, status: str) -> None:
    """K1, E6, T2: nobody answers them any more, and the model could go on."""

    async def main() -> None:
        form = Form(effect=effect)
        remit = desk([fill("a"), "done"], [form.tool()])
        outcome = await remit.run("go")
        cancelled = await remit.cancel(outcome.run_id)
        assert cancelled.reason is Reason.CANCELLED
        assert statuses(cancelled) == [status]
        assert cancelled.pending == ()
        assert is_sendable(cancelled.transcript)
        with pytest.raises(DecisionError):
            await remit.supply(outcome.pending[0].id, "x")
        assert len(form.entered) == 1

    run_virtual(main())


def test_an_answer_that_came_before_the_cancel_enters_no_body() -> None:
    """K1: a cancel always wins."""

    async def main() -> None:
        form = Form()
        remit = desk([fill("a"), "done"], [form.tool()])
        outcome = await remit.run("go")
        await remit.supply(outcome.pending[0].id, "x")
        assert (await remit.cancel(outcome.run_id)).reason is Reason.CANCELLED
        assert len(form.entered) == 1

    run_virtual(main())


@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("depth", [0, 1])
def test_going_on_from_the_view_withdraws_the_question_and_says_that_it_was_left(
    effect: str, depth: int
) -> None:
    """T2: the fork is told, and an answer comes too late; the old run can still be closed."""

    async def main() -> None:
        form = Form(effect=effect)
        remit = desk([fill("a"), "done"], [form.tool()], store=(store := rm.MemoryStore()))
        if depth:
            act = remit.as_tool("delegate", "Delegate.", limits=LIMITS)
            remit = desk([[("delegate", {"task": "go"})], "x"], [act], store=store, name="above")
        outcome = await remit.run("go")
        fork = desk(["forked"], remit.tools, store=store, name=remit.name)
        on = await fork.run("never mind", history=outcome.transcript)
        assert on.completed
        assert said(on)[0].startswith("Left pending: it waits")
        with pytest.raises(DecisionError) as caught:
            await remit.supply(outcome.pending[0].id, "x")
        assert why(caught) == "used"
        if not depth:
            closed = await remit.resume(outcome.run_id)
            assert statuses(closed) == ["refused" if effect == "read" else "unknown"]
        assert len(form.entered) == 1

    run_virtual(main())


def test_a_fork_withdraws_the_question_of_a_repeat_although_its_key_is_of_an_earlier_run() -> None:
    """T2, E4: what a view says of a repeat that waits is about the run that waits."""
    store = rm.MemoryStore()
    slow: list[bool] = [True]

    @rm.tool(effect="idempotent", timeout=5)
    async def form(call: Call[Any]) -> str:
        """Hang, and the next time ask."""
        if slow.pop() if slow else False:
            await asyncio.sleep(100)
        return str(call.ask(str, "which?"))

    async def main() -> None:
        first = await desk([[("form", {})], "so"], [form], store=store).run("go")
        assert statuses(first) == ["unknown"]
        second = desk([[("form", {})], "so"], [form], store=store)
        outcome = await second.run("again", history=first.transcript)
        (pending,) = outcome.pending
        third = desk(["fine"], [form], store=store)
        assert (await third.run("never mind", history=outcome.transcript)).completed
        with pytest.raises(DecisionError) as caught:
            await second.supply(pending.id, "x")
        assert why(caught) == "used"

    run_virtual(main())


def test_the_end_of_the_parent_closes_the_questions_of_its_children() -> None:
    """K3: nobody inside a run that has ended is answered."""

    async def main() -> None:
        form = Form()
        child = desk([fill("a"), "child done"], [form.tool()], name="child")
        act = child.as_tool("delegate", "Delegate.", limits=LIMITS)
        parent = desk([[("delegate", {"task": "go"})], "done"], [act])
        outcome = await parent.run("go")
        await parent.cancel(outcome.run_id)
        with pytest.raises(DecisionError):
            await parent.supply(outcome.pending[0].id, "x")

    run_virtual(main())


def test_a_detached_run_keeps_its_questions() -> None:
    """K1: whoever takes it up finds them as they were."""

    @rm.tool(effect="read", eager=False, timeout=200)
    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(100)
        return "slept"

    async def main() -> None:
        form = Form()
        remit = desk([[*fill("a"), ("slow", {})], "done"], [form.tool(), slow])
        async with remit.stream("go", run_id="r") as live:
            await asyncio.sleep(1)
            left = await live.detach()
        assert left.reason is Reason.WAITING
        (pending,) = left.pending
        await remit.supply(pending.id, "x")
        outcome = await remit.resume("r")
        assert said(outcome) == ["a: 'x'", "slept"]
        assert form.entered == ["a", "a"]

    run_virtual(main())


def test_a_question_can_be_answered_from_the_moment_that_it_is_told() -> None:
    """E6: an event tells of nothing that the store does not know; the run goes on without a pause."""

    @rm.tool(effect="read", eager=False, timeout=200)
    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(100)
        return "slept"

    async def main() -> None:
        form = Form((int, "one?"), effect="idempotent")
        remit = desk([[*fill("a"), ("slow", {})], "done"], [form.tool(), slow])
        async with remit.stream("go") as live:
            async for event in live:
                if event.kind == "pending":
                    assert await remit.supply(event.fields["id"], 7) == live.run_id
        assert live.outcome.completed
        assert said(live.outcome) == ["a: 7", "slept"]

    run_virtual(main())


# --- the answer callback -------------------------------------------------------------------------


def answering(*values: Any) -> tuple[list[Pending], Any]:
    asked: list[Pending] = []

    async def answer(pending: Pending) -> Any:
        asked.append(pending)
        value = values[len(asked) - 1]
        if isinstance(value, BaseException):
            raise value
        return value

    return asked, answer


def test_the_callback_answers_in_process_and_the_clock_stands_still() -> None:
    """E6, L4: a person who thinks for two hours does not use the run's seconds."""

    async def main() -> None:
        form = Form((int, "one?"), (str, "two?"), effect="idempotent")
        given = iter([1, "x"])

        async def answer(pending: Pending) -> Any:
            assert (pending.kind, pending.token) == ("input", None)
            await asyncio.sleep(7_200)
            return next(given)

        limits = Limits(steps=5, tokens=100_000, seconds=60, calls=1)
        remit = desk([fill("a"), "done"], [form.tool()], answer=answer, limits=limits)
        outcome, events = await watched(remit, "go")
        assert outcome.completed
        assert said(outcome) == ["a: 1, 'x'"]
        assert outcome.spend.own.seconds < 1
        supplied = [event.fields for event in events if event.kind == "supplied"]
        assert [(f["wants"], f["tool"], f["is_error"]) for f in supplied] == [
            ("input", "form", False)
        ] * 2

    run_virtual(main())


def test_calls_behind_a_question_that_a_person_thinks_about_run_after_it() -> None:
    """E6, C7: the ceiling of a call that stands behind an answer counts from the answer."""

    @rm.tool(effect="idempotent", resource="order:1")
    async def asks(call: Call[Any]) -> str:
        """Write."""
        return str(call.ask(str, "which?"))

    @rm.tool(effect="idempotent", resource="order:1", timeout=5)
    async def write() -> str:
        """Write."""
        return "written"

    async def answer(pending: Pending) -> str:
        await asyncio.sleep(1_000)
        return "this"

    async def main() -> None:
        remit = desk([[("asks", {}), ("write", {})], "done"], [asks, write], answer=answer)
        assert said(await remit.run("go")) == ["this", "written"]

    run_virtual(main())


@pytest.mark.parametrize(
    "given", [RuntimeError("no terminal"), SystemExit(1), None, "3", ANYTHING, Decision(True, "x")]
)
def test_a_callback_that_fails_or_gives_what_does_not_fit_leaves_the_question_open(
    given: Any,
) -> None:
    """E6: it is told as an event, nobody is asked again at once, and somebody can still answer."""

    async def main() -> None:
        form = Form((int, "how many?"))
        asked, answer = answering(given, 4)
        remit = desk([fill("a"), "done"], [form.tool()], answer=answer)
        outcome, events = await watched(remit, "go")
        assert outcome.reason is Reason.WAITING
        (failed,) = [event.fields for event in events if event.kind == "answer_failed"]
        assert failed["id"] == outcome.pending[0].id
        assert failed["error"]
        assert len(asked) == len(form.entered) == 1
        assert said(await remit.resume(outcome.run_id)) == ["a: 4"], "a resume asks again"

    run_virtual(main())


def test_a_question_that_is_put_off_stays_open_and_nobody_failed() -> None:
    """E6: neither callback has to decide now; no event and no log record complains."""

    async def main() -> None:
        form = Form((int, "how many?"))
        asked, answer = answering(PutOff("later"), 4)
        confirmed, confirm = answering(PutOff("later"))
        remit = desk(
            [[*fill("a"), ("paying", {"what": "b"})], "done"],
            [form.tool(), rm.tool(effect="confirm", resource=())(paying)],
            answer=answer,
            confirm=confirm,
        )
        outcome, events = await watched(remit, "go")
        assert outcome.reason is Reason.WAITING
        assert {pending.kind for pending in outcome.pending} == {"input", "approval"}
        assert len(asked) == len(confirmed) == 1
        assert not [event for event in events if event.kind.endswith("_failed")]

    run_virtual(main())


def test_an_answer_of_the_callback_that_the_type_refuses_is_not_asked_for_in_a_circle() -> None:
    """E6: one try in one activation."""

    def never(n: int) -> int:
        raise ValueError("no number will do")

    async def answer(pending: Pending) -> int:
        return 1

    async def main() -> None:
        form = Form((Annotated[int, AfterValidator(never)], "how many?"))
        outcome = await desk([fill("a"), "done"], [form.tool()], answer=answer).run("go")
        assert outcome.reason is Reason.WAITING
        assert len(form.entered) == 2

    run_virtual(main())


def test_each_callback_is_asked_for_its_own_kind() -> None:
    """E5, E6: who confirms answers nothing, and who answers confirms nothing."""

    async def main() -> None:
        form = Form()
        pay = rm.tool(effect="confirm", name="pay")(paying)
        script = [[*fill("a"), ("pay", {"what": "b"})], "done"]
        _, confirm = answering(Decision(True, "dana"))
        remit = desk(script, [form.tool(), pay], confirm=confirm)
        outcome = await remit.run("go")
        assert [p.kind for p in outcome.pending] == ["input"]
        assert await remit.resume(outcome.run_id) == outcome
        _, answer = answering("x")
        remit = desk(script, [form.tool(), pay], answer=answer)
        outcome = await remit.run("go")
        assert [p.kind for p in outcome.pending] == ["approval"]
        assert await remit.resume(outcome.run_id) == outcome
        _, confirm = answering(Decision(True, "dana"))
        _, answer = answering("x")
        remit = desk(script, [form.tool(), pay], confirm=confirm, answer=answer)
        assert statuses(await remit.run("go")) == ["ok", "ok"]

    run_virtual(main())


async def paying(what: str) -> str:
    """Pay."""
    return f"paid {what}"


def test_the_callback_of_the_parent_answers_what_a_child_asks() -> None:
    """E6: found in the same way as the one that confirms."""

    async def main() -> None:
        form = Form()
        asked, answer = answering("x")
        child = desk([fill("a"), "child done"], [form.tool()], name="child")
        act = child.as_tool("delegate", "Delegate.", limits=LIMITS)
        parent = desk([[("delegate", {"task": "go"})], "done"], [act], answer=answer)
        assert (await parent.run("go")).completed
        assert [pending.path for pending in asked] == [("desk", "child")]
        assert form.answers == ["x"]

    run_virtual(main())


def test_a_resume_with_a_callback_asks_what_is_still_open() -> None:
    """E6, J3: nothing came in, but now there is somebody."""

    async def main() -> None:
        form = Form()
        store = rm.MemoryStore()
        first = await desk([fill("a"), "done"], [form.tool()], store=store).run("go", run_id="r")
        asked, answer = answering("x")
        remit = desk(["done"], [form.tool()], store=store, answer=answer)
        outcome = await remit.resume("r")
        assert outcome.completed
        assert [pending.id for pending in asked] == [first.pending[0].id]

    run_virtual(main())


def test_somebody_else_may_answer_while_the_callback_still_thinks() -> None:
    """E6: the first answer counts."""

    async def main() -> None:
        form = Form()
        remit: Remit[Any]

        async def answer(pending: Pending) -> str:
            await remit.supply(pending.id, "first")
            return "second"

        remit = desk([fill("a"), "done"], [form.tool()], answer=answer)
        assert said(await remit.run("go")) == ["a: 'first'"]

    run_virtual(main())


def test_a_cancel_ends_the_wait_for_the_callback() -> None:
    """K1: whoever is asked is cancelled and given up by the grace."""
    ended: list[str] = []

    async def answer(pending: Pending) -> str:
        try:
            await asyncio.sleep(10_000)
        finally:
            ended.append(pending.summary)
        return "x"

    async def main() -> None:
        form = Form()
        remit = desk([fill("a"), "done"], [form.tool()], answer=answer)
        async with remit.stream("go") as live:
            await asyncio.sleep(1)
            outcome = await live.cancel()
        assert outcome.reason is Reason.CANCELLED
        assert (ended, len(form.entered)) == (["which?"], 1)

    run_virtual(main())


@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_a_calendar_deadline_ends_the_wait_for_the_callback(effect: str) -> None:
    """L4, L5: it does not stand still for anybody."""
    from datetime import timedelta

    async def answer(pending: Pending) -> str:
        await asyncio.sleep(10_000)
        return "x"

    async def main() -> None:
        form = Form(effect=effect)
        limits = Limits(
            steps=5, tokens=100_000, seconds=5_000, deadline=EPOCH + timedelta(seconds=100)
        )
        remit = desk([fill("a"), "done"], [form.tool()], answer=answer, limits=limits)
        outcome = await remit.run("go")
        assert outcome.reason is Reason.DEADLINE
        assert statuses(outcome) == ["error" if effect == "read" else "unknown"]

    run_virtual(main())


@pytest.mark.parametrize("answer", [1, "x", lambda: 1])
def test_what_cannot_be_asked_is_no_callback(answer: Any) -> None:
    """E6: refused where it is given."""
    with pytest.raises(ConfigurationError, match="answer="):
        desk(["done"], answer=answer)
