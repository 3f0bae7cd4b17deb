"""The rows of a run's journal: everything that happened, in the order in which it counted.

Each row is a frozen value with a `kind` and a JSON form. `encode_row` and `decode_row` are the only
ways between a row and its bytes. What a row *means* is written in `state.py`, which replays them; where
rows are kept is the business of `store/`.

A result that stands in an artifact is not written a second time: its row keeps the offsets (`Kept`), and
whoever reads the journal has `filled` put the content back before the row is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import msgspec

from remit.amounts import NOTHING, ZERO, Amount, Bill, Totals
from remit.canonical import encode
from remit.errors import JournalError
from remit.limits import Limits
from remit.messages import (
    Media,
    Message,
    ResultContent,
    Status,
    StopReason,
    Text,
    Usage,
    Value,
    block_from_json,
)
from remit.pending import PendingKind
from remit.schedule import Footprint
from remit.shown import Kept, restored, written
from remit.transcript import Break, Stub

__all__ = [
    "Activated",
    "Asked",
    "Awaits",
    "Charged",
    "Decided",
    "Elided",
    "Ended",
    "Failed",
    "Finished",
    "Granted",
    "HandedOut",
    "Late",
    "Noted",
    "Opened",
    "Parked",
    "Proposed",
    "Questioned",
    "Replied",
    "Row",
    "Said",
    "Settled",
    "Started",
    "Supplied",
    "Trim",
    "TurnedBack",
    "Vetoed",
    "Withdrawn",
    "content_from_json",
    "decode_row",
    "encode_row",
    "filled",
    "kept_by",
    "read_late",
]


UNTOUCHED = Footprint(writes=False, resources=())

Ends: TypeAlias = Literal["", "done", "output", "invalid"]
"""What a result means for its run: nothing; its end, by a tool that is made to (`ends_run`); its typed output,
which the arguments of the call hold; an output that does not fit."""


class _Recorded(Value, frozen=True, omit_defaults=True, gc=False):
    """What stands in the journal: encoded and read back by its types. Nothing in it can come back to it."""


class Opened(_Recorded, frozen=True):
    """The run was asked for. Always the first row."""

    kind: ClassVar[str] = "opened"
    remit: str
    prompt: tuple[ResultContent, ...]
    history: tuple[Message, ...]
    """The transcript it goes on from."""
    limits: Limits
    instructions: str
    """As evaluated for this run."""
    path: tuple[str, ...]
    """Names of the remits from the root to this one."""
    tags: Mapping[str, str]
    at: str
    """UTC, ISO 8601."""
    caller: str | None = None
    """The call around, whose account bears what this run spends; None for a root."""
    breaks: tuple[Break, ...] = ()
    """Those of the history."""
    model: str = ""
    """The name of the model."""
    tools: Mapping[str, str] = {}
    """A fingerprint of each tool, by name (`surroundings.py`)."""
    session: str | None = None
    """The conversation that it is a part of."""
    after: str | None = None
    """The run of the session whose closed transcript it goes on from, in place of `history`."""


class Asked(_Recorded, frozen=True):
    """One call of a reply: asked for, not yet anything else."""

    key: str | None
    """None where no call came about: an unknown tool, arguments that do not fit."""
    repeats: bool = False
    """The key is an earlier call's, whose outcome is unknown."""
    footprint: Footprint = UNTOUCHED
    """What the call touches; the order of a turn follows from it, also after a resume."""
    effect: str = ""
    """What running it twice would do, by `Effect`; empty where no call came about."""
    shown: str = ""
    """What people are shown of its arguments, where its tool takes secrets: canonical JSON with those masked."""
    remit: str = ""
    """Of a child loop: the name of the remit whose run it is."""


class Replied(_Recorded, frozen=True):
    """The model replied. `message` is as it stands in the transcript, ids made unique."""

    kind: ClassVar[str] = "replied"
    message: Message | None
    """None where nothing of the reply could be kept."""
    stop_reason: StopReason
    usage: Usage
    usd: Decimal
    estimated: bool
    """The provider reported no usage; it was estimated."""
    asked: tuple[Asked, ...]
    """One for each tool use, in call order."""
    closing: bool
    """The hand-back: no step, and its calls are not run."""
    whole: bool
    """False for what came before a cancel or a deadline cut the stream; such calls are not run."""
    seconds: float
    """Active seconds of the run so far."""
    latency: float
    """Seconds that the model took."""
    overshoot: Amount = ZERO
    """What the provider reported beyond what was reserved."""
    invalid: str | None = None
    """Why this answer is not the typed output that was asked for, in words for the model; None where it may be."""


class Started(_Recorded, frozen=True):
    """A body is about to be entered. Durable before it is, for everything but a read."""

    kind: ClassVar[str] = "started"
    tool_use_id: str
    computed: Mapping[str, Any]
    """What the host filled in, without secrets."""
    usd: Decimal = Decimal(0)
    """What its tool declares that a call costs, and so below."""
    tokens: int = 0


class TurnedBack(_Recorded, frozen=True):
    """A call whose start is on record was turned back after all: no body was entered."""

    kind: ClassVar[str] = "turned_back"
    tool_use_id: str


class Trim(_Recorded, frozen=True):
    """A result of the same turn that had to give way, as it is shown from now on."""

    tool_use_id: str
    content: tuple[ResultContent, ...]
    kept: tuple[Kept, ...] = ()
    artifacts: tuple[str, ...] = ()


class Settled(_Recorded, frozen=True):
    """A call has its result, the only one it will ever have."""

    kind: ClassVar[str] = "settled"
    tool_use_id: str
    content: tuple[ResultContent, ...]
    is_error: bool
    status: Status
    spent: Totals | None = None
    """What the call itself cost that no earlier row says; None where no body was entered."""
    children: Bill | None = None
    """What the runs inside the call cost, theirs included; None where there were none."""
    denied: str | None = None
    """The limit that kept it from running, as `dimension:whose`."""
    memo: str | None = None
    """Under which name a deterministic result is remembered."""
    polling: bool = False
    overshoot: Amount = ZERO
    """What the call charged beyond what was reserved for it."""
    ends: Ends = ""
    """What the result means for the run, once the whole turn is answered."""
    words: str = ""
    """Of a result that ends the run: the words of ours before it, which are none of the tool's."""
    kept: tuple[Kept, ...] = ()
    """Where the blocks stand that are not written down here."""
    artifacts: tuple[str, ...] = ()
    """Handles that the content names beside those."""
    trims: tuple[Trim, ...] = ()
    """With the last result of a turn: those before it that are shown shorter for it. Decided once, here."""


class Proposed(_Recorded, frozen=True):
    """A call waits for a decision. A later proposal of the same call replaces this one."""

    kind: ClassVar[str] = "proposed"
    wants: ClassVar[PendingKind] = "approval"
    tool_use_id: str
    pending_id: str
    summary: str
    arguments: str
    """Canonical JSON of what would run, as it may be shown: secrets are masked."""
    expires_at: str
    """UTC, ISO 8601."""
    wanted_by: str
    """What asked for the approval: `effect`, or `policy:` and its words."""
    binds: str = ""
    """SHA-256 of the true arguments, where secrets are masked in those above."""
    at: str = ""
    """When it was asked: UTC, ISO 8601; and so below."""
    tool: str = ""
    """The fingerprint of the tool: an approval is for this one."""


class Questioned(_Recorded, frozen=True):
    """The body of a call asked for input, and ended with that. A later question of the call replaces this one."""

    kind: ClassVar[str] = "questioned"
    wants: ClassVar[PendingKind] = "input"
    tool_use_id: str
    pending_id: str
    schema: str
    """The JSON Schema of the answer, as canonical JSON."""
    question: str
    arguments: str
    """Canonical JSON of what the body was entered with."""
    expires_at: str
    """UTC, ISO 8601."""
    spent: Totals
    """What the call itself cost that no earlier row of it says, and so below."""
    children: Bill = NOTHING
    """The same for the runs inside."""
    overshoot: Amount = ZERO
    place: int = 0
    """How many questions of the call come before this one: they have their answers."""
    refused: str = ""
    """Why the answer that it once had is none; empty where it had none."""
    shown: str = ""
    """The question as people are shown it, where it spells a secret of the arguments; else empty."""
    at: str = ""


class HandedOut(_Recorded, frozen=True):
    """A call was handed out: somebody else executes it, once for its key. Never handed out again."""

    kind: ClassVar[str] = "handed_out"
    wants: ClassVar[PendingKind] = "result"
    tool_use_id: str
    pending_id: str
    summary: str
    arguments: str
    """Canonical JSON of what is to be executed."""
    expires_at: str
    """UTC, ISO 8601."""
    spent: Totals
    at: str = ""


class Supplied(_Recorded, frozen=True):
    """A question has its answer, or a call that was handed out its result."""

    kind: ClassVar[str] = "supplied"
    pending_id: str
    value: str
    """JSON."""
    is_error: bool
    """Of a result: the call failed. Of a question: nobody will answer it, and the value is the text of why."""
    by: str


class Awaits(_Recorded, frozen=True):
    """A call waits for a child run, which waits for somebody."""

    kind: ClassVar[str] = "awaits"
    tool_use_id: str
    run_id: str
    """The child."""
    children: Bill
    """What the runs inside cost that no earlier row of this call says."""
    spent: Totals
    """The same for the call itself."""
    overshoot: Amount = ZERO
    """What the call charged beyond what was reserved for it."""


class Decided(_Recorded, frozen=True):
    """A decision came in."""

    kind: ClassVar[str] = "decided"
    pending_id: str
    approve: bool
    by: str
    note: str
    edit: str | None
    """Canonical JSON of the host's own arguments."""
    key: str | None
    """The key of the edited call; None where nothing was edited."""


class Granted(_Recorded, frozen=True):
    """A standing grant let a call run that nobody was asked about."""

    kind: ClassVar[str] = "granted"
    tool_use_id: str
    grant_id: str
    by: str
    """Who gave it."""


class Withdrawn(_Recorded, frozen=True):
    """A pending is no longer open: the conversation went on without it."""

    kind: ClassVar[str] = "withdrawn"
    pending_id: str


class Noted(_Recorded, frozen=True):
    """The harness tells the model something."""

    kind: ClassVar[str] = "noted"
    source: str
    """Who says it, such as `budget:25`, `stall`, `cut`, `closing`, `notes:0`."""
    text: str


class Elided(_Recorded, frozen=True):
    """Old results gave way to notes, all in one break of what was sent before (X5)."""

    kind: ClassVar[str] = "elided"
    results: tuple[Stub, ...]
    cause: Literal["elision", "media"] = "elision"
    """To make room, or because another model goes on, which does not read these media (X3)."""


class Said(_Recorded, frozen=True):
    """Input that arrived while the run was at work, now in its place."""

    kind: ClassVar[str] = "said"
    content: tuple[ResultContent, ...]


class Charged(_Recorded, frozen=True):
    """Something that came to nothing was billed all the same: a failed attempt, a discarded read."""

    kind: ClassVar[str] = "charged"
    usage: Usage
    usd: Decimal
    estimated: bool
    calls: int = 0
    """Bodies that were entered for it: reads that began early and were discarded (C3)."""
    tokens: int = 0
    """What those bodies cost, beside the usage."""
    children: Bill | None = None
    """What the runs inside those bodies cost; None where there were none."""
    overshoot: Amount = ZERO
    """What of the rest was billed beyond what was reserved."""


class Failed(_Recorded, frozen=True):
    """The model could not be asked, for good."""

    kind: ClassVar[str] = "failed"
    error: str


class Finished(_Recorded, frozen=True):
    """A rule of the host's says that the run is done."""

    kind: ClassVar[str] = "finished"
    by: str
    """Which one, such as `stop_when`."""


class Vetoed(_Recorded, frozen=True):
    """A guard said no."""

    kind: ClassVar[str] = "vetoed"
    why: str


class Late(_Recorded, frozen=True):
    """The outcome of a call that had already been answered; never sent, kept for repeats."""

    kind: ClassVar[str] = "late"
    key: str
    content: tuple[ResultContent, ...]
    is_error: bool
    status: Status
    kept: tuple[Kept, ...] = ()
    artifacts: tuple[str, ...] = ()


class Parked(_Recorded, frozen=True):
    """The run waits for somebody, and its clock with it."""

    kind: ClassVar[str] = "parked"
    seconds: float
    """Active seconds of the run so far."""
    trims: tuple[Trim, ...] = ()
    """Results of the open turn that are shown shorter: whoever goes on from here gets no more than a turn takes."""


class Activated(_Recorded, frozen=True):
    """The run is taken up again."""

    kind: ClassVar[str] = "activated"
    limits: Limits
    at: str
    """UTC, ISO 8601."""
    changed: Mapping[str, tuple[str, ...]] = {}
    """What is different from before (`surroundings.changes`)."""
    tools: Mapping[str, str] = {}
    """Where the tools are: the fingerprints that count from here on."""


class Ended(_Recorded, frozen=True):
    """The run ended. A row `activated` may follow."""

    kind: ClassVar[str] = "ended"
    reason: str
    whose: str | None
    error: str | None
    seconds: float
    at: str = ""


Row: TypeAlias = (
    Opened
    | Replied
    | Started
    | TurnedBack
    | Settled
    | Proposed
    | Questioned
    | HandedOut
    | Supplied
    | Awaits
    | Decided
    | Granted
    | Withdrawn
    | Noted
    | Elided
    | Said
    | Charged
    | Failed
    | Finished
    | Vetoed
    | Late
    | Parked
    | Activated
    | Ended
)

_READERS: dict[str, msgspec.json.Decoder[Row]] = {
    row.kind: msgspec.json.Decoder(row)
    for row in (
        Opened,
        Replied,
        Started,
        TurnedBack,
        Settled,
        Proposed,
        Questioned,
        HandedOut,
        Supplied,
        Awaits,
        Decided,
        Granted,
        Withdrawn,
        Noted,
        Elided,
        Said,
        Charged,
        Failed,
        Finished,
        Vetoed,
        Late,
        Parked,
        Activated,
        Ended,
    )
}
_encoder = msgspec.json.Encoder()

_SHOWING = (Settled, Late)
_TRIMMING = (Settled, Parked)
_REFERRING = frozenset({*_SHOWING, *_TRIMMING})
"""The rows that may keep references."""

RowT = TypeVar("RowT", bound=Row)
_Change: TypeAlias = Callable[
    [tuple[ResultContent, ...], tuple[Kept, ...]], tuple[ResultContent, ...]
]


def encode_row(row: Row) -> bytes:
    """The bytes of a row: compact UTF-8 JSON of its fields. The kind stands beside it in the store."""
    row = _changed(row, written)
    try:
        return _encoder.encode(row)
    except (UnicodeEncodeError, OverflowError):
        # Half a character in an error's text, an integer of more than 64 bits in what a host computed.
        return encode(msgspec.to_builtins(row))


def decode_row(kind: str, body: bytes) -> Row:
    """Read a row back. Errors: `JournalError` for an unknown kind or a body that is no such row."""
    reader = _READERS.get(kind)
    if reader is None:
        raise JournalError(f"the journal holds a row of unknown kind {kind!r}")
    try:
        row = reader.decode(body)
        return _sharing(row) if isinstance(row, Opened) else row
    except (msgspec.DecodeError, ValueError) as error:
        raise JournalError(f"a row of kind {kind!r} cannot be read: {error}") from error


_ALIKE: Final[dict[str, Opened]] = {}
"""By remit, the first row of one of its runs, without what is that run's own."""
_MOST_ALIKE: Final = 1_000


def _sharing(row: Opened) -> Opened:
    """A first row that shares what is the same for all runs of a remit: of a thousand it is then there once."""
    alike = _ALIKE.get(row.remit)
    if (
        alike is None
        or alike.tools != row.tools
        or alike.limits != row.limits
        or alike.instructions != row.instructions
        or alike.path != row.path
        or alike.model != row.model
    ):
        if len(_ALIKE) >= _MOST_ALIKE:
            _ALIKE.clear()
        _ALIKE[row.remit] = msgspec.structs.replace(
            row, prompt=(), history=(), tags={}, breaks=(), caller=None, session=None, after=None
        )
        return row
    return msgspec.structs.replace(
        row,
        remit=alike.remit,
        limits=alike.limits,
        instructions=alike.instructions,
        path=alike.path,
        model=alike.model,
        tools=alike.tools,
    )


def filled(row: RowT, block_of: Callable[[Kept], ResultContent]) -> RowT:
    """The row as it was before it was written; `block_of` gives what `restored_block` makes of what was kept.

    Shape: `filled(decode_row(row.kind, encode_row(row)), block_of) == row`.
    """
    return _changed(row, lambda content, kept: restored(content, kept, block_of))


def kept_by(row: Row) -> tuple[Kept, ...]:
    """What `filled` will ask for."""
    kept: tuple[Kept, ...] = ()
    if type(row) in _REFERRING:
        if isinstance(row, _SHOWING):
            kept = row.kept
        if isinstance(row, _TRIMMING):
            for trim in row.trims:
                kept += trim.kept
    return kept


def _changed(row: RowT, change: _Change) -> RowT:
    """The row with its content changed, and that of its trims; itself where nothing is kept."""
    if type(row) not in _REFERRING:
        return row
    if isinstance(row, _SHOWING) and row.kept:
        row = msgspec.structs.replace(row, content=change(row.content, row.kept))
    if isinstance(row, _TRIMMING) and row.trims:
        trims = [
            msgspec.structs.replace(trim, content=change(trim.content, trim.kept))
            for trim in row.trims
        ]
        row = msgspec.structs.replace(row, trims=tuple(trims))
    return row


def read_late(body: bytes) -> Late:
    """A late outcome as it was posted, not filled. Errors: `JournalError`."""
    row = decode_row(Late.kind, body)
    if not isinstance(row, Late):
        raise JournalError("what was posted is no late outcome")
    return row


def content_from_json(blocks: Iterable[Mapping[str, Any]]) -> tuple[ResultContent, ...]:
    """Read text and media blocks. Errors: `ValueError`."""
    content = tuple(block_from_json(block) for block in blocks)
    for block in content:
        if not isinstance(block, Text | Media):
            raise ValueError(f"a {type(block).__name__} block has no place here")
    return content  # type: ignore[return-value]
