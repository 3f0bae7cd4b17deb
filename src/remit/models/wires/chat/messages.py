"""Messages of a transcript as Chat Completions has them.

One message may be several on the wire: results are messages of their own, and what a result holds beside text
follows them in a message of the user, as `image_url` and the like, because a result takes only text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import msgspec

from remit.artifacts import plain_type
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.wires.aliases import IdRule, Ids
from remit.models.wires.chat.extras import BESIDE, MESSAGE
from remit.models.wires.dialects import ChatDialect
from remit.models.wires.pieces import Piece
from remit.models.wires.toolbox import Toolbox

__all__ = ["STAND_IN", "MessageWriter", "part_of_media"]

STAND_IN: Final = "OK."
"""What the assistant says where a dialect wants a word of its between results and what the user says."""

_END_OF_PART: Final = len(b"}]}")
"""Behind the place for a cache marker: the end of the part, of the list, of the message."""

_encode = msgspec.json.encode


class MessageWriter:
    """Writes the messages of one run, each once."""

    def __init__(self, dialect: ChatDialect, tools: Toolbox) -> None:
        self.tools = tools
        self.left_out = False
        """Something that the server gave was left out, because of what changed before it."""
        self._dialect = dialect
        self._ids = None if dialect.ids is None else Ids(dialect.ids)
        """None: the server takes no ids."""
        self._follows = dialect.user_after_results
        """A user's message may stand directly behind results."""
        self._opaque = True
        """What it gave beside text and calls goes back."""
        self._wrote_opaque = False
        """Some did."""
        self._refused: set[str] = set()
        """What messages were refused for so far."""

    def repair(self, what: str) -> bool:
        """Write them in another way from here on, because of this. False where nothing would be different."""
        if what in self._refused:
            return False
        match what:
            case "opaque" if self._wrote_opaque:
                self._opaque = False
            case "reasoning" | "signature":
                pass
            case "ids" if self._ids is not None:
                self._ids = None
            case "nine" if self._ids is not None:
                self._ids = Ids(_NINE)
            case "order" if self._follows:
                self._follows = False
            case _:
                return False
        self._refused.add(what)
        return True

    def piece(
        self, message: Message, before: Message | None, *, broken: bool, marked: bool
    ) -> Piece:
        """One message; `broken` where what was said before it has changed since (X5)."""
        if message.role == "user":
            behind = not self._follows and before is not None and self._ends_in_results(before)
            return self._user(message, marked=marked, behind_results=behind)
        first = message.content[0]
        if isinstance(first, Opaque) and self._is_mine(first) and _is_message(first.data):
            return Piece(first.data)  # a whole message without another form stands alone
        return Piece(self._assistant(message.content, broken=broken))

    # --- the user's

    def _user(self, message: Message, *, marked: bool, behind_results: bool) -> Piece:
        """Results, then what is said. `marked` where the last part shall have room for a cache marker.

        `behind_results`: the message before it ended in results, as where a run ended before they were read.
        """
        said: list[Block] = []
        written = [self._result(block, marked=marked, media=said) for block in message.tool_results]
        answered = bool(written) or behind_results
        last = None
        for block in message.content[len(written) :]:
            if isinstance(block, Opaque) and self._is_mine(block) and _is_message(block.data):
                self._say(said, written, marked=marked, answered=answered)
                written.append(last := block.data)
                said, answered = [], False
            else:
                said.append(block)
        self._say(said, written, marked=marked, answered=answered)
        data = b",".join(written)
        ours = bool(written) and written[-1] is not last
        mark = len(data) - _END_OF_PART if marked and ours and data.endswith(b"}]}") else None
        return Piece(data, mark)

    def _ends_in_results(self, message: Message) -> bool:
        """Whether nothing goes out behind the results of a message."""
        results = message.tool_results
        if not results or any(isinstance(part, Media) for each in results for part in each.content):
            return False
        rest = message.content[len(results) :]
        return all(
            self._part(block) is None
            and not (isinstance(block, Opaque) and self._is_mine(block) and _is_message(block.data))
            for block in rest
        )

    def _say(
        self, said: Sequence[Block], written: list[bytes], *, marked: bool, answered: bool
    ) -> None:
        """What the user says, as one message."""
        content = self._content(said, marked=marked)
        if content is None:
            return
        if answered and not self._follows:
            written.append(_encode({"role": "assistant", "content": STAND_IN}))
        written.append(_encode({"role": "user", "content": content}))

    def _content(self, said: Sequence[Block], *, marked: bool) -> str | list[Any] | None:
        """Text as text, as far as that is possible; else a list of parts. None where nothing is left."""
        parts: list[Any] = []
        for block in said:
            part = self._part(block)
            if part is not None:
                parts.append(part)
        if not parts:
            return None
        return self._shortest(parts, marked=marked)

    def _part(self, block: Block) -> Any:
        if isinstance(block, Text):
            return {"type": "text", "text": block.text}
        if isinstance(block, Media):
            return part_of_media(block, self._dialect)
        if isinstance(block, Opaque) and self._is_mine(block) and _table(block.data):
            return msgspec.Raw(block.data)
        return None

    def _shortest(self, parts: list[Any], *, marked: bool) -> str | list[Any]:
        texts: list[str] = [part["text"] for part in parts if _is_text(part)]
        if marked or len(texts) != len(parts) or (len(texts) > 1 and self._dialect.text_parts):
            return parts
        return "\n\n".join(texts)

    def _result(self, result: ToolResult, *, marked: bool, media: list[Block]) -> bytes:
        """A result; what is no text is added to `media`, with a word on where it is from."""
        wire = {} if self._ids is None else {"tool_call_id": self._ids.wire(result.tool_use_id)}
        parts: list[Any] = []
        for block in result.content:
            if isinstance(block, Text):
                parts.append({"type": "text", "text": block.text})
            else:
                what = f"{block.media_type}{f' {block.name}' if block.name else ''}"
                parts.append({"type": "text", "text": f"({what}: shown in the next message)"})
                whose = f" of the call {wire['tool_call_id']}" if wire else ""
                media += (Text(f"({what}, from the result{whose}:)"), block)
        if result.is_error and not parts[0]["text"].startswith("Error"):
            parts[0] = {"type": "text", "text": f"Error: {parts[0]['text']}"}
        content = self._shortest(parts, marked=marked)
        return _encode({"role": "tool", **wire, "content": content})

    # --- the assistant's

    def _assistant(self, content: Sequence[Block], *, broken: bool) -> bytes:
        texts: list[str] = []
        parts: list[Any] = []
        calls: list[dict[str, Any]] = []
        fields: dict[str, Any] = {}
        for block in content:
            if isinstance(block, Text):
                texts.append(block.text)
            elif isinstance(block, ToolUse):
                calls.append(self._call(block))
            elif isinstance(block, Opaque) and self._is_mine(block):
                self._merge(block.data, calls, parts, fields, broken=broken)
        if not (texts or calls or parts or fields):
            if self._follows:
                return b""
            texts.append(STAND_IN)  # it may stand between results and a word of the user
        text = "\n\n".join(texts) if texts else None
        # Beside calls there may be no content at all; reasoning alone does not replace it.
        empty = self._dialect.empty_content if calls else ""
        said: Any = empty if text is None else text
        if parts:
            said = [*parts, *([] if text is None else [{"type": "text", "text": text}])]
        message: dict[str, Any] = {"role": "assistant", "content": said}
        if calls:
            message["tool_calls"] = calls
            self._stand_in(calls, fields)
        return _encode({**message, **fields})

    def _stand_in(self, calls: Sequence[dict[str, Any]], fields: dict[str, Any]) -> None:
        """What the server misses on calls of another model."""
        if "reasoning" in self._refused:
            fields.setdefault("reasoning_content", "")
        if "signature" in self._refused:
            calls[0].setdefault("extra_content", _UNSIGNED)

    def _call(self, use: ToolUse) -> dict[str, Any]:
        arguments = self.tools.wire_arguments(use.name, use.arguments)
        if self._dialect.reads_arguments and not _is_object(arguments):
            arguments = _encode({"unreadable": arguments}).decode() if arguments.strip() else "{}"
        function = {"name": self.tools.wire_name(use.name), "arguments": arguments}
        named = {} if self._ids is None else {"id": self._ids.wire(use.id)}
        return {**named, "type": "function", "function": function}

    def _merge(
        self,
        data: bytes,
        calls: Sequence[dict[str, Any]],
        parts: list[Any],
        fields: dict[str, Any],
        *,
        broken: bool,
    ) -> None:
        """Put what was kept where it came from."""
        kept = _table(data) if self._opaque else {}
        if not kept:
            return
        name = bytes(kept.pop("type", b""))
        if name not in {_BESIDE, _MESSAGE}:
            parts.append(msgspec.Raw(data))
            self._wrote_opaque = True
            return
        bound = self._dialect.bound if broken else ()
        self.left_out = self.left_out or any(field in bound for field in kept)
        kept = {field: value for field, value in kept.items() if field not in bound}
        self._wrote_opaque = self._wrote_opaque or bool(kept)
        if name == _MESSAGE:
            fields.update(kept)
        elif calls:
            calls[-1].update(kept)

    def _is_mine(self, block: Opaque) -> bool:
        return block.issuer == self._dialect.name


_NINE = IdRule(letters="A-Za-z0-9", length=9, longest=9)
"""Ids as Mistral's models take them, wherever they are served."""

_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What Google documents for calls of another model, or of a history that has lost its signatures."""

_BESIDE = _encode(BESIDE)
_MESSAGE = _encode(MESSAGE)


def part_of_media(media: Media, dialect: ChatDialect) -> dict[str, Any]:
    """Media as a part of a user's message; a word on it where the server takes none of its kind."""
    kind = plain_type(media.media_type)
    if not any(fnmatchcase(kind, pattern) for pattern in dialect.media):
        return {"type": "text", "text": f"({kind}{_named(media)}: {dialect.title} takes none)"}
    data = b64encode(media.data).decode()
    major, _, minor = kind.partition("/")
    if major == "image":
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    if major == "audio":
        sound = {"data": data, "format": "mp3" if minor == "mpeg" else minor}
        return {"type": "input_audio", "input_audio": sound}
    file = {"filename": media.name or "file.pdf", "file_data": f"data:{kind};base64,{data}"}
    return {"type": "file", "file": file}


def _named(media: Media) -> str:
    return f" {media.name}" if media.name else ""


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and cast("dict[str, Any]", part)["type"] == "text"


def _table(data: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _is_message(data: bytes) -> bool:
    """Whether the block is a message of its own, not a part of one."""
    return "role" in _table(data)


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
