"""From the text of a call to values: what fits, what is coerced, what is refused (C2)."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from remit.canonical import canonical, parse_json
from remit.tools import Arguments, BadArguments, Tool, near_matches, tool

JUNK = "x" * 2_000_000


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Line(BaseModel):
    sku: str
    count: int = 1
    price: Decimal | None = None
    parts: Optional["list[Line]"] = None


@dataclass
class Point:
    x: int
    y: int = 0


class Filters(TypedDict, total=False):
    limit: int


class Cat(BaseModel):
    kind: Literal["cat"]
    weight: Decimal


class Dog(BaseModel):
    kind: Literal["dog"]
    weight: str


def taking(annotation: Any) -> Tool[..., Any]:
    """A tool with one parameter `x` of this type."""

    def probe(x: Any) -> None: ...

    probe.__annotations__["x"] = annotation
    return tool(effect="read")(probe)


def own(schema: dict[str, Any]) -> Tool[..., Any]:
    """A tool with one parameter `x` of this schema."""

    def handle(arguments: dict[str, Any]) -> None: ...

    return Tool.from_schema(
        name="probe",
        description="",
        parameters={"properties": {"x": schema}, "required": ["x"]},
        handler=handle,
        effect="read",
    )


def fitted(probe: Tool[..., Any], text: str) -> Arguments:
    arguments = probe.read_arguments(text)
    assert isinstance(arguments, Arguments), arguments
    return arguments


def refused(probe: Tool[..., Any], text: str) -> str:
    arguments = probe.read_arguments(text)
    assert isinstance(arguments, BadArguments), arguments
    assert len(arguments.message) <= 1_500
    return arguments.message


def wrapped(value: str) -> str:
    return '{"x": ' + value + "}"


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "7", 7),
        (int, "7.0", 7),
        (int, "1e2", 100),
        (int, '"7"', 7),
        (int, '" 7 "', 7),
        (int, '"7.0"', 7),
        (int, "123456789012345678901234567890", 123456789012345678901234567890),
        (float, "1", 1.0),
        (float, "1.5", 1.5),
        (float, '"1.5"', 1.5),
        (bool, "true", True),
        (bool, '"true"', True),
        (str, '"[draft] {x}"', "[draft] {x}"),
        (str, '"7"', "7"),
        (str, '"null"', "null"),
        (str | None, '"null"', "null"),
        (int | None, '"null"', None),
        (int | str, '"7"', "7"),
        (int | str, "7", 7),
        (Any, '"7"', "7"),
        (list[str], '"[\\"a\\"]"', ["a"]),
        (list[str], '["[1]", "7"]', ["[1]", "7"]),
        (list[int], '["1", 2]', [1, 2]),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (dict[str, int], '"{\\"a\\": 1}"', {"a": 1}),
        (list[int] | dict[str, int], '"{\\"a\\": 1}"', {"a": 1}),
        (tuple[int, str], '["1", "2"]', (1, "2")),
        (set[int], "[1, 1]", {1}),
        (Decimal, "5.00", Decimal("5.00")),
        (Decimal, '"5.00"', Decimal("5.00")),
        (Decimal | None, '"5.00"', Decimal("5.00")),
        (Decimal | float, "0.1", Decimal("0.1")),
        (date, '"2025-02-03"', date(2025, 2, 3)),
        (datetime, '"2025-02-03T04:05:06"', datetime(2025, 2, 3, 4, 5, 6)),
        (timedelta, '"P1D"', timedelta(days=1)),
        (UUID, '"12345678-1234-5678-1234-567812345678"', UUID("1234567812345678" * 2)),
        (Colour, '"red"', Colour.RED),
        (Level, '"1"', Level.LOW),
        (Level, "1.0", Level.LOW),
        (Literal["a", "b"], '"a"', "a"),
        (Literal[1, 2], '"2"', 2),
        (Literal[1, "1"], '"1"', "1"),
        (Point, '{"x": "1"}', Point(1)),
        (Filters, '{"limit": "3"}', {"limit": 3}),
        (Line, '{"sku": "7", "count": "2"}', Line(sku="7", count=2)),
        (list[Line], '"[{\\"sku\\": \\"7\\"}]"', [Line(sku="7")]),
        (
            Line,
            '{"sku": "a", "parts": [{"sku": "b", "count": "3"}]}',
            Line(sku="a", parts=[Line(sku="b", count=3)]),
        ),
        (Cat | Dog, '{"kind": "dog", "weight": "7.50"}', Dog(kind="dog", weight="7.50")),
    ],
)
def test_arguments_that_fit_reach_the_function_in_its_own_types(
    annotation: Any, text: str, value: object
) -> None:
    """C2, case 14: coerced only where the schema leaves no other reading, nested fields too."""
    arrived = fitted(taking(annotation), wrapped(text)).values["x"]
    assert (arrived, type(arrived)) == (value, type(value))


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, '"7 boxes"'),
        (int, "7.5"),
        (int, "true"),
        (int, '"true"'),
        (int, '"\\"7\\""'),
        (int, "null"),
        (bool, '"yes"'),
        (bool, "1"),
        (bool, '"1"'),
        (str, "7"),
        (str, "null"),
        (str, '["a"]'),
        (float, "1e400"),
        (float, '"NaN"'),
        (float, "NaN"),
        (float, "Infinity"),
        (list[str], '"a"'),
        (list[str], '"[1]"'),
        (list[int], '"[\\"1\\"]"'),
        (list[str], '"[\\"a\\""'),
        (Decimal, "true"),
        (Decimal, '"abc"'),
        (Decimal, '"NaN"'),
        (Decimal, '""'),
        (Decimal, '"1_000"'),
        (date, "20250203"),
        (datetime, "1735776000"),
        (timedelta, "5"),
        (Colour, '"blue"'),
        (Literal[1, 2], "true"),
        (Level, "true"),
        (Literal[True], "1"),
        (Annotated[int, Field(gt=0)], "0"),
        (Line, '{"sku": "a", "colour": "red"}'),
        (Line, '{"sku": "a", "parts": [{"sku": "b", "colour": "red"}]}'),
        (Point, '{"x": 1, "z": 2}'),
        (Filters, '{"limits": 3}'),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_the_name_of_the_parameter(
    annotation: Any, text: str
) -> None:
    """C2, case 14: types are strict, and a half-fitting text is no number."""
    message = refused(taking(annotation), wrapped(text))
    assert "- x" in message or "no JSON" in message


@pytest.mark.parametrize("text", ['{"where": "id=', "null", "[1]", "7", '"{}"', "", JUNK])
def test_text_that_is_no_json_object_never_runs(text: str) -> None:
    """C2, case 11: not even where every parameter could be left out; the echo is bounded."""

    @tool(effect="confirm")
    def purge(where: str | None) -> None: ...

    message = refused(purge, text)
    assert "purge" in message
    assert '"where"' in message


def test_no_text_means_no_arguments_where_nothing_is_required() -> None:
    """C2, case 14: and only there."""

    @tool(effect="read")
    def ping() -> None: ...

    @tool(effect="read")
    def listing(limit: int = 10) -> None: ...

    assert fitted(ping, "") == Arguments({}, {})
    assert fitted(listing, "  ") == Arguments({}, {"limit": 10})
    assert "limit" not in fitted(listing, "{}").given


def test_an_unknown_name_is_refused_by_name_with_those_it_looks_like() -> None:
    """C2: a misspelt argument is not a missing one."""

    @tool(effect="read")
    def status(order_id: str, note: str = "") -> None: ...

    message = refused(status, '{"order_id": "1", "nota": "x"}')
    assert "nota: unknown name; did you mean note?" in message


def test_a_name_that_comes_twice_is_refused() -> None:
    """C2: which one was meant is not for us to guess."""
    assert "duplicate" in refused(taking(int), '{"x": 1, "x": 2}')


def test_a_refusal_is_short_whatever_was_sent() -> None:
    """C2, case 11: 2 MB of names and values come back as a few hundred characters."""
    names = ", ".join(f'"{"n" * 1000}{i}": 1' for i in range(2000))
    assert "- and more" in refused(taking(int), "{" + names + "}")
    assert JUNK[:100] not in refused(taking(int), wrapped(f'"{JUNK}"'))
    assert JUNK[:300] not in refused(own({"type": "integer"}), wrapped(f'"{JUNK}"'))
    wide = tool(effect="read")(_wide())
    assert "characters)" in refused(wide, "{}")


def _wide() -> Callable[..., None]:
    def wide(x: Any) -> None: ...

    wide.__annotations__["x"] = Literal[tuple(f"choice_{i}" for i in range(500))]
    return wide


def test_a_decimal_keeps_every_digit_it_was_given_with() -> None:
    """C2: also inside of lists and models, which pydantic alone would read through a double."""
    digits = "0.12345678901234567890123456789"
    assert fitted(taking(Decimal), wrapped(digits)).values["x"] == Decimal(digits)
    assert str(fitted(taking(Decimal), wrapped("5.00")).values["x"]) == "5.00"
    line = fitted(taking(list[Line]), wrapped('[{"sku": "a", "price": ' + digits + "}]")).values
    assert line["x"][0].price == Decimal(digits)
    cat = fitted(taking(Cat | Dog), wrapped('{"kind": "cat", "weight": ' + digits + "}")).values
    assert cat["x"].weight == Decimal(digits)


def test_what_was_given_is_kept_without_loss_and_without_defaults() -> None:
    """C2, E2: the identity of a call is what the model gave, after coercion."""

    @tool(effect="read")
    def pay(amount: float, count: int, note: str = "none") -> None: ...

    arguments = fitted(pay, '{"amount": 0.1000000000000000055511151231257827, "count": "2"}')
    assert arguments.given == {
        "amount": Decimal("0.1000000000000000055511151231257827"),
        "count": 2,
    }
    assert arguments.values == {"amount": 0.1, "count": 2, "note": "none"}


def test_equal_arguments_have_one_canonical_form_however_they_were_spelt() -> None:
    """C2, E2: the key must not depend on whether a number came as text."""
    spellings = ['{"x": 7}', '{"x": 7.0}', '{"x": "7"}', '{ "x" : 70e-1 }']
    assert {canonical(fitted(taking(int), text).given) for text in spellings} == {'{"x":7}'}


def test_a_validator_that_breaks_refuses_the_call_and_does_not_leave_it() -> None:
    """C1, C2: it is the tool's author who wrote it."""

    class Broken(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            raise KeyError(value)

    assert "KeyError" in refused(taking(Broken), wrapped('{"x": 1}'))


def test_text_nested_in_text_is_read_once() -> None:
    """C2: deep nesting through quoting cannot exhaust the stack either."""

    class Tree(BaseModel):
        children: "list[Tree]"

    text = "[]"
    for _ in range(12):
        text = json.dumps([{"children": text}])
    refused(taking(list[Tree]), wrapped(json.dumps(text)))
    refused(taking(list[Tree]), wrapped('[{"children":' * 45 + "[]" + "}]" * 45 + "]"))
    refused(taking(list[Tree]), wrapped("[" * 5000))


class Measured(BaseModel):
    value: float = 0
    count: int = 0
    exact: Decimal = Decimal(0)
    anything: Any = None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"value": 1e999}', "x[1].value"),
        ('{"value": -1e999}', "x[1].value"),
        ('{"value": 1' + "0" * 400 + "}", "x[1].value"),
        ('{"value": 1' + "0" * 400 + ".5}", "x[1].value"),
        ('{"anything": [1e999]}', "x[1].anything[0]"),
    ],
)
def test_a_number_beyond_every_double_is_refused_and_never_infinite(text: str, place: str) -> None:
    """C2: read without loss at every depth; what a double cannot hold is no float."""
    assert f"- {place}: the number is too large" in refused(
        taking(list[Measured]), f'{{"x": [{{"value": 1.5}}, {text}]}}'
    )


def test_large_numbers_stay_what_they_are_where_their_type_can_hold_them() -> None:
    """C2: whole numbers and decimals have no largest."""
    text = '{"x": {"value": 1e308, "count": 1' + "0" * 400 + ', "exact": 1e999}}'
    read = fitted(taking(Measured), text).values["x"]
    assert read == Measured(value=1e308, count=10**400, exact=Decimal("1e999"))


# --- tools that bring their own schema -----------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, '"7"', 7),
        ({"type": "integer"}, "7.0", 7),
        ({"type": "number"}, "7.0", 7.0),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "number"}, "0.1234567890123456789", Decimal("0.1234567890123456789")),
        ({"type": "number"}, "1e400", Decimal("1e400")),
        ({"type": "string"}, '"[1]"', "[1]"),
        ({"type": ["integer", "null"]}, '"null"', None),
        ({"type": ["integer", "string"]}, '"7"', "7"),
        ({}, '"7"', "7"),
        ({"enum": [1, 2.5]}, '"2.5"', 2.5),
        ({"enum": [1, "1"]}, '"1"', "1"),
        ({"const": 3}, '"3"', 3),
        ({"type": "object", "additionalProperties": {"type": "string"}}, '{"a": "1"}', {"a": "1"}),
        ({"type": "object"}, '{"deep": [0.5]}', {"deep": [0.5]}),
        ({"type": "object"}, '"{\\"a\\": 1}"', {"a": 1}),
        ({"type": "array", "items": {"type": "integer"}}, '"[1]"', [1]),
        ({"type": "array", "items": {"type": "integer"}}, '["1"]', [1]),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}},
            '["1", "true"]',
            [1, True],
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, '"7"', 7),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, '"7"', "7"),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, '"7"', 7),
        (
            {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}},
            '{"n_a": 1}',
            {"n_a": 1},
        ),
    ],
)
def test_an_own_schema_is_kept_to_as_strictly(
    schema: dict[str, Any], text: str, value: object
) -> None:
    """C2, case 14: the same rules; a number is a double only where that loses no digit."""
    arrived = fitted(own(schema), wrapped(text)).values["x"]
    assert (arrived, type(arrived)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, '"7 boxes"'),
        ({"type": "integer"}, "7.5"),
        ({"type": "boolean"}, '"yes"'),
        ({"type": "string"}, "7"),
        ({"type": "number", "maximum": 5}, '"6"'),
        ({"type": "integer"}, "true"),
        ({"enum": [1]}, "true"),
        ({"not": {}}, "1"),
    ],
)
def test_what_an_own_schema_refuses_is_refused(schema: dict[str, Any], text: str) -> None:
    """C2: unvalidated arguments never run."""
    assert "- x: " in refused(own(schema), wrapped(text))


def test_an_own_schema_is_closed_unless_it_says_otherwise() -> None:
    """C2: unknown names are refused by name here too."""
    assert "y: unknown name; did you mean x?" not in refused(own({}), '{"x": 1, "y": 1}')
    assert "y: unknown name" in refused(own({}), '{"x": 1, "y": 1}')
    assert "x: missing" in refused(own({}), "{}")
    opened = Tool.from_schema(
        name="opened",
        description="",
        parameters={"additionalProperties": True},
        handler=lambda arguments: arguments,
        effect="read",
    )
    assert fitted(opened, '{"any": 1}').values == {"any": 1}


def test_a_union_at_the_root_is_checked_and_closed_as_one() -> None:
    """C2: by id or by name, one of them, and nothing else."""
    finder = Tool.from_schema(
        name="find",
        description="",
        parameters={
            "anyOf": [
                {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
                {"properties": {"name": {"type": "string"}}, "required": ["name"]},
            ]
        },
        handler=lambda arguments: arguments,
        effect="read",
    )
    assert fitted(finder, '{"id": "7"}').values == {"id": 7}
    assert fitted(finder, '{"name": "7"}').values == {"name": "7"}
    refused(finder, "{}")
    refused(finder, '{"id": 7, "colour": "red"}')


def test_a_schema_may_refer_to_itself() -> None:
    """C2: coercion follows references, and loops of references do not hang it."""
    tree = {"type": "object", "properties": {"n": {"type": "integer"}, "of": {"$ref": "#/$defs/t"}}}
    loop = {"anyOf": [{"$ref": "#/$defs/l"}, {"type": "integer"}]}
    probe = Tool.from_schema(
        name="probe",
        description="",
        parameters={
            "properties": {"t": {"$ref": "#/$defs/t"}, "l": {"$ref": "#/$defs/l"}},
            "$defs": {"t": tree, "l": loop},
        },
        handler=lambda arguments: arguments,
        effect="read",
    )
    assert fitted(probe, '{"t": {"of": {"n": "3"}}}').values == {"t": {"of": {"n": 3}}}
    assert fitted(probe, '{"l": 3}').values == {"l": 3}
    probe.read_arguments('{"l": "3"}')


def test_the_handler_may_change_its_dict_without_changing_the_record() -> None:
    """E2: what was given stays what was given."""
    arguments = fitted(own({"type": "array"}), wrapped("[1]"))
    arguments.values["x"].append(2)
    assert arguments.given == {"x": [1]}


# --- properties ----------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4
        )
    ),
    max_leaves=12,
)


def written(value: Any) -> str:
    match value:
        case Decimal():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(k)}:{written(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
        case _:
            return json.dumps(value)


@given(json_values)
def test_whatever_was_given_is_what_its_canonical_form_shows(value: Any) -> None:
    """C2, E2: nothing is lost, added or turned on the way."""
    text = wrapped(written(value))
    assert canonical(fitted(taking(Any), text).given) == canonical(parse_json(text))
    assert canonical(fitted(own({}), text).given) == canonical(parse_json(text))


@given(st.text())
def test_no_text_makes_reading_raise(text: str) -> None:
    """C1, C2: whatever a model writes becomes arguments or a refusal."""
    for probe in (taking(int), taking(Line), own({"type": "integer"})):
        assert isinstance(probe.read_arguments(text), Arguments | BadArguments)


@given(json_values)
def test_no_json_makes_reading_raise(value: Any) -> None:
    """C1, C2: the same for values of any shape at any place."""
    text = wrapped(written(value))
    for annotation in (
        int,
        Decimal,
        list[Line],
        dict[str, Decimal],
        Cat | Dog,
        Level,
        Point | None,
    ):
        taking(annotation).read_arguments(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_string_parameter_gets_exactly_the_string(text: str) -> None:
    """C2, case 14: also when it looks like JSON."""
    assert fitted(taking(str), wrapped(json.dumps(text))).values == {"x": text}


@given(st.integers() | st.booleans() | st.lists(st.integers()))
def test_a_value_and_its_json_text_arrive_alike(value: Any) -> None:
    """C2, case 14: where the schema demands a non-string."""
    annotation = int if type(value) is int else bool if isinstance(value, bool) else list[int]
    plain = fitted(taking(annotation), wrapped(json.dumps(value)))
    assert fitted(taking(annotation), wrapped(json.dumps(json.dumps(value)))) == plain


def test_near_matches_are_few_and_blind_to_case() -> None:
    """C1: what an unknown tool may have been meant for."""
    names = ["get_order", "get_orders", "get_order_status", "getOrder", "refund"]
    assert near_matches("GET_ORDER", names)[0] == "get_order"
    assert len(near_matches("get_order", names)) <= 3
    assert near_matches("x" * 1_000_000, names) == []
