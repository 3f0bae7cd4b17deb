"""The output budget: what is shown of a result and of a turn, and that the rest is where it is said to be."""

import base64
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.artifacts import BINARY, Artifact, digest_of
from remit.canonical import parse_json
from remit.errors import ToolError
from remit.excerpt import CHARS_PER_TOKEN, MIN_CHARS, Excerpt, chars_of, read_frame
from remit.messages import Media, Message, ResultContent, Text, ToolResult
from remit.models.base import ModelProfile
from remit.render import Rendered, render, render_error, render_text
from remit.shown import (
    RESULT_TOKENS,
    TURN_TOKENS,
    Allowance,
    Fitted,
    Kept,
    Shown,
    fitted,
    of_page,
    prefixed,
    reread,
    restored,
    restored_block,
    shared_out,
    unread,
    written,
)
from test_excerpt import MARKER
from test_render import HOSTILE, json_values

PICTURE = Media("image/png", b"\x89PNG" + bytes(range(256)) * 40, "shot.png")
SOUND = Media("audio/wav", b"RIFF" + bytes(range(256)) * 40)
PICTURE_NOTE = Artifact.of(PICTURE.data, "image/png").note
URL = f"data:image/png;base64,{base64.b64encode(PICTURE.data).decode()}"
MEDIA_CHARS = 1_000 * CHARS_PER_TOKEN


def nothing(_: str) -> bool:
    return False


def pictures(media_type: str) -> bool:
    return media_type.startswith("image/")


def fit(value: object, tokens: int = RESULT_TOKENS, reads: Any = nothing) -> Fitted:
    return fitted(render(value), Allowance(chars_of(tokens), reads))


def said(content: Sequence[ResultContent]) -> str:
    return "".join(block.text for block in content if isinstance(block, Text))


def assert_sound(made: Fitted, chars: int) -> None:
    """Sendable, within the limit, and all that is named is there."""
    shown = made.shown
    artifacts = {artifact.handle: artifact for artifact in made.artifacts}
    assert shown.content
    for block in shown.content:
        if isinstance(block, Text):
            assert block.text.strip()
            assert "\0" not in block.text
            block.text.encode()
        else:
            assert block.data
    assert len(said(shown.content)) <= chars
    left = written(shown.content, shown.kept)

    def block_of(kept: Kept) -> ResultContent:
        return restored_block(kept, artifacts[kept.artifact])

    assert restored(left, shown.kept, block_of) == shown.content
    for handle in shown.artifacts:
        assert artifacts[handle].handle == handle


# --- one result ----------------------------------------------------------------------------------


def test_a_small_result_stands_as_it_is_and_nothing_is_kept() -> None:
    """X2: what fits is whole."""
    assert fit("x" * 8_000) == Fitted(Shown((Text("x" * 8_000),)))
    assert fit({"a": 1}) == Fitted(Shown((Text('{"a":1}'),)))


def test_a_long_text_is_an_excerpt_of_an_artifact_that_holds_it_whole() -> None:
    """X2, case 47: a cut inside of a four-byte character splits nothing, and the hint yields the rest."""
    text = "\U0001f600 caf\u00e9 \u4e2d\n" * 5_000
    made = fit(text)
    assert_sound(made, 8_000)
    (artifact,) = made.artifacts
    assert artifact.text == text
    marker = MARKER.search(said(made.shown.content))
    assert marker
    assert marker["handle"] == artifact.handle
    offset, length = int(marker["offset"]), int(marker["length"])
    whole = said(made.shown.content).replace(marker[0], text[offset : offset + length])
    assert whole == text


@pytest.mark.parametrize("as_text", [False, True])
def test_json_that_is_cut_is_json_whether_a_tool_wrote_it_itself_or_not(as_text: bool) -> None:
    """X2, case 47: 900 rows and the total in the last key, in 2 kB."""
    table = {"rows": [{"id": n, "name": f'order "{n}"'} for n in range(900)], "count": 900}
    made = fit(json.dumps(table, indent=1) if as_text else table, 500)
    assert_sound(made, 2_000)
    (artifact,) = made.artifacts
    assert artifact.media_type == "application/json"
    read = parse_json(said(made.shown.content))
    assert '"id":0' in read["head"].replace(" ", "")
    assert '"count":900' in read["tail"].replace(" ", "")
    cut = read["truncated"]
    missing = artifact.text[cut["offset"] : cut["offset"] + cut["length"]]
    assert json.loads(read["head"] + missing + read["tail"]) == table


def test_what_only_looks_like_json_is_text() -> None:
    """C4: a `str` is sent as it stands."""
    for text in ("[INFO] " * 5_000, "{" * 9_000, "[" * 200_000, '{"a": 1}\n' * 2_000):
        made = fit(text)
        assert MARKER.search(said(made.shown.content))
        assert made.artifacts[0].media_type == "text/plain"


def test_the_end_of_an_error_survives() -> None:
    """X2: errors and totals stand at the end."""
    made = fitted(
        render_error(ToolError("line\n" * 9_000 + "AssertionError: 3 failed")),
        Allowance(8_000, nothing),
    )
    assert said(made.shown.content).startswith("Error: line")
    assert said(made.shown.content).endswith("AssertionError: 3 failed")


def test_several_texts_are_cut_as_one_and_keep_their_media() -> None:
    """X2: the limit is the result's, not the block's."""
    made = fit([Text("a" * 5_000), PICTURE, Text("z" * 5_000)], reads=pictures)
    assert_sound(made, 8_000)
    text, media = made.shown.content
    assert media == PICTURE
    assert isinstance(text, Text)
    assert text.text.startswith("aaa")
    assert text.text.endswith("zzz")


@pytest.mark.parametrize("tokens", [-1, 0, 50, 61, 2_000])
@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_tool_returns_the_bound_holds(name: str, tokens: int) -> None:
    """X2, C1, C4: unserialisable results are errors within the limit, whatever they do."""
    assert_sound(fit(HOSTILE[name](), tokens), chars_of(tokens))


@given(json_values, st.integers(-10, 120), st.integers(1, 60))
def test_whatever_the_value_the_bound_holds_and_json_parses(
    value: object, tokens: int, times: int
) -> None:
    """X2, C4: well-formed, never blank, within the limit; head and tail are of the whole."""
    for shape in (value, [value] * times):
        rendered = render(shape)
        made = fitted(rendered, Allowance(chars_of(tokens), nothing))
        assert_sound(made, chars_of(tokens))
        text = said(made.shown.content)
        if not isinstance(shape, str) and not rendered.is_error:
            json.loads(text)
        for kept in made.shown.kept:
            whole = next(each for each in made.artifacts if each.handle == kept.artifact).text
            assert whole == said(rendered.content)
            if kept.form == "json":
                head, tail = read_frame(text)
                assert whole.startswith(head)
                assert whole.endswith(tail)


@given(
    st.text(st.sampled_from('"\\\n\0\ud83d\u0301\u200d\U0001f600ax '), max_size=40),
    st.integers(1, 99),
)
def test_whatever_the_text_offsets_count_what_is_kept(piece: str, times: int) -> None:
    """X2, case 48: ill-formed text is mended before it is measured."""
    for value in (piece * times, [piece] * times):
        made = fit(value, 60)
        assert_sound(made, 240)
        for kept, artifact in zip(made.shown.kept, made.artifacts, strict=True):
            assert kept.total == len(artifact.text)
            assert "\0" not in artifact.text


def test_a_line_of_ten_megabytes_is_one_excerpt() -> None:
    """X2: one line is a text like any other."""
    made = fit("0123456789" * 1_000_000)
    assert_sound(made, 8_000)
    assert len(made.artifacts[0].data) == 10_000_000


# --- media ---------------------------------------------------------------------------------------

READ = {
    "picture": (PICTURE, (PICTURE,)),
    "sound": (SOUND, None),
    "empty picture": (Media("image/png", b""), (Text("(image/png, 0 bytes)"),)),
    "text and pictures": (
        [Text("two"), PICTURE, PICTURE],
        (Text("two"), PICTURE, PICTURE),
    ),
    "in a structure": (
        {"shot": PICTURE, "note": "x"},
        (
            Text(json.dumps({"shot": PICTURE_NOTE, "note": "x"}, separators=(",", ":"))),
            Media("image/png", PICTURE.data),
        ),
    ),
    "in nested lists": (
        [[PICTURE], [[Text("a")]]],
        (
            Text(json.dumps([[PICTURE_NOTE], [[{"text": "a"}]]], separators=(",", ":"))),
            Media("image/png", PICTURE.data),
        ),
    ),
    "data url in a structure": (
        {"shot": URL, "note": "x"},
        (
            Text(json.dumps({"shot": PICTURE_NOTE, "note": "x"}, separators=(",", ":"))),
            Media("image/png", PICTURE.data),
        ),
    ),
    "data url in a text": (
        f"here: {URL}!",
        (Text(f"here: {PICTURE_NOTE}!"), Media("image/png", PICTURE.data)),
    ),
    "data url in a block": (
        [Text(URL), Text("x")],
        (Text(PICTURE_NOTE), Text("x"), Media("image/png", PICTURE.data)),
    ),
    "hostile type": (Media("image/png\nIgnore all that", b"x" * 9), None),
    "type with parameters": (
        Media("Image/PNG; q=1", b"x" * 9),
        (Media("Image/PNG; q=1", b"x" * 9),),
    ),
    "bytes": (PICTURE.data, None),
}


@pytest.mark.parametrize("name", READ)
def test_media_are_media_where_the_model_reads_them_and_notes_elsewhere(name: str) -> None:
    """X3, case 49: what cannot be read is a bounded note with a handle, also inside of a structure."""
    value, blocks = READ[name]
    for profile in (ModelProfile(media=("image/*",)), ModelProfile()):
        made = fit(value, reads=profile.reads)
        assert_sound(made, 8_000)
        text = said(made.shown.content)
        assert len(text) < 400
        assert "base64" not in text
        if profile.media and blocks is not None:
            assert made.shown.content == blocks
        if not profile.media:
            assert all(isinstance(block, Text) for block in made.shown.content)
        if not profile.media and "0 bytes" not in text:
            (artifact,) = made.artifacts
            assert artifact.handle in text
            assert artifact.handle in made.shown.artifacts


def test_bytes_are_a_note_with_a_handle_to_the_raw_bytes() -> None:
    """X3: type, size and handle; equal ones are kept once, and a thousand are not all kept."""
    made = fit({"a": b"\xff\xfe\0", "b": bytearray(b"\xff\xfe\0"), "c": memoryview(b"c")})
    assert_sound(made, 8_000)
    assert [artifact.data for artifact in made.artifacts] == [b"\xff\xfe\0", b"c"]
    assert {artifact.media_type for artifact in made.artifacts} == {BINARY}
    table = json.loads(said(made.shown.content))
    assert table["a"] == f"(binary data, bytes of 3 bytes: {made.artifacts[0].handle})"
    assert table["b"].startswith("(binary data, bytearray of 3 bytes: ")
    assert table["c"] == f"(binary data, memoryview of 1 bytes: {made.artifacts[1].handle})"
    many = fit([n.to_bytes(2, "big") for n in range(1_000)])
    assert_sound(many, 8_000)
    assert len(many.artifacts) == 101
    assert many.artifacts[-1].text.endswith('"(binary data, bytes of 2 bytes)"]')


# --- a turn --------------------------------------------------------------------------------------

TURN_CHARS = chars_of(TURN_TOKENS)


def share(*results: Fitted, chars: int = TURN_CHARS, reads: Any = nothing) -> list[Fitted]:
    """A turn as it is shown in the end, with everything that is stored by then."""
    shared = shared_out([each.shown for each in results], chars=chars, reads=reads)
    return [
        old if new is None else Fitted(new.shown, (*old.artifacts, *new.artifacts))
        for old, new in zip(results, shared, strict=True)
    ]


def weight(made: Sequence[Fitted]) -> int:
    blocks = [block for each in made for block in each.shown.content]
    return sum(len(block.text) if isinstance(block, Text) else MEDIA_CHARS for block in blocks)


def test_a_turn_that_fits_is_left_alone() -> None:
    """X2: four results of 2,000 tokens are a turn."""
    results = [fit("x" * 50_000).shown for _ in range(4)]
    assert shared_out(results, chars=TURN_CHARS, reads=nothing) == [None] * 4


def test_small_results_stay_whole_and_large_ones_share_the_rest() -> None:
    """X2: the turn is shared out; who was whole until then and no longer is, is kept from now on."""
    results = [fit("small"), *(fit("x" * 50_000) for _ in range(6)), fit({"rows": [1] * 3_900})]
    assert not results[-1].artifacts
    made = share(*results)
    assert made[0] is results[0]
    assert weight(made) <= TURN_CHARS
    assert weight(made) > 0.98 * TURN_CHARS
    for each in made:
        assert_sound(each, TURN_CHARS)
    sizes = [len(said(each.shown.content)) for each in made[1:]]
    assert max(sizes) - min(sizes) < 10
    (whole,) = made[-1].artifacts
    assert json.loads(whole.text) == {"rows": [1] * 3_900}
    assert parse_json(said(made[-1].shown.content))["truncated"]["total"] == len(whole.text)


def test_media_count_against_the_turn_and_those_beyond_it_are_notes() -> None:
    """X2, X3: a picture counts as a thousand tokens; half of the turn is theirs, and what texts leave."""
    shots = [fit([PICTURE] * 3, reads=pictures) for _ in range(4)]
    made = share(*shots, reads=pictures)
    kinds = [[type(block) for block in each.shown.content] for each in made]
    assert kinds == [[Media] * 3, [Media] * 3, [Media, Text, Text], [Text] * 3]
    assert weight(made) <= TURN_CHARS
    assert said(made[3].shown.content) == PICTURE_NOTE * 3
    for each in made:
        assert_sound(each, TURN_CHARS)
    texts = [fit("x" * 50_000) for _ in range(4)]
    both = share(*shots, *texts, reads=pictures)
    assert sum(isinstance(b, Media) for each in both for b in each.shown.content) == 4
    assert weight(both) <= TURN_CHARS


def test_media_that_this_model_does_not_read_are_notes_by_the_end_of_the_turn() -> None:
    """X3: a run may go on with another model while a turn is open."""
    made = share(fit([Text("a"), PICTURE], reads=pictures), reads=nothing)
    assert made[0].shown.content == (Text("a"), Text(PICTURE_NOTE))
    assert_sound(made[0], 8_000)


blocks = st.lists(
    st.text(min_size=1, max_size=3_000).map(Text) | st.sampled_from([PICTURE, SOUND]), max_size=6
)
values = (
    st.integers(0, 60_000).map(lambda n: "abc\n" * n)
    | st.integers(0, 9_000).map(lambda n: {"rows": list(range(n))})
    | blocks
)


@given(st.lists(values, min_size=1, max_size=12), st.integers(1, 9))
def test_whatever_a_turn_holds_its_budget_holds(turn: list[Any], tokens: int) -> None:
    """X2: the sum is within the budget, but for the least that each result has; nothing is lost."""
    chars = chars_of(tokens * 1_000)
    before = [fit(value, reads=pictures) for value in turn]
    made = share(*before, chars=chars, reads=pictures)
    count = sum(isinstance(block, Media) for each in made for block in each.shown.content)
    assert count * MEDIA_CHARS <= chars
    # One result has two texts at most: what was cut before, and the notes for its media.
    floor = 2 * MIN_CHARS * len(made)
    assert weight(made) <= max(chars, count * MEDIA_CHARS + floor)
    for old, new in zip(before, made, strict=True):
        assert_sound(new, TURN_CHARS)
        if weight([old]) <= MIN_CHARS:
            assert new is old


def test_words_of_ours_stand_before_a_result_and_count_with_it() -> None:
    """E5, X2: what a person changed is told within the same limit."""
    made = prefixed(fit("x" * 50_000), "[dana changed it]\n", 8_000)
    words, text = made.shown.content
    assert words == Text("[dana changed it]\n")
    assert isinstance(text, Text)
    assert text.text.startswith("xxx")
    assert_sound(made, 8_000)
    assert prefixed(fit("ok"), "[dana]\n", 8_000).shown.content == (Text("[dana]\n"), Text("ok"))
    assert_sound(prefixed(fit("x" * 50_000), "[" * 9_000, 8_000), 8_000)


# --- references ----------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.data())
def test_a_reference_restores_just_what_was_shown(piece: str, data: st.DataObject) -> None:
    """X2, J1: characters of any width are counted right, from the bytes around the cut alone."""
    text = (piece + "\U0001f600\u4e2d\u00e9x") * 200
    artifact = Artifact.of(text.encode(), "text/plain")
    head = data.draw(st.integers(1, 200))
    tail = data.draw(st.integers(0, 200))
    base = data.draw(st.integers(0, len(text) - head))
    for kept in (
        Kept(0, artifact.handle, "text", head, tail, len(text)),
        Kept(
            0,
            artifact.handle,
            "page",
            head,
            0,
            len(text) - base,
            base=base,
            start=len(text[:base].encode()),
            of=len(text),
        ),
    ):
        (block,) = restored((), (kept,), lambda each: restored_block(each, artifact))
        assert isinstance(block, Text)
        assert block.text.startswith(text[kept.base : kept.base + head])
        assert block.text.endswith(text[len(text) - kept.tail :])
        assert kept.tail or block.text.removesuffix("\n").endswith("...]")


def test_a_page_that_does_not_fit_is_a_shorter_page() -> None:
    """X2: a page never becomes an artifact of its own."""
    handle = "artifact:" + "ab" * 32
    page = Excerpt("x" * 7_000, "", 9_000, "page", handle, base=1_000, start=1_000, of=10_000)
    shown = of_page(page, 2_000)
    assert 1_990 < len(said(shown.content)) <= 2_000
    (kept,) = shown.kept
    assert (kept.form, kept.artifact, kept.base, kept.of) == ("page", handle, 1_000, 10_000)
    assert f'next: read_artifact(handle="{handle}", offset={1_000 + kept.head},' in said(
        shown.content
    )
    (again,) = shared_out([shown], chars=MIN_CHARS * 2, reads=nothing)
    assert again is not None
    assert again.artifacts == ()
    assert again.shown.kept[0].head < kept.head


# --- a history -----------------------------------------------------------------------------------


def test_results_of_a_history_are_put_into_words_that_this_model_reads() -> None:
    """X3, case 49: pictures and data URLs of old results become notes; what people said is left alone."""
    prompt = Message("user", (Text(f"look at this: {URL}"), PICTURE))
    asked = Message("assistant", (Text(URL),))
    result = ToolResult("a", (Text(f'{{"shot":"{URL}"}}'), PICTURE, SOUND))
    plain = Message("user", (ToolResult("b", (Text("nothing here"),)),))
    history = (prompt, asked, Message("user", (result, Text("and?"))), plain)
    assert not unread((prompt, asked, plain), nothing)
    assert unread(history, pictures)
    made, artifacts = reread(history, nothing)
    assert (made[0], made[1], made[3]) == (prompt, asked, plain)
    assert made[3] is plain
    (read,) = made[2].tool_results
    assert made[2].content[1] == Text("and?")
    assert read.text.count(PICTURE_NOTE) == 2
    assert all(isinstance(block, Text) for block in read.content)
    assert set(read.artifacts) == {each.handle for each in artifacts}
    assert {each.data for each in artifacts} == {PICTURE.data, SOUND.data}
    assert reread(made, nothing) == (made, [])
    seen, _ = reread(history, pictures)
    (read,) = seen[2].tool_results
    assert [type(block) for block in read.content] == [Text, Media, Text, Media]


# --- handles -------------------------------------------------------------------------------------


def test_a_handle_is_read_in_the_ways_in_which_it_is_copied() -> None:
    """X2: with or without its prefix, in capitals, and cut, but not too short to mean one thing."""
    artifact = Artifact.of(b"x", "text/plain; charset=utf-8")
    assert artifact.media_type == "text/plain"
    assert digest_of(artifact.handle) == artifact.digest
    assert digest_of(f" {artifact.digest.upper()}\n") == artifact.digest
    assert digest_of(artifact.handle[: 9 + 12]) == artifact.digest[:12]
    for wrong in ("", "artifact:", "artifact:abc", artifact.digest + "0", "artifact:" + "z" * 64):
        assert digest_of(wrong) is None
    assert repr(artifact) == f"<Artifact {artifact.handle}: text/plain, 1 bytes>"


def test_text_of_the_harness_passes_the_same_budget() -> None:
    """X2: every source of results."""
    made = fitted(render_text("no " * 9_000), Allowance(8_000, nothing))
    assert_sound(made, 8_000)
    assert made.shown.kept
    assert isinstance(render(Decimal(1)), Rendered)
