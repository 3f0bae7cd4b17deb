"""Clocks that a host brings: one that gives no instant is refused at once, and none is too early or too late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import remit
from loop_rig import desk, model_of, statuses
from remit import Call, ConfigurationError, Limits, MemoryStore, Reason, Runtime, SqliteStore
from remit.clock import LAST_INSTANT, later
from remit.store.base import Journal

EDGES = [
    datetime.min.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=-12))),
    datetime(9999, 12, 31, 12, tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=12))),
]
NO_INSTANTS: list[Any] = [
    datetime(2026, 1, 1),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
    datetime.max.replace(tzinfo=UTC),
    1_767_225_600.0,
    None,
]


@remit.tool(effect="confirm", expires=3_600)
async def pay(amount: int, call: Call[list[str]]) -> str:
    """Pay."""
    call.deps.append("paid")
    return f"paid {amount}"


@remit.tool(effect="read")
async def ask(call: Call[list[str]]) -> str:
    """Ask."""
    return call.ask(str, "Which?")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "memory":
        yield MemoryStore()
        return
    file = SqliteStore(tmp_path / "runs.db")
    yield file
    file.close()


def at(now: Any, store: Journal, *turns: Any) -> remit.Remit[Any]:
    given: Callable[[], Any] = lambda: now  # noqa: E731 - a clock that stands still
    return desk([*turns], [pay, ask], store=store, runtime=Runtime(now=given))


@pytest.mark.parametrize("now", NO_INSTANTS, ids=str)
def test_a_clock_that_gives_no_instant_is_refused_before_anything_is_sent(
    now: Any, store: Journal
) -> None:
    """L4, E5: a naive time is one of nobody knows where; it is no error of remit's in the middle of a run."""

    async def main() -> None:
        wrong = at(now, store, "done")
        with pytest.raises(ConfigurationError, match="Runtime"):
            await wrong.run("go", run_id="r")
        assert not model_of(wrong).requests
        assert await store.info("r") is None
        right = at(datetime(2026, 1, 1, tzinfo=UTC), store, [("pay", {"amount": 5})], "done")
        waiting = await right.run("go", run_id="r", deps=list[str]())
        with pytest.raises(ConfigurationError):
            await wrong.decide(waiting.pending[0].token, approve=True, by="dana")
        with pytest.raises(ConfigurationError):
            await wrong.grant("pay", arguments={"amount": 5}, expires=60, by="dana")
        with pytest.raises(ConfigurationError):
            await wrong.resume("r")
        with pytest.raises(ConfigurationError):
            await wrong.cancel("r")
        await right.decide(waiting.pending[0].token, approve=True, by="dana")
        assert (await right.resume("r", deps=list[str]())).completed, "nobody holds it"

    asyncio.run(main())


@pytest.mark.parametrize("now", EDGES, ids=str)
def test_at_the_edges_of_the_calendar_a_run_is_like_any_other(
    now: datetime, store: Journal
) -> None:
    """L4, E5: what expires after the last day there is does so then."""

    async def main() -> None:
        deps = list[str]()
        support = at(now, store, [("pay", {"amount": 5}), ("ask", {})], "done")
        outcome = await support.run("go", run_id="r", deps=deps)
        assert outcome.reason is Reason.WAITING, outcome.error
        again = await support.resume("r", deps=deps)
        assert {each.id for each in again.pending} == {each.id for each in outcome.pending}
        for pending in again.pending:
            if pending.kind == "approval":
                await support.decide(id=pending.id, approve=True, by="dana")
            else:
                await support.supply(pending.id, "this", by="dana")
        done = await support.resume("r", deps=deps)
        assert statuses(done) == ["ok", "ok"]
        assert deps == ["paid"]
        with contextlib.suppress(ConfigurationError):  # beyond the calendar
            await support.grant("pay", arguments={"amount": 5}, expires=60, by="dana")
        assert isinstance(await support.grants(), tuple)

    asyncio.run(main())


@pytest.mark.parametrize("now", [datetime(2026, 1, 1, tzinfo=UTC), *EDGES], ids=str)
def test_a_time_that_is_too_long_ends_with_the_calendar(now: datetime) -> None:
    """L4: whatever is added to whatever instant, there is one."""
    for seconds in (0.0, 1.0, 1e9, 1e15, 1e300, float("inf")):
        assert later(now, seconds) <= LAST_INSTANT


def test_a_deadline_at_the_edge_of_the_calendar_is_one() -> None:
    """L4: it is an instant like any other."""

    async def main() -> None:
        for deadline in EDGES:
            limits = Limits(steps=3, tokens=100_000, seconds=60, deadline=deadline)
            support = desk(["done"], limits=limits, hand_back=False)
            outcome = await support.run("go")
            assert outcome.reason in (Reason.COMPLETED, Reason.DEADLINE), outcome.error

    asyncio.run(main())
