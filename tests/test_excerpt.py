"""A cut text says how much of it is shown, and where the rest is."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.canonical import parse_json
from remit.excerpt import MIN_CHARS, Excerpt, chars_of, fit, read_frame, shares

HANDLE = "artifact:" + "0123456789abcdef" * 4

MARKER = re.compile(
    r"\n\[\.\.\. (?P<shown>\d+) of (?P<total>\d+) characters shown; more: read_artifact\("
    r'handle="(?P<handle>artifact:[0-9a-f]{64})", offset=(?P<offset>\d+), length=(?P<length>\d+)\)'
    r" \.\.\.\]\n"
)
PAGE_END = re.compile(
    r"\n\[\.\.\. characters (?P<begin>\d+) to (?P<end>\d+) of (?P<of>\d+)(?P<over>: the end)?(?:; next: "
    r'read_artifact\(handle="(?P<handle>artifact:[0-9a-f]{64})", offset=(?P<offset>\d+), length=(?P<length>\d+)\))?'
    r" \.\.\.\]\Z"
)

pieces = st.text(st.sampled_from('"\\\n\t\r\u0301\u200d\U0001f600\U0001f3fdax '), max_size=40)
limits = st.integers(MIN_CHARS, 600)


def cut(text: str, limit: int, form: str = "text") -> Excerpt:
    excerpt = fit(text, limit, form=form, handle=HANDLE)  # pyright: ignore[reportArgumentType] - text or json
    assert excerpt is not None
    return excerpt


def test_a_text_of_exactly_the_limit_is_whole_and_one_more_is_cut() -> None:
    """X2: the bound is inclusive."""
    assert fit("x" * 400, 400, form="text", handle=HANDLE) is None
    assert len(cut("x" * 401, 400).text) == 400


def test_a_long_text_keeps_head_and_tail_around_a_marker_that_names_the_rest() -> None:
    """X2, case 47: marked with shown and total, and with a step that gives just what is missing."""
    text = "".join(f"line {n}\n" for n in range(10_000))
    excerpt = cut(text, 8_000)
    marker = MARKER.search(excerpt.text)
    assert marker
    head, tail = excerpt.text[: marker.start()], excerpt.text[marker.end() :]
    offset, length = int(marker["offset"]), int(marker["length"])
    assert marker["handle"] == HANDLE
    assert head + text[offset : offset + length] + tail == text
    assert int(marker["shown"]) == len(head) + len(tail) == excerpt.shown
    assert int(marker["total"]) == len(text)
    assert 1.9 < len(head) / len(tail) < 2.1
    assert 0.99 * 8_000 < len(excerpt.text) <= 8_000


def test_cut_json_is_json_that_holds_head_and_tail() -> None:
    """X2, case 47: JSON stays JSON, with the first rows and the last key, and its hint yields the rest."""
    table = {"rows": [{"id": n, "name": f'order "{n}"'} for n in range(900)], "count": 900}
    whole = json.dumps(table, separators=(",", ":"))
    excerpt = cut(whole, 2_000, "json")
    read = parse_json(excerpt.text)
    offset, length = read["truncated"]["offset"], read["truncated"]["length"]
    assert read["truncated"] == {
        "shown": len(read["head"]) + len(read["tail"]),
        "total": len(whole),
        "handle": HANDLE,
        "offset": len(read["head"]),
        "length": len(whole) - excerpt.shown,
    }
    assert read["head"] + whole[offset : offset + length] + read["tail"] == whole
    assert '"id":0' in read["head"]
    assert '"count":900' in read["tail"]
    assert 0.98 * 2_000 < len(excerpt.text) <= 2_000


@pytest.mark.parametrize("cluster", ["e\u0301", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "a\u200db"])
@pytest.mark.parametrize("shift", range(4))
def test_a_cut_leaves_a_base_and_its_marks_together(cluster: str, shift: int) -> None:
    """X2, case 47: no character is split, whatever it is made of."""
    text = "x" * shift + cluster * 5_000
    head, tail = MARKER.split(cut(text, 8_000).text)[:: MARKER.groups + 1]
    assert head.removeprefix("x" * shift).replace(cluster, "") == ""
    assert tail.replace(cluster, "") == ""
    head, tail = read_frame(cut(json.dumps([text], ensure_ascii=False), 8_000, "json").text)
    assert head.removeprefix('["' + "x" * shift).replace(cluster, "") == ""
    assert tail.removesuffix('"]').replace(cluster, "") == ""


@given(pieces, st.integers(1, 99), limits, st.sampled_from(["text", "json"]))
def test_whatever_the_text_the_bound_holds_and_the_parts_are_its_own(
    piece: str, times: int, limit: int, form: str
) -> None:
    """X2: head and tail survive, and what stands between them is just what the hint names."""
    text = json.dumps([piece] * times) if form == "json" else piece * times
    excerpt = fit(text, limit, form=form, handle=HANDLE)  # pyright: ignore[reportArgumentType] - text or json
    if excerpt is None:
        assert len(text) <= limit
        return
    assert len(excerpt.text) <= limit
    begin, end = len(excerpt.head), len(text) - len(excerpt.tail)
    assert excerpt.head + text[begin:end] + excerpt.tail == text
    if form == "json":
        assert read_frame(excerpt.text) == (excerpt.head, excerpt.tail)


@given(pieces, st.integers(1, 99), limits, limits, st.sampled_from(["text", "json", "page"]))
def test_to_show_less_needs_no_more_than_what_is_shown(
    piece: str, times: int, wide: int, narrow: int, form: str
) -> None:
    """X2: what gives way to others is cut again, from what is there."""
    text = "x" + piece * times
    excerpt = Excerpt(text, "" if form == "page" else text, 3 * len(text), form, HANDLE, of=10**5)  # pyright: ignore[reportArgumentType] - one of the three
    excerpt = excerpt.within(wide)
    tight = excerpt.within(narrow)
    assert len(tight.text) <= max(narrow, 0)
    assert excerpt.head.startswith(tight.head)
    assert excerpt.tail.endswith(tight.tail)
    assert tight.within(narrow) == tight
    assert form != "page" or tight.head


@pytest.mark.parametrize("form", ["text", "json", "page"])
def test_the_smallest_limit_has_room_for_the_words(form: str) -> None:
    """X2: a hundred million characters can be told of in the least that a result may have."""
    excerpt = Excerpt("x" * 500, "", 99_999_999, form, HANDLE, base=0, of=99_999_999)  # pyright: ignore[reportArgumentType] - one of the three
    assert len(excerpt.within(MIN_CHARS).text) <= MIN_CHARS


def test_a_page_says_where_it_stands_and_where_the_next_one_begins() -> None:
    """X2: paging is followed by reading its own words."""
    page = Excerpt("abc", "", 900, "page", HANDLE, base=100, of=5_000)
    end = PAGE_END.search(page.text)
    assert end
    assert page.text[: end.start()] == "abc"
    assert (end["begin"], end["end"], end["of"]) == ("100", "103", "5000")
    assert (end["offset"], end["length"]) == ("103", "897")
    whole = Excerpt("abc", "", 3, "page", HANDLE, base=100, of=5_000)
    assert whole.text == "abc\n[... characters 100 to 103 of 5000 ...]"
    last = Excerpt("abc", "", 3, "page", HANDLE, base=4_997, of=5_000)
    assert last.text == "abc\n[... characters 4997 to 5000 of 5000: the end ...]"


@given(st.lists(st.integers(0, 10_000), max_size=12), st.integers(0, 50_000))
def test_small_ones_are_whole_and_large_ones_share_the_rest_alike(
    sizes: list[int], total: int
) -> None:
    """X2: the budget of a turn is used up, nobody gets more than they want, and nobody is favoured."""
    granted = shares(sizes, total)
    assert len(granted) == len(sizes)
    assert all(share <= size for share, size in zip(granted, sizes, strict=True))
    assert sum(granted) == min(sum(sizes), total)
    short = [share for share, size in zip(granted, sizes, strict=True) if share < size]
    if short:
        assert max(short) - min(short) <= 1
        assert max(granted) <= max(short) + 1


def test_tokens_are_counted_in_characters_at_one_place() -> None:
    """X2: four characters a token, fewer where reported usage says so, never too few to say what was cut."""
    assert chars_of(2_000) == 8_000
    assert chars_of(2_000, 2.5) == 5_000
    assert chars_of(-1) == chars_of(50) == MIN_CHARS
    assert chars_of(60, 1.0) == MIN_CHARS
