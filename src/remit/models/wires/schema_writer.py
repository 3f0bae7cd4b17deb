"""A schema, written out for a wire that takes JSON Schema as it is: whole, or without references.

Pure. `SchemaWriter` changes as little as it can: the root, names that the wire refuses, older forms of words, arrays
that say nothing of their items. `InlinedWriter` does the same and writes definitions out where they are used. The
writers of `strict_grammars.py` stand on the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, cast

import msgspec

from remit.canonical import json_text, parse_json
from remit.models.wires.aliases import Keys, NameRule, alias
from remit.models.wires.optional_nulls import without_nulls
from remit.models.wires.root_union import COMPOSED, merged_root
from remit.models.wires.schema_source import MOST_NODES, CannotLower, Node, Source

__all__ = [
    "ANNOTATIONS",
    "Dialect",
    "InlinedWriter",
    "Lowered",
    "SchemaWriter",
    "at",
    "described",
    "in_order",
    "types_of",
    "without_tables",
]


class Dialect(msgspec.Struct, frozen=True):
    """What an endpoint takes of tools."""

    target: Literal["open", "strict", "anthropic-strict", "inlined"] = "open"
    names: NameRule = NameRule()
    """Names of tools."""
    keys: NameRule | None = NameRule("A-Za-z0-9_.-")
    """Names of parameters; None: any."""
    bare_arrays: bool = False
    """Arrays may say nothing of their items. OpenAI refuses such a tool, and every other one with it."""


class Lowered:
    """A schema as a wire takes it, and the way of texts there and back."""

    __slots__ = ("_optional", "keys", "moved", "schema", "told")

    def __init__(
        self,
        schema: Mapping[str, Any],
        keys: Keys | None = None,
        moved: tuple[str, ...] = (),
        told: str = "",
        optional: Source | None = None,
    ) -> None:
        self.schema = schema
        self.keys = keys
        """Names of parameters that had to be changed; None where none had."""
        self.moved = moved
        """What only dispatch checks, each with its place, in words."""
        self.told = told
        """What belongs into the description of the tool, because no part of the schema can hold it."""
        self._optional = optional

    @property
    def is_plain(self) -> bool:
        """Whether texts are the same on both sides."""
        return not self.keys and self._optional is None

    def to_wire(self, text: str) -> str:
        """Arguments as JSON text, with the wire's keys."""
        return self.keys.to_wire(text) if self.keys else text

    def from_wire(self, text: str) -> str:
        """What the model wrote, as the original schema has it. Text that cannot be read stays as it is."""
        if self.keys:
            text = self.keys.from_wire(text)
        if self._optional is None or "null" not in text:
            return text
        try:
            value = parse_json(text)
        except ValueError:
            return text
        kept = without_nulls(self._optional, [self._optional.root], value)
        return text if kept == value else json_text(kept)


_ORDER: Final = {
    word: place
    for place, word in enumerate(
        (
            "$schema",
            "$id",
            "type",
            "title",
            "description",
            "enum",
            "const",
            "format",
            "properties",
            "required",
        )
    )
}
"""Keywords that come first; the others follow by name, and definitions come last."""
_LAST: Final = {"definitions": 1, "$defs": 2}

_OVER_NAMES: Final = ("patternProperties", "propertyNames")
_FRAGILE: Final = (
    "not",
    "if",
    "then",
    "else",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
)
"""What may admit less once a part of it admits more."""
_MOST_TOLD: Final = 2_000
"""Characters of one rule that are told; a longer one is only named."""
_MOST_NODES: Final = MOST_NODES
"""How many nodes a lowered schema may have: references that are written out can multiply."""


class SchemaWriter:
    """One schema on its way into a dialect. What is here writes target `open`."""

    def __init__(self, source: Source, dialect: Dialect) -> None:
        self._source = source
        self._dialect = dialect
        self._keys = _keys_of(source, dialect)
        self._loses = self._keys is not None and source.holds(*_OVER_NAMES)
        """Something is left out, so nothing fragile may stay: rules over names would judge the aliases."""
        self._moved: list[str] = []
        self._told: list[str] = []
        self._places: dict[str, str] = {}
        """Where a definition stands in the original, to its name here."""
        self._waiting: list[tuple[str, str]] = []
        self._nodes = 0

    def lowered(self) -> Lowered:
        root = self._plain_root()
        schema = self._root(root)
        defs = self._definitions()
        schema = in_order({**schema, **defs})
        return Lowered(schema, self._keys, tuple(self._moved), "\n".join(self._told))

    def _root(self, root: Node) -> Node:
        tables = [word for word in ("$defs", "definitions") if isinstance(root.get(word), dict)]
        for word in tables:
            for name in root[word]:
                if isinstance(root[word][name], dict | bool):
                    self._definition(f"/{word}/{name.replace('~', '~0').replace('/', '~1')}")
        return self._node({word: part for word, part in root.items() if word not in tables}, "")

    def _plain_root(self) -> Node:
        """The root as an object without composition; what that loses is told."""
        root = self._source.node(self._source.root, "")
        types = root.get("type", "object")
        if "object" not in ((types,) if isinstance(types, str) else types):
            raise CannotLower("the root of its schema is no object")
        if any(word in root for word in COMPOSED):
            merged = merged_root(self._source, root)
            self._tell_parts(root, merged)
            root = merged
        return {**root, "type": "object"}

    def _tell_parts(self, part: Node, merged: Node) -> None:
        """Tell what composed parts say beyond the members that are in the merged root."""
        for word in COMPOSED:
            if word in ("$ref", "allOf") and word in part:
                inner = [self._source.resolved(part[word])[1]] if word == "$ref" else part[word]
                for each in inner:
                    self._tell_part(self._source.node(each, "the root"), merged)
            elif word in part:
                told = self._rule(part[word], merged) or "a rule that is too long to show"
                self._tell(f"{_SENTENCES[word]} {told}.")

    def _tell_part(self, part: Node, merged: Node) -> None:
        self._tell_parts(part, merged)
        left = {name: rule for name, rule in part.items() if name not in _CARRIED}
        if left:
            told = self._rule(left, merged) or "a rule that is too long to show"
            self._tell(f"The arguments must also fit {told}.")

    def _tell(self, sentence: str) -> None:
        self._told.append(sentence)
        self._moved.append(f"the root: {sentence}")

    def _rule(self, rule: Any, merged: Node) -> str:
        """A rule as compact JSON with the wire's names; members that the schema shows anyway are `true`."""
        members = merged.get("properties", {})

        def short(value: Any, hops: int = 0) -> Any:
            if isinstance(value, list):
                return [short(each, hops) for each in cast("list[Any]", value)]
            if not isinstance(value, dict):
                return value
            table = cast("Node", value)
            if hops < 2 and isinstance(table.get("$ref"), str):
                return short(self._source.resolved(table["$ref"])[1], hops + 1)
            shown = {self._key(name): short(part, hops) for name, part in table.items()}
            properties = table.get("properties")
            if isinstance(properties, dict):
                shown["properties"] = {
                    self._key(name): True if part == members.get(name) else short(part, hops)
                    for name, part in cast("Node", properties).items()
                }
            required = table.get("required")
            if isinstance(required, list):
                shown["required"] = [self._key(name) for name in cast("list[str]", required)]
            return shown

        text = json_text(short(rule))
        return text if len(text) <= _MOST_TOLD else ""

    # -- definitions

    def _definition(self, pointer: str) -> str:
        """The path to a definition in the new schema; it is written when its turn comes."""
        if not pointer:
            return "#"
        known = self._places.get(pointer)
        if known is None:
            known = self._places[pointer] = self._place(pointer)
            self._waiting.append((pointer, known))
        return known

    def _place(self, pointer: str) -> str:
        _, table, *rest = pointer.split("/")
        rule = self._dialect.keys or NameRule("A-Za-z0-9_.-")
        if table in ("$defs", "definitions") and len(rest) == 1 and alias(rest[0], rule) == rest[0]:
            return f"#/{table}/{rest[0]}"
        # The whole path makes the name: two definitions with one last name stay two.
        return f"#/$defs/{alias(pointer[-40:] + chr(0) + pointer, rule)}"

    def _definitions(self) -> Node:
        tables: dict[str, Node] = {}
        while self._waiting:
            pointer, place = self._waiting.pop()
            _, table, name = place.split("/")
            found = self._source.target(pointer)
            tables.setdefault(table, {})[name] = self._part(found, f"#{pointer}")
        return {table: dict(sorted(named.items())) for table, named in tables.items()}

    # -- nodes

    def _part(self, schema: Any, where: str) -> Any:
        return self._node(self._source.node(schema, where), where)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise CannotLower(
                f"its schema grows beyond {_MOST_NODES:,} parts when it is written out"
            )

    def _node(self, node: Node, where: str) -> Node:
        self._count()
        if self._loses:
            node = self._without_what_breaks(node, where)
        lowered: Node = {}
        for word, part in node.items():
            write = self._WORDS.get(word)
            lowered[word] = part if write is None else write(self, part, node, where)
        if (
            not self._dialect.bare_arrays
            and "items" not in lowered
            and "array" in types_of(lowered)
        ):
            lowered["items"] = {}
        return in_order(lowered)

    # -- words: each is given its value, the node that it stands in, and where that is

    def _one(self, part: Any, node: Node, where: str) -> Any:
        del node
        return self._part(part, where or "the root")

    def _one_or_flag(self, part: Any, node: Node, where: str) -> Any:
        return part if isinstance(part, bool) else self._one(part, node, where)

    def _each_item(self, part: Any, node: Node, where: str) -> Any:
        return self._one(part, node, f"{where}[]")

    def _list(self, part: list[Any], node: Node, where: str) -> Any:
        return [self._one(each, node, where) for each in part]

    def _map(self, part: Node, node: Node, where: str) -> Any:
        del node
        return {name: self._part(each, at(where, name)) for name, each in part.items()}

    def _map_of_names(self, part: Node, node: Node, where: str) -> Any:
        return {self._key(name): each for name, each in self._map(part, node, where).items()}

    def _members(self, part: Node, node: Node, where: str) -> Any:
        del part
        return self._properties(node, where)

    def _names(self, part: list[str], node: Node, where: str) -> Any:
        del node, where
        return [self._key(name) for name in dict.fromkeys(part)]

    def _names_of_names(self, part: Node, node: Node, where: str) -> Any:
        return {self._key(name): self._names(each, node, where) for name, each in part.items()}

    def _literal(self, part: Any, node: Node, where: str) -> Any:
        del node, where
        return self._value(part)

    def _pointer(self, part: str, node: Node, where: str) -> Any:
        del node, where
        return self._reference(part)

    _WORDS: ClassVar[Mapping[str, Callable[[Any, Any, Node, str], Any]]] = {
        "$ref": _pointer,
        "properties": _members,
        "required": _names,
        "dependentRequired": _names_of_names,
        "dependentSchemas": _map_of_names,
        "patternProperties": _map,
        "items": _each_item,
        "contains": _each_item,
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _list),
        **dict.fromkeys(("else", "if", "not", "propertyNames", "then"), _one),
        **dict.fromkeys(
            ("additionalProperties", "unevaluatedItems", "unevaluatedProperties"),
            _one_or_flag,
        ),
        **dict.fromkeys(("const", "default", "enum", "examples"), _literal),
    }
    """How words are written whose values are more than they say; every other one stays as it is."""

    # -- members and references

    def _properties(self, node: Node, where: str) -> Node:
        properties: Node = node.get("properties", {})
        required = [name for name in node.get("required", ()) if name in properties]
        lowered: Node = {}
        for name in dict.fromkeys([*required, *sorted(properties)]):
            lowered[self._key(name)] = self._named(
                self._part(properties[name], at(where, name)), name
            )
        return lowered

    def _named(self, part: Node, name: str) -> Node:
        """A member under another name says what it is called elsewhere."""
        if self._key(name) == name:
            return part
        return described(part, f"(Its own name is {name!r}.)")

    def _reference(self, reference: str) -> str:
        pointer, _ = self._source.resolved(reference)
        return self._definition(pointer)

    def _key(self, name: str) -> str:
        return name if self._keys is None else self._keys.alias_of(name)

    def _value(self, value: Any) -> Any:
        """A value inside of the schema, with the wire's keys."""
        if self._keys is None:
            return value
        if isinstance(value, list):
            return [self._value(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {
                self._key(name): self._value(part) for name, part in cast("Node", value).items()
            }
        return value

    def _without_what_breaks(self, node: Node, where: str) -> Node:
        """The node without rules over names, where names are aliased, and without what is fragile."""
        node = dict(node)
        gone: Node = {}
        over_names = _OVER_NAMES if self._keys else ()
        for word in (*over_names, *_FRAGILE):
            if word in node:
                gone[word] = node.pop(word)
        if "patternProperties" in gone and "additionalProperties" in node:
            gone["additionalProperties"] = node.pop("additionalProperties")
        if "oneOf" in node:
            gone["oneOf"] = node.pop("oneOf")
            node.setdefault("anyOf", gone["oneOf"])
        told = {word: rule for word, rule in gone.items() if not isinstance(rule, bool)}
        return self._with_rules(node, told, where)

    def _with_rules(self, node: Node, rules: Node, where: str) -> Node:
        """The node, its description telling rules that the dialect has no words for."""
        if not rules:
            return node
        text = self._rule(rules, {}) or f"rules for {', '.join(rules)}, too long to show"
        if where:
            self._moved.append(f"{where}: {text}")
            return described(node, f"(Must also fit {text})")
        self._tell(f"The arguments must also fit {text}.")
        return node


_CARRIED: Final = frozenset(
    {
        *COMPOSED,
        "$defs",
        "$id",
        "$schema",
        "additionalProperties",
        "definitions",
        "description",
        "properties",
        "required",
        "title",
        "type",
        "unevaluatedProperties",
    }
)
"""What of a part of the root needs no telling: it is in the merged one, or tells nothing."""

_SENTENCES: Final = {
    "anyOf": "The arguments must fit at least one of",
    "oneOf": "The arguments must fit exactly one of",
    "not": "The arguments must not fit",
    "enum": "The arguments must be one of",
    "const": "The arguments must be",
}


def _keys_of(source: Source, dialect: Dialect) -> Keys | None:
    if dialect.keys is None:
        return None
    keys = Keys(source.property_names(), dialect.keys)
    if keys.collide:
        raise CannotLower("two of its parameters would get one name on this wire")
    return keys or None


def at(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def types_of(node: Node) -> tuple[str, ...]:
    types = node.get("type", ())
    return (types,) if isinstance(types, str) else tuple(types)


def described(node: Node, text: str) -> Node:
    before = node.get("description")
    return in_order({**node, "description": f"{before} {text}" if before else text})


def in_order(node: Node) -> Node:
    last = len(_ORDER)
    return dict(
        sorted(
            node.items(),
            key=lambda item: (_LAST.get(item[0], 0), _ORDER.get(item[0], last), item[0]),
        )
    )


# --- without references --------------------------------------------------------------------------


class InlinedWriter(SchemaWriter):
    """Definitions are written out where they are referred to; a recursion ends in a free value of its type."""

    def __init__(self, source: Source, dialect: Dialect) -> None:
        super().__init__(source, dialect)
        self._around: list[str] = [""]
        """The definitions that are being written out."""
        self._cut = False

    def lowered(self) -> Lowered:
        found = super().lowered()
        if not self._cut or self._loses or not self._source.holds("oneOf", *_FRAGILE):
            return found
        again = InlinedWriter(self._source, self._dialect)
        again._loses = True  # what a recursion is cut from admits more
        return again.lowered()

    def _root(self, root: Node) -> Node:
        return self._node(without_tables(root), "")

    def _node(self, node: Node, where: str) -> Node:
        if "$ref" not in node:
            return super()._node(without_tables(node), where)
        beside = {word: part for word, part in node.items() if word != "$ref"}
        target = self._written_out(node["$ref"], where)
        if not beside:
            return target
        lowered = super()._node(beside, where)
        if ANNOTATIONS.issuperset(lowered):
            return in_order({**target, **lowered})
        return {"allOf": [target, lowered]}

    def _written_out(self, reference: str, where: str) -> Node:
        self._count()
        pointer, target = self._source.resolved(reference)
        if pointer in self._around:
            self._cut = True
            name = pointer.rpartition("/")[2] or "the whole"
            self._moved.append(f"{where}: the form of {name}, again")
            types = cast("Node", target).get("type") if isinstance(target, dict) else None
            cut: Node = {} if types is None else {"type": types}
            if "array" in types_of(cut) and not self._dialect.bare_arrays:
                cut["items"] = {}
            return described(cut, f"(In the form of {name}, again.)")
        self._around.append(pointer)
        part = self._part(target, where)
        self._around.pop()
        return part


def without_tables(node: Node) -> Node:
    return {word: part for word, part in node.items() if word not in ("$defs", "definitions")}


ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "deprecated"})
