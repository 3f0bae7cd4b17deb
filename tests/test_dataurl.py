"""Pictures that travel as text are found in every spelling, and nothing else is."""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.dataurl import MAX_RUN_CHARS, has_media, without_media

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 30
PLAIN = base64.b64encode(PNG).decode()


def wrapped(width: int, newline: str) -> str:
    return newline.join(PLAIN[at : at + width] for at in range(0, len(PLAIN), width))


def taken(text: str) -> tuple[str, list[tuple[bytes, str]]]:
    found: list[tuple[bytes, str]] = []

    def note(data: bytes, media_type: str) -> str:
        found.append((data, media_type))
        return "<note>"

    return without_media(text, note), found


@pytest.mark.parametrize(
    ("text", "left", "media_type"),
    [
        (f"data:image/png;base64,{PLAIN}", "<note>", "image/png"),
        (f"see (data:image/png;base64,{PLAIN}).", "see (<note>).", "image/png"),
        (f'{{"a":"data:image/png;base64,{PLAIN}","b":1}}', '{"a":"<note>","b":1}', "image/png"),
        (f"data:image/svg+xml;charset=utf-8;base64,{PLAIN}", "<note>", "image/svg+xml"),
        (f'data:a/b;name="a b.png";base64,{PLAIN}', "<note>", "a/b"),
        (f"DATA:IMAGE/PNG;BASE64,{PLAIN}", "<note>", "IMAGE/PNG"),
        (f"data:;base64,{PLAIN}", "<note>", "text/plain"),
        (
            f"data:image/png;base64,{PLAIN.replace('+', chr(92) + 'u002B').replace('=', chr(92) + 'u003d')}",
            "<note>",
            "image/png",
        ),
        (
            f"data:image/png;base64,{PLAIN.replace('+', chr(92) * 2 + 'u002b')}",
            "<note>",
            "image/png",
        ),
        (
            "data:image\\/png;base64," + PLAIN.replace("/", "\\/"),
            "<note>",
            "image/png",
        ),
        (
            "data:image/png;base64," + PLAIN.replace("/", "\\\\/"),
            "<note>",
            "image/png",
        ),
        (
            "data:image/png;base64," + PLAIN.replace("+", "%2B").replace("/", "%2f"),
            "<note>",
            "image/png",
        ),
        (
            "data:image/png;base64," + base64.urlsafe_b64encode(PNG).decode().rstrip("="),
            "<note>",
            "image/png",
        ),
        (f"data:image/png;base64,{wrapped(76, chr(10))}", "<note>", "image/png"),
        (f"data:image/png;base64,{wrapped(64, chr(13) + chr(10))} z", "<note> z", "image/png"),
        (f"data:image/png;base64,{wrapped(76, chr(92) + 'n')}", "<note>", "image/png"),
        (f"data:image/png;base64,{wrapped(76, '%0A')}", "<note>", "image/png"),
    ],
)
def test_a_data_url_is_taken_out_with_its_bytes(text: str, left: str, media_type: str) -> None:
    """X3, case 49: however a tool or its serializer wrote it."""
    assert has_media(text)
    assert taken(text) == (left, [(PNG, media_type)])


def test_several_urls_are_several_pieces_even_without_a_gap() -> None:
    """X3: one picture does not swallow the next."""
    url = f"data:image/png;base64,{PLAIN}"
    assert taken(f"{url} and {url}") == ("<note> and <note>", [(PNG, "image/png")] * 2)
    text, found = taken(url + url)
    assert text == "<note><note>"
    assert [data[: len(PNG)] for data, _ in found] == [PNG, PNG]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data",
        PLAIN,
        "data:image/png;base64,",
        "data:image/png;base64,AAAA",
        "data:image/png;base64," + "A" * MAX_RUN_CHARS,
        "data:text/plain,hello",
        "the mark is ;base64, and nothing more",
        f"no url ;base64,{PLAIN}",
    ],
)
def test_what_is_no_picture_stays(text: str) -> None:
    """C4: a `str` is sent as it stands."""
    assert taken(text) == (text, [])


def test_a_line_behind_the_picture_is_not_a_part_of_it() -> None:
    """C4: text that follows is kept."""
    text = f"data:image/png;base64,{wrapped(76, chr(10))}\nand this was the picture"
    assert taken(text)[0] == "<note>\nand this was the picture"
    assert taken(f"data:image/png;base64,{PLAIN}\nNext")[0] == "<note>\nNext"


def test_base64_that_was_cut_off_is_taken_out_all_the_same() -> None:
    """X3: half a picture is no text either."""
    for length in range(201, 209):
        text, found = taken(f"data:image/png;base64,{PLAIN[:length]}")
        assert text == "<note>"
        assert PNG.startswith(found[0][0])


@given(
    st.lists(
        st.sampled_from(
            [
                "data:",
                "image/png",
                ";base64,",
                "A" * 60,
                "A" * 200,
                "\n",
                "\\/",
                "\\n",
                "=",
                '"',
                " x",
            ]
        ),
        max_size=30,
    )
)
def test_no_run_of_base64_is_left_in_a_data_url(parts: list[str]) -> None:
    """X3, case 49: never a base64 run longer than 100 characters from a data URL."""
    text, _ = taken("".join(parts))
    for url in re.finditer(r"data:[^;,\s\"'<>()]{0,120};base64,([A-Za-z0-9+/_=-]*)", text):
        assert len(url[1]) <= MAX_RUN_CHARS


@pytest.mark.parametrize("before", range(499_980, 500_002))
def test_a_url_is_found_wherever_a_long_text_is_looked_through_in_steps(before: int) -> None:
    """X3: a mark that lies over the end of a step is one mark."""
    filler = (";" * 300).ljust(before, "x")
    text = f"{filler} data:image/png;base64,{PLAIN} {filler};"
    assert has_media(text)
    assert taken(text) == (f"{filler} <note> {filler};", [(PNG, "image/png")])
    assert not has_media(f"{filler};base64 {filler}")
