"""A run as a person follows it: a pure fold of its events.

`RunView` answers four questions: what is it doing now, what does it wait for and since when, what has it used
of what it may, why did it end. `apply` takes one event and gives the lines that it completes; a line once
given never changes, so a display only ever appends. `status` is what does change.

There is no terminal here and no clock: times are those of the events and of whoever asks. Texts are made
harmless when they enter (`cells.visible`), so every display shows the same and none can be painted on. What
the model says stands behind a label of the view's own on every row, so it can look like nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from remit.analysis.cells import clip, one_line, visible
from remit.analysis.figures import clock, count, dollars, percent
from remit.analysis.lines import (
    PREVIEW_CHARS,
    Asked,
    Gauge,
    Line,
    Mark,
    Remark,
    Status,
    Waiting,
    call_words,
)
from remit.analysis.strand import Phase, Strand
from remit.canonical import tool_in_key
from remit.events import Event
from remit.limits import Limits

__all__ = ["RunView"]

_DOING: Mapping[Phase, str] = {
    "asking": "asking the model",
    "writing": "the model is writing",
    "calling": "calls are prepared",
    "retrying": "the model is asked again",
    "over": "ending",
}


class RunView:
    """What is known of a run from its events."""

    def __init__(self, limits: Limits | None = None, *, columns: int | None = None) -> None:
        self.limits = limits
        self.columns = columns
        """Cells that a row of words may take; None: rows end where lines do. It may change at any time."""
        self.waiting: dict[str, Waiting] = {}
        """What is waited for, by the id of the pending."""
        self.left_running: list[str] = []
        """Tools whose bodies were given up and may still be running."""
        self.reason: str | None = None
        """Why it ended; None while it has not."""
        self.cancelling = False
        """Whether somebody asked for the end; nothing tells of that but whoever asked."""
        self.tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.usd = Decimal(0)
        self._entered: set[tuple[str, str]] = set()
        """Calls whose bodies were entered, by run and tool use; one that asked is entered again."""
        self._strands: dict[str, Strand] = {}
        self._root: Strand | None = None
        """The run that is watched: the first one heard of."""
        self._newest: Strand | None = None
        """Whose words came last."""
        self._began = 0.0
        self._ended_at: float | None = None
        self._waited = 0.0
        """Seconds of the waits that are over."""
        self._waits_since: float | None = None

    # Folding

    def apply(self, event: Event) -> tuple[Line, ...]:
        """Take an event. Returns the lines that are complete now, in their order."""
        strand, fields, now = self._strand_of(event), event.fields, event.at
        match event.kind:
            case "run_started":
                return self._started(strand, fields, now)
            case "text" | "replied" | "model_retry":
                return self._said(strand, event.kind, fields, now)
            case "charged":
                return (self._account(strand, fields),)
            case "call_started" | "call_progress" | "call_settled" | "read_discarded":
                return self._called(strand, event.kind, fields, now)
            case "pending":
                return self._pending(strand, fields, now)
            case "supplied":
                self.decided(str(fields.get("id")), now)
                return (self._remark(strand, event.kind, fields),)
            case "run_ended":
                return self._ended(strand, fields, now)
            case _:
                return (self._remark(strand, event.kind, fields),)

    def waits(self, waiting: Waiting) -> bool:
        """Something is waited for. True where that is news: a resumed run tells it without an event."""
        if waiting.pending_id in self.waiting:
            return False
        self.waiting[waiting.pending_id] = waiting
        if self._waits_since is None:
            self._waits_since = waiting.since
        return True

    def decided(self, pending_id: str, now: float) -> None:
        """It is not waited for any more."""
        if self.waiting.pop(pending_id, None) is None or self.waiting:
            return
        self._waited += max(0.0, now - (now if self._waits_since is None else self._waits_since))
        self._waits_since = None

    def flush(self) -> tuple[Line, ...]:
        """What models had begun to write, as it stands."""
        return tuple(
            line for strand in self._strands.values() for line in strand.flush(columns=self.columns)
        )

    # Telling

    @property
    def steps(self) -> int:
        """Replies that count as steps, of the whole tree."""
        return sum(strand.steps for strand in self._strands.values())

    def last_words(self, run_id: str) -> str:
        """What the model of a run said last."""
        strand = self._strands.get(run_id)
        return "" if strand is None else visible(strand.last_words).strip()

    def effect_of(self, pending_id: str) -> str:
        """What running the call again would do, of one that is waited for; empty where that is not known."""
        waiting = self.waiting.get(pending_id)
        return "" if waiting is None else waiting.effect

    def seconds(self, now: float) -> float:
        """Active time so far: what is waited for people does not count."""
        if self._root is None:
            return 0.0
        until = now if self._ended_at is None else self._ended_at
        waits = 0.0 if self._waits_since is None else max(0.0, until - self._waits_since)
        return max(0.0, until - self._began - self._waited - waits)

    def gauges(self, now: float) -> tuple[Gauge, ...]:
        """One for each limit that is set."""
        limits = self.limits
        if limits is None:
            return ()
        gauges = [
            _counted("step", self.steps, limits.steps),
            _counted("tokens", self.tokens, limits.tokens),
        ]
        if limits.usd is not None:
            spent, allowed = dollars(self.usd, like=limits.usd), dollars(limits.usd)
            gauges.append(Gauge("$", spent, allowed, float(self.usd / limits.usd)))
        gauges.append(_timed(self.seconds(now), limits.seconds))
        if limits.calls is not None:
            gauges.append(_counted("calls", len(self._entered), limits.calls))
        return tuple(gauges)

    def status(self, now: float) -> Status:
        """What is so at this moment; `now` is on the clock of the events."""
        return Status(
            unfinished=None if self._newest is None else self._newest.writing,
            doing=self._doing(now),
            waiting=self._waits_for(now),
            gauges=self.gauges(now),
            spent=self._spent(),
        )

    def _doing(self, now: float) -> str:
        """In words, and since when."""
        flights = [(call, of) for of in self._strands.values() for call in of.calls.values()]
        names = ", ".join(dict.fromkeys(call.tool for call, _ in flights))
        strand = self._newest or self._root
        if self.reason is not None:
            return f"ended: {self.reason}"
        if self.cancelling:
            return f"cancelling: {names} gets a moment to stop" if names else "cancelling"
        if flights:
            # Calls further out only wait for the innermost ones.
            inmost = max(of.depth for _, of in flights)
            working = [(call, of) for call, of in flights if of.depth == inmost]
            call, of = min(working, key=lambda pair: pair[0].since)
            more = f", {len(working) - 1} more" if len(working) > 1 else ""
            progress = f" {call.progress}" if call.progress else ""
            return f"{_whose(of)}{call.tool} {clock(now - call.since)}{progress}{more}"
        if strand is None:
            return "starting"
        if self.waiting and strand.phase == "calling":
            return ""  # for nothing but what is waited for
        return f"{_whose(strand)}{_DOING[strand.phase]} {clock(now - strand.since)}"

    def _waits_for(self, now: float) -> str:
        if not self.waiting:
            return ""
        oldest = min(waiting.since for waiting in self.waiting.values())
        many = f", {len(self.waiting)} questions" if len(self.waiting) > 1 else ""
        return f"waiting for you {clock(now - oldest)}{many}"

    def _spent(self) -> str:
        """What no gauge shows."""
        money = self.limits is None or self.limits.usd is None
        parts = [f"${dollars(self.usd)}"] if money and self.usd else []
        if self.cached_tokens:
            share = percent(self.cached_tokens, self.prompt_tokens)
            parts.append(f"cache {share} of {count(self.prompt_tokens)} input")
        return ", ".join(parts)

    # Small parts

    def _strand_of(self, event: Event) -> Strand:
        strand = self._strands.get(event.run_id)
        if strand is None:
            depth = 0 if self._root is None else max(1, len(event.path) - 1)
            who = one_line(event.path[-1]) if depth and event.path else ""
            strand = Strand(event.run_id, depth=depth, who=who, now=event.at)
            self._strands[event.run_id] = strand
            if self._root is None:
                self._root, self._began = strand, event.at
        return strand

    def _started(self, strand: Strand, fields: Mapping[str, Any], now: float) -> tuple[Line, ...]:
        strand.steps = _whole(fields.get("steps"))
        strand.taken_up(_whole(fields.get("open")), now)
        return ()

    def _ended(self, strand: Strand, fields: Mapping[str, Any], now: float) -> tuple[Line, ...]:
        lines = strand.end(now, columns=self.columns)
        reason = one_line(str(fields.get("reason", "")))
        if strand is self._root:
            self.reason, self._ended_at = reason, now
        elif reason not in {"completed", "waiting"}:
            lines.append(strand.of(Remark, mark="failed", text=f"ended: {reason}"))
        if strand is self._newest:
            self._newest = None
        return tuple(lines)

    def _said(
        self, strand: Strand, kind: str, fields: Mapping[str, Any], now: float
    ) -> tuple[Line, ...]:
        """What a model says."""
        self._newest = strand
        match kind:
            case "text":
                return tuple(strand.text(str(fields.get("text", "")), now, columns=self.columns))
            case "replied":
                lines = strand.replied(fields, now, columns=self.columns)
                return (*lines, self._account(strand, fields))
            case _:
                return tuple(strand.retry(fields, now, columns=self.columns))

    def _called(
        self, strand: Strand, kind: str, fields: Mapping[str, Any], now: float
    ) -> tuple[Line, ...]:
        """What becomes of a call."""
        use, tool = _call_of(fields)
        match kind:
            case "call_started":
                self._no_longer_waits(strand, use, tool, now)
                self._entered.add((strand.run_id, use))
                strand.call_started(use, tool, fields, now)
                return ()
            case "call_settled":
                self._no_longer_waits(strand, use, tool, now)
                return tuple(strand.call_settled(use, tool, fields, now))
            case "call_progress":
                strand.progress(fields)
                return ()
            case _:
                strand.forget(fields)
                return (self._remark(strand, kind, fields),)

    def _account(self, strand: Strand, fields: Mapping[str, Any]) -> Line:
        """Count what was billed."""
        usage: Mapping[str, Any] = fields.get("usage") or {}
        names = ("input", "cache_read", "cache_write", "output")
        fresh, cached, written, output = (_whole(usage.get(name)) for name in names)
        usd = Decimal(str(fields.get("usd") or 0))
        self.tokens += fresh + cached + written + output + _whole(fields.get("tokens"))
        self.prompt_tokens += fresh + cached + written
        self.cached_tokens += cached
        self.usd += usd
        text = (
            f"billed: {count(fresh + written)} fresh, {count(cached)} cached, {count(output)} output"
            f", ${dollars(usd)}"
        )
        return strand.of(Remark, mark="ok", text=text, detail=True)

    def _pending(self, strand: Strand, fields: Mapping[str, Any], now: float) -> tuple[Line, ...]:
        call = fields.get("call")
        waiting = Waiting(
            pending_id=str(fields.get("id")),
            kind=str(fields.get("wants") or "approval"),
            run_id=strand.run_id,
            call=None if call is None else str(call),
            tool=one_line(str(fields.get("tool") or "")),
            summary=visible(str(fields.get("summary") or "")),
            since=now,
            effect=one_line(str(fields.get("effect") or "")),
        )
        if not self.waits(waiting):
            return ()
        strand.calls.pop(str(call), None)  # a body that asks has been left until there is an answer
        asked = strand.of(
            Asked,
            pending_id=one_line(waiting.pending_id),
            kind=waiting.kind,
            tool=waiting.tool,
            summary=waiting.summary,
            arguments=call_words(fields.get("arguments")),
        )
        return (asked,)

    def _no_longer_waits(self, strand: Strand, use: str, tool: str, now: float) -> None:
        """A call that begins or ends waits for nobody. Where its pending names no call, the tool's oldest is meant."""
        for waiting in self.waiting.values():
            named = waiting.call == use or (waiting.call is None and waiting.tool == tool)
            if named and waiting.run_id == strand.run_id:
                self.decided(waiting.pending_id, now)
                return

    def _remark(  # noqa: C901 - a table: the words for each kind of event
        self, strand: Strand, kind: str, fields: Mapping[str, Any]
    ) -> Line:
        """Whatever else happens."""
        _, tool = _call_of(fields)
        error = clip(one_line(str(fields.get("error") or "")), PREVIEW_CHARS)
        mark: Mark = "failed"
        match kind:
            case "call_retry":
                call = strand.calls.get(str(fields.get("id")))
                name = tool or (call.tool if call else "a call")
                mark, text = "running", f"{name} failed and is tried again"
            case "call_blocked":
                seconds = fields.get("seconds") or 0
                text = (
                    f"{tool} held up the event loop for {seconds:.2f} s: make it a plain function"
                )
            case "call_abandoned":
                self.left_running.append(tool)
                mark, text = (
                    "unknown",
                    f"{tool} did not stop and was left: it may still take effect",
                )
            case "late_outcome":
                mark, status = "unknown", one_line(str(fields.get("status")))
                text = f"{tool} ended after it was given up: {status}"
            case "supplied":
                what = "answer" if fields.get("wants") == "input" else "result"
                mark = "failed" if fields.get("is_error") else "ok"
                text = f"{what} for {tool} from {one_line(str(fields.get('by')))}"
            case "surroundings_changed":
                told = "; ".join(
                    f"{one_line(what)} {one_line(', '.join(map(str, names)))}"
                    for what, names in fields.items()
                    if names
                )
                mark, text = (
                    "unknown",
                    clip(f"goes on in other surroundings: {told}", PREVIEW_CHARS),
                )
            case "granted":
                by = one_line(str(fields.get("by")))
                mark, text = "ok", f"{tool} runs under a standing grant of {by}"
            case "confirm_failed" | "answer_failed":
                text = f"the question about {tool} was not answered: {error}"
            case "cache_missed":
                expected, cached = (_whole(fields.get(each)) for each in ("expected", "cached"))
                text = (
                    f"cache missed ({one_line(str(fields.get('cause')))}): {count(cached)} read of "
                    f"{count(expected)} sent before"
                )
                return strand.of(Remark, mark="ok", text=text, detail=True)
            case "note_failed":
                text = f"a note was left out: {error}"
            case _:
                told = ", ".join(f"{name} {value}" for name, value in fields.items())
                text = clip(one_line(f"{kind}: {told}" if told else kind), PREVIEW_CHARS)
                return strand.of(Remark, mark="ok", text=text, detail=True)
        return strand.of(Remark, mark=mark, text=text)


def _whose(strand: Strand) -> str:
    return f"{strand.who}: " if strand.who else ""


def _call_of(fields: Mapping[str, Any]) -> tuple[str, str]:
    """The tool use that an event is about, and its tool: from its key (`run:step:tool:hash:n`) if need be."""
    parts = str(fields.get("key") or "").rsplit(":", 3)
    tool = fields.get("tool") or (tool_in_key(parts[1]) if len(parts) == 4 else "")
    return str(fields.get("id")), one_line(str(tool))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _counted(name: str, used: int, allowed: int) -> Gauge:
    return Gauge(name, count(used), count(allowed), used / allowed)


def _timed(used: float, allowed: float) -> Gauge:
    if allowed < 100:
        return Gauge("s", f"{used:.0f}", f"{allowed:.3g}", used / allowed)
    return Gauge("time", clock(used), clock(allowed), used / allowed)
