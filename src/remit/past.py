"""What a run of a session goes on from: all that was said in the runs before it.

Each run stores its own rows and names the one before it, so that a conversation is put together by replaying its runs
in their order. That is done once: the store tells with each reading how far back it is as this process has read it
before (`store/recent.py`), and a turn reads the newest run alone. Above: `sessions.py`, and `report.py` for a run
that is taken up again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from remit.errors import JournalError
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.rows import Opened, Row, decode_row
from remit.shown import unread
from remit.state import RunState
from remit.store.base import Journal, Predecessor, RunRows
from remit.store.filling import fill_all
from remit.store.recent import Known, recent_of
from remit.transcript import Transcript

__all__ = ["Past", "goes_on_from", "past_of"]

_ROWS_AT_ONCE: Final = 100
"""A conversation may be long, and the event loop is not ours alone."""
_BLOCK_BYTES: Final = 200
"""What a block takes beside its text, and a message."""


class Past(msgspec.Struct, frozen=True):
    """What a session has come to, as it was read."""

    last: Predecessor
    """The newest run of it."""
    transcript: Transcript
    """Closed, and the caller's own."""
    media: tuple[int, ...]
    """The messages with results that some model does not read."""


async def past_of(store: Journal, run_id: str) -> Past:
    """What was said up to the end of a run. Errors: `JournalError` where one of the runs cannot be read."""
    recent = recent_of(store)
    forgotten, known = recent.forgotten, recent.known  # in this order: threads erase, too
    told, base = await _back(store, run_id, known)
    if base is not None and not told:
        recent.used(run_id)
        return _past(base)
    newest, start = told[0].run, base or Known("", b"", 0, Transcript(), (), 0)
    transcript, media, size = start.transcript.copy(), start.media, start.size
    at_once = 0
    while told:
        each = told.pop()
        at_once += len(each.rows)
        if at_once > _ROWS_AT_ONCE:
            await asyncio.sleep(0)
            at_once = 0
        begins = len(transcript)
        rows = await fill_all(store, each.run.run_id, each.rows)
        transcript = said(RunState(each.run.run_id, rows, transcript))
        new = transcript[begins:]
        media += tuple(
            [at for at, message in enumerate(new, begins) if unread((message,), _nothing)]
        )
        size += _size(new)
    made = Known(newest.run_id, newest.head, len(newest.rows), transcript, media, size)
    recent.keep(made, instead_of=start.run_id, forgotten=forgotten)
    return _past(made)


def _past(known: Known) -> Past:
    return Past(Predecessor(known.run_id, known.rows), known.transcript.copy(), known.media)


def _nothing(media_type: str) -> bool:
    """What a model reads that reads nothing but text."""
    del media_type
    return False


def said(state: RunState) -> Transcript:
    """The closed transcript of a run that has ended, for the next of its session. The state is not used any more."""
    return state.transcript.closed() if state.transcript.owed else state.transcript


def goes_on_from(rows: Sequence[Row]) -> str | None:
    """The run whose closed transcript these rows begin with."""
    first = rows[0] if rows else None
    return first.after if isinstance(first, Opened) else None


class _Told(msgspec.Struct, frozen=True):
    """One run of a conversation, as its rows tell it; what they keep elsewhere is still there."""

    run: RunRows
    rows: Sequence[Row]


async def _back(
    store: Journal, run_id: str, known: Mapping[str, Known]
) -> tuple[list[_Told], Known | None]:
    """The runs that have to be read, newest first, and what is known of the one before them."""
    heads = {each.run_id: each.head for each in known.values()}
    told: list[_Told] = []
    passed: set[str] = set()
    wanted: str | None = run_id
    while wanted is not None:
        asked = wanted
        for each in await store.read_back(asked, heads):
            if each.run_id != wanted:
                break  # a run goes on from another one than that before it in the session
            if not each.rows:
                if heads.get(each.run_id) != each.head:
                    raise JournalError(f"run {each.run_id!r} cannot be read back: it has no rows")
                return told, known[each.run_id]
            told.append(_Told(each, [decode_row(row.kind, row.body) for row in each.rows]))
            passed.add(each.run_id)
            wanted = goes_on_from(told[-1].rows)
        if wanted in passed:
            raise JournalError(f"run {run_id!r} goes on from itself")
        if wanted == asked:
            raise JournalError(f"run {asked!r} cannot be read back")
    return told, None


def _size(messages: Iterable[Message]) -> int:
    """About so many bytes."""
    return sum([_BLOCK_BYTES + sum(map(_size_of, message.content)) for message in messages])


def _size_of(block: Block) -> int:
    match block:
        case Text(text):
            size = sys.getsizeof(text)
        case Media(_, data) | Opaque(_, data):
            size = len(data)
        case ToolUse(_, _, arguments):
            size = sys.getsizeof(arguments)
        case ToolResult(_, content):
            size = sum(map(_size_of, content))
    return _BLOCK_BYTES + size
