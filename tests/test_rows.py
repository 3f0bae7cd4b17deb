"""Rows and their bytes, states and their rows, and what a step costs to record."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import FrameType
from typing import Any, Self, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remit
from remit import Call, Limits, Outcome, Reason, Remit
from remit.amounts import Amount, Bill, Totals
from remit.errors import JournalError
from remit.excerpt import MIN_CHARS
from remit.messages import (
    Media,
    Message,
    Opaque,
    ResultContent,
    Status,
    StopReason,
    Text,
    ToolUse,
    Usage,
)
from remit.pending import Decision, Pending
from remit.remit import Runtime
from remit.render import render
from remit.rows import (
    Activated,
    Asked,
    Awaits,
    Charged,
    Decided,
    Elided,
    Ended,
    Ends,
    Failed,
    Finished,
    Granted,
    HandedOut,
    Late,
    Noted,
    Opened,
    Parked,
    Proposed,
    Questioned,
    Replied,
    Row,
    Said,
    Settled,
    Started,
    Supplied,
    Trim,
    TurnedBack,
    Vetoed,
    Withdrawn,
    decode_row,
    encode_row,
    filled,
    kept_by,
)
from remit.schedule import Footprint
from remit.shown import Allowance, Fitted, Kept, fitted, restored_block
from remit.state import RunState
from remit.store.memory import MemoryStore
from remit.testing import CrashStore, ScriptedModel, SimulatedWorkers, Step, run_virtual
from remit.transcript import Stub, Transcript

# --- every row -----------------------------------------------------------------------------------

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
some_text = text.filter(lambda value: bool(value.strip()))
names = st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True)
counts = st.integers(0, 10**9)
money = st.decimals(0, 10**6, allow_nan=False, allow_infinity=False, places=6)
seconds = st.integers(0, 10**12).map(lambda micros: round(micros / 1e6, 6))
"""Rows round times to the microsecond."""
instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(
    lambda value: value.replace(tzinfo=UTC)
)
stamps = instants.map(datetime.isoformat)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    output = draw(counts)
    return Usage(
        draw(counts), draw(counts), draw(counts), output, reasoning=draw(st.integers(0, output))
    )


limits = st.builds(
    Limits,
    steps=st.integers(1, 10**6),
    tokens=st.integers(1, 10**12),
    seconds=st.floats(0.001, 10**6),
    usd=st.none() | money.filter(bool),
    calls=st.none() | st.integers(1, 1_000),
    deadline=st.none() | instants,
)
amounts = st.builds(Amount, counts, counts, counts, money)
totals = st.builds(Totals, counts, counts, counts, money, seconds, usages())
bills = st.builds(Bill, totals, amounts, counts)
texts = st.builds(Text, text)
media = st.builds(Media, st.just("image/png"), st.binary(max_size=20))
content = st.lists(texts | media, max_size=3).map(tuple)


@st.composite
def shown(draw: st.DrawFn) -> Fitted:
    """A result as it is written: parts of it stand in artifacts."""
    values = st.lists(
        st.text(max_size=400).map(lambda piece: Text(piece * 3)) | media, min_size=1, max_size=4
    )
    reads = draw(st.booleans())
    allowance = Allowance(draw(st.integers(MIN_CHARS, 500)), lambda _: reads)
    return fitted(render(draw(values)), allowance)


def kept_in(made: Fitted) -> dict[str, Any]:
    """The fields of a row that shows it."""
    return {
        "content": made.shown.content,
        "kept": made.shown.kept,
        "artifacts": made.shown.artifacts,
    }


uses = st.builds(ToolUse, names, names, text)
opaque = st.builds(Opaque, names, st.binary(max_size=20))
messages = st.lists(texts | uses | opaque, min_size=1, max_size=4).map(
    lambda blocks: Message("assistant", tuple(blocks))
)
footprints = st.builds(
    Footprint, st.booleans(), st.none() | st.lists(text, unique=True, max_size=3).map(tuple)
)
asked = st.builds(Asked, st.none() | text, st.booleans(), footprints, remit=text)
statuses = st.sampled_from(Status)
optional = st.none() | text

ROWS: dict[type[Row], st.SearchStrategy[Any]] = {
    Opened: st.builds(
        Opened,
        remit=text,
        prompt=content,
        history=st.lists(messages, max_size=2).map(tuple),
        limits=limits,
        instructions=text,
        path=st.lists(text, max_size=3).map(tuple),
        tags=st.dictionaries(text, text, max_size=3),
        at=stamps,
        caller=optional,
    ),
    Replied: st.builds(
        Replied,
        message=st.none() | messages,
        stop_reason=st.sampled_from(StopReason),
        usage=usages(),
        usd=money,
        estimated=st.booleans(),
        asked=st.lists(asked, max_size=3).map(tuple),
        closing=st.booleans(),
        whole=st.booleans(),
        seconds=seconds,
        latency=seconds,
        overshoot=amounts,
        invalid=optional,
    ),
    Started: st.builds(
        Started, text, st.dictionaries(text, json_values, max_size=3), money, counts
    ),
    Settled: st.builds(
        Settled,
        text,
        content,
        st.booleans(),
        statuses,
        st.none() | totals,
        st.none() | bills,
        optional,
        optional,
        st.booleans(),
        amounts,
        st.sampled_from(get_args(Ends)),
    ),
    Proposed: st.builds(Proposed, text, text, text, text, stamps, text),
    Questioned: st.builds(
        Questioned, text, text, text, text, text, stamps, totals, bills, amounts, counts, text
    ),
    HandedOut: st.builds(HandedOut, text, text, text, text, stamps, totals),
    Supplied: st.builds(Supplied, text, text, st.booleans(), text),
    Awaits: st.builds(Awaits, text, text, bills, totals, amounts),
    Decided: st.builds(Decided, text, st.booleans(), text, text, optional, optional),
    Granted: st.builds(Granted, text, text, text),
    Withdrawn: st.builds(Withdrawn, text),
    Noted: st.builds(Noted, text, text),
    Elided: st.builds(
        Elided,
        st.lists(st.builds(Stub, names, st.integers(0, 9), text, names, counts), max_size=3).map(
            tuple
        ),
    ),
    Said: st.builds(Said, content),
    Charged: st.builds(Charged, usages(), money, st.booleans(), counts),
    Failed: st.builds(Failed, text),
    Finished: st.builds(Finished, text),
    TurnedBack: st.builds(TurnedBack, text),
    Vetoed: st.builds(Vetoed, text),
    Late: st.builds(Late, text, content, st.booleans(), statuses),
    Parked: st.builds(Parked, seconds),
    Activated: st.builds(Activated, limits, stamps),
    Ended: st.builds(Ended, st.sampled_from(Reason).map(str), optional, optional, seconds, stamps),
}


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.kind)
def test_a_row_comes_back_from_its_bytes_as_it_was(kind: type[Row]) -> None:
    """T2, J1: encoding and decoding are inverse, for every kind of row and in both directions."""

    @given(ROWS[kind])
    @settings(max_examples=60, deadline=None)
    def check(row: Row) -> None:
        body = encode_row(row)
        back = decode_row(row.kind, body)
        assert back == row
        assert type(back) is kind
        assert encode_row(back) == body

    check()


@given(shown(), st.lists(shown(), max_size=3))
@settings(deadline=None)
def test_a_row_that_keeps_references_is_filled_to_what_it_was(
    made: Fitted, others: list[Fitted]
) -> None:
    """X2, J1: what stands in an artifact is not written again, and comes back to the byte."""
    artifacts = {each.handle: each for each in made.artifacts}
    artifacts |= {each.handle: each for other in others for each in other.artifacts}

    def block_of(kept: Kept) -> ResultContent:
        return restored_block(kept, artifacts[kept.artifact])

    trims = tuple([Trim(f"t{n}", **kept_in(other)) for n, other in enumerate(others)])
    settled = Settled("a", is_error=False, status=Status.OK, trims=trims, **kept_in(made))
    late = Late("key", is_error=True, status=Status.ERROR, **kept_in(made))
    parked = Parked(1.0, trims)
    for row in (settled, late, parked):
        body = encode_row(row)
        back = decode_row(row.kind, body)
        assert {each.artifact for each in kept_by(back)} <= set(artifacts)
        assert filled(back, block_of) == row
        assert encode_row(filled(back, block_of)) == body
        for handle in [each.artifact for each in kept_by(row)]:
            assert len(artifacts[handle].data) < 300 or artifacts[handle].data not in body


def test_every_kind_of_row_is_covered_and_named_once() -> None:
    """T2: no kind of row can be written that cannot be read."""
    assert set(ROWS) == set(Row.__args__)
    assert max(Counter(kind.kind for kind in ROWS).values()) == 1


def test_times_are_kept_to_the_microsecond() -> None:
    """L4: what is written down is what was counted, and no float grows a tail of digits."""

    async def main() -> list[Replied]:
        store = MemoryStore()
        worker = Remit[Any](
            name="r",
            model=ScriptedModel([("look", {"x": "a"}), "done"], latency=1 / 3),
            limits=Limits(steps=5, tokens=100_000, seconds=60),
            tools=[look],
            store=store,
            runtime=Runtime(workers=SimulatedWorkers(), now=now),
        )
        await worker.run("go", run_id="r")
        rows = [decode_row(row.kind, row.body) for row in await store.read("r")]
        return [row for row in rows if isinstance(row, Replied)]

    replies = run_virtual(main())
    assert len(replies) == 2
    for reply in replies:
        assert reply.latency == round(reply.latency, 6) > 0
        assert reply.seconds == round(reply.seconds, 6) > 0


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("invented", b"{}"),
        ("noted", b"{}"),
        ("noted", b"not json"),
        ("noted", b"\xff"),
        ("noted", b"[]"),
        ("noted", b"null"),
        ("replied", b'{"message": 3}'),
        ("settled", b'{"tool_use_id": "a", "content": [{"type": "tool_use"}]}'),
        ("activated", b'{"limits": {"steps": 0}, "at": ""}'),
        ("charged", b'{"usage": {}, "usd": "no number", "estimated": false, "calls": 0}'),
        ("decided", b'{"unknown": 1}'),
    ],
)
def test_bytes_that_are_no_row_are_a_journal_error(kind: str, body: bytes) -> None:
    """J3: a damaged journal is refused by name, whatever is wrong with it."""
    with pytest.raises(JournalError):
        decode_row(kind, body)


# --- a state is its rows -------------------------------------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = Limits(steps=1_000, tokens=100_000_000, seconds=36_000)


def now() -> datetime:
    return START + timedelta(seconds=asyncio.get_running_loop().time())


@remit.tool(effect="read", eager=False)
async def look(x: str) -> str:
    """Look."""
    await asyncio.sleep(1)
    return f"saw {x}"


@remit.tool(effect="idempotent", resource=())
async def write(x: str, call: Call) -> str:
    """Write."""
    await asyncio.sleep(1)
    return f"wrote {x}"


@remit.tool(effect="idempotent", resource="thing")
async def change(x: str) -> str:
    """Change the one thing."""
    await asyncio.sleep(1)
    return f"changed {x}"


@remit.tool(effect="confirm")
async def pay(x: str) -> str:
    """Pay."""
    return f"paid {x}"


def turns(*said: Any) -> Callable[[Transcript, Any], Step]:
    def says(transcript: Transcript, _: Any) -> Step:
        number = sum(message.role == "assistant" for message in transcript)
        return Step(said[min(number, len(said) - 1)], usage=Usage(10, output=1), delay=1)

    return says


def make(store: CrashStore, *said: Any, **more: Any) -> Remit[Any]:
    return Remit[Any](
        name="r",
        model=ScriptedModel(turns(*said)),
        limits=LIMITS,
        tools=[look, write, change, pay],
        store=store,
        runtime=Runtime(workers=SimulatedWorkers(), now=now),
        **more,
    )


async def yes(pending: Pending) -> Decision:
    return Decision(approve=True, by="dana")


def test_every_prefix_of_a_journal_is_a_state_that_goes_on() -> None:
    """T2, J3: whatever was committed last, what is there can be read, continued and closed."""
    store = CrashStore()
    batch = [("look", {"x": "a"}), ("write", {"x": "b"}), ("pay", {"x": "c"}), ("look", "{")]

    async def main() -> Outcome[str]:
        return await make(store, batch, batch, "done", confirm=yes).run("go", run_id="r")

    outcome = run_virtual(main())
    rows = [row for commit in store.commits for row in commit.rows]
    for length in range(1, len(rows) + 1):
        state = RunState("r", [decode_row(row.kind, row.body) for row in rows[:length]])
        closed = state.transcript.closed()
        assert not closed.owed, length
        assert Transcript.load(closed.to_json()).report == (), length
        whole = list(outcome.transcript)
        assert list(state.transcript) == whole[: len(state.transcript)] or length < len(rows)
    final = RunState("r", [decode_row(row.kind, row.body) for row in rows])
    assert final.transcript == outcome.transcript
    assert (final.steps, final.text) == (outcome.steps, outcome.text)


def test_replaying_in_one_go_and_row_by_row_gives_the_same_state() -> None:
    """J3: a resumed run stands where the fresh one stood; both go through one `apply`."""
    store = CrashStore()
    batch = [("look", {"x": "a"}), ("write", {"x": "b"})]
    run_virtual(lambda: make(store, batch, batch, "done").run("go", run_id="r"))
    rows = [decode_row(row.kind, row.body) for c in store.commits for row in c.rows]
    one, other = RunState("r", rows), RunState("r")
    for row in rows:
        other.apply(row)
    assert one.transcript == other.transcript
    assert (one.own, one.tree, one.steps, one.told) == (
        other.own,
        other.tree,
        other.steps,
        other.told,
    )
    assert one.stall.repetitions == other.stall.repetitions


def test_a_row_that_has_no_place_is_a_journal_error() -> None:
    """J3: rows that do not follow from the ones before are refused, not guessed at."""
    opened = Opened("r", (Text("go"),), (), LIMITS, "", ("r",), {}, "")
    for row in (
        Started("nowhere", {}),
        Settled("nowhere", (Text("x"),), is_error=False, status=Status.OK),
        Proposed("nowhere", "p", "", "{}", "", "effect"),
        Awaits("nowhere", "child", Bill(), Totals()),
        Decided("nowhere", approve=True, by="me", note="", edit=None, key=None),
    ):
        with pytest.raises(JournalError):
            RunState("r", [opened, row])
    with pytest.raises(JournalError):
        _ = RunState("r").limits


# --- what a step costs ---------------------------------------------------------------------------


class Counting:
    """Counts calls of functions of remit by name, without touching them."""

    def __init__(self, *wanted: Callable[..., Any]) -> None:
        self._codes = {function.__code__: function.__name__ for function in wanted}
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in self._codes:
            self.counts[self._codes[frame.f_code]] += 1


def endless(x: str) -> Callable[[Transcript, Any], Step]:
    """Ask for one read and one write, with arguments that never repeat and never grow."""

    def says(transcript: Transcript, _: Any) -> Step:
        number = sum(message.role == "assistant" for message in transcript)
        argument = {"x": f"{x}{number:06d}"}
        return Step([("look", argument), ("write", argument)], usage=Usage(10, output=1), delay=1)

    return says


def recorded(steps: int) -> tuple[CrashStore, Counter[str]]:
    store = CrashStore()
    worker = Remit[Any](
        name="r",
        model=ScriptedModel(endless("n"), strict=False),
        limits=Limits(steps=steps, tokens=100_000_000, seconds=36_000),
        tools=[look, write],
        hand_back=False,
        store=store,
        runtime=Runtime(workers=SimulatedWorkers(), now=now),
    )
    with Counting(encode_row, decode_row) as counting:
        run_virtual(lambda: worker.run("go", run_id="r"))
    return store, counting.counts


def test_a_step_is_encoded_and_stored_at_the_cost_of_its_new_rows() -> None:
    """J1: twice the steps are twice the rows, the encodings, the commits and the bytes; exactly."""
    stores = {steps: recorded(steps) for steps in (20, 40, 80)}
    rows = {n: [row for c in store.commits for row in c.rows] for n, (store, _) in stores.items()}
    for steps, (store, counts) in stores.items():
        assert counts["encode_row"] == len(rows[steps]), "each row is encoded once"
        assert counts["decode_row"] == 1, "a fresh run reads its first row back, and no other"
        appends = [c for c in store.commits if c.what.startswith("append")]
        assert len(appends) <= 2 * steps + 1
    assert len(rows[40]) - len(rows[20]) == 4 * 20  # replied, started, settled, settled
    assert len(rows[80]) - len(rows[40]) == 4 * 40
    sizes = {n: sum(len(row.body) for row in rows[n]) for n in rows}
    per_step = (sizes[40] - sizes[20]) / 20
    assert (sizes[80] - sizes[40]) / 40 == pytest.approx(per_step, rel=0.01)


def parallel(tool: str, count: int) -> list[Any]:
    return [(tool, {"x": str(n)}) for n in range(count)]


@pytest.mark.parametrize(
    ("batch", "most"),
    [
        (parallel("look", 1), 1),
        (parallel("look", 8), 1),
        (parallel("write", 1), 2),
        (parallel("write", 8), 2),
        ([*parallel("look", 4), *parallel("write", 4)], 2),
        ([("change", {"x": "a"})], 2),
    ],
)
def test_a_step_of_one_wave_takes_at_most_two_transactions(batch: list[Any], most: int) -> None:
    """J1, E3: the starts share the reply's transaction, the outcomes the one before the next call."""
    counts: list[int] = []
    for steps in (3, 6):
        store = CrashStore()
        said = [*[batch] * (steps // 3), "done"]
        run_virtual(lambda store=store, said=said: make(store, *said).run("go"))
        counts.append(sum(c.what.startswith("append") for c in store.commits))
    assert counts[1] - counts[0] <= most, counts


def test_the_end_of_a_run_is_one_transaction_with_its_last_reply() -> None:
    """J1: a run without tools is opened in one transaction and over in another."""
    store = CrashStore()
    run_virtual(lambda: make(store, "done").run("go"))
    assert [commit.what for commit in store.commits] == ["create", "append ended: replied ended"]


def test_what_money_is_in_rows_keeps_its_digits() -> None:
    """L2: costs are decimals from the reply to the replayed account."""
    usd = Decimal("0.1234567890123456789")
    row = Charged(Usage(1, output=1), usd, estimated=False)
    back = decode_row("charged", encode_row(row))
    assert isinstance(back, Charged)
    assert back.usd.compare_total(usd) == 0


def test_first_rows_of_one_remit_share_what_is_the_same_for_all_of_them() -> None:
    """J11: a thousand runs hold their instructions and tools once, and what differs is each one's own."""

    def opened(
        words: str, instructions: str = "Be brief. " * 100, remit: str = "sharing"
    ) -> Opened:
        return Opened(
            remit,
            (Text(words),),
            (),
            LIMITS,
            instructions,
            (remit,),
            {"of": words},
            words,
            model="m",
            tools={f"tool {n}": "0" * 16 for n in range(30)},
            session=words,
        )

    def read(row: Opened) -> Opened:
        came = decode_row(row.kind, encode_row(row))
        assert came == row
        assert isinstance(came, Opened)
        return came

    read(opened("a"))
    second = read(opened("b"))
    third = read(opened("c"))
    assert second.instructions is third.instructions
    assert second.tools is third.tools
    assert second.limits is third.limits
    assert read(opened("d", "Be long.")).instructions == "Be long."
    assert read(opened("e", remit="another")).path == ("another",)
    assert read(opened("f")) == opened("f")
