"""A turn of a conversation reads the run before it, and none that this process has read before."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from loop_rig import LIMITS, desk
from remit import (
    ConfigurationError,
    JournalError,
    Limits,
    Media,
    Reason,
    Remit,
    Text,
    Transcript,
    tool,
)
from remit.models.scripted import DEMO_PROFILE, ScriptedModel
from remit.past import past_of
from remit.store import recent
from remit.store.base import Journal, NewRow, NewRun, Predecessor, RunRows, StoredRow
from remit.store.memory import MemoryStore
from remit.store.recent import MOST_CONVERSATIONS, Known, Recent, recent_of
from remit.store.sqlite import SqliteStore, reading
from remit.store.sqlite.schema import payload_id
from remit.testing import run_virtual

LONG = "much to tell " * 800


class Reads:
    """Keeps count of what was read from a store."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.runs: list[str] = []
        """Those whose rows were read: other runs' than a turn writes itself."""
        self.turns = 0
        """How often anything was read back."""

    async def read(self, run_id: str, after: int = -1) -> Sequence[StoredRow]:
        found = await super().read(run_id, after)  # type: ignore[misc]
        if len(found) > 1 and found[0].seq == 0:
            self.runs.append(run_id)
        return found

    async def read_back(self, run_id: str, known: Mapping[str, bytes]) -> Sequence[RunRows]:
        self.turns += 1
        found = await super().read_back(run_id, known)  # type: ignore[misc]
        self.runs += [each.run_id for each in found if each.rows]
        return found


class InMemory(Reads, MemoryStore):
    """A store in memory."""


class InFile(Reads, SqliteStore):
    """A store in a file."""


@dataclass
class Place:
    """Where a store is, and how it is used."""

    store: Any
    again: Callable[[], Any]
    """The same store as another process has it; in memory there is none."""
    run: Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Place]:
    opened: list[InFile] = []

    def again() -> InFile:
        opened.append(InFile(tmp_path / "runs.db"))
        return opened[-1]

    yield Place(again(), again, asyncio.run)
    for store in opened:
        store.close()


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "sqlite":
        return request.getfixturevalue("files")
    store = InMemory()
    return Place(store, lambda: store, run_virtual)


@tool(effect="read")
async def look(x: str) -> str:
    """Looks."""
    return f"saw {x}"


@tool(effect="read")
async def dump(x: str) -> str:
    """Returns more than a result shows."""
    return f"{x} {LONG}"


@tool(effect="read")
async def picture() -> Media:
    """A picture."""
    return Media("image/png", b"\x89PNG")


def echo(transcript: Transcript, _: Any) -> Any:
    last = transcript[-1]
    return "done" if last.tool_results else ("dump", {"x": last.text})


def clerk(store: Journal, script: Any = echo, **options: Any) -> Remit[Any]:
    return desk(script, options.pop("tools", [look, dump]), store=store, **options)


def asked(transcript: Transcript) -> list[str]:
    """What people said, in order; not what a run is told when its limits are reached."""
    said = [each.text for each in transcript if each.role == "user" and not each.tool_results]
    return [each for each in said if each != "Go on with the task."]


def test_a_turn_reads_the_run_before_it_once_and_none_of_those_before_that(place: Place) -> None:
    """J1: what a turn reads does not grow with the turns before it, and what it goes on from is all of them."""

    async def main() -> None:
        remit = clerk(place.store)
        outcomes = [await remit.run("0", session="s")]
        for n in range(1, 25):
            place.store.runs.clear()
            outcomes.append(await remit.run(str(n), session="s"))
            assert place.store.runs == [outcomes[n - 1].run_id]
        assert asked(outcomes[-1].transcript) == [str(n) for n in range(25)]
        recent.forget(place.store)
        assert await remit.outcome(outcomes[-1].run_id) == outcomes[-1], "as the store tells it"

    place.run(main())


def test_a_run_that_is_taken_up_again_reads_none_of_those_before_it(place: Place) -> None:
    """J1: a conversation whose turns wait for people reads each of them for itself alone."""

    async def main() -> None:
        tight = Limits(steps=1, tokens=20_000_000, seconds=3_600)
        remit = clerk(place.store)
        for n in range(6):
            stopped = await remit.run(str(n), session="s", limits=tight)
            assert stopped.reason is Reason.STEP_BUDGET
            place.store.runs.clear()
            outcome = await remit.resume(stopped.run_id, limits=LIMITS)
            assert outcome.completed
            assert place.store.runs == [stopped.run_id]
            assert asked(outcome.transcript) == [str(each) for each in range(n + 1)]

    place.run(main())


def test_a_process_that_has_read_nothing_reads_a_conversation_in_one_turn(files: Place) -> None:
    """J1: as many turns of the store as megabytes, not as many as runs."""

    async def main() -> None:
        outcomes = [await clerk(files.store).run(str(n), session="s") for n in range(30)]
        cold = files.again()
        outcome = await clerk(cold).run("new", session="s")
        assert asked(outcome.transcript) == [*map(str, range(30)), "new"]
        assert cold.turns == 1
        assert cold.runs == [each.run_id for each in reversed(outcomes)]

    files.run(main())


def test_a_conversation_of_many_bytes_is_read_in_several_turns(
    files: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J1: what is read at once has a bound, and what comes of it is the same."""
    monkeypatch.setattr(reading, "_BACK_BYTES", 5_000)

    async def main() -> None:
        outcomes = [await clerk(files.store).run(str(n), session="s") for n in range(20)]
        cold = files.again()
        past = await past_of(cold, outcomes[-1].run_id)
        assert asked(past.transcript) == [str(n) for n in range(20)]
        assert past.transcript == outcomes[-1].transcript
        assert 3 < cold.turns < 20
        assert cold.runs == [each.run_id for each in reversed(outcomes)]

    files.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_whatever_was_read_before_a_conversation_is_what_the_file_says(
    files: Place, seed: int
) -> None:
    """case 28, J1: turns, resumes, looks and erasures by several processes; a process that has read nothing agrees."""
    random = Random(seed)
    tight = Limits(steps=1, tokens=20_000_000, seconds=3_600)

    async def main() -> None:
        stores = [files.store, files.again(), files.again()]
        runs: dict[str, list[str]] = {"s": [], "t": []}
        for n in range(30):
            store, session = random.choice(stores), random.choice("sst")
            remit, known = clerk(store), runs[session]
            match random.choice(("turn", "turn", "turn", "again", "look", "erase", "forget")):
                case "turn":
                    outcome = await remit.run(f"{n}", session=session)
                    known.append(outcome.run_id)
                case "again":
                    outcome = await remit.run(f"{n}", session=session, limits=tight)
                    known.append(outcome.run_id)
                    await clerk(random.choice(stores)).resume(outcome.run_id, limits=LIMITS)
                case "look" if known:
                    await past_of(store, random.choice(known))
                case "erase" if len(known) > 4:
                    await store.erase(session=session)
                    known.clear()
                case _:
                    recent.forget(store)
            cold = files.again()
            for run_id in {*known[-1:], *random.sample(known, min(2, len(known)))}:
                told = await past_of(cold, run_id)
                recent.forget(cold)
                for each in stores:
                    found = await past_of(each, run_id)
                    assert found == told
                    assert found.transcript.to_json() == told.transcript.to_json()
                    assert found.transcript.artifacts == told.transcript.artifacts
                    assert found.transcript.tokens == told.transcript.tokens
                    if random.random() < 0.7:  # or each would know every run
                        recent.forget(each)
            cold.close()

    files.run(main())


def test_what_another_process_added_is_read_and_no_more(files: Place) -> None:
    """case 28: what this process knows is the beginning of what the file says, or it does not count."""

    async def main() -> None:
        other = files.again()
        here, there = clerk(files.store), clerk(other)
        said: list[str] = []
        for n in range(8):
            for remit, name in ((here, f"here {n}"), (there, f"there {n}"), (there, f"more {n}")):
                outcome = await remit.run(name, session="s")
                said.append(name)
                assert asked(outcome.transcript) == said
        for store in (files.store, other):
            assert len(store.runs) == len(set(store.runs)), "each run once in each process"
        assert len(files.store.runs) == 3 * 7
        assert len(other.runs) == 3 * 8 - 1

    files.run(main())


def test_a_run_that_was_taken_up_again_elsewhere_is_read_as_it_is_now(files: Place) -> None:
    """case 28: a run with more rows is another one, whatever this process has read of it."""

    async def main() -> None:
        tight = Limits(steps=1, tokens=20_000_000, seconds=3_600)
        here, there = clerk(files.store), clerk(files.again())
        await here.run("a", session="s")
        stopped = await here.run("b", session="s", limits=tight)
        before = await past_of(files.store, stopped.run_id)
        whole = await there.resume(stopped.run_id, limits=LIMITS)
        assert len(whole.transcript) > len(before.transcript)
        outcome = await here.run("c", session="s")
        assert outcome.transcript[: len(whole.transcript)] == whole.transcript[:]
        assert asked(outcome.transcript) == ["a", "b", "c"]

    files.run(main())


@pytest.mark.parametrize("elsewhere", [True, False])
def test_what_was_erased_is_gone_on_from_by_nobody(place: Place, *, elsewhere: bool) -> None:
    """J6: a conversation that was erased, here or by another process, is an empty one, and what was said in it is gone."""

    async def main() -> None:
        remit = clerk(place.store)
        outcomes = [await remit.run(f"secret {n}", session="s") for n in range(3)]
        await past_of(place.store, outcomes[-1].run_id)
        eraser = place.again() if elsewhere else place.store
        await eraser.erase(session="s")
        for each in outcomes:
            with pytest.raises(JournalError, match="erased"):
                await past_of(place.store, each.run_id)
            with pytest.raises(ConfigurationError, match="erased"):
                await remit.outcome(each.run_id)
        assert not (recent_of(place.store).known if not elsewhere else {})
        outcome = await remit.run("new", session="s")
        assert asked(outcome.transcript) == ["new"]

    place.run(main())


def test_another_run_under_the_same_id_is_another_run(files: Place) -> None:
    """case 28: a conversation that was pruned, and told anew under the same ids with as many rows, is the new one."""

    async def main() -> None:
        remit = clerk(files.store)
        for name in ("old", "new"):
            await remit.run(f"{name} a", run_id="a", session="s")
            await remit.run(f"{name} b", run_id="b", session="s")
            assert asked((await past_of(files.store, "b")).transcript) == [f"{name} a", f"{name} b"]
            outcome = await remit.run(f"{name} c", run_id="c", session="s")
            assert asked(outcome.transcript) == [f"{name} a", f"{name} b", f"{name} c"]
            if name == "old":
                _take_away(files.store.path)

    files.run(main())


def _take_away(path: Path) -> None:
    """What a pruning by another process leaves of all this: nothing."""
    with closing(sqlite3.connect(path)) as connection:
        for table in ("row", "payload", "holding", "artifact", "run"):
            connection.execute(f"delete from remit_{table}")
        connection.commit()


def test_another_run_under_the_same_id_in_memory_is_another_run() -> None:
    """case 28: the same where the store has dropped what ended long ago."""

    async def main() -> None:
        store = InMemory(keep_ended_bytes=0)
        heads: list[Mapping[str, bytes]] = []
        for name in ("old", "new"):
            for run_id, after in (("a", None), ("b", Predecessor("a", 2))):
                opened = b'{"name":"%s"}' % name.encode()
                row = NewRow("opened", opened)
                assert await store.create(NewRun(run_id, b"", row, session="s", after=after))
                lease: Any = await store.acquire(run_id, "me")
                await store.append(lease, [NewRow("ended", b"{}")], status="ended")
                await store.release(lease)
            heads.append({each.run_id: each.head for each in await store.read_back("b", {})})
            if name == "old":
                await store.create(NewRun("filler", b"", NewRow("opened", b"{}")))
                lease = await store.acquire("filler", "me")
                await store.append(lease, [NewRow("ended", b"{}")], status="ended")
                await store.release(lease)
                assert await store.info("a") is None
        assert all(each.rows for each in await store.read_back("b", heads[0]))
        assert not any(each.rows for each in await store.read_back("b", heads[1]))

    run_virtual(main())


def test_damage_in_what_has_to_be_read_is_found_out(files: Place) -> None:
    """J2: of what a conversation reads each row is verified, whichever run it is of."""

    async def main() -> None:
        outcomes = [await clerk(files.store).run(str(n), session="s") for n in range(4)]
        with closing(sqlite3.connect(files.store.path)) as connection:
            (number,) = connection.execute(
                "select number from remit_run where run_id = ?", (outcomes[1].run_id,)
            ).fetchone()
            connection.execute(
                "update remit_payload set body = replace(body, '1', '7') where id = ?",
                (payload_id(number, 0),),
            )
            connection.commit()
        with pytest.raises(JournalError, match="damaged"):
            await past_of(files.again(), outcomes[-1].run_id)

    files.run(main())


def test_what_is_kept_is_changed_by_nobody(place: Place) -> None:
    """case 28, X1: whoever has a transcript may go on with it; the conversation is what the store says."""

    async def main() -> None:
        remit = clerk(place.store)
        for n in range(4):
            outcome = await remit.run(str(n), session="s")
            outcome.transcript.say(Text("between us"))
            given = await past_of(place.store, outcome.run_id)
            given.transcript.say(Text("this too"))
            again = await past_of(place.store, outcome.run_id)
            assert asked(again.transcript) == [str(each) for each in range(n + 1)]

    place.run(main())


def test_what_a_model_does_not_read_is_found_in_every_later_turn(place: Place) -> None:
    """X3: a picture of an earlier turn is put into words for whoever does not read it, however late."""

    async def main() -> None:
        def looks(transcript: Transcript, _: Any) -> Any:
            last = transcript[-1]
            wants = last.text == "picture"
            return ("picture", {}) if wants and not last.tool_results else "done"

        seeing, blind = [
            ScriptedModel(looks, profile=replace(DEMO_PROFILE, media=media))
            for media in (("image/png",), ())
        ]
        remit = clerk(place.store, tools=[picture])
        for prompt in ("a", "picture", "b", "c"):
            outcome = await remit.run(prompt, session="s", model=seeing)
        assert [type(block) for block in shown(outcome.transcript)] == [Media]
        outcome = await remit.run("d", session="s", model=blind)
        assert [type(block) for block in shown(outcome.transcript)] == [Text]
        assert asked(outcome.transcript) == ["a", "picture", "b", "c", "d"]

    place.run(main())


def shown(transcript: Transcript) -> list[object]:
    """What the results hold."""
    results = [each for message in transcript for each in message.tool_results]
    return [block for result in results for block in result.content]


def known(run_id: str, size: int = 10) -> Known:
    return Known(run_id, run_id.encode(), 1, Transcript(), (), size)


def test_what_is_kept_is_bounded_in_number_and_in_bytes() -> None:
    """J1: of very many conversations those used last are kept, and one that is too large is not."""
    kept = Recent()
    for n in range(MOST_CONVERSATIONS):
        kept.keep(known(f"r{n}"), instead_of="", forgotten=0)
    kept.used("r0")
    kept.keep(known("new"), instead_of="", forgotten=0)
    assert "r0" in kept.known
    assert "r1" not in kept.known
    assert len(kept.known) == MOST_CONVERSATIONS
    kept.keep(known("next", recent.MOST_BYTES - 15), instead_of="new", forgotten=0)
    assert list(kept.known) == ["r0", "next"]
    kept.keep(known("huge", recent.MOST_BYTES + 1), instead_of="next", forgotten=0)
    assert list(kept.known) == ["r0"]
    kept.keep(known("r0", 20), instead_of="", forgotten=0)
    assert kept.known["r0"].size == 20
    for n in range(1, 2 * MOST_CONVERSATIONS):
        kept.keep(known(f"turn {n}"), instead_of=f"turn {n - 1}", forgotten=0)
    assert list(kept.known) == ["r0", f"turn {2 * MOST_CONVERSATIONS - 1}"]


def test_what_is_kept_of_a_store_goes_with_it() -> None:
    """J1: nothing of a conversation outlives the store that it was read from."""

    async def main() -> weakref.ref[Any]:
        store = InMemory()
        remit = clerk(store)
        for n in range(3):
            await remit.run(str(n), session="s")
        assert recent_of(store).known
        return weakref.ref(recent_of(store))

    kept = run_virtual(main())
    gc.collect()
    assert kept() is None


class ErasedMeanwhile(MemoryStore):
    """A person has a session erased while a turn of it is read."""

    async def read_back(self, run_id: str, known: Mapping[str, bytes]) -> Sequence[RunRows]:
        found = await super().read_back(run_id, known)
        await self.erase(session="s")
        return found


def test_what_is_erased_while_it_is_read_does_not_stay_in_memory() -> None:
    """J1, case 28: to forget comes after the reading, though the reading ends after it."""

    async def main() -> None:
        store = ErasedMeanwhile()
        remit = desk(["one"], store=store)
        outcome = await remit.run("a secret", session="s")
        assert len((await past_of(store, outcome.run_id)).transcript) == 2, "it was read before"
        assert recent_of(store).known == {}

    run_virtual(main())
