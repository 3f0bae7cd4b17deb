"""Exit codes: how a script learns what became of a command. Stable, and shown by `--help`.

Reasons stand here by their text, so that `--help` can list them without loading the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remit.errors import RemitError

__all__ = [
    "BUG",
    "CHECK_FAILED",
    "CONFLICT",
    "INTERRUPTED",
    "NOT_FOUND",
    "OF_REASON",
    "OK",
    "PIPE_CLOSED",
    "TABLE",
    "TERMINATED",
    "UNWRITTEN",
    "USAGE",
    "NotFound",
]

OK: Final = 0
CHECK_FAILED: Final = 1
"""What the command checks does not hold."""
USAGE: Final = 2
"""The command line, the configuration or a file that it names is wrong; nothing was sent."""
NOT_FOUND: Final = 3
"""What the command line names is not there."""
CONFLICT: Final = 4
"""Somebody else has the run, or the session, or decided before; or it is too late."""
UNWRITTEN: Final = 74
"""The answer could not be written, to a full disk for example."""
BUG: Final = 70
"""An error inside remit."""
INTERRUPTED: Final = 130
"""128 and the number of SIGINT, as shells count."""
PIPE_CLOSED: Final = 141
"""The same with SIGPIPE: whoever read the answer went away."""
TERMINATED: Final = 143
"""The same with SIGTERM."""


class NotFound(RemitError):
    """The command line names something that is not there: the command ends with `NOT_FOUND`."""


OF_REASON: Final[Mapping[str, int]] = {
    "completed": OK,
    "step_budget": 10,
    "token_budget": 11,
    "cost_budget": 12,
    "deadline": 13,
    "waiting": 14,
    "refused": 15,
    "output_truncated": 16,
    "context_full": 17,
    "stalled": 18,
    "invalid_output": 19,
    "model_failed": 20,
    "call_budget": 21,
    "vetoed": 22,
    "empty_reply": 23,
    "unknown_stop": 24,
    "journal_failed": 25,
    "internal_error": BUG,
    "cancelled": INTERRUPTED,
}
"""By `Reason`. What SIGTERM has cancelled is `TERMINATED`."""


def _table() -> str:
    ends = [f"{code} {reason}" for reason, code in OF_REASON.items() if 10 <= code < BUG]
    ends.sort(key=lambda end: int(end.split()[0]))
    rows = [ends[i : i + 3] for i in range(0, len(ends), 3)]
    return "\n".join(
        [
            "Exit codes:",
            "  0    completed, or nothing to complain of",
            "  1    a check failed",
            "  2    the command line, the configuration or a file that it names is wrong",
            "  3    what is named is not there",
            "  4    somebody else has the run, or decided before",
            *("  " + "".join(f"{end:<22}" for end in row).rstrip() for row in rows),
            "  70   a bug in remit",
            "  74   the answer could not be written",
            "  130, 143  cancelled by SIGINT, by SIGTERM",
            "  141  whoever read the answer went away",
        ]
    )


TABLE: Final = _table()
