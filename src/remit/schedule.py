"""Which calls of one turn wait for which: a pure function of the batch.

Not a lock and not a queue: it knows one batch only, awaits nothing and keeps nothing. Above it the
dispatcher starts a call when the calls named here have ended; beside it `resources` keeps the same
names apart between batches, children and runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Footprint", "schedule", "shares"]


class Footprint(msgspec.Struct, frozen=True, gc=False):
    """What a call touches, as far as its tool declares it."""

    writes: bool
    """Whether it may change what it touches."""
    resources: tuple[str, ...] | None
    """Sorted and unique; None is undeclared, `()` touches nothing that is shared."""

    def __post_init__(self) -> None:
        if self.resources is not None and len(self.resources) > 1:
            msgspec.structs.force_setattr(self, "resources", tuple(sorted(set(self.resources))))


def schedule(batch: Sequence[Footprint]) -> tuple[tuple[int, ...], ...]:
    """For each call the earlier calls that must end before it begins.

    Two calls that name the same resource run in call order if either writes; undeclared writes are
    ordered among themselves; undeclared reads and calls that touch nothing shared never wait.

    Shape: one ascending tuple per call, empty for a call that may begin at once. Only the nearest
    predecessors are named, those behind them follow: of write, read, write the last one names the
    read. A decision is never revised: `schedule(batch[:k]) == schedule(batch)[:k]`.
    Source: remit's own rule. Linear in the number of names in the batch.
    """
    if len(batch) == 1:
        return ((),)
    # None stands for whatever it is that undeclared writes write.
    writer: dict[str | None, int] = {}
    readers: dict[str | None, list[int]] = {}
    order: list[tuple[int, ...]] = []
    for index, call in enumerate(batch):
        before: set[int] = set()
        for name in _names(call):
            if not call.writes:
                if name in writer:
                    before.add(writer[name])
                readers.setdefault(name, []).append(index)
                continue
            if name in readers:
                # The reads since the last write; each of them already waits for that write.
                before.update(readers.pop(name))
            elif name in writer:
                before.add(writer[name])
            writer[name] = index
        order.append(tuple(sorted(before)))
    return tuple(order)


def _names(call: Footprint) -> tuple[str | None, ...]:
    if call.resources is not None:
        return call.resources
    return (None,) if call.writes else ()


def shares(a: Footprint, b: Footprint) -> bool:
    """Whether both declare a common resource that either of them writes.

    Undeclared writes do not share: nobody knows that they meet.
    """
    if not (a.writes or b.writes) or not a.resources or not b.resources:
        return False
    return not set(a.resources).isdisjoint(b.resources)
