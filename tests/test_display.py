"""Which display there is, and what those without a moving cursor write."""

import asyncio
import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from loop_rig import desk
from remit import Event, Limits, Outcome, Pending, Reason, Spend, Totals, Usage, tool
from remit.analysis.layout import Glyphs
from remit.cli.display import (
    Display,
    Mode,
    PageDisplay,
    PlainPage,
    QuietDisplay,
    display_for,
    display_mode,
    write_answer,
)
from remit.cli.endings import ending
from remit.cli.options import Display as Flags
from remit.cli.streams import Streams
from remit.cli.terminal import Terminal
from remit.testing import VirtualLoop
from remit.transcript import Transcript
from test_cells import NASTY, acts
from test_prompts import Scripted, pending

XTERM = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("env", "is_tty", "options", "mode"),
    [
        (XTERM, True, {}, Mode("terminal", colour=True, motion=True)),
        (XTERM, False, {}, Mode("plain", colour=False, motion=False)),
        ({}, True, {}, Mode("plain", colour=False, motion=False)),
        ({"TERM": "dumb"}, True, {}, Mode("plain", colour=False, motion=False)),
        ({**XTERM, "CI": "true"}, True, {}, Mode("plain", colour=False, motion=False)),
        ({**XTERM, "CI": "false"}, True, {}, Mode("terminal", colour=True, motion=True)),
        (XTERM, True, {"plain": True}, Mode("plain", colour=False, motion=False)),
        (XTERM, True, {"quiet": True}, Mode("quiet", colour=True, motion=False)),
        (XTERM, True, {"jsonl": True}, Mode("jsonl", colour=True, motion=False)),
        (XTERM, True, {"jsonl": True, "quiet": True}, Mode("jsonl", colour=True, motion=False)),
        (XTERM, True, {"motion": False}, Mode("terminal", colour=True, motion=False)),
        ({**XTERM, "NO_COLOR": "1"}, True, {}, Mode("terminal", colour=False, motion=True)),
        ({**XTERM, "NO_COLOR": ""}, True, {}, Mode("terminal", colour=True, motion=True)),
        ({"FORCE_COLOR": "1"}, False, {}, Mode("plain", colour=True, motion=False)),
        ({"FORCE_COLOR": "0"}, False, {}, Mode("plain", colour=False, motion=False)),
        (
            {**XTERM, "NO_COLOR": "1", "FORCE_COLOR": "1"},
            True,
            {},
            Mode("terminal", colour=False, motion=True),
        ),
        (
            {**XTERM, "NO_COLOR": "1"},
            True,
            {"color": "always"},
            Mode("terminal", colour=True, motion=True),
        ),
        (
            {**XTERM, "FORCE_COLOR": "1"},
            True,
            {"color": "never"},
            Mode("terminal", colour=False, motion=True),
        ),
        ({}, False, {"color": "always"}, Mode("plain", colour=True, motion=False)),
    ],
)
def test_the_surroundings_decide_which_display_there_is(
    env: Mapping[str, str], is_tty: bool, options: dict[str, Any], mode: Mode
) -> None:
    assert display_mode(env, is_tty=is_tty, **options) == mode


# --- whole runs ----------------------------------------------------------------------------------


@tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    return f"seen: {what}"


class Stream(io.StringIO):
    """A stream of a program; `utf-8` unless something else is said."""

    def __init__(self, encoding: str = "utf-8", *, tty: bool = False) -> None:
        super().__init__()
        self._encoding = encoding
        self._tty = tty

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - a property says the same
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


class Closed(Stream):
    """Nobody reads it any more."""

    def write(self, _: str, /) -> int:
        raise BrokenPipeError


def played(
    flags: Flags,
    script: list[Any],
    *,
    jsonl: bool = False,
    env: Mapping[str, str] | None = None,
    notes: Stream | None = None,
    answers: Stream | None = None,
) -> tuple[str, str]:
    """Play a run before a display. Returns what went to standard output and to standard error."""
    out, err = answers or Stream(), notes or Stream()
    shown: Display = display_for(
        Streams(out, err, Stream(), own=False), flags, jsonl=jsonl, env=env or {}
    )

    async def main() -> None:
        remit = desk(script, [look])
        async with remit.stream("go", run_id="r1") as live:
            shown.begin("r1", remit.name, "scripted", remit.limits)
            async for each in live:
                shown.hear(each)
        shown.end(live.outcome, answer=live.outcome.text)
        shown.close()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return out.getvalue(), err.getvalue()


SCRIPT: list[Any] = [["I look.", ("look", {"what": "x"})], "It is there."]


def test_plain_lines_tell_a_run_and_move_no_cursor() -> None:
    out, err = played(Flags(), SCRIPT)
    assert out == "It is there.\n"
    lines = err.splitlines()
    assert lines[0].startswith("run r1 · desk · scripted · 20 steps")
    assert lines[1:4] == ["1 I look.", "  ✓ look  what=x  0.00 s  seen: x", "2 It is there."]
    assert lines[4].startswith("✓ completed · 2 steps · ")
    assert acts(err.replace("\n", "")) == []


def test_plain_lines_are_ascii_where_the_stream_is() -> None:
    _, err = played(Flags(), SCRIPT, notes=Stream("ascii"))
    assert "  + look  what=x  0.00 s  seen: x" in err.splitlines()
    assert err.isascii()


def test_colour_is_added_where_it_is_forced_and_tells_nothing_new() -> None:
    """State is never told by colour alone: without it the same text stands there."""
    _, bare = played(Flags(), SCRIPT)
    _, coloured = played(Flags(color="always"), SCRIPT)
    assert "\x1b[32m✓\x1b[0m" in coloured
    for style in ("0", "1", "2", "31", "32", "33"):
        coloured = coloured.replace(f"\x1b[{style}m", "")
    assert [row.rstrip() for row in coloured.splitlines()] == bare.splitlines()


def test_verbose_tells_what_was_billed() -> None:
    _, bare = played(Flags(), SCRIPT)
    _, err = played(Flags(verbose=True), SCRIPT)
    assert "billed: " not in bare
    assert err.count("billed: ") == 2


def test_quiet_gives_the_answer_and_no_word_more() -> None:
    assert played(Flags(quiet=True), SCRIPT) == ("It is there.\n", "")


def test_events_are_lines_of_json_and_the_outcome_is_the_last() -> None:
    out, err = played(Flags(), SCRIPT, jsonl=True)
    lines = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    assert {line["v"] for line in lines} == {1}
    assert lines[0]["kind"] == "run_started"
    assert (lines[-1]["kind"], lines[-1]["text"]) == ("outcome", "It is there.")
    assert all("token" not in line for line in lines)


@pytest.mark.parametrize("text", NASTY)
def test_no_line_of_json_acts_on_a_terminal(text: str) -> None:
    """D1: a person may look at it, too."""
    out, _ = played(Flags(), [f"x{text}"], jsonl=True)
    assert acts(out.replace("\n", "")) == []
    assert out.isascii()


def test_a_reader_of_progress_that_goes_away_takes_nothing_with_it() -> None:
    out, _ = played(Flags(), SCRIPT, notes=Closed())
    assert out == "It is there.\n"


@pytest.mark.parametrize("jsonl", [True, False])
def test_a_reader_of_the_answer_that_goes_away_is_told(jsonl: bool) -> None:
    with pytest.raises(BrokenPipeError):
        played(Flags(), SCRIPT, jsonl=jsonl, answers=Closed())


def test_an_answer_acts_on_no_terminal_and_is_whole_in_a_pipe() -> None:
    """D1: text in a pipe is data and goes through as it is."""
    terminal, pipe = Stream(tty=True), Stream()
    for stream in (terminal, pipe):
        write_answer("a\x1b[2Jb\n", stream)
    assert terminal.getvalue() == "a\\x1b[2Jb\n"
    assert pipe.getvalue() == "a\x1b[2Jb\n"


def test_an_answer_that_stands_on_the_terminal_already_is_not_said_twice() -> None:
    """Standard output and standard error on one terminal."""
    out, err = played(Flags(plain=True), SCRIPT, notes=Stream(tty=True), answers=Stream(tty=True))
    assert out == ""
    assert "2 It is there." in err


class Frames(Stream):
    """Counts what is written at which time."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def write(self, text: str, /) -> int:
        self.times.append(asyncio.get_running_loop().time())
        return super().write(text)


def drawn(*, motion: bool, events: int) -> list[float]:
    """When a terminal is drawn on while things happen for a second, and then nothing does for ten."""
    notes = Frames()
    terminal = Terminal(notes, None, glyphs=Glyphs.of("utf-8"), colour=False, motion=motion)
    shown = PageDisplay(terminal, Stream(), None, same=False, verbose=False)

    async def main() -> None:
        shown.begin("r1", "desk", "m", LIMITS)
        for n in range(events):
            shown.hear(Event("text", "r1", ("desk",), n / events, {"text": "word "}))
            await asyncio.sleep(1 / events)
        await asyncio.sleep(10)
        shown.close()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return notes.times


def test_a_terminal_is_drawn_on_ten_times_a_second_at_most() -> None:
    """D2: however fast a model writes; then the clock ticks once a second."""
    times = drawn(motion=True, events=1_000)
    busy = [time for time in times if time < 1.0]
    assert 9 <= len(busy) <= 11
    assert min(later - earlier for earlier, later in pairwise(busy)) >= 0.0999
    assert 9 <= len([time for time in times if time > 1.2]) <= 12


def test_without_motion_nothing_is_drawn_while_nothing_happens() -> None:
    times = drawn(motion=False, events=10)
    assert [time for time in times if 1.2 < time < 10.9] == []


def questioned(asker: Scripted, *, asks: bool) -> list[str]:
    """What a page shows of a call that waits: its person is asked here, or somebody else is."""
    notes = Stream()
    page = PlainPage(notes, glyphs=Glyphs.of("utf-8"), colour=False)
    shown = PageDisplay(page, Stream(), asker, same=False, verbose=False)
    told = Event("pending", "r1", ("desk",), 0.0, {"id": "3c9e", "tool": "refund", "summary": "S"})

    async def main() -> None:
        shown.begin("r1", "desk", "m", LIMITS)
        shown.hear(told)
        if asks:
            assert (await shown.confirm(pending())).approve
        await asyncio.sleep(60)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return notes.getvalue().splitlines()[1:]


def test_what_is_asked_here_is_shown_by_the_question_alone() -> None:
    asker = Scripted("a")
    assert questioned(asker, asks=True) == []
    assert asker.shown[0].startswith("⏸ needs your decision")


def test_what_somebody_else_is_asked_is_shown_too() -> None:
    """The remit brings a `confirm` of its own: the person here sees what is waited for."""
    assert questioned(Scripted(), asks=False) == ["⏸ needs your decision  refund  S  [3c9e]"]


def test_a_run_inside_a_thread_asks_the_person_at_the_terminal() -> None:
    """Its event loop is another one; the question is asked on the display's."""
    shown = QuietDisplay(Stream(), Scripted("a"))

    async def main() -> None:
        shown.begin("r1", "desk", "m", LIMITS)
        inside = asyncio.to_thread(lambda: asyncio.run(shown.confirm(pending())))
        assert (await inside).approve

    asyncio.run(main())


# --- the end -------------------------------------------------------------------------------------

LIMITS = Limits(steps=12, tokens=60_000, usd=0.25, seconds=45)
SPENT = Totals(
    steps=4,
    calls=3,
    tokens=4_040,
    usd=Decimal("0.0142"),
    seconds=19.24,
    usage=Usage(input=860, cache_read=3_000, output=180),
)


def ended(reason: Reason, **fields: Any) -> tuple[str, str]:
    """The end line of an outcome."""
    given: dict[str, Any] = {
        "whose": None,
        "text": "",
        "output": None,
        "spend": Spend(own=SPENT, tree=fields.pop("spent", SPENT)),
        "pending": (),
        "error": None,
        "steps": 4,
    }
    left: list[str] = fields.pop("left", [])
    limits = fields.pop("limits", LIMITS)
    outcome: Outcome[str] = Outcome(
        run_id="r1", reason=reason, transcript=Transcript(), **{**given, **fields}
    )
    return ending(outcome, limits, name="desk", shown=True, left=left)


def test_the_end_of_a_completed_run_says_what_it_used() -> None:
    assert ended(Reason.COMPLETED, text="Done.") == (
        "ok",
        "completed · 4 steps · 4.0k tokens (78 % cached) · $0.014 · 19.2 s",
    )


def test_a_limit_says_whose_it_was_what_was_used_and_what_helps() -> None:
    used = Totals(steps=4, tokens=100, usd=Decimal("0.247"), seconds=1.0)
    mark, text = ended(Reason.COST_BUDGET, whose="desk", text="So far.", spent=used)
    assert mark == "failed"
    assert text == (
        "task uncompleted: cost_budget (yours: $0.25; this run used $0.247) · 4 steps · 100 tokens"
        " · $0.25 · 1.00 s · answer so far above · with more it gets further: --usd 0.50"
    )


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (Reason.STEP_BUDGET, "--steps 24"),
        (Reason.TOKEN_BUDGET, "--tokens 120000"),
        (Reason.DEADLINE, "--seconds 90"),
        (Reason.CALL_BUDGET, "--calls 6"),
    ],
)
def test_every_limit_has_its_flag(reason: Reason, advice: str) -> None:
    limits = Limits(steps=12, tokens=60_000, seconds=45, calls=3)
    spent = Totals(steps=12, calls=3, seconds=45.0)
    _, text = ended(reason, whose="desk", limits=limits, spent=spent)
    assert text.endswith(f"with more it gets further: {advice}")


def test_the_limit_of_somebody_else_comes_without_advice() -> None:
    _, text = ended(Reason.COST_BUDGET, whose="boss")
    assert "(of boss; this run used $0.014)" in text
    assert "--usd" not in text


def test_a_calendar_deadline_is_moved_by_no_flag() -> None:
    limits = Limits(steps=12, tokens=60_000, seconds=450, deadline=datetime.now(UTC))
    _, text = ended(Reason.DEADLINE, whose="desk", limits=limits)
    assert "at latest" in text
    assert "--seconds" not in text


def test_the_end_names_what_is_still_running() -> None:
    mark, text = ended(Reason.CANCELLED, left=["slow"])
    assert mark == "failed"
    assert "still running: slow (may yet take effect)" in text


def test_the_end_of_a_run_that_waits_names_the_questions() -> None:
    waits = Pending(
        id="3c9e",
        kind="approval",
        run_id="r1",
        path=("desk",),
        tool="refund",
        arguments="{}",
        summary="",
        token="t",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
    )
    mark, text = ended(Reason.WAITING, pending=(waits,) * 5)
    assert mark == "waiting"
    assert text.startswith("waiting: a decision on refund [3c9e], ")
    assert ", 2 more · 4 steps" in text


@pytest.mark.parametrize("text", NASTY)
def test_an_error_in_the_end_line_acts_on_no_terminal(text: str) -> None:
    """D1: errors quote what a provider or a tool wrote."""
    _, line = ended(Reason.MODEL_FAILED, error=f"x{text}")
    assert acts(line) == []


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_an_end_line(reason: Reason) -> None:
    _, text = ended(reason, error="why")
    assert text == "completed · 4 steps · 4.0k tokens (78 % cached) · $0.014 · 19.2 s" or (
        reason.value in text
    )
