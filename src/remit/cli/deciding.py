"""What approving, rejecting and supplying have in common: find it, show it, ask, act once, go on, tell what came of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, Final

from remit.analysis.cells import clip, one_line
from remit.analysis.layout import Glyphs
from remit.cli import exits
from remit.cli.cases import Came, Case, came_of, case_named, rows_of_case
from remit.cli.display import Display as Shown
from remit.cli.display import PlainPage, TerminalAsker, display_for, display_mode
from remit.cli.documents import VERSION, outcome_document, write_document
from remit.cli.keeper import stand_in
from remit.cli.kept import Kept
from remit.cli.keyboard import Keyboard, controlling_terminal
from remit.cli.locations import reach_of
from remit.cli.options import Again, Display
from remit.cli.resume import go_on, ready_to_go_on
from remit.cli.run import concluded
from remit.cli.signals import Interrupts, run_until_done
from remit.cli.streams import Streams, complain
from remit.cli.targets import AnyRemit
from remit.errors import ConfigurationError, DecisionError, RunBusy
from remit.messages import Status, Text
from remit.outcome import Outcome
from remit.pending import PendingKind
from remit.report import read_state
from remit.rows import Settled
from remit.state import RunState
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
    alone: bool = True
    """Only one thing is decided."""
    refused: dict[str, DecisionError] = field(default_factory=dict[str, DecisionError])
    """What could not be decided, by how it was named."""

    def refuse(self, named: str, error: DecisionError) -> None:
        """One could not be decided: of several the others are, all the same. Errors: `DecisionError`."""
        if self.alone:
            raise error
        complain(str(error) if named in str(error) else f"{named}: {error}")
        self.refused[named] = error


def find(
    store: SqliteStore, named: Sequence[str], act: Act, kinds: frozenset[PendingKind]
) -> list[Case]:
    """What is to be decided, shown. Where no person sits there each id is written in full.

    Of several, what can be decided no more is told and left out, and so below. Errors: as `case_named`.
    """
    keyboard = _keyboard(act.streams)
    cases = _find(store, named, act, kinds, whole=keyboard is None)
    _show_on_stderr(cases, act)
    return cases


def find_and_ask(
    store: SqliteStore,
    named: Sequence[str],
    act: Act,
    kinds: frozenset[PendingKind],
    *,
    asks: bool,
) -> list[Case] | None:
    """What is to be approved, shown to a person who says yes to it; `asks` is False where that was said before.

    None where the person did not say yes.
    """
    keyboard = _keyboard(act.streams) if asks else None
    if asks and keyboard is None:
        raise ConfigurationError(
            "there is no terminal to ask on: --yes approves without, with the id in full"
        )
    cases = _find(store, named, act, kinds, whole=not asks)
    if keyboard is None:
        _show_on_stderr(cases, act)
        return cases
    return cases if not cases or _says_yes(cases, keyboard, act.streams) else None


def carry_out(
    act: Act,
    store: SqliteStore,
    cases: Sequence[Case],
    decide: Callable[[AnyRemit, Case], Awaitable[object]],
    said: Mapping[str, Any],
    *,
    needs_code: bool = False,
) -> int:
    """Decide each, have their runs go on, and tell what came of it. Returns the exit code.

    The code of the runs is loaded before anything is decided, so that nothing is approved that could not go on here;
    where they do not go on, `needs_code` says that the code is asked all the same. `said` is what was decided, for
    programs. Errors: `DecisionError`, if it is the only one; as `ready_to_go_on`.
    """
    loads = act.resumes or needs_code
    runs = {case.root: _ready(act, store, case.root, loads=loads) for case in cases}

    async def main(interrupts: Interrupts) -> int:
        for case in cases:
            await _decide(act, case, runs[case.root].remit, decide, said)
        decided = [case for case in cases if case.pending.id not in act.refused]
        outcomes: dict[str, Outcome[Any]] = {}
        for root in dict.fromkeys(case.root for case in decided):
            if act.resumes and interrupts.code is None:
                outcome = await _gone_on(act, runs[root], interrupts)
                if outcome is not None:
                    outcomes[root] = outcome
        documents: list[dict[str, Any]] = []
        for case in decided:
            came, outcome = await came_of(store, case), outcomes.get(case.root)
            if said["decision"] == "approved" and outcome is not None:
                _tell(act, _executed(case, came))
            told = None if outcome is None else outcome_document(outcome)
            documents.append({**_document(case, came.result), **said, "outcome": told})
        if act.json:
            write_document(_answer(act, documents), act.streams.answer)
        codes = [
            concluded(outcome, where, interrupts, quiet=act.display.quiet)
            for root, outcome in outcomes.items()
            if (where := runs[root].where) is not None
        ]
        return exits.CONFLICT if act.refused else next(filter(None, codes), exits.OK)

    return run_until_done(main)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that goes on once everything is decided."""

    state: RunState
    shown: Shown
    where: Kept | None
    """None where its code is not needed."""
    remit: AnyRemit


def _ready(act: Act, store: SqliteStore, root: str, *, loads: bool) -> _Run:
    """Errors: as `ready_to_go_on`."""
    shown = display_for(act.streams, act.display)
    state = asyncio.run(read_state(store, root))
    if not loads:
        return _Run(state, shown, None, stand_in(state.opened.remit, store))
    where = ready_to_go_on(store, state, act.again, shown, reach_of(act.flag))
    return _Run(state, shown, where, where.remit)


async def _decide(
    act: Act,
    case: Case,
    remit: AnyRemit,
    decide: Callable[[AnyRemit, Case], Awaitable[object]],
    said: Mapping[str, Any],
) -> None:
    """Errors: `DecisionError`, if it is the only one."""
    try:
        await decide(remit, case)
    except DecisionError as error:
        of = f"{case.pending.id}: remit show {quote(case.root)}{reach_of(act.flag)}"
        _tell(act, f"{of} tells what became of it")
        act.refuse(case.pending.id, error)
    else:
        _tell(act, f"{said['decision']} by {said['by']}: {case.pending.tool} {case.pending.id}")


async def _gone_on(act: Act, run: _Run, interrupts: Interrupts) -> Outcome[Any] | None:
    """None where it does not go on here."""
    if run.where is None:
        return None
    try:
        return await go_on(run.where, run.state, run.shown, interrupts, tells=not act.json)
    except RunBusy as busy:
        _tell(act, f"run {run.state.run_id} is executed by {busy.owner}, which goes on with it")
        return None


def _find(
    store: SqliteStore,
    named: Sequence[str],
    act: Act,
    kinds: frozenset[PendingKind],
    *,
    whole: bool,
) -> list[Case]:
    """Errors: as `case_named`; `DecisionError`, if it is the only one, for what is too late, too."""
    found: dict[str, Case] = {}
    for each in named:
        try:
            case = asyncio.run(case_named(store, each, whole=whole))
            _refuse_late(case, act)
        except DecisionError as error:
            act.refuse(each, error)
            continue
        pending = case.pending
        if pending.kind not in kinds:
            raise ConfigurationError(f"{pending.id} {_OTHER_WAY[pending.kind].format(pending.id)}")
        found[pending.id] = case
    return list(found.values())


def _refuse_late(case: Case, act: Act) -> None:
    """Errors: `DecisionError`."""
    if case.expired:
        raise DecisionError(
            "expired",
            f"its time is over: remit resume {case.root}{reach_of(act.flag)} goes on, and may ask anew",
        )


def _keyboard(streams: Streams) -> Keyboard | None:
    path = controlling_terminal() if streams.own else None
    return None if path is None else Keyboard(path)


def _show_on_stderr(cases: Sequence[Case], act: Act) -> None:
    if act.display.quiet:
        return
    notes = act.streams.notes
    mode = display_mode(os.environ, is_tty=notes.isatty(), color=act.display.color, plain=True)
    page = PlainPage(notes, glyphs=Glyphs.of(notes.encoding), colour=mode.colour)
    for case in cases:
        page.show(rows_of_case(case, page.glyphs, page.columns))


def _says_yes(cases: Sequence[Case], keyboard: Keyboard, streams: Streams) -> bool:
    """Show them where the question stands, whole, and ask once."""
    asker = TerminalAsker(keyboard, glyphs=Glyphs.of(streams.notes.encoding))
    for case in cases:
        asker.show(rows_of_case(case, asker.glyphs, asker.columns))
    tool = one_line(cases[0].pending.tool) if len(cases) == 1 else None
    question = (
        f"approve all {len(cases)}, each once? type y: "
        if tool is None
        else f"approve it once? type y, or the word {tool}: "
    )
    answers: list[str] = []

    async def ask(interrupts: Interrupts) -> int:
        interrupts.leave = keyboard.restore
        answer = await keyboard.line(question)
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


def _executed(case: Case, came: Came) -> str:
    """What became of the call that was approved, in one line."""
    if came.result is None:
        return f"not executed yet: call {case.key}"
    words = {
        Status.OK: "executed once",
        Status.ERROR: "executed, and failed",
        Status.UNKNOWN: "it may have taken effect, its outcome is unknown",
    }.get(came.result.status if came.begun else Status.NOT_STARTED, "not executed")
    return f"{words}: call {case.key}: {clip(one_line(_text(came.result)), _RESULT_CELLS)}"


def _answer(act: Act, documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The one that was decided; of several a list, and beside it those that could not be."""
    if act.alone:
        return {"v": VERSION, **documents[0]}
    failed = [
        {"id": named, "why": error.why, "error": str(error)} for named, error in act.refused.items()
    ]
    return {"v": VERSION, "decisions": documents, "failed": failed}


def _document(case: Case, came: Settled | None) -> dict[str, Any]:
    pending = case.pending
    return {
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
