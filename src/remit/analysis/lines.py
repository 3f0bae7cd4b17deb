"""What a display of a run is made of: lines that are appended, and the status that changes.

Values only; `view` makes them out of events, `layout` makes rows out of them. Every text in them is harmless
already (`cells.visible`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from remit.analysis.cells import clip, one_line
from remit.analysis.figures import clock, count, dollars
from remit.limits import Limits

__all__ = [
    "PREVIEW_CHARS",
    "Asked",
    "Called",
    "Closing",
    "Gauge",
    "Line",
    "Mark",
    "Opening",
    "Remark",
    "Status",
    "Waiting",
    "Words",
    "call_words",
    "limit_words",
]

Mark: TypeAlias = Literal["ok", "failed", "running", "waiting", "unknown"]

PREVIEW_CHARS = 400
"""Of arguments, results and errors a line shows at most so much."""
_NAME_CELLS = 16
"""A child's name in front of its lines."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was appended to the display of a run."""

    depth: int = 0
    """How many runs are around the one that it tells of."""
    who: str = ""
    """The remit that it tells of; empty for the run that is watched."""

    @property
    def lead(self) -> str:
        """What stands before it, so that it is seen whose it is."""
        return "  " * self.depth + (clip(self.who, _NAME_CELLS) + " " if self.who else "")


class Opening(Line, frozen=True, kw_only=True):
    """A run begins."""

    run_id: str
    name: str
    model: str
    limits: str


class Words(Line, frozen=True, kw_only=True):
    """A row of what the model says."""

    label: str
    """The number of the step on its first row; empty on the others."""
    text: str
    quiet: bool = False
    """Not the model's words, but what it did without any."""


class Called(Line, frozen=True, kw_only=True):
    """A call has its result."""

    mark: Mark
    tool: str
    arguments: str
    seconds: float | None
    """None where nobody knows."""
    preview: str
    """The beginning of the result, or what became of the call."""


class Asked(Line, frozen=True, kw_only=True):
    """The run begins to wait for somebody."""

    pending_id: str
    kind: str
    tool: str
    summary: str
    arguments: str


class Remark(Line, frozen=True, kw_only=True):
    """Anything else that a person should know of."""

    mark: Mark
    text: str
    detail: bool = False
    """Of interest only to whoever asked for everything."""


class Closing(Line, frozen=True, kw_only=True):
    """The end of the run that is watched."""

    mark: Mark
    text: str


class Waiting(msgspec.Struct, frozen=True):
    """One thing that is waited for."""

    pending_id: str
    kind: str
    run_id: str
    call: str | None
    """The id of the tool use, where the event names it."""
    tool: str
    summary: str
    since: float
    """On the clock of the events."""
    effect: str = ""
    """What running the call twice would do; empty where no event tells it."""


class Gauge(msgspec.Struct, frozen=True):
    """How much of one limit is used."""

    name: str
    used: str
    allowed: str
    fraction: float


class Status(msgspec.Struct, frozen=True):
    """What is so at this moment."""

    unfinished: Words | None
    """The row that a model is writing."""
    doing: str
    waiting: str
    """What is waited for and since when; empty where nothing is."""
    gauges: tuple[Gauge, ...]
    spent: str
    """What no gauge shows: money without a limit, and how much of the prompts the cache gave."""


def call_words(arguments: object) -> str:
    """Arguments as a person reads them: `order_id=1042, amount=4.20`; what is no object as it stands."""
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return clip(one_line(str(arguments)), PREVIEW_CHARS)
    if not isinstance(arguments, Mapping):
        return clip(one_line(str(arguments)), PREVIEW_CHARS)
    pairs = cast("Mapping[str, Any]", arguments)
    shown = ", ".join(f"{name}={_value_words(value)}" for name, value in pairs.items())
    return clip(one_line(shown), PREVIEW_CHARS)


def _value_words(value: Any) -> str:
    """A simple text as it stands; anything else as JSON."""
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(' ,="'):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def limit_words(limits: Limits) -> str:
    """`12 steps, 60k tok, $0.25, 45 s`."""
    parts = [f"{limits.steps} steps", f"{count(limits.tokens)} tok"]
    if limits.usd is not None:
        parts.append(f"${dollars(limits.usd)}")
    parts.append(f"{limits.seconds:.3g} s" if limits.seconds < 100 else clock(limits.seconds))
    if limits.calls is not None:
        parts.append(f"{limits.calls} calls")
    return ", ".join(parts)
