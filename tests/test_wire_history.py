"""What becomes of a history over wires: gone on from, resumed elsewhere, shortened, handed from one provider to another.

A judge at each provider reads every request; what was sealed must come back as it was, where it was, or not at all.
"""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import pytest
from pydantic import BaseModel

import remit as rm
from loop_rig import results, runtime, said
from remit import Outcome, Reason
from remit.messages import Message, Opaque, Text, ToolUse
from remit.models.base import Model, ModelProfile
from remit.models.wires.chat import ChatCodec
from remit.models.wires.dialects import DIALECTS
from remit.models.wires.responses import ResponsesCodec
from remit.store.memory import MemoryStore
from remit.testing import run_virtual
from remit.testing.serve import MemoryTransport, Refused, ScriptedProvider
from wire_rig import (
    WIRES,
    both_ways,
    check,
    look_up,
    messages_of,
    on_every_wire,
    play,
    remit_of,
    sent_of,
)


def thought(wire: str, number: object) -> Opaque:
    """Something sealed, different each time."""
    match wire:
        case "anthropic":
            data = f'{{"type":"thinking","thinking":"Hm {number}.","signature":"c2lnbmVk{number}"}}'
        case "openai":
            data = f'{{"type":"reasoning","id":"rs_{number}","summary":[],"encrypted_content":"gAAAAAB{number}"}}'
        case _:  # as DeepSeek has it; OpenAI's own gives none
            data = f'{{"reasoning_content":"Hm {number}."}}'
    return Opaque(wire, data.encode())


def at(wire: str, script: list[Any]) -> MemoryTransport:
    """A provider whose model thinks, and is told what it thought."""
    return MemoryTransport(ScriptedProvider(script, wire, dialect=DIALECT[wire]))


def model_at(transport: MemoryTransport) -> Model:
    chat = transport.provider.wire.name == "openai-chat"
    return transport.model(speaks=ChatCodec(DIALECTS["deepseek"]) if chat else None)


DIALECT = {"anthropic": "openai", "openai": "openai", "openai-chat": "deepseek"}


def thinking(wire: str, number: int, order: int | None) -> Message:
    """A turn that thinks first."""
    last = (
        Text("Done.")
        if order is None
        else ToolUse(f"call_{number}", "look_up", f'{{"order":{order}}}')
    )
    return Message("assistant", (thought(wire, number), last))


def grows(provider: ScriptedProvider) -> None:
    """Every conversation that was sent begins with the one before."""
    for earlier, later in pairwise([sent_of(request.body) for request in provider.requests]):
        assert later[: len(earlier)] == earlier


@on_every_wire
@pytest.mark.parametrize("ids", [None, "same", "ü:1"], ids=["usual", "constant", "illegal"])
def test_a_second_run_begins_with_the_bytes_of_the_first(wire: str, ids: str | None) -> None:
    """X1: also through another model object and a history that was stored as JSON in between."""
    script = [
        thinking(wire, 1, 7),
        [("look_up", {"order": 8}), ("look_up", {"order": 9})],
        "So.",
        ("look_up", {"order": 10}),
        "Yes.",
    ]
    provider = ScriptedProvider(script, wire, ids=None if ids is None else lambda reply, call: ids)
    transport = MemoryTransport(provider)

    async def main() -> Outcome[Any]:
        first = await remit_of(transport.model(), [look_up], runtime=runtime()).run("One?")
        history = rm.Transcript.load(first.transcript.to_json())
        return await remit_of(transport.model(), [look_up], runtime=runtime()).run(
            "Two?", history=history
        )

    outcome = run_virtual(main)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    check(outcome, provider)
    grows(provider)
    tools = {
        request.body[request.body.index(b'"tools"') :].split(b"]")[0]
        for request in provider.requests
    }
    assert len(tools) == 1


@on_every_wire
def test_a_run_that_is_resumed_elsewhere_goes_on_with_the_same_bytes(wire: str) -> None:
    """X1, case 57: what the store gives back is encoded as it was the first time, whoever encodes it."""

    @rm.tool(effect="confirm", resource=())
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    @pay.summary
    def _(amount: int) -> str:
        return f"Pay {amount}?"

    asks = Message(
        "assistant",
        (
            thought(wire, 2),
            ToolUse("a:1", "pay", '{ "amount" : 1.0e1 }'),
            ToolUse("a:1", "look_up", '{"order":8}'),
        ),
    )
    provider = ScriptedProvider(
        [thinking(wire, 1, 7), asks, ("look_up", {"order": 9}), "Paid."], wire
    )
    transport, store = MemoryTransport(provider), MemoryStore()

    async def main() -> Outcome[Any]:
        desk = remit_of(transport.model(), [pay, look_up], runtime=runtime(), store=store)
        outcome = await desk.run("Pay.")
        assert outcome.reason is Reason.WAITING
        await desk.decide(approve=True, by="dana", id=outcome.pending[0].id)
        other = remit_of(transport.model(), [pay, look_up], runtime=runtime(), store=store)
        return await other.resume(outcome.run_id)

    outcome = run_virtual(main)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    assert said(outcome) == [
        "order 7 is packed",
        "paid 10",
        "order 8 is packed",
        "order 9 is packed",
    ]
    check(outcome, provider)
    grows(provider)


@rm.tool(effect="read", max_result_tokens=4_000)
async def look_far(order: int) -> str:
    """Look up one order, and all about it."""
    return f"order {order} " + "is packed " * 900


@pytest.mark.parametrize(
    ("wire", "state"),
    [("anthropic", "none"), ("openai", "none"), ("openai", "server"), ("openai-chat", "none")],
)
def test_old_results_give_way_and_what_was_sealed_behind_them_is_left_out(
    wire: str, state: Any
) -> None:
    """X5: the provider ties what it sealed to what stood before; after an elision nothing of it comes back wrongly."""

    def say(transcript: Any, request: Any) -> Any:
        number = len(transcript)
        if number >= 60:
            return "Done."
        call = ToolUse(f"call_{number}", "look_far", f'{{"order":{number}}}')
        return Message("assistant", (thought(wire, number), call))

    model: dict[str, Any] = {"profile": ModelProfile(context_window=26_000, max_output=1_000)}
    if wire == "openai":
        model["speaks"] = ResponsesCodec(state=state)
    limits = rm.Limits(steps=40, tokens=10**7, seconds=3_600)
    played = play(say, wire, [look_far], model=model, limits=limits)
    assert played.outcome.reason is Reason.COMPLETED, played.outcome.error
    assert played.outcome.prefix_breaks["elision"] >= 1
    assert len(played.provider.requests) > 20


@on_every_wire
def test_a_prompt_that_was_refused_as_too_long_is_made_shorter(wire: str) -> None:
    """X5: whatever the profile says of the window, the provider knows; where nothing can give way, it is full."""
    calls: list[Any] = [("look_far", {"order": n}) for n in range(6)]
    played = play([*calls, Refused("context"), "Done."], wire, [look_far])
    assert played.outcome.reason is Reason.COMPLETED, played.outcome.error
    assert played.outcome.prefix_breaks == {"elision": 1}
    refused, shorter = (len(request.body) for request in played.provider.requests[-2:])
    assert shorter < refused / 2
    played = play([*calls, *[Refused("context")] * 9], wire, [look_far])
    assert played.outcome.reason is Reason.CONTEXT_FULL
    assert len(played.provider.requests) == 8


@pytest.mark.parametrize(("first", "second"), list(permutations(WIRES, 2)))
def test_a_conversation_goes_to_another_provider_and_comes_back(first: str, second: str) -> None:
    """case 60, T7: each gets back what it sealed and nothing of the other; the stored history keeps both."""
    here = at(first, [thinking(first, 1, 7), "One.", thinking(first, 3, 9), "Three."])
    there = at(second, [thinking(second, 2, 8), "Two."])

    async def main() -> Outcome[Any]:
        desks = [remit_of(model_at(each), [look_up], runtime=runtime()) for each in (here, there)]
        outcome = await desks[0].run("One?")
        outcome = await desks[1].run("Two?", history=outcome.transcript)
        return await desks[0].run("Three?", history=outcome.transcript)

    outcome = run_virtual(main)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    check(outcome, here.provider)
    check(outcome, there.provider)
    kept = b"".join(
        block.data
        for message in outcome.transcript
        for block in message.content
        if isinstance(block, Opaque)
    )
    last = here.provider.requests[-1].body
    for number, wire in ((1, first), (2, second), (3, first)):
        seal = SEALS[wire].format(number).encode()
        assert seal in kept
        assert (seal in last) is (wire == first)


SEALS = {"anthropic": "c2lnbmVk{}", "openai": "gAAAAAB{}", "openai-chat": "Hm {}."}


@pytest.mark.parametrize("wire", ["anthropic", "openai"])
@pytest.mark.parametrize("times", [1, 9])
def test_a_seal_that_is_refused_is_left_out_once(wire: str, times: int) -> None:
    """case 60: the second body differs and passes; what is refused again is not sent a third time."""
    words = {
        "anthropic": "messages.1.content.0: Invalid `signature` in `thinking` block",
        "openai": "The encrypted content gAAA...AAB1 could not be verified. Reason: Encrypted content could not be"
        " decrypted or parsed.",
    }
    refusal = Refused("bad_request", words[wire])
    played = play([thinking(wire, 1, 7), *[refusal] * times, "Done."], wire, [look_up])
    bodies = [request.body for request in played.provider.requests[1:]]
    assert len(set(bodies)) == len(bodies) == 2
    if times == 1:
        assert played.outcome.reason is Reason.COMPLETED
    else:
        assert played.outcome.reason is Reason.MODEL_FAILED
    assert said(played.outcome) == ["order 7 is packed"]


class Counts(BaseModel):
    """A map of any names, which a strict schema cannot say."""

    by_name: dict[str, int]


@on_every_wire
def test_a_typed_output_that_no_strict_schema_can_say_is_asked_for_all_the_same(wire: str) -> None:
    """O1, case 18: the first request says what is wanted, and it is told once that nobody is held to it."""
    script = [("look_up", {"order": 7}), '{"by_name": {"x": 1}}']
    played = play(
        script,
        wire,
        [look_up],
        model={"profile": ModelProfile(native_output=True)},
        output=Counts,
    )
    assert played.outcome.output == Counts(by_name={"x": 1})
    first, second = (request.body for request in played.provider.requests)
    assert b"by_name" in first
    assert sent_of(second)[0] == sent_of(first)[0]
    assert len(played.told("model_notice")) == (wire == "anthropic")
    assert not played.told("cache_missed")


def test_a_run_that_ended_in_results_is_gone_on_from_where_no_user_may_stand_behind_them() -> None:
    """case 76, T2: as Mistral has it; the results of the one turn and the words of the next are two messages."""
    calls = [("look_up", {"order": 7}), ("look_up", {"order": 8})]
    script: list[Any] = [calls, calls, "On.", "And on."]
    provider = ScriptedProvider(script, "openai-chat", dialect="mistral")
    model = MemoryTransport(provider).model(speaks=ChatCodec(DIALECTS["mistral"]))

    async def main() -> Outcome[Any]:
        limits = rm.Limits(steps=1, tokens=100_000, seconds=60)
        desk = remit_of(model, [look_up], runtime=runtime(), limits=limits)
        outcome = await desk.run("Where?")
        assert outcome.reason is Reason.STEP_BUDGET
        for _ in range(2):
            outcome = await desk.run("And now?", history=outcome.transcript)
        return outcome

    outcome = run_virtual(main)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    check(outcome, provider)
    grows(provider)


def test_a_server_that_takes_no_schema_is_told_it_in_words() -> None:
    """O1, case 60: what a refused field asked for is not forgotten with it."""
    refusal = Refused("bad_request", "Unsupported parameter: 'response_format' is not supported.")
    played = play(
        [refusal, ("look_up", {"order": 7}), '{"by_name": {}}'],
        "openai-chat",
        [look_up],
        model={"profile": ModelProfile(native_output=True)},
        output=Counts,
        instructions="Count.",
    )
    assert played.outcome.output == Counts(by_name={})
    _, second, third = (request.body for request in played.provider.requests)
    for body in (second, third):
        assert b'"response_format"' not in body
        assert messages_of(body)[0]["content"].startswith("Count.\n\nYour final answer is JSON")
        assert "by_name" in messages_of(body)[0]["content"]


@pytest.mark.parametrize("wire", ["anthropic", "openai"])
def test_a_provider_that_refuses_all_its_own_seals_can_still_be_worked_with(wire: str) -> None:
    """case 60: as behind a proxy that asks another vendor each time; each new seal is left out once it is refused."""
    words = {
        "anthropic": "messages.1.content.0: Invalid `signature` in `thinking` block",
        "openai": "The encrypted content gAAA...AAB1 could not be verified.",
    }

    def say(transcript: Any, request: Any) -> Any:
        if b"signature" in last() or b'encrypted_content":' in last():
            return Refused("bad_request", words[wire])
        number = len(transcript)
        return thinking(wire, number, number if number < 8 else None)

    def last() -> bytes:
        return played[0].provider.requests[-1].body

    played: list[Any] = [MemoryTransport(ScriptedProvider(say, wire))]
    desk = remit_of(played[0].model(), [look_up], runtime=runtime())
    outcome = run_virtual(lambda: desk.run("Where are they?"))
    assert outcome.reason is Reason.COMPLETED, outcome.error
    check(outcome, played[0].provider)
    assert len(played[0].provider.requests) == 1 + 2 * 4


class Answer(BaseModel):
    """What is asked for."""

    city: str
    degrees: int | None = None


@on_every_wire
@both_ways
@pytest.mark.parametrize("native", [False, True], ids=["by a tool", "native"])
def test_a_typed_output_comes_over_the_wire(wire: str, native: bool, streams: bool) -> None:
    """O1: by a tool of its own or held to its schema by the provider; a misfit is asked for again."""

    def say(transcript: Any, request: Any) -> Any:
        tried = len(transcript) > 2
        answer = '{"city":"Oslo","degrees":%s}' % ("3" if tried else '"cold"')
        if native:
            return answer
        (spec,) = [
            spec for spec in request.tools if "city" in spec.parameters.get("properties", {})
        ]
        return (spec.name, answer)

    model = {"streams": streams, "profile": ModelProfile(native_output=native)}
    played = play(say, wire, [look_up], output=Answer, model=model)
    assert played.outcome.reason is Reason.COMPLETED, played.outcome.error
    assert played.outcome.output == Answer(city="Oslo", degrees=3)


@on_every_wire
def test_settings_reach_the_wire_in_its_own_words(wire: str) -> None:
    """protocol: thinking, a cap of the output and what is handed through are said as the provider wants them."""
    model: dict[str, Any] = {"profile": ModelProfile(max_output=64_000)}
    settings = rm.Settings(max_output=9_000, thinking=2_000, extra={"metadata": {"user_id": "u1"}})
    played = play(["Done."], wire, [look_up], settings=settings, model=model)
    assert played.outcome.reason is Reason.COMPLETED, played.outcome.error
    (request,) = played.provider.requests
    told = request.json
    assert told["metadata"] == {"user_id": "u1"}
    assert 9_000 in {value for value in told.values() if isinstance(value, int)}


@on_every_wire
@both_ways
def test_a_run_can_be_played_again_from_its_own_history(wire: str, streams: bool) -> None:
    """S1, T7: a history is a script; what a codec noted beside its blocks is not said again."""
    turns = [
        ["See.", ("look_up", {"order": 7}), ("look_up", {"order": 8})],
        thinking(wire, 2, 9),
        "Done.",
    ]
    once = play(turns, wire, [look_up], model={"streams": streams}).outcome
    said_then = [message for message in once.transcript if message.role == "assistant"]
    again = play(said_then, wire, [look_up], model={"streams": streams}).outcome
    assert again.reason is Reason.COMPLETED, again.error
    assert said(again) == said(once)
    plain = [[(m.text, m.tool_uses) for m in each.transcript] for each in (once, again)]
    assert plain[0] == plain[1]


@on_every_wire
def test_a_run_at_its_limit_hands_back_over_the_wire(wire: str) -> None:
    """L5: the closing call is one that the provider takes, whatever is still owed."""

    def say(transcript: Any, request: Any) -> Any:
        over = len(transcript) > 4
        return "So far." if over else [("look_up", {"order": n}) for n in range(3)]

    played = play(say, wire, [look_up], limits=rm.Limits(steps=2, tokens=10**7, seconds=600))
    assert played.outcome.reason is Reason.STEP_BUDGET
    assert played.outcome.text == "So far."
    assert len(results(played.outcome)) == 6


def test_every_wire_is_a_model_of_the_same_kind() -> None:
    """remit: nothing above knows which wire it is on."""
    for wire in WIRES:
        model: Model = MemoryTransport(ScriptedProvider([], wire)).model()
        assert model.name.startswith(f"{wire}:")
