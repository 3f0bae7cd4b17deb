"""How long to wait before a model is asked again. Pure and without chance: the same run waits the same."""

from __future__ import annotations

import math
import zlib

__all__ = ["MODEL_RETRIES", "backoff"]

MODEL_RETRIES = 4
"""Further attempts after a failed one."""
_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0


def backoff(attempt: int, *, seed: str, retry_after: float | None) -> float:
    """Seconds to wait after the failed `attempt`, counted from 0.

    Formula: min(30, 0.5 * 2^attempt) * j, with j in [0.75, 1.25) drawn from `seed` and `attempt`, so that many
    runs do not come back at once; what the provider asks for is the least.
    """
    spread = zlib.crc32(f"{seed}:{attempt}".encode()) / 2**32
    seconds = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**attempt) * (0.75 + spread / 2)
    return max(seconds, _asked_for(retry_after))


def _asked_for(seconds: object) -> float:
    """What a model asked for, if that is a time to wait at all."""
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < math.inf else 0.0
