"""`redact=`: applied to whatever tools say, before anybody but the function has seen it, and closed where it fails."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import remit as rm
from loop_rig import desk, results, said, statuses, watched
from remit import (
    Call,
    ConfigurationError,
    Decision,
    Invocation,
    Media,
    Pending,
    Proceed,
    Reason,
    Remit,
    Runtime,
    Text,
    Tool,
    tool,
    wrap_tools,
)
from remit.models.scripted import Step
from remit.redaction import WITHHELD, both, redacted, redacted_json
from remit.render import render
from remit.testing import SimulatedWorkers, run_virtual
from remit.workers import ThreadWorkers

CARD = "4111-1111-1111-1111"
HIDDEN = "[card]"


def redact(text: str) -> str:
    return text.replace(CARD, HIDDEN)


async def everything(remit: Remit[Any], run_id: str, events: list[Any]) -> bytes:
    """All that is left of a run: rows, inbox, artifacts, events."""
    store: Any = remit.store
    parts = [row.body for row in await store.read(run_id)]
    parts += [posted.body for posted in await store.inbox(run_id)]
    for message in (await remit.outcome(run_id)).transcript:
        for result in message.tool_results:
            for handle in result.artifacts:
                artifact = await store.artifact(run_id, handle.removeprefix("artifact:"))
                parts.append(artifact.data)
    parts += [json.dumps(event.to_json()).encode() for event in events]
    return b"\n".join(parts)


# --- every source --------------------------------------------------------------------------------


def made(body: Callable[..., Any], effect: Any = "read", **options: Any) -> Tool[..., Any]:
    return tool(effect=effect, name="act", description="Acts.", eager=False, **options)(body)


def raises(error: BaseException) -> Callable[[], Any]:
    async def body() -> Any:
        raise error

    return body


def returns(value: Any) -> Callable[[], Any]:
    async def body() -> Any:
        return value

    return body


def blocking() -> str:
    return f"card {CARD}"


async def asynchronous_items() -> Any:
    yield CARD
    yield {"number": CARD}


class Unwritable:
    def __repr__(self) -> str:
        return CARD

    def __reduce__(self) -> Any:
        raise TypeError(CARD)


PAYLOAD = base64.b64encode(f"name,card\nme,{CARD}\n".encode() * 20).decode()

SOURCES: dict[str, Callable[[], Tool[..., Any]]] = {
    "text": lambda: made(returns(f"card {CARD}")),
    "text, blocking": lambda: made(blocking),
    "JSON": lambda: made(returns({"card": CARD, "n": [1, CARD]})),
    "blocks": lambda: made(returns([Text(CARD), Text("and"), Text(CARD)])),
    "items": lambda: made(asynchronous_items),
    "a long text": lambda: made(returns("x" * 30_000 + CARD + "y" * 30_000 + CARD)),
    "bytes": lambda: made(returns(f"name,card\nme,{CARD}\n".encode() * 50)),
    "media that are text": lambda: made(returns([Media("text/csv", CARD.encode(), f"{CARD}.csv")])),
    "a data URL": lambda: made(returns(f"see data:text/csv;base64,{PAYLOAD} above")),
    "an error": lambda: made(raises(ValueError(f"no such card {CARD}"))),
    "a group of errors": lambda: made(raises(ExceptionGroup(CARD, [ValueError(CARD)]))),
    "an error of the author's": lambda: made(raises(rm.ToolError(CARD))),
    "an exit": lambda: made(raises(SystemExit(CARD))),
    "what cannot be written": lambda: made(returns(Unwritable())),
    "an effect": lambda: made(returns(CARD), "idempotent"),
    "a remembered result": lambda: made(returns(CARD), deterministic=True),
}


@pytest.mark.parametrize("source", SOURCES)
def test_no_text_of_a_tool_is_seen_before_it_is_redacted(source: str) -> None:
    """R2: neither by the model, nor in the journal, an artifact or an event."""

    async def main() -> None:
        script = [[("act", {})], [("act", {})], "done"]
        remit = desk(script, [SOURCES[source]()], redact=redact)
        outcome, events = await watched(remit, "go", run_id="r")
        assert outcome.completed
        left = await everything(remit, "r", events)
        assert CARD.encode() not in left
        assert CARD not in str(outcome.transcript.to_json())
        assert base64.b64encode(CARD.encode())[:-4] not in left
        assert CARD not in base64.b64decode(PAYLOAD).decode() or PAYLOAD[:80].encode() not in left
        if "written" not in source:
            assert HIDDEN.encode() in left or base64.b64encode(HIDDEN.encode())[:8] in left

    run_virtual(main())


KEY = '-- key --\na"b\\c\t\u00fc\n-- end --'
ESCAPED: dict[str, Callable[[], Any]] = {
    "JSON": lambda: {"key": KEY, "n": [1, KEY], KEY: None},
    "JSON of the tool's own": lambda: json.dumps({"key": KEY}, indent=2),
    "JSON in a string of JSON": lambda: {"body": json.dumps({"key": json.dumps([KEY])})},
    "JSON in other words": lambda: f'5" of it: {json.dumps(KEY)}, C:\\new and more',
    "a long list": lambda: [{"line": f"{n}\n", "key": KEY} for n in range(3_000)],
    "bytes": lambda: json.dumps({"key": KEY}).encode(),
    "an error": lambda: ValueError(json.dumps({"key": KEY})),
    "an error that quotes": lambda: KeyError(KEY),
}


@pytest.mark.parametrize("source", ESCAPED)
def test_what_is_spelled_with_escapes_is_redacted_as_it_reads(source: str) -> None:
    """R2: a secret of two lines, or with a quote in it, is one inside of JSON too."""

    async def main() -> None:
        value = ESCAPED[source]()
        body = raises(value) if isinstance(value, Exception) else returns(value)
        remit = desk(
            [("act", {}), "done"], [made(body)], redact=lambda text: text.replace(KEY, HIDDEN)
        )
        _, events = await watched(remit, "go", run_id="r")
        left = (await everything(remit, "r", events)).decode()
        assert "-- key --" not in left
        assert "-- end --" not in left
        assert HIDDEN in left

    run_virtual(main())


@pytest.mark.parametrize(
    "redact",
    [
        lambda text: text,
        lambda text: f"[seen] {text}",
        lambda text: text.replace("line", "LINE"),
        lambda text: re.sub(r"[0-9]+", "0", text),
    ],
)
def test_escapes_stay_as_the_tool_spelled_them(redact: Any) -> None:
    """R2: only what reads as something to be redacted is written anew."""
    text = json.dumps({"a": 'line\n\u00fc \\ 12 "quoted"', "b": [1, "\t"]}) + " C:\\new\\x \\"
    assert redacted(render(text), redact).content == (Text(redact(text)),)


@pytest.mark.parametrize(
    "text", ['\\"' * 500_000, "\\" * 1_000_000, "a\\n" * 300_000, '"\\\\' * 300_000]
)
def test_escapes_are_looked_through_in_linear_time(text: str) -> None:
    """R2, C6: a text that is all escapes is not worth a timeout."""
    began = time.process_time()
    assert redacted(render(text), lambda text: text).content == (Text(text),)
    assert time.process_time() - began < 10


def far() -> Tool[..., Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    return Tool.elsewhere(
        name="far", description="Far.", parameters=parameters, effect="idempotent"
    )


@pytest.mark.parametrize(
    ("value", "is_error"),
    [
        ({"card": CARD, CARD: [CARD, 1.50]}, False),
        (CARD, False),
        ([CARD] * 5_000, False),
        (json.dumps({"card": [CARD]}), False),
        (CARD, True),
        ({"why": CARD}, True),
    ],
)
def test_a_result_that_is_brought_is_redacted_before_it_is_recorded(
    value: Any, is_error: bool
) -> None:
    """R2: it is what a tool said, wherever the tool was executed; not even the inbox has it unredacted."""

    async def main() -> None:
        remit = desk([("far", {}), "done"], [far()], redact=redact)
        outcome, before = await watched(remit, "go", run_id="r")
        await remit.supply(outcome.pending[0].id, value, is_error=is_error)
        async with remit.stream("go", run_id="r") as live:
            events = [event async for event in live]
        assert live.outcome.completed
        left = await everything(remit, "r", [*before, *events])
        assert CARD.encode() not in left
        assert HIDDEN in said(live.outcome)[0]

    run_virtual(main())


@pytest.mark.parametrize("redact", [lambda _: 1, lambda text: 1 / 0])
def test_a_result_that_is_brought_and_cannot_be_redacted_is_withheld(redact: Any) -> None:
    """R2: it fails closed: nothing of it is recorded."""

    async def main() -> None:
        remit = desk([("far", {}), "done"], [far()], redact=redact)
        outcome = await remit.run("go", run_id="r")
        await remit.supply(outcome.pending[0].id, CARD)
        assert CARD.encode() not in await everything(remit, "r", [])
        outcome = await remit.resume("r")
        assert said(outcome) == [f"Error: {WITHHELD}"]
        assert CARD.encode() not in await everything(remit, "r", [])

    run_virtual(main())


@pytest.mark.parametrize(
    ("redact", "made"),
    [
        (lambda text: text.replace('"', ""), '"{a:1.50}"'),
        (lambda _: "half \ud800", '"half \ufffd"'),
        (lambda text: text.replace("1.50", "2.50"), '{"a":2.50}'),
        (lambda text: text, '{"a":1.50}'),
    ],
)
def test_what_is_left_of_json_is_json(redact: Any, made: str) -> None:
    """R2, C4: whatever the function makes of it, and with every digit that it leaves."""
    assert redacted_json('{"a":1.50}', redact) == made


def test_nothing_is_redacted_where_nobody_asked_for_it() -> None:
    async def main() -> None:
        outcome = await desk([[("act", {})], "done"], [SOURCES["text"]()]).run("go")
        assert said(outcome) == [f"card {CARD}"]

    run_virtual(main())


def test_what_a_function_reports_on_its_way_is_redacted_too() -> None:
    """R2: progress is shown in events; a redactor that fails on it hides it."""

    def fussy(text: str) -> str:
        if "odd" in text:
            raise ValueError
        return redact(text)

    async def body(call: Call) -> str:
        call.progress(f"charging {CARD}")
        call.progress("odd")
        call.progress("charging " + "".join(f"\\u{ord(digit):04x}" for digit in CARD))
        call.progress(None, fraction=0.5)
        return "ok"

    async def main() -> None:
        script = [[("act", {})], "done"]
        _, events = await watched(desk(script, [made(body)], redact=fussy), "go")
        told = [event.fields["message"] for event in events if event.kind == "call_progress"]
        hidden = f"charging {HIDDEN}"
        assert told == [hidden, "(withheld: its redaction failed)", hidden, None]

    run_virtual(main())


def test_a_wrapper_is_redacted_like_the_function() -> None:
    """R2, W1: what it adds and what it raises; the redactor stands outside of all wrappers."""

    @wrap_tools
    async def chatty(invocation: Invocation, proceed: Proceed) -> str:
        result = await proceed()
        if "fail" in str(result):
            raise ValueError(CARD)
        return f"{result} {CARD}"

    async def main() -> None:
        for value, words in (("fine", f"fine {HIDDEN}"), ("fail", f"Error: ValueError: {HIDDEN}")):
            tools = chatty([made(returns(value))])
            outcome = await desk([[("act", {})], "done"], tools, redact=redact).run("go")
            assert said(outcome) == [words]

    run_virtual(main())


def test_a_late_outcome_is_redacted_before_anybody_joins_it() -> None:
    """R2, E4: what comes after the call was given up."""

    async def body() -> str:
        try:
            await asyncio.sleep(4)
        except asyncio.CancelledError:
            await asyncio.sleep(2)
        return CARD

    async def main() -> None:
        act = made(body, "idempotent", timeout=2)
        remit = desk([[("act", {})], [("act", {})], "done"], [act], redact=redact)
        outcome, events = await watched(remit, "go", run_id="r")
        assert statuses(outcome) == ["unknown", "ok"]
        assert said(outcome)[1] == HIDDEN
        assert CARD.encode() not in await everything(remit, "r", events)

    run_virtual(main())


def test_what_becomes_of_a_doubt_is_redacted() -> None:
    """R2, E3: the answer of a reconcile function is a result like any other."""
    hangs = [True]

    async def body() -> str:
        if hangs.pop():
            await asyncio.sleep(100)
        return "never"

    pay = made(body, "confirm")

    @pay.reconcile
    async def _(key: str) -> str:
        return f"paid by {CARD}"

    async def confirm(_: Pending) -> Decision:
        return Decision(approve=True, by="dana")

    async def main() -> None:
        remit = desk([[("act", {})], "done"], [pay], redact=redact, confirm=confirm)
        async with remit.stream("go", run_id="r") as live:
            await asyncio.sleep(1)
            await live.detach()
        outcome = await remit.resume("r")
        assert said(outcome) == [f"paid by {HIDDEN}"]

    run_virtual(main())


def test_runs_inside_keep_to_the_redaction_of_the_run_around_them() -> None:
    """R2, L3: their records, and the events that whoever watches the parent sees; their own comes first."""

    def outer(text: str) -> str:
        return redact(text).replace("own", "OWN")

    async def main() -> None:
        store = rm.MemoryStore()
        act = made(returns(f"card {CARD}"))
        child = desk(
            [[("act", {})], f"child says {CARD}"],
            [act],
            name="child",
            store=store,
            redact=lambda text: text.replace("card", "own card"),
        )
        helper = child.as_tool("helper", "Do it.", limits=child.limits)
        remit = desk([[("helper", {"task": "x"})], "done"], [helper], store=store, redact=outer)
        outcome, events = await watched(remit, "go", run_id="r")
        assert said(outcome) == [f"child says {HIDDEN}"]
        [inside] = {event.run_id for event in events} - {"r"}
        assert said(await child.outcome(inside)) == [f"OWN card {HIDDEN}"]
        settled = [e for e in events if e.kind == "call_settled" and e.run_id == inside]
        assert CARD not in json.dumps([event.to_json() for event in settled])

    run_virtual(main())


# --- failing closed ------------------------------------------------------------------------------


def raising(text: str) -> str:
    raise ValueError(f"cannot make sense of {text}")


def leaving(text: str) -> str:
    raise SystemExit(text)


@pytest.mark.parametrize("fails", [raising, leaving, lambda text: None, lambda text: text.encode()])
@pytest.mark.parametrize(
    ("source", "carried_out"), [("text", False), ("an effect", True), ("an error", False)]
)
def test_a_result_that_cannot_be_redacted_is_withheld(
    fails: Any, source: str, carried_out: bool
) -> None:
    """R2: it says so, and whether the call took place; an event names the kind of failure and no text."""

    async def main() -> None:
        remit = desk([[("act", {})], "done"], [SOURCES[source]()], redact=fails)
        outcome, events = await watched(remit, "go", run_id="r")
        assert outcome.completed
        assert statuses(outcome) == ["error"]
        assert said(outcome)[0].startswith("Error: the result is withheld")
        assert said(outcome)[0].endswith("carried out.") == carried_out
        [failed] = [event for event in events if event.kind == "redact_failed"]
        assert failed.fields["tool"] == "act"
        assert CARD.encode() not in await everything(remit, "r", events)

    run_virtual(main())


def test_a_redactor_that_never_ends_is_left_to_itself() -> None:
    """R2, C6, C7: it runs in a worker, within the time of the call."""

    async def main() -> None:
        workers = SimulatedWorkers(lambda _: 100.0)
        given = Runtime(workers=workers, now=desk([]).runtime.now, grace=0.5)
        act = made(returns(CARD), timeout=5)
        outcome = await desk([[("act", {})], "done"], [act], redact=redact, runtime=given).run("go")
        assert statuses(outcome) == ["error"]
        assert "could not be read in time" in said(outcome)[0]
        assert workers.abandoned == 1
        await asyncio.sleep(100)

    run_virtual(main())


def test_a_redactor_never_runs_on_the_event_loop() -> None:
    """C6, R2: it may well block, as one that asks a service does."""
    threads: list[threading.Thread] = []

    def slow(text: str) -> str:
        threads.append(threading.current_thread())
        return redact(text)

    async def main() -> None:
        given = Runtime(workers=ThreadWorkers())
        tools = [SOURCES["text"]()]
        outcome = await desk([[("act", {})], "done"], tools, redact=slow, runtime=given).run("go")
        assert said(outcome) == [f"card {HIDDEN}"]
        assert threads
        assert threading.main_thread() not in threads

    asyncio.run(main())


# --- what comes out ------------------------------------------------------------------------------


def test_what_is_left_is_well_formed_and_never_blank() -> None:
    """C4, R2: a redactor may take everything away, or leave half a character."""

    async def main() -> None:
        for redactor, words in (
            (lambda text: "", "(empty text)"),
            (lambda text: "\x00\ud800", "\ufffd\ufffd"),
            (lambda text: text[:-1], '{"a":1'),
        ):
            outcome = await desk(
                [[("act", {})], "done"], [made(returns({"a": 1}))], redact=redactor
            ).run("go")
            assert said(outcome) == [words]

    run_virtual(main())


def test_handles_are_left_alone_and_lead_to_what_was_redacted() -> None:
    """X2, R2: a pattern for long numbers does not eat the digits of a handle."""

    def digits(text: str) -> str:
        return re.sub(r"[0-9a-f]{8,}", "#", redact(text))

    rendered = render([f"before {CARD}", f"x,{CARD}\n".encode() * 30, b"\x89PNG\xff" * 30])
    clean = redacted(rendered, digits)
    [text, *_] = [block.text for block in clean.content if isinstance(block, Text)]
    assert [artifact.handle in text for artifact in clean.found] == [True, True]
    assert clean.found[0].data.decode() == f"x,{HIDDEN}\n" * 30
    assert clean.found[1] == rendered.found[1]  # a picture is no text
    assert HIDDEN in text
    untouched = redacted(rendered, lambda text: text)
    assert untouched == rendered


def test_a_cut_result_is_cut_after_it_was_redacted() -> None:
    """X2, R2: half a number at the cut is no number that a pattern knows."""

    async def main() -> None:
        act = made(returns((CARD + " ") * 2_000), max_result_tokens=50)
        remit = desk([[("act", {})], "done"], [act], redact=redact)
        outcome, events = await watched(remit, "go", run_id="r")
        assert "4111" not in said(outcome)[0]
        assert b"4111-" not in await everything(remit, "r", events)
        assert results(outcome)[0].artifacts

    run_virtual(main())


def test_what_was_kept_before_is_redacted_when_it_is_read() -> None:
    """R2, X2: a page and a search of what an earlier run kept as it was; the way on stays what it is."""

    async def main() -> None:
        store = rm.MemoryStore()
        act = made(returns("line\n" * 2_000 + CARD + "\nline" * 2_000))
        before = await desk([[("act", {})], "done"], [act], store=store).run("go")
        [handle] = results(before)[0].artifacts
        asked = [{"offset": 9_990, "length": 100}, {"search": "4111"}, {"offset": 0, "length": 50}]
        calls = [("read_artifact", {"handle": handle, **each}) for each in asked]
        remit = desk([calls, "done"], [act], store=store, redact=redact)
        outcome, events = await watched(remit, "go on", run_id="r", history=before.transcript)
        assert statuses(outcome)[1:] == ["ok"] * 3
        page, found, plain = said(outcome)[1:]
        assert f"line\n{HIDDEN}\nline" in page
        assert "characters 9990 to 10090 of 20019" in page
        assert HIDDEN in found
        assert plain.startswith("line\nline\n")
        rows = b"".join(row.body for row in await store.read("r"))
        assert CARD.encode() not in rows
        assert CARD not in json.dumps([event.to_json() for event in events])
        withheld = desk([calls, "done"], [act], store=store, redact=raising)
        outcome = await withheld.run("go on", history=before.transcript)
        assert all("withheld" in text for text in said(outcome)[1:])

    run_virtual(main())


def test_two_redactors_are_applied_one_after_the_other() -> None:
    inner: Callable[[str], str] = lambda text: text + "a"  # noqa: E731 - as short as it is
    outer: Callable[[str], str] = lambda text: text + "b"  # noqa: E731 - the same
    assert both(None, None) is None
    assert both(inner, None) is inner
    assert both(None, outer) is outer
    assert both(inner, inner) is inner
    composed = both(inner, outer)
    assert composed is not None
    assert composed("x") == "xab"


def test_what_is_no_redactor_is_refused() -> None:
    async def later(text: str) -> str:
        return text

    for wrong in (later, "text", lambda: "x"):
        with pytest.raises(ConfigurationError, match="redact="):
            desk([], redact=wrong)
    assert desk([], redact=redact).replace(redact=None).redact is None


def test_an_early_read_is_redacted() -> None:
    """C3, R2: also where it begins while its reply is still written."""

    @tool(effect="read")
    async def act() -> str:
        """Acts."""
        return CARD

    async def main() -> None:
        script = [Step([("act", {}), "and on"], between=5), "done"]
        remit = desk(script, [act], redact=redact)
        outcome, events = await watched(remit, "go", run_id="r")
        assert (outcome.reason, said(outcome)) == (Reason.COMPLETED, [HIDDEN])
        assert CARD.encode() not in await everything(remit, "r", events)

    run_virtual(main())
