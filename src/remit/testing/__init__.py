"""What tests of agents need: scripted models, virtual time, a simulated pool, a second opinion on
requests.

For users as much as for remit itself. Nothing in the library imports from here.
"""

from remit.models.scripted import Recorded, ScriptedModel, Step
from remit.models.validator import (
    InvalidRequest,
    RequestValidator,
    prefix_of,
    validate_request,
)
from remit.testing.conformance_journal import JournalConformance
from remit.testing.conformance_model import ModelConformance
from remit.testing.crash import CrashPoint, CrashStore, Ledger, crash_points
from remit.testing.loop import Deadlock, VirtualLoop, run_virtual
from remit.testing.workers import SimulatedWorkers

__all__ = [
    "CrashPoint",
    "CrashStore",
    "Deadlock",
    "InvalidRequest",
    "JournalConformance",
    "Ledger",
    "ModelConformance",
    "Recorded",
    "RequestValidator",
    "ScriptedModel",
    "SimulatedWorkers",
    "Step",
    "VirtualLoop",
    "crash_points",
    "prefix_of",
    "run_virtual",
    "validate_request",
]
