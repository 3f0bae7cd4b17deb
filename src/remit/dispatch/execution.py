"""One execution of a tool's function: the only place of remit that enters one (C8).

Whoever makes an `Execution` has brought the call through the gate. It fills in what the host computes,
journals the start of an effect before the body is entered (E3), runs the body with its retries, and
closes the account of the call.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from remit.amounts import ZERO, Amount, Bill, Totals
from remit.bodies import Body, Ended, run_inline
from remit.budget import Reservation
from remit.canonical import encode
from remit.current import CURRENT, Frame
from remit.dispatch.telling import told
from remit.dispatch.wrapping import Descent
from remit.errors import ConfigurationError, ToolError
from remit.late import STILL_RUNNING, LateOutcome
from remit.messages import Status
from remit.preview import masking, preview
from remit.redaction import Withheld, closed, redacted_text
from remit.resources import Path
from remit.rows import Late, Started
from remit.run import Run
from remit.state import CallState
from remit.supervise import Ending, Halt, Raised, Returned, arrived, contained, give_up
from remit.tools import Arguments, Call, Effect, Tool
from remit.tools.derived import Invocation
from remit.tools.question import Answered, Interruption, Interview, Question, interruption
from remit.workers import WorkersExhausted

__all__ = ["Execution"]

QUICK_SECONDS = 0.001
"""A deterministic function that was measured below this runs on the event loop (C6)."""
_WITHHELD = "(withheld: its redaction failed)"
_RETRY_SECONDS = 0.1
"""The pause before the first retry; it doubles."""


class Execution:
    """One call that may run."""

    __slots__ = (
        "_arguments",
        "_billed",
        "_call",
        "_computed",
        "_frame",
        "_halt",
        "_interview",
        "_left_running",
        "_read_once",
        "_reserved",
        "_run",
        "_step",
        "_tool",
        "_until",
        "came_too_late",
        "carried_out",
        "entered",
        "enters_by",
        "in_doubt",
        "overshoot",
        "path",
    )

    def __init__(
        self,
        run: Run,
        call: CallState,
        tool: Tool[..., Any],
        arguments: Arguments,
        *,
        reserved: Reservation,
        until: float,
        whose_time: str,
        step: int,
        halt: Halt,
    ) -> None:
        self._run = run
        self._call = call
        self._tool = tool
        self._arguments = arguments
        self._reserved = reserved
        self._until = until
        self._step = step
        self._halt = halt
        self._computed: dict[str, Any] = {}
        self._interview: Interview | None = None
        """What the body and its wrappers ask since they were entered last; None where they cannot ask."""
        self._billed = False
        self._left_running = False
        """The body was abandoned: what it asks now nobody answers, but it ends with it as it would have."""
        self.path = Path(run.path)
        # Of an earlier entry in this activation, which may have changed what it got.
        self._read_once = bool(call.spent.calls)
        self.entered = False
        """Whether the function was called."""
        self.carried_out = False
        """It came to its end, whatever its wrappers made of that."""
        self.in_doubt = False
        """A wrapper cut it short, so that it may have taken effect."""
        self.overshoot = ZERO
        """What it charged beyond what was reserved for it, once the account is closed."""
        self.enters_by: float | None = None
        """When what lets it in is over, on the event loop's clock; None where it does not end."""
        self.came_too_late = False
        """It was over when the function was about to be entered, for instance in a thread that it waited for."""
        self._frame = Frame(
            key=call.key or "",
            caller=f"{run.state.run_id}:{call.use.id}",
            run_id=run.state.run_id,
            names=run.state.opened.path,
            budget=run.means.budget,
            store=run.record.store,
            until=until,
            whose_time=whose_time,
            settle_seconds=run.grace,
            path=self.path,
            listeners=run.listeners,
            confirm=run.confirm,
            answer=run.answer,
            redact=run.redact,
            recorded=call.recorded,
            begun=tool.effect is not Effect.READ and (call.started is not None or call.repeats),
        )

    async def compute(self) -> Ending | None:
        """Fill in what the host computes; what the journal already has stays as it was.

        Returns what went wrong, or None; also where a halt came in between.
        """
        known = {} if self._call.started is None else dict(self._call.started.computed)
        if all(parameter.name in known for parameter in self._tool.computed):
            self._computed = known
            return None
        if self._halt.cause is not None:
            return None
        task = contained(
            lambda: self._tool.evaluate_computed(self._make_call(None)),
            name=f"computed {self._tool.name}",
            halt=self._halt,
        )
        if not await arrived(task, until=self._until, halt=self._halt):
            await give_up(task, grace=self._run.grace, halt=self._halt)
            return (
                None if self._halt.cause is not None else Raised(TimeoutError("it took too long"))
            )
        ending = task.result()
        if isinstance(ending, Raised):
            return ending
        self._computed = {**ending.value, **known}
        return None

    @property
    def lost_run(self) -> bool:
        """Whether a run inside, of what was begun before, could not be taken up again."""
        return self._frame.lost

    @property
    def leaves_a_trace(self) -> bool:
        """Whether its start is journaled: of an effect always, of a read only with what was computed."""
        return self._tool.effect is not Effect.READ or bool(self._computed)

    async def start(self) -> None:
        """Journal the start. Durable on return, for everything but a read. Errors: `JournalError`."""
        secret = {parameter.name for parameter in self._tool.computed if parameter.secret}
        shown = {name: value for name, value in self._computed.items() if name not in secret}
        tool = self._tool
        self._run.record.write(Started(self._call.use.id, shown, tool.usd, tool.tokens))
        if self._tool.effect is not Effect.READ:
            await self._run.record.commit(wave=True)

    async def enter(self) -> Ended:
        """Run the body to its end; again after a failure, where the author allows it."""
        run, tool = self._run, self._tool
        if run.listeners:
            run.emit("call_started", {**self._named, "arguments": self._preview()})
        may_be_quick = tool.deterministic and not tool.is_async and not tool.wrappers
        if may_be_quick and run.quick.get(tool.name, False):
            self._interview = self._new_interview()
            ending, took = run_inline(self._code())
            run.quick[tool.name] = took < QUICK_SECONDS
            return Ended(ending)
        for attempt in range(tool.retries + 1):
            began = run.loop.time()
            ended = await self._once()
            if may_be_quick:
                run.quick[tool.name] = run.loop.time() - began < QUICK_SECONDS
            if attempt == tool.retries or self.in_doubt or not _worth_retrying(ended):
                return ended
            run.emit("call_retry", {**self._named, "attempt": attempt + 1})
            wakes = run.loop.time() + _RETRY_SECONDS * 2**attempt
            await arrived(run.loop.create_future(), until=min(wakes, self._until), halt=self._halt)
            if self._halt.cause is not None or run.loop.time() >= self._until:
                return ended
        raise AssertionError("the last attempt returns")

    def _code(self) -> Callable[[], Any]:
        """The function with its arguments, for one entry: the last one may have changed what it got."""
        arguments = self._arguments
        if self._tool.effect is not Effect.READ:
            self._frame.count_anew()
        if self._read_once:
            read = self._tool.read_arguments(self._call.arguments)
            arguments = read if isinstance(read, Arguments) else arguments
        self._read_once = True
        call = self._make_call(self._interview) if self._tool.wants_call else None
        bound = self._tool.bind(arguments.values, self._computed, call)

        def enter() -> Any:
            # A halt may have come before the first step of the task, or before the thread got there; and a
            # process that was stopped meanwhile may have lost the run, which the next commit finds out.
            if self._halt.cause is not None or not self._run.record.is_held:
                raise asyncio.CancelledError
            until = self.enters_by
            if until is not None and not self.entered and self._run.loop.time() >= until:
                self.came_too_late = True
                raise asyncio.CancelledError
            self.entered = True
            return bound()

        return enter

    async def _once(self) -> Ended:
        self._interview = self._new_interview()
        descent = self._descent() if self._tool.wrappers else None
        context = contextvars.copy_context()
        context.run(CURRENT.set, self._frame)
        try:
            body = Body(
                self._code() if descent is None else descent.enter,
                blocking=descent is None and not self._tool.is_async,
                name=f"{self._tool.name} {self._frame.key}",
                context=context,
                workers=self._run.workers,
                on_blocked=self._blocked,
            )
        except WorkersExhausted:
            return Ended(None, entered=False)

        def before_cut() -> None:
            self._frame.halt(self._halt.cause, self._halt.said)
            if descent is not None:
                descent.cut()

        ended = await body.end(
            until=self._until,
            halt=self._halt,
            grace=self._run.grace,
            before_cut=before_cut,
            on_late=self._late,
        )
        self._left_running = ended.ending is None
        if descent is not None:
            return self._come_up(descent, ended)
        if ended.ending is None and ended.entered:
            self.entered = True  # a thread has it and was left to itself: it may enter at any time
        return ended if self.entered else Ended(None, ended.cut, entered=False)

    # With wrappers around it

    def _descent(self) -> Descent:
        return Descent(
            self._tool.wrappers,
            invocation=self._invocation,
            code=self._code,
            blocking=not self._tool.is_async,
            effect=self._tool.effect,
            workers=self._run.workers,
            on_left=self._left,
            on_late=self._late,
        )

    def _invocation(self) -> Invocation:
        return Invocation(
            tool=self._tool.name,
            effect=self._tool.effect,
            arguments=copy.deepcopy(self._arguments.given),
            preview=self._preview(),
            call=self._make_call(self._interview),
        )

    def _come_up(self, descent: Descent, ended: Ended) -> Ended:
        """How it ended, once it is known what became of the function itself."""
        if ended.ending is None:
            self.entered |= descent.forsake()
        else:
            descent.close()
        self.entered |= descent.interrupted
        self.carried_out |= descent.carried_out
        self.in_doubt = descent.interrupted and not descent.carried_out
        match ended.ending:
            case Returned():
                return ended
            case Raised(error) if ended.cut is None:
                no_worker = isinstance(error, WorkersExhausted) and not self.entered
                return Ended(None, entered=False) if no_worker else ended
            case _:
                return ended if self.entered else Ended(None, ended.cut, entered=False)

    def _left(self) -> None:
        """A blocking function runs on without anybody who waits for it."""
        if self._tool.effect is not Effect.READ:
            STILL_RUNNING.add(self._frame.key, self._run.record.store)
        self._run.emit("call_abandoned", self._named)

    def _preview(self) -> str:
        """The arguments for people, without secrets."""
        if not self._tool.has_secrets:
            return preview(self._call.arguments)
        return preview(encode(self._tool.masked(self._arguments.given)).decode())

    def bill(self) -> tuple[Totals | None, Bill | None]:
        """Close the account: what the call cost itself, and what the runs inside cost.

        A call that is entered again is counted already and has paid its declared price; what its body books
        each time was spent each time. One that its wrappers answered without the function is not counted.
        """
        self._frame.over = self._billed = True
        if not self.entered and self._frame.charged is None and self._frame.inside is None:
            self._reserved.refund()
            return None, None
        counts = self.entered and not self._call.spent.calls
        calls, price = (1, (self._tool.usd, self._tool.tokens)) if counts else (0, (Decimal(0), 0))
        usd, tokens = self._frame.charged or price
        self.overshoot = self._reserved.settle(Amount(calls=calls, tokens=tokens, usd=usd))
        return Totals(calls=calls, tokens=tokens, usd=usd), self._frame.inside

    def refund(self) -> None:
        """Give back what was reserved for a call that came to nothing, unless its account is closed."""
        if not self._billed:
            self._billed = True
            self._reserved.refund()

    # Questions

    def _new_interview(self) -> Interview | None:
        asks = self._tool.wants_call or self._tool.wrappers
        return Interview(_answered(self._call)) if asks else None

    def asked(self, ending: Ending) -> Interruption | None:
        """The question that ended the body; None where it ended otherwise, swallowed questions included."""
        if self._interview is None or not isinstance(ending, Raised):
            return None
        found, ours = interruption(ending.error), self._interview.open
        if ours is not None:
            ours.with_traceback(None)  # the body has ended, and its frames hold this execution
        same = found is not None and ours is not None and found.question is ours.question
        return found if same else None

    def _ask(self, interview: Interview | None, schema: object, question: str) -> Any:
        """What `Call.ask` comes to. From whatever task or thread the body asks."""
        if self._frame.over and not self._left_running:
            raise ConfigurationError(f"the call {self._frame.key!r} has ended: it asks nobody")
        if interview is None:
            raise ToolError("a value that the host computes is not asked for: ask in the body")
        if self._tool.effect is Effect.CONFIRM:
            raise ToolError(
                f'{self._tool.name} cannot ask: the body of a tool with effect="confirm" runs once, and '
                "an answer would enter it again. Ask in a read tool before it."
            )
        return interview.ask(schema, question)

    def _make_call(self, interview: Interview | None) -> Call[Any]:
        run = self._run
        return Call(
            key=self._frame.key,
            run_id=run.state.run_id,
            step=self._step,
            deadline=self._until,
            deps=run.deps,
            clock=run.loop.time,
            on_progress=self._progress,
            on_charge=self._frame.charge,
            on_ask=functools.partial(self._ask, interview),
        )

    def _progress(self, message: str | None, fraction: float | None) -> None:
        """From whichever thread the function runs in."""
        if self._run.listeners:
            shown = message and self._shown(message)
            fields = {**self._named, "message": shown, "fraction": fraction}
            self._run.emit_threadsafe("call_progress", fields)

    def _shown(self, message: str) -> str:
        """A message of the function's, without what people are not to see."""
        redact = self._run.redact
        if redact is not None:
            made = closed(lambda: redacted_text(message, redact))
            message = _WITHHELD if isinstance(made, Withheld) else made
        return masking(message, self._tool.secrets(self._arguments.given))

    @property
    def _named(self) -> dict[str, str]:
        """The call, as its events name it."""
        return {"id": self._call.use.id, "tool": self._tool.name, "key": self._frame.key}

    def _blocked(self, seconds: float) -> None:
        self._run.emit("call_blocked", {**self._named, "seconds": seconds})

    def _late(self, ending: Ending) -> None:
        """The end of an abandoned body: kept for whoever repeats the call, never sent (T4)."""
        if not self.entered:
            return  # wrappers alone: nothing took effect
        run, tool = self._run, self._tool
        if self.asked(ending) is not None:
            STILL_RUNNING.asked(self._frame.key, run.record.store)
            return
        if tool.effect is Effect.READ:
            status = Status.OK if isinstance(ending, Returned) else Status.ERROR
            run.emit("late_outcome", {"key": self._frame.key, "status": status.value})
            return
        STILL_RUNNING.ended(
            self._late_outcome(ending), run_id=run.state.run_id, store=run.record.store
        )

    async def _late_outcome(self, ending: Ending) -> LateOutcome:
        until = self._run.loop.time() + self._tool.timeout
        result = await told(self._run, ending, self._tool, until=until, halt=None)
        shown, status = result.shown, result.status
        row = Late(
            self._frame.key,
            shown.content,
            status is not Status.OK,
            status,
            shown.kept,
            shown.artifacts,
        )
        return LateOutcome(row, result.artifacts)


def _answered(call: CallState) -> tuple[Answered, ...]:
    """What the body of a call has asked and was answered, in the order of asking."""
    return tuple(
        Answered(Question(row.schema, row.question), supplied.value, supplied.is_error)
        for row, supplied in call.answers
    )


def _worth_retrying(ended: Ended) -> bool:
    """It raised by itself, and not on purpose."""
    if ended.cut is not None or not isinstance(ended.ending, Raised):
        return False
    error = ended.ending.error
    return not isinstance(error, ToolError) and interruption(error) is None
