"""The face: `Remit`, what other libraries call an agent.

A frozen value that says who is asked, with which tools, under which limits. `run`, `stream`, `resume`, `decide`
and `supply` are what there is to do with it. It checks what can be checked before anything is sent; how a run
comes to be executed is `activation.py`'s, the loop itself `loop.py`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypedDict, Unpack, overload

from typing_extensions import TypeForm, TypeVar

from remit import activation
from remit.activation import Activation, Host, Request
from remit.artifacts import Artifact, digest_of
from remit.checks import (
    check_cancel,
    check_model,
    check_name,
    check_options,
    check_parts,
    check_session,
    check_tags,
)
from remit.clock import utc
from remit.config import GRACE_SECONDS, Config, Instructions, Note, StopWhen, shown_tools
from remit.current import CURRENT, Frame
from remit.deciding import decide, new_token, refuse_inside, supply
from remit.errors import ConfigurationError
from remit.events import Listener
from remit.explained import explained
from remit.granting import grants_of, new_grant
from remit.limits import Limits
from remit.live import Live, content_of, in_hand, see_through
from remit.messages import ResultContent
from remit.models.base import Model, Settings
from remit.models.names import named
from remit.models.opening import check_ready, opened
from remit.outcome import Outcome
from remit.paging import with_reading
from remit.pending import (
    AnswerCallback,
    ConfirmCallback,
    Decision,
    Guard,
    Policy,
)
from remit.redaction import Redactor
from remit.store.base import Journal
from remit.store.grants import Grant
from remit.store.names import store_named
from remit.supervise import Cancel
from remit.tools import Call, Tool, Tools, resolve
from remit.transcript import Transcript
from remit.workers import ThreadWorkers, Workers

if TYPE_CHECKING:
    from remit.tools.output import OutputSpec

__all__ = ["Remit", "Runtime"]

Deps = TypeVar("Deps", default=Any)
Out_co = TypeVar("Out_co", default=str, covariant=True)
T = TypeVar("T")

Prompt = str | ResultContent | tuple[ResultContent, ...]

_WORKERS: Final = ThreadWorkers()
"""The blocking functions of this process run here; no thread is started before the first."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The surroundings of runs. Tests put simulated ones in their place."""

    workers: Workers = _WORKERS
    now: Callable[[], datetime] = _utc_now
    """Calendar time, aware."""
    grace: float = GRACE_SECONDS
    """Seconds for which a body that was cancelled is waited for."""

    def utc(self) -> datetime:
        """The same in UTC. Errors: `ConfigurationError` where `now` gives no instant."""
        return utc(self.now())


def _nothing_entered() -> dict[asyncio.AbstractEventLoop, list[contextlib.AsyncExitStack]]:
    return {}


class TheTools:
    """A field that takes tools and lists of tools, and gives one tuple of them."""

    @overload
    def __get__(self, instance: None, owner: type) -> Tools: ...
    @overload
    def __get__(self, instance: object, owner: type) -> tuple[Tool[..., Any], ...]: ...
    def __get__(self, instance: object | None, owner: type) -> Tools:
        return () if instance is None else vars(instance)["tools"]

    def __set__(self, instance: object, tools: Tools) -> None:
        """Errors: `ConfigurationError` for what are no tools, or two of one name."""
        vars(instance)["tools"] = tuple(resolve(tools).values())


class TheStore:
    """A field that takes a store or the name of one, and gives the store."""

    @overload
    def __get__(self, instance: None, owner: type) -> Journal | str: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Journal: ...
    def __get__(self, instance: object | None, owner: type) -> Journal | str:
        return "memory:" if instance is None else vars(instance)["store"]

    def __set__(self, instance: object, store: Journal | str) -> None:
        """Errors: `ConfigurationError` for a name that stands for no store."""
        vars(instance)["store"] = store_named(store)


class Changes(TypedDict, total=False):
    """What a copy may have different from its original: every part of a `Remit` but its types."""

    name: str
    model: Model | str
    limits: Limits
    tools: Tools
    instructions: Instructions
    settings: Settings
    policy: Policy | None
    guards: tuple[Guard, ...]
    confirm: ConfirmCallback | None
    answer: AnswerCallback | None
    redact: Redactor | None
    notes: tuple[Note, ...]
    stop_when: StopWhen | None
    show_budget: bool
    hand_back: bool
    store: Journal | str
    runtime: Runtime


@explained("Remit(name=..., model=..., limits=Limits(steps=..., tokens=..., seconds=...))")
@dataclass(frozen=True, kw_only=True)
class Remit(Generic[Deps, Out_co]):
    """What you delegate, and the limits you delegate it under."""

    name: str
    """Names it in outcomes, events and budgets; stored runs belong to it."""
    model: Model | str
    """A model, or the name of one, such as `demo:support`: once made, the remit holds the model."""
    limits: Limits
    """What one run may use. There is no default: unlimited is not on offer."""
    tools: TheTools = TheTools()
    """Tools and lists of tools; read back, they are one tuple in the order given."""
    instructions: Instructions = ""
    """The system text, or a function of the deps or of nothing, evaluated once for each run."""
    settings: Settings = field(default_factory=Settings)
    output: type[Out_co] | TypeForm[Out_co] | None = None
    """What a run hands in, as a type: a model, a dataclass, a list, a `Literal` ... None, as `str`: its text.
    What does not fit goes back to the model; after two retries in vain the run ends as `invalid_output`."""
    deps_type: type[Deps] | None = None
    """The type of `deps=`, for type checkers; a run of such a remit is not begun without deps."""
    policy: Policy | None = None
    """Asked about every call. Raising is a refusal."""
    guards: tuple[Guard, ...] = ()
    """Checks that run beside each model call and can veto it."""
    confirm: ConfirmCallback | None = None
    """Decides proposals in process, for a terminal; without it a run waits."""
    answer: AnswerCallback | None = None
    """Answers in process what tools ask by `Call.ask`; without it a run waits."""
    redact: Redactor | None = None
    """Applied to every text that tools return or raise, before it is kept, recorded, told or sent. From a text to a text;
    it runs in worker threads. Where it fails, the result is withheld. Runs inside this remit's tools keep to it too."""
    notes: tuple[Note, ...] = ()
    """Asked before each step; text that changed is told to the model."""
    stop_when: StopWhen | None = None
    """Asked about the transcript after each answered turn: True ends the run as completed. Raising is a no."""
    show_budget: bool = False
    """Tell the model what is left at 50, 25 and 10 percent."""
    hand_back: bool = True
    """At a limit, make one closing call so that the work comes back in words."""
    store: TheStore = TheStore()
    """Where runs are kept: a store or its name, such as `sqlite:///remit.db`; by default in memory, for this
    remit alone."""
    runtime: Runtime = field(default_factory=Runtime)
    _config: Config = field(init=False, repr=False, compare=False)
    _entered: dict[asyncio.AbstractEventLoop, list[contextlib.AsyncExitStack]] = field(
        init=False, repr=False, compare=False, default_factory=_nothing_entered
    )
    """What `async with` keeps open, for each event loop: blocks may lie in one another, and beside one another."""

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_parts(self)
        own = {tool.name: tool for tool in self.tools}
        model = named(self.model)
        check_model(model)
        output = _read_output(self.output, own)
        tools = shown_tools(with_reading(own), output, model)
        check_options(model, self.limits, self.settings, tools=tools)
        _check_runtime(self.runtime)
        object.__setattr__(self, "model", model)
        config = Config(
            name=self.name,
            model=model,
            tools=tools,
            specs=tuple(tool.spec for tool in tools.values()),
            instructions=self.instructions,
            limits=self.limits,
            settings=self.settings,
            output=output,
            policy=self.policy,
            guards=tuple(self.guards),
            confirm=self.confirm,
            answer=self.answer,
            redact=self.redact,
            notes=tuple(self.notes),
            stop_when=self.stop_when,
            show_budget=self.show_budget,
            hand_back=self.hand_back,
            grace=self.runtime.grace,
            now=self.runtime.utc,
        )
        object.__setattr__(self, "_config", config)

    # Opening

    async def __aenter__(self) -> Self:
        """Keep connections open from one run to the next. Without it a run opens what it needs, and closes it.

        Errors: `ConfigurationError` where the model lacks its key.
        """
        check_ready(self._config.model)
        stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(opened(self._config.model))
        self._entered.setdefault(asyncio.get_running_loop(), []).append(stack)
        return self

    async def __aexit__(self, *ending: object) -> None:
        loop = asyncio.get_running_loop()
        stacks = self._entered[loop]
        stack = (
            stacks.pop()
        )  # all of a loop keep the same open, so which of them goes does not matter
        if not stacks:
            del self._entered[loop]
        await stack.aclose()

    # Running

    async def run(
        self,
        prompt: Prompt,
        *,
        history: Transcript | None = None,
        session: str | None = None,
        session_wait: float | None = None,
        run_id: str | None = None,
        deps: Deps | None = None,
        limits: Limits | None = None,
        model: Model | str | None = None,
        settings: Settings | None = None,
        tags: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> Outcome[Out_co]:
        """Run the loop to an outcome.

        `history` is a transcript to go on from. `session` names a conversation whose history is kept in the store,
        and which has one run at a time: another one is waited for up to `session_wait` seconds. `run_id` makes the start idempotent: the same id and prompt
        again attach to the live run, resume a dead one, or return the stored outcome. `limits` narrow those
        of this remit. Inside a tool body the run is a child of that call, unless `detached`.
        Errors: `ConfigurationError` and `SessionBusy`, before anything is sent; then only cancellation, after
        the run was closed and its end journaled.
        """
        started = await self._start(
            prompt,
            history=history,
            session=session,
            session_wait=session_wait,
            run_id=run_id,
            deps=deps,
            limits=limits,
            model=model,
            settings=settings,
            tags=tags,
            detached=detached,
        )
        return await see_through(started.task, started.run)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        prompt: Prompt,
        *,
        history: Transcript | None = None,
        session: str | None = None,
        session_wait: float | None = None,
        run_id: str | None = None,
        deps: Deps | None = None,
        limits: Limits | None = None,
        model: Model | str | None = None,
        settings: Settings | None = None,
        tags: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> AsyncGenerator[Live[Out_co]]:
        """The same as `run`, with the run in your hands while it lasts.

        Leaving the block waits for the end; leaving it by an exception cancels the run. A live run of the same
        `run_id` is attached to: its events from here on are told, and only `cancel()` cancels it.
        """
        live: Live[Out_co] = Live()
        started = await self._start(
            prompt,
            history=history,
            session=session,
            session_wait=session_wait,
            run_id=run_id,
            deps=deps,
            limits=limits,
            model=model,
            settings=settings,
            tags=tags,
            detached=detached,
            listeners=(live.hear,),
        )
        async with in_hand(live, started):
            yield live

    def run_sync(
        self,
        prompt: Prompt,
        *,
        history: Transcript | None = None,
        session: str | None = None,
        session_wait: float | None = None,
        run_id: str | None = None,
        deps: Deps | None = None,
        limits: Limits | None = None,
        model: Model | str | None = None,
        settings: Settings | None = None,
        tags: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> Outcome[Out_co]:
        """`run` for code without an event loop; inside a running one it uses a private thread."""
        return _in_sync(
            self.run(
                prompt,
                history=history,
                session=session,
                session_wait=session_wait,
                run_id=run_id,
                deps=deps,
                limits=limits,
                model=model,
                settings=settings,
                tags=tags,
                detached=detached,
            )
        )

    async def resume(
        self,
        run_id: str,
        *,
        deps: Deps | None = None,
        limits: Limits | None = None,
        reopen: bool = False,
    ) -> Outcome[Out_co]:
        """Go on with a run where there is anything to go on with; else return its outcome as it stands.

        `limits` are new totals for a run that a limit ended. `reopen` takes up a cancelled one.
        Errors: `ConfigurationError` for an unknown run or another remit's, `RunBusy`, `JournalError`.
        """
        resumed = await self._resume(run_id, deps=deps, limits=limits, reopen=reopen)
        return await see_through(resumed.task, resumed.run)

    @contextlib.asynccontextmanager
    async def resuming(
        self,
        run_id: str,
        *,
        deps: Deps | None = None,
        limits: Limits | None = None,
        reopen: bool = False,
    ) -> AsyncGenerator[Live[Out_co]]:
        """The same as `resume`, with the run in your hands while it lasts, as `stream` gives it."""
        live: Live[Out_co] = Live()
        resumed = await self._resume(
            run_id, deps=deps, limits=limits, reopen=reopen, listeners=(live.hear,)
        )
        async with in_hand(live, resumed):
            yield live

    async def outcome(self, run_id: str) -> Outcome[Out_co]:
        """How a run ended or what it waits for; of one that this process executes, once it has.

        Errors: `ConfigurationError` for an unknown run; `RunBusy` for one that another process executes.
        """
        host = self._host(detached=True, listeners=())
        return await (await activation.look(self._config, host, run_id)).task

    async def cancel(
        self, run_id: str, *, reason: str = "", grace: float | None = None
    ) -> Outcome[Out_co]:
        """End a run wherever it stands, in whichever process, and wait until it is closed.

        `reason` is recorded with the end, as `Outcome.error`. `grace` is how many seconds tools under way have to stop,
        instead of those of `runtime`. Errors: `ConfigurationError` for an unknown run.
        """
        check_cancel(reason, grace)
        host = self._host(detached=True, listeners=())
        said = Cancel(reason, grace)
        return await (await activation.cancel(self._config, host, run_id, said)).task

    async def artifact(self, handle: str, *, run_id: str) -> Artifact:
        """The full output behind a handle that a result of this run, of its children or of its history names.

        Errors: `ConfigurationError` for an unknown run, and for a handle that is none or not this run's.
        """
        digest = digest_of(handle)
        if digest is None:
            raise ConfigurationError(
                f"{handle[:100]!r} is no handle: a result names one as artifact: and 64 hex digits"
            )
        if await self.store.info(run_id) is None:
            raise ConfigurationError(f"there is no run {run_id!r} in this store")
        artifact = await self.store.artifact(run_id, digest)
        if artifact is None:
            raise ConfigurationError(f"run {run_id!r} has no artifact:{digest}")
        return artifact

    @property
    def offered(self) -> tuple[Tool[..., Any], ...]:
        """Every tool that the model is offered, in the order in which they are sent; remit's own included."""
        return tuple(self._config.tools.values())

    @property
    def live_runs(self) -> tuple[str, ...]:
        """Ids of the runs of this store that this process executes now."""
        return activation.live_runs(self.store)

    # Deciding

    async def decide(
        self,
        token: str | None = None,
        *,
        approve: bool,
        by: str,
        id: str | None = None,  # noqa: A002 - the field's name
        note: str = "",
        edit: Mapping[str, Any] | None = None,
        arguments_hash: str | None = None,
    ) -> str:
        """Decide a proposal, once. Returns the id of the run to resume: the outermost that waits for it.

        Whoever holds the store may name the proposal by `id` instead of its token, and may state the hash of
        the arguments that were shown. `edit` puts the host's own arguments in place of the model's, who
        is told; `note` goes with a refusal.
        Errors: `DecisionError`; `ConfigurationError` inside a tool body: what the model can reach decides nothing.
        """
        refuse_inside("nothing is decided")
        decision = Decision(approve, by, note, edit)
        run_id = await decide(
            self.store, token, decision, id, arguments_hash=arguments_hash, now=self.runtime.utc()
        )
        return await activation.outermost(self.store, run_id)

    async def supply(
        self, pending_id: str, value: Any, *, is_error: bool = False, by: str = "host"
    ) -> str:
        """Answer a question, or bring the result of a call that was handed out; once.

        `value` is JSON: for a `Pending` of kind `input` what its schema asks for, for a `result` what the call came
        to. `is_error` says that the call failed; of a question, that nobody will answer it, and `value` is the
        text that says why. A result is redacted before it is recorded. Returns the id of the run to resume: the
        outermost that waits for it.
        Errors: `ConfigurationError` for what does not fit, with nothing recorded, and inside a tool body;
        `DecisionError`.
        """
        refuse_inside("nothing is supplied")
        run_id = await supply(
            self.store,
            pending_id,
            value,
            is_error=is_error,
            by=by,
            redact=self.redact,
            workers=self.runtime.workers,
            now=self.runtime.utc(),
        )
        return await activation.outermost(self.store, run_id)

    async def new_token(self, id: str) -> str:  # noqa: A002 - the field's name
        """Mint a token for an open proposal; the last one is void. Errors: `DecisionError`."""
        refuse_inside("no token is minted")
        return await new_token(self.store, id)

    async def grant(
        self,
        tool: str | Tool[..., Any],
        *,
        arguments: Mapping[str, Any],
        run_id: str | None = None,
        session: str | None = None,
        expires: float,
        by: str,
    ) -> Grant:
        """Approve in advance the calls of one description: no more than it says, and for `expires` seconds.

        `arguments` says of each argument what it must be: a JSON value that it equals, or a compiled pattern that
        the whole of its text fits. What is not named is not granted. `run_id` or `session` narrow where it holds.
        It stands where an approval would; a policy that refuses refuses all the same.
        Errors: `ConfigurationError`; inside a tool body too: what the model can reach grants nothing.
        """
        refuse_inside("nothing is granted")
        new = new_grant(
            self.name,
            self._config.tools,
            tool,
            arguments=arguments,
            run_id=run_id,
            session=session,
            expires=expires,
            by=by,
            now=self.runtime.utc(),
        )
        await grants_of(self.store).add_grant(new)
        return new

    async def grants(self) -> tuple[Grant, ...]:
        """The standing grants of this remit that count now, in the order in which they were given."""
        found, now = await grants_of(self.store).grants(self.name), self.runtime.utc()
        return tuple([each for each in found if each.expires_at > now])

    async def revoke(self, grant_id: str) -> bool:
        """End a standing grant. False where it is unknown or was revoked before.

        Errors: `ConfigurationError` inside a tool body.
        """
        refuse_inside("no grant is revoked")
        return await grants_of(self.store).revoke_grant(grant_id, at=self.runtime.utc())

    # Deriving

    def as_tool(
        self, name: str, description: str, *, limits: Limits, reserve: bool = False
    ) -> Tool[..., Any]:
        """This remit as a tool of another: one argument, `task`, is the prompt of a child run.

        `limits` are the child's ceiling; it spends out of its parent. `reserve` sets the whole share aside
        when the call begins. In doubt after a crash the child is resumed, not run again (E1).
        """
        check_options(self._config.model, limits, self.settings, tools=self._config.tools)

        async def delegate(arguments: dict[str, Any], call: Call[Any]) -> Outcome[Out_co]:
            started = await self._start(
                arguments["task"], deps=call.deps, limits=limits, reserve=reserve
            )
            return await see_through(started.task, started.run)

        handler: Callable[..., Any] = delegate
        return (
            Tool[..., Any]
            .from_schema(
                name=name,
                description=description,
                parameters={
                    "type": "object",
                    "properties": {
                        "task": {"type": "string", "description": "What is to be done."}
                    },
                    "required": ["task"],
                },
                handler=handler,
                effect="idempotent",
                timeout=limits.seconds + 4 * self.runtime.grace,
                resource=(),
            )
            .running(self.name, self._config.tools)
        )

    def replace(self, **changes: Unpack[Changes]) -> Remit[Deps, Out_co]:
        """A copy with these parts changed; what is not named stays as it is, the store too.

        None takes a part away that may be absent, such as the policy.
        Errors: `ConfigurationError` for what no copy can change: the types of deps and output.
        """
        unknown = changes.keys() - Changes.__optional_keys__
        if unknown:
            raise ConfigurationError(
                f"replace() cannot change {', '.join(sorted(unknown))}; it can change "
                f"{', '.join(sorted(Changes.__optional_keys__))}"
            )
        return replace(self, **changes)

    # Small parts

    async def _start(
        self,
        prompt: Prompt,
        *,
        history: Transcript | None = None,
        session: str | None = None,
        session_wait: float | None = None,
        run_id: str | None = None,
        deps: Any = None,
        limits: Limits | None = None,
        model: Model | str | None = None,
        settings: Settings | None = None,
        tags: Mapping[str, str] | None = None,
        detached: bool = False,
        reserve: bool = False,
        listeners: tuple[Listener, ...] = (),
    ) -> Activation:
        config = self._config
        if model is not None or settings is not None:
            asked = config.model if model is None else named(model)
            check_model(asked)
            config = config.asking(asked, config.settings if settings is None else settings)
        if limits is not None or config is not self._config:
            check_options(
                config.model,
                self.limits if limits is None else limits,
                config.settings,
                tools=config.tools,
            )
        self._check_deps(deps)
        if run_id is not None:
            check_name("run_id", run_id)
        if tags is not None:
            check_tags(tags)
        if history is not None and not isinstance(history, Transcript):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
            raise ConfigurationError(
                "history= takes a Transcript: an outcome's, or Transcript.load(...) of what is stored"
            )
        check_session(session, session_wait, history)
        request = Request(
            prompt=content_of(prompt),
            history=history,
            session=session,
            session_wait=session_wait or 0.0,
            run_id=run_id,
            deps=deps,
            limits=self.limits if limits is None else self.limits.narrowed(limits),
            tags=tags or {},
            reserve=reserve,
        )
        return await activation.start(
            config, self._host(detached=detached, listeners=listeners), request
        )

    async def _resume(
        self,
        run_id: str,
        *,
        deps: Any,
        limits: Limits | None,
        reopen: bool,
        listeners: tuple[Listener, ...] = (),
    ) -> Activation:
        self._check_deps(deps)
        host = self._host(detached=False, listeners=listeners)
        return await activation.resume(
            self._config, host, run_id, deps, limits=limits, reopen=reopen
        )

    def _check_deps(self, deps: object) -> None:
        """Errors: `ConfigurationError`."""
        if deps is None and self.deps_type is not None:
            raise ConfigurationError(
                f"remit {self.name!r} works with deps of type {self.deps_type.__name__}: give deps="
            )

    def _host(self, *, detached: bool, listeners: tuple[Listener, ...]) -> Host:
        frame = None if detached else _frame()
        if frame is None:
            return Host(self.store, self.runtime.workers, listeners)
        # A child is kept where its parent is, so that one store knows the whole tree.
        return Host(frame.store, self.runtime.workers, (*listeners, *frame.listeners), frame)


def _frame() -> Frame | None:
    """The call around. Errors: `ConfigurationError` where it has already got its result."""
    frame = CURRENT.get()
    if frame is not None and frame.over:
        raise ConfigurationError(
            f"the call {frame.key!r} has ended: nothing may start inside it any more"
        )
    return frame


def _read_output(output: Any, tools: Mapping[str, Tool[..., Any]]) -> OutputSpec | None:
    """What a run hands in; None for text. Errors: `ConfigurationError`."""
    if output is None or output is str:
        return None
    from remit.tools.output import OutputSpec

    spec = OutputSpec(output)
    if spec.tool.name in tools:
        raise ConfigurationError(
            f"with output= the tool {spec.tool.name!r} is remit's own, and takes the output; rename yours"
        )
    return spec


def _check_runtime(runtime: object) -> None:
    """Errors: `ConfigurationError`."""
    if not isinstance(runtime, Runtime):
        raise ConfigurationError("runtime= takes a remit.Runtime; leave it out for the real one")


def _in_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    ends: list[T | BaseException] = []
    context = contextvars.copy_context()

    def target() -> None:
        try:
            ends.append(context.run(asyncio.run, work))
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
            ends.append(error)

    thread = threading.Thread(target=target, name="remit run_sync", daemon=True)
    thread.start()
    thread.join()
    end = ends[0]
    if isinstance(end, BaseException):
        raise end
    return end
