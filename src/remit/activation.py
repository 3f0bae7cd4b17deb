"""How a run comes to be executed here: started, attached to, resumed, or found to have ended.

Starting is idempotent (E8) and so is resuming (J3): both come down to reading the rows, becoming their one
writer, and driving from wherever the state stands. A fresh run goes the same way, with one row.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from remit.canonical import encode
from remit.config import Config, call_with
from remit.current import Frame
from remit.errors import ConfigurationError, RemitError, RunBusy
from remit.events import Listener
from remit.hearing import attend, leave
from remit.inherited import inherited
from remit.limits import Limits
from remit.loop import execute
from remit.means import LIMIT_REASONS
from remit.messages import ResultContent
from remit.models.opening import check_ready
from remit.outcome import Outcome, Reason
from remit.pending import PendingKind
from remit.plan import ready_calls
from remit.posts import write_cancel
from remit.record import Record
from remit.render import error_words
from remit.report import read_on, read_state, stored_outcome
from remit.rows import Activated, Opened
from remit.run import Run
from remit.sessions import Begun, GoneOn, begin, with_history
from remit.state import RunState
from remit.store.base import Held, Journal, Lease, NewRow, NewRun, RunInfo, Superseded
from remit.supervise import Cancel
from remit.surroundings import (
    changes,
    refuse_exchange,
    refuse_unsafe,
    refuse_unsafe_inside,
    tools_of,
)
from remit.transcript import Transcript
from remit.withdraw import withdraw_left
from remit.workers import Workers

__all__ = [
    "Activation",
    "Host",
    "Request",
    "cancel",
    "live_runs",
    "look",
    "outermost",
    "resume",
    "start",
]

OWNER: Final = f"process {os.getpid()} {secrets.token_hex(4)}"
"""Who holds the leases of this process; new with every start, so that it never takes itself for its dead self."""

_FOLLOW_SECONDS: Final = 0.05
_LONGEST_FOLLOW_SECONDS: Final = 1.0
"""Between two looks at a run that another process executes."""
_GOES_ON = frozenset({Reason.MODEL_FAILED, Reason.JOURNAL_FAILED, Reason.INTERNAL_ERROR})
_LIMITS = frozenset({*LIMIT_REASONS.values(), Reason.DEADLINE})


class Host(msgspec.Struct, frozen=True):
    """Where runs are executed and kept."""

    store: Journal
    workers: Workers
    listeners: tuple[Listener, ...] = ()
    frame: Frame | None = None
    """The call around, for a run inside a tool body."""


class Request(msgspec.Struct, frozen=True):
    """What a run is asked for."""

    prompt: tuple[ResultContent, ...]
    history: Transcript | None
    run_id: str | None
    deps: Any
    limits: Limits
    tags: Mapping[str, str]
    session: str | None = None
    session_wait: float = 0.0
    """Seconds for which another run of the session is waited for."""
    reserve: bool = False
    """Set the whole share of a child aside."""


class Activation(msgspec.Struct, frozen=True):
    """A run that is under way, or over."""

    task: asyncio.Task[Outcome[Any]]
    run: Run | None = None
    """None where it was attached to, or had ended before."""
    followed: Run | None = None
    """The run that was attached to."""


class _MovedOn(Exception):
    """Somebody else had the run between the look at it and the lease, and wrote."""


class _BeingTakenUp(RunBusy):
    """This process itself is about to become the writer of the run."""

    def __init__(self, run_id: str, done: concurrent.futures.Future[None]) -> None:
        super().__init__(run_id, OWNER)
        self.done = done
        """Done once the run is found in `_LIVE`, or is left as it was."""


class _Executed:
    """A run that this process executes, in whichever thread."""

    __slots__ = ("_end", "run", "task")

    def __init__(self, run: Run, task: asyncio.Task[Outcome[Any]]) -> None:
        self.run = run
        self.task = task
        self._end: concurrent.futures.Future[Outcome[Any]] | None = None

    def end(self) -> concurrent.futures.Future[Outcome[Any]]:
        """How the task ends, for other event loops: its own may be closed before they come to ask.

        Made for the first who asks: few are asked about, and it takes more than a kilobyte.
        """
        with _ENDING:
            if self._end is None:
                self._end = concurrent.futures.Future()
                self._end.set_running_or_notify_cancel()  # no follower's cancellation is the run's
                if self.task.done():
                    self._tell(self._end)
            return self._end

    def ended(self, _: object) -> None:
        """The task has ended: nobody finds it here any more."""
        with _ENDING:
            if self._end is not None and not self._end.done():
                self._tell(self._end)
        _LIVE.pop((id(self.run.record.store), self.run.state.run_id), None)
        leave(self.run)

    def _tell(self, end: concurrent.futures.Future[Outcome[Any]]) -> None:
        task = self.task
        if task.cancelled():
            end.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            end.set_exception(error)
        else:
            end.set_result(task.result())


_ENDING: Final = threading.Lock()
"""Whoever asks from another thread comes before or behind the end, never beside it."""


_LIVE: Final[dict[tuple[int, str], _Executed]] = {}
"""What this process executes, by store and run."""


_TAKING: Final[dict[tuple[int, str], concurrent.futures.Future[None]]] = {}
"""The runs whose lease this process is asking for, by store and run."""


@contextlib.contextmanager
def _taking_up(store: Journal, run_id: str) -> Generator[None]:
    """Nobody else of this process asks for the lease meanwhile. Errors: `RunBusy`."""
    key, done = (id(store), run_id), concurrent.futures.Future[None]()
    done.set_running_or_notify_cancel()  # whoever waits for it and is cancelled ends nothing
    if (first := _TAKING.setdefault(key, done)) is not done:
        raise _BeingTakenUp(run_id, first)
    try:
        if key in _LIVE:  # it was taken up between the look at it and now
            raise _BeingTakenUp(run_id, done)
        yield
    finally:
        del _TAKING[key]
        done.set_result(None)


def live_runs(store: Journal) -> tuple[str, ...]:
    """The ids of the runs of this store that this process executes now."""
    # A copy: runs of other threads come and go meanwhile.
    return tuple(run_id for owner, run_id in tuple(_LIVE) if owner == id(store))


def _attach(store: Journal, run_id: str) -> Activation | None:
    """Follow a run that this process executes now."""
    found = _LIVE.get((id(store), run_id))
    return None if found is None else Activation(_followed(found))


async def start(config: Config, host: Host, request: Request) -> Activation:
    """Start a run, or find the one that has its id.

    One that another process executes is waited for.
    Errors: `ConfigurationError` where the call is wrong, the model lacks its key or the id stands for another
    request; `SessionBusy`.
    """
    spec_hash = _spec_hash(config.name, request.prompt, request.session)
    run_id = request.run_id or _new_id(config, host.frame, spec_hash)
    if host.frame is None or not host.frame.begun:
        return await _start(config, host, request, run_id, spec_hash)
    host.frame.claim(run_id)
    try:
        await refuse_exchange(
            host.store,
            host.frame,
            run_id,
            lambda name: _spec_hash(name, request.prompt, request.session),
        )
        return await _start(config, host, request, run_id, spec_hash)
    except RemitError:
        host.frame.lost = True
        raise


async def _start(
    config: Config, host: Host, request: Request, run_id: str, spec_hash: bytes
) -> Activation:
    """The same, for a run with this id. Errors: as `start`."""
    _check_prices(config, request.limits, host.frame)
    check_ready(config.model)
    opened = _opened(config, host, request)
    new = NewRun(
        run_id,
        spec_hash,
        NewRow(opened.kind, b""),
        None if host.frame is None else host.frame.run_id,
        remit=config.name,
        session=request.session,
        tags=request.tags,
    )
    begun = await _begun(config, host, request, new, opened)
    pause = _FOLLOW_SECONDS
    while True:
        try:
            return await _start_or_find(config, host, request, new, begun)
        except RunBusy:
            # Another process executes it: whoever starts it again waits for its end, or goes on with it where
            # that process dies (E8).
            begun = Begun(created=False)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_FOLLOW_SECONDS)
        except asyncio.CancelledError:
            if begun.created and request.session is not None:
                await _give_up(config, host, run_id)
            raise


async def _give_up(config: Config, host: Host, run_id: str) -> None:
    """Whoever asked is gone before the run was under way: it is closed, so that it does not hold its session (K1)."""
    if host.frame is not None and host.frame.detaching:
        return  # the run around will ask for it again

    async def close() -> None:
        alone = Host(host.store, host.workers)
        await (await cancel(config, alone, run_id, Cancel())).task

    closing = asyncio.get_running_loop().create_task(close())
    # Where that fails, the run is there to be resumed or cancelled.
    with contextlib.suppress(asyncio.CancelledError, RemitError):
        await asyncio.shield(closing)


async def _begun(
    config: Config, host: Host, request: Request, new: NewRun, opened: Opened
) -> Begun:
    """Create the run, or find that its id exists. Errors: `ConfigurationError`, `SessionBusy`, `JournalError`."""
    reads, workers = config.model.profile.reads, host.workers
    if request.session is not None:
        return await begin(
            host.store, new, opened, wait=request.session_wait, reads=reads, workers=workers
        )
    history = await inherited(request.history, reads=reads, workers=workers, store=host.store)
    created = await host.store.create(with_history(new, opened, history)) is True
    if created and request.history is not None:
        await withdraw_left(host.store, request.history)
    return Begun(created)


async def _start_or_find(
    config: Config, host: Host, request: Request, new: NewRun, begun: Begun
) -> Activation:
    """Begin the run that was created, or go on with the one that has its id. Errors: as `start`; `RunBusy`."""
    deps, reserve = request.deps, request.reserve
    if begun.created:
        fresh = RunState(new.run_id, (), begun.before)
        return await _activate(config, host, fresh, deps, limits=None, reserve=reserve)
    info = await host.store.info(new.run_id)
    _check_kept(info)
    if info is None or info.spec_hash != new.spec_hash:
        raise ConfigurationError(
            f"run_id {new.run_id!r} already stands for another prompt, session or remit; choose another id, or "
            "leave it out to get a fresh one"
        )
    return await resume(config, host, new.run_id, deps, limits=None, reopen=False, reserve=reserve)


async def resume(
    config: Config,
    host: Host,
    run_id: str,
    deps: Any,
    *,
    limits: Limits | None,
    reopen: bool,
    reserve: bool = False,
) -> Activation:
    """Go on with a run where there is anything to go on with; else its outcome as it stands (J3).

    Of those who ask at once in one process, one goes on with it, and the others follow.
    Errors: `ConfigurationError` for an unknown run or another remit's, `RunBusy`, `JournalError`.
    """
    while True:
        try:
            return await _resume(
                config, host, run_id, deps, limits=limits, reopen=reopen, reserve=reserve
            )
        except _MovedOn:
            continue  # what is there to go on with is another question now
        except _BeingTakenUp as busy:
            await asyncio.wrap_future(busy.done)


async def _resume(
    config: Config,
    host: Host,
    run_id: str,
    deps: Any,
    *,
    limits: Limits | None,
    reopen: bool,
    reserve: bool,
) -> Activation:
    """The same. Errors: as `resume`; `_MovedOn`, `_BeingTakenUp` where it has to be asked again."""
    live = _LIVE.get((id(host.store), run_id))
    if live is not None:
        _check_owner(live.run.state, config)
        _listen(live.run, host.listeners)
        return Activation(_followed(live), followed=live.run)
    state = await _known_state(host.store, run_id)
    _check_owner(state, config)
    if host.frame is None:
        await _check_outermost(host.store, run_id)
    asks = _asked_in_process(config, host.frame)
    if not await _goes_on(config, host.store, state, limits=limits, reopen=reopen, asks=asks):
        if state.ended is None and await _is_under_way(host.store, state):
            raise _MovedOn  # what was read is what another process is about to leave behind
        return await _as_it_stands(config, host, state)
    refuse_unsafe(state, config)  # before anything is changed; again, once nobody else can
    if (
        host.frame is None
    ):  # whoever resumes the root can act on it; later it would be a result for the model
        await refuse_unsafe_inside(host.store, state, config.tools)
    check_ready(config.model)
    try:
        return await _activate(config, host, state, deps, limits=limits, reserve=reserve)
    except GoneOn:
        if limits is not None or reopen:
            raise
        return await _as_it_stands(config, host, state)


async def _as_it_stands(config: Config, host: Host, state: RunState) -> Activation:
    """Nothing goes on: the outcome that is stored."""
    if host.frame is not None:  # its spend may be news to the accounts above
        host.frame.adopt(
            state.run_id,
            config.name,
            state.limits,
            state.own,
            state.bill,
            ours=state.opened.caller == host.frame.caller,
        )
    return _over(await stored_outcome(host.store, state, config.output))


async def _is_under_way(store: Journal, state: RunState) -> bool:
    """Whether there is more than this state knows: somebody took the run up, and went on or died.

    Errors: `RunBusy` where somebody has it now.
    """
    info = await store.info(state.run_id)
    if info is None or info.status != "running":
        return info is not None and info.rows != state.rows
    with _taking_up(store, state.run_id):
        lease = await store.acquire(state.run_id, OWNER)
        if isinstance(lease, Held):
            raise RunBusy(state.run_id, lease.owner)
        if isinstance(lease, Lease):
            await store.release(lease)
    return True


async def outermost(store: Journal, run_id: str) -> str:
    """The run to resume for this one to go on: of the runs around it that have not ended, the outermost."""
    info = await store.info(run_id)
    while info is not None and info.parent is not None:
        info = await store.info(info.parent)
        if info is None or info.status == "ended":
            break
        run_id = info.run_id
    return run_id


async def _check_outermost(store: Journal, run_id: str) -> None:
    """A run inside goes on inside: alone it would spend what the accounts above do not have (L3)."""
    root = await outermost(store, run_id)
    if root != run_id:
        raise ConfigurationError(f"run {run_id!r} is a part of run {root!r}: resume that one")


def _check_owner(state: RunState, config: Config) -> None:
    if state.opened.remit != config.name:
        raise ConfigurationError(
            f"run {state.run_id!r} belongs to remit {state.opened.remit!r}, not to {config.name!r}"
        )


async def look(config: Config, host: Host, run_id: str) -> Activation:
    """The outcome of a run, once there is one; nothing is set going. Errors: `ConfigurationError`, `RunBusy`."""
    attached = _attach(host.store, run_id)
    if attached is not None:
        return attached
    state = await _known_state(host.store, run_id)
    info = await host.store.info(run_id)
    if info is not None and info.status == "running" and info.owner is not None and not info.lost:
        raise RunBusy(run_id, info.owner)  # it has neither ended nor does it wait
    return _over(await stored_outcome(host.store, state, config.output))


async def cancel(config: Config, host: Host, run_id: str, said: Cancel) -> Activation:
    """End a run wherever it stands. One that another process executes is told to, and waited for.

    Where that process dies over it, the run is ended here. Errors: `ConfigurationError` for an unknown run.
    """
    told, pause = False, _FOLLOW_SECONDS
    while True:
        try:
            return await _cancel_here(config, host, run_id, said)
        except RunBusy:
            if not told:
                told = await host.store.post(run_id, "cancel", write_cancel(said))
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_FOLLOW_SECONDS)


async def _cancel_here(config: Config, host: Host, run_id: str, said: Cancel) -> Activation:
    """End a run that nobody else executes. Errors: `ConfigurationError` for an unknown run, `RunBusy`."""
    found = _LIVE.get((id(host.store), run_id))
    if found is not None:
        found.run.halt.set_threadsafe("cancelled", said)
        return Activation(_followed(found))
    state = await _known_state(host.store, run_id)
    if state.ended is not None:
        return _over(await stored_outcome(host.store, state, config.output))
    try:
        return await _activate(config, host, state, None, limits=None, halted=said)
    except (GoneOn, _MovedOn):  # it ended in the meantime
        return await _cancel_here(config, host, run_id, said)


async def _known_state(store: Journal, run_id: str) -> RunState:
    """Rebuild a state. Errors: `ConfigurationError` for an unknown run, `JournalError`."""
    info = await store.info(run_id)
    if info is None:
        raise ConfigurationError(f"there is no run {run_id!r} in this store")
    _check_kept(info)
    return await read_state(store, run_id)


def _check_kept(info: RunInfo | None) -> None:
    """Errors: `ConfigurationError` for a run of which only a tombstone is left."""
    if info is not None and info.erased:
        raise ConfigurationError(
            f"run {info.run_id!r} was erased: what it said is gone, and its id stays taken"
        )


async def _activate(
    config: Config,
    host: Host,
    known: RunState,
    deps: Any,
    *,
    limits: Limits | None,
    halted: Cancel | None = None,
    reserve: bool = False,
) -> Activation:
    """Become the writer of a run and drive it in a task of its own; `halted`: only to its end.

    `known` is what was read of it so far: nothing of a run that was just created. Errors: `RunBusy`, `GoneOn`,
    `JournalError`; `ConfigurationError` where its open calls cannot go on with these tools; `_MovedOn` where somebody
    wrote meanwhile, so that whether it goes on has to be asked again.
    """
    with _taking_up(host.store, known.run_id):
        return await _take_up(
            config, host, known, deps, limits=limits, halted=halted, reserve=reserve
        )


async def _take_up(
    config: Config,
    host: Host,
    known: RunState,
    deps: Any,
    *,
    limits: Limits | None,
    halted: Cancel | None,
    reserve: bool,
) -> Activation:
    """The same, where nobody else of this process does it. Errors: as `_activate`."""
    run_id, looked_at = known.run_id, known.rows
    again = looked_at > 0
    at = config.now().isoformat() if again else ""
    lease = await host.store.acquire(run_id, OWNER)
    if isinstance(lease, Held):
        raise RunBusy(run_id, lease.owner)
    if isinstance(lease, Superseded):
        raise GoneOn(run_id, lease)
    try:
        state = await read_on(host.store, known)
        if halted is None:
            refuse_unsafe(state, config)
    except BaseException:  # a cancellation too: nobody would give the lease back
        await host.store.release(lease)
        raise
    if again and state.rows > looked_at:
        await host.store.release(lease)
        raise _MovedOn
    record = Record(state, host.store, lease)
    changed = changes(state, config) if again else {}
    if again:
        tools = tools_of(config) if changed else dict[str, str]()
        record.write(Activated(limits or state.limits, at, changed, tools))
    run = Run(
        config,
        state,
        record,
        workers=host.workers,
        deps=deps,
        frame=host.frame,
        listeners=host.listeners,
        reserve=reserve,
    )
    run.again, run.changed = again, changed
    if halted is not None:
        run.halt.set("cancelled", halted)
    elif state.calls:
        run.restart_guards()
    task = run.loop.create_task(execute(run), name=f"remit {config.name} {run_id}")
    if not task.done():
        executed = _LIVE[id(host.store), run_id] = _Executed(run, task)
        task.add_done_callback(executed.ended)
        attend(run)
    return Activation(task, run)


async def _goes_on(
    config: Config,
    store: Journal,
    state: RunState,
    *,
    limits: Limits | None,
    reopen: bool,
    asks: frozenset[PendingKind],
) -> bool:
    """Whether there is anything to go on with."""
    if state.ended is None:
        return not state.parked or await _has_moved(store, state, config.now(), asks)
    reason = Reason(state.ended.reason)
    if reason in _LIMITS:
        return limits is not None and _leave_room(limits, state, config.now())
    return reason in _GOES_ON or (reason is Reason.CANCELLED and reopen)


def _asked_in_process(config: Config, frame: Frame | None) -> frozenset[PendingKind]:
    """What somebody in this process can be asked for."""
    kinds: set[PendingKind] = set()
    if config.confirm is not None or (frame is not None and frame.confirm is not None):
        kinds.add("approval")
    if config.answer is not None or (frame is not None and frame.answer is not None):
        kinds.add("input")
    return frozenset(kinds)


async def _has_moved(
    store: Journal, state: RunState, now: datetime, asks: frozenset[PendingKind]
) -> bool:
    """Whether a waiting run, or one inside it, can go on: something came in, or somebody can be asked now."""
    info = await store.info(state.run_id)
    if info is None or info.unread or not state.calls or ready_calls(state, now):
        return True
    for call in state.calls:
        if call.settled:
            continue
        if call.awaits is not None:
            inside = await read_state(store, call.awaits)
            if inside.ended is not None or await _has_moved(store, inside, now, asks):
                return True
        elif call.pending is not None and call.pending.wants in asks:
            return True
    return False


def _leave_room(limits: Limits, state: RunState, now: datetime) -> bool:
    used = state.tree
    return (
        limits.steps > used.steps
        and limits.tokens > used.tokens
        and limits.seconds > state.seconds
        and (limits.usd is None or limits.usd > used.usd)
        and (limits.calls is None or limits.calls > used.calls)
        and (limits.deadline is None or limits.deadline > now)
    )


def _check_prices(config: Config, limits: Limits, frame: Frame | None) -> None:
    """A usd limit that nobody can hold is refused before anything is sent (L2)."""
    profile = config.model.profile
    if profile.price is not None or profile.reserve_usd is not None:
        return
    account = None if frame is None else frame.budget
    capped = limits.usd is not None
    while account is not None:
        capped = capped or account.limits.usd is not None
        account = account.parent
    if capped:
        raise ConfigurationError(
            f"limits.usd is set, but the price of model {config.model.name!r} is unknown: say it, by "
            "remit.model(..., price=...), its profile, or [prices] of remit.toml, or leave the usd limit out"
        )


def _opened(config: Config, host: Host, request: Request) -> Opened:
    above = () if host.frame is None else host.frame.names
    return Opened(
        remit=config.name,
        prompt=request.prompt,
        history=(),
        limits=request.limits,
        instructions=_instructions(config, request.deps),
        path=(*above, config.name),
        tags=dict(request.tags),
        at=config.now().isoformat(),
        caller=None if host.frame is None else host.frame.caller,
        session=request.session,
        model=config.model.name,
        tools=tools_of(config),
    )


def _instructions(config: Config, deps: Any) -> str:
    """The instructions of this run, evaluated once. Errors: `ConfigurationError` where that fails."""
    given = config.instructions
    if isinstance(given, str):
        return given
    try:
        text = call_with(given, deps)
    except Exception as error:  # a function of the host's may raise anything
        missing = "" if deps is not None else "; this run was given no deps="
        raise ConfigurationError(
            f"the function in instructions= failed with {error_words(error)}{missing}"
        ) from error
    if not isinstance(text, str):
        raise ConfigurationError(
            f"the function in instructions= returned {type(text).__name__}, not a text"
        )
    return text


def _spec_hash(name: str, prompt: Sequence[ResultContent], session: str | None) -> bytes:
    asked: list[Any] = [name, [block.to_json() for block in prompt]]
    if session is not None:
        asked.append(session)
    return hashlib.sha256(encode(asked)).digest()


def _new_id(config: Config, frame: Frame | None, spec_hash: bytes) -> str:
    if frame is not None:
        return frame.child_id(config.name, spec_hash.hex())
    return _uuid7()


def _uuid7() -> str:
    """A time-ordered id (RFC 9562, version 7). Written out, because `uuid` is slow to import."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    digits = f"{value & ~(0x3 << 62) | 0x2 << 62:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _over(outcome: Outcome[Any]) -> Activation:
    return Activation(asyncio.get_running_loop().create_task(_known(outcome)))


async def _known(outcome: Outcome[Any]) -> Outcome[Any]:
    return outcome


def _listen(run: Run, listeners: tuple[Listener, ...]) -> None:
    """Have them told what happens from here on. The run may belong to another loop."""
    if not listeners or run.loop is asyncio.get_running_loop():
        run.listen(listeners)
        return
    with contextlib.suppress(RuntimeError):  # closed, perhaps at this very moment
        run.loop.call_soon_threadsafe(run.listen, listeners)


def _followed(executed: _Executed) -> asyncio.Task[Outcome[Any]]:
    """A task of the running loop that ends as the run does, which may belong to another loop."""
    loop = asyncio.get_running_loop()
    if executed.task.get_loop() is loop:
        return loop.create_task(_shielded(executed.task))
    return loop.create_task(_elsewhere(executed.end()))


async def _shielded(task: asyncio.Task[Outcome[Any]]) -> Outcome[Any]:
    return await asyncio.shield(task)


async def _elsewhere(end: concurrent.futures.Future[Outcome[Any]]) -> Outcome[Any]:
    return await asyncio.wrap_future(end)
