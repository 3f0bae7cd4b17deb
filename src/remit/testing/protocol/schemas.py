"""What providers refuse of the schemas of tools: the root, and the strict dialects."""

from __future__ import annotations

from collections.abc import Iterator

from remit.testing.protocol.reading import Body, mapping, mappings

__all__ = ["openai_strict", "strict_faults_of_anthropic", "subschemas"]

_ANTHROPIC_REFUSES = {
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern"),
    "array": ("maxItems", "uniqueItems", "contains"),
    "object": ("minProperties", "maxProperties", "patternProperties", "propertyNames"),
}


def subschemas(schema: Body, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Body]]:
    """A schema and those inside it, each with the way to it; what a property is called is no keyword."""
    yield at, schema
    for group in ("properties", "$defs", "definitions", "patternProperties"):
        for name, inner in mapping(schema.get(group)).items():
            yield from subschemas(mapping(inner), (*at, group, name))
    for key in ("items", "additionalProperties", "not", "if", "then", "else", "contains"):
        if isinstance(schema.get(key), dict):
            yield from subschemas(mapping(schema[key]), (*at, key))
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for index, inner in enumerate(mappings(schema.get(key))):
            yield from subschemas(inner, (*at, key, str(index)))


def _types(schema: Body) -> tuple[str, ...]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    return tuple(kind) if isinstance(kind, list) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON


def strict_faults_of_anthropic(schema: Body) -> str | None:
    """What the strict dialect of Anthropic refuses in a schema; None for nothing."""
    for _, each in subschemas(schema):
        kinds = _types(each)
        if "object" in kinds and each.get("additionalProperties") is not False:
            return "For 'object' type, 'additionalProperties' must be explicitly set to false"
        for kind in kinds:
            held = [key for key in _ANTHROPIC_REFUSES.get(kind, ()) if key in each]
            if held:
                return f"For '{kind}' type, properties {', '.join(held)} are not supported"
        if each.get("minItems", 0) not in {0, 1}:
            return "For 'array' type, 'minItems' values other than 0 or 1 are not supported"
        if "oneOf" in each:
            return "Schema type 'oneOf' is not supported"
    return None


def openai_strict(schema: Body) -> str | None:
    """What the strict dialect of OpenAI refuses in a schema; None for nothing."""
    if "anyOf" in schema:
        return "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    for at, each in subschemas(schema):
        context = "(" + ", ".join(f"'{key}'" for key in at) + ("," if len(at) == 1 else "") + ")"
        if "object" in _types(each):
            if each.get("additionalProperties") is not False:
                return (
                    f"In context={context}, 'additionalProperties' is required to be supplied "
                    "and to be false."
                )
            required: list[str] = each.get("required") or []
            missing = [name for name in mapping(each.get("properties")) if name not in required]
            if missing:
                return (
                    f"In context={context}, 'required' is required to be supplied and to be an array "
                    f"including every key in properties. Missing '{missing[0]}'."
                )
        if "$ref" in each and len(each) > 1:
            beside = ", ".join(f"'{key}'" for key in each if key != "$ref")
            return f"In context={context}, $ref cannot have keywords {{{beside}}}."
        for key in ("oneOf", "allOf", "not"):
            if key in each:
                return f"In context={context}, '{key}' is not permitted."
    return None
