"""Tools that suffer what networks and crashes do to calls, the same way for the same seed.

    storm = chaos([look_up, cancel], seed=7)
    outcome = run_virtual(desk(tools=[storm]).run("..."))
    assert shop.orders == what_they_should_be, storm

Every call goes the whole way of a real run; between the gate and the function it may be delivered twice under its key,
late, behind a later one, or have its answer lost after the effect, so that the call ends by its timeout as "outcome
unknown". Nothing is done that remit would not do itself: a `confirm` tool is never delivered twice. Delays and lost
answers take time, so a storm belongs on virtual time (`run_virtual`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, overload

from remit.canonical import canonical
from remit.errors import ConfigurationError
from remit.tools import Effect, Tool
from remit.tools.derived import Invocation, Proceed
from remit.tools.toolset import Tools, flattened

__all__ = ["Chaos", "Fault", "Suffered", "chaos"]

Fault: TypeAlias = Literal["duplicated", "delayed", "lost", "reordered"]

_FAULTS: Final[dict[Effect, tuple[Fault, ...]]] = {
    Effect.READ: ("duplicated", "delayed", "lost", "reordered"),
    Effect.IDEMPOTENT: ("duplicated", "delayed", "lost", "reordered"),
    Effect.CONFIRM: ("delayed", "lost", "reordered"),
}
_LONGEST_SECONDS: Final = 20.0
"""Of a delay, and of a wait for another call to overtake."""


@dataclass(frozen=True, slots=True)
class Suffered:
    """What one delivery of a call went through."""

    tool: str
    key: str
    fault: Fault | None
    """None: it was left in peace."""
    seconds: float = 0.0
    """How long it was held back."""


class Chaos(Sequence[Tool[..., Any]]):
    """The tools, with what was done to them."""

    def __init__(
        self, tools: Tools, seed: int, faults: Iterable[Fault] | None, often: float
    ) -> None:
        self.seed = seed
        self.suffered: list[Suffered] = []
        """Of every delivery, in the order in which they began."""
        self._faults = None if faults is None else frozenset(faults)
        self._often = often
        self._seen = Counter[str]()
        self._ended = asyncio.Event()
        self._tools = tuple([tool.wrapped(self._between) for tool in flattened(tools)])

    @overload
    def __getitem__(self, index: int) -> Tool[..., Any]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tool[..., Any], ...]: ...
    def __getitem__(self, index: int | slice) -> Tool[..., Any] | tuple[Tool[..., Any], ...]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools)

    def __repr__(self) -> str:
        """The seed, and what every call went through: enough to find a failure again."""
        told = [f"{each.tool} {each.fault or 'in peace'}" for each in self.suffered]
        return f"<chaos seed={self.seed}: {', '.join(told) or 'nothing yet'}>"

    async def _between(self, invocation: Invocation, proceed: Proceed) -> Any:
        fault, draw = self._fate(invocation)
        seconds = draw.uniform(0, _LONGEST_SECONDS) if fault in ("delayed", "reordered") else 0.0
        self.suffered.append(Suffered(invocation.tool, invocation.call.key, fault, seconds))
        if fault == "delayed":
            await asyncio.sleep(seconds)
        elif fault == "reordered":
            await self._overtaken(seconds)
        try:
            answer = await proceed()
            if fault == "duplicated":
                second = await proceed()
                answer = draw.choice((answer, second))
        finally:
            ended, self._ended = self._ended, asyncio.Event()
            ended.set()
        if fault == "lost":
            await asyncio.get_running_loop().create_future()  # up to the tool's timeout
        return answer

    def _fate(self, invocation: Invocation) -> tuple[Fault | None, random.Random]:
        """Drawn by what is called and how often it was, so that no order of arrival changes it."""
        call = f"{invocation.tool} {canonical(invocation.arguments)}"
        self._seen[call] += 1
        draw = random.Random(f"{self.seed} {self._seen[call]} {call}")  # noqa: S311 - a storm, no secret
        faults = self._faults
        possible: list[Fault] = [
            f for f in _FAULTS[invocation.effect] if faults is None or f in faults
        ]
        if not possible or draw.random() >= self._often:
            return None, draw
        return draw.choice(possible), draw

    async def _overtaken(self, seconds: float) -> None:
        """Wait until another call has ended, or no longer than this."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return


def chaos(
    tools: Tools | Tool[..., Any],
    *,
    seed: int,
    faults: Iterable[Fault] | None = None,
    often: float = 0.5,
) -> Chaos:
    """Put tools into a storm: a list of tools for `Remit(tools=[...])`, whose `.suffered` tells what happened.

    `faults` are those that may strike, all by default; `often` is the share of deliveries that one strikes, 0 to 1.
    Errors: `ConfigurationError` for a tool that is executed elsewhere, an unknown fault and an `often` that is no share.
    """
    if isinstance(faults, str):
        raise ConfigurationError(f"faults= is a list: write [{faults!r}]")
    unknown = sorted(set(faults or ()) - set(_FAULTS[Effect.READ]))
    if unknown:
        raise ConfigurationError(f"unknown faults: {', '.join(map(repr, unknown))}")
    if not 0 <= often <= 1:
        raise ConfigurationError(
            f"often={often}: the share of deliveries that a fault strikes is between 0 and 1"
        )
    given = (tools,) if isinstance(tools, Tool) else tools
    return Chaos(given, seed, None if faults is None else tuple(faults), often)
