"""A reply, from a stream or whole.

A block of a stream is assembled under its index and is complete at its stop. Nothing is guessed: what a stream
does not say is an error; what it says and we do not know is skipped, or kept as it is (case 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from remit.errors import ModelError, ModelProtocolError
from remit.messages import Block, Message, Opaque, Reply, StopReason, ToolUse, Usage
from remit.models.base import BlockDone, Chunk, Notice, TextDelta
from remit.models.wires.anthropic.blocks import (
    MESSAGE,
    Fields,
    fields_of,
    is_object,
    object_of,
    opaque,
    reply_block,
    text_of,
)
from remit.models.wires.anthropic.counting import Counted, stop_reason_of
from remit.models.wires.anthropic.faults import told_in_a_reply
from remit.models.wires.anthropic.foreign import is_table
from remit.models.wires.sse import ServerEvent
from remit.models.wires.toolbox import Toolbox

__all__ = ["AnthropicDecoder"]

_CHARS_PER_TOKEN = 4
_ABSENT: Final = msgspec.Raw(b"")

_TO_FIELD: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "input",
}
"""Deltas that are appended, to the field of the block that they grow."""

_MAY_RUN = frozenset({StopReason.TOOL_USE, StopReason.END_TURN})

_encode = msgspec.json.Encoder().encode


class _Delta(msgspec.Struct):
    """The fields of all deltas; which of them count follows from the type."""

    type: Any = None
    text: Any = None
    thinking: Any = None
    partial_json: Any = None
    signature: Any = None
    citation: msgspec.Raw = _ABSENT
    content: msgspec.Raw = _ABSENT
    encrypted_content: msgspec.Raw = _ABSENT
    stop_reason: Any = None
    stop_details: Any = None
    container: Any = None


class _Begun(msgspec.Struct):
    usage: Any = None
    container: Any = None


class _Event(msgspec.Struct):
    """The fields of all events."""

    type: Any = None
    index: Any = None
    message: _Begun | None = None
    content_block: msgspec.Raw = _ABSENT
    delta: _Delta | None = None
    usage: Any = None
    error: Any = None


class _Whole(msgspec.Struct):
    """A reply that was not streamed, or the error in its place."""

    type: Any = None
    content: list[msgspec.Raw] | None = None
    stop_reason: Any = None
    usage: Any = None
    container: Any = None
    error: Any = None


_event = msgspec.json.Decoder(_Event)
_whole = msgspec.json.Decoder(_Whole)


class _Growing:
    """A block that is being written."""

    __slots__ = ("blocks", "fields", "grown", "is_cut", "kind", "raw", "replaced")

    def __init__(self, raw: bytes, fields: Fields) -> None:
        self.raw = raw
        """As it began."""
        self.fields = fields
        self.kind = text_of(fields, "type")
        self.grown: dict[str, list[str]] = {}
        """What was appended, by field."""
        self.replaced: Fields = {}
        self.blocks: tuple[Block, ...] | None = None
        """What it became; None while it is written."""
        self.is_cut = False
        """Whether it is a call whose arguments are no JSON object: nobody may take it for complete."""


class AnthropicDecoder:
    """Reads one reply."""

    def __init__(self, issuer: str, toolbox: Toolbox | None = None) -> None:
        self.content = self.unshown = 0
        self._issuer = issuer
        self._toolbox = toolbox
        self._counted = Counted()
        self._is_final_count = False
        self._chars = 0
        self._begun = False
        self._ended = False
        self._stop_reason: Any = None
        self._stop_details: Any = None
        self._container: Any = None
        self._order: list[_Growing] = []
        """All blocks, in the order in which they began."""
        self._open: dict[int, _Growing] = {}
        self._given = 0
        """How many of them were handed out."""

    @property
    def usage(self) -> Usage | None:
        """What was reported so far. The output is counted at the end only: before it, what was seen counts."""
        found = self._counted.reported
        if found is None or not found.prompt:
            return None  # every request has a prompt: whoever counts none has not counted yet
        if not self._is_final_count:
            seen = max(found.output, self._chars // _CHARS_PER_TOKEN)
            found = msgspec.structs.replace(found, output=seen)
        return found + self._counted.beside

    def feed(self, event: ServerEvent) -> Sequence[Chunk]:
        """Take one event of a stream."""
        if self._ended or event.data == b"[DONE]":
            return ()  # some proxies end every stream as another API does
        try:
            found = _event.decode(event.data)
            match found.type:
                case "content_block_delta":
                    return self._grow(found)
                case "content_block_start":
                    return self._start(found)
                case "content_block_stop":
                    return self._stop(found)
                case "message_start":
                    self._begin(found)
                case "message_delta":
                    self._turn(found)
                case "message_stop":
                    return self._end()
                case "error":
                    # Before its first word nothing was made, and nothing is billed.
                    usage = self.usage if self._begun or self._order else Usage()
                    raise told_in_a_reply(found.error, usage=usage)
                case _:
                    pass  # a ping, or what a later version of the API says
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._protocol(f"an event cannot be read: {_short(error)}") from None
        return ()

    def end(self) -> Sequence[Chunk]:
        """The stream is over."""
        if not self._ended:
            raise self._protocol("the stream broke off: it ended without message_stop")
        return ()

    def whole(self, body: bytes) -> Reply:
        """Read a response that was not streamed."""
        try:
            body.decode()
            found = _whole.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._protocol(f"the response cannot be read: {_short(error)}") from None
        if found.type == "error":
            raise told_in_a_reply(found.error, usage=Usage())
        if found.content is None:
            raise self._protocol(
                "the response is no message: it has no content; check the base URL"
            )
        self._counted.take(found.usage)
        self._is_final_count = True
        blocks: list[Block] = []
        for raw in found.content:
            fields = fields_of(raw)
            if fields is None:
                raise self._protocol("a block of the content is no object")
            blocks += reply_block(self._issuer, bytes(raw), fields, self._own)
        self.content += len(blocks)
        self._container = found.container
        return self._reply([*blocks, *self._as_a_whole()], found.stop_reason)

    # One event each

    def _begin(self, found: _Event) -> None:
        if self._begun:
            raise self._protocol("a second message begins inside of the first")
        self._begun = True
        if found.message is not None:
            self._counted.take(found.message.usage)
            self._container = found.message.container

    def _start(self, found: _Event) -> Sequence[Chunk]:
        raw = _whole_text(found.content_block)
        fields = fields_of(raw)
        if fields is None:
            raise self._protocol("a block begins that is no object")
        index = found.index if type(found.index) is int else -len(self._order) - 1
        before = self._open.pop(index, None)
        if before is not None:
            self._close(before)  # a new beginning ends what was there: the two are never glued
        block = _Growing(raw, fields)
        self._order.append(block)
        self._open[index] = block
        self.content += 1
        chunks = self._complete()
        begun = text_of(fields, "text") if block.kind == "text" else None
        if begun:
            chunks.append(self._text(begun))
        return chunks

    def _grow(self, found: _Event) -> Sequence[Chunk]:
        delta = found.delta
        if delta is None:
            raise self._protocol("a delta without content")
        block = self._meant(found.index)
        if block is None:
            raise self._protocol(f"a delta belongs to no open block (index {found.index!r:.20})")
        field = _TO_FIELD.get(delta.type) if isinstance(delta.type, str) else None
        if field is not None:
            piece: Any = delta.partial_json if field == "input" else getattr(delta, field)
            if not isinstance(piece, str):
                raise self._protocol(f"a {field} delta that is no text")
            if not piece:
                return ()
            block.grown.setdefault(field, []).append(piece)
            self.content += 1
            if field == "text" and block.kind == "text":
                return (self._text(piece),)
            self._chars += len(piece)
            self.unshown += len(piece)
            return ()
        if _replace(block, delta):
            self.content += 1
        return ()

    def _stop(self, found: _Event) -> Sequence[Chunk]:
        block = self._meant(found.index)
        if block is None:
            return ()  # it was closed before
        self._open = {index: other for index, other in self._open.items() if other is not block}
        self._close(block)
        self.content += 1
        return self._complete()

    def _turn(self, found: _Event) -> None:
        if found.delta is not None and found.delta.container is not None:
            self._container = found.delta.container
        if found.delta is not None and found.delta.stop_reason is not None:
            self._stop_reason = found.delta.stop_reason
            self._stop_details = found.delta.stop_details
        if found.usage is not None:
            self._counted.take(found.usage)
            self._is_final_count = True

    def _end(self) -> Sequence[Chunk]:
        stop_reason = stop_reason_of(self._stop_reason)
        for block in self._open.values():
            if block.kind == "tool_use" and stop_reason in _MAY_RUN:
                raise self._protocol("the message ends while a call is being written")
            self._close(block)
        self._open = {}
        self._ended = True
        self._is_final_count = True
        chunks = self._complete(to_the_end=stop_reason in _MAY_RUN)
        if stop_reason is StopReason.REFUSAL:
            chunks += _why_refused(self._stop_details)
        blocks = [each for block in self._order for each in block.blocks or ()]
        if not (self._order and self._order[-1].is_cut):
            whole = self._as_a_whole()
            chunks += map(BlockDone, whole)
            blocks += whole
        chunks.append(self._reply(blocks, self._stop_reason))
        return chunks

    # Blocks

    def _meant(self, index: Any) -> _Growing | None:
        """The open block that an event is about. Without an index that can only be a single one."""
        if type(index) is int:
            return self._open.get(index)
        return next(iter(self._open.values())) if len(self._open) == 1 else None

    def _close(self, block: _Growing) -> None:
        """Put the block together."""
        fields = block.fields | block.replaced
        for field, pieces in block.grown.items():
            text = "".join(pieces)
            if field != "input":
                grown = _encode((text_of(block.fields, field) or "") + text)
            elif block.kind == "tool_use":
                block.is_cut = not is_object(text)
                grown = text.encode()
            else:
                grown = object_of(text)
            fields[field] = msgspec.Raw(grown)
        if block.kind == "tool_use" and block.is_cut:
            # Nothing stands behind a call in whose middle the reply broke off: it is the last, and dropped.
            name = text_of(fields, "name") or ""
            use = ToolUse(
                text_of(fields, "id") or "", *self._own(name, bytes(fields["input"]).decode())
            )
            block.blocks = (use,)
        elif block.grown or block.replaced:
            if block.kind not in ("text", "tool_use"):
                block.blocks = (Opaque(self._issuer, _encode(fields)),)
            else:
                block.blocks = reply_block(self._issuer, b"", fields, self._own)
        else:
            block.blocks = reply_block(self._issuer, block.raw, fields, self._own)

    def _complete(self, *, to_the_end: bool = False) -> list[Chunk]:
        """Hand out the blocks that are complete, in order. A call that is cut waits for what comes next."""
        chunks: list[Chunk] = []
        order = self._order
        while self._given < len(order):
            block = order[self._given]
            is_last = self._given == len(order) - 1
            if block.blocks is None or (block.is_cut and is_last and not to_the_end):
                break
            chunks += [BlockDone(each) for each in block.blocks]
            self._given += 1
        return chunks

    def _text(self, piece: str) -> TextDelta:
        self._chars += len(piece)
        return TextDelta(piece)

    def _own(self, name: str, arguments: str) -> tuple[str, str]:
        """Name and arguments of a call as the tool knows them."""
        toolbox = self._toolbox
        if toolbox is None:
            return name, arguments
        name = toolbox.own_name(name)
        return name, toolbox.own_arguments(name, arguments)

    def _as_a_whole(self) -> Sequence[Block]:
        """What the reply says beside its blocks, as a block."""
        if not is_table(self._container):
            return ()
        return (opaque(self._issuer, {"type": MESSAGE, "container": self._container}),)

    def _reply(self, blocks: Sequence[Block], stop_reason: Any) -> Reply:
        return Reply(
            Message("assistant", tuple(blocks)),
            stop_reason_of(stop_reason),
            self._counted.reported,
            beside=self._counted.beside,
        )

    def _protocol(self, what: str) -> ModelError:
        return ModelProtocolError(what, usage=self.usage)


def _replace(block: _Growing, delta: _Delta) -> bool:
    """Take a delta that says a field whole; False for one that we do not know."""
    match delta.type:
        case "signature_delta" if isinstance(delta.signature, str):
            block.replaced["signature"] = msgspec.Raw(_encode(delta.signature))
        case "citations_delta" if bytes(delta.citation):
            cited = bytes(block.replaced.get("citations", b"[]"))[:-1]
            comma = b"," if len(cited) > 1 else b""
            block.replaced["citations"] = msgspec.Raw(
                cited + comma + _whole_text(delta.citation) + b"]"
            )
        case "compaction_delta":
            for name in ("content", "encrypted_content"):
                raw = _whole_text(getattr(delta, name))
                if raw and raw != b"null":
                    block.replaced[name] = msgspec.Raw(raw)
        case _:
            return False
    return True


def _whole_text(raw: msgspec.Raw) -> bytes:
    """Foreign JSON that is kept as it stands. Errors: `UnicodeDecodeError`."""
    data = bytes(raw)
    data.decode()
    return data


def _why_refused(details: Any) -> list[Chunk]:
    """What the provider says of a refusal, for people."""
    if not is_table(details):
        return []
    said: list[Any] = [details.get("category"), details.get("explanation")]
    told = ": ".join([each for each in said if isinstance(each, str) and each])
    return [Notice("refusal", told[:500])] if told else []


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:120]
