"""One process that resumes one run several times at once: from one event loop, and from several."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remit
from remit import Limits, Outcome, Reason, Remit
from remit.models.scripted import ScriptedModel
from remit.store.base import Journal
from remit.store.memory import MemoryStore
from remit.store.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "memory":
        yield MemoryStore()
        return
    made = SqliteStore(tmp_path / "runs.db")
    yield made
    made.close()


class Till:
    """Pays, and counts."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    @remit.tool(effect="confirm")
    async def pay(self, to: str) -> str:
        """Pay somebody."""
        self.paid.append(to)
        return f"paid {to}"


def desk(store: Journal, till: Till) -> Remit[None]:
    model = ScriptedModel([[("pay", {"to": "ann"})], "Paid."])
    limits = Limits(steps=5, tokens=10_000, seconds=60)
    return Remit(name="desk", model=model, tools=[till.pay], limits=limits, store=store)


async def approved(asked: Remit[None]) -> None:
    waiting = await asked.run("pay ann", run_id="r")
    await asked.decide(waiting.pending[0].token, approve=True, by="dana")


def all_of(outcomes: list[Outcome[Any]]) -> set[tuple[Reason, str]]:
    return {(each.reason, each.text) for each in outcomes}


def test_of_those_who_resume_at_once_one_goes_on_and_the_others_follow(store: Journal) -> None:
    """J3, E1: two deliveries of one approval to one process are no error for either of them."""
    till = Till()

    async def main() -> list[Outcome[Any]]:
        asked = desk(store, till)
        await approved(asked)
        resumed = [asked.resume("r") for _ in range(9)]
        return await asyncio.gather(*resumed, asked.run("pay ann", run_id="r"))

    assert all_of(asyncio.run(main())) == {(Reason.COMPLETED, "Paid.")}
    assert till.paid == ["ann"]


def test_so_do_those_of_other_event_loops(store: Journal) -> None:
    """J3, E1: a web server with a loop for each thread."""
    till, outcomes = Till(), list[Outcome[Any]]()
    asked = desk(store, till)
    asyncio.run(approved(asked))
    together = threading.Barrier(6)

    def resume() -> None:
        together.wait(30)
        outcomes.append(asyncio.run(asked.resume("r")))

    threads = [threading.Thread(target=resume) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 6
    assert all_of(outcomes) == {(Reason.COMPLETED, "Paid.")}
    assert till.paid == ["ann"]


def test_whoever_follows_may_leave_before_there_is_anything_to_follow(store: Journal) -> None:
    """K1, J3: a follower that is cancelled ends nothing, for the others either."""
    till = Till()

    async def main() -> list[Outcome[Any]]:
        asked = desk(store, till)
        await approved(asked)
        leaving = [asyncio.ensure_future(asked.resume("r")) for _ in range(3)]
        staying = [asyncio.ensure_future(asked.resume("r")) for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        for each in leaving[1:]:
            each.cancel()
        return list(await asyncio.gather(leaving[0], *staying))

    assert all_of(asyncio.run(main())) == {(Reason.COMPLETED, "Paid.")}
    assert till.paid == ["ann"]
