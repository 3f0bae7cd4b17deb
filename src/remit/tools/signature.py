"""What the signature and the docstring of a function say about it as a tool.

Reads, once and at definition, which parameters the model fills, which the host fills (`Computed`),
which one receives the `Call`, and how all of it is described. Everything that cannot work is refused
here, by the name of the parameter. Not here: validation of a call's arguments (`arguments`, above)
and the options of the decorator (`tool`).
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, Union, cast, get_args, get_origin

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict  # pydantic refuses that of `typing` before 3.12

from remit.errors import ConfigurationError
from remit.tools.call import Call
from remit.tools.schema import Node, SignatureSchema, mixes_decimal_and_text, tidied

__all__ = [
    "Computed",
    "ComputedParameter",
    "Signature",
    "collected",
    "is_async",
    "is_method",
    "named_parameters",
    "names_around",
    "read_handler",
    "read_signature",
    "required_parameters",
]

_KEPT_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Computed:
    """Marks a parameter that the host fills: `Annotated[date, remit.Computed(date.today)]`.

    The model never sees it, and naming it is refused as any unknown name. It is evaluated once for a
    call and kept in the journal, so that a resumed call gets the same value.
    """

    fn: Callable[..., Any]
    """Takes nothing, or the `Call`; sync (then quick, it runs on the event loop) or async."""
    secret: bool = False
    """True: not written to the journal, any object is allowed, and a resumed call evaluates it anew."""

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for what is no function."""
        if not callable(self.fn):
            raise ConfigurationError(
                f"Computed({self.fn!r}) computes nothing: it takes a function of nothing or of the Call"
            )


@dataclass(frozen=True, slots=True)
class ComputedParameter:
    """One parameter that the host fills."""

    name: str
    fn: Callable[..., Any]
    takes_call: bool
    is_async: bool
    secret: bool
    adapter: TypeAdapter[Any] | None
    """Between the Python value and its JSON form; None for a secret, which has none."""

    def to_json(self, value: Any) -> Any:
        """The form of the journal. Errors: `ValueError` for a value of the wrong type."""
        if self.adapter is None:
            return value
        return self.adapter.dump_python(self.adapter.validate_python(value), mode="json")

    def from_json(self, value: Any) -> Any:
        """What the function receives."""
        return value if self.adapter is None else self.adapter.validate_python(value)


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
    import docstring_parser

    try:
        parameters = _parameters(function)
    except ValueError as error:
        raise ConfigurationError(
            f"tool {tool_name!r} has no signature that can be read; wrap it in a `def` of your own"
        ) from error

    doc = docstring_parser.parse(_docstring(function))
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
    adapter, schema = _adapter(fields, tool_name)
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


def names_around(frame: types.FrameType | None) -> Mapping[str, Any]:
    """The local names where a tool is defined; annotations may be text, and mean them."""
    return {} if frame is None or frame.f_back is None else frame.f_back.f_locals


# --- functions -----------------------------------------------------------------------------------


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside partials and static methods; `__call__` of a callable object."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else type(function).__call__


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine or an asynchronous generator.

    A decorator may hide either layer: a plain wrapper around an `async def` hands its coroutine on.
    """
    outer: Any = function
    while isinstance(outer, functools.partial):
        outer = outer.func
    layers: tuple[Any, ...] = (outer, _unwrapped(function))
    return any(map(inspect.iscoroutinefunction, layers)) or inspect.isasyncgenfunction(layers[1])


def is_method(function: Callable[..., Any]) -> bool:
    """Whether it stands in the body of a class and still waits for its instance."""
    if not inspect.isfunction(function):
        return False
    scope = function.__qualname__.rpartition(".")[0]
    parameters = list(inspect.signature(function).parameters.values())
    return (
        bool(scope)
        and not scope.endswith("<locals>")
        and bool(parameters)
        and (parameters[0].name == "self" or parameters[0].annotation is parameters[0].empty)
    )


def named_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What a call by keyword may fill, without the instance of a method."""
    try:
        parameters = _parameters(function)
    except ValueError:  # a builtin that keeps its signature to itself, such as `date.today`
        return {}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {each.name: each for each in parameters if each.kind not in variable}


def required_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters without a default."""
    parameters = named_parameters(function).values()
    return tuple(each.name for each in parameters if each.default is each.empty)


def collected(function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator as a function that returns the list of what it yields; others as they are."""
    inner = _unwrapped(function)
    if inspect.isasyncgenfunction(inner):

        async def collect_async(**arguments: Any) -> list[Any]:
            items = cast("AsyncIterator[Any]", function(**arguments))
            return [item async for item in items]

        return collect_async
    if inspect.isgeneratorfunction(inner):

        def collect(**arguments: Any) -> list[Any]:
            return list(cast("Iterator[Any]", function(**arguments)))

        return collect
    return function


def _docstring(function: Callable[..., Any]) -> str:
    return inspect.getdoc(_unwrapped(function)) or ""


# --- parameters ----------------------------------------------------------------------------------


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What remains to be filled: without the instance, and without what a partial has fixed."""
    parameters = list(inspect.signature(function).parameters.values())
    if is_method(function):
        parameters = parameters[1:]
    if isinstance(function, functools.partial):
        fixed = cast("functools.partial[Any]", function).keywords
        parameters = [each for each in parameters if each.name not in fixed]
    return parameters


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
    module_names = getattr(_unwrapped(function), "__globals__", {})
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
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        raise ConfigurationError(
            f"{where} has a type that cannot be checked: {_first_line(error)}"
        ) from error


def _check_type(annotation: Any, where: str) -> None:
    """Find out whether it is this parameter that has no schema."""
    alone = get_args(annotation)[0] if get_origin(annotation) is NotRequired else annotation
    adapter = _type_adapter(alone, where)
    try:
        adapter.json_schema(schema_generator=SignatureSchema)
    except PydanticUserError as error:
        raise ConfigurationError(
            f"{where} has a type that no JSON can be: {_first_line(error)}"
        ) from error


def _adapter(fields: dict[str, Any], tool_name: str) -> tuple[TypeAdapter[dict[str, Any]], Node]:
    """One validator and one schema for all parameters together."""
    # A TypedDict and no model: any parameter name is free, and a validated call is one plain dict.
    shape: Any = TypedDict("Arguments", fields)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues] - made at run time
    shape.__pydantic_config__ = _KEPT_STRICT
    try:
        adapter = cast("TypeAdapter[dict[str, Any]]", TypeAdapter(shape))
        schema = tidied(adapter.json_schema(schema_generator=SignatureSchema))
    except PydanticUserError as error:
        for name, annotation in fields.items():
            _check_type(annotation, f"parameter {name!r} of tool {tool_name!r}")
        raise ConfigurationError(
            f"the parameters of tool {tool_name!r} have no JSON Schema: {_first_line(error)}"
        ) from error
    _refuse_ambiguity(schema, tool_name)
    return adapter, schema


def _refuse_ambiguity(schema: Node, tool_name: str) -> None:
    """What pydantic would answer by dropping names or by guessing."""
    definitions: Mapping[str, Node] = schema.get("$defs", {})
    for name, model in definitions.items():
        if "properties" in model and model.get("additionalProperties", False) is not False:
            raise ConfigurationError(
                f"{name} in tool {tool_name!r} admits names that it does not declare: unknown names "
                "are refused at every depth. Give it a field of type `dict[str, ...]` for them"
            )
    for name, part in {**schema["properties"], **definitions}.items():
        if mixes_decimal_and_text(schema, part):
            raise ConfigurationError(
                f"{name!r} in tool {tool_name!r} is a Decimal or text: a text of digits could be "
                "either. Choose one of them"
            )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
