"""The actor that answers calls: one gate, a pure schedule, supervised bodies, a result for each.

gate        the way of one call, in its fixed order
clearance   filters, policy, approval or grant: what lets a call in, when it is judged and when it begins
approval    proposals and the decisions that cover a call
outside     questions of a body, and calls that are executed elsewhere
standing    the standing grants that cover a call
person      what a call waits for, as others see it; asking somebody in process
execution   entering the function: nothing else in remit does
early       reads that begin while their reply is still written
joining     calls that are decided elsewhere while others of their turn run
results     what the model is told
telling     the same for what may be large, off the event loop
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from remit.artifacts import Artifact
from remit.dispatch.early import EarlyReads
from remit.dispatch.gate import MAX_CALLS, Passage
from remit.dispatch.joining import let_join, others_may_join
from remit.dispatch.outside import cut_off
from remit.messages import Status, Text
from remit.preview import preview_of
from remit.rows import Settled
from remit.run import Run
from remit.schedule import Footprint, schedule, shares
from remit.state import CallState
from remit.supervise import outlasted

__all__ = ["MAX_CALLS", "EarlyReads", "answer", "settle_early", "settle_the_rest"]


async def answer(run: Run, calls: Sequence[CallState]) -> None:
    """Bring these calls to their results; those that wait for somebody stay open.

    Shape: results stand in call order, whatever the order of completion (T1).
    Errors: `JournalError`; none for anything that a tool, a policy or a person does.
    """
    early = await _adopt_early(run, calls)
    try:
        await _carry_all(run, calls, early)
    except BaseException:  # put back and raised again
        run.early.update(early)  # whoever closes the run waits for what has begun
        raise
    if not run.state.calls:
        run.forget_turn()
        await run.hear_guards()


async def _carry_all(
    run: Run,
    calls: Sequence[CallState],
    early: Mapping[str, Passage],
    under_way: Sequence[Passage] = (),
) -> None:
    """Bring these calls to their end; `under_way` are calls of the turn that began before them."""
    late = [Passage(run, call) for call in calls if call.use.id not in early]
    late = [passage for passage in late if not passage.turned_away()]
    await _together([passage.consult for passage in late if passage.must_consult])
    late = _admitted(late)
    going = late
    if early:
        going = sorted([*early.values(), *late], key=lambda passage: passage.call.slot.index)
    if under_way:
        going = [*(passage for passage in under_way if not passage.finished.done()), *going]
    if len(going) > 1:
        order = schedule([passage.footprint for passage in going])
        for passage, after in zip(going, order, strict=True):
            if passage not in under_way:
                passage.after = tuple(going[index] for index in after)
    acts = [passage.carry for passage in late]
    begun = late or early
    if begun and len(going) < len(run.state.calls) and others_may_join(run, going):
        joined = partial(_carry_all, run, early={}, under_way=going)
        acts.append(partial(let_join, run, going, joined))
    await _together(acts)
    for passage in early.values():
        await outlasted(passage.finished, until=None, halt=run.halt)


def _admitted(passages: Sequence[Passage]) -> list[Passage]:
    """Those that go on now: neither what waits for somebody nor what it holds up (E6)."""
    admitted: list[Passage] = []
    held_up: list[Footprint] = []
    for passage in passages:
        if passage.result is not None:
            continue
        if held_up and any(shares(passage.footprint, other) for other in held_up):
            held_up.append(passage.footprint)
        elif passage.admit():
            admitted.append(passage)
        elif passage.result is None:
            held_up.append(passage.footprint)
    return admitted


async def settle_the_rest(run: Run) -> None:
    """The run stops: every call still open gets its result (T2). Behind `settle_early`."""
    for call in run.state.calls:
        if not call.settled:
            row, artifacts = await _closing_words(run, call)
            run.settle(row, artifacts)
            if run.listeners:
                run.emit("call_settled", _told(run, call, row))


def _told(run: Run, call: CallState, row: Settled) -> dict[str, Any]:
    """A call that was left open, as its last event has it: nobody took its time."""
    prepared = run.prepare(call.use, call.arguments)
    hide = prepared[0].secrets(prepared[1].given) if isinstance(prepared, tuple) else ()
    return {
        "id": call.use.id,
        "tool": call.use.name,
        "key": call.key,
        "status": row.status.value,
        "seconds": None,
        "preview": preview_of(row.content, hide=hide),
    }


async def settle_early(run: Run) -> None:
    """Give the calls of the open turn what was begun for them while their reply was still written."""
    for passage in (await _adopt_early(run, run.state.calls)).values():
        await outlasted(passage.finished, until=None, halt=run.halt)


async def _adopt_early(run: Run, calls: Sequence[CallState]) -> dict[str, Passage]:
    """The passages that began early and were let in, each now with the call it began for."""
    adopted: dict[str, Passage] = {}
    for call in calls:
        passage = run.early.pop(call.use.id, None)
        if passage is None or passage.judged is None:
            continue
        await outlasted(passage.judged, until=None, halt=run.halt)
        if passage.judged.result():
            passage.adopt(call)
            adopted[call.use.id] = passage
    return adopted


async def _closing_words(run: Run, call: CallState) -> tuple[Settled, tuple[Artifact, ...]]:
    """The result of a call that is left open, and what it refers to."""
    cut = await cut_off(run, call)
    if cut is not None:
        shown, status = cut.shown, cut.status
        is_error = status is not Status.OK
        content, kept, named = shown.content, shown.kept, shown.artifacts
        row = Settled(call.use.id, content, is_error, status, kept=kept, artifacts=named)
        return row, cut.artifacts
    if call.started is not None:
        text, status = "Interrupted: it may have taken effect.", Status.UNKNOWN
    elif run.state.not_run is not None:
        text, status = f"Not run: {run.state.not_run}.", Status.NOT_STARTED
    else:
        text, status = "Not started: the run was stopped before this call.", Status.NOT_STARTED
    return Settled(call.use.id, (Text(text),), is_error=True, status=status), ()


async def _together(acts: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Do them all at the same time and to the end, then report the first failure."""
    if len(acts) <= 1:
        for act in acts:
            await act()
        return
    ends = await asyncio.gather(*(act() for act in acts), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
