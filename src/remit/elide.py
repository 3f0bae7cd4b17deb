"""Which old results make room when the context nears the model's window: thresholds, choice, words. Pure.

A result is old when the model has answered it and gone on: the newest turns stay as they are, and so does
what is small. The oldest go first, whole turns at a time, until the prompt is far enough below the trigger for
the next steps: one break of the cached prefix has to pay for itself. Only content is replaced (`Transcript.elide`),
so a cut through a pair cannot come about. Above: `plan`, which decides, and `eliding`, which carries it out.
"""

from __future__ import annotations

import msgspec

from remit.excerpt import handle_in
from remit.messages import Media, ResultContent, Text, ToolResult
from remit.transcript import Transcript, tokens_of

__all__ = [
    "MOST_ELISIONS",
    "RECENT_TURNS",
    "SMALL_TOKENS",
    "WITHIN_STEPS",
    "Elision",
    "Part",
    "Window",
    "choose",
    "note_for",
]

RECENT_TURNS = 2
"""The results of so many newest turns stay: the model is at work on them."""
SMALL_TOKENS = 200
"""Parts below this stay: a note is a quarter of it, and would free little for what it hides."""
MOST_ELISIONS = 2
WITHIN_STEPS = 8
"""At most so many elisions in so many steps: what fills up faster is not helped by another one."""

_TRIGGER_PERCENT = 80
"""Of what the window leaves beside a full reply. Below it a break of the prefix comes too early to be needed;
above it one large turn may not fit any more before anybody looked."""
_TARGET_PERCENT = 50
"""Of the trigger: about as many steps fit behind an elision as in front of it."""
_PROGRESS_PERCENT = 10
"""Of the window: what frees less is not worth a break."""
_RUNG_PERCENT = 2
"""Of the window: so much must have been added before a search that found nothing is made again. It bounds the
searches by the size of the window, however many steps there are."""
_NOTE_TOKENS = 50
"""What a note takes, about."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """The thresholds of one model's context window, in tokens."""

    trigger: int
    """A prompt above this is looked at."""
    target: int
    """What an elision brings it down to, if there is enough to elide."""
    progress: int
    """What it frees at least."""
    rung: int
    """How much later the next look comes where one found nothing."""

    @classmethod
    def of(cls, tokens: int, output: int) -> Window:
        """The thresholds of a window of `tokens` for replies of up to `output`.

        In a small window a reply is taken to need a quarter of it at most: its cap is lowered as room gets
        scarce.
        """
        trigger = (tokens - min(output, tokens // 4)) * _TRIGGER_PERCENT // 100
        return cls(
            trigger=trigger,
            target=trigger * _TARGET_PERCENT // 100,
            progress=tokens * _PROGRESS_PERCENT // 100,
            rung=tokens * _RUNG_PERCENT // 100,
        )


class Part(msgspec.Struct, frozen=True):
    """A part of a result that is to give way to a note."""

    tool_use_id: str
    at: int
    """Its index in the content of the result."""
    content: ResultContent
    is_error: bool
    handle: str | None
    """Where the whole is kept already; None: what stands here is the whole."""


class Elision(msgspec.Struct, frozen=True):
    """What gives way, oldest first."""

    parts: tuple[Part, ...]
    tokens: int
    """What that frees, estimated."""


def choose(
    transcript: Transcript, window: Window, *, prompt: int, density: float
) -> Elision | None:
    """What to elide from a prompt of so many tokens; None where that would be no progress.

    Units: tokens as the provider counts them, `density` of them for each token of an estimate.
    """
    wanted = max(prompt - window.target, window.progress)
    parts: list[Part] = []
    freed = 0.0
    for message in transcript[: _first_recent(transcript)]:
        if freed >= wanted:
            break
        for result in message.tool_results:
            for at, content in enumerate(result.content):
                tokens = tokens_of(content)
                if tokens >= SMALL_TOKENS:
                    handle = None
                    if isinstance(content, Text):
                        handle = handle_in(content.text, result.artifacts)
                    parts.append(Part(result.tool_use_id, at, content, result.is_error, handle))
                    freed += (tokens - _NOTE_TOKENS) * density
    return Elision(tuple(parts), int(freed)) if freed >= window.progress else None


def note_for(part: Part, handle: str, *, readable: bool) -> str:
    """What the model reads in place of a part. `readable`: it has `read_artifact` to get it back."""
    content = part.content
    if isinstance(content, Media):
        note = f"[elided to make room: {content.media_type}, {len(content.data)} bytes: {handle}]"
    elif not readable:
        note = f"[elided to make room: {len(content.text)} characters: {handle}]"
    else:
        length = "" if part.handle else f", length={len(content.text)}"
        again = f'read_artifact(handle="{handle}", offset=0{length})'
        note = f"[elided to make room: {len(content.text)} characters; again: {again}]"
    return f"Error: {note}" if part.is_error else note


def _first_recent(transcript: Transcript) -> int:
    """Where the newest turns begin whose results stay."""
    recent = 0
    for at in range(len(transcript) - 1, -1, -1):
        if isinstance(transcript[at].content[0], ToolResult):
            recent += 1
            if recent == RECENT_TURNS:
                return at
    return 0
