"""Does the run go in circles? A pure rule over what the steps did (L7).

A step's signature is the set of (tool, arguments, result) of its calls, polling tools left out. The
tail of the signatures is searched for cycles of one to three steps. Per step, not per call: five equal
reads asked for at once are one step, not a repetition.
"""

from __future__ import annotations

__all__ = ["END_AT", "LONGEST_CYCLE", "TELL_AT", "Stall"]

LONGEST_CYCLE = 3
TELL_AT = 3
"""Repetitions after which the model is told."""
END_AT = 6
"""Repetitions after which the run ends."""


class Stall:
    """The tail of what the steps did."""

    __slots__ = ("_tail", "repetitions", "told")

    def __init__(self) -> None:
        self._tail: list[object] = []  # a deque takes 0.7 kB while it is empty
        self.repetitions = 0
        """How often the newest cycle stands at the tail; 1 for anything new, 0 before the first step."""
        self.told = False
        """The model was told of the repetition that still goes on."""

    def observe(self, signature: object) -> None:
        """Take in what one step did. Signatures are compared and not hashed: long results stand in them."""
        recent = self._tail[-LONGEST_CYCLE:]
        self._tail.append(signature)
        if len(self._tail) > LONGEST_CYCLE * END_AT:
            del self._tail[0]
        if signature not in recent:
            self.repetitions = 1
            return
        newest_first = list(reversed(self._tail))
        self.repetitions = max(
            _repetitions(newest_first, length) for length in range(1, LONGEST_CYCLE + 1)
        )
        if self.repetitions < TELL_AT:
            self.told = False

    def clear(self) -> None:
        """Begin anew: somebody outside changed what the run can do."""
        self._tail.clear()
        self.repetitions = 0
        self.told = False


def _repetitions(newest_first: list[object], length: int) -> int:
    cycle = newest_first[:length]
    count = 0
    while newest_first[count * length : (count + 1) * length] == cycle:
        count += 1
        if len(cycle) < length:
            break
    return count
