"""What every judge is: it reads a request as its provider does, and remembers what the provider has issued."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NoReturn, Protocol, cast

from remit.errors import ConfigurationError
from remit.testing.protocol.reading import Body, Events, assembled, body_of, events_of
from remit.testing.protocol.refused import Refused, Wordings

__all__ = ["Judge", "Refuse"]


class Refuse(Protocol):
    """See `Judge.refuse`."""

    def __call__(
        self, rule: str, *, position: int | None = None, param: str | None = None, **words: object
    ) -> NoReturn: ...


class Judge(ABC):
    """One provider's opinion. It serves any number of conversations, as the provider does."""

    wire: str
    wordings: Wordings
    """The rules, and how the provider words them."""

    @abstractmethod
    def request(
        self, body: Body | str | bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Read a request as the provider would.

        `headers`, in lower case, are looked at where they are given.
        Errors: `Refused` for the first rule that is broken; `ConfigurationError` for what is no JSON object at all.
        """

    @abstractmethod
    def _issue(self, reply: Body, request: Body) -> None:
        """Remember a whole reply."""

    @abstractmethod
    def trust(self, body: Body) -> None:
        """Take what a request holds for issued by this provider, in an exchange that the judge has not seen."""

    @abstractmethod
    def _error(self, rule: str, said: str, param: str | None) -> tuple[int, Body]:
        """The status and the body that the provider answers with."""

    def response(self, reply: Body | Events | str | bytes, request: Body | None = None) -> None:
        """Remember what the provider answered: a whole body, the events of a stream, or the stream itself.

        `request` is what it answers; it matters where the provider ties its blocks to it.
        """
        if isinstance(reply, bytes):
            reply = reply.decode(errors="replace")
        if isinstance(reply, str):
            reply = body_of(reply) if reply[:1] == "{" else assembled(events_of(reply))
        elif isinstance(reply, list | tuple) and all(isinstance(each, Mapping) for each in reply):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            reply = assembled(reply)
        elif not isinstance(reply, Mapping):
            raise ConfigurationError(
                "response() takes what the provider answered: a body, its events as a list, or the stream as text"
            )
        self._issue(cast("Body", reply), request or {})

    def refuse(
        self, rule: str, *, position: int | None = None, param: str | None = None, **words: object
    ) -> NoReturn:
        """Refuse in the provider's words; `words` fill in the wording of the rule."""
        said = self.wordings.text(rule, words)
        status, body = self._error(rule, said, param)
        raise Refused(rule, said, position=position, status=status, body=body)
