"""Questions to the person at the terminal: to approve a call, to answer a tool.

A question is a short conversation with an `Asker`, which shows rows and gives back keys and lines; how it does
that is a display's business. Questions come one at a time, those of parallel calls one after another. Whatever
a model, a tool or a caller wrote stands behind a gutter, and nothing is approved that was not shown whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from remit.analysis.cells import one_line, visible
from remit.analysis.figures import span
from remit.analysis.layout import Glyphs, Row, headed, noted, quoted
from remit.analysis.times import moment
from remit.cli.forms import Misfit, Node, checked, fields_of, hint_of, is_secret, read
from remit.errors import PutOff
from remit.pending import Decision, Pending

__all__ = ["Asker", "Questions", "login"]

_CHOICES = (
    "[a]pprove  [r]eject with reason  [d]etails  [l]ater",
    "[a]pprove [r]eject [d]etails [l]ater",
    "[a]ppr [r]ej [d]et [l]ater",
    "[a] [r] [d] [l]",
)
"""What can be done, in as many words as there is room for."""
_WORDS_ROWS = 3
"""Of the model's last words so many rows stand with the question; the details show them all."""
_LEAST_ROWS = 4
"""Rows of arguments that are shown however low the window is; the others on demand."""


class Asker(Protocol):
    """Where a person is asked."""

    @property
    def glyphs(self) -> Glyphs: ...

    @property
    def columns(self) -> int | None:
        """Cells of a row; None where rows have no end."""
        ...

    @property
    def height(self) -> int:
        """Rows that a person sees at once."""
        ...

    def show(self, rows: Sequence[Row]) -> None: ...

    async def key(self, wordings: Sequence[str], keys: str) -> str:
        """Which of these keys the person pressed after all this was to be seen; empty where they turned back.

        `wordings` say the same in fewer and fewer words.
        """
        ...

    async def line(self, *, secret: bool = False) -> str | None:
        """What the person wrote; None where they turned back."""
        ...

    async def said(self, history: Sequence[str]) -> str | None:
        """What the person says of their own accord; None where that is nothing more."""
        ...


def login() -> str:
    """Who sits there, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "terminal"


class Questions:
    """Asks one person, one question at a time."""

    def __init__(
        self,
        asker: Asker,
        *,
        last_words: Callable[[str], str],
        effect_of: Callable[[str], str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`last_words` is what the model of a run said last, `effect_of` what a pending's call would do twice."""
        self._asker = asker
        self._last_words = last_words
        self._effect_of = effect_of
        self._now = now
        self._turn = asyncio.Lock()

    async def confirm(self, pending: Pending) -> Decision:
        """What the person decides. Errors: `PutOff` where that is nothing yet."""
        async with self._turn:
            with self._telling():
                decision = await self._decide(pending)
                verb = "approved" if decision.approve else "rejected"
                self._note(
                    f"{verb} by {decision.by}" + (f": {decision.note}" if decision.note else "")
                )
            return decision

    async def answer(self, pending: Pending) -> Any:
        """The value that the person gives, fit for the schema. Errors: `PutOff`."""
        async with self._turn:
            with self._telling():
                value = await self._fill_in(pending)
                self._note("answered")
            return value

    @contextlib.contextmanager
    def _telling(self) -> Generator[None]:
        """However a question ends, that stands there too."""
        try:
            yield
        except PutOff:
            self._note("left for later")
            raise
        except asyncio.CancelledError:
            self._note("not asked any more")
            raise

    # Approvals

    async def _decide(self, pending: Pending) -> Decision:
        most = max(_LEAST_ROWS, self._asker.height // 2)
        call = self._quote(f"{pending.tool}  {pending.arguments}")
        whole = len(call) <= most
        self._open(pending, "needs your decision")
        self._asker.show([*self._quote(pending.summary), *call[:most]])
        if not whole:
            self._note(f"{len(call) - most} more rows of arguments: [d]etails shows them")
        self._words(pending, _WORDS_ROWS)
        while True:
            match await self._asker.key(_CHOICES, "ardl"):
                case "a" if whole:
                    return Decision(approve=True, by=login())
                case "a":
                    self._details(pending)
                    self._note(
                        "this is the whole of it: nothing is approved unseen, so press again"
                    )
                    whole = True
                case "r":
                    self._note("reason, told to the model (enter: none, esc: back):")
                    note = await self._asker.line()
                    if note is not None:
                        return Decision(approve=False, by=login(), note=note.strip())
                case "d":
                    self._details(pending)
                    whole = True
                case _:
                    raise PutOff("left for later")

    def _details(self, pending: Pending) -> None:
        # Set apart, and otherwise every digit as it will run.
        arguments = msgspec.json.format(pending.arguments, indent=2)
        self._note(f"exact arguments of {one_line(pending.tool)}:")
        self._asker.show(self._quote(arguments))
        self._note(f"run {pending.run_id}, pending {pending.id}")
        self._note(f"expires {moment(pending.expires_at)}")
        self._words(pending, None)

    # Values

    async def _fill_in(self, pending: Pending) -> Any:
        schema: Node = pending.schema or {}
        self._open(pending, f"{one_line(pending.tool)} asks you")
        self._asker.show(self._quote(pending.summary))
        self._words(pending, _WORDS_ROWS)
        while True:
            try:
                return checked(schema, await self._value(schema))
            except Misfit as misfit:
                self._note(f"that does not do: {misfit}")

    async def _value(self, schema: Node) -> Any:
        """A value that is not checked yet. Errors: `Misfit`, `PutOff`."""
        fields = fields_of(schema)
        if fields is None:
            return read(schema, await self._line(hint_of(schema), secret=is_secret(schema)))
        value: dict[str, Any] = {}
        for field in fields:
            hint = hint_of(field.schema) + ("" if field.required else "; enter: leave it out")
            question = f"{one_line(field.name)} ({hint})"
            while True:
                text = await self._line(question, secret=is_secret(field.schema))
                if not text and not field.required:
                    break
                try:
                    value[field.name] = read(field.schema, text)
                except Misfit as misfit:
                    self._note(f"{one_line(field.name)}: {misfit}")
                else:
                    break
        return value

    async def _line(self, question: str, *, secret: bool) -> str:
        self._note(f"{question}:")
        text = await self._asker.line(secret=secret)
        if text is None:
            raise PutOff("left for later")
        return text

    # Rows

    def _open(self, pending: Pending, what: str) -> None:
        """The heading, which is ours: nobody else's text begins at the margin."""
        glyphs = self._asker.glyphs
        who = " > ".join(one_line(name) for name in pending.path)
        expires = span((pending.expires_at - self._now()).total_seconds())
        effect = self._effect_of(pending.id)
        facts = [who, f"effect {effect}"] if effect else [who]
        facts += [f"expires in {expires}", one_line(pending.id)]
        about = f" {glyphs.dot} ".join(facts)
        self._asker.show(headed("waiting", what, about, glyphs, self._asker.columns))

    def _words(self, pending: Pending, most: int | None) -> None:
        words = self._last_words(pending.run_id)
        if not words:
            return
        self._note("the model's words:")
        rows = self._quote(words)
        self._asker.show(rows if most is None or len(rows) <= most else rows[-most:])

    def _quote(self, text: str) -> list[Row]:
        return quoted(visible(text), self._asker.glyphs, self._asker.columns)

    def _note(self, text: str) -> None:
        self._asker.show(noted(one_line(text), self._asker.glyphs, self._asker.columns))
