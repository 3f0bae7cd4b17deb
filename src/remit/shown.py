"""What the model is shown of a result, and where the rest of it is: the one output budget (X2, X3).

    fitted      one result: what is too long is cut, what the model cannot read becomes a note
    shared_out  all results of a turn: small ones stay whole, large ones share what is left
    reread      the results of a history, as this model can read them

and for the journal, which keeps references and no second copy of what they stand for:

    written     the content without what `Kept` restores
    restored    the content as it was, with the blocks that `restored_block` makes of artifacts

Whatever is not shown whole is an `Artifact`, made here; to store it is the caller's business. Pure, and
linear in what it is given: large results are fitted off the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from remit.artifacts import Artifact, plain_type
from remit.canonical import utf8
from remit.dataurl import has_media, without_media
from remit.excerpt import CHARS_PER_TOKEN, MIN_CHARS, Excerpt, Form, fit, read_frame, shares
from remit.messages import Media, Message, ResultContent, Text, ToolResult, Value
from remit.render import Rendered
from remit.transcript import MEDIA_TOKENS

__all__ = [
    "RESULT_TOKENS",
    "TURN_TOKENS",
    "Allowance",
    "Fitted",
    "Keeps",
    "Kept",
    "Reads",
    "Shown",
    "fitted",
    "handles_of",
    "of_page",
    "prefixed",
    "reread",
    "restored",
    "restored_block",
    "shared_out",
    "unread",
    "whole_of",
    "within",
    "written",
]

RESULT_TOKENS: Final = 2_000
"""What a result may take of the model's context unless its tool says otherwise."""
TURN_TOKENS: Final = 8_000
"""What the results of one turn may take together."""

_MEDIA_CHARS: Final = MEDIA_TOKENS * CHARS_PER_TOKEN
"""What a `Media` takes of a turn, whatever its size: providers count a picture by its pixels."""

_JSON: Final = "application/json"

_NOTE_CHARS: Final = 120
"""What a note takes in its place."""

Reads: TypeAlias = Callable[[str], bool]
"""Whether the model reads a media type in results."""


class Kept(Value, frozen=True, omit_defaults=True, gc=False):
    """A block of a result that stands in an artifact: the journal has this instead of the block."""

    at: int
    """Index of the block in the content."""
    artifact: str
    """Handle."""
    form: Form | Literal["media"]
    head: int = 0
    """Characters that are shown of the beginning of a text."""
    tail: int = 0
    """The same of its end."""
    total: int = 0
    """Characters of the text."""
    base: int = 0
    """Where the text begins in the artifact, in characters."""
    start: int = 0
    """The same in bytes."""
    of: int = 0
    """Characters of the whole artifact, for a page."""
    media_type: str = ""
    """Of media, as they stand in the content."""
    name: str | None = None
    """Of media."""


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A result as the model gets it."""

    content: tuple[ResultContent, ...]
    kept: tuple[Kept, ...] = ()
    """In order of `at`."""
    artifacts: tuple[str, ...] = ()
    """Handles that the content names beside those in `kept`."""


class Keeps(Protocol):
    """Content of which a part stands elsewhere: of a row, or on its way to one."""

    @property
    def content(self) -> tuple[ResultContent, ...]: ...
    @property
    def kept(self) -> tuple[Kept, ...]: ...
    @property
    def artifacts(self) -> tuple[str, ...]: ...


class Allowance(msgspec.Struct, frozen=True, gc=False):
    """What a result may be."""

    chars: int
    """Characters of text, at least `MIN_CHARS`."""
    reads: Reads


class Fitted(msgspec.Struct, frozen=True, gc=False):
    """What is shown, and the artifacts that have to be stored for it."""

    shown: Shown
    artifacts: tuple[Artifact, ...] = ()


def fitted(rendered: Rendered, allowance: Allowance) -> Fitted:
    """A result within its allowance.

    Shape: text that is too long is one excerpt, in the form of its type; several texts are then cut as one.
    Media that the model reads are blocks, behind the text where it was cut, and are not counted here; others
    are notes.
    """
    content = rendered.content
    if len(content) == 1 and not rendered.found:
        block = content[0]
        if isinstance(block, Text) and len(block.text) <= allowance.chars:
            return Fitted(Shown(content))
    made = _Making(is_json=rendered.is_json)
    parts = [made.part(block, allowance.reads) for block in content]
    parts += made.pictures(rendered.found, allowance.reads)
    return made.fitted(made.cut(parts, allowance.chars))


def prefixed(fitted: Fitted, words: str, chars: int) -> Fitted:
    """The result behind words of ours, within the same characters."""
    made = _Making(fitted.shown.artifacts, fitted.artifacts)
    return made.fitted(made.cut([Text(words), *_parts(fitted.shown)], chars))


def of_page(page: Excerpt, chars: int) -> Shown:
    """A page of an artifact, which is stored already. What does not fit makes it a shorter page."""
    page = page.within(chars)
    return Shown((Text(page.text),), (_kept(0, page),))


# --- a turn --------------------------------------------------------------------------------------


def shared_out(results: Sequence[Keeps], *, chars: int, reads: Reads) -> list[Fitted | None]:
    """The results of a turn within what it may take together; None for one that stays as it is.

    Units: `chars` is for all of them; a `Media` counts as 4,000. No text is cut below `MIN_CHARS`.
    Shape: media have half of the room, and what texts leave of the other half. Those beyond it, and those
    that the model does not read, become notes.
    """
    if within(results, chars):
        return [None] * len(results)
    before = [Shown(each.content, each.kept, each.artifacts) for each in results]
    room = _media_room(before, chars)
    after: list[Fitted] = []
    for result in before:
        after.append(_with_media(result, room, reads))
        room -= _count_media(after[-1].shown)
    media = sum(_count_media(each.shown) for each in after)
    sizes = [_chars(each.shown) for each in after]
    for at, share in enumerate(shares(sizes, chars - media * _MEDIA_CHARS)):
        if sizes[at] > max(share, MIN_CHARS):
            after[at] = _tightened(after[at], max(share, MIN_CHARS))
    return [None if new.shown is old else new for old, new in zip(before, after, strict=True)]


def within(results: Iterable[Keeps], chars: int) -> bool:
    """Whether these results are texts of so many characters together."""
    for result in results:
        for block in result.content:
            if not isinstance(block, Text):
                return False  # whether it may stay is looked into
            chars -= len(block.text)
    return chars >= 0


def _media_room(results: Sequence[Shown], chars: int) -> int:
    """How many media of a turn may stay."""
    media, left = sum(map(_count_media, results)), chars - sum(map(_chars, results))
    if media * _MEDIA_CHARS <= left:
        return media
    return max(chars // 2, left - media * _NOTE_CHARS) // _MEDIA_CHARS


def _chars(result: Shown) -> int:
    return sum([len(block.text) for block in result.content if isinstance(block, Text)])


def _count_media(result: Shown) -> int:
    return sum([isinstance(block, Media) for block in result.content])


def _with_media(result: Shown, room: int, reads: Reads) -> Fitted:
    """The result with the first `room` of its media that the model reads, and notes for the others."""
    made = _Making(result.artifacts)
    parts = _parts(result)
    for at, part in enumerate(parts):
        if isinstance(part, _Picture):
            if room > 0 and reads(part.block.media_type):
                room -= 1
            else:
                parts[at] = made.note(part.artifact)
    return made.fitted(parts) if made.artifacts else Fitted(result)


def _tightened(end: Fitted, chars: int) -> Fitted:
    made = _Making(end.shown.artifacts, end.artifacts)
    return made.fitted(made.cut(_parts(end.shown), chars))


# --- a history -----------------------------------------------------------------------------------


def unread(messages: Iterable[Message], reads: Reads) -> bool:
    """Whether `reread` would change anything. Cheap."""
    return any(_is_unread(result, reads) for each in messages for result in each.tool_results)


def reread(messages: Sequence[Message], reads: Reads) -> tuple[tuple[Message, ...], list[Artifact]]:
    """Messages whose results hold only what the model reads, and the artifacts that their notes name.

    What was said to the model, and what it said itself, is left alone. Messages without anything of that kind
    are the same objects as before.
    """
    made: list[Message] = []
    artifacts: list[Artifact] = []
    for message in messages:
        if not unread((message,), reads):
            made.append(message)
            continue
        blocks = [
            _reread(block, reads, artifacts) if isinstance(block, ToolResult) else block
            for block in message.content
        ]
        made.append(Message(message.role, tuple(blocks)))
    return tuple(made), artifacts


def _is_unread(result: ToolResult, reads: Reads) -> bool:
    return any(
        has_media(block.text) if isinstance(block, Text) else not reads(block.media_type)
        for block in result.content
    )


def _reread(result: ToolResult, reads: Reads, artifacts: list[Artifact]) -> ToolResult:
    made = _Making(result.artifacts)
    found: list[Artifact] = []

    def note(data: bytes, media_type: str) -> str:
        found.append(Artifact.of(data, media_type))
        return found[-1].note

    parts: list[_Part] = []
    for block in result.content:
        if isinstance(block, Text):
            parts.append(Text(without_media(block.text, note)))
        else:
            parts.append(made.part(block, reads))
    end = made.fitted([*parts, *made.pictures(found, reads)])
    artifacts += end.artifacts
    return msgspec.structs.replace(
        result, content=end.shown.content, artifacts=handles_of(end.shown)
    )


def handles_of(shown: Keeps) -> tuple[str, ...]:
    """Every artifact that the content refers to, once."""
    if len(shown.kept) == 1 and not shown.artifacts:
        return (shown.kept[0].artifact,)
    return tuple(dict.fromkeys([*[kept.artifact for kept in shown.kept], *shown.artifacts]))


# --- parts ---------------------------------------------------------------------------------------


class _Picture(msgspec.Struct, frozen=True):
    """Media that the model reads."""

    block: Media
    artifact: Artifact


_Part: TypeAlias = Text | Excerpt | _Picture


class _Making:
    """A result in the making: what has to be stored for it, and what it names."""

    def __init__(
        self,
        named: Iterable[str] = (),
        artifacts: Iterable[Artifact] = (),
        *,
        is_json: bool = False,
    ) -> None:
        """`is_json`: the text is known to be; else it is looked at."""
        self.artifacts = {each.handle: each for each in artifacts}
        self._named = dict.fromkeys(named)
        self._is_json = is_json

    def part(self, block: ResultContent, reads: Reads) -> _Part:
        """A block: media that the model does not read are a note."""
        if isinstance(block, Text):
            return block
        artifact = whole_of(block)
        return self._picture(block, artifact) if reads(block.media_type) else self.note(artifact)

    def pictures(self, found: Iterable[Artifact], reads: Reads) -> list[_Part]:
        """Of what was found inside a text, and is noted there, that which the model reads."""
        parts: list[_Part] = []
        for each in found:
            if reads(each.media_type):
                parts.append(self._picture(Media(each.media_type, each.data), each))
            else:
                self.note(each)
        return parts

    def note(self, artifact: Artifact) -> Text:
        """What stands for an artifact that is not shown."""
        self._keep(artifact)
        self._named[artifact.handle] = None
        return Text(artifact.note)

    def cut(self, parts: Sequence[_Part], chars: int) -> list[_Part]:
        """The texts within `chars` and, where they are too long, as one, before what was cut already."""
        texts = [part.text for part in parts if not isinstance(part, _Picture)]
        if sum(map(len, texts)) <= chars:
            return list(parts)
        cut = [part for part in parts if isinstance(part, Excerpt)]
        whole = "\n".join([part.text for part in parts if isinstance(part, Text)])
        made: list[_Part] = []
        *granted, left = shares([*(len(each.text) for each in cut), len(whole)], chars)
        for each, share in zip(cut, granted, strict=True):
            made.append(each.within(max(share, MIN_CHARS)))
        if whole:
            made.insert(0, self._excerpt(whole, max(left, MIN_CHARS)))
        return [*made, *(part for part in parts if isinstance(part, _Picture))]

    def fitted(self, parts: Sequence[_Part]) -> Fitted:
        kept: list[Kept] = []
        content: list[ResultContent] = []
        for at, part in enumerate(parts):
            if isinstance(part, _Picture):
                block = part.block
                form: Literal["media"] = "media"
                handle, kind = part.artifact.handle, block.media_type
                kept.append(Kept(at, handle, form, media_type=kind, name=block.name))
                content.append(block)
            elif isinstance(part, Excerpt):
                kept.append(_kept(at, part))
                content.append(Text(part.text))
            else:
                content.append(part)
        shown = Shown(tuple(content), tuple(kept), tuple(self._named))
        return Fitted(shown, tuple(self.artifacts.values()))

    def _picture(self, block: Media, artifact: Artifact) -> _Picture:
        self._keep(artifact)
        return _Picture(block, artifact)

    def _excerpt(self, text: str, chars: int) -> _Part:
        if len(text) <= chars:
            return Text(text)
        whole = whole_of(Text(text), is_json=self._is_json)
        self._keep(whole)
        form: Form = "json" if whole.media_type == _JSON else "text"
        return fit(text, chars, form=form, handle=whole.handle) or Text(text)

    def _keep(self, artifact: Artifact) -> None:
        self.artifacts[artifact.handle] = artifact


def _parts(shown: Shown) -> list[_Part]:
    """The parts that a result was made of."""
    kept = {each.at: each for each in shown.kept}
    parts: list[_Part] = []
    for at, block in enumerate(shown.content):
        if isinstance(block, Media):
            found = kept.get(at)
            artifact = (
                Artifact.of(block.data, block.media_type)
                if found is None
                else Artifact(found.artifact, plain_type(block.media_type), block.data)
            )
            parts.append(_Picture(block, artifact))
        else:
            parts.append(_excerpt(kept[at], block.text) if at in kept else block)
    return parts


def whole_of(block: ResultContent, *, is_json: bool = False) -> Artifact:
    """A block of a result as an artifact; `is_json`: its text is known to be, else it is looked at."""
    if isinstance(block, Media):
        return Artifact.of(block.data, block.media_type)
    data = utf8(block.text)
    return Artifact.of(data, _JSON if is_json or _is_json(data) else "text/plain")


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


# --- the journal ---------------------------------------------------------------------------------


def written(content: tuple[ResultContent, ...], kept: Sequence[Kept]) -> tuple[ResultContent, ...]:
    """The blocks that the journal has to hold itself."""
    elsewhere = {each.at for each in kept}
    return tuple([block for at, block in enumerate(content) if at not in elsewhere])


def restored(
    content: Sequence[ResultContent],
    kept: Sequence[Kept],
    block_of: Callable[[Kept], ResultContent],
) -> tuple[ResultContent, ...]:
    """The inverse of `written`; `block_of` gives what `restored_block` made of the artifact."""
    blocks = list(content)
    for each in kept:
        blocks.insert(each.at, block_of(each))
    return tuple(blocks)


def restored_block(kept: Kept, artifact: Artifact) -> ResultContent:
    """What was shown of an artifact."""
    data, start = artifact.data, kept.start
    if kept.form == "media":
        return Media(kept.media_type, data, kept.name)
    head, tail = data[start : start + kept.head], data[len(data) - kept.tail :]
    try:
        begin, end = head.decode("ascii"), tail.decode("ascii")
    except UnicodeDecodeError:
        # A character takes at most 4 bytes. What is cut apart at the far end is not asked for.
        head, tail = data[start : start + 4 * kept.head], data[-4 * kept.tail :]
        begin = head.decode(errors="ignore")[: kept.head]
        end = tail.decode(errors="ignore")[-kept.tail :] if kept.tail else ""
    return Text(_composed(kept, kept.form, begin, end).text)


def _excerpt(kept: Kept, text: str) -> Excerpt:
    """The excerpt that a text was composed of."""
    if kept.form == "json":
        return _composed(kept, "json", *read_frame(text))
    form: Form = "page" if kept.form == "page" else "text"
    return _composed(kept, form, text[: kept.head], text[len(text) - kept.tail :])


def _composed(kept: Kept, form: Form, head: str, tail: str) -> Excerpt:
    return Excerpt(head, tail, kept.total, form, kept.artifact, kept.base, kept.start, kept.of)


def _kept(at: int, excerpt: Excerpt) -> Kept:
    return Kept(
        at,
        excerpt.handle,
        excerpt.form,
        head=len(excerpt.head),
        tail=len(excerpt.tail),
        total=excerpt.total,
        base=excerpt.base,
        start=excerpt.start,
        of=excerpt.of,
    )
