"""What the tests of the loop share: a remit on virtual time, and short ways to read what it did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from remit import (
    Event,
    Limits,
    MemoryStore,
    Message,
    Model,
    Outcome,
    Remit,
    Runtime,
    Text,
    ToolResult,
    Transcript,
)
from remit.models.scripted import Script, ScriptedModel
from remit.rows import Row, decode_row
from remit.testing import JudgedModel, SimulatedWorkers, validate_request
from remit.tools import Tools

LIMITS = Limits(steps=20, tokens=20_000_000, seconds=3_600)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def virtual_now() -> datetime:
    """The calendar of virtual time: it moves with the event loop's clock."""
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())


def runtime() -> Runtime:
    return Runtime(workers=SimulatedWorkers(), now=virtual_now, grace=0.5)


def through(model: ScriptedModel) -> Model:
    """What the models of desks are asked through; `test_judged.py` puts judges there."""
    return model


def desk(script: Script | ScriptedModel, tools: Tools = (), **options: Any) -> Remit[Any]:
    """A remit on virtual time whose model follows a script and keeps its requests."""
    model = (
        script
        if isinstance(script, ScriptedModel)
        else ScriptedModel(script, record=True, strict=True)
    )
    given: dict[str, Any] = {
        "name": "desk",
        "model": through(model),
        "limits": LIMITS,
        "runtime": runtime(),
        **options,
    }
    return Remit(tools=tools, **given)


def model_of(remit: Remit[Any]) -> ScriptedModel:
    model = remit.model.inner if isinstance(remit.model, JudgedModel) else remit.model
    assert isinstance(model, ScriptedModel)
    return model


def results(of: Outcome[Any] | Transcript) -> list[ToolResult]:
    """Every result of a transcript, in order."""
    transcript = of if isinstance(of, Transcript) else of.transcript
    return [result for message in transcript for result in message.tool_results]


def said(of: Outcome[Any] | Transcript) -> list[str]:
    """The text of every result, in order."""
    return [text_of(result) for result in results(of)]


def text_of(result: ToolResult) -> str:
    return "".join(getattr(block, "text", "[media]") for block in result.content)


def statuses(of: Outcome[Any] | Transcript) -> list[str]:
    return [result.status.value for result in results(of)]


async def rows(remit: Remit[Any], run_id: str) -> list[Row]:
    """What the journal holds of a run."""
    return [decode_row(row.kind, row.body) for row in await remit.store.read(run_id)]


async def everything_stored(store: MemoryStore, run_id: str) -> bytes:
    """Every byte that the store holds of a run: its rows and its inbox."""
    parts = [row.body for row in await store.read(run_id)]
    parts += [posted.body for posted in await store.inbox(run_id)]
    return b"\n".join(parts)


async def watched(
    remit: Remit[Any], prompt: str, **options: Any
) -> tuple[Outcome[Any], list[Event]]:
    """Run and keep every event."""
    async with remit.stream(prompt, **options) as live:
        events = [event async for event in live]
    return live.outcome, events


def is_sendable(transcript: Transcript | Sequence[Any]) -> bool:
    """Whether a provider would accept this history as it is."""
    validate_request((*transcript, Message("user", (Text("And now?"),))))
    return True
