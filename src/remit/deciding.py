"""What people and programs outside say of what a run waits for: a decision, an answer, a result, a new token.

Each is one transaction of the store, and none of it needs the run to be at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from remit.canonical import json_text
from remit.current import CURRENT
from remit.errors import ConfigurationError, DecisionError
from remit.pending import TOKENS, Decision, keep_token, mint_token, token_hash
from remit.posts import write_decision, write_supply
from remit.redaction import WITHHELD, Redactor, Withheld, closed, redacted_json
from remit.render import is_quick
from remit.report import read_state
from remit.store.base import Journal, wrong_kind
from remit.tools.question import fitting
from remit.workers import Workers

__all__ = ["decide", "new_token", "refuse_inside", "supply"]

_REASON: Final = {"type": "string"}
"""The schema of why a question is not answered."""


def refuse_inside(what: str) -> None:
    """What the model can reach has no say in what its runs wait for. Errors: `ConfigurationError`."""
    if CURRENT.get() is not None:
        raise ConfigurationError(f"{what} inside a tool body")


async def decide(
    store: Journal,
    token: str | None,
    decision: Decision,
    pending_id: str | None,
    *,
    arguments_hash: str | None,
    now: datetime,
) -> str:
    """`Remit.decide`. Gives the id of the run that proposed. Errors: `ConfigurationError`, `DecisionError`."""
    if (token is None) == (pending_id is None):
        raise ConfigurationError("name the proposal by its token or by id=, not both")
    if not isinstance(token, str | None):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError("a token is the text in Pending.token")
    run_id = await store.decide(
        token_hash=None if token is None else token_hash(token),
        pending_id=pending_id,
        arguments_hash=arguments_hash,
        decision=write_decision(decision),
        now=now,
    )
    for known, value in list(TOKENS.items()):
        if known == pending_id or value == token:
            TOKENS.pop(known, None)
    return run_id


async def supply(
    store: Journal,
    pending_id: str,
    value: Any,
    *,
    is_error: bool,
    by: str,
    redact: Redactor | None,
    workers: Workers,
    now: datetime,
) -> str:
    """`Remit.supply`. Gives the id of the run that waits for it. Errors: `ConfigurationError`, `DecisionError`."""
    if not (isinstance(by, str) and by):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
        raise ConfigurationError("by= names whoever supplies it")
    known = await store.proposal(pending_id)
    if known is None:
        raise DecisionError("unknown", "nothing of this id is waited for")
    if known.kind == "approval":
        raise wrong_kind(known.kind)
    schema: Mapping[str, Any] | None = None
    if known.kind == "input":
        asked = (await read_state(store, known.run_id)).asked(pending_id)
        schema = _REASON if is_error else asked
    text = await _fitting(value, schema, workers)
    if known.kind == "result" and redact is not None:
        made = await workers.submit(lambda: closed(lambda: redacted_json(text, redact)))
        text, is_error = (
            (json_text(WITHHELD), True) if isinstance(made, Withheld) else (made, is_error)
        )
    supplied = write_supply(text, is_error=is_error, by=by)
    return await store.decide(pending_id=pending_id, kind=known.kind, decision=supplied, now=now)


async def new_token(store: Journal, pending_id: str) -> str:
    """`Remit.new_token`. Errors: `DecisionError`."""
    token = mint_token()
    await store.renew(pending_id, token_hash(token))
    keep_token(pending_id, token)
    return token


async def _fitting(value: Any, schema: Mapping[str, Any] | None, workers: Workers) -> str:
    """What is supplied, as JSON; a large value is read in a worker. Errors: `ConfigurationError`."""
    if is_quick(value):
        return fitting(value, schema)
    return await workers.submit(lambda: fitting(value, schema))
