"""Rows of a run as the events that a listener in its process would have heard.

Whoever follows a run from another process sees what was committed, and sees the same kinds with the same fields
(`docs/events.md`); pieces of text, progress and retries are in no row, so they are not told again. No row says
when it was written: `at` is the run's own active time as far as it is known, and how long a call took is None
where both its ends were read at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from remit.analysis.story import Called, Story
from remit.events import Event, EventKind
from remit.messages import Text
from remit.preview import masking, preview, preview_of
from remit.rows import (
    Activated,
    Charged,
    Elided,
    Ended,
    Granted,
    HandedOut,
    Late,
    Opened,
    Parked,
    Proposed,
    Questioned,
    Replied,
    Row,
    Settled,
    Started,
    Supplied,
)

__all__ = ["Retelling"]


class Retelling:
    """One run, told again."""

    def __init__(self, run_id: str) -> None:
        self.story = Story(run_id)
        self._since: dict[str, float] = {}
        """When each open call was asked for, approved or entered, on the clock of whoever follows."""

    def take(self, row: Row, now: float | None = None) -> tuple[Event, ...]:
        """Take in the next row. `now` is when it was read, where it was read as it was written.

        Errors: `JournalError` for a row that has no place here.
        """
        self.story.apply(row)
        return tuple(self._event(kind, fields) for kind, fields in self._told(row, now))

    def _event(self, kind: EventKind, fields: Mapping[str, Any]) -> Event:
        state = self.story.state
        return Event(kind, state.run_id, state.opened.path, round(state.seconds, 6), fields)

    def _told(  # noqa: C901 - a table: what each kind of row tells
        self, row: Row, now: float | None
    ) -> Iterator[tuple[EventKind, Mapping[str, Any]]]:
        match row:
            case Opened() | Activated():
                yield "run_started", self._begins()
                if isinstance(row, Activated) and row.changed:
                    told = {what: list(names) for what, names in row.changed.items()}
                    yield "surroundings_changed", told
            case Replied():
                yield "replied", _reply(row)
                if row.invalid is not None:
                    yield "output_invalid", {"error": preview(row.invalid)}
                self._mark([call.use.id for call in self.story.steps[-1].calls], now)
            case Charged():
                yield "charged", _charge(row)
            case Started():
                self._mark([row.tool_use_id], now)
                call = self._call(row.tool_use_id)
                yield "call_started", {**_named(call), "arguments": preview(_arguments(call))}
            case Settled():
                yield "call_settled", self._settled(row, now)
            case Proposed() | Questioned() | HandedOut():
                yield "pending", self._pending(row)
            case Granted():
                call = self._call(row.tool_use_id)
                yield (
                    "granted",
                    {
                        "grant": row.grant_id,
                        "by": row.by,
                        "call": call.use.id,
                        "tool": call.use.name,
                        "key": call.state.key,
                    },
                )
            case Supplied():
                yield "supplied", self._supplied(row)
            case Elided():
                results = len({stub.tool_use_id for stub in row.results})
                yield "prefix_break", {"cause": row.cause, "results": results}
            case Late():
                yield "late_outcome", {"key": row.key, "status": row.status.value}
            case Ended():
                yield "run_ended", self._ends(row.reason, row.whose, row.error)
            case Parked():
                yield "run_ended", self._ends("waiting", None, None)
            case _:
                pass

    def _begins(self) -> dict[str, Any]:
        state = self.story.state
        return {
            "name": state.opened.remit,
            "limits": state.limits.to_json(),
            "steps": state.steps,
        }

    def _settled(self, row: Settled, now: float | None) -> dict[str, Any]:
        call, since = self._call(row.tool_use_id), self._since.pop(row.tool_use_id, None)
        withheld = call.shown("") != ""
        shown = (Text(call.shown("")),) if withheld else row.content
        return {
            **_named(call),
            "status": row.status.value,
            "seconds": None if now is None or since is None else round(now - since, 6),
            "arguments": preview(_arguments(call)),
            "preview": preview_of(shown, hide=call.hidden),
        }

    def _pending(self, row: Proposed | Questioned | HandedOut) -> dict[str, Any]:
        call = self._call(row.tool_use_id)
        summary = row.shown or row.question if isinstance(row, Questioned) else row.summary
        return {
            "wants": row.wants,
            "id": row.pending_id,
            "call": call.use.id,
            "tool": call.use.name,
            "effect": call.asked.effect,
            "key": call.state.key,
            "arguments": preview(_arguments(call)),
            "summary": masking(summary, call.hidden),
        }

    def _supplied(self, row: Supplied) -> dict[str, Any]:
        named, wants = {"call": None, "tool": "", "key": None}, "input"
        for call in self.story.steps[-1].calls if self.story.steps else ():
            state = call.state
            if state.supplied is row or any(answer is row for _, answer in state.answers):
                named = {"call": call.use.id, "tool": call.use.name, "key": state.key}
                wants = "result" if state.supplied is row else "input"
        return {
            "wants": wants,
            "id": row.pending_id,
            **named,
            "by": row.by,
            "is_error": row.is_error,
        }

    def _ends(self, reason: str, whose: str | None, error: str | None) -> dict[str, Any]:
        state = self.story.state
        spent = {"own": state.own, "tree": state.tree}
        return {
            "reason": reason,
            "whose": whose,
            "error": error,
            "spend": {
                name: msgspec.structs.replace(totals, seconds=state.seconds).to_json()
                for name, totals in spent.items()
            },
        }

    def _call(self, tool_use_id: str) -> Called:
        found = self.story.call(tool_use_id)
        if found is None:
            raise AssertionError("the state has taken a row about a call that nobody asked for")
        return found

    def _mark(self, tool_use_ids: list[str], now: float | None) -> None:
        for each in tool_use_ids:
            if now is None:
                self._since.pop(each, None)
            else:
                self._since[each] = now


def _named(call: Called) -> dict[str, Any]:
    return {"id": call.use.id, "tool": call.use.name, "key": call.state.key}


def _arguments(call: Called) -> str:
    """Those that count, as people may see them."""
    return call.edit or call.arguments


def _reply(row: Replied) -> dict[str, Any]:
    message = row.message
    return {
        "stop_reason": row.stop_reason.value,
        "usage": row.usage.to_json(),
        "usd": str(row.usd),
        "estimated": row.estimated,
        "text": "" if message is None else message.text,
        "tools": [] if message is None else [use.name for use in message.tool_uses],
        "closing": row.closing,
        "whole": row.whole,
        "seconds": row.latency,
    }


def _charge(row: Charged) -> dict[str, Any]:
    return {
        "usage": row.usage.to_json(),
        "usd": str(row.usd),
        "estimated": row.estimated,
        "calls": row.calls,
        "tokens": row.tokens,
    }
