"""`remit config`: what is set, and where it comes from."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any

from remit.analysis.cells import visible
from remit.cli import exits
from remit.cli.documents import VERSION, harmless, write_document
from remit.cli.settings import Setting, here, read_settings
from remit.cli.streams import complain, own_stdout
from remit.errors import ConfigurationError

__all__ = ["check", "show"]


def show(*, origin: bool = False, json: bool = False) -> int:
    """Print every value that is set, as it stands in a file, nearest first.

    Args:
        origin: Say for each where it comes from.
        json: Print one JSON document; it always says where each value comes from.
    """
    with own_stdout() as streams:
        values = dict(read_settings(here(), os.environ).items())
        if json:
            settings = {name: _document(setting) for name, setting in values.items()}
            write_document({"v": VERSION, "settings": settings}, streams.answer)
            return exits.OK
        lines = {
            name: visible(f"{name} = {_shown(setting.value)}") for name, setting in values.items()
        }
        width = max(map(len, lines.values()), default=0)
        for name, line in lines.items():
            print(
                f"{line:<{width}}  # {visible(values[name].origin)}" if origin else line,
                file=streams.answer,
            )
    return exits.OK


def check() -> int:
    """Exit with 0 where every file and variable can be read, with 1 and the first fault elsewhere."""
    try:
        settings = read_settings(here(), os.environ)
    except ConfigurationError as error:
        complain(str(error))
        return exits.CHECK_FAILED
    sources = sorted({setting.origin for _, setting in settings.items()} - {"built in"})
    print(visible(f"all is well: {', '.join(sources) or 'nothing is set'}"))
    return exits.OK


def _document(setting: Setting) -> dict[str, Any]:
    value = setting.value
    return {
        "value": str(value) if isinstance(value, Decimal) else value,
        "origin": setting.origin,
    }


def _shown(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, str):
        import json

        return harmless(json.dumps(value, ensure_ascii=False))
    return str(value)
