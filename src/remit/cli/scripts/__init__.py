"""Completion scripts, one a shell: made once from the app (`scripts/completions.py`), read without it."""

from __future__ import annotations

import os

__all__ = ["NAMES", "script"]

NAMES = {"bash": "remit.bash", "zsh": "_remit", "fish": "remit.fish"}
"""Their files here; `_remit` is the name under which zsh finds it."""


def script(shell: str) -> str:
    """The script of that shell."""
    with open(os.path.join(os.path.dirname(__file__), NAMES[shell]), encoding="utf-8") as file:  # noqa: PTH118, PTH120, PTH123 - a completion waits for this: `pathlib` takes as long as all the rest
        return file.read()
