"""The typed output of a run: what the model is shown of its type, and how what it hands in is read.

One reader serves both ways to hand it in: as the arguments of a call of `final_answer`, or, where a model holds its
final text to a schema, as that text. It is read like the arguments of any tool (C2). This module is behind
pydantic, so that it is imported by programs that ask for a typed output, and by no other.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import TypeAdapter

from remit.errors import ConfigurationError
from remit.tools.arguments import Arguments, ArgumentsReader, BadArguments, Problem
from remit.tools.schema import Node, published
from remit.tools.signature import SignatureReader, arguments_of, checked_type, refuse_ambiguity
from remit.tools.tool import Tool, handing_in

__all__ = ["FINAL_ANSWER", "VALUE", "OutputReader", "OutputSpec"]

FINAL_ANSWER: Final = "final_answer"
"""The tool that takes the output, and its name."""
_DESCRIPTION = "Hand in the result of the task. Call it once, when you are done: the task ends with it, and only with it."
_AS_TEXT = (
    f"Your answer came as text. The task ends only with a call of {FINAL_ANSWER}: hand in the "
    "result with it."
)
"""What the model is told where it answers in text instead of calling the tool."""
VALUE: Final = "value"
"""The member in which a value stands that is no object."""


class OutputSpec:
    """What a run is to hand in."""

    schema: Mapping[str, Any]
    """JSON Schema of it, root `type: object`: what is no object stands in the member `value`."""
    tool: Tool[..., Any]
    """Takes it, where the model does not hold its final text to the schema."""

    def __init__(self, output: Any) -> None:
        """`output` is a type, or a JSON Schema where there is none, as on the command line.

        Errors: `ConfigurationError` for what is neither, or a type that JSON cannot be read into.
        """
        if isinstance(output, Mapping):
            from remit.tools.own_output import by_schema

            self._reader = by_schema(cast("Mapping[str, Any]", output))
        else:
            self._reader = _by_type(output)
        self.schema = self._reader.parameters
        self.tool = handing_in(FINAL_ANSWER, _DESCRIPTION, dict(self.schema), self._reader)

    def misfit(self, text: str, *, native: bool) -> str | None:
        """What keeps a final text of the model from being the output, in words for the model; None where it is.

        Without a schema of the model's own (`native`) no text is: there the output comes by the tool.
        """
        if not native:
            return _AS_TEXT
        read = self.read(text)
        return read.message if isinstance(read, BadArguments) else None

    def read(self, text: str) -> Any | BadArguments:
        """The value that a text stands for. Errors: none; what does not fit is a `BadArguments`."""
        read = self._reader.read(text)
        return read.values[VALUE] if isinstance(read, Arguments) else read


def _by_type(output: Any) -> OutputReader:
    if isinstance(output, str) or inspect.isroutine(output):
        raise ConfigurationError(f"output={output!r} is no type; give one, such as a dataclass")
    adapter, schema = checked_type(output, "output=")
    schema = _resolved(schema)
    wrapped = "properties" not in schema
    if wrapped:
        adapter, schema = arguments_of({VALUE: output}, "output=")
    else:
        name = getattr(output, "__name__", "it")
        refuse_ambiguity({**schema, "$defs": {**schema.get("$defs", {}), name: schema}}, "output=")
    return _TypeReader(schema, published(schema), adapter, wrapped=wrapped)


class OutputReader(ArgumentsReader):
    """Reads an output, in the form that its schema says."""

    _wrapped: bool
    """It stands in the member `value`, because it is no object itself."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self._parameters

    @property
    def _complaint(self) -> str:
        return "Your answer does not fit."

    def read(self, text: str) -> Arguments | BadArguments:
        if text.lstrip().startswith("```"):
            return self._refusal([Problem((), "give the JSON alone, without a code fence")])
        return super().read(text)

    def under_value(self, values: dict[str, Any]) -> dict[str, Any]:
        """What was read, as the member `value`."""
        return values if self._wrapped else {VALUE: values}


class _TypeReader(OutputReader, SignatureReader):
    """For a type: what is read is a value of it."""

    def __init__(
        self,
        schema: Node,
        parameters: Mapping[str, Any],
        adapter: TypeAdapter[Any],
        *,
        wrapped: bool,
    ) -> None:
        super().__init__(FINAL_ANSWER, schema, parameters, adapter)
        self._wrapped = wrapped

    def _values(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.under_value(super()._values(given))


def _resolved(schema: Node) -> Node:
    """The root itself where it is only a pointer to a definition, as that of a type that holds itself."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definitions = cast("Mapping[str, Node]", schema.get("$defs", {}))
    return {**definitions[name], "$defs": definitions} if name in definitions else schema
