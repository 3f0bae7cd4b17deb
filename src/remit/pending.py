"""What a run waits for, and the words with which people and policies answer.

Values only. A `Pending` binds one exact call and is of one of three kinds: an approval is decided, an input and a
result are supplied. The token of an approval is handed out once, by the `Outcome` or the `confirm` callback, and
stands nowhere else: the store keeps its hash.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from remit.canonical import canonical
from remit.errors import ConfigurationError
from remit.tools import Effect
from remit.transcript import Transcript

__all__ = [
    "MOST_TOKENS",
    "TOKENS",
    "Allow",
    "AnswerCallback",
    "Confirm",
    "ConfirmCallback",
    "Decision",
    "Guard",
    "Pending",
    "PendingKind",
    "Policy",
    "PolicyRequest",
    "Refuse",
    "Verdict",
    "Veto",
    "keep_token",
    "mint_token",
    "token_hash",
]


PendingKind: TypeAlias = Literal["approval", "input", "result"]


@dataclass(frozen=True, slots=True)
class Pending:
    """One thing that a run waits for."""

    id: str
    """Names it for whoever holds the store."""
    kind: PendingKind
    """`approval`: the call wants a yes or no (`decide`); `input`: its body asks for a value; `result`: it was
    handed out and is executed elsewhere (both `supply`)."""
    run_id: str
    """The run that waits; for a child it is the child's."""
    path: tuple[str, ...]
    """Names of the remits from the root down to the one that waits."""
    tool: str
    arguments: str = field(repr=False)
    """The exact arguments as canonical JSON. What is marked `Secret` is masked, but for whoever executes a call of
    kind `result`: who needs the true ones."""
    summary: str
    """What the person who decides is shown; the question of an input."""
    token: str | None = field(repr=False)
    """The single-use secret that decides an approval; None where it was minted by another process."""
    expires_at: datetime
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the value that an input asks for; None for the other kinds."""
    key: str | None = None
    """The key of a call that was handed out: whoever executes it does so once for one key. Else None."""
    arguments_hash: str | None = None
    """Of an approval: SHA-256 of the true arguments, in hex, for `decide(arguments_hash=)`. Else None."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided."""

    approve: bool
    by: str
    """Who decided."""
    note: str = ""
    """Told to the model when the call is refused."""
    edit: Mapping[str, Any] | None = field(default=None, repr=False)
    """Arguments of the host's own in place of the model's; the model is told."""

    def __post_init__(self) -> None:
        """Errors: `ConfigurationError` for what would be no decision, or none that can be recorded."""
        if not isinstance(self.approve, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - a text would count as yes
            raise ConfigurationError("approve= is True or False")
        if not (isinstance(self.by, str) and self.by):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ConfigurationError("by= names whoever decides")
        if not isinstance(self.note, str):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ConfigurationError("note= is a text")
        if self.edit is None:
            return
        if not self.approve:
            raise ConfigurationError("edit= goes with approve=True")
        try:
            canonical(dict(self.edit))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"edit= is a JSON object of arguments: {error}") from error


ConfirmCallback: TypeAlias = Callable[[Pending], Awaitable[Decision]]
AnswerCallback: TypeAlias = Callable[[Pending], Awaitable[Any]]
"""Gives the value that an input asks for."""


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """What a policy sees of a call."""

    tool: str
    arguments: Mapping[str, Any]
    """As the model gave them, read losslessly."""
    effect: Effect
    deps: Any
    run_id: str


def _check_words(of: str, words: object) -> None:
    """Errors: `ConfigurationError`."""
    if not isinstance(words, str):
        raise ConfigurationError(f"{of}(...) takes a text, not {type(words).__name__}")


@dataclass(frozen=True, slots=True)
class Allow:
    """Nothing stands against it. Does not lift `effect="confirm"`."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It may not run; `why` is told to the model."""

    why: str

    def __post_init__(self) -> None:
        _check_words("Refuse", self.why)


@dataclass(frozen=True, slots=True)
class Confirm:
    """A person decides; `summary` is what that person is shown."""

    summary: str

    def __post_init__(self) -> None:
        _check_words("Confirm", self.summary)


Verdict: TypeAlias = Allow | Refuse | Confirm
Policy: TypeAlias = Callable[[PolicyRequest], Verdict | Awaitable[Verdict]]


@dataclass(frozen=True, slots=True)
class Veto:
    """A guard's no: the run ends as `vetoed`."""

    why: str

    def __post_init__(self) -> None:
        _check_words("Veto", self.why)


Guard: TypeAlias = Callable[[Transcript], Awaitable[Veto | None]]


def mint_token() -> str:
    """A fresh secret of 256 bits."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """What the store keeps of a token, or of any text that somebody takes for one."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


TOKENS: Final[dict[str, str]] = {}
"""Tokens that this process minted and nobody has used, by the id of their pending. Never written down.

All that a run which waits for an approval leaves in memory. Of more than `MOST_TOKENS` the oldest are forgotten: such
a pending is shown without its token, which whoever was handed it still has, and another can be minted.
"""
MOST_TOKENS: Final = 10_000


def keep_token(pending_id: str, token: str) -> str:
    """Remember the token of a pending, in place of an earlier one. Returns it."""
    TOKENS[pending_id] = token
    with suppress(RuntimeError):  # another thread keeps one at this very moment, and sees to it
        while len(TOKENS) > MOST_TOKENS:
            TOKENS.pop(next(iter(TOKENS)), None)
    return token
