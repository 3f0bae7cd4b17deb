"""Names that are asked for, as values of a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["sought", "sought_all"]


def sought(name: str | None) -> str | None:
    """A name, or null, which equals nothing: half a character is in no name that SQLite holds, and no error to ask for."""
    try:
        (name or "").encode()
    except UnicodeEncodeError:
        return None
    return name


def sought_all(values: Iterable[Any]) -> list[Any]:
    """The same for all texts among these values."""
    return [sought(value) if isinstance(value, str) else value for value in values]
