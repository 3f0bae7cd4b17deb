"""What the signature and the docstring of a function say about it as a tool.

Reads, once and at definition, which parameters the model fills, which the host fills (`Computed`),
which one receives the `Call`, and how all of it is described. Everything that cannot work is refused
here, by the name of the parameter; and how arguments are validated against it. All of pydantic is behind
this module, which is imported when the first tool is defined: it is a third of the time that importing remit would
take. Not here: the options of the decorator (`tool`).
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NotRequired, Union, cast, get_args, get_origin

import docstring_parser
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import TypedDict  # pydantic refuses that of `typing` before 3.12

from remit.canonical import encode
from remit.errors import ConfigurationError
from remit.tools.arguments import ArgumentsReader, Misfit, Problem
from remit.tools.call import Call
from remit.tools.computed import Computed, ComputedParameter
from remit.tools.functions import (
    docstring_of,
    is_async,
    named_parameters,
    remaining_parameters,
    required_parameters,
    unwrapped,
)
from remit.tools.schema import (
    EXACT_MARK,
    Node,
    exact,
    json_types,
    mixes_decimal_and_text,
    native_number,
    needs_exact,
    overflow,
    tidied,
)

__all__ = [
    "Signature",
    "SignatureReader",
    "SignatureSchema",
    "arguments_of",
    "checked_type",
    "read_handler",
    "read_signature",
    "refuse_ambiguity",
]

_LONGEST_DOUBLE = 308
"""Digits in front of the point. A text that is no longer holds no number beyond it without an exponent."""
_KEPT_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class SignatureSchema(GenerateJsonSchema):
    """pydantic's generator, except that a `Decimal` is a number.

    pydantic offers "a number, or a string of this pattern", which costs the model tokens and gains
    nothing: a string of digits is coerced here anyway, and digits are kept in both forms.
    Literals and enums are marked because pydantic takes `true` for 1 in them.
    """

    # A default that is no JSON (an object, say) is left out of the schema without a warning.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - inherited

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        branches = super().decimal_schema(schema)["anyOf"]
        number = next(branch for branch in branches if branch["type"] == "number")
        return {**number, EXACT_MARK: True}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return _marked_if_numeric(super().literal_schema(schema))

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        return _marked_if_numeric(super().enum_schema(schema))

    def encode_default(self, dft: Any) -> Any:
        return native_number([], dft) if isinstance(dft, Decimal) else super().encode_default(dft)


def _marked_if_numeric(schema: JsonSchemaValue) -> JsonSchemaValue:
    return schema if json_types(schema) <= {"string", "null"} else {**schema, EXACT_MARK: True}


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a tool, by who fills them."""

    adapter: TypeAdapter[dict[str, Any]]
    """For the parameters that the model fills, defaults included."""
    schema: Node
    """Their JSON Schema, with the marks that `schema.walk` needs."""
    visible: tuple[str, ...]
    """Their names, in the order of the signature."""
    computed: tuple[ComputedParameter, ...]
    call_parameter: str | None
    """The parameter that receives the `Call`."""
    description: str


def read_signature(
    function: Callable[..., Any], tool_name: str, local_names: Mapping[str, Any]
) -> Signature:
    """Read a function that is to be a tool.

    `local_names` are the names around its definition, for annotations that are text.
    Errors: `ConfigurationError`, naming the parameter and what to do.
    """
    try:
        parameters = remaining_parameters(function)
    except ValueError as error:
        raise ConfigurationError(
            f"tool {tool_name!r} has no signature that can be read; wrap it in a `def` of your own"
        ) from error

    doc = docstring_parser.parse(docstring_of(function))
    described = {param.arg_name: param.description for param in doc.params}
    fields: dict[str, Any] = {}
    computed: list[ComputedParameter] = []
    call_parameters: list[str] = []
    for parameter in parameters:
        where = f"parameter {parameter.name!r} of tool {tool_name!r}"
        annotation = _annotation(function, parameter, where, local_names)
        marker = _computed_marker(annotation)
        if marker is not None:
            computed.append(_computed(parameter.name, annotation, marker, where))
        elif _is_call(annotation):
            call_parameters.append(parameter.name)
        else:
            doc_text = described.get(parameter.name)
            fields[parameter.name] = _field(annotation, parameter, doc_text, where)
    if len(call_parameters) > 1:
        raise ConfigurationError(
            f"tool {tool_name!r} asks for the Call twice ({', '.join(call_parameters)}); keep one"
        )
    adapter, schema = arguments_of(fields, f"tool {tool_name!r}")
    return Signature(
        adapter=adapter,
        schema=schema,
        visible=tuple(fields),
        computed=tuple(computed),
        call_parameter=call_parameters[0] if call_parameters else None,
        description="\n\n".join(filter(None, (doc.short_description, doc.long_description))),
    )


def read_handler(
    handler: Callable[..., Any], tool_name: str, local_names: Mapping[str, Any]
) -> str | None:
    """The parameter of a handler that receives the `Call`, if it has one.

    Errors: `ConfigurationError` unless exactly one other parameter is left for the arguments.
    """
    call_parameter: str | None = None
    others: list[str] = []
    for parameter in named_parameters(handler).values():
        where = f"parameter {parameter.name!r} of the handler of tool {tool_name!r}"
        typed = parameter.annotation is not parameter.empty
        if typed and _is_call(_annotation(handler, parameter, where, local_names)):
            call_parameter = parameter.name
        elif parameter.default is parameter.empty:
            others.append(parameter.name)
    if len(others) != 1:
        raise ConfigurationError(
            f"the handler of tool {tool_name!r} takes {', '.join(others) or 'nothing'}: it takes one "
            "parameter, the arguments as a dict, and if it wants it a second one annotated `Call`"
        )
    return call_parameter


# --- parameters ----------------------------------------------------------------------------------


def _annotation(
    function: Callable[..., Any],
    parameter: inspect.Parameter,
    where: str,
    local_names: Mapping[str, Any],
) -> Any:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ConfigurationError(
            f"{where} takes any number of arguments: a model needs each one named and typed. List "
            "them, or take one parameter of type `list[...]` or `dict[str, ...]`"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ConfigurationError(
            f"{where} is positional-only: arguments come by name. Remove the `/` behind it"
        )
    if parameter.annotation is parameter.empty:
        raise ConfigurationError(
            f"{where} has no annotation: its type is what the model is shown and what is checked. "
            f"Write `{parameter.name}: str`, or whatever it is"
        )
    holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    module_names = getattr(unwrapped(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, module_names, dict(local_names), include_extras=True)[
            "it"
        ]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ConfigurationError(
            f"the annotation of {where} cannot be read: {error}. Names in it must exist when the "
            "tool is defined: import them outside of `if TYPE_CHECKING:`, define them above the tool"
        ) from error


def _computed_marker(annotation: Any) -> Computed | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((each for each in get_args(annotation)[1:] if isinstance(each, Computed)), None)


def _is_call(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType, Annotated):
        return any(_is_call(each) for each in get_args(annotation))
    return annotation is Call or origin is Call


def _computed(name: str, annotation: Any, marker: Computed, where: str) -> ComputedParameter:
    taken = required_parameters(marker.fn)
    if len(taken) > 1:
        raise ConfigurationError(
            f"the function that computes {where} takes {', '.join(taken)}: it may take nothing or "
            "one `Call`"
        )
    plain = get_args(annotation)[0]
    return ComputedParameter(
        name=name,
        fn=marker.fn,
        takes_call=bool(taken),
        is_async=is_async(marker.fn),
        secret=marker.secret,
        adapter=None if marker.secret else _type_adapter(plain, where),
    )


def _field(
    annotation: Any, parameter: inspect.Parameter, description: str | None, where: str
) -> Any:
    """The annotation with what the default and the docstring add to it."""
    default = parameter.default
    if isinstance(default, FieldInfo):
        annotation = Annotated[annotation, default]
    elif default is not parameter.empty:
        annotation = Annotated[annotation, Field(default=default)]
    field = FieldInfo.from_annotation(annotation)
    if field.alias or field.validation_alias:
        raise ConfigurationError(
            f"{where} has an alias: the model, the summary and resources all use the name of the "
            "parameter. Rename it, or use Tool.from_schema"
        )
    if description and not field.description:
        annotation = Annotated[annotation, Field(description=description)]
    return annotation if field.is_required() else NotRequired[annotation]


def _type_adapter(annotation: Any, where: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation)
    except (
        PydanticUserError,
        PydanticSchemaGenerationError,
        PydanticUndefinedAnnotation,
    ) as error:
        raise ConfigurationError(
            f"{where} has a type that cannot be checked: {_first_line(error)}"
        ) from error


def checked_type(annotation: Any, where: str) -> tuple[TypeAdapter[Any], Node]:
    """One type alone, and its schema. Errors: `ConfigurationError`, which begins with `where`."""
    alone = get_args(annotation)[0] if get_origin(annotation) is NotRequired else annotation
    adapter = _type_adapter(alone, where)
    try:
        return adapter, tidied(adapter.json_schema(schema_generator=SignatureSchema))
    except PydanticUserError as error:
        raise ConfigurationError(
            f"{where} has a type that no JSON can be: {_first_line(error)}"
        ) from error


def arguments_of(fields: dict[str, Any], whose: str) -> tuple[TypeAdapter[dict[str, Any]], Node]:
    """One validator and one schema for all parameters together. Errors: `ConfigurationError`."""
    # A TypedDict and no model: any parameter name is free, and a validated call is one plain dict.
    shape: Any = TypedDict("Arguments", fields)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues] - made at run time
    shape.__pydantic_config__ = _KEPT_STRICT
    try:
        adapter = cast("TypeAdapter[dict[str, Any]]", TypeAdapter(shape))
        schema = tidied(adapter.json_schema(schema_generator=SignatureSchema))
    except PydanticUserError as error:
        for name, annotation in fields.items():
            checked_type(annotation, f"parameter {name!r} of {whose}")
        raise ConfigurationError(
            f"the parameters of {whose} have no JSON Schema: {_first_line(error)}"
        ) from error
    refuse_ambiguity(schema, whose)
    return adapter, schema


def refuse_ambiguity(schema: Node, whose: str) -> None:
    """What pydantic would answer by dropping names or by guessing. Errors: `ConfigurationError`."""
    definitions: Mapping[str, Node] = schema.get("$defs", {})
    for name, model in definitions.items():
        if "properties" in model and model.get("additionalProperties", False) is not False:
            raise ConfigurationError(
                f"{name} in {whose} admits names that it does not declare: unknown names "
                "are refused at every depth. Give it a field of type `dict[str, ...]` for them"
            )
    for name, part in {**schema["properties"], **definitions}.items():
        if mixes_decimal_and_text(schema, part):
            raise ConfigurationError(
                f"{name!r} in {whose} is a Decimal or text: a text of digits could be "
                "either. Choose one of them"
            )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


# --- reading arguments ---------------------------------------------------------------------------


class SignatureReader(ArgumentsReader):
    """For functions: pydantic validates, strictly, in the form that JSON has."""

    def __init__(
        self,
        tool_name: str,
        schema: Node,
        parameters: Mapping[str, Any],
        adapter: TypeAdapter[dict[str, Any]],
    ) -> None:
        super().__init__(tool_name, schema, parameters)
        self._validate = adapter.validator.validate_json
        self._needs_exact = needs_exact(schema)

    def _values(self, given: dict[str, Any]) -> dict[str, Any]:
        form = exact(self.schema, given) if self._needs_exact else given
        written = encode(form)
        try:
            values = self._validate(written, strict=True, extra="forbid")
        except ValidationError as error:
            raise Misfit(self._problems(error)) from None
        except Exception as error:  # a validator of the tool's author may raise anything
            raise Misfit(
                [Problem((), f"a validator failed with {type(error).__name__}")]
            ) from error
        if len(written) > _LONGEST_DOUBLE or b"E+" in written:
            place = overflow(self.schema, form)
            if place is not None:
                raise Misfit([Problem(place, "the number is too large for a float")])
        return values

    def _problems(self, error: ValidationError) -> Iterable[Problem]:
        for each in error.errors(include_url=False, include_context=False, include_input=False):
            path = each["loc"]
            match each["type"]:
                case "extra_forbidden" | "unexpected_keyword_argument":
                    yield self._unknown(path[:-1], str(path[-1]))
                case "missing":
                    yield Problem(path, "missing, and required")
                case _:
                    yield Problem(path, each["msg"])
