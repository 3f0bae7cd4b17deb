"""Whatever a tool returns or raises becomes content that can be sent."""

import array
import collections
import hashlib
import io
import json
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn
from unittest.mock import MagicMock
from uuid import UUID

import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.errors import ToolError
from remit.messages import Media, Text
from remit.render import Rendered, is_quick, render, render_error


def said(rendered: Rendered) -> str:
    return "".join(block.text for block in rendered.content if isinstance(block, Text))


def assert_sendable(rendered: Rendered) -> None:
    """Well-formed, never blank, and everything that is named is there."""
    assert rendered.content
    for block in rendered.content:
        if isinstance(block, Text):
            assert block.text.strip()
            assert "\0" not in block.text
            block.text.encode()
        else:
            assert block.data
    for artifact in rendered.found:
        assert artifact.handle in said(rendered)


# --- what is sent --------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


class Kind(StrEnum):
    LATE = "late"


class Level(IntEnum):
    HIGH = 3


class Access(IntFlag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Order:
    id: str
    total: Decimal
    placed: date
    tags: set[str] = field(default_factory=lambda: {"b", "a"})


class Model(pydantic.BaseModel):
    amount: Decimal
    order: Order | None = None
    at: datetime | None = None
    raw: bytes = b""
    secret: pydantic.SecretStr = pydantic.SecretStr("hidden")

    @pydantic.field_serializer("at")
    def _at(self, at: datetime | None) -> str | None:
        return at and f"{at:%d.%m.%Y}"


@pydantic.dataclasses.dataclass
class Line:
    price: Decimal


class Rows(pydantic.RootModel[list[Decimal]]):
    pass


class Scalar:
    """What a number of an array library looks like."""

    def tolist(self) -> object:
        return 7


THREE_BYTES = (
    f"(binary data, bytes of 3 bytes: artifact:{hashlib.sha256(bytes([255, 254, 0])).hexdigest()})"
)
NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
ORDER = Order("1042", Decimal("12.50"), date(2026, 8, 1))
ORDER_JSON = '{"id":"1042","total":12.50,"placed":"2026-08-01","tags":["a","b"]}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Order 1042 is late.", "Order 1042 is late."),
        ('{"a": 1}', '{"a": 1}'),
        (" padded\n", " padded\n"),
        (Kind.LATE, "late"),
        ("null", "null"),
        (None, "null"),
        ([], "[]"),
        ((), "[]"),
        (set[int](), "[]"),
        ({}, "{}"),
        (0, "0"),
        (False, "false"),
        (0.1, "0.1"),
        (Decimal("1.10"), "1.10"),
        (Decimal("NaN"), '"NaN"'),
        (Decimal("sNaN"), '"NaN"'),
        (Decimal("-Infinity"), '"-Infinity"'),
        (float("nan"), '"NaN"'),
        ([float("inf"), -float("inf"), 1.5], '["Infinity","-Infinity",1.5]'),
        ({"a": "é\u2028", "b": [1, None]}, '{"a":"é\u2028","b":[1,null]}'),
        ({1: "a", None: "b", False: "c", 2.5: "d"}, '{"1":"a","null":"b","false":"c","2.5":"d"}'),
        (
            {(1, 2): "a", Colour.RED: "b", NOON.date(): {1}},
            '{"[1,2]":"a","red":"b","2026-08-01":[1]}',
        ),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a", "é"}), '["a","b","é"]'),
        ({"k": 1}.keys(), '["k"]'),
        (Colour.RED, '"red"'),
        (Colour.PAIR, "[1,2]"),
        (Level.HIGH, "3"),
        ([Access.READ | Access.WRITE], "[3]"),
        (Point(1, 2.5), "[1,2.5]"),
        (ORDER, ORDER_JSON),
        ([ORDER, ORDER], f"[{ORDER_JSON},{ORDER_JSON}]"),
        (
            Model(amount=Decimal("1.10"), order=ORDER, at=NOON, raw=b"\xff\xfe\0"),
            (
                f'{{"amount":1.10,"order":{ORDER_JSON},"at":"01.08.2026",'
                f'"raw":"{THREE_BYTES}","secret":"**********"}}'
            ),
        ),
        (Line(Decimal("2.50")), '{"price":2.50}'),
        (Rows([Decimal("2.50")]), "[2.50]"),
        (NOON, '"2026-08-01T12:00:00+00:00"'),
        (time(12, 30), '"12:30:00"'),
        (timedelta(hours=1), '"PT1H"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (PurePosixPath("/a/b"), '"/a/b"'),
        ({"path": Path("a")}, '{"path":"a"}'),
        (ip_address("127.0.0.1"), '"127.0.0.1"'),
        (b"\xff\xfe\0", f'"{THREE_BYTES}"'),
        (b"", '"(binary data, bytes of 0 bytes)"'),
        ({"data": bytearray(4), "view": memoryview(b"12345")}, None),
        (range(3), "[0,1,2]"),
        (collections.deque([1, Decimal(2)]), "[1,2]"),
        (collections.OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (collections.Counter("aab"), '{"a":2,"b":1}'),
        (collections.ChainMap({"a": 1}), '{"a":1}'),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        (array.array("i", [1, 2]), "[1,2]"),
        ({"sum": Scalar()}, '{"sum":7}'),
        ([Text("x"), "y"], '[{"text":"x"},"y"]'),
    ],
)
def test_a_value_is_sent_as_it_stands_or_as_compact_json(value: object, text: str | None):
    """C4: a `str` as it stands, anything else as JSON."""
    rendered = render(value)
    assert_sendable(rendered)
    assert not rendered.is_error
    if text is not None:
        assert said(rendered) == text
    if not isinstance(value, str):
        json.loads(said(rendered))


def test_no_two_ways_of_saying_nothing_look_alike():
    """C4: no output, [], {} and None stay distinguishable, and none is blank."""
    nothing = ["", " ", "\n", "\n ", "\t" * 500, " " * 500, "\u200b", "\x07", None, [], {}, [""], 0]
    shown = [said(render(value)) for value in nothing]
    assert len(set(shown)) == len(nothing)
    assert shown[0] == "(empty text)"
    assert shown[3] == '(blank text: "\\n ")'
    for value in nothing:
        assert_sendable(render(value))


def test_one_visible_character_in_a_megabyte_of_blanks_is_enough():
    """C4: a long text is looked through in steps, and none of them is left out."""
    for at in (0, 499_999, 500_000, 999_999):
        text = " " * at + "x" + "\n" * (999_999 - at)
        assert said(render(text)) == text
    assert said(render(" " * 1_000_000)).startswith("(blank text of 1000000 characters")


def test_half_a_character_and_a_nul_are_replaced():
    """C4, case 48: results are always well-formed."""
    assert said(render("ok \ud83d end\0")) == "ok \ufffd end\ufffd"
    assert said(render("\ud83d\ude00")) == "\U0001f600"
    assert json.loads(said(render({"a\ud83d": ["\ude00", Decimal(1)]}))) == {
        "a\ufffd": ["\ufffd", 1]
    }
    assert said(render(Text("x\0\ud83d"))) == "x\ufffd\ufffd"
    assert said(render_error(ValueError("x\0\ud83d"))) == "Error: ValueError: x\ufffd\ufffd"


def test_blocks_stay_blocks():
    """C4: text and media that a tool returns pass as they are."""
    picture = Media("image/png", b"\x89PNG")
    assert render(picture).content == (picture,)
    assert render(Text("a")).content == (Text("a"),)
    assert render([Text("a"), picture, Text("b")]).content == (Text("a"), picture, Text("b"))
    assert render((picture, Text(""))).content == (picture, Text("(empty text)"))
    assert render(Media("image/png", b"")).content == (Text("(image/png, 0 bytes)"),)


# --- what cannot be sent -------------------------------------------------------------------------


def explode(*_: object) -> NoReturn:
    raise RuntimeError("boom")


def leave(*_: object) -> NoReturn:
    raise SystemExit(3)


def unreadable(base: type, *names: str, how: Callable[..., NoReturn] = explode) -> Any:
    """A subclass that fails whenever one of the named methods is used."""
    return type("Hostile", (base,), dict.fromkeys(names, how))


class Lying:
    __class__ = property(explode)  # pyright: ignore[reportIncompatibleMethodOverride] - hostile on purpose


class Renamed(type):
    __name__ = property(explode)  # pyright: ignore[reportAssignmentType] - hostile on purpose


class Nameless(metaclass=Renamed):
    pass


@dataclass
class Hostile:
    inner: object

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError("boom")


@dataclass
class Boxed:
    inner: object


class Endless(pydantic.BaseModel):
    inner: Any = None


def loop(kind: type) -> Any:
    made: Any = kind()
    if isinstance(made, dict):
        made["self"] = made
    else:
        made.append(made)
    return made


def endless_model() -> Endless:
    model = Endless()
    model.inner = model
    return model


def deep(depth: int, wrap: Callable[[object], object]) -> object:
    value: object = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def numbers() -> Iterator[int]:
    yield 1


HOSTILE: dict[str, Callable[[], object]] = {
    "object": object,
    "function": lambda: explode,
    "class": lambda: Order,
    "module": lambda: json,
    "not implemented": lambda: NotImplemented,
    "exception": lambda: ValueError("returned, not raised"),
    "fraction": lambda: Fraction(1, 3),
    "iterator": lambda: iter([1]),
    "generator": numbers,
    "generator inside": lambda: {"rows": numbers()},
    "map": lambda: map(str, [1]),
    "file": lambda: io.BytesIO(b"x"),
    "list in itself": lambda: loop(list),
    "dict in itself": lambda: loop(dict),
    "deque in itself": lambda: loop(collections.deque),
    "model in itself": endless_model,
    "deep list": lambda: deep(100_000, lambda inner: [inner]),
    "deep dict": lambda: deep(100_000, lambda inner: {"a": inner}),
    "deep dataclass": lambda: deep(5_000, Boxed),
    "deep sets": lambda: deep(5_000, lambda inner: frozenset([inner, None])),
    "huge integer": lambda: 10**5_000,
    "huge integer inside": lambda: [Decimal(1), 10**5_000],
    "endless range": lambda: range(10**30),
    "long range": lambda: range(10**9),
    "keys alike": lambda: {1: Decimal(1), "1": 2},
    "key without words": lambda: {object(): 1},
    "str": unreadable(str, "__str__", "__repr__", "__len__", "__eq__", "__hash__"),
    "object str": unreadable(object, "__str__", "__repr__"),
    "getattr": unreadable(object, "__getattribute__"),
    "dict items": lambda: unreadable(dict, "items", "keys", "__iter__", "__len__")(a=1),
    "list iter": lambda: unreadable(list, "__iter__", "__len__", "__getitem__")([1]),
    "set iter": lambda: unreadable(set, "__iter__", "__len__")([1]),
    "sequence": unreadable(collections.UserList, "__len__", "__iter__", "__getitem__"),
    "mapping": unreadable(collections.UserDict, "items", "__iter__", "__getitem__"),
    "int": unreadable(int, "__repr__", "__str__", "__bool__", "__eq__", "__hash__"),
    "float": unreadable(float, "__repr__", "__str__", "__float__", "__eq__", "__hash__"),
    "leaves": lambda: unreadable(dict, "items", "__iter__", how=leave)(a=1),
    "tolist leaves": unreadable(object, "tolist", how=leave),
    "tolist itself": unreadable(object, "tolist", how=lambda self: self),
    "class property": Lying,
    "nameless": Nameless,
    "nameless inside": lambda: [Nameless()],
    "dataclass": lambda: Hostile(1),
    "media": lambda: Media(None, b""),  # pyright: ignore[reportArgumentType] - hostile on purpose
    "media data": lambda: Media("image/png", None),  # pyright: ignore[reportArgumentType] - hostile on purpose
    "text": lambda: Text(7),  # pyright: ignore[reportArgumentType] - hostile on purpose
    "texts": lambda: [Text("a"), Text(None)],  # pyright: ignore[reportArgumentType] - hostile on purpose
    "released view": lambda: (view := memoryview(b"x")).release() or view,
    "mock": MagicMock,
    "mocks": lambda: {"a": [MagicMock()]},
    "half a pair": lambda: "\ud83d" * 10_000,
    "half pairs in keys": lambda: {"\ud83d" * 9_000: Decimal(1)},
    "nuls": lambda: "\0" * 10_000,
    "marks alone": lambda: "\u0301" * 10_000,
    "joiners alone": lambda: "\u200d" * 10_000,
    "blanks": lambda: "\n" * 10_000,
    "quotes": lambda: ['"' * 10_000],
    "backslashes": lambda: ["\\" * 10_000],
    "controls": lambda: ["\x01" * 10_000],
    "emoji": lambda: ["\U0001f469\u200d\U0001f680\U0001f3fd" * 5_000],
    "many blanks": lambda: [""] * 10_000,
    "long type name": type("T" * 100_000, (), {}),
    "bytes": lambda: b"\xff" * 100_000,
    "many texts": lambda: [Text("")] * 5_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_value_makes_rendering_raise(name: str):
    """C1, C4: unserialisable results become that call's error, whatever they do."""
    rendered = render(HOSTILE[name]())
    assert_sendable(rendered)
    if rendered.is_error:
        assert said(rendered).startswith("Error: the tool returned a value of type ")


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("generator", "generator", "can be read only once"),
        ("generator inside", "dict", "generator can be read only once"),
        ("list in itself", "list", "contains itself"),
        ("deque in itself", "deque", "contains itself"),
        ("nameless", "unknown", "cannot be written"),
        ("object", "object", "unknown type"),
        ("keys alike", "dict", "two keys are both written '1'"),
        ("tolist leaves", "Hostile", "3"),
        ("getattr", "Hostile", "boom"),
        ("huge integer", "int", "4300 digits"),
        ("long range", "range", "1000000000 items"),
    ],
)
def test_an_unserialisable_value_is_an_error_that_says_why(name: str, kind: str, why: str):
    """C1: the model and the tool's author can act on the text."""
    rendered = render(HOSTILE[name]())
    assert rendered.is_error
    start = f"Error: the tool returned a value of type {kind} that cannot be written as JSON: "
    assert said(rendered).startswith(start)
    assert why in said(rendered)


def test_an_iterator_is_not_consumed():
    """C4: looking at a result does not use it up."""
    rows = numbers()
    render([rows])
    assert list(rows) == [1]


def test_a_coroutine_that_was_not_awaited_is_an_error():
    """C1: a forgotten `await` is told, not sent as text."""

    async def status() -> str:
        return "late"

    pending = status()
    rendered = render(pending)
    pending.close()
    assert rendered.is_error
    assert "coroutine" in said(rendered)


def test_a_model_that_no_longer_fits_its_schema_is_rendered_without_a_warning():
    """C4: what the value is counts, not what was declared."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Line.__new__(Line)
        model.price = "free"  # pyright: ignore[reportAttributeAccessIssue] - hostile on purpose
        assert said(render(model)) == '{"price":"free"}'


def test_the_users_interrupt_passes():
    """K1: Ctrl-C is not a fault of the value."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        render(unreadable(object, "tolist", how=interrupt)())
    with pytest.raises(KeyboardInterrupt):
        render_error(unreadable(ValueError, "__str__", how=interrupt)())


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("no order 1042"), "Error: no order 1042"),
        (ToolError("Error: no order 1042"), "Error: no order 1042"),
        (ToolError(""), "Error: the tool failed without a message"),
        (ToolError(" \n"), "Error: the tool failed without a message"),
        (ValueError("bad"), "Error: ValueError: bad"),
        (ValueError(), "Error: ValueError"),
        (KeyError("order"), "Error: KeyError: 'order'"),
        (SystemExit(3), "Error: SystemExit: 3"),
        (TimeoutError(), "Error: TimeoutError"),
        (
            ExceptionGroup("two", [ValueError("a"), ExceptionGroup("in", [ToolError("b")])]),
            (
                "Error: ExceptionGroup: two (2 sub-exceptions): ValueError: a; "
                "ExceptionGroup: in (1 sub-exception): b"
            ),
        ),
        (
            unreadable(ValueError, "__str__")(),
            "Error: the tool failed with an error that cannot be read",
        ),
        (
            unreadable(ToolError, "__str__", how=leave)(),
            "Error: the tool failed with an error that cannot be read",
        ),
    ],
)
def test_an_exception_becomes_a_text_that_begins_with_error(error: BaseException, text: str):
    """C1: where the wire has no error flag, the text says it."""
    rendered = render_error(error)
    assert rendered.is_error
    assert said(rendered) == text
    assert_sendable(rendered)


def test_hidden_details_stay_hidden_but_a_tool_error_speaks():
    """C1: `errors="hidden"` is for accidents; a `ToolError` is meant for the model."""
    secret = ValueError("password=hunter2")
    rendered = render_error(secret, hidden=True)
    assert said(rendered) == "Error: the tool failed; its author hides the details."
    assert rendered.is_error
    group = ExceptionGroup("password", [ToolError("hunter2")])
    assert said(render_error(group, hidden=True)) == said(rendered)
    assert said(render_error(ToolError("no order"), hidden=True)) == "Error: no order"


@given(st.text())
def test_any_message_is_an_error(message: str):
    """C1, C4: error texts are well-formed too."""
    for error in (ValueError(message), ToolError(message * 50)):
        rendered = render_error(error)
        assert_sendable(rendered)
        assert rendered.is_error
        assert said(rendered).startswith("Error:")


# --- any value -----------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.text()
    | st.binary()
    | st.dates()
    | st.uuids(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers() | st.dates(), inner)
        | st.tuples(inner, inner)
        | st.frozensets(st.text() | st.integers())
    ),
    max_leaves=30,
)


@given(json_values)
def test_whatever_the_value_it_is_sendable_and_json_parses(value: object):
    """C4: well-formed, never blank."""
    rendered = render(value)
    assert_sendable(rendered)
    if not isinstance(value, str) and not rendered.is_error:
        json.loads(said(rendered))


@given(json_values)
def test_looking_whether_a_value_is_quick_changes_nothing_and_never_raises(value: object):
    """C6: what is found to be little work is rendered on the event loop."""
    before = repr(value)
    assert is_quick(value) in (True, False)
    assert repr(value) == before


@pytest.mark.parametrize("name", HOSTILE)
def test_no_code_of_a_value_runs_to_find_out_whether_it_is_quick(name: str):
    """C1, C6: nothing of what may fail or last is done on the event loop."""
    is_quick(HOSTILE[name]())


class Slow(Exception):
    def __str__(self) -> str:
        raise AssertionError("asked for its words")


class Computing(pydantic.BaseModel):
    a: int = 1

    @pydantic.computed_field
    @property
    def b(self) -> int:
        raise AssertionError("computed")


class Serialising(pydantic.BaseModel):
    a: int = 1

    @pydantic.model_serializer
    def _all(self) -> dict[str, int]:
        raise AssertionError("serialised")


class Open(pydantic.BaseModel, extra="allow"):
    pass


@dataclass
class Reading:
    a: int

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("read")


@dataclass
class Derived:
    a: int

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - hostile on purpose
        raise AssertionError("asked what it is")


class Unusual(Enum):
    A = 1

    @property
    def value(self) -> Any:
        raise AssertionError("asked for its value")


class Grouped(ExceptionGroup[Exception]):
    exceptions = property(explode)  # pyright: ignore[reportIncompatibleMethodOverride] - hostile on purpose


OWN_CODE: dict[str, Callable[[], object]] = {
    "error": Slow,
    "error in a group": lambda: ExceptionGroup("g", [ValueError("a"), Slow()]),
    "argument of an error": lambda: ValueError(Order("1", Decimal(1), date(2026, 1, 1))),
    "name of an error": lambda: Renamed("Odd", (Exception,), {})("a"),
    "members of a group": lambda: Grouped("g", [ValueError("a")]),
    "computed field": Computing,
    "serializer": Serialising,
    "field serializer": lambda: Model(amount=Decimal(1)),
    "attributes": lambda: Reading(1),
    "class": lambda: Derived(1),
    "value of an enum": lambda: Unusual.A,
}


@pytest.mark.parametrize("name", OWN_CODE)
def test_what_has_code_of_its_own_is_not_quick(name: str):
    """C6, C1: nobody can tell how long it takes to say what it is, so it is not asked on the event loop."""
    assert not is_quick(OWN_CODE[name]())
    assert not is_quick([OWN_CODE[name]()])


@pytest.mark.parametrize(
    "value",
    [
        Open.model_validate({"rows": "x" * 70_000}),
        "x" * 70_000,
        ["x" * 7_000] * 10,
        list(range(2_000)),
        {"rows": [[{}] * 40] * 40},
        b"x" * 70_000,
        Media("image/png", b"x" * 70_000),
        [Text("x" * 70_000)],
        10**9_000,
        loop(list),
        loop(dict),
        numbers(),
        object(),
        ValueError("x" * 70_000),
        UUID(int=1),
        ORDER.__class__("x" * 70_000, Decimal(1), date(2026, 8, 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_be_much_work_is_not_quick(value: object):
    """C6: no work of ours above 5 ms is done on the event loop."""
    assert not is_quick(value)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 60_000,
        None,
        {"a": [1, 2.5, Decimal(3), None, True, NOON, Colour.RED]},
        ORDER,
        Line(Decimal(1)),
        (Text("a"), Media("image/png", b"x")),
        ValueError("bad"),
        ToolError("no order"),
        KeyError("a"),
        OSError(2, "no such file"),
        ExceptionGroup("two", [ValueError("a"), ToolError("b")]),
        Kind.LATE,
        Level.HIGH,
        Open.model_validate({"rows": [1, "x"]}),
        Rows([Decimal(1)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_tools_mostly_return_is_quick(value: object):
    """C6: a result of everyday size takes no trip through a thread."""
    assert is_quick(value)


@given(st.sets(st.text() | st.integers() | st.tuples(st.integers(), st.text())))
def test_a_set_is_written_alike_whatever_its_order(items: set[object]):
    """X1: equal results are equal bytes in every process."""
    assert render(items) == render(dict.fromkeys(sorted(items, key=repr)).keys())
