"""Every exception of remit, drawn as a tree by whose fault it is.

    RemitError
    ├── ConfigurationError       your call was wrong; nothing was sent
    ├── TranscriptError          this side tried to write a history that the protocol forbids
    ├── ModelError               the model's side failed
    │   ├── ModelProtocolError     it sent something that the protocol forbids
    │   ├── ModelUnavailable       worth another try
    │   └── ModelRejected          the same request will fail again
    │       └── ContextExceeded      the prompt is longer than the model's window
    ├── ToolError                raised on purpose by a tool's author; becomes a result
    ├── PutOff                   raised on purpose by who was asked; the question stays open
    ├── JournalError             the record could not be written, read or matched
    │   └── Fenced                 another owner has the run
    ├── RunBusy, SessionBusy     someone else is at it
    ├── DecisionError            an unknown, used, expired or stale decision
    └── Unfinished               only from asking an `Outcome` to raise

What the model can act on is no exception but a `ToolResult`; how a run ended is no exception but
`Outcome.reason`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from remit.messages import Usage
    from remit.outcome import Outcome

__all__ = [
    "ConfigurationError",
    "ContextExceeded",
    "DecisionError",
    "Fenced",
    "JournalError",
    "ModelError",
    "ModelProtocolError",
    "ModelRejected",
    "ModelUnavailable",
    "PutOff",
    "RemitError",
    "RunBusy",
    "SessionBusy",
    "ToolError",
    "TranscriptError",
    "Unfinished",
]


class RemitError(Exception):
    """The root: everything that remit raises on purpose."""


class ConfigurationError(RemitError):
    """Your call was wrong. Raised before anything is sent; the text says what to change."""


class TranscriptError(RemitError):
    """This side tried to write a history that the protocol forbids."""


class ModelError(RemitError):
    """The model's side failed.

    `usage` is what the attempt was billed as far as is known: None when nothing was reported (the
    loop then charges an estimate and marks it), `Usage()` when nothing can have been billed.
    """

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.usage = usage


class ModelProtocolError(ModelError):
    """The model sent something that the protocol forbids, such as a stream without its end."""


class ModelUnavailable(ModelError):
    """Worth another try, after `retry_after` seconds where the provider said so."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, usage: Usage | None = None
    ) -> None:
        super().__init__(message, usage=usage)
        self.retry_after = retry_after


class ModelRejected(ModelError):
    """The same request will fail again: a wrong key, an unknown model, a refused body."""


class ContextExceeded(ModelRejected):
    """The prompt is longer than the model's window: a shorter one may pass."""


class ToolError(RemitError):
    """Raise it in a tool to tell the model why the call failed. It never leaves `run` and is never retried."""


class PutOff(RemitError):
    """Raise it in a `confirm` or `answer` callback to leave the question open: nobody failed, the run waits."""


class JournalError(RemitError):
    """The record could not be written, read or matched on replay."""


class Fenced(JournalError):
    """Another owner has the run; this one may not write another word."""


class RunBusy(RemitError):
    """The run is executed elsewhere."""

    def __init__(self, run_id: str, owner: str) -> None:
        super().__init__(
            f"run {run_id!r} is executed by {owner}; wait for it, or attach with run(run_id=...)"
        )
        self.run_id = run_id
        self.owner = owner


class SessionBusy(RemitError):
    """Another run holds the session: a conversation has one writer at a time."""

    def __init__(
        self,
        session: str,
        run_id: str,
        *,
        owner: str | None = None,
        waits: bool = False,
        pendings: tuple[str, ...] = (),
    ) -> None:
        """`owner` executes the run; None: nobody does. `waits`: it waits for somebody, `pendings` are the ids of what."""
        super().__init__(
            f"session {session!r} is held by run {run_id!r}, which "
            f"{_what_holds_it(owner, waits=waits, pendings=pendings)}"
        )
        self.session = session
        self.run_id = run_id
        self.owner = owner
        self.status: Literal["running", "waiting", "broken_off"] = (
            "running" if owner is not None else "waiting" if waits else "broken_off"
        )
        """`broken_off`: whoever executed it detached or died, and nobody has gone on with it yet."""
        self.pendings = pendings


def _what_holds_it(owner: str | None, *, waits: bool, pendings: tuple[str, ...]) -> str:
    if owner is not None:
        return (
            f"is executed by {owner}: try again later, or say how long to wait with session_wait="
        )
    if waits:
        return f"waits for {', '.join(pendings) or 'somebody'}: decide that and resume the run, or cancel it"
    return "nobody executes: resume it, or cancel it"


class DecisionError(RemitError):
    """A decision that cannot count."""

    def __init__(self, why: Literal["unknown", "used", "expired", "stale"], detail: str) -> None:
        super().__init__(detail)
        self.why = why


class Unfinished(RemitError):
    """The run did not complete; `outcome` holds everything it did."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        super().__init__(f"run {outcome.run_id!r} ended with {outcome.reason.value}")
        self.outcome = outcome
