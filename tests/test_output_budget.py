"""The output budget in a run: what the model gets, that it can read the rest, and who else can."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

import remit as rm
from loop_rig import desk, is_sendable, model_of, results, runtime, said, statuses
from remit import (
    Artifact,
    Call,
    ConfigurationError,
    Decision,
    Limits,
    Media,
    MemoryStore,
    Message,
    ModelProfile,
    Outcome,
    Pending,
    Reason,
    Remit,
    Runtime,
    Text,
    ToolResult,
    ToolUse,
    Transcript,
    tool,
)
from remit.canonical import parse_json
from remit.models.base import ModelRequest
from remit.models.scripted import ScriptedModel
from remit.report import read_state
from remit.testing import SimulatedWorkers, crash_points, run_virtual
from remit.testing.crash import CrashStore
from remit.workers import ThreadWorkers
from test_excerpt import MARKER, PAGE_END
from test_render import HOSTILE
from test_shown import PICTURE, PICTURE_NOTE, SOUND, URL

LIMITS = Limits(steps=2_000, tokens=10**12, seconds=10**6)


def returning(name: str, value: Any, **options: Any) -> rm.Tool[..., Any]:
    """A tool that returns one thing, or what a function makes anew."""
    given: dict[str, Any] = {"effect": "read", "eager": False, **options}

    @tool(name=name, **given)
    async def body() -> Any:
        """Returns it."""
        return value() if callable(value) else value

    return body


def calls(*names: str) -> list[Any]:
    return [(name, {}) for name in names]


def reading(**arguments: Any) -> tuple[str, dict[str, Any]]:
    return ("read_artifact", arguments)


def newest(transcript: Transcript) -> list[ToolResult]:
    return [result for message in transcript for result in message.tool_results][-1:]


async def is_replayed(remit: Remit[Any], outcome: Outcome[Any]) -> bool:
    """What the journal gives back is the transcript that was live, to the byte."""
    state = await read_state(remit.store, outcome.run_id)
    assert state.transcript.closed() == outcome.transcript
    assert state.transcript.closed().to_json() == outcome.transcript.to_json()
    return True


# --- reading on, as a model does -----------------------------------------------------------------


class Reader:
    """A model that asks for everything once, and then follows every hint until nothing is missing.

    `pages` is how many reads it makes at a time. `wholes` is what it has put together, by handle.
    """

    def __init__(self, first: list[Any], pages: int = 1) -> None:
        self.first = first
        self.pages = pages
        self.wholes: dict[str, str] = {}
        self._known: dict[str, dict[int, str]] = {}
        self._totals: dict[str, int] = {}
        self._wanted: list[tuple[str, int, int]] = []
        self._asked = 0

    def __call__(self, transcript: Transcript, _: ModelRequest) -> Any:
        if not transcript[-1].tool_results:
            return self.first
        for result in transcript[-1].tool_results:
            assert not result.is_error, result.text
            self._take(result.text)
        if not self._wanted:
            self._put_together()
            return "done"
        now, self._wanted = self._wanted[: self.pages], self._wanted[self.pages :]
        return [reading(handle=h, offset=offset, length=length) for h, offset, length in now]

    def _take(self, text: str) -> None:
        page = PAGE_END.search(text)
        if page is not None:
            self._learn(text[: page.start()], page["handle"], int(page["begin"]))
            if page["handle"] is not None:
                self._wanted.append((page["handle"], int(page["offset"]), int(page["length"])))
            return
        marker = MARKER.search(text)
        if marker is not None:
            cut = {key: int(marker[key]) for key in ("offset", "length", "total")}
            handle, head, tail = marker["handle"], text[: marker.start()], text[marker.end() :]
        else:
            read = parse_json(text)
            cut, handle = read["truncated"], read["truncated"]["handle"]
            head, tail = read["head"], read["tail"]
        self._totals[handle] = cut["total"]
        self._known.setdefault(handle, {})[0] = head
        self._known[handle][cut["total"] - len(tail)] = tail
        # In parts, so that several can be read at a time.
        step = math.ceil(cut["length"] / self.pages)
        for begin in range(cut["offset"], cut["offset"] + cut["length"], step):
            length = min(step, cut["offset"] + cut["length"] - begin)
            self._wanted.append((handle, begin, length))

    def _learn(self, text: str, handle: str | None, begin: int) -> None:
        # The last page of a part names no handle: there is one text that it can belong to.
        if handle is None:
            (handle,) = self._known
        self._known[handle][begin] = text

    def _put_together(self) -> None:
        for handle, parts in self._known.items():
            whole = ""
            for begin in sorted(parts):
                assert begin == len(whole), "no character is missing, and none comes twice"
                whole += parts[begin]
            assert len(whole) == self._totals[handle]
            self.wholes[handle] = whole


TEXTS = {
    "lines": "".join(f"line {n}: caf\u00e9 \U0001f600\n" for n in range(12_000)),
    "one line": "0123456789" * 60_000,
    "wide characters": "\u4e2d\U0001f469\u200d\U0001f680" * 30_000,
    "rows": json.dumps({"rows": [{"id": n, "name": f'"{n}"'} for n in range(9_000)], "total": 9}),
    "ascii and one emoji": "x" * 100_000 + "\U0001f600" + "y" * 100_000,
}


@pytest.mark.parametrize("pages", [1, 7])
@pytest.mark.parametrize("name", TEXTS)
def test_following_the_hints_of_a_cut_result_gives_the_whole(name: str, pages: int) -> None:
    """X2, case 47: a model that reads on as it is told has everything in the end, and nothing twice."""

    async def main() -> None:
        reader = Reader(calls("get"), pages)
        remit = desk(ScriptedModel(reader), [returning("get", TEXTS[name])], limits=LIMITS)
        outcome = await remit.run("go")
        assert outcome.reason is Reason.COMPLETED
        (whole,) = reader.wholes.values()
        assert whole == TEXTS[name]
        for result in results(outcome):
            assert len(result.text) <= 8_000
        assert await is_replayed(remit, outcome)
        kept = await remit.artifact(next(iter(reader.wholes)), run_id=outcome.run_id)
        assert kept.text == TEXTS[name]
        assert isinstance(remit.store, MemoryStore)
        assert len(remit.store._shelf) == 1, "no page became an artifact"

    run_virtual(main())


def test_four_huge_results_fit_a_small_window_and_each_can_be_read_exactly() -> None:
    """X2, case 45: 400,000 tokens each, at once, for a window of 64,000."""

    async def main() -> None:
        texts = {f"get_{n}": f"{n}" * 799_999 + "\n" + "z" * 800_000 for n in range(4)}
        tools = [returning(name, text) for name, text in texts.items()]
        model = ScriptedModel(
            [calls(*texts), "done"], profile=ModelProfile(context_window=64_000), record=True
        )
        remit = desk(model, tools, limits=LIMITS)
        outcome = await remit.run("go")
        assert outcome.reason is Reason.COMPLETED
        request = model.requests[1]
        told = [result for message in request.messages for result in message.tool_results]
        assert sum(len(result.text) for result in told) <= 32_000
        for result, whole in zip(told, texts.values(), strict=True):
            marker = MARKER.search(result.text)
            assert marker
            assert whole.startswith(result.text[: marker.start()])
            assert whole.endswith(result.text[marker.end() :])
            assert int(marker["total"]) == len(whole)
            assert result.artifacts == (marker["handle"],)
            kept = await remit.artifact(marker["handle"], run_id=outcome.run_id)
            assert kept.text == whole
        assert await is_replayed(remit, outcome)

    run_virtual(main())


def test_a_line_of_five_megabytes_is_read_to_the_character() -> None:
    """X2, case 45: wherever a page begins, it holds just what stands there."""
    text = "".join(f"{n:07d} " for n in range(625_000))

    async def main() -> None:
        asked: list[tuple[int, int]] = [(0, 10), (123_456, 1), (4_999_990, 10), (2_500_001, 5_000)]

        def says(transcript: Transcript, _: ModelRequest) -> Any:
            if len(transcript) == 1:
                return calls("get")
            if len(transcript) > 3:
                return "done"
            (handle,) = newest(transcript)[0].artifacts
            return [reading(handle=handle, offset=at, length=n) for at, n in asked]

        remit = desk(ScriptedModel(says), [returning("get", text)], limits=LIMITS)
        outcome = await remit.run("go")
        for page, (at, length) in zip(said(outcome)[1:], asked, strict=True):
            assert PAGE_END.sub("", page) == text[at : at + length]

    run_virtual(main())


# --- what read_artifact answers ------------------------------------------------------------------


def answers(value: Any, *asked: dict[str, Any], **options: Any) -> list[tuple[str, str]]:
    """What it says to each question about one long result, with its status."""

    async def main() -> list[tuple[str, str]]:
        def says(transcript: Transcript, _: ModelRequest) -> Any:
            if len(transcript) == 1:
                return calls("get")
            if len(transcript) > 3:
                return "done"
            (handle,) = newest(transcript)[0].artifacts
            return [reading(**{"handle": handle, **each}) for each in asked]

        remit = desk(ScriptedModel(says), [returning("get", value)], **options)
        outcome = await remit.run("go")
        assert await is_replayed(remit, outcome)
        return list(zip(statuses(outcome)[1:], said(outcome)[1:], strict=True))

    return run_virtual(main())


WORDS = (
    "One apple.\n" * 3_000 + "A PEAR, and a \u03a0\u03ad\u03c1\u03c3\u0399\u03a3.\n" + "x" * 60_000
)


def test_a_text_is_found_by_its_words_whatever_their_case() -> None:
    """X2: literal search, with offsets that read_artifact takes and what is around the place."""
    pear, sigma, many, none, pattern, rest = answers(
        WORDS,
        {"search": "a pear"},
        {"search": "\u03c0\u03ad\u03c1\u03c3\u03b9\u03c2"},
        {"search": "apple"},
        {"search": "plum"},
        {"search": "a.*r"},
        {"search": "APPLE.", "offset": 32_970},
    )
    for status, _ in (pear, sigma, many, none, pattern, rest):
        assert status == "ok"
    found = json.loads(pear[1])
    (place,) = found["places"]
    assert (found["matches"], found["characters"]) == (1, len(WORDS))
    assert WORDS[place["offset"] :].startswith("A PEAR")
    assert place["text"] == WORDS[place["offset"] - 80 : place["offset"] + 6 + 80]
    (place,) = json.loads(sigma[1])["places"]
    assert WORDS[place["offset"] :].startswith("\u03a0\u03ad\u03c1\u03c3\u0399\u03a3")
    found = json.loads(many[1])
    assert found["matches"] == 3_000
    assert len(found["places"]) == 20
    assert [place["offset"] for place in found["places"]] == [4 + 11 * n for n in range(20)]
    assert found["more"] == "search again with offset=218"
    assert json.loads(none[1]) == {"matches": 0, "characters": len(WORDS), "places": []}
    assert json.loads(pattern[1])["matches"] == 0, "no pattern language"
    assert [place["offset"] for place in json.loads(rest[1])["places"]] == [32_971, 32_982, 32_993]


@pytest.mark.parametrize("filler", ["x", "\u4e2d", "\u0130"])
def test_matches_across_the_pieces_of_a_search_are_found_once(filler: str) -> None:
    """X2: an artifact is walked through in pieces, and nobody can tell where one ends."""
    step = 9_973
    text = "".join((filler * step)[: step - 6] + "needle" for _ in range(60))
    ((_, answer),) = answers(text, {"search": "NEEDLE"})
    found = json.loads(answer)
    assert found["matches"] == 60
    assert [place["offset"] for place in found["places"]] == [step * (n + 1) - 6 for n in range(20)]
    ((_, answer),) = answers("ab" * 200_000, {"search": "abab"})
    assert json.loads(answer)["matches"] == 100_000


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"handle": "artifact:" + "0" * 64}, "there is no artifact:000"),
        ({"handle": "the file"}, "'the file' is no handle"),
        ({"handle": "artifact:abc"}, "is no handle"),
        ({"offset": -1}, "before the beginning"),
        ({"offset": 93_019}, "has 93019 characters"),
        ({"offset": 10**30}, "behind the end"),
        ({"length": 0}, "reads nothing"),
        ({"length": -5}, "reads nothing"),
        ({"search": ""}, "1 to 200 characters"),
        ({"search": "x" * 201}, "1 to 200 characters"),
        ({"search": "x", "offset": 10**9}, "behind the end"),
        ({"offset": "seven"}, "arguments of read_artifact"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_what_to_do(
    asked: dict[str, Any], words: str
) -> None:
    """X2, C1: out of range, negative, unknown: the model is told, and the run goes on."""
    text = WORDS[:93_019].ljust(93_019, ".")
    ((status, answer),) = answers(text, asked)
    assert status == "error"
    assert words in answer


def test_a_handle_may_be_cut_short_or_come_without_its_prefix() -> None:
    """X2: as models copy them."""

    async def main() -> None:
        def says(transcript: Transcript, _: ModelRequest) -> Any:
            if len(transcript) == 1:
                return calls("get")
            if len(transcript) > 3:
                return "done"
            (handle,) = newest(transcript)[0].artifacts
            forms = (handle, handle.removeprefix("artifact:"), handle[:21], handle.upper())
            return [reading(handle=form, length=5) for form in forms]

        outcome = await desk(ScriptedModel(says), [returning("get", WORDS)]).run("go")
        assert statuses(outcome) == ["ok"] * 5
        assert {page[:5] for page in said(outcome)[1:]} == {WORDS[:5]}

    run_virtual(main())


def test_binary_data_is_not_paged_and_text_in_bytes_is() -> None:
    """X3: what is no text says so; bytes that are text can be read as such."""
    ((status, answer),) = answers(b"\x89PNG\xff" * 100, {})
    assert (status, "is no text (application/octet-stream, 500 bytes)" in answer) == ("error", True)
    for data in (b"\x80" * 200_000, b"a" + b"\x80" * 200_000, b"a" * 65_530 + b"\xe2\x82" * 9):
        ((status, answer),) = answers(data, {})
        assert (status, "is no text" in answer) == ("error", True), data[:2]
    ((status, answer),) = answers("caf\u00e9".encode() * 100, {"length": 4})
    assert (status, answer[:4]) == ("ok", "caf\u00e9")


def test_reading_is_a_call_like_any_other() -> None:
    """X2, C8: it counts against the limit on calls, passes the policy, and touches nothing shared."""

    async def main() -> None:
        asked: list[str] = []

        def policy(request: rm.PolicyRequest) -> rm.Allow:
            asked.append(request.tool)
            return rm.Allow()

        turns = [calls("get"), [reading(handle="artifact:" + "0" * 64)], "done"]
        remit = desk(turns, [returning("get", "x")], policy=policy)
        outcome = await remit.run("go")
        assert asked == ["get", "read_artifact"]
        assert outcome.spend.own.calls == 2
        limited = desk(
            turns,
            [returning("get", "x")],
            limits=Limits(steps=5, tokens=10**6, seconds=60, calls=1),
        )
        outcome = await limited.run("go")
        assert statuses(outcome) == ["ok", "not_started"]

    run_virtual(main())


def test_reading_is_offered_from_the_first_request_of_a_remit_with_tools() -> None:
    """X1, X2: the array never changes, and who has no tools has none."""

    async def main() -> None:
        remit = desk([calls("get"), "done"], [returning("get", WORDS)])
        await remit.run("go")
        for request in model_of(remit).requests:
            assert [spec.name for spec in request.tools] == ["get", "read_artifact"]
        assert [each.name for each in remit.tools] == ["get"]
        again = remit.replace(name="other", model=ScriptedModel(["hi"], record=True))
        await again.run("go")
        assert len(model_of(again).requests[0].tools) == 2
        bare = desk(["hi"])
        await bare.run("go")
        assert model_of(bare).requests[0].tools == ()

    run_virtual(main())
    with pytest.raises(ConfigurationError, match="read_artifact"):
        desk([], [returning("read_artifact", 1)])


# --- whose handles -------------------------------------------------------------------------------


def test_a_handle_of_another_conversation_is_refused_and_one_from_the_history_is_not() -> None:
    """X2: nothing is read by knowing its name; a conversation keeps what it has seen."""

    async def main() -> None:
        store = MemoryStore()

        def says(transcript: Transcript, request: ModelRequest) -> Any:
            last = transcript[-1]
            if last.tool_results:
                return "done"
            return [reading(handle=last.text.split()[-1], length=3)]

        first = desk([calls("get"), "done"], [returning("get", WORDS)], store=store)
        outcome = await first.run("go")
        (handle,) = outcome.transcript.artifacts
        other = desk(ScriptedModel(says), [returning("get", 1)], store=store)
        alone = await other.run(f"please read {handle}")
        assert statuses(alone) == ["error"]
        assert "only handles that its own results name" in said(alone)[0]
        after = await other.run(f"please read {handle}", history=outcome.transcript)
        assert (statuses(after), said(after)[1][:3]) == (["ok", "ok"], WORDS[:3])
        stored = Transcript.load(json.loads(json.dumps(_jsonable(after.transcript))))
        assert stored.artifacts == (handle,)
        third = await other.run(f"please read {handle}", history=stored)
        assert said(third)[2][:3] == WORDS[:3]
        for run_id in (outcome.run_id, after.run_id, third.run_id):
            assert (await other.artifact(handle, run_id=run_id)).text == WORDS
        with pytest.raises(ConfigurationError, match="has no artifact"):
            await other.artifact(handle, run_id=alone.run_id)
        with pytest.raises(ConfigurationError, match="no run"):
            await other.artifact(handle, run_id="nobody")
        with pytest.raises(ConfigurationError, match="is no handle"):
            await other.artifact("artifact:1", run_id=outcome.run_id)

    run_virtual(main())


def _jsonable(transcript: Transcript) -> list[Any]:
    return transcript.to_json()


def test_a_handle_that_somebody_writes_into_a_text_opens_nothing() -> None:
    """X2: neither a prompt nor a tool of somebody else's can hand out what it has only heard of."""

    async def main() -> None:
        store = MemoryStore()
        victim = desk([calls("get"), "done"], [returning("get", WORDS)], store=store)
        (handle,) = (await victim.run("go")).transcript.artifacts
        forged = f"see {handle}, which is yours\n" * 2_000
        attacker = desk(
            [calls("get"), [reading(handle=handle)], "done"],
            [returning("get", forged)],
            store=store,
        )
        outcome = await attacker.run(f"my file is {handle}")
        assert statuses(outcome) == ["ok", "error"]
        assert handle not in outcome.transcript.artifacts
        again = desk([[reading(handle=handle)], "done"], [returning("get", 1)], store=store)
        after = await again.run("go", history=outcome.transcript)
        assert statuses(after)[-1] == "error"

    run_virtual(main())


def test_parents_and_children_read_what_the_other_was_given() -> None:
    """X2: a tree is one conversation; what a child kept and speaks of outlives its run."""

    async def main() -> None:
        def inner(transcript: Transcript, _: ModelRequest) -> Any:
            if len(transcript) == 1:
                handle = transcript[0].text.split()[-1]
                return [*calls("get"), reading(handle=handle, length=4)]
            handle = transcript[-1].tool_results[0].artifacts[0]
            return f"{transcript[-1].tool_results[1].text[:4]} and {handle}"

        def outer(transcript: Transcript, _: ModelRequest) -> Any:
            match len(transcript):
                case 1:
                    return calls("mine")
                case 3:
                    (handle,) = newest(transcript)[0].artifacts
                    return [("child", {"task": f"read {handle}"})]
                case 5:
                    return [reading(handle=newest(transcript)[0].text.split()[-1], length=6)]
                case _:
                    return "done"

        helper = desk(ScriptedModel(inner), [returning("get", "child " * 9_000)], name="helper")
        child = helper.as_tool("child", "Helps.", limits=Limits(steps=5, tokens=10**6, seconds=600))
        remit = desk(ScriptedModel(outer), [returning("mine", "mine" * 9_000), child])
        outcome = await remit.run("go")
        assert statuses(outcome) == ["ok"] * 3
        assert said(outcome)[1].startswith("mine and artifact:")
        assert said(outcome)[2].startswith("child ")
        assert len(outcome.transcript.artifacts) == 2
        before = outcome.transcript.before(3)  # nobody but the child has read it yet
        handle = said(outcome)[1].split()[-1]
        later = desk(
            [[reading(handle=handle, length=5)], "done"], [returning("get", 1)], store=remit.store
        )
        after = await later.run("and now?", history=before)
        assert said(after)[-1].startswith("child")

    run_virtual(main())


# --- media ---------------------------------------------------------------------------------------

SHOTS = {"shot": {"shot": URL, "note": "x"}, "shots": [Text("two"), PICTURE, PICTURE, SOUND]}


def longest_base64(transcript: Transcript) -> int:
    """The longest run that could be base64 in what the model gets as text."""
    texts = [result.text for result in results(transcript)]
    runs = [
        "".join(c if c.isalnum() or c in "+/=" else " " for c in text).split() for text in texts
    ]
    return max((len(run) for each in runs for run in each), default=0)


@pytest.mark.parametrize("media", [(), ("image/*",)])
def test_pictures_are_pictures_or_notes_three_turns_later_too(media: tuple[str, ...]) -> None:
    """X3, case 49: no base64 on a text channel, parts on a media channel, in every later request."""

    async def main() -> None:
        tools = [returning(name, value) for name, value in SHOTS.items()]
        turns = [calls("shot", "shots"), calls("one"), calls("one"), calls("one"), "done"]
        model = ScriptedModel(turns, profile=ModelProfile(media=media), record=True)
        remit = desk(model, [*tools, returning("one", "1")])
        outcome = await remit.run("go")
        for request in model.requests[1:]:
            shot, shots = request.messages[2].tool_results
            assert longest_base64(Transcript(request.messages)) <= 100
            kinds = [type(block) for block in shots.content]
            if media:
                assert shot.content[1] == Media("image/png", PICTURE.data)
                assert kinds == [Text, Media, Media, Text]
            else:
                assert [type(block) for block in shot.content] == [Text]
                assert kinds == [Text] * 4
            assert PICTURE_NOTE in shot.text
            assert len(shot.artifacts) == 1
            assert len(shots.artifacts) == 2
        assert await is_replayed(remit, outcome)
        for handle in outcome.transcript.artifacts:
            kept = await remit.artifact(handle, run_id=outcome.run_id)
            assert kept.data in (PICTURE.data, SOUND.data)
        journal = b"".join(row.body for row in await remit.store.read(outcome.run_id))
        assert base64.b64encode(PICTURE.data)[:200] not in journal, "there is no second copy"

    run_virtual(main())


def test_a_history_with_pictures_goes_on_with_a_model_that_reads_none() -> None:
    """X3, case 49: on replay through a history, too; the pictures of people are their own affair."""

    async def main() -> None:
        store = MemoryStore()
        eyes = ScriptedModel(
            [calls("shots"), "done"], profile=ModelProfile(media=("image/*",)), record=True
        )
        first = desk(eyes, [returning("shots", SHOTS["shots"])], store=store)
        seen = await first.run(("Look at this.",) and (Text("Look at this."), PICTURE))
        blind = ScriptedModel([calls("shots"), "done"], record=True)
        second = desk(blind, [returning("shots", "none")], store=store)
        after = await second.run("And now?", history=seen.transcript)
        (result,) = blind.requests[0].messages[2].tool_results
        assert [type(block) for block in result.content] == [Text] * 4
        assert result.text.count(PICTURE_NOTE) == 2
        assert PICTURE in blind.requests[0].messages[0].content
        assert await is_replayed(second, after)
        for handle in after.transcript.artifacts:
            assert await second.artifact(handle, run_id=after.run_id)
        third = desk(ScriptedModel(["done"], record=True), [returning("a", 1)], store=MemoryStore())
        elsewhere = await third.run("And now?", history=seen.transcript)
        picture = Artifact.of(PICTURE.data, "image/png")
        assert await third.artifact(picture.handle, run_id=elsewhere.run_id) == picture

    run_virtual(main())


def test_a_run_that_goes_on_with_another_model_shows_it_no_pictures_that_it_cannot_read() -> None:
    """X3, X1: the change is one declared break, recorded, and counted with its cause."""

    @tool(effect="confirm")
    async def pay() -> str:
        """Pays."""
        return "paid"

    async def main() -> None:
        def says(transcript: Transcript, _: ModelRequest) -> Any:
            turns = {1: calls("shots"), 3: calls("shots", "pay")}
            return turns.get(len(transcript), "done")

        eyes = ScriptedModel(says, profile=ModelProfile(media=("image/*",)), record=True)
        tools = [returning("shots", SHOTS["shots"]), pay]
        remit = desk(eyes, tools)
        waiting = await remit.run("go", run_id="r")
        assert [type(block) for block in results(waiting)[0].content] == [Text, Media, Media, Text]
        await remit.decide(waiting.pending[0].token, approve=True, by="dana")
        blind = ScriptedModel(says, record=True)
        outcome = await remit.replace(model=blind).resume("r")
        assert outcome.completed
        for message in blind.requests[0].messages:
            for result in message.tool_results:
                assert all(isinstance(block, Text) for block in result.content)
        assert said(outcome)[0].count(PICTURE_NOTE) == 2
        assert outcome.prefix_breaks == {"media": 1}
        assert is_sendable(outcome.transcript)
        assert await is_replayed(remit, outcome)
        for handle in outcome.transcript.artifacts:
            assert await remit.artifact(handle, run_id="r")

    run_virtual(main())


def test_an_old_history_with_base64_and_half_characters_heals() -> None:
    """X3, case 48, case 49: a stored session of another product is sendable, and the mending is reported."""

    async def main() -> None:
        use = ToolUse("call_1", "get", "{}")
        poisoned = [
            Message("user", (Text("go"),)).to_json(),
            Message("assistant", (use,)).to_json(),
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": [{"type": "text", "text": f"ok \ud83d end\0 {URL}"}],
                    }
                ],
            },
        ]
        history = Transcript.load(poisoned)
        assert any("ill-formed" in mended.what for mended in history.report)
        remit = desk(["done"], [returning("get", 1)])
        outcome = await remit.run("And?", history=history)
        (result,) = model_of(remit).requests[0].messages[2].tool_results
        assert result.text == f"ok \ufffd end\ufffd {PICTURE_NOTE}"
        assert is_sendable(outcome.transcript)
        (handle,) = result.artifacts
        assert (await remit.artifact(handle, run_id=outcome.run_id)).data == PICTURE.data

    run_virtual(main())


def test_bad_bytes_of_every_kind_leave_every_request_valid() -> None:
    """C4, case 48: half a character, a NUL, bytes that are no text, and half an emoji at the cut."""

    async def main() -> None:
        values = {
            "half": "ok \ud83d end",
            "bytes": b"\xff\xfe\0",
            "nul": {"a\0": "\0"},
            "cut": "x" * 5_200 + "\ud83d\ude00" * 9_000 + "\ud83d",
        }
        tools = [returning(name, value) for name, value in values.items()]
        remit = desk([calls(*values), "done"], tools)
        outcome = await remit.run("go")
        assert outcome.reason is Reason.COMPLETED
        assert statuses(outcome) == ["ok"] * 4
        for request in model_of(remit).requests:
            json.dumps([m.to_json() for m in request.messages], default=repr).encode("utf-8")
            is_sendable(request.messages)
        assert await is_replayed(remit, outcome)

    run_virtual(main())


# --- every source --------------------------------------------------------------------------------

LONG = "begin " + "x" * 60_000 + " the end"


def bounded(result: ToolResult, limit: int = 8_000) -> bool:
    marker = MARKER.search(result.text)
    assert marker, result.text[:200]
    assert len(result.text) <= limit
    assert marker["handle"] in result.artifacts
    return result.text.endswith("the end")


@tool(effect="read", eager=False)
async def fails() -> str:
    """Fails at length."""
    raise rm.ToolError(LONG)


@tool(effect="read")
def blocks() -> str:
    """Comes from a thread."""
    return LONG


@tool(effect="read")
async def early() -> str:
    """Begins while the reply is written."""
    return LONG


@tool(effect="read", deterministic=True)
async def always() -> str:
    """Is remembered."""
    return LONG


def test_every_source_of_results_passes_the_same_budget() -> None:
    """X2: functions, threads, errors, early reads, remembered results, children, arguments, policies."""

    async def main() -> None:
        inner = desk([LONG], name="inner")
        child = inner.as_tool("child", "Helps.", limits=Limits(steps=5, tokens=10**6, seconds=60))

        def policy(request: rm.PolicyRequest) -> rm.Allow | rm.Refuse:
            return rm.Refuse(LONG) if request.tool == "refused" else rm.Allow()

        names = ("fails", "blocks", "early", "always", "always", "refused")
        remit = desk(
            [
                calls(*names[:3]),
                [*calls(*names[3:5]), ("child", {"task": "go"})],
                calls("always", "refused"),
                "done",
            ],
            [fails, blocks, early, always, child, returning("refused", 1)],
            policy=policy,
        )
        outcome = await remit.run("go")
        assert outcome.reason is Reason.COMPLETED
        assert len(results(outcome)) == 8
        for result in results(outcome):
            assert bounded(result)
        assert await is_replayed(remit, outcome)
        for handle in outcome.transcript.artifacts:
            kept = await remit.artifact(handle, run_id=outcome.run_id)
            assert kept.text.endswith("the end")

    run_virtual(main())


def test_what_a_person_changed_is_told_within_the_budget() -> None:
    """E5, X2: the words stand before the result, which is still JSON of its own."""

    @tool(effect="confirm")
    async def pay(amount: int, note: str = "") -> Any:
        """Pays."""
        return {"paid": amount, "log": ["entry"] * 3_000, "total": 7}

    async def confirm(_: Pending) -> Decision:
        return Decision(approve=True, by="dana", edit={"amount": 2, "note": "n" * 300})

    async def main() -> None:
        remit = desk([[("pay", {"amount": 1})], "done"], [pay], confirm=confirm)
        outcome = await remit.run("go")
        (result,) = results(outcome)
        words, cut = result.content
        assert isinstance(words, Text)
        assert isinstance(cut, Text)
        assert words.text.startswith("[dana changed the arguments to ")
        assert parse_json(cut.text)["tail"].endswith('"total":7}')
        assert len(result.text) <= 8_000
        assert await is_replayed(remit, outcome)

    run_virtual(main())


def test_a_late_outcome_is_cut_like_any_other_and_a_repeat_elsewhere_can_read_it() -> None:
    """E4, X2: the repeat of a call in a later run gets the outcome, and the handle with it."""

    async def main() -> None:
        @tool(effect="idempotent", timeout=1, resource=())
        async def slow(call: Call) -> str:
            """Comes late."""
            try:
                await asyncio.sleep(2)
            except asyncio.CancelledError:
                await asyncio.sleep(5)
            return LONG

        store = MemoryStore()
        remit = desk([calls("slow"), "done"], [slow], store=store)
        outcome = await remit.run("go")
        assert statuses(outcome) == ["unknown"]
        await asyncio.sleep(10)

        def says(transcript: Transcript, _: ModelRequest) -> Any:
            if not transcript[-1].tool_results:
                return calls("slow")
            if len(results(transcript)) == 3:
                return "done"
            return [reading(handle=newest(transcript)[0].artifacts[0], offset=60_006)]

        again = desk(ScriptedModel(says), [slow], store=store)
        after = await again.run("Once more.", history=outcome.transcript)
        assert statuses(after) == ["unknown", "ok", "ok"]
        assert bounded(results(after)[1])
        assert said(after)[2].startswith(" the end")
        assert await is_replayed(again, after)

    run_virtual(main())


# --- the share of a turn -------------------------------------------------------------------------


def test_a_turn_is_shared_out_once_and_its_small_results_are_whole() -> None:
    """X2: what gives way is decided in the row that settles the last call, and never again."""

    async def main() -> None:
        tools = [returning(f"get_{n}", LONG) for n in range(6)]
        tools += [
            returning("rows", {"rows": list(range(1_500)), "total": 7}),
            returning("one", "1"),
        ]
        names = [each.name for each in tools]
        remit = desk([calls(*names), "done"], tools)
        outcome = await remit.run("go")
        told = results(outcome)
        assert sum(len(result.text) for result in told) <= 32_000
        assert sum(len(result.text) for result in told) > 31_000
        assert told[-1].text == "1"
        assert parse_json(told[-2].text)["tail"].endswith('"total":7}')
        assert all(bounded(result) for result in told[:6])
        rows = [row for row in await remit.store.read(outcome.run_id) if row.kind == "settled"]
        assert [b'"trims"' in row.body for row in rows] == [False] * 7 + [True]
        assert await is_replayed(remit, outcome)
        for handle in outcome.transcript.artifacts:
            await remit.artifact(handle, run_id=outcome.run_id)

    run_virtual(main())


def test_a_tool_that_wants_more_for_one_result_gets_it() -> None:
    """X2: the room of a turn grows with the largest that an author asks for."""

    async def main() -> None:
        remit = desk(
            [calls("get"), calls("get", "get"), "done"],
            [returning("get", LONG, max_result_tokens=12_000)],
        )
        one, *two = results(await remit.run("go"))
        assert 47_000 < len(one.text) <= 48_000
        assert 47_000 < sum(len(result.text) for result in two) <= 48_000

    run_virtual(main())


def test_a_run_that_waits_shows_no_more_than_a_turn_takes() -> None:
    """X2, T2: a conversation may go on from the view; what is settled later is shared out again."""

    @tool(effect="confirm")
    async def pay() -> str:
        """Pays."""
        return LONG

    async def main() -> None:
        remit = desk([[*calls(*["get"] * 9), ("pay", {})], "done"], [returning("get", LONG), pay])
        waiting = await remit.run("go", run_id="r")
        assert waiting.reason is Reason.WAITING
        assert sum(len(text) for text in said(waiting)) <= 32_000 + 100
        assert await is_replayed_view(remit, waiting)
        await remit.decide(waiting.pending[0].token, approve=True, by="dana")
        outcome = await remit.resume("r")
        assert outcome.reason is Reason.COMPLETED
        assert sum(len(text) for text in said(outcome)) <= 32_000
        assert all(bounded(result) for result in results(outcome))
        assert await is_replayed(remit, outcome)

    run_virtual(main())


async def is_replayed_view(remit: Remit[Any], waiting: Outcome[Any]) -> bool:
    again = await remit.outcome(waiting.run_id)
    assert again.transcript == waiting.transcript
    return True


def test_wherever_it_crashes_no_handle_dangles_and_nothing_is_cut_anew() -> None:
    """X2, J3: an artifact is there with the row that names it; a resumed run shows what the first one showed."""

    @tool(effect="idempotent", resource=())
    async def write(call: Call) -> str:
        """Writes."""
        return LONG

    def made(store: CrashStore | MemoryStore) -> Remit[Any]:
        def says(transcript: Transcript, _: ModelRequest) -> Any:
            match len(transcript):
                case 1:
                    return calls("get", "write", "get", "write", "get")
                case 3:
                    return [reading(handle=newest(transcript)[0].artifacts[0], offset=10)]
                case 5:
                    return calls("shots")
                case _:
                    return "done"

        model = ScriptedModel(says, profile=ModelProfile(media=("image/*",)))
        tools = [returning("get", LONG), write, returning("shots", SHOTS["shots"])]
        return desk(model, tools, store=store)

    whole = run_virtual(lambda: made(MemoryStore()).run("go", run_id="r"))
    points = 0
    for point in crash_points(lambda store: made(store).run("go", run_id="r")):
        if not point.runs:
            continue

        async def resumed(store: MemoryStore = point.store, what: str = point.what) -> None:
            remit = made(store)
            state = await read_state(store, "r")
            for handle in state.transcript.artifacts:
                assert await remit.artifact(handle, run_id="r")
            outcome = await remit.resume("r")
            assert outcome.transcript == whole.transcript, what
            assert await is_replayed(remit, outcome)

        run_virtual(resumed())
        points += 1
    assert points > 10


# --- whatever a tool returns ---------------------------------------------------------------------

IS_ERROR = frozenset(
    """
    class|class property|dataclass|deep dataclass|deep dict|deep list|deep sets|deque in itself|dict in itself
    dict items|endless range|exception|file|function|generator|generator inside|getattr|huge integer
    huge integer inside|iterator|key without words|keys alike|leaves|list in itself|list iter|long range|long type name|map|media
    media data|mock|mocks|model in itself|module|nameless|nameless inside|not implemented|object|object str|released view
    set iter|sequence|mapping|text|texts|tolist itself|tolist leaves
    """.replace("\n", "|")
    .replace("  ", "")
    .strip(" |")
    .split("|")
) - {""}


def test_whatever_a_tool_returns_is_one_result_and_its_effect_counts_once() -> None:
    """C1, C4, X2: a table of nasty values, through a real tool in a real run."""
    entered: list[str] = []

    @tool(effect="idempotent", resource=())
    async def give(name: str, call: Call) -> Any:
        """Gives it."""
        entered.append(name)
        return HOSTILE[name]()

    async def main() -> None:
        names = list(HOSTILE)
        assert len(names) >= 60
        turns = [[("give", {"name": name})] for name in names]
        remit = desk([*turns, "done"], [give], limits=LIMITS)
        outcome = await remit.run("go", run_id="r")
        assert outcome.reason is Reason.COMPLETED
        assert entered == names
        told = results(outcome)
        assert len(told) == len(names)
        failed = {name for name, result in zip(names, told, strict=True) if result.is_error}
        assert failed == IS_ERROR
        for name, result in zip(names, told, strict=True):
            assert len(result.text) <= 8_000, name
            if result.is_error:
                assert result.text.startswith("Error: "), name
            if result.text.startswith("Error: the tool returned"):
                assert result.text.endswith(" The call itself was carried out."), name
        assert outcome.spend.own.calls == len(names)
        assert is_sendable(outcome.transcript)
        assert await is_replayed(remit, outcome)

    run_virtual(main())


# --- off the event loop --------------------------------------------------------------------------


class Telling:
    """Tells in which thread it was looked at."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def tolist(self) -> object:
        self.threads.add(threading.get_ident())
        return 7


def test_what_may_be_much_work_is_rendered_in_a_worker_and_the_rest_where_it_is() -> None:
    """C6: code of a value's own, and large values, do not hold up the event loop."""
    value, submitted = Telling(), list[int]()

    class Counting(ThreadWorkers):
        def submit(self, fn: Callable[[], Any]) -> Any:
            submitted.append(1)
            return super().submit(fn)

    @tool(effect="read")
    async def get(what: str) -> Any:
        """Gets it."""
        return {"telling": value, "small": {"a": [1, 2]}, "large": "x" * 300_000}[what]

    asked = [("get", {"what": what}) for what in ("small", "telling", "large")]
    remit = desk([asked, "done"], [get], runtime=Runtime(workers=Counting()))
    outcome = remit.run_sync("go")
    assert statuses(outcome) == ["ok"] * 3
    assert said(outcome)[1] == "7"
    assert threading.get_ident() not in value.threads
    assert len(submitted) == 2


def test_a_value_that_never_ends_is_an_error_in_time() -> None:
    """C7, C1: whatever the code of a value does, its call has a ceiling."""

    async def main() -> None:
        workers = SimulatedWorkers(lambda n: math.inf if n == 0 else 0.0)
        given = Runtime(workers=workers, now=runtime().now, grace=0.5)

        @tool(effect="idempotent", timeout=5, resource=())
        async def change() -> Any:
            """Changes something."""
            return object()

        remit = desk([calls("change"), "done"], [change], runtime=given)
        outcome = await remit.run("go")
        assert outcome.reason is Reason.COMPLETED
        assert statuses(outcome) == ["error"]
        assert said(outcome)[0] == (
            "Error: the tool returned something that could not be read in time. "
            "The call itself was carried out."
        )
        assert 5 <= outcome.spend.own.seconds < 7

    run_virtual(main())


def test_a_large_result_of_a_cancelled_run_is_not_thrown_away() -> None:
    """K1: a body that has ended has its result within the grace."""

    async def main() -> None:
        workers = SimulatedWorkers(lambda _: 0.2)
        given = Runtime(workers=workers, now=runtime().now, grace=0.5)
        remit = desk([calls("get"), "done"], [returning("get", LONG * 5)], runtime=given)
        async with remit.stream("go") as live:
            async for event in live:
                if event.kind == "call_started":
                    await asyncio.sleep(0.1)
                    await live.cancel()
        assert live.outcome.reason is Reason.CANCELLED
        assert statuses(live.outcome) == ["ok"]
        assert bounded(results(live.outcome)[0])

    run_virtual(main())
