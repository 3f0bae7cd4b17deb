"""One run of a tree as a person follows it: its words, row by row, and its calls.

`view` holds a strand for the watched run and for each run inside a call of it. Words are kept back until their
row is complete, calls that end while the model is still writing until its reply is: so that what is appended
reads in the order in which it was said and done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from remit.analysis.cells import cells, clip, one_line, visible, wrap
from remit.analysis.figures import percent
from remit.analysis.lines import PREVIEW_CHARS, Called, Line, Mark, Remark, Words, call_words

__all__ = ["Phase", "Strand"]

Phase: TypeAlias = Literal["asking", "writing", "calling", "retrying", "over"]
Fields: TypeAlias = Mapping[str, Any]
LineT = TypeVar("LineT", bound=Line)

_LEAST_ROOM = 8
"""Cells that words have on a row, however narrow the window is."""
_RUNNABLE = frozenset({"tool_use", "end_turn"})
"""Stop reasons whose calls run (`state.RUNNABLE`)."""
_MARKS: Mapping[str, Mark] = {"ok": "ok", "error": "failed", "refused": "failed"}
_SAID_OF: Mapping[str, str] = {
    "refused": "refused",
    "not_started": "not run",
    "unknown": "outcome unknown",
}


class Flight(msgspec.Struct):
    """A call on its way."""

    tool: str
    arguments: str
    since: float
    progress: str = ""


class Strand:
    """One run of the tree."""

    def __init__(self, run_id: str, *, depth: int, who: str, now: float) -> None:
        self.run_id = run_id
        self.depth = depth
        self.who = who
        self.steps = 0
        """Replies so far that count as steps."""
        self.phase: Phase = "asking"
        self.since = now
        """When the phase began."""
        self.calls: dict[str, Flight] = {}
        """Those that are being executed, by the id of their tool use."""
        self.last_words = ""
        self._unfinished = ""
        """The end of what was written, which is no whole row yet."""
        self._blank = 0
        """Empty rows that are shown once something follows."""
        self._streamed: list[str] = []
        """The pieces of the reply that is being written."""
        self._labelled = False
        """Whether the current reply has its label."""
        self._held: list[Line] = []
        """Lines of calls that ended before their reply did."""
        self._unsettled = 0
        """Calls of the newest reply without a result; below zero while they outrun the reply."""

    def of(self, line: type[LineT], **fields: Any) -> LineT:
        """A line that tells of this run."""
        return line(depth=self.depth, who=self.who, **fields)

    def turn(self, phase: Phase, now: float) -> None:
        if self.phase != phase:
            self.phase, self.since = phase, now

    @property
    def writing(self) -> Words | None:
        """The row that the model is writing."""
        if self.phase != "writing" or not self._unfinished.strip():
            return None
        return self.of(Words, label=self._label, text=visible(self._unfinished))

    def taken_up(self, unsettled: int, now: float) -> None:
        """An activation begins; so many calls of the newest step have no result yet."""
        self._unsettled = unsettled
        self.turn("calling" if unsettled else "asking", now)

    # Words

    @property
    def _label(self) -> str:
        return "" if self._labelled else str(self.steps + 1)

    def text(self, text: str, now: float, *, columns: int | None) -> list[Line]:
        """A piece of what the model says. Gives the rows that are complete now."""
        self.turn("writing", now)
        self._streamed.append(text)
        *whole, self._unfinished = (self._unfinished + text).split("\n")
        lines = [line for row in whole for line in self._rows(row, columns)]
        room = self._room(columns)
        if room is not None and cells(shown := visible(self._unfinished)) > room:
            *rows, self._unfinished = wrap(shown, room)
            lines += [line for row in rows for line in self._row(row)]
        return lines

    def _room(self, columns: int | None) -> int | None:
        """Cells for the words of a row, behind what stands before them."""
        if columns is None:
            return None
        lead = cells(self.of(Line).lead) + len(self._label or "|") + 1
        return max(_LEAST_ROOM, columns - lead)

    def _rows(self, text: str, columns: int | None) -> Iterable[Line]:
        """One line of text."""
        text = visible(text.removesuffix("\r")).rstrip()
        room = self._room(columns)
        for row in [text] if room is None else wrap(text, room):
            yield from self._row(row)

    def _row(self, row: str) -> Iterable[Line]:
        if not row.strip():
            self._blank += self._labelled  # what stands before the first word says nothing
            return
        for _ in range(self._blank):
            yield self.of(Words, label="", text="")
        self._blank = 0
        label, self._labelled = self._label, True
        yield self.of(Words, label=label, text=row)

    def flush(self, *, columns: int | None) -> list[Line]:
        """What the model had begun to write, as it stands."""
        text, self._unfinished = self._unfinished, ""
        lines = list(self._rows(text, columns)) if text.strip() else []
        self._blank = 0
        return lines

    def replied(self, fields: Fields, now: float, *, columns: int | None) -> list[Line]:
        """The reply is there: what of it was not shown yet, and the calls that did not wait for it."""
        text = str(fields.get("text") or "")
        tools = [one_line(str(tool)) for tool in fields.get("tools") or ()]
        closing = bool(fields.get("closing"))
        lines = self._rest_of(text, now, columns=columns)
        self.last_words = text or self.last_words
        if tools and not self._labelled:
            words = f"calls {_listed(tools)}"
            lines.append(self.of(Words, label=self._label, text=words, quiet=True))
        if closing:
            words = "this was the closing call: a limit is reached"
            lines.append(self.of(Remark, mark="ok", text=words))
        elif fields.get("whole") is False:
            lines.append(self.of(Remark, mark="failed", text="the reply was cut off here"))
        self.steps += not closing and bool(text or tools)
        runs = not closing and fields.get("stop_reason") in _RUNNABLE
        # The calls of a reply that was cut are answered without another event.
        self._unsettled = min(self._unsettled, 0) + len(tools) if runs else 0
        self._begin_reply()
        self.phase, self.since = "calling" if self._unsettled > 0 else "asking", now
        lines += self._released()
        if not runs:
            self.calls.clear()
        return lines

    def _rest_of(self, text: str, now: float, *, columns: int | None) -> list[Line]:
        """What of a reply was not shown while it was written."""
        streamed = "".join(self._streamed)
        if text.startswith(streamed):
            rest = text[len(streamed) :]
            return [
                *(self.text(rest, now, columns=columns) if rest else ()),
                *self.flush(columns=columns),
            ]
        lines = self.flush(columns=columns)
        if "".join(text.split()) in "".join(streamed.split()):
            return lines  # blank blocks were dropped, or a block that was cut
        lines.append(self.of(Remark, mark="unknown", text="parts of this are missing; the whole:"))
        self._begin_reply()
        lines += self.text(text, now, columns=columns)
        return [*lines, *self.flush(columns=columns)]

    def _begin_reply(self) -> None:
        self._streamed.clear()
        self._labelled = False

    def _released(self) -> list[Line]:
        held, self._held = self._held, []
        return held

    def retry(self, fields: Fields, now: float, *, columns: int | None) -> list[Line]:
        """The reply failed in its middle, and goes with what was begun for it."""
        lines = self.flush(columns=columns)
        dropped = "; what stands above is dropped" if self._streamed else ""
        self._begin_reply()
        self._held.clear()
        self.calls.clear()
        self._unsettled = 0
        self.turn("retrying", now)
        why = clip(one_line(str(fields.get("error", ""))), PREVIEW_CHARS)
        words = f"the model failed: {why}{dropped}; asked again in {fields.get('after') or 0:.1f} s"
        return [*lines, self.of(Remark, mark="running", text=words)]

    def end(self, now: float, *, columns: int | None) -> list[Line]:
        """The run has ended."""
        self.calls.clear()
        self.turn("over", now)
        return [*self.flush(columns=columns), *self._released()]

    # Calls

    def call_started(self, use: str, tool: str, fields: Fields, now: float) -> None:
        self.calls[use] = Flight(tool, call_words(fields.get("arguments")), now)

    def forget(self, fields: Fields) -> None:
        """Reads that began early came to nothing."""
        for use in fields.get("ids") or ():
            self.calls.pop(str(use), None)

    def progress(self, fields: Fields) -> None:
        """A tool told how far it is."""
        flight = self.calls.get(str(fields.get("id")))
        if flight is None:
            return
        fraction = fields.get("fraction")
        parts = [percent(fraction, 1)] if isinstance(fraction, int | float) else []
        message = one_line(str(fields.get("message") or ""))
        flight.progress = " ".join([*parts, *([message] if message else [])])

    def call_settled(self, use: str, tool: str, fields: Fields, now: float) -> list[Line]:
        """A call has its result."""
        flight = self.calls.pop(use, None)
        status = str(fields.get("status"))
        line = self.of(
            Called,
            mark=_MARKS.get(status, "unknown"),
            tool=tool,
            arguments=flight.arguments if flight else call_words(fields.get("arguments")),
            seconds=_took(flight, fields, now),
            preview=_outcome_words(status, fields.get("preview")),
        )
        self._unsettled -= 1
        if self.phase == "writing" or self._unsettled < 0:
            self._held.append(line)
            return []
        if self._unsettled == 0:
            self.turn("asking", now)
        return [line]


def _took(flight: Flight | None, fields: Fields, now: float) -> float | None:
    """How long a call took. What is read from a journal shows no time between its rows."""
    if flight is not None and now > flight.since:
        return now - flight.since
    told = fields.get("seconds")
    return None if told is None else float(told)


def _listed(tools: list[str]) -> str:
    """`a`, `a, b x3`."""
    counts = {name: tools.count(name) for name in dict.fromkeys(tools)}
    return ", ".join(name if n == 1 else f"{name} x{n}" for name, n in counts.items())


def _outcome_words(status: str, preview: object) -> str:
    """What became of a call: its result, and a word where that is no result."""
    words = clip(one_line(str(preview)), PREVIEW_CHARS) if preview else ""
    said = _SAID_OF.get(status, "failed" if status == "error" and not words else "")
    return f"{said}: {words}" if said and words else said or words
