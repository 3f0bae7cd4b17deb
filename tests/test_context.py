"""The context window: what fits it, what a prompt is estimated at, and how a run ends that fills it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit as rm
from loop_rig import LIMITS, desk, model_of, rows, runtime
from remit import (
    Limits,
    ModelProfile,
    Outcome,
    Reason,
    Remit,
    Settings,
    StopReason,
    Text,
    Transcript,
    Usage,
)
from remit.calibration import LEAST, MOST, PRIOR_TOKENS, Calibration
from remit.models.base import ModelRequest
from remit.models.scripted import ScriptedModel, Step
from remit.rows import Replied
from remit.run import Run
from remit.state import RunState
from remit.testing import run_virtual


def profile(window: int, max_output: int = 8_192) -> ModelProfile:
    return ModelProfile(context_window=window, max_output=max_output)


def scripted(script: Any, window: int, max_output: int = 8_192) -> ScriptedModel:
    return ScriptedModel(script, profile=profile(window, max_output), record=True)


@rm.tool(effect="read")
async def fetch(n: int, chars: int) -> str:
    """Fetch so many characters."""
    return f"{n}:".ljust(chars, "x")


@rm.tool(effect="read")
async def jot(n: int, words: str) -> str:
    """Note something down. What is said in a call stays in the history."""
    return f"noted {n}"


def jotting(steps: int, chars: int) -> Any:
    """A model that says so much in the call of each of so many steps, and then answers."""

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        step = sum(message.role == "assistant" for message in transcript)
        return ("jot", {"n": step, "words": "x" * chars}) if step < steps else "done"

    return says


def fetching(steps: int, chars: int) -> Any:
    """A model that fetches so much in each of so many steps, and then answers."""

    def says(transcript: Transcript, _: ModelRequest) -> Any:
        step = sum(message.role == "assistant" for message in transcript)
        return ("fetch", {"n": step, "chars": chars}) if step < steps else "done"

    return says


# --- what fits -----------------------------------------------------------------------------------


def test_the_output_cap_is_lowered_to_what_the_window_leaves() -> None:
    """X5: prompt and output share the window, and no request asks for more than the rest of it."""

    async def main() -> None:
        window = 12_000
        remit = desk(scripted(jotting(5, 4_000), window), [jot])
        outcome = await remit.run("x" * 12_000)
        assert outcome.completed
        caps = [request.max_output for request in model_of(remit).requests]
        assert caps[0] == 8_192
        assert caps == sorted(caps, reverse=True)
        assert caps[-1] < 8_192
        replies = [row for row in await rows(remit, outcome.run_id) if isinstance(row, Replied)]
        for cap, reply in zip(caps, replies, strict=True):
            assert reply.usage.prompt + cap <= window

    run_virtual(main())


@pytest.mark.parametrize(("cap", "least"), [(None, 1_024), (300, 300)])
def test_below_the_floor_no_reply_is_asked_for(cap: int | None, least: int) -> None:
    """X5: with less than 1,024 tokens of room, or than the user's own lower cap, there is no request."""

    async def main() -> None:
        window = 4_000
        remit = desk(scripted(jotting(12, 1_600), window), [jot], settings=Settings(max_output=cap))
        outcome = await remit.run("go")
        assert outcome.reason is Reason.CONTEXT_FULL
        assert outcome.whose is None
        caps = [request.max_output for request in model_of(remit).requests]
        assert min(caps) >= least
        assert outcome.steps == len(caps) < 12
        assert not outcome.transcript.owed

    run_virtual(main())


def test_a_full_window_is_told_by_its_largest_parts() -> None:
    """X5, case 50: whoever has to make room is told what takes it."""

    async def main() -> None:
        large = rm.tool(effect="read", name="search")(_described("y" * 4_000))
        remit = desk(scripted(["never asked"], 8_000), [fetch, large], instructions="z" * 24_000)
        outcome = await remit.run("go")
        assert outcome.reason is Reason.CONTEXT_FULL
        assert model_of(remit).asked == 0
        told = outcome.error or ""
        assert told.startswith("the context window of 8,000 tokens is full: instructions ~6,000 ")
        assert "tools ~1,2" in told
        assert "(largest: search 1,0" in told

    run_virtual(main())


def _described(description: str) -> Any:
    async def search(q: str) -> str:
        return q

    search.__doc__ = description
    return search


def test_the_newest_turn_is_told_with_its_largest_result() -> None:
    """X5, case 50: results that have just come in are what most often fills a window."""

    async def main() -> None:
        remit = desk(
            scripted(
                [[("fetch", {"n": 1, "chars": 8_000}), ("fetch", {"n": 2, "chars": 9})]], 3_000
            ),
            [fetch],
        )
        outcome = await remit.run("go")
        assert outcome.reason is Reason.CONTEXT_FULL
        told = outcome.error or ""
        assert "newest turn ~2,0" in told
        assert "(largest: a result of fetch 2,000)" in told
        assert outcome.steps == 1

    run_virtual(main())


def test_a_limit_that_is_reached_beside_a_full_window_is_the_reason() -> None:
    """L1, X5: the window ends only what the limits would have let go on."""

    async def main() -> None:
        limits = replace(LIMITS, steps=1)
        turn = ("fetch", {"n": 1, "chars": 8_000})
        remit = desk(scripted([turn, "so far"], 3_000), [fetch], limits=limits)
        outcome = await remit.run("go")
        assert outcome.reason is Reason.STEP_BUDGET
        assert outcome.text == "so far"  # the hand-back needs less room, and fits

    run_virtual(main())


def test_a_hand_back_that_does_not_fit_the_window_is_not_made() -> None:
    """L5, X5: it shares the window like every other request."""

    async def main() -> None:
        limits = replace(LIMITS, steps=1)
        remit = desk(scripted([("fetch", {"n": 1, "chars": 8_000})], 2_200), [fetch], limits=limits)
        outcome = await remit.run("go")
        assert (outcome.reason, outcome.steps) == (Reason.STEP_BUDGET, 1)
        assert model_of(remit).asked == 1

    run_virtual(main())


def test_a_reply_cut_by_the_window_ends_the_run_and_tells_what_fills_it() -> None:
    """C3, X5: what the provider says of its window counts, whatever is estimated here."""

    async def main() -> None:
        remit = desk([Step("I was about", stop_reason=StopReason.CONTEXT)], [fetch])
        outcome = await remit.run("go")
        assert (outcome.reason, outcome.text) == (Reason.CONTEXT_FULL, "I was about")
        assert "tools ~" in (outcome.error or "")

    run_virtual(main())


# --- what a prompt is estimated at ---------------------------------------------------------------


def test_without_evidence_a_token_is_a_token() -> None:
    """L2: no report, no correction; one report is no growth."""
    calibration = Calibration()
    assert calibration.density == LEAST
    calibration.observe(10, 50_000)
    assert calibration.density == LEAST


def test_growth_is_compared_and_what_stays_the_same_cancels_out() -> None:
    """L2: a prompt with 50,000 tokens of tools says nothing about the density of its text."""
    calibration = Calibration()
    for step in range(20):
        calibration.observe(1_000 * step, 50_000 + 3_000 * step)
    grown = 19_000
    assert calibration.density == (PRIOR_TOKENS + 3 * grown) / (PRIOR_TOKENS + grown)


def test_an_interruption_is_not_taken_for_growth() -> None:
    """L2: what changed by more than what was said is not compared."""
    calibration = Calibration()
    calibration.observe(1_000, 1_000)
    calibration.interrupt()
    calibration.observe(2_000, 90_000)
    assert calibration.density == LEAST


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10**7)), max_size=20))
def test_no_report_moves_the_density_out_of_its_bounds(reports: list[tuple[int, int]]) -> None:
    """L2: a provider that reports nonsense costs room at worst, and never makes an estimate smaller."""
    calibration, estimated = Calibration(), 0
    for grown, reported in reports:
        estimated += grown
        calibration.observe(estimated, reported)
        assert LEAST <= calibration.density <= MOST


class Dense:
    """A model that counts two tokens for every four characters, and keeps what it counted."""

    name = "dense"

    def __init__(self, steps: int) -> None:
        self.profile = ModelProfile(context_window=10_000_000)
        self.prompts: list[int] = []
        self._steps = steps
        self._inner = ScriptedModel(self._says)

    def _says(self, transcript: Transcript, request: ModelRequest) -> Step:
        del request
        chars = sum(len(json.dumps(message.to_json())) for message in transcript)
        step = sum(message.role == "assistant" for message in transcript)
        self.prompts.append(1_000 + chars // 2)
        says = ("fetch", {"n": step, "chars": 4_000}) if step < self._steps else "done"
        return Step(says, usage=Usage(input=self.prompts[-1], output=10))

    def stream(self, request: ModelRequest) -> Any:
        return self._inner.stream(request)


async def _dense_run(steps: int) -> tuple[Outcome[Any], Dense, Sequence[Any]]:
    model = Dense(steps)
    remit = Remit[Any](name="desk", model=model, tools=[fetch], limits=LIMITS, runtime=runtime())
    outcome = await remit.run("go", run_id="dense")
    return outcome, model, await rows(remit, "dense")


def test_the_estimate_of_a_prompt_is_calibrated_on_what_was_reported() -> None:
    """L2: within 20 % of the growth after a few steps, where four characters a token are 50 % off."""

    async def main() -> None:
        _, model, recorded = await _dense_run(8)
        state = RunState("dense")
        reply = 0
        errors: list[tuple[float, float]] = []
        for row in recorded:
            if isinstance(row, Replied):
                if reply:
                    actual = model.prompts[reply] - model.prompts[reply - 1]
                    blind = state.growth
                    errors.append(
                        (abs(blind * state.density - actual) / actual, abs(blind - actual) / actual)
                    )
                reply += 1
            state.apply(row)
        assert all(blind > 0.45 for _, blind in errors)
        assert all(error < 0.2 for error, _ in errors[5:])
        assert errors[-1][0] < errors[1][0]

    run_virtual(main())


def test_a_replay_estimates_as_the_run_itself_did() -> None:
    """L2, J1: the density follows from the rows, so that a resumed run cuts and quotes alike."""

    async def main() -> None:
        densities: list[float] = []

        def watching(steps: int) -> Any:
            def says(transcript: Transcript, _: ModelRequest) -> Step:
                step = sum(message.role == "assistant" for message in transcript)
                said = ("fetch", {"n": step, "chars": 4_000}) if step < steps else "done"
                return Step(said, usage=Usage(input=1_000 + 2_300 * step, output=30))

            return says

        remit = desk(watching(6), [fetch])
        async with remit.stream("go", run_id="r") as live:
            async for event in live:
                if event.kind == "replied":
                    run = live._run
                    assert isinstance(run, Run)
                    densities.append(run.state.density)
        state, replayed = RunState("r"), list[float]()
        for row in await rows(remit, "r"):
            state.apply(row)
            if isinstance(row, Replied):
                replayed.append(state.density)
        assert densities == replayed
        assert replayed[0] == 1.0 < replayed[-1]
        assert state.chars_per_token == 4 / state.density

    run_virtual(main())


def test_usage_that_is_estimated_cut_or_missing_says_nothing_about_the_text() -> None:
    """L2: only what a provider reported of a whole reply counts."""

    async def main() -> None:
        turn = ("fetch", {"n": 1, "chars": 4_000})
        for usage in (None, Usage()):
            steps = [Step(turn, usage=usage) for _ in range(4)]
            remit = desk([*steps, Step("done", usage=Usage(input=90_000, output=1))], [fetch])
            outcome = await remit.run("go", run_id="r")
            assert outcome.completed
            state = RunState("r", await rows(remit, "r"))
            assert state.density == 1.0

    run_virtual(main())


def test_the_density_counts_in_what_is_reserved() -> None:
    """L2: growth is reserved at what the provider will count, not at four characters a token."""

    async def main() -> None:
        limits = Limits(steps=20, tokens=10**9, seconds=60)
        remit = desk(fetching(1, 4_000), [fetch], limits=limits)
        async with remit.stream("go") as live:
            async for _ in live:
                pass
        run = live._run
        assert isinstance(run, Run)
        state = run.state
        state.transcript.say(Text("x" * 4_000))
        before = run.means.prompt_tokens
        for step in range(9):
            state.density = state._calibration.observe(10_000 * step, 30_000 * step)
        assert state.density > 2.5
        assert run.means.prompt_tokens == pytest.approx(
            state.context_tokens + state.growth * state.density, abs=1
        )
        assert run.means.prompt_tokens > before

    run_virtual(main())
