"""The fold of rows into a state: what each row means, and that a row without a place is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace

from remit import Amount, Limits, Message, Reason, Status, StopReason, Text, ToolUse, Totals, Usage
from remit.amounts import Bill
from remit.errors import JournalError, TranscriptError
from remit.rows import (
    Activated,
    Asked,
    Awaits,
    Charged,
    Decided,
    Ended,
    Failed,
    Late,
    Noted,
    Opened,
    Parked,
    Proposed,
    Replied,
    Row,
    Said,
    Settled,
    Started,
    Vetoed,
    Withdrawn,
    decode_row,
    encode_row,
)
from remit.state import RunState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = (NOW + timedelta(hours=1)).isoformat()
LIMITS = Limits(steps=20, tokens=100_000, seconds=60)
OPENED = Opened(
    remit="desk",
    prompt=(Text("Do it."),),
    history=(),
    limits=LIMITS,
    instructions="Be brief.",
    path=("desk",),
    tags={"team": "a"},
    at=NOW.isoformat(),
)
USAGE = Usage(100, 20, 5, 30, 10)
USES = (ToolUse("c0", "look", '{"at":"x"}'), ToolUse("c1", "look", '{"at":"y"}'))
KEYS = ("run:1:look:aaaaaaaaaaaaaaaa:1", "run:1:look:bbbbbbbbbbbbbbbb:1")
OVER = Amount(tokens=7, usd=Decimal("0.01"))
TURN = Replied(
    message=Message("assistant", (Text("Looking."), *USES)),
    stop_reason=StopReason.TOOL_USE,
    usage=USAGE,
    usd=Decimal("0.30"),
    estimated=False,
    asked=tuple(Asked(key) for key in KEYS),
    closing=False,
    whole=True,
    seconds=2.0,
    latency=1.5,
    overshoot=OVER,
)
ANSWER = Replied(
    message=Message("assistant", (Text("Done."),)),
    stop_reason=StopReason.END_TURN,
    usage=Usage(200, 0, 0, 10),
    usd=Decimal("0.20"),
    estimated=True,
    asked=(),
    closing=False,
    whole=True,
    seconds=4.0,
    latency=0.5,
)
PROPOSED = Proposed("c0", "p0", "Look?", '{"at":"x"}', LATER, "effect")
INSIDE = Bill(Totals(steps=2, calls=1, tokens=50, usd=Decimal("0.05"), usage=Usage(40, 0, 0, 10)))


def settled(tool_use_id: str, text: str = "seen", **fields: object) -> Settled:
    base: dict[str, object] = {"is_error": False, "status": Status.OK, **fields}
    return Settled(tool_use_id, (Text(text),), **base)  # type: ignore[arg-type]


def replayed(*rows: Row) -> RunState:
    """A state from the bytes of its rows, as a resume sees them."""
    return RunState("run", [decode_row(row.kind, encode_row(row)) for row in (OPENED, *rows)])


def test_the_first_row_opens_the_transcript() -> None:
    """J1: a run is its rows: prompt, limits and instructions come from the first."""
    state = replayed()
    assert state.opened == OPENED
    assert state.limits == LIMITS
    assert [message.text for message in state.transcript] == ["Do it."]
    assert (state.steps, state.own, state.tree) == (0, Totals(), Totals())


def test_a_reply_opens_its_turn_and_is_charged_once() -> None:
    """J1, L2: usage, cost, steps, latency and overshoot of a reply are each counted once."""
    state = replayed(TURN)
    assert [call.key for call in state.calls] == list(KEYS)
    assert state.own == Totals(steps=1, tokens=155, usd=Decimal("0.30"), usage=USAGE)
    assert state.tree == state.own
    assert (state.steps, state.seconds, state.latencies) == (1, 2.0, [1.5])
    assert (state.overshoot, state.estimated) == (OVER, 0)
    assert state.context_tokens == 155
    assert state.text == "Looking."


def test_results_close_the_turn_in_call_order_whatever_the_order_of_the_rows() -> None:
    """T1: the rows come in completion order, the message stands in call order."""
    state = replayed(TURN, settled("c1", "y"), settled("c0", "x"))
    assert state.calls == ()
    last = state.transcript.last
    assert last is not None
    assert [(result.tool_use_id, result.text, result.key) for result in last.tool_results] == [
        ("c0", "x", KEYS[0]),
        ("c1", "y", KEYS[1]),
    ]
    assert state.growth > 0


def test_the_same_rows_make_the_same_state_however_often_they_are_read() -> None:
    """J1: a fresh run and a resumed one go through the same fold."""
    rows = (TURN, settled("c0"), settled("c1"), Noted("budget:50", "Half."), ANSWER)
    first, second = replayed(*rows), RunState("run", (OPENED, *rows))
    assert first.transcript == second.transcript
    for name in ("own", "tree", "steps", "seconds", "latencies", "told", "text", "estimated"):
        assert getattr(first, name) == getattr(second, name), name


def test_an_estimate_is_marked() -> None:
    """L2: what nobody reported is counted as an estimate."""
    assert replayed(ANSWER).estimated == 1


def test_only_steps_are_counted_as_steps() -> None:
    """L5: neither the hand-back nor a reply without content is a step; both are charged."""
    closing = Noted("closing:step_budget:desk", "The limit.")
    state = replayed(closing, replace(ANSWER, closing=True), replace(ANSWER, message=None))
    assert state.steps == state.own.steps == 0
    assert state.own.tokens == 420
    assert state.limit is not None
    assert (state.limit.reason, state.limit.whose) == (Reason.STEP_BUDGET, "desk")


def test_what_a_call_cost_and_what_ran_inside_it_are_counted_apart() -> None:
    """L3: own is the call's, tree has the runs inside too."""
    spent = Totals(calls=1, tokens=9, usd=Decimal("0.02"))
    state = replayed(TURN, settled("c0", spent=spent, children=INSIDE))
    assert state.own == Totals(1, 1, 164, Decimal("0.32"), usage=USAGE)
    assert state.tree == state.own + INSIDE.spent


def test_a_failed_attempt_and_a_discarded_read_are_charged_and_are_no_step() -> None:
    """L2, C3: what came to nothing was billed all the same."""
    failed = Charged(Usage(50, 0, 0, 5), Decimal("0.10"), estimated=True, overshoot=OVER)
    discarded = Charged(
        Usage(), Decimal("0.02"), estimated=False, calls=2, tokens=9, children=INSIDE
    )
    state = replayed(failed, discarded)
    assert state.own == Totals(0, 2, 64, Decimal("0.12"), usage=Usage(50, 0, 0, 5))
    assert state.tree == state.own + INSIDE.spent
    assert (state.steps, state.estimated, state.overshoot) == (0, 1, OVER)


def test_what_was_sent_is_not_extended() -> None:
    """X1: after a failed attempt a note opens a new message."""
    state = replayed(Charged(Usage(1), Decimal(0), False), Noted("notes:0", "It is noon."))
    assert [message.text for message in state.transcript] == ["Do it.", "It is noon."]


def test_notes_and_input_stand_in_the_newest_user_turn() -> None:
    """T5, X1: what is said before a request joins the turn that has not been sent."""
    state = replayed(
        TURN, settled("c0"), settled("c1"), Noted("notes:0", "Noon."), Said((Text("Hm"),))
    )
    last = state.transcript.last
    assert last is not None
    assert len(last.tool_results) == 2
    assert last.text == "Noon.Hm"
    assert state.told == {"notes:0": "Noon."}


def test_a_call_goes_from_proposed_over_decided_to_started() -> None:
    """E6: what is waited for, and when it no longer is, follows from the rows."""
    call = replayed(TURN, PROPOSED).call("c0")
    assert call.waits(NOW)
    assert not call.waits(NOW + timedelta(hours=2))
    state = replayed(
        TURN,
        PROPOSED,
        Decided("p0", True, "dana", "", '{"at":"z"}', "k"),
        Started("c0", {"day": "x"}),
    )
    call = state.call("c0")
    assert not call.waits(NOW)
    assert (call.arguments, call.key) == ('{"at":"z"}', "k")
    assert call.started is not None
    assert call.started.computed == {"day": "x"}
    assert replayed(TURN, PROPOSED, Withdrawn("p0")).call("c0").withdrawn


def test_a_later_proposal_replaces_an_earlier_one_and_its_decision() -> None:
    """E5: what was decided about another proposal says nothing about this one."""
    again = Proposed("c0", "p1", "Look again?", "{}", LATER, "policy:big")
    state = replayed(TURN, PROPOSED, Decided("p0", True, "dana", "", None, None), again)
    assert state.call("c0").decision is None
    assert state.waiting_for("p0") is None
    assert state.waiting_for("p1") is state.call("c0")


def test_a_call_that_waits_for_a_run_inside_counts_what_that_spent() -> None:
    """L3, E6: the spend of a waiting child is in the tree, and only its rest is added later."""
    state = replayed(TURN, Awaits("c0", "child", INSIDE, Totals()))
    assert state.call("c0").waits(NOW)
    assert state.call("c0").recorded == INSIDE
    assert state.tree == state.own + INSIDE.spent


def test_the_first_limit_that_kept_a_call_from_running_is_kept() -> None:
    """L1: several calls may be denied; the outcome names the first."""
    state = replayed(
        TURN,
        settled("c0", denied="call_budget:root", status=Status.NOT_STARTED),
        settled("c1", denied="cost_budget:desk", status=Status.NOT_STARTED),
    )
    assert state.denied is not None
    assert str(state.denied) == "call_budget:root"


def test_new_limits_take_the_old_end_away() -> None:
    """L1, J3: what ended the run is gone, what was spent stays."""
    more = Limits(steps=40, tokens=200_000, seconds=90)
    ended = (
        TURN,
        settled("c0"),
        settled("c1", denied="call_budget:desk", status=Status.NOT_STARTED),
        Noted("budget:10", "A tenth."),
        Noted("notes:0", "Noon."),
        Noted("closing:call_budget:desk", "The limit."),
        replace(ANSWER, closing=True),
        Ended("call_budget", "desk", None, 5.0),
    )
    before, after = replayed(*ended), replayed(*ended, Activated(more, NOW.isoformat()))
    assert before.ended is not None
    assert (after.ended, after.limit, after.denied, after.failure) == (None, None, None, None)
    assert after.limits == more
    assert after.own == before.own
    assert after.seconds == 5.0
    assert "budget:10" not in after.told  # what is left is another thing now (L6)
    assert after.told["notes:0"] == "Noon."


def test_active_time_is_taken_from_the_newest_row_that_knows_it() -> None:
    """L4: seconds are stored with replies, when a run waits and when it ends."""
    assert replayed(TURN, Parked(3.5)).seconds == 3.5
    assert replayed(TURN, Parked(3.5)).parked
    assert not replayed(TURN, Parked(3.5), Activated(LIMITS, LATER)).parked
    assert replayed(ANSWER, Ended("completed", None, None, 9.0)).seconds == 9.0


def test_a_reply_that_the_clock_cut_is_neither_empty_nor_whole() -> None:
    """C3: nobody tells the model that it said nothing where nobody let it speak."""
    state = replayed(replace(ANSWER, message=None, whole=False, stop_reason=StopReason.UNKNOWN))
    assert (state.empties, state.cuts, state.untold) == (0, 0, None)
    assert state.not_run == "the reply was cut"


@pytest.mark.parametrize("stop_reason", [*StopReason])
def test_calls_run_only_after_a_reply_that_was_finished(stop_reason: StopReason) -> None:
    """C3: every other end of a reply is a reason in words for not running its calls."""
    state = replayed(replace(TURN, stop_reason=stop_reason))
    runs = stop_reason in (StopReason.TOOL_USE, StopReason.END_TURN)
    assert (state.not_run is None) is runs


def test_a_failure_a_veto_and_a_late_outcome_are_remembered() -> None:
    """E4, E7: rows that open no turn and close none."""
    late = Late(KEYS[0], (Text("done after all"),), False, Status.OK)
    state = replayed(Failed("gone"), Vetoed("no"), late)
    assert (state.failure, state.vetoed) == ("gone", "no")
    assert state.late == {KEYS[0]: late}


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        pytest.param((settled("c0"),), JournalError, id="a result while nothing is owed"),
        pytest.param((Started("c0", {}),), JournalError, id="a start of no call"),
        pytest.param((PROPOSED,), JournalError, id="a proposal of no call"),
        pytest.param(
            (Awaits("c0", "child", INSIDE, Totals()),), JournalError, id="a wait of no call"
        ),
        pytest.param((TURN, settled("c9")), JournalError, id="a result for another call"),
        pytest.param(
            (TURN, Decided("p0", True, "dana", "", None, None)), JournalError, id="no proposal"
        ),
        pytest.param(
            (TURN, settled("c0"), settled("c1"), settled("c0")), JournalError, id="a second result"
        ),
        pytest.param(
            (
                TURN,
                Noted("stall", "Stop."),
            ),
            TranscriptError,
            id="a note while owed",
        ),
        pytest.param((TURN, ANSWER), TranscriptError, id="a reply while owed"),
    ],
)
def test_a_row_that_has_no_place_here_is_refused(
    rows: tuple[Row, ...], error: type[Exception]
) -> None:
    """T1, J1: a journal that does not make sense is found out, not played along with."""
    with pytest.raises(error):
        replayed(*rows)


def test_a_journal_without_its_first_row_is_refused() -> None:
    """J1: nothing is made up for what is missing."""
    with pytest.raises(JournalError):
        _ = RunState("run").limits
    with pytest.raises(JournalError):
        _ = RunState("run").opened


def test_input_that_is_recorded_while_results_are_owed_takes_its_place_behind_them() -> None:
    """T5: the row may come at any time; the words stand behind the results, and in front of what follows."""
    state = RunState("run", (OPENED, TURN, settled("c0"), Said((Text("also Tuesday"),))))
    assert state.unsaid
    state.apply(settled("c1"))
    last = state.transcript.last
    assert last is not None
    assert [result.tool_use_id for result in last.tool_results] == ["c0", "c1"]
    assert last.text == "also Tuesday"
    assert not state.unsaid
    state.apply(ANSWER)
    assert state.final


def test_what_is_said_after_a_resume_is_never_added_to_what_may_have_been_sent() -> None:
    """X1: a request may have gone out of which no row tells, so its messages stay as they were."""
    state = RunState("run", (OPENED,))
    sent = tuple(state.transcript)
    state.apply(Activated(LIMITS, NOW.isoformat()))
    state.apply(Noted("continue", "Go on."))
    assert tuple(state.transcript)[: len(sent)] == sent
    assert len(state.transcript) == len(sent) + 1
