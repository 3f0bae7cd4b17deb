"""Judges: strict validators of request bodies, one for each wire, as the provider reads them.

    base.py       what every judge is;  refused.py  how it says no, in the provider's words
    anthropic/, responses/, chat/      one provider's rules each
    schemas.py    what providers refuse of the schemas of tools
    reading.py    looking into bodies that nobody has checked; responses put together from their streams

    provider = judge("anthropic")
    provider.request(body)               # raises Refused, or returns
    provider.response(reply, body)       # what was issued must come back as it was

They know nothing of the codecs, on purpose: what both get wrong together no test would find. Not here: the
server that answers with their verdicts (`testing/serve`), a model that is judged (`testing/judged.py`).
"""

from __future__ import annotations

from remit.errors import ConfigurationError
from remit.testing.protocol.anthropic import AnthropicJudge
from remit.testing.protocol.base import Judge
from remit.testing.protocol.chat import ChatJudge
from remit.testing.protocol.refused import Refused
from remit.testing.protocol.responses import ResponsesJudge

__all__ = [
    "AnthropicJudge",
    "ChatJudge",
    "Judge",
    "Refused",
    "ResponsesJudge",
    "dialect_of",
    "judge",
]


def judge(wire: str, *, dialect: str = "openai") -> Judge:
    """A new judge for a wire: `anthropic`, `openai` (Responses) or `openai-chat`.

    `dialect` names the server behind the last two, such as `mistral` or `deepseek`; one that is not known is
    judged by what all servers have in common.
    Errors: `ConfigurationError` for another wire.
    """
    match wire:
        case "anthropic":
            return AnthropicJudge()
        case "openai":
            return ResponsesJudge(dialect=dialect)
        case "openai-chat":
            return ChatJudge(dialect=dialect)
        case _:
            raise ConfigurationError(
                f"no judge for {wire!r}: there are anthropic, openai and openai-chat"
            )


def dialect_of(host: str) -> str:
    """The server that a host stands for; `compatible` for one that is not known."""
    known = {
        "api.openai.com": "openai",
        "openai.azure.com": "azure",
        "mistral.ai": "mistral",
        "deepseek.com": "deepseek",
    }
    return next((name for end, name in known.items() if host.endswith(end)), "compatible")
