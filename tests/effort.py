"""How much of what could be tried is tried.

On CI everything is, once. A developer's own run takes a part of what takes longest. Further versions of Python run
every test, but of what is counted out (every boundary, every byte, every callback) they take a sample: what is true of
a boundary on one version and not on another is true of many. Each version takes another sample.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["QUICK", "THOROUGH", "one_in", "tries"]

T = TypeVar("T")

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE")
THOROUGH = bool(os.environ.get("CI")) and _PROFILE is None
"""Everything is tried."""
QUICK = _PROFILE == "quick"
"""A sample is tried."""


def one_in(count: int, of: Sequence[T], *, beside: int = 0) -> Sequence[T]:
    """All of it; a sample of one in so many where tests are to be quick. `beside` shifts the sample."""
    return of[(sys.version_info.minor + beside) % count :: count] if QUICK else of


def tries(examples: int) -> int:
    """So many examples; a tenth where tests are to be quick."""
    return examples // 10 if QUICK else examples
