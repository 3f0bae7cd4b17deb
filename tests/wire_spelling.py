"""Two ways to say the same, made one: the only differences that the tests of recordings forgive.

Everything else must be equal. What is forgiven, and why:

1. Where cache markers stand. The encoder sets its own, where they help (X4); bodies are compared without them.
2. Text as a string, or as the only text part of a list; an input that is a string, or the only message of the
   user. Every provider takes both for the same.
3. A field that is absent, null or empty, or that says what is so without it (`stream: false`,
   `tool_choice: auto`, at Mistral `any` for `required`, `is_error: false`, `type: message` beside a role, `type: function` beside a function,
   the `index` of a call in a list of calls, a list of no annotations).
4. Messages of one side that follow each other, at Anthropic, which merges them; and there the order of results,
   which are matched by id: remit sends them in call order (T1).
5. What remit says in every request, where a recording leaves it to the server: the cap of the output, `store`,
   that reasoning is included, the key of the cache, usage in a stream. Where a recording says it, it must be the
   same.
6. The name that a server has for the cap of the output (`max_tokens`, `max_completion_tokens`).
7. Typographic marks, where a reply is compared with what the recorded client made of it: one of them writes
   quotes and dashes as they are typed (`typed`).
8. Text and messages that are blank: remit sends none (T1).
9. `reasoning` beside a text of Chat Completions, which no server demands back: some clients send it, remit to those
   servers that say they read it.
10. The JSON of arguments, where a recorded client wrote it anew: remit sends the text that the model gave.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["plain", "typed"]

_MARKS = {"cache_control", "prompt_cache_breakpoint"}
_UNSAID: Mapping[str, Any] = {
    "stream": False,
    "is_error": False,
    "n": 1,
    "prefix": False,
    "status": "completed",
    "parallel_tool_calls": True,
    "detail": "auto",
}
"""Fields that say what is so without them."""

_OURS: Mapping[str, frozenset[str]] = {
    "anthropic": frozenset(),
    "openai": frozenset({"store", "include", "max_output_tokens", "prompt_cache_key"}),
    "openai-chat": frozenset({"max_tokens", "stream_options", "prompt_cache_key"}),
}
_CAPS = ("max_completion_tokens", "max_tokens")


def plain(wire: str, body: Mapping[str, Any], *, beside: Mapping[str, Any] | None = None) -> Any:
    """A body in one of the ways of saying it.

    `beside` is the recording that it is compared with: what that leaves to the server is left out here too.
    """
    made = json.loads(json.dumps(body), object_hook=_plain)
    if wire == "openai":
        given = made.get("input", [])
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        made["input"] = [item for item in items if item != {"role": "assistant"}]
        made["include"] = sorted({*made.get("include", ()), "reasoning.encrypted_content"})
    if wire == "openai-chat":
        said = made.get("messages", [])
        made["messages"] = [each for each in said if each != {"role": "assistant"}]
        for cap in _CAPS:
            if cap in made:
                made["max_tokens"] = made.pop(cap)
    if wire == "anthropic":
        made["messages"] = _merged(made.get("messages", []))
        if made.get("tool_choice") == {"type": "auto"}:
            del made["tool_choice"]
    elif made.get("tool_choice") == "auto":
        del made["tool_choice"]
    elif made.get("tool_choice") == "any":
        made["tool_choice"] = "required"
    if beside is not None:
        said = plain(wire, beside)
        made = {key: made[key] for key in made if key in said or key not in _OURS[wire]}
    return made


_TYPED = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "--",
        "\u2026": "...",
    }
)


def typed(value: Any) -> Any:
    """The same with quotes and dashes as they are typed."""
    if isinstance(value, str):
        return value.translate(_TYPED)
    if isinstance(value, list):
        return [typed(each) for each in value]
    return {key: typed(each) for key, each in value.items()} if isinstance(value, dict) else value


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    """One object of a body; those inside it are plain already."""
    kind = item.get("type")
    if (
        kind in {"object", "string", "integer", "number", "array", "boolean"}
        or "properties" in item
    ):
        return item  # a schema: it says what it says
    made = {key: value for key, value in item.items() if key not in _MARKS}
    for key in ("content", "output", "system"):
        if key in made:
            made[key] = _text(made[key])
    if (kind == "message" and "role" in made) or (kind == "function" and "function" in made):
        del made["type"]
    if "function" in made:
        made.pop("index", None)
    return {key: value for key, value in made.items() if not _unsaid(key, value)}


def _unsaid(key: str, value: Any) -> bool:
    if key in {"input", "arguments", "text", "encrypted_content", "signature", "thinking"}:
        return False
    if value is None or value in ("", [], {}):
        return key not in {"parameters", "input_schema", "reasoning_content"} or value is None
    return key in _UNSAID and value == _UNSAID[key] and type(value) is type(_UNSAID[key])


def _text(content: Any) -> Any:
    """The text of the only text part."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part: dict[str, Any] = content[0]
        if set(part) == {"type", "text"} and part["type"] in {"text", "input_text", "output_text"}:
            return part["text"]
    return content


def _merged(messages: Sequence[Any]) -> list[Any]:
    """Anthropic's messages as it reads them."""
    made: list[dict[str, Any]] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = [block for block in blocks if not block.get("text", "x").isspace()]
        if made and made[-1]["role"] == message["role"] and message["role"] != "system":
            made[-1]["content"] = [*made[-1]["content"], *blocks]
        else:
            made.append({**message, "content": list(blocks)})
    calls: list[str] = []
    for message in made:
        if message["role"] == "assistant":
            calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        results = [block for block in message["content"] if block["type"] == "tool_result"]
        if message["role"] == "user" and results:
            results.sort(key=lambda block: calls.index(block["tool_use_id"]))
            rest = [block for block in message["content"] if block["type"] != "tool_result"]
            message["content"] = [*results, *rest]
    return made
