"""How much is done for a durable step and for a resume, counted: transactions, statements, rows, encodings."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

import remit
from remit import Limits, Remit, Transcript, rows
from remit.artifacts import Artifact
from remit.models.base import ModelRequest
from remit.models.scripted import ScriptedModel
from remit.pending import MOST_TOKENS, TOKENS, keep_token
from remit.report import read_state
from remit.run import Run
from remit.store.base import Lease, NewRow, NewRun, StoredRow
from remit.store.sqlite import SqliteStore

LONG = "what is long stands in an artifact. " * 600
LIMITS = Limits(steps=1_000, tokens=10**9, seconds=3_600)


class _Data(bytes):
    """The data of an artifact, of which it is known how many somebody holds."""

    held = 0

    def __new__(cls, data: bytes) -> Self:
        cls.held += 1
        return super().__new__(cls, data)

    def __del__(self) -> None:
        type(self).held -= 1


class Counting(SqliteStore):
    """Keeps count of what is read from it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rows_read: list[int] = []
        """Rows of each reading."""
        self.artifacts_read: list[int] = []
        self.most_held = 0
        """Artifacts that were read, together."""

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        found = await super().read(run_id, after)
        self.rows_read.append(len(found))
        return found

    async def artifacts(
        self, run_id: str, digests: Sequence[str], take: Callable[[Artifact], object]
    ) -> int:
        def counted(artifact: Artifact) -> None:
            data = _Data(artifact.data)
            self.most_held = max(self.most_held, _Data.held)
            take(Artifact(artifact.handle, artifact.media_type, data))

        taken = await super().artifacts(run_id, digests, counted)
        self.artifacts_read.append(taken)
        return taken

    async def artifact(self, run_id: str, digest: str) -> Artifact | None:
        raise AssertionError(f"{digest} of run {run_id} was asked for alone")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Counting]:
    made = Counting(tmp_path / "runs.db")
    yield made
    made.close()


@remit.tool(effect="read")
async def look(n: int) -> str:
    """Look."""
    return f"{n} {LONG}"


@remit.tool(effect="idempotent")
async def put(n: int) -> str:
    """Put."""
    return f"{n} {LONG}"


@remit.tool(effect="idempotent", resource="place:{n}")
async def write(n: int) -> str:
    """Write."""
    return f"{n} {LONG}"


@remit.tool(effect="confirm")
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def desk(store: SqliteStore, steps: int, calls: Sequence[str], **options: Any) -> Remit[None]:
    """A remit of so many steps, each of which makes these calls."""

    def says(transcript: Transcript, request: ModelRequest) -> Any:
        del request
        step = sum(message.role == "assistant" for message in transcript)
        if step >= steps:
            return "done"
        return [(name, {"n": step * 100 + at}) for at, name in enumerate(calls)]

    return Remit(
        name="desk",
        model=ScriptedModel(says),
        tools=[look, put, write, pay],
        limits=LIMITS,
        store=store,
        **options,
    )


@contextmanager
def encodings() -> Generator[list[int]]:
    """Has the list grow with every row that is encoded meanwhile, by its size in bytes."""
    encoder: Any = rows._encoder
    sizes: list[int] = []

    def seen(frame: FrameType, event: str, function: Any) -> None:
        del frame
        if event == "c_call" and getattr(function, "__self__", None) is encoder:
            sizes.append(0)

    sys.setprofile(seen)
    try:
        yield sizes
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("calls", "commits"),
    [
        (["look"], 1),
        (["look"] * 4, 1),
        (["put"], 2),
        (["write"] * 4, 2),
        (
            ["put"] * 3,
            2 * 3,
        ),  # each touches what the one before it touches: they come one after the other
    ],
)
def test_a_step_takes_two_transactions_at_most(
    store: Counting, calls: list[str], commits: int
) -> None:
    """J1: one for what is asked for and begun, one for what came of it; reads need no word before they begin.

    So it is for calls that run at the same time. Of those that wait for each other each takes two.
    """

    async def counted(steps: int) -> int:
        before = store.commits
        (await desk(store, steps, calls).run("go")).raise_for_reason()
        return store.commits - before

    async def main() -> None:
        few, many = await counted(2), await counted(12)
        assert many - few == 10 * commits

    asyncio.run(main())


def test_an_approved_call_takes_two_transactions_besides_its_decision(store: Counting) -> None:
    """J1: asked and proposed, decided and begun, and its result: the decision is one of the store's own."""

    async def yes(pending: remit.Pending) -> remit.Decision:
        del pending
        return remit.Decision(approve=True, by="me")

    async def counted(steps: int) -> int:
        before = store.commits
        (await desk(store, steps, ["pay"], confirm=yes).run("go")).raise_for_reason()
        return store.commits - before

    async def main() -> None:
        few, many = await counted(2), await counted(12)
        assert many - few == 10 * 4

    asyncio.run(main())


def test_an_append_takes_a_statement_for_each_thing_that_it_writes(store: Counting) -> None:
    """J1: whatever stands in the journal already, nothing of it is touched or looked at again."""

    async def main() -> None:
        await store.create(NewRun("r", b"spec", NewRow("opened", b"{}")))
        lease = await store.acquire("r", "me")
        assert isinstance(lease, Lease)
        ran: list[str] = []

        def listen(connection: Any) -> None:
            connection.set_trace_callback(lambda statement: ran.append(statement.split()[0]))

        await written(store, listen)
        for _ in range(30):
            ran.clear()
            await store.append(lease, [NewRow("replied", b"{}"), NewRow("started", b"{}")])
            expected = ["begin", "select", "update", *["insert"] * 4, "commit"]
            assert ran == expected
        ran.clear()
        await store.append(
            lease, [NewRow("settled", b"{}")], artifacts=[Artifact.of(b"x" * 20_000, "text/plain")]
        )
        assert ran == ["begin", "select", "update", *["insert"] * 4, "commit"]

    asyncio.run(main())


async def written(store: SqliteStore, act: Callable[[Any], None]) -> None:
    """Do something with the connection that writes."""
    await store._open().do(act)


def test_a_row_is_encoded_once_and_not_again(store: Counting) -> None:
    """J1: as many encodings as rows, whatever stands before them."""

    async def counted(steps: int) -> tuple[int, int]:
        with encodings() as sizes:
            outcome = await desk(store, steps, ["put"]).run("go")
        outcome.raise_for_reason()
        return len(sizes), len(await store.read(outcome.run_id))

    async def main() -> None:
        for steps in (1, 2, 20):
            encoded, kept = await counted(steps)
            assert encoded == kept == 3 * steps + 3

    asyncio.run(main())


def test_a_run_is_read_once_to_be_resumed(store: Counting) -> None:
    """J1, J3: its rows once, what they keep elsewhere in one go, and what came since it was looked at: nothing."""

    async def main() -> None:
        limited = desk(store, 30, ["put"]).replace(
            limits=Limits(steps=20, tokens=10**9, seconds=60)
        )
        assert (await limited.run("go", run_id="r")).reason is remit.Reason.STEP_BUDGET
        store.rows_read.clear()
        store.artifacts_read.clear()
        kept = len(await store.read("r"))
        again = await desk(store, 30, ["put"]).resume("r", limits=LIMITS)
        assert again.completed
        assert store.rows_read == [kept, kept, 0]
        assert store.artifacts_read == [20]

    asyncio.run(main())


def test_what_rows_keep_elsewhere_is_read_in_one_go_and_held_one_at_a_time(store: Counting) -> None:
    """J1: in few turns, and never all that a long run has kept at once."""
    size, many = 900_000, 20

    @remit.tool(effect="read")
    async def load(n: int) -> str:
        """Load."""
        return f"{n:06d}" + "x" * size

    async def main() -> None:
        loader = desk(store, many, ["load"]).replace(tools=[load])
        (await loader.run("go", run_id="r")).raise_for_reason()
        store.artifacts_read.clear()
        state = await read_state(store, "r")
        assert state.steps == many + 1
        assert store.artifacts_read == [many]
        assert store.most_held == 1

    asyncio.run(main())


def test_runs_that_wait_hold_no_task_no_thread_and_a_token_each(store: Counting) -> None:
    """E6: whoever decides may take weeks; until then a run is its rows."""

    async def main() -> None:
        waits = desk(store, 1, ["pay"])

        async def wait(runs: int) -> None:
            outcomes = await asyncio.gather(*(waits.run("go") for _ in range(runs)))
            assert all(outcome.reason is remit.Reason.WAITING for outcome in outcomes)

        await wait(30)
        threads, tokens = threading.active_count(), len(TOKENS)
        await wait(30)
        gc.collect()
        assert len(asyncio.all_tasks()) == 1
        assert threading.active_count() == threads
        alive = [each for each in gc.get_objects() if isinstance(each, Run)]
        assert not [each for each in alive if each.record.store is store]
        assert len(TOKENS) == tokens + 30

    asyncio.run(main())


def test_of_very_many_tokens_the_oldest_are_forgotten() -> None:
    """E6: what waiting runs leave in memory has a bound; whoever was handed a token still has it."""
    before = dict(TOKENS)
    try:
        names = [f"pending {n}" for n in range(MOST_TOKENS + 5)]
        for name in names:
            assert keep_token(name, "secret") == "secret"
        assert list(TOKENS) == names[5:]
    finally:
        TOKENS.clear()
        TOKENS.update(before)
