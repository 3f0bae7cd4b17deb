"""`remit tools`: what a model would see, and what it costs before a word is said."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from cyclopts import Parameter

from remit.analysis.cells import visible
from remit.canonical import encode
from remit.cli import exits
from remit.cli.assemble import flagged, model_of, named_remit
from remit.cli.documents import VERSION, write_document
from remit.cli.options import Limit, Who
from remit.cli.settings import Settings, here, read_settings
from remit.cli.streams import own_stdout
from remit.cli.targets import AnyRemit, AnyTool, tools_of, tools_or_remit_of
from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.models.base import Model, ToolSpec
from remit.models.endpoint import Endpoint
from remit.models.names import named
from remit.models.scripted import ScriptedModel
from remit.models.wrapped import WrappedModel
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
    base_url: Annotated[str | None, Parameter(metavar="URL")] = None,
    json: bool = False,
) -> int:
    """Show what the model would see: each tool with its effect, its tokens, its words and its schema.

    Tokens are estimated, at four characters each. Tools that remit adds are shown too. With a model of a provider
    names and schemas are those that go out to it, and what it cannot take is shown with the reason.

    Args:
        target: A remit, a profile or tools: FILE.py[:NAME], MODULE[:NAME] or a name of remit.toml.
        tools: More tools, as for remit run. Repeat it for more.
        model: The model that would see them, as PREFIX:NAME. Nothing is sent to it.
        base_url: Where that model is reached, if not where its prefix says.
        json: Print one JSON document.
    """
    with own_stdout() as streams:
        directory = here()
        settings = read_settings(directory, os.environ)
        run = {**settings.run, **flagged(Who(model=model, base_url=base_url), Limit())}
        chosen = model_of(run, settings.prices) if "model" in run else None
        remit = _remit(target, tools, chosen, settings, directory)
        if json:
            write_document(_document(remit), streams.answer)
            return exits.OK
        for line in table(remit):
            print(visible(line), file=streams.answer)
    return exits.OK


def table(remit: AnyRemit) -> Iterator[str]:
    """The tools of a remit, for people."""
    seen = list(_seen(remit))
    for tool, spec, why in seen:
        name = tool.name if spec.name == tool.name else f"{tool.name} as {spec.name}"
        tokens = f"{_tokens(spec):>6,} tokens" if why is None else "  not offered"
        yield f"{tokens}  {tool.effect.value:<10}  {name}"
        if why is not None:
            yield f"    {why}"
        for line in spec.description.splitlines():
            yield f"    {line}"
        yield f"    {encode(spec.parameters).decode()}"
        yield ""
    yield f"{_total(seen):>6,} tokens in all, estimated{_share(remit, _total(seen))}"


class _Seen(NamedTuple):
    """A tool, and what a model is shown of it."""

    tool: AnyTool
    spec: ToolSpec
    why: str | None
    """Why it is not offered to this model; None where it is."""


def _seen(remit: AnyRemit) -> Iterator[_Seen]:
    """Every tool as the model is shown it: with the names and schemas that go out where it is a provider's."""
    model = named(remit.model)
    while isinstance(model, WrappedModel):
        model = model.beneath
    specs = tuple([tool.spec for tool in remit.offered])
    written, set_aside = (
        model.written_tools(specs) if isinstance(model, Endpoint) else (specs, dict[str, str]())
    )
    going = iter(written)
    for tool in remit.offered:
        why = set_aside.get(tool.name)
        yield _Seen(tool, tool.spec if why is not None else next(going, tool.spec), why)


def _share(remit: AnyRemit, tokens: int) -> str:
    """What part of its window they take, where the model is known."""
    model = named(remit.model)
    if model is _NOBODY:
        return ""
    window = model.profile.context_window
    part = 100 * tokens / window
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
    seen = list(_seen(remit))
    return {
        "v": VERSION,
        "tools": [
            {
                "name": tool.name,
                "shown_as": spec.name,
                "effect": tool.effect.value,
                "tokens": _tokens(spec),
                "description": spec.description,
                "parameters": spec.parameters,
                "set_aside": why,
            }
            for tool, spec, why in seen
        ],
        "tokens": _total(seen),
    }


def _tokens(spec: ToolSpec) -> int:
    return fixed_tokens("", [spec])


def _total(seen: Iterable[_Seen]) -> int:
    return fixed_tokens("", [spec for _, spec, why in seen if why is None])
