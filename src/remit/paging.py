"""Reading on: the built-in tool by which a model gets what a cut result does not show (X2).

    read_artifact(handle, offset=0, length=None, search=None)

It stands in the tools array from the first request of every remit that has tools, and goes through the gate as
every call does. A page is an excerpt of the artifact, with the way to the next one at its end, and never becomes
an artifact itself. To search is literal, without regard to case, and takes time linear in the artifact: a
pattern language in the hands of a model would be a way to hang the process.

An artifact is walked through in pieces, so that the event loop goes on, however large it is. Which handles are
good is the store's business. Above: `dispatch`, which makes a result of a page, and `remit`, which adds the tool.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec

from remit.artifacts import Artifact, digest_of
from remit.canonical import json_text
from remit.current import CURRENT
from remit.errors import ConfigurationError, ToolError
from remit.excerpt import Excerpt, chars_of
from remit.shown import RESULT_TOKENS
from remit.tools import Tool

__all__ = ["READ_ARTIFACT", "with_reading"]

READ_ARTIFACT: Final = "read_artifact"

_PIECE_BYTES: Final = 65_536
"""What is looked at in one step of the event loop."""
_MAX_SEARCH_CHARS: Final = 200
_MAX_MATCHES: Final = 20
"""Matches that are shown; all are counted."""
_CONTEXT_CHARS: Final = 80
"""What is shown on either side of a match."""
_FRAME_CHARS: Final = 500
"""Of an answer to a search, what is kept free of matches; one of them may reach into it."""
_QUOTED_CHARS: Final = 100


def with_reading(tools: Mapping[str, Tool[..., Any]]) -> Mapping[str, Tool[..., Any]]:
    """The tools of a remit, and the one that reads on; it stands behind them. No tools remain none.

    Errors: `ConfigurationError` where one of them has its name.
    """
    if READ_ARTIFACT in tools:
        raise ConfigurationError(
            f"the tool {READ_ARTIFACT!r} is remit's own: the model reads with it what a result was too long to "
            "show; rename yours with @remit.tool(name=...)"
        )
    return {**tools, READ_ARTIFACT: _reading()} if tools else tools


@functools.cache
def _reading() -> Tool[..., Any]:
    from remit.tools import tool  # makes a schema of the signature, once somebody has tools

    return tool(effect="read", resource=(), polling=False)(read_artifact)


async def read_artifact(
    handle: str,
    offset: int = 0,
    length: int | None = None,
    search: str | None = None,
) -> Excerpt | dict[str, Any]:
    """Read on in a result that was cut, or search it.

    Args:
        handle: artifact:... as the result names it.
        offset: First character to read, from 0, or where a search begins.
        length: How many characters; as many as fit if left out.
        search: Text to find, in whatever case.
    """
    artifact = await _find(handle)
    if offset < 0:
        raise ToolError(f"offset={offset} is before the beginning: offsets count from 0")
    if length is not None and length <= 0:
        raise ToolError(f"length={length} reads nothing: give at least 1, or leave it out")
    if search is not None:
        return await _search(artifact, search, offset)
    return await _page(artifact, offset, length)


async def _find(handle: str) -> Artifact:
    digest, frame = digest_of(handle), CURRENT.get()
    if digest is None:
        raise ToolError(
            f"{handle[:_QUOTED_CHARS]!r} is no handle: pass it as the result gives it, artifact: and 64 hex digits"
        )
    if frame is None:
        raise ToolError("there are artifacts inside of a run only")
    artifact = await frame.store.artifact(frame.run_id, digest)
    if artifact is None:
        raise ToolError(
            f"there is no artifact:{digest} in this conversation: only handles that its own results name can be read"
        )
    return artifact


async def _page(artifact: Artifact, offset: int, length: int | None) -> Excerpt:
    """What stands there, as much of it as a result can show at most."""
    most = chars_of(RESULT_TOKENS)
    head: list[str] = []
    missing, start, total = most if length is None else min(length, most), 0, 0
    async for piece in _pieces(artifact):
        begin = max(offset - piece.at, 0)
        if missing and begin < len(piece.text):
            if not head:
                start = piece.start + len(piece.text[:begin].encode())
            head.append(piece.text[begin : begin + missing])
            missing -= len(head[-1])
        total += len(piece.text)
    if offset >= total:
        raise _behind_the_end(artifact, offset, total)
    end = total if length is None else min(offset + length, total)
    return Excerpt(
        "".join(head),
        "",
        end - offset,
        "page",
        artifact.handle,
        base=offset,
        start=start,
        of=total,
    )


async def _search(artifact: Artifact, search: str, offset: int) -> dict[str, Any]:
    """Where a text stands, from an offset on: how often, and the first places with what is around them."""
    if not search or len(search) > _MAX_SEARCH_CHARS:
        raise ToolError(f"search takes a text of 1 to {_MAX_SEARCH_CHARS} characters")
    wanted = _folded(search)
    places: list[dict[str, Any]] = []
    room = chars_of(RESULT_TOKENS) - _FRAME_CHARS
    matches = total = 0
    held, at = "", 0  # what is looked into now, and where it begins
    after = offset  # the next match begins here or later
    async for piece in _pieces(artifact):
        held += piece.text
        total += len(piece.text)
        # What follows a match is shown with it: what is near the end waits for the next piece.
        until = len(held) if piece.is_last else len(held) - len(wanted) - _CONTEXT_CHARS
        folded = _folded(held)
        while 0 <= (found := folded.find(wanted, max(after - at, 0))) < until:
            matches += 1
            after = at + found + len(wanted)
            if room > 0:
                around = held[max(found - _CONTEXT_CHARS, 0) : found + len(wanted) + _CONTEXT_CHARS]
                places.append({"offset": at + found, "text": around})
                room = room - len(json_text(places[-1])) if len(places) < _MAX_MATCHES else 0
        after = max(after, at + until)
        keep = max(until - _CONTEXT_CHARS, 0)
        held, at = held[keep:], at + keep
    if offset >= total:
        raise _behind_the_end(artifact, offset, total)
    answer: dict[str, Any] = {"matches": matches, "characters": total, "places": places}
    if matches > len(places):
        answer["more"] = f"search again with offset={places[-1]['offset'] + len(wanted)}"
    return answer


def _behind_the_end(artifact: Artifact, offset: int, total: int) -> ToolError:
    return ToolError(f"offset={offset} is behind the end: {artifact.handle} has {total} characters")


def _folded(text: str) -> str:
    """The text without regard to case, character by character, so that offsets stay."""
    folded = text.lower()
    if len(folded) != len(text):  # one letter, a Turkish one, becomes two
        folded = "".join([low if len(low := char.lower()) == 1 else char for char in text])
    return folded.replace("\u03c2", "\u03c3")  # the sigma at the end of a Greek word


class _Piece(msgspec.Struct, frozen=True):
    """A piece of a text."""

    text: str
    at: int
    """Where it begins, in characters."""
    start: int
    """The same in bytes."""
    is_last: bool


async def _pieces(artifact: Artifact) -> AsyncIterator[_Piece]:
    """The text of an artifact, with a turn for everybody else after each piece. Errors: `ToolError`."""
    data = artifact.data
    at = start = 0
    while start < len(data):
        end = _character_at(data, start + _PIECE_BYTES)
        try:
            text = data[start:end].decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise ToolError(
                f"{artifact.handle} is no text ({artifact.media_type}, {len(data)} bytes) and cannot be read here"
            )
        yield _Piece(text, at, start, is_last=end >= len(data))
        at, start = at + len(text), end
        await asyncio.sleep(0)


def _character_at(data: bytes, at: int) -> int:
    """Where the character begins that stands there. Behind more than three bytes that continue one stands none."""
    if at < len(data):
        for back in range(4):
            if data[at - back] & 0xC0 != 0x80:
                return at - back
    return at
