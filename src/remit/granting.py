"""Standing grants as the host gives them: checked against the tool that they are for, then kept in the store."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, cast

from remit.canonical import canonical, well_formed
from remit.checks import check_name
from remit.clock import LAST_INSTANT
from remit.errors import ConfigurationError
from remit.store.base import Journal
from remit.store.grants import Grant, Grants, Matches
from remit.tools import Tool

__all__ = ["grants_of", "new_grant"]

_NOT_MEANT: Final = re.UNICODE | re.DEBUG
"""Flags that say nothing of what a pattern fits: one is always there, the other prints at each match."""


def grants_of(store: Journal) -> Grants:
    """The store, as one that keeps grants. Errors: `ConfigurationError`."""
    if not isinstance(store, Grants):
        raise ConfigurationError(f"{type(store).__name__} keeps no standing grants")
    return store


def new_grant(
    remit: str,
    tools: Mapping[str, Tool[..., Any]],
    tool: str | Tool[..., Any],
    *,
    arguments: Mapping[str, Any],
    run_id: str | None,
    session: str | None,
    expires: float,
    by: str,
    now: datetime,
) -> Grant:
    """A grant, from now on. Errors: `ConfigurationError` for one that covers nothing, or not what was meant."""
    name = tool.name if isinstance(tool, Tool) else tool
    known = tools.get(name)
    if known is None:
        raise ConfigurationError(f"remit {remit!r} has no tool {name!r}")
    if not (isinstance(by, str) and by and well_formed(by) == by):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError("by= names whoever gives the grant")
    if isinstance(expires, bool) or not (
        isinstance(expires, int | float) and 0 < expires < math.inf  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
    ):
        raise ConfigurationError("expires= is the number of seconds for which the grant holds")
    for of, value in (("run_id", run_id), ("session", session)):
        if value is not None:
            check_name(of, value)
    try:
        expires_at = now + timedelta(seconds=expires)
    except OverflowError as error:
        raise ConfigurationError("expires= reaches beyond the calendar") from error
    if expires_at > LAST_INSTANT:
        raise ConfigurationError("expires= reaches beyond the calendar")
    return Grant(
        id=secrets.token_hex(10),
        remit=remit,
        tool=name,
        arguments=_asked(known, arguments),
        run_id=run_id,
        session=session,
        expires_at=expires_at,
        by=by,
        at=now,
    )


def _asked(tool: Tool[..., Any], arguments: object) -> dict[str, Matches | Any]:
    if not isinstance(arguments, Mapping):
        raise ConfigurationError(
            "arguments= says for each argument what it must be: a JSON value, or a compiled pattern"
        )
    given = cast("Mapping[Any, Any]", arguments)
    properties: Mapping[str, Any] = tool.spec.parameters.get("properties", {})
    open_ended = tool.spec.parameters.get("additionalProperties") is not False
    asked: dict[str, Matches | Any] = {}
    for name, value in given.items():
        if not isinstance(name, str) or (name not in properties and not open_ended):
            raise ConfigurationError(
                f"tool {tool.name!r} has no argument {name!r}; it has {', '.join(properties) or 'none'}"
            )
        asked[name] = _what(tool, name, value)
    required: list[str] = list(tool.spec.parameters.get("required", ()))
    missing = [name for name in required if name not in asked]
    if missing:
        raise ConfigurationError(
            f"the grant would cover no call: every call of {tool.name!r} gives {', '.join(missing)}. Say what "
            'is granted of each; re.compile(".*", re.DOTALL) is any text'
        )
    return asked


def _what(tool: Tool[..., Any], name: str, value: Any) -> Matches | Any:
    if isinstance(value, re.Pattern):
        pattern = cast("re.Pattern[Any]", value)
        if not isinstance(pattern.pattern, str):
            raise ConfigurationError(f"the pattern of {name!r} is one of bytes: compile a text")
        if well_formed(pattern.pattern) != pattern.pattern:
            raise ConfigurationError(
                f"the pattern of {name!r} holds half a character, which fits nothing"
            )
        return Matches(pattern.pattern, pattern.flags & ~_NOT_MEANT)
    try:
        canonical(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"what {name!r} must be is no JSON value and no pattern: {error}"
        ) from error
    if tool.masked({name: value}) != {name: value}:
        raise ConfigurationError(
            f"argument {name!r} is a secret, and a grant is written down: it can only be left free, by a pattern"
        )
    return value
