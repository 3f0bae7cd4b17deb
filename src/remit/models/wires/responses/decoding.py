"""A reply, from a stream or whole.

An item is taken from the event that says that it is done, where it is whole; what comes before is shown as it
comes, and counts only where the response was cut in the middle of an item. The response ends with an event
that says how: completed, incomplete, failed or cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from remit.errors import ModelProtocolError, ModelRejected, ModelUnavailable
from remit.messages import Block, Message, Reply, StopReason, Text, ToolUse, Usage
from remit.models.base import BlockDone, Chunk, TextDelta
from remit.models.wires.responses.endings import INCOMPLETE, error_of, usage_of
from remit.models.wires.responses.items import (
    CUSTOM,
    FUNCTION,
    Fields,
    Own,
    blocks_of,
    decoded,
    fields_of,
    parts_of,
    string_of,
    well_formed,
)
from remit.models.wires.responses.state import held_block
from remit.models.wires.responses.turns import asks_client
from remit.models.wires.sse import ServerEvent

__all__ = ["ResponsesDecoder"]

_CALLS: Final = frozenset({FUNCTION, CUSTOM})
_UNFINISHED: Final = frozenset({"incomplete", "in_progress"})
_SHOWN: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_ARGUMENTS: Final = frozenset(
    {"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}
)
_TERMINAL: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
_ERRORS: Final = frozenset({"error", "response.error"})
_SAYS_WHY: Final = frozenset({"code", "detail", "error", "message", "type"})
"""Fields of an error that comes without a response around it."""
_NOTHING: Final = msgspec.Raw()


class _Event(msgspec.Struct, gc=False):
    """An event, as far as it can be read without knowing what it is."""

    type: str = ""
    delta: msgspec.Raw = _NOTHING
    item: msgspec.Raw = _NOTHING
    response: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING
    item_id: Any = None
    output_index: Any = None


class _Response(msgspec.Struct, gc=False):
    """A response without what it repeats of the request, which may be long."""

    id: Any = None
    status: Any = None
    error: Any = None
    incomplete_details: Any = None
    output: list[msgspec.Raw] | None = None
    usage: Any = None


_read_event = msgspec.json.Decoder(_Event).decode
_read_response = msgspec.json.Decoder(_Response).decode
_read_text = msgspec.json.Decoder(str).decode


class _Open:
    """An item that has begun and is not done."""

    __slots__ = ("fields", "index", "item_id", "pieces")

    def __init__(self, fields: Fields, index: object) -> None:
        self.item_id = fields.get("id")
        self.index = index
        self.fields = fields
        self.pieces: list[str] = []


class _Done(msgspec.Struct, frozen=True, gc=False):
    """An item that is whole."""

    raw: bytes
    fields: Fields
    index: object

    @property
    def known(self) -> str:
        """What tells it apart from others; empty where nothing does."""
        return string_of(self.fields, "id") or string_of(self.fields, "call_id")


class ResponsesDecoder:
    """Reads one reply."""

    def __init__(
        self,
        issuer: str,
        own: Own,
        *,
        answer: Callable[[str], str] | None = None,
        held_behind: str | None = None,
    ) -> None:
        """`answer` makes of a text that is a typed answer what its schema says.

        `held_behind`: the digest of what it answers, where the server keeps the reply.
        """
        self._issuer = issuer
        self._own = own
        self._answer = answer
        self._held_behind = held_behind
        self._open: list[_Open] = []
        self._waiting: list[_Done] = []
        """Items that are done before one that stands in front of them."""
        self._seen: dict[str, bytes] = {}
        self._count = 0
        """Items that were taken."""
        self._blocks: list[Block] = []
        self._beside: tuple[Block, ...] = ()
        """What stands beside the last block, until it is known that the block stays."""
        self._calls = self._refuses = self._waits = False
        """What the items hold: calls, a refusal, a call that only a client of another kind can answer."""
        self._cut: Block | None = None
        """The last call, where it was not finished: nothing begins with it before the response has ended."""
        self._unfinished = False
        """There was a call that was not finished."""
        self._usage: Usage | None = None
        self._over = False
        self.content = self.unshown = 0

    @property
    def usage(self) -> Usage | None:
        return self._usage

    # A stream

    def feed(self, event: ServerEvent) -> Sequence[Chunk]:
        """Take one event of a stream. Errors: `ModelError`."""
        if self._over or not event.data or event.data.strip() == b"[DONE]":
            return ()
        read = self._read(_read_event, event.data, "an event of the stream")
        kind = read.type or event.event
        if kind in _SHOWN:
            text = self._delta(read)
            return (TextDelta(text),) if text else ()
        if kind in _ARGUMENTS:
            self.unshown += len(self._delta(read))
        elif kind == "response.output_item.done":
            return self._item_done(read)
        elif kind == "response.output_item.added":
            self.content += 1
            fields = self._object(bytes(read.item), "an item of the reply")
            self._open.append(_Open(fields, read.output_index))
        elif kind in _TERMINAL:
            response = self._read(_read_response, bytes(read.response), "the response")
            return self._ended(response, kind.removeprefix("response."))
        elif kind in _ERRORS or bytes(read.error) not in {b"", b"null"}:
            raise error_of(self._object(event.data, "an error"), self._usage)
        elif kind.endswith(".delta") or "_call." in kind:
            self.content += 1  # reasoning, and how the provider's own tools get on
            self.unshown += max(len(read.delta) - 2, 0)  # it stands in quotes
        return ()

    def end(self) -> Sequence[Chunk]:
        """The stream is over. Errors: `ModelProtocolError` where it had no terminal event."""
        if not self._over:
            raise self._broken("the stream ended before the response was complete")
        return ()

    def whole(self, body: bytes) -> Reply:
        """Read a response that was not streamed. Errors: `ModelError`."""
        response = self._read(_read_response, body, "the reply")
        self._usage = usage_of(response.usage)
        if response.status is None and response.output is None:
            fields = self._object(body, "the reply")
            if not fields.keys() & _SAYS_WHY:
                raise self._broken("the reply is no response of this API: check the base URL")
            raise error_of(fields, self._usage)
        reply = self._ended(response, "completed")[-1]
        assert isinstance(reply, Reply)  # noqa: S101 - what ends well ends in one
        return reply

    def _read(self, read: Any, data: bytes, what: str) -> Any:
        try:
            try:
                return read(data)
            except msgspec.DecodeError:
                mended = well_formed(data)
                if mended == data:
                    raise
                return read(mended)
        except msgspec.ValidationError:
            raise self._broken(f"{what} has not the form of one") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise self._broken(f"{what} is not JSON") from None

    def _object(self, data: bytes, what: str) -> Fields:
        try:
            fields = fields_of(decoded(data))
        except ValueError:
            raise self._broken(f"{what} is not JSON") from None
        if fields is None:
            raise self._broken(f"{what} is no object")
        return fields

    def _broken(self, words: str) -> ModelProtocolError:
        return ModelProtocolError(words, usage=self._usage)

    def _delta(self, read: _Event) -> str:
        """A piece of a text or of arguments."""
        text: str = self._read(_read_text, bytes(read.delta), "a piece of the reply")
        if text:
            self.content += 1
            begun = self._begun(read)
            if begun is not None:
                begun.pieces.append(text)
        return text

    def _begun(self, read: _Event) -> _Open | None:
        """The open item that an event belongs to; None where that is not certain (case 15)."""
        if isinstance(read.item_id, str) and read.item_id:
            found = [each for each in self._open if each.item_id == read.item_id]
        elif type(read.output_index) is int:
            found = [each for each in self._open if each.index == read.output_index]
        else:
            found = self._open
        return found[0] if len(found) == 1 else None

    def _item_done(self, read: _Event) -> Sequence[Chunk]:
        raw = bytes(read.item)
        done = _Done(raw, self._object(raw, "an item of the reply"), read.output_index)
        self.content += 1
        self._close(done)
        self._waiting.append(done)
        taken: list[Block] = []
        while self._waiting and (first := self._next()) is not None:
            self._waiting.remove(first)
            taken += self._take(first)
        return [BlockDone(block) for block in taken]

    def _close(self, done: _Done) -> None:
        known = string_of(done.fields, "id")
        for each in self._open:
            if each.item_id == known if known else each.index == done.index:
                self._open.remove(each)
                return

    def _next(self) -> _Done | None:
        """The first of those that wait, unless one that is still open stands in front of it."""
        first = min(self._waiting, key=lambda done: _place(done.index))
        if any(_place(each.index) < _place(first.index) for each in self._open):
            return None
        return first

    # Items

    def _take(self, done: _Done) -> list[Block]:
        """The blocks of an item, behind what stands beside the one before it."""
        fields = done.fields
        kind = string_of(fields, "type")
        if not kind:
            raise self._broken("an item of the reply has no type")
        if done.known:
            if done.known in self._seen:
                if self._seen[done.known] == done.raw:
                    return []  # the same event once more
                raise self._broken("two items of the reply have one id")
            self._seen[done.known] = done.raw
        self._cut = None  # something came behind it: it cannot be the last block, and is left out
        self._count += 1
        try:
            block, *beside = blocks_of(
                self._issuer,
                done.raw,
                fields,
                self._own,
                keep_call_id=self._held_behind is not None,
            )
        except ModelProtocolError as error:
            error.usage = self._usage
            raise
        if self._answer is not None and isinstance(block, Text):
            block = Text(self._answer(block.text))
        taken: list[Block] = [*self._beside, block]
        if kind in _CALLS:
            self._calls = True
            if string_of(fields, "status") in _UNFINISHED:
                self._cut, self._unfinished, beside = taken.pop(), True, []
            # Whether the call stays is known only when the response has ended.
            self._beside = tuple(beside)
        else:
            taken += beside
            self._beside = ()
        self._waits = self._waits or asks_client(fields)
        self._refuses = self._refuses or _refuses(fields)
        self._blocks += taken
        return taken

    # The end

    def _ended(self, response: _Response, event: str) -> list[Chunk]:
        """The chunks at the end of a response: items that had not come, and the reply."""
        self._over = True
        self._usage = usage_of(response.usage) or self._usage
        status = response.status if isinstance(response.status, str) else event
        match status:
            case "completed" | "incomplete":
                pass
            case "failed":
                raise error_of(response.error, self._usage)
            case "cancelled":
                raise ModelUnavailable("the response was cancelled there", usage=self._usage)
            case "queued" | "in_progress":
                raise ModelRejected(
                    f"the response is {status}: it runs in the background, which is not waited for here; leave "
                    "background out of Settings(extra=...), or stream",
                    usage=self._usage,
                )
            case _:
                raise self._broken(f"the response has the unknown status {status[:40]!r}")
        taken = self._missed(response.output or [])
        if status == "completed":
            if self._unfinished or self._open:
                raise self._broken("the response says that it is complete, and an item is not")
            stop_reason = self._stop_reason()
            known = response.id if isinstance(response.id, str) else ""
            if self._held_behind is not None and known and not self._refuses:
                held = held_block(self._issuer, known, self._held_behind)
                self._beside = (*self._beside, held)
        else:
            details = fields_of(response.incomplete_details) or {}
            stop_reason = INCOMPLETE.get(string_of(details, "reason"), StopReason.UNKNOWN)
            taken += self._broken_off()
        taken += self._kept_beside(all_stays=status == "completed")
        message = Message("assistant", tuple(self._blocks))
        return [*map(BlockDone, taken), Reply(message, stop_reason, self._usage)]

    def _missed(self, output: Sequence[msgspec.Raw]) -> list[Block]:
        """Items that only the end of the response tells, after those that waited for others."""
        taken: list[Block] = []
        for done in sorted(self._waiting, key=lambda done: _place(done.index)):
            taken += self._take(done)
        self._waiting.clear()
        if len(output) <= self._count:
            return taken
        for index, item in enumerate(output):
            raw = bytes(item)
            done = _Done(raw, self._object(raw, "an item of the reply"), index)
            if (done.known in self._seen) if done.known else (index < self._count):
                continue
            self.content += 1
            self._close(done)
            taken += self._take(done)
        return taken

    def _stop_reason(self) -> StopReason:
        if self._refuses:
            return StopReason.REFUSAL
        if self._calls:
            return StopReason.TOOL_USE
        return StopReason.UNKNOWN if self._waits else StopReason.END_TURN

    def _broken_off(self) -> list[Block]:
        """What had come of the item in whose middle the response was cut."""
        block = self._cut or self._half()
        if block is None:
            return []
        taken = [*self._kept_beside(all_stays=True), block]
        self._blocks.append(block)
        return taken

    def _half(self) -> Block | None:
        """The newest item that is open, as far as it came."""
        if not self._open:
            return None
        last = self._open[-1]
        kind, name = string_of(last.fields, "type"), string_of(last.fields, "name")
        text = "".join(last.pieces)
        if kind in _CALLS and name:
            return ToolUse(string_of(last.fields, "call_id"), *self._own(name, text))
        return Text(text) if kind == "message" and text.strip() else None

    def _kept_beside(self, *, all_stays: bool) -> list[Block]:
        """What stands beside the last block; nothing where that is a call that will be dropped as cut."""
        beside, self._beside = list(self._beside), ()
        last = self._blocks[-1] if self._blocks else None
        if not all_stays and isinstance(last, ToolUse) and not _can_be_read(last):
            return []
        self._blocks += beside
        return beside


def _place(index: object) -> int:
    return index if type(index) is int else 0


def _refuses(fields: Fields) -> bool:
    return fields.get("type") == "message" and any(
        string_of(part, "type") == "refusal" for part in parts_of(fields.get("content"))
    )


def _can_be_read(use: ToolUse) -> bool:
    try:
        use.parsed()
    except ValueError:
        return False
    return True
