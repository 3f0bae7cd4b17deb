"""What a value of foreign JSON is, told once, so that a check is one word where it is needed; and JSON of what a
caller has set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from remit.errors import ConfigurationError

__all__ = ["encoded", "is_list", "is_table", "tables"]

_encode = msgspec.json.Encoder().encode


def encoded(value: Any, what: str) -> bytes:
    """JSON of what a caller has set. Errors: `ConfigurationError` where it is none."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigurationError(f"{what} cannot be sent as JSON: {error}") from None


def is_table(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """An object of JSON."""
    return type(value) is dict or isinstance(
        value, Mapping
    )  # almost always the former, which is told at once


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """A list of JSON."""
    return isinstance(value, list | tuple)


def tables(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list; none where it is no list."""
    return [each for each in value if is_table(each)] if is_list(value) else []
