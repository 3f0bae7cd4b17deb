"""Acting on runs that are kept, for commands that need none of their code: to decide, to cancel, to say something."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import Final

from remit.cli.settings import here, read_settings
from remit.cli.stores import place_of, store_to_read
from remit.cli.targets import AnyRemit
from remit.limits import Limits
from remit.models.scripted import ScriptedModel
from remit.remit import Remit
from remit.store.base import Journal
from remit.store.sqlite import SqliteStore

__all__ = ["opened", "stand_in"]

_NOTHING: Final = Limits(steps=1, tokens=1, seconds=1)


@contextlib.contextmanager
def opened(flag: str | None) -> Generator[SqliteStore]:
    """The store that a command works on, closed in the end. Errors: `NotFound`, `ConfigurationError`."""
    store = store_to_read(place_of(flag, read_settings(here(), os.environ)))
    try:
        yield store
    finally:
        store.close()


def stand_in(name: str, store: Journal) -> AnyRemit:
    """A remit that ends runs and takes in what is said to them, in the place of one whose code is not needed for that.

    It asks no model and has no tool.
    """
    return Remit(name=name, model=ScriptedModel(()), limits=_NOTHING, store=store)
