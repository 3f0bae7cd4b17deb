"""A JSON Schema as its author wrote it, checked and read: the ground that `lowering.py` stands on.

    Source    one schema: its root, and what its references point to
    modern    one node in the words of draft 2020-12

Schemas come from servers that nobody here knows. Whatever cannot be read is `CannotLower`, with the reason in
words for people; the bounds below hold for all of them. The copy has the keys of every object in order, so that a
server which lists them otherwise after a restart changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast
from urllib.parse import unquote

__all__ = ["MOST_CHARS", "MOST_DEPTH", "MOST_NODES", "CannotLower", "Node", "Source", "modern"]

Node: TypeAlias = "dict[str, Any]"

MOST_DEPTH: Final = 64
"""How deep a schema may nest, its values included."""
MOST_NODES: Final = 20_000
"""How many values it may be made of."""
MOST_CHARS: Final = 1_000_000
"""Characters of all its texts and names together."""

_TYPES: Final = frozenset({"null", "boolean", "string", "integer", "number", "array", "object"})
_OLD_DRAFTS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples"})
_MOST_HOPS: Final = 64
"""How many references may follow one another before something is said."""


class CannotLower(Exception):
    """The schema has no form in the dialect; the text says why."""


class Source:
    """One schema, checked."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Errors: `CannotLower` for what is no JSON, and past the bounds."""
        copied = _Copy().of(schema, 0)
        if not isinstance(copied, dict):
            raise CannotLower("its schema is no object")
        self.root = cast("Node", copied)
        draft = self.root.get("$schema")
        self.is_old = isinstance(draft, str) and any(old in draft for old in _OLD_DRAFTS)
        """Declared as of a draft in which what stands beside a reference counts for nothing."""
        self._anchors: dict[str, Any] | None = None

    def node(self, schema: Any, where: str) -> Node:
        """A node that is an object, in modern words. Errors: `CannotLower`."""
        return modern(schema, where, is_old=self.is_old)

    def pointer(self, reference: str) -> str:
        """Where a reference leads, as a path from the root (`/$defs/Line`); empty for the root itself.

        Errors: `CannotLower` for a reference out of the schema.
        """
        base, _, fragment = reference.partition("#")
        if base and base != self.root.get("$id"):
            raise CannotLower(
                f"it refers to {reference[:100]!r}, which is not in the schema itself"
            )
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return self._anchored(fragment, reference)
        return fragment

    def target(self, pointer: str) -> Any:
        """The schema at a path from the root. Errors: `CannotLower` where nothing is there."""
        found: Any = self.root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):  # as an object with its places for names
                found = {str(place): each for place, each in enumerate(cast("list[Any]", found))}
            if not isinstance(found, dict) or name not in found:
                raise CannotLower(f"it refers to {('#' + pointer)[:100]!r}, where nothing is")
            found = cast("Node", found)[name]
        if not isinstance(found, dict | bool):
            raise CannotLower(f"it refers to {('#' + pointer)[:100]!r}, which is no schema")
        return cast("Any", found)

    def resolved(self, reference: str) -> tuple[str, Any]:
        """What is at the end of a reference, and where. Errors: `CannotLower`, also for references in a circle."""
        pointer = self.pointer(reference)
        found = hop = self.target(pointer)
        for _ in range(_MOST_HOPS):
            further = cast("Node", hop).get("$ref") if isinstance(hop, dict) else None
            if not isinstance(further, str):
                return pointer, found
            hop = self.target(self.pointer(further))
        raise CannotLower(f"its references go in a circle at {reference[:100]!r}")

    def admits_null(self, schema: Any, hops: int = 0) -> bool:
        """Whether null fits: only few keywords speak about it, so this is exact. Errors: `CannotLower`."""
        if isinstance(schema, bool):
            return schema
        if hops > _MOST_HOPS:
            raise CannotLower("its references go in a circle")
        node = self.node(schema, "")

        def fits(part: Any) -> bool:
            return self.admits_null(part, hops + 1)

        types = node.get("type", "null")
        return (
            "null" in ((types,) if isinstance(types, str) else types)
            and None in node.get("enum", (None,))
            and node.get("const") is None
            and ("$ref" not in node or fits(self.resolved(node["$ref"])[1]))
            and all(map(fits, node.get("allOf", ())))
            and ("anyOf" not in node or any(map(fits, node["anyOf"])))
            and ("oneOf" not in node or sum(map(fits, node["oneOf"])) == 1)
            and ("not" not in node or not fits(node["not"]))
            and ("if" not in node or fits(node.get("then" if fits(node["if"]) else "else", True)))
        )

    def references(self, schema: Any) -> Iterator[str]:
        """Where the references of a schema lead, those inside of its parts included."""
        for node in _objects(schema):
            for word in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(node.get(word), str):
                    yield self.resolved(cast("str", node[word]))[0]

    def holds(self, *keywords: str) -> bool:
        """Whether one of these words stands anywhere in it, be it as a keyword or not."""
        return any(word in each for each in _objects(self.root) for word in keywords)

    def property_names(self) -> Iterator[str]:
        """The names of parameters at every depth, in order of appearance."""
        yield from _property_names(self.root)

    def _anchored(self, name: str, reference: str) -> str:
        if self._anchors is None:
            self._anchors = {}
            for pointer, node in _placed(self.root, ""):
                for word in ("$anchor", "$dynamicAnchor", "$id"):
                    anchor = node.get(word)
                    if isinstance(anchor, str) and (word != "$id" or anchor.startswith("#")):
                        self._anchors.setdefault(anchor.removeprefix("#"), pointer)
        if name not in self._anchors:
            raise CannotLower(f"it refers to {reference[:100]!r}, where nothing is")
        return self._anchors[name]


# --- copying -------------------------------------------------------------------------------------


class _Copy:
    """A deep copy in plain JSON types, keys in order, within bounds."""

    def __init__(self) -> None:
        self._nodes = 0
        self._chars = 0

    def of(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise CannotLower(f"its schema is made of more than {MOST_NODES:,} values")
        if depth > MOST_DEPTH:
            raise CannotLower(f"its schema nests deeper than {MOST_DEPTH} levels")
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool | int):
            return int(value) if type(value) is not bool and value is not None else value
        if isinstance(value, float | Decimal):
            number = float(value)
            if not math.isfinite(number):
                raise CannotLower(f"its schema holds {value}, which is no JSON")
            return number
        if isinstance(value, Mapping):
            table = cast("Mapping[Any, Any]", value)
            if not all(isinstance(key, str) for key in table):
                raise CannotLower("its schema has a key that is no text")
            return {self._text(key): self.of(table[key], depth + 1) for key in sorted(table)}
        if isinstance(value, list | tuple):
            return [self.of(item, depth + 1) for item in cast("list[Any]", value)]
        raise CannotLower(f"its schema holds a {type(value).__name__}, which is no JSON")

    def _text(self, text: str) -> str:
        self._chars += len(text)
        if self._chars > MOST_CHARS:
            raise CannotLower(f"its schema is longer than {MOST_CHARS:,} characters")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise CannotLower("its schema holds half a character (a lone surrogate)") from None
        return str.__str__(text)  # plain, also of an enumeration that is text


def _objects(value: Any) -> Iterator[Node]:
    if isinstance(value, dict):
        table = cast("Node", value)
        yield table
        for part in table.values():
            yield from _objects(part)
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from _objects(part)


def _placed(value: Any, pointer: str) -> Iterator[tuple[str, Node]]:
    if isinstance(value, dict):
        table = cast("Node", value)
        yield pointer, table
        for name, part in table.items():
            yield from _placed(part, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, part in enumerate(cast("list[Any]", value)):
            yield from _placed(part, f"{pointer}/{index}")


def _property_names(value: Any) -> Iterator[str]:
    for node in _objects(value):
        for word in ("properties", "dependentRequired", "dependentSchemas", "dependencies"):
            table = node.get(word)
            if isinstance(table, dict):
                yield from cast("Node", table)
        required = node.get("required")
        if isinstance(required, list):
            yield from (name for name in cast("list[Any]", required) if isinstance(name, str))


# --- one node ------------------------------------------------------------------------------------


def modern(schema: Any, where: str, *, is_old: bool = False) -> Node:
    """A node in the words of draft 2020-12, each of its right type. Parts are left as they are.

    Shape: a new dict; older forms (tuples in `items`, `dependencies`, a boolean `exclusiveMinimum`) are written
    in the new way. Errors: `CannotLower` for a keyword whose value is of the wrong type.
    """
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        raise CannotLower(f"{where or 'the root'} is no schema")
    node = dict(cast("Node", schema))
    if where and isinstance(node.get("$id"), str) and not node["$id"].startswith("#"):
        raise CannotLower(f"a schema of its own ($id) stands at {where}")
    for old in ("$recursiveRef", "$dynamicRef"):
        if old in node:
            node.setdefault("$ref", node.pop(old))
    if is_old and "$ref" in node:
        node = {word: part for word, part in node.items() if word in _ANNOTATIONS or word == "$ref"}
    if not _OLDER.isdisjoint(node):
        _modernise(node)
    for word, part in node.items():
        check = _CHECKS.get(word)
        if check is not None and not check(part):
            raise CannotLower(
                f"its `{word}` at {where or 'the root'} is not what JSON Schema has there"
            )
    return node


_OLDER: Final = frozenset({"items", "exclusiveMinimum", "exclusiveMaximum", "dependencies"})


def _modernise(node: Node) -> None:
    """Write older forms in the new way."""
    if isinstance(node.get("items"), list):
        places = node.pop("items")
        if places:
            node["prefixItems"] = places
        if "additionalItems" in node:
            node["items"] = node.pop("additionalItems")
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and bound in node:
            node[exclusive] = node.pop(bound)
    if isinstance(node.get("dependencies"), dict):
        for name, part in cast("Node", node.pop("dependencies")).items():
            table = "dependentRequired" if isinstance(part, list) else "dependentSchemas"
            before = node.get(table, {})
            if isinstance(before, dict):  # else it is refused for what it is
                node[table] = {**cast("Node", before), name: part}


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _are_schemas(value: Any) -> bool:
    return _is_list(value) and value != [] and all(map(_is_schema, value))


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, cast("Node", value).values()))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, str) for each in cast("list[Any]", value)
    )


def _are_named_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_are_texts, cast("Node", value).values()))


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return _are_texts(value) and bool(value) and _TYPES.issuperset(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(
        (
            "additionalProperties",
            "contains",
            "else",
            "if",
            "items",
            "not",
            "propertyNames",
            "then",
            "unevaluatedItems",
            "unevaluatedProperties",
        ),
        _is_schema,
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _are_schemas),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), _are_named_schemas),
    **dict.fromkeys(("$defs", "definitions"), lambda value: isinstance(value, dict)),
    **dict.fromkeys(("$ref", "description", "format", "pattern", "title"), _is_text),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is_number
    ),
    **dict.fromkeys(
        (
            "maxContains",
            "maxItems",
            "maxLength",
            "maxProperties",
            "minContains",
            "minItems",
            "minLength",
            "minProperties",
        ),
        _is_count,
    ),
    "dependentRequired": _are_named_texts,
    "enum": _is_list,
    "required": _are_texts,
    "type": _is_type,
    "uniqueItems": _is_flag,
}
