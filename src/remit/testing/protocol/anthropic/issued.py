"""What the provider has issued and wants back as it was: thinking, summaries, what its own tools found.

Blocks that carry a signature or encrypted content are compared with what was issued: byte for byte, once, in their
order, and on newer models behind the same conversation. They may be left out, except where a model demands its
thinking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

from remit.testing.protocol.anthropic.turns import THINKING, Place, Turn, blocks_of, version_of
from remit.testing.protocol.anthropic.wordings import MORE
from remit.testing.protocol.base import Refuse
from remit.testing.protocol.reading import Body, mapping, mappings, same, walk

__all__ = ["Issued"]


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it was issued."""

    marks: tuple[str, ...]
    """What its blocks are known by, in order."""
    behind: str | None
    """Digest of the conversation it was given behind; None where that is not known."""


class Issued:
    """The provider's memory of its own blocks."""

    def __init__(self, refuse: Refuse) -> None:
        self.refuse = refuse
        self._thinking: dict[str, tuple[str, Reply | None]] = {}
        """Signature, or redacted data, to its text and the reply that held it."""
        self._encrypted: set[str] = set()
        self._compactions: dict[str, str] = {}
        """Signature or encrypted content to the whole block."""

    def reply(self, reply: Body, request: Body) -> None:
        """Remember the blocks of a reply."""
        content = mappings(reply.get("content"))
        behind = _digest(mappings(request.get("messages"))) if request else None
        made = Reply(tuple([_mark(block) for block in content]), behind)
        for block in content:
            self.keep(block, made)

    def keep(self, block: Body, reply: Reply | None) -> None:
        """Remember a block; without its reply, its place does not count."""
        match block.get("type"):
            case "thinking":
                self._thinking.setdefault(
                    str(block.get("signature")), (str(block.get("thinking")), reply)
                )
            case "redacted_thinking":
                self._thinking.setdefault(str(block.get("data")), ("", reply))
            case "compaction":
                seal = _seal(block)
                if seal:
                    self._compactions.setdefault(seal, _plain(block))
            case _:
                self._encrypted.update(_encrypted(block))

    def check(self, body: Body, turns: Sequence[Turn]) -> None:
        """Errors: `Refused`."""
        messages = mappings(body["messages"])
        known: set[str] = set()
        for turn in turns:
            for place in turn.places:
                match place.kind:
                    case "thinking" | "redacted_thinking":
                        self._thought(body, messages, place, known)
                    case "compaction":
                        seal = _seal(place.block)
                        if seal and self._compactions.get(seal) != _plain(place.block):
                            self.refuse("compaction", position=place.at, at=place.at, n=place.n)
                    case _:
                        if not _encrypted(place.block) <= self._encrypted:
                            self.refuse("encrypted", position=place.at, at=place.at, n=place.n)
        self._begins_with_thinking(body, turns)

    def _thought(self, body: Body, messages: Sequence[Body], place: Place, known: set[str]) -> None:
        words: dict[str, Any] = {"position": place.at, "at": place.at, "n": place.n}
        redacted = place.kind == "redacted_thinking"
        seal = str(place.block["data" if redacted else "signature"])
        if seal not in self._thinking:
            self.refuse("redacted" if redacted else "signature", **words)
        thought, reply = self._thinking[seal]
        if not redacted and place.block["thinking"] != thought:
            self.refuse("opaque_modified", **words)
        if seal in known:
            self.refuse("opaque_moved", **words)
        known.add(seal)
        if reply is None:
            return
        if not _in_place(place, reply, messages):
            self.refuse("opaque_moved", **words)
        binds = version_of(body) >= (
            5,
            0,
        )  # newer models bind a thought to the conversation before it
        if binds and reply.behind not in {None, _digest(messages[: place.at])}:
            self.refuse("thinking_unbound", **words)

    def _begins_with_thinking(self, body: Body, turns: Sequence[Turn]) -> None:
        """Models before 4.5 with manual thinking: the turn that calls tools now begins with thinking."""
        if mapping(body.get("thinking")).get("type") != "enabled" or version_of(body) >= (4, 5):
            return
        first: Turn | None = None
        for turn in reversed(turns):
            if turn.role == "assistant":
                first = turn
            elif not turn.of("tool_result"):
                break
        if first is None or not first.of("tool_use") or turns[-1].role == "assistant":
            return
        place = first.places[0]
        if place.kind not in THINKING:
            words = {"kind": place.kind, "more": MORE}
            self.refuse("thinking_missing", position=place.at, at=place.at, n=place.n, **words)


def _in_place(place: Place, reply: Reply, messages: Sequence[Body]) -> bool:
    """Whether a thought stands among the blocks that it was issued with, in their order.

    Blocks of the reply may have been left out. Those that it holds twice tell nothing.
    """
    own = reply.marks.index(_mark(place.block))
    told = {mark for mark in reply.marks if reply.marks.count(mark) == 1} - {reply.marks[own]}
    here = [_mark(block) for block in blocks_of(messages[place.at])]
    before, after = told & set(here[: place.n]), told & set(here[place.n + 1 :])
    if before & set(reply.marks[own + 1 :]) or after & set(reply.marks[:own]):
        return False
    if before or after:
        return True
    return not any(
        _mark(block) in told
        for message in messages
        if message.get("role") == "assistant"
        for block in blocks_of(message)
    )


def _mark(block: Body) -> str:
    """What a block is known by, whatever a client may leave out of it or add."""
    match block.get("type"):
        case "thinking":
            return f"thinking {block.get('signature')}"
        case "redacted_thinking":
            return f"redacted {block.get('data')}"
        case "text":
            return f"text {block.get('text')}"
        case kind:
            name = block.get("id") or block.get("tool_use_id")
            return f"{kind} {name or _plain(block)}"


def _plain(block: Body) -> str:
    return same({key: value for key, value in block.items() if key != "cache_control"})


def _seal(block: Body) -> str | None:
    found = block.get("signature") or block.get("encrypted_content")
    return str(found) if found else None


def _encrypted(block: Body) -> set[str]:
    """Encrypted parts of one of the provider's own blocks, however deep."""
    if block.get("type") in {"tool_use", "tool_result"}:
        return set()  # what a client's tool is given, or gives, is no business of the provider
    return {
        str(value)
        for inner in walk(block)
        for key, value in inner.items()
        if key in {"encrypted_content", "encrypted_stdout", "encrypted_index"} and value
    }


def _digest(messages: Sequence[Body]) -> str:
    """What a conversation is bound by: everything but cache markers, whatever the form of a text."""
    total = blake2b(digest_size=16)
    for message in messages:
        bare = [message.get("role"), [_bare(block) for block in blocks_of(message)]]
        total.update(same(bare).encode())
    return total.hexdigest()


def _bare(value: object) -> object:
    """Without cache markers, empty fields and what a client may leave out of a call."""
    if isinstance(value, Mapping):
        given = cast("Body", value)
        return {
            key: _bare(each)
            for key, each in given.items()
            if key not in {"cache_control", "caller"} and each is not None
        }
    if isinstance(value, list | tuple):
        return [_bare(each) for each in cast("Sequence[object]", value)]
    return value
