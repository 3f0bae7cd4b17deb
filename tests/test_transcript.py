"""The transcript: what may be written, how debts are closed, what is derived, what load mends."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import ConfigurationError, TranscriptError
from remit.messages import Media, Message, Opaque, Status, Text, ToolResult, ToolUse
from remit.rules import validate
from remit.slots import Slot
from remit.transcript import Transcript

CALLED = "refund:0123456789abcdef"
KEY = f"req:77:3:{CALLED}:1"


def asked(*ids: str, text: str = "Let me look.") -> Message:
    return Message("assistant", (Text(text), *(ToolUse(name, "look", "{}") for name in ids)))


def owing(*ids: str) -> Transcript:
    transcript = Transcript()
    transcript.say(Text("Where is order 1042?"))
    transcript.add_reply(asked(*ids))
    return transcript


def answered(transcript: Transcript, text: str = "found") -> Message:
    with transcript.answering() as answering:
        for slot in answering.slots:
            slot.settle((Text(text),))
    return transcript[-1]


def closed_with(transcript: Transcript, key: str, status: Status) -> None:
    """One more turn whose only call ends like this."""
    transcript.add_reply(asked(""))
    with transcript.answering() as answering:
        answering.slots[0].settle((Text("so"),), status=status, key=key)


def loaded(*messages: Message) -> Transcript:
    transcript = Transcript.load([message.to_json() for message in messages])
    validate(transcript)
    return transcript


USER = Message("user", (Text("hi"),))


def result(tool_use_id: str, text: str = "found") -> ToolResult:
    return ToolResult(tool_use_id, (Text(text),))


# --- answering ---------------------------------------------------------------------------------


def test_results_stand_in_call_order_whichever_call_finishes_first() -> None:
    """T1: completion order is free, the history is not."""
    transcript = owing("a", "b", "c")
    with transcript.answering() as answering:
        for index in (2, 0, 1):
            slot = answering.slots[index]
            assert slot.settle((Text(f"result of {slot.use.id}"),))
    assert [(r.tool_use_id, r.text) for r in transcript[-1].tool_results] == [
        ("a", "result of a"),
        ("b", "result of b"),
        ("c", "result of c"),
    ]
    assert transcript.owed == ()
    validate(transcript)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_leaves_no_debt_and_passes_through(error: type[BaseException]) -> None:
    """T2: what is open when the block is left is settled with the truth about it."""
    transcript = owing("done", "running", "waiting")

    def leave() -> None:
        with transcript.answering() as answering:
            done, running, _ = answering.slots
            done.settle((Text("found"),))
            running.begin()
            raise error

    with pytest.raises(error):
        leave()
    done, running, waiting = transcript[-1].tool_results
    assert (done.text, done.is_error, done.status) == ("found", False, Status.OK)
    assert (running.is_error, running.status) == (True, Status.UNKNOWN)
    assert running.text.startswith("Interrupted: it may have taken effect")
    assert (waiting.is_error, waiting.status) == (True, Status.NOT_STARTED)
    assert waiting.text.startswith("Not started:")
    validate(transcript)


def test_the_first_result_wins_and_a_later_one_changes_nothing() -> None:
    """T4: also after the slots are closed."""
    transcript = owing("a", "b")
    answering = transcript.answering()
    first, second = answering.slots
    assert first.settle((Text("first"),))
    assert not first.settle((Text("late"),), is_error=True)
    answering.close()
    assert not second.settle((Text("late"),))
    kept, missing = transcript[-1].tool_results
    assert kept.text == "first"
    assert second.result == missing
    assert missing.status is Status.NOT_STARTED


def test_closing_twice_appends_once() -> None:
    """T1: close is idempotent."""
    transcript = owing("a")
    answering = transcript.answering()
    message = answering.close()
    assert answering.close() is message
    assert len(transcript) == 3
    assert transcript.last is message


def test_there_is_one_set_of_slots_for_a_debt_and_none_without_one() -> None:
    """T1: two askers get the same slots, so no call is answered in two places."""
    transcript = owing("a")
    answering = transcript.answering()
    assert transcript.answering() is answering
    assert answering.open == answering.slots
    assert [use.id for use in transcript.owed] == ["a"]
    answering.close()
    assert answering.open == ()
    with pytest.raises(TranscriptError):
        transcript.answering()


def test_a_slot_says_what_state_it_is_in() -> None:
    slot = Slot(ToolUse("a", "look", "{}"), 0)
    assert "open" in repr(slot)
    slot.begin()
    assert slot.started
    assert "started" in repr(slot)
    slot.settle((Text("found"),))
    assert "ok" in repr(slot)


@pytest.mark.parametrize("blank", [(), (Text(""),), (Text(" \n\t"), Text("\u2003"))])
def test_a_blank_result_is_refused_and_the_slot_stays_open(blank: tuple[Text, ...]) -> None:
    """C4: whoever has nothing to say must say so in words."""
    transcript = owing("a")
    slot = transcript.answering().slots[0]
    with pytest.raises(TranscriptError):
        slot.settle(blank)
    assert slot.settle((Text("  "), Text("no output")))
    assert slot.result == ToolResult("a", (Text("no output"),))


def test_a_slot_that_is_closed_for_its_tool_carries_the_key_of_the_call() -> None:
    """E4: an interrupted effect is in doubt although nobody settled it."""
    transcript = owing("a")
    with transcript.answering() as answering:
        answering.slots[0].key = KEY
        answering.slots[0].begin()
    assert transcript[-1].tool_results[0].key == KEY
    assert dict(transcript.doubts) == {CALLED: (KEY,)}


# --- what the user says ------------------------------------------------------------------------


def test_nothing_is_said_and_no_reply_is_added_while_results_are_owed() -> None:
    """T5: the caller queues what arrives while tools run."""
    transcript = owing("a")
    with pytest.raises(TranscriptError):
        transcript.say(Text("also Tuesday"))
    with pytest.raises(TranscriptError):
        transcript.add_reply(asked())
    transcript.answering().close()
    transcript.say(Text("also Tuesday"))
    assert [type(block) for block in transcript[-1].content] == [ToolResult, Text]
    validate(transcript)


def test_what_was_sent_is_never_edited() -> None:
    """X1: before it is sent a turn grows, afterwards the next word opens a new one."""
    transcript = Transcript()
    transcript.say(Text("one"))
    transcript.say(Text("two"), Media("image/png", b"png"))
    assert len(transcript) == 1
    assert transcript[0].text == "onetwo"
    transcript.mark_sent()
    sent = transcript[:]
    transcript.say(Text("three"))
    transcript.say(Text("four"))
    assert len(transcript) == 2
    assert transcript[0] is sent[0]
    transcript.add_reply(asked())
    transcript.say(Text("five"))
    assert [message.role for message in transcript] == ["user", "user", "assistant", "user"]


def test_what_is_given_to_the_constructor_counts_as_sent() -> None:
    """X1: a history from elsewhere was sent as far as anyone here knows."""
    transcript = Transcript([USER])
    transcript.say(Text("and now?"))
    assert transcript[:] == (USER, Message("user", (Text("and now?"),)))


@pytest.mark.parametrize("nothing", [(), (Text(""),), (Text("  \n"),)])
def test_nothing_cannot_be_said(nothing: tuple[Text, ...]) -> None:
    """T1: providers refuse blank text blocks, so none gets in."""
    transcript = Transcript()
    with pytest.raises(TranscriptError):
        transcript.say(*nothing)
    transcript.say(*nothing, Text("hi"))
    assert transcript[:] == (USER,)


@pytest.mark.parametrize("block", [ToolUse("a", "look", "{}"), result("a"), Opaque("x", b"{}")])
def test_the_user_says_only_text_and_media(block: Text) -> None:
    """T1: the type checker says so, and so does the transcript."""
    with pytest.raises(TranscriptError):
        Transcript().say(block)


# --- replies and ids ---------------------------------------------------------------------------


def test_a_clean_reply_is_stored_as_it_is() -> None:
    """T7: the blocks of a provider stand in their place, byte for byte."""
    transcript = Transcript([USER])
    thinking = Opaque("anthropic", b'{"type":"thinking","signature":"\xff\x00"}')
    reply = Message("assistant", (thinking, Text("So."), ToolUse("a", "look", "{}"), thinking))
    assert transcript.add_reply(reply) is reply
    assert transcript[-1] is reply


def test_blank_text_is_left_out_of_a_reply_and_an_empty_reply_is_refused() -> None:
    """T1: a reply of blanks is no message; the loop deals with it."""
    transcript = Transcript([USER])
    stored = transcript.add_reply(Message("assistant", (Text(""), Opaque("x", b"{}"), Text(" "))))
    assert stored.content == (Opaque("x", b"{}"),)
    for content in ((), (Text(""),), (Text("\n"), Text(""))):
        with pytest.raises(TranscriptError):
            transcript.add_reply(Message("assistant", content))
    assert len(transcript) == 2


@pytest.mark.parametrize(
    "message", [USER, Message("assistant", (result("a"),)), Message("user", (result("a"),))]
)
def test_a_reply_is_of_the_assistant_and_answers_nothing(message: Message) -> None:
    """T1: results come from slots alone."""
    with pytest.raises(TranscriptError):
        Transcript([USER]).add_reply(message)


def test_no_reply_comes_before_the_first_user_message() -> None:
    """T1: a history begins with the user."""
    with pytest.raises(TranscriptError):
        Transcript().add_reply(asked())


def test_a_gateway_that_restarts_its_ids_each_reply_bricks_nothing() -> None:
    """T3: duplicates are renamed, the pairs are right and what was sent stays as it was."""
    transcript = Transcript([USER])
    sent: list[str] = []
    for turn in range(3):
        transcript.add_reply(asked("c0"))
        answered(transcript, f"answer {turn}")
        wire = json.dumps(transcript.to_json())
        assert not sent or wire.startswith(sent[-1].removesuffix("]"))
        sent.append(wire)
    ids = [use.id for message in transcript for use in message.tool_uses]
    assert ids == ["c0", "call_2", "call_3"]
    validate(transcript)


@pytest.mark.parametrize("bad", ["", "temp", "a b", "x" * 65, "functions.look:0", "ü", "a\n"])
def test_two_calls_under_one_bad_id_are_told_apart(bad: str) -> None:
    """T3: missing, constant and illegal ids become legal ones, and each call keeps its result."""
    transcript = owing(bad, bad)
    with transcript.answering() as answering:
        oslo, cairo = answering.slots
        cairo.settle((Text("31"),))
        oslo.settle((Text("3"),))
    validate(transcript)
    assert [r.text for r in transcript[-1].tool_results] == ["3", "31"]


def test_a_new_id_never_collides_with_one_that_looks_like_ours() -> None:
    """T3: in the history, before it in the reply, and behind it in the reply."""
    transcript = owing("call_1", "call_3")
    answered(transcript)
    stored = transcript.add_reply(asked("call_4", "", "call_5", "call_3", "call_6"))
    ids = [use.id for use in stored.tool_uses]
    assert ids == ["call_4", "call_5", "call_6", "call_7", "call_8"]
    answered(transcript)
    validate(transcript)


IDS = st.sampled_from(["", "a", "b", "a b", *(f"call_{n}" for n in range(1, 8))])
USES = st.lists(st.builds(ToolUse, IDS, st.just("look"), st.sampled_from(["{}", "\ud83d"])))


@given(USES, USES)
def test_ids_are_the_same_while_a_reply_streams_and_when_it_is_stored(
    earlier: list[ToolUse], uses: list[ToolUse]
) -> None:
    """T3: pure, stable for each prefix, and derived from the transcript alone."""
    transcript = Transcript([USER])
    if earlier:
        transcript.add_reply(Message("assistant", tuple(earlier)))
        answered(transcript)
    fresh = transcript.fresh_ids(uses)
    for end in range(len(uses)):
        assert transcript.fresh_ids(uses[:end]) == fresh[:end]
    for same in (transcript.copy(), Transcript(transcript), Transcript.load(transcript.to_json())):
        assert same.fresh_ids(uses) == fresh
    if uses:
        assert transcript.add_reply(Message("assistant", tuple(uses))).tool_uses == fresh
    validate(transcript)


def test_every_text_that_gets_in_is_well_formed() -> None:
    """C4: a lone surrogate or a NUL would make every later request invalid."""
    bad, good = "ok \ud83d end\0", "ok \ufffd end\ufffd"
    transcript = Transcript()
    transcript.say(Text(bad), Media("image/\0", b"\0", "\udfff"))
    opaque = Opaque(bad, bad.encode("utf-8", "surrogatepass"))
    transcript.add_reply(Message("assistant", (Text(bad), ToolUse("a", bad, bad), opaque)))
    with transcript.answering() as answering:
        answering.slots[0].settle((Text(bad), Text("half \ud83d"), Text("\ud83d\ude00 whole")))
    user, reply, results = transcript
    assert user.content == (Text(good), Media("image/\ufffd", b"\0", "\ufffd"))
    assert reply.content == (Text(good), ToolUse("a", good, good), Opaque(good, opaque.data))
    assert results.tool_results[0].text == f"{good}half \ufffd\U0001f600 whole"
    validate(transcript)
    json.dumps(transcript.to_json(), ensure_ascii=False).encode()


def test_text_that_is_well_formed_is_not_copied() -> None:
    """C4: the common case costs a look, not a copy."""
    text = Text("größer \U0001f600 " * 100)
    transcript = Transcript()
    transcript.say(text)
    assert transcript[0].content[0] is text


# --- validity ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "position"),
    [
        ([asked()], 0),
        ([Message("user", ())], 0),
        ([Message("user", (Text(" "),))], 0),
        ([Message("user", (Text("\ud800"),))], 0),
        ([Message("user", (Media("image/png", b"", "\0"),))], 0),
        ([Message("user", (ToolUse("a", "look", "{}"),))], 0),
        ([Message("user", (Opaque("x", b""),))], 0),
        ([USER, asked("a"), Message("user", (Opaque("x", b"{}"), result("a")))], 2),
        ([Message("user", (result("a"),))], 0),
        ([USER, asked("a"), USER], 2),
        ([USER, asked("a"), asked()], 2),
        ([USER, asked("a"), Message("assistant", (result("a"),))], 2),
        ([USER, asked("a", "b"), Message("user", (result("a"),))], 2),
        ([USER, asked("a", "b"), Message("user", (result("b"), result("a")))], 2),
        ([USER, asked("a"), Message("user", (result("a"), result("a")))], 2),
        ([USER, asked("a"), Message("user", (Text("first"), result("a")))], 2),
        ([USER, asked("a"), Message("user", (ToolResult("a", ()),))], 2),
        ([USER, asked("a"), Message("user", (result("a", " "),))], 2),
        ([USER, asked("a"), Message("user", (ToolResult("a", (Text("x"),), key="\0"),))], 2),
        ([USER, asked("a"), Message("user", (result("a"),)), asked("a")], 3),
        ([USER, asked("a", "a")], 1),
        ([USER, asked("a b")], 1),
        ([USER, Message("assistant", (Opaque("\ud83d", b"{}"),))], 1),
        ([USER, Message("assistant", (ToolUse("a", "look", "\0"),))], 1),
    ],
)
def test_a_broken_history_is_refused_with_its_position(
    messages: list[Message], position: int
) -> None:
    """T6: whoever builds a transcript by hand is told where it is wrong."""
    with pytest.raises(TranscriptError, match=f"message {position}:"):
        Transcript(messages)
    assert loaded(*messages).report


def test_a_third_role_is_refused() -> None:
    """T6: instructions are no message; the type checker says so, and so does the transcript."""
    system = Message("system", (Text("be good"),))  # pyright: ignore[reportArgumentType] - on purpose
    with pytest.raises(TranscriptError, match="message 0:"):
        Transcript([system])


def test_a_sound_history_is_taken_as_it_is() -> None:
    """T1: two turns of one side may follow each other, and the last may owe."""
    messages = (
        USER,
        USER,
        asked(),
        asked("a", "b"),
        Message("user", (result("a"), result("b"), Text("and?"))),
        asked("c"),
    )
    transcript = Transcript(messages)
    assert transcript[:] == messages
    assert all(mine is given for mine, given in zip(transcript, messages, strict=True))
    assert [use.id for use in transcript.owed] == ["c"]
    assert Transcript() == Transcript([])


def test_a_transcript_reads_like_a_tuple_of_its_messages() -> None:
    transcript = owing("a")
    messages = transcript.messages
    assert len(transcript) == len(messages) == 2
    assert transcript[-1] == messages[-1] == transcript.last
    assert transcript[:1] == messages[:1] == (transcript[0],)
    assert messages == transcript[:] == tuple(transcript)
    assert messages != 7
    assert repr(messages) == repr(transcript[:])
    assert transcript == Transcript(messages)
    assert transcript != messages
    assert "owes 1" in repr(transcript)
    answered(transcript)
    assert len(messages) == 3
    assert Transcript().last is None


# --- derived transcripts -----------------------------------------------------------------------


def test_a_closed_copy_can_go_on_while_the_original_still_waits() -> None:
    """T2: the view is valid at once, and the true result may still take its place."""
    transcript = owing("done", "waiting")
    done, waiting = transcript.answering().slots
    done.settle((Text("found"),))
    waiting.key = KEY
    view = transcript.closed(lambda slot: (f"{slot.use.id} is left pending", Status.NOT_STARTED))
    assert [r.text for r in view[-1].tool_results] == ["found", "waiting is left pending"]
    assert view.pending_keys == (KEY,)
    view.say(Text("never mind"))
    validate(view)
    assert transcript.pending_keys == ()
    assert [use.id for use in transcript.owed] == ["done", "waiting"]
    assert waiting.settle((Text("true"),))
    transcript.answering().close()
    assert [r.text for r in transcript[-1].tool_results] == ["found", "true"]


def test_a_closed_copy_without_words_says_the_truth() -> None:
    """T2: in the words that closing would have used, also before anyone asked for slots."""
    transcript = owing("a", "b")
    unasked = transcript.closed()
    transcript.answering().slots[0].begin()
    begun = transcript.closed()
    assert [r.status for r in unasked[-1].tool_results] == [Status.NOT_STARTED] * 2
    transcript.answering().close()
    assert begun == transcript
    assert transcript.closed() == transcript
    assert transcript.closed() is not transcript


def test_blank_words_close_nothing() -> None:
    """C4: a closed copy is as well-formed as the original."""
    with pytest.raises(TranscriptError):
        owing("a").closed(lambda slot: (" ", Status.UNKNOWN))


def test_a_copy_goes_its_own_way() -> None:
    """T1: neither messages nor ids nor debts are shared."""
    transcript = owing("a")
    copy = transcript.copy()
    assert copy == transcript
    answered(copy)
    copy.add_reply(asked("b"))
    assert len(transcript) == 2
    answered(transcript, "another")
    assert transcript.add_reply(asked("b")).tool_uses[0].id == "b"
    assert copy != transcript


def test_what_is_unsent_stays_unsent_in_a_copy() -> None:
    """X1: a copy knows what was sent."""
    transcript = Transcript([USER])
    transcript.say(Text("more"))
    copy = transcript.copy()
    copy.say(Text("and more"))
    assert len(copy) == 2
    transcript.mark_sent()
    copy = transcript.copy()
    copy.say(Text("and more"))
    assert len(copy) == 3


def test_a_view_begins_with_a_fresh_exchange_or_is_empty() -> None:
    """T1, case 03: rather fewer messages than half a pair."""
    transcript = owing("a")
    answered(transcript)
    transcript.add_reply(asked("b"))
    answered(transcript)
    transcript.add_reply(asked())
    transcript.say(Text("next"))
    assert len(transcript) == 7
    assert [len(transcript.view(last)) for last in range(9)] == [0, 1, 1, 1, 1, 1, 1, 7, 7]
    with pytest.raises(ConfigurationError):
        transcript.view(-1)


def test_a_view_forgets_words_but_no_doubt() -> None:
    """E4: an effect that may have happened did not become certain by being cut away."""
    transcript = Transcript([USER])
    closed_with(transcript, KEY, Status.UNKNOWN)
    closed_with(transcript, f"req:4:{CALLED}:1", Status.NOT_STARTED)
    transcript.mark_sent()
    transcript.say(Text("next"))
    view = transcript.view(1)
    assert dict(view.doubts) == {CALLED: (KEY,)}
    assert view.pending_keys == (f"req:4:{CALLED}:1",)
    view.say(Text("and"))
    assert len(view) == 1
    assert view[0].text == "nextand"


def test_the_history_before_a_step_is_what_its_reply_was_asked_with() -> None:
    """T2: a fork begins where the step began, and appends behind what was sent."""
    transcript = owing("a")
    answered(transcript)
    transcript.say(Text("note"))
    second = transcript[:]
    transcript.add_reply(asked())
    assert transcript.before(1)[:] == second[:1]
    fork = transcript.before(2)
    assert fork[:] == second
    fork.say(Text("differently"))
    assert fork[:-1] == second
    for step in (0, 3, -1):
        with pytest.raises(ConfigurationError):
            transcript.before(step)


# --- what follows from the messages ------------------------------------------------------------


def test_tokens_are_estimated_as_messages_come_in() -> None:
    transcript = Transcript()
    transcript.say(Text("x" * 40))
    assert transcript.tokens == 4 + 10
    transcript.say(Text("x"), Media("image/png", b"png"))
    assert transcript.tokens == 14 + 1 + 1_000
    transcript.add_reply(
        Message("assistant", (Opaque("x", b"x" * 8), ToolUse("a", "look", '{"n": 1}')))
    )
    assert transcript.tokens == 1_015 + 4 + 2 + 3
    answered(transcript, "x" * 400)
    assert transcript.tokens == 1_024 + 4 + 100
    for same in (transcript.copy(), Transcript(transcript), transcript.view(9)):
        assert same.tokens == transcript.tokens


def test_one_repeat_resolves_one_doubt() -> None:
    """E4: oldest first; the same key again is the same doubt; what is known is no doubt."""
    transcript = Transcript([USER])
    second = f"req:77:4:{CALLED}:1"
    for key in (KEY, second, KEY):
        closed_with(transcript, key, Status.UNKNOWN)
    assert dict(transcript.doubts) == {CALLED: (KEY, second)}
    assert Transcript.load(transcript.to_json()).doubts == transcript.doubts
    copy = transcript.copy()
    closed_with(transcript, KEY, Status.OK)
    assert dict(transcript.doubts) == {CALLED: (second,)}
    closed_with(transcript, second, Status.ERROR)
    assert dict(transcript.doubts) == {}
    assert dict(copy.doubts) == {CALLED: (KEY, second)}
    closed_with(transcript, second, Status.OK)
    assert dict(transcript.doubts) == {}


@pytest.mark.parametrize("status", [Status.NOT_STARTED, Status.REFUSED])
def test_a_repeat_that_was_not_entered_resolves_no_doubt(status: Status) -> None:
    """E4: nothing was learned about the first call, so the next equal call is its repeat still."""
    transcript = Transcript([USER])
    closed_with(transcript, KEY, Status.UNKNOWN)
    closed_with(transcript, KEY, status)
    assert dict(transcript.doubts) == {CALLED: (KEY,)}


@pytest.mark.parametrize(
    "key",
    ["", "abc", "r:1:refund:0123:1", f"r:x:{CALLED}:1", f"r:1:{CALLED}:n", f"1:{CALLED}:1"],
)
def test_a_key_of_another_shape_makes_no_doubt(key: str) -> None:
    """E4: only the keys of calls say what was called."""
    transcript = Transcript([USER])
    closed_with(transcript, key, Status.UNKNOWN)
    assert dict(transcript.doubts) == {}


# --- loading -----------------------------------------------------------------------------------


def told(transcript: Transcript) -> list[str]:
    return [f"{mended.position}: {mended.what}" for mended in transcript.report]


@pytest.mark.parametrize(
    ("messages", "expected", "words"),
    [
        pytest.param(
            [USER, asked("a", "b"), Message("user", (result("b"),)), asked()],
            [("a", Status.UNKNOWN), ("b", Status.OK)],
            ["1: call 'a' had no result"],
            id="a missing result is unknown",
        ),
        pytest.param(
            [USER, Message("user", (result("gone"), Text("and?")))],
            [],
            ["1: result 'gone' belongs to no call"],
            id="an orphan result is removed",
        ),
        pytest.param(
            [USER, asked("a"), Message("user", (result("a"), result("a", "again")))],
            [("a", Status.OK)],
            ["2: result 'a' was there already"],
            id="the first of two results wins",
        ),
        pytest.param(
            [USER, asked("a"), USER, Message("user", (result("a"),))],
            [("a", Status.OK)],
            ["3: result 'a' stood apart", "3: the message was empty"],
            id="a late result is moved into its place",
        ),
        pytest.param(
            [USER, asked("a"), Message("user", (Text("see"), result("a")))],
            [("a", Status.OK)],
            ["2: result 'a' was out of order"],
            id="a result is moved before the text",
        ),
        pytest.param(
            [USER, asked("a", "b"), Message("user", (result("b"), result("a")))],
            [("a", Status.OK), ("b", Status.OK)],
            ["2: result 'a' was out of order"],
            id="results are put into call order",
        ),
        pytest.param(
            [USER, asked("a"), asked("b"), Message("user", (result("a"), result("b")))],
            [("a", Status.OK), ("b", Status.OK)],
            ["3: result 'a' stood apart"],
            id="calls that were split over two messages",
        ),
        pytest.param(
            [USER, Message("assistant", (ToolUse("a", "look", "{}"), result("a")))],
            [("a", Status.OK)],
            ["1: result 'a' stood apart"],
            id="a result inside the assistant's turn",
        ),
        pytest.param(
            [USER, asked("a"), Message("user", (ToolResult("a", (Text(" "),)),))],
            [("a", Status.OK)],
            ["1: blank or ill-formed text in the result of 'a'"],
            id="a blank result says so",
        ),
        pytest.param(
            [asked("a"), Message("user", (result("a"),))],
            [("a", Status.OK)],
            ["0: the conversation began with the assistant"],
            id="a beginning is added",
        ),
        pytest.param(
            [USER, Message("user", (ToolUse("a", "look", "{}"), Opaque("x", b"")))],
            [],
            ["1: ToolUse in a user turn", "1: a blank opaque", "1: the message was empty"],
            id="the user calls nothing",
        ),
        pytest.param(
            [USER, asked(text="\0"), asked(text=" "), Message("user", ())],
            [],
            ["1: ill-formed", "2: a blank text", "2: the message was empty", "3: the message was"],
            id="text is mended",
        ),
        pytest.param(
            [USER, asked("a"), Message("user", ())],
            [("a", Status.UNKNOWN)],
            ["1: call 'a' had no result"],
            id="only the last message may owe",
        ),
        pytest.param(
            [USER, Message("user", (result("a"),)), asked("a"), USER],
            [("a", Status.UNKNOWN)],
            ["1: result 'a' belongs", "1: the message was empty", "2: call 'a' had no result"],
            id="a result from before the call is none of it",
        ),
    ],
)
def test_what_is_broken_is_mended_and_reported(
    messages: list[Message], expected: list[tuple[str, Status]], words: list[str]
) -> None:
    """T6: by position and by id."""
    transcript = loaded(*messages)
    results = [r for message in transcript for r in message.tool_results]
    assert [(r.tool_use_id, r.status) for r in results] == expected
    assert len(transcript.report) == len(words)
    for line, word in zip(sorted(told(transcript)), words, strict=True):
        assert line.startswith(word)
    assert transcript.copy().report == transcript.report
    assert Transcript.load(transcript.to_json()).report == ()


def test_ids_are_renamed_together_with_their_results() -> None:
    """T6: a gateway's repeated, missing and illegal ids; the nearest call before a result has it."""
    transcript = loaded(
        USER,
        asked("c0"),
        Message("user", (result("c0", "first"),)),
        asked("c0"),  # never answered
        asked("c0", "", "", "a\ud83d"),
        Message(
            "user",
            (result("c0", "third"), result("", "x"), result("", "y"), result("a\ud83d", "z")),
        ),
        USER,
        Message("user", (result("c0", "late"),)),
    )
    results = [r for message in transcript for r in message.tool_results]
    assert [r.text if r.status is Status.OK else r.status for r in results] == [
        "first",
        Status.UNKNOWN,
        "third",
        "x",
        "y",
        "z",
    ]
    assert [r.tool_use_id for r in results] == [
        "c0",
        "call_2",
        "call_3",
        "call_4",
        "call_5",
        "call_6",
    ]
    assert "7: result 'c0' was there already: removed" in told(transcript)


def test_a_sound_history_is_loaded_as_it_is() -> None:
    """T6: with status, keys and opaque bytes, and still owing what it owed."""
    transcript = owing("a")
    closed = transcript.answering()
    closed.slots[0].settle((Text("so"), Media("image/png", b"\0")), status=Status.ERROR, key=KEY)
    closed.close()
    transcript.add_reply(Message("assistant", (Opaque("x", b"\xff"), ToolUse("b", "look", ""))))
    again = Transcript.load(json.loads(json.dumps(transcript.to_json())))
    assert again == transcript
    assert again.report == ()
    assert again.owed == transcript.owed


@pytest.mark.parametrize(
    "wreck",
    [
        lambda _: None,
        lambda _: {"messages": []},
        lambda _: "[]",
        lambda good: [*good, None],
        lambda good: [*good, "hi"],
        lambda good: [*good, {"role": "user"}],
        lambda good: [*good, {"role": "system", "content": []}],
        lambda good: [*good, {"role": [], "content": []}],
        lambda good: [*good, {"role": "user", "content": "hi"}],
        lambda good: [*good, {"role": "user", "content": None}],
        lambda good: [*good, {"role": "user", "content": [{"type": "text", "text": 7}]}],
        lambda good: [*good, {"role": "user", "content": [{"type": "film"}]}],
        lambda good: [*good, {"role": "user", "content": [nested(2_000)]}],
        lambda good: [*good, {"role": "user", "content": [{**MEDIA, "data": "%"}]}],
        lambda good: [*good, {"role": "user", "content": [{**MEDIA, "name": 7}]}],
        lambda good: [*good, {"role": "user", "content": [{**RESULT, "content": [RESULT]}]}],
        lambda good: [*good, {"role": "user", "content": [{**RESULT, "key": ["k"]}]}],
        lambda good: [*good, {"role": "user", "content": [{**RESULT, "status": "fine"}]}],
        lambda good: [
            *good,
            {"role": "user", "content": [{**RESULT, "content": [{**MEDIA, "name": {}}]}]},
        ],
    ],
)
def test_what_cannot_be_read_is_refused_with_its_position(
    wreck: Callable[[list[object]], object],
) -> None:
    """T6: nothing is guessed from a structure that is not ours."""
    with pytest.raises(TranscriptError) as caught:
        Transcript.load(wreck([USER.to_json()]))
    assert len(str(caught.value)) < 300
    assert "message 1 " in str(caught.value) or "list of messages" in str(caught.value)


MEDIA = {"type": "media", "media_type": "image/png", "data": ""}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}]}


def nested(depth: int) -> object:
    block: object = RESULT
    for _ in range(depth):
        block = {**RESULT, "content": [block]}
    return block
