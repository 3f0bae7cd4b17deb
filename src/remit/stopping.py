"""The actor that asks the host whether the run is done (`stop_when`).

Foreign code like a note or a guard: supervised, and heard only in time. What it cannot say for itself is an event, and
counts as a no: the limits of the run still hold.
"""

from __future__ import annotations

from remit.render import error_words
from remit.rows import Finished
from remit.run import Run
from remit.supervise import Raised, Returned, arrived, contained, give_up

__all__ = ["check"]


async def check(run: Run) -> None:
    """Ask about the newest answered turn, once in an activation, and record a yes."""
    asked = run.config.stop_when
    if asked is None:
        return
    run.checked = run.state.reply
    shown = run.state.transcript.copy()
    task = contained(lambda: asked(shown), name="stop_when", halt=run.halt)
    in_time = await arrived(task, until=run.clock.ends_at, halt=run.halt)
    ending = task.result() if in_time else await give_up(task, grace=run.grace, halt=run.halt)
    if run.halt.cause is not None:
        return
    match ending if in_time else None:
        case Returned(True):
            run.record.write(Finished("stop_when"))
        case Returned(False):
            pass
        case Returned(other):
            _tell(run, f"it returned {type(other).__name__}, neither True nor False")
        case Raised(error):
            _tell(run, error_words(error))
        case None:
            _tell(run, "it did not answer in time")


def _tell(run: Run, why: str) -> None:
    run.emit("stop_when_failed", {"error": why})
