"""Write the completion scripts of the command line anew, from its own description of itself.

    python scripts/completions.py

`tests/test_cli_completion.py` fails where one is out of date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from remit.cli.app import APP
from remit.cli.scripts import NAMES

__all__ = ["generated", "main"]

SCRIPTS = Path(__file__).resolve().parent.parent / "src" / "remit" / "cli" / "scripts"

ZSH_END = """
if [ "$funcstack[1]" = "_remit" ]; then
  _remit "$@"
else
  compdef _remit remit
fi
"""
"""Loaded by name from fpath it completes at once; sourced it registers itself."""


def generated(shell: Literal["bash", "zsh", "fish"]) -> str:
    """The script of a shell, as the command line is now."""
    script = APP.generate_completion(prog_name="remit", shell=shell).rstrip("\n") + "\n"
    if shell == "bash":
        # Where nothing of ours fits, such as behind --tools, files do.
        script = script.replace(
            "complete -F _remit remit", "complete -o bashdefault -o default -F _remit remit"
        )
    if shell == "zsh":
        script = script.replace("_cyclopts_remit", "_remit") + ZSH_END
    return script


def main() -> None:
    """Write all of them."""
    for shell in ("bash", "zsh", "fish"):
        (SCRIPTS / NAMES[shell]).write_text(generated(shell), "utf-8")


if __name__ == "__main__":
    main()
