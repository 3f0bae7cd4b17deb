"""Calls put together from the pieces in which a stream brings them (case 15).

Servers agree on little: OpenAI sends an id, a name and an index once and then pieces by index; others send the
id again and again, leave out the index or the id, use one index for all, or send a call whole. The rules:

    a new id starts a call, and so does a new index; the same index without a new id goes on with its call
    a piece with neither belongs to the one call that is open, if exactly one is
    a name without index and id starts a call where none is open

A call is open until its arguments are a whole JSON object: nothing but blanks can follow one. What fits no rule
is not guessed: the calls that it may belong to get a sentence behind their arguments, so that they cannot be
read and are answered as errors, and do not run. A call without a name is an error of the whole stream.

Pure. Above: `decode.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from remit.errors import ModelProtocolError

__all__ = ["MOST_CALLS", "Call", "CallAssembly", "CallPiece", "FunctionPiece", "arguments_of"]

MOST_CALLS: Final = 2_000
"""Calls of one reply, at most: a stream that goes on for ever ends."""

_NO_ID: Final = frozenset({"", "null"})
"""What stands for a missing id; `null` is what Mistral's own client fills in."""


class FunctionPiece(msgspec.Struct, gc=False):
    """What a piece says of the function."""

    name: Any = None
    arguments: msgspec.Raw = msgspec.Raw()


class CallPiece(msgspec.Struct, gc=False):
    """One entry of `tool_calls`, in a stream or whole. Nothing in it is relied on."""

    index: Any = None
    id: Any = None
    function: FunctionPiece | None = None
    custom: Any = None
    extra_content: msgspec.Raw = msgspec.Raw()


def arguments_of(raw: msgspec.Raw) -> str:
    """The text of the arguments: a string's, or the exact JSON where the server gives an object."""
    data = bytes(raw)
    if data[:1] == b'"':
        return msgspec.json.decode(data, type=str)
    return "" if data in {b"", b"null"} else data.decode()


_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


class _Object:
    """Whether a text that comes in pieces is a whole JSON object yet. Each character is looked at once."""

    __slots__ = ("_begun", "_depth", "_escaped", "_quoted", "over")

    def __init__(self) -> None:
        self.over = False
        """Its last brace was there."""
        self._begun = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def take(self, text: str) -> None:
        """Read on."""
        at = 0
        if self._escaped and text:
            self._escaped, at = False, 1
        while at < len(text) and not self.over:
            if self._quoted:
                found = _INSIDE.search(text, at)
                if found is None:
                    return
                at = found.end()
                if found[0] == '"':
                    self._quoted = False
                else:
                    self._escaped = at == len(text)
                    at += 1
                continue
            found = _OUTSIDE.search(text, at)
            if found is None:
                return
            at = found.end()
            match found[0]:
                case '"':
                    self._quoted = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    self.over = self._depth <= 0


class Call:
    """One call as far as it has come."""

    __slots__ = (
        "_object",
        "_pieces",
        "_repeated",
        "doubt",
        "extra",
        "id",
        "name",
        "orderly",
        "position",
        "whole",
    )

    def __init__(self, call_id: str | None, index: int | None, position: int) -> None:
        self.id = call_id
        self.position = position
        """In the order in which calls began, from 0."""
        self.name: str = ""
        """Its pieces, joined; a piece that only repeats the name so far is left out."""
        self._repeated = ""
        """The same with them."""
        self.whole = False
        """Its arguments are a JSON object from the first brace to the last."""
        self.doubt: str | None = None
        """Why it cannot be known what it says."""
        self.orderly = call_id is not None and index is not None
        """It began as OpenAI's calls do, so that what belongs to it is certain while it is written."""
        self.extra: dict[str, msgspec.Raw] = {}
        self._pieces: list[str] = []
        self._object = _Object()

    @property
    def begun(self) -> bool:
        """Some of its arguments were there."""
        return bool(self._pieces)

    @property
    def arguments(self) -> str:
        """The text as it came; with the doubt behind it where there is one."""
        text = "".join(self._pieces)
        return text if self.doubt is None else f"{text}\n({self.doubt})"

    def named(self, known: Collection[str]) -> str:
        """Its name. Where a piece may be a repetition or a part of it, the tools that there are decide."""
        if self._repeated == self.name or self._repeated not in known:
            return self.name
        if self.name in known:
            self.doubt = f"the name came as {self.name!r} or as {self._repeated!r}"
        return self._repeated

    def take_name(self, name: str, *, again: bool) -> None:
        """A piece of the name; `again` where the id came with it once more, which repeats the name too."""
        if self.begun or (again and name == self.name):
            if name not in {self.name, self._repeated}:
                self.doubt = f"it is called {self.name!r} and {name[:64]!r}"
            return
        if not self.name or name != self.name:
            self.name += name
        self._repeated += name

    def take_arguments(self, text: str) -> None:
        """A piece of the arguments."""
        if not text:
            return
        if self.whole and not text.isspace():
            self.whole = False
        self._pieces.append(text)
        if not self._object.over:
            self._object.take(text)
            self.whole = self._object.over and _is_object("".join(self._pieces))

    def take_extra(self, piece: CallPiece) -> None:
        """What else a piece holds that has to come back."""
        if bytes(piece.extra_content) not in {b"", b"null"}:
            self.extra["extra_content"] = piece.extra_content


def _id_of(piece: CallPiece) -> str | None:
    return piece.id if isinstance(piece.id, str) and piece.id not in _NO_ID else None


def _name_of(piece: CallPiece) -> str | None:
    said: Any = None if piece.function is None else piece.function.name
    return said if isinstance(said, str) and said else None


def _text_of(piece: CallPiece) -> str:
    return "" if piece.function is None else arguments_of(piece.function.arguments)


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


class CallAssembly:
    """The calls of one reply, in the order in which they began."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._at: dict[int, Call] = {}
        """The newest call of each index."""
        self._by: dict[tuple[int | None, str], Call] = {}
        """The newest call of each id, by index: constant ids are told apart by it."""
        self._done = 0
        """So many were given out and stand as they are."""
        self._orderly = True

    def take(self, pieces: Sequence[CallPiece]) -> None:
        """What one chunk says. Errors: `ModelProtocolError`."""
        named_here: set[int] = set()
        """Calls without an index that were named in this chunk: two such entries are two calls."""
        for piece in pieces:
            name, text = _name_of(piece), _text_of(piece)
            index = piece.index if type(piece.index) is int and piece.index >= 0 else None
            self._orderly = self._orderly and index is not None
            call, again = self._find(_id_of(piece), index, name, text, named_here)
            if call is None:
                continue
            if name is not None:
                call.take_name(name, again=again)
                if index is None:
                    named_here.add(call.position)
            if call.position < self._done and text and not text.isspace():
                raise ModelProtocolError(
                    f"the stream went on with a call of {call.name[:64]!r} whose arguments were complete"
                )
            call.take_arguments(text)
            call.take_extra(piece)  # behind the block that was given out it would come too late

    def add(self, entries: Sequence[CallPiece]) -> None:
        """The calls of a whole message: one for each entry, whatever it lacks. Errors: `ModelProtocolError`."""
        for entry in entries:
            call = self._new(_id_of(entry), None)
            call.take_name(_name_of(entry) or "", again=False)
            call.take_arguments(_text_of(entry))
            call.take_extra(entry)

    def ready(self) -> list[Call]:
        """The calls that are complete beyond doubt while the stream goes on, each once and in order."""
        ready: list[Call] = []
        while self._orderly and self._done < len(self.calls):
            call = self.calls[self._done]
            if not (call.whole and call.orderly and call.name) or call.doubt is not None:
                break
            ready.append(call)
            self._done += 1
        return ready

    def rest(self) -> list[Call]:
        """The calls that were not given out, now that the stream is over.

        An entry that said nothing is no call. Errors: `ModelProtocolError` for a call without a name.
        """
        rest = self.calls[self._done :]
        self._done = len(self.calls)
        if any(not call.name and call.begun for call in rest):
            raise ModelProtocolError("the stream holds arguments of a call without a name")
        return [call for call in rest if call.name]

    def _find(
        self,
        call_id: str | None,
        index: int | None,
        name: str | None,
        text: str,
        named_here: set[int],
    ) -> tuple[Call | None, bool]:
        """The call that a piece belongs to, and whether its id came again."""
        if call_id is not None:
            known = self._by.get((index, call_id))
            if known is not None and not (
                index is None and name is not None and known.position in named_here
            ):
                return known, True
            before = None if index is None else self._at.get(index)
            if before is not None and before.id is None and name is None:
                before.id = call_id  # it comes late: without a name this can be no new call
                self._by[index, call_id] = before
                return before, False
            return self._new(call_id, index), False
        if index is not None:
            known = self._at.get(index)
            return (self._new(None, index) if known is None else known), False
        return self._unlabelled(name, text, named_here), False

    def _unlabelled(self, name: str | None, text: str, named_here: set[int]) -> Call | None:
        """The call that a piece without index and id belongs to."""
        open_ = [call for call in self.calls if not call.whole]
        if name is not None:
            if not open_ or (named_here and open_[-1].position in named_here):
                return self._new(None, None)
            call = open_[-1]
            certain = len(open_) == 1 and (call.id is not None or not call.name or call.begun)
            if not certain:
                _doubt(open_, "another call may have begun within it")
            return call
        if not text or text.isspace():
            return None
        if len(open_) == 1:
            return open_[0]
        if not self.calls:
            return self._new(None, None)
        concerned = open_ or self.calls
        if concerned[0].position < self._done:
            raise ModelProtocolError("the stream holds arguments that belong to none of its calls")
        why = f"a piece of arguments came that could belong to any of {len(concerned)} calls"
        _doubt(concerned, why)
        return None

    def _new(self, call_id: str | None, index: int | None) -> Call:
        if len(self.calls) >= MOST_CALLS:
            raise ModelProtocolError(f"a reply of more than {MOST_CALLS:,} calls")
        call = Call(call_id, index, len(self.calls))
        self.calls.append(call)
        if index is not None:
            self._at[index] = call
        if call_id is not None:
            self._by[index, call_id] = call
        return call


def _doubt(calls: Sequence[Call], why: str) -> None:
    for call in calls:
        call.doubt = why
