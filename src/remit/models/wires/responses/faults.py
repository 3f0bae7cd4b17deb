"""Responses that are no reply: what they mean and what to do about them.

An error of this wire is `{"error": {"message", "type", "code", "param"}}`; servers that speak the wire have
other forms too. Whether another try may help follows from the status and the code, not from the wording, but
for what has no code of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from remit.errors import ContextExceeded, ModelError, ModelRejected, ModelUnavailable
from remit.messages import Usage
from remit.models.wires.codec import Fault
from remit.models.wires.responses.items import Fields, decoded, fields_of, string_of
from remit.models.wires.waiting import BUSY, retry_after

__all__ = ["CAN_GO", "Complaint", "complaint_of", "error_for", "fault_of"]

_MOST_WORDS: Final = 500
"""Characters of what a provider says."""

SPENT: Final = frozenset(
    {
        "credit_balance_exhausted",
        "insufficient_quota",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
    }
)
"""Codes and types of a limit that time does not lift: another try would only be refused again."""

_TOO_LONG = frozenset({"context_length_exceeded", "request_too_large"})
_TOO_LONG_WORDS = re.compile(
    r"maximum context length|context window|context length|input (?:is|tokens) (?:too long|exceed)"
    r"|prompt is too long|Request too large for",
    re.IGNORECASE,
)
_OPAQUE_CODES = frozenset({"invalid_encrypted_content"})
_OPAQUE_WORDS = re.compile(
    r"without its required (?:following item|'reasoning' item|reasoning item)"
    r"|encrypted content.{0,80}(?:could not|cannot|invalid)|invalid.{0,20}encrypted.content",
    re.IGNORECASE | re.DOTALL,
)
_ID_OF_ITEM = re.compile(r"input\[\d+\]\.id\Z")
_NOT_KEPT_WORDS = re.compile(
    r"Item with id '[^']*' not found|Items are not persisted|Duplicate item found with id",
    re.IGNORECASE,
)
_NOT_TAKEN_WORDS = re.compile(
    r"unknown|unsupported|not supported|unrecognized|unexpected|not permitted|extra_forbidden",
    re.IGNORECASE,
)
CAN_GO: Final = frozenset({"include", "prompt_cache_key", "reasoning", "store"})
"""Fields of a request that a server or a model may not know, and that can be left out."""
_SEALS_UNKNOWN = "Encrypted content is not supported"
_PASSING = frozenset(
    {
        "rate_limit_exceeded",
        "slow_down",
        "server_error",
        "server_overloaded",
        "overloaded",
        "overloaded_error",
        "vector_store_timeout",
        "timeout",
        "internal_error",
        "service_unavailable",
    }
)
"""Codes and types after which another try may help."""
_LASTING_TYPES = frozenset(
    {
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "insufficient_quota",
    }
)
_LASTING = re.compile(
    r"invalid|policy|unsupported|image|not_found|content_filter|file", re.IGNORECASE
)
"""Codes inside of a response that say that the request is refused."""
_RETRIED = frozenset({408, 409, 425, 429, 498, 500, 502, 503, 504, 529})


class Complaint(msgspec.Struct, frozen=True):
    """What a provider says of a failure."""

    message: str = ""
    code: str = ""
    type: str = ""
    param: str = ""

    @property
    def is_spent(self) -> bool:
        return self.code in SPENT or self.type in SPENT

    @property
    def is_too_long(self) -> bool:
        return self.code in _TOO_LONG or bool(_TOO_LONG_WORDS.search(self.message))

    @property
    def words(self) -> str:
        """What it says, in one line."""
        said = " ".join(self.message.split())
        said = said if len(said) <= _MOST_WORDS else f"{said[:_MOST_WORDS]}..."
        return f"{said} ({self.code})" if self.code and self.code not in said else said


def complaint_of(fields: Fields) -> Complaint:
    """The fields of an error."""
    code = fields.get("code")
    return Complaint(
        string_of(fields, "message"),
        str(code) if isinstance(code, str | int) and not isinstance(code, bool) else "",
        string_of(fields, "type"),
        string_of(fields, "param"),
    )


def error_for(complaint: Complaint) -> ModelError:
    """The error for what came after a good status: there is no status to go by."""
    words = f"the response failed: {complaint.words}"
    if complaint.is_spent:
        return ModelRejected(_spent(words))
    if complaint.is_too_long:
        return ContextExceeded(words)
    if {complaint.code, complaint.type} & _PASSING:
        return ModelUnavailable(words)
    if complaint.type in _LASTING_TYPES or _LASTING.search(complaint.code):
        return ModelRejected(words)
    return ModelUnavailable(words)


def fault_of(
    status: int, headers: Mapping[str, str], body: bytes, *, key_variable: str | None
) -> Fault:
    """What a response with another status than 200 means. Errors: none, whatever comes."""
    complaint = _complaint(body)
    said = f"{status}: {complaint.words}" if complaint.words else f"{status}, without a reason"
    if complaint.is_spent or status == 402:
        return Fault(ModelRejected(_spent(said), usage=Usage()))
    if complaint.is_too_long or status == 413:
        return Fault(ContextExceeded(f"the prompt is too long ({said})", usage=Usage()))
    repair = _repair(status, complaint)
    if repair is not None:
        return Fault(ModelRejected(f"the request was refused ({said})", usage=Usage()), repair)
    match status:
        case 401:
            return _refused(f"the key was refused ({said}); {_key_advice(key_variable)}")
        case 403:
            return _refused(
                f"access was refused ({said}); see whether the key may use this model and this region"
            )
        case 404 | 405 if complaint.code == "model_not_found" or complaint.param == "model":
            return _refused(f"there is no such model for this key ({said}); check its name")
        case 404 | 405:
            return _refused(
                f"nothing answers there ({said}); check the base URL, which ends before /responses, "
                "and the name of the model"
            )
        case _:
            pass
    told = headers.get("x-should-retry", "").strip().lower()
    if told != "false" and (
        status in _RETRIED or (status >= 500 and status != 501) or told == "true"
    ):
        # Whatever had begun there may be billed.
        billed = Usage() if status < 500 or status in BUSY else None
        after = retry_after(headers, complaint.message)
        return Fault(ModelUnavailable(f"the endpoint said {said}", retry_after=after, usage=billed))
    return _refused(f"the request was refused ({said})")


def _refused(words: str) -> Fault:
    return Fault(ModelRejected(words, usage=Usage()))


def _spent(said: str) -> str:
    return f"credit or a spending limit is used up ({said}); raise it with the provider, no retry helps"


def _key_advice(variable: str | None) -> str:
    return "pass another api_key=" if variable is None else f"set {variable} or pass api_key="


def _repair(status: int, complaint: Complaint) -> str | None:
    """What may be left out, so that the rest is taken."""
    if status not in {400, 404, 422}:
        return None
    if complaint.code == "previous_response_not_found" or (
        complaint.param == "previous_response_id" and status in {400, 404}
    ):
        return "state"
    if complaint.code in _OPAQUE_CODES or _OPAQUE_WORDS.search(complaint.message):
        return "opaque"
    if _NOT_KEPT_WORDS.search(complaint.message):
        return "ids"
    field = _not_taken(complaint)
    if field is not None:
        return f"field:{field}"
    if _ID_OF_ITEM.search(complaint.param):
        missing = "missing" in complaint.code or complaint.message.startswith("Missing")
        return "ids_wanted" if missing else "ids"
    return None


def _not_taken(complaint: Complaint) -> str | None:
    """The field that is refused as such, where a request can do without it."""
    if _SEALS_UNKNOWN in complaint.message:
        return "include"
    if not _NOT_TAKEN_WORDS.search(f"{complaint.code} {complaint.message}"):
        return None
    named = re.match(r"\w+", complaint.param)
    if named is not None:
        return named[0] if named[0] in CAN_GO else None
    quoted = re.findall(r"['\"`](\w+)(?:\.\w+)*['\"`]", complaint.message)
    return next((name for name in quoted if name in CAN_GO), None)


def _complaint(body: bytes) -> Complaint:
    """What the body says; its text where it says it in no known form."""
    try:
        fields = fields_of(decoded(body))
    except ValueError:
        fields = None
    if fields is None:
        text = body[:4_096].decode(errors="replace").strip()
        return Complaint("" if text.startswith("<") else text)
    error = fields.get("error")
    if isinstance(error, str):
        return Complaint(error, string_of(fields, "code"), string_of(fields, "type"))
    found = complaint_of(fields_of(error) or fields)
    if found.message:
        return found
    return msgspec.structs.replace(found, message=_detail(fields.get("detail")))


def _detail(detail: object) -> str:
    """What servers made with FastAPI say: a text, or a list of faults and their places."""
    if isinstance(detail, str):
        return detail
    faults = (
        [fields_of(each) or {} for each in cast("list[object]", detail)]
        if isinstance(detail, list)
        else []
    )
    told: list[str] = []
    for fault in faults:
        place = fault.get("loc")
        parts = cast("list[object]", place) if isinstance(place, list) else []
        where = ".".join([str(part) for part in parts if part != "body"])
        told.append(f"{where}: {string_of(fault, 'msg')}".strip(": "))
    return "; ".join(told)
