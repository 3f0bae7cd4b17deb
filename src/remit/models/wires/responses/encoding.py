"""A request of one run: what is the same in all of them is encoded once, and each message when it first goes out.

    {"model", "store", "include", "instructions", "tools", ..., "input": [...], "max_output_tokens", ...}

What changes from step to step stands behind the input. Above: `codec.py`. Below: `inputs.py` writes messages,
`pieces.py` keeps them, `settings.py` writes the other fields, `state.py` says what the server has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from remit.errors import ConfigurationError
from remit.messages import Message
from remit.models.base import ModelRequest, ToolSpec
from remit.models.wires.codec import Wired
from remit.models.wires.pieces import Piece, Pieces
from remit.models.wires.responses.decoding import ResponsesDecoder
from remit.models.wires.responses.faults import CAN_GO
from remit.models.wires.responses.inputs import can_strip, pieced
from remit.models.wires.responses.items import encoded
from remit.models.wires.responses.settings import (
    LEAST_OUTPUT,
    TOOLS,
    Answer,
    answer_of,
    check_extra,
    choice_of,
    merged,
    reasoning_of,
    reasons,
    tool_items,
    tools_with,
)
from remit.models.wires.responses.state import Held, Kept
from remit.models.wires.responses.turns import ItemIds, Way
from remit.models.wires.toolbox import Toolbox
from remit.transcript import Transcript

__all__ = ["ENCRYPTED", "ResponsesEncoder"]

ENCRYPTED: Final = "reasoning.encrypted_content"

_BEHIND: Final = frozenset({"max_output_tokens", "tool_choice", "text", "previous_response_id"})
"""Fields that change from one request to the next: they stand behind the input."""


class ResponsesEncoder:
    """The requests of one run, one after another."""

    def __init__(self, model: str, issuer: str, item_ids: ItemIds, *, keeps: bool) -> None:
        """`keeps`: the server keeps the conversation."""
        self._model = model
        self._reasons = reasons(model)
        self._issuer = issuer
        self._kept = Kept(issuer) if keeps else None
        # What the server may have forgotten is not named by its ids when the whole history goes out.
        self._way = Way(issuer, "none" if keeps and item_ids == "given" else item_ids)
        self._pieces = Pieces(self._piece)
        self._transcript = Transcript()
        self._tools: tuple[ToolSpec, ...] | None = None
        self._toolbox = Toolbox((), TOOLS)
        self._tool_bytes = b"[]"
        self._joint: tuple[object, bytes] = (None, b"")
        """Tools of the settings, and the same with ours."""
        self._head: tuple[object, bytes] = (None, b"")
        self._cache: tuple[object, str] = (None, "")
        self._answer: tuple[object, Answer | None] = (None, None)
        self._asked: Collection[str] = ()
        """Fields that the settings of the last request name."""
        self._not_taken: set[str] = set()
        """Fields that the server has refused as such."""
        self._held: Held | None = None
        """What the last request went on from."""
        self._told: str | None = None
        """What a repair left out, until it is told."""

    def encode(self, request: ModelRequest, *, stream: bool) -> Wired:
        """The body of a request."""
        check_extra(request.settings, keeps=self._kept is not None)
        self._asked = request.settings.extra.keys()
        self._take_tools(request.tools)
        transcript = self._transcript = request.transcript
        self._held = None if self._kept is None else self._kept.newest(transcript)
        try:
            answer = self._answer_to(request.output_schema)
            fields = self._fields(request, answer, stream=stream)
            head = self._before_input(fields)
            tail = b"]" + _joined({name: fields[name] for name in fields if name in _BEHIND}) + b"}"
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"the instructions or Settings(extra=...) hold what JSON cannot: {error}"
            ) from None
        if self._held is None:
            self._pieces.take(transcript)
            body = self._pieces.joined(head, tail)
        else:
            body = head + self._new_since(self._held) + tail
        told, self._told = self._told, None
        behind = None if self._kept is None else self._kept.digest(len(transcript))
        decoder = ResponsesDecoder(
            self._issuer,
            self._own,
            answer=None if answer is None else answer.own,
            held_behind=behind,
        )
        return Wired(body, {}, decoder, self._toolbox.set_aside, told)

    def repair(self, what: str) -> bool:
        """The last body was refused for this. True where the next one will differ in a way that may help."""
        field = what.removeprefix("field:")
        if field in CAN_GO:
            # What was asked for in so many words is not left out behind people's backs.
            asked = field in self._asked or (field == "store" and self._kept is not None)
            if asked or field in self._not_taken:
                return False
            self._told = f"{field} was left out: it is not taken there"
            self._not_taken.add(field)
            return True
        if self._held is not None:
            if self._kept is None or what not in {"state", "ids", "opaque"}:
                return False
            self._kept.forget(len(self._transcript))
            self._told = "the server does not know the conversation any more: all of it was sent"
            return True
        way, messages = self._way, len(self._transcript)
        if what == "opaque" and any(can_strip(way, each) for each in self._transcript[way.bare :]):
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

    def _take_tools(self, tools: tuple[ToolSpec, ...]) -> None:
        if tools is self._tools:
            return
        if tools != self._tools:
            if self._tools is not None:
                self._pieces.forget(0)  # other tools, other names of their parameters
            self._toolbox = Toolbox(tools, TOOLS)
            self._tool_bytes = encoded(tool_items(self._toolbox))
            self._joint = (None, b"")
        self._tools = tools

    def _with_tools(self, given: Any) -> bytes:
        """The field `tools`, encoded; `given` are those of the settings."""
        if not isinstance(given, list | tuple):
            return self._tool_bytes
        if self._joint[0] is not given:
            joint = tools_with(self._toolbox, cast("Sequence[Any]", given))
            self._joint = (cast("object", given), encoded(joint))
        return self._joint[1]

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
            others = {name: value for name, value in ahead.items() if name != "tools"}
            head = b"{" + encoded(others)[1:-1]
            if "tools" in ahead:
                head += b',"tools":' + ahead["tools"]
            head += b',"input":['
            self._head = (ahead, head)
        return head

    def _fields(
        self, request: ModelRequest, answer: Answer | None, *, stream: bool
    ) -> dict[str, Any]:
        """The root of the body, but for the items. `tools` are encoded already."""
        settings = request.settings
        given = settings.extra.get("tools")
        offers = bool(self._toolbox.offered or given)
        fields: dict[str, Any] = {
            "model": self._model,
            "store": self._kept is not None,
            "stream": stream,
            **({"include": [ENCRYPTED]} if self._reasons else {}),
            "prompt_cache_key": self._cache_key(request),
            "max_output_tokens": max(request.max_output, LEAST_OUTPUT),
        }
        if request.instructions:
            fields["instructions"] = request.instructions
        if self._toolbox.offered or (given and settings.tool_choice != "auto"):
            fields["tool_choice"] = choice_of(settings.tool_choice, self._toolbox)
        if settings.thinking is not None and self._reasons:
            fields["reasoning"] = reasoning_of(settings.thinking)
        if answer is not None:
            fields["text"] = answer.form
        fields = merged(fields, settings.extra)
        if offers:
            fields["tools"] = self._with_tools(given)
        for name in self._not_taken:
            fields.pop(name, None)
        if self._held is not None:
            fields["previous_response_id"] = self._held.response_id
        return fields

    def _answer_to(self, schema: Mapping[str, Any] | None) -> Answer | None:
        """The form of an answer, made once for a run."""
        if schema is not None and self._answer[0] is not schema:
            self._answer = (schema, answer_of(schema))
        return None if schema is None else self._answer[1]

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


def _joined(fields: Mapping[str, Any]) -> bytes:
    """Further fields of the root, with the comma before them."""
    return b"," + encoded(fields)[1:-1] if fields else b""
