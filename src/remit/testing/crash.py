"""Crash points: stop the world at every boundary of a journal, and keep nothing but what is in it.

A crash is not an exception: no `finally` of remit or of a tool has any say in what survives. The process is
played by an event loop on virtual time; at the chosen boundary the call of the journal does not return, the
loop stops, and only the committed rows, and what a downstream service was told until then, are left. The
test then resumes in a fresh `Remit` and compares:

    for point in crash_points(scenario):
        outcome = run_virtual(remit_over(point.store, point.ledger).resume("r"))
        assert point.ledger.effects == effects_without_a_crash, point

This is no model of a disk: what `append` committed is there. Real kills of a real process are another test.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Never, TypeAlias, TypeVar

from remit.artifacts import Artifact
from remit.late import STILL_RUNNING
from remit.pending import TOKENS, PendingKind
from remit.store.base import (
    Control,
    Held,
    Lease,
    NewProposal,
    NewRow,
    NewRun,
    NotNext,
    Posted,
    PostKind,
    ProposalInfo,
    RunInfo,
    RunRows,
    RunStatus,
    StoredRow,
    Superseded,
)
from remit.store.directory import RunEntry, RunQuery
from remit.store.grants import Grant
from remit.store.memory import MemoryStore
from remit.store.watching import watched
from remit.testing.loop import VirtualLoop

__all__ = ["CrashPoint", "CrashStore", "Ledger", "Scenario", "crash_points"]

T = TypeVar("T")

_TURNS = 5
"""Turns of the event loop in which a cancelled task ends and those who watch it are told."""


class Ledger:
    """A downstream service that knows idempotency keys, and outlives its callers.

    A tool under test tells it `done(call.key)`; the first call under a key takes effect, every other one gets
    the same answer. Once the world has crashed nobody reaches it any more.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        """The key of every call, in the order in which they arrived."""
        self.effects: dict[str, Any] = {}
        """What took effect, by key."""
        self.closed = False

    def done(self, key: str, value: Any = None) -> Any:
        """Have an effect under a key. Returns the value of whichever call was the first."""
        if self.closed:
            return value
        self.calls.append(key)
        return self.effects.setdefault(key, value)

    def times(self, key: str) -> int:
        """How often it was called under this key."""
        return self.calls.count(key)


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction as it was asked for."""

    what: str
    """The method, and for rows their run's status and kinds: `append running: replied started`."""
    run_id: str
    rows: tuple[NewRow, ...] = ()


@dataclass(slots=True)
class CrashStore:
    """A `MemoryStore` that counts its transactions, and at one of their boundaries stops the world.

    Boundary 2k is before its k-th transaction, 2k + 1 after it. `latency` is the time in seconds that
    passes on either side of a commit, so that others can act while it is under way.
    """

    at: int | None = None
    """The boundary to stop at; None: none."""
    latency: float = 0.0
    inner: MemoryStore = field(default_factory=MemoryStore)
    """What survives."""
    ledger: Ledger = field(default_factory=Ledger)
    commits: list[Commit] = field(default_factory=list[Commit], init=False)
    boundaries: list[str] = field(default_factory=list[str], init=False)
    """Those passed so far, in words."""
    frozen: bool = field(default=False, init=False)
    _leases: list[Lease] = field(default_factory=list[Lease], init=False)

    async def create(self, run: NewRun) -> bool | NotNext:
        commit = Commit("create", run.run_id, (run.opened,))
        return await self._commit(commit, lambda: self.inner.create(run))

    async def info(self, run_id: str) -> RunInfo | None:
        return await self._look(lambda: self.inner.info(run_id))

    async def acquire(self, run_id: str, owner: str) -> Lease | Held | Superseded:
        lease = await self._look(lambda: self.inner.acquire(run_id, owner))
        if isinstance(lease, Lease):
            self._leases.append(lease)
        return lease

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        return await self._look(lambda: self.inner.read(run_id, after))

    async def append(
        self,
        lease: Lease,
        rows: Sequence[NewRow],
        *,
        status: RunStatus = "running",
        reason: str | None = None,
        proposals: Sequence[NewProposal] = (),
        taken: int = 0,
        artifacts: Sequence[Artifact] = (),
    ) -> Control:
        kinds = " ".join(row.kind for row in rows)
        commit = Commit(f"append {status}: {kinds}", lease.run_id, tuple(rows))
        return await self._commit(
            commit,
            lambda: self.inner.append(
                lease,
                rows,
                status=status,
                reason=reason,
                proposals=proposals,
                taken=taken,
                artifacts=artifacts,
            ),
        )

    def holds(self, lease: Lease) -> bool:
        return self.inner.holds(lease)

    async def release(self, lease: Lease) -> None:
        if not self.frozen:
            await self.inner.release(lease)

    async def post(
        self,
        run_id: str,
        kind: PostKind,
        body: bytes = b"",
        *,
        artifacts: Sequence[Artifact] = (),
    ) -> bool:
        return await self._commit(
            Commit(f"post {kind}", run_id),
            lambda: self.inner.post(run_id, kind, body, artifacts=artifacts),
        )

    async def inbox(self, run_id: str, after: int = 0) -> Sequence[Posted]:
        return await self._look(lambda: self.inner.inbox(run_id, after))

    async def read_back(self, run_id: str, known: Mapping[str, bytes]) -> Sequence[RunRows]:
        return await self._look(lambda: self.inner.read_back(run_id, known))

    async def artifact(self, run_id: str, digest: str) -> Artifact | None:
        return await self._look(lambda: self.inner.artifact(run_id, digest))

    async def artifacts(
        self, run_id: str, digests: Sequence[str], take: Callable[[Artifact], object]
    ) -> int:
        return await self._look(lambda: self.inner.artifacts(run_id, digests, take))

    async def decide(
        self,
        *,
        token_hash: bytes | None = None,
        pending_id: str | None = None,
        arguments_hash: str | None = None,
        kind: PendingKind = "approval",
        decision: bytes,
        now: datetime,
    ) -> str:
        return await self._commit(
            Commit("decide" if kind == "approval" else "supply", ""),
            lambda: self.inner.decide(
                token_hash=token_hash,
                pending_id=pending_id,
                arguments_hash=arguments_hash,
                kind=kind,
                decision=decision,
                now=now,
            ),
        )

    async def proposal(self, pending_id: str) -> ProposalInfo | None:
        return await self._look(lambda: self.inner.proposal(pending_id))

    async def renew(self, pending_id: str, token_hash: bytes) -> None:
        await self._commit(Commit("renew", ""), lambda: self.inner.renew(pending_id, token_hash))

    async def withdraw(self, pending_id: str) -> bool:
        return await self._commit(Commit("withdraw", ""), lambda: self.inner.withdraw(pending_id))

    async def add_grant(self, grant: Grant) -> None:
        await self._commit(Commit("grant", ""), lambda: self.inner.add_grant(grant))

    async def grants(self, remit: str, tool: str | None = None) -> Sequence[Grant]:
        return await self._look(lambda: self.inner.grants(remit, tool))

    async def revoke_grant(self, grant_id: str, *, at: datetime) -> bool:
        return await self._commit(
            Commit("revoke", ""), lambda: self.inner.revoke_grant(grant_id, at=at)
        )

    async def runs(self, query: RunQuery, *, count: int) -> Sequence[RunEntry]:
        return await self._look(lambda: self.inner.runs(query, count=count))

    def watch(self, run_id: str, after: int = -1) -> AsyncIterator[StoredRow]:
        return watched(self, run_id, after)

    @property
    def opened(self) -> tuple[str, ...]:
        """The ids of all runs, in the order in which they were opened."""
        return tuple(dict.fromkeys(c.run_id for c in self.commits if c.what == "create"))

    async def give_back_leases(self) -> None:
        """What time does for a dead process: its leases run out."""
        for lease in self._leases:
            await self.inner.release(lease)

    async def _commit(self, commit: Commit, act: Callable[[], Awaitable[T]]) -> T:
        await self._boundary(f"before {commit.what}")
        done = await act()
        if not isinstance(done, NotNext):  # nothing was opened
            self.commits.append(commit)
        await self._boundary(f"after {commit.what}")
        return done

    async def _look(self, act: Callable[[], Awaitable[T]]) -> T:
        if self.frozen:
            await _for_ever()
        return await act()

    async def _boundary(self, what: str) -> None:
        if self.latency and not self.frozen:
            await asyncio.sleep(self.latency)
        if not self.frozen:
            self.boundaries.append(what)
            self.frozen = self.ledger.closed = len(self.boundaries) - 1 == self.at
            if self.frozen:
                asyncio.get_running_loop().stop()
        if self.frozen:
            await _for_ever()


Scenario: TypeAlias = Callable[[CrashStore], Coroutine[Any, Any, object]]
"""What happens, over a store, up to its end; with `store.ledger` as the world outside."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """What a crash left behind."""

    index: int
    """Of the boundary, from 0."""
    what: str
    """The boundary in words: `after append running: replied started`."""
    store: MemoryStore
    """The committed bytes. The leases of the dead have run out."""
    runs: tuple[str, ...]
    """The ids of the runs that are in it, in the order in which they were opened."""
    ledger: Ledger
    """Open again, with what it was told before the crash."""


def crash_points(scenario: Scenario, *, latency: float = 0.0) -> Iterator[CrashPoint]:
    """Play a scenario again and again, and crash it at one boundary after the other.

    It ends with the play that comes to the scenario's end. So a scenario must be the same at every play,
    and wait for nothing but virtual time: `SimulatedWorkers` instead of threads.
    Errors: what the scenario raises before it crashes.
    """
    at = 0
    while True:
        store = CrashStore(at, latency)
        if not _crashes(scenario, store):
            return
        store.ledger.closed = False
        yield CrashPoint(at, store.boundaries[-1], store.inner, store.opened, store.ledger)
        at += 1


def _crashes(scenario: Scenario, store: CrashStore) -> bool:
    """Play until the crash or the end. Whether it crashed."""
    tokens, running = set(TOKENS), STILL_RUNNING.keys
    loop = VirtualLoop()
    try:
        task = loop.create_task(scenario(store))
        task.add_done_callback(lambda _: loop.stop())
        loop.run_forever()
        if not store.frozen:
            task.result()
            return False
        _drop_everything(loop)
        loop.run_until_complete(store.give_back_leases())
    finally:
        loop.close()
    # What a process knows beside its journal dies with it.
    for pending_id in TOKENS.keys() - tokens:
        del TOKENS[pending_id]
    STILL_RUNNING.forget(STILL_RUNNING.keys - running)
    return True


def _drop_everything(loop: asyncio.AbstractEventLoop) -> None:
    """Take the tasks apart where they stand; the world is closed, so nobody can tell."""
    loop.set_exception_handler(lambda _loop, _context: None)
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        # A `finally` that awaits refuses to be closed; it is not heard of again all the same.
        with contextlib.suppress(BaseException):
            task.get_coro().close()
    for task in tasks:
        task.cancel()
    for _ in range(_TURNS):
        loop.call_soon(loop.stop)
        loop.run_forever()
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


async def _for_ever() -> Never:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody wakes the dead")
