"""The actor that elides: it keeps what gives way, puts notes in its place, and tells of the break (X5)."""

from __future__ import annotations

from remit.artifacts import Artifact
from remit.elide import Elision, Part, note_for
from remit.messages import Text
from remit.paging import READ_ARTIFACT
from remit.rows import Elided
from remit.run import Run
from remit.shown import whole_of
from remit.transcript import Stub

__all__ = ["elide"]

_QUICK = 1_000_000
"""Characters and bytes that are hashed in about a millisecond. More is hashed off the event loop (C6)."""


async def elide(run: Run, elision: Elision) -> None:
    """Put notes in place of old results, in one row.

    It is durable, and what it took out with it, before the next request is made. At a halt nothing is done.
    """
    parts = elision.parts
    new = [part for part in parts if part.handle is None]
    if sum([_size(part) for part in new]) <= _QUICK:
        wholes = _wholes(new)
    else:
        made = await run.aside(lambda: _wholes(new), until=run.tools_until, halt=run.halt)
        if run.halt.cause is not None:
            return
        wholes = _wholes(new) if made is None else made  # no worker was free in time
    rest, readable = iter(wholes), READ_ARTIFACT in run.config.tools
    run.record.put(*wholes)
    stubs = [_stub(part, part.handle or next(rest).handle, readable=readable) for part in parts]
    before = run.state.transcript.tokens
    run.record.write(Elided(tuple(stubs)))
    freed = before - run.state.transcript.tokens
    run.emit(
        "prefix_break",
        {
            "cause": "elision",
            "results": len({stub.tool_use_id for stub in stubs}),
            "freed_tokens": int(freed * run.state.density),
        },
    )


def _wholes(parts: list[Part]) -> list[Artifact]:
    return [whole_of(part.content) for part in parts]


def _size(part: Part) -> int:
    content = part.content
    return len(content.text) if isinstance(content, Text) else len(content.data)


def _stub(part: Part, handle: str, *, readable: bool) -> Stub:
    note = note_for(part, handle, readable=readable)
    return Stub(part.tool_use_id, part.at, note, handle, _size(part))
