"""`plan` by enumeration: every small state that rows can build, beside every room there may be.

The states are built by `RunState.apply` and by nothing else, so what is enumerated here is what a
journal can hold. What an example says with one scenario is in `test_stop_reasons` and `test_limits`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product

from msgspec.structs import replace

from remit import plan as module
from remit.elide import Elision
from remit.limits import Limits
from remit.messages import Message, Opaque, Status, StopReason, Text, ToolUse, Usage
from remit.outcome import Reason
from remit.plan import Answer, Ask, Check, Elide, Leave, Move, Room, Stop, Wait, plan
from remit.rows import (
    Activated,
    Asked,
    Decided,
    Elided,
    Ended,
    Ends,
    Failed,
    Finished,
    Noted,
    Opened,
    Proposed,
    Replied,
    Row,
    Said,
    Settled,
    Vetoed,
)
from remit.schedule import Footprint
from remit.state import Limit, RunState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = (NOW + timedelta(hours=1)).isoformat()
MARK = Noted("budget:50", "Left of your budget: half.")
STEPS = Limit(Reason.STEP_BUDGET, "desk")
FINAL = {StopReason.END_TURN, StopReason.STOP_SEQUENCE}
OPENED = Opened(
    remit="desk",
    prompt=(Text("Do it."),),
    history=(),
    limits=Limits(steps=20, tokens=100_000, seconds=60),
    instructions="",
    path=("desk",),
    tags={},
    at=NOW.isoformat(),
)


def replied(
    stop_reason: StopReason,
    *,
    text: str = "",
    calls: int = 0,
    closing: bool = False,
    whole: bool = True,
    prefix: str = "c",
    invalid: str | None = None,
) -> Replied:
    """A reply as the journal holds it."""
    uses = tuple(ToolUse(f"{prefix}{i}", "look", "{}") for i in range(calls))
    texts = (Text(text),) if text else ()
    own = (Opaque("maker", b"{}"),) if stop_reason is StopReason.PAUSE else ()
    content = (*texts, *own, *uses)
    return Replied(
        message=Message("assistant", content) if content else None,
        stop_reason=stop_reason,
        usage=Usage(10, 0, 0, 5),
        usd=Decimal(0),
        estimated=False,
        asked=tuple(
            Asked(f"run:1:look:{'0' * 16}:{i + 1}", False, Footprint(True, ("desk",)))
            for i in range(calls)
        ),
        closing=closing,
        whole=whole,
        seconds=1.0,
        latency=1.0,
        invalid=invalid,
    )


def settled(tool_use_id: str, *, denied: str | None = None, ends: Ends = "") -> Settled:
    status = Status.OK if denied is None else Status.NOT_STARTED
    status = Status.ERROR if ends == "invalid" else status
    failed = status is not Status.OK
    return Settled(tool_use_id, (Text("seen"),), failed, status, denied=denied, ends=ends)


def proposed(tool_use_id: str, *, expires_at: str = LATER) -> Proposed:
    return Proposed(tool_use_id, f"p-{tool_use_id}", "Look?", "{}", expires_at, "effect")


@dataclass(frozen=True)
class Situation:
    """One state that the enumeration looks at, and the rows it was built from."""

    label: str
    rows: tuple[Row, ...]

    @property
    def state(self) -> RunState:
        return RunState("run", self.rows)


CUT = replied(StopReason.LENGTH, text="so far")
EMPTY = replied(StopReason.END_TURN)
BEFORE: dict[str, tuple[Row, ...]] = {
    "first": (),
    "one cut": (CUT, Noted("cut", "Go on.")),
    "one empty": (EMPTY, Noted("empty", "Say something.")),
    "two empty": (EMPTY, Noted("empty", "Say something."), EMPTY, Noted("empty", "Say it.")),
}
PROGRESS = (
    *("open", "proposed", "first settled", "first ends the run"),
    *("all settled", "ended", "handed in", "misfit"),
)
LAST: dict[str, Ends] = {
    "all settled": "",
    "ended": "done",
    "handed in": "output",
    "misfit": "invalid",
}


def after_calls(calls: int, progress: str) -> tuple[Row, ...] | None:
    """How far the calls of the reply have come; None where there is no such thing."""
    if calls == 0:
        return () if progress == "open" else None
    match progress:
        case "open":
            return ()
        case "proposed":
            return (proposed("c0"),)
        case "first settled":
            return (settled("c0"),) if calls > 1 else None
        case "first ends the run":
            return (settled("c0", ends="done"),) if calls > 1 else None
        case _:
            *before, last = (f"c{i}" for i in range(calls))
            return (*map(settled, before), settled(last, ends=LAST[progress]))


def situations() -> Iterator[Situation]:
    yield Situation("nothing yet", (OPENED,))
    flags = product((False, True), repeat=2)
    for stop_reason, text, calls, (closing, whole), (before, earlier), progress in product(
        StopReason, ("", "done"), (0, 1, 2), flags, BEFORE.items(), PROGRESS
    ):
        rest = after_calls(calls, progress)
        if rest is None or (stop_reason is StopReason.TOOL_USE and calls == 0):
            continue  # the second is a failed attempt, and never in a journal
        note = (Noted(f"closing:{STEPS}", "The limit."),) if closing else ()
        reply = replied(stop_reason, text=text, calls=calls, closing=closing, whole=whole)
        label = f"{before}, {stop_reason}, {text!r}, {calls} calls {progress}, {closing=}, {whole=}"
        yield Situation(label, (OPENED, *earlier, *note, reply, *rest))


SITUATIONS = tuple(situations())
ROOMS = tuple(
    Room(
        NOW,
        limit=limit,
        closing=closing,
        cancelled=cancelled,
        detached=detached,
        queued=queued,
        marks=marks,
    )
    for limit, closing, cancelled, detached, queued, marks in product(
        (None, STEPS), (True, False), (False, True), (False, True), (False, True), ((), (MARK,))
    )
)
ELISION = Elision((), 5_000)
FULL = "the context window of 8,000 tokens is full: tools ~7,000 tokens"
CROWDED = tuple(
    replace(room, elision=elision, full=full)
    for room, (elision, full) in product(ROOMS, ((ELISION, None), (None, FULL)))
    if not room.marks
)
QUIET = tuple(room for room in ROOMS if not room.cancelled and not room.detached)


def every(
    rooms: tuple[Room, ...], of: Callable[[RunState], bool] = lambda _: True
) -> Iterator[tuple[str, RunState, Room, Move]]:
    """Every state with every room, and what `plan` makes of it."""
    for situation in SITUATIONS:
        state = situation.state
        if of(state):
            for room in rooms:
                yield f"{situation.label} / {room}", state, room, plan(state, room)


def owes(state: RunState) -> bool:
    return bool(state.calls)


def at_rest(state: RunState) -> bool:
    return not state.calls


def test_the_enumeration_is_large_and_reaches_every_kind_of_move() -> None:
    """L1: what the other tests of this file say of all states is said of many, and of all kinds."""
    moves = [type(move) for *_, move in every((*ROOMS, CROWDED[0]))]
    assert len(SITUATIONS) > 500
    assert {*moves} == {Ask, Elide, Answer, Wait, Stop, Leave}
    reasons = {move.reason for *_, move in every(ROOMS) if isinstance(move, Stop)}
    assert reasons >= {
        Reason.COMPLETED,
        Reason.STEP_BUDGET,
        Reason.CANCELLED,
        Reason.REFUSED,
        Reason.OUTPUT_TRUNCATED,
        Reason.CONTEXT_FULL,
        Reason.EMPTY_REPLY,
        Reason.UNKNOWN_STOP,
    }


def test_the_model_is_never_asked_while_a_result_is_owed() -> None:
    """T1, E6: owed calls are answered, waited for or left; the model is not called past them."""
    for where, state, _, move in every(ROOMS, owes):
        assert not isinstance(move, Ask), where
        assert not (isinstance(move, Stop) and move.reason is Reason.COMPLETED), where
        assert state.transcript.owed, where


def test_a_cancel_wins_over_everything() -> None:
    """K1: whatever the state and the room, nothing but the end follows a cancel."""
    for where, _, _, move in every(tuple(room for room in ROOMS if room.cancelled)):
        assert move == Stop(Reason.CANCELLED), where


def test_a_veto_ends_the_run_before_anything_but_a_cancel() -> None:
    """case 33: after a veto nothing is asked, answered or handed over."""
    for situation in SITUATIONS:
        state = RunState("run", (*situation.rows, Vetoed("no")))
        for room in QUIET:
            assert plan(state, room) == Stop(Reason.VETOED, error="no"), situation.label


def test_a_detached_run_is_left_as_it_is() -> None:
    """K1: a detach starts nothing and decides nothing about the end."""
    left = tuple(room for room in ROOMS if room.detached and not room.cancelled)
    for where, _, _, move in every(left):
        assert move == Leave(), where


def test_a_call_that_ended_the_run_completes_it_once_its_turn_is_answered_and_not_before() -> None:
    """O2: whatever the reply was and whatever limit is reached; only input in the queue goes first."""
    ended = 0
    for where, state, room, move in every(QUIET, lambda state: state.done):
        assert not state.calls, where
        if room.queued:
            assert not (isinstance(move, Stop) and move.reason is Reason.COMPLETED), where
        else:
            assert move == Stop(Reason.COMPLETED), where
            ended += 1
    assert ended > 100


def test_the_host_is_asked_only_where_the_newest_turn_is_answered_and_nothing_is_in_the_queue() -> (
    None
):
    """O3: before a step is begun or a limit ends the run, and past nothing that ends it anyway."""
    checks = 0
    for where, state, room, before in every(QUIET):
        move = plan(state, replace(room, unchecked=state.answered))
        if isinstance(move, Check):
            assert not state.calls, where
            assert not room.queued, where
            assert isinstance(before, Ask | Stop), where
            assert not (isinstance(before, Stop) and before.reason is Reason.COMPLETED), where
            checks += 1
        else:
            assert _comparable(move) == _comparable(before), where
    assert checks > 100


def test_a_rule_of_the_host_completes_the_run_unless_somebody_says_more() -> None:
    """O3: whatever limit is reached; and what is said behind it is answered."""
    rows = (OPENED, replied(StopReason.TOOL_USE, calls=1), settled("c0"), Finished("stop_when"))
    state = RunState("run", rows)
    for room in QUIET:
        if not room.queued:
            assert plan(state, room) == Stop(Reason.COMPLETED)
    assert isinstance(plan(state, Room(NOW, queued=True)), Ask)
    state.apply(Said((Text("and Tuesday?"),)))
    assert (state.done, plan(state, Room(NOW))) == (False, Ask())


def wrong_text(_: str = "") -> tuple[Row, ...]:
    return (replied(StopReason.END_TURN, text="seven", invalid="as text"),)


def wrong_call(prefix: str = "w", *more: Row) -> tuple[Row, ...]:
    reply = replied(StopReason.TOOL_USE, calls=1 + len(more), prefix=prefix)
    return (reply, settled(f"{prefix}0", ends="invalid"), *more)


def test_an_output_that_does_not_fit_is_no_answer_and_is_told_once() -> None:
    """O1: text that is no output completes nothing; the note behind it says what was wrong."""
    state = RunState("run", (OPENED, *wrong_text()))
    assert not state.final
    assert plan(state, Room(NOW)) == Ask((Noted("invalid", "as text"),))
    state.apply(Noted("invalid", "as text"))
    assert plan(state, Room(NOW)) == Ask()
    called = RunState("run", (OPENED, *wrong_call()))
    assert plan(called, Room(NOW)) == Ask()  # its result has told it


def test_two_retries_in_a_row_are_made_in_whichever_form_and_no_more() -> None:
    """O1: the third misfit ends the run with its own words, whatever room there is."""
    limited = Room(NOW, limit=STEPS)
    for forms in product((wrong_text, wrong_call), repeat=3):
        rows: list[Row] = [OPENED]
        for number, form in enumerate(forms, 1):
            rows += form("xyz"[number - 1])
            state = RunState("run", rows)
            why = "as text" if form is wrong_text else "seen"
            assert (state.invalids, state.misfit) == (number, why)
            for room in (Room(NOW), Room(NOW, queued=True), limited):
                move = plan(state, room)
                if number <= 2:
                    assert isinstance(move, Ask), forms
                else:
                    assert move == Stop(Reason.INVALID_OUTPUT, error=why), forms


def test_a_row_of_misfits_ends_where_something_else_was_done() -> None:
    """O1: a turn whose call went well is no retry; one in which nothing went well goes on counting."""
    worked = (replied(StopReason.TOOL_USE, calls=1), settled("c0"))
    failed = (replied(StopReason.TOOL_USE, calls=1), settled("c0", denied="call_budget:desk"))
    assert RunState("run", (OPENED, *wrong_text(), *worked)).invalids == 0
    assert RunState("run", (OPENED, *wrong_text(), *failed)).invalids == 1
    assert RunState("run", (OPENED, *wrong_text(), *wrong_call("w", settled("w1")))).invalids == 2


def test_what_is_said_behind_a_call_that_ended_the_run_is_answered() -> None:
    """O2, T5: with more to answer the run is not done, and the next end is another one."""
    rows = (OPENED, replied(StopReason.TOOL_USE, calls=1), settled("c0", ends="done"))
    state = RunState("run", (*rows, Said((Text("and Tuesday?"),))))
    assert not state.done
    assert plan(state, Room(NOW)) == Ask()
    state.apply(replied(StopReason.END_TURN, text="done"))
    assert (plan(state, Room(NOW)), state.handed_in) == (Stop(Reason.COMPLETED), None)


def test_the_run_completes_only_on_a_whole_final_answer_that_owes_nothing() -> None:
    """L1: completed means that the model finished: whole, with text, without calls, not at a limit."""
    for where, state, room, move in every(ROOMS, lambda state: not state.done):
        if not (isinstance(move, Stop) and move.reason is Reason.COMPLETED):
            continue
        reply = state.reply
        assert reply is not None, where
        assert reply.message is not None, where
        assert (reply.whole, reply.closing, reply.asked) == (True, False, ()), where
        assert reply.stop_reason in FINAL, where
        assert reply.message.text, where
        assert (state.calls, room.queued) == ((), False), where


def test_a_final_answer_completes_the_run_even_where_a_limit_is_reached() -> None:
    """L5: a limit that is reached exactly when the model finishes is no limit's end."""
    answer = RunState("run", (OPENED, replied(StopReason.END_TURN, text="done")))
    for room in QUIET:
        if not room.queued:
            assert plan(answer, room) == Stop(Reason.COMPLETED)


def test_a_limit_makes_at_most_one_closing_call_and_then_ends_the_run_with_its_reason() -> None:
    """L1, L5: every state at a limit ends with that limit, after at most one hand-back."""
    limited = tuple(room for room in QUIET if room.limit is not None)
    for where, state, room, move in every(limited, at_rest):
        if isinstance(move, Stop):
            continue
        assert isinstance(move, Ask), where
        assert (move.closing, state.limit) == (room.limit, None), where
        assert room.closing, where
        assert state.reply is not None, where
        assert [note.source for note in move.notes] == [f"closing:{STEPS}"], where
        for note in move.notes:
            state.apply(note)
        for closing in (
            replied(StopReason.END_TURN, text="as far as I came", closing=True),
            replied(StopReason.LENGTH, closing=True),
            replied(StopReason.UNKNOWN, closing=True, whole=False),
            Failed("ModelRejected: no"),
        ):
            ended = RunState("run", (OPENED, replied(StopReason.LENGTH, text="x"), *move.notes))
            ended.apply(closing)
            assert plan(ended, room) == Stop(Reason.STEP_BUDGET, "desk"), where
        assert plan(state, room) == Stop(Reason.STEP_BUDGET, "desk"), where


def test_calls_of_the_hand_back_are_answered_and_then_the_limit_ends_the_run() -> None:
    """L5: a call in the closing reply is an owed call like any other, and no way back into work."""
    rows = (
        OPENED,
        replied(StopReason.TOOL_USE, calls=1),
        settled("c0"),
        Noted(f"closing:{STEPS}", "The limit."),
        replied(StopReason.TOOL_USE, calls=1, closing=True, prefix="d"),
    )
    state = RunState("run", rows)
    assert isinstance(plan(state, Room(NOW)), Answer)
    assert state.not_run == "the limit was reached and no more tools run"
    state.apply(settled("d0"))
    assert plan(state, Room(NOW)) == Stop(Reason.STEP_BUDGET, "desk")


def test_where_nothing_was_done_yet_there_is_nothing_to_hand_back() -> None:
    """L5: a limit that forbids the first step ends the run without any call."""
    assert plan(RunState("run", (OPENED,)), Room(NOW, limit=STEPS)) == Stop(
        Reason.STEP_BUDGET, "desk"
    )


def test_a_run_that_goes_on_without_room_is_not_asked_for_a_second_hand_back() -> None:
    """L5: new limits that leave no room for a step end the run as it stands."""
    rows = (
        OPENED,
        replied(StopReason.TOOL_USE, calls=1),
        settled("c0"),
        Noted(f"closing:{STEPS}", "The limit."),
        replied(StopReason.END_TURN, text="so far", closing=True),
        Ended("step_budget", "desk", None, 2.0),
        Activated(OPENED.limits, NOW.isoformat()),
    )
    state = RunState("run", rows)
    assert plan(state, Room(NOW, limit=STEPS)) == Stop(Reason.STEP_BUDGET, "desk")
    assert isinstance(plan(state, Room(NOW)), Ask)


def test_a_denied_call_ends_the_run_by_the_limit_that_denied_it() -> None:
    """L1: a limit met in the dispatch counts in the next plan, whatever room there is else."""
    rows = (
        OPENED,
        replied(StopReason.TOOL_USE, calls=2),
        settled("c0", denied="call_budget:root"),
        settled("c1", denied="cost_budget:desk"),
    )
    state = RunState("run", rows)
    move = plan(state, Room(NOW))
    assert isinstance(move, Ask)
    assert move.closing is not None
    assert (move.closing.reason, move.closing.whose) == (Reason.CALL_BUDGET, "root")
    assert plan(state, Room(NOW, closing=False)) == Stop(Reason.CALL_BUDGET, "root")


def test_the_run_waits_only_when_nothing_can_be_done() -> None:
    """E6: an open call that waits for nobody is answered; waiting names every call still open."""
    for where, state, room, move in every(QUIET, owes):
        ready = [call for call in state.calls if not call.settled and not call.waits(room.now)]
        open_calls = tuple(call for call in state.calls if not call.settled)
        if isinstance(move, Wait):
            assert move.calls == open_calls, where
            held = all(call.waits(room.now) or "c0" in waiting(state) for call in open_calls)
            assert held, where
        else:
            assert isinstance(move, Answer), where
            assert move.calls, where
            assert all(call in ready for call in move.calls), where


def waiting(state: RunState) -> list[str]:
    return [call.use.id for call in state.calls if call.waits(NOW)]


def test_a_call_behind_a_waiting_one_on_its_resource_is_not_ready() -> None:
    """E6: what shares a resource with a waiting call keeps its place behind it; an expiry frees both."""
    rows = (OPENED, replied(StopReason.TOOL_USE, calls=2), proposed("c0"))
    state = RunState("run", rows)
    assert isinstance(plan(state, Room(NOW)), Wait)
    move = plan(state, Room(NOW + timedelta(hours=2)))
    assert isinstance(move, Answer)
    assert [call.use.id for call in move.calls] == ["c0", "c1"]


def test_a_decision_makes_the_call_ready() -> None:
    """E6: a decided call is answered, whichever way it was decided."""
    for approve in (True, False):
        rows = (OPENED, replied(StopReason.TOOL_USE, calls=1), proposed("c0"))
        state = RunState("run", (*rows, Decided("p-c0", approve, "dana", "", None, None)))
        assert isinstance(plan(state, Room(NOW)), Answer)


def test_a_cut_or_silent_reply_is_never_taken_for_an_answer_and_is_always_told() -> None:
    """C3: going on after a cut or an empty reply comes with one note that says what was wrong."""
    for where, state, _room, move in every(QUIET, at_rest):
        if state.untold is None or not isinstance(move, Ask) or move.closing is not None:
            continue
        if not state.paused:
            assert move.notes[0].source == state.untold, where


def test_nothing_is_put_behind_a_paused_turn() -> None:
    """C3, case 79: a paused turn goes back as it stands: without notes, marks or a hand-back."""
    for where, state, room, move in every(QUIET, at_rest):
        if state.paused and state.limit is None:
            expected: tuple[Move, ...] = (Ask(),)
            if room.limit is not None:
                expected = (Stop(room.limit.reason, room.limit.whose),)
            assert move in expected or isinstance(move, Stop), where
            assert not isinstance(move, Ask) or move.notes == (), where


def test_every_request_ends_with_a_turn_of_the_user() -> None:
    """T1: what is asked after a finished turn of the model has a note or queued input behind it."""
    for where, state, room, move in every(QUIET, at_rest):
        last = state.transcript.last
        if isinstance(move, Ask) and not state.paused and last is not None:
            assert last.role == "user" or move.notes or room.queued, where


def test_queued_input_goes_on_where_the_run_would_have_completed() -> None:
    """T5: a final answer does not end a run that has been told something meanwhile."""
    state = RunState("run", (OPENED, replied(StopReason.END_TURN, text="done")))
    move = plan(state, Room(NOW, queued=True))
    assert move == Ask()


def test_a_failure_of_the_model_ends_the_run_unless_a_limit_already_did() -> None:
    """E7: a model that cannot be asked is its own reason; in the hand-back the limit's reason stays."""
    begun = (OPENED, replied(StopReason.TOOL_USE, calls=1), settled("c0"))
    failed = RunState("run", (*begun, Failed("ModelRejected: no")))
    assert plan(failed, Room(NOW)) == Stop(Reason.MODEL_FAILED, error="ModelRejected: no")
    closing = RunState("run", (*begun, Noted(f"closing:{STEPS}", "x"), Failed("gone")))
    assert plan(closing, Room(NOW)) == Stop(Reason.STEP_BUDGET, "desk")


def test_every_way_on_is_bounded_by_steps_cuts_or_empties() -> None:
    """L1: a reply that is no step is a cut or an empty one, and those end the run by their count."""
    for stop_reason in StopReason:
        state = RunState("run", (OPENED,))
        for _ in range(10):
            move = plan(state, Room(NOW))
            if not isinstance(move, Ask):
                break
            for note in move.notes:
                state.apply(note)
            state.apply(
                replied(stop_reason, calls=0) if stop_reason is not StopReason.PAUSE else SILENT
            )
        assert state.steps == 0
        assert isinstance(plan(state, Room(NOW)), Stop), stop_reason


SILENT = Replied(
    message=None,
    stop_reason=StopReason.PAUSE,
    usage=Usage(10, 0, 0, 0),
    usd=Decimal(0),
    estimated=False,
    asked=(),
    closing=False,
    whole=True,
    seconds=1.0,
    latency=1.0,
)


def test_cuts_and_empties_that_take_turns_are_bounded_too() -> None:
    """C3, L1: replies without content end the run by their number, whatever name each of them has."""
    state = RunState("run", (OPENED,))
    asked = 0
    while isinstance(move := plan(state, Room(NOW)), Ask):
        for note in move.notes:
            state.apply(note)
        state.apply(replied((StopReason.LENGTH, StopReason.END_TURN)[asked % 2]))
        asked += 1
        assert asked < 10
    assert move == Stop(Reason.EMPTY_REPLY)


def test_room_is_made_only_where_a_request_would_follow_or_fails_for_want_of_room() -> None:
    """X5: at the beginning of a step: never while results are owed, in a paused turn, or at the end."""
    for where, state, room, move in every(CROWDED):
        if room.elision is None:
            continue
        otherwise = plan(state, replace(room, elision=None))
        limited = isinstance(otherwise, Stop) and otherwise in (
            Stop(Reason.CONTEXT_FULL),
            Stop(Reason.STEP_BUDGET, "desk"),
        )
        if state.paused or not (isinstance(otherwise, Ask) or limited) or state.limit is not None:
            assert move == otherwise or _comparable(move) == _comparable(otherwise), where
        else:
            assert move == Elide(ELISION), where
            assert not state.calls, where


def test_a_window_without_room_ends_the_run_unless_a_limit_does() -> None:
    """X5, case 50: no request is made that cannot fit, and the end says what fills the window."""
    for where, state, room, move in every(CROWDED, at_rest):
        if room.full is None:
            continue
        otherwise = plan(state, replace(room, full=None))
        if (isinstance(otherwise, Ask) and otherwise.closing is None) or otherwise == Stop(
            Reason.CONTEXT_FULL
        ):
            assert move == Stop(Reason.CONTEXT_FULL, error=FULL), where
        else:
            assert _comparable(move) == _comparable(otherwise), where


def test_after_room_was_made_a_reply_that_the_window_cut_is_asked_for_once_more() -> None:
    """X5, C3: the model is told that it was cut; cut again with nothing to elide, the run ends."""
    rows = (OPENED, replied(StopReason.CONTEXT, text="so far"))
    state = RunState("run", rows)
    assert plan(state, Room(NOW)) == Stop(Reason.CONTEXT_FULL)
    state.apply(Elided(()))
    move = plan(state, Room(NOW))
    assert isinstance(move, Ask)
    assert [note.source for note in move.notes] == ["context"]
    for row in (*move.notes, replied(StopReason.CONTEXT, text="so f")):
        state.apply(row)
    assert plan(state, Room(NOW, full=FULL)) == Stop(Reason.CONTEXT_FULL, error=FULL)


def test_a_reply_of_which_the_window_left_nothing_is_not_called_empty() -> None:
    """X5: the model did not fall silent, and is not told so."""
    state = RunState("run", (OPENED, replied(StopReason.CONTEXT), Elided(())))
    assert plan(state, Room(NOW)) == Ask()


def test_the_move_is_a_function_of_state_and_room_alone() -> None:
    """L1: the same input gives the same move, nothing is changed by asking, nothing is awaited."""
    assert not any(inspect.iscoroutinefunction(each) for each in vars(module).values())
    assert {"time", "asyncio", "random"}.isdisjoint(vars(module))
    for situation in SITUATIONS[::7]:
        state, again = situation.state, situation.state
        for room in ROOMS:
            assert _comparable(plan(state, room)) == _comparable(plan(state, room))
            assert _comparable(plan(state, room)) == _comparable(plan(again, room))
        assert state.transcript == again.transcript


def _comparable(move: Move) -> object:
    """A move as a value: calls and limits by what they say, which is all that two states share."""
    match move:
        case Answer(calls) | Wait(calls):
            return type(move), [call.use.id for call in calls]
        case Ask(notes, closing):
            return Ask, notes, str(closing)
        case _:
            return move
