"""The protocol of the journal: where the rows of runs are kept, and who may write them.

Every method is one transaction. A run has one writer at a time: it holds a `Lease`, whose epoch fences
out whoever held it before. Outsiders (who decide, cancel or say something) hold no lease; they `post` or
`decide`, and the writer learns of it from the `Control` that every `append` returns. `memory.py` beside
this keeps it all in lists of bytes; durable stores implement the same protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from remit.artifacts import Artifact
from remit.errors import DecisionError
from remit.pending import PendingKind

__all__ = [
    "Control",
    "Held",
    "Journal",
    "Lease",
    "NewProposal",
    "NewRow",
    "NewRun",
    "NotNext",
    "PostKind",
    "Posted",
    "Predecessor",
    "ProposalInfo",
    "RunInfo",
    "RunRows",
    "RunStatus",
    "Shared",
    "StoredRow",
    "Superseded",
    "wrong_kind",
]

RunStatus: TypeAlias = Literal["ready", "running", "waiting", "ended"]
PostKind: TypeAlias = Literal["cancel", "input", "decision", "supply", "late", "withdraw"]


class NewRow(msgspec.Struct, frozen=True, gc=False):
    """A row on its way in."""

    kind: str
    body: bytes


class StoredRow(msgspec.Struct, frozen=True, gc=False):
    """A row as it was committed."""

    seq: int
    """0 for the first row of a run, without gaps."""
    kind: str
    body: bytes


class RunRows(msgspec.Struct, frozen=True):
    """The rows of a run, as they were at one moment."""

    run_id: str
    head: bytes
    """Of just these rows: another one whenever a row is written, and never that of another run."""
    rows: Sequence[StoredRow]


class Predecessor(msgspec.Struct, frozen=True):
    """A run of a session, as it was read."""

    run_id: str
    rows: int
    """How many it had: one that was taken up again has more."""


class NewRun(msgspec.Struct, frozen=True):
    """A run on its way in."""

    run_id: str
    spec_hash: bytes
    """SHA-256 over what was asked for: a second start with the same id must ask for the same."""
    opened: NewRow
    parent: str | None = None
    """The run inside whose call this one was started."""
    remit: str = ""
    """The name of the remit it belongs to."""
    session: str | None = None
    """The conversation it is a part of. It is created as the next of its runs, or not at all."""
    after: Predecessor | None = None
    """The newest run of the session, as whoever creates this one has read it; None: the session has none."""
    tags: Mapping[str, str] = {}
    artifacts: tuple[Artifact, ...] = ()
    """What its history holds and no run has kept yet."""
    brought: tuple[str, ...] = ()
    """Digests that its history names. Those that the store has are this run's too from now on; whoever
    hands a history over vouches for it."""


class NewProposal(msgspec.Struct, frozen=True):
    """Something that is asked of outsiders: a decision, a value, or the result of a call."""

    pending_id: str
    token_hash: bytes | None
    """None where it is named by its id alone."""
    arguments_hash: str
    """Hex SHA-256 of the canonical arguments that are shown."""
    expires_at: datetime
    kind: PendingKind = "approval"


class ProposalInfo(msgspec.Struct, frozen=True):
    """What is known of a proposal, whether it is open or not."""

    run_id: str
    kind: PendingKind


class Lease(msgspec.Struct):
    """The right to write to a run. Changed by an acknowledged append only."""

    run_id: str
    epoch: int
    next_seq: int
    taken: int
    """Id of the newest post that the rows account for, as it was when the lease was given."""
    inbox_max: int
    """Id of the newest post at that time: beyond `taken`, there is something to hear at once."""
    stood: RunStatus = "ready"
    """How the run stands again where the lease is given back and nothing was appended: `waiting`, if it waited."""
    found_at: float = 0.0
    """When a transaction last found it to be the run's, for stores that ask; on this process's monotonic clock."""


class Held(msgspec.Struct, frozen=True):
    """Somebody else holds the lease."""

    owner: str


class Superseded(msgspec.Struct, frozen=True):
    """The run has ended, and its session has gone on from it: it stays as it ended."""

    run_id: str
    """The run that came next."""


class NotNext(msgspec.Struct, frozen=True):
    """A new run cannot be the next of its session: the newest one is another than was read, or goes on yet."""

    newest: Predecessor | None
    """None where the session has no run any more."""
    status: RunStatus = "ended"
    """Of the newest run, and so below."""
    owner: str | None = None
    """Who executes it; None where nobody alive does."""

    @property
    def is_free(self) -> bool:
        """Nobody is at it: whoever reads what is new may go on."""
        return self.status == "ended" and self.owner is None


class Control(msgspec.Struct, frozen=True):
    """What outsiders want of the run, told with every append."""

    inbox_max: int
    """Id of the newest post; 0 where there is none."""
    status: RunStatus
    """`running` where an append that meant to wait found something in the inbox."""


class Posted(msgspec.Struct, frozen=True):
    """Something an outsider left for a run."""

    id: int
    """Grows within a run; begins at 1."""
    kind: PostKind
    body: bytes = b""


class RunInfo(msgspec.Struct, frozen=True):
    """What is known of a run without reading its rows."""

    run_id: str
    spec_hash: bytes
    status: RunStatus
    owner: str | None
    """Who holds the lease."""
    parent: str | None
    unread: bool
    """Whether something was posted that no append has taken."""
    rows: int
    """How many it has."""
    erased: bool = False
    """What it said is gone; its id stays taken."""
    lost: bool = False
    """Whoever holds the lease is gone without a word."""


class Journal(Protocol):
    """Rows, artifacts, leases, proposals and posts of all runs of one store."""

    async def create(self, run: NewRun) -> bool | NotNext:
        """Open a run with its first row. False, and nothing changed, where the id exists.

        A run of a session is the next one of it if the newest has ended, nobody holds its lease, and it is the
        one in `after`, with as many rows; the first, if there is none. Else `NotNext`, and nothing changed. What may be read
        in the newest run may be in this one, too, where both are inside no other.
        """
        ...

    async def info(self, run_id: str) -> RunInfo | None:
        """What is known of a run; None where there is none."""
        ...

    async def acquire(self, run_id: str, owner: str) -> Lease | Held | Superseded:
        """Become the writer of a run, if nobody else is and no session has gone on from it.

        Errors: `JournalError` for an unknown run.
        """
        ...

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        """The rows behind `after`, in order. Errors: `JournalError` for an unknown run."""
        ...

    async def read_back(self, run_id: str, known: Mapping[str, bytes]) -> Sequence[RunRows]:
        """The rows of a run, and of those of its session before it, newest first: a conversation, in few turns.

        `known` are the heads of runs as they were read before. Shape: at least the run itself, and as many as may
        be held at once; it ends with a run whose head is the known one, which comes without its rows.
        Errors: `JournalError` as `read`, for any of these runs.
        """
        ...

    async def append(
        self,
        lease: Lease,
        rows: Sequence[NewRow],
        *,
        status: RunStatus = "running",
        reason: str | None = None,
        proposals: Sequence[NewProposal] = (),
        taken: int = 0,
        artifacts: Sequence[Artifact] = (),
    ) -> Control:
        """Write rows, all or none, and whatever goes with them: no row names an artifact that is not there.

        `taken` is the id of the newest post that these rows account for. `reason` says why the run ends,
        where it does: `RunEntry` tells it. An append with status
        `waiting` leaves the run `running`, and says so, while posts are not taken.
        Errors: `Fenced` where the lease is no longer the run's, `JournalError` where nothing could be written.
        """
        ...

    def holds(self, lease: Lease) -> bool:
        """Whether the lease can be relied on at this very instant, by this process's own clock.

        Nothing is asked of anybody, so it is called before every body that is entered, from any thread. False
        may come too early and never too late: who was stopped for longer than a lease lasts enters nothing (J2).
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give the lease back. Never raises `Fenced`: who lost it has nothing to give back."""
        ...

    async def post(
        self,
        run_id: str,
        kind: PostKind,
        body: bytes = b"",
        *,
        artifacts: Sequence[Artifact] = (),
    ) -> bool:
        """Leave something for a run, and what it refers to. False where there is no such run."""
        ...

    async def inbox(self, run_id: str, after: int = 0) -> Sequence[Posted]:
        """What was left for a run behind `after`, in order."""
        ...

    async def artifact(self, run_id: str, digest: str) -> Artifact | None:
        """What a run may read under a digest; None where there is nothing, or it is another's.

        A run may read what was kept in its own tree of runs, from the root by the parent chain, and what the
        histories of these runs brought. `digest` is in hex; its first digits do, where there are at least
        12 and only one artifact has them.
        """
        ...

    async def artifacts(
        self, run_id: str, digests: Sequence[str], take: Callable[[Artifact], object]
    ) -> int:
        """The same for many whole digests, in their order: what a resume needs, in few turns.

        Each is given to `take`, one after the other and perhaps in another thread, and none is held: what is
        needed of it, whoever takes it keeps. Gives how many were taken: it ends before the first that is not there.
        """
        ...

    async def decide(
        self,
        *,
        token_hash: bytes | None = None,
        pending_id: str | None = None,
        arguments_hash: str | None = None,
        kind: PendingKind = "approval",
        decision: bytes,
        now: datetime,
    ) -> str:
        """Use up a proposal and leave its decision in the run's inbox, in one transaction.

        The proposal is named by the hash of its token or by its id, and is of this `kind`. What is decided of an
        approval is posted as `decision`, what is supplied for the others as `supply`. Returns the run's id.
        Errors: `DecisionError`: unknown, which one of another kind is too; used, expired, or stale:
        `arguments_hash` is not what was shown, or the run has ended.
        """
        ...

    async def proposal(self, pending_id: str) -> ProposalInfo | None:
        """What is known of a proposal; None where there is none."""
        ...

    async def renew(self, pending_id: str, token_hash: bytes) -> None:
        """Replace the token of an open approval. Errors: `DecisionError`."""
        ...

    async def withdraw(self, pending_id: str) -> bool:
        """Close a proposal without a decision and tell its run. False where it was not open."""
        ...


@runtime_checkable
class Shared(Protocol):
    """A journal that other processes write to as well: it can be asked what they left, at little cost."""

    async def unread(self) -> Mapping[str, int]:
        """The runs this process is the writer of for which there are posts that no append has taken.

        Each with the id of its newest post. Errors: `JournalError`.
        """
        ...


def wrong_kind(kind: PendingKind) -> DecisionError:
    """The error for whoever takes a proposal of this kind for one of another."""
    act = "decide" if kind == "approval" else "supply"
    return DecisionError("unknown", f"this pending is of kind {kind!r}: use {act}(...)")
