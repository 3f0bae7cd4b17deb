"""How a run ended: a value that knows everything it did.

Nothing is raised for a limit, a refusal or a failure; whoever wants an exception asks for one with
`raise_for_reason`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic

from typing_extensions import TypeVar

from remit.amounts import Spend
from remit.errors import Unfinished
from remit.pending import Pending
from remit.preview import preview
from remit.transcript import Transcript

__all__ = ["Outcome", "Reason"]

Out_co = TypeVar("Out_co", default=str, covariant=True)


class Reason(StrEnum):
    """Why a run ended. Stable strings; everything but `COMPLETED` says that the task is not done."""

    COMPLETED = "completed"
    STEP_BUDGET = "step_budget"
    TOKEN_BUDGET = "token_budget"
    COST_BUDGET = "cost_budget"
    CALL_BUDGET = "call_budget"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    WAITING = "waiting"
    VETOED = "vetoed"
    REFUSED = "refused"
    OUTPUT_TRUNCATED = "output_truncated"
    CONTEXT_FULL = "context_full"
    STALLED = "stalled"
    INVALID_OUTPUT = "invalid_output"
    EMPTY_REPLY = "empty_reply"
    UNKNOWN_STOP = "unknown_stop"
    MODEL_FAILED = "model_failed"
    JOURNAL_FAILED = "journal_failed"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Out_co]):
    """What became of a run."""

    run_id: str
    reason: Reason
    whose: str | None
    """The account that ran out, by the name of its remit; None where no limit ended the run."""
    text: str
    """What the model said last: the answer, or as far as it came. Where it said nothing, what was handed in."""
    output: Out_co | None
    """The typed output; the text where no type was asked for. None unless the run completed, and where something
    else than its output ended a run that was to hand in a typed one (`ends_run`, `stop_when`)."""
    transcript: Transcript
    """Valid at once. For a waiting run it is a closed view that no model has seen."""
    spend: Spend
    pending: tuple[Pending, ...]
    """What a waiting run waits for, children's included; else empty."""
    error: str | None
    """What went wrong, in words; None where nothing did."""
    steps: int
    """Model replies of this run that count as steps."""
    prefix_breaks: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often what was sent was changed after all, so that the cached prefix was lost, by cause; `elision`:
    old results gave way to notes and handles; `media`: another model went on, which does not read what they held."""

    session: str | None = None
    """The conversation that the run is a part of."""

    def __repr__(self) -> str:
        said = f": {preview(self.text)}" if self.text.strip() else ""
        return f"<Outcome {self.run_id} {self.reason.value}{said}>"

    def __str__(self) -> str:
        """How it ended, what it cost, what it waits for and what it said, in a few lines."""
        from remit.notebook import outcome_text  # for people, and so for few runs

        return outcome_text(self)

    def _repr_html_(self) -> str:
        """The same in a notebook, with the transcript. Everything in it is escaped and bounded."""
        from remit.notebook import outcome_html  # the same

        return outcome_html(self)

    @property
    def completed(self) -> bool:
        return self.reason is Reason.COMPLETED

    def raise_for_reason(self) -> Outcome[Out_co]:
        """Return self if completed. Errors: `Unfinished`, which carries this outcome."""
        if not self.completed:
            raise Unfinished(self)
        return self
