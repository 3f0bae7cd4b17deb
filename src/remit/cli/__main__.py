"""The entry point: what needs no imports is answered before there are any."""

from __future__ import annotations

import os
import sys

from remit import __version__

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    match sys.argv[1:]:
        case ["--version"]:
            sys.exit(_say(f"remit {__version__}\n"))
        case ["completion", ("bash" | "zsh" | "fish") as shell]:
            from remit.cli.scripts import script

            sys.exit(_say(script(shell)))
        case ["completion", "--ids", kind, *rest] if len(rest) <= 2:
            from remit.cli.ids import offered

            sys.exit(_say("".join(f"{line}\n" for line in offered(kind, *rest))))
        case arguments:
            try:
                from remit.cli.app import main as run
                from remit.cli.streams import retire_stdout

                code = run(arguments)
                retire_stdout()
                sys.exit(code)
            except KeyboardInterrupt:
                sys.exit(130)  # `exits.INTERRUPTED`: it came before there was anything to interrupt


def _say(text: str) -> int:
    """Write to stdout; that nobody reads it is no error. Returns the exit code."""
    try:
        if sys.stdout is not None:  # a process may have none
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the exit would try again, and complain
        if not isinstance(error, BrokenPipeError):
            print(f"remit: {error.strerror}", file=sys.stderr)
            return 74  # `exits.UNWRITTEN`, without the import
    return 0


if __name__ == "__main__":
    main()
