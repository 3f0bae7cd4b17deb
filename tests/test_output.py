"""Typed output: what can be asked for, how it is handed in, what does not fit, and who gets it later."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from typing_extensions import TypedDict

import remit
from loop_rig import (
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
    ConfigurationError,
    Limits,
    MemoryStore,
    ModelProfile,
    PolicyRequest,
    Reason,
    Settings,
    StopReason,
    Transcript,
)
from remit.rows import Noted, Replied, Settled
from remit.testing import ScriptedModel, Step, prefix_of, run_virtual
from remit.tools import BadArguments
from remit.tools.output import FINAL_ANSWER, OutputSpec

NATIVE = ModelProfile(native_output=True)


class Verdict(BaseModel):
    """What was decided."""

    ok: bool
    why: str = "no reason"


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


@dataclasses.dataclass
class Bill:
    order: str
    amount: Decimal


class Point(TypedDict):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Pair(NamedTuple):
    left: int
    right: str


class Strict(BaseModel):
    """Has a rule of its own."""

    percent: int

    @field_validator("percent")
    @classmethod
    def _of_hundred(cls, value: int) -> int:
        if value > 100:
            raise ValueError("a percentage is at most 100")
        return value


class Odd(BaseModel):
    """Its validator has a fault."""

    x: int

    @field_validator("x")
    @classmethod
    def _break(cls, _: int) -> int:
        raise RuntimeError("broken validator")


class Open(BaseModel):
    """Takes what it does not declare."""

    model_config = ConfigDict(extra="allow")
    x: int


class Plain:
    """No type that pydantic can describe."""


class World:
    """What the bodies did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Any]:
        @remit.tool(effect="read")
        async def look(x: str) -> str:
            """Look."""
            return f"saw {x}"

        @remit.tool(effect="idempotent", resource=())
        async def note(x: str) -> str:
            """Write a note, slowly."""
            await asyncio.sleep(3)
            self.done.append(f"note {x}")
            return f"noted {x}"

        @remit.tool(effect="confirm", resource=())
        async def pay(x: str) -> str:
            """Pay."""
            self.done.append(f"pay {x}")
            return f"paid {x}"

        @remit.tool(effect="read")
        async def fail(x: str) -> str:
            """Fail."""
            raise RuntimeError(x)

        @remit.tool(effect="idempotent", resource=(), ends_run=True)
        async def escalate(x: str) -> str:
            """Give it to a person."""
            return f"{x} has it"

        return [look, note, pay, fail, escalate]


def typed(script: Any, output: Any = Verdict, **options: Any) -> Any:
    """A remit with a typed output over the tools of a fresh world."""
    world = options.pop("world", None) or World()
    return desk(script, world.tools(), output=output, **options)


def native(script: Any, output: Any = Verdict, **options: Any) -> Any:
    model = ScriptedModel(script, record=True, profile=NATIVE)
    return typed(model, output, **options)


def final(**arguments: Any) -> tuple[str, Any]:
    return (FINAL_ANSWER, arguments)


# --- what can be asked for -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Verdict, '{"ok":true}', Verdict(ok=True)),
        (Verdict, ' {"ok":false,"why":"late"}\n', Verdict(ok=False, why="late")),
        (Tree, '{"name":"a","children":[{"name":"b"}]}', Tree(name="a", children=[Tree(name="b")])),
        (Bill, '{"order":"1","amount":0.10}', Bill("1", Decimal("0.10"))),
        (Point, '{"x":1,"y":-2}', {"x": 1, "y": -2}),
        (list[Verdict], '{"value":[{"ok":true}]}', [Verdict(ok=True)]),
        (Literal["a", "b"], '{"value":"b"}', "b"),
        (Literal[1, 2], '{"value":2}', 2),
        (int, '{"value":7}', 7),
        (int, '{"value":"7"}', 7),
        (int, '{"value":7.0}', 7),
        (float, '{"value":7}', 7.0),
        (bool, '{"value":true}', True),
        (Colour, '{"value":2}', Colour.BLUE),
        (Decimal, '{"value":0.1234567890123456789012345678901}', Decimal("0.1234567890123456789012345678901")),
        (date, '{"value":"2026-01-31"}', date(2026, 1, 31)),
        (dict[str, int], '{"value":{"a":1}}', {"a": 1}),
        (Pair, '{"value":[1,"x"]}', Pair(1, "x")),
        (RootModel[list[int]], '{"value":[1]}', RootModel[list[int]]([1])),
        (Verdict | Bill, '{"value":{"order":"1","amount":2}}', Bill("1", Decimal(2))),
        (Verdict | None, '{"value":null}', None),
        (Annotated[int, Field(gt=3)], '{"value":4}', 4),
        (int | str, '{"value":"7"}', "7"),
        (Any, '{"value":{"a":[1]}}', {"a": [1]}),
    ],
)  # fmt: skip
def test_a_type_is_read_from_the_json_that_its_schema_describes(
    output: Any, text: str, value: object
) -> None:
    """O1, C2: models, dataclasses, dicts, lists, choices and numbers; without loss, in an object."""
    spec = OutputSpec(output)
    read = spec.read(text)
    assert (read, type(read)) == (value, type(value))
    assert spec.schema["type"] == "object"
    assert set(json.loads(text)) <= set(spec.schema["properties"])
    assert "x-remit" not in json.dumps(spec.schema)


@pytest.mark.parametrize(
    ("output", "text", "place"),
    [
        (Verdict, '{"okay":true}', "okay"),
        (Verdict, '{"ok":true,"more":1}', "more"),
        (Verdict, '{"ok":1}', "ok"),
        (Verdict, '{"ok":true} and more', "no JSON"),
        (Verdict, '{"ok":true,"ok":false}', "duplicate"),
        (Verdict, '{"ok":tr', "no JSON"),
        (Verdict, "", "no JSON"),
        (Verdict, "[]", "object"),
        (Verdict, '```json\n{"ok":true}\n```', "code fence"),
        (Verdict, '```\n{"ok":true}\n```', "code fence"),
        (Tree, '{"name":"a","children":[{"nome":"b"}]}', "children[0].name"),
        (Bill, '{"order":1,"amount":2}', "order"),
        (Bill, '{"order":"1","amount":"two"}', "amount"),
        (Point, '{"x":1,"y":2,"z":3}', "z"),
        (int, '{"value":7.5}', "value"),
        (int, '{"value":true}', "value"),
        (int, "7", "object"),
        (float, '{"value":1e999}', "value"),
        (list[Verdict], '{"value":[{"ok":true},{}]}', "value[1].ok"),
        (Literal["a", "b"], '{"value":"c"}', "value"),
        (Literal[1, 2], '{"value":true}', "value"),
        (str | None, '{"value":7}', "value"),
        (Strict, '{"percent":101}', "at most 100"),
        (Odd, '{"x":1}', "validator"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_its_place_and_shown_the_schema(
    output: Any, text: str, place: str
) -> None:
    """O1, C2: nothing is completed, dropped or guessed; the refusal can be used by whoever wrote it."""
    read = OutputSpec(output).read(text)
    assert isinstance(read, BadArguments)
    assert place in read.message.partition("Expected, as JSON Schema")[0]
    assert '"properties"' in read.message
    assert len(read.message) <= 1_500


@pytest.mark.parametrize(
    "output",
    [Plain, Verdict(ok=True), 3, "Verdict", lambda: Verdict, [int], Callable[[], int], Open, Decimal | str],
)  # fmt: skip
def test_what_is_no_type_for_an_output_is_refused_at_the_definition(output: Any) -> None:
    """O1, C2: and so is a type that JSON could not be read into without guessing."""
    with pytest.raises(ConfigurationError, match="output="):
        typed(["fine"], output)


SCHEMAS = {
    "an object": (
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        ('{"n": "x"}', '{"m": 1, "n": 1}'),
        ('{"n": 3}', {"n": 3}),
    ),
    "any object": ({"type": "object"}, ("[]",), ('{"any": 1.50}', {"any": 1.5})),
    "a list": ({"items": {"type": "number"}}, ('{"value": ["x"]}',), ('{"value": [1]}', [1])),
    "a definition": (
        {"$defs": {"Word": {"type": "string", "maxLength": 3}}, "$ref": "#/$defs/Word"},
        ('{"value": "long"}', '"abc"'),
        ('{"value": "abc"}', "abc"),
    ),
    "a tree": (
        {"type": "object", "properties": {"children": {"items": {"$ref": "#"}}}},
        ('{"children": [{"child": 1}]}',),
        ('{"children": [{"children": []}]}', {"children": [{"children": []}]}),
    ),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_stands_for_a_type_where_there_is_none(kind: str) -> None:
    """As on the command line: what is handed in is JSON that fits."""
    schema, misfits, (text, value) = SCHEMAS[kind]
    spec = OutputSpec(schema)
    assert all(isinstance(spec.read(misfit), BadArguments) for misfit in misfits)
    assert spec.read(text) == value
    assert spec.tool.parameters["type"] == "object"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "https://example.org/schema.json"},
        {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_at_the_definition(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="output="):
        OutputSpec(schema)


def test_the_name_of_the_tool_that_takes_the_output_is_taken() -> None:
    """O1: a tool of that name would be called in place of it, or the other way round."""

    @remit.tool(effect="read")
    def final_answer(x: str) -> str:
        """Mine."""
        return x

    with pytest.raises(ConfigurationError, match="final_answer"):
        desk(["fine"], [final_answer], output=int)
    desk(["fine"], [final_answer])  # where no output is typed it is a name like any other


def test_nobody_who_asks_for_text_pays_for_types() -> None:
    """O1: pydantic is imported for a tool or a typed output, and for nothing else."""
    script = (
        "import sys, remit\n"
        "from remit.testing import ScriptedModel\n"
        "limits = remit.Limits(steps=1, tokens=9_000, seconds=9)\n"
        "def run(**o): return remit.Remit(name='x', limits=limits, model=ScriptedModel(['hi']), **o).run_sync('go')\n"
        "run(); run(output=str); print('pydantic' in sys.modules)\n"
        "run(output=int); print('pydantic' in sys.modules)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split() == ["False", "True"]


# --- handing it in -------------------------------------------------------------------------------


def test_the_value_is_handed_in_by_a_call_that_ends_the_run() -> None:
    """O1: the outcome has the value, its text is what the model said, and no other request is made."""

    async def main() -> None:
        support = typed([("look", {"x": "a"}), ["Here it is.", final(ok=True)]])
        outcome = await support.run("go", run_id="r")
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, Verdict(ok=True))
        assert (outcome.text, outcome.steps) == ("Here it is.", 2)
        assert outcome.spend.own.calls == 1  # the look alone
        assert said(outcome) == ["saw a", "Accepted."]
        assert is_sendable(outcome.transcript)
        first, second = model_of(support).requests
        assert first.tools == second.tools
        assert [tool.name for tool in first.tools][-1] == FINAL_ANSWER
        assert first.tools[-1].parameters == OutputSpec(Verdict).schema
        assert first.output_schema is None
        ends = [row.ends for row in await rows(support, "r") if isinstance(row, Settled)]
        assert ends == ["", "output"]

    run_virtual(main())


def test_without_words_of_the_model_the_text_is_what_was_handed_in() -> None:
    """O1: `text` is never empty where something was said."""

    async def main() -> None:
        outcome = await typed([final(value=[1, 2])], list[int]).run("go")
        assert (outcome.output, outcome.text) == ([1, 2], '{"value":[1,2]}')

    run_virtual(main())


def test_a_type_of_text_is_text() -> None:
    """O1: `output=str` is what a run without any gives, and no tool is added for it."""

    async def main() -> None:
        support = typed(["fine"], str)
        outcome = await support.run("go")
        assert outcome.output == "fine"
        assert FINAL_ANSWER not in {tool.name for tool in model_of(support).requests[0].tools}

    run_virtual(main())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_siblings_run_and_are_settled_before_the_run_ends(place: int) -> None:
    """O1, T1, T2: wherever the output stands in its turn, effects beside it are done, in call order."""

    async def main() -> None:
        world = World()
        calls: list[Any] = [("note", {"x": "a"}), ("look", {"x": "b"})]
        calls.insert(place, final(ok=True))
        support = typed([calls], world=world)
        outcome = await support.run("go")
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, Verdict(ok=True))
        assert world.done == ["note a"]
        assert statuses(outcome) == ["ok"] * 3
        assert said(outcome)[place] == "Accepted."
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_a_sibling_that_failed_does_not_keep_the_output_back() -> None:
    """O1, C1: an error of a sibling is that call's."""

    async def main() -> None:
        calls = [("fail", {"x": "a"}), final(ok=True), ("nonesuch", {}), ("look", {"y": 1})]
        outcome = await typed([calls]).run("go")
        assert statuses(outcome) == ["error", "ok", "error", "error"]
        assert outcome.output == Verdict(ok=True)

    run_virtual(main())


@pytest.mark.parametrize("approve", [True, False])
def test_a_sibling_that_waits_is_decided_before_the_output_is_given(approve: bool) -> None:
    """O1, E6: the run waits with its output in the journal; any process may go on and give it."""

    async def main() -> None:
        world, store = World(), MemoryStore()
        calls = [final(ok=False, why="late"), ("pay", {"x": "a"})]
        first = typed([calls], world=world, store=store)
        outcome = await first.run("go", run_id="r")
        assert (outcome.reason, outcome.output) == (Reason.WAITING, None)
        later = typed([], world=world, store=store)
        await later.decide(id=outcome.pending[0].id, approve=approve, by="dana")
        outcome = await later.resume("r")
        assert (outcome.reason, outcome.output) == (
            Reason.COMPLETED,
            Verdict(ok=False, why="late"),
        )
        assert world.done == ["pay a"][:approve]
        assert model_of(later).asked == 0

    run_virtual(main())


def test_of_several_outputs_in_a_turn_the_first_that_fits_wins() -> None:
    """O1: in call order; what does not fit is told so, what comes later is not run."""

    async def main() -> None:
        calls = [final(okay=1), final(ok=True), final(ok=False), final(okay=2)]
        outcome = await typed([calls]).run("go")
        assert outcome.output == Verdict(ok=True)
        assert statuses(outcome) == ["error", "ok", "not_started", "not_started"]
        assert "earlier call" in said(outcome)[3]

    run_virtual(main())


# --- what does not fit ---------------------------------------------------------------------------


def test_a_call_that_does_not_fit_is_told_why_and_may_be_made_again() -> None:
    """O1, C1: the error is the call's result, and the next attempt counts."""

    async def main() -> None:
        support = typed([final(ok="maybe"), final(ok=True)])
        outcome, events = await watched(support, "go")
        assert outcome.output == Verdict(ok=True)
        assert statuses(outcome) == ["error", "ok"]
        assert said(outcome)[0].startswith("Error: Your answer does not fit.\n- ok:")
        assert [e.fields["error"][:20] for e in events if e.kind == "output_invalid"] == [
            "Your answer does not"
        ]

    run_virtual(main())


def test_an_answer_in_text_is_told_to_call_the_tool() -> None:
    """O1: text alone is no output of that type, even where it happens to be its JSON."""

    async def main() -> None:
        support = typed(["It is fine.", '{"ok":true}', final(ok=True)])
        outcome = await support.run("go", run_id="r")
        assert (outcome.output, outcome.steps) == (Verdict(ok=True), 3)
        notes = [row for row in await rows(support, "r") if isinstance(row, Noted)]
        assert [note.source for note in notes] == ["invalid", "invalid"]
        assert FINAL_ANSWER in notes[0].text
        assert is_sendable(outcome.transcript)

    run_virtual(main())


@pytest.mark.parametrize(
    "script",
    [
        [final(ok=3), final(ok=4), final(ok=5), final(ok=True)],
        ["fine", "I said fine", "fine!", final(ok=True)],
        [final(ok=3), "fine", [final(), ("fail", {"x": "a"})], final(ok=True)],
        ["fine", Step("", stop_reason=StopReason.END_TURN), "fine", "fine", final(ok=True)],
    ],
)
def test_after_two_retries_in_vain_the_run_ends_as_invalid_output(script: list[Any]) -> None:
    """O1: with what was wrong last, and all work done so far."""

    async def main() -> None:
        world = World()
        support = typed([("note", {"x": "a"}), *script], world=world)
        outcome = await support.run("go")
        assert (outcome.reason, outcome.output) == (Reason.INVALID_OUTPUT, None)
        assert outcome.error is not None
        assert outcome.error.startswith("Your answer")
        assert model_of(support).asked == len(script)
        assert world.done == ["note a"]
        assert is_sendable(outcome.transcript)
        again = await support.resume(outcome.run_id)
        assert (again.reason, again.error) == (outcome.reason, outcome.error)

    run_virtual(main())


def test_work_between_two_attempts_begins_the_count_anew() -> None:
    """O1: retries are counted in a row; whoever goes and looks does not go in circles."""

    async def main() -> None:
        looks = [("look", {"x": str(n)}) for n in range(4)]
        script: list[Any] = []
        for look in looks:
            script += ["fine", final(okay=1), look]
        outcome = await typed([*script, final(ok=True)]).run("go")
        assert outcome.output == Verdict(ok=True)
        failing = [("fail", {"x": "a"})]
        outcome = await typed(["fine", final(okay=1), failing, "fine"]).run("go")
        assert outcome.reason is Reason.INVALID_OUTPUT  # nothing was done in between

    run_virtual(main())


def test_a_retry_is_a_step_and_a_limit_stays_the_reason() -> None:
    """O1, L1, L5: the hand-back is words, whatever type was asked for; nothing is handed in any more."""

    async def main() -> None:
        limits = Limits(steps=2, tokens=1_000_000, seconds=60)
        for closing in ("so far", final(ok=True)):
            support = typed(["fine", final(ok=3), closing], limits=limits)
            outcome = await support.run("go")
            assert (outcome.reason, outcome.output) == (Reason.STEP_BUDGET, None)
            assert outcome.steps == 2
            assert model_of(support).asked == 3
            assert is_sendable(outcome.transcript)
        support = typed(["fine", final(ok=3), "so far", final(ok=True)], limits=limits)
        outcome = await support.run("go", run_id="r")
        more = Limits(steps=5, tokens=1_000_000, seconds=60)
        outcome = await support.resume("r", limits=more)
        assert outcome.output == Verdict(ok=True)

    run_virtual(main())


def test_a_reply_that_was_cut_hands_nothing_in() -> None:
    """O1, C3: what the model did not finish is no output, even where its call is complete."""

    async def main() -> None:
        cut = Step([final(ok=False), ("look", '{"x":"a')], stop_reason=StopReason.LENGTH)
        outcome = await typed([cut, final(ok=True)]).run("go")
        assert outcome.output == Verdict(ok=True)
        assert statuses(outcome) == ["not_started", "ok"]

    run_virtual(main())


# --- who is asked --------------------------------------------------------------------------------


def test_the_output_is_no_call_that_a_budget_or_a_policy_could_keep_back() -> None:
    """O1, L1, C8: it is data, not an act; a policy is asked about the tools of the user."""
    asked: list[str] = []

    def policy(request: PolicyRequest) -> remit.Allow:
        asked.append(request.tool)
        return {"look": remit.Allow()}[request.tool]

    async def main() -> None:
        limits = Limits(steps=9, tokens=1_000_000, seconds=60, calls=1)
        support = typed([("look", {"x": "a"}), final(ok=True)], limits=limits, policy=policy)
        outcome = await support.run("go")
        assert (outcome.output, asked) == (Verdict(ok=True), ["look"])
        beside = [("look", {"x": "a"}), ("look", {"x": "b"}), final(ok=True)]
        outcome = await typed([beside], limits=limits).run("go")
        assert statuses(outcome) == ["ok", "not_started", "ok"]
        assert (outcome.reason, outcome.output) == (Reason.COMPLETED, Verdict(ok=True))

    run_virtual(main())


def test_a_guard_that_vetoes_the_reply_keeps_its_output_back() -> None:
    """O1, case 33: nothing that the model said counts before its guards have passed it."""

    async def no(_: Transcript) -> remit.Veto:
        await asyncio.sleep(1)
        return remit.Veto("not like this")

    async def main() -> None:
        outcome = await typed([final(ok=True)], guards=(no,)).run("go")
        assert (outcome.reason, outcome.output) == (Reason.VETOED, None)
        outcome = await native(['{"ok":true}'], guards=(no,)).run("go")
        assert (outcome.reason, outcome.output) == (Reason.VETOED, None)

    run_virtual(main())


def test_what_is_said_behind_the_output_is_answered_with_another_one() -> None:
    """O1, T5: input beside the call that hands in comes after its result, and before the end."""

    async def main() -> None:
        turn = [final(ok=True), ("note", {"x": "a"})]
        support = typed([turn, final(ok=False, why="tuesday")])
        async with support.stream("go") as live:
            await asyncio.sleep(1)
            live.send("also tuesday")
        assert live.outcome.output == Verdict(ok=False, why="tuesday")
        assert live.outcome.completed

    run_virtual(main())


def test_the_first_step_may_be_made_to_hand_in_the_output() -> None:
    """O1: an extraction is one step; the name is known where the tool is."""

    async def main() -> None:
        settings = Settings(tool_choice=FINAL_ANSWER)
        assert (await typed([final(ok=True)], settings=settings).run("go")).completed
        with pytest.raises(ConfigurationError, match="tool_choice"):
            native([], settings=settings)
        with pytest.raises(ConfigurationError, match="tool_choice"):
            desk([], settings=settings)

    run_virtual(main())


# --- who gets it later ---------------------------------------------------------------------------


def test_whoever_asks_later_gets_the_value_from_the_journal() -> None:
    """O1, J3, E8: resume, look, start again and cancel in another process: the same typed output."""

    async def main() -> None:
        store = MemoryStore()
        first = await typed([final(ok=True)], store=store).run("go", run_id="r")
        fresh = typed([], store=store)
        for again in (
            await fresh.resume("r"),
            await fresh.outcome("r"),
            await fresh.run("go", run_id="r"),
            await fresh.cancel("r"),
        ):
            assert (again.reason, again.output, again.text) == (
                Reason.COMPLETED,
                Verdict(ok=True),
                first.text,
            )

    run_virtual(main())


def test_an_output_of_another_type_than_is_asked_for_now_is_told_and_not_guessed() -> None:
    """O1: a run of yesterday's type has ended all the same; only its value cannot be given."""

    async def main() -> None:
        store = MemoryStore()
        await typed([final(ok=True)], store=store).run("go", run_id="typed")
        await desk(["fine"], store=store).run("go", run_id="text")
        for run_id in ("typed", "text"):
            outcome = await typed([], int, store=store).outcome(run_id)
            assert (outcome.reason, outcome.output) == (Reason.COMPLETED, None)
            assert outcome.error is not None
            assert "output=" in outcome.error
        as_text = await desk([], store=store).outcome("typed")
        assert as_text.output == '{"ok":true}'

    run_virtual(main())


def test_the_conversation_goes_on_from_a_typed_outcome() -> None:
    """O1, T2, X1: the history is one like any other, and the next run has an output of its own."""

    async def main() -> None:
        support = typed([final(ok=True), final(ok=False)])
        first = await support.run("go")
        second = await support.run("and now?", history=first.transcript)
        assert (first.output, second.output) == (Verdict(ok=True), Verdict(ok=False))
        assert prefix_of(list(first.transcript), list(second.transcript))

    run_virtual(main())


def test_a_typed_remit_as_a_tool_gives_its_output_to_the_parent_as_json() -> None:
    """O1, C4: the parent's model reads the value; without one it reads what the child said."""

    async def main() -> None:
        child = typed([final(order="7", amount="0.10"), ("escalate", {"x": "dana"})], Bill)
        ask = child.as_tool("ask", "Ask.", limits=LIMITS)
        parent = desk([("ask", {"task": "a"}), ("ask", {"task": "b"}), "done"], [ask])
        outcome = await parent.run("go")
        assert said(outcome) == ['{"order":"7","amount":0.10}', "dana has it"]

    run_virtual(main())


def test_a_run_that_something_else_ended_has_no_typed_output() -> None:
    """O1, O2: a tool that ends the run completes it; its result is text, and no `Verdict`."""

    async def main() -> None:
        outcome = await typed([("escalate", {"x": "dana"})]).run("go")
        assert (outcome.reason, outcome.output, outcome.error) == (Reason.COMPLETED, None, None)
        assert outcome.text == "dana has it"
        both = [("escalate", {"x": "dana"}), final(ok=True)]
        assert (await typed([both]).run("go")).output == Verdict(ok=True)

    run_virtual(main())


# --- a schema of the model's own -----------------------------------------------------------------


def test_where_the_model_has_a_schema_of_its_own_its_text_is_the_output() -> None:
    """O1: no tool is added, the request carries the schema, and the final text is read as the type."""

    async def main() -> None:
        support = native([("look", {"x": "a"}), '{"ok": true, "why": "so"}\n'])
        outcome = await support.run("go", run_id="r")
        assert outcome.output == Verdict(ok=True, why="so")
        assert outcome.text == '{"ok": true, "why": "so"}\n'
        for request in model_of(support).requests:
            assert request.output_schema == OutputSpec(Verdict).schema
            assert FINAL_ANSWER not in {tool.name for tool in request.tools}
        assert (await support.outcome("r")).output == outcome.output
        assert (await native(['{"value":[1]}'], list[int]).run("go")).output == [1]

    run_virtual(main())


def test_a_final_text_that_does_not_fit_is_told_why() -> None:
    """O1: what is wrong goes into a note, and into the journal with the reply."""

    async def main() -> None:
        fenced = '```json\n{"ok":true}\n```'
        support = native(["fine", fenced, '{"ok":true}'])
        outcome = await support.run("go", run_id="r")
        assert outcome.output == Verdict(ok=True)
        written = await rows(support, "r")
        invalid = [row.invalid for row in written if isinstance(row, Replied)]
        assert [bool(each) for each in invalid] == [True, True, False]
        notes = [row.text for row in written if isinstance(row, Noted)]
        assert notes == invalid[:2]
        assert "code fence" in notes[1]

    run_virtual(main())


def test_a_final_text_that_never_fits_ends_the_run_as_invalid_output() -> None:
    """O1: the same number of retries as for the tool."""

    async def main() -> None:
        support = native(["a", "b", "c", '{"ok":true}'])
        outcome = await support.run("go")
        assert (outcome.reason, outcome.output) == (Reason.INVALID_OUTPUT, None)
        assert outcome.error is not None
        assert "no JSON" in outcome.error
        assert (model_of(support).asked, outcome.text) == (3, "c")

    run_virtual(main())


def test_the_hand_back_is_asked_for_in_words() -> None:
    """O1, L5: the closing request carries no schema, and its text is no output."""

    async def main() -> None:
        limits = Limits(steps=1, tokens=1_000_000, seconds=60)
        support = native([("look", {"x": "a"}), '{"ok":true}'], limits=limits)
        outcome = await support.run("go")
        assert (outcome.reason, outcome.output) == (Reason.STEP_BUDGET, None)
        assert outcome.text == '{"ok":true}'
        step, closing = model_of(support).requests
        assert (step.output_schema is None, closing.output_schema is None) == (False, True)

    run_virtual(main())


def test_a_run_may_be_given_a_model_that_takes_the_output_in_the_other_way() -> None:
    """O1: which way it is follows from the model that is asked."""

    async def main() -> None:
        other = ScriptedModel(['{"ok":true}'], profile=NATIVE, record=True)
        support = typed([final(ok=False)])
        outcome = await support.run("go", model=other)
        assert outcome.output == Verdict(ok=True)
        assert FINAL_ANSWER not in {tool.name for tool in other.requests[0].tools}
        back = await native([]).run("go", model=ScriptedModel([final(ok=False)]))
        assert back.output == Verdict(ok=False)
        assert (await support.run("go")).output == Verdict(ok=False)

    run_virtual(main())


def test_the_scripted_model_is_asked_for_no_schema_that_it_does_not_have() -> None:
    """O1: a schema for a model without one is a fault, as a provider would see it."""

    async def main() -> None:
        class Pretends(ScriptedModel):
            @property
            def profile(self) -> ModelProfile:
                return NATIVE

        outcome = await typed(Pretends(["x"])).run("go")
        assert outcome.reason is Reason.MODEL_FAILED

    run_virtual(main())
