"""One logical call, as the function of a tool sees it.

A `Call` tells the function what it needs to act well (a key for downstream systems, how long it has,
the caller's deps) and takes what it has to say (progress, money spent, a question). It holds no budget, no token
and no transcript: it speaks through callables that the dispatcher above gives it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from decimal import Decimal, InvalidOperation
from typing import Any, Generic, overload

from typing_extensions import TypeForm, TypeVar

from remit.log import TOOL_LOGGER

__all__ = ["Call"]

Deps = TypeVar("Deps", default=Any)
T = TypeVar("T")


class _CallLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts the run and the call on every record and keeps what the author adds by `extra=`."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Call(Generic[Deps]):
    """One logical call. Ask for it by annotation: `call: Call` or `call: Call[MyDeps]`."""

    __slots__ = (
        "_clock",
        "_on_ask",
        "_on_charge",
        "_on_progress",
        "deadline",
        "deps",
        "key",
        "run_id",
        "step",
    )

    key: str
    """The same over retries, timeouts, crashes and resumes of this call; different for every other
    call. Hand it to downstream systems as their idempotency key."""
    run_id: str
    step: int
    """The step of the run that asked for the call, counted from 1."""
    deadline: float
    """When the call is cut, in seconds on the event loop's clock."""
    deps: Deps
    """What the caller handed to `run(deps=)`."""

    def __init__(
        self,
        *,
        key: str,
        run_id: str,
        step: int,
        deadline: float,
        deps: Deps,
        clock: Callable[[], float],
        on_progress: Callable[[str | None, float | None], None],
        on_charge: Callable[[Decimal, int], None],
        on_ask: Callable[[object, str], Any],
    ) -> None:
        self.key = key
        self.run_id = run_id
        self.step = step
        self.deadline = deadline
        self.deps = deps
        self._clock = clock
        self._on_progress = on_progress
        self._on_charge = on_charge
        self._on_ask = on_ask

    def __repr__(self) -> str:
        return f"Call(key={self.key!r})"

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.deadline - self._clock())

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """The `remit.tool` logger; its records carry `run_id` and `call_key`."""
        return _CallLogger(TOOL_LOGGER, {"run_id": self.run_id, "call_key": self.key})

    def progress(self, message: str | None = None, *, fraction: float | None = None) -> None:
        """Tell whoever watches how far it is. `fraction` is clamped to 0..1."""
        if fraction is not None:
            # In this order NaN becomes 0: a wrong report must not fail the work it reports on.
            fraction = min(1.0, max(0.0, fraction))
        self._on_progress(None if message is None else str(message), fraction)  # events are JSON

    def charge(self, *, usd: Decimal | float | str = 0, tokens: int = 0) -> None:
        """Book what this call really spent; it replaces what `@tool(usd=, tokens=)` had reserved.

        Units: US dollars and tokens; several charges of one call add up.
        Errors: `ValueError` for what is no amount, negative or not finite.
        """
        spent = _money(usd)
        if not spent.is_finite() or spent < 0 or type(tokens) is not int or tokens < 0:
            raise ValueError(f"a charge is finite and not negative, got usd={usd} tokens={tokens}")
        self._on_charge(spent, tokens)

    @overload
    def ask(self, schema: type[T] | TypeForm[T], question: str = "") -> T: ...
    @overload
    def ask(self, schema: Mapping[str, Any], question: str = "") -> Any: ...
    def ask(self, schema: Any, question: str = "") -> Any:
        """Ask whoever is in charge, and get the answer. Not for `effect="confirm"`.

        `schema` is what the answer must be: a type (`bool`, a `Literal`, a dataclass, a model ...), whose value
        you get, or a JSON Schema. No `await`, in an `async def` neither. Where there is no answer yet, the body
        ends here and the run waits with a `Pending` of kind `input`. After `supply` the body is entered again
        **from the top**, under the same key, and each `ask` gives the answer that it got. So ask first and act
        then; what stands before a question runs again, and must ask the same questions in the same order. Do
        not catch `BaseException` around it.
        Errors: `ToolError` where the question was refused, where another one was asked in this place before, and
        in a `confirm` tool, whose body runs once; `ConfigurationError` for what is no type and no schema.
        """
        return self._on_ask(schema, question)


def _money(usd: Decimal | float | str) -> Decimal:
    """Read an amount by its digits: 0.1 is ten cents, not the double next to it."""
    try:
        return usd if isinstance(usd, Decimal) else Decimal(str(usd))
    except InvalidOperation:
        return Decimal("NaN")
