"""A run as its rows tell it: the state they come to, and everything on the way that a state lets go of.

`Story` replays rows into a `RunState`, which alone knows what a row means, and keeps each reply with its calls
in the order in which they were made. `retold` makes events of it for whoever follows a run, `sheet` one value for
whoever looks at it afterwards. What is a secret here the rows say (`Asked.shown`): no tool has to be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from remit.canonical import encode, parse_json
from remit.errors import JournalError, RemitError
from remit.messages import ResultContent, Text, ToolUse
from remit.preview import MASK, masking
from remit.rows import (
    Activated,
    Asked,
    Charged,
    Elided,
    Ended,
    Failed,
    Finished,
    Late,
    Noted,
    Parked,
    Replied,
    Row,
    Said,
    Settled,
    Vetoed,
    decode_row,
)
from remit.state import CallState, RunState
from remit.store.base import Journal, StoredRow
from remit.store.filling import fill, fill_all
from remit.transcript import Transcript

__all__ = ["Aside", "Called", "Step", "Story", "read_story", "row_of", "words_of"]

_LEAST_SECRET = 4
"""Shorter texts may stand for anything, and are not looked for in results."""
_WITHHELD = "(not shown: it may quote a secret)"
_MISFITS = (RemitError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError)
"""What comes of rows that nobody wrote in this order: they may have been forged, and are read all the same."""
_GONE = "(what stands here is kept elsewhere)"


@dataclass(frozen=True, slots=True)
class Called:
    """One call of a reply."""

    asked: Asked
    state: CallState

    @property
    def use(self) -> ToolUse:
        return self.state.use

    @property
    def arguments(self) -> str:
        """What people are shown of what the model asked for."""
        return self.asked.shown or self.use.arguments

    @property
    def edit(self) -> str | None:
        """What people are shown of the arguments that somebody put in their place."""
        edited = self.state.edited
        if edited is None or edited.edit is None or not self.asked.shown:
            return None if edited is None else edited.edit
        return _edited(edited.edit, self.asked.shown)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The secrets among its arguments, as texts that are not to be shown."""
        if not self.asked.shown:
            return ()
        texts = set(_unseen(_read(self.use.arguments), _read(self.asked.shown)))
        edited = self.state.edited
        if edited is not None and edited.edit is not None:
            texts |= set(_unseen(_read(edited.edit), _read(self.edit or "")))
        return tuple(text for text in texts if len(text) >= _LEAST_SECRET)

    def shown(self, text: str) -> str:
        """What people are shown of a text that the call came to."""
        if self.asked.shown and self.asked.key is None:
            return _WITHHELD  # what does not fit may be quoted
        return masking(text, self.hidden)


@dataclass(slots=True)
class Step:
    """One reply, with the calls that it asked for."""

    number: int | None
    """From 1; None for a reply that counts as none."""
    reply: Replied
    calls: tuple[Called, ...]
    until: float | None = None
    """Active seconds of the run when its calls were answered, as far as a row tells; None before that."""

    @property
    def calls_seconds(self) -> float | None:
        """How long its calls took together."""
        if not self.calls or self.until is None:
            return None
        return max(0.0, self.until - self.reply.seconds)


@dataclass(frozen=True, slots=True)
class Aside:
    """Something that is neither a reply nor a call."""

    after: int
    """How many replies stand before it."""
    what: str
    """A stable word: `note`, `said`, `break`, `failed`, `vetoed`, `finished`, `billed`, `late`, `resumed`, `ended`."""
    text: str


@dataclass(slots=True)
class Story:
    """A run, row by row. Of a session it is told by its own rows alone, without what was said before it."""

    run_id: str
    steps: list[Step] = field(default_factory=list[Step])
    asides: list[Aside] = field(default_factory=list[Aside])
    state: RunState = field(init=False)

    def __post_init__(self) -> None:
        self.state = RunState(self.run_id, (), Transcript())

    def apply(self, row: Row) -> None:
        """Take in one row. Errors: `JournalError` for one that has no place here."""
        self.state.apply(self._ours(row) if isinstance(row, Elided) else row)
        match row:
            case Replied():
                self._until(row.seconds - row.latency)
                self.steps.append(self._step(row))
            case Parked() | Ended():
                self._until(row.seconds)
            case _:
                pass
        told = _aside(row)
        if told is not None:
            self.asides.append(Aside(len(self.steps), *told))

    def calls(self) -> Iterator[Called]:
        """Every call that was ever asked for, oldest first."""
        for step in self.steps:
            yield from step.calls

    def call(self, tool_use_id: str) -> Called | None:
        """The newest call with this id."""
        for step in reversed(self.steps):
            for call in step.calls:
                if call.use.id == tool_use_id:
                    return call
        return None

    def _ours(self, row: Elided) -> Elided:
        """Of old results that gave way those that are told here: a run of a session elides earlier runs' too."""
        if self.state.opened.after is None:
            return row
        ours = [stub for stub in row.results if self.call(stub.tool_use_id) is not None]
        return msgspec.structs.replace(row, results=tuple(ours))

    def _step(self, row: Replied) -> Step:
        counts = row.message is not None and not row.closing
        calls = zip(row.asked, self.state.calls, strict=False)
        return Step(
            self.state.steps if counts else None,
            row,
            tuple(Called(asked, call) for asked, call in calls),
        )

    def _until(self, seconds: float) -> None:
        if self.steps and self.steps[-1].until is None:
            self.steps[-1].until = seconds


async def read_story(store: Journal, run_id: str, *, whole: bool) -> Story:
    """A run from a store; `whole` with the contents of results that stand in artifacts.

    Errors: `JournalError` where its rows are gone, damaged, or newer than this code.
    """
    story = Story(run_id)
    rows = [_row(stored) for stored in await store.read(run_id)]
    for seq, row in enumerate(await _filled(store, run_id, rows) if whole else map(_hollow, rows)):
        try:
            story.apply(row)
        except _MISFITS as error:
            raise JournalError(f"row {seq} of run {run_id!r} has no place there") from error
    if not story.state.rows:
        raise JournalError(f"run {run_id!r} has no rows")
    return story


async def row_of(store: Journal, run_id: str, stored: StoredRow) -> Row:
    """A row as it was applied; where an artifact is gone, with words in its place. Errors: `JournalError`."""
    return await _filled_row(store, run_id, _row(stored))


async def _filled_row(store: Journal, run_id: str, row: Row) -> Row:
    try:
        return await fill(store, run_id, row)
    except JournalError:
        return _hollow(row)


async def _filled(store: Journal, run_id: str, rows: Sequence[Row]) -> Sequence[Row]:
    try:
        return await fill_all(store, run_id, rows)
    except JournalError:  # one is gone, and the others are shown
        return [await _filled_row(store, run_id, row) for row in rows]


def words_of(content: tuple[ResultContent, ...]) -> str:
    """Content as text; media as their type and size."""
    return "".join(
        block.text
        if isinstance(block, Text)
        else f"[{block.media_type}, {len(block.data):,} bytes]"
        for block in content
    )


def _row(stored: StoredRow) -> Row:
    return decode_row(stored.kind, stored.body)


def _hollow(row: Row) -> Row:
    """The row with words in place of what stands in artifacts."""
    if isinstance(row, Settled | Late) and row.kept:
        row = msgspec.structs.replace(row, content=(*row.content, Text(_GONE)))
    if isinstance(row, Settled | Parked) and row.trims:
        trims = tuple(
            msgspec.structs.replace(trim, content=(*trim.content, Text(_GONE)))
            if trim.kept
            else trim
            for trim in row.trims
        )
        row = msgspec.structs.replace(row, trims=trims)
    return row


def _aside(row: Row) -> tuple[str, str] | None:  # noqa: C901 - a table: one line for each kind of row
    """What a row says beside replies and calls; None where it says nothing."""
    match row:
        case Noted():
            return "note", row.text
        case Said():
            return "said", words_of(row.content)
        case Elided():
            results = len({stub.tool_use_id for stub in row.results})
            return "break", f"{row.cause}: {results} old results gave way to notes"
        case Failed():
            return "failed", row.error
        case Vetoed():
            return "vetoed", row.why
        case Finished():
            return "finished", row.by
        case Late():
            return "late", f"{row.key}: {row.status.value}"
        case Charged():
            tokens = row.usage.total + row.tokens
            return "billed", f"{tokens} tokens, ${row.usd}, for what came to nothing"
        case Activated():
            return "resumed", row.at
        case Ended():
            return "ended", row.reason
        case _:
            return None


# --- secrets -------------------------------------------------------------------------------------


def _read(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def _unseen(given: Any, shown: Any) -> Iterator[str]:
    """The texts in a value that are masked where it is shown."""
    if given == shown:
        return
    if isinstance(given, dict) and isinstance(shown, dict):
        for name, value in cast("dict[str, Any]", given).items():
            yield from _unseen(value, cast("dict[str, Any]", shown).get(name, MASK))
    elif isinstance(given, list) and isinstance(shown, list):
        for index, value in enumerate(cast("list[Any]", given)):
            rest = cast("list[Any]", shown)
            yield from _unseen(value, rest[index] if index < len(rest) else MASK)
    else:
        yield from _texts(given)


def _texts(value: Any) -> Iterator[str]:
    """A value as texts that a result may spell."""
    if isinstance(value, dict):
        for member in cast("dict[str, Any]", value).values():
            yield from _texts(member)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
        yield encode(value).decode()[1:-1]
    elif value is not None and not isinstance(value, bool):
        yield encode(value).decode()


def _edited(edit: str, shown: str) -> str:
    """Arguments of the host's own: what is not known to be no secret is masked."""
    given, seen = _read(edit), _read(shown)
    if not isinstance(given, dict) or not isinstance(seen, dict):
        return encode(MASK).decode()
    known = cast("dict[str, Any]", seen)
    return encode(
        {
            name: value if MASK not in encode(known.get(name, MASK)).decode() else MASK
            for name, value in cast("dict[str, Any]", given).items()
        }
    ).decode()
