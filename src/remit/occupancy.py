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
    window: int | None,
    *,
    instructions: str,
    specs: Sequence[ToolSpec],
    transcript: Transcript,
    density: float,
) -> str:
    """Why no request fits: the parts of the next one with their estimated tokens, the largest first.

    Units: tokens as the provider counts them, `density` of them for each token of an estimate. `window` is None
    where it was the provider that found the prompt too long.
    """

    def counted(tokens: int) -> str:
        return f"{int(tokens * density):,}"

    newest = _newest_turn(transcript)
    older = [result for message in transcript[:newest] for result in message.tool_results]
    older_tokens = sum([tokens_of(result) for result in older])
    parts = [
        (fixed_tokens(instructions, ()), "instructions", None),
        (fixed_tokens("", specs), "tools", _largest_tool(specs)),
        (_tokens(transcript[newest:]), "newest turn", _largest_result(transcript[newest:])),
        (older_tokens, "earlier results", None),
        (_tokens(transcript[:newest]) - older_tokens, "earlier words and calls", None),
    ]
    told = [
        f"{name} ~{counted(tokens)} tokens"
        + (f" (largest: {largest[0]} {counted(largest[1])})" if largest else "")
        for tokens, name, largest in sorted(parts, key=lambda part: -part[0])
        if tokens
    ]
    full = (
        "the provider finds the prompt too long"
        if window is None
        else f"the context window of {window:,} tokens is full"
    )
    return f"{full}: {', '.join(told)}"


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


def _largest_tool(specs: Sequence[ToolSpec]) -> tuple[str, int] | None:
    if not specs:
        return None
    largest = max(specs, key=_spec_chars)
    return largest.name, fixed_tokens("", (largest,))


def _largest_result(messages: Sequence[Message]) -> tuple[str, int] | None:
    names = {use.id: use.name for message in messages for use in message.tool_uses}
    results = [
        block
        for message in messages
        for block in message.content
        if isinstance(block, ToolResult) and block.tool_use_id in names
    ]
    if not results:
        return None
    largest = max(results, key=tokens_of)
    return f"a result of {names[largest.tool_use_id][:64]}", tokens_of(largest)
