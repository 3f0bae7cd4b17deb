"""What a history must be to be sent: whose block may stand where, what is blank, what is ill-formed.

Pure rules on messages and blocks. `transcript` never lets a history break them; `mending` makes one that
breaks them keep them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from remit.errors import TranscriptError
from remit.messages import Block, Media, Message, Opaque, ResultContent, Text, ToolResult, ToolUse

__all__ = [
    "HOLDS",
    "first_fault",
    "fresh_ids",
    "is_blank",
    "presentable",
    "replied",
    "validate",
    "well_formed",
    "with_fresh_id",
]

_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # the narrowest rule among the providers
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_NAMELESS = "unnamed"
"""Stands where a call names no tool: providers refuse a call without a name."""


def validate(messages: Iterable[Message]) -> None:
    """Refuse a history that a provider would refuse. The last message may owe results.

    The first message is the user's. No message, result or text is blank, no text ill-formed (lone
    surrogates, NUL). The assistant gives no results, the user calls no tools; what is opaque in a
    user's turn came in with a history that a wire parsed. Each tool use has a legal id (`[A-Za-z0-9_-]{1,64}`) that is unique in the history, and
    exactly one result: in the next message, in call order, before any other content. Two messages
    of one side may follow each other: a paused turn, a later word.

    Errors: `TranscriptError` with the position of the first message that breaks a rule.
    """
    found = first_fault(messages)
    if found is not None:
        position, fault = found
        raise TranscriptError(f"message {position}: {fault}")


def first_fault(messages: Iterable[Message]) -> tuple[int, str] | None:
    ids: set[str] = set()
    owed: tuple[ToolUse, ...] = ()
    for position, message in enumerate(messages):
        if position == 0 and message.role != "user":
            return position, "the first message is not the user's"
        fault = _message_fault(message, owed, ids)
        if fault is not None:
            return position, fault
        owed = message.tool_uses
    return None


def _message_fault(message: Message, owed: tuple[ToolUse, ...], ids: set[str]) -> str | None:
    """What is wrong with a message after one that owes `owed`; its own ids are added to `ids`."""
    if not message.content:
        return "it is empty"
    answered = [result.tool_use_id for result in message.tool_results]
    if answered != [use.id for use in owed]:
        return (
            f"{len(owed)} results are owed; the {len(answered)} here are not those, in call order"
        )
    if any(not isinstance(block, ToolResult) for block in message.content[: len(answered)]):
        return "its results do not come before its other content"
    for block in message.content:
        if not isinstance(block, HOLDS.get(message.role, ())):
            return f"a message of the {message.role} holds no {type(block).__name__}"
        fault = _block_fault(block)
        if fault is not None:
            return fault
        if isinstance(block, ToolUse):
            if not _LEGAL_ID.fullmatch(block.id):
                return f"the id of a call of {block.name[:64]!r} is illegal"
            if block.id in ids:
                return f"the id {block.id!r} is used twice"
            ids.add(block.id)
    return None


HOLDS: Mapping[str, tuple[type, ...]] = {
    "user": (Text, Media, ToolResult, Opaque),
    "assistant": (Text, ToolUse, Opaque),
}


def _block_fault(block: Block) -> str | None:
    if is_blank(block) or (isinstance(block, ToolUse) and not block.name):
        return f"a {type(block).__name__} is blank"
    match block:
        case Text(text):
            strings = (text,)
        case Media(media_type, _, name):
            strings = (media_type, name or "")
        case ToolUse(_, name, arguments):
            strings = (name, arguments)
        case ToolResult(_, content, key=key):
            if not content:
                return "a result is empty"
            for part in content:
                fault = _block_fault(part)
                if fault is not None:
                    return fault
            strings = (key or "",)
        case Opaque(issuer):
            strings = (issuer,)
    return "a text is ill-formed" if any(well_formed(s) is not s for s in strings) else None


def is_blank(block: Block) -> bool:
    """Whether there is nothing in it, which providers refuse."""
    if isinstance(block, Text):
        return not block.text or block.text.isspace()
    return isinstance(block, Media | Opaque) and not block.data


def well_formed(text: str) -> str:
    """The same object where it is well-formed; else without lone surrogates and NUL."""
    if text.isascii():  # a flag of the string: no scan
        return text.replace("\0", _REPLACEMENT) if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, so that two halves that stand side by side become their character.
        halves = text.encode("utf-16-le", "surrogatepass")
        text = halves.decode("utf-16-le", "replace")
    return text.replace("\0", _REPLACEMENT) if "\0" in text else text


def presentable(content: Iterable[Block]) -> tuple[ResultContent, ...]:
    """Text and media without blank blocks and ill-formed text."""
    made: list[ResultContent] = []
    for block in content:
        if not isinstance(block, Text):
            if not is_blank(block):
                made.append(_plain(block))
        elif (text := block.text) and not text.isspace():
            made.append(block if well_formed(text) is text else _plain(block))
    return tuple(made)


def _plain(block: Block) -> ResultContent:
    if isinstance(block, Text):
        text = well_formed(block.text)
        return block if text is block.text else Text(text)
    if isinstance(block, Media):
        media_type = well_formed(block.media_type)
        name = None if block.name is None else well_formed(block.name)
        if media_type is block.media_type and name is block.name:
            return block
        return msgspec.structs.replace(block, media_type=media_type, name=name)
    raise TranscriptError(f"only text and media can stand here, not {type(block).__name__}")


def replied(block: Block) -> Block:
    if not isinstance(block, Opaque):
        return _plain(block)
    issuer = well_formed(block.issuer)
    return block if issuer is block.issuer else Opaque(issuer, block.data)


def fresh_ids(uses: Iterable[ToolUse], taken: AbstractSet[str]) -> tuple[ToolUse, ...]:
    """Well-formed tool uses whose ids are legal, unique and not taken. See `Transcript.fresh_ids`."""
    given: set[str] = set()
    return tuple([with_fresh_id(use, taken, given) for use in uses])


def with_fresh_id(use: ToolUse, taken: AbstractSet[str], given: set[str]) -> ToolUse:
    """One of them; its id is `given` from now on."""
    free = use.id
    if free in taken or free in given or not _LEGAL_ID.fullmatch(free):
        n = len(taken) + len(given) + 1
        while (free := f"call_{n}") in taken or free in given:
            n += 1
    given.add(free)
    name, arguments = well_formed(use.name or _NAMELESS), well_formed(use.arguments)
    same = free is use.id and name is use.name and arguments is use.arguments
    return use if same else ToolUse(free, name, arguments)
