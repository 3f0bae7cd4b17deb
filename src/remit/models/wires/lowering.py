"""Schemas in the dialect of a wire, without a change of meaning.

Pure. What a dialect cannot say is left out and told in words; the original schema is still what a call is
checked against when it is dispatched (case 17). What cannot be told in words either is not lowered at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from remit.models.wires.aliases import Keys, NameRule

__all__ = ["CannotLower", "Dialect", "Lowered", "lower"]


class CannotLower(Exception):
    """The schema has no form in the dialect; the text says why."""


class Dialect(msgspec.Struct, frozen=True):
    """What an endpoint takes of tools."""

    target: Literal["open", "strict", "anthropic-strict", "inlined"] = "open"
    names: NameRule = NameRule()
    """Names of tools."""
    keys: NameRule | None = NameRule("A-Za-z0-9_.-")
    """Names of parameters; None: any."""


class Lowered(msgspec.Struct, frozen=True):
    """A schema as a wire takes it."""

    schema: Mapping[str, Any]
    keys: Keys | None = None
    """Names of parameters that had to be changed; None where none had."""
    moved: tuple[str, ...] = ()
    """What only dispatch checks, in words for the model."""


def lower(schema: Mapping[str, Any], dialect: Dialect) -> Lowered:
    """The schema in this dialect. Errors: `CannotLower`."""
    if schema.get("type") != "object":
        raise CannotLower("the root of its schema is no object")
    return Lowered(schema)
