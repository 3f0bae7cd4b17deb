"""What OpenAI's two APIs have in common: the key and the form of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from remit.testing.serve.turn import ErrorKind

__all__ = ["bearer", "openai_error"]

_ERRORS: Final[Mapping[ErrorKind, tuple[int, str, str | None, str | None, str]]] = {
    # kind: status, type, code, param, message
    "bad_request": (400, "invalid_request_error", None, None, "Invalid request."),
    "key": (
        401,
        "invalid_request_error",
        "invalid_api_key",
        None,
        (
            "Incorrect API key provided: test-****-key."
            " You can find your API key at https://platform.openai.com/account/api-keys."
        ),
    ),
    "permission": (
        403,
        "invalid_request_error",
        "unsupported_country_region_territory",
        None,
        "Country, region, or territory not supported",
    ),
    "path": (404, "invalid_request_error", None, None, "Invalid URL (POST /v1/nothing)"),
    "model": (
        404,
        "invalid_request_error",
        "model_not_found",
        "model",
        "The model `no-such-model` does not exist or you do not have access to it.",
    ),
    "context": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "messages",
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in"
            " 201240 tokens. Please reduce the length of the messages."
        ),
    ),
    "too_large": (413, "invalid_request_error", None, None, "Request body is too large."),
    "quota": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        None,
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "rate_limit": (
        429,
        "requests",
        "rate_limit_exceeded",
        None,
        (
            "Rate limit reached for requests per min (RPM): Limit 3, Used 3, Requested 1."
            " Please try again in 20s."
        ),
    ),
    "server": (
        500,
        "server_error",
        "server_error",
        None,
        "The server had an error while processing your request. Sorry about that!",
    ),
    "overloaded": (
        503,
        "service_unavailable_error",
        "slow_down",
        None,
        "The engine is currently overloaded, please try again later",
    ),
}


def openai_error(kind: ErrorKind, text: str | None) -> tuple[int, dict[str, Any]]:
    """Status and body of an error."""
    status, name, code, param, usual = _ERRORS[kind]
    error = {"message": text or usual, "type": name, "param": param, "code": code}
    return status, {"error": error}


def bearer(headers: Mapping[str, str]) -> str | None:
    """The key of a request; Azure has a header of its own for it."""
    return headers.get("authorization", "").removeprefix("Bearer ") or headers.get("api-key")
