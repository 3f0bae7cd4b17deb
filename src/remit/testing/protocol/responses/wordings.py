"""The rules of Responses, in the provider's own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remit.testing.protocol.reading import names
from remit.testing.protocol.refused import Wordings

__all__ = ["DEEPSEEK", "WORDINGS"]

_LONG = (
    "Expected a string with maximum length {most}, but got a string with length {length} instead."
)

_SAYS: Final[Mapping[str, str]] = {
    # the request
    "missing_field": "Missing required parameter: '{where}'.",
    "unknown_field": "Unknown parameter: '{where}'.",
    "type": "Invalid type for '{where}': expected {wanted}, but got {given} instead.",
    "no_messages": "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
    "value": "Invalid value: '{given}'. Supported values are: {wanted}.",
    "sampling": "Unsupported parameter: '{name}' is not supported with this model.",
    # pairs
    "unanswered": "No tool output found for {kind} call {id}.",
    "orphan_result": "No tool call found for {kind} call output with call_id {id}.",
    "id_twice": "Duplicate item found with id {id}. Remove duplicate items from your input and try again.",
    "empty_id": "Invalid '{where}': empty string. Expected a string with minimum length 1, but got an empty string"
    " instead.",
    "id": f"Invalid '{{where}}': string too long. {_LONG}",
    "item_id": "Invalid '{where}': '{id}'. Expected an ID that begins with '{prefix}'.",
    # reasoning, and what the server keeps
    "follower": "Item '{id}' of type 'reasoning' was provided without its required following item.",
    "required_reasoning": "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{of}'.",
    "encrypted": "The encrypted content {short} could not be verified. Reason: Encrypted content could not be"
    " decrypted or parsed.",
    "not_persisted": "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again"
    " with `store` set to true, or remove this item from your input.",
    "previous": "Previous response with id '{id}' not found.",
    # content
    "file": "Invalid file data: '{where}'. Expected a base64-encoded data URL with a valid file MIME type (e.g."
    " 'data:text/plain;base64,SGVsbG8sIFdvcmxkIQ=='), but got unsupported MIME type '{given}'. Please see"
    " https://platform.openai.com/docs/assistants/tools/file-search#supported-files for supported file types.",
    # tools
    "tool_name": "Invalid '{where}': string does not match pattern. Expected a string that matches the pattern"
    " '^[a-zA-Z0-9_-]+$'.",
    "tool_name_long": f"Invalid '{{where}}': string too long. {_LONG}",
    "tool_twice": "Duplicate tool name '{name}' found in tools.",
    "tool_schema": "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got"
    " 'type: {given}'.",
    "tool_strict": "Invalid schema for function '{name}': {why}",
    "tool_choice": "Tool choice '{name}' not found in 'tools' parameter.",
    "output_strict": "Invalid schema for response_format '{name}': {why}",
}

_OF_FIELDS = names(
    "missing_field unknown_field type value sampling empty_id id item_id tool_name tool_name_long tool_strict"
    " output_strict"
)

WORDINGS: Final = Wordings(_SAYS, of_fields=_OF_FIELDS)
DEEPSEEK: Final = Wordings(
    {**_SAYS, "unanswered": "No tool output found for tool call {id}."}, of_fields=_OF_FIELDS
)
