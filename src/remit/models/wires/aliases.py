"""Names and ids that a wire takes, one-to-one and the same after every restart.

    alias    a name in the letters of a wire: a pure function of the name
    Keys     the parameter names of one tool, there and back in JSON texts
    Ids      the ids of one conversation

Pure. An alias is a readable stem and a hash of the whole name, `files_read_` and fourteen hex digits. It
depends on no other name, so that the same tools in another order, fewer of them, or a history that names one
which is gone give the same bytes. A name that is legal stays as it is, unless it has the form of an alias:
then it gets one too, and so no name can pass for the alias of another.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from remit.canonical import parse_json

__all__ = ["IdRule", "Ids", "Keys", "NameRule", "alias"]

_HASH_DIGITS: Final = 14
"""56 bits: by chance no two names meet. Where somebody works at it, `Toolbox` sets the second one aside."""

_ALIAS_FORM = re.compile(rf"_[0-9a-f]{{{_HASH_DIGITS}}}\Z")

_KEY = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(?=([ \t\n\r]*:)?)', re.DOTALL)
"""A string of a JSON text; the second group says that it is a key."""


class NameRule(msgspec.Struct, frozen=True):
    """Which names a wire takes."""

    letters: str = "A-Za-z0-9_-"
    """The inside of a character class."""
    longest: int = 64
    """In characters."""


class IdRule(msgspec.Struct, frozen=True):
    """Which ids of tool uses a wire takes."""

    letters: str = "A-Za-z0-9_-"
    """The inside of a character class."""
    length: int | None = None
    """In characters, where all have to be of one length."""
    longest: int = 64
    """In characters."""


def alias(name: str, rule: NameRule) -> str:
    """The name as the wire takes it: one name for each, whatever other names there are."""
    if _legal(rule).fullmatch(name) and len(name) <= rule.longest and not _ALIAS_FORM.search(name):
        return name
    stem = _illegal(rule).sub("_", name)[: rule.longest - _HASH_DIGITS - 1]
    return f"{stem}_{_digest(name)[:_HASH_DIGITS]}"


class Keys:
    """Parameter names of one tool and their aliases, wherever in its arguments they stand.

    A key is known by its alias alone, not by its place: no branch of a union has to be chosen to read it.
    """

    __slots__ = ("_own", "_wire")

    def __init__(self, names: Iterable[str], rule: NameRule) -> None:
        """`names` may hold legal ones too; they stay as they are."""
        self._wire = {name: wire for name in names if (wire := alias(name, rule)) != name}
        self._own = {wire: name for name, wire in self._wire.items()}

    def __bool__(self) -> bool:
        return bool(self._wire)

    @property
    def collide(self) -> bool:
        """Whether two names have one alias: by chance never."""
        return len(self._own) < len(self._wire)

    def alias_of(self, key: str) -> str:
        """The key of the wire for this name."""
        return self._wire.get(key, key)

    def to_wire(self, text: str) -> str:
        """A JSON text with the wire's keys."""
        return _with_keys(text, self._wire)

    def from_wire(self, text: str) -> str:
        """A JSON text with the tool's own keys."""
        return _with_keys(text, self._own)


class Ids:
    """The ids of one conversation as a wire takes them, one-to-one.

    An alias depends on the id alone; only where that one is taken, on those that came before it.
    """

    __slots__ = ("_known", "_rule", "_taken")

    def __init__(self, rule: IdRule) -> None:
        self._rule = rule
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def wire(self, own: str) -> str:
        """The id as the wire takes it; the same whenever it is asked for."""
        known = self._known.get(own)
        if known is None:
            known = self._known[own] = self._new(own)
            self._taken.add(known)
        return known

    def _new(self, own: str) -> str:
        rule = self._rule
        fits = len(own) == rule.length if rule.length else 0 < len(own) <= rule.longest
        if fits and own not in self._taken and _legal(rule).fullmatch(own):
            return own
        length = rule.length or min(rule.longest, 24)
        salt = 0
        while True:
            digits = _digest(f"{own}\0{salt}" if salt else own)[:length]
            if digits not in self._taken:
                return digits
            salt += 1


@lru_cache(maxsize=64)
def _legal(rule: NameRule | IdRule) -> re.Pattern[str]:
    return re.compile(f"[{rule.letters}]+")


@lru_cache(maxsize=64)
def _illegal(rule: NameRule | IdRule) -> re.Pattern[str]:
    return re.compile(f"[^{rule.letters}]")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _with_keys(text: str, names: dict[str, str]) -> str:
    """The text with other keys and not a character changed besides.

    A text that is no JSON, or says one key twice, stays as it is: it is refused where it is dispatched.
    """
    changed = False

    def written(match: re.Match[str]) -> str:
        nonlocal changed
        inside, colon = match.groups()
        if colon is None:
            return match[0]
        name = names.get(json.loads(match[0]) if "\\" in inside else inside)
        if name is None:
            return match[0]
        changed = True
        return json.dumps(name, ensure_ascii=False)

    try:
        parse_json(text)
        renamed = _KEY.sub(written, text)
        if changed:
            parse_json(renamed)  # an alias beside its own name would be one key twice
    except ValueError:
        return text
    return renamed if changed else text
