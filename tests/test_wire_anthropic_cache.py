"""The bytes of the Anthropic wire from one request to the next, and what its prompt cache finds of them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anthropic_rig import (
    THINKING,
    UNMARKED,
    WIRE,
    model,
    opaque,
    request,
    sent,
    user,
)
from remit.errors import (
    TranscriptError,
)
from remit.messages import (
    Opaque,
    Text,
    ToolUse,
)
from remit.models.base import Settings
from remit.models.wires.anthropic import AnthropicCodec
from remit.testing.protocol import Refused, judge
from remit.transcript import Stub, Transcript

# The prompt cache


class Cache:
    """The provider's prompt cache: four markers, and a look back of 20 blocks from each."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def ask(self, body: Any) -> tuple[int, int]:
        """How many blocks were found, and how many there were. What is marked is written."""
        blocks: list[tuple[str, bool]] = []
        for place, entries in [("tools", body.get("tools", [])), ("system", body["system"])]:
            blocks += [self._block(place, entry) for entry in entries]
        for message in body["messages"]:
            blocks += [self._block(message["role"], entry) for entry in message["content"]]
        prefixes: list[str] = []
        digest = hashlib.sha256()
        for text, _ in blocks:
            digest.update(text.encode())
            prefixes.append(digest.hexdigest())
        marked = [at for at, (_, is_marked) in enumerate(blocks) if is_marked]
        assert len(marked) <= 4
        found = 0
        for at in marked:
            looked = [
                back for back in range(at, max(at - 21, -1), -1) if prefixes[back] in self._known
            ]
            found = max([found, *[back + 1 for back in looked[:1]]])
        self._known |= {prefixes[at] for at in marked}
        return found, len(blocks)

    @staticmethod
    def _block(place: str, entry: dict[str, Any]) -> tuple[str, bool]:
        is_marked = entry.pop("cache_control", None) is not None
        assert not (is_marked and entry.get("type") in ("thinking", "redacted_thinking"))
        assert not (is_marked and entry.get("type") == "text" and not entry["text"].strip())
        return json.dumps([place, entry]), is_marked


class Talk:
    """A run against that cache."""

    def __init__(self) -> None:
        self.transcript = Transcript([user("begin")])
        self.encoder = WIRE.encoder("m")
        self.cache = Cache()
        self.had = 0
        """Blocks of the last request."""
        self.n = 0

    def ask(self) -> int:
        """Send the next request; returns by how many blocks it misses what the last one had."""
        made = request(self.transcript)
        body = json.loads(self.encoder.encode(made, stream=True).body)
        found, total = self.cache.ask(body)
        missed, self.had = self.had - found, total
        self.transcript.mark_sent()
        return missed

    def calls(self, count: int, *more: Any) -> None:
        uses = [ToolUse(f"u{self.n + at}", "look", "{}") for at in range(count)]
        self.n += count
        self.transcript.add_reply(model(Opaque("anthropic", THINKING), *more, *uses))
        with self.transcript.answering() as answering:
            for slot in answering.slots:
                slot.settle((Text(f"result of {slot.use.id}"),))


@pytest.mark.parametrize("most", [1, 9, 10, 11, 25, 60])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_request_finds_all_that_the_one_before_had(most: int, seed: int) -> None:
    """X4: with any number of parallel calls, although the look-back is 20 blocks."""
    talk, counts = Talk(), Random(seed)
    talk.ask()
    for _ in range(30):
        talk.calls(counts.randint(1, most))
        assert talk.ask() == 0
    judged(sent(request(talk.transcript), talk.encoder))


SEARCH = '{"type":"server_tool_use","id":"s%d","name":"web_search","input":{}}'
SEARCHED = '{"type":"web_search_tool_result","tool_use_id":"s%d","content":[]}'


@given(
    st.lists(st.sampled_from(["calls", "note", "queued", "pause", "resume", "silent"]), max_size=8)
)
def test_notes_pauses_and_a_resume_miss_nothing(course: list[str]) -> None:
    """X4: the markers follow from the transcript alone, so a new encoder sets the same ones."""
    talk = Talk()
    talk.ask()
    for step, what in enumerate(course):
        match what:
            case "calls":
                talk.calls(40, "some text")
            case "note":
                talk.calls(2)
                talk.transcript.say(Text("a note"))
            case "queued":
                talk.calls(30)
                for at in range(15):
                    talk.transcript.say(Text(f"also {at}"))
            case "pause":
                served = [
                    Opaque("anthropic", (form % (step * 99 + at)).encode())
                    for at in range(15)
                    for form in (SEARCH, SEARCHED)
                ]
                talk.transcript.add_reply(model(*served))
            case "silent":  # a reply without content is not recorded; a note follows
                talk.transcript.say(Text("go on"))
            case _:
                talk.calls(25)
                talk.encoder = WIRE.encoder("m")
        assert talk.ask() == 0
    judged(sent(request(talk.transcript), talk.encoder))


def test_a_paused_turn_that_ends_in_a_thought_is_marked_before_it() -> None:
    """X4: no thought carries a marker, and what stands before it is found."""
    talk = Talk()
    talk.ask()
    thought = Opaque("anthropic", THINKING)
    for at in range(3):
        served = [
            Opaque("anthropic", (form % (at * 99 + n)).encode())
            for n in range(15)
            for form in (SEARCH, SEARCHED)
        ]
        talk.transcript.add_reply(model(*served, thought))
        assert talk.ask() <= 1  # the thought itself


def test_an_elision_misses_once() -> None:
    """X4, X5: what was changed is written anew, and the tools and the system text are found."""
    talk = Talk()
    talk.ask()
    for _ in range(5):
        talk.calls(30)
        assert talk.ask() == 0
    talk.transcript.elide([Stub("u0", 0, "gone", "artifact:x", 12)])
    talk.calls(30)
    before = talk.had
    assert talk.ask() == before - 2
    for _ in range(3):
        talk.calls(30)
        assert talk.ask() == 0


def test_a_marker_changes_nothing_else() -> None:
    """X1, X4: without the markers the bytes are those of a wire that sets none."""
    talk = Talk()
    for _ in range(4):
        talk.calls(3)
    made = request(talk.transcript)
    marked = WIRE.encoder("m").encode(made, stream=True).body
    bare = UNMARKED.encoder("m").encode(made, stream=True).body
    mark = b',"cache_control":{"type":"ephemeral"}'
    assert marked.count(mark) == 3
    assert marked.replace(mark, b"") == bare
    longer = AnthropicCodec(cache_ttl="1h").encoder("m").encode(made, stream=True).body
    assert longer == marked.replace(mark, b',"cache_control":{"type":"ephemeral","ttl":"1h"}')


def test_whoever_sets_markers_of_his_own_gets_no_others() -> None:
    """X4: no more than four of them are taken, and top-level ones move by themselves."""
    own = {"cache_control": {"type": "ephemeral"}}
    made = request(Transcript([user("x")]), settings=Settings(extra=own))
    body = sent(made, WIRE.encoder("m"))
    assert body.pop("cache_control") == own["cache_control"]
    assert "cache_control" not in json.dumps(body)
    system = [{"type": "text", "text": str(at), **own} for at in range(4)]
    made = request(Transcript([user("x")]), settings=Settings(extra={"system": system}))
    assert json.dumps(sent(made, WIRE.encoder("m"))).count("cache_control") == 4


def test_markers_are_taken_back_where_nobody_knows_them() -> None:
    """X4, case 60: a server that speaks this wire need not have a cache."""
    told = {
        "error": {
            "message": "messages.0.content.0.text.cache_control: Extra inputs are not permitted"
        }
    }
    assert WIRE.fault(400, {}, json.dumps(told).encode()).repair == "cache"
    made, encoder = request(Transcript([user("x")])), WIRE.encoder("claude-x")
    assert "cache_control" in json.dumps(sent(made, encoder))
    assert encoder.repair("cache")
    assert sent(made, encoder) == sent(made)
    assert not encoder.repair("cache")


def test_without_a_system_text_the_last_tool_is_marked() -> None:
    """X4: tools come first in what is cached."""
    body = sent(request(Transcript([user("x")]), instructions=""), WIRE.encoder("m"))
    assert "system" not in body
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral"}


# Bytes


def messages_of(body: bytes) -> bytes:
    """The messages of a body as they are written, without their end."""
    return body[body.index(b'"messages":[') : -2]


def judged(body: Any) -> None:
    """What the provider would say; it has issued whatever is in there."""
    strict = judge("anthropic")
    strict.trust(body)
    for message in body["messages"]:  # the same thought may be in several of the generated messages
        for at, each in enumerate(message["content"]):
            if each["type"] == "thinking":
                message["content"][at] = {"type": "text", "text": "a thought"}
    strict.request(body)


CITED = opaque(type="remit.beside", citations=[{"type": "page_location"}])
BLOCKS = st.one_of(
    st.text(min_size=1).map(lambda text: [Text(text)]),
    st.text("ab", min_size=1).map(lambda text: [Text(text), CITED]),
    st.just([Opaque("anthropic", THINKING), CITED]),
    st.just([Opaque("openai", b'{"type":"reasoning"}'), CITED]),
    st.builds(Opaque, st.just("anthropic"), st.binary(max_size=9)).map(lambda block: [block]),
)
USES = st.builds(
    ToolUse,
    st.just("x"),
    st.sampled_from(["look", "files.read", "größe"]),
    st.sampled_from(["{}", '{"at": 1}', "", "[1"]),
).map(lambda use: [use])


@given(
    st.lists(st.tuples(st.lists(st.one_of(BLOCKS, USES), max_size=5), st.booleans()), max_size=6)
)
def test_the_messages_of_a_request_begin_with_those_of_the_one_before(
    course: list[tuple[list[Any], bool]],
) -> None:
    """X1, J1: byte for byte, cache markers aside, and each is encoded once."""
    transcript = Transcript([user("begin")])
    encoder = UNMARKED.encoder("m")
    counted: list[int] = []
    pieces = encoder._pieces
    write = pieces._encode
    pieces._encode = lambda index, message: counted.append(index) or write(index, message)
    before = messages_of(encoder.encode(request(transcript), stream=True).body)
    for blocks, speaks in course:
        transcript.mark_sent()
        try:
            transcript.add_reply(model(*[each for group in blocks for each in group]))
        except TranscriptError:
            continue  # nothing in it
        if transcript.owed:
            with transcript.answering():
                pass
        if speaks or transcript.last is None or transcript.last.role == "assistant":
            transcript.say(Text("on"))
        made = encoder.encode(request(transcript), stream=True).body
        judged(json.loads(made))
        assert messages_of(made).startswith(before)
        assert made == UNMARKED.encoder("m").encode(request(transcript), stream=True).body
        before = messages_of(made)
    assert counted == list(range(len(transcript)))


_SCRIPT = """
import sys
from remit.messages import Message, Text, ToolResult, ToolUse
from remit.models.base import ModelRequest, Settings, ToolSpec
from remit.models.wires.anthropic import AnthropicCodec
from remit.testing.protocol import Refused, judge
from remit.transcript import Transcript

tools = tuple(ToolSpec(f"größe.{n}", "d", {"type": "object", "properties": {}}) for n in range(9))
uses = tuple(ToolUse(f"c{n}", f"größe.{n}", "{}") for n in range(9))
results = tuple(ToolResult(f"c{n}", (Text(str(n)),)) for n in range(9))
transcript = Transcript([Message("user", (Text("x"),)), Message("assistant", uses), Message("user", results)])
made = ModelRequest("Help.", transcript, tools, Settings(extra={"b": 1, "a": 2}), 9, 0.0)
sys.stdout.buffer.write(AnthropicCodec().encoder("m").encode(made, stream=True).body)
"""


def test_the_bytes_do_not_depend_on_the_process() -> None:
    """X1, case 76: equal in processes with different hash seeds."""
    made = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in range(5)
    }
    assert len(made) == 1


# Thinking that binds


class Bound:
    """A conversation with a newer model: its thoughts bind to everything that was sent before them."""

    def __init__(self) -> None:
        self.judge = judge("anthropic")
        self.transcript = Transcript([user("begin")])
        self.encoder = WIRE.encoder("claude-sonnet-5-5")
        self.n = 0

    def ask(self, *, uses: int) -> bool:
        """One request and the reply to it. Returns whether it had to be repaired."""
        made = request(self.transcript, settings=Settings(thinking=1_024))
        body = sent(made, self.encoder)
        refused = self._refused(body)
        if refused is not None:
            found = WIRE.fault(refused.status, {}, json.dumps(refused.body).encode())
            assert found.repair is not None
            assert self.encoder.repair(found.repair), refused
            body = sent(made, self.encoder)
            assert self._refused(body) is None
        self.n += 1
        thought = {"type": "thinking", "thinking": "hm", "signature": f"s{self.n}"}
        calls = [
            {"type": "tool_use", "id": f"u{self.n}_{at}", "name": "look", "input": {}}
            for at in range(uses)
        ]
        said = {"type": "text", "text": f"reply {self.n}"}
        reply = {"content": [thought, said, *calls], "stop_reason": "tool_use"}
        self.judge.response(reply, body)
        self.transcript.mark_sent()
        self.transcript.add_reply(WIRE.decoder().whole(json.dumps(reply).encode()).message)
        if uses:
            with self.transcript.answering() as answering:
                for slot in answering.slots:
                    slot.settle((Text(f"a long result of {slot.use.id}"),))
        else:
            self.transcript.say(Text("and?"))
        return refused is not None

    def _refused(self, body: Any) -> Refused | None:
        try:
            self.judge.request(body)
        except Refused as refused:
            return refused
        return None


STEPS = st.one_of(
    st.integers(0, 3), st.sampled_from(["elide", "reload", "resume", "other provider"])
)


@given(st.lists(STEPS, max_size=12))
def test_no_thought_goes_out_that_has_lost_what_it_binds_to(course: list[int | str]) -> None:
    """X5, T7: after elisions too; where a history was reloaded and nobody knows of them, one repair is enough."""
    talk = Bound()
    forgotten = False
    for step in course:
        match step:
            case "elide":
                results = [each for message in talk.transcript for each in message.tool_results]
                whole = [each for each in results if not each.artifacts]
                if whole:
                    stub = Stub(whole[0].tool_use_id, 0, "gone", "artifact:x", 9)
                    talk.transcript.elide([stub])
            case "reload":
                forgotten = forgotten or bool(talk.transcript.breaks)
                talk.transcript = Transcript.load(talk.transcript.to_json())
                talk.transcript.mark_sent()
                talk.encoder = WIRE.encoder("claude-sonnet-5-5")
            case "resume":
                talk.encoder = WIRE.encoder("claude-sonnet-5-5")
            case str():  # another provider's turn
                talk.transcript.add_reply(model("else", Opaque("openai", b'{"type":"reasoning"}')))
                talk.transcript.say(Text("on"))
            case int():
                assert not talk.ask(uses=step) or forgotten
