"""Schemas in the dialects of wires: what they admit stays the same, or more and told."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, cast

import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remit.models.wires.lowering import CannotLower, Dialect, Lowered, lower

OPEN = Dialect("open")
INLINED = Dialect("inlined")
STRICT = Dialect("strict")
ANTHROPIC = Dialect("anthropic-strict")
TARGETS = [OPEN, INLINED, STRICT, ANTHROPIC]

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "main": {"$ref": "#/$defs/Line"},
        "gift": {"anyOf": [{"$ref": "#/$defs/Line"}, {"type": "null"}]},
    },
    "required": ["id", "lines", "main", "gift"],
    "additionalProperties": False,
    "$defs": {
        "Line": {
            "type": "object",
            "properties": {
                "sku": {"type": "string"},
                "qty": {"$ref": "#/$defs/Pos"},
                "note": {"type": "string"},
            },
            "required": ["sku", "qty"],
            "additionalProperties": False,
        },
        "Pos": {"type": "integer", "minimum": 1},
    },
}


def is_valid(schema: object, value: object) -> bool:
    return jsonschema_rs.validator_for(cast("Any", schema), offline=True).is_valid(value)


def instance(rng: random.Random) -> dict[str, Any]:
    def line() -> dict[str, Any]:
        made: dict[str, Any] = {"sku": rng.choice("ABC"), "qty": rng.randint(1, 9)}
        if rng.random() < 0.5:
            made["note"] = "soon"
        return made

    return {
        "id": "o1",
        "lines": [line() for _ in range(rng.randint(0, 3))],
        "main": line(),
        "gift": rng.choice([None, line()]),
    }


def mutated(value: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One thing changed that no dialect may let pass: a type, a missing or an unknown member."""
    value = deepcopy(value)
    line = rng.choice([*value["lines"], value["main"]])
    kind = rng.randrange(6)
    if kind == 0:
        line["qty"] = rng.choice(["2", 1.5, None, []])
    elif kind == 1:
        del line[rng.choice(["sku", "qty"])]
    elif kind == 2:
        line["colour"] = "red"
    elif kind == 3:
        del value[rng.choice(["id", "lines", "main", "gift"])]
    elif kind == 4:
        value["lines"] = {"0": line}
    else:
        value[rng.choice(["gift", "main"])] = "none"
    return value


def as_strict(schema: Any, value: Any, root: Any) -> Any:
    """A value as a model under OpenAI's grammar writes it: what is left out is null."""
    while isinstance(schema, dict) and "$ref" in schema:
        schema = root["$defs"][cast("str", schema["$ref"]).rpartition("/")[2]]
    if isinstance(value, list):
        return [as_strict(schema["items"], each, root) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        if "anyOf" in schema:
            schema = schema["anyOf"][0]
            return as_strict(schema, value, root)
        return {
            name: as_strict(part, value[name], root) if name in value else None
            for name, part in schema["properties"].items()
        }
    return value


def typed_fields(schema: Any) -> list[str]:
    """Members that say nothing of their type, at every depth."""
    bare: list[str] = []
    if isinstance(schema, dict):
        table = cast("dict[str, Any]", schema)
        for name, part in cast("dict[str, Any]", table.get("properties", {})).items():
            if not {"type", "$ref", "anyOf", "enum", "const", "allOf"} & set(part):
                bare.append(name)
        for part in table.values():
            bare += typed_fields(part)
    elif isinstance(schema, list):
        for part in cast("list[Any]", schema):
            bare += typed_fields(part)
    return bare


@pytest.mark.parametrize("dialect", TARGETS, ids=lambda each: each.target)
def test_shared_definitions_keep_their_types_in_every_dialect(dialect: Dialect) -> None:
    """case 17: 200 instances are accepted, 200 changed ones refused, no member loses its type."""
    lowered = lower(ORDER, dialect)
    assert typed_fields(lowered.schema) == []
    rng = random.Random(17)
    for _ in range(200):
        value = instance(rng)
        assert is_valid(ORDER, value)
        wire = (
            as_strict(lowered.schema, value, lowered.schema)
            if dialect.target == "strict"
            else value
        )
        assert is_valid(lowered.schema, wire), wire
        assert json.loads(lowered.from_wire(json.dumps(wire))) == value
        broken = mutated(value, rng)
        assert not is_valid(ORDER, broken)
        wire_broken = broken if dialect.target != "strict" else {**wire, **broken} | {"x": 1}
        assert not is_valid(lowered.schema, wire_broken), broken


# --- random schemas ------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "größe", "filter[id]", "filter_id_", "x" * 70])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "größe"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
REFERENCES = st.sampled_from(["#/$defs/A", "#/$defs/B", "#/definitions/A", "#/$defs/größe"])


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"properties": st.dictionaries(NAMES, inner, max_size=3)},
        optional={
            "type": st.just("object"),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "patternProperties": st.dictionaries(
                st.sampled_from(["^a", "ö", "_"]), inner, max_size=1
            ),
            "propertyNames": st.just({"maxLength": 10}),
            "unevaluatedProperties": st.just(False),
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=1),
            "minProperties": st.integers(0, 1),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        },
    )


SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.booleans(),
        st.builds(
            lambda name: {"type": name}, st.sampled_from(["string", "integer", "null", "array"])
        ),
        st.builds(
            lambda names: {"type": names}, st.sampled_from([["string", "null"], ["object", "null"]])
        ),
        st.builds(lambda value: {"const": value}, VALUES),
        st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=3)),
        st.builds(lambda reference: {"$ref": reference}, REFERENCES),
    ),
    lambda inner: st.one_of(
        _objects(inner),
        st.builds(lambda item: {"type": "array", "items": item}, inner),
        st.builds(lambda items: {"prefixItems": items}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda some: {"oneOf": some}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=8,
)
ROOTS = st.builds(
    lambda root, a, b, c, d: {
        **root,
        "type": "object",
        "$defs": {"A": a, "B": b, "größe": c},
        "definitions": {"A": d},
    },
    _objects(SCHEMAS),
    SCHEMAS,
    SCHEMAS,
    SCHEMAS,
    SCHEMAS,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def lowered_or_skip(schema: dict[str, Any], dialect: Dialect) -> Lowered:
    try:
        return lower(schema, dialect)
    except CannotLower:
        assume(False)
        raise


def compiled_or_skip(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        assume(False)
        raise


def fits(validator: jsonschema_rs.Validator, value: object) -> bool:
    """Under references in a circle the validator itself gives up."""
    return validator.is_valid(value)


@pytest.mark.parametrize("dialect", [OPEN, INLINED], ids=lambda each: each.target)
@given(schema=ROOTS, values=st.lists(OBJECTS, min_size=5, max_size=10))
def test_what_fits_the_original_fits_the_lowered_schema(
    dialect: Dialect, schema: dict[str, Any], values: list[dict[str, Any]]
) -> None:
    """case 17: a valid call stays valid under every name that the wire gives its parameters."""
    assume(not in_a_circle(schema))
    original = compiled_or_skip(schema)
    lowered = lowered_or_skip(schema, dialect)
    narrowed = jsonschema_rs.validator_for(cast("Any", lowered.schema), offline=True)
    for value in values:
        text = json.dumps(value)
        wire = lowered.to_wire(text)
        assert json.loads(lowered.from_wire(wire)) == value
        if original.is_valid(value):
            assert narrowed.is_valid(json.loads(wire)), (value, lowered.schema)


def in_a_circle(schema: dict[str, Any]) -> bool:
    """Whether a definition refers to itself at the same place of a value, which has no meaning."""

    def reached(part: Any, seen: tuple[str, ...]) -> bool:
        if not isinstance(part, dict):
            return False
        table = cast("dict[str, Any]", part)
        inner = [each for word in ("anyOf", "oneOf", "allOf") for each in table.get(word, ())]
        inner += [table[word] for word in ("not", "if", "then", "else") if word in table]
        inner += list(table.get("dependentSchemas", {}).values())
        if "$ref" in table:
            reference = table["$ref"]
            if reference in seen:
                return True
            _, where, name = reference.split("/")
            if reached(schema[where][name], (*seen, reference)):
                return True
        return any(reached(each, seen) for each in inner)

    def anywhere(part: Any) -> bool:
        if isinstance(part, dict):
            return reached(part, ()) or any(map(anywhere, cast("dict[str, Any]", part).values()))
        return isinstance(part, list) and any(map(anywhere, cast("list[Any]", part)))

    return anywhere(schema)


# --- roots that are composed ---------------------------------------------------------------------


def root(**words: Any) -> dict[str, Any]:
    return {"type": "object", **words}


def member(name: str, kind: str, *, closed: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"properties": {name: {"type": kind}}, "required": [name]}
    return {**made, "additionalProperties": False} if closed else made


def test_an_open_branch_admits_what_another_names() -> None:
    """case 20, case 17: no call that fits is told that it does not, and the type is shown all the same."""
    schema = root(anyOf=[member("id", "integer"), member("name", "string")])
    lowered = lower(schema, OPEN)
    value = {"name": "x", "id": "not a number"}
    assert is_valid(schema, value)
    assert is_valid(lowered.schema, value)
    assert lowered.schema["properties"]["id"] == {"anyOf": [{"type": "integer"}, {}]}


def test_closed_branches_stay_closed_and_typed() -> None:
    schema = root(
        oneOf=[member("id", "integer", closed=True), member("name", "string", closed=True)]
    )
    lowered = lower(schema, OPEN)
    assert lowered.schema == root(
        properties={"id": {"type": "integer"}, "name": {"type": "string"}},
        required=[],
        additionalProperties=False,
    )
    assert lowered.told.startswith("The arguments must fit exactly one of [")
    assert lowered.moved == (f"the root: {lowered.told}",)


def test_a_root_that_refers_and_intersects_is_written_out() -> None:
    schema = {
        **root(allOf=[{"$ref": "#/$defs/Base"}, {"minProperties": 2}], unevaluatedProperties=False),
        "$defs": {"Base": {**member("id", "integer"), "description": "What all have."}},
    }
    lowered = lower(schema, OPEN)
    assert lowered.schema["properties"] == {"id": {"type": "integer"}}
    assert lowered.schema["required"] == ["id"]
    assert lowered.told == 'The arguments must also fit {"minProperties":2}.'


def test_constants_of_the_branches_become_one_enum() -> None:
    def shape(kind: str, name: str) -> dict[str, Any]:
        properties = {"kind": {"type": "string", "const": kind}, name: {"type": "number"}}
        return {"properties": properties, "required": ["kind", name], "additionalProperties": False}

    lowered = lower(root(oneOf=[shape("circle", "radius"), shape("square", "side")]), OPEN)
    assert lowered.schema["properties"]["kind"] == {"type": "string", "enum": ["circle", "square"]}
    assert lowered.schema["required"] == ["kind"]
    assert '"const":"circle"' in lowered.told


@pytest.mark.parametrize("word", ["not", "enum", "const"])
def test_what_is_forbidden_or_counted_out_at_the_root_is_told(word: str) -> None:
    rule: Any = {"not": {"required": ["a"]}, "enum": [{"b": 1}], "const": {"b": 1}}[word]
    lowered = lower(root(properties={"b": {"type": "integer"}}, **{word: rule}), OPEN)
    assert word not in lowered.schema
    assert json.dumps(rule, separators=(",", ":")) in lowered.told


# --- older and other words -----------------------------------------------------------------------


def part(schema: dict[str, Any], dialect: Dialect = OPEN) -> Any:
    return lower(root(properties={"a": schema}), dialect).schema["properties"]["a"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"items": [{"type": "string"}], "additionalItems": False}, {"prefixItems": [{"type": "string"}], "items": {"not": {}}}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"dependencies": {"x": ["y"], "z": {"required": ["x"]}}}, {"dependentRequired": {"x": ["y"]}, "dependentSchemas": {"z": {"required": ["x"]}}}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        (True, {}),
        (False, {"not": {}}),
        ({"type": ["string", "null"], "default": None}, {"type": ["string", "null"], "default": None}),
        ({"enum": [1, "a", None, 2.5]}, {"enum": [1, "a", None, 2.5]}),
    ],
)  # fmt: skip
def test_older_words_are_written_in_the_new_way(before: Any, after: Any) -> None:
    """case 17: the meaning is that of the draft; a provider reads one draft only."""
    assert part(before) == after


def test_beside_a_reference_an_old_draft_says_nothing() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **root(properties={"a": {"$ref": "#/definitions/A", "maxLength": 1}}),
        "definitions": {"A": {"type": "string"}},
    }
    assert lower(schema, OPEN).schema["properties"]["a"] == {"$ref": "#/definitions/A"}


def test_references_by_anchor_and_into_members_are_written_as_definitions() -> None:
    schema = {
        **root(
            properties={
                "first": {"type": "integer"},
                "second": {"$ref": "#/properties/first"},
                "third": {"$ref": "#line"},
            }
        ),
        "$defs": {"Line": {"$anchor": "line", "type": "string"}},
    }
    lowered = lower(schema, OPEN).schema
    assert is_valid(lowered, {"second": 1, "third": "x"})
    assert not is_valid(lowered, {"second": "x"})
    assert not is_valid(lowered, {"third": 1})
    assert all(
        each["$ref"].startswith("#/$defs/")
        for name, each in lowered["properties"].items()
        if name != "first"
    )


NODE: dict[str, Any] = {
    **root(properties={"tree": {"$ref": "#/$defs/Node"}}, required=["tree"]),
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "below": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": ["value", "below"],
            "additionalProperties": False,
        }
    },
}  # fmt: skip


def test_a_recursion_is_cut_to_a_value_of_its_type() -> None:
    """case 17: without references one level is written out, and the rest is checked at dispatch."""
    lowered = lower(NODE, INLINED)
    tree = lowered.schema["properties"]["tree"]
    assert tree["properties"]["below"]["items"] == {
        "type": "object",
        "description": "(In the form of Node, again.)",
    }
    assert lowered.moved == ("tree.below[]: the form of Node, again",)
    assert "$ref" not in json.dumps(lowered.schema)
    deep = {"value": 1, "below": [{"value": 2, "below": []}]}
    assert is_valid(lowered.schema, {"tree": deep})


def test_a_recursion_is_strict_where_the_grammar_has_it() -> None:
    assert lower(NODE, STRICT).schema["$defs"]["Node"]["additionalProperties"] is False
    with pytest.raises(CannotLower, match="refers to itself"):
        lower(NODE, ANTHROPIC)


# --- strict grammars -----------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [STRICT, ANTHROPIC], ids=lambda each: each.target)
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": True},
        {
            "type": "object",
            "properties": {"x": {"type": "string"}},
            "patternProperties": {"^y": {}},
        },
        {
            "type": "object",
            "properties": {"x": {"type": "string"}},
            "then": {"properties": {"y": {}}},
        },
        {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["y"]},
        {},
        True,
        {"type": "array"},
        {"type": "array", "items": {}},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
        {"type": "object", "properties": {"x": {"type": "string"}}, "anyOf": [{"required": ["x"]}]},
        {"const": {"a": 1}},
        {"anyOf": [{"type": "string"}], "oneOf": [{"type": "string"}]},
    ],
)
def test_what_a_strict_grammar_cannot_say_is_not_lowered(dialect: Dialect, schema: Any) -> None:
    """case 20: a free map must not become one that admits nothing, nor a type be made up."""
    with pytest.raises(CannotLower):
        part(schema, dialect)


def test_rules_that_a_grammar_has_no_words_for_are_told_where_they_hold() -> None:
    """case 17: and what it has words for stays a rule."""
    schema = {
        "type": "string",
        "pattern": "^x",
        "maxLength": 3,
        "description": "A name.",
        "default": "x",
    }
    told = 'A name. (Must also fit {"default":"x","maxLength":3,"pattern":"^x"})'
    assert part(schema, ANTHROPIC) == {"type": "string", "description": told}
    number = {"type": "integer", "minimum": 3}
    assert part(number, ANTHROPIC) == {
        "type": "integer",
        "description": '(Must also fit {"minimum":3})',
    }
    assert part(number, STRICT) == {"type": ["integer", "null"], "minimum": 3}
    when = {"type": "string", "format": "date"}
    assert part(when, ANTHROPIC) == when
    assert lower(root(properties={"a": schema}), ANTHROPIC).moved == (
        'a: {"default":"x","maxLength":3,"pattern":"^x"}',
    )


def test_a_description_beside_a_reference_is_kept() -> None:
    schema = {
        **root(
            properties={"a": {"$ref": "#/$defs/A", "description": "The first."}}, required=["a"]
        ),
        "$defs": {"A": {"enum": ["x", 1]}},
    }
    lowered = lower(schema, STRICT).schema
    assert lowered["properties"]["a"] == {
        "description": "The first.",
        "anyOf": [{"$ref": "#/$defs/A"}],
    }
    assert lowered["$defs"]["A"] == {"type": ["string", "integer"], "enum": ["x", 1]}


TEXT: dict[str, Any] = {"$defs": {"Text": {"type": "string"}}}
Triple = tuple[dict[str, Any], Any, Any]
"""A schema, a value that fits it, and the value as a model under OpenAI's grammar writes it."""


@st.composite
def records(draw: st.DrawFn, inner: st.SearchStrategy[Triple]) -> Triple:
    properties: dict[str, Any] = {}
    required: list[str] = []
    value: dict[str, Any] = {}
    wire: dict[str, Any] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        schema, own, written = draw(inner)
        nullable = is_valid({**schema, **TEXT}, None)
        if draw(st.booleans()):
            required.append(name)
        elif not nullable and draw(st.booleans()):
            own = written = None
        properties[name] = schema
        wire[name] = written
        if own is not None or nullable:
            value[name] = own
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return schema, value, wire


@st.composite
def tagged_unions(draw: st.DrawFn, inner: st.SearchStrategy[Triple]) -> Triple:
    made = [draw(records(inner)) for _ in range(2)]
    chosen = draw(st.integers(0, 1))
    for place, (schema, value, wire) in enumerate(made):
        schema["properties"]["kind"] = {"const": f"k{place}"}
        schema["required"].append("kind")
        value["kind"] = wire["kind"] = f"k{place}"
    return {draw(st.sampled_from(["anyOf", "oneOf"])): [schema for schema, _, _ in made]}, *made[
        chosen
    ][1:]


def lists_of(triple: Triple) -> Triple:
    schema, value, wire = triple
    return {"type": "array", "items": schema}, [value, value], [wire, wire]


TRIPLES: st.SearchStrategy[Triple] = st.recursive(
    st.sampled_from(
        [
            ({"type": "string"}, "null", "null"),
            ({"type": ["string", "null"]}, None, None),
            ({"type": "integer", "minimum": 2}, 2, 2),
            ({"enum": ["a", 1]}, 1, 1),
            ({"const": "c"}, "c", "c"),
            ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, None, None),
            ({"$ref": "#/$defs/Text"}, "t", "t"),
        ]
    ),
    lambda inner: records(inner) | tagged_unions(inner) | st.builds(lists_of, inner),
    max_leaves=10,
)


@given(records(TRIPLES))
def test_nulls_that_the_grammar_asked_for_are_taken_out_and_no_others(triple: Triple) -> None:
    """case 17, case 21: what a strict model writes comes to dispatch in the form of the original."""
    schema, value, wire = triple
    schema = {**schema, **TEXT}
    assert is_valid(schema, value)
    dialect = Dialect("strict")
    try:
        lowered = lower(schema, dialect)
    except CannotLower as error:
        assume("levels" not in str(error))
        raise
    assert lowered.schema["additionalProperties"] is False
    text = lowered.to_wire(json.dumps(wire))
    assert is_valid(lowered.schema, json.loads(text)), (text, lowered.schema)
    assert json.loads(lowered.from_wire(text)) == value


def test_a_null_keeps_its_place_where_the_text_cannot_be_read() -> None:
    """C2: a cut text is not mended."""
    lowered = lower(root(properties={"a": {"type": "string"}}), STRICT)
    assert lowered.from_wire('{"a": null}') == "{}"
    assert lowered.from_wire('{"a": null') == '{"a": null'
    assert lowered.from_wire('{"a": null, "b": 1.10}') == '{"b":1.10}'


def test_names_of_a_wire_without_rules_stay() -> None:
    """case 21: keys=None takes any."""
    lowered = lower(root(properties={"größe": {"type": "string"}}), Dialect(keys=None))
    assert lowered.keys is None
    assert list(lowered.schema["properties"]) == ["größe"]


# --- whatever a server sends ---------------------------------------------------------------------

KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "$ref",
        "$defs",
        "definitions",
        "patternProperties",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "prefixItems",
        "contains",
        "unevaluatedProperties",
        "unevaluatedItems",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "pattern",
        "format",
        "default",
        "$id",
        "$schema",
        "$anchor",
        "$dynamicRef",
        "title",
        "description",
        "additionalItems",
        "a",
        "größe",
    ]
)
JUNK = st.recursive(
    SCALARS
    | st.sampled_from(
        ["object", "array", "#", "#/$defs/A", "#/properties/a", "#A", "http://x/#y", 2.5, -1]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=5),
    max_leaves=25,
)


@given(st.dictionaries(KEYWORDS, JUNK, max_size=6), VALUES)
def test_anything_is_lowered_or_refused_with_a_reason(words: dict[str, Any], value: Any) -> None:
    """case 20: no schema stops a request, and what is lowered can be read by whoever reads schemas."""
    schema = {**words, "type": "object"}
    reasons: list[str] = []
    for dialect in TARGETS:
        try:
            lowered = lower(schema, dialect)
        except CannotLower as error:
            reasons.append(str(error))
            continue
        assert not {"anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"} & set(lowered.schema)
        assert json.loads(json.dumps(lowered.schema)) == lowered.schema
        lowered.from_wire(json.dumps(value))
    assert all(0 < len(reason) < 300 for reason in reasons)


@pytest.mark.parametrize(
    "branch",
    [{"required": ["b"]}, {"if": {}, "then": {"properties": {"b": {"type": "string"}}}}],
    ids=["required", "then"],
)
def test_members_that_only_a_told_rule_names_are_not_closed_out(branch: dict[str, Any]) -> None:
    """case 20: a strict grammar would forbid them, so that the branch could not be meant any more."""
    schema = root(properties={"a": {"type": "string"}}, anyOf=[{"required": ["a"]}, branch])
    assert lower(schema, OPEN).schema["additionalProperties"] is True
    with pytest.raises(CannotLower, match="map of any names"):
        lower(schema, STRICT)


class Colour(str, Enum):  # noqa: UP042 - as older code writes it: its `str()` is its name
    RED = "red"


class Size(IntEnum):
    S = 1


def test_enumerations_of_a_host_are_their_values() -> None:
    """case 53: what a schema of Python objects holds goes out as JSON would have it."""
    written = part({"enum": [Colour.RED, Size.S], "multipleOf": Decimal("0.5")})
    assert repr(written) == "{'enum': ['red', 1], 'multipleOf': 0.5}"


def test_a_closed_object_without_members_is_strict() -> None:
    assert part({"type": "object", "additionalProperties": False}, STRICT)["properties"] == {}


def test_what_one_branch_speaks_of_the_whole_does_not_forbid() -> None:
    """case 20: in a part that closes what its branches leave open, one of them may leave nothing."""
    schema = root(
        allOf=[{"anyOf": [{"required": ["a"]}, {"additionalProperties": {"type": "integer"}}], "unevaluatedProperties": False}]
    )  # fmt: skip
    assert is_valid(schema, {"b": 1})
    assert is_valid(lower(schema, OPEN).schema, {"b": 1})
