"""`remit demo`: the support desk of `remit.demo` at work, with what to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remit import demo as shop
from remit.cli.display import display_for
from remit.cli.options import Display
from remit.cli.run import code_of, refuse_contradictions, watched
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.streams import own_stdout
from remit.limits import Limits
from remit.messages import Text
from remit.outcome import Outcome
from remit.pending import Decision, Pending
from remit.transcript import Transcript

__all__ = ["demo"]

_INTRODUCTION = """\
A support desk. The model is scripted: it plays a fixed part, and nothing is asked of a provider. The
loop, the tools, the approval and the limits are real.

customer: {question}
"""


def demo(*, display: Display = Display()) -> int:
    """A support desk at work, without a key or a network.

    Parallel calls, a failure, a result far too long that is read in pages, a question, an approval, the bill.
    """
    refuse_contradictions(display)
    with own_stdout() as streams:

        def say(text: str) -> None:
            if not display.quiet:
                print(text, file=streams.notes)

        async def approve(pending: Pending) -> Decision:
            say(f"{pending.summary}? No terminal to ask on: the demo approves it.")
            return Decision(approve=True, by="demo")

        async def choose(pending: Pending) -> str:
            choice = (pending.schema or {})["enum"][0]
            say(f"{pending.summary} No terminal to ask on: the demo says {choice}.")
            return choice

        async def play(interrupts: Interrupts) -> int:
            outcome = await watched(desk, (Text(shop.QUESTION),), None, shown, interrupts)
            for line in (*_told(outcome.transcript), "", *_account(outcome, desk.limits)):
                say(line)
            return code_of(outcome, interrupts)

        shown = display_for(streams, display)
        desk = shop.desk(shop.Shop()).replace(
            confirm=shown.confirm if shown.can_ask else approve,
            answer=shown.answer if shown.can_ask else choose,
        )
        say(_INTRODUCTION.format(question=shop.QUESTION))
        return run_until_done(play)


def _told(transcript: Transcript) -> Iterator[str]:
    """What the model was told of its first two calls: in call order, whoever was first."""
    if len(transcript) < 3:
        return  # it was cancelled before that
    yield ""
    yield "What the model was told of its first turn, in call order:"
    uses, results = transcript[1].tool_uses, transcript[2].tool_results
    for use, result in zip(uses, results, strict=True):
        yield f"  {result.status.value:>7}  {use.name}: {result.text}"


def _account(outcome: Outcome[Any], limits: Limits) -> Iterator[str]:
    """What it used of what it might."""
    spent = outcome.spend.tree
    yield f"   reason  {outcome.reason.value}"
    yield f"    steps  {spent.steps} of {limits.steps}"
    yield f"    calls  {spent.calls}"
    yield f"   tokens  {spent.tokens:,} of {limits.tokens:,}"
    yield f"    money  {spent.usd:.4f} of {limits.usd} USD, at 3 and 15 USD for a million tokens in and out"
    yield f"     time  {spent.seconds:.2f} of {limits.seconds:g} s"
