"""What approving, rejecting and supplying have in common: find it, show it, ask, act once, go on, tell what came of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final

from remit.analysis.cells import clip, one_line
from remit.analysis.layout import Glyphs
from remit.cli import exits
from remit.cli.cases import Case, came_of, case_named, rows_of_case
from remit.cli.display import PlainPage, TerminalAsker, display_for, display_mode
from remit.cli.documents import VERSION, outcome_document, write_document
from remit.cli.keeper import stand_in
from remit.cli.keyboard import Keyboard, controlling_terminal
from remit.cli.options import Again, Display
from remit.cli.resume import go_on, ready_to_go_on
from remit.cli.run import concluded
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.stores import reached_by
from remit.cli.streams import Streams, complain
from remit.cli.targets import AnyRemit
from remit.errors import ConfigurationError, DecisionError, RunBusy
from remit.messages import Status, Text
from remit.outcome import Outcome
from remit.pending import PendingKind
from remit.report import read_state
from remit.rows import Settled
from remit.store.sqlite import SqliteStore

__all__ = ["Act", "carry_out", "find", "find_and_ask"]

_RESULT_CELLS: Final = 400
_OTHER_WAY: Final[Mapping[PendingKind, str]] = {
    "approval": "is decided: remit approve {0}, or remit reject {0}",
    "input": "asks for a value: remit supply {0} VALUE",
    "result": "waits for a result: remit supply {0} VALUE",
}


@dataclass(frozen=True, slots=True)
class Act:
    """How something is decided, beside what."""

    streams: Streams
    flag: str | None
    """`--store`."""
    again: Again
    display: Display
    json: bool
    resumes: bool
    """The run goes on at once."""


def find(store: SqliteStore, named: str, act: Act, kinds: frozenset[PendingKind]) -> Case:
    """What is to be decided, shown. Where no person sits there its id is written in full."""
    keyboard = _keyboard(act.streams)
    case = asyncio.run(_find(store, named, kinds, whole=keyboard is None))
    _show_on_stderr(case, act)
    return case


def find_and_ask(
    store: SqliteStore, named: str, act: Act, kinds: frozenset[PendingKind], *, asks: bool
) -> Case | None:
    """What is to be approved, shown to a person who says yes to it; `asks` is False where that was said before.

    None where the person did not say yes.
    """
    keyboard = _keyboard(act.streams) if asks else None
    if asks and keyboard is None:
        raise ConfigurationError(
            "there is no terminal to ask on: --yes approves without, with the id in full"
        )
    case = asyncio.run(_find(store, named, kinds, whole=not asks))
    if case.expired:
        raise DecisionError(
            "expired",
            f"its time is over: remit resume {case.root}{reached_by(act.flag)} goes on, and may ask anew",
        )
    if keyboard is None:
        _show_on_stderr(case, act)
        return case
    return case if _says_yes(case, keyboard, act.streams) else None


def carry_out(
    act: Act,
    store: SqliteStore,
    case: Case,
    decide: Callable[[AnyRemit], Awaitable[object]],
    said: Mapping[str, Any],
    *,
    needs_code: bool = False,
) -> int:
    """Decide, have the run go on, and tell what came of it. Returns the exit code.

    The run's code is loaded before anything is decided, so that nothing is approved that could not go on here;
    where it does not go on, `needs_code` says that the code is asked all the same. `said` is what was decided, for
    programs. Errors: `DecisionError`; as `ready_to_go_on`.
    """
    shown = display_for(act.streams, act.display)
    state = asyncio.run(read_state(store, case.root))
    where = None
    if act.resumes or needs_code:
        where = ready_to_go_on(store, state, act.again, shown, reached_by(act.flag))
    remit = stand_in(state.opened.remit, store) if where is None else where.remit

    async def main(interrupts: Interrupts) -> int:
        try:
            await decide(remit)
        except DecisionError:
            of = f"{case.pending.id}: remit show {quote(case.root)}{reached_by(act.flag)}"
            _tell(act, f"{of} tells what became of it")
            raise
        _tell(act, f"{said['decision']} by {said['by']}: {case.pending.tool} {case.pending.id}")
        outcome: Outcome[Any] | None = None
        if where is not None and act.resumes:
            try:
                outcome = await go_on(where, state, shown, interrupts, tells=not act.json)
            except RunBusy as busy:
                _tell(act, f"run {case.root} is executed by {busy.owner}, which goes on with it")
        came = await came_of(store, case)
        if (
            case.pending.kind == "approval"
            and said["decision"] == "approved"
            and outcome is not None
        ):
            _tell(act, _executed(case, came))
        if act.json:
            document = {**_document(case, came), **said}
            document["outcome"] = None if outcome is None else outcome_document(outcome)
            write_document(document, act.streams.answer)
        if where is None or outcome is None:
            return exits.OK
        return concluded(outcome, where, interrupts, quiet=act.display.quiet)

    return run_until_done(main)


async def _find(
    store: SqliteStore, named: str, kinds: frozenset[PendingKind], *, whole: bool
) -> Case:
    case = await case_named(store, named, whole=whole)
    pending = case.pending
    if pending.kind not in kinds:
        raise ConfigurationError(f"{pending.id} {_OTHER_WAY[pending.kind].format(pending.id)}")
    return case


def _keyboard(streams: Streams) -> Keyboard | None:
    path = controlling_terminal() if streams.own else None
    return None if path is None else Keyboard(path)


def _show_on_stderr(case: Case, act: Act) -> None:
    if act.display.quiet:
        return
    notes = act.streams.notes
    mode = display_mode(os.environ, is_tty=notes.isatty(), color=act.display.color, plain=True)
    page = PlainPage(notes, glyphs=Glyphs.of(notes.encoding), colour=mode.colour)
    page.show(rows_of_case(case, page.glyphs, page.columns))


def _says_yes(case: Case, keyboard: Keyboard, streams: Streams) -> bool:
    """Show it where the question stands, whole, and ask."""
    asker = TerminalAsker(keyboard, glyphs=Glyphs.of(streams.notes.encoding))
    asker.show(rows_of_case(case, asker.glyphs, asker.columns))
    tool = one_line(case.pending.tool)
    answers: list[str] = []

    async def ask(interrupts: Interrupts) -> int:
        interrupts.leave = keyboard.restore
        answer = await keyboard.line(f"approve it once? type y, or the word {tool}: ")
        answers.append((answer or "").strip())
        return exits.OK

    code = run_until_done(ask)
    if code:
        raise KeyboardInterrupt
    if answers[0].lower() in {"y", "yes"} or answers[0] == tool:
        return True
    complain("nothing was decided")
    return False


def _tell(act: Act, text: str) -> None:
    if not act.display.quiet:
        complain(text)


def _executed(case: Case, came: Settled | None) -> str:
    """What became of the call that was approved, in one line."""
    if came is None:
        return f"not executed yet: call {case.key}"
    words = {
        Status.OK: "executed once",
        Status.ERROR: "executed, and failed",
        Status.UNKNOWN: "it may have taken effect, its outcome is unknown",
    }.get(came.status, "not executed")
    return f"{words}: call {case.key}: {clip(one_line(_text(came)), _RESULT_CELLS)}"


def _document(case: Case, came: Settled | None) -> dict[str, Any]:
    pending = case.pending
    return {
        "v": VERSION,
        "id": pending.id,
        "kind": pending.kind,
        "run_id": pending.run_id,
        "resume": case.root,
        "tool": pending.tool,
        "key": case.key,
        "arguments": pending.arguments,
        "arguments_hash": pending.arguments_hash,
        "result": None
        if came is None
        else {"status": came.status.value, "is_error": came.is_error, "text": _text(came)},
    }


def _text(came: Settled) -> str:
    return "".join(block.text for block in came.content if isinstance(block, Text))
