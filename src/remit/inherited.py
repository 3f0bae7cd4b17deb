"""What a run takes over from the history that it goes on from: its messages, and the artifacts that they name.

The history may come from another model, another process or another product. What this run's model does not read
in results (pictures, base64 in a text) becomes a note with a handle before the first row is written; handles that
the history names are good in this run too, and what another store keeps of them is copied. Above: `activation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from remit.artifacts import HANDLE_PREFIX, Artifact
from remit.messages import Message
from remit.shown import Reads, reread, unread
from remit.store.base import Journal
from remit.store.origin import Origin
from remit.transcript import Break, Transcript
from remit.workers import Workers, WorkersExhausted

__all__ = ["Inherited", "inherited"]

T = TypeVar("T")


class Inherited(msgspec.Struct, frozen=True):
    """A history, as this run begins with it."""

    messages: tuple[Message, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    """What has to be stored with the messages: taken out of them here, or kept by another store until now."""
    digests: tuple[str, ...] = ()
    """What the messages name and another run has stored."""
    breaks: tuple[Break, ...] = ()
    """Where the messages are others than those that were said."""
    reworded: bool = False
    """This run's model does not read all of what was said: the messages are not the history's."""


async def inherited(
    history: Transcript | None,
    *,
    reads: Reads,
    workers: Workers,
    store: Journal,
    media: Sequence[int] | None = None,
) -> Inherited:
    """Close a history, put its results into words that this model reads, and fetch what `store` may not have.

    `media` are the messages with results that a model may not read, where that is known.
    """
    if history is None:
        return Inherited()
    said = messages = tuple(history.closed() if history.owed else history)
    made, breaks = list[Artifact](), history.breaks
    digests = tuple([each.removeprefix(HANDLE_PREFIX) for each in history.artifacts])
    reworded = unread(messages if media is None else [messages[at] for at in media], reads)
    if reworded:
        messages, made = await _aside(workers, lambda: reread(said, reads))
        pairs = enumerate(zip(said, messages, strict=True))
        first = next((at for at, (old, new) in pairs if old != new), len(said))
        breaks = (*breaks, Break(first, len(messages)))
    origin = history.origin
    if digests and isinstance(origin, Origin) and not origin.is_in(store):
        made = [*made, *await origin.fetch(digests)]
    return Inherited(messages, tuple(made), digests, breaks, reworded)


async def _aside(workers: Workers, work: Callable[[], T]) -> T:
    """Do it in a worker: a history may hold many megabytes of pictures."""
    try:
        future = workers.submit(work)
    except WorkersExhausted:
        return work()
    return await future
