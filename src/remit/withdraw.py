"""Taking back what runs wait for, where nobody is to decide it any more.

A conversation that goes on from a closed view leaves the pendings of that view behind (T2); a run that ends leaves
the runs inside its open calls behind (K3). Above: `activation.py` and `loop.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from remit.pending import TOKENS
from remit.report import read_state
from remit.store.base import Journal
from remit.transcript import Transcript

__all__ = ["end_inside", "withdraw_left"]


async def withdraw_left(store: Journal, history: Transcript) -> None:
    """A conversation goes on from a closed view: what the view left pending is withdrawn."""
    # What waits after it may have taken effect is told as unknown, and stands among the doubts.
    keys = {*history.pending_keys, *chain.from_iterable(history.doubts.values())}
    for run_id in {key.rsplit(":", 4)[0] for key in keys}:
        await _withdraw(store, run_id, keys)


async def end_inside(store: Journal, run_id: str, parent: str) -> None:
    """The run around has ended: nothing in the run inside is decided, and whoever resumes it finds it cancelled."""
    info = await store.info(run_id)
    if info is None or info.parent != parent or info.status == "ended":
        return
    await store.post(run_id, "cancel")
    state = await read_state(store, run_id)
    for call in state.calls:
        if call.settled:
            continue
        if call.child is not None:
            await end_inside(store, call.child, run_id)
        if call.pending is not None:
            await store.withdraw(call.pending.pending_id)
            TOKENS.pop(call.pending.pending_id, None)


async def _withdraw(store: Journal, run_id: str, keys: Collection[str] | None) -> None:
    """Withdraw what the calls with these keys, or all calls, wait for, inside children too."""
    info = await store.info(run_id)
    if info is None or info.status == "ended":
        return  # nothing of it waits, and where it was erased nothing can be read
    state = await read_state(store, run_id)
    for call in state.calls:
        if call.settled or (keys is not None and call.slot.key not in keys):
            continue
        if call.awaits is not None:
            await _withdraw(store, call.awaits, None)
        elif call.pending is not None:
            await store.withdraw(call.pending.pending_id)
