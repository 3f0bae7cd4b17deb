"""Responses that are no reply: whose fault they are, whether another try can help, and what to do.

Retried is what the provider says may be retried, and otherwise what its own clients retry: 408, 409, 429 and
everything from 500. Not retried, whatever the headers say, is money that has run out. Source: the API reference
on errors, and the retry policy of the official clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from remit.errors import ContextExceeded, ModelError, ModelRejected, ModelUnavailable
from remit.messages import Usage
from remit.models.wires.anthropic.foreign import is_table
from remit.models.wires.codec import Fault
from remit.models.wires.waiting import BUSY, retry_after

__all__ = ["fault", "told_in_a_reply"]

_STATUS_OF: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "timeout_error": 504,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 529,
}
"""What an error inside of a reply would have been as a response of its own."""

_RETRIED = frozenset({408, 409, 429})

_NO_MONEY = ("billing_error", "spend_limit", "spend limit", "credit balance", "usage limits")
"""In an error's type, code or message: nothing changes until somebody pays or raises a limit."""

_TOO_LONG = (
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the context",
    "context window",
)
_REPAIRS: Final = (
    ("adaptive", re.compile(r"thinking\.type\.enabled\W+is not supported")),
    ("thinking", re.compile(r"expected thinking|must start with a thinking block")),
    (
        "opaque",
        re.compile(
            r"invalid signature|invalid data in redacted_thinking|thinking.*(cannot be modified|mismatch)"
        ),
    ),
    ("cache", re.compile(r"cache_control")),
    ("whitespace", re.compile(r"cannot end with trailing whitespace")),
    ("container", re.compile(r"container.*(expired|not found|does not exist)")),
)
"""What `Encoder.repair` may try, by what a refusal says; in lower case and without quotes of code."""

_TO_DO: Final = {
    401: "set ANTHROPIC_API_KEY, or pass api_key=",
    402: "look at the plan and the credit of the account",
    403: "the key may not do this: use another one, or ask whoever owns the account",
    404: "look at the name of the model, and at the base URL",
}

_MOST_CHARS = 500
"""Of foreign text in an error of ours."""


class _Error(msgspec.Struct):
    type: Any = None
    message: Any = None
    details: Any = None


class _Body(msgspec.Struct):
    error: Any = None


def fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """What a response with another status than 200 means; header names are in lower case."""
    error = _read(body)
    if error is None:
        shown = _clean(body[:200].decode(errors="replace"))[:80]
        said = f"what answered is not this API ({shown!r})" if shown else "the answer is empty"
        error = _Error(message=f"{said}; look at the base URL, and for a proxy on the way")
    nothing = Usage() if status < 500 or status in BUSY else None
    return _judged(status, error, headers, nothing, told=str(status))


def told_in_a_reply(error: Any, *, usage: Usage | None) -> ModelError:
    """An error that came inside of a reply, after the status said that all was well."""
    try:
        found = msgspec.convert(error, _Error)
    except msgspec.ValidationError:
        found = _Error()
    status = _STATUS_OF.get(found.type, 500) if isinstance(found.type, str) else 500
    return _judged(status, found, {}, usage, told="in the reply").error


def _read(body: bytes) -> _Error | None:
    try:
        found = msgspec.convert(msgspec.json.decode(body, type=_Body).error, _Error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found.message, str) or isinstance(found.type, str) else None


def _judged(
    status: int, error: _Error, headers: Mapping[str, str], usage: Usage | None, *, told: str
) -> Fault:
    """What an error means; `told` says where it stood."""
    kind = error.type if isinstance(error.type, str) else ""
    said = error.message if isinstance(error.message, str) else ""
    details: Any = error.details
    code = details.get("error_code") if is_table(details) else None
    code = code if isinstance(code, str) else ""
    lower = said.lower().replace("`", "")
    request = headers.get("request-id", "")
    text = ": ".join([f"{told} {_clean(kind)}".strip(), *([_clean(said)] if said else [])])
    where = f" (request {_clean(request)[:80]})" if request else ""

    def rejected(to_do: str | None = _TO_DO.get(status)) -> ModelRejected:
        return ModelRejected(f"{text}{f' - {to_do}' if to_do else ''}{where}", usage=usage)

    money = f"{kind} {code} {lower}"
    if status == 402 or any(word in money for word in _NO_MONEY):
        return Fault(rejected(_TO_DO[402]))
    if status == 413 or (status == 400 and any(words in lower for words in _TOO_LONG)):
        return Fault(ContextExceeded(text + where, usage=usage))
    repairs = [name for name, words in _REPAIRS if words.search(lower)]
    if status in (400, 404) and repairs:
        return Fault(rejected(), repairs[0])
    may = headers.get("x-should-retry")
    if may == "true" or (may != "false" and (status in _RETRIED or status >= 500)):
        return Fault(ModelUnavailable(text + where, retry_after=retry_after(headers), usage=usage))
    return Fault(rejected())


def _clean(text: str) -> str:
    """Foreign text as part of a line of ours."""
    line = " ".join("".join([char if char.isprintable() else " " for char in text]).split())
    return line if len(line) <= _MOST_CHARS else line[:_MOST_CHARS] + "..."
