"""How many tokens a provider counts for what is estimated as one. A pure rule over what was reported.

Prompts are estimated at four characters a token. Code, digits and many languages take more tokens than that,
so the estimate is corrected by measurement: how much the reported prompt grew from one reply to the next, over
how much the estimate did. Sums, not a mean of ratios, so that large steps count for more than small ones, and
a report that was off is made good by the next. The correction is never below one: an estimate that is too high
costs a little room, one that is too low a refused request.
"""

from __future__ import annotations

__all__ = ["LEAST", "MOST", "PRIOR_TOKENS", "Calibration"]

PRIOR_TOKENS = 2_000
"""So many estimated tokens are taken for counted ones from the start: a few odd reports move little."""
LEAST = 1.0
MOST = 4.0
"""A token for each character. Beyond that a report is about something else than the text."""


class Calibration:
    """What was reported of the prompts of one run, beside what was estimated."""

    __slots__ = ("_estimated", "_newest", "_reported", "density")

    def __init__(self) -> None:
        self.density = LEAST
        """Tokens counted for each token estimated."""
        self._estimated = PRIOR_TOKENS
        self._reported = PRIOR_TOKENS
        self._newest: tuple[int, int] | None = None

    def observe(self, estimated: int, reported: int) -> float:
        """Take in one prompt, in tokens: the estimate of its messages, and the whole as reported.

        What does not change between two prompts, such as the tools, cancels out. Returns the density.
        """
        newest, self._newest = self._newest, (estimated, reported)
        if newest is not None:
            self._estimated += estimated - newest[0]
            self._reported += reported - newest[1]
            density = self._reported / self._estimated
            self.density = LEAST if density < LEAST else min(density, MOST)
        return self.density

    def interrupt(self) -> None:
        """The next prompt differs from the newest by more than what was said: they are not compared."""
        self._newest = None
