"""From the text that a model wrote to the values that a function receives, or to a refusal.

The order is: read the text without loss, validate, and only where that fails coerce what the schema
leaves no other reading for and validate again. Nothing is completed, and nothing runs unvalidated.
The refusal is written for the model: it names the parameter, says what is wrong and shows the
schema, and it is short whatever the model sent. Two readers share all of it: one for functions, by
pydantic, one for tools that bring their own schema.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, Self, cast

import msgspec

from remit.canonical import parse_json
from remit.tools.schema import Node, coerced, holds_secrets, masked

__all__ = [
    "Arguments",
    "ArgumentsReader",
    "BadArguments",
    "Misfit",
    "Problem",
    "located",
    "near_matches",
]

MAX_MESSAGE_CHARS = 1_500
"""How long a refusal is at most."""
_MAX_PROBLEMS = 5
_MAX_PROBLEM_CHARS = 200
_MAX_NAME_CHARS = 64


class Arguments(msgspec.Struct, frozen=True):
    """Arguments that fit."""

    given: dict[str, Any]
    """What the model gave, read without loss and coerced: no defaults, no computed values. Its
    canonical form identifies the call."""
    values: dict[str, Any]
    """What the function receives by name, defaults included."""


class BadArguments(msgspec.Struct, frozen=True):
    """Arguments that must not run."""

    message: str
    """For the model, at most `MAX_MESSAGE_CHARS` characters."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, at one place."""

    path: tuple[str | int, ...]
    text: str


class Misfit(Exception):
    """The arguments do not fit the schema. It never leaves this module."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__()
        self.problems = tuple(islice(problems, _MAX_PROBLEMS + 1))


class ArgumentsReader(ABC):
    """Reads the arguments of one tool."""

    def __init__(self, tool_name: str, schema: Node, parameters: Mapping[str, Any]) -> None:
        self._tool_name = tool_name
        self.schema = schema
        """With our marks."""
        self._parameters = parameters
        self._nothing_required = not parameters.get("required")
        self.has_secrets = holds_secrets(schema)
        """Something in the arguments may be a secret."""

    def named(self, tool_name: str) -> Self:
        """The same for a tool of another name."""
        other = copy.copy(self)
        other._tool_name = tool_name  # noqa: SLF001 - its own kind
        return other

    def masked(self, given: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Arguments as people may see them, and what was masked."""
        return masked(self.schema, given)

    def read(self, text: str) -> Arguments | BadArguments:
        """Read the text of one call.

        Errors: none for what the model wrote; that is a `BadArguments`.
        """
        try:
            given: Any = parse_json(text)
        except ValueError as error:
            if text.strip() or not self._nothing_required:
                return self._refusal([Problem((), f"this is no JSON: {error}")])
            given = {}
        if not isinstance(given, dict):
            return self._refusal([Problem((), f"expected one JSON object, got {_kind(given)}")])
        return self._fitted(cast("dict[str, Any]", given))

    def _fitted(self, given: dict[str, Any]) -> Arguments | BadArguments:
        try:
            return Arguments(given, self._values(given))
        except Misfit as misfit:
            mended = coerced(self.schema, given)
            if mended is None:
                return self._refusal(misfit.problems)
        try:
            return Arguments(mended, self._values(mended))
        except Misfit as misfit:
            return self._refusal(misfit.problems)

    @abstractmethod
    def _values(self, given: dict[str, Any]) -> dict[str, Any]:
        """The validated values. Errors: `Misfit`."""

    @property
    def _complaint(self) -> str:
        """How a refusal begins."""
        return f"Not run: the arguments of {self._tool_name} do not fit."

    def _refusal(self, problems: Sequence[Problem]) -> BadArguments:
        lines = [self._complaint]
        lines += [f"- {located(problem)}" for problem in problems[:_MAX_PROBLEMS]]
        if len(problems) > _MAX_PROBLEMS:
            lines.append("- and more")
        lines.append("Expected, as JSON Schema: ")
        said = "\n".join(lines)
        schema = json.dumps(self._parameters, ensure_ascii=False, separators=(",", ":"))
        return BadArguments(said + cut(schema, MAX_MESSAGE_CHARS - len(said)))

    def _unknown(self, path: tuple[str | int, ...], name: str) -> Problem:
        close = near_matches(name, self._parameters["properties"]) if not path else []
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        return Problem((*path, name), f"unknown name{meant}")


# --- words ---------------------------------------------------------------------------------------


def near_matches(name: str, names: Iterable[str]) -> list[str]:
    """Up to three of the names that look like this one, best first; case does not count."""
    by_lower = {each.lower(): each for each in names}
    close = get_close_matches(name[:_MAX_NAME_CHARS].lower(), by_lower, n=3)
    return [by_lower[each] for each in close]


def cut(text: str, chars: int) -> str:
    """The text, or its beginning with a note of its length; at most `chars` characters."""
    if len(text) <= chars:
        return text
    note = f"... ({len(text):,} characters)"
    return text[: chars - len(note)] + note


def located(problem: Problem) -> str:
    """A problem in one line: where, and what is wrong."""
    place = "".join(
        f"[{step}]" if isinstance(step, int) else f".{cut(step, _MAX_NAME_CHARS)}"
        for step in problem.path
    ).lstrip(".")
    text = " ".join(problem.text.split())
    return cut(f"{place}: {text}" if place else text, _MAX_PROBLEM_CHARS)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "a number"
