"""`remit runs`: what runs there are, and how each of them stands."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from cyclopts import Parameter

from remit.analysis.figures import dollars
from remit.analysis.listing import Listed, listed, table_rows, to_document, total_usd
from remit.analysis.times import instant
from remit.cli import exits
from remit.cli.documents import VERSION, write_document
from remit.cli.locations import location_here, no_store
from remit.cli.options import StoreFlag
from remit.cli.reading import Printer, Searchable
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.stores import opened
from remit.cli.streams import Streams, complain, own_stdout
from remit.cli.tags import tagged
from remit.errors import ConfigurationError
from remit.store.base import RunStatus
from remit.store.directory import RunQuery

__all__ = ["runs"]

_MOST: Final = 10_000
_AT_ONCE: Final = 8
"""Runs that are read side by side."""


def runs(
    *,
    state: tuple[RunStatus, ...] = (),
    reason: Annotated[tuple[str, ...], Parameter(metavar="REASON")] = (),
    remit: Annotated[str | None, Parameter(metavar="NAME")] = None,
    session: Annotated[str | None, Parameter(metavar="NAME")] = None,
    tag: Annotated[tuple[str, ...], Parameter(metavar="KEY=VALUE")] = (),
    since: Annotated[str | None, Parameter(metavar="TIME")] = None,
    until: Annotated[str | None, Parameter(metavar="TIME")] = None,
    limit: Annotated[int, Parameter(metavar="N")] = 50,
    cursor: Annotated[str | None, Parameter(metavar="RUN")] = None,
    children: Annotated[bool, Parameter(name="--all")] = False,
    json: bool = False,
    store: StoreFlag = None,
) -> int:
    """List runs, the newest first: what each is doing, waits for or ended for, and what it used.

    Args:
        state: Only those in this state. Repeat it for more.
        reason: Only those that ended so, such as cost_budget. Repeat it for more.
        remit: Only those of the remit with this name.
        session: Only those of this session.
        tag: Only those with this tag. Repeat it for more.
        since: Only those that began since then: 90m, 12h, 2d ago, or 2026-11-30[T12:00].
        until: Only those that began before then.
        limit: So many at most.
        cursor: Go on behind this run, as the last line of a list says.
        children: Runs inside of others too.
        json: Print one JSON document.
    """
    if not 0 < limit <= _MOST:
        raise ConfigurationError(f"--limit {limit}: give a number from 1 to {_MOST:,}")
    query = RunQuery(
        statuses=frozenset(state),
        reasons=frozenset(map(_reason, reason)),
        remit=remit,
        session=session,
        tags=tagged(tag),
        roots=not children,
        since=None if since is None else instant(since, "--since"),
        until=None if until is None else instant(until, "--until"),
        before=cursor,
    )
    with own_stdout() as streams:
        location = location_here(store)
        if location.is_empty:  # nothing was run yet: that is an answer
            if json:
                write_document({"v": VERSION, "runs": [], "next": None}, streams.answer)
            complain(no_store(location))
            return exits.OK
        with opened(store) as kept:

            async def look(_: Interrupts) -> int:
                await _list(kept, query, limit, streams, json=json)
                return exits.OK

            return run_until_done(look)


async def _list(
    store: Searchable, query: RunQuery, limit: int, streams: Streams, *, json: bool
) -> None:
    if query.before is not None and await store.info(query.before) is None:
        raise exits.NotFound(f"--cursor {query.before}: there is no such run in this store")
    entries = await store.runs(query, count=limit + 1)
    following = entries[limit - 1].run_id if len(entries) > limit else None
    found: list[Listed] = []
    for at in range(0, min(limit, len(entries)), _AT_ONCE):
        some = entries[at : min(at + _AT_ONCE, limit)]
        found += await asyncio.gather(*(listed(store, entry) for entry in some))
    if json:
        documents = [to_document(run) for run in found]
        write_document({"v": VERSION, "runs": documents, "next": following}, streams.answer)
    elif found:
        printer = Printer(streams.answer)
        rows = table_rows(
            found, now=datetime.now(UTC), glyphs=printer.glyphs, columns=printer.columns
        )
        printer.show(rows)
        _say_more(found, following)
    else:
        complain("no run fits")


def _say_more(found: Sequence[Listed], following: str | None) -> None:
    """What the table is a part of: beside it, so that it can be read by programs."""
    usd = total_usd(found)
    parts = [
        f"{len(found)} run{'' if len(found) == 1 else 's'}",
        *([f"${dollars(usd)}"] if usd else []),
    ]
    if following is not None:
        parts.append(f"more: the same with --cursor {shlex.quote(following)}")
    complain(" · ".join(parts))


def _reason(text: str) -> str:
    """Errors: `ConfigurationError` for what is no reason."""
    if text not in exits.OF_REASON:
        from difflib import get_close_matches

        near = get_close_matches(text, exits.OF_REASON, n=1)
        known = f"did you mean {near[0]}?" if near else f"known are {', '.join(exits.OF_REASON)}"
        raise ConfigurationError(f"--reason {text}: {known}")
    return text
