"""Ten thousand runs in which everything goes wrong, and twelve planted bugs that they must find.

`simulation.py` beside this plays one seed and checks what must hold; here it is held to that. A failing seed
replays alone: `REMIT_SEED=123 python -m pytest tests/test_simulation.py -k replay`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import simulation
from remit.amounts import ZERO
from remit.clock import RunClock
from remit.dispatch.gate import Passage
from remit.outcome import Reason
from remit.slots import Answering
from remit.state import RunState
from remit.store.memory import MemoryStore
from remit.testing.faults import FaultPlan, ModelFault, ToolFault
from simulation import EFFECTS, Seen, Violation, simulate

SCHEDULES = int(os.environ.get("REMIT_SCHEDULES", "10000"))
SEEDS_TO_FIND = 2_000
RARE = 0.0005
"""The least share of schedules in which anything that can occur has to occur."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The faults are planned: what the loop logs of them is not read."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_whatever_goes_wrong_every_promise_holds_in_ten_thousand_schedules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """T1, T2, T3, C1, C8, L1, L2, L3, E1, E2, E3, E7, X1, X5, K1, K3, J3: by seed, all of them at once."""
    seen: Seen = Counter()
    for seed in range(SCHEDULES):
        seen.update(simulate(seed))
    with capsys.disabled():
        sys.stdout.write(table(seen))
    least = SCHEDULES * RARE
    rare = {key: seen[key] for key in expected() if seen[key] < least}
    assert not rare, f"too rare to show anything: {rare}"


def test_a_failing_seed_is_replayed_alone() -> None:
    """T1, J3: the seed fixes everything, so that one run shows what another has found."""
    seed = int(os.environ.get("REMIT_SEED", "7"))
    assert simulate(seed) == simulate(seed)


def test_a_plan_follows_from_its_seed_alone() -> None:
    """case 07: the same seed draws the same faults, another one others."""
    tools = ("look", "put")
    assert FaultPlan.draw(3, tools) == FaultPlan.draw(3, tools)
    assert len({FaultPlan.draw(seed, tools).turns for seed in range(20)}) > 15


# Planted bugs. Each takes a part of remit and breaks it the way people do.


def in_completion_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order: dict[int, list[Any]] = {}
    alive: list[Any] = []  # so that no other gets the identity of one that was never closed
    settle, close = RunState._settled, Answering.close

    def remember(self: RunState, row: Any) -> None:
        alive.append(self.answering)
        order.setdefault(id(self.answering), []).append(row.tool_use_id)
        settle(self, row)

    def shuffled(self: Answering) -> Any:
        done = order.pop(id(self), [])
        if set(done) == {slot.use.id for slot in self.slots}:
            by_id = {slot.use.id: slot for slot in self.slots}
            object.__setattr__(self, "slots", tuple(by_id[use_id] for use_id in done))
        return close(self)

    monkeypatch.setattr(RunState, "_settled", remember)
    monkeypatch.setattr(Answering, "close", shuffled)


def gate_skipped_for_early_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    must: Any = Passage.must_consult
    monkeypatch.setattr(
        Passage, "must_consult", property(lambda self: not self._withheld and must.fget(self))
    )


def key_from_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    def salted(run_id: str, step: int, tool: str, digest: str, n: int) -> str:
        return f"{run_id}:{step}:{tool}:{hash(digest) & 0xFFFF_FFFF_FFFF_FFFF:016x}:{n}"

    monkeypatch.setattr("remit.run.call_key", salted)


def calls_not_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Passage._reserve

    def free(self: Passage) -> bool:
        budget, real = self.run.means.budget, self.run.means.budget.reserve
        wrapped = _Free(budget, lambda amount: real(ZERO))
        self.run.means.budget = wrapped  # pyright: ignore[reportAttributeAccessIssue] - it stands in for one call
        try:
            return reserve(self)
        finally:
            self.run.means.budget = budget

    monkeypatch.setattr(Passage, "_reserve", free)


class _Free:
    """An account that reserves nothing."""

    def __init__(self, budget: Any, reserve: Callable[[Any], Any]) -> None:
        self._budget = budget
        self.reserve = reserve

    def __getattr__(self, name: str) -> Any:
        return getattr(self._budget, name)


def deadline_only_at_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    end = RunClock.end

    def once(self: RunClock) -> tuple[float, str]:
        at, whose = end(self)
        return (at if self.time() == self._began else self.time() + 1e6), whose

    monkeypatch.setattr(RunClock, "end", once)


def reservation_not_refunded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.budget.Reservation.refund", lambda self: None)


def doubt_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once approved, a call that was begun before a crash runs again."""

    async def nothing(_: Passage) -> None:
        return None

    monkeypatch.setattr(Passage, "_resolve_doubt", nothing)


def start_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was begun before a crash is reported as never begun."""
    init = Passage.__init__

    def forgetful(self: Passage, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self._begun = False

    monkeypatch.setattr(Passage, "__init__", forgetful)


def breaks_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    elided = RunState._elided

    def silent(self: RunState, row: Any) -> None:
        elided(self, row)
        self.breaks.clear()

    monkeypatch.setattr(RunState, "_elided", silent)


def an_answer_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to one question is taken for that to the next one too."""
    supplied = RunState._supplied

    def twice(self: RunState, row: Any) -> None:
        call = self.waiting_for(row.pending_id)
        supplied(self, row)
        if call is not None and call.answers:
            call.answers = (*call.answers, call.answers[-1])

    monkeypatch.setattr(RunState, "_supplied", twice)


def a_supply_is_never_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever supplies a thing twice is believed twice."""
    use_up = MemoryStore._use_up

    def only_approvals(self: MemoryStore, proposal: Any) -> None:
        if proposal.new.kind == "approval":
            use_up(self, proposal)

    monkeypatch.setattr(MemoryStore, "_use_up", only_approvals)


def a_hand_out_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is taken up again does not know what it handed out."""
    activated = RunState._activated

    def forgetful(self: RunState, row: Any) -> None:
        activated(self, row)
        for call in self.calls:
            if call.supplied is None:
                call.handed_out = None

    monkeypatch.setattr(RunState, "_activated", forgetful)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (in_completion_order, "results are not in call order"),
        (gate_skipped_for_early_reads, "ran without the approval that the policy wants"),
        (key_from_hash, "E2: call"),
        (calls_not_reserved, "L2: Amount(steps=0, calls="),
        (deadline_only_at_entry, "active seconds of"),
        (reservation_not_refunded, "reserved and never settled"),
        (doubt_ignored, "was entered 2 times on 1 approvals"),
        (start_forgotten, "ran, and was told not_started"),
        (breaks_not_counted, "breaks of the prefix, and 0 are counted"),
        (an_answer_counts_twice, "E6: "),
        (a_supply_is_never_used_up, "was supplied twice"),
        (a_hand_out_is_forgotten, "was handed out "),
    ],
)
def test_a_planted_bug_is_found_within_two_thousand_seeds(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1, C8, E1, E2, E3, L1, L2, X1: the simulation is no better than what it finds."""
    plant(monkeypatch)
    with pytest.raises(Violation) as found:
        for seed in range(SEEDS_TO_FIND):
            simulate(seed)
    assert says in found.value.what
    assert f"REMIT_SEED={found.value.seed}" in str(found.value)


# Coverage


def expected() -> set[tuple[str, str]]:
    """Everything that can occur."""
    stops = ("cancel", "outside", "detach", "by id", "crash")
    return {
        *(("reason", reason.value) for reason in Reason),
        *(("ended by", ending) for ending in simulation.ENDINGS),
        *(("tool fault", fault.value) for fault in ToolFault),
        *(("model fault", fault.value) for fault in ModelFault),
        *(("effect", effect) for effect in EFFECTS.values()),
        *(
            (asked, answer)
            for asked in ("answer", "input", "result")
            for answer in ("approve", "reject", "edit", "leave")
        ),
        *(("mood", mood) for mood in simulation.MOODS),
        *(("batch", shape) for shape in SHAPES),
        *(("elision", fate) for fate in ELISIONS),
        *(
            ("fault in phase", f"{fault.value} in {phase}")
            for fault in ToolFault
            for phase in ("early", "turn", "turn, resumed", "child")
        ),
        *(
            ("cut in phase", f"{cut} in {phase}")
            for cut in ("time", "cancel", "outside", "detach", "by id")
            for phase in ("model", "read", "idempotent", "confirm")
        ),
        *(
            ("stop in phase", f"{stop} in {phase}")
            for stop in stops
            for phase in PHASES
            if (stop, phase) not in IMPOSSIBLE
        ),
    }


PHASES = ("model", "read", "idempotent", "confirm", "child", "approval", "between")
IMPOSSIBLE: set[tuple[str, str]] = set()
ELISIONS = ("made", "lost in a crash", "the last thing before a crash", "the journal failed")
SHAPES = (
    *("no call", "one read", "many read", "one idempotent", "many idempotent"),
    *("one confirm", "many confirm", "many mixed", "equal calls", "with a child"),
)


def table(seen: Seen) -> str:
    """How often what occurred, as text."""
    lines = [f"\n{SCHEDULES} schedules"]
    for group in sorted({group for group, _ in seen}):
        lines.append(f"  {group}")
        entries = sorted((what, n) for (kind, what), n in seen.items() if kind == group)
        lines.extend(f"    {what:36} {n:7}" for what, n in entries)
    return "\n".join(lines)
