"""Conversations that are kept in the store: each run goes on from the newest one of its session, one at a time.

A run of a session keeps no copy of what was said before it. Its first row names the run that it goes on from, and
`past_of` replays them in their order, so that a conversation is stored once, however long it gets.
Only what this run's model cannot read is put into other words and written out (`inherited.py`).

That there is one writer is the store's to keep, for all processes: `Journal.create` makes a run the next one of its
session or says why not. Here it is decided what comes of that: read what is new and try again, wait, or refuse.
Above: `activation.py`.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from remit.errors import ConfigurationError, JournalError, SessionBusy
from remit.inherited import Inherited, inherited
from remit.past import Past, past_of
from remit.report import pendings_of, read_state
from remit.rows import Opened, encode_row
from remit.shown import Reads
from remit.store.base import Journal, NewRow, NewRun, NotNext, Predecessor, Superseded
from remit.transcript import Transcript
from remit.workers import Workers

__all__ = ["Begun", "GoneOn", "begin", "with_history"]

_LOOK_SECONDS: Final = 0.05
_LONGEST_LOOK_SECONDS: Final = 1.0
"""Between two looks at a session that another run holds."""


class Begun(msgspec.Struct, frozen=True):
    """What came of creating a run."""

    created: bool
    """False where its id exists: it is found, not begun."""
    before: Transcript | None = None
    """What it goes on from."""


async def begin(
    store: Journal,
    new: NewRun,
    opened: Opened,
    *,
    wait: float,
    reads: Reads,
    workers: Workers,
) -> Begun:
    """Create a run as the next one of its session, once nobody else is at that, or find the one that has its id.

    Units: `wait` is the seconds for which another run is waited for, on the event loop's clock.
    Errors: `SessionBusy`; `ConfigurationError` where that would never end, as the run that holds the session waits
    for this one; `JournalError` where the conversation cannot be read.
    """
    clock = asyncio.get_running_loop().time
    until, pause = clock() + wait, _LOOK_SECONDS
    past: Past | None = None
    read_for: NotNext | None = None
    history = Inherited()
    while True:
        found = await store.create(_next(new, opened, past, history))
        if isinstance(found, bool):
            return Begun(found, None if past is None or history.reworded else past.transcript)
        if found.newest is None or found.is_free:
            if found == read_for:
                raise _contradicts(new, found, past)
            read_for = found
            # It may be taken up again meanwhile: what counts is what was read, and `create` will say so.
            past = None if found.newest is None else await past_of(store, found.newest.run_id)
            said, media = (None, ()) if past is None else (past.transcript, past.media)
            history = await inherited(said, reads=reads, workers=workers, store=store, media=media)
            continue
        holder = found.newest.run_id
        await _refuse_inside(store, new, holder)
        left = until - clock()
        if left <= 0:
            raise await _busy(store, new, holder, found)
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_LOOK_SECONDS)


def with_history(new: NewRun, opened: Opened, history: Inherited) -> NewRun:
    """A run that has in its first row what it goes on from."""
    row = msgspec.structs.replace(opened, history=history.messages, breaks=history.breaks)
    return _opened_by(new, row, history)


def _next(new: NewRun, opened: Opened, past: Past | None, history: Inherited) -> NewRun:
    """A run that goes on from the newest one of its session; None where that has none."""
    if past is None:
        return with_history(new, opened, history)
    new = msgspec.structs.replace(new, after=past.last)
    if history.reworded:
        return with_history(new, opened, history)
    return _opened_by(new, msgspec.structs.replace(opened, after=past.last.run_id), history)


def _opened_by(new: NewRun, row: Opened, history: Inherited) -> NewRun:
    return msgspec.structs.replace(
        new,
        opened=NewRow(row.kind, encode_row(row)),
        artifacts=history.artifacts,
        brought=history.digests,
    )


async def _refuse_inside(store: Journal, new: NewRun, holder: str) -> None:
    """Errors: `ConfigurationError` where the run that holds the session waits for the call that asks for it."""
    around = new.parent
    while around is not None:
        if around == holder:
            raise ConfigurationError(
                f"session {new.session!r} is held by run {holder!r}, and this call is a part of that run: it would "
                "wait for itself. Give the run inside another session, or none"
            )
        info = await store.info(around)
        around = None if info is None else info.parent


def _contradicts(new: NewRun, found: NotNext, past: Past | None) -> JournalError:
    """What was read is what there is, for `create` says the same again: to read it once more would go on for ever."""
    counts, reads = _words(found.newest), _words(None if past is None else past.last)
    return JournalError(
        f"session {new.session!r} cannot be gone on from: its store says that the newest run is {counts}, "
        f"gives {reads} to read, and refuses the run that follows that one. `remit store check` looks at a damaged "
        "store, and `remit.testing.SessionConformance` at a store of your own"
    )


def _words(last: Predecessor | None) -> str:
    return "none" if last is None else f"{last.run_id!r} with {last.rows} rows"


async def _busy(store: Journal, new: NewRun, holder: str, found: NotNext) -> SessionBusy:
    waits = found.owner is None and found.status == "waiting"
    pendings = await pendings_of(store, await read_state(store, holder)) if waits else ()
    return SessionBusy(
        new.session or "",
        holder,
        owner=found.owner,
        waits=waits,
        pendings=tuple([each.id for each in pendings]),
    )


class GoneOn(ConfigurationError):
    """A run that has ended cannot be taken up again: its session has gone on from it."""

    def __init__(self, run_id: str, lease: Superseded) -> None:
        super().__init__(
            f"run {run_id!r} stays as it ended: its session has gone on from it with run {lease.run_id!r}. Say what "
            "is to be done next in a new run of the session, or go another way with run(history=...) and this "
            "run's transcript"
        )
