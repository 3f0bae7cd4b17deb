"""What a call waits for, as others see it, and asking about it in process: `confirm` and `answer` callbacks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from remit.canonical import arguments_hash, encode, parse_json
from remit.errors import ConfigurationError, DecisionError, PutOff
from remit.events import EventKind
from remit.log import LOGGER
from remit.pending import TOKENS, Decision, Pending
from remit.posts import write_decision, write_supply
from remit.preview import masking, preview
from remit.render import error_words
from remit.rows import HandedOut, Proposed, Questioned
from remit.run import Run
from remit.state import CallState
from remit.supervise import Ending, Raised, Returned, arrived, contained, give_up
from remit.tools import Arguments, Tool
from remit.tools.question import fitting

__all__ = ["ask_person", "pending_of", "tell_pending"]

BY_CALLBACK = "answer callback"
"""Who answered, where the callback did."""


def pending_of(run_id: str, path: tuple[str, ...], call: CallState) -> Pending:
    """What an open call waits for, with its token if it has one that this process minted."""
    binds = None
    match call.pending:
        case Proposed() as asked:
            summary, schema, key = asked.summary, None, None
            binds = asked.binds or arguments_hash(parse_json(asked.arguments))
        case Questioned() as asked:
            refused = f" (The last answer did not do: {asked.refused})" if asked.refused else ""
            summary = (asked.shown or asked.question or f"{call.use.name} asks for input") + refused
            schema, key = json.loads(asked.schema), None
        case HandedOut() as asked:
            summary, schema, key = asked.summary, None, call.key
        case None:
            raise ValueError("the call waits for nobody")
    return Pending(
        id=asked.pending_id,
        kind=asked.wants,
        run_id=run_id,
        path=path,
        tool=call.use.name,
        arguments=asked.arguments,
        summary=summary,
        token=TOKENS.get(asked.pending_id),
        expires_at=datetime.fromisoformat(asked.expires_at),
        schema=schema,
        key=key,
        arguments_hash=binds,
    )


def tell_pending(run: Run, call: CallState, tool: Tool[..., Any], arguments: Arguments) -> None:
    """Tell whoever watches that somebody is waited for; never the token, nor a secret."""
    if run.listeners and call.pending is not None:
        pending = pending_of(run.state.run_id, run.state.opened.path, call)
        run.emit(
            "pending",
            {
                "wants": pending.kind,
                "id": pending.id,
                "call": call.use.id,
                "tool": pending.tool,
                "effect": tool.effect.value,
                "key": call.key,
                "arguments": preview(encode(tool.masked(arguments.given)).decode()),
                "summary": pending.summary,
            },
        )


async def ask_person(run: Run, call: CallState) -> bool:
    """Put what the call waits for to the callback for it, and record what comes of that.

    The clock of the run stands still meanwhile (L4). Returns whether the call goes on now; else what it waits for
    stays open.
    Errors: `JournalError`.
    """
    call.ask_again = False
    wanted = call.pending
    ask = None if wanted is None else run.callback(wanted.wants)
    if wanted is None or ask is None:
        return False
    await run.record.commit()
    if run.record.has_mail:  # somebody may have been faster
        await run.hear()
        if call.withdrawn or call.pending is not wanted:
            return True
    pending = pending_of(run.state.run_id, run.state.opened.path, call)
    expires = run.loop.time() + (pending.expires_at - run.clock.utc()).total_seconds()
    name = f"{_callback(pending)} {pending.tool}"
    task = contained(lambda: ask(pending), name=name, halt=run.halt)
    run.clock.pause()
    try:
        until = min(expires, run.clock.calendar_end)
        came = await _answer_of(run, call, task, until=until)
    finally:
        run.clock.unpause()
    if came and not task.done():
        await give_up(task, grace=run.grace, halt=run.halt)
        return await _heard(run, call, wanted)
    said = _read(pending, task.result()) if came else None
    if not isinstance(said, bytes):
        call.unanswered = True
        if said is None:
            await give_up(task, grace=run.grace, halt=run.halt)
        elif said:
            _tell_of(run, pending, said)
        return False
    # Somebody else may have been first: what they said lies in the inbox.
    with contextlib.suppress(DecisionError):
        await run.record.store.decide(
            pending_id=pending.id, kind=pending.kind, decision=said, now=run.clock.utc()
        )
    return await _heard(run, call, wanted)


async def _heard(run: Run, call: CallState, wanted: Proposed | Questioned | HandedOut) -> bool:
    """Take in what was said of it, by whomever. Whether the call goes on now."""
    TOKENS.pop(wanted.pending_id, None)
    await run.hear(poll=True)
    return call.withdrawn or call.pending is not wanted


async def _answer_of(
    run: Run, call: CallState, task: asyncio.Task[Ending], *, until: float
) -> bool:
    """Wait for the callback, or for word that somebody elsewhere was first. False where neither came in time."""
    word: asyncio.Future[None] = run.loop.create_future()

    def heard(_: object = None) -> None:
        if not word.done():
            word.set_result(None)

    task.add_done_callback(heard)
    call.on_word = heard
    try:
        return await arrived(word, until=until, halt=run.halt)
    finally:
        call.on_word = None
        task.remove_done_callback(heard)


def _read(pending: Pending, ending: Ending) -> bytes | str:
    """What a callback came to: the bytes to record, or in words why there is nothing to record.

    No words where it was put off on purpose: nobody needs to hear of that.
    """
    match ending:
        case Raised(PutOff()):
            return ""
        case Returned(value):
            read: Callable[[Pending, Any], bytes | str] = (
                _decided if pending.kind == "approval" else _answered
            )
            return read(pending, value)
        case Raised(error):
            return error_words(error)


def _decided(_: Pending, value: Any) -> bytes | str:
    if isinstance(value, Decision):
        return write_decision(value)
    return f"it returned {type(value).__name__}, not a Decision(approve, by)"


def _answered(pending: Pending, value: Any) -> bytes | str:
    try:
        return write_supply(fitting(value, pending.schema), is_error=False, by=BY_CALLBACK)
    except ConfigurationError as error:
        return str(error)


def _tell_of(run: Run, pending: Pending, why: str) -> None:
    """Nothing came of the callback: the call waits on, and whoever wrote the callback hears why."""
    name = _callback(pending)
    LOGGER.warning("run %s: nothing came of the %s callback", run.state.run_id, name)
    if pending.token is not None:
        why = masking(why, (pending.token,))  # an error of the host's may quote what it was given
    kind: EventKind = "confirm_failed" if name == "confirm" else "answer_failed"
    run.emit(kind, {"id": pending.id, "tool": pending.tool, "error": why})


def _callback(pending: Pending) -> str:
    """The name of the callback for it."""
    return "confirm" if pending.kind == "approval" else "answer"
