"""What goes, goes whole: which runs may be erased or pruned without others. Pure, and the same for every store.

A run inside another is repeated by the one around; the runs of a session are read together and share what they keep.
So one of them alone is refused, with the name of what would have to go with it: nothing is erased in part while it
looks like all of it. `keeping.py` beside this says what erasing and pruning are; the stores carry it out.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from remit.errors import ConfigurationError, RunBusy

__all__ = ["Kin", "check_named", "check_whole", "new_names", "since", "together", "unknown"]


class Kin(msgspec.Struct, frozen=True):
    """A run that is to be erased, and what binds it to others."""

    run_id: str
    parent: str | None
    session: str | None
    owner: str | None
    """Who executes it, and is alive."""


def check_named(run_id: str | None, session: str | None) -> None:
    """Errors: `ConfigurationError` where nothing is named."""
    if run_id is None and session is None:
        raise ConfigurationError("name what is to be erased: run_id= or session=")


def unknown(what: str, name: str) -> ConfigurationError:
    """The error for a run or a session that is not there."""
    return ConfigurationError(f"there is no {what} {name!r} in this store")


def check_whole(runs: Sequence[Kin], others: Collection[Kin]) -> None:
    """Whether these runs may be erased without the `others` of their sessions.

    Errors: `RunBusy`; `ConfigurationError` where others repeat what they said.
    """
    among = {run.run_id for run in runs}
    for run in runs:
        if run.parent is not None and run.parent not in among:
            raise ConfigurationError(
                f"run {run.run_id!r} is a part of run {run.parent!r}, which repeats what it said: erase that one"
            )
    for other in others:
        raise ConfigurationError(
            f"run {other.run_id!r} belongs to session {other.session!r}, too, and shares what is kept of it: erase "
            "the whole session"
        )
    for run in runs:
        if run.owner is not None:
            raise RunBusy(run.run_id, run.owner)


def new_names(runs: Iterable[Kin]) -> Mapping[str, str]:
    """Ids for the tombstones of runs inside others: theirs is made of the key of their call, in which there is a
    digest of what was asked.
    """
    return {
        run.run_id: f"erased:{secrets.token_hex(8)}"
        for run in runs
        if run.parent is not None and run.run_id.startswith(f"{run.parent}:")
    }


def together(
    roots: Iterable[str], sessions: Iterable[tuple[str, str]]
) -> Collection[frozenset[str]]:
    """The trees of these roots in the groups in which they go: those that sessions bind together, together.

    `sessions` are pairs of a session and the root of a tree that has a run of it.
    """
    pairs = list(sessions)
    groups = {root: {root} for root in [*roots, *[root for _, root in pairs]]}
    first: dict[str, str] = {}
    for session, root in pairs:
        group = groups[first.setdefault(session, root)]
        group |= groups[root]
        for each in group:
            groups[each] = group
    return {frozenset(group) for group in groups.values()}


def since(older_than: timedelta, now: datetime) -> datetime:
    """The moment before which a run must have ended. Errors: `ConfigurationError`."""
    if older_than < timedelta():
        raise ConfigurationError("older_than= is a time that has passed: it is not negative")
    try:
        return now - older_than
    except OverflowError:
        return datetime.min.replace(tzinfo=now.tzinfo)
