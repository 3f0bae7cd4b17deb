"""Outcomes and transcripts for people: as HTML in a notebook, as plain text in a shell.

Everything in them is hostile: a model, a tool or a web page behind it wrote it. So every text is escaped, stands in a
`pre` that no markup or formula processor looks into, and is cut at a bound; media are their type and size, never
content; nothing is linked, loaded or run. No token of an approval is shown. Loaded when it is first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from remit.canonical import well_formed
from remit.messages import Block, Media, Message, Opaque, ResultContent, Text, ToolResult, ToolUse
from remit.preview import preview, preview_of

if TYPE_CHECKING:
    from remit.outcome import Outcome
    from remit.pending import Pending

__all__ = ["outcome_html", "outcome_text", "transcript_html", "transcript_text"]

MAX_MESSAGES = 40
"""How many messages are shown; the first quarter, and the newest."""
MAX_BLOCKS = 20
"""How many blocks of one message."""
MAX_PARTS = 5
"""How many blocks of one result."""
MAX_CHARS = 100_000
"""How many characters of all texts together; no message has more than its share."""
_ANSWER_CHARS = 20_000
_LEAST_CHARS = 200

_CUT = re.compile(r'\[\.\.\. \d+ of \d+ characters shown;|\A\{"truncated":')
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Controls, and characters that turn or hide others."""

_FRAME = "border:1px solid #8886;border-radius:4px;padding:4px 8px;margin:4px 0"
_PRE = "white-space:pre-wrap;overflow-wrap:anywhere;margin:2px 0;unicode-bidi:isolate"
_FAINT = "opacity:.7;font-size:90%"


# --- HTML ----------------------------------------------------------------------------------------


def outcome_html(outcome: Outcome[Any]) -> str:
    """An outcome: how it ended, what it cost, what it waits for, what it said, and how it came to that."""
    page = _Page()
    parts = [f"<b>{_word(outcome.reason.value)}</b> {_faint(escape(_account(outcome)))}"]
    if outcome.error is not None:
        parts.append(page.text(outcome.error, _ANSWER_CHARS))
    parts += [page.pending(each) for each in outcome.pending[:MAX_BLOCKS]]
    if len(outcome.pending) > MAX_BLOCKS:
        parts.append(_faint(f"and {len(outcome.pending) - MAX_BLOCKS} more that it waits for"))
    if outcome.text.strip():
        parts.append(page.text(outcome.text, _ANSWER_CHARS))
    messages = outcome.transcript.messages
    summary = f"<summary>{_faint(f'{len(messages)} messages')}</summary>"
    parts.append(f"<details>{summary}{''.join(page.messages(messages))}</details>")
    return _whole(parts)


def transcript_html(messages: Sequence[Message]) -> str:
    """A transcript: each turn, each call with its result."""
    return _whole([_faint(f"{len(messages)} messages"), *_Page().messages(messages)])


def _whole(parts: Sequence[str]) -> str:
    # The classes keep formula processors out; notebooks run one over all that is displayed.
    return f'<div class="tex2jax_ignore mathjax_ignore" style="{_FRAME}">{"".join(parts)}</div>'


class _Page:
    """What is displayed, with room for so many characters of text."""

    def __init__(self) -> None:
        self._left = MAX_CHARS

    def text(self, text: str, chars: int) -> str:
        """At most so many characters of a text."""
        shown = text[: min(chars, self._left)]
        self._left -= len(shown)
        rest = len(text) - len(shown)
        more = _faint(f"... {rest:,} characters more") if rest else ""
        return f'<pre style="{_PRE}">{escape(_plain(shown))}</pre>{more}'

    def pending(self, pending: Pending) -> str:
        what = (
            f"waits for {pending.kind} of {pending.tool}, {pending.id}, until {pending.expires_at}"
        )
        summary = self.text(pending.summary, _ANSWER_CHARS // 10)
        return f'<div style="{_FRAME}">{_faint(_word(what))}{summary}</div>'

    def messages(self, messages: Sequence[Message]) -> Iterator[str]:
        chosen, calls = _chosen(len(messages)), _Calls(messages)
        share = max(MAX_CHARS // max(len(chosen), 1), _LEAST_CHARS)
        before = -1
        for at in chosen:
            if at > before + 1:
                yield f"<p>{_faint(f'... {at - before - 1} messages ...')}</p>"
            before = at
            content = calls.beside(messages[at])
            if content:
                parts = [_faint(_word(messages[at].role)), *self._blocks(content, calls, share)]
                yield f'<div style="{_FRAME}">{"".join(parts)}</div>'

    def _blocks(self, content: Sequence[Block], calls: _Calls, chars: int) -> Iterator[str]:
        each = max(chars // min(len(content), MAX_BLOCKS), _LEAST_CHARS)
        for block in content[:MAX_BLOCKS]:
            match block:
                case ToolUse():
                    yield self._call(block, calls.results.get(block.id), each)
                case ToolResult():
                    yield self._result(block, each)
                case Opaque():
                    what = f"{_word(block.issuer)}&#x27;s own block, {len(block.data):,} bytes"
                    yield f"<div>{_faint(what)}</div>"
                case _:
                    yield self._content(block, each)
        if len(content) > MAX_BLOCKS:
            yield _faint(f"and {len(content) - MAX_BLOCKS} more blocks")

    def _call(self, use: ToolUse, result: ToolResult | None, chars: int) -> str:
        asked = f"<b>{_word(use.name)}</b>{self.text(use.arguments, chars // 2)}"
        told = _faint("no result yet") if result is None else self._result(result, chars // 2)
        return f"<div>{asked}{told}</div>"

    def _result(self, result: ToolResult, chars: int) -> str:
        cut = any(map(_is_cut, result.content[:MAX_PARTS]))
        marks = [result.status.value, *(["cut"] if cut else [])]
        marks += [f"kept as {handle[:21]}" for handle in result.artifacts[:MAX_PARTS]]
        shown = [self._content(block, chars) for block in result.content[:MAX_PARTS]]
        if len(result.content) > MAX_PARTS:
            shown.append(_faint(f"and {len(result.content) - MAX_PARTS} more blocks"))
        return f"{_faint(_word(', '.join(marks)))}{''.join(shown)}"

    def _content(self, block: ResultContent, chars: int) -> str:
        if isinstance(block, Text):
            return self.text(block.text, chars)
        return f"<div>{_faint(_word(_media(block)))}</div>"


class _Calls:
    """The calls of a transcript with their results, wherever they stand."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.results = {r.tool_use_id: r for message in messages for r in message.tool_results}
        self._called = {use.id for message in messages for use in message.tool_uses}

    def beside(self, message: Message) -> list[Block]:
        """What of a turn is no result of a call that is shown."""
        return [
            block
            for block in message.content
            if not (isinstance(block, ToolResult) and block.tool_use_id in self._called)
        ]


def _chosen(count: int) -> Sequence[int]:
    """Which messages are shown."""
    if count <= MAX_MESSAGES:
        return range(count)
    first = MAX_MESSAGES // 4
    return [*range(first), *range(count - MAX_MESSAGES + first, count)]


def _is_cut(block: ResultContent) -> bool:
    """Whether a part of it is shown to the model. What is long was not cut."""
    if not isinstance(block, Text) or len(block.text) > MAX_CHARS:
        return False
    return _CUT.search(block.text) is not None


def _word(text: str) -> str:
    """A short text on one line."""
    return escape(preview(text))


def _faint(html: str) -> str:
    return f'<span style="{_FAINT}">{html}</span>'


def _plain(text: str) -> str:
    """With what would turn or hide the rest of it spelled out."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", well_formed(text))


def _media(block: Media) -> str:
    name = "" if block.name is None else f" {block.name}"
    return f"{block.media_type}{name}, {len(block.data):,} bytes"


# --- plain text ----------------------------------------------------------------------------------


def outcome_text(outcome: Outcome[Any]) -> str:
    """The same in a few lines: how it ended and what it cost, what it waits for, what it said."""
    lines = [f"{outcome.reason.value} {_account(outcome)}"]
    if outcome.error is not None:
        lines.append(preview(outcome.error))
    lines += [
        f"waits for {each.kind} of {each.tool}: {preview(each.summary)}"
        for each in outcome.pending[:MAX_BLOCKS]
    ]
    if outcome.text.strip():
        text = outcome.text[: _ANSWER_CHARS // 10]
        rest = len(outcome.text) - len(text)
        lines += [_plain(text), *([f"... {rest:,} characters more"] if rest else [])]
    return "\n".join(lines)


def transcript_text(messages: Sequence[Message]) -> str:
    """A line for each block, calls with their results behind them."""
    calls = _Calls(messages)
    lines: list[str] = []
    before = -1
    for at in _chosen(len(messages)):
        if at > before + 1:
            lines.append(f"... {at - before - 1} messages ...")
        before = at
        content = calls.beside(messages[at])
        for block in content[:MAX_BLOCKS]:
            lines += [f"{messages[at].role}: {line}" for line in _lines(block, calls)]
        if len(content) > MAX_BLOCKS:
            lines.append(f"... {len(content) - MAX_BLOCKS} more blocks ...")
    return "\n".join(lines)


def _lines(block: Block, calls: _Calls) -> Iterator[str]:
    match block:
        case ToolUse():
            result = calls.results.get(block.id)
            yield f"{preview(block.name)}({preview(block.arguments)})"
            yield f"  {'no result yet' if result is None else _of_result(result)}"
        case ToolResult():
            yield _of_result(block)
        case Text():
            yield preview(block.text)
        case Media():
            yield preview(_media(block))
        case Opaque():
            yield f"{preview(block.issuer)}'s own block, {len(block.data):,} bytes"


def _of_result(result: ToolResult) -> str:
    return f"{result.status.value}: {preview_of(result.content)}"


def _account(outcome: Outcome[Any]) -> str:
    """What it cost, and whose limit ended it."""
    tree = outcome.spend.tree
    whose = "" if outcome.whose is None else f" of {preview(outcome.whose)}"
    return (
        f"{whose} ({outcome.steps} steps, {tree.calls} calls, {tree.tokens:,} tokens, "
        f"{tree.usd:f} USD, {outcome.spend.own.seconds:.1f} s, run {preview(outcome.run_id)})"
    ).strip()
