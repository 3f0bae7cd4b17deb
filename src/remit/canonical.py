"""JSON in and out: read without loss, written canonically or as a journal row.

Three readers and writers, one need each:

    parse_json   what a model or a server wrote; strict, because arguments run unrepaired
    canonical    one text per value (RFC 8785, exact numbers), for hashes and comparisons
    encode       a journal row, compact and fast; `decode` reads it back, `json_text` is the same as text

Numbers never pass through a double on the way in: an integer is an `int`, any other number a
`Decimal`. Not here: schemas and coercion (`tools.schema`), and whatever else a tool may return
(`render`, which turns it into what this module can write). Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Context, Decimal, InvalidOperation
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, cast

__all__ = [
    "MAX_DEPTH",
    "MAX_DIGITS",
    "arguments_hash",
    "call_key",
    "canonical",
    "decode",
    "encode",
    "json_text",
    "parse_json",
    "tool_in_key",
    "utf8",
    "well_formed",
]

MAX_DEPTH = 100
"""How deep `parse_json` lets lists and objects nest. The same on every interpreter."""

MAX_DIGITS = 4300
"""How many digits a number may have for `parse_json` when it is written out, on either side of the
point. `1e999999999` is short to write and fatal to compute with. As many as Python's own limit."""

_QUOTED = 60
"""Characters of foreign text that an error message repeats at most."""

_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair: one character
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."
)


# --- reading -------------------------------------------------------------------------------------


def parse_json(text: str) -> Any:
    """Read one JSON value without losing or guessing anything.

    Shape: integers as `int`, every other number as `Decimal` with its digits; the rest as usual.
    Errors: `ValueError`, short whatever the text, for what is no JSON (NaN and trailing text
    included), for a duplicate key, half a surrogate pair, more than `MAX_DEPTH` levels or
    `MAX_DIGITS` digits.
    Source: RFC 8259; refusing duplicates and halves is RFC 7493 (I-JSON).
    """
    try:
        value = _STRICT.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(str(error)) from None  # without the whole text, which the original holds
    except RecursionError:
        raise _too_deep() from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise _too_deep()
    if "\\u" in text:
        for escape in _ESCAPES.finditer(text):
            if escape["lone"]:
                raise ValueError(f"half a surrogate pair: {escape['lone']} (char {escape.start()})")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"half a surrogate pair (char {error.start})") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"duplicate key {twice[:_QUOTED]!r}")
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise _too_long(text)
    return int(text)


def _fraction(text: str) -> Decimal:
    try:
        value = Decimal(text, _TRAPPING)
    except InvalidOperation:  # an exponent that not even a Decimal can hold
        raise _too_long(text) from None
    if len(text) > MAX_DIGITS or abs(value.adjusted()) > MAX_DIGITS:
        raise _too_long(text)
    return value


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _too_long(text: str) -> ValueError:
    return ValueError(f"a number of more than {MAX_DIGITS} digits: {text[:_QUOTED]}")


def _too_deep() -> ValueError:
    return ValueError("nested too deeply")


def _is_deeper(value: Any, depth: int) -> bool:
    level: list[Any] = [value]
    for _ in range(depth + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(cast("dict[str, Any]", item).values())
            elif isinstance(item, list):
                inner.extend(cast("list[Any]", item))
        if not inner:
            return False
        level = inner
    return True


_TRAPPING = Context(traps=[InvalidOperation])
"""The caller's own decimal context may not trap, and would then answer NaN."""

_STRICT = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_fraction,
    parse_constant=_constant,
)


# --- one writer ----------------------------------------------------------------------------------


def _write(
    value: Any,
    order: Callable[[dict[str, Any]], Iterable[str]],
    number: Callable[[int | float | Decimal], str],
) -> str:
    """Compact JSON; `order` says in which order keys come, `number` how a number is written."""
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int | Decimal | float):
        return number(value)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        pairs = [
            f"{encode_basestring(key)}:{_write(table[key], order, number)}" for key in order(table)
        ]
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return f"[{','.join([_write(item, order, number) for item in items])}]"
    raise TypeError(f"{type(value).__name__} is not JSON")


# --- canonical -----------------------------------------------------------------------------------


def canonical(value: Any) -> str:
    """The one text of a JSON value: equal values give equal texts, whatever wrote them.

    Shape: no white space, keys sorted by UTF-16 code units, numbers as ECMAScript writes them, from
    all their digits: `1`, `1.0` and `Decimal("1.00")` are `1`. A float stands for the shortest
    decimal that reads back as it, so 1.1 is `Decimal("1.1")`.
    Errors: `TypeError` for what is not str, int, float, Decimal, bool, None, list, tuple or dict
    with string keys; `ValueError` for NaN, infinities, half a surrogate pair and endless nesting.
    Source: RFC 8785. Deviation: a number that no double stands for keeps its digits, in the same
    layout, where the RFC would round it (ids of 18 digits would become equal).
    """
    try:
        text = _write(value, _by_utf16, _ecmascript)
    except RecursionError:
        raise _too_deep() from None
    if not text.isascii():
        text.encode()  # half a surrogate pair: UnicodeEncodeError is a ValueError
    return text


def arguments_hash(value: Any) -> str:
    """SHA-256 of the canonical text in UTF-8, as 64 hex digits. Errors: as `canonical`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def call_key(run_id: str, step: int, tool: str, arguments_hash: str, n: int) -> str:
    """The key of the `n`-th equal call of a step (promise E2).

    Its parts are counted from the right, for a run id may hold colons of its own. Those of a tool's name are
    written as `%3A`; `tool_in_key` reads it back.
    """
    if ":" in tool or "%" in tool:
        tool = tool.replace("%", "%25").replace(":", "%3A")
    return f"{run_id}:{step}:{tool}:{arguments_hash[:16]}:{n}"


def tool_in_key(part: str) -> str:
    """The name of a tool, from how it stands in the key of a call."""
    return part.replace("%3A", ":").replace("%25", "%") if "%" in part else part


def _by_utf16(table: dict[str, Any]) -> list[str]:
    keys = sorted(table)
    if len(keys) > 1 and max(keys) >= "\ue000":  # below, code points and code units sort alike
        keys.sort(key=lambda key: key.encode("utf-16-be", "surrogatepass"))
    return keys


_PLAIN_BELOW = 10**21
"""ECMAScript writes integers below this in full."""


def _ecmascript(value: int | float | Decimal) -> str:
    """Number::toString of ECMA-262, for any number of digits.

    With the value as 0.d1 d2 ... dk * 10^n, dk != 0: in full for -6 < n <= 21, else with an
    exponent.
    """
    if isinstance(value, int):
        if -_PLAIN_BELOW < value < _PLAIN_BELOW:
            return int.__repr__(value)
        value = Decimal(value)
    elif isinstance(value, float):
        value = Decimal(float.__repr__(value))
    negative, figures, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no JSON number")
    n = len(figures) + exponent
    digits = "".join(map(str, figures)).rstrip("0")
    k = len(digits)
    if not digits:
        return "0"
    if k <= n <= 21:
        text = digits + "0" * (n - k)
    elif 0 < n <= 21:
        text = f"{digits[:n]}.{digits[n:]}"
    elif -6 < n <= 0:
        text = f"0.{'0' * -n}{digits}"
    else:
        point = "." if k > 1 else ""
        text = f"{digits[0]}{point}{digits[1:]}e{n - 1:+d}"
    return f"-{text}" if negative else text


# --- journal rows --------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """A journal row: compact JSON in UTF-8, keys in the order they have, numbers with their digits.

    Half a surrogate pair becomes U+FFFD. For every row, `encode(decode(row)) == row`.
    Errors: `TypeError` for what is not JSON, `ValueError` for NaN, infinities and endless nesting.
    """
    text = _text(value, _fast)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return well_formed(text).encode()


def json_text(value: Any) -> str:
    """The same as text, of any length, half surrogate pairs as they are. Errors: as `encode`."""
    return _text(value, _in_steps)


def _text(value: Any, fast: Callable[[Any], str]) -> str:
    try:
        try:
            return fast(value)
        except TypeError:  # a Decimal, most likely
            return _write(value, iter, _digits)
    except RecursionError:
        raise _too_deep() from None


def _in_steps(value: Any) -> str:
    """As `_fast`, but long lists are written slice by slice, so that other threads get their turn."""
    if not _holds_a_long_list(value, _STEPS_DEPTH):
        return _fast(value)
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        pairs = [f"{_fast({key: 0})[1:-2]}{_in_steps(item)}" for key, item in table.items()]
        return f"{{{','.join(pairs)}}}"
    starts = range(0, len(value), _SLICE)
    return f"[{','.join([_fast(value[start : start + _SLICE])[1:-1] for start in starts])}]"


def _holds_a_long_list(value: Any, depth: int) -> bool:
    if type(value) is list:
        return len(cast("list[Any]", value)) > _SLICE
    if type(value) is not dict or not depth:
        return False
    return any(
        _holds_a_long_list(each, depth - 1) for each in cast("dict[Any, Any]", value).values()
    )


def decode(row: bytes) -> Any:
    """Read what `encode` wrote: integers as `int`, every other number as `Decimal`.

    Errors: `ValueError` for what is no JSON.
    """
    return _ROW.decode(row.decode())


def well_formed(text: str) -> str:
    """The text with halves of surrogate pairs joined where they meet, else replaced by U+FFFD."""
    try:
        for piece in _pieces(text):
            piece.encode()
    except UnicodeEncodeError:
        halves = [piece.encode("utf-16-le", "surrogatepass") for piece in _pieces(text)]
        return "".join([piece.decode("utf-16-le", "replace") for piece in halves])
    return text


def utf8(text: str) -> bytes:
    """The text in UTF-8, made in steps: one call would hold up every thread, and take three times the memory."""
    return text.encode() if text.isascii() else b"".join([each.encode() for each in _pieces(text)])


def _pieces(text: str) -> Iterator[str]:
    """A long text in steps, none of which ends between two halves of a character."""
    start = 0
    while start < len(text):
        end = start + _PIECE_CHARS
        while end < len(text) and "\ud800" <= text[end - 1] <= "\udbff":
            end += 1
        yield text[start:end]
        start = end


def _digits(value: int | float | Decimal) -> str:
    """All digits, trailing zeros included, in a form that `decode` reads back as the same."""
    if isinstance(value, int):
        return int.__repr__(value)
    finite = isfinite(value) if isinstance(value, float) else value.is_finite()
    if not finite:
        raise ValueError(f"{value} is no JSON number")
    short = float.__repr__(float(value))
    if isinstance(value, float):
        return short
    if value.compare_total(Decimal(short)) == 0:
        return short  # as the equal float is written: decoding turns floats into Decimals
    text = str(value)
    return "-0.0" if text == "-0" else text  # -0 would be read as the integer 0


_PIECE_CHARS = 1_000_000
_SLICE = 1_000
_STEPS_DEPTH = 3
"""How deep a long list is looked for."""

_ROW = json.JSONDecoder(parse_float=Decimal)
_encoder = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
)


def _make_fast() -> Callable[[Any], str]:
    """The C encoder, made once: `JSONEncoder.encode` makes one for every value."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # no C accelerator on this interpreter
        return _encoder.encode
    chunks: Callable[[Any, int], Iterable[str]] = make(
        None, _encoder.default, encode_basestring, None, ":", ",", False, False, False
    )
    return lambda value: "".join(chunks(value, 0))


_fast: Callable[[Any], str] = _make_fast()
