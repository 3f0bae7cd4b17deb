"""The writing side of a run's journal: apply a row, queue it, make it durable.

The loop says `write` for everything that happens and `commit` where it must be durable before it goes on.
Rows are applied when they are written, so that the state never lags; they are encoded once and leave
in one transaction per commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from remit.artifacts import Artifact
from remit.errors import JournalError
from remit.rows import Row, encode_row
from remit.state import RunState
from remit.store.base import Journal, Lease, NewProposal, NewRow, Posted, RunStatus

__all__ = ["Record"]


class Record:
    """What one activation writes."""

    __slots__ = (
        "_artifacts",
        "_committing",
        "_failure",
        "_inbox_max",
        "_kept",
        "_lease",
        "_moot",
        "_proposals",
        "_rows",
        "_state",
        "_taken",
        "_told",
        "store",
    )

    def __init__(self, state: RunState, store: Journal, lease: Lease) -> None:
        self.store = store
        self._state = state
        self._lease = lease
        self._rows: list[NewRow] = []
        self._proposals: tuple[NewProposal, ...] = ()
        self._artifacts: list[Artifact] = []
        self._kept: dict[str, None] = {}
        """Handles of what this activation has kept; an empty set takes four times as much."""
        self._told: tuple[Callable[[], None], ...] = ()
        self._committing: list[asyncio.Future[None]] | None = None
        """Those who wait for the transaction that is under way; None where there is none."""
        self._failure: JournalError | None = None
        """Why nothing can be written any more: rows were lost, and none may follow them."""
        self._taken = lease.taken
        self._inbox_max = lease.inbox_max
        self._moot = 0 if state.ended is None else lease.inbox_max
        """Id of the newest post that came before somebody took the run up although it had ended."""

    def write(self, row: Row) -> None:
        """Apply a row and queue it for the next commit."""
        encoded = NewRow(row.kind, encode_row(row))
        self._state.apply(row)
        self._rows.append(encoded)

    def propose(self, proposal: NewProposal, *, told: Callable[[], None] | None = None) -> None:
        """Queue a proposal: it becomes decidable with the rows that are queued now.

        `told` is called when it is durable.
        """
        self._proposals = (*self._proposals, proposal)
        if told is not None:
            self._told = (*self._told, told)

    def keep(self, data: bytes, media_type: str) -> str:
        """Queue an artifact, which is there with the rows that are queued now. Returns its handle."""
        artifact = Artifact.of(data, media_type)
        self.put(artifact)
        return artifact.handle

    def put(self, *artifacts: Artifact) -> None:
        """The same for artifacts that were made elsewhere, off the event loop."""
        for artifact in artifacts:
            if artifact.handle not in self._kept:
                self._kept[artifact.handle] = None
                self._artifacts.append(artifact)

    async def commit(self, *, wave: bool = False) -> None:
        """Make everything written so far durable.

        `wave`: others are about to commit at this very turn of the event loop; one transaction serves
        them all.
        Errors: `JournalError`.
        """
        while self._rows or self._committing is not None or self._failure is not None:
            if self._committing is not None:
                await self._committed(self._committing)
            else:
                await self._append("running", wave=wave)

    async def close(self, status: RunStatus, reason: str | None = None) -> bool:
        """Commit under a new status, `reason` says why a run ends. False where the run meant to wait but the inbox has something.

        Errors: `JournalError`.
        """
        while self._committing is not None:
            await self._committed(self._committing)
        return await self._append(status, reason=reason) == status

    @property
    def is_held(self) -> bool:
        """Whether this process may still enter a body for the run (J2). From any thread."""
        return self.store.holds(self._lease)

    async def release(self) -> None:
        """Give the lease back."""
        if self._failure is not None:
            self._failure.with_traceback(None)  # its frames hold the run, which holds this
        await self.store.release(self._lease)

    @property
    def has_mail(self) -> bool:
        """Whether the last commit told of something that nobody has taken."""
        return self._inbox_max > self._taken

    def is_news(self, newest: int) -> bool:
        """Whether a post of this id is one that nobody here knows of."""
        return newest > self._inbox_max

    def is_moot(self, cancel: Posted) -> bool:
        """Whether a cancel came too late: the run had ended, and whoever took it up again wants it to go on."""
        return cancel.id <= self._moot

    async def peek(self) -> Sequence[Posted]:
        """What outsiders left and nobody has taken. It is not taken; `has_mail` knows of it from here on."""
        posts = await self.store.inbox(self._lease.run_id, self._taken)
        if posts:
            self._inbox_max = max(self._inbox_max, posts[-1].id)
        return posts

    async def inbox(self, *, poll: bool = False) -> Sequence[Posted]:
        """What outsiders left and nobody has taken yet. It counts as taken with the next commit.

        `poll`: ask the store even if the last commit told of nothing new.
        """
        if not poll and not self.has_mail:
            return ()
        posts = await self.store.inbox(self._lease.run_id, self._taken)
        # Of two who ask at the same time each post goes to one.
        posts = [posted for posted in posts if posted.id > self._taken]
        if posts:
            self._taken = posts[-1].id
        return posts

    async def _committed(self, waiting: list[asyncio.Future[None]]) -> None:
        """Wait for the transaction that is under way, however it ends."""
        waits = asyncio.get_running_loop().create_future()
        waiting.append(waits)
        await waits

    async def _append(
        self, status: RunStatus, *, reason: str | None = None, wave: bool = False
    ) -> RunStatus:
        """One transaction, the only one at its time, with all that is queued when it begins."""
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        waiting = self._committing = []
        try:
            if wave:
                await asyncio.sleep(0)
            rows, self._rows = self._rows, []
            proposals, self._proposals = self._proposals, ()
            artifacts, self._artifacts = self._artifacts, []
            told, self._told = self._told, ()
            # Until the answer is there nobody knows whether the rows are.
            self._failure = JournalError("a transaction did not come to its end")
            try:
                control = await self.store.append(
                    self._lease,
                    rows,
                    status=status,
                    reason=reason,
                    proposals=proposals,
                    taken=self._taken,
                    artifacts=artifacts,
                )
            except JournalError as error:
                self._failure = error
                raise
            self._failure = None
        finally:
            self._committing = None
            if waiting:
                waiting.insert(0, loop.create_future())  # for ourselves
                loop.call_soon(_go_on, waiting)
        self._inbox_max = max(self._inbox_max, control.inbox_max)
        for tell in told:
            tell()
        if waiting and status == "running":
            await waiting[0]  # all go on in one turn, in the order they came in: they stay one wave
        return control.status


def _go_on(waiting: list[asyncio.Future[None]]) -> None:
    for each in waiting:
        if not each.done():  # whoever waited was cancelled
            each.set_result(None)
