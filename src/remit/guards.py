"""Guards: checks that run beside the model and can veto what it asks for (case 33)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from remit.pending import Guard, Veto
from remit.supervise import Ending, Halt, Returned, arrived, contained, leave
from remit.transcript import Transcript

__all__ = ["Guards"]


class Guards:
    """The guards of one run, started anew with every model call.

    A veto is told to `on_veto` at once, which halts the run. A guard that raises counts as a veto: a check
    that failed has not passed.
    """

    __slots__ = (
        "_guards",
        "_halt",
        "_on_veto",
        "_stopped",
        "_stopped_at",
        "_tasks",
    )

    def __init__(self, guards: Sequence[Guard], on_veto: Callable[[str], None], halt: Halt) -> None:
        self._guards = guards
        self._on_veto = on_veto
        self._halt = halt
        self._tasks: tuple[asyncio.Task[Ending], ...] = ()
        self._stopped: tuple[asyncio.Task[Ending], ...] = ()
        """Cancelled at the halt, and not heard any more."""
        self._stopped_at = 0.0
        """When that was, on the event loop's clock."""
        if guards:
            halt.watch(self._stop)

    @property
    def open(self) -> bool:
        """Whether a guard has yet to answer, or its answer to be heard."""
        return bool(self._tasks)

    def start(self, transcript: Transcript) -> None:
        """Begin with the transcript that the model is about to see."""
        for guard in self._guards:
            shown = transcript.copy()
            name = getattr(guard, "__name__", "guard")
            task = contained(lambda guard=guard, shown=shown: guard(shown), name=f"guard {name}")
            task.add_done_callback(self._hear)
            self._tasks = (*self._tasks, task)

    async def passed(self, *, until: float, halt: Halt) -> bool:
        """Wait for every guard. False where a halt or the instant came first: nothing is passed then."""
        for task in self._tasks:
            if not await arrived(task, until=until, halt=halt):
                return False
            self._hear(task)  # its callback may be due at this very turn, behind us
        return halt.cause is None

    async def dismiss(self, grace: float) -> None:
        """Wait no longer for those that still think. They have one grace together, from the halt on."""
        self._stop()
        tasks, self._stopped = self._stopped, ()
        for task in tasks:
            await leave(task, until=self._stopped_at + grace, halt=self._halt)

    def close(self) -> None:
        """Nobody hears of a veto any more: the run is over."""
        self._on_veto = _unheard

    def _stop(self) -> None:
        if self._tasks:
            self._stopped, self._tasks = self._tasks, ()
            # Not the running loop: where it is shut down none runs.
            self._stopped_at = self._stopped[0].get_loop().time()
            for task in self._stopped:
                task.cancel()

    def _hear(self, task: asyncio.Task[Ending]) -> None:
        if task not in self._tasks:
            return  # heard before, or dismissed
        self._tasks = tuple([each for each in self._tasks if each is not task])
        if task.cancelled():
            return
        match task.result():
            case Returned(None):
                return
            case Returned(Veto(why)):
                self._on_veto(why)
            case Returned(other):
                self._on_veto(f"a guard returned {type(other).__name__}, neither Veto nor None")
            case ended:
                self._on_veto(f"a guard failed: {type(ended.error).__name__}")


def _unheard(_: str) -> None:
    """A guard that outlived its run."""
