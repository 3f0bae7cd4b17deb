"""The way of one call through the gate, to its one result (C8).

In this order: its tool and its arguments, whether the tool is available, the policy, doubts about an earlier
entry, approval where one is due, the budget, the calls before it, the guards, its resources; then the body, or
whoever executes it elsewhere. Whatever stops it on the way becomes its result. A `Passage` that began early, while
its reply was still written, withholds its result until the reply turns out to be one whose calls run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from remit.amounts import NOTHING, ZERO, Amount, Bill, Totals
from remit.bodies import Ended
from remit.budget import Exhausted, Reservation
from remit.canonical import arguments_hash
from remit.dispatch.clearance import Clearance
from remit.dispatch.execution import Execution
from remit.dispatch.outside import come_back, hand_out, missed, put_question
from remit.dispatch.person import ask_person
from remit.dispatch.results import (
    OUT_OF,
    Result,
    as_outcome,
    as_shown,
    interrupted,
    no_call,
    not_run,
    said,
    unknown,
)
from remit.dispatch.telling import edited_words, told, told_of_lost_run
from remit.late import STILL_RUNNING, LateOutcome, known_late
from remit.means import limit_of
from remit.messages import Status
from remit.outcome import Outcome, Reason
from remit.preview import preview, preview_of
from remit.resources import PROCESS, Path
from remit.rows import Awaits, Ends, Settled, TurnedBack
from remit.run import Run
from remit.schedule import Footprint, shares
from remit.shown import RESULT_TOKENS
from remit.state import CallState, Limit
from remit.supervise import Ending, Halt, Raised, Returned, arrived, contained, give_up
from remit.tools import BadArguments, Effect, Tool
from remit.tools.question import MAX_QUESTIONS, Interruption

__all__ = ["MAX_CALLS", "Passage", "price_of"]

MAX_CALLS = 128
"""Calls of one turn that run; the others are answered "not run" (L1)."""


def price_of(tool: Tool[..., Any]) -> Amount:
    """What one call of a tool is reserved for."""
    return Amount(calls=1, tokens=tool.tokens, usd=tool.usd)


class Passage:
    """One call on its way."""

    __slots__ = (
        "_arguments",
        "_asked_at",
        "_bad",
        "_begun",
        "_clearance",
        "_denied",
        "_execution",
        "_fits",
        "_halt",
        "_reserved",
        "_run_until",
        "_stays_open",
        "_tool",
        "_turned_back",
        "_waited",
        "_whose_time",
        "_withheld",
        "after",
        "call",
        "finished",
        "judged",
        "result",
        "run",
        "undecided",
        "until",
    )

    def __init__(self, run: Run, call: CallState, *, halt: Halt | None = None) -> None:
        self.run = run
        self.call = call
        self.after: tuple[Passage, ...] = ()
        """The calls of the turn that this one follows."""
        self.finished: asyncio.Future[None] = run.loop.create_future()
        """Done when this call is settled or will stay open."""
        self.result: Result | None = None
        self.undecided = False
        """Somebody in process is asked about this call, or about one that it follows."""
        self._halt = halt or run.halt
        self._withheld = halt is not None
        self._begun = call.started is not None
        """Its body may have been entered before the run broke off."""
        self._denied: Limit | None = None
        self._asked_at = run.loop.time()
        self.until = self._asked_at
        """When it is cut: its own ceiling, waiting included, never past the run's."""
        self._whose_time = run.config.name
        self._waited = False
        """Others were waited for since it was judged: the filters and the policy may say something else now."""
        self._turned_back = False
        """What let it in was over before it began: it is judged anew."""
        self._reserved: Reservation | None = None
        self._execution: Execution | None = None
        self.judged: asyncio.Future[bool] | None = None
        """For a call that begins early: whether it was let in."""
        self._stays_open: Callable[[], None] | None = None
        """Writes down what a call that began early waits for, once its reply is whole."""
        self._read()

    def _read(self) -> None:
        """Find the tool and read the arguments that count: the host's own, where it edited them."""
        prepared = self.run.prepare(self.call.use, self.call.arguments)
        self._fits = isinstance(prepared, tuple)
        self._bad = prepared if isinstance(prepared, BadArguments) else None
        if isinstance(prepared, tuple):
            self._tool, self._arguments = prepared
            self._clearance = Clearance(self.run, self.call, *prepared)
            self._count_from_here()

    def _count_from_here(self) -> None:
        """The call was asked for, or approved, just now: its ceiling counts from here (C7)."""
        self._asked_at = self.run.loop.time()
        self._run_until, self._whose_time = self.run.means.tools_end()
        self.until = self._run_until
        if self._asked_at + self._tool.timeout < self.until:
            self.until = self._asked_at + self._tool.timeout
            self._whose_time = self.run.config.name

    @property
    def footprint(self) -> Footprint:
        """What it touches, with the arguments that count: the host may have edited them."""
        if self.call.edited is None or not self._fits:
            return self.call.footprint
        return self._tool.footprint(self._arguments.values)

    @property
    def entered(self) -> bool:
        """Whether the tool's function was called."""
        return self._execution is not None and self._execution.entered

    # Before anybody is asked

    def turned_away(self) -> bool:
        """Settle what cannot run whatever anybody says."""
        call, run = self.call, self.run
        why, decision = run.state.not_run, call.decision
        if self._withheld:
            why = decision = None  # the reply that holds this call is still being written
        if call.handed_out is not None:
            pass  # it is out, and only what comes back says what it came to
        elif why is not None:
            self._settle(not_run(why))
        elif call.slot.index >= MAX_CALLS:
            self._settle(not_run(f"one turn runs at most {MAX_CALLS} calls"))
        elif call.withdrawn:
            self._settle(said("Not run: the conversation went on without it.", Status.REFUSED))
        elif decision is not None and not decision.approve:
            note = f" {decision.note}" if decision.note else ""
            self._settle(said(f"Refused by {decision.by}.{note}", Status.REFUSED))
        elif self._hands_in:
            self._hand_in()
        elif not self._fits:
            self._settle(no_call(call.use.name, self._bad, run.config.tools))
        return self.result is not None

    @property
    def _hands_in(self) -> bool:
        """Whether this is the call that takes the typed output, whatever its arguments are."""
        output = self.run.config.output
        return output is not None and self.run.config.tools.get(self.call.use.name) is output.tool

    def _hand_in(self) -> None:
        """Read the typed output. It is data and no act: nobody is asked about it, and no limit keeps it out."""
        if any(call.ends == "output" for call in self.run.state.calls):
            self._settle(not_run("an earlier call of this turn has handed in the output"))
        elif self._bad is not None:
            self.run.emit("output_invalid", {"error": preview(self._bad.message)})
            self._settle(said(f"Error: {self._bad.message}", Status.ERROR))
        else:
            self._settle(said("Accepted.", Status.OK))

    # Who has to be asked

    @property
    def must_consult(self) -> bool:
        """Whether anybody has to be asked before the call can be admitted."""
        if self._asks_first:
            return False  # of this call, once there is an answer
        if self.call.handed_out is not None or self.call.question is not None:
            return True
        effect = self._tool.effect
        doubtful = self.call.repeats or self.call.started is not None
        return (
            self.run.config.policy is not None
            or bool(self._tool.conditions)
            or effect is Effect.CONFIRM
            or (doubtful and effect is not Effect.READ)
        )

    async def consult(self) -> None:
        """Ask the filters, the policy and, where an earlier entry is in doubt, whoever may know its outcome."""
        if self.call.handed_out is not None:
            await self._take_back()
            return
        if self.call.question is not None:
            await self.run.hear(poll=True)  # nobody can answer now; somebody may have just before
            if self.turned_away():
                return
        if not await self._judged():
            return
        doubtful = self.call.repeats or self.call.started is not None
        if doubtful and self._tool.effect is not Effect.READ:
            await self._resolve_doubt()
        clearance = self._clearance
        if self.result is not None or self._withheld or clearance.lacks is None:
            return
        await clearance.look_for_grant()
        wanted = None if self._halt.cause is not None else clearance.lacks
        if wanted is not None and not clearance.is_proposed(wanted):
            await clearance.propose(wanted, self._ask)

    async def _take_back(self) -> None:
        """Settle a call that was handed out: with what came back, or without."""
        call, tool = self.call, self._tool if self._fits else None
        if call.pending is not None:
            await self.run.hear(poll=True)  # nobody can bring it now; somebody may have just before
        back = await come_back(self.run, call, tool, halt=self._halt)
        self._settle(missed(call) if back is None else back)

    async def _judged(self) -> bool:
        """Ask the filters and the policy. False where the call goes no further for what they say, or did not."""
        in_time = await self._clearance.judge(self._ask)
        if self._clearance.refused is not None:
            self._settle(self._clearance.refused)
        elif not in_time or self._halt.cause is not None:
            self._stay_out()
        else:
            return True
        return False

    async def _resolve_doubt(self) -> None:
        """A body was entered under this key before; find out what came of it (E3, E4)."""
        key, effect = self.call.key or "", self._tool.effect
        row = self.run.state.late.get(key)
        store = self.run.record.store
        late = await known_late(store, key) if row is None else LateOutcome(row)
        joined = STILL_RUNNING.join(key, store)
        if late is None and joined is not None and effect is Effect.IDEMPOTENT:
            if not await arrived(joined, until=self.until, halt=self._halt):
                self._remain_unknown("the earlier, equal call still runs")
                return
            late = joined.result()
        if late is not None:
            self._settle(as_shown(late.row, late.row.status, late.artifacts))
        elif effect is Effect.CONFIRM:
            await self._reconcile(key)

    async def _reconcile(self, key: str) -> None:
        reconciler = self._tool.reconciler
        if reconciler is not None:
            ending = await self._ask(reconciler.bind(key), f"reconcile {self._tool.name}")
            if isinstance(ending, Returned) and ending.value is not None:
                self._settle(await self._told(ending))
                return
        if self.call.started is not None:
            self._remain_unknown("the run broke off while it ran")

    def _remain_unknown(self, why: str) -> None:
        """Nobody could say. On a detach whoever resumes may ask again."""
        if self._halt.cause != "detached":
            self._settle(unknown(why))

    # The budget

    def admit(self) -> bool:
        """Let the call in, in call order. False where it was settled, or waits for somebody else."""
        if self._asks_first:
            return True
        if self._lacks_approval:
            return self.run.confirm is not None and not self._withheld
        return self._reserve()

    @property
    def _asks_first(self) -> bool:
        """Its body has a question that somebody in process can answer now."""
        return self.call.ask_again and self.call.question is not None

    @property
    def _lacks_approval(self) -> bool:
        return self._clearance.lacks is not None

    def _reserve(self) -> bool:
        """Take what the call needs from every account up to the root."""
        run = self.run
        if run.loop.time() >= self._run_until:
            self._denied = Limit(Reason.DEADLINE, run.clock.end()[1])
            self._settle(not_run("the time of this task is over"))
            return False
        price = price_of(self._tool)
        if self._begun or self.call.spent.calls:
            price = price.beyond(self.call.spent.amount)  # what was counted for it already
        reserved = run.means.reserve_call(price)
        if isinstance(reserved, Exhausted):
            self._denied = limit_of(reserved)
            self._settle(not_run(OUT_OF[reserved.dimension]))
            return False
        self._reserved = reserved
        return True

    # The way in

    async def carry(self) -> None:
        """Bring an admitted call to its end. Errors: `JournalError`."""
        try:
            await self._carry()
        finally:
            if self._reserved is not None:
                self._reserved.refund()
                self._reserved = None
            elif self.result is None and self._stays_open is None and self._execution is not None:
                self._execution.refund()
            self.finished.set_result(None)

    async def _carry(self) -> None:
        decided_first = [earlier for earlier in self.after if earlier.undecided]
        asks_first = self._asks_first
        self.undecided = asks_first or self._lacks_approval or bool(decided_first)
        while asks_first or self._lacks_approval:
            if not await self._ask_somebody():
                return
            asks_first = False
        for earlier in self.after:
            # A person may think for longer than this call may take; it counts from then (E6).
            until = None if earlier in decided_first else self.until
            self._waited |= not earlier.finished.done()
            if not await arrived(earlier.finished, until=until, halt=self._halt):
                self._stay_out()
                return
            if earlier.result is None and shares(earlier.footprint, self.footprint):
                return  # it waits for somebody, and this call stays behind it (E6)
        if decided_first:
            self._count_from_here()
        if self._tool.deterministic and not self.call.answers:
            await self._remember()
        else:
            await self._pass()

    async def _ask_somebody(self) -> bool:
        """Have the call decided or answered in process. False where it goes no further now."""
        run, question = self.run, self.call.question
        if not await ask_person(run, self.call):
            if run.halt.cause is None and run.loop.time() >= run.clock.calendar_end:
                self._denied = Limit(Reason.DEADLINE, run.clock.end()[1])
                did = "decided" if question is None else "answered"
                self._settle(not_run(f"nobody {did} in time"))
            return False
        self._read()
        if self.turned_away():
            return False
        await self.consult()
        return self.result is None and (self._lacks_approval or self._reserve())

    async def _remember(self) -> None:
        """Equal deterministic calls of a run share one execution."""
        name = self._memo
        known = await self._remembered(name)
        if known is not None:
            self._settle(known)
            return
        self.run.remembering[name] = self
        await self._pass()

    async def _remembered(self, name: str) -> Result | None:
        """What an equal call came to, if it went well; one that began early has no row yet."""
        row = self.run.state.memo.get(name)
        if row is not None:
            return as_shown(row, row.status)
        first = self.run.remembering.get(name)
        self._waited |= first is not None
        if first is None or not await arrived(first.finished, until=self.until, halt=self._halt):
            return None
        result = first.result
        return result if result is not None and result.status is Status.OK else None

    async def _pass(self) -> None:
        """Guards, resources, the record, the body."""
        run, footprint = self.run, self.footprint
        if self._tool.effect is not Effect.READ and not await self._guards_passed():
            return
        if self._tool.is_elsewhere:
            await self._hand_out()
            return
        execution = self._execution = Execution(
            run,
            self.call,
            self._tool,
            self._arguments,
            reserved=self._take_reservation(),
            until=self.until,
            whose_time=self._whose_time,
            step=run.state.steps + (1 if self._withheld else 0),
            halt=self._halt,
        )
        claim = PROCESS.request(
            footprint.resources or (), exclusive=footprint.writes, path=execution.path
        )
        try:
            if claim.future is not None:
                self._waited = True
                await arrived(claim.future, until=self.until, halt=self._halt)
            ended = await self._run(execution) if claim.granted else None
        finally:
            claim.release()
        if ended is not None:
            await self._conclude(ended, execution)
        elif self.result is None and not self._turned_back:
            self._stay_out()
        lasting = self._tool.effect is not Effect.READ or self.call.question is not None
        if lasting and run.state.calls:
            await run.record.commit(wave=True)

    async def _hand_out(self) -> None:
        """Hand the call out once its turn has come; what holds its resources elsewhere is not known here."""
        run, footprint = self.run, self.footprint
        summary = await self._clearance.in_words(self._ask)
        claim = PROCESS.request(
            footprint.resources or (), exclusive=footprint.writes, path=Path(run.path)
        )
        try:
            if claim.future is not None:
                self._waited = True
                await arrived(claim.future, until=self.until, halt=self._halt)
            if claim.granted and not await self._still_let_in():
                return
            in_time = self._halt.cause is None and run.loop.time() < self.until
            if not (claim.granted and in_time):
                self._stay_out()
                return
            self._clearance.record_grant()
            now = run.clock.utc()
            await hand_out(
                run,
                self.call,
                self._tool,
                self._arguments,
                summary=summary,
                now=now,
                reserved=self._take_reservation(),
            )
        finally:
            claim.release()

    def _take_reservation(self) -> Reservation:
        reserved, self._reserved = self._reserved, None
        if reserved is None:
            raise RuntimeError("nothing begins without a reservation: admit() comes first")
        return reserved

    async def _guards_passed(self) -> bool:
        """Effects wait for every guard that can veto them (case 33)."""
        if not self.run.guards.open and self._halt.cause is None:
            return True
        self._waited = True
        if await self.run.guards.passed(until=self.until, halt=self._halt):
            return True
        self._stay_out()
        return False

    async def _run(self, execution: Execution) -> Ended | None:
        """Journal the start and run the body. None where it was not entered after all."""
        failed = await execution.compute() if self._tool.computed else None
        if isinstance(failed, Raised):
            kind = type(failed.error).__name__
            self._settle(said(f"Error: a value of the host is missing ({kind}).", Status.ERROR))
            return None
        if not await self._still_let_in():
            return None
        clearance = self._clearance
        clearance.record_grant()
        until = None if self._begun else clearance.granted_until
        if until is not None:
            left = (until - self.run.clock.utc()).total_seconds()
            execution.enters_by = self.run.loop.time() + left
        if self._halt.cause is None and execution.leaves_a_trace:
            await execution.start()
            if until is not None and not await clearance.still_holds():
                self._turn_back()  # it was revoked while the start was made durable
                return None
        if self._halt.cause is not None or self.run.loop.time() >= self.until:
            return None
        return await execution.enter()

    async def _still_let_in(self) -> bool:
        """Whether what let it in still does, now that it is about to begin; else it is settled, or judged anew."""
        if self._waited and self.must_consult and not await self._judged():
            return False
        self._turned_back = not await self._clearance.still_holds()
        return not self._turned_back

    def _turn_back(self) -> None:
        """It was about to begin, and does not: no body was entered, and it is judged anew."""
        self._turned_back = True
        self.run.record.write(TurnedBack(self.call.use.id))

    # The result

    async def _conclude(self, ended: Ended, execution: Execution) -> None:
        """Turn the end of a body into the result of its call."""
        ending = ended.ending
        if execution.came_too_late:
            self._turn_back()
        elif ending is None and not ended.entered:
            self._stay_out("no worker was free" if ended.cut is None else None)
        elif ending is None:
            self._abandon(ended)
        elif ended.cut is None and (asked := execution.asked(ending)) is not None:
            self._stay_open_for(asked, execution)
        elif isinstance(ending, Raised):
            if ended.cut is None:
                self._settle(await self._of_failure(ending, execution))
            else:
                self._interrupt(ended)
        elif (outcome := self._waits_for(ending.value)) is not None:
            self._stay_open(lambda: self._await_run(outcome.run_id, execution))
        else:
            self._settle(await self._told(ending))

    async def _of_failure(self, raised: Raised, execution: Execution) -> Result:
        """What the model is told of an error: of an effect also whether it was carried out all the same."""
        effect = self._tool.effect is not Effect.READ
        if effect and execution.in_doubt:
            return unknown("what is wrapped around it cut it short")
        if execution.lost_run:
            return told_of_lost_run(self.run, self.call, raised.error)
        return await self._told(raised, carried_out=effect and execution.carried_out)

    async def _told(self, ending: Ending, *, carried_out: bool = False) -> Result:
        return await told(
            self.run,
            ending,
            self._tool,
            until=self.until,
            halt=self._halt,
            carried_out=carried_out,
        )

    def _stay_open_for(self, asked: Interruption, execution: Execution) -> None:
        if asked.place >= MAX_QUESTIONS:
            words = f"Error: one call asks at most {MAX_QUESTIONS} questions."
            self._settle(said(words, Status.ERROR))
        else:
            self._stay_open(
                lambda: put_question(
                    self.run, self.call, self._tool, self._arguments, asked, execution
                )
            )

    def _stay_open(self, write: Callable[[], None]) -> None:
        """Write down what the call waits for; of one that began early when its reply is known to be whole."""
        why = self.run.state.not_run
        if self._withheld:
            self._stays_open = write
        elif why is not None:
            self._settle(said(f"Error: it waits for somebody, and {why}.", Status.ERROR))
        else:
            write()

    def _await_run(self, run_id: str, execution: Execution) -> None:
        spent, inside = execution.bill()
        self.run.record.write(
            Awaits(
                self.call.use.id,
                run_id,
                inside or NOTHING,
                spent or Totals(),
                execution.overshoot,
            )
        )

    def _waits_for(self, value: object) -> Outcome[object] | None:
        """A run inside waits for somebody, so this call does. A confirmed call has had its one entry."""
        inside = as_outcome(value)
        waits = inside is not None and inside.reason is Reason.WAITING
        return inside if waits and self._tool.effect is not Effect.CONFIRM else None

    def _abandon(self, ended: Ended) -> None:
        key = self.call.key or ""
        if self._tool.effect is not Effect.READ:
            STILL_RUNNING.add(key, self.run.record.store)
        named = {"id": self.call.use.id, "tool": self._tool.name, "key": key}
        self.run.emit("call_abandoned", named)
        self._interrupt(ended)

    def _interrupt(self, ended: Ended) -> None:
        """The body was cut. On a detach the call stays open and in doubt."""
        if ended.cut == "time":
            seconds = self.run.loop.time() - self._asked_at
            self._settle(interrupted(self._tool, f"no answer within {seconds:.3g} s"))
        elif self._halt.cause != "detached":
            self._settle(interrupted(self._tool, "it was interrupted: the run was stopped"))

    def _stay_out(self, why: str | None = None) -> None:
        """The body is not entered. On a detach the call stays open, and whoever resumes knows that it was not."""
        if self._halt.cause == "detached":
            if self.call.started is not None and not self._begun and not self.entered:
                self._turn_back()
            return
        words = {None: "it waited until its time was over", "cancelled": "the run was cancelled"}
        self._settle(not_run(why or words.get(self._halt.cause, "a guard vetoed this turn")))

    def _settle(self, result: Result) -> None:
        """The first result is the only one (T4). What was begun once is never told as not run (E3)."""
        if self.result is None:
            if self._begun and result.status in (Status.NOT_STARTED, Status.REFUSED):
                result = unknown("it was begun before the run broke off, and not again since")
            elif result.status is Status.NOT_STARTED and self._asked_before:
                result = msgspec.structs.replace(result, status=Status.ERROR)
            self.result = result
            if not self._withheld:
                self._publish(result)

    def _publish(self, result: Result) -> None:
        """Write the result down, with what the call cost."""
        run, call = self.run, self.call
        spent, inside = (None, None) if self._execution is None else self._execution.bill()
        tool = self._tool if self._fits else None
        words = edited_words(call, run.config.tools.get(call.use.name))
        if words:
            result = result.behind(words, run.allowance(RESULT_TOKENS).chars)
        ends = self._ends(result)
        remembered = (
            tool is not None
            and tool.deterministic
            and not call.answers
            and result.status is Status.OK
        )
        run.settle(
            Settled(
                tool_use_id=call.use.id,
                content=result.shown.content,
                is_error=result.status is not Status.OK,
                status=result.status,
                spent=spent,
                children=inside,
                denied=None if self._denied is None else str(self._denied),
                memo=self._memo if remembered and not words else None,
                polling=tool is not None and tool.polling,
                overshoot=self.overshoot,
                ends=ends,
                words=words if ends == "done" else "",
                kept=result.shown.kept,
                artifacts=result.shown.artifacts,
            ),
            result.artifacts,
        )
        if self.result is not None and self.result.artifacts:
            # They are the journal's from here on, and a deterministic call is remembered for the whole run.
            self.result = Result(self.result.shown, self.result.status)
        if run.listeners:
            run.emit(
                "call_settled",
                {
                    "id": call.use.id,
                    "tool": call.use.name,
                    "key": call.key,
                    "status": result.status.value,
                    "seconds": run.loop.time() - self._asked_at,
                    "preview": self._preview(result),
                },
            )

    def _ends(self, result: Result) -> Ends:
        """What the result means for the run."""
        if self._hands_in:
            fits = result.status is Status.OK
            return "output" if fits else "invalid" if result.status is Status.ERROR else ""
        ends = self._fits and self._tool.ends_run and result.status is Status.OK
        return "done" if ends else ""

    def _preview(self, result: Result) -> str:
        """The result for people. A secret that a tool repeats is masked there too."""
        content = result.shown.content
        if self._fits:
            return preview_of(content, hide=self._tool.secrets(self._arguments.given))
        tool = self.run.config.tools.get(self.call.use.name)
        if tool is not None and tool.has_secrets:  # what does not fit may be quoted
            return "Error: the arguments do not fit."
        return preview_of(content)

    # Began early

    async def begin_early(self) -> None:
        """The whole way, without anybody's approval. Never raises for what the call itself does."""
        let_in = False
        judged = self.judged = self.run.loop.create_future()
        try:
            if not self.turned_away() and self.must_consult:
                await self.consult()
            let_in = self.result is None and self.admit()
        finally:
            judged.set_result(let_in or self.result is not None)
        if let_in:
            await self.carry()
        else:
            self.finished.set_result(None)

    def adopt(self, call: CallState) -> None:
        """The reply is whole and holds this call: what was withheld becomes its result."""
        if not self._withheld:
            return  # it was adopted before, by somebody who then broke off
        self.call = call
        self._withheld = False
        if self.result is not None:
            self._publish(self.result)
        elif self._stays_open is not None:
            self._stay_open(self._stays_open)

    def bill_discarded(self) -> tuple[Totals | None, Bill | None]:
        """Close the account of a read that will never have a result: its own cost, and that inside."""
        return (None, None) if self._execution is None else self._execution.bill()

    # Small parts

    @property
    def _asked_before(self) -> bool:
        """It is a read that was entered, asked or waited for a run inside, and may come no further."""
        return self.call.spent.calls > 0 and not self.call.footprint.writes

    @property
    def overshoot(self) -> Amount:
        """What the call charged beyond what was reserved for it."""
        return ZERO if self._execution is None else self._execution.overshoot

    @property
    def _memo(self) -> str:
        return f"{self._tool.name}:{arguments_hash(self._arguments.given)}"

    async def _ask(self, code: Callable[[], Any], name: str) -> Ending | None:
        """Run a piece of the host's code under supervision; None where it did not come in time."""
        task = contained(code, name=name, halt=self._halt)
        if await arrived(task, until=self.until, halt=self._halt):
            return task.result()
        await give_up(task, grace=self.run.grace, halt=self._halt)
        return None
