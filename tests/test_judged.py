"""What the loop sends, as each provider would judge it: scenarios of other files, asked through judges.

The models of those scenarios are scripts that take the loop's own values; here each of their requests is written
by the codec of a wire and read by the judge of that wire, so that a turn which only our own validator takes
would end the run.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import loop_rig
import remit as rm
import simulation
from remit import ConfigurationError, Message, Opaque, Reason, Text, ToolUse, Transcript
from remit.models.base import Chunk, ModelRequest
from remit.models.scripted import ScriptedModel
from remit.testing import JudgedModel, Refused, judged, run_virtual

WIRES = ("anthropic", "openai", "openai-chat")
SUITES = (
    "test_loop_transcript",
    "test_approvals",
    "test_context",
    "test_ends_run",
    "test_gate",
    "test_limits",
    "test_output",
    "test_resume",
    "test_stop_reasons",
)
UNSUITED = {
    "test_opaque_blocks_go_back_unchanged_and_in_place",  # its blocks are no provider's; below is one that is
    "test_nobody_who_asks_for_text_pays_for_types",  # starts a process of its own, which no judge sees
}

for _suite in SUITES:
    globals().update(
        {
            name: value
            for name, value in vars(importlib.import_module(_suite)).items()
            if name.startswith("test_") and name not in UNSUITED
        }
    )


@pytest.fixture(autouse=True, params=WIRES)
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every desk is asked through a judge of this wire."""
    monkeypatch.setattr(loop_rig, "through", lambda model: judged(model, request.param))
    return request.param


# --- blocks of the provider's own ----------------------------------------------------------------


def thought(wire: str, n: int) -> Opaque:
    """What the provider of a wire gives besides text and calls, and wants back as it was."""
    block: dict[str, Any] = {"type": "thinking", "thinking": f"Hm {n}.", "signature": f"c2ln{n}"}
    if wire == "openai":
        sealed = {"summary": [], "encrypted_content": f"Z0FBQUFB{n}"}
        block = {"type": "reasoning", "id": f"rs_{n}", **sealed}
    if wire == "openai-chat":
        block = {"type": "remit.message", "refusal": None}  # that provider keeps its thoughts
    return Opaque("scripted", json.dumps(block).encode())


@rm.tool(effect="read")
async def look(n: int) -> int:
    """Look."""
    return n


def thinking(wire: str, steps: int) -> Any:
    """A model that thinks before each of so many calls, and then answers."""

    def says(transcript: Transcript, _: Any) -> Any:
        n = sum(message.role == "assistant" for message in transcript)
        if n >= steps:
            return "done"
        use = ToolUse(f"call_{n}", "look", json.dumps({"n": n}))
        return Message("assistant", (Text("let me see"), thought(wire, n), use))

    return says


def rewritten(transcript: Transcript) -> Transcript:
    """The same, but the first sealed block says something else."""
    held = [
        Message(
            message.role,
            tuple(
                Opaque(block.issuer, block.data.replace(b"Hm 0", b"Hm 9").replace(b"FB0", b"FB9"))
                if isinstance(block, Opaque)
                else block
                for block in message.content
            ),
        )
        for message in transcript
    ]
    return Transcript(held)


def test_what_the_provider_sealed_goes_back_and_what_was_changed_is_refused(wire: str) -> None:
    """P1, T7: the run ends with the provider's own reason, and the transcript stays whole."""

    async def main() -> None:
        desk = loop_rig.desk(ScriptedModel(thinking(wire, 3), record=True), [look])
        outcome = await desk.run("go")
        assert outcome.completed
        again = await desk.run("and?", history=Transcript.load(outcome.transcript.to_json()))
        assert again.completed
        if wire == "openai-chat":
            return
        forged = await desk.run("and?", history=rewritten(outcome.transcript))
        assert forged.reason is Reason.MODEL_FAILED
        words = "cannot be modified" if wire == "anthropic" else "could not be verified"
        assert words in str(forged.error)
        assert not forged.transcript.owed

    run_virtual(main())


def test_thinking_is_not_sent_back_behind_results_that_gave_way(wire: str) -> None:
    """X5, P1: newer models bind it to what stood before; what was said in view of the old goes without it."""

    @rm.tool(effect="read", name="look")
    async def wide(n: int) -> str:
        """Look far."""
        return f"{n}:".ljust(4_000, "x")

    async def main() -> None:
        window = rm.ModelProfile(context_window=16_000, max_output=2_000)
        desk = loop_rig.desk(ScriptedModel(thinking(wire, 16), profile=window, record=True), [wide])
        outcome = await desk.run("go")
        assert outcome.prefix_breaks
        assert outcome.completed

    run_virtual(main())


def test_a_request_that_a_provider_refuses_is_refused_for_its_reason(wire: str) -> None:
    """P1: what our own validator takes and the wire does not; here a field that it does not know."""

    async def main() -> None:
        settings = rm.Settings(extra={"mood": "good"})
        outcome = await loop_rig.desk(["done"], [look], settings=settings).run("go")
        assert outcome.reason is Reason.MODEL_FAILED
        told = {
            "anthropic": "mood: Extra inputs are not permitted",
            "openai": "Unknown parameter: 'mood'",
            "openai-chat": "Unrecognized request argument supplied: mood",
        }
        assert told[wire] in str(outcome.error)

    run_virtual(main())


def test_the_name_of_a_wire_is_checked_when_the_model_is_made() -> None:
    """P1: a wrong name is the caller's mistake, and told before anything runs."""
    with pytest.raises(ConfigurationError):
        judged(ScriptedModel(["x"]), "telepathy")
    assert issubclass(Refused, ValueError)


# --- runs in which everything goes wrong ---------------------------------------------------------


def test_what_simulated_runs_send_is_taken_whatever_goes_wrong(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1, T2: faults of the model, cancels, crashes, limits and decisions, by seed."""
    refused: list[str] = []
    asked: list[str] = []
    plain = simulation.Watched.stream

    class Asked:
        """The watched model as it is, inside of a judged one."""

        def __init__(self, watched: simulation.Watched) -> None:
            self.name, self.profile = watched.name, watched.profile
            self._watched = watched

        def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
            return plain(self._watched, request)

    judges: WeakKeyDictionary[simulation.Watched, JudgedModel] = WeakKeyDictionary()

    async def stream(
        watched: simulation.Watched, request: ModelRequest
    ) -> AsyncGenerator[Chunk, None]:
        model = judges.setdefault(watched, judged(Asked(watched), wire))
        asked.append(watched.name)
        async with aclosing(model.stream(request)) as chunks:
            try:
                async for chunk in chunks:
                    yield chunk
            except rm.ModelRejected as error:
                if isinstance(error.__context__, Refused):
                    refused.append(str(error))
                raise

    monkeypatch.setattr(simulation.Watched, "stream", stream)
    logging.disable(
        logging.CRITICAL
    )  # the faults are planned: what the loop logs of them is not read
    try:
        for seed in range(150):
            simulation.simulate(seed)
    finally:
        logging.disable(logging.NOTSET)
    assert refused == []
    assert len(asked) > 150
