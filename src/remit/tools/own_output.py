"""An output that is asked for by a JSON Schema and not by a type: what is read of it is JSON.

Apart from `output.py` because of what it imports: the validator is loaded by programs that have such a schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.canonical import encode
from remit.errors import ConfigurationError
from remit.tools.output import FINAL_ANSWER, VALUE, OutputReader
from remit.tools.own_schema import OwnSchemaReader
from remit.tools.schema import own_schema

__all__ = ["by_schema"]


def by_schema(output: Mapping[str, Any]) -> OutputReader:
    """The reader for a schema. Errors: `ConfigurationError` for what is none."""
    wrapped = output.get("type") != "object"
    if not wrapped and "properties" not in output:
        output = {"additionalProperties": True, **output}  # it names none, so it means any
    schema = own_schema(_in_an_object(output) if wrapped else output, "output=")
    return _SchemaReader(schema, wrapped=wrapped)


class _SchemaReader(OutputReader, OwnSchemaReader):
    def __init__(self, schema: dict[str, Any], *, wrapped: bool) -> None:
        super().__init__(FINAL_ANSWER, schema, "output=")
        self._wrapped = wrapped

    def _values(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.under_value(super()._values(given))


def _in_an_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as that of the member `value`. Errors: `ConfigurationError` where it points to its own root."""
    if b'"$ref":"#"' in encode(dict(schema)):
        raise ConfigurationError("output= points to its own root, which must then be an object")
    kept = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    value = {name: part for name, part in schema.items() if name not in kept}
    return {"type": "object", "properties": {VALUE: value}, "required": [VALUE], **kept}
