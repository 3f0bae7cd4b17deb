"""The actor that asks the model: reserve, generate, charge, journal, append.

An attempt runs supervised and can be cut by a cancel or the clock; what was complete by then is kept (C3). A
failed attempt is charged and repeated without touching anything that is finished (E7). Reads may begin
while the model still writes; they belong to their attempt and go with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field, replace

from remit.budget import ZERO, Amount, Reservation
from remit.config import Note, call_with
from remit.dispatch.early import EarlyReads
from remit.errors import ModelError, ModelProtocolError, ModelUnavailable
from remit.messages import Block, Message, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import BlockDone, Chunk, ModelRequest, TextDelta
from remit.models.retry import MODEL_RETRIES, backoff
from remit.plan import Ask
from remit.quote import Quote, cost_of
from remit.rows import Asked, Charged, Failed, Noted, Replied, Said
from remit.run import Run
from remit.state import Limit
from remit.supervise import Raised, Returned, arrived, contained, give_up

__all__ = ["ask"]


async def ask(run: Run, move: Ask) -> None:
    """Carry out one model call, with its retries, and record what came of it."""
    await _say(run, move)
    for attempt in range(1 + MODEL_RETRIES):
        quote = run.quote(closing=move.closing is not None)
        reserved = (
            run.budget.reserve(quote.amount, held=move.closing is not None)
            if isinstance(quote, Quote)
            else None
        )
        if not isinstance(quote, Quote) or not isinstance(reserved, Reservation):
            return  # `plan` sees the limit itself
        await run.record.commit()
        if run.halt.cause is not None:
            reserved.refund()
            return
        if attempt == 0:
            run.guards.start(run.state.transcript)
        error = await _attempt(run, quote, reserved, closing=move.closing)
        if error is None or not await _wait_to_retry(run, attempt, error):
            break
    if not run.state.transcript.owed:
        await run.hear_guards()


async def _say(run: Run, move: Ask) -> None:
    """Put everything that is due into the newest user turn: notes, then what was queued."""
    for index, note in enumerate(run.config.notes):
        text = await _host_note(run, note)
        if text is not None and run.state.told.get(f"notes:{index}") != text:
            run.record.write(Noted(f"notes:{index}", text))
    for noted in move.notes:
        run.record.write(noted)
    while run.queue:
        run.record.write(Said(run.queue.popleft()))


async def _host_note(run: Run, note: Note) -> str | None:
    """Ask the host for its note; a note that fails or is late is left out, and that is told."""
    task = contained(lambda: call_with(note, run.deps), name="note")
    if not await arrived(task, until=run.tools_until, halt=run.halt):
        await give_up(task, grace=run.config.grace)
        return None
    match task.result():
        case Returned(str(text)) if text.strip():
            return text
        case Raised(error):
            run.emit("noted", {"source": "notes", "error": f"{type(error).__name__}: {error}"})
            return None
        case _:
            return None


@dataclass(slots=True)
class _Attempt:
    """One request while it streams."""

    run: Run
    request: ModelRequest
    reads: EarlyReads
    blocks: list[Block] = field(default_factory=list[Block])
    chars: int = 0

    async def consume(self) -> Reply:
        """Read the stream to its end. Errors: `ModelError`."""
        reply: Reply | None = None
        async with _closing(self.run.config.model.stream(self.request)) as stream:
            async for chunk in stream:
                if reply is not None:
                    raise ModelProtocolError(
                        "the stream went on after its reply", usage=reply.usage
                    )
                match chunk:
                    case TextDelta(text):
                        self.chars += len(text)
                        self.run.emit("text", {"text": text})
                    case BlockDone(block):
                        self._complete(block)
                    case Reply():
                        reply = chunk
        if reply is None:
            raise ModelProtocolError("the stream ended without a reply")
        if reply.stop_reason is StopReason.TOOL_USE and not reply.message.tool_uses:
            raise ModelProtocolError("a tool turn without a tool", usage=reply.usage)
        return reply

    def _complete(self, block: Block) -> None:
        self.blocks.append(block)
        if isinstance(block, ToolUse):
            self.chars += len(block.arguments)
            uses = [each for each in self.blocks if isinstance(each, ToolUse)]
            self.reads.consider(self.run.state.transcript.fresh_ids(uses)[-1])


async def _attempt(
    run: Run, quote: Quote, reserved: Reservation, *, closing: Limit | None
) -> BaseException | None:
    """Ask once. Returns the error of a failed attempt, None where something was recorded."""
    until = run.tools_until if closing is None else run.clock.ends_at
    request = ModelRequest(
        instructions=run.state.opened.instructions,
        transcript=run.state.transcript,
        tools=run.config.specs,
        settings=run.config.settings,
        max_output=quote.max_output,
        deadline=until,
    )
    attempt = _Attempt(run, request, EarlyReads(run, allowed=closing is None))
    began = run.loop.time()
    task = contained(attempt.consume, name=f"model {run.config.model.name}")
    in_time = await arrived(task, until=until, halt=run.halt)
    ending = task.result() if in_time else await give_up(task, grace=run.config.grace)
    latency = run.loop.time() - began
    match ending:
        case Returned(Reply() as reply):
            await _accept(run, attempt, reply, reserved, closing=closing, latency=latency)
            return None
        case Raised(error) if in_time:
            await attempt.reads.discard()
            usage = error.usage if isinstance(error, ModelError) else None
            _charge(run, reserved, usage, attempt.chars)
            return error
        case _:
            await _keep(run, attempt, reserved, closing=closing, latency=latency)
            return None


async def _accept(
    run: Run,
    attempt: _Attempt,
    reply: Reply,
    reserved: Reservation,
    *,
    closing: Limit | None,
    latency: float,
) -> None:
    """Record a whole reply."""
    content = _presentable(reply)
    runs = closing is None and reply.stop_reason in (StopReason.TOOL_USE, StopReason.END_TURN)
    if not runs:
        await attempt.reads.discard()
    usage = reply.usage or run_estimate(run, attempt.chars)
    _write(
        run,
        reserved,
        Replied(
            message=_named(run, content),
            stop_reason=reply.stop_reason,
            usage=usage,
            usd=cost_of(run.config.model.profile, usage, reply.usd),
            estimated=reply.usage is None,
            asked=_asked(run, content, runs=runs),
            closing=closing is not None,
            whole=True,
            seconds=run.clock.seconds,
            latency=latency,
        ),
    )
    if runs:
        attempt.reads.hand_over()


async def _keep(
    run: Run,
    attempt: _Attempt,
    reserved: Reservation,
    *,
    closing: Limit | None,
    latency: float,
) -> None:
    """Keep what was complete when a cancel or the clock cut the stream; early reads included."""
    content = tuple(block for block in attempt.blocks if not _is_blank(block))
    usage = run_estimate(run, attempt.chars)
    _write(
        run,
        reserved,
        Replied(
            message=_named(run, content),
            stop_reason=StopReason.UNKNOWN,
            usage=usage,
            usd=cost_of(run.config.model.profile, usage, None),
            estimated=True,
            asked=_asked(run, content, runs=False),
            closing=closing is not None,
            whole=False,
            seconds=run.clock.seconds,
            latency=latency,
        ),
    )
    attempt.reads.hand_over()


def _write(run: Run, reserved: Reservation, row: Replied) -> None:
    step = 0 if row.closing or row.message is None else 1
    actual = Amount(steps=step, tokens=row.usage.total, usd=row.usd)
    overshoot = reserved.settle(actual, row.usage, estimated=row.estimated)
    run.record.write(replace(row, overshoot=overshoot) if overshoot != ZERO else row)
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
            "seconds": row.latency,
        },
    )
    if overshoot != ZERO:
        run.emit("overshoot", overshoot.to_json())


def _charge(run: Run, reserved: Reservation, usage: Usage | None, chars: int) -> None:
    """Charge a failed attempt: as reported, or by estimate where nothing was."""
    billed = run_estimate(run, chars) if usage is None else usage
    usd = cost_of(run.config.model.profile, billed, None)
    reserved.settle(Amount(tokens=billed.total, usd=usd), billed, estimated=usage is None)
    if billed.total or usd:
        run.record.write(Charged(billed, usd, usage is None))


async def _wait_to_retry(run: Run, attempt: int, error: BaseException) -> bool:
    """Wait until the next attempt. False where there is none, and then it is recorded why."""
    transient = isinstance(error, ModelUnavailable | ModelProtocolError)
    seconds = backoff(
        attempt,
        seed=run.state.run_id,
        retry_after=error.retry_after if isinstance(error, ModelUnavailable) else None,
    )
    wakes = run.loop.time() + seconds
    if not transient or attempt == MODEL_RETRIES or wakes >= run.clock.ends_at:
        why = str(error) or "no reason given"
        run.record.write(Failed(f"{type(error).__name__}: {why}"))
        return False
    run.emit("model_retry", {"attempt": attempt + 1, "after": seconds, "error": str(error)})
    await arrived(run.loop.create_future(), until=wakes, halt=run.halt)
    return run.halt.cause is None


@contextlib.asynccontextmanager
async def _closing(stream: AsyncIterator[Chunk]) -> AsyncGenerator[AsyncIterator[Chunk]]:
    """Close the stream behind us, where it can be closed."""
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def _presentable(reply: Reply) -> tuple[Block, ...]:
    """The blocks that can be kept: a call that the output limit cut is dropped (C3, case 12)."""
    content = list(reply.message.content)
    if reply.stop_reason is StopReason.LENGTH and content and _is_cut(content[-1]):
        content.pop()
    return tuple(block for block in content if not _is_blank(block))


def _is_cut(block: Block) -> bool:
    if not isinstance(block, ToolUse):
        return False
    try:
        block.parsed()
    except ValueError:
        return True
    return False


def _is_blank(block: Block) -> bool:
    return isinstance(block, Text) and not block.text.strip()


def _named(run: Run, content: tuple[Block, ...]) -> Message | None:
    """The message with ids that are unique in the transcript (T3)."""
    if not content:
        return None
    uses = [block for block in content if isinstance(block, ToolUse)]
    fresh = iter(run.state.transcript.fresh_ids(uses))
    return Message(
        "assistant", tuple(next(fresh) if isinstance(b, ToolUse) else b for b in content)
    )


def _asked(run: Run, content: tuple[Block, ...], *, runs: bool) -> tuple[Asked, ...]:
    uses = [block for block in content if isinstance(block, ToolUse)]
    if not runs:
        return tuple(Asked(None) for _ in uses)
    return run.intend(run.state.transcript.fresh_ids(uses))


def run_estimate(run: Run, chars: int) -> Usage:
    """What an attempt is charged that reported nothing: its prompt, and what was seen of its output."""
    return Usage(input=run.prompt_tokens, output=chars // 4)
