"""A run as one value: what it was asked, what it did step by step, what it used and why it ended.

`sheet_of` makes it from a `Story`; terminal and JSON only render it (`sheet_layout`, `to_document`), and a part of
it is a sheet again (`narrowed`). No token is in it, secrets are masked, and texts are as they were said: whoever
shows them makes them harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

from remit.amounts import Totals
from remit.analysis.story import Called, Step, Story, read_story, words_of
from remit.artifacts import HANDLE_PREFIX
from remit.dispatch.person import pending_of
from remit.errors import JournalError
from remit.limits import Limits
from remit.messages import Usage
from remit.pending import Pending
from remit.rows import Settled, Trim
from remit.store.base import Journal
from remit.store.directory import RunEntry

__all__ = [
    "ArtifactSheet",
    "AsideSheet",
    "CallSheet",
    "ChildSheet",
    "DecisionSheet",
    "GrantSheet",
    "Only",
    "PendingSheet",
    "RunSheet",
    "SpentSheet",
    "StepSheet",
    "child_of",
    "narrowed",
    "pending_of_story",
    "sheet_of",
    "to_document",
]

Only: TypeAlias = Literal["failed", "calls", "text", "effects", "artifacts", "budget", "children"]
"""A part of a sheet."""


class SpentSheet(msgspec.Struct, frozen=True, kw_only=True):
    """What was used."""

    steps: int
    calls: int
    tokens: int
    usd: Decimal
    seconds: float
    usage: Usage

    @classmethod
    def of(cls, totals: Totals, seconds: float) -> SpentSheet:
        return cls(
            steps=totals.steps,
            calls=totals.calls,
            tokens=totals.tokens,
            usd=totals.usd,
            seconds=round(seconds, 6),
            usage=totals.usage,
        )


class DecisionSheet(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody decided of a call."""

    approve: bool
    by: str
    note: str
    edit: str | None
    """The arguments in place of the model's, as JSON."""


class GrantSheet(msgspec.Struct, frozen=True, kw_only=True):
    """A standing grant that was used."""

    id: str
    by: str
    """Who gave it."""


class ArtifactSheet(msgspec.Struct, frozen=True, kw_only=True):
    """An output that is kept outside of the transcript."""

    handle: str
    call: str
    """The tool use that it came of."""
    tool: str
    media_type: str | None
    """Of media; None for text."""
    shown: int | None
    """Characters of it that the model was shown at once; None where that is not known."""
    chars: int | None
    """Characters of the text it holds; None where that is not known."""


class CallSheet(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool."""

    id: str
    key: str | None
    """None where no call came about."""
    tool: str
    effect: str
    """What running it twice would do; empty where no call came about."""
    status: str
    """As in `call_settled`; `waiting`, `open` or `in_doubt` of a call without a result: it was started."""
    arguments: str
    """As the model gave them, secrets masked."""
    result: str | None
    """What the model was told; None where it has none."""
    repeats: bool
    """It carries on an earlier, equal call whose outcome is not known."""
    summary: str | None
    """What the person who decided was shown."""
    decision: DecisionSheet | None
    grant: GrantSheet | None
    """The standing grant that let it run, where nobody was asked about it."""
    pending: str | None
    """Id of what it waits for."""
    children: tuple[str, ...]
    """Runs inside of it."""
    artifacts: tuple[str, ...]
    cost: SpentSheet
    """What it charged by itself."""

    @property
    def failed(self) -> bool:
        return self.status in {"error", "refused", "not_started", "unknown", "in_doubt"}

    @property
    def is_effect(self) -> bool:
        return self.effect not in {"", "read"}


class StepSheet(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of the model, and its calls."""

    step: int | None
    """From 1; None for a reply that counts as no step, such as the hand-back."""
    text: str
    stop_reason: str
    closing: bool
    whole: bool
    """False where it was cut short."""
    invalid: str | None
    usage: Usage
    usd: Decimal
    estimated: bool
    seconds: float
    """That the model took."""
    calls_seconds: float | None
    """That its calls took together; None where no row tells."""
    calls: tuple[CallSheet, ...]


class AsideSheet(msgspec.Struct, frozen=True, kw_only=True):
    """Something beside the replies: a note, input, a break of the prefix."""

    after: int
    """How many replies stand before it."""
    what: str
    text: str


class PendingSheet(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is waited for. Its id names it, no token is here."""

    id: str
    kind: str
    run_id: str
    tool: str
    arguments: str
    summary: str
    asked_at: datetime | None
    """None where no row says it."""
    expires_at: datetime
    schema: Mapping[str, Any] | None
    key: str | None
    arguments_hash: str | None


class ChildSheet(msgspec.Struct, frozen=True, kw_only=True):
    """A run inside of this one."""

    run_id: str
    remit: str
    status: str
    reason: str | None
    call: str | None
    """The tool use that it runs in."""
    spent: SpentSheet | None
    """None where its rows cannot be read."""


class RunSheet(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    run_id: str
    remit: str
    path: tuple[str, ...]
    parent: str | None
    session: str | None
    tags: Mapping[str, str]
    status: str
    reason: str | None
    whose: str | None
    error: str | None
    owner: str | None
    """Who executes it."""
    lost: bool
    """Whoever did is gone without a word: it broke off, and can be resumed."""
    created_at: datetime
    ended_at: datetime | None
    erased_at: datetime | None
    unreadable: str | None
    """Why its rows cannot be read; None where they can."""
    prompt: str = ""
    history: int = 0
    """Messages of the conversation that it went on from."""
    text: str = ""
    """What the model said last."""
    limits: Limits | None = None
    spent: SpentSheet | None = None
    """By this run itself."""
    spent_tree: SpentSheet | None = None
    """With what runs inside."""
    steps: tuple[StepSheet, ...] = ()
    asides: tuple[AsideSheet, ...] = ()
    pending: tuple[PendingSheet, ...] = ()
    children: tuple[ChildSheet, ...] = ()
    artifacts: tuple[ArtifactSheet, ...] = ()

    @property
    def in_doubt(self) -> tuple[CallSheet, ...]:
        """Calls whose effect may or may not have come about."""
        return tuple(
            call
            for step in self.steps
            for call in step.calls
            if call.is_effect and call.status in {"in_doubt", "unknown"}
        )


def sheet_of(
    entry: RunEntry,
    story: Story | None,
    *,
    unreadable: str | None = None,
    pending: Sequence[PendingSheet] = (),
    children: Sequence[ChildSheet] = (),
) -> RunSheet:
    """A run as it stands. `story` is None where its rows were erased or cannot be read."""
    about = RunSheet(
        run_id=entry.run_id,
        remit=entry.remit,
        path=(entry.remit,),
        parent=entry.parent,
        session=entry.session,
        tags=entry.tags,
        status=entry.status,
        reason=entry.reason,
        whose=None,
        error=None,
        owner=entry.owner,
        lost=entry.lost,
        created_at=entry.created_at,
        ended_at=entry.ended_at,
        erased_at=entry.erased_at,
        unreadable=unreadable,
        children=tuple(children),
    )
    if story is None:
        return about
    state, opened, ended = story.state, story.state.opened, story.state.ended
    live = entry.owner is not None and not entry.lost
    inside = _by_call(children)
    return msgspec.structs.replace(
        about,
        path=opened.path,
        whose=None if ended is None else ended.whose,
        error=None if ended is None else ended.error,
        prompt=words_of(opened.prompt),
        history=len(opened.history),
        text=state.text,
        limits=state.limits,
        spent=SpentSheet.of(state.own, state.seconds),
        spent_tree=SpentSheet.of(state.tree, state.seconds),
        steps=tuple(_step(step, inside, live=live) for step in story.steps),
        asides=tuple(
            AsideSheet(after=aside.after, what=aside.what, text=aside.text)
            for aside in story.asides
        ),
        pending=tuple(pending),
        artifacts=tuple(_artifacts(story)),
    )


def child_of(entry: RunEntry, story: Story | None) -> ChildSheet:
    """A run as the one around it lists it."""
    caller = None if story is None else story.state.opened.caller
    state = None if story is None else story.state
    return ChildSheet(
        run_id=entry.run_id,
        remit=entry.remit,
        status=entry.status,
        reason=entry.reason,
        call=None if caller is None else caller.removeprefix(f"{entry.parent}:"),
        spent=None if state is None else SpentSheet.of(state.tree, state.seconds),
    )


async def pending_of_story(store: Journal, story: Story) -> tuple[PendingSheet, ...]:
    """What an idle run waits for, in call order; for a call that waits for a child, the child's.

    Errors: `JournalError` where a child cannot be read.
    """
    found: list[PendingSheet] = []
    for call in story.calls():
        if call.state.settled:
            continue
        if call.state.awaits is not None:
            child = await read_story(store, call.state.awaits, whole=False)
            if child.state.opened.path[:-1] != story.state.opened.path:
                raise JournalError(f"run {child.run_id!r} is not inside of {story.run_id!r}")
            found.extend(await pending_of_story(store, child))
        elif call.state.pending is not None:
            pending = pending_of(story.run_id, story.state.opened.path, call.state)
            found.append(_pending(pending, call))
    return tuple(found)


def narrowed(
    sheet: RunSheet,
    *,
    steps: tuple[int, int] | None = None,
    call: str | None = None,
    only: Only | None = None,
) -> RunSheet:
    """A part of a sheet: these steps, from one to the other; one call by id or key; one kind of thing."""
    chosen = sheet.steps
    if steps is not None:
        first, last = steps
        chosen = tuple(step for step in chosen if first <= (step.step or 0) <= last)
    if call is not None:
        chosen = _with_calls(chosen, lambda each: call in {each.id, each.key})
    match only:
        case "failed":
            chosen = _with_calls(chosen, lambda each: each.failed)
        case "effects":
            chosen = _with_calls(chosen, lambda each: each.is_effect)
        case "calls":
            chosen = _with_calls(chosen, lambda _: True)
        case "text":
            chosen = tuple(
                msgspec.structs.replace(step, calls=()) for step in chosen if step.text.strip()
            )
        case "artifacts" | "children":
            chosen = ()
        case "budget":
            chosen = tuple(msgspec.structs.replace(step, calls=(), text="") for step in chosen)
        case None:
            pass
    part = steps is not None or call is not None or only is not None
    return msgspec.structs.replace(sheet, steps=chosen, asides=() if part else sheet.asides)


def to_document(sheet: RunSheet) -> dict[str, Any]:
    """A sheet in plain JSON types. Money is a text, so that no digit is lost; times are ISO 8601."""
    return msgspec.to_builtins(sheet)


# --- parts ---------------------------------------------------------------------------------------


def _step(step: Step, inside: Mapping[str, tuple[str, ...]], *, live: bool) -> StepSheet:
    reply = step.reply
    return StepSheet(
        step=step.number,
        text="" if reply.message is None else reply.message.text,
        stop_reason=reply.stop_reason.value,
        closing=reply.closing,
        whole=reply.whole,
        invalid=reply.invalid,
        usage=reply.usage,
        usd=reply.usd,
        estimated=reply.estimated,
        seconds=reply.latency,
        calls_seconds=None if step.calls_seconds is None else round(step.calls_seconds, 6),
        calls=tuple(_call(call, inside.get(call.use.id, ()), live=live) for call in step.calls),
    )


def _call(call: Called, children: tuple[str, ...], *, live: bool) -> CallSheet:
    state, result = call.state, call.state.slot.result
    decision, pending = state.decision, state.pending
    if state.child is not None and state.child not in children:
        children = (*children, state.child)
    return CallSheet(
        id=call.use.id,
        key=state.key,
        tool=call.use.name,
        effect=call.asked.effect,
        status=_status(call, live=live),
        arguments=call.arguments,
        result=None if result is None else call.shown(words_of(result.content)),
        repeats=state.repeats,
        summary=None if state.proposal is None else state.proposal.summary,
        decision=None
        if decision is None
        else DecisionSheet(
            approve=decision.approve, by=decision.by, note=decision.note, edit=call.edit
        ),
        grant=None
        if state.grant is None
        else GrantSheet(id=state.grant.grant_id, by=state.grant.by),
        pending=None if pending is None or result is not None else pending.pending_id,
        children=children,
        artifacts=() if result is None else result.artifacts,
        cost=SpentSheet.of(state.spent + _spent_of(state.result), 0.0),
    )


def _spent_of(result: Settled | Trim | None) -> Totals:
    spent = result.spent if isinstance(result, Settled) else None
    return Totals() if spent is None else spent


def _status(call: Called, *, live: bool) -> str:
    state, result = call.state, call.state.slot.result
    if result is not None:
        return result.status.value
    if state.awaits is not None or state.pending is not None:
        return "waiting"
    if state.under_way and not live:
        return "in_doubt"
    return "open"


def _artifacts(story: Story) -> Iterator[ArtifactSheet]:
    """What the results of a run are kept as, in the order of the calls."""
    for call in story.calls():
        result = call.state.slot.result
        row = call.state.result
        kept = {} if row is None else {each.artifact: each for each in row.kept}
        for handle in () if result is None else result.artifacts:
            part = kept.get(handle)
            is_text = part is not None and part.form != "media"
            yield ArtifactSheet(
                handle=handle if handle.startswith(HANDLE_PREFIX) else HANDLE_PREFIX + handle,
                call=call.use.id,
                tool=call.use.name,
                media_type=part.media_type or None if part is not None else None,
                shown=part.head + part.tail if part is not None and is_text else None,
                chars=part.of or part.total if part is not None and is_text else None,
            )


def _pending(pending: Pending, call: Called) -> PendingSheet:
    # Who executes a call elsewhere gets its true arguments; whoever looks on does not.
    arguments = call.arguments if pending.kind == "result" else pending.arguments
    at = "" if call.state.pending is None else call.state.pending.at
    return PendingSheet(
        id=pending.id,
        kind=pending.kind,
        run_id=pending.run_id,
        tool=pending.tool,
        arguments=arguments,
        summary=pending.summary,
        asked_at=datetime.fromisoformat(at) if at else None,
        expires_at=pending.expires_at,
        schema=pending.schema,
        key=pending.key,
        arguments_hash=pending.arguments_hash,
    )


def _by_call(children: Sequence[ChildSheet]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for child in children:
        if child.call is not None:
            found[child.call] = (*found.get(child.call, ()), child.run_id)
    return found


def _with_calls(
    steps: Sequence[StepSheet], fits: Callable[[CallSheet], bool]
) -> tuple[StepSheet, ...]:
    """The steps that have such a call, with those calls alone."""
    narrow = [(step, tuple(filter(fits, step.calls))) for step in steps]
    return tuple(msgspec.structs.replace(step, calls=calls) for step, calls in narrow if calls)
