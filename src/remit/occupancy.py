"""What fills a model's window: estimates of the parts of a request, and the largest of them in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remit.canonical import encode
from remit.excerpt import CHARS_PER_TOKEN
from remit.messages import Message, ToolResult
from remit.models.base import ToolSpec
from remit.transcript import Transcript, tokens_of

__all__ = ["fixed_tokens", "what_fills"]


def fixed_tokens(instructions: str, specs: Iterable[ToolSpec]) -> int:
    """Estimated tokens of what every request of a run begins with."""
    return (len(instructions) + sum([_spec_chars(spec) for spec in specs])) // CHARS_PER_TOKEN


def what_fills(
    window: int, *, instructions: str, specs: Sequence[ToolSpec], transcript: Transcript
) -> str:
    """Why no request fits: the parts of the next one with their estimated tokens, the largest first."""
    newest = _newest_turn(transcript)
    older = [result for message in transcript[:newest] for result in message.tool_results]
    older_tokens = sum([tokens_of(result) for result in older])
    parts = [
        (fixed_tokens(instructions, ()), "instructions", ""),
        (fixed_tokens("", specs), "tools", _largest_tool(specs)),
        (_tokens(transcript[newest:]), "newest turn", _largest_result(transcript[newest:])),
        (older_tokens, "earlier results", ""),
        (_tokens(transcript[:newest]) - older_tokens, "earlier words and calls", ""),
    ]
    told = [
        f"{name} ~{tokens:,} tokens{largest}"
        for tokens, name, largest in sorted(parts, key=lambda part: -part[0])
        if tokens
    ]
    return f"the context window of {window:,} tokens is full: {', '.join(told)}"


def _spec_chars(spec: ToolSpec) -> int:
    return len(spec.name) + len(spec.description) + len(encode(dict(spec.parameters)))


def _newest_turn(transcript: Transcript) -> int:
    """Where the newest turn begins: with the reply that called, or with the words before any reply."""
    for at in range(len(transcript) - 1, -1, -1):
        if transcript[at].role == "assistant":
            return at
    return 0


def _tokens(messages: Iterable[Message]) -> int:
    return sum([tokens_of(block) for message in messages for block in message.content])


def _largest_tool(specs: Sequence[ToolSpec]) -> str:
    if not specs:
        return ""
    largest = max(specs, key=_spec_chars)
    return f" (largest: {largest.name} {fixed_tokens('', (largest,)):,})"


def _largest_result(messages: Sequence[Message]) -> str:
    names = {use.id: use.name for message in messages for use in message.tool_uses}
    results = [
        block
        for message in messages
        for block in message.content
        if isinstance(block, ToolResult) and block.tool_use_id in names
    ]
    if not results:
        return ""
    largest = max(results, key=tokens_of)
    return f" (largest: a result of {names[largest.tool_use_id]} {tokens_of(largest):,})"
