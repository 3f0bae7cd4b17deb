"""The actor that elides: it keeps what gives way, puts notes in its place, and tells of the break.

elide         old results, where the window gets full (X5)
note_unread   media, where a run goes on with a model that does not read them (X3)
"""

from __future__ import annotations

from remit.artifacts import Artifact
from remit.elide import Elision, Part, note_for
from remit.messages import Media, ResultContent, Text
from remit.paging import READ_ARTIFACT
from remit.rows import Elided
from remit.run import Run
from remit.shown import whole_of
from remit.transcript import Stub

__all__ = ["elide", "note_unread"]

_QUICK = 1_000_000
"""Characters and bytes that are hashed in about a millisecond. More is hashed off the event loop (C6)."""


async def elide(run: Run, elision: Elision) -> None:
    """Put notes in place of old results, in one row.

    It is durable, and what it took out with it, before the next request is made. At a halt nothing is done.
    """
    parts = elision.parts
    wholes = await _kept(run, [part.content for part in parts if part.handle is None])
    if wholes is None:
        return
    rest, readable = iter(wholes), READ_ARTIFACT in run.config.tools
    stubs = [_stub(part, part.handle or next(rest).handle, readable=readable) for part in parts]
    _break(run, Elided(tuple(stubs)))


async def note_unread(run: Run) -> None:
    """Put notes in place of media in results that this model does not read; the last one did.

    At a halt nothing is done.
    """
    reads = run.config.model.profile.reads
    found = [
        (result.tool_use_id, at, block)
        for message in run.state.transcript
        for result in message.tool_results
        for at, block in enumerate(result.content)
        if isinstance(block, Media) and not reads(block.media_type)
    ]
    wholes = await _kept(run, [block for _, _, block in found])
    if not wholes:
        return
    stubs = [
        Stub(call, at, whole.note, whole.handle, len(block.data))
        for (call, at, block), whole in zip(found, wholes, strict=True)
    ]
    _break(run, Elided(tuple(stubs), "media"))


async def _kept(run: Run, blocks: list[ResultContent]) -> list[Artifact] | None:
    """These as artifacts, to be stored with the next row; None at a halt."""
    if sum(map(_size, blocks)) <= _QUICK:
        wholes = _wholes(blocks)
    else:
        made = await run.aside(lambda: _wholes(blocks), until=run.means.tools_until, halt=run.halt)
        if run.halt.cause is not None:
            return None
        wholes = _wholes(blocks) if made is None else made  # no worker was free in time
    run.record.put(*wholes)
    return wholes


def _break(run: Run, row: Elided) -> None:
    before = run.state.transcript.tokens
    run.record.write(row)
    freed = before - run.state.transcript.tokens
    run.emit(
        "prefix_break",
        {
            "cause": row.cause,
            "results": len({stub.tool_use_id for stub in row.results}),
            "freed_tokens": int(freed * run.state.density),
        },
    )


def _wholes(blocks: list[ResultContent]) -> list[Artifact]:
    return [whole_of(block) for block in blocks]


def _size(block: ResultContent) -> int:
    return len(block.text) if isinstance(block, Text) else len(block.data)


def _stub(part: Part, handle: str, *, readable: bool) -> Stub:
    note = note_for(part, handle, readable=readable)
    return Stub(part.tool_use_id, part.at, note, handle, _size(part.content))
