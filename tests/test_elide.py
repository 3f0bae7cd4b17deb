"""Old results make room: which, when, with what progress, and what a break of the prefix leaves as it was."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

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
    ContextExceeded,
    Limits,
    Media,
    Message,
    ModelProfile,
    Opaque,
    Outcome,
    Reason,
    Status,
    StopReason,
    Text,
    ToolResult,
    ToolUse,
    Transcript,
    TranscriptError,
    Usage,
)
from remit.elide import (
    MOST_ELISIONS,
    RECENT_TURNS,
    SMALL_TOKENS,
    WITHIN_STEPS,
    Elision,
    Part,
    Window,
    choose,
    note_for,
)
from remit.excerpt import Excerpt, fit, handle_in
from remit.messages import Role
from remit.models.base import ModelRequest
from remit.models.scripted import Recorded, ScriptedModel, Step
from remit.rows import Elided, Noted, Opened, Replied, Row, decode_row, encode_row
from remit.state import RunState
from remit.testing import (
    CrashStore,
    SimulatedWorkers,
    crash_points,
    prefix_of,
    run_virtual,
    validate_request,
)
from remit.transcript import Break, Stub

LARGE = 4_000
"""Characters of a result that is worth eliding: 1,000 tokens."""


def scripted(script: Any, window: int, max_output: int = 1_024) -> ScriptedModel:
    profile = ModelProfile(context_window=window, max_output=max_output)
    return ScriptedModel(script, profile=profile, record=True)


@rm.tool(effect="read")
async def fetch(n: int, chars: int) -> str:
    """Fetch so many characters."""
    return f"{n}:".ljust(chars, "x")


@rm.tool(effect="read")
async def jot(n: int, words: str) -> str:
    """Note something down. What is said in a call stays in the history."""
    return f"noted {n}"


def step_of(transcript: Transcript) -> int:
    return sum(message.role == "assistant" for message in transcript)


def fetching(steps: int, chars: int = LARGE, width: int = 1) -> Any:
    """A model that fetches so much in each of so many steps, and then answers."""

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        step = step_of(transcript)
        calls = [("fetch", {"n": step * width + i, "chars": chars}) for i in range(width)]
        return calls if step < steps else "done"

    return says


def history(*sizes: int, width: int = 1) -> Transcript:
    """A conversation with one answered turn for each size, in characters of each of its results."""
    transcript = Transcript()
    transcript.say(Text("go"))
    for turn, size in enumerate(sizes):
        uses = tuple(ToolUse(f"c{turn}_{i}", "fetch", "{}") for i in range(width))
        transcript.add_reply(Message("assistant", uses))
        with transcript.answering() as answering:
            for slot in answering.slots:
                slot.settle((Text("x" * size),), key=f"run:{turn + 1}:fetch:{'a' * 16}:1")
    return transcript


def stubs_for(elision: Elision) -> list[Stub]:
    return [Stub(part.tool_use_id, part.at, "[gone]", "artifact:0", 1) for part in elision.parts]


def changed_results(before: Sequence[Message], after: Sequence[Message]) -> set[str]:
    """Which results have other content; everything else of `before` stands in `after` as it was."""
    changed: set[str] = set()
    assert len(after) >= len(before)
    for old, new in zip(before, after, strict=False):
        assert (old.role, len(old.content)) == (new.role, len(new.content))
        for was, now in zip(old.content, new.content, strict=True):
            if was != now:
                assert isinstance(was, ToolResult)
                assert isinstance(now, ToolResult)
                assert replace(now, content=was.content, artifacts=was.artifacts) == was
                changed.add(was.tool_use_id)
    return changed


def breaks(requests: Sequence[Recorded]) -> list[set[str]]:
    """The results that each break of the prefix changed, in order."""
    pairs = itertools.pairwise(requests)
    return [
        changed_results(earlier.messages, later.messages)
        for earlier, later in pairs
        if not prefix_of(earlier.messages, later.messages)
    ]


# --- the choice ----------------------------------------------------------------------------------

WINDOW = Window.of(20_000, 1_000)


def chosen(transcript: Transcript, prompt: int, density: float = 1.0) -> list[str]:
    elision = choose(transcript, WINDOW, prompt=prompt, density=density)
    return [] if elision is None else [part.tool_use_id for part in elision.parts]


def test_the_thresholds_leave_room_for_a_reply_and_are_in_order() -> None:
    """X5: looked at in time, brought well below, and worth the break."""
    assert Window(trigger=15_200, target=7_600, progress=2_000, rung=400) == WINDOW
    for tokens in (1_000, 8_000, 32_000, 200_000, 1_000_000):
        for output in (256, 8_192, 64_000):
            window = Window.of(tokens, output)
            assert 0 < window.rung < window.progress < window.target < window.trigger < tokens


def test_the_oldest_turns_give_way_until_the_prompt_is_well_below_the_trigger() -> None:
    """X5: one batch that takes whole turns, and no more of them than it needs."""
    transcript = history(*[LARGE] * 15, width=2)
    found = chosen(transcript, 16_000)
    assert found[:4] == ["c0_0", "c0_1", "c1_0", "c1_1"]
    assert len(found) % 2 == 0
    assert 16_000 - len(found) * 950 <= WINDOW.target < 16_000 - (len(found) - 2) * 950


def test_the_newest_turns_and_what_is_small_stay() -> None:
    """X5: the model is at work on the newest results, and a small one frees nothing."""
    small = (SMALL_TOKENS - 1) * 4
    assert RECENT_TURNS == 2
    assert chosen(history(9_000, small, 9_000, LARGE, LARGE), 19_000) == ["c0_0", "c2_0"]


def test_what_frees_too_little_is_left_alone() -> None:
    """X5, case 50: less than a tenth of the window is no progress."""
    assert chosen(history(7_000, 10, 10), 19_000) == []
    assert chosen(history(8_400, 10, 10), 19_000) == ["c0_0"]


def test_the_density_of_the_text_counts_in_what_is_freed() -> None:
    """X5: where a provider counts twice as much, half as much has to go."""
    transcript = history(*[LARGE] * 15)
    assert len(chosen(transcript, 16_000)) == 9
    assert len(chosen(transcript, 16_000, density=2.0)) == 5


def test_without_turns_there_is_nothing_to_elide() -> None:
    """X5: words of people are never elided."""
    transcript = Transcript()
    transcript.say(Text("x" * 100_000))
    assert chosen(transcript, 30_000) == []


def test_the_parts_of_a_result_are_looked_at_one_by_one() -> None:
    """X5: media and long texts give way, a short text between them stays."""
    transcript = history(10, 10, 10)
    content = (Text("short"), Media("image/png", b"x" * 9), Text("y" * 6_000))
    first = replace(transcript[2].tool_results[0], content=content)
    messages = [*transcript[:2], Message("user", (first,)), *transcript[3:]]
    found = choose(Transcript(messages), WINDOW, prompt=19_000, density=1.0)
    assert found is not None
    assert [(part.at, type(part.content)) for part in found.parts] == [(1, Media), (2, Text)]


# --- notes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_error", [False, True])
def test_a_note_names_what_is_gone_and_how_to_get_it_back(is_error: bool) -> None:
    """X5, X1: the same part has the same note, and an error still begins as one."""
    handle = "artifact:" + "0" * 64
    text = Part("c0", 0, Text("x" * 12_345), is_error, None)
    media = Part("c0", 0, Media("image/png", b"x" * 678), is_error, None)
    for part, told in ((text, "12345 characters"), (media, "image/png, 678 bytes")):
        for readable in (True, False):
            note = note_for(part, handle, readable=readable)
            assert told in note
            assert handle in note
            assert note.startswith("Error:") is is_error
            assert len(note) < SMALL_TOKENS * 4, "a note is never elided itself"
    assert f'read_artifact(handle="{handle}", offset=0, length=12345)' in note_for(
        text, handle, readable=True
    )
    assert "read_artifact" not in note_for(text, handle, readable=False)


HANDLE = "artifact:" + "ab" * 32


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_excerpt_is_known_by_its_own_words(form: Any) -> None:
    """X5, X2: only where a text says that it is cut, and of what, is its whole elsewhere."""
    whole = "[" + "1, " * 2_000 + "1]"
    cut = fit(whole, 1_000, form=form, handle=HANDLE)
    assert cut is not None
    for excerpt in (cut, cut.within(400)):
        assert handle_in(excerpt.text, (HANDLE,)) == HANDLE
        assert handle_in(excerpt.text, ("artifact:" + "0" * 64, HANDLE)) == HANDLE
        assert handle_in(excerpt.text, ("artifact:" + "0" * 64,)) is None
    assert handle_in(whole, (HANDLE,)) is None


def test_a_page_is_known_too_and_a_text_that_names_an_artifact_is_not_taken_for_one() -> None:
    """X5, X2: the last page names no handle; a whole text may name that of a picture in it."""
    page = Excerpt("x" * 500, "", 900, "page", HANDLE, 100, 100, 1_000)
    last = Excerpt("x" * 500, "", 500, "page", HANDLE, 500, 500, 1_000)
    for excerpt in (page, last):
        assert handle_in(excerpt.text, (HANDLE,)) == HANDLE
    named = f'{{"shot":"(image/png, 9000 bytes: {HANDLE})","note":"{"n" * 900}"}}'
    assert handle_in(named, (HANDLE,)) is None


@pytest.mark.parametrize("form", ["text", "json", "page"])
def test_a_text_that_repeats_the_words_of_an_excerpt_is_whole(form: Any) -> None:
    """X5, X2: what a run inside tells, and what it quotes, is its own and stands nowhere else."""
    if form == "page":
        quoted = Excerpt("x" * 500, "", 900, "page", HANDLE, 100, 100, 1_000).text
    else:
        cut = fit("[" + "1, " * 2_000 + "1]", 1_000, form=form, handle=HANDLE)
        assert cut is not None
        quoted = cut.text
    step = f'read_artifact(handle="{HANDLE}", offset=0, length=100)'
    for told in (f"In short: {quoted}", f"{quoted} That is all.", f"All is in {step}.", step):
        assert handle_in(told, (HANDLE,)) is None
    framed = '{"truncated":{"handle":"' + HANDLE + '","offset":0},"head":"a","tail":"b"}'
    for told in (framed, framed[:-1], '{"truncated":1}', '{"truncated":' + "[" * 5_000):
        assert handle_in(told, (HANDLE,)) is None


# --- what changes, and what does not -------------------------------------------------------------


def conversation_with_a_word_behind_its_last_result() -> Transcript:
    """c1 to c7, and behind the result of c7, in the same message, the user's word."""
    transcript = Transcript()
    transcript.say(Text("prices of seven things"))
    for n in range(1, 8):
        call = ToolUse(f"c{n}", "price", f'{{"n": {n}}}')
        transcript.add_reply(Message("assistant", (Opaque("maker", b"why"), call)))
        with transcript.answering() as answering:
            answering.slots[0].settle((Text(f"{n} " * 1_000),), key=f"run:{n}:price:{'b' * 16}:1")
    transcript.say(Text("prices in euros please"))
    return transcript


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_whatever_is_elided_no_pair_is_torn_and_no_word_is_lost(keep: int) -> None:
    """X5, case 03, case 04: block by block as a provider wants it, c7 as a pair, the user's word in place."""
    transcript = conversation_with_a_word_behind_its_last_result()
    before = transcript[:]
    old = [f"c{n}" for n in range(1, 8 - keep)]
    freed = transcript.elide([Stub(id_, 0, f"[{id_}]", "artifact:0", 2_000) for id_ in old])
    assert freed == sum(before_tokens(before, id_) for id_ in old)
    validate_request(tuple(transcript))
    assert changed_results(before, transcript[:]) == set(old)
    last = transcript[-1]
    assert [result.tool_use_id for result in last.tool_results] == ["c7"]
    assert last.text == "prices in euros please"
    assert transcript[-2].tool_uses[0].id == "c7"
    assert transcript.tokens == Transcript(transcript).tokens
    assert Transcript.load(transcript.to_json()).report == ()


def before_tokens(messages: Sequence[Message], tool_use_id: str) -> int:
    text = next(r.text for m in messages for r in m.tool_results if r.tool_use_id == tool_use_id)
    return (len(text) + 3) // 4 - (len(f"[{tool_use_id}]") + 3) // 4


def test_what_was_elided_stays_so_when_it_is_elided_again() -> None:
    """X5: a row that is read twice changes nothing the second time."""
    transcript = history(LARGE, LARGE, LARGE)
    stubs = [Stub("c0_0", 0, "[gone]", "artifact:0", LARGE)]
    assert transcript.elide(stubs) > 900
    after = transcript[:]
    assert transcript.elide(stubs) == 0
    assert all(old is new for old, new in zip(after, transcript, strict=True))


def test_a_copy_keeps_what_it_had() -> None:
    """X5: what is elided in one transcript is whole in those that were derived from it before."""
    transcript = history(LARGE, LARGE)
    copy = transcript.copy()
    before = copy[:]
    transcript.elide([Stub("c0_0", 0, "[gone]", "artifact:0", LARGE)])
    assert copy[:] == before
    assert copy != transcript
    assert copy.tokens == Transcript(copy).tokens


@pytest.mark.parametrize(
    "stub",
    [
        pytest.param(Stub("nobody", 0, "[gone]", "artifact:0", 1), id="no such result"),
        pytest.param(Stub("c1_0", 1, "[gone]", "artifact:0", 1), id="no such part"),
        pytest.param(Stub("c1_0", -1, "[gone]", "artifact:0", 1), id="counted from the end"),
        pytest.param(Stub("c1_0", 0, " ", "artifact:0", 1), id="a blank note"),
    ],
)
def test_a_stub_without_a_place_is_refused_and_nothing_is_changed(stub: Stub) -> None:
    """X5, T1: half an elision would be a history that nobody has decided on."""
    transcript = history(LARGE, LARGE)
    before = transcript[:]
    with pytest.raises(TranscriptError):
        transcript.elide([Stub("c0_0", 0, "[gone]", "artifact:0", 1), stub])
    assert transcript[:] == before


def test_nothing_is_elided_while_results_are_owed() -> None:
    """X5, T1: an open turn is answered first."""
    transcript = history(LARGE, LARGE)
    transcript.add_reply(Message("assistant", (ToolUse("open", "fetch", "{}"),)))
    with pytest.raises(TranscriptError):
        transcript.elide([Stub("c0_0", 0, "[gone]", "artifact:0", 1)])


@st.composite
def elided_histories(draw: st.DrawFn) -> tuple[Transcript, list[Stub]]:
    """Any conversation with results of any size and status, and any choice of parts to elide."""
    transcript = Transcript()
    transcript.say(Text("begin"))
    parts: list[tuple[str, int]] = []
    for turn in range(draw(st.integers(1, 6))):
        width = draw(st.integers(0, 4))
        uses = tuple(ToolUse(f"t{turn}_{i}", "look", "{}") for i in range(width))
        transcript.add_reply(Message("assistant", (Text("so"), *uses)))
        if uses:
            with transcript.answering() as answering:
                for slot in answering.slots:
                    content = draw(st.lists(CONTENT, min_size=1, max_size=3))
                    status = draw(st.sampled_from([*Status]))
                    slot.settle(
                        tuple(content), is_error=status is not Status.OK, status=status,
                        key=draw(st.none() | st.just(f"run:{turn + 1}:look:{'c' * 16}:1")),
                    )  # fmt: skip
                    parts += [(slot.use.id, at) for at in range(len(content))]
        if not uses or draw(st.booleans()):
            transcript.say(Text("and then?"))
    picked = draw(st.lists(st.sampled_from(parts), unique=True)) if parts else []
    return transcript, [Stub(id_, at, f"[{id_}]", f"artifact:{id_}", 1) for id_, at in picked]


CONTENT = st.builds(Text, st.sampled_from(["no", "y" * 900, "größe " * 300])) | st.just(
    Media("image/png", b"x")
)


@settings(max_examples=200)
@given(elided_histories())
def test_any_elision_of_any_history_changes_content_alone(
    drawn: tuple[Transcript, list[Stub]],
) -> None:
    """X5, T1, T3, case 04: ids, order, status, keys, doubts and words stay; twice is once; a replay is the same."""
    transcript, stubs = drawn
    before, doubts = transcript[:], dict(transcript.doubts)
    replayed = Transcript(before)
    freed = transcript.elide(stubs)
    assert changed_results(before, transcript[:]) <= {stub.tool_use_id for stub in stubs}
    assert sum(result_tokens(before)) - sum(result_tokens(transcript[:])) == freed
    assert transcript.doubts == doubts
    assert transcript.tokens == Transcript(transcript).tokens
    validate_request((*transcript, Message("user", (Text("go on"),))))
    by_id = {result.tool_use_id: result for m in transcript for result in m.tool_results}
    for stub in stubs:
        assert by_id[stub.tool_use_id].content[stub.at] == Text(stub.note)
    once = transcript[:]
    assert transcript.elide(stubs) == 0
    assert transcript[:] == once
    row = decode_row(Elided.kind, encode_row(Elided(tuple(stubs))))
    assert isinstance(row, Elided)
    replayed.elide(row.results)
    assert replayed == transcript


def result_tokens(messages: Sequence[Message]) -> list[int]:
    return [Transcript(messages).tokens]


# --- the row -------------------------------------------------------------------------------------


def opened(transcript: Transcript) -> RunState:
    """A state that goes on from a history."""
    row = Opened("desk", (Text("and now?"),), tuple(transcript), LIMITS, "", ("desk",), {}, "")
    return RunState("run", [row])


def reply(prompt: int) -> Replied:
    return Replied(
        message=Message("assistant", (Text("so"),)), stop_reason=StopReason.END_TURN,
        usage=Usage(input=prompt, output=10), usd=LIMITS.usd or rm.Amount().usd, estimated=False,
        asked=(), closing=False, whole=True, seconds=1.0, latency=1.0,
    )  # fmt: skip


def test_the_estimate_of_the_next_prompt_shrinks_by_what_was_freed() -> None:
    """X5: what was reported of a longer prompt is corrected, and growth counts on from there."""
    state = opened(history(LARGE, LARGE, LARGE))
    state.apply(reply(50_000))
    state.apply(Noted("notes:0", "n" * 400))
    reported, growth, tokens = state.context_tokens, state.growth, state.transcript.tokens
    state.apply(Elided((Stub("c0_0", 0, "[gone]", "artifact:0", LARGE),)))
    freed = tokens - state.transcript.tokens
    assert freed > 900
    assert (state.context_tokens, state.growth) == (reported - freed, growth)
    assert state.breaks == {"elision": 1}


def test_a_report_that_was_less_than_what_is_gone_is_not_believed() -> None:
    """X5: an estimate is never negative; it begins anew."""
    state = opened(history(LARGE, LARGE, LARGE))
    state.apply(reply(100))
    state.apply(Elided((Stub("c0_0", 0, "[gone]", "artifact:0", LARGE),)))
    assert state.context_tokens == 0
    assert state.growth >= 0


def test_growth_over_a_break_is_not_taken_for_density() -> None:
    """L2, X5: the prompt before and the one behind have nothing to compare."""
    state = opened(history(LARGE, LARGE, LARGE))
    state.apply(reply(10_000))
    state.apply(Elided((Stub("c0_0", 0, "[gone]", "artifact:0", LARGE),)))
    state.apply(Noted("continue", "Go on."))
    state.apply(reply(90_000))
    assert state.density == 1.0


def test_at_most_two_elisions_are_made_in_eight_steps() -> None:
    """X5, case 50: a window that fills again at once is not helped by doing the same again."""
    state = opened(history(LARGE, LARGE, LARGE))
    for step in range(MOST_ELISIONS):
        assert state.may_elide
        state.apply(Elided((Stub(f"c{step}_0", 0, "[gone]", "artifact:0", LARGE),)))
    for step in range(WITHIN_STEPS):
        assert not state.may_elide
        state.apply(Noted("continue", f"Go on. {step}"))
        state.apply(reply(1_000))
    assert state.may_elide


# --- in the loop ---------------------------------------------------------------------------------


def test_old_results_make_room_in_one_batch_and_the_run_goes_on() -> None:
    """X5, X1: between breaks each request begins with the last one; at a break only old results differ."""

    async def main() -> None:
        window = 20_000
        remit = desk(
            scripted(fetching(60), window),
            [fetch],
            limits=Limits(steps=99, tokens=10**7, seconds=99),
        )
        outcome, events = await watched(remit, "go")
        assert outcome.completed
        requests = model_of(remit).requests
        made = breaks(requests)
        assert 3 <= len(made) <= 8
        assert outcome.prefix_breaks == {"elision": len(made)}
        assert len(set[str]().union(*made)) == sum(map(len, made)), "each result is elided once"
        told = [event.fields for event in events if event.kind == "prefix_break"]
        assert [(each["cause"], each["results"]) for each in told] == [
            ("elision", len(ids)) for ids in made
        ]
        assert all(each["freed_tokens"] > window // 10 for each in told)
        replies = [row for row in await rows(remit, outcome.run_id) if isinstance(row, Replied)]
        for request, row in zip(requests, replies, strict=True):
            assert row.usage.prompt + request.max_output <= window
        assert is_sendable(outcome.transcript)
        assert statuses(outcome) == ["ok"] * 60
        for request in requests:
            newest = [r for m in request.messages for r in m.tool_results][-RECENT_TURNS:]
            assert all(len(result.text) == LARGE for result in newest)

    run_virtual(main())


async def wholes(remit: rm.Remit[Any], run_id: str) -> list[tuple[Stub, bytes, str]]:
    """Every stub of a run, with what its handle leads to."""
    found: list[tuple[Stub, bytes, str]] = []
    for row in await rows(remit, run_id):
        for stub in row.results if isinstance(row, Elided) else ():
            artifact = await remit.store.artifact(run_id, stub.handle.removeprefix("artifact:"))
            assert artifact is not None, stub
            found.append((stub, artifact.data, artifact.media_type))
    return found


def test_what_gives_way_is_kept_whole_and_named_in_the_row() -> None:
    """X5: one row tells which results gave way, their handles and how much they were; nothing is lost."""

    async def main() -> None:
        remit = desk(scripted(fetching(18), 20_000), [fetch])
        outcome = await remit.run("go")
        assert outcome.completed
        by_id = {result.tool_use_id: result for result in results(outcome)}
        kept = await wholes(remit, outcome.run_id)
        assert len(kept) == 9
        for n, (stub, data, media_type) in enumerate(kept):
            assert (data.decode(), media_type) == (f"{n}:".ljust(LARGE, "x"), "text/plain")
            assert stub.total == LARGE
            assert stub.handle in stub.note
            assert by_id[stub.tool_use_id].text == stub.note
            assert by_id[stub.tool_use_id].artifacts == (stub.handle,)
        assert set(outcome.transcript.artifacts) == {stub.handle for stub, _, _ in kept}

    run_virtual(main())


def test_what_was_shown_in_part_keeps_the_handle_of_its_whole() -> None:
    """X5, X2: an excerpt is not kept a second time; its note leads to what it was cut from."""

    @rm.tool(effect="read")
    async def dump(n: int) -> Any:
        """Far too much, as text or as JSON."""
        return f"{n} " * 20_000 if n % 2 else [n] * 20_000

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        step = step_of(transcript)
        return ("dump", {"n": step}) if step < 10 else "done"

    async def main() -> None:
        remit = desk(scripted(says, 20_000), [dump])
        outcome = await remit.run("go")
        assert outcome.completed
        kept = await wholes(remit, outcome.run_id)
        assert len(kept) >= 4
        for n, (stub, data, _) in enumerate(kept):
            assert data.decode() == (
                f"{n} " * 20_000 if n % 2 else str([n] * 20_000).replace(" ", "")
            )
            assert stub.handle in stub.note
        by_id = {result.tool_use_id: result for result in results(outcome)}
        assert all(by_id[stub.tool_use_id].artifacts == (stub.handle,) for stub, _, _ in kept)

    run_virtual(main())


def test_what_a_run_inside_says_is_kept_though_it_names_another_artifact() -> None:
    """X5, X2: a summary that quotes where the report stands gives way, and is read again as it was."""

    @rm.tool(effect="read")
    async def report() -> str:
        """A long report."""
        return "R" * 20_000

    def sums_up(transcript: Transcript, _: ModelRequest) -> Any:
        if not results(transcript):
            return ("report", {})
        handle = results(transcript)[0].artifacts[0]
        return "In short. " * 200 + f'More: read_artifact(handle="{handle}", offset=0, length=9)'

    @rm.tool(effect="read")
    async def dump(n: int) -> str:
        """Much."""
        return f"{n} " * 3_000

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        step = step_of(transcript)
        return (
            ("child", {"task": "x"}) if not step else ("dump", {"n": step}) if step < 14 else "ok"
        )

    async def main() -> None:
        child = desk(sums_up, [report], name="child")
        remit = desk(
            scripted(says, 20_000), [child.as_tool("child", "Sum up.", limits=LIMITS), dump]
        )
        outcome = await remit.run("go")
        assert outcome.completed
        stub, data, _ = (await wholes(remit, outcome.run_id))[0]
        assert data.startswith(b"In short. ")
        assert stub.handle in stub.note

    run_virtual(main())


def test_a_note_is_followed_to_what_it_stands_for() -> None:
    """X5, X2: the call that it names gives what had given way, word for word, and a page that ages gives way too."""
    told = re.compile(r'read_artifact\((handle="[^"]+", offset=0, length=\d+)\)')

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        step = step_of(transcript)
        if step < 16:
            return ("fetch", {"n": step, "chars": LARGE})
        if step == 16:
            first = said(transcript)[0]
            found = told.search(first)
            assert found is not None, first
            return ("read_artifact", _arguments(found[1]))
        return ("fetch", {"n": step, "chars": LARGE}) if step < 40 else "done"

    async def main() -> None:
        remit = desk(
            scripted(says, 20_000), [fetch], limits=Limits(steps=99, tokens=10**7, seconds=99)
        )
        outcome = await remit.run("go")
        assert outcome.completed
        pages = [
            result
            for request in model_of(remit).requests
            for result in request.messages[-1].tool_results
            if "characters 0 to" in result.text
        ]
        assert pages[0].text.startswith("0:".ljust(LARGE, "x"))
        of_page = [
            kept for kept in await wholes(remit, outcome.run_id) if kept[1].startswith(b"0:x")
        ]
        assert len(of_page) == 2, "the result, and later the page of it"
        assert len({stub.handle for stub, _, _ in of_page}) == 1

    run_virtual(main())

    run_virtual(main())


def _arguments(told: str) -> dict[str, Any]:
    pairs = (part.split("=") for part in told.split(", "))
    return {name: json.loads(value) for name, value in pairs}


def test_media_give_way_like_texts() -> None:
    """X5, X3: a picture that the model has seen becomes a note with its type, its size and its handle."""

    @rm.tool(effect="read")
    async def shoot(n: int) -> list[Any]:
        """Two pictures and a word."""
        return [Text(f"shot {n}"), *[Media("image/png", b"%d %d" % (n, i)) for i in range(2)]]

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        step = step_of(transcript)
        return ("shoot", {"n": step}) if step < 10 else "done"

    async def main() -> None:
        profile = ModelProfile(context_window=16_000, max_output=1_024, media=("image/*",))
        remit = desk(ScriptedModel(says, profile=profile, record=True), [shoot])
        outcome = await remit.run("go")
        assert outcome.completed
        kept = await wholes(remit, outcome.run_id)
        assert kept
        assert all((data[:1].isdigit(), kind) == (True, "image/png") for _, data, kind in kept)
        first = results(outcome)[0]
        assert first.content[0] == Text("shot 0")
        assert [type(block) for block in first.content] == [Text] * 3
        assert f"image/png, 3 bytes: {kept[0][0].handle}" in first.text
        assert [type(block) for block in results(outcome)[-1].content] == [Text, Media, Media]

    run_virtual(main())


def test_much_is_hashed_off_the_event_loop() -> None:
    """C6, X5: what takes longer than a moment is a worker's, and little is not worth the way there."""
    submitted: list[int] = []

    def counting(submission: int) -> float:
        submitted.append(submission)
        return 0.0

    async def main(chars: int, window: int) -> int:
        @rm.tool(effect="read", name="fetch", max_result_tokens=200_000)
        async def large(n: int, chars: int) -> str:
            """Fetch so many characters."""
            return f"{n}:".ljust(chars, "x")

        submitted.clear()
        workers = SimulatedWorkers(counting)
        remit = desk(
            scripted(fetching(9, chars), window),
            [large],
            runtime=rm.Runtime(workers=workers, now=virtual_now),
        )
        outcome = await remit.run("go")
        assert outcome.completed
        assert outcome.prefix_breaks == {"elision": 1}
        assert len(await wholes(remit, outcome.run_id)) >= 2
        return len(submitted)

    rendered = run_virtual(main(600_000, 1_600_000))
    assert rendered == 9 + 1, "nine results are rendered there, and what gave way is hashed there"
    assert run_virtual(main(LARGE, 10_500)) == 0


def test_live_and_replayed_are_the_same() -> None:
    """X5, J1: a state that is rebuilt from its rows has the same transcript, estimate and breaks."""

    async def main() -> None:
        remit = desk(scripted(fetching(18, width=2), 30_000), [fetch])
        async with remit.stream("go", run_id="r") as live:
            async for _ in live:
                pass
        run = live._run
        assert run is not None
        state = RunState("r", await rows(remit, "r"))
        assert state.breaks == run.state.breaks == {"elision": 1}
        assert state.transcript == run.state.transcript == live.outcome.transcript
        assert (state.context_tokens, state.growth) == (run.state.context_tokens, run.state.growth)
        assert state.density == run.state.density

    run_virtual(main())


def test_room_is_made_before_the_notes_of_the_step_are_said() -> None:
    """X1, X5: the declared point is the beginning of a step; a note of that step stands behind the break."""

    async def main() -> None:
        counted: list[int] = []

        def clock() -> str:
            counted.append(1)
            return f"note {len(counted)}"

        remit = desk(scripted(fetching(18), 20_000), [fetch], notes=[clock])
        outcome = await remit.run("go")
        assert outcome.completed
        kinds = [row.kind for row in await rows(remit, outcome.run_id)]
        at = kinds.index("elided")
        assert kinds[at - 1] == "settled"
        assert kinds[at + 1 : at + 3] == ["noted", "replied"]

    run_virtual(main())


def test_a_conversation_that_comes_from_before_makes_room_at_its_first_step() -> None:
    """X5: what a run goes on from counts in its window, and the break is the new run's."""

    async def main() -> None:
        first = await desk(scripted(fetching(15), 100_000), [fetch]).run("go")
        assert first.prefix_breaks == {}
        remit = desk(scripted(["done"], 14_000), [fetch])
        second = await remit.run("and now?", history=first.transcript)
        assert second.completed
        assert second.prefix_breaks == {"elision": 1}
        request = model_of(remit).requests[0]
        assert changed_results(first.transcript[:], request.messages)
        assert said(first) == [f"{n}:".ljust(LARGE, "x") for n in range(15)]

    run_virtual(main())


def test_a_paused_turn_is_not_broken() -> None:
    """X5, C3: what is the provider's to finish goes back as it stands, and room is made afterwards."""

    async def main() -> None:
        def says(transcript: Transcript, _: ModelRequest) -> Any:
            step = step_of(transcript)
            if step in (16, 17):
                return Step("thinking", stop_reason=StopReason.PAUSE)
            return ("fetch", {"n": step, "chars": LARGE}) if step < 19 else "done"

        remit = desk(scripted(says, 20_000), [fetch])
        outcome = await remit.run("go")
        assert outcome.completed
        made = await rows(remit, outcome.run_id)
        for before, row in itertools.pairwise(made):
            if isinstance(row, Elided):
                assert not (isinstance(before, Replied) and before.stop_reason is StopReason.PAUSE)
        assert outcome.prefix_breaks == {"elision": 1}

    run_virtual(main())


def test_a_limit_that_the_prompt_runs_into_is_put_off_by_making_room() -> None:
    """L2, X5: a smaller prompt is a smaller reservation."""

    async def main() -> None:
        tokens = 160_000
        limits = Limits(steps=99, tokens=tokens, seconds=99)
        long = await desk(scripted(fetching(99), 20_000), [fetch], limits=limits).run("go")
        short = await desk(scripted(fetching(99), 10**6), [fetch], limits=limits).run("go")
        assert long.reason is short.reason is Reason.TOKEN_BUDGET
        assert long.steps > short.steps

    run_virtual(main())


# --- no progress (case 50) -----------------------------------------------------------------------


def test_a_window_that_is_full_of_what_cannot_be_elided_ends_the_run_and_says_so() -> None:
    """X5, case 50: 7k of tools and instructions in a window of 8k, and small turns beside them."""

    async def main() -> None:
        big = rm.tool(effect="read", name="search")(_described("y" * 12_000))
        remit = desk(
            scripted(fetching(40, 1_400), 8_000, 256), [fetch, big], instructions="z" * 14_000
        )
        outcome, events = await watched(remit, "go")
        assert outcome.reason is Reason.CONTEXT_FULL
        assert sum(event.kind == "prefix_break" for event in events) <= 2
        assert outcome.prefix_breaks.get("elision", 0) <= 2
        told = outcome.error or ""
        assert "instructions ~3,500 tokens" in told
        assert "tools ~3,2" in told
        assert "(largest: search 3,0" in told
        assert outcome.steps < 20
        assert is_sendable(outcome.transcript)
        assert (await remit.resume(outcome.run_id)).error == told, "it stays ended"
        on = await desk(scripted(["fine"], 100_000)).run("go on", history=outcome.transcript)
        assert on.completed

    run_virtual(main())


def _described(description: str) -> Any:
    async def search(q: str) -> str:
        return q

    search.__doc__ = description
    return search


def test_tools_that_refill_the_window_at_once_end_the_run() -> None:
    """X5, case 50: each call returns 6k; after two elisions in eight steps the room runs out."""

    async def main() -> None:
        @rm.tool(effect="read", name="fetch", max_result_tokens=6_100)
        async def large(n: int, chars: int) -> str:
            """Fetch so many characters."""
            return f"{n}:".ljust(chars, "x")

        remit = desk(scripted(fetching(40, 24_000), 32_000, 8_192), [large])
        outcome, events = await watched(remit, "go")
        assert outcome.reason is Reason.CONTEXT_FULL
        assert sum(event.kind == "prefix_break" for event in events) == 2
        caps = [request.max_output for request in model_of(remit).requests]
        assert caps[0] == 8_192 > caps[-1], "the output cap tightens before the end"
        assert "newest turn ~6,0" in (outcome.error or "")
        assert outcome.steps < 2 * WITHIN_STEPS

    run_virtual(main())


def test_what_cannot_be_elided_is_not_looked_for_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """J1, X5: beyond the trigger the searches are bounded by the window and not by the steps."""
    looked: list[int] = []
    search = choose

    def counting(*args: Any, **options: Any) -> Any:
        looked.append(1)
        return search(*args, **options)

    monkeypatch.setattr("remit.means.choose", counting)

    def jotting(transcript: Transcript, _: ModelRequest) -> Any:
        step = step_of(transcript)
        return ("jot", {"n": step, "words": "x" * 200}) if step < 900 else "done"

    async def main() -> Outcome[Any]:
        remit = desk(
            scripted(jotting, 50_000), [jot], limits=Limits(steps=999, tokens=10**9, seconds=999)
        )
        return await remit.run("go")

    outcome = run_virtual(main())
    assert outcome.reason is Reason.CONTEXT_FULL
    assert outcome.prefix_breaks == {}
    assert outcome.steps > 400
    assert len(looked) <= 15


# --- what the provider says of its window --------------------------------------------------------


def cut_at(step: int, *, again: bool) -> Any:
    """A model whose provider finds its window full at one step, or from that step on."""
    asked: list[int] = []

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        asked.append(step_of(transcript))
        if len(asked) == step or (again and len(asked) > step):
            return Step("I was ab", stop_reason=StopReason.CONTEXT)
        return ("fetch", {"n": len(asked), "chars": LARGE}) if len(asked) < step else "done"

    return says


def test_a_reply_that_the_window_cut_is_asked_for_again_once_there_is_room() -> None:
    """X5, C3: the provider's word counts against our estimate; the model is told what happened."""

    async def main() -> None:
        remit = desk(scripted(cut_at(8, again=False), 1_000_000), [fetch])
        outcome = await remit.run("go")
        assert outcome.completed
        assert outcome.prefix_breaks == {"elision": 1}
        last = model_of(remit).requests[-1].messages[-1]
        assert "the context was full" in last.text

    run_virtual(main())


def test_a_window_that_stays_full_for_the_provider_ends_the_run() -> None:
    """X5, C3, case 50: with nothing left to elide the provider's word is the end."""

    async def main() -> None:
        remit = desk(scripted(cut_at(8, again=True), 1_000_000), [fetch])
        outcome = await remit.run("go")
        assert outcome.reason is Reason.CONTEXT_FULL
        assert 1 <= outcome.prefix_breaks["elision"] <= 2
        assert outcome.error
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_calls_of_a_reply_that_the_window_cut_do_not_run_before_there_is_room() -> None:
    """C3, X5: they are answered, room is made, and the model asks again."""

    async def main() -> None:
        asked: list[int] = []

        def says(transcript: Transcript, _: ModelRequest) -> Any:
            asked.append(1)
            call = ("fetch", {"n": len(asked), "chars": LARGE})
            if len(asked) == 8:
                return Step(call, stop_reason=StopReason.CONTEXT)
            return call if len(asked) < 10 else "done"

        outcome = await desk(scripted(says, 1_000_000), [fetch]).run("go")
        assert outcome.completed
        assert statuses(outcome) == ["ok"] * 7 + ["not_started", "ok"]
        assert "context window" in said(outcome)[7]

    run_virtual(main())


# --- crashes -------------------------------------------------------------------------------------


def test_a_crash_at_any_boundary_leaves_no_half_elision() -> None:
    """X5, J3: before its row is durable nothing of it is there; afterwards all of it, in every request."""
    requests: list[tuple[Message, ...]] = []

    def make(store: Any) -> Any:
        model = scripted(fetching(18), 20_000)
        return desk(model, [fetch], store=store), model

    async def scenario(store: CrashStore) -> None:
        remit, model = make(store)
        outcome = await remit.run("go", run_id="r")
        assert outcome.completed
        requests[:] = [request.messages for request in model.requests]

    whole = CrashStore()
    run_virtual(scenario(whole))
    expected = list(requests)
    assert any("elided" in commit.what for commit in whole.commits)
    seen = 0
    for point in crash_points(scenario):
        if point.index % 3 and "elided" not in point.what:
            continue
        if "r" not in point.runs:
            continue
        remit, model = make(point.store)
        outcome = run_virtual(remit.resume("r"))
        assert outcome.completed, point
        assert outcome.prefix_breaks == {"elision": 1}, point
        asked = [request.messages for request in model.requests]
        assert asked == expected[len(expected) - len(asked) :], point
        seen += "elided" in point.what
    assert seen == 2


# --- any sizes -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(
        st.lists(st.sampled_from([10, 700, 2_000, 7_900]), min_size=1, max_size=3),
        min_size=1,
        max_size=25,
    ),
    window=st.sampled_from([6_000, 12_000, 24_000]),
    words=st.booleans(),
)
def test_whatever_tools_return_the_prefix_holds_between_counted_breaks(
    sizes: list[list[int]], window: int, words: bool
) -> None:
    """X1, X5, T1: any sizes, any window: valid requests, prefixes but for counted breaks, and room for all."""

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        step = step_of(transcript)
        if step >= len(sizes):
            return "done"
        return [("fetch", {"n": step, "chars": size}) for size in sizes[step]]

    async def main() -> None:
        said_so_far: list[int] = []

        def note() -> str:
            said_so_far.append(1)
            return f"word {len(said_so_far)}"

        remit = desk(
            scripted(says, window),
            [fetch],
            notes=[note] if words else [],
            limits=Limits(steps=99, tokens=10**8, seconds=99),
        )
        outcome = await remit.run("go", run_id="r")
        assert outcome.reason in (Reason.COMPLETED, Reason.CONTEXT_FULL)
        requests = model_of(remit).requests
        made: list[Row] = await rows(remit, "r")
        elided = [row for row in made if isinstance(row, Elided)]
        assert outcome.prefix_breaks.get("elision", 0) == len(elided)
        assert len(breaks(requests)) <= len(elided)
        if outcome.completed:
            assert breaks(requests) == [
                {stub.tool_use_id for stub in row.results} for row in elided
            ]
        replies = [row for row in made if isinstance(row, Replied)]
        for request, row in zip(requests, replies, strict=True):
            assert row.usage.prompt + request.max_output <= window
        assert RunState("r", made).transcript == outcome.transcript
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_two_runs_alike_elide_alike() -> None:
    """X1, X5: what gives way follows from the history alone."""

    async def main() -> list[Any]:
        outcome = await desk(scripted(fetching(18), 20_000), [fetch]).run("go", run_id="r")
        return outcome.transcript.to_json()

    assert run_virtual(main()) == run_virtual(main())


# --- a prompt that the provider refuses as too long ----------------------------------------------


def refused_at(step: int, *, again: bool) -> Any:
    """A model whose provider takes no prompt that is as long as that of one step."""
    asked: list[int] = []

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        asked.append(1)
        if len(asked) == step or (again and len(asked) > step):
            return ContextExceeded("the prompt is too long", usage=Usage())
        return ("fetch", {"n": len(asked), "chars": LARGE}) if len(asked) < step else "done"

    return says


def test_a_prompt_that_is_refused_as_too_long_is_made_shorter() -> None:
    """X5, case 50: the provider knows its window better; what is sent then is another request."""

    async def main() -> None:
        remit = desk(scripted(refused_at(8, again=False), 1_000_000), [fetch])
        outcome, events = await watched(remit, "go")
        assert outcome.completed
        assert outcome.prefix_breaks == {"elision": 1}
        refused, then = model_of(remit).requests[-2:]
        assert [m.role for m in refused.messages] == [m.role for m in then.messages]
        assert size(then) < size(refused)
        assert "cut off" not in then.messages[-1].text  # nothing was
        assert outcome.steps == 8
        assert not [event for event in events if event.kind == "model_retry"]

    run_virtual(main())


def size(request: Any) -> int:
    return Transcript(request.messages).tokens


def test_a_prompt_that_stays_too_long_ends_the_run_with_what_fills_it() -> None:
    """X5: not as a failure of the model, and no third request of the same kind is made."""

    async def main() -> None:
        remit = desk(scripted(refused_at(8, again=True), 1_000_000), [fetch])
        outcome = await remit.run("go")
        assert outcome.reason is Reason.CONTEXT_FULL
        assert outcome.error
        assert "fetch" in outcome.error
        assert outcome.completed is False
        assert len(model_of(remit).requests) <= 8 + MOST_ELISIONS
        assert is_sendable(outcome.transcript)

    run_virtual(main())


def test_a_first_prompt_that_is_too_long_ends_the_run_at_once() -> None:
    """X5: nothing can be elided; a model with a larger window takes the history over."""

    async def main() -> None:
        remit = desk(scripted(refused_at(1, again=True), 1_000_000), [fetch])
        outcome = await remit.run("go")
        assert outcome.reason is Reason.CONTEXT_FULL
        assert len(model_of(remit).requests) == 1
        larger = remit.replace(model=scripted(lambda *_: "done", 2_000_000))
        assert (await larger.run("and now?", history=outcome.transcript)).completed

    run_virtual(main())


def test_an_elision_says_which_messages_were_said_in_view_of_the_old() -> None:
    """X5: a codec leaves out the opaque blocks that bind to what was changed."""

    async def main() -> None:
        remit = desk(scripted(refused_at(8, again=False), 1_000_000), [fetch])
        outcome = await remit.run("go")
        [broken] = outcome.transcript.breaks
        stubbed = [
            at for at, message in enumerate(outcome.transcript) if "artifact:" in str(message)
        ]
        assert broken.first == stubbed[0]
        assert broken.end == len(outcome.transcript) - 1

    run_virtual(main())


def test_a_history_keeps_where_it_was_changed() -> None:
    """X5, X1: the next run of the conversation leaves out what the last one left out."""

    async def main() -> None:
        remit = desk(scripted(refused_at(8, again=False), 1_000_000), [fetch])
        outcome = await remit.run("go")
        [broken] = outcome.transcript.breaks
        more = desk(scripted(lambda *_: "again", 1_000_000), [fetch])
        assert (await more.run("and?", history=outcome.transcript)).transcript.breaks == (broken,)
        assert outcome.transcript.closed().breaks == (broken,)
        assert outcome.transcript.before(1).breaks == ()
        assert outcome.transcript.before(8).breaks == (broken,)

    run_virtual(main())


def test_a_view_says_that_what_stood_before_it_is_gone() -> None:
    """X5, case 03: opaque blocks that bind to it are not to be sent."""

    async def main() -> None:
        roles: tuple[Role, ...] = ("user", "assistant", "user", "assistant")
        said = Transcript([Message(role, (Text("words"),)) for role in roles])
        assert said.view(9).breaks == ()
        assert said.view(2).breaks == (Break(-1, 2),)
        assert said.view(0).breaks == (Break(-1, 0),)

    run_virtual(main())


def test_media_that_another_model_does_not_read_are_a_break_too() -> None:
    """X5, X3: what was said behind the picture was said in view of it."""

    @rm.tool(effect="read")
    async def look() -> Media:
        """Looks."""
        return Media("image/png", b"\x89PNG")

    async def main() -> None:
        profile = ModelProfile(context_window=9_000, max_output=500, media=("image/*",))
        sees = desk(ScriptedModel([("look", {}), "a cat"], profile=profile), [look])
        seen = await sees.run("go")
        blind = desk(scripted(lambda *_: "no", 9_000), [look])
        assert (await blind.run("sure?", history=seen.transcript)).transcript.breaks == (
            Break(2, 4),
        )

    run_virtual(main())
