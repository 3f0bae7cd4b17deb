"""The loop: decide purely, then act, until there is an outcome.

`plan` says what is next, the actors carry it out and write it down. Whatever happens in here, the run ends
in an `Outcome` whose transcript is valid: a failing journal and a bug of our own included.
"""

from __future__ import annotations

import asyncio
from typing import Any

from remit.asking import ask
from remit.canonical import encode
from remit.dispatch import answer, settle_early, settle_the_rest
from remit.eliding import elide
from remit.errors import Fenced, JournalError
from remit.log import LOGGER
from remit.models.opening import opened
from remit.outcome import Outcome, Reason
from remit.pending import TOKENS
from remit.plan import Answer, Ask, Check, Elide, Leave, Stop, Wait, plan
from remit.render import error_words
from remit.report import handed_in, outcome_of, pendings_of
from remit.rows import Ended
from remit.run import Run
from remit.stopping import check
from remit.withdraw import end_inside

__all__ = ["drive", "execute"]


async def drive(run: Run) -> Outcome[Any]:  # noqa: C901 - a branch for each move of `plan`
    """One activation, from wherever the state stands to an outcome."""
    while True:
        if run.has_mail:
            await run.hear()
        match plan(run.state, run.room()):
            case Ask() as move:
                await ask(run, move)
            case Elide(elision):
                await elide(run, elision)
            case Answer(calls):
                await answer(run, calls)
            case Check():
                await check(run)
            case Wait():
                if await _parked(run):
                    return await _waiting(run)
            case Leave():
                return await _left(run)
            case Stop() as stop:
                return await _ended(run, stop)


async def execute(run: Run) -> Outcome[Any]:
    """Drive a run, and end in an outcome whatever happens.

    Errors: only cancellation, after the run has been closed and its end journaled (K1).
    """
    _tell_start(run)
    try:
        async with opened(run.config.model):
            outcome = await drive(run)
    except asyncio.CancelledError:
        run.halt.set("cancelled")
        await _after(run, Stop(Reason.CANCELLED))
        raise
    except JournalError as error:
        LOGGER.error("run %s: the journal failed: %s", run.state.run_id, error)  # noqa: TRY400 - the outcome carries it
        outcome = await _unrecorded(run, error)
    except Exception as error:
        LOGGER.exception("run %s: an error inside remit", run.state.run_id)
        run.halt.set("cancelled")  # what it left running is not to begin anything
        outcome = await _after(run, Stop(Reason.INTERNAL_ERROR, error=error_words(error)))
    finally:
        run.halt.close()
        run.guards.close()
        run.means.budget.close()
        await run.record.release()
    _tell_end(run, outcome)
    return outcome


def _tell_start(run: Run) -> None:
    if run.listeners:
        run.emit(
            "run_started",
            {
                "name": run.config.name,
                "model": run.config.model.name,
                "limits": run.state.limits.to_json(),
                "steps": run.state.steps,
                "open": sum(not call.settled for call in run.state.calls),
                "session": run.state.opened.session,
            },
        )
    if run.changed:
        LOGGER.warning("run %s goes on in other surroundings: %s", run.state.run_id, run.changed)
        told = {what: list(names) for what, names in run.changed.items()}
        run.emit("surroundings_changed", told)


def _tell_end(run: Run, outcome: Outcome[Any]) -> None:
    if run.listeners:
        run.emit(
            "run_ended",
            {
                "reason": outcome.reason.value,
                "whose": outcome.whose,
                "error": outcome.error,
                "spend": outcome.spend.to_json(),
            },
        )


async def _ended(run: Run, stop: Stop) -> Outcome[Any]:
    """Close the transcript, journal the end, withdraw what nobody needs to decide any more."""
    run.over = True
    # Before the turn is closed: a closed turn has no calls any more.
    inside = [call.child for call in run.state.calls if call.child is not None]
    await settle_early(run)
    open_ = [call.pending for call in run.state.calls if call.pending is not None]
    await settle_the_rest(run)
    await run.guards.dismiss(run.grace)
    run.record.write(
        Ended(
            reason=stop.reason.value,
            whose=stop.whose,
            error=stop.error,
            seconds=run.clock.seconds,
            at=run.clock.utc().isoformat(),
        )
    )
    await run.record.close("ended", stop.reason.value)
    await _leave_unsaid(run)
    for child in inside:
        await end_inside(run.record.store, child, run.state.run_id)
    for pending in open_:
        await run.record.store.withdraw(pending.pending_id)
        TOKENS.pop(pending.pending_id, None)
    return outcome_of(
        run.state,
        stop.reason,
        whose=stop.whose,
        error=stop.error,
        spec=run.config.output,
        whole=await handed_in(run.record.store, run.state),
    )


async def _parked(run: Run) -> bool:
    """Journal that the run waits. False where something came in meanwhile.

    It waits with its guards heard, or a yes could be given to what one of them was about to veto.
    """
    await run.hear_guards()
    if run.halt.cause is not None or run.state.vetoed is not None:
        return False
    run.park()
    return await run.record.close("waiting")


async def _waiting(run: Run) -> Outcome[Any]:
    """Nothing stays in memory: the run is its rows."""
    run.over = True
    await _leave_unsaid(run)
    pending = await pendings_of(run.record.store, run.state)
    return outcome_of(run.state, Reason.WAITING, pending=pending)


async def _left(run: Run) -> Outcome[Any]:
    """Hand the run over: it is dead to this process and can be resumed anywhere (K1)."""
    await settle_early(run)
    await run.guards.dismiss(run.grace)
    run.park()
    await run.record.commit()
    return await _waiting(run)


async def _leave_unsaid(run: Run) -> None:
    """What was sent and has found no place yet waits in the inbox for whoever takes the run up again."""
    while run.queue:
        body = encode([block.to_json() for block in run.queue.pop(0)])
        await run.record.store.post(run.state.run_id, "input", body)


async def _after(run: Run, stop: Stop) -> Outcome[Any]:
    """End a run that broke off in the middle. What cannot be journaled any more is closed in memory."""
    try:
        return await _ended(run, stop)
    except Exception:  # noqa: BLE001 - still the boundary of `drive`: the outcome must come out
        return outcome_of(
            run.state, stop.reason, whose=stop.whose, error=stop.error, spec=run.config.output
        )


async def _unrecorded(run: Run, error: JournalError) -> Outcome[Any]:
    """The journal failed: say what is known, without another word to it if somebody else has the run."""
    run.halt.set("detached" if isinstance(error, Fenced) else "cancelled")
    await settle_early(run)
    await run.guards.dismiss(run.grace)
    return outcome_of(run.state, Reason.JOURNAL_FAILED, error=str(error))
