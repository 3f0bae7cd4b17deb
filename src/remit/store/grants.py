"""Standing grants: approvals that a person gives in advance, for calls of exactly one description.

A grant says a tool, what each argument must be, where it holds and until when. Nothing of it is implied: an
argument that it does not name is one that it does not cover. `dispatch/standing.py` asks for those that may cover a
call; `Remit.grant` makes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from remit.canonical import canonical, json_text, parse_json

__all__ = ["Grant", "Grants", "Matches", "arguments_from_json", "arguments_to_json"]

MAX_MATCHED_CHARS: Final = 4_096
"""A longer text fits no pattern: what the model wrote is not to keep a pattern busy for ever."""
_ABSENT: Final = object()


class Matches(msgspec.Struct, frozen=True):
    """What an argument must be: the whole of its text fits a pattern.

    The text of a number, a truth value or null is its JSON. A list or an object fits no pattern, and an argument
    that the call leaves out is as the empty text.
    """

    pattern: str
    flags: int = 0
    """Those of `re`."""

    def fits(self, value: object) -> bool:
        if value is _ABSENT:
            text = ""
        elif isinstance(value, str):
            text = value
        elif isinstance(value, list | tuple | dict):
            return False
        else:
            text = canonical(value)
        if len(text) > MAX_MATCHED_CHARS:
            return False
        return re.compile(self.pattern, self.flags).fullmatch(text) is not None


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """One standing grant."""

    id: str
    remit: str
    """The name of the remit whose calls it covers."""
    tool: str
    arguments: Mapping[str, Matches | Any]
    """What each argument must be: a pattern, or a JSON value that it equals."""
    run_id: str | None
    """The one run in which it holds, not those inside of it; None: any."""
    session: str | None
    """The one session; None: any."""
    expires_at: datetime
    by: str
    """Who gave it."""
    at: datetime
    """When."""

    def covers(self, arguments: Mapping[str, Any], *, run_id: str, session: str | None) -> bool:
        """Whether it covers a call with these arguments, as the model gave them, whatever the time is."""
        return (
            self.run_id in (None, run_id)
            and self.session in (None, session)
            and arguments.keys() <= self.arguments.keys()
            and all(
                _fits(asked, arguments.get(name, _ABSENT)) for name, asked in self.arguments.items()
            )
        )


@runtime_checkable
class Grants(Protocol):
    """A store that keeps standing grants."""

    async def add_grant(self, grant: Grant) -> None:
        """Keep a new one."""
        ...

    async def grants(self, remit: str, tool: str | None = None) -> Sequence[Grant]:
        """Those of a remit that nobody has revoked, expired ones too, in the order in which they were given."""
        ...

    async def revoke_grant(self, grant_id: str, *, at: datetime) -> bool:
        """No call is covered by it any more. False where there is none, or it was revoked."""
        ...


def arguments_to_json(arguments: Mapping[str, Matches | Any]) -> str:
    """The arguments of a grant as a store keeps them; numbers keep their digits."""
    return json_text(
        {
            name: {"matches": asked.pattern, "flags": asked.flags}
            if isinstance(asked, Matches)
            else {"is": asked}
            for name, asked in arguments.items()
        }
    )


def arguments_from_json(text: str) -> dict[str, Matches | Any]:
    """The other way."""
    return {
        name: Matches(asked["matches"], asked["flags"]) if "matches" in asked else asked["is"]
        for name, asked in parse_json(text).items()
    }


def _fits(asked: Matches | Any, value: object) -> bool:
    if isinstance(asked, Matches):
        return asked.fits(value)
    return value is not _ABSENT and canonical(asked) == canonical(value)
