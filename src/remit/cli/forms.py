"""A JSON Schema as questions for a person: how a value is written, and what is read from what was written.

Simple values are written as people write them; whatever has no simple form is written as JSON. What is read
is checked against the whole schema, so a question is asked again until its answer fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias, cast

import msgspec

from remit.canonical import canonical
from remit.errors import ConfigurationError, RemitError
from remit.tools.question import fitting

__all__ = ["Field", "Misfit", "checked", "fields_of", "hint_of", "is_secret", "read"]

Node: TypeAlias = Mapping[str, Any]

_CHOICES = 12
"""So many choices are listed; more are too many to number."""


class Misfit(RemitError):
    """What was written is no answer; the text says why, to whoever wrote it."""


class Field(msgspec.Struct, frozen=True):
    """One part of an object that is asked for part by part."""

    name: str
    schema: Node
    required: bool


def read(schema: Node, text: str) -> Any:
    """The value that a text stands for. Errors: `Misfit`."""
    node, optional = _plain(schema)
    if optional and not text.strip():
        return None
    choices = _choices(node)
    if choices is not None:
        return _chosen(choices, text.strip())
    match node.get("type"):
        case "string":
            return text
        case "boolean":
            return _yes_or_no(text.strip())
        case "integer" | "number" as kind:
            return _number(text.strip(), whole=kind == "integer")
        case _:
            return _json(text)


def hint_of(schema: Node) -> str:
    """How an answer is written."""
    node, optional = _plain(schema)
    choices = _choices(node)
    if choices is not None:
        shown = choices[:_CHOICES]
        listed = ", ".join(f"{n}) {_word(choice)}" for n, choice in enumerate(shown, 1))
        hint = listed + (", ..." if len(choices) > _CHOICES else "")
    else:
        hint = {
            "string": "text",
            "boolean": "y or n",
            "integer": "a whole number",
            "number": "a number",
            "object": "JSON, an object",
            "array": "JSON, a list",
        }.get(str(node.get("type")), "JSON")
        hint += _bounds(node)
    return f"{hint}, or nothing" if optional else hint


def fields_of(schema: Node) -> list[Field] | None:
    """The parts of an object all of whose parts are simple; None for everything else."""
    node, optional = _plain(schema)
    properties = node.get("properties")
    if optional or node.get("type") != "object" or not isinstance(properties, Mapping):
        return None
    if node.get("patternProperties") or node.get("additionalProperties") not in {None, False}:
        return None
    parts = cast("Mapping[str, Any]", properties)
    required = node.get("required", ())
    fields = [
        Field(name, _resolved(part, schema), name in required)
        for name, part in parts.items()
        if isinstance(part, Mapping)
    ]
    simple = len(fields) == len(parts) and all(_is_simple(field.schema) for field in fields)
    return fields if fields and simple else None


def is_secret(schema: Node) -> bool:
    """Whether the answer is not to be shown while it is written."""
    return schema.get("format") == "password" or schema.get("writeOnly") is True


def checked(schema: Node, value: Any) -> Any:
    """The value, if it would be accepted. Errors: `Misfit`."""
    try:
        fitting(value, schema)
    except ConfigurationError as error:
        raise Misfit(str(error)) from None
    return value


# --- reading -------------------------------------------------------------------------------------


def _chosen(choices: list[Any], text: str) -> Any:
    """By the value itself, else by its number in the list."""
    for choice in choices:
        if text == _word(choice):
            return choice
    if text.isdecimal() and 1 <= int(text) <= min(len(choices), _CHOICES):
        return choices[int(text) - 1]
    raise Misfit("choose one of them, by its number or as it is written")


def _yes_or_no(text: str) -> bool:
    said = text.lower()
    if said in {"y", "yes", "true"}:
        return True
    if said in {"n", "no", "false"}:
        return False
    raise Misfit("answer y or n")


def _number(text: str, *, whole: bool) -> int | Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise Misfit("that is no number") from None
    if not number.is_finite():
        raise Misfit("that is no number")
    if number == number.to_integral_value() and abs(number.adjusted()) < 100:
        return int(number)
    if whole:
        raise Misfit("that is no whole number")
    return number


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Misfit(f"that is no JSON: {error}") from None


# --- looking at schemas --------------------------------------------------------------------------


def _plain(schema: Node) -> tuple[Node, bool]:
    """A schema without the null that it may admit, and whether it does."""
    schema = _resolved(schema, schema)
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds:
        others = [kind for kind in cast("list[Any]", kinds) if kind != "null"]
        return {**schema, "type": others[0] if len(others) == 1 else others}, True
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        nodes = cast("list[Any]", options)
        others = [_resolved(node, schema) for node in nodes if node != {"type": "null"}]
        if len(others) == 1:
            return others[0], len(others) < len(nodes)
    return schema, False


def _resolved(node: Any, root: Node) -> Node:
    """A part of a schema, with a reference into the whole one followed."""
    for _ in range(8):
        if not isinstance(node, Mapping):
            return {}
        reference = cast("Node", node).get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return {"$defs": root.get("$defs", {}), **cast("Node", node)}
        node = root
        for name in reference.removeprefix("#/").split("/"):
            node = cast("Node", node).get(name) if isinstance(node, Mapping) else None
    return {}


def _choices(node: Node) -> list[Any] | None:
    if "const" in node:
        return [node["const"]]
    choices = node.get("enum")
    return list(cast("list[Any]", choices)) if isinstance(choices, list) and choices else None


def _is_simple(schema: Node) -> bool:
    node, _ = _plain(schema)
    kind = node.get("type")
    return _choices(node) is not None or kind in ("string", "boolean", "integer", "number")


def _word(choice: Any) -> str:
    return choice if isinstance(choice, str) else canonical(choice)


def _bounds(node: Node) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f", {low} or more"
    return "" if high is None else f", {high} or less"
