"""A request of one run: what is the same in all of them is encoded once, and each message when it first goes out.

    {"model", "store", "include", "instructions", "tools", ..., "input": [...], "max_output_tokens", ...}

What changes from step to step stands behind the input. Above: `codec.py`. Below: `inputs.py` writes messages,
`pieces.py` keeps them, `state.py` says what the server has.

Effort follows from `Settings.thinking`, since this wire counts no tokens of thinking: up to 2,048 low, up to
8,192 medium, above high. `Settings.extra` is merged last: it replaces what is here field by field, but `include`
is joined, and the fields of `text` and `reasoning` are merged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, cast

from remit.errors import ConfigurationError
from remit.messages import Message
from remit.models.base import ModelRequest, Settings, ToolSpec
from remit.models.wires.codec import Wired
from remit.models.wires.lowering import CannotLower, Dialect, lower
from remit.models.wires.pieces import Piece, Pieces
from remit.models.wires.responses.decoding import ResponsesDecoder
from remit.models.wires.responses.inputs import ItemIds, Way, pieced, stripped
from remit.models.wires.responses.items import encoded, fields_of
from remit.models.wires.responses.state import Held, Kept
from remit.models.wires.toolbox import Toolbox
from remit.transcript import Transcript

__all__ = ["ENCRYPTED", "TOOLS", "ResponsesEncoder", "choice_of", "tool_items"]

TOOLS: Final = Dialect()
_OUTPUT: Final = Dialect(target="strict", keys=None)
_LOOSE: Final = Dialect(keys=None)

ENCRYPTED: Final = "reasoning.encrypted_content"

_EFFORTS: Final = ((2_048, "low"), (8_192, "medium"))
_MOST_EFFORT: Final = "high"

_BEHIND: Final = frozenset({"max_output_tokens", "tool_choice", "text", "previous_response_id"})
"""Fields that change from one request to the next: they stand behind the input."""
_MERGED: Final = frozenset({"text", "reasoning"})
_OURS: Final = frozenset({"input", "stream", "model"})
"""What `Settings.extra` may not replace."""


class ResponsesEncoder:
    """The requests of one run, one after another."""

    def __init__(self, model: str, issuer: str, item_ids: ItemIds, *, keeps: bool) -> None:
        """`keeps`: the server keeps the conversation."""
        self._model = model
        self._issuer = issuer
        self._kept = Kept(issuer) if keeps else None
        # What the server may have forgotten is not named by its ids when the whole history goes out.
        self._way = Way(issuer, "none" if keeps and item_ids == "given" else item_ids)
        self._pieces = Pieces(self._piece)
        self._transcript = Transcript()
        self._tools: tuple[ToolSpec, ...] | None = None
        self._toolbox = Toolbox((), TOOLS)
        self._tool_bytes = b"[]"
        self._head: tuple[object, bytes] = (None, b"")
        self._cache: tuple[object, str] = (None, "")
        self._output: tuple[object, dict[str, Any] | None] = (None, None)
        self._held: Held | None = None
        """What the last request went on from."""
        self._told: str | None = None
        """What a repair left out, until it is told."""

    def encode(self, request: ModelRequest, *, stream: bool) -> Wired:
        """The body of a request."""
        self._check(request.settings)
        self._take_tools(request.tools)
        transcript = self._transcript = request.transcript
        self._held = None if self._kept is None else self._kept.newest(transcript)
        fields = self._fields(request, stream)
        head = self._before_input(fields)
        tail = b"]" + _joined({name: fields[name] for name in fields if name in _BEHIND}) + b"}"
        if self._held is None:
            self._pieces.take(transcript)
            body = self._pieces.joined(head, tail)
        else:
            body = head + self._new_since(self._held) + tail
        told, self._told = self._told, None
        behind = None if self._kept is None else self._kept.digest(len(transcript))
        decoder = ResponsesDecoder(self._issuer, self._own, held_behind=behind)
        return Wired(body, {}, decoder, self._toolbox.set_aside, told)

    def repair(self, what: str) -> bool:
        """The last body was refused for this. True where the next one will differ in a way that may help."""
        if self._held is not None:
            if self._kept is None or what not in {"state", "ids", "opaque"}:
                return False
            self._kept.forget(len(self._transcript))
            self._told = "the server does not know the conversation any more: all of it was sent"
            return True
        way, messages = self._way, len(self._transcript)
        if what == "opaque" and self._can_strip(way.bare):
            self._way = Way(self._issuer, way.item_ids, messages)
            self._told = "reasoning so far was left out: the provider refused it"
        elif what in {"ids", "opaque"} and way.item_ids == "given":
            self._way = Way(self._issuer, "none", way.bare)
            self._told = "ids of items were left out: the server does not keep them"
        elif what == "ids_wanted" and way.item_ids != "all":
            self._way = Way(self._issuer, "all", way.bare)
            self._told = "every item got an id: the server wants one"
        else:
            return False
        self._pieces.forget(0)
        return True

    def _can_strip(self, first: int) -> bool:
        return any(
            stripped(block, self._issuer)
            for message in self._transcript[first:]
            if message.role == "assistant"
            for block in message.content
        )

    def _check(self, settings: Settings) -> None:
        """Errors: `ConfigurationError` for what would make requests that are not what they say."""
        extra = settings.extra
        refused = sorted(_OURS & extra.keys())
        if refused:
            named = ", ".join(refused)
            raise ConfigurationError(f"Settings(extra=...) cannot hold {named}: remit writes that")
        if extra.get("conversation") is not None:
            raise ConfigurationError(
                "Settings(extra=...) cannot hold conversation: every request holds the history, which the "
                'conversation would get once more; ResponsesCodec(state="server") sends only what is new'
            )
        if self._kept is not None and extra.get("store") is False:
            raise ConfigurationError(
                'Settings(extra={"store": False}) and ResponsesCodec(state="server") exclude each other'
            )

    def _take_tools(self, tools: tuple[ToolSpec, ...]) -> None:
        if tools is self._tools:
            return
        if tools != self._tools:
            if self._tools is not None:
                self._pieces.forget(0)  # other tools, other names of their parameters
            self._toolbox = Toolbox(tools, TOOLS)
            self._tool_bytes = encoded(tool_items(self._toolbox))
            self._head = (None, b"")
        self._tools = tools

    def _own(self, name: str, arguments: str) -> tuple[str, str]:
        own = self._toolbox.own_name(name)
        return own, self._toolbox.own_arguments(own, arguments)

    # The items

    def _piece(self, index: int, message: Message) -> Piece:
        before = self._transcript[index - 1] if index else None
        return pieced(self._way, self._toolbox, index, message, before)

    def _new_since(self, held: Held) -> bytes:
        """What came after a response that the server keeps."""
        transcript = self._transcript
        pieces: list[bytes] = []
        for index in range(held.index + 1, len(transcript)):
            before = transcript[index - 1]
            after_held = index == held.index + 1
            piece = pieced(
                self._way, self._toolbox, index, transcript[index], before, held=after_held
            )
            if piece.data:
                pieces.append(piece.data)
        return b",".join(pieces)

    # The rest

    def _before_input(self, fields: Mapping[str, Any]) -> bytes:
        """Everything up to the items; encoded again only where it changed."""
        ahead = {name: value for name, value in fields.items() if name not in _BEHIND}
        known, head = self._head
        if known != ahead:
            tools = ahead.pop("tools", None)
            head = b"{" + encoded(ahead)[1:-1]
            if tools is not None:
                head += b',"tools":' + (self._tool_bytes if tools is True else encoded(tools))
                ahead["tools"] = tools
            head += b',"input":['
            self._head = (ahead, head)
        return head

    def _fields(self, request: ModelRequest, stream: bool) -> dict[str, Any]:
        """The root of the body, but for the items. `tools` is True for our own."""
        settings = request.settings
        fields: dict[str, Any] = {
            "model": self._model,
            "store": self._kept is not None,
            "stream": stream,
            "include": [ENCRYPTED],
        }
        if request.instructions:
            fields["instructions"] = request.instructions
        if self._toolbox.offered:
            fields["tools"] = True
        if self._toolbox.offered or (
            settings.extra.get("tools") and settings.tool_choice != "auto"
        ):
            fields["tool_choice"] = choice_of(settings.tool_choice, self._toolbox)
        if settings.thinking is not None:
            fields["reasoning"] = {"effort": _effort(settings.thinking)}
        fields["prompt_cache_key"] = self._cache_key(request)
        fields["max_output_tokens"] = request.max_output
        if request.output_schema is not None:
            if self._output[0] is not request.output_schema:
                self._output = (request.output_schema, _output_format(request.output_schema))
            if self._output[1] is not None:
                fields["text"] = {"format": self._output[1]}
        for name, value in settings.extra.items():
            fields[name] = _merged(name, fields.get(name), value)
        if self._held is not None:
            fields["previous_response_id"] = self._held.response_id
        return fields

    def _cache_key(self, request: ModelRequest) -> str:
        """The same for all requests of a conversation; nothing can be read from it.

        Requests with one key are sent to where their common beginning is cached.
        """
        first = request.transcript[0] if len(request.transcript) else None
        known, key = self._cache
        of = (request.instructions, self._tool_bytes, first)
        if known != of:
            data = b"" if first is None else self._piece(0, first).data
            digest = hashlib.sha256()
            for part in (request.instructions.encode(), self._tool_bytes, data):
                digest.update(len(part).to_bytes(8, "big") + part)
            key = f"remit-{digest.hexdigest()[:32]}"
            self._cache = (of, key)
        return key


def tool_items(toolbox: Toolbox) -> list[dict[str, Any]]:
    """The tools as this wire has them: flat, and strict only where that is said."""
    return [
        {
            "type": "function",
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "parameters": tool.parameters,
            "strict": False,  # left out, it would mean: strict if that is possible
        }
        for tool in toolbox.offered
    ]


def choice_of(choice: str, toolbox: Toolbox) -> Any:
    """How the choice of a tool is said."""
    match choice:
        case "auto" | "none":
            return choice
        case "any":
            return "required"
        case name:
            return {"type": "function", "name": toolbox.wire_name(name)}


def _effort(tokens: int) -> str:
    return next((effort for most, effort in _EFFORTS if tokens <= most), _MOST_EFFORT)


def _output_format(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """How the final text has to be; None where this wire cannot say it, and only the loop checks it."""
    for dialect, strict in ((_OUTPUT, True), (_LOOSE, False)):
        try:
            lowered = lower(schema, dialect)
        except CannotLower:
            continue
        if not lowered.is_plain:  # it would make nulls that the schema has no place for
            continue
        form = {"type": "json_schema", "name": "output", "schema": lowered.schema}
        return {**form, "strict": strict}
    return None


def _merged(name: str, ours: Any, given: Any) -> Any:
    """A field of `Settings.extra` and what stood there."""
    if name == "include" and isinstance(given, list | tuple):
        return list(dict.fromkeys([*ours, *cast("list[Any]", given)]))
    if name in _MERGED:
        before, after = fields_of(ours), fields_of(given)
        if before is not None and after is not None:
            return {**before, **after}
    return given


def _joined(fields: Mapping[str, Any]) -> bytes:
    """Further fields of the root, with the comma before them."""
    return b"," + encoded(fields)[1:-1] if fields else b""
