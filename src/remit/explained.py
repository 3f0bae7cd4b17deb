"""Calls of our own classes that Python itself would refuse, told as the wrong configuration they are.

A type checker sees the class as it stands and goes on demanding what has no default; who runs without one
gets a `ConfigurationError` with an example instead of a `TypeError` about an `__init__`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from remit.errors import ConfigurationError

__all__ = ["explained"]

ClassT = TypeVar("ClassT", bound=type[Any])


def explained(example: str) -> Callable[[ClassT], ClassT]:
    """Decorate a class: arguments that are missing, unknown or out of place are told with this example."""

    def decorate(cls: ClassT) -> ClassT:
        init: Callable[..., None] = cls.__init__

        @functools.wraps(init)
        def asked(*args: Any, **kwargs: Any) -> None:
            try:
                init(*args, **kwargs)
            except TypeError:
                wrong = _misfit(init, args, kwargs)
                if wrong is None:
                    raise  # from inside, and not about the call
                raise ConfigurationError(f"{cls.__name__}(...): {wrong}. Write {example}") from None

        setattr(cls, "__init__", asked)  # noqa: B010 - an assignment to `__init__` is no type's
        return cls

    return decorate


def _misfit(
    init: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TypeError | None:
    """What is wrong with a set of arguments, if anything is."""
    try:
        inspect.signature(init).bind(*args, **kwargs)
    except TypeError as wrong:
        return wrong
    return None
