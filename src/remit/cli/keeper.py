"""Acting on runs that are kept, for commands that need none of their code: to decide, to cancel, to say something."""

from __future__ import annotations

from typing import Final

from remit.cli.targets import AnyRemit
from remit.limits import Limits
from remit.models.scripted import ScriptedModel
from remit.remit import Remit
from remit.store.base import Journal

__all__ = ["stand_in"]

_NOTHING: Final = Limits(steps=1, tokens=1, seconds=1)


def stand_in(name: str, store: Journal) -> AnyRemit:
    """A remit that ends runs and takes in what is said to them, in the place of one whose code is not needed for that.

    It asks no model and has no tool.
    """
    return Remit(name=name, model=ScriptedModel(()), limits=_NOTHING, store=store)
