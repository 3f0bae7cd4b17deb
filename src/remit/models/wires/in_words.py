"""A typed answer, asked for in words: where a wire or a server cannot hold a text to the schema, the model is told it.

The loop checks the answer in any case. Pure, and the same text for the same schema: it stands in the prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.canonical import json_text

__all__ = ["with_schema"]


def with_schema(instructions: str, schema: Mapping[str, Any]) -> str:
    """The instructions, and behind them what the final answer has to be."""
    asked = (
        "Your final answer is JSON alone, with nothing around it, that fits this JSON Schema: "
        f"{json_text(schema)}"
    )
    return f"{instructions}\n\n{asked}" if instructions.strip() else asked
