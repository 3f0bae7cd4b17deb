"""A reply as the provider would write it. For servers of tests, and for round trips."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from remit.messages import Message, StopReason, Usage
from remit.models.wires.responses.endings import INCOMPLETE
from remit.models.wires.responses.items import decoded, encoded
from remit.models.wires.responses.settings import TOOLS
from remit.models.wires.responses.turns import Turn, Way
from remit.models.wires.toolbox import Toolbox

__all__ = ["response_json"]

_REASONS: Final = {stop.value: reason for reason, stop in INCOMPLETE.items()}
_COMPLETE: Final = frozenset(
    {StopReason.END_TURN.value, StopReason.TOOL_USE.value, StopReason.STOP_SEQUENCE.value}
)


def response_json(
    issuer: str, message: Message, *, stop_reason: str, usage: Usage
) -> Mapping[str, Any]:
    """The response object. Another stop reason than remit's stands as the reason why it is incomplete."""
    # Every item of a reply has an id, and the reply too; here they follow from what is said.
    digest = hashlib.sha256(encoded((message, stop_reason, usage))).hexdigest()
    turn = Turn(Way(issuer, "all"), Toolbox((), TOOLS), 0, message, issued=digest)
    items = [decoded(item) for item in turn.items()]
    refuses = stop_reason == StopReason.REFUSAL
    whole = stop_reason in _COMPLETE or refuses
    for item in items:
        if item.get("type") == "message":
            item.setdefault("status", "completed" if whole else "incomplete")
            for part in item["content"] if refuses else ():
                if part.get("type") == "output_text":
                    text = part["text"]
                    part.clear()
                    part.update(type="refusal", refusal=text)
        elif "call_id" in item:
            item.setdefault("status", "completed")
    reason = None if whole else _REASONS.get(stop_reason, stop_reason)
    return {
        "id": f"resp_{digest[:48]}",
        "object": "response",
        "status": "completed" if whole else "incomplete",
        "error": None,
        "incomplete_details": None if whole else {"reason": reason},
        "output": items,
        "usage": {
            "input_tokens": usage.prompt,
            "input_tokens_details": {
                "cached_tokens": usage.cache_read,
                "cache_write_tokens": usage.cache_write,
            },
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.prompt + usage.output,
        },
    }
