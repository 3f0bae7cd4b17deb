"""What a call shares with others, by name: templates that are filled with its arguments."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from remit.canonical import canonical
from remit.errors import ConfigurationError

__all__ = ["ResourceName", "resource_names", "templates"]


@dataclass(frozen=True, slots=True)
class ResourceName:
    """The name of a resource, with places for arguments."""

    template: str
    defaults: Mapping[str, Any]
    """The parameters that it names, with the default of each; None for those always given."""

    def fill(self, arguments: Mapping[str, Any]) -> str:
        return self.template.format_map(
            {name: _plain(arguments.get(name, default)) for name, default in self.defaults.items()}
        )


def templates(tool_name: str, resource: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """What an author wrote as `resource=`, as a tuple. Errors: `ConfigurationError`."""
    if resource is None:
        return None
    given = (resource,) if isinstance(resource, str) else resource
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError(
            f"tool {tool_name!r}: resource={resource!r} is no text and no list of texts"
        )
    return tuple(given)


def resource_names(
    tool_name: str, templates: tuple[str, ...] | None, parameters: Mapping[str, Any]
) -> tuple[ResourceName, ...]:
    """The templates, or nothing if none of them depends on the arguments."""
    resources = [_resource_name(tool_name, each, parameters) for each in templates or ()]
    return tuple(resources) if any(each.defaults for each in resources) else ()


def _resource_name(tool_name: str, template: str, parameters: Mapping[str, Any]) -> ResourceName:
    where = f"tool {tool_name!r}: resource {template!r}"
    properties: Mapping[str, Any] = parameters["properties"]
    defaults: dict[str, Any] = {}
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(f"{where} is no template: {error}") from error
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if form or conversion or name not in properties:
            raise ConfigurationError(
                f"{where} names {name!r}: a placeholder is the bare name of a parameter that the "
                f"model fills ({', '.join(properties) or 'there is none'})"
            )
        if name not in parameters.get("required", ()) and "default" not in properties[name]:
            raise ConfigurationError(
                f"{where} names {name!r}, which a call may leave out; make it required or give it a "
                "default"
            )
        defaults[name] = properties[name].get("default")
    return ResourceName(template, defaults)


def _plain(value: Any) -> str:
    """A value as a part of a name; equal values give equal text."""
    match value:
        case Enum():
            return _plain(value.value)
        case str():
            return value
        case bool() | int() | float() | Decimal() | None | list() | dict():
            return canonical(value)
        case _:
            return str(value)
