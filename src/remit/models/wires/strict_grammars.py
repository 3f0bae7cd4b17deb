"""Schemas in the grammars that providers hold a model to, word by word.

Pure. A grammar has few words. A rule that it has none for is told in the description of the place it is about; a
place that it cannot say at all, such as a map of any names, makes the schema `CannotLower`, and the tool goes out
without strictness.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from remit.models.wires.root_union import COMPOSED
from remit.models.wires.schema_source import CannotLower, Node, Source
from remit.models.wires.schema_writer import (
    ANNOTATIONS,
    Dialect,
    Lowered,
    SchemaWriter,
    described,
    in_order,
    types_of,
    without_tables,
)

__all__ = ["StrictWriter"]


class _Grammar(msgspec.Struct, frozen=True):
    """What a strict grammar has words for."""

    all_required: bool
    """Every member has to be there, so that what is optional has to admit null."""
    kept: frozenset[str]
    """Keywords about values that it takes."""
    formats: frozenset[str]
    recursion: bool


_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)
_GRAMMARS: Final = {
    "strict": _Grammar(
        all_required=True,
        kept=frozenset(
            {
                "exclusiveMaximum",
                "exclusiveMinimum",
                "maxItems",
                "maximum",
                "minItems",
                "minimum",
                "multipleOf",
            }
        ),
        formats=_FORMATS,
        recursion=True,
    ),
    "anthropic-strict": _Grammar(
        all_required=False, kept=frozenset(), formats=_FORMATS | {"uri"}, recursion=False
    ),
}
"""Source: OpenAI's guide to structured outputs; the strict transformation of Anthropic's SDK 2.14."""

_MOST_MEMBERS: Final = 5_000
_MOST_LEVELS: Final = 10
_MOST_VALUES: Final = 1_000
_SPEAKING_OF_MEMBERS: Final = ("then", "else", "dependentSchemas", "not", "if")


class StrictWriter(SchemaWriter):
    """For grammars that a provider holds the model to. Where one has no words, rules are told, or it is refused."""

    def __init__(self, source: Source, dialect: Dialect) -> None:
        super().__init__(source, dialect)
        self._grammar = _GRAMMARS[dialect.target]
        self._nulled = False
        self._member_count = 0
        self._value_count = 0
        self._level = 0

    def lowered(self) -> Lowered:
        if not self._grammar.recursion and _is_recursive(self._source):
            raise CannotLower("it refers to itself, which this grammar cannot say")
        found = super().lowered()
        if self._member_count > _MOST_MEMBERS or self._value_count > _MOST_VALUES:
            raise CannotLower("it has more members or values than this grammar takes")
        optional = self._source if self._nulled else None
        return Lowered(found.schema, found.keys, found.moved, found.told, optional)

    def _root(self, root: Node) -> Node:
        return self._node(without_tables(root), "")

    def _node(self, node: Node, where: str) -> Node:
        self._count()
        node = self._flat(node, where)
        written: Node = {word: node[word] for word in ("title", "description") if word in node}
        types = types_of(node) or _types_of_values(node)
        if "$ref" in node:
            written = self._pointing(node, written, where)
        elif "anyOf" in node:
            self._refuse_beside(node, "anyOf", where)
            written["anyOf"] = [self._part(each, where) for each in node["anyOf"]]
        elif not types:
            raise CannotLower(
                f"{where or 'the root'} may be of any type, which a strict schema cannot say"
            )
        else:
            written["type"] = types[0] if len(types) == 1 else list(types)
            self._values_of(node, written)
            self._level += 1
            if self._level > _MOST_LEVELS + 1:
                raise CannotLower(
                    f"it nests deeper than the {_MOST_LEVELS} levels of a strict schema"
                )
            if "object" in types:
                self._object(node, written, where)
            if "array" in types:
                self._array(node, written, where)
            self._level -= 1
        rules = self._other_rules(node, written)
        return self._with_rules(in_order(written), rules, where)

    def _flat(self, node: Node, where: str) -> Node:
        """An intersection of one is that one; `oneOf` becomes `anyOf`, and that only one may fit is told."""
        if "allOf" in node:
            parts = node["allOf"]
            beside = {word: part for word, part in node.items() if word != "allOf"}
            inner = self._source.node(parts[0], where)
            if (
                len(parts) > 1
                or (set(inner) & set(beside)) - ANNOTATIONS
                or not _are_apart(inner, beside)
            ):
                raise CannotLower(f"{where or 'the root'} is an intersection (allOf)")
            return self._flat({**inner, **beside}, where)
        if "oneOf" in node:
            if "anyOf" in node:
                raise CannotLower(f"{where or 'the root'} is two unions at once")
            node = {**node, "anyOf": node["oneOf"]}
            node.pop("oneOf")
            text = "(Exactly one of the alternatives may fit.)"
            self._moved.append(f"{where or 'the root'}: {text}")
            node = described(node, text)
        return node

    def _refuse_beside(self, node: Node, word: str, where: str) -> None:
        beside = set(node) & (_RULES | _FORMING) - {word, "default", "format"}
        if beside:
            shown = ", ".join(sorted(beside))
            raise CannotLower(f"at {where or 'the root'}, {shown} stands beside {word}")

    def _pointing(self, node: Node, written: Node, where: str) -> Node:
        self._refuse_beside(node, "$ref", where)
        reference = {"$ref": self._reference(node["$ref"])}
        return {**written, "anyOf": [reference]} if written else reference

    def _values_of(self, node: Node, written: Node) -> None:
        for word in ("enum", "const"):
            if word in node:
                values = node[word] if word == "enum" else [node[word]]
                if any(isinstance(value, dict | list) for value in values):
                    raise CannotLower("one of its values is an object or a list")
                self._value_count += len(values)
                written[word] = node[word]

    def _object(self, node: Node, written: Node, where: str) -> None:
        place = where or "the root"
        members: Node = node.get("properties", {})
        closed = node.get("additionalProperties", node.get("unevaluatedProperties"))
        if "patternProperties" in node or not (closed is False or (closed is None and members)):
            raise CannotLower(f"{place} is a map of any names, which a strict schema cannot say")
        for word in _SPEAKING_OF_MEMBERS:
            if not self._known_names(node.get(word)) <= set(members):
                raise CannotLower(f"{place} has members that only `{word}` names")
        required = dict.fromkeys(node.get("required", ()))
        if not set(members).issuperset(required):
            raise CannotLower(f"{place} requires a member that it does not describe")
        self._member_count += len(members)
        properties = self._properties(node, where)
        for name in members:
            if self._grammar.all_required and name not in required:
                properties[self._key(name)] = self._optional(
                    members[name], properties[self._key(name)]
                )
        written["properties"] = properties
        names = properties if self._grammar.all_required else map(self._key, required)
        written["required"] = list(names)
        written["additionalProperties"] = False

    def _known_names(self, part: Any) -> set[str]:
        if not isinstance(part, dict):
            return set()
        return set(Source({"part": part}).property_names())

    def _optional(self, member: Any, lowered: Node) -> Node:
        """What may be left out has to be there as null."""
        if self._source.admits_null(member):
            return lowered
        self._nulled = True
        types = lowered.get("type")
        if isinstance(types, str | list) and not {"enum", "const"} & set(lowered):
            listed = [types] if isinstance(types, str) else cast("list[str]", types)
            return {**lowered, "type": [*listed, "null"]}
        beside = {word: lowered[word] for word in ("title", "description") if word in lowered}
        inner = {word: part for word, part in lowered.items() if word not in beside}
        branches = inner["anyOf"] if set(inner) == {"anyOf"} else [inner]
        return in_order({**beside, "anyOf": [*branches, {"type": "null"}]})

    def _array(self, node: Node, written: Node, where: str) -> None:
        if "prefixItems" in node or "unevaluatedItems" in node:
            raise CannotLower(f"{where} is a list whose places differ")
        if "items" not in node:
            raise CannotLower(f"{where} is a list of anything, which a strict schema cannot say")
        written["items"] = self._part(node["items"], f"{where}[]")

    def _other_rules(self, node: Node, written: Node) -> Node:
        """Keywords that the grammar has no words for; those that it has are written."""
        rules: Node = {}
        grammar = self._grammar
        for word, part in node.items():
            few = word == "minItems" and part in (0, 1)
            known = word == "format" and part in grammar.formats and written.get("type") == "string"
            if word in grammar.kept or few or known:
                written[word] = part
            elif word in _RULES and part is not None:
                rules[word] = part
        return rules


_FORMING: Final = frozenset(
    {*COMPOSED, "additionalProperties", "items", "prefixItems", "properties", "required", "type"}
    | {"patternProperties", "unevaluatedItems", "unevaluatedProperties"}
)
_RULES: Final = frozenset(
    {
        "contains",
        "default",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "if",
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "pattern",
        "propertyNames",
        "then",
        "uniqueItems",
    }
)
"""What is told where it cannot be written."""


def _are_apart(one: Node, other: Node) -> bool:
    """Whether no keyword of one looks at a keyword of the other."""
    groups = (
        {"properties", "patternProperties", "additionalProperties"},
        {"items", "prefixItems"},
        {"if", "then", "else"},
        {"contains", "minContains", "maxContains"},
    )
    looks_around = {"unevaluatedItems", "unevaluatedProperties"}
    return looks_around.isdisjoint(one) and not any(
        group & set(one) and group & set(other) for group in groups
    )


def _types_of_values(node: Node) -> tuple[str, ...]:
    values: list[Any] = node.get("enum", [node["const"]] if "const" in node else [])
    return tuple(dict.fromkeys(map(_type_of, values)))


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds = (
        (bool, "boolean"),
        (str, "string"),
        (int, "integer"),
        (float, "number"),
        (list, "array"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _is_recursive(source: Source) -> bool:
    """Whether a definition refers to itself, over others or directly."""
    open_: set[str] = set()
    done: set[str] = set()

    def visit(pointer: str) -> bool:
        if pointer in open_:
            return True
        if pointer in done:
            return False
        open_.add(pointer)
        found = any(map(visit, dict.fromkeys(source.references(source.target(pointer)))))
        open_.discard(pointer)
        done.add(pointer)
        return found

    return visit("")
