"""The provider's cache, watched: what it should have held and did not is told, with its cause, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import remit as rm
from loop_rig import desk, model_of, runtime, watched
from remit import (
    AskModel,
    Chunk,
    Event,
    ModelProfile,
    ModelRequest,
    Notice,
    Settings,
    Usage,
    tool,
    wrap_model,
)
from remit.caching import Miss, Sent, missed
from remit.models.base import CUT_BACK
from remit.models.scripted import ScriptedModel, Step
from remit.testing import run_virtual
from remit.testing.serve import MemoryTransport, ScriptedProvider
from wire_rig import on_every_wire, play, remit_of

PROFILE = ModelProfile(cache_tokens=1_024, cache_seconds=300)
COLD = Usage(input=5_000, output=100)
"""Nothing read, nothing written: as providers report it that write without saying so."""
WARM = Usage(input=200, cache_read=5_000, output=100)
COOL = Usage(input=5_200, output=100)


@tool(effect="read", timeout=1_000)
async def look(seconds: float = 1) -> str:
    """Looks around for a while."""
    await asyncio.sleep(seconds)
    return "seen"


@tool(effect="confirm")
async def pay() -> str:
    """Pays."""
    return "paid"


def misses(events: list[Event]) -> list[tuple[str, int, int]]:
    return [
        (event.fields["cause"], event.fields["expected"], event.fields["cached"])
        for event in events
        if event.kind == "cache_missed"
    ]


def told(
    *usages: Usage | None, seconds: float = 1, profile: ModelProfile = PROFILE, **options: Any
) -> list[tuple[str, int, int]]:
    """What is told of a run whose replies were billed so; between two of them a tool takes its time."""

    async def main() -> list[Event]:
        turns: list[Any] = [("look", {"seconds": seconds})] * (len(usages) - 1) + ["done"]
        script = [Step(turn, usage=usage) for turn, usage in zip(turns, usages, strict=True)]
        remit = desk(ScriptedModel(script, profile=profile), [look], **options)
        return (await watched(remit, "go"))[1]

    return misses(run_virtual(main()))


# --- within a run --------------------------------------------------------------------------------


def test_a_prefix_that_was_not_read_again_is_told_with_its_tokens() -> None:
    """X4: all of it, or a part; at the reply that shows it."""
    assert told(COLD, COOL) == [("provider", 5_000, 0)]
    part = Usage(input=3_200, cache_read=2_000, output=100)
    assert told(COLD, part, WARM) == [("provider", 5_000, 2_000)]


def test_a_prefix_that_was_read_is_no_miss() -> None:
    """X4: also where the provider counts in blocks and leaves the last one out."""
    blocks = Usage(input=328, cache_read=4_872, output=100)
    assert told(COLD, WARM, WARM) == []
    assert told(COLD, blocks, WARM) == []


def test_what_came_too_late_has_expired() -> None:
    """X4: more time has passed between two requests than the cache lasts."""
    assert told(COLD, COOL, seconds=299) == [("provider", 5_000, 0)]
    assert told(COLD, COOL, seconds=301) == [("expired", 5_000, 0)]
    assert told(COLD, WARM, seconds=301) == []


def test_nothing_is_told_where_nothing_is_cached() -> None:
    """X4: below the minimum of the model, and of models that are not known to cache."""
    small = Usage(input=1_000, output=10)
    assert told(small, replace(small, input=1_023), small) == []
    assert told(COLD, COOL, profile=ModelProfile()) == []


def test_nothing_is_told_of_what_was_not_reported() -> None:
    """X4: an estimate says nothing of a cache, neither of its own request nor of the next."""
    assert told(COLD, None, COOL) == []
    assert told(None, COLD, COOL) == [("provider", 5_000, 0)]


def test_another_form_of_the_request_is_a_cause() -> None:
    """X4: the first step had to call a tool; from the second on the choice is free."""
    settings = Settings(tool_choice="any")
    cold = [COLD, COOL, COOL]
    assert told(*cold, settings=settings) == [("request", 5_000, 0), ("provider", 5_200, 0)]


def test_the_schema_of_an_answer_is_a_part_of_the_form() -> None:
    """X4: the hand-back is asked without it."""

    async def main() -> list[Event]:
        profile = ModelProfile(cache_tokens=1_024, native_output=True)
        script = [Step(("look", {}), usage=COLD), Step("so far", usage=COOL)]
        remit = desk(ScriptedModel(script, profile=profile), [look], output=dict[str, int])
        limits = rm.Limits(steps=1, tokens=10**6, seconds=60)
        return (await watched(remit, "go", limits=limits))[1]

    assert misses(run_virtual(main())) == [("request", 5_000, 0)]


def test_what_the_wire_left_out_is_a_cause() -> None:
    """X4: the model says that it cut something back, and the prefix is lost with it."""

    @wrap_model
    async def cutting(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        if len(request.transcript) == 3:
            yield Notice(CUT_BACK, "thinking was left out")
        async for chunk in ask(request):
            yield chunk

    async def main() -> list[Event]:
        turns = [("look", {}), ("look", {}), "done"]
        script = [Step(t, usage=u) for t, u in zip(turns, (COLD, COOL, COOL), strict=True)]
        model = cutting(ScriptedModel(script, profile=PROFILE))
        return (await watched(desk([], [look], model=model), "go"))[1]

    assert misses(run_virtual(main())) == [("cut_back", 5_000, 0), ("provider", 5_200, 0)]


def test_an_elision_is_the_cause_of_the_miss_behind_it() -> None:
    """X4, X5: the break is told, and then what it cost; the next request finds the new prefix."""

    @tool(effect="read")
    async def read(n: int) -> str:
        """Reads a lot."""
        return f"{n} " * 900

    def cached(transcript: Any, request: ModelRequest) -> Step:
        del request
        steps = sum(message.role == "assistant" for message in transcript)
        prompt, before = transcript.tokens, seen.get(steps - 1, 0)
        broken = len(transcript.breaks) > breaks.get(steps - 1, 0)
        seen[steps], breaks[steps] = prompt, len(transcript.breaks)
        read = 0 if broken else min(before, prompt)
        usage = Usage(input=prompt - read, cache_read=read, output=10)
        return Step(("read", {"n": steps}) if steps < 20 else "done", usage=usage)

    seen: dict[int, int] = {}
    breaks: dict[int, int] = {}
    profile = ModelProfile(context_window=8_000, max_output=500, cache_tokens=64)

    async def main() -> list[Event]:
        return (await watched(desk(ScriptedModel(cached, profile=profile), [read]), "go"))[1]

    events = run_virtual(main())
    kinds = [event.kind for event in events if event.kind in ("prefix_break", "cache_missed")]
    assert kinds
    assert kinds == ["prefix_break", "cache_missed"] * (len(kinds) // 2)
    assert {cause for cause, _, _ in misses(events)} == {"elision"}


# --- what is not known ---------------------------------------------------------------------------


def test_nothing_is_claimed_across_a_resume_or_of_an_earlier_run() -> None:
    """X4: when the request before was made, and what it was billed, this activation has not seen."""

    async def main() -> None:
        script = [Step(("pay", {}), usage=COLD), Step("paid", usage=COOL), Step("yes", usage=COOL)]
        remit = desk(ScriptedModel(script, profile=PROFILE), [pay])
        first, events = await watched(remit, "go")
        [pending] = first.pending
        assert misses(events) == []
        await remit.decide(pending.token, approve=True, by="me")
        second, events = await watched(remit, "go", run_id=first.run_id)
        assert second.completed
        assert [event.kind for event in events].count("replied") == 1
        assert misses(events) == []
        third, events = await watched(remit, "and?", history=second.transcript)
        assert third.completed
        assert misses(events) == []
        assert model_of(remit).asked == 3

    run_virtual(main())


# --- the rule ------------------------------------------------------------------------------------

counts = st.integers(0, 3_000)
usages = st.builds(Usage, input=counts, cache_read=counts, cache_write=counts, output=counts)
sent = st.builds(
    Sent,
    at=st.floats(0, 1_000),
    usage=usages,
    breaks=st.dictionaries(st.sampled_from(["elision", "media"]), st.integers(1, 3)),
    form=st.tuples(st.sampled_from(["auto", "any"]), st.booleans()),
    cut_back=st.booleans(),
)


@given(sent, sent, st.none() | st.integers(1, 4_000))
def test_a_miss_is_a_lack_of_at_least_what_is_cached_at_all(
    before: Sent, now: Sent, least: int | None
) -> None:
    """X4: told exactly where so much was lacking of what both requests had, and never by a usage below it."""
    profile = ModelProfile(cache_tokens=least, cache_seconds=300)
    found = missed(before, now, profile)
    shared = min(before.usage.prompt, now.usage.prompt)
    lacks = least is not None and shared - now.usage.cache_read >= least
    assert (found is not None) == lacks
    if found is not None:
        assert found == Miss(found.cause, shared, now.usage.cache_read)


@pytest.mark.parametrize(
    ("cause", "now"),
    [
        ("elision", {"breaks": {"elision": 2}, "cut_back": True}),
        ("media", {"breaks": {"elision": 1, "media": 1}}),
        ("cut_back", {"cut_back": True, "form": ("any", True)}),
        ("request", {"form": ("any", True), "at": 999.0}),
        ("expired", {"at": 400.1}),
        ("provider", {"at": 400.0}),
    ],
)
def test_the_cause_is_what_of_ours_explains_it_before_what_does_not(
    cause: str, now: dict[str, Any]
) -> None:
    """X4: a change that was made here, then time, then the provider."""
    before = Sent(100.0, COLD, {"elision": 1}, ("auto", True))
    found = missed(before, replace(before, **{"at": 101.0, "usage": COOL, **now}), PROFILE)
    assert found is not None
    assert found.cause == cause


# --- over the wires ------------------------------------------------------------------------------


@tool(effect="read")
async def read(n: int) -> str:
    """Reads a page."""
    return f"page {n} " + "word " * 400


PAGES: list[Any] = [
    ("read", {"n": 0}),
    [("read", {"n": n}) for n in range(1, 13)],
    *[("read", {"n": n}) for n in range(20, 26)],
]


@on_every_wire
def test_every_prefix_is_read_again_on_every_wire(wire: str) -> None:
    """X4: the marks and keys of the codecs hold, also behind a turn of twelve calls; no miss, and most is cached."""
    played = play([*PAGES, "done"], wire, [read], model={"profile": PROFILE})
    usages = [Usage.from_json(event.fields["usage"]) for event in played.told("replied")]
    assert misses(played.events) == []
    assert len(usages) == len(PAGES) + 1
    assert all(usage.cache_read > 0.9 * before.prompt for before, usage in pairwise(usages[2:]))


@on_every_wire
def test_a_cache_that_forgets_is_told_on_every_wire(wire: str) -> None:
    """X4: from what the providers report, each in its own words."""
    said = iter([*PAGES, "done"])

    def script(transcript: Any, request: Any) -> Any:
        if len(transcript) == 9:
            provider._cache._known.clear()
        return next(said)

    transport = MemoryTransport(provider := ScriptedProvider(script, wire))
    desk = remit_of(transport.model(profile=PROFILE), [read], runtime=runtime())

    async def main() -> list[Event]:
        return (await watched(desk, "go"))[1]

    [(cause, expected, cached)] = misses(run_virtual(main()))
    assert (cause, cached) == ("provider", 0)
    assert expected > 5_000
