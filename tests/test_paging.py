"""Pages and searches, against the plain way to the same answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.artifacts import Artifact
from remit.errors import ToolError
from remit.paging import _page, _search
from remit.testing import run_virtual

pieces = st.text(
    st.sampled_from("aAbB\u00e9\u0130\u03a3\u03c3\u03c2\u4e2d\U0001f600\n "), min_size=1
)
texts = st.builds(
    lambda piece, times, end: piece * times + end, pieces, st.integers(1, 9_000), pieces
)


def kept(text: str) -> Artifact:
    return Artifact.of(text.encode(), "text/plain")


@given(texts, st.integers(0, 90_000), st.none() | st.integers(1, 20_000))
@settings(max_examples=60)
def test_a_page_is_just_what_stands_there(text: str, offset: int, length: int | None) -> None:
    """X2: in characters, whatever they take in bytes, over the borders of the pieces that are read."""
    if offset >= len(text):
        with pytest.raises(ToolError, match=f"has {len(text)} characters"):
            run_virtual(_page(kept(text), offset, length))
        return
    page = run_virtual(_page(kept(text), offset, length))
    end = len(text) if length is None else min(offset + length, len(text))
    assert page.head == text[offset : min(end, offset + 8_000)]
    assert (page.total, page.base, page.of) == (end - offset, offset, len(text))
    assert page.start == len(text[:offset].encode())


def naively(text: str, wanted: str, offset: int) -> list[int]:
    """Where it stands, without overlaps."""

    def low(each: str) -> str:
        folded = [char.lower() if len(char.lower()) == 1 else char for char in each]
        return "".join(folded).replace("\u03c2", "\u03c3")

    found: list[int] = []
    text, wanted = low(text), low(wanted)
    while (offset := text.find(wanted, offset)) >= 0:
        found.append(offset)
        offset += len(wanted)
    return found


@given(texts, st.data())
@settings(max_examples=60)
def test_a_search_finds_what_a_plain_search_finds(text: str, data: st.DataObject) -> None:
    """X2: every place once, whatever the case, and none across a gap; what stands around it is shown."""
    at = data.draw(st.integers(0, len(text) - 1))
    own = st.integers(1, 200).map(lambda size: text[at : at + size].swapcase()[:200])
    wanted = data.draw(own | pieces.map(lambda piece: piece[:200]))
    offset = data.draw(st.integers(0, len(text) - 1))
    answer: dict[str, Any] = run_virtual(_search(kept(text), wanted, offset))
    places = naively(text, wanted, offset)
    assert answer["matches"] == len(places)
    assert answer["characters"] == len(text)
    assert [each["offset"] for each in answer["places"]] == places[: len(answer["places"])]
    assert len(answer["places"]) >= min(len(places), 10)
    for each in answer["places"]:
        begin = max(each["offset"] - 80, 0)
        assert each["text"] == text[begin : each["offset"] + len(wanted) + 80]
    if "more" in answer:
        last = answer["places"][-1]["offset"] + len(wanted)
        assert answer["more"] == f"search again with offset={last}"
    else:
        assert len(answer["places"]) == len(places)
