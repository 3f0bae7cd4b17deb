"""The rules of Anthropic Messages, in its own words.

Where only the rule is known and not its words, the nearest wording of the API stands here.
"""

from __future__ import annotations

from typing import Final

from remit.testing.protocol.reading import names
from remit.testing.protocol.refused import Wordings

__all__ = ["MORE", "WORDINGS"]

MORE = "Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
"""Where the API sends its readers."""

_UNANSWERED = (
    "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
_UNCHANGED = (
    "messages.{at}.content.{n}: `thinking` or `redacted_thinking` blocks in the latest assistant message"
    " cannot be modified. These blocks must remain as they were in the original response."
)

WORDINGS: Final = Wordings(
    {
        # the request
        "version": "anthropic-version: header is required",
        "missing_field": "{where}: Field required",
        "unknown_field": "{where}: Extra inputs are not permitted",
        "type": "{where}: Input should be {wanted}",
        "sampling": "`{name}` is not supported with this API version.",
        "no_messages": "messages: at least one message is required",
        "max_tokens": "max_tokens: Input should be greater than or equal to {least}",
        "thinking_budget": "`max_tokens` must be greater than `thinking.budget_tokens`. {more}",
        "thinking_temperature": "`temperature` may only be set to 1 when thinking is enabled. {more}",
        "thinking_forced": "Thinking may not be enabled when tool_choice forces tool use.",
        # roles and places
        "role": 'messages: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter,'
        ' not "{role}" as an input message role.',
        "wrong_place": "messages.{at}: `{kind}` blocks can only be in `{role}` messages",
        "block_type": "messages.{at}.content.{n}: Input tag '{kind}' found using 'type' does not match any of"
        " the expected tags",
        "empty_message": "messages.{at}: all messages must have non-empty content except for the optional final"
        " assistant message",
        "blank": "messages: text content blocks must be non-empty",
        "whitespace": "messages: text content blocks must contain non-whitespace text",
        "trailing_space": "messages: final assistant content cannot end with trailing whitespace",
        "prefill": "This model does not support assistant message prefill. The conversation must end with a"
        " user message.",
        "media_type": "messages.{at}.content.{n}: Input should be 'image/jpeg', 'image/png', 'image/gif' or"
        " 'image/webp'",
        # calls and results
        "unanswered": _UNANSWERED,
        "result_place": _UNANSWERED,
        "orphan_result": "messages.{at}.content.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {id}."
        " Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
        "answered_twice": "messages.{at}.content.{n}: each tool_use must have a single result. Found multiple"
        " `tool_result` blocks with id: {id}",
        "id_twice": "messages.{at}.content.{n}: `tool_use` ids must be unique",
        "id": "messages.{at}.content.{n}.{kind}.{key}: String should match pattern '{pattern}'",
        "call_name": "messages.{at}.content.{n}.tool_use.name: String should match pattern '{pattern}'",
        "call_input": "messages.{at}.content.{n}.tool_use.input: Input should be a valid dictionary",
        "server_orphan": "messages.{at}.content.{n}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. Each"
        " `{kind}` block must have a corresponding `server_tool_use` block before it.",
        "server_unanswered": "messages.{at}: `{name}` tool use with id `{id}` was found without a corresponding"
        " `{kind}` block",
        # blocks that are the provider's
        "opaque_modified": _UNCHANGED,
        "opaque_moved": _UNCHANGED,
        "signature": "messages.{at}.content.{n}: Invalid `signature` in `thinking` block",
        "redacted": "messages.{at}.content.{n}: Invalid `data` in `redacted_thinking` block",
        "thinking_unbound": "messages.{at}.content.{n}: Invalid `signature` in `thinking` block: it does not"
        " follow the conversation that it was issued for",
        "thinking_missing": "messages.{at}.content.{n}.type: Expected `thinking` or `redacted_thinking`, but found"
        " `{kind}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block"
        " (preceeding the lastmost set of `tool_use` and `tool_result` blocks). {more}",
        "encrypted": "messages.{at}.content.{n}: Invalid `encrypted_content` in `search_result` block",
        "compaction": "messages.{at}.content.{n}: Invalid `compaction` block: it cannot be modified",
        # tools
        "tool_name": "tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        "tool_twice": "tools: Tool names must be unique.",
        "tool_schema": "tools.{at}.custom.input_schema.type: Input should be 'object'",
        "tool_root": "tools.{at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the"
        " top level",
        "tool_keys": "tools.{at}.custom.input_schema.properties: Property keys should match pattern"
        " '^[a-zA-Z0-9_.-]{{1,64}}$'",
        "tool_strict": "tools.{at}.custom: {why}",
        "tool_choice": "Tool '{name}' not found in provided tools",
        "tool_choice_alone": "tool_choice may only be specified while providing tools.",
        # cache
        "cache_count": "A maximum of 4 blocks with cache_control may be provided. Found {count}.",
        "cache_place": "{where}.cache_control: Extra inputs are not permitted",
        "cache_form": "{where}.cache_control.{part}: Input should be {wanted}",
        "cache_order": "{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'"
        " cache_control block. Note that blocks are processed in the following order: `tools`, `system`,"
        " `messages`.",
    },
    of_fields=names(
        "version missing_field unknown_field type sampling max_tokens block_type media_type id tool_strict"
    ),
)
