"""Results for the model: whatever a tool returned or raised, as content that can be sent.

    render         a returned value: a `str` as it stands, blocks as blocks, anything else as JSON
    render_error   an exception, as a text that begins with "Error:"
    render_text    a text from elsewhere, such as a server

Promise C4 lives here: content is well-formed, never blank, never longer than its limit, and no
value makes these functions raise. Not here: keeping the whole of what is cut and offering a handle
to it (the dispatcher), the status of the call, and the form of media on a wire (the codecs).
Above: `dispatch`. Below: `canonical`, which writes what is already JSON.
"""

from __future__ import annotations

import dataclasses
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any, cast
from unicodedata import combining

import msgspec

from remit.canonical import encode, well_formed
from remit.errors import ToolError
from remit.messages import Media, ResultContent, Text

__all__ = [
    "CHARS_PER_TOKEN",
    "DEFAULT_RESULT_TOKENS",
    "MIN_RESULT_TOKENS",
    "Rendered",
    "error_words",
    "render",
    "render_error",
    "render_text",
]

DEFAULT_RESULT_TOKENS = 2_000
"""What a result may take of the model's context unless its tool says otherwise."""

MIN_RESULT_TOKENS = 50
"""A lower limit counts as this one: there must be room to say what was cut."""

CHARS_PER_TOKEN = 4
"""The estimate by which limits in tokens become limits in characters."""

_MAX_LAZY_ITEMS = 1_000_000
"""A sequence that is not in memory, such as a `range`, is written out up to this many items."""

_MAX_ERROR_CHARS = 2_000
_UNREADABLE = "an error that cannot be read"

_SHOWN_BLANKS = 20
"""How many characters of a blank text its note spells out."""


class Rendered(msgspec.Struct, frozen=True):
    """A result as the model will see it."""

    content: tuple[ResultContent, ...]
    """At least one block."""
    shown: int
    """Characters of the text that are kept; less than `total` when it was cut."""
    total: int
    """Characters of the whole text. A note or a marker of ours does not count; nor do media."""
    is_error: bool = False


def render(value: object, *, max_tokens: int = DEFAULT_RESULT_TOKENS) -> Rendered:
    """What a tool returned. A value that cannot be written is an error that says why.

    Shape: `Text`, `Media` or a list of them stay blocks; a `str` is one text, any other value one
    text of compact JSON. Decimals keep their digits, sets are sorted, keys become strings, NaN and
    infinities are strings, bytes are a note. Iterators are not read. A cut JSON text is itself
    JSON: `{"truncated": {"shown": n, "total": m}, "head": "...", "tail": "..."}`.
    Units: the limit is `CHARS_PER_TOKEN` characters a token, markers included, at least
    `MIN_RESULT_TOKENS`.
    Errors: none, whatever the value does when it is looked at.
    """
    if type(value) is str:
        return render_text(value, max_tokens=max_tokens)
    try:
        if isinstance(value, str):
            return render_text(str.__str__(value), max_tokens=max_tokens)
        blocks = _blocks(value)
        if blocks:
            return _render_blocks(blocks, _limit(max_tokens))
        text = _as_json(value)
    except KeyboardInterrupt:  # the user's, not the value's
        raise
    except BaseException as error:  # noqa: BLE001 - C1: foreign code runs here, SystemExit too
        return _unwritable(value, error, max_tokens)
    return _fitted(text, _limit(max_tokens), _cut_json)


def render_error(
    error: BaseException, *, hidden: bool = False, max_tokens: int = DEFAULT_RESULT_TOKENS
) -> Rendered:
    """What a tool raised, as a text that begins with "Error:".

    A `ToolError` speaks for its author: its message stands alone, also where `hidden` keeps every
    other exception from the model. Of a group all members are told. Errors: none.
    """
    if hidden and not isinstance(error, ToolError):
        text = "Error: the tool failed; its author hides the details."
    else:
        told = _tell(lambda: _message(error), f"the tool failed with {_UNREADABLE}")
        text = told if told.startswith("Error:") else f"Error: {told}"
    return msgspec.structs.replace(render_text(text, max_tokens=max_tokens), is_error=True)


def error_words(error: BaseException) -> str:
    """An exception of foreign code for outcomes, events and logs, at most 2,000 characters. Errors: none."""
    return _clean(_tell(lambda: _message(error), _UNREADABLE))[:_MAX_ERROR_CHARS]


def render_text(text: str, *, max_tokens: int = DEFAULT_RESULT_TOKENS) -> Rendered:
    """A text, made well-formed: NUL and half surrogate pairs become U+FFFD. Errors: none.

    A text without a visible character becomes a note. Over the limit, two thirds of the room go to
    the beginning and one third to the end, with a line between them that says how much is shown.
    """
    clean = _clean(text)
    if _is_invisible(clean):
        return Rendered((Text(_blank_note(clean)),), len(clean), len(clean))
    return _fitted(clean, _limit(max_tokens), _cut_text)


# --- blocks --------------------------------------------------------------------------------------


def _blocks(value: object) -> Sequence[ResultContent]:
    """The blocks that the value is or holds; empty if it is anything else."""
    if isinstance(value, Text | Media):
        return (value,)
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        blocks = [item for item in items if isinstance(item, Text | Media)]
        return blocks if len(blocks) == len(items) else ()
    return ()


def _render_blocks(blocks: Sequence[ResultContent], limit: int) -> Rendered:
    content = tuple(_visible(block) for block in blocks)
    texts = [block.text for block in content if isinstance(block, Text)]
    total = sum(map(len, texts))
    if total <= limit:
        return Rendered(content, total, total)
    cut = _fitted("\n".join(texts), limit, _cut_text)
    media = [block for block in content if isinstance(block, Media)]
    return msgspec.structs.replace(cut, content=(*cut.content, *media))


def _visible(block: ResultContent) -> ResultContent:
    if isinstance(block, Media):
        if not block.is_well_typed:
            raise TypeError("a Media holds its type as a str and its data as bytes")
        return block if block.data else Text(f"({_clean(block.media_type)}, 0 bytes)")
    clean = _clean(block.text)
    return Text(_blank_note(clean)) if _is_invisible(clean) else Text(clean)


# --- text ----------------------------------------------------------------------------------------

_is_invisible = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]*"
).fullmatch
"""White space, controls and the characters that take no room: providers refuse such a text."""


def _clean(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else well_formed(text)


def _blank_note(text: str) -> str:
    if not text:
        return "(empty text)"
    if len(text) <= _SHOWN_BLANKS:
        return f"(blank text: {json.dumps(text)})"
    return f"(blank text of {len(text)} characters: {json.dumps(text[:_SHOWN_BLANKS])} ...)"


def _message(error: BaseException) -> str:
    text, name = str(error), type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", error).exceptions
        text = f"{text}: {'; '.join(map(_message, members))}"
    if isinstance(error, ToolError):
        return text if text.strip() else "the tool failed without a message"
    return f"{name}: {text}" if text.strip() else name


def _tell(words: Callable[[], str], otherwise: str) -> str:
    """Words that foreign code has a part in, or ours where that code fails."""
    try:
        return words()
    except KeyboardInterrupt:  # the user's
        raise
    except BaseException:  # noqa: BLE001 - C1: `__str__` of an exception may raise anything
        return otherwise


def _unwritable(value: object, error: BaseException, max_tokens: int) -> Rendered:
    kind = _tell(lambda: type(value).__name__, "unknown")
    if isinstance(error, RecursionError):
        why = "it contains itself or is nested too deeply"
    else:
        why = _tell(lambda: str(error) or type(error).__name__, "looking at it failed")
    text = f"Error: the tool returned a value of type {kind} that cannot be written as JSON: {why}"
    return msgspec.structs.replace(render_text(text, max_tokens=max_tokens), is_error=True)


# --- cutting -------------------------------------------------------------------------------------


def _limit(max_tokens: int) -> int:
    return max(max_tokens, MIN_RESULT_TOKENS) * CHARS_PER_TOKEN


def _fitted(text: str, limit: int, cut: Callable[[str, int], tuple[str, int]]) -> Rendered:
    total = len(text)
    if total <= limit:
        return Rendered((Text(text),), total, total)
    short, shown = cut(text, limit)
    return Rendered((Text(short),), shown, total)


def _cut_text(text: str, limit: int) -> tuple[str, int]:
    total = len(text)
    room = limit - len(_text_marker(total, total))
    begin = room * 2 // 3
    head = _whole(text, begin, -1)
    tail = _whole(text, total - (room - begin), +1)
    shown = head + total - tail
    return f"{text[:head]}{_text_marker(shown, total)}{text[tail:]}", shown


def _text_marker(shown: int, total: int) -> str:
    return f"\n[... cut here: {shown} of {total} characters are shown ...]\n"


def _cut_json(text: str, limit: int) -> tuple[str, int]:
    total = len(text)
    room = limit - len(_json_frame(total, total, "", ""))

    # Quoting JSON text once more doubles quotes and backslashes; nothing else in it needs escaping.
    def quoted(start: int, end: int) -> int:
        return end - start + text.count('"', start, end) + text.count("\\", start, end)

    begin = room * 2 // 3
    most = range(min(room, total) + 1)
    head = bisect_right(most, begin, key=lambda n: quoted(0, n)) - 1
    tail = total + 1 - bisect_right(most, room - begin, key=lambda n: quoted(total - n, total))
    head, tail = _whole(text, head, -1), _whole(text, tail, +1)
    shown = head + total - tail
    return _json_frame(shown, total, text[:head], text[tail:]), shown


def _json_frame(shown: int, total: int, head: str, tail: str) -> str:
    cut = {"truncated": {"shown": shown, "total": total}, "head": head, "tail": tail}
    return encode(cut).decode()


def _whole(text: str, at: int, step: int) -> int:
    """The nearest cut at or beyond `at` that leaves a base and its marks together.

    Within 16 characters: text may consist of marks alone.
    """
    for place in range(at, at + 16 * step, step):
        if not 0 < place < len(text) or not (_joins(text[place]) or text[place - 1] == _JOINER):
            return place
    return at


_JOINER = "\u200d"


def _joins(char: str) -> bool:
    return (
        combining(char) > 0 or char in "\u200d\ufe0e\ufe0f" or "\U0001f3fb" <= char <= "\U0001f3ff"
    )


# --- JSON ----------------------------------------------------------------------------------------


def _as_json(value: object) -> str:
    try:
        return encode(value).decode()
    except (TypeError, ValueError):  # not JSON as it stands
        return encode(_plain(value)).decode()


def _plain(value: object) -> Any:  # noqa: C901 - a table of types
    """The value in terms of str, int, float, Decimal, bool, None, list and dict."""
    kind = type(value)
    serializer = getattr(kind, "__pydantic_serializer__", None)
    if serializer is not None and _is_pydantics(serializer):
        dumped = serializer.to_python(value, warnings=False)
        if dumped is not value:  # secrets and URLs have a serializer only for their JSON
            return _plain(dumped)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else _not_finite(Decimal(str(float(value))))
        case Decimal():
            return value if value.is_finite() else _not_finite(value)
        case bytes() | bytearray():
            return f"(binary data, {len(value)} bytes)"
        case memoryview():
            return f"(binary data, {cast('memoryview[Any]', value).nbytes} bytes)"
        case Mapping():
            return _object(cast("Mapping[object, object]", value))
        case AbstractSet():
            return sorted(_array(cast("AbstractSet[object]", value)), key=encode)
        case list() | tuple():
            return _array(cast("Sequence[object]", value))
        case Sequence():
            items = cast("Sequence[object]", value)
            if len(items) > _MAX_LAZY_ITEMS:
                raise ValueError(f"{len(items)} items of a {kind.__name__} are too many")
            return _array(items)
        case Iterator():
            raise TypeError(f"a {kind.__name__} can be read only once; return a list")
        case Enum():
            return _plain(value.value)
        case date() | time():
            return value.isoformat()
        case PurePath():
            return str(value)
        case _ if hasattr(kind, "tolist"):  # arrays and their scalars, of any library
            return _plain(cast("Any", value).tolist())
        case _:
            # UUIDs, addresses, durations, patterns, secrets and the like.
            from pydantic_core import to_jsonable_python  # only here, for it is slow to import

            return to_jsonable_python(value)


def _is_pydantics(serializer: object) -> bool:
    """Whether a class is a model or a dataclass of pydantic, which is then imported already."""
    from pydantic_core import SchemaSerializer

    return isinstance(serializer, SchemaSerializer)


def _not_finite(value: Decimal) -> str:
    if value.is_nan():
        return "NaN"
    return "-Infinity" if value.is_signed() else "Infinity"


def _array(items: Iterable[object]) -> list[Any]:
    return [_plain(item) for item in items]


def _object(table: Mapping[object, object]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in table.items():
        name = _plain(key)
        if not isinstance(name, str):
            name = encode(name).decode()
        if name in plain:
            raise ValueError(f"two keys are both written {name!r}")
        plain[name] = _plain(item)
    return plain
