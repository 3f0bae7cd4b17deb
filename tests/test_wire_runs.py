"""Whole runs over every wire: what a loop does, seen by a provider that judges every request.

On virtual time against a provider in memory; the same over sockets where sockets matter.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

import remit as rm
from loop_rig import LIMITS, results, runtime, said, text_of
from remit import Limits, Outcome, Reason
from remit.messages import Media, Message, Opaque, StopReason, ToolUse
from remit.models.base import Chunk
from remit.models.wires.responses import ResponsesCodec
from remit.testing import ModelConformance, Step, run_virtual
from remit.testing.serve import (
    Answer,
    Cut,
    Dripped,
    MemoryTransport,
    Received,
    Refused,
    ScriptedProvider,
    Server,
)
from remit.testing.serve.written import Frame, Written
from wire_rig import (
    both_ways,
    check,
    look_up,
    messages_of,
    on_every_wire,
    over_a_socket,
    play,
    remit_of,
    sent_of,
)


@on_every_wire
@both_ways
def test_a_run_with_parallel_calls_completes(wire: str, streams: bool) -> None:
    """T1: every call is answered once, in call order, whichever finishes first; the provider takes every request."""

    @rm.tool(effect="idempotent", resource=())
    async def fetch(city: str, seconds: float) -> str:
        """Fetch."""
        await asyncio.sleep(seconds)
        return f"{city} is known"

    calls: list[Any] = [
        ("fetch", {"city": city, "seconds": n})
        for city, n in (("Oslo", 3), ("Cairo", 1), ("Lima", 2))
    ]
    script = [["I shall see.", *calls], ("fetch", {"city": "Rome", "seconds": 0}), "All are known."]
    played = play(script, wire, [fetch], model={"streams": streams})
    assert played.outcome.reason is Reason.COMPLETED
    assert played.outcome.text == "All are known."
    assert said(played.outcome) == [
        "Oslo is known",
        "Cairo is known",
        "Lima is known",
        "Rome is known",
    ]
    first, second, third = (messages_of(request.body) for request in played.provider.requests)
    assert first == second[: len(first)]
    assert len(third) > len(second)


@on_every_wire
def test_requests_of_a_run_grow_by_bytes_that_are_added(wire: str) -> None:
    """X1: the messages of one request begin with those of the request before, byte for byte, cache markers aside."""
    script: list[Any] = [[("look_up", {"order": n}), ("look_up", {"order": -n})] for n in range(8)]
    played = play([*script, "Done."], wire, [look_up])
    bodies = [sent_of(request.body) for request in played.provider.requests]
    for earlier, later in pairwise(bodies):
        assert later[: len(earlier)] == earlier
    tools = {json.dumps(json.loads(request.body)["tools"]) for request in played.provider.requests}
    assert len(tools) == 1


@on_every_wire
def test_a_read_begins_as_soon_as_its_own_block_is_complete(wire: str) -> None:
    """C8: it runs beside the model, which goes on writing."""
    began: list[float] = []

    @rm.tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        began.append(asyncio.get_running_loop().time())
        return f"saw {at}"

    script = [Step([("look", {"at": "it"}), ("look", {"at": "him"})], between=5.0), "Seen."]
    played = play(script, wire, [look])
    assert said(played.outcome) == ["saw it", "saw him"]
    first, second = began
    assert second - first == pytest.approx(5.0)
    assert played.provider.requests[1].at - first >= 10.0


@on_every_wire
def test_a_confirm_waits_for_its_approval_and_is_resumed_over_the_wire(wire: str) -> None:
    """E6: while the run waits nobody is asked; then the body runs once and the model sees its result."""
    paid: list[int] = []

    @rm.tool(effect="confirm", resource=())
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    @pay.summary
    def _(amount: int) -> str:
        return f"Pay {amount}?"

    transport = MemoryTransport(
        ScriptedProvider([[("look_up", {"order": 7}), ("pay", {"amount": 12})], "Paid."], wire)
    )

    async def main() -> None:
        desk = remit_of(transport.model(), [pay, look_up], runtime=runtime())
        outcome = await desk.run("Pay for order 7.")
        assert outcome.reason is Reason.WAITING
        assert len(transport.provider.requests) == 1
        (pending,) = outcome.pending
        await desk.decide(approve=True, by="dana", id=pending.id)
        outcome = await desk.resume(outcome.run_id)
        assert outcome.reason is Reason.COMPLETED
        assert said(outcome) == ["order 7 is packed", "paid 12"]
        check(outcome, transport.provider)

    run_virtual(main)
    assert paid == [12]
    assert len(transport.provider.requests) == 2


@on_every_wire
def test_a_child_asks_over_the_same_wire(wire: str) -> None:
    """L3: parent and child are two conversations; each is judged on its own, and what they use is summed."""

    def say(transcript: Any, request: Any) -> Any:
        if "helper" in request.instructions:
            return "It is packed." if results(transcript) else ("look_up", {"order": 7})
        return "So it is packed." if results(transcript) else ("help", {"task": "Order 7?"})

    transport = MemoryTransport(ScriptedProvider(say, wire))
    model = transport.model()
    helper = remit_of(
        model, [look_up], name="helper", instructions="You are a helper.", runtime=runtime()
    )
    desk = remit_of(model, [helper.as_tool("help", "Helps.", limits=LIMITS)], runtime=runtime())

    async def main() -> None:
        outcome = await desk.run("Where is order 7?")
        assert outcome.reason is Reason.COMPLETED
        assert said(outcome) == ["It is packed."]
        check(outcome, transport.provider)

    run_virtual(main)
    assert len(transport.provider.requests) == 4


@on_every_wire
@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_a_cancel_in_the_middle_of_a_stream_keeps_what_was_complete(wire: str, blocks: int) -> None:
    """K1: the connection is given up, the transcript closed, and no further request is made."""
    entered: list[int] = []

    @rm.tool(effect="idempotent", resource=())
    async def act(number: int) -> str:
        """Act."""
        entered.append(number)
        return "acted"

    script = [Step(["Well.", ("act", {"number": 1})], delay=1.0, between=2.0), "Never."]
    transport = MemoryTransport(ScriptedProvider(script, wire))

    async def main() -> None:
        desk = remit_of(transport.model(), [act], runtime=runtime())
        async with desk.stream("Go.") as live:
            await asyncio.sleep(0.5 + blocks * 2.0)
            assert transport.open == 1
            outcome = await live.cancel()
        assert transport.open == 0
        assert outcome.reason is Reason.CANCELLED
        check(outcome, transport.provider)
        assert entered == []

    run_virtual(main)
    assert len(transport.provider.requests) == 1


@on_every_wire
def test_a_cancel_over_a_socket_hangs_up(wire: str) -> None:
    """K1: the provider sees that nobody listens any more."""

    async def main(server: Any) -> None:
        desk = remit_of(server.model(), [look_up])
        async with desk.stream("Go.") as live:
            async for event in live:
                if event.kind == "text":
                    break
            outcome = await live.cancel()
        assert outcome.reason is Reason.CANCELLED
        while not server.left:  # noqa: ASYNC110 - the server counts; it tells nobody
            await asyncio.sleep(0.001)
        check(outcome, server.provider)

    over_a_socket([Step(["Well, well, well.", "And so on."], between=600.0)], wire, main)


@on_every_wire
@both_ways
def test_a_run_over_a_socket_is_the_run_in_memory(wire: str, streams: bool) -> None:
    """T1: the same script over a real socket, on one connection, gives the same conversation."""
    script: list[Any] = [
        ["See.", *[("look_up", {"order": n}) for n in range(12)]],
        ("look_up", {"order": 99}),
        "Done.",
    ]

    async def main(server: Any) -> Any:
        outcome = await remit_of(server.model(streams=streams), [look_up]).run("Where is order 7?")
        check(outcome, server.provider)
        assert server.connections == 1
        return outcome

    over = over_a_socket(script, wire, main)
    assert over.reason is Reason.COMPLETED
    played = play(script, wire, [look_up], model={"streams": streams})
    assert plain(over) == plain(played.outcome)
    assert over.spend.own.usage == played.outcome.spend.own.usage


def plain(outcome: rm.Outcome[Any]) -> list[Any]:
    """A conversation without what differs from run to run: the keys of calls."""
    return [
        (
            message.role,
            message.text,
            message.tool_uses,
            [text_of(each) for each in message.tool_results],
        )
        for message in outcome.transcript
    ]


@on_every_wire
def test_many_runs_at_once_share_the_connections_of_one_model(wire: str) -> None:
    """C5: twenty runs side by side; none hears what another was told."""

    def say(transcript: Any, _request: Any) -> Any:
        number = int(transcript[0].text)
        return f"so {number}" if results(transcript) else ("look_up", {"order": number})

    async def main(server: Any) -> None:
        desk = remit_of(server.model(), [look_up])
        async with desk:
            outcomes = await asyncio.gather(*(desk.run(str(n)) for n in range(20)))
        for number, outcome in enumerate(outcomes):
            assert outcome.text == f"so {number}"
            assert said(outcome) == [f"order {number} is packed"]
            check(outcome, server.provider)
        assert server.connections <= 20

    over_a_socket(say, wire, main)


@pytest.mark.parametrize(
    "dialect",
    ["azure", "deepseek", "groq", "llamacpp", "mistral", "ollama", "openrouter", "vllm"],
)
@both_ways
def test_a_run_completes_at_every_server_that_speaks_chat_completions(
    dialect: str, streams: bool
) -> None:
    """T1: parallel calls with ids of the server's own kind; its judge takes every request, words from the user too."""

    async def main(server: Server) -> rm.Outcome[Any]:
        desk = remit_of(server.model(streams=streams), [look_up], instructions="Be kind.")
        async with desk.stream("Where is order 7?") as live:
            live.send("And order 8?")
        again = await desk.run("And now?", history=live.outcome.transcript)
        check(again, server.provider)
        return live.outcome

    script: list[Any] = [["I shall see.", ("look_up", {"order": 7}), ("look_up", {"order": 8})]]
    outcome = over_a_socket(
        [*script, "Both are.", "Yes.", "Yes.", "Yes."], "openai-chat", main, dialect=dialect
    )
    assert outcome.reason is Reason.COMPLETED, outcome.error
    assert said(outcome) == ["order 7 is packed", "order 8 is packed"]


# Ids


@on_every_wire
@pytest.mark.parametrize(
    "given",
    [None, "", "same", "übel:1.2", "x" * 200],
    ids=["none", "empty", "constant", "illegal", "long"],
)
def test_results_meet_their_calls_whatever_ids_the_provider_gives(
    wire: str, given: str | None
) -> None:
    """case 08: two calls to one function without an id of their own; the slow one is asked first."""

    @rm.tool(effect="idempotent", resource=())
    async def temperature(city: str) -> str:
        """Measure."""
        await asyncio.sleep(2.0 if city == "Oslo" else 1.0)
        return {"Oslo": "3", "Cairo": "31"}[city]

    script = [[("temperature", {"city": "Oslo"}), ("temperature", {"city": "Cairo"})], "Known."]
    played = play(script, wire, [temperature], provider={"ids": lambda reply, call: given})
    assert played.outcome.reason is Reason.COMPLETED
    uses = [use for message in played.outcome.transcript for use in message.tool_uses]
    found = {result.tool_use_id: text_of(result) for result in results(played.outcome)}
    assert [found[use.id] for use in uses] == ["3", "31"]


@on_every_wire
def test_ids_that_begin_again_in_every_reply_are_told_apart(wire: str) -> None:
    """case 09, T3: three turns with one call of id `c0` each; what was sent stays as it was."""
    script: list[Any] = [("look_up", {"order": n}) for n in range(3)]
    played = play(
        [*script, "Done."], wire, [look_up], provider={"ids": lambda reply, call: f"c{call}"}
    )
    assert said(played.outcome) == [f"order {n} is packed" for n in range(3)]
    bodies = [sent_of(request.body) for request in played.provider.requests]
    for earlier, later in pairwise(bodies):
        assert later[: len(earlier)] == earlier


# What is the provider's own


OWN = {
    "anthropic": Opaque(
        "anthropic", b'{"type":"thinking","thinking":"Hm.","signature":"c2lnbmVk"}'
    ),
    "openai": Opaque(
        "openai",
        b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAABqsecretthoughts"}',
    ),
    "openai-chat": Opaque("openai-chat", b'{"reasoning_content":"Hm."}'),
}


@on_every_wire
@both_ways
def test_thoughts_go_back_unchanged_in_their_place(wire: str, streams: bool) -> None:
    """T7: what the provider sealed is sent back as it came; its judge compares it byte for byte."""
    turn = Message("assistant", (OWN[wire], ToolUse("call_1", "look_up", '{"order": 7}')))
    played = play([turn, "Done."], wire, [look_up], model={"streams": streams})
    assert played.outcome.reason is Reason.COMPLETED
    sent = played.provider.requests[1].body
    if wire == "anthropic":
        assert b'"c2lnbmVk"' in sent
    if wire == "openai":
        assert b"gAAAAABqsecretthoughts" in sent


@pytest.mark.parametrize("pauses", [1, 3])
def test_a_paused_turn_is_sent_back_as_it_is_until_it_goes_on(pauses: int) -> None:
    """case 79: no user turn stands behind it, and every pause is a step."""
    script: list[Any] = [Step("Searching.", stop_reason=StopReason.PAUSE)] * pauses
    played = play([*script, "Found."], "anthropic")
    assert played.outcome.reason is Reason.COMPLETED
    assert played.outcome.text == "Found."
    for request in played.provider.requests[1:]:
        assert messages_of(request.body)[-1]["role"] == "assistant"


def test_a_turn_that_pauses_for_ever_meets_the_step_limit() -> None:
    """case 79: bounded by the steps, and named so."""
    script = lambda transcript, request: Step("Searching.", stop_reason=StopReason.PAUSE)  # noqa: E731 - a script
    limits = rm.Limits(steps=5, tokens=1_000_000, seconds=600)
    played = play(script, "anthropic", limits=limits, hand_back=False)
    assert played.outcome.reason is Reason.STEP_BUDGET
    assert len(played.provider.requests) == 5


# The server's memory


class Picky(ScriptedProvider):
    """A server that refuses any item with an id, or any of the model's items without one."""

    def __init__(self, script: Any, *, wants_ids: bool) -> None:
        super().__init__(script, "openai")
        self._wants_ids = wants_ids
        self.refused = 0

    def answer(self, request: Received) -> Written:
        for item in request.json["input"]:
            own = item.get("type") in {"function_call", "reasoning"}
            if own and ("id" in item) is not self._wants_ids:
                self.refused += 1
                text = (
                    "Missing required parameter: 'input[1].id'."
                    if self._wants_ids
                    else f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to"
                    " false. Try again with `store` set to true, or remove this item from your input."
                )
                status, body = self.wire.refused("bad_request", text)
                if self._wants_ids:
                    body["error"] |= {"code": "missing_required_parameter", "param": "input[1].id"}
                return Written(status, frames=(Frame(json.dumps(body).encode()),))
        return super().answer(request)


@pytest.mark.parametrize("wants_ids", [True, False], ids=["wants ids", "knows no ids"])
def test_a_loop_passes_where_ids_are_demanded_and_where_they_are_refused(wants_ids: bool) -> None:
    """case 59: three steps against either; what was refused is sent again in another form, and that is remembered."""
    script: list[Any] = []
    for n in range(3):
        thought = b'{"type":"reasoning","id":"rs_%d","summary":[],"encrypted_content":"gAAAAAB%d"}'
        script.append([Opaque("openai", thought % (n, n)), ("look_up", {"order": n})])
    provider = Picky([*script, "Done."], wants_ids=wants_ids)
    transport = MemoryTransport(provider)

    async def main() -> rm.Outcome[Any]:
        return await remit_of(transport.model(), [look_up], runtime=runtime()).run("Go.")

    outcome = run_virtual(main)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    check(outcome, provider)
    assert provider.refused <= 2


@both_ways
def test_with_state_on_the_server_only_what_is_new_is_sent(streams: bool) -> None:
    """case 61: three steps with two calls each; no item is sent twice, a broken attempt sends the same again."""
    turns: list[Any] = [[("look_up", {"order": n}), ("look_up", {"order": -n})] for n in (1, 2, 3)]
    script = [turns[0], Cut(turns[1]), turns[1], turns[2], "Done."]
    provider = ScriptedProvider(script, "openai")
    model = MemoryTransport(provider).model(speaks=ResponsesCodec(state="server"), streams=streams)

    async def main() -> rm.Outcome[Any]:
        return await remit_of(model, [look_up], runtime=runtime()).run("Go.")

    outcome = run_virtual(main)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    check(outcome, provider)
    assert [len(messages_of(request.body)) for request in provider.requests] == [1, 2, 2, 2, 2]
    assert provider.requests[1].body == provider.requests[2].body


def test_a_server_that_has_forgotten_is_told_everything_once() -> None:
    """case 59: the whole conversation goes out, and after it again only what is new."""
    turns: list[Any] = [("look_up", {"order": n}) for n in range(4)]

    class Forgetful(ScriptedProvider):
        def answer(self, request: Received) -> Written:
            if len(self.requests) == 2:
                self.forget()
            return super().answer(request)

    provider = Forgetful([*turns, "Done."], "openai")
    model = MemoryTransport(provider).model(speaks=ResponsesCodec(state="server"))

    async def main() -> rm.Outcome[Any]:
        return await remit_of(model, [look_up], runtime=runtime()).run("Go.")

    outcome = run_virtual(main)
    assert outcome.reason is Reason.COMPLETED, outcome.error
    check(outcome, provider)
    assert [len(messages_of(request.body)) for request in provider.requests] == [1, 1, 1, 5, 1, 1]


# What results hold beside text


PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000"
    "3a7e9b550000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)


@on_every_wire
@pytest.mark.parametrize("media", [(), ("image/*",), ("image/*", "application/pdf")], ids=len)
def test_media_of_results_go_out_in_a_form_that_the_provider_takes(
    wire: str, media: tuple[str, ...]
) -> None:
    """X3: or as a note with a handle, where the endpoint does not read them; between text, and in later turns too."""

    @rm.tool(effect="read")
    async def shoot(kind: str) -> Media | str:
        """Shoot."""
        data = PICTURE if kind == "image/png" else b"%PDF-1.4"
        return "nothing to see" if kind == "none" else Media(kind, data, "ü.bin")

    kinds = ("image/png", "none", "application/pdf")
    script: list[Any] = [
        [("shoot", {"kind": kind}) for kind in kinds],
        ("shoot", {"kind": kinds[0]}),
    ]
    model = {"profile": rm.ModelProfile(media=media)}
    played = play([*script, "Seen."], wire, [shoot], model=model)
    assert played.outcome.reason is Reason.COMPLETED, played.outcome.error
    picture = base64.b64encode(PICTURE)
    seen = [request.body.count(picture) for request in played.provider.requests]
    assert seen == ([0, 1, 2] if media else [0, 0, 0])


# The prompt cache


@on_every_wire
@pytest.mark.parametrize("width", [1, 9, 15, 40])
def test_what_was_sent_is_read_from_the_cache_by_the_next_request(wire: str, width: int) -> None:
    """X4: turns with many parallel calls too, though a marker of Anthropic's looks back over 20 blocks only."""
    turns: list[Any] = [
        [("look_up", {"order": 100 * n + m}) for m in range(width)] for n in range(6)
    ]
    played = play([*turns, "Done."], wire, [look_up], instructions="Be kind. " * 900)
    told = [rm.Usage.from_json(event.fields["usage"]) for event in played.told("replied")]
    assert len(told) == 7
    for before, after in pairwise(told):
        assert after.cache_read >= before.prompt - 128
    assert not played.told("cache_missed")


@on_every_wire
def test_usage_of_every_attempt_is_counted_once(wire: str) -> None:
    """J4, case 95: what the provider reports is what the run says that it used, in disjoint parts."""
    usage = rm.Usage(input=3, cache_read=2_560, output=7)
    played = play(
        [Step(("look_up", {"order": 7}), usage=usage), Step("Done.", usage=usage)], wire, [look_up]
    )
    assert played.outcome.spend.own.usage == usage + usage


@rm.wrap_model
async def plainly(request: rm.ModelRequest, ask: rm.AskModel) -> AsyncIterator[Chunk]:
    async for chunk in ask(request):
        yield chunk


@on_every_wire
@pytest.mark.parametrize("around", ["nothing", "wrapper", "react"])
@pytest.mark.parametrize("ends", ["broken", "cancelled", "late"])
def test_a_reply_that_never_ends_is_billed_by_all_that_came(
    wire: str, around: str, ends: str
) -> None:
    """J4, L2: the half of a long call costs what half a long text costs, though nobody was shown it."""

    @rm.tool(effect="idempotent")
    async def write(text: str) -> str:
        """Write it."""
        return text

    text = "x" * 40_000
    says: Any = ("write", {"text": text})
    if around == "react":
        says = f'Thought: so\nAction: write\nAction Input: {{"text": "{text}"}}\nEnd Action\n'
    fault = Cut(says, at=22_000) if ends == "broken" else Dripped(says, bytes=2_000, seconds=1.0)
    transport = MemoryTransport(ScriptedProvider([fault, "Final Answer: done."], wire))
    model = transport.model()
    if around != "nothing":
        model = plainly(model) if around == "wrapper" else rm.ReActModel(model)

    async def main() -> Outcome[Any]:
        late = Limits(steps=3, tokens=200_000, seconds=12.0)
        desk = remit_of(
            model, [write], runtime=runtime(), limits=late if ends == "late" else LIMITS
        )
        async with desk.stream("Go.") as live:
            if ends == "cancelled":
                await asyncio.sleep(12)
                return await live.cancel()
            async for _ in live:
                pass
        return live.outcome

    outcome = run_virtual(main)
    assert not transport.open
    spent = outcome.spend.own.usage
    assert 1_500 < spent.output < 8_000


@on_every_wire
@both_ways
def test_a_server_that_reports_zeros_has_reported_nothing(wire: str, streams: bool) -> None:
    """J4, L2: it does not count, so its replies are estimated; else no limit would ever hold."""
    step = Step("Done. " * 50, usage=rm.Usage())
    played = play([step], wire, model={"streams": streams})
    assert played.outcome.spend.estimated == 1
    assert played.outcome.spend.own.usage.output >= 50
    assert played.outcome.spend.own.usage.input > 0


@on_every_wire
def test_a_provider_that_has_no_room_costs_nothing(wire: str) -> None:
    """J4, L2: a refusal to begin is not billed, so that waiting for the provider does not use up the budget."""
    script = [Refused("overloaded"), Refused("rate_limit"), Answer(status=503), "Done."]
    played = play(script, wire)
    alone = play(["Done."], wire)
    assert played.outcome.reason is Reason.COMPLETED
    assert played.outcome.spend.own.usage == alone.outcome.spend.own.usage
    assert played.outcome.spend.estimated == 0


@on_every_wire
def test_a_request_that_cannot_be_written_costs_nothing(wire: str) -> None:
    """J4: a wrong setting is refused before anything is sent, so there is nothing to estimate."""
    own = "input" if wire == "openai" else "messages"
    played = play(["Never."], wire, settings=rm.Settings(extra={own: []}))
    assert played.outcome.reason is Reason.MODEL_FAILED
    assert own in str(played.outcome.error)
    assert played.provider.requests == []
    assert played.outcome.spend.own.usage == rm.Usage()


# The contract of a model


def _conformant(wire: str, *, streams: bool) -> type[ModelConformance]:
    class Conformant(ModelConformance):
        def make_model(self) -> Any:
            step = Step(["Let me see.", ("get_order_status", {"order_id": "1042"})], between=0.1)
            provider = ScriptedProvider(lambda transcript, request: step, wire)
            return MemoryTransport(provider).model(streams=streams)

        def run(self, main: Any) -> Any:
            return run_virtual(main)

    return Conformant


class TestAnthropic(_conformant("anthropic", streams=True)):
    """The stream of Anthropic's wire keeps the contract."""


class TestResponses(_conformant("openai", streams=True)):
    """The stream of OpenAI's wire keeps the contract."""


class TestChat(_conformant("openai-chat", streams=True)):
    """The stream of the wire of many servers keeps the contract."""


class TestWhole(_conformant("anthropic", streams=False)):
    """A reply that comes whole keeps the contract."""
