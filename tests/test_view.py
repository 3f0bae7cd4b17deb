"""What a person is told of a run: the fold of its events, and the rows that it is shown in."""

import random
from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit import Event, Limits
from remit.analysis.cells import cells
from remit.analysis.layout import Glyphs, Row, plain, rows_of, status_rows
from remit.analysis.lines import (
    Asked,
    Called,
    Line,
    Opening,
    Remark,
    Words,
    call_words,
    limit_words,
)
from remit.analysis.view import RunView
from remit.events import EventKind
from simulation import Scenario, Story, _live
from test_cells import NASTY, acts

LIMITS = Limits(steps=12, tokens=60_000, usd=0.25, seconds=45)
GLYPHS = Glyphs.of("utf-8")
KEY = "r1:1:look:0123456789abcdef:1"


def event(
    kind: str,
    at: float = 0.0,
    /,
    *,
    run_id: str = "r1",
    path: tuple[str, ...] = ("desk",),
    **fields: Any,
) -> Event:
    return Event(cast("EventKind", kind), run_id, path, at, fields)


def reply(text: str = "", *tools: str, at: float = 1.0, **fields: Any) -> Event:
    given: dict[str, Any] = {
        "stop_reason": "tool_use" if tools else "end_turn",
        "usage": {"input": 100, "cache_read": 300, "cache_write": 0, "output": 20, "reasoning": 0},
        "usd": "0.01",
        "text": text,
        "tools": list(tools),
        "closing": False,
        "whole": True,
        **fields,
    }
    return event("replied", at, **given)


def started(use: str, tool: str = "look", at: float = 1.0, **fields: Any) -> Event:
    return event("call_started", at, id=use, tool=tool, key=KEY, **fields)


def settled(
    use: str, tool: str = "look", at: float = 2.0, status: str = "ok", **fields: Any
) -> Event:
    return event(
        "call_settled", at, id=use, tool=tool, key=KEY, status=status, seconds=1.0, **fields
    )


def told(*events: Event, columns: int | None = None, view: RunView | None = None) -> list[str]:
    """What a display of these events shows, row by row."""
    view = view or RunView(LIMITS, columns=columns)
    lines = [line for each in events for line in view.apply(each)]
    lines = [line for line in lines if not (isinstance(line, Remark) and line.detail)]
    return [plain(row) for line in lines for row in rows_of(line, GLYPHS, columns)]


def status_of(view: RunView, now: float, columns: int = 100, most: int = 5) -> list[str]:
    return [plain(row) for row in status_rows(view.status(now), GLYPHS, columns, most=most)]


# --- lines ---------------------------------------------------------------------------------------

TABLE: Mapping[str, tuple[list[Event], list[str]]] = {
    "words come line by line, behind the number of their step": (
        [
            event("run_started", steps=0),
            event("text", text="I look "),
            event("text", text="it up.\nThen I an"),
            event("text", text="swer."),
            reply("I look it up.\nThen I answer."),
        ],
        ["1 I look it up.", "│ Then I answer."],
    ),
    "a reply that was not streamed is shown when it is there": (
        [reply("All at once.")],
        ["1 All at once."],
    ),
    "what was lost on the way is shown with the reply": (
        [event("text", text="I look"), reply("I look it up.")],
        ["1 I look it up."],
    ),
    "another text than was streamed is shown as a whole": (
        [event("text", text="I book "), reply("I look it up.")],
        ["1 I book", "  ? parts of this are missing; the whole:", "1 I look it up."],
    ),
    "calls without words have their step too": (
        [reply("", "look", "look", "pay")],
        ["1 calls look x2, pay"],
    ),
    "a call is one line once it has its result": (
        [
            reply("I look.", "look"),
            started("a", arguments='{"what":"order 7","n":2}', at=1.0),
            settled("a", at=1.31, preview='{"status":"late"}'),
        ],
        ["1 I look.", '  ✓ look  what="order 7", n=2  0.31 s  {"status":"late"}'],
    ),
    "what became of a call is told by sign and word": (
        [
            reply("", *("look",) * 5),
            *(
                settled(str(n), status=status, preview=preview)
                for n, (status, preview) in enumerate(
                    [
                        ("error", "TimeoutError: db"),
                        ("error", ""),
                        ("refused", "not today"),
                        ("not_started", ""),
                        ("unknown", "Interrupted"),
                    ]
                )
            ),
        ],
        [
            "1 calls look x5",
            "  ✕ look  1.00 s  TimeoutError: db",
            "  ✕ look  1.00 s  failed",
            "  ✕ look  1.00 s  refused: not today",
            "  ? look  1.00 s  not run",
            "  ? look  1.00 s  outcome unknown: Interrupted",
        ],
    ),
    "a read that outruns its reply is told behind it": (
        [
            event("text", text="I look"),
            started("a"),
            settled("a", preview="early"),
            event("text", text=" it up."),
            reply("I look it up.", "look"),
        ],
        ["1 I look it up.", "  ✓ look  1.00 s  early"],
    ),
    "an attempt that failed is told, and what it had said is dropped": (
        [
            event("text", text="I lo"),
            event("model_retry", attempt=1, after=0.5, error="ModelUnavailable: busy"),
            event("text", text="I look."),
            reply("I look."),
        ],
        [
            "1 I lo",
            "  … the model failed: ModelUnavailable: busy; what stands above is dropped; asked again in 0.5 s",
            "1 I look.",
        ],
    ),
    "a reply that was cut says so, and its calls are not waited for": (
        [reply("I lo", "look", stop_reason="length", whole=True), reply("Again.")],
        ["1 I lo", "2 Again."],
    ),
    "the closing call is no step": (
        [reply("So far: nothing.", closing=True), reply("Not there.")],
        [
            "1 So far: nothing.",
            "  ✓ this was the closing call: a limit is reached",
            "1 Not there.",
        ],
    ),
    "what waits for somebody says for whom": (
        [
            reply("", "pay"),
            event("pending", id="3c9e", wants="approval", tool="pay", summary="Pay 4.20"),
        ],
        ["1 calls pay", "⏸ needs your decision  pay  Pay 4.20  [3c9e]"],
    ),
    "a tool that asks and is answered": (
        [
            reply("", "form"),
            started("a", "form"),
            event("pending", id="p1", wants="input", call="a", tool="form", summary="how many?"),
            event(
                "supplied", id="p1", wants="input", call="a", tool="form", by="dana", is_error=False
            ),
            started("a", "form", at=9.0),
            settled("a", "form", at=9.5, preview="4"),
        ],
        [
            "1 calls form",
            "⏸ needs your answer  form  how many?  [p1]",
            "  ✓ answer for form from dana",
            "  ✓ form  0.50 s  4",
        ],
    ),
    "a call that is executed elsewhere": (
        [
            reply("", "ship"),
            event("pending", id="p1", wants="result", call="a", tool="ship", summary=""),
            event(
                "supplied", id="p1", wants="result", call="a", tool="ship", by="dock", is_error=True
            ),
            settled("a", "ship", status="error", preview="no truck"),
        ],
        [
            "1 calls ship",
            "⏸ waits for a result from elsewhere  ship  [p1]",
            "  ✕ result for ship from dock",
            "  ✕ ship  1.00 s  no truck",
        ],
    ),
    "what was left running is named": (
        [event("call_abandoned", tool="slow", key=KEY)],
        ["  ? slow did not stop and was left: it may still take effect"],
    ),
    "what is in order is no failure": (
        [
            event("granted", tool="look", by="dana"),
            event("surroundings_changed", model=["a", "b"], removed=[]),
        ],
        [
            "  ✓ look runs under a standing grant of dana",
            "  ? goes on in other surroundings: model a, b",
        ],
    ),
    "a late outcome is named by its key": (
        [event("late_outcome", key=KEY, status="ok")],
        ["  ? look ended after it was given up: ok"],
    ),
    "a run inside is told under its name": (
        [
            reply("", "research"),
            started("a", "research"),
            event("run_started", run_id="r2", path=("desk", "scout"), steps=0),
            event("text", run_id="r2", path=("desk", "scout"), text="I scout.\nFar."),
            event(
                "run_ended",
                run_id="r2",
                path=("desk", "scout"),
                reason="step_budget",
                whose="scout",
            ),
            settled("a", "research", status="error", preview="step_budget"),
        ],
        [
            "1 calls research",
            "  scout 1 I scout.",
            "  scout │ Far.",
            "  scout   ✕ ended: step_budget",
            "  ✕ research  1.00 s  step_budget",
        ],
    ),
    "half a row is shown when the run ends": (
        [event("text", text="I was about to"), event("run_ended", reason="cancelled")],
        ["1 I was about to"],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_is_told_of_events(name: str) -> None:
    events, rows = TABLE[name]
    assert told(*events) == rows


def test_every_kind_of_event_is_told_without_its_fields() -> None:
    """A display shows runs of other versions too: what is missing is left out."""
    for kind in get_args(EventKind):
        told(event(kind), event(kind, 1.0), event("something_new", 2.0, more=1))


def test_words_are_wrapped_as_they_come_and_the_end_stays_in_the_status() -> None:
    view = RunView(LIMITS, columns=20)
    rows = told(event("text", text="the quick brown fox jumps over"), columns=20, view=view)
    assert rows == ["1 the quick brown"]
    unfinished = view.status(0.0).unfinished
    assert unfinished is not None
    assert unfinished.text == "fox jumps over"
    rows = told(reply("the quick brown fox jumps over"), columns=20, view=view)
    assert rows == ["│ fox jumps over"]


def test_text_of_a_model_looks_like_nothing_else() -> None:
    """D1: a fake line of a call, a fake question, a fake end stand behind the gutter of the model."""
    fake = "Fine.\n⏸ needs your decision\n  ✓ pay  0.10 s  ok\n✓ completed\n" + " " * 60 + "⏸ now"
    for columns in (None, 60, 20):
        rows = told(event("text", text=fake + "\n"), reply(fake + "\n", at=2), columns=columns)
        assert rows[0] == "1 Fine."
        assert all(row.startswith("│") for row in rows[1:])


@pytest.mark.parametrize("text", NASTY)
def test_nothing_that_a_model_or_a_tool_writes_acts_on_a_terminal(text: str) -> None:
    """D1: wherever foreign text stands - words, names, arguments, results, errors, summaries."""
    events = [
        event("text", text=f"{text}\n{text}"),
        reply(f"{text}\n{text}", text, text),
        started("a", text, arguments={"x": text}),
        started("b", text, arguments=text),
        event("call_progress", id="a", message=text, fraction=0.5),
        settled("a", text, preview=text),
        settled("c", text, status=text, preview=text),
        event("pending", id=text, tool=text, summary=text, arguments={text: text}),
        event("model_retry", error=text, after=1),
        event("confirm_failed", tool=text, error=text),
        event("run_started", run_id="r2", path=("desk", text)),
        event("text", run_id="r2", path=("desk", text), text=text),
        event("run_ended", run_id="r2", path=("desk", text), reason=text),
        event("something_new", text=text),
    ]
    for columns in (None, 80, 20):
        view = RunView(LIMITS, columns=columns)
        for each in events:
            for line in view.apply(each):
                for row in rows_of(line, GLYPHS, columns):
                    assert acts(plain(row)) == []
            for row in status_rows(view.status(9.0), GLYPHS, columns or 80, most=5):
                assert acts(plain(row)) == []


# --- the status ----------------------------------------------------------------------------------


def test_the_status_says_what_is_done_what_is_used_and_since_when() -> None:
    view = RunView(LIMITS)
    told(
        event("run_started", 0, steps=0),
        reply("I look.", "look", "look", at=3),
        started("a", at=3.0),
        started("b", at=4.0),
        event("call_progress", 5, id="a", message="half way", fraction=0.5),
        view=view,
    )
    assert status_of(view, 10.0) == [
        "─" * 72,
        "step 1/12 ▊·········   tokens 420/60k ··········   $0.010/0.25 ▍·········   10/45 s ██▏·······",
        "look 0:07 50 % half way, 1 more · cache 75 % of 400 input",
    ]


@pytest.mark.parametrize(
    ("events", "doing"),
    [
        ([], "starting"),
        ([event("run_started", 1)], "asking the model 0:09"),
        ([event("text", 4, text="Hm")], "the model is writing 0:06"),
        ([event("model_retry", 4, after=9)], "the model is asked again 0:06"),
        ([reply("", "look", at=4)], "calls are prepared 0:06"),
        ([reply("", "look", at=4), started("a", at=5)], "look 0:05"),
        (
            [reply("", "look", at=4), started("a", at=5), settled("a", at=6)],
            "asking the model 0:04",
        ),
        (
            [
                started("a", "research"),
                event("text", 3, run_id="r2", path=("desk", "scout"), text="x"),
            ],
            "research 0:09",
        ),
        (
            [
                started("a", "research"),
                event("run_started", 2, run_id="r2", path=("desk", "scout")),
                event("call_started", 3, run_id="r2", path=("desk", "scout"), id="b", tool="dig"),
            ],
            "scout: dig 0:07",
        ),
        ([event("run_ended", 4, reason="completed")], "ended: completed"),
    ],
)
def test_what_it_does_now(events: list[Event], doing: str) -> None:
    view = RunView()
    told(*events, view=view)
    assert view.status(10.0).doing == doing


def test_a_cancelled_run_says_whom_it_waits_for() -> None:
    view = RunView()
    told(started("a", "slow"), view=view)
    view.cancelling = True
    assert view.status(2.0).doing == "cancelling: slow gets a moment to stop"


def test_what_is_supplied_ends_the_wait_and_is_told_with_its_source() -> None:
    view = RunView(LIMITS)
    told(event("run_started", 0), reply("", "form", "ship", at=1), view=view)
    told(event("pending", 2, id="p1", wants="input", tool="form", summary="Which?"), view=view)
    told(event("pending", 2, id="p2", wants="result", tool="ship", summary="Ship"), view=view)
    assert [each.kind for each in view.waiting.values()] == ["input", "result"]
    [answer] = view.apply(event("supplied", 12, id="p1", wants="input", tool="form", by="dana"))
    [result] = view.apply(event("supplied", 22, id="p2", wants="result", tool="ship", by="host"))
    assert (answer.text, result.text) == ("answer for form from dana", "result for ship from host")  # type: ignore[union-attr]
    assert view.waiting == {}
    assert view.seconds(32.0) == 12.0


def test_what_it_waits_for_and_since_when() -> None:
    view = RunView(LIMITS)
    told(event("run_started", 0), reply("", "pay", "pay", at=1), view=view)
    told(event("pending", 2, id="p1", tool="pay", summary="Pay"), view=view)
    told(event("pending", 3, id="p2", tool="pay", summary="Pay"), view=view)
    assert view.status(16.0).waiting == "waiting for you 0:14, 2 questions"
    told(started("a", "pay", at=20.0), view=view)
    assert view.status(21.0).waiting == "waiting for you 0:18"
    told(settled("b", "pay", at=30.0, status="refused"), view=view)
    assert view.status(31.0).waiting == ""
    assert view.seconds(31.0) == 3.0  # what is waited for a person is no time of the run


def test_a_body_that_asks_is_waited_for_and_counted_once() -> None:
    view = RunView(Limits(steps=2, tokens=100, seconds=60, calls=3))
    told(
        event("run_started", 0),
        reply("", "form", at=1),
        started("a", "form", at=1.0),
        event("pending", 2, id="p1", wants="input", call="a", tool="form", summary="?"),
        view=view,
    )
    status = view.status(12.0)
    assert (status.waiting, status.doing) == ("waiting for you 0:10", "")
    told(
        event("supplied", 20, id="p1", wants="input", call="a", tool="form", by="you"),
        started("a", "form", at=20.0),
        view=view,
    )
    assert view.status(22.0).doing == "form 0:02"
    assert view.gauges(22.0)[-1].used == "1"
    assert view.seconds(22.0) == 4.0


def test_a_question_that_is_asked_again_is_told_once() -> None:
    view = RunView()
    asked = event("pending", 2, id="p1", tool="pay", summary="Pay")
    assert len(view.apply(asked)) == 1
    assert view.apply(asked) == ()


def test_every_limit_that_is_set_has_a_gauge() -> None:
    view = RunView(Limits(steps=2, tokens=100, usd=1, seconds=600, calls=3))
    told(event("run_started", 0), reply("", "look"), started("a"), view=view)
    told(event("charged", 1, usage={"input": 5, "output": 0}, usd="0.5", tokens=7), view=view)
    gauges = {gauge.name: (gauge.used, gauge.allowed) for gauge in view.gauges(61.0)}
    assert gauges == {
        "step": ("1", "2"),
        "tokens": ("432", "100"),
        "$": ("0.51", "1.00"),
        "time": ("1:01", "10:00"),
        "calls": ("1", "3"),
    }
    assert RunView().gauges(1.0) == ()


def test_money_without_a_limit_is_told_too() -> None:
    view = RunView(Limits(steps=2, tokens=100, seconds=6))
    told(reply("x", usd=Decimal("0.125")), view=view)
    assert view.status(1.0).spent.startswith("$0.12, cache")


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_the_status_is_never_higher_than_asked_for(most: int) -> None:
    """D2: the open question goes last, the rule first."""
    view = RunView(LIMITS)
    told(event("text", text="Hm"), view=view)
    question: Row = (GLYPHS.sign("waiting"),)
    rows = status_rows(view.status(1.0), GLYPHS, 80, most=most, question=question)
    assert len(rows) == most
    assert question in rows


# --- properties ----------------------------------------------------------------------------------


def simulated(seed: int) -> list[Event]:
    """The events of one story of the simulation."""
    scenario = Scenario.draw(seed)
    story = Story(scenario)
    story.limits = scenario.limits
    events: list[Event] = []

    async def watched() -> Any:
        run_id, world = story.run_id, story.world
        async with story.support.stream("do it", run_id=run_id, deps=world) as live:
            story.live = live
            async for each in live:
                events.append(each)
        return live.outcome

    story._stream = watched
    _live(story.first_life(), seed, 0.0)
    return events


def in_bounds(line: Line, glyphs: Glyphs, columns: int) -> None:
    for row in rows_of(line, glyphs, columns):
        assert cells(plain(row)) <= columns, (columns, row)
        assert acts(plain(row)) == []
    for row in rows_of(line, glyphs, None):
        assert "\n" not in plain(row)
        assert acts(plain(row)) == []


@pytest.mark.parametrize("seed", range(40))
def test_every_story_of_the_simulation_is_shown_within_its_window(seed: int) -> None:
    """D2: whatever happens in a run, no row is too wide, in any width and either set of signs."""
    events = simulated(seed)
    assert events
    for columns in (1, 8, 20, 30, 79):
        for glyphs in (GLYPHS, Glyphs.of("ascii")):
            view = RunView(LIMITS, columns=columns)
            for each in events:
                for line in view.apply(each):
                    in_bounds(line, glyphs, columns)
                for most in (1, 3, 5):
                    rows = status_rows(
                        view.status(each.at + 1), glyphs, columns, most=most, hint="ctrl-c cancels"
                    )
                    assert len(rows) <= most
                    assert all(cells(plain(row)) <= columns for row in rows)


@pytest.mark.parametrize("seed", range(40))
def test_every_call_of_a_story_that_has_a_result_is_told_once(seed: int) -> None:
    """Nothing is lost and nothing is told twice, in whatever order it happens."""
    events = simulated(seed)
    view = RunView(LIMITS)
    lines = [line for each in events for line in view.apply(each)]
    results = sum(each.kind == "call_settled" for each in events)
    assert sum(isinstance(line, Called) for line in lines) == results
    numbers = [
        line.label for line in lines if isinstance(line, Words) and not line.who and line.label
    ]
    assert all(int(a) <= int(b) for a, b in pairwise(numbers))


TEXTS = st.text(max_size=60) | st.sampled_from(NASTY)
EVENTS = st.one_of(
    st.builds(lambda text: event("text", text=text), TEXTS),
    st.builds(lambda text, tools: reply(text, *tools), TEXTS, st.lists(TEXTS, max_size=2)),
    st.builds(
        lambda use, tool: started(use, tool, arguments={tool: use}), st.sampled_from("ab"), TEXTS
    ),
    st.builds(
        lambda use, tool, status: settled(use, tool, status=status, preview=tool),
        st.sampled_from("abc"),
        TEXTS,
        st.sampled_from(["ok", "error", "unknown"]),
    ),
    st.builds(lambda text: event("pending", id=text, tool=text, summary=text), TEXTS),
    st.builds(lambda text: event("text", run_id="r2", path=("desk", text), text=text), TEXTS),
    st.builds(
        lambda text: event("run_ended", run_id="r2", path=("desk", text), reason=text), TEXTS
    ),
)


@settings(max_examples=150)
@given(
    st.lists(EVENTS, max_size=8),
    st.integers(1, 100),
    st.sampled_from(["utf-8", "ascii", "latin-1"]),
)
def test_no_order_of_events_and_no_text_breaks_a_window(
    events: list[Event], columns: int, encoding: str
) -> None:
    """D1, D2: rows are in bounds, can be written in the stream's encoding, and hold nothing that acts."""
    glyphs = Glyphs.of(encoding)
    view = RunView(LIMITS, columns=columns)
    for each in events:
        for line in view.apply(each):
            in_bounds(line, glyphs, columns)
            for row in rows_of(line, glyphs, columns):
                plain(row).encode(encoding)
        for row in status_rows(view.status(1.0), glyphs, columns, most=5):
            assert cells(plain(row)) <= columns
            plain(row).encode(encoding)


@settings(max_examples=50)
@given(st.text(alphabet="ab \n日é", max_size=200), st.randoms(use_true_random=False))
def test_however_a_text_is_streamed_the_same_is_shown(text: str, rng: random.Random) -> None:
    """The rows of a text do not depend on the pieces in which it comes."""
    pieces: list[Event] = []
    rest = text
    while rest:
        size = rng.randint(1, 20)
        pieces.append(event("text", text=rest[:size]))
        rest = rest[size:]
    for columns in (None, 20):
        assert told(*pieces, reply(text), columns=columns) == told(reply(text), columns=columns)


# --- small parts ---------------------------------------------------------------------------------


def test_a_wide_window_sets_calls_in_columns() -> None:
    view = RunView(LIMITS, columns=90)
    rows = told(
        reply("", "look", "look"),
        started("a", arguments='{"what":"x"}', at=1.0),
        settled("a", at=1.31, preview="late"),
        started("b", arguments='{"what":"' + "y" * 100 + '"}', at=1.0),
        settled("b", at=1.5, preview="in time"),
        columns=90,
        view=view,
    )
    assert rows == [
        "1 calls look x2",
        "  ✓ look  what=x                                    0.31 s  late",
        "  ✓ look  what=yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…   0.50 s  in time",
    ]


def test_a_narrow_window_tells_a_failure_below_its_call() -> None:
    rows = told(reply("", "look"), settled("a", status="error", preview="E: no"), columns=30)
    assert rows == ["1 calls look", "  ✕ look                1.00 s", "    E: no"]


def test_the_opening_tells_who_runs_on_what() -> None:
    line = Opening(run_id="7f3a", name="desk", model="m", limits=limit_words(LIMITS))
    rows = [plain(row) for row in rows_of(line, GLYPHS, None)]
    assert rows == ["run 7f3a · desk · m · 12 steps, 60k tok, $0.25, 45 s"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (None, ""),
        ("{}", ""),
        (
            '{"id":1042,"amount":"4.20","note":"a b","deep":{"x":[1]}}',
            'id=1042, amount=4.20, note="a b", deep={"x": [1]}',
        ),
        ('{"cut":"wi', '{"cut":"wi'),
        ("[1]", "[1]"),
        ({"a": "x,y"}, 'a="x,y"'),
    ],
)
def test_arguments_are_told_in_short(arguments: object, words: str) -> None:
    assert call_words(arguments) == words


def test_signs_are_ascii_where_the_stream_cannot_carry_others() -> None:
    """State is told by the sign, and every encoding has one."""
    for encoding in ("ascii", "latin-1", "cp1252", None, "no-such-encoding"):
        glyphs = Glyphs.of(encoding)
        signs = [glyphs.ok, glyphs.failed, glyphs.running, glyphs.waiting, glyphs.unknown]
        assert len(set(signs)) == 5
        "".join(signs).encode("ascii")
    assert Glyphs.of("utf-8").ok == "✓"


def test_a_question_in_a_window_stands_in_rows_of_its_own() -> None:
    line = Asked(
        pending_id="3c9e", kind="result", tool="ship", summary="Ship it\nnow", arguments="n=1"
    )
    assert [plain(row) for row in rows_of(line, GLYPHS, 60)] == [
        "⏸ waits for a result from elsewhere  [3c9e]",
        "    Ship it",
        "    now",
        "    ship  n=1",
    ]


def test_a_cache_that_was_missed_is_told_with_its_cause_to_who_asks_for_more() -> None:
    """X4: as a line of --verbose, in words; a cause is one line whatever stands in it."""
    missed = event("cache_missed", cause="expired\n\x1b[2J", expected=9_880, cached=1_024)
    [line] = RunView(LIMITS).apply(missed)
    assert isinstance(line, Remark)
    assert line.detail
    [row] = [plain(row) for row in rows_of(line, GLYPHS, None)]
    assert "cache missed (expired" in row
    assert "1.0k read of 9.9k sent before" in row
    assert "\x1b" not in row


def test_the_calls_of_a_run_that_is_taken_up_stand_before_what_the_model_says_of_them() -> None:
    """V1: the step that they belong to was shown, or not, by another process."""
    view = RunView(LIMITS)
    began: dict[str, Any] = {"name": "desk", "model": "m", "limits": {}, "steps": 1, "open": 1}
    view.apply(event("run_started", 0.0, **began))
    view.apply(event("call_started", 1.0, id="t1", tool="pay", key=KEY, arguments="{}"))
    settled: dict[str, Any] = {
        "id": "t1",
        "tool": "pay",
        "key": KEY,
        "status": "ok",
        "seconds": 1.0,
    }
    (line,) = view.apply(event("call_settled", 2.0, **settled, preview="paid"))
    assert isinstance(line, Called)
    assert line.tool == "pay"
