"""Calls that somebody elsewhere decides while others of their turn run: they begin at once, not behind them (E6).

In a store that processes share a run hears of a decision while it is busy (`hearing.py`); here it is acted on. What
joins goes the way of every call, behind those of the calls under way that it has to follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from remit.dispatch.gate import Passage
from remit.plan import ready_calls
from remit.run import Run
from remit.state import CallState
from remit.store.base import Shared
from remit.supervise import arrived

__all__ = ["let_join", "others_may_join"]


def others_may_join(run: Run, going: Sequence[Passage]) -> bool:
    """Whether calls of this turn wait for outsiders who can be heard while these calls are under way."""
    return bool(_waiting(run, going)) and isinstance(run.record.store, Shared)


async def let_join(
    run: Run,
    going: Sequence[Passage],
    carry: Callable[[Sequence[CallState]], Awaitable[None]],
) -> None:
    """Until these calls have come to their end, carry what is decided meanwhile.

    What they wait for is made durable first, or nobody elsewhere would know of it. Errors: `JournalError`.
    """
    await run.record.commit(wave=True)
    while any(not passage.finished.done() for passage in going):
        await _word(run, going)
        if run.halt.cause is not None:
            return
        if run.record.has_mail:
            await run.hear()
        ready = ready_calls(run.state, run.config.now())
        decided = [call for call in ready if call in _waiting(run, going)]
        if decided:
            await carry(decided)
            await run.record.commit()  # what they wait for in their turn


async def _word(run: Run, going: Sequence[Passage]) -> None:
    """Wait until there is word of a call that waits, or one of those under way has ended."""
    word: asyncio.Future[None] = run.loop.create_future()

    def wake(_: object = None) -> None:
        if not word.done():
            word.set_result(None)

    waiting, active = _waiting(run, going), [p.finished for p in going if not p.finished.done()]
    for call in waiting:
        call.on_word = wake
    for finished in active:
        finished.add_done_callback(wake)
    try:
        await arrived(word, until=None, halt=run.halt)
    finally:
        for call in waiting:
            call.on_word = None
        for finished in active:
            finished.remove_done_callback(wake)


def _waiting(run: Run, going: Sequence[Passage]) -> list[CallState]:
    """The open calls of the turn that are not under way."""
    under_way = {passage.call.use.id for passage in going if not passage.finished.done()}
    return [call for call in run.state.calls if not call.settled and call.use.id not in under_way]
