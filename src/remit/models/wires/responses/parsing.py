"""A request body, read back.

What the wire can say and remit has no words for stays an `Opaque` in its place: messages of the system and of
the developer, tools that are added on the way, images by their address, what the provider's own tools did. A
call that only the server has, because the body goes on from a response, is there by its id alone.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from remit.errors import ModelProtocolError, TranscriptError
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.base import Settings, ToolSpec
from remit.models.wires.codec import Parsed
from remit.models.wires.responses.items import (
    ANSWERED,
    BESIDE,
    CUSTOM,
    ELSEWHERE,
    FUNCTION,
    NO_OUTPUT,
    OF,
    OUTPUT,
    PARTS,
    RESULT,
    START,
    USER,
    Fields,
    blocks_of,
    encoded,
    fields_of,
    parts_of,
    string_of,
)
from remit.models.wires.responses.said import data_url, media_part
from remit.models.wires.responses.settings import TOOLS, choice_of, tool_items
from remit.models.wires.toolbox import Toolbox
from remit.transcript import Transcript, is_blank

__all__ = ["parsed"]

_OUTPUTS: Final = frozenset({f"{FUNCTION}_output", f"{CUSTOM}_output"})
_CALLS: Final = frozenset({FUNCTION, CUSTOM})
_SYSTEM: Final = frozenset({"system", "developer"})
_OF_EITHER: Final = frozenset({"additional_tools", "item_reference"})
"""Items that belong to neither side."""
_OF_MESSAGE: Final = frozenset({"type", "role", "content"})
_OF_OUTPUT: Final = frozenset({"type", "call_id", "output", "caller"})
_CACHE_MARK: Final = "prompt_cache_breakpoint"
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/=]+)\Z", re.ASCII)


def parsed(issuer: str, body: Mapping[str, Any]) -> Parsed:
    """Read a request body. Errors: `TranscriptError` for what is no request of this wire."""
    left = dict(body)
    given = left.pop("input", None)
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise TranscriptError("the body has no input: it is no request of this wire")
    reader = _Reader(issuer, continues=left.get("previous_response_id") is not None)
    instructions = left.pop("instructions", None)
    for position, value in enumerate(cast("list[object]", given)):
        fields = fields_of(value)
        if fields is None:
            raise TranscriptError(f"input {position} is no object")
        reader.take(fields)
    tools, settings = _asked(left)
    model, stream = left.pop("model", ""), left.pop("stream", False)
    if isinstance(instructions, list):  # some servers take items there
        left["instructions"] = instructions
    return Parsed(
        transcript=reader.transcript(),
        instructions=instructions if isinstance(instructions, str) else "",
        tools=tools,
        settings=Settings(**settings, extra=left),
        model=model if isinstance(model, str) else "",
        stream=stream is True,
        set_aside=tuple(reader.set_aside),
    )


def _asked(left: dict[str, Any]) -> tuple[tuple[ToolSpec, ...], dict[str, Any]]:
    """Tools and settings; what they cannot say stays in `left`."""
    settings: dict[str, Any] = {}
    most = left.get("max_output_tokens")
    if type(most) is int and most > 0:
        settings["max_output"] = left.pop("max_output_tokens")
    tools: list[ToolSpec] = []
    given = left.get("tools")
    for tool in parts_of(given):
        parameters = fields_of(tool.get("parameters"))
        if tool.get("type") == "function" and string_of(tool, "name"):
            description = string_of(tool, "description")
            tools.append(ToolSpec(string_of(tool, "name"), description, parameters or {}))
    toolbox = Toolbox(tools, TOOLS)
    if given == tool_items(toolbox):
        del left["tools"]
    choice = left.get("tool_choice")
    own: str | None = {"auto": "auto", "none": "none", "required": "any"}.get(str(choice))
    named = fields_of(choice)
    if named is not None and named.get("type") == "function":
        own = string_of(named, "name")
    if own and tools and choice_of(own, toolbox) == choice:
        del left["tool_choice"]
        settings["tool_choice"] = own
    return tuple(tools), settings


class _Result(msgspec.Struct):
    """An output of a call, and what of it has no neutral form."""

    result: ToolResult
    beside: dict[str, Any]


class _Turn:
    """A message as it is read."""

    __slots__ = ("results", "role", "said")

    def __init__(self, role: Literal["user", "assistant"]) -> None:
        self.role: Literal["user", "assistant"] = role
        self.results: list[_Result] = []
        self.said: list[Block] = []

    @property
    def only_answers(self) -> bool:
        return bool(self.results) and not any(isinstance(b, Text | Media) for b in self.said)

    @property
    def calls(self) -> list[str]:
        return [block.id for block in self.said if isinstance(block, ToolUse)]

    def message(self, issuer: str, calls: Sequence[str]) -> Message:
        """The message; its results in the order of these calls, which the wire leaves free."""
        order = {call: at for at, call in enumerate(calls)}
        results = sorted(
            self.results, key=lambda each: order.get(each.result.tool_use_id, len(order))
        )
        besides = [
            Opaque(issuer, encoded({"type": BESIDE, OF: OUTPUT, RESULT: place, **each.beside}))
            for place, each in enumerate(results)
            if each.beside
        ]
        return Message(self.role, (*[each.result for each in results], *besides, *self.said))


class _Reader:
    """Takes the items of an input one after another, and gives the messages that they are."""

    def __init__(self, issuer: str, *, continues: bool) -> None:
        """`continues`: what came before is known to the server."""
        self._issuer = issuer
        self._continues = continues
        self._turns: list[_Turn] = []
        self._calls: set[str] = set()
        self.set_aside: dict[str, None] = {}

    def transcript(self) -> Transcript:
        """The messages, mended where they are no history. Errors: `TranscriptError`."""
        messages: list[Message] = []
        calls: list[str] = []
        for turn in self._turns:
            message = turn.message(self._issuer, calls)
            if message.content:
                messages.append(message)
            calls = turn.calls
        return Transcript.load([message.to_json() for message in messages])

    def take(self, fields: Fields) -> None:
        """Errors: `TranscriptError` for what is no item."""
        kind, role = string_of(fields, "type"), string_of(fields, "role")
        if kind in _OUTPUTS:
            self._output(fields)
        elif kind in {"", "message"} and role == "user":
            self._user(fields)
        elif kind in {"", "message"} and role == "assistant":
            self._reply(fields)
        elif kind in _CALLS:
            self._calls.add(string_of(fields, "call_id"))
            self._reply(fields)
        elif kind in _OF_EITHER or role in _SYSTEM:
            turn = self._turns[-1] if self._turns else self._turn("user")
            turn.said.append(self._opaque(fields))
        elif kind:
            self._turn("assistant").said.append(self._opaque(fields))
        else:
            raise TranscriptError("an item of the input has neither a type nor a known role")

    def _opaque(self, fields: Fields) -> Opaque:
        return Opaque(self._issuer, encoded(fields))

    def _turn(self, role: Literal["user", "assistant"]) -> _Turn:
        """The turn that is being read, or a new one."""
        if not self._turns and role != "user":
            self._turns.append(_Turn("user"))
            self._turns[0].said.append(self._opaque({"type": START}))
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    def _reply(self, fields: Fields) -> None:
        full = fields if "type" in fields else {"type": "message", **fields}
        try:
            blocks = blocks_of(
                self._issuer,
                encoded(fields),
                full,
                lambda name, text: (name, text),
                keep_call_id=False,
            )
        except ModelProtocolError as error:
            raise TranscriptError(f"an item of the input is none: {error}") from None
        if isinstance(fields.get("content"), str) and set(fields) <= _OF_MESSAGE:
            blocks = blocks[:1]  # a text and no more
        self._turn("assistant").said.extend(blocks)

    def _user(self, fields: Fields) -> None:
        content = fields.get("content")
        if isinstance(content, str):
            content = [_text_part(content)]
        if self._turns and self._turns[-1].role == "user" and not self._turns[-1].only_answers:
            self._turns.append(_Turn("user"))
        turn = self._turn("user")
        turn.said.extend([self._part(part) for part in parts_of(content)])
        rest = {name: value for name, value in fields.items() if name not in _OF_MESSAGE}
        if rest:
            turn.said.append(self._opaque({"type": BESIDE, OF: USER, **rest}))

    def _part(self, part: Fields) -> Block:
        if _CACHE_MARK in part:
            self.set_aside[_CACHE_MARK] = None
            part = {name: value for name, value in part.items() if name != _CACHE_MARK}
        text = part.get("text")
        if set(part) == {"type", "text"} and part["type"] == "input_text" and isinstance(text, str):
            return Text(text)
        return _media_of(part) or self._opaque(part)

    def _output(self, fields: Fields) -> None:
        call_id, output = string_of(fields, "call_id"), fields.get("output")
        if call_id not in self._calls and self._continues:
            self._elsewhere(call_id, fields)
        content: list[Text | Media] = []
        written: list[int] = []
        for part in parts_of(output) if not isinstance(output, str) else [_text_part(output)]:
            found = self._part(part)
            if isinstance(found, Opaque):
                written.append(len(content))
                content.append(Text(found.data.decode()))
            elif isinstance(found, Text | Media) and not is_blank(found):
                content.append(found)
        beside = {name: value for name, value in fields.items() if name not in _OF_OUTPUT}
        if not content:
            content.append(Text(NO_OUTPUT))
            beside["output"] = output
        if written:
            beside[PARTS] = written
        self._turn("user").results.append(_Result(ToolResult(call_id, tuple(content)), beside))

    def _elsewhere(self, call_id: str, output: Fields) -> None:
        """Put the call of an output that only the server has before the results that are being read.

        What kind of call it was, and who called, is known from the output.
        """
        self._calls.add(call_id)
        turns = self._turns
        before = len(turns) > 1 and turns[-1].only_answers and turns[-2].role == "assistant"
        turn = turns[-2] if before else self._turn("assistant")
        told = {ANSWERED: output["type"]} if output["type"] != f"{FUNCTION}_output" else {}
        caller = {} if output.get("caller") is None else {"caller": output["caller"]}
        turn.said.append(ToolUse(call_id, _UNNAMED, "{}"))
        turn.said.append(self._opaque({"type": BESIDE, OF: ELSEWHERE, **told, **caller}))


def _text_part(text: str) -> Fields:
    return {"type": "input_text", "text": text}


_UNNAMED: Final = "unnamed"


def _media_of(part: Fields) -> Media | None:
    """Media that would go out as they came in; None for any other part."""
    url, name = part.get("image_url") or part.get("file_data"), part.get("filename")
    match = _DATA_URL.match(url) if isinstance(url, str) else None
    if match is None:
        return None
    try:
        data = base64.b64decode(match[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    media = Media(match[1], data, name if isinstance(name, str) else None)
    made = media_part(media)
    same = data_url(media) == url and {**made, **part} == made
    return media if data and same else None
