"""JSON Schemas of tools: made from types, read from authors, and walked along a value.

A walk answers one question: which sub-schemas speak about this place in the value? What may be
coerced there, and in what form a number is handed on, follows from them. A walk never decides
whether a value is valid: pydantic does for signatures and `own_schema` for an author's own
schema, both above.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from decimal import Decimal
from typing import Any, TypeAlias, cast

from remit.canonical import parse_json
from remit.errors import ConfigurationError
from remit.preview import MASK

__all__ = [
    "EXACT_MARK",
    "SECRET_MARK",
    "Leaf",
    "Node",
    "coerced",
    "exact",
    "holds_secrets",
    "json_types",
    "masked",
    "mixes_decimal_and_text",
    "native_number",
    "needs_exact",
    "overflow",
    "own_schema",
    "published",
    "tidied",
    "walk",
]

Node: TypeAlias = "Mapping[str, Any]"
"""A schema that is an object; `true` and `false` are written as `{}` and `{"not": {}}`."""
Leaf: TypeAlias = Callable[[list[Node], Any], Any]
"""What becomes of a value that is no container, given the sub-schemas that speak about it."""

EXACT_MARK = "x-remit-exact"
"""Marks where pydantic reads more than the schema says, or fewer digits; never published."""
SECRET_MARK = "x-remit-secret"
"""Marks what nobody is shown; never published."""
_MARKS = (EXACT_MARK, SECRET_MARK)
_NOTHING: Node = {"not": {}}
_MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_POINTING = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
_SPEAKING = frozenset({"type", "enum", "const", "properties", "additionalProperties", "items"})
_ALL_TYPES = {"null", "boolean", "string", "integer", "number", "array", "object"}
_LARGEST = Decimal(sys.float_info.max)
_MAX_NODES = 64
"""How many nodes behind references and unions are looked at; schemas may refer to themselves."""


def tidied(schema: Node) -> dict[str, Any]:
    """A generated schema without titles, which cost tokens and say nothing, and with closed objects."""
    tidy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _MAPS_OF_SCHEMAS:
            tidy[keyword] = {name: _tidied_part(part) for name, part in value.items()}
        elif keyword in _LISTS_OF_SCHEMAS:
            tidy[keyword] = [_tidied_part(part) for part in value]
        elif keyword in _SCHEMAS:
            tidy[keyword] = _tidied_part(value)
        elif keyword != "title":
            tidy[keyword] = value
    if "properties" in tidy:
        tidy.setdefault("additionalProperties", False)
    return tidy


def _tidied_part(schema: Any) -> Any:
    return tidied(cast("Node", schema)) if isinstance(schema, Mapping) else schema


def published(schema: Any) -> Any:
    """The schema as the model sees it: without marks."""
    if isinstance(schema, Mapping):
        members = cast("Node", schema)
        return {name: published(part) for name, part in members.items() if name not in _MARKS}
    if isinstance(schema, list):
        return list(map(published, cast("list[Any]", schema)))
    return schema


def needs_exact(schema: Node) -> bool:
    """Whether `exact` has anything to do for a value of this schema."""
    return any(EXACT_MARK in part for part in _parts(schema))


def mixes_decimal_and_text(root: Node, schema: Node) -> bool:
    """Whether a union in it offers a `Decimal` and text for one value: pydantic confuses the two."""
    unions = [_expanded(root, [part]) for part in _parts(schema) if "anyOf" in part]
    return any(
        any(EXACT_MARK in node and "number" in json_types(node) for node in union)
        and _admits(union, "string")
        for union in unions
    )


def _parts(value: object) -> Iterator[Node]:
    """Every object inside a schema."""
    if isinstance(value, Mapping):
        members = cast("Node", value)
        yield members
        for member in members.values():
            yield from _parts(member)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _parts(item)


def own_schema(parameters: Mapping[str, Any], what: str = "`parameters`") -> dict[str, Any]:
    """An author's schema, copied and closed: unknown names are refused unless it admits them.

    A composed root of a draft before 2019-09 stays open; those drafts cannot close it.
    Errors: `ConfigurationError` for a root that is no object.
    """
    if not isinstance(parameters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError(f"{what} is a JSON Schema as a dict, not {parameters!r}")
    schema = deepcopy(dict(parameters))
    if schema.setdefault("type", "object") != "object":
        raise ConfigurationError(
            f"the root of `parameters` has type {schema['type']!r}: the arguments of a call are one "
            'JSON object, so it must be "object"'
        )
    schema.setdefault("properties", {})
    composed = any(
        key in schema for key in ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")
    )
    # `additionalProperties` sees no property that a sub-schema declares, the other keyword does.
    closing = "unevaluatedProperties" if composed else "additionalProperties"
    if "additionalProperties" not in schema and "unevaluatedProperties" not in schema:
        schema[closing] = False
    return schema


# --- walking -------------------------------------------------------------------------------------


def walk(root: Node, value: Any, leaf: Leaf) -> Any:
    """A copy of the value in which every leaf is replaced."""
    return _walk(root, [root], value, leaf)


def _walk(root: Node, nodes: list[Node], value: Any, leaf: Leaf) -> Any:
    nodes = _expanded(root, nodes)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if len(nodes) > 1:  # a union
            nodes = [node for node in nodes if _describes(node, members)]
        return {
            key: _walk(root, _members(nodes, key), member, leaf) for key, member in members.items()
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        nodes = [node for node in nodes if "array" in json_types(node)]
        return [
            _walk(root, [_item(node, index) for node in nodes], item, leaf)
            for index, item in enumerate(items)
        ]
    return leaf(nodes, value)


def _expanded(root: Node, nodes: list[Node]) -> list[Node]:
    """The nodes behind references and unions. A node that only points is left out itself."""
    if all(map(_POINTING.isdisjoint, nodes)):
        return nodes
    found: list[Node] = []
    waiting = [(node, False) for node in nodes]
    for node, restricts in waiting:
        behind = [part for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, ())]
        if "$ref" in node:
            behind.append(_resolved(root, node["$ref"]))
        speaks = not _SPEAKING.isdisjoint(node)
        if speaks or not (behind or restricts):
            found.append(node)
        # Under a node that names types, one that names none only narrows what they mean.
        waiting += [(_as_node(part), speaks or restricts) for part in behind]
        if len(waiting) > _MAX_NODES:
            return [{}]  # who knows what the rest says: everything is admitted, nothing coerced
    return found


def _resolved(root: Node, reference: object) -> Any:
    """What a path into the schema points to; `{}` for every other kind of reference."""
    if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
        return {}
    target: Any = root
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or name not in target:
            return {}
        target = cast("Node", target)[name]
    return target


def _as_node(schema: Any) -> Node:
    if isinstance(schema, Mapping):
        return cast("Node", schema)
    return _NOTHING if schema is False else {}


def _members(nodes: list[Node], name: str) -> list[Node]:
    """What they say about one member; a union leaves what it does not name to its branches."""
    return [
        _member(node, name)
        for node in nodes
        if name in node.get("properties", ()) or _POINTING.isdisjoint(node)
    ]


def _member(node: Node, name: str) -> Node:
    if name in node.get("properties", ()):
        return _as_node(node["properties"][name])
    if "patternProperties" in node:
        return {}  # which pattern it meets is the validator's business
    return _as_node(node.get("additionalProperties"))


def _item(node: Node, index: int) -> Node:
    first: list[Any] = node.get("prefixItems", [])
    return _as_node(first[index] if index < len(first) else node.get("items"))


def _describes(node: Node, members: Mapping[str, Any]) -> bool:
    """Whether an object can be meant by this branch of a union, by its names and constants."""
    return (
        "object" in json_types(node)
        and all(name in members for name in node.get("required", ()))
        and all(
            part is not _NOTHING and ("const" not in part or part["const"] == member)
            for part, member in ((_member(node, name), members[name]) for name in members)
        )
    )


def json_types(node: Node) -> set[str]:
    """The JSON types that a node names, read from its values where it names none."""
    if "type" in node:
        named = node["type"]
        return {named} if isinstance(named, str) else set(named)
    if "enum" in node:
        return set(map(_json_type, node["enum"]))
    if "const" in node:
        return {_json_type(node["const"])}
    return set() if node == _NOTHING else _ALL_TYPES


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case Decimal() | float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


def _admits(nodes: list[Node], type_name: str) -> bool:
    return any(
        type_name in types or (type_name == "integer" and "number" in types)
        for types in map(json_types, nodes)
    )


# --- secrets -------------------------------------------------------------------------------------


def holds_secrets(schema: object) -> bool:
    """Whether anything in a value of this schema may be a secret."""
    return any(_is_secret(part) for part in _parts(schema))


def masked(root: Node, value: Any) -> tuple[Any, list[Any]]:
    """The value as people may see it, and what was masked in it.

    In doubt about what a schema says of a place, it is masked: of all sub-schemas that may speak about the
    place, one that marks it is enough.
    """
    hidden: list[Any] = []
    return _masked(root, [root], value, hidden), hidden


def _masked(root: Node, nodes: list[Node], value: Any, hidden: list[Any]) -> Any:
    behind = _behind(root, nodes)
    if behind is None or any(map(_is_secret, behind)):
        hidden.append(value)
        return MASK
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {
            name: _masked(root, _may_speak(behind, name), member, hidden)
            for name, member in members.items()
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [
            _masked(root, _may_speak(behind, index), item, hidden)
            for index, item in enumerate(items)
        ]
    return value


def _is_secret(node: Node) -> bool:
    """By our mark, or by the word of JSON Schema for what is written and never shown."""
    return SECRET_MARK in node or node.get("writeOnly") is True


def _behind(root: Node, nodes: list[Node]) -> list[Node] | None:
    """These nodes and every one that may speak about the same place; None where that cannot be known."""
    found = list(nodes)
    for node in found:
        parts: list[Any] = [
            part for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, ())
        ]
        parts += [node[key] for key in ("if", "then", "else") if key in node]
        parts += cast("Node", node.get("dependentSchemas", {})).values()
        if "$ref" in node:
            if not str(node["$ref"]).startswith("#/") or len(found) > _MAX_NODES:
                return None
            parts.append(_resolved(root, node["$ref"]))
        found += [part for part in map(_as_node, parts) if part not in found]
    return found


def _may_speak(nodes: list[Node], step: str | int) -> list[Node]:
    """What these nodes may say about one member or item."""
    parts: list[Any] = []
    for node in nodes:
        if isinstance(step, str):
            parts += [node.get("properties", {}).get(step)]
            parts += cast("Node", node.get("patternProperties", {})).values()
            parts += [node.get("additionalProperties"), node.get("unevaluatedProperties")]
        else:
            parts += cast("list[Any]", node.get("prefixItems", []))[step : step + 1]
            parts += [node.get("items"), node.get("unevaluatedItems"), node.get("contains")]
    return [_as_node(part) for part in parts if isinstance(part, Mapping)]


# --- leaves --------------------------------------------------------------------------------------


def coerced(root: Node, value: Any) -> Any | None:
    """The value with its misfits coerced; None where there is nothing to coerce.

    Two kinds of misfit are mended, and only where the schema leaves no other reading: a string where
    it admits none, if the whole of it is JSON, and a whole number written with a fraction (`7.0`)
    where it demands an integer. Strings inside of such a string are left as they are. Whether the
    result then fits is the validator's business.
    """
    mended = False

    def leaf(nodes: list[Node], found: Any) -> Any:
        nonlocal mended
        new: Any = found
        if isinstance(found, str) and nodes and not _admits(nodes, "string"):
            with suppress(ValueError):
                new = _walk(root, nodes, parse_json(found), whole)
        else:
            new = whole(nodes, found)
        mended = mended or new is not found
        return new

    def whole(nodes: list[Node], found: Any) -> Any:
        integer = isinstance(found, Decimal) and _is_whole(found) and _only_integer(nodes)
        return int(found) if integer else found

    result = walk(root, value, leaf)
    return result if mended else None


def exact(root: Node, value: Any) -> Any:
    """The value in the form in which pydantic reads exactly what the schema says.

    A number for a `Decimal` becomes text, which is how its digits survive. What pydantic would take
    of its own accord (text for a `Decimal`, `true` for a literal 1) becomes text that it refuses.
    """

    def leaf(nodes: list[Node], found: Any) -> Any:
        if not any(EXACT_MARK in node for node in nodes):
            return found
        if not _admits(nodes, _json_type(found)):
            return ""
        # Where a string is welcome too, text would arrive as a string.
        as_text = isinstance(found, Decimal) and not _admits(nodes, "string")
        return str(found) if as_text else found

    return walk(root, value, leaf)


def overflow(root: Node, value: Any) -> tuple[str | int, ...] | None:
    """The path to a number that a double would take for infinite, where the schema has doubles; None: no such."""
    found: list[Any] = []

    def leaf(nodes: list[Node], number: Any) -> Any:
        if isinstance(number, Decimal | int) and not -_LARGEST <= number <= _LARGEST:
            kept = isinstance(number, int) and any("integer" in json_types(n) for n in nodes)
            found.extend(() if kept else (number,))
        return number

    walk(root, value, leaf)
    return _path_to(found[0], value) if found else None


def _path_to(leaf: object, value: Any) -> tuple[str | int, ...] | None:
    members: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
    elif isinstance(value, list):
        members = enumerate(cast("list[Any]", value))
    for step, member in members:
        if member is leaf:
            return (step,)
        inner = _path_to(leaf, member)
        if inner is not None:
            return (step, *inner)
    return None


def native_number(nodes: list[Node], found: Any) -> Any:
    """A leaf: a number as plain Python has it, without losing a digit.

    Shape: an int where the schema demands one, a float where the nearest double is written with the
    same digits, else the `Decimal` as it is.
    """
    if not isinstance(found, Decimal):
        return found
    if _is_whole(found) and _only_integer(nodes):
        return int(found)
    double = float(found)
    return double if Decimal(repr(double)) == found else found


def _only_integer(nodes: list[Node]) -> bool:
    return _admits(nodes, "integer") and not _admits(nodes, "number")


def _is_whole(number: Decimal) -> bool:
    return number == number.to_integral_value()
