"""The requests of one run to a server that speaks Chat Completions."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from remit.errors import ConfigurationError
from remit.messages import Message
from remit.models.base import ModelRequest, Settings, ToolSpec
from remit.models.wires.chat.decode import ChatDecoder
from remit.models.wires.chat.messages import MessageWriter
from remit.models.wires.codec import Wired
from remit.models.wires.dialects import ChatDialect
from remit.models.wires.in_words import with_schema
from remit.models.wires.lowering import CannotLower, Dialect, lower
from remit.models.wires.pieces import Piece, Pieces
from remit.models.wires.toolbox import Toolbox
from remit.transcript import Break

__all__ = ["ChatEncoder"]

_CACHE: Final = b',"cache_control":{"type":"ephemeral"}'

_KEPT: Final = frozenset({"model", "messages", "tools", "stream"})
"""Fields without which a request would be another one: they are never left out."""

_OTHER_CAP: Final = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}

_GONE: Final = {"opaque": "what it gave beside text and calls", "ids": "ids of calls"}
"""What is missing from messages after a repair, in words; other repairs only write it differently."""

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

_OUTPUT: Final = Dialect(target="strict", keys=None)
_LOOSE: Final = Dialect(target="open", keys=None)
"""How the schema of an answer is said, if it can be said so. Its keys are read by the loop: they have no aliases."""

_encode = msgspec.json.encode


def _effort(tokens: int) -> str:
    """The word for so many tokens of thinking."""
    if tokens <= 2_048:
        return "low"
    return "medium" if tokens <= 8_192 else "high"


class ChatEncoder:
    """Encodes each message once, and keeps what the server refused out of what follows."""

    def __init__(self, dialect: ChatDialect, model: str) -> None:
        self._dialect = dialect
        self._model = model
        self._tools_of: Sequence[ToolSpec] | None = None
        self._toolbox = Toolbox((), dialect.tools)
        self._tools = b""
        self._writer = MessageWriter(dialect, self._toolbox)
        self._pieces = Pieces(self._piece)
        self._breaks: tuple[Break, ...] = ()
        self._messages: Sequence[Message] = ()
        self._off: set[str] = set()
        """Fields that the server refused."""
        self._cap: str = dialect.cap
        self._told: str | None = None
        """What was left out since the last request."""
        self._marks = dialect.cache_control and model.startswith("anthropic/")
        self._marked: tuple[int, ...] = ()
        """Indices of the two newest messages behind which a request ended: those that have cache markers."""
        self._system: tuple[str | None, bool, bytes] = (None, False, b"")
        """The instructions, whether they are marked, and how they are written."""
        self._key: str | None = None
        self._output_of: Mapping[str, Any] | None = None
        self._output = msgspec.Raw()
        self._worded: tuple[Mapping[str, Any] | None, str] = (None, "")
        """The instructions with that schema in words."""

    def encode(self, request: ModelRequest, *, stream: bool) -> Wired:
        """See `Encoder`. Errors: `ConfigurationError` where `Settings.extra` holds the messages."""
        if request.tools is not self._tools_of:
            self._offer(request.tools)
        self._breaks, self._messages = request.transcript.breaks, request.transcript.messages
        self._pieces.take(request.transcript)
        fields = self._fields(request, stream=stream)
        head = b'{"model":%b,"messages":[%b' % (
            _encode(fields.pop("model")),
            self._instructions(self._asked(request)),
        )
        body = self._pieces.joined(head, self._tail(fields), inserts=self._inserts())
        told, self._told = self._told, None
        if told is None and self._writer.left_out:
            told = "reasoning that belongs to a history which has changed since"
        self._writer.left_out = False
        return Wired(
            body,
            _NO_HEADERS,
            ChatDecoder(self._dialect, self._toolbox),
            self._toolbox.set_aside,
            told,
        )

    def repair(self, what: str) -> bool:
        """See `Encoder`."""
        kind, _, field = what.partition(":")
        if kind == "field":
            return self._leave_out(field)
        if not self._writer.repair(what):
            return False
        self._pieces.forget(0)
        if what in _GONE:
            self._tell(_GONE[what])
        return True

    def _leave_out(self, field: str) -> bool:
        """Leave a field out of the root from here on; one of the two caps always stays."""
        other = _OTHER_CAP.get(field)
        if field in _KEPT or field in self._off or other in self._off:
            return False
        if other is not None:
            self._cap = other
        if field == "cache_control":
            self._marks = False
        self._off.add(field)
        self._tell(field)
        return True

    def _tell(self, what: str) -> None:
        self._told = f"{what}: {self._dialect.title} refuses it, so it is left out from here on"

    # --- parts of the body

    def _offer(self, tools: Sequence[ToolSpec]) -> None:
        """Encode the tools, once for a run."""
        if self._tools_of is not None:
            self._pieces.forget(0)  # other tools may have other aliases
        self._tools_of = tools
        self._toolbox = Toolbox(tools, self._dialect.tools)
        self._writer.tools = self._toolbox
        entries: list[dict[str, Any]] = []
        for tool in self._toolbox.offered:
            function: dict[str, Any] = {"name": tool.name, "description": tool.description}
            entries.append(
                {"type": "function", "function": function | {"parameters": tool.parameters}}
            )
        self._tools = _encode(entries) if entries else b""

    def _piece(self, index: int, message: Message) -> Piece:
        broken = any(each.first < index < each.end for each in self._breaks)
        before = self._messages[index - 1] if index else None
        return self._writer.piece(message, before, broken=broken, marked=self._marks)

    def _asked(self, request: ModelRequest) -> str:
        """The instructions; with the schema of the answer where the server does not take it as a field."""
        schema = request.output_schema
        if schema is None or "response_format" not in self._off:
            return request.instructions
        if self._worded[0] is not schema:
            self._worded = schema, with_schema(request.instructions, schema)
        return self._worded[1]

    def _instructions(self, text: str) -> bytes:
        """The system message with its comma, encoded once; empty where there are none."""
        of, marks, known = self._system
        if text is of and marks is self._marks:
            return known
        content: Any = text
        if self._marks:
            content = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
        written = _encode({"role": "system", "content": content}) + b"," if text.strip() else b""
        self._system = text, self._marks, written
        return written

    def _fields(self, request: ModelRequest, *, stream: bool) -> dict[str, Any]:
        """Everything but messages and tools. What the caller gave as extra comes last and wins."""
        dialect, settings = self._dialect, request.settings
        fields: dict[str, Any] = {"model": self._model}
        choice = self._choice(settings)
        if choice is not None:
            fields["tool_choice"] = choice
        fields[self._cap] = request.max_output
        if request.output_schema is not None:
            fields["response_format"] = self._format(request.output_schema)
        if settings.thinking is not None:
            fields |= _thinking(dialect, settings.thinking)
        if dialect.cache_key:
            fields["prompt_cache_key"] = self._cache_key(request)
        if stream:
            fields["stream"] = True
            if dialect.stream_options:
                fields["stream_options"] = {"include_usage": True}
        fields.update(settings.extra)
        if "messages" in fields:
            raise ConfigurationError("Settings.extra holds 'messages': they are written by the run")
        for field in self._off:
            fields.pop(field, None)
        return fields

    def _format(self, schema: Mapping[str, Any]) -> msgspec.Raw:
        """The schema of an answer, strict where it can be said so. Encoded once for a run."""
        if schema is self._output_of:
            return self._output
        said, strict = schema, False
        for dialect in (_OUTPUT, _LOOSE):
            with contextlib.suppress(CannotLower):
                lowered = lower(schema, dialect)
                if lowered.is_plain:  # else it would make nulls that the schema has no place for
                    said, strict = lowered.schema, dialect is _OUTPUT
                    break
        answer = {"name": "answer", "schema": said, "strict": strict}
        self._output_of = schema
        self._output = msgspec.Raw(_encode({"type": "json_schema", "json_schema": answer}))
        return self._output

    def _tail(self, fields: Mapping[str, Any]) -> bytes:
        rest = _encode(fields)[1:]
        tools = self._tools if "tools" not in fields else b""
        if tools:
            return b'],"tools":%b%b%b' % (tools, b"," if len(rest) > 1 else b"", rest)
        return b"],%b" % rest if len(rest) > 1 else b"]}"

    def _choice(self, settings: Settings) -> Any:
        if not self._tools or settings.tool_choice == "auto":
            return None
        if settings.tool_choice == "none":
            return "none"
        if settings.tool_choice == "any":
            return "required"
        name = settings.tool_choice
        if name in self._toolbox.set_aside:
            return None
        return {"type": "function", "function": {"name": self._toolbox.wire_name(name)}}

    def _cache_key(self, request: ModelRequest) -> str:
        """The same for all requests of a conversation, from what they begin with."""
        if self._key is None:
            seen = hashlib.sha256(request.instructions.encode("utf-8", "surrogatepass"))
            seen.update(self._tools)
            seen.update(self._pieces.joined(b"", b"")[: self._pieces.end_of(0)])
            self._key = f"remit-{seen.hexdigest()[:32]}"
        return self._key

    def _inserts(self) -> list[tuple[int, bytes]]:
        """Cache markers: behind the last message, and where the request before had one.

        What that one wrote is then found exactly, however many blocks have come since: the look-back of 20
        blocks does not matter. A request that is made again has the same ones.
        """
        last = len(self._pieces) - 1
        if not self._marks or last < 0:
            return []
        if last not in self._marked and self._pieces.mark_of(last) is not None:
            self._marked = (*self._marked[-1:], last)
        places = [self._pieces.mark_of(index) for index in self._marked if index <= last]
        return [(place, _CACHE) for place in places if place is not None]


def _thinking(dialect: ChatDialect, tokens: int) -> dict[str, Any]:
    if dialect.thinking == "reasoning_effort":
        return {"reasoning_effort": _effort(tokens)}
    return {"reasoning": {"max_tokens": tokens}} if dialect.thinking == "reasoning" else {}
