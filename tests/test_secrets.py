"""What is marked `Secret`: the model fills it, the function gets it, and no person is shown it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import remit as rm
from loop_rig import desk, results, said, statuses, watched
from remit import (
    Call,
    Computed,
    Confirm,
    Decision,
    Event,
    Invocation,
    Pending,
    PolicyRequest,
    Proceed,
    Reason,
    Secret,
    Tool,
    tool,
    wrap_tools,
)
from remit.canonical import arguments_hash, canonical
from remit.preview import MASK
from remit.testing import run_virtual
from remit.tools import Arguments
from remit.tools.schema import masked

PIN = "hunter-4711"


class Card(BaseModel):
    number: Annotated[str, Secret]
    holder: str


@dataclass
class Login:
    user: str
    pin: Annotated[int, Secret()]


def shown_events(events: list[Event]) -> str:
    return json.dumps([event.to_json() for event in events if event.kind != "replied"])


def ask(arguments: dict[str, Any], name: str = "pay") -> list[Any]:
    return [[(name, arguments)], "done"]


@tool(effect="confirm")
async def pay(amount: int, pin: Annotated[str, Secret]) -> str:
    """Pays."""
    return f"paid {amount} with {pin}"


# --- where it is shown and where not -------------------------------------------------------------


def test_the_function_gets_a_secret_and_the_model_is_shown_no_mark_of_it() -> None:
    """R1: for them it is a parameter like any other."""
    assert pay.parameters["properties"]["pin"] == {"type": "string"}
    assert "secret" not in json.dumps(pay.parameters)
    read = pay.read_arguments(f'{{"amount": 1, "pin": "{PIN}"}}')
    assert isinstance(read, Arguments)
    assert read.values == {"amount": 1, "pin": PIN}


def test_no_event_and_no_pending_shows_a_secret() -> None:
    """R1, E5: summary, arguments and previews are masked; what the model wrote stands in the transcript alone."""

    async def main() -> None:
        remit = desk(ask({"amount": 1, "pin": PIN}), [pay])
        outcome, events = await watched(remit, "go", run_id="r")
        assert outcome.reason is Reason.WAITING
        [pending] = outcome.pending
        assert pending.arguments == '{"amount":1,"pin":"***"}'
        assert pending.summary == 'pay(amount=1, pin="***")'
        assert PIN not in repr(outcome.pending)
        await remit.decide(pending.token, approve=True, by="dana")
        async with remit.stream("go", run_id="r") as live:
            events += [event async for event in live]
        assert said(live.outcome) == [f"paid 1 with {PIN}"]
        assert PIN in str(live.outcome.transcript.to_json())
        assert PIN not in shown_events(events)
        [started] = [event for event in events if event.kind == "call_started"]
        assert started.fields["arguments"] == '{"amount":1,"pin":"***"}'
        [settled] = [event for event in events if event.kind == "call_settled"]
        assert settled.fields["preview"] == "paid 1 with ***"

    run_virtual(main())


def test_a_question_that_spells_a_secret_shows_it_to_nobody() -> None:
    """R1, E6: masked for who is asked and in the events; the answer finds its place all the same."""

    @tool(effect="read")
    async def check(pin: Annotated[str, Secret], call: Call) -> str:
        """Checks."""
        return str(call.ask(int, f"how often was {pin} used?"))

    async def main() -> None:
        remit = desk(ask({"pin": PIN}, "check"), [check])
        outcome, events = await watched(remit, "go", run_id="r")
        [pending] = outcome.pending
        assert pending.summary == "how often was *** used?"
        assert PIN not in repr(pending)
        assert PIN not in shown_events(events)
        await remit.supply(pending.id, 3)
        assert said(await remit.resume("r")) == ["3"]

    run_virtual(main())


def test_no_repr_of_a_pending_or_a_decision_spells_arguments() -> None:
    """R1, E5: whoever executes a call elsewhere has the true ones, and logs of either show none."""
    schema = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}}
    send = Tool.elsewhere(name="send", description="Sends.", parameters=schema, effect="idempotent")

    async def main() -> None:
        outcome = await desk(ask({"pin": PIN}, "send"), [send]).run("go")
        [pending] = outcome.pending
        assert json.loads(pending.arguments) == {"pin": PIN}
        assert PIN not in repr(outcome.pending)
        assert PIN not in repr(Decision(approve=True, by="dana", edit={"pin": PIN}))

    run_virtual(main())


def test_an_approval_binds_the_true_arguments() -> None:
    """E5, R1: what is masked alike is not alike."""

    async def main() -> None:
        remit = desk(ask({"amount": 1, "pin": PIN}), [pay])
        [pending] = (await remit.run("go", run_id="r")).pending
        true = arguments_hash({"amount": 1, "pin": PIN})
        assert pending.arguments_hash == true
        for stated, why in (
            ("0" * 64, "stale"),
            (arguments_hash(json.loads(pending.arguments)), "stale"),
        ):
            with pytest.raises(rm.DecisionError) as refused:
                await remit.decide(id=pending.id, approve=True, by="dana", arguments_hash=stated)
            assert refused.value.why == why
        await remit.decide(id=pending.id, approve=True, by="dana", arguments_hash=true)
        assert statuses(await remit.resume("r")) == ["ok"]

    run_virtual(main())


def test_a_summary_of_the_authors_own_gets_the_mask() -> None:
    """R1: it describes what people are shown; one that fails on it is replaced, masked too."""

    def summaries() -> list[tuple[Tool[..., Any], str]]:
        @tool(effect="confirm", name="pay")
        async def one(card: Card, pin: Annotated[str, Secret]) -> str:
            """Pays."""
            return "paid"

        @one.summary
        def _(card: Any, pin: str) -> str:
            return f"{card} {pin}"

        @tool(effect="confirm", name="pay")
        async def two(card: Card, pin: Annotated[str, Secret]) -> str:
            """Pays."""
            return "paid"

        @two.summary
        def _(card: Card) -> str:
            return card.holder  # it is JSON here, and this fails

        return [
            (one, "{'number': '***', 'holder': 'me'} ***"),
            (two, 'pay({"card":{"holder":"me","number":"***"},"pin":"***"})'),
        ]

    async def main() -> None:
        given = {"card": {"number": PIN, "holder": "me"}, "pin": PIN}
        for made, summary in summaries():
            outcome = await desk(ask(given), [made]).run("go")
            assert outcome.pending[0].summary == summary

    run_virtual(main())


def test_a_policy_is_shown_the_true_arguments() -> None:
    """R1: it decides by them; its own words are its own."""
    seen: list[Any] = []

    def policy(request: PolicyRequest) -> Confirm:
        seen.append(request.arguments["pin"])
        return Confirm("Sure?")

    async def main() -> None:
        outcome = await desk(ask({"amount": 1, "pin": PIN}), [pay], policy=policy).run("go")
        assert outcome.pending[0].summary == "Sure?"
        assert seen == [PIN]

    run_virtual(main())


def test_what_a_person_puts_in_place_of_a_secret_is_not_told_to_the_model() -> None:
    """R1, E5: the model wrote none of it."""

    async def main() -> None:
        remit = desk(ask({"amount": 1, "pin": "guessed"}), [pay])
        [pending] = (await remit.run("go", run_id="r")).pending
        edit = {"amount": 2, "pin": PIN}
        await remit.decide(id=pending.id, approve=True, by="dana", edit=edit)

        @tool(effect="confirm", name="pay")
        async def quiet(amount: int, pin: Annotated[str, Secret]) -> str:
            """Pays."""
            assert pin == PIN
            return "paid"

        outcome, events = await watched(remit.replace(tools=[quiet]), "go", run_id="r")
        assert said(outcome) == ['[dana changed the arguments to {"amount":2,"pin":"***"}]\npaid']
        assert PIN not in shown_events(events)
        assert results(outcome)[0].key is not None

    run_virtual(main())


def test_progress_errors_and_misfits_do_not_spell_a_secret_in_an_event() -> None:
    """R1: whoever repeats it."""

    @tool(effect="read", eager=False)
    async def leaky(pin: Annotated[str, Secret], n: int, call: Call) -> str:
        """Talks too much."""
        call.progress(f"trying {pin}")
        raise ValueError(f"bad pin {pin!r}")

    async def main() -> None:
        calls = [("leaky", {"pin": PIN, "n": 1}), ("leaky", {"pin": PIN, "n": PIN})]
        outcome, events = await watched(desk([calls, "done"], [leaky]), "go")
        assert statuses(outcome) == ["error", "error"]
        assert PIN not in shown_events(events)
        told = [event.fields["message"] for event in events if event.kind == "call_progress"]
        assert told == ["trying ***"]
        assert PIN in said(outcome)[0]  # what the model is told is the tool's own business

    run_virtual(main())


def test_a_question_of_the_body_does_not_spell_a_secret() -> None:
    """R1, E6: neither in its pending nor in the event; the body is entered again with the answer."""

    @tool(effect="idempotent")
    async def unlock(pin: Annotated[str, Secret], call: Call) -> str:
        """Unlocks."""
        return "open" if call.ask(bool, f"Is {pin} right?") else "shut"

    async def main() -> None:
        remit = desk(ask({"pin": PIN}, "unlock"), [unlock])
        outcome, events = await watched(remit, "go", run_id="r")
        [pending] = outcome.pending
        assert (pending.summary, pending.arguments) == ("Is *** right?", '{"pin":"***"}')
        assert PIN not in shown_events(events)
        await remit.supply(pending.id, True)
        assert said(await remit.resume("r")) == ["open"]

    run_virtual(main())


def test_a_wrapper_has_a_preview_for_its_logs() -> None:
    """R1: and the true arguments where it needs them, as a cache does; its repr shows none."""
    logged: list[str] = []

    @wrap_tools
    async def logging(invocation: Invocation, proceed: Proceed) -> Any:
        logged.extend([invocation.preview, repr(invocation)])
        assert invocation.arguments["pin"] == PIN
        return await proceed()

    async def confirm(_: Pending) -> Decision:
        return Decision(approve=True, by="dana")

    async def main() -> None:
        remit = desk(ask({"amount": 1, "pin": PIN}), logging([pay]), confirm=confirm)
        assert statuses(await remit.run("go")) == ["ok"]
        assert logged[0] == '{"amount":1,"pin":"***"}'
        assert PIN not in "".join(logged)

    run_virtual(main())


def test_a_secret_of_the_host_is_in_no_record_and_one_of_the_models_where_the_model_wrote_it() -> (
    None
):
    """R1, E3: `Computed(secret=True)` is not even journaled."""

    @tool(effect="confirm")
    async def call_api(
        pin: Annotated[str, Secret], key: Annotated[str, Computed(lambda: "sk-123456", secret=True)]
    ) -> str:
        """Calls."""
        return f"{len(pin)} {len(key)}"

    async def main() -> None:
        remit = desk(ask({"pin": PIN}, "call_api"), [call_api])
        outcome, events = await watched(remit, "go", run_id="r")
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        outcome = await remit.resume("r")
        assert said(outcome) == ["11 9"]
        rows = list(await remit.store.read("r"))
        assert b"sk-123456" not in b"".join(row.body for row in rows)
        assert [row.kind for row in rows if PIN.encode() in row.body] == ["replied"]
        assert "sk-123456" not in shown_events(events)

    run_virtual(main())


# --- what is masked ------------------------------------------------------------------------------


def test_secrets_are_found_wherever_they_stand() -> None:
    """R1: in models, dataclasses, lists, mappings and unions; other values stay."""

    @tool(effect="read")
    async def look(
        card: Card,
        cards: list[Card],
        by_name: dict[str, Annotated[str, Secret]],
        codes: list[Annotated[str, Secret]],
        either: Card | str | None,
        login: Login,
        whole: Annotated[Card, Secret],
        described: Annotated[str, Field(description="x"), Secret, Field(max_length=50)],
        open_: str,
        maybe: Annotated[str | None, Secret] = "the default",
    ) -> None:
        """Looks."""

    card = {"number": PIN, "holder": "me"}
    given = {
        "card": card,
        "cards": [card, card],
        "by_name": {"a": PIN},
        "codes": [PIN, PIN],
        "either": card,
        "login": {"user": "me", "pin": 47_114_711},
        "whole": card,
        "described": PIN,
        "open_": "open",
    }
    read = look.read_arguments(json.dumps(given))
    assert isinstance(read, Arguments)
    hidden = {"number": MASK, "holder": "me"}
    assert look.masked(read.given) == {
        "card": hidden,
        "cards": [hidden, hidden],
        "by_name": {"a": MASK},
        "codes": [MASK, MASK],
        "either": hidden,
        "login": {"user": "me", "pin": MASK},
        "whole": MASK,
        "described": MASK,
        "open_": "open",
    }
    summary = look.summarise(look.shown(read))
    assert PIN not in summary
    assert "4711" not in summary
    assert "the default" not in summary
    assert 'open_="open"' in summary
    assert set(look.secrets(read.given)) == {PIN, "47114711"}


@pytest.mark.parametrize(
    "pin", ["two\nlines", 'a "quote"', "it's", "back\\slash", "k\u00fcrzel", "tab\t'\"\u00e9"]
)
def test_an_event_shows_a_secret_in_no_spelling(pin: str) -> None:
    """R1: JSON and the words of an exception spell it with escapes."""

    @tool(effect="read", eager=False)
    async def look(pin: Annotated[str, Secret], raises: bool) -> dict[str, str]:
        """Looks."""
        if raises:
            raise KeyError(pin)
        return {"pin": pin}

    async def main() -> None:
        calls = [("look", {"pin": pin, "raises": raises}) for raises in (False, True)]
        _, events = await watched(desk([calls, "done"], [look]), "go")
        previews = [event.fields["preview"] for event in events if event.kind == "call_settled"]
        assert previews == [
            '{"pin":"***"}',
            *(f"Error: KeyError: {quote}***{quote}" for quote in repr(pin)[0]),
        ]

    run_virtual(main())


def test_short_secrets_are_masked_in_arguments_and_not_hunted_for_in_results() -> None:
    """R1: a mask for every "a" in a text would hide the text."""

    @tool(effect="read")
    async def look(flag: Annotated[bool, Secret], code: Annotated[str, Secret]) -> None:
        """Looks."""

    assert look.masked({"flag": True, "code": "abc"}) == {"flag": MASK, "code": MASK}
    assert look.secrets({"flag": True, "code": "abc"}) == ()
    quoted = 'a"b\nc\u00e9'
    assert set(look.secrets({"flag": True, "code": quoted})) == {
        quoted,
        json.dumps(quoted)[1:-1],
        json.dumps(quoted, ensure_ascii=False)[1:-1],
        repr(quoted)[1:-1],
        ascii(quoted)[1:-1],
    }


OWN: list[tuple[dict[str, Any], Any, Any]] = [
    ({"properties": {"a": {"writeOnly": True}}}, {"a": 1, "b": 2}, {"a": MASK, "b": 2}),
    ({"properties": {"a": {"writeOnly": False}}}, {"a": 1}, {"a": 1}),
    ({"patternProperties": {"^p": {"writeOnly": True}}}, {"pin": 1}, {"pin": MASK}),
    ({"additionalProperties": {"writeOnly": True}}, {"x": [1]}, {"x": MASK}),
    ({"allOf": [{"properties": {"a": {"writeOnly": True}}}]}, {"a": 1}, {"a": MASK}),
    ({"if": {}, "then": {"properties": {"a": {"writeOnly": True}}}}, {"a": 1}, {"a": MASK}),
    (
        {"dependentSchemas": {"b": {"properties": {"a": {"writeOnly": True}}}}},
        {"a": 1, "b": 2},
        {"a": MASK, "b": 2},
    ),
    (
        {
            "properties": {
                "a": {"prefixItems": [{}, {"writeOnly": True}], "items": {"type": "string"}}
            }
        },
        {"a": [1, 2, "x"]},
        {"a": [1, MASK, "x"]},
    ),
    (
        {"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"writeOnly": True}}},
        {"a": 1},
        {"a": MASK},
    ),
    (
        {"properties": {"a": {"$ref": "#s"}}, "$defs": {"s": {"$anchor": "s", "writeOnly": True}}},
        {"a": 1, "b": 2},
        {"a": MASK, "b": 2},
    ),
    (
        {
            "properties": {"tree": {"$ref": "#/$defs/t"}},
            "$defs": {
                "t": {"properties": {"pin": {"writeOnly": True}, "next": {"$ref": "#/$defs/t"}}}
            },
        },
        {"tree": {"pin": 1, "next": {"pin": 2, "next": {"x": 3}}}},
        {"tree": {"pin": MASK, "next": {"pin": MASK, "next": {"x": 3}}}},
    ),
    ({"writeOnly": True}, {"a": 1}, MASK),
]


@pytest.mark.parametrize(("schema", "value", "expected"), OWN)
def test_in_a_schema_of_ones_own_a_secret_is_what_is_write_only(
    schema: dict[str, Any], value: Any, expected: Any
) -> None:
    """R1: wherever a sub-schema says so of a place, or cannot be read."""
    assert masked({"type": "object", **schema}, value)[0] == expected


def test_a_tool_with_a_schema_of_its_own_keeps_secrets_too() -> None:
    """R1: as one with a signature."""

    async def handler(arguments: dict[str, Any]) -> str:
        return "ok" if arguments["pin"] == PIN else "wrong"

    own = Tool[..., Any].from_schema(
        name="pay",
        description="Pays.",
        parameters={
            "type": "object",
            "properties": {"pin": {"type": "string", "writeOnly": True}},
            "required": ["pin"],
        },
        handler=handler,
        effect="confirm",
    )

    async def main() -> None:
        remit = desk(ask({"pin": PIN}), [own])
        outcome, events = await watched(remit, "go", run_id="r")
        assert outcome.pending[0].arguments == canonical({"pin": MASK})
        assert PIN not in shown_events(events)
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        assert said(await remit.resume("r")) == ["ok"]

    run_virtual(main())


_leaves = st.one_of(st.integers(), st.booleans(), st.none(), st.text(max_size=5))
_values = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["pin", "a", "b"]), inner, max_size=3)
    ),
    max_leaves=12,
)
ANYWHERE: dict[str, Any] = {
    "$defs": {
        "any": {
            "properties": {"pin": {"writeOnly": True}},
            "additionalProperties": {"$ref": "#/$defs/any"},
            "items": {"$ref": "#/$defs/any"},
        }
    },
    "$ref": "#/$defs/any",
}


def spoiled(value: Any, *, secret: bool = False) -> Any:
    """The value with every leaf under a `pin` replaced by the secret."""
    if isinstance(value, dict):
        return {k: spoiled(v, secret=secret or k == "pin") for k, v in value.items()}
    if isinstance(value, list):
        return [spoiled(v, secret=secret) for v in value]
    return PIN if secret else value


@given(_values)
def test_no_value_has_a_way_to_show_a_secret(value: Any) -> None:
    """R1: at any depth; and nothing else is changed."""
    hidden, secrets = masked(ANYWHERE, spoiled(value))
    assert PIN not in json.dumps(hidden)
    if PIN not in json.dumps(spoiled(value)):
        assert json.dumps(secrets).count(PIN) == 0
