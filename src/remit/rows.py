"""The rows of a run's journal: everything that happened, in the order in which it counted.

Each row is a frozen value with a `kind` and a JSON form. `encode_row` and `decode_row` are the only
ways between a row and its bytes. What a row *means* is written in `state.py`, which replays them; where
rows are kept is the business of `store/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

from remit.budget import ZERO, Amount, Bill, Limits, Totals
from remit.canonical import decode, encode
from remit.errors import JournalError
from remit.messages import (
    Media,
    Message,
    ResultContent,
    Status,
    StopReason,
    Text,
    Usage,
    block_from_json,
)
from remit.schedule import Footprint

__all__ = [
    "Activated",
    "Asked",
    "Awaits",
    "Charged",
    "Decided",
    "Ended",
    "Failed",
    "Late",
    "Noted",
    "Opened",
    "Parked",
    "Proposed",
    "Replied",
    "Row",
    "Said",
    "Settled",
    "Started",
    "Vetoed",
    "Withdrawn",
    "content_from_json",
    "decode_row",
    "encode_row",
]


UNTOUCHED = Footprint(writes=False, resources=())


@dataclass(frozen=True, slots=True)
class Opened:
    """The run was asked for. Always the first row."""

    kind: ClassVar[str] = "opened"
    remit: str
    prompt: tuple[ResultContent, ...]
    history: list[dict[str, Any]]
    """The transcript it goes on from, in the form of `Transcript.to_json`."""
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

    def to_json(self) -> dict[str, Any]:
        return {
            "remit": self.remit,
            "prompt": [block.to_json() for block in self.prompt],
            "history": self.history,
            "limits": self.limits.to_json(),
            "instructions": self.instructions,
            "path": list(self.path),
            "tags": dict(self.tags),
            "at": self.at,
            "caller": self.caller,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Opened:
        return cls(
            remit=value["remit"],
            prompt=content_from_json(value["prompt"]),
            history=value["history"],
            limits=Limits.from_json(value["limits"]),
            instructions=value["instructions"],
            path=tuple(value["path"]),
            tags=value["tags"],
            at=value["at"],
            caller=value["caller"],
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of a reply: asked for, not yet anything else."""

    key: str | None
    """None where no call came about: an unknown tool, arguments that do not fit."""
    repeats: bool = False
    """The key is an earlier call's, whose outcome is unknown."""
    footprint: Footprint = UNTOUCHED
    """What the call touches; the order of a turn follows from it, also after a resume."""

    def to_json(self) -> list[Any]:
        resources = self.footprint.resources
        return [
            self.key,
            self.repeats,
            self.footprint.writes,
            None if resources is None else list(resources),
        ]

    @classmethod
    def from_json(cls, value: list[Any]) -> Asked:
        key, repeats, writes, resources = value
        return cls(key, repeats, Footprint(writes, None if resources is None else tuple(resources)))


@dataclass(frozen=True, slots=True)
class Replied:
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

    def to_json(self) -> dict[str, Any]:
        return {
            "message": None if self.message is None else self.message.to_json(),
            "stop_reason": self.stop_reason.value,
            "usage": self.usage.to_json(),
            "usd": str(self.usd),
            "estimated": self.estimated,
            "asked": [call.to_json() for call in self.asked],
            "closing": self.closing,
            "whole": self.whole,
            "seconds": round(self.seconds, 6),
            "latency": round(self.latency, 6),
            "overshoot": None if self.overshoot is ZERO else self.overshoot.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Replied:
        message, overshoot = value["message"], value["overshoot"]
        return cls(
            message=None if message is None else Message.from_json(message),
            stop_reason=StopReason(value["stop_reason"]),
            usage=Usage(**value["usage"]),
            usd=Decimal(value["usd"]),
            estimated=value["estimated"],
            asked=tuple(Asked.from_json(call) for call in value["asked"]),
            closing=value["closing"],
            whole=value["whole"],
            seconds=float(value["seconds"]),
            latency=float(value["latency"]),
            overshoot=ZERO if overshoot is None else Amount.from_json(overshoot),
        )


@dataclass(frozen=True, slots=True)
class Started:
    """A body is about to be entered. Durable before it is, for everything but a read."""

    kind: ClassVar[str] = "started"
    tool_use_id: str
    computed: Mapping[str, Any]
    """What the host filled in, without secrets."""
    usd: Decimal = Decimal(0)
    """What its tool declares that a call costs, and so below."""
    tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "tool_use_id": self.tool_use_id,
            "computed": dict(self.computed),
            "usd": str(self.usd),
            "tokens": self.tokens,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Started:
        return cls(value["tool_use_id"], value["computed"], Decimal(value["usd"]), value["tokens"])


@dataclass(frozen=True, slots=True)
class Settled:
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

    def to_json(self) -> dict[str, Any]:
        return {
            "tool_use_id": self.tool_use_id,
            "content": [block.to_json() for block in self.content],
            "is_error": self.is_error,
            "status": self.status.value,
            "spent": None if self.spent is None else self.spent.to_json(),
            "children": None if self.children is None else self.children.to_json(),
            "denied": self.denied,
            "memo": self.memo,
            "polling": self.polling,
            "overshoot": None if self.overshoot is ZERO else self.overshoot.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Settled:
        spent, children, overshoot = value["spent"], value["children"], value["overshoot"]
        return cls(
            tool_use_id=value["tool_use_id"],
            content=content_from_json(value["content"]),
            is_error=value["is_error"],
            status=Status(value["status"]),
            spent=None if spent is None else Totals.from_json(spent),
            children=None if children is None else Bill.from_json(children),
            denied=value["denied"],
            memo=value["memo"],
            polling=value["polling"],
            overshoot=ZERO if overshoot is None else Amount.from_json(overshoot),
        )


@dataclass(frozen=True, slots=True)
class Proposed:
    """A call waits for a decision. A later proposal of the same call replaces this one."""

    kind: ClassVar[str] = "proposed"
    tool_use_id: str
    pending_id: str
    summary: str
    arguments: str
    """Canonical JSON of what would run."""
    expires_at: str
    """UTC, ISO 8601."""
    wanted_by: str
    """What asked for the approval: `effect`, or `policy:` and its words."""

    def to_json(self) -> dict[str, Any]:
        return {
            "tool_use_id": self.tool_use_id,
            "pending_id": self.pending_id,
            "summary": self.summary,
            "arguments": self.arguments,
            "expires_at": self.expires_at,
            "wanted_by": self.wanted_by,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Proposed:
        return cls(**value)


@dataclass(frozen=True, slots=True)
class Awaits:
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

    def to_json(self) -> dict[str, Any]:
        return {
            "tool_use_id": self.tool_use_id,
            "run_id": self.run_id,
            "children": self.children.to_json(),
            "spent": self.spent.to_json(),
            "overshoot": None if self.overshoot is ZERO else self.overshoot.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Awaits:
        overshoot = value["overshoot"]
        return cls(
            value["tool_use_id"],
            value["run_id"],
            Bill.from_json(value["children"]),
            Totals.from_json(value["spent"]),
            ZERO if overshoot is None else Amount.from_json(overshoot),
        )


@dataclass(frozen=True, slots=True)
class Decided:
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

    def to_json(self) -> dict[str, Any]:
        return {
            "pending_id": self.pending_id,
            "approve": self.approve,
            "by": self.by,
            "note": self.note,
            "edit": self.edit,
            "key": self.key,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Decided:
        return cls(**value)


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A pending is no longer open to decision: the conversation went on without it."""

    kind: ClassVar[str] = "withdrawn"
    pending_id: str

    def to_json(self) -> dict[str, Any]:
        return {"pending_id": self.pending_id}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Withdrawn:
        return cls(value["pending_id"])


@dataclass(frozen=True, slots=True)
class Noted:
    """The harness tells the model something."""

    kind: ClassVar[str] = "noted"
    source: str
    """Who says it, such as `budget:25`, `stall`, `cut`, `closing`, `notes:0`."""
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "text": self.text}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Noted:
        return cls(value["source"], value["text"])


@dataclass(frozen=True, slots=True)
class Said:
    """Input that arrived while the run was at work, now in its place."""

    kind: ClassVar[str] = "said"
    content: tuple[ResultContent, ...]

    def to_json(self) -> dict[str, Any]:
        return {"content": [block.to_json() for block in self.content]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Said:
        return cls(content_from_json(value["content"]))


@dataclass(frozen=True, slots=True)
class Charged:
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

    def to_json(self) -> dict[str, Any]:
        return {
            "usage": self.usage.to_json(),
            "usd": str(self.usd),
            "estimated": self.estimated,
            "calls": self.calls,
            "tokens": self.tokens,
            "children": None if self.children is None else self.children.to_json(),
            "overshoot": None if self.overshoot is ZERO else self.overshoot.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Charged:
        children, overshoot = value["children"], value["overshoot"]
        return cls(
            usage=Usage(**value["usage"]),
            usd=Decimal(value["usd"]),
            estimated=value["estimated"],
            calls=value["calls"],
            tokens=value["tokens"],
            children=None if children is None else Bill.from_json(children),
            overshoot=ZERO if overshoot is None else Amount.from_json(overshoot),
        )


@dataclass(frozen=True, slots=True)
class Failed:
    """The model could not be asked, for good."""

    kind: ClassVar[str] = "failed"
    error: str

    def to_json(self) -> dict[str, Any]:
        return {"error": self.error}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Failed:
        return cls(value["error"])


@dataclass(frozen=True, slots=True)
class Vetoed:
    """A guard said no."""

    kind: ClassVar[str] = "vetoed"
    why: str

    def to_json(self) -> dict[str, Any]:
        return {"why": self.why}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Vetoed:
        return cls(value["why"])


@dataclass(frozen=True, slots=True)
class Late:
    """The outcome of a call that had already been answered; never sent, kept for repeats."""

    kind: ClassVar[str] = "late"
    key: str
    content: tuple[ResultContent, ...]
    is_error: bool
    status: Status

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "content": [block.to_json() for block in self.content],
            "is_error": self.is_error,
            "status": self.status.value,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Late:
        return cls(
            value["key"],
            content_from_json(value["content"]),
            value["is_error"],
            Status(value["status"]),
        )


@dataclass(frozen=True, slots=True)
class Parked:
    """The run waits for somebody, and its clock with it."""

    kind: ClassVar[str] = "parked"
    seconds: float
    """Active seconds of the run so far."""

    def to_json(self) -> dict[str, Any]:
        return {"seconds": round(self.seconds, 6)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Parked:
        return cls(float(value["seconds"]))


@dataclass(frozen=True, slots=True)
class Activated:
    """The run is taken up again."""

    kind: ClassVar[str] = "activated"
    limits: Limits
    at: str
    """UTC, ISO 8601."""

    def to_json(self) -> dict[str, Any]:
        return {"limits": self.limits.to_json(), "at": self.at}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Activated:
        return cls(Limits.from_json(value["limits"]), value["at"])


@dataclass(frozen=True, slots=True)
class Ended:
    """The run ended. A row `activated` may follow."""

    kind: ClassVar[str] = "ended"
    reason: str
    whose: str | None
    error: str | None
    seconds: float
    at: str = field(default="")

    def to_json(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "whose": self.whose,
            "error": self.error,
            "seconds": round(self.seconds, 6),
            "at": self.at,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ended:
        return cls(
            value["reason"], value["whose"], value["error"], float(value["seconds"]), value["at"]
        )


Row: TypeAlias = (
    Opened
    | Replied
    | Started
    | Settled
    | Proposed
    | Awaits
    | Decided
    | Withdrawn
    | Noted
    | Said
    | Charged
    | Failed
    | Vetoed
    | Late
    | Parked
    | Activated
    | Ended
)

_READERS: dict[str, Callable[[Mapping[str, Any]], Row]] = {
    row.kind: row.from_json
    for row in (
        Opened,
        Replied,
        Started,
        Settled,
        Proposed,
        Awaits,
        Decided,
        Withdrawn,
        Noted,
        Said,
        Charged,
        Failed,
        Vetoed,
        Late,
        Parked,
        Activated,
        Ended,
    )
}


def encode_row(row: Row) -> bytes:
    """The bytes of a row: compact UTF-8 JSON of its fields. The kind stands beside it in the store."""
    return encode(row.to_json())


def decode_row(kind: str, body: bytes) -> Row:
    """Read a row back. Errors: `JournalError` for an unknown kind or a body that is no such row."""
    reader = _READERS.get(kind)
    if reader is None:
        raise JournalError(f"the journal holds a row of unknown kind {kind!r}")
    try:
        return reader(decode(body))
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"a row of kind {kind!r} cannot be read: {error}") from error


def content_from_json(blocks: Iterable[Mapping[str, Any]]) -> tuple[ResultContent, ...]:
    """Read text and media blocks. Errors: `KeyError`, `TypeError` or `ValueError`."""
    content = tuple(block_from_json(block) for block in blocks)
    for block in content:
        if not isinstance(block, Text | Media):
            raise TypeError(f"a {type(block).__name__} block has no place here")
    return content  # type: ignore[return-value]
