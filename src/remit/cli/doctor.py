"""`remit doctor`: whether what is needed is there, and what to do where it is not."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Annotated, TextIO

import msgspec
from cyclopts import Parameter

from remit.analysis.cells import one_line
from remit.cli import exits
from remit.cli.assemble import flagged
from remit.cli.checkup import Finding, environment, examined, keys
from remit.cli.documents import VERSION, write_document
from remit.cli.options import Limit, Who
from remit.cli.settings import Settings, here, read_settings
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.streams import own_stdout
from remit.errors import ConfigurationError

__all__ = ["doctor"]


def doctor(
    *,
    model: Annotated[tuple[str, ...], Parameter(metavar="NAME")] = (),
    base_url: Annotated[str | None, Parameter(metavar="URL")] = None,
    offline: bool = False,
    json: bool = False,
) -> int:
    """Check what is needed: Python, settings, keys, and whether a model is there, answers and takes tools.

    A model that can be reached is asked once, for 16 tokens: that is billed, with a fraction of a cent. A line
    for each check, with what to do behind it; exits with 1 where one failed.

    Args:
        model: The model to look at, as PREFIX:NAME; that of [run] in remit.toml where none is given. Repeat it for more.
        base_url: Where it is reached, if not where its prefix says.
        offline: Send nothing.
        json: Print one JSON document.
    """
    with own_stdout() as streams:

        async def look(_: Interrupts) -> int:
            found: list[Finding] = []
            async for finding in _findings(model, base_url, offline=offline):
                found.append(finding)
                if not json:
                    _print(finding, streams.answer)
            well = all(finding.level != "fail" for finding in found)
            if json:
                checks = [msgspec.to_builtins(finding) for finding in found]
                write_document({"v": VERSION, "ok": well, "checks": checks}, streams.answer)
            return exits.OK if well else exits.CHECK_FAILED

        return run_until_done(look)


async def _findings(
    names: tuple[str, ...], base_url: str | None, *, offline: bool
) -> AsyncIterator[Finding]:
    try:
        settings = read_settings(here(), os.environ)
    except ConfigurationError as error:
        fix = "remit config check"
        yield Finding(level="fail", about="config", check="files", text=str(error), fix=fix)
        settings = Settings()
    for finding in environment(settings):
        yield finding
    if not names and "model" not in settings.run:
        for finding in (*keys(), _NOTHING_NAMED):
            yield finding
        return
    for name in names or (None,):
        flags = flagged(Who(model=name, base_url=base_url), Limit())
        run = {**settings.run, **flags}
        async for finding in examined(run["model"].value, run, settings, offline=offline):
            yield finding


_NOTHING_NAMED = Finding(
    level="warn",
    about="model",
    check="name",
    text="none is named, so none was looked for",
    fix="remit doctor --model PREFIX:NAME",
)


def _print(finding: Finding, stream: TextIO) -> None:
    about = finding.about if finding.check in _SAYS_ALL else f"{finding.about} {finding.check}"
    text = one_line(f"{about}: {finding.text}")
    print(f"{finding.level:<4}  {text}", file=stream, flush=True)
    if finding.fix is not None:
        print(f"      {one_line(finding.fix)}", file=stream, flush=True)


_SAYS_ALL = frozenset({"version", "files"})
"""Checks whose subject says what they are about."""
