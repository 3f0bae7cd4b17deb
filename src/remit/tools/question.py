"""What a tool's body asks for while it runs: the question, the value that answers it, what the body gets.

`Call.ask` comes down to an `Interview`: the questions of one entry of a body, in the order in which it asks
them. The n-th answer that is known is given to the n-th question; the first question that has none interrupts
the body. Once there is an answer the body is entered again from the top (`docs/decisions`). Who is asked, and
what is recorded of it, is the dispatcher's business, above.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import msgspec

from remit.canonical import canonical, decode, encode
from remit.errors import ConfigurationError, ToolError
from remit.tools.arguments import Problem, located
from remit.tools.schema import exact, native_number, needs_exact, published, tidied, walk

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "MAX_QUESTIONS",
    "Answered",
    "Interruption",
    "Interview",
    "Question",
    "fitting",
    "interruption",
]

MAX_QUESTIONS = 100
"""What one call may ask. Each answer enters its body again, so that more would not come to an end."""
_MAX_PROBLEMS = 5


class Question(msgspec.Struct, frozen=True):
    """What is asked. Two are the same question if they are equal."""

    schema: str
    """The JSON Schema of the answer, as canonical JSON."""
    text: str


class Answered(msgspec.Struct, frozen=True):
    """A question that has had its answer."""

    question: Question
    value: str
    """JSON; where it is an error, the text of why there is no answer."""
    is_error: bool


class Interruption(BaseException):
    """It ends a body at a question without an answer.

    No `Exception`: what a body does about the failures of its own work is not meant for it.
    """

    def __init__(self, question: Question, place: int, refused: str = "") -> None:
        super().__init__("the tool asked for input outside of its own call")
        self.question = question
        self.place = place
        """How many questions the body asked before this one."""
        self.refused = refused
        """Why the answer that there was is none; empty where there was none."""


def interruption(error: BaseException) -> Interruption | None:
    """The question that ended a body, if that is all that ended it; task groups wrap what they pass on."""
    if isinstance(error, Interruption):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    matched, rest = cast("BaseExceptionGroup[BaseException]", error).split(Interruption)
    while matched is not None and rest is None:
        inner = matched.exceptions[0]
        if not isinstance(inner, BaseExceptionGroup):
            return inner
        matched = inner
    return None


class Interview:
    """The questions of one entry of a body."""

    __slots__ = (
        "_answers",
        "_asked",
        "_lock",
        "open",
    )

    def __init__(self, answers: Sequence[Answered]) -> None:
        """`answers` are those of earlier entries, in the order of asking."""
        self._answers = answers
        self._asked = 0
        self._lock = threading.Lock()
        self.open: Interruption | None = None
        """The question that there was no answer to."""

    def ask(self, schema: object, text: str) -> Any:
        """The answer to the next question.

        Errors: `Interruption` where there is none yet; `ToolError` where somebody refused to answer, or something
        else was asked in this place before; `ConfigurationError` for what is no question.
        """
        question, read = _read_question(schema, text)
        with self._lock:  # tasks and threads of the body may ask at the same time
            if self.open is not None:  # it was swallowed, or a sibling asks too
                raise Interruption(self.open.question, self.open.place, self.open.refused)
            place, self._asked = self._asked, self._asked + 1
            if place < len(self._answers):
                return self._answer(place, question, read)
            self.open = Interruption(question, place)
        raise self.open

    def _answer(self, place: int, question: Question, read: Callable[[Any], Any]) -> Any:
        known = self._answers[place]
        if known.question != question:
            raise ToolError(
                f"The tool is not deterministic: in place {place + 1} it now asks {question.text!r}, "
                f"and asked {known.question.text!r} before."
            )
        value = decode(known.value.encode())
        if known.is_error:
            raise ToolError(value)
        try:
            return read(value)
        except ValueError as error:
            self.open = Interruption(question, place, _why(error))
        raise self.open


def fitting(value: object, schema: Mapping[str, Any] | None) -> str:
    """The JSON text of a value that somebody supplies; `schema` is what it has to fit, if anything.

    Errors: `ConfigurationError` that says what does not fit, and where.
    """
    try:
        canonical(value)  # it is stricter than the writer below: keys are text, numbers are finite
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"what is supplied is no JSON: {error}") from error
    text = encode(value)
    if schema is not None:
        from remit.tools.own_schema import compile_schema

        validator = compile_schema(schema, "the schema of the question")
        given = decode(text)
        if not validator.is_valid(given):
            errors = islice(validator.iter_errors(given), _MAX_PROBLEMS)
            problems = [Problem(tuple(each.instance_path), each.message) for each in errors]
            raise ConfigurationError(
                "what is supplied does not fit: " + "; ".join(map(located, problems))
            )
    return text.decode()


def _read_question(schema: object, text: object) -> tuple[Question, Callable[[Any], Any]]:
    """A question, and how its answer is read. Errors: `ConfigurationError`."""
    if not isinstance(text, str):
        raise ConfigurationError(f"the question is a text, not {type(text).__name__}")
    if isinstance(schema, Mapping):
        return _by_schema(dict(cast("Mapping[str, Any]", schema)), text)
    return _by_type(schema, text)


def _by_schema(schema: dict[str, Any], text: str) -> tuple[Question, Callable[[Any], Any]]:
    from remit.tools.own_schema import compile_schema

    compile_schema(schema, "what is asked for")
    return _question(schema, text), lambda value: walk(schema, value, native_number)


def _by_type(of: Any, text: str) -> tuple[Question, Callable[[Any], Any]]:
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    from remit.tools.signature import SignatureSchema

    if inspect.isroutine(of):  # pydantic would make a type of its signature
        raise ConfigurationError("what is asked for is a function, and no type or JSON Schema")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(of)
        schema = tidied(adapter.json_schema(schema_generator=SignatureSchema))
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        raise ConfigurationError(
            f"what is asked for is a type that has a JSON Schema, or a JSON Schema: {_first_lines(error)}"
        ) from error
    in_full = needs_exact(schema)

    def read(value: Any) -> Any:
        form = encode(exact(schema, value) if in_full else value)
        return adapter.validator.validate_json(form, strict=True, extra="forbid")

    return _question(published(schema), text), read


def _question(schema: Mapping[str, Any], text: str) -> Question:
    try:
        return Question(canonical(schema), text)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"what is asked for is no JSON Schema: {error}") from error


def _why(error: ValueError) -> str:
    """Why an answer is none. It repeats no value: what it says goes to events and to whoever is asked next."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return _first_lines(error)
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        located(Problem(each["loc"], each["msg"])) for each in problems[:_MAX_PROBLEMS]
    )


def _first_lines(error: Exception) -> str:
    return " ".join(" ".join(str(error).split("\n")[:3]).split())
