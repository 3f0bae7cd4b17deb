"""`remit demo`: the support desk of `remit.demo` at work, with what to look at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from remit import demo as shop
from remit.cli.assemble import flagged, model_of
from remit.cli.display import display_for
from remit.cli.kept import Kept
from remit.cli.options import Display, Limit, Who
from remit.cli.run import code_of, refuse_contradictions, watched
from remit.cli.settings import here, read_settings
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.streams import own_stdout
from remit.cli.targets import AnyRemit
from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.messages import Text
from remit.models.base import Model, Price
from remit.models.names import named
from remit.models.opening import check_ready
from remit.outcome import Outcome
from remit.pending import Decision, Pending
from remit.transcript import Transcript

__all__ = ["demo"]

_SCRIPTED = """\
A support desk. The model is scripted: it plays a fixed part, and nothing is asked of a provider. The
loop, the tools, the approval and the limits are real.

customer: {question}
"""
_REAL = """\
A support desk. {model} decides what is done, {most}.
The shop is made up; the loop, the tools, the approval and the limits are real.

customer: {question}
"""


def demo(
    *,
    model: Annotated[str | None, Parameter(metavar="NAME")] = None,
    base_url: Annotated[str | None, Parameter(metavar="URL")] = None,
    display: Display = Display(),
) -> int:
    """A support desk at work, without a key or a network.

    Parallel calls, a failure, a result far too long that is read in pages, a question, an approval, the bill.

    Args:
        model: Have this model decide instead of the scripted one, as PREFIX:NAME. That is billed, up to 0.25 USD.
        base_url: Where that model is reached, if not where its prefix says.
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
            running = desk.stream((Text(shop.QUESTION),))
            outcome = await watched(running, Kept(desk, None), shown, interrupts)
            for line in (*_told(outcome.transcript), "", *_account(outcome, desk)):
                say(line)
            return code_of(outcome, interrupts)

        shown = display_for(streams, display)
        desk = _desk(model, base_url).replace(
            confirm=shown.confirm if shown.can_ask else approve,
            answer=shown.answer if shown.can_ask else choose,
        )
        say(_introduction(desk, scripted=model is None))
        return run_until_done(play)


def _desk(name: str | None, base_url: str | None) -> AnyRemit:
    """The support desk, with the model of that name where one is given."""
    desk = shop.desk(shop.Shop())
    if name is None:
        if base_url is not None:
            raise ConfigurationError("--base-url says where a model is: name it with --model")
        return desk
    flags = flagged(Who(model=name, base_url=base_url), Limit())
    asked = model_of(flags, read_settings(here(), os.environ).prices)
    check_ready(asked)
    return desk.replace(model=asked, limits=_payable(desk.limits, asked))


def _payable(limits: Limits, asked: Model) -> Limits:
    """Without the limit to money where nobody knows what the model costs: the others hold."""
    if asked.profile.price is not None or asked.profile.reserve_usd is not None:
        return limits
    return Limits(steps=limits.steps, tokens=limits.tokens, seconds=limits.seconds)


def _introduction(desk: AnyRemit, *, scripted: bool) -> str:
    if scripted:
        return _SCRIPTED.format(question=shop.QUESTION)
    usd = desk.limits.usd
    most = "at a price that is not known here" if usd is None else f"for {usd} USD at most"
    return _REAL.format(model=named(desk.model).name, most=most, question=shop.QUESTION)


def _told(transcript: Transcript) -> Iterator[str]:
    """What the model was told of its first calls: in call order, whoever was first."""
    if len(transcript) < 3 or not transcript[1].tool_uses:
        return  # it was cancelled before that, or the model called nothing
    yield ""
    yield "What the model was told of its first turn, in call order:"
    uses, results = transcript[1].tool_uses, transcript[2].tool_results
    for use, result in zip(uses, results, strict=True):
        yield f"  {result.status.value:>7}  {use.name}: {result.text}"


def _account(outcome: Outcome[Any], desk: AnyRemit) -> Iterator[str]:
    """What it used of what it might."""
    spent, limits = outcome.spend.tree, desk.limits
    yield f"   reason  {outcome.reason.value}"
    yield f"    steps  {spent.steps} of {limits.steps}"
    yield f"    calls  {spent.calls}"
    yield f"   tokens  {spent.tokens:,} of {limits.tokens:,}"
    price = named(desk.model).profile.price
    if price is not None:
        of = "" if limits.usd is None else f" of {limits.usd}"
        yield f"    money  {spent.usd:.4f}{of} USD, at {_rates(price)}"
    yield f"     time  {spent.seconds:.2f} of {limits.seconds:g} s"


def _rates(price: Price) -> str:
    return f"{price.input.normalize():f} and {price.output.normalize():f} USD for a million tokens in and out"
