"""What tests of agents need: scripted models, virtual time, a simulated pool, a second opinion on
requests.

For users as much as for remit itself. Nothing in the library imports from here.

`validate_request` looks at the messages of remit, whatever the provider. What one provider takes is told by a
judge (`protocol/`), which reads a request body as the provider receives it:

    provider = remit.testing.judge("anthropic")   # or "openai", "openai-chat"; dialect="mistral"
    provider.request(body)                        # `Refused`: rule, text, status and body as the provider's
    provider.response(reply, body)                # a body, events or a stream: what was issued must come back
    model = remit.testing.judged(ScriptedModel([...]), "anthropic")      # the same for all requests of a run

Tools are tried by `check_effects` (does a second run under one key change the world?) and `chaos` (calls that are
doubled, late or lost); `docs/testing.md` shows both.

`remit.testing.serve` (`serve/`, imported by itself) is a provider that plays a script, on a socket or in memory.
"""

from remit.models.scripted import Recorded, ScriptedModel, Step
from remit.models.validator import (
    InvalidRequest,
    RequestValidator,
    prefix_of,
    validate_request,
)
from remit.testing.chaos import Chaos, Suffered, chaos
from remit.testing.conformance_directory import DirectoryConformance
from remit.testing.conformance_journal import JournalConformance
from remit.testing.conformance_keeping import KeepingConformance
from remit.testing.conformance_model import ModelConformance
from remit.testing.conformance_races import JournalRaces
from remit.testing.conformance_sessions import SessionConformance
from remit.testing.crash import CrashPoint, CrashStore, Ledger, crash_points
from remit.testing.effects import (
    EffectCase,
    EffectFinding,
    EffectReport,
    FalseEffect,
    check_effects,
    effects_of,
)
from remit.testing.judged import JudgedModel, judged
from remit.testing.loop import Deadlock, VirtualLoop, run_virtual
from remit.testing.protocol import Judge, Refused, judge
from remit.testing.workers import SimulatedWorkers

__all__ = [
    "Chaos",
    "CrashPoint",
    "CrashStore",
    "Deadlock",
    "DirectoryConformance",
    "EffectCase",
    "EffectFinding",
    "EffectReport",
    "FalseEffect",
    "InvalidRequest",
    "JournalConformance",
    "JournalRaces",
    "Judge",
    "JudgedModel",
    "KeepingConformance",
    "Ledger",
    "ModelConformance",
    "Recorded",
    "Refused",
    "RequestValidator",
    "ScriptedModel",
    "SessionConformance",
    "SimulatedWorkers",
    "Step",
    "Suffered",
    "VirtualLoop",
    "chaos",
    "check_effects",
    "crash_points",
    "effects_of",
    "judge",
    "judged",
    "prefix_of",
    "run_virtual",
    "validate_request",
]
