"""What a judge says no with: a stable rule, where, and the provider's own words, status and body.

A wording is a template: it is filled in to refuse, and read the other way round to tell which rule an error of
the real provider names (`rule_of`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from string import Formatter
from typing import Any

from remit.models.validator import InvalidRequest

__all__ = ["Refused", "Wordings"]


class Refused(InvalidRequest):
    """The provider refuses this request."""

    def __init__(
        self, rule: str, text: str, *, position: int | None, status: int, body: Mapping[str, Any]
    ) -> None:
        super().__init__(position, rule, text)
        self.status = status
        """The HTTP status it answers with."""
        self.body = body
        """The error body it answers with."""

    def __str__(self) -> str:
        return f"{self.status}: {self.text} ({self.rule})"


class Wordings:
    """A provider's words for its rules: `{}` fields are filled in, and match anything when read back."""

    def __init__(self, says: Mapping[str, str], *, of_fields: frozenset[str]) -> None:
        self._says = says
        self.of_fields = of_fields
        """Rules about the form of fields: the provider has them for more fields than are looked at here."""

    def __contains__(self, rule: str) -> bool:
        return rule in self._says

    def __iter__(self) -> Iterator[str]:
        return iter(self._says)

    def words_of(self, rule: str) -> str:
        """The wording of a rule, with its fields. Two rules may share one."""
        return self._says[rule]

    def text(self, rule: str, words: Mapping[str, object]) -> str:
        """The provider's sentence."""
        return self._says[rule].format_map(words)

    def rule_of(self, message: str) -> str | None:
        """The rule that a provider's message names; None for one that is of no rule here.

        Of several that fit, the one that says most itself.
        """
        fits = [rule for rule, says in self._says.items() if _pattern(says).fullmatch(message)]
        return max(fits, key=lambda rule: len(_pattern(self._says[rule]).pattern), default=None)


@cache
def _pattern(says: str) -> re.Pattern[str]:
    parts = [
        re.escape(literal) + ("" if name is None else ".*")
        for literal, name, _, _ in Formatter().parse(says)
    ]
    return re.compile("".join(parts), re.DOTALL)
