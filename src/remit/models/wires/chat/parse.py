"""A request body of Chat Completions, read back into values.

What the wire can say and remit has no words for becomes opaque, in its place, and goes back as it came: a system
message that is not the first, an image by its address, a field of a message, a call of another kind than of a
function with its results. Fields of the root that are none of ours are `Settings.extra`. Messages that break the
rules of the wire are refused, in the words of the server.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from remit.errors import ConfigurationError, TranscriptError
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.base import Settings, ToolSpec
from remit.models.wires.chat.extras import beside, whole_message
from remit.models.wires.codec import Parsed
from remit.models.wires.dialects import ChatDialect
from remit.transcript import Transcript, is_blank

__all__ = ["parsed"]

_UNANSWERED: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. The following tool_call_ids did not have response messages: "
)
_ORPHAN: Final = (
    "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
)

_LEGAL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_FORMATS: Final = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise TranscriptError(f"a message holds what is no JSON: {error}") from None


def parsed(dialect: ChatDialect, body: Mapping[str, Any]) -> Parsed:
    """Read it. Errors: `TranscriptError`."""
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise TranscriptError("a request has a list of messages")
    reader = _Reader(dialect)
    for position, message in enumerate(cast("Sequence[Any]", messages)):
        if not isinstance(message, Mapping):
            raise TranscriptError(f"messages[{position}] is no object")
        reader.take(position, cast("Mapping[str, Any]", message))
    transcript = reader.end()
    rest = {key: value for key, value in body.items() if key not in {"messages", "model", "stream"}}
    tools = _tools(rest)
    settings = _settings(dialect, rest)
    return Parsed(
        transcript=transcript,
        instructions=reader.instructions,
        tools=tools,
        settings=settings,
        model=str(body.get("model", "")),
        stream=body.get("stream") is True,
        set_aside=tuple(reader.set_aside),
    )


class _Reader:
    """Messages of the wire, one after another, to messages of a transcript."""

    def __init__(self, dialect: ChatDialect) -> None:
        self.instructions = ""
        self.set_aside: list[str] = []
        self._dialect = dialect
        self._made: list[Message] = []
        self._owed: dict[str, str] = {}
        """Ids on the wire that have no result yet, to the ids here, in call order."""
        self._due: list[str] = []
        """The ids here of the calls that are being answered, in call order."""
        self._results: dict[str, ToolResult] = {}
        self._taken: set[str] = set()
        self._before: list[Opaque] = []
        """Messages without a form here that stand before the next message of the user."""
        self._foreign: set[str] = set()
        """Ids of the newest calls that have no form here: their results have none either."""

    def take(self, position: int, message: Mapping[str, Any]) -> None:
        """One message. Errors: `TranscriptError`."""
        role = message.get("role")
        where = f"messages[{position}]"
        if role == "function" or (
            role == "tool" and str(message.get("tool_call_id")) in self._foreign
        ):
            self._before.append(Opaque(self._dialect.name, _encode(message)))
            return
        if role == "tool":
            self._result(where, message)
            return
        if self._due:
            if self._owed:
                raise TranscriptError(f"{where}: {_UNANSWERED}{', '.join(self._owed)}")
            self._answer()
        if role in {"system", "developer"}:
            self._system(message)
        elif role == "user":
            self._user(where, message)
        elif role == "assistant":
            self._assistant(where, message)
        else:
            raise TranscriptError(f"{where}: the role {role!r} is not known here")

    def end(self) -> Transcript:
        """The transcript. Errors: `TranscriptError`."""
        if self._owed:
            raise TranscriptError(f"{_UNANSWERED}{', '.join(self._owed)}")
        if self._due:
            self._answer()
        if self._before:
            self._behind()
        if self._made and self._made[0].role != "user":
            return Transcript.load([message.to_json() for message in self._made])
        return Transcript(self._made)

    def _system(self, message: Mapping[str, Any]) -> None:
        """The first ones are the instructions, the others stay where they are."""
        text = _plain(message.get("content"))
        first = not self._made and not self._before and not self.instructions
        if first and text is not None and message.get("role") == "system":
            self.instructions = text
            return
        self._before.append(Opaque(self._dialect.name, _encode(message)))

    def _user(self, where: str, message: Mapping[str, Any]) -> None:
        blocks: list[Block] = [*self._before]
        self._before = []
        if set(message) - {"role", "content"}:
            blocks.append(Opaque(self._dialect.name, _encode(message)))  # with a name, say
        else:
            content = message.get("content")
            parts: Any = (
                [{"type": "text", "text": content}] if isinstance(content, str) else content
            )
            if not isinstance(parts, Sequence):
                raise TranscriptError(f"{where}: the content is neither text nor a list of parts")
            blocks += [self._part(where, part) for part in cast("Sequence[Any]", parts)]
        kept = [block for block in blocks if not is_blank(block)]
        if kept:
            self._made.append(Message("user", tuple(kept)))

    def _part(self, where: str, part: Any) -> Block:
        """A part of what a user says. Errors: `TranscriptError`."""
        if not isinstance(part, Mapping):
            raise TranscriptError(f"{where}: a part of the content is no object")
        table = cast("Mapping[str, Any]", part)
        kind = table.get("type")
        text = table.get("text")
        if kind == "text" and isinstance(text, str):
            if "cache_control" in table:
                self._aside("cache_control")
            return Text(text)
        media = _media(table)
        return Opaque(self._dialect.name, _encode(part)) if media is None else media

    def _assistant(self, where: str, message: Mapping[str, Any]) -> None:
        if self._before:
            self._behind()
        if _is_foreign(message):
            calls = [_mapping(call) for call in _listed(where, message.get("tool_calls"))]
            self._foreign = {str(call.get("id")) for call in calls}
            whole = Opaque(self._dialect.name, _encode(message))
            self._made.append(Message("assistant", (whole,)))
            return
        blocks: list[Block] = []
        content = message.get("content")
        for part in [content] if isinstance(content, str) else _listed(where, content):
            if isinstance(part, str):
                blocks.append(Text(part))
            elif isinstance(part, Mapping):
                blocks.append(self._part(where, part))
            else:
                raise TranscriptError(f"{where}: a part of the content is no object")
        for call in _listed(where, message.get("tool_calls")):
            blocks += self._call(where, call)
        fields = {
            key: value
            for key, value in message.items()
            if key not in {"role", "content", "tool_calls"} and value is not None
        }
        if fields:
            blocks.append(whole_message(self._dialect, fields))
        kept = [block for block in blocks if not is_blank(block)]
        if not kept and isinstance(content, str):
            return  # an empty text is taken by servers, and is nothing
        if not kept:
            raise TranscriptError(f"{where}: an assistant's message says nothing")
        self._made.append(Message("assistant", tuple(kept)))

    def _call(self, where: str, call: Any) -> list[Block]:
        table, inner = _mapping(call), _mapping(_mapping(call).get("function"))
        if not inner:
            raise TranscriptError(f"{where}: a call of another kind than of a function")
        name, arguments = inner.get("name"), inner.get("arguments", "")
        wire = table.get(
            "id", f"\0{len(self._due)}"
        )  # some servers take no ids: results go by order
        if not isinstance(wire, str) or not isinstance(name, str) or not name:
            raise TranscriptError(f"{where}: the id or the name of a call is no text")
        if wire in self._owed:
            raise TranscriptError(f"{where}: the id {wire[:64]!r} is used twice")
        text = arguments if isinstance(arguments, str) else _encode(arguments).decode()
        own = self._own(wire)
        self._owed[wire] = own
        self._due.append(own)
        use = ToolUse(own, name, text)
        extra = {
            key: value for key, value in table.items() if key not in {"id", "type", "function"}
        }
        return [use, beside(self._dialect, extra)] if extra else [use]

    def _own(self, wire: str) -> str:
        """The id as it is here: legal, and used once."""
        own, n = wire, len(self._taken)
        while own in self._taken or not _LEGAL_ID.fullmatch(own):
            n += 1
            own = f"call_{n}"
        self._taken.add(own)
        return own

    def _result(self, where: str, message: Mapping[str, Any]) -> None:
        wire = message.get("tool_call_id", next(iter(self._owed), None))
        own = self._owed.pop(wire, None) if isinstance(wire, str) else None
        if own is None:
            raise TranscriptError(f"{where}: {_ORPHAN}")
        if message.get("name") is not None:
            self._aside("name")
        content = message.get("content")
        texts: list[Text] = []
        for part in [content] if isinstance(content, str) else _listed(where, content):
            if isinstance(part, str):
                texts.append(Text(part))
                continue
            block = self._part(where, part)
            if not isinstance(block, Text):
                raise TranscriptError(f"{where}: a result holds text only")
            texts.append(block)
        shown = tuple([text for text in texts if not is_blank(text)]) or (Text("(no output)"),)
        self._results[own] = ToolResult(own, shown)

    def _answer(self) -> None:
        """The results of a turn are all there: one message, in call order."""
        results = tuple([self._results.pop(own) for own in self._due])
        self._due = []
        self._made.append(Message("user", results))

    def _behind(self) -> None:
        """System messages that nothing of the user follows stand behind the user's last message."""
        if not self._made or self._made[-1].role != "user":
            self._made.append(Message("user", tuple(self._before)))
        else:
            last = self._made[-1]
            self._made[-1] = Message("user", (*last.content, *self._before))
        self._before = []

    def _aside(self, field: str) -> None:
        if field not in self.set_aside:
            self.set_aside.append(field)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _listed(where: str, value: Any) -> Sequence[Any]:
    """A list that may be left out. Errors: `TranscriptError` for anything else."""
    if isinstance(value, list | tuple):
        return cast("Sequence[Any]", value)
    if value is None:
        return ()
    raise TranscriptError(f"{where}: the content or the calls are no list")


def _is_foreign(message: Mapping[str, Any]) -> bool:
    """Whether it calls what is no function, or in the way that was before there were tools."""
    calls: Any = message.get("tool_calls")
    listed = cast("list[Any]", calls) if isinstance(calls, list) else []
    kinds = [_mapping(call).get("type") for call in listed]
    return message.get("function_call") is not None or "custom" in kinds


def _plain(content: Any) -> str | None:
    """The text of a system message; None where it is no plain text."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in cast("Sequence[Any]", content) if isinstance(content, list | tuple) else ():
        if not isinstance(part, Mapping):
            return None
        text = cast("Mapping[str, Any]", part).get("text")
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "\n\n".join(texts) if texts else None


def _media(part: Mapping[str, Any]) -> Media | None:
    """Media that stand in the part itself; None for any other part."""
    inner: Any = part.get(str(part.get("type")))
    if not isinstance(inner, Mapping) or set(part) - {"type", str(part.get("type"))}:
        return None
    table = cast("Mapping[str, Any]", inner)
    match part.get("type"), table:
        case "image_url", {"url": str(url), **rest} if not rest:
            return _of_data_url(url, None)
        case "file", {"filename": str(name), "file_data": str(url), **rest} if not rest:
            return _of_data_url(url, name)
        case "input_audio", {"data": str(data), "format": str(format_), **rest} if not rest:
            kind = _FORMATS.get(format_)
            return None if kind is None else _of_data_url(f"data:{kind};base64,{data}", None)
        case _:
            return None


def _of_data_url(url: str, name: str | None) -> Media | None:
    head, comma, data = url.partition(";base64,")
    if not comma or not head.startswith("data:"):
        return None
    try:
        return Media(head.removeprefix("data:"), b64decode(data, validate=True), name)
    except ValueError:
        return None


def _tools(rest: dict[str, Any]) -> tuple[ToolSpec, ...]:
    """The tools. Where one says more than we can, they stay in `rest` too, and go back from there."""
    given = rest.get("tools")
    if not isinstance(given, Sequence):
        return ()
    tools: list[ToolSpec] = []
    exact = True
    for entry in cast("Sequence[Any]", given):
        table, inner = _mapping(entry), _mapping(_mapping(entry).get("function"))
        if not inner:
            exact = False
            continue
        parameters = _mapping(inner.get("parameters"))
        exact = exact and set(table) <= {"type", "function"}
        exact = exact and set(inner) == {"name", "description", "parameters"}
        empty: dict[str, Any] = {"type": "object", "properties": {}}
        tools.append(
            ToolSpec(
                str(inner.get("name", "")),
                str(inner.get("description") or ""),
                parameters or empty,
            )
        )
    if exact:
        del rest["tools"]
    return tuple(tools)


def _settings(dialect: ChatDialect, rest: dict[str, Any]) -> Settings:
    """What is a field of ours is taken out of `rest`; the others are extra. Errors: `TranscriptError`."""
    choice: Any = rest.get("tool_choice")
    ours = {"auto": "auto", "none": "none", "required": "any", "any": "any"}
    named: Any = None
    if isinstance(choice, str):
        named = ours.get(choice)
    elif isinstance(choice, Mapping):
        match cast("Mapping[str, Any]", choice):
            case {"type": "function", "function": {"name": str(name)}} if name not in ours:
                named = name
            case _:
                pass
    if named is not None:
        del rest["tool_choice"]
    caps = [rest.pop(name, None) for name in ("max_completion_tokens", "max_tokens")]
    cap: Any = next((each for each in caps if each is not None), None)
    if rest.get("stream_options") == {"include_usage": True} and dialect.stream_options:
        del rest["stream_options"]
    try:
        return Settings(max_output=cap, tool_choice=named or "auto", extra=rest)
    except ConfigurationError as error:
        raise TranscriptError(str(error)) from None
