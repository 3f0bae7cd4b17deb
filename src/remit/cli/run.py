"""`remit run`: one prompt, run to its end."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from remit.cli import exits
from remit.cli.assemble import remit_for
from remit.cli.content import proper_text, read_content
from remit.cli.display import Display as Shown
from remit.cli.display import display_for
from remit.cli.documents import answer_of, outcome_document, write_document
from remit.cli.kept import Kept, kept
from remit.cli.options import STDIN, Display, Limit, SessionFlag, SessionWait, StoreFlag, Who
from remit.cli.recorded import tags_of
from remit.cli.settings import here, read_settings
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.streams import complain, own_stdout
from remit.cli.targets import AnyRemit, function_of
from remit.errors import ConfigurationError
from remit.limits import Limits
from remit.live import Live
from remit.models.names import named
from remit.outcome import Outcome, Reason
from remit.store.memory import MemoryStore

__all__ = [
    "code_of",
    "concluded",
    "confirming",
    "refuse_contradictions",
    "run",
    "waiting_advice",
    "watched",
]


def run(
    prompt: str | None = None,
    /,
    *,
    who: Who = Who(),
    run_id: Annotated[str | None, Parameter(metavar="ID")] = None,
    session: SessionFlag = None,
    session_wait: SessionWait = None,
    tag: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE")] = (),
    store: StoreFlag = None,
    file: Annotated[tuple[Path, ...], Parameter(name=("--file", "-f"))] = (),
    json: bool = False,
    jsonl: bool = False,
    output: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    exit_zero: bool = False,
    limit: Limit = Limit(),
    display: Display = Display(),
) -> int:
    """Run a prompt to its end: the answer on stdout, what happens on stderr.

    What is piped in is appended to the prompt: git diff | remit run "review this". The run is kept: remit resume
    goes on with it, remit approve decides what it waits for.

    Args:
        prompt: What is to be done; - or nothing reads it from standard input.
        run_id: Names the run: started again under the same id it is not run twice.
        tag: Mark the run, for remit runs --tag. Repeat it for more.
        file: Attach a file: an image, a sound, a PDF or a text. Repeat it for more.
        json: Answer with one JSON document: text, reason, spend.
        jsonl: Answer with one JSON line for each event, the outcome last.
        output: A JSON Schema that the answer must fit, from a file: the answer on stdout is JSON then.
        exit_zero: Exit with 0 however the run ended.
    """
    refuse_contradictions(display, json=json, jsonl=jsonl)
    with own_stdout() as streams:
        directory = here()
        settings = read_settings(directory, os.environ)
        remit = remit_for(who, limit, settings, directory, output=output)
        tags = tags_of(tag, who, directory, output)
        said = None if prompt == STDIN else prompt
        content = read_content(said, file, directory, streams.input, from_stdin=prompt == STDIN)
        shown = display_for(streams, display, jsonl=jsonl)
        remit = confirming(remit, who.confirm, shown, directory)
        for flag, name in (("--run-id", run_id), ("--session", session)):
            if name is not None:
                proper_text(name, flag)

        with kept(remit, store, settings) as where:

            async def to_its_end(interrupts: Interrupts) -> int:
                running = where.remit.stream(
                    content,
                    session=session,
                    session_wait=session_wait,
                    run_id=run_id,
                    tags=tags,
                )
                outcome = await watched(running, where, shown, interrupts, run_id, tells=not json)
                if json:
                    write_document(outcome_document(outcome), streams.answer)
                code = concluded(outcome, where, interrupts, quiet=display.quiet)
                return exits.OK if exit_zero else code

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


def concluded(outcome: Outcome[Any], where: Kept, interrupts: Interrupts, *, quiet: bool) -> int:
    """Tell what is to be done about a run that was not completed. Returns its exit code."""
    if outcome.reason is Reason.WAITING:
        complain(waiting_advice(outcome, where))
    elif quiet and not outcome.completed:
        complain(f"task uncompleted: {outcome.error or outcome.reason}")
    return code_of(outcome, interrupts)


def waiting_advice(outcome: Outcome[Any], where: Kept) -> str:
    """What can be done about a run that waits: the truth, by what it waits for and where it is kept."""
    waits = ", ".join(f"{_WAITS[each.kind]} {each.tool}" for each in outcome.pending)
    if where.reached_by is not None:
        acts = [
            f"{_ACTS[each.kind].format(each.id)}{where.reached_by}"
            for each in outcome.pending[:_NAMED]
        ]
        more = len(outcome.pending) - len(acts)
        beside = f", and {more} more: remit approvals{where.reached_by}" if more > 0 else ""
        return f"it waits for {waits}. It is kept: {', '.join(acts)}{beside}"
    if not isinstance(where.remit.store, MemoryStore):
        return (
            f"it waits for {waits}. It is kept in the store of {where.remit.name!r}: code that holds it "
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
_ACTS = {
    "approval": "remit approve {0} (or remit reject)",
    "input": "remit supply {0} VALUE",
    "result": "remit supply {0} VALUE",
}
_NAMED = 3
"""So many of what is waited for are told with what to do."""


async def watched(
    running: AbstractAsyncContextManager[Live[Any]],
    where: Kept,
    shown: Shown,
    interrupts: Interrupts,
    run_id: str | None = None,
    *,
    limits: Limits | None = None,
    tells: bool = True,
) -> Outcome[Any]:
    """See a run to its end before somebody's eyes; `tells` the answer too. A signal cancels it and lets it close.

    `limits` are what it may use, if not what its remit says.
    """
    remit = where.remit
    model = named(remit.model)
    interrupts.heard, interrupts.leave = shown.heard, shown.leave
    asked: list[asyncio.Task[Any]] = []
    try:
        async with running as live:

            def stop(_: int) -> None:
                shown.cancelling()
                asked.append(asyncio.create_task(live.cancel()))

            with interrupts.stopping(stop):
                shown.begin(run_id or live.run_id, remit.name, model.name, limits or remit.limits)
                async for event in live:
                    shown.hear(event)
        answer = answer_of(live.outcome, remit) if tells else None
        shown.end(live.outcome, answer=answer, reached_by=where.reached_by)
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
