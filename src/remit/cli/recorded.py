"""What a run was started with, recorded with it as a tag, so that another command can go on with it.

Names of files are absolute in it. It says what to load, never a key; what the run may use, its prompt and its
instructions stand in its own rows. Flags of the command that goes on are stronger than what was recorded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace as replaced

from remit.canonical import encode
from remit.cli.assemble import remit_for
from remit.cli.options import Limit, Who
from remit.cli.own_key import is_sealed, sealed
from remit.cli.settings import read_settings
from remit.cli.tags import tagged
from remit.cli.targets import AnyRemit, absolute
from remit.errors import ConfigurationError

__all__ = ["TARGET_TAG", "Target", "rebuilt", "tags_of", "target_of"]

TARGET_TAG: Final = "remit.target"
_OURS: Final = "remit."
"""Tags that begin so are ours."""
_SCRIPTED: Final = "scripted:"


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes a remit, as it was named on a command line."""

    at: str
    """The directory it was named in: settings are found from there."""
    remit: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None
    base_url: str | None = None
    output: str | None = None
    seal: str = ""
    """Of the user who wrote it down, over everything above."""

    @property
    def words(self) -> str:
        """Everything but the seal."""
        return encode(msgspec.to_builtins(replaced(self, seal=""))).decode()

    def __str__(self) -> str:
        named = [self.remit] if self.remit is not None else [*self.tools]
        named += [self.model] if self.model is not None else []
        return ", ".join(named) or self.at


def tags_of(
    given: tuple[str, ...], who: Who, directory: Path, output: Path | None
) -> dict[str, str]:
    """The tags of a run: those of `--tag NAME=VALUE`, and ours. Errors: `ConfigurationError`."""
    tags = tagged(given)
    ours = next((name for name in tags if name.startswith(_OURS)), None)
    if ours is not None:
        raise ConfigurationError(f"--tag {ours}: names that begin with {_OURS} are remit's own")
    target = _target(who, directory, output)
    target = replaced(target, seal=sealed(target.words))
    return {**tags, TARGET_TAG: encode(msgspec.to_builtins(target)).decode()}


def target_of(tags: Mapping[str, str]) -> Target | None:
    """What was recorded with a run; None where it was started by code, or by another version."""
    try:
        target = msgspec.json.decode(tags[TARGET_TAG], type=Target)
    except (KeyError, msgspec.DecodeError, UnicodeError):
        return None
    return target if Path(target.at).is_absolute() else None


def rebuilt(
    run_id: str, tags: Mapping[str, str], who: Who, directory: Path, *, named_by: str | None
) -> AnyRemit:
    """The remit of a run: as it was recorded, and as the flags say instead.

    `named_by` is the file of a project that says which store this is; None where the user chose it. Such a file may have
    come with a store of its own, and that starts no program: what counts then is what this user recorded.
    Errors: `ConfigurationError` where neither names one, or what they name cannot be loaded.
    """
    target = target_of(tags)
    if who.remit is not None or target is None:
        if who.remit is None and not who.tools and who.model is None:
            raise ConfigurationError(
                f"run {run_id} was started by code of yours, so that nothing here says what its tools are: name its "
                "remit with --remit FILE.py:NAME"
            )
        return _remit_for(who, directory, None)
    if named_by is not None and not is_sealed(target.words, target.seal):
        raise ConfigurationError(
            f"run {run_id} says that it is to be loaded from {target}, and it was not you who wrote that down: the store "
            f"is the one of {named_by}. Look at it, and say what to load with --remit, or name the store yourself "
            "with --store"
        )
    model = who.model or target.model
    asked = replace(
        who,
        remit=None if who.tools else target.remit,
        tools=tuple(absolute(each, directory) for each in who.tools) or target.tools,
        model=model,
        base_url=who.base_url or (target.base_url if model == target.model else None),
    )
    return _remit_for(
        asked, Path(target.at), None if target.output is None else Path(target.output)
    )


def _remit_for(who: Who, directory: Path, output: Path | None) -> AnyRemit:
    return remit_for(who, Limit(), read_settings(directory, os.environ), directory, output=output)


def _target(who: Who, directory: Path, output: Path | None) -> Target:
    model = who.model
    if model is not None and model.startswith(_SCRIPTED):
        model = f"{_SCRIPTED}{directory / model.removeprefix(_SCRIPTED)}"
    return Target(
        at=str(directory.absolute()),
        remit=None if who.remit is None else absolute(who.remit, directory),
        tools=tuple(absolute(each, directory) for each in who.tools),
        model=model,
        base_url=who.base_url,
        output=None if output is None else str((directory / output).absolute()),
    )
