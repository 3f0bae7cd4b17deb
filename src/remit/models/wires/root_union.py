"""A composed root as one plain object: what a union, an intersection and a reference say of its members.

No provider takes `anyOf` at the root of a tool's schema, many tools have it (case 20). Here it becomes one object
that admits whatever the original admits: a member keeps the types that any branch gives it, and is required where
all branches require it. What is lost, such as which members go together, is told in words by `lowering.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from remit.canonical import canonical
from remit.models.wires.schema_source import CannotLower, Node, Source

__all__ = ["COMPOSED", "merged_root"]

COMPOSED: Final = ("$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const")
"""What may not stand at the root."""

_EVALUATING: Final = ("if", "dependentSchemas", "patternProperties")
"""Keywords of a branch that are not carried over and may speak of members."""

_MOST_HOPS: Final = 32


@dataclass(slots=True)
class _View:
    """What a schema says of an object."""

    members: dict[str, list[Any]] = field(default_factory=dict[str, "list[Any]"])
    """Name to schemas that all hold."""
    required: list[str] = field(default_factory=list[str])
    rest: Any = None
    """Of any other member: a schema, True or False; None where nothing is said."""
    loose: set[str] = field(default_factory=set[str])
    """Members of which some branch says nothing, where only the whole forbids what nobody speaks of."""


def merged_root(source: Source, root: Node) -> Node:
    """The root, with the members of its composed parts. Errors: `CannotLower` where no object fits."""
    closed = root.get("unevaluatedProperties") is False
    reader = _Reader(source, closed=closed)
    view = reader.view(root, 0)
    if view is None:
        raise CannotLower("no object fits the root of its schema")
    if reader.lost and closed:
        # A part that is not carried over may be what a member is admitted by.
        root = {word: part for word, part in root.items() if word != "unevaluatedProperties"}
        view = _Reader(source, closed=False).view(root, 0) or _View()
    merged = {word: part for word, part in root.items() if word not in COMPOSED}
    merged["properties"] = {name: _all(parts) for name, parts in view.members.items()}
    merged["required"] = view.required
    if "patternProperties" in root:  # its own rule for the rest stands: it knows the patterns
        merged.pop("unevaluatedProperties", None)
        return merged
    merged.pop("additionalProperties", None)
    if view.rest is None and (reader.lost or (not closed and reader.named - set(view.members))):
        view.rest = True  # nobody may take the members for all there are
    if view.rest is not None:
        merged["additionalProperties"] = view.rest
    return merged


class _Reader:
    def __init__(self, source: Source, *, closed: bool) -> None:
        self._source = source
        self._closed = closed
        self.lost = False
        """Something was left out that may have spoken of members."""
        self.named: set[str] = set()
        """Members that a part requires, be they described or not."""

    def view(self, schema: Any, hops: int) -> _View | None:
        """What it says; None where no object fits."""
        if hops > _MOST_HOPS:
            raise CannotLower("the parts of its root refer to each other without end")
        if schema is False:
            return None
        node = self._source.node(schema, "the root")
        if "object" not in _types(node):
            return None
        if hops:
            self.lost = self.lost or any(word in node for word in _EVALUATING)
            self.named.update(node.get("required", ()))
        view: _View | None = _View(
            {name: [part] for name, part in node.get("properties", {}).items()},
            list(dict.fromkeys(node.get("required", ()))),
            # What a pattern admits is not looked at.
            True if "patternProperties" in node else node.get("additionalProperties"),
        )
        for other in self._parts(node, hops + 1):
            view = _both(view, other) if view is not None and other is not None else None
        if view is not None and hops and view.rest is None and "unevaluatedProperties" in node:
            composed = self.lost or any(word in node for word in COMPOSED)
            view.rest = True if composed else node["unevaluatedProperties"]
        return view

    def _parts(self, node: Node, hops: int) -> Iterator[_View | None]:
        """What else holds of the same object."""
        for part in node.get("allOf", ()):
            yield self.view(part, hops)
        if "$ref" in node:
            yield self.view(self._source.resolved(node["$ref"])[1], hops)
        for word in ("anyOf", "oneOf"):
            if word in node:
                branches = [self.view(part, hops) for part in node[word]]
                yield self._either([branch for branch in branches if branch is not None])

    def _either(self, branches: Sequence[_View]) -> _View | None:
        if len(branches) < 2:
            return branches[0] if branches else None
        either = _View(rest=self._either_rest([branch.rest for branch in branches]))
        for name in dict.fromkeys(name for branch in branches for name in branch.members):
            either.members[name] = [_any(self._say(name, branches, either))]
        first, *others = branches
        either.required = [
            name for name in first.required if all(name in other.required for other in others)
        ]
        return either

    def _either_rest(self, rests: Sequence[Any]) -> Any:
        said = [rest for rest in rests if rest not in (None, False)]
        if True in rests or (self._closed and None in rests and said):
            return True  # what one branch speaks of, the whole does not forbid
        if None in rests:
            return None
        return _any(said) if said else False

    def _say(self, name: str, branches: Sequence[_View], either: _View) -> Iterator[Any]:
        """What each branch that admits the member says of it."""
        for branch in branches:
            if name in branch.loose or (
                branch.rest is None and name not in branch.members and self._closed
            ):
                either.loose.add(name)
            if name in branch.members:
                yield _all(branch.members[name])
            elif branch.rest is not False and not (branch.rest is None and self._closed):
                yield {} if branch.rest in (None, True) else branch.rest


def _types(node: Node) -> Sequence[str]:
    types = node.get("type", "object")
    return (types,) if isinstance(types, str) else types


def _both(one: _View, other: _View) -> _View:
    both = _View(required=list(dict.fromkeys([*one.required, *other.required])))
    for name in dict.fromkeys([*one.members, *other.members]):
        said = _both_say(name, one, other)
        if said is not None:
            both.members[name] = said
            if name in one.loose or name in other.loose:
                both.loose.add(name)
    rests = [rest for rest in (one.rest, other.rest) if rest is not None]
    if any(rest is False for rest in rests):
        both.rest = False
    else:
        schemas = [rest for rest in rests if rest is not True]
        both.rest = _all(schemas) if schemas else (True if rests else None)
    both.loose &= set(both.members)
    return both


def _both_say(name: str, one: _View, other: _View) -> list[Any] | None:
    """None where one of them forbids the member."""
    said: list[Any] = []
    firm = [view for view in (one, other) if name in view.members and name not in view.loose]
    speaking = firm or [view for view in (one, other) if name in view.members]
    if len(speaking) == 2 and not firm:
        return [_any([_all(view.members[name]) for view in speaking])]
    for view in (one, other):
        if view in speaking:
            said += view.members[name]
        elif name not in view.members:
            if view.rest is False:
                return None
            if view.rest not in (None, True):
                said.append(view.rest)
    return _distinct(said)


def _all(parts: Sequence[Any]) -> Any:
    distinct = _distinct(parts)
    return distinct[0] if len(distinct) == 1 else {"allOf": distinct}


def _any(parts: Iterable[Any]) -> Any:
    """A union that keeps its types readable: constants of one kind become one enum, whatever admits all is last."""
    distinct = sorted(_distinct(parts), key=lambda part: part in ({}, True))
    if len(distinct) == 1:
        return distinct[0]
    constants = [constant for part in distinct if (constant := _constants(part)) is not None]
    if len(constants) == len(distinct) and len(_distinct(beside for beside, _ in constants)) == 1:
        values = _distinct(value for _, values in constants for value in values)
        return {**constants[0][0], "enum": values}
    return {"anyOf": distinct}


def _constants(part: Any) -> tuple[Node, list[Any]] | None:
    """Its other words and its values, where it is made of values."""
    if not isinstance(part, dict):
        return None
    node = dict(cast("Node", part))
    if not (("const" in node) ^ ("enum" in node)) or set(node) - {"const", "enum", "type"}:
        return None
    values: list[Any] = [node.pop("const")] if "const" in node else node.pop("enum")
    return node, values


def _distinct(parts: Iterable[Any]) -> list[Any]:
    return list({canonical(part): part for part in parts}.values())
