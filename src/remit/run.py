"""One run while it is executed: state, record, means and clock in one place.

`Run` makes no decision and enters no body. The actors (`asking.py`, `dispatch.py`) act on it, and `plan` is
told through `room` what there is room for.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from remit.artifacts import Artifact
from remit.caching import Sent
from remit.canonical import arguments_hash, call_key, canonical, decode, encode
from remit.clock import RunClock
from remit.config import Config
from remit.current import Frame
from remit.events import Event, EventKind, Listener
from remit.excerpt import chars_of
from remit.guards import Guards
from remit.means import Means
from remit.messages import ResultContent, ToolUse
from remit.models.base import Settings
from remit.pending import AnswerCallback, ConfirmCallback, Decision, PendingKind
from remit.plan import Room
from remit.posts import pending_id_of, read_cancel, read_decision, read_supply
from remit.preview import MASK
from remit.record import Record
from remit.redaction import both
from remit.resources import Path
from remit.rows import (
    Asked,
    Charged,
    Decided,
    Late,
    Parked,
    Replied,
    Said,
    Settled,
    Supplied,
    Trim,
    Vetoed,
    Withdrawn,
    content_from_json,
    read_late,
)
from remit.shown import TURN_TOKENS, Allowance, Shown, shared_out, within
from remit.state import RunState
from remit.store.base import Posted
from remit.store.filling import fill
from remit.supervise import Halt, arrived, outlasted
from remit.tools import Arguments, BadArguments, Tool
from remit.workers import Workers, WorkersExhausted

if TYPE_CHECKING:
    from remit.dispatch.gate import Passage

__all__ = [
    "Intents",
    "Prepared",
    "Run",
]

T = TypeVar("T")

Prepared: TypeAlias = tuple[Tool[..., Any], Arguments] | BadArguments | None
"""What a tool made of the arguments of a call; None for an unknown tool."""


class Intents:
    """The keys of the calls of one reply (E2), given one by one while it may still be streamed.

    A call that repeats one whose outcome is unknown gets that one's key (E4); one repeat resolves one doubt.
    """

    __slots__ = (
        "_counts",
        "_run",
    )

    def __init__(self, run: Run) -> None:
        self._run = run
        self._counts: dict[str, int] = {}

    def add(self, use: ToolUse) -> Asked:
        """The intent of the next call; without a key where no call comes about."""
        state = self._run.state
        prepared = self._run.prepare(use, use.arguments)
        if not isinstance(prepared, tuple):
            return self._run.not_called(use)
        tool, arguments = prepared
        digest = arguments_hash(arguments.given)
        called = f"{tool.name}:{digest[:16]}"
        n = self._counts[called] = self._counts.get(called, 0) + 1
        doubts = state.transcript.doubts.get(called, ())
        repeats = n <= len(doubts)
        key = (
            doubts[n - 1]
            if repeats
            else call_key(state.run_id, state.steps + 1, tool.name, digest, n)
        )
        shown = canonical(tool.masked(arguments.given)) if tool.has_secrets else ""
        footprint = tool.footprint(arguments.values)
        return Asked(key, repeats, footprint, tool.effect.value, shown, tool.remit)


class Run:
    """One activation of one run."""

    __slots__ = (
        "__weakref__",
        "_grace",
        "_prepared",
        "again",
        "cached",
        "changed",
        "checked",
        "clock",
        "config",
        "deps",
        "early",
        "frame",
        "guards",
        "halt",
        "listeners",
        "loop",
        "means",
        "over",
        "path",
        "queue",
        "quick",
        "record",
        "redact",
        "remembering",
        "scratch",
        "state",
        "workers",
    )

    def __init__(
        self,
        config: Config,
        state: RunState,
        record: Record,
        *,
        workers: Workers,
        deps: Any,
        frame: Frame | None,
        listeners: Sequence[Listener],
        reserve: bool = False,
    ) -> None:
        """`reserve` sets a share aside for this run, out of the account of the call around."""
        self.config = config
        self.state = state
        self.record = record
        self.workers = workers
        self.deps = deps
        self.frame = frame
        self.listeners = tuple(listeners)
        self.again = False
        """It was taken up again, perhaps with another model, and nothing was asked since."""
        self.changed: Mapping[str, tuple[str, ...]] = {}
        """What is different from when the run was last at work."""
        self.loop = asyncio.get_running_loop()
        self.redact = both(config.redact, None if frame is None else frame.redact)
        """What is applied to the texts of tools: this remit's own, then that of the call around it."""
        self.halt = Halt(self.loop)
        self._grace = config.grace if frame is None else min(config.grace, frame.settle_seconds / 2)
        """A run inside a call has half of what the call has, so that it is closed before the call is given up (K3)."""
        self.over = False
        """It hears nobody any more."""
        self.guards = Guards(config.guards, self._veto, self.halt)
        self.path = Path(None if frame is None else frame.path)
        if frame is not None:
            frame.halts.append(self.halt)
        self.clock = RunClock(
            config.name,
            state.limits,
            before=state.seconds,
            hand_back=config.hand_back,
            frame=frame,
            time=self.loop.time,
            now=config.now,
        )
        self.means = Means(config, state, self.clock, frame=frame, reserve=reserve)
        self.queue: list[tuple[ResultContent, ...]] = []
        """Input that waits for its place behind the results (T5)."""
        self.early: dict[str, Passage] = {}
        """Reads of the newest reply that began while it was still written."""
        self.remembering: dict[str, Passage] = {}
        """Deterministic calls that are being executed, by what they are remembered as."""
        self.scratch: dict[object, Any] = {}
        """What the model keeps from one request to the next."""
        self.cached: Sent | None = None
        """The newest request whose usage was reported, of a model that caches; none before this activation."""
        self.quick: dict[str, bool] = {}
        """Deterministic functions, and whether they were measured to be quick."""
        self.checked: Replied | None = None
        """The reply after whose turn the host was asked last whether the run is done."""
        self._prepared: dict[tuple[str, str], Prepared] = {}
        for call in state.calls:
            pending = call.pending
            if pending is not None and self.callback(pending.wants) is not None:
                call.ask_again = call.open_at(self.clock.utc())

    # What `plan` is told

    def room(self) -> Room:
        """What there is room for at this instant."""
        if self.state.calls:
            return Room(
                now=self.config.now(),
                cancelled=self.halt.cause == "cancelled",
                why=self.halt.said.reason,
                detached=self.halt.cause == "detached",
            )
        means = self.means
        limit = means.limit()
        elision, full = means.crowding(limit)
        return Room(
            limit=limit,
            closing=limit is None or means.closing_fits(),
            cancelled=self.halt.cause == "cancelled",
            why=self.halt.said.reason,
            detached=self.halt.cause == "detached",
            queued=bool(self.queue or self.state.unsaid),
            elision=elision,
            full=full,
            marks=() if limit or not self.config.show_budget else means.marks(),
            unchecked=self.config.stop_when is not None and self._unchecked,
        )

    @property
    def _unchecked(self) -> bool:
        return self.state.answered and self.checked is not self.state.reply

    @property
    def settings(self) -> Settings:
        """How the model is asked now: a choice of tool is for the first step only."""
        settings = self.config.settings
        if settings.tool_choice == "auto" or not self.state.steps:
            return settings
        return replace(settings, tool_choice="auto")

    # Outsiders

    @property
    def grace(self) -> float:
        """Seconds for which what was cancelled is waited for: as whoever cancelled the run says, if they do."""
        return self.halt.grace(self._grace)

    def abort(self) -> None:
        """Stop, because whoever waits for this run was cancelled."""
        detaching = self.frame is not None and self.frame.detaching
        self.halt.set("detached" if detaching else "cancelled")

    @property
    def has_mail(self) -> bool:
        """Whether anything is there that nobody has heard yet, as far as this process knows."""
        return bool(self.queue) or self.record.has_mail

    async def hear(self, *, poll: bool = False) -> None:
        """Take in what outsiders left for this run; `poll` as in `Record.inbox`."""
        for posted in await self.record.inbox(poll=poll):
            if posted.kind == "late":
                late = read_late(posted.body)
                self._take_late(await fill(self.record.store, self.state.run_id, late))
            else:
                self._take(posted)
        self.write_said()

    async def overhear(self) -> None:
        """Look at what was left while nothing is written. All but a cancel waits for the next turn of the loop."""
        for posted in await self.record.peek():
            if posted.kind == "cancel":
                self._cancel(posted)
            elif posted.kind in ("decision", "supply", "withdraw"):
                call = self.state.waiting_for(pending_id_of(posted.body))
                if call is not None and call.on_word is not None:
                    call.on_word()

    def write_said(self) -> None:
        """Record what was sent; the state gives it its place. It is durable with the next commit."""
        while self.queue:
            self.record.write(Said(self.queue.pop(0)))

    def _take(self, posted: Posted) -> None:
        match posted.kind:
            case "cancel":
                self._cancel(posted)
            case "input":
                self.queue.append(content_from_json(decode(posted.body)))
            case "decision":
                self.decide(*read_decision(posted.body))
            case "supply":
                self.supply(read_supply(posted.body))
            case "withdraw":
                pending_id = pending_id_of(posted.body)
                if self.state.waiting_for(pending_id) is not None:
                    self.record.write(Withdrawn(pending_id))
            case "late":
                raise AssertionError("its content is fetched first")

    def _cancel(self, posted: Posted) -> None:
        if not self.record.is_moot(posted):
            self.halt.set("cancelled", read_cancel(posted.body))

    def _take_late(self, late: Late) -> None:
        if late.key not in self.state.late:
            self.record.write(late)
            self.emit("late_outcome", {"key": late.key, "status": late.status.value})

    def decide(self, pending_id: str, decision: Decision) -> None:
        """Record a decision, unless its call is gone: then there is nothing left to decide."""
        call = self.state.waiting_for(pending_id)
        if call is None:
            return
        edit = key = None
        if decision.edit is not None:
            edit = encode(dict(decision.edit)).decode()
            key = self._key_of(call.use, edit)
        self.record.write(
            Decided(pending_id, decision.approve, decision.by, decision.note, edit, key)
        )

    def supply(self, supplied: Supplied) -> None:
        """Record an answer or a result, unless its call is gone: nobody waits for it any more."""
        call = self.state.waiting_for(supplied.pending_id)
        pending = None if call is None else call.pending
        if call is None or pending is None:
            return
        self.record.write(supplied)
        self.emit(
            "supplied",
            {
                "wants": pending.wants,
                "id": supplied.pending_id,
                "call": call.use.id,
                "tool": call.use.name,
                "key": call.key,
                "by": supplied.by,
                "is_error": supplied.is_error,
            },
        )

    # Calls

    def prepare(self, use: ToolUse, arguments: str) -> Prepared:
        """Find the tool of a call and read its arguments; once for one call and text."""
        known = (use.id, arguments)
        if known not in self._prepared:
            tool = self.config.tools.get(use.name)
            self._prepared[known] = None if tool is None else _read(tool, arguments)
        return self._prepared[known]

    def not_called(self, use: ToolUse) -> Asked:
        """What is recorded of a tool use of which no call comes about: what in it is a secret, nobody knows."""
        tool = self.config.tools.get(use.name)
        return Asked(None, shown=canonical(MASK) if tool is not None and tool.has_secrets else "")

    def forget_turn(self) -> None:
        """The turn is over: what was read and begun for it is not needed again."""
        self._prepared.clear()
        self.early.clear()

    def _key_of(self, use: ToolUse, edit: str) -> str | None:
        """The key of a call whose arguments the host wrote; None where they do not fit."""
        prepared = self.prepare(use, edit)
        if not isinstance(prepared, tuple):
            return None
        tool, arguments = prepared
        digest = arguments_hash(arguments.given)
        keys = {call.key for call in self.state.calls}
        numbered = (
            call_key(self.state.run_id, self.state.steps, tool.name, digest, n)
            for n in range(1, len(keys) + 2)
        )
        return next(key for key in numbered if key not in keys)

    # Results

    def allowance(self, tokens: int) -> Allowance:
        """What a result of so many tokens may be."""
        return Allowance(self._chars(tokens), self.config.model.profile.reads)

    def settle(self, row: Settled, artifacts: Sequence[Artifact] = ()) -> None:
        """Write the result of a call, and what it refers to. Every result comes through here.

        The last one of a turn shares out what the turn may take: what has to give way, of it or of those
        before it, is decided now and stands in the same row, so that no replay decides it again.
        """
        if artifacts:
            self.record.put(*artifacts)
        results = [
            row if call.use.id == row.tool_use_id else call.result for call in self.state.calls
        ]
        if None not in results and (ways := self._given_way(results)):
            row = _giving_way(row, ways)
        self.record.write(row)

    def park(self) -> None:
        """Write that the run waits. What it has so far is shared out: a conversation may go on from there."""
        ways = self._given_way([call.result for call in self.state.calls])
        self.record.write(Parked(self.clock.seconds, _trims(ways)))

    def _given_way(self, results: Sequence[Settled | Trim | None]) -> dict[str, Shown]:
        """What has to be shown shorter for these results to be within what a turn may take, by call."""
        turn = [each for each in results if each is not None]
        if within(turn, self._chars(TURN_TOKENS)):
            return {}
        # A tool whose author wants more for one result has the turn grow with it.
        tools = [self.config.tools.get(call.use.name) for call in self.state.calls]
        wanted = [tool.max_result_tokens for tool in tools if tool is not None]
        chars = self._chars(max(TURN_TOKENS, *wanted, 0))
        shared = shared_out(turn, chars=chars, reads=self.config.model.profile.reads)
        ways: dict[str, Shown] = {}
        for old, new in zip(turn, shared, strict=True):
            if new is not None:
                self.record.put(*new.artifacts)
                ways[old.tool_use_id] = new.shown
        return ways

    def _chars(self, tokens: int) -> int:
        """A limit of results in tokens as one in characters. The only place where a run reckons so."""
        return chars_of(tokens, self.state.chars_per_token)

    async def aside(self, work: Callable[[], T], *, until: float, halt: Halt | None) -> T | None:
        """Have work of ours done off the event loop. None where it did not come in time.

        Units: `until` is on the event loop's clock. What is under way then, or at a halt, has the grace.
        """
        context = contextvars.copy_context()
        try:
            future = self.workers.submit(lambda: context.run(work))
        except WorkersExhausted:
            return work()
        if not await arrived(future, until=until, halt=halt):
            await outlasted(future, until=self.loop.time() + self.grace, halt=halt)
        if future.done():
            return future.result()
        self.workers.abandon(future)
        return None

    # Telling

    def write_charged(self, row: Charged) -> None:
        """Record what was billed without a reply, and tell it."""
        self.record.write(row)
        if self.listeners:
            self.emit(
                "charged",
                {
                    "usage": row.usage.to_json(),
                    "usd": str(row.usd),
                    "estimated": row.estimated,
                    "calls": row.calls,
                    "tokens": row.tokens,
                },
            )

    def listen(self, listeners: Sequence[Listener]) -> None:
        """Tell them too, from here on; those who hear already are not told twice."""
        fresh = [each for each in listeners if each not in self.listeners]
        self.listeners = (*self.listeners, *fresh)

    def emit(self, kind: EventKind, fields: Mapping[str, Any]) -> None:
        """Tell whoever watches."""
        if self.listeners:
            event = Event(kind, self.state.run_id, self.state.opened.path, self.loop.time(), fields)
            for listener in self.listeners:
                listener(event)

    def emit_threadsafe(self, kind: EventKind, fields: Mapping[str, Any]) -> None:
        """Tell, from wherever a tool's function runs. After the loop has closed nobody watches."""
        if self.listeners:
            with contextlib.suppress(RuntimeError):  # closed, perhaps at this very moment
                self.loop.call_soon_threadsafe(self.emit, kind, fields)

    @property
    def confirm(self) -> ConfirmCallback | None:
        """Who decides in process: this remit's own callback, else that of the call around it."""
        if self.config.confirm is not None or self.frame is None:
            return self.config.confirm
        return self.frame.confirm

    @property
    def answer(self) -> AnswerCallback | None:
        """Who answers questions in process, found as the one who decides."""
        if self.config.answer is not None or self.frame is None:
            return self.config.answer
        return self.frame.answer

    def callback(self, wants: PendingKind) -> ConfirmCallback | AnswerCallback | None:
        """Who is asked in process for a pending of this kind."""
        match wants:
            case "approval":
                return self.confirm
            case "input":
                return self.answer
            case "result":
                return None

    def restart_guards(self) -> None:
        """Ask the guards again: nobody can tell whether they passed the open turn before it broke off."""
        replies = sum(message.role == "assistant" for message in self.state.transcript)
        self.guards.start(self.state.transcript.before(replies))

    async def hear_guards(self) -> None:
        """Nothing that the model said counts before the guards of its call have passed it."""
        if not self.guards.open:
            return
        passed = await self.guards.passed(until=self.clock.ends_at, halt=self.halt)
        if not passed and self.halt.cause is None:
            self.record.write(Vetoed("a guard did not answer in time"))

    def _veto(self, why: str) -> None:
        if self.state.vetoed is None:
            self.record.write(Vetoed(why))
        self.halt.set("vetoed")


def _giving_way(row: Settled, ways: dict[str, Shown]) -> Settled:
    """The last row of a turn, with what is shown shorter from here on: its own result, and others."""
    own = ways.pop(row.tool_use_id, None)
    if own is not None:
        row = msgspec.structs.replace(
            row, content=own.content, kept=own.kept, artifacts=own.artifacts
        )
    return msgspec.structs.replace(row, trims=_trims(ways))


def _trims(ways: Mapping[str, Shown]) -> tuple[Trim, ...]:
    return tuple(
        [Trim(call, each.content, each.kept, each.artifacts) for call, each in ways.items()]
    )


def _read(tool: Tool[..., Any], arguments: str) -> Prepared:
    read = tool.read_arguments(arguments)
    return read if isinstance(read, BadArguments) else (tool, read)
