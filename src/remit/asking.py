"""The actor that asks the model: say what is due, reserve, generate, and try again where that helps (E7)."""

from __future__ import annotations

from remit.attempt import Attempt
from remit.config import Note, call_with
from remit.eliding import note_unread
from remit.errors import ModelProtocolError, ModelUnavailable
from remit.models.retry import MODEL_RETRIES, backoff
from remit.plan import Ask
from remit.render import error_words
from remit.rows import Failed, Noted
from remit.run import Run
from remit.supervise import Raised, Returned, arrived, contained, give_up

__all__ = ["ask"]


async def ask(run: Run, move: Ask) -> None:
    """Carry out one model call, with its retries, and record what came of it."""
    if run.again:
        await note_unread(run)
        run.again = False
    await _say(run, move)
    closing = move.closing is not None
    for number in range(1 + MODEL_RETRIES):
        offer = run.means.reserve(closing=closing)
        if offer is None:
            return
        quote, reserved = offer
        await run.record.commit()
        if run.halt.cause is not None:
            reserved.refund()
            return
        if number == 0:
            run.guards.start(run.state.transcript)
        attempt = Attempt(run, quote, reserved, closing=move.closing)
        error = await attempt.make()
        if error is None or not await _wait_to_retry(run, number, error, until=attempt.until):
            break
    if not run.state.calls:
        await run.hear_guards()


async def _say(run: Run, move: Ask) -> None:
    """Put everything that is due into the newest user turn."""
    if run.state.paused:
        return  # the turn is still the provider's: nothing may stand behind it
    for index, note in enumerate(run.config.notes):
        text = await _host_note(run, note)
        if text is not None and run.state.told.get(f"notes:{index}") != text:
            run.record.write(Noted(f"notes:{index}", text))
    for noted in move.notes:
        run.record.write(noted)
    run.write_said()


async def _host_note(run: Run, note: Note) -> str | None:
    """Ask the host for its note; a note that fails or is late is left out, and that is told."""
    task = contained(lambda: call_with(note, run.deps), name="note", halt=run.halt)
    if not await arrived(task, until=run.means.tools_until, halt=run.halt):
        await give_up(task, grace=run.grace, halt=run.halt)
        return None
    match task.result():
        case Returned(str(text)) if text.strip():
            return text
        case Raised(error):
            run.emit("note_failed", {"error": error_words(error)})
            return None
        case _:
            return None


async def _wait_to_retry(run: Run, number: int, error: BaseException, *, until: float) -> bool:
    """Wait until the next attempt. False where there is none, and then it is recorded why.

    Units: `until` is when attempts are cut, on the event loop's clock.
    """
    transient = isinstance(error, ModelUnavailable | ModelProtocolError)
    seconds = backoff(
        number,
        seed=run.state.run_id,
        retry_after=error.retry_after if isinstance(error, ModelUnavailable) else None,
    )
    wakes = run.loop.time() + seconds
    if not transient or number == MODEL_RETRIES or wakes >= until:
        words = error_words(error)
        if transient and number < MODEL_RETRIES:
            words += f"; another try would have to wait {seconds:,.0f} s, which is more than the run has left"
        run.record.write(Failed(words))
        return False
    run.emit("model_retry", {"attempt": number + 1, "after": seconds, "error": error_words(error)})
    await arrived(run.loop.create_future(), until=wakes, halt=run.halt)
    return run.halt.cause is None
