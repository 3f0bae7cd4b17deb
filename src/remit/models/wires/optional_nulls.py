"""Nulls that only a grammar asked for, taken out again.

Where every member is required, what a model leaves out comes as null. A null member goes where everything that
speaks of it says that it is optional and may not be null; any other null was meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from remit.models.wires.schema_source import Node, Source

__all__ = ["without_nulls"]


def without_nulls(source: Source, schemas: Iterable[Any], value: Any) -> Any:
    """The value without the nulls that only the strict grammar asked for.

    A null member goes where everything that speaks of it says that it is optional and may not be null.
    """
    if isinstance(value, list):
        nodes = _behind(source, schemas)
        items = [node["items"] for node in nodes if "items" in node]
        return [without_nulls(source, items, each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    table = cast("Node", value)
    nodes = [node for node in _behind(source, schemas) if _describes(source, node, table)]
    kept: Node = {}
    for name, part in table.items():
        said = [node["properties"][name] for node in nodes if name in node.get("properties", ())]
        required = any(name in node.get("required", ()) for node in nodes)
        if part is None and said and not required and not any(map(source.admits_null, said)):
            continue
        kept[name] = without_nulls(source, said, part)
    return kept


def _behind(source: Source, schemas: Iterable[Any]) -> list[Node]:
    """All nodes that may speak of one place: behind references, unions and intersections."""
    found: list[Node] = []
    waiting: list[Any] = list(schemas)
    seen: set[int] = set()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict) or id(cast("object", schema)) in seen:
            continue
        seen.add(id(cast("object", schema)))
        node = source.node(schema, "")
        found.append(node)
        waiting += [part for word in ("anyOf", "oneOf", "allOf") for part in node.get(word, ())]
        if "$ref" in node:
            waiting.append(source.resolved(node["$ref"])[1])
    return found


def _describes(source: Source, node: Node, table: Node) -> bool:
    """Whether an object can be meant by it: its constants decide between the branches of a union."""
    properties: Node = node.get("properties", {})
    for name in node.get("required", ()):
        if name not in table:
            return False
    for name, part in properties.items():
        if name in table and table[name] is not None and isinstance(part, dict):
            member = source.node(part, "")
            values = [member["const"]] if "const" in member else member.get("enum")
            if values is not None and table[name] not in values:
                return False
    return True
