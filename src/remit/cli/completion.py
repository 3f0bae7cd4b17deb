"""`remit completion`: the script with which a shell completes commands, flags and choices.

Printing one is answered before this module is loaded (`__main__.py`); here it is put where its shell looks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from remit.cli import exits
from remit.cli.scripts import NAMES, script
from remit.cli.settings import home_of
from remit.cli.streams import complain
from remit.errors import ConfigurationError

__all__ = ["completion"]


def completion(shell: Literal["bash", "zsh", "fish"], /, *, install: bool = False) -> int:
    """Print the completion script of a shell.

    Args:
        shell: The shell that it is for.
        install: Write it to the place where that shell looks for it.
    """
    if not install:
        print(script(shell), end="")
        return exits.OK
    path = _place(shell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(shell), "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    print(path)
    if shell == "zsh":
        complain(
            f"zsh looks there if ~/.zshrc says so before compinit: fpath=({path.parent} $fpath)"
        )
    return exits.OK


def _place(shell: str) -> Path:
    """Where a shell finds completions of its user, by the conventions of each."""
    environ = os.environ
    home = home_of(environ)
    if home is None:
        raise ConfigurationError(
            "there is no home to install it in: print it, and keep it where your shell looks"
        )
    if shell == "bash":
        data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
        own = environ.get("BASH_COMPLETION_USER_DIR")
        return (Path(own) if own else data / "bash-completion") / "completions" / "remit"
    if shell == "fish":
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        return config / "fish" / "completions" / NAMES[shell]
    return Path(environ.get("ZDOTDIR") or home) / ".zfunc" / NAMES[shell]
