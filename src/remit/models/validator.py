"""A second opinion on requests: refuses what providers refuse.

Independent of the validation in `remit.transcript` on purpose, and stricter where a request differs
from a history: nothing may be owed any more. The rules are the union of what the providers' own
errors name, in neutral words; what one wire alone demands is its codec's business and is not here.
`RequestValidator` looks at every message once, so a conversation of n requests costs O(n).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from remit.canonical import encode
from remit.messages import Block, Media, Message, Opaque, Text, ToolResult, ToolUse
from remit.models.base import ToolSpec

__all__ = ["InvalidRequest", "RequestValidator", "prefix_of", "validate_request"]

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Ids of calls: what every wire takes (Anthropic's letters, Bedrock's length)."""

_MOST_NAME_CHARS = 128
"""Of a tool's name. Its letters are its own: a wire that has none for them gives it an alias."""


class InvalidRequest(ValueError):
    """A provider would refuse this request."""

    def __init__(self, position: int | None, rule: str, text: str) -> None:
        where = "tools" if position is None else f"messages[{position}]"
        super().__init__(f"{where}: {text} ({rule})")
        self.position = position
        """Index of the message; None where the fault is in the tools."""
        self.rule = rule
        """Stable name of the rule, such as `unanswered`."""
        self.text = text


class RequestValidator:
    """Validates the requests of a conversation, one after another.

    Messages that an earlier request already passed with are not looked at again, as long as the new
    request begins with them; otherwise everything is.
    """

    def __init__(self) -> None:
        self._passed: tuple[Message, ...] = ()
        self._ids: set[str] = set()
        self._tools: Sequence[ToolSpec] = ()

    def check(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> None:
        """Errors: `InvalidRequest` for the first rule that is broken."""
        messages = tuple(messages)
        if tools is not self._tools:
            _check_tools(tools)
        passed, ids = self._passed, self._ids
        if messages[: len(passed)] != passed:
            passed, ids = (), set[str]()
        self._passed, self._ids = (), set()  # a request that fails leaves nothing behind
        for position in range(len(passed), len(messages)):
            _check_message(messages, position, ids)
        _check_end(messages)
        self._passed, self._ids, self._tools = messages, ids, tools


def validate_request(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> None:
    """Refuse what providers refuse. Errors: `InvalidRequest`."""
    RequestValidator().check(messages, tools)


def prefix_of(earlier: Sequence[Message], later: Sequence[Message]) -> bool:
    """Whether the encoded messages of `earlier` are a byte prefix of those of `later`."""
    return len(earlier) <= len(later) and all(
        old is new or encode(old.to_json()) == encode(new.to_json())
        for old, new in zip(earlier, later, strict=False)  # the rest of `later` is what was added
    )


def _check_tools(tools: Sequence[ToolSpec]) -> None:
    names: set[str] = set()
    for tool in tools:
        if not 0 < len(tool.name) <= _MOST_NAME_CHARS or not tool.name.isprintable():
            raise InvalidRequest(None, "tool_name", f"illegal name {tool.name!r}")
        if tool.name in names:
            raise InvalidRequest(None, "tool_twice", f"two tools are named {tool.name!r}")
        names.add(tool.name)
        if tool.parameters.get("type") != "object":
            raise InvalidRequest(
                None, "tool_schema", f"the schema of {tool.name!r} has no root `type: object`"
            )


def _check_message(messages: Sequence[Message], position: int, ids: set[str]) -> None:
    """Check one message against the one before; the ids of its calls are added to `ids`."""
    message = messages[position]
    before = messages[position - 1] if position else None
    if before is None and message.role != "user":
        raise InvalidRequest(position, "first_role", "the first message must be the user's")
    if not message.content:
        raise InvalidRequest(position, "empty_message", "a message without content")
    for block in message.content:
        _check_block(position, message.role, block)
    reply = before if before is not None and before.role == "assistant" else None
    owed = () if reply is None else reply.tool_uses
    if owed or message.role == "user":
        _check_answers(position, message, owed)
    if message.role == "assistant":
        if reply is not None:
            _check_paused(position - 1, reply)
        _check_ids(position, message, ids)


def _check_ids(position: int, message: Message, ids: set[str]) -> None:
    for use in message.tool_uses:
        if not _LEGAL.fullmatch(use.id):
            raise InvalidRequest(position, "id", f"illegal tool use id {use.id!r}")
        if use.id in ids:
            raise InvalidRequest(position, "id_twice", f"tool use id {use.id!r} is not unique")
        ids.add(use.id)


def _check_answers(position: int, message: Message, owed: Sequence[ToolUse]) -> None:
    """The results are those that are owed, once each, in call order, before anything else."""
    given = [result.tool_use_id for result in message.tool_results]
    due = [use.id for use in owed]
    if given != due:
        if len(set(given)) != len(given):
            rule, what = "answered_twice", "two results for one tool use"
        elif set(given) - set(due):
            rule, what = "orphan_result", "results without a tool use directly before"
        elif set(due) - set(given):
            rule, what = "unanswered", "tool uses without a result directly after"
        else:
            rule, what = "result_order", "results are not in call order"
        raise InvalidRequest(position, rule, f"{what}: owed {due}, given {given}")
    if any(not isinstance(block, ToolResult) for block in message.content[: len(given)]):
        raise InvalidRequest(position, "result_place", "something stands before the results")


def _check_end(messages: Sequence[Message]) -> None:
    if not messages:
        raise InvalidRequest(0, "no_messages", "a request needs a message")
    position, last = len(messages) - 1, messages[-1]
    if last.role == "user":
        return
    if last.tool_uses:
        owed = [use.id for use in last.tool_uses]
        raise InvalidRequest(position, "unanswered", f"tool uses without results: {owed}")
    _check_paused(position, last)


def _check_paused(position: int, message: Message) -> None:
    """Only a paused turn is continued, and it shows: it holds a block of a tool of the provider's."""
    if not any(isinstance(block, Opaque) for block in message.content):
        raise InvalidRequest(
            position, "role_order", "a finished assistant turn must be followed by a user turn"
        )


def _check_block(position: int, role: str, block: Block) -> None:
    texts: tuple[str, ...] = ()
    if isinstance(block, Text):
        place, blank, texts = role, not block.text.strip(), (block.text,)
    elif isinstance(block, ToolUse):
        place, blank, texts = "assistant", not block.name, (block.name, block.arguments)
    elif isinstance(block, ToolResult):
        place, blank = "user", not block.content
    elif isinstance(block, Media):
        place, blank, texts = "user", not block.data, (block.media_type, block.name or "")
    else:
        place, blank = role, not block.data
    if role != place:
        kind = type(block).__name__
        raise InvalidRequest(position, "wrong_place", f"{kind} in a message of the {role}")
    if blank:
        raise InvalidRequest(position, "blank", f"{type(block).__name__} that says nothing")
    for text in texts:
        _check_text(position, text)
    if isinstance(block, ToolResult):
        for part in block.content:
            _check_block(position, role, part)


def _check_text(position: int, text: str) -> None:
    if "\0" in text:
        raise InvalidRequest(position, "nul", "a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(position, "surrogate", "a lone surrogate") from None
