"""One execution of a tool's function: the only place of remit that enters one (C8).

Whoever makes an `Execution` has brought the call through the gate. It fills in what the host computes,
journals the start of an effect before the body is entered (E3), runs the body with its retries, and
closes the account of the call.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from remit.bodies import Body, Ended, run_inline
from remit.budget import ZERO, Amount, Bill, Reservation, Totals
from remit.current import CURRENT, Frame
from remit.dispatch.results import of_ending
from remit.errors import ToolError
from remit.late import STILL_RUNNING
from remit.messages import Status
from remit.preview import preview
from remit.resources import Path
from remit.rows import Late, Started
from remit.run import Run
from remit.state import CallState
from remit.supervise import Ending, Halt, Raised, arrived, contained, give_up
from remit.tools import Arguments, Call, Effect, Tool
from remit.workers import WorkersExhausted

__all__ = ["Execution"]

QUICK_SECONDS = 0.001
"""A deterministic function that was measured below this runs on the event loop (C6)."""
_RETRY_SECONDS = 0.1
"""The pause before the first retry; it doubles."""


class Execution:
    """One call that may run."""

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
        self.path = Path(run.path)
        self.entered = False
        """Whether the function was called."""
        self.overshoot = ZERO
        """What it charged beyond what was reserved for it, once the account is closed."""
        self._frame = Frame(
            key=call.key or "",
            caller=f"{run.state.run_id}:{call.use.id}",
            run_id=run.state.run_id,
            names=run.state.opened.path,
            budget=run.budget,
            store=run.record.store,
            until=until,
            whose_time=whose_time,
            settle_seconds=run.grace,
            path=self.path,
            listeners=run.listeners,
            confirm=run.confirm,
            recorded=call.recorded,
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
            lambda: self._tool.evaluate_computed(self._make_call()),
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
        code = self._body(self._arguments)
        if run.listeners:
            run.emit("call_started", {**self._named, "arguments": preview(self._call.arguments)})
        may_be_quick = tool.deterministic and not tool.is_async
        if may_be_quick and run.quick.get(tool.name, False):
            ending, took = run_inline(code)
            run.quick[tool.name] = took < QUICK_SECONDS
            return Ended(ending)
        for attempt in range(tool.retries + 1):
            if attempt:
                code = self._read_anew()
            began = run.loop.time()
            ended = await self._once(code)
            if may_be_quick:
                run.quick[tool.name] = run.loop.time() - began < QUICK_SECONDS
            if attempt == tool.retries or not _worth_retrying(ended):
                return ended
            run.emit("call_retry", {**self._named, "attempt": attempt + 1})
            wakes = run.loop.time() + _RETRY_SECONDS * 2**attempt
            await arrived(run.loop.create_future(), until=min(wakes, self._until), halt=self._halt)
            if self._halt.cause is not None or run.loop.time() >= self._until:
                return ended
        raise AssertionError("the last attempt returns")

    def _body(self, arguments: Arguments) -> Callable[[], Any]:
        bound = self._tool.bind(arguments.values, self._computed, self._make_call())

        def enter() -> Any:
            # A halt may have come before the first step of the task, or before the thread got there.
            if self._halt.cause is not None:
                raise asyncio.CancelledError
            self.entered = True
            return bound()

        return enter

    def _read_anew(self) -> Callable[[], Any]:
        """The body for another attempt: the last one may have changed the arguments that it got."""
        read = self._tool.read_arguments(self._call.arguments)
        return self._body(read if isinstance(read, Arguments) else self._arguments)

    async def _once(self, code: Callable[[], Any]) -> Ended:
        context = contextvars.copy_context()
        context.run(CURRENT.set, self._frame)
        try:
            body = Body(
                code,
                blocking=not self._tool.is_async,
                name=f"{self._tool.name} {self._frame.key}",
                context=context,
                workers=self._run.workers,
                on_blocked=self._blocked,
            )
        except WorkersExhausted:
            return Ended(None, entered=False)
        ended = await body.end(
            until=self._until,
            halt=self._halt,
            grace=self._run.grace,
            before_cut=lambda: self._frame.halt(self._halt.cause),
            on_late=self._late,
        )
        if ended.ending is None and ended.entered:
            self.entered = True  # a thread has it and was left to itself: it may enter at any time
        return ended if self.entered else Ended(None, ended.cut, entered=False)

    def bill(self) -> tuple[Totals | None, Bill | None]:
        """Close the account: what the call cost itself, and what the runs inside cost.

        A call that is entered again is counted already and has paid its declared price; what its body books
        each time was spent each time.
        """
        self._frame.over = True
        if not self.entered:
            self._reserved.refund()
            return None, None
        again = self._call.spent.calls > 0
        calls, price = (0, (Decimal(0), 0)) if again else (1, (self._tool.usd, self._tool.tokens))
        usd, tokens = self._frame.charged or price
        self.overshoot = self._reserved.settle(Amount(calls=calls, tokens=tokens, usd=usd))
        return Totals(calls=calls, tokens=tokens, usd=usd), self._frame.inside

    def _make_call(self) -> Call[Any]:
        run = self._run
        return Call(
            key=self._frame.key,
            run_id=run.state.run_id,
            step=self._step,
            deadline=self._until,
            deps=run.deps,
            clock=run.loop.time,
            on_progress=lambda message, fraction: run.emit_threadsafe(
                "call_progress", {**self._named, "message": message, "fraction": fraction}
            ),
            on_charge=self._frame.charge,
        )

    @property
    def _named(self) -> dict[str, str]:
        """The call, as its events name it."""
        return {"id": self._call.use.id, "tool": self._tool.name, "key": self._frame.key}

    def _blocked(self, seconds: float) -> None:
        self._run.emit("call_blocked", {**self._named, "seconds": seconds})

    def _late(self, ending: Ending) -> None:
        """The end of an abandoned body: kept for whoever repeats the call, never sent (T4)."""
        result = of_ending(ending, self._tool)
        if self._tool.effect is Effect.READ:
            self._run.emit("late_outcome", {"key": self._frame.key, "status": result.status.value})
            return
        late = Late(self._frame.key, result.content, result.status is not Status.OK, result.status)
        STILL_RUNNING.ended(late, run_id=self._run.state.run_id, store=self._run.record.store)


def _worth_retrying(ended: Ended) -> bool:
    """It raised by itself, and not on purpose."""
    if ended.cut is not None or not isinstance(ended.ending, Raised):
        return False
    return not isinstance(ended.ending.error, ToolError)
