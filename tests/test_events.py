"""What a run tells: every kind of event, its fields, and that the page about them says the same."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from loop_rig import desk, model_of, watched
from remit import (
    AskModel,
    Call,
    Chunk,
    Decision,
    Event,
    Limits,
    MemoryStore,
    ModelProfile,
    ModelRequest,
    ModelUnavailable,
    Notice,
    Pending,
    Tool,
    Transcript,
    Usage,
    tool,
    wrap_model,
)
from remit.events import EventKind
from remit.messages import Media, Text
from remit.models.scripted import ScriptedModel, Step
from remit.preview import PREVIEW_CHARS, preview, preview_of
from remit.testing import run_virtual

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "events.md").read_text("utf-8")
KINDS = get_args(EventKind)
ENVELOPE = {"kind", "run_id", "path", "at"}
JSON_TYPES = {
    "string": str,
    "number": float,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}


@tool(effect="read")
async def look(seconds: float = 1) -> str:
    """Looks around for a while."""
    await asyncio.sleep(seconds)
    return "seen"


@tool(effect="confirm")
async def pay() -> str:
    """Pays."""
    return "paid"


@tool(effect="read", eager=False)
async def form(call: Call[Any]) -> int:
    """Asks twice."""
    return call.ask(int, "one?") + call.ask(int, "two?")


ship = Tool.elsewhere(name="ship", description="Ship.", parameters={}, effect="read")


@tool(effect="read", eager=False, retries=1)
async def shaky(call: Call[Any]) -> str:
    """Works at the second try, and holds up everything meanwhile."""
    call.progress("half way", fraction=0.5)
    time.sleep(0.06)  # noqa: ASYNC251 - it blocks on purpose
    if not attempts:
        attempts.append(1)
        raise OSError("again")
    return "done"


@tool(effect="read", eager=False, timeout=2)
async def stubborn() -> str:
    """Swallows its cancellation."""
    for _ in range(2):
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            continue
    return "at last"


attempts: list[int] = []


# --- runs that tell everything -------------------------------------------------------------------


async def tools_of_all_kinds() -> list[Event]:
    attempts.clear()
    script = [[("shaky", {}), ("stubborn", {}), ("nothing", {})], Step("done", delay=100)]
    return (await watched(desk(script, [shaky, stubborn]), "go"))[1]


async def trouble_with_the_model() -> list[Event]:
    def note() -> str:
        raise KeyError("tz")

    says = [("look", {"seconds": 1}), ("look", {"seconds": 50})]
    script = [
        Step(says, between=2, error=ModelUnavailable("overloaded", usage=Usage(input=9))),
        Step("done", usage=Usage(output=50_000)),
    ]
    return (await watched(desk(script, [look], notes=(note,)), "go"))[1]


async def a_notice() -> list[Event]:
    @wrap_model
    async def noticing(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        yield Notice("tool_set_aside", "the model does not see convert")
        async for chunk in ask(request):
            yield chunk

    made = desk(["done"])
    return (await watched(made.replace(model=noticing(model_of(made))), "go"))[1]


async def a_cold_cache() -> list[Event]:
    steps = [Step(turn, usage=Usage(input=9_880, output=9)) for turn in (("look", {}), "done")]
    model = ScriptedModel(steps, profile=ModelProfile(cache_tokens=1_024))
    return (await watched(desk(model, [look]), "go"))[1]


async def decisions() -> list[Event]:
    async def confirm(pending: Pending) -> Decision:
        raise EOFError

    return (await watched(desk([("pay", {})], [pay], confirm=confirm), "go"))[1]


async def a_standing_grant() -> list[Event]:
    trusting = desk([("pay", {}), "done"], [pay])
    await trusting.grant("pay", arguments={}, expires=60, by="dana")
    return (await watched(trusting, "go"))[1]


async def other_surroundings() -> list[Event]:
    store = MemoryStore()
    first = desk([("pay", {})], [pay], store=store)
    waiting = await first.run("go", run_id="r")
    await first.decide(waiting.pending[0].token, approve=True, by="dana")
    model = ScriptedModel(["done"], name="another")
    return (await watched(desk(model, [look], store=store), "go", run_id="r"))[1]


async def a_rule_that_fails() -> list[Event]:
    def rule(_: Transcript) -> bool:
        raise KeyError("order")

    return (await watched(desk([("look", {}), "done"], [look], stop_when=rule), "go"))[1]


async def outputs() -> list[Event]:
    script = ["seven", ("final_answer", {"value": "seven"}), ("final_answer", {"value": 7})]
    return (await watched(desk(script, output=int), "go"))[1]


async def redaction_that_fails() -> list[Event]:
    return (await watched(desk([("look", {}), "done"], [look], redact=lambda text: 1 / 0), "go"))[1]


async def a_small_window() -> list[Event]:
    @tool(effect="read")
    async def read(n: int) -> str:
        """Reads a lot."""
        return f"{n} " * 900

    profile = ModelProfile(context_window=8_000, max_output=500)
    script = [*(("read", {"n": n}) for n in range(1, 20)), "done"]
    return (await watched(desk(ScriptedModel(script, profile=profile), [read]), "go"))[1]


async def questions() -> list[Event]:
    given = [3]

    async def answer(pending: Pending) -> int:
        return given.pop()

    asks = [("form", {}), ("ship", {})]
    return (await watched(desk([asks], [form, ship], answer=answer), "go"))[1]


RUNS: list[Callable[[], Awaitable[list[Event]]]] = [
    tools_of_all_kinds,
    trouble_with_the_model,
    a_notice,
    a_cold_cache,
    decisions,
    a_standing_grant,
    other_surroundings,
    redaction_that_fails,
    outputs,
    a_rule_that_fails,
    a_small_window,
    questions,
]


@cache
def told() -> tuple[Event, ...]:
    """Every event of these runs."""
    return tuple(event for run in RUNS for event in run_virtual(_call(run)))


async def _call(run: Callable[[], Awaitable[list[Event]]]) -> list[Event]:
    return await run()


# --- the page ------------------------------------------------------------------------------------


def section(kind: str) -> str:
    found = re.search(rf"^## {kind}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/events.md says nothing about {kind}"
    return found[1]


def documented(kind: str) -> dict[str, str]:
    """The fields of a kind and their types, as its table names them."""
    return dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section(kind), re.MULTILINE))


def example(kind: str) -> dict[str, Any]:
    [block] = re.findall(r"```json\n(.*?)\n```", section(kind), re.DOTALL)
    return json.loads(block)


def fits(value: Any, name: str) -> bool:
    return value is None or type(value) in (JSON_TYPES[name], *([int] if name == "number" else []))


def test_the_page_has_a_section_for_every_kind_and_no_other() -> None:
    """V1: a kind that is told and not documented is nobody's contract."""
    assert sorted(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == sorted(KINDS)


def test_these_runs_tell_every_kind_of_event() -> None:
    """V1: or the next test would compare nothing."""
    assert {event.kind for event in told()} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_has_the_fields_that_the_page_names(kind: str) -> None:
    """V1: exactly these, of these types, in every event of the kind and in its example."""
    fields = documented(kind)
    shown = [event.to_json() for event in told() if event.kind == kind] + [example(kind)]
    for values in shown:
        assert set(values) == ENVELOPE | set(fields)
        assert [name for name in fields if not fits(values[name], fields[name])] == []
        assert json.loads(json.dumps(values)) == values
        assert values["kind"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_the_objects_in_an_event_have_the_fields_of_the_example(kind: str) -> None:
    """V1: down to the bottom."""

    def shape(value: Any) -> Any:
        return {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else None

    wanted = shape(example(kind))
    assert [e for e in told() if e.kind == kind and shape(e.to_json()) != wanted] == []


# --- what they say -------------------------------------------------------------------------------


def test_a_run_begins_with_what_it_is_and_ends_with_what_it_cost() -> None:
    """V1, J4: limits that are in force, and the spend of the outcome."""

    async def main() -> None:
        remit = desk([[("look", {})], "done"], [look], name="support")
        outcome, events = await watched(
            remit, "go", limits=Limits(steps=5, tokens=9_999, seconds=8)
        )
        first, last = events[0], events[-1]
        assert (first.kind, last.kind) == ("run_started", "run_ended")
        assert first.fields["name"] == "support"
        assert first.fields["model"] == model_of(remit).name
        assert (first.fields["limits"]["steps"], first.fields["limits"]["tokens"]) == (5, 9_999)
        assert last.fields["spend"] == outcome.spend.to_json()
        assert last.fields["reason"] == outcome.reason

    run_virtual(main())


def test_usage_of_replies_and_charges_is_that_of_the_run() -> None:
    """J4: each token once, also of attempts that came to nothing and of a second opinion."""

    @wrap_model
    async def twice(request: ModelRequest, ask: AskModel) -> AsyncIterator[Chunk]:
        async for _ in ask(request):
            pass
        async for chunk in ask(request):
            yield chunk

    async def main() -> None:
        lost = [Step(error=ModelUnavailable("busy", usage=Usage(input=7, output=1)))] * 2
        used = Usage(input=100, cache_read=30, output=20, reasoning=5)
        script = [*lost[:1], Step([("look", {})], usage=used), Step([("look", {})], usage=used)]
        script += [*lost, Step("a", usage=used), Step("b", usage=used)]
        remit = desk([], [look], model=twice(ScriptedModel(script)))
        outcome, events = await watched(remit, "go")
        assert outcome.completed
        usages = [Usage.from_json(e.fields["usage"]) for e in events if "usage" in e.fields]
        assert sum(usages, Usage()) == outcome.spend.own.usage
        costs = [Decimal(e.fields["usd"]) for e in events if "usage" in e.fields]
        assert sum(costs) == outcome.spend.own.usd
        assert len([e for e in events if e.kind == "charged"]) == 5

    run_virtual(main())


def test_calls_are_told_with_previews_of_arguments_and_results() -> None:
    """V1: bounded, one line, with nothing that a terminal would obey."""
    hostile = "\x1b[31mred\x1b[0m\n\x07 \u202eback " + "x" * 10_000

    @tool(effect="read", eager=False)
    def echo(text: str) -> str:
        """Says it again."""
        return text

    async def main() -> list[Event]:
        return (await watched(desk([[("echo", {"text": hostile})], "done"], [echo]), "go"))[1]

    events = run_virtual(main())
    [started] = [event for event in events if event.kind == "call_started"]
    [settled] = [event for event in events if event.kind == "call_settled"]
    assert started.fields["id"] == settled.fields["id"]
    for shown in (started.fields["arguments"], settled.fields["preview"]):
        assert len(shown) == PREVIEW_CHARS
        assert shown.isprintable()
        assert shown.endswith("x\u2026")
    assert settled.fields["preview"].startswith("red back xxx")
    assert started.fields["arguments"].startswith('{"text":')


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("one\n  two\r\nthree", "one two three"),
        ("a" * PREVIEW_CHARS, "a" * PREVIEW_CHARS),
        ("a" * (PREVIEW_CHARS + 1), "a" * (PREVIEW_CHARS - 1) + "\u2026"),
        ("\x1b]0;title\x07x\x1b]8;;http://e.vil\x1b\\link", "xlink"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("a\x00b\x7fc\u200bd\u2066e\ud800f", "abcdef"),
        ("\u00e4\u6f22\U0001f600", "\u00e4\u6f22\U0001f600"),
        (" " * 5_000 + "late", "late"),
    ],
)
def test_a_preview_is_one_printable_line(text: str, shown: str) -> None:
    """V1: whatever the text holds."""
    assert preview(text) == shown


def test_the_preview_of_media_is_their_type_and_size() -> None:
    """V1: never their bytes."""
    content = (Text("before"), Media("image/png", b"x" * 1_234), Text("after"))
    assert preview_of(content) == "before [image/png, 1,234 bytes] after"
    assert preview_of((Media("\x1b[2J\nevil", b"x"),)) == "[ evil, 1 bytes]"


def test_calls_that_a_run_leaves_open_are_told_too() -> None:
    """V1: whoever watches sees every call come to its end, whatever ended the run."""

    async def main() -> None:
        remit = desk([[("pay", {}), ("look", {"seconds": 9})], "never"], [pay, look])
        async with remit.stream("go") as live:
            await asyncio.sleep(2)
            await live.cancel()
            events = [event async for event in live]
        settled = {e.fields["tool"]: e.fields for e in events if e.kind == "call_settled"}
        asked = {r.tool_use_id: r for m in live.outcome.transcript for r in m.tool_results}
        assert {f["id"]: f["status"] for f in settled.values()} == {
            use: result.status for use, result in asked.items()
        }
        assert settled["pay"]["seconds"] is None
        assert settled["pay"]["preview"].startswith("Not started")
        assert events[-1].kind == "run_ended"

    run_virtual(main())
