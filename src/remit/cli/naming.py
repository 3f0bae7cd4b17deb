"""How a run is named on the command line.

    7f3a9c…        its id, or as much of it as no other begins with; runs inside of others give way to roots
    @last, @-2     the newest, the one before it
    session:NAME   the newest of a session

A name that several runs fit is refused, with all of them; a guess might cancel the wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from remit.cli.exits import NotFound
from remit.errors import ConfigurationError
from remit.store.base import RunInfo
from remit.store.directory import Directory, RunEntry, RunQuery

__all__ = ["Findable", "entry_of", "run_named"]

_BACK: Final = re.compile(r"@-([1-9][0-9]{0,5})")
_SESSION: Final = "session:"
_CANDIDATES: Final = 10
"""So many are listed of those that a name may mean."""
_PAGE: Final = 100


class Findable(Directory, Protocol):
    """Where a run is found by its name."""

    async def info(self, run_id: str) -> RunInfo | None:
        """What is known of a run; None where there is none."""
        ...


async def run_named(store: Findable, name: str) -> RunEntry:
    """The run that a name means. Errors: `NotFound`; `ConfigurationError` where several fit."""
    back = 1 if name == "@last" else None
    counted = _BACK.fullmatch(name)
    if counted is not None:
        back = int(counted[1])
    if back is not None:
        return await _newest(store, RunQuery(roots=True), back, name)
    if name.startswith(_SESSION) and await store.info(name) is None:
        session = name.removeprefix(_SESSION)
        return await _newest(store, RunQuery(session=session), 1, name)
    if not name or (name.startswith("@") and await store.info(name) is None):
        raise ConfigurationError(
            f"{name!r} names no run: a run is named by its id or the beginning of it, @last, @-2 or session:NAME"
        )
    return await entry_of(store, name) or await _begun(store, name)


async def entry_of(store: Findable, run_id: str) -> RunEntry | None:
    """What the list of runs says of the one with exactly this id; None where there is none."""
    info = await store.info(run_id)
    if info is None:
        return None
    query = RunQuery(prefix=run_id, parent=info.parent, roots=info.parent is None)
    while page := await store.runs(query, count=_PAGE):
        for entry in page:
            if entry.run_id == run_id:
                return entry
        query = msgspec.structs.replace(query, before=page[-1].run_id)
    return None  # it was pruned a moment ago


async def _newest(store: Directory, query: RunQuery, back: int, name: str) -> RunEntry:
    found = await store.runs(query, count=back)
    if len(found) < back:
        raise NotFound(f"{name}: there {_are(len(found))} in this store")
    return found[back - 1]


async def _begun(store: Directory, prefix: str) -> RunEntry:
    """The run whose id begins so: a root if one does, else one inside of another."""
    for roots in (True, False):
        found = await store.runs(RunQuery(prefix=prefix, roots=roots), count=_CANDIDATES + 1)
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigurationError(f"{prefix} may be any of {_listed(found)}: write more of it")
    raise NotFound(f"no run is named {prefix!r} in this store: remit runs lists them")


def _are(number: int) -> str:
    if not number:
        return "is no such run"
    return "is 1 such run" if number == 1 else f"are {number} such runs"


def _listed(entries: Sequence[RunEntry]) -> str:
    shown = [entry.run_id for entry in entries[:_CANDIDATES]]
    return ", ".join(shown) + (" and others" if len(entries) > _CANDIDATES else "")
