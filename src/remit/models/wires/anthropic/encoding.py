"""A request of one run: what is the same in all of them is encoded once, and each message when it first goes out.

    {"model", "max_tokens", ...settings, "system", "tools", "messages"}

Above: `codec.py`. Below: `pieces.py` keeps the messages, `toolbox.py` the names, `markers.py` says where the
prompt cache is told to look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from remit.errors import ConfigurationError
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.base import ModelRequest, Settings, ToolSpec
from remit.models.wires.anthropic.blocks import (
    BESIDE,
    BINDING,
    NO_OUTPUT,
    RESULT,
    Fields,
    is_object,
    kind_of,
    media_block,
    object_of,
)
from remit.models.wires.anthropic.decoding import AnthropicDecoder
from remit.models.wires.anthropic.foreign import is_list, is_table, tables
from remit.models.wires.anthropic.markers import MOST_MARKERS, marked, marker
from remit.models.wires.codec import Wired
from remit.models.wires.lowering import CannotLower, Dialect, lower
from remit.models.wires.pieces import Piece, Pieces
from remit.models.wires.toolbox import Toolbox, WireTool
from remit.transcript import Break, Transcript

__all__ = ["AnthropicEncoder"]

TOOLS: Final = Dialect()
_OUTPUT: Final = Dialect(target="anthropic-strict", keys=None)

_LEAST_THINKING = 1_024
"""Tokens. Source: the provider's guide to extended thinking."""

_OURS = frozenset({"messages", "stream"})
"""What `Settings.extra` may not replace: the reply could not be read, or would be to something else."""

_IN_PREFIX = frozenset({"system", "tools"})

_encode = msgspec.json.Encoder().encode


class AnthropicEncoder:
    """The requests of one run, one after another."""

    def __init__(self, model: str, issuer: str, ttl: Literal["5m", "1h"] | None) -> None:
        self._model = model
        self._issuer = issuer
        self._marker = None if ttl is None else marker(ttl)
        self._pieces = Pieces(self._message)
        self._tools: tuple[ToolSpec, ...] | None = None
        self._toolbox = Toolbox((), TOOLS)
        self._prefix = _Prefix()
        self._breaks: tuple[Break, ...] = ()
        self._toolsets: dict[str, msgspec.Raw] = {}
        """By the id of a call: the set that its tool belongs to, which its result has to name."""
        self._bare = 0
        """In how many leading messages no binding block goes out any more."""
        self._bound = 0
        """Index of the last message of which a binding block went out, plus one."""
        self._left_out = 0
        self._thinks = True
        self._told: str | None = None
        """What a repair left out, until it is told."""

    # What a model is asked with

    def encode(self, request: ModelRequest, *, stream: bool) -> Wired:
        """The body of a request."""
        extra = request.settings.extra
        if not _OURS.isdisjoint(extra):
            named = ", ".join(sorted(_OURS & extra.keys()))
            raise ConfigurationError(f"Settings(extra=...) cannot hold {named}: remit writes that")
        self._take_tools(request.tools)
        self._breaks = request.transcript.breaks
        self._left_out = 0
        self._pieces.take(request.transcript)
        told = self._cut_back()
        head, room = self._head(request, stream, told)
        body = self._pieces.joined(head, b"]}", inserts=self._markers(request.transcript, room))
        return Wired(
            body,
            {},
            AnthropicDecoder(self._issuer, self._toolbox),
            self._toolbox.set_aside,
            "; ".join(told) or None,
        )

    def repair(self, what: str) -> bool:
        """The last body was refused for this. True where the next one will differ in a way that may help."""
        if what == "opaque" and not self._bare and self._bound:
            self._bare = len(self._pieces)
            self._told = "all thinking so far was left out: the provider refused it"
        elif what == "thinking" and self._thinks:
            self._thinks = False
            self._told = "thinking was switched off: the last turn has none to go on from"
        else:
            return False
        self._pieces.forget(0)
        return True

    def _cut_back(self) -> list[str]:
        told = [] if self._told is None else [self._told]
        if self._left_out and self._told is None:
            blocks = "block" if self._left_out == 1 else "blocks"
            told.append(
                f"{self._left_out} {blocks} of thinking left out: what stood before was changed"
            )
        self._told = None
        return told

    def _take_tools(self, tools: tuple[ToolSpec, ...]) -> None:
        if tools is self._tools:
            return
        if self._tools is not None and tools != self._tools:
            self._pieces.forget(0)  # other tools, other names of their parameters
        if tools != self._tools:
            self._toolbox = Toolbox(tools, TOOLS)
            self._prefix = _Prefix()
        self._tools = tools

    def _head(self, request: ModelRequest, stream: bool, told: list[str]) -> tuple[bytes, int]:
        """Everything before the messages, and how many cache markers are left for those."""
        settings = request.settings
        extra = settings.extra
        fields: dict[str, Any] = {"model": self._model, "max_tokens": request.max_output}
        if stream:
            fields["stream"] = True
        forced = settings.tool_choice not in ("auto", "none")
        thinking = self._thinking(settings, request.max_output)
        # With a choice that forces a call the provider refuses thinking: the choice is what was asked for now.
        if thinking is not None and not (forced and self._toolbox.offered):
            fields["thinking"] = thinking
        if self._toolbox.offered and settings.tool_choice != "auto":
            fields["tool_choice"] = self._tool_choice(settings.tool_choice)
        schema: dict[str, Any] = {}
        if request.output_schema is not None:
            try:
                lowered = lower(request.output_schema, _OUTPUT).schema
                schema = {"format": {"type": "json_schema", "schema": lowered}}
                fields["output_config"] = schema
            except CannotLower as error:
                told.append(f"the schema of the output does not go out: {error}")
        fields |= {name: extra[name] for name in extra if name not in _IN_PREFIX}
        if schema and is_table(fields["output_config"]):
            fields["output_config"] = {**schema, **fields["output_config"]}  # effort beside it
        prefix = self._prefix
        if not prefix.is_of(request.instructions, extra):
            mark = None if "cache_control" in extra else self._marker
            prefix.build(request.instructions, self._toolbox, extra, mark)
        room = 0 if "cache_control" in extra else MOST_MARKERS - prefix.marks
        return _encode(fields)[:-1] + prefix.data + b',"messages":[', room

    def _thinking(self, settings: Settings, max_output: int) -> dict[str, Any] | None:
        """It is a part of the output, so it has to fit into the cap."""
        if settings.thinking is None or not self._thinks:
            return None
        budget = min(settings.thinking, max_output - 1)
        if budget < _LEAST_THINKING:
            return None
        return {"type": "enabled", "budget_tokens": budget}

    def _tool_choice(self, choice: str) -> dict[str, Any]:
        if choice in ("any", "none"):
            return {"type": choice}
        return {"type": "tool", "name": self._toolbox.wire_name(choice)}

    def _markers(self, transcript: Transcript, room: int) -> list[tuple[int, bytes]]:
        if self._marker is None:
            return []
        places = [self._pieces.mark_of(at) for at in marked(transcript.messages, room)]
        return [(at, self._marker) for at in places if at is not None]

    # Messages

    def _message(self, index: int, message: Message) -> Piece:
        if message.role == "assistant":
            made = self._reply(index, message.content)
        else:
            made = self._said(message)
        if not made.data and index == 0:
            # A conversation begins with the user, also where another provider's block was all there was.
            made = _Turn("user")
            made.add(_encode({"type": "text", "text": "(The beginning cannot be shown here.)"}))
            return made.piece()
        return made

    def _reply(self, index: int, content: Sequence[Block]) -> Piece:
        turn = _Turn("assistant")
        bound = index >= self._bare and not any(
            each.first < index < each.end for each in self._breaks
        )
        for block in content:
            if isinstance(block, Text):
                turn.add(_encode({"type": "text", "text": block.text}))
            elif isinstance(block, ToolUse):
                turn.add(self._call(block), call=block.id)
            elif isinstance(block, Opaque) and block.issuer == self._issuer:
                self._own(index, turn, block, bound=bound)
            else:
                turn.skip()
        return turn.piece()

    def _own(self, index: int, turn: _Turn, block: Opaque, *, bound: bool) -> None:
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
        elif kind not in BINDING:
            turn.add(block.data, may_mark="cache_control" not in fields)
        elif bound:
            turn.add(block.data, may_mark=False)
            self._bound = max(self._bound, index + 1)
        else:
            turn.skip()
            self._left_out += 1

    def _call(self, use: ToolUse) -> bytes:
        head = {"type": "tool_use", "id": use.id, "name": self._toolbox.wire_name(use.name)}
        arguments = self._toolbox.wire_arguments(use.name, use.arguments)
        return _encode(head)[:-1] + b',"input":' + object_of(arguments) + b"}"

    def _said(self, message: Message) -> Piece:
        """A turn of the user. Messages of other roles that were parsed in its place stand between its parts."""
        natives = self._natives(message)
        parts: list[Piece] = []
        turn = _Turn("user")
        results = 0
        for block in message.content:
            if isinstance(block, ToolResult):
                turn.add(self._result(block, natives.get(results)))
                results += 1
            elif isinstance(block, Text):
                turn.add(_encode({"type": "text", "text": block.text}))
            elif isinstance(block, Media):
                turn.add(_encode(media_block(block)))
            elif isinstance(block, Opaque) and block.issuer == self._issuer:
                found = kind_of(block.data)
                if found is None:
                    turn.skip()
                elif found[0] == BESIDE:
                    turn.merge(found[1])
                elif "role" in found[1]:
                    parts += (turn.piece(), Piece(block.data))
                    turn = _Turn("user")
                elif found[0] != RESULT:
                    turn.add(block.data, may_mark="cache_control" not in found[1])
            else:
                turn.skip()
        return turn.piece() if not parts else _joined([*parts, turn.piece()])

    def _natives(self, message: Message) -> dict[int, Fields]:
        """What the results of a turn say beyond text and media, by their index."""
        found: dict[int, Fields] = {}
        for block in message.content:
            if isinstance(block, Opaque) and block.issuer == self._issuer:
                kind = kind_of(block.data)
                if kind is not None and kind[0] == RESULT and "index" in kind[1]:
                    index = _read(kind[1]["index"])
                    if isinstance(index, int):
                        found[index] = kind[1]
        return found

    def _result(self, result: ToolResult, native: Fields | None) -> bytes:
        fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.tool_use_id}
        parts = None if native is None else _read(native.get("parts"))
        raw: Sequence[Any] = parts if is_list(parts) else ()
        content = [
            _native(part.text)
            if isinstance(part, Text) and at in raw
            else {"type": "text", "text": part.text}
            if isinstance(part, Text)
            else media_block(part)
            for at, part in enumerate(result.content)
        ]
        if len(content) == 1 and isinstance(content[0], dict) and content[0]["type"] == "text":
            fields["content"] = content[0]["text"]
        else:
            fields["content"] = content
        if native is not None and "blank" in native and result.text == NO_OUTPUT:
            del fields["content"]
        if result.is_error:
            fields["is_error"] = True
        toolset = self._toolsets.get(result.tool_use_id)
        if toolset is not None:
            fields["toolset_name"] = toolset
        return _encode(fields)


class _Turn:
    """One message as it is written."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._blocks: list[bytes] = []
        self._last_mark = -1
        """Index of the last block that may carry a cache marker."""
        self._beside = False
        """Whether the newest block of the message went out, so that what stands beside it may too."""
        self.call: str | None = None
        """The id of the newest block, where that is a call."""

    def add(self, block: bytes, *, may_mark: bool = True, call: str | None = None) -> None:
        if may_mark:
            self._last_mark = len(self._blocks)
        self._blocks.append(block)
        self._beside = True
        self.call = call

    def skip(self) -> None:
        """The newest block does not go out."""
        self._beside = False
        self.call = None

    def merge(self, fields: Fields) -> None:
        """Put what stood beside the newest block back into it."""
        more = {name: raw for name, raw in fields.items() if name != "type"}
        if self._beside and more:
            self._blocks[-1] = self._blocks[-1].rstrip()[:-1] + b"," + _encode(more)[1:]

    def piece(self) -> Piece:
        if not self._blocks:
            return Piece(b"")
        head = b'{"role":"%s","content":[' % self._role.encode()
        mark = None
        if self._last_mark >= 0:
            before = self._blocks[: self._last_mark + 1]
            # Behind all that it is told to keep, and before the brace that closes it.
            end = self._blocks[self._last_mark].rstrip()
            mark = len(head) + sum(map(len, before)) + len(before) - 1
            mark -= len(self._blocks[self._last_mark]) - len(end) + 1
        return Piece(head + b",".join(self._blocks) + b"]}", mark)


def _joined(parts: Sequence[Piece]) -> Piece:
    """Several messages as one piece."""
    data, mark = b"", None
    for part in parts:
        if part.data:
            data += b"," if data else b""
            mark = mark if part.mark is None else len(data) + part.mark
            data += part.data
    return Piece(data, mark)


def _native(text: str) -> msgspec.Raw | dict[str, Any]:
    """A part of a result that was no text: as it was, unless a note has taken its place since."""
    return msgspec.Raw(text.encode()) if is_object(text) else {"type": "text", "text": text}


def _read(raw: msgspec.Raw | None) -> Any:
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


class _Prefix:
    """System and tools as they go out: the same bytes in all requests of a run."""

    def __init__(self) -> None:
        self.data = b""
        self.marks = 0
        """Cache markers in it."""
        self._of: tuple[str, Any] | None = None

    def is_of(self, instructions: str, extra: Mapping[str, Any]) -> bool:
        return self._of is not None and self._of[0] == instructions and self._of[1] is extra

    def build(
        self, instructions: str, toolbox: Toolbox, extra: Mapping[str, Any], mark: bytes | None
    ) -> None:
        """Encode them; one marker at the end of both."""
        own: list[Any] = [_tool(tool) for tool in toolbox.offered]
        tools = _with_more(own, extra["tools"]) if "tools" in extra else own
        system: Any = [{"type": "text", "text": instructions}] if instructions.strip() else []
        system = extra.get("system", system)
        self.marks = len([each for each in (*tools, *tables(system)) if "cache_control" in each])
        self.data = b""
        for name, value in (("tools", tools), ("system", system)):
            if value:
                self.data += b',"%s":%s' % (name.encode(), _encode(value))
        deferred = not system and tools and "defer_loading" in tools[-1]  # no marker is taken there
        if mark is not None and not self.marks and not deferred and self.data.endswith(b"}]"):
            self.data = self.data[:-2] + mark + b"}]"
            self.marks = 1
        self._of = (instructions, extra)


def _with_more(own: list[Any], more: Any) -> list[Any]:
    """Tools of ours and those of `Settings.extra`: the provider's own, or ours with more to say of them."""
    if not is_list(more):
        raise ConfigurationError("Settings(extra={'tools': ...}): give a list of tools")
    named = {entry.get("name") for entry in tables(more)}
    return [tool for tool in own if tool["name"] not in named] + list(more)


def _tool(tool: WireTool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": tool.parameters}
