"""Whether a tool does what its effect says: run again, under one key and under others, and the world compared.

`effect="idempotent"` is a claim about a downstream service that remit cannot see, and relies on after every crash
and timeout. This takes the author at their word, in a test of theirs:

    check_effects(refund, [EffectCase({"order_id": "1042"}, world=shop.snapshot, reset=shop.clear)])

The tool runs in real runs: validated, wrapped, with its timeouts, approved where it has to be. Two runs of one id in
two stores ask for the very same call under the very same key, which is what a second process does after a crash.
Nobody is asked, and nothing is known, of the function's code: what the cases do not show is not checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import itertools
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.messages import Status, Text, ToolResult
from remit.models.scripted import ScriptedModel
from remit.pending import Decision, Pending
from remit.preview import preview
from remit.remit import Remit
from remit.render import error_words, render
from remit.store.memory import MemoryStore
from remit.tools import Effect, Tool
from remit.tools.derived import Invocation, Proceed

__all__ = [
    "EffectCase",
    "EffectFinding",
    "EffectReport",
    "FalseEffect",
    "check_effects",
    "effects_of",
]

_MOST_CUTS: Final = 64
_LIMITS: Final = Limits(steps=3, tokens=10_000_000, seconds=600)


@dataclass(frozen=True, slots=True)
class EffectCase:
    """One call to try, and how to look at what it did."""

    arguments: Mapping[str, Any]
    """As a model would give them."""
    world: Callable[[], object] | None = None
    """A snapshot of what the tool may change: compared with `==`, and copied before. None: only results are compared."""
    reset: Callable[[], object] | None = None
    """Puts the world back to where it was. With it the function is also run at once with itself, each time from the
    same beginning, and broken off at every one of its waits; without it, runs at once are compared by results alone."""
    restart: Callable[[], object] | None = None
    """Drops what only this process remembers, as a new one begins: a cache, a set of keys that were seen."""
    deps: Any = None
    another_key_is_another_effect: bool = False
    """Under two keys it has to take effect twice: a refund does, a cancellation need not."""


@dataclass(frozen=True, slots=True)
class EffectFinding:
    """A case in which the tool is not what it says."""

    case: int
    """Its place, from 0."""
    rule: str
    """A stable word for what was checked: `again`, `at once`, `another process`, `another key`, `reconcile` ..."""
    says: str


@dataclass(frozen=True, slots=True)
class EffectReport:
    """What came of all cases."""

    tool: str
    effect: Effect
    findings: tuple[EffectFinding, ...]
    checks: int
    """How many comparisons were made."""

    def __str__(self) -> str:
        """A line for each finding."""
        head = f"{self.tool}, effect={self.effect.value!r}: "
        if not self.findings:
            return f"{head}{self.checks} checks, nothing found"
        width = max(len(found.rule) for found in self.findings)
        lines = [f"  case {each.case}  {each.rule:{width}}  {each.says}" for each in self.findings]
        return "\n".join([f"{head}{len(lines)} of {self.checks} checks failed", *lines])


class FalseEffect(AssertionError):
    """A tool is not what its effect says."""

    def __init__(self, report: EffectReport) -> None:
        super().__init__(str(report))
        self.report = report


def check_effects(
    tool: Tool[..., Any], cases: Iterable[EffectCase | Mapping[str, Any]]
) -> EffectReport:
    """Try a tool on some cases; bare arguments are a case whose world nobody looks at.

    `read` must change nothing. `idempotent` must come to the same under one key: again, at once with itself, in another
    process, and after it was broken off. `confirm` with a reconcile function must tell there what a run came to, and nothing before.
    Errors: `FalseEffect`, an `AssertionError` with a table; `ConfigurationError` for a tool or case that cannot be
    tried, and inside a running event loop, where `await effects_of(...)` gives the report.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        report = asyncio.run(effects_of(tool, cases))
    else:
        raise ConfigurationError("an event loop runs here: use `await effects_of(tool, cases)`")
    if report.findings:
        raise FalseEffect(report)
    return report


async def effects_of(
    tool: Tool[..., Any], cases: Iterable[EffectCase | Mapping[str, Any]]
) -> EffectReport:
    """The same on the running event loop, and nothing is raised for what is found.

    Errors: `ConfigurationError` for a tool or case that cannot be tried.
    """
    given = _given(tool, cases)
    trials = [_Trial(tool, number, case) for number, case in enumerate(given)]
    for trial in trials:
        await trial.run()
    findings = tuple([found for trial in trials for found in trial.findings])
    return EffectReport(tool.name, tool.effect, findings, sum(trial.checks for trial in trials))


def _given(tool: object, cases: object) -> list[EffectCase]:
    """The cases, and that each can be tried. Errors: `ConfigurationError`."""
    if not isinstance(tool, Tool):
        raise ConfigurationError(
            f"{_short(tool)} is no tool: decorate it with @remit.tool(effect=...)"
        )
    if tool.is_elsewhere or tool.needs_instance:
        kind = "executed elsewhere" if tool.is_elsewhere else "a method without its instance"
        raise ConfigurationError(f"tool {tool.name!r} is {kind}: there is nothing here to run")
    if isinstance(cases, EffectCase | Mapping | str) or not isinstance(cases, Iterable):
        raise ConfigurationError(
            "cases is a list: [EffectCase({...}, world=...), ...], or of bare arguments"
        )
    given: list[EffectCase] = []
    for case in cast("Iterable[object]", cases):
        made = case if isinstance(case, EffectCase) else EffectCase(cast("Any", case))
        if not isinstance(made.arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ConfigurationError(
                f"case {len(given)} has no arguments: {_short(made.arguments)} is no mapping of names to values"
            )
        given.append(made)
    if not given:
        raise ConfigurationError("without a case nothing is checked: give at least one")
    return given


@dataclass(slots=True)
class _Ended:
    """One delivery of the call."""

    result: ToolResult
    key: str = ""
    value: object = None
    """What the function returned."""

    @property
    def text(self) -> str:
        return "\n".join([block.text for block in self.result.content if isinstance(block, Text)])


@dataclass(slots=True)
class _Trial:
    """One case and its checks."""

    tool: Tool[..., Any]
    number: int
    case: EffectCase
    findings: list[EffectFinding] = field(default_factory=list[EffectFinding])
    checks: int = 0
    _keys: int = 0

    async def run(self) -> None:
        match self.tool.effect:
            case Effect.READ:
                await self._read()
            case Effect.IDEMPOTENT:
                await self._idempotent()
            case Effect.CONFIRM:
                await self._confirm()

    async def _read(self) -> None:
        await self._reset()
        before = self._world()
        for rule in ("once", "again"):
            if not self._came_off(await self._deliver("r-0"), rule):
                return
            self._unchanged(rule, before, "it changed the world, and is a read")

    async def _idempotent(self) -> None:
        await self._reset()
        before = self._world()
        first = await self._deliver("r-0")
        once = self._world()
        if not self._came_off(first, "once"):
            return
        self._same("again", first, await self._deliver("r-0"), once)
        if self.case.restart is not None:
            await _done(self.case.restart)
            self._same("another process", first, await self._deliver("r-0"), once)
        if self.case.reset is not None:
            await self._reset()
            self._unchanged("reset", before, "the world is another after reset()")
            await self._cut_short(first, once)
            await self._reset()
        await self._at_once(first, once)
        await self._another_key()

    async def _cut_short(self, first: _Ended, once: object) -> None:
        """Break off at every wait of the function, as a kill does, and deliver again."""
        for at in range(_MOST_CUTS if self.tool.is_async else 0):
            await self._reset()
            if not await self._broken_off("r-0", at):
                return
            self._same(f"cut at wait {at + 1}", first, await self._deliver("r-0"), once)

    async def _at_once(self, first: _Ended, once: object) -> None:
        both = asyncio.Barrier(2)
        run_id = "r-0" if self.case.reset is not None else "r-1"
        one, two = await asyncio.gather(
            self._deliver(run_id, meets=both), self._deliver(run_id, meets=both)
        )
        if self.case.reset is None:
            # Whatever a first one under this key does, two of them at once have to agree.
            self._expect("at once", one.text == two.text, _differ(one, two))
            return
        self._same("at once", first, one, once)
        self._expect("at once", one.text == two.text, _differ(one, two))

    async def _another_key(self) -> None:
        if not self.case.another_key_is_another_effect or self.case.world is None:
            return
        await self._reset()
        await self._deliver("r-2")
        alone = self._world()
        await self._deliver("r-3")
        told = "a second call under a key of its own changed nothing: it is taken for the first"
        self._expect("another key", self._world() != alone, told)

    async def _confirm(self) -> None:
        reconciler = self.tool.reconciler
        await self._reset()
        if reconciler is None:
            self._came_off(await self._deliver("r-0"), "once")
            return
        before = self._world()
        key = await self._key_of("r-0")
        known = await _asked(reconciler.bind(key), is_async=reconciler.is_async)
        told = f"reconcile tells of a call that never ran: {_short(known)}"
        self._expect("reconcile", known is None, told)
        self._unchanged("reconcile", before, "reconcile changed the world")
        ended = await self._deliver("r-0")
        if not self._came_off(ended, "once"):
            return
        once = self._world()
        known = await _asked(reconciler.bind(ended.key), is_async=reconciler.is_async)
        told = f"reconcile tells {_short(known)}, and the call came to {_short(ended.value)}"
        self._expect("reconcile", known is not None and _equal(known, ended.value), told)
        self._unchanged("reconcile", once, "reconcile changed the world")
        if reconciler.takes_key:
            other = await _asked(
                reconciler.bind(await self._key_of("r-1")), is_async=reconciler.is_async
            )
            told = f"reconcile tells of another key what this one came to: {_short(other)}"
            self._expect("reconcile", other is None, told)

    # One delivery

    async def _deliver(self, run_id: str, *, meets: asyncio.Barrier | None = None) -> _Ended:
        """Run the call in a store of its own: the same run id is the same key."""
        seen: list[tuple[str, object]] = []

        async def observed(invocation: Invocation, proceed: Proceed) -> Any:
            if meets is not None:
                await meets.wait()
            value = await proceed()
            seen.append((invocation.call.key, value))
            return value

        result = await self._called(self.tool.wrapped(observed), run_id)
        key, value = seen[-1] if seen else ("", None)
        return _Ended(result, key, value)

    async def _broken_off(self, run_id: str, at: int) -> bool:
        """Deliver, and let the function get no further than its wait number `at`. Whether it has one."""
        reached: list[bool] = []

        async def cut(invocation: Invocation, proceed: Proceed) -> Any:
            del invocation
            return await _UpToAWait(proceed(), at, reached)

        await self._called(self.tool.wrapped(cut), run_id)
        return bool(reached)

    async def _key_of(self, run_id: str) -> str:
        """The key that the call has in this run, without entering the function."""
        keys: list[str] = []

        async def kept_out(invocation: Invocation, proceed: Proceed) -> str:
            del proceed
            keys.append(invocation.call.key)
            return "not run"

        result = await self._called(self.tool.wrapped(kept_out), run_id)
        if not keys:
            self._came_off(_Ended(result), "once")
        return keys[0] if keys else ""

    async def _called(self, tool: Tool[..., Any], run_id: str) -> ToolResult:
        model = ScriptedModel([(tool.name, dict(self.case.arguments)), "done"])
        remit = Remit(
            name="effects",
            model=model,
            # Two processes: names that exclude each other inside of one hold nobody back here.
            tools=[tool.unclaimed()],
            limits=_LIMITS,
            confirm=_approves,
            store=MemoryStore(),
        )
        outcome = await remit.run("try", run_id=run_id, deps=self.case.deps)
        results = [each for message in outcome.transcript for each in message.tool_results]
        if outcome.pending:
            raise ConfigurationError(
                f"tool {tool.name!r} asks a question: what asks cannot be tried alone"
            )
        if not results:
            raise ConfigurationError(
                f"tool {tool.name!r} could not be tried: {outcome.reason.value}: {outcome.error}"
            )
        return results[0]

    # Comparing

    async def _reset(self) -> None:
        if self.case.reset is not None:
            await _done(self.case.reset)

    def _world(self) -> object:
        """Errors: `ConfigurationError` for what is no snapshot."""
        if self.case.world is None:
            return None
        world = self.case.world()
        if inspect.isawaitable(world):
            if inspect.iscoroutine(world):
                world.close()
            raise ConfigurationError(
                f"world= of case {self.number} is asynchronous: it is a function that gives a snapshot"
            )
        try:
            return copy.deepcopy(world)
        except Exception as error:  # an author's objects may raise anything when copied
            raise ConfigurationError(
                f"world= of case {self.number} gives no snapshot: it cannot be copied ({error_words(error)})"
            ) from error

    def _came_off(self, ended: _Ended, rule: str) -> bool:
        fine = ended.result.status is Status.OK
        self._expect(
            rule, fine, f"the case shows nothing, for the call came to: {_short(ended.text)}"
        )
        return fine

    def _same(self, rule: str, first: _Ended, second: _Ended, once: object) -> None:
        self._unchanged(rule, once, "under the same key it took effect once more")
        self._expect(rule, first.text == second.text, _differ(first, second))

    def _unchanged(self, rule: str, before: object, says: str) -> None:
        """The world is what it was; nothing is checked, and nothing counted, where nobody looks at it."""
        if self.case.world is not None:
            self._expect(rule, self._world() == before, says)

    def _expect(self, rule: str, holds: bool, says: str) -> None:
        self.checks += 1
        if not holds:
            self.findings.append(EffectFinding(self.number, rule, says))


async def _approves(pending: Pending) -> Decision:
    del pending
    return Decision(approve=True, by="check_effects")


async def _asked(reconcile: Callable[[], Any], *, is_async: bool) -> Any:
    if is_async:
        return await reconcile()
    return await asyncio.to_thread(reconcile)


async def _done(work: Callable[[], object]) -> None:
    made = work()
    if inspect.isawaitable(made):
        await made


class _UpToAWait:
    """Drives a coroutine to one of its waits, and there drops it."""

    def __init__(self, work: Awaitable[Any], at: int, reached: list[bool]) -> None:
        self._work = work
        self._at = at
        self._reached = reached

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        for number in itertools.count():
            try:
                waits_for = next(steps)
            except StopIteration as end:
                return end.value
            if number == self._at:
                self._reached.append(True)
                with contextlib.suppress(RuntimeError):  # a `finally` that waits: a kill has none
                    steps.close()
                raise ConnectionError("cut short by check_effects")
            yield waits_for
        raise AssertionError("it is counted without an end")


def _equal(one: object, two: object) -> bool:
    return one == two or render(one) == render(two)


def _differ(one: _Ended, two: _Ended) -> str:
    return f"under the same key it came to {_short(one.text)} and then to {_short(two.text)}"


def _short(value: object) -> str:
    return preview(value if isinstance(value, str) else repr(value))
