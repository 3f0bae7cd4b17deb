"""Functions around tools: what they see, what they may do, and what they can never get around."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import pytest

from loop_rig import desk, results, rows, runtime, said, statuses, watched
from remit import (
    Allow,
    Call,
    Computed,
    ConfigurationError,
    Decision,
    Effect,
    Invocation,
    Limits,
    Pending,
    Proceed,
    Reason,
    Runtime,
    Tool,
    ToolError,
    tool,
    wrap_tools,
)
from remit.rows import Settled, Started
from remit.supervise import ABANDONED
from remit.testing import SimulatedWorkers, run_virtual
from remit.workers import ThreadWorkers

GRACE = 0.5
Around = Callable[[Invocation, Proceed], Any]


@wrap_tools
async def plain(invocation: Invocation, proceed: Proceed) -> Any:
    """Changes nothing."""
    return await proceed()


def telling(heard: list[str], name: str) -> Any:
    @wrap_tools
    async def tell(invocation: Invocation, proceed: Proceed) -> Any:
        heard.append(f"{name} in")
        result = await proceed()
        heard.append(f"{name} out")
        return result

    return tell


@tool(effect="read", eager=False)
async def look(n: int = 0) -> str:
    """Looks."""
    return f"saw {n}"


async def until_all_is_over() -> None:
    while len(ABANDONED):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(1)
    await asyncio.sleep(1)


# --- what a wrapper sees and does ----------------------------------------------------------------


@pytest.mark.parametrize("blocking", [False, True])
def test_wrappers_are_entered_from_the_outside_in(blocking: bool) -> None:
    """W1: around async and blocking functions alike; the innermost is the function."""
    heard: list[str] = []

    def act() -> str:
        """Acts."""
        heard.append("function")
        return "acted"

    async def act_async() -> str:
        return act()

    made = tool(effect="idempotent", name="act")(act if blocking else act_async)

    async def main() -> None:
        tools = telling(heard, "outer")(telling(heard, "inner")([made]))
        outcome = await desk([[("act", {})], "done"], tools).run("go")
        assert said(outcome) == ["acted"]
        assert heard == ["outer in", "inner in", "function", "inner out", "outer out"]

    run_virtual(main())


def test_a_wrapper_sees_the_call_and_a_copy_of_its_arguments() -> None:
    """W1: what it changes in them changes nothing for the function, nor for the next wrapper."""
    seen: list[Invocation] = []

    @wrap_tools
    async def meddle(invocation: Invocation, proceed: Proceed) -> Any:
        seen.append(invocation)
        assert invocation.arguments == {"order": {"id": 1}, "amount": Decimal("1.10")}
        invocation.arguments["order"]["id"] = 2
        del invocation.arguments["amount"]
        return await proceed()

    @tool(effect="confirm")
    async def pay(order: dict[str, int], amount: Decimal, call: Call[str]) -> str:
        """Pays."""
        return f"{order} {amount} {call.deps}"

    async def confirm(_: Pending) -> Decision:
        return Decision(approve=True, by="dana")

    async def main() -> None:
        asked = ("pay", '{"order": {"id": 1}, "amount": 1.10}')
        remit = desk([[asked], "done"], meddle(meddle([pay])), confirm=confirm)
        outcome = await remit.run("go", deps="me")
        assert said(outcome) == ["{'id': 1} 1.10 me"]
        assert [i.tool for i in seen] == ["pay", "pay"]
        assert seen[0].effect is Effect.CONFIRM
        assert seen[0].call.key == results(outcome)[0].key
        assert seen[0].call.deps == "me"
        assert seen[0].preview == '{"order": {"id": 1}, "amount": 1.10}'
        assert "1.10" not in repr(seen[0]).replace(seen[0].preview, "")

    run_virtual(main())


def test_what_a_wrapper_returns_is_the_result_and_what_it_raises_the_error() -> None:
    """C1: siblings keep theirs; without `proceed` the function is not run."""
    entered: list[int] = []

    @tool(effect="read", eager=False)
    async def note(n: int) -> str:
        """Notes."""
        entered.append(n)
        return f"noted {n}"

    @wrap_tools
    async def odd(invocation: Invocation, proceed: Proceed) -> Any:
        match invocation.arguments["n"]:
            case 1:
                return {"instead": True}
            case 2:
                raise ToolError("not this one")
            case 3:
                raise SystemExit("out")
            case 4:
                return f"<{await proceed()}>"
            case _:
                return await proceed()

    async def main() -> None:
        calls = [("note", {"n": n}) for n in range(6)]
        outcome = await desk([calls, "done"], odd([note])).run("go")
        assert statuses(outcome) == ["ok", "ok", "error", "error", "ok", "ok"]
        assert said(outcome)[1:3] == ['{"instead":true}', "Error: not this one"]
        assert said(outcome)[4] == "<noted 4>"
        assert entered == [0, 4, 5]

    run_virtual(main())


def test_a_wrapped_tool_is_the_tool_in_everything_else() -> None:
    """W1, E2: schema, limits, key, resources, summary, reconcile function and computed values."""

    @tool(
        effect="confirm",
        timeout=7,
        resource="order:{order_id}",
        usd="0.5",
        tokens=9,
        expires=60,
        errors="hidden",
        max_result_tokens=99,
    )
    async def pay(order_id: str, at: Annotated[str, Computed(lambda: "now")]) -> str:
        """Pays an order."""
        return f"{order_id} {at}"

    @pay.summary
    def _(order_id: str) -> str:
        return f"Pay order {order_id}"

    @pay.reconcile
    async def _(key: str) -> str:
        return "paid before"

    async def confirm(pending: Pending) -> Decision:
        assert pending.summary == "Pay order 7"
        return Decision(approve=True, by="dana")

    async def main() -> None:
        [wrapped] = plain([pay])
        skip = {"wrappers"}
        ours, theirs = vars(wrapped), vars(pay)
        assert [name for name in theirs if name not in skip and ours[name] != theirs[name]] == []
        assert repr(wrapped) == repr(pay)
        assert await wrapped("7", "then") == "7 then"  # for your own code it is the function
        keys: list[str | None] = []
        for tools in ([pay], [wrapped]):
            remit = desk([[("pay", {"order_id": "7"})], "done"], tools, confirm=confirm)
            outcome = await remit.run("go", run_id="r")
            assert said(outcome) == ["7 now"]
            keys.append(results(outcome)[0].key)
            assert outcome.spend.own.usd > Decimal("0.5")
        assert keys[0] == keys[1]

    run_virtual(main())


def test_the_functions_around_a_tool_may_be_partials_and_objects() -> None:
    class Counting:
        count = 0

        async def __call__(self, _: Invocation, proceed: Proceed) -> Any:
            self.count += 1
            return await proceed()

    async def ending(mark: str, invocation: Invocation, proceed: Proceed) -> str:
        return f"{await proceed()}{mark}"

    async def main() -> None:
        counting = Counting()
        tools = wrap_tools(counting)(wrap_tools(functools.partial(ending, "!"))([look]))
        outcome = await desk([[("look", {})], "done"], tools).run("go")
        assert (said(outcome), counting.count) == (["saw 0!"], 1)

    run_virtual(main())


def test_what_is_no_wrapper_is_refused_where_it_is_decorated() -> None:
    def function(invocation: Invocation, proceed: Proceed) -> None: ...
    async def generator(invocation: Invocation, proceed: Proceed) -> Any:
        yield 1

    wrong: list[Any] = [function, generator, "text", None]
    for each in wrong:
        with pytest.raises(ConfigurationError, match="async def"):
            wrap_tools(each)
    with pytest.raises(ConfigurationError, match="list"):
        plain(look)  # type: ignore[arg-type]
    not_applied: Any = [plain]
    with pytest.raises(ConfigurationError, match="plain function"):
        desk([], not_applied)


# --- the gate ------------------------------------------------------------------------------------


def test_an_effect_is_journaled_before_its_wrappers_are_entered() -> None:
    """E3, W1: and they are entered after the approval, not before."""
    seen: list[str] = []

    async def main() -> None:
        @wrap_tools
        async def watching(invocation: Invocation, proceed: Proceed) -> Any:
            seen.extend(type(row).__name__ for row in await rows(remit, "r"))
            return await proceed()

        @tool(effect="confirm")
        async def pay() -> str:
            """Pays."""
            return "paid"

        remit = desk([[("pay", {})], "done"], watching([pay]))
        outcome = await remit.run("go", run_id="r")
        assert outcome.reason is Reason.WAITING
        assert seen == []
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        assert said(await remit.resume("r")) == ["paid"]
        assert seen[-1] == "Started"

    run_virtual(main())


def test_a_call_that_its_wrapper_answers_is_no_call_of_the_function_and_costs_nothing() -> None:
    """L1, L2, W1: a cache does not use up the calls of a run, nor the price of a tool."""
    cache: dict[str, Any] = {}

    @wrap_tools
    async def cached(invocation: Invocation, proceed: Proceed) -> Any:
        known = str(invocation.arguments)
        if known not in cache:
            cache[known] = await proceed()
        return cache[known]

    @tool(effect="read", eager=False, usd="0.10", polling=True)
    async def buy(n: int) -> str:
        """Buys."""
        return f"bought {n}"

    async def main() -> None:
        turns = [[("buy", {"n": n % 2})] for n in range(6)]
        limits = Limits(steps=10, tokens=10**6, seconds=60, calls=3)
        remit = desk([*turns, "done"], cached([buy]), limits=limits)
        outcome = await remit.run("go", run_id="r")
        assert outcome.completed
        assert outcome.spend.own.calls == 2
        spent = [row.spent for row in await rows(remit, "r") if isinstance(row, Settled)]
        assert [each is None for each in spent] == [False, False, True, True, True, True]

    run_virtual(main())


def test_what_a_wrapper_spends_itself_is_booked_whether_it_proceeds_or_not() -> None:
    """L2, L3, J4: charges, and runs inside a wrapper, which are children of the call."""
    child = desk(["fine"] * 4, name="judge")
    judged: list[str] = []

    @wrap_tools
    async def judging(invocation: Invocation, proceed: Proceed) -> Any:
        invocation.call.charge(usd="0.25")
        verdict = await child.run(invocation.preview)
        judged.append(verdict.run_id)
        return await proceed() if invocation.arguments["n"] else verdict.text

    async def main() -> None:
        script = [[("look", {"n": 1}), ("look", {"n": 0})], "done"]
        remit = desk(script, judging([look]))
        outcome = await remit.run("go", run_id="r")
        assert said(outcome) == ["saw 1", "fine"]
        own, tree = outcome.spend.own, outcome.spend.tree
        assert own.calls == 1
        assert own.usd >= Decimal("0.5")
        assert tree.steps == own.steps + 2
        assert tree.tokens > own.tokens
        assert (await remit.outcome("r")).spend == outcome.spend
        assert all(run_id.startswith("r:1:look:") for run_id in judged)

    run_virtual(main())


def test_a_run_beneath_that_waits_passes_through_unseen() -> None:
    """E6, W1: a wrapper sees the result that comes of it, once, and nothing before."""
    seen: list[Any] = []

    @wrap_tools
    async def stringly(invocation: Invocation, proceed: Proceed) -> str:
        try:
            seen.append(await proceed())
        except Exception as error:
            seen.append(error)
        return f"<{seen[-1].text}>"

    @tool(effect="confirm")
    async def pay() -> str:
        """Pays."""
        return "paid"

    async def main() -> None:
        child = desk([[("pay", {})], "child done"], [pay], name="child")
        helper = child.as_tool("helper", "Do it.", limits=child.limits)
        remit = desk([[("helper", {"task": "x"})], "done"], stringly([helper]))
        outcome = await remit.run("go", run_id="r")
        assert (outcome.reason, seen) == (Reason.WAITING, [])
        await remit.decide(outcome.pending[0].token, approve=True, by="dana")
        assert said(await remit.resume("r")) == ["<child done>"]
        assert len(seen) == 1

    run_virtual(main())


# --- proceeding again ----------------------------------------------------------------------------


def again(times: int) -> Any:
    @wrap_tools
    async def insist(invocation: Invocation, proceed: Proceed) -> Any:
        last: Any = None
        for _ in range(times):
            try:
                last = await proceed()
            except OSError as error:
                last = str(error)
        return last

    return insist


@pytest.mark.parametrize("blocking", [False, True])
def test_the_function_of_a_confirm_tool_runs_once_whatever_its_wrapper_wants(
    blocking: bool,
) -> None:
    """E1, W1: the second `proceed` is that call's error, which says that the call was carried out."""
    entered: list[int] = []

    def body() -> str:
        """Pays."""
        entered.append(1)
        return "paid"

    async def body_async() -> str:
        return body()

    pay = tool(effect="confirm", name="pay")(body if blocking else body_async)

    async def confirm(_: Pending) -> Decision:
        return Decision(approve=True, by="dana")

    async def main() -> None:
        outcome = await desk([[("pay", {})], "done"], again(2)([pay]), confirm=confirm).run("go")
        assert entered == [1]
        assert statuses(outcome) == ["error"]
        assert "runs once" in said(outcome)[0]
        assert said(outcome)[0].endswith("The call itself was carried out.")
        stacked = again(2)(plain([pay]))
        outcome = await desk([[("pay", {})], "done"], stacked, confirm=confirm).run("go")
        assert entered == [1, 1]

    run_virtual(main())


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_a_wrapper_may_run_other_functions_again_under_the_same_key(
    effect: Any, blocking: bool
) -> None:
    """E1, E2: with arguments of their own each time, and counted as one call."""
    keys: list[str] = []

    def body(items: list[int], call: Call) -> str:
        """Notes."""
        keys.append(call.key)
        items.append(9)
        if len(keys) < 3:
            raise OSError(f"failed with {len(items)}")
        return f"noted {len(items)}"

    async def body_async(items: list[int], call: Call) -> str:
        return body(items, call)

    note = tool(effect=effect, name="note", eager=False)(body if blocking else body_async)

    async def main() -> None:
        outcome = await desk([[("note", {"items": [1]})], "done"], again(3)([note])).run("go")
        assert said(outcome) == ["noted 2"]
        assert len(keys) == 3
        assert set(keys) == {results(outcome)[0].key}
        assert outcome.spend.own.calls == 1

    run_virtual(main())


def test_what_is_beneath_cannot_be_entered_twice_at_a_time() -> None:
    """C5, E1: two entries side by side under one key are not the same as one after the other."""

    @tool(effect="read", eager=False)
    async def slow() -> str:
        """Takes its time."""
        await asyncio.sleep(1)
        return "seen"

    @wrap_tools
    async def both(invocation: Invocation, proceed: Proceed) -> Any:
        one, other = await asyncio.gather(proceed(), proceed(), return_exceptions=True)
        assert isinstance(other, ConfigurationError)
        return one

    async def main() -> None:
        outcome = await desk([[("slow", {})], "done"], both([slow])).run("go")
        assert said(outcome) == ["seen"]

    run_virtual(main())


def test_the_retries_of_a_tool_enter_its_wrappers_again() -> None:
    """E2, W1: each attempt is a whole entry; an author's own error is not tried again."""
    heard: list[str] = []
    failures: list[Exception] = [OSError("shaky"), ToolError("no")]

    @tool(effect="idempotent", retries=3)
    async def shaky() -> str:
        """Fails."""
        raise failures.pop(0)

    async def main() -> None:
        outcome = await desk(
            [[("shaky", {})], "done"], telling(heard, "w")(telling(heard, "v")([shaky]))
        ).run("go")
        assert said(outcome) == ["Error: no"]
        assert heard == ["w in", "v in"] * 2

    run_virtual(main())


def test_equal_deterministic_calls_enter_their_wrappers_once() -> None:
    """C6: what is remembered is what the wrapper made of it."""
    heard: list[str] = []

    @tool(effect="read", deterministic=True)
    def double(x: str) -> str:
        """Computes."""
        assert threading.current_thread() is not threading.main_thread()
        return x + x

    async def main() -> None:
        remit = desk(
            [[("double", {"x": "a"})] * 2, [("double", {"x": "a"})], "done"],
            telling(heard, "w")([double]),
            runtime=Runtime(workers=ThreadWorkers()),
        )
        outcome = await remit.run("go")
        assert said(outcome) == ["aa"] * 3
        assert heard == ["w in", "w out"]

    asyncio.run(main())


# --- blocking functions --------------------------------------------------------------------------


def test_a_blocking_function_beneath_runs_in_a_worker_in_the_wrappers_context() -> None:
    """C6, case 26: the event loop goes on, and what a wrapper has set is seen in the thread."""
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    threads: list[threading.Thread] = []
    together = threading.Barrier(2, timeout=5)

    @wrap_tools
    async def setting(invocation: Invocation, proceed: Proceed) -> Any:
        who.set(f"wrapper {invocation.arguments['n']}")
        return await proceed()

    @tool(effect="read", eager=False)
    def block(n: int) -> str:
        """Blocks until the other one is there."""
        threads.append(threading.current_thread())
        together.wait()
        return who.get()

    async def main() -> None:
        script = [[("block", {"n": 1}), ("block", {"n": 2})], "done"]
        remit = desk(script, setting([block]), runtime=Runtime(workers=ThreadWorkers()))
        outcome = await remit.run("go")
        assert said(outcome) == ["wrapper 1", "wrapper 2"]
        assert threading.main_thread() not in threads
        assert who.get() == "nobody"

    asyncio.run(main())


def test_a_blocking_function_that_ends_within_the_grace_is_believed() -> None:
    """K1, C7: as without a wrapper; what the wrapper makes of it is the result."""

    @wrap_tools
    async def mark(invocation: Invocation, proceed: Proceed) -> str:
        return f"<{await proceed()}>"

    @tool(effect="idempotent", timeout=2)
    def slow() -> str:
        """Takes a little too long."""
        return "done in time"

    async def main() -> None:
        workers = SimulatedWorkers(lambda _: 2.4)
        remit = desk([[("slow", {})], "done"], mark([slow]), runtime=with_workers(workers))
        outcome = await remit.run("go")
        assert said(outcome) == ["<done in time>"]
        assert (workers.abandoned, len(ABANDONED)) == (0, 0)

    run_virtual(main())


def with_workers(workers: Any) -> Runtime:
    given = runtime()
    return Runtime(workers=workers, now=given.now, grace=GRACE)


@wrap_tools
async def redacting(invocation: Invocation, proceed: Proceed) -> str:
    return (await proceed()).replace("4111", "***")


def test_a_blocking_function_that_outlasts_the_grace_is_abandoned_under_its_wrapper() -> None:
    """E4, case 31, case 39: unknown, its thread written off; the late outcome is what the wrapper makes of it."""

    @tool(effect="idempotent", timeout=2)
    def slow() -> str:
        """Takes much too long."""
        return "card 4111"

    async def main() -> None:
        workers = SimulatedWorkers(lambda n: 4.0 if n == 0 else 0.0)
        script = [[("slow", {})], [("slow", {})], "done"]
        remit = desk(script, redacting([slow]), runtime=with_workers(workers))
        async with remit.stream("go", run_id="r") as live:
            await asyncio.sleep(3)
            assert workers.abandoned == 1
            assert [name.split(" ")[0] for name in ABANDONED.names] == ["slow"]
            events = [event async for event in live]
        outcome = live.outcome
        assert [e.kind for e in events].count("call_abandoned") == 1
        assert statuses(outcome) == ["unknown", "ok"]
        assert said(outcome)[1] == "card ***"  # the repeat joined the first
        assert results(outcome)[1].key == results(outcome)[0].key
        assert (workers.abandoned, len(ABANDONED)) == (0, 0)
        assert b"4111" not in await everything_stored(remit, "r")

    run_virtual(main())


async def everything_stored(remit: Any, run_id: str) -> bytes:
    parts = [row.body for row in await remit.store.read(run_id)]
    return b"".join([*parts, *[posted.body for posted in await remit.store.inbox(run_id)]])


def test_a_thread_that_holds_a_cancelled_call_is_left_under_its_wrapper() -> None:
    """K1, E4, case 39: with real threads; the run is over after the grace, the thread is counted."""
    entered, release = threading.Event(), threading.Event()

    @tool(effect="idempotent")
    def hold() -> str:
        """Holds its thread."""
        entered.set()
        release.wait(10)
        return "card 4111"

    async def main() -> None:
        workers = ThreadWorkers()
        held = Runtime(workers=workers, grace=0.05)
        remit = desk([[("hold", {})], "never"], redacting([hold]), runtime=held)
        async with remit.stream("go", run_id="r") as live:
            await asyncio.to_thread(entered.wait, 10)
            outcome = await live.cancel()
        assert (outcome.reason, statuses(outcome)) == (Reason.CANCELLED, ["unknown"])
        assert workers.abandoned == 1
        release.set()
        while workers.abandoned or len(ABANDONED):  # noqa: ASYNC110 - a thread sets it, and cannot wake us
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "late" in [posted.kind for posted in await remit.store.inbox("r")]
        assert b"4111" not in await everything_stored(remit, "r")

    asyncio.run(main())


def test_a_blocking_function_that_is_still_queued_is_dropped_and_not_run() -> None:
    """C7, J2, case 39: no wrapper can make a call of what never began."""
    entered: list[int] = []

    @tool(effect="idempotent", timeout=3, resource=())
    def block(n: int) -> str:
        """Blocks."""
        entered.append(n)
        return "done"

    async def main() -> None:
        workers = SimulatedWorkers(lambda _: 2.0, threads=1)
        script = [[("block", {"n": 1}), ("block", {"n": 2}), ("block", {"n": 3})], "done"]
        remit = desk(script, plain(plain([block])), runtime=with_workers(workers))
        outcome = await remit.run("go")
        # The second began and outlasted its time; the third never began.
        assert statuses(outcome) == ["ok", "unknown", "not_started"]
        await until_all_is_over()
        # Its thread got there when the run had ended and its lease was given back: it is not entered any more.
        assert entered == [1]
        assert outcome.spend.own.calls == 2

    run_virtual(main())


def test_a_wrapped_function_for_which_there_is_no_worker_is_not_run() -> None:
    """C6: said as for any other; a wrapper may answer instead."""

    @wrap_tools
    async def consoling(invocation: Invocation, proceed: Proceed) -> Any:
        try:
            return await proceed()
        except RuntimeError:
            return "later, perhaps"

    @tool(effect="idempotent")
    def block() -> str:
        """Blocks."""
        return "done"

    async def main() -> None:
        workers = SimulatedWorkers(abandoned_cap=0)
        for around, status in ((plain, "not_started"), (consoling, "ok")):
            remit = desk([[("block", {})], "done"], around([block]), runtime=with_workers(workers))
            outcome = await remit.run("go")
            assert statuses(outcome) == [status]
            assert outcome.spend.own.calls == 0

    run_virtual(main())


# --- cuts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("swallows", [False, True])
def test_a_call_that_is_cut_before_its_wrapper_proceeds_was_not_run(swallows: bool) -> None:
    """E3, E4, W1: that is the truth, and stays it: nothing is entered after the cut."""
    entered: list[int] = []
    refused: list[BaseException] = []

    @wrap_tools
    async def waiting(invocation: Invocation, proceed: Proceed) -> Any:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            if not swallows:
                raise
        try:
            return await proceed()
        except BaseException as error:
            refused.append(error)
            await asyncio.sleep(5)
            raise

    @tool(effect="confirm", timeout=2)
    async def pay() -> str:
        """Pays."""
        entered.append(1)
        return "paid"

    async def confirm(_: Pending) -> Decision:
        return Decision(approve=True, by="dana")

    async def main() -> None:
        remit = desk([[("pay", {})], "done"], waiting([pay]), confirm=confirm)
        outcome = await remit.run("go", run_id="r")
        assert statuses(outcome) == ["not_started"]
        assert [type(error).__name__ for error in refused] == ["CancelledError"] * swallows
        await until_all_is_over()
        assert entered == []
        assert "late" not in [posted.kind for posted in await remit.store.inbox("r")]

    run_virtual(main())


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_a_wrapper_that_cuts_an_effect_short_leaves_a_doubt_and_not_an_error(
    effect: Any, blocking: bool
) -> None:
    """E4, W1: who cut it makes no difference to whether it may have taken effect."""

    @wrap_tools
    async def hasty(invocation: Invocation, proceed: Proceed) -> Any:
        async with asyncio.timeout(1):
            return await proceed()

    def body() -> str:
        """Slow."""
        return "at last"

    async def body_async() -> str:
        await asyncio.sleep(10)
        return "at last"

    slow = tool(effect=effect, name="slow", eager=False)(body if blocking else body_async)

    async def main() -> None:
        workers = SimulatedWorkers(lambda _: 10.0)
        remit = desk([[("slow", {})], "done"], hasty([slow]), runtime=with_workers(workers))
        outcome, events = await watched(remit, "go", run_id="r")
        assert outcome.spend.own.seconds == 1
        assert statuses(outcome) == ["error" if effect == "read" else "unknown"]
        assert workers.abandoned == blocking
        assert [e.kind for e in events].count("call_abandoned") == blocking
        if effect == "read":
            assert "TimeoutError" in said(outcome)[0]
        await asyncio.sleep(20)
        assert workers.abandoned == 0
        late = [posted.kind for posted in await remit.store.inbox("r")]
        assert late == ["late"] * (blocking and effect == "idempotent")

    run_virtual(main())


def test_an_effect_that_its_wrapper_gave_up_is_not_entered_beside_itself() -> None:
    """E1: a read may be tried again while its thread still runs, an effect may not."""

    def gives_up(heard: list[Any]) -> Any:
        @wrap_tools
        async def give_up(invocation: Invocation, proceed: Proceed) -> Any:
            for seconds in (1, 5):
                try:
                    async with asyncio.timeout(seconds):
                        return await proceed()
                except (TimeoutError, ConfigurationError) as error:
                    heard.append(type(error).__name__)
            return "gave up"

        return give_up

    async def main() -> None:
        for effect, answer, heard in (
            ("read", "done", ["TimeoutError"]),
            ("idempotent", "gave up", ["TimeoutError", "ConfigurationError"]),
        ):
            workers = SimulatedWorkers(lambda n: 10.0 if n == 0 else 0.0)
            told: list[Any] = []

            def body() -> str:
                """Slow at first."""
                return "done"

            slow = tool(effect=effect, name="slow", eager=False)(body)  # type: ignore[arg-type]
            remit = desk(
                [[("slow", {})], "done"], gives_up(told)([slow]), runtime=with_workers(workers)
            )
            outcome = await remit.run("go")
            assert (said(outcome), told) == ([answer], heard)
            await asyncio.sleep(20)

    run_virtual(main())


def test_a_task_that_a_wrapper_leaves_behind_cannot_enter_the_function_later() -> None:
    """K1, case 72: the call has its result; what proceeds then is refused."""
    entered: list[int] = []
    left: list[asyncio.Task[Any]] = []

    async def later(proceed: Proceed) -> Any:
        await asyncio.sleep(5)
        return await proceed()

    @wrap_tools
    async def careless(invocation: Invocation, proceed: Proceed) -> str:
        left.append(asyncio.create_task(later(proceed)))
        return "at once"

    @tool(effect="idempotent")
    async def act() -> str:
        """Acts."""
        entered.append(1)
        return "acted"

    async def main() -> None:
        outcome = await desk([[("act", {})], "done"], careless([act])).run("go")
        assert said(outcome) == ["at once"]
        await asyncio.wait(left)
        assert left[0].cancelled()
        assert entered == []

    run_virtual(main())


def test_a_thread_that_a_wrapper_leaves_behind_is_counted() -> None:
    """C6, case 39: it occupies its worker, and whoever watches is told."""
    left: list[asyncio.Task[Any]] = []

    @wrap_tools
    async def careless(invocation: Invocation, proceed: Proceed) -> str:
        left.append(asyncio.ensure_future(proceed()))
        await asyncio.sleep(1)
        return "at once"

    @tool(effect="read", eager=False)
    def block() -> str:
        """Blocks."""
        return "done"

    async def main() -> None:
        workers = SimulatedWorkers(lambda _: 10.0)
        remit = desk([[("block", {})], "done"], careless([block]), runtime=with_workers(workers))
        outcome, events = await watched(remit, "go")
        assert said(outcome) == ["at once"]
        assert workers.abandoned == 1
        assert "call_abandoned" in [event.kind for event in events]
        left[0].cancel()
        await asyncio.sleep(20)
        assert workers.abandoned == 0

    run_virtual(main())


def test_a_cancellation_born_beneath_a_wrapper_is_the_calls_own_error() -> None:
    """K2, case 02: it is no cut, and leaves no doubt."""

    @tool(effect="idempotent")
    async def odd() -> str:
        """Cancels itself."""
        raise asyncio.CancelledError

    async def main() -> None:
        outcome = await desk([[("odd", {}), ("look", {})], "done"], plain([odd, look])).run("go")
        assert outcome.completed
        assert statuses(outcome) == ["error", "ok"]

    run_virtual(main())


def test_a_detached_run_enters_its_wrappers_again() -> None:
    """K1, J3: what was cut by a detach is in doubt and runs again under its key."""
    heard: list[str] = []

    @tool(effect="idempotent", resource=())
    async def slow(call: Call) -> str:
        """Takes its time."""
        await asyncio.sleep(5)
        return call.key

    async def main() -> None:
        remit = desk([[("slow", {})], "done"], telling(heard, "w")([slow]))
        async with remit.stream("go") as live:
            await asyncio.sleep(2)
            await live.detach()
        outcome = await remit.resume(live.outcome.run_id)
        assert said(outcome) == [results(outcome)[0].key]
        assert heard == ["w in", "w in", "w out"]

    run_virtual(main())


def test_a_wrapper_that_blocks_the_event_loop_is_named() -> None:
    """C6: its steps are measured with those of the function."""

    @wrap_tools
    async def busy(invocation: Invocation, proceed: Proceed) -> Any:
        threading.Event().wait(0.06)
        return await proceed()

    async def main() -> None:
        _, events = await watched(desk([[("look", {})], "done"], busy([look])), "go")
        [blocked] = [event for event in events if event.kind == "call_blocked"]
        assert blocked.fields["tool"] == "look"

    run_virtual(main())


def test_started_is_written_once_for_a_wrapped_effect() -> None:
    """E3, W1: however often its wrapper proceeds."""

    @tool(effect="idempotent")
    async def act() -> str:
        """Acts."""
        return "acted"

    async def main() -> None:
        remit = desk([[("act", {})], "done"], again(3)([act]), policy=lambda _: Allow())
        await remit.run("go", run_id="r")
        assert len([row for row in await rows(remit, "r") if isinstance(row, Started)]) == 1

    run_virtual(main())


def test_methods_are_wrapped_with_their_instance() -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @tool(effect="read", eager=False)
        async def look(self) -> str:
            """Looks."""
            return self.name

    async def main() -> None:
        tools = plain([Shop("corner").look])
        assert said(await desk([[("look", {})], "done"], tools).run("go")) == ["corner"]
        unbound: list[Tool[..., Any]] = [*plain([Shop.look])]
        with pytest.raises(ConfigurationError, match="instance"):
            desk([], unbound)

    run_virtual(main())
