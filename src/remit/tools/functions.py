"""Functions as they are: async or not, a method or not, and what is left to be filled.

Looks only; what a signature means for a model is read in `signature.py`.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, cast

__all__ = [
    "collected",
    "docstring_of",
    "is_async",
    "is_method",
    "named_parameters",
    "names_around",
    "remaining_parameters",
    "required_parameters",
    "unwrapped",
]


def names_around(frame: types.FrameType | None) -> Mapping[str, Any]:
    """The local names where a tool is defined; annotations may be text, and mean them."""
    return {} if frame is None or frame.f_back is None else frame.f_back.f_locals


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
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
    layers: tuple[Any, ...] = (outer, unwrapped(function))
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
        parameters = remaining_parameters(function)
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
    inner = unwrapped(function)
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


def docstring_of(function: Callable[..., Any]) -> str:
    """Its own words; empty where it has none."""
    return inspect.getdoc(unwrapped(function)) or ""


def remaining_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What remains to be filled: without the instance, and without what a partial has fixed."""
    parameters = list(inspect.signature(function).parameters.values())
    if is_method(function):
        parameters = parameters[1:]
    if isinstance(function, functools.partial):
        fixed = cast("functools.partial[Any]", function).keywords
        parameters = [each for each in parameters if each.name not in fixed]
    return parameters
