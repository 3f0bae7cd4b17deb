"""`remit run`: one prompt, run to its end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from remit.cli import exits
from remit.cli.assemble import remit_for
from remit.cli.content import proper_text, read_content
from remit.cli.display import Display as Shown
from remit.cli.display import display_for
from remit.cli.documents import answer_of, outcome_document, write_document
from remit.cli.options import STDIN, Display, Limit, Who
from remit.cli.settings import here, read_settings
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.streams import complain, own_stdout
from remit.cli.targets import AnyRemit, function_of
from remit.errors import ConfigurationError
from remit.messages import ResultContent
from remit.models.names import named
from remit.outcome import Outcome, Reason
from remit.store.memory import MemoryStore
from remit.transcript import Transcript

__all__ = ["code_of", "confirming", "refuse_contradictions", "run", "waiting_advice", "watched"]


def run(
    prompt: str | None = None,
    /,
    *,
    who: Who = Who(),
    run_id: Annotated[str | None, Parameter(metavar="ID")] = None,
    file: Annotated[tuple[Path, ...], Parameter(name=("--file", "-f"))] = (),
    json: bool = False,
    jsonl: bool = False,
    output: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    exit_zero: bool = False,
    limit: Limit = Limit(),
    display: Display = Display(),
) -> int:
    """Run a prompt to its end: the answer on stdout, what happens on stderr.

    What is piped in is appended to the prompt: git diff | remit run "review this".

    Args:
        prompt: What is to be done; - or nothing reads it from standard input.
        run_id: Names the run: started again under the same id it is not run twice.
        file: Attach a file: an image, a sound, a PDF or a text. Repeat it for more.
        json: Answer with one JSON document: text, reason, spend.
        jsonl: Answer with one JSON line for each event, the outcome last.
        output: A JSON Schema that the answer must fit, from a file: the answer on stdout is JSON then.
        exit_zero: Exit with 0 however the run ended.
    """
    refuse_contradictions(display, json=json, jsonl=jsonl)
    with own_stdout() as streams:
        directory = here()
        remit = remit_for(
            who, limit, read_settings(directory, os.environ), directory, output=output
        )
        said = None if prompt == STDIN else prompt
        content = read_content(said, file, directory, streams.input, from_stdin=prompt == STDIN)
        shown = display_for(streams, display, jsonl=jsonl)
        remit = confirming(remit, who.confirm, shown, directory)
        if run_id is not None:
            proper_text(run_id, "--run-id")

        async def to_its_end(interrupts: Interrupts) -> int:
            outcome = await watched(remit, content, run_id, shown, interrupts, tells=not json)
            if json:
                write_document(outcome_document(outcome), streams.answer)
            if outcome.reason is Reason.WAITING:
                complain(waiting_advice(outcome, remit))
            elif display.quiet and not outcome.completed:
                complain(f"task uncompleted: {outcome.error or outcome.reason}")
            return exits.OK if exit_zero else code_of(outcome, interrupts)

        return run_until_done(to_its_end)


def confirming(remit: AnyRemit, confirm: str | None, shown: Shown, directory: Path) -> AnyRemit:
    """A remit with whoever approves, and answers. What it brings stands, unless --confirm says otherwise."""
    if confirm == "none":
        return remit.replace(confirm=None, answer=None)
    if confirm == "ask" and not shown.can_ask:
        raise ConfigurationError("--confirm ask: there is no terminal to ask on")
    if shown.can_ask and (remit.answer is None or confirm == "ask"):
        remit = remit.replace(answer=shown.answer)
    if shown.can_ask and (confirm == "ask" or (confirm is None and remit.confirm is None)):
        return remit.replace(confirm=shown.confirm)
    if confirm is None or confirm == "ask":
        return remit
    return remit.replace(confirm=function_of(confirm, directory))


def waiting_advice(outcome: Outcome[Any], remit: AnyRemit) -> str:
    """What can be done about a run that waits: the truth, by what it waits for and where it is kept."""
    waits = ", ".join(f"{_WAITS[each.kind]} {each.tool}" for each in outcome.pending)
    if not isinstance(remit.store, MemoryStore):
        return (
            f"it waits for {waits}. It is kept in the store of {remit.name!r}: code that holds it "
            f"decides or supplies, and resumes run {outcome.run_id}"
        )
    kinds = {each.kind for each in outcome.pending}
    ways = ["on a terminal you are asked"] if kinds - {"result"} else []
    ways += ["--confirm FILE.py:FUNCTION decides without you"] if "approval" in kinds else []
    ways += ["only code can supply a result"] if "result" in kinds else []
    return (
        f"it waits for {waits}. It was kept in memory and ends with this command; {', '.join(ways)}"
    )


_WAITS = {"approval": "a decision on", "input": "an answer to", "result": "the result of"}


async def watched(
    remit: AnyRemit,
    content: tuple[ResultContent, ...],
    run_id: str | None,
    shown: Shown,
    interrupts: Interrupts,
    *,
    history: Transcript | None = None,
    tells: bool = True,
) -> Outcome[Any]:
    """Run it before somebody's eyes; `tells` the answer too. A signal cancels the run and lets it close."""
    model = named(remit.model)
    interrupts.heard, interrupts.leave = shown.heard, shown.leave
    asked: list[asyncio.Task[Any]] = []
    try:
        async with remit.stream(content, run_id=run_id, history=history) as live:

            def stop(_: int) -> None:
                shown.cancelling()
                asked.append(asyncio.create_task(live.cancel()))

            with interrupts.stopping(stop):
                shown.begin(run_id or live.run_id, remit.name, model.name, remit.limits)
                async for event in live:
                    shown.hear(event)
        shown.end(live.outcome, answer=answer_of(live.outcome, remit) if tells else None)
    finally:
        shown.close()
    return live.outcome


def code_of(outcome: Outcome[Any], interrupts: Interrupts) -> int:
    """The exit code of a run; who cancelled it says with which."""
    if outcome.reason is Reason.CANCELLED and interrupts.code is not None:
        return interrupts.code
    return exits.OF_REASON[outcome.reason]


def refuse_contradictions(display: Display, *, json: bool = False, jsonl: bool = False) -> None:
    """Errors: `ConfigurationError`."""
    for first, second, both in (
        ("--json", "--jsonl", json and jsonl),
        ("--quiet", "--verbose", display.quiet and display.verbose),
    ):
        if both:
            raise ConfigurationError(f"{first} and {second} contradict each other: leave one out")
