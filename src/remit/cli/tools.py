"""`remit tools`: what a model would see, and what it costs before a word is said."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from remit.analysis.cells import visible
from remit.canonical import encode
from remit.cli import exits
from remit.cli.assemble import model_of, named_remit
from remit.cli.documents import VERSION, write_document
from remit.cli.settings import Setting, Settings, here, read_settings
from remit.cli.streams import own_stdout
from remit.cli.targets import AnyRemit, AnyTool, tools_of, tools_or_remit_of
from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.models.base import Model
from remit.models.names import named
from remit.models.scripted import ScriptedModel
from remit.occupancy import fixed_tokens
from remit.remit import Remit

__all__ = ["table", "tools"]

_NOBODY: Final = ScriptedModel([])
"""Stands where no model is named. Nothing is asked of it, and nothing spent."""


def tools(
    target: str | None = None,
    /,
    *,
    tools: Annotated[tuple[str, ...], Parameter(metavar="TARGET")] = (),
    model: Annotated[str | None, Parameter(metavar="NAME")] = None,
    json: bool = False,
) -> int:
    """Show what the model would see: each tool with its effect, its tokens, its words and its schema.

    Tokens are estimated, at four characters each. Tools that remit adds are shown too.

    Args:
        target: A remit, a profile or tools: FILE.py[:NAME], MODULE[:NAME] or a name of remit.toml.
        tools: More tools, as for remit run. Repeat it for more.
        model: The model that would see them, as PREFIX:NAME.
        json: Print one JSON document.
    """
    with own_stdout() as streams:
        directory = here()
        settings = read_settings(directory, os.environ)
        chosen = Setting(model, "--model") if model else settings.run.get("model")
        remit = _remit(
            target, tools, None if chosen is None else model_of(chosen), settings, directory
        )
        if json:
            write_document(_document(remit), streams.answer)
            return exits.OK
        for line in table(remit):
            print(visible(line), file=streams.answer)
    return exits.OK


def table(remit: AnyRemit) -> Iterator[str]:
    """The tools of a remit, for people."""
    offered = remit.offered
    for tool in offered:
        yield f"{_tokens(tool):>6,} tokens  {tool.effect.value:<10}  {tool.name}"
        for line in tool.description.splitlines():
            yield f"    {line}"
        yield f"    {encode(tool.parameters).decode()}"
        yield ""
    yield f"{_total(offered):>6,} tokens in all, estimated{_share(remit)}"


def _share(remit: AnyRemit) -> str:
    """What part of its window they take, where the model is known."""
    model = named(remit.model)
    if model is _NOBODY:
        return ""
    window = model.profile.context_window
    part = 100 * _total(remit.offered) / window
    return f": {part:.2g} % of the {window:,} that {model.name} reads at once"


def _remit(
    target: str | None,
    more: tuple[str, ...],
    model: Model | None,
    settings: Settings,
    directory: Path,
) -> AnyRemit:
    """The remit whose tools are shown."""
    if target is None and not more:
        raise ConfigurationError("name what holds the tools: remit tools FILE.py")
    found: list[AnyTool] = []
    if target is not None:
        what = (
            named_remit(target, settings, directory)[0]
            if target in settings.profiles
            else tools_or_remit_of(target, directory)
        )
        if isinstance(what, Remit):
            if more:
                raise ConfigurationError(f"--tools and {target}: a remit brings its own tools")
            return what if model is None else what.replace(model=model)
        found += what
    for each in more:
        found += [tool for tool in tools_of(each, directory) if tool not in found]
    return Remit(
        name="tools",
        model=_NOBODY if model is None else model,
        tools=found,
        limits=Limits(steps=1, tokens=1, seconds=1),
    )


def _document(remit: AnyRemit) -> dict[str, Any]:
    return {
        "v": VERSION,
        "tools": [
            {
                "name": tool.name,
                "effect": tool.effect.value,
                "tokens": _tokens(tool),
                "description": tool.description,
                "parameters": tool.parameters,
            }
            for tool in remit.offered
        ],
        "tokens": _total(remit.offered),
    }


def _tokens(tool: AnyTool) -> int:
    return fixed_tokens("", [tool.spec])


def _total(offered: Iterable[AnyTool]) -> int:
    return fixed_tokens("", [tool.spec for tool in offered])
