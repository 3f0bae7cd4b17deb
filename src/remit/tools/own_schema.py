"""Arguments of tools that bring their own JSON Schema.

Apart from `arguments.py` because of what it imports: the validator is loaded by programs that have such a tool,
and by no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema_rs

from remit.errors import ConfigurationError
from remit.tools.arguments import ArgumentsReader, Misfit, Problem
from remit.tools.schema import native_number, walk

__all__ = ["OwnSchemaReader", "compile_schema"]


class OwnSchemaReader(ArgumentsReader):
    """For tools that bring their own schema: `jsonschema_rs` validates."""

    def __init__(self, tool_name: str, schema: dict[str, Any], what: str = "`parameters`") -> None:
        super().__init__(tool_name, schema, schema)
        self._validator = compile_schema(schema, what)

    def _values(self, given: dict[str, Any]) -> dict[str, Any]:
        if not self._validator.is_valid(given):
            raise Misfit(self._problems(given))
        return walk(self.schema, given, native_number)

    def _problems(self, given: dict[str, Any]) -> Iterable[Problem]:
        for error in self._validator.iter_errors(given):
            path = tuple(error.instance_path)
            match error.kind:
                case (
                    jsonschema_rs.ValidationErrorKind.AdditionalProperties(unexpected=names)
                    | jsonschema_rs.ValidationErrorKind.UnevaluatedProperties(unexpected=names)
                ):
                    yield from (self._unknown(path, name) for name in names)
                case jsonschema_rs.ValidationErrorKind.Required(property=name):
                    yield Problem((*path, name), "missing, and required")
                case _:
                    yield Problem(path, error.message)


def compile_schema(
    schema: Mapping[str, Any], what: str = "`parameters`"
) -> jsonschema_rs.Validator:
    """A validator for an author's schema. It fetches nothing and repeats no value in its messages.

    Errors: `ConfigurationError`, about `what`, for no schema and for references outside of it.
    """
    try:
        return jsonschema_rs.validator_for(dict(schema), offline=True, mask="this")
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        reason = str(error).partition("\n")[0][:300]
        raise ConfigurationError(
            f"{what} is no JSON Schema that can be used here: {reason}. References must point "
            "into the schema itself (`#/$defs/...`)"
        ) from error
