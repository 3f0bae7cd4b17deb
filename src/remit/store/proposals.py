"""What is asked of people, over all runs of a store: for whoever keeps a list of it, or names one by its beginning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from remit.pending import PendingKind

__all__ = ["OpenProposal", "Proposals"]


class OpenProposal(msgspec.Struct, frozen=True):
    """Something that is waited for; what exactly stands in the rows of its run."""

    pending_id: str
    run_id: str
    kind: PendingKind
    arguments_hash: str
    """Hex SHA-256 of the canonical arguments that are to be shown."""
    expires_at: datetime


class Proposals(Protocol):
    """A store that can be asked what is open."""

    async def open_proposals(self, *, prefix: str = "", count: int) -> Sequence[OpenProposal]:
        """The first `count` of those that nobody has decided, supplied or withdrawn, by id.

        `prefix` is what the id begins with. One whose time is over is among them until its run goes on; those of
        a run that has ended are not.
        """
        ...
