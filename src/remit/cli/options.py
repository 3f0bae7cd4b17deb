"""Flags that several commands have, as values: the fields are the flags, their docstrings the help."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Group, Parameter

__all__ = [
    "STDIN",
    "Again",
    "Display",
    "Limit",
    "More",
    "SessionFlag",
    "SessionWait",
    "StoreFlag",
    "Who",
]

STDIN: Final = "\0stdin"
"""Stands for `-` while the arguments are parsed. No argument of a program can hold a NUL."""

StoreFlag: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--store",
        metavar="STORE",
        help="Where runs are kept: sqlite:///FILE.db. Without it REMIT_STORE, then store in remit.toml, then "
        "remit/remit.db among what programs keep of you ($XDG_STATE_HOME, or ~/.local/state).",
    ),
]
"""`--store`, for a parameter of a command; its default is None."""

SessionFlag: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--session",
        metavar="NAME",
        help="The conversation that this goes on with: what was said in it before is remembered, and one run at a time "
        "is at work in it.",
    ),
]
"""`--session`, for a parameter of a command; its default is None."""

SessionWait: TypeAlias = Annotated[
    float | None,
    Parameter(
        name="--session-wait",
        metavar="S",
        help="Wait so many seconds for another run of that session to end. Without it a busy session is an error, "
        "with exit code 4.",
    ),
]
"""`--session-wait`, the same."""

_LIMITS: Final = Group(
    "Limits",
    help="What the run may use. Built in: 12 steps, 100,000 tokens, 300 seconds, no limit to the rest; "
    "REMIT_RUN_STEPS=9 and remit.toml change that. A remit that is named with --remit brings its own.",
    sort_key=1,
)
_MORE: Final = Group(
    "New limits",
    help="+5 adds to what the run may use, 20 is the new total; what was used before counts. Without them it goes "
    "on under the limits that it had.",
    sort_key=1,
)
_DISPLAY: Final = Group("What is shown on stderr", sort_key=2)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Who is asked, with which tools."""

    tools: Annotated[tuple[str, ...], Parameter(metavar="TARGET")] = ()
    """Tools: FILE.py, FILE.py:NAME, MODULE or MODULE:NAME. Repeat it for more."""
    remit: Annotated[str | None, Parameter(metavar="TARGET")] = None
    """A remit in place of --tools, --instructions and limits of yours: FILE.py[:NAME], MODULE[:NAME] or a profile of remit.toml."""
    model: Annotated[str | None, Parameter(metavar="NAME")] = None
    """The model, as PREFIX:NAME: anthropic:claude-sonnet-5-5, ollama:llama3.3, or demo:support without a key. `remit doctor` tells what is there."""
    base_url: Annotated[str | None, Parameter(metavar="URL")] = None
    """Where the model is reached, if not where its prefix says: http://localhost:8000/v1. Its key is sent there."""
    instructions: Annotated[str | None, Parameter(metavar="TEXT")] = None
    """The system text, or @FILE to read it from one."""
    confirm: Annotated[str | None, Parameter(metavar="WHO")] = None
    """Who approves what needs it: ask (you, on the terminal), none (the run waits), or FILE.py:FUNCTION. Without it you are asked where there is a terminal."""


@Parameter(name="*", group=_LIMITS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What the run may use."""

    steps: Annotated[int | None, Parameter(metavar="N")] = None
    """Replies of the model, each with the calls that it asks for."""
    tokens: Annotated[int | None, Parameter(metavar="N")] = None
    """Tokens of prompts and replies, cached ones included."""
    usd: Annotated[Decimal | None, Parameter(metavar="X")] = None
    """US dollars; only where the price of the model is known."""
    calls: Annotated[int | None, Parameter(metavar="N")] = None
    """Calls of tools."""
    seconds: Annotated[float | None, Parameter(metavar="S")] = None
    """Seconds of work; waiting for you does not count."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """With what a run goes on, where that is not what was recorded with it."""

    remit: Annotated[str | None, Parameter(metavar="TARGET")] = None
    """The remit of the run, where it was started by code of yours, or its file has moved: FILE.py:NAME."""
    tools: Annotated[tuple[str, ...], Parameter(metavar="TARGET")] = ()
    """Tools in place of those that it was started with. Repeat it for more."""
    model: Annotated[str | None, Parameter(metavar="NAME")] = None
    """Another model than it was started with."""
    base_url: Annotated[str | None, Parameter(metavar="URL")] = None
    """Where that model is reached."""
    confirm: Annotated[str | None, Parameter(metavar="WHO")] = None
    """Who approves what needs it from here on: ask, none, or FILE.py:FUNCTION."""

    @property
    def who(self) -> Who:
        """The same as what a run is started with."""
        return Who(
            remit=self.remit,
            tools=self.tools,
            model=self.model,
            base_url=self.base_url,
            confirm=self.confirm,
        )


@Parameter(name="*", group=_MORE)
@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """What a run may use from here on."""

    steps: Annotated[str | None, Parameter(metavar="N")] = None
    """Replies of the model."""
    tokens: Annotated[str | None, Parameter(metavar="N")] = None
    """Tokens of prompts and replies."""
    usd: Annotated[str | None, Parameter(metavar="X")] = None
    """US dollars."""
    calls: Annotated[str | None, Parameter(metavar="N")] = None
    """Calls of tools."""
    seconds: Annotated[str | None, Parameter(metavar="S")] = None
    """Seconds of work."""


@Parameter(name="*", group=_DISPLAY)
@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """How a run is shown."""

    plain: bool = False
    """One line for each thing that happens, no status line; so it is where there is no terminal."""
    quiet: bool = False
    """Nothing but questions and errors."""
    verbose: bool = False
    """What each reply was billed too, and every other event."""
    no_motion: bool = False
    """No ticking clock."""
    color: Literal["auto", "always", "never"] = "auto"
    """Colours; auto heeds NO_COLOR, FORCE_COLOR and TERM=dumb."""
