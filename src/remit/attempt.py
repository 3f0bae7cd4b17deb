"""One request to the model, from the first chunk to what is recorded of it.

It runs supervised and can be cut by a cancel or the clock; what was complete by then is kept (C3). Reads may
begin while the model still writes; they belong to their attempt and go with it. Whether there is another
attempt is `asking.py`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from decimal import Decimal

import msgspec

from remit.amounts import ZERO, Amount
from remit.budget import Reservation
from remit.caching import Sent, missed
from remit.dispatch.early import EarlyReads
from remit.errors import ConfigurationError, ContextExceeded, ModelError, ModelProtocolError
from remit.messages import Block, Message, Reply, StopReason, ToolUse, Usage
from remit.models.base import CUT_BACK, BlockDone, Chunk, ModelRequest, Notice, TextDelta, Underway
from remit.models.checked import checked_block, checked_reply, checked_underway, is_usage
from remit.models.seen import Seen
from remit.preview import preview
from remit.quote import Quote, cost_of
from remit.rows import Charged, Replied
from remit.rules import is_blank
from remit.run import Run
from remit.state import FINAL, RUNNABLE, Limit
from remit.supervise import Raised, Returned, arrived, contained, give_up, was_stopped

__all__ = ["Attempt"]


class Attempt:
    """One request, reserved and on its way."""

    __slots__ = (
        "_began",
        "_blocks",
        "_closing",
        "_cut_back",
        "_over",
        "_reads",
        "_request",
        "_reserved",
        "_run",
        "_seen",
        "_sent",
        "_uses",
        "until",
    )

    def __init__(
        self, run: Run, quote: Quote, reserved: Reservation, *, closing: Limit | None
    ) -> None:
        self._run = run
        self._reserved = reserved
        self._closing = closing is not None
        self.until = run.clock.ends_at if self._closing else run.means.tools_until
        """When it is cut, on the event loop's clock."""
        self._request = ModelRequest(
            instructions=run.state.opened.instructions,
            transcript=run.state.transcript,
            tools=run.config.specs,
            settings=run.settings,
            max_output=quote.max_output,
            deadline=self.until,
            output_schema=None if self._closing else run.config.output_schema,
            scratch=run.scratch,
        )
        self._reads = EarlyReads(run, allowed=not self._closing)
        self._blocks: list[Block] = []
        self._uses: list[ToolUse] = []
        self._seen = Seen()
        self._sent = False
        """Whether the model was asked at all."""
        self._over = False
        """Whether what comes is of no interest any more."""
        self._began = 0.0
        """When the model was asked, on the event loop's clock."""
        self._cut_back = False
        """Whether the wire left something out that had been sent."""

    async def make(self) -> BaseException | None:
        """Ask once. Returns the error of a failed attempt, None where a reply was recorded."""
        run = self._run
        began = self._began = run.loop.time()
        task = contained(self._consume, name=f"model {run.config.model.name}")
        in_time = await arrived(task, until=self.until, halt=run.halt)
        ending = task.result() if in_time else await give_up(task, grace=run.grace, halt=run.halt)
        self._over = True
        latency = run.loop.time() - began
        match ending:
            case _ if not self._sent:
                self._reserved.refund()
                return None
            case Returned(Reply() as reply):
                await self._accept(reply, latency)
                return None
            case Raised(error) if in_time and not was_stopped(ending, run.halt):
                await self._reads.discard()
                if isinstance(error, ContextExceeded):
                    self._overflow(error, latency)
                    return None
                self._charge(error)
                return error
            case _:
                self._keep(latency)
                return None

    async def _consume(self) -> Reply:
        """Ask, and check the reply. Errors: `ModelError`."""
        if self._run.halt.cause is not None:
            raise asyncio.CancelledError  # it came before the first step of this task
        self._sent = True
        stream = self._run.config.model.stream(self._request)
        try:
            reply = await self._read(stream)
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        self._reads.complete()
        if reply is None:
            raise ModelProtocolError("the stream ended without a reply")
        if reply.stop_reason is StopReason.TOOL_USE and not reply.message.tool_uses:
            raise ModelProtocolError("a tool turn without a tool", usage=reply.usage)
        if list(reply.message.tool_uses[: len(self._uses)]) != self._uses:
            raise ModelProtocolError("the reply has other calls than its stream", usage=reply.usage)
        return reply

    async def _read(self, stream: AsyncIterator[Chunk]) -> Reply | None:
        """Read the stream to its end, or until nobody is interested any more."""
        reply: Reply | None = None
        async for chunk in stream:
            if self._over:
                break  # it swallowed its cancellation
            if reply is not None:
                raise ModelProtocolError("the stream went on after its reply", usage=reply.usage)
            match chunk:
                case TextDelta(str(text)):
                    self._seen.show(text)
                    self._run.emit("text", {"text": text})
                case BlockDone(block):
                    self._complete(checked_block(block))
                case Notice(str(what), str(text)):
                    self._cut_back |= what == CUT_BACK
                    self._run.emit("model_notice", {"what": what, "text": text})
                case Underway(int()):
                    self._seen.learn(checked_underway(chunk))
                case Reply():
                    reply = checked_reply(chunk, self._blocks)
                case _:
                    raise ModelProtocolError(f"a stream holds no {type(chunk).__name__}")
        return reply

    def _complete(self, block: Block) -> None:
        self._blocks.append(block)
        self._seen.complete(block)
        if isinstance(block, ToolUse):
            self._uses.append(block)
            self._reads.consider(self._uses)

    async def _accept(self, reply: Reply, latency: float) -> None:
        """Record a whole reply."""
        runs = not self._closing and reply.stop_reason in RUNNABLE
        if not runs:
            await self._reads.discard()
        self._record(
            _presentable(reply),
            reply.stop_reason,
            latency=latency,
            usage=reply.usage,
            usd=reply.usd,
            runs=runs,
            beside=Charged(reply.beside, ZERO.usd, reply.beside_estimated),
        )
        if self._run.config.model.profile.cache_tokens is not None:
            self._look_at_cache(reply.usage)
        if runs:
            self._reads.hand_over()

    def _look_at_cache(self, usage: Usage | None) -> None:
        """Tell of a prefix that should have been in the cache and was not (X4)."""
        run, before = self._run, self._run.cached
        run.cached = None
        if usage is None:
            return
        form = (self._request.settings.tool_choice, self._request.output_schema is None)
        breaks = run.state.breaks.copy()
        run.cached = Sent(self._began, usage, breaks, form, self._cut_back)
        miss = None if before is None else missed(before, run.cached, run.config.model.profile)
        if miss is not None and run.listeners:
            run.emit("cache_missed", msgspec.structs.asdict(miss))

    def _keep(self, latency: float) -> None:
        """Record what was complete when a cancel or the clock cut the stream; early reads included."""
        self._record(
            _visible(self._blocks), None, latency=latency, usage=None, usd=None, runs=False
        )
        self._reads.hand_over()

    def _overflow(self, error: ContextExceeded, latency: float) -> None:
        """Record that nothing came back because the prompt is too long: `plan` makes room, or ends the run."""
        usage = error.usage if is_usage(error.usage) else Usage()
        self._record((), StopReason.CONTEXT, latency=latency, usage=usage, usd=None, runs=False)

    def _record(
        self,
        content: tuple[Block, ...],
        stop_reason: StopReason | None,
        *,
        latency: float,
        usage: Usage | None,
        usd: Decimal | None,
        runs: bool,
        beside: Charged | None = None,
    ) -> None:
        """Charge and write down a reply; `stop_reason` is None where it was cut short."""
        run = self._run
        message = self._named(content)
        uses = () if message is None else message.tool_uses
        billed = self._estimate() if usage is None else usage
        row = Replied(
            message=message,
            stop_reason=stop_reason or StopReason.UNKNOWN,
            usage=billed,
            usd=cost_of(run.config.model.profile, billed, usd),
            estimated=usage is None,
            asked=self._reads.intend(uses)
            if runs
            else tuple([run.not_called(use) for use in uses]),
            closing=self._closing,
            whole=stop_reason is not None,
            seconds=run.clock.seconds,
            latency=round(latency, 6),
            invalid=None if stop_reason is None else self._misfit(message, stop_reason),
        )
        actual = Amount(
            steps=0 if self._closing or message is None else 1, tokens=billed.total, usd=row.usd
        )
        if beside is not None and beside.usage.total:
            # A row of its own: it says nothing about the length of the prompt.
            if usd is None:
                priced = cost_of(run.config.model.profile, beside.usage, None)
                beside = msgspec.structs.replace(beside, usd=priced)
            run.write_charged(beside)
            actual += Amount(tokens=beside.usage.total, usd=beside.usd)
            billed += beside.usage
        overshoot = self._reserved.settle(actual, billed, estimated=row.estimated)
        run.record.write(
            row if overshoot == ZERO else msgspec.structs.replace(row, overshoot=overshoot)
        )
        if run.listeners:
            _tell(run, row, overshoot)

    def _misfit(self, message: Message | None, stop_reason: StopReason) -> str | None:
        """Why an answer is not the typed output that is asked for; None where it is, or is no answer."""
        config = self._run.config
        if config.output is None or message is None or self._closing:
            return None
        if stop_reason not in FINAL or message.tool_uses or not message.text.strip():
            return None
        return config.output.misfit(message.text, native=config.output_schema is not None)

    def _named(self, content: tuple[Block, ...]) -> Message | None:
        """The message with ids that are unique in the transcript (T3)."""
        if not content:
            return None
        uses = [block for block in content if isinstance(block, ToolUse)]
        if not uses:
            return Message("assistant", content)
        fresh = iter(self._run.state.transcript.fresh_ids(uses))
        return Message(
            "assistant", tuple([next(fresh) if isinstance(b, ToolUse) else b for b in content])
        )

    def _charge(self, error: BaseException) -> None:
        """Charge a failed attempt: as reported, or by estimate where nothing was."""
        reported = error.usage if isinstance(error, ModelError) and is_usage(error.usage) else None
        if isinstance(error, ConfigurationError):
            reported = Usage()  # a wrong call is refused before anything is sent
        billed = self._estimate() if reported is None else reported
        usd = cost_of(self._run.config.model.profile, billed, None)
        estimated = reported is None
        actual = Amount(tokens=billed.total, usd=usd)
        overshoot = self._reserved.settle(actual, billed, estimated=estimated)
        if billed.total or usd:
            self._run.write_charged(Charged(billed, usd, estimated, overshoot=overshoot))

    def _estimate(self) -> Usage:
        """What nobody reported in full: the prompt, and what was seen of the output."""
        return self._seen.estimate(self._run.means.prompt_tokens)


def _tell(run: Run, row: Replied, overshoot: Amount) -> None:
    run.emit(
        "replied",
        {
            "stop_reason": row.stop_reason.value,
            "usage": row.usage.to_json(),
            "usd": str(row.usd),
            "estimated": row.estimated,
            "text": "" if row.message is None else row.message.text,
            "tools": [] if row.message is None else [use.name for use in row.message.tool_uses],
            "closing": row.closing,
            "whole": row.whole,
            "seconds": row.latency,
        },
    )
    if row.invalid is not None:
        run.emit("output_invalid", {"error": preview(row.invalid)})
    if overshoot != ZERO:
        run.emit("overshoot", overshoot.to_json())


def _presentable(reply: Reply) -> tuple[Block, ...]:
    """The blocks that can be kept: a call in whose middle the reply broke off is dropped (C3, case 12)."""
    content = reply.message.content
    if reply.stop_reason not in RUNNABLE and content and _is_cut(content[-1]):
        content = content[:-1]
    return _visible(content)


def _visible(content: Sequence[Block]) -> tuple[Block, ...]:
    """Without blank blocks, which providers refuse."""
    return tuple([b for b in content if not is_blank(b)])


def _is_cut(block: Block) -> bool:
    if not isinstance(block, ToolUse):
        return False
    try:
        block.parsed()
    except ValueError:
        return True
    return False
