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
from remit.testing.conformance_model import ModelConformance
from remit.testing.loop import Deadlock, VirtualLoop, run_virtual
from remit.testing.workers import SimulatedWorkers

__all__ = [
    "Deadlock",
    "InvalidRequest",
    "ModelConformance",
    "Recorded",
    "RequestValidator",
    "ScriptedModel",
    "SimulatedWorkers",
    "Step",
    "VirtualLoop",
    "prefix_of",
    "run_virtual",
    "validate_request",
]
