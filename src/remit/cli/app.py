"""The command line as an application: its commands, and what becomes of an error.

A command is a typed function in a module of its own, registered by the path of its import, so that none loads
what only another needs. Errors of the user are one clear line on stderr; a traceback is a bug of remit.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from shlex import quote
from typing import Final, NamedTuple

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from remit import __version__
from remit.cli import exits
from remit.cli.help import Pages
from remit.cli.options import STDIN
from remit.cli.streams import complain, flush_stdout, tolerant
from remit.errors import DecisionError, RemitError, RunBusy, SessionBusy

__all__ = ["APP", "main"]


class _Command(NamedTuple):
    """A command: what is typed, where its function lives, and what the help says of it."""

    path: str
    home: str
    usage: str
    help: str
    epilogue: str = ""


_ALIASES: Final = {"inbox": "approvals", "logs": "tail", "ls": "runs"}
"""What people will type from habit; no help lists it."""

_COMMANDS: Final = (
    _Command(
        "run", "remit.cli.run:run", "[PROMPT] [FLAGS]", "Run a prompt to its end.", exits.TABLE
    ),
    _Command(
        "chat",
        "remit.cli.chat:chat",
        "[FLAGS]",
        "Talk: several prompts, one conversation.",
        exits.TABLE,
    ),
    _Command(
        "runs", "remit.cli.runs:runs", "[FLAGS]", "List runs: what each does, waits for or used."
    ),
    _Command(
        "show",
        "remit.cli.show:show",
        "RUN [FLAGS]",
        "Show a run: its words, calls, budget, and why it ended.",
    ),
    _Command(
        "tail",
        "remit.cli.tail:tail",
        "RUN|--all [FLAGS]",
        "Follow a run, whichever process executes it.",
    ),
    _Command(
        "artifact",
        "remit.cli.artifact:artifact",
        "HANDLE [FLAGS]",
        "Print a full output that a run keeps.",
    ),
    _Command(
        "resume",
        "remit.cli.resume:resume",
        "RUN [FLAGS]",
        "Go on with a run that waits, was cut off, or met a limit.",
        exits.TABLE,
    ),
    _Command(
        "approvals",
        "remit.cli.approvals:approvals",
        "[FLAGS]",
        "List what runs wait for: decisions, answers, results.",
    ),
    _Command(
        "approve",
        "remit.cli.decide:approve",
        "ID... [FLAGS]",
        "Approve calls once each, after seeing exactly what will run.",
        exits.TABLE,
    ),
    _Command(
        "reject",
        "remit.cli.decide:reject",
        "ID... [FLAGS]",
        "Refuse calls that wait for approval.",
        exits.TABLE,
    ),
    _Command(
        "supply",
        "remit.cli.supply:supply",
        "ID VALUE|@FILE|- [FLAGS]",
        "Answer what a tool asks, or bring the result of a call.",
        exits.TABLE,
    ),
    _Command(
        "cancel", "remit.cli.steer:cancel", "RUN... [FLAGS]", "Cancel runs, wherever they execute."
    ),
    _Command(
        "send", "remit.cli.steer:send", "RUN TEXT|- [FLAGS]", "Say something to a run under way."
    ),
    _Command(
        "tools",
        "remit.cli.tools:tools",
        "[TARGET] [FLAGS]",
        "Show what the model would see of your tools.",
    ),
    _Command(
        "demo",
        "remit.cli.demo:demo",
        "[FLAGS]",
        "Watch a support desk at work: no key, no network.",
    ),
    _Command(
        "doctor",
        "remit.cli.doctor:doctor",
        "[FLAGS]",
        "Check keys, servers and models, and what to do.",
    ),
    _Command(
        "store info",
        "remit.cli.store:info",
        "[FLAGS]",
        "Count what is kept, and how much room it takes.",
    ),
    _Command(
        "store check", "remit.cli.store:check", "[FLAGS]", "Verify every row, chain and artifact."
    ),
    _Command(
        "store erase",
        "remit.cli.store:erase",
        "--run RUN | --session NAME [FLAGS]",
        "Take back what was said; a tombstone stays.",
    ),
    _Command(
        "store prune",
        "remit.cli.store:prune",
        "--older-than TIME [FLAGS]",
        "Remove runs that ended long ago.",
    ),
    _Command(
        "store backup",
        "remit.cli.store:backup",
        "FILE [FLAGS]",
        "Copy the store while it is in use.",
    ),
    _Command("config show", "remit.cli.config:show", "[FLAGS]", "Print every value that is set."),
    _Command("config check", "remit.cli.config:check", "", "Exit with 0 where all can be read."),
    _Command(
        "completion",
        "remit.cli.completion:completion",
        "bash|zsh|fish [--install]",
        "Print the completion script of a shell.",
    ),
)


def _app() -> App:
    app = App(
        name="remit",
        help="Tool loops in production: the model proposes, the harness enforces.",
        help_epilogue=exits.TABLE,
        help_format="plaintext",
        help_formatter=Pages(),
        version=__version__,
        default_parameter=Parameter(negative="", show_default=False),
    )
    groups = {
        "config": App(name="config", help="See what is set, and where.", help_epilogue=""),
        "store": App(name="store", help="Look after what is kept of runs.", help_epilogue=""),
        "": app,
    }
    app.command(groups["store"])
    app.command(groups["config"])
    for command in _COMMANDS:
        group, _, name = command.path.rpartition(" ")
        groups[group].command(
            command.home,
            name=name,
            help=command.help,
            usage=f"remit {command.path} {command.usage}",
            help_epilogue=command.epilogue,
        )
    return app


APP: Final = _app()


_OF_WRITING: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EIO})
"""What goes wrong where the answer is written."""


def main(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name. Returns the exit code."""
    tolerant()
    try:
        code = _run(arguments)
        flush_stdout()
    except BrokenPipeError:
        _forget_stdout()
        return exits.PIPE_CLOSED
    except OSError as error:
        _forget_stdout()
        complain(f"the answer could not be written: {error.strerror or error}")
        return exits.UNWRITTEN
    return code


def _run(arguments: Sequence[str]) -> int:
    try:
        command, bound, _ = APP.parse_args(
            _tokens(arguments), print_error=False, exit_on_error=False, verbose=False
        )
        code = command(*bound.args, **bound.kwargs)
    except CycloptsError as error:
        complain(_words(error))
    except (RunBusy, SessionBusy) as error:
        complain(_who_is_at_it(error))
        return exits.CONFLICT
    except DecisionError as error:
        complain(str(error))
        return exits.NOT_FOUND if error.why == "unknown" else exits.CONFLICT
    except exits.NotFound as error:
        complain(str(error))
        return exits.NOT_FOUND
    except RemitError as error:
        complain(str(error))
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except Exception as error:  # the process ends here, and a bug has an exit code of its own
        if isinstance(error, OSError) and error.errno in _OF_WRITING:
            raise
        traceback.print_exc()
        complain("this is a bug in remit; please report it with the lines above")
        return exits.BUG
    else:
        return code if isinstance(code, int) else exits.OK  # `--help` and the like return nothing
    return exits.USAGE


def _who_is_at_it(error: RunBusy | SessionBusy) -> str:
    """Who has it, and what can be done about that from here."""
    run = quote(error.run_id)
    if isinstance(error, SessionBusy):
        held = f"session {error.session} is held by run {error.run_id}, which "
        match error.status:
            case "running":
                return f"{held}is executed by {error.owner}: --session-wait 30 waits so many seconds, remit tail {run} watches it"
            case "waiting":
                return f"{held}waits for {', '.join(error.pendings) or 'somebody'}: remit show {run} tells for what, remit cancel {run} ends it"
            case _:
                return f"{held}nobody executes: remit resume {run} goes on with it, remit cancel {run} ends it"
    return f"run {error.run_id} is executed by {error.owner}: remit tail {run} watches it, remit cancel {run} ends it"


def _tokens(arguments: Sequence[str]) -> list[str]:
    """The arguments, with `-` told apart from an unknown option; behind `--` all is text."""
    tokens = list(arguments)
    tokens[:1] = [_ALIASES.get(token, token) for token in tokens[:1]]
    end = tokens.index("--") if "--" in tokens else len(tokens)
    return [STDIN if token == "-" and i < end else token for i, token in enumerate(tokens)]


def _words(error: CycloptsError) -> str:
    error.verbose = False
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return (
            f"unexpected argument {error.unused_tokens[0]!r}: a prompt of several words is one "
            "argument, in quotes"
        )
    return str(error).replace(STDIN, "-")


def _forget_stdout() -> None:
    """Whoever read it has gone: what is left in the buffer is not to be tried again at the exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
