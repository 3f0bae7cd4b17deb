"""Messages as they go out: blocks in their order, what stood beside a block back in it, own blocks as they were.

What may go out depends on what the provider can still check: a block that binds to the conversation before it is
left out where that was changed (X5), or where the provider has refused it. A turn that goes on is sent back as it
is; in one that is over, cut short or given up, nothing may be left open: a call of a tool of the provider's own
that nobody will answer any more, a thought that nothing follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.wires.anthropic.blocks import (
    BESIDE,
    BINDING,
    MESSAGE,
    NO_OUTPUT,
    RESULT,
    Fields,
    is_object,
    kind_of,
    media_block,
    object_of,
    read,
    text_of,
)
from remit.models.wires.anthropic.foreign import is_list, is_table
from remit.models.wires.pieces import Piece
from remit.models.wires.toolbox import Toolbox
from remit.transcript import Break

__all__ = ["Writer"]

_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})

_encode = msgspec.json.Encoder().encode


class Writer:
    """Writes the messages of one run."""

    def __init__(self, issuer: str, toolbox: Toolbox) -> None:
        self._issuer = issuer
        self.toolbox = toolbox
        self.messages: Sequence[Message] = ()
        """All that are written now; a message is looked at with those that follow it."""
        self.breaks: tuple[Break, ...] = ()
        self.bare = 0
        """In so many leading messages no binding block goes out."""
        self.trimmed = -1
        """The index of a message whose last text ends without white space."""
        self.bound = False
        """Whether a binding block has gone out that the provider may refuse."""
        self.left_out = 0
        """Binding blocks that did not go out for a break, since somebody last looked."""
        self.containers: dict[int, str] = {}
        """By the index of a reply: where the provider's code ran, which is gone on with there."""
        self._toolsets: dict[str, msgspec.Raw] = {}
        """By the id of a call: the set that its tool belongs to, which its result has to name."""

    def write(self, index: int, message: Message) -> Piece:
        """One message, or several where one was parsed with others in its place; nothing where nothing is left."""
        if message.role == "assistant":
            return self._reply(index, message.content)
        made = self._said(message)
        if made.data or index:
            return made
        # A conversation begins with the user, also where another provider's block was all there was.
        turn = _Turn("user")
        turn.add(_text("(The beginning cannot be shown here.)"))
        return turn.piece()

    # The assistant's turn

    def _reply(self, index: int, content: Sequence[Block]) -> Piece:
        turn = _Turn("assistant")
        self.containers.pop(index, None)
        for block in content:
            if isinstance(block, Text):
                turn.add(_text(block.text))
            elif isinstance(block, ToolUse):
                turn.add(self._call(block), call=block.id)
            elif isinstance(block, Opaque) and block.issuer == self._issuer:
                self._own(index, turn, block)
            else:
                turn.skip()
        if turn.served or turn.thoughts:
            self._close(index, turn)
        if index == self.trimmed and isinstance(content[-1], Text):
            turn.replace(_text(content[-1].text.rstrip()))
        return turn.piece()

    def _close(self, index: int, turn: _Turn) -> None:
        """Leave out what is open in a turn that is over; one that goes on is sent back as it is."""
        end = index + 1
        while end < len(self.messages) and self.messages[end].role == "assistant":
            end += 1
        if end == len(self.messages):
            return
        if turn.served and not self.messages[end].tool_results:  # else with the next reply
            turn.drop_calls(turn.served.keys() - self._answered(index, end))
        if end == index + 1:
            turn.drop_thoughts_at_the_end()

    def _answered(self, start: int, end: int) -> set[str | None]:
        """The calls of the provider's own tools whose results stand in these messages."""
        said = [
            self._found(block) for at in range(start, end) for block in self.messages[at].content
        ]
        return {
            text_of(found[1], "tool_use_id")
            for found in said
            if found is not None and found[0].endswith("_tool_result")
        }

    def _own(self, index: int, turn: _Turn, block: Opaque) -> None:
        """A block of the provider's own, or what it said beside one."""
        found = kind_of(block.data)
        if found is None:
            turn.skip()
            return
        kind, fields = found
        if kind == BESIDE:
            if turn.call is not None and "toolset_name" in fields:
                self._toolsets[turn.call] = fields["toolset_name"]
            turn.merge(fields)
        elif kind == MESSAGE:
            container = read(fields.get("container"))
            if is_table(container) and isinstance(container.get("id"), str):
                self.containers[index] = container["id"]
        elif kind not in BINDING:
            served = text_of(fields, "id") if kind in _CALLS else None
            turn.add_own(block.data, may_mark="cache_control" not in fields, served=served)
        elif index >= self.bare and not any(each.first < index < each.end for each in self.breaks):
            turn.add_thought(block.data)
            self.bound = True
        else:
            turn.skip()
            self.left_out += index >= self.bare

    def _call(self, use: ToolUse) -> bytes:
        head = {"type": "tool_use", "id": use.id, "name": self.toolbox.wire_name(use.name)}
        arguments = self.toolbox.wire_arguments(use.name, use.arguments)
        return _encode(head)[:-1] + b',"input":' + object_of(arguments) + b"}"

    # The user's turn

    def _said(self, message: Message) -> Piece:
        """A turn of the user. Messages of other roles that were parsed in its place stand between its parts."""
        natives = self._natives(message)
        parts: list[Piece] = []
        turn = _Turn("user")
        for block in message.content:
            if isinstance(block, ToolResult):
                turn.add(self._result(block, natives.get(block.tool_use_id)))
            elif isinstance(block, Text):
                turn.add(_text(block.text))
            elif isinstance(block, Media):
                turn.add(_encode(media_block(block)))
            elif (found := self._found(block)) is None:
                turn.skip()
            elif found[0] == BESIDE:
                turn.merge(found[1])
            elif "role" in found[1]:
                parts += (turn.piece(), Piece(found[2]))
                turn = _Turn("user")
            elif found[0] != RESULT:
                turn.add_own(found[2], may_mark="cache_control" not in found[1])
        return _joined([*parts, turn.piece()]) if parts else turn.piece()

    def _found(self, block: Block) -> tuple[str, Fields, bytes] | None:
        """The kind, the fields and the bytes of an own block; None for any other."""
        if not isinstance(block, Opaque) or block.issuer != self._issuer:
            return None
        found = kind_of(block.data)
        return None if found is None else (*found, block.data)

    def _natives(self, message: Message) -> dict[str | None, Fields]:
        """What the results of a turn say beyond text and media, by their ids."""
        said = [self._found(block) for block in message.content if isinstance(block, Opaque)]
        natives = {
            text_of(found[1], "tool_use_id"): found[1]
            for found in said
            if found is not None and found[0] == RESULT
        }
        # An id may have been given anew since (T3): what is left over on both sides belongs together.
        ids = [result.tool_use_id for result in message.tool_results] if natives else []
        lost = [natives[name] for name in natives if name not in ids]
        bare = [name for name in ids if name not in natives]
        return natives | dict(zip(bare, lost, strict=True)) if len(lost) == len(bare) else natives

    def _result(self, result: ToolResult, native: Fields | None) -> bytes:
        """A result. Its text stays text, whatever it looks like (case 18)."""
        parts: Any = () if native is None else read(native.get("parts"))
        content = [
            media_block(part)
            if isinstance(part, Media)
            else _native(part.text)
            if is_list(parts) and at in parts
            else {"type": "text", "text": part.text}
            for at, part in enumerate(result.content)
        ]
        fields: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": result.tool_use_id,
            "content": content,
        }
        only = content[0] if len(content) == 1 else None
        if native is not None and "blank" in native and result.text == NO_OUTPUT:
            del fields["content"]
        elif isinstance(only, dict) and only["type"] == "text":
            fields["content"] = only["text"]
        if result.is_error:
            fields["is_error"] = True
        toolset = self._toolsets.get(result.tool_use_id)
        if toolset is not None:
            fields["toolset_name"] = toolset
        return _encode(fields)


class _Turn:
    """One message as it is written."""

    __slots__ = ("_beside", "_blocks", "_role", "_unmarked", "call", "served", "thoughts")

    def __init__(self, role: str) -> None:
        self._role = role
        self._blocks: list[bytes | None] = []
        """None where a block was taken back."""
        self._unmarked: set[int] = set()
        """Places of blocks that take no cache marker."""
        self.thoughts: set[int] = set()
        """Places of blocks that bind."""
        self.served: dict[str, int] = {}
        """Calls of the provider's own tools, by their ids, to their places."""
        self._beside = False
        """Whether the newest block of the message went out, so that what stood beside it may too."""
        self.call: str | None = None
        """The id of the newest block, where that is a call of ours."""

    def add(self, block: bytes, *, call: str | None = None) -> None:
        """A block that we have written."""
        self._blocks.append(block)
        self._beside = True
        self.call = call

    def add_own(self, block: bytes, *, may_mark: bool, served: str | None = None) -> None:
        """A block of the provider's, to which nothing is added."""
        if served is not None:
            self.served[served] = len(self._blocks)
        if not may_mark:
            self._unmarked.add(len(self._blocks))
        self._blocks.append(block.strip())
        self.skip()

    def add_thought(self, block: bytes) -> None:
        """A block of the provider's that binds: it takes no marker either."""
        self.thoughts.add(len(self._blocks))
        self.add_own(block, may_mark=False)

    def skip(self) -> None:
        """What stands beside the newest block does not go out."""
        self._beside = False
        self.call = None

    def replace(self, block: bytes) -> None:
        """The newest block goes out so."""
        self._blocks[-1] = block

    def merge(self, fields: Fields) -> None:
        """Put what stood beside the newest block back into it."""
        more = {name: raw for name, raw in fields.items() if name != "type"}
        newest = self._blocks[-1] if self._blocks else None
        if self._beside and more and newest is not None:
            self._blocks[-1] = newest[:-1] + b"," + _encode(more)[1:]

    def drop_calls(self, ids: Iterable[str]) -> None:
        """Take back calls of the provider's own tools."""
        for each in ids:
            self._blocks[self.served[each]] = None

    def drop_thoughts_at_the_end(self) -> None:
        """A turn that is over may not end in a thought: it was cut there."""
        for at in range(len(self._blocks) - 1, -1, -1):
            if at in self.thoughts:
                self._blocks[at] = None
            elif self._blocks[at] is not None:
                return

    def piece(self) -> Piece:
        kept = [(at, block) for at, block in enumerate(self._blocks) if block is not None]
        if not kept:
            return Piece(b"")
        head = b'{"role":"%s","content":[' % self._role.encode()
        data = head + b",".join([block for _, block in kept]) + b"]}"
        mark = len(data) - 3  # before the last brace of the last block
        while kept and kept[-1][0] in self._unmarked:
            mark -= len(kept.pop()[1]) + 1
        return Piece(data, mark if kept else None)


def _joined(parts: Sequence[Piece]) -> Piece:
    """Several messages as one piece."""
    data, mark = b"", None
    for part in parts:
        if part.data:
            data += b"," if data else b""
            mark = mark if part.mark is None else len(data) + part.mark
            data += part.data
    return Piece(data, mark)


def _text(text: str) -> bytes:
    return _encode({"type": "text", "text": text})


def _native(text: str) -> msgspec.Raw | dict[str, Any]:
    """A part of a result that was no text: as it was, unless a note has taken its place since."""
    return msgspec.Raw(text.encode()) if is_object(text) else {"type": "text", "text": text}
