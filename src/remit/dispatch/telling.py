"""Telling the model how a body ended, without holding up the event loop.

What is certainly little work is done where it is asked for; anything else in a worker, and it has to come in
time: a value may hold a gigabyte, or code of its author's that never ends.
"""

from __future__ import annotations

from typing import Any

from remit.dispatch.results import Result, is_quick_ending, of_ending, unread
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
    """The result that an end comes to. Units: `until` is on the event loop's clock."""
    allowance = run.allowance(tool.max_result_tokens)

    def tell() -> Result:
        return of_ending(ending, tool, allowance, carried_out=carried_out)

    if is_quick_ending(ending):
        return tell()
    made = await run.aside(tell, until=until, halt=halt)
    return unread(tool) if made is None else made
