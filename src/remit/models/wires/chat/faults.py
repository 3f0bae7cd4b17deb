"""What a response that is no reply means, in a class and in words that say what to do.

Servers write their errors in a dozen forms and give the same one under different statuses: the words decide
where the status does not. Texts are bounded, hold no key, and of a refused body only names of fields.

    refused     a response with another status than 200
    reported    an error object after a 200: in a stream, or as the whole body
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from remit.errors import (
    ContextExceeded,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
)
from remit.messages import Usage
from remit.models.wires.codec import Fault
from remit.models.wires.dialects import ChatDialect
from remit.models.wires.waiting import BUSY, retry_after

__all__ = ["LEFT_OUT", "Reported", "bounded", "generated", "refused", "report_of", "reported"]

_MOST_CHARS: Final = 400
"""Characters of a server's own words that a text repeats."""

_MOST_READ: Final = 4_000
"""Characters of them that are read for what they mean."""

_MOST_BYTES: Final = 1_000_000
"""Of a body that is looked at."""


class Reported(msgspec.Struct, frozen=True):
    """What a server says is wrong, out of whichever form it says it in."""

    text: str = ""
    words: str = ""
    """Code and type, in lower case."""
    param: str = ""
    """The field that it is about."""
    status: int | None = None
    """Where it names one itself."""
    failed_generation: str | None = None
    """What the model wrote and the server could not take for a call (Groq)."""
    html: bool = False


# --- reading ------------------------------------------------------------------------------------


def report_of(body: bytes) -> Reported:
    """What a body says. Errors: none, whatever comes."""
    body = body[:_MOST_BYTES].strip()
    if body[:1] == b"<":
        title = re.search(rb"<(?:title|h1)[^>]*>([^<]*)<", body, re.IGNORECASE)
        return Reported(_line(title[1].decode("utf-8", "replace") if title else ""), html=True)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Reported(_line(body.decode("utf-8", "replace")))
    if isinstance(value, list) and value:
        value = cast("list[Any]", value)[0]  # Gemini's compatible endpoint puts its error in a list
    return _report(value)


def _report(value: Any) -> Reported:
    if isinstance(value, str):
        return Reported(_line(value))
    if not isinstance(value, dict):
        return Reported()
    table = cast("dict[str, Any]", value)
    error = table.get("error")
    if isinstance(error, str):
        return Reported(_line(error))
    if isinstance(error, dict):
        table = cast("dict[str, Any]", error)
    text = table.get("message") or table.get("detail") or table.get("msg") or ""
    texts, param = _details(text)
    if not param and isinstance(table.get("param"), str):
        param = table["param"]
    metadata = table.get("metadata")
    if isinstance(metadata, dict):
        raw = cast("dict[str, Any]", metadata).get("raw")
        if isinstance(raw, str) and raw:
            texts = f"{texts}: {raw}"
    words = " ".join(
        str(table[key]).lower() for key in ("code", "type") if isinstance(table.get(key), str)
    )
    generation = table.get("failed_generation")
    numbers = [table.get(key) for key in ("code", "status_code", "status")]
    return Reported(
        _line(texts),
        words,
        param,
        next((n for n in numbers if type(n) is int and 100 <= n < 1000), None),
        generation if isinstance(generation, str) else None,
    )


def _details(value: Any) -> tuple[str, str]:
    """The text of a message, and the field that a list of faults names (FastAPI, Mistral)."""
    if isinstance(value, str):
        return value, ""
    if isinstance(value, dict):
        return _details(cast("dict[str, Any]", value).get("detail"))
    texts: list[str] = []
    field = ""
    for each in _tables(value):
        place = [str(part) for part in _list(each.get("loc")) if part != "body"]
        field = field or (place[0] if place else "")
        texts.append(f"{'.'.join(place)}: {each.get('msg', '')}".strip(": "))
    return "; ".join(texts), field


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    for each in _list(value):
        if isinstance(each, dict):
            yield cast("dict[str, Any]", each)


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|key|xai|nvapi|hf)[-_][A-Za-z0-9_\-]{8,}|\bAIza[A-Za-z0-9_\-]{8,}"
    r"|[A-Za-z0-9_\-]*\*{3,}[A-Za-z0-9_\-*]*"
    r"|(?i:bearer)\s+\S+"
)
"""What may be a key, or what a server leaves of one."""


def _line(text: str) -> str:
    """Foreign words as one line, without what may be a key; long enough to tell what they mean."""
    return " ".join(_SECRET.sub("[key]", text[:_MOST_READ]).split())


def bounded(line: str) -> str:
    """As much of a server's words as a text of ours repeats."""
    return line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]}..."


# --- what it means ------------------------------------------------------------------------------

_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size|context[ _-](?:length|window|size)[a-z ]*exceed"
    r"|exceeds?[a-z' ]* (?:the )?(?:maximum |available |model'?s? )*(?:maximum )?context"
    r"|maximum context length|maximum model length|(?:longer|greater) than the (?:model'?s? )?context"
    r"|context (?:window|length) exceeds|larger than the max(?:imum)? context|exceeded model token limit"
    r"|prompt is too long|input is too long|prompt too long|too large for model with|maximum prompt length"
    r"|input token count.*exceeds|prompt token count.*exceeds|reduce the length of the (?:messages|prompt)"
    r"|input length and `?max_tokens`? exceed|`?inputs`? tokens \+ `?max_new_tokens`?"
    r"|request too large for|context the overflows|input validation error.*token"
)
"""The prompt is too long, as OpenAI, Azure, vLLM, SGLang, llama.cpp, Groq, DeepSeek, Mistral, OpenRouter and those
behind it, xAI, Moonshot, TGI and LM Studio say it. "Request too large for" is a limit of tokens per minute that one
request alone is over, under 413 or 429: waiting does not help, a shorter one does."""

_QUOTA = re.compile(
    r"insufficient_quota|billing[_ ](?:hard[_ ]limit|not[_ ]active)|exceeded your current quota|insufficient[ _](?:balance|credits?|funds)"
    r"|out of credits?|more credits|requires? credits?|add \d* ?credits|per-day|spend(?:ing)? limit"
)

_PARSER = re.compile(r"tool[-_]call[-_]parser|enable-auto-tool-choice|--jinja")
_NO_TOOLS = re.compile(
    r"(?:not|n't) support (?:tool|function)|support tool use|(?:tool|function) call\w* (?:is|are) not supported"
)

_MODEL = re.compile(
    r"(?:model|deployment)\b.*(?:not (?:found|exist)|does ?n.t exist|unknown)|(?:invalid|unknown) model"
    r"|no endpoints found for"
)
"""The model that was named is not there."""

_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecognized|unrecognised|unknown|not permitted|forbidden|unexpected"
    r"|not allowed|unavailable|not available|invalid (?:field|param|argument)|is not valid|extra"
)

_REPAIRS: Final = {
    r"unknown name \"(?:tool_call_)?id\"": "ids",
    r"must be a-z, a-z, 0-9, with a length of 9": "nine",
    r"unexpected role 'user' after role 'tool'": "order",
}
"""What servers say of messages that can be written in another way: Gemini's of ids, Mistral's models' of the rest,
also where vLLM serves them."""

_REASONING = re.compile(r"reasoning_content|reasoning_details|thought[_ ]signature|extra_content")
_REASONING_MISSING = re.compile(r"miss|must be (?:passed|provided|included)|required|expected")

LEFT_OUT: Final = (
    "stream_options",
    "max_completion_tokens",
    "max_tokens",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "prompt_cache_key",
    "cache_control",
    "tool_choice",
    "reasoning",
)
"""Fields that can be left out for the rest of a run, or have another name."""

_TRANSIENT: Final = frozenset({408, 409, 425, 429, 498})

_BUSY = re.compile(
    r"rate.?limit|overloaded|capacity|too many requests|timed? ?out|temporar|try again|unavailable|internal"
    r"|server_error|api_error|insufficient_system_resource"
)


def refused(dialect: ChatDialect, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """What a response with this status means. Errors: none, whatever comes."""
    report = report_of(body)
    nothing = Usage() if status < 500 or status in BUSY else None
    fault = _meaning(dialect, status, report, headers, nothing)
    if report.failed_generation is None:
        return fault
    return msgspec.structs.replace(fault, reply=generated(report.failed_generation))


def reported(dialect: ChatDialect, value: Any, usage: Usage | None) -> ModelError:
    """What an error object means that came after a 200."""
    report = _report(value)
    return _meaning(dialect, report.status, report, {}, usage).error


def _meaning(
    dialect: ChatDialect,
    status: int | None,
    report: Reported,
    headers: Mapping[str, str],
    usage: Usage | None,
) -> Fault:
    said = f"{report.words} {report.text}".lower()
    where = f"{status} from {dialect.title}" if status else f"{dialect.title} reports an error"
    text = f"{where}: {bounded(report.text)}" if report.text else where
    if _CONTEXT.search(said) or status == 413:
        return Fault(ContextExceeded(text, usage=usage))
    if _PARSER.search(said) or _NO_TOOLS.search(said):
        return Fault(ModelRejected(f"{text} - {_about_tools(dialect, said)}", usage=usage))
    if report.failed_generation is not None:
        wrote = bounded(_line(report.failed_generation))
        return Fault(ModelProtocolError(f"{text} - the model wrote: {wrote}", usage=None))
    if status == 402 or _QUOTA.search(said):
        told = "the account has no credit or is over its quota: waiting will not help"
        return Fault(ModelRejected(f"{text} - {told}", usage=usage))
    may = headers.get("x-should-retry", "").strip().lower()  # OpenAI's own clients obey it
    transient = status in _TRANSIENT or (status is None and _BUSY.search(said) is not None)
    if may == "true" or (transient and may != "false"):
        return Fault(_unavailable(text, headers, report, usage))
    if status is None:
        if "invalid" in said:
            return Fault(ModelRejected(text, usage=usage))
        return Fault(_unavailable(text, headers, report, usage))
    if status >= 500 and may != "false":
        return Fault(_unavailable(text, headers, report, usage))
    advice = _advice(dialect, status, report, said)
    error = ModelRejected(f"{text} - {advice}" if advice else text, usage=usage)
    return Fault(error, _repair(report, said) if status in {400, 404, 422} else None)


def _unavailable(
    text: str, headers: Mapping[str, str], report: Reported, usage: Usage | None
) -> ModelUnavailable:
    return ModelUnavailable(text, retry_after=retry_after(headers, report.text), usage=usage)


def _about_tools(dialect: ChatDialect, said: str) -> str:
    if "jinja" in said:
        return "start the server with `llama-server --jinja`"
    if _PARSER.search(said):
        return (
            "start the server with `--enable-auto-tool-choice --tool-call-parser NAME`, NAME being the parser "
            "of this model"
        )
    hint = f" ({dialect.hint})" if dialect.hint else ""
    return f"choose a model that calls tools{hint}, or wrap this one: ReActModel(...)"


def _advice(dialect: ChatDialect, status: int, report: Reported, said: str) -> str:
    if status == 401 or (status in {400, 403} and "api key" in said):
        return f"set {dialect.key_variable} or pass api_key="
    if status == 403:
        return "this key may not use that model, or a proxy stands in between"
    if status < 400:
        return "it answers from another place: give the base URL that it redirects to"
    named_model = _MODEL.search(said) is not None
    if status in {404, 405} and not named_model:
        base = dialect.base_url or "https://HOST/v1"
        return f"is the base URL right? Did you mean one that ends in /v1, such as {base}"
    if named_model:
        return f"check the name of the model{f'; {dialect.hint}' if dialect.hint else ''}"
    if report.html:
        return "this is a page for people, not an API: check the base URL, and any proxy in between"
    return dialect.hint


def _repair(report: Reported, said: str) -> str | None:
    """What the encoder may change, in the words of `Encoder.repair`."""
    for words, repair in _REPAIRS.items():
        if re.search(words, said):
            return repair
    about = _REASONING.search(f"{report.param} {said}")
    if about is not None and _REASONING_MISSING.search(said):
        return "signature" if about[0].startswith("thought") else "reasoning"
    if about is not None:
        return "opaque"
    if report.param in LEFT_OUT and report.words.startswith("unsupported_parameter"):
        return f"field:{report.param}"
    if not _UNSUPPORTED.search(said):
        return None
    if report.param in LEFT_OUT:
        return f"field:{report.param}"
    found = [(said.find(field), -len(field), field) for field in LEFT_OUT if field in said]
    return f"field:{min(found)[2]}" if found else None


# --- a call that the server refused itself -------------------------------------------------------


class _Written(msgspec.Struct):
    """A call as models write it in text."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


def generated(text: str) -> bytes | None:
    """What the model wrote, as a whole reply, if it is exactly the JSON of calls; else None (case 80)."""
    try:
        written = msgspec.json.decode(
            text, type=list[_Written] if text.lstrip()[:1] == "[" else _Written
        )
        calls = written if isinstance(written, list) else [written]
        entries = [
            {
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in calls
        ]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not entries or not all(call.name for call in calls):
        return None
    message = {"role": "assistant", "content": None, "tool_calls": entries}
    return msgspec.json.encode(
        {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    )


def _arguments(call: _Written) -> str:
    raw = bytes(call.arguments) or bytes(call.parameters) or b"{}"
    return msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else raw.decode()
