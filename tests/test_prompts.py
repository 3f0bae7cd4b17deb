"""Questions to a person: what keys make of a line, what a schema makes of it, and how a question is asked."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Decision, Pending, PutOff
from remit.analysis.cells import cells
from remit.analysis.layout import Glyphs, Row, plain
from remit.cli.editor import Editor
from remit.cli.forms import Misfit, checked, fields_of, hint_of, is_secret, read
from remit.cli.keyboard import Press, Presses
from remit.cli.prompts import Questions
from test_cells import NASTY, acts

NOW = datetime(2026, 1, 1, tzinfo=UTC)


# --- keys ----------------------------------------------------------------------------------------


def presses(*chunks: bytes) -> list[Press]:
    parse = Presses()
    return [press for chunk in chunks for press in parse(chunk)]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"a"], [Press("text", "a")]),
        ([b"ab\r"], [Press("text", "ab"), Press("enter")]),
        (["é日".encode()[:1], "é日".encode()[1:]], [Press("text", "é日")]),
        ([b"\x7f\x15\x04"], [Press("backspace"), Press("cut to home"), Press("end of input")]),
        ([b"\x1b[A\x1b[3~\x1bOF"], [Press("up"), Press("delete"), Press("end")]),
        ([b"\x1b[", b"D"], [Press("left")]),
        ([b"\x1b"], [Press("escape")]),
        ([b"\x1b[15~x"], [Press("text", "x")]),
        ([b"\x1b[200~a\rb\x1b[201~"], [Press("paste", "a\rb")]),
        ([b"\x1b[200~a", b"b\x1b[201~c"], [Press("paste", "ab"), Press("text", "c")]),
        ([b"\xff\x00"], [Press("text", "\ufffd")]),
    ],
)
def test_bytes_of_a_terminal_are_keys(chunks: list[bytes], expected: list[Press]) -> None:
    assert presses(*chunks) == expected


@given(st.binary(max_size=40), st.integers(0, 40))
def test_no_bytes_confuse_the_keys(read_: bytes, cut: int) -> None:
    """What was typed holds no control character, in whatever pieces it comes."""
    for press in presses(read_[:cut], read_[cut:]):
        assert press.name == "paste" or press.text.isprintable()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["abc"], "abc"),
        (["abc", "left", "X"], "abXc"),
        (["abc", "backspace", "backspace"], "a"),
        (["abc", "home", "delete"], "bc"),
        (["abc", "home", "X", "end", "Y"], "XabcY"),
        (["one two", "cut word"], "one "),
        (["one two", "left", "cut to end"], "one tw"),
        (["one two", "left", "cut to home"], "o"),
        (["backspace", "left", "right", "delete", "cut word", "a"], "a"),
        (["up", "up", "up", "!"], "first!"),
        (["draft", "up", "down"], "draft"),
        (["nothing known"], "nothing known"),
    ],
)
def test_a_line_is_edited_as_people_know_it(keys: list[str], text: str) -> None:
    editor = Editor(["first", "second"])
    named = {"left", "right", "up", "down", "home", "end", "backspace", "delete"}
    for key in keys:
        is_key = key in named or key.startswith("cut ")
        editor.take(Press(key) if is_key else Press("text", key))
    assert editor.text == text


def test_what_is_pasted_is_text_and_ends_no_line() -> None:
    editor = Editor()
    editor.take(Press("paste", "a\r\nb\rc\x1b[31m"))
    assert editor.text == "a\nb\nc\x1b[31m"
    assert editor.shown(40) == ("a⏎b⏎c\\x1b[31m", 13)


def test_a_secret_is_shown_as_stars() -> None:
    editor = Editor(secret=True)
    editor.take(Press("text", "hunter2"))
    assert editor.shown(40) == ("*******", 7)


@given(st.text(max_size=40), st.integers(0, 40), st.integers(2, 20))
def test_the_part_of_a_line_that_is_shown_fits_and_holds_the_cursor(
    text: str, lefts: int, columns: int
) -> None:
    """D2: however long the line is."""
    editor = Editor()
    editor.take(Press("text", text))
    for _ in range(lefts):
        editor.take(Press("left"))
    shown, before = editor.shown(columns)
    assert before < columns
    assert cells(shown) <= columns


# --- schemas -------------------------------------------------------------------------------------

STRING: dict[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (STRING, " as typed ", " as typed "),
        (STRING, "true", "true"),
        (STRING, "", ""),
        ({"type": "boolean"}, "y", True),
        ({"type": "boolean"}, " No ", False),
        ({"type": "integer"}, "42", 42),
        ({"type": "integer"}, "4.0", 4),
        ({"type": "number"}, "4.20", Decimal("4.20")),
        ({"type": "number"}, "1e3", 1000),
        ({"enum": ["red", "green", 3]}, "green", "green"),
        ({"enum": ["red", "green", 3]}, "2", "green"),
        ({"enum": ["red", "green", 3]}, "3", 3),
        ({"const": "yes"}, "yes", "yes"),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "null"}, "null", None),
        ({}, '"text"', "text"),
        ({"type": ["string", "null"]}, "", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "", None),
        ({"$ref": "#/$defs/C", "$defs": {"C": {"enum": ["a", "b"]}}}, "b", "b"),
    ],
)
def test_a_value_is_written_as_people_write_it(schema: Any, text: str, value: Any) -> None:
    assert read(schema, text) == value
    assert type(read(schema, text)) is type(value)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "boolean"}, "maybe"),
        ({"type": "integer"}, "4.5"),
        ({"type": "integer"}, "four"),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "inf"),
        ({"type": "number"}, ""),
        ({"enum": ["red", "green"]}, "3"),
        ({"enum": ["red", "green"]}, "blue"),
        ({"type": "object"}, "{"),
        ({"type": "array"}, "\ud800"),
    ],
)
def test_what_is_no_value_is_told_and_not_guessed(schema: Any, text: str) -> None:
    with pytest.raises(Misfit):
        read(schema, text)


def test_a_value_that_the_schema_refuses_is_asked_for_again() -> None:
    with pytest.raises(Misfit, match="shorter"):
        checked({"type": "string", "minLength": 3}, "ab")
    assert checked({"type": "string", "minLength": 2}, "ab") == "ab"


def test_an_object_of_simple_parts_is_asked_for_part_by_part() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"name": STRING, "age": {"$ref": "#/$defs/Age"}},
        "required": ["name"],
        "$defs": {"Age": {"type": "integer", "minimum": 0}},
    }
    fields = fields_of(schema)
    assert fields is not None
    assert [(field.name, field.required, hint_of(field.schema)) for field in fields] == [
        ("name", True, "text"),
        ("age", False, "a whole number, 0 or more"),
    ]
    deep = {"type": "object", "properties": {"x": {"type": "array"}}}
    free = {"type": "object", "properties": {"x": STRING}, "additionalProperties": True}
    assert [fields_of(each) for each in (deep, free, STRING, {"type": "object"})] == [None] * 4


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"enum": ["red", 3]}, "1) red, 2) 3"),
        ({"type": "boolean"}, "y or n"),
        ({"type": "number", "minimum": 0, "maximum": 1}, "a number from 0 to 1"),
        ({"type": ["integer", "null"]}, "a whole number, or nothing"),
        ({"oneOf": [STRING, {"type": "integer"}]}, "JSON"),
    ],
)
def test_the_hint_says_how_an_answer_is_written(schema: Any, hint: str) -> None:
    assert hint_of(schema) == hint


def test_secrets_are_known_by_their_schema() -> None:
    assert is_secret({"type": "string", "format": "password"})
    assert is_secret({"type": "string", "writeOnly": True})
    assert not is_secret(STRING)


# --- questions -----------------------------------------------------------------------------------


class Scripted:
    """An asker whose person does what is written here."""

    glyphs = Glyphs.of("utf-8")

    def __init__(self, *answers: str | None, columns: int | None = 90, height: int = 24) -> None:
        self.columns = columns
        self.height = height
        self.shown: list[str] = []
        self._answers = list(answers)
        self.secrets: list[bool] = []

    def show(self, rows: Sequence[Row]) -> None:
        self.shown += [plain(row) for row in rows]

    async def key(self, wordings: Sequence[str], keys: str) -> str:
        assert all(f"[{key}]" in wordings[0] for key in keys)
        self.shown.append("KEY")
        return self._answers.pop(0) or ""

    async def line(self, *, secret: bool = False) -> str | None:
        self.secrets.append(secret)
        return self._answers.pop(0)

    async def said(self, history: Sequence[str]) -> str | None:
        return self._answers.pop(0) if len(history) < 100 else None


def pending(kind: Any = "approval", **fields: Any) -> Pending:
    given: dict[str, Any] = {
        "id": "3c9e",
        "kind": kind,
        "run_id": "r1",
        "path": ("desk", "payments"),
        "tool": "refund",
        "arguments": '{"amount":"4.20","order_id":"1042"}',
        "summary": "Refund 4.20 on order 1042",
        "token": "secret-token",
        "expires_at": NOW + timedelta(minutes=59),
        **fields,
    }
    return Pending(**given)


def asking(asker: Scripted, words: str = "") -> Questions:
    return Questions(
        asker, last_words=lambda _: words, effect_of=lambda _: "confirm", now=lambda: NOW
    )


def ask(asker: Scripted, about: Pending, words: str = "") -> Any:
    questions = asking(asker, words)
    act = questions.confirm if about.kind == "approval" else questions.answer
    return asyncio.run(act(about))


def test_an_approval_shows_what_it_is_about_and_who_asks() -> None:
    """D3: summary, exact arguments, effect, expiry, and the model's words as the model's."""
    asker = Scripted("a")
    decision = ask(asker, pending(), "It is late.\nI propose a refund.")
    assert isinstance(decision, Decision)
    assert decision.approve
    assert decision.by
    assert asker.shown == [
        "⏸ needs your decision  desk > payments · effect confirm · expires in 59 min · 3c9e",
        "  │ Refund 4.20 on order 1042",
        '  │ refund  {"amount":"4.20","order_id":"1042"}',
        "  the model's words:",
        "  │ It is late.",
        "  │ I propose a refund.",
        "KEY",
        f"  approved by {decision.by}",
    ]
    assert "secret-token" not in "".join(asker.shown)


def test_a_rejection_carries_its_reason() -> None:
    asker = Scripted("r", "too much ")
    decision = ask(asker, pending())
    assert (decision.approve, decision.note) == (False, "too much")
    assert asker.shown[-1].startswith("  rejected by ")
    assert asker.shown[-1].endswith(": too much")


def test_whoever_turns_back_from_a_rejection_decides_anew() -> None:
    assert ask(Scripted("r", None, "a"), pending()).approve


@pytest.mark.parametrize("key", ["l", None])
def test_a_question_can_be_left_for_later(key: str | None) -> None:
    asker = Scripted(key)
    with pytest.raises(PutOff):
        ask(asker, pending())
    assert asker.shown[-1] == "  left for later"


def test_details_show_every_digit_as_it_will_run() -> None:
    asker = Scripted("d", "a")
    ask(asker, pending(arguments='{"amount":12345678901234567890.10,"order_id":"1042"}'))
    assert '  │   "amount": 12345678901234567890.10,' in asker.shown
    assert any("pending 3c9e" in row for row in asker.shown)


def test_nothing_is_approved_that_was_not_shown_whole() -> None:
    """D3: arguments behind the end of the window are shown before an approval counts."""
    hidden = '{"note":"' + "x" * 4_000 + '","to":"mallory"}'
    asker = Scripted("a", "a")
    assert ask(asker, pending(arguments=hidden)).approve
    first, second = (index for index, row in enumerate(asker.shown) if row == "KEY")
    assert not any("mallory" in row for row in asker.shown[:first])
    assert any("more rows of arguments" in row for row in asker.shown[:first])
    assert any("mallory" in row for row in asker.shown[first:second])


@pytest.mark.parametrize("columns", [None, 80, 20])
@pytest.mark.parametrize("text", NASTY)
def test_no_text_in_a_question_acts_or_stands_at_the_margin(text: str, columns: int | None) -> None:
    """D1: a model cannot fake a question, a decision or an end in what is shown of its call."""
    fake = f"{text}\n⏸ needs your decision\n✓ approved by you\n[a]pprove"
    asker = Scripted("d", "a", columns=columns)
    about = pending(summary=fake, tool=f"refund{text}", path=("desk", f"x{text}"))
    ask(asker, about, words=fake)
    assert all(acts(row) == [] for row in asker.shown)
    headings = [row for row in asker.shown if not row.startswith("  ") and row != "KEY"]
    assert len(headings) == 1
    for row in asker.shown[1:]:
        assert row == "KEY" or row.startswith("  ")


def test_questions_come_one_at_a_time() -> None:
    """Parallel calls ask one after the other; what is withdrawn meanwhile gives its turn away."""

    class Slow(Scripted):
        asked = 0

        async def key(self, wordings: Sequence[str], keys: str) -> str:
            self.asked += 1
            assert self.asked == 1
            await asyncio.sleep(0)
            self.asked -= 1
            return await super().key(wordings, keys)

    async def main() -> list[Any]:
        asker = Slow("a", "a", "l")
        questions = asking(asker)
        acts_ = [asyncio.create_task(questions.confirm(pending(id=str(n)))) for n in range(4)]
        await asyncio.sleep(0)
        acts_[1].cancel()
        return await asyncio.gather(*acts_, return_exceptions=True)

    ends = asyncio.run(main())
    assert [type(end) for end in ends] == [Decision, asyncio.CancelledError, Decision, PutOff]


def test_a_tool_is_answered_by_its_schema_and_asks_until_it_fits() -> None:
    asker = Scripted("", "four", "9", "4")
    about = pending("input", summary="How many?", schema={"type": "integer", "maximum": 5})
    assert ask(asker, about) == 4
    assert asker.shown[:3] == [
        "⏸ refund asks you  desk > payments · effect confirm · expires in 59 min · 3c9e",
        "  │ How many?",
        "  a whole number, 5 or less:",
    ]
    assert sum("that does not do" in row for row in asker.shown) == 3


def test_an_object_is_asked_for_part_by_part_and_checked_as_a_whole() -> None:
    schema = {
        "type": "object",
        "properties": {"name": STRING, "age": {"type": "integer"}, "nick": STRING},
        "required": ["name", "age"],
    }
    asker = Scripted("Ann", "old", "40", "")
    assert ask(asker, pending("input", schema=schema)) == {"name": "Ann", "age": 40}


def test_a_password_is_not_shown() -> None:
    asker = Scripted("hunter2")
    schema = {"type": "string", "format": "password"}
    assert ask(asker, pending("input", schema=schema)) == "hunter2"
    assert asker.secrets == [True]
    assert "hunter2" not in "".join(asker.shown)


def test_an_answer_can_be_left_for_later() -> None:
    with pytest.raises(PutOff):
        ask(Scripted(None), pending("input", schema=STRING))
