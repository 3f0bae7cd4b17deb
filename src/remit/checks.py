"""What the host hands in, checked before anything is sent.

Types say most of this already, to those who check them; everybody else gets a `ConfigurationError` that says
what to change, where the wrong value was given and not where it is first used. No function of the host is
called here. Tools and limits check themselves.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, cast

from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.messages import Media, Text
from remit.models.base import ModelProfile, Settings
from remit.store.base import Journal

__all__ = [
    "Parts",
    "check_cancel",
    "check_content",
    "check_model",
    "check_name",
    "check_options",
    "check_parts",
    "check_session",
    "check_tags",
]

_MAX_NAME_CHARS = 200
_MAX_REASON_CHARS = 2_000
_MAX_GRACE_SECONDS = 3_600
_JOURNAL = [name for name, member in vars(Journal).items() if inspect.iscoroutinefunction(member)]
"""What a store can be asked."""


class Parts(Protocol):
    """A remit, as it was given."""

    @property
    def instructions(self) -> object: ...
    @property
    def deps_type(self) -> object: ...
    @property
    def policy(self) -> object: ...
    @property
    def guards(self) -> object: ...
    @property
    def confirm(self) -> object: ...
    @property
    def redact(self) -> object: ...
    @property
    def answer(self) -> object: ...
    @property
    def notes(self) -> object: ...
    @property
    def stop_when(self) -> object: ...
    @property
    def store(self) -> object: ...


def check_parts(parts: Parts) -> None:
    """Everything that a remit is made of beside its options. Errors: `ConfigurationError`."""
    _refuse_unless(
        isinstance(parts.instructions, str) or _takes(parts.instructions, 0, 1),
        "instructions= is a text, or a function of the deps or of nothing",
    )
    _refuse_unless(
        not inspect.iscoroutinefunction(parts.instructions),
        "instructions= is async: look up what it needs before the run, and hand it in as deps=",
    )
    _refuse_unless(
        isinstance(parts.deps_type, type | None),
        "deps_type= takes the class of what runs are given as deps=",
    )
    _refuse_unless(
        parts.policy is None or _takes(parts.policy, 1),
        "policy= is a function of one PolicyRequest that returns Allow(), Refuse(why) or "
        "Confirm(summary)",
    )
    _refuse_unless(
        _are_functions(parts.guards, 1),
        "guards= is a tuple of async functions of one Transcript that return Veto(why) or None",
    )
    _refuse_unless(
        parts.confirm is None or _takes(parts.confirm, 1),
        "confirm= is an async function of one Pending that returns Decision(approve, by)",
    )
    _refuse_unless(
        parts.redact is None
        or (_takes(parts.redact, 1) and not inspect.iscoroutinefunction(parts.redact)),
        "redact= is a `def` of one text that returns the text that may be seen",
    )
    _refuse_unless(
        parts.answer is None or _takes(parts.answer, 1),
        "answer= is an async function of one Pending that returns the value it asks for",
    )
    _refuse_unless(
        _are_functions(parts.notes, 0, 1),
        "notes= is a tuple of functions of the deps or of nothing",
    )
    _refuse_unless(
        parts.stop_when is None or _takes(parts.stop_when, 1),
        "stop_when= is a function of one Transcript, sync or async, that returns True or False",
    )
    _refuse_unless(
        _has_methods(parts.store, _JOURNAL),
        "store= takes an object that keeps runs, such as MemoryStore()",
    )


def check_model(model: object) -> None:
    """Errors: `ConfigurationError`."""
    _refuse_unless(
        _has_methods(model, ["stream"])
        and isinstance(getattr(model, "name", None), str)
        and isinstance(getattr(model, "profile", None), ModelProfile),
        "model= takes an object with a name, a ModelProfile as profile and stream(request); "
        f"this is {_kind(model)}",
    )


def check_options(
    model: object, limits: object, settings: object, *, tools: Collection[str]
) -> None:
    """What a remit has and a run may replace. Errors: `ConfigurationError`."""
    check_model(model)
    _refuse_unless(
        isinstance(limits, Limits),
        "limits= takes a remit.Limits(steps=..., tokens=..., seconds=...); there is no default",
    )
    _refuse_unless(
        isinstance(settings, Settings),
        "settings= takes a remit.Settings, such as Settings(max_output=2_000)",
    )
    choice = cast("Settings", settings).tool_choice
    _refuse_unless(
        choice in ("auto", "any", "none") or choice in tools,
        f"tool_choice={choice!r} is neither auto, any or none nor one of the tools: "
        f"{', '.join(tools) or 'there is none'}",
    )


def check_name(what: str, name: object) -> None:
    """A name of the host's that records are kept under. Errors: `ConfigurationError`."""
    _refuse_unless(
        isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS and name.isprintable(),
        f"{what}= is a text of 1 to {_MAX_NAME_CHARS} printable characters",
    )


def check_cancel(reason: object, grace: object) -> None:
    """What is said with a cancel. Errors: `ConfigurationError`."""
    _refuse_unless(
        isinstance(reason, str) and len(reason) <= _MAX_REASON_CHARS,
        f"reason= is a text of up to {_MAX_REASON_CHARS:,} characters",
    )
    seconds = grace if isinstance(grace, int | float) and not isinstance(grace, bool) else -1
    _refuse_unless(
        grace is None or 0 <= seconds <= _MAX_GRACE_SECONDS,
        f"grace= is a number of seconds from 0 to {_MAX_GRACE_SECONDS:,}",
    )


def check_session(session: object, wait: object, history: object) -> None:
    """A conversation that is kept in the store. Errors: `ConfigurationError`."""
    if session is None:
        _refuse_unless(
            wait is None, "session_wait= says how long to wait for a session: give session="
        )
        return
    check_name("session", session)
    _refuse_unless(history is None, "give history= or session=, not both: a session keeps its own")
    _refuse_unless(
        wait is None
        or (
            isinstance(wait, int | float)
            and not isinstance(wait, bool)
            and 0 <= wait <= sys.float_info.max  # an int may be larger, and no clock can add it
        ),
        "session_wait= is a number of seconds, 0 or more",
    )


def check_tags(tags: object) -> None:
    """Errors: `ConfigurationError`."""
    good = isinstance(tags, Mapping) and all(
        _is_text(key) and _is_text(value)
        for key, value in cast("Mapping[object, object]", tags).items()
    )
    _refuse_unless(good, 'tags= maps text to text, such as {"customer": "42"}')


def check_content(blocks: tuple[object, ...]) -> None:
    """What somebody says to a model. Errors: `ConfigurationError`."""
    for block in blocks:
        match block:
            case Text(text):
                good = isinstance(text, str)  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            case Media():
                good = block.is_well_typed and bool(block.media_type and block.data)
            case _:
                good = False
        _refuse_unless(
            good,
            "a prompt is a text, a Text, a Media with its type and data, or a tuple of blocks; "
            f"this holds {_kind(block)}",
        )


def _refuse_unless(good: bool, text: str) -> None:
    if not good:
        raise ConfigurationError(text)


def _is_text(value: object) -> bool:
    """Whether it is a text that can be written down: no half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def _has_methods(value: object, names: Iterable[str]) -> bool:
    """Whether it is an object, no class, that can be asked these things."""
    return not isinstance(value, type) and all(callable(getattr(value, n, None)) for n in names)


def _are_functions(value: object, *counts: int) -> bool:
    return isinstance(value, Iterable) and all(
        _takes(each, *counts) for each in cast("Iterable[object]", value)
    )


def _takes(function: object, *counts: int) -> bool:
    """Whether it can be called with one of these numbers of arguments, as far as can be known."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin that keeps it to itself
        return True
    return any(_binds(signature, count) for count in counts)


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
