"""The rules of Chat Completions, in the words of OpenAI and of the servers that have their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remit.testing.protocol.reading import names
from remit.testing.protocol.refused import Wordings

__all__ = ["WORDINGS"]

_LONG = (
    "Expected a string with maximum length {most}, but got a string with length {length} instead."
)

_SAYS: Final[Mapping[str, str]] = {
    # the request
    "missing_field": "Missing required parameter: '{where}'.",
    "unknown_field": "Unrecognized request argument supplied: {name}",
    "unknown_part": "Unknown parameter: '{where}'.",
    "type": "Invalid type for '{where}': expected {wanted}, but got {given} instead.",
    "no_messages": "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array"
    " instead.",
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
    " instead.",
    "max_tokens_twice": "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
    "sampling": "Unsupported parameter: '{name}' is not supported with this model.",
    # roles and content
    "role": "Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and"
    " 'developer'.",
    "blank": "Invalid value for 'content': expected a string, got null.",
    "part": "Invalid 'messages[{at}]'. Content blocks are expected to be either text or image_url type.",
    "tool_image": "Invalid 'messages[{at}]'. Image URLs are only allowed for messages with role 'user', but this"
    " message with role '{role}' contains an image URL.",
    # calls and results
    "empty_calls": "Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array"
    " instead.",
    "unanswered": "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: {ids}",
    "orphan_result": "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'.",
    "other_result": "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
    "answered_twice": "Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in messages[{before}] and"
    " messages[{at}].",
    "id_twice": "Invalid parameter: Duplicate value for 'id' of '{id}' in 'tool_calls' of messages[{at}].",
    "id": f"Invalid '{{where}}': string too long. {_LONG}",
    "call_name": "Invalid '{where}': string does not match pattern. Expected a string that matches the pattern"
    " '^[a-zA-Z0-9_-]+$'.",
    # what a server issued
    "reasoning_missing": "Missing `reasoning_content` field in the assistant message at message index {at}. For more"
    " information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls",
    "reasoning_modified": "The `reasoning_content` in the assistant message at message index {at} must be passed back"
    " as it was.",
    "signature": "Corrupted thought signature.",
    # tools
    "tool_name": "Invalid '{where}': string does not match pattern. Expected a string that matches the pattern"
    " '^[a-zA-Z0-9_-]+$'.",
    "tool_name_long": f"Invalid '{{where}}': string too long. {_LONG}",
    "tool_twice": "Duplicate function name '{name}' in 'tools'.",
    "tool_schema": "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got"
    " 'type: {given}'.",
    "tool_strict": "Invalid schema for function '{name}': {why}",
    "tool_choice": "Tool choice '{name}' not found in 'tools' parameter.",
    "tool_choice_alone": "'tool_choice' is only allowed when 'tools' are specified.",
    "parallel_alone": "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools'"
    " are specified.",
    "output_strict": "Invalid schema for response_format '{name}': {why}",
    # servers
    "nine": "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.",
    "count": "Not the same number of function calls and responses",
    "role_order": "Expected last role User or Tool (or Assistant with prefix True) for serving but got {role}",
    "role_behind": "Unexpected role '{role}' after role '{before}'",
    "refuses_ids": "Unknown name \"{key}\" at 'messages[{at}]': Cannot find field.",
}

_OF_FIELDS = names(
    "missing_field unknown_field unknown_part type max_tokens sampling role tool_strict output_strict tool_name"
    " tool_name_long id"
)

WORDINGS: Final = Wordings(_SAYS, of_fields=_OF_FIELDS)
