"""`remit cancel` and `remit send`: a word to a run, whichever process executes it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from cyclopts import Parameter

from remit.analysis.cells import visible
from remit.canonical import encode
from remit.checks import check_cancel
from remit.cli import exits
from remit.cli.content import proper_text, read_piped
from remit.cli.documents import VERSION, write_document
from remit.cli.keeper import stand_in
from remit.cli.locations import reach_of
from remit.cli.naming import run_named
from remit.cli.options import STDIN, StoreFlag
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.stores import opened
from remit.cli.streams import complain, own_stdout
from remit.errors import RemitError
from remit.live import content_of
from remit.outcome import Outcome, Reason
from remit.store.directory import RunEntry
from remit.store.sqlite import SqliteStore

__all__ = ["cancel", "send"]

_RUN = Parameter(metavar="RUN")


def cancel(
    run: Annotated[str, _RUN],
    /,
    *others: Annotated[str, _RUN],
    reason: Annotated[str, Parameter(metavar="TEXT")] = "",
    grace: Annotated[float | None, Parameter(metavar="S")] = None,
    store: StoreFlag = None,
    json: bool = False,
) -> int:
    """Cancel runs, whichever process executes them, and wait until they are closed.

    What is done is kept: remit resume RUN --reopen takes a run up again. One that has ended stays as it ended.

    Args:
        run: The id of the run or the beginning of it, @last, @-2 or session:NAME.
        others: More runs.
        reason: Why, in words that are kept with the end of the run.
        grace: So many seconds for tools under way to stop; what runs on is left, and may yet take effect. Without it half
            a second, or what the code of the run says.
        json: Answer with one JSON document.
    """
    why = proper_text(reason, "--reason")
    check_cancel(why, grace)
    with own_stdout() as streams, opened(store) as kept_in:

        async def main(_: Interrupts) -> int:
            found = [await run_named(kept_in, each) for each in (run, *others)]
            named = {each.run_id: each for each in found}.values()
            ends: list[Outcome[Any] | RemitError] = await asyncio.gather(
                *(_cancelled(kept_in, each, why, grace) for each in named)
            )
            outcomes = [end for end in ends if isinstance(end, Outcome)]
            failed = [end for end in ends if isinstance(end, RemitError)]
            if failed and len(ends) == 1:
                raise failed[0]
            if json:
                documents = [_ended(each) for each in outcomes]
                write_document({"v": VERSION, "runs": documents}, streams.answer)
            for outcome in () if json else outcomes:
                print(f"{visible(outcome.run_id)} {outcome.reason.value}", file=streams.answer)
                if outcome.reason is not Reason.CANCELLED:
                    complain(f"run {outcome.run_id} had ended before it was cancelled")
            for error in failed:
                complain(str(error))
            return exits.CONFLICT if failed else exits.OK

        return run_until_done(main)


def send(
    run: Annotated[str, _RUN],
    text: Annotated[str, Parameter(metavar="TEXT|-")],
    /,
    *,
    store: StoreFlag = None,
    json: bool = False,
) -> int:
    """Say something to a run: it takes its place behind the results of the step under way.

    A run that nobody executes hears it when it is resumed.

    Args:
        run: The id of the run or the beginning of it, @last, @-2 or session:NAME.
        text: What is said; - reads it from standard input.
        json: Answer with one JSON document.
    """
    with own_stdout() as streams, opened(store) as kept_in:
        said = read_piped(streams.input) if text == STDIN else proper_text(text, "the text")
        content = content_of(said)

        async def main(_: Interrupts) -> int:
            run_id = (await run_named(kept_in, run)).run_id
            if not await _may_hear(kept_in, run_id):
                complain(
                    f"run {run_id} has ended and hears nobody: start another one with its session"
                )
                return exits.CONFLICT
            body = encode([block.to_json() for block in content])
            await kept_in.post(run_id, "input", body)
            info = await kept_in.info(run_id)
            executed = info is not None and info.owner is not None
            if json:
                document = {"v": VERSION, "run_id": run_id, "executed": executed}
                write_document(document, streams.answer)
            elif not executed:
                complain(
                    f"it is heard when the run goes on: remit resume {run_id}{reach_of(store)}"
                )
            return exits.OK

        return run_until_done(main)


async def _may_hear(store: SqliteStore, run_id: str) -> bool:
    info = await store.info(run_id)
    return info is not None and info.status != "ended"


async def _cancelled(
    store: SqliteStore, run: RunEntry, reason: str, grace: float | None
) -> Outcome[Any] | RemitError:
    """How it ended; of several, one that cannot be cancelled keeps no other from it."""
    try:
        return await stand_in(run.remit, store).cancel(run.run_id, reason=reason, grace=grace)
    except RemitError as error:
        return error


def _ended(outcome: Outcome[Any]) -> dict[str, Any]:
    return {
        "run_id": outcome.run_id,
        "reason": outcome.reason.value,
        "cancelled": outcome.reason is Reason.CANCELLED,
        "error": outcome.error,
    }
