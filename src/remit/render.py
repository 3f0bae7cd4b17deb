"""Results for the model: whatever a tool returned or raised, as content that can be sent.

    render         a returned value: a `str` as it stands, blocks as blocks, anything else as JSON
    render_error   an exception, as a text that begins with "Error:"
    render_text    a text from elsewhere, such as a server

Promise C4 lives here: content is well-formed, never blank, and no value makes these functions raise. What is
no text is taken out of the text: bytes, media in a structure and data URLs stand there as a note with a handle.
Not here: how much of it is shown (`shown`, which cuts), the status of the call, and the form of media on a
wire (the codecs). Above: `dispatch`. Below: `canonical`, which writes what is already JSON.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from types import (
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any, Final, cast

import msgspec

from remit.artifacts import BINARY, Artifact, plain_type
from remit.canonical import json_text, well_formed
from remit.dataurl import has_media, without_media
from remit.errors import ToolError
from remit.messages import Media, ResultContent, Text

__all__ = ["Rendered", "error_words", "is_quick", "render", "render_error", "render_text"]

_QUICK_CHARS: Final = 65_536
_QUICK_ITEMS: Final = 1_000
_QUICK_BITS: Final = 20_000
_TOO_MANY: Final = _QUICK_CHARS + 1

_MAX_LAZY_ITEMS = 1_000_000
"""A sequence that is not in memory, such as a `range`, is written out up to this many items."""

_MAX_FOUND = 100
"""Pieces of binary data of one result that are kept; further ones are only counted."""

_MAX_ERROR_CHARS = 2_000
_UNREADABLE = "an error that cannot be read"

_SHOWN_BLANKS = 20
"""How many characters of a blank text its note spells out."""


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """A result, whole."""

    content: tuple[ResultContent, ...]
    """At least one block."""
    is_error: bool = False
    found: tuple[Artifact, ...] = ()
    """What was taken out of the texts, which name it."""
    is_json: bool = False
    """The text was written here, as JSON. What a tool wrote itself may be JSON too."""


def render(value: object) -> Rendered:
    """What a tool returned. A value that cannot be written is an error that says why.

    Shape: `Text`, `Media` or a list of them stay blocks; a `str` is one text, any other value one
    text of compact JSON. Decimals keep their digits, sets are sorted, keys become strings, NaN and
    infinities are strings. Iterators are not read.
    Errors: none, whatever the value does when it is looked at.
    """
    if type(value) is str:
        return render_text(value)
    found = _Found()
    try:
        if isinstance(value, str):
            return render_text(str.__str__(value))
        if blocks := _blocks(value):
            content = tuple([_visible(block, found) for block in blocks])
            return Rendered(content, found=found.artifacts)
        text = without_media(_as_json(value, found), found.url)
    except KeyboardInterrupt:  # the user's, not the value's
        raise
    except BaseException as error:  # noqa: BLE001 - C1: foreign code runs here, SystemExit too
        return _unwritable(value, error)
    return Rendered((Text(text),), found=found.artifacts, is_json=True)


def render_error(error: BaseException, *, hidden: bool = False) -> Rendered:
    """What a tool raised, as a text that begins with "Error:".

    A `ToolError` speaks for its author: its message stands alone, also where `hidden` keeps every
    other exception from the model. Of a group all members are told. Errors: none.
    """
    if hidden and not isinstance(error, ToolError):
        text = "Error: the tool failed; its author hides the details."
    else:
        told = _tell(lambda: _message(error), f"the tool failed with {_UNREADABLE}")
        text = told if told.startswith("Error:") else f"Error: {told}"
    return msgspec.structs.replace(render_text(text), is_error=True)


def error_words(error: BaseException) -> str:
    """An exception of foreign code for outcomes, events and logs, at most 2,000 characters. Errors: none."""
    return _clean(_tell(lambda: _message(error), _UNREADABLE))[:_MAX_ERROR_CHARS]


def render_text(text: str) -> Rendered:
    """A text, made well-formed: NUL and half surrogate pairs become U+FFFD. Errors: none.

    A text without a visible character becomes a note.
    """
    clean = _clean(text)
    found = _Found() if has_media(clean) else None
    if found is not None:
        clean = without_media(clean, found.url)
    shown = Text(_blank_note(clean) if _is_invisible(clean) else clean)
    return Rendered((shown,), found=() if found is None else found.artifacts)


def is_quick(value: object) -> bool:
    """Whether to render it is certainly little work. Nothing of the value's own code is run to find out."""
    if type(value) is str:
        return len(value) <= _QUICK_CHARS
    items, chars = _QUICK_ITEMS, _QUICK_CHARS
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        parts, size = _size(item)
        waiting += parts
        items -= 1
        chars -= size
        if items < len(waiting) or chars < 0:
            return False
    return True


def _size(item: Any) -> tuple[Sequence[object], int]:
    """The parts of a value, and how many characters it has itself; too many where nobody can tell."""
    kind = cast("type[object]", type(item))
    if kind in _STRINGS:
        return (), len(item)
    if kind in _CONTAINERS and len(item) <= _QUICK_ITEMS:
        return (*item, *(item.values() if kind is dict else ())), 0
    if kind is int and item.bit_length() <= _QUICK_BITS:
        return (), 0
    if kind in _LEAVES:
        return (), 20
    if kind is Text:
        return (item.text,), 0
    if kind is Media:
        return (item.data,), 0
    if issubclass(kind, Enum):
        return ((item._value_,), 0) if _is_transparent(kind, "value") else ((), _TOO_MANY)
    if issubclass(kind, BaseException):
        return _said(item, kind)
    if "__dataclass_fields__" in vars(kind) or "__pydantic_serializer__" in vars(kind):
        return _attributes(item, kind)
    return (), _TOO_MANY


def _is_transparent(kind: type[object], *names: str) -> bool:
    """Whether a value of this class can be looked at, under these names too, without code of its author's."""
    for each in _bases(kind):
        for name in ("__class__", "__dict__", "__getattribute__", *names):
            found: object = vars(each).get(name, _VALUE)
            if found is not _VALUE and not isinstance(found, _OF_C):
                return False
    return True


def _said(error: object, kind: type[BaseException]) -> tuple[Sequence[object], int]:
    """What an exception says is made of its arguments. Those of other kinds would be asked for their words."""
    if type(kind) is not type or not _is_transparent(kind, "__str__", "exceptions"):
        return (), _TOO_MANY
    args = cast("tuple[object, ...]", _ARGS.__get__(error))
    if issubclass(kind, BaseExceptionGroup):
        return (args[0], *cast("tuple[object, ...]", _EXCEPTIONS.__get__(error))), 0
    kinds = set(map(type, args))
    plain = kinds <= (_STRINGS | _LEAVES | {int})
    return (args, 0) if plain else ((), _TOO_MANY)


def _attributes(item: object, kind: type[object]) -> tuple[Sequence[object], int]:
    if not _is_transparent(kind):
        return (), _TOO_MANY
    decorators = vars(kind).get("__pydantic_decorators__")
    if decorators is not None and (
        decorators.computed_fields or decorators.field_serializers or decorators.model_serializers
    ):
        return (), _TOO_MANY
    try:
        held = cast("dict[str, object]", object.__getattribute__(item, "__dict__"))
    except AttributeError:  # it has slots
        return (), _TOO_MANY
    for each in _bases(kind):
        fields: list[object] = [vars(each).get(name) for name in held]
        if any(hasattr(type(field), "__set__") for field in fields):
            return (), _TOO_MANY  # a property in the place of a field
    try:
        return (held, object.__getattribute__(item, "__pydantic_extra__")), 0
    except AttributeError:
        return (held,), 0


def _bases(kind: type[object]) -> tuple[type[Any], ...]:
    return cast("tuple[type[Any], ...]", _MRO.__get__(kind))


_MRO: Final[Any] = vars(type)["__mro__"]
"""Reads the bases of a class, whatever its metaclass makes of that name."""
_ARGS: Final[Any] = BaseException.args
"""Reads the arguments of an exception, whatever its class makes of that name."""

_EXCEPTIONS: Final[Any] = BaseExceptionGroup.exceptions
"""The same for the members of a group."""
_VALUE: Final = vars(Enum)["value"]
_OF_C: Final = (
    WrapperDescriptorType,
    MethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
)

_STRINGS: Final[frozenset[Any]] = frozenset({str, bytes, bytearray})
_CONTAINERS: Final[frozenset[Any]] = frozenset({list, tuple, set, frozenset, dict})
_LEAVES: Final[frozenset[Any]] = frozenset(
    {float, bool, type(None), Decimal, date, datetime, time, timedelta}
)


# --- what is found in a text ---------------------------------------------------------------------


class _Found:
    """Binary data that a result holds inside of its text, each piece once."""

    def __init__(self) -> None:
        self._artifacts: dict[str, Artifact] = {}

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(self._artifacts.values())

    def url(self, data: bytes, media_type: str) -> str:
        """What stands in the place of a data URL, or of media in a structure."""
        artifact = self._keep(data, media_type)
        if artifact is None:
            return f"({plain_type(media_type)}, {len(data)} bytes)"
        return artifact.note

    def binary(self, data: bytes, kind: str) -> str:
        """What stands in the place of bytes."""
        note = f"binary data, {kind} of {len(data)} bytes"
        artifact = self._keep(data, BINARY)
        return f"({note})" if artifact is None else f"({note}: {artifact.handle})"

    def _keep(self, data: bytes, media_type: str) -> Artifact | None:
        if not data or len(self._artifacts) >= _MAX_FOUND:
            return None
        artifact = Artifact.of(data, media_type)
        return self._artifacts.setdefault(artifact.handle, artifact)


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


def _visible(block: ResultContent, found: _Found) -> ResultContent:
    if isinstance(block, Media):
        if not block.is_well_typed:
            raise TypeError("a Media holds its type as a str and its data as bytes")
        return block if block.data else Text(f"({_clean(block.media_type[:100])}, 0 bytes)")
    clean = without_media(_clean(block.text), found.url)
    if _is_invisible(clean):
        return Text(_blank_note(clean))
    return block if clean is block.text else Text(clean)


# --- text ----------------------------------------------------------------------------------------

_INVISIBLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]*")
"""White space, controls and the characters that take no room: providers refuse such a text."""
_STEP_CHARS: Final = 500_000


def _is_invisible(text: str) -> bool:
    """Looked at in steps: at once, megabytes of blanks would hold up every thread."""
    ends = range(_STEP_CHARS, len(text) + _STEP_CHARS, _STEP_CHARS)
    return all(_INVISIBLE.fullmatch(text, end - _STEP_CHARS, end) for end in ends)


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


def _unwritable(value: object, error: BaseException) -> Rendered:
    kind = _tell(lambda: type(value).__name__, "unknown")
    if isinstance(error, RecursionError):
        why = "it contains itself or is nested too deeply"
    else:
        why = _tell(lambda: str(error) or type(error).__name__, "looking at it failed")
    text = f"Error: the tool returned a value of type {kind} that cannot be written as JSON: {why}"
    return msgspec.structs.replace(render_text(text), is_error=True)


# --- JSON ----------------------------------------------------------------------------------------


def _as_json(value: object, found: _Found) -> str:
    try:
        return _clean(json_text(value))
    except (TypeError, ValueError):  # not JSON as it stands
        return _clean(json_text(_plain(value, found)))


def _plain(value: object, found: _Found) -> Any:  # noqa: C901 - a table of types
    """The value in terms of str, int, float, Decimal, bool, None, list and dict."""
    kind = type(value)
    serializer = getattr(kind, "__pydantic_serializer__", None)
    if serializer is not None and _is_pydantics(serializer):
        dumped = serializer.to_python(value, warnings=False)
        if dumped is not value:  # secrets and URLs have a serializer only for their JSON
            return _plain(dumped, found)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name), found)
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Media):
        block = _visible(value, found)
        return block.text if isinstance(block, Text) else found.url(value.data, value.media_type)
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name), found) for name in value.__struct_fields__}
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else _not_finite(Decimal(str(float(value))))
        case Decimal():
            return value if value.is_finite() else _not_finite(value)
        case bytes() | bytearray() | memoryview():
            return found.binary(bytes(cast("bytes", value)), kind.__name__)
        case Mapping():
            return _object(cast("Mapping[object, object]", value), found)
        case AbstractSet():
            return sorted(_array(cast("AbstractSet[object]", value), found), key=json_text)
        case list() | tuple():
            return _array(cast("Sequence[object]", value), found)
        case Sequence():
            items = cast("Sequence[object]", value)
            if len(items) > _MAX_LAZY_ITEMS:
                raise ValueError(f"{len(items)} items of a {kind.__name__} are too many")
            return _array(items, found)
        case Iterator():
            raise TypeError(f"a {kind.__name__} can be read only once; return a list")
        case Enum():
            return _plain(value.value, found)
        case date() | time():
            return value.isoformat()
        case PurePath():
            return str(value)
        case _ if hasattr(kind, "tolist"):  # arrays and their scalars, of any library
            return _plain(cast("Any", value).tolist(), found)
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


def _array(items: Iterable[object], found: _Found) -> list[Any]:
    return [_plain(item, found) for item in items]


def _object(table: Mapping[object, object], found: _Found) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in table.items():
        name = _plain(key, found)
        if not isinstance(name, str):
            name = json_text(name)
        if name in plain:
            raise ValueError(f"two keys are both written {name!r}")
        plain[name] = _plain(item, found)
    return plain
