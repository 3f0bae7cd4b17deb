"""What servers that speak Chat Completions demand beyond the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

__all__ = ["SERVERS", "Server"]


class Server(msgspec.Struct, frozen=True):
    """What a server that speaks Chat Completions demands beyond the rest."""

    strict: bool = False
    """Fields it does not know are refused."""
    longest_id: int | None = None
    """Characters of the id of a call; None: any."""
    nine: bool = False
    """Ids have nine letters or digits."""
    refuses_ids: bool = False
    """An id on a call is refused; results are matched by their order."""
    reasoning_back: bool = False
    """`reasoning_content` of the current turn must come back beside its calls."""
    role_before_user: bool = False
    """A user message may not stand straight behind a tool message."""


SERVERS: Final[Mapping[str, Server]] = {
    "openai": Server(strict=True, longest_id=40),
    "azure": Server(strict=True, longest_id=40),
    "mistral": Server(nine=True, role_before_user=True),
    "deepseek": Server(reasoning_back=True),
    "idless": Server(refuses_ids=True),
}
"""The servers that demand more than the rest; any other name demands nothing more."""
