"""The entry point: what needs no imports is answered before there are any."""

from __future__ import annotations

import sys

from remit import __version__

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name."""
    if sys.argv[1:] == ["--version"]:
        print(f"remit {__version__}")  # noqa: T201 - a command line talks by printing


if __name__ == "__main__":
    main()
