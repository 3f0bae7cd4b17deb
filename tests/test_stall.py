"""Repetition without news: noticed by a pure rule, told to the model once, then the end (L7)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit as rm
from loop_rig import desk, model_of
from remit import Outcome, Reason, Tool, Transcript
from remit.models.base import ModelRequest
from remit.models.scripted import Part
from remit.stall import END_AT, LONGEST_CYCLE, TELL_AT, Stall
from remit.testing import run_virtual

NUDGE = "three times"


@rm.tool(effect="read")
async def ls(path: str) -> list[str]:
    """What lies there; never anything new."""
    return [f"{path}/a", f"{path}/b"]


def ticker(*, polling: bool) -> Tool[..., Any]:
    """A tool that answers something new each time."""
    ticks = count()

    @rm.tool(effect="read", polling=polling)
    async def poll(job: str) -> str:
        """How far the job is."""
        return f"{job} is at {next(ticks)} %"

    return poll


@rm.tool(effect="read", polling=True)
async def wait_for(job: str) -> str:
    """Whether the job is done; it never is."""
    return f"{job} is still running"


Turn = list[Part]


def spin(turns: list[Turn], tools: Iterable[Tool[..., Any]], *, give_up_at: int = 30) -> Any:
    """Run a model that makes these turns over and over; after `give_up_at` it answers."""

    def script(transcript: Transcript, _: ModelRequest) -> Turn | str:
        made = sum(message.role == "assistant" for message in transcript)
        return "I give up." if made >= give_up_at else turns[made % len(turns)]

    remit = desk(script, tools)
    return run_virtual(remit.run("What is there?")), model_of(remit)


def nudges(outcome: Outcome[Any]) -> list[int]:
    """Before which steps the model was told."""
    told: list[int] = []
    steps = 0
    for message in outcome.transcript:
        steps += message.role == "assistant"
        if message.role == "user" and NUDGE in message.text:
            told.append(steps + 1)
    return told


LOOK: Turn = [("ls", {"path": "/x"})]
OTHER: Turn = [("ls", {"path": "/y"})]
THIRD: Turn = [("ls", {"path": "/z"})]


@pytest.mark.parametrize("cycle", [[LOOK], [LOOK, OTHER], [LOOK, OTHER, THIRD]], ids=len)
def test_a_cycle_is_told_once_at_the_third_time_and_ends_the_run_at_the_sixth(
    cycle: list[Turn],
) -> None:
    """L7, case 73: A A A, A B A B and A B C A B C alike: one nudge, then `stalled`."""
    outcome, model = spin(cycle, [ls])
    assert outcome.reason is Reason.STALLED
    assert outcome.steps == len(cycle) * END_AT == model.asked
    assert nudges(outcome) == [len(cycle) * TELL_AT + 1]
    assert outcome.whose is None


def test_arguments_that_are_only_written_otherwise_are_the_same() -> None:
    """L7, case 73: what counts is the meaning of the arguments, not their bytes."""
    written: list[Turn] = [[("ls", '{"path": "/x"}')], [("ls", '{ "path" :"/\\u0078" }')]]
    outcome, _ = spin(written, [ls])
    assert outcome.reason is Reason.STALLED
    assert outcome.steps == END_AT


def test_results_that_change_are_news() -> None:
    """L7: equal calls with other results are progress, declared as polling or not."""
    outcome, _ = spin([[("poll", {"job": "7"})]], [ticker(polling=False)], give_up_at=15)
    assert outcome.completed
    assert nudges(outcome) == []


def test_a_polling_tool_may_repeat_itself() -> None:
    """L7, case 73: repeating is what a polling tool is for, even without news."""
    outcome, _ = spin([[("wait_for", {"job": "7"})]], [wait_for], give_up_at=15)
    assert outcome.completed
    assert nudges(outcome) == []


def test_polling_beside_a_repeated_call_hides_nothing() -> None:
    """L7: of a turn that polls and repeats itself the rest still counts."""
    turn: Turn = [("poll", {"job": "7"}), *LOOK]
    outcome, _ = spin([turn], [ls, ticker(polling=True)])
    assert outcome.reason is Reason.STALLED
    assert outcome.steps == END_AT


def test_equal_calls_of_one_turn_are_no_repetition() -> None:
    """L7: six equal reads asked for at once are one step."""
    turns: list[Turn] = [LOOK * 6, LOOK * 6, OTHER, THIRD]
    outcome, _ = spin(turns, [ls], give_up_at=4)
    assert outcome.completed
    assert nudges(outcome) == []


def test_it_does_not_count_how_often_or_in_which_order_a_turn_asks_for_the_same() -> None:
    """L7: what a step did is the set of its calls and their results."""
    turns: list[Turn] = [LOOK, LOOK * 3, [*LOOK, *LOOK]]
    outcome, _ = spin(turns, [ls])
    assert outcome.reason is Reason.STALLED
    assert outcome.steps == END_AT
    both: list[Turn] = [[*LOOK, *OTHER], [*OTHER, *LOOK, *OTHER]]
    outcome, _ = spin(both, [ls])
    assert outcome.reason is Reason.STALLED
    assert outcome.steps == END_AT


def test_equal_calls_of_one_turn_with_other_results_are_news() -> None:
    """L7: of a turn that reads the same twice, either result counts."""
    outcome, _ = spin([[("poll", {"job": "7"})] * 2], [ticker(polling=False)], give_up_at=15)
    assert outcome.completed
    assert nudges(outcome) == []


def test_something_new_resets_the_count_and_a_new_stall_is_told_again() -> None:
    """L7: what was told about one stall is not held back from the next."""
    turns = [LOOK, LOOK, LOOK, OTHER, THIRD, THIRD, THIRD, OTHER]
    outcome, _ = spin(turns, [ls], give_up_at=len(turns))
    assert outcome.completed
    assert nudges(outcome) == [4, 8]


def test_errors_that_repeat_are_a_stall_too() -> None:
    """L7: an unknown tool asked for over and over is no progress either."""
    outcome, _ = spin([[("lz", {"path": "/x"})]], [ls])
    assert outcome.reason is Reason.STALLED
    assert outcome.steps == END_AT


def test_the_work_done_before_a_stall_is_in_the_outcome() -> None:
    """L7: the run that stalled ends with a transcript that can be continued."""
    outcome, _ = spin([LOOK], [ls])
    assert len(outcome.transcript) == 1 + 2 * END_AT
    assert not outcome.transcript.owed
    assert outcome.output is None


# --- the rule itself -----------------------------------------------------------------------------


@given(st.lists(st.sampled_from("abcd"), max_size=40))
def test_the_count_is_that_of_the_most_repeated_cycle_at_the_tail(signatures: list[str]) -> None:
    """L7: against the plain definition, for every sequence of steps."""
    stall = Stall()
    for signature in signatures:
        stall.observe(signature)
    tail = signatures[-LONGEST_CYCLE * END_AT :]
    assert stall.repetitions == max(
        (
            n
            for length in range(1, LONGEST_CYCLE + 1)
            for n in range(1, len(tail) // length + 1)
            if tail[-length:] * n == tail[-length * n :]
        ),
        default=0,
    )


@given(st.integers(1, LONGEST_CYCLE), st.lists(st.sampled_from("xyz"), max_size=10))
def test_every_cycle_is_noticed_whatever_came_before(length: int, before: list[str]) -> None:
    """L7: six times a cycle of up to three steps is six repetitions after any prefix."""
    stall = Stall()
    for signature in (*before, *list("abc"[:length]) * END_AT):
        stall.observe(signature)
    assert stall.repetitions == END_AT


def test_a_new_activation_begins_to_count_anew() -> None:
    """L7: somebody outside changed what the run can do."""
    stall = Stall()
    for _ in range(END_AT):
        stall.observe("a")
    stall.clear()
    stall.observe("a")
    assert stall.repetitions == 1
