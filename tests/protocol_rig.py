"""Small conversations as each provider would see them, and one way to break each of its rules."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

from remit.testing.protocol import Judge, judge

Break = Callable[[dict[str, Any]], None]


class Case(NamedTuple):
    """A request that is accepted, and how it is broken."""

    rule: str
    name: str
    breaks: Break


class Talk(NamedTuple):
    """A conversation of one exchange, and the request that continues it."""

    wire: str
    first: dict[str, Any]
    reply: dict[str, Any]
    body: dict[str, Any]
    dialect: str = "openai"

    def judged(self) -> tuple[Judge, dict[str, Any]]:
        """A judge that has seen the exchange, and the next request, to be broken."""
        made = judge(self.wire, dialect=self.dialect)
        made.request(self.first)
        made.response(self.reply, self.first)
        return made, deepcopy(self.body)


# --- Anthropic -----------------------------------------------------------------------------------

_SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
_HELLO = {"role": "user", "content": [{"type": "text", "text": "Add 1 and 2, then 3."}]}
_THOUGHT = {"type": "thinking", "thinking": "Two sums.", "signature": "c2lnbmVk"}
_REDACTED = {"type": "redacted_thinking", "data": "aGlkZGVu"}
_SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
_FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://x", "encrypted_content": "c2Vu"}],
}
_USES = [
    {"type": "tool_use", "id": f"toolu_{n}", "name": "look", "input": {"n": n}} for n in (1, 2)
]
_ANTHROPIC_FIRST: dict[str, Any] = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 4096,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [_HELLO],
    "tools": [{"name": "look", "description": "Look.", "input_schema": _SCHEMA, "strict": True}],
    "tool_choice": {"type": "auto"},
}
_ANTHROPIC_REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [
        _THOUGHT,
        _REDACTED,
        _SEARCH,
        _FOUND,
        {"type": "text", "text": "First both."},
        *_USES,
        {"type": "compaction", "content": "Said little.", "signature": "c2VhbA"},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
ANTHROPIC = Talk(
    "anthropic",
    _ANTHROPIC_FIRST,
    _ANTHROPIC_REPLY,
    {
        **_ANTHROPIC_FIRST,
        "messages": [
            _HELLO,
            {"role": "assistant", "content": _ANTHROPIC_REPLY["content"]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "content": [{"type": "text", "text": "2"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "Go on."},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "aQ=="},
                    },
                ],
            },
        ],
    },
)


def _said(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["messages"][1]["content"]


def _answers(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["messages"][2]["content"]


def _put(body: Any, value: Any, *way: Any) -> None:
    *outer, last = way
    for key in outer:
        body = body[key]
    body[last] = value


def _set(value: Any, *way: Any) -> Break:
    return lambda body: _put(body, value, *way)


def _drop(*way: Any) -> Break:
    def drop(body: Any) -> None:
        *outer, last = way
        for key in outer:
            body = body[key]
        del body[last]

    return drop


def _swap(first: int, second: int, *way: Any) -> Break:
    def swap(body: Any) -> None:
        for key in way:
            body = body[key]
        body[first], body[second] = body[second], body[first]

    return swap


def _old_model(body: dict[str, Any]) -> None:
    body["model"] = "claude-sonnet-4-0"
    body["thinking"] = {"type": "enabled", "budget_tokens": 2048}
    del _said(body)[:2]


def _thinking(**settings: Any) -> Break:
    def think(body: dict[str, Any]) -> None:
        body["thinking"] = {"type": "enabled", "budget_tokens": 2048}
        body.update(settings)

    return think


def _asked_again(body: dict[str, Any]) -> None:
    """The provider's own tool is left open, and the user talks on."""
    del _said(body)[3]
    del _answers(body)[0:2]
    del _said(body)[4:6]


def called_later(body: dict[str, Any]) -> None:
    """A later turn uses an id of an earlier one again."""
    body["messages"] += [
        {"role": "assistant", "content": [{**_USES[0]}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]},
    ]


def _thought_moved_on(body: dict[str, Any]) -> None:
    """The thought stands in a later reply, which called something else."""
    thought = _said(body).pop(0)
    use = {**_USES[0], "id": "toolu_3"}
    body["messages"] += [
        {"role": "assistant", "content": [thought, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_3"}]},
    ]


def _ends_with(text: str, model: str = "claude-sonnet-4-5") -> Break:
    def end(body: dict[str, Any]) -> None:
        body["model"] = model
        body["messages"].append({"role": "assistant", "content": [{"type": "text", "text": text}]})

    return end


def _marked(*controls: dict[str, str]) -> Break:
    def mark(body: dict[str, Any]) -> None:
        blocks = [body["tools"][0], body["system"][0], *_answers(body)]
        for block, control in zip(blocks, controls, strict=False):
            block["cache_control"] = control

    return mark


_SHORT, _LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
_TEXT = {"type": "text", "text": "Hm."}

ANTHROPIC_CASES = [
    Case("missing_field", "without an output cap", _drop("max_tokens")),
    Case("missing_field", "a call without a name", _drop("messages", 1, "content", 5, "name")),
    Case("missing_field", "a tool without a schema", _drop("tools", 0, "input_schema")),
    Case("unknown_field", "a field of another provider", _set(1, "max_completion_tokens")),
    Case(
        "unknown_field",
        "a field of ours in a result",
        _set("ok", "messages", 2, "content", 0, "status"),
    ),
    Case("unknown_field", "a field of ours in a message", _set("m1", "messages", 1, "id")),
    Case("unknown_field", "a field of ours in a tool", _set("read", "tools", 0, "effect")),
    Case("type", "messages that are no list", _set({}, "messages")),
    Case("type", "a cap that is no number", _set("8", "max_tokens")),
    Case("type", "content that is none", _set(None, "messages", 0, "content")),
    Case("type", "a text that is none", _set(7, "messages", 0, "content", 0, "text")),
    Case("type", "a tool choice in words", _set("auto", "tool_choice")),
    Case("type", "thinking too short", _thinking(thinking={"type": "enabled", "budget_tokens": 1})),
    Case("no_messages", "no messages", _set([], "messages")),
    Case("max_tokens", "a cap below zero", _set(-1, "max_tokens")),
    Case("thinking_budget", "thinking over the cap", _thinking(max_tokens=2000)),
    Case("thinking_temperature", "thinking with a temperature", _thinking(temperature=0.5)),
    Case("thinking_forced", "thinking with a forced tool", _thinking(tool_choice={"type": "any"})),
    Case("role", "a role of another provider", _set("tool", "messages", 2, "role")),
    Case("wrong_place", "a call by the user", _set([_USES[0]], "messages", 0, "content")),
    Case("wrong_place", "a search result by the user", _set([_FOUND], "messages", 0, "content")),
    Case(
        "wrong_place",
        "an image by the assistant",
        lambda body: _said(body).append(_answers(body)[3]),
    ),
    Case(
        "block_type",
        "a block of another provider",
        _set({"type": "image_url"}, "messages", 2, "content", 3),
    ),
    Case(
        "block_type", "a call in a result", _set([_USES[0]], "messages", 2, "content", 0, "content")
    ),
    Case("empty_message", "a message without blocks", _set([], "messages", 0, "content")),
    Case("empty_message", "a message without text", _set("", "messages", 0, "content")),
    Case("blank", "an empty text", _set("", "messages", 1, "content", 4, "text")),
    Case(
        "blank",
        "an empty text in a result",
        _set("", "messages", 2, "content", 1, "content", 0, "text"),
    ),
    Case("whitespace", "a text of blanks", _set(" \n", "messages", 2, "content", 2, "text")),
    Case("whitespace", "a message of blanks", _set("  ", "messages", 0, "content")),
    Case("trailing_space", "a last word that trails off", _ends_with("So ")),
    Case("prefill", "words put into its mouth", _ends_with("So", "claude-opus-4-8")),
    Case(
        "media_type",
        "a picture in a format that is not read",
        _set("image/tiff", "messages", 2, "content", 3, "source", "media_type"),
    ),
    Case("unanswered", "a result is dropped", _drop("messages", 2, "content", 1)),
    Case("unanswered", "all results are dropped", _drop("messages", 2)),
    Case("result_place", "a word before the results", lambda body: _answers(body).insert(0, _TEXT)),
    Case(
        "result_place", "a word between the results", lambda body: _answers(body).insert(1, _TEXT)
    ),
    Case(
        "orphan_result",
        "a result too many",
        lambda body: _answers(body).insert(0, {"type": "tool_result", "tool_use_id": "toolu_9"}),
    ),
    Case(
        "orphan_result",
        "a result at the start",
        _set([{"type": "tool_result", "tool_use_id": "t"}], "messages", 0, "content"),
    ),
    Case(
        "answered_twice", "a result twice", lambda body: _answers(body).insert(1, _answers(body)[0])
    ),
    Case("id_twice", "two calls with one id", _set("toolu_1", "messages", 1, "content", 6, "id")),
    Case("id", "an id that is illegal", _set("toolu:1", "messages", 1, "content", 5, "id")),
    Case(
        "id",
        "a result for an illegal id",
        _set("toolu.1", "messages", 2, "content", 0, "tool_use_id"),
    ),
    Case(
        "call_name", "a name that is illegal", _set("look up", "messages", 1, "content", 5, "name")
    ),
    Case("call_input", "arguments as text", _set('{"n": 1}', "messages", 1, "content", 5, "input")),
    Case("server_orphan", "a search result without its search", _drop("messages", 1, "content", 2)),
    Case("server_unanswered", "a search that was left open", _asked_again),
    Case(
        "opaque_modified",
        "a thought is rewritten",
        _set("Three.", "messages", 1, "content", 0, "thinking"),
    ),
    Case(
        "opaque_moved",
        "a thought behind its calls",
        lambda body: _said(body).append(_said(body).pop(0)),
    ),
    Case("opaque_moved", "two thoughts change places", _swap(0, 1, "messages", 1, "content")),
    Case("opaque_moved", "a thought twice", lambda body: _said(body).insert(1, _said(body)[0])),
    Case("opaque_moved", "a thought in another reply", _thought_moved_on),
    Case(
        "signature",
        "a thought is signed anew",
        _set("Zm9yZ2Vk", "messages", 1, "content", 0, "signature"),
    ),
    Case(
        "redacted",
        "a redacted thought is replaced",
        _set("eA==", "messages", 1, "content", 1, "data"),
    ),
    Case(
        "thinking_unbound",
        "what stands before it is rewritten",
        _set("Hi.", "messages", 0, "content", 0, "text"),
    ),
    Case("thinking_missing", "an older model without its thought", _old_model),
    Case(
        "encrypted",
        "a search result is rewritten",
        _set("eA==", "messages", 1, "content", 3, "content", 0, "encrypted_content"),
    ),
    Case(
        "compaction",
        "a summary is rewritten",
        _set("Much.", "messages", 1, "content", 7, "content"),
    ),
    Case("tool_name", "a tool with an illegal name", _set("look.up", "tools", 0, "name")),
    Case("tool_twice", "a tool twice", lambda body: body["tools"].append(body["tools"][0])),
    Case(
        "tool_schema",
        "a tool whose root is no object",
        _set("array", "tools", 0, "input_schema", "type"),
    ),
    Case(
        "tool_root",
        "a tool with a union at its root",
        _set([{}], "tools", 0, "input_schema", "anyOf"),
    ),
    Case(
        "tool_keys",
        "a parameter with an illegal name",
        _set({}, "tools", 0, "input_schema", "properties", "n m"),
    ),
    Case(
        "tool_strict",
        "a strict tool that is open",
        _drop("tools", 0, "input_schema", "additionalProperties"),
    ),
    Case(
        "tool_strict",
        "a strict tool with a bound",
        _set(3, "tools", 0, "input_schema", "properties", "n", "minimum"),
    ),
    Case(
        "tool_choice",
        "a tool that is not there",
        _set({"type": "tool", "name": "go"}, "tool_choice"),
    ),
    Case("tool_choice_alone", "a choice of no tools", _drop("tools")),
    Case("cache_count", "five markers", _marked(_SHORT, _SHORT, _SHORT, _SHORT, _SHORT)),
    Case(
        "cache_place",
        "a marker on a thought",
        _set(_SHORT, "messages", 1, "content", 0, "cache_control"),
    ),
    Case("cache_form", "a marker for a day", _marked({"type": "ephemeral", "ttl": "24h"})),
    Case("cache_form", "a marker of another kind", _marked({"type": "persistent"})),
    Case("cache_order", "a long marker behind a short one", _marked(_SHORT, _LONG)),
]

# --- Responses -----------------------------------------------------------------------------------

_RESPONSES_FIRST: dict[str, Any] = {
    "model": "gpt-5.5",
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "input": [{"role": "user", "content": "Add 1 and 2, then 3."}],
    "tools": [{"type": "function", "name": "look", "parameters": _SCHEMA, "strict": True}],
    "tool_choice": "auto",
}
_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FBQUFB"}
_RESPONSES_REPLY: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "store": False,
    "output": [
        _REASONING,
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "First both.", "annotations": []}],
        },
        *[
            {
                "type": "function_call",
                "id": f"fc_{n}",
                "call_id": f"call_{n}",
                "name": "look",
                "arguments": f'{{"n": {n}}}',
                "status": "completed",
            }
            for n in (1, 2)
        ],
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "call_id": "call_3",
            "name": "say",
            "input": "x",
        },
    ],
    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
}
_OUTPUTS: list[dict[str, Any]] = [
    {"type": "function_call_output", "call_id": "call_1", "output": "1"},
    {
        "type": "function_call_output",
        "call_id": "call_2",
        "output": [
            {"type": "input_text", "text": "2"},
            {"type": "input_file", "file_data": "data:text/plain;base64,MQ==", "filename": "n"},
        ],
    },
    {"type": "custom_tool_call_output", "call_id": "call_3", "output": "said"},
]
RESPONSES = Talk(
    "openai",
    _RESPONSES_FIRST,
    _RESPONSES_REPLY,
    {
        **_RESPONSES_FIRST,
        "input": [*_RESPONSES_FIRST["input"], *_RESPONSES_REPLY["output"], *_OUTPUTS],
    },
)
"""The input: the user, reasoning (1), a message (2), calls (3, 4, 5), their outputs (6, 7, 8)."""

STORED = Talk(
    "openai",
    {**_RESPONSES_FIRST, "store": True},
    {**_RESPONSES_REPLY, "store": True},
    {**_RESPONSES_FIRST, "store": True, "previous_response_id": "resp_1", "input": _OUTPUTS},
)
"""The same with the server's state: only the outputs are sent."""

_DEEPSEEK_ITEMS = [
    _RESPONSES_FIRST["input"][0],
    *[
        {"type": "function_call", "call_id": f"call-{n}", "name": "look", "arguments": "{}"}
        for n in (1, 2)
    ],
    *[{"type": "function_call_output", "call_id": f"call-{n}", "output": "1"} for n in (1, 2)],
]
ADJACENT = Talk(
    "openai",
    _RESPONSES_FIRST,
    {"id": "r", "output": []},
    {"model": "deepseek-v4-flash", "input": _DEEPSEEK_ITEMS},
    "deepseek",
)

_WORD = {"role": "assistant", "content": "Hm."}


def _insert(at: int, *items: Any) -> Break:
    return lambda body: body["input"].__setitem__(slice(at, at), deepcopy(list(items)))


def _again(at: int) -> Break:
    return lambda body: body["input"].append(body["input"][at])


def _move(at: int, to: int) -> Break:
    return lambda body: body["input"].insert(to, body["input"].pop(at))


def _output_format(body: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "name": "out", "strict": True, "schema": schema}
    body["text"] = {"format": form}


RESPONSES_CASES = [
    Case("missing_field", "without a model", _drop("model")),
    Case("missing_field", "a call without a call_id", _drop("input", 3, "call_id")),
    Case("missing_field", "a text without text", _drop("input", 2, "content", 0, "text")),
    Case("missing_field", "a tool without a name", _drop("tools", 0, "name")),
    Case("unknown_field", "a field of another wire", _set([], "messages")),
    Case("unknown_field", "a field of ours in an output", _set(True, "input", 6, "is_error")),
    Case("type", "an input that is none", _set({"role": "user"}, "input")),
    Case("type", "arguments as an object", _set({"n": 1}, "input", 3, "arguments")),
    Case("type", "an output that is none", _set(3, "input", 6, "output")),
    Case("no_messages", "nothing to read", _set([], "input")),
    Case("value", "a role of another wire", _set("tool", "input", 0, "role")),
    Case(
        "value",
        "what the assistant said as input",
        _set("input_text", "input", 2, "content", 0, "type"),
    ),
    Case(
        "sampling",
        "a temperature for a newer model",
        lambda body: body.update(model="gpt-6-sol", temperature=1),
    ),
    Case("unanswered", "an output is dropped", _drop("input", 6)),
    Case("unanswered", "an output of another kind is dropped", _drop("input", 8)),
    Case("orphan_result", "a call is dropped", _drop("input", 4)),
    Case("orphan_result", "a call is given another id", _set("call_9", "input", 3, "call_id")),
    Case("orphan_result", "an output before its call", _move(6, 3)),
    Case(
        "orphan_result",
        "an output of another kind",
        _set("custom_tool_call_output", "input", 6, "type"),
    ),
    Case("id_twice", "an item twice", _again(2)),
    Case("id_twice", "two calls with one id", _set("call_1", "input", 4, "call_id")),
    Case("id_twice", "an output twice", _again(6)),
    Case("empty_id", "a call without an id", _set("", "input", 3, "call_id")),
    Case("id", "an id that is too long", _set("c" * 65, "input", 3, "call_id")),
    Case("item_id", "an item under the id of a call", _set("call_1", "input", 3, "id")),
    Case("follower", "what followed the reasoning is dropped", _drop("input", 2)),
    Case("follower", "what followed the reasoning is rewritten", _set(_WORD, "input", 2)),
    Case("follower", "reasoning at the end", _move(1, 8)),
    Case("required_reasoning", "reasoning is dropped", _drop("input", 1)),
    Case(
        "encrypted", "reasoning is sealed anew", _set("Z0FBQUFC", "input", 1, "encrypted_content")
    ),
    Case("encrypted", "reasoning under another id", _set("rs_2", "input", 1, "id")),
    Case("not_persisted", "reasoning without its content", _drop("input", 1, "encrypted_content")),
    Case(
        "not_persisted",
        "a reference to what was not kept",
        _insert(9, {"type": "item_reference", "id": "msg_1"}),
    ),
    Case("previous", "a response that was not kept", _set("resp_1", "previous_response_id")),
    Case(
        "file",
        "a file that is not read",
        _set("data:audio/mpeg;base64,MQ==", "input", 7, "output", 1, "file_data"),
    ),
    Case("tool_name", "a tool with an illegal name", _set("look.up", "tools", 0, "name")),
    Case("tool_name", "a call with an illegal name", _set("look up", "input", 3, "name")),
    Case("tool_name_long", "a tool with a long name", _set("n" * 65, "tools", 0, "name")),
    Case("tool_twice", "a tool twice", lambda body: body["tools"].append(body["tools"][0])),
    Case("tool_schema", "a tool whose root is no object", _set({}, "tools", 0, "parameters")),
    Case(
        "tool_strict",
        "a strict tool with an option",
        _set([], "tools", 0, "parameters", "required"),
    ),
    Case(
        "tool_strict",
        "a strict tool that is open",
        _drop("tools", 0, "parameters", "additionalProperties"),
    ),
    Case(
        "tool_choice",
        "a tool that is not there",
        _set({"type": "function", "name": "go"}, "tool_choice"),
    ),
    Case("output_strict", "an output that is open", _output_format),
]
STORED_CASES = [
    Case("unanswered", "an output is dropped", _drop("input", 1)),
    Case(
        "orphan_result",
        "an output of a call that nobody made",
        _set("call_9", "input", 0, "call_id"),
    ),
    Case(
        "id_twice", "what the server has is sent again", _insert(0, _RESPONSES_REPLY["output"][1])
    ),
    Case(
        "id_twice",
        "a call that the server has",
        _insert(0, {**_RESPONSES_REPLY["output"][2], "id": None}),
    ),
    Case("previous", "a response that nobody gave", _set("resp_9", "previous_response_id")),
]
ADJACENT_CASES = [
    Case("unanswered", "a word between two calls", _insert(2, _WORD)),
    Case("unanswered", "a word before the outputs", _insert(3, _WORD)),
]

# --- Chat Completions ----------------------------------------------------------------------------

_CHAT_CALLS: list[dict[str, Any]] = [
    {
        "id": f"call_{n}",
        "type": "function",
        "function": {"name": "look", "arguments": f'{{"n": {n}}}'},
    }
    for n in (1, 2)
]
_CHAT_FIRST: dict[str, Any] = {
    "model": "gpt-5.5",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Add 1 and 2."}]},
    ],
    "tools": [
        {"type": "function", "function": {"name": "look", "parameters": _SCHEMA, "strict": True}}
    ],
    "max_completion_tokens": 100,
}
_CHAT_REPLY: dict[str, Any] = {
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": _CHAT_CALLS},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
CHAT = Talk(
    "openai-chat",
    _CHAT_FIRST,
    _CHAT_REPLY,
    {
        **_CHAT_FIRST,
        "messages": [
            *_CHAT_FIRST["messages"],
            {"role": "assistant", "content": None, "tool_calls": _CHAT_CALLS},
            *[{"role": "tool", "tool_call_id": f"call_{n}", "content": str(n)} for n in (1, 2)],
            {"role": "user", "content": "Go on."},
        ],
    },
)


def _nine(value: Any) -> Any:
    """The same with ids of nine letters and digits, and nothing said behind the results."""
    text = {"call_1": "abcdefgh1", "call_2": "abcdefgh2"}
    if isinstance(value, dict):
        return {key: _nine(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_nine(each) for each in value]
    return text.get(value, value) if isinstance(value, str) else value


_MISTRAL = _nine(CHAT.body)
del _MISTRAL["messages"][5]
MISTRAL = Talk("openai-chat", _CHAT_FIRST, _nine(_CHAT_REPLY), _MISTRAL, "mistral")

_THINKS: dict[str, Any] = deepcopy(_CHAT_REPLY)
_THINKS["choices"][0]["message"]["reasoning_content"] = "Two sums."
_DEEPSEEK = deepcopy(CHAT.body)
_DEEPSEEK["messages"][2]["reasoning_content"] = "Two sums."
del _DEEPSEEK["messages"][5]
DEEPSEEK = Talk("openai-chat", _CHAT_FIRST, _THINKS, _DEEPSEEK, "deepseek")

_SIGNED: dict[str, Any] = deepcopy(_CHAT_REPLY)
_EXTRA = {"google": {"thought_signature": "AVSo"}}
_SIGNED["choices"][0]["message"]["tool_calls"][0]["extra_content"] = _EXTRA
_SIGNING = deepcopy(CHAT.body)
_SIGNING["messages"][2]["tool_calls"][0]["extra_content"] = deepcopy(_EXTRA)
COMPATIBLE = Talk("openai-chat", _CHAT_FIRST, _SIGNED, _SIGNING, "gemini")

_IDLESS = deepcopy(CHAT.body)
for _call in _IDLESS["messages"][2]["tool_calls"]:
    del _call["id"]
for _result in _IDLESS["messages"][3:5]:
    del _result["tool_call_id"]
IDLESS = Talk("openai-chat", _CHAT_FIRST, _CHAT_REPLY, _IDLESS, "idless")

_PICTURE = [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
_SOUND = [{"type": "input_audio", "input_audio": {"data": "MQ==", "format": "mp3"}}]


def _form(body: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {}}
    form = {"name": "out", "strict": True, "schema": schema}
    body["response_format"] = {"type": "json_schema", "json_schema": form}


CHAT_CASES = [
    Case("missing_field", "without a model", _drop("model")),
    Case("missing_field", "a call without an id", _drop("messages", 2, "tool_calls", 0, "id")),
    Case("missing_field", "a call without a type", _drop("messages", 2, "tool_calls", 0, "type")),
    Case(
        "missing_field",
        "a call without a name",
        _drop("messages", 2, "tool_calls", 0, "function", "name"),
    ),
    Case("missing_field", "a result without an id", _drop("messages", 3, "tool_call_id")),
    Case("missing_field", "a tool without a name", _drop("tools", 0, "function", "name")),
    Case("unknown_field", "a field of another provider", _set("Be brief.", "system")),
    Case(
        "unknown_part",
        "a field of another provider in a message",
        _set("Hm.", "messages", 2, "reasoning_content"),
    ),
    Case(
        "unknown_part",
        "a field of ours in a call",
        _set(0, "messages", 2, "tool_calls", 0, "index"),
    ),
    Case("type", "messages that are no list", _set({}, "messages")),
    Case("type", "content that is an object", _set({}, "messages", 1, "content")),
    Case("type", "calls that are no list", _set({}, "messages", 2, "tool_calls")),
    Case(
        "type",
        "arguments as an object",
        _set({}, "messages", 2, "tool_calls", 0, "function", "arguments"),
    ),
    Case("no_messages", "no messages", _set([], "messages")),
    Case(
        "max_tokens",
        "the old cap for a model that reasons",
        lambda body: body.update(max_tokens=body.pop("max_completion_tokens")),
    ),
    Case("max_tokens_twice", "two caps", _set(8, "max_tokens")),
    Case("role", "a role that is none", _set("model", "messages", 2, "role")),
    Case("blank", "a user who says nothing", _set(None, "messages", 1, "content")),
    Case("blank", "an assistant that neither says nor calls", _drop("messages", 2, "tool_calls")),
    Case("part", "a sound for a model that hears none", _set(_SOUND, "messages", 1, "content")),
    Case("tool_image", "a picture in a result", _set(_PICTURE, "messages", 3, "content")),
    Case("empty_calls", "no calls in an array", _set([], "messages", 2, "tool_calls")),
    Case("unanswered", "a result is dropped", _drop("messages", 4)),
    Case(
        "unanswered",
        "all results are dropped",
        lambda body: body["messages"].__delitem__(slice(3, 6)),
    ),
    Case("unanswered", "a word between the results", _swap(4, 5, "messages")),
    Case("orphan_result", "the call is dropped", _drop("messages", 2)),
    Case(
        "other_result", "a result under another id", _set("call_9", "messages", 3, "tool_call_id")
    ),
    Case(
        "answered_twice",
        "a result twice",
        lambda body: body["messages"].insert(4, body["messages"][3]),
    ),
    Case("id_twice", "two calls with one id", _set("call_1", "messages", 2, "tool_calls", 1, "id")),
    Case("id", "an id that is too long", _set("c" * 41, "messages", 2, "tool_calls", 0, "id")),
    Case(
        "call_name",
        "a call with an illegal name",
        _set("look up", "messages", 2, "tool_calls", 0, "function", "name"),
    ),
    Case(
        "tool_name", "a tool with an illegal name", _set("look.up", "tools", 0, "function", "name")
    ),
    Case(
        "tool_name_long", "a tool with a long name", _set("n" * 65, "tools", 0, "function", "name")
    ),
    Case("tool_twice", "a tool twice", lambda body: body["tools"].append(body["tools"][0])),
    Case(
        "tool_schema",
        "a tool whose root is no object",
        _set({}, "tools", 0, "function", "parameters"),
    ),
    Case(
        "tool_strict",
        "a strict tool with an option",
        _set([], "tools", 0, "function", "parameters", "required"),
    ),
    Case(
        "tool_choice",
        "a tool that is not there",
        _set({"type": "function", "function": {"name": "go"}}, "tool_choice"),
    ),
    Case(
        "tool_choice_alone",
        "a choice of no tools",
        lambda body: body.update(tool_choice="auto", tools=[]),
    ),
    Case(
        "parallel_alone",
        "parallel calls of no tools",
        lambda body: body.update(parallel_tool_calls=True, tools=[]),
    ),
    Case("output_strict", "an output that is open", _form),
]
MISTRAL_CASES = [
    Case("nine", "an id of another provider", _set("call_1", "messages", 2, "tool_calls", 0, "id")),
    Case("count", "a result is dropped", _drop("messages", 4)),
    Case(
        "role_behind",
        "the user speaks straight behind a result",
        lambda body: body["messages"].append(CHAT.body["messages"][5]),
    ),
    Case(
        "role_order", "the assistant has the last word", lambda body: body["messages"].append(_WORD)
    ),
]
DEEPSEEK_CASES = [
    Case("reasoning_missing", "reasoning is dropped", _drop("messages", 2, "reasoning_content")),
    Case(
        "reasoning_modified",
        "reasoning is rewritten",
        _set("One.", "messages", 2, "reasoning_content"),
    ),
]
COMPATIBLE_CASES = [
    Case(
        "signature",
        "a thought is signed anew",
        _set(
            "eA==", "messages", 2, "tool_calls", 0, "extra_content", "google", "thought_signature"
        ),
    ),
]
IDLESS_CASES = [
    Case("refuses_ids", "a call with an id", _set("call_1", "messages", 2, "tool_calls", 0, "id")),
    Case("count", "a result is dropped", _drop("messages", 4)),
    Case(
        "orphan_result",
        "a result too many",
        lambda body: body["messages"].insert(4, body["messages"][3]),
    ),
]

ALL: list[tuple[Talk, Case]] = [
    (talk, case)
    for talk, cases in (
        (ANTHROPIC, ANTHROPIC_CASES),
        (RESPONSES, RESPONSES_CASES),
        (STORED, STORED_CASES),
        (ADJACENT, ADJACENT_CASES),
        (CHAT, CHAT_CASES),
        (MISTRAL, MISTRAL_CASES),
        (DEEPSEEK, DEEPSEEK_CASES),
        (COMPATIBLE, COMPATIBLE_CASES),
        (IDLESS, IDLESS_CASES),
    )
    for case in cases
]
TALKS = list({id(talk): talk for talk, _ in ALL}.values())
