"""The entry point: what needs no imports is answered before there are any."""

from __future__ import annotations

import sys

from remit import __version__

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    match sys.argv[1:]:
        case ["--version"]:
            print(f"remit {__version__}")
        case ["completion", ("bash" | "zsh" | "fish") as shell]:
            from remit.cli.scripts import script

            print(script(shell), end="")
        case arguments:
            from remit.cli.app import main as run

            sys.exit(run(arguments))


if __name__ == "__main__":
    main()
