"""A request body, read back.

What the wire can say and remit has no words for stays an `Opaque` in its place: messages of the system and of
the developer, tools that are added on the way, images by their address, what the provider's own tools did. A
call that only the server has, because the body goes on from a response, is there by its id alone.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from remit.errors import TranscriptError
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.base import Settings, ToolSpec
from remit.models.wires.codec import Parsed
from remit.models.wires.responses.encoding import TOOLS, choice_of, tool_items
from remit.models.wires.responses.inputs import data_url, media_part
from remit.models.wires.responses.items import (
    ANSWERED,
    BESIDE,
    CUSTOM,
    ELSEWHERE,
    FUNCTION,
    OF,
    PART,
    START,
    Fields,
    blocks_of,
    encoded,
    fields_of,
    parts_of,
    string_of,
)
from remit.models.wires.toolbox import Toolbox
from remit.transcript import Transcript, is_blank

__all__ = ["parsed"]

_OUTPUTS: Final = frozenset({f"{FUNCTION}_output", f"{CUSTOM}_output"})
_CALLS: Final = frozenset({FUNCTION, CUSTOM})
_SYSTEM: Final = frozenset({"system", "developer"})
_OF_EITHER: Final = frozenset({"additional_tools", "item_reference"})
"""Items that belong to neither side."""
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


class _Reader:
    """Takes the items of an input one after another, and gives the messages that they are."""

    def __init__(self, issuer: str, *, continues: bool) -> None:
        """`continues`: what came before is known to the server."""
        self._issuer = issuer
        self._continues = continues
        self._messages: list[tuple[str, list[Block]]] = []
        self._calls: set[str] = set()
        self.set_aside: dict[str, None] = {}

    def transcript(self) -> Transcript:
        """The messages, mended where they are no history. Errors: `TranscriptError`."""
        messages = [
            Message("user" if role == "user" else "assistant", tuple(blocks))
            for role, blocks in self._messages
            if blocks
        ]
        return Transcript.load([message.to_json() for message in messages])

    def take(self, fields: Fields) -> None:
        kind, role = string_of(fields, "type"), string_of(fields, "role")
        if kind in _OUTPUTS:
            self._output(fields)
        elif kind in {"", "message"} and role == "user":
            self._user(fields)
        elif kind in {"", "message"} and role == "assistant":
            self._reply(fields, {"type": "message", **fields})
        elif kind in _CALLS:
            self._calls.add(string_of(fields, "call_id"))
            self._reply(fields, fields)
        elif kind in _OF_EITHER or role in _SYSTEM:
            self._blocks(self._messages[-1][0] if self._messages else "user").append(
                self._opaque(fields)
            )
        elif kind:
            self._blocks("assistant").append(self._opaque(fields))
        else:
            raise TranscriptError("an item of the input has neither a type nor a known role")

    def _opaque(self, fields: Fields) -> Opaque:
        return Opaque(self._issuer, encoded(fields))

    def _blocks(self, role: str) -> list[Block]:
        """The content of the message that is being read, or of a new one."""
        if not self._messages and role != "user":
            start = Opaque(self._issuer, encoded({"type": START}))
            self._messages.append(("user", [start]))
        if not self._messages or self._messages[-1][0] != role:
            self._messages.append((role, []))
        return self._messages[-1][1]

    def _reply(self, fields: Fields, full: Fields) -> None:
        raw = encoded(fields)
        blocks = blocks_of(
            self._issuer, raw, full, lambda name, arguments: (name, arguments), keep_call_id=False
        )
        if isinstance(fields.get("content"), str) and set(fields) <= {"type", "role", "content"}:
            blocks = blocks[:1]  # a text and no more
        self._blocks("assistant").extend(blocks)

    def _user(self, fields: Fields) -> None:
        if set(fields) - {"type", "role", "content", "id", "status"}:
            self._blocks("user").append(self._opaque(fields))
            return
        content = fields.get("content")
        if isinstance(content, str):
            content = [{"type": "input_text", "text": content}]
        if self._messages and self._messages[-1][0] == "user" and not self._answers():
            self._messages.append(("user", []))
        blocks = self._blocks("user")
        for part in parts_of(content):
            blocks.append(self._part(part))

    def _answers(self) -> bool:
        """Whether the newest message holds results and nothing that was said."""
        blocks = self._messages[-1][1]
        return any(isinstance(block, ToolResult) for block in blocks) and not any(
            isinstance(block, Text | Media) for block in blocks
        )

    def _part(self, part: Fields) -> Block:
        if _CACHE_MARK in part:
            self.set_aside[_CACHE_MARK] = None
            part = {name: value for name, value in part.items() if name != _CACHE_MARK}
        text = string_of(part, "text")
        if set(part) == {"type", "text"} and part["type"] == "input_text":
            return Text(text)
        return _media_of(part) or self._opaque(part)

    def _output(self, fields: Fields) -> None:
        call_id, output = string_of(fields, "call_id"), fields.get("output")
        if call_id not in self._calls and self._continues:
            self._elsewhere(call_id, fields)
        written: list[int] = []
        content: list[Text | Media] = []
        if isinstance(output, str):
            content.append(Text(output))
        for part in parts_of(output):
            found = self._part(part)
            if isinstance(found, Opaque):
                written.append(len(content))
                found = Text(found.data.decode())
            if isinstance(found, Text | Media) and not is_blank(found):
                content.append(found)
        content = [part for part in content if not is_blank(part)] or [Text("(no output)")]
        blocks = self._blocks("user")
        results = sum(isinstance(block, ToolResult) for block in blocks)
        blocks.insert(results, ToolResult(call_id, tuple(content)))
        for at in written:
            blocks.append(
                Opaque(self._issuer, encoded({"type": PART, "result": results, "part": at}))
            )

    def _elsewhere(self, call_id: str, output: Fields) -> None:
        """Put the call of an output that only the server has before the results that are being read.

        What kind of call it was, and who called, is known from the output.
        """
        self._calls.add(call_id)
        if len(self._messages) > 1 and self._answers() and self._messages[-2][0] == "assistant":
            turn = self._messages[-2][1]
        else:
            turn = self._blocks("assistant")
        turn.append(ToolUse(call_id, _UNNAMED, "{}"))
        told = {ANSWERED: output["type"]} if output["type"] != f"{FUNCTION}_output" else {}
        caller = {} if output.get("caller") is None else {"caller": output["caller"]}
        turn.append(
            Opaque(self._issuer, encoded({"type": BESIDE, OF: ELSEWHERE, **told, **caller}))
        )


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
