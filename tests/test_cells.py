"""Text as a terminal shows it: harmless, measured, cut and wrapped; and numbers for people."""

import unicodedata
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcwidth

from remit.analysis.cells import cells, clip, one_line, visible, wrap
from remit.analysis.figures import bar, clock, count, dollars, duration, percent, span
from remit.analysis.times import ago, instant, moment
from remit.errors import ConfigurationError

NASTY = [
    "\x1b[2J\x1b[1;1H\x1b]0;title\x07",  # paints, and renames the window
    "fine\rfake",
    "a\x08\x08b\x7f",
    "\x9b31m",  # an escape sequence of one byte
    "\u202egnp.exe\u2066",
    "zero\u200bwidth\ufeff\u00ad",
    "hidden \U000e0041\U000e0042 \U000e0100",
    "\u115f\u1160\u3164\uffa0",
    "line\u2028break\u2029",
    "half \ud800 pair \udfff",
    "a" + "\u0301" * 200,
    "\x00\x01\x02",
]


def acts(text: str) -> list[str]:
    """What of a text would do something on a terminal, or not be seen."""
    return [
        c
        for c in text
        if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"}
        or (unicodedata.category(c) == "Cf" and c not in "\u200c\u200d")
    ]


@pytest.mark.parametrize("text", NASTY)
def test_what_would_act_is_written_out(text: str) -> None:
    """D1: a model can neither paint the terminal nor hide text in what it says."""
    shown = visible(text)
    assert acts(shown) == []
    assert "\\" in shown
    assert visible(shown) == shown


@pytest.mark.parametrize(
    "text", ["", "plain", "żółć", "日本語", "नमस्ते", "می‌خواهم", "👩‍👩‍👧 ❤️ 🇩🇪", "a\nb", "1\u00a0000"]
)
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_line_ends_and_tabs_stay_what_they_are() -> None:
    assert visible("a\r\nb\tc") == "a\nb    c"
    assert one_line("a\r\n  b\tc ") == "a b c"


def test_marks_do_not_pile_up_on_their_neighbours() -> None:
    """D1: a few marks on a letter are writing, hundreds of them paint over other lines."""
    shown = visible("e" + "\u0301" * 50)
    assert shown.count("\u0301") == 8
    assert shown.count("\\u0301") == 42


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("日本", 4), ("e\u0301", 1), ("✓│…⏸", 4), ("❤️", 2), ("👍", 2), ("\uff46", 2)],
)
def test_cells_are_counted_as_terminals_do(text: str, width: int) -> None:
    assert cells(text) == width


@given(st.text(), st.integers(0, 40))
def test_what_is_cut_is_never_wider(text: str, width: int) -> None:
    """D2: nothing is wider than what it was cut to, wide characters and marks included."""
    shown = visible(text).replace("\n", " ")
    assert cells(clip(shown, width)) <= width
    if cells(shown) <= width:
        assert clip(shown, width) == shown


@given(st.text(), st.integers(2, 40))
def test_wrapping_keeps_every_word_and_every_row_in_bounds(text: str, width: int) -> None:
    """D2: rows are as narrow as asked for, and only spaces at their ends are lost."""
    shown = visible(text).replace("\n", " ")
    rows = wrap(shown, width)
    assert rows
    assert all(cells(row) <= width for row in rows)
    assert "".join("".join(rows).split()) == "".join(shown.split())


def test_rows_break_between_words_and_in_words_that_are_longer() -> None:
    assert wrap("the quick brown fox", 10) == ["the quick", "brown fox"]
    assert wrap("  indented words", 11) == ["  indented", "words"]
    assert wrap("abcdefgh", 3) == ["abc", "def", "gh"]
    assert wrap("", 3) == [""]


def test_a_wide_character_is_not_split() -> None:
    assert clip("日本語", 4) == "日…"
    assert wrap("日本語", 5) == ["日本", "語"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1k"),
        (1_030, "1.0k"),
        (3_140, "3.1k"),
        (60_000, "60k"),
        (88_400, "88k"),
        (999_400, "999k"),
        (999_600, "1.0M"),
        (1_200_000, "1.2M"),
    ],
)
def test_counts_are_short(number: int, text: str) -> None:
    assert count(number) == text


@pytest.mark.parametrize(
    ("amount", "like", "text"),
    [
        ("0.014", None, "0.014"),
        ("0.25", None, "0.25"),
        ("0.00812", None, "0.0081"),
        ("12.5", None, "12.50"),
        ("0", None, "0.00"),
        ("0.247", "0.25", "0.247"),
        ("0.011", "5", "0.01"),
    ],
)
def test_money_has_the_digits_that_say_something(amount: str, like: str | None, text: str) -> None:
    assert dollars(Decimal(amount), like=None if like is None else Decimal(like)) == text


def test_times_are_told_in_the_unit_that_fits() -> None:
    assert [duration(s) for s in (0.314, 12.04, 70, 3_723)] == [
        "0.31 s",
        "12.0 s",
        "1:10",
        "1:02:03",
    ]
    assert [clock(s) for s in (14.9, 362, 3_723)] == ["0:14", "6:02", "1:02:03"]
    assert [span(s) for s in (-5, 45, 3_540, 86_399, 300_000)] == [
        "0 s",
        "45 s",
        "59 min",
        "24 h",
        "3 days",
    ]
    assert percent(81, 100) == "81 %"
    assert percent(1, 0) == "0 %"


def test_a_moment_is_written_in_utc_and_read_as_it_was_written() -> None:
    """U7: of whatever zone it was; a time without one is the reader's own."""
    at = datetime(2026, 12, 1, 5, 29, 25, tzinfo=timezone(timedelta(hours=2)))
    assert moment(at) == "2026-12-01 03:29:25 UTC"
    assert instant(moment(at), "--since") == at
    assert instant("2026-12-01T05:29:25+02:00", "--since") == at
    assert instant("2026-12-01", "--since") == datetime(2026, 12, 1).astimezone(UTC)
    assert instant("90m", "--since", at) == at - timedelta(minutes=90)
    assert ago(at, at + timedelta(minutes=4)) == "4 min ago"
    for wrong in ("", "soon", "5x", "9999999w", " UTC", "999999999d"):
        with pytest.raises(ConfigurationError, match="--since"):
            instant(wrong, "--since", at)


@given(st.floats(-1, 2), st.integers(1, 20), st.booleans())
def test_a_gauge_is_as_wide_as_asked_for(fraction: float, width: int, drawn: bool) -> None:
    assert cells(bar(fraction, width, drawn=drawn)) == width


def test_a_gauge_is_empty_at_nothing_and_full_at_everything() -> None:
    assert bar(0, 4, drawn=True) == "····"
    assert bar(0.375, 4, drawn=True) == "█▌··"
    assert bar(1, 4, drawn=True) == "████"
    assert bar(0.5, 4, drawn=False) == "##.."


def test_no_character_is_wider_on_a_terminal_than_it_is_counted() -> None:
    """D2: where terminals disagree the wider answer counts; an independent table is never wider."""
    wider = [
        f"U+{code:04X}"
        for code in range(0x20, 0x30000)
        if visible(chr(code)) == chr(code) and wcwidth(chr(code)) > cells(chr(code))
    ]
    assert wider == []
