"""The state of one run, rebuilt only by replaying its rows.

A fresh run and a resumed one go through the same `apply`: the loop writes a row and applies it, a
resume reads rows and applies them. Nothing else changes a `RunState`. It holds no clock, no task and no
tool; what may happen next is decided in `plan.py`.
"""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from remit.amounts import NOTHING, ZERO, Amount, Bill, Tally, Totals
from remit.calibration import Calibration
from remit.elide import MOST_ELISIONS, WITHIN_STEPS
from remit.errors import JournalError
from remit.excerpt import CHARS_PER_TOKEN
from remit.limits import Limits
from remit.messages import Message, ResultContent, Status, StopReason, Text, ToolUse
from remit.outcome import Reason
from remit.rows import (
    Activated,
    Asked,
    Awaits,
    Charged,
    Decided,
    Elided,
    Ended,
    Ends,
    Failed,
    Finished,
    Granted,
    HandedOut,
    Late,
    Noted,
    Opened,
    Parked,
    Proposed,
    Questioned,
    Replied,
    Row,
    Said,
    Settled,
    Started,
    Supplied,
    Trim,
    TurnedBack,
    Vetoed,
    Withdrawn,
)
from remit.shown import Keeps, handles_of
from remit.slots import Answering, Slot
from remit.stall import Stall
from remit.transcript import Transcript

__all__ = ["FINAL", "RUNNABLE", "CallState", "HandedIn", "Limit", "RunState"]

RUNNABLE: Final = frozenset({StopReason.TOOL_USE, StopReason.END_TURN})
"""Stop reasons whose calls may run."""
FINAL: Final = frozenset({StopReason.END_TURN, StopReason.STOP_SEQUENCE})
"""Stop reasons of an answer."""
_CAN_BE_EMPTY = frozenset(
    {
        StopReason.END_TURN,
        StopReason.STOP_SEQUENCE,
        StopReason.UNKNOWN,
    }
)
_WHY_NOT_RUN = {
    StopReason.LENGTH: "the reply was cut by the output limit",
    StopReason.CONTEXT: "the reply was cut by the context window",
    StopReason.REFUSAL: "the reply was refused",
    StopReason.FILTER: "the reply was filtered",
    StopReason.PAUSE: "the turn was paused",
    StopReason.STOP_SEQUENCE: "a stop sequence ended the reply",
    StopReason.UNKNOWN: "the reply ended for an unknown reason",
}


class Limit:
    """A limit that was reached, and whose it is."""

    __slots__ = ("reason", "whose")

    def __init__(self, reason: Reason, whose: str) -> None:
        self.reason = reason
        self.whose = whose

    def __str__(self) -> str:
        return f"{self.reason.value}:{self.whose}"

    @classmethod
    def parse(cls, text: str) -> Limit:
        reason, _, whose = text.partition(":")
        return cls(Reason(reason), whose)


class HandedIn(NamedTuple):
    """What the call that ends the run came to."""

    text: str
    """Its result as the model was shown it; of a typed output its arguments, which are JSON."""
    typed: bool
    result: Keeps | None = None
    """Its result, with what of it stands in artifacts; None for a typed output."""
    words: str = ""
    """The words of ours before that result, which are no part of `text`."""


class CallState:
    """One call of the open turn, from asked to settled."""

    __slots__ = (
        "answers",
        "ask_again",
        "awaits",
        "child",
        "decision",
        "edited",
        "effect",
        "ends",
        "footprint",
        "grant",
        "handed_out",
        "key",
        "on_word",
        "proposal",
        "proposed",
        "question",
        "recorded",
        "remit",
        "repeats",
        "result",
        "slot",
        "spent",
        "started",
        "supplied",
        "unanswered",
        "under_way",
        "withdrawn",
        "words",
    )

    def __init__(self, slot: Slot, asked: Asked) -> None:
        self.slot = slot
        self.key = slot.key = asked.key
        self.repeats = asked.repeats
        self.footprint = asked.footprint
        self.effect = asked.effect
        self.remit = asked.remit
        self.result: Settled | Trim | None = None
        """What is shown of its result, once it has one."""
        self.started: Started | None = None
        self.proposal: Proposed | None = None
        self.proposed = ""
        """The arguments that were put up for decision last: the model's, or what the host made of them before."""
        self.decision: Decided | None = None
        self.edited: Decided | None = None
        """The decision that put the host's own arguments in place of the model's. It stands whatever is decided
        after it: what is proposed anew is the call as edited."""
        self.grant: Granted | None = None
        """What let it begin in place of a decision."""
        self.under_way = False
        """It was started, and no row says that this came to an end."""
        self.question: Questioned | None = None
        """What its body asked and has no answer to."""
        self.answers: tuple[tuple[Questioned, Supplied], ...] = ()
        """What its body asked and was answered, in the order of asking."""
        self.handed_out: HandedOut | None = None
        self.supplied: Supplied | None = None
        """The result that came back for a call that was handed out."""
        self.withdrawn = False
        self.ends: Ends = ""
        """What its result means for the run."""
        self.words = ""
        """Of a result that ends the run: the words of ours before it."""
        self.unanswered = False
        """Somebody was asked in this activation and did not answer: nobody is asked again before the next."""
        self.ask_again = False
        """What it waits for has not been put to the callback of this activation yet."""
        self.on_word: Callable[[], None] | None = None
        """Called when somebody elsewhere was first, while somebody here is asked."""
        self.awaits: str | None = None
        """The child run that this call waits for."""
        self.child: str | None = None
        """The child run that it waited for last, whether it still does or goes on."""
        self.recorded = NOTHING
        """What the runs inside this call cost, as far as it is in the rows."""
        self.spent = Totals()
        """The same for the call itself. It counts once, however often its body is entered."""

    @property
    def use(self) -> ToolUse:
        return self.slot.use

    @property
    def settled(self) -> bool:
        return self.slot.result is not None

    @property
    def succeeded(self) -> bool:
        return self.slot.result is not None and self.slot.result.status is Status.OK

    @property
    def arguments(self) -> str:
        """The arguments that count: the host's own where it edited them."""
        if self.edited is not None and self.edited.edit is not None:
            return self.edited.edit
        return self.slot.use.arguments

    @property
    def pending(self) -> Proposed | Questioned | HandedOut | None:
        """What somebody outside has yet to decide or to supply, in time or not."""
        if self.withdrawn:
            return None
        if self.handed_out is not None:
            return self.handed_out if self.supplied is None else None
        if self.question is not None:
            return self.question
        return self.proposal if self.decision is None else None

    def open_at(self, now: datetime) -> bool:
        """Somebody outside can still act. What has expired is no reason to wait."""
        pending = self.pending
        return pending is not None and datetime.fromisoformat(pending.expires_at) > now

    def waits(self, now: datetime) -> bool:
        """Nothing can be done for this call but wait."""
        if self.settled or self.ask_again:
            return False
        if self.awaits is not None or self.open_at(now):
            return True
        return self.unanswered and self.pending is not None


class RunState:
    """Everything that counts about a run."""

    __slots__ = (
        "_before",
        "_calibration",
        "_closing_told",
        "_elided_at",
        "_ends",
        "_estimated",
        "_inside",
        "_limits",
        "_message",
        "_opened",
        "_overshoot",
        "_own",
        "_polling",
        "_tokens_at_reply",
        "answered",
        "answering",
        "breaks",
        "calls",
        "context_tokens",
        "cuts",
        "denied",
        "density",
        "empties",
        "ended",
        "failure",
        "finished",
        "handed_in",
        "invalids",
        "late",
        "latencies",
        "limit",
        "memo",
        "misfit",
        "model",
        "overflowed",
        "parked",
        "reply",
        "rows",
        "run_id",
        "seconds",
        "stall",
        "steps",
        "text",
        "told",
        "tools",
        "transcript",
        "unsaid",
        "untold",
        "vetoed",
    )

    def __init__(  # noqa: PLR0915 - a statement for each thing that counts
        self, run_id: str, rows: Iterable[Row] = (), before: Transcript | None = None
    ) -> None:
        """`before` is what a run goes on from whose first row only names it. It is this run's own from now on."""
        self.run_id = run_id
        self._before = before
        self.model = ""
        """The name of the model that the run was last at work with."""
        self.tools: Mapping[str, str] = {}
        """The fingerprints of its tools at that time."""
        self.rows = 0
        """How many were applied."""
        self.transcript = Transcript()
        self.answering: Answering | None = None
        self.calls: tuple[CallState, ...] = ()
        """The calls of the open turn, in call order; empty between turns."""
        self.reply: Replied | None = None
        self._message: Message | None = None
        self.text = ""
        self.steps = 0
        self.cuts = 0
        """Replies cut by length, in a row."""
        self.empties = 0
        """Empty replies in a row."""
        self.untold: str | None = None
        """What the newest reply did wrong and the model has not been told: `cut`, `context`, `empty` or
        `invalid`."""
        self.overflowed = False
        """The newest reply was cut by the context window, and nothing has made room since."""
        self.breaks: dict[str, int] = {}
        """How often what was sent was changed after all, by cause (X1)."""
        self._elided_at: tuple[int, ...] = ()
        self._closing_told = False
        """The note of the hand-back stands in the transcript, and no reply behind it."""
        self.limit: Limit | None = None
        """Set once the hand-back was begun: the limit that ends the run."""
        self.denied: Limit | None = None
        """The first limit that kept a call from running."""
        self.handed_in: HandedIn | None = None
        """What the call that ends the run came to; gone again where something is said behind it."""
        self.finished = False
        """A rule of the host's has ended the run; no longer so where something is said behind it."""
        self.answered = False
        """The newest thing in the transcript, notes aside, is a turn whose every call is answered."""
        self.invalids = 0
        """Outputs that did not fit, in a row; a turn in which something else was done ends the row."""
        self.misfit: str | None = None
        """What was wrong with the newest of them."""
        self.vetoed: str | None = None
        self.failure: str | None = None
        self.ended: Ended | None = None
        self.parked = False
        """It waits for somebody, or was handed over."""
        self._own = Tally()
        self._inside = NOTHING
        self._estimated = 0
        self._overshoot = ZERO
        self.seconds = 0.0
        self.latencies: list[float] = []
        """Seconds of each model reply, sorted."""
        self.unsaid: list[tuple[ResultContent, ...]] = []
        """Input that waits for its place."""
        self.context_tokens = 0
        """Prompt and output of the newest reply as reported: where the next prompt starts from."""
        self._calibration = Calibration()
        self.density = self._calibration.density
        """Tokens that the provider counts for each token of an estimate, as measured so far; 1 to 4."""
        self.stall = Stall()
        self.told: dict[str, str] = {}
        """The newest note of each source."""
        self.memo: dict[str, Settled] = {}
        self.late: dict[str, Late] = {}
        self._polling: dict[str, None] = {}
        self._ends = False
        """A result of the open turn means something for the run."""
        self._opened: Opened | None = None
        self._limits: Limits | None = None
        self._tokens_at_reply = 0
        for row in rows:
            self.apply(row)

    @property
    def opened(self) -> Opened:
        """The first row. Errors: `JournalError` before it was applied."""
        if self._opened is None:
            raise JournalError(f"run {self.run_id!r} has no first row")
        return self._opened

    @property
    def limits(self) -> Limits:
        """The limits of the present activation."""
        if self._limits is None:
            raise JournalError(f"run {self.run_id!r} has no first row")
        return self._limits

    @property
    def own(self) -> Totals:
        """What the run itself spent; its time is `seconds`."""
        return self._own.totals()

    @property
    def tree(self) -> Totals:
        """Own, and what the runs inside spent."""
        return self.own + self._inside.spent

    @property
    def overshoot(self) -> Amount:
        """What of `tree` was charged beyond its reservation."""
        return self._overshoot + self._inside.overshoot

    @property
    def estimated(self) -> int:
        """How many charges of `tree` are estimates."""
        return self._estimated + self._inside.estimated

    @property
    def bill(self) -> Bill:
        """What it comes to for the accounts above."""
        return Bill(self.tree, self.overshoot, self.estimated)

    @property
    def output(self) -> str | None:
        """The JSON of the typed output: what was handed in, or the final text; None where neither ended the run."""
        if self.handed_in is not None:
            return self.handed_in.text if self.handed_in.typed else None
        return self._message.text if self.final and self._message is not None else None

    @property
    def done(self) -> bool:
        """The newest turn is answered, it or the host's rule ended the run, and nobody has said more since."""
        return self.handed_in is not None or self.finished

    @property
    def final(self) -> bool:
        """The newest thing in the transcript is a whole answer of the model."""
        reply = self.reply
        return (
            reply is not None
            and reply.whole
            and reply.stop_reason in FINAL
            and reply.invalid is None
            and not self.empties
            and not reply.asked
            and self.transcript.last is self._message
        )

    @property
    def paused(self) -> bool:
        """The newest turn is the provider's to finish: it goes back as it is, nothing is put behind it."""
        reply = self.reply
        return (
            reply is not None
            and reply.whole
            and reply.stop_reason is StopReason.PAUSE
            and reply.message is not None
            and self.transcript.last is self._message
        )

    @property
    def not_run(self) -> str | None:
        """Why the calls of the open turn may not run; None where they may."""
        reply = self.reply
        if reply is None or (reply.whole and not reply.closing and reply.stop_reason in RUNNABLE):
            return None
        if reply.closing:
            return "the limit was reached and no more tools run"
        if not reply.whole:
            return "the reply was cut"
        return _WHY_NOT_RUN[reply.stop_reason]

    @property
    def growth(self) -> int:
        """Estimated tokens that joined the transcript after the newest reply."""
        return self.transcript.tokens - self._tokens_at_reply

    @property
    def may_elide(self) -> bool:
        """Not so often of late that another elision would help as little as the last ones."""
        at = self._elided_at
        return len(at) < MOST_ELISIONS or self.steps - at[-MOST_ELISIONS] >= WITHIN_STEPS

    @property
    def chars_per_token(self) -> float:
        """The estimate by which limits in tokens become limits in characters, as measured so far."""
        return CHARS_PER_TOKEN / self.density

    def call(self, tool_use_id: str) -> CallState:
        """The call of the open turn with this id. Errors: `JournalError`."""
        for call in self.calls:
            if call.slot.use.id == tool_use_id:
                return call
        raise JournalError(f"no call {tool_use_id!r} is open in run {self.run_id!r}")

    def waiting_for(self, pending_id: str) -> CallState | None:
        """The open call that waits for this pending."""
        for call in self.calls:
            pending = call.pending
            if pending is not None and pending.pending_id == pending_id and not call.settled:
                return call
        return None

    def asked(self, pending_id: str) -> Mapping[str, Any] | None:
        """The JSON Schema of what an open question asks for; None where it is open no more."""
        call = self.waiting_for(pending_id)
        question = None if call is None else call.question
        return None if question is None else json.loads(question.schema)

    def apply(self, row: Row) -> None:  # noqa: C901, PLR0915 - a table: one line of meaning for each kind of row
        """Take in one row. Errors: `JournalError` for a row that has no place here."""
        self.rows += 1
        match row:
            case Replied():
                self._replied(row)
            case Started():
                call = self.call(row.tool_use_id)
                call.started, call.under_way = row, True
                call.awaits = None
                call.slot.key = call.key
                call.slot.begin()
            case TurnedBack():
                call = self.call(row.tool_use_id)
                call.started, call.under_way, call.grant = None, False, None
                call.slot.turn_back()
            case Settled():
                self._settled(row)
            case Noted():
                self._noted(row)
            case Elided():
                self._elided(row)
            case Proposed():
                call = self.call(row.tool_use_id)
                call.proposal, call.decision, call.withdrawn = row, None, False
                call.proposed = call.arguments
                call.question = None  # its time was over, or there would be no proposal
            case Decided():
                self._decided(row)
            case Granted():
                self.call(row.tool_use_id).grant = row
            case Said():
                self.unsaid.append(row.content)
                self._say_unsaid()
            case Awaits():
                call = self.call(row.tool_use_id)
                call.awaits = call.child = row.run_id
                call.under_way = False
                call.recorded += row.children
                call.spent += row.spent
                self._charge(row.spent, row.children, row.overshoot)
            case Charged():
                self._charged(row)
            case Late():
                self.late[row.key] = row
            case Withdrawn():
                withdrawn = self.waiting_for(row.pending_id)
                if withdrawn is not None:
                    withdrawn.withdrawn = True
            case Questioned():
                self._questioned(row)
            case HandedOut():
                self._handed_out(row)
            case Supplied():
                self._supplied(row)
            case Failed():
                self.failure = row.error
                self.transcript.mark_sent()
            case Finished():
                self.finished = True
            case Vetoed():
                self.vetoed = row.why
            case Parked():
                self.parked = True
                self._trim(row.trims)
                self.seconds = row.seconds
            case Ended():
                self.ended = row
                self.seconds = row.seconds
            case Activated():
                self._activated(row)
            case Opened():
                self._open(row)

    def _open(self, row: Opened) -> None:
        self._opened = row
        self._limits = row.limits
        self.model, self.tools = row.model, row.tools
        self.transcript = self._history(row)
        self.transcript.mark_sent()
        self.transcript.say(*row.prompt)

    def _history(self, row: Opened) -> Transcript:
        before, self._before = self._before, None
        if row.after is None:
            return Transcript(row.history, row.breaks)
        if before is None:
            raise JournalError(f"run {self.run_id!r} goes on from {row.after!r}, which is not here")
        return before

    def _activated(self, row: Activated) -> None:
        self.model = (row.changed.get("model") or (self.model,))[-1]
        self.tools = row.tools or self.tools
        if row.limits != self._limits:  # what is left is another thing now (L6)
            self.told = {k: text for k, text in self.told.items() if not k.startswith("budget:")}
            self.denied = None
        if self.ended is not None:
            # Somebody had it go on. After a crash or a decision everything counts on: a run that
            # dies at every step must still be found out to go in circles.
            self.ended = self.denied = None
            self.cuts = self.empties = self.invalids = 0
            self.stall.clear()
        self._limits = row.limits
        self.transcript.mark_sent()  # a request may have gone out of which no row tells
        self._calibration.interrupt()  # the tools may be others now
        self.limit = self.failure = None
        self.parked = False
        for call in self.calls:
            call.awaits = None
            broke_off = call.under_way and not (call.settled or call.spent.calls)
            if call.started is not None and broke_off:
                self._count_begun(call, call.started)

    def _count_begun(self, call: CallState, started: Started) -> None:
        """The run broke off while a body may have run: what it came to is unknown, so its price counts."""
        call.spent = Totals(calls=1, tokens=started.tokens, usd=started.usd)
        self._charge(call.spent, None, ZERO)

    def _replied(self, row: Replied) -> None:
        self.reply = row
        self._go_on()
        self._closing_told = False
        steps = 0
        prompt = row.usage.prompt
        if prompt and row.whole and not row.estimated:
            self.density = self._calibration.observe(self.transcript.tokens, prompt)
        if row.message is not None:
            stored = self._message = self.transcript.add_reply(row.message)
            self.text = stored.text or self.text
            steps = 0 if row.closing else 1
            if self.transcript.owed:
                self._open_turn(row)
        else:
            self.transcript.mark_sent()  # it was read, though nothing came back
        self.steps += steps
        self._own.count(steps, 0, row.usage.total, row.usd, row.usage)
        self._estimated += row.estimated
        if row.overshoot is not ZERO:
            self._overshoot += row.overshoot
        self.seconds = row.seconds
        refused = row.message is None and row.stop_reason is StopReason.CONTEXT
        if row.whole and not refused:  # what was cut says nothing about how long the model takes
            insort(self.latencies, row.latency)
        if not refused:  # or nobody counted the prompt
            self.context_tokens = prompt + row.usage.output
            self._tokens_at_reply = self.transcript.tokens
        self._judge(row)
        if self.unsaid:
            self._say_unsaid()

    def _say_unsaid(self) -> None:
        """Give what was said its place: behind the results that are owed, never behind a paused turn (T5)."""
        if self.calls or self.paused:
            return
        for content in self.unsaid:
            self.transcript.say(*content)
            self._go_on()
        self.unsaid.clear()

    def _charged(self, row: Charged) -> None:
        tokens = row.usage.total + row.tokens
        own = Totals(calls=row.calls, tokens=tokens, usd=row.usd, usage=row.usage)
        self._charge(own, row.children, row.overshoot)
        self._estimated += row.estimated
        self.transcript.mark_sent()

    def _judge(self, row: Replied) -> None:
        """Count replies that said nothing or were cut, in a row."""
        cut = row.stop_reason is StopReason.LENGTH
        silent = row.message is None or not (row.asked or row.message.text.strip())
        # Without any content it is no step, so that only this count bounds it.
        empty = row.whole and silent and (row.message is None or row.stop_reason in _CAN_BE_EMPTY)
        self.cuts = self.cuts + 1 if cut else 0
        self.empties = self.empties + 1 if empty else 0
        self.untold = "cut" if cut else "empty" if empty else None
        if row.invalid is not None:
            self.untold = "invalid"
            self._reject(row.invalid)
        self.overflowed = row.stop_reason is StopReason.CONTEXT and not row.closing
        if self.overflowed:  # nobody fell silent; and only elisions let it go on, which are bounded
            self.empties = 0
            self.untold = None if row.message is None else "context"

    def _open_turn(self, row: Replied) -> None:
        self.answering = self.transcript.answering()
        self.calls = tuple(
            [
                CallState(slot, asked)
                for slot, asked in zip(self.answering.slots, row.asked, strict=True)
            ]
        )
        for call in self.calls:
            if call.repeats:
                self._keep_to_this_run(call)

    def _keep_to_this_run(self, call: CallState) -> None:
        """A repeat has an earlier run's key; what a view says of one that waits is about this run."""
        if call.repeats and call.key is not None:
            call.slot.key = ":".join((self.run_id, *call.key.rsplit(":", 4)[1:]))

    def _questioned(self, row: Questioned) -> None:
        call = self.call(row.tool_use_id)
        call.question, call.withdrawn, call.under_way = row, False, False
        call.answers = call.answers[: row.place]
        call.recorded += row.children
        call.spent += row.spent
        self._charge(row.spent, row.children, row.overshoot)
        self._keep_to_this_run(call)

    def _handed_out(self, row: HandedOut) -> None:
        call = self.call(row.tool_use_id)
        if call.handed_out is not None:
            raise JournalError(f"the call {row.tool_use_id!r} was handed out before")
        call.handed_out, call.withdrawn = row, False
        call.spent += row.spent
        self._charge(row.spent, None, ZERO)
        if call.footprint.writes:
            call.slot.begin()

    def _supplied(self, row: Supplied) -> None:
        call = self.waiting_for(row.pending_id)
        if call is None:
            raise JournalError(f"what was supplied for {row.pending_id!r} finds no open call")
        call.ask_again = False
        if call.handed_out is not None:
            call.supplied = row
        elif call.question is not None:
            call.answers = (*call.answers, (call.question, row))
            call.question = None

    def _settled(self, row: Settled) -> None:
        call = self.call(row.tool_use_id)
        call.slot.settle(
            row.content,
            is_error=row.is_error,
            status=row.status,
            key=call.key,
            artifacts=handles_of(row) if row.kept or row.artifacts else (),
        )
        call.result = row
        if row.trims:
            self._trim(row.trims)
        self._charge(row.spent, row.children, row.overshoot)
        if row.denied is not None and self.denied is None:
            self.denied = Limit.parse(row.denied)
        if row.memo is not None:
            self.memo.setdefault(row.memo, row)
        if row.ends:
            call.ends, call.words = row.ends, row.words
            self._ends = True
        if row.polling:
            self._polling[row.tool_use_id] = None
        if self.answering is not None and not self.answering.is_open:
            self._close_turn(self.answering)

    def _trim(self, trims: Iterable[Trim]) -> None:
        for trim in trims:
            call = self.call(trim.tool_use_id)
            call.slot.shorten(trim.content, handles_of(trim))
            call.result = trim

    def _close_turn(self, answering: Answering) -> None:
        answering.close()
        polling = self._polling
        did = _signature(
            [call for call in self.calls if call.use.id not in polling] if polling else self.calls
        )
        if did is not None:
            self.stall.observe(did)
        self.answered = True
        if self._ends or self.invalids:
            self._hand_in()
        if polling:
            polling.clear()
        self.answering = None
        self.calls = ()
        if self.unsaid:
            self._say_unsaid()

    def _hand_in(self) -> None:
        """What the results of the turn mean for the run: of each kind of end the first in call order counts."""
        self._ends = False
        ends = {call.ends: call for call in reversed(self.calls)}
        if "output" in ends:
            self.handed_in = HandedIn(ends["output"].use.arguments, typed=True)
        elif "done" in ends:
            call = ends["done"]
            text, result = _text_of(call), call.result
            if call.words and result is not None:
                text = tools_own(result.content, call.words)
            self.handed_in = HandedIn(text, typed=False, result=result, words=call.words)
        elif "invalid" in ends:
            self._reject(_text_of(ends["invalid"]).removeprefix("Error: "))
        elif self.invalids and any(call.succeeded for call in self.calls):
            self.invalids = 0

    def _go_on(self) -> None:
        """There is more than the newest answered turn: what ended the run with it does so no longer."""
        self.handed_in = None
        self.finished = self.answered = False

    def _reject(self, why: str) -> None:
        self.invalids += 1
        self.misfit = why

    def _noted(self, row: Noted) -> None:
        source, _, rest = row.source.partition(":")
        if source == "closing":
            self.limit = Limit.parse(rest)
            if self._closing_told:  # before a crash, and the model has not answered it
                return
            self._closing_told = True
        elif source in ("cut", "context", "empty", "invalid"):
            self.untold = None
        elif source == "stall":
            self.stall.told = True
        self.told[row.source] = row.text
        self.transcript.say(Text(row.text))

    def _elided(self, row: Elided) -> None:
        freed = self.transcript.elide(row.results)
        # What was reported is about a longer prompt. Where it was less than the estimate of what is gone, it
        # tells nothing any more, and the next prompt is estimated from the start.
        self.context_tokens = max(0, self.context_tokens - int(freed * self.density))
        self._tokens_at_reply -= freed
        self._calibration.interrupt()
        if row.cause == "elision":
            self._elided_at = (*self._elided_at, self.steps)
        self.breaks[row.cause] = self.breaks.get(row.cause, 0) + 1
        self.overflowed = False

    def _decided(self, row: Decided) -> None:
        call = self.waiting_for(row.pending_id)
        if call is None:
            raise JournalError(f"a decision for {row.pending_id!r} finds no open call")
        call.decision, call.ask_again = row, False
        if row.edit is not None:
            call.edited = row
        if row.key is not None:
            call.key = call.slot.key = row.key
            call.repeats = False

    def _charge(self, own: Totals | None, inside: Bill | None, overshoot: Amount) -> None:
        if own is not None:
            self._own.add(own, own.usage)
        if inside is not None:
            self._inside += inside
        if overshoot is not ZERO:
            self._overshoot += overshoot


def tools_own(content: Iterable[ResultContent], words: str) -> str:
    """The text of a result without the words of ours before it: a block of their own, or one with what follows."""
    texts = [block.text for block in content if isinstance(block, Text)]
    if words and texts:
        texts[0] = "" if texts[0] == words else texts[0].removeprefix(f"{words}\n")
    return "".join(texts)


def _signature(calls: Sequence[CallState]) -> object:
    """What these did, equal where they did the same: the set of their (tool, arguments, result).

    Shape: what was called and what came of it; by that where several calls were not the same, a set of results where
    equal ones had several. A result alone is not hashed. None where there are none.
    """
    if len(calls) == 1:
        return _did(calls[0])
    did: dict[tuple[str, str], object] = {}
    for call in calls:
        what, came = _did(call)
        known = did.setdefault(what, came)
        if isinstance(known, frozenset):
            did[what] = known | {came}
        elif known is not came and known != came:
            did[what] = frozenset((known, came))
    return next(iter(did.items()), None) if len(did) < 2 else did


def _did(call: CallState) -> tuple[tuple[str, str], object]:
    use, result = call.slot.use, call.slot.result
    # The same for equal arguments, however they were written.
    arguments = use.arguments if call.key is None else call.key.rsplit(":", 2)[-2]
    return (use.name, arguments), None if result is None else (result.content, result.status)


def _text_of(call: CallState) -> str:
    return "" if call.slot.result is None else call.slot.result.text
