"""The transcript under every order of calls that hypothesis can think of, and under damage.

The oracle is `assert_sound`, written here from the rules of the protocol and not from the code.
"""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from effort import tries
from remit.errors import TranscriptError
from remit.messages import Media, Message, Opaque, Status, Text, ToolResult, ToolUse
from remit.rules import validate
from remit.slots import Answering, Slot
from remit.transcript import Stub, Transcript


def assert_sound(messages: tuple[Message, ...], *, may_owe: bool = False) -> None:
    """Whether a strict provider would take it, in the plainest words."""
    seen: set[str] = set()
    for position, message in enumerate(messages):
        before = messages[position - 1] if position else None
        asked = [b.id for b in before.content if isinstance(b, ToolUse)] if before else []
        given = [b.tool_use_id for b in message.content if isinstance(b, ToolResult)]
        assert given == asked, "each call once, in order, directly behind its turn"
        assert all(isinstance(block, ToolResult) for block in message.content[: len(given)])
        assert message.role == "user" or position > 0
        assert message.content
        for block in message.content:
            match block:
                case ToolUse(id):
                    assert message.role == "assistant"
                    assert id not in seen
                    assert 1 <= len(id) <= 64
                    assert id.isascii()
                    assert id.replace("_", "a").replace("-", "a").isalnum()
                    seen.add(id)
                case ToolResult(_, content):
                    assert message.role == "user"
                    assert content
                    assert all(not isinstance(part, Text) or part.text.strip() for part in content)
                case Text(text):
                    assert text.strip()
                case Opaque(_, data):
                    assert data
                case Media(_, data):
                    assert message.role == "user"
                    assert data
    if messages and not may_owe:
        assert not messages[-1].tool_uses
    wire = json.dumps([message.to_json() for message in messages], ensure_ascii=False)
    assert "\\u0000" not in wire
    wire.encode()


WORDS = st.sampled_from(["yes", "größer", "\U0001f600", " ", "", "\ud83d", "a\0b", "\ud83d\ude00"])
TEXTS = st.builds(Text, WORDS)
MEDIA = st.builds(Media, st.just("image/png"), st.binary(max_size=3), st.none() | WORDS)
OPAQUES = st.builds(Opaque, st.sampled_from(["anthropic", "openai"]), st.binary(max_size=3))
IDS = st.sampled_from(["", "a", "b", "c", "a b", "é", *(f"call_{n}" for n in range(1, 9))])
USES = st.builds(ToolUse, IDS, st.sampled_from(["look", "refund"]), WORDS)
REPLIES = st.lists(st.one_of(USES, USES, TEXTS, OPAQUES), max_size=6).map(
    lambda content: Message("assistant", tuple(content))
)
SAID = st.lists(st.one_of(TEXTS, MEDIA), max_size=3).map(tuple)
HASHES = st.sampled_from(["0" * 16, "f" * 16])
KEYS = st.builds(
    lambda run, step, digits: f"{run}:{step}:refund:{digits}:1",
    st.sampled_from(["run", "run:with:colons"]),
    st.integers(1, 2),
    HASHES,
)
STATUSES = st.sampled_from(list(Status))
DERIVED = st.sampled_from(["copy", "closed", "view", "load"])


def shape(message: Message) -> Message:
    """A message without the content of its results."""
    content = [
        replace(block, content=(), artifacts=()) if isinstance(block, ToolResult) else block
        for block in message.content
    ]
    return Message(message.role, tuple(content))


def has_words(content: tuple[Any, ...]) -> bool:
    return any(
        block.text.strip()
        if isinstance(block, Text)
        else block.data
        if isinstance(block, Media | Opaque)
        else True
        for block in content
    )


class Conversations(RuleBasedStateMachine):
    """Several transcripts with a common past, each beside what it must look like."""

    transcripts: Bundle[Transcript] = Bundle("transcripts")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[Transcript, list[Message]]] = []
        self.sent: list[tuple[Transcript, tuple[Message, ...]]] = []
        self.elided: list[Transcript] = []
        """Those in which something that was sent was changed on purpose."""
        self.handed: list[tuple[Answering, Slot]] = []
        """Slots that somebody still holds, closed or not."""

    def adopt(self, transcript: Transcript) -> Transcript:
        self.all.append((transcript, list(transcript)))
        return transcript

    def changed(self, transcript: Transcript) -> None:
        """Only this one may have changed: the others are compared in the invariant."""
        for mine, messages in self.all:
            if mine is transcript:
                messages[:] = list(transcript)

    @initialize(target=transcripts, content=SAID)
    def begin(self, content: tuple[Text | Media, ...]) -> Transcript:
        transcript = Transcript()
        transcript.say(Text("hi"), *content)
        return self.adopt(transcript)

    @rule(transcript=transcripts, content=SAID)
    def say(self, transcript: Transcript, content: tuple[Text | Media, ...]) -> None:
        before = transcript[:]
        if transcript.owed or not has_words(content):
            with pytest.raises(TranscriptError):
                transcript.say(*content)
            assert transcript[:] == before
        else:
            transcript.say(*content)
            assert len(transcript) - len(before) in (0, 1)
            self.changed(transcript)

    @rule(transcript=transcripts)
    def send(self, transcript: Transcript) -> None:
        transcript.mark_sent()
        self.sent.append((transcript, transcript[:]))

    @rule(transcript=transcripts, reply=REPLIES)
    def reply(self, transcript: Transcript, reply: Message) -> None:
        before = transcript[:]
        if transcript.owed or not before or not has_words(reply.content):
            with pytest.raises(TranscriptError):
                transcript.add_reply(reply)
            assert transcript[:] == before
        else:
            fresh = transcript.fresh_ids(reply.tool_uses)
            stored = transcript.add_reply(reply)
            assert transcript[:] == (*before, stored)
            assert stored.tool_uses == transcript.owed == fresh
            self.changed(transcript)
            self.sent.append((transcript, transcript[:]))

    @rule(
        transcript=transcripts,
        index=st.integers(0, 5),
        begin=st.booleans(),
        content=SAID,
        status=STATUSES,
        key=st.none() | KEYS,
    )
    def work(
        self,
        transcript: Transcript,
        index: int,
        begin: bool,
        content: tuple[Text | Media, ...],
        status: Status,
        key: str | None,
    ) -> None:
        if not transcript.owed:
            with pytest.raises(TranscriptError):
                transcript.answering()
            return
        answering = transcript.answering()
        assert tuple(slot.use for slot in answering.slots) == transcript.owed
        slot = answering.slots[index % len(answering.slots)]
        self.handed.append((answering, slot))
        if begin:
            slot.begin()
        self.settle(answering, slot, content, status, key)

    def settle(
        self,
        answering: Answering,
        slot: Slot,
        content: tuple[Text | Media, ...],
        status: Status,
        key: str | None,
    ) -> None:
        first, before = slot in answering.open, slot.result
        if first and not has_words(content):
            with pytest.raises(TranscriptError):
                slot.settle(content)
            return
        assert slot.settle(content, status=status, key=key) is first
        assert slot not in answering.open
        assert first or slot.result is before
        assert slot.result is not None
        assert slot.result.tool_use_id == slot.use.id

    @precondition(lambda self: self.handed)
    @rule(choice=st.integers(0, 99), content=SAID, status=STATUSES)
    def answer_late(self, choice: int, content: tuple[Text | Media, ...], status: Status) -> None:
        answering, slot = self.handed[choice % len(self.handed)]
        self.settle(answering, slot, content, status, None)

    @rule(transcript=transcripts, fail=st.booleans())
    def leave(self, transcript: Transcript, fail: bool) -> None:
        if not transcript.owed:
            return
        answering = transcript.answering()

        def block() -> None:
            with answering:
                if fail:
                    raise KeyboardInterrupt

        if fail:
            with pytest.raises(KeyboardInterrupt):
                block()
        else:
            block()
        assert transcript.owed == ()
        assert transcript.last is answering.close()
        assert transcript[-1].content == tuple(slot.result for slot in answering.slots)
        self.changed(transcript)

    @rule(
        transcript=transcripts,
        choice=st.integers(0, 99),
        note=st.sampled_from(["[gone]", "[a\0b]"]),
    )
    def elide(self, transcript: Transcript, choice: int, note: str) -> None:
        before = transcript[:]
        ids = [result.tool_use_id for message in before for result in message.tool_results]
        stub = Stub(ids[choice % len(ids)] if ids else "a", 0, note, "artifact:0", 1)
        if transcript.owed or not ids:
            with pytest.raises(TranscriptError):
                transcript.elide([stub])
            assert transcript[:] == before
            return
        doubts = dict(transcript.doubts)
        tokens = transcript.tokens
        freed = transcript.elide([stub])
        assert transcript.tokens == tokens - freed
        assert transcript.doubts == doubts
        assert list(map(shape, transcript)) == list(map(shape, before))
        assert sum(old is not new for old, new in zip(before, transcript, strict=True)) <= 1
        assert transcript.elide([stub]) == 0
        self.elided.append(transcript)
        self.changed(transcript)

    @precondition(lambda self: len(self.all) < 4)
    @rule(target=transcripts, transcript=transcripts, how=DERIVED, last=st.integers(0, 9))
    def derive(self, transcript: Transcript, how: str, last: int) -> Transcript:
        match how:
            case "copy":
                made = transcript.copy()
                assert made == transcript
                assert made.doubts == transcript.doubts
            case "closed":
                made = transcript.closed()
                assert not made.owed
                assert made[: len(transcript)] == transcript[:]
                assert len(made) - len(transcript) == bool(transcript.owed)
            case "view":
                made = transcript.view(last)
                assert len(made) <= last
                assert made[:] == transcript[len(transcript) - len(made) :]
            case _:
                made = Transcript.load(json.loads(json.dumps(transcript.to_json())))
                assert made.report == ()
                assert made == transcript
        return self.adopt(made)

    @invariant()
    def every_history_is_sound_and_changes_only_when_it_is_written_to(self) -> None:
        for transcript, messages in self.all:
            assert transcript[:] == tuple(messages)
            assert_sound(transcript[:], may_owe=True)
            assert_sound(transcript.closed()[:])
            assert transcript.tokens == Transcript(transcript).tokens
            assert transcript.owed == (transcript.last.tool_uses if transcript.last else ())

    @invariant()
    def what_was_sent_is_never_edited(self) -> None:
        for transcript, messages in self.sent:
            assert len(transcript) >= len(messages)
            if any(transcript is other for other in self.elided):
                kept = list(map(shape, transcript))[: len(messages)]
                assert kept == list(map(shape, messages)), "but for the content of results"
            else:
                assert all(a is b for a, b in zip(messages, transcript, strict=False))


def test_no_order_of_calls_leaves_a_debt_or_a_broken_pair() -> None:
    """T1, T2, T3, T4, T5, X1, X5: a state machine over several transcripts that share their past."""
    run_state_machine_as_test(
        Conversations, settings=settings(max_examples=tries(200), stateful_step_count=50)
    )


# --- cutting -----------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> Transcript:
    """5 to 40 messages with up to 5 parallel calls a turn, reasoning blocks and queued words."""
    transcript = Transcript()
    transcript.say(Text("begin"))
    length = draw(st.integers(5, 40))
    while len(transcript) < length:
        calls = draw(st.integers(0, 5))
        reasoning = Opaque("openai", b"%d" % len(transcript))
        uses = (ToolUse("", "look", "{}") for _ in range(calls))
        transcript.add_reply(Message("assistant", (reasoning, Text("so"), *uses)))
        if calls:
            transcript.answering().close()
            if draw(st.booleans()):
                transcript.say(Text("queued"))
            if draw(st.booleans()):
                transcript.mark_sent()
        elif draw(st.booleans()):
            continue  # a paused turn goes on
        if not calls or draw(st.booleans()):
            transcript.say(Text("next"))
    return transcript


@settings(max_examples=tries(500))
@given(histories())
def test_every_view_of_every_history_is_whole(transcript: Transcript) -> None:
    """T1, case 03: for every number of messages, and for the history before every step."""
    whole = transcript[:]
    sizes: list[int] = []
    for last in range(len(whole) + 2):
        view = transcript.view(last)
        assert len(view) <= last
        assert view[:] == whole[len(whole) - len(view) :]
        assert_sound(view[:])
        assert not view or not view[0].tool_results
        sizes.append(len(view))
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(whole)
    steps = [at for at, message in enumerate(whole) if message.role == "assistant"]
    for step, at in enumerate(steps, start=1):
        before = transcript.before(step)
        assert before[:] == whole[:at]
        assert_sound(before[:])
    assert transcript[:] == whole


# --- damage ------------------------------------------------------------------------------------

JUNK = st.sampled_from([None, 7, "", " ", "a", "\ud83d", "user", "assistant", "tool_use", [], {}])


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with every key or index in it."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    found: list[tuple[Any, Any]] = []
    for key in keys:
        found.append((node, key))
        if isinstance(node[key], dict | list):
            found += places(node[key])
    return found


@st.composite
def damaged(draw: st.DrawFn) -> list[Any]:
    """A sound history as JSON, then lost, repeated, swapped, moved and replaced pieces."""
    obj: list[Any] = copy.deepcopy(draw(histories()).to_json())
    for _ in range(draw(st.integers(1, 6))):
        messages = [message for message in obj if has_list(message)]
        if not messages:
            break  # nothing is left to damage
        content = draw(st.sampled_from([obj, *(message["content"] for message in messages)]))
        at = draw(st.integers(0, 50)) % (len(content) or 1)
        match draw(st.sampled_from(["lose", "repeat", "swap", "move", "rename", "replace"])):
            case "lose" if content:
                content.pop(at)
            case "repeat" if content:
                content.insert(at, copy.deepcopy(content[at]))
            case "swap" if content:
                content[0], content[at] = content[at], content[0]
            case "move" if content and content is not obj:
                draw(st.sampled_from(messages))["content"].insert(0, content.pop(at))
            case "rename":
                ids = [(n, k) for n, k in places(obj) if k in ("id", "tool_use_id")]
                if ids:
                    node, key = draw(st.sampled_from(ids))
                    node[key] = draw(IDS)
            case "replace":
                node, key = draw(st.sampled_from(places(obj)))
                node[key] = draw(JUNK)
            case _:
                pass
    return obj


def has_list(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("content"), list)


@settings(max_examples=tries(500))
@given(damaged())
def test_a_damaged_history_is_refused_or_mended_and_never_silently(obj: list[Any]) -> None:
    """T6: what is loaded is valid, and every change is told."""
    before = copy.deepcopy(obj)
    try:
        transcript = Transcript.load(obj)
    except TranscriptError:
        return
    assert obj == before
    assert_sound(transcript[:], may_owe=True)
    validate(transcript)
    as_given = tuple(Message.from_json(entry) for entry in obj)
    assert bool(transcript.report) == (transcript[:] != as_given)
    assert all(0 <= mended.position < len(obj) for mended in transcript.report)
    again = Transcript.load(transcript.to_json())
    assert again == transcript
    assert again.report == ()
    spoken = [block for message in as_given for block in message.content if isinstance(block, Text)]
    kept = [block for message in transcript for block in message.content if isinstance(block, Text)]
    assert [t for t in spoken if t.text.strip() and t.text != "\ud83d"] == [
        t for t in kept if t in spoken
    ], "nothing that was said is lost or moved"


BLOCKS = st.one_of(
    TEXTS, MEDIA, OPAQUES, USES, st.builds(ToolResult, IDS, SAID, st.booleans(), STATUSES, KEYS)
)
ANYTHING = st.lists(
    st.builds(Message, st.sampled_from(["user", "assistant"]), st.lists(BLOCKS).map(tuple))
)


@given(ANYTHING)
def test_any_messages_whatever_can_be_mended(messages: list[Message]) -> None:
    """T6: there is no readable history that load cannot make valid."""
    transcript = Transcript.load([message.to_json() for message in messages])
    assert_sound(transcript[:], may_owe=True)
    assert bool(transcript.report) == (transcript[:] != tuple(messages))
    given_uses = [
        use for message in messages if message.role == "assistant" for use in message.tool_uses
    ]
    assert len([use for message in transcript for use in message.tool_uses]) == len(given_uses)
    opaque = [b for m in messages for b in m.content if isinstance(b, Opaque) and b.data]
    assert [b for m in transcript for b in m.content if isinstance(b, Opaque)] == opaque
