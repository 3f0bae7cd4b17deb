"""Guards: checks that run beside the model and can veto what it asks for (case 33)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from remit.pending import Guard, Veto
from remit.supervise import Ending, Halt, Returned, arrived, contained, give_up
from remit.transcript import Transcript

__all__ = ["Guards"]


class Guards:
    """The guards of one run, started anew with every model call.

    A veto is told to `on_veto` at once, which halts the run. A guard that raises counts as a veto: a check
    that failed has not passed.
    """

    def __init__(self, guards: Sequence[Guard], on_veto: Callable[[str], None]) -> None:
        self._guards = guards
        self._on_veto = on_veto
        self._tasks: list[asyncio.Task[Ending]] = []

    @property
    def open(self) -> bool:
        """Whether a guard has yet to answer."""
        return any(not task.done() for task in self._tasks)

    def start(self, transcript: Transcript) -> None:
        """Begin with the transcript that the model is about to see."""
        for guard in self._guards:
            shown = transcript.copy()
            name = getattr(guard, "__name__", "guard")
            task = contained(lambda guard=guard, shown=shown: guard(shown), name=f"guard {name}")
            task.add_done_callback(self._hear)
            self._tasks.append(task)

    async def passed(self, *, until: float, halt: Halt) -> bool:
        """Wait for every guard. False where a halt or the instant came first: nothing is passed then."""
        for task in self._tasks:
            if not await arrived(task, until=until, halt=halt):
                return False
        self._tasks.clear()
        return halt.cause is None

    async def dismiss(self, grace: float) -> None:
        """Wait no longer for those that still think."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.remove_done_callback(self._hear)
            await give_up(task, grace=grace)

    def _hear(self, task: asyncio.Task[Ending]) -> None:
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
