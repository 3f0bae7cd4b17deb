"""`remit resume`: go on with a run that waits, was cut off, or met a limit."""

from __future__ import annotations

import asyncio
import os
from dataclasses import fields
from decimal import Decimal
from typing import Any

from remit.activation import outermost
from remit.cli import exits
from remit.cli.display import Display as Shown
from remit.cli.display import display_for
from remit.cli.documents import outcome_document, write_document
from remit.cli.kept import Kept
from remit.cli.locations import project_of, reach_of
from remit.cli.naming import run_named
from remit.cli.options import Again, Display, More, StoreFlag
from remit.cli.recorded import rebuilt
from remit.cli.run import concluded, confirming, refuse_contradictions, watched
from remit.cli.settings import checked, here, read_settings
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.stores import opened
from remit.cli.streams import own_stdout
from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.outcome import Outcome, Reason
from remit.report import read_state
from remit.state import RunState
from remit.store.base import Journal
from remit.store.sqlite import SqliteStore

__all__ = ["go_on", "ready_to_go_on", "resume"]


def resume(
    run: str,
    /,
    *,
    again: Again = Again(),
    reopen: bool = False,
    store: StoreFlag = None,
    json: bool = False,
    jsonl: bool = False,
    exit_zero: bool = False,
    more: More = More(),
    display: Display = Display(),
) -> int:
    """Go on with a run: the answer on stdout, what happens on stderr.

    One that has nothing to go on with is told as it ended.

    Args:
        run: The id of the run or the beginning of it, @last, @-2 or session:NAME.
        reopen: Take up a run that was cancelled, too.
        json: Answer with one JSON document: text, reason, spend.
        jsonl: Answer with one JSON line for each event, the outcome last.
        exit_zero: Exit with 0 however the run ended.
    """
    refuse_contradictions(display, json=json, jsonl=jsonl)
    with own_stdout() as streams, opened(store) as kept_in:
        shown = display_for(streams, display, jsonl=jsonl)
        # Files of the user's are loaded where no event loop runs, as everywhere.
        state = asyncio.run(_root(kept_in, run))
        limits = new_limits(state.limits, more)
        where = ready_to_go_on(kept_in, state, again, shown, reach_of(store))

        async def main(interrupts: Interrupts) -> int:
            outcome = await go_on(
                where, state, shown, interrupts, limits=limits, reopen=reopen, tells=not json
            )
            if json:
                write_document(outcome_document(outcome), streams.answer)
            code = concluded(outcome, where, interrupts, quiet=display.quiet)
            return exits.OK if exit_zero else code

        return run_until_done(main)


async def _root(store: SqliteStore, run: str) -> RunState:
    """The state of the run that goes on when this one is to: the outermost around it."""
    named = await run_named(store, run)
    return await read_state(store, await outermost(store, named.run_id))


def ready_to_go_on(
    store: Journal, state: RunState, again: Again, shown: Shown, reached_by: str
) -> Kept:
    """The remit of a run, as it was recorded, over its store. Errors: `ConfigurationError`."""
    directory = here()
    named_by = None if reached_by else project_of(read_settings(directory, os.environ))
    remit = rebuilt(state.run_id, state.opened.tags, again.who, directory, named_by=named_by)
    if remit.name != state.opened.remit:
        raise ConfigurationError(
            f"run {state.run_id} belongs to remit {state.opened.remit!r}, not to {remit.name!r}: name its own with --remit"
        )
    if remit.deps_type is not None:
        raise ConfigurationError(
            f"remit {remit.name!r} works with deps of type {remit.deps_type.__name__}, which a command has not: "
            "resume the run in the code that has"
        )
    return Kept(confirming(remit.replace(store=store), again.confirm, shown, directory), reached_by)


async def go_on(
    where: Kept,
    state: RunState,
    shown: Shown,
    interrupts: Interrupts,
    *,
    limits: Limits | None = None,
    reopen: bool = False,
    tells: bool = True,
) -> Outcome[Any]:
    """Resume a run before somebody's eyes. Errors: `RunBusy`, and as `Remit.resume`."""
    running = where.remit.resuming(state.run_id, limits=limits, reopen=reopen)
    done = state.ended is not None and state.ended.reason == Reason.COMPLETED
    allowed = state.limits if limits is None or done else limits
    return await watched(
        running, where, shown, interrupts, state.run_id, limits=allowed, tells=tells
    )


def new_limits(limits: Limits, more: More) -> Limits | None:
    """What a run may use from here on; None where nothing was said. Errors: `ConfigurationError`."""
    changes: dict[str, Any] = {}
    for each in fields(more):
        given: str | None = getattr(more, each.name)
        if given is None:
            continue
        flag = f"--{each.name}"
        value = checked(each.name, given.removeprefix("+"), flag)
        if given.startswith("+"):
            allowed = getattr(limits, each.name)
            if allowed is None:
                raise ConfigurationError(
                    f"{flag} {given}: the run has no such limit that could be raised"
                )
            value = (Decimal(str(allowed)) if isinstance(value, Decimal) else allowed) + value
        changes[each.name] = value
    if not changes:
        return None
    kept = {
        name: getattr(limits, name)
        for name in ("steps", "tokens", "usd", "calls", "seconds", "deadline")
    }
    return Limits(**{**kept, **changes})
