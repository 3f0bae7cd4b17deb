"""Telling the model how a body ended, without holding up the event loop.

What is certainly little work is done where it is asked for; anything else in a worker, and it has to come in
time: a value may hold a gigabyte, or code of its author's that never ends.
"""

from __future__ import annotations

from typing import Any

from remit.dispatch.results import Result, Terms, is_quick_ending, of_ending, unread
from remit.redaction import Redactor, redacted
from remit.render import Rendered
from remit.run import Run
from remit.supervise import Ending, Halt
from remit.tools import Tool

__all__ = ["told"]


async def told(
    run: Run,
    ending: Ending,
    tool: Tool[..., Any],
    *,
    until: float,
    halt: Halt | None,
    carried_out: bool = False,
) -> Result:
    """The result that an end comes to. Units: `until` is on the event loop's clock.

    With a redactor, which is the host's own code, all of it is done in a worker.
    """
    redact = run.redact
    allowance = run.allowance(tool.max_result_tokens)
    if redact is None:
        terms = Terms(allowance)
        if is_quick_ending(ending):
            return of_ending(ending, tool, terms, carried_out=carried_out)
        cleaning = None
    else:
        cleaning = _Cleaning(redact)
        terms = Terms(allowance, cleaning)

    def tell() -> Result:
        return of_ending(ending, tool, terms, carried_out=carried_out)

    made = await run.aside(tell, until=until, halt=halt)
    if cleaning is not None and cleaning.failure is not None:
        run.emit("redact_failed", {"tool": tool.name, "error": cleaning.failure})
    return unread(tool) if made is None else made


class _Cleaning:
    """The host's redactor, applied to a result. It fails closed."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self.failure: str | None = None
        """The kind of its error; the words may hold what was to be redacted."""

    def __call__(self, rendered: Rendered) -> Rendered | None:
        try:
            return redacted(rendered, self._redact)
        except KeyboardInterrupt:  # the user's
            raise
        except BaseException as error:  # noqa: BLE001 - the host's own code: whatever it raises, nothing is shown
            self.failure = type(error).__name__
            return None
