"""What a provider can do to a run, on every wire: each fault ends typed, and the transcript stays whole.

Virtual time and a provider in memory: an hour of pings costs nothing. Sockets are in `test_wire_bad_input.py`.
"""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest

import remit as rm
from loop_rig import is_sendable, runtime, said, statuses
from remit import ContextExceeded, ModelRejected, Reason
from remit.messages import Message, StopReason, Text, ToolUse
from remit.models.base import ModelRequest, Settings
from remit.testing import Step, run_virtual
from remit.testing.serve import (
    HTML_PAGE,
    Answer,
    Cut,
    Doubled,
    Dripped,
    Fails,
    Garbled,
    Gzipped,
    MemoryTransport,
    Mislabelled,
    Raw,
    Refused,
    ScriptedProvider,
    Stalled,
    Whole,
)
from remit.transcript import Transcript
from wire_rig import Played, both_ways, look_up, on_every_wire, play, remit_of

CALL = ("look_up", {"order": 7})


class World:
    """Something that must not happen twice."""

    def __init__(self) -> None:
        self.acted: list[int] = []
        self.read: list[int] = []

    @property
    def tools(self) -> list[rm.Tool[..., Any]]:
        @rm.tool(effect="idempotent", resource=())
        async def act(number: int) -> str:
            """Act."""
            self.acted.append(number)
            return f"acted {number}"

        @rm.tool(effect="read")
        async def read(number: int) -> str:
            """Read."""
            self.read.append(number)
            return f"read {number}"

        return [act, read]


def gaps(played: Played) -> list[float]:
    """Seconds between requests."""
    at = [request.at for request in played.provider.requests]
    return [later - earlier for earlier, later in pairwise(at)]


# What is tried again


BREAKS = {
    "before the head": lambda says: Cut(says, at="head"),
    "after the head": lambda says: Cut(says, at=0),
    "in the middle": lambda says: Cut(says, at=300),
    "before the end": lambda says: Cut(says, at="end"),
    "before the end, cleanly": lambda says: Cut(says, at="end", clean=True),
    "an error event": lambda says: Fails(says, "overloaded"),
    "an early error event": lambda says: Fails(says, "server", after=1),
    "overloaded": lambda says: Refused("overloaded"),
    "a server's error": lambda says: Refused("server"),
    "too many requests": lambda says: Refused("rate_limit", retry_after=2),
    "a proxy's error": lambda says: Answer(HTML_PAGE, 502),
    "nothing": lambda says: Answer(b"", 200, "text/event-stream"),
    "lying gzip": lambda says: Gzipped(says, lies=True),
    "garbage": lambda says: Garbled(says, b"data: {]\n\n", at=0),
    "silence": lambda says: Stalled(says, pings=0),
    "pings": Stalled,
}


@on_every_wire
@pytest.mark.parametrize("how", BREAKS)
def test_a_failed_attempt_is_made_again_without_running_anything_twice(wire: str, how: str) -> None:
    """E7: the calls of the step before keep their results; those of the attempt that failed never ran."""
    world = World()
    turn = ["Now.", ("act", {"number": 2})]
    script: list[Any] = [("act", {"number": 1}), BREAKS[how](turn), turn, "Done."]
    played = play(script, wire, world.tools)
    assert played.outcome.reason is Reason.COMPLETED, played.outcome.error
    assert said(played.outcome) == ["acted 1", "acted 2"]
    assert world.acted == [1, 2]
    assert len(played.provider.requests) == 4
    assert played.provider.requests[1].body == played.provider.requests[2].body
    assert len(played.told("model_retry")) == 1


@on_every_wire
@pytest.mark.parametrize("how", BREAKS)
def test_a_provider_that_never_recovers_ends_the_run_after_five_attempts(
    wire: str, how: str
) -> None:
    """E7: bounded, with longer and longer waits, and a text that says what the matter is."""
    script = lambda transcript, request: BREAKS[how]("Never.")  # noqa: E731 - a script
    played = play(script, wire, [look_up])
    assert played.outcome.reason is Reason.MODEL_FAILED
    assert len(played.provider.requests) == 5
    assert played.outcome.error
    waits = [event.fields["after"] for event in played.told("model_retry")]
    assert waits == sorted(waits)


@on_every_wire
def test_the_wait_that_a_provider_asks_for_is_kept(wire: str) -> None:
    """E7: `retry-after` is the least, in whole seconds and in parts of one."""
    script = [
        Refused("rate_limit", retry_after=45),
        Refused("rate_limit", retry_after=0.25),
        "Done.",
    ]
    played = play(script, wire)
    assert played.outcome.reason is Reason.COMPLETED
    first, second = gaps(played)
    assert 45 <= first < 60
    assert 0.25 <= second < 5


@on_every_wire
def test_no_wait_goes_past_the_deadline(wire: str) -> None:
    """L4: a wait that would end after the deadline is not begun."""
    limits = rm.Limits(steps=5, tokens=1_000_000, seconds=60)
    played = play([Refused("rate_limit", retry_after=3_600), "Never."], wire, limits=limits)
    assert played.outcome.reason in {Reason.MODEL_FAILED, Reason.DEADLINE}
    assert len(played.provider.requests) == 1


@on_every_wire
def test_a_stream_without_content_is_given_up_though_it_pings(wire: str) -> None:
    """E7: idle time is measured on content, not on bytes."""
    played = play([Stalled("Late.", every=5.0), "Done."], wire, model={"idle_seconds": 60.0})
    assert played.outcome.reason is Reason.COMPLETED
    assert 60 <= gaps(played)[0] < 90


@on_every_wire
def test_a_stream_that_drips_content_is_waited_for(wire: str) -> None:
    """E7: a slow provider is no idle one."""
    played = play(
        [Step(["One.", "Two.", "Three."], between=50.0)], wire, model={"idle_seconds": 60.0}
    )
    assert played.outcome.reason is Reason.COMPLETED
    assert len(played.provider.requests) == 1


@on_every_wire
def test_reads_of_a_stream_that_broke_are_discarded(wire: str) -> None:
    """C3: an early read belongs to its attempt; its result goes with it, and the next attempt reads for itself."""
    world = World()
    turn = Step([("read", {"number": 1}), ("act", {"number": 1})], between=2.0)
    played = play([Cut(turn), turn, "Done."], wire, world.tools)
    assert played.outcome.reason is Reason.COMPLETED
    assert said(played.outcome) == ["read 1", "acted 1"]
    assert world.read == [1, 1]
    assert world.acted == [1]


@on_every_wire
def test_text_of_a_broken_attempt_is_not_said_twice(wire: str) -> None:
    """E7: whoever listens to the words hears each of them once."""
    words = "One two three four five six."
    transport = MemoryTransport(ScriptedProvider([Cut(words, at=900), Cut(words), words], wire))

    async def main() -> str:
        async with remit_of(transport.model(), runtime=runtime()).stream("Count.") as live:
            return "".join([piece async for piece in live.text()])

    assert run_virtual(main) == words
    assert len(transport.provider.requests) == 3


@on_every_wire
@pytest.mark.parametrize(
    ("fault", "billed"),
    [
        (Refused("rate_limit"), "nothing"),
        (Cut("Hello", at="head"), "estimated"),
        (Cut("Hello", at=0), "estimated"),
        (Cut("Hello", at="end"), "reported where it came first"),
        (Fails("Hello"), "reported where it came first"),
    ],
    ids=["refused", "head", "nothing came", "end", "error event"],
)
def test_a_failed_attempt_is_charged_by_what_was_reported_of_it(
    wire: str, fault: Any, billed: str
) -> None:
    """J4: Anthropic tells the prompt first, the others last; what nobody told is estimated, and marked so."""
    once = play(["Done."], wire).outcome.spend.own.usage.prompt
    spend = play([fault, "Done."], wire).outcome.spend
    if billed == "nothing":
        assert (spend.own.usage.prompt, spend.estimated) == (once, 0)
    elif billed.startswith("reported") and wire == "anthropic":
        assert (spend.own.usage.prompt, spend.estimated) == (2 * once, 0)
    else:
        assert spend.own.usage.prompt > once
        assert spend.estimated == 1


# What is not tried again


@on_every_wire
@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("key", "key"),
        ("permission", ""),
        ("model", "model"),
        ("path", "base"),
        ("quota", ""),
        ("bad_request", ""),
    ],
)
def test_what_would_fail_again_is_not_asked_again(wire: str, kind: Any, advice: str) -> None:
    """E7: one request, one typed end, and what to do about it."""
    played = play([Refused(kind), "Never."], wire, [look_up])
    assert played.outcome.reason is Reason.MODEL_FAILED
    assert len(played.provider.requests) == 1
    assert advice in (played.outcome.error or "").lower()
    assert "test-key" not in (played.outcome.error or "")


@on_every_wire
def test_work_that_was_done_stands_when_the_provider_gives_up(wire: str) -> None:
    """T2: the result of the call before is in the transcript, which can be gone on with."""
    world = World()
    played = play([("act", {"number": 1}), Refused("quota")], wire, world.tools)
    assert played.outcome.reason is Reason.MODEL_FAILED
    assert said(played.outcome) == ["acted 1"]


@on_every_wire
@pytest.mark.parametrize("kind", ["context", "too_large"])
def test_a_prompt_that_is_too_long_is_its_own_reason(wire: str, kind: Any) -> None:
    """X5: it is no failure of the provider, and not asked again as it stands."""
    played = play(lambda transcript, request: Refused(kind), wire)
    assert played.outcome.reason is Reason.CONTEXT_FULL
    assert len(played.provider.requests) <= 3


# How a turn ends


@on_every_wire
@both_ways
def test_a_call_that_the_length_cut_is_not_run(wire: str, streams: bool) -> None:
    """case 12, C3: it is not finished by us either; the calls before it are answered, none is run."""
    world = World()
    cut = ("act", '{"number": 9, "more": ["a1","a2"')
    turn = Step(["Now.", ("act", {"number": 1}), cut], stop_reason=StopReason.LENGTH)
    played = play([turn, turn, turn, "Short now."], wire, world.tools, model={"streams": streams})
    assert world.acted == []
    assert 9 not in world.acted
    assert set(statuses(played.outcome)) <= {"not_started"}
    assert played.outcome.reason in {Reason.COMPLETED, Reason.OUTPUT_TRUNCATED}


@on_every_wire
def test_a_call_whose_cut_text_can_be_read_is_not_run_either(wire: str) -> None:
    """case 12: that a text happens to be JSON does not mean that the model had finished."""
    world = World()
    turn = Step([("act", {"number": 1})], stop_reason=StopReason.LENGTH)
    played = play(lambda transcript, request: turn, wire, world.tools)
    assert world.acted == []
    assert played.outcome.reason is Reason.OUTPUT_TRUNCATED


@on_every_wire
@both_ways
@pytest.mark.parametrize("reason", [StopReason.REFUSAL, StopReason.FILTER])
def test_a_refused_or_filtered_turn_runs_nothing(
    wire: str, reason: StopReason, streams: bool
) -> None:
    """C3: refusal and filter outrank the calls beside them."""
    world = World()
    turn = Step(["I will not.", ("act", {"number": 1})], stop_reason=reason)
    played = play(lambda transcript, request: turn, wire, world.tools, model={"streams": streams})
    assert world.acted == []
    assert played.outcome.reason is Reason.REFUSED


@on_every_wire
@both_ways
def test_a_reason_of_next_year_is_not_taken_for_the_end(wire: str, streams: bool) -> None:
    """case 79: an unknown stop reason is its own end, never success, and runs nothing."""
    world = World()
    turn = Step(["Well.", ("act", {"number": 1})], stop_reason=StopReason.UNKNOWN)
    played = play(lambda transcript, request: turn, wire, world.tools, model={"streams": streams})
    assert world.acted == []
    assert played.outcome.reason is Reason.UNKNOWN_STOP


@on_every_wire
@pytest.mark.parametrize(("times", "reason"), [(2, Reason.COMPLETED), (9, None)])
def test_an_empty_reply_with_a_strange_reason_is_a_failed_attempt(
    wire: str, times: int, reason: Reason | None
) -> None:
    """case 80: twice and then a good one is success; again and again is an end of its own, never success."""
    script: list[Any] = [Step((), stop_reason=StopReason.UNKNOWN)] * times
    played = play([*script, "Good."], wire, [look_up])
    if reason is not None:
        assert played.outcome.reason is reason
        assert played.outcome.text == "Good."
    else:
        assert played.outcome.reason in {Reason.UNKNOWN_STOP, Reason.MODEL_FAILED}
        assert len(played.provider.requests) <= 6


@on_every_wire
def test_an_empty_reply_that_ends_as_usual_has_a_reason_of_its_own(wire: str) -> None:
    """case 80: nothing said is not the same as something done."""
    played = play(lambda transcript, request: "", wire)
    assert played.outcome.reason is Reason.EMPTY_REPLY


@on_every_wire
def test_a_stop_sequence_ends_the_turn_and_the_window_does_not(wire: str) -> None:
    """protocol: one is an answer; the other says that no more fits."""
    stopped = play([Step("As far as here.", stop_reason=StopReason.STOP_SEQUENCE)], wire)
    assert stopped.outcome.reason is Reason.COMPLETED
    full = play(lambda transcript, request: Step("As far", stop_reason=StopReason.CONTEXT), wire)
    assert full.outcome.reason in {Reason.CONTEXT_FULL, Reason.OUTPUT_TRUNCATED}


# What is read all the same


@on_every_wire
@pytest.mark.parametrize(
    "how",
    [
        Dripped,
        lambda says: Dripped(says, bytes=7, seconds=0.01),
        lambda says: Mislabelled(says, "text/plain"),
        lambda says: Mislabelled(says, "application/octet-stream"),
        Whole,
        lambda says: Garbled(says, b"\xef\xbb\xbf", at=0),
        lambda says: Garbled(
            says, b': a comment\n\nevent: of_next_year\ndata: {"type":"of_next_year"}\n\n', at=0
        ),
        lambda says: Garbled(says, b"\r\n\r\n", at=0),
        Gzipped,
    ],
    ids=[
        "bytes",
        "sevens",
        "text",
        "octets",
        "whole",
        "mark",
        "unknown event",
        "blank lines",
        "gzip",
    ],
)
def test_a_reply_in_another_form_is_the_same_reply(wire: str, how: Any) -> None:
    """remit: servers and proxies cut, label and pack as they like."""
    world = World()
    played = play([how(["Yes.", ("act", {"number": 1})]), how("Done.")], wire, world.tools)
    assert played.outcome.reason is Reason.COMPLETED, played.outcome.error
    assert said(played.outcome) == ["acted 1"]
    assert played.outcome.text == "Done."


@on_every_wire
def test_events_that_come_twice_run_nothing_twice(wire: str) -> None:
    """case 15: a stream that repeats itself is read rightly or refused, and never guessed at."""
    world = World()
    played = play(
        lambda t, r: Doubled([("act", {"number": 1})]) if not said(t) else "Done.",
        wire,
        world.tools,
    )
    assert played.outcome.reason in {Reason.COMPLETED, Reason.MODEL_FAILED}
    assert len(world.acted) <= 1


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai"])
@pytest.mark.parametrize(
    "answer",
    [
        Answer(b'{"object":"list","data":[]}', 200, "application/json"),
        Answer(b"[]", 200, "application/json"),
        Answer(b"null", 200, "application/json"),
        Answer(b'{"choices":{}}', 200, "application/json"),
        Answer(b'{"content":5,"type":"message"}', 200, "application/json"),
        Answer(b'{"output":[1,2]}', 200, "application/json"),
        Answer(b'{"error":"no"}', 200, "application/json"),
        Answer(b"{" * 5_000, 200, "application/json"),
        Answer(b'{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}', 200, "application/json"),
        Answer(HTML_PAGE),
        Answer(b"", 204, ""),
        Answer(b"moved", 307, "text/plain", {"location": "http://elsewhere.test/"}),
        Answer(b"data: [DONE]\n\n", 200, "text/event-stream"),
        Answer(b'data: 5\n\ndata: "x"\n\ndata: null\n\n', 200, "text/event-stream"),
        Answer(b"\xff\xfe\x00", 400, "application/json"),
        Answer(b'{"error":{"message":[1]}}', 400, "application/json"),
        Answer(b"[[[[", 500, "application/json"),
        Raw(),
    ],
)
def test_what_is_no_reply_of_the_wire_ends_typed(wire: str, answer: Any) -> None:
    """remit: another API, a page, nothing: the run ends as `model_failed` with a sentence, after few requests."""
    played = play(lambda transcript, request: answer, wire, [look_up])
    assert played.outcome.reason in {Reason.MODEL_FAILED, Reason.EMPTY_REPLY}
    assert played.outcome.reason is Reason.MODEL_FAILED or isinstance(answer, Answer)
    assert played.outcome.error
    assert len(played.provider.requests) <= 5


# Calls that are strange


@on_every_wire
@both_ways
def test_a_call_of_nothing_known_and_arguments_that_are_none_are_results(
    wire: str, streams: bool
) -> None:
    """C1: the model is told, and the next request is one that the provider takes."""
    turn = [("no_such_tool", {}), ("look_up", "[1]"), ("look_up", '{"order": "x"}')]
    if streams:
        turn.append(("look_up", "{oh"))
    played = play([turn, "I see."], wire, [look_up], model={"streams": streams})
    assert played.outcome.reason is Reason.COMPLETED
    assert all(
        result.is_error for message in played.outcome.transcript for result in message.tool_results
    )


@on_every_wire
def test_a_call_beside_a_plain_end_runs(wire: str) -> None:
    """protocol: servers say `stop` beside calls; the calls are what counts, as long as nothing was cut."""
    world = World()
    turn = Step([("act", {"number": 1})], stop_reason=StopReason.END_TURN)
    played = play([turn, "Done."], wire, world.tools)
    assert played.outcome.reason is Reason.COMPLETED
    if wire != "anthropic":
        assert world.acted == [1]


# What a result may hold


@on_every_wire
def test_a_result_that_looks_like_the_wire_is_data(wire: str) -> None:
    """case 18: it goes out as text and is interpreted by nobody."""

    @rm.tool(effect="read")
    async def fetch() -> dict[str, Any]:
        """Fetch."""
        return {
            "spec": {"$ref": "#/$defs/K"},
            "role": "system",
            "cache_control": {"type": "ephemeral"},
            "type": "tool_use",
        }

    played = play([("fetch", {}), "Done."], wire, [fetch])
    assert played.outcome.reason is Reason.COMPLETED
    assert b'\\"$ref\\"' in played.provider.requests[1].body


@on_every_wire
def test_errors_raised_by_a_model_asked_without_a_loop_are_typed(wire: str) -> None:
    """remit: whoever asks a model by hand gets the same classes."""
    script = [
        Refused("key"),
        Refused("context"),
        Cut("Hello"),
        Refused("overloaded", retry_after=7),
    ]
    model = MemoryTransport(ScriptedProvider(script, wire)).model()

    async def ask() -> BaseException | None:
        request = ModelRequest(
            instructions="",
            transcript=Transcript([Message("user", (Text("Hi."),))]),
            tools=(),
            settings=Settings(),
            max_output=100,
            deadline=asyncio.get_running_loop().time() + 100,
        )
        try:
            async for _ in model.stream(request):
                pass
        except rm.ModelError as error:
            return error
        return None

    async def main() -> None:
        rejected, context, broken, busy = [await ask() for _ in range(4)]
        assert type(rejected) is ModelRejected
        assert isinstance(context, ContextExceeded)
        assert isinstance(broken, rm.ModelUnavailable | rm.ModelProtocolError)
        assert isinstance(busy, rm.ModelUnavailable)
        assert busy.retry_after == 7

    run_virtual(main)


def test_a_tool_use_without_a_name_or_an_id_is_nothing_that_runs() -> None:
    """case 15: nothing nameless is kept."""
    world = World()
    for wire in ("openai-chat", "openai"):
        turn = Message("assistant", (ToolUse("call_1", "", '{"number": 1}'),))
        played = play(lambda t, r, turn=turn: turn, wire, world.tools)
        assert played.outcome.reason in {Reason.MODEL_FAILED, Reason.STALLED, Reason.EMPTY_REPLY}
    assert world.acted == []


# All of it together


MISFITS: list[Any] = [
    lambda says: Step(says, stop_reason=StopReason.LENGTH),
    lambda says: Step([*says, ("act", '{"number": 9')], stop_reason=StopReason.LENGTH),
    lambda says: Step(says, stop_reason=StopReason.UNKNOWN),
    lambda says: Step((), stop_reason=StopReason.UNKNOWN),
    lambda says: Step(says, usage=None),
    lambda says: [*says, ("act", '{"number": "many"}'), ("nothing_known", {})],
    lambda says: Step([*says, "And so on."], between=3.0, cut_after=1),
    lambda says: Dripped(says, bytes=11),
    Doubled,
    Whole,
]


class Chaos:
    """A provider with a mind of its own, fixed by a seed: what it says, and what becomes of it on the way."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._numbers = iter(range(1_000))
        self._turns = self._rng.randint(1, 6)

    def __call__(self, transcript: Any, request: Any) -> Any:
        del request
        rng = self._rng
        turn = self._turn() if len(said(transcript)) < 2 * self._turns else ["It is done."]
        chance = rng.random()
        if chance < 0.3:
            return rng.choice(list(BREAKS.values()))(turn)
        return rng.choice(MISFITS)(turn) if chance < 0.5 else turn

    def _turn(self) -> list[Any]:
        rng = self._rng
        names = [rng.choice(("act", "read")) for _ in range(rng.randint(1, 3))]
        calls: list[Any] = [(name, {"number": next(self._numbers)}) for name in names]
        return ["So.", *calls] if rng.random() < 0.5 else calls


@on_every_wire
@both_ways
def test_whatever_a_provider_does_the_transcript_is_whole_and_nothing_runs_twice(
    wire: str, streams: bool
) -> None:
    """T2, E7: sixty conversations full of faults, some of them cancelled; the provider takes every request."""
    ends: set[Reason] = set()
    for seed in range(60):
        world = World()
        transport = MemoryTransport(ScriptedProvider(Chaos(seed), wire))
        desk = remit_of(transport.model(streams=streams), world.tools, runtime=runtime())
        ends.add(run_virtual(lambda desk=desk, seed=seed: _lived(desk, seed)).reason)
        assert transport.provider.refusals == [], f"seed {seed}"
        assert not transport.open, f"seed {seed}"
        assert len(set(world.acted)) == len(world.acted), f"seed {seed}"
    assert {Reason.COMPLETED, Reason.CANCELLED} < ends


async def _lived(desk: rm.Remit[Any], seed: int) -> rm.Outcome[Any]:
    """A run to its end, or to where somebody cancels it."""
    async with desk.stream("Go.") as live:
        if seed % 4 == 0:
            await asyncio.sleep(seed / 3)
            await live.cancel()
    assert is_sendable(live.outcome.transcript), f"seed {seed}"
    return live.outcome
